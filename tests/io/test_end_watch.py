"""S1: a tick of a live source ends at its public instant, whatever is read, judged or sealed just then."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from tests.io.test_follow import lines, started
from tests.io.test_live_ticks import MINUTE, ORIGIN, Hands, Shelf, labels, ticks_of

from pianissimo.errors import SourceAwayError
from pianissimo.io.sources import live_ticks
from pianissimo.io.sources import live_ticks as end_watch
from pianissimo.io.sources.live_ticks import EndWatch, LiveTicks


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hands of the clock are set by the tests, so that it is looked at all the time."""
    monkeypatch.setattr(end_watch, "_LONGEST_WAIT", 0.005)


def watching(ticks: LiveTicks, *, watch: bool) -> AbstractContextManager[object]:
    return EndWatch(ticks.note_end) if watch else nullcontext()


def pass_to(hands: Hands, ticks: LiveTicks, tick: int, *, watch: bool) -> None:
    """It is a moment after the end of a tick, and whoever watches has seen it."""
    hands.moment = ORIGIN + tick * MINUTE + timedelta(seconds=1)
    deadline = time.monotonic() + 20
    while watch and (ticks._covered or 0) < tick:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("watch", [True, False])
@pytest.mark.parametrize("others", [0, 5])
def test_what_comes_after_the_end_while_others_are_read_is_in_the_next_tick(
    tmp_path: Path, others: int, watch: bool
) -> None:
    """The twin without a watch counts it too early, and only where there are others: so the test can see it."""
    hands, shelf = Hands(), Shelf(piece=1)
    shelf.put("a", *["b"] * others)
    ticks = ticks_of(hands, shelf, tmp_path)

    def slow() -> None:
        if shelf.place == 1 + others:
            shelf.while_reading = None
            pass_to(hands, ticks, 1, watch=watch)
            if others:
                shelf.put("mine")

    shelf.while_reading = slow
    with watching(ticks, watch=watch):
        first = labels(ticks, 1)
        if not others:
            shelf.put("mine")
        hands.moment = ORIGIN + 2 * MINUTE
        second = labels(ticks, 2)
    counted_in = [tick for tick, found in enumerate((first, second), 1) if "mine" in found]
    assert counted_in == [1 if others and not watch else 2]


@pytest.mark.parametrize("watch", [True, False])
def test_ticks_that_are_over_while_another_is_sealed_end_each_at_its_time(tmp_path: Path, watch: bool) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    with watching(ticks, watch=watch):
        assert labels(ticks, 1) == []
        for tick, label in ((2, "x"), (3, "y"), (4, "z")):
            pass_to(hands, ticks, tick, watch=watch)
            shelf.put(label)
        found = [labels(ticks, tick) for tick in (2, 3, 4, 5)]
    assert found == ([[], ["x"], ["y"], ["z"]] if watch else [["x", "y", "z"], [], [], []])


def test_of_ticks_that_are_over_and_not_read_only_so_many_ends_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_ticks, "_MOST_ENDS", 2)
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    for tick in range(1, 7):
        hands.moment = ORIGIN + tick * MINUTE
        shelf.put(str(tick))
        ticks.note_end()
    assert len(ticks._ends) == 2
    found = [labels(ticks, tick) for tick in range(1, 7)]
    assert found == [["1"], ["2"], ["3", "4", "5", "6"], [], [], []]


def test_ends_that_were_noted_before_the_clock_was_put_back_are_forgotten(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    for tick in (1, 2, 3):
        hands.moment = ORIGIN + tick * MINUTE
        shelf.put(str(tick))
        ticks.note_end()
    assert labels(ticks, 1) == ["1"]
    hands.moment = ORIGIN + timedelta(seconds=70)
    shelf.put("now")
    assert labels(ticks, 2) == ["2", "3", "now"]
    assert hands.moment >= ORIGIN + 2 * MINUTE


def test_a_source_that_is_away_for_the_watch_is_told_by_whoever_reads(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    shelf.put("a")
    ticks = ticks_of(hands, shelf, tmp_path)
    shelf.away = 10**9
    hands.moment = ORIGIN + MINUTE
    with watching(ticks, watch=True):
        deadline = time.monotonic() + 20
        while shelf.away > 10**9 - 3:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        with pytest.raises(SourceAwayError):
            labels(ticks, 1)
        shelf.away = 0
        assert labels(ticks, 1) == ["a"]


def test_nothing_is_asked_before_it_is_known_where_to_begin(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    ticks._covered = None
    hands.moment = ORIGIN + MINUTE
    assert ticks.note_end() == live_ticks.PAUSE
    assert not ticks._ends


def test_a_folder_is_asked_for_its_end_by_one_thread_while_another_reads(tmp_path: Path) -> None:
    feed = started(tmp_path)
    stop, seen = threading.Event(), list[int]()

    def write() -> None:
        for number in range(0, 3000, 10):
            path = tmp_path / "events.jsonl"
            if number % 500 == 0 and path.exists():
                path.rename(tmp_path / f"events-{number}.jsonl")
            with path.open("ab") as file:
                file.write(lines(*range(number, number + 10)))
        stop.set()

    def ask() -> None:
        while not stop.is_set():
            feed.end()

    threads = [threading.Thread(target=each) for each in (write, ask, ask)]
    for each in threads:
        each.start()
    is_last = False
    while not is_last:
        is_last = stop.is_set()
        seen += [int(text.split('"')[3]) for records in feed.read(feed.end()) for text in records.texts]
    for each in threads:
        each.join()
    assert sorted(seen) == list(range(3000))


@pytest.mark.parametrize("renamed", ["before", "between", "after"])
def test_when_a_file_is_renamed_does_not_change_the_order_of_a_stream_of_users(tmp_path: Path, renamed: str) -> None:
    def parts(ticks: LiveTicks) -> Iterator[str]:
        for batch in ticks.batches(1):
            if isinstance(batch, pl.DataFrame):
                yield from batch["drug"].to_list()

    folder = tmp_path / "logs"
    folder.mkdir()
    path, rotated = folder / "events.jsonl", folder / "events.jsonl.1"
    hands = Hands()
    path.write_text('{"drug": "first"}\n')

    def rotate() -> None:
        path.rename(rotated)
        path.write_text('{"drug": "second"}\n')

    def more() -> None:
        with (path if renamed == "after" else rotated).open("a") as file:
            file.write('{"drug": "still first"}\n')

    if renamed == "before":
        rotate()
        more()
    else:
        hands.at(20, rotate if renamed == "between" else more)
        hands.at(40, more if renamed == "between" else rotate)
    feed = started(folder / "events.jsonl*")
    ticks = ticks_of(hands, feed, tmp_path, ordered=True)
    # Files have the order of their inodes, which a new one may have below those that are there.
    found, is_later = list(parts(ticks)), path.stat().st_ino > rotated.stat().st_ino
    assert found == (["first", "still first", "second"] if is_later else ["second", "first", "still first"])
