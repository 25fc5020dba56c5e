"""Sums of users under a cap of what each adds: against plain arithmetic, and what is told of it."""

import math
import os
from collections import defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pianissimo as pp
from pianissimo.audit.replayed import replay_report
from pianissimo.audit.report import AuditVerdict
from pianissimo.audit.user_attacks import sum_attempts
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


def following(most: Any = None, unit: Any = None, *others: Any) -> Any:
    return stream(pp.Sum("revenue", value="price", range=(0, 500), max_per_user=most), *others, unit=unit).plan()


def test_the_plan_weighs_both_kinds_of_cap() -> None:
    alone = following()
    first = alone.to_dict()["queries"][0]
    assert first["mechanism"].startswith("UserSum, a cap that follows the stream, from 500, over ")
    assert first["error_about"].endswith(", of price up to the cap of 500 a user")
    assert [each["cap"] for each in first["caps"]][:4] == [500, 2000, 8000, 16000]
    assert "what the cap cuts off is missing" in first["words"][-1]
    assert "With a cap of events, from 16 a user on, it would be within" in first["words"][-1]
    # Beside a query that shares the cap of events it would take half of its search: there it is asked for.
    beside = following(None, None, pp.Count("n")).to_dict()["queries"][0]
    assert "of events up to the cap of 16 a user" in beside["error_about"]
    assert 'With a cap of price (max_per_user = "auto"), from 500 a user on, it would be' in beside["words"][-1]
    errors = [plan.queries[0].expected_error.typical for plan in (alone, following("events"))]
    assert errors[1] == pytest.approx(16 * errors[0], rel=0.06)
    assert "auto" not in str(following("events"))
    # Queries that have a cap by themselves share nothing.
    assert following(None, None, pp.Users("all")).queries[0].query.max_per_user == "auto"
    for unit in (pp.user("who", max_events_per_user=4), pp.user("who", weight="sign")):
        assert following(None, unit).queries[0].query.max_per_user is None


@given(values=st.lists(st.integers(0, 500), max_size=12), events=st.integers(1, 6))
def test_at_equal_noise_it_cuts_off_no_more_than_a_cap_of_events(values: list[int], events: int) -> None:
    assert min(sum(values), events * 500) >= sum(values[:events])


def test_a_cap_that_follows_is_raised_and_lets_in_what_it_left_out() -> None:
    plan = following()
    rule, coarse = plan.queries[0].mechanism.cap, plan.queries[0].mechanism.coarse
    assert rule.caps[0] * coarse * plan.queries[0].query.exact_grid == 500
    live, users = Live(plan, NoNoise()), rule.discount(1, 24) + 5
    # What lies between coarse steps is rounded: 300 and 500 are whole numbers of them.
    frame = pl.DataFrame({"who": [f"user {each}" for each in range(users)], "price": [300.0] * users})
    first, second = (live.tick(frame)["revenue"] for _ in range(2))
    assert first.rows() == [(300 * users, first["low"].item(), None, 500)]
    assert second["estimate"].item() == 600 * users, "raised in the same tick"
    assert second["cap"].to_list() == [2000.0]
    # Windows end where the cap is raised: what it let in is in no window.
    assert live.between(1, 2)["revenue"]["estimate"].item() == 200 * users
    # The number of users above is public, and so is how much one of them adds at most.
    known = Live(following(None, pp.user("who", most_events_per_user=9)), NoNoise()).tick(frame)["revenue"]
    most = rule.users_above(1, 24) * (9 * 500 - 500)
    assert known["high"].item() - known["estimate"].item() == pytest.approx(most, rel=0.1)


def test_coins_are_right_on_average_and_however_rows_are_split() -> None:
    mechanism = UserSum(cap=FixedCap(units=10**6), plan=TreePlan, horizon=8, rho=Fraction(1, 2), coarse=10, coins=True)
    values = [each % 7 for each in range(5000)]
    rows = pl.DataFrame({"user": [each % 1000 for each in range(5000)], "value": values})
    one, other = (Run(mechanism, NoNoise()) for _ in range(2))
    one.update(rows)
    for part in (rows[::2], rows[1::2]):
        other.update(part)
    estimate = one.release().value.estimate
    assert other.release().value.estimate == estimate
    # Each coin has a variance of at most 1/4; those of the same user and value are one.
    assert abs(estimate - sum(values) / 10) <= 5 * math.sqrt(5000 / 4)


@pytest.mark.usefixtures("repeated")
def test_bars_cover_what_a_cap_that_follows_lets_through() -> None:
    plan = following()
    random, inside, runs = np.random.default_rng(5), 0, max(40, RUNS // 3)
    for seed in range(runs):
        live, given_by = Live(plan, SeededNoise(seed)), np.zeros(2000)
        for _ in range(3):
            prices = random.integers(0, 400, 2000)
            given_by += prices
            table = live.tick(pl.DataFrame({"who": np.arange(2000), "price": prices.astype(float)}))["revenue"]
        truth = np.minimum(given_by, table["cap"].item()).sum()
        inside += abs(table["estimate"].item() - truth) <= table["estimate"].item() - table["low"].item()
    assert inside >= 0.95 * runs - 3 * math.sqrt(0.05 * 0.95 * runs)


def test_stored_totals_tell_windows_and_a_reopened_stream_goes_on(tmp_path: Path) -> None:
    asked = stream(pp.Sum("revenue", value="price", range=(0, 0.5)), horizon=8)
    tables = []
    for tick in range(1, 4):
        with asked.open(tmp_path / "state") as live:
            tables.append(live.tick(pl.DataFrame({"who": list(range(3000)), "price": [0.25] * 3000}))["revenue"])
            window = live.between(0, tick)["revenue"]
    assert tables[0]["cap"].item() == 0.5
    assert tables[-1]["cap"].item() == 2
    assert window["cap"].item() == 0.5
    seen = pp.read_releases(tmp_path / "state", window=1)["revenue"].filter(tick=2)
    assert seen["estimate"].item() == pytest.approx(tables[1]["estimate"].item() - tables[0]["estimate"].item())
    assert seen["cap"].item() == 0.5


def test_an_audit_finds_nothing_against_a_cap_that_follows() -> None:
    plan = stream(pp.Sum("s", value="price", range=(0, 4), grid=1), horizon=4).plan()
    assert replay_report(plan, SeededNoise(3), pairs=2).verdict is AuditVerdict.SOUND
    attempts = sum_attempts(plan.queries[0].mechanism)
    assert attempts


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
        (
            lambda: pp.Sum("s", value="v", range=(0, 5), max_per_user=cast("Any", "all")),
            "must be a number, 'auto' or 'events'",
        ),
        (lambda: pp.Sum("s", value="v", range=(-1, 5), max_per_user="auto"), "must be left out for values below 0"),
        (
            lambda: following("auto", pp.user("who", max_events_per_user=3)),
            "must be a number where the cap of events is fixed",
        ),
        (lambda: stream(pp.Sum("s", value="v", range=(0, 9), grid=1e-11)).plan(), "grid"),
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


def test_it_follows_from_period_to_period() -> None:
    live = Live(following(None, pp.user("who", within=2)), NoNoise())
    frame = pl.DataFrame({"who": list(range(400)), "price": [260.0] * 400})
    tables = [live.tick(frame)["revenue"] for _ in range(3)]
    assert [each["cap"].item() for each in tables[:2]] == [500, 500]
    assert tables[1]["estimate"].item() == 400 * 500
    # The least power of two of coarse steps that all but a few were below; it may fall again.
    assert 520 <= tables[2]["cap"].item() <= 1040
    assert tables[2]["estimate"].item() == 400 * 260
    for _ in range(4):
        last = live.tick(pl.DataFrame({"who": [1], "price": [3.0]}))["revenue"]
    assert last["cap"].item() < 8


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
    text = (tmp_path / "shop.toml").read_text()
    (tmp_path / "shop.toml").write_text(text.replace("max_per_user = 2000", 'max_per_user = "auto"'))
    auto = pp.Sum("revenue", value="price", range=(0, 500), max_per_user="auto")
    assert pp.load(tmp_path / "shop.toml").plan() == stream(auto, tick="1h").plan()
