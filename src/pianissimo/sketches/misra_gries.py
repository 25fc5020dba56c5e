"""The Misra-Gries sketch, the heavy keys of a stream in k counters, and its form for streams of sets.

Lebeda and Tetek, "Better Differentially Private Approximate Histograms and Heavy Hitters using the Misra-Gries Sketch".

*Single keys* (Algorithm 1). A key that is stored counts one more; a new key takes a free counter, or else the counter
of the *smallest* key of count zero; if there is none, all counts go down by one. The order of evictions is a part of
the promise: with another one, two neighbouring streams can differ in more keys than a release allows for.

*Sets* (Algorithm 4). Each distinct key of a set counts one more; if more than k keys are stored then, all counts go
down by one, once for the whole set, and zeros are dropped. So one set, of any size, moves every count by at most one,
all in one direction, in at most k keys: what one event or one user brings need not be clipped.
"""

import secrets
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.checks import check_at_least, check_name
from pianissimo.errors import InputError, ParameterError, StateError
from pianissimo.sketches.contents import (
    LARGEST_TOTAL,
    MOST_COUNTERS,
    KeyListing,
    Lineage,
    SketchRecord,
    empty_listing,
    listing_of,
    plain_keys,
    series_of,
)
from pianissimo.sketches.key_columns import KeyColumn, KeyKind, check_key_kind, key_column, sets_of
from pianissimo.sketches.merging import CountedAlone, CountedTogether, Sketch
from pianissimo.text_views import view_chunks


class StreamSketch(Sketch):
    """Counts of the heavy keys of one stream; a subclass counts batches, and releases."""

    sets: ClassVar[bool]
    """Whether one event is a set of keys."""

    max_keys_per_user: int = 1

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
            max_keys_per_user=self.max_keys_per_user,
        )

    @classmethod
    def from_stored(cls, stored: SketchRecord) -> Self:
        sketch = cls(stored.k)
        sketch.max_keys_per_user = stored.max_keys_per_user
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


class MisraGries(StreamSketch, CountedAlone):
    """Counts of the heavy keys of one stream, one key an event.

    With `max_keys_per_user` a release hides a user with all her keys: count her first so many, and no more.

    Error: c(x) <= f(x) <= c(x) + D for every key, stored or not, and D <= n / (k + 1).
    Cost: at most 64 bytes a counter and the bytes of the keys; a batch is one call, without the interpreter lock.

    >>> sketch = MisraGries(k=3)
    >>> sketch.update([5, 3, 7, 3, 9])
    >>> sketch.estimates(), sketch.decrements
    ({3: 1, 5: 0, 7: 0}, 1)
    """

    sets = False
    stored_as = "misra-gries"

    def __init__(
        self, k: int = 256, *, keys: KeyKind | None = None, name: str = "", max_keys_per_user: int = 1
    ) -> None:
        check_at_least(1, max_keys_per_user=max_keys_per_user)
        self.max_keys_per_user = max_keys_per_user
        StreamSketch.__init__(self, k, keys=keys, name=name)

    def update(self, values: object) -> None:
        """Count a batch: a column of whole numbers, texts or bytes from numpy, polars or Arrow.

        All of it is counted, or nothing if one row cannot be; `split_bad` tells which ones.
        """
        self._count(key_column(values, self.key_kind))

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
