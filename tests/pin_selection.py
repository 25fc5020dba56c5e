"""What selections answer, cost and refuse, at many parameters: `python -m tests.pin_selection` pins it anew.

Read the difference before you commit it: a digest that changes is another law of an answer, another threshold, another
price, or something that is no longer refused.
"""

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.pin_releases import SEED, digest
from tests.pin_sketches import tried

from pianissimo.labels import Domain
from pianissimo.noise import HaarPlan
from pianissimo.selection import (
    FixedThresholdLaplace,
    KnownGauss,
    KnownGumb,
    LimitedDomain,
    LimitedLaplace,
    OptimalThreshold,
    PayWhatYouGet,
    Peeling,
    SparseGumbel,
    StrictDomain,
    UnkGauss,
    UnkGumb,
)
from pianissimo.selection.known_and_unknown import largest, strictly_larger
from pianissimo.selection.limited_dom import check_race_parameters, race_to_threshold
from pianissimo.selection.race import Counted, _brackets, exact_arrival, first_in_race
from pianissimo.selection.thresholds import race_offset
from pianissimo.testing import SeededNoise

PINNED = Path(__file__).parent / "selection.json"
F = Fraction
HISTOGRAMS: list[dict[str, int]] = [
    {"a": 60, "b": 40, "c": 40, "d": 12, "e": 7, "f": 1},
    {"a": 60, "b": 60, "c": 60, "d": 60, "e": 60, "f": 60},
    {"a": 9, "b": 8, "c": 7, "d": 6, "e": 0, "f": 0},
    {"a": 3, "ü": 90, "zz": 17},
    {"a": 1},
    {},
]


def answers() -> Iterator[Any]:
    """Of every mechanism at several prices, under some secrets, with what it costs."""
    for epsilon, delta, k in product((F(1, 3), F(5, 2)), (F(1, 10), F(1, 1000)), (1, 3)):
        both: dict[str, Any] = {"k": k, "epsilon": epsilon, "delta": delta}
        makers: list[Callable[[], Any]] = [
            *(partial(LimitedDomain, candidates=4, max_keys_per_user=most, **both) for most in (None, 1, 2, 9)),
            *(partial(LimitedLaplace, candidates=4, max_keys_per_user=most, **both) for most in (1, 2, 9)),
            partial(StrictDomain, candidates=4, **both),
            partial(OptimalThreshold, d_bar=5, **both),
            partial(FixedThresholdLaplace, **both),
            *(partial(Peeling, k=k, items=items, epsilon=epsilon) for items in (3, 6)),
        ]
        for make in makers:
            yield tried(lambda make=make: make().loss)  # type: ignore[misc]
            for counts, seed in product(HISTOGRAMS, range(2)):
                yield tried(lambda make=make, counts=counts, seed=seed: make().answer(counts, SeededNoise(SEED + seed)))  # type: ignore[misc]


def calibrated() -> Iterator[Any]:
    """Of known and unknown labels: noise, gaps, prices and answers."""
    domain = Domain(["a", "b", "c", "d"])
    for rho, delta, keys in product((F(1, 3), F(2)), (F(1, 100), F(1, 10**6)), (1, 3, 9)):
        makers: list[Callable[[], Any]] = [
            partial(KnownGauss.calibrated, domain=domain, rho=rho, max_keys_per_event=keys),
            partial(KnownGumb.calibrated, domain=domain, k=2, rho=rho, max_keys_per_event=keys),
            partial(UnkGauss.calibrated, candidates=5, rho=rho, delta=delta, max_keys_per_event=keys),
            partial(UnkGumb.calibrated, candidates=5, k=2, rho=rho, delta=delta, max_keys_per_event=keys),
            partial(UnkGumb.calibrated, candidates=5, k=2, rho=rho, delta=delta),
        ]
        for make in makers:
            yield tried(partial(follows, make))
            for seed in range(3):
                yield tried(partial(published, make, SeededNoise(SEED + seed)))
        for k, switches in ((1, 0), (2, 1), (2, 3)):
            fields = {"domain": domain, "k": k, "switches": switches, "eta": 3, "rho": rho, "max_keys_per_event": keys}
            yield tried(partial(sparse, fields))


def follows(make: Callable[[], Any]) -> Any:
    """What follows from a budget."""
    made = make()
    return [made.variance, getattr(made, "scale", 0), getattr(made, "gap", 0), made.loss]


def published(make: Callable[[], Any], noise: SeededNoise) -> Any:
    """An answer about four labels."""
    labels, counts = pl.Series(["a", "b", "c", "d"]), np.array([90, 60, 59, 2])
    return make().answer(labels, np.arange(8, dtype=np.uint64).reshape(4, 2), counts, noise)


def sparse(fields: dict[str, Any]) -> Any:
    """The scales and the promise of a race that is rarely run."""
    return told(SparseGumbel.calibrated(make_plan=lambda own: HaarPlan.calibrated(horizon=6, rho=own), **fields))


def told(mechanism: Any) -> Any:
    """Its scales and its promise."""
    scales = [mechanism.race_scale, mechanism.threshold_scale, mechanism.test_scale]
    return [*scales, [noise.variance for noise in mechanism.plan.noises], mechanism.guarantee]


def races() -> Iterator[Any]:
    """Races of near and true ties, and between which numbers an arrival lies."""
    scale = F(7, 3)
    words = [0, 1, 2**63, 2**64 - 1, 2**127 - 1, 2**127, 2**127 + 1, 2**128 - 2, 2**128 - 1, 2**100, 5 << 120, 5 << 120]
    words += [2**126 + step for step in (-3, -2, -1, 0, 1, 2, 3, 2**60, 2**70)]
    bits = np.array([[word % 2**64, word >> 64] for word in words], dtype=np.uint64)
    behind = np.array([place % 3 for place in range(len(words))])
    for counts in (behind, behind * 0, behind * 1000, np.arange(len(words))[::-1]):
        for k in (1, 2, 3, len(words) - 1, len(words), len(words) + 3):
            yield first_in_race(counts, bits, scale, k)
        arrivals = [exact_arrival(int(lag), word, scale) for lag, word in zip(counts, words, strict=True)]
        low, high = _brackets(counts, bits, scale)
        yield low, high
        yield [low <= float(each) <= high for low, each, high in zip(low, arrivals, high, strict=True)]
        wide = (high - low) / (1 + np.abs(low))
        yield [round(float(each) * 2.0**46, 3) for each in wide]
    spread = SeededNoise(SEED).bits(np.arange(300, dtype=np.uint64))
    for k in (1, 7, 300):
        yield first_in_race(np.arange(300) % 50, spread, F(5), k)
    for epsilon, delta, labels in product((F(1, 3), F(7)), (F(1, 10), F(1, 10**30)), (1, 5, 10**6)):
        yield race_offset(labels, delta, epsilon)


def inputs() -> Iterator[Any]:
    """What is no histogram, and parameters that no race has."""
    wrong: list[Any] = [
        *({"a": 1, None: 2}, {1: 2}, {"a": 1.5}, {"a": True}, {"a": -1}, {"a": 2**44 - 1}, {"a": 2**44}, {"a": 2**70}),
        *([("a", 1)], None, {"\ud800": 1}, {"a": np.int64(3)}, {"b": 3, "a": 2}, {"a": -1, "b": 2**44}, {}),
    ]
    for counts in wrong:
        yield tried(lambda counts=counts: [Counted.of(counts).labels, Counted.of(counts).counts])  # type: ignore[misc]
    parameters = product(
        (1, 2), (1, 5), (F(1, 2**33), F(1, 2**32), F(1, 3), F(2**32), F(2**33)), (F(1, 3), F(1, 10**20))
    )
    for k, candidates, epsilon, delta in parameters:
        yield tried(partial(check_race_parameters, k=k, candidates=candidates, epsilon=epsilon, delta=delta))
    for epsilon, delta in ((F(1, 2**30), F(1, 10**9)), (F(1, 2**31), F(1, 10**3000)), (F(1, 2**32), F(1, 10**99999))):
        yield tried(partial(check_race_parameters, k=1, candidates=3, epsilon=epsilon, delta=delta))
    histogram = Counted.of(HISTOGRAMS[0])
    for threshold in (F(3), F(7, 2), F(1, 3)):
        race = partial(race_to_threshold, histogram, np.arange(3), threshold, epsilon=F(1, 2), k=2)
        yield tried(partial(race, noise=SeededNoise(SEED)))
    for counts, candidates in product(([5, 3, 3, 1], [2, 2], [], [4]), (1, 2, 3, 4, 5)):
        yield [each(np.array(counts, dtype=np.int64), candidates) for each in (largest, strictly_larger)]
    for steps, calls in product((0, 1, 5), (0, 1, 5)):
        pay = partial(PayWhatYouGet, epsilon=F(1, 3), delta=F(1, 10**6), steps=steps, calls=calls)
        yield tried(lambda pay=pay: pay().loss)  # type: ignore[misc]
        yield tried(lambda pay=pay: pay().loss.as_booked())  # type: ignore[misc]


WAYS: dict[str, Callable[[], Any]] = {"answers": answers, "calibrated": calibrated, "races": races, "inputs": inputs}


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digest(make) for name, make in WAYS.items()}, indent=1) + "\n")
