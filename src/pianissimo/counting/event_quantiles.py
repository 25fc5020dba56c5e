"""Quantiles of single events, over any noise plan.

The tree of `cells`, with the whole budget for one event: card U4. An event lies in one bin of each of H + 1 sizes, so
it moves H + 1 series by one. docs/privacy.md, 'Plans', for the noise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.cells import SELECTION_FAILURE, BinCounts, DoubleCells, EvenCells, all_bins, deviations_below
from pianissimo.counting.counter import OverPlan
from pianissimo.identity import identified
from pianissimo.labels import add_counts, add_up_slots
from pianissimo.loss.losses import Guarantee, event_guarantee
from pianissimo.noise import Noise
from pianissimo.noise.plan import NoisePlan, difference_variance, half_width, plan_loss
from pianissimo.noise.recent import Recent
from pianissimo.noise.running import RunningNoise, rounded, running_noise, series_keys
from pianissimo.stored_parts import TRANSIENT


@dataclass(frozen=True, slots=True)
class PlanLaw:
    """The noise of one release of a series of a plan, or of the difference of two: known without data."""

    plan: NoisePlan
    since: int
    tick: int

    @property
    def deviation(self) -> float:
        """Its standard deviation, with its rounding."""
        return math.sqrt(float(difference_variance(self.plan, self.since, self.tick)) + bool(self.plan.shift) / 12)

    def half_width(self, coverage: float) -> float:
        """How far, with this chance, it takes a count from the truth."""
        return half_width(self.plan, self.tick, coverage, since=self.since)


@dataclass(slots=True, repr=False)
class EventQuantilesState:
    """The exact count of each cell: secret."""

    counts: NDArray[np.int64]
    recent: Recent
    noise: RunningNoise = field(metadata=TRANSIENT)


@identified("event-quantiles")
@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuantiles(OverPlan):
    """The noisy counts of a tree of bins of a column of numbers, released at every tick: all quantiles follow.

    Guarantee: per event over the whole run, (H + 1) cost / 2 zCDP at integer orders, or ((H + 1) cost)-DP over a
    Laplace plan, 2^H cells.
    Error: in ranks, of the median at the worst cell: about sqrt(H / 6) times the noise of one bin.
    Cost: one integer a cell, and as a cache the plan's nodes in use of 2^(H + 1) series; as many draws a tick.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> cells = EvenCells(low=0.0, high=8.0, depth=3)
    >>> run = Run(EventQuantiles(plan=HaarPlan.calibrated(horizon=8, rho=0.5), cells=cells), NoNoise())
    >>> run.update(pl.Series([1.0, 5.0, 5.5, 9.0, None]))
    >>> value = run.release().value
    >>> value.quantile(0.5), value.total
    (5.5, 4.0)
    """

    cells: EvenCells | DoubleCells
    """Into which values are sorted."""

    @property
    def series(self) -> int:
        """How many bins there are."""
        return (2 << self.cells.depth) - 1

    @property
    def guarantee(self) -> Guarantee:
        # One bin of each size moves by one. Bins that nothing lies in get noise too.
        return event_guarantee(
            plan_loss(self.plan, series=self.cells.depth + 1, watched=self.series),
            horizon=self.plan.horizon,
            source="one bin of each size; docs/privacy.md, 'Quantiles of events'",
        )

    def error(self, tick: int, coverage: float) -> float:
        return self.between_error(0, tick, coverage)

    def between_error(self, start: int, end: int, coverage: float) -> float:
        factor = float(deviations_below(self.cells.depth, 0.5).max())
        return math.ceil(factor * half_width(self.plan, end, coverage, since=start))

    def start(self, noise: Noise) -> EventQuantilesState:  # noqa: ARG002
        counts = np.zeros(1 << self.cells.depth, dtype=np.int64)
        return EventQuantilesState(counts=counts, recent=Recent(self.history), noise=running_noise(self.plan))

    def gather(self, state: EventQuantilesState, batch: pl.Series) -> list[NDArray[np.int64]]:  # noqa: ARG002
        codes = self.cells.encode(batch)
        slots, counts = np.unique(codes[codes >= 0], return_counts=True)
        return [slots, counts.astype(np.int64)]

    def combine(self, pieces: Sequence[list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
        return add_up_slots(pieces)

    def add(self, state: EventQuantilesState, gathered: list[NDArray[np.int64]]) -> None:
        slots, counts = gathered
        add_counts(state.counts, slots, counts)
        state.recent.add(slots, counts)

    def release(self, state: EventQuantilesState, tick: int, noise: Noise) -> BinCounts:
        state.recent.close()
        numerators = state.noise.at(noise, tick, self.series, series_keys)
        return self._value(state.counts, numerators, PlanLaw(self.plan, 0, tick))

    def between(self, state: EventQuantilesState, start: int, end: int, noise: Noise) -> BinCounts:
        moves = state.recent.between(start, end, size=len(state.counts))
        numerators = state.noise.since(noise, start, end, series_keys(0, self.series))
        return self._value(moves, numerators, PlanLaw(self.plan, start, end))

    def _value(self, counts: NDArray[np.int64], numerators: NDArray[np.int64], law: PlanLaw) -> BinCounts:
        estimates = rounded(all_bins(counts, self.cells.depth), numerators, self.plan.shift)
        return BinCounts(self.cells, estimates, law, SELECTION_FAILURE)
