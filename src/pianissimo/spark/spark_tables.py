"""A table or a path that Spark reads, cut into ticks by the column of times: those that are over by the clock.

Spark finds the rows of a tick, and executors gather them: whatever Spark reads goes in (Parquet, Delta, Iceberg). A
path is read as what lies there: the files of a Delta or Iceberg table hold rows that were deleted or rewritten, which
the table does not. The order of a user's rows is that of their times, and of what they hold where these are equal. What
was counted of a tick is sealed; that the table still holds it is not looked at, since a table has no bytes to digest.

Executors judge rows as those of files are judged. How many are refused, and why, is listed: of a tick when it is read,
and of rows that belong to no tick before that. Of the latter, since a table may grow, each start lists as many as are
not listed yet.

Which tick a row belongs to is a function of its time and of the calendar, and of no setting of the session: a time
without an offset is one of the stream's time zone, as in files, and a column of other than times is refused.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from pianissimo.errors import InputError, SourceError
from pianissimo.io.sources.event_files import check_share
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.io.sources.source_records import EndOfTicks
from pianissimo.spark.judged_tables import TableRules
from pianissimo.spark.spark_workers import SparkRows, SparkWorkers, column_named
from pianissimo.storage.files import keep_from_git, make_folder
from pianissimo.stream.source_spec import SparkSource
from pianissimo.stream.spec import StreamSpec
from pianissimo.workers import GatheredPiece


class SparkTicks:
    """The rows of a Spark table, by tick."""

    def __init__(
        self,
        spec: StreamSpec,
        workers: SparkWorkers,
        refused: RefusedFile,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        source, calendar = spec.source, spec.stream.calendar
        assert isinstance(source, SparkSource)  # noqa: S101
        assert calendar is not None  # noqa: S101  # a file with a source has an origin
        self._source, self._calendar, self._workers, self._now = source, calendar, workers, now
        self._rules, self._refused = TableRules(spec), refused
        self._columns = self._rules.judge.wanted.names
        self._last_tick = spec.last_tick
        self._read_to = 0
        self._is_checked = False
        self._listed = -1
        """The last tick of which it is listed what is refused; 0 stands for rows of no tick, which come first."""

    def seek(self, position: Any, tick: int) -> None:
        """Check that the table is the one that was read before, by its name."""
        if position is not None and position != self.position:
            raise SourceError("the source must be the one that was read before, got another table; mend [source]")
        if position is None:
            self.check_refused()
        self._read_to = tick

    def check_refused(self) -> None:
        """Refuse a table of which too many rows, of all that it has now, cannot be counted; that reads it once more.

        What is refused is listed then, since nothing else can tell.
        """
        if self._is_checked:
            return
        self._refused.forget()
        if self._source.max_refused < 1:
            found = self._workers.judge(self._frame().select(*map(column_named, self._columns)), self._rules)
            try:
                check_share(self._source, found.refused.total(), found.counted, f"in {self._refused.path}")
            except InputError:
                self._list_whole(found.refused)
                raise
        self._is_checked = True

    def batches(self, tick: int) -> Iterator[GatheredPiece]:
        """What the rows of a tick add; after a recovery also those of ticks before it that are read again."""
        first = min(self._read_to + 1, tick)
        begin, end = self._calendar.start(first), self._calendar.start(tick + 1)
        if self._now() < end:
            # The next run goes on with it.
            raise EndOfTicks(ended=True)
        frame = self._frame().select(*map(column_named, self._columns))
        if self._listed < 0:
            self._list(0, self._of_no_tick(frame))
        rows = SparkRows(frame.where(self._within(frame, begin, end)), tick, {}, (self._source.time,))
        for found in self._workers.gather([rows], self._rules):
            self._list(tick, found.report.refused)
            yield from found.pieces
        self._read_to = tick

    @property
    def position(self) -> Any:
        """Which table it is."""
        return {"spark": self._source.spark}

    def _frame(self) -> Any:
        session, name = self._workers.session, self._source.spark
        frame = session.read.format(format_at(session, name)).load(name) if "/" in name else session.table(name)
        missing = [column for column in self._columns if column not in frame.columns]
        if missing:
            raise SourceError(f"columns {', '.join(map(repr, missing))} must be in the Spark table, got others")
        return frame

    def _of_no_tick(self, frame: Any) -> Counter[str]:
        """How many rows without a time, or outside all ticks, there are that no start has listed, by reason."""
        begin, end = self._calendar.span(1, self._last_tick)
        others = frame.where(column_named(self._source.time).isNull() | ~self._within(frame, begin, end))
        listed: Mapping[str, int] = {}
        with suppress(InputError):
            # A list that was damaged is one that tells nothing.
            listed = RefusedFile.told(self._refused.path)
        return self._workers.judge(others, self._rules).refused - Counter(listed)

    def _list_whole(self, refused: Mapping[str, int]) -> None:
        """Write down what is refused of a table without which there is no stream: where the stream would be."""
        path = self._refused.path
        with suppress(OSError):
            make_folder(path.parent)
        keep_from_git(path.parent, path.name)
        self._refused.count(self._source.spark, None, refused)
        self._refused.sync()

    def _list(self, tick: int, refused: Mapping[str, int]) -> None:
        """Write down what is refused of a tick, once: where there was no room for it, the tick is read again."""
        if tick > self._listed:
            self._listed = tick
            self._refused.count(self._source.spark, tick or None, refused)
        self._refused.sync()

    def _within(self, frame: Any, begin: datetime, end: datetime) -> Any:
        """Which rows are of some time."""
        from pyspark.sql.functions import convert_timezone, lit

        time, kind = column_named(self._source.time), frame.schema[self._source.time].dataType.simpleString()
        if kind == "timestamp":
            return (time >= begin) & (time < end)
        if kind != "timestamp_ntz":
            raise SourceError(
                f"column {self._source.time!r} must be of Spark's type timestamp or timestamp_ntz, got {kind}: what "
                "time Spark takes it for depends on settings of the session; cast it in a view"
            )

        def by_clock(moment: datetime) -> Any:
            return lit(f"{moment:%Y-%m-%d %H:%M:%S.%f}").cast(kind)

        zone, utc = lit(self._calendar.time_zone), lit("UTC")
        exact = convert_timezone(zone, utc, time)
        # By the column itself first, so that Spark need not read all files: no zone is a day away.
        near = (time >= by_clock(begin) - lit(_DAY)) & (time < by_clock(end) + lit(_DAY))
        # What the clocks of the zone leave out, Spark moves on by an hour: it is no time, as in files.
        is_time = convert_timezone(utc, zone, exact) == time
        return near & is_time & (exact >= by_clock(begin)) & (exact < by_clock(end))


_DAY = timedelta(days=1)

_LAKES = {"_delta_log": "delta", "metadata/*.metadata.json": "iceberg", ".hoodie": "hudi"}
"""What tells a table of so many files from a folder of them."""


def format_at(session: Any, path: str) -> str:
    """What Spark has to read at a path."""
    found = session._jvm.org.apache.hadoop.fs.Path(path)  # Python has no other way to Hadoop's files
    files = found.getFileSystem(session._jsc.hadoopConfiguration())
    for below, kind in _LAKES.items():
        if files.globStatus(session._jvm.org.apache.hadoop.fs.Path(found, below)):
            return kind
    return "parquet"
