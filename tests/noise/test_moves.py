"""The price of a unit that moves to a later tick: vectors of the card, all pairs of columns, plans made for it."""

import math
from collections import defaultdict
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise import moves as room
from pianissimo.noise.laws import GaussianNode
from pianissimo.noise.moves import move_price, plan_for_moves
from pianissimo.noise.plan import NoisePlan

RHO = Fraction(1, 2)
KINDS = (HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan, TreePlan, DoublingPlan)


def shift_price(plan: NoisePlan, before: int, after: int) -> Fraction:
    """What it costs if a unit leaves one tick for another, from two columns alone."""
    shifts: defaultdict[tuple[int, int], int] = defaultdict(int)
    for tick, sign in ((before, 1), (after, -1)):
        for term in plan.influence(tick):
            shifts[term.level, term.node] += sign * term.weight
    return sum((plan.noises[level].price(shift) for (level, _), shift in shifts.items()), Fraction(0))


def worst_shift(plan: NoisePlan) -> Fraction:
    pairs = combinations(range(1, plan.horizon + 1), 2)
    return max((shift_price(plan, *pair) for pair in pairs), default=Fraction(0))


def weighed(*weights: int) -> HaarPlan:
    levels = len(weights) - 1
    noises = tuple(GaussianNode(Fraction(1, weight)) for weight in weights)
    return HaarPlan(levels=levels, noises=noises, horizon=2**levels)


@pytest.mark.parametrize(
    ("weights", "cost", "price"), [((1, 1, 1, 1), 4, 8), ((1, 1, 4, 1), 7, 18), ((3, 2), 5, 8), ((1, 5, 1, 1), 8, 20)]
)
def test_the_price_in_a_haar_tree_is_that_of_the_card(weights: tuple[int, ...], cost: int, price: int) -> None:
    plan = weighed(*weights)
    assert plan.cost == cost
    assert move_price(plan) == worst_shift(plan) == price


@pytest.mark.parametrize("horizon", [1, 2, 3, 5, 8, 12, 16])
@pytest.mark.parametrize("kind", KINDS)
def test_the_price_is_the_worst_of_all_pairs(kind: Any, horizon: int) -> None:
    plan = kind.calibrated(horizon=horizon, rho=RHO)
    booked, worst = move_price(plan), worst_shift(plan)
    if kind is HaarSkipPlan and horizon < 12:
        assert booked >= worst
    else:
        assert booked == worst


@pytest.mark.parametrize("horizon", [17, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_where_it_is_not_computed_it_is_more_than_the_worst(kind: Any, horizon: int) -> None:
    plan = kind.calibrated(horizon=horizon, rho=RHO)
    worst = max(shift_price(plan, before, after) for before in (1, 2, 8) for after in range(9, horizon + 1))
    assert worst <= move_price(plan) <= 4 * plan.cost


def test_a_tree_that_is_not_full_has_only_the_levels_at_which_ticks_part() -> None:
    noises = tuple(GaussianNode(Fraction(1)) for _ in range(5))
    for horizon in range(1, 17):
        plan = HaarPlan(levels=4, noises=noises, horizon=horizon)
        assert move_price(plan) == worst_shift(plan)


@pytest.mark.parametrize("kind", [HaarPlan, TopDownPlan, TreePlan])
def test_laplace_noise_pays_twice(kind: Any) -> None:
    plan = kind.calibrated(horizon=9, epsilon=Fraction(1))
    assert worst_shift(plan) <= move_price(plan) == 2 * plan.cost
    assert move_price(plan_for_moves(kind.calibrated, 9, pure=True, loss=Fraction(1))) <= 1


@pytest.mark.parametrize("loss", [Fraction(1, 2), Fraction(1, 10**4), Fraction(3)])
@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 16, 100])
@pytest.mark.parametrize("kind", KINDS)
def test_plans_for_moves_keep_their_loss_and_spend_it(kind: Any, horizon: int, loss: Fraction) -> None:
    plan = plan_for_moves(kind.calibrated, horizon, pure=False, loss=loss)
    behind = plan_for_moves(kind.calibrated, horizon, pure=False, loss=loss, after_prefix=True)
    assert max(plan.cost, move_price(plan)) <= 2 * loss
    assert max(Fraction(3, 2) * behind.cost, move_price(behind)) <= 2 * loss
    if loss < 1:
        # Variances are on a grid of 1/64: of small ones this is a part that counts.
        assert max(plan.cost, move_price(plan)) >= Fraction(24, 25) * 2 * loss


def test_the_tuned_tree_meets_both_bounds() -> None:
    plan = HaarPlan.calibrated(horizon=8760, rho=RHO, moves=True)
    assert Fraction(99, 100) < plan.cost <= 1
    assert Fraction(99, 100) < move_price(plan) <= 1


@pytest.mark.parametrize(
    ("kind", "horizon", "typical", "largest"),
    [
        (ToeplitzPlan, 100, 2.96, 3.16),
        (ToeplitzPlan, 720, 3.85, 4.06),
        (HaarPlan, 8760, 6.02, 7.03),
        (HaarPlan, 65536, 6.87, 7.99),
    ],
)
def test_the_noise_is_that_of_the_card(kind: Any, horizon: int, typical: float, largest: float) -> None:
    profile = plan_for_moves(kind.calibrated, horizon, pure=False, loss=RHO).variance_profile() + 1 / 12
    assert math.sqrt(profile.mean()) == pytest.approx(typical, rel=0.01)
    assert math.sqrt(profile.max()) == pytest.approx(largest, rel=0.01)


@pytest.mark.parametrize(
    ("horizon", "plain", "doubled"), [(100, 2.37, None), (720, 3.00, None), (8760, None, 8.85), (65536, None, 9.81)]
)
def test_what_the_card_compares_it_with_is_so_too(horizon: int, plain: float | None, doubled: float | None) -> None:
    """A count over the same ticks, and the rule of before: a plan of half or a quarter of the loss."""

    def typical(plan: NoisePlan) -> float:
        return math.sqrt(plan.variance_profile().mean() + 1 / 12)

    if plain is not None:
        assert typical(ToeplitzPlan.calibrated(horizon=horizon, rho=RHO)) == pytest.approx(plain, rel=0.01)
    if doubled is not None:
        kinds = (HaarPlan, HaarSkipPlan, SplinePlan)
        best = min(typical(kind.calibrated(horizon=horizon, rho=RHO / 4)) for kind in kinds)
        assert best == pytest.approx(doubled, rel=0.01)


def test_behind_a_prefix_a_calibrated_tree_leaves_what_the_card_says() -> None:
    """With u the loss of a unit and a move of 2 u at 14 levels: a plan of 1.07 u, and 0.93 u for the prefix."""
    plan = HaarPlan.calibrated(horizon=2**14, rho=RHO)
    cost = 2 * plan.cost / move_price(plan)
    assert (round(float(cost), 2), round(float(2 - cost), 2)) == (1.07, 0.93)


def broken_by(monkeypatch: pytest.MonkeyPatch, name: str, mutant: Any, plan: NoisePlan) -> bool:
    with monkeypatch.context() as patch:
        patch.setattr(room, name, mutant)
        return room.move_price(plan) < worst_shift(plan)


def test_a_price_that_is_too_small_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: the top level alone; the cost of one column; twice it, where columns have both signs."""
    uneven = weighed(1, 1, 4, 1)

    def at_the_top(noises: tuple[GaussianNode, ...], levels: int) -> Fraction:
        return 4 * noises[levels].price(1) + 2 * sum((each.price(1) for each in noises[1:levels]), Fraction(0))

    assert broken_by(monkeypatch, "_haar_price", at_the_top, uneven)
    assert broken_by(monkeypatch, "_haar_price", lambda *_: uneven.cost, uneven)
    assert broken_by(monkeypatch, "_haar_price", lambda *_: 2 * uneven.cost, uneven)
    toeplitz = ToeplitzPlan.calibrated(horizon=9, rho=RHO)
    assert broken_by(monkeypatch, "_toeplitz_price", lambda plan: plan.cost, toeplitz)
