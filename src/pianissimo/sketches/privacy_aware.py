"""The privacy-aware Misra-Gries sketch: the heavy keys of a stream of sets.

Lebeda and Tetek, Algorithm 4. Each distinct key of a set counts one more; if more than k keys are stored then, all
counts go down by one, once for the whole set, and zeros are dropped. So one set, of any size, moves every count by at
most one, all in one direction, in at most k keys: what one event or one user brings need not be clipped.
"""

from typing import Self

from pianissimo.checks import Real, check_name
from pianissimo.noise import Noise
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.file import StoredSketch, decode_sketch, encode_sketch
from pianissimo.sketches.keys import KeyKind, check_key_kind, key_column, sets_of
from pianissimo.sketches.lineage import Lineage
from pianissimo.sketches.merged_release import release_merged
from pianissimo.sketches.merging import MergedSketch, Part, merge_two
from pianissimo.sketches.misra_gries import check_counters, own_lineage, restore
from pianissimo.sketches.sparse_histogram import SparseRelease
from pianissimo.sketches.table import CountTable, KeyListing


class PrivacyAwareMisraGries:
    """Counts of the heavy keys of one stream of sets: an event with several keys, or a user who comes once.

    Error: 0 <= f(x) - c(x) <= (N - sum of c) / (k + 1), N the sizes of all sets together.
    Cost: that of `MisraGries`, and for a moment a counter for each key of the largest set.

    >>> sketch = PrivacyAwareMisraGries(k=3)
    >>> sketch.update([[1, 2], [1, 3], [1, 4, 1]])
    >>> sketch.estimates(), sketch.decrements
    ({1: 2}, 1)
    """

    sets = True

    def __init__(self, k: int = 256, *, keys: KeyKind | None = None, name: str = "") -> None:
        check_counters(k)
        if keys is not None:
            check_key_kind(keys)
        if name:
            check_name(name=name)
        self._table = CountTable(k, sets=True, kind=keys)
        self.lineage = Lineage.new(name)
        """Where the counts come from: names, no data."""

    def update(self, values: object) -> None:
        """Count a batch: a column of lists of whole numbers, texts or bytes; one list is one set.

        A key that a list has twice counts once. All of the batch is counted, or nothing if one key cannot be.
        """
        keys, ends, trusted = sets_of(values)
        self._table.update(key_column(keys, self.key_kind, trusted=trusted), ends)

    @property
    def k(self) -> int:
        """The number of counters."""
        return self._table.k

    @property
    def key_kind(self) -> KeyKind | None:
        """The type of the keys; None before the first batch."""
        return self._table.kind

    @property
    def decrements(self) -> int:
        """D, how often all counts went down by one: secret."""
        return self._table.decrements

    @property
    def total(self) -> int:
        """N, the sizes of all sets together: secret."""
        return self._table.total

    @property
    def memory(self) -> int:
        """How many bytes the counters and keys take."""
        return self._table.memory

    def estimates(self) -> dict[int | str | bytes, int]:
        """The count of each stored key, without noise: for trusted eyes only."""
        contents = self.contents()
        return dict(zip(contents.keys.to_list(), (contents.over - contents.decrements).tolist(), strict=True))

    def contents(self) -> Contents:
        """The stored keys in their order with c(x) + D: secret, for the code that releases it."""
        return self._table.contents()

    def counts(self) -> KeyListing:
        """The counts in the order of their keys: secret."""
        return self._table.counts()

    def merge(self, other: Part) -> MergedSketch:
        """The merge of this sketch with that of another stream of sets; both stay as they are."""
        return merge_two(self, other)

    def release(self, *, epsilon: Real, delta: Real, noise: Noise | None = None) -> SparseRelease:
        """The heavy keys, once, at (epsilon, delta) for one set of any size: see `release_merged`."""
        return release_merged(self.contents(), k=self.k, epsilon=epsilon, delta=delta, noise=noise)

    def to_bytes(self) -> bytes:
        """All of it, versioned and checksummed: secret."""
        return encode_sketch(
            StoredSketch(
                kind="privacy-aware",
                sets=True,
                k=self.k,
                key_kind=self.key_kind,
                listing=self._table.listing(),
                decrements=self.decrements,
                total=self.total,
                lineage=self.lineage,
            )
        )

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """What `to_bytes` wrote."""
        return cls.from_stored(decode_sketch(stored, "privacy-aware"))

    @classmethod
    def from_stored(cls, stored: StoredSketch) -> Self:
        """The sketch that a file says."""
        sketch = cls(stored.k)
        sketch.lineage = own_lineage(stored)
        if stored.key_kind is not None:
            restore(sketch._table, stored)
        return sketch

    def __repr__(self) -> str:
        return f"PrivacyAwareMisraGries(k={self.k}, keys={self.key_kind!r})"
