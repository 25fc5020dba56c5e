"""The cap's tests lose no more than they say: exact chances of every outcome on neighboring streams."""

import math
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from pianissimo.testing import NoNoise
from pianissimo.users import AdaptiveCap
from pianissimo.users.caps import Course
from pianissimo.users.user_table import UserUnits

REACH = 400


def masses_of_sizes(scale: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """P(z) of the size of discrete Laplace noise, for z = 0 .. REACH."""
    ratio = math.exp(-1 / scale)
    masses: np.ndarray[tuple[int], np.dtype[np.float64]] = (
        (1 - ratio) / (1 + ratio) * np.where(np.arange(REACH + 1) > 0, 2.0, 1.0) * ratio ** np.arange(REACH + 1)
    )
    return masses


def chances(counts: list[int], discount: int, scale: float) -> list[float]:
    """P of going up at test 1, 2, .., or never: one threshold noise for all tests, one noise for each."""
    masses = masses_of_sizes(scale)
    at_least = np.append(masses[::-1].cumsum()[::-1], 0.0)
    threshold = np.arange(REACH + 1)
    silent = masses.copy()
    result = []
    for count in counts:
        # count - discount + noise > threshold.
        goes = at_least[np.clip(threshold - count + discount + 1, 0, REACH + 1)]
        result.append(float((silent * goes).sum()))
        silent = silent * (1 - goes)
    return [*result, float(silent.sum())]


def loss_between(one: list[int], other: list[int], discount: int, scale: float) -> float:
    """The largest logarithm of a ratio of chances of the same outcome, in either direction."""
    pairs = list(zip(chances(one, discount, scale), chances(other, discount, scale), strict=True))
    return max(abs(math.log(left / right)) for left, right in pairs if min(left, right) > 1e-13)


@settings(max_examples=100, deadline=None)
@given(
    counts=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    more=st.lists(st.booleans(), min_size=6, max_size=6),
    level=st.integers(1, 2),
)
def test_every_outcome_of_a_level_is_within_its_share(counts: list[int], more: list[bool], level: int) -> None:
    """A user is above the cap from some tick on or never: here even any one of the counts may be one more."""
    cap = AdaptiveCap(epsilon=Fraction(3), first=1, levels=3, early_probability=Fraction(9, 10))
    scale = float(cap.nodes[level - 1].scale)
    larger = [count + extra for count, extra in zip(counts, more, strict=False)]
    assert loss_between(counts, larger, cap.discount(level, len(counts)), scale) <= 2 / scale * (1 + 1e-9)


def test_a_level_can_lose_all_of_its_share_so_less_noise_is_caught(tell_worst: Any) -> None:
    """Many silent tests with one user more or less, then a raise that she has no part in."""
    tests, discount = 200, 20
    without, within = [discount - 1] * tests + [0], [discount] * tests + [0]

    def loss(scale: float) -> float:
        pair = chances(without, discount, scale)[tests], chances(within, discount, scale)[tests]
        return math.log(pair[0] / pair[1])

    tell_worst("the tests of a cap, one level of them", loss(4.0) / (2 / 4.0))
    assert 0.99 * 2 / 4.0 < loss(4.0) <= 2 / 4.0 + 1e-9
    assert loss(0.95 * 4.0) > 2 / 4.0


def test_numbers_that_fall_when_a_user_comes_are_caught() -> None:
    """Noise that is never negative moves up alone: one test may be one higher, and the next one lower."""
    discount, scale = 20, 4.0
    assert loss_between([discount] * 40 + [discount], [discount - 1] * 40 + [discount + 1], discount, scale) > 2 / scale
    assert (
        loss_between([discount] * 40 + [discount], [discount + 1] * 40 + [discount + 1], discount, scale) <= 2 / scale
    )


def test_a_test_that_draws_no_threshold_is_caught() -> None:
    """Every silent test then costs, and not the raise alone."""
    scale, tests = 4.0, 40
    masses = masses_of_sizes(scale)

    def silent(count: int) -> float:
        return float(masses[: 20 - count + 1].sum()) ** tests

    assert math.log(silent(19) / silent(20)) > 2 / scale


def test_the_real_tests_draw_sizes() -> None:
    """As many users as the discount are above: the larger size decides, whatever its sign."""

    cap = AdaptiveCap(epsilon=Fraction(1), first=2, levels=3)
    course, users, noise = Course(cap, horizon=10), UserUnits(NoNoise(), cap=2), NoNoise()
    users.add(users.names(pl.Series(np.repeat(np.arange(cap.discount(1, 10)), 3))))
    with mock.patch.object(NoNoise, "laplace", side_effect=[7, -7, 7, -8, 0, 0]):
        assert not course.close(users, 1, noise)
        assert course.close(users, 2, noise)
