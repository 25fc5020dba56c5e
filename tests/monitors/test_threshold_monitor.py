"""The published monitor: its constants, its test vector, its check."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import integrate, optimize, stats

from pianissimo.errors import ParameterError
from pianissimo.loss.race_clock import hockey_stick
from pianissimo.monitors import RaceMonitor, ThresholdMonitor
from pianissimo.testing import SeededNoise

TABLE = [
    (1, 523, 3273, 32_727, 76_586, 1.56e6),
    (4, 748, 4949, 49_487, 113_397, 2.36e6),
    (16, 1648, 12_206, 122_060, 271_400, 5.81e6),
]


@pytest.mark.parametrize(("k", "inner", "cap", "outer", "replaced", "found"), TABLE)
def test_constants_are_those_of_the_table(
    k: int, inner: int, cap: int, outer: int, replaced: int, found: float
) -> None:
    monitor = ThresholdMonitor.calibrated(epsilon=1, delta=1e-6, k=k, threshold=0)
    assert monitor.inner_scale == pytest.approx(inner, abs=0.5)
    assert monitor.cap == pytest.approx(cap, abs=0.5)
    assert monitor.outer_scale == pytest.approx(outer, abs=0.5)
    assert monitor.epsilon == pytest.approx(1)
    assert monitor.delta == pytest.approx(1e-6)
    other = ThresholdMonitor.calibrated(epsilon=1, delta=1e-6, k=k, threshold=0, replacement=True)
    assert other.outer_scale == pytest.approx(replaced, rel=1e-5)
    assert monitor.detectable(1000 * 10**6) == pytest.approx(found, rel=0.01)


@pytest.mark.parametrize(("k", "gain"), [(1, 2997), (4, 3308), (16, 5261)])
def test_the_race_monitor_gains_what_the_table_says(k: int, gain: int) -> None:
    published = ThresholdMonitor.calibrated(epsilon=1, delta=1e-6, k=k, threshold=0).outer_scale
    assert published / float(RaceMonitor.calibrate(epsilon=1, delta=1e-6, k=k)) == pytest.approx(gain, rel=1e-3)


def test_vector_of_the_card() -> None:
    monitor = ThresholdMonitor(k=1, threshold=1000, e=0.1, d=math.exp(-10))
    assert monitor.inner_scale == pytest.approx(100)
    assert monitor.cap == pytest.approx(460.5, abs=0.05)
    assert monitor.outer_scale == pytest.approx(4605, abs=0.5)
    assert monitor.decide(np.array([900, 479]), np.array([60, 60]), np.array([500, 500])).tolist() == [True, False]


def test_at_the_threshold_top_has_half_a_chance() -> None:
    monitor = ThresholdMonitor(k=1, threshold=1000, e=0.1, d=math.exp(-10))
    inner, cap = stats.laplace(scale=monitor.inner_scale), monitor.cap

    def top(noise: float) -> float:
        return float(inner.pdf(noise) * stats.laplace.sf(-noise, scale=monitor.outer_scale))

    chance = integrate.quad(top, -3000, cap, points=[0])[0]
    chance += inner.sf(cap) * stats.laplace.sf(-cap, scale=monitor.outer_scale)
    assert abs(chance - 0.5) <= 1 / (4 * monitor.inner_scale)


def test_drawn_at_the_threshold_top_has_half_a_chance() -> None:
    monitor = ThresholdMonitor(k=1, threshold=0, e=0.1, d=math.exp(-10))
    tests = 40_000
    tops = monitor.test_weights(np.zeros(tests, np.int64), np.arange(tests, dtype=np.uint64), SeededNoise(2))
    # Rate 1e-9 by the exact binomial tail.
    assert stats.binomtest(int(tops.sum()), tests, 0.5).pvalue > 1e-9


def test_what_it_really_costs_when_each_user_counts_for_zero_or_one() -> None:
    monitor = ThresholdMonitor.calibrated(epsilon=1, delta=1e-6, k=1, threshold=0)
    # P(noise < z) by quadrature over the inner noise, and the largest ln(ln F(z - 1) / ln F(z)).
    inner = stats.laplace.ppf((np.arange(1000) + 0.5) / 1000, scale=monitor.inner_scale)
    capped = np.minimum(inner, monitor.cap)
    z = np.linspace(-2, 6, 801) * monitor.outer_scale
    logs = [
        np.log(stats.laplace.cdf(z[:, None] - shift - capped, scale=monitor.outer_scale).mean(1)) for shift in (0, 1)
    ]
    log_ratio = float(np.log(logs[1] / logs[0]).max())
    really = optimize.brentq(lambda epsilon: math.log(hockey_stick(epsilon, 1, 1 / log_ratio) / 1e-6), 1e-5, 1e-3)
    assert really == pytest.approx(1.2e-4, rel=0.05)


def test_users_are_charged_for_tops() -> None:
    monitor, noise = ThresholdMonitor(k=1, threshold=20_000, e=2.0, d=math.exp(-10)), SeededNoise(1)
    charges = monitor.start(noise)
    crowd = pl.Series(range(40_000))
    answers = [monitor.test(charges, crowd, noise) for test in range(3)]
    assert answers == [True, False, False]


@pytest.mark.parametrize("fields", [{"e": 10.0}, {"k": 0}, {"d": 0.0}, {"e": 0.0}, {"k": 2**15}])
def test_what_the_theorem_does_not_cover_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        ThresholdMonitor(**({"k": 1, "threshold": 0, "e": 0.1, "d": 1e-6} | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [1000, 4000, 30_000])
def test_in_epochs_it_is_the_printed_theorem(k: int) -> None:
    """Theorem 3.8: ceil(k / L) epochs of (e (100 + 75 / L), 3 d), composed; O(sqrt(k) e + k e^2) in all."""
    monitor = ThresholdMonitor.calibrated_in_epochs(epsilon=1, delta=1e-6, k=k, threshold=0)
    length = math.log(1 / monitor.d)
    epochs = math.ceil(k / length)
    each = monitor.e * (100 + 75 / length)
    printed = math.sqrt(2 * epochs * math.log(1 / 5e-7)) * each + epochs * each * math.expm1(each)
    epsilon, delta = monitor.in_epochs(5e-7)
    assert monitor.epochs == epochs
    assert epsilon == pytest.approx(printed)
    assert 0.999 < epsilon <= 1 + 1e-9
    assert delta == pytest.approx(3 * monitor.d * epochs + 5e-7)
    assert delta <= 1e-6 * (1 + 1e-9)
    assert 110 < epsilon / (math.sqrt(k) * monitor.e + k * monitor.e**2) < 131


def test_epochs_are_better_from_a_thousand_charges_on() -> None:
    """As the card says; one epoch fewer than there are would promise less than is lost."""
    ratios = {}
    for k in (500, 1000, 1200, 4000):
        scales = [
            make(epsilon=1, delta=1e-6, k=k, threshold=0).outer_scale
            for make in (ThresholdMonitor.calibrated, ThresholdMonitor.calibrated_in_epochs)
        ]
        ratios[k] = scales[0] / scales[1]
    assert ratios[500] < ratios[1000] < 1 < ratios[1200] < ratios[4000]
    monitor = ThresholdMonitor.calibrated_in_epochs(epsilon=1, delta=1e-6, k=4000, threshold=0)
    longer = replace(monitor, k=4000 + math.ceil(math.log(1 / monitor.d)))
    assert longer.in_epochs(5e-7)[0] > 1
    assert longer.in_epochs(5e-7)[1] > 1e-6
