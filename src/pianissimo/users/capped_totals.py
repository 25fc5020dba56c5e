"""One number a tick to which each user adds at most the cap: a sum, or a number of different values.

Dong, Luo and Yi, "Continual observation under user-level differential privacy", Section IV, for ticks.

*Sums* have a cap in value units, without cutting steps into sub-steps. A counter's promise is about the mass that a
user adds, however it is spread over ticks, so its error grows with the number of ticks alone. Values are whole steps of
a public grid, each rounded by itself.

*Different values:* the same section, with the exact price of a move. Repeats of a value by the same
user are dropped, and of her different values the first so many are kept. What is counted is the number of values that
somebody's kept values hold, each at the tick where it first appears. Without a user each of her values may disappear,
or appear later because somebody else gives it then: one unit leaves a tick and one may enter another.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least
from pianissimo.errors import InputError
from pianissimo.identity import identified
from pianissimo.labels import by_shard
from pianissimo.mechanism import Conversation, Conversing
from pianissimo.names import Names
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.noise.plan import NoisePlan
from pianissimo.noise.running import ONE_SERIES
from pianissimo.stored_parts import TRANSIENT
from pianissimo.users.caps import Course
from pianissimo.users.counters import Counters, RunningCounters, Sensitivity, UserBudget
from pianissimo.users.heads import UserTotal, batch_column, whole_steps
from pianissimo.users.segments import Segments, segments_of, there
from pianissimo.users.user_table import Rows, UserUnits, by_user, first_of_each, joined_rows, row_coins


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedTotal(UserBudget):
    """A number to which each user adds at most the cap, released at every tick."""

    called: ClassVar[str]
    """Where its noise is."""

    @property
    def sensitivity(self) -> Sensitivity:
        """Of one unit."""
        return Sensitivity(total=1, squared=1)

    @property
    def counted_steps(self) -> int:
        """How many steps of a grid it counts as one."""
        return 1

    @property
    def counters(self) -> tuple[Counters, ...]:
        return (self.counters_of(self.sensitivity),)

    def _value(self, state: "UserSumState | UserDistinctState", total: int, tick: int, noise: Noise) -> UserTotal:
        place = state.course.place()
        estimates = state.counters.release(np.array([total], dtype=np.int64), place, tick, noise)
        return UserTotal(
            int(estimates[0]), self.counters[0].law(*place, tick), state.course.cut_off(), coarse=self.counted_steps
        )

    def between(self, state: "UserSumState | UserDistinctState", start: int, end: int, noise: Noise) -> UserTotal:
        """What was accepted in ticks start + 1 .. end, each under the cap that held when it began."""
        window, counters = there(state.segments).window(start, end, size=1), self.counters[0]
        estimates = window.estimates(counters, window.moves, noise.at(self.called), ONE_SERIES)
        # A value that a cap left out is new when somebody else gives it: windows of values may be too large as well.
        either = self.sensitivity.moves and start > 0
        return UserTotal(
            int(estimates[0]), window.law(counters), window.cut, is_signed=either, coarse=self.counted_steps
        )


@dataclass(slots=True, repr=False)
class UserSumState:
    """What each user gave, and the exact sum of what was accepted: secret."""

    users: UserUnits
    course: Course
    closed: int
    """What counts of periods that are over."""

    segments: Segments | None
    counters: RunningCounters = field(metadata=TRANSIENT)


@identified("user-sum")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserSum(Conversing[UserTotal], CappedTotal):
    """The sum of a column of whole steps of a grid, of which each user adds at most the cap, released at every tick.

    A batch is a table with the columns `user` and `value`. The cap is in steps of the grid, coarse ones if it has them.

    Guarantee and error: as those of `UserStatistics`.
    Cost: about 36 bytes a user.

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

    coarse: int = 1
    """How many steps of the grid the sum counts as one: each value is rounded to the nearest multiple by itself."""

    coins: bool = False
    """Whether what lies between coarse steps is rounded by coins, right on average, and not to the nearest one."""

    called: ClassVar[str] = "sum"
    in_shards: ClassVar[bool] = True
    shard_plans: ClassVar[tuple[NoisePlan, ...]] = ()

    @property
    def counted_steps(self) -> int:
        return self.coarse

    def __post_init__(self) -> None:
        check_at_least(1, coarse=self.coarse)
        UserBudget.__post_init__(self)

    def start(self, noise: Noise) -> UserSumState:
        begun = self.begin(noise)
        return UserSumState(
            closed=0,
            segments=segments_of(self.history, begun["course"]),
            counters=RunningCounters(self.counters[0]),
            **begun,
        )

    def gather(self, state: UserSumState, batch: pl.DataFrame) -> codec.Plain:
        """Users by their names, and the units of each."""
        users, values = batch_column(batch, "user"), whole_steps(batch_column(batch, "value"))
        low = values.min()
        if isinstance(low, int) and low < 0:
            raise InputError("values must not be negative, got a negative one; take a SumHead for those")
        if self.coarse != 1:
            # Of larger ones than 2^62 the sum would leave its bounds, and no cap is near them.
            values = values.clip(0, 2**62)
        rows, steps = state.users.names(users), values.cast(pl.UInt64).to_numpy()
        if self.coarse != 1:
            # A coin is a function of who she is and of the value alone: however rows are split, they count the same.
            own = row_coins(rows, steps) % np.uint64(self.coarse) if self.coins else np.uint64(self.coarse // 2)
            steps = (steps + own) // np.uint64(self.coarse)
        # What is beyond the last cap never counts. So clipped, one value has no say in what others may give.
        names, _, units, _ = by_user(rows, np.minimum(steps, np.uint64(self.cap.caps[-1] + 1)))
        return [names, codec.narrow(units)]

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        given = np.concatenate([units.astype(np.uint64) for _, units in pieces])
        names, _, units, _ = by_user(np.concatenate([names for names, _ in pieces]), given)
        return [names, codec.narrow(units)]

    def add(self, state: UserSumState, gathered: codec.Plain) -> None:
        names, units = gathered
        state.users.add(names, units.astype(np.uint64))

    def split(self, gathered: codec.Plain, shards: int) -> dict[int, codec.Plain]:
        names, units = gathered
        return {shard: [names[users], codec.narrow(units[users])] for shard, users in by_shard(names, shards)}

    def converse(self, state: UserSumState, tick: int, noise: Noise) -> Conversation[UserTotal]:
        course, level = state.course, state.course.level
        over, total = _added_up((yield course.cap))
        accepted = total
        while course.is_raised(over, tick, noise):
            over, total = _added_up((yield course.cap))
        course.settle(level, tick)
        if state.segments is not None:
            state.segments.close_total(total if tick == 1 else accepted, total)
        return self._value(state, total, tick, noise.at(self.called))

    def answer(self, state: UserSumState, question: int, tick: int, noise: Noise) -> list[int]:  # noqa: ARG002
        """How many users are above a cap, and the units that count under it."""
        if question != state.users.cap:
            state.users.set_cap(question)
        over, total = state.users.over, state.closed + state.users.kept
        if state.course.ends_period(tick):
            state.closed = total
            state.users.clear()
        return [over, total]


def _added_up(answers: Sequence[list[int]]) -> tuple[int, int]:
    return sum(over for over, _ in answers), sum(total for _, total in answers)


@dataclass(slots=True, repr=False)
class UserDistinctState:
    """Which user gave which values, all by keyed names, and which values count: secret."""

    users: UserUnits
    course: Course
    values: Names
    pairs: Names
    seen: NDArray[np.bool_]
    """Whether each value, by its number, is among those that count."""

    pending: Rows
    left_out: Rows
    segments: Segments | None
    counters: RunningCounters = field(metadata=TRANSIENT)


@identified("user-distinct")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserDistinct(CappedTotal):
    """How many different values all users have given, of which each user adds at most the cap, released at every tick.

    A batch is a table with the columns `user` and `value`; values are whole numbers or texts. Deletions are not
    offered: a value that is deleted may still be held by others.

    Guarantee and error: as those of `UserStatistics`.
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

    called: ClassVar[str] = "distinct"

    moves_priced: bool = False
    """Whether a value that somebody else gave later is booked at the plan's own price of a move; a stream that was
    begun without keeps the two or four times of what a unit costs."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(total=1, squared=1, moves=True, moves_priced=self.moves_priced)

    def start(self, noise: Noise) -> UserDistinctState:
        begun = self.begin(noise)
        return UserDistinctState(
            values=Names(noise, "values"),
            pairs=Names(noise, "pairs"),
            seen=np.zeros(0, dtype=np.bool_),
            pending=Rows(),
            left_out=Rows(),
            segments=segments_of(self.history, begun["course"]),
            counters=RunningCounters(self.counters[0]),
            **begun,
        )

    def gather(self, state: UserDistinctState, batch: pl.DataFrame) -> codec.Plain:
        """Users and values by their names, each pair once, each user's in her own order: her first values count."""
        column = batch_column(batch, "value")
        if column.null_count():
            raise InputError("values must not be missing, got nulls; drop these rows")
        return self._pairs_of(state.users.names(batch_column(batch, "user")), state.values.of(column))

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        users, (values,) = joined_rows(pieces, [[held[numbers]] for _, _, held, numbers in pieces])
        return self._pairs_of(users, values)

    def _pairs_of(self, users: Keys, values: Keys) -> codec.Plain:
        """Each pair once, each user's in her own order."""
        first = first_of_each(_pairs(users, values))
        (names, counts, _, order), (held, holders, _, places) = by_user(users[first]), by_user(values[first])
        numbers = np.empty(len(places), dtype=np.uint32)
        numbers[places] = np.repeat(np.arange(len(held), dtype=np.uint32), holders)
        return [names, codec.narrow(counts), held, codec.narrow(numbers[order])]

    def add(self, state: UserDistinctState, gathered: codec.Plain) -> None:
        names, counts, held, numbers = gathered
        users, values = np.repeat(names, counts, axis=0), held[numbers]
        new = state.pairs.add_first(_pairs(users, values))
        before = state.users.add_and_tell_before(users[new])
        within = before < self.cap.caps[-1]
        state.pending.append([before[within], state.values.add(values[new][within])])

    def release(self, state: UserDistinctState, tick: int, noise: Noise) -> UserTotal:
        state.seen = np.concatenate([state.seen, np.zeros(len(state.values) - len(state.seen), dtype=np.bool_)])
        accepted = self._accept(state, state.pending)
        rest = state.pending.take_all()
        if rest:
            state.left_out.append(rest)
        is_raised = state.course.close(state.users, tick, noise)
        total = self._accept(state, state.left_out) if is_raised else accepted
        if state.segments is not None:
            state.segments.close_total(total if tick == 1 else accepted, total)
        value = self._value(state, total, tick, noise.at(self.called))
        if state.course.ends_period(tick):
            state.users.clear()
            state.pairs.clear()
        return value

    def _accept(self, state: UserDistinctState, rows: Rows) -> int:
        """Only values that are kept count as seen: one that a cap left out is new when somebody else gives it."""
        cap = state.course.cap
        for numbers in rows.take(lambda before: before < cap)[1:]:
            state.seen[numbers] = True
        return int(np.count_nonzero(state.seen))


def _pairs(users: Keys, values: Keys) -> Keys:
    """A name for each pair: both names are pseudorandom, so that the one and the other turned by half give one."""
    return users ^ values[:, ::-1]
