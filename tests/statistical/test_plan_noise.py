"""Simulated variances and covariances of the plans' noise against their formulas, and the coverage of error bars.

A thousand series and more are one vector: each test is one run of the real noise over many labels. Seeds are fixed.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Self

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.noise.plan_algebra import covariance_at

from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, Noise, SplinePlan, TopDownPlan, TreePlan
from pianissimo.noise.keyed import PathPart
from pianissimo.noise.laws import GaussianNode
from pianissimo.noise.plan import NoisePlan, half_width, variance_at
from pianissimo.noise.running import PlanNoise, rounded
from pianissimo.testing import SeededNoise

SERIES = 20_000
KEYS = np.stack([np.arange(SERIES, dtype=np.uint64)] * 2, axis=1)
FALSE_ALARM_RATE = 1e-9


GAUSSIAN_PLANS: dict[str, Callable[..., NoisePlan]] = {
    "haar": HaarPlan.calibrated,
    "tree": TreePlan.calibrated,
    "doubling": DoublingPlan.calibrated,
    "haar + skipping": HaarSkipPlan.calibrated,
    "spline": SplinePlan.calibrated,
    "open haar": lambda horizon, rho: HaarPlan.open(rho=rho),
}
LAPLACE_PLANS: dict[str, Callable[..., NoisePlan]] = {
    "haar": HaarPlan.calibrated,
    "tree": TreePlan.calibrated,
    "doubling": DoublingPlan.calibrated,
    "top-down": TopDownPlan.calibrated,
    "open top-down": lambda horizon, epsilon: TopDownPlan.open(epsilon=epsilon),
}
every_gaussian_plan = pytest.mark.parametrize("make", GAUSSIAN_PLANS.values(), ids=GAUSSIAN_PLANS.keys())
every_laplace_plan = pytest.mark.parametrize("make", LAPLACE_PLANS.values(), ids=LAPLACE_PLANS.keys())


class RedrawnNoise(SeededNoise):
    """The mutant: the noise cache emptied at each tick (erratum C18), so that a node's noise is drawn anew."""

    __slots__ = ()
    clock = 0

    def at(self, *path: PathPart) -> Self:
        return super().at(*path, RedrawnNoise.clock)


def simulate(plan: NoisePlan, noise: Noise, ticks: int, *, anew: bool = False) -> NDArray[np.float64]:
    """The noise of each tick (rows) for each series (columns), in units of one."""
    cached = PlanNoise(plan)
    rows = []
    for tick in range(1, ticks + 1):
        RedrawnNoise.clock = tick
        cached = PlanNoise(plan) if anew else cached
        rows.append(cached.at(noise, tick, SERIES, lambda first, last: KEYS[first:last]) / 2**plan.shift)
    return np.array(rows)


def covariance_problems(plan: NoisePlan, noise: Noise, *, anew: bool = False, limit: float = 0.25) -> list[str]:
    """Where sampled covariances are further than `limit` cell variances from the formula."""
    horizon = plan.horizon
    sampled = np.cov(simulate(plan, noise, horizon, anew=anew))
    exact = [[float(covariance_at(plan, s, t)) for t in range(1, horizon + 1)] for s in range(1, horizon + 1)]
    far = np.abs(sampled - np.array(exact)) > limit * float(plan.noises[0].variance)
    return [f"ticks {s + 1} and {t + 1}" for s, t in np.argwhere(far)]


def test_tree_noise_has_the_covariance_of_the_card() -> None:
    """Card 2.1: r = 3, T = 26, 20,000 runs, tolerance 0.25 cell variances.

    A sampled covariance deviates by at most sqrt(2) * 6 / sqrt(20,000) = 0.06 cell variances; false_alarm_rate for
    all 351 pairs: below 1e-2 per mille, and the seed is fixed.
    """
    assert covariance_problems(TreePlan(base=3, noise=GaussianNode(Fraction(9)), horizon=26), SeededNoise(21)) == []


def test_a_cache_redrawn_each_tick_is_caught() -> None:
    """The twin that must fail."""
    plan = TreePlan(base=3, noise=GaussianNode(Fraction(9)), horizon=26)
    assert covariance_problems(plan, RedrawnNoise(21), anew=True) != []


def test_haar_noise_has_the_covariance_of_its_plan() -> None:
    assert covariance_problems(HaarPlan.calibrated(horizon=32, rho=0.05), SeededNoise(22), limit=0.1) == []


def test_series_are_uncorrelated() -> None:
    """false_alarm_rate: 1e-9."""
    rows = simulate(HaarPlan.calibrated(horizon=8, rho=0.05), SeededNoise(23), 8)
    deviations = np.corrcoef(rows[7], np.roll(rows[7], 1))[0, 1] * math.sqrt(SERIES)
    assert abs(deviations) < stats.norm.isf(FALSE_ALARM_RATE / 2)


def variance_is_right(sampled: NDArray[np.float64], variance: float) -> bool:
    """Whether the sum of squares lies within the exact tails of chi-square. false_alarm_rate: 1e-9."""
    statistic = float((sampled**2).sum()) / variance
    low, high = stats.chi2.ppf([FALSE_ALARM_RATE / 2, 1 - FALSE_ALARM_RATE / 2], df=len(sampled))
    return bool(low < statistic < high)


@every_gaussian_plan
def test_variances_are_those_of_the_plan(make: Callable[..., NoisePlan]) -> None:
    plan = make(horizon=4096, rho=0.02)
    rows = simulate(plan, SeededNoise(24), 130)
    for tick in (1, 2, 3, 64, 100, 127, 130):
        exact = float(variance_at(plan, tick))
        assert variance_is_right(rows[tick - 1], exact)
        assert not variance_is_right(rows[tick - 1], exact * 1.1**2), "a scale 10 % off must be seen"
        assert not variance_is_right(rows[tick - 1], exact * 0.9**2), "a scale 10 % off must be seen"


@every_gaussian_plan
@pytest.mark.parametrize("rho", [0.001, 0.5, 20.0])
@pytest.mark.parametrize("coverage", [0.5, 0.95, 0.999])
def test_error_bars_cover_as_they_claim(make: Callable[..., NoisePlan], rho: float, coverage: float) -> None:
    """false_alarm_rate: 3e-9 a case, by the exact binomial tail; bars a tenth narrower must fail at small rho."""
    check_coverage(make(horizon=1000, rho=rho), coverage, large_noise=rho == 0.001)


@every_laplace_plan
@pytest.mark.parametrize("epsilon", [0.01, 1.0])
@pytest.mark.parametrize("coverage", [0.5, 0.95, 0.999])
def test_error_bars_of_laplace_plans_cover_as_they_claim(
    make: Callable[..., NoisePlan], epsilon: float, coverage: float
) -> None:
    """false_alarm_rate: 3e-9 a case."""
    check_coverage(make(horizon=1000, epsilon=epsilon), coverage, large_noise=epsilon == 0.01)


@every_laplace_plan
def test_variances_of_laplace_plans_are_those_of_the_plan(make: Callable[..., NoisePlan]) -> None:
    """A sum of squares of Laplace sums deviates by at most sqrt(5 / 20,000) = 1.6 %; the limit is 6.3 of these, 10 %.

    false_alarm_rate: 1e-9 by the normal tail, which the sum of 20,000 squares follows closely enough.
    """
    plan = make(horizon=4096, epsilon=0.02)
    rows = simulate(plan, SeededNoise(26), 70)
    for tick in (1, 2, 16, 33, 70):
        ratio = float((rows[tick - 1] ** 2).mean()) / float(variance_at(plan, tick))
        assert 0.9 < ratio < 1.1
        assert not 0.9 < ratio * 1.1**2 < 1.1, "a scale 10 % off must be seen"


def check_coverage(plan: NoisePlan, coverage: float, *, large_noise: bool) -> None:
    cached = PlanNoise(plan)
    counts = np.full(SERIES, 1000, dtype=np.int64)
    noise = SeededNoise(25)
    for tick in (1, 2, 3, 40):
        numerators = cached.at(noise, tick, SERIES, lambda first, last: KEYS[first:last])
        errors = np.abs(rounded(counts, numerators, plan.shift) - 1000)
        width = half_width(plan, tick, coverage)
        assert stats.binom.cdf(int((errors <= width).sum()), SERIES, coverage) > FALSE_ALARM_RATE
        if large_noise and coverage < 0.99:
            assert stats.binom.cdf(int((errors <= 0.85 * width).sum()), SERIES, coverage) < FALSE_ALARM_RATE
