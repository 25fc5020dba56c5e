"""The noise of a race monitor: whole numbers Z = floor(-scale ln E), E exponential of rate one.

P(Z >= d) = 1 - exp(-exp(-d / scale)), in a table of exact integers: decisions and values both come from 128 uniform
bits by comparison with it, and no floating-point number takes part. Rounding down to whole numbers is post-processing
of the real value weight - scale ln E, and weight + Z >= t iff the real value is at least t, for whole t.
"""

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pianissimo.errors import ParameterError
from pianissimo.monitors.core import RaceTable

_ONE = 2**128

Bits = NDArray[np.uint64]
"""128 uniform bits a row, as (low, high)."""

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RaceNoise:
    """The law of Z for one scale, and what it makes of uniform bits.

    >>> noise = race_noise(Fraction(10))
    >>> float(noise.chance(0))
    0.632...
    >>> noise.median
    3
    """

    scale: Fraction
    table: RaceTable
    first: int
    chances: tuple[int, ...]

    def chance(self, least: int) -> Fraction:
        """P(Z >= least), as sampled: within 2^-128 of the ideal, and not above it unless it is one."""
        place = least - self.first
        if place < 0:
            return Fraction(1)
        return Fraction(self.chances[place], _ONE) if place < len(self.chances) else Fraction(0)

    @property
    def median(self) -> int:
        """The value that the middle of all bits gives."""
        return int(self.values(np.array([[0, 2**63]], dtype=np.uint64))[0])

    def half_width(self, coverage: float) -> int:
        """The smallest w for which Z is within w of its median with this chance."""
        middle = self.median

        def covered(width: int) -> bool:
            return self.chance(middle - width) - self.chance(middle + width + 1) >= coverage

        return 1 + bisect_left(range(1, len(self.chances) + 1), x=True, key=covered)

    def passing(self, weights: Integers, thresholds: Integers, bits: Bits) -> NDArray[np.bool_]:
        """Whether weight + Z >= threshold, test by test; one threshold may serve all."""
        return self.table.passing(np.ascontiguousarray(weights), thresholds, bits)

    def values(self, bits: Bits) -> Integers:
        """Z for each row of bits."""
        return self.table.values(np.ascontiguousarray(bits))


@lru_cache(maxsize=32)
def race_noise(scale: Fraction) -> RaceNoise:
    """The noise of a scale; tables are kept.

    >>> race_noise(Fraction(5000))
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: a scale must be above 0 and at most 2048, got 5000; ...
    """
    try:
        table = RaceTable(scale.numerator, scale.denominator)
    except (ValueError, OverflowError) as error:
        raise ParameterError(f"{error}, got {float(scale):g}; allow fewer charges or a larger epsilon") from None
    first, chances = table.chances()
    return RaceNoise(scale, table, first, tuple(chances))
