"""The Gaussian sparse histogram: the card's tables, and its conditions by enumeration of the actual draws."""

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest
from tests.sketches.real_noise import log_shift_divergence, log_tail
from tests.sketches.small_sketches import Law, WrittenNoise, gaussian

from pianissimo.errors import ParameterError
from pianissimo.noise.exact_laws import (
    exchange_exponent,
    gaussian_law,
    least_sigma,
    shift_divergence,
    shift_divergences,
)
from pianissimo.sketches import Contents, CorrelatedHistogram, SparseHistogram
from pianissimo.sketches.sparse_histogram import (
    correlated_calibration,
    holds_for_all,
    noise_delta,
    sparse_calibration,
    threshold_delta,
    worst_delta,
)

BUDGETS = [(0.5, 1e-6), (0.5, 1e-9), (1.0, 1e-6), (1.0, 1e-9), (2.0, 1e-6), (2.0, 1e-9)]
REAL = {
    1: [(8.0576, 38.30), (10.6739, 64.02), (4.2247, 20.08), (5.4953, 32.96), (2.2305, 10.60), (2.8445, 17.06)],
    10: [(25.480, 132.5), (33.754, 214.7), (13.360, 69.46), (17.378, 110.5), (7.0534, 36.67), (8.9952, 57.22)],
    100: [(80.576, 452.2), (106.74, 715.8), (42.247, 237.1), (54.953, 368.5), (22.305, 125.2), (28.446, 190.8)],
    1000: [(254.80, 1528.3), (337.54, 2374.4), (133.60, 801.3), (173.78, 1222.4), (70.534, 423.0), (89.953, 632.8)],
}
WHOLE = {
    1: [(65, 39), (115, 65), (18, 21), (31, 34), (6, 13), (9, 19)],
    10: [(650, 134), (1140, 216), (179, 71), (302, 112), (50, 38), (81, 58)],
    100: [(6493, 453), (11394, 717), (1785, 238), (3020, 370), (498, 126), (810, 192)],
    1000: [(64926, 1529), (113933, 2375), (17848, 802), (30198, 1223), (4976, 424), (8092, 634)],
}
LEMMA_24 = {
    1: [(10.86, 58.5), (13.16, 86.1), (5.43, 29.2), (6.58, 43.1), (2.71, 14.6), (3.29, 21.5)],
    10: [(34.33, 199.1), (41.61, 286.6), (17.16, 99.5), (20.80, 143.3), (8.58, 49.8), (10.40, 71.6)],
    100: [(108.6, 671.2), (131.6, 949.2), (54.28, 335.6), (65.79, 474.6), (27.14, 167.8), (32.89, 237.3)],
    1000: [(343.3, 2246.8), (416.1, 3131.6), (171.7, 1123.4), (208.0, 1565.8), (85.8, 561.7), (104.0, 782.9)],
}
CELLS = [(moved, place) for moved in (1, 10, 100, 1000) for place in range(6)]


def least_tau(sigma: float, delta: float, coordinates: int) -> float:
    """The least tau that lets one of so many noises reach it with a chance of at most delta."""
    share = -math.expm1(math.log1p(-delta) / coordinates)
    return -sigma * NormalDist().inv_cdf(share)


def log_worst_delta(sigma: float, tau: float, epsilon: float, coordinates: int) -> float:
    """ln of the delta of the sparse histogram: the largest over how many of the differing keys are shared."""
    log_hidden = math.log1p(-math.exp(log_tail(tau / sigma)))
    worst = -math.inf
    for shared in range(coordinates + 1):
        log_a = (coordinates - shared) * log_hidden
        if shared == 0:
            # No shared key moves: all is in the chance that a key of one side shows.
            worst = max(worst, math.log(-math.expm1(log_a)))
            continue
        moved = math.exp(log_a + log_shift_divergence(sigma, shared, epsilon - log_a))
        worst = max(worst, math.log(moved - math.expm1(log_a)), log_shift_divergence(sigma, shared, epsilon + log_a))
    return worst


@pytest.mark.parametrize(("moved", "place"), CELLS)
def test_the_table_of_real_noise(moved: int, place: int) -> None:
    epsilon, delta = BUDGETS[place]
    sigma, tau = REAL[moved][place]
    least = math.sqrt(moved) * least_sigma(epsilon, delta)
    # To the digits that the card prints.
    assert least == pytest.approx(sigma, rel=3e-5)
    assert least_tau(least, delta, moved) == pytest.approx(tau, rel=5e-4)


@pytest.mark.parametrize(("moved", "place"), CELLS)
def test_the_table_of_whole_noise(moved: int, place: int) -> None:
    epsilon, delta = BUDGETS[place]
    assert sparse_calibration(moved, epsilon, delta) == WHOLE[moved][place]
    calibrated = SparseHistogram.calibrated(moved=moved, epsilon=epsilon, delta=delta)
    assert (calibrated.variance, calibrated.tau) == WHOLE[moved][place]
    # One less of either is not enough.
    variance, tau = WHOLE[moved][place]
    assert worst_delta(moved, variance, tau, epsilon) <= delta < worst_delta(moved, variance, tau - 1, epsilon)
    assert worst_delta(moved, variance - 1, tau, epsilon) > delta or variance < 10


@pytest.mark.parametrize(("moved", "place"), CELLS)
def test_the_table_of_the_paper(moved: int, place: int) -> None:
    epsilon, delta = BUDGETS[place]
    sigma, tau = LEMMA_24[moved][place]
    own = math.sqrt(2 * moved * math.log(2.5 / delta)) / epsilon
    assert abs(own - sigma) <= 0.06
    assert abs(own * math.sqrt(2 * math.log(2 * moved / delta)) - tau) <= 0.06
    # What it claims is true, and its threshold is far above the exact one.
    assert tau > 1.2 * least_tau(math.sqrt(moved) * least_sigma(epsilon, delta), delta, moved)


def test_the_vectors_of_the_card() -> None:
    assert float(gaussian_law(Fraction(18)).tail(np.array([21]))[0]) == pytest.approx(6.394193e-7, rel=1e-6)
    assert shift_divergence(18, 1, 1.0) == pytest.approx(9.565223e-7, rel=1e-6)
    assert shift_divergence(650, 10, 0.5) == pytest.approx(9.888995e-7, rel=1e-6)
    assert exchange_exponent(5, 1000) < 1e-15


def _sum_law(variance: float, draws: int) -> Law:
    one = gaussian(variance, reach=60).masses
    masses = np.array([1.0])
    for _ in range(draws):
        masses = np.convolve(masses, one)
    return Law(lambda z: masses[z.astype(int) + 60 * draws], 60 * draws)


@pytest.mark.parametrize(("variance", "moved"), [(2, 1), (2, 2), (3, 3), (8, 2)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_conditions_are_the_divergences_of_the_actual_draws(variance: int, moved: int, epsilon: float) -> None:
    """For every number of shared keys and both directions, with sums of real draws and not their exchange."""
    tau = 4
    law = gaussian(variance, reach=60)
    shown = float(law.tail(np.array([tau]))[0])
    factor = math.exp(epsilon)
    worst = 0.0
    for shared in range(moved + 1):
        hidden = (1 - shown) ** (moved - shared)
        sums = _sum_law(variance, shared) if shared else None
        places = np.arange(-60 * shared, 60 * shared + 1)
        masses = sums.mass(places) if sums else np.ones(1)
        # A shift by one in every shared coordinate: the likelihood ratio is a function of the sum of the draws.
        ratio = np.exp(-(2 * places + shared) / (2 * variance)) if shared else np.ones(1)
        ours = 1 - hidden + float(np.maximum(hidden * masses - factor * ratio * masses, 0).sum())
        theirs = float(np.maximum(masses - factor * hidden * ratio * masses, 0).sum())
        worst = max(worst, ours, theirs)
    assert worst_delta(moved, variance, tau, epsilon) == pytest.approx(worst, rel=2e-3)
    assert worst_delta(moved, variance, tau, epsilon) >= worst


@pytest.mark.parametrize("counts", list(itertools.product((1, 2, 5), repeat=2)))
def test_small_shared_counts_are_no_worse(counts: tuple[int, int]) -> None:
    """Where the threshold also cuts shared keys: the full law of two keys that both move by one."""
    law, tau, epsilon = gaussian(3.0, reach=60), 3, 0.8
    highs = np.arange(1 + tau, 70)

    def published(count: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        if count == 0:
            return np.concatenate([[1.0], np.zeros(len(highs))])
        return np.concatenate([[1 - float(law.tail(np.array([1 + tau - count]))[0])], law.mass(highs - count)])

    ours = np.multiply.outer(published(counts[0]), published(counts[1]))
    theirs = np.multiply.outer(published(counts[0] - 1), published(counts[1] - 1))
    bound = worst_delta(2, 3, tau, epsilon)
    for one, other in ((ours, theirs), (theirs, ours)):
        assert float(np.maximum(one - math.exp(epsilon) * other, 0).sum()) <= bound


def test_noise_for_one_key_breaks_the_promise_of_k() -> None:
    """The mutant that calibrates a merged sketch of k counters as if one key moved."""
    variance, tau = sparse_calibration(1, 1.0, 1e-6)
    assert worst_delta(1, variance, tau, 1.0) <= 1e-6
    assert worst_delta(16, variance, tau, 1.0) > 0.1
    assert not holds_for_all(16, variance, tau, 1.0, 1e-6)


def test_ranges_of_conditions_decide_like_all_of_them() -> None:
    for variance, tau, delta in ((300, 90, 1e-6), (179, 71, 1e-6), (178, 71, 1e-6), (179, 70, 1e-6), (60, 45, 1e-3)):
        moved, epsilon = 10, 1.0
        log_hidden = math.log1p(-float(gaussian_law(Fraction(variance)).tail(np.array([tau]))[0]))
        one_by_one = True
        for shared in range(moved + 1):
            log_a = (moved - shared) * log_hidden
            first = -math.expm1(log_a) + math.exp(log_a) * shift_divergence(variance, shared, epsilon - log_a)
            second = shift_divergence(variance, shared, epsilon + log_a)
            one_by_one &= max(first, second) * (1 + 1e-9) <= delta
        assert holds_for_all(moved, variance, tau, epsilon, delta) == one_by_one


def test_real_noise_is_worked_out_in_logarithms() -> None:
    assert log_tail(200.0) == pytest.approx(-20006.22, abs=0.01)
    assert log_shift_divergence(1e-3, 1, 1.0) == pytest.approx(0.0, abs=1e-9)
    assert log_shift_divergence(0.02, 1, 1.0) == pytest.approx(log_tail(-24.98), abs=1e-12)
    assert log_shift_divergence(1e4, 1, 1.0) < -4.9e7
    assert math.exp(log_worst_delta(*REAL[10][2], 1.0, 10)) == pytest.approx(1e-6, rel=0.02)


def test_large_sketches_calibrate_too() -> None:
    histogram = SparseHistogram.calibrated(moved=65536, epsilon=1, delta=1e-9)
    assert histogram.variance == pytest.approx(65536 * 30.198, rel=1e-3)
    correlated = CorrelatedHistogram.calibrated(k=65536, epsilon=1, delta=1e-9)
    assert correlated.threshold / 2 < 0.55 * histogram.tau


@pytest.mark.parametrize(
    ("k", "epsilon", "delta", "expected"),
    [
        (10, 1.0, 1e-6, (251, 80, 50.0, 0.71)),
        (100, 1.0, 1e-6, (2097, 210, 139.0, 0.58)),
        (100, 1.0, 1e-9, (3462, 347, 211.5, 0.57)),
        (1000, 1.0, 1e-6, (19658, 622, 436.5, 0.54)),
        (1000, 1.0, 1e-9, (32463, 1027, 654.0, 0.54)),
        (1000, 0.5, 1e-6, (71899, 2274, 833.5, 0.55)),
        (1000, 2.0, 1e-9, (8677, 275, 339.0, 0.54)),
    ],
)
def test_the_list_of_correlated_noise(
    k: int, epsilon: float, delta: float, expected: tuple[int, int, float, float]
) -> None:
    variance, shared, theta = correlated_calibration(k, epsilon, delta)
    assert (variance, shared, theta / 2) == expected[:3]
    independent = 1 + least_tau(math.sqrt(k) * least_sigma(epsilon, delta), delta, k)
    assert theta / 2 / independent == pytest.approx(expected[3], abs=0.006)
    assert noise_delta(k, variance, shared, epsilon) <= delta / 2
    assert threshold_delta(k, variance, shared, theta) <= delta / 2 < threshold_delta(k, variance, shared, theta - 1)


def test_correlated_thresholds_beside_group_privacy() -> None:
    """From about 0.7 sqrt(k) keys a set on, sketches of sets have the lower threshold."""
    assert [math.ceil(correlated_calibration(k, 1.0, 1e-8)[2] / 2) for k in (256, 1024, 4096)] == [295, 588, 1191]


def test_many_divergences_from_one_table() -> None:
    epsilons = np.array([-0.4, 0.0, 0.3, 1.0, 3.0])
    many = shift_divergences(40, 7, epsilons)
    for epsilon, bound in zip(epsilons, many, strict=True):
        single = shift_divergence(40, 7, float(epsilon))
        assert single <= bound * (1 + 1e-8)
        assert bound == pytest.approx(single, rel=1e-6, abs=1e-300) or bound < 1e-12


@pytest.mark.parametrize("pattern", [(1,), (1, 1), (1, 0)])
@pytest.mark.parametrize("epsilon", [0.5, 1.5])
def test_correlated_releases_stay_within_their_delta(pattern: tuple[int, ...], epsilon: float) -> None:
    """The full law of one or two keys with their own draws and a shared one, where some of them move by one."""
    k, variance, shared_variance, theta = len(pattern), 8, 6, 9
    own, shared = gaussian(variance, reach=24), gaussian(shared_variance, reach=20)
    highs = np.arange(theta, 44)
    draws = np.arange(-20, 21)

    def published(counts: tuple[int, ...]) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
        total = np.zeros((len(highs) + 1,) * len(counts))
        for draw in draws:
            part = shared.mass(np.array([draw]))
            for count in counts:
                if count == 0:
                    law = np.concatenate([[1.0], np.zeros(len(highs))])
                else:
                    hidden = 1 - float(own.tail(np.array([theta - 2 * count - draw]))[0])
                    law = np.concatenate([[hidden], own.mass(highs - 2 * count - draw)])
                part = np.multiply.outer(part, law)
            total += part[0]
        return total

    bound = float(
        CorrelatedHistogram(k=k, variance=variance, shared_variance=shared_variance, threshold=theta).delta_at(epsilon)
    )
    for base in (0, 1, 4):
        fewer = tuple(base for _ in pattern)
        more = tuple(count + step for count, step in zip(fewer, pattern, strict=True))
        one, other = published(more), published(fewer)
        for ours, theirs in ((one, other), (other, one)):
            assert float(np.maximum(ours - math.exp(epsilon) * theirs, 0).sum()) <= bound + 1e-9


def test_a_correlated_release_adds_both_draws() -> None:
    contents = Contents(pl.Series([1, 2, 3]), np.array([40, 30, 9]), 5, 100)
    mechanism = CorrelatedHistogram(k=3, variance=100, shared_variance=50, threshold=60)
    noise = WrittenNoise({("shared",): 3, ("counts", 1): -4, ("counts", 2): 7})
    shown = mechanism.release(contents, noise, epsilon=1)
    assert shown.to_dict() == {1: (70 - 4 + 3) / 2, 2: (50 + 7 + 3) / 2}
    assert shown.threshold == 30
    with pytest.raises(ParameterError, match="at most the 2 keys"):
        CorrelatedHistogram(k=2, variance=100, shared_variance=50, threshold=60).release(contents, noise, epsilon=1)


def test_keys_of_count_zero_have_no_noise_and_never_show() -> None:
    contents = Contents(pl.Series([1, 2]), np.array([5, 40]), 5, 100)
    noise = WrittenNoise({("counts", 1): 1000})
    assert SparseHistogram(moved=2, variance=4, tau=9).release(contents, noise, epsilon=1).to_dict() == {2: 35}


def test_losses_add_up_as_bookeds() -> None:
    sparse = SparseHistogram.calibrated(moved=100, epsilon=1, delta=1e-6)
    assert sparse.loss.rho == Fraction(100, 2 * 1785)
    assert sparse.loss.bad <= Fraction(1e-6)
    correlated = CorrelatedHistogram.calibrated(k=100, epsilon=1, delta=1e-6)
    assert correlated.loss.rho == Fraction(1, 420) + Fraction(100, 2 * 2097)
    assert correlated.delta_at(1) <= Fraction(1e-6)
    assert sparse.delta_at(2) < sparse.delta_at(1)
