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
from pianissimo.errors import InputError, MergeError, ParameterError
from pianissimo.identity import identified
from pianissimo.loss.losses import Mixed, Pure
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.exact_laws import Number, at_most, enlarged, laplace_reach, least_integer, short_bound, tail
from pianissimo.sketches.released_keys import (
    LARGEST_COUNT,
    Counts,
    check_unmerged,
    checked_counts,
    in_key_order,
    item_keys,
    own,
    unit_table,
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

    def __repr__(self) -> str:
        return "Reduced(secret)"


def reduce(contents: Contents, *, k: int) -> Reduced:
    """The reduced counts of a sketch of k counters that was never merged.

    >>> runs = Contents(pl.Series([1, 2]), np.array([10, 5]), 3, 18)
    >>> reduced = reduce(runs, k=2)
    >>> dict(zip(reduced.keys, reduced.values.tolist()))
    {1: 12}
    """
    check_at_least(1, k=k)
    check_unmerged(contents, k)
    largest = int(contents.over.max()) if len(contents.over) else 0
    if not (k + 1) * max(largest, contents.total) < LARGEST_COUNT:
        raise InputError("a sketch must see fewer than 2^62 / (k + 1) elements to be reduced, got more")
    values = (k + 1) * contents.over - contents.total
    places = in_key_order(contents.keys)
    places = places[values[places] > 0]
    return Reduced(contents.keys.gather(places), values[places], contents.total, k)


def add_reduced(parts: Sequence[Reduced]) -> Reduced:
    """The sum per key over sketches of different streams, all of the same k."""
    if not parts:
        raise MergeError("at least one sketch must be added up, got none")
    first = parts[0]
    if any(part.k != first.k or part.keys.dtype != first.keys.dtype for part in parts):
        raise MergeError("reduced sketches must have one k and one type of keys to be added up, got different ones")
    total = sum(part.total for part in parts)
    if not (first.k + 1) * total < LARGEST_COUNT:
        raise InputError("sketches must see fewer than 2^62 / (k + 1) elements to be added up, got more")
    rows = pl.concat([pl.DataFrame({"key": part.keys, "value": part.values}) for part in parts])
    added = rows.group_by("key").agg(pl.col("value").sum()).sort("key")
    streams = sum(part.streams for part in parts)
    return Reduced(added["key"], added["value"].to_numpy(), total, first.k, streams)


@dataclass(frozen=True, slots=True, eq=False)
class ReducedRelease:
    """Keys in their own order with noisy reduced counts, in units of 1 / `unit`: all may be published."""

    keys: pl.Series
    values: Counts
    unit: int
    """How many units make one count: k + 1, or 1 for merged sketches."""

    total: int | None
    """The noisy number of elements, where it was asked for."""

    threshold: int
    """Every value is at least this."""

    loss: Mixed | Pure
    """What the release costs."""

    reach: int
    """All noises are at most this in size, with the coverage that was asked for; in units."""

    def to_dict(self) -> dict[int | str | bytes, float]:
        """The keys and their noisy values, in counts."""
        return dict(zip(self.keys.to_list(), (self.values / self.unit).tolist(), strict=True))

    def to_frame(self) -> pl.DataFrame:
        """One row a key: `estimate_table`, with an upper end where the number of elements was asked for.

        >>> shown = ReducedRelease(pl.Series(["a"]), np.array([30]), 3, 18, 20, Mixed(pure=Fraction(1)), 3)
        >>> shown.to_frame().row(0)
        ('a', 13.0, 9.0, 18.0)
        """
        return unit_table(self.keys, self.values, self.unit, self.total, self.reach)


@identified("reduced-misra-gries")
@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedMisraGries:
    """The reduced counts that pass a threshold, with discrete Laplace noise; for sums over many sketches.

    Guarantee: (epsilon, delta(threshold)), delta(t) = max(G(t - k), 1 - (1 - G(t - 1))^k), or with `rounded` counts
    k / (2 k - 1) G(t - 2 k + 1); G the tail of noise with a = e^(-epsilon / (2 k - 1)).
    Error: n / (k + 1) of the sketch, and the noise.
    Cost: one draw a kept key.

    >>> mechanism = ReducedMisraGries.calibrated(k=1024, epsilon=1, delta=1e-8, rounded=True)
    >>> round(mechanism.threshold / 1025, 1)
    36.0
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
        check_at_least(self.least, threshold=self.threshold)
        check_positive(epsilon=self.epsilon)

    @property
    def least(self) -> int:
        """No threshold is below this, the most that the value of a private key can be."""
        return least_cut(self.k, rounded=self.rounded)

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

    def release(self, reduced: Reduced, noise: Noise, *, coverage: float = 0.95) -> ReducedRelease:
        """Publish. Two states of a sketch never share a noise: descend to a path of its own for each."""
        if reduced.k != self.k or reduced.streams > self.streams:
            raise ParameterError(f"a release of {self.streams} sketches of k = {self.k} must be of such, got others")
        keys, values = reduced.keys, checked_counts(reduced.values)
        if self.rounded:
            values = self._rounded(keys, values, noise)
            kept = np.flatnonzero(values)
            keys, values = keys.gather(kept), values[kept]
        scale = (2 * self.k - 1) / self.epsilon
        noisy = values + noise.at("counts").laplace(scale, item_keys(keys, noise))
        passing = np.flatnonzero(noisy >= self.threshold)
        shown = own(keys.gather(passing)), noisy[passing]
        return ReducedRelease(*shown, self.k + 1, None, self.threshold, self.loss, self.reach(coverage))

    def _rounded(self, keys: pl.Series, values: Counts, noise: Noise) -> Counts:
        size = 2 * self.k - 1
        words = noise.at("rounding").bits(item_keys(keys, noise))
        # The whole part of U r for a uniform U of 128 bits: below value with a chance of value / r, up to 2^-128.
        places = np.array([((int(high) << 64 | int(low)) * size) >> 128 for low, high in words], dtype=np.int64)
        return np.where(values >= size, values, np.where(places < values, size, 0))


def least_cut(k: int, *, rounded: bool) -> int:
    """The most that the value of a key can be which only one of two neighbors keeps, and at least 1."""
    return 2 * k - 1 if rounded else max(k, 1)


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
