"""How many different values there are, at user level.

Dong, Luo and Yi, Section IV, with the factor two that their Theorem IV.3 lacks. Repeats of a value by the same user are
dropped, and of her different values the first so many are kept. What is counted is the number of values that somebody's
kept values hold, each at the tick where it first appears. Without a user each of her values may disappear, or appear
later because somebody else gives it then: one unit leaves a tick and one may enter another.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError
from pianissimo.mechanism import TRANSIENT
from pianissimo.noise import Keys, Noise
from pianissimo.users.capped import CappedTotal
from pianissimo.users.caps import AdaptiveCap, Course, PeriodCap
from pianissimo.users.counters import RunningCounters, Sensitivity
from pianissimo.users.rows import Rows
from pianissimo.users.statistics import batch_column
from pianissimo.users.table import Names, Users, by_user, first_of_each
from pianissimo.users.value import Cut, UserTotal


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
    >>> from pianissimo.counting import TreePlan
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
            users=Users(noise, self.cap.caps[0]),
            course=Course(self.cap),
            values=Names(noise, "values"),
            pairs=Names(noise, "pairs"),
            seen=np.zeros(0, dtype=np.bool_),
            pending=Rows(),
            left_out=Rows(),
            counters=RunningCounters(self.counters),
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
        above = (
            self.cap.users_above(state.course.level, state.course.tests) if isinstance(self.cap, AdaptiveCap) else None
        )
        if isinstance(self.cap, PeriodCap) and tick % self.cap.ticks == 0:
            state.users.clear()
            state.pairs.clear()
        law = self.counters.law(*place, tick)
        return UserTotal(int(estimates[0]), law, Cut(cap, above))


def _pairs(users: Keys, values: Keys) -> Keys:
    """A name for each pair: both names are pseudorandom, so that the one and the other turned by half give one."""
    return users ^ values[:, ::-1]
