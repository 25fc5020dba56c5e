"""Files as they lie around: packed, cut by other signs than commas, with line breaks in quotes."""

import gzip
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text
from tests.io.reading import read_rows, write_count

from pianissimo.budget import Budget
from pianissimo.cli.render import cell
from pianissimo.errors import InputError, SpecError
from pianissimo.io.sources.event_files import CheckedRows
from pianissimo.io.sources.rows import text_rows
from pianissimo.io.sources.rows.text_rows import Written
from pianissimo.io.sources.source_records import Records, RowJudge
from pianissimo.queries import Histogram
from pianissimo.stream import Stream
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import StreamSpec, load_spec

QUERY = Histogram("drugs", key="drug", domain=["a", "b"])
TEXT = "time,drug,more\n2026-01-01T00:00:10Z,a,\n2026-01-01T00:01:10Z,b,x\n"
JSON = '{"time": "2026-01-01T00:00:10Z", "drug": "a"}\n{"time": "2026-01-01T00:01:10Z", "drug": "b"}\n'


def rows_of(path: Path, **options: object) -> CheckedRows:
    spec = StreamSpec(
        stream=Stream("s", budget=Budget(1, 1e-9), horizon=4, queries=[QUERY], tick="1m", origin="2026-01-01"),
        source=FileSource(path=path, time="time", **options),  # type: ignore[arg-type]
    )
    return read_rows(spec)


def pack(path: Path, content: bytes) -> None:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    elif path.suffix == ".zst":
        with pa.output_stream(str(path), compression="zstd") as file:
            file.write(content)
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("packed", ["", ".gz", ".zst"])
@pytest.mark.parametrize(
    ("name", "text"), [("e.csv", TEXT), ("e.tsv", TEXT.replace(",", "\t")), ("e.jsonl", JSON), ("e.ndjson", JSON)]
)
def test_packed_files_hold_the_same_rows(tmp_path: Path, name: str, text: str, packed: str) -> None:
    pack(tmp_path / f"{name}{packed}", text.encode())
    for place in (tmp_path, tmp_path / f"{name}{packed}"):
        rows = rows_of(place)
        assert (rows.table["drug"].to_list(), rows.ticks.tolist()) == (["a", "b"], [1, 2])
        assert not rows.refused.height


@pytest.mark.parametrize("packed", [".gz", ".zst"])
def test_packed_files_that_are_damaged_are_refused(tmp_path: Path, packed: str) -> None:
    path = tmp_path / f"e.csv{packed}"
    pack(path, TEXT.encode() * 1000)
    whole = path.read_bytes()
    for content in (whole[:-20], b"no such thing" + whole, whole[:30] + b"\x00\xff\x01" * 9 + whole[57:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="must be a file that can be read, got: "):
            rows_of(path)
    with pytest.raises(InputError, match="got: No such file"):
        list(text_rows.read_blocks(tmp_path / f"none{packed}"))


def test_packed_parquet_is_no_file_of_rows(tmp_path: Path) -> None:
    (tmp_path / "e.parquet.gz").write_bytes(b"x")
    with pytest.raises(InputError, match=r"must end in \.csv"):
        rows_of(tmp_path / "e.parquet.gz")


@pytest.mark.parametrize("sign", [";", "|", "\t"])
def test_another_sign_may_be_between_fields(tmp_path: Path, sign: str) -> None:
    (tmp_path / "e.csv").write_text(TEXT.replace(",", sign) + f'2026-01-01T00:02:10Z{sign}"a{sign}""b"{sign}\nx,y\n')
    rows = rows_of(tmp_path / "e.csv", delimiter=sign)
    assert rows.table["drug"].to_list() == ["a", "b", f'a{sign}"b']
    assert rows.refused["line"].to_list() == [5]
    assert f"where they hold {sign!r} or a quote" in rows.refused["reason"][0]


def test_live_lines_are_cut_by_it_too() -> None:
    judge = RowJudge([QUERY], written=Written(delimiter=";"))
    records = Records(place="e.csv", rank=(), numbers=pl.Series([2]), texts=pl.Series(["x,y;a"]), header="more;drug")
    assert judge.read(records).table["drug"].to_list() == ["a"]
    by_name = Records(place="e.tsv", rank=(), numbers=pl.Series([2]), texts=pl.Series(["x\ta"]), header="more\tdrug")
    assert RowJudge([QUERY]).read(by_name).table["drug"].to_list() == ["a"]


BROKEN = 'time,drug,more\n2026-01-01T00:00:10Z,a,"two\n\nlines, ""x"""\n2026-01-01T00:01:10Z,b,x\n'


def test_line_breaks_in_quotes_are_read_where_the_file_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "e.csv").write_text(BROKEN)
    # Without it each line is a row, so that a forgotten quote swallows nobody's.
    assert rows_of(tmp_path / "e.csv").table["drug"].to_list() == ["b"]
    for size in (text_rows.BLOCK_BYTES, 7, 40, 50):
        monkeypatch.setattr(text_rows, "BLOCK_BYTES", size)
        rows = rows_of(tmp_path / "e.csv", line_breaks=True)
        assert (rows.table["drug"].to_list(), rows.refused.height) == (["a", "b"], 0)


def test_a_quote_that_never_ends_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text(TEXT + '2026-01-01T00:02:10Z,a,"open\n2026-01-01T00:02:10Z,a,\n')
    rows = rows_of(tmp_path / "e.csv", line_breaks=True)
    assert rows.table["drug"].to_list() == ["a", "b", "a"]
    assert rows.refused["line"].to_list() == [4]


@given(st.lists(st.text(st.sampled_from('ab",\n;'), max_size=6), min_size=1, max_size=8), st.integers(1, 60))
def test_what_a_writer_of_csv_writes_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, labels: list[str], size: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "e.csv"
    table = pl.DataFrame({"time": ["2026-01-01T00:00:10Z"] * len(labels), "drug": labels})
    table.write_csv(path, quote_style="non_numeric")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "BLOCK_BYTES", size)
        rows = rows_of(path, line_breaks=True)
    assert rows.table["drug"].to_list() == labels


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('path = "e.csv"\ntime = "t"\ndelimiter = "ab"', "source.delimiter must be ',', ';', '\\\\t' or '|', got 'ab'"),
        ('path = "e"\nformat = "jsonl"\ntime = "t"\ndelimiter = ";"', "source.delimiter must be left out where"),
        ('stdin = true\ndelimiter = ";"', "source.delimiter must be left out where the source is not CSV"),
        ('follow = "logs"\nline_breaks = true', "source.line_breaks must be false unless source.path is of CSV"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, source: str, told: str) -> None:
    file = write_count(tmp_path, source, path=None)
    with pytest.raises(SpecError) as refused:
        load_spec(file)
    assert told.replace("\\\\", "\\") in str(refused.value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (33192.090000000004, "33,192.09"),
        (1500.0, "1,500"),
        (12.345678, "12.3457"),
        (0.1 + 0.2, "0.3"),
        (2.5e6, "2,500,000"),
    ],
)
def test_numbers_are_shown_with_digits_that_mean_something(value: float, shown: str) -> None:
    assert cell(value) == Text(shown)
