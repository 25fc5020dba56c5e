"""What a sum says is near the truth: rounding is finer than its noise, or said; and costs nothing."""

import random
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stream.test_features import quiet, stream

import pianissimo as pp
from pianissimo.errors import ParameterError
from pianissimo.identity import from_plain, to_plain
from pianissimo.stream import Live
from pianissimo.testing import NoNoise
from pianissimo.users import SumHead, statistics, user_table


def test_without_a_grid_many_small_values_are_not_rounded_away() -> None:
    """Released as 32 with the bar [-58, 122] where 49,000 was true, when values were rounded to whole numbers."""
    live = quiet(pp.Sum("s", value="v", range=(0, 10)))
    table = live.tick(pl.DataFrame({"v": [0.49] * 100_000}))["s"]
    assert table["estimate"].item() == 49_000
    assert 48_000 < table["low"].item() < 49_000 < table["high"].item() < 50_000


def test_hours_of_whole_minutes_are_summed_within_their_bar() -> None:
    minutes = np.random.default_rng(3).integers(20, 700, 50_000)
    table = quiet(pp.Sum("s", value="v", range=(0, 24))).tick(pl.DataFrame({"v": minutes / 60}))["s"]
    assert table["estimate"].item() == pytest.approx(minutes.sum() / 60, abs=1)


def test_a_coarse_grid_is_said_to_be_beyond_the_bar() -> None:
    query = pp.Sum("s", value="v", range=(0, 10), grid=1)
    assert quiet(query).tick(pl.DataFrame({"v": [0.49] * 100_000}))["s"]["estimate"].item() == 0
    plan = stream(query).plan()
    assert "by up to 0.5 an event, which no bar covers" in plan.to_dict()["queries"][0]["rounding"]
    assert "which no bar covers" in " ".join(str(plan).split())
    assert "rounding" not in stream(pp.Sum("s", value="v", range=(0, 10))).plan().to_dict()["queries"][0]


@pytest.mark.parametrize("unit", ["event", pp.user("u", max_events_per_user=4)])
def test_noise_does_not_grow_with_a_finer_grid(unit: Any) -> None:
    grids = (10, 1, 0.01, 1e-4, None)
    queries = (pp.Sum("s", value="v", range=(0, 500), grid=grid) for grid in grids)
    errors = [stream(query, unit=unit).plan().queries[0].expected_error.typical for query in queries]
    assert errors == pytest.approx([errors[0]] * len(grids), rel=0.02)


@pytest.mark.parametrize("epsilon", [0.01, 0.001])
def test_where_samplers_have_no_noise_for_so_many_steps_there_are_fewer_and_the_plan_says_so(epsilon: float) -> None:
    """At 0.01 a worse plan was taken, and at 0.001 all were refused: a scale above 4e9."""
    fields: dict[str, Any] = {"horizon": 525_600, "budget": pp.Budget(epsilon, 1e-9)}
    count = stream(pp.Count("n"), **fields).plan().queries[0].expected_error
    plan = stream(pp.Sum("s", value="v", range=(0, 600)), **fields).plan()
    told = plan.to_dict()["queries"][0]
    assert plan.queries[0].expected_error.typical == pytest.approx(600 * count.typical, rel=0.01)
    assert told["grid"] <= 600 / 2**10
    assert ("which no bar covers" in told.get("rounding", "")) == (told["grid"] > 600 / 2**20)
    table = Live(plan, NoNoise()).tick(pl.DataFrame({"v": [599.99, 600.0, 700.0, -5.0, 0.31]}))["s"]
    assert table["estimate"].item() == pytest.approx(1800.3, abs=2.5 * told["grid"])


def test_a_sum_says_that_it_is_of_values_cut_to_their_range() -> None:
    plan = stream(
        pp.Sum("s", value="v", range=(-5, 10)), pp.Sum("all", value="v", range=(0, 1), outside="refuse")
    ).plan()
    cut, whole = plan.to_dict()["queries"]
    assert cut["error_about"].endswith("of values cut to -5 .. 10")
    assert "cut to" not in str(whole)


ends = st.one_of(
    st.integers(-(10**6), 10**6),
    st.decimals(-1000, 1000, places=3).map(float),
    st.fractions(-10, 10, max_denominator=64),
)


@given(low=ends, high=ends)
def test_without_a_grid_there_are_enough_steps_and_both_ends_are_on_them(low: Any, high: Any) -> None:
    if not low < high:
        return
    query = pp.Sum("s", value="v", range=(low, high))
    first, last = query.steps
    assert last - first >= 2**20
    assert max(abs(first), abs(last)) <= 2**40
    assert float(first * query.exact_grid) == float(low)
    assert float(last * query.exact_grid) == float(high)
    head = query.head()
    assert isinstance(head, SumHead)
    assert head.low % head.coarse == head.high % head.coarse == 0


def test_ends_that_no_grid_has_are_refused_with_the_way_out() -> None:
    with pytest.raises(pp.ParameterError, match="give a grid, or ends with fewer digits"):
        pp.Sum("s", value="v", range=(0, 0.1 + 0.2))


def test_a_sum_that_was_stored_without_a_grid_has_one_of_one() -> None:
    stored = {"is": "query-sum/1", "name": "s", "value": "v", "range": {"tuple": [0, 5]}}
    assert from_plain(stored) == pp.Sum("s", value="v", range=(0, 5), grid=1)
    assert from_plain(stored | {"grid": 0.5}).grid == 0.5
    assert from_plain(to_plain(pp.Sum("s", value="v", range=(0, 5)))).grid is None


USERS = pp.user("u", first_cap=4)


def of_users(rows: list[dict[str, Any]], **fields: Any) -> float:
    live = quiet(pp.Sum("s", value="v", range=(-5, 10), **fields), unit=USERS)
    return float(live.tick(rows)["s"]["estimate"].item())


def test_what_users_add_is_rounded_right_on_average() -> None:
    """Each value by a coin: in steps of a tenth, 40,000 of 0.449 are 17,960 within five deviations."""
    rows = [{"u": f"u{place % 20_000}", "v": 0.449} for place in range(40_000)]
    assert of_users(rows) == pytest.approx(17_960, abs=5 * 0.2 * 200)
    assert of_users([row | {"v": -0.449} for row in rows]) == pytest.approx(-17_960, abs=5 * 0.2 * 200)


def test_under_a_fixed_cap_a_sum_of_users_is_as_fine_as_samplers_allow() -> None:
    """With steps of a 64th of the range, coins alone move a sum of ten million values by more than its bar."""
    asked = stream(pp.Sum("s", value="v", range=(0, 600)), unit=pp.user("u", max_events_per_user=1), horizon=366)
    plan = asked.plan()
    mechanism: Any = plan.queries[0].mechanism
    assert mechanism.heads[0].coarse == 1
    table = Live(plan, NoNoise()).tick([{"u": place, "v": 0.4567} for place in range(2000)])["s"]
    assert table["estimate"].item() == pytest.approx(913.4, abs=2000 * 0.0005)
    count = stream(pp.Count("n"), unit=asked.unit, horizon=366).plan().queries[0].expected_error.typical
    assert plan.queries[0].expected_error.typical == pytest.approx(600 * count, rel=0.02)
    large = stream(pp.Sum("s", value="v", range=(0, 600)), unit=pp.user("u", max_events_per_user=10**5), horizon=366)
    coarser: Any = large.plan().queries[0].mechanism
    assert coarser.heads[0].coarse > 1


def test_the_ends_of_a_range_are_not_rounded() -> None:
    for value in (-5, 0, 10, 1e9):
        assert of_users([{"u": place, "v": value} for place in range(900)]) == 900 * min(value, 10)


def moved_by_a_user_without_value() -> float:
    """How far the sum moves where a user comes in who adds nothing."""
    chance = random.Random(5)
    rows = [{"u": f"u{chance.randrange(300)}", "v": chance.random()} for _ in range(900)]
    places = (0, 100, 900)
    return max(abs(of_users([*rows[:at], {"u": "eve", "v": 0}, *rows[at:]]) - of_users(rows)) for at in places)


def test_a_coin_is_of_the_users_own_rows() -> None:
    assert moved_by_a_user_without_value() == 0


def test_a_coin_that_depends_on_others_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_place(names: Any, before: Any) -> Any:
        return user_table.row_coins(np.zeros_like(names), np.arange(len(before), dtype=np.uint64))

    monkeypatch.setattr(statistics, "row_coins", by_place)
    assert moved_by_a_user_without_value() > 0


def test_values_of_a_sum_are_told_in_the_decimals_they_have() -> None:
    table = quiet(pp.Sum("s", value="v", range=(0, 500))).tick(pl.DataFrame({"v": [331.9208] * 100}))["s"]
    assert table["estimate"].item() == 33192.08


@pytest.mark.parametrize("kind", [pp.Histogram, partial(pp.TopK, k=2)], ids=["histogram", "top list"])
def test_a_histogram_by_value_is_a_sum_by_label(kind: Any) -> None:
    """Whoever looks for it where it is not is told where it is."""
    with pytest.raises(ParameterError, match=r"value must be left out of .*; .*Sum\(value=..., range=..., key=...\)"):
        kind("q", key="shop", value="price")
