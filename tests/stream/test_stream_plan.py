"""Plans: within the budget always, told before any data, and the same for the same stream."""

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pianissimo as pp
from pianissimo.counting import UnknownHistogram
from pianissimo.loss.composition import price
from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.queries import Query, top_k
from pianissimo.queries.shared.expected import Share, Variances
from pianissimo.stream import render_plan
from pianissimo.stream.choosing import _plan_splitting, candidates
from pianissimo.stream.stream_plan import distinct_mechanisms

BUDGET = pp.Budget(epsilon=1.0, delta=1e-9)


def pharmacy(**changes: object) -> pp.Stream:
    parameters: dict[str, object] = {
        "budget": BUDGET,
        "horizon": 525_600,
        "queries": [
            pp.Count("purchases"),
            pp.Histogram("drugs", key="drug", max_keys_per_event=5),
            pp.Histogram("regions", key="region", domain=["north", "south"]),
        ],
    }
    return pp.Stream("pharmacy", **{**parameters, **changes})  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    epsilon=st.floats(0.05, 8),
    delta=st.floats(1e-12, 1e-3),
    horizon=st.integers(1, 3000),
    keys=st.integers(1, 30),
    weights=st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)),
)
def test_a_plan_stays_within_its_budget(
    epsilon: float, delta: float, horizon: int, keys: int, weights: tuple[float, float]
) -> None:
    stream = pp.Stream(
        "s",
        budget=pp.Budget(epsilon, delta),
        horizon=horizon,
        queries=[
            pp.Count("count", weight=weights[0]),
            pp.Histogram("labels", key="k", max_keys_per_event=keys, weight=weights[1]),
        ],
    )
    plan = stream.plan()
    again = price([each.mechanism.guarantee.loss for each in plan.queries], Fraction(delta))
    assert (again.epsilon, again.delta) == (plan.price.epsilon, plan.price.delta)
    assert again.epsilon <= epsilon
    assert again.delta <= delta
    assert again.epsilon > 0.93 * epsilon, "the budget is meant to be used"


def test_a_plan_says_what_will_be_done() -> None:
    plan = json.loads(pharmacy().plan().to_json())
    assert plan["unit"] == "event"
    assert plan["promise"]["epsilon"] <= 1.0
    assert [query["name"] for query in plan["queries"]] == ["purchases", "drugs", "regions"]
    for query in plan["queries"]:
        assert query["mechanism"]
        assert query["guarantee"]["rho"] > 0
        assert query["guarantee"]["theorem"]
        assert query["expected_error"]["largest"] >= query["expected_error"]["typical"] > 0
        assert query["alternatives"][0]["expected_error"]["typical"] > query["expected_error"]["typical"]
        assert "times as much" in query["reason"]
    assert plan["queries"][1]["threshold"]["largest"] >= plan["queries"][1]["threshold"]["least"] > 1
    assert plan["queries"][0]["threshold"] is None
    assert sum(query["share_of_budget"] for query in plan["queries"]) == pytest.approx(1)


def test_a_plan_is_printed_in_words_and_explained_by_tables() -> None:
    text, explained = str(pharmacy().plan()), pharmacy().plan().explain()
    for word in ("pharmacy", "525,600 ticks", "purchases", "drugs", "regions"):
        assert word in text
    for word in ("haar", "tree", "neighbors"):
        assert word in explained
        assert word not in text
    assert text == render_plan(pharmacy().plan().to_dict())


def test_equal_streams_have_equal_plans_and_others_do_not() -> None:
    plan = pharmacy().plan()
    assert plan == pharmacy().plan()
    assert plan.digest == pharmacy().plan().digest
    others = [
        pharmacy(horizon=525_601).plan(),
        pharmacy(budget=pp.Budget(1.1, 1e-9)).plan(),
        pharmacy(queries=[pp.Count("purchases")]).plan(),
        pharmacy(
            queries=[pp.Count("purchases"), pp.Histogram("regions", key="region", domain=["north", "west"])]
        ).plan(),
    ]
    assert len({other.digest for other in others} | {plan.digest}) == 5


def test_weights_shift_the_error() -> None:
    def count_error(weight: float) -> float:
        queries = [pp.Count("count", weight=weight), pp.Histogram("drugs", key="drug")]
        return pharmacy(queries=queries).plan().queries[0].expected_error.typical

    assert count_error(4.0) < count_error(1.0) < count_error(0.25)


def test_no_delta_is_set_aside_without_unknown_labels() -> None:
    known = pharmacy(queries=[pp.Count("count")]).plan()
    assert known.queries[0].guarantee.loss.as_booked().bad == 0
    unknown = pharmacy().plan().queries[1]
    assert isinstance(unknown.mechanism, UnknownHistogram)
    assert 0 < unknown.guarantee.loss.as_booked().bad <= Fraction(BUDGET.delta) / 2


def test_the_best_candidate_comes_first() -> None:
    share = Share(rho=Fraction(1, 2), bad=Fraction(1, 10**10))
    for query in (pp.Count("c"), pp.Histogram("h", key="k"), pp.Histogram("r", key="k", domain=["a"])):
        errors = [each.expected_error.typical for each in candidates(query, share, 1440, 0.95)]
        assert errors == sorted(errors)


def test_a_budget_that_no_mechanism_fits_is_refused() -> None:
    with pytest.raises(pp.ParameterError, match="must have a mechanism that fits its budget"):
        pharmacy(budget=pp.Budget(1e-9, 1e-9)).plan()


def test_what_a_plan_never_chooses_is_not_chosen_for_want_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse top list alone would fit, without a tree of answers; its promise is not that of streams."""

    def no_tree(*_: object) -> None:
        raise pp.ParameterError("a tree must be left out, got one")

    monkeypatch.setattr(top_k, "meta_top_list", no_tree)
    domain = [str(number) for number in range(100_000)]
    query = pp.TopK("x", key="x", k=1, domain=domain, max_keys_per_event=None)
    with pytest.raises(pp.ParameterError, match="must have a mechanism that fits its budget"):
        pharmacy(budget=pp.Budget(4e-7, 1e-9), horizon=2**21, queries=[query]).plan()


def test_a_stream_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = pharmacy(horizon=100)
    plan = stream.plan()

    def again(_: pp.Stream) -> None:
        pytest.fail("a stream must be planned once")

    monkeypatch.setattr("pianissimo.stream.stream.make_plan", again)
    assert stream.plan() is plan
    assert stream.start().plan is plan


@pytest.mark.parametrize("per", [None, 7])
@pytest.mark.parametrize("unit", ["event", pp.user("u", max_events_per_user=3)])
def test_a_noise_plan_is_looked_at_once_however_many_queries_may_take_it(
    unit: object, per: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: dict[object, int] = {}
    looked_at = Variances.of

    def counted(ticks: object, profile: object) -> Variances:
        found: Variances = looked_at(ticks, profile)  # type: ignore[arg-type]
        looks[found] = looks.get(found, 0) + 1
        return found

    monkeypatch.setattr("pianissimo.queries.shared.expected.Variances.of", counted)
    # A horizon that no other test has: what was looked at in this process is not looked at again.
    queries = [pp.Count(f"c{number}", where=f"x > {number}", per=per) for number in range(8)]
    plan = pharmacy(horizon=173, unit=unit, queries=queries).plan()
    assert len({each.expected_error for each in plan.queries}) == 1
    assert looks
    assert max(looks.values()) == 1


SEARCHING = [
    pp.Count("n"),
    pp.Distinct("d", key="a"),
    pp.Histogram("h", key="a"),
    pp.Histogram("u", key="b", count="users"),
    pp.TopK("t", key="c", k=3),
]


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize("searches", range(1, 6))
@pytest.mark.parametrize("within", [None, 24])
def test_several_searches_for_caps_leave_nothing_over(epsilon: float, searches: int, within: int | None) -> None:
    """Their epsilons as squares beside rho, where that is less than their sum: 3 to 10 % of epsilon was left before."""
    queries, unit = SEARCHING[:searches], pp.user("who", within=within)
    budget, horizon = pp.Budget(epsilon, 1e-6), None if within else 100
    plan = pp.Stream("s", unit=unit, budget=budget, horizon=horizon, queries=queries).plan()
    assert 0.995 * epsilon <= plan.price.epsilon <= epsilon
    losses = {id(each.mechanism): each.guarantee.loss for each in plan.queries}.values()
    assert len(losses) == searches
    # From nothing but the losses: what is spent as squares, or what is added beside, is within the budget.
    pure = [getattr(loss, "pure", getattr(loss, "epsilon", Fraction(0))) for loss in losses]
    rho, bad = (sum((getattr(loss, name, Fraction(0)) for loss in losses), Fraction(0)) for name in ("rho", "bad"))
    left = Fraction(budget.delta) - bad - Fraction(1, 10**12)
    squares = sum((each**2 for each in pure), Fraction(0))
    as_squares = epsilon_from_rho(rho + squares / 2, left)
    beside = epsilon_from_rho(rho, left) + float(sum(pure))
    assert min(as_squares, beside) <= epsilon * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
@pytest.mark.parametrize(
    "queries",
    [
        [pp.Count("n"), pp.Alarm("a", where="x > 1")],
        [pp.Count("n"), pp.Histogram("h", key="k"), pp.Alarm("a", where="x > 1"), pp.Trending("t", key="k")],
        [*(pp.Count(f"n{least}", where=f"x > {least}") for least in range(5)), pp.Alarm("a", where="x > 1")],
    ],
    ids=["two", "unlisted labels", "six"],
)
def test_alarms_beside_counts_of_users_leave_little_over(queries: list[Query], epsilon: float) -> None:
    """Their parts of epsilon and delta are split apart, and cost less together."""
    stream = pp.Stream("s", unit=pp.user("u"), budget=pp.Budget(epsilon, 1e-9), horizon=504, queries=queries)
    plan, apart = stream.plan(), _plan_splitting(stream, stream.budget)
    assert apart.price.epsilon < 0.9 * epsilon
    assert 0.95 * epsilon <= plan.price.epsilon <= epsilon
    losses = [mechanism.guarantee.loss for mechanism in distinct_mechanisms(plan.queries)]
    assert price(losses, Fraction(stream.budget.delta)) == plan.price
    assert plan.budget == stream.budget
    for query, before in zip(plan.queries, apart.queries, strict=True):
        assert query.expected_error.typical < 0.9 * before.expected_error.typical


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-5, 1e-3), (1e-4, 1e-2), (1e-2, 0.5)])
@pytest.mark.parametrize("beside", [pp.Alarm("a", where="x > 1"), pp.HeavyHitters("a", key="k", k=16)])
def test_a_plan_whose_parts_cost_no_epsilon_is_looked_for_again(beside: Query, epsilon: float, delta: float) -> None:
    """At a large delta what was split apart may cost no epsilon at all."""
    unit = pp.user("u", max_events_per_user=4)
    stream = pp.Stream("s", unit=unit, budget=pp.Budget(epsilon, delta), horizon=24, queries=[pp.Count("n"), beside])
    apart = _plan_splitting(stream, stream.budget)
    assert apart.price.epsilon == 0
    with pytest.warns(pp.BudgetWarning):
        plan = stream.plan()
    assert plan.price.epsilon <= epsilon
    assert plan.price.delta <= delta
    for query, before in zip(plan.queries, apart.queries, strict=True):
        assert query.expected_error.typical <= before.expected_error.typical
