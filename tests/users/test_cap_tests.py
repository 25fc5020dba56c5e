"""The cap's tests lose no more than they say: exact chances of every outcome on neighboring streams."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pianissimo.users import AdaptiveCap

REACH = 400


def laplace_masses(scale: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """P(z) of the discrete Laplace law for z = -REACH .. REACH."""
    numbers = np.arange(-REACH, REACH + 1)
    ratio = math.exp(-1 / scale)
    masses: np.ndarray[tuple[int], np.dtype[np.float64]] = (1 - ratio) / (1 + ratio) * ratio ** np.abs(numbers)
    return masses


def chances(counts: list[int], discounts: list[int], scale: float) -> list[float]:
    """P of going up at test 1, 2, .., or never: one threshold noise for all tests, one noise for each."""
    masses = laplace_masses(scale)
    above = np.concatenate([masses[::-1].cumsum()[::-1][1:], [0.0]])
    threshold = np.arange(-REACH, REACH + 1)
    silent = masses.copy()
    result = []
    for count, discount in zip(counts, discounts, strict=True):
        # count - discount + noise > threshold.
        need = np.clip(threshold - count + discount, -REACH, REACH) + REACH
        goes = np.where(threshold - count + discount < -REACH, 1.0, above[need])
        result.append(float((silent * goes).sum()))
        silent = silent * (1 - goes)
    return [*result, float(silent.sum())]


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    more=st.lists(st.booleans(), min_size=6, max_size=6),
    level=st.integers(1, 2),
)
def test_every_outcome_of_a_level_is_within_its_share(counts: list[int], more: list[bool], level: int) -> None:
    """A user is above the cap from some tick on or never: here even any one of the counts may be one more."""
    cap = AdaptiveCap(epsilon=Fraction(3), first=1, levels=3, failure_probability=Fraction(9, 10))
    scale = cap.nodes[level - 1].scale
    discounts = [cap.discount(level, test) for test in range(1, len(counts) + 1)]
    fewer = chances(counts, discounts, float(scale))
    larger = chances([count + extra for count, extra in zip(counts, more, strict=False)], discounts, float(scale))
    bound = math.exp(2 / float(scale)) * (1 + 1e-9)
    for one, other in itertools.chain(zip(fewer, larger, strict=True), zip(larger, fewer, strict=True)):
        assert one <= bound * other + 1e-14


def test_a_test_six_below_its_threshold_alarms_as_often_as_computed() -> None:
    """0.06223 for continuous noise of scale 2 on both sides; on whole numbers, and with >, nearly the same."""
    continuous = 0.5 * math.exp(-3) * (1 + 3 / 2)
    assert round(continuous, 5) == 0.06223
    assert chances([4], [10], 2.0)[0] == pytest.approx(continuous, rel=0.25)


def test_a_level_can_lose_all_of_its_share_so_less_noise_is_caught() -> None:
    """Many silent tests with one user more or less, then an alarm that she has no part in."""
    tests = 40
    without, within = [-1] * tests + [-30], [0] * tests + [-30]

    def loss(scale: float) -> float:
        discounts = [0] * (tests + 1)
        return math.log(chances(without, discounts, scale)[tests] / chances(within, discounts, scale)[tests])

    assert 0.999 * 2 / 4.0 < loss(4.0) <= 2 / 4.0 + 1e-9
    assert loss(0.95 * 4.0) > 2 / 4.0
