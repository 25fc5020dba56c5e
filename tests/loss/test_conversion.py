import math
import time
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise

import dp_accounting
import mpmath
import pytest
from dp_accounting import rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.loss.delta_at_orders import delta_from_rho

from pianissimo.errors import ParameterError
from pianissimo.loss.conversion import epsilon_from_rho, rho_from_budget

RHOS = st.floats(-12, 6).map(lambda power: Fraction(10**power))
DELTAS = st.floats(-30, -0.01).map(lambda power: float(10**power))
EPSILONS = st.floats(-6, 4).map(lambda power: float(10**power))
SIGMA2S = (1, 4, 16)


def plain_epsilon(order: int, rho: float, delta: float) -> float:
    """Proposition 12 as it is printed, without any rounding rule."""
    return order * rho + math.log(1 - 1 / order) + (math.log(1 / delta) - math.log(order)) / (order - 1)


def plain_log_delta(order: int, rho: float, epsilon: float) -> float:
    return (order - 1) * (order * rho - epsilon) + order * math.log(1 - 1 / order) - math.log(order - 1)


def precise_epsilon(order: int, rho: Fraction, delta: float) -> mpmath.mpf:
    a = mpmath.mpf(order)
    exact_rho = mpmath.mpf(rho.numerator) / rho.denominator
    return a * exact_rho + mpmath.log1p(-1 / a) - mpmath.log(mpmath.mpf(delta) * a) / (a - 1)


def precise_best_epsilon(rho: Fraction, delta: float) -> mpmath.mpf:
    """The minimum over whole orders in 60 digits, by bisection on its differences."""
    with mpmath.workdps(60):
        low, high = 2, 10**10
        while low < high:
            middle = (low + high) // 2
            if precise_epsilon(middle + 1, rho, delta) >= precise_epsilon(middle, rho, delta):
                high = middle
            else:
                low = middle + 1
        return max(mpmath.mpf(0), precise_epsilon(low, rho, delta))


@cache
def discrete_gaussian(sigma2: int, offset: float = 0.0) -> tuple[mpmath.mpf, ...]:
    """Masses of exp(-(k + offset)^2 / (2 sigma2)) for k in -150..150: what is cut off is below 1e-300."""
    with mpmath.workdps(60):
        masses = [mpmath.exp(-((k + mpmath.mpf(offset)) ** 2) / (2 * sigma2)) for k in range(-150, 151)]
        total = mpmath.fsum(masses)
        return tuple(mass / total for mass in masses)


def exact_delta(sigma2: int, epsilon: float, offset: float = 0.0) -> mpmath.mpf:
    """The smallest true delta of a count with discrete Gaussian noise, from its law."""
    masses = discrete_gaussian(sigma2, offset)
    with mpmath.workdps(60):
        growth = mpmath.exp(mpmath.mpf(epsilon))
        there = mpmath.fsum(max(0, p - growth * q) for p, q in pairwise(masses))
        back = mpmath.fsum(max(0, q - growth * p) for p, q in pairwise(masses))
        return max(there, back)


def exact_epsilon(sigma2: int, delta: float, offset: float = 0.0) -> float:
    """A lower end of the smallest true epsilon at delta."""
    low, high = 0.0, 60.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        if exact_delta(sigma2, middle, offset) > delta:
            low = middle
        else:
            high = middle
    return low


def continuous_gaussian_delta(rho: Fraction, epsilon: float) -> float:
    """The mutant: true of continuous noise, false of integer noise."""
    mu = mpmath.sqrt(2 * mpmath.mpf(rho.numerator) / rho.denominator)
    upper, lower = mpmath.ncdf(mu / 2 - epsilon / mu), mpmath.ncdf(-mu / 2 - epsilon / mu)
    return float(upper - mpmath.exp(epsilon) * lower)


def understates(claim: Callable[[Fraction, float], float], sigma2: int, epsilon: float) -> bool:
    return bool(claim(Fraction(1, 2 * sigma2), epsilon) < exact_delta(sigma2, epsilon))


@pytest.mark.parametrize(
    ("rho", "delta", "epsilon", "order"),
    [
        ("0.01", 1e-6, 0.6217, 33),
        ("0.1", 1e-6, 2.1430, 12),
        ("0.5", 1e-6, 5.2224, 6),
        ("1", 1e-6, 7.8284, 5),
        ("0.01", 1e-9, 0.8102, None),
        ("0.1", 1e-9, 2.7170, None),
        ("0.5", 1e-9, 6.4754, None),
        ("1", 1e-9, 9.5553, None),
    ],
)
def test_it_gives_the_table_of_the_card(rho: str, delta: float, epsilon: float, order: int | None) -> None:
    assert round(epsilon_from_rho(Fraction(rho), delta), 4) == epsilon
    if order is not None:
        assert min(range(2, 200), key=lambda a: plain_epsilon(a, float(rho), delta)) == order


@pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("rho", ["0.0001", "0.003", "0.02", "0.1", "0.37", "0.5", "1", "2.5", "7", "40", "1000"])
def test_no_order_is_better_than_the_one_found(rho: str, delta: float) -> None:
    best = max(0.0, min(plain_epsilon(order, float(rho), delta) for order in range(2, 3000)))
    assert best <= epsilon_from_rho(Fraction(rho), delta) <= best + 1e-8 * (1 + best)
    for epsilon in (0.0, 0.01, 0.5, 1.0, 5.0, 30.0):
        log_best = min(0.0, min(plain_log_delta(order, float(rho), epsilon) for order in range(2, 5000)))
        if log_best > -700 and epsilon / float(rho) < 9000:
            ours = math.log(delta_from_rho(Fraction(rho), epsilon))
            assert log_best <= ours <= log_best + 1e-8 * (1 - log_best) * (1 + epsilon**2 / float(rho))


@pytest.mark.parametrize("delta", [0.9, 1e-3, 1e-9, 1e-18])
@pytest.mark.parametrize("power", [-12, -9, -6, -3, 0, 3, 6])
def test_rounding_is_upwards_and_small_from_tiny_to_huge_losses(power: int, delta: float) -> None:
    rho = Fraction(10) ** power * Fraction(17, 13)
    best = precise_best_epsilon(rho, delta)
    assert best <= epsilon_from_rho(rho, delta) <= best * (1 + 1e-7) + mpmath.mpf(1e-15)


def test_tiny_losses_are_priced_in_no_time() -> None:
    start = time.process_time()
    for power in range(12, 112):
        epsilon_from_rho(Fraction(1, 10**power), Fraction(1, 10**300))
        delta_from_rho(Fraction(1, 10**power), 1.0)
    assert time.process_time() - start < 1


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-9, 1e-15])
@pytest.mark.parametrize("sigma2", SIGMA2S)
def test_it_never_understates_the_exact_loss(sigma2: int, delta: float) -> None:
    priced = epsilon_from_rho(Fraction(1, 2 * sigma2), delta)
    assert priced >= exact_epsilon(sigma2, delta)
    assert exact_delta(sigma2, priced) <= delta


@pytest.mark.parametrize("offset", [0.1, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("sigma2", SIGMA2S)
def test_it_covers_noise_whose_lattice_an_adaptive_input_has_shifted(sigma2: int, offset: float) -> None:
    for delta in (1e-3, 1e-6, 1e-9):
        assert exact_delta(sigma2, epsilon_from_rho(Fraction(1, 2 * sigma2), delta), offset) <= delta


def test_the_exact_worst_case_of_the_card_is_reached_and_covered() -> None:
    worst = max(exact_epsilon(1, 1e-6, offset / 20) for offset in range(20))
    assert worst == pytest.approx(5.035, abs=0.002)
    assert worst <= epsilon_from_rho(Fraction(1, 2), 1e-6)


@pytest.mark.parametrize("sigma2", SIGMA2S)
def test_delta_is_never_understated_either(sigma2: int) -> None:
    assert not any(understates(delta_from_rho, sigma2, step / 8) for step in range(80))


def test_the_continuous_gaussian_formula_is_caught_and_ours_is_not() -> None:
    ratio = exact_delta(1, 5.33) / continuous_gaussian_delta(Fraction(1, 2), 5.33)
    assert ratio == pytest.approx(2.1, abs=0.05)
    assert understates(continuous_gaussian_delta, 1, 5.33)
    assert not understates(delta_from_rho, 1, 5.33)


@pytest.mark.parametrize("sigma2", [4, 16])
def test_the_continuous_gaussian_formula_is_caught_at_other_variances(sigma2: int) -> None:
    assert any(understates(continuous_gaussian_delta, sigma2, step / 100) for step in range(400))


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("rho", ["0.001", "0.01", "0.1", "0.5", "1", "3", "20"])
def test_it_agrees_with_google_at_integer_orders(rho: str, delta: float) -> None:
    event = dp_accounting.dp_event.ZCDpEvent(rho=float(rho))
    theirs = rdp.RdpAccountant(orders=list(range(2, 1000))).compose(event).get_epsilon(delta)
    ours = epsilon_from_rho(Fraction(rho), delta)
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert ours >= theirs - 1e-12


@pytest.mark.parametrize("noise_multiplier", [0.5, 1.0, 3.0])
def test_many_gaussians_cost_what_google_says(noise_multiplier: float) -> None:
    accountant = rdp.RdpAccountant(orders=list(range(2, 1000)))
    accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier), count=7)
    ours = epsilon_from_rho(7 / (2 * Fraction(noise_multiplier) ** 2), 1e-6)
    assert ours == pytest.approx(accountant.get_epsilon(1e-6), abs=1e-6)
    assert ours >= accountant.get_epsilon(1e-6) - 1e-12


@given(RHOS, RHOS, DELTAS)
def test_more_loss_costs_more_epsilon(first: Fraction, second: Fraction, delta: float) -> None:
    less, more = sorted((first, second))
    assert epsilon_from_rho(less, delta) <= epsilon_from_rho(more, delta) * (1 + 1e-12) + 1e-14


@given(RHOS, DELTAS, DELTAS)
def test_more_delta_costs_less_epsilon(rho: Fraction, first: float, second: float) -> None:
    less, more = sorted((first, second))
    assert epsilon_from_rho(rho, more) <= epsilon_from_rho(rho, less) * (1 + 1e-12) + 1e-14


@given(RHOS, EPSILONS, EPSILONS)
def test_more_epsilon_costs_less_delta(rho: Fraction, first: float, second: float) -> None:
    less, more = sorted((first, second))
    assert delta_from_rho(rho, more) <= delta_from_rho(rho, less) * (1 + 1e-6)


@settings(max_examples=300)
@given(EPSILONS, DELTAS)
def test_a_budget_is_never_overspent_and_hardly_underspent(epsilon: float, delta: float) -> None:
    rho = rho_from_budget(epsilon, delta)
    assert rho > 0
    assert epsilon_from_rho(rho, delta) <= epsilon
    assert epsilon_from_rho(rho * (1 + Fraction(1, 10**9)), delta) > epsilon


@given(RHOS, DELTAS)
def test_rho_comes_back_from_its_epsilon(rho: Fraction, delta: float) -> None:
    epsilon = epsilon_from_rho(rho, delta)
    if epsilon > 1e-3 * rho:
        assert float(rho_from_budget(epsilon, delta) / rho) == pytest.approx(1, rel=1e-9)


@given(st.floats(-4, 1).map(lambda power: Fraction(10**power)), st.floats(-15, -2).map(lambda p: float(10**p)))
def test_delta_comes_back_from_its_epsilon(rho: Fraction, delta: float) -> None:
    epsilon = epsilon_from_rho(rho, delta)
    if epsilon > 0:
        assert delta_from_rho(rho, epsilon) == pytest.approx(delta, rel=1e-5)


@given(RHOS, DELTAS)
def test_a_fraction_for_delta_means_the_same_as_its_float(rho: Fraction, delta: float) -> None:
    assert epsilon_from_rho(rho, Fraction(delta)) == epsilon_from_rho(rho, delta)


def test_no_loss_costs_nothing() -> None:
    assert epsilon_from_rho(Fraction(0), 1e-9) == 0
    assert delta_from_rho(Fraction(0), 0) == 0


def test_a_delta_below_every_float_is_still_a_delta() -> None:
    epsilon = epsilon_from_rho(Fraction(1, 2), Fraction(1, 10**400))
    assert epsilon > epsilon_from_rho(Fraction(1, 2), Fraction(1, 10**300))
    assert epsilon == pytest.approx(min(a / 2 + 400 * math.log(10) / (a - 1) for a in range(2, 99)), rel=0.01)


def test_extreme_losses_neither_overflow_nor_become_free() -> None:
    assert epsilon_from_rho(Fraction(10**400), 1e-6) == math.inf
    assert delta_from_rho(Fraction(10**400), 5.0) == 1
    assert delta_from_rho(Fraction(10**50), 5.0) == 1
    assert 0 < delta_from_rho(Fraction(1, 10**400), Fraction(10**400)) < 1e-300
    assert epsilon_from_rho(rho_from_budget(Fraction(10**400), 1e-6), 1e-6) <= 10**400
    assert 0 < rho_from_budget(Fraction(1, 10**300), 1e-9) < 1e-17


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: epsilon_from_rho(Fraction(-1), 0.1), "rho must not be negative, got -1.0"),
        (lambda: epsilon_from_rho(0.5, 0.1), "rho must be an exact Fraction, got float"),  # type: ignore[arg-type]
        (lambda: epsilon_from_rho(Fraction(1), 0.0), "delta must be above 0 and below 1, got 0.0"),
        (lambda: epsilon_from_rho(Fraction(1), math.nan), "delta must be above 0 and below 1, got nan"),
        (lambda: epsilon_from_rho(Fraction(1), 1.0), "delta must be above 0 and below 1, got 1.0"),
        (lambda: delta_from_rho(Fraction(1), -1.0), "epsilon must be finite and positive, got -1.0"),
        (lambda: delta_from_rho(Fraction(1), math.nan), "epsilon must be finite and positive, got nan"),
        (lambda: delta_from_rho(Fraction(1), False), "epsilon must be a number, got False"),
        (lambda: rho_from_budget(math.inf, 0.1), "epsilon must be finite and positive, got inf"),
        (lambda: rho_from_budget(0, 0.1), "epsilon must be finite and positive, got 0"),
        (lambda: rho_from_budget(1.0, 0), "delta must be above 0 and below 1, got 0"),
    ],
)
def test_what_cannot_be_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError) as refusal:
        call()
    assert str(refusal.value) == message
