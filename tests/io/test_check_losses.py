"""What `check` tells of value that a run would lose: numbers that are not read, and events beyond a cap."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from pianissimo.io.source_check import check_source
from pianissimo.io.source_sizes import strange_texts
from pianissimo.io.sources.rows.json_rows import JsonReader
from pianissimo.io.sources.rows.text_rows import Wanted, csv_piece
from pianissimo.stream.spec import load_spec

_FILE = """
[stream]
name = "sales"
horizon = 1
tick = "1d"
origin = "2026-01-01T00:00:00Z"
epsilon = 1.0
delta = 1e-6
unit = { user = "customer", max_events_per_user = 2 }

[source]
path = "sales.csv"
time = "time"

[queries.orders]
kind = "count"

[queries.revenue]
kind = "sum"
value = "price"
range = [0, 5000]
"""


def test_the_value_of_numbers_with_commas_is_told() -> None:
    found = strange_texts([pl.DataFrame({"price": ["1,000.00", "-500", " 2,500", "n/a", "1,5", "", None]})])
    assert found["price"].rows == 4
    assert found["price"].commas == 3
    assert found["price"].unread_share == pytest.approx(3500 / 4000)


def test_check_tells_which_part_is_unread_and_which_a_cap_cuts_off(tmp_path: Path) -> None:
    rows = [("a", "100"), ("a", "100"), ("a", "100"), ("b", "100"), ("c", '"1,200.00"')]
    lines = [f"2026-01-01T01:00:00Z,{user},{price}" for user, price in rows]
    (tmp_path / "sales.csv").write_text("\n".join(["time,customer,price", *lines]) + "\n")
    (tmp_path / "sales.toml").write_text(_FILE)
    found = check_source(load_spec(tmp_path / "sales.toml"))
    assert found["unread_share"] == {"price": pytest.approx(0.75)}
    first = found["notes"][0]
    assert first.startswith("queries.revenue.value: 75.0% of all that 'price' adds up to is LOST: 1 row holds a text")
    assert first.endswith("write 1234.50 for 1,234.50 in the source")
    assert any("1 user has more, and 20.0% of all events is cut off" in note for note in found["notes"])


@pytest.mark.parametrize("workers", [(), ("--workers", "2")], ids=["inline", "processes"])
def test_a_run_says_once_that_texts_are_no_numbers_and_check_says_it_itself(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    rows = ['2026-01-01T01:00:00Z,a,"1,200.00"', "2026-01-01T02:00:00Z,b,", "2026-01-01T02:00:00Z,b,3"]
    lines = ["time,customer,price", *rows]
    (tmp_path / "sales.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "sales.toml").write_text(_FILE)
    program = "from pianissimo.cli.main import main; main()"

    def told(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stderr

    assert "must hold numbers" not in told("check", "sales.toml")
    assert told("run", "sales.toml", "--quiet", *workers).count("column 'price' must hold numbers such as 1234.50") == 1


def test_empty_fields_are_no_texts() -> None:
    wanted = Wanted(labels={}, values=["price"])
    lines = pl.DataFrame({"line": [2, 3, 4], "text": ["a,", "b,  ", "c,1.5"]})
    assert csv_piece(lines, ["user", "price"], wanted).unread == frozenset()
    lines = pl.DataFrame({"line": [2], "text": ["a,n/a"]})
    assert csv_piece(lines, ["user", "price"], wanted).unread == {"price"}


def test_texts_in_json_that_are_no_numbers_are_noted() -> None:
    reader = JsonReader(Wanted(labels={}, values=["price"]))
    for value, is_unread in (('"1,200"', True), ("[1]", True), ('""', False), ("null", False), ("7.5", False)):
        texts = pl.Series(['{"price": 1}', f'{{"price": {value}}}', '{"other": "x"}'])
        piece = reader.read(pl.Series([1, 2, 3]), texts)
        assert piece.unread == ({"price"} if is_unread else set()), value
        assert len(piece.lines) == len(texts)


_TOO_FEW = """
[stream]
name = "sales"
horizon = 4
tick = "1d"
origin = "2026-01-01T00:00:00Z"
epsilon = 1.0
delta = 1e-6

[source]
path = "sales.csv"
time = "time"

[queries.listed]
kind = "histogram"
key = "shop"
domain = ["north", "south"]

[queries.daily]
kind = "count"
per = "1d"
"""


def test_an_error_that_is_large_beside_a_label_or_a_window_is_told(tmp_path: Path) -> None:
    def notes(rows: int) -> list[str]:
        shops = ["north"] * rows + ["south"] + ["elsewhere"] * 9 * rows
        lines = [f"2026-01-0{1 + place % 4}T01:00:00Z,{shop}" for place, shop in enumerate(shops)]
        (tmp_path / "sales.csv").write_text("\n".join(["time,shop", *lines]) + "\n")
        (tmp_path / "sales.toml").write_text(_TOO_FEW)
        return [note for note in check_source(load_spec(tmp_path / "sales.toml"))["notes"] if "its error" in note]

    listed, daily = notes(10)
    assert listed.startswith("queries.listed: its error, ")
    assert "what the largest label has, 10. Less noise: fewer queries" in listed
    assert daily.startswith("queries.daily: its error, ")
    assert "all that there is to count in 1 tick on average, 25.2. Less noise" in daily
    assert notes(3000) == []
