"""Noise at its limits: ties are within, margins are added, caches draw nothing again and hold what they say."""

import math
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from pianissimo.noise import (
    HaarPlan,
    HaarSkipPlan,
    SplinePlan,
    ToeplitzPlan,
    TopDownPlan,
    exact_draws,
    exact_laws,
    haar,
    toeplitz,
)
from pianissimo.noise.keyed import KeyedNoise
from pianissimo.noise.laws import GaussianNode
from pianissimo.noise.moves import has_no_negative_entries, plan_for_moves
from pianissimo.noise.plan import _over_one_denominator, sum_of_levels
from pianissimo.noise.recent import Recent, pack
from pianissimo.noise.running import PlanNoise, _grown, evaluate, running_noise, series_keys
from pianissimo.noise.tree import best_base, largest_digit_sum
from pianissimo.testing import SeededNoise

F = Fraction


def test_few_trials_are_checked_with_digits_for_their_number() -> None:
    asked = []

    def chance(digits: int) -> tuple[Decimal, Decimal]:
        asked.append(digits)
        return Decimal(0), Decimal(0)

    exact_draws.check_few(1000, chance)
    assert asked == [64]


def test_while_a_draw_is_open_twice_the_digits_are_worked_out() -> None:
    asked = []

    def chance(digits: int) -> tuple[Decimal, Decimal]:
        asked.append(digits)
        assert len(asked) < 9
        return (Decimal("0.5"), Decimal("0.5")) if digits > 200 else (Decimal("0.25"), Decimal("0.75"))

    # The uniform number of this seed is between a half and three quarters.
    assert exact_draws.binomial(1, chance, SeededNoise(1)) == 1
    assert asked == [61, 61, 122, 244]


def test_chances_are_worked_out_at_every_size() -> None:
    assert all((each.Emin, each.Emax) == (-(10**15), 10**15) for each in exact_draws._contexts(60))
    low, high = exact_draws.laplace_passes(F(1), 10**6)(60)
    assert 0 < low < high < Decimal("1e-434294")


def test_a_chance_that_is_the_very_delta_is_within() -> None:
    assert exact_laws.at_most(Decimal("0.5"), F(1, 2))
    assert not exact_laws.at_most(Decimal("0.500001"), F(1, 2))


@pytest.mark.parametrize("text", ["9e-299", "5e-300", "1e-300", "9e-301", "5e-400"])
def test_a_short_bound_is_never_below_its_chance(text: str) -> None:
    assert exact_laws.short_bound(Decimal(text)) >= F(Decimal(text))


@pytest.mark.parametrize("variance", [F(1, 64), F(1), F(40)])
def test_past_its_reach_a_law_has_no_mass_but_what_is_too_small_to_tell(variance: F) -> None:
    law = exact_laws.GaussianLaw(variance)
    beyond = np.array([law.reach - 1, law.reach, law.reach + 1, 10**6])
    assert law.mass(beyond).tolist() == law.mass(-beyond).tolist() == law.tail(beyond).tolist() == [exact_laws.TINY] * 4
    assert law.mass(law.places).sum() == pytest.approx(1)


@pytest.mark.parametrize("asked", [(9, 1, 0.5), (400, 1, 0.01), (30, 40, 0.1), (10**6, 3, 1e-3)])
def test_a_divergence_of_every_so_many_th_place_is_above_that_of_all_by_little(asked: tuple[int, int, float]) -> None:
    whole = exact_laws.shift_divergence.__wrapped__
    exact = whole(*asked)
    for size, more in ((40, 1.3), (400, 1.02), (4000, 1.002)):
        with patch.object(exact_laws, "_MOST_PLACES", size):
            assert exact <= whole(*asked) < exact * more


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_divergence_of_few_places_is_never_too_small(most: int) -> None:
    whole = exact_laws.shift_divergence.__wrapped__
    for variance in (1, 2, 7, 50, 3000):
        for coordinates in (1, 2, 9, 300):
            for epsilon in (-1.0, 0.0, 1e-3, 0.3, 4.0):
                exact = whole(variance, coordinates, epsilon)
                with patch.object(exact_laws, "_MOST_PLACES", most):
                    assert whole(variance, coordinates, epsilon) >= exact


@pytest.mark.parametrize("variance", [F(64), F(5000), F(2**18)])
def test_a_tail_without_a_sum_is_above_the_sum_by_little(variance: F) -> None:
    law, deviation = exact_laws.GaussianLaw(variance), math.sqrt(variance)
    places = [round(step * deviation / 4) for step in range(-16, 61)]
    exact = law.tail(np.array(places))
    with patch.object(exact_laws, "LARGEST_SUMMED", 1):
        bounds = np.array([exact_laws.gaussian_tail(variance, place) for place in places])
        reaches = [exact_laws.gaussian_reach(variance, 9, coverage) for coverage in (0.1, 0.95, 1 - 1e-12)]
    assert (exact <= bounds).all()
    # Where the tail is curved, by the square of how many deviations out it is, and by the slack.
    assert (bounds <= exact * (1 + 16 / float(variance))).all()
    summed = [exact_laws.gaussian_reach(variance, 9, coverage) for coverage in (0.1, 0.95, 1 - 1e-12)]
    assert all(0 <= reach - least <= 1 for reach, least in zip(reaches, summed, strict=True))


@pytest.mark.parametrize("guess", [-5, 1, 2, 41, 42, 43, 60, 10**6])
def test_a_search_around_a_guess_finds_the_least(guess: int) -> None:
    for least in (1, 2, 42):
        assert exact_laws.least_around(1, guess, lambda each: each >= least) == least  # noqa: B023


def test_one_draw_is_exchanged_for_itself_at_no_price() -> None:
    assert exact_laws.exchange_exponent(1, 0) == exact_laws.exchange_exponent(1, 1) == 0.0
    assert exact_laws.exchange_exponent(1, 2) == pytest.approx(10 * math.exp(-(math.pi**2)))


def test_positions_are_chosen_by_weights_of_twelve_bits() -> None:
    plan = HaarSkipPlan.calibrated(horizon=7, rho=0.5)
    with patch.object(haar, "_quiet_positions") as chosen:
        _ = plan.positions
    ((weights, horizon), _) = chosen.call_args
    assert (max(weights), horizon) == (2**12, 7)


def test_entries_of_zero_lower_no_sum() -> None:
    plan = ToeplitzPlan(bits=1, noise=GaussianNode(F(9)), horizon=12)
    assert min(term.weight for term in plan.influence(1)) == 0
    assert has_no_negative_entries(plan)


def test_a_plan_that_costs_the_very_loss_is_taken_as_it_is() -> None:
    made: list[Any] = []

    def make(*, horizon: int, rho: F) -> Any:
        made.append(SimpleNamespace(horizon=horizon, cost=2 * rho, name="made"))
        return made[-1]

    assert plan_for_moves(make, 1, pure=False, loss=F(1, 2)) is made[0]
    assert len(made) == 1


def test_of_all_ticks_each_level_is_worked_out_over_one_period() -> None:
    seen = []

    def part(level: int, inside: Any) -> Any:
        seen.append(len(inside))
        return inside << level

    numbers = np.arange(1, 41)
    assert sum_of_levels([2, 4], part, numbers).tolist() == (numbers % 2 + 2 * (numbers % 4)).tolist()
    assert seen == [2, 4]


def test_a_stored_checkpoint_goes_on_from_the_nearest_that_there_is() -> None:
    moves = {since: pack(np.array([0]), np.array([since])) for since in (4, 6, 10, 12)}
    logs = [
        {"tick": tick, "since": [[each, moves[each]] for each in since]}
        for tick, since in ((8, (4, 6)), (16, (12, 10)))
    ]
    recent = Recent(16)
    recent.take_logged({"tick": 16, "closed": 0, "open": []}, logs)
    assert recent._checkpoints == {8: (6, moves[6]), 16: (10, moves[10])}


def test_draws_are_kept_in_as_few_bytes_as_hold_them() -> None:
    plan = HaarPlan.calibrated(horizon=8, rho=0.001)
    assert all(2**8 < noise.bound < 2**15 for noise in plan.noises)
    assert set(PlanNoise(plan)._types) == {np.dtype(np.int16)}


def test_lists_grow_by_half_and_only_where_they_must() -> None:
    ten = np.arange(11)
    assert _grown(ten, 11, 11) is ten
    assert len(_grown(ten, 11, 12)) == 16
    assert len(_grown(ten, 11, 40)) == 40
    assert len(_grown(np.empty(0), 0, 3)) == 3


@pytest.mark.parametrize("plan", [HaarPlan.calibrated(horizon=8, rho=0.5), ToeplitzPlan.calibrated(horizon=8, rho=0.5)])
def test_the_noise_of_a_series_that_came_since_is_drawn(plan: Any) -> None:
    noise, running = KeyedNoise(bytes(32)), running_noise(plan)
    running.at(noise, 5, 3, series_keys)
    for slots in ([3], [2], [0, 2]):
        keys = np.concatenate([series_keys(slot, slot + 1) for slot in slots])
        found = running.since(noise, 2, 5, keys, np.array(slots))
        assert (found == evaluate(plan, noise, 5, keys, since=2)).all()


@pytest.mark.parametrize("kind", [HaarPlan, HaarSkipPlan, SplinePlan, TopDownPlan, ToeplitzPlan])
def test_a_list_that_was_empty_at_first_has_the_noise_of_its_series(kind: Any) -> None:
    plan = kind.calibrated(horizon=40, **({"epsilon": 1} if kind is TopDownPlan else {"rho": 0.5}))
    noise, running = KeyedNoise(bytes(32)), running_noise(plan)
    for tick, count in ((1, 0), (2, 0), (20, 0), (21, 3), (22, 3)):
        assert (running.at(noise, tick, count, series_keys) == evaluate(plan, noise, tick, series_keys(0, count))).all()
    for start in (1, 2, 20, 21):
        found = running.since(noise, start, 22, series_keys(0, 3))
        assert (found == evaluate(plan, noise, 22, series_keys(0, 3), since=start)).all()


def test_what_is_at_hand_is_not_drawn_again() -> None:
    plan, noise = ToeplitzPlan.calibrated(horizon=8, rho=0.5), KeyedNoise(bytes(32))
    running = plan.running_noise()
    running.at(noise, 5, 3, series_keys)
    running.at(noise, 3, 3, series_keys)
    with patch.object(ToeplitzPlan, "evaluate", side_effect=AssertionError):
        running.since(noise, 2, 5, series_keys(0, 3))


def test_near_a_half_the_exact_value_decides() -> None:
    plan = ToeplitzPlan(bits=4, noise=GaussianNode(F(9)), horizon=60)
    with patch.object(ToeplitzPlan, "_exactly_rounded", return_value=77):
        assert plan._rounded(np.array([[8.0, 7.0]])).tolist() == [77, 0]


def test_fixed_point_numbers_are_taken_with_twice_their_error_on_both_sides() -> None:
    plan = ToeplitzPlan(bits=4, noise=GaussianNode(F(9)), horizon=60)
    draws = [3, -1] * 25
    with patch.object(toeplitz, "_nearest", return_value=0) as nearest:
        plan._exactly_rounded(draws, 0)
    low, high = (call.args[0] for call in nearest.call_args_list)
    assert high - low == 2 * 2 * plan._weights.error * 100


def test_the_error_of_fixed_point_numbers_is_solved_for() -> None:
    with patch.object(toeplitz, "_FIXED_BITS", 13):
        found = toeplitz._weights.__wrapped__(64, 6)
    steps = np.abs(np.diff(np.array([0, *found.fixed], dtype=np.int64))).sum()
    assert found.error == math.ceil(F(int(steps) * 32, 2**13) / (1 - F(64 * 64, 2**13)))
    assert found.error > math.ceil(F(int(steps) * 32, 2**13))


def test_weights_have_at_least_the_size_that_they_have_exactly() -> None:
    with patch.object(toeplitz, "_FIXED_BITS", 13):
        found = toeplitz._weights.__wrapped__(64, 6)
        size = found.size
    exact: list[F] = []
    for place in range(64):
        rest = sum((F(found.column[back]) * exact[place - back] for back in range(1, place + 1)), F(0))
        exact.append((1 - rest) / found.column[0])
    assert size >= sum(map(abs, exact))
    assert size <= sum(map(abs, exact)) + 64 * F(2 * found.error, 2**13)


def test_a_node_is_bound_to_the_tick_where_its_parent_begins() -> None:
    plan = TopDownPlan.calibrated(horizon=16**3, epsilon=1.0)
    assert [plan.bound_tick(level, 48) for level in range(4)] == [0, 48, 768, 3 * 16**3]


@pytest.mark.parametrize("base", [2, 3, 10])
def test_the_largest_digit_sum_is_that_of_a_number(base: int) -> None:
    def digits(number: int) -> int:
        return number % base + digits(number // base) if number else 0

    for horizon in (1, 2, 3, 9, 10, 100, 101, 110, 200):
        assert largest_digit_sum(horizon, base) == max(digits(each) for each in range(1, horizon + 1))
    assert best_base(1) == 2


def test_variances_over_one_denominator_are_the_same_numbers() -> None:
    noises = (GaussianNode(F(3, 4)), GaussianNode(F(5, 6)))
    assert _over_one_denominator(noises) == ((9, 10), 12)


def test_open_plans_give_less_to_high_levels_and_no_more_to_low_ones() -> None:
    for plan, first, flat in ((HaarPlan.open(rho=0.5), 2, 8), (TopDownPlan.open(epsilon=1.0), 1, 2)):
        prices = [float(noise.price(1)) for noise in plan.noises]
        assert prices[first : flat + 1] == pytest.approx([prices[flat]] * (flat + 1 - first), rel=1e-3)
        assert all(high < prices[flat] * 0.999 for high in prices[flat + 1 :])


def test_the_weights_of_a_level_are_at_most_half_its_children_and_two() -> None:
    plan = TopDownPlan.calibrated(horizon=16**2, epsilon=1.0)
    assert plan.peak_weights == (2**8, 10 * 2**8, 10 * 2**8)


def test_the_columns_of_a_spline_plan_and_the_rows_beside_them_make_running_sums() -> None:
    plan = SplinePlan.calibrated(horizon=64, rho=0.5)
    for tick in (1, 17, 40, 64):
        column = {(term.level, term.node): term.weight for term in plan.influence(tick)}
        for row in (1, 16, 17, 39, 40, 64):
            total = sum(term.weight * column.get((term.level, term.node), 0) for term in plan.terms_at(row))
            assert total == (2**plan.shift if row >= tick else 0)
