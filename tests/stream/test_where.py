"""A condition on every query: what does not match is as if it were not there, except that a cap counts it."""

from typing import Any

import polars as pl
import pytest

import pianissimo as pp
from pianissimo.stream import Live
from pianissimo.stream.spec import load_spec
from pianissimo.testing import NoNoise

WHERE = "age > 60 AND region = 'north'"
DRUGS = ["aspirin", "ibuprofen"]
ROWS = pl.DataFrame(
    {
        "who": [each % 40 for each in range(400)],
        "drug": [DRUGS[each % 2] for each in range(400)],
        "price": [float(each % 7) for each in range(400)],
        "age": [None if each % 11 == 0 else 20.0 + each % 80 for each in range(400)],
        "region": [("north", "south", None)[each % 3] for each in range(400)],
    }
)
KEPT = ROWS.filter((pl.col("age") > 60) & (pl.col("region") == "north"))
QUERIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "count": (pp.Count, {}),
    "sum": (pp.Sum, {"value": "price", "range": (2, 5)}),
    "histogram": (pp.Histogram, {"key": "drug", "domain": DRUGS}),
    "top_k": (pp.TopK, {"key": "drug", "k": 1, "domain": DRUGS}),
    "max_frequency": (pp.MaxFrequency, {"key": "drug", "domain": DRUGS}),
    "quantiles": (pp.Quantiles, {"value": "price", "range": (0, 8), "cells": 8, "at": [0.5, 0.9]}),
    "distinct": (pp.Distinct, {"key": "drug"}),
}
EVENTS = {"count", "sum", "histogram", "top_k"}


def quiet(query: Any, **changes: Any) -> Live:
    fields: dict[str, Any] = {"budget": pp.Budget(4.0, 1e-6), "horizon": 8, **changes}
    return Live(pp.Stream("s", queries=[query], **fields).plan(), NoNoise())


def answers(query: Any, rows: pl.DataFrame, **changes: Any) -> list[pl.DataFrame]:
    live = quiet(query, **changes)
    return [live.tick(part)["q"] for part in (rows[:200], rows[200:])]


@pytest.mark.parametrize("kind", sorted(EVENTS))
def test_events_that_do_not_match_are_as_if_they_were_not_there(kind: str) -> None:
    made, fields = QUERIES[kind]
    live, plain = quiet(made("q", where=WHERE, **fields)), quiet(made("q", **fields))
    assert live.tick(ROWS)["q"].equals(plain.tick(KEPT)["q"])


@pytest.mark.parametrize("kind", sorted(QUERIES))
def test_a_users_events_that_do_not_match_add_nothing(kind: str) -> None:
    made, fields = QUERIES[kind]
    unit = pp.user("who", max_events_per_user=1000)
    live, plain = quiet(made("q", where=WHERE, **fields), unit=unit), quiet(made("q", **fields), unit=unit)
    one, other = live.tick(ROWS)["q"], plain.tick(KEPT)["q"]
    assert one["estimate"].to_list() == other["estimate"].to_list()
    assert one.columns == other.columns


def test_a_cap_counts_the_events_that_do_not_match() -> None:
    rows = pl.DataFrame({"who": [1] * 10, "age": [10.0] * 5 + [70.0] * 5})
    unit = pp.user("who", max_events_per_user=7)
    assert quiet(pp.Count("q", where="age > 60"), unit=unit).tick(rows)["q"]["estimate"].to_list() == [2]


def test_trends_and_alarms_look_at_those_who_match() -> None:
    rows = pl.DataFrame({"who": range(2000), "drug": ["aspirin"] * 2000, "age": [70.0, 30.0] * 1000})
    live = quiet(pp.Trending("q", key="drug", where="age > 60"), unit=pp.user("who"))
    assert live.tick(rows)["q"].select("key", "estimate").rows() == [("aspirin", 1000)]
    assert quiet(pp.Alarm("q", where="age > 60"), unit=pp.user("who")).tick(rows)["q"]["estimate"].to_list() == [1000]


def test_only_rows_that_match_must_be_sound() -> None:
    rows: list[dict[str, Any]] = [{"price": 3.0, "age": 70.0}, {"price": None, "age": 10.0}]
    units: list[dict[str, Any]] = [{}, {"unit": pp.user("who", max_events_per_user=9)}]
    for unit in units:
        batch = [row | {"who": 1} for row in rows]
        live = quiet(pp.Sum("q", value="price", range=(2, 5), grid=1, where="age > 60", nulls="refuse"), **unit)
        assert live.tick(batch)["q"]["estimate"].to_list() == [3.0]
        with pytest.raises(pp.InputError, match="must hold finite numbers"):
            live.tick([row | {"age": 70.0} for row in batch])
        assert live.tick([row | {"age": 70.0} for row in batch], drop_bad_rows=True)["q"]["estimate"].to_list() == [6.0]


def test_a_condition_is_kept_as_text_however_it_was_written() -> None:
    text = pp.Count("q", where="age > 60").where
    assert pp.Count("q", where=pl.col("age") > 60).where == text == '"age" > 60'
    assert pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=8, queries=[pp.Count("q", where="age > 60")]).columns == [
        "age"
    ]
    plan = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=8, queries=[pp.Count("q", where="age > 60")]).plan()
    assert 'number of events where "age" > 60' in str(plan)
    assert plan.digest != pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=8, queries=[pp.Count("q")]).plan().digest


def test_a_file_may_say_it(tmp_path: Any) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        'stream = { name = "s", epsilon = 1, delta = 1e-9, tick = "1h", horizon = 24 }\n'
        '[queries.old]\nkind = "count"\nwhere = "age > 60"\n'
    )
    assert load_spec(path).stream.queries == (pp.Count("old", where="age > 60"),)
    path.write_text(path.read_text().replace("age > 60", "age > AVG(age)"))
    with pytest.raises(pp.SpecError, match=r"queries.old.where must look at one row alone"):
        load_spec(path)


def test_a_condition_does_not_look_at_lists() -> None:
    queries = [pp.Histogram("drugs", key="drug", max_keys_per_event=3), pp.Count("q", where="drug = 'aspirin'")]
    with pytest.raises(pp.ParameterError, match="must not look at a column of lists"):
        pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=8, queries=queries)


@pytest.mark.parametrize(
    "where", ["paid", "NOT paid", "paid = TRUE", "city IS NULL", "city = town", "age > 3 AND paid"]
)
def test_a_column_that_could_be_texts_or_numbers_is_refused(where: str) -> None:
    """Read as numbers, texts would all be missing: the condition would match nothing, or everything, unseen."""
    with pytest.raises(pp.ParameterError, match="must compare each column of a stream with a text or a number"):
        pp.Count("n", where=where)
    assert pp.Count("n", where="city IS NOT NULL AND city <> ''").where


def test_booleans_and_days_are_compared_as_texts() -> None:
    """What a message tells to write must do."""
    frame = pl.DataFrame({"paid": [True, False, None], "day": ["2026-03-01", "2026-03-03", None]})
    frame = frame.with_columns(pl.col("day").str.to_date(), age=pl.Series([float("inf"), float("nan"), 7.0]))
    for where, rows in {
        "paid = 'true'": [True, False, False],
        "NOT paid = 'true'": [False, True, False],
        "day > '2026-03-02'": [False, True, False],
        "paid IS NULL OR paid = 'true'": [True, False, True],
        "age > 0": [False, False, True],
        "NOT age > 9": [False, False, True],
    }.items():
        found = pp.Count("n", where=where).matches(frame)
        assert found is not None
        assert found.to_list() == rows, where
    with pytest.raises(pp.ParameterError, match=r"write paid = 'true' for booleans, .* IS NULL alone is refused"):
        pp.Count("n", where="paid = TRUE")
    with pytest.raises(pp.InputError, match="got Boolean; write paid = 'true'"):
        pp.Count("n", where="paid = 1").matches(frame)
    with pytest.raises(pp.InputError, match="got Date; write day > '2026-03-02'"):
        pp.Count("n", where="day > 3").matches(frame)


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt64, pl.Int128])
@pytest.mark.parametrize(
    ("where", "rows"),
    [
        (f"age = {2**53 + 1}", 1),
        (f"age > {2**53}", 2),
        (f"age <> {2**53 + 2}", 2),
        (f"age IN ({2**53}, {2**53 + 1})", 2),
        ("age = other AND age > 0", 1),
    ],
)
def test_whole_numbers_are_compared_with_all_their_digits(dtype: type[pl.DataType], where: str, rows: int) -> None:
    frame = pl.DataFrame(
        {"age": [2**53, 2**53 + 1, 2**53 + 2], "other": [2**53 + 1] * 3}, schema_overrides={"age": dtype}
    )
    assert quiet(pp.Count("q", where=where)).tick(frame)["q"]["estimate"].to_list() == [rows]
