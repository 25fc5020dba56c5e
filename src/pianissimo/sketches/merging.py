"""What every kind of sketch can do: be released, be stored, and merge with others.

*Sketches of several streams become one* (Lebeda and Tetek, Section 7, with the merge of Agarwal et al., "Mergeable
summaries", PODS 2012): the sum for each key, less the (k + 1)-th largest sum. For a fixed tree of merges, one element
(or one set) more or less in one stream changes every merged count by at most one, all in one direction, in at most k
keys. Nothing finer is left of the structure that a release of one sketch rests on, so a merged sketch is a kind of its
own.

**The order of merges must not depend on data**: not on sizes, not on which shard is empty. A shard without events takes
part with an empty sketch.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from pianissimo.checks import Real, check_probability
from pianissimo.errors import MergeError, StateError
from pianissimo.labels import Domain
from pianissimo.ledger import Account
from pianissimo.sketches.contents import (
    LARGEST_TOTAL,
    Contents,
    SketchKind,
    SketchRecord,
    decode_sketch,
    empty_listing,
    encode_sketch,
    key_series,
)
from pianissimo.sketches.key_columns import Universe
from pianissimo.sketches.private_release import SketchRelease, charge_contents, release_alone
from pianissimo.sketches.pure_histogram import pure_mechanism, pure_values
from pianissimo.sketches.released_keys import SparseRelease, check_typed, fresh_noise
from pianissimo.sketches.sparse_histogram import CorrelatedHistogram


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
        return Contents(keys, numbers, own.decrements, own.total, own.kind, own.k, own.max_keys_per_user)

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

    def release_pure(
        self,
        *,
        epsilon: Real,
        universe: Universe | Domain | range,
        ledger: Account,
        spurious: Real = 1,
        coverage: float = 0.95,
    ) -> SparseRelease:
        """The heavy keys of a finite public universe, once, at epsilon and without a delta, for one element or one set.

        The universe is all keys that may be shown: a `Domain` of texts, a range of whole numbers, or `IntegerRange()`
        for all of 64 bits. About `spurious` keys that nobody had are shown by chance. It is charged as the others are,
        at epsilon^2 / 2 of rho.

        >>> from pianissimo.sketches import MisraGries
        >>> sketch = MisraGries(k=64, keys="int64")
        >>> sketch.update([7] * 500)
        >>> shown = sketch.release_pure(epsilon=2, universe=range(1000), ledger="not accounted for", spurious=1e-9)
        >>> shown.keys.to_list()
        [7]
        """
        contents = self.contents()
        mechanism = pure_mechanism(contents, k=self.k, epsilon=epsilon, universe=universe, spurious=spurious)
        check_probability(coverage=coverage)
        charge_contents(ledger, mechanism.loss.as_booked(), contents, epsilon=float(epsilon))
        return mechanism.release(pure_values(contents, k=self.k), fresh_noise(), coverage=coverage)

    def to_bytes(self) -> bytes:
        """All of it, versioned and checksummed: secret."""
        return encode_sketch(self.record())

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        return cls.from_stored(decode_sketch(stored, cls.stored_as))


class CountedTogether(Sketch):
    """A sketch of which one element, or one set, moves any number of counts by one, all in one direction."""

    def release(self, *, epsilon: Real, delta: Real, ledger: Account, coverage: float = 0.95) -> SparseRelease:
        """The heavy keys, once, at (epsilon, delta) for one element or one set of any size of one stream.

        It is charged to the ledger before noise is drawn, or said to be accounted for nowhere: as `MisraGries.release`.
        """
        contents = self.contents()
        check_typed(contents)
        mechanism = CorrelatedHistogram.calibrated(k=self.k, epsilon=epsilon, delta=delta)
        check_probability(coverage=coverage)
        charge_contents(ledger, mechanism.loss.as_booked(), contents, epsilon=float(epsilon))
        return mechanism.release(contents, fresh_noise(), epsilon=epsilon, coverage=coverage)


class CountedAlone(Sketch):
    """A sketch of one stream of single keys, of which one element moves one number, or all counts together by one."""

    max_keys_per_user: int
    """How many keys one user may give: whoever feeds it sees to that, and a release hides so many together."""

    def release(self, *, epsilon: Real, delta: Real, ledger: Account, coverage: float = 0.95) -> SketchRelease:
        """The heavy keys, once, at (epsilon, delta) for one element, or for all `max_keys_per_user` of a user.

        It is charged to the ledger before noise is drawn, and for one element has Gaussian noise then, whose loss adds
        up best. With ledger="not accounted for" it has Laplace noise, the least for one release, and whoever releases
        the same events again adds up by hand: the mean of many releases is the truth. All error bars hold together with
        a chance of `coverage`.
        """
        contents = self.contents()
        return release_alone(contents, k=self.k, epsilon=epsilon, delta=delta, ledger=ledger, coverage=coverage)


class MergedSketch(CountedTogether):
    """What several sketches become. It counts no more keys: it merges on, is stored, and is released as merged.

    Error: 0 <= f(x) - c(x) <= (N - sum of c) / (k + 1), N the keys of all streams, whatever the tree.

    >>> from pianissimo.sketches import MisraGries
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
    if max(left.max_keys_per_user, right.max_keys_per_user) > 1:
        raise MergeError(
            "sketches must hide one key each to be merged, got users, who may be in both; give each user as one set of "
            "keys to a privacy-aware sketch"
        )
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
