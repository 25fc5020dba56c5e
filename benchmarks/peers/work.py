"""What is asked of every library, and how its answers are scored. Runs in the library's own environment, with numpy.

`python -m benchmarks.peers.work NAME` imports `with_NAME` beside this file and prints one JSON object. A library has
some of:

    hours(counts)                 noisy counts of hours that share no event, each at the whole budget
    total(count, releases, runs)  a total that is asked `releases` times, each time at its share: some of the answers
    labels(users, keys, releases) {label: estimate} of labels nobody listed, at the share of one of `releases`
    draws(count)                  so many integer Gaussian draws of sigma 20
    running(releases)             the root mean square error of a running count that it releases itself
    heavy(keys)                   {label: estimate} of the keys that a sketch of COUNTERS counters holds for certain
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

EPSILON, DELTA = 1.0, 1e-6
YEAR, MONTH = 8760, 720
EVENTS, KEYS, USERS = 100_000, 2_000, 20_000
DRAWS = 5_000
COUNTERS = 384
"""Three quarters of a power of two: what a table of datasketches holds."""

SEED = 11


def hourly_counts() -> list[int]:
    """A month of hours, some of them empty."""
    counts = np.random.default_rng(SEED).poisson(100, MONTH)
    counts[::24] = 0
    return [int(count) for count in counts]


def visits() -> tuple[list[str], list[str]]:
    """Users and the pages they visit: a few pages have most visits, and many have one."""
    source = np.random.default_rng(SEED)
    weights = np.arange(1, KEYS + 1, dtype=np.float64) ** -1.1
    keys = source.choice(KEYS, EVENTS, p=weights / weights.sum())
    users = source.integers(0, USERS, EVENTS)
    return [f"u{user}" for user in users], [f"page {key}" for key in keys]


def heavy_keys() -> list[str]:
    """Too many keys to count each: a million events of a hundred thousand keys, a few of which have most."""
    source = np.random.default_rng(SEED)
    weights = np.arange(1, 100_001, dtype=np.float64) ** -1.1
    return [f"page {key}" for key in source.choice(100_000, 1_000_000, p=weights / weights.sum())]


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the CPU seconds of this process."""
    start = time.process_time()
    given = action()
    return given, time.process_time() - start


def deviation(errors: "np.ndarray[Any, Any]") -> float:
    """Of errors whose mean should be zero."""
    return float(np.sqrt((errors.astype(np.float64) ** 2).mean()))


def score(library: Any) -> dict[str, Any]:
    """All that the library can do of the work."""
    row: dict[str, Any] = {"version": library.VERSION, "privacy": library.PRIVACY}
    if hasattr(library, "hours"):
        counts = hourly_counts()
        noisy, seconds = timed(lambda: library.hours(counts))
        one = deviation(np.array(noisy) - np.array(counts))
        row |= {"hour": one, "hours_cpu": seconds}
        if not hasattr(library, "running"):
            row["added_up"] = one * YEAR**0.5
    if hasattr(library, "total"):
        asked = np.array(library.total(1000, YEAR, 400))
        row["asked_anew"] = deviation(asked - 1000)
    if hasattr(library, "running"):
        row["running"] = float(library.running(YEAR))
    if hasattr(library, "labels"):
        users, keys = visits()
        truth = _counted(keys)
        for name, releases in (("once", 1), ("hourly", MONTH)):
            row[f"labels_{name}"] = _shown(partial(library.labels, users, keys, releases), truth)
    if hasattr(library, "heavy"):
        keys = heavy_keys()
        row["heavy"] = _shown(partial(library.heavy, keys), _counted(keys))
    if hasattr(library, "draws"):
        library.draws(10)
        _, seconds = timed(lambda: library.draws(DRAWS))
        row["draws_a_second"] = DRAWS / max(seconds, 1e-9)
    return row


def _shown(ask: Callable[[], dict[str, float]], truth: dict[str, int]) -> dict[str, Any]:
    shown, seconds = timed(ask)
    errors = np.array([estimate - truth.get(key, 0) for key, estimate in shown.items()])
    return {
        "shown": len(shown),
        "share": sum(truth.get(key, 0) for key in shown) / sum(truth.values()),
        "error": deviation(errors) if len(errors) else None,
        "cpu": seconds,
    }


def _counted(keys: list[str]) -> dict[str, int]:
    labels, counts = np.unique(np.array(keys), return_counts=True)
    return dict(zip(labels.tolist(), counts.tolist(), strict=True))


if __name__ == "__main__":
    print("@@" + json.dumps(score(importlib.import_module(f"benchmarks.peers.with_{sys.argv[1]}"))))
