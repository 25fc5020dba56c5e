"""Counts of one tick and bins of quantiles: sound ones pass, and one with too little noise is found."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import pytest
from tests.mechanisms import EVENT_CASES

from pianissimo.audit import AuditVerdict, audit
from pianissimo.labels import Domain
from pianissimo.monitors import TickCounts, lone_event_threshold
from pianissimo.testing import SeededNoise


@pytest.mark.parametrize("name", EVENT_CASES)
def test_what_counts_events_is_sound(name: str) -> None:
    report = audit(EVENT_CASES[name].mechanism, runs=20_000, noise=SeededNoise(3))
    assert report.verdict is AuditVerdict.SOUND, str(report)


@dataclass(frozen=True, slots=True, kw_only=True)
class LessNoise(TickCounts):
    """Mutant: noise of two thirds of the scale that is promised."""

    def release(self, state: Any, tick: int, noise: Any) -> Any:
        return TickCounts(
            horizon=self.horizon,
            scale=self.scale * Fraction(2, 3),
            threshold=self.threshold,
            domain=self.domain,
        ).release(state, tick, noise)


def test_too_little_noise_is_found() -> None:
    mutant = LessNoise(horizon=4, scale=Fraction(1), threshold=12, domain=Domain(["a"]))
    report = audit(mutant, runs=20_000, noise=SeededNoise(3))
    assert report.verdict is AuditVerdict.VIOLATION, str(report)


def test_a_lone_key_that_is_shown_too_often_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: a threshold without 1 +."""
    delta = Fraction(1, 20)
    least = lone_event_threshold(Fraction(1), delta)
    monkeypatch.setattr("pianissimo.monitors.tick_counts.lone_event_threshold", lambda *_: 1)
    mutant = TickCounts(horizon=4, scale=Fraction(1), threshold=least - 1, delta=delta)
    report = audit(mutant, runs=20_000, noise=SeededNoise(3))
    assert report.verdict is AuditVerdict.VIOLATION, str(report)
    assert report.decisive.measure == "delta"
