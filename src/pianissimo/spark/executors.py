"""What runs on executors: a range, or the rows of a partition, becomes what it adds.

Nothing here is given a secret in the open. The names key and the shards key are looked up where they are used, by a
reference: a variable, a command or a file of the executor. Keys of shards come with tasks, closed by the shards key. A
gatherer is kept from task to task, since it depends on its plan alone, and so is who has shards, since what it
remembers is a cache.
"""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from pianissimo.durable.key_ring import read_secret
from pianissimo.errors import PianissimoError
from pianissimo.shards import ShardPlan
from pianissimo.shards.shard_owner import ShardOwner
from pianissimo.spark.judged_tables import TableReport
from pianissimo.workers import Gatherer, GatherPlan


@dataclass(frozen=True, slots=True)
class Job:
    """What all tasks of a stream share; public, and the same bytes for the same stream."""

    plan: bytes
    """A pickled `GatherPlan`."""

    names: str | None
    """Where the names key is: a path, `env:NAME` or `command:WORDS`, as seen from an executor."""

    rules: bytes = b""
    """The pickled rules of a source."""


def gather_ranges(job: Job, packed: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    """What each range of a task adds; what is wrong with one is told in the words of one process."""
    gatherer = _gatherer(job.plan, job.names)
    rules = _rules(job.rules)
    for each in packed:
        try:
            yield "gathered", gatherer.of(pickle.loads(each), rules)  # noqa: S301  # of our own driver
        except PianissimoError as error:
            yield "error", (type(error).__name__, str(error))


@dataclass(frozen=True, slots=True)
class OwnerJob:
    """What all tasks of a stream's shards share; public."""

    plan: bytes
    """A pickled `ShardPlan`."""

    key: str
    """Where the shards key is, as seen from an executor."""


def answer_tasks(job: OwnerJob, packed: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    """What the shards of each task answer. Which executor has which shard is nobody's business: it is a cache."""
    for each in packed:
        try:
            yield "answered", _owner(job.plan, job.key).of(pickle.loads(each))  # noqa: S301  # of our own driver
        except PianissimoError as error:
            yield "error", (type(error).__name__, str(error))


def gather_rows(
    job: Job, tick: int, options: dict[str, Any], names: list[str], batches: Iterable[Any]
) -> Iterator[Any]:
    """What the rows of a partition add, as one row of bytes, by the rules of a source where there are such.

    Without rows, nothing. `names` are those of columns.
    """
    content, fault, report, rules = b"", b"", TableReport(), _rules(job.rules)
    try:
        frames = _frames(names, batches)
        if rules is not None:
            frames = rules.counted(frames, report)
        first = next(frames, None)
        if first is None:
            return
        content = _gatherer(job.plan, job.names).gathered(tick, chain([first], frames), **options).content
    except PianissimoError as error:
        fault = pickle.dumps((type(error).__name__, str(error)))
    yield _row(content, report, fault)


def judge_rows(rules: bytes, names: list[str], batches: Iterable[Any]) -> Iterator[Any]:
    """How many rows of a partition can be counted, and how many cannot, by reason; nothing is gathered."""
    fault, report = b"", TableReport()
    try:
        for _ in _rules(rules).counted(_frames(names, batches), report):
            pass
    except PianissimoError as error:
        fault = pickle.dumps((type(error).__name__, str(error)))
    yield _row(b"", report, fault)


ROWS = "piece binary, report binary, fault binary"
"""What executors hand back of the rows of a partition."""


def _row(piece: bytes, report: TableReport, fault: bytes) -> Any:
    import pyarrow as pa

    kinds = pa.schema([(name, pa.binary()) for name in ("piece", "report", "fault")])
    content = {"piece": [piece], "report": [pickle.dumps(report)], "fault": [fault]}
    return pa.RecordBatch.from_pydict(content, schema=kinds)


def _frames(names: list[str], batches: Iterable[Any]) -> Iterator[Any]:
    import polars as pl

    return (pl.from_arrow(batch.rename_columns(names)) for batch in batches if batch.num_rows)


@lru_cache(maxsize=4)
def _gatherer(plan: bytes, names: str | None) -> Gatherer:
    told: GatherPlan = pickle.loads(plan)  # noqa: S301
    key = None if told.names_check is None or names is None else read_secret(names, beside=Path(), create=False)
    return told.gatherer(key)


@lru_cache(maxsize=4)
def _owner(plan: bytes, key: str) -> ShardOwner:
    told: ShardPlan = pickle.loads(plan)  # noqa: S301
    return told.worker(read_secret(key, beside=Path(), create=False))


@lru_cache(maxsize=4)
def _rules(packed: bytes) -> Any:
    return pickle.loads(packed) if packed else None  # noqa: S301
