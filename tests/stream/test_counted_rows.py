"""Rows that stand for many events (`count_column`): as if each event had come by itself, and one of them is hidden."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pianissimo as pp
from pianissimo.audit.replayed import replay_report
from pianissimo.audit.report import AuditVerdict
from pianissimo.errors import InputError, ParameterError
from pianissimo.labels import count_labels
from pianissimo.stream import Live
from pianissimo.stream.live_core import LiveCore
from pianissimo.testing import NoNoise, SeededNoise

pytestmark = pytest.mark.filterwarnings("ignore::pianissimo.errors.BudgetWarning")

LISTED = ["a", "b", "c"]
QUERIES: dict[str, dict[str, Any]] = {
    "count": {"kind": pp.Count},
    "count where": {"kind": pp.Count, "where": "place = 'x'"},
    "known": {"kind": pp.Histogram, "key": "label", "domain": LISTED},
    "unknown": {"kind": pp.Histogram, "key": "label", "other": True, "where": "place = 'x'"},
    "lists": {"kind": pp.Histogram, "key": "labels", "max_keys_per_event": 2},
    "pairs": {"kind": pp.Histogram, "key": ["label", "place"]},
    "most": {"kind": pp.MaxFrequency, "key": "label", "domain": LISTED},
    "top": {"kind": pp.TopK, "key": "label", "k": 2},
    "any": {"kind": pp.TopK, "key": "labels", "k": 2, "max_keys_per_event": None},
}
ROW = st.fixed_dictionaries(
    {
        "label": st.sampled_from([*LISTED, "d"]),
        "labels": st.lists(st.sampled_from(LISTED), max_size=4),
        "place": st.sampled_from(["x", "y"]),
        "n": st.integers(0, 40),
    }
)
SCHEMA: dict[str, Any] = {"label": pl.String, "labels": pl.List(pl.String), "place": pl.String, "n": pl.Int64}


def queries(**more: Any) -> list[Any]:
    asked = []
    for name, fields in QUERIES.items():
        given = dict(fields)
        asked.append(given.pop("kind")(name.replace(" ", "_"), **given, **more))
    return asked


def stream(*asked: Any, **changes: Any) -> pp.Stream:
    return pp.Stream("web", **{"budget": pp.Budget(30, 1e-3), "horizon": 4, "queries": asked, **changes})


@pytest.fixture(scope="module")
def plans() -> tuple[Any, Any]:
    return stream(*queries(count_column="n")).plan(), stream(*queries()).plan()


def told(plan: Any, ticks: list[pl.DataFrame]) -> list[dict[str, str]]:
    core = LiveCore(plan, lambda every: SeededNoise(3))
    found = []
    for tick, batch in enumerate(ticks, 1):
        core.update(core.inputs(batch, tick, drop_bad_rows=False))
        found.append({name: table.write_json() for name, table in core.release(tick).items()})
    return found


@given(st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=3))
@settings(max_examples=5, deadline=None)
def test_a_row_adds_what_its_events_would_add(plans: tuple[Any, Any], ticks: list[list[dict[str, Any]]]) -> None:
    """Byte for byte, with noise: also which labels were ever seen."""
    counted = [pl.DataFrame(rows, schema=SCHEMA) for rows in ticks]
    each = [pl.DataFrame([row for row in rows for _ in range(row["n"])], schema=SCHEMA) for rows in ticks]
    assert told(plans[0], counted) == told(plans[1], each)


@pytest.mark.parametrize("bad", [None, -1, 0.5, float("nan"), "three", True])
def test_what_is_no_number_of_events_adds_nothing_or_is_refused(bad: object) -> None:
    rows = [{"label": "a", "n": 7}, {"label": "a", "n": bad}, {"label": "b", "n": 0}]
    asked = [pp.Count("count", count_column="n"), pp.Histogram("known", key="label", domain=LISTED, count_column="n")]
    release = Live(stream(*asked).plan(), NoNoise()).tick(rows)
    assert release["count"]["estimate"].item() == 7
    assert release["known"]["estimate"].to_list() == [7, 0, 0]
    for query in (
        pp.Count("count", count_column="n", nulls="refuse"),
        pp.TopK("top", key="label", k=1, count_column="n", nulls="refuse"),
    ):
        live = Live(stream(query, pp.Count("rows")).plan(), NoNoise())
        with pytest.raises(InputError, match="'n' must hold whole numbers of at least 0"):
            live.tick(rows)
        assert live.tick(rows, drop_bad_rows=True)["rows"]["estimate"].item() == 2


def test_many_events_of_one_row_are_exact() -> None:
    rows = [{"label": "a", "n": 2**30}] * 5
    release = Live(stream(*queries(count_column="n")[:1]).plan(), NoNoise()).tick(rows)
    assert release["count"]["estimate"].item() == 5 * 2**30


@pytest.fixture(scope="module")
def audited() -> Any:
    shown = [query for query in queries(count_column="n") if query.name in ("count", "known", "most", "top")]
    return stream(*shown).plan()


def test_one_event_moves_one(audited: Any) -> None:
    report = replay_report(audited, SeededNoise(5), pairs=4)
    assert report.verdict is AuditVerdict.SOUND, str(report)


def test_a_row_that_counts_for_more_than_its_events_is_caught(monkeypatch: pytest.MonkeyPatch, audited: Any) -> None:
    monkeypatch.setattr("pianissimo.queries.count.event_numbers", lambda name, frame: frame[name].cast(pl.Int64) * 2)
    report = replay_report(audited, SeededNoise(5), pairs=2)
    assert report.verdict is AuditVerdict.VIOLATION


def test_rows_with_nulls_are_refused_by_the_mechanism_itself() -> None:
    with pytest.raises(InputError, match="got nulls"):
        count_labels(pl.Series([{"key": "a", "events": 1}, None]), 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pp.Sum("x", value="v", range=(0, 1), count_column="n"), "left out for a sum"),
        (lambda: pp.Distinct("x", key="v", count_column="n"), "left out for"),
        (lambda: pp.HeavyHitters("x", key="v", count_column="n"), "left out for"),
        (lambda: pp.Count("x", nulls="refuse"), "that reads no column"),
        (lambda: pp.Count("x", count_column=""), "name of a column"),
        (lambda: pp.Count("x", count_column="n", where="n > 3"), "a column of its own"),
        (lambda: pp.Histogram("x", key="n", count_column="n"), "a column of its own"),
        (lambda: stream(pp.Count("x", count_column="n"), pp.Count("y", where="n > 3")), "must not read 'n'"),
        (lambda: stream(pp.Count("x", count_column="n"), pp.Sum("y", value="v", range=(0, 1))), "of its own"),
        (lambda: stream(pp.Count("x", count_column="n"), unit=pp.user("u")), "max_per_user"),
    ],
)
def test_what_one_event_may_move_further_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_a_plan_a_file_and_a_stored_stream_say_it(tmp_path: Path) -> None:
    (tmp_path / "web.toml").write_text(
        """
        [stream]
        name = "web"
        tick = "1h"
        horizon = 4
        epsilon = 30.0
        delta = 1e-3
        [queries.pages]
        kind = "histogram"
        key = "label"
        count_column = "n"
        """
    )
    asked = stream(pp.Histogram("pages", key="label", count_column="n"), tick="1h")
    assert pp.load(tmp_path / "web.toml").plan() == asked.plan()
    about = asked.plan().to_dict()["queries"][0]
    assert about["count_column"] == "n"
    assert about["error_about"].endswith("a row being n of them")
    assert asked.plan().price == stream(pp.Histogram("pages", key="label"), tick="1h").plan().price
    with asked.open(tmp_path / "store") as live:
        live.tick([{"label": "a", "n": 1000}])
    with asked.open(tmp_path / "store") as live:
        assert live.tick([{"label": "a", "n": 500}])["pages"]["estimate"].item() == pytest.approx(1500, abs=100)


@pytest.mark.parametrize("name", ["count", "known", "most"])
def test_one_event_more_moves_a_row_of_any_size_by_one(name: str) -> None:
    """A row of more events than can be counted is cut: dropped, one event would have moved all of its others."""
    fields = dict(QUERIES[name])
    query = fields.pop("kind")("q", count_column="n", **fields)
    plan = stream(query).plan()

    def counted(events: int) -> int:
        table = Live(plan, NoNoise()).tick([{"label": "a", "n": events}])["q"]
        return int(table["estimate"].max())  # type: ignore[arg-type]

    found = [counted(events) for events in (2**30 - 1, 2**30, 2**30 + 1, 2**40)]
    assert found == [2**30 - 1, 2**30, 2**30, 2**30]
