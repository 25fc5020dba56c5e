"""A sum at user level with a cap in value units: what counts of a user is at most so much in all.

Dong, Luo and Yi, Section IV, without their cutting of steps into sub-steps: a counter's promise is about the mass
that a user adds, however it is spread over ticks, so its error grows with the number of ticks alone. Values are whole
steps of a public grid, each rounded by itself. Signed values are cut by the sum of their sizes: one stream, no second
budget.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError
from pianissimo.mechanism import TRANSIENT
from pianissimo.noise import Noise
from pianissimo.users.capped import CappedTotal
from pianissimo.users.caps import AdaptiveCap, Course, PeriodCap
from pianissimo.users.counters import RunningCounters, Sensitivity
from pianissimo.users.heads import whole_steps
from pianissimo.users.rows import Rows
from pianissimo.users.statistics import batch_column
from pianissimo.users.table import Users
from pianissimo.users.value import Cut, UserTotal


@dataclass(slots=True, repr=False)
class UserSumState:
    """What each user gave, and the exact sum of what was accepted: secret."""

    users: Users
    course: Course
    total: int
    """What counts of signed values, and of periods that are over."""

    pending: Rows
    left_out: Rows
    counters: RunningCounters = field(metadata=TRANSIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSum(CappedTotal):
    """The sum of a column of whole steps of a grid, of which each user adds at most the cap, released at every tick.

    A batch is a table with the columns `user` and `value`. The cap is in steps of the grid.

    Guarantee: per user over the whole run, the cap's epsilon, and beside it the counters' rho at integer orders or
    pure epsilon; with `PeriodCap`, per user and period.
    Error: while the cap stands at its first value; every release carries its own bars.
    Cost: about 36 bytes a user; with signed values also the rows of the open tick and those that the cap left out.

    >>> from fractions import Fraction
    >>> from pianissimo.counting import TreePlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> from pianissimo.users import FixedCap
    >>> run = Run(UserSum(cap=FixedCap(units=30), plan=TreePlan, horizon=8, rho=Fraction(1, 2)), NoNoise())
    >>> run.update(pl.DataFrame({"user": ["ann", "ann"], "value": [25, 10]}))
    >>> run.release().value.estimate
    30
    """

    signed: bool = False
    """Whether values may be negative; else negative ones are refused."""

    sensitivity: ClassVar[Sensitivity] = Sensitivity(total=1, squared=1)
    state_version: ClassVar[int] = 1

    def start(self, noise: Noise) -> UserSumState:
        return UserSumState(
            users=Users(noise, self.cap.caps[0]),
            course=Course(self.cap),
            total=0,
            pending=Rows(),
            left_out=Rows(),
            counters=RunningCounters(self.counters),
        )

    def update(self, state: UserSumState, batch: pl.DataFrame) -> None:
        self.add(state, self.gather(state, batch))

    def gather(self, state: UserSumState, batch: pl.DataFrame) -> codec.Plain:
        """Users by their names and the units of each; signed values one by one, each user's in her own order."""
        users, values = batch_column(batch, "user"), whole_steps(batch_column(batch, "value"))
        low = values.min()
        if not self.signed and isinstance(low, int) and low < 0:
            raise InputError("values must not be negative, got a negative one; declare the sum as signed")
        # What is beyond the last cap never counts. So clipped, one value has no say in what others may give.
        most = self.cap.caps[-1] + 1
        values = values.clip(-most, most)
        rows = state.users.grouped(users, values.abs().cast(pl.UInt64).to_numpy())
        if not self.signed:
            return [rows.names, codec.narrow(rows.units)]
        return [rows.names, codec.narrow(rows.counts), codec.narrow(values.to_numpy()[rows.order])]

    def add(self, state: UserSumState, gathered: codec.Plain) -> None:
        if not self.signed:
            names, units = gathered
            state.users.add(names, units.astype(np.uint64))
            return
        names, counts, steps = gathered
        values = steps.astype(np.int64)
        before = state.users.add_and_tell_before(np.repeat(names, counts, axis=0), np.abs(values).astype(np.uint64))
        within = before < self.cap.caps[-1]
        state.pending.append([before[within], values[within]])

    def release(self, state: UserSumState, tick: int, noise: Noise) -> UserTotal:
        old = state.course.cap
        raised = state.course.close(state.users, tick, noise)
        cap, place = state.course.cap, state.course.place()
        if self.signed:
            self._accept(state, old if raised else None, cap)
        total = state.total if self.signed else state.total + state.users.kept
        estimates = state.counters.release(np.array([total], dtype=np.int64), place, tick, noise.at("sum"))
        above = (
            self.cap.users_above(state.course.level, state.course.tests) if isinstance(self.cap, AdaptiveCap) else None
        )
        if isinstance(self.cap, PeriodCap) and tick % self.cap.ticks == 0:
            state.total = total
            state.users.clear()
        law = self.counters.law(*place, tick)
        return UserTotal(int(estimates[0]), law, Cut(cap, above), is_signed=self.signed)

    def _accept(self, state: UserSumState, old: int | None, cap: int) -> None:
        if old is not None and len(state.left_out):
            before, values = state.left_out.take_all()
            state.total += int(_within(before, values, cap).sum() - _within(before, values, old).sum())
            self._leave_out(state, before, values, cap)
        if len(state.pending):
            before, values = state.pending.take_all()
            state.total += int(_within(before, values, cap).sum())
            self._leave_out(state, before, values, cap)

    def _leave_out(self, state: UserSumState, before: NDArray[np.uint64], values: NDArray[np.int64], cap: int) -> None:
        if cap < self.cap.caps[-1]:
            cut = before.astype(np.int64) + np.abs(values) > cap
            state.left_out.append([before[cut], values[cut]])


def _within(before: NDArray[np.uint64], values: NDArray[np.int64], cap: int) -> NDArray[np.int64]:
    """What counts of each value when sizes up to the cap do: some of it, where the user came near the cap before."""
    room = np.maximum(cap - before.astype(np.int64), 0)
    kept: NDArray[np.int64] = np.sign(values) * np.minimum(np.abs(values), room)
    return kept
