"""A pure-epsilon release over a finite public universe of keys, of any size.

Lebeda and Tetek, section 6: discrete Laplace noise on the value of every key of the universe, also on those that no
sketch holds, of which only what reaches a public threshold is shown. That is epsilon-private whatever the threshold.

A universe of 2^64 keys is not gone through. The tail of the noise has no memory: of the M keys of value zero, a
Binomial number with p = a^Theta / (1 + a) passes, each is uniform among them, and exceeds the threshold by a geometric
draw. All three are drawn exactly (`exact_draws`).

For reduced counts (`reduction`), also added up over sketches, one element moves all values together by 2 k - 1; for the
counts of a merged sketch by k.
"""

import decimal
import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

import numpy as np
import polars as pl

from pianissimo.checks import Real, check_at_least, check_positive
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.loss.losses import Pure
from pianissimo.noise import Noise
from pianissimo.noise.exact_draws import binomial, geometric, laplace_passes, uniform_below
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.exact_laws import CONTEXT, decay, laplace_reach, to_decimal
from pianissimo.sketches.reduction import Reduced, ReducedRelease
from pianissimo.sketches.released_keys import (
    Counts,
    checked_counts,
    item_keys,
    own,
)
from pianissimo.sketches.sparse_histogram import positive_counts

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


@identified("integer-range")
@dataclass(frozen=True, slots=True)
class IntegerRange:
    """All whole numbers from `first` to `last`; without bounds, all of 64 bits.

    >>> IntegerRange().size == 2**64, IntegerRange(10, 19).keys_at([0, 9]).to_list()
    (True, [10, 19])
    """

    first: int = _LOWEST
    last: int = _HIGHEST

    def __post_init__(self) -> None:
        if not _LOWEST <= self.first <= self.last <= _HIGHEST:
            raise ParameterError(f"a range must go up within 64 bits, got {self.first} to {self.last}")

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.last - self.first + 1

    def keys_at(self, places: list[int]) -> pl.Series:
        """The numbers at these places."""
        return pl.Series("key", [self.first + place for place in places], dtype=pl.Int64)

    def places_of(self, keys: pl.Series) -> list[int | None]:
        """The place of each number, None if it is not in the range."""
        if keys.dtype != pl.Int64:
            raise ParameterError(f"a range of whole numbers must be released from keys that are such, got {keys.dtype}")
        return [key - self.first if self.first <= key <= self.last else None for key in keys.to_list()]


@identified("known-labels")
@dataclass(frozen=True, slots=True)
class KnownLabels:
    """The labels of a domain."""

    domain: Domain

    @property
    def size(self) -> int:
        """How many labels there are."""
        return len(self.domain)

    def keys_at(self, places: list[int]) -> pl.Series:
        """The labels at these places."""
        return self.domain.labels.gather(places).alias("key")

    def places_of(self, keys: pl.Series) -> list[int | None]:
        """The place of each label, None if it is not in the domain."""
        if keys.dtype != pl.String:
            raise ParameterError(f"a domain of labels must be released from keys that are texts, got {keys.dtype}")
        known = self.domain.labels.alias("key").to_frame().with_row_index("place")
        found = keys.alias("key").to_frame().join(known, on="key", how="left", maintain_order="left")
        return found["place"].to_list()


Universe = IntegerRange | KnownLabels
"""Keys in a public order: each has a place from 0 on."""


def as_universe(keys: Universe | Domain | range) -> Universe:
    """A universe from a domain of labels or a range of whole numbers."""
    if isinstance(keys, Domain):
        return KnownLabels(keys)
    if isinstance(keys, range):
        if keys.step != 1 or not keys.start < keys.stop:
            raise ParameterError(f"a range of keys must go up by one and hold at least one, got {keys}")
        return IntegerRange(keys.start, keys.stop - 1)
    return keys


def other_places(size: int, taken: list[int], count: int, noise: Noise) -> list[int]:
    """So many distinct places of a universe, uniform among those that are not taken; `taken` is in order."""
    free = size - len(taken)
    if 2 * count > free:
        left_out = set(_distinct(free, free - count, noise))
        ranks = [rank for rank in range(free) if rank not in left_out]
    else:
        ranks = _distinct(free, count, noise)
    # The i-th taken place has so many free ones below it.
    below = [place - number for number, place in enumerate(taken)]
    return [rank + bisect_right(below, rank) for rank in ranks]


def _distinct(limit: int, count: int, noise: Noise) -> list[int]:
    """So many distinct whole numbers below a limit, by rejecting repeated ones."""
    drawn: dict[int, None] = {}
    attempt = 0
    while len(drawn) < count:
        drawn[uniform_below(limit, noise.at(attempt))] = None
        attempt += 1
        if attempt > 64 * count + 2**16:
            raise ParameterError("uniform bits must not be all alike, got the same ones again and again")
    return list(drawn)


@identified("pure-histogram")
@dataclass(frozen=True, slots=True, kw_only=True)
class PureHistogram:
    """Every key of a universe whose noisy value reaches a public threshold, the largest ones of them.

    Guarantee: epsilon for `max_keys_per_user` elements, without a delta.
    Error: `reach` of the noise over the whole universe, beside that of the sketch.
    Cost: one draw a stored key, and three for each key that is shown by chance.

    >>> mechanism = PureHistogram.of_sketch(k=1024, epsilon=1, universe=range(-2**63, 2**63), with_total=False)
    >>> mechanism.threshold, round(mechanism.threshold / 1025, 1)
    (89390, 87.2)
    """

    sensitivity: int
    """How far one element moves all values together, the total included where it is released."""

    unit: int
    """How many units of a value make one count."""

    epsilon: Fraction

    universe: Universe

    threshold: int
    """The least noisy value that is shown, in units."""

    stored: int
    """How many keys have a value at most."""

    with_total: bool = False
    """Whether the number of elements is released too, for error bars."""

    most: int | None = None
    """How many keys are shown at most, largest noisy values first, equal ones in the order of keys."""

    max_keys_per_user: int = 1
    """How many elements the promise hides together."""

    def __post_init__(self) -> None:
        check_at_least(1, sensitivity=self.sensitivity, unit=self.unit, threshold=self.threshold, stored=self.stored)
        check_at_least(1, max_keys_per_user=self.max_keys_per_user)
        check_positive(epsilon=self.epsilon)

    @classmethod
    def of_sketch(
        cls,
        *,
        k: int,
        epsilon: Real,
        universe: Universe | Domain | range,
        spurious: Real = 1,
        streams: int = 1,
        with_total: bool = True,
        max_keys_per_user: int = 1,
    ) -> Self:
        """For the reduced counts of one sketch, or of several added up; about `spurious` keys are shown by chance."""
        check_at_least(1, k=k, streams=streams)
        return cls._with_threshold(
            epsilon,
            universe,
            spurious,
            sensitivity=2 * k if with_total else 2 * k - 1,
            unit=k + 1,
            stored=k * streams,
            most=k if streams == 1 else None,
            max_keys_per_user=max_keys_per_user,
            with_total=with_total,
        )

    @classmethod
    def of_merged(cls, *, k: int, epsilon: Real, universe: Universe | Domain | range, spurious: Real = 1) -> Self:
        """For the counts of a merged sketch, or of a sketch of sets; about `spurious` keys are shown by chance."""
        check_at_least(1, k=k)
        return cls._with_threshold(epsilon, universe, spurious, sensitivity=k, unit=1, stored=k, most=k)

    @classmethod
    def _with_threshold(cls, epsilon: Real, universe: Universe | Domain | range, spurious: Real, **fields: Any) -> Self:
        check_positive(epsilon=epsilon, spurious=spurious)
        keys = as_universe(universe)
        # The rate does not depend on the threshold.
        loud = cls(epsilon=Fraction(epsilon), universe=keys, threshold=1, **fields)
        return replace(loud, threshold=spurious_threshold(keys.size, loud.rate, Fraction(spurious)))

    @property
    def rate(self) -> Fraction:
        """The noise has the scale 1 / rate."""
        return self.epsilon / (self.max_keys_per_user * self.sensitivity)

    @property
    def loss(self) -> Pure:
        # Keys that are shown by chance are drawn exactly: only the stored keys' noise, and the total's, has a distance.
        return Pure(self.epsilon, distance=(self.stored + 1) * DRAW_DISTANCE)

    def reach(self, coverage: float) -> int:
        """What no noise exceeds in size over the whole universe, with this chance; in units."""
        return laplace_reach(self.rate, self.universe.size + 1, coverage)

    def release(self, values: Reduced | Contents, noise: Noise, *, coverage: float = 0.95) -> ReducedRelease:
        """Publish the reduced counts, or the plain ones of a merged sketch. Two states never share a noise."""
        keys, stored, total = self._values(values)
        places = self.universe.places_of(keys)
        inside = np.array([place is not None for place in places], dtype=np.bool_)
        keys, stored = keys.filter(pl.Series(inside)), stored[inside]
        noisy = stored + noise.at("counts").laplace(1 / self.rate, item_keys(keys, noise))
        passing = np.flatnonzero(noisy >= self.threshold)
        by_chance, excess = self._by_chance(sorted(place for place in places if place is not None), noise)
        shown = pl.concat([keys.gather(passing).alias("key"), by_chance])
        return self._largest(shown, np.concatenate([noisy[passing], excess]), total, noise, coverage)

    def _values(self, values: Reduced | Contents) -> tuple[pl.Series, Counts, int]:
        if isinstance(values, Reduced):
            if self.unit != values.k + 1 or len(values.keys) > self.stored:
                raise ParameterError("reduced counts must be of the k and the streams of the release, got others")
            return values.keys, checked_counts(values.values), values.total
        if self.unit != 1 or self.with_total:
            raise ParameterError("this release must be of reduced counts, got a sketch; reduce it first")
        return *positive_counts(values, self.stored), 0

    def _by_chance(self, taken: list[int], noise: Noise) -> tuple[pl.Series, Counts]:
        """The keys of value zero whose noise passes, and their noisy values."""
        free = self.universe.size - len(taken)
        count = binomial(free, laplace_passes(self.rate, self.threshold), noise.at("how many"))
        places = other_places(self.universe.size, taken, count, noise.at("which"))
        excess = [self.threshold + geometric(self.rate, noise.at("excess", number)) for number in range(count)]
        return self.universe.keys_at(places), np.array(excess, dtype=np.int64)

    def _largest(self, keys: pl.Series, values: Counts, total: int, noise: Noise, coverage: float) -> ReducedRelease:
        shown = pl.DataFrame({"key": keys, "value": values}).sort(["value", "key"], descending=[True, False])
        if self.most is not None:
            shown = shown.head(self.most)
        shown = shown.sort("key")
        number = total + int(noise.at("total").laplace(1 / self.rate)) if self.with_total else None
        return ReducedRelease(
            own(shown["key"]),
            shown["value"].to_numpy(),
            self.unit,
            number,
            self.threshold,
            self.loss,
            self.reach(coverage),
        )


def spurious_threshold(size: int, rate: Fraction, spurious: Fraction) -> int:
    """The least threshold >= 1 at which at most so many of the keys pass by chance, on average."""
    with decimal.localcontext(CONTEXT):
        odds = Decimal(size) / (to_decimal(spurious) * (1 + decay(rate)))
        return max(1, math.ceil(odds.ln() / to_decimal(rate)))
