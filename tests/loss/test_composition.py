import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pianissimo.errors import ParameterError
from pianissimo.loss.bounded_range import epsilon_by_recursion, kappa
from pianissimo.loss.composition import Price, one_entry, price
from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.loss.exact_composition import optimal_epsilon
from pianissimo.loss.losses import Booked, BoundedRange, Loss, Mixed, Pure

SMALL = st.fractions(0, 3, max_denominator=1000)
TINY = st.integers(0, 1000).map(lambda parts: Fraction(parts, 10**12))
PURE = st.builds(Pure, SMALL)
ZCDP = st.builds(Booked, SMALL)
LEDGER = st.builds(Booked, SMALL, bad=TINY, distance=TINY.map(lambda part: part / 10**12))
WIDTHS = st.sampled_from([Fraction(0), Fraction(1, 10), Fraction(1, 3), Fraction(2)])
RANGE = st.builds(BoundedRange, st.integers(0, 5), WIDTHS, bad=TINY, distance=TINY.map(lambda part: part / 10**12))
LOSS: st.SearchStrategy[Loss] = st.one_of(PURE, ZCDP, LEDGER, RANGE)
BY_ORDERS: st.SearchStrategy[Loss] = st.one_of(ZCDP, LEDGER)

Law = dict[object, float]


def gaussian(sigma2: int, count: int) -> Law:
    masses = {k: math.exp(-((k - count) ** 2) / (2 * sigma2)) for k in range(-60, 61)}
    total = sum(masses.values())
    return {k: mass / total for k, mass in masses.items()}


def geometric(epsilon: float, count: int) -> Law:
    ratio = math.exp(-epsilon)
    return {k: (1 - ratio) / (1 + ratio) * ratio ** abs(k - count) for k in range(-120, 121)}


def mostly(law: Law, leak: float, secret: str) -> Law:
    """The law, but with probability `leak` the secret itself is shown."""
    return {k: (1 - leak) * mass for k, mass in law.items()} | {secret: leak}


def true_delta(first: Sequence[Law], second: Sequence[Law], epsilon: float) -> float:
    """The smallest delta of independent releases, by enumeration of all outputs."""
    outputs = itertools.product(*({**one, **other} for one, other in zip(first, second, strict=True)))
    excess = 0.0
    for output in outputs:
        one = math.prod(law.get(answer, 0.0) for law, answer in zip(first, output, strict=True))
        other = math.prod(law.get(answer, 0.0) for law, answer in zip(second, output, strict=True))
        excess += max(0.0, one - math.exp(epsilon) * other)
    return excess


def is_solution(ledger: Booked, delta: float, epsilon: float) -> bool:
    """Whether the conversion, with what is left of delta at epsilon in 50 digits, is at most epsilon."""
    with mpmath.workdps(50):
        growth = Fraction(str(mpmath.exp(mpmath.mpf(epsilon))))
    left = Fraction(delta) - ledger.bad - (1 + growth) * ledger.distance
    return left > 0 and epsilon_from_rho(ledger.rho, left) <= epsilon


@given(st.lists(ZCDP, min_size=1))
def test_booked_losses_add_up(losses: list[Booked]) -> None:
    assert one_entry(losses) == Booked(sum((loss.rho for loss in losses), Fraction(0)))


def test_a_mixture_is_booked_by_lemma_2() -> None:
    half, third = (
        Booked(Fraction(1), Fraction(1, 2), Fraction(1, 5)),
        Booked(Fraction(2), Fraction(1, 3), Fraction(1, 7)),
    )
    assert one_entry([half, Pure(Fraction(2)), third, Booked(Fraction(4))]) == Booked(
        rho=Fraction(9), bad=Fraction(2, 3), distance=Fraction(12, 35)
    )


def test_nothing_loses_nothing() -> None:
    assert one_entry([]) == Booked(Fraction(0))
    assert price([], 0) == Price(0.0, 0.0, "pure")


@given(st.lists(LOSS, max_size=6).flatmap(lambda losses: st.tuples(st.just(losses), st.permutations(losses))))
def test_the_order_does_not_matter(losses: tuple[list[Loss], list[Loss]]) -> None:
    assert one_entry(losses[0]) == one_entry(losses[1])


@given(st.lists(LOSS, min_size=1, max_size=6), st.data())
def test_grouping_does_not_matter(losses: list[Loss], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, max(1, len(losses) - 1)))
    groups = [group for group in (losses[:cut], losses[cut:]) if group]
    assert one_entry([one_entry(group) for group in groups]) == one_entry(losses)


def test_pure_losses_can_be_priced_without_delta() -> None:
    assert price([Pure(Fraction(1, 3)), Pure(Fraction(2, 3))], 0) == Price(1.0, 0.0, "pure")
    assert Fraction(price([Pure(Fraction(1, 3))], 0.0).epsilon) >= Fraction(1, 3)


def test_many_small_pure_losses_are_composed_optimally() -> None:
    best = price([Pure(Fraction(1, 10))] * 100, 1e-6)
    assert best == Price(optimal_epsilon([Fraction(1, 10)] * 100, 1e-6), 1e-6, "optimal composition")
    assert best.epsilon < epsilon_from_rho(Fraction(1, 2), 1e-6)


def test_very_many_pure_losses_go_through_orders_or_advanced_composition() -> None:
    best = price([Pure(Fraction(1, 1000))] * 100_001, 1e-6)
    assert best.method in ("integer orders", "advanced composition")
    assert best.epsilon <= epsilon_from_rho(Fraction(100_001, 2 * 10**6), 1e-6)


def test_a_pure_statement_is_not_given_up_for_less_than_a_thousandth() -> None:
    assert price([Pure(Fraction(1))], 1e-6) == Price(1.0, 0.0, "pure")
    assert price([BoundedRange(1, Fraction(1), bad=Fraction(1, 10**7))], 1e-6).method == "pure"
    assert Fraction(price([BoundedRange(1, Fraction(1), bad=Fraction(1, 10**7))], 1e-6).delta) >= Fraction(1, 10**7)


def test_selection_steps_are_priced_by_the_recursion_or_at_integer_orders() -> None:
    steps = [BoundedRange(50, Fraction(1, 10))] * 2
    assert price(steps, delta=1e-6) == Price(
        epsilon_by_recursion(100, Fraction(1, 10), 1e-6), 1e-6, "bounded range recursion"
    )
    # Past so many steps the recursion is left out.
    many = price([BoundedRange(1001, Fraction(1, 10))], 1e-6)
    assert many == Price(epsilon_from_rho(1001 * kappa(Fraction(1, 10)), 1e-6), 1e-6, "integer orders")
    assert many.epsilon <= epsilon_from_rho(Fraction(1001, 800), 1e-6)


def test_bad_mass_of_selection_steps_is_taken_from_delta_first() -> None:
    loss = BoundedRange(100, Fraction(1, 10), bad=Fraction(1, 4))
    assert price([loss], 0.75).epsilon == epsilon_by_recursion(100, Fraction(1, 10), 0.5)
    with pytest.raises(ParameterError, match=r"delta must be above the bad mass 0\.25 of the losses"):
        price([loss], 0.2)
    with pytest.raises(ParameterError, match="delta must be above 0 unless every loss is pure"):
        price([loss], 0)
    assert price([BoundedRange(100, Fraction(1, 10))], 0) == Price(10.0, 0.0, "pure")


def test_steps_beside_a_pure_loss_are_priced_by_one_of_the_bounds_for_both() -> None:
    best = price([Pure(Fraction(1)), BoundedRange(100, Fraction(1, 10))], 1e-6)
    assert best.method == "pure plus bounded range recursion"
    assert best.epsilon == pytest.approx(1 + epsilon_by_recursion(100, Fraction(1, 10), 1e-6), rel=1e-12)
    beside = price([Booked(Fraction(1, 100)), BoundedRange(100, Fraction(1, 10))], 1e-6)
    assert beside.method == "integer orders"
    few = price([Booked(Fraction(1, 100)), BoundedRange(1, Fraction(1, 1000))], 1e-6)
    assert few.epsilon <= 0.001 + epsilon_from_rho(Fraction(1, 100), 1e-6) + 1e-12


@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_the_price_of_peeling_beside_a_count_covers_its_exact_loss(delta: float) -> None:
    # Two adaptive steps with the worst two-point laws at t = width / 2, then a geometric count.
    width = 0.5
    up = (1 - math.exp(-width / 2)) / (1 - math.exp(-width))
    zero: Law = {"up": up, "down": 1 - up}
    one: Law = {"up": up * math.exp(-width / 2), "down": (1 - up) * math.exp(width / 2)}
    assert sum(one.values()) == pytest.approx(1)
    losses: list[Loss] = [BoundedRange(2, Fraction(1, 2)), Pure(Fraction(1, 4))]
    best = price(losses, delta)
    first, second = [zero, zero, geometric(0.25, 0)], [one, one, geometric(0.25, 1)]
    assert true_delta(first, second, best.epsilon) <= best.delta + 1e-12
    assert true_delta(second, first, best.epsilon) <= best.delta + 1e-12


def test_one_large_pure_loss_is_added_plainly() -> None:
    best = price([Pure(Fraction(3)), Booked(Fraction(1, 100))], 1e-6)
    assert best.method == "pure plus integer orders"
    assert best.epsilon == pytest.approx(3.6217, abs=1e-4)
    assert Fraction(best.epsilon) >= 3 + Fraction(epsilon_from_rho(Fraction(1, 100), 1e-6))


def test_bad_mass_is_taken_from_delta_first() -> None:
    loss = Booked(Fraction(1, 2), bad=Fraction(1, 4))
    assert price([loss], 0.75).epsilon == epsilon_from_rho(Fraction(1, 2), 0.5)


@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_price_of_releases_of_each_kind_covers_their_exact_loss(delta: float) -> None:
    leak = delta / 4
    losses: list[Loss] = [Pure(Fraction(1, 2)), Booked(Fraction(1, 8), bad=Fraction(leak))]
    best = price(losses, delta)
    zero, one = ([geometric(0.5, n), mostly(gaussian(4, n), leak, f"secret {n}")] for n in (0, 1))
    assert true_delta(zero, one, best.epsilon) <= best.delta
    assert true_delta(one, zero, best.epsilon) <= best.delta
    # The enumeration sees a loss that is left out.
    assert true_delta(zero, one, price(losses[1:], delta).epsilon) > delta


def test_the_price_covers_noise_at_a_distance_from_the_ideal() -> None:
    distance = 1e-6
    best = price([Booked(Fraction(1, 2)), Booked(Fraction(1, 8), distance=Fraction(distance))], 1e-3)
    zero, one = ([gaussian(1, n), mostly(gaussian(4, n), distance, f"secret {n}")] for n in (0, 1))
    assert true_delta(zero, one, best.epsilon) <= best.delta


@given(st.lists(BY_ORDERS, min_size=1, max_size=5), st.floats(-7, -2).map(lambda power: float(10**power)))
def test_the_price_solves_its_own_equation_and_little_less_does_not(losses: list[Loss], delta: float) -> None:
    ledger = one_entry(losses)
    try:
        best = price(losses, delta)
    except ParameterError:
        # What is refused has no solution, give or take one percent of the distance.
        more = Booked(ledger.rho, ledger.bad, ledger.distance * Fraction(101, 100))
        assert not any(is_solution(more, delta, step / 4) for step in range(160))
        return
    assert best.delta == delta if ledger.rho else best.delta <= delta
    assert is_solution(ledger, delta, best.epsilon)
    if best.epsilon > 0:
        assert not is_solution(ledger, delta, best.epsilon * (1 - 1e-6))


def test_a_distance_is_priced_soundly_up_to_the_edge_and_refused_beyond() -> None:
    def at(distance: float) -> Booked:
        return Booked(Fraction(1, 2), distance=Fraction(distance))

    def is_priced(distance: float) -> bool:
        try:
            return is_solution(at(distance), 1e-6, price([at(distance)], 1e-6).epsilon)
        except ParameterError:
            return False

    # The largest distance for which some epsilon on a fine grid is a solution, within a thousandth.
    edge = max(
        distance
        for distance in (3e-9 * 1.002**step for step in range(200))
        if any(is_solution(at(distance), 1e-6, 5 + step / 50) for step in range(100))
    )
    assert 3e-9 < edge < 4e-9
    assert all(is_priced(edge * share) for share in (0.01, 0.5, 0.9, 0.99))
    assert not any(is_priced(edge * share) for share in (1.01, 1.1, 2, 100, 1e6))


@settings(deadline=None)
@given(st.lists(LOSS, max_size=4), LOSS)
def test_one_more_loss_never_lowers_the_price(losses: list[Loss], more: Loss) -> None:
    try:
        after = price([*losses, more], 1e-5)
    except ParameterError:
        return
    # A thousandth, because a pure statement may be preferred by as much; the grids are off by less.
    assert price(losses, 1e-5).epsilon <= after.epsilon * (1 + 1e-3) + 1e-12


@settings(deadline=None)
@given(st.lists(LOSS, max_size=4), st.floats(-7, -2), st.floats(-7, -2))
def test_more_delta_never_raises_the_price(losses: list[Loss], first: float, second: float) -> None:
    low, high = sorted((10**first, 10**second))
    try:
        before = price(losses, low)
    except ParameterError:
        return
    assert price(losses, high).epsilon <= before.epsilon * (1 + 1e-3) + 1e-12


def test_bad_mass_that_eats_delta_is_refused_with_the_way_out() -> None:
    with pytest.raises(ParameterError) as refusal:
        price([Booked(Fraction(1), bad=Fraction(1, 10**6))] * 2, 1e-6)
    assert str(refusal.value) == (
        "delta must be above the bad mass 2e-06 of the losses, got 1e-06; "
        "allow a larger delta, or make the losses take less"
    )


def test_a_distance_that_eats_delta_is_refused_with_the_way_out() -> None:
    with pytest.raises(ParameterError) as refusal:
        price([Booked(Fraction(1), distance=Fraction(1, 10**6))], 1e-6)
    assert str(refusal.value) == (
        "delta must be above the bad mass 0 of the losses plus (1 + e^epsilon) times their noise distance "
        "1e-06, got 1e-06; allow a larger delta, or make the losses take less"
    )


@pytest.mark.parametrize(
    ("delta", "message"),
    [
        (0, "delta must be above 0 unless every loss is pure, got 0"),
        (1.0, "delta must be above 0 and below 1, got 1.0"),
        (-0.5, "delta must be above 0 and below 1, got -0.5"),
        (math.nan, "delta must be above 0 and below 1, got nan"),
        (False, "delta must be a number, got False"),
    ],
)
def test_a_delta_that_cannot_be_is_refused(delta: float, message: str) -> None:
    with pytest.raises(ParameterError) as refusal:
        price([Booked(Fraction(1))], delta)
    assert str(refusal.value) == message


def test_a_mixed_loss_costs_what_its_two_parts_cost() -> None:
    mixed = Mixed(pure=Fraction(1, 2), rho=Fraction(1, 50), bad=Fraction(1, 10**8), distance=Fraction(1, 2**100))
    apart: list[Loss] = [Pure(Fraction(1, 2)), Booked(Fraction(1, 50), Fraction(1, 10**8), Fraction(1, 2**100))]
    assert price([mixed], 1e-6) == price(apart, 1e-6)


def test_a_large_pure_part_is_added_and_not_folded_into_rho() -> None:
    mixed = Mixed(pure=Fraction(1), rho=Fraction(1, 100))
    assert price([mixed], 1e-9).method == "pure plus integer orders"
    assert price([mixed], 1e-9).epsilon < price([mixed.as_booked()], 1e-9).epsilon
