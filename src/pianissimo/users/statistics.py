"""Several statistics of the same users under one cap; and one number a tick, a sum or a number of different values.

Dong, Luo and Yi, "Continual observation under user-level differential privacy", Algorithms 3 to 6, for ticks, with
the errors of the paper corrected: docs/privacy.md, 'Users'. What a user adds depends on her own events, in the order
in which they came, and on the caps, which are public. Each head has its own part of the budget; within a head a user's
units are shared by all bins and ticks, so a histogram costs no more than a count.

*Sums* have a cap in value units: Section IV, without cutting steps into sub-steps. A counter's promise is about the
mass that a user adds, however it is spread over ticks, so its error grows with the number of ticks alone. Values are
whole steps of a public grid, each rounded by itself.

*Different values:* the same section, with the price of a move that Theorem IV.3 lacks. Repeats of a value by the same
user are dropped, and of her different values the first so many are kept. What is counted is the number of values that
somebody's kept values hold, each at the tick where it first appears. Without a user each of her values may disappear,
or appear later because somebody else gives it then: one unit leaves a tick and one may enter another.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import TRANSIENT
from pianissimo.names import Names
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.noise.running import ONE_SERIES, series_keys
from pianissimo.users.caps import Course
from pianissimo.users.counters import Counters, RunningCounters, Sensitivity, UserBudget
from pianissimo.users.heads import (
    AboveHead,
    CountHead,
    HistogramHead,
    Signs,
    SumHead,
    UserTotal,
    batch_column,
    signs_of,
    whole_steps,
)
from pianissimo.users.label_sums_head import LabelSumsHead
from pianissimo.users.quantile_tree import QuantilesHead
from pianissimo.users.segments import Segments, segments_of, there
from pianissimo.users.user_table import Column, Rows, UserUnits, by_user, first_of_each, row_coins

_LARGEST_TOTAL = 2**61

Head = CountHead | SumHead | HistogramHead | LabelSumsHead | QuantilesHead | AboveHead
"""One statistic of the accepted events, or of who is above the cap."""


@dataclass(frozen=True, slots=True, eq=False)
class UserRelease:
    """The values of all heads by name, and the cap they were made with."""

    cap: int
    values: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def to_dict(self) -> dict[str, Any]:
        """The values as plain data."""
        return {"cap": self.cap, **{name: value.to_dict() for name, value in self.values.items()}}


@dataclass(slots=True, repr=False)
class UserStatisticsState:
    """What each user gave, and the exact totals of what was accepted: secret."""

    users: UserUnits
    course: Course
    totals: list[NDArray[np.int64]]
    closed: int
    """Units kept in periods that are over."""

    pending: Rows
    left_out: Rows
    segments: Segments | None
    counters: list[RunningCounters] = field(metadata=TRANSIENT)

    @property
    def kept(self) -> int:
        """All units that count."""
        return self.closed + self.users.kept


@identified("user-statistics")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserStatistics(UserBudget):
    """Statistics of a stream at user level, released at every tick: a user is hidden with everything she ever does.

    A batch is a table with the column `user`, one column for each head that has one, under the head's name, and where
    events may also be deleted a column `weight` of 1 and -1.

    Guarantee: per user over the whole run, the cap's epsilon, and beside it the counters' rho at integer orders or
    pure epsilon; with `PeriodCap`, per user and period.
    Error: that of the first head while the cap stands at its first value; every release carries its own bars, which
    depend on when the cap was raised.
    Cost: about 36 bytes a user; with heads beside the count, the rows of the open tick and those that the cap left out.

    >>> from fractions import Fraction
    >>> from pianissimo.noise import TreePlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> from pianissimo.users import AdaptiveCap
    >>> cap = AdaptiveCap(epsilon=Fraction(1, 5), levels=8)
    >>> run = Run(UserStatistics(plan=TreePlan, horizon=8, epsilon=Fraction(4, 5), cap=cap), NoNoise())
    >>> run.update(pl.DataFrame({"user": ["ann", "bob", "ann"]}))
    >>> run.release().value["count"].estimate
    3
    """

    heads: tuple[Head, ...] = (CountHead(),)
    """What is released."""

    signed: bool = False
    """Whether events have a weight of 1 (inserted) or -1 (deleted); both count towards the cap."""

    def __post_init__(self) -> None:
        names = [head.name for head in self.heads]
        if not names or len(set(names)) != len(names):
            raise ParameterError(f"heads must be one or more of different names, got {names}")
        UserBudget.__post_init__(self)

    @property
    def counters(self) -> tuple[Counters, ...]:
        shares = sum(head.share for head in self.heads)
        return tuple(
            self.counters_of(head.sensitivity, share=head.share / shares, series=head.series) for head in self.heads
        )

    def start(self, noise: Noise) -> UserStatisticsState:
        begun = self.begin(noise)
        return UserStatisticsState(
            totals=[np.zeros(head.cells, dtype=np.int64) for head in self.heads],
            closed=0,
            pending=Rows(),
            left_out=Rows(),
            counters=[RunningCounters(counters) for counters in self.counters],
            segments=segments_of(self.history, begun["course"]),
            **begun,
        )

    def gather(self, state: UserStatisticsState, batch: pl.DataFrame) -> codec.Plain:
        """Users by their names, how many rows each has, and where rows matter their columns, user after user.

        Which of a user's rows are the first ones decides what the cap lets through, so that her own order is kept.
        Nothing is told of the order between users, nor does it depend on where batches are cut.
        """
        users = batch_column(batch, "user")
        codes = [head.encode(batch_column(batch, head.name)) for head in self._with_columns]
        signs = signs_of(batch_column(batch, "weight")) if self.signed else None
        names, counts, _, order = by_user(state.users.names(users))
        columns: list[Column] = [*([] if signs is None else [signs]), *codes]
        return [names, codec.narrow(counts), [codec.narrow(column[order]) for column in columns]]

    def add(self, state: UserStatisticsState, gathered: codec.Plain) -> None:
        names, counts, columns = gathered
        self._check_totals(state, int(counts.sum(dtype=np.int64)))
        if not (self.signed or self._with_columns):
            state.users.add(names, counts.astype(np.uint64))
            return
        rows = np.repeat(names, counts, axis=0)
        before = state.users.add_and_tell_before(rows)
        # What is beyond the last cap is never accepted.
        within = before < self.cap.caps[-1]
        kept = [column[within].astype(np.int64) for column in columns]
        for place, head in enumerate(self._with_columns, 1 if self.signed else 0):
            if isinstance(head, SumHead | LabelSumsHead) and head.coarse > 1:
                kept[place] = head.rounded(kept[place], row_coins(rows[within], before[within]))
        state.pending.append([before[within], *kept])

    def release(self, state: UserStatisticsState, tick: int, noise: Noise) -> UserRelease:
        course, segments, values = state.course, state.segments, {}
        before = self._cells(state, 0 if segments is None else segments.kept)
        # What the cap lets in that held when the tick began; then, after the tests, what one that was raised does.
        self._accept(state, state.pending)
        rest = state.pending.take_all()
        if rest:
            state.left_out.append(rest)
        accepted = self._cells(state, state.kept)
        if course.close(state.users, tick, noise):
            self._accept(state, state.left_out)
            accepted = self._cells(state, state.kept) if tick == 1 else accepted
        if segments is not None:
            segments.add_all(accepted - before)
            segments.close(kept=state.kept)
        for head, running, exact in zip(self.heads, state.counters, state.totals, strict=True):
            totals = self._totals(state, head, exact)
            estimates = running.release(totals, course.place(), tick, noise.at("head", head.name))
            law = running.counters.law(*course.place(), tick)
            values[head.name] = head.value(estimates, law, course.cut_off(), is_signed=self.signed)
        if course.ends_period(tick):
            for head, exact in zip(self.heads, state.totals, strict=True):
                if isinstance(head, AboveHead):
                    exact += state.users.over
            state.closed = state.kept
            state.users.clear()
        return UserRelease(course.cap, values)

    def between(self, state: UserStatisticsState, start: int, end: int, noise: Noise) -> UserRelease:
        """What was accepted in ticks start + 1 .. end, each under the cap that held when it began; not who is above."""
        window = there(state.segments).window(start, end, size=sum(head.cells for head in self._counting))
        values, first = {}, 0
        for head, running in zip(self.heads, state.counters, strict=True):
            if isinstance(head, AboveHead):
                continue
            moves, first = head.expand(window.moves[first : first + head.cells]), first + head.cells
            keys = series_keys(0, head.series)
            estimates = window.estimates(running.counters, moves, noise.at("head", head.name), keys)
            values[head.name] = head.value(estimates, window.law(running.counters), window.cut, is_signed=self.signed)
        return UserRelease(window.cut.cap, values)

    def _cells(self, state: UserStatisticsState, kept: int) -> NDArray[np.int64]:
        """The exact totals of all heads but that of who is above, where so many units are kept."""
        counted = np.array([kept], dtype=np.int64)
        cells = [np.empty(0, dtype=np.int64)]
        for head, exact in zip(self.heads, state.totals, strict=True):
            if not isinstance(head, AboveHead):
                cells.append(counted if isinstance(head, CountHead) and not self.signed else exact)
        return np.concatenate(cells)

    def _totals(self, state: UserStatisticsState, head: Head, exact: NDArray[np.int64]) -> NDArray[np.int64]:
        if isinstance(head, AboveHead):
            return exact + state.users.over
        if isinstance(head, CountHead) and not self.signed:
            # Known without rows: the sum over users of the smaller of events and cap.
            return np.array([state.kept], dtype=np.int64)
        return head.expand(exact)

    def _accept(self, state: UserStatisticsState, rows: Rows) -> None:
        cap = state.course.cap
        columns = rows.take(lambda before: before < cap)
        if not columns:
            return
        signs: Signs | None = columns[1] if self.signed else None
        codes = iter(columns[2 if self.signed else 1 :])
        for head, totals in zip(self.heads, state.totals, strict=True):
            if isinstance(head, CountHead):
                totals += 0 if signs is None else signs.sum(dtype=np.int64)
            elif not isinstance(head, AboveHead):
                head.add(totals, next(codes), signs)

    def _check_totals(self, state: UserStatisticsState, rows: int) -> None:
        waiting = len(state.pending) + len(state.left_out) + rows
        for head, totals in zip(self.heads, state.totals, strict=True):
            if not int(np.abs(totals).max()) + waiting * head.sensitivity.total < _LARGEST_TOTAL:
                raise InputError("a total must stay below 2^61 in size, got more; start a new run")

    @property
    def _counting(self) -> list[CountHead | SumHead | HistogramHead | LabelSumsHead | QuantilesHead]:
        return [head for head in self.heads if not isinstance(head, AboveHead)]

    @property
    def _with_columns(self) -> list[SumHead | HistogramHead | LabelSumsHead | QuantilesHead]:
        return [head for head in self._counting if not isinstance(head, CountHead)]


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
    def counters(self) -> tuple[Counters, ...]:
        return (self.counters_of(self.sensitivity),)

    def _value(self, state: "UserSumState | UserDistinctState", total: int, tick: int, noise: Noise) -> UserTotal:
        place = state.course.place()
        estimates = state.counters.release(np.array([total], dtype=np.int64), place, tick, noise)
        return UserTotal(int(estimates[0]), self.counters[0].law(*place, tick), state.course.cut_off())

    def between(self, state: "UserSumState | UserDistinctState", start: int, end: int, noise: Noise) -> UserTotal:
        """What was accepted in ticks start + 1 .. end, each under the cap that held when it began."""
        window, counters = there(state.segments).window(start, end, size=1), self.counters[0]
        estimates = window.estimates(counters, window.moves, noise.at(self.called), ONE_SERIES)
        # A value that a cap left out is new when somebody else gives it: windows of values may be too large as well.
        either = self.sensitivity.moves and start > 0
        return UserTotal(int(estimates[0]), window.law(counters), window.cut, is_signed=either)


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
class UserSum(CappedTotal):
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

    called: ClassVar[str] = "sum"

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
        if self.coarse > 1:
            # Of larger ones than 2^62 the sum would leave its bounds, and no cap is near them.
            values = (values.clip(0, 2**62) + self.coarse // 2) // self.coarse
        # What is beyond the last cap never counts. So clipped, one value has no say in what others may give.
        clipped = values.clip(0, self.cap.caps[-1] + 1)
        names, _, units, _ = by_user(state.users.names(users), clipped.cast(pl.UInt64).to_numpy())
        return [names, codec.narrow(units)]

    def add(self, state: UserSumState, gathered: codec.Plain) -> None:
        names, units = gathered
        state.users.add(names, units.astype(np.uint64))

    def release(self, state: UserSumState, tick: int, noise: Noise) -> UserTotal:
        accepted = state.closed + state.users.kept
        state.course.close(state.users, tick, noise)
        total = state.closed + state.users.kept
        if state.segments is not None:
            state.segments.close_total(total if tick == 1 else accepted, total)
        value = self._value(state, total, tick, noise.at(self.called))
        if state.course.ends_period(tick):
            state.closed = total
            state.users.clear()
        return value


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
        values = state.values.of(column)
        users = state.users.names(batch_column(batch, "user"))
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
