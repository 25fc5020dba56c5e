"""Where one label of an event counts and it holds several, the first one does, however the events come in."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.io.reading import by_tick, read_rows
from tests.stream.test_features import estimates, quiet, stream

import pianissimo as pp
from pianissimo.stream import batches
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import StreamSpec

LONG = "x" * 257
VALUES: list[Any] = [["a", "b"], ["b"], [], None, [None, "a"], ["a", None], ["a", LONG], ["b", "b", "a"], ["c", "a"]]
DOMAIN = ["a", "b", "c", "(null)"]
TIME = "2026-01-05T00:00:00Z"

Form = Callable[[Path, list[Any]], Any]


def of_file(form: str) -> Form:
    def made(folder: Path, values: list[Any]) -> Any:
        path = folder / f"rows.{form}"
        if form == "jsonl":
            path.write_text("".join(json.dumps({"time": TIME, "k": value}) + "\n" for value in values))
        else:
            frame = pl.DataFrame({"k": pl.Series(values, dtype=pl.List(pl.String))})
            frame.with_columns(time=pl.lit(TIME)).write_parquet(path)
        return path

    return made


FORMS: dict[str, Form] = {
    "rows": lambda _, values: [{"k": value} for value in values],
    "tuples": lambda _, values: [{"k": None if value is None else tuple(value)} for value in values],
    "columns": lambda _, values: {"k": values},
    "polars": lambda _, values: pl.DataFrame({"k": pl.Series(values, dtype=pl.List(pl.String))}),
    "arrow": lambda _, values: pl.DataFrame({"k": pl.Series(values, dtype=pl.List(pl.String))}).to_arrow(),
    "jsonl": of_file("jsonl"),
    "parquet": of_file("parquet"),
}


def counted(folder: Path, form: str, query: pp.Histogram) -> dict[str | None, int]:
    batch = FORMS[form](folder, VALUES)
    if isinstance(batch, Path):
        asked = stream(query, tick="1h", origin="2026-01-05")
        batch = next(by_tick(read_rows(StreamSpec(stream=asked, source=FileSource(path=batch, time="time"))), 1))
    return estimates(quiet(query).tick(batch)["h"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("most", "nulls", "expected"),
    [
        (1, "skip", {"a": 1, "b": 2, "c": 1, "(null)": 0}),
        (1, "label", {"a": 1, "b": 2, "c": 1, "(null)": 5}),
        (2, "skip", {"a": 3, "b": 3, "c": 1, "(null)": 0}),
    ],
)
def test_the_first_ones_up_to_the_limit_count(
    tmp_path: Path, form: str, most: int, nulls: Any, expected: dict[str, int]
) -> None:
    query = pp.Histogram("h", key="k", domain=DOMAIN, max_keys_per_event=most, nulls=nulls)
    assert counted(tmp_path, form, query) == expected


def test_a_form_that_counts_nothing_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose, as it was: a list in a row was no label."""
    monkeypatch.setattr(batches, "first_labels", lambda column: pl.Series(column.name, [None] * len(column), pl.String))
    query = pp.Histogram("h", key="k", domain=DOMAIN)
    assert counted(tmp_path, "rows", query) != counted(tmp_path, "jsonl", query)


def test_what_others_hold_makes_no_difference(tmp_path: Path) -> None:
    query = pp.Histogram("h", key="k", domain=["a", "b"])
    for rows in ([{"k": "a"}], [{"k": "a"}, {"k": ["b"]}]):
        assert estimates(quiet(query).tick(rows)["h"])["a"] == 1


def test_users_and_conditions_read_one_label_too(tmp_path: Path) -> None:
    rows = [{"who": 1, "k": ["a", "b"]}, {"who": 2, "k": "b"}]
    query = pp.Histogram("h", key="k", domain=["a", "b"])
    of_users = pp.Stream("s", budget=pp.Budget(8, 1e-6), horizon=4, unit=pp.user("who"), queries=[query])
    frame = pl.DataFrame({"who": [1, 2], "k": [["a", "b"], ["b"]]})
    for batch in (rows, frame):
        assert of_users.start().tick(batch).tick == 1
        assert quiet(pp.Count("h", where="k = 'a'")).tick(batch)["h"]["estimate"].item() == 1
    listed = [{"who": [1], "k": "a"}]
    with pytest.raises(pp.InputError, match="column 'who' must name a user"):
        of_users.start().tick(listed)


@pytest.mark.parametrize("form", ["rows", "columns", "jsonl"])
def test_a_list_in_one_row_does_not_decide_which_others_match(form: str, tmp_path: Path) -> None:
    # A text that is too long to be a label is one in a condition all the same, whatever stands beside it.
    query = pp.Count("n", where="k LIKE 'x%'")

    def found(values: list[Any]) -> int:
        batch = FORMS[form](tmp_path, values)
        if isinstance(batch, Path):
            asked = stream(query, tick="1h", origin="2026-01-05")
            batch = next(by_tick(read_rows(StreamSpec(stream=asked, source=FileSource(path=batch, time="time"))), 1))
        return int(quiet(query).tick(batch)["n"]["estimate"].item())

    others = [LONG] * 5
    alone = found(others)
    for value in (["a"], ["x"], [LONG], ["a", LONG], [None], []):
        assert 0 <= found([*others, value]) - alone <= 1
