"""An interval for a mean of which numerator and denominator are noisy: no division by a number that may be zero.

Fieller 1954. N events, and S the sum of their values less the middle of the range, both with noise of known variance
and rounded. All mu are in the interval that the noise could have made: |S - mu N| <= z sqrt(V_S + mu^2 V_N) + rounding.
With N (beyond its rounding) within z deviations of zero, any mean could have made it: the interval is the whole range.
Where N is beyond that, the set is one interval, since the left side grows faster than the right.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise.plan import laplace_sum_quantile, normal_quantile

Floats = NDArray[np.float64]

_HALVINGS = 80


@dataclass(frozen=True, slots=True, eq=False)
class NoisyMeans:
    """Numbers of events and centred sums, with what is known of their noise: what means are made of."""

    numbers: Floats
    sums: Floats
    """Of the values less `middle`, in steps."""

    variances: tuple[float, float]
    """Of the noise of a number and of a sum."""

    roundings: tuple[float, float]
    """How far rounding may move a number, and a sum."""

    factor: float
    """How many deviations a bar is wide: z."""

    def bars(self, low: float, high: float) -> tuple[Floats, Floats, Floats]:
        """Estimate, low and high of each mean less the middle; no estimate (NaN) where all of the range is possible.

        Cut to `low` .. `high`, which hold every mean; where nothing is left, the nearer end.
        """
        known = self.numbers - self.roundings[0] > self.factor * math.sqrt(self.variances[0])
        numbers = np.where(known, self.numbers, 1.0)
        ratio = np.where(known, self.sums / numbers, 0.0)
        # Bisection between an inner and an outer point: it ends on the outer side, so that nothing is cut off.
        lower = self._edge(ratio, np.full_like(ratio, min(low, 0.0)) + np.minimum(ratio, 0), numbers)
        upper = self._edge(ratio, np.full_like(ratio, max(high, 0.0)) + np.maximum(ratio, 0), numbers)
        lower, upper = np.clip(lower, low, high), np.clip(upper, low, high)
        estimate = np.where(known, np.clip(ratio, low, high), np.nan)
        return estimate, np.where(known, lower, low), np.where(known, upper, high)

    def _edge(self, inside: Floats, outside: Floats, numbers: Floats) -> Floats:
        """The last point of the interval from `inside`, which is of it, towards `outside`, or a little beyond."""
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            within = self._holds(middle, numbers)
            inside, outside = np.where(within, middle, inside), np.where(within, outside, middle)
        return outside

    def _holds(self, mean: Floats, numbers: Floats) -> NDArray[np.bool_]:
        noise = self.factor * np.sqrt(self.variances[1] + mean**2 * self.variances[0])
        rounding = self.roundings[1] + np.abs(mean) * self.roundings[0]
        found: NDArray[np.bool_] = np.abs(self.sums - mean * numbers) <= noise + rounding
        return found


def laplace_factor(scales: Sequence[float], coverage: float) -> float:
    """As many as are enough for every mixture of two sums of Laplace variables of these scales, as far as is known.

    The fewer variables there are, the heavier is the tail: one sum alone, or where bars are short the normal law.
    """
    deviation = math.sqrt(2 * sum(scale**2 for scale in scales))
    one = laplace_sum_quantile(scales, coverage) / deviation
    both = laplace_sum_quantile([*scales, *scales], coverage) / (deviation * math.sqrt(2))
    return max(one, both, normal_quantile(coverage))


def resolution(low: Fraction, high: Fraction) -> Fraction:
    """What means are rounded to: a power of ten, of which the range has a million or more.

    >>> resolution(Fraction(0), Fraction(500))
    Fraction(1, 10000)
    """
    power = 0
    while Fraction(10) ** power * 10**6 > high - low:
        power -= 1
    while Fraction(10) ** (power + 1) * 10**6 <= high - low:
        power += 1
    return Fraction(10) ** power
