"""R15, R16: followed files lose no line, count none twice, and stop where that cannot be known."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from pianissimo import codec
from pianissimo.errors import SourceError
from pianissimo.io.sources import follow
from pianissimo.io.sources.follow import FolderFeed
from pianissimo.io.sources.source_records import Records


def lines(*numbers: int) -> bytes:
    return b"".join(b'{"n": "%d"}\n' % number for number in numbers)


def read(feed: FolderFeed) -> list[str]:
    return [text for records in feed.read(feed.end()) for text in records.texts]


def numbers(feed: FolderFeed) -> list[int]:
    return [int(text.split('"')[3]) for text in read(feed)]


def sealed(feed: FolderFeed) -> Any:
    """The position as it comes back from the store."""
    return codec.unpack("positions", 1, codec.pack("positions", 1, feed.position))


def started(path: Path, position: Any = None) -> FolderFeed:
    feed = FolderFeed(path)
    feed.seek(position)
    return feed


def append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(lines(1, 2))
    return path


def test_lines_are_read_as_they_come_and_each_once(log: Path) -> None:
    feed = started(log)
    assert numbers(feed) == [1, 2]
    assert numbers(feed) == []
    append(log, lines(3)[:-1])
    assert numbers(feed) == []
    append(log, b"\n" + lines(4))
    assert numbers(feed) == [3, 4]


def test_what_comes_after_an_end_was_told_waits_for_the_next(log: Path) -> None:
    feed = started(log)
    end = feed.end()
    append(log, lines(3))
    assert [text for records in feed.read(end) for text in records.texts] == ['{"n": "1"}', '{"n": "2"}']
    assert numbers(feed) == [3]


def test_a_start_goes_on_at_the_sealed_place(log: Path) -> None:
    feed = started(log)
    read(feed)
    position = sealed(feed)
    append(log, lines(3))
    again = started(log, position)
    (records,) = again.read(again.end())
    assert records.numbers.to_list() == [3]
    assert numbers(started(log, position)) == [3]


def test_a_reader_that_does_not_come_back_has_lost_nothing(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BLOCK_BYTES", len(lines(1)))
    append(log, lines(3, 4))
    feed = started(log)
    assert next(iter(feed.read(feed.end()))).texts.to_list() == ['{"n": "1"}']
    assert numbers(started(log, sealed(feed))) == [2, 3, 4]
    assert numbers(feed) == [2, 3, 4]


@pytest.mark.parametrize("running", [True, False])
def test_a_rotated_file_is_read_on_under_its_new_name(log: Path, running: bool) -> None:
    feed = started(log)
    read(feed)
    position = sealed(feed)
    append(log, lines(3))
    log.rename(log.with_name("events.jsonl.1"))
    log.write_bytes(lines(4))
    feed = feed if running else started(log, position)
    assert sorted(numbers(feed)) == [3, 4]
    append(log.with_name("events.jsonl.1"), lines(5))  # a writer that has not reopened it yet
    assert numbers(feed) == [5]
    assert numbers(started(log, sealed(feed))) == []


def test_a_file_that_is_deleted_after_it_was_read_is_no_fault(log: Path) -> None:
    feed = started(log)
    read(feed)
    position = sealed(feed)
    log.unlink()
    assert numbers(feed) == []
    log.write_bytes(lines(3, 4))  # perhaps under the same inode
    assert numbers(feed) == [3, 4]
    log.unlink()
    away = started(log, position)
    assert numbers(away) == []
    assert sealed(away)["away"]


def test_a_file_that_is_deleted_while_it_is_open_is_read_to_its_end(log: Path) -> None:
    feed = started(log)
    read(feed)
    append(log, lines(3))
    log.unlink()
    assert numbers(feed) == [3]
    assert numbers(feed) == []


def test_a_file_that_was_taken_away_and_is_back_is_not_read_twice(log: Path, tmp_path: Path) -> None:
    feed = started(log)
    read(feed)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    log.rename(elsewhere / "x")
    assert numbers(feed) == []
    position = sealed(feed)
    append(elsewhere / "x", lines(3))
    (elsewhere / "x").rename(log)
    assert numbers(feed) == [3]
    assert numbers(started(log, position)) == [3]


def cut_off(log: Path) -> None:
    log.write_bytes(lines(1))


def rewritten(log: Path) -> None:
    log.write_bytes(lines(7, 8, 9))


def rewritten_as_long(log: Path) -> None:
    log.write_bytes(lines(7, 8))
    os.utime(log, ns=(1, 1))


def emptied(log: Path) -> None:
    log.write_bytes(b"")


@pytest.mark.parametrize("change", [cut_off, rewritten, rewritten_as_long, emptied])
@pytest.mark.parametrize("running", [True, False])
def test_a_file_that_was_rewritten_stops_the_stream(log: Path, change: Any, running: bool) -> None:
    feed = started(log)
    read(feed)
    position = sealed(feed)
    change(log)
    with pytest.raises(SourceError, match="must only grow"):
        read(feed if running else started(log, position))


def test_files_of_other_names_may_hold_the_same_events(tmp_path: Path) -> None:
    feed = started(tmp_path)
    for number in range(12):
        (tmp_path / f"event-{number}.jsonl").write_bytes(lines(1))
        assert numbers(feed) == [1]


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("alike", [True, False])
def test_a_file_that_was_given_the_inode_of_a_deleted_one_is_read(
    tmp_path: Path, running: bool, alike: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_MOST_OPEN", 3)
    for number in range(30):
        (tmp_path / f"a{number:02}.jsonl").write_bytes(lines(1 if alike else number))
    feed = started(tmp_path)
    assert len(numbers(feed)) == 30
    position = sealed(feed)
    for number in range(20):
        (tmp_path / f"a{number:02}.jsonl").unlink()
    for number in range(20):
        (tmp_path / f"b{number:02}.jsonl").write_bytes(lines(1 if alike else number + 100))
    if not running:
        feed = started(tmp_path, position)
    assert numbers(feed) == ([1] * 20 if alike else list(range(100, 120)))
    assert numbers(started(tmp_path, sealed(feed))) == []


@pytest.mark.parametrize("name", ["app.jsonl", "app.jsonl.2"])
def test_a_file_made_while_the_stream_was_down_is_not_a_deleted_one_though_all_lines_are_alike(
    tmp_path: Path, name: str
) -> None:
    """Once an hour of rotated files lost one: it had the inode of a deleted one, and the same lines."""
    log = tmp_path / "app.jsonl"
    log.write_bytes(lines(1) * 500)
    feed = started(tmp_path / "app.jsonl*")
    assert len(numbers(feed)) == 500
    position = sealed(feed)
    feed.close()
    inode = log.stat().st_ino
    log.unlink()
    (tmp_path / name).write_bytes(lines(1) * 600)
    again = started(tmp_path / "app.jsonl*", position)
    assert len(numbers(again)) == 600, (inode, (tmp_path / name).stat().st_ino)
    append(tmp_path / name, lines(2))
    assert numbers(started(tmp_path / "app.jsonl*", sealed(again))) == [2]


def test_where_a_file_system_does_not_tell_births_a_renamed_file_is_the_same(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "birth_of", lambda _: None)
    feed = started(log)
    read(feed)
    position = sealed(feed)
    append(log, lines(3))
    log.rename(log.with_name("events.jsonl.1"))
    assert numbers(started(log, position)) == [3]


@pytest.mark.parametrize("running", [True, False])
def test_a_file_that_was_not_kept_open_is_read_on_under_its_new_name(
    tmp_path: Path, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_MOST_OPEN", 3)
    for number in range(20):
        (tmp_path / f"a{number:02}.jsonl").write_bytes(lines(number))
    feed = started(tmp_path)
    read(feed)
    position = sealed(feed)
    for number in range(20):
        append(tmp_path / f"a{number:02}.jsonl", lines(number + 100))
        (tmp_path / f"a{number:02}.jsonl").rename(tmp_path / f"b{number:02}.jsonl")
    assert numbers(feed if running else started(tmp_path, position)) == list(range(100, 120))


@pytest.mark.parametrize("deleted", [True, False])
def test_a_writer_of_a_file_that_left_the_folder_may_go_on_for_a_while(
    tmp_path: Path, log: Path, deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    feed = started(log)
    with log.open("ab") as writer:
        read(feed)
        (tmp_path / "elsewhere").mkdir()
        if deleted:
            log.unlink()
        else:
            log.rename(tmp_path / "elsewhere" / "x")
        for number in range(3, 9):
            assert numbers(feed) == []
            now[0] += 1.5
            writer.write(lines(number))
            writer.flush()
            assert numbers(feed) == [number]
        for _ in range(3):
            assert numbers(feed) == []
            assert feed._files
        now[0] += 2.5
        assert numbers(feed) == []
    assert not feed._files
    assert len(feed.position["away"]) == (0 if deleted else 1)


def test_a_file_that_vanished_with_an_unfinished_line_stops_the_stream(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_QUIET_SECONDS", 0)
    append(log, lines(3)[:-1])
    feed = started(log)
    assert numbers(feed) == [1, 2]
    position = sealed(feed)
    log.unlink()
    for each in (feed, None):
        with pytest.raises(SourceError, match="must be there until it is read to its end"):
            read(each or started(log, position))


def test_a_file_cut_off_between_its_end_and_its_reading_stops_the_stream(log: Path) -> None:
    feed = started(log)
    end = feed.end()
    log.write_bytes(lines(1))
    with pytest.raises(SourceError, match="must only grow"):
        list(feed.read(end))


def test_another_source_is_refused() -> None:
    with pytest.raises(SourceError, match="must be the one that was read before"):
        FolderFeed("/tmp").seek({"standard_input": 3})
    with pytest.raises(SourceError, match="must be a file or a folder, got none"):
        FolderFeed("/no-such-folder")
    with pytest.raises(SourceError, match="must lie in a folder"):
        FolderFeed("/no-such-folder/events.jsonl")


def test_the_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.ndjson").write_bytes(lines(2))
    (tmp_path / "a.jsonl").write_bytes(lines(1))
    for name in (".hidden.jsonl", "_part.jsonl", "notes.txt"):
        (tmp_path / name).write_bytes(lines(9))
    (tmp_path / "folder.jsonl").mkdir()
    feed = started(tmp_path)
    assert numbers(feed) == [1, 2]
    (tmp_path / "0.jsonl").write_bytes(lines(3))
    append(tmp_path / "a.jsonl", lines(4))
    assert numbers(feed) == [3, 4]


def test_a_pattern_finds_what_was_rotated_while_nobody_looked(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    log.write_bytes(lines(1))
    feed = started(tmp_path / "events.jsonl*")
    assert numbers(feed) == [1]
    position = sealed(feed)
    for number in (2, 3):
        for name in ("events.jsonl.1", "events.jsonl"):
            if (tmp_path / name).exists():
                (tmp_path / name).rename(tmp_path / f"{name[:12]}.{int(name[13:] or 0) + 1}")
        log.write_bytes(lines(number))
    assert sorted(numbers(started(tmp_path / "events.jsonl*", position))) == [2, 3]


def test_a_file_may_come_later(tmp_path: Path) -> None:
    feed = started(tmp_path / "events.jsonl")
    assert numbers(feed) == []
    (tmp_path / "events.jsonl").write_bytes(b"\xef\xbb\xbf" + lines(1))
    assert numbers(feed) == [1]


def test_csv_files_carry_their_headers(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_bytes(b"n,drug\n1,aspirin\n")

    def pieces(feed: FolderFeed) -> list[tuple[str | None, list[int], list[str]]]:
        return [(each.header, each.numbers.to_list(), each.texts.to_list()) for each in feed.read(feed.end())]

    feed = started(path)
    assert pieces(feed) == [("n,drug", [2], ["1,aspirin"])]
    position = sealed(feed)
    append(path, b"2,codeine\n")
    assert pieces(started(path, position)) == [("n,drug", [3], ["2,codeine"])]


def test_a_line_longer_than_a_block_is_one_that_is_no_text(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "BLOCK_BYTES", 64)
    append(log, b"x" * 1000 + b"\n" + b"y" * 63 + b"\n" + lines(3))
    feed = started(log)
    found: list[Records] = list(feed.read(feed.end()))
    assert [text for records in found for text in records.texts] == [
        '{"n": "1"}',
        '{"n": "2"}',
        None,
        "y" * 63,
        '{"n": "3"}',
    ]
    assert [number for records in found for number in records.numbers] == [1, 2, 3, 4, 5]


def test_many_files_are_followed_with_few_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_MOST_OPEN", 3)
    for number in range(20):
        (tmp_path / f"{number:02}.jsonl").write_bytes(lines(number))
    feed = started(tmp_path)
    assert numbers(feed) == list(range(20))
    assert sum(each.descriptor is not None for each in feed._files.values()) <= 4
    for number in range(20):
        append(tmp_path / f"{number:02}.jsonl", lines(number + 100))
    assert numbers(feed) == list(range(100, 120))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_writers_and_restarts_do_every_line_is_read_once(tmp_path: Path, seed: int) -> None:
    """Writers append pieces of lines, rotate and delete what was read; the reader stops and starts at sealed places."""
    chance = random.Random(seed)
    log, written, got, rotations = tmp_path / "events.jsonl", 0, [], 0
    rest = b""
    feed = started(log)
    position: Any = None
    for _ in range(120):
        match chance.choice(["write", "write", "piece", "rotate", "read", "read", "restart"]):
            case "write":
                append(log, rest + lines(written))
                rest, written = b"", written + 1
            case "piece" if not rest:
                line, cut = lines(written), chance.randrange(1, 8)
                append(log, line[:cut])
                rest, written = line[cut:], written + 1
            case "rotate" if not rest and log.exists():
                rotations += 1
                log.rename(tmp_path / f"events.jsonl.{rotations}")
            case "read":
                got += numbers(feed)
                position = sealed(feed)
            case "restart":
                feed.close()
                feed = started(log, position)
            case _:
                pass
        if chance.random() < 0.1:
            # What is read ahead and not sealed is read again.
            list(feed.read(feed.end()))
            feed.close()
            feed = started(log, position)
    append(log, rest)
    got += numbers(feed)
    missing = set(range(written)) - set(got)
    # A file that was made and rotated while nobody looked is not found under a name that nobody asked for.
    unseen = {
        int(line.split(b'"')[3]) for path in tmp_path.glob("events.jsonl.*") for line in path.read_bytes().splitlines()
    }
    assert len(got) == len(set(got))
    assert missing <= unseen


@pytest.mark.parametrize("seed", range(10))
def test_with_a_pattern_no_line_is_missed(tmp_path: Path, seed: int) -> None:
    chance, got, rotations = random.Random(seed), [], 0
    log = tmp_path / "events.jsonl"
    feed = started(tmp_path / "events.jsonl*")
    for number in range(150):
        append(log, lines(number))
        if chance.random() < 0.3:
            rotations += 1
            log.rename(tmp_path / f"events.jsonl.{rotations}")
        if chance.random() < 0.3:
            got += numbers(feed)
            if chance.random() < 0.5:
                position = sealed(feed)
                feed.close()
                feed = started(tmp_path / "events.jsonl*", position)
    got += numbers(feed)
    assert sorted(got) == list(range(150))


def test_a_position_shows_nothing_of_what_was_read(log: Path) -> None:
    feed, other = started(log), started(log)
    read(feed)
    read(other)
    assert b"aspirin" not in codec.pack("positions", 1, feed.position)
    # The digest is under a key of this stream: the same content elsewhere has another.
    (row,), (another,) = feed.position["follow"].values(), other.position["follow"].values()
    assert row[6] != another[6]
    assert repr(feed) == f"FolderFeed({str(log)!r})"
