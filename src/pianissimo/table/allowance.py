"""From (epsilon, delta) to what an analyst may spend: so many steps, so many calls.

One step is the currency. A label that comes back is one step, and so is meeting the threshold: a selection of bounded
range `epsilon`, epsilon^2 / 8 zCDP (Durfee and Rogers 2019, Algorithm 2, with the constants of docs/privacy.md). A
count is bought with steps too: discrete Gaussian noise of variance 4 m / (s epsilon^2) on counts of which one user
moves m costs s of them, m / (2 variance) = s epsilon^2 / 8. A call is a question whose labels nobody knew beforehand;
it may fail to hide a user with a chance of `delta`.

Whatever is asked, in whichever order and in view of whichever answers, the losses are at most steps epsilon^2 / 8
zCDP, a bad mass of 1 - (1 - delta)^calls, and the distance of the noise; that is what is held against the budget.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from pianissimo.accounting import Budget, Price, compose
from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.node_noise import gaussian_node
from pianissimo.privacy import Ledger

_GRID = 2**24
_DISTANCE = Fraction(1, 2**90)
"""What the noise of a step, or of a call, is at most from the ideal one; far below delta and far above what it is."""

MOST_DRAWS = 2**18
"""A question makes at most so many draws, which keeps them within `_DISTANCE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What a budget buys: `steps` steps of `epsilon` and `calls` calls of `delta`.

    >>> allowance = Allowance.of(Budget(2.0, 1e-8), steps=200, calls=100)
    >>> round(float(allowance.epsilon), 4), float(allowance.delta)
    (0.0495, 5e-11)
    >>> allowance.price(200, 100).epsilon <= 2.0
    True
    """

    budget: Budget
    steps: int
    calls: int
    epsilon: Fraction
    """Of one step."""

    delta: Fraction
    """Of one call."""

    @classmethod
    def of(cls, budget: Budget, *, steps: int, calls: int) -> "Allowance":
        """The largest steps that fit the budget, half of whose delta is for calls."""
        check_at_least(1, steps=steps)
        check_at_least(1, questions=calls)
        if budget.pure:
            raise ParameterError("delta must be above 0 to ask a table, whose labels nobody knows beforehand, got 0")
        delta = Fraction(budget.delta) / (2 * calls)
        bad, distance = _bad(delta, calls), (steps + calls) * _DISTANCE
        # epsilon^2 / 8 a step, rounded down to the grid.
        square = budget.rho(bad=bad, distance=distance) * 8 / steps
        epsilon = Fraction(math.isqrt(math.floor(square * _GRID**2)), _GRID)
        if not epsilon > 0:
            raise ParameterError("epsilon must be enough for so many steps, got too little; ask for fewer steps")
        found = cls(budget=budget, steps=steps, calls=calls, epsilon=epsilon, delta=delta)
        if not found.price(steps, calls).epsilon <= budget.epsilon:
            raise ParameterError("the steps must fit the budget, got more; this is a mistake of Pianissimo's")
        return found

    @property
    def scale(self) -> Fraction:
        """Of the Gumbel noise of a step."""
        return 1 / self.epsilon

    @property
    def distance(self) -> Fraction:
        """What the noise of a step, or of a call, is at most from the ideal one."""
        return _DISTANCE

    def price(self, steps: int, calls: int) -> Price:
        """What so many steps and calls cost together, at the budget's delta."""
        if steps == 0 and calls == 0:
            return Price(0.0, 0.0, "nothing was asked")
        loss = Ledger(
            rho=steps * self.epsilon**2 / 8, bad=_bad(self.delta, calls), distance=(steps + calls) * _DISTANCE
        )
        return compose([loss], delta=Fraction(self.budget.delta))

    def plain_epsilon(self, steps: int) -> float:
        """What plain composition would book for so many steps: their epsilons added up."""
        return float(steps * self.epsilon)

    def variance(self, moved: int, steps: int) -> Fraction:
        """Of the noise on counts of which one user moves so many, bought with so many steps.

        >>> Allowance.of(Budget(2.0, 1e-8), steps=200, calls=100).variance(1, 1) ** 0.5
        40.3...
        """
        return gaussian_node(4 * moved / (steps * self.epsilon**2)).variance


def _bad(delta: Fraction, calls: int) -> Fraction:
    # 1 - (1 - delta)^calls, of which calls * delta is an upper bound that stays short.
    return calls * delta
