"""A 16-ary tree read from the top down: the counter for pure epsilon.

Every node of a k-ary tree, and the total, gets discrete Laplace noise. The estimate of a running sum takes the
total's share t / T and, level by level, corrects it by how the children of the current node deviate from equal parts:
child e weighs 1 - a, f - a or -a for e before, at or after the child i that holds t, where a is the fraction of the
current node before t and f the fraction of child i. An event hits one node of each level and the total, each by one,
so epsilon is the sum of the levels', exactly, also for inputs that adapt. This is hierarchical consistency (Hay et
al. 2010) in the form of running sums, with random access.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.identity import identified
from pianissimo.noise.laws import LossTarget
from pianissimo.noise.plan import LevelPlan, Term, Ticks, as_ticks, check_levels

ARITY_BITS = 4
ARITY = 2**ARITY_BITS
OPEN_HEIGHT = 8
"""An open horizon has 16^8 = 2^32 ticks."""


@identified("top-down-plan")
@dataclass(frozen=True, kw_only=True)
class TopDownPlan(LevelPlan):
    """Laplace noise on a 16-ary tree and its total, with the weights of a top-down estimate.

    Guarantee: the cost is the sum of the levels' prices: a pure epsilon for Laplace noise.
    Error: variance (t/T)^2 v_0 + the levels' squared weights.
    Cost: 16 log16(T) + 1 nodes at a tick; about one fresh draw per tick.

    >>> plan = TopDownPlan.calibrated(horizon=4096, epsilon=1.0)
    >>> print(round(max(plan.variance_profile()) ** 0.5, 1))
    17.7
    """

    height: int
    """H: the tree has 16^H leaves."""

    def __post_init__(self) -> None:
        check_at_least(1, height=self.height)
        check_levels(self, levels=self.height, leaves=ARITY**self.height)

    @classmethod
    def _tuned(cls, horizon: int, target: LossTarget) -> Self:
        height = 1
        while ARITY**height < horizon:
            height += 1
        # Mean squared weights over t: (k - 1/k) / 6 on the leaves, (k - 1) / 6 above them, 1/3 for the total.
        shares = target.best_shares([1 / 3, (ARITY - 1 / ARITY) / 6] + [(ARITY - 1) / 6] * (height - 1))
        return cls(height=height, noises=tuple(target.spread(shares)), horizon=horizon)

    @classmethod
    def open(cls, *, epsilon: Fraction | float) -> Self:
        """The plan without an end in sight: 2^32 ticks, with weights that favor the lower levels.

        >>> plan = TopDownPlan.open(epsilon=1.0)
        >>> print(round(max(plan.variance_profile(4096)) ** 0.5, 1))
        25.4
        """
        target = LossTarget.of(rho=None, epsilon=epsilon)
        shares = [0.05] + [1.0 if level <= 2 else (2 / level) ** 1.2 for level in range(1, OPEN_HEIGHT + 1)]
        noises = tuple(target.spread([Fraction(share) for share in shares]))
        return cls(height=OPEN_HEIGHT, noises=noises, horizon=ARITY**OPEN_HEIGHT)

    @property
    def name(self) -> str:
        return "top-down" if self.height < OPEN_HEIGHT else "open top-down"

    @property
    def shift(self) -> int:
        return ARITY_BITS * self.height

    @property
    def peak_weights(self) -> tuple[int, ...]:
        # For a fraction a before t the weights have total size at most 2 a (1 - a) k + 2 <= k / 2 + 2.
        return (2**self.shift,) + ((ARITY // 2 + 2) << self.shift,) * self.height

    @property
    def node_count(self) -> int:
        return 1 + sum(1 << ARITY_BITS * (self.height - level) for level in range(self.height))

    def terms_at(self, position: int) -> list[Term]:
        terms = [Term(0, 0, position)]
        for level in range(1, self.height + 1):
            size, child = ARITY**level, ARITY ** (level - 1)
            before = position % size
            if before:
                scale = 2 ** (self.shift - ARITY_BITS * level)
                held, inside = divmod(before, child)
                first = position // size * ARITY
                for place in range(ARITY):
                    whole = size if place < held else inside * ARITY if place == held else 0
                    if whole != before:
                        terms.append(Term(level, first + place, (whole - before) * scale))
        return terms

    def influence(self, tick: int) -> list[Term]:
        leaf = tick - 1
        column = [Term(0, 0, 1)]
        column += [Term(level, leaf // ARITY ** (level - 1), 1) for level in range(1, self.height + 1)]
        return column

    def bound_tick(self, level: int, node: int) -> int:
        # A node has weight as soon as its parent does, and is drawn one tick earlier.
        return int(node // ARITY * ARITY**level) if level else 0

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        numbers = as_ticks(ticks, self.horizon)
        profile: NDArray[np.float64] = (numbers / ARITY**self.height) ** 2 * float(self.noises[0].variance)
        for level in range(1, self.height + 1):
            size, child = ARITY**level, ARITY ** (level - 1)
            before = numbers % size
            held, inside = np.divmod(before, child)
            share, fraction = before / size, inside / child
            squares = held * (1 - share) ** 2 + (fraction - share) ** 2 + (ARITY - 1 - held) * share**2
            profile += np.where(before > 0, squares, 0.0) * float(self.noises[level].variance)
        return profile
