"""A pure-epsilon release of a sketch, without a delta, over a finite public universe of keys of any size.

Lebeda and Tetek, section 6: discrete Laplace noise on the value of every key of the universe, also on those that no
sketch holds, of which only what reaches a public threshold is shown. That is epsilon-private whatever the threshold. A
universe of 2^64 keys is not gone through. The tail of the noise has no memory: of the M keys of value zero, a Binomial
number with p = a^Theta / (1 + a) passes, each is uniform among them, and exceeds the threshold by a geometric draw. All
three are drawn exactly.

**What one element moves.** Reduced counts (`reduction`), also added up over sketches: all values together by 2 k - 1,
and with the number of elements beside them by 2 k. They depend on the positive counts and on n alone, so that a
standard sketch, which forgets keys of count zero, has the same. The counts of a merged sketch, and of a sketch of sets:
k. Values are a vector over the whole universe, so m elements of one user move it by m times as much.
"""

import decimal
import math
from dataclasses import dataclass
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
from pianissimo.noise.exact_draws import binomial, check_few, geometric, laplace_passes
from pianissimo.noise.exact_laws import CONTEXT, decay, laplace_reach, to_decimal
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.key_columns import Universe, as_universe, other_places
from pianissimo.sketches.reduction import Reduced, reduce
from pianissimo.sketches.released_keys import (
    Counts,
    SparseRelease,
    bounded_counts,
    check_hidden,
    check_typed,
    item_keys,
    noise_of,
    own,
)
from pianissimo.sketches.sparse_histogram import positive_counts


@identified("pure-histogram")
@dataclass(frozen=True, slots=True, kw_only=True)
class PureHistogram:
    """Every key of a universe whose noisy value reaches a public threshold, the largest ones of them.

    Guarantee: epsilon for `max_keys_per_user` elements, without a delta.
    Error: `reach` of the noise over the whole universe, beside that of the sketch.
    Cost: one draw a stored key, and three for each key that is shown by chance.
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
        check_few(self.universe.size, laplace_passes(self.rate, self.threshold))

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
            with_total=with_total,
            max_keys_per_user=max_keys_per_user,
        )

    @classmethod
    def of_merged(cls, *, k: int, epsilon: Real, universe: Universe | Domain | range, spurious: Real = 1) -> Self:
        """For the counts of a merged sketch, or of a sketch of sets; about `spurious` keys are shown by chance."""
        check_at_least(1, k=k)
        return cls._with_threshold(epsilon, universe, spurious, sensitivity=k, unit=1, stored=k, most=k)

    @classmethod
    def _with_threshold(cls, epsilon: Real, universe: Universe | Domain | range, spurious: Real, **fields: Any) -> Self:
        check_positive(epsilon=epsilon, spurious=spurious)
        keys, hidden = as_universe(universe), fields.get("max_keys_per_user", 1)
        check_at_least(1, max_keys_per_user=hidden)
        least = spurious_threshold(keys.size, Fraction(epsilon) / (hidden * fields["sensitivity"]), Fraction(spurious))
        return cls(epsilon=Fraction(epsilon), universe=keys, threshold=least, **fields)

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

    def release(self, values: Reduced | Contents, noise: Noise, *, coverage: float = 0.95) -> SparseRelease:
        """Publish the reduced counts, or the plain ones of a merged sketch. The noise is given by tests, or fresh."""
        keys, stored, total = self._values(values)
        noise = noise_of(noise, keys, stored, total)
        places = self.universe.places_of(keys)
        inside = np.array([place is not None for place in places], dtype=np.bool_)
        keys, stored = keys.filter(pl.Series(inside)), stored[inside]
        noisy = stored + noise.at("counts").laplace(1 / self.rate, item_keys(keys, noise))
        passing = np.flatnonzero(noisy >= self.threshold)
        by_chance, excess = self._by_chance(sorted(place for place in places if place is not None), noise)
        shown = pl.concat([keys.gather(passing).alias("key"), by_chance])
        return self._largest(shown, np.concatenate([noisy[passing], excess]), total, noise, coverage)

    def _values(self, values: Reduced | Contents) -> tuple[pl.Series, Counts, int]:
        check_hidden(values, self.max_keys_per_user)
        if isinstance(values, Reduced):
            if self.unit != values.k + 1 or values.k * values.streams > self.stored:
                raise ParameterError("reduced counts must be of the k and the streams of the release, got others")
            return values.keys, bounded_counts(values.values), values.total
        if self.unit != 1 or self.with_total:
            raise ParameterError("this release must be of reduced counts, got a sketch; reduce it first")
        return *positive_counts(values, self.stored, self.max_keys_per_user), 0

    def _by_chance(self, taken: list[int], noise: Noise) -> tuple[pl.Series, Counts]:
        """The keys of value zero whose noise passes, and their noisy values."""
        free = self.universe.size - len(taken)
        count = binomial(free, laplace_passes(self.rate, self.threshold), noise.at("how many"))
        places = other_places(self.universe.size, taken, count, noise.at("which"))
        excess = [self.threshold + geometric(self.rate, noise.at("excess", number)) for number in range(count)]
        return self.universe.keys_at(places), np.array(excess, dtype=np.int64)

    def _largest(self, keys: pl.Series, values: Counts, total: int, noise: Noise, coverage: float) -> SparseRelease:
        shown = pl.DataFrame({"key": keys, "value": values}).sort(["value", "key"], descending=[True, False])
        if self.most is not None:
            shown = shown.head(self.most)
        shown = shown.sort("key")
        number = total + int(noise.at("total").laplace(1 / self.rate)) if self.with_total else None
        least, reach = self.threshold / self.unit, self.reach(coverage)
        largest = own(shown["key"]), shown["value"].to_numpy(), self.unit, number
        return SparseRelease(*largest, threshold=least, loss=self.loss, reach=reach)


def pure_mechanism(
    contents: Contents, *, k: int, epsilon: Real, universe: Universe | Domain | range, spurious: Real = 1
) -> PureHistogram:
    """The pure release of a sketch of k counters, whatever its kind."""
    check_typed(contents)
    if contents.kind in ("misra-gries", "standard"):
        made = PureHistogram.of_sketch(
            k=k, epsilon=epsilon, universe=universe, spurious=spurious, max_keys_per_user=contents.max_keys_per_user
        )
    else:
        made = PureHistogram.of_merged(k=k, epsilon=epsilon, universe=universe, spurious=spurious)
    # Refuses a universe of another type of keys before anything is charged.
    made.universe.places_of(contents.keys.clear())
    return made


def pure_values(contents: Contents, *, k: int) -> Reduced | Contents:
    """What `pure_mechanism` releases of a sketch."""
    return reduce(contents, k=k) if contents.kind in ("misra-gries", "standard") else contents


def spurious_threshold(size: int, rate: Fraction, spurious: Fraction) -> int:
    """The least threshold >= 1 at which at most so many of the keys pass by chance, on average."""
    with decimal.localcontext(CONTEXT):
        odds = Decimal(size) / (to_decimal(spurious) * (1 + decay(rate)))
        return max(1, math.ceil(odds.ln() / to_decimal(rate)))
