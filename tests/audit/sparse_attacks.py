"""Attacks on a top list that is chosen anew now and then, which plans list and never choose.

Races and counts of the list are those of many labels at once (`answer_attacks`, `plan_attacks`): all labels are chosen,
in the order of the race, and every one has its series.

A run of tests keeps the ratio of an outcome's chances, with an event over without it, between e^-(1 / b1 + 1 / b2) and
e^(1 / b2): b1 the scale of the threshold's noise, b2 that of the tests'. Both ends are attained, each by a question
of its own, and together they make the interval that is booked.

* Lower end: labels that the event holds are tested again and again around the threshold, and stay below; then another
  label is above. The tests before hold the threshold's noise up, by one more with the event: e^(1 / b1). The last label
  has to be above a threshold that is higher by one: e^(1 / b2).
* Upper end: the labels that hold the threshold up are others, and the one that is above at last is the event's.

A run has one noise on its threshold, so every run is made by itself. How many labels are tested and where they stand
is chosen by the exact chances of both outcomes. The published counts, from which thresholds start, are known: they go
without noise here.

How much is shown depends on the scales. At scales of one half, where one event moves a label across the whole noise,
60,000 runs show 0.93 of the lower end; at a quarter, where it loses 8 and the outcome hardly ever happens with the
event, 100,000 runs show 0.9. At scales above one tests near the threshold hold its noise up only gradually: the
ratio is attained by ever rarer outcomes, and 100,000 runs show 0.8 to 0.86. The floor of the finding knows.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit import audit_cases
from pianissimo.audit.answer_attacks import MOST_MOVED, order_attempt, wins_of
from pianissimo.audit.attack import epsilon_bound
from pianissimo.audit.pairs import HistogramOf, events_text, group_size, texts
from pianissimo.audit.plan_attacks import PlanAttack, history_of
from pianissimo.audit.report import AttackedPart, Attempt, AuditPart, Composition, Finding
from pianissimo.counting import LabelCounts
from pianissimo.labels import Domain
from pianissimo.noise import KeyedNoise, Noise, TreePlan, fresh_secret
from pianissimo.noise.keyed import Keys
from pianissimo.noise.laws import GaussianNode
from pianissimo.noise.plan import NoisePlan, plan_loss
from pianissimo.noise.running import RunningNoise
from pianissimo.selection import SparseGumbel, SparseGumbelState

_SIDE_SHARE = 0.5
_TESTS = 16
_LEAST_TICKS, _MOST_LABELS = 3, 8
_FAR = 10**12


def sparse_composition(mechanism: SparseGumbel) -> Composition:
    """Races, counts and runs of tests, as many as there really are."""
    switches = observed_switches(mechanism)
    return Composition(
        promised=mechanism.guarantee.loss.as_booked(),
        attacked=(_order(mechanism, switches), _counts(mechanism, switches), _tests(mechanism, switches)),
    )


def observed_switches(mechanism: SparseGumbel) -> int:
    """How often the chosen labels really change if others are far ahead at every second tick."""
    opportunities = mechanism.switches + 3
    plan = _without_noise(2 * opportunities)
    twin = replace(mechanism, domain=Domain(texts(2 * mechanism.k)), plan=plan)
    noise = KeyedNoise(fresh_secret())
    state = twin.start(noise)
    shown: set[str] = set()
    changes = 0
    for tick in range(1, 2 * opportunities + 1):
        if tick % 2:
            first = tick // 2 % 2 * mechanism.k
            state.counts[first : first + mechanism.k] += _FAR * tick
        labels = {label for label, _ in twin.release(state, tick, noise)}
        changes += tick > 1 and labels != shown
        shown = labels
    return changes


def _order(mechanism: SparseGumbel, switches: int) -> AttackedPart:
    def first_wins(counts: NDArray[np.int64], noise: Noise) -> NDArray[np.bool_]:
        twin = _all_chosen(mechanism, texts(counts.size))
        state = twin.start(noise)
        state.counts = counts.ravel()
        twin.release(state, 1, noise)
        return wins_of(state.chosen, counts.shape)

    places = (switches + 1) * mechanism.k
    return AttackedPart(
        part=AuditPart(name="order", times=places, rho=1 / (8 * mechanism.race_scale**2)),
        attempts=lambda factor: [order_attempt(first_wins, scale=mechanism.race_scale, factor=factor)],
    )


def _counts(mechanism: SparseGumbel, switches: int) -> AttackedPart:
    """The series of all labels that are ever chosen; of one with noise of its own each, a few are looked at."""
    series = min((switches + 1) * mechanism.k, len(mechanism.domain))
    moved = series if mechanism.max_keys_per_event is None else min(series, mechanism.max_keys_per_event)
    seen = min(moved, MOST_MOVED)

    def attempts(factor: float) -> list[Attempt]:
        target = PlanAttack(
            histogram_of=_histogram_of(mechanism),
            plan=mechanism.plan,
            loss=plan_loss(mechanism.plan, series=seen),
            series=seen,
            history=history_of(mechanism.plan),
            factor=factor,
            prefix="counts: ",
        )
        return target.attempts()[:1]

    rho = plan_loss(mechanism.plan, series=moved).as_booked().rho
    return AttackedPart(part=AuditPart(name="counts", times=1, rho=rho), attempts=attempts)


def _tests(mechanism: SparseGumbel, switches: int) -> AttackedPart:
    threshold, test = 1 / mechanism.threshold_scale, 1 / mechanism.test_scale
    held = min(mechanism.max_keys_per_event or _MOST_LABELS, _MOST_LABELS)
    ticks = _LEAST_TICKS if held > 1 else 2 * _LEAST_TICKS
    lower = _TestQuestion(labels=held, ticks=ticks, is_held_up_by_event=True, claim=float(threshold + test))
    upper = _TestQuestion(labels=_TESTS, ticks=1, is_held_up_by_event=False, claim=float(test))
    return AttackedPart(
        part=AuditPart(name="tests", times=switches, rho=(threshold + 2 * test) ** 2 / 8),
        attempts=lambda factor: [
            _tests_attempt(mechanism, lower, factor, share=1.0),
            _tests_attempt(mechanism, upper, factor, share=_SIDE_SHARE),
        ],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _TestQuestion:
    """Labels that stay below the threshold at all ticks but the last; then another one that is above."""

    labels: int
    """How many; at most so many, as long as they are not placed."""

    ticks: int
    is_held_up_by_event: bool
    """Whether the event holds the labels that stay below, or the one that is above."""

    claim: float
    """The largest log-ratio of the outcome's chances."""

    below: int = 0
    """How far the labels that stay below are above the threshold."""

    above: int = 0
    """How far the last one is."""

    @property
    def events(self) -> int:
        return group_size(self.claim, pure=True)

    @property
    def name(self) -> str:
        order = "its labels below, then another above"
        if not self.is_held_up_by_event:
            order = "others below, then its label above"
        return f"tests: {events_text(self.events)}, {order}"

    def leads(self, *, with_events: bool) -> tuple[int, int]:
        more = self.events if with_events else 0
        return (self.below + more, self.above) if self.is_held_up_by_event else (self.below, self.above + more)


def _tests_attempt(mechanism: SparseGumbel, question: _TestQuestion, factor: float, *, share: float) -> Attempt:
    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        scales = float(mechanism.threshold_scale), float(mechanism.test_scale)
        best = _placed(question, scales, runs)
        found = [_count(mechanism, best, runs, noise.at(world), with_events=bool(world)) for world in range(2)]
        chances = [_chance(best, scales, with_events=with_events) for with_events in (False, True)]
        if not best.is_held_up_by_event:
            found, chances = found[::-1], chances[::-1]
        likely, unlikely = (round(runs * chance) for chance in chances)
        return Finding(
            pair=best.name,
            measure="epsilon",
            claim=best.claim * factor,
            lower_bound=epsilon_bound(found[0], found[1], runs, alpha) / best.events,
            runs=runs,
            releases=best.ticks + 1,
            reachable=math.log(chances[0] / chances[1]) / best.events,
            expected=epsilon_bound(likely, unlikely, runs, alpha) / best.events,
            is_tight=True,
            statistic="outcome of the tests",
        )

    return Attempt(name=question.name, share=share, carry_out=carry_out)


def _count(mechanism: SparseGumbel, question: _TestQuestion, runs: int, noise: Noise, *, with_events: bool) -> int:
    """In how many runs of tests, made one by one, the outcome is the question's."""
    labels = question.labels + 2
    twin = replace(
        mechanism,
        domain=Domain(texts(labels)),
        k=1,
        switches=max(1, mechanism.switches),
        plan=_without_noise(question.ticks + 2),
    )
    below, above = question.leads(with_events=with_events)
    # The chosen label, those that are tested, and the last one; a label that is not asked about is far behind.
    early = np.array([_FAR, *[_FAR + twin.eta + below] * question.labels, 0])
    late = np.array([2 * _FAR, *[_FAR] * question.labels, 2 * _FAR + twin.eta + above])
    states = [_state(twin, counts, noise) for counts in (early, late)]
    *ticks, last = range(2, question.ticks + 3)
    count = 0
    for run in range(runs):
        drawn = noise.at("run", run)
        if not any(twin._somebody_leads(states[0], tick, drawn) for tick in ticks):
            count += twin._somebody_leads(states[1], last, drawn)
    return count


class _Known(TreePlan):
    """Counts that are known: any plan, without its noise."""

    def evaluate(self, noise: Noise, tick: int, keys: Keys, *, since: int = 0) -> NDArray[np.int64]:
        del noise, tick, since
        return np.zeros(len(keys), dtype=np.int64)

    def running_noise(self) -> RunningNoise:
        raise NotImplementedError


def _without_noise(horizon: int) -> NoisePlan:
    return _Known(base=2, noise=GaussianNode(Fraction(1)), horizon=horizon)


def _state(mechanism: SparseGumbel, counts: NDArray[np.int64], noise: Noise) -> SparseGumbelState:
    state = mechanism.start(noise)
    state.counts, state.chosen = counts, np.zeros(1, dtype=np.int64)
    return state


def _placed(question: _TestQuestion, scales: tuple[float, float], runs: int) -> _TestQuestion:
    """The question with labels where so many runs are expected to show most."""

    def expected(each: _TestQuestion) -> float:
        chances = [_chance(each, scales, with_events=with_events) for with_events in (False, True)]
        likely, unlikely = (round(runs * chance) for chance in sorted(chances, reverse=True))
        # Clopper and Pearson's bounds, roughly: only to compare places.
        low, high = likely - 4.5 * math.sqrt(likely), unlikely + 4.5 * math.sqrt(unlikely) + 10
        return math.log(low / high) if low > high else low - high - runs

    steps = [max(1, round(scale / 3)) for scale in scales]
    reach = [math.ceil(4 * max(scales) / step) for step in steps]
    belows = [place * steps[1] for place in range(-reach[1], reach[1] + 1)]
    numbers = [2**place for place in range(question.labels.bit_length()) if 2**place <= question.labels]
    starts = (replace(question, below=below, labels=labels) for labels in numbers for below in belows)
    best = max(starts, key=expected)
    for _ in range(2):
        best = max((replace(best, labels=labels) for labels in numbers), key=expected)
        best = max((replace(best, above=above - best.events // 2) for above in belows), key=expected)
        best = max((replace(best, below=below - best.events // 2) for below in belows), key=expected)
    return best


def _chance(question: _TestQuestion, scales: tuple[float, float], *, with_events: bool) -> float:
    """Of the question's outcome, exactly."""
    below, above = question.leads(with_events=with_events)
    reach = math.ceil(40 * scales[0]) + 2
    noise = np.arange(-reach, reach + 1)
    ratio = math.exp(-1 / scales[0])
    chances = (1 - ratio) / (1 + ratio) * ratio ** np.abs(noise)
    stay = _at_most(noise - below, scales[1]) ** (question.labels * question.ticks)
    return float((chances * stay * (1 - _at_most(noise - above, scales[1]))).sum())


def _at_most(values: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """The chance that discrete Laplace noise is at most so large."""
    ratio = math.exp(-1 / scale)
    tail = ratio ** np.where(values >= 0, values + 1, -values) / (1 + ratio)
    return np.where(values >= 0, 1 - tail, tail)


def _all_chosen(mechanism: SparseGumbel, labels: pl.Series) -> SparseGumbel:
    return replace(mechanism, domain=Domain(labels), k=len(labels))


@dataclass(frozen=True, slots=True)
class _Series:
    """A top list of all labels of its domain as a histogram."""

    inner: SparseGumbel

    def start(self, noise: Noise) -> SparseGumbelState:
        return self.inner.start(noise)

    def update(self, state: SparseGumbelState, batch: pl.Series) -> None:
        self.inner.update(state, batch)

    def merge(self, left: SparseGumbelState, right: SparseGumbelState) -> SparseGumbelState:
        return self.inner.merge(left, right)

    def release(self, state: SparseGumbelState, tick: int, noise: Noise) -> LabelCounts:
        if not len(state.chosen):
            self.inner.release(state, 1, noise)
        labels, estimates = zip(*self.inner.release(state, tick, noise), strict=True)
        return LabelCounts(pl.Series(labels), np.array(estimates, dtype=np.int64))


def _histogram_of(mechanism: SparseGumbel) -> HistogramOf:
    return lambda labels: _Series(_all_chosen(mechanism, labels))


audit_cases[SparseGumbel] = sparse_composition
