"""Plans at their limits: what does not fit in 64 bits is refused; what is not looked at is taken for worse."""

from unittest.mock import patch

import pytest

from pianissimo.errors import ParameterError
from pianissimo.noise import HaarPlan, HaarSkipPlan, TreePlan
from pianissimo.noise import plan as plans
from pianissimo.noise.moves import has_no_negative_entries, move_price


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
