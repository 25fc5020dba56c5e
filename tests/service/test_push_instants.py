"""When releases are pushed, by real clocks: the same moments for a stream of few events and for one of many."""

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
from tests.faults.report import record, size
from tests.service.test_noninterference import advantage

from pianissimo.service import serving, viewer_app

TICK = timedelta(milliseconds=250)
AFTER = timedelta(milliseconds=190)
FEW, MANY = 20, 40_000

_PUBLISH = """
import sys, threading, time
from datetime import UTC, datetime, timedelta
import polars as pl
from pianissimo import Budget, Count, Histogram, Stream

name, state, many, ticks, tick, after = sys.argv[1:]
many, ticks, tick = int(many), int(ticks), timedelta(seconds=float(tick))
print("ready", flush=True)
origin = datetime.fromisoformat(sys.stdin.readline().strip())
queries = [Count("visits"), Histogram("cities", key="city", domain=[f"city {place}" for place in range(50)])]
stream = Stream(name, budget=Budget(1, 1e-6), horizon=10_000, tick=tick, origin=origin, queries=queries)
rows = pl.DataFrame({"city": [f"city {place % 50}" for place in range(many)]})
with stream.open(state, publish_after=timedelta(seconds=float(after))) as live:
    print("open", flush=True)
    is_over = threading.Event()

    def show():
        while not is_over.wait(max(0.0, live.publish_due())):
            pass

    thread = threading.Thread(target=show)
    thread.start()
    for number in range(1, ticks + 1):
        time.sleep(max(0.0, (origin + number * tick - datetime.now(UTC)).total_seconds()))
        live.tick(rows)
    time.sleep(1)
    is_over.set()
    thread.join()
"""


def instants(address: str, name: str, origin: datetime, ticks: int, found: list[float]) -> None:
    """Of each push, how long after the slot of its tick it came, in seconds."""
    with httpx.stream("GET", f"{address}/v1/streams/{name}/releases?after=0", timeout=60, trust_env=False) as answer:
        for line in answer.iter_lines():
            if line.startswith("id: "):
                tick = int(line[4:])
                found.append((datetime.now(UTC) - origin - tick * TICK - AFTER).total_seconds())
                if tick == ticks:
                    return


def test_the_moment_of_a_push_does_not_tell_few_events_from_many(tmp_path: Path) -> None:
    """At a false-alarm rate of one in a billion: 6.2 deviations of the statistic of Mann and Whitney."""
    ticks = size(48, 800)
    times: dict[str, list[float]] = {"few": [], "many": []}
    streams = []
    for name, many in (("few", FEW), ("many", MANY)):
        told = (name, tmp_path / name, many, ticks, TICK.total_seconds(), AFTER.total_seconds())
        command = [sys.executable, "-c", _PUBLISH, *map(str, told)]
        streams.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        for each in streams:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        # Only now, since on a busy machine the start of a process takes longer than any fixed time.
        origin = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=6)
        for each in streams:
            assert each.stdin is not None
            print(origin.isoformat(), file=each.stdin, flush=True)
        for each in streams:
            assert each.stdout is not None
            assert each.stdout.readline() == "open\n"
        assert datetime.now(UTC) < origin + TICK, "the streams must be open before their first tick ends"
        with serving(viewer_app([tmp_path / name for name in times], public=True)) as address:
            readers = [
                threading.Thread(target=instants, args=(address, name, origin, ticks, found))
                for name, found in times.items()
            ]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join(ticks * TICK.total_seconds() + 60)
    finally:
        for each in streams:
            assert each.stdin is not None
            assert each.stdout is not None
            each.stdin.close()
            each.wait(30)
            each.stdout.close()
    left, right = times["few"], times["many"]
    assert [len(left), len(right)] == [ticks, ticks]
    # None before its slot, whatever the clock of this process did meanwhile.
    assert min(left + right) > -0.001
    found, bar = advantage((left, right)), 6.2 * ((2 * ticks + 1) / (12 * ticks * ticks)) ** 0.5
    figure = f"{found:.3f} of {2 * ticks} pushes, of {FEW} and of {MANY:,} events a tick"
    record("S9", "instants of pushes", figure=figure, bar=f"0.5 +- {bar:.3f}", passed=abs(found - 0.5) <= bar)
