"""A sketch of whatever kind, from its bytes."""

from pianissimo.sketches.file import decode_sketch
from pianissimo.sketches.merging import MergedSketch
from pianissimo.sketches.misra_gries import MisraGries
from pianissimo.sketches.privacy_aware import PrivacyAwareMisraGries

AnySketch = MisraGries | PrivacyAwareMisraGries | MergedSketch
"""A sketch of one of the kinds that are stored."""

_KINDS: dict[str, type[MisraGries] | type[PrivacyAwareMisraGries] | type[MergedSketch]] = {
    "misra-gries": MisraGries,
    "privacy-aware": PrivacyAwareMisraGries,
    "merged": MergedSketch,
}


def sketch_from_bytes(stored: bytes) -> AnySketch:
    """The sketch that any `to_bytes` wrote.

    >>> sketch_from_bytes(MisraGries(k=8, keys="text").to_bytes())
    MisraGries(k=8, keys='text')
    """
    sketch = decode_sketch(stored)
    return _KINDS[sketch.kind].from_stored(sketch)
