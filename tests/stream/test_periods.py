"""A user within a period: which ticks are one, what is told of many of them, and streams that begin anew with each."""

import json
import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.shared_checks import resumed, stored

import pianissimo as pp
from pianissimo.budget import Budget
from pianissimo.errors import SpecError
from pianissimo.identity import from_plain, to_plain
from pianissimo.loss.composition import price
from pianissimo.loss.losses import Booked
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, HaarSkipPlan
from pianissimo.stream.calendar import CalendarPeriods, TickCalendar
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.many_periods import TOLD_PERIODS, bad_of_periods, of_many_periods, running_ratio, times
from pianissimo.stream.spec import load_spec
from pianissimo.testing import NoNoise
from pianissimo.unit import EvenPeriods, User
from pianissimo.users import EachPeriod, FixedCap, OctaveCap, PeriodCap
from pianissimo.users.user_labels import UserLabels

LIMIT = pp.Budget(1, 1e-9)
HALF = Fraction(5, 10**10)


def asked(*queries: Any, horizon: Any = None, unit: dict[str, Any] | None = None, **fields: Any) -> pp.Stream:
    hidden = pp.user("who", **({"within": "1d"} | (unit or {})))
    return pp.Stream("s", budget=LIMIT, horizon=horizon, tick="1h", unit=hidden, queries=queries, **fields)


def visits(number: int) -> list[dict[str, Any]]:
    return [{"who": who} for who in range(number)]


def quiet(stream: pp.Stream) -> Any:
    plan = stream.plan()
    core = LiveCore(plan, lambda every: NoNoise())

    def tick(number: int, batch: list[dict[str, Any]]) -> dict[str, pl.DataFrame]:
        core.update(core.inputs(batch, number, drop_bad_rows=False))
        return core.release(number)

    return tick


# Which ticks are one period.

SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)


def lengths(periods: CalendarPeriods, ticks: int) -> list[int]:
    """Of all whole periods, after checks that each tick lies in one and that they follow each other."""
    found: list[int] = []
    tick = 1
    while tick <= ticks:
        first, last = periods.span(tick)
        assert all(periods.span(each) == (first, last) for each in range(max(1, first), last + 1))
        assert first <= tick <= last
        assert not found or first == tick
        found.append(last - first + 1)
        tick = last + 1
    return found


@pytest.mark.parametrize("starts", ["00:00", "02:30", "02:00", "03:00", "06:00"])
@pytest.mark.parametrize(("around", "hours"), [(SPRING, 23), (AUTUMN, 25)])
def test_days_on_which_clocks_change_have_23_or_25_hours(around: datetime, hours: int, starts: str) -> None:
    calendar = TickCalendar(around - timedelta(days=4), "1h", "Europe/Berlin")
    periods = CalendarPeriods.of(calendar, "1d", starts, horizon=240)
    found = lengths(periods, 240)
    assert sorted(found) == sorted([hours, *[24] * (len(found) - 1)])
    assert periods.longest == max(found)


def test_without_an_end_the_longest_day_is_known() -> None:
    zone = TickCalendar("2026-01-01", "1h", "Europe/Berlin")
    assert CalendarPeriods.of(zone, "1d", "06:00", None).longest == 25
    assert CalendarPeriods.of(TickCalendar("2026-01-01", "1h"), "1d", "06:00", None).longest == 24
    assert CalendarPeriods.of(zone, "1w", "06:00", None).longest == 169
    assert CalendarPeriods.of(TickCalendar("2026-01-01", "1d"), "1mo", "00:00", None).longest == 31


def test_weeks_begin_on_mondays_and_months_on_their_first_day() -> None:
    calendar = TickCalendar("2026-01-14", "1d")
    weeks = CalendarPeriods.of(calendar, "1w", "00:00", 100)
    assert [calendar.start(weeks.span(tick)[0]).weekday() for tick in (1, 9, 30)] == [0, 0, 0]
    months = CalendarPeriods.of(calendar, "3mo", "00:00", 400)
    begins = [calendar.start(months.span(tick)[0]) for tick in (1, 90, 180)]
    assert [(begin.month, begin.day) for begin in begins] == [(1, 1), (4, 1), (7, 1)]


def test_a_period_longer_than_was_known_is_cut_in_two() -> None:
    """As where a later calendar has a day of 25 hours: plans and thresholds are of 24."""
    calendar = TickCalendar("2026-10-25", "1h", "Europe/Berlin")
    cut = CalendarPeriods(calendar, timedelta(days=1), "00:00", 24)
    assert [cut.span(tick) for tick in (1, 24, 25, 26)] == [(1, 24), (1, 24), (25, 25), (26, 49)]


def test_even_periods_may_begin_with_any_tick() -> None:
    assert [EvenPeriods(3, 2).span(tick) for tick in (1, 2, 4, 5)] == [(-1, 1), (2, 4), (2, 4), (5, 7)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"starts": "25:00"}, "starts must be a time of day such as '06:00', or a tick"),
        ({"starts": "06:00", "within": "6h"}, "within must be whole days, weeks or months"),
        ({"starts": "06:00", "within": 24}, "within must be whole days, weeks or months"),
        ({"starts": "06:00", "within": None}, "starts must be left out without within"),
        ({"starts": 0}, "starts must be a whole number"),
        ({"starts": 3, "reset": False, "max_events_per_user": 3}, "starts must be left out where totals run on"),
        ({"reset": None}, "reset must be True or False"),
        ({"reset": False}, "max_events_per_user must be given where totals run on"),
    ],
)
def test_what_cannot_be_a_period_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        asked(pp.Count("n"), unit=fields)


def test_a_time_of_day_needs_an_origin_and_other_units_a_horizon() -> None:
    with pytest.raises(pp.ParameterError, match="origin and tick must be given where periods start"):
        asked(pp.Count("n"), unit={"starts": "06:00"}).plan()
    for unit in ("event", pp.user("who"), pp.user("who", within=3, max_events_per_user=2, reset=False)):
        with pytest.raises(pp.ParameterError, match="horizon must be given"):
            pp.Stream("s", budget=LIMIT, unit=unit, queries=[pp.Count("n")])
    free = pp.Stream("s", budget=LIMIT, unit=pp.user("who", within=3), queries=[pp.Count("n")])
    assert free.horizon is None


# What was stored before.


def test_a_stored_user_of_a_period_goes_on_with_running_totals() -> None:
    old = {"is": "user-unit/1", "column": "who", "max_events_per_user": 3, "within": 2}
    assert from_plain(old) == User("who", max_events_per_user=3, within=2, reset=False)
    assert from_plain({"is": "user-unit/1", "column": "who"}) == User("who")
    new = User("who", within=2)
    assert from_plain(to_plain(new)) == new
    assert new.reset


# Who comes in many periods.


def test_losses_of_many_days_meet_the_vectors() -> None:
    rho = Budget(1, HALF).rho()
    told = []
    for days in TOLD_PERIODS:
        found = price(times(Booked(rho=rho, bad=HALF), days), HALF * (1 + days))
        told.append(round(found.epsilon + 0.005, 2))
        assert found.delta == pytest.approx(5e-10 * (1 + days))
    assert told == [1.44, 2.79, 6.09, 11.94, 25.53]


def test_running_totals_meet_the_vectors() -> None:
    """The card's figure for two days is of blocks that begin with a period, the others of blocks anywhere."""
    rho = Budget(1, HALF).rho()
    plan = HaarPlan.calibrated(horizon=8760, rho=rho)
    aligned = [float(running_ratio(plan, 24, days)) for days in (2, 7, 30, 100)]
    anywhere = [float(running_ratio(plan, 24, days, is_aligned=False)) for days in (2, 7, 30, 100)]
    assert aligned[0] == pytest.approx(3.35, abs=0.005)
    assert anywhere[1:] == pytest.approx([30.75, 370.9, 2882.9], rel=5e-4)
    assert all(one <= other <= days**2 for one, other, days in zip(aligned, anywhere, (2, 7, 30, 100), strict=True))
    epsilons = [price([Booked(rho=Fraction(ratio) * rho)], HALF).epsilon for ratio in (aligned[0], *anywhere[1:])]
    assert epsilons == pytest.approx([1.89, 6.18, 25.79, 103.1], rel=5e-3)


@pytest.mark.parametrize("ticks", [1, 2, 3])
def test_the_ratio_of_running_totals_is_that_of_the_worst_user(ticks: int) -> None:
    """Of all ways to put one unit in each of some periods of eight ticks, by the plan's own columns."""
    plan = HaarPlan.calibrated(horizon=8, rho=1.0)
    periods = -(-8 // ticks)

    def cost(chosen: list[int]) -> float:
        nodes: dict[tuple[int, int], int] = {}
        for tick in chosen:
            for term in plan.influence(tick):
                nodes[term.level, term.node] = nodes.get((term.level, term.node), 0) + term.weight
        return sum(float(number**2 / plan.noises[level].variance) for (level, _), number in nodes.items())

    def ways(period: int, chosen: list[int]) -> list[list[int]]:
        if period == periods:
            return [chosen]
        own = range(period * ticks + 1, min(8, (period + 1) * ticks) + 1)
        return [way for tick in (None, *own) for way in ways(period + 1, [*chosen, *([] if tick is None else [tick])])]

    whole = ways(0, [])
    for count in range(1, periods + 1):
        worst = max(cost(way) for way in whole if len(way) <= count) / cost([1])
        assert worst <= float(running_ratio(plan, ticks, count)) <= count**2 * (1 + 1e-8)
        assert ticks > 1 or worst == pytest.approx(float(running_ratio(plan, ticks, count)))


def test_unknown_labels_of_running_totals_meet_the_vectors() -> None:
    """How many times the chance of one period: 1.9, 6.7, 28.9, 2464 at 2, 7, 30, 100 days."""
    rho = Budget(1, HALF).rho()
    labels = UserLabels(cap=FixedCap(units=16), per_label=1, plan=HaarSkipPlan, horizon=8760, rho=rho, delta=HALF)
    plan, rule = labels.counters[0].plan(1, 16, 0), labels.appearance
    assert plan is not None
    assert rule is not None
    variances = plan.variance_profile()
    thresholds = np.array([math.ceil(1.5 + rule.spread(Fraction(variance), 16, 1)) for variance in variances.tolist()])
    given: dict[str, Any] = {"units": 16, "most_per_label": 1}
    found = [bad_of_periods(thresholds, variances, periods=days, **given) / 5e-10 for days in (2, 7, 30, 100)]
    assert found == pytest.approx([1.9, 6.7, 28.9, 2464], rel=0.02)
    # The largest of all n, one by one.
    for days, most in ((30, 1), (100, 1), (7, 16)):
        numbers = np.arange(1, days * most + 1)
        apart = np.maximum(0, thresholds[::73, None] - 0.5 - numbers)
        each = days * 16 / numbers * np.exp(-(apart**2) / (2 * variances[::73, None]))
        few = bad_of_periods(thresholds[::73], variances[::73], units=16, most_per_label=most, periods=days)
        assert few == pytest.approx(float(each.max(axis=1).sum()))
    # Also where she reaches the thresholds with what she has, and where the noise is nearly as large as they are.
    low, spread, numbers = (
        np.array([3.0, 5.0, 9.0, 28.0, 40.0]),
        np.array([4.0, 4.0, 4.0, 100.0, 200.0]),
        np.arange(1, 61),
    )
    apart = np.maximum(0, low[:, None] - 0.5 - numbers)
    each = 30 * 2 / numbers * np.exp(-(apart**2) / (2 * spread[:, None]))
    found = [bad_of_periods(low, spread, units=2, most_per_label=2, periods=30)]
    assert found == pytest.approx([float(each.max(axis=1).sum())], rel=1e-12)


def test_bad_mass_of_running_labels_is_told_by_the_formula() -> None:
    rho = Budget(1, HALF).rho()
    labels = UserLabels(
        cap=PeriodCap(units=16, ticks=24), per_label=1, plan=HaarSkipPlan, horizon=8760, rho=rho, delta=HALF
    )
    told = of_many_periods([labels], 2 * HALF, 365)
    assert [each["delta"] / 5e-10 - 1 for each in told[:2]] == pytest.approx([1.9, 6.7], rel=0.02)
    # At epsilon 26 the distance of 2^32 labels' noise from its law is more than that, and is told.
    assert told[2]["delta"] / 5e-10 - 1 > 28.9


def test_a_plan_tells_what_many_periods_cost() -> None:
    plan = asked(pp.Count("n"), unit={"max_events_per_user": 4}).plan()
    told = json.loads(plan.to_json())
    assert (told["period"], told["reset"], told["unit"]) == (24, True, "user and period")
    assert [each["periods"] for each in told["many_periods"]] == list(TOLD_PERIODS)
    words = " ".join(str(plan).split())
    assert "is hidden: in 2 periods with epsilon 1.44 and delta " in words
    for each, epsilon in zip(told["many_periods"][1:], ("2.79", "6.12", "12.05", "25.81"), strict=True):
        _, _, after = words.partition(f"; in {each['periods']} with epsilon {epsilon} and delta ")
        shown = float(after.split(";")[0].split(". ")[0])
        assert each["delta"] <= shown <= 1.11 * each["delta"]  # rounded up, to two digits
    epsilons = [plan.price.epsilon, *(each["epsilon"] for each in told["many_periods"])]
    assert all(one < other for one, other in pairwise(epsilons))
    running = asked(pp.Count("n"), horizon="30d", unit={"max_events_per_user": 4, "reset": False}).plan()
    assert [each["periods"] for each in running.many_periods] == [2, 7, 30]
    assert all(one["epsilon"] > other for one, other in zip(running.many_periods, epsilons[1:], strict=False))
    assert "begin anew" not in str(running)
    pure = pp.Stream("s", budget=pp.Budget(1, 0), unit=pp.user("who", within=2), queries=[pp.Users("n")]).plan()
    assert [round(each["epsilon"], 6) for each in pure.many_periods[:2]] == [2, 7]


def test_laplace_noise_of_running_totals_is_shared_by_all_periods_and_not_composed() -> None:
    """Mutant: one pure loss for each period. A node that all periods move by one moves by their number."""
    stream = pp.Stream(
        "s",
        budget=pp.Budget(0.1, 1e-9),
        horizon=400,
        unit=pp.user("who", max_events_per_user=1, within=1, reset=False),
        queries=[pp.Count("n")],
    )
    plan = stream.plan()
    mechanism = plan.queries[0].mechanism
    assert mechanism.epsilon is not None
    noise = mechanism.counters[0].plan(1, 1, 0)
    periods, moved = 365, Counter[tuple[int, int]]()
    for tick in range(1, periods + 1):
        for term in noise.influence(tick):
            moved[term.level, term.node] += term.weight
    shifts = np.array(
        [abs(weight) / math.sqrt(noise.noises[level].variance / 2) for (level, _), weight in moved.items()]
    )
    # The mean of the loss: above an epsilon at any small delta.
    assert plan.many_periods[-1]["epsilon"] > float((shifts - 1 + np.exp(-shifts)).sum()) > 13
    assert [each["epsilon"] for each in plan.many_periods] == pytest.approx([each / 10 for each in TOLD_PERIODS])
    independent = price(times(plan.queries[0].guarantee.loss, periods), 1e-9).epsilon
    assert independent < 12.7


def test_a_plan_says_from_how_many_periods_on_nothing_is_promised() -> None:
    unit = pp.user("who", within=2, max_events_per_user=4, reset=False)
    plan = pp.Stream("s", budget=pp.Budget(20, 1e-6), horizon=64, unit=unit, queries=[pp.Histogram("n", key="page")])
    with pytest.warns(pp.BudgetWarning):
        told = plan.plan()
    *known, last = json.loads(told.to_json())["many_periods"]
    assert [each["periods"] for each in known] == [2]
    assert known[0]["delta"] < 1
    assert last == {"periods": 7, "epsilon": None, "delta": None}
    words = " ".join(str(told).split())
    assert "Who comes in several periods is hidden: in 2 periods with epsilon 42.32 and delta 0.0027." in words
    assert "From 2 on that is little: the delta is a chance that nothing holds." in words
    assert "Who comes in 7 periods or more is promised nothing." in words


def test_what_the_last_ticks_added_reaches_no_further_back_than_the_period() -> None:
    with pytest.raises(pp.ParameterError, match="per of query 'n' must be at most a period, 24 ticks, got 25 ticks"):
        asked(pp.Count("n", per=25), unit={"max_events_per_user": 4}).plan()
    running = asked(pp.Count("n", per=25), horizon="30d", unit={"max_events_per_user": 4, "reset": False})
    assert "in the last 25 ticks" in str(running.plan())
    assert "since the period began" not in " ".join(str(running.plan()).split())
    anew = asked(pp.Count("n", per="6h"), pp.Count("m", per="tick"), unit={"max_events_per_user": 4}).plan()
    assert " ".join(str(anew).split()).count("in the last 6 ticks, or since the period began") == 1
    assert json.loads(anew.to_json())["queries"][1]["error_about"].startswith("number of events in each tick,")


def test_a_window_that_no_query_tells_names_those_that_are_told() -> None:
    live = asked(pp.Count("n", every=4), unit={"max_events_per_user": 4}).start()
    for _ in range(8):
        live.tick()
    with pytest.raises(pp.ParameterError, match="multiples of 4 ticks"):
        live.window("6h")
    assert live.window("4h")["n"].height == 1


# Streams.


def test_a_stream_begins_anew_and_says_since_when_it_counts() -> None:
    origin = datetime(2026, 3, 28, 4, tzinfo=UTC)
    stream = asked(
        pp.Count("n", tidy="monotone"),
        pp.Users("people", every=2),
        unit={"starts": "06:00", "max_events_per_user": 50},
        origin=origin,
        time_zone="Europe/Berlin",
    )
    tick, plan = quiet(stream), stream.plan()
    counts, begins = [], []
    for number in range(1, 50):
        tables = tick(number, visits(1 + number % 3))
        counts.append(tables["n"]["tidy"].item())
        begins.append(plan.since(["n"], number)["n"])
    # 06:00 is 05:00 in UTC, and 04:00 from the next day on: a period of one hour, then one of 23.
    assert [begins.index(begin) + 1 for begin in dict.fromkeys(begins)] == [1, 2, 25, 49]
    assert [counts[place] for place in (0, 1, 2, 23, 24, 48)] == [2, 3, 4, 46, 2, 2]


def test_periods_of_a_later_life_are_those_of_the_stream() -> None:
    plan = asked(pp.Count("n"), unit={"within": 4, "max_events_per_user": 9}).plan()
    core = LiveCore(plan, lambda every: NoNoise(), after=6)
    shown = []
    for number in range(1, 5):
        core.update(core.inputs(visits(2), number, drop_bad_rows=False))
        shown.append(core.release(number)["n"]["estimate"].item())
    assert shown == [2, 4, 2, 4]
    assert plan.since(["n"], 8, first=6, counted=5) == {"n": 5}
    assert plan.since(["n"], 9, first=6, counted=5) == {"n": 8}


def test_alarms_of_a_later_life_are_renewed_where_its_periods_begin() -> None:
    """Mutant: charges renewed by the ticks of the life, so that one period of the stream meets two of its own."""
    stream = asked(pp.Alarm("crowd", where="x = 1", alarms_per_user=1), horizon=12, unit={"within": 4})
    core = LiveCore(stream.plan(), lambda every: NoNoise(), after=6)
    rang = []
    for number in range(1, 9):
        core.update(core.inputs([{"who": who, "x": 1} for who in range(3000)], number, drop_bad_rows=False))
        rang.append(core.release(number)["crowd"].height)
    # Ticks 7 and 8, then 9 to 12, then 13 and 14 of the stream.
    assert rang == [1, 0, 1, 0, 0, 0, 1, 0]


def test_counters_are_planned_for_the_longest_period_and_the_cap_follows() -> None:
    plan = asked(pp.Count("n"), pp.Users("people"), unit={"first_cap": 5, "caps": 7}).plan()
    counted, people = (each.mechanism for each in plan.queries)
    assert isinstance(counted, EachPeriod)
    assert (counted.inner.horizon, counted.horizon, counted.follow) == (24, 2**32, counted.cap)
    assert isinstance(counted.follow, OctaveCap)
    assert (counted.follow.first, counted.follow.levels) == (5, 7)
    assert counted.follow.epsilon == Fraction(3, 20)
    assert (people.follow, people.inner.cap) == (None, FixedCap(units=1))
    running = asked(pp.Count("n"), horizon=48, unit={"max_events_per_user": 3, "reset": False}).plan()
    assert running.queries[0].mechanism.cap == PeriodCap(units=3, ticks=24)
    assert running.queries[0].mechanism.horizon == 48


@pytest.mark.parametrize(("cap", "largest"), [(1, 104), (16, 432)])
def test_thresholds_of_a_plan_are_those_of_a_day_at_its_first_cap(cap: int, largest: int) -> None:
    """R is the longest period: thresholds of the card; a cap that follows has a little more noise."""
    asks = pp.Histogram("q", key="k", count="users")
    found = [asked(asks, unit=unit).plan() for unit in ({"max_events_per_user": cap}, {"first_cap": cap})]
    fixed, follows = (plan.queries[0].thresholds for plan in found)
    assert fixed is not None
    assert follows is not None
    assert fixed[1] == largest
    assert largest < follows[1] < 1.3 * largest
    assert found[0].queries[0].chosen.in_period.appearance.releases == 24
    running = asked(asks, horizon=48, unit={"max_events_per_user": cap, "reset": False}).plan()
    assert running.queries[0].mechanism.appearance.releases == 48


def test_alarms_are_renewed_where_shifted_periods_begin() -> None:
    unit = {"within": 4, "starts": 3}
    tick = quiet(asked(pp.Alarm("crowd", where="x = 1", alarms_per_user=1), horizon=12, unit=unit))
    batch = [{"who": who, "x": 1} for who in range(3000)]
    assert [tick(number, batch)["crowd"].height for number in range(1, 9)] == [1, 0, 1, 0, 0, 0, 1, 0]


def test_a_stream_file_needs_no_horizon_where_statistics_begin_anew(tmp_path: Path) -> None:
    text = """
[stream]
name = "shop"
unit = { user = "customer", within = "1d", starts = "06:00" }
epsilon = 1.0
delta = 1e-9
tick = "1h"
origin = 2026-01-01T00:00:00Z
time_zone = "Europe/Berlin"

[source]
stdin = true
format = "jsonl"

[queries.visits]
kind = "count"
"""
    path = tmp_path / "shop.toml"
    path.write_text(text)
    stream = load_spec(path).stream
    assert stream.horizon is None
    assert stream.plan().periods == CalendarPeriods.of(
        TickCalendar("2026-01-01T00:00Z", "1h", "Europe/Berlin"), "1d", "06:00", None
    )
    path.write_text(text.replace('within = "1d", starts = "06:00"', "max_events_per_user = 3"))
    with pytest.raises(SpecError, match=r"stream\.horizon must be given"):
        load_spec(path)


def test_a_run_that_goes_on_keeps_the_end_of_its_period_when_the_calendar_changes() -> None:
    made = asked(pp.Count("n"), unit={"within": 4, "max_events_per_user": 3}).plan().queries[0].mechanism
    run: Run[Any, Any, Any] = Run(made, NoNoise())
    run.release()
    later = resumed(made, NoNoise(), stored(run), [run.log()])
    assert later._state.periods.open.last == 4
