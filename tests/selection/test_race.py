"""The exact race: the order of count + Gumbel, bit for bit, and its law."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from tests.selection.label_noise import gumbel_bits

from pianissimo.errors import ParameterError
from pianissimo.selection import first_in_race, race_distance
from pianissimo.selection.race import _brackets, exact_arrival, race_rho, race_scale
from pianissimo.testing import SeededNoise

RUNS = 40_000
FALSE_ALARM_RATE = 1e-9
EXTREMES = [0, 1, 2**63, 2**64 - 1, 2**64, 2**127 - 1, 2**127, 2**128 - 2**64, 2**128 - 2, 2**128 - 1]

words = st.one_of(st.integers(0, 2**128 - 1), st.sampled_from(EXTREMES))
scales = st.fractions(Fraction(1, 100), Fraction(10**6), max_denominator=4096)


def as_bits(numbers: list[int]) -> NDArray[np.uint64]:
    return np.array([[number % 2**64, number >> 64] for number in numbers], dtype=np.uint64).reshape(-1, 2)


def by_decimals(counts: list[int], numbers: list[int], scale: Fraction) -> list[int]:
    """The order from its definition, without a single floating-point number."""
    keys = [exact_arrival(max(counts) - count, word, scale) for count, word in zip(counts, numbers, strict=True)]
    return sorted(range(len(counts)), key=lambda place: (keys[place], place))


def by_floats(counts: NDArray[np.int64], bits: NDArray[np.uint64], scale: Fraction, kind: type) -> list[int]:
    """The mutant: a floating-point order of count + Gumbel."""
    uniform = bits[:, 1].astype(kind) * kind(2.0**-64)
    scores = counts.astype(kind) - kind(scale) * np.log(-np.log1p(-uniform))
    return [int(place) for place in np.argsort(-scores, kind="stable")]


@given(
    st.lists(st.tuples(st.one_of(st.integers(0, 3), st.integers(0, 2**61 - 1)), words), min_size=1, max_size=8),
    scales,
    st.integers(1, 9),
)
def test_it_is_the_order_of_the_decimals(items: list[tuple[int, int]], scale: Fraction, k: int) -> None:
    counts, numbers = [count for count, _ in items], [word for _, word in items]
    order = first_in_race(np.array(counts, dtype=np.int64), as_bits(numbers), scale, k)
    assert order.tolist() == by_decimals(counts, numbers, scale)[:k]


def near_ties(number: int) -> tuple[list[int], list[int], Fraction]:
    """Pairs of items that differ in count and arrive within about 2^-128 of each other."""
    random = np.random.default_rng(7)
    counts, numbers, scale = [], [], Fraction(7, 3)
    for place in range(number):
        score = Fraction(place) + Fraction(int(random.integers(0, 2**20)), 2**22)
        for count in (0, 3):
            counts.append(count)
            numbers.append(gumbel_bits((score - count) / scale) + int(random.integers(-2, 3)))
    return counts, numbers, scale


def test_items_closer_than_any_float_are_told_apart() -> None:
    counts, numbers, scale = near_ties(12)
    exact = by_decimals(counts, numbers, scale)
    gaps = [
        exact_arrival(3 - counts[one], numbers[one], scale) - exact_arrival(3 - counts[two], numbers[two], scale)
        for one, two in zip(exact[::2], exact[1::2], strict=True)
    ]
    assert all(Decimal(0) < abs(gap) < Decimal("1e-30") for gap in gaps)
    for k in (1, 2, 5, 24):
        assert first_in_race(np.array(counts), as_bits(numbers), scale, k).tolist() == exact[:k]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_an_order_of_floats_is_caught(kind: type) -> None:
    """The mutants: already single precision is enough to go wrong on plain bits, double precision on near ties."""
    counts, numbers, scale = near_ties(12)
    assert by_floats(np.array(counts), as_bits(numbers), scale, kind) != by_decimals(counts, numbers, scale)


def test_single_precision_is_caught_on_plain_bits() -> None:
    bits = SeededNoise(5).bits(np.arange(100_000, dtype=np.uint64))
    counts = np.arange(100_000) % 50
    exact = first_in_race(counts, bits, Fraction(5), 100_000).tolist()
    assert by_floats(counts, bits, Fraction(5), np.float32) != exact
    assert by_floats(counts, bits, Fraction(5), np.float64) == exact


def test_true_ties_go_by_position() -> None:
    bits = as_bits([5, 5, 9, 5, 9])
    assert first_in_race(np.array([4, 4, 4, 4, 4]), bits, Fraction(1), 5).tolist() == [0, 1, 3, 2, 4]


@given(st.lists(st.tuples(st.integers(0, 2**61), words), min_size=1, max_size=20), scales)
def test_the_brackets_hold_the_arrivals_with_room(items: list[tuple[int, int]], scale: Fraction) -> None:
    """Half of the room is enough, as the argument says."""
    behind = np.array([lag for lag, _ in items], dtype=np.int64)
    earliest, latest = _brackets(behind, as_bits([word for _, word in items]), scale)
    for (lag, word), low, high in zip(items, earliest.tolist(), latest.tolist(), strict=True):
        quarter = (Fraction(high) - Fraction(low)) / 4
        assert Fraction(low) + quarter <= Fraction(exact_arrival(lag, word, scale)) <= Fraction(high) - quarter


def test_a_million_items_run() -> None:
    bits = SeededNoise(6).bits(np.arange(10**6, dtype=np.uint64))
    counts = 10**6 // np.arange(1, 10**6 + 1)
    first = first_in_race(counts, bits, Fraction(1000), 10)
    scores = counts - 1000 * np.log(-np.log1p(-(bits[:, 1] * 2.0**-64)))
    assert first.tolist() == np.argsort(-scores)[:10].tolist()


CARD = math.e**2 / (math.e**2 + math.e + 1) * math.e / (math.e + 1)


def orders(counts: list[int], scale: Fraction, *, sign: int = 1) -> list[list[int]]:
    """The orders of RUNS races; with sign -1 of count - Gumbel, which is no exponential mechanism."""
    bits = SeededNoise(8).bits(np.arange(3 * RUNS, dtype=np.uint64)).reshape(RUNS, 3, 2)
    return [first_in_race(sign * np.array(counts), race, scale, 3)[::sign].tolist() for race in bits]


def is_plausible(found: int, chance: float) -> bool:
    """Within the exact binomial tails. false_alarm_rate: 1e-9."""
    tails = stats.binom.cdf(found, RUNS, chance), stats.binom.sf(found - 1, RUNS, chance)
    return bool(min(tails) > FALSE_ALARM_RATE / 2)


def test_the_order_has_the_law_of_the_exponential_mechanism() -> None:
    """Card 2.3: tau = 2, so scale 1; P(a, b, c) = .48633. false_alarm_rate: 1e-9."""
    assert pytest.approx(0.48633, abs=5e-6) == CARD
    assert is_plausible(orders([2, 1, 0], Fraction(1)).count([0, 1, 2]), CARD)


@pytest.mark.parametrize("scale", [Fraction(9, 10), Fraction(11, 10)])
def test_a_scale_off_by_ten_percent_is_caught(scale: Fraction) -> None:
    """The twin that must fail."""
    assert not is_plausible(orders([2, 1, 0], scale).count([0, 1, 2]), CARD)


def test_a_wrong_sign_is_caught() -> None:
    """The mutant: count - Gumbel. The card's check is blind to it, as 2, 1, 0 are evenly spaced; 2, 0, 0 are not."""
    chance = math.e**2 / (math.e**2 + 2)
    sound = sum(order[0] == 0 for order in orders([2, 0, 0], Fraction(1)))
    wrong = sum(order[0] == 0 for order in orders([2, 0, 0], Fraction(1), sign=-1))
    assert is_plausible(sound, chance)
    assert not is_plausible(wrong, chance)


def test_the_distance_holds_on_a_coarse_grid() -> None:
    """The argument for 2^128 cells, with 2^4: the total variation from the ideal law is at most n k / cells."""
    cells, counts = 16, np.array([2, 1, 0])
    waits = [math.log(-math.log1p(-(cell + 0.5) / cells)) for cell in range(cells)]
    for k in (1, 2):
        ideal = {
            order: math.prod(
                math.exp(counts[item]) / sum(math.exp(counts[other]) for other in set(range(3)) - set(order[:place]))
                for place, item in enumerate(order)
            )
            for order in permutations(range(3), k)
        }
        drawn = dict.fromkeys(ideal, 0.0)
        for race in product(range(cells), repeat=3):
            arrivals = [(waits[cell] - counts[item], item) for item, cell in enumerate(race)]
            drawn[tuple(item for _, item in sorted(arrivals)[:k])] += cells**-3
        distance = sum(abs(drawn[order] - ideal[order]) for order in ideal) / 2
        assert 0 < distance <= 3 * k / cells
    assert race_distance(3, 2) == Fraction(6, 2**128)


# (m / 4096)^2 must be at least steps / (8 rho): half a unit above the square of m = 1000, that is m = 1001.
@example(1, Fraction(4096**2, 8 * 1000**2 + 4))
@given(st.integers(1, 1000), st.fractions(Fraction(1, 10**6), Fraction(100), max_denominator=10**9))
def test_a_scale_is_the_least_that_keeps_its_rho(steps: int, rho: Fraction) -> None:
    scale = race_scale(steps, rho)
    assert race_rho(steps, scale) <= rho
    if scale > Fraction(1, 4096):
        assert race_rho(steps, scale - Fraction(1, 4096)) > rho


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1), Fraction(1, 2**65), Fraction(2**49), 1.0])
def test_impossible_scales_are_refused(scale: Fraction) -> None:
    with pytest.raises(ParameterError, match="scale must be a Fraction"):
        first_in_race(np.array([1]), as_bits([1]), scale, 1)


def test_nobody_runs_in_an_empty_race() -> None:
    assert first_in_race(np.empty(0, dtype=np.int64), as_bits([]), Fraction(1), 3).tolist() == []
