"""Attacks on sums and means by label: each series of a label by itself, through many labels, as if it were a count.

An event of the end of the range that moves a series most adds the claim of that series. The series of a label have
noise of their own, so that what they lose adds up: each is held to its own part. A label of one event alone is
attacked through its number, by which alone it is shown.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.pairs import observed_ticks
from pianissimo.audit.plan_attacks import PlanAttack, history_of, own_label_attempt
from pianissimo.audit.report import Attempt
from pianissimo.counting import LabelCounts, LabelSums
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked, Loss
from pianissimo.noise import Noise
from pianissimo.noise.plan import is_pure, plan_loss

_BEYOND = 1000
"""Values of an audit lie so many steps outside of the range, into which the mechanism moves them."""


@dataclass(slots=True)
class _SeriesState:
    inner: Any
    counts: NDArray[np.int64]
    """Units that wait for the next release, of each label."""


@dataclass(frozen=True)
class SumSeries:
    """Sums by label as a histogram: a unit of it is one step of one series, and an event as many as move it most."""

    sums: LabelSums
    labels: pl.Series
    place: int
    """Of the series."""

    history: int
    """So many events of the middle of the range in every label before the first release."""

    def start(self, noise: Noise) -> _SeriesState:
        inner = self.sums.start(noise)
        if self.history:
            numbers = np.full(len(self.labels), self.history)
            self.sums.add(inner, [self.labels, numbers, numbers * self.sums.centre])
        return _SeriesState(inner, np.zeros(len(self.labels), dtype=np.int64))

    def update(self, state: _SeriesState, events: pl.Series) -> None:
        """One more unit for each of these labels."""
        np.add.at(state.counts, events.list.explode().cast(pl.Int64).to_numpy(), 1)

    def merge(self, left: _SeriesState, right: _SeriesState) -> _SeriesState:
        left.counts += right.counts
        return left

    def release(self, state: _SeriesState, tick: int, noise: Noise) -> LabelCounts:
        """Events as they come, before any value is moved into the range."""
        value, move = _largest_move(self.sums, self.place)
        waiting = np.flatnonzero(state.counts)
        if len(waiting):
            keys = self.labels.gather(waiting)
            batch = pl.DataFrame({"key": keys, "value": np.full(len(keys), value)}).to_struct()
            labels, numbers, sums = self.sums.gather(state.inner, batch)
            # Equal events: the sums of one, times their number.
            events = state.counts[waiting] // abs(move)
            self.sums.add(state.inner, [labels, numbers * events, sums * events])
            state.counts[:] = 0
        found = self.sums.release(state.inner, tick, noise)
        own = found.series[self.place]
        before = self.history if self.sums.domain is None and self.place == 0 else 0
        return LabelCounts(found.labels, (own - before) * (1 if move > 0 else -1))


def label_sum_attempts(mechanism: LabelSums) -> list[Attempt]:
    """Each series on one event with all its labels; of unknown labels far above the threshold, and of one event alone.

    Means over Laplace noise have two series that one event moves by the whole range together: all of it in either.
    """
    keys = mechanism.max_keys_per_event
    keys = keys if mechanism.domain is None else min(keys, len(mechanism.domain))
    ticks = observed_ticks(mechanism.plan, 1)
    history = 0
    if mechanism.domain is None:
        history = history_of(mechanism.plan) + max(map(mechanism.threshold, ticks))
    attempts: list[Attempt] = []
    for place, (plan, loss) in enumerate(zip(mechanism.plans, _losses(mechanism, keys), strict=True)):
        target = PlanAttack(
            histogram_of=_series_of(mechanism, place, history),
            plan=plan,
            loss=loss,
            series=keys,
            units=abs(_largest_move(mechanism, place)[1]),
            history=0,
            prefix=f"series {place + 1}: " if len(mechanism.plans) > 1 else "",
        )
        attempts += target.attempts()
    if mechanism.domain is None:
        attempts.append(own_label_attempt(mechanism, ticks, _with_values))
    return attempts


def _series_of(mechanism: LabelSums, place: int, history: int) -> Callable[[pl.Series], SumSeries]:
    def histogram_of(labels: pl.Series) -> SumSeries:
        sums = mechanism if mechanism.domain is None else replace(mechanism, domain=Domain(labels))
        return SumSeries(sums, labels, place, history)

    return histogram_of


def _with_values(labels: pl.Series) -> pl.Series:
    return pl.DataFrame({"key": labels, "value": np.zeros(len(labels), dtype=np.int64)}).to_struct()


def _largest_move(mechanism: LabelSums, place: int) -> tuple[int, int]:
    """A value that moves a series most, beyond the end of the range, and by how much it does."""
    low, high = mechanism.ends
    if mechanism.sum_plan is None:
        moves = (low, high)
    elif is_pure(mechanism.plan):
        moves = (0, high - low) if place == 0 else (high - low, 0)
    else:
        moves = (1, 1) if place == 0 else (low - mechanism.centre, high - mechanism.centre)
    values = (mechanism.low - _BEYOND, mechanism.high + _BEYOND)
    return max(zip(values, moves, strict=True), key=lambda each: abs(each[1]))


def _losses(mechanism: LabelSums, keys: int) -> list[Loss]:
    """What the promise has for each series: all of it for one, or where one event can spend all on either."""
    promised = mechanism.guarantee.loss
    if mechanism.sum_plan is None or is_pure(mechanism.plan):
        return [promised for _ in mechanism.plans]
    own = [
        plan_loss(plan, series=keys, magnitude=abs(_largest_move(mechanism, place)[1])).as_booked().rho
        for place, plan in enumerate(mechanism.plans)
    ]
    return [Booked(rho=promised.as_booked().rho * each / sum(own)) for each in own]
