"""How each kind of mechanism is attacked: a list of cases, to which new mechanisms add theirs."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from pianissimo.audit.bounds import lower_rate
from pianissimo.audit.fixed_thresholds import fixed_threshold_composition
from pianissimo.audit.many_runs import check_against, observe, places_of, texts
from pianissimo.audit.pairs import Pair, observed_ticks
from pianissimo.audit.parts import Composition
from pianissimo.audit.report import Attempt, AuditReport, Finding, Part, Progress
from pianissimo.audit.sparse import sparse_composition
from pianissimo.audit.targets import SIDE_SHARE, Target, history_of
from pianissimo.audit.trees import answer_composition, meta_composition
from pianissimo.audit.users import distinct_attempts, statistics_attempts, sum_attempts
from pianissimo.audit.watching import trending_attempts
from pianissimo.checks import check_at_least
from pianissimo.counting import Counter, KnownHistogram, MetaHistogram, MetaTopList, Summer, TopList, UnknownHistogram
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.monitors import Alarms, TrendingMonitor
from pianissimo.noise import KeyedNoise, Noise, fresh_secret
from pianissimo.selection import FixedThresholdGauss, KnownGauss, KnownGumb, SparseGumbel, UnkGauss, UnkGumb
from pianissimo.users import UserDistinct, UserStatistics, UserSum

ALPHA = 1e-5
"""The chance that one audit accuses a sound mechanism."""

LEAST_RUNS = 1000
_MEASURABLE = Fraction(1, 100)
_TWIN_DELTA = Fraction(1, 10)

Case = Callable[[Any], list[Attempt] | Composition]
audit_cases: dict[type, Case] = {}
"""For each class of mechanisms, the attacks on one of them, the tight pair's first; or its parts with theirs."""


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
    <Verdict.SOUND: 'sound'>
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
        findings.append(attempt.carry_out(size, ALPHA / len(attempts), root.at("audit", number)))
    if progress is not None:
        progress(sum(sizes), sum(sizes))
    parts: tuple[Part, ...] = ()
    if isinstance(attacks, Composition):
        findings += attacks.findings()
        parts = attacks.parts
    return AuditReport(mechanism=name_of(mechanism), confidence=1 - ALPHA, findings=tuple(findings), parts=parts)


def attacks_on(mechanism: Any) -> list[Attempt] | Composition:
    """The attacks that fit a mechanism, or its parts with theirs, by the first of its classes that has a case.

    >>> from pianissimo.noise import HaarPlan
    >>> [attempt.name for attempt in attacks_on(Counter(plan=HaarPlan.calibrated(horizon=8, rho=2.0)))]
    ['one event at tick 1', 'one event at tick 5', 'one event at tick 8']
    """
    for kind in type(mechanism).__mro__:
        if kind in audit_cases:
            return audit_cases[kind](mechanism)
    known = ", ".join(sorted(kind.__name__ for kind in audit_cases))
    raise ParameterError(f"an audited mechanism must be one of {known}, got {type(mechanism).__name__}")


def name_of(mechanism: Any) -> str:
    """What a mechanism is called in reports.

    >>> from pianissimo.noise import HaarPlan
    >>> name_of(Counter(plan=HaarPlan.calibrated(horizon=8, rho=0.5)))
    'Counter over haar'
    """
    plan = getattr(mechanism, "plan", None)
    if plan is None:
        return type(mechanism).__name__
    # Statistics of users have a class of plans, since they start anew.
    return f"{type(mechanism).__name__} over {plan.__name__ if isinstance(plan, type) else plan.name}"


def _counter_attempts(mechanism: Counter) -> list[Attempt]:
    return _total_attempts(mechanism, range, units=1)


def _summer_attempts(mechanism: Summer) -> list[Attempt]:
    largest = mechanism.magnitude

    def values(total: int) -> pl.Series:
        signed = [largest] * (total // largest) + [total % largest]
        return pl.Series(signed, dtype=pl.Int64)

    # An event of the lowest value mirrors one of the highest: the check follows the one that can be largest.
    return _total_attempts(mechanism, values if mechanism.high == largest else None, units=largest)


def _total_attempts(mechanism: Counter | Summer, batch_of: Callable[[int], Any] | None, *, units: int) -> list[Attempt]:
    """Counters and sums have one series: their runs are made through a histogram, and compared with a few of theirs."""

    def histogram_of(labels: pl.Series) -> KnownHistogram:
        return KnownHistogram(plan=mechanism.plan, domain=Domain(labels))

    def check(pair: Pair, noise: Noise) -> None:
        if batch_of is not None:
            (batch,) = observe(histogram_of, mechanism.plan, pair, 8, noise)
            check_against(mechanism, batch_of, pair, batch)

    target = Target(
        histogram_of=histogram_of,
        plan=mechanism.plan,
        loss=mechanism.guarantee.loss,
        units=units,
        history=history_of(mechanism.plan),
    )
    return target.attempts(check)


def _known_attempts(mechanism: KnownHistogram) -> list[Attempt]:
    return Target(
        histogram_of=lambda labels: replace(mechanism, domain=Domain(labels)),
        plan=mechanism.plan,
        loss=mechanism.guarantee.loss,
        series=min(mechanism.max_keys_per_event, len(mechanism.domain)),
        history=history_of(mechanism.plan),
    ).attempts()


def _unknown_attempts(mechanism: UnknownHistogram) -> list[Attempt]:
    # The rest is a total of its own with its own noise: it is attacked by itself.
    labels_alone = replace(mechanism, rest_plan=None)
    ticks = observed_ticks(mechanism.plan, 1)
    far_above = history_of(mechanism.plan) + max(map(mechanism.threshold, ticks))
    target = Target(
        histogram_of=lambda _: labels_alone,
        plan=mechanism.plan,
        loss=labels_alone.guarantee.loss,
        series=mechanism.max_keys_per_event,
        history=far_above,
    )
    edge = Pair(tick=1, ticks=ticks, series=target.series, history=mechanism.threshold(1) - 1)
    attempts = [
        *target.attempts(),
        target.attempt(edge, share=SIDE_SHARE, name="labels that reach the threshold at tick 1", is_sharp=False),
        _own_label_attempt(labels_alone, ticks),
    ]
    if mechanism.rest_plan is not None:
        rest = Summer(plan=mechanism.rest_plan, low=0, high=mechanism.max_keys_per_event)
        attempts += [replace(each, name=f"the rest: {each.name}") for each in _summer_attempts(rest)[:1]]
    return attempts


def _own_label_attempt(mechanism: UnknownHistogram, ticks: tuple[int, ...]) -> Attempt:
    """How often a label that only one event holds is ever shown; where delta is tiny, by a twin with a larger one."""
    twin = mechanism if mechanism.delta >= _MEASURABLE else replace(mechanism, delta=_TWIN_DELTA)
    name = "a label that one event alone holds"
    name += "" if twin is mechanism else f", were delta {float(_TWIN_DELTA):g}"
    keys = mechanism.max_keys_per_event

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        labels = texts(runs * keys)
        state = twin.start(noise)
        twin.update(state, labels.reshape((runs, keys)).cast(pl.List(pl.String)))
        ever = np.zeros(len(labels), dtype=np.bool_)
        for tick in ticks:
            ever[places_of(twin.release(state, tick, noise))] = True
        count = int(ever.reshape(runs, keys).any(axis=1).sum())
        return Finding(
            pair=name,
            measure="delta",
            claim=float(twin.guarantee.loss.as_booked().bad),
            lower_bound=lower_rate(count, runs, alpha),
            runs=runs,
            releases=len(ticks),
        )

    return Attempt(name=name, share=1.0, carry_out=carry_out)


def _top_attempts(mechanism: TopList) -> list[Attempt] | Composition:
    # Sorting a release is post-processing: what it can show, the histogram shows.
    return attacks_on(mechanism.histogram)


def _meta_top_composition(mechanism: MetaTopList) -> Composition:
    return meta_composition(mechanism.histogram)


audit_cases[Counter] = _counter_attempts
audit_cases[Summer] = _summer_attempts
audit_cases[KnownHistogram] = _known_attempts
audit_cases[UnknownHistogram] = _unknown_attempts
audit_cases[TopList] = _top_attempts
audit_cases[MetaHistogram] = meta_composition
audit_cases[MetaTopList] = _meta_top_composition
audit_cases[SparseGumbel] = sparse_composition
audit_cases[FixedThresholdGauss] = fixed_threshold_composition
audit_cases[UserStatistics] = statistics_attempts
audit_cases[UserSum] = sum_attempts
audit_cases[UserDistinct] = distinct_attempts
audit_cases[TrendingMonitor] = trending_attempts
audit_cases[Alarms] = trending_attempts
for _answer in (KnownGauss, KnownGumb, UnkGauss, UnkGumb):
    audit_cases[_answer] = answer_composition
