"""Haar with skipping: a tree of twice the size, of whose positions only those with little noise are used.

The noise of a Haar tree varies with the position. With one level more than needed there are two positions or more for
each tick; the ticks take, in order, the positions of least variance. The choice depends on the levels' weights alone,
so it is public and the same for all series; positions grow, so an event has exactly one leaf, and the rows and
columns that are kept are again those of running sums. The price is that of one level more; the worst error falls to
the typical one.
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
from pianissimo.noise.plans.haar import HaarPlan, haar_profile, mean_squared_weights

_LONGEST_HORIZON = 2**22
_WEIGHT_BITS = 12


@identified("haar-skip-plan")
@dataclass(frozen=True, kw_only=True)
class HaarSkipPlan:
    """Haar wavelet noise at the quietest positions of a tree of twice the size.

    Guarantee: the cost is the sum of the levels' prices, one level more than without skipping.
    Error: at most the variance of the T-th quietest position.
    Cost: L + 2 nodes at a tick, two fresh draws per tick on average; one bit a position, shared by all series.

    >>> plan = HaarSkipPlan.calibrated(horizon=4096, rho=0.5)
    >>> print(round(max(plan.variance_profile()) ** 0.5, 2))
    4.47
    """

    tree: HaarPlan
    """The tree whose positions are used: of 2^(L + 1) leaves or more."""

    horizon: int
    """How many releases it has, at most the leaves of the tree."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon)
        if not self.horizon <= min(self.tree.horizon, _LONGEST_HORIZON):
            raise ParameterError(
                f"horizon must be at most the tree's {self.tree.horizon} positions and {_LONGEST_HORIZON}, "
                f"got {self.horizon}; take the plan without skipping"
            )
        check_plan(self)

    @classmethod
    def calibrated(
        cls, *, horizon: int, rho: Fraction | float | None = None, epsilon: Fraction | float | None = None
    ) -> Self:
        """The plan with tuned level weights whose loss per unit is at most `rho` (Gaussian) or `epsilon` (Laplace).

        >>> HaarSkipPlan.calibrated(horizon=4096, rho=0.5).cost <= 1
        True
        """
        check_at_least(1, horizon=horizon)
        levels = max(1, (horizon - 1).bit_length()) + 1
        target = Target.of(rho=rho, epsilon=epsilon)
        noises = tuple(target.spread(target.best_shares(mean_squared_weights(levels))))
        return cls(tree=HaarPlan(levels=levels, noises=noises, horizon=2**levels), horizon=horizon)

    @property
    def name(self) -> str:
        return "haar + skipping"

    @property
    def noises(self) -> tuple[NodeNoise, ...]:
        return self.tree.noises

    @property
    def shift(self) -> int:
        return self.tree.shift

    @property
    def smoothness(self) -> int:
        return self.tree.smoothness

    @property
    def peak_weights(self) -> tuple[int, ...]:
        return self.tree.peak_weights

    @property
    def node_count(self) -> int:
        return self.tree.node_count

    @property
    def cost(self) -> Fraction:
        return self.tree.cost

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """The position of each tick: those of least variance, the first ones where variances are equal.

        Variances are compared as whole numbers, with level weights of 12 bits, so that every machine chooses alike.
        """
        levels = self.tree.levels
        largest = max(noise.variance for noise in self.noises)
        weights = [int(noise.variance / largest * 2**_WEIGHT_BITS) for noise in self.noises]
        places = np.arange(1, 2**levels + 1, dtype=np.int64)
        loud = places * places * weights[0]
        for level in range(1, levels + 1):
            inside = places & (2**level - 1)
            tent = np.minimum(inside, 2**level - inside) << (levels - level)
            loud += tent * tent * weights[level]
        limit = np.partition(loud, self.horizon - 1)[self.horizon - 1]
        quiet = places[loud < limit]
        ties = places[loud == limit][: self.horizon - len(quiet)]
        return np.sort(np.concatenate([quiet, ties]))

    def position(self, tick: int) -> int:
        return int(self.positions[tick - 1])

    def terms_at(self, position: int) -> list[Term]:
        return self.tree.terms_at(position)

    def influence(self, tick: int) -> list[Term]:
        return self.tree.influence(self.position(tick))

    def bound_tick(self, level: int, node: int) -> int:
        # The last tick before the node's first position.
        return int(np.searchsorted(self.positions, self.tree.bound_tick(level, node), side="right"))

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        return haar_profile(self.positions[as_ticks(ticks, self.horizon) - 1], self.noises)

    def std(self, tick: int) -> float:
        return math.sqrt(variance_at(self, tick))
