"""A stream that runs in memory: one call a tick, one promise for all of them."""

import secrets
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

from pianissimo import codec
from pianissimo.durations import ticks_in
from pianissimo.errors import HorizonError, ParameterError, StateError
from pianissimo.mechanism import Guard, Run, Windowed
from pianissimo.noise import Noise
from pianissimo.planner import QueryPlan, StreamPlan
from pianissimo.queries import Sum
from pianissimo.stream.batches import as_frame, query_inputs
from pianissimo.stream.release import StreamRelease, release_table
from pianissimo.stream.tidy import Tidier


class LiveQuery:
    """One query of a running stream: its run, when it is published, and what is done to its estimates."""

    def __init__(self, plan: QueryPlan, noise: Noise, coverage: float) -> None:
        self.query = plan.query
        self.run: Run[Any, Any, Any] = Run(plan.mechanism, noise, coverage=coverage)
        self._tidier = Tidier(plan.query.tidy)
        self._grid = plan.query.exact_grid if isinstance(plan.query, Sum) else None

    def is_published(self, tick: int) -> bool:
        """Whether the query is part of the release of this tick."""
        return tick % self.query.every == 0 and self.run.tick < self.run.mechanism.guarantee.horizon

    def is_published_at(self, tick: int) -> bool:
        """Whether the query was part of the release of this tick, which is the last one."""
        return tick % self.query.every == 0 and self.run.tick == tick // self.query.every

    def is_open(self) -> bool:
        """Whether events still count: not after the last release of a schedule."""
        return self.run.tick < self.run.mechanism.guarantee.horizon

    def gather(self, content: Any) -> codec.Plain:
        """What some events of the open tick add, as plain data; None where they do not count any more."""
        return self.run.gather(content) if self.is_open() else None

    def add(self, gathered: codec.Plain) -> None:
        """Count what was gathered."""
        if gathered is not None:
            self.run.add(gathered)

    def dump(self) -> codec.Plain:
        """All that it knows between two ticks, as plain data: secret. What is in the logs is left out."""
        return {"name": self.query.name, "run": self.run.dump(short=True), "tidy": self._tidier.to_plain()}

    @property
    def log_length(self) -> int:
        """How many of the last ticks' logs `load` needs."""
        return self.run.log_length * self.query.every

    def load(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        """Take over what `dump` gave, with the logs of the last releases, the oldest first."""
        try:
            name, run, tidy = content["name"], content["run"], content["tidy"]
        except (TypeError, KeyError):
            raise StateError("a stored state must have the content of this version, got other content") from None
        if name != self.query.name:
            raise StateError(f"a stored state must be that of query {self.query.name!r}, got another query's")
        self.run.load(run, logs)
        self._tidier.take_plain(tidy)

    def table(self) -> Any:
        """Close the open tick and publish."""
        return self._tidier.add(release_table(self.run.release(), self.run.coverage, self._grid))

    def can_tell(self, start: int, end: int) -> bool:
        """Whether the query answers intervals and was published at both ends of this one."""
        every = self.query.every
        return isinstance(self.run.mechanism, Windowed) and start % every == 0 and end % every == 0

    def table_between(self, start: int, end: int) -> Any:
        """What the ticks after `start` up to `end` added."""
        every = self.query.every
        return release_table(self.run.between(start // every, end // every), self.run.coverage, self._grid)


class Live:
    """A running stream. `tick` counts a batch of events, closes the tick and publishes.

    `Stream.start` makes one.
    """

    def __init__(self, plan: StreamPlan, noise: Noise) -> None:
        # A new incarnation each time: the same secret under two runs never gives two data sets the same noise.
        root = noise.at("stream", plan.name, secrets.token_bytes(16), plan.digest)
        self.plan = plan
        self._queries = [LiveQuery(each, root.at("query", each.query.name), plan.coverage) for each in plan.queries]
        self._tick = 0
        self._lock = threading.Lock()
        self._guard = Guard()

    @property
    def tick_number(self) -> int:
        """How many ticks have been released."""
        return self._tick

    def tick(self, batch: object = None, *, drop_bad_rows: bool = False) -> StreamRelease:
        """Count the events of one tick, all or none of them, and publish.

        The batch is a polars, pandas, pyarrow or duckdb table, or a list of dicts; None is a tick without events. Rows
        that a query cannot count are an error, or left out where `drop_bad_rows` says so: each is judged alone.
        """
        queries = [each.query for each in self._queries]
        inputs = query_inputs(queries, as_frame(batch, queries), drop_bad_rows=drop_bad_rows)
        with self._lock:
            if self._tick >= self.plan.horizon:
                raise HorizonError(f"all {self.plan.horizon} releases are made; start a new stream")
            with self._guard:
                return self._count_and_release(inputs)

    def window(self, length: object) -> StreamRelease:
        """What the last ticks added: `live.window("1h")`, or a number of ticks.

        It answers from the noise already public, at no further loss, for the queries that keep a history.
        """
        ticks = ticks_in(length, self.plan.tick)
        return self.between(self._tick - ticks, self._tick)

    def between(self, start: int, end: int) -> StreamRelease:
        """What ticks start + 1 .. end added, for the queries that answer intervals and were published at both ends."""
        with self._lock:
            if not 0 <= start < end <= self._tick:
                raise ParameterError(
                    f"an interval must lie within the {self._tick} released ticks, got {start} to {end}"
                )
            tables = {
                each.query.name: each.table_between(start, end) for each in self._queries if each.can_tell(start, end)
            }
            if not tables:
                raise ParameterError(
                    "an interval must begin and end at ticks where a query is published that tells them, got others"
                )
        return StreamRelease(tick=end, coverage=self.plan.coverage, tables=tables)

    def _count_and_release(self, inputs: list[Any]) -> StreamRelease:
        tick = self._tick + 1
        for each, content in zip(self._queries, inputs, strict=True):
            if each.is_open():
                each.run.update(content)
        tables = {each.query.name: each.table() for each in self._queries if each.is_published(tick)}
        self._tick = tick
        return StreamRelease(tick=tick, coverage=self.plan.coverage, tables=tables, interval=self.between)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a live stream is not copied or pickled: two of it would share their noise")

    def __repr__(self) -> str:
        return f"Live({self.plan.name!r}, tick={self._tick} of {self.plan.horizon})"
