"""Ticks are shown at public moments, whatever they count: in the store, to sinks, and on the terminal."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pianissimo import Budget, Count, ParameterError, SpecError, Stream
from pianissimo.durable.durable_stream import DurableStream, open_stream
from pianissimo.durable.slots import PublicSlots
from pianissimo.stream.spec import load_spec

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> datetime:
        return ORIGIN + timedelta(seconds=self.seconds)


class Noted:
    """A sink that remembers when it got what."""

    name = "noted"

    def __init__(self, clock: Hand) -> None:
        self.got: list[tuple[int, float]] = []
        self._clock = clock

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        self.got.append((tick, self._clock.seconds))


def stream(**more: Any) -> Stream:
    asked: dict[str, Any] = {"tick": "10s", "origin": ORIGIN} | more
    return Stream("s", budget=Budget(1, 1e-9), horizon=100, queries=[Count("n")], **asked)


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., DurableStream]:
    return lambda clock, **more: open_stream(stream(), tmp_path / "state", publish_after="3s", now=clock, **more)


def test_a_tick_is_shown_at_its_end_and_the_delay_and_not_before(opened: Callable[..., DurableStream]) -> None:
    clock = Hand()
    with opened(clock) as live:
        clock.seconds = 10.5
        live.tick([{}] * 5)
        assert (live.tick_number, live.visible_tick, live.publish_due()) == (1, 0, 2.5)
        clock.seconds = 12.999
        live.publish()
        assert live.visible_tick == 0
        clock.seconds = 13
        live.publish()
        assert live.visible_tick == live.shown_tick == 1


def test_a_late_tick_waits_for_the_next_slot(opened: Callable[..., DurableStream]) -> None:
    clock = Hand()
    with opened(clock) as live:
        clock.seconds = 13.2
        live.tick([{}])
        for clock.seconds in (13.2, 14, 22.9):
            live.publish()
            assert live.visible_tick == 0
        clock.seconds = 23.0
        live.publish_due()
        assert live.visible_tick == 1


def test_a_thread_that_looks_in_between_shows_no_tick_before_its_slot(
    opened: Callable[..., DurableStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, sound = Hand(), PublicSlots.is_ready
    with opened(clock) as live:
        clock.seconds = 13.2

        def looked_at(slots: PublicSlots, tick: int) -> None:
            live.publish_due()
            sound(slots, tick)

        monkeypatch.setattr(PublicSlots, "is_ready", looked_at)
        live.tick([{}])
        assert (live.tick_number, live.visible_tick) == (1, 0)
        clock.seconds = 23.0
        live.publish()
        assert live.visible_tick == 1


def test_when_it_is_shown_does_not_depend_on_how_long_it_was_counted(tmp_path: Path) -> None:
    moments = set()
    for took in (0.0, 0.4, 2.9):
        clock, state = Hand(), tmp_path / f"{took}"
        sink = Noted(clock)
        with open_stream(stream(), state, publish_after="3s", now=clock, sinks=[sink]) as live:
            clock.seconds = 10 + took
            live.tick([{}] * int(1 + 100 * took))
            while not live.visible_tick:
                clock.seconds = round(clock.seconds + 0.1, 1)
                live.publish()
            moments.add((clock.seconds, *sink.got))
    assert moments == {(13.0, (1, 13.0))}


def test_after_a_restart_what_was_ready_waits_for_a_slot_too(opened: Callable[..., DurableStream]) -> None:
    clock = Hand()
    with opened(clock) as live:
        clock.seconds = 11
        live.tick([{}])
    clock.seconds = 14
    with opened(clock) as live:
        assert (live.tick_number, live.visible_tick) == (1, 0)
        clock.seconds = 23
        live.publish()
        assert live.visible_tick == 1


def test_the_store_tells_readers_when_ticks_are_shown(tmp_path: Path, opened: Callable[..., DurableStream]) -> None:
    with opened(Hand()) as live:
        incarnation = bytes.fromhex(live.incarnation)
        assert live._store.publish_after(incarnation) == 3_000_000
    with stream().open(tmp_path / "state") as live:
        assert live._store.publish_after(incarnation) is None


def test_without_a_clock_there_are_no_slots(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="publish_after must be given with an origin"):
        stream(origin=None).open(tmp_path / "state", publish_after="3s")
    with pytest.raises(ParameterError, match="publish_after must be a duration"):
        stream().open(tmp_path / "other", publish_after="soon")


HEAD = '[stream]\nname = "s"\nepsilon = 1\ndelta = 1e-9\ntick = "1m"\nhorizon = 60\norigin = 2026-01-01T00:00:00Z\n'


def test_a_stream_file_says_when_ticks_are_shown(tmp_path: Path) -> None:
    file, query = tmp_path / "s.toml", '[queries.n]\nkind = "count"\n'
    file.write_text(f'{HEAD}[source]\nstdin = true\n[publish]\nafter = "5s"\n{query}')
    assert load_spec(file).publish_after == timedelta(seconds=5)
    file.write_text(f'{HEAD}[source]\npath = "a.csv"\ntime = "t"\n[publish]\nafter = "5s"\n{query}')
    with pytest.raises(SpecError, match=r"publish\.after must be left out where no clock cuts the ticks"):
        load_spec(file)
    file.write_text(f"{HEAD}[source]\nstdin = true\n[publish]\n{query}")
    with pytest.raises(SpecError, match=r"publish\.after must be given"):
        load_spec(file)
