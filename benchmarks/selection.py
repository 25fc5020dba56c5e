"""Top 100 of 10,000 candidates: answers a second against opendp's noisy top-k in the same run."""

import importlib.util
from collections.abc import Iterator
from fractions import Fraction
from itertools import count

import numpy as np

from benchmarks.measure import Row, best_cpu_seconds
from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.selection import LimitedDomain

CANDIDATES = 10_000
K = 100
SCALE = 10


def counts() -> dict[str, int]:
    sizes = (1e6 * np.arange(1, CANDIDATES + 2) ** -1.1).astype(np.int64)
    np.random.default_rng(3).shuffle(sizes)
    return {f"key-{place:05}": int(size) for place, size in enumerate(sizes)}


def limited_domain_seconds() -> float:
    """From a dictionary of k_bar + 1 counts to labels, a noise path of its own for each answer."""
    mechanism = LimitedDomain(k=K, candidates=CANDIDATES, epsilon=Fraction(1, SCALE), delta=Fraction(1, 10**6))
    noise, histogram, question = KeyedNoise(fresh_secret()), counts(), count()
    return best_cpu_seconds(lambda: mechanism.answer(histogram, noise.at(next(question))))


def opendp_seconds() -> float:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    values = np.array(list(counts().values())[:CANDIDATES])
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    measurement = dp.m.make_noisy_top_k(*space, dp.max_divergence(), k=K, scale=float(SCALE))
    return best_cpu_seconds(lambda: measurement(values), repeats=1)


def rows() -> Iterator[Row]:
    if importlib.util.find_spec("opendp") is None:
        return
    yield Row(
        what=f"limited domain, k={K}, candidates={CANDIDATES}",
        peer="opendp make_noisy_top_k (pure DP), the same candidates",
        ours=1 / limited_domain_seconds(),
        theirs=1 / opendp_seconds(),
        unit="answers/s",
        at_least=50,
    )
