"""Confidence bounds against scipy, the bounds on mu and epsilon, and what whole-number noise adds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from pianissimo.audit.attack import (
    approximate_epsilon,
    approximate_mu,
    epsilon_bound,
    expected_mu,
    incomplete_beta,
    lattice_excess,
    lower_rate,
    mu_bound,
    upper_rate,
)
from pianissimo.errors import ParameterError

ALPHA = 5e-6


@given(st.integers(0, 50_000), st.integers(1, 50_000), st.sampled_from([0.5, 0.05, 1e-5, 1e-7]))
def test_rates_are_those_of_scipy(successes: int, trials: int, alpha: float) -> None:
    successes = min(successes, trials)
    upper = stats.beta.isf(alpha, successes + 1, trials - successes) if successes < trials else 1.0
    lower = stats.beta.ppf(alpha, successes, trials - successes + 1) if successes else 0.0
    assert upper_rate(successes, trials, alpha) == pytest.approx(upper, rel=1e-7)
    assert 1 - lower_rate(successes, trials, alpha) == pytest.approx(1 - lower, rel=1e-7)


@given(st.integers(0, 200), st.integers(1, 200))
def test_a_bound_never_fails_more_often_than_it_says(successes: int, trials: int) -> None:
    """At the bound itself, so few successes have a chance of at most alpha: the defining property, exactly."""
    successes = min(successes, trials)
    bound = upper_rate(successes, trials, ALPHA)
    assert bound == 1 or stats.binom.cdf(successes, trials, bound) <= ALPHA * (1 + 1e-6)


@given(st.floats(0, 1), st.floats(0.5, 50_000), st.floats(0.5, 50_000))
def test_the_incomplete_beta_function_is_that_of_scipy(x: float, a: float, b: float) -> None:
    assert incomplete_beta(x, a, b) == pytest.approx(special.betainc(a, b, x), rel=1e-8, abs=1e-12)


def test_more_errors_and_more_confidence_show_less() -> None:
    assert mu_bound(100, 100, 10_000, ALPHA) > mu_bound(200, 100, 10_000, ALPHA)
    assert mu_bound(100, 100, 10_000, 1e-3) > mu_bound(100, 100, 10_000, 1e-9)
    assert mu_bound(5_000, 5_000, 10_000, ALPHA) == 0
    assert epsilon_bound(5_000, 100, 10_000, ALPHA) > epsilon_bound(5_000, 200, 10_000, ALPHA)
    assert epsilon_bound(5_000, 5_000, 10_000, ALPHA) == 0


def test_a_perfect_attack_shows_a_finite_bound() -> None:
    """0 errors of 50,000 are at most 2.5e-4 each."""
    assert 6.9 < mu_bound(0, 0, 50_000, 1e-5) < 7.1
    assert 8.2 < epsilon_bound(50_000, 0, 50_000, 1e-5) < 8.4


@pytest.mark.parametrize(("trials", "share"), [(10_000, 0.88), (50_000, 0.95), (200_000, 0.98)])
def test_the_expected_bounds_are_those_of_the_design(trials: int, share: float) -> None:
    """reliability.md, section 11: 0.88, 0.95, 0.98 of the claim at 20k, 100k, 400k runs a side, half of them tested."""
    assert expected_mu(1.0, trials, 1e-5) == pytest.approx(share, abs=0.01)


def test_approximations_are_close_to_the_bounds() -> None:
    rates = np.array([0.01, 0.1, 0.3])
    counts = [round(50_000 * rate) for rate in rates]
    exact = [mu_bound(count, count, 50_000, ALPHA) for count in counts]
    assert approximate_mu(rates, rates, 50_000, ALPHA) == pytest.approx(exact, rel=0.01)
    exact = [epsilon_bound(25_000, count, 50_000, ALPHA) for count in counts]
    assert approximate_epsilon(np.full(3, 0.5), rates, 50_000, ALPHA) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("variance", [0.3, 0.75, 2.0, 15.9, 16.1, 60.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_no_test_of_whole_number_noise_shows_more_than_the_excess(variance: float, shift: int) -> None:
    values = np.arange(-400, 401)
    chances = np.exp(-(values**2) / (2 * variance))
    chances /= chances.sum()
    positive = chances[::-1].cumsum()[::-1][shift:]
    negative = np.concatenate([[0.0], chances.cumsum()[: -shift - 1]])
    measured = (positive > 1e-9) & (negative > 1e-9)
    mu = stats.norm.isf(positive[measured]) - stats.norm.ppf(negative[measured])
    assert mu.max() <= shift / math.sqrt(variance) * lattice_excess(variance) * (1 + 1e-9)
    if shift == 1:
        assert mu.max() >= shift / math.sqrt(variance) * lattice_excess(variance) * 0.998


@pytest.mark.parametrize("counts", [(-1, 10), (11, 10), (0, 0)])
def test_impossible_counts_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(ParameterError, match="must be"):
        upper_rate(*counts, 0.05)
