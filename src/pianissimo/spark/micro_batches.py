"""A streaming query of Spark's as a source: each micro-batch is a tick, and its number is sealed with it.

Spark's checkpoint is not the truth; the seal is. A batch that was sealed before is skipped. A gap, or a query with
another checkpoint, is refused: its events could have been counted, or be lost. So is a batch with a row that cannot be
counted, unless such rows are to be left out: it would come again for ever.

**This promises less about ticks.** Where a batch ends depends on how long the one before took, and so on how much data
there was; options that cut batches by amount (`maxFilesPerTrigger`, `maxOffsetsPerTrigger`) would let data decide what
is a tick, and must not be used. Numbers are as private as ever; when they come is not. Where that matters use
`pianissimo run` on files or a topic, whose ticks end by the public clock.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pianissimo.durable.durable_stream import DurableStream
from pianissimo.errors import SourceError

_QUERY = "sql.streaming.queryId"


def foreach_batch(
    live: DurableStream,
    *,
    query: str | None = None,
    drop_bad_rows: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Callable[[Any, int], None]:
    """What `writeStream.foreachBatch` calls, for a stream that was opened with `SparkWorkers`.

    `query` names the streaming query, for ever; without it, its id of Spark's does, which is that of its checkpoint.
    A row that cannot be counted, such as one without a user, is an error, and Spark gives the same batch again: with
    `drop_bad_rows` such rows are left out. Where the stream has an origin, ticks that are over by the clock before a
    batch comes are released without events.
    """

    def count(frame: Any, batch: int) -> None:
        own = query or frame.sparkSession.sparkContext.getLocalProperty(_QUERY)
        if not own:
            raise SourceError("a streaming query must have a name, got none from Spark; give foreach_batch(query=...)")
        position = live.position
        _check_follows(position, own, batch)
        if position is not None and batch <= position["batch"]:
            if live.pending is not None:
                live.finish()
            return
        calendar = live.plan.calendar
        due = 0 if calendar is None else calendar.tick_at(now()) - 1
        before = {"query": own, "batch": batch - 1}
        while live.tick_number + 1 < min(due, live.plan.horizon):
            live.tick(None, position=before)
        live.tick(frame, drop_bad_rows=drop_bad_rows, position={"query": own, "batch": batch})

    return count


def _check_follows(position: Any, query: str, batch: int) -> None:
    if position is not None and (not isinstance(position, dict) or position.keys() != {"query", "batch"}):
        raise SourceError("the source must be the one that was read before, got a streaming query; begin a new stream")
    if position is not None and position["query"] != query:
        raise SourceError(
            "the streaming query must be the one that was counted before, got another: its checkpoint was deleted or "
            "replaced, and events would be counted again or lost; bring it back, or begin a new stream"
        )
    last = -1 if position is None else position["batch"]
    if batch > last + 1:
        raise SourceError(
            f"batch {last + 1} must come next, got {batch}: batches in between are lost; bring back the checkpoint, or "
            "begin a new stream"
        )
