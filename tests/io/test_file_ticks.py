"""Complete files as a source of ticks: what was counted stays counted once, whatever becomes of the files."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from pianissimo.budget import Budget
from pianissimo.errors import DiskFullError, SourceError
from pianissimo.io.sources import event_files
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.io.sources.rows.parquet_rows import read_parquet_piece
from pianissimo.queries import Histogram
from pianissimo.stream import Stream
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import StreamSpec

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
Event = tuple[int, str]


def spec_of(path: Path) -> StreamSpec:
    query = Histogram("drugs", key="drug", domain=["a", "b"])
    return StreamSpec(
        stream=Stream("s", budget=Budget(1, 1e-9), horizon=4, queries=[query], tick="1m", origin=ORIGIN),
        source=FileSource(path=path, time="time"),
    )


def ticks_of(path: Path) -> FileTicks:
    return FileTicks(spec_of(path))


def labels(ticks: FileTicks, tick: int) -> list[str]:
    return [label for batch in ticks.batches(tick) for label in batch["drug"]]


def write_jsonl(path: Path, events: list[Event]) -> None:
    rows = [{"time": (ORIGIN + timedelta(seconds=second)).isoformat(), "drug": label} for second, label in events]
    # So much after the rows that their own bytes are far from the end.
    rows += [{"time": "2026-01-01T00:03:30Z", "drug": "b", "more": "x" * 50}] * 200
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_csv(path: Path, events: list[Event]) -> None:
    rows = [f"{(ORIGIN + timedelta(seconds=second)).isoformat()},{label},\n" for second, label in events]
    path.write_text("time,drug,more\n" + "".join(rows) + f"2026-01-01T00:03:30Z,b,{'x' * 50}\n" * 200)


def write_parquet(path: Path, events: list[Event]) -> None:
    times, drugs = [ORIGIN + timedelta(seconds=second) for second, _ in events], [label for _, label in events]
    new = path.with_name("new.tmp")
    pl.DataFrame({"time": times, "drug": drugs}).write_parquet(new)
    new.replace(path)


@pytest.mark.parametrize(("name", "write"), [("e.jsonl", write_jsonl), ("e.csv", write_csv)])
def test_an_event_whose_time_was_changed_between_two_starts_is_not_counted_in_a_second_tick(
    tmp_path: Path, name: str, write: Callable[[Path, list[Event]], None]
) -> None:
    path = tmp_path / name
    write(path, [(10, "a"), (70, "a")])
    first = ticks_of(path)
    first.seek(None, 0)
    assert labels(first, 1) == ["a"]
    size, stat = path.stat().st_size, path.stat()
    write(path, [(80, "a"), (70, "a")])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == size
    with pytest.raises(SourceError, match=f"those that were read before, got others: {name}"):
        ticks_of(path).seek(first.position, 1)
    write(path, [(10, "a"), (70, "a")])
    again = ticks_of(path)
    again.seek(first.position, 1)
    assert labels(again, 2) == ["a"]


def test_a_parquet_file_that_is_replaced_while_it_is_read_stops_the_stream(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    write_parquet(path, [(10, "a"), (70, "a"), (130, "a")])
    ticks = ticks_of(path)
    ticks.seek(None, 0)
    write_parquet(path, [(10, "b"), (70, "b"), (71, "b")])
    with pytest.raises(SourceError, match="must stay as it is while it is read, got another file"):
        labels(ticks, 1)
    path.unlink()
    with pytest.raises(SourceError, match="must stay as it is"):
        labels(ticks, 1)


def test_a_parquet_file_that_is_replaced_in_the_midst_of_a_read_stops_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e.parquet"
    write_parquet(path, [(10, "a"), (70, "a")])
    ticks = ticks_of(path)
    ticks.seek(None, 0)
    whole = read_parquet_piece

    def slow(*given: object) -> object:
        write_parquet(path, [(10, "b"), (70, "b")])
        return whole(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(event_files, "read_parquet_piece", slow)
    with pytest.raises(SourceError, match="must stay as it is"):
        labels(ticks, 1)


def test_a_file_that_is_replaced_between_its_digest_and_its_rows_stops_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "e.jsonl"
    write_jsonl(path, [(10, "a")])
    whole = event_files.READERS["jsonl"]

    def late(*given: object) -> object:
        write_jsonl(path, [(10, "a"), (11, "a")])
        return whole(*given)  # type: ignore[arg-type]

    monkeypatch.setitem(event_files.READERS, "jsonl", late)
    with pytest.raises(SourceError, match="must stay as it is"):
        ticks_of(path)


@pytest.mark.parametrize("position", [{"follow": []}, {"standard_input": 3}, 3, [1]])
def test_a_stream_that_was_read_from_elsewhere_does_not_go_on_with_complete_files(
    tmp_path: Path, position: object
) -> None:
    path = tmp_path / "e.jsonl"
    write_jsonl(path, [(10, "a")])
    with pytest.raises(SourceError, match=r"the one that was read before, got complete files; mend \[source\]"):
        ticks_of(path).seek(position, 1)


def rows_in_three_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> FileTicks:
    """A Parquet file of three pieces, in each of which a row is refused; there is no room for that of the second."""
    monkeypatch.setattr(event_files, "PIECE", 2)
    pl.DataFrame({"time": ["2026-01-01T00:00:10Z", "never"] * 3, "drug": ["a", "b"] * 3}).write_parquet(path)
    told: list[int] = []

    def refused(_: str, lines: pl.DataFrame) -> None:
        told.append(lines.height)
        if len(told) == 2:
            raise DiskFullError("the disk must have room, got none")

    return FileTicks(spec_of(path), refused)


def counted_with_a_full_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    ticks = rows_in_three_pieces(path, monkeypatch)
    found: list[str] = []
    ticks.seek(None, 0)
    for _ in range(2):
        with suppress(DiskFullError):
            for batch in ticks.batches(1):
                found += batch["drug"].to_list()
    return found


def test_where_there_was_no_room_a_tick_goes_on_after_what_was_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert counted_with_a_full_disk(tmp_path / "e.parquet", monkeypatch) == ["a"] * 3


def test_handing_over_from_the_beginning_once_more_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose, as it was: the first piece counts twice."""
    sound = FileTicks.batches

    def broken(self: FileTicks, tick: int) -> Iterator[pl.DataFrame]:
        self._handed = 0
        return sound(self, tick)

    monkeypatch.setattr(FileTicks, "batches", broken)
    assert counted_with_a_full_disk(tmp_path / "e.parquet", monkeypatch) == ["a"] * 4


@pytest.mark.parametrize(("name", "write"), [("e.jsonl", write_jsonl), ("e.csv", write_csv)])
def test_a_column_without_a_value_is_told_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, write: Callable[[Path, list[Event]], None]
) -> None:
    write(tmp_path / name, [(10, "a")])
    ticks_of(tmp_path / name)
    assert not caplog.messages
    path = tmp_path / name
    path.write_text(path.read_text().replace('"drug"', '"remedy"').replace(",a,", ",,").replace(",b,", ",,"))
    ticks_of(path)
    assert caplog.messages == [f"columns 'drug' must be in records, got none that has them in {path}"]
