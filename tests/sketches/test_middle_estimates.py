"""The estimate of a release has no bias where the truth is in the middle of what a sketch leaves open."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

from pianissimo.loss.losses import Mixed
from pianissimo.mechanism import Run
from pianissimo.noise import Noise
from pianissimo.sketches import (
    GaussianMisraGries,
    HeavyKeys,
    MisraGries,
    PrivateMisraGries,
    PublishedTree,
    PureHistogram,
    RunningSketch,
    SetTree,
    SketchTree,
    reduce,
)
from pianissimo.sketches.private_release import SketchRelease
from pianissimo.testing import NoNoise, SeededNoise

SEEDS = 200


def stream(before: int, key: int, after: int) -> pl.Series:
    """For a sketch of one counter, in the order of the keys: `before` decrements, a key, and `after` decrements."""
    return pl.Series(np.repeat([1, 2, 3, 4], [before, before, key, after]))


# The key is in [c, c + D] = [800, 1200], in its middle at 1000.
PLAIN = stream(200, 1000, 200)
# Reduced: the key is in [u - n / 2, u] with u = c + D = 2600 and n = 4000, in its middle at 1600.
REDUCED = stream(1000, 1600, 400)
# Sets: the key is in [c, c + N / 2] = [800, 3600], in its middle at 2200.
SETS = stream(1000, 2200, 1400)


def of_sketch(mechanism: Any) -> Callable[[Noise], pl.DataFrame]:
    def released(noise: Noise) -> pl.DataFrame:
        sketch = MisraGries(k=1)
        sketch.update(PLAIN)
        table: pl.DataFrame = mechanism.release(sketch.contents(), noise).to_frame()
        return table

    return released


def of_reduced(noise: Noise) -> pl.DataFrame:
    sketch = MisraGries(k=1)
    sketch.update(REDUCED)
    mechanism = PureHistogram.of_sketch(k=1, epsilon=1, universe=range(9))
    return mechanism.release(reduce(sketch.contents(), k=1), noise).to_frame()


def of_run(mechanism: Any, events: pl.Series) -> Callable[[Noise], pl.DataFrame]:
    def released(noise: Noise) -> pl.DataFrame:
        run = Run(mechanism, noise)
        run.update(events)
        table: pl.DataFrame = run.release().value.to_frame(mechanism.reach(1, 0.95))
        return table

    return released


SMALL: dict[str, Any] = {"horizon": 3, "k": 1, "keys": "int64"}
BOOKED = SMALL | {"rho": 0.05, "bad": 1e-6}
RELEASES: dict[str, tuple[Callable[[Noise], pl.DataFrame], int, float]] = {
    "laplace": (of_sketch(PrivateMisraGries(k=1, epsilon=Fraction(1, 4), threshold=100)), 1000, 8.0),
    "gaussian": (of_sketch(GaussianMisraGries(k=1, variance=Fraction(100), threshold=100)), 1000, 12.0),
    "pure": (of_reduced, 1600, 4.0),
    "running sketch": (of_run(RunningSketch.calibrated(**BOOKED), PLAIN), 1000, 9.0),
    "published tree": (of_run(PublishedTree.calibrated(**SMALL, epsilon=1, delta=1e-6), PLAIN), 1000, 5.0),
    "sketch tree": (of_run(SketchTree.calibrated(**BOOKED), REDUCED), 1600, 6.0),
    "set tree": (of_run(SetTree.calibrated(**BOOKED, with_total=True, max_keys_per_event=1), SETS), 2200, 9.0),
}
"""By name: a release, the truth of its one key, and more than the deviation of its estimate."""


@pytest.mark.parametrize(("released", "truth", "deviation"), RELEASES.values(), ids=RELEASES.keys())
def test_the_mean_error_is_near_zero(released: Callable[[Noise], pl.DataFrame], truth: int, deviation: float) -> None:
    """False alarms: five deviations of a mean. The middle of the bars is off by more in all of these."""
    assert released(NoNoise())["estimate"].to_list() == [truth]
    tables = pl.concat(released(SeededNoise(seed)).filter(pl.col("key") == 3) for seed in range(SEEDS))
    assert len(tables) == SEEDS
    errors = tables["estimate"].to_numpy() - truth
    bar = 5 * deviation / SEEDS**0.5
    assert errors.std() < deviation
    assert abs(errors.mean()) < bar
    assert abs(((tables["low"] + tables["high"]) / 2).to_numpy().mean() - truth) > bar
    assert (tables["low"] <= tables["estimate"]).all()
    assert (tables["estimate"] <= tables["high"]).all()


def test_estimates_are_whole_or_half_numbers_between_unchanged_bars() -> None:
    keys = pl.Series([7])
    one = SketchRelease(keys, np.array([30]), np.array([35]), 5, 22, 2, 0.95, Mixed(pure=Fraction(1)))
    assert one.to_frame().row(0) == (7, 32.5, 26.0, 37.0)
    tree = HeavyKeys(keys, np.array([31]), 3, 18)
    assert tree.to_frame(reach=3).row(0) == (7, 13.5, 9.0, 19.0)
    assert HeavyKeys(keys, np.array([31]), 3).to_frame(reach=3).row(0) == (7, 10.5, 9.0, None)
