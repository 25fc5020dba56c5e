"""A folder of releases has a file a tick, and one a day once the day is over; killed at any step, every tick once."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from tests.faults.points import OF_FOLDERS, armed
from tests.faults.world import Crash, crash_from
from tests.io.running import write_spec

from pianissimo.durable import failpoints
from pianissimo.errors import ParameterError
from pianissimo.io import folder as folders
from pianissimo.io import read_releases
from pianissimo.io.folder import FolderSink, last_tick
from pianissimo.io.inspect import verify_folder
from pianissimo.stream import StreamRelease
from pianissimo.stream.source_spec import FileFormat
from pianissimo.stream.spec import load_spec

FORMATS: list[FileFormat] = ["parquet", "jsonl", "csv"]
ORIGIN = datetime(2026, 3, 28, 20, tzinfo=UTC)
PLAN = {"digest": "3f", "origin": ORIGIN.isoformat(), "tick": "1h", "time_zone": "Europe/Berlin"}
LAST = 60


def release(tick: int) -> StreamRelease:
    """Days of Berlin: tick 3 begins one, the next has 23 hours; `rare` is published at every fifth tick."""
    start = ORIGIN + (tick - 1) * timedelta(hours=1)
    count = pl.DataFrame({"estimate": [tick], "low": [tick - 3], "high": [tick + 3]})
    tables = {"n": count, "shown": count.clear()} | ({"rare": count} if tick % 5 == 0 else {})
    return StreamRelease(tick, 0.95, tables, start=start, end=start + timedelta(hours=1))


def expected(last: int) -> dict[str, pl.DataFrame]:
    found: dict[str, list[pl.DataFrame]] = {}
    for tick in range(1, last + 1):
        for name, table in release(tick).items():
            found.setdefault(name, []).append(folders.with_tick(tick, table))
    return {name: pl.concat(parts) for name, parts in found.items()}


def check(out: Path, last: int = LAST) -> None:
    found = read_releases(out)
    assert found.keys() == expected(last).keys()
    for name, table in expected(last).items():
        assert_frame_equal(found[name], table)
    assert last_tick(out) == last


def sink(out: Path, form: FileFormat = "parquet") -> FolderSink:
    return FolderSink(out, plan=PLAN, format=form)


def names(out: Path, query: str = "n") -> list[str]:
    return sorted(path.stem for path in (out / query).iterdir())


@pytest.mark.parametrize("form", FORMATS)
def test_a_day_that_is_over_is_one_file(tmp_path: Path, form: FileFormat) -> None:
    folder = sink(tmp_path, form)
    for tick in range(1, LAST + 1):
        folder.write(release(tick))
        if tick % 13 == 0:
            check(tmp_path, tick)
    whole = ["ticks-00000001-00000003", "ticks-00000004-00000026", "ticks-00000027-00000050"]
    assert names(tmp_path) == whole + [f"ticks-{tick:08}-{tick:08}" for tick in range(51, LAST + 1)]
    assert names(tmp_path, "rare") == [
        "ticks-00000005-00000025",
        "ticks-00000030-00000050",
        "ticks-00000055-00000055",
        "ticks-00000060-00000060",
    ]


def test_parts_of_other_formats_are_put_together_too(tmp_path: Path) -> None:
    for tick in range(1, LAST + 1):
        sink(tmp_path, FORMATS[tick % 3]).write(release(tick))
    check(tmp_path)
    assert len(names(tmp_path)) == 3 + 10


@pytest.mark.parametrize(("most_ticks", "most_rows"), [(7, 10**6), (4096, 4), (7, 1), (11, 4)])
def test_parts_are_bounded_in_ticks_and_rows_and_none_is_lost(
    tmp_path: Path, most_ticks: int, most_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MOST_TICKS", most_ticks)
    monkeypatch.setattr(folders, "MOST_ROWS", most_rows)
    for tick in range(1, LAST + 1):
        sink(tmp_path).write(release(tick))  # each in a process of its own
        if tick % 7 == 0 or tick == LAST:
            check(tmp_path, tick)
    if most_rows < 10:
        for path in (tmp_path / "n").iterdir():
            assert pl.read_parquet(path).height <= most_rows


def test_without_an_origin_ticks_stay_by_themselves(tmp_path: Path) -> None:
    folder = FolderSink(tmp_path, plan={"digest": "3f"})
    for tick in range(1, LAST + 1):
        folder.write(release(tick))
    assert len(names(tmp_path)) == LAST
    check(tmp_path)


def test_without_an_origin_too_many_ticks_become_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "MOST_TICKS", 25)
    folder = FolderSink(tmp_path, plan={"digest": "3f"}, files="month")
    for tick in range(1, LAST + 1):
        folder.write(release(tick))
    check(tmp_path)
    whole = ["ticks-00000001-00000024", "ticks-00000025-00000049"]
    assert names(tmp_path) == whole + [f"ticks-{tick:08}-{tick:08}" for tick in range(50, LAST + 1)]


def monthly(out: Path, form: FileFormat = "jsonl") -> FolderSink:
    return FolderSink(out, plan=PLAN, format=form, files="month")


def test_a_month_that_is_over_is_one_file(tmp_path: Path) -> None:
    """March ends in Berlin with tick 74."""
    folder = monthly(tmp_path)
    for tick in range(1, 102):
        folder.write(release(tick))
        if tick in (74, 75, 76):
            check(tmp_path, tick)
    check(tmp_path, 101)
    days = ["ticks-00000075-00000098", *(f"ticks-{tick:08}-{tick:08}" for tick in (99, 100, 101))]
    assert names(tmp_path) == ["ticks-00000001-00000074", *days]
    assert names(tmp_path, "rare")[:2] == ["ticks-00000005-00000070", "ticks-00000075-00000095"]


def test_a_folder_of_days_becomes_one_of_months_and_parts_stay_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = sink(tmp_path, "jsonl")
    for tick in range(1, 91):
        days.write(release(tick))
    monkeypatch.setattr(folders, "MOST_ROWS", 40)
    monthly(tmp_path).write(release(91))
    check(tmp_path, 91)
    # 3, 23 and 24 ticks are 50: once there are forty or more, a part is full.
    assert names(tmp_path)[:2] == ["ticks-00000001-00000050", "ticks-00000051-00000074"]
    assert names(tmp_path)[2] == "ticks-00000075-00000075"


@pytest.mark.parametrize("point", OF_FOLDERS)
def test_killed_while_a_month_is_put_together_every_tick_is_there_once(tmp_path: Path, point: str) -> None:
    days = sink(tmp_path, "jsonl")
    for tick in range(1, 101):
        days.write(release(tick))
    # The days are files already: what is made of them now is the month.
    with pytest.raises(Crash), armed({point: crash_from(1 if point == OF_FOLDERS[1] else 0)}):
        monthly(tmp_path).write(release(101))
    check(tmp_path, 100)
    folder = monthly(tmp_path)
    folder.write(release(101))
    check(tmp_path, 101)
    assert names(tmp_path)[0] == "ticks-00000001-00000074"


def test_files_are_a_days_or_a_months(tmp_path: Path) -> None:
    more = '[sinks.files]\nkind = "folder"\npath = "out"\nfiles = "month"'
    (found,) = load_spec(write_spec(tmp_path, 'follow = "logs"', more=more)).sinks
    assert found.files == "month"
    with pytest.raises(ParameterError, match="files must be one of day, month, got 'week'"):
        FolderSink(tmp_path, plan=PLAN, files="week")  # type: ignore[arg-type]


@pytest.mark.parametrize("point", OF_FOLDERS)
@pytest.mark.parametrize("nth", [0, 1, 4])
def test_killed_at_a_step_every_tick_is_there_once_and_the_next_start_cleans_up(
    tmp_path: Path, point: str, nth: int
) -> None:
    folder, tick = sink(tmp_path), 1
    with armed({point: crash_from(nth)}):
        while tick <= LAST:
            try:
                folder.write(release(tick))
            except Crash:
                check(tmp_path, tick - 1)
                (tmp_path / "n" / ".ticks-00000001-00000003.parquet.999.tmp").write_bytes(b"half of it")
                folder = sink(tmp_path)  # a new process, to which the same tick is sent once more
                break
            tick += 1
    for again in range(tick, LAST + 1):
        folder.write(release(again))
    check(tmp_path)
    assert len(names(tmp_path)) == 3 + 10
    assert not list(tmp_path.rglob("*.tmp"))


def test_removing_before_writing_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: who is killed between both has lost a day."""
    sound = FolderSink._put_together_some

    def broken(self: FolderSink, name: str, parts: list[tuple[int, int, Path]], is_short: Callable[..., bool]) -> None:
        contents = [part[2].read_bytes() for part in parts]
        for part in parts:
            part[2].unlink()
        failpoints.reach("compact.written")
        for part, content in zip(parts, contents, strict=True):
            part[2].write_bytes(content)
        sound(self, name, parts, is_short)

    monkeypatch.setattr(FolderSink, "_put_together_some", broken)
    with pytest.raises(AssertionError):
        test_killed_at_a_step_every_tick_is_there_once_and_the_next_start_cleans_up(tmp_path, "compact.written", 0)


def test_reading_parts_that_a_wider_one_holds_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: who is killed before they are removed shows them twice."""
    monkeypatch.setattr(folders, "_parts", folders._all_parts)
    with pytest.raises(AssertionError):
        test_killed_at_a_step_every_tick_is_there_once_and_the_next_start_cleans_up(tmp_path, "compact.written", 0)


def test_a_reader_beside_it_finds_every_tick_once(tmp_path: Path) -> None:
    folder, done = sink(tmp_path, "jsonl"), threading.Event()
    folder.write(release(1))

    def write() -> None:
        for tick in range(2, 4 * 24):
            folder.write(release(tick))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not done.is_set():
            found = read_releases(tmp_path)["n"]["tick"].to_list()
            assert found == list(range(1, len(found) + 1))
    finally:
        writer.join()


RUN = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from pianissimo import Budget, Count, Histogram, Stream
from pianissimo.durable.durable_stream import open_stream
from pianissimo.io.folder import FolderSink
folder = Path(sys.argv[1])
queries = [Count("n"), Histogram("drugs", key="drug", domain=["a", "b"], every=4)]
origin = datetime(2026, 3, 28, 20, tzinfo=UTC)
stream = Stream("s", budget=Budget(1, 1e-9), horizon=64, queries=queries, tick="1h", origin=origin)
sinks = [FolderSink(folder / "out", plan=stream.plan().to_dict())]
with open_stream(stream, folder / "state", sinks=sinks) as live:
    while live.tick_number < 60:
        live.tick([{"drug": "a"}] * live.tick_number)
"""


@pytest.mark.parametrize("point", OF_FOLDERS)
def test_a_process_that_is_killed_there_goes_on(tmp_path: Path, point: str) -> None:
    environment = {**os.environ, "PIANISSIMO_UNDER_TEST": "1"}
    for nth in (1, 2, 1, None):
        failing = {} if nth is None else {"PIANISSIMO_FAILPOINTS": f"{point}=kill:{nth}"}
        words = [sys.executable, "-c", RUN, str(tmp_path)]
        done = subprocess.run(words, env=environment | failing, capture_output=True, check=False)
        assert done.returncode == (0 if nth is None else -9), done.stderr
        found = read_releases(tmp_path / "out")["n"]["tick"].to_list()
        assert found == list(range(1, len(found) + 1))
    assert verify_folder(tmp_path / "state", tmp_path / "out") == 60
    assert len(list((tmp_path / "out" / "n").iterdir())) == 3 + 8
