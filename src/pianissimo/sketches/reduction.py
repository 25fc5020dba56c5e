"""Sensitivity reduction: counts of a sketch, centred so that one element moves all of them together by less than two.

Lebeda and Tetek, Algorithm 3, in whole numbers: C(x) = (k + 1) c(x) - sum of c = (k + 1) u(x) - n, kept where positive,
in units of 1 / (k + 1) of a count. An added element lowers every kept C by one, or raises one by at most k and lowers
the others by one: together at most 2 k - 1, and in squares at most k^2 + k - 1. The number n of elements may be carried
as one more number in the same units; then it is 2 k, and k^2 + k. C / (k + 1) is in [f - n / (k + 1), f].

These may be added up over sketches of different streams: an element is in one of them, so the sum moves no further.

A key that only one of two neighbors keeps has C <= k, and is alone; or there are up to k of them with C = 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Self

import numpy as np
import polars as pl

from pianissimo.checks import Real, check_at_least, check_positive
from pianissimo.errors import MergeError, ParameterError
from pianissimo.identity import identified
from pianissimo.loss.losses import Mixed
from pianissimo.noise import Noise
from pianissimo.noise.exact_laws import Number, at_most, enlarged, laplace_reach, least_integer, short_bound, tail
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.released_keys import (
    LARGEST_COUNT,
    Counts,
    SparseRelease,
    bounded_counts,
    check_hidden,
    check_unmerged,
    in_key_order,
    item_keys,
    noise_of,
    own,
    without_distance,
)


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

    max_keys_per_user: int = 1
    """How many elements one user may have given: public."""

    def __repr__(self) -> str:
        return "Reduced(secret)"


def reduce(contents: Contents, *, k: int) -> Reduced:
    """The reduced counts of a sketch of k counters that was never merged, also of one that another program built."""
    check_at_least(1, k=k)
    check_unmerged(contents, k, standard=True)
    values = _reduced_counts(contents, k)
    places = in_key_order(contents.keys)
    places = places[values[places] > 0]
    kept = contents.keys.gather(places), values[places], contents.total
    return Reduced(*kept, k, max_keys_per_user=contents.max_keys_per_user)


def _reduced_counts(contents: Contents, k: int) -> Counts:
    """(k + 1) u(x) - n, bounded where 64 bits would not hold it."""
    # Below 2^62 / k, (k + 1) u(x) is below 2^63 and no reduced count needs a bound.
    if k * contents.total < LARGEST_COUNT:
        return (k + 1) * contents.over - contents.total
    exact = ((k + 1) * over - contents.total for over in contents.over.tolist())
    return np.array([min(max(each, 0), LARGEST_COUNT - 1) for each in exact], dtype=np.int64)


def add_reduced(parts: Sequence[Reduced]) -> Reduced:
    """The sum per key over sketches of different streams, all of the same k."""
    if not parts:
        raise MergeError("at least one sketch must be added up, got none")
    first = parts[0]
    if any(part.k != first.k or part.keys.dtype != first.keys.dtype for part in parts):
        raise MergeError("reduced sketches must have one k and one type of keys to be added up, got different ones")
    if any(part.max_keys_per_user > 1 for part in parts):
        raise MergeError("reduced sketches must hide one key each to be added up, got users, who may be in several")
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
        check_hidden(reduced, 1)
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
        return np.where(places < values, np.maximum(values, size), 0)


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
