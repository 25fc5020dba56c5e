"""Plans at their limits: what does not fit in 64 bits is refused; what is not looked at is taken for worse."""

from fractions import Fraction
from typing import Any
from unittest.mock import patch

import pytest

from pianissimo.errors import ParameterError
from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise import plan as plans
from pianissimo.noise.laws import GaussianNode
from pianissimo.noise.moves import has_no_negative_entries, move_price
from pianissimo.noise.plan import TunedPlan


def test_a_plan_whose_noise_could_leave_the_numbers_is_refused() -> None:
    plan = HaarPlan.calibrated(horizon=70, rho=0.01)
    most = 2 * plans.largest_noise(plan)
    with patch.object(plans, "_LARGEST_NUMERATOR", most + 1):
        plans.check_plan(plan)
    with (
        patch.object(plans, "_LARGEST_NUMERATOR", most),
        pytest.raises(ParameterError, match="must fit in 62 bits"),
    ):
        plans.check_plan(plan)


def test_a_last_tick_that_lowers_a_sum_is_seen() -> None:
    assert not has_no_negative_entries(HaarPlan.calibrated(horizon=2, rho=0.5))
    assert has_no_negative_entries(TreePlan.calibrated(horizon=9, rho=0.5))


def test_a_long_plan_is_priced_as_if_each_move_were_twice_an_entry() -> None:
    plan = TreePlan.calibrated(horizon=9, rho=0.5)
    with patch("pianissimo.noise.moves._MOST_PAIRS", 3):
        assert move_price(plan) == 2 * plan.cost
        with patch("pianissimo.noise.moves._LONGEST_CHECK", 3):
            assert move_price(plan) == 4 * plan.cost
    assert move_price(plan) <= 2 * plan.cost


def test_a_plan_that_skips_has_no_more_releases_than_its_tree_has_leaves() -> None:
    plan = HaarSkipPlan.calibrated(horizon=7, rho=0.5)
    whole = HaarSkipPlan(tree=plan.tree, horizon=plan.tree.horizon)
    assert whole.horizon == 2**plan.tree.levels
    with pytest.raises(ParameterError):
        HaarSkipPlan(tree=plan.tree, horizon=plan.tree.horizon + 1)
    with patch("pianissimo.noise.haar._LONGEST_HORIZON", 6), pytest.raises(ParameterError):
        HaarSkipPlan(tree=plan.tree, horizon=7)


@pytest.mark.parametrize("rho", [Fraction(1, 7), Fraction(3)])
@pytest.mark.parametrize("kind", [HaarPlan, HaarSkipPlan, TreePlan, DoublingPlan, SplinePlan, ToeplitzPlan])
def test_a_plan_costs_what_it_was_made_for(kind: type[TunedPlan], rho: Fraction) -> None:
    """An event costs cost / 2 of rho: never more than was asked for, and hardly less."""
    for horizon in (1, 5, 16, 17):
        plan: Any = kind.calibrated(horizon=horizon, rho=rho)
        assert Fraction(9, 10) < plan.cost / (2 * rho) <= 1


def test_a_plan_of_several_laws_costs_what_its_dearest_period_does() -> None:
    quiet, noisy = GaussianNode(Fraction(100)), GaussianNode(Fraction(1))
    assert DoublingPlan(noises=(noisy, quiet), horizon=3).cost == 1
    assert DoublingPlan(noises=(quiet, noisy), horizon=3).cost == 2
    with pytest.raises(ParameterError):
        DoublingPlan(noises=(noisy, quiet), horizon=4)


def test_trees_are_as_high_as_their_ticks_need() -> None:
    heights = [TopDownPlan.calibrated(horizon=ticks, epsilon=1).height for ticks in (1, 16, 17, 256, 257)]
    assert heights == [1, 1, 2, 2, 3]
    levels = [len(SplinePlan.calibrated(horizon=ticks, rho=1).noises) for ticks in (16, 17, 64, 65)]
    assert levels[0] < levels[1] == levels[2] < levels[3]


def test_a_plan_that_skips_has_a_tree_of_twice_the_ticks() -> None:
    for ticks, leaves in ((1, 4), (2, 4), (3, 8), (4, 8), (5, 16), (8, 16), (9, 32), (64, 128)):
        assert HaarSkipPlan.calibrated(horizon=ticks, rho=1).tree.horizon == leaves


def test_gaussian_plans_and_those_of_few_ticks_are_not_had_otherwise() -> None:
    for kind in (SplinePlan, ToeplitzPlan):
        with pytest.raises(ParameterError, match="must be given a rho"):
            kind.calibrated(horizon=5, epsilon=1)
    with patch("pianissimo.noise.toeplitz.LONGEST_HORIZON", 6), pytest.raises(ParameterError, match="at most 6"):
        ToeplitzPlan.calibrated(horizon=7, rho=1)
    with pytest.raises(ParameterError, match="bits must be at most"):
        ToeplitzPlan.calibrated(horizon=7, rho=1, bits=21)
    with patch("pianissimo.noise.toeplitz._UNIT", 2.0**-16), pytest.raises(ParameterError, match="must be smaller"):
        ToeplitzPlan.calibrated(horizon=7, rho=1)
