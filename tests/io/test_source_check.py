"""`pianissimo check` finds each fault that is planted in a source, says which key to change, and releases nothing."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result

from pianissimo.cli.main import cli
from pianissimo.errors import SpecError
from pianissimo.io import source_check
from pianissimo.io.source_check import NOT_PRIVATE, check_source
from pianissimo.io.sources.source_records import Records
from pianissimo.stream.spec import load_spec

DOCS = Path(__file__).parents[2] / "docs"
SPEC = """
[stream]
name = "shop"
epsilon = 1.0
delta = 1e-9
tick = "1h"
horizon = "24h"
origin = 2026-01-05T00:00:00Z
unit = { user = "customer" }
[source]
path = "events.csv"
time = "time"
[queries.n]
kind = "count"
[queries.drugs]
kind = "histogram"
key = "drug"
domain = ["aspirin", "ibuprofen"]
[queries.revenue]
kind = "sum"
value = "price"
range = [0, 50]
"""
ROWS = [
    {"time": f"2026-01-05T{hour:02}:{minute:02}:00Z", "customer": f"c{minute}", "drug": "aspirin", "price": "12.50"}
    for hour in range(24)
    for minute in (5, 25, 45)
]
Row = dict[str, str]


def write(folder: Path, rows: list[Row], sign: str = ",", spec: str = SPEC) -> Path:
    lines = [sign.join(ROWS[0]), *(sign.join(row.values()) for row in rows)]
    (folder / "events.csv").write_text("\n".join(lines) + "\n")
    (folder / "shop.toml").write_text(spec)
    return folder / "shop.toml"


def each(**change: Callable[[Row], str]) -> list[Row]:
    return [{**row, **{name: make(row) for name, make in change.items()}} for row in ROWS]


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


def epoch(row: Row) -> str:
    return str(pl.Series([row["time"]]).str.to_datetime("%Y-%m-%dT%H:%M:%SZ").dt.epoch("s").item())


PLANTED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "times are seconds since 1970": (
        lambda folder: write(folder, each(time=epoch)),
        r"source\.time_format must be .* they look like 'epoch_s'",
    ),
    "times have the day first": (
        lambda folder: write(folder, each(time=lambda row: f"05/01/2026 {row['time'][11:16]}")),
        r"source\.time_format must be .* they look like '%d/%m/%Y %H:%M'",
    ),
    "times are local, with an offset after a blank": (
        lambda folder: write(folder, each(time=lambda row: f"2026-01-05 {row['time'][11:19]} +0100")),
        r"source\.time_format must be .* they look like '%Y-%m-%d %H:%M:%S %z'",
    ),
    "all times are before the origin": (
        lambda folder: write(folder, each(time=lambda row: row["time"].replace("2026", "2025"))),
        r"stream\.origin must not be after the times of events, .* the first is 2025-01-05T00:05:00\+00:00",
    ),
    "the horizon ends before the data": (
        lambda folder: write(folder, ROWS, spec=SPEC.replace('"24h"', '"8h"')),
        r"stream\.horizon must reach over the times of events, .* the last is 2026-01-05T23:45:00\+00:00",
    ),
    "a column has another name": (
        lambda folder: write(folder, ROWS, spec=SPEC.replace('"drug"', '"Drugs"')),
        r"queries\.drugs\.key must name a column of the source, got 'Drugs'; did you mean 'drug'\?",
    ),
    "another sign is between the fields": (
        lambda folder: write(folder, ROWS, ";"),
        r"source\.delimiter must be the sign between fields; the header looks like ';'",
    ),
    "a column of numbers holds texts": (
        lambda folder: write(folder, each(price=lambda row: f"{row['price']} EUR")),
        r"queries\.revenue\.value must name a column that has numbers with a point, got 'price' with none",
    ),
    "the key is null everywhere": (
        lambda folder: write(folder, each(drug=lambda _: "")),
        r"queries\.drugs\.key must name a column that has a value in any row, got 'drug' with none",
    ),
    "the column of users is empty": (
        lambda folder: write(folder, each(customer=lambda _: "")),
        r"stream\.unit\.user must name a column that has a value in any row, got 'customer' with none",
    ),
    "fields in quotes hold line breaks": (
        lambda folder: write(folder, [*ROWS, {**ROWS[0], "drug": '"aspirin\n100 mg"'}]),
        r"source\.line_breaks must be true, got false; fields in quotes hold line breaks",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found_and_the_key_to_change_is_named(tmp_path: Path, name: str) -> None:
    plant, told = PLANTED[name]
    file = plant(tmp_path)
    ended = invoke("check", file)
    assert ended.exit_code == 2, ended.output
    faults = [line for line in ended.stdout.splitlines() if line.startswith("fault: ")]
    assert any(re.search(told, fault) for fault in faults), ended.stdout
    assert len(faults) == 1, "one fault is one fault"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.csv", "shop.toml"], "nothing is written"


def test_the_documents_list_the_faults_that_are_planted() -> None:
    text = (DOCS / "operations.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\d+\. (.*?):", text.partition("finds at least these faults")[2], re.MULTILINE)
    assert listed == list(PLANTED)


@pytest.mark.parametrize(
    ("plant", "key"),
    [
        (lambda folder: write(folder, each(time=epoch)), 'time_format = "epoch_s"'),
        (lambda folder: write(folder, ROWS, ";"), 'delimiter = ";"'),
        (
            lambda folder: write(folder, each(time=lambda row: f"05/01/2026 {row['time'][11:16]}")),
            'time_format = "%d/%m/%Y %H:%M"',
        ),
    ],
)
def test_what_a_fault_says_mends_it(tmp_path: Path, plant: Callable[[Path], Path], key: str) -> None:
    file = plant(tmp_path)
    file.write_text(SPEC.replace("[queries.n]", f"{key}\n[queries.n]"))
    assert check_source(load_spec(file))["faults"] == []
    assert invoke("run", file, "--out", tmp_path / "out", "--quiet").exit_code == 0


def test_it_shows_what_there_is_and_says_first_that_it_is_not_private(tmp_path: Path) -> None:
    rows = [*ROWS, *ROWS[:3], {**ROWS[0], "time": "late"}, {**ROWS[0], "drug": ""}]
    ended = invoke("check", write(tmp_path, rows))
    assert ended.exit_code == 0
    assert ended.stdout.startswith(NOT_PRIVATE)
    found: dict[str, Any] = json.loads(invoke("check", tmp_path / "shop.toml", "--json").stdout)
    assert found["private"] is False
    assert found["columns"] == {"time": "texts", "customer": "texts", "drug": "texts", "price": "numbers"}
    assert found["rows"] == 77
    assert (found["first_time"], found["last_time"]) == ("2026-01-05T00:05:00+00:00", "2026-01-05T23:45:00+00:00")
    assert sum(found["refused"].values()) in (1, 2)
    assert found["nulls"] == {"n": 0, "drugs": 1, "revenue": 0}
    assert found["rows_per_tick"]["smallest"] == found["rows_per_tick"]["median"] == 3
    assert found["rows_per_tick"]["empty"] == 0
    assert found["plan"].keys() == {"n", "drugs", "revenue"}
    assert found["faults"] == []


def test_it_counts_what_ranges_and_caps_cut_off(tmp_path: Path) -> None:
    """A heavy tail: user n has 600 / n events; every seventh price is far above the range."""
    rows = [
        {"time": f"2026-01-05T{place % 24:02}:00:00Z", "customer": f"c{number}", "drug": f"d{place}", "price": price}
        for number in range(1, 41)
        for place in range(600 // number)
        for price in ["1000" if place % 7 == 0 else "12.50"]
    ]
    spec = f"""{SPEC}
[queries.articles]
kind = "distinct"
key = "drug"
[queries.active]
kind = "users"
[queries.large]
kind = "sum"
value = "price"
range = [0, 50]
where = "price > 20"
"""
    found = check_source(load_spec(write(tmp_path, rows, spec=spec)))
    events = [600 // number for number in range(1, 41)]
    outside = sum(row["price"] == "1000" for row in rows)
    assert found["outside"] == {"revenue": outside, "large": outside}
    above = [
        {
            "cap": cap,
            "users": sum(each > cap for each in events),
            "events": sum(max(0, each - cap) for each in events),
        }
        for cap in (16, 64, 256, 512, 1024)
    ]
    assert [line["users"] for line in above] == [35, 9, 2, 1, 0]
    assert found["above_cap"]["n"] == found["above_cap"]["drugs"] == found["above_cap"]["revenue"] == above
    # Every label is another one, so of different values there are as many.
    assert [list(line.values()) for line in found["above_cap"]["articles"]] == [list(line.values()) for line in above]
    assert "values" in found["above_cap"]["articles"][0]
    assert "active" not in found["above_cap"], "each counts once: nothing is cut off"
    assert "of events up to the cap of 16 a user" in found["plan"]["n"][0]
    shown = " ".join(invoke("check", tmp_path / "shop.toml").stdout.split())
    assert f"above 16: 35 users, {above[0]['events']:,} events beyond; above 64: 9 users" in shown
    assert f"outside: revenue {outside}" in shown


def test_in_each_period_a_user_begins_anew(tmp_path: Path) -> None:
    unit = 'unit = { user = "customer", max_events_per_user = 2, within = "2h" }'
    spec = SPEC.replace('unit = { user = "customer" }', unit)
    found = check_source(load_spec(write(tmp_path, each(customer=lambda _: "one"), spec=spec)))
    assert found["above_cap"]["n"] == [{"cap": 2, "users": 12, "events": 12 * 4}]


def test_a_cap_that_follows_from_period_to_period_is_told_from_the_first_on(tmp_path: Path) -> None:
    spec = SPEC.replace('unit = { user = "customer" }', 'unit = { user = "customer", within = "12h" }')
    found = check_source(load_spec(write(tmp_path, each(customer=lambda _: "one"), spec=spec)))
    assert found["above_cap"]["n"][0] == {"cap": 16, "users": 2, "events": 2 * 20}
    (note,) = [note for note in found["notes"] if note.startswith("queries.n, ")]
    assert "at most 16 events a user count in each period: 2 periods of users have more, and 55.6% of all" in note
    assert note.endswith("That is the cap of the first period: it follows from period to period, and may fall too")
    assert 'within = "1d"' not in " ".join(found["notes"])


@pytest.mark.parametrize("column", ["drug", "customer"])
def test_texts_that_differ_only_by_their_unicode_form_are_noted(tmp_path: Path, column: str) -> None:
    composed, apart = "Andr\u00e9", "Andre\u0301"
    odd = each(**{column: lambda row: composed if row["time"][14] == "0" else apart})
    (note,) = [note for note in check_source(load_spec(write(tmp_path, odd)))["notes"] if "Unicode" in note]
    assert note.startswith(f"{'stream.unit.user' if column == 'customer' else 'queries.drugs.key'}: {column!r} holds")
    assert composed not in note
    assert apart not in note
    alike = each(**{column: lambda _: apart})
    assert not [note for note in check_source(load_spec(write(tmp_path, alike)))["notes"] if "Unicode" in note]


def test_refused_rows_are_told_with_their_share_and_reason(tmp_path: Path) -> None:
    rows = [{**row, "time": f"05/01/2026 {row['time'][11:16]}"} if row["time"][11:13] == "07" else row for row in ROWS]
    (note,) = [note for note in check_source(load_spec(write(tmp_path, rows)))["notes"] if "refused" in note]
    assert note.startswith("3 of 72 rows (4.2%) are refused: they are in no number, and no bar tells of it (3: column ")
    few = [*ROWS * 10, rows[7 * 3]]
    assert not [note for note in check_source(load_spec(write(tmp_path, few)))["notes"] if "refused" in note]


def test_a_forgotten_quote_is_no_line_break(tmp_path: Path) -> None:
    stray = {**ROWS[0], "drug": '"aspirin'}
    found = check_source(load_spec(write(tmp_path, [ROWS[0], stray, *ROWS[1:40], stray, *ROWS[40:]])))
    assert found["faults"] == []


def test_a_large_budget_is_noted(tmp_path: Path) -> None:
    ended = invoke("check", write(tmp_path, ROWS, spec=SPEC.replace("epsilon = 1.0", "epsilon = 40.0")))
    assert "note: epsilon is 40: above 10" in ended.stdout
    assert "Warning" not in ended.stderr


def test_local_times_with_an_offset_are_read_and_told(tmp_path: Path) -> None:
    found = check_source(load_spec(write(tmp_path, each(time=lambda row: row["time"].replace("Z", "-05:00")))))
    assert found["notes"][1] == "times have the offset -05:00, and days are those of stream.time_zone, 'UTC'"


def test_texts_that_are_no_numbers_are_told_apart_from_missing_ones(tmp_path: Path) -> None:
    odd = {5: "n/a", 25: '"1,234.50"', 45: ""}
    rows = [{**row, "price": odd[int(row["time"][14:16])]} if row["time"][11:13] == "07" else row for row in ROWS]
    found = check_source(load_spec(write(tmp_path, rows)))
    assert found["nulls"]["revenue"] == 3
    (note,) = [note for note in found["notes"] if "no number" in note]
    assert " is LOST: 2 rows hold a text that is no number in 'price', 1 of them digits " in note
    assert not [note for note in check_source(load_spec(write(tmp_path, ROWS)))["notes"] if "no number" in note]


def test_texts_that_are_no_numbers_are_found_in_all_rows_of_json_too(tmp_path: Path) -> None:
    rows = [{**row, "price": 12.5} for row in ROWS] * 20
    lines = [json.dumps(row) for row in [*rows, {**rows[0], "price": "1,234"}, {**rows[0], "price": "7.5"}]]
    (tmp_path / "events.jsonl").write_text("\n".join(lines))
    (tmp_path / "shop.toml").write_text(SPEC.replace("events.csv", "events.jsonl"))
    found = check_source(load_spec(tmp_path / "shop.toml"))
    (note,) = [note for note in found["notes"] if "no number" in note]
    assert note.startswith("queries.revenue.value: ")
    assert "1 of them digits with a comma" in note


EVENTS = SPEC.replace('unit = { user = "customer" }\n', "")


def test_what_a_range_cuts_off_is_told_as_a_part_of_the_sum(tmp_path: Path) -> None:
    prices = each(price=lambda row: "250" if row["time"][11:13] == "07" else "12.50")
    found = check_source(load_spec(write(tmp_path, prices, spec=EVENTS)))
    whole, counted = 3 * 250 + 69 * 12.5, 3 * 50 + 69 * 12.5
    assert found["cut_share"] == {"revenue": pytest.approx((counted - whole) / whole)}
    (note,) = [note for note in found["notes"] if "queries.revenue.range" in note]
    assert "3 of 72 rows lie outside 0 .. 50 " in note
    assert "the sum is 37.2% below that of the values as they are" in note
    shown = " ".join(invoke("check", tmp_path / "shop.toml").stdout.split())
    assert "cut_share: revenue -37.2%" in shown
    whole_range = check_source(load_spec(write(tmp_path, ROWS, spec=EVENTS)))
    assert whole_range["cut_share"] == {"revenue": 0.0}
    assert not [note for note in whole_range["notes"] if ".range" in note]


def test_an_error_that_is_large_beside_all_there_is_is_told(tmp_path: Path) -> None:
    few = check_source(load_spec(write(tmp_path, ROWS, spec=EVENTS)))
    (note,) = [note for note in few["notes"] if note.startswith("queries.n: ")]
    assert re.search(r"its error, [0-9.]+, is [0-9]+% of all that there is to count, 72\. Less noise: fewer", note)
    many = check_source(load_spec(write(tmp_path, ROWS * 100, spec=EVENTS)))
    assert not [note for note in many["notes"] if note.startswith("queries.n: ")]
    of_users = check_source(load_spec(write(tmp_path, ROWS * 100)))
    # Of three customers the first 16 events count.
    (note,) = [note for note in of_users["notes"] if note.startswith("queries.n: ")]
    assert "is more than all that its first cap lets through, 48. Less noise: " in note
    assert 'a smaller cap (max_events_per_user), within = "1d", ' in note


def test_ranks_that_are_large_beside_all_there_are_is_told(tmp_path: Path) -> None:
    spec = (
        EVENTS
        + '[queries.middle]\nkind = "quantiles"\nvalue = "price"\nrange = [0, 50]\nwhere = "drug = \'aspirin\'"\n'
    )
    found = check_source(load_spec(write(tmp_path, [*ROWS, *each(price=lambda _: "n/a")], spec=spec)))
    (note,) = [note for note in found["notes"] if note.startswith("queries.middle: ")]
    number = sum(1 for row in ROWS if row["drug"] == "aspirin")
    assert f" ranks, is more than all that there is to count, {number}. Less noise: fewer" in note
    many = check_source(load_spec(write(tmp_path, ROWS * 100, spec=spec)))
    assert not [note for note in many["notes"] if note.startswith("queries.middle: ")]


def test_labels_that_all_lie_below_their_threshold_are_told(tmp_path: Path) -> None:
    spec = EVENTS.replace('domain = ["aspirin", "ibuprofen"]\n', "")
    found = check_source(load_spec(write(tmp_path, ROWS, spec=spec)))
    (note,) = [note for note in found["notes"] if note.startswith("queries.drugs: ")]
    assert re.search("no label would be shown: the largest has 72 events, and labels appear from about [0-9]+ on", note)
    found = check_source(load_spec(write(tmp_path, ROWS * 10, spec=spec)))
    assert not [note for note in found["notes"] if note.startswith("queries.drugs: ")]


def test_ticks_without_rows_are_told(tmp_path: Path) -> None:
    found = check_source(load_spec(write(tmp_path, ROWS[:3])))
    assert found["rows_per_tick"] == {"ticks": 24, "empty": 23, "smallest": 0, "median": 0, "largest": 3}


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_other_files_and_folders_are_looked_at(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    for name, part in (("a", ROWS[:30]), ("b", ROWS[30:])):
        table = pl.DataFrame(part).with_columns(pl.col("price").cast(pl.Float64))
        if form == "jsonl":
            table.write_ndjson(folder / f"{name}.jsonl")
        else:
            table.with_columns(time=pl.col("time").str.to_datetime("%Y-%m-%dT%H:%M:%SZ")).write_parquet(
                folder / f"{name}.parquet"
            )
    (tmp_path / "shop.toml").write_text(SPEC.replace("events.csv", "events"))
    found = check_source(load_spec(tmp_path / "shop.toml"))
    assert (found["rows"], found["refused"], found["faults"]) == (72, {}, [])
    assert found["columns"]["time"] == "date-times"
    assert found["columns"]["price"] == "numbers"


def test_numbers_of_parquet_are_told_to_be_times(tmp_path: Path) -> None:
    table = pl.DataFrame(ROWS).with_columns(
        pl.col("price").cast(pl.Float64), time=pl.Series(map(int, map(epoch, ROWS)))
    )
    table.write_parquet(tmp_path / "events.parquet")
    (tmp_path / "shop.toml").write_text(SPEC.replace("events.csv", "events.parquet"))
    (fault,) = check_source(load_spec(tmp_path / "shop.toml"))["faults"]
    assert "they look like 'epoch_s'" in fault


def test_of_a_source_that_cannot_be_read_no_rows_are_told(tmp_path: Path) -> None:
    """They were 0, in 24 empty ticks, although nobody had counted them."""
    frame = pl.DataFrame(ROWS).with_columns(pl.col("time").str.to_datetime(time_zone="UTC"), drug=pl.lit(1.5))
    frame.write_parquet(tmp_path / "events.parquet")
    (tmp_path / "shop.toml").write_text(SPEC.replace("events.csv", "events.parquet"))
    found = check_source(load_spec(tmp_path / "shop.toml"))
    assert len(found["faults"]) == 1
    assert found["columns"]["drug"] == "numbers"
    assert (found["rows"], found["rows_per_tick"], found["nulls"], found["above_cap"]) == (None, None, {}, {})
    shown = CliRunner().invoke(cli, ["check", str(tmp_path / "shop.toml")])
    assert shown.exit_code == 2
    assert "rows" not in shown.output.partition("fault: ")[0]


def test_labels_that_no_domain_lists_are_counted_and_told_where_they_are_all(tmp_path: Path) -> None:
    """A column of 0 and 1 holds none of the labels true and false: counts of zero, and nobody would know why."""
    flags = '[queries.flags]\nkind = "mean"\nvalue = "price"\nrange = [0, 50]\nkey = "flag"\ndomain = [true, false]\n'
    lines = [f"{','.join(row.values())},{place % 2}" for place, row in enumerate(each(drug=lambda row: "mixture"))]
    (tmp_path / "events.csv").write_text("\n".join([f"{','.join(ROWS[0])},flag", *lines[:-1], lines[-1]]) + "\n")
    (tmp_path / "shop.toml").write_text(SPEC.replace('["aspirin", "ibuprofen"]', '["aspirin", "mixture"]') + flags)
    found = check_source(load_spec(tmp_path / "shop.toml"))
    assert found["not_listed"] == {"drugs": 0, "flags": 72}
    (note,) = [note for note in found["notes"] if "domain" in note]
    assert note.startswith("queries.flags.domain lists no label that the source holds")
    assert "not_listed: flags" in CliRunner().invoke(cli, ["check", str(tmp_path / "shop.toml")]).output


LIVE = SPEC.replace('path = "events.csv"', 'follow = "logs"').replace('time = "time"\n', "")


def test_of_files_that_are_followed_what_is_there_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "shop.toml").write_text(LIVE)
    found = check_source(load_spec(tmp_path / "shop.toml"))
    assert (found["rows"], found["faults"], found["notes"]) == (0, [], ["the source holds no rows"])
    lines = [json.dumps({**row, "price": 1.5}) for row in ROWS]
    (tmp_path / "logs" / "a.jsonl").write_text("\n".join(lines) + "\n")
    found = check_source(load_spec(tmp_path / "shop.toml"))
    assert (found["rows"], found["faults"], found["rows_per_tick"]) == (72, [], None)
    (tmp_path / "logs" / "a.jsonl").write_text("\n".join(line.replace("customer", "Client") for line in lines) + "\n")
    assert "stream.unit.user" in check_source(load_spec(tmp_path / "shop.toml"))["faults"][0]


def test_complete_files_before_those_that_are_followed_are_looked_at(tmp_path: Path) -> None:
    spec = SPEC.replace('time = "time"', 'time = "time"\nfollow = "logs"\nlive_from = 2026-01-05T12:00:00Z')
    (tmp_path / "logs").mkdir()
    file = write(tmp_path, ROWS[:30], spec=spec)
    found = check_source(load_spec(file))
    assert (found["rows"], found["faults"], found["rows_per_tick"]["ticks"]) == (30, [], 12)
    assert found["notes"][-2:] == [
        "figures are of source.path; source.follow holds 0 rows, 0 of them refused",
        "source.follow: the source holds no rows",
    ]
    (tmp_path / "logs" / "a.jsonl").write_text(json.dumps({"Client": "x", "drug": "aspirin", "price": 1}) + "\n")
    assert any("stream.unit.user" in fault for fault in check_source(load_spec(file))["faults"])


def test_of_a_topic_the_first_records_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [json.dumps({**row, "price": 1.5}) for row in ROWS] * 20
    asked: list[object] = []

    class Topic:
        def seek(self, position: object) -> None:
            asked.append(position)

        def end(self) -> int:
            return len(texts)

        def read(self, end: int) -> Iterator[Records]:
            for first in range(0, end, 500):
                part = pl.Series(texts[first : first + 500])
                numbers = pl.int_range(first, first + len(part), dtype=pl.Int64, eager=True)
                yield Records(place="t/0", rank=(0,), numbers=numbers, texts=part)

        def close(self) -> None:
            asked.append("closed")

    monkeypatch.setattr(source_check, "make_feed", lambda *_: Topic())
    spec = LIVE.replace('[source]\nfollow = "logs"', '[source.kafka]\nbrokers = "b:9092"\ntopic = "t"')
    (tmp_path / "shop.toml").write_text(spec)
    found = check_source(load_spec(tmp_path / "shop.toml"))
    assert (found["rows"], found["faults"]) == (1000, [])
    assert found["notes"] == ["only the first records of the topic were looked at"]
    assert asked == [None, "closed"]


def test_a_column_that_comes_late_in_lines_of_json_is_no_fault(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{**row, "price": 1.5} for row in ROWS]
    first = [{**rows[0], "drug": None} for _ in range(source_check.SAMPLE)]
    for row in first:
        del row["drug"]
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in [*first, *(rows * 20)]))
    (tmp_path / "shop.toml").write_text(SPEC.replace("events.csv", "events.jsonl"))
    assert check_source(load_spec(tmp_path / "shop.toml"))["faults"] == []


def test_standard_input_is_not_looked_at_and_the_way_out_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop.toml").write_text(LIVE.replace('follow = "logs"', "stdin = true"))
    with pytest.raises(SpecError, match=r"source\.stdin must not be looked at, .* check that with source\.follow"):
        check_source(load_spec(tmp_path / "shop.toml"))
    assert invoke("check", tmp_path / "shop.toml").exit_code == 2


def test_a_file_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    file = write(tmp_path, ROWS)
    (tmp_path / "events.csv").unlink()
    (fault,) = check_source(load_spec(file))["faults"]
    assert "must be a file or a folder, got none" in fault


@pytest.mark.parametrize("text", ["", "\n", '"', "time\n", "\xff", 'a"b,c\n1,2\n', "time,customer,drug,price\n"])
def test_odd_files_do_not_end_in_a_traceback(tmp_path: Path, text: str) -> None:
    file = write(tmp_path, ROWS)
    (tmp_path / "events.csv").write_text(text, encoding="latin-1")
    assert invoke("check", file).exit_code in (0, 2)
    assert not isinstance(invoke("check", file).exception, csv_fault)


csv_fault = (ValueError, TypeError, KeyError, StopIteration, AttributeError)
