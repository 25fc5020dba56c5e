"""First the past from complete files, then what is followed: every event once, wherever it is killed."""

import json
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.faults.points import armed
from tests.faults.world import Crash, crash_from
from tests.io.test_live_ticks import ORIGIN, Hands

from pianissimo.durable.durable_stream import open_stream
from pianissimo.errors import InputError, SourceError, SpecError
from pianissimo.io import read_releases, runs
from pianissimo.io.clock import WallClock
from pianissimo.io.runs import run_durably
from pianissimo.io.sources.live_ticks import FilesThenLive
from pianissimo.stream.source_spec import LiveSource
from pianissimo.stream.spec import StreamSpec, load_spec
from pianissimo.testing import NoNoise

SPEC = """
[stream]
name = "s"
epsilon = 1
delta = 1e-9
tick = "1m"
horizon = 20
origin = 2026-01-01
[source]
path = "old"
follow = "live.jsonl"
time = "time"
live_from = 2026-01-01T00:06:00
until = 10
{more}
[queries.n]
kind = "count"
"""
PAST = [0, 0, 0, 2, 3, 3, 5]
"""The minutes of the events in the complete files."""

COUNTS = [3, 3, 4, 6, 6, 7, 9, 9, 12, 12]


def prepare(folder: Path, more: str = "", spec: str = SPEC) -> StreamSpec:
    (folder / "old").mkdir(exist_ok=True)
    times = [(ORIGIN + timedelta(minutes=minute, seconds=9)).isoformat() for minute in PAST]
    (folder / "old" / "a.csv").write_text("time\n" + "".join(f"{each}\n" for each in times[:4]))
    pl.DataFrame({"time": times[4:]}).write_parquet(folder / "old" / "b.parquet")
    (folder / "live.jsonl").write_text("")
    (folder / "s.toml").write_text(spec.format(more=more))
    return load_spec(folder / "s.toml")


def write(folder: Path, count: int, minute: float = 7) -> None:
    with (folder / "live.jsonl").open("a") as file:
        for _ in range(count):
            file.write(json.dumps({"time": (ORIGIN + timedelta(minutes=minute)).isoformat()}) + "\n")


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "open_stream", partial(open_stream, make_noise=lambda _: NoNoise()))


def hands_of(folder: Path) -> Hands:
    """It is the seventh minute, the first that is live; two events are in the file, and three come in the ninth."""
    hands = Hands()
    hands.moment = ORIGIN + timedelta(minutes=6, seconds=20)
    write(folder, 2)
    hands.at(8.5 * 60, lambda: write(folder, 3, 8.5))
    return hands


def run(folder: Path, spec: StreamSpec, hands: Hands, **options: Any) -> Any:
    clock = partial(WallClock, now=hands.now, sleep=hands.sleep)
    return run_durably(spec, str(folder / "s.state"), clock=clock, **options)


def counts(folder: Path) -> list[int]:
    found = read_releases(folder / "s.state")
    return found["n"]["estimate"].to_list() if "n" in found else []


def test_ticks_of_files_come_first_and_then_what_is_followed(tmp_path: Path) -> None:
    spec = prepare(tmp_path)
    assert isinstance(spec.source, LiveSource)
    assert spec.source.before is not None
    assert (spec.last_tick, spec.source.before.until) == (10, 6)
    run(tmp_path, spec, hands_of(tmp_path))
    assert counts(tmp_path) == COUNTS


POINTS = ["absorb.read", "seal.commit", "release.commit", "publish.commit"]


def killed_at_every_tick(folder: Path, point: str) -> None:
    spec, hands, nth = prepare(folder), hands_of(folder), 0
    shown: list[int] = []
    while True:
        # Ticks of files are read together: who dies at the second each time would never seal one.
        with armed({point: crash_from(1 + nth % 8 if point == "absorb.read" else 1)}):
            try:
                run(folder, spec, hands)
                break
            except Crash:
                nth += 1
        now = counts(folder)
        assert now[: len(shown)] == shown
        shown = now
        if len(shown) >= 7:
            # What was read may go.
            for path in (folder / "old").iterdir():
                path.unlink()
    assert nth >= 3
    assert counts(folder) == COUNTS


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_every_tick_each_event_counts_once(tmp_path: Path, point: str) -> None:
    killed_at_every_tick(tmp_path, point)


def test_forgetting_where_the_followed_file_was_read_to_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken on purpose: a start after the first live tick reads the file from its beginning."""
    sound = FilesThenLive._go_live
    monkeypatch.setattr(FilesThenLive, "_go_live", lambda self, _, tick: sound(self, None, tick))
    with pytest.raises(AssertionError):
        killed_at_every_tick(tmp_path, "seal.commit")


def test_files_that_changed_while_they_are_read_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FilesThenLive, "old_until", 0)
    spec, hands = prepare(tmp_path), hands_of(tmp_path)
    with armed({"seal.commit": crash_from(2)}), pytest.raises(Crash):
        run(tmp_path, spec, hands)
    (tmp_path / "old" / "a.csv").write_text("time\n2026-01-01T00:04:00Z\n")
    with pytest.raises(SourceError, match=r"the files must be those that were read before, got others: a.csv"):
        run(tmp_path, spec, hands)


def test_a_stream_of_files_alone_goes_on_with_what_is_followed(tmp_path: Path) -> None:
    files = SPEC.replace('follow = "live.jsonl"\n', "").replace("live_from = 2026-01-01T00:06:00\n", "")
    run(tmp_path, prepare(tmp_path, spec=files.replace("until = 10", "until = 6")), Hands())
    assert counts(tmp_path) == COUNTS[:6]
    run(tmp_path, prepare(tmp_path), hands_of(tmp_path))
    assert counts(tmp_path) == COUNTS


def test_moved_behind_what_was_followed_live_from_is_refused(tmp_path: Path) -> None:
    spec, hands = prepare(tmp_path), hands_of(tmp_path)
    with armed({"seal.commit": crash_from(3)}), pytest.raises(Crash):
        run(tmp_path, spec, hands)
    with pytest.raises(SourceError, match="the source must be the one that was read before"):
        run(tmp_path, prepare(tmp_path, spec=SPEC.replace("00:06:00", "00:09:00")), hands)


def test_rows_that_both_hold_are_dropped_where_that_is_asked_for(tmp_path: Path) -> None:
    spec, hands = prepare(tmp_path, 'late = "drop"'), hands_of(tmp_path)
    write(tmp_path, 5, 3)
    run(tmp_path, spec, hands)
    assert counts(tmp_path) == COUNTS


def test_files_of_which_too_much_is_refused_begin_no_stream(tmp_path: Path) -> None:
    spec = prepare(tmp_path)
    (tmp_path / "old" / "a.csv").write_text("time\n" + "2026-01-01T00:07:00Z\n" * 9)
    with pytest.raises(InputError, match=r"source\.max_refused"):
        run(tmp_path, spec, hands_of(tmp_path), out=tmp_path / "out")
    assert not (tmp_path / "s.state").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("live_from = 2026-01-01T00:06:00\n", "", "source.live_from must be given with source.path and source.follow"),
        ('path = "old"\n', "", "source.live_from must be given with source.path and source.follow"),
        ('time = "time"\n', "", "source.time must be given, got nothing"),
        ("00:06:00", "00:06:30", "source.live_from must be a whole number of ticks after stream.origin"),
        ("00:06:00", "00:30:00", "source.live_from must be at most the horizon of 20 ticks, got 30 ticks"),
        (
            'follow = "live.jsonl"',
            "stdin = true",
            "source must have one of path, follow, stdin, http, kafka and spark, or",
        ),
        ("until = 10", 'format = "parquet"', "source.format must be 'csv' or 'jsonl' for files that grow"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    with pytest.raises(SpecError) as refusal:
        prepare(tmp_path, spec=SPEC.replace(before, after))
    assert message in str(refusal.value)


def test_a_clock_far_behind_the_files_begins_no_stream(tmp_path: Path) -> None:
    hands = hands_of(tmp_path)
    hands.moment = ORIGIN + timedelta(minutes=18)
    with pytest.raises(
        SpecError, match=r"source.live_from must be at most 1 ticks ago when a stream begins, got .*Z, 12"
    ):
        run(tmp_path, prepare(tmp_path), hands)
