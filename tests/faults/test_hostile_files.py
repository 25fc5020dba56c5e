"""Files that are small or well-formed and unfold to what no machine holds: refused in bounded time and memory."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.faults.report import record, size

from pianissimo.errors import InputError
from pianissimo.io.sources.rows import text_rows
from pianissimo.io.sources.rows.json_rows import read_jsonl_file
from pianissimo.io.sources.rows.parquet_rows import read_parquet_piece, read_parquet_times
from pianissimo.io.sources.rows.parquet_sizes import MalformedError, unfolded_size
from pianissimo.io.sources.rows.text_rows import Wanted, Written, read_blocks, read_csv_file

WANTED = Wanted(labels={"drug": False}, time="time", written=Written())
ROW = b'{"time": "2026-01-01T00:00:01", "drug": "a"}'


def bomb(path: Path, rows: int, text: str = "a") -> Path:
    """Rows that are all one: a dictionary of one entry, and runs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    moments = pa.array(np.full(rows, np.datetime64("2026-01-01T00:00:01", "us")))
    drugs = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([text]))
    pq.write_table(pa.table({"time": moments, "drug": drugs}), path, compression="zstd", row_group_size=rows)
    return path


def test_a_parquet_file_that_unfolds_to_much_more_than_it_is_long_is_refused_before_it_is_decoded(
    tmp_path: Path,
) -> None:
    rows, texts = bomb(tmp_path / "rows.parquet", 6_000_000), bomb(tmp_path / "texts.parquet", 100_000, "x" * 200_000)
    for path, said in ((rows, "values in a column"), (texts, "bytes in 1048576 rows")):
        assert path.stat().st_size < 60_000
        with pytest.raises(InputError, match=said):
            read_parquet_times(path, WANTED)
        with pytest.raises(InputError, match=said):
            read_parquet_piece(path, WANTED, 0)
    sizes = [unfolded_size(each, ["time", "drug"]) for each in (rows, texts)]
    assert (sizes[0].values, sizes[1].values) == (6_000_000, 100_000)
    assert sizes[1].looked_up >= 20 * 10**9


@pytest.mark.parametrize("packing", ["zstd", "snappy", "uncompressed", "gzip"])
@pytest.mark.parametrize("paged", [1000, None])
def test_what_a_file_says_of_itself_is_what_is_in_it(tmp_path: Path, packing: str, paged: int | None) -> None:
    table = pl.DataFrame(
        {"time": [str(each) for each in range(5000)], "drug": [[str(each)] * 3 for each in range(5000)]}
    )
    table.write_parquet(tmp_path / "f", compression=packing, row_group_size=paged)  # type: ignore[arg-type]
    assert unfolded_size(tmp_path / "f", ["time"]).values == 5000
    assert unfolded_size(tmp_path / "f", ["time", "drug"]).values == 15_000
    assert unfolded_size(tmp_path / "f", ["nothing"]).values == 0


def test_a_description_that_is_damaged_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"time": ["x"] * 100, "drug": ["a"] * 100}).write_parquet(tmp_path / "f")
    raw, rng = (tmp_path / "f").read_bytes(), np.random.default_rng(3)
    for _ in range(300):
        content = bytearray(raw)
        for _ in range(3):
            content[rng.integers(4, len(raw))] = rng.integers(256)
        (tmp_path / "g").write_bytes(content)
        try:
            unfolded_size(tmp_path / "g", ["time", "drug"])
        except MalformedError:
            continue


def test_a_line_that_is_too_long_is_refused_alone_wherever_blocks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_rows, "LONGEST_LINE", 100)
    lines = [ROW, b'{"drug": "' + b"x" * 200 + b'"}', ROW, b"y" * 101, b"y" * 100, ROW, b"z" * 500]
    (tmp_path / "f.jsonl").write_bytes(b"\n".join(lines))
    for block in (7, 50, 99, 100):
        monkeypatch.setattr(text_rows, "BLOCK_BYTES", block)
        pieces = list(read_jsonl_file(tmp_path / "f.jsonl", WANTED))
        assert [each for piece in pieces for each in piece.lines] == [1, 3, 6], block
        assert [each for piece in pieces for each in piece.refused["line"]] == [2, 4, 5, 7], block


def test_a_header_of_a_million_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(",".join(f"c{number}" for number in range(10**6)) + "\n")
    with pytest.raises(InputError, match="at most 4096 columns"):
        list(read_csv_file(tmp_path / "f.csv", WANTED))


def test_json_that_is_nested_deeply_is_a_row_that_is_refused(tmp_path: Path) -> None:
    deep = b'{"drug": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"
    (tmp_path / "f.jsonl").write_bytes(b"\n".join([ROW, deep, ROW]))
    pieces = list(read_jsonl_file(tmp_path / "f.jsonl", WANTED))
    assert [each for piece in pieces for each in piece.lines] == [1, 3]
    assert [each for piece in pieces for each in piece.refused["line"]] == [2]


READ = """
import resource, sys
from pathlib import Path
from tests.faults.test_hostile_files import WANTED
from pianissimo.io.sources.rows.json_rows import read_jsonl_file
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
refused = sum(piece.refused.height for piece in read_jsonl_file(Path(sys.argv[1]), WANTED))
print(refused, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_a_line_of_hundreds_of_megabytes_takes_little_memory(tmp_path: Path) -> None:
    millions = size(150, 600)
    with (tmp_path / "f.jsonl").open("wb") as file:
        file.write(ROW + b"\n")
        for _ in range(millions):
            file.write(b"a" * 10**6)
        file.write(b"\n" + ROW + b"\n")
    words = [sys.executable, "-c", READ, str(tmp_path / "f.jsonl")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    refused, grown = map(int, done.stdout.split())
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    figure = f"{grown} MiB more, {seconds:.1f} s of all children so far"
    record("R24", f"one line of {millions} MB", figure=figure, bar="256 MiB", passed=refused == 1 and grown < 256)
    assert list(read_blocks(tmp_path / "f.jsonl"))[-1] == (3, ROW)
