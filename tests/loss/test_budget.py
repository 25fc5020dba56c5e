import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pianissimo.budget import Budget
from pianissimo.errors import ParameterError
from pianissimo.loss.composition import price
from pianissimo.loss.conversion import rho_from_budget
from pianissimo.loss.losses import Booked

EPSILONS = st.floats(-3, 1.3).map(lambda power: float(10**power))
DELTAS = st.floats(-15, -1).map(lambda power: float(10**power))
SHARES = st.fractions(0, Fraction(9, 10), max_denominator=1000)


def test_it_reads_as_it_is_written() -> None:
    assert repr(Budget(1.0, 1e-6)) == "Budget(epsilon=1.0, delta=1e-06)"
    assert Budget(1, 1e-6) == Budget(epsilon=1.0, delta=1e-6)


def test_it_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Budget(1.0, 1e-6).epsilon = 2.0  # type: ignore[misc]


def test_without_bad_mass_and_distance_it_is_the_plain_conversion() -> None:
    assert Budget(1.0, 1e-6).rho() == rho_from_budget(1.0, 1e-6)


def test_bad_mass_is_taken_from_delta() -> None:
    assert Budget(1.0, 0.75).rho(bad=Fraction(1, 4)) == rho_from_budget(1.0, 0.5)


def test_distance_is_taken_with_its_factor() -> None:
    distance = Fraction(1, 10**8)
    less_left = Fraction(1, 10**6) - distance * (1 + Fraction(math.e) + Fraction(1, 10**6))
    more_left = Fraction(1, 10**6) - distance * (1 + Fraction(math.e) - Fraction(1, 10**6))
    budget = Budget(1, Fraction(1, 10**6))
    assert rho_from_budget(1, less_left) < budget.rho(distance=distance) < rho_from_budget(1, more_left)


@settings(max_examples=200)
@given(EPSILONS, DELTAS, SHARES, SHARES)
def test_what_it_allows_is_priced_within_it_and_hardly_below(
    epsilon: float, delta: float, bad_share: Fraction, distance_share: Fraction
) -> None:
    bad = bad_share * Fraction(delta)
    distance = distance_share * (Fraction(delta) - bad) / (1 + Fraction(math.exp(epsilon))) / 2
    rho = Budget(epsilon, delta).rho(bad, distance)
    assert rho > 0
    assert price([Booked(rho, bad, distance)], delta).epsilon <= epsilon
    if distance == 0:
        assert price([Booked(rho * (1 + Fraction(1, 10**9)), bad)], delta).epsilon > epsilon


@given(EPSILONS, DELTAS, SHARES, SHARES)
def test_more_bad_mass_leaves_less_rho(epsilon: float, delta: float, first: Fraction, second: Fraction) -> None:
    less, more = sorted((first * Fraction(delta), second * Fraction(delta)))
    budget = Budget(epsilon, delta)
    assert budget.rho(bad=more) <= budget.rho(bad=less) * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Budget(0, 1e-6), "epsilon must be finite and positive, got 0"),
        (lambda: Budget(math.nan, 1e-6), "epsilon must be finite and positive, got nan"),
        (lambda: Budget(math.inf, 1e-6), "epsilon must be finite and positive, got inf"),
        (lambda: Budget("1", 1e-6), "epsilon must be a number, got '1'"),  # type: ignore[arg-type]
        (lambda: Budget(1.0, False), "delta must be a number, got False"),
        (lambda: Budget(1.0, 1), "delta must be above 0 and below 1, got 1"),
        (lambda: Budget(1.0, -1e-6), "delta must be above 0 and below 1, got -1e-06"),
        (lambda: Budget(1.0, math.nan), "delta must be above 0 and below 1, got nan"),
        (
            lambda: Budget(1.0, 1e-6).rho(bad=Fraction(1, 1000)),
            "delta must be above the bad mass 0.001 of the losses, got 1e-06; "
            "allow a larger delta, or make the losses take less",
        ),
        (
            lambda: Budget(1.0, 1e-6).rho(distance=Fraction(1, 10**6)),
            "delta must be above the bad mass 0 of the losses plus (1 + e^epsilon) times their noise "
            "distance 1e-06, got 1e-06; allow a larger delta, or make the losses take less",
        ),
        (lambda: Budget(1.0, 1e-6).rho(bad=Fraction(-1)), "bad must not be negative, got -1.0"),
        (
            lambda: Budget(1.0, 1e-6).rho(distance=0.1),  # type: ignore[arg-type]
            "distance must be an exact Fraction, got float",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError) as refusal:
        call()
    assert str(refusal.value) == message


def test_a_huge_epsilon_leaves_no_room_for_any_distance() -> None:
    assert Budget(Fraction(10**400), 0.5).rho() > 10**99
    with pytest.raises(ParameterError, match="epsilon must be below about 690, got 800"):
        Budget(800, 0.5).rho(distance=Fraction(1, 10**300))


def test_a_budget_without_delta_is_pure() -> None:
    assert Budget(1.0, 0).pure
    assert not Budget(1.0, 1e-9).pure
