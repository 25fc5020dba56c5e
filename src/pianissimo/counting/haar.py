"""The Haar plan: log2(T) + 1 node noises with tent-shaped weights, all arithmetic exact in 64 bits.

The card "Continual counting", section 4. Horizon T = 2^L; node (0, 0) is the total, node (h, i) the interval [i 2^h,
(i + 1) 2^h) of leaves. Event of tick j is leaf j - 1: it moves the total by +1 and one node of each level by +1 in
its left half, -1 in its right half, so cost = sum over levels of 1 / variance, exactly. Release t takes t / T of the
total's noise and dist(t / 2^h, nearest integer) of node (h, t >> h). The strategy matrix is that of Xiao, Wang and
Gehrke (Privelet, 2011); random access in exact integers is the card's.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_positive
from pianissimo.errors import ParameterError
from pianissimo.noise_plan import Term, check_plan, round_variance_up


@dataclass(frozen=True, kw_only=True)
class HaarPlan:
    """Haar wavelet noise: close to the best possible error, one draw per level to reach any tick from nothing.

    Guarantee: cost is the sum of 1 / variance over the levels.
    Error: variance (t/T)^2 v_0 + sum over h of dist(t / 2^h, Z)^2 v_h.
    Cost: L + 1 nodes at a tick; one fresh draw per tick.

    >>> plan = HaarPlan.calibrated(horizon=4096, rho=0.5)
    >>> print(round(max(plan.variance_profile()) ** 0.5, 2))
    4.87
    """

    levels: int
    """L: the tree has 2^L leaves."""

    variances: tuple[Fraction, ...]
    """Of the total's noise, then of levels 1 to L."""

    horizon: int
    """How many releases it has, at most 2^L."""

    def __post_init__(self) -> None:
        check_at_least(1, levels=self.levels)
        check_at_least(1, horizon=self.horizon)
        if not self.horizon <= 2**self.levels:
            raise ParameterError(f"horizon must be at most 2^levels = {2**self.levels}, got {self.horizon}")
        if len(self.variances) != self.levels + 1:
            raise ParameterError(
                f"variances must be one for the total and one a level, {self.levels + 1}, got {len(self.variances)}"
            )
        for variance in self.variances:
            check_positive(variance=variance)
        check_plan(self)

    @classmethod
    def calibrated(cls, *, horizon: int, rho: Fraction | float) -> Self:
        """The plan with tuned level weights whose loss per unit is at most `rho`.

        Variances are proportional to a_h^(-1/2), a_h the mean squared weight of level h, which minimises the mean
        squared error for a given loss; each is rounded up.

        >>> HaarPlan.calibrated(horizon=4096, rho=0.5).cost <= 1
        True
        """
        check_at_least(1, horizon=horizon)
        check_positive(rho=rho)
        levels = max(1, (horizon - 1).bit_length())
        leaves = 2**levels
        total = math.sqrt((leaves + 1) * (2 * leaves + 1) / (6 * leaves**2))
        roots = [total] + [math.sqrt(1 / 12 + 1 / (6 * 4**level)) for level in range(1, levels + 1)]
        shares = [Fraction(root) for root in roots]
        variances = tuple(round_variance_up(sum(shares) / (2 * Fraction(rho) * share)) for share in shares)
        return cls(levels=levels, variances=variances, horizon=horizon)

    @property
    def name(self) -> str:
        return "haar"

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

    @property
    def cost(self) -> Fraction:
        # Section 4: an event moves the total and one node of each level, each by one.
        return sum((1 / variance for variance in self.variances), start=Fraction(0))

    def terms(self, tick: int) -> list[Term]:
        terms = [Term(0, 0, tick)]
        for level in range(1, self.levels + 1):
            inside = tick & (2**level - 1)
            if inside:
                terms.append(Term(level, tick >> level, min(inside, 2**level - inside) << (self.levels - level)))
        return terms

    def influence(self, tick: int) -> list[Term]:
        leaf = tick - 1
        column = [Term(0, 0, 1)]
        column += [Term(level, leaf >> level, 1 - 2 * (leaf >> (level - 1) & 1)) for level in range(1, self.levels + 1)]
        return column

    def variance_profile(self) -> NDArray[np.float64]:
        ticks = np.arange(1, self.horizon + 1)
        profile: NDArray[np.float64] = (ticks / 2**self.levels) ** 2 * float(self.variances[0])
        for level in range(1, self.levels + 1):
            inside = ticks & (2**level - 1)
            distance = np.minimum(inside, 2**level - inside) / 2**level
            profile += distance**2 * float(self.variances[level])
        return profile
