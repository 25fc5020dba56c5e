"""What a user costs, exactly: units that a series has at most so many of, and units that move to a later tick."""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import pytest

from pianissimo.errors import ParameterError
from pianissimo.noise import HaarPlan, TopDownPlan
from pianissimo.users import Counters, Sensitivity, s2


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
