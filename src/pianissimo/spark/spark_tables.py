"""A table or a path that Spark reads, cut into ticks by the column of times: all ticks are over.

Spark finds the rows of a tick, and executors gather them: whatever Spark reads goes in (Parquet, Delta, Iceberg). The
order of a user's rows is that of their times, and of what they hold where these are equal. What was counted of a tick
is sealed; that the table still holds it is not looked at, since a table has no bytes to digest. Rows without a time, or
outside all ticks, belong to no tick.
"""

from collections.abc import Iterator
from typing import Any

from pianissimo.errors import SourceError
from pianissimo.io.sources.source_records import RowJudge
from pianissimo.spark.spark_workers import SparkRows, SparkWorkers
from pianissimo.stream.source_spec import SparkSource
from pianissimo.stream.spec import StreamSpec
from pianissimo.workers import GatheredPiece


class SparkTicks:
    """The rows of a Spark table, by tick."""

    def __init__(self, spec: StreamSpec, workers: SparkWorkers) -> None:
        source, calendar = spec.source, spec.stream.calendar
        assert isinstance(source, SparkSource)  # noqa: S101
        assert calendar is not None  # noqa: S101  # a file with a source has an origin
        self._source, self._calendar, self._workers = source, calendar, workers
        self._columns = RowJudge(spec.stream.queries, spec.stream.user, time=source.time).wanted.names
        self._read_to = 0

    def seek(self, position: Any, tick: int) -> None:
        """Check that the table is the one that was read before, by its name."""
        if position is not None and position != self.position:
            raise SourceError("the source must be the one that was read before, got another table; mend [source]")
        self._read_to = tick

    def batches(self, tick: int) -> Iterator[GatheredPiece]:
        """What the rows of a tick add; after a recovery also those of ticks before it that are read again."""
        first = min(self._read_to + 1, tick)
        begin, end = self._calendar.start(first), self._calendar.start(tick + 1)
        frame = self._frame()
        time = frame[self._source.time]
        rows = frame.where((time >= begin) & (time < end)).select(*self._columns)
        for found in self._workers.gather([SparkRows(rows, tick, {"drop_bad_rows": True}, (self._source.time,))]):
            yield from found.pieces
        self._read_to = tick

    @property
    def position(self) -> Any:
        """Which table it is."""
        return {"spark": self._source.spark}

    def _frame(self) -> Any:
        session, name = self._workers.session, self._source.spark
        frame = session.read.parquet(name) if "/" in name else session.table(name)
        missing = [column for column in self._columns if column not in frame.columns]
        if missing:
            raise SourceError(f"columns {', '.join(map(repr, missing))} must be in the Spark table, got others")
        return frame
