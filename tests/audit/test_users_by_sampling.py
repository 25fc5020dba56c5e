"""Audit A3 of statistics of users and of monitors: sound ones show nearly their claim, broken twins are caught.

Keys are fixed, so that results repeat. false_alarm_rate of an audit with fresh keys: 1e-5.
"""

from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from tests.audit.tampering import Scaled
from tests.mechanisms import USER_CASES
from tests.monitors.calibrating import alarms, trends

from pianissimo.audit import AuditVerdict, audit
from pianissimo.labels import Domain
from pianissimo.loss.losses import Race
from pianissimo.monitors import TrendingMonitor
from pianissimo.noise import HaarPlan, SplinePlan, TopDownPlan, TreePlan
from pianissimo.testing import SeededNoise
from pianissimo.users import (
    AdaptiveCap,
    CountHead,
    FixedCap,
    HistogramHead,
    PeriodCap,
    QuantilesHead,
    SumHead,
    UserDistinct,
    UserStatistics,
    UserSum,
)
from pianissimo.users.statistics import UserStatisticsState
from pianissimo.users.user_label_sums import UserLabelSums
from pianissimo.users.user_labels import UserLabels

HEADS = (
    CountHead(),
    SumHead(name="amount", low=0, high=5),
    HistogramHead(name="section", domain=Domain(["news", "sport"])),
    QuantilesHead(name="length", low=0.0, high=8.0, depth=3),
)
CAP = AdaptiveCap(epsilon=Fraction(1, 5), first=3, fourfold=0, levels=3)
SOUND = {
    "all heads over tree": UserStatistics(heads=HEADS, cap=CAP, plan=TreePlan, horizon=6, rho=Fraction(10)),
    "a count over haar": UserStatistics(cap=FixedCap(units=3), plan=HaarPlan, horizon=6, rho=Fraction(1, 2)),
    "a count over spline": UserStatistics(cap=FixedCap(units=3), plan=SplinePlan, horizon=6, rho=Fraction(1, 2)),
    "a pure count": UserStatistics(cap=FixedCap(units=2), plan=TreePlan, horizon=4, epsilon=Fraction(2)),
    "a pure count, top-down": UserStatistics(cap=FixedCap(units=2), plan=TopDownPlan, horizon=4, epsilon=Fraction(2)),
    "a count within periods": UserStatistics(
        cap=PeriodCap(units=3, ticks=3), plan=TreePlan, horizon=6, rho=Fraction(1, 2)
    ),
    "a sum": UserSum(cap=FixedCap(units=5), plan=TreePlan, horizon=6, rho=Fraction(1, 2)),
}


@pytest.mark.parametrize("mechanism", SOUND.values(), ids=SOUND.keys())
def test_statistics_of_users_show_nearly_their_claim_and_no_more(mechanism: Any) -> None:
    report = audit(mechanism, runs=20_000, noise=SeededNoise(61))
    assert report.verdict is AuditVerdict.SOUND
    for finding in report.findings:
        # The event that shows a pure promise of several levels is rare.
        assert 0.55 * finding.claim <= finding.lower_bound <= finding.claim * finding.excess


LABELS = {
    name: case.mechanism for name, case in USER_CASES.items() if isinstance(case.mechanism, UserLabels | UserLabelSums)
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_of_users_show_nearly_their_claim_and_no_more(name: str) -> None:
    report = audit(LABELS[name], runs=20_000, noise=SeededNoise(61))
    assert report.verdict is AuditVerdict.SOUND
    for finding in report.findings:
        shown = finding.lower_bound / finding.claim
        # Thresholds are for all users and ticks together, so that one label alone appears far more seldom.
        assert shown <= 1 if finding.measure == "delta" else 0.85 <= shown <= 1


@pytest.mark.parametrize("name", LABELS)
def test_too_little_noise_of_labels_of_users_is_caught(name: str) -> None:
    """Mutant: the noise has 0.8 of its scale."""
    report = audit(LABELS[name], runs=20_000, noise=Scaled(SeededNoise(61), factor=Fraction(4, 5)))
    assert report.verdict is AuditVerdict.VIOLATION


@pytest.mark.parametrize("plan", [TreePlan, HaarPlan])
def test_a_distinct_count_shows_no_more_than_its_claim(plan: Any) -> None:
    """Runs one by one are too few to see its factor; tests/users/test_replaying.py prices that exactly."""
    mechanism = UserDistinct(cap=FixedCap(units=2), plan=plan, horizon=4, rho=Fraction(4))
    (finding,) = audit(mechanism, runs=50_000, noise=SeededNoise(61)).findings
    assert 0.3 * finding.claim <= finding.lower_bound <= finding.claim


MONITORS = {
    "trends": trends(horizon=10, alarms_per_user=2),
    "alarms": alarms({"fever": 200}, horizon=10, alarms_per_user=2),
}


@pytest.mark.parametrize("mechanism", MONITORS.values(), ids=MONITORS.keys())
def test_monitors_show_nearly_their_rate_and_no_more(mechanism: Any) -> None:
    (finding,) = audit(mechanism, runs=100_000, noise=SeededNoise(61)).findings
    assert finding.verdict is AuditVerdict.SOUND
    assert 0.9 * finding.claim <= finding.lower_bound <= finding.claim


def without_cap(mechanism: UserStatistics) -> Any:
    """Mutant: what the cap says is booked, and twice as much is let through."""

    @dataclass(frozen=True, kw_only=True)
    class TwiceTheCap(UserStatistics):
        def update(self, state: UserStatisticsState, batch: pl.DataFrame) -> None:
            UserStatistics.update(self, state, pl.concat([batch, batch.with_columns(user=pl.col("user") + "!")]))

    fields = {name: getattr(mechanism, name) for name in (each.name for each in dataclass_fields(UserStatistics))}
    return TwiceTheCap(**fields)


def test_a_cap_that_lets_twice_as_much_through_is_caught() -> None:
    report = audit(without_cap(SOUND["a count over haar"]), runs=20_000, noise=SeededNoise(61))  # type: ignore[arg-type]
    assert report.verdict is AuditVerdict.VIOLATION


def test_a_monitor_that_books_more_noise_than_it_has_is_caught() -> None:
    honest = MONITORS["trends"]
    assert isinstance(honest, TrendingMonitor)
    (finding,) = audit(honest, runs=100_000, noise=SeededNoise(61)).findings
    # The same findings against the claim of a scale one tenth larger.
    loss = honest.guarantee.loss
    assert isinstance(loss, Race)
    assert finding.lower_bound > 1 / (1.1 * float(loss.scale))
