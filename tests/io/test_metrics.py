"""What Prometheus sees is the same whatever the data are."""

import re
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

from pianissimo import Budget, Count, Histogram, Stream
from pianissimo.durable.durable_stream import open_stream
from pianissimo.errors import InputError, ParameterError, StoreError
from pianissimo.io.loop import Reports, StreamLoop
from pianissimo.io.metrics import Metrics

TIMES = re.compile(r"^(pianissimo_\w*seconds|\w+_created)\S* .*$", re.MULTILINE)


class Fixed:
    """Ticks with so many events."""

    def __init__(self, counts: list[int]) -> None:
        self._counts = counts
        self.position = None

    def seek(self, position: Any, tick: int) -> None:
        pass

    def batches(self, tick: int) -> Any:
        yield [{"drug": f"canary {number % 7}"} for number in range(self._counts[tick - 1])]


class Broken:
    """A sink that takes every second release."""

    name = "broken"

    def __init__(self) -> None:
        self.asked = 0

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        self.asked += 1
        if self.asked % 2:
            raise InputError("broken must take the release, got none")


def figures(folder: Path, counts: list[int]) -> str:
    stream = Stream(
        "s", budget=Budget(4, 1e-6), horizon=20, queries=[Count("n"), Histogram("drugs", key="drug")], tick="1m"
    )
    metrics = Metrics()
    with open_stream(stream, folder / "state", sinks=[Broken()]) as live:
        StreamLoop(live, Fixed(counts), len(counts), reports=Reports(lag=lambda tick: 9 - tick, metrics=metrics)).run()
    return prometheus_client.generate_latest(metrics.registry).decode()


def test_two_streams_of_different_data_have_the_same_figures(tmp_path: Path) -> None:
    texts = [figures(tmp_path / str(number), counts) for number, counts in enumerate([[0, 0, 0], [900, 1, 50]])]
    assert TIMES.sub("", texts[0]) == TIMES.sub("", texts[1])
    assert "canary" not in texts[1]
    for line in (
        "pianissimo_tick 3.0",
        "pianissimo_last_tick 3.0",
        "pianissimo_lag_ticks 0.0",
        'pianissimo_sink_faults_total{sink="broken"} 3.0',
        'pianissimo_sink_undelivered_ticks{sink="broken"} 1.0',
        'pianissimo_waits_total{what="room"} 0.0',
    ):
        assert line in texts[0].splitlines()
    assert re.search(r"^pianissimo_release_seconds \d", texts[0], re.MULTILINE)


def test_they_are_served_where_they_were_asked_for() -> None:
    metrics = Metrics()
    metrics.tick.set(5)
    port = metrics.serve("127.0.0.1:0")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert b"pianissimo_tick 5.0" in answer.read()
        other = Metrics()
        with pytest.raises(StoreError, match="must be a place to listen at"):
            other.serve(f"127.0.0.1:{port}")
    finally:
        metrics.close()


@pytest.mark.parametrize("place", ["", "9464", ":9464", "localhost:", "localhost:x", "localhost:70000", "localhost:-1"])
def test_a_place_is_a_host_and_a_port(place: str) -> None:
    with pytest.raises(ParameterError, match="must be HOST:PORT"):
        Metrics().serve(place)


def test_status_tells_the_lag(tmp_path: Path) -> None:
    from pianissimo.io.inspect import read_status

    stream = Stream("s", budget=Budget(1, 1e-9), horizon=500, queries=[Count("n")], tick="1m")
    origin = datetime.now(UTC) - timedelta(minutes=100, seconds=30)
    with open_stream(replace(stream, origin=origin), tmp_path / "state") as live:
        live.tick([{}])
    assert read_status(tmp_path / "state").lag in (99, 100)
    with open_stream(stream, tmp_path / "other") as live:
        live.tick([{}])
    assert read_status(tmp_path / "other").lag is None
