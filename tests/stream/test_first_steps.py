"""What people write at first: labels that are no texts, lengths of time, one query."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from tests.io.reading import by_tick, read_rows
from tests.stream.test_features import estimates, quiet, stream

import pianissimo as pp
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import StreamSpec, load_spec

VALUES: dict[str, tuple[list[Any], list[str]]] = {
    "whole numbers": ([7, -3, 7], ["7", "-3"]),
    "booleans": ([True, False, True], ["true", "false"]),
    "dates": ([date(2026, 1, 31), date(999, 2, 1), date(2026, 1, 31)], ["2026-01-31", "0999-02-01"]),
}


@pytest.mark.parametrize("name", VALUES)
def test_labels_have_one_text_form_however_they_come(name: str, tmp_path: Path) -> None:
    values, (twice, once) = VALUES[name]
    frame = pl.DataFrame({"k": values})
    batches = [frame, frame.to_arrow(), {"k": values}, [{"k": value} for value in values], {"k": frame["k"]}]
    expected = {twice: 2, once: 1}
    for domain in ([twice, once], values, pl.Series(values)):
        query = pp.Histogram("h", key="k", domain=domain)
        assert [estimates(quiet(query).tick(batch)["h"]) for batch in batches] == [expected] * len(batches)
        many = pp.Histogram("h", key="k", domain=domain, max_keys_per_event=2)
        for batch in (pl.DataFrame({"k": [[each] for each in values]}), [{"k": [each]} for each in values]):
            assert estimates(quiet(many).tick(batch)["h"]) == expected
    timed = frame.with_columns(time=pl.lit("2026-01-05T00:00:00Z"))
    for form in ("csv", "ndjson", "parquet"):
        path = tmp_path / f"rows.{form}"
        getattr(timed, f"write_{form}")(path)
        asked = stream(query, tick="1h", origin=datetime(2026, 1, 5, tzinfo=UTC))
        rows = read_rows(StreamSpec(stream=asked, source=FileSource(path=path, time="time", until=1)))
        assert rows.refused.height == 0
        assert estimates(quiet(query).tick(next(by_tick(rows, 1)))["h"]) == expected


def test_a_pandas_column_of_booleans_is_one_of_labels() -> None:
    pandas = pytest.importorskip("pandas")
    query = pp.Histogram("h", key="k", domain=[True, False])
    assert estimates(quiet(query).tick(pandas.DataFrame({"k": [True, True, False]}))["h"]) == {"true": 2, "false": 1}


def test_what_has_no_one_form_is_no_label() -> None:
    with pytest.raises(pp.InputError, match="whole numbers, booleans, dates or lists"):
        quiet(pp.Histogram("h", key="k")).tick(pl.DataFrame({"k": [1.5]}))
    with pytest.raises(pp.ParameterError, match="domain must be texts, whole numbers, booleans or dates"):
        pp.Histogram("h", key="k", domain=cast("Any", [1.5]))


def test_one_query_needs_no_list() -> None:
    asked = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=10, queries=pp.Count("n"))  # type: ignore[arg-type]
    assert asked.queries == (pp.Count("n"),)
    for wrong in (3, "n", None, [3]):
        name = type(wrong[0] if isinstance(wrong, list) else wrong).__name__
        with pytest.raises(pp.ParameterError, match=f"queries must be a list of Count.*got {name}"):
            pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=10, queries=wrong)  # type: ignore[arg-type]


TOML = """
[stream]
name = "pharmacy"
epsilon = 4.0
delta = 1e-6
tick = "1h"
horizon = "30d"

[queries.n]
kind = "count"
every = "1d"
"""


def test_lengths_of_time_are_ticks_as_in_a_file(tmp_path: Path) -> None:
    asked = stream(pp.Count("n", every="1d"), tick="1h", horizon="30d")
    assert (asked.horizon, asked.queries[0].every) == (720, 24)
    assert stream(pp.Count("n", every=timedelta(days=1)), tick="1h", horizon=timedelta(days=30)) == asked
    path = tmp_path / "stream.toml"
    path.write_text(TOML)
    assert load_spec(path).stream == asked
    assert asked.to_plain() == stream(pp.Count("n", every=24), tick="1h", horizon=720).to_plain()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"horizon": "30d"}, "horizon must be a number of ticks where the stream has no tick length"),
        ({"horizon": "90m", "tick": "1h"}, "horizon must be a whole number of ticks"),
        ({"queries": [pp.Count("n", every="1d")]}, "every of query 'n' must be a number of ticks where"),
        ({"queries": [pp.Count("n", every="90m")], "tick": "1h"}, "every of query 'n' must be a whole number of ticks"),
    ],
)
def test_lengths_of_time_that_are_no_ticks_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(pp.ParameterError, match=message):
        stream(*changes.pop("queries", [pp.Count("m")]), **changes)
    with pytest.raises(pp.ParameterError, match="must be a duration such as"):
        pp.Count("n", every="soon")


@pytest.mark.parametrize("batch", [None, [], {}, (), pl.DataFrame(), pl.LazyFrame(), pl.DataFrame().to_arrow()])
def test_nothing_at_all_is_a_tick_without_events(batch: Any) -> None:
    queries = (pp.Count("n"), pp.Histogram("h", key="k", domain=["a"]))
    assert quiet(*queries).tick(batch)["n"]["estimate"].item() == 0
    of_users = pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=4, unit=pp.user("who"), queries=queries)
    assert of_users.start().tick(batch).tick == 1
    with pytest.raises(pp.InputError, match="columns 'k' must be in the batch, got 'other'"):
        quiet(*queries).tick(pl.DataFrame({"other": []}))


@pytest.mark.parametrize("length", ["1x", "x", "", "1.5h", "0h", None, 2.5, timedelta(0)])
def test_a_length_that_is_none_is_named(length: Any) -> None:
    live = quiet(pp.Count("n"), tick="1h")
    live.tick()
    with pytest.raises(pp.ParameterError, match=r"^a window must be a duration such as '30s'"):
        live.window(length)
    if length is not None:
        with pytest.raises(pp.ParameterError, match=r"^tick must be a duration such as '30s'"):
            stream(pp.Count("n"), tick=length)


def test_messages_name_the_way_out(tmp_path: Path) -> None:
    told = pp.Stream("s", unit=pp.user("who"), budget=pp.Budget(1, 1e-9), horizon=2, tick="1h", queries=[pp.Count("n")])
    rows = [{"time": "2026-01-01T00:30Z", "who": None}, {"time": "2026-01-01T00:30Z", "who": "ann"}]
    with pytest.raises(pp.InputError, match=r"column 'who' must name a user.* give drop_bad_rows=True"):
        told.replay(rows, origin="2026-01-01")
    assert told.replay(rows, origin="2026-01-01", drop_bad_rows=True)["tick"].max() == 2
    file = tmp_path / "shop.duckdb"
    duckdb = pytest.importorskip("duckdb")
    duckdb.connect(str(file)).close()
    with pytest.raises(pp.ParameterError, match="name must be a table of the database, got none; give it second"):
        pp.Table(file, user="who", budget=pp.Budget(1, 1e-9))
    with pytest.raises(pp.InputError, match="the database must have the table 'visits'"):
        pp.Table(file, "visits", user="who", budget=pp.Budget(1, 1e-9))


@pytest.mark.parametrize("queries", [[pp.Count("n")], [pp.Histogram("h", key="drug")]])
def test_one_row_that_is_no_list_is_not_spelled_out(queries: list[Any]) -> None:
    """One event of 500 letters was counted as 500 events."""
    live = pp.Stream("s", budget=pp.Budget(1, 1e-9), horizon=2, queries=queries).start()
    with pytest.raises(pp.InputError, match=r"put a single row in a list"):
        live.tick({"drug": "a" * 500})


def test_refusals_of_a_plan_say_what_to_change() -> None:
    for query in (pp.Histogram("h", key="k"), pp.TopK("h", key="k", k=3)):
        with pytest.raises(
            pp.ParameterError, match=r"^epsilon must be below about 2\d.*, got 50: too large for the noise"
        ):
            stream(query, budget=pp.Budget(50, 1e-9)).plan()
        stream(query, budget=pp.Budget(20, 1e-9)).plan()
    with pytest.raises(pp.ParameterError, match=r"^\w+ must be asked of users, got single events; give unit=user"):
        stream(pp.Users("n")).plan()
    with pytest.raises(pp.ParameterError, match=r"queries must be a list of .*, got dict$"):
        pp.Stream("s", budget=pp.Budget(1, 0), horizon=3, queries={"n": pp.Count("n")})  # type: ignore[arg-type]
