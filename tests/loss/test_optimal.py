import itertools
import math
from collections import Counter
from fractions import Fraction

import mpmath
import pytest
from dp_accounting.pld import common, privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.loss.deltas import optimal_delta

from pianissimo.errors import ParameterError
from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.loss.exact_composition import advanced_epsilon, optimal_epsilon

HUNDREDTHS = st.integers(1, 300).map(lambda parts: Fraction(parts, 100))
EPSILONS = st.lists(HUNDREDTHS, min_size=1, max_size=5)


def precise_delta(epsilons: list[Fraction], epsilon: float) -> mpmath.mpf:
    """The hockey-stick divergence of independent randomized responses, by enumeration in 40 digits."""
    with mpmath.workdps(40):
        exact = [mpmath.mpf(one.numerator) / one.denominator for one in epsilons]
        total = mpmath.mpf(0)
        for signs in itertools.product((1, -1), repeat=len(exact)):
            loss = sum(sign * one for sign, one in zip(signs, exact, strict=True))
            chance = mpmath.fprod(1 / (1 + mpmath.exp(-s * one)) for s, one in zip(signs, exact, strict=True))
            total += max(mpmath.mpf(0), chance * (1 - mpmath.exp(epsilon - loss)))
        return total


def printed_delta(k: int, i: int, epsilon: float) -> mpmath.mpf:
    """Lemma A.1 of Durfee and Rogers 2019, the bound at (k - 2i) epsilon."""
    with mpmath.workdps(40):
        e = mpmath.mpf(epsilon)
        terms = [mpmath.binomial(k, j) * (mpmath.exp((k - j) * e) - mpmath.exp((k - 2 * i + j) * e)) for j in range(i)]
        return mpmath.fsum(terms) / (1 + mpmath.exp(e)) ** k


@settings(max_examples=50, deadline=None)
@given(EPSILONS, st.floats(0, 0.99))
def test_it_is_the_exact_loss_of_randomized_responses(epsilons: list[Fraction], share: float) -> None:
    epsilon = share * float(sum(epsilons))
    exact, found = precise_delta(epsilons, epsilon), optimal_delta(epsilons, epsilon)
    assert exact <= found
    assert found <= float(exact) * (1 + 1e-8) + 1e-12


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.01, 2), min_size=2, max_size=6), st.floats(0, 0.9))
def test_without_a_common_unit_it_is_rounded_up_and_hardly_more(sizes: list[float], share: float) -> None:
    epsilons = [Fraction(size) for size in sizes]
    epsilon = share * sum(sizes)
    exact, found = precise_delta(epsilons, epsilon), optimal_delta(epsilons, epsilon)
    assert exact <= found <= float(exact) + 1e-3


def test_at_the_printed_points_it_is_the_printed_formula() -> None:
    for k, i in ((10, 3), (100, 26), (100, 40), (500, 200)):
        found = optimal_delta([Fraction(1, 10)] * k, Fraction(k - 2 * i, 10))
        assert found == pytest.approx(float(printed_delta(k, i, 0.1)), rel=1e-6)
        assert found >= printed_delta(k, i, 0.1)
    assert printed_delta(100, 26, 0.1) <= 1e-6 < printed_delta(100, 27, 0.1)


@settings(max_examples=50, deadline=None)
@given(EPSILONS, st.floats(-12, -0.5))
def test_the_two_directions_agree(epsilons: list[Fraction], power: float) -> None:
    delta = 10**power
    found = optimal_epsilon(epsilons, delta)
    assert precise_delta(epsilons, found) <= delta
    if found > 1e-3:
        assert precise_delta(epsilons, found - 1e-6) > delta * (1 - 1e-6)


@settings(max_examples=50, deadline=None)
@given(EPSILONS, HUNDREDTHS, st.floats(-9, -1))
def test_one_more_loss_or_less_delta_never_lowers_it(epsilons: list[Fraction], more: Fraction, power: float) -> None:
    delta = 10**power
    assert optimal_epsilon(epsilons, delta) <= optimal_epsilon([*epsilons, more], delta) * (1 + 1e-9) + 1e-12
    assert optimal_epsilon(epsilons, delta) <= optimal_epsilon(epsilons, delta / 2) + 1e-12


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("count", [10, 100, 1000])
def test_the_other_bounds_for_pure_losses_are_never_below_it(count: int, delta: float) -> None:
    epsilons = [Fraction(1, 20)] * count
    best = optimal_epsilon(epsilons, delta)
    assert best <= advanced_epsilon(Counter(epsilons), delta) * (1 + 1e-9)
    assert best <= epsilon_from_rho(Fraction(count, 800), delta)
    assert best <= count / 20


@pytest.mark.parametrize("epsilons", [[Fraction(1, 10)] * 100, [Fraction(1, 10)] * 20 + [Fraction(1, 2)] * 5])
def test_it_agrees_with_dp_accounting(epsilons: list[Fraction]) -> None:
    whole = privacy_loss_distribution.identity(value_discretization_interval=1e-4)
    for one in epsilons:
        parameters = common.DifferentialPrivacyParameters(float(one), 0)
        whole = whole.compose(
            privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=1e-4)
        )
    # Theirs is rounded up to a grid of 1e-4 a loss.
    theirs = whole.get_epsilon_for_delta(1e-6)
    assert theirs - 1e-2 < optimal_epsilon(epsilons, 1e-6) < theirs + 1e-6


def test_large_losses_and_many_losses_do_not_overflow() -> None:
    assert optimal_epsilon([Fraction(10**4)] * 3, 1e-6) == pytest.approx(30000)
    assert optimal_epsilon([Fraction(10**4), Fraction(1)], 1e-6) == pytest.approx(10001, rel=1e-3)
    assert 0 < optimal_epsilon([Fraction(1, 1000)] * 100_000, 1e-6) < 2
    assert optimal_epsilon([], 1e-6) == optimal_delta([], 0) == 0
    assert optimal_epsilon([Fraction(0)] * 3, 1e-6) == 0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ParameterError, match="every epsilon must be an exact Fraction, got float"):
        optimal_epsilon([0.1], 1e-6)  # type: ignore[list-item]
    with pytest.raises(ParameterError, match=r"every epsilon must not be negative, got -1\.0"):
        advanced_epsilon({Fraction(-1): 1}, 1e-6)
    with pytest.raises(ParameterError, match="delta must be above 0 and below 1, got 0"):
        optimal_epsilon([Fraction(1)], 0)
    with pytest.raises(ParameterError, match="epsilon must not be negative, got nan"):
        optimal_delta([Fraction(1)], math.nan)
