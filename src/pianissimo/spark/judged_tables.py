"""Rows of a Spark table, judged on executors as those of a file are; and how many cannot be counted, for which reason.

A table has no line numbers, so that reasons are told with a number of rows. Reasons hold nothing of a row. What is told
is the result of a task, and Spark takes one result of each: a task that is tried again, or has a twin, counts once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import polars as pl

from pianissimo.io.sources.event_files import written_as
from pianissimo.io.sources.rows.text_rows import REFUSED, Piece
from pianissimo.io.sources.source_records import Clock, RowJudge
from pianissimo.stream.batches import as_frame
from pianissimo.stream.source_spec import SparkSource
from pianissimo.stream.spec import LedgerSpec, RunSpec, StreamSpec


@dataclass(slots=True, repr=False, eq=False)
class TableReport:
    """How many rows can be counted, and how many cannot, by reason: secret."""

    counted: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, other: "TableReport") -> None:
        """Those of other rows too."""
        self.counted += other.counted
        self.refused.update(other.refused)


class TableRules:
    """How the rows of a spec's table are judged; it can be pickled, without what may hold keys."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = replace(spec, sinks=(), ledger=LedgerSpec(), run=RunSpec())

    @cached_property
    def judge(self) -> RowJudge:
        """What judges them; made where it is used."""
        spec, source, calendar = self.spec, self.spec.source, self.spec.stream.calendar
        assert isinstance(source, SparkSource)  # noqa: S101
        assert calendar is not None  # noqa: S101  # a file with a source has an origin
        clock = Clock(calendar=calendar, last_tick=spec.last_tick)
        return RowJudge(
            spec.stream.queries, spec.stream.user, time=source.time, clock=clock, written=written_as(spec), tells=False
        )

    def counted(self, frames: Iterable[pl.DataFrame], report: TableReport) -> Iterator[pl.DataFrame]:
        """The rows that can be counted, frame by frame; the report is told of these and of all others."""
        for frame in frames:
            rows = self.judge.judged(self._piece(frame))
            report.counted += rows.table.height
            report.refused.update(dict(rows.refused["reason"].value_counts().iter_rows()))
            yield rows.table

    def _piece(self, frame: pl.DataFrame) -> Piece:
        stream, wanted = self.spec.stream, self.judge.wanted
        return Piece(
            lines=pl.int_range(frame.height, dtype=pl.Int64, eager=True),
            columns=as_frame(frame, stream.queries, stream.user).select(*wanted.labels, *wanted.values),
            times=wanted.times(frame),
            refused=pl.DataFrame(schema=REFUSED),
        )

    def __reduce__(self) -> tuple[type["TableRules"], tuple[StreamSpec]]:
        return TableRules, (self.spec,)
