"""What runs beside a stream keeps it from nothing: sinks that hang or are new, checks, and whoever takes over."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from polars.exceptions import PanicException
from tests.faults.report import record

from pianissimo import Budget, Count, Stream
from pianissimo.durable import start
from pianissimo.durable import stored_ticks as durable
from pianissimo.durable.durable_stream import DurableStream, open_stream
from pianissimo.durable.journal import Journal
from pianissimo.errors import DamageError, DiskFullError, InputError, LeaseError, PendingError, PianissimoError
from pianissimo.io.inspect import read_status, stored_request, verify

STREAM = Stream("s", budget=Budget(4, 1e-6), horizon=200, queries=[Count("n")], tick="1m")


class Slow:
    """A sink that takes a release once it is let."""

    def __init__(self, name: str = "slow", *, lets: int = 0) -> None:
        self.name = name
        self.got: list[int] = []
        self.lets = threading.Semaphore(lets)
        self.fault: BaseException | None = None

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        self.lets.acquire()
        if self.fault is not None:
            raise self.fault
        self.got.append(tick)


def opened(folder: Path, *sinks: Any, **options: Any) -> DurableStream:
    return open_stream(STREAM, folder / "state", sinks=sinks, **({"sinks_beside": True} | options))


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


def test_a_tick_waits_for_no_sink_and_each_has_its_own_backlog(tmp_path: Path) -> None:
    hanging, free = Slow("hanging"), Slow("free", lets=1000)
    with opened(tmp_path, hanging, free) as live:
        for _ in range(5):
            live.tick([{}])
        assert live.visible_tick == 5
        until(lambda: free.got == [1, 2, 3, 4, 5])
        assert live._publisher.undelivered["hanging"] == 5
        live.publish()
        assert read_status(tmp_path / "state").sinks == {
            "free": {"undelivered": 0, "last_tick": 5},
            "hanging": {"undelivered": 5, "last_tick": 0},
        }
        record("R23", "a sink that hangs", figure="5 ticks shown, 0 waits", bar="no tick waits", passed=True)
        hanging.lets.release(1000)
        live.wait_for_sinks(20)
        assert hanging.got == [1, 2, 3, 4, 5]
    assert read_status(tmp_path / "state").sinks["hanging"] == {"undelivered": 0, "last_tick": 5}


def test_a_new_sink_is_filled_beside_the_stream_and_its_progress_is_stored_as_it_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as live:
        for _ in range(6):
            live.tick([{}])
    new = Slow("new", lets=3)
    with opened(tmp_path, new) as live:
        until(lambda: new.got == [1, 2, 3])
        live.tick([{}])  # which the sink has not kept
        assert live.visible_tick == 7
        assert read_status(tmp_path / "state").sinks == {"new": {"undelivered": 4, "last_tick": 3}}
        new.lets.release()  # what is being sent comes to its end
    # After a kill it goes on there; what was sent and not stored comes once more.
    again = Slow("new", lets=1000)
    with opened(tmp_path, again) as live:
        live.wait_for_sinks(20)
    assert again.got in ([4, 5, 6, 7], [5, 6, 7])


def test_a_sink_that_fails_beside_the_stream_is_tried_again_by_itself(tmp_path: Path) -> None:
    broken = Slow("broken", lets=1000)
    broken.fault = InputError("the office must take the release, got status 500; it is sent again")
    with opened(tmp_path, broken) as live:
        live.tick([{}])
        until(lambda: live._publisher.failures["broken"] >= 2)
        assert live._publisher.faults == {"broken": str(broken.fault)}
        broken.fault = None
        until(lambda: broken.got == [1])
        until(lambda: not live._publisher.faults)


def test_what_must_stop_the_stream_stops_it_from_a_sink_beside_it_too(tmp_path: Path) -> None:
    sink = Slow(lets=1000)
    sink.fault = LeaseError("another has it")
    with opened(tmp_path, sink) as live:
        live.tick([{}])
        until(lambda: live._publisher._couriers[0]._stopping is not None)
        with pytest.raises(LeaseError, match="another has it"):
            live.tick([{}])


def test_a_fault_of_the_store_is_told_until_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as live:
        with monkeypatch.context() as patch:
            patch.setattr(live._store, "set_visible", full)
            live.tick([{}])
        assert "room" in live._publisher.faults["store"]
        live.tick([{}])
        assert live._publisher.faults == {}
        assert live.visible_tick == 2


def full(*_: object, **__: object) -> None:
    raise DiskFullError("the store must have room, got none")


def test_whoever_takes_over_goes_on_from_what_was_sealed_while_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, checked = opened(tmp_path), start.check_start
    first.tick([{}])

    def check_start(*given: Any) -> Any:
        found = checked(*given)
        if first.tick_number < 2:
            first.tick([{}])
        return found

    monkeypatch.setattr(durable, "check_start", check_start)
    with opened(tmp_path, take_over=True) as second:
        assert second.tick_number == 2
        second.tick([{}])
    with pytest.raises(LeaseError):
        first.tick([{}])
    first.close()
    assert verify(stored_request(tmp_path / "state"), tmp_path / "state").releases == 3


def test_a_last_line_that_comes_from_who_was_overtaken_is_no_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, testify = opened(tmp_path), DurableStream._testify
    first.tick([{}])
    with monkeypatch.context() as patch:
        patch.setattr(first._wiring.witness, "append", full)
        with pytest.raises(PendingError):
            first.tick([{}])

    def testify_late(self: DurableStream, seals: Any, **named: Any) -> None:
        if self is not first and first.pending:
            with pytest.raises(LeaseError):
                first.finish()
        testify(self, seals, **named)

    monkeypatch.setattr(DurableStream, "_testify", testify_late)
    with opened(tmp_path, take_over=True) as second:
        assert second.tick_number == 2
        second.tick([{}])
    first.close()
    assert verify(stored_request(tmp_path / "state"), tmp_path / "state").releases == 3


def test_a_check_beside_a_stream_that_runs_raises_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is sealed between what is read of the witness and of the store."""
    live, asked = opened(tmp_path), stored_request
    live.tick([{}])
    head = Journal.is_made

    def is_made(self: Any) -> bool:
        if self is not live._store:
            live.tick([{}])
        return head(self)

    request = asked(tmp_path / "state")
    monkeypatch.setattr(Journal, "is_made", is_made)
    sound = sum(verify(request, tmp_path / "state").releases == live.tick_number for _ in range(3))
    record("R22", "ticks sealed amid a check", figure=f"{sound} of 3 checks sound", bar="all", passed=sound == 3)
    live.close()


def test_a_panic_in_a_sink_is_told_and_tried_again(tmp_path: Path) -> None:
    """Once it ended the courier unseen: nothing more was sent, and nothing told it."""
    sink = Slow("folder", lets=1000)
    sink.fault = PanicException("lost")
    with opened(tmp_path, sink) as live:
        live.tick([{}])
        until(lambda: "folder" in live._publisher.faults)
        sink.fault = None
        until(lambda: sink.got == [1])
        assert live._publisher.failures["folder"] >= 1


def test_who_was_overtaken_sends_no_backlog(tmp_path: Path) -> None:
    """What hangs in one sending may still come; what waited behind it does not, after later ticks of another."""
    old, new = Slow("sink"), Slow("sink", lets=1000)
    with opened(tmp_path, old) as stale:
        for _ in range(4):
            stale.tick([{}])
        with opened(tmp_path, new, take_over=True) as live:
            live.tick([{}])
            until(lambda: new.got[-1:] == [5])
            old.lets.release(1000)
            until(lambda: stale._publisher._couriers[0]._stopping is not None)
    assert len(old.got) <= 1


@pytest.mark.parametrize("tick", [30, 33, 35])
def test_a_history_that_lacks_a_tick_is_refused(tmp_path: Path, tick: int) -> None:
    """Once windows then had the same noise over the moves of other ticks, and verify said that all is well."""
    stream = Stream("s", budget=Budget(1, 1e-6), horizon=200, queries=[Count("n")], tick="1m", history=7)
    with open_stream(stream, tmp_path / "state", snapshot_every=3) as live:
        for number in range(1, 38):
            live.tick([{}] * number)
    damaged = apsw.Connection(str(tmp_path / "state" / "state.db"))
    damaged.execute("DELETE FROM history WHERE tick = ?", (tick,))
    damaged.close()
    with pytest.raises(DamageError, match="history must have every tick"):
        open_stream(stream, tmp_path / "state", snapshot_every=3)
    with pytest.raises(DamageError, match="history must have every tick"):
        verify(stored_request(tmp_path / "state"), tmp_path / "state")


@pytest.mark.parametrize("statement", ["DELETE FROM key_epochs", f"UPDATE leases SET epoch = {2**63 - 1}"])
def test_damaged_rows_of_keys_and_leases_are_told_as_damage(tmp_path: Path, statement: str) -> None:
    with opened(tmp_path) as live:
        live.tick([{}])
    damaged = apsw.Connection(str(tmp_path / "state" / "state.db"))
    damaged.execute(statement)
    damaged.close()
    for look in (lambda: read_status(tmp_path / "state"), lambda: opened(tmp_path)):
        with pytest.raises(PianissimoError):
            look()
