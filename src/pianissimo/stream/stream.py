"""What a user writes: a stream with its unit, its budget, its horizon and its queries."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from pianissimo import identity
from pianissimo.budget import Budget
from pianissimo.checks import Length, check_at_least, check_name, check_probability, tick_length_of, ticks_in
from pianissimo.errors import ParameterError, StateError
from pianissimo.loss.losses import Unit
from pianissimo.noise import KeyedNoise, Secret, fresh_secret
from pianissimo.queries import KINDS, Query, Role
from pianissimo.stream.batches import RESERVED_NAMES, columns_read
from pianissimo.stream.calendar import TickCalendar, zone_of
from pianissimo.stream.choosing import make_plan
from pianissimo.stream.live import Live, replayed
from pianissimo.stream.shown.notebook import warn_of_another_start
from pianissimo.stream.stream_plan import StreamPlan
from pianissimo.stream.toml_table import time_format_of
from pianissimo.unit import User

MOST_SHARDS = 2**16
"""So many shards need as many files at a tick."""

_LEAST_COVERAGE, _MOST_COVERAGE = 0.01, 0.9999999999
"""Bars that miss the truth more often tell nothing. Nearer to one, what each of many labels may miss is beyond floating
point."""

if TYPE_CHECKING:
    from pianissimo.durable.durable_stream import DurableStream
    from pianissimo.workers import Workers


@identity.identified("stream")
@dataclass(frozen=True)
class Stream:
    """Statistics of a stream of events, released at every tick under one promise.

    >>> from pianissimo.queries import Count, Histogram
    >>> stream = Stream("pharmacy", budget=Budget(epsilon=1.0, delta=1e-9), horizon=1440, queries=[
    ...     Count("purchases"),
    ...     Histogram("drugs", key="drug"),
    ... ])
    >>> live = stream.start()
    >>> release = live.tick([{"drug": "aspirin"}] * 1000)
    >>> release["drugs"].columns
    ['key', 'estimate', 'low', 'high']
    """

    name: str
    """What the stream is called."""

    _: KW_ONLY

    budget: Budget
    """The (epsilon, delta) of the whole run, all queries and ticks together."""

    horizon: int | Length | None = ""
    """How many ticks the promise covers, or how long, such as "30d"; None for no end, at about 1.4 times the error. It
    must be given, but where statistics begin anew with each period: there no end costs nothing."""

    queries: Sequence[Query]
    """What is released at every tick."""

    unit: Unit | User | Literal["event"] = Unit.EVENT
    """Whose presence is hidden: "event", or `user("customer")`, a user with all her events."""

    coverage: float = 0.95
    """The chance with which error bars hold the truth."""

    tick: timedelta | str | None = None
    """How long a tick is, such as "1m", so that windows can be asked for by their length. "1d" is a day of the time
    zone, of 23 and 25 hours where its clocks change, and "24h" is not; "1mo" and "1y" are those of the calendar."""

    origin: datetime | str | None = None
    """When tick 1 begins; public. Releases then tell when their tick begins and ends. Without an offset it is a time of
    the time zone."""

    time_zone: str = "UTC"
    """Whose clocks and calendar ticks follow, such as "Europe/Berlin"; also of times that have no offset."""

    history: int | Length | None = None
    """How far back windows of its queries may begin at any tick, where they do not say so themselves; see there."""

    shards: int = 1
    """Into how many shards labels, or users, are cut for ever, each of which has its own state and noise, so that many
    machines can have them; 1 for a stream that has them whole. Such streams are durable, and have no windows."""

    def __post_init__(self) -> None:
        check_name(name=self.name)
        if not isinstance(self.budget, Budget):
            raise ParameterError(f"budget must be a Budget(epsilon, delta), got {type(self.budget).__name__}")
        if self.unit == Unit.EVENT.value:
            object.__setattr__(self, "unit", Unit.EVENT)
        if self.unit is not Unit.EVENT and not isinstance(self.unit, User):
            raise ParameterError(f"unit must be 'event' or user('column'), got {self.unit!r}")
        if self.tick is not None:
            try:
                object.__setattr__(self, "tick", tick_length_of(self.tick, self.time_zone))
            except ParameterError as refusal:
                raise ParameterError(f"tick {refusal}") from None
        if self.horizon == "":
            if not (isinstance(self.unit, User) and self.unit.begins_anew):
                raise ParameterError(
                    'horizon must be given, such as 1440 ticks, "30d", or None for no end, got none; only statistics '
                    "that begin anew with each period need no horizon"
                )
            object.__setattr__(self, "horizon", None)
        if self.horizon is not None:
            object.__setattr__(self, "horizon", self._ticks("horizon", self.horizon))
            check_at_least(1, horizon=self.horizon)
        if self.history is not None:
            object.__setattr__(self, "history", self._ticks("history", self.history))
            check_at_least(0, history=self.history)
        check_at_least(1, shards=self.shards)
        if not self.shards <= MOST_SHARDS:
            raise ParameterError(f"shards must be at most {MOST_SHARDS}, got {self.shards}")
        if self.time_zone != "UTC":
            zone_of(self.time_zone)
        if self.origin is not None:
            if self.tick is None:
                raise ParameterError('tick must be given with origin, such as "1h", got None')
            object.__setattr__(self, "origin", TickCalendar(self.origin, self.tick, self.time_zone).origin)
        check_probability(coverage=self.coverage)
        if not _LEAST_COVERAGE <= self.coverage <= _MOST_COVERAGE:
            raise ParameterError(f"coverage must be from {_LEAST_COVERAGE} to {_MOST_COVERAGE}, got {self.coverage}")
        asked = (self.queries,) if isinstance(self.queries, Query) else self.queries
        is_list = isinstance(asked, Iterable) and not isinstance(asked, str | Mapping)
        wrong = [each for each in asked if not isinstance(each, Query)] if is_list else [asked]
        if wrong:
            known = ", ".join(each.__name__ for each in KINDS)
            raise ParameterError(f"queries must be a list of {known}, got {type(wrong[0]).__name__}")
        object.__setattr__(self, "queries", tuple(map(self._scheduled, asked)))
        names = [query.name for query in self.queries]
        if not names:
            raise ParameterError("queries must be at least one, got none")
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise ParameterError(f"queries must have different names, got {repeated!r} twice")
        self._check_user()
        reads = [column for query in self.queries for column in query.reads]
        texts = {column.name for column in reads if column.role is not Role.NUMBERS}
        lists = {column.name for column in reads if column.holds_lists}
        for query in self.queries:
            for column in query.reads:
                if column.role is Role.NUMBERS and column.name in texts:
                    is_value = column.name == getattr(query, "value", None)
                    way = (
                        "give the events a second column" if is_value else f"compare it with texts: {column.name} = '7'"
                    )
                    raise ParameterError(
                        f"query {query.name!r} must read {column.name!r} as numbers alone, got a column that is read "
                        f"as labels too; {way}"
                    )
            if any(column.name in lists for column in query.where_reads):
                raise ParameterError(f"where of query {query.name!r} must not look at a column of lists, got one")
        self._check_counted()
        for query in self.queries:
            if self.horizon is not None and not query.every <= self.horizon:
                raise ParameterError(
                    f"query {query.name!r} must be published within the {self.horizon} ticks of the horizon, "
                    f"got every {query.every} ticks"
                )

    def _check_counted(self) -> None:
        """Refuse what one event may move by more than itself, where rows stand for many events."""
        counted = {query.count_column: query.name for query in self.queries if query.count_column is not None}
        for column, name in counted.items():
            if self.user is not None:
                raise ParameterError(
                    f"count_column of query {name!r} must be left out where users are hidden, got {column!r}: how many "
                    f"events of a row count is then up to the cap; ask for Sum(value={column!r}, max_per_user=...)"
                )
            for query in self.queries:
                others = [each.name for each in query.reads if each.role is not Role.NUMBERS]
                if column in (*others, *(each.name for each in query.where_reads), getattr(query, "value", None)):
                    raise ParameterError(
                        f"query {query.name!r} must not read {column!r}, got the count_column of {name!r}: one event "
                        "less would change what its whole row counts as"
                    )
                if getattr(query, "value", None) is not None:
                    raise ParameterError(
                        f"query {query.name!r} must be in a stream of its own, got one beside query {name!r} whose "
                        f"rows stand for many events: the value of such a row may be of all of them, and what one "
                        "event moves in it is not bounded by the range"
                    )

    def _ticks(self, name: str, length: Length) -> Any:
        """A number of ticks as it is, and a length of time as one."""
        return ticks_in(length, self.tick, name) if isinstance(length, str | timedelta) else length

    def _scheduled(self, query: Query) -> Query:
        given = {"every": query.every, "per": query.per, "history": query.history}
        if self.shards > 1:
            if query.per is not None or query.history or self.history:
                raise ParameterError(
                    f"query {query.name!r} must have neither per nor history where a stream has shards, got one: "
                    "windows over shards are not there yet; use shards = 1"
                )
            query = replace(query, history=0) if query.has_windows else query
        ticks = {name: self._ticks(f"{name} of query {query.name!r}", each) for name, each in given.items()}
        if query.history is None and self.history is not None and query.has_windows:
            ticks["history"] = max(self.history, ticks["per"] or 0)
        return query if ticks == given else replace(query, **ticks)

    def _check_user(self) -> None:
        if not isinstance(self.unit, User):
            return
        is_capped = any(query.own_units is None and not query.watched for query in self.queries)
        is_running = self.unit.period(self.tick) is not None and not self.unit.reset
        if is_running and self.unit.max_events_per_user is None and is_capped:
            raise ParameterError(
                "max_events_per_user must be given where totals run on over periods, got none: it holds in each "
                "period; let them begin anew (reset=True) for a cap that follows"
            )
        for query in self.queries:
            if query.name in RESERVED_NAMES:
                reserved = ", ".join(map(repr, RESERVED_NAMES))
                raise ParameterError(f"queries about users must not be called {reserved}, got {query.name!r}")
            if any(column.name in (self.unit.column, self.unit.weight) for column in query.reads):
                raise ParameterError(
                    f"query {query.name!r} must read other columns than those of the users, got one of them"
                )
            if self.unit.weight is not None and not query.deletable:
                raise ParameterError(f"query {query.name!r} must be a count, sum or histogram where events are deleted")

    @property
    def user(self) -> User | None:
        """Who is hidden; None where single events are."""
        return self.unit if isinstance(self.unit, User) else None

    @property
    def calendar(self) -> TickCalendar | None:
        """When its ticks begin and end, where it has an origin."""
        if self.origin is None or self.tick is None:
            return None
        return TickCalendar(self.origin, self.tick, self.time_zone)

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return list(columns_read(self.queries, self.user))

    def to_plain(self) -> Any:
        """All that was asked for, as plain data that JSON can hold."""
        return identity.to_plain(self)

    @classmethod
    def from_plain(cls, content: Any) -> "Stream":
        """The stream that `to_plain` wrote down, also by an earlier version."""
        stream = identity.from_plain(content)
        if not isinstance(stream, cls):
            raise StateError("what is stored must be a stream, got something else")
        return stream

    def differences(self, stored: "Stream") -> list[str]:
        """Where it asks for something else than a stored stream, by the names of fields such as queries.n.weight."""
        names = [each.name for each in fields(self) if each.name != "queries"]
        now, before = (identity.to_plain(tuple(getattr(each, name) for name in names)) for each in (self, stored))
        found = [name for name, one, other in zip(names, now["tuple"], before["tuple"], strict=True) if one != other]
        own, others = ({query.name: identity.to_plain(query) for query in each.queries} for each in (self, stored))
        for name in own | others:
            one, other = own.get(name), others.get(name)
            if one is None or other is None or one["is"] != other["is"]:
                found.append(f"queries.{name}")
            else:
                found += [f"queries.{name}.{each}" for each in sorted(one | other) if one.get(each) != other.get(each)]
        return found or (["queries"] if list(own) != list(others) else [])

    def plan(self) -> StreamPlan:
        """What the stream will do and promise, before any data. Asked again, and by `start`, it is the same plan.

        >>> from pianissimo.queries import Count
        >>> plan = Stream("s", budget=Budget(1, 1e-9), horizon=1440, queries=[Count("purchases")]).plan()
        >>> plan.queries[0].chosen.name
        'Counter over top-down'
        """
        return self._planned

    @cached_property
    def _planned(self) -> StreamPlan:
        return make_plan(self)

    def open(
        self,
        state: Path | str,
        *,
        secret: Secret | Path | str | None = None,
        witness: Path | str | None = None,
        ledger_budget: Budget | None = None,
        ledger: Path | str | None = None,
        ledger_key: Secret | Path | str | None = None,
        take_over: bool = False,
        snapshot_every: int | None = None,
        workers: "Workers | str | int | None" = None,
        retention: timedelta | str | int | None = None,
        publish_after: timedelta | str | None = None,
    ) -> "DurableStream":
        """Run it in a folder or a PostgreSQL database, so that it goes on after a crash as if nothing had happened.

        The first call creates the stream and charges its whole horizon. The secret is a file beside the folder unless
        it is given, or said to be in `env:NAME` or printed by `command:WORDS`; lost, it ends the stream. The witness, a
        file beside the folder too, tells a store that was rolled back: keep it on another disk if you can.

        The stream is charged to a ledger beside the folder, made with room for it alone. A `ledger_budget`, given when
        the ledger is made, leaves room for other streams and questions on the same data. They name the `ledger`: a
        file, the folder or URL of the stream beside which it lies, or a `postgresql://` URL, with its `ledger_key`.

        `workers` says who counts large batches: `"inline"`, `"processes"` or how many of them, or a `SparkWorkers`. The
        releases are the same to the byte.

        With `retention`, a length of time such as "30d" or a number of ticks, the store keeps so many of the last ticks
        whole, and of those before what later ones depend on: 32 bytes a tick. It may be another one at each call.

        Readers and sinks see a tick at once, or `publish_after` its end: at a public moment, so that it tells nothing
        of the amount of data. A tick that is late waits for the next slot; `tick` and `publish` show what is due.

        >>> import tempfile
        >>> from pianissimo.queries import Count
        >>> stream = Stream("s", budget=Budget(1, 1e-9), horizon=1440, queries=[Count("purchases")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with stream.open(f"{folder}/state") as live:
        ...         first = live.tick([{}] * 1000)
        ...     with stream.open(f"{folder}/state") as live:
        ...         live, live.released(1).to_json() == first.to_json()
        (DurableStream('s', tick=1 of 1440), True)
        """
        from pianissimo.durable.durable_stream import open_stream

        return open_stream(
            self,
            state,
            secret=secret,
            witness=witness,
            ledger_budget=ledger_budget,
            ledger=ledger,
            ledger_key=ledger_key,
            take_over=take_over,
            snapshot_every=snapshot_every,
            workers=workers,
            retention=retention,
            publish_after=publish_after,
        )

    def replay(
        self,
        frame: object,
        time: str = "time",
        origin: datetime | str | None = None,
        *,
        until: int | datetime | str | None = None,
        time_format: str = "iso",
        drop_bad_rows: bool = False,
        progress: bool = False,
    ) -> pl.DataFrame:
        """Run it in memory over a table of past events: one table of all releases, tick after tick.

        The ticks are public: from the origin to the horizon, or to `until`, a number of ticks or the moment at which
        the last one ends, and those without events are released too. Choose none of these by looking at the data. Rows
        whose `time` lies in none of the ticks are an error, or left out where `drop_bad_rows` says so. Texts are read
        as `time_format` says, and numbers, in the words of a stream file: "%d/%m/%Y %H:%M", "epoch_s". It has a fresh
        secret: to replay the same events twice costs the budget twice.

        >>> from pianissimo.queries import Count
        >>> stream = Stream("s", budget=Budget(1, 1e-9), horizon=24, tick="1h", queries=[Count("visits")])
        >>> table = stream.replay([{"time": "2026-01-01T07:30Z"}], origin="2026-01-01")
        >>> table.columns, table.height
        (['query', 'tick', 'start', 'end', 'since', 'key', 'estimate', 'low', 'high'], 24)
        """
        stream = self if origin is None else replace(self, origin=origin)
        if self.origin not in (None, stream.origin):
            raise ParameterError(f"origin must be the one of the stream, {self.origin}, got {stream.origin}")
        calendar = stream.calendar
        if calendar is None:
            raise ParameterError(
                'origin and tick must be given to cut the ticks, got none, for example tick="1h" and '
                'origin="2026-01-01"; they are public and must never be derived from the data'
            )
        last = self.horizon if until is None else until if isinstance(until, int) else calendar.ticks_until(until)
        if last is None and until is None:
            raise ParameterError(
                "until must be given where the horizon is None, got none; it is public, such as 24 ticks"
            )
        if last is None or not 1 <= last <= (self.horizon or last):
            raise ParameterError(
                f"until must be a number of ticks within the horizon of {self.horizon}, or when one of them ends, got "
                f"{until!r}; it is public and must never be derived from the data"
            )
        try:
            times = (time, time_format_of(time_format))
        except ParameterError as refusal:
            raise ParameterError(f"time_format {refusal}") from None
        return replayed(stream.start(), frame, times, last, drop_bad_rows=drop_bad_rows, progress=progress)

    def start(self) -> Live:
        """Run it in memory, with a fresh secret. Two runs over the same events cost the budget twice.

        >>> from pianissimo.queries import Count
        >>> Stream("s", budget=Budget(1, 1e-9), horizon=1440, queries=[Count("purchases")]).start()
        Live('s', tick=0 of 1440)
        """
        if self.shards > 1:
            raise ParameterError(
                f"a stream must have its state whole to run in memory, got {self.shards} shards; open it with a state"
            )
        warn_of_another_start(self.name)
        return Live(self.plan(), KeyedNoise(fresh_secret()))
