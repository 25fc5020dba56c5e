"""Alarms and trends in streams of users: who rings, who is charged, what the plan says, and files."""

import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import pianissimo as pp
from pianissimo.cli.main import cli
from pianissimo.io.runs import run_file
from pianissimo.loss.composition import price
from pianissimo.loss.losses import Race, Unit
from pianissimo.stream import Live, StreamPlan
from pianissimo.stream.spec import load_spec
from pianissimo.testing import NoNoise

FEVER = pp.Alarm("fever", where="symptom = 'fever' AND age > 60", alarms_per_user=2)
TERMS = pp.Trending("symptoms", key="symptom", alarms_per_user=2)


def clinic(*queries: Any, **changes: Any) -> pp.Stream:
    fields: dict[str, Any] = {"unit": pp.user("patient"), "budget": pp.Budget(1.0, 1e-6), "horizon": 50}
    return pp.Stream("clinic", queries=queries or (FEVER, TERMS), **fields | changes)


def quiet(plan: StreamPlan) -> Live:
    return Live(plan, NoNoise())


def crowd(size: int, symptom: str = "fever", age: float = 70.0, first: int = 0) -> pl.DataFrame:
    return pl.DataFrame({"patient": range(first, first + size), "symptom": [symptom] * size, "age": [age] * size})


def test_a_crowd_rings_and_is_charged_until_it_counts_no_more() -> None:
    live = quiet(clinic(FEVER).plan())
    counts = [live.tick(crowd(1000))["fever"]["estimate"].to_list() for _ in range(3)]
    assert counts == [[1000], [1000], []]


def test_a_user_counts_once_a_tick() -> None:
    live = quiet(clinic(FEVER).plan())
    assert live.tick(pl.concat([crowd(500)] * 3))["fever"]["estimate"].to_list() == [500]


def test_only_those_who_match_count() -> None:
    live = quiet(clinic(FEVER).plan())
    batch = pl.concat([crowd(400), crowd(400, age=30.0, first=400), crowd(400, symptom="cough", first=800)])
    assert live.tick(batch)["fever"]["estimate"].to_list() == [400]


def test_a_row_without_the_value_does_not_match() -> None:
    live = quiet(clinic(FEVER).plan())
    batch = crowd(400).with_columns(age=pl.when(pl.col("patient") < 10).then(None).otherwise(pl.col("age")))
    assert live.tick(batch)["fever"]["estimate"].to_list() == [390]


def test_trends_are_told_by_key_in_the_order_of_the_keys() -> None:
    live = quiet(clinic(TERMS).plan())
    table = live.tick(pl.concat([crowd(700), crowd(600, "cough", first=700), crowd(3, "hiccup", first=1300)]))[
        "symptoms"
    ]
    assert table.select("key", "estimate").rows() == [("cough", 600), ("fever", 700)]
    assert table.columns == ["key", "estimate", "low", "high", "cap"]


def test_alarms_share_one_monitor_and_all_monitors_one_noise() -> None:
    other = pp.Alarm("cough", where="symptom = 'cough'", alarms_per_user=3)
    plan = clinic(FEVER, other, TERMS).plan()
    assert plan.queries[0].mechanism is plan.queries[1].mechanism
    losses = [plan.queries[0].guarantee.loss, plan.queries[2].guarantee.loss]
    assert all(isinstance(loss, Race) for loss in losses)
    # Two alarms with three reports a user in four clocks, and a trend with two.
    assert [loss.charges for loss in losses if isinstance(loss, Race)] == [4, 2]
    assert len({loss.scale for loss in losses if isinstance(loss, Race)}) == 1
    assert price(losses, 1e-6).epsilon <= 1.0
    assert plan.price.epsilon <= 1.0


def test_watching_and_counting_share_a_budget() -> None:
    plan = clinic(FEVER, pp.Count("visits"), pp.Distinct("different", key="symptom")).plan()
    assert plan.price.epsilon <= 1.0
    assert plan.price.delta <= 1e-6
    release = quiet(plan).tick(crowd(900))
    assert release["visits"]["estimate"].to_list() == [900]
    assert release["fever"]["estimate"].to_list() == [900]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("queries", [(FEVER,), (TERMS,), (FEVER, TERMS)])
@pytest.mark.parametrize("weight", [0.1, 1.0, 10.0])
def test_every_mixture_stays_within_its_budget(epsilon: float, queries: tuple[Any, ...], weight: float) -> None:
    plan = clinic(*queries, pp.Count("visits", weight=weight), budget=pp.Budget(epsilon, 1e-9)).plan()
    assert plan.price.epsilon <= epsilon


def test_the_plan_says_what_will_be_found() -> None:
    text = " ".join(clinic().plan().explain().split())
    assert "users or more in a tick who have charges left is found, in all ticks, with a chance of 95 %" in text
    assert "a user has 2 charges, one for each report that she is in (of any alarm of the stream): a crowd" in text
    assert "crowd of the same users is found 2 times and then missed; each release tells how many may" in text
    daily = clinic(FEVER, unit=pp.user("patient", within=7)).plan().queries[0].chosen.note
    assert "a user has 2 charges in each period of 7 ticks, one for each report" in daily
    assert "the same users is found 2 times and then missed until the next" in daily
    assert "a race of scale" in text
    assert "a chance of 5e-07 to show a key of one user" in text


DAILY = {"unit": pp.user("patient", within=4)}


def test_in_each_period_a_crowd_has_charges_again() -> None:
    live = quiet(clinic(FEVER, TERMS, **DAILY).plan())
    releases = [live.tick(crowd(1000)) for _ in range(9)]
    for name in ("fever", "symptoms"):
        assert [len(release[name]) for release in releases] == [1, 1, 0, 0, 1, 1, 0, 0, 1]


def test_a_period_costs_no_more_noise_and_its_lone_keys_are_those_of_its_ticks() -> None:
    whole, part = (clinic(TERMS, **changes).plan().queries[0] for changes in ({}, DAILY))
    losses = [each.guarantee.loss for each in (whole, part)]
    assert all(isinstance(loss, Race) and not loss.replacement for loss in losses)
    assert len({loss.scale for loss in losses if isinstance(loss, Race)}) == 1
    assert part.guarantee.unit is Unit.USER_PERIOD
    assert part.mechanism.threshold < whole.mechanism.threshold


def test_other_queries_of_a_period_need_a_cap_and_alarms_do_not() -> None:
    with pytest.raises(pp.ParameterError, match="max_events_per_user must be given where totals run on"):
        clinic(FEVER, pp.Count("visits"), unit=pp.user("patient", within=4, reset=False))
    capped = pp.user("patient", within=4, max_events_per_user=3, reset=False)
    tables = [quiet(clinic(FEVER, *more, unit=capped).plan()).tick(crowd(1000)) for more in ((), (pp.Count("n"),))]
    assert [table["fever"]["estimate"].to_list() for table in tables] == [[1000], [1000]]


def test_a_release_tells_how_many_users_may_have_no_charge_left() -> None:
    live = quiet(clinic(FEVER, pp.Alarm("young", where="age < 6", alarms_per_user=2), TERMS).plan())
    tables = [live.tick(crowd(1000))["exhausted"] for _ in range(4)]
    assert all(table["key"].to_list() == ["fever", "young", "symptoms"] for table in tables)
    assert all(table.columns == ["key", "estimate", "low", "high", "cap"] for table in tables)
    for table in tables[:2]:
        assert table.select("estimate", "low", "high").rows() == [(0, 0, 0)] * 3
    for table in tables[2:]:
        for estimate, low, high in table.select("estimate", "low", "high").rows():
            assert (estimate, low) == (1000, 0)
            assert 1000 < high < 1100


def test_a_reported_size_reaches_over_the_exhausted() -> None:
    live = quiet(clinic(FEVER).plan())
    rows = [live.tick(crowd(size))["fever"].row(0, named=True) for size in (1000, 1000, 1600)]
    assert [row["estimate"] for row in rows] == [1000, 1000, 600]
    assert rows[2]["low"] < 600
    assert 1600 < rows[2]["high"] < 1750


def test_each_period_tells_of_its_own_exhausted() -> None:
    live = quiet(clinic(FEVER, **DAILY).plan())
    tables = [live.tick(crowd(1000))["exhausted"] for _ in range(9)]
    assert [table["estimate"][0] for table in tables] == [0, 0, 1000, 1000, 0, 0, 1000, 1000, 0]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (pp.Alarm("fever", where="symptom = 'fever'", threshold=5), "must have a threshold of at least"),
        (pp.Trending("terms", key="symptom", threshold=5), "must have a threshold of at least"),
    ],
)
def test_a_threshold_below_the_least_is_refused_with_the_least(query: Any, message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        clinic(query).plan()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("age > AVG(age)", "must look at one row alone"),
        ("symptom = 'fever' AND", "not SQL"),
        ("ROW_NUMBER() OVER () > 3", "must look at one row alone"),
        ("1 = 1", "must look at a column"),
        (pl.col("age") > pl.col("age").shift(), "must look at one row alone"),
    ],
)
def test_conditions_across_events_are_refused(where: Any, message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        pp.Alarm("fever", where=where)


def test_what_cannot_be_promised_is_refused() -> None:
    with pytest.raises(pp.ParameterError, match="alarms and trends must have a delta"):
        clinic(budget=pp.Budget(1.0, 0)).plan()


def test_lists_of_dicts_match_as_tables_do() -> None:
    rows = crowd(500).to_dicts()
    assert quiet(clinic(FEVER).plan()).tick(rows)["fever"]["estimate"].to_list() == [500]


def test_a_file_with_alarms_is_released(tmp_path: Path) -> None:
    times = pl.Series("time", ["2026-01-05T00:30:00Z"] * 600)
    crowd(600).with_columns(times).write_csv(tmp_path / "visits.csv")
    (tmp_path / "clinic.toml").write_text("""
        [stream]
        name = "clinic"
        unit = { user = "patient" }
        epsilon = 1.0
        delta = 1e-6
        tick = "1h"
        horizon = 3
        origin = 2026-01-05T00:00:00Z
        [source]
        path = "visits.csv"
        time = "time"
        [queries.fever]
        kind = "alarm"
        where = "symptom = 'fever' AND age > 60"
        [queries.symptoms]
        kind = "trending"
        key = "symptom"
        alarms_per_user = 2
    """)
    spec = load_spec(tmp_path / "clinic.toml")
    assert run_file(spec, tmp_path / "out").loop.tick == 3


def test_a_file_with_alarms_of_events_is_released_and_told(tmp_path: Path) -> None:
    times = pl.Series("time", ["2026-01-05T00:30:00Z"] * 600)
    crowd(600).with_columns(times).write_csv(tmp_path / "visits.csv")
    (tmp_path / "clinic.toml").write_text("""
        [stream]
        name = "clinic"
        epsilon = 1.0
        delta = 1e-6
        tick = "1h"
        horizon = 3
        origin = 2026-01-05T00:00:00Z
        [source]
        path = "visits.csv"
        time = "time"
        [queries.fever]
        kind = "alarm"
        where = "symptom = 'fever' AND age > 60"
        [queries.symptoms]
        kind = "trending"
        key = "symptom"
        max_keys_per_event = 1
        [queries.ages]
        kind = "quantiles"
        value = "age"
        [queries.most]
        kind = "max_frequency"
        key = "symptom"
        domain = ["fever", "cough"]
    """)
    done = CliRunner().invoke(cli, ["run", str(tmp_path / "clinic.toml"), "--out", str(tmp_path / "out"), "--quiet"])
    assert done.exit_code == 0, done.output
    told = [line for line in done.output.splitlines() if line.startswith("tick 1 ")]
    assert len(told) == 2
    assert all(re.search(r"about \d+ events \(\d+ to \d+\)$", line) for line in told), told
    shown = CliRunner().invoke(cli, ["releases", str(tmp_path / "out")])
    assert shown.exit_code == 0, shown.output
    assert "exhausted" not in shown.output
    status = CliRunner().invoke(cli, ["status", str(tmp_path / "clinic.state")])
    assert status.exit_code == 0, status.output
    assert "silence of" not in status.output
