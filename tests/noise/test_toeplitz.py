"""The lattice Toeplitz counter: factorisation, cost and rounding in exact rationals, variances by simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.noise.plan_algebra import worst_price
from tests.shared_checks import GivenNoise

from pianissimo.counting.compare import square_root
from pianissimo.errors import ParameterError
from pianissimo.noise import Noise, ToeplitzPlan, toeplitz
from pianissimo.noise.keyed import Keys
from pianissimo.noise.laws import LossTarget
from pianissimo.noise.plan import plan_loss, variance_at
from pianissimo.noise.running import rounded
from pianissimo.noise.toeplitz import exact_noise, lattice_column
from pianissimo.testing import NoNoise, SeededNoise

HALF = Fraction(1, 2)


def tuned(horizon: int, rho: float, bits: int | None = None) -> ToeplitzPlan:
    return ToeplitzPlan.tuned(horizon, LossTarget.of(rho=rho, epsilon=None), bits)


def exact_weights(column: tuple[int, ...]) -> list[Fraction]:
    """beta_k, by nothing but the definition: C beta = 1 / (1 - x)."""
    weights: list[Fraction] = []
    for place in range(len(column)):
        rest = sum((column[back] * weights[place - back] for back in range(1, place + 1)), start=Fraction(0))
        weights.append((1 - rest) / column[0])
    return weights


def draws_of(plan: ToeplitzPlan, noise: Noise, keys: Keys, ticks: int) -> list[list[int]]:
    """z_1 .. z_t of each series."""
    rows = []
    for node in range(1, ticks + 1):
        values = np.empty(len(keys), dtype=np.int64)
        plan.noise.draw(noise.at(0, node), keys, values)
        rows.append([int(value) for value in values])
    return [list(series) for series in zip(*rows, strict=True)]


def exact_rounded(weights: list[Fraction], draws: list[int], since: int = 0) -> int:
    def noise_at(tick: int) -> Fraction:
        return sum((weights[tick - node] * draws[node - 1] for node in range(1, tick + 1)), start=Fraction(0))

    return math.floor(noise_at(len(draws)) - noise_at(since) + HALF)


@pytest.mark.parametrize("horizon", [1, 2, 3, 8, 20, 33])
@pytest.mark.parametrize("bits", [1, 3, 6, None])
def test_the_plan_is_a_factorisation_of_running_sums(horizon: int, bits: int | None) -> None:
    plan = tuned(horizon, 0.5, bits)
    weights = exact_weights(lattice_column(horizon, plan.bits))
    for event in range(1, horizon + 1):
        column = {term.node: term.weight for term in plan.influence(event)}
        for tick in range(1, horizon + 1):
            product = sum(weights[tick - node] * column.get(node, 0) for node in range(1, tick + 1))
            assert product == (tick >= event)


@pytest.mark.parametrize("horizon", [1, 5, 64, 300])
def test_the_certified_cost_is_that_of_the_worst_column(horizon: int) -> None:
    for rho in (0.5, 0.013, Fraction(1, 7)):
        plan = ToeplitzPlan.calibrated(horizon=horizon, rho=rho)
        assert plan.cost == max(worst_price(plan.noises, plan.influence(event)) for event in range(1, horizon + 1))
        assert 0.98 * 2 * Fraction(rho) < plan.cost <= 2 * Fraction(rho)
        assert plan_loss(plan).as_booked().rho == plan.cost / 2


def test_the_lattice_column_is_rounded_to_the_nearest() -> None:
    for bits in (1, 4, 9):
        exact = [Fraction(math.comb(2 * k, k), 4**k) * 2**bits for k in range(50)]
        assert list(lattice_column(50, bits)) == [math.floor(value + HALF) for value in exact]


@pytest.mark.parametrize(("bits", "std"), [(6, 3.793), (8, 3.720), (12, 3.714)])
def test_the_errors_are_those_of_the_table(bits: int, std: float) -> None:
    plan = tuned(4096, 0.5, bits)
    assert math.sqrt(plan.variance_profile().max()) == pytest.approx(std, abs=5e-4)


def test_the_default_lattice_costs_next_to_nothing() -> None:
    for horizon in (8, 64, 256, 1024):
        plan = ToeplitzPlan.calibrated(horizon=horizon, rho=0.5)
        assert (
            1 <= math.sqrt(variance_at(plan, horizon)) / square_root(horizon, pure=False).max_std * (1 + 1e-9) < 1.008
        )


@pytest.mark.parametrize(("horizon", "bits"), [(64, None), (200, 6), (100, 2), (60, 13)])
def test_fixed_point_weights_are_within_their_bound(horizon: int, bits: int | None) -> None:
    plan = tuned(horizon, 0.5, bits)
    weights, exact = plan._weights, exact_weights(lattice_column(horizon, plan.bits))
    errors = [abs(entry - value * 2**256) for entry, value in zip(weights.fixed, exact, strict=True)]
    assert max(errors) <= weights.error <= 8
    assert weights.size >= sum(map(abs, exact))
    assert weights.floats.tolist() == [float(value) for value in exact]


def test_variances_are_those_of_the_exact_weights_rounded_up() -> None:
    plan = ToeplitzPlan.calibrated(horizon=40, rho=0.1)
    weights = exact_weights(lattice_column(40, plan.bits))
    for start, end in ((0, 1), (0, 40), (3, 4), (17, 40), (39, 40)):
        rows = [[weights[tick - node] if node <= tick else 0 for node in range(1, 41)] for tick in (start, end)]
        exact = sum((after - before) ** 2 for before, after in zip(*rows, strict=True)) * plan.noise.variance
        found = plan.difference_variance(start, end)
        assert exact <= found <= exact * (1 + Fraction(1, 10**60))
    profile = plan.variance_profile()
    assert [float(variance_at(plan, tick)) for tick in range(1, 41)] == pytest.approx(profile.tolist(), rel=1e-12)
    assert plan.variance_profile(7).tolist() == profile[:7].tolist()
    assert plan.variance_profile(np.array([5, 40])).tolist() == profile[[4, 39]].tolist()


@settings(max_examples=40, deadline=None)
@given(start=st.integers(0, 39), length=st.integers(1, 40))
def test_the_weights_of_an_interval_depend_on_its_length_alone(start: int, length: int) -> None:
    """As kept for a length they are those of both ends, one less the other; so are the sums of their squares."""
    plan = ToeplitzPlan.calibrated(horizon=40, rho=0.1)
    end, weights = min(start + length, 40), plan._weights
    expected = list(weights.fixed[end - 1 :: -1])
    for place, entry in enumerate(weights.fixed[start - 1 :: -1] if start else ()):
        expected[place] -= entry
    kept = plan._between(start, end)
    assert list(kept.fixed[end - 1 :: -1]) == expected
    assert kept.latest_last[-end:].tolist() == [math.ldexp(entry, -256) for entry in expected]
    squares = sum((abs(entry) + 2 * weights.error) ** 2 for entry in expected)
    assert plan.difference_variance(start, end) == Fraction(squares, 4**256) * plan.noise.variance


@pytest.mark.parametrize(("horizon", "rho", "bits"), [(64, 0.5, None), (64, 0.01, 3), (24, 5.0, 4), (64, 1e-7, 7)])
def test_the_noise_is_the_exact_value_rounded_down_from_a_half(horizon: int, rho: float, bits: int | None) -> None:
    plan = tuned(horizon, rho, bits)
    weights = exact_weights(lattice_column(horizon, plan.bits))
    keys = np.arange(600, dtype=np.uint64).reshape(-1, 2)
    noise = SeededNoise(17)
    for tick in sorted({1, 2, 3, 4, 7, horizon // 2, horizon - 1, horizon}):
        draws = draws_of(plan, noise, keys, tick)
        for since in {0, tick // 2}:
            found = plan.evaluate(noise, tick, keys, since=since)
            assert found.tolist() == [2 * exact_rounded(weights, series, since) for series in draws]


def test_ties_are_met_and_rounded_up() -> None:
    """At the first tick one draw in 2^b lies half-way; halves to even, or away from zero, would differ."""
    plan = tuned(16, 0.5, 3)
    keys = np.arange(4000, dtype=np.uint64).reshape(-1, 2)
    noise = SeededNoise(3)
    values = [Fraction(series[0], 8) for series in draws_of(plan, noise, keys, 1)]
    found = plan.evaluate(noise, 1, keys) // 2
    assert found.tolist() == [math.floor(value + HALF) for value in values]
    ties = [place for place, value in enumerate(values) if value % 1 == HALF]
    assert len(ties) > 100
    assert any(round(values[place]) != found[place] for place in ties)
    assert any(math.trunc(values[place] + (HALF if values[place] > 0 else -HALF)) != found[place] for place in ties)


@pytest.mark.parametrize("tick", [1, 5, 48, 49, 120])
@pytest.mark.parametrize("nudge", [-1, 0, 1])
def test_values_at_and_next_to_a_tie_are_decided_exactly(tick: int, nudge: int) -> None:
    """z = C x + 2^(b - 1) e_t has r_t = x_1 + .. + x_t + 1/2, whatever x; one more or less of z_1 moves it off."""
    plan = ToeplitzPlan.calibrated(horizon=128, rho=0.5)
    column = lattice_column(128, plan.bits)
    steps = np.random.default_rng(tick).integers(-3, 4, size=tick).tolist()
    draws = [sum(column[node - event] * steps[event] for event in range(node + 1)) for node in range(tick)]
    draws[-1] += 2 ** (plan.bits - 1)
    draws[0] += nudge
    expected = math.floor(Fraction(*_over(exact_noise(column, plan.bits, draws))) + HALF)
    assert expected == sum(steps) + (1 if nudge >= 0 else 0)
    given_noise = GivenNoise({(0, node + 1): draw for node, draw in enumerate(draws)})
    assert plan.evaluate(given_noise, tick, np.zeros((2, 2), np.uint64)).tolist() == [2 * expected] * 2


def _over(value: tuple[int, int]) -> tuple[int, int]:
    numerator, power = value
    return numerator, 2**power


@settings(max_examples=60, deadline=None)
@given(
    draws=st.lists(st.integers(-4000, 4000), min_size=1, max_size=30), since=st.integers(0, 29), bits=st.integers(1, 9)
)
def test_the_exact_recursion_is_the_sum_over_weights(draws: list[int], since: int, bits: int) -> None:
    since = min(since, len(draws) - 1)
    column = lattice_column(len(draws), bits)
    weights = exact_weights(column)
    numerator, power = exact_noise(column, bits, draws, since)
    assert math.floor(Fraction(numerator, 2**power) + HALF) == exact_rounded(weights, draws, since)


def test_all_three_steps_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a window that sends everything on, fixed point and exact arithmetic give what floating point gave."""
    plan = ToeplitzPlan.calibrated(horizon=200, rho=0.2)
    keys, noise = np.arange(60, dtype=np.uint64).reshape(-1, 2), SeededNoise(8)
    quick = [plan.evaluate(noise, tick, keys, since=since).tolist() for tick, since in ((30, 0), (200, 0), (200, 150))]
    monkeypatch.setattr(ToeplitzPlan, "_window", lambda *_: 1.0)
    fixed = [plan.evaluate(noise, tick, keys, since=since).tolist() for tick, since in ((30, 0), (200, 0), (200, 150))]
    monkeypatch.setattr(toeplitz, "_EXACT_TICKS", 200)
    exact = [plan.evaluate(noise, tick, keys, since=since).tolist() for tick, since in ((30, 0), (200, 0), (200, 150))]
    assert quick == fixed == exact


def test_the_floating_point_bound_holds_with_room() -> None:
    plan = ToeplitzPlan.calibrated(horizon=1024, rho=1e-6)
    keys, noise = np.arange(40, dtype=np.uint64).reshape(-1, 2), SeededNoise(21)
    for series in draws_of(plan, noise, keys, 1024):
        exact = Fraction(sum(map(int.__mul__, plan._weights.fixed, reversed(series))), 2**256)
        quick = float(plan._weights.floats[::-1] @ np.array(series, dtype=np.float64))
        assert abs(Fraction(quick) - exact) < plan._window(float(plan._weights.size), 1024) / 10


@settings(max_examples=40, deadline=None)
@given(
    horizon=st.integers(1, 40),
    moves=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12)), min_size=1, max_size=8),
)
def test_step_by_step_and_from_nothing_are_equal(horizon: int, moves: list[tuple[int, int]]) -> None:
    """Whatever the order of ticks, and whenever series appear, the cache gives what the stateless path gives."""
    plan, noise = ToeplitzPlan.calibrated(horizon=horizon, rho=0.05), SeededNoise(5)
    keys = np.arange(40, dtype=np.uint64).reshape(-1, 2)
    running = plan.running_noise()
    for tick, count in moves:
        tick = min(tick, horizon)
        found = running.at(noise, tick, count, lambda first, last: keys[first:last])
        assert found.tolist() == plan.evaluate(noise, tick, keys[:count]).tolist()


def test_another_noise_starts_anew() -> None:
    plan, keys = ToeplitzPlan.calibrated(horizon=64, rho=0.1), np.zeros((1, 2), dtype=np.uint64)
    running = plan.running_noise()
    running.at(SeededNoise(1), 3, 1, lambda *_: keys)
    found = running.at(SeededNoise(2), 4, 1, lambda *_: keys)
    assert found.tolist() == plan.evaluate(SeededNoise(2), 4, keys).tolist()


def test_an_interrupted_draw_is_not_taken_for_a_finished_one() -> None:
    plan, keys, noise = ToeplitzPlan.calibrated(horizon=64, rho=0.1), np.zeros((2, 2), dtype=np.uint64), SeededNoise(1)
    running = plan.running_noise()
    running.at(noise, 3, 1, lambda first, last: keys[first:last])

    def interrupt(*_: int) -> Keys:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        running.at(noise, 5, 2, interrupt)
    found = running.at(noise, 5, 2, lambda first, last: keys[first:last])
    assert found.tolist() == plan.evaluate(noise, 5, keys).tolist()


def test_the_noise_is_a_whole_number_to_the_release() -> None:
    plan, keys = ToeplitzPlan.calibrated(horizon=64, rho=0.01), np.arange(200, dtype=np.uint64).reshape(-1, 2)
    numerators = plan.evaluate(SeededNoise(1), 40, keys)
    assert (numerators % 2 == 0).all()
    assert rounded(np.full(100, 7), numerators, plan.shift).tolist() == (7 + numerators // 2).tolist()
    assert plan.evaluate(NoNoise(), 40, keys).tolist() == [0] * 100


def test_many_keys_are_evaluated_in_parts() -> None:
    plan, noise = ToeplitzPlan.calibrated(horizon=8, rho=0.01), SeededNoise(1)
    keys = np.arange(2 * 5000, dtype=np.uint64).reshape(-1, 2)
    together = plan.evaluate(noise, 5, keys)
    assert together[4000:].tolist() == plan.evaluate(noise, 5, keys[4000:]).tolist()


@pytest.mark.parametrize(("tick", "since"), [(1, 0), (40, 0), (256, 0), (256, 200)])
def test_simulated_variances_are_those_stated(tick: int, since: int) -> None:
    """False alarm rate 1e-9 a case: the sample variance of n normal values is within 6.2 standard errors.

    Its twin, a claim of 10 % less standard deviation, is refused.
    """
    plan, series = ToeplitzPlan.calibrated(horizon=256, rho=0.05), 20_000
    keys = np.arange(2 * series, dtype=np.uint64).reshape(-1, 2)
    values = plan.evaluate(SeededNoise(12), tick, keys, since=since) / 2
    stated = float(plan.difference_variance(since, tick)) + 1 / 12
    tolerance = 6.2 * math.sqrt(2 / series)
    assert abs(values.var() / stated - 1) < tolerance
    assert abs(values.var() / (0.81 * stated) - 1) > tolerance
    assert abs(values.mean()) < 6.2 * math.sqrt(stated / series) + 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 4097, "rho": 0.5}, "at most 4096, got 4097; take a haar or spline plan"),
        ({"horizon": 0, "rho": 0.5}, "horizon must be a whole number of at least 1, got 0"),
        ({"horizon": 8, "rho": 0.5, "bits": 0}, "bits must be a whole number of at least 1, got 0"),
        ({"horizon": 8, "rho": 0.5, "bits": 21}, "bits must be at most 20, got 21"),
        ({"horizon": 8, "rho": math.nan}, "rho must be finite and positive, got nan"),
        ({"horizon": 8, "rho": 1e-20}, "sigma must be between 0.1 and 4e9"),
    ],
)
def test_impossible_plans_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        tuned(**arguments) if "bits" in arguments else ToeplitzPlan.calibrated(**arguments)  # type: ignore[arg-type]


def test_it_never_passes_for_a_plan_with_dyadic_weights() -> None:
    with pytest.raises(ParameterError, match="not over a power of two"):
        ToeplitzPlan.calibrated(horizon=8, rho=0.5).terms_at(3)


def test_equal_parameters_are_equal_plans() -> None:
    plan = ToeplitzPlan.calibrated(horizon=8, rho=0.5)
    assert plan == ToeplitzPlan.calibrated(horizon=8, rho=0.5)
    assert repr(plan) == "ToeplitzPlan(horizon=8, bits=4, noise=GaussianNode(variance=Fraction(438, 1)))"
