"""Audit A1: real draws from the real keyed bits, 1e7 of them, against the exact distribution.

Each test states its `false_alarm_rate`; seeds are fixed in CI. Each has a twin at a scale 1 % off that must fail.
"""

import math
import os
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.audit.sampler_tables import ideal_probability

from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.testing import SeededNoise

FALSE_ALARM_RATE = 1e-9
DRAWS = 10_000_000


def noise() -> KeyedNoise:
    """Seeded on each change, fresh entropy nightly."""
    return KeyedNoise(fresh_secret()) if os.environ.get("PIANISSIMO_FRESH_NOISE") else SeededNoise(20261115)


def draws(name: str, scale: float, count: int = DRAWS) -> NDArray[np.int64]:
    keys = np.arange(count, dtype=np.uint64)
    source = noise().at("fit", name)
    return source.gaussian(scale, keys) if name == "gaussian" else source.laplace(scale, keys)


def chi_square_p(values: NDArray[np.int64], name: str, scale: float) -> float:
    """Of draws against the exact chances, in symmetric cells of expected size 20 or more, and two tails."""
    parameter = Fraction(scale) ** (2 if name == "gaussian" else 1)
    reach = int(scale * (4 if name == "gaussian" else 8)) + 1
    width = (reach // 200) | 1
    cells = reach // width
    edges = np.arange(-cells, cells + 2) * width - width // 2
    chances = [
        float(sum(ideal_probability(name, parameter, x) for x in range(low, high)))
        for low, high in pairwise(edges.tolist())
    ]
    tail = (1 - sum(chances)) / 2
    expected = np.array([tail, *chances, tail]) * len(values)
    inside = np.histogram(values, bins=edges - 0.5)[0]
    observed = np.array([(values < edges[0]).sum(), *inside, (values >= edges[-1]).sum()])
    large = expected >= 20
    statistic = float(((observed - expected)[large] ** 2 / expected[large]).sum())
    return float(stats.chi2.sf(statistic, df=int(large.sum()) - 1))


def scale_deviations(values: NDArray[np.int64], name: str, scale: float) -> float:
    """How many standard deviations the sampled second moment is away from the exact one."""
    parameter = Fraction(scale) ** (2 if name == "gaussian" else 1)
    reach = range(int(scale * (12 if name == "gaussian" else 60)) + 30) if scale < 30 else None
    if reach is None:
        second, kurtosis = (scale**2, 3.0) if name == "gaussian" else (2 * scale**2 - 1 / 6, 6.0)
    else:
        chances = np.array([float(ideal_probability(name, parameter, x)) for x in reach])
        squares = np.array([float(x) ** 2 for x in reach])
        second = 2 * float((chances * squares).sum())
        kurtosis = 2 * float((chances * squares**2).sum()) / second**2
    sampled = float((values.astype(float) ** 2).mean())
    return (sampled - second) / (second * math.sqrt((kurtosis - 1) / len(values)))


LIMIT = float(stats.norm.isf(FALSE_ALARM_RATE / 2))


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("gaussian", 0.3),
        ("gaussian", 2.0),
        ("gaussian", 20.0),
        ("gaussian", 300.0),
        ("laplace", 2.0),
        ("laplace", 150.0),
    ],
)
def test_draws_follow_their_distribution(name: str, scale: float) -> None:
    """false_alarm_rate: 2e-9 a case."""
    values = draws(name, scale)
    assert chi_square_p(values, name, scale) > FALSE_ALARM_RATE
    assert abs(scale_deviations(values, name, scale)) < LIMIT


@pytest.mark.parametrize("scale", [1e5, 1e7, 4e9])
def test_wide_draws_have_their_scale(scale: float) -> None:
    """false_alarm_rate: 1e-9 a case."""
    assert abs(scale_deviations(draws("gaussian", scale), "gaussian", scale)) < LIMIT


@pytest.mark.parametrize(
    ("name", "scale"), [("gaussian", 2.0), ("gaussian", 20.0), ("gaussian", 300.0), ("laplace", 2.0)]
)
@pytest.mark.parametrize("error", [0.99, 1.01])
def test_a_scale_off_by_one_percent_is_caught(name: str, scale: float, error: float) -> None:
    """The twin that must fail."""
    broken = draws(name, scale * error)
    assert abs(scale_deviations(broken, name, scale)) > LIMIT
    assert chi_square_p(broken, name, scale) < FALSE_ALARM_RATE


def correlation_deviations(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    return float(np.corrcoef(one, other)[0, 1]) * math.sqrt(len(one))


def test_nodes_items_and_streams_are_uncorrelated() -> None:
    """false_alarm_rate: 6e-9."""
    keys = np.arange(1_000_000, dtype=np.uint64)
    here = noise().at("stream", 1, 2).gaussian(20.0, keys)
    others = [
        noise().at("stream", 1, 3).gaussian(20.0, keys),
        noise().at("stream", 2, 2).gaussian(20.0, keys),
        noise().at("other", 1, 2).gaussian(20.0, keys),
        noise().at("stream", 1, 2).gaussian(21.0, keys),
        noise().at("stream", 1, 2).laplace(20.0, keys),
        np.roll(here, 1),
    ]
    assert max(abs(correlation_deviations(here, other)) for other in others) < LIMIT


def test_an_address_that_leaves_something_out_is_caught() -> None:
    """The twin that must fail: node or item missing from the noise's address."""
    keys = np.arange(1_000_000, dtype=np.uint64)
    here = noise().at("stream", 1).gaussian(20.0, keys)
    without_node = noise().at("stream", 1).gaussian(20.0, keys)
    without_item = noise().at("stream", 1).gaussian(20.0, keys // np.uint64(2))
    assert abs(correlation_deviations(here, without_node)) > LIMIT
    assert abs(correlation_deviations(without_item, np.roll(without_item, 1))) > LIMIT
