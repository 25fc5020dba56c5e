"""Several statistics of the same users under one cap.

Dong, Luo and Yi, "Continual observation under user-level differential privacy", Algorithms 3 to 6, for ticks, with
the errors of the paper corrected: docs/privacy.md, 'Users'. What a user adds depends on her own events, in the order
in which they came, and on the caps, which are public. Each head has its own part of the budget; within a head a user's
units are shared by all bins and ticks, so a histogram costs no more than a count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Conversation, Conversing
from pianissimo.noise import Noise
from pianissimo.noise.plan import NoisePlan
from pianissimo.noise.running import series_keys
from pianissimo.stored_parts import TRANSIENT
from pianissimo.users.caps import Course
from pianissimo.users.counters import Counters, RunningCounters, UserBudget
from pianissimo.users.heads import AboveHead, CountHead, HistogramHead, Signs, SumHead, batch_column, signs_of
from pianissimo.users.label_sums_head import LabelSumsHead
from pianissimo.users.quantile_tree import QuantilesHead
from pianissimo.users.segments import Segments, segments_of, there
from pianissimo.users.user_table import Column, Rows, UserUnits, by_user, joined_rows, row_coins, users_by_shard

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


class Told(NamedTuple):
    """What users have given under a cap: secret."""

    over: int
    """How many users are above it."""

    kept: int
    """All units that count."""

    totals: list[NDArray[np.int64]]
    """The exact totals of each head."""


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
class UserStatistics(Conversing[UserRelease], UserBudget):
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
    def in_shards(self) -> bool:
        """Whether shards can have the state: quantiles are not there yet."""
        return not any(isinstance(head, QuantilesHead) for head in self.heads)

    @property
    def shard_plans(self) -> tuple[NoisePlan, ...]:
        """Shards add up, and draw nothing."""
        return ()

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

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        rows, columns = joined_rows(pieces, [columns for _, _, columns in pieces])
        names, counts, _, order = by_user(rows)
        whole = [codec.narrow(column[order].astype(np.int64)) for column in columns]
        return [names, codec.narrow(counts), whole]

    def add(self, state: UserStatisticsState, gathered: codec.Plain) -> None:
        names, counts, columns = gathered
        if not (self.signed or self._with_columns):
            state.users.add(names, counts.astype(np.uint64))
            return
        rows = np.repeat(names, counts, axis=0)
        before = state.users.add_and_tell_before(rows)
        # What is beyond the last cap is never accepted.
        within = before < self.cap.caps[-1]
        kept = [column[within].astype(np.int64) for column in columns]
        for place, head in enumerate(self._with_columns, 1 if self.signed else 0):
            if isinstance(head, SumHead | LabelSumsHead) and head.coarse != 1:
                kept[place] = head.rounded(kept[place], row_coins(rows[within], before[within]))
        state.pending.append([before[within], *kept])

    def split(self, gathered: codec.Plain, shards: int) -> dict[int, codec.Plain]:
        names, counts, columns = gathered
        return {
            shard: [names[users], codec.narrow(counts[users]), [codec.narrow(column[rows]) for column in columns]]
            for shard, users, rows in users_by_shard(names, counts, shards)
        }

    def converse(self, state: UserStatisticsState, tick: int, noise: Noise) -> Conversation[UserRelease]:
        course, segments, values = state.course, state.segments, {}
        before = self._cells(state.totals, 0 if segments is None else segments.kept)
        # What the cap lets in that held when the tick began; then, after the tests, what one that was raised does.
        level = course.level
        accepted = told = self._summed((yield course.cap))
        while course.is_raised(told.over, tick, noise):
            told = self._summed((yield course.cap))
        is_raised = course.settle(level, tick)
        if segments is not None:
            accepted = told if is_raised and tick == 1 else accepted
            segments.add_all(self._cells(accepted.totals, accepted.kept) - before)
            segments.close(kept=told.kept)
        for head, running, exact in zip(self.heads, state.counters, told.totals, strict=True):
            totals = self._totals(told, head, exact)
            estimates = running.release(totals, course.place(), tick, noise.at("head", head.name))
            law = running.counters.law(*course.place(), tick)
            values[head.name] = head.value(estimates, law, course.cut_off(), is_signed=self.signed)
        return UserRelease(course.cap, values)

    def answer(self, state: UserStatisticsState, question: int, tick: int, noise: Noise) -> Told:  # noqa: ARG002
        """What is accepted under a cap: that of the tick before, or one that was raised since."""
        cap = question
        is_raised = cap != state.users.cap
        if is_raised:
            state.users.set_cap(cap)
        self._accept(state, state.pending, cap)
        rest = state.pending.take_all()
        if rest:
            state.left_out.append(rest)
        if is_raised:
            self._accept(state, state.left_out, cap)
        told = Told(state.users.over, state.kept, [exact.copy() for exact in state.totals])
        if state.course.ends_period(tick):
            # Caps of periods are never raised: nothing more is asked at this tick.
            for head, exact in zip(self.heads, state.totals, strict=True):
                if isinstance(head, AboveHead):
                    exact += state.users.over
            state.closed = state.kept
            state.users.clear()
        return told

    def _summed(self, answers: Sequence[Told]) -> Told:
        totals = [np.zeros(head.cells, dtype=np.int64) for head in self.heads]
        for each in answers:
            for total, own in zip(totals, each[2], strict=True):
                total += own
        return Told(sum(each[0] for each in answers), sum(each[1] for each in answers), totals)

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

    def _cells(self, totals: Sequence[NDArray[np.int64]], kept: int) -> NDArray[np.int64]:
        """The exact totals of all heads but that of who is above, where so many units are kept."""
        counted = np.array([kept], dtype=np.int64)
        cells = [np.empty(0, dtype=np.int64)]
        for head, exact in zip(self.heads, totals, strict=True):
            if not isinstance(head, AboveHead):
                cells.append(counted if isinstance(head, CountHead) and not self.signed else exact)
        return np.concatenate(cells)

    def _totals(self, told: Told, head: Head, exact: NDArray[np.int64]) -> NDArray[np.int64]:
        if isinstance(head, AboveHead):
            return exact + told.over
        if isinstance(head, CountHead) and not self.signed:
            # Known without rows: the sum over users of the smaller of events and cap.
            return np.array([told.kept], dtype=np.int64)
        return head.expand(exact)

    def _accept(self, state: UserStatisticsState, rows: Rows, cap: int) -> None:
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

    @property
    def _counting(self) -> list[CountHead | SumHead | HistogramHead | LabelSumsHead | QuantilesHead]:
        return [head for head in self.heads if not isinstance(head, AboveHead)]

    @property
    def _with_columns(self) -> list[SumHead | HistogramHead | LabelSumsHead | QuantilesHead]:
        return [head for head in self._counting if not isinstance(head, CountHead)]
