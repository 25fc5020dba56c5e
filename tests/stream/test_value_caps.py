"""Sums of users under a cap of what each adds: against plain arithmetic, and what is told of it."""

import math
import os
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pianissimo as pp
from pianissimo.errors import ParameterError
from pianissimo.mechanism import Run
from pianissimo.noise import TreePlan
from pianissimo.stream import Live
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import FixedCap, UserSum

REVENUE = pp.Sum("revenue", value="price", range=(0, 500), max_per_user=2000)
RUNS = 2000 if os.environ.get("PIANISSIMO_SOAK") else 120
SCHEMA = {"who": pl.String, "price": pl.Float64}


def stream(*queries: Any, unit: Any = None, **changes: Any) -> pp.Stream:
    given = {"budget": pp.Budget(1.0, 1e-9), "horizon": 24, "queries": queries, **changes}
    return pp.Stream("shop", unit=unit or pp.user("who"), **given)


@pytest.fixture(scope="module")
def plan() -> Any:
    return stream(REVENUE, pp.Count("n")).plan()


rows = st.lists(st.tuples(st.sampled_from(["ann", "bob"]), st.integers(0, 600)), max_size=8)


@given(ticks=st.lists(rows, min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_each_user_adds_at_most_the_cap(plan: Any, ticks: list[list[tuple[str, int]]]) -> None:
    live = Live(plan, NoNoise())
    given_by: defaultdict[str, int] = defaultdict(int)
    for events in ticks:
        release = live.tick(pl.DataFrame(events, schema=SCHEMA, orient="row"))
        for who, price in events:
            given_by[who] += min(price, 500)
        assert release["revenue"]["estimate"].to_list() == [sum(min(each, 2000) for each in given_by.values())]
        assert release["revenue"]["cap"].to_list() == [2000]
        # Something may be cut off: the upper end is open.
        assert release["revenue"]["high"].to_list() == [None]


def test_a_plan_says_what_the_cap_is_of(plan: Any) -> None:
    told = plan.to_dict()["queries"][0]
    assert told["mechanism"].startswith("UserSum, a fixed cap of 2000")
    assert told["error_about"].endswith(", of at most 2,000 of price a user")
    assert told["max_per_user"] == 2000
    assert [each["cap"] for each in told["caps"]] == [2000]
    assert "bars are open on that side" in str(plan)


def test_bars_are_closed_where_nothing_can_be_cut_off() -> None:
    for most, high in ((4, False), (5, True)):
        live = Live(stream(REVENUE, unit=pp.user("who", most_events_per_user=most)).plan(), NoNoise())
        table = live.tick(pl.DataFrame({"who": ["ann"], "price": [3.0]}))["revenue"]
        assert (table["high"].to_list() == [None]) is high


def test_noise_is_in_proportion_to_the_cap() -> None:
    small, large = (stream(pp.Sum("s", value="price", range=(0, 500), max_per_user=cap)).plan() for cap in (2000, 8000))
    events = stream(pp.Sum("s", value="price", range=(0, 500)), unit=pp.user("who", max_events_per_user=16)).plan()
    errors = [each.queries[0].expected_error.typical for each in (small, large, events)]
    assert errors[1] == pytest.approx(4 * errors[0], rel=1e-3)
    # What so many events may add costs as much, but for the number of users above that cap.
    assert errors[1] == pytest.approx(errors[2], rel=0.06)


def test_bars_cover_what_the_cap_lets_through() -> None:
    mechanism = UserSum(cap=FixedCap(units=30), plan=TreePlan, horizon=8, rho=Fraction(1, 2), coarse=10)
    inside = 0
    for seed in range(RUNS):
        run = Run(mechanism, SeededNoise(seed))
        run.update(pl.DataFrame({"user": ["ann", "ann", "bob"], "value": [250, 104, 96]}))
        value = run.release().value
        low, high = value.bars(0.95)
        inside += low <= 40 <= high
    print(f"inside their bars of 95 %, of {RUNS} runs: {inside / RUNS:.3f}")
    assert inside >= 0.95 * RUNS - 3 * math.sqrt(0.05 * 0.95 * RUNS)


def test_values_are_rounded_each_by_itself() -> None:
    run = Run(UserSum(cap=FixedCap(units=30), plan=TreePlan, horizon=8, rho=Fraction(1, 2), coarse=10), NoNoise())
    run.update(pl.DataFrame({"user": ["ann", "bob", "bob"], "value": [2**63 - 1, 14, 15]}))
    assert run.release().value.estimate == 30 + 1 + 2
    with pytest.raises(ParameterError, match="coarse"):
        UserSum(cap=FixedCap(units=30), plan=TreePlan, horizon=8, rho=Fraction(1, 2), coarse=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pp.Sum("s", value="v", range=(-1, 5), max_per_user=3), "must be left out for values below 0"),
        (lambda: pp.Sum("s", value="v", range=(0, 5), key="k", max_per_user=3), "must be left out for values below 0"),
        (lambda: pp.Sum("s", value="v", range=(0, 5), max_per_user=0), "max_per_user must be a whole number"),
        (lambda: pp.Sum("s", value="v", range=(0, 9), grid=3, max_per_user=4), "must be a multiple of the grid"),
        (lambda: stream(REVENUE, unit="event").plan(), "must be left out where single events are hidden"),
        (
            lambda: stream(REVENUE, unit=pp.user("who", weight="sign")).plan(),
            "must be left out where events are taken back",
        ),
    ],
)
def test_what_such_a_cap_cannot_be_of_is_refused(make: Any, message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        make()


@pytest.mark.parametrize("reset", [False, True])
def test_it_holds_in_each_period(reset: bool) -> None:
    unit = pp.user("who", within=2, reset=reset)
    live = Live(stream(REVENUE, unit=unit).plan(), NoNoise())
    frame = pl.DataFrame({"who": ["ann"] * 3, "price": [500.0] * 3})
    sums = [live.tick(frame)["revenue"]["estimate"].item() for _ in range(4)]
    assert sums == ([1500, 2000, 1500, 2000] if reset else [1500, 2000, 3500, 4000])


def test_a_file_says_it_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(
        """
        [stream]
        name = "shop"
        tick = "1h"
        horizon = 24
        epsilon = 1.0
        delta = 1e-9
        unit = { user = "who" }
        [queries.revenue]
        kind = "sum"
        value = "price"
        range = [0, 500]
        max_per_user = 2000
        """
    )
    assert pp.load(tmp_path / "shop.toml").plan() == stream(REVENUE, tick="1h").plan()
