"""Baselines of monitors are attacked as all else is: what they show is known exactly, and broken ones are caught."""

import math
from dataclasses import dataclass
from fractions import Fraction

import pytest

from pianissimo.audit import AuditVerdict, audit
from pianissimo.audit.baseline_attacks import outcome_chance
from pianissimo.monitors import AboveThreshold, ThresholdMonitor
from pianissimo.testing import SeededNoise


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietQueries(AboveThreshold):
    """The noise on queries is a third of what it should be."""

    @property
    def query_scale(self) -> Fraction:
        return Fraction(AboveThreshold.query_scale.__get__(self)) / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedThreshold(AboveThreshold):
    """The threshold has hardly any noise."""

    @property
    def threshold_scale(self) -> Fraction:
        return Fraction(AboveThreshold.threshold_scale.__get__(self)) / 20


@dataclass(frozen=True, slots=True, kw_only=True)
class QuietMonitor(ThresholdMonitor):
    """The noise is that of whole numbers, and not of tens of thousands."""

    @property
    def outer_scale(self) -> float:
        return 0.1

    @property
    def inner_scale(self) -> float:
        return 2.0


@pytest.mark.parametrize("monotone", [True, False])
def test_above_threshold_shows_what_it_should_and_no_more(monotone: bool) -> None:
    report = audit(AboveThreshold(threshold=20, epsilon=2, monotone=monotone), runs=40_000, noise=SeededNoise(61))
    (finding,) = report.findings
    assert report.verdict is AuditVerdict.SOUND
    assert finding.expected is not None
    assert finding.reachable is not None
    assert 0.2 < finding.lower_bound <= finding.reachable <= 2


@pytest.mark.parametrize("broken", [QuietQueries(threshold=9, epsilon=1), FixedThreshold(threshold=9, epsilon=1)])
def test_a_broken_one_is_caught(broken: AboveThreshold) -> None:
    assert audit(broken, runs=20_000, noise=SeededNoise(62)).verdict is AuditVerdict.VIOLATION


def test_of_the_published_monitor_hardly_anything_shows_and_a_broken_one_is_caught() -> None:
    monitor = ThresholdMonitor.calibrated(epsilon=1, delta=1e-6, k=1, threshold=10**6)
    (finding,) = audit(monitor, runs=20_000, noise=SeededNoise(63)).findings
    assert 1e-6 < finding.lower_bound < 1e-4 < finding.claim
    broken = QuietMonitor(k=1, threshold=10, e=monitor.e / 20, d=monitor.d)
    assert audit(broken, runs=20_000, noise=SeededNoise(64)).verdict is AuditVerdict.VIOLATION


def test_chances_are_those_of_the_card() -> None:
    """One query 6 below the threshold: .14046 and .06223 for real noise, near that for whole numbers."""
    for monotone, printed in ((False, 0.14046), (True, 0.06223)):
        chance = outcome_chance(AboveThreshold(threshold=0, epsilon=1, monotone=monotone), [-6])
        assert math.isclose(chance, printed, rel_tol=0.25)
