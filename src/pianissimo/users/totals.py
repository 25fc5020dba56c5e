"""One number a tick to which each user adds at most a cap: a sum, and how many different values there are.

*Sums* have a cap in value units. Dong, Luo and Yi, Section IV, without their cutting of steps into sub-steps: a
counter's promise is about the mass that a user adds, however it is spread over ticks, so its error grows with the
number of ticks alone. Values are whole steps of a public grid, each rounded by itself. Signed values are cut by the sum
of their sizes: one stream, no second budget.

*Different values:* the same section, with the factor two that their Theorem IV.3 lacks. Repeats of a value by the same
user are dropped, and of her different values the first so many are kept. What is counted is the number of values that
somebody's kept values hold, each at the tick where it first appears. Without a user each of her values may disappear,
or appear later because somebody else gives it then: one unit leaves a tick and one may enter another.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError
from pianissimo.identity import identified
from pianissimo.loss.losses import Guarantee
from pianissimo.mechanism import TRANSIENT
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.users.caps import Course
from pianissimo.users.counters import Counters, Law, RunningCounters, Sensitivity, UserBudget
from pianissimo.users.heads import UserTotal, whole_steps
from pianissimo.users.statistics import batch_column
from pianissimo.users.user_table import Names, Rows, Users, by_user, first_of_each


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedTotal(UserBudget):
    """A number to which each user adds at most the cap, released at every tick."""

    sensitivity: ClassVar[Sensitivity]
    """Of the number, to one unit of a user."""

    def __post_init__(self) -> None:
        UserBudget.__post_init__(self)
        self.counters.check(self.cap.caps)

    @property
    def counters(self) -> Counters:
        """The counters of the number."""
        return self.counters_of(self.sensitivity)

    @property
    def guarantee(self) -> Guarantee:
        return self.promise([self.counters])

    def law(self, *, tick: int, cap: int | None = None, start: int = 1, since: int = 0) -> Law:
        """The noise at a tick if the counters started for the `start`-th time at tick `since`; public, without data."""
        return self.counters.law(start, self.cap.caps[0] if cap is None else cap, since, tick)

    def error(self, tick: int, coverage: float) -> float:
        return self.law(tick=tick).half_width(coverage)


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


@identified("user-sum")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserSum(CappedTotal):
    """The sum of a column of whole steps of a grid, of which each user adds at most the cap, released at every tick.

    A batch is a table with the columns `user` and `value`. The cap is in steps of the grid.

    Guarantee: per user over the whole run, the cap's epsilon, and beside it the counters' rho at integer orders or
    pure epsilon; with `PeriodCap`, per user and period.
    Error: while the cap stands at its first value; every release carries its own bars.
    Cost: about 36 bytes a user; with signed values also the rows of the open tick and those that the cap left out.

    >>> from fractions import Fraction
    >>> from pianissimo.noise import TreePlan
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
        return UserSumState(total=0, counters=RunningCounters(self.counters), **self.begin(noise))

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
        cut = state.course.cut_off()
        if state.course.ends_period(tick):
            state.total = total
            state.users.clear()
        law = self.counters.law(*place, tick)
        return UserTotal(int(estimates[0]), law, cut, is_signed=self.signed)

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


@dataclass(slots=True, repr=False)
class UserDistinctState:
    """Which user gave which values, all by keyed names, and which values count: secret."""

    users: Users
    course: Course
    values: Names
    pairs: Names
    seen: NDArray[np.bool_]
    """Whether each value, by its number, is among those that count."""

    pending: Rows
    left_out: Rows
    counters: RunningCounters = field(metadata=TRANSIENT)


@identified("user-distinct")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserDistinct(CappedTotal):
    """How many different values all users have given, of which each user adds at most the cap, released at every tick.

    A batch is a table with the columns `user` and `value`; values are whole numbers or texts. Deletions are not
    offered: a value that is deleted may still be held by others.

    Guarantee: per user over the whole run, the cap's epsilon, and beside it the counters' rho at integer orders or
    pure epsilon; with `PeriodCap`, per user and period.
    Error: while the cap stands at its first value; every release carries its own bars.
    Cost: about 36 bytes a user and 30 bytes for each pair of a user and a value.

    >>> from fractions import Fraction
    >>> from pianissimo.noise import TreePlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> from pianissimo.users import FixedCap
    >>> run = Run(UserDistinct(cap=FixedCap(units=1), plan=TreePlan, horizon=8, rho=Fraction(1, 2)), NoNoise())
    >>> run.update(pl.DataFrame({"user": ["ann", "ann", "ann"], "value": ["x", "x", "z"]}))
    >>> run.release().value.estimate
    1
    """

    sensitivity: ClassVar[Sensitivity] = Sensitivity(total=1, squared=1, moves=True)
    state_version: ClassVar[int] = 1

    def start(self, noise: Noise) -> UserDistinctState:
        return UserDistinctState(
            values=Names(noise, "values"),
            pairs=Names(noise, "pairs"),
            seen=np.zeros(0, dtype=np.bool_),
            counters=RunningCounters(self.counters),
            **self.begin(noise),
        )

    def update(self, state: UserDistinctState, batch: pl.DataFrame) -> None:
        self.add(state, self.gather(state, batch))

    def gather(self, state: UserDistinctState, batch: pl.DataFrame) -> codec.Plain:
        """Users and values by their names, each pair once, each user's in her own order: her first values count."""
        column = batch_column(batch, "value")
        if column.null_count():
            raise InputError("values must not be missing, got nulls; drop these rows")
        values = state.values.of(column)
        users = state.users.names(batch_column(batch, "user"))
        first = first_of_each(_pairs(users, values))
        rows, held = by_user(users[first]), by_user(values[first])
        numbers = np.empty(len(held.order), dtype=np.uint32)
        numbers[held.order] = np.repeat(np.arange(len(held.counts), dtype=np.uint32), held.counts)
        return [rows.names, codec.narrow(rows.counts), held.names, codec.narrow(numbers[rows.order])]

    def add(self, state: UserDistinctState, gathered: codec.Plain) -> None:
        names, counts, held, numbers = gathered
        users, values = np.repeat(names, counts, axis=0), held[numbers]
        new = state.pairs.add_first(_pairs(users, values))
        before = state.users.add_and_tell_before(users[new])
        within = before < self.cap.caps[-1]
        state.pending.append([before[within], state.values.add(values[new][within])])

    def release(self, state: UserDistinctState, tick: int, noise: Noise) -> UserTotal:
        raised = state.course.close(state.users, tick, noise)
        cap, place = state.course.cap, state.course.place()
        state.seen = np.concatenate([state.seen, np.zeros(len(state.values) - len(state.seen), dtype=np.bool_)])
        # Only values that are kept count as seen: one that a cap left out is new when somebody else gives it.
        for rows in (state.left_out, state.pending) if raised else (state.pending,):
            for numbers in rows.take(lambda before: before < cap)[1:]:
                state.seen[numbers] = True
        rest = state.pending.take_all()
        if rest:
            state.left_out.append(rest)
        total = np.array([np.count_nonzero(state.seen)], dtype=np.int64)
        estimates = state.counters.release(total, place, tick, noise.at("distinct"))
        cut = state.course.cut_off()
        if state.course.ends_period(tick):
            state.users.clear()
            state.pairs.clear()
        law = self.counters.law(*place, tick)
        return UserTotal(int(estimates[0]), law, cut)


def _pairs(users: Keys, values: Keys) -> Keys:
    """A name for each pair: both names are pseudorandom, so that the one and the other turned by half give one."""
    return users ^ values[:, ::-1]
