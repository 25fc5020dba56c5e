"""Tables about users tell the cap, and no bar claims what the cap makes untrue."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

import pianissimo as pp
from pianissimo.cli.main import cli
from pianissimo.io import read_releases
from pianissimo.io.folder import FolderSink
from pianissimo.queries.shared.query import Query
from pianissimo.stream import Live, StreamPlan
from pianissimo.stream.release import payload_of, release_of
from pianissimo.stream.source_spec import FileFormat
from pianissimo.testing import NoNoise, SeededNoise

CARRIERS = ["AA", "B6", "DL", "UA", "WN"]
QUERIES = [
    pp.Count("n"),
    pp.Sum("miles", value="miles", range=(0, 5000)),
    pp.Sum("late", value="late", range=(-60, 60)),
    pp.Histogram("by", key="carrier", domain=CARRIERS),
    pp.TopK("top", key="carrier", k=2, domain=CARRIERS),
    pp.MaxFrequency("most", key="carrier", domain=CARRIERS),
    pp.Quantiles("half", value="miles", range=(0, 5000), cells=16),
    pp.Distinct("where", key="port"),
]
ROWS = [{"plane": "n1", "carrier": "AA", "miles": 90, "late": -4, "port": "LGA"}] * 3
FORMATS = get_args(FileFormat)


def flights(*queries: Query, **unit: Any) -> StreamPlan:
    asked = queries or QUERIES
    return pp.Stream(
        "flights", unit=pp.user("plane", **unit), budget=pp.Budget(1.0, 1e-9), horizon=8, tick="1d", queries=asked
    ).plan()


@pytest.mark.parametrize(
    ("unit", "cap"),
    [
        ({"first_cap": 64}, 64),
        ({"max_events_per_user": 2}, 2),
        ({"max_events_per_user": 2, "within": "2d", "reset": False}, 2),
    ],
)
def test_every_table_has_the_cap_after_its_bars(unit: dict[str, Any], cap: int) -> None:
    release = Live(flights(**unit), NoNoise()).tick(ROWS)
    assert set(release) >= {query.name for query in QUERIES}
    for name, table in release.items():
        ends = table.columns.index("cap")
        assert table.columns[ends - 3 :] == ["estimate", "low", "high", "cap"], name
        assert table.schema["cap"] == pl.Int64
        assert table["cap"].to_list() == [cap] * table.height
    assert json.loads(release.to_json())["releases"]["n"][0]["cap"] == cap


def test_a_table_that_was_made_tidy_has_it_too() -> None:
    plan = flights(pp.Count("n", tidy=["non_negative"]))
    assert Live(plan, NoNoise()).tick(ROWS)["n"].columns == ["estimate", "low", "high", "cap", "tidy"]


def test_what_rings_tells_how_often_a_user_counts_in_a_tick() -> None:
    late, ports = pp.Alarm("late", where="late > 0"), pp.Trending("ports", key="port", max_keys_per_user=3)
    release = Live(flights(late, ports), NoNoise()).tick(ROWS)
    assert release["late"].columns == ["estimate", "low", "high", "cap"]
    many = [{"plane": f"n{number}", "late": 5, "port": "JFK"} for number in range(5000)]
    release = Live(flights(late, ports), NoNoise()).tick(many)
    assert release["late"]["cap"].to_list() == [1]
    assert release["ports"]["cap"].to_list() == [3]


def test_the_high_end_is_open_unless_the_cut_is_bounded() -> None:
    opened = Live(flights(), NoNoise()).tick(ROWS)
    for name in ("n", "miles", "by", "top", "most", "where"):
        assert opened[name]["high"].null_count() == opened[name].height, name
        assert opened[name]["low"].null_count() == 0
    # What is cut off of a sum of both signs may be missing on either side.
    assert opened["late"].select("low", "high").null_count().row(0) == (1, 1)
    # Quantiles are of the events that counted, and the plan says so.
    assert opened["half"].select("low", "high").null_count().row(0) == (0, 0)
    for most in (64, 1000):
        closed = Live(flights(first_cap=64, most_events_per_user=most), NoNoise()).tick(ROWS)
        assert all(table.select("low", "high").null_count().row(0) == (0, 0) for table in closed.values())
    # A fixed cap says nothing of those above it; below it there is nothing to cut off.
    fixed = Live(flights(max_events_per_user=2, most_events_per_user=3), NoNoise()).tick(ROWS)
    assert fixed["n"]["high"].to_list() == [None]
    below = Live(flights(max_events_per_user=3, most_events_per_user=3), NoNoise()).tick(ROWS)
    assert below["n"]["high"].null_count() == 0


def test_where_events_are_taken_back_both_ends_are_open() -> None:
    plan = flights(pp.Count("n"), weight="change", first_cap=64)
    table = Live(plan, NoNoise()).tick([{"plane": "n1", "change": -1}])["n"]
    assert table.rows() == [(-1, None, None, 64)]


@pytest.mark.parametrize(
    "unit", [{"first_cap": 64}, {"first_cap": 64, "weight": "change"}], ids=["events", "taken back"]
)
def test_plans_say_which_ends_are_open_as_the_bars_are(unit: dict[str, Any]) -> None:
    for query in QUERIES[:6]:
        plan = flights(query, **unit)
        table = Live(plan, NoNoise()).tick([row | {"change": 1} for row in ROWS])[query.name]
        words = "at both ends" if table["low"].null_count() else "on that side"
        assert f"bars are open {words}" in plan.to_dict()["queries"][0]["words"][-1], query.name


def test_plans_say_what_their_error_is_about() -> None:
    plan = flights()
    told = {each["name"]: each for each in plan.to_dict()["queries"]}
    assert all("up to the cap of 16 a user" in each["error_about"] for each in told.values())
    assert all("up to the cap of 16 a user" in each["words"][0] for each in told.values())
    assert all("what the cap cuts off is missing" in told[name]["words"][-1] for name in told if name != "half")
    for name, words in {"top": "ranks are those", "half": "quantiles are those", "most": "count is that"}.items():
        assert f"{words} of capped events" in told[name]["words"][-1]
    assert "up to the cap" not in str(flights(max_events_per_user=3, most_events_per_user=3))


@pytest.mark.parametrize(
    ("unit", "numbers"),
    [
        ({"first_cap": 2}, [1, 2, 2, 2]),
        ({"max_events_per_user": 2}, [1, 2, 2, 2]),
        # Pairs of a user and a period of two ticks.
        ({"max_events_per_user": 2, "within": "2d", "reset": False}, [1, 2, 3, 4]),
    ],
)
def test_a_release_tells_how_many_users_are_above_the_cap(unit: dict[str, Any], numbers: list[int]) -> None:
    live = Live(flights(**unit), NoNoise())
    again = [row | {"plane": "n2"} for row in ROWS[:2]]
    tables = [live.tick([*ROWS, *again])["above_cap"] for _ in range(4)]
    assert [table["estimate"].item() for table in tables] == numbers
    for table in tables:
        assert table.columns == ["estimate", "low", "high", "cap"]
        assert table["cap"].item() == 2
        assert table["low"].item() < table["estimate"].item() < table["high"].item()


@pytest.mark.usefixtures("repeated")
def test_users_above_the_cap_cost_a_twentieth_and_their_bars_hold() -> None:
    plan = flights(pp.Count("n"), max_events_per_user=16)
    counts, above = plan.queries[0].mechanism.counters
    assert above.loss == (counts.loss + above.loss) / 20
    assert plan.price.epsilon <= 1.0
    busy = pl.DataFrame({"plane": np.repeat(np.arange(500), 20)})
    held = []
    for seed in range(60):
        row = Live(plan, SeededNoise(seed)).tick(busy)["above_cap"].row(0, named=True)
        held.append(row["low"] <= 500 <= row["high"])
    # Of 60 bars of 95 %, whose noise is fixed.
    assert sum(held) >= 50


def test_what_has_no_cap_of_events_tells_none_above() -> None:
    assert list(Live(flights(pp.Distinct("where", key="port")), NoNoise()).tick(ROWS)) == ["where"]
    assert list(Live(flights(pp.Users("planes")), NoNoise()).tick(ROWS)) == ["planes"]


@pytest.mark.parametrize("form", FORMATS)
def test_open_ends_go_through_payloads_folders_and_files(tmp_path: Path, form: FileFormat) -> None:
    plan = flights(first_cap=64)
    live = Live(plan, NoNoise())
    folder = FolderSink(tmp_path / "run", plan=plan.to_dict(), format=form)
    sink = FolderSink(tmp_path / "sink", plan=plan.to_dict(), format=form)
    for tick in (1, 2):
        release = live.tick(ROWS)
        folder.write(release)
        payload = payload_of(release, stream="flights", incarnation=b"")
        sink.send(b"", tick, payload)
        again = release_of(payload)
        assert all(again[name].equals(table) for name, table in release.items())
    for place in ("run", "sink"):
        found = read_releases(tmp_path / place)
        assert found["late"].rows() == [(1, -12.0, None, None, 64), (2, -24.0, None, None, 64)]
        assert found["by"]["high"].null_count() == 2 * len(CARRIERS)


def test_people_read_or_more(tmp_path: Path) -> None:
    plan = flights(pp.Count("n"), pp.Sum("late", value="late", range=(-60, 60)))
    release = Live(plan, NoNoise()).tick(ROWS)
    page = release._repr_html_()
    assert "or more" in page
    assert "or less" in page
    assert "null" not in page
    FolderSink(tmp_path / "out", plan=plan.to_dict()).write(release)
    shown = CliRunner().invoke(cli, ["releases", str(tmp_path / "out")])
    assert shown.exit_code == 0, shown.output
    assert "or more" in shown.output
    assert "or less" in shown.output
    assert "not shown" not in shown.output
    as_json = CliRunner().invoke(cli, ["releases", str(tmp_path / "out"), "--query", "n", "--json"]).output
    assert json.loads(as_json)["release"][0]["high"] is None


def zipf_flights() -> Iterator[pl.DataFrame]:
    """A year of 4,000 planes, the busiest with 600 flights: 328,000 in all, spread over 366 days."""
    random = np.random.default_rng(15)
    flown = np.maximum(1, 600 * np.arange(1, 4001) ** -0.28).astype(np.int64)
    plane = random.permutation(np.repeat(np.arange(4000), flown))
    # Busy planes fly for few carriers: what a cap cuts off changes who comes first.
    carrier = np.array(CARRIERS)[np.where(plane < 800, plane % 2, plane % 5)]
    day = np.sort(random.integers(0, 366, size=len(plane)))
    frame = pl.DataFrame({"plane": plane, "carrier": carrier, "day": day})
    for number in range(366):
        yield frame.filter(pl.col("day") == number)


def false_ends(**unit: Any) -> tuple[int, int, int]:
    """How many ends of bars claim what is not so, low and high, of how many bars."""
    queries = [pp.Count("n"), pp.Histogram("by", key="carrier", domain=CARRIERS)]
    stream = pp.Stream(
        "flights", unit=pp.user("plane", **unit), budget=pp.Budget(1.0, 1e-6), horizon=366, tick="1d", queries=queries
    )
    live = Live(stream.plan(), SeededNoise(1))
    truth, low, high, bars = dict.fromkeys(CARRIERS, 0), 0, 0, 0
    for batch in zipf_flights():
        release = live.tick(batch)
        for key, count in batch["carrier"].value_counts().rows():
            truth[key] += count
        rows = [{"true": sum(truth.values()), **release["n"].row(0, named=True)}]
        rows += [{"true": truth[row["key"]], **row} for row in release["by"].to_dicts()]
        bars += len(rows)
        low += sum(row["low"] is not None and row["low"] > row["true"] for row in rows)
        high += sum(row["high"] is not None and row["high"] < row["true"] for row in rows)
    return low, high, bars


@pytest.mark.usefixtures("repeated")
def test_no_bar_of_planes_claims_what_is_not_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong number of the issue: 243,481 [229,899, 257,063] where 328,521 was true."""
    low, high, bars = false_ends()
    assert high == 0
    assert low <= 0.05 * bars
    monkeypatch.setattr(Query, "open_ends", lambda *_: ())
    _, high, bars = false_ends(max_events_per_user=64)
    assert high > bars / 10
