"""Pianissimo: the same work by streams."""

import numpy as np
import polars as pl

import pianissimo as pp
from benchmarks.peers.work import COUNTERS, DELTA, EPSILON, YEAR
from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.sketches import MisraGries

VERSION = pp.__version__
PRIVACY = "one event; one user; one user within a day"
_RUNS = 10
"""The errors of one run hang together, so several are looked at."""


def _count(releases: int) -> "pp.Stream":
    budget = pp.Budget(EPSILON, DELTA)
    return pp.Stream("peers", budget=budget, horizon=releases, queries=[pp.Count("events")])


def hours(counts: list[int]) -> list[float]:
    """The single hours of streams that run for a year, each from the next of them: windows of one tick."""
    streams = [_count(YEAR).start() for _ in range(_RUNS)]
    found = []
    for hour, count in enumerate(counts):
        for live in streams:
            live.tick(pl.DataFrame({"event": range(count)}))
        found.append(float(streams[hour % _RUNS].window(1)["events"]["estimate"][0]))
    return found


def running(releases: int) -> float:
    """The root mean square of the errors of all releases of some whole runs."""
    empty = pl.DataFrame({"event": pl.Series([], dtype=pl.Int64)})
    errors = []
    for _ in range(_RUNS):
        live = _count(releases).start()
        errors += [float(live.tick(empty)["events"]["estimate"][0]) for _ in range(releases)]
    return float(np.sqrt(np.mean(np.square(errors))))


def labels(users: list[str], keys: list[str], releases: int) -> dict[str, float]:  # noqa: ARG001
    """After one tick of one, or at the last tick of a month of hours over which the visits are spread."""
    query = pp.Histogram("labels", key="key")
    stream = pp.Stream("peers", budget=pp.Budget(EPSILON, DELTA), horizon=releases, queries=[query])
    live = stream.start()
    for part in np.array_split(np.array(keys), releases):
        release = live.tick(pl.DataFrame({"key": part}))
    table = release["labels"]
    return dict(zip(table["key"].to_list(), table["estimate"].to_list(), strict=True))


def draws(count: int) -> object:
    noise = KeyedNoise(fresh_secret()).at("peers")
    keys = np.arange(2 * count, dtype=np.uint64).reshape(-1, 2)
    return noise.gaussian(20.0, keys=keys)


def heavy(keys: list[str]) -> dict[str, float]:
    sketch = MisraGries(k=COUNTERS, keys="text")
    sketch.update(pl.Series(keys))
    table = sketch.release(epsilon=EPSILON, delta=DELTA, ledger="not accounted for").to_frame()
    return dict(zip(table["key"].to_list(), table["estimate"].to_list(), strict=True))
