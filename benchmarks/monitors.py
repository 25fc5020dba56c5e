"""A tick of a million keys with a million users, and what a charged user costs in memory."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

import pianissimo as pp
from benchmarks.histogram import memory
from benchmarks.measure import Row
from benchmarks.measure import best_cpu_seconds as best
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, fresh_secret

USERS = 1_000_000
GROUP = 10_000


def keys() -> pl.Series:
    return pl.select(pl.format("key-{}", pl.int_range(USERS).shuffle(1).cast(pl.String).str.zfill(7))).to_series()


def users(kind: str) -> pl.Series:
    numbers = np.random.default_rng(2).permutation(USERS) * 7919
    return pl.Series(numbers) if kind == "numbers" else pl.Series([f"user-{number:012}" for number in numbers.tolist()])


def monitor(domain: Domain | None) -> Any:
    """What a stream has for one list of keys."""
    asked = pp.Trending("keys", key="key", alarms_per_user=4, domain=domain)
    stream = pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=1000, unit=pp.user("user"), queries=[asked])
    return stream.plan().queries[0].mechanism


def seconds_a_tick(kind: str, domain: Domain | None) -> float:
    """Each user holds a key of her own: a million tests."""
    trending = monitor(domain)
    run = Run(trending, KeyedNoise(fresh_secret()))
    batch = pl.DataFrame({"user": users(kind), "key": keys()})

    def tick() -> None:
        run.update(batch)
        run.release()

    return best(tick, repeats=3)


def rows() -> Iterator[Row]:
    for domain, which in ((None, "unknown"), (Domain(keys()), "known")):
        for kind in ("numbers", "texts"):
            yield Row(
                what=f"trending: a tick of 1e6 keys, {which} domain, 1e6 users as {kind}",
                peer="one second",
                ours=seconds_a_tick(kind, domain),
                theirs=1.0,
                unit="s",
                at_most=1,
            )
    yield Row(
        what="trending: memory of 1e6 charged users",
        peer="one byte a user",
        ours=bytes_a_user(),
        theirs=1.0,
        unit="B/user",
        at_most=32,
    )


def bytes_a_user() -> float:
    """Of a fresh process, above what it held before anybody was charged."""
    output = subprocess.run([sys.executable, "-m", "benchmarks.monitors"], capture_output=True, check=True, text=True)
    return float(output.stdout)


def measure_memory() -> None:
    """All users are charged, ten thousand at a tick; then the ticks are over and the charges remain."""
    trending = monitor(None)
    run = Run(trending, KeyedNoise(fresh_secret()))
    crowd = users("numbers")
    key = pl.Series(["hot"] * GROUP)

    def charge(group: pl.Series) -> None:
        run.update(pl.DataFrame({"user": group, "key": key}))
        if run.release().value.labels.to_list() != ["hot"]:
            raise RuntimeError("ten thousand holders must be reported")

    charge(crowd[:GROUP])
    before = memory("VmRSS")
    for start in range(GROUP, USERS, GROUP):
        charge(crowd[start : start + GROUP])
    print((memory("VmRSS") - before) / (USERS - GROUP))


if __name__ == "__main__":
    measure_memory()
