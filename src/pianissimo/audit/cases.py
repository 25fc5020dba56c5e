"""How each kind of mechanism is attacked: a list of cases, to which new mechanisms add theirs."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from pianissimo.audit.attack import Measure, attack
from pianissimo.audit.bounds import expected_mu, lattice_excess, lower_rate
from pianissimo.audit.many_runs import (
    FEATURES_PER_TICK,
    HistogramOf,
    check_against,
    observe,
    places_of,
    reference,
    seen,
    texts,
)
from pianissimo.audit.pairs import Pair, observed_ticks, pairs_of, reachable_mu
from pianissimo.audit.report import Attempt, AuditReport, Finding, Progress
from pianissimo.audit.selections import known_gauss_attempts, known_gumb_attempts
from pianissimo.checks import check_at_least
from pianissimo.counting import Counter, Summer, TreePlan
from pianissimo.errors import ParameterError
from pianissimo.histograms import KnownHistogram, MetaHistogram, TopList, UnknownHistogram
from pianissimo.labels import Domain
from pianissimo.node_noise import GaussianNode
from pianissimo.noise import KeyedNoise, Noise, fresh_secret
from pianissimo.noise_plan import NoisePlan, is_pure
from pianissimo.privacy import Guarantee, Pure
from pianissimo.selection import KnownGauss, KnownGumb

ALPHA = 1e-5
"""The chance that one audit accuses a sound mechanism."""

LEAST_RUNS = 1000
_SIDE_SHARE = 0.2
_MEASURABLE = Fraction(1, 100)
_TWIN_DELTA = Fraction(1, 10)

Case = Callable[[Any], list[Attempt]]
audit_cases: dict[type, Case] = {}
"""For each class of mechanisms, the attacks on one of them; the first is the one on the tight pair."""


def audit(
    mechanism: Any,
    *,
    runs: int = 100_000,
    noise: Noise | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Attack a mechanism, or a one-shot answer, on tight pairs of neighboring streams, with so many runs of each.

    On the tight pair a bound of 0.95 of the claim is expected at 100,000 runs. The noise is fresh unless it is given.
    All bounds hold together but for a chance of 1e-5.

    >>> from pianissimo.counting import TreePlan
    >>> report = audit(Counter(plan=TreePlan.calibrated(horizon=6, rho=2.0)), runs=20_000)
    >>> report.verdict
    <Verdict.SOUND: 'sound'>
    """
    check_at_least(LEAST_RUNS, runs=runs)
    attempts = attempts_on(mechanism)
    root = noise if noise is not None else KeyedNoise(fresh_secret())
    sizes = [max(LEAST_RUNS, int(runs * attempt.share)) for attempt in attempts]
    findings = []
    for number, (attempt, size) in enumerate(zip(attempts, sizes, strict=True)):
        if progress is not None:
            progress(sum(sizes[:number]), sum(sizes))
        findings.append(attempt.carry_out(size, ALPHA / len(attempts), root.at("audit", number)))
    if progress is not None:
        progress(sum(sizes), sum(sizes))
    return AuditReport(mechanism=name_of(mechanism), confidence=1 - ALPHA, findings=tuple(findings))


def attempts_on(mechanism: Any) -> list[Attempt]:
    """The attacks that fit a mechanism, by the first of its classes that has a case.

    >>> from pianissimo.counting import HaarPlan
    >>> [attempt.name for attempt in attempts_on(Counter(plan=HaarPlan.calibrated(horizon=8, rho=2.0)))]
    ['one event at tick 1', 'one event at tick 5', 'one event at tick 8']
    """
    for kind in type(mechanism).__mro__:
        if kind in audit_cases:
            return audit_cases[kind](mechanism)
    known = ", ".join(sorted(kind.__name__ for kind in audit_cases))
    raise ParameterError(f"an audited mechanism must be one of {known}, got {type(mechanism).__name__}")


def name_of(mechanism: Any) -> str:
    """What a mechanism is called in reports.

    >>> from pianissimo.counting import HaarPlan
    >>> name_of(Counter(plan=HaarPlan.calibrated(horizon=8, rho=0.5)))
    'Counter over haar'
    """
    plan = getattr(mechanism, "plan", None)
    return type(mechanism).__name__ + ("" if plan is None else f" over {plan.name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """What is attacked through a histogram: a claim per event, over a plan."""

    histogram_of: HistogramOf
    plan: NoisePlan
    guarantee: Guarantee
    series: int = 1
    units: int = 1
    history: int

    @property
    def measure(self) -> Measure:
        return Measure.EPSILON if is_pure(self.plan) else Measure.MU

    @property
    def claim(self) -> float:
        loss = self.guarantee.loss
        # An epsilon that is booked as rho = epsilon^2 / 2 comes back by the same root as mu does.
        return float(loss.epsilon) if isinstance(loss, Pure) else math.sqrt(2 * loss.as_ledger().rho)

    def attempts(self, check: Callable[[Pair, Noise], None] | None = None) -> list[Attempt]:
        pairs = pairs_of(self.plan, claim=self.claim, series=self.series, units=self.units, history=self.history)
        attempts = [self.attempt(pair, share=1.0 if pair.is_tight else _SIDE_SHARE) for pair in pairs]
        if check is None:
            return attempts
        tight, carry_out = pairs[0], attempts[0].carry_out

        def checked(runs: int, alpha: float, noise: Noise) -> Finding:
            check(tight, noise)
            return carry_out(runs, alpha, noise)

        return [replace(attempts[0], carry_out=checked), *attempts[1:]]

    def attempt(self, pair: Pair, *, share: float, name: str | None = None, is_sharp: bool = True) -> Attempt:
        def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
            without, with_event = seen(self.histogram_of, self.plan, pair, runs, noise)
            found = attack(without, with_event, measure=self.measure, alpha=alpha)
            # Rare events decide about pure promises, so that what to expect is told for the tight pair alone.
            known = is_sharp and (pair.is_tight or self.measure is Measure.MU)
            reachable, expected = self._expected(pair, found.trials, alpha) if known else (None, None)
            return Finding(
                pair=name or pair.name,
                measure=self.measure.value,
                claim=self.claim,
                lower_bound=found.lower_bound / pair.events,
                runs=runs,
                releases=len(pair.ticks),
                excess=self._excess(pair),
                reachable=reachable,
                expected=expected,
                is_tight=pair.is_tight,
                statistic=found.statistic,
            )

        return Attempt(name=name or pair.name, share=share, carry_out=carry_out)

    def _expected(self, pair: Pair, trials: int, alpha: float) -> tuple[float, float]:
        if self.measure is Measure.MU:
            reachable = reachable_mu(self.plan, pair)
            weights = FEATURES_PER_TICK * len(pair.ticks)
            return reachable, expected_mu(reachable * pair.events, trials, alpha, weights=weights) / pair.events
        ideal = attack(*reference(self.plan, pair, 2 * trials), measure=self.measure, alpha=alpha)
        return ideal.estimate / pair.events, ideal.lower_bound / pair.events

    def _excess(self, pair: Pair) -> float:
        if self.measure is not Measure.MU:
            return 1.0
        return max(
            lattice_excess(float(self.plan.noises[term.level].variance)) for term in self.plan.influence(pair.tick)
        )


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

    target = _Target(
        histogram_of=histogram_of,
        plan=mechanism.plan,
        guarantee=mechanism.guarantee,
        units=units,
        history=_history(mechanism.plan),
    )
    return target.attempts(check)


def _known_attempts(mechanism: KnownHistogram) -> list[Attempt]:
    return _Target(
        histogram_of=lambda labels: replace(mechanism, domain=Domain(labels)),
        plan=mechanism.plan,
        guarantee=mechanism.guarantee,
        series=min(mechanism.max_keys_per_event, len(mechanism.domain)),
        history=_history(mechanism.plan),
    ).attempts()


def _unknown_attempts(mechanism: UnknownHistogram) -> list[Attempt]:
    # The rest is a total of its own with its own noise: it is attacked by itself.
    labels_alone = replace(mechanism, rest_plan=None)
    ticks = observed_ticks(mechanism.plan, 1)
    far_above = _history(mechanism.plan) + max(map(mechanism.threshold, ticks))
    target = _Target(
        histogram_of=lambda _: labels_alone,
        plan=mechanism.plan,
        guarantee=labels_alone.guarantee,
        series=mechanism.max_keys_per_event,
        history=far_above,
    )
    edge = Pair(tick=1, ticks=ticks, series=target.series, history=mechanism.threshold(1) - 1)
    attempts = [
        *target.attempts(),
        target.attempt(edge, share=_SIDE_SHARE, name="labels that reach the threshold at tick 1", is_sharp=False),
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
            claim=float(twin.guarantee.loss.as_ledger().bad),
            lower_bound=lower_rate(count, runs, alpha),
            runs=runs,
            releases=len(ticks),
        )

    return Attempt(name=name, share=1.0, carry_out=carry_out)


def _top_attempts(mechanism: TopList) -> list[Attempt]:
    # Sorting a release is post-processing: what it can show, the histogram shows.
    return attempts_on(mechanism.histogram)


def _meta_attempts(mechanism: MetaHistogram) -> list[Attempt]:
    answer = mechanism.answer
    if not isinstance(answer, KnownGauss):
        raise ParameterError(f"an audited tree of answers must be one of KnownGauss, got {type(answer).__name__}")
    # Cell by cell the same noise as in a tree of node noises.
    plan = TreePlan(base=mechanism.base, noise=GaussianNode(answer.variance), horizon=mechanism.horizon)
    return _Target(
        histogram_of=lambda labels: replace(mechanism, answer=replace(answer, domain=Domain(labels))),
        plan=plan,
        guarantee=mechanism.guarantee,
        series=min(answer.max_keys_per_event, len(answer.domain)),
        history=_history(plan),
    ).attempts()


def _history(plan: NoisePlan) -> int:
    """So many events that neither a clamp at zero nor a sign is ever seen."""
    return math.ceil(12 * max(plan.std(tick) for tick in observed_ticks(plan, 1)))


audit_cases[Counter] = _counter_attempts
audit_cases[Summer] = _summer_attempts
audit_cases[KnownHistogram] = _known_attempts
audit_cases[UnknownHistogram] = _unknown_attempts
audit_cases[TopList] = _top_attempts
audit_cases[MetaHistogram] = _meta_attempts
audit_cases[KnownGauss] = known_gauss_attempts
audit_cases[KnownGumb] = known_gumb_attempts
