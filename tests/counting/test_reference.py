"""Errors of counters that are not run here: against brute force, against each other, against published tables."""

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.counting.published_counters import (
    LOG_GAPS,
    blt,
    blt_coefficients,
    largest_balanced_digits,
    least_squares_binary,
    normalised_square_root,
    references,
    refined_binary,
    smooth_binary,
    subtraction,
    trace_bound,
)

from pianissimo.counting.compare import optimum, square_root
from pianissimo.errors import ParameterError

HORIZONS = (2**8, 2**12, 2**16, 2**20)

GAUSSIAN_TABLE = {
    "optimum": "2.53/2.52 3.39/3.39 4.27/4.26 5.14/5.14",
    "binary tree, refined": "6.57/4.65 9.40/6.65 12.2/8.65 15.1/10.7",
    "smooth binary": "6.00/6.00 8.00/8.00 10.0/10.0 12.0/12.0",
    "smooth binary, unbalanced": "5.29/5.29 7.35/7.35 9.38/9.38 11.4/11.4",
    "k-ary subtraction": "5.66/4.23 8.12/6.22 11.0/8.09 13.3/9.98",
    "binary tree, least squares": "3.76/3.10 5.12/4.27 6.46/5.43 7.81/6.59",
    "square root": "2.83/2.67 3.71/3.55 4.60/4.43 5.48/5.32",
    "BLT, 4 buffers": "2.83/2.67 3.72/3.55 4.62/4.45 5.56/5.38",
    "BLT, 6 buffers": "2.83/2.67 3.71/3.55 4.60/4.44 5.49/5.32",
    "normalised square root": "2.645/2.56 3.52/3.43",
}
RATIOS = {
    "binary tree, refined": (2.59, 2.77, 2.87, 2.93),
    "smooth binary": (2.37, 2.36, 2.34, 2.33),
    "k-ary subtraction": (2.23, 2.39, 2.57, 2.58),
    "binary tree, least squares": (1.48, 1.51, 1.51, 1.52),
}

LAPLACE_TABLE = {
    "lower bound": "3.58 4.80 6.03 7.27",
    "binary tree, refined": "27.9/19.7 48.0/33.9 71.3/50.4 97.6/69.0",
    "smooth binary": "20.8 32.0 44.7 58.8",
    "smooth binary, unbalanced": "13.3 22.4 32.4 44.1",
    "square root": "42.9 197 876 3825",
    "k-ary subtraction": "13.3/9.5 22.8/16.5 34.4/24.8 46.9/33.9",
}


def last_digit(number: str) -> float:
    """Half a unit of the last digit that is written, and a little for a 5 behind it."""
    return 0.501 * 10.0 ** -len(number.partition(".")[2])


@pytest.mark.parametrize("place", range(len(HORIZONS)), ids=[str(horizon) for horizon in HORIZONS])
@pytest.mark.parametrize("pure", [False, True])
def test_the_errors_are_those_of_the_tables(place: int, pure: bool) -> None:
    found = {each.name: each for each in references(HORIZONS[place], pure=pure)}
    for name, row in (LAPLACE_TABLE if pure else GAUSSIAN_TABLE).items():
        if name not in found:
            assert name == "normalised square root"
            assert HORIZONS[place] > 4096
            continue
        expected = row.split()[place].split("/")
        for number, value in zip(expected, (found[name].max_std, found[name].rms_std), strict=False):
            assert abs(value - float(number)) <= last_digit(number), (name, number, value)
    if not pure:
        for name, ratios in RATIOS.items():
            assert found[name].max_std / found["optimum"].max_std == pytest.approx(ratios[place], abs=0.012)


def test_the_optimum_lies_between_its_proven_bounds() -> None:
    for horizon in (1, 2, 3, 10, 64, 65, 100, 256, 1000, 1024, 4096, 10**5, 2**20):
        best = optimum(horizon)
        assert trace_bound(horizon) - 1e-9 <= best.rms_std <= best.max_std
        assert best.max_std <= math.log(horizon) / math.pi + 1.0 + 1e-9


def test_the_optimum_of_two_ticks_is_known() -> None:
    """gamma_2 of [[1, 0], [1, 1]] is 2 / sqrt(3)."""
    assert optimum(2).max_std == pytest.approx(2 / math.sqrt(3), rel=1e-9)


def test_the_fit_continues_the_computed_values() -> None:
    for horizon, detail in ((40, "computed"), *((64 * 2**k, "certified lower bound") for k in (0, 1, 2, 4, 6))):
        here, after = optimum(horizon), optimum(horizon + 1)
        assert (here.detail, after.detail) == (detail, "fit")
        step = 1 / (math.pi * horizon)
        assert after.max_std - here.max_std == pytest.approx(step, abs=3e-3 if horizon == 40 else 1e-3)
        assert after.rms_std - here.rms_std == pytest.approx(step, abs=3e-3 if horizon == 40 else 1e-3)


@pytest.mark.parametrize("horizon", [1, 2, 3, 17, 64, 100, 1000, 5000])
def test_no_counter_is_better_than_the_optimum(horizon: int) -> None:
    for pure in (False, True):
        best, *others = references(horizon, pure=pure)
        for each in others:
            assert each.max_std >= best.max_std * (1 - 1e-9), each
            assert each.rms_std >= best.rms_std * (1 - 1e-9), each
            assert each.rms_std <= each.max_std * (1 + 1e-9), each


def tree_matrix(levels: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    size = 2**levels
    rows = [
        [float(node * 2**level <= leaf < (node + 1) * 2**level) for leaf in range(size)]
        for level in range(levels + 1)
        for node in range(size >> level)
    ]
    return np.array(rows)


@pytest.mark.parametrize("levels", [0, 1, 2, 3, 5])
def test_least_squares_on_a_tree_is_the_pseudo_inverse(levels: int) -> None:
    tree, size = tree_matrix(levels), 2**levels
    weights = np.tril(np.ones((size, size))) @ np.linalg.pinv(tree)
    profile = (weights**2).sum(axis=1) * (levels + 1)
    found = least_squares_binary(size, pure=False)
    assert [found.max_std**2, found.rms_std**2] == pytest.approx([profile.max(), profile.mean()], rel=1e-9)


def balanced_digits(number: int, k: int) -> list[int]:
    digits = []
    while number:
        digit = (number + k // 2) % k - k // 2
        digits.append(digit)
        number = (number - digit) // k
    return digits


@pytest.mark.parametrize("pure", [False, True])
def test_subtraction_is_the_best_by_brute_force(pure: bool) -> None:
    for horizon in (*range(1, 40), 64, 100, 121, 122, 150):
        largest, typical = [], []
        for k in range(3, 2 * horizon + 2, 2):
            levels = next(h for h in range(1, 20) if (k**h - 1) // 2 >= horizon)
            sizes = [sum(map(abs, balanced_digits(tick, k))) for tick in range(1, horizon + 1)]
            assert max(sizes) == largest_balanced_digits(horizon, k)
            price = 2 * levels**2 if pure else levels
            largest.append(price * max(sizes))
            typical.append(price * sum(sizes) / horizon)
        found = subtraction(horizon, pure=pure)
        assert found.max_std**2 == pytest.approx(min(largest), rel=1e-9)
        assert found.rms_std**2 == pytest.approx(min(typical), rel=1e-9)


def test_refinement_takes_the_best_weights_of_two_children() -> None:
    """V_h = 1 / (1 + 1 / (2 V)): the node and the sum of its children, weighted by their inverse variances."""
    variance = Fraction(1)
    total = Fraction(1)
    for _ in range(7):
        variance = 1 / (1 + 1 / (2 * variance))
        total += variance
    assert refined_binary(255, pure=False).max_std ** 2 == pytest.approx(float(8 * total), rel=1e-12)


def test_the_square_root_squares_to_running_sums() -> None:
    found = square_root(3, pure=False)
    root = np.array([[1, 0, 0], [0.5, 1, 0], [0.375, 0.5, 1]])
    assert (root @ root == np.tril(np.ones((3, 3)))).all()
    assert found.max_std == pytest.approx((root**2).sum(axis=1).max())


def test_the_normalised_square_root_by_matrices() -> None:
    size = 20
    column = [math.comb(2 * k, k) / 4**k for k in range(size)]
    strategy = np.array([[column[i - j] if i >= j else 0.0 for j in range(size)] for i in range(size)])
    strategy /= np.sqrt((strategy**2).sum(axis=0))
    profile = ((np.tril(np.ones((size, size))) @ np.linalg.inv(strategy)) ** 2).sum(axis=1)
    found = normalised_square_root(size)
    assert [found.max_std**2, found.rms_std**2] == pytest.approx([profile.max(), profile.mean()], rel=1e-9)


@pytest.mark.parametrize("buffers", [4, 6])
@pytest.mark.parametrize("horizon", [5, 100, 700, 3000])
def test_a_blt_is_a_factorisation_and_close_to_the_square_root(buffers: int, horizon: int) -> None:
    gaps = np.linspace(-1.0, 0.5, 2 * buffers)
    column, row = blt_coefficients(gaps, horizon)
    assert np.convolve(column, row)[:horizon] == pytest.approx(np.ones(horizon), rel=1e-6)
    assert 1 <= blt(horizon, buffers).max_std / square_root(horizon, pure=False).max_std * (1 + 1e-4) < 1.003


def test_stored_blt_parameters_are_a_minimum() -> None:
    """Moving any one parameter a little does not help by more than their four digits can say."""
    for buffers, stored in LOG_GAPS.items():
        gaps = np.array(stored[1])
        best = blt(4096, buffers).max_std
        for place in range(2 * buffers):
            for move in (-0.05, 0.05):
                moved = gaps.copy()
                moved[place] += move
                column, row = blt_coefficients(moved, 4096)
                assert math.sqrt((column**2).sum() * (row**2).sum()) > best * (1 - 1e-7)


def test_smooth_binary_has_more_leaves_than_ticks() -> None:
    for horizon in (1, 2, 5, 6, 19, 20, 251, 252, 253):
        height = int(smooth_binary(horizon, pure=False).detail.split()[1])
        assert math.comb(height, height // 2) > horizon
        assert height == 2 or math.comb(height - 2, height // 2 - 1) <= horizon


def test_horizons_must_be_whole_and_positive() -> None:
    for make in (optimum, trace_bound, lambda horizon: list(references(horizon, pure=True))):
        with pytest.raises(ParameterError, match="horizon must be a whole number of at least 1, got 0"):
            make(0)


def test_references_differ_by_name() -> None:
    for pure in (False, True):
        found = list(references(300, pure=pure))
        assert len({each.name for each in found}) == len(found)


def test_square_root_noise_has_the_deviations_of_card_2_1() -> None:
    """tau q_T, at rho = 1 / (2 tau^2) with tau = 1."""
    expected = {24: 2.07, 100: 2.53, 1000: 3.27, 10_000: 4.00}
    found = [square_root(horizon, pure=False).max_std for horizon in expected]
    assert found == pytest.approx(list(expected.values()), abs=5.1e-3)
