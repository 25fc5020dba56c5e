"""A tick of ten million live labels that nobody listed, with a public floor and without: CPU time, and equal bits."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Released:
    """What a run showed from the floor on, and what that took."""

    seconds: float
    """CPU of a release, on average once all labels are there."""

    shown: list[dict[str, int]]
    touched: int
    """How many labels have noise at the end."""


def batches(labels: int = LABELS, ticks: int = TICKS, part: int = 0) -> Iterator[Any]:
    """All labels in the first tick, few of which are frequent; then some of them in each. Parts share no label."""
    generator = np.random.default_rng(7 + part)
    names = pl.select(pl.format("key-{}", pl.int_range(part * labels, (part + 1) * labels))).to_series()
    often = np.where(generator.random(labels) < 1e-4, FLOOR * generator.integers(1, 4, labels), 1)
    yield pl.DataFrame({"key": names, "events": often}).to_struct()
    yield from (names.gather(generator.integers(0, labels, MOVED)) for _ in range(ticks - 1))


def released(show_from: int, labels: int = LABELS, ticks: int = TICKS, part: int = 0) -> Released:
    """A run with a floor."""
    plan = HaarPlan.calibrated(horizon=525_600, rho=Fraction(1, 2))
    run: Any = Run(UnknownHistogram(plan=plan, delta=Fraction(1, 10**12), show_from=show_from), SeededNoise(1))
    seconds, shown = [], []
    for batch in batches(labels, ticks, part):
        run.update(batch)
        start = time.process_time()
        value = run.release().value
        seconds.append(time.process_time() - start)
        shown.append({label: count for label, count in value.to_dict().items() if count >= FLOOR})
    slots = run._state.reachable.slots(run._state.counts)
    return Released(sum(seconds[1:]) / len(seconds[1:]), shown, labels if slots is None else len(slots))


def check_equal(few: Released, every: Released) -> None:
    """Refuse a floor that changes a bit of what is shown from it on."""
    last, known = few.shown[-1], every.shown[-1]
    if last != {label: known[label] for label in last} or set(few.shown[0]) != set(every.shown[0]):
        raise AssertionError("a floor must change no bit of what is shown from it on")


def rows() -> Iterator[Row]:
    plain, floored = released(1), released(FLOOR)
    check_equal(floored, plain)
    yield Row(
        what="a tick of 1e7 labels, shown from 10,000 on",
        peer="the plain release of all of them",
        ours=floored.seconds * 1e3,
        theirs=plain.seconds * 1e3,
        unit="ms",
        at_most=0.1,
    )
