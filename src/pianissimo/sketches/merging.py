"""Sketches of several streams become one: the sum for each key, less the (k + 1)-th largest sum.

Lebeda and Tetek, Section 7, with the merge of Agarwal et al., "Mergeable summaries", PODS 2012. For a fixed tree of
merges, one element (or one set) more or less in one stream changes every merged count by at most one, all in one
direction, in at most k keys. Nothing finer is left of the structure that a release of one sketch rests on, so a merged
sketch is a kind of its own.

**The order of merges must not depend on data**: not on sizes, not on which shard is empty. A shard without events takes
part with an empty sketch.
"""

from collections.abc import Sequence
from typing import Protocol, Self

from pianissimo.checks import Real
from pianissimo.errors import InputError, MergeError, StateError
from pianissimo.noise import Noise
from pianissimo.sketches.contents import (
    LARGEST_TOTAL,
    Contents,
    SketchRecord,
    Source,
    decode_sketch,
    empty_listing,
    encode_sketch,
    key_series,
)
from pianissimo.sketches.key_noise import given_or_fresh
from pianissimo.sketches.sparse_histogram import CorrelatedHistogram, SparseRelease


class SketchPart(Protocol):
    """What can be merged."""

    def record(self) -> SketchRecord:
        """All that it says of itself."""


class MergedSketch:
    """What several sketches become. It counts no more keys: it merges on, is stored, and is released as merged.

    Error: 0 <= f(x) - c(x) <= (N - sum of c) / (k + 1), N the keys of all streams, whatever the tree.

    >>> from pianissimo.sketches import MisraGries
    >>> north, south = MisraGries(k=2), MisraGries(k=2)
    >>> north.update([1, 1, 1, 2, 2])
    >>> south.update([2, 3, 3, 3, 3])
    >>> north.merge(south).estimates()
    {3: 1}
    """

    def __init__(self, record: SketchRecord) -> None:
        self._record = record
        self.k, self.sets, self.key_kind = record.k, record.sets, record.key_kind
        self.total = record.total
        """How many keys all streams had: secret."""
        self.lineage = record.lineage

    def record(self) -> SketchRecord:
        """All that it says of itself: secret."""
        return self._record

    def contents(self) -> Contents:
        """The counts as columns: secret."""
        listing = self._record.listing
        return Contents(key_series(self.key_kind, listing), listing.values(), 0, self.total, Source.MERGED)

    def estimates(self) -> dict[int | str | bytes, int]:
        """The count of each key, without noise: for trusted eyes only."""
        contents = self.contents()
        return dict(zip(contents.keys.to_list(), contents.over.tolist(), strict=True))

    def merge(self, other: SketchPart) -> "MergedSketch":
        """The merge of this with another."""
        return merge_two(self, other)

    def release(self, *, epsilon: Real, delta: Real, noise: Noise | None = None) -> SparseRelease:
        """The heavy keys, once, at (epsilon, delta) for one element or set of one stream: see `release_merged`."""
        return release_merged(self.contents(), k=self.k, epsilon=epsilon, delta=delta, noise=noise)

    def to_bytes(self) -> bytes:
        """All of it, versioned and checksummed: secret."""
        return encode_sketch(self._record)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """What `to_bytes` wrote."""
        return cls.from_stored(decode_sketch(stored, "merged"))

    @classmethod
    def from_stored(cls, stored: SketchRecord) -> Self:
        """The sketch that a file says."""
        counts = stored.listing.values()
        if stored.decrements or len(counts) > stored.k or (len(counts) and int(counts.min()) < 1):
            raise StateError("a stored merged sketch must have at most k positive counts, got something else")
        return cls(stored)

    def __repr__(self) -> str:
        unit = "sets of keys" if self.sets else "keys"
        return f"MergedSketch(k={self.k}, {unit}, {len(self.lineage.sources)} streams)"


def merge_two(first: SketchPart, second: SketchPart) -> MergedSketch:
    """Two sketches of different streams, as one."""
    left, right = first.record(), second.record()
    if left.k != right.k:
        raise MergeError(f"sketches must have the same k, got {left.k} and {right.k}")
    if left.sets != right.sets:
        raise MergeError("sketches must both count keys or both count sets of keys, got one of each")
    kinds = {left.key_kind, right.key_kind} - {None}
    if len(kinds) > 1:
        raise MergeError(f"sketches must have keys of one type, got {left.key_kind} and {right.key_kind}")
    if left.total > LARGEST_TOTAL - right.total:
        raise MergeError("merged sketches must count at most 2^63 - 1 keys in all, got more")
    lineage = left.lineage.joined(right.lineage)
    kind = next(iter(kinds), None)
    # An empty sketch whose keys have no type yet merges as one of the other's type.
    counts = [part.counts() if part.key_kind else empty_listing(kind or "int64") for part in (left, right)]
    return MergedSketch(
        SketchRecord(
            kind="merged",
            sets=left.sets,
            k=left.k,
            key_kind=kind,
            listing=counts[0].merge(counts[1], left.k),
            decrements=0,
            total=left.total + right.total,
            lineage=lineage,
        )
    )


def release_merged(
    contents: Contents, *, k: int, epsilon: Real, delta: Real, noise: Noise | None = None
) -> SparseRelease:
    """Publish the heavy keys of a merged sketch or of a sketch of sets, once, at (epsilon, delta).

    What is hidden is one element, or one set of any size, of one of the merged streams. Without a noise it comes from a
    fresh secret.
    """
    mechanism = CorrelatedHistogram.calibrated(k=k, epsilon=epsilon, delta=delta)
    return mechanism.release(contents, given_or_fresh(noise), epsilon=epsilon)


def merge_in_order(sketches: Sequence[SketchPart]) -> MergedSketch:
    """All sketches, one after the other, in the order given: it must not depend on data."""
    _check_some(sketches)
    merged = merge_two(sketches[0], sketches[1])
    for sketch in sketches[2:]:
        merged = merge_two(merged, sketch)
    return merged


def merge_in_pairs(sketches: Sequence[SketchPart]) -> MergedSketch:
    """All sketches, neighbours first, then neighbours of the results: a tree of least depth in the order given.

    >>> from pianissimo.sketches import MisraGries
    >>> merge_in_pairs([MisraGries(k=8) for shard in range(5)])
    MergedSketch(k=8, keys, 5 streams)
    """
    _check_some(sketches)
    level: Sequence[SketchPart] = sketches
    while len(level) > 1:
        pairs: list[SketchPart] = [merge_two(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
        level = [*pairs, *level[2 * len(pairs) :]]
    merged = level[0]
    if not isinstance(merged, MergedSketch):
        raise InputError("a merge must be of sketches")
    return merged


def _check_some(sketches: Sequence[SketchPart]) -> None:
    if len(sketches) < 2:
        raise MergeError("a merge must be of at least two sketches; give an empty one for a shard without events")
