"""Several statistics of the same users: one cap, one estimator of it, and a counter for each statistic.

Dong, Luo and Yi, "Continual observation under user-level differential privacy", Algorithms 3 to 6, for ticks, with
the errors of the paper corrected: docs/privacy.md, 'Users'. What a user adds depends on her own events, in the order
in which they came, and on the caps, which are public. Each head has its own part of the budget; within a head a user's
units are shared by all bins and ticks, so a histogram costs no more than a count.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.loss.losses import Guarantee
from pianissimo.mechanism import TRANSIENT
from pianissimo.noise import Noise
from pianissimo.users.caps import AdaptiveCap, Course
from pianissimo.users.counters import Counters, Law, RunningCounters, UserBudget
from pianissimo.users.heads import CountHead, HistogramHead, Signs, SumHead
from pianissimo.users.quantile_tree import QuantilesHead
from pianissimo.users.user_table import Column, Rows, Users

_LARGEST_TOTAL = 2**61

Head = CountHead | SumHead | HistogramHead | QuantilesHead
"""One statistic of the accepted events."""


@dataclass(frozen=True, slots=True, eq=False)
class UserRelease:
    """The values of all heads by name, the cap they were made with, and since when."""

    tick: int
    cap: int
    since: int
    """The tick at which the cap was raised last; 0 if never."""

    values: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def to_dict(self) -> dict[str, Any]:
        """The values as plain data."""
        return {"cap": self.cap, **{name: value.to_dict() for name, value in self.values.items()}}


@dataclass(slots=True, repr=False)
class UserStatisticsState:
    """What each user gave, and the exact totals of what was accepted: secret."""

    users: Users
    course: Course
    totals: list[NDArray[np.int64]]
    closed: int
    """Units kept in periods that are over."""

    pending: Rows
    left_out: Rows
    passed: list[list[int]]
    counters: list[RunningCounters] = field(metadata=TRANSIENT)


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
    Cost: about 36 bytes a user; with heads beside the count, the rows of the open tick, and rows left out by the cap
    (`backfill`) or 8 bytes a user more.

    >>> from fractions import Fraction
    >>> from pianissimo.noise import TreePlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> from pianissimo.users import AdaptiveCap
    >>> statistics = UserStatistics(plan=TreePlan, horizon=8, epsilon=Fraction(4, 5),
    ...                             cap=AdaptiveCap(epsilon=Fraction(1, 5), levels=8))
    >>> run = Run(statistics, NoNoise())
    >>> run.update(pl.DataFrame({"user": ["ann", "bob", "ann"]}))
    >>> run.release().value["count"].estimate
    3
    """

    heads: tuple[Head, ...] = (CountHead(),)
    """What is released."""

    signed: bool = False
    """Whether events have a weight of 1 (inserted) or -1 (deleted); both count towards the cap."""

    backfill: bool = True
    """Whether rows that a cap left out are kept, so that they count when it is raised; else they stay out for ever."""

    state_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        names = [head.name for head in self.heads]
        if not names or len(set(names)) != len(names):
            raise ParameterError(f"heads must be one or more of different names, got {names}")
        UserBudget.__post_init__(self)
        for counters in self.counters:
            counters.check(self.cap.caps)

    @property
    def counters(self) -> tuple[Counters, ...]:
        """The counters of each head."""
        shares = sum(head.share for head in self.heads)
        return tuple(
            self.counters_of(head.sensitivity, share=head.share / shares, series=head.series) for head in self.heads
        )

    @property
    def guarantee(self) -> Guarantee:
        return self.promise(self.counters)

    def law(self, name: str, *, tick: int, cap: int | None = None, start: int = 1, since: int = 0) -> Law:
        """The noise of a head's series at a tick, if its counters started for the `start`-th time at tick `since`.

        It is public and needs no data: for plans and predictions.
        """
        place = [head.name for head in self.heads].index(name)
        return self.counters[place].law(start, self.cap.caps[0] if cap is None else cap, since, tick)

    def error(self, tick: int, coverage: float) -> float:
        return self.law(self.heads[0].name, tick=tick).half_width(coverage)

    def start(self, noise: Noise) -> UserStatisticsState:
        return UserStatisticsState(
            totals=[np.zeros(head.cells, dtype=np.int64) for head in self.heads],
            closed=0,
            passed=[],
            counters=[RunningCounters(counters) for counters in self.counters],
            **self.begin(noise),
        )

    def update(self, state: UserStatisticsState, batch: pl.DataFrame) -> None:
        self.add(state, self.gather(state, batch))

    def gather(self, state: UserStatisticsState, batch: pl.DataFrame) -> codec.Plain:
        """Users by their names, how many rows each has, and where rows matter their columns, user after user.

        Which of a user's rows are the first ones decides what the cap lets through, so that her own order is kept.
        Nothing is told of the order between users, nor does it depend on where batches are cut.
        """
        users = batch_column(batch, "user")
        codes = [head.encode(batch_column(batch, head.name)) for head in self._decided_by_rows if head.has_column]
        signs = _signs(batch_column(batch, "weight")) if self.signed else None
        rows = state.users.grouped(users)
        columns: list[Column] = [*([] if signs is None else [signs]), *codes]
        return [rows.names, codec.narrow(rows.counts), [codec.narrow(column[rows.order]) for column in columns]]

    def add(self, state: UserStatisticsState, gathered: codec.Plain) -> None:
        names, counts, columns = gathered
        self._check_totals(state, int(counts.sum(dtype=np.int64)))
        if not self._decided_by_rows:
            state.users.add(names, counts.astype(np.uint64))
            return
        tell = state.users.add_and_tell_slots if self._by_slots else state.users.add_and_tell_before
        told = tell(np.repeat(names, counts, axis=0))
        rows: list[Column] = [told, *(column.astype(np.int64) for column in columns)]
        if not self._by_slots:
            # What is beyond the last cap is never accepted.
            within = told < self.cap.caps[-1]
            rows = [column[within] for column in rows]
        state.pending.append(rows)

    def release(self, state: UserStatisticsState, tick: int, noise: Noise) -> UserRelease:
        cap, level = state.course.cap, state.course.level
        raised = state.course.close(state.users, tick, noise)
        if raised and isinstance(self.cap, AdaptiveCap) and not self.backfill:
            # A level makes at most one test a tick that does not raise the cap.
            state.passed.append([cap, self.cap.users_above(level, tick) or 0])
        # Rows are accepted after the tests, against the cap that now holds: else a tick in which many users pass the
        # cap would be lost for good.
        self._accept(state, raised=raised)
        values = self._values(state, tick, noise)
        if state.course.ends_period(tick):
            state.closed += state.users.kept
            state.users.clear()
        return values

    def _values(self, state: UserStatisticsState, tick: int, noise: Noise) -> UserRelease:
        course = state.course
        cut = course.cut_off(state.passed)
        values = {}
        for head, counters, running, totals in zip(
            self.heads, self.counters, state.counters, self._head_totals(state), strict=True
        ):
            place = course.place()
            estimates = running.release(head.expand(totals), place, tick, noise.at("head", head.name))
            law = counters.law(*place, tick)
            values[head.name] = head.value(estimates, law, cut, is_signed=self.signed)
        return UserRelease(tick=tick, cap=course.cap, since=course.since, values=values)

    def _head_totals(self, state: UserStatisticsState) -> list[NDArray[np.int64]]:
        # What is kept of a plain count is known without rows: the sum over users of the smaller of events and cap.
        kept = np.array([state.closed + state.users.kept], dtype=np.int64)
        return [
            kept if self._is_plain_count(head) else totals
            for head, totals in zip(self.heads, state.totals, strict=True)
        ]

    def _accept(self, state: UserStatisticsState, *, raised: bool) -> None:
        if self._by_slots:
            columns = state.pending.take_all()
            if columns:
                accepted = state.users.accept(columns[0]) > 0
                self._add(state, [column[accepted] for column in columns])
            return
        cap = state.course.cap
        if raised:
            self._add(state, state.left_out.take(lambda before: before < cap))
        self._add(state, state.pending.take(lambda before: before < cap))
        rest = state.pending.take_all()
        if rest and self.backfill:
            state.left_out.append(rest)

    def _add(self, state: UserStatisticsState, columns: list[Column]) -> None:
        if not columns:
            return
        signs: Signs | None = columns[1] if self.signed else None
        codes = iter(columns[2 if self.signed else 1 :])
        for head, totals in zip(self.heads, state.totals, strict=True):
            if not self._is_plain_count(head):
                chosen = next(codes) if head.has_column else np.ones(len(columns[0]), dtype=np.int64)
                head.add(totals, chosen, signs)

    def _check_totals(self, state: UserStatisticsState, rows: int) -> None:
        waiting = len(state.pending) + len(state.left_out) + rows
        for head, totals in zip(self.heads, state.totals, strict=True):
            if not int(np.abs(totals).max()) + waiting * head.sensitivity.total < _LARGEST_TOTAL:
                raise InputError("a total must stay below 2^61 in size, got more; start a new run")

    @property
    def _decided_by_rows(self) -> list[Head]:
        """The heads that need to know which rows are accepted."""
        return [head for head in self.heads if not self._is_plain_count(head)]

    def _is_plain_count(self, head: Head) -> bool:
        return isinstance(head, CountHead) and not self.signed

    @property
    def _by_slots(self) -> bool:
        """Whether acceptance is remembered user by user, because what was left out stays out."""
        return isinstance(self.cap, AdaptiveCap) and not self.backfill


def batch_column(batch: pl.DataFrame, name: str) -> pl.Series:
    """A column of a batch."""
    if name not in batch.columns:
        present = ", ".join(repr(column) for column in batch.columns) or "none"
        raise InputError(f"column {name!r} must be in the batch, got columns {present}")
    return batch[name]


def _signs(column: pl.Series) -> Signs:
    if not column.dtype.is_integer() or column.null_count() or not bool(column.is_in([-1, 1]).all()):
        raise InputError(f"weights must be 1 or -1 without nulls, got {column.dtype} or other values")
    return column.cast(pl.Int8).to_numpy()
