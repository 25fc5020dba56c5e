"""Doubling periods: a fresh binary tree for each period twice as long as the one before.

Chan, Shi and Song, "Private and continual release of statistics", TISSEC 2011, Section 6 (hybrid mechanism), in the
form of Dong, Luo and Yi, "Continual observation of joins under differential privacy", 2023, Algorithm 2. Period l
holds ticks 2^l .. 2^(l+1) - 1 and a tree of l + 1 levels; finished periods contribute the noise of their roots. An
event meets one period only. It needs no horizon, and pays for that: three to five times the best possible error.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.noise.laws import LossTarget, NodeNoise
from pianissimo.noise.plan import Term, Ticks, TunedPlan, as_ticks, check_plan

_ROOT = 1


@identified("doubling-plan")
@dataclass(frozen=True, kw_only=True)
class DoublingPlan(TunedPlan):
    """Binary trees over periods of doubling length.

    Guarantee: the cost is the largest over periods l of (l + 1) times the price of its noise.
    Error: the variances of the roots of past periods, plus one node for each one in the binary form of the tick's place
    in its period.
    Cost: at most 2 log2(t) nodes at a tick; one fresh draw per tick.

    >>> plan = DoublingPlan.calibrated(horizon=255, rho=0.5)
    >>> print(round(max(plan.variance_profile()) ** 0.5, 2))
    9.17
    """

    noises: tuple[NodeNoise, ...]
    """On the nodes of each period's tree."""

    horizon: int
    """How many releases it has, below 2^(number of periods)."""

    name: ClassVar[str] = "doubling"
    shift: ClassVar[int] = 0
    smoothness: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon)
        if not self.horizon < 2 ** len(self.noises):
            raise ParameterError(f"horizon must be below 2^periods = {2 ** len(self.noises)}, got {self.horizon}")
        check_plan(self)

    @classmethod
    def _tuned(cls, horizon: int, target: LossTarget) -> Self:
        noises = tuple(target.spread([Fraction(1)] * (period + 1))[0] for period in range(horizon.bit_length()))
        return cls(noises=noises, horizon=horizon)

    @property
    def peak_weights(self) -> tuple[int, ...]:
        return tuple(max(1, period) for period in range(len(self.noises)))

    @property
    def node_count(self) -> int:
        return 2 << len(self.noises)

    @cached_property
    def cost(self) -> Fraction:
        # An event lies in one period, and moves one node of each of its levels.
        return max((period + 1) * noise.price(1) for period, noise in enumerate(self.noises))

    def terms_at(self, position: int) -> list[Term]:
        period = position.bit_length() - 1
        terms = [Term(past, _ROOT, 1) for past in range(period)]
        leaves = position - 2**period + 1
        start = 0
        for height in reversed(range(period + 1)):
            if leaves >> height & 1:
                # Node numbers as in a heap: the root is 1, the children of n are 2 n and 2 n + 1.
                terms.append(Term(period, (2**period + start) >> height, 1))
                start += 2**height
        return terms

    def influence(self, tick: int) -> list[Term]:
        period = tick.bit_length() - 1
        return [Term(period, tick >> height, 1) for height in range(period + 1)]

    def bound_tick(self, level: int, node: int) -> int:
        # A node is first used when its last tick is released.
        height = level - node.bit_length() + 1
        return ((node + 1) << height) - 1

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        numbers = as_ticks(ticks, self.horizon)
        variances = np.array([float(noise.variance) for noise in self.noises])
        periods = np.frexp(numbers.astype(np.float64))[1] - 1
        past = np.concatenate([[0.0], np.cumsum(variances)])[periods]
        leaves = numbers - (1 << periods) + 1
        ones = np.bitwise_count(leaves).astype(np.float64)
        profile: NDArray[np.float64] = past + ones * variances[periods]
        return profile
