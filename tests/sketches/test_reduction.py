"""Sensitivity reduction: by exhaustion, its thresholds by exact divergence, sums over sketches, and pure releases."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom
from tests.sketches.small_sketches import Naive, State, WrittenNoise, neighbors

from pianissimo.errors import MergeError, ParameterError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Pure
from pianissimo.noise.exact_draws import geometric
from pianissimo.sketches import (
    IntegerRange,
    MisraGries,
    PureHistogram,
    Reduced,
    ReducedMisraGries,
    add_reduced,
    reduce,
)
from pianissimo.sketches.key_columns import as_universe, other_places
from pianissimo.sketches.pure_histogram import spurious_threshold
from pianissimo.sketches.reduction import reduced_exposure
from pianissimo.testing import NoNoise, SeededNoise

RUNS = [1] * 9 + [2] * 5 + [3] + [4] * 2 + [1]
SMALL = [(1, 3, 6), (2, 4, 7), (3, 4, 7)]


def values_of(state: State, k: int) -> dict[int, int]:
    counts, _, _ = state
    total = sum(count for _, count in counts)
    return {key: value for key, count in counts if (value := (k + 1) * count - total) > 0}


def test_the_vector_of_the_card() -> None:
    sketch = MisraGries(k=2)
    sketch.update(RUNS)
    reduced = reduce(sketch.contents(), k=2)
    assert (reduced.keys.to_list(), reduced.values.tolist(), reduced.total) == ([1], [12], 18)


@pytest.mark.parametrize(("k", "universe", "length"), SMALL)
def test_how_far_one_element_moves_the_reduced_counts(k: int, universe: int, length: int) -> None:
    """By exhaustion, and attained; with n as one more number too. Sensitivity 1 in counts would be too small."""
    sums, squares, with_total = set(), set(), set()
    for one, other in neighbors(k, universe, length):
        ours, theirs = values_of(one, k), values_of(other, k)
        moves = [ours.get(key, 0) - theirs.get(key, 0) for key in ours.keys() | theirs.keys()]
        sums.add(sum(map(abs, moves)))
        squares.add(sum(move * move for move in moves))
        with_total.add(sum(map(abs, moves)) + one[2] - other[2])
        assert all(move == -1 for move in moves if move < 0)
        assert sum(move > 0 for move in moves) <= 1
        mine, alien = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
        assert not (mine and alien)
        assert len(mine) <= 1
        assert all(ours[key] <= k for key in mine)
        assert all(theirs[key] == 1 for key in alien)
    assert max(sums) == 2 * k - 1
    assert max(squares) == k * k + k - 1
    assert max(with_total) == 2 * k
    # The mutant with a sensitivity of one count, k + 1 units.
    assert k == 1 or max(sums) >= k + 1
    assert k < 3 or max(sums) > k + 1


@pytest.mark.parametrize(("k", "universe", "length"), SMALL)
def test_reduced_counts_are_below_the_truth_by_their_share_at_most(k: int, universe: int, length: int) -> None:
    generator = np.random.default_rng(k)
    for _ in range(200):
        stream = generator.integers(1, universe + 1, size=generator.integers(0, 4 * length)).tolist()
        reduced = reduce(Naive(k).update(stream).contents(), k=k)
        values = dict(zip(reduced.keys.to_list(), reduced.values.tolist(), strict=True))
        for key in range(1, universe + 1):
            truth = (k + 1) * stream.count(key)
            assert max(0, truth - len(stream)) <= values.get(key, 0) <= truth


def _laws(value: int, other: int, a: float, cut: int, *, rounded: int) -> tuple[list[float], list[float]]:
    """What is published of one key on both sides: nothing, or each value from the cut on."""

    def law(count: int) -> list[float]:
        if count == 0:
            return [1.0] + [0.0] * 81
        if 0 < count < rounded:
            full = law(rounded)
            share = count / rounded
            return [1 - share + share * full[0]] + [share * chance for chance in full[1:]]
        masses = [(1 - a) / (1 + a) * a ** abs(cut + step - count) for step in range(80)]
        # All beyond the table in one place: the ratio of both sides is constant there.
        beyond = a ** (cut + 80 - count) / (1 + a)
        return [1 - sum(masses) - beyond, *masses, beyond]

    return law(value), law(other)


def _reduced_divergence(pair: tuple[tuple[int, int], ...], a: float, cut: int, factor: float, *, rounded: int) -> float:
    ours, theirs = np.ones(1), np.ones(1)
    for value, other in pair:
        one, two = _laws(value, other, a, cut, rounded=rounded)
        ours, theirs = np.multiply.outer(ours, one).ravel(), np.multiply.outer(theirs, two).ravel()
    return float(np.maximum(ours - factor * theirs, 0).sum())


def _value_pairs(k: int, universe: int, length: int) -> Iterator[tuple[tuple[int, int], ...]]:
    found = set()
    for one, other in neighbors(k, universe, length):
        ours, theirs = values_of(one, k), values_of(other, k)
        moved = sorted(
            (ours.get(key, 0), theirs.get(key, 0))
            for key in ours.keys() | theirs.keys()
            if ours.get(key) != theirs.get(key)
        )
        found |= {tuple(moved), tuple(sorted((other, one) for one, other in moved))}
    yield from sorted(found)


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("k", [1, 2])
def test_the_delta_of_a_threshold_is_the_divergence_of_all_small_pairs(k: int, rounded: bool) -> None:
    a = Fraction(1, 2)
    factor = 2.0 ** (2 * k - 1)
    size = 2 * k - 1 if rounded else 0
    for cut in (2 * k + 3, 2 * k + 6):
        claimed = float(reduced_exposure(a, cut, k, rounded=rounded))
        worst = max(_reduced_divergence(pair, 0.5, cut, factor, rounded=size) for pair in _value_pairs(k, 3, 6))
        assert worst <= claimed * (1 + 1e-9)
        assert worst == pytest.approx(claimed, rel=1e-9)


def test_thresholds_of_the_card() -> None:
    half = Fraction(1, 2)
    assert reduced_exposure(half, 6, 2, rounded=False) == Fraction(1, 24)
    assert reduced_exposure(half, 6, 2, rounded=True) == Fraction(1, 18)
    cuts = {
        rounded: ReducedMisraGries.calibrated(k=1024, epsilon=1, delta=1e-8, rounded=rounded).threshold / 1025
        for rounded in (False, True)
    }
    assert round(cuts[False], 1) == 49.2
    assert round(cuts[True], 1) == 36.0
    assert round(4 + 2 * math.log(1e8), 1) == 40.8


def test_a_delta_beyond_the_formula_is_refused() -> None:
    with pytest.raises(ParameterError, match="at most 1 - e"):
        ReducedMisraGries.calibrated(k=4, epsilon=0.1, delta=0.2)


def test_sums_over_sketches_are_released_like_one() -> None:
    north, south = MisraGries(k=4), MisraGries(k=4)
    north.update(pl.Series(["a"] * 500 + ["b"] * 10))
    south.update(pl.Series(["a"] * 300 + ["c"] * 400))
    both = add_reduced([reduce(each.contents(), k=4) for each in (north, south)])
    values = dict(zip(both.keys.to_list(), both.values.tolist(), strict=True))
    assert values == {"a": 5 * 500 - 510 + 5 * 300 - 700, "c": 5 * 400 - 700}
    mechanism = ReducedMisraGries.calibrated(k=4, epsilon=1, delta=1e-6, streams=2)
    shown = mechanism.release(both, NoNoise())
    assert shown.to_dict() == {"a": 2790 / 5, "c": 1300 / 5}
    assert mechanism.loss.bad <= Fraction(1e-6)
    with pytest.raises(ParameterError, match="must be of such"):
        ReducedMisraGries.calibrated(k=4, epsilon=1, delta=1e-6).release(both, NoNoise())


def test_sketches_that_do_not_fit_are_not_added() -> None:
    one, other = (
        reduce(MisraGries(k=4, keys="text").contents(), k=4),
        reduce(MisraGries(k=5, keys="text").contents(), k=5),
    )
    with pytest.raises(MergeError, match="one k"):
        add_reduced([one, other])
    with pytest.raises(MergeError, match="at least one"):
        add_reduced([])


def test_rounding_keeps_or_drops_small_values() -> None:
    keys = pl.Series(np.arange(2000))
    reduced = Reduced(keys, np.full(2000, 3), total=0, k=4, streams=500)
    mechanism = ReducedMisraGries(k=4, epsilon=Fraction(60), threshold=7, rounded=True, streams=500)
    shown = mechanism.release(reduced, SeededNoise(1))
    assert set(shown.values.tolist()) <= {7, 8, 9}
    # The noise is zero nearly always. False alarms: below 1e-9 on each side, by the exact binomial tail.
    low, high = binom.ppf([1e-9, 1 - 1e-9], 2000, 3 / 7)
    assert low <= len(shown.keys) <= high


def test_other_places_are_distinct_and_free() -> None:
    for count in (0, 1, 5, 9, 17):
        places = other_places(20, [0, 7, 19], count, SeededNoise(count))
        assert len(set(places)) == count
        assert not set(places) & {0, 7, 19}
        assert all(0 < place < 19 for place in places)


def test_the_threshold_of_the_card_over_all_numbers() -> None:
    assert spurious_threshold(2**64, Fraction(1, 2047), Fraction(1)) == 89390
    assert round(89390 / 1025, 1) == 87.2


def test_a_universe_of_all_numbers_is_not_gone_through() -> None:
    sketch = MisraGries(k=16)
    sketch.update(np.repeat(np.array([5, -(2**63), 2**63 - 1]), 2000))
    mechanism = PureHistogram.of_sketch(k=16, epsilon=1, universe=IntegerRange(), spurious=3)
    shown = mechanism.release(reduce(sketch.contents(), k=16), SeededNoise(1))
    estimates = shown.to_dict()
    assert {5, -(2**63), 2**63 - 1} <= set(estimates)
    assert shown.keys.to_list() == sorted(shown.keys.to_list())
    assert isinstance(shown.loss, Pure)
    assert shown.loss.epsilon == 1
    for key, _, lower, upper in shown.to_frame().iter_rows():
        truth = 2000 if key in (5, -(2**63), 2**63 - 1) else 0
        assert lower <= truth <= upper


def test_a_pure_release_is_noise_on_every_key_of_the_universe() -> None:
    """Each key shows with its own chance, stored or not; ten per cent more noise would be seen. False alarms: 5e-8."""
    domain = Domain([f"label {number}" for number in range(20)])
    stored = Reduced(domain.labels.head(3), np.array([1, 4, 9]), total=0, k=3)
    mechanism = PureHistogram(
        sensitivity=5, unit=4, epsilon=Fraction(1), universe=as_universe(domain), threshold=8, stored=3
    )
    runs = 2000
    shown = np.zeros(20)
    for seed in range(runs):
        keys = mechanism.release(stored, SeededNoise(10_000 + seed)).keys
        shown[[place for place in mechanism.universe.places_of(keys) if place is not None]] += 1

    def fits(value: int, times: float, trials: int, *, off: float = 1.0) -> bool:
        a = math.exp(-1 / (5 * off))
        chance = a ** (8 - value) / (1 + a) if value <= 8 else 1 - a ** (value - 7) / (1 + a)
        low, high = binom.ppf([1e-9, 1 - 1e-9], trials, chance)
        return bool(low <= times <= high)

    assert fits(0, shown[3:].sum(), 17 * runs)
    assert not fits(0, shown[3:].sum(), 17 * runs, off=1.1)
    assert all(fits(value, shown[place], runs) for place, value in ((0, 1), (1, 4), (2, 9)))
    assert all(fits(0, shown[place], runs) for place in range(3, 20))


def test_values_by_chance_and_with_noise_have_one_law_beyond_the_threshold() -> None:
    """The tail has no memory: an excess is geometric. False alarms: 1e-9."""
    draws = [geometric(Fraction(1, 2), SeededNoise(seed)) for seed in range(3000)]
    low, high = binom.ppf([1e-9, 1 - 1e-9], 3000, math.exp(-1))
    assert low <= sum(draw >= 2 for draw in draws) <= high


def test_the_largest_are_kept_and_ties_go_by_key() -> None:
    reduced = Reduced(pl.Series([1, 2, 3, 4]), np.array([50, 60, 60, 60]), total=0, k=9)
    mechanism = PureHistogram(
        sensitivity=1, unit=10, epsilon=Fraction(50), universe=as_universe(range(10)), threshold=40, stored=9, most=2
    )
    assert mechanism.release(reduced, NoNoise()).keys.to_list() == [2, 3]


def test_keys_outside_the_universe_are_never_shown() -> None:
    sketch = MisraGries(k=4)
    sketch.update(pl.Series(["inside"] * 900 + ["outside"] * 900))
    mechanism = PureHistogram.of_sketch(k=4, epsilon=5, universe=Domain(["inside", "other"]), with_total=True)
    shown = mechanism.release(reduce(sketch.contents(), k=4), WrittenNoise({("total",): 7}))
    assert set(shown.keys.to_list()) <= {"inside", "other"}
    assert "inside" in shown.keys.to_list()
    assert shown.total == 1807


def test_a_merged_sketch_has_a_pure_release_on_its_counts() -> None:
    left, right = MisraGries(k=4), MisraGries(k=4)
    left.update([1] * 500)
    right.update([1] * 300 + [2] * 100)
    mechanism = PureHistogram.of_merged(k=4, epsilon=1, universe=range(1000), spurious=Fraction(1, 1000))
    shown = mechanism.release(left.merge(right).contents(), NoNoise())
    assert shown.to_dict() == {1: 800.0, 2: 100.0}
    assert mechanism.rate == Fraction(1, 4)
    with pytest.raises(ParameterError, match="reduce it first"):
        PureHistogram.of_sketch(k=4, epsilon=1, universe=range(9)).release(left.contents(), NoNoise())
    with pytest.raises(ParameterError, match="of the k"):
        PureHistogram.of_sketch(k=5, epsilon=1, universe=range(9)).release(reduce(left.contents(), k=4), NoNoise())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ParameterError, match="go up"):
        as_universe(range(9, 0, -1))
    with pytest.raises(ParameterError, match="within 64 bits"):
        IntegerRange(3, 1)
    with pytest.raises(ParameterError, match="texts"):
        as_universe(Domain(["a"])).places_of(pl.Series([1]))
    with pytest.raises(ParameterError, match="whole numbers"):
        as_universe(range(3)).places_of(pl.Series(["a"]))
