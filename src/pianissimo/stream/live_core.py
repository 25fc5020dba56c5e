"""The runs of a plan over their noise: what a stream in memory, a durable one and whoever gathers elsewhere have."""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from pianissimo import codec
from pianissimo.batch_memo import BatchMemo
from pianissimo.errors import InputError, ParameterError, StateError
from pianissimo.mechanism import BySlot, Conversation, Release, Run, Windowed
from pianissimo.noise import Noise
from pianissimo.queries import Query
from pianissimo.queries.shared.of_users import above_cap_table
from pianissimo.queries.shared.watching import exhausted_table
from pianissimo.stream.batches import as_frame, check_has, query_inputs, table_of, times_in, user_input
from pianissimo.stream.calendar import LARGEST_TIME, iso, microseconds
from pianissimo.stream.release import StreamRelease, Tidier
from pianissimo.stream.stream_plan import QueryPlan, StreamPlan
from pianissimo.unit import User
from pianissimo.users import EachPeriod

_log = logging.getLogger(__name__)

_TIME = "time"
"""The column that is looked at where none is named."""


NoiseFor = Callable[[int], Noise]
"""The noise of a run that makes a release at every so many ticks."""


class LivePart:
    """A run with the queries that it answers, when they are published, and what is done to their estimates.

    A query about events has a run of its own, released on its schedule. Queries about users that share a mechanism
    share a run, released at every tick and shown on their schedules.
    """

    def __init__(
        self, plan: StreamPlan, answered: Sequence[QueryPlan], noise_for: NoiseFor, after: int, *, by_name: bool
    ) -> None:
        self._user = plan.unit if isinstance(plan.unit, User) else None
        self.queries = [each.query for each in answered]
        self.every = 1 if self._user else self.queries[0].every
        """At every how many ticks of the stream the run makes a release."""
        names = [query.name for query in self.queries]
        noise = noise_for(self.every).at("users" if self._user else "query", *names)
        digest = plan.mechanism_digest(answered[0])
        mechanism = answered[0].mechanism
        if isinstance(mechanism, EachPeriod):
            # A life that begins later has the same periods.
            mechanism = replace(mechanism, after=after)
        if by_name and isinstance(mechanism, BySlot):
            mechanism = mechanism.by_name()
        self.run: Run[Any, Any, Any] = Run(mechanism, noise, coverage=plan.coverage, digest=digest)
        self._tidiers = {query.name: Tidier(query.tidy) for query in self.queries}

    def update(self, content: Any) -> None:
        """Count events, while any release is to come."""
        if self.is_open:
            self.run.update(self._own(content))

    def gather(self, content: Any) -> codec.Plain:
        """What some events of the open tick add, as plain data; None where they do not count any more."""
        return self.run.gather(self._own(content)) if self.is_open else None

    def from_elsewhere(self, gathered: codec.Plain) -> codec.Plain:
        """What some events of the open tick add, of what was gathered without a state."""
        return self.run.from_elsewhere(gathered) if self.is_open else None

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        """What batches of the open tick add together; None where they do not count any more."""
        return None if pieces[0] is None else self.run.combine(pieces)

    def add(self, gathered: codec.Plain) -> None:
        """Count what was gathered."""
        if gathered is not None:
            self.run.add(gathered)

    def dump(self) -> codec.Plain:
        """All that it knows between two ticks, as plain data: secret. What is in the logs is left out."""
        tidied = {name: tidier.to_plain() for name, tidier in self._tidiers.items()}
        return {"run": self.run.dump(), "tidy": tidied}

    def load(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        """Take over what `dump` gave, with the logs of the last releases, the oldest first."""
        try:
            stored, tidied = content["run"], dict(content["tidy"])
        except (TypeError, KeyError):
            raise StateError("a stored state must have the content of this version, got other content") from None
        if list(tidied) != list(self._tidiers):
            raise StateError(
                f"a stored state must be that of {', '.join(map(repr, self._tidiers))}, got other queries'"
            )
        self.run.load(stored, logs)
        for name, tidier in self._tidiers.items():
            tidier.take_plain(tidied[name])

    def tables(self, tick: int) -> dict[str, pl.DataFrame]:
        """What is published at a tick; nothing where the schedule has none."""
        return self._tables(tick, self.run.release()) if self.is_due(tick) else {}

    def converse(self, tick: int) -> Conversation[dict[str, pl.DataFrame]]:
        """The same of a tick that is due, where shards have the state: yields questions, and is sent their answers."""
        release = yield from self.run.converse()
        return self._tables(tick, release)

    def is_due(self, tick: int) -> bool:
        """Whether the run makes a release at a tick."""
        return not tick % self.every and self.is_open

    def _tables(self, tick: int, release: Release[Any]) -> dict[str, pl.DataFrame]:
        windows: dict[int | None, Release[Any]] = {None: release}
        tables, mechanism = {}, self.run.mechanism
        first = mechanism.begins(release.tick) - 1 if isinstance(mechanism, EachPeriod) else 0
        for query in self.queries:
            if tick % query.every:
                continue
            per: int | None = query.per
            if per is not None and per not in windows:
                windows[per] = self.run.between(max(first, release.tick - per // self.every), release.tick)
            tables[query.name] = query.named(self._tidiers[query.name].add(self._table(query, windows[per])))
        if isinstance(mechanism, EachPeriod) and mechanism.last_of(release.tick) == release.tick:
            self._tidiers = {query.name: Tidier(query.tidy) for query in self.queries}
        if self._user is None:
            return tables
        return tables | above_cap_table(release, self.run.coverage) | exhausted_table(self.queries, release)

    def released_at(self, tick: int) -> bool:
        """Whether the last release was made at a tick."""
        return self.run.tick * self.every == tick

    @property
    def is_windowed(self) -> bool:
        """Whether it answers intervals of the past."""
        mechanism = self.run.mechanism
        return isinstance(mechanism.inner if isinstance(mechanism, EachPeriod) else mechanism, Windowed)

    def tables_between(self, start: int, end: int) -> dict[str, pl.DataFrame]:
        """What the ticks after `start` up to `end` added, if it was published at both and answers intervals."""
        asked = [query for query in self.queries if not (start % query.every or end % query.every)]
        if not (asked and self.is_windowed):
            return {}
        release = self.run.between(start // self.every, end // self.every)
        return {query.name: query.named(self._table(query, release)) for query in asked}

    def _table(self, query: Query, release: Release[Any]) -> pl.DataFrame:
        if self._user is not None:
            return query.capped_table(release, self.run.coverage, self._user.most_events_per_user)
        return query.table(self.run.mechanism, release, self.run.coverage)

    def _own(self, content: Any) -> Any:
        return content if self._user is None else self.queries[0].user_batch(content)

    @property
    def is_open(self) -> bool:
        """Whether any release is to come."""
        return self.run.is_open


def answered_together(plan: StreamPlan) -> list[list[QueryPlan]]:
    """The queries of a plan, those together that one run answers."""
    found: dict[object, list[QueryPlan]] = {}
    for each in plan.queries:
        shared = id(each.mechanism) if isinstance(plan.unit, User) else each.query.name
        found.setdefault(shared, []).append(each)
    return list(found.values())


class LiveCore:
    """The runs of a plan over their noise: what a stream in memory and a durable one both have.

    It neither locks nor guards; who has it does. Its first tick is the one after tick `after` of the stream. One that
    gathers and never counts does so `by_name`, since it has no state.
    """

    def __init__(self, plan: StreamPlan, noise_for: NoiseFor, *, after: int = 0, by_name: bool = False) -> None:
        self.plan = plan
        self.after = after
        self._warned = False
        self._memo = BatchMemo()
        self.parts = [LivePart(plan, plans, noise_for, after, by_name=by_name) for plans in answered_together(plan)]

    @property
    def gathers_ahead(self) -> bool:
        """Whether what the events of a tick add does not depend on the ticks before: it can be gathered ahead."""
        own = [part.run.mechanism for part in self.parts]
        return not any(isinstance(each, EachPeriod) or getattr(each, "by_slot", False) for each in own)

    @property
    def closing_ticks(self) -> set[int]:
        """Of each part the last tick that it counts, from the first of these runs on."""
        return {part.run.mechanism.guarantee.horizon * part.every for part in self.parts}

    @property
    def log_length(self) -> int:
        """How many ticks back the logs of the runs reach."""
        return max(part.run.log_length * part.every for part in self.parts)

    @property
    def lasting(self) -> set[int]:
        """Of which ticks, from the first of these runs on, checkpoints are needed."""
        return {tick * part.every for part in self.parts for tick in part.run.lasting()}

    @property
    def missing(self) -> set[int]:
        """Of which ticks there should be checkpoints, and are none."""
        return {tick * part.every for part in self.parts for tick in part.run.missing()}

    def logs(self, place: int) -> list[codec.Plain]:
        """What the tick just released has added to what a dump leaves out, for each part that released."""
        return [part.run.log() if part.released_at(place) else None for part in self.parts]

    def checkpoints(self, place: int) -> list[codec.Plain] | None:
        """What of it is needed for longer than logs are; None where nothing is."""
        found = [part.run.checkpoint() if part.released_at(place) else None for part in self.parts]
        return found if any(each is not None for each in found) else None

    def inputs(self, batch: object, tick: int, *, time: str | None = None, drop_bad_rows: bool) -> list[Any]:
        """What each part counts of a batch of a tick, all of which is checked before any of it is counted."""
        memo = BatchMemo()
        with memo.used():
            found = self._inputs(batch, tick, time=time, drop_bad_rows=drop_bad_rows)
        # Of what is counted next; forgotten with it.
        self._memo = memo
        return found

    def _inputs(self, batch: object, tick: int, *, time: str | None, drop_bad_rows: bool) -> list[Any]:
        queries = [query for part in self.parts for query in part.queries]
        user = self.plan.unit if isinstance(self.plan.unit, User) else None
        batch = table_of(batch)
        frame = as_frame(batch, queries, user)
        late = self._outside(batch, tick, time)
        if late is not None and late.any():
            if not drop_bad_rows:
                raise self._not_due(batch, tick, time or _TIME, late)
            frame = frame.filter(~late)
        if user is not None:
            return [user_input(queries, frame, user, drop_bad_rows=drop_bad_rows)] * len(self.parts)
        return query_inputs(queries, frame, drop_bad_rows=drop_bad_rows)

    def _outside(self, batch: object, tick: int, time: str | None) -> pl.Series | None:
        """Which rows do not lie in a tick by the column `time`.

        Unless it is named, a column of date-times called time is looked at, and what happened before the tick and comes
        late is let through: later times mean that ticks were skipped.
        """
        calendar = self.plan.calendar
        if calendar is None:
            if time is not None:
                raise ParameterError(f"time must be None where the stream has no origin, got {time!r}")
            return None
        times = times_in(batch, time or _TIME, texts=time is not None)
        if times is None:
            if time is None:
                self._warn_of_times(batch)
            elif batch is not None and as_frame(batch, ()).height:
                check_has(time, batch)
            return None
        found = microseconds(times, zone=calendar.time_zone)
        begin, end = (min(calendar.microsecond(each), LARGEST_TIME) for each in (tick, tick + 1))
        if time is None:
            return (found >= end).fill_null(value=False)
        return ~found.is_between(begin, end, closed="left").fill_null(value=False)

    def _warn_of_times(self, batch: object) -> None:
        """Say once that the times of a table are not looked at; whoever cuts it by hand may cut it wrongly."""
        columns = batch.get_columns() if isinstance(batch, pl.DataFrame) and not self._warned else ()
        names = [column.name for column in columns if column.dtype == pl.Datetime]
        if names:
            self._warned = True
            _log.warning("the times of a batch are not looked at; to hold them against its tick give time=%r", names[0])

    def _not_due(self, batch: object, tick: int, time: str, late: pl.Series) -> InputError:
        calendar = self.plan.calendar
        times = times_in(batch, time)
        assert calendar is not None and times is not None  # noqa: S101, PT018
        first = microseconds(times, zone=calendar.time_zone).filter(late).min()
        came = calendar.tick_at(first) if isinstance(first, int) else tick
        start, end = map(iso, calendar.span(tick, tick))
        skipped = f"tick {tick}" if came <= tick + 1 else f"ticks {tick} to {came - 1}"
        got = f"later ones: {skipped} would be skipped" if came > tick else "others"
        return InputError(
            f"column {time!r} must hold times of tick {tick}, which is due, from {start} up to {end}, got {got}; call "
            "tick() for every tick, also without events, or let stream.replay(frame) cut the ticks of a whole table"
        )

    def update(self, inputs: list[Any]) -> None:
        """Count events."""
        with self._counting():
            for part, content in zip(self.parts, inputs, strict=True):
                part.update(content)

    def gather(self, inputs: list[Any]) -> list[codec.Plain]:
        """For each part what some events of the open tick add, as plain data."""
        with self._counting():
            return [part.gather(content) for part, content in zip(self.parts, inputs, strict=True)]

    def gather_at(
        self, tick: int, batch: object, *, time: str | None = None, drop_bad_rows: bool = False
    ) -> codec.Plain:
        """The same of a batch of any tick, where nothing is ever counted; and where each part stood for it."""
        for part in self.parts:
            # A run has its own ticks, of which the stream has several where it releases now and then.
            part.run.stand_at((tick - self.after - 1) // part.every + 1)
        gathered = self.gather(self.inputs(batch, tick, time=time, drop_bad_rows=drop_bad_rows))
        return [[part.run.standing for part in self.parts], gathered]

    def combine_elsewhere(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        """Several pieces of a tick that `gather_at` gave, in their order, as one."""
        return [pieces[0][0], self.combine([own for _, own in pieces])]

    def from_elsewhere(self, piece: codec.Plain) -> list[codec.Plain]:
        """For each part what some events of the open tick add, of what `gather_at` gave for them."""
        standing, gathered = piece
        if standing != [part.run.standing for part in self.parts]:
            raise StateError("what is gathered must be of the open period, got another; the calendar has changed")
        return [part.from_elsewhere(content) for part, content in zip(self.parts, gathered, strict=True)]

    def _counting(self) -> AbstractContextManager[None]:
        """With what is known of the last batch, which is forgotten: whatever it is asked about, it tells by object."""
        memo, self._memo = self._memo, BatchMemo()
        return memo.used()

    def combine(self, gathered: Sequence[Sequence[codec.Plain]]) -> list[codec.Plain]:
        """For each part what all batches of the open tick add: the same wherever they were cut, also for none."""
        batches = gathered or [self.gather(self.inputs(None, 0, drop_bad_rows=False))]
        return [part.combine(pieces) for part, pieces in zip(self.parts, zip(*batches, strict=True), strict=True)]

    def add(self, gathered: Sequence[Sequence[codec.Plain]]) -> None:
        """Count what was gathered: for each batch what it adds to each part."""
        for batch in gathered:
            for part, content in zip(self.parts, batch, strict=True):
                part.add(content)

    def release(self, place: int) -> dict[str, pl.DataFrame]:
        """Close a tick: what is published at it. `place` counts from the first tick of this run."""
        return together(part.tables(place) for part in self.parts)

    def between(self, start: int, end: int) -> dict[str, pl.DataFrame]:
        """What ticks start + 1 .. end added, for the queries that tell it."""
        tables = {name: table for part in self.parts for name, table in part.tables_between(start, end).items()}
        if not tables:
            told = [part for part in self.parts if part.is_windowed]
            every = sorted({query.every for part in told for query in part.queries})
            listed = " or ".join(f"{each}" for each in every)
            ways = f"; such are multiples of {listed} ticks, and windows of as many" if told else "; none tells them"
            raise ParameterError(
                f"an interval must begin and end at ticks where a query is published that tells them, got others{ways}"
            )
        return tables

    def published(
        self, tick: int, tables: dict[str, pl.DataFrame], between: Callable[[int, int], StreamRelease], counted: int = 0
    ) -> StreamRelease:
        """What is published at a tick of the stream: the tables, and what they are about.

        Totals count what came after tick `counted`. `between` answers intervals.
        """
        plan = self.plan
        since = plan.since(tables, tick, first=self.after, counted=counted)
        return StreamRelease(
            tick, plan.coverage, tables, between, about=plan.about, **plan.span(tick, tick), since=since
        )

    def window(self, start: int, end: int) -> StreamRelease:
        """What ticks start + 1 .. end of the stream added, for the queries that tell it."""
        tables = self.between(start - self.after, end - self.after)
        about, span = partial(self.plan.about, (start, end)), self.plan.span(start + 1, end)
        return StreamRelease(end, self.plan.coverage, tables, about=about, **span)

    def check_gathered(self, gathered: Sequence[Sequence[codec.Plain]]) -> None:
        """Refuse what was stored for other queries."""
        if any(len(batch) != len(self.parts) for batch in gathered):
            raise StateError("a stored tick must be of these queries, got others")

    def stored_beside(self, content: codec.Plain) -> int:  # noqa: ARG002
        """How many bytes are stored elsewhere of what a tick adds, or of a state, by what is stored here."""
        return 0

    def check_blobs(self) -> None:
        """Hold what shards have stored against the digests that are sealed."""

    def dump(self) -> codec.Plain:
        """All that it knows between two ticks, as plain data: secret. What is in the logs is left out."""
        return [part.dump() for part in self.parts]

    def load(self, states: Sequence[codec.Plain], logs: Sequence[Sequence[codec.Plain]]) -> None:
        """Take over what `dump` gave, with the checkpoints and the logs of the last releases, the oldest first."""
        if len(states) != len(self.parts):
            raise StateError("a stored state must be of these queries, got others")
        for place, (part, state) in enumerate(zip(self.parts, states, strict=True)):
            part.load(state, [log[place] for log in logs if log[place] is not None])


def together(tables: Iterable[dict[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """The tables of all parts by their names; what several parts tell of under one name is one table."""
    found: dict[str, list[pl.DataFrame]] = {}
    for name, table in (each for some in tables for each in some.items()):
        found.setdefault(name, []).append(table)
    return {name: pl.concat(each) if len(each) > 1 else each[0] for name, each in found.items()}
