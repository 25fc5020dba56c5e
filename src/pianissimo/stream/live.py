"""A stream that runs in memory: one call a tick, one promise for all of them."""

import secrets
import threading
from typing import Any

from pianissimo.errors import HorizonError
from pianissimo.mechanism import Run
from pianissimo.noise import Noise
from pianissimo.planner import StreamPlan
from pianissimo.stream.batches import as_frame, needed_columns, query_input
from pianissimo.stream.release import StreamRelease, release_table


class Live:
    """A running stream. `tick` counts a batch of events, closes the tick and publishes.

    `Stream.start` makes one.
    """

    def __init__(self, plan: StreamPlan, noise: Noise) -> None:
        # A new incarnation each time: the same secret under two runs never gives two data sets the same noise.
        root = noise.at("stream", plan.name, secrets.token_bytes(16), plan.digest)
        self.plan = plan
        self._queries = [each.query for each in plan.queries]
        self._runs: list[Run[Any, Any, Any]] = [
            Run(each.mechanism, root.at("query", each.query.name), coverage=plan.coverage) for each in plan.queries
        ]
        self._tick = 0
        self._lock = threading.Lock()

    @property
    def tick_number(self) -> int:
        """How many ticks have been released."""
        return self._tick

    def tick(self, batch: object = None) -> StreamRelease:
        """Count the events of one tick, all or none of them, and publish.

        The batch is a polars, pandas, pyarrow or duckdb table, or a list of dicts; None is a tick without events.
        """
        frame = as_frame(batch, needed_columns(self._queries))
        inputs = [query_input(query, frame) for query in self._queries]
        with self._lock:
            return self._count_and_release(inputs)

    def _count_and_release(self, inputs: list[Any]) -> StreamRelease:
        if self._tick >= self.plan.horizon:
            raise HorizonError(f"all {self.plan.horizon} releases are made; start a new stream")
        for run, content in zip(self._runs, inputs, strict=True):
            run.update(content)
        tables = {
            query.name: release_table(run.release()) for query, run in zip(self._queries, self._runs, strict=True)
        }
        self._tick += 1
        return StreamRelease(tick=self._tick, coverage=self.plan.coverage, tables=tables)

    def __repr__(self) -> str:
        return f"Live({self.plan.name!r}, tick={self._tick} of {self.plan.horizon})"
