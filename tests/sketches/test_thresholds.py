"""Thresholds of one sketch: the card's table, exact rational arithmetic, and the divergence of every small pair."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sketches.small_sketches import (
    both_ways,
    change,
    gaussian,
    laplace,
    neighbors,
    release_divergence,
    sketch_of,
)

from pianissimo.errors import ParameterError
from pianissimo.noise.exact_laws import least_integer, shift_divergence, tail
from pianissimo.sketches import threshold
from pianissimo.sketches.released_keys import exposure, gaussian_calibration, gaussian_exposure, private_key_chance

# epsilon, digits of delta; the paper's thresholds (Laplace, geometric), its lemma worked out exactly, ours, ours for
# k = 1, and those for standard sketches of 64 and 1024 counters.
TABLE = [
    ("0.1", 6, 299.3, 301, 162, 161, 155, 196, 224),
    ("0.1", 8, 391.4, 393, 210, 210, 203, 245, 272),
    ("0.1", 10, 483.5, 485, 258, 258, 251, 293, 320),
    ("0.5", 6, 60.7, 63, 34, 33, 32, 41, 46),
    ("0.5", 8, 79.1, 81, 44, 43, 42, 50, 56),
    ("0.5", 10, 97.5, 99, 53, 53, 52, 60, 66),
    ("1", 6, 30.8, 33, 18, 17, 17, 21, 24),
    ("1", 8, 40.0, 41, 23, 22, 22, 26, 29),
    ("1", 10, 49.2, 51, 27, 27, 27, 31, 34),
    ("2", 6, 15.9, 17, 10, 9, 9, 11, 13),
    ("2", 8, 20.5, 23, 12, 12, 12, 14, 15),
    ("2", 10, 25.1, 27, 14, 14, 14, 16, 18),
]


def gaussian_delta(theta: int, *, variance: int, epsilon: Fraction | int, k: int) -> float:
    """The delta of one release with discrete Gaussian noise: a shared number moves beside a private key, or not."""
    private = [float(gaussian_exposure(theta, variance=Fraction(variance), k=keys)) for keys in (1, k)]
    return max(private[1], shift_divergence(variance, 1, float(epsilon)) + private[0])


@pytest.mark.parametrize("row", TABLE)
def test_the_table_of_thresholds(row: tuple[str, int, float, int, int, int, int, int, int]) -> None:
    epsilon, delta = Fraction(row[0]), Fraction(1, 10 ** row[1])
    rate = float(epsilon)
    assert round(1 + 2 * math.log(3 / delta) / rate, 1) == row[2]
    assert 1 + 2 * math.ceil(math.log(6 / (delta * (1 + math.exp(-rate)))) / rate) == row[3]
    assert [
        threshold(epsilon=epsilon, delta=delta, k=2, standard=True),
        threshold(epsilon=epsilon, delta=delta, k=1024),
        threshold(epsilon=epsilon, delta=delta, k=1),
        threshold(epsilon=epsilon, delta=delta, k=64, standard=True),
        threshold(epsilon=epsilon, delta=delta, k=1024, standard=True),
    ] == list(row[4:])


def test_the_vectors_of_the_card() -> None:
    half = Fraction(1, 2)
    assert private_key_chance(half, 4, 2) == Fraction(205, 1008)
    assert private_key_chance(half, 10, 2) == Fraction(29185, 4128768)
    for a, least in ((half, 24), (Fraction(3, 4), 57)):
        assert least_integer(1, lambda theta: private_key_chance(a, theta, 2) <= Fraction(1, 10**6)) == least  # noqa: B023


@pytest.mark.parametrize("a", [Fraction(1, 3), Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("theta", [1, 2, 3, 8])
def test_the_closed_form_is_the_sum(a: Fraction, theta: int) -> None:
    reach = 400

    def chance(h: int) -> Fraction:
        return (1 - a) / (1 + a) * a ** abs(h)

    def hidden(least: int) -> Fraction:
        return 1 - tail(a, least)

    places = range(-reach, reach + 1)
    two = sum(chance(h) * (1 - hidden(theta - 1 - h) * hidden(theta - h)) for h in places)
    one = sum(chance(h) * tail(a, theta - 1 - h) for h in places)
    beyond = 2 * a**reach
    assert 0 <= private_key_chance(a, theta, 2) - two <= beyond
    assert 0 <= private_key_chance(a, theta, 1) - one <= beyond


@settings(max_examples=40)
@given(st.integers(2, 60), st.integers(1, 12), st.integers(1, 2))
def test_a_threshold_is_never_one_too_small(inverse: int, digits: int, k: int) -> None:
    """Against exact arithmetic with rational bounds of a: delta(theta) rises with a."""
    epsilon, delta = Fraction(1, inverse) * 3, Fraction(1, 10**digits)
    theta = threshold(epsilon=epsilon, delta=delta, k=k)
    above = Fraction(math.exp(-float(epsilon))) * (1 + Fraction(1, 2**50))
    below = Fraction(math.exp(-float(epsilon))) * (1 - Fraction(1, 2**50))
    assert private_key_chance(below, theta, k) <= delta
    assert exposure(theta, epsilon=epsilon, k=k) <= delta
    assert theta == 1 or private_key_chance(above, theta - 1, k) > delta
    # The interval for a is wide enough to leave doubt in no example of this test.
    assert private_key_chance(above, theta, k) <= delta


def test_the_chance_for_standard_sketches_is_the_sum() -> None:
    a, epsilon = math.exp(-0.7), Fraction("0.7")
    law = laplace(a)
    places = np.arange(-300, 301)
    for k in (1, 3, 64):
        for theta in (2, 9):
            exact = float((law.mass(places) * (1 - (1 - law.tail(theta - 1 - places)) ** k)).sum())
            assert float(exposure(theta, epsilon=epsilon, k=k, standard=True)) == pytest.approx(exact, rel=1e-7)


def test_a_long_sum_falls_back_to_a_bound_above() -> None:
    theta = threshold(epsilon=Fraction(1, 10**6), delta=1e-6, k=100, standard=True)
    short = threshold(epsilon=Fraction(1, 100), delta=1e-6, k=100, standard=True)
    assert 0.99 * 10**4 * short < theta < 1.2 * 10**4 * short


@pytest.mark.parametrize(("k", "universe", "length"), [(1, 3, 6), (2, 4, 7), (3, 5, 6)])
@pytest.mark.parametrize("theta", [2, 4])
def test_the_divergence_of_all_small_pairs_is_the_chance_of_a_private_key(
    k: int, universe: int, length: int, theta: int
) -> None:
    law = laplace(0.5, reach=60)
    worst = max(release_divergence(pair, law, theta, 2.0) for pair in both_ways(neighbors(k, universe, length)))
    assert worst == pytest.approx(float(private_key_chance(Fraction(1, 2), theta, k)), abs=1e-9)


@pytest.mark.parametrize("k", [2, 3, 7])
def test_the_worst_pair_of_the_card_attains_it(k: int) -> None:
    stream = list(range(1, k + 3))
    pair = change(sketch_of(stream, k), sketch_of([key for key in stream if key != 2], k))
    for theta in (3, 6, 12):
        worst = max(release_divergence(each, laplace(0.5), theta, 2.0) for each in (pair, _turned(pair)))
        assert worst == pytest.approx(float(private_key_chance(Fraction(1, 2), theta, 2)), rel=1e-9)


def test_a_threshold_one_below_breaks_the_promise() -> None:
    """The mutant without the +1: on the worst pair its divergence exceeds delta."""
    a, delta = Fraction(1, 2), Fraction(1, 10**6)
    theta = least_integer(1, lambda each: private_key_chance(a, each, 2) <= delta)
    pair = change(sketch_of([1, 2, 3, 4], 2), sketch_of([1, 3, 4], 2))

    def delta_of(cut: int) -> float:
        return max(release_divergence(each, laplace(0.5), cut, 2.0) for each in (pair, _turned(pair)))

    assert delta_of(theta) <= delta < delta_of(theta - 1)


def test_eviction_by_age_breaks_the_promise() -> None:
    """Three keys on one side alone, where the threshold allows for two."""
    stream = [7, 5, 2, 3, 8, 4, 7, 3, 2, 6, 1, 5]
    fewer = stream[:1] + stream[2:]

    def oldest(zeros: list[int]) -> int:
        return zeros[0]

    theta = 6
    delta = float(private_key_chance(Fraction(1, 2), theta, 4))
    good = change(sketch_of(stream, 4), sketch_of(fewer, 4))
    bad = change(sketch_of(stream, 4, oldest), sketch_of(fewer, 4, oldest))
    assert len(good[1]) == len(good[2]) == 2
    assert len(bad[1]) == len(bad[2]) == 3
    law = laplace(0.5)
    assert max(release_divergence(each, law, theta, 2.0) for each in (good, _turned(good))) <= delta * (1 + 1e-9)
    assert max(release_divergence(each, law, theta, 2.0) for each in (bad, _turned(bad))) > delta * 1.01


def test_noise_for_less_than_one_breaks_the_promise() -> None:
    """Noise of scale 1 / (2 epsilon): as if a number moved by half of what it does."""
    theta = 6
    law = laplace(0.25)
    pairs = both_ways(neighbors(2, 4, 5))
    assert max(release_divergence(pair, law, theta, 2.0) for pair in pairs) > 0.4


@pytest.mark.parametrize("theta", [6, 12])
def test_gaussian_releases_stay_within_their_delta(theta: int) -> None:
    law = gaussian(4.0, reach=70)
    for k, universe, length in ((1, 3, 5), (2, 4, 6)):
        bound = gaussian_delta(theta, variance=4, epsilon=Fraction(1), k=k)
        worst = max(release_divergence(pair, law, theta, math.e) for pair in both_ways(neighbors(k, universe, length)))
        assert 0.3 * bound < worst <= bound


def test_gaussian_calibration_is_within_delta_and_no_larger_than_the_card() -> None:
    delta = Fraction(1, 10**8)
    variance, theta = gaussian_calibration(Fraction(1), delta, 1024)
    assert (variance, theta) <= (28, 45)
    assert gaussian_delta(theta, variance=variance, epsilon=1, k=1024) <= delta
    # The card gives half of delta to the divergence.
    assert (
        gaussian_delta(45, variance=28, epsilon=1, k=1024)
        <= delta
        < gaussian_delta(44, variance=28, epsilon=1, k=1024) * 1.2
    )


def test_the_gaussian_chance_of_a_private_key_is_the_sum() -> None:
    law = gaussian(9.0)
    places = np.arange(-300, 301)
    first, second = law.tail(14 - places), law.tail(15 - places)
    exact = float((law.mass(places) * (1 - (1 - first) * (1 - second))).sum())
    assert float(gaussian_exposure(15, variance=Fraction(9), k=5)) == pytest.approx(exact, rel=1e-7)
    assert float(gaussian_exposure(15, variance=Fraction(9), k=5)) >= exact


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 0}, {"epsilon": math.nan}, {"delta": 0}, {"delta": 1}, {"k": 0}, {"k": 1.5}]
)
def test_what_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    good = {"epsilon": 1, "delta": 1e-6, "k": 8}
    with pytest.raises(ParameterError, match="must be"):
        threshold(**{**good, **wrong})  # type: ignore[arg-type]


def _turned(
    pair: tuple[int, tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]],
) -> tuple[int, tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
    down, ours, theirs, moved = pair
    return -down, theirs, ours, tuple((other + down, mine + down) for mine, other in moved)
