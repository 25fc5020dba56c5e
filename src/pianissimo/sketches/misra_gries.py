"""The Misra-Gries sketch: the heavy keys of a stream in k counters.

Lebeda and Tetek, "Better Differentially Private Approximate Histograms and Heavy Hitters using the Misra-Gries Sketch",
Algorithm 1. A key that is stored counts one more; a new key takes a free counter, or else the counter of the *smallest*
key of count zero; if there is none, all counts go down by one. The order of evictions is a part of the promise: with
another one, two neighbouring streams can differ in more keys than a release allows for.
"""

from typing import Self

from pianissimo.checks import Real, check_at_least, check_name
from pianissimo.errors import ParameterError, StateError
from pianissimo.noise import Noise
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.file import StoredSketch, decode_sketch, encode_sketch
from pianissimo.sketches.keys import KeyKind, check_key_kind, key_column
from pianissimo.sketches.lineage import Lineage
from pianissimo.sketches.merging import MergedSketch, Part, merge_two
from pianissimo.sketches.private_release import SketchRelease, release_sketch
from pianissimo.sketches.table import MOST_COUNTERS, CountTable, KeyListing, listing_of


class MisraGries:
    """Counts of the heavy keys of one stream, one key an event.

    Error: c(x) <= f(x) <= c(x) + D for every key, stored or not, and D <= n / (k + 1).
    Cost: at most 64 bytes a counter and the bytes of the keys; a batch is one call, without the interpreter lock.

    >>> sketch = MisraGries(k=3)
    >>> sketch.update([5, 3, 7, 3, 9])
    >>> sketch.estimates(), sketch.decrements
    ({3: 1, 5: 0, 7: 0}, 1)
    """

    sets = False

    def __init__(self, k: int = 256, *, keys: KeyKind | None = None, name: str = "") -> None:
        check_counters(k)
        if keys is not None:
            check_key_kind(keys)
        if name:
            check_name(name=name)
        self._table = CountTable(k, sets=False, kind=keys)
        self.lineage = Lineage.new(name)
        """Where the counts come from: names, no data."""

    def update(self, values: object) -> None:
        """Count a batch: a column of whole numbers, texts or bytes from numpy, polars or Arrow.

        All of it is counted, or nothing if one row cannot be; `split_bad` tells which ones.
        """
        self._table.update(key_column(values, self.key_kind))

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
        """n, how many keys were counted: secret."""
        return self._table.total

    @property
    def memory(self) -> int:
        """How many bytes the counters and keys take."""
        return self._table.memory

    def estimates(self) -> dict[int | str | bytes, int]:
        """The count of each stored key, zeros included, without noise: for trusted eyes only."""
        contents = self.contents()
        return dict(zip(contents.keys.to_list(), (contents.over - contents.decrements).tolist(), strict=True))

    def contents(self) -> Contents:
        """The stored keys in their order with u(x) = c(x) + D: secret, for the code that releases it."""
        return self._table.contents()

    def counts(self) -> KeyListing:
        """The positive counts in the order of their keys: secret."""
        return self._table.counts()

    def merge(self, other: Part) -> MergedSketch:
        """The merge of this sketch with that of another stream; both stay as they are."""
        return merge_two(self, other)

    def release(self, *, epsilon: Real, delta: Real, noise: Noise | None = None) -> SketchRelease:
        """The heavy keys, once, at (epsilon, delta) for one element: see `release_sketch`.

        A further release of a sketch that has grown costs its own budget and needs a noise path of its own.

        >>> sketch = MisraGries(k=8)
        >>> sketch.update([3] * 500 + [7])
        >>> sketch.release(epsilon=1, delta=1e-9).keys.to_list()
        [3]
        """
        return release_sketch(self.contents(), k=self.k, epsilon=epsilon, delta=delta, noise=noise)

    def to_bytes(self) -> bytes:
        """All of it, versioned and checksummed: secret."""
        return encode_sketch(
            StoredSketch(
                kind="misra-gries",
                sets=False,
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
        return cls.from_stored(decode_sketch(stored, "misra-gries"))

    @classmethod
    def from_stored(cls, stored: StoredSketch) -> Self:
        """The sketch that a file says."""
        sketch = cls(stored.k)
        sketch.lineage = own_lineage(stored)
        if stored.key_kind is not None:
            restore(sketch._table, stored)
        return sketch

    @classmethod
    def from_contents(cls, contents: Contents, k: int, *, keys: KeyKind) -> Self:
        """The sketch that held these.

        >>> sketch = MisraGries(2, keys="int64")
        >>> sketch.update([5, 5, 3])
        >>> MisraGries.from_contents(sketch.contents(), 2, keys="int64").estimates()
        {3: 1, 5: 2}
        """
        sketch = cls(k, keys=keys)
        listing = listing_of(contents.keys, contents.over)
        sketch._table.restore(keys, listing, decrements=contents.decrements, total=contents.total)
        return sketch

    def __repr__(self) -> str:
        return f"MisraGries(k={self.k}, keys={self.key_kind!r})"


def check_counters(k: int) -> None:
    """Refuse a number of counters that no sketch has."""
    check_at_least(1, k=k)
    if k > MOST_COUNTERS:
        raise ParameterError(f"k must be at most {MOST_COUNTERS}, got {k}")


def own_lineage(stored: StoredSketch) -> Lineage:
    """The lineage of a sketch that was never merged."""
    if stored.lineage.parents:
        raise StateError("a stored sketch of one stream must have no parents, got some")
    return stored.lineage


def restore(table: CountTable, stored: StoredSketch) -> None:
    """Put a table in the state that a file says."""
    try:
        table.restore(stored.key_kind or "int64", stored.listing, decrements=stored.decrements, total=stored.total)
    except ValueError:
        raise StateError("a stored sketch must be well formed, got something else") from None
