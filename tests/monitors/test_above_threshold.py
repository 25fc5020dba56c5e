"""AboveThreshold: test vector, exact chances, and its loss over whole outputs by enumeration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from pianissimo.errors import HorizonError, InputError, ParameterError
from pianissimo.loss.losses import Pure
from pianissimo.monitors import AboveThreshold
from pianissimo.noise.keyed import DRAW_DISTANCE, Integers, Keys, PathPart
from pianissimo.testing import NoNoise, SeededNoise


@dataclass
class GivenLaplace(NoNoise):
    """Draws written down by path."""

    draws: dict[tuple[PathPart, ...], int]
    path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.draws, self.path + path)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        out[:] = self.draws.get(self.path, 0) if law == "laplace" else 0


def test_vector_of_the_card_in_tenths() -> None:
    # Noises 1; 2.9, 2.0, -0.5 on queries 8, 9, 12 and threshold 10: all times ten.
    noise = GivenLaplace({("threshold",): 10, ("query", 1): 29, ("query", 2): 20, ("query", 3): -5})
    svt = AboveThreshold(threshold=100, epsilon=1)
    state = svt.start()
    assert [svt.test(state, query, noise) for query in (80, 90, 120)] == [False, False, True]


def chance_of_top(gap: float, threshold_scale: float, query_scale: float) -> float:
    """P(Lap(query) - Lap(threshold) > gap) for continuous noise."""

    def above(shift: float) -> float:
        density = stats.laplace.pdf(shift, scale=threshold_scale)
        return float(density * stats.laplace.sf(gap + shift, scale=query_scale))

    return float(integrate.quad(above, -120, 120, limit=500, points=[-gap, 0])[0])


@pytest.mark.parametrize(("monotone", "expected"), [(False, 0.14046), (True, 0.06223)])
def test_the_scales_are_those_of_the_card(monotone: bool, expected: float) -> None:
    svt = AboveThreshold(threshold=10, epsilon=1, monotone=monotone)
    assert chance_of_top(6, float(svt.threshold_scale), float(svt.query_scale)) == pytest.approx(expected, abs=2e-5)


def law(scale: Fraction, reach: int) -> NDArray[np.float64]:
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / float(scale))
    return np.asarray(weights / weights.sum())


def outcome_chances(svt: AboveThreshold, queries: Sequence[int], query_scale: Fraction) -> list[float]:
    """The chance that the first TOP is at each query, and that there is none: exact for whole-number noise."""
    reach = 120
    shifts = np.arange(-reach, reach + 1)
    noise = law(query_scale, reach)
    going, found = law(svt.threshold_scale, reach), []
    for query in queries:
        # P(noise > threshold + shift - query) for each shift of the threshold.
        least = np.clip(svt.threshold + shifts - query + 1 + reach, 0, len(noise))
        top = np.concatenate([np.cumsum(noise[::-1])[::-1], [0.0]])[least]
        found.append(float((going * top).sum()))
        going = going * (1 - top)
    return [*found, float(going.sum())]


def loss_of(svt: AboveThreshold, one: Sequence[int], other: Sequence[int], query_scale: Fraction) -> float:
    pairs = zip(outcome_chances(svt, one, query_scale), outcome_chances(svt, other, query_scale), strict=True)
    return max(abs(math.log(left / right)) for left, right in pairs)


QUIET = [-6] * 12


def test_monotone_queries_lose_at_most_epsilon() -> None:
    svt = AboveThreshold(threshold=0, epsilon=1)
    for one, other in (([*QUIET, 8], [*(query + 1 for query in QUIET), 9]), ([*QUIET, 8], [*QUIET, 9])):
        assert loss_of(svt, one, other, svt.query_scale) <= 1 + 1e-9


def test_other_queries_lose_at_most_epsilon_with_twice_the_scale_and_more_without() -> None:
    svt = AboveThreshold(threshold=0, epsilon=1, monotone=False)
    many = [-30] * 60
    one, other = [*many, 30], [*(query + 1 for query in many), 29]
    assert loss_of(svt, one, other, svt.query_scale) <= 1 + 1e-9
    # The last query falls where the others rise: 1.5 epsilon with the scale of monotone queries.
    close = [0] * 40
    lost = loss_of(svt, [*close, -25], [*(query + 1 for query in close), -26], Fraction(2))
    assert 1.3 < lost <= 1.5 + 1e-9


def test_it_stops_above_the_noisy_threshold_and_not_at_it() -> None:
    svt = AboveThreshold(threshold=7, epsilon=1)
    for raised in (-3, 0, 4):
        placed = (GivenLaplace({("threshold",): raised, ("query", 1): z}) for z in range(-10, 20))
        stops = [svt.test(svt.start(), 5, noise) for noise in placed]
        assert stops == [5 + z > 7 + raised for z in range(-10, 20)]


def test_it_stops_as_often_as_the_law_says() -> None:
    """False alarms: 1e-9."""
    svt, queries, samples = AboveThreshold(threshold=2, epsilon=2), [0, 2, 1], 300
    found = []
    for seed in range(samples):
        state = svt.start()
        answers = (svt.test(state, query, SeededNoise(seed)) for query in queries)
        found.append(next((place for place, top in enumerate(answers) if top), len(queries)))
    for place, chance in enumerate(outcome_chances(svt, queries, svt.query_scale)):
        law = stats.binom(samples, chance)
        assert min(law.cdf(found.count(place)), law.sf(found.count(place) - 1)) > 1e-9 / 8
        assert 0.05 < chance < 0.6


def test_noise_comes_from_the_threshold_once_and_from_each_query() -> None:
    svt = AboveThreshold(threshold=0, epsilon=Fraction(1, 50))
    answers = []
    for seed in range(200):
        state, noise = svt.start(), SeededNoise(seed)
        answers.append(svt.test(state, 0, noise))
    assert 60 < sum(answers) < 140


def test_it_stops_at_the_first_top() -> None:
    svt, noise = AboveThreshold(threshold=0, epsilon=1), NoNoise()
    state = svt.start()
    assert svt.test(state, 1, noise)
    with pytest.raises(HorizonError, match="start a new one"):
        svt.test(state, 1, noise)


def test_its_loss_and_its_margin() -> None:
    svt = AboveThreshold(threshold=0, epsilon=Fraction(1, 2), monotone=False)
    assert svt.loss(99) == Pure(Fraction(1, 2), distance=100 * DRAW_DISTANCE)
    assert svt.margin_of_detection(0.05) == pytest.approx(12 * math.log(20))
    assert AboveThreshold(threshold=0, epsilon=1).margin_of_detection(0.05) == pytest.approx(4 * math.log(20))


def test_what_is_promised_to_stop_it_does() -> None:
    # Of 2,000 runs at most 5% may miss; rate 1e-8 by the exact binomial tail.
    svt = AboveThreshold(threshold=0, epsilon=1)
    query = math.ceil(svt.margin_of_detection(0.05))
    missed = sum(not svt.test(svt.start(), query, SeededNoise(seed)) for seed in range(2000))
    assert missed <= stats.binom.isf(1e-8, 2000, 0.05)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf])
def test_an_epsilon_that_cannot_be_is_refused(epsilon: float) -> None:
    with pytest.raises(ParameterError):
        AboveThreshold(threshold=0, epsilon=epsilon)


@pytest.mark.parametrize("query", [1.5, float("nan"), "3"])
def test_queries_are_whole_numbers(query: Any) -> None:
    svt = AboveThreshold(threshold=10, epsilon=1)
    with pytest.raises(InputError, match="whole number"):
        svt.test(svt.start(), query, NoNoise())


def test_a_query_of_fixed_width_does_not_wrap() -> None:
    svt = AboveThreshold(threshold=100, epsilon=1)
    assert not any(svt.test(svt.start(), cast(int, np.int8(-128)), SeededNoise(seed)) for seed in range(200))
