"""What a Parquet file says of itself is checked before any of its rows is decoded."""

from pathlib import Path

import polars as pl
import pytest

from pianissimo.errors import InputError
from pianissimo.io.sources.rows import parquet_rows
from pianissimo.io.sources.rows.text_rows import Wanted

WANTED = Wanted(labels={"drug": False}, values=["price"])


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.parquet"
    pl.DataFrame({"drug": ["aspirin", None], "price": [1, 2]}).write_parquet(path)
    return path


def test_a_missing_column_is_told_by_its_name(good: Path) -> None:
    with pytest.raises(InputError, match="'remedy'"):
        parquet_rows.read_parquet_piece(good, Wanted(labels={"remedy": False}), 0)


def test_a_file_with_too_many_rows_is_refused_before_they_are_read(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "MOST_ROWS_A_FILE", 1)
    with pytest.raises(InputError, match=r"good.parquet must have at most 1 rows, got more; split it"):
        parquet_rows.read_parquet_piece(good, WANTED, 0)


@pytest.mark.parametrize("cut", [1, 4, 8, 12, 40])
def test_a_file_that_was_cut_off_is_refused(good: Path, cut: int) -> None:
    good.write_bytes(good.read_bytes()[:-cut])
    with pytest.raises(InputError, match="must be a Parquet file, got other or damaged content"):
        parquet_rows.read_parquet_piece(good, WANTED, 0)


def test_a_description_that_is_longer_than_the_file_is_refused(good: Path) -> None:
    content = good.read_bytes()
    good.write_bytes(content[:-8] + (2**31 - 1).to_bytes(4, "little") + content[-4:])
    with pytest.raises(InputError, match="must be a Parquet file, got other or damaged content"):
        parquet_rows.read_parquet_piece(good, WANTED, 0)
