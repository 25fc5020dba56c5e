"""Top labels of a table by each of the methods: against plain counting, and what each costs."""

from fractions import Fraction
from typing import Any, get_args

import polars as pl
import pytest

import pianissimo as pp
from pianissimo.table.allowance import StepAllowance
from pianissimo.table.top_methods import TopMethod, top_choice
from pianissimo.testing import NoNoise

METHODS = get_args(TopMethod)
ROWS = [(f"m{m}", each) for m in range(4000) for each in ("tea", "rain", "sun")[: 1 + m % 3]] + [("m1", "mine alone")]
CUT = {"laplace": {"max_keys_per_user": 3}}


@pytest.fixture
def asked() -> Any:
    frame = pl.DataFrame(ROWS, schema=["member", "article"], orient="row")
    with pp.Table(frame, user="member", budget=pp.Budget(2, 1e-8)) as table:
        table._noise = NoNoise
        yield table


@pytest.mark.parametrize("method", METHODS)
def test_without_noise_each_has_the_first_labels_and_never_a_lone_one(asked: Any, method: TopMethod) -> None:
    plan = asked.plan.top_k("article", 3, method=method, **CUT.get(method, {}))
    answer = asked.top_k("article", 3, method=method, **CUT.get(method, {}))
    assert answer.labels == ("tea", "rain", "sun")[: len(answer.labels)]
    assert len(answer.labels) >= 2
    assert answer.cost.steps <= plan.at_most.steps
    assert asked.budget.spent.steps == answer.cost.steps
    assert asked.budget.spent.calls == 1
    assert ("estimate" in answer.table.columns) is (method == "laplace")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("k", "most"), [(1, 1), (10, 3), (50, 40)])
def test_its_steps_and_its_call_pay_for_its_loss(method: TopMethod, k: int, most: int) -> None:
    allowance = StepAllowance.of(pp.Budget(2, 1e-8))
    choice = top_choice(method, allowance, k=k, seen=100, max_keys_per_user=most)
    loss = choice.mechanism.loss.as_booked()
    assert loss.rho <= choice.steps * allowance.epsilon**2 / 8
    assert loss.bad <= allowance.delta
    # Where nothing comes back, what is paid is no more than that.
    empty = choice.mechanism.answer({}, NoNoise())
    assert choice.mechanism.cost(empty) <= choice.steps
    assert float(loss.distance) <= float(Fraction(choice.steps + 1, 2**90))


def test_a_plan_says_what_the_threshold_stands_above(asked: Any) -> None:
    ranks = {each: asked.plan.top_k("article", 3, method=each, **CUT.get(each, {})).candidates for each in METHODS}
    assert ranks == {"limited": 1000, "strict": 1000, "optimal": 4, "laplace": 1000, "fixed": 3}
    assert "top_k of article, k=3, candidates=1000, fixed" in str(asked.plan.top_k("article", 3, method="fixed"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "laplace"}, "max_keys_per_user must be given for the method 'laplace'"),
        ({"method": "best"}, "method must be one of limited, strict, optimal, laplace, fixed, got 'best'"),
        ({"method": "optimal", "candidates": 4}, "k must be at most candidates"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_charged(
    asked: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        asked.top_k("article", 3, **fields)
    assert asked.budget.spent.steps == 0
