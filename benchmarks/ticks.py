"""`live.tick` on a million rows of text keys, against the plain group-by of the same batch; `live.window` against it.

A window of a million keys is compared with a tick of the same stream that counts few events: both make a table of all
keys. Ticks are averaged over 64, since nodes begin at some of them and not at others.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import polars as pl

import pianissimo as pp
from benchmarks.measure import Row, best_cpu_seconds, cpu_seconds

ROWS = 1_000_000


def rows() -> Iterator[Row]:
    for distinct, bar in ((10_000, 2.0), (100_000, 2.0)):
        ours, theirs = side_by_side(distinct)
        yield Row(
            what=f"live.tick of 1e6 rows, {distinct:,} distinct texts",
            peer="polars group_by().len(), both on one thread",
            ours=ours * 1e3,
            theirs=theirs * 1e3,
            unit="ms",
            at_most=bar,
        )
    yield from window_rows()


def side_by_side(distinct: int) -> list[float]:
    """In a process of its own, as polars takes its number of threads at the start. Waiting is no work."""
    words = f"from benchmarks.ticks import tick_and_group_by; print(*tick_and_group_by({distinct}))"
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", words], env=environment, check=True, capture_output=True, text=True)
    return [float(each) for each in done.stdout.split()]


def tick_and_group_by(distinct: int) -> tuple[float, float]:
    random = np.random.default_rng(1)
    names = np.array([f"drug-{number:06d}" for number in range(distinct)])
    frame = pl.DataFrame({"drug": names[random.integers(0, distinct, ROWS)]})
    stream = pp.Stream(
        "bench",
        budget=pp.Budget(epsilon=1.0, delta=1e-9),
        horizon=2**20,
        queries=[pp.Histogram("drugs", key="drug")],
    )
    live = stream.start()
    ours = best_cpu_seconds(lambda: live.tick(frame), repeats=7)
    return ours, best_cpu_seconds(lambda: frame.group_by("drug").len(), repeats=7)


def window_rows() -> Iterator[Row]:
    names = pl.Series("drug", [f"drug-{number:07d}" for number in range(ROWS)])
    queries = {"known": pp.Histogram("drugs", key="drug", domain=names), "unknown": pp.Histogram("drugs", key="drug")}
    for kind, query in queries.items():
        stream = pp.Stream("bench", budget=pp.Budget(epsilon=4.0, delta=1e-6), horizon=10_080, queries=[query])
        with stream.start() as live:
            # Enough events for all labels to be shown, also where they are unknown.
            for _ in range(1 if kind == "known" else 3):
                live.tick(pl.concat([names] * (1 if kind == "known" else 20)).to_frame())
            few = names[:1000].to_frame()
            for _ in range(128):
                live.tick(few)
            tick = cpu_seconds(lambda live=live, few=few: [live.tick(few) for _ in range(64)]) / 64  # type: ignore[misc]
            window = min(cpu_seconds(lambda live=live: live.window(60)) for _ in range(3))  # type: ignore[misc]
        yield Row(
            what=f"live.window(60) of 1e6 {kind} labels, CPU",
            peer="live.tick of the same stream",
            ours=window * 1e3,
            theirs=tick * 1e3,
            unit="ms",
            at_most=8,
        )
