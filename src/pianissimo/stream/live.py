"""A stream that runs in memory: one call a tick, one promise for all of its queries."""

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Self

import numpy as np
import polars as pl

from pianissimo.checks import ticks_in
from pianissimo.errors import HorizonError, InputError, ParameterError, StateError
from pianissimo.guard import Guard
from pianissimo.noise import Noise
from pianissimo.stream.batches import as_frame, check_has, columns_read, table_of, times_in
from pianissimo.stream.calendar import asked_of_times, microseconds
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.release import MOMENT, TIMES, StreamRelease
from pianissimo.stream.shown.notebook import progress_of
from pianissimo.stream.stream_plan import StreamPlan
from pianissimo.unit import User


class Live:
    """A running stream. `tick` counts a batch of events, closes the tick and publishes.

    `Stream.start` makes one.
    """

    def __init__(self, plan: StreamPlan, noise: Noise) -> None:
        # A new incarnation each time: the same secret under two runs never gives two data sets the same noise.
        root = noise.at("stream", plan.name, secrets.token_bytes(16), plan.digest)
        self.plan = plan
        self._core = LiveCore(plan, lambda every: root)  # noqa: ARG005
        self._tick = 0
        self._last: StreamRelease | None = None
        self._open: list[list[Any]] | None = []
        self._lock = threading.Lock()
        self._guard = Guard()

    @property
    def tick_number(self) -> int:
        """How many ticks have been released."""
        return self._tick

    def tick(self, batch: object = None, *, time: str | None = None, drop_bad_rows: bool = False) -> StreamRelease:
        """Count the events of one tick, all or none of them, and publish.

        The batch is a polars, pandas, pyarrow or duckdb table, or a list of dicts; None is a tick without events. Rows
        that a query cannot count are an error, or left out where `drop_bad_rows` says so: each is judged alone. So are,
        where the stream has an origin, rows whose `time` does not lie in the tick. Without `time`, a column of
        date-times called time must not lie behind the tick: whoever cuts a table by hand has skipped an empty one then.
        """
        with self._alone():
            taken = self._taken()
            inputs = self._core.inputs(batch, self._tick + 1, time=time, drop_bad_rows=drop_bad_rows)
            with self._guard:
                self._core.add(taken)
                self._core.update(inputs)
                self._open = []
                tables = self._core.release(self._tick + 1)
                self._tick += 1
                self._last = self._core.published(self._tick, tables, self.between)
                return self._last

    def add(self, batch: object = None, *, time: str | None = None, drop_bad_rows: bool = False) -> None:
        """Take events of the open tick, all or none of a batch; `tick` counts them."""
        with self._alone():
            taken = self._taken()
            inputs = self._core.inputs(batch, self._tick + 1, time=time, drop_bad_rows=drop_bad_rows)
            # What it adds, and not the batch itself: whoever gave it may use its memory for the next one.
            self._open = [*taken, self._core.gather(inputs)]

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._guard.check_process()
        with self._lock:
            yield

    def close(self) -> None:
        """End it: events of the open tick are dropped, and no further tick is released."""
        with self._alone():
            self._open = None

    def _taken(self) -> list[list[Any]]:
        if self._tick >= self.plan.horizon:
            raise HorizonError(f"all {self.plan.horizon} releases are made; start a new stream")
        if self._open is None:
            raise StateError("a live stream must be open, got one that was closed; start a new one")
        return self._open

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def window(self, length: object) -> StreamRelease:
        """What the last ticks added: `live.window("1h")`, or a number of ticks.

        It answers from the noise already public, at no further loss, for the queries that keep a history. While the
        stream is younger than that, all of its ticks are the last ones, as with `per`.
        """
        ticks = ticks_in(length, self.plan.tick)
        return self.between(max(0, self._tick - ticks), self._tick)

    def plot(self) -> Any:
        """A picture of what was released over the last ticks, as a matplotlib figure: totals with error bands."""
        from pianissimo.stream.shown.pictures import plot_live

        if self._last is None:
            raise StateError("a live stream must have released a tick to be drawn, got none")
        return plot_live(self._last, self.between)

    def between(self, start: int, end: int) -> StreamRelease:
        """What ticks start + 1 .. end added, for the queries that answer intervals and were published at both ends."""
        with self._alone():
            if not 0 <= start < end <= self._tick:
                raise ParameterError(
                    f"an interval must lie within the {self._tick} released ticks, got {start} to {end}"
                )
            return self._core.window(start, end)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a live stream is not copied or pickled: two of it would share their noise")

    def __repr__(self) -> str:
        return f"Live({self.plan.name!r}, tick={self._tick} of {self.plan.horizon})"


def replayed(
    live: Live, frame: object, written: tuple[str, str], last_tick: int, *, drop_bad_rows: bool, progress: bool
) -> pl.DataFrame:
    """One table of all releases up to a tick, of events that a column of times, in a form, gives their ticks."""
    time, form = written
    calendar, queries = live.plan.calendar, [each.query for each in live.plan.queries]
    assert calendar is not None  # noqa: S101
    user = live.plan.unit if isinstance(live.plan.unit, User) else None
    frame = table_of(frame)
    rows, names = as_frame(frame, queries, user), list(columns_read(queries, user))
    times = times_in(frame, time, form)
    if times is None and rows.height:
        check_has(time, frame)
    found = microseconds(pl.Series(dtype=pl.String) if times is None else times, form, calendar.time_zone)
    rows = rows.select(names) if names else pl.DataFrame({"": pl.repeat(None, rows.height, eager=True)})
    faults = calendar.faults(time, found, last_tick, asked_of_times(form))
    if faults.count() and not drop_bad_rows:
        is_read = found.filter(faults.is_not_null())[0] is not None
        way_out = "choose another origin, horizon or until" if is_read else "give their time_format"
        told = f"{faults.drop_nulls()[0]}, got others; {way_out}, mend those rows, or give drop_bad_rows=True"
        raise InputError(told)
    ticks = calendar.ticks(found.filter(faults.is_null())).to_numpy()
    order = np.argsort(ticks, kind="stable")
    rows, ticks = rows.filter(faults.is_null())[order], ticks[order]
    edges = np.searchsorted(ticks, np.arange(1, last_tick + 2)).tolist()
    tables: dict[str, list[pl.DataFrame]] = {}
    for tick in progress_of(range(1, last_tick + 1), "ticks", shown=progress):
        release = live.tick(rows[edges[tick - 1] : edges[tick]], drop_bad_rows=drop_bad_rows)
        for name, table in release.items():
            head: list[Any] = [pl.lit(name).alias("query"), pl.lit(tick, pl.Int64).alias("tick"), *TIMES]
            tables.setdefault(name, []).append(table.select(*head, pl.exclude(TIMES)))
    whole = pl.concat([_KEYS, *(pl.concat(parts) for parts in tables.values())], how="diagonal_relaxed")
    # What is released at a tick stays in the order of the queries.
    return whole.sort("tick", maintain_order=True)


_KEYS = pl.DataFrame(schema={"query": pl.String, "tick": pl.Int64, **dict.fromkeys(TIMES, MOMENT), "key": pl.String})
"""What a table of all releases begins with, also where no query has keys."""
