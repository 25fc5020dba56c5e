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
        (pp.user("u", first_cap=1, caps=6, cap_share=0.5), pp.Count("n"), 1, 1e-9, 12),
        # What drawn noise is off its law by was weighed by the epsilon beside that of the cap's tests alone.
        (pp.user("u"), pp.Histogram("h", key="k"), 28, 1e-6, 6),
        (pp.user("u", cap_share=0.5), pp.Count("n"), 28, 1e-6, 6),
        # Where the scale of the cap's tests is a short binary fraction, no rounding of it leaves room.
        (pp.user("u", caps=2, cap_share=0.25), pp.Count("n"), 0.25, 1e-5, 13),
        (pp.user("u", caps=2, cap_share=0.5), pp.Count("n"), 0.5, 1e-6, 5),
        (pp.user("u", caps=2, cap_share=0.5), pp.Count("n"), 2, 1e-5, 13),
    ],
)
@pytest.mark.filterwarnings("ignore::pianissimo.errors.BudgetWarning")
def test_specs_that_were_refused_for_a_fault_of_ours(
    unit: Any, query: Any, epsilon: float, delta: float, horizon: int
) -> None:
    plan = pp.Stream("s", unit=unit, budget=pp.Budget(epsilon, delta), horizon=horizon, queries=[query]).plan()
    assert plan.price.epsilon <= epsilon


@pytest.mark.parametrize("unit", ["event", pp.user("u", first_cap=1, caps=6)])
def test_an_epsilon_too_large_for_drawn_noise_is_told(unit: Any) -> None:
    # Without a delta e^epsilon times the distance of all draws is the plan's delta: 2^-110 a draw, times e^60.
    with pytest.raises(pp.ParameterError, match=r"so small.*near enough to its law.*got epsilon 60 and delta 0"):
        pp.Stream("s", unit=unit, budget=pp.Budget(60, 0), horizon=12, queries=[pp.Distinct("d", key="k")]).plan()
    assert (
        pp.Stream("s", unit=unit, budget=pp.Budget(20, 0), horizon=12, queries=[pp.Count("n")]).plan().price.delta
        < 1e-12
    )
