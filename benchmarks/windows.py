"""What is kept of the past where all labels move at every tick, against slots and amounts in plain arrays.

Each size is measured in a process of its own: how much it holds more after the last tick than after the first ones,
all that grows included.
"""

import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import polars as pl

import pianissimo as pp
from benchmarks.histogram import memory
from benchmarks.measure import Row

WARM = 8
"""Ticks after which noise and buffers are there."""


def rows() -> Iterator[Row]:
    for labels, ticks in ((100_000, 240), (1_000_000, 60)):
        grown, cost = measured(labels, ticks)
        yield Row(
            what=f"kept for windows: {labels:,} labels that all move, over {ticks} ticks",
            peer="slots and amounts",
            ours=grown,
            theirs=float(np.dtype(np.uint32).itemsize + np.dtype(np.int64).itemsize),
            unit="B/label and tick",
            at_most=0.2,
        )
        yield Row(
            what=f"live.window({ticks}) of {labels:,} labels that all moved, CPU",
            peer="live.tick of the same stream",
            ours=cost,
            theirs=1.0,
            unit="ticks",
            at_most=8,
        )


def measured(labels: int, ticks: int) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.windows", str(labels), str(ticks)]
    output = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return [float(each) for each in output.split()]


def measure(labels: int, ticks: int) -> None:
    """How many bytes a label and tick it grows by, and how many ticks a window costs."""
    random = np.random.default_rng(1)
    names = pl.Series("drug", [f"drug-{number:07d}" for number in range(labels)])
    budget = pp.Budget(epsilon=4.0, delta=1e-6)
    query = pp.Histogram("drugs", key="drug", domain=names)
    stream = pp.Stream("bench", budget=budget, horizon=10_080, queries=[query], history=1440)
    # Each label one to seven times.
    batches = [names.gather(np.repeat(np.arange(labels), random.integers(1, 8, labels))).to_frame() for _ in range(2)]
    with stream.start() as live:
        for tick in range(WARM):
            live.tick(batches[tick % 2])
        before, start = memory("VmRSS"), time.process_time()
        for tick in range(ticks):
            live.tick(batches[tick % 2])
        cost, grown = (time.process_time() - start) / ticks, memory("VmRSS") - before
        windows = []
        for _ in range(3):
            start = time.process_time()
            live.window(ticks)
            windows.append((time.process_time() - start) / cost)
    print(grown / ticks / labels, min(windows))


if __name__ == "__main__":
    measure(*(int(each) for each in sys.argv[1:]))
