"""Losses that lose nothing change no price."""

from fractions import Fraction

import pytest

from pianissimo.loss.exact_composition import optimal_epsilon


@pytest.mark.parametrize("some", [[Fraction(1, 2)] * 3, [Fraction(1, 2), Fraction(1, 5)]])
def test_what_loses_nothing_costs_nothing_beside_others(some: list[Fraction]) -> None:
    delta = Fraction(1, 1000)
    assert optimal_epsilon([*some, Fraction(0), Fraction(0)], delta) == optimal_epsilon(some, delta)
