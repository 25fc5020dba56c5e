"""Counting at user level: 5e7 events of 1e6 users in 100 ticks, against a plain group-by of users, on one thread."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from benchmarks.histogram import memory
from benchmarks.measure import Row
from pianissimo.mechanism import Mechanism, Run
from pianissimo.noise import KeyedNoise, TopDownPlan, fresh_secret
from pianissimo.users import AdaptiveCap, UserStatistics, UserSum

EVENTS = 50_000_000
USERS = 1_000_000
TICKS = 100
LEAST_EVENTS_A_SECOND = 5e6


def rows() -> Iterator[Row]:
    measured = measure_apart("speed")
    events = "5e7 events, 1e6 users, 100 ticks"
    yield Row(
        what=f"user-level count, {events}, on one core",
        peer="5e6 events a second",
        ours=EVENTS / measured["ours"],
        theirs=LEAST_EVENTS_A_SECOND,
        unit="events/s",
        at_least=1,
    )
    yield Row(
        what=f"user-level count, {events}",
        peer="polars group_by of users, one thread",
        ours=measured["ours"],
        theirs=measured["theirs"],
        unit="s",
        at_most=2,
    )
    for what in ("count", "sum"):
        yield Row(
            what=f"memory of the users, user-level {what}",
            peer="one byte a user",
            ours=measure_apart(what)["bytes"],
            theirs=1.0,
            unit="B/user",
            at_most=48,
        )


def measure_apart(what: str) -> dict[str, float]:
    """In a fresh process: polars takes its number of threads when it is imported, and memory starts from little."""
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.users", what]
    output = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
    measured: dict[str, float] = json.loads(output.stdout)
    return measured


def batches() -> Iterator[pl.DataFrame]:
    rng = np.random.default_rng(1)
    for _ in range(TICKS):
        users = rng.integers(0, USERS, EVENTS // TICKS)
        yield pl.DataFrame({"user": users, "value": users % 7})


def make(what: str) -> Mechanism[Any, Any, Any]:
    kind: Any = UserSum if what == "sum" else UserStatistics
    mechanism: Mechanism[Any, Any, Any] = kind.fitting(
        cap=AdaptiveCap(epsilon=Fraction(2, 5), first=64, fourfold=0, levels=15),
        plan=TopDownPlan,
        horizon=TICKS,
        epsilon=Fraction(8, 5),
    )
    return mechanism


def measure_speed() -> dict[str, float]:
    """In seconds of one core: both are one thread, and what else the machine does is left out."""
    run = run_of("count")
    ours = theirs = 0.0
    for batch in batches():
        start = time.process_time()
        run.update(batch)
        run.release()
        middle = time.process_time()
        batch.group_by("user").len()
        ours += middle - start
        theirs += time.process_time() - middle
    return {"ours": ours, "theirs": theirs}


def measure_memory(what: str) -> dict[str, float]:
    """Of the process, beyond what it takes to count batches of users that are known: 4e6 users, new in every batch."""
    batch = pl.DataFrame({"user": np.arange(EVENTS // TICKS), "value": np.arange(EVENTS // TICKS) % 7})
    run = run_of(what)
    for _ in range(3):
        run.update(batch)
        run.release()
    before = memory("VmRSS")
    more = 4 * USERS // len(batch)
    for number in range(1, more + 1):
        run.update(batch.with_columns(user=pl.col("user") + number * len(batch)))
        run.release()
    return {"bytes": (memory("VmRSS") - before) / (more * len(batch))}


def run_of(what: str) -> Run[Any, Any, Any]:
    return Run(make(what), KeyedNoise(fresh_secret()))


if __name__ == "__main__":
    print(json.dumps(measure_speed() if sys.argv[1] == "speed" else measure_memory(sys.argv[1])))
