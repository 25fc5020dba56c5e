"""A histogram of labels nobody knew beforehand: a label is shown once its noisy count is clearly not one event's.

Cardoso and Rogers 2022, Algorithm 7 (UnkBase), over any noise plan. As printed the noise cache is emptied at each tick,
which multiplies the loss; here a label's noise at a node is drawn once and for all. Argument: docs/privacy.md,
'Unknown labels'.

A label is shown at a publishing tick iff its count is at least h0 (1, unless more are asked for) and its estimate v >=
h0 - 1 + m_t, where m_t = ceil(1 + 1/2 +
x_t) for releases that are rounded and ceil(1 + x_t) for those that are whole by themselves (trees). A label that only
one event holds is then shown with a chance of at most P[N_t >= x_t], bounded through the noise's moments (Chernoff):
for Gaussian nodes exp(-x^2 / (2 V_t)). Any public x_t will do whose bounds sum to at most delta over the R publishing
ticks:

* per tick, x_t with a bound of delta / R each: the least thresholds where the noise is small;
* constant, one x for all ticks with a sum of delta: one public number, below the largest of the others.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_probability
from pianissimo.counting.counter import OverPlan
from pianissimo.counting.known import LabelCounts, Rest, Tally, add_up, in_order, joined_shards, split_tally
from pianissimo.counting.reachable import Reachable, Turns, most_added, places_among
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import (
    MOST_LABELS,
    LabelIndex,
    VisibleLabels,
    add_counts,
    check_label_count,
    count_labels,
    visible_labels,
)
from pianissimo.loss.losses import Booked, Guarantee, event_guarantee
from pianissimo.mechanism import Conversation, Conversing
from pianissimo.noise import Noise
from pianissimo.noise.plan import NoisePlan, is_pure, plan_loss, terms_of, variance_at
from pianissimo.noise.recent import Recent
from pianissimo.noise.running import ONE_SERIES, RunningNoise, evaluate, rounded, running_noise
from pianissimo.stored_parts import TRANSIENT

_ROUNDING_ERROR = 1e-9
_LONGEST_SUM = 2**22
_EXACT_POWERS = 256


@identified("threshold-rule")
class ThresholdRule(Enum):
    """How the chance of showing a label of one event is shared by the ticks."""

    PER_TICK = "per tick"
    CONSTANT = "constant"


def threshold_at(
    plan: NoisePlan,
    tick: int,
    delta: Fraction,
    cut: ThresholdRule = ThresholdRule.PER_TICK,
    *,
    tests: int | None = None,
) -> int:
    """m_t: the least estimate that is shown at `tick`, rounded up, for a plan whose every tick is published.

    A label is compared with it at every tick, or at so many of them alone.
    """
    spread = (
        _spread_at(plan, tick, delta, plan.horizon if tests is None else tests)
        if cut is ThresholdRule.PER_TICK
        else _constant_spread(cast(Hashable, plan), delta)
    )
    rounding = 0.5 if plan.shift else 0.0
    return math.ceil(1 + rounding + spread * (1 + _ROUNDING_ERROR))


def _log_share(tests: int, delta: Fraction) -> float:
    """ln(R / delta), by logarithms of whole numbers, which are right to the last bits at any size."""
    return math.log(tests) + math.log(delta.denominator) - math.log(delta.numerator)


def _spread_at(plan: NoisePlan, tick: int, delta: Fraction, tests: int) -> float:
    """x_t with P[N_t >= x_t] <= delta / R, R the number of tests."""
    share = _log_share(tests, delta)
    if not is_pure(plan):
        return math.sqrt(2 * float(variance_at(plan, tick)) * share)
    weights = [(term.level, term.weight / 2.0**plan.shift) for term in terms_of(plan, tick)]

    def bound(factor: float) -> float:
        moments = sum(plan.noises[level].log_moment(factor * weight) for level, weight in weights)
        return (moments + share) / factor

    # Every factor gives a valid bound; the search only looks for the least.
    limit = min(1 / (abs(weight) * float(plan.noises[level].variance / 2) ** 0.5) for level, weight in weights)
    return min(bound(limit * step / 256) for step in range(1, 256))


@lru_cache(maxsize=256)
def _constant_spread(key: Hashable, delta: Fraction) -> float:
    """x with the sum over ticks of exp(-x^2 / (2 V_t)) at most delta."""
    plan = cast(NoisePlan, key)
    if is_pure(plan):
        raise ParameterError("a constant threshold must stand over Gaussian noise, got a Laplace plan; cut per tick")
    if not plan.horizon <= _LONGEST_SUM:
        raise ParameterError(f"a constant threshold must stand over at most {_LONGEST_SUM} releases; cut per tick")
    variances, counts = np.unique(plan.variance_profile(), return_counts=True)
    low, high = 0.0, math.sqrt(2 * float(variances[-1]) * _log_share(plan.horizon, delta))
    for _ in range(100):
        middle = (low + high) / 2
        enough = float((counts * np.exp(-(middle**2) / (2 * variances))).sum()) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


@dataclass(slots=True, repr=False)
class UnknownHistogramState:
    """Every label seen so far, its exact count, and whether it is shown: secret."""

    index: LabelIndex
    counts: NDArray[np.int64]
    shown: NDArray[np.bool_]
    recent: Recent
    noise: RunningNoise = field(metadata=TRANSIENT)
    rest_noise: RunningNoise | None = field(metadata=TRANSIENT)
    reachable: Reachable = field(metadata=TRANSIENT)
    turns: Turns | None = field(metadata=TRANSIENT)
    visible: VisibleLabels | None = field(metadata=TRANSIENT, default=None)
    """The slots of the labels that are shown, and these labels, in the order of their bytes."""


@identified("unknown-histogram")
@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownHistogram(Conversing[LabelCounts], OverPlan):
    """How many events hold each label, for the labels that have passed a threshold, released at every tick.

    Guarantee: booked as (D * cost / 2, 1 - (1 - delta)^D) per event over the whole run, D = max_keys_per_event.
    Error: the quantile of the plan's noise at the tick, the same for every label; a label whose true count is
    about the threshold is shown when its noise is high, so its estimate leans upward then.
    Cost: its name and one integer a label, and as a cache the plan's nodes in use; one draw a label and tick.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> plan = HaarPlan.calibrated(horizon=8, rho=0.5)
    >>> run = Run(UnknownHistogram(plan=plan, delta=Fraction(1, 10**6)), NoNoise())
    >>> run.update(pl.Series(["aspirin"] * 90 + ["a rare one"]))
    >>> run.release().value.to_dict()
    {'aspirin': 90}
    """

    in_shards: ClassVar[bool] = True

    delta: Fraction
    """The chance that a label held by one event alone is ever shown."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count: Delta_0."""

    remember: bool = True
    """Once shown, a label is always shown; the promise is the same."""

    rest_plan: NoisePlan | None = None
    """If given, the noise of a separate total, from which an estimate of all labels that are not shown is made.

    Labels about the threshold are shown when their noise is high, so that this estimate leans downward by as much.
    """

    cut: ThresholdRule = ThresholdRule.PER_TICK
    """How the chance of showing a label of one event is shared by the ticks."""

    min_count: int = 1
    """How many events a label needs to be shown, however high its noise: h0. Its threshold is higher by h0 - 1."""

    show_from: int = 1
    """A public floor: no estimate below it is shown for the first time. Work at a tick is then for labels that had
    events in it and for those near the floor, and not for all."""

    test_every: int = 1
    """In one of so many releases a label that is not shown is looked at, by a public hash of its name: s. It is
    compared with R / s thresholds alone, which are lower for it, and a new label waits up to s releases."""

    def __post_init__(self) -> None:
        check_at_least(
            1,
            max_keys_per_event=self.max_keys_per_event,
            min_count=self.min_count,
            show_from=self.show_from,
            test_every=self.test_every,
        )
        if self.test_every > 1 and (self.cut is not ThresholdRule.PER_TICK or not self.remember):
            raise ParameterError(
                f"test_every must be 1 with a constant threshold and without remember, got {self.test_every}"
            )
        check_probability(delta=self.delta)

    @property
    def guarantee(self) -> Guarantee:
        # docs/privacy.md, 'Unknown labels': the comparison mechanism is the plan's noise on both streams, the labels of
        # the event suppressed before it; it describes us unless one of them is shown while only the event holds it.
        keys = self.max_keys_per_event
        own = plan_loss(self.plan, series=keys, watched=MOST_LABELS).as_booked()
        # Exact powers of long fractions are slow; beyond a size the sum, which is larger, is booked.
        bad = 1 - (1 - self.delta) ** keys if keys <= _EXACT_POWERS else keys * self.delta
        # The total behind the rest is one more series, which an event moves by at most Delta_0.
        rest = (
            Booked(rho=Fraction(0)) if self.rest_plan is None else plan_loss(self.rest_plan, magnitude=keys).as_booked()
        )
        return event_guarantee(
            Booked(rho=own.rho + rest.rho, bad=bad, distance=own.distance + rest.distance),
            horizon=self.plan.horizon,
            source="Cardoso and Rogers 2022, Theorem 7, corrected; docs/privacy.md, 'Unknown labels'",
        )

    def threshold(self, tick: int) -> int:
        """The least estimate that is shown at `tick`."""
        # Without the event a label that is shown for it alone has at most min_count - 1. Any higher threshold that is
        # public is as private.
        tests = -(-self.plan.horizon // self.test_every)
        own = threshold_at(self.plan, tick, self.delta, self.cut, tests=tests)
        return max(self.show_from, self.min_count - 1 + own)

    @property
    def _least_count(self) -> int:
        """No label of fewer events can be shown: noise is rounded as `rounded` does, which keeps its order."""
        return self.show_from - most_added(self.plan)

    def start(self, noise: Noise) -> UnknownHistogramState:
        return UnknownHistogramState(
            index=LabelIndex(noise),
            counts=np.zeros(0, dtype=np.int64),
            shown=np.zeros(0, dtype=np.bool_),
            recent=Recent(self.history),
            noise=running_noise(self.plan),
            rest_noise=None if self.rest_plan is None else running_noise(self.rest_plan),
            reachable=Reachable(self._least_count),
            turns=Turns(self.test_every) if self.test_every > 1 else None,
        )

    def update(self, state: UnknownHistogramState, batch: pl.Series) -> None:
        # The same as `add` of what is gathered, without putting it in order.
        self._add(state, *count_labels(batch, self.max_keys_per_event))

    def gather(self, state: UnknownHistogramState, batch: pl.Series) -> Tally:  # noqa: ARG002
        return in_order(*count_labels(batch, self.max_keys_per_event))

    def combine(self, pieces: Sequence[Tally]) -> Tally:
        return add_up(pieces)

    def add(self, state: UnknownHistogramState, gathered: Tally) -> None:
        labels, counts = gathered
        self._add(state, labels, counts)

    @property
    def shard_plans(self) -> tuple[NoisePlan, ...]:
        """Whose noise is drawn where labels are counted."""
        return (self.plan,)

    def split(self, gathered: Tally, shards: int) -> dict[int, Tally]:
        return split_tally(gathered, shards)

    def converse(self, state: UnknownHistogramState, tick: int, noise: Noise) -> Conversation[LabelCounts]:
        answers = yield None
        labels, (estimates,) = joined_shards(answers)
        check_label_count(sum(count for *_, count in answers))
        value = LabelCounts(labels, estimates)
        if state.rest_noise is None:
            return value
        total = sum(total for _, _, total, _ in answers)
        return replace(value, rest=self._rest(state, value, total, tick, noise))

    def answer(self, state: UnknownHistogramState, question: None, tick: int, noise: Noise) -> list[Any]:  # noqa: ARG002
        """The labels that are shown with their estimates, and of all labels the exact total and how many there are."""
        state.recent.close()
        if state.turns is None:
            slots = state.reachable.slots(state.counts)
        else:
            slots = self._take_turns(state, state.turns, tick, noise)
        counts, keys = state.counts, state.index.keys
        if slots is not None:
            counts, keys = counts[slots], lambda start, end: state.index.keys_at(slots[start:end])
        estimates = rounded(counts, state.noise.at(noise, tick, len(counts), keys), self.plan.shift)
        passing = (counts >= self.min_count) & (estimates >= self.threshold(tick))
        if slots is None:
            state.shown = state.shown | passing if self.remember else passing
        else:
            state.shown[slots] = state.shown[slots] | passing if self.remember else passing
        value = self._visible(state, estimates, slots)
        total = 0 if state.rest_noise is None else int(state.counts.sum())
        return [value.labels, [value.estimates], total, len(state.counts)]

    def _take_turns(self, state: UnknownHistogramState, turns: Turns, tick: int, noise: Noise) -> NDArray[np.int64]:
        """The slots of the labels that are shown, those among them whose turn it is and that pass.

        The turns are public and the same in both worlds. A label outside its turn is not compared with any threshold,
        so that R / s chances of delta s / R add up to delta (docs/privacy.md, 'Labels in turn').
        """
        due = turns.due(state.index.labels, tick)
        # As with a floor: what noise cannot lift to the threshold needs none.
        least = max(self.min_count, self.threshold(tick) - most_added(self.plan))
        due = due[~state.shown[due] & (state.counts[due] >= least)]
        numerators = evaluate(self.plan, noise, tick, state.index.keys_at(due))
        estimates = rounded(state.counts[due], numerators, self.plan.shift)
        state.shown[due[estimates >= self.threshold(tick)]] = True
        return turns.shown(state.shown)

    def _rest(
        self, state: UnknownHistogramState, value: LabelCounts, exact: int, tick: int, noise: Noise
    ) -> Rest | None:
        """A separately noised total less what is shown; a sum over labels that are present but not shown would leak."""
        if self.rest_plan is None or state.rest_noise is None:
            return None
        numerators = state.rest_noise.at(noise.at("rest"), tick, 1, lambda *_: ONE_SERIES)
        total = rounded(np.array([exact], dtype=np.int64), numerators, self.rest_plan.shift)
        # Every release in the sum is rounded by itself: a twelfth of variance each.
        own, twelfth = variance_at(self.plan, tick) + Fraction(1, 12), Fraction(1, 12)
        variance = variance_at(self.rest_plan, tick) + twelfth + len(value.labels) * own
        # Of labels that noise may have lifted over the threshold, it is thought to be two deviations too high.
        lifted = int((value.estimates < self.threshold(tick) + 2 * math.sqrt(own)).sum())
        return Rest(int(total[0] - value.estimates.sum()), math.sqrt(variance), 2 * lifted * math.sqrt(own))

    def between(self, state: UnknownHistogramState, start: int, end: int, noise: Noise) -> LabelCounts:
        # Behind the cut an interval is free, also for ticks before the label was shown: every row of a shown label's
        # noisy counts is part of the comparison mechanism (docs/privacy.md, 'Unknown labels').
        moves = state.recent.between(start, end, size=len(state.counts))
        # Most labels are never shown, and need no noise.
        slots = state.reachable.slots(state.counts) if state.turns is None else state.turns.shown(state.shown)
        shown = self._shown(state, slots)
        numerators = np.zeros(len(moves), dtype=np.int64)
        places = shown if slots is None else places_among(slots, shown)
        numerators[shown] = state.noise.since(noise, start, end, state.index.keys_at(shown), places)
        return self._visible(state, rounded(moves, numerators, self.plan.shift), slots, by_slot=True)

    def merge(self, left: UnknownHistogramState, right: UnknownHistogramState) -> UnknownHistogramState:
        self._add(left, right.index.labels, right.counts)
        return left

    def _add(self, state: UnknownHistogramState, labels: pl.Series, counts: NDArray[np.int64]) -> None:
        slots = state.index.slots_or_new(labels)
        new = len(state.index) - len(state.counts)
        if new:
            state.counts = np.concatenate([state.counts, np.zeros(new, dtype=np.int64)])
            state.shown = np.concatenate([state.shown, np.zeros(new, dtype=np.bool_)])
        add_counts(state.counts, slots, counts)
        state.recent.add(slots, counts)
        state.reachable.note(slots)

    def _shown(self, state: UnknownHistogramState, slots: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """The slots of the labels that are shown, in order; no others can be than those within reach."""
        return np.flatnonzero(state.shown) if slots is None else np.sort(slots[state.shown[slots]])

    def _visible(
        self,
        state: UnknownHistogramState,
        estimates: NDArray[np.int64],
        slots: NDArray[np.int64] | None,
        *,
        by_slot: bool = False,
    ) -> LabelCounts:
        """The estimates of the labels that are shown, in the order of their bytes; estimates are those of `slots`."""
        state.visible = visible_labels(state.index, self._shown(state, slots), state.visible)
        ordered, shown, _ = state.visible
        places = ordered if slots is None or by_slot else places_among(slots, ordered)
        return LabelCounts(shown.clone(), estimates[places])
