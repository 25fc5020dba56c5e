"""The Misra-Gries sketch, the heavy keys of a stream in k counters, its form for streams of sets, and merges.

Lebeda and Tetek, "Better Differentially Private Approximate Histograms and Heavy Hitters using the Misra-Gries Sketch".

*Single keys* (Algorithm 1). A key that is stored counts one more; a new key takes a free counter, or else the counter
of the *smallest* key of count zero; if there is none, all counts go down by one. The order of evictions is a part of
the promise: with another one, two neighbouring streams can differ in more keys than a release allows for.

*Sets* (Algorithm 4). Each distinct key of a set counts one more; if more than k keys are stored then, all counts go
down by one, once for the whole set, and zeros are dropped. So one set, of any size, moves every count by at most one,
all in one direction, in at most k keys: what one event or one user brings need not be clipped.

*Sketches of several streams become one* (Section 7, with the merge of Agarwal et al., "Mergeable summaries", PODS
2012): the sum for each key, less the (k + 1)-th largest sum. For a fixed tree of merges, one element (or one set) more
or less in one stream changes every merged count by at most one, all in one direction, in at most k keys. Nothing finer
is left of the structure that a release of one sketch rests on, so a merged sketch is a kind of its own.

**The order of merges must not depend on data**: not on sizes, not on which shard is empty. A shard without events takes
part with an empty sketch.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.checks import Real, check_at_least, check_name
from pianissimo.errors import InputError, MergeError, ParameterError, StateError
from pianissimo.ledger import Account, charge_release, is_charged
from pianissimo.sketches.contents import (
    LARGEST_TOTAL,
    MOST_COUNTERS,
    Contents,
    KeyListing,
    Lineage,
    SketchKind,
    SketchRecord,
    decode_sketch,
    empty_listing,
    encode_sketch,
    key_series,
    listing_of,
    plain_keys,
    series_of,
)
from pianissimo.sketches.key_columns import KeyColumn, KeyKind, check_key_kind, key_column, sets_of
from pianissimo.sketches.private_release import HEAVY_KEYS, SketchRelease, one_shot
from pianissimo.sketches.released_keys import SparseRelease, check_typed, fresh_noise
from pianissimo.sketches.sparse_histogram import CorrelatedHistogram
from pianissimo.text_views import view_chunks


class Sketch(ABC):
    """What every kind of sketch can do: a subclass says what it holds."""

    stored_as: ClassVar[SketchKind]
    k: int

    @abstractmethod
    def record(self) -> SketchRecord:
        """All that it says of itself: secret."""

    def contents(self) -> Contents:
        """The keys in their order and their numbers as columns: secret, for the code that releases them."""
        own = self.record()
        keys, numbers = key_series(own.key_kind, own.listing), own.listing.values()
        return Contents(keys, numbers, own.decrements, own.total, own.kind, own.k)

    @classmethod
    @abstractmethod
    def from_stored(cls, stored: SketchRecord) -> Self:
        """The sketch that a file says."""

    def estimates(self) -> dict[int | str | bytes, int]:
        """The count of each stored key, zeros included, without noise: for trusted eyes only."""
        contents = self.contents()
        return dict(zip(contents.keys.to_list(), (contents.over - contents.decrements).tolist(), strict=True))

    def merge(self, other: "Sketch") -> "MergedSketch":
        """The merge of this sketch with that of other streams of the same kind; both stay as they are."""
        return _merge(self.record(), other.record())

    def to_bytes(self) -> bytes:
        """All of it, versioned and checksummed: secret."""
        return encode_sketch(self.record())

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        return cls.from_stored(decode_sketch(stored, cls.stored_as))


class CountedTogether(Sketch):
    """A sketch of which one element, or one set, moves any number of counts by one, all in one direction."""

    def release(self, *, epsilon: Real, delta: Real, ledger: Account) -> SparseRelease:
        """The heavy keys, once, at (epsilon, delta) for one element or one set of any size of one stream.

        It is charged to the ledger before noise is drawn, or said to be accounted for nowhere: as `MisraGries.release`.
        """
        contents = self.contents()
        check_typed(contents)
        mechanism = CorrelatedHistogram.calibrated(k=self.k, epsilon=epsilon, delta=delta)
        charge_release(ledger, mechanism.loss.as_booked(), epsilon=float(epsilon), question=HEAVY_KEYS)
        return mechanism.release(contents, fresh_noise(), epsilon=epsilon)


class MergedSketch(CountedTogether):
    """What several sketches become. It counts no more keys: it merges on, is stored, and is released as merged.

    Error: 0 <= f(x) - c(x) <= (N - sum of c) / (k + 1), N the keys of all streams, whatever the tree.

    >>> north, south = MisraGries(k=2), MisraGries(k=2)
    >>> north.update([1, 1, 1, 2, 2])
    >>> south.update([2, 3, 3, 3, 3])
    >>> north.merge(south).estimates()
    {3: 1}
    """

    stored_as = "merged"

    def __init__(self, record: SketchRecord) -> None:
        self._record = record
        self.k, self.sets, self.key_kind = record.k, record.sets, record.key_kind
        self.total = record.total
        """How many keys all streams had: secret."""
        self.lineage = record.lineage

    def record(self) -> SketchRecord:
        return self._record

    @classmethod
    def from_stored(cls, stored: SketchRecord) -> Self:
        counts = stored.listing.values()
        if stored.decrements or len(counts) > stored.k or (len(counts) and int(counts.min()) < 1):
            raise StateError("a stored merged sketch must have at most k positive counts, got something else")
        return cls(stored)

    def __repr__(self) -> str:
        unit = "sets of keys" if self.sets else "keys"
        return f"MergedSketch(k={self.k}, {unit}, {len(self.lineage.sources)} streams)"


def _merge(left: SketchRecord, right: SketchRecord) -> MergedSketch:
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


def merge_in_order(sketches: Sequence[Sketch]) -> MergedSketch:
    """All sketches, one after the other, in the order given: it must not depend on data."""
    _check_some(sketches)
    merged = sketches[0].merge(sketches[1])
    for sketch in sketches[2:]:
        merged = merged.merge(sketch)
    return merged


def merge_in_pairs(sketches: Sequence[Sketch]) -> MergedSketch:
    """All sketches, neighbours first, then neighbours of the results: a tree of least depth in the order given."""
    _check_some(sketches)
    if len(sketches) == 2:
        return sketches[0].merge(sketches[1])
    pairs: list[Sketch] = [one.merge(other) for one, other in zip(sketches[::2], sketches[1::2], strict=False)]
    return merge_in_pairs([*pairs, *sketches[2 * len(pairs) :]])


def _check_some(sketches: Sequence[Sketch]) -> None:
    if len(sketches) < 2:
        raise MergeError("a merge must be of at least two sketches; give an empty one for a shard without events")


class StreamSketch(Sketch):
    """Counts of the heavy keys of one stream; a subclass counts batches, and releases."""

    sets: ClassVar[bool]
    """Whether one event is a set of keys."""

    def __init__(self, k: int = 256, *, keys: KeyKind | None = None, name: str = "") -> None:
        check_at_least(1, k=k)
        if k > MOST_COUNTERS:
            raise ParameterError(f"k must be at most {MOST_COUNTERS}, got {k}")
        if name:
            check_name(name=name)
        self.k = k
        self.key_kind: KeyKind | None = None
        """The type of the keys; None before the first batch."""
        self.lineage = Lineage.new(name)
        """Where the counts come from: names, no data."""
        self._core: _core.Sketch | None = None
        if keys is not None:
            check_key_kind(keys)
            self._core, self.key_kind = self._counters(empty_listing(keys)), keys

    def _counters(self, listing: KeyListing, decrements: int = 0, total: int = 0) -> _core.Sketch:
        """Counters of a state. Hashing begins anew with a key of its own: it decides about speed alone."""
        return _core.Sketch(self.k, self.sets, secrets.token_bytes(32), listing, decrements, total)

    def _count(self, keys: KeyColumn, ends: NDArray[np.int64] | None = None) -> None:
        """Count all keys, or none if one is refused."""
        if keys.kind is None:
            return
        if len(keys.column) > LARGEST_TOTAL - self.total:
            raise InputError("a sketch must count at most 2^63 - 1 keys, got more in all; start a new sketch")
        counters = self._core or self._counters(empty_listing(keys.kind))
        if isinstance(keys.column, np.ndarray):
            counters.update_integers(keys.column, ends)
        else:
            column = keys.column if ends is None else keys.column.rechunk()
            with view_chunks(column) as chunks:
                try:
                    counters.update_views(chunks, keys.check_texts, ends)
                except ValueError as error:
                    # The core's messages tell no value.
                    raise InputError(f"{error}; split_bad sets such rows aside") from None
        # The first good batch alone decides about the type of keys.
        self._core, self.key_kind = counters, keys.kind

    @property
    def decrements(self) -> int:
        """D, how often all counts went down by one: secret."""
        return self._core.decrements if self._core else 0

    @property
    def total(self) -> int:
        """How many keys were counted; of sets, the sizes of all of them together: secret."""
        return self._core.total if self._core else 0

    @property
    def memory(self) -> int:
        """How many bytes the counters and keys take."""
        return self._core.memory if self._core else 0

    def record(self) -> SketchRecord:
        return SketchRecord(
            kind=self.stored_as,
            sets=self.sets,
            k=self.k,
            key_kind=self.key_kind,
            listing=self._core.listing() if self._core else empty_listing("int64"),
            decrements=self.decrements,
            total=self.total,
            lineage=self.lineage,
        )

    @classmethod
    def from_stored(cls, stored: SketchRecord) -> Self:
        sketch = cls(stored.k)
        if stored.lineage.parents:
            raise StateError("a stored sketch of one stream must have no parents, got some")
        sketch.lineage = stored.lineage
        if stored.key_kind is not None:
            try:
                sketch._core = sketch._counters(stored.listing, stored.decrements, stored.total)
            except ValueError:
                raise StateError("a stored sketch must be well formed, got something else") from None
            sketch.key_kind = stored.key_kind
        return sketch

    def __repr__(self) -> str:
        return f"{type(self).__name__}(k={self.k}, keys={self.key_kind!r})"


class MisraGries(StreamSketch):
    """Counts of the heavy keys of one stream, one key an event.

    Error: c(x) <= f(x) <= c(x) + D for every key, stored or not, and D <= n / (k + 1).
    Cost: at most 64 bytes a counter and the bytes of the keys; a batch is one call, without the interpreter lock.

    >>> sketch = MisraGries(k=3)
    >>> sketch.update([5, 3, 7, 3, 9])
    >>> sketch.estimates(), sketch.decrements
    ({3: 1, 5: 0, 7: 0}, 1)
    """

    sets = False
    stored_as = "misra-gries"

    def update(self, values: object) -> None:
        """Count a batch: a column of whole numbers, texts or bytes from numpy, polars or Arrow.

        All of it is counted, or nothing if one row cannot be; `split_bad` tells which ones.
        """
        self._count(key_column(values, self.key_kind))

    def release(self, *, epsilon: Real, delta: Real, ledger: Account) -> SketchRelease:
        """The heavy keys, once, at (epsilon, delta) for one element.

        It is charged to the ledger before noise is drawn, and has Gaussian noise then, whose loss adds up best. With
        ledger="not accounted for" it has Laplace noise, the least for one release, and whoever releases the same events
        again adds up by hand: the mean of many releases is the truth.
        """
        contents = self.contents()
        check_typed(contents)
        mechanism = one_shot(k=self.k, epsilon=epsilon, delta=delta, charged=is_charged(ledger))
        charge_release(ledger, mechanism.loss.as_booked(), epsilon=float(epsilon), question=HEAVY_KEYS)
        return mechanism.release(contents, fresh_noise())

    def to_plain(self) -> codec.Plain:
        """What it counted, and not which sketch it is: the same for the same keys; secret."""
        contents = self.contents()
        return [plain_keys(contents.keys), contents.over, contents.decrements, contents.total]

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content; the type of keys must have been declared."""
        if self.key_kind is None:
            raise StateError("a sketch must know its type of keys to take over a content, got none")
        keys, over, decrements, total = content
        self._core = self._counters(listing_of(series_of(keys), over), decrements, total)


class PrivacyAwareMisraGries(StreamSketch, CountedTogether):
    """Counts of the heavy keys of one stream of sets: an event with several keys, or a user who comes once.

    Error: 0 <= f(x) - c(x) <= (N - sum of c) / (k + 1), N the sizes of all sets together.
    Cost: that of `MisraGries`, and for a moment a counter for each key of the largest set.

    >>> sketch = PrivacyAwareMisraGries(k=3)
    >>> sketch.update([[1, 2], [1, 3], [1, 4, 1]])
    >>> sketch.estimates(), sketch.decrements
    ({1: 2}, 1)
    """

    sets = True
    stored_as = "privacy-aware"

    def update(self, values: object) -> None:
        """Count a batch: a column of lists of whole numbers, texts or bytes; one list is one set.

        A key that a list has twice counts once. All of the batch is counted, or nothing if one key cannot be.
        """
        keys, ends, trusted = sets_of(values)
        self._count(key_column(keys, self.key_kind, trusted=trusted), ends)


AnySketch = MisraGries | PrivacyAwareMisraGries | MergedSketch
"""A sketch of one of the kinds that are stored."""


def sketch_from_bytes(stored: bytes) -> AnySketch:
    """The sketch that any `to_bytes` wrote."""
    sketch = decode_sketch(stored)
    kinds = (MisraGries, PrivacyAwareMisraGries, MergedSketch)
    return next(kind for kind in kinds if kind.stored_as == sketch.kind).from_stored(sketch)
