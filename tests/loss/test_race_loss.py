"""Prices of race monitors: exact where they are alone, sound beside others."""

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pianissimo.errors import ParameterError
from pianissimo.loss.composition import one_entry, price
from pianissimo.loss.conversion import epsilon_from_curve, epsilon_from_rho
from pianissimo.loss.losses import Booked, BoundedRange, Loss, Mixed, Pure, Race
from pianissimo.loss.race_clock import epsilon_beside, epsilon_of_races, hockey_stick, least_scale

B = Fraction(15)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.fractions(1, 60, max_denominator=16), st.booleans(), st.sampled_from([1e-9, 1e-6, 1e-3]))
def test_alone_a_race_costs_its_hockey_stick(charges: int, scale: Fraction, replacement: bool, delta: float) -> None:
    epsilon = epsilon_of_races([Race(charges, scale, replacement=replacement)], delta)
    assert hockey_stick(epsilon, charges, scale, replacement=replacement) <= delta
    if epsilon > 0:
        below = epsilon * (1 - 1e-6)
        assert hockey_stick(below, charges, scale, replacement=replacement) > delta * (1 - 1e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.fractions(2, 60, max_denominator=16), st.booleans())
def test_integer_orders_are_never_below_the_exact_price(charges: int, scale: Fraction, replacement: bool) -> None:
    race = Race(charges, scale, replacement=replacement)
    by_orders = epsilon_beside(Fraction(0), [race], 1e-6)
    assert by_orders >= epsilon_of_races([race], 1e-6)


def test_integer_orders_are_not_far_above_it() -> None:
    race = Race(16, Fraction(232, 10))
    assert epsilon_beside(Fraction(0), [race], 1e-6) < 1.2 * epsilon_of_races([race], 1e-6)


def test_races_of_one_scale_add_their_charges_exactly() -> None:
    together = one_entry([Race(3, B), Race(5, B, bad=Fraction(1, 10), distance=Fraction(1, 10**9)), Race(0, B)])
    assert together == Booked(Fraction(0), bad=Fraction(1, 10), distance=Fraction(1, 10**9))
    assert price([Race(3, B), Race(5, B)], 1e-6) == price([Race(8, B)], 1e-6)
    assert price([Race(8, B)], 1e-6).method == "race"


def test_races_of_two_scales_count_at_the_smaller() -> None:
    mixed = price([Race(3, B), Race(5, 2 * B)], 1e-6)
    assert price([Race(8, 2 * B)], 1e-6).epsilon < mixed.epsilon <= price([Race(8, B)], 1e-6).epsilon


def test_a_calibrated_race_is_priced_at_what_it_was_calibrated_for() -> None:
    scale = least_scale(1, 1e-6, 4)
    found = price([Race(4, scale)], 1e-6)
    assert 0.999 < found.epsilon <= 1


def test_pure_losses_are_added_to_the_exact_price() -> None:
    alone, both = price([Race(4, B)], 1e-6), price([Race(4, B), Pure(Fraction(1, 2))], 1e-6)
    assert both.method == "pure plus race"
    assert both.epsilon == pytest.approx(alone.epsilon + 0.5, rel=1e-6)


def test_selection_steps_are_added_too() -> None:
    both = price([Race(4, B), BoundedRange(steps=2, width=Fraction(1, 10))], 1e-6)
    assert both.epsilon <= price([Race(4, B)], 1e-6).epsilon + 0.2 + 1e-6


def test_beside_concentrated_losses_the_orders_add_up() -> None:
    rho = Fraction(1, 100)
    both = price([Race(4, B), Booked(rho)], 1e-6)
    assert both.method == "integer orders"
    apart = [price([Race(4, B)], 1e-6).epsilon, price([Booked(rho)], 1e-6).epsilon]
    assert max(apart) < both.epsilon < sum(apart)


def test_a_pure_part_beside_both_is_added_plainly_where_that_is_less() -> None:
    both = price([Race(4, B), Booked(Fraction(1, 100)), Mixed(pure=Fraction(3), rho=Fraction(1, 1000))], 1e-6)
    assert both.method == "pure plus integer orders"


def test_bad_mass_and_distance_are_taken_off_delta() -> None:
    race = Race(4, B, bad=Fraction(1, 2 * 10**6), distance=Fraction(1, 10**8))
    priced = price([race], 1e-6)
    left = Fraction(1, 2 * 10**6) - (1 + Fraction(math.exp(priced.epsilon))) * Fraction(1, 10**8)
    assert priced.epsilon == pytest.approx(epsilon_of_races([race], left), rel=1e-6)
    with pytest.raises(ParameterError, match="bad mass"):
        price([race], 1e-7)


def test_a_race_needs_a_delta() -> None:
    with pytest.raises(ParameterError, match="delta must be above 0"):
        price([Race(1, B)], 0)
    with pytest.raises(ParameterError, match="none at high orders"):
        Race(1, B).as_booked()
    assert price([Race(0, B)], 0).epsilon == 0


def test_more_delta_costs_no_more_epsilon() -> None:
    sets: list[list[Loss]] = [
        [Race(4, B)],
        [Race(4, B), Booked(Fraction(1, 50))],
        [Race(2, B), Pure(Fraction(1, 3))],
    ]
    for losses in sets:
        prices = [price(losses, delta).epsilon for delta in (1e-9, 1e-6, 1e-3)]
        assert all(one >= other for one, other in pairwise(prices))


def test_a_line_is_converted_as_zcdp_is() -> None:
    for rho in (Fraction(1, 50), Fraction(1, 2), Fraction(3)):
        line = epsilon_from_curve(lambda order, rho=rho: float(rho) * order, 1e-6, 500)  # type: ignore[misc]
        assert line == pytest.approx(epsilon_from_rho(rho, 1e-6), rel=1e-12)


@pytest.mark.parametrize(
    "fields",
    [
        {"charges": -1, "scale": B},
        {"charges": 1, "scale": Fraction(0)},
        {"charges": 1, "scale": 15.0},
        {"charges": 1, "scale": B, "bad": Fraction(1)},
        {"charges": 1, "scale": B, "distance": Fraction(-1)},
    ],
)
def test_what_cannot_be_a_race_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        Race(**fields)  # type: ignore[arg-type]


def test_a_race_beside_others_costs_at_most_the_sum_of_both() -> None:
    race, rest = Race(4, Fraction(30)), Booked(Fraction(1, 1000))
    apart = price([race], 5e-7).epsilon + price([rest], 5e-7).epsilon
    assert price([race, rest], 1e-6).epsilon <= apart
    assert price([race, rest], 1e-6).epsilon >= max(price([race], 1e-6).epsilon, price([rest], 1e-6).epsilon)
