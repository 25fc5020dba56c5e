"""Pianissimo: the same work by streams."""

import numpy as np
import polars as pl

import pianissimo as pp
from benchmarks.peers.work import DELTA, EPSILON, YEAR
from pianissimo.noise import KeyedNoise, fresh_secret

VERSION = pp.__version__
PRIVACY = "one event; one user; one user within a day"


def _count(releases: int) -> "pp.Stream":
    budget = pp.Budget(EPSILON, DELTA)
    return pp.Stream("peers", budget=budget, horizon=releases, queries=[pp.Count("events")])


def hours(counts: list[int]) -> list[float]:
    """The single hours of a stream that runs for a year: windows of one tick."""
    live = _count(YEAR).start()
    found = []
    for count in counts:
        live.tick(pl.DataFrame({"event": range(count)}))
        found.append(float(live.window(1)["events"]["estimate"][0]))
    return found


def running(releases: int) -> float:
    """The root mean square of the errors of all releases of a whole run."""
    live = _count(releases).start()
    empty = pl.DataFrame({"event": pl.Series([], dtype=pl.Int64)})
    errors = [float(live.tick(empty)["events"]["estimate"][0]) for _ in range(releases)]
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
