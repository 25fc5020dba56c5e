"""Discrete Gaussian draws for a million dense keys, one thread."""

from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Row, best_cpu_seconds
from pianissimo.noise import KeyedNoise, fresh_secret

KEYS = np.arange(1_000_000, dtype=np.uint64)
OPENDP_DRAWS = 30_000


def opendp_rate(sigma: float) -> float:
    """Draws a second of opendp's integer vector Gaussian, less its call with no noise."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    values = [0] * OPENDP_DRAWS
    noisy = dp.m.make_gaussian(*space, scale=sigma)
    plain = dp.m.make_gaussian(*space, scale=0.0)
    seconds = best_cpu_seconds(lambda: noisy(values), repeats=2) - best_cpu_seconds(lambda: plain(values), repeats=2)
    return OPENDP_DRAWS / seconds


def rows() -> Iterator[Row]:
    noise = KeyedNoise(fresh_secret()).at("bench")
    ordinary = np.random.default_rng(1)
    normal_rate = len(KEYS) / best_cpu_seconds(lambda: ordinary.standard_normal(len(KEYS)))
    for sigma in (2.0, 20.0, 200.0, 1e5):
        rate = len(KEYS) / best_cpu_seconds(lambda sigma=sigma: noise.gaussian(sigma, KEYS))  # type: ignore[misc]
        what = f"discrete Gaussian draws, sigma {sigma:g}"
        wanted = 300 if sigma < 1e5 else 50
        yield Row(
            what=what,
            peer="opendp i64 vector",
            ours=rate / 1e6,
            theirs=opendp_rate(sigma) / 1e6,
            unit="M/s",
            at_least=wanted,
        )
        if sigma < 1e5:
            yield Row(
                what=what,
                peer="numpy standard_normal (not secure)",
                ours=rate / 1e6,
                theirs=normal_rate / 1e6,
                unit="M/s",
                at_least=0.5,
            )
