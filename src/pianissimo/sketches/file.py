"""Sketches as bytes: versioned, checksummed, with their parameters and lineage, and strict about what is not known.

The envelope is that of every stored state (`codec`): a magic word, a version, a body and a BLAKE2b checksum. The bytes
hold exact counts: they are as secret as the stream.
"""

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np

from pianissimo import codec
from pianissimo.errors import StateError
from pianissimo.sketches.contents import LARGEST_TOTAL, MOST_COUNTERS, KeyListing, Lineage, empty_listing
from pianissimo.sketches.key_columns import LONGEST_KEY, KeyKind

SketchKind = Literal["misra-gries", "privacy-aware", "merged"]
"""The kinds of sketches that are stored."""

_STATE = "sketch"
_VERSION = 1


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SketchRecord:
    """All that a sketch says of itself, and that its bytes say: secret."""

    kind: SketchKind
    sets: bool
    k: int
    key_kind: KeyKind | None
    listing: KeyListing
    """Keys with u(x), or with the counts of a merged sketch."""
    decrements: int
    total: int
    lineage: Lineage

    def counts(self) -> KeyListing:
        """The keys of positive count c(x) in their order."""
        return self.listing.lowered(self.decrements)


def encode_sketch(sketch: SketchRecord) -> bytes:
    """The bytes of a sketch."""
    content: dict[str, Any] = {
        "kind": sketch.kind,
        "sets": sketch.sets,
        "k": sketch.k,
        "keys": sketch.key_kind,
        "decrements": sketch.decrements,
        "total": sketch.total,
        "lineage": sketch.lineage.to_plain(),
        "values": sketch.listing.values(),
    }
    if sketch.key_kind == "int64":
        content["integers"] = sketch.listing.integers()
    elif sketch.key_kind is not None:
        content["text"], content["lengths"] = sketch.listing.bytes()
    return codec.encode(_STATE, _VERSION, content)


def decode_sketch(stored: bytes, kind: SketchKind | None = None) -> SketchRecord:
    """The sketch in some bytes, if they are undamaged, of this version, and of the kind asked for."""
    content = codec.decode(_STATE, _VERSION, stored)
    try:
        sketch = _sketch(content)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise StateError("a stored sketch must be well formed, got something else") from None
    if kind is not None and sketch.kind != kind:
        raise StateError(f"a stored sketch must be of kind {kind}, got kind {sketch.kind}")
    return sketch


def _sketch(content: dict[str, Any]) -> SketchRecord:
    kind, sets, key_kind = content["kind"], content["sets"], content["keys"]
    k, decrements, total = (_whole(content[name]) for name in ("k", "decrements", "total"))
    if kind not in get_args(SketchKind):
        raise StateError("a stored sketch must be of a kind that this version knows, got another")
    if not isinstance(sets, bool) or (kind != "merged" and sets != (kind == "privacy-aware")):
        raise ValueError
    if key_kind is not None and key_kind not in get_args(KeyKind):
        raise ValueError
    if not 1 <= k <= MOST_COUNTERS or max(decrements, total) > LARGEST_TOTAL:
        raise ValueError
    listing = _listing(key_kind, content)
    values = listing.values()
    # (k + 1) D + sum of c = n for a sketch of keys; for the others n is at least that.
    counted = (k + 1) * decrements + sum((values - decrements).tolist())
    if len(listing) > k or (len(values) and int(values.min()) < decrements) or counted > total:
        raise ValueError
    # And nothing is ever decremented before all counters are taken.
    if kind == "misra-gries" and (counted != total or (decrements and len(listing) < k)):
        raise ValueError
    return SketchRecord(
        kind=cast("SketchKind", kind),
        sets=sets,
        k=k,
        key_kind=key_kind,
        listing=listing,
        decrements=decrements,
        total=total,
        lineage=Lineage.from_plain(content["lineage"]),
    )


def _listing(key_kind: KeyKind | None, content: dict[str, Any]) -> KeyListing:
    values = _array(content["values"], np.int64)
    if key_kind is None:
        if len(values):
            raise ValueError
        return empty_listing("int64")
    if key_kind == "int64":
        return KeyListing.of_integers(_array(content["integers"], np.int64), values)
    text, lengths = content["text"], _array(content["lengths"], np.uint32)
    if len(lengths) and int(lengths.max()) > LONGEST_KEY:
        raise ValueError
    listing = KeyListing.of_bytes(text, lengths, values)
    if key_kind == "text":
        for start, length in zip((np.cumsum(lengths) - lengths).tolist(), lengths.tolist(), strict=True):
            text[start : start + length].decode()
    return listing


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError
    return value


def _array(value: object, dtype: type[np.generic]) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.ndim != 1:
        raise ValueError
    return np.ascontiguousarray(value)
