"""What a user costs, exactly: units that a series has at most so many of, and units that move to a later tick."""

import math
import os
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import polars as pl
import pytest
from tests.users import prices_page
from tests.users.replaying import raised_at

from pianissimo.errors import ParameterError
from pianissimo.identity import from_plain, to_plain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan, TopDownPlan
from pianissimo.noise.laws import gaussian_node
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import AdaptiveCap, Counters, FixedCap, Sensitivity, UserDistinct, s2
from pianissimo.users import counters as room


@pytest.mark.parametrize(
    ("units", "per_series", "price"),
    [(64, 4, 256), (10, 4, 36), (7, 1, 7), (5, 8, 25), (5, 5, 25), (5, None, 25), (1, 1, 1)],
)
def test_the_price_of_units_is_that_of_the_card(units: int, per_series: int | None, price: int) -> None:
    assert s2(units, per_series) == price


@pytest.mark.parametrize("units", range(1, 8))
@pytest.mark.parametrize("per_series", range(1, 8))
def test_the_price_of_units_is_the_largest_and_attained(units: int, per_series: int) -> None:
    ways = combinations_with_replacement(range(per_series + 1), units)
    assert s2(units, per_series) == max(sum(each**2 for each in way) for way in ways if sum(way) <= units)


def test_no_way_to_spend_units_costs_more_in_the_nodes() -> None:
    """Three units, two a series, over two series and four ticks, of either sign: every way."""
    plan = HaarPlan.calibrated(horizon=4, rho=Fraction(1, 2))
    columns = {tick: {(term.level, term.node): term.weight for term in plan.influence(tick)} for tick in range(1, 5)}

    def cost(units: list[tuple[int, int]]) -> Fraction:
        shifts: dict[tuple[int, int], int] = {}
        for tick, sign in units:
            for node, weight in columns[tick].items():
                shifts[node] = shifts.get(node, 0) + sign * weight
        return sum((plan.noises[level].price(shift) for (level, _), shift in shifts.items()), Fraction(0))

    units = list(product(range(1, 5), (1, -1)))
    worst = max(cost([a, b]) for a, b in product(units, units)) + max(cost([a]) for a in units)
    assert worst == s2(3, 2) * plan.cost


@pytest.mark.parametrize(("cap", "per_series", "price"), [(64, 4, 256), (64, 1, 64), (64, None, 64**2), (3, 8, 9)])
def test_gaussian_counters_book_the_price_of_a_users_units(cap: int, per_series: int | None, price: int) -> None:
    sensitivity = Sensitivity(total=1, squared=1, most_per_series=per_series)
    counters = Counters(
        kind=HaarPlan,
        horizon=8,
        loss=Fraction(1),
        is_pure=False,
        sensitivity=sensitivity,
        weights=(Fraction(1, 2),) * 2,
    )
    plan, later = counters.plan(1, cap, 0), counters.plan(2, cap, 4)
    prefix = counters.prefix(2, cap, 4)
    assert plan is not None
    assert later is not None
    assert prefix is not None
    for found in (plan.cost, later.cost, prefix.price(1)):
        # Rounded against ourselves, to a variance of the grid.
        assert Fraction(99, 100) < price * found <= 1


def test_laplace_counters_pay_for_all_units() -> None:
    sensitivity = Sensitivity(total=1, squared=1, most_per_series=1)
    counters = Counters(
        kind=TopDownPlan, horizon=8, loss=Fraction(1), is_pure=True, sensitivity=sensitivity, weights=(Fraction(1),)
    )
    plan = counters.plan(1, 64, 0)
    assert plan is not None
    assert Fraction(99, 100) < 64 * plan.cost <= 1


@pytest.mark.parametrize(("units", "per_series"), [(0, 1), (1, 0), (-1, None)])
def test_impossible_units_are_refused(units: int, per_series: int | None) -> None:
    with pytest.raises(ParameterError, match="must be a whole number"):
        s2(units, per_series)


MOVING = Sensitivity(total=1, squared=1, moves=True, moves_priced=True)
KINDS = (HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan)


def moving(kind: Any, horizon: int, sensitivity: Sensitivity = MOVING) -> Counters:
    weights = (Fraction(1, 2),) * 2
    return Counters(
        kind=kind, horizon=horizon, loss=Fraction(1, 4), is_pure=False, sensitivity=sensitivity, weights=weights
    )


def worst_of_a_unit(counters: Counters, start: int, since: int) -> Fraction:
    """What the worst unit of all costs at one start, over its share: it is in the prefix or in a tick, or moves."""
    room._plan_within.cache_clear()
    plan, node = counters.plan(start, 3, since), counters.prefix(start, 3, since)
    places: list[dict[Any, int]] = [{}] if node is None else [{}, {"prefix": 1}]
    if plan is not None:
        for tick in range(1, plan.horizon + 1):
            places.append({(term.level, term.node): term.weight for term in plan.influence(tick)})

    def price(name: Any, shift: int) -> Fraction:
        law = node if name == "prefix" else None if plan is None else plan.noises[name[0]]
        return Fraction(0) if law is None else law.price(shift)

    worst = max(
        sum((price(name, one.get(name, 0) - two.get(name, 0)) for name in one.keys() | two.keys()), Fraction(0))
        for one in places
        for two in places
    )
    return 3**2 * worst / (2 * counters.weights[start - 1] * counters.loss)


@pytest.mark.parametrize(("horizon", "since"), [(1, 0), (2, 0), (9, 0), (9, 8), (9, 9), (9, 7), (9, 4), (12, 2)])
@pytest.mark.parametrize("kind", KINDS)
def test_no_unit_costs_more_than_its_share_wherever_it_moves(kind: Any, horizon: int, since: int) -> None:
    worst = worst_of_a_unit(moving(kind, horizon), 2 if since else 1, since)
    assert worst <= 1
    # The cost of a spline plan is certified, and more than that of its columns.
    assert worst >= Fraction(19, 20) or kind is SplinePlan


def test_a_prefix_that_forgets_the_plan_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a prefix of the whole share, p = 2 u; a plan tuned for moves, c = 2 u, behind a prefix of half."""
    counters = moving(HaarPlan, 9)
    unit = counters._unit_loss(2, 3)
    with monkeypatch.context() as patch:
        patch.setattr(Counters, "prefix", lambda *_: gaussian_node(1 / (2 * unit)))
        assert worst_of_a_unit(counters, 2, 4) > Fraction(3, 2)
    with monkeypatch.context() as patch:
        patch.setattr(
            room,
            "plan_for_moves",
            lambda make, horizon, *, pure, loss, after_prefix: make(horizon=horizon, rho=loss, moves=True),
        )
        patch.setattr(Counters, "prefix", lambda *_: gaussian_node(1 / unit))
        assert worst_of_a_unit(counters, 2, 4) > Fraction(7, 5)


def test_a_price_of_the_cost_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: the price of a unit that never moves."""
    monkeypatch.setattr(room, "move_price", lambda _: Fraction(0))
    monkeypatch.setattr("pianissimo.noise.moves.move_price", lambda _: Fraction(0))
    assert worst_of_a_unit(moving(ToeplitzPlan, 9), 1, 0) > Fraction(6, 5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("since", [0, 4, 8])
def test_streams_begun_with_factors_keep_them(kind: Any, since: int) -> None:
    old = UserDistinct(cap=FixedCap(units=3), plan=kind, horizon=9, rho=Fraction(1, 4))
    assert from_plain(to_plain(old)) == old
    assert "moves_priced" not in to_plain(old)
    assert not old.moves_priced
    (counters,) = old.counters
    plan, unit = counters.plan(1, 3, since), counters._unit_loss(1, 3)
    assert plan is not None
    factor = 2 if kind is ToeplitzPlan or (since == 8 and kind is not SplinePlan) else 4
    assert plan == kind.calibrated(horizon=9 - since, rho=unit / factor)
    assert counters.prefix(1, 3, since) == (gaussian_node(1 / unit) if since else None)


def test_a_year_of_hours_has_at_most_seven_tenths_of_the_noise() -> None:
    def least(*, priced: bool) -> float:
        sensitivity = Sensitivity(total=1, squared=1, moves=True, moves_priced=priced)
        plans = [moving(kind, 8760, sensitivity).plan(1, 1, 0) for kind in (HaarPlan, HaarSkipPlan, SplinePlan)]
        return math.sqrt(min(float(plan.variance_profile().mean()) for plan in plans if plan is not None))

    assert least(priced=True) <= 0.66 * least(priced=False)


def test_the_page_tells_what_exact_prices_are_worth() -> None:
    assert prices_page.on_page() == prices_page.written()


def test_exact_prices_are_worth_what_they_should_be() -> None:
    year = list(prices_page.of_values())[-1]
    assert year.now <= 0.70 * year.before
    _, hundred, _ = prices_page.of_tests()
    assert hundred.before == 1006
    assert hundred.now <= 484
    sixteen, sixty_four = prices_page.of_labels()
    assert (round(sixteen.before), round(sixteen.now)) == (321, 80)
    assert sixty_four.now == pytest.approx(sixty_four.before / 8, rel=1e-3)


def test_bars_behind_a_prefix_cover_what_they_say() -> None:
    """Of distinct values, whose prefix has what the plan leaves: raised at tick 4 of 8."""
    runs = 2000 if os.environ.get("PIANISSIMO_SOAK") else 100
    cap = AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=2)
    mechanism = UserDistinct(cap=cap, plan=HaarPlan, horizon=8, rho=Fraction(2), moves_priced=True)
    ticks = [pl.DataFrame({"user": ["a", "b", "c"], "value": [tick, tick + 1, tick // 2]}) for tick in range(8)]

    def last(noise: Any) -> Any:
        run = Run(mechanism, noise)
        for batch in ticks:
            run.update(batch)
            value = run.release().value
        return value

    with raised_at({4: 1}):
        truth = last(NoNoise()).estimate
        bars = [last(SeededNoise(seed)).bars(0.95) for seed in range(runs)]
    inside = sum(low <= truth <= high for low, high in bars)
    print(f"inside their bars of 95 %, of {runs} runs: {inside / runs:.3f}")
    assert inside >= 0.95 * runs - 3 * math.sqrt(0.05 * 0.95 * runs)
