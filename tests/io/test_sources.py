import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.io.reading import by_tick, read_rows

from pianissimo.budget import Budget
from pianissimo.errors import InputError, SpecError
from pianissimo.io.sources.event_files import CheckedRows
from pianissimo.io.sources.rows import text_rows as lines
from pianissimo.io.sources.rows.text_rows import Wanted, csv_piece
from pianissimo.queries import Count, Histogram, Query, Sum, TopK
from pianissimo.stream import Stream
from pianissimo.stream.source_spec import FileFormat, FileSource
from pianissimo.stream.spec import StreamSpec

ORIGIN = datetime(2026, 1, 5, tzinfo=UTC)
DRUGS: list[Query] = [Count("purchases"), Histogram("drugs", key="drug", nulls="refuse")]
BASKETS: list[Query] = [
    Histogram("drugs", key="drug", nulls="refuse"),
    Histogram("baskets", key="basket", max_keys_per_event=3, nulls="refuse"),
]
PRICES: list[Query] = [
    Histogram("drugs", key="drug", nulls="refuse"),
    Sum("revenue", value="price", range=(0, 50), grid=0.01, nulls="refuse"),
]
EVERYTHING: list[Query] = [*BASKETS, Sum("revenue", value="price", range=(-50, 50), grid=0.01, nulls="refuse")]
LINE_REASON = "a line must be UTF-8 text of 3 fields, in quotes where they hold a comma or a quote"
LABEL_REASON = "column 'drug' must not be null and its labels must have at most 256 bytes"
VALUE_REASON = "column 'price' must hold finite numbers"
TIME_REASON = "column 'time' must be a date-time such as 2026-01-31T12:00:00Z"


def spec_of(
    path: Path, queries: Sequence[Query] = DRUGS, form: FileFormat | None = None, until: int | None = None
) -> StreamSpec:
    return StreamSpec(
        stream=Stream("s", budget=Budget(1, 1e-9), horizon=24, queries=queries, tick="1h", origin=ORIGIN),
        source=FileSource(path=path, time="time", format=form, until=until),
    )


def read(path: Path, content: str | bytes | pl.DataFrame, queries: Sequence[Query] = DRUGS) -> CheckedRows:
    if isinstance(content, pl.DataFrame):
        content.write_parquet(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_rows(spec_of(path, queries))


def rows_of(rows: CheckedRows) -> list[tuple[Any, ...]]:
    return [(tick, *row) for tick, row in zip(rows.ticks.tolist(), rows.table.rows(), strict=True)]


def refused(rows: CheckedRows) -> dict[int, str]:
    return dict(rows.refused.select("line", "reason").rows())


CSV = "time,price,drug\n2026-01-05T01:30:00Z,1.5,aspirin\n2026-01-05T00:10:00Z,2,ibuprofen\n"
JSONL = (
    '{"time": "2026-01-05T01:30:00Z", "price": 1.5, "drug": "aspirin"}\n'
    '{"time": "2026-01-05T00:10:00Z", "price": 2, "drug": "ibuprofen"}\n'
)
TABLE = pl.DataFrame(
    {
        "time": [datetime(2026, 1, 5, 1, 30), datetime(2026, 1, 5, 0, 10)],
        "price": [1.5, 2.0],
        "drug": ["aspirin", "ibuprofen"],
    }
)


@pytest.mark.parametrize(("name", "content"), [("s.csv", CSV), ("s.jsonl", JSONL), ("s.parquet", TABLE)])
def test_rows_are_read_with_their_ticks_in_any_order(tmp_path: Path, name: str, content: str | pl.DataFrame) -> None:
    rows = read(tmp_path / name, content)
    assert rows_of(rows) == [(1, "ibuprofen"), (2, "aspirin")]
    assert rows.table.columns == ["drug"]
    assert rows.refused.height == 0
    assert [batch.height for batch in by_tick(rows, 24)] == [1, 1] + [0] * 22
    assert "aspirin" not in repr(rows)


@pytest.mark.parametrize(("name", "content"), [("s.csv", CSV), ("s.jsonl", JSONL), ("s.parquet", TABLE)])
def test_a_stream_of_counts_alone_needs_times_only(tmp_path: Path, name: str, content: str | pl.DataFrame) -> None:
    rows = read(tmp_path / name, content, [Count("purchases")])
    assert rows.ticks.tolist() == [1, 2]
    assert [batch.height for batch in by_tick(rows, 3)] == [1, 1, 0]


def test_the_last_tick_is_public_and_later_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text(CSV)
    rows = read_rows(spec_of(tmp_path / "s.csv", until=1))
    assert rows_of(rows) == [(1, "ibuprofen")]
    assert refused(rows) == {2: "column 'time' must be before the end of tick 1, the last one"}


BAD_CSV_LINES = {
    "too,few": LINE_REASON,
    "2026-01-05T00:10:00Z,1,aspirin,more": LINE_REASON,
    '2026-01-05T00:10:00Z,1,"aspirin': LINE_REASON,
    '2026-01-05T00:10:00Z,1,aspi"rin': LINE_REASON,
    '2026-01-05T00:10:00Z,"1"5,aspirin': LINE_REASON,
    '"': LINE_REASON,
    " ": LINE_REASON,
    "2026-01-05T00:10:00Z,1,": LABEL_REASON,
    "2026-01-05T00:10:00Z,1," + "x" * 257: LABEL_REASON,
    ",1,aspirin": TIME_REASON,
    "noon,1,aspirin": TIME_REASON,
    "nan,1,aspirin": TIME_REASON,
    "2026-01-04T23:59:59Z,1,aspirin": "column 'time' must not be before the origin 2026-01-05T00:00:00+00:00",
    "2026-01-06T00:00:00Z,1,aspirin": "column 'time' must be before the end of tick 24, the last one",
}


@pytest.mark.parametrize(("line", "reason"), BAD_CSV_LINES.items())
def test_a_bad_line_of_csv_is_refused_alone_with_its_number(tmp_path: Path, line: str, reason: str) -> None:
    header, first, second, _ = CSV.split("\n")
    rows = read(tmp_path / "s.csv", "\n".join([header, first, line, second, ""]))
    assert rows_of(rows) == [(1, "ibuprofen"), (2, "aspirin")]
    assert rows.refused.rows() == [("s.csv", 3, reason)]


BAD_JSONL_LINES = {
    "{": "a line must be a JSON object in UTF-8",
    "[1]": "a line must be a JSON object in UTF-8",
    "null": "a line must be a JSON object in UTF-8",
    '{"time": "2026-01-05T00:10:00Z", "drug": "aspirin"} {}': "a line must be a JSON object in UTF-8",
    '{"time": "2026-01-05T00:10:00Z", "drug": "\\ud800"}': "a line must be a JSON object in UTF-8",
    '{"time": "2026-01-05T00:10:00Z", "x": ' + "[" * 9999 + "]" * 9999 + "}": "a line must be a JSON object in UTF-8",
    '{"time": "2026-01-05T00:10:00Z"}': LABEL_REASON,
    '{"drug": "aspirin"}': TIME_REASON,
    '{"time": "2026-01-05T00:10:00Z", "drug": 1.5}': LABEL_REASON,
    '{"time": "2026-01-05T00:10:00Z", "drug": NaN}': "a line must be a JSON object in UTF-8",
    '{"time": "2026-01-05T00:10:00Z", "drug": ["a", null]}': LABEL_REASON,
    '{"time": "2026-01-05T00:10:00Z", "drug": {"a": 1}}': LABEL_REASON,
    '{"time": 1767571200, "drug": "a"}': TIME_REASON,
    '{"time": "2026-01-05T00:10:00Z", "drug": null}': LABEL_REASON,
    '{"time": "2026-01-05T00:10:00Z", "drug": "' + "x" * 257 + '"}': LABEL_REASON,
    '{"time": null, "drug": "aspirin"}': TIME_REASON,
    '{"time": "noon", "drug": "aspirin"}': TIME_REASON,
}


@pytest.mark.parametrize(("line", "reason"), BAD_JSONL_LINES.items())
def test_a_bad_line_of_jsonl_is_refused_alone_with_its_number(tmp_path: Path, line: str, reason: str) -> None:
    first, second, _ = JSONL.split("\n")
    rows = read(tmp_path / "s.jsonl", "\n".join([first, line, second, ""]))
    assert rows_of(rows) == [(1, "ibuprofen"), (2, "aspirin")]
    assert rows.refused.rows() == [("s.jsonl", 2, reason)]


def test_bad_rows_of_parquet_are_refused_alone_with_their_numbers(tmp_path: Path) -> None:
    noon = datetime(2026, 1, 5, 12)
    table = pl.DataFrame(
        {"time": [noon, None, noon, datetime(2027, 1, 1), noon], "drug": ["a", "b", None, "d", "x" * 257]}
    )
    rows = read(tmp_path / "s.parquet", table)
    assert rows_of(rows) == [(13, "a")]
    assert refused(rows) == {
        2: TIME_REASON,
        3: LABEL_REASON,
        4: "column 'time' must be before the end of tick 24, the last one",
        5: LABEL_REASON,
    }


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_line_that_is_not_utf_8_is_refused_alone(tmp_path: Path, ending: str) -> None:
    content = (CSV if ending == "csv" else JSONL).encode().split(b"\n")
    content.insert(2, content[1].replace(b"i", b"\xff"))
    rows = read(tmp_path / f"s.{ending}", b"\n".join(content))
    assert rows_of(rows) == [(1, "ibuprofen"), (2, "aspirin")]
    assert list(refused(rows)) == [3]


@pytest.mark.parametrize(("name", "content"), [("s.csv", CSV), ("s.jsonl", JSONL)])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_blank_lines_and_byte_order_marks_do_not_matter(
    tmp_path: Path, name: str, content: str, end: str, mark: str
) -> None:
    rows = read(tmp_path / name, mark + content.replace("\n", end + end).removesuffix(end))
    assert rows_of(rows) == [(1, "ibuprofen"), (2, "aspirin")]
    assert rows.refused.height == 0


@pytest.mark.parametrize("size", [1, 7, 64])
def test_lines_are_numbered_through_all_blocks(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", size)
    header, first, second, _ = CSV.split("\n")
    rows = read(tmp_path / "s.csv", "\n".join([header, "x", first, "", '"', second, "y"]))
    assert rows_of(rows) == [(1, "ibuprofen"), (2, "aspirin")]
    assert list(refused(rows)) == [2, 5, 7]
    first, second, _ = JSONL.split("\n")
    rows = read(tmp_path / "s.jsonl", "\n".join(["x", first, "", "{", second, "y"]))
    assert rows_of(rows) == [(1, "ibuprofen"), (2, "aspirin")]
    assert list(refused(rows)) == [1, 4, 6]


def test_a_quoted_field_keeps_commas_and_quotes_and_empty_is_not_null(tmp_path: Path) -> None:
    text = 'time,drug\n"2026-01-05","a, ""b"""\n2026-01-05,""\n2026-01-05,\n2026-01-05, c \n'
    rows = read(tmp_path / "s.csv", text)
    assert rows_of(rows) == [(1, 'a, "b"'), (1, ""), (1, " c ")]
    assert refused(rows) == {4: LABEL_REASON}


def test_several_labels_are_joined_by_semicolons_in_csv_and_lists_elsewhere(tmp_path: Path) -> None:
    expected = [(1, "x", ["a", "b"]), (1, "x", []), (1, "x", ["c"])]
    text = "time,drug,basket\n2026-01-05,x,a;b\n2026-01-05,x,\n2026-01-05,x,c\n"
    assert rows_of(read(tmp_path / "s.csv", text, BASKETS)) == expected
    baskets: list[Any] = [["a", "b"], [], "c"]
    text = "".join(json.dumps({"time": "2026-01-05", "drug": "x", "basket": each}) + "\n" for each in baskets)
    assert rows_of(read(tmp_path / "s.jsonl", text, BASKETS)) == expected
    table = pl.DataFrame({"time": ["2026-01-05"] * 3, "drug": ["x"] * 3, "basket": [["a", "b"], [], ["c"]]})
    assert rows_of(read(tmp_path / "s.parquet", table, BASKETS)) == expected


def test_lists_with_bad_labels_are_refused_alone(tmp_path: Path) -> None:
    baskets: list[Any] = [["a", None], ["x" * 257], None, [1.5], [["a"]], ["a", 7]]
    text = "".join(json.dumps({"time": "2026-01-05", "drug": "x", "basket": each}) + "\n" for each in baskets)
    rows = read(tmp_path / "s.jsonl", text, BASKETS)
    assert rows_of(rows) == [(1, "x", ["a", "7"])]
    label = LABEL_REASON.replace("drug", "basket")
    assert refused(rows) == dict.fromkeys(range(1, 6), label)


@pytest.mark.parametrize("dtype", [pl.Categorical(), pl.Enum(["7", "8"]), pl.Int64(), pl.UInt8()])
def test_whole_numbers_and_categories_are_labels(tmp_path: Path, dtype: pl.DataType) -> None:
    column = pl.Series(["7", "8", None], dtype=pl.String).cast(dtype)
    rows = read(tmp_path / "s.parquet", pl.DataFrame({"time": ["2026-01-05"] * 3, "drug": column}))
    assert rows_of(rows) == [(1, "7"), (1, "8")]
    text = '{"time": "2026-01-05", "drug": 7}\n{"time": "2026-01-05", "drug": -8}\n'
    assert rows_of(read(tmp_path / "s.jsonl", text)) == [(1, "7"), (1, "-8")]


def test_one_text_is_a_list_of_one_where_lists_are_read(tmp_path: Path) -> None:
    table = pl.DataFrame({"time": ["2026-01-05"] * 2, "drug": ["x"] * 2, "basket": ["a;b", None]})
    rows = read(tmp_path / "s.parquet", table, BASKETS)
    assert rows_of(rows) == [(1, "x", ["a;b"])]
    assert list(refused(rows)) == [2]


def test_columns_of_nulls_are_refused_row_by_row(tmp_path: Path) -> None:
    table = pl.DataFrame({"time": ["2026-01-05"] * 2, "drug": [None, None]})
    assert list(refused(read(tmp_path / "s.parquet", table))) == [1, 2]
    table = pl.DataFrame({"time": [None, None], "drug": ["a", "b"]})
    assert list(refused(read(tmp_path / "s.parquet", table))) == [1, 2]


@pytest.mark.parametrize(("name", "content"), [("s.csv", CSV), ("s.jsonl", JSONL), ("s.parquet", TABLE)])
def test_values_are_read_beside_labels(tmp_path: Path, name: str, content: str | pl.DataFrame) -> None:
    rows = read(tmp_path / name, content, PRICES)
    assert rows_of(rows) == [(1, "ibuprofen", 2.0), (2, "aspirin", 1.5)]
    assert rows.table.schema == {"drug": pl.String, "price": pl.Float64}
    alone = read(tmp_path / name, content, PRICES[1:])
    assert rows_of(alone) == [(1, 2.0), (2, 1.5)]
    assert rows.refused.height == alone.refused.height == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("7", 7.0), ("-7", -7.0), ("+7.50", 7.5), ("0.1", 0.1), (".5", 0.5), ("5.", 5.0), ("1e3", 1000.0)),
        *(("1E-2", 0.01), ('"2.5"', 2.5), ("1" * 300, float("1" * 300)), ("1e-999", 0.0), ("-0", 0.0)),
    ],
)
def test_a_decimal_number_of_csv_is_its_value(tmp_path: Path, text: str, value: float) -> None:
    assert rows_of(read(tmp_path / "s.csv", f"time,drug,price\n2026-01-05,x,{text}\n", PRICES)) == [(1, "x", value)]


@pytest.mark.parametrize(
    "text",
    [
        *("", '""', "nan", "NaN", "inf", "-inf", "Infinity", "1e999", "1" * 400, "free", "1_000", "0x10", "1 000", "-"),
        *(" 1", "1 ", "1.2.3", "1e", ".", "٣", "12€", '"1,5"', "1/2", "true", "1e99999999999999999999999"),
    ],
)
def test_a_row_of_csv_without_a_finite_number_is_refused_alone(tmp_path: Path, text: str) -> None:
    header = "time,drug,price\n2026-01-05,x,1\n"
    rows = read(tmp_path / "s.csv", f"{header}2026-01-05,x,{text}\n2026-01-05,x,2\n", PRICES)
    assert rows_of(rows) == [(1, "x", 1.0), (1, "x", 2.0)]
    assert refused(rows) == {3: VALUE_REASON}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("null", VALUE_REASON),
        *((text, "a line must be a JSON object in UTF-8") for text in ("NaN", "Infinity", "-Infinity")),
        *((text, VALUE_REASON) for text in ("1e999", "1" + "0" * 400)),
        *((text, VALUE_REASON) for text in ("true", '"1.5"', "[1]", "{}", '""')),
    ],
)
def test_a_line_of_jsonl_without_a_finite_number_is_refused_alone(tmp_path: Path, text: str, reason: str) -> None:
    lines = [f'{{"time": "2026-01-05", "drug": "x", "price": {each}}}\n' for each in ("1", text, "2.5")]
    rows = read(tmp_path / "s.jsonl", "".join(lines), PRICES)
    assert rows_of(rows) == [(1, "x", 1.0), (1, "x", 2.5)]
    assert refused(rows) == {2: reason}
    rows = read(tmp_path / "s.jsonl", '{"time": "2026-01-05", "drug": "x"}\n', PRICES)
    assert refused(rows) == {1: VALUE_REASON}


@pytest.mark.parametrize(
    "dtype", [pl.Int8(), pl.UInt64(), pl.Int128(), pl.Float32(), pl.Float64(), pl.Decimal(10, 2), pl.Null()]
)
def test_numbers_of_every_type_are_values_in_parquet(tmp_path: Path, dtype: pl.DataType) -> None:
    values = pl.Series([1, None], dtype=pl.Int64)
    values = pl.Series([None, None]) if dtype == pl.Null else values.cast(dtype)
    rows = read(tmp_path / "s.parquet", pl.DataFrame({"time": ["2026-01-05"] * 2, "price": values}), PRICES[1:])
    assert rows_of(rows) == ([] if dtype == pl.Null else [(1, 1.0)])
    assert refused(rows)[2] == VALUE_REASON


def test_values_that_are_not_finite_are_refused_alone_in_parquet(tmp_path: Path) -> None:
    values = [1.0, float("nan"), float("inf"), float("-inf"), 1e300]
    rows = read(tmp_path / "s.parquet", pl.DataFrame({"time": ["2026-01-05"] * 5, "price": values}), PRICES[1:])
    assert rows_of(rows) == [(1, 1.0), (1, 1e300)]
    assert refused(rows) == dict.fromkeys((2, 3, 4), VALUE_REASON)


@pytest.mark.parametrize(("value", "dtype"), [("1", "String"), (True, "Boolean"), ([1.0], "List(Float64)")])
def test_values_of_a_wrong_type_are_refused_whole_in_parquet(tmp_path: Path, value: object, dtype: str) -> None:
    table = pl.DataFrame({"time": ["2026-01-05"], "price": [value]})
    with pytest.raises(InputError) as refusal:
        read(tmp_path / "s.parquet", table, PRICES[1:])
    assert str(refusal.value) == f"{tmp_path}/s.parquet: column 'price' must hold numbers, got {dtype}"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_the_same_value_in_csv_as_in_python(value: float) -> None:
    with TemporaryDirectory() as folder:
        rows = read(Path(folder, "s.csv"), f"time,price\n2026-01-05,{value!r}\n", PRICES[1:])
    assert rows_of(rows) == [(1, value)]


@pytest.mark.parametrize(("most", "lists"), [(1, False), (2, True), (None, True)])
def test_a_top_list_reads_labels_as_a_histogram_does(tmp_path: Path, most: int | None, lists: bool) -> None:
    queries = [TopK("top", key="drug", k=2, domain=["a", "b", "c"], max_keys_per_event=most, nulls="refuse")]
    rows = read(tmp_path / "s.csv", "time,drug\n2026-01-05,a;b\n", queries)
    assert rows_of(rows) == [(1, ["a", "b"] if lists else "a;b")]
    assert refused(read(tmp_path / "s.parquet", TABLE.with_columns(drug=None), queries))[1] == LABEL_REASON


def test_polars_own_reader_of_jsonl_lets_lines_decide_about_others() -> None:
    # Why it is not used; see the module's docstring.
    schema = {"drug": pl.String}
    for line in (b'{"drug"', b"[1]"):
        with pytest.raises(pl.exceptions.ComputeError):
            pl.read_ndjson(b'{"drug":"a"}\n' + line + b'\n{"drug":"b"}\n', schema=schema)
    assert pl.read_ndjson(b'{"drug":1.5}\n{"drug":true}\n{}\n', schema=schema).rows() == [("1.5",), ("true",), (None,)]


def test_a_folder_is_read_in_the_order_of_names_and_formats_mix(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(CSV + "x\n")
    (tmp_path / "a.jsonl").write_text(JSONL + "x\n")
    TABLE.write_parquet(tmp_path / "c.parquet")
    (tmp_path / "notes.txt").write_text("not read")
    (tmp_path / "_part.csv").write_text("not read")
    (tmp_path / "inner.csv").mkdir()
    rows = read_rows(spec_of(tmp_path))
    assert rows_of(rows) == [(1, "ibuprofen")] * 3 + [(2, "aspirin")] * 3
    assert rows.refused.select("file", "line").rows() == [("a.jsonl", 3), ("b.csv", 4)]
    assert rows_of(read_rows(spec_of(tmp_path, form="csv"))) == [(1, "ibuprofen"), (2, "aspirin")]


def test_a_format_is_believed_before_the_ending(tmp_path: Path) -> None:
    (tmp_path / "purchases.txt").write_text(CSV)
    assert len(rows_of(read_rows(spec_of(tmp_path / "purchases.txt", form="csv")))) == 2


def test_a_file_without_rows_is_a_stream_without_events(tmp_path: Path) -> None:
    assert rows_of(read(tmp_path / "s.csv", "time,drug\n")) == []
    assert rows_of(read(tmp_path / "s.parquet", TABLE.clear())) == []
    assert rows_of(read(tmp_path / "s.jsonl", "\n")) == []
    assert rows_of(read(tmp_path / "s.csv", "time,drug")) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.csv", "", "s.csv must hold rows, got an empty file; leave it out if there were no events"),
        ("s.jsonl", "", "s.jsonl must hold rows, got an empty file; leave it out if there were no events"),
        (
            "s.parquet",
            "",
            "s.parquet must hold rows, got an empty file; leave it out if there were no events",
        ),
        ("s.csv", "\n\n", "s.csv must begin with a header of column names, got blank lines only"),
        (
            "s.csv",
            "time,region\n",
            "s.csv: columns 'drug' must be in the file, got a header that lacks them (columns: 2)",
        ),
        (
            "s.csv",
            "Time;Drug\n",
            "s.csv: columns 'drug', 'time' must be in the file, got a header that lacks them (columns: 1)",
        ),
        ("s.csv", "time,drug,drug\n", "s.csv: column 'drug' must be in the header once, got it 2 times"),
        (
            "s.csv",
            'time,"drug\n',
            "s.csv must begin with a header of column names, got quotes that do not match",
        ),
        ("s.csv", b"\xff\xfet\x00", "s.csv must be UTF-8 text, got other bytes in its header"),
        ("s.parquet", "time,drug\n", "s.parquet must be a Parquet file, got other or damaged content"),
        (
            "s.parquet",
            TABLE.drop("time"),
            "s.parquet: columns 'time' must be in the file, got 'price', 'drug'",
        ),
        (
            "s.parquet",
            TABLE.with_columns(drug="price"),
            "s.parquet: column 'drug' must hold texts, whole numbers, booleans or dates, or lists of these, got "
            "Float64",
        ),
        (
            "s.parquet",
            TABLE.with_columns(time="price"),
            "s.parquet: column 'time' must hold date-times or ISO 8601 texts, got Float64; if they are numbers "
            "since 1970, give source.time_format",
        ),
        (
            "s.parquet",
            TABLE.with_columns(drug=pl.concat_list("price")),
            "s.parquet: column 'drug' must hold texts, whole numbers, booleans or dates, or lists of these, got "
            "List(Float64)",
        ),
        ("s.xls", "x", "s.xls must end in .csv, .tsv, .jsonl, .ndjson, .parquet, got .xls; or give source.format"),
    ],
)
def test_a_file_that_cannot_be_counted_is_refused_whole(
    tmp_path: Path, name: str, content: str | bytes | pl.DataFrame, message: str
) -> None:
    with pytest.raises(InputError) as refusal:
        read(tmp_path / name, content)
    assert str(refusal.value) == f"{tmp_path}/{message}"


def test_a_file_without_a_header_does_not_show_its_first_event(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refusal:
        read(tmp_path / "s.csv", "2026-01-05T00:10:00Z,canary\n2026-01-05T00:10:00Z,bob\n")
    assert "must be in the file" in str(refusal.value)
    assert "canary" not in str(refusal.value)


@pytest.mark.parametrize("header", ["drug", "drug,other"])
def test_a_byte_order_mark_stays_wherever_it_stands(header: str) -> None:
    wanted = Wanted(labels={"drug": False})
    rest = ",x" * header.count(",")

    def labels(*texts: str) -> list[str | None]:
        lines = pl.DataFrame({"text": [text + rest for text in texts]}).with_row_index("line", 2)
        piece = csv_piece(lines, header.split(","), wanted)
        assert piece.refused.height == 0
        return piece.columns["drug"].to_list()

    for texts in (["\ufeffx", "b"], ["b", "\ufeffx"], ["\ufeff"], ["\ufeff", "b"], ["b", "\ufeff"]):
        assert labels(*texts) == texts


def test_lists_of_a_wrong_type_are_refused_whole(tmp_path: Path) -> None:
    table = TABLE.with_columns(basket=pl.concat_list("price"))
    with pytest.raises(InputError, match="whole numbers, booleans or dates, or lists of these, got List"):
        read(tmp_path / "s.parquet", table, BASKETS)


def test_a_missing_file_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.csv must be a file or a folder, got none"):
        read_rows(spec_of(tmp_path / "nowhere.csv"))
    with pytest.raises(
        InputError, match=r"must hold files that end in .csv, .tsv, .jsonl, .ndjson, .parquet, got none"
    ):
        read_rows(spec_of(tmp_path))
    with pytest.raises(InputError, match=r"must hold files that end in .parquet, got none"):
        read_rows(spec_of(tmp_path, form="parquet"))


def test_a_damaged_parquet_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.parquet"
    TABLE.write_parquet(file)
    whole = file.read_bytes()
    for length in range(0, len(whole), 37):
        with pytest.raises(InputError, match="must"):
            read(file, whole[:length])


def test_without_a_source_there_is_nothing_to_read() -> None:
    spec = spec_of(Path())
    bare = StreamSpec(stream=spec.stream, source=None)
    with pytest.raises(SpecError, match=r"must have a \[source\]"):
        read_rows(bare)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=8)
LABELS = st.text(st.characters(codec="utf-8", exclude_characters="\n\r;"), min_size=1, max_size=8)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "note": TEXTS,
            "time": st.one_of(
                st.datetimes(datetime(2026, 1, 4), datetime(2026, 1, 7)).map(lambda time: time.isoformat() + "Z"),
                st.sampled_from(["noon", "2026-01-05", "2026-01-05T12:00+13:00"]),
            ),
            "drug": st.one_of(st.none(), TEXTS, st.just("x" * 300)),
            "basket": st.lists(LABELS, max_size=4),
            # JSON has no infinity and no NaN: such a line is refused as no JSON.
            "price": st.one_of(
                st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-100, 100).map(float)
            ),
        }
    ),
    min_size=1,
    max_size=12,
)


def write_all(folder: Path, events: list[dict[str, Any]]) -> list[Path]:
    schema: dict[str, Any] = {"note": pl.String, "time": pl.String, "drug": pl.String, "basket": pl.List(pl.String)}
    schema["price"] = pl.Float64
    table = pl.DataFrame(events, schema=schema)
    table.with_columns(pl.col("basket").list.join(";")).write_csv(folder / "s.csv")
    (folder / "s.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    table.write_parquet(folder / "s.parquet")
    return [folder / name for name in ("s.csv", "s.jsonl", "s.parquet")]


@settings(max_examples=100)
@given(EVENTS)
def test_the_same_rows_are_the_same_in_every_format(events: list[dict[str, Any]]) -> None:
    with TemporaryDirectory() as folder:
        results = [read_rows(spec_of(path, EVERYTHING)) for path in write_all(Path(folder), events)]
    assert rows_of(results[0]) == rows_of(results[1]) == rows_of(results[2])
    csv, jsonl, parquet = (refused(result) for result in results)
    assert jsonl == parquet == {line - 1: reason for line, reason in csv.items()}


def outcomes(path: Path, text: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """What becomes of each line: its tick and labels, or the reason for which it is refused."""
    path.write_text(text, encoding="utf-8", newline="")
    rows = read_rows(spec_of(path, EVERYTHING))
    return sorted(map(repr, rows_of(rows))), rows.refused.select("line", "reason").rows()


LINES = st.lists(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=30),
        st.text('",;a{}[]:\\', max_size=30),
        st.sampled_from(
            [
                "2026-01-05T03:00:00Z,aspirin,a;b,1.5",
                "2026-01-05T03:00:00Z,aspirin,a;b,nan",
                "2026-01-05T03:00:00Z,aspirin,a;b,free",
                '"2026-01-05T03:00:00Z","asp,irin","",1e3',
                '{"time": "2026-01-05T03:00:00Z", "drug": "aspirin", "basket": ["a", "b"], "price": 1}',
                '{"time": "2026-01-05T03:00:00Z", "drug": "aspirin", "basket": [], "price": "1"}',
                '{"time": "2026-01-05T03:00:00Z", "drug": 5, "basket": "a", "drug": 6, "price": -1.5}',
                '{"time": "2026-01-05T03:00:00Z", "drug": "a", "basket": [], "price": NaN}',
            ]
        ),
    ),
    max_size=8,
)


@settings(max_examples=100)
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@given(LINES)
def test_what_becomes_of_a_line_depends_on_that_line_only(ending: str, texts: list[str]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, f"s.{ending}")
        header = "time,drug,basket,price\n" if ending == "csv" else "\n"
        start = header.count("\n") + 1
        together = outcomes(path, header + "".join(f"{text}\n" for text in texts))
        counted, bad = [], []
        for number, text in enumerate(texts, start):
            alone = outcomes(path, f"{header}{text}\n")
            counted += alone[0]
            bad += [(number, reason) for _, reason in alone[1]]
    assert together == (sorted(counted), bad)
