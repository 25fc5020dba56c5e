"""From (epsilon, delta) to what an analyst may spend: so many steps, so many calls.

One step is the currency. A label that comes back is one step, and so is meeting the threshold: a selection of bounded
range `epsilon`, epsilon^2 / 8 zCDP (Durfee and Rogers 2019, Algorithm 2, with the constants of docs/privacy.md). A
count is bought with steps too: discrete Gaussian noise of variance 4 m / (s epsilon^2) on counts of which one user
moves m costs s of them, m / (2 variance) = s epsilon^2 / 8. A call is a question whose labels nobody knew beforehand;
it may fail to hide a user with a chance of `delta`.

Whatever is asked, in whichever order and in view of whichever answers, the losses are at most steps epsilon^2 / 8
zCDP, a bad mass of 1 - (1 - delta)^calls, and the distance of the noise; that is what is held against the budget.

What comes back: before a question, its plan; after it, an answer with its cost.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.budget import Budget
from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.loss.composition import Price, compose
from pianissimo.loss.losses import Booked
from pianissimo.noise.laws import gaussian_node

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
        loss = Booked(
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


@dataclass(frozen=True, slots=True, order=True)
class Amount:
    """A part of a budget.

    >>> Amount(steps=11, calls=1, share=0.055, epsilon=0.4).steps
    11
    >>> float(Amount(steps=11, calls=1, share=0.055, epsilon=0.4))
    0.055
    """

    steps: int
    """Labels, thresholds met, and counts bought."""

    calls: int
    """Questions whose labels nobody knew beforehand."""

    share: float = field(compare=False)
    """The part of all steps, from 0 to 1."""

    epsilon: float = field(compare=False)
    """As differential privacy at the budget's delta."""

    def __float__(self) -> float:
        return self.share

    def to_dict(self) -> dict[str, float | int]:
        """The same as plain data."""
        return {"steps": self.steps, "calls": self.calls, "share": self.share, "epsilon": self.epsilon}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPlan:
    """What a question would cost and how good its answer would be, before any row is looked at."""

    question: str
    """As the ledger notes it."""

    mechanism: str
    """How it is answered."""

    sql: str
    """The one statement that is sent."""

    at_most: Amount
    """The most it can cost. An answer that is shorter costs less."""

    plain_epsilon: float
    """What plain composition would book for it, whatever comes back."""

    k: int | None = None
    """How many labels come back at most."""

    k_bar: int | None = None
    """How many labels are looked at."""

    threshold: float | None = None
    """How many users above the label of rank k_bar + 1, or above none, a label needs to be level with the threshold."""

    sure_from: float | None = None
    """How many users above that label are enough to come back with a chance of 95 %."""

    error: float | None = None
    """The half-width of the error bar of each count, in users."""

    coverage: float = 0.95
    """The chance that an error bar holds the truth."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        names = ("question", "mechanism", "sql", "plain_epsilon", "k", "k_bar", "threshold", "sure_from", "error")
        return {"at_most": self.at_most.to_dict(), **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        lines = [self.question, f"  answered by  {self.mechanism}"]
        calls = f" and {self.at_most.calls} call" if self.at_most.calls else ""
        share = f"{self.at_most.share:.2%} of the budget"
        lines.append(f"  costs        at most {self.at_most.steps} steps{calls}, {share}")
        if self.threshold is not None:
            level = f"the label of rank {(self.k_bar or 0) + 1:,}, if there is one"
            lines.append(f"  threshold    about {self.threshold:,.0f} users above {level}")
        if self.sure_from is not None:
            lines.append(f"  sure to come {self.sure_from:,.0f} users above it, with a chance of 95 %")
        if self.error is not None:
            lines.append(f"  error        ± {self.error:,.0f} users on a count ({self.coverage:.0%})")
        return "\n".join([*lines, f"  sent         {self.sql}"])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableAnswer:
    """An answer and what it cost. It is private: it may be shown to anybody.

    Iterating gives its labels in order.
    """

    table: pl.DataFrame
    """The answer: `key` where there are labels; `estimate`, `low` and `high` where there are counts."""

    cost: Amount
    """What was paid."""

    plain_epsilon: float
    """What plain composition would have booked."""

    left: Amount
    """What the budget still holds."""

    plan: QuestionPlan

    met_threshold: bool | None = None
    """Whether the list ended because no further label stood out; None where there is no threshold."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in order."""
        return tuple(self.table["key"].to_list()) if "key" in self.table.columns else ()

    @property
    def estimate(self) -> int:
        """The number, where one was asked for."""
        if self.table.height != 1 or "estimate" not in self.table.columns:
            raise TypeError("estimate must be asked of an answer that is one number; others have a table")
        return int(self.table["estimate"][0])

    def __iter__(self) -> Iterator[str]:
        return iter(self.labels)

    def __len__(self) -> int:
        return self.table.height

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "answer": self.table.to_dicts(),
            "met_threshold": self.met_threshold,
            "cost": self.cost.to_dict(),
            "plain_epsilon": self.plain_epsilon,
            "left": self.left.to_dict(),
        }

    def to_json(self) -> str:
        """The same as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    def __str__(self) -> str:
        end = {True: "; no further label stood out", False: "", None: ""}[self.met_threshold]
        paid = f"cost {self.cost.steps} steps, {self.cost.share:.2%} of the budget; {self.left.share:.2%} is left{end}"
        return f"{self.table}\n{paid}"
