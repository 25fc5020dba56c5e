"""From a stream's queries, budget and horizon to mechanisms, with the promise and the error, before any data.

The budget is split so: half of delta is set aside for labels that only one event holds, if any query has an unknown
domain; what is left is turned into rho by integer orders; rho, and the half of delta, are shared by the queries'
weights. The losses are then composed from the mechanisms as they are, rounded, and must price within the budget: a
plan that breaks its budget is never returned.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from pianissimo.accounting import Budget, Price, price
from pianissimo.checks import check_at_least, check_probability
from pianissimo.errors import ParameterError
from pianissimo.histograms import UnknownHistogram
from pianissimo.noise import DRAW_DISTANCE
from pianissimo.planner.candidates import Candidate, ExpectedError, QueryMechanism, Share, candidates
from pianissimo.planner.table import render_plan
from pianissimo.privacy import Guarantee, Neighbors, Unit, float_up
from pianissimo.queries import Histogram, Query

_PATH_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlan:
    """How one query will be answered."""

    query: Query
    share: Fraction
    """Of the stream's rho."""

    chosen: Candidate
    alternatives: tuple[Candidate, ...]
    """What else would have fitted, best first."""

    @property
    def mechanism(self) -> QueryMechanism:
        """The frozen parameters of the chosen mechanism."""
        return self.chosen.mechanism

    @property
    def guarantee(self) -> Guarantee:
        """What answering this query loses."""
        return self.mechanism.guarantee

    @property
    def expected_error(self) -> ExpectedError:
        """Half-widths around the truth."""
        return self.chosen.expected_error

    @property
    def noise(self) -> str:
        """The node noise in words."""
        deviations = [float(variance) ** 0.5 for variance in (noise.variance for noise in self.mechanism.plan.noises)]
        low, high = min(deviations), max(deviations)
        spread = f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
        return f"discrete Gaussian, sigma {spread} on {len(deviations)} levels"

    @property
    def thresholds(self) -> tuple[int, int] | None:
        """The least and the largest estimate that a label must reach to be shown; None where all labels are."""
        if not isinstance(self.mechanism, UnknownHistogram):
            return None
        profile = self.mechanism.plan.variance_profile()
        ticks = (int(np.argmin(profile)) + 1, int(np.argmax(profile)) + 1)
        return self.mechanism.threshold(ticks[0]), self.mechanism.threshold(ticks[1])

    @property
    def reason(self) -> str:
        """Why this mechanism."""
        if not self.alternatives:
            return "the only one that fits"
        second = self.alternatives[0]
        ratio = second.expected_error.typical / self.expected_error.typical
        return f"least typical error; {second.name} has {ratio:.2f} times as much"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        ledger = self.guarantee.loss.as_ledger()
        keys: dict[str, Any] = {}
        if isinstance(self.query, Histogram):
            domain = self.query.domain
            keys["max_keys_per_event"] = self.query.max_keys_per_event
            keys["domain"] = "unknown" if domain is None else f"{len(domain)} labels"
        return {
            "name": self.query.name,
            "kind": type(self.query).__name__.lower(),
            **keys,
            "mechanism": self.chosen.name,
            "guarantee": {
                "rho": float_up(ledger.rho),
                "bad": float_up(ledger.bad),
                "unit": self.guarantee.unit.value,
                "neighbors": self.guarantee.neighbors.value,
                "horizon": self.guarantee.horizon,
                "theorem": self.guarantee.source,
            },
            "share_of_budget": float(self.share),
            "noise": self.noise,
            "threshold": None
            if self.thresholds is None
            else {"least": self.thresholds[0], "largest": self.thresholds[1]},
            "expected_error": _error_dict(self.expected_error),
            "reason": self.reason,
            "alternatives": [
                {"mechanism": other.name, "expected_error": _error_dict(other.expected_error)}
                for other in self.alternatives
            ],
        }


@dataclass(frozen=True, kw_only=True)
class StreamPlan:
    """What a stream will do, and what it promises, before any data.

    Two plans are equal if they would release the same way. `print(plan)` shows it as tables.
    """

    name: str
    unit: Unit
    budget: Budget
    horizon: int
    coverage: float
    queries: tuple[QueryPlan, ...]
    price: Price
    """The (epsilon, delta) that the mechanisms really cost: at most the budget."""

    @property
    def neighbors(self) -> Neighbors:
        """Which two streams may not be told apart."""
        return Neighbors.ADD_OR_REMOVE

    @cached_property
    def digest(self) -> bytes:
        """A short name for all that changes a release; it is part of the path of all noise."""
        parts = [f"version {_PATH_VERSION}", self.name, repr(self.horizon)]
        parts += [f"{plan.query.name}: {plan.mechanism!r}" for plan in self.queries]
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).digest()

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return {
            "stream": self.name,
            "unit": self.unit.value,
            "neighbors": self.neighbors.value,
            "horizon": self.horizon,
            "coverage": self.coverage,
            "budget": {"epsilon": float(self.budget.epsilon), "delta": float(self.budget.delta)},
            "promise": {
                "epsilon": self.price.epsilon,
                "delta": self.price.delta,
                "method": self.price.method,
            },
            "digest": self.digest.hex(),
            "queries": [plan.to_dict() for plan in self.queries],
        }

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        return render_plan(self.to_dict())


def make_plan(
    *, name: str, unit: Unit, budget: Budget, horizon: int, coverage: float, queries: Sequence[Query]
) -> StreamPlan:
    """The best plan for these queries within the budget.

    >>> from pianissimo.queries import Count
    >>> plan = make_plan(name="shop", unit=Unit.EVENT, budget=Budget(1.0, 1e-9), horizon=1440, coverage=0.95,
    ...                  queries=[Count("purchases")])
    >>> plan.price.epsilon <= 1.0
    True
    """
    check_at_least(1, horizon=horizon)
    check_probability(coverage=coverage)
    shares = _shares(queries, budget, horizon)
    total_rho = sum((share.rho for share in shares), start=Fraction(0))
    plans = []
    for query, share in zip(queries, shares, strict=True):
        chosen, *others = candidates(query, share, horizon, coverage)
        plans.append(QueryPlan(query=query, share=share.rho / total_rho, chosen=chosen, alternatives=tuple(others)))
    cost = price([plan.guarantee.loss for plan in plans], Fraction(budget.delta))
    if not (cost.epsilon <= budget.epsilon and cost.delta <= budget.delta):
        raise ParameterError("a plan must stay within its budget, got one that does not: please report this")
    return StreamPlan(
        name=name,
        unit=unit,
        budget=budget,
        horizon=horizon,
        coverage=coverage,
        queries=tuple(plans),
        price=cost,
    )


def _shares(queries: Sequence[Query], budget: Budget, horizon: int) -> list[Share]:
    weights = [Fraction(query.weight) for query in queries]
    unknown = [weight if _is_unknown(query) else Fraction(0) for query, weight in zip(queries, weights, strict=True)]
    set_aside = Fraction(budget.delta) / 2 if any(unknown) else Fraction(0)
    # No plan has more than four nodes a tick and series; see `noise_plan.noise_distance`.
    series = sum(query.max_keys_per_event if isinstance(query, Histogram) else 1 for query in queries)
    distance = 4 * (horizon + 1) * series * DRAW_DISTANCE
    rho = budget.rho(bad=set_aside, distance=distance)
    return [
        Share(rho=rho * weight / sum(weights), bad=set_aside * hidden / (sum(unknown) or 1))
        for weight, hidden in zip(weights, unknown, strict=True)
    ]


def _is_unknown(query: Query) -> bool:
    return isinstance(query, Histogram) and query.domain is None


def _error_dict(error: ExpectedError) -> dict[str, float]:
    return {"coverage": error.coverage, "typical": error.typical, "largest": error.largest}
