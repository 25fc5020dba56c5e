"""Unknown labels of users: 5e7 events of 1e6 users and 1e5 labels in 100 ticks, in memory and durable, on one thread.

Labels are heavy tailed. Each user's first 16 units count. Beside it polars' `unique().group_by()` of the same frames,
which knows nothing of the ticks before. All are seconds of one core.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

import pianissimo as pp
from benchmarks.histogram import memory
from benchmarks.measure import Row

EVENTS = 50_000_000
USERS = 1_000_000
LABELS = 100_000
TICKS = 100
UNITS = 16
LEAST_EVENTS_A_SECOND = 3e6
MOST_BYTES = 90
MOST_TIMES_IN_MEMORY = 1.5


def rows() -> Iterator[Row]:
    for count in ("users", "events"):
        measured = measure_apart(count)
        what = f"{count} of each of 1e5 unknown labels, 5e7 events of 1e6 users, 100 ticks"
        yield Row(
            what=f"{what}, on one core",
            peer="3e6 events a second",
            ours=EVENTS / measured["memory"],
            theirs=LEAST_EVENTS_A_SECOND,
            unit="events/s",
            at_least=1,
        )
        yield Row(
            what=what,
            peer="polars unique and group_by, one thread",
            ours=measured["memory"],
            theirs=measured["polars"],
            unit="s",
            at_most=1,
        )
        yield Row(
            what=f"{what}, durable",
            peer="in memory",
            ours=measured["durable"],
            theirs=measured["memory"],
            unit="s",
            at_most=MOST_TIMES_IN_MEMORY,
        )
        if count == "users":
            yield Row(
                what="memory of pairs of a user and a label",
                peer="one byte a pair",
                ours=measured["bytes"],
                theirs=1.0,
                unit="B/pair",
                at_most=MOST_BYTES,
            )


def measure_apart(count: str) -> dict[str, float]:
    """In fresh processes: polars takes its number of threads when it is imported, and memory starts from little."""
    found: dict[str, float] = {}
    for where in ("memory", "durable"):
        command = [sys.executable, "-m", "benchmarks.user_labels", count, where]
        environment = os.environ | {"POLARS_MAX_THREADS": "1"}
        output = subprocess.run(command, capture_output=True, check=True, text=True, env=environment)
        found |= json.loads(output.stdout)
    return found


def batches(ticks: int) -> Iterator[pl.DataFrame]:
    rng = np.random.default_rng(1)
    weights = np.cumsum(1 / np.arange(1, LABELS + 1))
    labels = pl.Series([f"https://example.org/article/{number}" for number in range(LABELS)])
    for _ in range(ticks):
        users = rng.integers(0, USERS, EVENTS // TICKS)
        held = np.searchsorted(weights, rng.random(EVENTS // TICKS) * weights[-1]).clip(0, LABELS - 1)
        yield pl.DataFrame({"user": users, "url": labels.gather(held)})


def stream_of(count: str) -> pp.Stream:
    return pp.Stream(
        "pages",
        unit=pp.user("user", max_events_per_user=UNITS),
        budget=pp.Budget(1, 1e-9),
        horizon=TICKS,
        queries=[pp.Histogram("pages", key="url", count=count)],  # type: ignore[arg-type]
    )


def measure(count: str, where: str, ticks: int) -> dict[str, float]:
    """In seconds of one core: all is one thread, and what else the machine does is left out."""
    with tempfile.TemporaryDirectory() as folder:
        stream = stream_of(count)
        run = stream.start() if where == "memory" else stream.open(Path(folder) / "state")
        ours = theirs = 0.0
        before = 0.0
        with run:
            for number, batch in enumerate(batches(ticks)):
                if number == 1:
                    # What a batch takes for itself is there by now.
                    before = memory("VmRSS")
                start = time.process_time()
                run.tick(batch)
                ours += time.process_time() - start
                if where == "memory":
                    start = time.process_time()
                    batch.unique().group_by("url").len()
                    theirs += time.process_time() - start
            grown = memory("VmRSS") - before
        if where == "durable":
            return {"durable": ours}
        return {"memory": ours, "polars": theirs, "bytes": grown / pairs_of(count, run)}


def pairs_of(count: str, run: object) -> int:
    """How many pairs there are, of which a batch's were there before."""
    state = run._core.parts[0].run._state  # type: ignore[attr-defined]
    return max(1, len(state.pairs._table or ()) if count == "users" else len(state.units.users))


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else TICKS)))
