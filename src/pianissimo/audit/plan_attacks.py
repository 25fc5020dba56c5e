"""Attacks on noise plans, through counters, sums and histograms: every label is a run (`pairs`)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.attack import Measure, attack, expected_mu, lattice_excess, lower_rate
from pianissimo.audit.pairs import (
    AuditBatch,
    HistogramOf,
    Pair,
    observe,
    observed_ticks,
    pairs_of,
    places_of,
    reachable_mu,
    reference,
    seen,
    texts,
)
from pianissimo.audit.report import Attempt, Finding
from pianissimo.counting import Counter, KnownHistogram, LabelSums, Summer, UnknownHistogram
from pianissimo.counting.meta import keys_of
from pianissimo.errors import StateError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Loss, Pure
from pianissimo.mechanism import Mechanism
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Integers, Keys, OuterNoise, PathPart
from pianissimo.noise.plan import NoisePlan, is_pure, variance_at

FEATURES_PER_TICK = 3
"""Of `seen`: the labels' sum, the bystander, the labels' parities."""

SIDE_SHARE = 0.2
"""Of the runs, for attacks beside the tight pair's."""

MEASURABLE, TWIN_DELTA = Fraction(1, 100), Fraction(1, 10)
"""A chance that runs can show, and that of a twin where the real one is below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAttack:
    """What is attacked through a histogram: a claim per event, over a plan."""

    histogram_of: HistogramOf
    plan: NoisePlan
    loss: Loss
    series: int = 1
    units: int = 1
    history: int
    factor: float = 1.0
    """Of the loss, the share that the promise has for it: of mu, or of epsilon."""

    prefix: str = ""
    """Of the names of its pairs."""

    unit: str = "event"
    """What the streams differ by."""

    @property
    def measure(self) -> Measure:
        return Measure.EPSILON if is_pure(self.plan) else Measure.MU

    @property
    def claim(self) -> float:
        return self.factor * self._own

    @property
    def _own(self) -> float:
        # An epsilon that is booked as rho = epsilon^2 / 2 comes back by the same root as mu does.
        return float(self.loss.epsilon) if isinstance(self.loss, Pure) else math.sqrt(2 * self.loss.as_booked().rho)

    def attempts(self, check: Callable[[Pair, Noise], None] | None = None) -> list[Attempt]:
        pairs = pairs_of(self.plan, claim=self._own, series=self.series, units=self.units, history=self.history)
        attempts = [self.attempt(pair, share=1.0 if pair.is_tight else SIDE_SHARE) for pair in pairs]
        if check is None:
            return attempts
        tight, carry_out = pairs[0], attempts[0].carry_out

        def checked(runs: int, alpha: float, noise: Noise) -> Finding:
            check(tight, noise)
            return carry_out(runs, alpha, noise)

        return [replace(attempts[0], carry_out=checked), *attempts[1:]]

    def attempt(self, pair: Pair, *, share: float, name: str | None = None, is_sharp: bool = True) -> Attempt:
        label = self.prefix + (name or pair.name).replace("event", self.unit)

        def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
            without, with_event = seen(self.histogram_of, self.plan, pair, runs, noise)
            found = attack(without, with_event, measure=self.measure, alpha=alpha)
            # Rare events decide about pure promises, so that what to expect is told for the tight pair alone.
            known = is_sharp and (pair.is_tight or self.measure is Measure.MU)
            reachable, expected = self._expected(pair, found.trials, alpha) if known else (None, None)
            return Finding(
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

        return Attempt(name=label, share=share, carry_out=carry_out)

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


def history_of(plan: NoisePlan) -> int:
    """So many events that neither a clamp at zero nor a sign is ever seen."""
    return math.ceil(12 * max(math.sqrt(variance_at(plan, tick)) for tick in observed_ticks(plan, 1)))


def counter_attempts(mechanism: Counter) -> list[Attempt]:
    """A counter's."""
    return _total_attempts(mechanism, range, units=1)


def summer_attempts(mechanism: Summer) -> list[Attempt]:
    """A sum's, on one event of the largest value."""
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

    target = PlanAttack(
        histogram_of=histogram_of,
        plan=mechanism.plan,
        loss=mechanism.guarantee.loss,
        units=units,
        history=history_of(mechanism.plan),
    )
    return target.attempts(check)


def known_attempts(mechanism: KnownHistogram) -> list[Attempt]:
    """A histogram's over a public domain, on one event with all labels that it may hold."""
    return PlanAttack(
        histogram_of=lambda labels: replace(mechanism, domain=Domain(labels)),
        plan=mechanism.plan,
        loss=mechanism.guarantee.loss,
        series=min(mechanism.max_keys_per_event, len(mechanism.domain)),
        history=history_of(mechanism.plan),
    ).attempts()


def unknown_attempts(mechanism: UnknownHistogram) -> list[Attempt]:
    """A histogram's over unknown labels: far above the threshold, at it, and a label of one event alone."""
    # The rest is a total of its own with its own noise: it is attacked by itself.
    labels_alone = replace(mechanism, rest_plan=None)
    ticks = observed_ticks(mechanism.plan, 1)
    far_above = history_of(mechanism.plan) + max(map(mechanism.threshold, ticks))
    target = PlanAttack(
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
        own_label_attempt(labels_alone, ticks),
    ]
    if mechanism.rest_plan is not None:
        rest = Summer(plan=mechanism.rest_plan, low=0, high=mechanism.max_keys_per_event)
        attempts += [replace(each, name=f"the rest: {each.name}") for each in summer_attempts(rest)[:1]]
    return attempts


def own_label_attempt(
    mechanism: UnknownHistogram | LabelSums,
    ticks: tuple[int, ...],
    batch_of: Callable[[pl.Series], pl.Series] = lambda events: events,
) -> Attempt:
    """How often a label that only one event holds is ever shown; where delta is tiny, by a twin with a larger one."""
    twin: Any = mechanism if mechanism.delta >= MEASURABLE else replace(mechanism, delta=TWIN_DELTA)
    keys = mechanism.max_keys_per_event

    def count(runs: int, noise: Noise) -> int:
        labels = texts(runs * keys)
        batch = batch_of(labels.reshape((runs, keys)).cast(pl.List(pl.String)))
        return int(ever_shown(twin, batch, len(labels), ticks, noise).reshape(runs, keys).any(axis=1).sum())

    claim = float(twin.guarantee.loss.as_booked().bad)
    return lone_attempt("a label that one event alone holds", claim, count, len(ticks), is_twin=twin is not mechanism)


def ever_shown(mechanism: Any, batch: Any, labels: int, ticks: Sequence[int], noise: Noise) -> NDArray[np.bool_]:
    """Which of so many labels of a batch of the first tick are shown at any of some ticks."""
    state = mechanism.start(noise)
    mechanism.update(state, batch)
    ever = np.zeros(labels, dtype=np.bool_)
    for tick in ticks:
        ever[places_of(mechanism.release(state, tick, noise))] = True
    return ever


def lone_attempt(
    name: str, claim: float, count: Callable[[int, Noise], int], releases: int, *, is_twin: bool, share: float = 1.0
) -> Attempt:
    """How often what one unit alone holds is ever shown, counted in so many runs; a twin has a larger delta."""

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        lower_bound = lower_rate(count(runs, noise), runs, alpha)
        return Finding(measure="delta", claim=claim, lower_bound=lower_bound, runs=runs, releases=releases)

    return Attempt(
        name=f"{name}, were delta {float(TWIN_DELTA):g}" if is_twin else name, share=share, carry_out=carry_out
    )


def check_against(
    mechanism: Mechanism[Any, Any, int], batch_of: Callable[[int], Any], pair: Pair, batch: AuditBatch
) -> None:
    """Refuse a batch if the mechanism itself, run by run with the same noise, does not release the same values.

    `batch_of(n)` is a batch that adds n. For mechanisms of one series, whose runs are made through a histogram.
    """
    size, members = batch.values.shape[1:3]
    labels = texts(2 * size * members)
    for world in range(2):
        for run in range(size):
            noise = _OneSeries(batch.noise, keys_of(labels[(world * size + run) * members :][:1], batch.noise))
            state = mechanism.start(noise)
            mechanism.update(state, batch_of(pair.history))
            waiting = world == 1
            for tick, expected in zip(pair.ticks, batch.values[world, run, 0], strict=True):
                if waiting and tick >= pair.tick:
                    waiting = False
                    mechanism.update(state, batch_of(pair.added))
                if mechanism.release(state, tick, noise) != expected:
                    raise StateError(
                        f"a {type(mechanism).__name__} must release what its plan's noise gives, got other values; "
                        "it cannot be audited through a histogram"
                    )


class _OneSeries(OuterNoise):
    """The noise of one label, whatever key is asked for."""

    def __init__(self, inner: Noise, key: Keys) -> None:
        super().__init__(inner)
        self._key = key

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.inner.at(*path), self._key)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self.inner.draw(law, parameter, self._same(keys), out)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        return self.inner.bits(self._same(keys))

    def _same(self, keys: Keys) -> Keys:
        return np.repeat(self._key, len(keys), axis=0)
