"""Bounds at their limits: margins are added against us, ties are within, and which bounds apply is decided rightly.

Margins are a part in a billion or less; here they are made coarse, so that one which is missing or goes the wrong way
shows.
"""

import math
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest

from pianissimo.errors import ParameterError
from pianissimo.loss import bounded_range, composition, exact_composition, race_clock
from pianissimo.loss.composition import price
from pianissimo.loss.conversion import added_delta, epsilon_from_curve, epsilon_from_rho
from pianissimo.loss.losses import Booked, BoundedRange, Loss, Mixed, Pure, Race, float_up

F = Fraction
DELTA = F(1, 10**6)


@pytest.mark.parametrize(("order", "scale"), [(3, 5.0), (2, 1.7), (6, 9.0)])
def test_the_roundings_of_a_divergence_are_added_by_the_size_of_its_terms(order: int, scale: float) -> None:
    rate = 1 / scale
    excess = math.expm1(rate)
    room = 1 - (order - 1) * excess
    gained = -math.log(room) / (order - 1)
    with patch.object(race_clock, "_ROUNDINGS", 0.125):
        slow, fast = race_clock.renyi(order, 1, scale)
    assert slow == pytest.approx(gained - rate + 0.125 * (rate + gained + 1 / (room * (order - 1))))
    plain = (order * rate - math.log1p(order * excess)) / (order - 1)
    assert fast == pytest.approx(plain + 0.125 * 2 * order * rate / (order - 1))


@pytest.mark.parametrize("replacement", [False, True])
def test_a_race_is_booked_with_margins_and_with_both_ways_where_data_are_replaced(replacement: bool) -> None:
    race = Race(charges=3, scale=F(5), replacement=replacement)
    with patch.object(race_clock, "_MARGIN", 0.25):
        found = race_clock.booked_race(race, DELTA)
    slow = race_clock._slow(3, 0.2, race_clock._end(3, 1e-6 * 0.75))
    fast = race_clock._fast(3, 0.2)
    assert float(found.rho) == pytest.approx(1.25 * (slow + fast if replacement else max(slow, fast)) + 0.0625)


def test_no_more_orders_are_looked_at_than_can_matter() -> None:
    with patch.object(np, "arange", side_effect=np.arange) as ranges:
        race_clock._slow(3, 0.2, 30.0)
        race_clock._fast(3, 0.2)
    assert ranges.call_count == 2


def test_a_scale_is_the_least_whose_chance_with_its_margin_is_within_delta() -> None:
    steps = 23_456
    rate = race_clock._GRID / steps + math.log1p(race_clock._RATIO_SLACK)
    sticks = race_clock._sticks(1.0, 3, rate, math.expm1(rate), replacement=False)
    for margin in (0.5, race_clock._MARGIN):
        with patch.object(race_clock, "_MARGIN", margin):
            assert race_clock.least_scale(1.0, max(sticks) * (1 + margin), 3) == F(steps, race_clock._GRID)


def test_a_race_has_no_more_charges_than_its_sums_are_exact_for() -> None:
    assert Race(charges=2**18, scale=F(5)).charges == 2**18
    for asked in (
        lambda: Race(charges=2**18 + 1, scale=F(5)),
        lambda: race_clock.least_scale(1, 1e-9, 2**40),
        lambda: race_clock.hockey_stick(1, 2**40, 5),
    ):
        with pytest.raises(ParameterError, match="charges must be at most"):
            asked()


@pytest.mark.parametrize("delta", [1.5, -0.25, 1, False, True])
def test_a_price_is_of_a_chance(delta: float) -> None:
    with pytest.raises(ParameterError, match="delta"):
        price([Pure(F(1))], delta)


def test_a_pure_statement_holds_at_the_very_delta_and_not_beyond() -> None:
    assert price([Mixed(pure=F(1), bad=DELTA)], DELTA).method == "pure"
    with pytest.raises(ParameterError, match="bad mass"):
        price([Mixed(pure=F(1), bad=DELTA + F(1, 10**30))], DELTA)
    with pytest.raises(ParameterError, match="noise distance"):
        price([Pure(F(1), distance=DELTA)], DELTA)
    with pytest.raises(ParameterError, match="unless every loss is pure"):
        price([Mixed(pure=F(1), bad=DELTA)], 0)


def test_without_a_delta_the_distance_of_pure_noise_is_told() -> None:
    found = price([Pure(F(1), distance=F(1, 2**70))], 0)
    assert (found.epsilon, found.method) == (1.0, "pure")
    assert found.delta == pytest.approx((1 + math.e) / 2**70, rel=1e-8)


def test_a_pure_statement_is_preferred_up_to_the_very_share() -> None:
    ways = [("another", lambda _: 0.5)]
    for share, method in ((1.0, "pure"), (0.96875, "another")):
        with patch.object(composition, "_ways", lambda _: ways), patch.object(composition, "_AS_GOOD", share):
            assert price([Pure(F(1))], DELTA).method == method


PURE, STEPS, RHO, CLOCKS = Pure(F(1, 2)), BoundedRange(4, F(1, 5)), Booked(F(1, 50)), Race(charges=2, scale=F(5))
ORDERS, BOTH, OPTIMAL = "integer orders", "pure plus integer orders", "optimal composition"
RANGE = ("bounded range concentration", "bounded range recursion")


@pytest.mark.parametrize(
    ("losses", "names"),
    [
        ((PURE,), (ORDERS, OPTIMAL)),
        ((RHO,), (ORDERS,)),
        ((STEPS,), (ORDERS, *RANGE)),
        ((PURE, RHO), (ORDERS, BOTH)),
        ((STEPS, RHO), (ORDERS, BOTH)),
        ((PURE, STEPS), (ORDERS, BOTH, RANGE[0], "pure plus " + RANGE[1], OPTIMAL)),
        ((PURE, STEPS, RHO), (ORDERS, BOTH, BOTH)),
        ((Pure(F(0)), RHO), (ORDERS,)),
        ((BoundedRange(0, F(1)), RHO), (ORDERS,)),
        ((BoundedRange(3, F(0)), PURE), (ORDERS, OPTIMAL)),
        ((Race(charges=0, scale=F(5)), RHO), (ORDERS,)),
        ((CLOCKS,), ("race", ORDERS)),
        ((CLOCKS, RHO), ("race plus integer orders", ORDERS)),
    ],
)
def test_the_bounds_that_apply_are_tried_and_no_others(losses: tuple[Loss, ...], names: tuple[str, ...]) -> None:
    assert tuple(name for name, _ in composition._ways(losses)) == names


@pytest.mark.parametrize(
    ("race", "others", "best"), [(CLOCKS, RHO, 3), (Race(charges=1, scale=F(100)), Booked(F(4)), 1)]
)
def test_races_and_others_share_delta(race: Race, others: Booked, best: int) -> None:
    with patch.object(composition, "_SPLITS", 4):
        found = composition._race_apart([race], F(1, 7), [others])(DELTA)
    each = [
        F(1, 7)
        + F(race_clock.epsilon_of_races([race], DELTA * part / 4))
        + F(epsilon_from_rho(others.rho, DELTA * (4 - part) / 4))
        for part in (1, 2, 3)
    ]
    assert found == pytest.approx(float(min(each)), rel=1e-12)
    assert each[best - 1] == min(each)


def test_nothing_is_lost_beyond_the_sum_of_all_widths() -> None:
    for steps, width in ((2, 0.5), (3, 2.0)):
        points, deltas = bounded_range.delta_curve(steps, width, steps * width)
        assert (deltas > 0).tolist() == (points < steps * width).tolist()


def test_the_last_order_of_a_curve_counts() -> None:
    assert epsilon_from_curve(lambda order: 0.1 if order == 5 else math.inf, DELTA, 5) < math.inf
    assert epsilon_from_curve(lambda order: 0.1 if order == 6 else math.inf, DELTA, 5) == math.inf


def test_a_distance_is_added_up_to_the_largest_epsilon() -> None:
    assert added_delta(F(1, 2**110), 700) is not None
    assert added_delta(F(1, 2**110), 701) is None
    assert added_delta(F(0), 701) == 0


def test_losses_that_are_rounded_up_to_as_many_units_count_all_of_them() -> None:
    """Three losses of nearly a tenth, on a unit of a quarter of their sum: two units each."""
    losses = tuple(F(1, 10) + F(more, 10**9) for more in range(3))
    total = sum(losses, F(0))
    with patch.object(exact_composition, "_ADDITIONS", 14):
        assert exact_composition._on_a_common_unit(losses) == (total / 4, [2, 2, 2])
        values, chances = exact_composition.loss_law.__wrapped__(losses)
    assert values == pytest.approx([float(total) / 2 * each for each in (-3, -1, 1, 3)])
    assert chances.sum() == pytest.approx(1)
    assert exact_composition._on_a_common_unit([F(1, 2)] * 3) == (F(1, 2), [1, 1, 1])


def test_the_law_of_losses_is_rounded_up() -> None:
    _, chances = exact_composition.loss_law.__wrapped__((F(1, 10),) * 1000)
    assert 0.5e-10 < chances.sum() - 1 < 1.5e-10
    with patch.object(exact_composition, "_UP", 1.5):
        for losses, step in (((F(1, 2), F(1, 4)), 0.375), ((F(1, 2), F(1, 2)), 1.5)):
            values, _ = exact_composition.loss_law.__wrapped__(losses)
            assert values[1] - values[0] == pytest.approx(step)


def test_what_underflows_is_added_and_nothing_is_lost_past_the_largest_loss() -> None:
    losses, chances = np.array([-1.0, 1.0]), np.array([0.5, 0.0])
    with patch.object(exact_composition, "_UNDERFLOW", 0.25):
        assert exact_composition.delta_at(losses, chances, 0.0) == 0.25
        assert exact_composition.delta_at(losses, chances, 1.0) == 0.0
    curve = bounded_range.delta_curve.__wrapped__
    with patch.object(bounded_range, "_UNDERFLOW", 0.0):
        plain = curve(1, 1.0, 0.5)[1]
    with patch.object(bounded_range, "_UNDERFLOW", 0.25):
        assert curve(1, 1.0, 0.5)[1] == pytest.approx(np.where(plain > 0, plain + 0.25, 0.0))


@pytest.mark.parametrize(("steps", "cells"), [(128, 128), (129, 64), (512, 64), (513, 32)])
def test_fewer_steps_have_a_finer_grid(steps: int, cells: int) -> None:
    points, _ = bounded_range.delta_curve(steps, 0.125, 0.1)
    assert len(points) == 2 * cells + 1


def test_the_window_of_the_recursion_reaches_two_deviations_past_the_orders() -> None:
    steps, width = 30, F(1, 7)
    with patch.object(bounded_range, "delta_curve", side_effect=bounded_range.delta_curve) as curve:
        bounded_range.epsilon_by_recursion(steps, width, 3e-6)
    ((_, wide, reach), _) = curve.call_args
    # The largest power of two that is at most delta.
    by_orders = epsilon_from_rho(steps * width**2 / 8, F(1, 2**19))
    assert reach == pytest.approx(by_orders + math.sqrt(steps) * wide, rel=1e-9)
    assert reach < steps * wide


def test_wider_steps_than_floats_can_tell_are_bounded_by_their_sum() -> None:
    for width in (F(10_000) + F(1, 10**20), F(20_000)):
        assert bounded_range.epsilon_by_recursion(1, width, 0.5) == float_up(width)
    assert bounded_range.epsilon_by_recursion(1, F(9_999), 0.5) < 9_999
