"""The Haar plan: log2(T) + 1 node noises with tent-shaped weights, all arithmetic exact in 64 bits.

Horizon T = 2^L; node (0, 0) is the total, node (h, i) the interval [i 2^h, (i + 1) 2^h) of leaves. Event of tick j is
leaf j - 1: it moves the total by +1 and one node of each level by +1 in its left half, -1 in its right half, so the
cost is the sum of the levels' prices, exactly. Release t takes t / T of the total's noise and dist(t / 2^h, nearest
integer) of node (h, t >> h). The strategy matrix is that of Xiao, Wang and Gehrke (Privelet, 2011); random access in
exact integers is ours.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.noise.laws import NodeNoise
from pianissimo.noise.plan import Term, Ticks, as_ticks, check_plan, variance_at
from pianissimo.noise.plans.calibration import Target

OPEN_LEVELS = 32
"""An open horizon has 2^32 ticks: 8,000 years of minutes, 136 years of seconds."""


@identified("haar-plan")
@dataclass(frozen=True, kw_only=True)
class HaarPlan:
    """Haar wavelet noise: close to the best possible error, one draw per level to reach any tick from nothing.

    Guarantee: the cost is the sum of the levels' prices.
    Error: variance (t/T)^2 v_0 + sum over h of dist(t / 2^h, Z)^2 v_h.
    Cost: L + 1 nodes at a tick; one fresh draw per tick.

    >>> plan = HaarPlan.calibrated(horizon=4096, rho=0.5)
    >>> print(round(max(plan.variance_profile()) ** 0.5, 2))
    4.87
    """

    levels: int
    """L: the tree has 2^L leaves."""

    noises: tuple[NodeNoise, ...]
    """Of the total, then of levels 1 to L."""

    horizon: int
    """How many releases it has, at most 2^L."""

    def __post_init__(self) -> None:
        check_at_least(1, levels=self.levels)
        check_at_least(1, horizon=self.horizon)
        if not self.horizon <= 2**self.levels:
            raise ParameterError(f"horizon must be at most 2^levels = {2**self.levels}, got {self.horizon}")
        if len(self.noises) != self.levels + 1:
            raise ParameterError(
                f"noises must be one for the total and one a level, {self.levels + 1}, got {len(self.noises)}"
            )
        check_plan(self)

    @classmethod
    def calibrated(
        cls, *, horizon: int, rho: Fraction | float | None = None, epsilon: Fraction | float | None = None
    ) -> Self:
        """The plan with tuned level weights whose loss per unit is at most `rho` (Gaussian) or `epsilon` (Laplace).

        >>> HaarPlan.calibrated(horizon=4096, rho=0.5).cost <= 1
        True
        """
        check_at_least(1, horizon=horizon)
        levels = max(1, (horizon - 1).bit_length())
        target = Target.of(rho=rho, epsilon=epsilon)
        shares = target.best_shares(mean_squared_weights(levels))
        return cls(levels=levels, noises=tuple(target.spread(shares)), horizon=horizon)

    @classmethod
    def open(cls, *, rho: Fraction | float) -> Self:
        """The plan without an end in sight: 2^32 ticks, with weights that favor the lower levels.

        Its error at tick t is within a factor of 1.8 of the optimum for a horizon of t, at every t; there are no period
        boundaries.

        >>> plan = HaarPlan.open(rho=0.5)
        >>> print(round(max(plan.variance_profile(4096)) ** 0.5, 2))
        5.8
        """
        target = Target.of(rho=rho, epsilon=None)
        shares = [0.5, 1.2] + [1.0 if level <= 8 else (8 / level) ** 1.2 for level in range(2, OPEN_LEVELS + 1)]
        noises = tuple(target.spread([Fraction(share) for share in shares]))
        return cls(levels=OPEN_LEVELS, noises=noises, horizon=2**OPEN_LEVELS)

    @property
    def name(self) -> str:
        return "haar" if self.levels < OPEN_LEVELS else "open haar"

    @property
    def shift(self) -> int:
        return self.levels

    @property
    def smoothness(self) -> int:
        return 2

    @property
    def peak_weights(self) -> tuple[int, ...]:
        return (2**self.levels,) + (2 ** (self.levels - 1),) * self.levels

    @property
    def node_count(self) -> int:
        return 1 << self.levels

    @cached_property
    def cost(self) -> Fraction:
        # An event moves the total and one node of each level, each by one.
        return sum((noise.price(1) for noise in self.noises), start=Fraction(0))

    def position(self, tick: int) -> int:
        return tick

    def terms_at(self, position: int) -> list[Term]:
        terms = [Term(0, 0, position)]
        for level in range(1, self.levels + 1):
            inside = position & (2**level - 1)
            if inside:
                weight = min(inside, 2**level - inside) << (self.levels - level)
                terms.append(Term(level, position >> level, weight))
        return terms

    def influence(self, tick: int) -> list[Term]:
        leaf = tick - 1
        column = [Term(0, 0, 1)]
        column += [Term(level, leaf >> level, 1 - 2 * (leaf >> (level - 1) & 1)) for level in range(1, self.levels + 1)]
        return column

    def bound_tick(self, level: int, node: int) -> int:
        # Used from its first tick on, and drawn one tick earlier.
        return node << level

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        return haar_profile(as_ticks(ticks, self.horizon), self.noises)

    def std(self, tick: int) -> float:
        return math.sqrt(variance_at(self, tick))


def mean_squared_weights(levels: int) -> list[float]:
    """The mean over t of each level's squared weight: the total's first, then those of levels 1 to L.

    >>> [round(weight, 3) for weight in mean_squared_weights(2)]
    [0.469, 0.125, 0.094]
    """
    leaves = 2**levels
    total = (leaves + 1) * (2 * leaves + 1) / (6 * leaves**2)
    return [total] + [1 / 12 + 1 / (6 * 4**level) for level in range(1, levels + 1)]


def haar_profile(positions: NDArray[np.int64], noises: tuple[NodeNoise, ...]) -> NDArray[np.float64]:
    """The variance at each position of a Haar tree with these noises."""
    levels = len(noises) - 1
    profile: NDArray[np.float64] = (positions / 2**levels) ** 2 * float(noises[0].variance)
    for level in range(1, levels + 1):
        inside = positions & (2**level - 1)
        distance = np.minimum(inside, 2**level - inside) / 2**level
        profile += distance**2 * float(noises[level].variance)
    return profile
