"""Executors of a Spark cluster as workers: ranges go out as bytes of an RDD, and what they add comes back in order."""

import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError, StateError
from pianissimo.noise import Secret
from pianissimo.shards import ShardPlan
from pianissimo.shards.shard_task import ShardTask
from pianissimo.spark.executors import ROWS, Job, OwnerJob, answer_tasks, gather_ranges, gather_rows, judge_rows
from pianissimo.spark.judged_tables import TableReport, TableRules
from pianissimo.stream.batches import check_present, columns_read
from pianissimo.stream.stream_plan import StreamPlan
from pianissimo.unit import User
from pianissimo.workers import GatheredPiece, GatheredRange, GatherPlan, Range
from pianissimo.workers.hands import check_pyspark
from pianissimo.workers.processes import error_of

RANGES_A_CORE = 8
"""So many ranges for each core of the cluster are one Spark job."""

SECURE = {
    "spark.authenticate": "true",
    "spark.io.encryption.enabled": "true",
    "spark.network.crypto.enabled": "true",
}
"""What Spark must be told: shuffle files, spills and messages hold labels and exact counts."""

_ENCRYPTED = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled", "spark.ssl.enabled")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SparkRows:
    """The rows of a Spark table that are a tick: they stay on executors."""

    frame: Any
    tick: int
    options: dict[str, Any]
    order: tuple[str, ...] = ()
    """Columns by which a user's rows are ordered, before what they hold."""

    def read(self, rules: Any) -> Any:  # noqa: ARG002
        """Not here."""
        raise StateError("rows of a Spark table must be read by Spark, got other workers; give SparkWorkers")


class SparkWorkers:
    """Executors of a Spark session that is there, or of one that is made for a master.

    `names` says where executors find the names key, which streams of users and distinct values need: `env:NAME`,
    `command:WORDS` or a path, as seen from an executor; `pianissimo names-key` writes it. `settings` are Spark's own; a
    value `env:NAME` is read from the environment. Rows of a user in a Spark table count in the order of the columns
    `order`, and where these are equal in the order of what they hold. `shards` says where executors find the shards key
    of a stream that has shards; `pianissimo shards-key` writes it.

    Spark must have authentication and encryption on; a session that is made here has. `insecure` lets one pass that has
    not, for tests on one machine.
    """

    def __init__(
        self,
        master: str | None = None,
        *,
        session: Any = None,
        names: str | None = None,
        shards: str | None = None,
        tasks: int | None = None,
        settings: Mapping[str, str] | None = None,
        order: tuple[str, ...] = (),
        insecure: bool = False,
    ) -> None:
        if tasks is not None:
            check_at_least(1, tasks=tasks)
        if session is not None and (master is not None or settings):
            raise ParameterError("a session that is there must come without master and settings, got both")
        self._master, self._settings = master, dict(settings or {})
        self._given = session
        self._made: Any = None
        self._names, self._tasks, self._order, self._insecure = names, tasks, order, insecure
        self._job: Job | None = None
        self._shards = shards
        self._owner_job: OwnerJob | None = None
        self._columns: list[str] = []
        self._user: str | None = None

    @property
    def session(self) -> Any:
        """The Spark session."""
        if self._given is not None:
            return self._given
        if self._made is None:
            self._made = _made(self._master, self._settings, insecure=self._insecure)
        return self._made

    def start(self, rules: Any = None) -> None:
        """Nothing: executors are there, or begin with the first job."""

    def begin(self, plan: GatherPlan, key: Secret | None) -> None:  # noqa: ARG002  # a key never goes into a closure
        """Gather for a stream."""
        if plan.names_check is not None and self._names is None:
            raise ParameterError(
                "names must say where executors find the names key, got nothing, and this stream names users or "
                "values; write it with `pianissimo names-key`, and give names='env:NAME', 'command:WORDS' or a path, "
                "in a stream file as names of [run.spark]"
            )
        self._check_secure()
        self._job = Job(pickle.dumps(plan), self._names)
        self._user = plan.user
        chosen = StreamPlan.from_plain(plan.chosen)
        user = chosen.unit if isinstance(chosen.unit, User) else None
        self._columns = list(columns_read([each.query for each in chosen.queries], user))

    def gather(self, ranges: Iterable[Range], rules: Any = None) -> Iterator[GatheredRange]:
        """What each range adds, in their order; a few for each core are a job of Spark."""
        if self._job is None:
            raise StateError("workers must belong to a stream to gather, got none; give them to Stream.open")
        job = Job(self._job.plan, self._job.names, b"" if rules is None else pickle.dumps(rules))
        context = self.session.sparkContext
        left = iter(ranges)
        while wave := list(islice(left, RANGES_A_CORE * max(1, context.defaultParallelism))):
            if isinstance(wave[0], SparkRows):
                for each in wave:
                    assert isinstance(each, SparkRows)  # noqa: S101
                    yield self._gathered_rows(job, each)
                continue
            packed = [pickle.dumps(each) for each in wave]
            tasks = min(len(packed), self._tasks or len(packed))
            # Which task has which range shows nowhere: ranges are not shuffled, and come back in their order.
            for kind, content in (
                context.parallelize(packed, tasks).mapPartitions(partial(gather_ranges, job)).collect()
            ):
                if kind == "error":
                    raise error_of(*content)
                yield content

    def judge(self, frame: Any, rules: TableRules) -> TableReport:
        """How many rows of a Spark table can be counted, and how many cannot; no stream is needed for that."""
        self._check_secure()
        total = TableReport()
        for _, report in _handed_back(frame, partial(judge_rows, pickle.dumps(rules))):
            total.add(report)
        return total

    def spread(self) -> int:
        """A task for each core, unless it is said how many."""
        return self._tasks or int(self.session.sparkContext.defaultParallelism)

    def own(self, plan: ShardPlan, key: Secret) -> None:  # noqa: ARG002  # a key never goes into a closure
        """Have the shards of a stream."""
        if self._shards is None:
            raise ParameterError(
                "shards must say where executors find the shards key, got nothing, and this stream has shards; write "
                "it with `pianissimo shards-key`, and give shards='env:NAME', 'command:WORDS' or a path, in a stream "
                "file as shards of [run.spark]"
            )
        self._check_secure()
        self._owner_job = OwnerJob(pickle.dumps(plan), self._shards)

    def ask(self, tasks: Sequence[ShardTask]) -> list[Any]:
        """What the shards of each task answer; tasks that are lost, or done twice, are functions of what is sealed."""
        if self._owner_job is None:
            raise StateError("workers must have a stream's shards to be asked, got none; give them to Stream.open")
        packed = [pickle.dumps(each) for each in tasks]
        if not packed:
            return []
        asked = self.session.sparkContext.parallelize(packed, len(packed))
        found = []
        for kind, content in asked.mapPartitions(partial(answer_tasks, self._owner_job)).collect():
            if kind == "error":
                raise error_of(*content)
            found.append(content)
        return found

    def ranges_of(self, batch: object, tick: int, options: dict[str, Any]) -> list[Range] | None:
        """A Spark table; any other is counted where it is."""
        is_spark = type(batch).__module__.startswith("pyspark.sql")
        return [SparkRows(batch, tick, options, self._order)] if is_spark else None

    def close(self) -> None:
        """End the session that was made here."""
        made, self._made, self._job, self._owner_job = self._made, None, None, None
        if made is not None:
            made.stop()

    def __repr__(self) -> str:
        return f"SparkWorkers(tasks={self._tasks})"

    def _gathered_rows(self, job: Job, rows: SparkRows) -> GatheredRange:
        from pyspark.sql.functions import lit

        frame = rows.frame
        there = set(frame.columns)
        if self._user is not None:
            check_present(self._columns, frame.columns)
            for name in rows.order:
                if name not in there:
                    raise ParameterError(f"order must name columns of the Spark table, got {name!r}")
        times = [name for name, kind in frame.dtypes if kind == "date" or kind.startswith("timestamp")]
        read = [name for name in [*self._columns, rows.options.get("time"), *times] if name in there]

        def of(names: Iterable[str]) -> list[Any]:
            return [column_named(name) for name in dict.fromkeys(names)] or [lit(1).alias("row")]

        # What nobody asks about stays where it is: it may be of a type that has no order, or that Python has not.
        frame = frame.select(of(read if self._user is None else [*rows.order, *read]))
        if self._user is not None:
            # Her rows come together, in an order that is a function of what they hold: nobody else has a say in it.
            first = [self._user, *rows.order]
            sorted_by = [*first, *(name for name in sorted(frame.columns) if name not in first)]
            count = self._tasks or frame.sparkSession.sparkContext.defaultParallelism
            frame = frame.repartition(count, column_named(self._user))
            frame = frame.sortWithinPartitions(*map(column_named, sorted_by)).select(of(read))
        elif self._tasks is not None:
            frame = frame.coalesce(self._tasks)
        pieces, total = [], TableReport()
        for content, report in _handed_back(frame, partial(gather_rows, job, rows.tick, rows.options)):
            pieces.append(GatheredPiece(rows.tick, content))
            total.add(report)
        return GatheredRange(pieces, total)

    def _check_secure(self) -> None:
        if not self._insecure:
            check_secure(self.session.sparkContext.getConf())


def _handed_back(frame: Any, task: Callable[..., Iterator[Any]]) -> Iterator[tuple[bytes, TableReport]]:
    """What each partition adds, and its report; a task is told the names of columns."""
    # Spark's Python finds no column whose name has a point in it.
    plain = frame.toDF(*(f"column {place}" for place in range(len(frame.columns))))
    for row in plain.mapInArrow(partial(task, frame.columns), ROWS).collect():
        if row.fault:
            raise error_of(*pickle.loads(bytes(row.fault)))  # noqa: S301  # of our own executors
        yield bytes(row.piece), pickle.loads(bytes(row.report))  # noqa: S301


def column_named(name: str) -> Any:
    """A column by its name, whatever signs that has: Spark takes a point for a part of a column."""
    from pyspark.sql.functions import col

    return col(f"`{name.replace('`', '``')}`")


def check_secure(conf: Any) -> None:
    """Refuse a Spark whose executors, files and messages others could read."""
    missing = [name for name in ("spark.authenticate", "spark.io.encryption.enabled") if conf.get(name) != "true"]
    if not any(conf.get(name) == "true" for name in _ENCRYPTED):
        missing.append("spark.network.crypto.enabled")
    if missing:
        raise ParameterError(
            f"Spark must have {', '.join(missing)} set to true, got a session without: what executors exchange holds "
            "labels and exact counts; set them where the session is made, or for a test give insecure=True"
        )


def _made(master: str | None, settings: Mapping[str, str], *, insecure: bool) -> Any:
    check_pyspark()
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.appName("pianissimo")
    if master is not None and master.startswith("local"):
        # On this machine it is this Python that has the package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is not None:
        builder = builder.master(master)
    for name, value in ({} if insecure else SECURE).items():
        builder = builder.config(name, value)
    for name, value in settings.items():
        builder = builder.config(name, _resolved(name, value))
    return builder.getOrCreate()


def _resolved(name: str, value: str) -> str:
    if not value.startswith("env:"):
        return value
    found = os.environ.get(value.removeprefix("env:"))
    if not found:
        raise ParameterError(f"{name} must be in the variable {value.removeprefix('env:')}, got nothing")
    return found
