"""A tick of ten million live labels that nobody listed, with a public floor and without: CPU time, and equal bits."""

import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from benchmarks.measure import Row
from pianissimo.counting import UnknownHistogram
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan
from pianissimo.testing import SeededNoise

LABELS = 10_000_000
FLOOR = 10_000
TICKS = 9
MOVED = 100_000


def batches() -> list[Any]:
    """All labels in the first tick, few of which are frequent; then some of them in each."""
    generator = np.random.default_rng(7)
    names = pl.select(pl.format("key-{}", pl.int_range(LABELS))).to_series()
    often = np.where(generator.random(LABELS) < 1e-4, FLOOR * generator.integers(1, 4, LABELS), 1)
    first = pl.DataFrame({"key": names, "events": often}).to_struct()
    return [first, *(names.gather(generator.integers(0, LABELS, MOVED)) for _ in range(TICKS - 1))]


def released(show_from: int) -> tuple[float, list[dict[str, int]]]:
    """CPU seconds of a release, on average once all labels are there, and what is shown from the floor on."""
    plan = HaarPlan.calibrated(horizon=525_600, rho=Fraction(1, 2))
    run: Any = Run(UnknownHistogram(plan=plan, delta=Fraction(1, 10**12), show_from=show_from), SeededNoise(1))
    seconds, shown = [], []
    for batch in batches():
        run.update(batch)
        start = time.process_time()
        value = run.release().value
        seconds.append(time.process_time() - start)
        shown.append({label: count for label, count in value.to_dict().items() if count >= FLOOR})
    return sum(seconds[1:]) / len(seconds[1:]), shown


def rows() -> Iterator[Row]:
    plain, all_labels = released(1)
    floored, few = released(FLOOR)
    if few[-1] != {label: all_labels[-1][label] for label in few[-1]} or set(few[0]) != set(all_labels[0]):
        raise AssertionError("a floor must change no bit of what is shown from it on")
    yield Row(
        what="a tick of 1e7 labels, shown from 10,000 on",
        peer="the plain release of all of them",
        ours=floored * 1e3,
        theirs=plain * 1e3,
        unit="ms",
        at_most=0.1,
    )
