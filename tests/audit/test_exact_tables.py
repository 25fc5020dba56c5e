"""Audit A0: the sampler's tables against the exact distributions, in rationals."""

from fractions import Fraction

import mpmath
import pytest
from tests.audit.sampler_tables import (
    drawn_probability,
    ideal_probability,
    largest_gap,
    sampler_tables,
    total_variation,
)

from pianissimo.noise.keyed import DRAW_DISTANCE

ONE_TABLE = [
    ("gaussian", Fraction(3, 10) ** 2),
    ("gaussian", Fraction(1, 100)),
    ("gaussian", Fraction(1)),
    ("gaussian", Fraction(459, 64)),
    ("gaussian", Fraction(400)),
    ("gaussian", Fraction(200**2)),
    ("gaussian", Fraction(2**16)),
    ("laplace", Fraction(1, 10)),
    ("laplace", Fraction(2)),
    ("laplace", Fraction(20)),
    ("laplace", Fraction(92)),
]
SEVERAL_TABLES = [
    ("gaussian", Fraction(2**16 + 1, 1)),
    ("gaussian", Fraction(300**2)),
    ("gaussian", Fraction(10**6) + Fraction(1, 64)),
    ("gaussian", Fraction(10**10)),
    ("gaussian", Fraction(10**14)),
    ("gaussian", Fraction(16 * 10**18)),
    ("laplace", Fraction(93)),
    ("laplace", Fraction(1000)),
    ("laplace", Fraction(10**5)),
    ("laplace", Fraction(10**7)),
    ("laplace", Fraction(4 * 10**9)),
]


@pytest.mark.parametrize(("name", "parameter"), ONE_TABLE)
def test_a_table_is_within_the_stated_distance(name: str, parameter: Fraction) -> None:
    assert total_variation(name, parameter) <= DRAW_DISTANCE


@pytest.mark.parametrize(("name", "parameter"), SEVERAL_TABLES)
def test_sums_of_tables_have_the_exact_chances(name: str, parameter: Fraction) -> None:
    spread = int(float(parameter) ** (0.5 if name == "gaussian" else 1.0))
    values = [0, 1, -1, 2, 17, spread // 3, spread, -spread - 1, 2 * spread + 1]
    assert largest_gap(name, parameter, values) <= 2.0**-94


def test_a_sum_of_two_tables_is_within_the_stated_distance_as_a_whole() -> None:
    assert total_variation("gaussian", Fraction(257**2)) <= DRAW_DISTANCE
    assert total_variation("laplace", Fraction(93)) <= DRAW_DISTANCE


@pytest.mark.parametrize(("name", "parameter"), [("gaussian", Fraction(9)), ("laplace", Fraction(3))])
def test_a_scale_off_by_one_percent_would_be_caught(name: str, parameter: Fraction) -> None:
    """The twin that must fail: tables of a scale 1 % too small, judged against the promised one."""
    wrong = parameter * Fraction(99, 100) ** (2 if name == "gaussian" else 1)
    gap = sum(abs(drawn_probability(name, wrong, x) - ideal_probability(name, parameter, x)) for x in range(-50, 51))
    assert gap / 2 > 10**20 * DRAW_DISTANCE


def test_a_tail_cut_at_six_sigma_would_be_caught() -> None:
    ideal = [ideal_probability("gaussian", Fraction(100), x) for x in range(61, 300)]
    assert 2 * sum(ideal) > 10**20 * DRAW_DISTANCE
    assert drawn_probability("gaussian", Fraction(100), 61) > 0


def test_the_ideal_chances_agree_with_another_library() -> None:
    mpmath.mp.prec = 400
    total = mpmath.jtheta(3, 0, mpmath.exp(mpmath.mpf(-1) / 14))
    for value in (0, 1, 5, 30):
        expected = mpmath.exp(-(mpmath.mpf(value) ** 2) / 14) / total
        ours = ideal_probability("gaussian", Fraction(7), value)
        assert abs(mpmath.mpf(ours.numerator) / ours.denominator / expected - 1) < mpmath.mpf(2) ** -300


def test_tables_are_symmetric() -> None:
    for name, parameter in ONE_TABLE:
        (_, masses), *_ = sampler_tables(name, parameter)[0]
        chances = dict(masses)
        assert all(chances[value] == chances[-value] for value in chances)
