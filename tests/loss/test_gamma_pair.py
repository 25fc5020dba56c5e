"""The pair behind race monitors, against integrals, the tables of the theory and its own inequalities."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from pianissimo.errors import ParameterError
from pianissimo.loss.race_clock import hockey_stick, hockey_sticks, least_scale, renyi

TABLE = {
    (0.5, 1e-6): (20.13, 27.88, 43.64, 75.62),
    (1, 1e-6): (10.92, 14.96, 23.20, 39.95),
    (2, 1e-6): (6.00, 8.11, 12.45, 21.28),
    (1, 1e-9): (17.37, 22.37, 32.87, 54.49),
}


@pytest.mark.parametrize(("budget", "scales"), TABLE.items())
def test_scales_are_those_of_the_table(budget: tuple[float, float], scales: tuple[float, ...]) -> None:
    for charges, scale in zip((1, 4, 16, 64), scales, strict=True):
        found = least_scale(*budget, charges)
        assert float(found) == pytest.approx(scale, rel=1e-3)
        assert hockey_stick(budget[0], charges, found) <= budget[1]


@pytest.mark.parametrize(("charges", "scale"), [(1, 11.20), (4, 15.98), (16, 26.54)])
def test_replacement_needs_the_scales_of_the_table(charges: int, scale: float) -> None:
    found = least_scale(1, 1e-6, charges, replacement=True)
    assert float(found) == pytest.approx(scale, rel=1e-3)
    assert hockey_stick(1, charges, found, replacement=True) <= 1e-6


@pytest.mark.parametrize(("charges", "scale"), [(1, 11.56), (4, 15.71), (16, 24.20)])
def test_half_a_delta_needs_the_scales_of_the_table(charges: int, scale: float) -> None:
    assert float(least_scale(1, 5e-7, charges)) == pytest.approx(scale, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 8), st.integers(1, 80), st.floats(0.3, 60))
def test_both_directions_are_the_differences_of_gamma_tails(epsilon: float, charges: int, scale: float) -> None:
    ratio = math.exp(1 / scale)
    slow, fast = hockey_sticks(epsilon, charges, scale)
    place = (epsilon + charges / scale) / (ratio - 1)
    tails = special.gammaincc(charges, place), math.exp(epsilon) * special.gammaincc(charges, ratio * place)
    assert slow == pytest.approx(tails[0] - tails[1], abs=1e-11 * tails[0] + 1e-280)
    place = (charges / scale - epsilon) / (ratio - 1)
    if place <= 0:
        assert fast == 0
    else:
        heads = special.gammainc(charges, ratio * place), math.exp(epsilon) * special.gammainc(charges, place)
        assert fast == pytest.approx(heads[0] - heads[1], abs=1e-11 * heads[0] + 1e-280)


def test_one_clock_has_the_closed_form() -> None:
    ratio = math.exp(1 / 7)
    expected = (1 - 1 / ratio) * math.exp(-(0.8 + 1 / 7) / (ratio - 1))
    assert hockey_stick(0.8, 1, 7) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("epsilon", "charges", "scale"), [(1.0, 3, 4.0), (0.3, 1, 2.0), (2.0, 8, 5.0), (0.0, 2, 3.0)])
def test_replacement_is_the_integral_over_the_other_clock(epsilon: float, charges: int, scale: float) -> None:
    ratio = math.exp(1 / scale)
    place = epsilon / (ratio - 1)
    one = integrate.quad(
        lambda y: stats.gamma.sf(place + y, charges) * stats.gamma.pdf(y, charges, scale=1 / ratio), 0, 300, limit=500
    )[0]
    other = integrate.quad(
        lambda y: stats.gamma.sf(place + y, charges, scale=1 / ratio) * stats.gamma.pdf(y, charges), 0, 300, limit=500
    )[0]
    expected = one - math.exp(epsilon) * other
    assert hockey_stick(epsilon, charges, scale, replacement=True) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 5), st.integers(1, 40), st.floats(0.4, 40), st.booleans())
def test_delta_falls_with_epsilon_and_scale_and_rises_with_charges(
    epsilon: float, charges: int, scale: float, replacement: bool
) -> None:
    here = hockey_stick(epsilon, charges, scale, replacement=replacement)
    assert hockey_stick(1.1 * epsilon, charges, scale, replacement=replacement) <= here * (1 + 1e-12)
    assert hockey_stick(epsilon, charges, 1.1 * scale, replacement=replacement) <= here * (1 + 1e-12)
    assert hockey_stick(epsilon, charges + 1, scale, replacement=replacement) >= here * (1 - 1e-12)
    assert hockey_stick(epsilon, charges, scale, replacement=True) >= hockey_stick(epsilon, charges, scale) * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 4), st.floats(1e-9, 1e-2), st.integers(1, 30), st.booleans())
def test_the_least_scale_fits_and_the_next_smaller_does_not(
    epsilon: float, delta: float, charges: int, replacement: bool
) -> None:
    found = least_scale(epsilon, delta, charges, replacement=replacement)
    assert found.denominator <= 4096
    assert hockey_stick(epsilon, charges, found, replacement=replacement) <= delta
    # The slack on the ratio of the clocks is a millionth; a smaller scale than that allows does not fit.
    smaller = found / (1 + found / 10**6) - Fraction(1, 4096) * 2
    assert hockey_stick(epsilon, charges, smaller, replacement=replacement) > delta * (1 - 1e-8)


@pytest.mark.parametrize(("charges", "scale", "order"), [(1, 10.0, 2.0), (3, 4.0, 3.5), (5, 20.0, 15.0)])
def test_renyi_divergences_are_the_integrals(charges: int, scale: float, order: float) -> None:
    ratio = math.exp(1 / scale)
    pair = stats.gamma(charges), stats.gamma(charges, scale=1 / ratio)
    found = renyi(order, charges, scale)
    for (one, other), divergence in zip((pair, pair[::-1]), found, strict=True):

        def density(x: float, one: object = one, other: object = other) -> float:
            return math.exp(order * one.logpdf(x) + (1 - order) * other.logpdf(x))  # type: ignore[attr-defined]

        whole = integrate.quad(density, 0, 60, limit=500)[0] + integrate.quad(density, 60, 3000, limit=500)[0]
        assert divergence == pytest.approx(math.log(whole) / (order - 1), rel=1e-5)
    assert renyi(order, charges, scale, replacement=True) == pytest.approx((sum(found),) * 2)


def test_the_divergence_is_infinite_past_the_pole() -> None:
    ratio = math.exp(1 / 10)
    pole = ratio / (ratio - 1)
    assert math.isfinite(renyi(pole - 0.01, 1, 10)[0])
    assert renyi(pole + 0.01, 1, 10)[0] == math.inf
    assert math.isfinite(renyi(pole + 0.01, 1, 10)[1])


def test_no_clocks_lose_nothing() -> None:
    assert hockey_stick(0.0, 0, 3) == 0
    assert renyi(2, 0, 3) == (0, 0)


def test_large_numbers_of_clocks_are_near_gaussian() -> None:
    charges, scale = 4000, 2000.0
    mu = math.sqrt(charges) / scale
    epsilon = 0.05
    gaussian = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert hockey_stick(epsilon, charges, scale) == pytest.approx(gaussian, rel=0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: hockey_stick(-1, 1, 1),
        lambda: hockey_stick(1, -1, 1),
        lambda: hockey_stick(1, 1, 0),
        lambda: hockey_stick(math.nan, 1, 1),
        lambda: least_scale(1, 0, 1),
        lambda: least_scale(0, 1e-6, 1),
        lambda: least_scale(1, 1e-6, 0),
        lambda: renyi(1, 1, 1),
        lambda: renyi(math.nan, 1, 1),
        lambda: least_scale(1e-9, 1e-9, 1000),
    ],
)
def test_what_cannot_be_is_refused(call: object) -> None:
    with pytest.raises(ParameterError):
        call()  # type: ignore[operator]


def test_values_do_not_depend_on_how_sums_are_cut() -> None:
    points = np.arange(1, 300)
    sticks = [hockey_stick(1.0, int(k), 30.0) for k in points]
    assert np.all(np.diff(sticks) > 0)
