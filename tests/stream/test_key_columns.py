"""Labels of several columns, and of texts, whole numbers, booleans and dates: one label a row, whatever the source."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import pianissimo as pp
from pianissimo.cli.main import cli
from pianissimo.io.folder import read_folder
from pianissimo.io.runs import run_file
from pianissimo.queries import KINDS
from pianissimo.queries.shared.columns import RELEASED_COLUMNS, join_labels, labels_in, split_labels
from pianissimo.stream import Live
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.release import bare
from pianissimo.stream.spec import load_spec
from pianissimo.testing import NoNoise

BOTH = ["carrier", "dest"]
DOMAIN = [("A", "x"), ("A", "y"), ("B", "x")]

texts = st.text(alphabet=st.sampled_from("ab\x1e\x1f01ü\\ "), max_size=6)
labels = st.one_of(st.none(), texts)


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=8))
def test_no_two_rows_have_one_label_and_every_label_gives_its_row_back(rows: list[tuple[str | None, ...]]) -> None:
    parts = [pl.Series([row[place] for row in rows], dtype=pl.String) for place in range(3)]
    joined = join_labels(parts)
    assert joined.is_null().to_list() == [None in row for row in rows]
    whole = [row for row in rows if None not in row]
    assert len(set(joined.drop_nulls().to_list())) == len(set(whole))
    found = split_labels(joined.drop_nulls(), ("one", "two", "three"))
    assert list(zip(*(part.to_list() for part in found), strict=True)) == whole


def test_joined_labels_are_in_the_order_of_their_parts() -> None:
    rows = [("a", "z"), ("a b", "a"), ("a", ""), ("", "b")]
    joined = join_labels([pl.Series([row[place] for row in rows]) for place in range(2)])
    ordered = [each.to_list() for each in split_labels(joined.sort(), BOTH)]
    assert list(zip(*ordered, strict=True)) == sorted(rows)


def stream(*queries: Any, **fields: Any) -> pp.Stream:
    return pp.Stream("s", budget=pp.Budget(4.0, 1e-4), horizon=8, queries=queries, **fields)


def flights(tick: int = 1) -> pl.DataFrame:
    rows = range(600)
    return pl.DataFrame(
        {
            "who": rows,
            "carrier": ["AB"[row % 2] for row in rows],
            "dest": ["xyx"[row % 3] for row in rows],
            "delay": [(row * tick) % 11 for row in rows],
        }
    )


TRUTH = {("A", "x"): 200, ("A", "y"): 100, ("B", "x"): 200, ("B", "y"): 100}

OF_EVENTS: list[Any] = [
    pp.Histogram("q", key=BOTH),
    pp.Histogram("q", key=BOTH, domain=DOMAIN),
    pp.TopK("q", key=BOTH, k=2),
    pp.TopK("q", key=BOTH, k=2, domain=DOMAIN),
    pp.HeavyHitters("q", key=BOTH),
    pp.Trending("q", key=BOTH),
    pp.Trending("q", key=BOTH, domain=DOMAIN),
]


@pytest.mark.parametrize(
    "query", OF_EVENTS, ids=lambda query: f"{query.kind} {query.domain if hasattr(query, 'domain') else ''}"
)
def test_every_query_with_a_key_releases_its_columns(query: Any) -> None:
    table = bare(Live(stream(query).plan(), NoNoise()).tick(flights())["q"])
    assert table.columns[:4] == ["carrier", "dest", "estimate", "low"]
    assert table.height
    for row in table.iter_rows(named=True):
        assert row["estimate"] == pytest.approx(TRUTH[row["carrier"], row["dest"]], abs=20)


OF_USERS: list[Any] = [
    pp.Histogram("q", key=BOTH, domain=DOMAIN),
    pp.TopK("q", key=BOTH, k=2, domain=DOMAIN),
    pp.Sum("q", value="delay", range=(0, 10), key=BOTH, domain=DOMAIN),
    pp.Mean("q", value="delay", range=(0, 10), key=BOTH, domain=DOMAIN),
    pp.Trending("q", key=BOTH, domain=DOMAIN),
]


@pytest.mark.parametrize("query", OF_USERS, ids=lambda query: query.kind)
def test_of_users_too(query: Any) -> None:
    asked = stream(query, unit=pp.user("who", max_events_per_user=1))
    table = bare(Live(asked.plan(), NoNoise()).tick(flights())["q"])
    assert table.columns[:2] == BOTH
    assert "cap" in table.columns
    assert set(table.select(BOTH).iter_rows()) <= set(TRUTH)


def test_what_has_no_labels_in_its_table_reads_several_columns_as_one() -> None:
    largest = pp.MaxFrequency("q", key=BOTH, domain=DOMAIN)
    found = Live(stream(largest).plan(), NoNoise()).tick(flights())["q"]
    assert found["estimate"].item() == 200
    distinct = stream(pp.Distinct("q", key=BOTH), unit=pp.user("who", max_events_per_user=1))
    assert Live(distinct.plan(), NoNoise()).tick(flights())["q"]["estimate"].item() == 4


def test_a_row_with_a_missing_part_follows_the_rule_of_nulls() -> None:
    rows = [{"carrier": "A", "dest": None}] * 300 + [{"carrier": "A", "dest": "x"}] * 300
    by_rule = {
        rule: bare(Live(stream(pp.Histogram("q", key=BOTH, nulls=rule)).plan(), NoNoise()).tick(rows)["q"])
        for rule in ("skip", "label")
    }
    assert by_rule["skip"].select(BOTH).rows() == [("A", "x")]
    assert by_rule["label"].select(BOTH).rows() == [("A", "(null)"), ("A", "x")]
    with pytest.raises(pp.InputError, match="'carrier' and 'dest' must not be null"):
        stream(pp.Histogram("q", key=BOTH, nulls="refuse")).start().tick(rows)
    listed = pp.Histogram("q", key=BOTH, nulls="label", domain=[("A", "(null)")])
    assert Live(stream(listed).plan(), NoNoise()).tick(rows)["q"]["estimate"].item() == 300


def test_parts_that_are_too_long_together_are_no_label() -> None:
    rows = [{"carrier": "A" * 200, "dest": "x" * 200}, {"carrier": "A" * 100, "dest": "x" * 100}]
    found = labels_in(tuple(BOTH), pl.DataFrame(rows), label_nulls=True)
    assert [part.to_list() for part in split_labels(found, BOTH)] == [["(null)", "A" * 100], ["(null)", "x" * 100]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"key": []}, "empty list"),
        ({"key": ["a", "a"]}, "different columns"),
        ({"key": ["a", ""]}, "name of a column"),
        ({"key": ["a", "estimate"]}, "names of their own"),
        ({"key": BOTH, "domain": ["x"]}, "lists of 2 labels"),
        ({"key": BOTH, "domain": [("x", "y", "z")]}, "lists of 2 labels"),
        ({"key": BOTH, "domain": pp.Domain(["x"])}, "lists of 2 labels"),
        ({"key": BOTH, "max_keys_per_event": 2}, "max_keys_per_event must be 1"),
    ],
)
def test_keys_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        pp.Histogram("q", **fields)


def test_one_column_in_a_list_is_that_column() -> None:
    assert pp.Histogram("q", key=["a"]) == pp.Histogram("q", key="a")
    assert pp.Histogram("q", key=("a", "b")) == pp.Histogram("q", key=["a", "b"])


def test_no_released_column_is_left_out_of_the_reserved_names() -> None:
    queries = [pp.Histogram("q", key="carrier", tidy="non_negative"), pp.Count("n")]
    asked = stream(*queries, unit="event", origin="2026-01-01", tick="1h")
    columns = {column for table in asked.start().tick(flights()).values() for column in table.columns}
    assert columns <= {*RELEASED_COLUMNS}
    assert {"key"} < {name for kind in KINDS for name in kind.__dataclass_fields__}


SPEC = """
[stream]
name = "s"
horizon = 4
tick = "1h"
origin = 2026-01-01T00:00:00Z
epsilon = 4
delta = 1e-4

[queries.routes]
kind = "histogram"
key = ["carrier", "dest"]

[queries.delays]
kind = "mean"
value = "delay"
range = [0, 10]
key = ["carrier", "dest"]
domain = [["A", "x"], ["B", "x"]]

[source]
path = "events.csv"
time = "time"
"""


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_files_of_releases_have_the_columns(form: Any, tmp_path: Path) -> None:
    times = [f"2026-01-01T{hour:02d}:00:00" for hour in (0, 1, 2)]
    whole = pl.concat([flights(hour + 1).with_columns(time=pl.lit(time)) for hour, time in enumerate(times)])
    whole.write_csv(tmp_path / "events.csv")
    (tmp_path / "stream.toml").write_text(SPEC)
    run_file(load_spec(tmp_path / "stream.toml"), tmp_path / "out", format=form)
    tables = read_folder(tmp_path / "out")
    assert set(tables["routes"].select(BOTH).rows()) == set(TRUTH)
    assert set(tables["delays"].select(BOTH).rows()) == {("A", "x"), ("B", "x")}
    shown = CliRunner().invoke(cli, ["releases", str(tmp_path / "out"), "--json", "--last", "1"])
    assert shown.exit_code == 0, shown.output
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert {(row["carrier"], row["dest"]) for told in rows for row in told["release"]} <= set(TRUTH)
    for command in (["releases", str(tmp_path / "out")], ["plan", str(tmp_path / "stream.toml")]):
        assert CliRunner().invoke(cli, command).exit_code == 0


def test_durable_and_in_memory_windows_have_the_columns(tmp_path: Path) -> None:
    asked = stream(pp.Histogram("routes", key=BOTH), pp.Mean("delays", value="delay", range=(0, 10), key=BOTH))
    with asked.open(tmp_path / "state") as durable:
        for tick in (1, 2, 3):
            durable.tick(flights(tick))
        own = durable.window(2)
    with asked.open(tmp_path / "state") as durable:
        assert_frame_equal(durable.window(2)["delays"], own["delays"])
        last = durable.tick(flights(4))
    stored = pp.read_releases(tmp_path / "state")
    for name, table in last.items():
        assert_frame_equal(stored[name].filter(tick=4).select(table.columns), table)
        assert table.columns[:2] == BOTH
    # From outside a window is the difference of two stored totals.
    routes = pp.read_releases(tmp_path / "state", window=2)["routes"].filter(tick=3)
    assert routes.select(BOTH).rows() == own["routes"].select(BOTH).rows()
    assert routes["estimate"].to_list() == pytest.approx(own["routes"]["estimate"].to_list(), abs=1)


# One label a row, whatever the source

ROWS: list[dict[str, Any]] = [
    {"day": dt.date(2026, 1, 31), "number": 7, "flag": True, "word": "ü"},
    {"day": dt.date(2025, 12, 1), "number": -12, "flag": False, "word": ""},
]
EXPECTED = {
    "day": ["2026-01-31", "2025-12-01"],
    "number": ["7", "-12"],
    "flag": ["true", "false"],
    "word": ["ü", ""],
}
KEYS_SPEC = """
[stream]
name = "s"
horizon = 1
tick = "1h"
origin = 2026-01-01T00:00:00Z
epsilon = 20
delta = 1e-2
"""


def keyed_spec(source: str) -> str:
    asked = "".join(f'[queries.{name}]\nkind = "histogram"\nkey = "{name}"\n' for name in EXPECTED)
    return f'{KEYS_SPEC}\n{asked}\n[source]\npath = "{source}"\ntime = "time"\n'


@pytest.mark.parametrize("source", ["events.csv", "events.jsonl", "events.parquet"])
def test_files_give_the_labels_that_python_does(source: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(ROWS * 40).with_columns(time=pl.lit("2026-01-01T00:30:00"))
    if source.endswith("csv"):
        frame.write_csv(tmp_path / source, quote_style="non_numeric")
    elif source.endswith("jsonl"):
        frame.write_ndjson(tmp_path / source)
    else:
        frame.write_parquet(tmp_path / source)
    (tmp_path / "stream.toml").write_text(keyed_spec(source))
    spec = load_spec(tmp_path / "stream.toml")
    run_file(spec, tmp_path / "out")
    tables = read_folder(tmp_path / "out")
    # Of days pandas makes date-times, which are refused as labels: they have many texts. Its objects are days.
    of_pandas = frame.to_pandas().assign(day=[row["day"] for row in ROWS * 40])
    for batch in (frame, ROWS * 40, of_pandas):
        release = Live(spec.stream.plan(), NoNoise()).tick(batch)
        for name, expected in EXPECTED.items():
            assert sorted(release[name]["key"].to_list()) == sorted(expected)
            assert sorted(tables[name]["key"].to_list()) == sorted(expected)


def test_domains_may_be_given_as_the_values_are() -> None:
    given = {"day": [row["day"] for row in ROWS], "number": [7, -12], "flag": [True, False], "word": ["ü", ""]}
    for name, domain in given.items():
        query = pp.Histogram("q", key=name, domain=domain)
        release = Live(stream(query).plan(), NoNoise()).tick(ROWS * 3)
        assert release["q"]["estimate"].to_list() == [3, 3]
    both = pp.Histogram("q", key=["day", "number"], domain=[(ROWS[0]["day"], 7)])
    assert Live(stream(both).plan(), NoNoise()).tick(ROWS * 3)["q"].select("day", "number").rows() == [
        ("2026-01-31", "7")
    ]


def test_numbers_with_a_point_are_no_labels() -> None:
    """1.0 and 1 would be one label in a table and two in a file of texts, so that a column of them is refused."""
    with pytest.raises(pp.InputError, match="cast it to texts, or round it to whole numbers"):
        stream(pp.Histogram("q", key="k")).start().tick(pl.DataFrame({"k": [1.0, None]}))
    with pytest.raises(pp.InputError, match="cast it to dates or texts first"):
        stream(pp.Histogram("q", key="k")).start().tick(pl.DataFrame({"k": [dt.datetime(2026, 1, 1)]}))
    for key, domain in ("k", [0.5, 1.5]), (["k", "j"], [(0.5, "a")]):
        with pytest.raises(pp.ParameterError, match="got float; write texts"):
            pp.Histogram("q", key=key, domain=domain)  # type: ignore[arg-type]
    with pytest.raises(pp.ParameterError, match="got nulls"):
        pp.Histogram("q", key="k", domain=["a", None])  # type: ignore[list-item]


@pytest.mark.parametrize("unit", ["event", pp.user("who", max_events_per_user=3)])
@pytest.mark.parametrize(
    "asks",
    [
        pp.Mean("q", value="v", range=(0, 10), key="tags", domain=["a", "b"]),
        pp.Sum("q", value="v", range=(0, 10), key="tags"),
        pp.Histogram("q", key="tags", domain=["a", "b"]),
        pp.Trending("q", key="tags", domain=["a", "b"]),
    ],
    ids=lambda query: query.kind,
)
def test_one_label_of_an_event_counts_beside_a_query_that_reads_them_all(unit: Any, asks: Any) -> None:
    """Lists of labels are read once for all queries; who counts one label an event takes the first."""
    both = pp.Histogram("all", key="tags", domain=["a", "b"], max_keys_per_event=2)
    stream = pp.Stream("s", unit=unit, budget=pp.Budget(1, 1e-9), horizon=4, queries=[asks, both])
    core = LiveCore(stream.plan(), lambda every: NoNoise())
    rows = [{"who": who, "tags": ["b", "a"], "v": 4} for who in "xyz"]
    core.update(core.inputs(rows, 1, drop_bad_rows=False))
    tables = core.release(1)
    assert dict(tables["all"].select("key", "estimate").iter_rows()) == {"a": 3, "b": 3}
    shown = dict(tables["q"].select("key", "estimate").iter_rows())
    assert not shown.get("a")
    if asks.kind == "histogram":
        assert shown == {"a": 0, "b": 3}
