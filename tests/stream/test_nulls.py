"""Each query judges its own columns: a row without a value for one of them counts in all others."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.io.reading import by_tick, read_rows
from tests.stream.test_features import estimates, quiet, stream

import pianissimo as pp
from pianissimo.noise import KeyedNoise, Secret
from pianissimo.stream import batches, live_core
from pianissimo.stream.live import Live
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import StreamSpec
from pianissimo.testing import NoNoise

SECRET = Secret(bytes(range(32)))
DELAY = pp.Sum("delay", value="delay", range=(-60, 600))
FLIGHTS = [
    {"carrier": f"c{row % 3}", "delay": None if row % 4 == 0 else row % 90, "plane": row % 25} for row in range(400)
]
USERS = pp.user("plane", max_events_per_user=100)


def told(asked: pp.Stream, rows: list[dict[str, Any]]) -> dict[str, str]:
    """The tables of two ticks under one key of noise, byte for byte."""
    core = LiveCore(asked.plan(), lambda every: KeyedNoise(SECRET))
    for place in (1, 2):
        core.update(core.inputs(rows, place, drop_bad_rows=False))
        tables = core.release(place)
    return {name: table.write_json() for name, table in tables.items()}


@pytest.mark.parametrize("unit", ["event", USERS])
def test_nulls_in_the_column_of_a_sum_do_not_change_the_count(unit: Any) -> None:
    """Adding the sum of a delay changed the count of flights by 9,000 when a null removed the whole row."""
    asked = stream(pp.Count("flights"), pp.Histogram("carriers", key="carrier", domain=["c0", "c1"]), DELAY, unit=unit)
    whole = [row | {"delay": row["delay"] or 0} for row in FLIGHTS]
    with_nulls, without = told(asked, FLIGHTS), told(asked, whole)
    assert with_nulls == without
    assert quiet(*asked.queries, unit=unit).tick(FLIGHTS)["flights"]["estimate"].item() == len(FLIGHTS)


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf"), "late", True, [1]])
@pytest.mark.parametrize("unit", ["event", USERS])
def test_what_is_no_number_adds_nothing_to_its_query_alone(bad: object, unit: Any) -> None:
    rows = [{"delay": 7, "plane": 1}, {"delay": bad, "plane": 1}]
    query = pp.Sum("delay", value="delay", range=(2, 9), grid=1)
    release = quiet(pp.Count("flights"), query, unit=unit).tick(rows)
    assert release["flights"]["estimate"].item() == 2
    assert release["delay"]["estimate"].item() == 7


@pytest.mark.parametrize("unit", ["event", USERS])
def test_values_below_a_range_without_zero_are_still_moved_into_it(unit: Any) -> None:
    query = pp.Sum("delay", value="delay", range=(2, 9), grid=1)
    assert quiet(query, unit=unit).tick([{"delay": 1, "plane": 1}] * 3)["delay"]["estimate"].item() == 6


@pytest.mark.parametrize("bad", [None, "x" * 257, 1.5, {"a": 1}])
def test_what_is_no_label_is_skipped_refused_or_labelled(bad: object) -> None:
    rows = [{"carrier": "a"}, {"carrier": bad}]
    domain = ["a", "(null)"]
    count = pp.Count("flights")
    skipped = quiet(count, pp.Histogram("h", key="carrier", domain=domain)).tick(rows)
    assert skipped["flights"]["estimate"].item() == 2
    assert estimates(skipped["h"]) == {"(null)": 0, "a": 1}
    labelled = quiet(count, pp.Histogram("h", key="carrier", domain=domain, nulls="label")).tick(rows)
    assert estimates(labelled["h"]) == {"(null)": 1, "a": 1}
    refusing = quiet(count, pp.Histogram("h", key="carrier", domain=domain, nulls="refuse"))
    with pytest.raises(pp.InputError, match="column 'carrier' must not be null"):
        refusing.tick(rows)
    assert refusing.tick(rows, drop_bad_rows=True)["flights"]["estimate"].item() == 1


def test_lists_of_labels_with_a_null_are_judged_as_one() -> None:
    rows = [{"k": ["a", "b"]}, {"k": ["a", None]}, {"k": None}, {"k": []}]
    fields: dict[str, Any] = {"key": "k", "domain": ["a", "b", "(null)"], "max_keys_per_event": 2}
    assert estimates(quiet(pp.Histogram("h", **fields)).tick(rows)["h"]) == {"(null)": 0, "a": 1, "b": 1}
    labelled = quiet(pp.Histogram("h", nulls="label", **fields)).tick(rows)
    assert estimates(labelled["h"]) == {"(null)": 2, "a": 1, "b": 1}


def test_of_users_a_row_that_adds_nothing_counts_towards_the_cap() -> None:
    unit = pp.user("plane", max_events_per_user=2)
    rows = [{"plane": 1, "delay": None, "carrier": None}, *({"plane": 1, "delay": 5, "carrier": "a"} for _ in range(5))]
    queries = (
        pp.Count("flights"),
        pp.Sum("delay", value="delay", range=(2, 9), grid=1),
        pp.Histogram("carriers", key="carrier", domain=["a"]),
        pp.Quantiles("half", value="delay", range=(0, 16)),
        pp.Distinct("different", key="carrier"),
    )
    release = quiet(*queries, unit=unit).tick(rows)
    assert release["flights"]["estimate"].item() == 2
    assert release["delay"]["estimate"].item() == 5
    assert estimates(release["carriers"]) == {"a": 1}
    assert release["different"]["estimate"].item() == 1


def test_a_value_outside_its_range_is_refused_where_that_is_said_and_a_null_is_not() -> None:
    query = pp.Sum("delay", value="delay", range=(0, 9), outside="refuse", grid=1)
    assert quiet(pp.Count("n"), query).tick([{"delay": None}, {"delay": 3}])["n"]["estimate"].item() == 2
    with pytest.raises(pp.InputError, match="within 0 and 9"):
        quiet(query).tick([{"delay": 10}])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pp.Count("n", nulls="refuse"), "nulls must be 'skip' for a count that reads no column, got 'refuse'"),
        (lambda: pp.Sum("s", value="v", range=(0, 1), nulls="label"), "nulls must be 'skip' or 'refuse' for a sum"),
        (
            lambda: pp.Histogram("h", key="k", nulls=cast("Any", "drop")),
            "'skip' or 'refuse' or 'label' for a histogram",
        ),
        (lambda: pp.Histogram("h", key="k", domain=["a"], nulls="label"), "domain must hold '\\(null\\)'"),
    ],
)
def test_rules_that_a_query_has_not_are_refused(make: Any, message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        make()


ROWS = [
    {"time": "2026-01-05T00:00:00Z", "carrier": "a", "delay": 3},
    {"time": "2026-01-05T00:00:00Z", "carrier": None, "delay": 4},
    {"time": "2026-01-05T00:00:00Z", "carrier": "a", "delay": None},
    {"time": None, "carrier": "a", "delay": 5},
]


def read(path: Path, *queries: Any) -> tuple[dict[str, Any], list[str]]:
    """What a file adds, and why rows are refused."""
    asked = stream(*queries, tick="1h", origin=datetime(2026, 1, 5, tzinfo=UTC))
    rows = read_rows(StreamSpec(stream=asked, source=FileSource(path=path, time="time", until=1)))
    release = quiet(*queries).tick(next(by_tick(rows, 1)))
    return {name: release[name]["estimate"].to_list() for name in release}, rows.refused["reason"].to_list()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_rows_of_files_are_judged_alike(form: str, tmp_path: Path) -> None:
    path, frame = tmp_path / f"rows.{form}", pl.DataFrame(ROWS)
    getattr(frame, f"write_{'ndjson' if form == 'jsonl' else form}")(path)
    carriers = pp.Histogram("carriers", key="carrier", domain=["a"])
    delay = pp.Sum("delay", value="delay", range=(0, 9), grid=1)
    found, reasons = read(path, pp.Count("flights"), carriers, delay)
    assert found == {"flights": [3], "carriers": [2], "delay": [7]}
    assert reasons == ["column 'time' must be a date-time such as 2026-01-31T12:00:00Z"]
    strict = pp.Sum("delay", value="delay", range=(0, 9), grid=1, nulls="refuse")
    found, reasons = read(path, pp.Count("flights"), carriers, strict)
    assert found == {"flights": [2], "carriers": [1], "delay": [7]}
    assert "column 'delay' must hold finite numbers" in reasons


def test_a_json_value_of_another_kind_and_a_missing_one_are_as_a_null(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    good = {"time": "2026-01-05T00:00:00Z", "carrier": "a", "delay": 3}
    bad = [good | {"delay": "x"}, good | {"carrier": {"a": 1}}, {"time": good["time"]}, good | {"delay": 10**4000}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in [good, *bad]) + "no object\n")
    carriers = pp.Histogram("carriers", key="carrier", domain=["a"])
    found, reasons = read(path, pp.Count("flights"), carriers, pp.Sum("delay", value="delay", range=(0, 9), grid=1))
    assert found == {"flights": [5], "carriers": [3], "delay": [6]}
    assert reasons == ["a line must be a JSON object in UTF-8"]


def test_a_column_that_no_row_has_is_told_at_once_by_its_name_alone(caplog: pytest.LogCaptureFixture) -> None:
    stream = pp.Stream(
        "shop", budget=pp.Budget(1, 1e-9), horizon=4, queries=[pp.Sum("paid", value="price", range=(0, 9))]
    )
    with stream.start() as live:
        live.tick([{"price": 3.0}, {"prise": 8.25}])
        assert not caplog.messages
        live.tick([{"prise": 8.25}])
    assert caplog.messages == ["no row of a batch has 'price': these columns count as nulls"]


def object_counts(labels: list[Any]) -> dict[str, int]:
    table = pd.DataFrame({"k": pd.Series(labels, dtype=object), "price": 1.5})
    queries = [
        pp.Histogram("h", key="k", domain=["5", "2026-01-02"]),
        pp.Sum("s", value="price", range=(0, 2), grid=0.5),
    ]
    plan = pp.Stream("s", budget=pp.Budget(4, 1e-6), horizon=4, queries=queries).plan()
    release = Live(plan, NoNoise()).tick(table)
    assert release["s"]["estimate"].item() == 1.5 * len(labels)
    return dict(release["h"].select("key", "estimate").rows())


def test_values_of_a_pandas_column_of_objects_are_judged_one_by_one() -> None:
    # Arrow makes days of all whole numbers beside one day, and stops at a text beside a number.
    assert object_counts([5] * 4) == {"5": 4, "2026-01-02": 0}
    assert object_counts([date(2026, 1, 2), 5, 5, 5, 5]) == {"5": 4, "2026-01-02": 1}
    assert object_counts([5, "5", np.array(["5", "6"]), ["5"], None, 2.5, b"5", pd.NaT]) == {"5": 4, "2026-01-02": 0}


def test_objects_that_arrow_gives_one_type_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose, as it was."""
    monkeypatch.setattr(batches, "table_of", pl.DataFrame)
    monkeypatch.setattr(live_core, "table_of", pl.DataFrame)
    assert object_counts([date(2026, 1, 2), 5, 5, 5, 5])["5"] == 0


def test_decimals_of_objects_are_numbers() -> None:
    query = pp.Sum("s", value="price", range=(0, 10), grid=0.5)
    values = [Decimal("2.5"), 1, None, Decimal("sNaN"), Decimal("Infinity"), "x"]
    plan = pp.Stream("s", budget=pp.Budget(4, 1e-6), horizon=4, queries=[query]).plan()
    for batch in (pd.DataFrame({"price": pd.Series(values, dtype=object)}), [{"price": value} for value in values]):
        assert Live(plan, NoNoise()).tick(batch)["s"]["estimate"].item() == 3.5
