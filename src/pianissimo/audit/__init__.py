"""Attempts to break a promise: attacks on many runs of neighboring streams, and a report with lower bounds.

How each kind of mechanism is attacked is a list of cases, to which new mechanisms add theirs.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pianissimo.audit.answer_attacks import answer_cases, answer_composition, meta_composition
from pianissimo.audit.baseline_attacks import above_threshold_attempts, threshold_monitor_attempts
from pianissimo.audit.event_attacks import quantile_attempts, tick_attempts
from pianissimo.audit.plan_attacks import counter_attempts, known_attempts, summer_attempts, unknown_attempts
from pianissimo.audit.report import (
    Attempt,
    AuditPart,
    AuditReport,
    AuditVerdict,
    Composition,
    Finding,
    Progress,
    case_of,
)
from pianissimo.audit.sum_attacks import label_sum_attempts
from pianissimo.audit.unknown_gauss_attacks import unk_gauss_parts
from pianissimo.audit.user_attacks import (
    distinct_attempts,
    statistics_attempts,
    sum_attempts,
    trending_attempts,
    value_attempts,
)
from pianissimo.audit.user_label_attacks import user_label_attempts, user_label_sum_attempts
from pianissimo.checks import check_at_least
from pianissimo.counting import (
    Counter,
    EventQuantiles,
    KnownHistogram,
    LabelSums,
    MetaHistogram,
    MetaTopList,
    Summer,
    TopList,
    UnknownHistogram,
)
from pianissimo.counting.distinct_values import DistinctValues
from pianissimo.monitors import AboveThreshold, Alarms, ThresholdMonitor, TickCounts, TrendingMonitor
from pianissimo.noise import KeyedNoise, Noise, fresh_secret
from pianissimo.selection import KnownGauss, KnownGumb, UnkGauss, UnkGumb
from pianissimo.users import EachPeriod, UserDistinct, UserStatistics, UserSum
from pianissimo.users.user_label_sums import UserLabelSums
from pianissimo.users.user_labels import UserLabels

__all__ = ["AuditReport", "AuditVerdict", "Finding", "attacks_on", "audit", "audit_cases", "is_attacked"]

ALPHA = 1e-5
"""The chance that one audit accuses a sound mechanism."""

LEAST_RUNS = 1000

AuditCase = Callable[[Any], list[Attempt] | Composition]


def audit(
    mechanism: Any,
    *,
    runs: int = 100_000,
    noise: Noise | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Attack a mechanism, or a one-shot answer, on tight pairs of neighboring streams, with so many runs of each.

    On the tight pair a bound of 0.95 of the claim is expected at 100,000 runs. The noise is fresh unless it is given.
    All bounds hold together but for a chance of 1e-5. A mechanism that is composed of others is attacked part by part.

    The attack shows less, and the floor of the verdict is lower, where

    * rounding hides some of the noise: plans whose releases are rounded, with little noise (Haar and spline at rho = 2
      and six ticks reach 0.93 of the claim with any number of runs, at rho = 1/2 0.99);
    * the outcome that shows a pure promise is rare: all nodes of an event's column beyond their shift at once. Haar
      plans with epsilon show 0.93 of it at 2 ticks, 0.91 at 4, 0.84 at 8; trees and doubling 0.95;
    * a pure Haar plan has a horizon that is no power of two: no event has the whole column then, so 0.73 at 3 ticks;
    * runs are made one by one (thresholds of unknown labels, runs of tests): a fifth or a tenth of them.

    >>> from pianissimo.noise import TreePlan
    >>> report = audit(Counter(plan=TreePlan.calibrated(horizon=6, rho=2.0)), runs=20_000)
    >>> report.verdict
    <AuditVerdict.SOUND: 'sound'>
    """
    check_at_least(LEAST_RUNS, runs=runs)
    attacks = attacks_on(mechanism)
    attempts = attacks.attempts() if isinstance(attacks, Composition) else attacks
    root = noise if noise is not None else KeyedNoise(fresh_secret())
    sizes = [max(LEAST_RUNS, int(runs * attempt.share)) for attempt in attempts]
    findings = []
    for number, (attempt, size) in enumerate(zip(attempts, sizes, strict=True)):
        if progress is not None:
            progress(sum(sizes[:number]), sum(sizes))
        found = attempt.carry_out(size, ALPHA / len(attempts), root.at("audit", number))
        findings.append(replace(found, pair=attempt.name))
    if progress is not None:
        progress(sum(sizes), sum(sizes))
    parts: tuple[AuditPart, ...] = ()
    if isinstance(attacks, Composition):
        findings += attacks.findings()
        parts = attacks.parts
    return AuditReport(mechanism=name_of(mechanism), confidence=1 - ALPHA, findings=tuple(findings), parts=parts)


def attacks_on(mechanism: Any) -> list[Attempt] | Composition:
    """The attacks that fit a mechanism, or its parts with theirs, by the first of its classes that has a case."""
    return case_of(audit_cases, mechanism, "mechanism")(mechanism)


def is_attacked(mechanism: Any) -> bool:
    """Whether there are attacks by sampling on such a mechanism, or on the one that it begins anew."""
    if isinstance(mechanism, EachPeriod):
        return is_attacked(mechanism.inner)
    return any(kind in audit_cases for kind in type(mechanism).__mro__)


def name_of(mechanism: Any) -> str:
    """What a mechanism is called in reports."""
    plan = getattr(mechanism, "plan", None)
    if plan is None:
        return type(mechanism).__name__
    # Statistics of users have a class of plans, since they start anew.
    return f"{type(mechanism).__name__} over {plan.__name__ if isinstance(plan, type) else plan.name}"


# A tree of such answers is attacked by what attacks one.
answer_cases[UnkGauss] = unk_gauss_parts

audit_cases: dict[type, AuditCase] = {
    Counter: counter_attempts,
    Summer: summer_attempts,
    KnownHistogram: known_attempts,
    UnknownHistogram: unknown_attempts,
    LabelSums: label_sum_attempts,
    EventQuantiles: quantile_attempts,
    TickCounts: tick_attempts,
    # Sorting a release is post-processing: what it can show, the histogram shows.
    TopList: lambda mechanism: attacks_on(mechanism.histogram),
    MetaHistogram: meta_composition,
    MetaTopList: lambda mechanism: attacks_on(mechanism.histogram),
    KnownGauss: answer_composition,
    KnownGumb: answer_composition,
    UnkGauss: answer_composition,
    UnkGumb: answer_composition,
    # Another noise in each period, and the same law: what one period can show.
    EachPeriod: lambda mechanism: attacks_on(mechanism.inner),
    UserStatistics: statistics_attempts,
    UserSum: sum_attempts,
    UserLabels: user_label_attempts,
    UserLabelSums: user_label_sum_attempts,
    UserDistinct: distinct_attempts,
    DistinctValues: value_attempts,
    TrendingMonitor: trending_attempts,
    Alarms: trending_attempts,
    AboveThreshold: above_threshold_attempts,
    ThresholdMonitor: threshold_monitor_attempts,
}
"""For each class of mechanisms, the attacks on one of them, the tight pair's first; or its parts with theirs."""
