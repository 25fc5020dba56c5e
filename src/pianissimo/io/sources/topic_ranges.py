"""A topic as ranges, for whoever works: offsets of a partition, from and to.

A worker reads its range with the feed that one process reads all of it with, and judges records by the same rules. It
finds the brokers by the stream file, whose passwords are references (`env:NAME`), so that none travels. What ranges add
counts in the order of partitions, and there of offsets, whoever reads them; a user's records keep their order.

A range that begins within what a tick adds does not know the epoch of the leader that had what lies before it. That the
log was not cut off in between is told by the epochs that workers saw: they grow with the offsets.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from pianissimo.errors import SourceError
from pianissimo.io.kafka import BROKERS_PATIENCE, kafka_settings
from pianissimo.io.sources.event_files import written_as
from pianissimo.io.sources.kafka_topics import KafkaFeed
from pianissimo.io.sources.source_records import JudgedRows, RowJudge
from pianissimo.stream.source_spec import LiveSource
from pianissimo.stream.spec import LedgerSpec, StreamSpec
from pianissimo.workers import GatheredPiece, ReadRange, Workers

LEAST_RECORDS = 2**16
"""Fewer are read by the stream's own process: to ask others would take longer."""

RECORDS_A_RANGE = 2**18


class TopicRules:
    """How the records of a spec's topic are found and judged; pickled without sinks and ledger, which may hold keys."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = replace(spec, sinks=(), ledger=LedgerSpec())

    @cached_property
    def feed(self) -> KafkaFeed:
        """What reads them; made where it is used, and kept from range to range."""
        source = self.spec.source
        assert isinstance(source, LiveSource)  # noqa: S101
        assert source.kafka is not None  # noqa: S101
        topic = source.kafka
        return KafkaFeed(topic.topic, brokers=topic.brokers, settings=kafka_settings(topic), wait=BROKERS_PATIENCE)

    @cached_property
    def judge(self) -> RowJudge:
        """What judges them."""
        return live_judge(self.spec)

    def __reduce__(self) -> tuple[type["TopicRules"], tuple[StreamSpec]]:
        return TopicRules, (self.spec,)


def live_judge(spec: StreamSpec) -> RowJudge:
    """What judges the records of a live source."""
    source = spec.source
    assert isinstance(source, LiveSource)  # noqa: S101
    time = source.time if source.late == "drop" else None
    return RowJudge(spec.stream.queries, spec.stream.user, time=time, written=written_as(spec))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TopicReport:
    """What a range of a topic tells besides what it adds: secret."""

    refused: pl.DataFrame
    counted: int
    given: frozenset[str]
    epoch: int
    """Of the leader that had its last record; -1 where there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRange:
    """Some offsets of a partition."""

    partition: int
    start: Any
    end: Any
    """Places of the whole topic that differ in this partition alone."""

    tick: int
    begin: int | None = None
    """Records from before this microsecond are late, and left out."""

    def read(self, rules: TopicRules) -> ReadRange:
        """Its rows, each judged by itself."""
        feed, judge, epoch = rules.feed, rules.judge, -1
        found: list[JudgedRows] = []
        # Whoever reads it again begins here, whatever became of the last try.
        feed.seek(self.start)
        for records in feed.read(self.end):
            epoch = max(epoch, feed.position["partitions"][self.partition][1])
            found.append(judge.read(records))
        tables = [each.table if self.begin is None else each.table.filter(each.times >= self.begin) for each in found]
        if not found:
            return ReadRange([], TopicReport(pl.DataFrame(), 0, frozenset(), epoch))
        report = TopicReport(
            pl.concat([each.refused for each in found]),
            sum(each.table.height for each in found),
            frozenset[str]().union(*(each.given for each in found)),
            epoch,
        )
        return ReadRange([(self.tick, pl.concat(tables))], report)


class WorkedTopic:
    """What workers read of a topic, where there is much to be read."""

    def __init__(self, feed: KafkaFeed, spec: StreamSpec, workers: Workers) -> None:
        self._feed, self._rules, self._workers = feed, TopicRules(spec), workers
        workers.start(self._rules)

    def gathered(
        self, end: Any, tick: int, begin: int | None
    ) -> "list[tuple[int, list[GatheredPiece], TopicReport]] | None":
        """By range its partition, what it adds and its report, with the feed at `end`; None where little is left."""
        if self._feed.left(end) < LEAST_RECORDS:
            return None
        pieces = self._feed.pieces(end, RECORDS_A_RANGE)
        ranges = [
            TopicRange(partition=partition, start=start, end=stop, tick=tick, begin=begin)
            for partition, start, stop in pieces
        ]
        # All or nothing: the feed goes on behind the last, and what is asked for again is read again.
        answers = [*self._workers.gather(ranges, self._rules)]
        found = [(some.partition, answer.pieces, answer.report) for some, answer in zip(ranges, answers, strict=True)]
        self._check_epochs(found, end)
        self._feed.pass_to(end)
        return found

    def _check_epochs(self, found: list[tuple[int, list[GatheredPiece], TopicReport]], end: Any) -> None:
        last: dict[int, int] = {}
        for partition, _, report in found:
            if -1 < report.epoch < last.get(partition, -1) or report.epoch > end["partitions"][partition][1] > -1:
                raise SourceError(
                    f"the leaders of partition {partition} of topic {self._feed.topic!r} must have epochs that grow "
                    "with its offsets, got a lower one: the log was changed; start a new stream on it"
                )
            last[partition] = max(report.epoch, last.get(partition, -1))
