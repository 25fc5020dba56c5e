"""However alike records are written, what becomes of one depends on it alone and is what the parser makes of it."""

import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pianissimo.io.sources import json_texts
from pianissimo.io.sources.json_texts import JsonReader
from pianissimo.io.sources.piece import Piece, Wanted

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


PLAIN = {"drug": '"a"', "price": "1.5", "time": '"2026-01-05"', "other": "7", "note": '"n"', "flag": "true"}


def put(record: dict[str, str], gap: str = "") -> str:
    return "{" + ",".join(f'{gap}"{key}":{gap}{value}' for key, value in record.items()) + "}"


def digits(length: int) -> str:
    return ("9182736450" * (length // 10 + 1))[:length]


lengths = st.sampled_from([1, 15, 16, 18, 19, 20, 39, 40, 41, 308, 309, 4299, 4300, 4301, 6000])
odd_numbers = st.builds(
    lambda sign, whole, fraction, exponent: f"{sign}{whole}{fraction}{exponent}",
    st.sampled_from(["", "-"]),
    st.just("0") | lengths.map(digits),
    st.just("") | lengths.map(lambda length: f".{digits(length)}"),
    st.just("")
    | st.builds(
        lambda sign, text: f"e{sign}{text}",
        st.sampled_from(["", "+", "-"]),
        st.sampled_from(["5", "99", "308", "9999", "10000", "0" * 50 + "1", digits(5000)]),
    ),
)
odd_texts = st.lists(
    st.sampled_from(
        ["a", "é", "\u2028", "\x7f", "\x85", "\ufeff", "😀", ",", ":", "}", "\\n", "\\ud800", "x" * 70_000]
    ),
    max_size=3,
).map(lambda parts: f'"{"".join(parts)}"')
odd_nests = st.builds(
    lambda depth, left, right: left * depth + "1" + right * depth,
    st.sampled_from([1, 2, 199, 200, 201, 202, 3000]),
    *[st.just(each) for each in ("[", "]")],
) | st.sampled_from([1, 199, 200, 201, 3000]).map(lambda depth: '{"drug":' * depth + "1" + "}" * depth)
odd_words = st.sampled_from(["null", "false", "NaN", "Infinity", "-Infinity", "01", "1.", "1e", ".5", "-", "+1", "nul"])


@pytest.mark.parametrize("wanted", [SIMPLE, Wanted(labels={"drug": True}, time="time"), Wanted(labels={})])
@given(
    changed=st.dictionaries(
        st.sampled_from([*PLAIN]), odd_numbers | odd_texts | odd_nests | odd_words, min_size=1, max_size=2
    ),
    gap=st.sampled_from(["", " ", "\t"]),
    twice=st.booleans(),
)
def test_no_length_or_depth_lets_neighbours_decide_about_a_record(
    wanted: Wanted, changed: dict[str, str], gap: str, *, twice: bool
) -> None:
    record = put(PLAIN | changed, gap)
    if twice:
        record = f'{record[:-1]},"drug":"b"}}'
    # Those before and after teach the forms that the record may fit.
    others = [put(PLAIN, gap), put(PLAIN | {"other": '"s"', "note": "3", "price": "2"}, gap), put(PLAIN, gap)]
    records = [*others * 4, record, *others * 4]
    frame = pl.DataFrame({"line": [13], "text": [record]}, schema_overrides={"line": pl.Int64})
    alone, reader = shown(JsonReader(wanted)._parsed(frame)), JsonReader(wanted)
    for _ in range(2):
        piece = reader.read(*numbered(records))
        own = piece.lines == 13
        assert reader._forms
        assert alone == shown(
            Piece(
                lines=piece.lines.filter(own),
                columns=piece.columns.filter(own) if piece.columns.width else piece.columns,
                times=piece.times.filter(own),
                refused=piece.refused.filter(pl.col("line") == 13),
            )
        )


def test_a_number_that_the_parser_refuses_for_its_length_is_refused_beside_records_that_taught_its_form() -> None:
    long = put(PLAIN | {"other": digits(4301)})
    assert JsonReader(SIMPLE).read(*numbered([long])).refused["line"].to_list() == [1]
    assert JsonReader(SIMPLE).read(*numbered([put(PLAIN)] * 8 + [long])).refused["line"].to_list() == [9]


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
