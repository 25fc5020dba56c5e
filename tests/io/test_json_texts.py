"""What becomes of a JSON record depends on it alone, and on the columns that are read of it."""

import json
import math
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pianissimo.io.sources.rows.json_rows import JsonReader
from pianissimo.io.sources.rows.text_rows import Piece, Wanted, Written

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


def is_label(value: object) -> bool:
    return value is None or isinstance(value, str | int)


def is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


@given(st.lists(written | by_hand, max_size=30))
def test_rows_are_those_that_the_standard_library_reads(records: list[str]) -> None:
    expected = []
    for number, text in enumerate(records, 1):
        try:
            row = json.loads(text, parse_constant=int, object_pairs_hook=lambda pairs: pairs)
        except ValueError:
            continue
        if not (isinstance(row, list) and all(isinstance(pair, tuple) for pair in row)) or text.strip() == "[]":
            continue
        drugs = [value for key, value in row if key == "drug"]
        prices = [value for key, value in row if key == "price"]
        # Of a list the first label counts; tests/io/test_first_labels.py is about those.
        assume(not (drugs and isinstance(drugs[-1], list)))
        drug = drugs[-1] if drugs and is_label(drugs[-1]) else None
        price = prices[-1] if prices and is_number(prices[-1]) else None
        label = None if drug is None else str(drug).lower() if isinstance(drug, bool) else str(drug)
        expected.append((number, label, None if price is None or not math.isfinite(price) else float(price)))
    piece = JsonReader(SIMPLE).read(*numbered(records))
    assert [(line, *row) for line, row in zip(piece.lines, piece.columns.rows(), strict=True)] == expected
    blank = [number for number, text in enumerate(records, 1) if not text.strip()]
    assert sorted([*piece.lines, *piece.refused["line"], *blank]) == list(range(1, len(records) + 1))


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


ALL_KINDS = [
    SIMPLE,
    WANTED,
    Wanted(labels={"drug": False, "other": False}, values=["price"], time="time"),
    Wanted(labels={"drug": False}, time="time", written=Written(time_format="epoch_s")),
    Wanted(labels={}, values=["drug", "other"]),
    Wanted(labels={}),
]


@pytest.mark.parametrize("wanted", ALL_KINDS)
@given(texts)
def test_whoever_reads_a_record_reads_the_same(wanted: Wanted, records: list[str | None]) -> None:
    """The core reads what is plain; without it every record is parsed by itself."""
    reader = JsonReader(wanted)
    alone = reader._one_by_one(range(1, len(records) + 1), records)
    assert shown(reader.read(*numbered(records))) == shown(alone)
    lines = [text.replace("\n", " ").removesuffix("\r") for text in records if text is not None]
    bad = [b"\xff" if number % 5 == 4 else line.encode() for number, line in enumerate(lines)]
    judged = reader._one_by_one(range(7, 7 + len(bad)), [None if each == b"\xff" else each.decode() for each in bad])
    assert not bad or shown(reader.read_block(7, b"\r\n".join(bad))) == shown(judged)


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
odd = odd_numbers | odd_texts | odd_nests | odd_words


@given(st.dictionaries(st.sampled_from(["drug", "price", "time"]), odd, min_size=1))
def test_odd_values_are_read_as_they_are_alone(changed: dict[str, str]) -> None:
    reader, record = JsonReader(ALL_KINDS[2]), put(PLAIN | changed)
    assert shown(reader.read(*numbered([record, record]))) == shown(reader._one_by_one([1, 2], [record, record]))


@pytest.mark.parametrize("wanted", [SIMPLE, Wanted(labels={"drug": True}, time="time"), Wanted(labels={})])
@given(
    changed=st.dictionaries(st.sampled_from([*PLAIN]), odd, min_size=1, max_size=2),
    gap=st.sampled_from(["", " ", "\t"]),
    twice=st.booleans(),
)
def test_no_length_or_depth_lets_neighbours_decide_about_a_record(
    wanted: Wanted, changed: dict[str, str], gap: str, *, twice: bool
) -> None:
    record = put(PLAIN | changed, gap)
    if twice:
        record = f'{record[:-1]},"drug":"b"}}'
    others = [put(PLAIN, gap), put(PLAIN | {"other": '"s"', "note": "3", "price": "2"}, gap), put(PLAIN, gap)]
    alone = shown(JsonReader(wanted).read(pl.Series([13]), pl.Series([record])))
    piece = JsonReader(wanted).read(*numbered([*others * 4, record, *others * 4]))
    own = piece.lines == 13
    assert alone == shown(
        Piece(
            lines=piece.lines.filter(own),
            columns=piece.columns.filter(own) if piece.columns.width else piece.columns,
            times=piece.times.filter(own),
            refused=piece.refused.filter(pl.col("line") == 13),
        )
    )


@pytest.mark.parametrize("value", ["1e999", digits(6000), "[" * 100 + "]" * 100, '{"drug": 1.5}', "null", '"\\u0000"'])
def test_what_no_query_reads_decides_nothing_if_it_is_json(value: str) -> None:
    piece = JsonReader(SIMPLE).read(*numbered([put(PLAIN | {"other": value})]))
    assert piece.columns.rows() == [("a", 1.5)]


@pytest.mark.parametrize(
    "value", ["NaN", "01", "1.", "-", '"\\q"', '"\\ud800"', '"\x01"', "[1,]", "tru", "[" * 100_000]
)
def test_what_is_no_json_is_refused_wherever_it_stands(value: str) -> None:
    piece = JsonReader(SIMPLE).read(*numbered([put(PLAIN | {"other": value})]))
    assert piece.refused.rows() == [(1, "a line must be a JSON object in UTF-8")]


@pytest.mark.parametrize(
    ("record", "row"),
    [
        ({"drug": "1.0"}, (None, 1.5)),
        ({"drug": "true"}, ("true", 1.5)),
        ({"drug": '["a", "b"]'}, ("a", 1.5)),
        ({"drug": '{"a": 1}'}, (None, 1.5)),
        ({"price": '"1"'}, ("a", None)),
        ({"price": "1e999"}, ("a", None)),
    ],
)
def test_a_value_that_does_not_fit_is_none(record: dict[str, str], row: tuple[Any, ...]) -> None:
    assert JsonReader(SIMPLE).read(*numbered([put(PLAIN | record)])).columns.rows() == [row]


def test_a_column_that_is_given_twice_counts_as_it_was_given_last() -> None:
    texts = ['{"drug": "a", "drug": "b", "price": 1}', '{"drug": 1.5, "drug": "b", "price": 1}']
    assert JsonReader(SIMPLE).read(*numbered([*texts, '{"price": 1}'])).columns.rows() == [
        ("b", 1.0),
        ("b", 1.0),
        (None, 1.0),
    ]


def test_a_whole_number_of_any_length_is_the_label_that_it_is_written_as() -> None:
    piece = JsonReader(SIMPLE).read(*numbered([put(PLAIN | {"drug": digits(30)})]))
    assert piece.columns["drug"].to_list() == [digits(30)]


def test_columns_may_have_any_name() -> None:
    names = ['a "quote"', "back\\slash", "line\nbreak", "", "class", "__init__"]
    wanted = Wanted(labels=dict.fromkeys(names, False))
    piece = JsonReader(wanted).read(*numbered([json.dumps(dict.fromkeys(names, "x"))]))
    assert piece.columns.rows() == [("x",) * len(names)]
    plain = Wanted(labels=dict.fromkeys(names[3:], False))
    assert JsonReader(plain).read(*numbered([json.dumps(dict.fromkeys(names, "x"))])).columns.height == 1
