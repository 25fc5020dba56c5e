"""R15, R16: followed files on disks that are mounted anew, beside links, packed files and files of our own."""

import gzip
import json
import logging
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.io.running import append as write
from tests.io.running import write_spec
from tests.io.test_follow import append, lines, numbers, read, sealed, started

from pianissimo import Histogram
from pianissimo.errors import SourceAwayError, SourceError, SpecError
from pianissimo.io.clock import WallClock
from pianissimo.io.runs import run_durably
from pianissimo.io.sources import follow
from pianissimo.io.sources.follow import FolderFeed
from pianissimo.io.sources.live_ticks import LiveTicks
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.io.sources.source_records import Records, RowJudge
from pianissimo.stream.calendar import TickCalendar
from pianissimo.stream.spec import load_spec

NAME, DEVICE, REST = 0, 1, 7


def found(feed: FolderFeed) -> list[Records]:
    return list(feed.read(feed.end()))


def renumbered(position: Any) -> Any:
    """As if the device had got another number since, as it may after a reboot."""
    position["device"] += 1
    for row in (*position["follow"].values(), *position["away"].values()):
        row[DEVICE] += 1
    return position


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    return path


@pytest.fixture
def log(folder: Path) -> Path:
    path = folder / "app.jsonl"
    path.write_bytes(lines(1, 2))
    return path


@pytest.mark.parametrize("pattern", ["app.jsonl*", "app.jsonl"])
def test_a_file_on_a_device_with_another_number_is_read_on_under_its_new_name(log: Path, pattern: str) -> None:
    path = log.with_name(pattern)
    feed = started(path)
    assert numbers(feed) == [1, 2]
    position = renumbered(sealed(feed))
    append(log, lines(3))
    log.rename(log.with_name("app.jsonl.1"))
    log.write_bytes(lines(4))
    again = started(path, position)
    assert sorted(numbers(again)) == [3, 4]
    assert numbers(started(path, sealed(again))) == []


def test_a_file_that_comes_back_on_a_device_with_another_number_is_not_read_twice(log: Path, tmp_path: Path) -> None:
    feed = started(log.parent)
    assert numbers(feed) == [1, 2]
    position = sealed(feed)
    log.rename(tmp_path / "x")
    away = started(log.parent, position)
    assert numbers(away) == []
    position = renumbered(sealed(away))
    assert position["away"]
    (tmp_path / "x").rename(log.with_name("other.jsonl"))
    append(log.with_name("other.jsonl"), lines(3))
    assert numbers(started(log.parent, position)) == [3]


@pytest.mark.parametrize("rest", [b"", lines(3)[:-1]])
def test_a_file_that_was_lost_with_its_inode_under_another_name_stops_the_stream_if_it_was_not_read(
    log: Path, rest: bytes
) -> None:
    append(log, rest)
    feed = started(log.with_name("app.jsonl*"))
    read(feed)
    position = sealed(feed)
    feed.close()
    log.rename(log.with_name("app.jsonl.1"))  # as a file that was given the inode of one that was deleted
    log.with_name("app.jsonl.1").write_bytes(lines(4, 5, 6, 7))
    if rest:
        with pytest.raises(SourceError, match="must be there until it is read to its end"):
            started(log.with_name("app.jsonl*"), position)
    else:
        assert numbers(started(log.with_name("app.jsonl*"), position)) == [4, 5, 6, 7]


def test_a_line_that_is_copied_counts_twice(log: Path) -> None:
    """What `docs/limits.md` says."""
    feed = started(log.with_name("app.jsonl*"))
    assert numbers(feed) == [1, 2]
    log.with_name("app.jsonl.1").write_bytes(log.read_bytes())
    assert numbers(feed) == [1, 2]


def test_what_is_missing_is_told_to_everybody_who_asks(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that asks for ends must not be the only one that hears of it."""
    monkeypatch.setattr(follow, "_QUIET_SECONDS", 0)
    append(log, lines(3)[:-1])
    feed = started(log)
    read(feed)
    log.unlink()
    for _ in range(3):
        with pytest.raises(SourceError, match="must be there until it is read to its end"):
            feed.end()


@pytest.mark.parametrize("running", [True, False])
def test_a_csv_file_stays_one_under_a_rotated_name(folder: Path, running: bool) -> None:
    log = folder / "events.csv"
    log.write_bytes(b"drug\na\n")
    feed = started(log)
    assert [(each.header, each.texts.to_list()) for each in found(feed)] == [("drug", ["a"])]
    position = sealed(feed)
    append(log, b"b\n")
    log.rename(folder / "events.old")
    log.write_bytes(b"drug\nc\n")
    feed = feed if running else started(log, position)
    assert sorted((each.header, *each.texts) for each in found(feed)) == [("drug", "b"), ("drug", "c")]


@pytest.mark.parametrize("blank", [b"\n", b"\r\n\n", b"\xef\xbb\xbf\n", b"\n" * 200_000])
@pytest.mark.parametrize("at_once", [True, False])
def test_blank_lines_before_the_header_of_a_csv_file_are_passed_over(folder: Path, blank: bytes, at_once: bool) -> None:
    log = folder / "events.csv"
    log.write_bytes(blank)
    feed = started(log)
    if not at_once:
        assert read(feed) == []
        feed = started(log, sealed(feed))
    append(log, b"drug\na\n\nb\n")
    (records,) = found(feed)
    first = blank.count(b"\n") + 2
    assert (records.header, records.texts.to_list()) == ("drug", ["a", "", "b"])
    assert records.numbers.to_list() == [first, first + 1, first + 2]
    append(log, b"c\n")
    (records,) = found(started(log, sealed(feed)))
    assert (records.header, records.texts.to_list(), records.numbers.to_list()) == ("drug", ["c"], [first + 3])


def test_a_header_that_is_too_long_to_be_one_leaves_no_line_that_counts(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "BLOCK_BYTES", 64)
    monkeypatch.setattr(follow, "_SCAN", 16)
    (folder / "events.csv").write_bytes(b"x" * 100 + b"\na\n")
    (records,) = found(started(folder))
    assert (records.header, records.texts.to_list(), records.numbers.to_list()) == ("", ["a"], [2])


def test_files_that_hold_a_header_alone_are_no_copies(folder: Path, tmp_path: Path) -> None:
    header = b"drug,region,price\n"
    (folder / "sensor.csv").write_bytes(header)
    feed = started(folder)
    assert read(feed) == []
    (folder / "sensor-2.csv").write_bytes(header + b"a,b,1\n")
    assert read(feed) == ["a,b,1"]
    (folder / "sensor.csv").rename(tmp_path / "archived.csv")
    (folder / "sensor.csv").write_bytes(header)
    assert read(feed) == []
    append(folder / "sensor.csv", b"c,d,2\n")
    assert read(feed) == ["c,d,2"]


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lines(1), lines(1)),
        (lines(1), lines(1, 2)),
        (lines(1, 2), lines(1, 2, 3)),
        (lines(*[1] * 1000), lines(*[1] * 1001)),
    ],
)
def test_files_of_two_days_may_begin_with_the_same_events(
    log: Path, tmp_path: Path, first: bytes, second: bytes, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_QUIET_SECONDS", 0)
    log.write_bytes(first)
    os.utime(log, (1e9, 1e9))
    feed = started(log.parent)
    read(feed)
    log.rename(tmp_path / "archived")
    for _ in range(4):
        assert read(feed) == []
    if not running:
        feed = started(log.parent, sealed(feed))
    log.write_bytes(second)
    assert len(read(feed)) == second.count(b"\n")


@pytest.mark.parametrize("running", [True, False])
def test_what_was_made_and_rotated_while_nobody_looked_may_begin_like_what_was_read(log: Path, running: bool) -> None:
    """It is compared with no file that was renamed, though that is seen only after it."""
    content = lines(*range(10))
    log.write_bytes(content)
    path = log.with_name("app.jsonl*")
    feed = started(path)
    read(feed)
    position = sealed(feed)
    log.rename(log.with_name("app.jsonl.2"))
    log.with_name("app.jsonl.1").write_bytes(content + lines(100))
    log.write_bytes(lines(200))
    assert len(read(feed if running else started(path, position))) == 12


def test_packed_files_are_no_text(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_QUIET_SECONDS", 0)
    feed = started(log.with_name("app.jsonl*"))
    assert numbers(feed) == [1, 2]
    rotated = log.with_name("app.jsonl.1")
    log.rename(rotated)
    log.write_bytes(lines(3))
    assert numbers(feed) == [3]
    for ending in ("gz", "zst", "xz", "bz2", "Z"):
        log.with_name(f"app.jsonl.1.{ending}").write_bytes(gzip.compress(rotated.read_bytes()))
    rotated.unlink()
    for _ in range(4):
        assert read(feed) == []
    log.with_name("app.jsonl.1.gz").unlink()
    for _ in range(4):
        assert read(feed) == []
    with pytest.raises(SourceError, match="must be text as it is written, got a name of packed files"):
        FolderFeed(log.with_name("app.jsonl*.gz"))


def test_a_packed_file_that_was_once_read_as_text_may_go(log: Path) -> None:
    feed = started(log)
    read(feed)
    position = sealed(feed)
    (row,) = position["follow"].values()
    row[NAME], row[REST] = "app.jsonl.1.gz", True
    log.unlink()
    assert read(started(log, position)) == []


def test_a_link_that_leads_nowhere_is_passed_over(log: Path) -> None:
    for name in ("self", "other.jsonl"):
        (log.parent / name).symlink_to(name)
    (log.parent / "dangling.jsonl").symlink_to("nothing")
    (log.parent / "through.jsonl").symlink_to("app.jsonl/x")
    assert numbers(started(log.parent)) == [1, 2]
    assert numbers(started(log)) == [1, 2]


def test_what_cannot_be_seen_matters_only_where_it_is_meant(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        if Path(path).name.startswith("hidden"):
            raise PermissionError(13, "Permission denied", str(path))
        return ask(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    (log.parent / "hidden").touch()
    assert numbers(started(log.parent)) == [1, 2]
    (log.parent / "hidden.jsonl").touch()
    assert numbers(started(log)) == [1, 2]
    with pytest.raises(SourceAwayError, match=r"hidden\.jsonl must be a file that can be read, got: Permission denied"):
        started(log.parent).end()


def test_a_file_whose_name_is_no_text_is_read_like_any_other(folder: Path, tmp_path: Path) -> None:
    path = folder / os.fsdecode(b"app\xff.jsonl")
    path.write_bytes(b'{"drug": "a"}\nbad\n')
    feed = started(folder)
    ticks = LiveTicks(
        feed,
        RowJudge([Histogram("drugs", key="drug")]),
        WallClock(calendar=TickCalendar(datetime.now(UTC) - timedelta(hours=1), "1h")),
        refused=RefusedFile(tmp_path / "refused.jsonl"),
    )
    ticks.seek(None, 0)
    assert sum(batch.height for batch in ticks.batches(1) if batch is not None) == 1  # type: ignore[attr-defined]
    (told,) = map(json.loads, (tmp_path / "refused.jsonl").read_text().splitlines())
    assert (told["file"], told["line"]) == ("app\\udcff.jsonl", 2)
    position = sealed(feed)
    append(path, b"more\n")
    assert read(started(folder, position)) == ["more"]
    path.write_bytes(b"")
    with pytest.raises(SourceError, match=r"app\\udcff\.jsonl must only grow"):
        started(folder, position)


def test_a_line_without_its_end_may_be_taken_back_and_written_anew(log: Path) -> None:
    log.write_bytes(b'{"dr')
    feed = started(log)
    assert read(feed) == []
    log.write_bytes(b"{}\n")
    assert read(feed) == ["{}"]


def test_a_pipe_is_not_followed(folder: Path) -> None:
    os.mkfifo(folder / "events.jsonl")
    with pytest.raises(SourceError, match="must be a file or a folder, got something else"):
        FolderFeed(folder / "events.jsonl")


@pytest.mark.parametrize("followed", ["typo.jsonl", "*.csv", ""])
def test_that_nothing_is_there_yet_is_said_once(
    folder: Path, followed: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    spec = load_spec(write_spec(tmp_path, f'follow = "logs/{followed}"', ticks=1))
    with caplog.at_level(logging.WARNING):
        run_durably(spec, str(tmp_path / "state"))
    (told,) = caplog.messages
    assert "must find files, got none yet" in told
    assert str(folder) in told


def test_nothing_is_said_where_a_file_is_there(folder: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    write(folder / "events.jsonl", "")
    spec = load_spec(write_spec(tmp_path, 'follow = "logs/events.jsonl"', ticks=1))
    with caplog.at_level(logging.WARNING):
        run_durably(spec, str(tmp_path / "state"))
    assert not caplog.messages


@pytest.mark.parametrize(
    ("source", "state", "out"),
    [
        ('follow = "logs"', "logs", None),
        ('follow = "logs/*.jsonl"', "logs/../logs", None),
        ('follow = "logs/*"\nformat = "jsonl"', "logs/state", None),
        ('follow = "logs/state*"', "logs/state", None),
        ('follow = "logs/drugs"', "state", "logs"),
    ],
)
def test_files_of_the_stream_itself_are_not_followed(
    folder: Path, tmp_path: Path, source: str, state: str, out: str | None
) -> None:
    (folder / "drugs").mkdir()
    spec = load_spec(write_spec(tmp_path, source, ticks=1))
    out_folder = None if out is None else tmp_path / out
    with pytest.raises(SpecError, match="must find files of others alone, got one of this stream's own"):
        run_durably(spec, str(tmp_path / state), out=out_folder, format="jsonl")
    assert not (tmp_path / state / "state.db").exists()


def test_a_state_beside_what_is_followed_is_no_fault(folder: Path, tmp_path: Path) -> None:
    write(folder / "events.jsonl", "")
    spec = load_spec(write_spec(tmp_path, 'follow = "logs"', ticks=1))
    assert run_durably(spec, str(folder / "state")).loop.tick == 1


def test_an_end_asked_for_while_a_file_is_read_and_rotated_loses_no_line(log: Path) -> None:
    """Threads: what is read while another asks is one file, under whichever name."""
    log.write_bytes(lines(*range(2000)))
    feed = started(log.with_name("app.jsonl*"))
    stop = threading.Event()
    faults: list[BaseException] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                feed.end()
        except SourceError as error:
            faults.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    seen = []
    for generation in range(1, 20):
        seen += numbers(feed)
        log.rename(log.with_name(f"app.jsonl.{generation}"))
        log.write_bytes(lines(*range(generation * 10_000, generation * 10_000 + 50)))
    seen += numbers(feed)
    stop.set()
    thread.join()
    assert not faults
    assert len(seen) == len(set(seen)) == 2000 + 19 * 50
