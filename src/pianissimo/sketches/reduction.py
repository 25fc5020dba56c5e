"""Sensitivity reduction: counts of a sketch, centred so that one element moves all of them together by less than two.

Lebeda and Tetek, Algorithm 3, in whole numbers: C(x) = (k + 1) c(x) - sum of c = (k + 1) u(x) - n, kept where positive,
in units of 1 / (k + 1) of a count. An added element lowers every kept C by one, or raises one by at most k and lowers
the others by one: together at most 2 k - 1, and in squares at most k^2 + k - 1. The number n of elements may be carried
as one more number in the same units; then it is 2 k, and k^2 + k. C / (k + 1) is in [f - n / (k + 1), f].

These may be added up over sketches of different streams: an element is in one of them, so the sum moves no further.

A key that only one of two neighbors keeps has C <= k, and is alone; or there are up to k of them with C = 1.

*A pure-epsilon release* over a finite public universe of keys, of any size (section 6): discrete Laplace noise on the
value of every key of the universe, also on those that no sketch holds, of which only what reaches a public threshold is
shown. That is epsilon-private whatever the threshold. A universe of 2^64 keys is not gone through. The tail of the
noise has no memory: of the M keys of value zero, a Binomial number with p = a^Theta / (1 + a) passes, each is uniform
among them, and exceeds the threshold by a geometric draw. All three are drawn exactly. For reduced
counts, also added up over sketches, one element moves all values together by 2 k - 1; for the counts of a merged sketch
by k.
"""

import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

import numpy as np
import polars as pl

from pianissimo.checks import Real, check_at_least, check_positive
from pianissimo.errors import MergeError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.loss.losses import Mixed, Pure
from pianissimo.noise import Noise
from pianissimo.noise.exact_draws import binomial, check_few, geometric, laplace_passes
from pianissimo.noise.exact_laws import (
    CONTEXT,
    Number,
    at_most,
    decay,
    enlarged,
    laplace_reach,
    least_integer,
    short_bound,
    tail,
    to_decimal,
)
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.key_columns import Universe, as_universe, other_places
from pianissimo.sketches.released_keys import (
    LARGEST_COUNT,
    Counts,
    SparseRelease,
    bounded_counts,
    check_unmerged,
    in_key_order,
    item_keys,
    noise_of,
    own,
    without_distance,
)
from pianissimo.sketches.sparse_histogram import positive_counts


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduced:
    """The reduced counts of one sketch, or of several added up: secret."""

    keys: pl.Series
    """In their own order."""

    values: Counts
    """C(x) > 0, in units of 1 / (k + 1)."""

    total: int
    """n: how many elements were seen."""

    k: int
    streams: int = 1
    """How many sketches were added up."""

    def __repr__(self) -> str:
        return "Reduced(secret)"


def reduce(contents: Contents, *, k: int) -> Reduced:
    """The reduced counts of a sketch of k counters that was never merged."""
    check_at_least(1, k=k)
    check_unmerged(contents, k)
    values = _reduced_counts(contents, k)
    places = in_key_order(contents.keys)
    places = places[values[places] > 0]
    return Reduced(contents.keys.gather(places), values[places], contents.total, k)


def _reduced_counts(contents: Contents, k: int) -> Counts:
    """(k + 1) u(x) - n, bounded where 64 bits would not hold it."""
    if (k + 1) * contents.total < LARGEST_COUNT:
        return (k + 1) * contents.over - contents.total
    exact = ((k + 1) * over - contents.total for over in contents.over.tolist())
    return np.array([min(each, LARGEST_COUNT - 1) if each > 0 else 0 for each in exact], dtype=np.int64)


def add_reduced(parts: Sequence[Reduced]) -> Reduced:
    """The sum per key over sketches of different streams, all of the same k."""
    if not parts:
        raise MergeError("at least one sketch must be added up, got none")
    first = parts[0]
    if any(part.k != first.k or part.keys.dtype != first.keys.dtype for part in parts):
        raise MergeError("reduced sketches must have one k and one type of keys to be added up, got different ones")
    total = sum(part.total for part in parts)
    rows = pl.concat([pl.DataFrame({"key": part.keys, "value": part.values}) for part in parts])
    bounded = pl.col("value").cast(pl.Int128).sum().clip(upper_bound=LARGEST_COUNT - 1).cast(pl.Int64)
    added = rows.group_by("key").agg(bounded).sort("key")
    streams = sum(part.streams for part in parts)
    return Reduced(added["key"], added["value"].to_numpy(), total, first.k, streams)


@identified("reduced-misra-gries")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedMisraGries:
    """The reduced counts that pass a threshold, with discrete Laplace noise; for sums over many sketches.

    Guarantee: (epsilon, delta(threshold)), delta(t) = max(G(t - k), 1 - (1 - G(t - 1))^k), or with `rounded` counts
    k / (2 k - 1) G(t - 2 k + 1); G the tail of noise with a = e^(-epsilon / (2 k - 1)).
    Error: n / (k + 1) of the sketch, and the noise.
    Cost: one draw a kept key.
    """

    k: int
    """How many counters each sketch has."""

    epsilon: Fraction

    threshold: int
    """The least noisy value that is shown, in units of 1 / (k + 1)."""

    rounded: bool = False
    """Round values below r = 2 k - 1 to r, with a chance of value / r, and otherwise to nothing, before the noise."""

    streams: int = 1
    """How many sketches are added up at most."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k, streams=self.streams)
        check_at_least(least_cut(self.k, rounded=self.rounded), threshold=self.threshold)
        check_positive(epsilon=self.epsilon)

    @classmethod
    def calibrated(cls, *, k: int, epsilon: Real, delta: Real, rounded: bool = False, streams: int = 1) -> Self:
        """The one with the least threshold within (epsilon, delta)."""
        check_at_least(1, k=k, streams=streams)
        left, exact = without_distance(delta, 2 * k * streams, epsilon), Fraction(epsilon)
        _check_small(left, exact)
        cut = least_integer(
            least_cut(k, rounded=rounded), lambda each: at_most(_chance(each, k, exact, rounded=rounded), left)
        )
        return cls(k=k, epsilon=exact, threshold=cut, rounded=rounded, streams=streams)

    @property
    def loss(self) -> Mixed:
        bad = short_bound(_chance(self.threshold, self.k, self.epsilon, rounded=self.rounded))
        _check_small(bad, self.epsilon)
        # A draw of noise and one of rounding for each of the keys.
        return Mixed(pure=self.epsilon, bad=bad, distance=2 * self.k * self.streams * DRAW_DISTANCE)

    def reach(self, coverage: float) -> int:
        """What noise and rounding move no value by, with this chance; in units."""
        moved = laplace_reach(self.epsilon / (2 * self.k - 1), self.k * self.streams, coverage)
        return moved + (2 * self.k - 2 if self.rounded else 0)

    def release(self, reduced: Reduced, noise: Noise, *, coverage: float = 0.95) -> SparseRelease:
        """Publish. The noise is given by tests, or fresh."""
        if reduced.k != self.k or reduced.streams > self.streams:
            raise ParameterError(f"a release of {self.streams} sketches of k = {self.k} must be of such, got others")
        keys, values = reduced.keys, bounded_counts(reduced.values)
        noise = noise_of(noise, keys, values)
        if self.rounded:
            values = self._rounded(keys, values, noise)
            kept = np.flatnonzero(values)
            keys, values = keys.gather(kept), values[kept]
        scale = (2 * self.k - 1) / self.epsilon
        noisy = values + noise.at("counts").laplace(scale, item_keys(keys, noise))
        passing = np.flatnonzero(noisy >= self.threshold)
        shown = own(keys.gather(passing)), noisy[passing], self.k + 1
        least, reach = self.threshold / (self.k + 1), self.reach(coverage)
        return SparseRelease(*shown, threshold=least, loss=self.loss, reach=reach)

    def _rounded(self, keys: pl.Series, values: Counts, noise: Noise) -> Counts:
        size = 2 * self.k - 1
        words = noise.at("rounding").bits(item_keys(keys, noise))
        # The whole part of U r for a uniform U of 128 bits: below value with a chance of value / r, up to 2^-128.
        places = np.array([((int(high) << 64 | int(low)) * size) >> 128 for low, high in words], dtype=np.int64)
        return np.where(values >= size, values, np.where(places < values, size, 0))


def least_cut(k: int, *, rounded: bool) -> int:
    """The most that the value of a key can be which only one of two neighbors keeps."""
    return 2 * k - 1 if rounded else k


def reduced_exposure(a: Number, cut: int, k: int, *, rounded: bool) -> Number:
    """delta(cut) for noise of a = e^(-epsilon / (2 k - 1)), exact if `a` is."""
    if rounded:
        return k * tail(a, cut - (2 * k - 1)) / (2 * k - 1)
    one = tail(a, cut - 1)
    # A power of a number within 1e-20 of one would lose its digits: k times the chance is more.
    several = k * one if isinstance(one, Decimal) and one < Decimal("1e-20") else 1 - (1 - one) ** k
    return max(tail(a, cut - k), several)


def _chance(cut: int, k: int, epsilon: Fraction, *, rounded: bool) -> Decimal:
    return enlarged(lambda a: reduced_exposure(a, cut, k, rounded=rounded), epsilon / (2 * k - 1))


def _check_small(delta: Fraction, epsilon: Fraction) -> None:
    """Refuse a delta above 1 - e^(-epsilon / 2), up to which the formula holds."""
    if not delta <= -math.expm1(-float(epsilon) / 2) * (1 - 1e-9):
        raise ParameterError(
            f"delta must be at most 1 - e^(-epsilon / 2) here, got {float(delta):g}; allow a larger epsilon"
        )


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
        least = spurious_threshold(keys.size, Fraction(epsilon) / fields["sensitivity"], Fraction(spurious))
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
        if isinstance(values, Reduced):
            if self.unit != values.k + 1 or values.k * values.streams > self.stored:
                raise ParameterError("reduced counts must be of the k and the streams of the release, got others")
            return values.keys, bounded_counts(values.values), values.total
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

    def _largest(self, keys: pl.Series, values: Counts, total: int, noise: Noise, coverage: float) -> SparseRelease:
        shown = pl.DataFrame({"key": keys, "value": values}).sort(["value", "key"], descending=[True, False])
        if self.most is not None:
            shown = shown.head(self.most)
        shown = shown.sort("key")
        number = total + int(noise.at("total").laplace(1 / self.rate)) if self.with_total else None
        least, reach = self.threshold / self.unit, self.reach(coverage)
        largest = own(shown["key"]), shown["value"].to_numpy(), self.unit, number
        return SparseRelease(*largest, threshold=least, loss=self.loss, reach=reach)


def spurious_threshold(size: int, rate: Fraction, spurious: Fraction) -> int:
    """The least threshold >= 1 at which at most so many of the keys pass by chance, on average."""
    with decimal.localcontext(CONTEXT):
        odds = Decimal(size) / (to_decimal(spurious) * (1 + decay(rate)))
        return max(1, math.ceil(odds.ln() / to_decimal(rate)))
