"""However alike records are written, what becomes of one depends on it alone and is what the parser makes of it."""

import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pianissimo.engine.sources import json_texts
from pianissimo.engine.sources.json_texts import JsonReader
from pianissimo.engine.sources.piece import Piece, Wanted

WANTED = Wanted(labels={"drug": False, "tags": True}, values=["price"], time="time")
SIMPLE = Wanted(labels={"drug": False}, values=["price"])

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["aspirin", "", "ibu profen", "ä", '"', "\\", "\n", "a,b", "}", ": 1}", "\x7f", "2026-01-01"])
)
keys = st.sampled_from(["drug", "price", "tags", "time", "other", "a key", "a.b", "(x", "ключ", ""])
objects = st.dictionaries(keys, scalars | st.lists(scalars, max_size=2) | st.dictionaries(keys, scalars, max_size=1))
written = st.builds(
    lambda value, plain, gaps, end: json.dumps(value, ensure_ascii=plain, separators=gaps) + end,
    objects,
    st.booleans(),
    st.sampled_from([(",", ":"), (", ", ": "), (" , ", "\t:  ")]),
    st.sampled_from(["", " ", "\r", "x"]),
)
by_hand = st.sampled_from(
    [
        "",
        "  ",
        "{",
        "{}",
        "[]",
        "1",
        '{"drug": "a", "drug": "b", "price": 1}',
        '{"drug": "a", "price": 01}',
        '{"drug": "a", "price": 1}, {"drug": "b", "price": 2}',
        '{"x": [{}',
        "{}]}",
        '{"drug": "a", "price": -0}',
        '{"drug": "a", "price": 1e999}',
        '{"drug": "a", "price": NaN}',
        '{"drug": "a\tb", "price": 1}',
        '{"drug": -0, "price": 0}',
        '{"drug": 18446744073709551616, "price": 0}',
        '{"dr\\u0075g": "a", "price": 1}',
        '{"drug": "a", "price": 1, "other": {"drug": "b"}}',
        '{"drug":"a","price":1,"tags":"t","time":"2026-01-05"}',
        '{"drug":"b","price":2.50,"tags":"u","time":"x"}',
    ]
)
texts = st.lists(written | by_hand | st.none(), max_size=30)


def shown(piece: Piece) -> tuple[Any, ...]:
    rows = [repr(row) for row in piece.columns.rows()] if piece.columns.width else []
    return piece.lines.to_list(), rows, piece.times.to_list(), piece.refused.rows()


def numbered(records: Sequence[str | None]) -> tuple[pl.Series, pl.Series]:
    return pl.int_range(1, len(records) + 1, eager=True), pl.Series(records, dtype=pl.String)


@pytest.mark.parametrize("wanted", [WANTED, SIMPLE, Wanted(labels={})])
@given(records=texts, again=texts)
def test_records_are_read_as_the_parser_alone_reads_them(
    wanted: Wanted, records: list[str | None], again: list[str | None]
) -> None:
    reader, parser = JsonReader(wanted), JsonReader(wanted)
    for batch in (records, again, records):
        frame = pl.DataFrame(
            dict(zip(("line", "text"), numbered(batch), strict=True)), schema_overrides={"line": pl.Int64}
        )
        assert shown(reader.read(*numbered(batch))) == shown(parser._parsed(frame))


@given(texts)
def test_what_becomes_of_a_record_depends_on_it_alone(records: list[str | None]) -> None:
    together = JsonReader(WANTED).read(*numbered(records))
    alone = [
        JsonReader(WANTED).read(pl.Series([number]), pl.Series([text], dtype=pl.String))
        for number, text in enumerate(records, 1)
    ]
    assert together.lines.to_list() == [line for piece in alone for line in piece.lines]
    assert [repr(row) for row in together.columns.rows()] == [
        repr(row) for piece in alone for row in piece.columns.rows()
    ]
    assert together.refused.rows() == [row for piece in alone for row in piece.refused.rows()]


def test_alike_records_are_cut_and_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = JsonReader(SIMPLE)
    monkeypatch.setattr(JsonReader, "_parsed", None)
    records = [json.dumps({"drug": f"d{number}", "price": number / 4, "extra": None}) for number in range(1000)]
    piece = reader.read(*numbered(records))
    assert piece.columns.rows() == [(f"d{number}", number / 4) for number in range(1000)]


def test_some_forms_are_known_at_once_and_junk_takes_no_place() -> None:
    reader = JsonReader(SIMPLE)
    records = [json.dumps({f"f{number % 3}": 1, "drug": "a", "price": number}) for number in range(99)]
    reader.read(*numbered(["junk", *records]))
    assert 1 <= len(reader._forms) <= json_texts.MOST_FORMS
    assert reader.read(*numbered(records)).columns.height == 99
