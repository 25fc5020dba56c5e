import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest

from pianissimo import Histogram
from pianissimo.errors import DiskFullError, SourceError
from pianissimo.io.clock import WallClock
from pianissimo.io.sources import standard_input
from pianissimo.io.sources.live_ticks import LiveTicks, TickRules
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.io.sources.source_records import EndOfTicks, OnceFeed, RowJudge
from pianissimo.io.sources.standard_input import StandardInput
from pianissimo.stream.calendar import TickCalendar


def wait_until_ended(feed: StandardInput) -> None:
    """Until whoever writes has closed it; with little in it."""
    if feed._thread is not None:
        feed._thread.join()


@contextmanager
def piped() -> Iterator[tuple[StandardInput, int]]:
    reading, writing = os.pipe()
    feed = StandardInput(reading)
    feed.seek(None)
    try:
        yield feed, writing
    finally:
        if not feed.ended:
            os.close(writing)
        wait_until_ended(feed)
        os.close(reading)


def texts(feed: StandardInput, end: int) -> list[str | None]:
    return [text for records in feed.read(end) for text in records.texts]


def until(feed: StandardInput, count: int) -> int:
    deadline = time.monotonic() + 10
    while feed.end() < count and time.monotonic() < deadline:
        time.sleep(0.001)
    return int(feed.end())


def test_lines_are_there_when_they_are_whole() -> None:
    with piped() as (feed, writing):
        os.write(writing, b"one\ntwo\nthr")
        assert until(feed, 2) == 2
        assert not feed.ended
        assert texts(feed, 2) == ["one", "two"]
        os.write(writing, b"ee\n\xff\nfour")
        assert until(feed, 4) == 4
        os.close(writing)
        wait_until_ended(feed)
        assert feed.ended
        assert texts(feed, feed.end()) == ["three", None, "four"]
        assert feed.position == {"standard_input": 5}


def test_what_comes_after_an_end_was_told_waits_for_the_next() -> None:
    with piped() as (feed, writing):
        os.write(writing, b"1\n2\n3\n4\n")
        until(feed, 4)
        assert texts(feed, 1) == ["1"]
        assert texts(feed, 3) == ["2", "3"]
        (records,) = feed.read(feed.end())
        assert (records.numbers.to_list(), records.texts.to_list()) == ([4], ["4"])


def test_numbers_go_on_after_a_start_and_nothing_comes_again() -> None:
    reading, writing = os.pipe()
    feed = StandardInput(reading)
    feed.seek({"standard_input": 7})
    os.write(writing, b"x\n")
    os.close(writing)
    wait_until_ended(feed)
    (records,) = feed.read(feed.end())
    assert records.numbers.to_list() == [8]
    assert isinstance(feed, OnceFeed)
    os.close(reading)
    with pytest.raises(SourceError, match="must be the one that was read before"):
        feed.seek({"follow": []})


def test_a_line_that_is_too_long_is_one_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "LONGEST_LINE", 100)
    monkeypatch.setattr(standard_input, "_PIECE", 64)
    reading, writing = os.pipe()
    feed = StandardInput(reading)
    feed.seek(None)
    os.write(writing, b"a\n" + b"x" * 500 + b"\nb\n" + b"y" * 500 + b"\n" + b"z" * 500)
    os.close(writing)
    wait_until_ended(feed)
    assert texts(feed, feed.end()) == ["a", None, "b", None, None]
    os.close(reading)


@pytest.mark.parametrize("piece", [1, 7, 64, 100])
@pytest.mark.parametrize("others", [0, 1, 30, 63, 64, 90])
@pytest.mark.parametrize("is_last", [True, False])
def test_whether_a_line_is_too_long_does_not_depend_on_what_others_sent(
    others: int, piece: int, is_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_input, "LONGEST_LINE", 100)
    monkeypatch.setattr(standard_input, "_PIECE", piece)
    for length, text in ((100, "y" * 100), (101, None)):
        with piped() as (feed, writing):
            ending = b"" if is_last else b"\nz\n"
            os.write(writing, (b"x" * (others - 1) + b"\n" if others else b"") + b"y" * length + ending)
            os.close(writing)
            wait_until_ended(feed)
            expected = [text] if is_last else [text, "z"]
            assert texts(feed, feed.end())[bool(others) :] == expected


@pytest.mark.parametrize("piece", [1, 2, 64])
def test_a_byte_order_mark_at_the_beginning_is_no_part_of_the_first_line(
    piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_input, "_PIECE", piece)
    with piped() as (feed, writing):
        os.write(writing, "\ufeffone\n\ufefftwo\nthree".encode())
        os.close(writing)
        wait_until_ended(feed)
        assert texts(feed, feed.end()) == ["one", "\ufefftwo", "three"]


def test_standard_input_that_is_closed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SourceError, match="must be open, got one that is closed"):
        StandardInput()
    with (tmp_path / "file").open("w+") as file:
        monkeypatch.setattr(sys, "stdin", file)
        feed = StandardInput()
    with pytest.raises(SourceError, match="must be open, got one that is closed"):
        feed.seek(None)


def test_whoever_writes_too_fast_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_input, "MOST_BYTES", 1000)
    monkeypatch.setattr(standard_input, "_PIECE", 128)
    reading, writing = os.pipe()
    feed = StandardInput(reading)
    feed.seek(None)

    def write() -> None:
        for number in range(20_000):
            os.write(writing, b"%d\n" % number)
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    time.sleep(0.05)
    assert feed._bytes < 2000
    got: list[str | None] = []
    while writer.is_alive() or not feed.ended or feed.end() > feed.position["standard_input"]:
        got += texts(feed, feed.end())
    writer.join()
    assert got == [str(number) for number in range(20_000)]
    os.close(reading)


def test_the_last_lines_are_given_again_after_the_side_file_had_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, failures = RefusedFile.sync, [1]

    def full(self: RefusedFile) -> None:
        if self._left and failures:
            failures.pop()
            raise DiskFullError("refused.jsonl must have room on its disk, got none")
        write(self)

    monkeypatch.setattr(RefusedFile, "sync", full)
    with piped() as (feed, writing):
        os.write(writing, b'{"drug": "a"}\n' * 500 + b"rubbish\n")
        os.close(writing)
        wait_until_ended(feed)
        ticks = LiveTicks(
            feed,
            RowJudge([Histogram("drugs", key="drug")]),
            WallClock(calendar=TickCalendar(datetime.now(UTC), "1h")),
            refused=RefusedFile(tmp_path / "refused.jsonl"),
            rules=TickRules(until_end=True),
        )
        with pytest.raises(DiskFullError):
            list(ticks.batches(1))
        assert sum(batch.height for batch in ticks.batches(1) if isinstance(batch, pl.DataFrame)) == 500
        with pytest.raises(EndOfTicks):
            list(ticks.batches(2))
