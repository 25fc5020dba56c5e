"""A histogram of labels nobody knew beforehand: a label is shown once its noisy count is clearly not one event's.

Cardoso and Rogers 2022, Algorithm 7 (UnkBase), over any noise plan. As printed the noise cache is emptied at each tick,
which multiplies the loss; here a label's noise at a node is drawn once and for all. Argument: docs/privacy.md,
'Unknown labels'.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_probability
from pianissimo.error_bars import half_width
from pianissimo.histograms.contributions import count_labels
from pianissimo.histograms.thresholds import Cut, threshold_at
from pianissimo.histograms.value import LabelCounts, add_counts
from pianissimo.labels import LabelIndex
from pianissimo.mechanism import TRANSIENT
from pianissimo.noise import Noise
from pianissimo.noise_plan import NoisePlan, plan_loss
from pianissimo.plan_noise import PlanNoise, rounded
from pianissimo.privacy import Guarantee, Neighbors, Unit


@dataclass(slots=True)
class UnknownHistogramState:
    """Every label seen so far, its exact count, and whether it was ever shown: secret."""

    index: LabelIndex
    counts: NDArray[np.int64]
    shown: NDArray[np.bool_]
    noise: PlanNoise = field(metadata=TRANSIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownHistogram:
    """How many events hold each label, for the labels that have passed a threshold, released at every tick.

    Guarantee: the ledger (D * cost / 2, 1 - (1 - delta)^D) per event over the whole run, D = max_keys_per_event.
    Error: the quantile of the plan's noise at the tick, the same for every label; a label whose true count is
    about the threshold is shown when its noise is high, so its estimate leans upward then.
    Cost: its name and one integer a label, and as a cache the plan's nodes in use; one draw a label and tick.

    >>> from pianissimo.counting import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> plan = HaarPlan.calibrated(horizon=8, rho=0.5)
    >>> run = Run(UnknownHistogram(plan=plan, delta=Fraction(1, 10**6)), NoNoise())
    >>> run.update(pl.Series(["aspirin"] * 90 + ["a rare one"]))
    >>> run.release().value.to_dict()
    {'aspirin': 90}
    """

    plan: NoisePlan
    """Which noises enter which release."""

    delta: Fraction
    """The chance that a label held by one event alone is ever shown."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count: Delta_0."""

    remember: bool = True
    """Once shown, a label is always shown; the promise is the same."""

    cut: Cut = Cut.PER_TICK
    """How the chance of showing a label of one event is shared by the ticks."""

    state_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        check_probability(delta=self.delta)

    @property
    def guarantee(self) -> Guarantee:
        # docs/privacy.md, 'Unknown labels': the comparison mechanism is the plan's noise on both streams, the labels of the event
        # suppressed before it; it describes us unless one of them is shown while only the event holds it.
        keys = self.max_keys_per_event
        return Guarantee(
            loss=replace(plan_loss(self.plan, series=keys).as_ledger(), bad=1 - (1 - self.delta) ** keys),
            unit=Unit.EVENT,
            neighbors=Neighbors.ADD_OR_REMOVE,
            horizon=self.plan.horizon,
            source="Cardoso and Rogers 2022, Theorem 7, corrected; docs/privacy.md, 'Unknown labels'",
        )

    def threshold(self, tick: int) -> int:
        """The least estimate that is shown at `tick`."""
        return threshold_at(self.plan, tick, self.delta, self.cut)

    def error(self, tick: int, coverage: float) -> float:
        return half_width(self.plan, tick, coverage)

    def start(self, noise: Noise) -> UnknownHistogramState:
        return UnknownHistogramState(
            index=LabelIndex(noise),
            counts=np.zeros(0, dtype=np.int64),
            shown=np.zeros(0, dtype=np.bool_),
            noise=PlanNoise(self.plan),
        )

    def update(self, state: UnknownHistogramState, batch: pl.Series) -> None:
        labels, more = count_labels(batch, self.max_keys_per_event)
        slots = state.index.slots_or_new(labels)
        new = len(state.index) - len(state.counts)
        if new:
            state.counts = np.concatenate([state.counts, np.zeros(new, dtype=np.int64)])
            state.shown = np.concatenate([state.shown, np.zeros(new, dtype=np.bool_)])
        add_counts(state.counts, slots, more)

    def release(self, state: UnknownHistogramState, tick: int, noise: Noise) -> LabelCounts:
        numerators = state.noise.at(noise, tick, len(state.counts), state.index.keys_from)
        estimates = rounded(state.counts, numerators, self.plan.shift)
        passing = (state.counts > 0) & (estimates >= self.threshold(tick))
        state.shown |= passing
        visible = np.flatnonzero(state.shown if self.remember else passing)
        labels = state.index.labels.gather(visible)
        order = labels.arg_sort().to_numpy()
        return LabelCounts(labels.gather(order), estimates[visible[order]])

    def merge(self, left: UnknownHistogramState, right: UnknownHistogramState) -> UnknownHistogramState:
        slots = left.index.slots_or_new(right.index.labels)
        new = np.zeros(len(left.index) - len(left.counts), dtype=np.int64)
        counts = np.concatenate([left.counts, new])
        add_counts(counts, slots, right.counts)
        return UnknownHistogramState(
            index=left.index, counts=counts, shown=np.zeros(len(counts), dtype=np.bool_), noise=left.noise
        )
