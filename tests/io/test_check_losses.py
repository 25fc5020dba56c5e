"""What `check` tells of value that a run would lose: numbers that are not read, and events beyond a cap."""

from pathlib import Path

import polars as pl
import pytest

from pianissimo.io.source_check import check_source
from pianissimo.io.source_sizes import strange_texts
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
    assert any("queries.revenue.value: 1 row holds a text that is no number" in note for note in found["notes"])
    assert any("75.0% of all that 'price' adds up to is lost" in note for note in found["notes"])
    assert any("1 user has more, and 20.0% of all events is cut off" in note for note in found["notes"])
