"""Streams of users: one call a tick, every query kind, caps, periods, schedules, refusals and files."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import pianissimo as pp
from pianissimo.io.runs import run_file
from pianissimo.loss.losses import Unit
from pianissimo.stream import Live, StreamPlan
from pianissimo.stream.spec import load_spec
from pianissimo.testing import NoNoise

SECTIONS = ["news", "sport", "science"]
QUERIES = [
    pp.Count("visits"),
    pp.Sum("seconds", value="read", range=(0, 600), grid=0.5),
    pp.Histogram("sections", key="section", domain=SECTIONS),
    pp.TopK("top", key="section", k=2, domain=SECTIONS),
    pp.MaxFrequency("busiest", key="section", domain=SECTIONS),
    pp.Quantiles("reading", value="read", range=(0, 600), at=[0.5, 0.9], largest=[1], cells=64),
    pp.Distinct("articles", key="article"),
]
STRICT = [
    replace(query, nulls="refuse") if "refuse" in query.null_rules and query.reads else query for query in QUERIES
]
ROWS = [
    {"reader": "ann", "section": "news", "read": 10.0, "article": "a"},
    {"reader": "ann", "section": "sport", "read": 20.25, "article": "b"},
    {"reader": "bob", "section": "news", "read": 700.0, "article": "a"},
]


def news(**changes: Any) -> pp.Stream:
    fields: dict[str, Any] = {
        "unit": pp.user("reader"),
        "budget": pp.Budget(1.0, 1e-9),
        "horizon": 8,
        "queries": QUERIES,
    }
    return pp.Stream("news", **fields | changes)


def quiet(plan: StreamPlan) -> Live:
    return Live(plan, NoNoise())


def test_without_noise_every_query_is_the_plain_statistic() -> None:
    live = quiet(news().plan())
    release = live.tick(ROWS)
    assert release["visits"]["estimate"].to_list() == [3]
    # 700 is moved to 600, and 20.25 is on the grid of halves.
    assert release["seconds"]["estimate"].to_list() == [10.0 + 20.5 + 600.0]
    assert release["sections"].select("key", "estimate").rows() == [("news", 2), ("science", 0), ("sport", 1)]
    assert release["top"].select("key", "estimate").rows() == [("news", 2), ("sport", 1)]
    assert release["busiest"]["estimate"].to_list() == [2]
    assert release["articles"]["estimate"].to_list() == [2]
    assert release["reading"]["key"].to_list() == ["0.5", "0.9", "largest 1"]
    assert release["reading"]["estimate"][0] == pytest.approx(20.25, abs=600 / 64)
    again = live.tick(ROWS[:1])
    assert again["visits"]["estimate"].to_list() == [4]
    assert again["articles"]["estimate"].to_list() == [2]


def test_tables_of_whole_number_users_count_as_rows_do() -> None:
    frame = pl.DataFrame({**pl.DataFrame(ROWS).to_dict(), "reader": [1, 1, 2]})
    assert quiet(news().plan()).tick(frame)["visits"]["estimate"].to_list() == [3]


def test_all_queries_about_events_share_one_cap_and_its_price() -> None:
    plan = news().plan()
    mechanisms = {id(each.mechanism) for each in plan.queries}
    assert len(mechanisms) == 2
    assert plan.price.epsilon <= 1.0
    assert plan.price.delta <= 1e-9
    assert plan.protected == "user"
    text = " ".join(plan.explain().split())
    assert "one user with all her events added or removed" in text
    assert "once for all queries that share the cap" in text


def test_a_pure_budget_is_kept_pure() -> None:
    plan = news(budget=pp.Budget(1.0, 0)).plan()
    assert plan.price.method == "pure"
    assert plan.price.epsilon <= 1.0


def test_a_fixed_cap_is_compared_with_the_one_that_follows() -> None:
    plan = news(unit=pp.user("reader", max_events_per_user=2), queries=[pp.Count("visits")]).plan()
    names = [plan.queries[0].chosen.name, *(other.name for other in plan.queries[0].alternatives)]
    assert any("a fixed cap of 2" in name for name in names)
    assert any("a cap that follows the stream" in name for name in names)
    assert "a fixed cap of 2" in names[0]
    live = quiet(plan)
    live.tick(ROWS[:2])
    assert live.tick(ROWS[:1])["visits"]["estimate"].to_list() == [2]


def test_a_cap_holds_in_each_period_where_periods_are_hidden() -> None:
    unit = pp.user("reader", max_events_per_user=1, within="2h", reset=False)
    plan = news(unit=unit, tick="1h", queries=[pp.Count("visits")]).plan()
    assert "one user's events of one period of 2 ticks" in str(plan)
    assert plan.to_dict()["period"] == 2
    live = quiet(plan)
    counts = [live.tick(ROWS[:2])["visits"]["estimate"][0] for _ in range(4)]
    assert counts == [1, 1, 2, 2]


def test_a_cap_that_follows_is_raised_by_many_heavy_users() -> None:
    live = quiet(news(unit=pp.user("reader", first_cap=2), queries=QUERIES[:3]).plan())
    heavy = pl.DataFrame(
        {
            "reader": np.repeat(np.arange(20_000), 4),
            "section": ["news"] * 80_000,
            "read": [1.0] * 80_000,
        }
    )
    release = live.tick(heavy)
    # What the lower cap left out is there once it is raised.
    assert release["visits"]["estimate"][0] == 80_000
    assert release["sections"]["estimate"].to_list() == [80_000, 0, 0]


def test_queries_are_shown_on_their_schedules() -> None:
    live = quiet(
        news(queries=[pp.Count("visits"), pp.Histogram("sections", key="section", domain=SECTIONS, every=2)]).plan()
    )
    assert tuple(live.tick(ROWS)) == ("visits", "above_cap")
    assert tuple(live.tick(ROWS)) == ("visits", "sections", "above_cap")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"reader": None}, "column 'reader' must name a user"),
        ({"reader": "x" * 257}, "column 'reader' must name a user"),
        ({"read": float("nan")}, "column 'read' must hold finite numbers"),
        ({"section": None}, "column 'section' must not be null"),
    ],
)
def test_bad_rows_are_refused_or_dropped_one_by_one(row: dict[str, Any], message: str) -> None:
    batch = [ROWS[0], ROWS[1] | row]
    live = quiet(news(queries=STRICT).plan())
    with pytest.raises(pp.InputError, match=message):
        live.tick(batch)
    assert live.tick(batch, drop_bad_rows=True)["visits"]["estimate"].to_list() == [1]


def test_ids_beyond_63_bits_are_refused_row_by_row() -> None:
    frame = pl.DataFrame({"reader": pl.Series([1, 2**63], dtype=pl.UInt64), "x": [1, 2]})
    live = quiet(news(queries=[pp.Count("visits")]).plan())
    with pytest.raises(pp.InputError, match="63 bits"):
        live.tick(frame)
    assert live.tick(frame, drop_bad_rows=True)["visits"]["estimate"].to_list() == [1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"queries": [pp.Histogram("s", key="section")], "unit": pp.user("reader", weight="w")}, "events are deleted"),
        ({"queries": [pp.Histogram("s", key="section", constant_threshold=True)]}, "thresholds follow the cap"),
        ({"queries": [pp.Histogram("s", key="section")], "budget": pp.Budget(1, 0)}, "must have a delta to be shown"),
        ({"unit": "event", "queries": [pp.Histogram("s", key="section", count="users")]}, "there are no users"),
        ({"queries": [pp.Histogram("readers", key="reader", domain=["a"])]}, "other columns than those of the users"),
        ({"unit": pp.user("reader", max_events_per_user=3, within="90m"), "tick": "1h"}, "whole number of ticks"),
        ({"unit": "user"}, "unit must be .event. or user"),
        ({"unit": Unit.EVENT, "queries": [pp.Users("n")]}, "users must be asked of users"),
    ],
)
def test_what_cannot_be_promised_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        news(**changes).plan()


def test_an_open_horizon_has_a_plan() -> None:
    plan = news(horizon=None, queries=[pp.Count("visits")]).plan()
    assert plan.price.epsilon <= 1.0
    assert quiet(plan).tick(ROWS)["visits"]["estimate"].to_list() == [3]


def test_a_file_of_users_is_released(tmp_path: Path) -> None:
    origin = datetime(2026, 1, 5, tzinfo=UTC)
    rows = [{"time": (origin + timedelta(minutes=70 * place)).isoformat(), **row} for place, row in enumerate(ROWS)]
    pl.DataFrame(rows).write_csv(tmp_path / "clicks.csv")
    (tmp_path / "news.toml").write_text("""
        [stream]
        name = "news"
        unit = { user = "reader" }
        epsilon = 1.0
        delta = 1e-9
        tick = "1h"
        horizon = 4
        origin = 2026-01-05T00:00:00Z
        [source]
        path = "clicks.csv"
        time = "time"
        [queries.visits]
        kind = "count"
        [queries.articles]
        kind = "distinct"
        key = "article"
        [queries.reading]
        kind = "quantiles"
        value = "read"
        range = [0, 600]
        at = [0.5]
        cells = 64
        [queries.busiest]
        kind = "max_frequency"
        key = "section"
        domain = ["news", "sport"]
    """)
    spec = load_spec(tmp_path / "news.toml")
    assert spec.stream.unit == pp.user("reader")
    assert run_file(spec, tmp_path / "out").loop.tick == 4


@pytest.mark.parametrize("name", ["user", "weight", "value", "key", "above_cap", "exhausted"])
@pytest.mark.parametrize("delta", [0, 1e-9])
@pytest.mark.parametrize("kind", ["count", "distinct"])
def test_no_query_takes_the_place_of_the_users(name: str, delta: float, kind: str) -> None:
    """A distinct count called "user" once put its values in the place of the users, and every cap was void."""
    query = pp.Count(name) if kind == "count" else pp.Distinct(name, key="article")
    with pytest.raises(pp.ParameterError, match="must not be called"):
        news(queries=[pp.Count("visits"), query], budget=pp.Budget(1.0, delta))


def test_a_tick_without_events_and_ids_of_another_type_stop_nothing() -> None:
    live = quiet(news(queries=[pp.Count("visits"), pp.Distinct("articles", key="article")]).plan())
    live.tick(None)
    live.tick(pl.DataFrame({"reader": [7, 8], "article": ["a", "b"]}))
    live.tick(pl.DataFrame({"reader": [None, None], "article": ["a", "b"]}), drop_bad_rows=True)
    live.tick(None)
    release = live.tick(pl.DataFrame({"reader": ["7", "ann"], "article": ["a", "a"]}))
    assert release["visits"]["estimate"].to_list() == [4]


@pytest.mark.parametrize(
    "row",
    [
        {"reader": "eve", "section": ["news", None], "read": 1.0, "article": "a"},
        {"reader": ["eve"], "section": "news", "read": 1.0, "article": "a"},
        {"section": "news", "read": 1.0, "article": "a"},
        {"reader": "eve", "section": "news", "read": 1.0},
    ],
)
def test_one_bad_row_is_dropped_alone(row: dict[str, Any]) -> None:
    live = quiet(news(queries=STRICT).plan())
    assert live.tick([row, *ROWS], drop_bad_rows=True)["visits"]["estimate"].to_list() == [3]
    assert live.tick([row], drop_bad_rows=True)["visits"]["estimate"].to_list() == [3]


def test_of_a_column_of_lists_the_first_labels_count() -> None:
    frame = pl.DataFrame(ROWS).with_columns(section=pl.concat_list("section", "article"))
    found, expected = quiet(news().plan()).tick(frame), quiet(news().plan()).tick(ROWS)
    assert all(found[name].equals(table) for name, table in expected.items())


def test_whole_numbers_beside_missing_ones_are_ids() -> None:
    frame = pl.DataFrame({"reader": [7.0, None, 7.5, float("nan"), 8.0]})
    live = quiet(news(queries=[pp.Count("visits")]).plan())
    assert live.tick(frame, drop_bad_rows=True)["visits"]["estimate"].to_list() == [2]


def test_bars_reach_over_the_cut_where_the_most_events_are_known() -> None:
    narrow = quiet(news(queries=[pp.Count("visits")]).plan()).tick(ROWS)["visits"].row(0)
    unit = pp.user("reader", most_events_per_user=1000)
    wide = quiet(news(unit=unit, queries=[pp.Count("visits")]).plan()).tick(ROWS)["visits"].row(0)
    assert wide[:2] == narrow[:2]
    assert narrow[2] is None
    assert wide[2] > 2 * wide[0] - wide[1] + 900


def test_events_may_be_taken_back() -> None:
    """Also what was never there; both count towards the cap."""
    unit = pp.user("reader", weight="change", max_events_per_user=4)
    live = quiet(news(unit=unit, queries=QUERIES[:3]).plan())
    rows = [row | {"change": 1} for row in ROWS] + [ROWS[0] | {"change": -1}, ROWS[2] | {"change": -1, "reader": "eve"}]
    release = live.tick(rows)
    assert release["visits"]["estimate"].to_list() == [1]
    assert release["sections"].select("key", "estimate").rows() == [("news", 0), ("science", 0), ("sport", 1)]
    with pytest.raises(pp.InputError, match="must hold 1 or -1"):
        live.tick([ROWS[0] | {"change": 2}])
    assert live.tick([ROWS[0] | {"change": 0}], drop_bad_rows=True)["visits"]["estimate"].to_list() == [1]
    with pytest.raises(pp.ParameterError, match="where events are deleted"):
        news(unit=unit)


def test_values_outside_the_range_are_moved_or_refused_as_declared() -> None:
    moved = pp.Sum("seconds", value="read", range=(0, 600), grid=1)
    refused = pp.Sum("seconds", value="read", range=(0, 600), grid=1, outside="refuse")
    assert quiet(news(queries=[moved]).plan()).tick(ROWS[2:])["seconds"]["estimate"].to_list() == [600.0]
    live = quiet(news(queries=[refused]).plan())
    with pytest.raises(pp.InputError, match="within 0 and 600"):
        live.tick(ROWS)
    assert live.tick(ROWS, drop_bad_rows=True)["seconds"]["estimate"].to_list() == [30.0]


def test_plans_about_other_users_have_another_digest() -> None:
    units = [pp.user("reader"), pp.user("author"), pp.user("reader", weight="change")]
    assert len({news(unit=unit, queries=[pp.Count("visits")]).plan().digest for unit in units}) == 3
