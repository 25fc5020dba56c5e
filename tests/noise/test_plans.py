"""Noise plans in exact rationals: B C = M, certified cost, variances, and the tables they are compared by."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.noise.plan_algebra import covariance_at, worst_price

from pianissimo.errors import ParameterError
from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, TopDownPlan, TreePlan, best_base
from pianissimo.noise.laws import GaussianNode, LossTarget
from pianissimo.noise.plan import NoisePlan, half_width, terms_of, variance_at
from pianissimo.noise.running import PlanNoise, evaluate, rounded
from pianissimo.noise.spline import TOP_FACTOR, certified_cost
from pianissimo.noise.tree import digits_of, largest_digit_sum
from pianissimo.testing import NoNoise, SeededNoise

Make = Callable[..., NoisePlan]
GAUSSIAN: list[Make] = [HaarPlan.calibrated, HaarSkipPlan.calibrated, SplinePlan.calibrated, DoublingPlan.calibrated]
LAPLACE: list[Make] = [HaarPlan.calibrated, TreePlan.calibrated, TopDownPlan.calibrated, DoublingPlan.calibrated]


def small_plans() -> Iterator[NoisePlan]:
    for horizon in (1, 2, 3, 7, 8, 9, 26, 27, 28):
        yield from (make(horizon=horizon, rho=0.5) for make in GAUSSIAN)
        yield from (make(horizon=horizon, epsilon=1.0) for make in LAPLACE)
        for base in (2, 3, 5, horizon + 1):
            yield TreePlan.calibrated(horizon=horizon, rho=0.5, base=max(2, base))


SMALL_PLANS = list(small_plans())


def factorisation_problems(plan: NoisePlan) -> list[str]:
    """Whether B C is the matrix of running sums, and the certified cost that of the worst column."""
    problems = []
    worst = Fraction(0)
    for event in range(1, plan.horizon + 1):
        column = {(term.level, term.node): term.weight for term in plan.influence(event)}
        worst = max(worst, worst_price(plan.noises, plan.influence(event)))
        for tick in range(1, plan.horizon + 1):
            product = sum(term.weight * column.get((term.level, term.node), 0) for term in terms_of(plan, tick))
            if Fraction(product, 2**plan.shift) != (tick >= event):
                problems.append(f"row {tick}, column {event}")
    if plan.cost < worst:
        problems.append("the cost is certified too low")
    if not cost_is_tight(plan, worst):
        problems.append("the cost is not that of the worst column")
    return problems


def cost_is_tight(plan: NoisePlan, worst: Fraction) -> bool:
    """Exactly, but for what two plans round against us: nodes cut off at the edges, ticks that a horizon leaves out."""
    if isinstance(plan, SplinePlan):
        return worst >= plan.cost * Fraction(9, 10) or plan.horizon < 4**plan.height
    if isinstance(plan, DoublingPlan):
        return worst >= plan.cost * Fraction(9, 10)
    return worst == plan.cost


@pytest.mark.parametrize("plan", SMALL_PLANS, ids=lambda plan: f"{plan.name}-{plan.horizon}")
def test_the_plan_is_a_factorisation_of_running_sums(plan: NoisePlan) -> None:
    assert factorisation_problems(plan) == []


def test_the_haar_plan_is_a_factorisation_for_larger_horizons() -> None:
    assert factorisation_problems(HaarPlan.calibrated(horizon=256, rho=0.5)) == []


@dataclass(frozen=True, kw_only=True)
class FloatingPointTree(TreePlan):
    """The mutant: the number of levels from a floating-point logarithm, one too few for 243 = 3^5."""

    @property
    def levels(self) -> int:
        return int(math.log(self.horizon, self.base)) + 1


def test_a_floating_point_digit_count_is_caught() -> None:
    assert len(digits_of(243, 3)) == 6
    broken = FloatingPointTree(base=3, noise=GaussianNode(Fraction(3)), horizon=243)
    assert broken.levels == 5
    assert factorisation_problems(broken) != []
    assert factorisation_problems(TreePlan(base=3, noise=GaussianNode(Fraction(3)), horizon=243)) == []


def test_all_powers_have_one_digit_more_than_their_exponent() -> None:
    for base in range(2, 40):
        power = base
        while power < 10**9:
            assert len(digits_of(power, base)) == len(digits_of(power - 1, base)) + 1
            power *= base


@pytest.mark.parametrize("plan", SMALL_PLANS, ids=lambda plan: f"{plan.name}-{plan.horizon}")
def test_weights_and_nodes_stay_within_what_the_plan_states(plan: NoisePlan) -> None:
    nodes = set()
    peaks = [0] * len(plan.noises)
    for tick in range(1, plan.horizon + 1):
        sums = [0] * len(plan.noises)
        for term in terms_of(plan, tick):
            nodes.add((term.level, term.node))
            sums[term.level] += abs(term.weight)
        peaks = [max(pair) for pair in zip(peaks, sums, strict=True)]
    assert len(nodes) <= plan.node_count
    assert all(peak <= stated for peak, stated in zip(peaks, plan.peak_weights, strict=True))


@pytest.mark.parametrize("plan", SMALL_PLANS, ids=lambda plan: f"{plan.name}-{plan.horizon}")
def test_the_variance_profile_is_the_exact_variance(plan: NoisePlan) -> None:
    exact = [float(variance_at(plan, tick)) for tick in range(1, plan.horizon + 1)]
    assert plan.variance_profile() == pytest.approx(exact, rel=1e-12)
    # Of all ticks a level is worked out over one period, of others at each tick.
    some = np.array([plan.horizon, 1, plan.horizon // 2 + 1])
    assert plan.variance_profile(some) == pytest.approx([exact[tick - 1] for tick in some], rel=1e-12)


@pytest.mark.parametrize("rho", [0.5, 0.0244, 3.0, Fraction(1, 7)])
@pytest.mark.parametrize("make", [HaarPlan.calibrated, TreePlan.calibrated])
def test_calibration_stays_within_its_loss_and_close_to_it(
    make: Callable[..., NoisePlan], rho: Fraction | float
) -> None:
    for horizon in (1, 24, 365, 4096, 525_600):
        cost = make(horizon=horizon, rho=rho).cost
        assert 0.96 * 2 * Fraction(rho) < cost <= 2 * Fraction(rho)


def test_trees_have_the_errors_of_the_table() -> None:
    """Card 'Continual counting', table 2a, rho = 0.5: binary tree and BaseMech with its best base."""
    rows = {
        2**8: (8.49, 6.00, 6.93, 4.91, 7),
        2**12: (12.5, 8.83, 10.5, 7.41, 6),
        2**16: (16.5, 11.7, 13.7, 9.73, 5),
    }
    for horizon, (binary_max, binary_rms, best_max, best_rms, base) in rows.items():
        binary = TreePlan.calibrated(horizon=horizon, rho=0.5, base=2).variance_profile()
        best = TreePlan.calibrated(horizon=horizon, rho=0.5).variance_profile()
        assert best_base(horizon) == base
        found = [binary.max() ** 0.5, binary.mean() ** 0.5, best.max() ** 0.5, best.mean() ** 0.5]
        assert found == pytest.approx([binary_max, binary_rms, best_max, best_rms], rel=5e-3)


def test_the_haar_plan_has_the_errors_of_the_table() -> None:
    rows = {2**8: (3.53, 2.98), 2**12: (4.87, 4.13), 2**16: (6.20, 5.28), 2**20: (7.53, 6.44)}
    for horizon, (largest, typical) in rows.items():
        profile = HaarPlan.calibrated(horizon=horizon, rho=0.5).variance_profile()
        assert [profile.max() ** 0.5, profile.mean() ** 0.5] == pytest.approx([largest, typical], rel=3e-3)


def test_the_haar_plan_has_the_variances_of_the_card() -> None:
    plan = HaarPlan.calibrated(horizon=4096, rho=0.5)
    assert [round(float(noise.variance), 2) for noise in plan.noises[:4]] == [7.16, 11.69, 13.5, 14.09]
    assert float(plan.cost / 2) == pytest.approx(0.49973, abs=5e-6)
    expected = {1: 4.060, 100: 10.976, 1365: 20.724, 2048: 5.367, 3413: 23.706, 4096: 7.156}
    assert [float(variance_at(plan, tick)) for tick in expected] == pytest.approx(list(expected.values()), abs=2e-3)


def test_the_haar_weights_are_those_of_the_card() -> None:
    terms = HaarPlan.calibrated(horizon=8, rho=0.5).terms_at(3)
    assert [(term.level, term.node, Fraction(term.weight, 8)) for term in terms] == [
        (0, 0, Fraction(3, 8)),
        (1, 1, Fraction(1, 2)),
        (2, 0, Fraction(1, 4)),
        (3, 0, Fraction(3, 8)),
    ]


def test_the_best_base_is_the_best_by_brute_force() -> None:
    for horizon in range(1, 300):
        products = {
            base: len(digits_of(horizon, base)) * max(sum(digits_of(tick, base)) for tick in range(1, horizon + 1))
            for base in range(2, horizon + 2)
        }
        chosen = best_base(horizon)
        assert products[chosen] == min(products.values())
        assert chosen == min(base for base, product in products.items() if product == products[chosen])


def test_scales_of_the_first_figure() -> None:
    """Card section 4: exact scale of base 2 and of the best base, in units of tau."""
    rows = {
        100: (6.48, 5, 5.74),
        365: (8.49, 5, 7.21),
        1000: (9.49, 4, 8.37),
        10_000: (13.49, 5, 11.49),
        10**6: (19.49, 4, 17.03),
    }
    for horizon, (binary, base, best) in rows.items():
        scales = [math.sqrt(len(digits_of(horizon, r)) * largest_digit_sum(horizon, r)) for r in (2, base)]
        assert best_base(horizon) == base
        assert scales == pytest.approx([binary, best], abs=6e-3)


@settings(max_examples=60, deadline=None)
@given(
    horizon=st.integers(1, 40),
    base=st.sampled_from([None, 2, 3, 7]),
    arrivals=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    start=st.integers(1, 40),
)
def test_step_by_step_and_from_nothing_are_equal(
    horizon: int, base: int | None, arrivals: list[int], start: int
) -> None:
    """Whatever the first tick, and whenever series appear, the cache gives what the stateless path gives."""
    plan = (
        HaarPlan.calibrated(horizon=horizon, rho=0.01)
        if base is None
        else TreePlan.calibrated(horizon=horizon, rho=0.01, base=base)
    )
    noise = SeededNoise(5)
    keys = np.arange(2 * 200, dtype=np.uint64).reshape(-1, 2)
    cached, count = PlanNoise(plan), 0
    for tick, more in zip(range(start, horizon + 1), arrivals, strict=False):
        count += more
        found = cached.at(noise, tick, count, lambda first, last: keys[first:last])
        assert (found == evaluate(plan, noise, tick, keys[:count])).all()


def test_a_jump_in_time_starts_anew() -> None:
    plan, noise = HaarPlan.calibrated(horizon=64, rho=0.1), SeededNoise(5)
    keys = np.arange(20, dtype=np.uint64).reshape(-1, 2)
    cached = PlanNoise(plan)
    for tick in (3, 4, 4, 9, 2, 3, 64):
        assert (
            cached.at(noise, tick, 10, lambda first, last: keys[first:last]) == evaluate(plan, noise, tick, keys)
        ).all()


def test_another_noise_starts_anew() -> None:
    plan, keys = HaarPlan.calibrated(horizon=64, rho=0.1), np.zeros((1, 2), dtype=np.uint64)
    cached = PlanNoise(plan)
    cached.at(SeededNoise(1), 1, 1, lambda *_: keys)
    assert cached.at(SeededNoise(2), 2, 1, lambda *_: keys) == evaluate(plan, SeededNoise(2), 2, keys)


def test_covariances_follow_from_shared_nodes() -> None:
    plan = TreePlan(base=3, noise=GaussianNode(Fraction(1)), horizon=26)
    for tick in range(1, 27):
        for other in range(1, 27):
            shared = {(t.level, t.node) for t in terms_of(plan, tick)} & {
                (t.level, t.node) for t in terms_of(plan, other)
            }
            assert covariance_at(plan, tick, other) == len(shared)


def test_without_noise_nothing_is_added() -> None:
    plan = HaarPlan.calibrated(horizon=64, rho=0.1)
    assert evaluate(plan, NoNoise(), 33, np.zeros((3, 2), np.uint64)).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: TreePlan.calibrated(horizon=0, rho=0.5),
            "horizon must be a whole number of at least 1, got 0",
        ),
        (
            lambda: HaarPlan.calibrated(horizon=0, rho=0.5),
            "horizon must be a whole number of at least 1, got 0",
        ),
        (
            lambda: HaarPlan.calibrated(horizon=8, rho=float("nan")),
            "rho must be finite and positive, got nan",
        ),
        (lambda: HaarPlan.calibrated(horizon=2**60, rho=0.5), "must fit in 62 bits"),
        (lambda: HaarPlan.calibrated(horizon=8, rho=1e-21), "sigma must be between 0.1 and 4e9"),
        (
            lambda: HaarPlan(levels=2, noises=(GaussianNode(Fraction(1)),) * 2, horizon=4),
            "noises must be one a level and one beside them, 3, got 2",
        ),
        (
            lambda: HaarPlan(levels=2, noises=(GaussianNode(Fraction(1)),) * 3, horizon=5),
            "horizon must be at most the 4 leaves",
        ),
        (
            lambda: TreePlan(base=1, noise=GaussianNode(Fraction(1)), horizon=4),
            "base must be a whole number of at least 2",
        ),
    ],
)
def test_impossible_plans_are_refused(make: Callable[[], NoisePlan], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_largest_errors_at_4096_ticks() -> None:
    skipping = HaarSkipPlan.calibrated(horizon=4096, rho=0.5)
    assert round(max(skipping.variance_profile()) ** 0.5, 2) == 4.47
    assert round(max(HaarPlan.open(rho=0.5).variance_profile(4096)) ** 0.5, 2) == 5.8
    assert round(max(TopDownPlan.open(epsilon=1.0).variance_profile(4096)) ** 0.5, 1) == 25.4


def test_the_spline_certificate_of_six_levels() -> None:
    unit = [Fraction(lattice**2) for lattice in (1024, 512, 512, 512, 512, 512, 32)]
    unit[-1] *= TOP_FACTOR
    assert certified_cost(tuple(GaussianNode(variance) for variance in unit)) == Fraction(60007 + 26902 * 6, 65536)


def test_a_half_width_and_the_rounding() -> None:
    assert half_width(TreePlan.calibrated(horizon=7, rho=0.015, base=2), 1, 0.95) == 20
    assert rounded(np.array([10, 10]), np.array([1, -1]), 1).tolist() == [11, 10]
    assert LossTarget.of(rho=0.5, epsilon=None).spread([Fraction(1)] * 2) == [GaussianNode(Fraction(2))] * 2
