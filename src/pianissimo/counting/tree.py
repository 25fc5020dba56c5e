"""Base-r trees of noisy partial sums.

Cardoso and Rogers, "Differentially private histograms under continual observation", 2022, Algorithm 1 (BaseMech), as
corrected in card 2.1: digits and levels both from 0, the number of levels by integer division, l2-sensitivity
sqrt(L). Cell (i, l) covers ticks (l - 1) r^i + 1 .. l r^i; release t sums the cells that its base-r digits name. An
event lies in one cell of each level, so cost = L / variance.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_positive
from pianissimo.noise_plan import Term, check_plan, round_variance_up


def digits_of(number: int, base: int) -> list[int]:
    """The base-r digits, lowest first, by integer division: logarithms are wrong for 243 = 3^5 and others.

    >>> digits_of(243, 3)
    [0, 0, 0, 0, 0, 1]
    """
    digits = []
    while number:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits


def largest_digit_sum(horizon: int, base: int) -> int:
    """The largest base-r digit sum among 1 .. horizon.

    >>> largest_digit_sum(100, 5)
    11
    """
    digits = digits_of(horizon, base)
    best = above = sum(digits)
    above = 0
    for place in reversed(range(len(digits))):
        if digits[place] > 0:
            best = max(best, above + digits[place] - 1 + (base - 1) * place)
        above += digits[place]
    return best


def best_base(horizon: int) -> int:
    """The base with the least largest error: it minimises levels * largest digit sum, exactly.

    Base horizon + 1, a sum without a tree, is allowed.

    >>> [best_base(horizon) for horizon in (100, 365, 1000, 10_000, 1_000_000)]
    [5, 5, 4, 5, 4]
    """
    check_at_least(1, horizon=horizon)
    best, least = horizon + 1, horizon
    for base in range(2, horizon + 1):
        # t = base - 1 has digit sum base - 1, and there are at least two levels.
        if 2 * (base - 1) > least:
            break
        product = len(digits_of(horizon, base)) * largest_digit_sum(horizon, base)
        if product < least or (product == least and base < best):
            best, least = base, product
    return best


@dataclass(frozen=True, kw_only=True)
class TreePlan:
    """A base-r tree: release t sums one node for each unit of each base-r digit of t.

    Guarantee: cost L / variance, L the number of base-r digits of the horizon.
    Error: variance * (digit sum of t).
    Cost: at most (r - 1) L nodes at a tick; one fresh draw per tick.

    >>> TreePlan.calibrated(horizon=1000, rho=0.5).base
    4
    """

    base: int
    """r, at least 2."""

    variance: Fraction
    """Of the noise on each node."""

    horizon: int
    """How many releases it has."""

    def __post_init__(self) -> None:
        check_at_least(2, base=self.base)
        check_at_least(1, horizon=self.horizon)
        check_positive(variance=self.variance)
        check_plan(self)

    @classmethod
    def calibrated(cls, *, horizon: int, rho: Fraction | float, base: int | None = None) -> Self:
        """The tree with the least noise whose loss per unit is at most `rho`.

        >>> TreePlan.calibrated(horizon=1000, rho=0.5).cost <= 2 * Fraction(0.5)
        True
        """
        check_positive(rho=rho)
        base = best_base(horizon) if base is None else base
        levels = len(digits_of(horizon, base))
        return cls(base=base, variance=round_variance_up(Fraction(levels) / (2 * Fraction(rho))), horizon=horizon)

    @cached_property
    def levels(self) -> int:
        """L, the number of base-r digits of the horizon."""
        return len(digits_of(self.horizon, self.base))

    @property
    def name(self) -> str:
        return f"base-{self.base} tree"

    @property
    def variances(self) -> tuple[Fraction, ...]:
        return (self.variance,) * self.levels

    @property
    def shift(self) -> int:
        return 0

    @property
    def smoothness(self) -> int:
        return 1

    @property
    def peak_weights(self) -> tuple[int, ...]:
        return (self.base - 1,) * self.levels

    @property
    def node_count(self) -> int:
        return sum(self.horizon // self.base**level for level in range(self.levels))

    @property
    def cost(self) -> Fraction:
        # Card 2.1: an event moves one cell of each level by one.
        return Fraction(self.levels) / self.variance

    def terms(self, tick: int) -> list[Term]:
        terms = []
        cells = tick
        for level in range(self.levels):
            terms += [Term(level, cells - back, 1) for back in range(cells % self.base)]
            cells //= self.base
        return terms

    def influence(self, tick: int) -> list[Term]:
        return [Term(level, (tick - 1) // self.base**level + 1, 1) for level in range(self.levels)]

    def variance_profile(self) -> NDArray[np.float64]:
        ticks = np.arange(1, self.horizon + 1)
        sums = np.zeros(self.horizon)
        for _ in range(self.levels):
            sums += ticks % self.base
            ticks //= self.base
        return sums * float(self.variance)
