"""A histogram over a million keys in a 2^20-tick Haar plan: time and memory."""

import resource
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import polars as pl

from benchmarks.measure import Row, best_seconds
from pianissimo.counting import HaarPlan
from pianissimo.histograms import KnownHistogram
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.plan_noise import evaluate

SERIES = 1_000_000
TICKS = 256


def labels() -> pl.Series:
    return pl.select(pl.format("key-{}", pl.int_range(SERIES).cast(pl.String).str.zfill(7))).to_series()


def make_run() -> Run[pl.Series, object, object]:
    plan = HaarPlan.calibrated(horizon=2**20, rho=0.5)
    histogram = KnownHistogram(plan=plan, domain=Domain(labels()))
    return Run(histogram, KeyedNoise(fresh_secret()))  # type: ignore[arg-type]


def rows() -> Iterator[Row]:
    run = make_run()
    run.release()

    def releases() -> None:
        for _ in range(TICKS):
            run.release()

    ordinary = np.random.default_rng(1)
    normals = best_seconds(lambda: ordinary.standard_normal(SERIES))
    each = best_seconds(releases, repeats=2) / TICKS
    peer = "numpy drawing 1e6 plain normals"
    yield Row(
        what="release of 1e6 keys, tick after tick",
        peer=peer,
        ours=each * 1e3,
        theirs=normals * 1e3,
        unit="ms",
        at_most=4,
    )
    plan = HaarPlan.calibrated(horizon=2**20, rho=0.5)
    keys = np.stack([np.arange(SERIES, dtype=np.uint64)] * 2, axis=1)
    noise = KeyedNoise(fresh_secret())
    once = best_seconds(lambda: evaluate(plan, noise, 699_050, keys), repeats=3)
    yield Row(
        what="release of 1e6 keys at a random tick",
        peer=peer,
        ours=once * 1e3,
        theirs=normals * 1e3,
        unit="ms",
        at_most=40,
    )
    yield Row(
        what="peak memory of 1e6 keys over 2^20 ticks",
        peer="one byte a key",
        ours=peak_bytes_a_key(),
        theirs=1.0,
        unit="B/key",
        at_most=200,
    )


def peak_bytes_a_key() -> float:
    """Of a fresh process, above what the imports take."""
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.histogram"], capture_output=True, check=True, text=True
    ).stdout
    return float(output)


def measure_memory() -> None:
    warm = HaarPlan.calibrated(horizon=2**20, rho=0.5)
    evaluate(warm, KeyedNoise(fresh_secret()), 1, np.zeros((1, 2), np.uint64))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = make_run()
    run.update(labels())
    for _ in range(64):
        run.release()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print((after - before) * 1024 / SERIES)


if __name__ == "__main__":
    measure_memory()
