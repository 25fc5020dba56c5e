"""No spec is refused because of a fault of ours: exact bounds are not missed by rounding."""

from typing import Any

import pytest
from tests.truth.random_specs import allowances, ours

import pianissimo as pp


def test_plans_of_specs_at_random_stay_within_their_budgets() -> None:
    assert not list(ours(60))
    assert not list(allowances(60))


@pytest.mark.parametrize(
    ("unit", "query", "epsilon", "delta", "horizon"),
    [
        (pp.user("u"), pp.Sum("s", value="v", range=(0, 600), grid=1), 0.1, 1e-9, 366),
        *(
            (pp.user("u", first_cap=1, caps=6, cap_share=0.5), pp.Count("n"), epsilon, delta, 12)
            for epsilon in (0.1, 0.5, 1, 2, 4)
            for delta in (0, 1e-9, 1e-6)
        ),
    ],
)
def test_specs_that_were_refused_for_a_fault_of_ours(
    unit: Any, query: Any, epsilon: float, delta: float, horizon: int
) -> None:
    plan = pp.Stream("s", unit=unit, budget=pp.Budget(epsilon, delta), horizon=horizon, queries=[query]).plan()
    assert plan.price.epsilon <= epsilon
