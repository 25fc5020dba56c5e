"""S3: a Parquet file that ends the process that reads it ends one that was made for that, and is refused."""

import os
import signal
import sys
from pathlib import Path

import polars as pl
import pytest

from pianissimo.errors import InputError
from pianissimo.io.sources import parquet as parquet_file
from pianissimo.io.sources.parquet import ParquetLook
from pianissimo.io.sources.piece import Wanted


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.parquet"
    pl.DataFrame({"drug": ["aspirin", None], "price": [1, 2]}).write_parquet(path)
    return path


def test_a_file_is_looked_at_once_while_it_stays_as_it_is(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = ParquetLook()
    assert look.can_be_read(good, ["drug"])
    asked: list[str] = []

    def note(path: Path, columns: list[str]) -> str:
        asked.append(path.name)
        return "yes"

    monkeypatch.setattr(look, "_asked", note)
    assert look.can_be_read(good, ["drug"])
    assert asked == []
    assert look.can_be_read(good, ["price"])
    pl.DataFrame({"drug": ["b"] * 5}).write_parquet(good)
    assert look.can_be_read(good, ["drug"])
    assert asked == ["good.parquet", "good.parquet"]
    look.close()


def test_whoever_looks_may_be_killed_and_the_file_is_looked_at_again(good: Path, tmp_path: Path) -> None:
    look = ParquetLook()
    assert look.can_be_read(good, ["drug"])
    assert look._process is not None
    os.kill(look._process.pid, signal.SIGKILL)
    other = tmp_path / "other.parquet"
    other.write_bytes(good.read_bytes())
    assert look.can_be_read(other, ["drug"])
    look.close()


def test_a_file_that_whoever_looks_dies_of_is_refused(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look the reader itself would die: it is given the file afterwards, and not before."""
    dying = good.with_name("dying")
    dying.write_text("#!/bin/sh\nread line\nkill -ABRT $$\n")
    dying.chmod(0o700)
    monkeypatch.setattr(parquet_file, "looked_at", ParquetLook())
    monkeypatch.setattr(sys, "executable", str(dying))
    wanted = Wanted(labels={"drug": False}, values=["price"], time=None)
    with pytest.raises(InputError, match="must be a Parquet file, got other or damaged content"):
        parquet_file.read_parquet_piece(good, wanted, 0)
    monkeypatch.undo()
    assert parquet_file.read_parquet_piece(good, wanted, 0).columns.height == 2


def test_a_missing_column_is_told_by_its_name(good: Path) -> None:
    with pytest.raises(InputError, match="'remedy'"):
        parquet_file.read_parquet_piece(good, Wanted(labels={"remedy": False}, values=[], time=None), 0)


def test_a_fork_has_somebody_else_look(good: Path, tmp_path: Path) -> None:
    look = ParquetLook()
    assert look.can_be_read(good, ["drug"])
    other = tmp_path / "other.parquet"
    other.write_bytes(good.read_bytes())
    mine = look._process
    look._owner = -1  # as it is in a fork
    assert look.can_be_read(other, ["drug"])
    assert look._process is not mine
    look.close()
    assert mine is not None
    mine.communicate()
