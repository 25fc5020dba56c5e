"""What every kind of workers can do, and how one is named: `inline`, `processes`, a number, or an object."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

import polars as pl

from pianissimo.checks import number_or_text
from pianissimo.errors import ParameterError
from pianissimo.noise import Secret
from pianissimo.stream.batches import table_of
from pianissimo.workers.gather_plan import GatheredRange, GatherPlan, Range, ReadRange

_MASTERS = ("spark://", "local[", "yarn", "k8s://")

ROWS_A_SLICE = 2**18
"""A table that is given has to have more rows than this for others to count it, and is cut into slices of this size."""


@runtime_checkable
class Workers(Protocol):
    """Those who read ranges and gather what they add, somewhere."""

    def start(self, rules: Any = None) -> None:
        """Get ready to read by these rules, before there is a stream to gather for; whoever does so closes them."""

    def begin(self, plan: GatherPlan, key: Secret | None) -> None:
        """Gather for a stream; `key` is its names key, for those who may be handed it."""

    def gather(self, ranges: Iterable[Range], rules: Any = None) -> Iterator[GatheredRange]:
        """What each range adds, in the order of the ranges; some of them are worked on ahead."""

    def spread(self) -> int:
        """Into how many tasks shards are best cut."""

    def own(self, plan: Any, key: Secret) -> None:
        """Have the shards of a stream; `key` is the shards key, for those who may be handed it."""

    def ask(self, tasks: Sequence[Any]) -> list[Any]:
        """What the shards of each task answer, in the order of the tasks; any of them may be worked on again."""

    def ranges_of(self, batch: object, tick: int, options: dict[str, Any]) -> list[Range] | None:
        """A batch that was given, as ranges; None where it is better counted where the stream is."""

    def close(self) -> None:
        """Let go of whoever worked."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class TableSlice:
    """Some rows of a table that was given: they travel themselves."""

    tick: int
    table: pl.DataFrame
    options: dict[str, Any]

    def read(self, rules: Any) -> ReadRange:  # noqa: ARG002
        """These rows."""
        return ReadRange([(self.tick, self.table)], options=self.options)


def slices_of(table: object, tick: int, options: dict[str, Any]) -> list[Range] | None:
    """A large table as slices; None for a small one, and for what is no table."""
    if isinstance(table, str | bytes | Mapping | Sequence):
        return None
    table = table_of(table)
    if not isinstance(table, pl.DataFrame) or table.height <= ROWS_A_SLICE:
        return None
    starts = range(0, table.height, ROWS_A_SLICE)
    return [TableSlice(tick, table.slice(start, ROWS_A_SLICE), options) for start in starts]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spark_room() -> Any:
    """`pianissimo.spark`, which lies above: only when it is asked for by name."""
    check_pyspark()
    return import_module("pianissimo.spark")


def check_pyspark() -> None:
    """Refuse to go on without what workers on Spark need."""
    try:
        import_module("pyspark")
    except ImportError:
        raise ParameterError("workers on Spark must have pyspark, got none: pip install pianissimo[spark]") from None


def is_spark(given: object) -> bool:
    """Whether workers are named that are executors of Spark: by `spark`, or by a master."""
    return isinstance(given, str) and (given == "spark" or given.startswith(_MASTERS))


def workers_of(given: object, **spark: Any) -> Workers | None:
    """The workers that are meant; None for `inline`. Those on Spark have further settings.

    >>> workers_of("inline") is None
    True
    >>> workers_of(2)
    ProcessWorkers(count=2)
    """
    from pianissimo.workers.processes import ProcessWorkers

    if given is None or given == "inline":
        return None
    if given == "processes":
        return ProcessWorkers()
    if isinstance(given, str):
        given = number_or_text(given)
    if isinstance(given, int) and not isinstance(given, bool):
        return ProcessWorkers(given)
    if is_spark(given):
        master = {} if given == "spark" else {"master": given}
        made: Workers = spark_room().SparkWorkers(**spark | master)
        return made
    if isinstance(given, Workers):
        return given
    raise ParameterError(
        "workers must be 'inline', 'processes', a number of processes, 'spark', a Spark master or SparkWorkers(...), "
        f"got {given!r}"
    )
