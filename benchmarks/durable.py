"""Durable streams: a Parquet folder through seal and release, against the same stream in memory; a million keys."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import numpy as np
import polars as pl

import pianissimo as pp
from benchmarks.measure import Row
from pianissimo.io.runs import run_durably
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.stream.spec import StreamSpec, load_spec

TICKS = 100
EVENTS = 1_000_000
"""Of a tick."""

KEYS = 100_000
MANY_KEYS = 1_000_000
LEAST_EVENTS_A_SECOND = 3e6
LONGEST_TICK = 2.0
LONGEST_RECOVERY = 10.0

_ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
_SPEC = f"""
[stream]
name = "shop"
epsilon = 1.0
delta = 1e-9
tick = "1m"
horizon = {TICKS}
origin = {_ORIGIN.isoformat()}

[source]
path = "events"
time = "time"

[queries.purchases]
kind = "count"

[queries.drugs]
kind = "histogram"
key = "drug"
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        write_events(Path(folder))
        in_memory, durable = measure_apart("memory", folder), measure_apart("durable", folder)
        tick, recovery = measure_apart("keys", folder), measure_apart("recovery", folder)
    events = f"{TICKS} ticks of {EVENTS:.0e} events"
    yield Row(
        what=f"Parquet folder to SQLite, {events}, {KEYS:.0e} keys",
        peer=f"{LEAST_EVENTS_A_SECOND:.0e} events a second",
        ours=TICKS * EVENTS / durable,
        theirs=LEAST_EVENTS_A_SECOND,
        unit="events/s",
        at_least=1,
    )
    yield Row(
        what=f"durable stream, {events}",
        peer="the same stream in memory",
        ours=durable,
        theirs=in_memory,
        unit="s",
        at_most=1.5,
    )
    yield Row(
        what=f"seal and release of a tick, {MANY_KEYS:.0e} live keys, the slowest of 16",
        peer="2 s",
        ours=tick,
        theirs=LONGEST_TICK,
        unit="s",
        at_most=1,
    )
    yield Row(
        what=f"recovery after a kill, {MANY_KEYS:.0e} live keys, seven ticks after the last snapshot",
        peer="10 s",
        ours=recovery,
        theirs=LONGEST_RECOVERY,
        unit="s",
        at_most=1,
    )


def measure_apart(what: str, folder: str) -> float:
    """Seconds, measured in a fresh process, whose memory and caches are its own."""
    command = [sys.executable, "-m", "benchmarks.durable", what, folder]
    output = subprocess.run(command, capture_output=True, check=False, text=True)
    if output.returncode not in (0, -signal.SIGKILL):
        raise RuntimeError(output.stderr)
    seconds: float = json.loads(output.stdout)["seconds"]
    return seconds


def write_events(folder: Path) -> None:
    """Keys by Zipf's law, a file a tick."""
    events = folder / "events"
    events.mkdir()
    (folder / "shop.toml").write_text(_SPEC)
    rng = np.random.default_rng(8)
    weights = np.cumsum(1 / np.arange(1, KEYS + 1))
    names = pl.Series("drug", [f"drug-{number:06}" for number in range(KEYS)])
    minute = 60_000_000
    begin = int(_ORIGIN.timestamp()) * 1_000_000
    for tick in range(TICKS):
        places = np.searchsorted(weights, rng.random(EVENTS) * weights[-1])
        times = np.sort(rng.integers(0, minute, EVENTS)) + begin + tick * minute
        table = pl.DataFrame({"drug": names.gather(places), "time": times})
        table.with_columns(pl.col("time").cast(pl.Datetime("us", "UTC"))).write_parquet(
            events / f"part-{tick:04}.parquet"
        )


def memory_seconds(spec: StreamSpec) -> float:
    start = time.perf_counter()
    source, live = FileTicks(spec), spec.stream.start()
    for tick in range(1, spec.last_tick + 1):
        live.tick(pl.concat(source.batches(tick)))
    return time.perf_counter() - start


def durable_seconds(spec: StreamSpec, state: Path) -> float:
    start = time.perf_counter()
    run_durably(spec, str(state))
    return time.perf_counter() - start


def many_stream() -> pp.Stream:
    # A loss at which all keys are shown: the bytes of a release are the most work.
    return pp.Stream("many", budget=pp.Budget(40, 1e-3), horizon=100, queries=[pp.Histogram("drugs", key="drug")])


def slowest_tick(state: Path) -> NoReturn:
    """Ticks in which every key has an event; the process is killed seven ticks after a snapshot."""
    names = pl.Series("drug", [f"drug-{number:07}" for number in range(MANY_KEYS)])
    slowest = 0.0
    live = many_stream().open(state)
    for tick in range(23):
        live.add(pl.DataFrame({"drug": names.sample(fraction=1, shuffle=True, seed=tick)}))
        start = time.perf_counter()
        release = live.tick()
        if tick >= 7:
            slowest = max(slowest, time.perf_counter() - start)
    assert release["drugs"].height == MANY_KEYS
    print(json.dumps({"seconds": slowest}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def recovery_seconds(state: Path) -> float:
    start = time.perf_counter()
    with many_stream().open(state) as live:
        assert live.recovered.replayed == 7
    return time.perf_counter() - start


def main(what: str, folder: Path) -> float:
    if what == "keys":
        slowest_tick(folder / "many")
    if what == "recovery":
        return recovery_seconds(folder / "many")
    spec = load_spec(folder / "shop.toml")
    return memory_seconds(spec) if what == "memory" else durable_seconds(spec, folder / "state")


if __name__ == "__main__":
    print(json.dumps({"seconds": main(sys.argv[1], Path(sys.argv[2]))}))
