"""What a budget buys of a table: from (epsilon, delta) to so many steps and so many calls, and the ledger of both.

One step is the currency. A label that comes back is one step, and so is meeting the threshold: a selection of bounded
range `epsilon`, epsilon^2 / 8 zCDP (Durfee and Rogers 2019, Algorithm 2, with the constants of docs/privacy.md). A
count is bought with steps too: discrete Gaussian noise of variance 4 m / (s epsilon^2) on counts of which one user
moves m costs s of them, m / (2 variance) = s epsilon^2 / 8. A call is a question whose labels nobody knew beforehand;
it may fail to hide a user with a chance of `delta`.

Whatever is asked, in whichever order and in view of whichever answers, the losses are at most steps epsilon^2 / 8
zCDP, a bad mass of 1 - (1 - delta)^calls, and the distance of the noise; that is what is held against the budget.

**A shared ledger**, of a whole data set, is charged by streams and sketches too, and counts in rho and bad mass. A step
is epsilon^2 / 8 of rho and a call its delta of bad mass, both rounded up to whole units, so that what a table asks fits
beside what anybody else has charged. The distance of the noise is bad mass too. A table has no budget of its own there:
its budget must be the data set's.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction

from pianissimo.budget import Budget
from pianissimo.checks import check_at_least
from pianissimo.errors import LedgerError, ParameterError
from pianissimo.ledger import BAD_UNIT, RHO_UNIT, Charge, Ledger
from pianissimo.loss.composition import Price, price
from pianissimo.loss.losses import Booked, float_up
from pianissimo.noise.laws import gaussian_node
from pianissimo.selection import PayWhatYouGet

_GRID = 2**24
_DISTANCE = Fraction(1, 2**90)
"""What the noise of a step, or of a call, is at most from the ideal one; far below delta and far above what it is."""

MOST_DRAWS = 2**18
"""A question makes at most so many draws, which keeps them within `_DISTANCE`."""

_AS_LARGE = Fraction(999, 1000)
"""A ledger is that of a budget if it is no further below what the budget allows: ledgers allow for their own noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAllowance(PayWhatYouGet):
    """What a budget buys: `steps` steps of `epsilon` and `calls` calls of `delta`.

    Given as the `budget` of a `Table`, it says how that is cut: fewer steps or questions make each answer sharper.

    >>> allowance = StepAllowance.of(Budget(2.0, 1e-8))
    >>> round(float(allowance.epsilon), 4), float(allowance.delta)
    (0.0495, 5e-11)
    >>> allowance.price(200, 100).epsilon <= 2.0
    True
    """

    budget: Budget

    @classmethod
    def of(cls, budget: Budget, *, steps: int = 200, questions: int = 100) -> "StepAllowance":
        """The largest steps that fit the budget, half of whose delta is for questions about unknown labels: calls."""
        if not isinstance(budget, Budget):
            raise ParameterError(f"budget must be a Budget, got {type(budget).__name__}")
        check_at_least(1, steps=steps)
        check_at_least(1, questions=questions)
        budget.warn()
        if budget.pure:
            raise ParameterError("delta must be above 0 to ask a table, whose labels nobody knows beforehand, got 0")
        delta = Fraction(budget.delta) / (2 * questions)
        bad, distance = _bad(delta, questions), (steps + questions) * _DISTANCE
        # epsilon^2 / 8 a step, rounded down to the grid.
        square = budget.rho(bad=bad, distance=distance) * 8 / steps
        epsilon = Fraction(math.isqrt(math.floor(square * _GRID**2)), _GRID)
        if not epsilon > 0:
            raise ParameterError("epsilon must be enough for so many steps, got too little; ask for fewer steps")
        found = cls(budget=budget, steps=steps, calls=questions, epsilon=epsilon, delta=delta)
        if not found.price(steps, questions).epsilon <= budget.epsilon:
            raise ParameterError("the steps must fit the budget, got more; this is a mistake of Pianissimo's")
        return found

    @property
    def charge(self) -> Charge:
        """All of it."""
        return Charge(steps=self.steps, calls=self.calls)

    def price(self, steps: int, calls: int) -> Price:
        """What so many steps and calls cost together, at the budget's delta."""
        if steps == 0 and calls == 0:
            return Price(0.0, 0.0, "nothing was asked")
        loss = Booked(
            rho=steps * self.epsilon**2 / 8, bad=_bad(self.delta, calls), distance=(steps + calls) * _DISTANCE
        )
        return price([loss], delta=Fraction(self.budget.delta))

    def variance(self, moved: int, steps: int) -> Fraction:
        """Of the noise on counts of which one user moves so many, bought with so many steps."""
        return gaussian_node(4 * moved / (steps * self.epsilon**2)).variance


def _bad(delta: Fraction, calls: int) -> Fraction:
    # 1 - (1 - delta)^calls, of which calls * delta is an upper bound that stays short.
    return calls * delta


@dataclass(frozen=True, slots=True, order=True)
class Amount:
    """A part of a budget."""

    steps: int
    """Labels, thresholds met, and counts bought."""

    calls: int
    """Questions whose labels nobody knew beforehand."""

    share: float = field(compare=False)
    """The part of all steps, from 0 to 1."""

    epsilon: float = field(compare=False)
    """As differential privacy at the budget's delta."""

    def to_dict(self) -> dict[str, float | int]:
        """The same as plain data."""
        return {"steps": self.steps, "calls": self.calls, "share": self.share, "epsilon": self.epsilon}


class TableBudget:
    """What a table's budget buys, what is spent of it, and what is left.

    All of it is in steps and calls, also where the ledger is a shared one, which counts in rho and bad mass.
    """

    def __init__(self, allowance: StepAllowance, ledger: Ledger, *, is_shared: bool) -> None:
        self.allowance = allowance
        """The steps and calls that it was turned into."""

        self.ledger = ledger
        """Where charges are kept."""

        self._is_shared = is_shared
        self._step = math.ceil(allowance.epsilon**2 / 8 / RHO_UNIT)
        factor = 1 + math.ceil(math.exp(float_up(Fraction(allowance.budget.epsilon))))
        self._each = math.ceil(factor * _DISTANCE / BAD_UNIT)
        self._call = math.ceil(allowance.delta / BAD_UNIT) + self._each
        if is_shared:
            self._check_same()

    def _check_same(self) -> None:
        budget, ledger = self.allowance.budget, self.ledger
        bad = Fraction(budget.delta) / 2
        most = Charge.rounded_down(rho=budget.rho(bad=bad), bad=bad)
        if ledger.budget.bad_units != most.bad_units or not _AS_LARGE * most.rho <= ledger.budget.rho <= most.rho:
            raise LedgerError(
                f"a table must be asked with the budget of its data set, which is in the ledger at {ledger.place}, got "
                f"(epsilon {self.epsilon:g}, delta {self.delta:g}); give the one that the ledger was made with"
            )

    @property
    def epsilon(self) -> float:
        """Of everything that is ever answered, together."""
        return float(self.allowance.budget.epsilon)

    @property
    def delta(self) -> float:
        """Of everything that is ever answered, together."""
        return float(self.allowance.budget.delta)

    @property
    def spent(self) -> Amount:
        """What was paid, by all who use this ledger, with what is reserved at this moment; rounded up."""
        spent, budget, allowed = self.ledger.spent, self.ledger.budget, self.allowance
        if not self._is_shared:
            return self.amount(spent.steps, spent.calls)
        left = (budget.rho_units - spent.rho_units) // self._step
        # One part in a hundred of a call is the rounding of a hundred of them.
        calls = -(-(100 * spent.bad_units - self._call) // (100 * self._call))
        return self.amount(max(0, allowed.steps - left), min(max(0, calls), allowed.calls))

    @property
    def left(self) -> Amount:
        """What may still be paid, by anybody."""
        spent = self.spent
        return Amount(
            steps=self.allowance.steps - spent.steps,
            calls=self.allowance.calls - spent.calls,
            share=1 - spent.share,
            epsilon=max(0.0, self.epsilon - spent.epsilon),
        )

    def charge(self, steps: int, calls: int) -> Charge:
        """So many steps and calls, as the ledger counts."""
        if not self._is_shared:
            return Charge(steps=steps, calls=calls)
        return Charge(rho_units=steps * self._step, bad_units=calls * self._call + steps * self._each)

    def amount(self, steps: int, calls: int) -> Amount:
        """So many steps and calls as a part of the budget."""
        price = self.allowance.price(steps, calls)
        return Amount(steps=steps, calls=calls, share=steps / self.allowance.steps, epsilon=price.epsilon)

    def __repr__(self) -> str:
        spent, allowance = self.spent, self.allowance
        parts = f"{spent.steps} of {allowance.steps} steps and {spent.calls} of {allowance.calls} questions are spent"
        return f"(epsilon {self.epsilon}, delta {self.delta}): {parts}, {1 - spent.share:.1%} is left"
