"""Every rounding of a bound goes away from the promise: coarse ones show which way."""

import json
from fractions import Fraction

import pytest
from tests.pin_roundings import BOUNDS, PINNED, coarse, digest

from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.loss.losses import float_down, float_up


@pytest.mark.parametrize("name", BOUNDS)
def test_a_bound_is_rounded_the_way_it_was(name: str) -> None:
    """A line that changes in roundings.json is a bound that is rounded another way, or another bound."""
    assert json.loads(PINNED.read_text())[name] == digest(BOUNDS[name])


def test_every_pinned_rounding_is_asked_for() -> None:
    assert set(json.loads(PINNED.read_text())) == set(BOUNDS)


def test_roundings_enclose_a_number_and_coarse_ones_cost_something() -> None:
    third = Fraction(1, 3)
    assert float_down(third) < third < float_up(third)
    assert float_down(-third) < -third < float_up(-third)
    assert float_down(Fraction(1, 2)) == 0.5 == float_up(Fraction(1, 2))
    before = epsilon_from_rho(third, Fraction(1, 10**6))
    with coarse():
        assert epsilon_from_rho(third, Fraction(1, 10**6)) > before
    assert epsilon_from_rho(third, Fraction(1, 10**6)) == before
