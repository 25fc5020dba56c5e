"""The wall clock: how far it may leap before the stream stops, and that it is asked before anything is charged."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from pianissimo.errors import RefusalError, RollbackError, SpecError
from pianissimo.io import runs as run_durable
from pianissimo.io.clock import WallClock, longest_leap_of
from pianissimo.io.runs import run_durably
from pianissimo.stream.calendar import TickCalendar
from pianissimo.stream.spec import StreamSpec, load_spec

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def spec_of(folder: Path, *, tick: str = "1d", horizon: str = '"365d"', origin: str = "2026-01-01") -> StreamSpec:
    (folder / "f.jsonl").write_text('{"drug": "a"}\n')
    (folder / "s.toml").write_text(
        f"""
        stream = {{ name = "y", epsilon = 1, delta = 1e-9, tick = "{tick}", horizon = {horizon}, origin = {origin} }}
        source = {{ follow = "f.jsonl" }}
        queries.n.kind = "count"
        """
    )
    return load_spec(folder / "s.toml")


def clock_at(*moments: datetime) -> Callable[..., WallClock]:
    """A clock that shows one moment after the other, and the last one from then on."""
    left = list(moments)
    return partial(WallClock, now=lambda: left.pop(0) if len(left) > 1 else left[0], sleep=lambda _: None)


@pytest.mark.parametrize(
    ("tick", "last_tick", "leap"),
    [
        (timedelta(days=1), 365, 45),
        (timedelta(days=1), 7, 1),
        (timedelta(hours=1), 24 * 365, 1095),
        (timedelta(minutes=1), 60 * 24 * 365, 1440),
        (timedelta(minutes=1), 1440, 180),
        (timedelta(seconds=1), 5, 60),
        (timedelta(milliseconds=1), 5, 1440),
        (timedelta(days=999_999), 2**32, 1440),
    ],
)
def test_the_longest_leap_is_a_share_of_all_ticks_or_a_slow_start(tick: timedelta, last_tick: int, leap: int) -> None:
    assert longest_leap_of(tick, last_tick) == leap


def test_a_clock_that_leaps_by_the_whole_horizon_burns_no_tick(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    # Right while the stream begins, a year ahead afterwards.
    wrong = clock_at(ORIGIN, ORIGIN, ORIGIN + 366 * DAY)
    with pytest.raises(RefusalError, match=r"at most 45 ticks ahead of the stream, got 366 .* --longest-leap"):
        run_durably(spec, str(tmp_path / "state"), clock=wrong)
    done = run_durably(spec, str(tmp_path / "state"), clock=clock_at(ORIGIN + 366 * DAY), longest_leap=366)
    assert done.loop.tick == 365


def test_an_origin_long_past_is_refused_by_its_name_before_anything_is_charged(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SpecError, match=r"^stream\.origin must be at most 45 ticks ago when a stream begins, got 2026"):
        run_durably(spec, str(tmp_path / "state"), out=tmp_path / "out", clock=clock_at(ORIGIN + 60 * DAY))
    assert sorted(tmp_path.iterdir()) == before


def test_a_stream_that_was_begun_is_not_refused_for_its_origin(tmp_path: Path) -> None:
    spec, state = spec_of(tmp_path), str(tmp_path / "state")
    stop = threading.Event()

    def enough(tick: int, *_: int) -> None:
        if tick == 40:
            stop.set()

    run_durably(spec, state, clock=clock_at(ORIGIN + 40 * DAY), progress=enough, stop=stop)
    assert run_durably(spec, state, clock=clock_at(ORIGIN + 84 * DAY), progress=enough, stop=stop).loop.tick == 40
    stop.clear()
    with pytest.raises(RefusalError, match="got 46 for tick 41"):
        run_durably(spec, state, clock=clock_at(ORIGIN + 86 * DAY), stop=stop)


def test_of_a_lost_store_it_is_the_loss_that_is_told_and_not_the_origin(tmp_path: Path) -> None:
    spec, state = spec_of(tmp_path), tmp_path / "state"
    run_durably(spec, str(state), clock=clock_at(ORIGIN + 366 * DAY), longest_leap=366)
    state.rename(tmp_path / "elsewhere")
    with pytest.raises(RollbackError, match="must hold the stream that its witness has seen"):
        run_durably(spec, str(state), clock=clock_at(ORIGIN + 366 * DAY))


def test_told_to_stop_before_the_stream_is_begun_it_charges_nothing(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    done = run_durably(spec_of(tmp_path), str(tmp_path / "state"), clock=clock_at(ORIGIN), stop=stop)
    assert (done.created, done.loop.tick, done.loop.stopped) == (False, 0, True)
    assert not (tmp_path / "state").exists()


def test_ticks_may_end_beyond_all_dates(tmp_path: Path) -> None:
    late = datetime(9900, 1, 1, tzinfo=UTC)
    for clock in (
        WallClock(calendar=TickCalendar(late, DAY), now=lambda: ORIGIN),
        WallClock(calendar=TickCalendar(ORIGIN, timedelta(weeks=100_000)), now=lambda: ORIGIN),
        WallClock(calendar=TickCalendar(ORIGIN, timedelta(days=999_999_999)), now=lambda: ORIGIN),
    ):
        assert not clock.is_over(1)
        assert clock.left(1) == clock.left(2**40) == DAY.total_seconds()
    stop = threading.Event()

    def sleep(_: float) -> None:
        stop.set()

    for spec in (
        spec_of(tmp_path, origin="9900-01-01"),
        spec_of(tmp_path, tick="100000w", horizon="4294967296"),
    ):
        stop.clear()
        state = str(tmp_path / f"state of {spec.stream.tick}")
        done = run_durably(spec, state, stop=stop, clock=partial(WallClock, now=lambda: ORIGIN, sleep=sleep))
        assert (done.loop.tick, done.loop.stopped) == (0, True)


def test_seconds_left_are_those_until_the_end_of_the_tick() -> None:
    clock = WallClock(calendar=TickCalendar(ORIGIN, "1m"), now=lambda: ORIGIN + timedelta(seconds=75.25))
    assert [clock.left(tick) for tick in (1, 2, 3)] == [-15.25, 44.75, 104.75]


def test_it_is_the_public_last_tick_that_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[timedelta, int]] = []

    def told(tick: timedelta, last_tick: int) -> int:
        asked.append((tick, last_tick))
        return 1

    monkeypatch.setattr(run_durable, "longest_leap_of", told)
    with pytest.raises(SpecError, match="at most 1 ticks ago"):
        run_durably(spec_of(tmp_path), str(tmp_path / "state"), clock=clock_at(ORIGIN + 2 * DAY))
    assert asked == [(DAY, 365)]
