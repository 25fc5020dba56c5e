"""A stream that runs in memory: one call a tick, one promise for all of them."""

import secrets
import threading
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from pianissimo.durations import ticks_in
from pianissimo.errors import HorizonError, ParameterError
from pianissimo.mechanism import Guard
from pianissimo.noise import Noise
from pianissimo.planner import StreamPlan
from pianissimo.stream.batches import as_frame, query_inputs, user_input
from pianissimo.stream.parts import live_parts
from pianissimo.stream.release import StreamRelease
from pianissimo.user_unit import User


class Live:
    """A running stream. `tick` counts a batch of events, closes the tick and publishes.

    `Stream.start` makes one.
    """

    def __init__(self, plan: StreamPlan, noise: Noise) -> None:
        # A new incarnation each time: the same secret under two runs never gives two data sets the same noise.
        root = noise.at("stream", plan.name, secrets.token_bytes(16), plan.digest)
        self.plan = plan
        self._parts = live_parts(plan, lambda every: root)  # noqa: ARG005
        self._tick = 0
        self._lock: AbstractContextManager[object] = threading.Lock()
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
        inputs = self._inputs(batch, drop_bad_rows=drop_bad_rows)
        with self._lock:
            if self._tick >= self.plan.horizon:
                raise HorizonError(f"all {self.plan.horizon} releases are made; start a new stream")
            with self._guard:
                return self._count_and_release(inputs)

    def _inputs(self, batch: object, *, drop_bad_rows: bool) -> list[Any]:
        """What each part counts of a batch, all of which is checked before any of it is counted."""
        queries = [query for part in self._parts for query in part.queries]
        if isinstance(self.plan.unit, User):
            user = self.plan.unit
            frame = as_frame(batch, queries, user)
            return [user_input(queries, frame, user, drop_bad_rows=drop_bad_rows)] * len(self._parts)
        return query_inputs(queries, as_frame(batch, queries), drop_bad_rows=drop_bad_rows)

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
            tables = {name: table for part in self._parts for name, table in part.tables_between(start, end).items()}
            if not tables:
                raise ParameterError(
                    "an interval must begin and end at ticks where a query is published that tells them, got others"
                )
        return StreamRelease(tick=end, coverage=self.plan.coverage, tables=tables)

    def _count_and_release(self, inputs: list[Any]) -> StreamRelease:
        tick = self._tick + 1
        for part, content in zip(self._parts, inputs, strict=True):
            part.update(content)
        tables = {name: table for part in self._parts for name, table in part.tables(tick).items()}
        self._tick = tick
        return StreamRelease(tick=tick, coverage=self.plan.coverage, tables=tables, interval=self.between)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a live stream is not copied or pickled: two of it would share their noise")

    def __repr__(self) -> str:
        return f"Live({self.plan.name!r}, tick={self._tick} of {self.plan.horizon})"
