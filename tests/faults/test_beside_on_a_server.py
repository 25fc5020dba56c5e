"""On PostgreSQL as in a folder: sinks beside the stream, checks while it runs, and retention amid both."""

import threading
from pathlib import Path
from typing import Any

import pytest
from tests.faults.report import record
from tests.faults.test_beside import STREAM, Slow, until

from pianissimo.durable.durable_stream import DurableStream, open_stream
from pianissimo.io.inspect import read_status, stored_request, verify

pytest_plugins = ["tests.faults.fixtures"]


class Beside:
    """A stream on the server, with its secret and its witness in a folder."""

    def __init__(self, server: str, folder: Path) -> None:
        self.place = f"{server}&state={folder.name.lower()[-40:].replace('-', '_')}"
        self.options: dict[str, Any] = {"witness": folder / "s.witness", "secret": folder / "s.secret"}
        (folder / "s.secret").write_text("ef" * 32)
        (folder / "s.secret").chmod(0o600)

    def open(self, *sinks: Any, **options: Any) -> DurableStream:
        return open_stream(STREAM, self.place, sinks=sinks, sinks_beside=True, **self.options, **options)

    def sinks(self) -> dict[str, dict[str, int]]:
        return read_status(self.place, witness=self.options["witness"]).sinks


@pytest.fixture
def beside(server: str, tmp_path: Path) -> Beside:
    return Beside(server, tmp_path)


def test_a_tick_waits_for_no_sink_and_a_new_one_is_filled(beside: Beside) -> None:
    hanging, free = Slow("hanging"), Slow("free", lets=1000)
    with beside.open(hanging, free) as live:
        for _ in range(5):
            live.tick([{}])
        assert live.visible_tick == 5
        until(lambda: free.got == [1, 2, 3, 4, 5])
        live.publish()
        assert beside.sinks() == {
            "free": {"undelivered": 0, "last_tick": 5},
            "hanging": {"undelivered": 5, "last_tick": 0},
        }
        hanging.lets.release(1000)
        live.wait_for_sinks(20)
        assert hanging.got == [1, 2, 3, 4, 5]
    new = Slow("new", lets=3)
    with beside.open(new) as live:
        until(lambda: new.got == [1, 2, 3])
        live.tick([{}])
        assert live.visible_tick == 6
        assert beside.sinks()["new"] == {"undelivered": 3, "last_tick": 3}
        new.lets.release(1000)
        live.wait_for_sinks(20)
    assert beside.sinks()["new"] == {"undelivered": 0, "last_tick": 6}


def test_checks_beside_a_stream_that_runs_and_removes_raise_no_alarm(beside: Beside) -> None:
    sink, ended, faults = Slow("free", lets=5000), threading.Event(), list[BaseException]()
    live = beside.open(sink, retention=72)
    live.tick([{}])

    def tick() -> None:
        try:
            while live.tick_number < 160 and not ended.is_set():
                live.tick([{}])
        except BaseException as error:  # noqa: BLE001
            faults.append(error)
        finally:
            ended.set()

    asked, checks = stored_request(beside.place), 0
    ticking = threading.Thread(target=tick)
    ticking.start()
    try:
        while not ended.is_set() or not checks:
            verify(asked, beside.place, **beside.options)
            checks += 1
    finally:
        ended.set()
        ticking.join()
    assert faults == []
    until(lambda: len(sink.got) == live.tick_number)
    live.publish()
    live.close()
    assert sink.got == [*range(1, 161)]
    found = verify(asked, beside.place, **beside.options)
    assert found.removed >= 60
    assert found.seals == 160 - found.removed
    record("R22", "PostgreSQL: checks amid ticks and removals", figure=f"{checks} checks", bar="sound", passed=True)
