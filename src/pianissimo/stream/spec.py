"""A stream written down as a TOML file: read, checked field by field, and turned into a `Stream`.

Everything that decides which ticks are released, and which tick an event belongs to, is in the file and not
in the data: the length of a tick, the origin where tick 1 begins, the horizon and the last tick. The fields of a
query's table are those of the query.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args

from pianissimo.budget import Budget
from pianissimo.checks import check_at_least, check_name, check_probability, duration_of, tick_length_of
from pianissimo.errors import ParameterError
from pianissimo.queries import KINDS, Query, Role
from pianissimo.queries.shared.expected import OPEN_HORIZON
from pianissimo.stream.calendar import zone_of
from pianissimo.stream.source_spec import (
    NO_END,
    FileFormat,
    FileSource,
    KafkaTopic,
    Late,
    LiveSource,
    SparkSource,
    clock_misfits,
    source_misfits,
    times_cut,
)
from pianissimo.stream.stream import Stream
from pianissimo.stream.toml_table import (
    EPSILON_AND_DELTA,
    TomlTable,
    budget_of,
    check_sizes,
    domain_from,
    every_of,
    field_readers,
    flag,
    history_of,
    horizon_of,
    is_name,
    kept,
    moment_of,
    one_of,
    path_from,
    read_toml,
    settings_of,
    share_of,
    shown,
    spec_error,
    text,
    time_format_of,
    unit_of,
    until_of,
    whole_ticks,
)

FilesOf = Literal["day", "month"]
"""How long a time becomes one file of a folder of releases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """Where releases go as they are published."""

    name: str
    kind: Literal["folder", "kafka", "webhook"]
    path: Path | None = None
    """Of a folder."""

    format: FileFormat = "parquet"
    files: FilesOf = "day"
    """Of a folder: how long a time becomes one file once it is over."""

    kafka: KafkaTopic | None = None
    url: str | None = field(default=None, repr=False)
    """Of a webhook; `env:NAME` reads it from the environment."""

    key: str | Path | None = field(default=None, repr=False)
    """What signs the body of a webhook: a file, or `env:NAME`."""

    timeout: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSpec:
    """Which ledger pays for the stream, where others ask about the same data set too."""

    place: str | None = field(default=None, repr=False)
    """A file, the folder of another stream, or a `postgresql://` URL; None for the ledger in the stream's own store."""

    key: str | None = field(default=None, repr=False)
    """The file with the ledger's key."""

    budget: Budget | None = None
    """What all may lose together; it is given when the ledger is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """Who reads and counts, of a durable run, and how much of it is kept."""

    workers: str | int = "inline"
    """"inline", "processes" or how many of them, "spark" or a Spark master."""

    spark: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of workers on Spark: `master`, `names`, `tasks`, `settings` and `insecure`."""

    retention: int | str | None = None
    """How many of the last ticks are kept whole, or how long; None for all. It may be changed at any time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """What a stream file says: the stream, which has an origin where there is a source, and where its events come from.

    `load_spec` makes one.
    """

    stream: Stream
    """What is released, under which promise."""

    source: FileSource | LiveSource | SparkSource | None
    """Where events come from; None if the file names no source."""

    sinks: tuple[SinkSpec, ...] = ()
    """Where the releases of a durable run go, beside its store."""

    ledger: LedgerSpec = LedgerSpec()
    """Which ledger pays for a durable run."""

    run: RunSpec = RunSpec()
    """Who reads and counts."""

    publish_after: timedelta | None = None
    """How long after its end a tick is shown to readers and sinks; None for as soon as it is ready."""

    def __post_init__(self) -> None:
        if self.source is None:
            return
        user = self.stream.user
        goes_on = user is not None and user.begins_anew and isinstance(self.source, LiveSource)
        if self.stream.horizon is None and self.source.until is None and not goes_on:
            raise ParameterError(NO_END)
        for query in self.stream.queries:
            if self.source.time in [column.name for column in query.reads if column.role is Role.NUMBERS]:
                raise ParameterError(
                    f"queries.{query.name} must read {self.source.time!r} as numbers alone, got the column of times; "
                    "give the file a second column"
                )

    @property
    def before(self) -> "StreamSpec | None":
        """What is read before a live source, as a stream file of its own; None if there is nothing."""
        before = self.source.before if isinstance(self.source, LiveSource) else None
        return None if before is None else replace(self, source=before)

    @property
    def last_tick(self) -> int:
        """The last tick that is released: the source's `until`, or else the horizon, 2^32 where it is open."""
        until = self.source.until if self.source else None
        if until is not None:
            return until
        return OPEN_HORIZON if self.stream.horizon is None else self.stream.horizon


def load_spec(path: Path | str) -> StreamSpec:
    """Read a stream file, or say everything that is wrong with it, one fault a line."""
    path = Path(path)
    reading = _Reading(path.parent, read_toml(path))
    spec = reading.spec()
    if spec is None:
        raise spec_error(path, reading.faults)
    return spec


def load(path: Path | str) -> Stream:
    """The stream of a stream file: opened over a state that `pianissimo run` made, it goes on there.

    >>> import tempfile
    >>> text = '''stream = { name = "s", epsilon = 1, delta = 1e-9, tick = "1h", horizon = "1d" }
    ... queries.n.kind = "count"'''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "s.toml").write_text(text)
    ...     load(Path(folder, "s.toml")).horizon
    24
    """
    return load_spec(path).stream


_HORIZON = "how long the promise holds, such as '365d' or a number of ticks; 'none' for no end"


def _may_lack_horizon(unit: object) -> bool:
    """Whether statistics begin anew with each period, as far as the file says: no end costs nothing then."""
    return isinstance(unit, dict) and "within" in unit and unit.get("reset", True) is True


class _Reading:
    """Reads the tables of one file, one after the other, and gathers what is wrong with them."""

    def __init__(self, folder: Path, content: dict[str, Any]) -> None:
        self.faults: list[str] = []
        self._folder = folder
        self._file = TomlTable(self.faults, (), content)

    def spec(self) -> StreamSpec | None:
        """What the file says; None where there are faults."""
        check_sizes(self._file)
        if self.faults:
            return None
        stream = self._stream()
        source = self._source()
        released = OPEN_HORIZON
        if not self.faults:
            self.faults += clock_misfits(stream, source)
        if not self.faults:
            # A last tick that is at fault is named already, and judges no query.
            released = source.get("until") or stream["horizon"] or OPEN_HORIZON
        sinks = self._sinks()
        ledger = self._ledger()
        run = self._run()
        after = self._publish_after(source)
        queries = self._queries(stream.get("tick"), released)
        tables = ("stream", "source", "sinks", "ledger", "run", "publish", "queries")
        self._file.read(dict.fromkeys(tables, lambda value: value))
        if self.faults:
            return None
        budget = Budget(epsilon=stream.pop("epsilon"), delta=stream.pop("delta"))
        try:
            asked = Stream(stream.pop("name"), budget=budget, queries=queries, **stream)
        except ParameterError as refusal:
            self.faults.append(f"stream: {refusal}")
            return None
        made: FileSource | LiveSource | SparkSource | None = None
        if "live_from" in source:
            names = ("path", "time", "time_format", "delimiter", "max_refused")
            before = {name: source[name] for name in names if name in source} | {"until": source.pop("live_from")}
            source["before"] = FileSource(**before)
            del source["path"]
        if source:
            kind = FileSource if "path" in source else SparkSource if "spark" in source else LiveSource
            made = kind(**source)
        try:
            return StreamSpec(stream=asked, source=made, sinks=sinks, ledger=ledger, run=run, publish_after=after)
        except ParameterError as refusal:
            self.faults.append(str(refusal))
            return None

    def _stream(self) -> dict[str, Any]:
        table = self._file.inner("stream", "the table [stream]")
        if table is None:
            return {}
        found = table.read(
            {
                "name": kept(lambda value: check_name(name=value)),
                "unit": unit_of,
                **EPSILON_AND_DELTA,
                "tick": tick_length_of,
                "horizon": horizon_of,
                "origin": kept(moment_of),
                "time_zone": kept(zone_of),
                "coverage": kept(lambda value: check_probability(coverage=value)),
                "history": history_of,
                "shards": kept(lambda value: check_at_least(1, shards=value)),
            },
            {
                "name": "what the stream is called",
                "epsilon": "the privacy budget of the whole run, such as 1.0",
                "delta": "the small probability that may escape epsilon, such as 1e-9; 0 for none",
                "tick": "how long a tick lasts, such as '1m'",
                **({} if _may_lack_horizon(table.content.get("unit")) else {"horizon": _HORIZON}),
            },
        )
        if _may_lack_horizon(table.content.get("unit")):
            found.setdefault("horizon", None)
        for name in ("horizon", "history"):
            if isinstance(found.get(name), str) and "tick" in found:
                try:
                    found[name] = whole_ticks(found[name], found["tick"])
                except ParameterError as refusal:
                    table.refuse(refusal, name)
        return found

    def _source(self) -> dict[str, Any]:
        table = self._file.inner("source")
        if table is None:
            return {}
        before = len(self.faults)
        found = table.read(
            {
                "path": self._place,
                "follow": self._place,
                "stdin": flag,
                "http": flag,
                "kafka": lambda _: self._kafka(table.inner("kafka", is_hidden=True)),
                "spark": text,
                "time": text,
                "late": one_of(*get_args(Late)),
                "format": one_of(*get_args(FileFormat)),
                "until": until_of,
                "live_from": until_of,
                "until_end": flag,
                "time_format": time_format_of,
                "line_breaks": flag,
                "delimiter": one_of(",", ";", "\t", "|"),
                "max_refused": share_of,
            }
        )
        if len(self.faults) == before:
            self.faults += source_misfits(found)
        return found

    def _place(self, value: object) -> Path:
        if value == "-":
            raise ParameterError("must be a file or a folder, got '-'; for standard input write stdin = true")
        return path_from(self._folder, text(value))

    def _kafka(self, table: TomlTable | None) -> KafkaTopic | None:
        found = {} if table is None else table.read(_KAFKA_READERS, _KAFKA)
        return KafkaTopic(**found) if found.keys() >= _KAFKA.keys() else None

    def _sinks(self) -> tuple[SinkSpec, ...]:
        table = self._file.inner("sinks", is_hidden=True)
        return () if table is None else tuple(filter(None, (self._sink(table, name) for name in table.content)))

    def _sink(self, sinks: TomlTable, name: str) -> SinkSpec | None:
        table = sinks.inner(name) if is_name(sinks, name) else None
        kind = None if table is None else table.choice("kind", ("folder", "kafka", "webhook"))
        if table is None or kind is None:
            return None
        readers: dict[str, Any]
        required: Mapping[str, str]
        if kind == "folder":
            readers = {
                "path": self._place,
                "format": one_of(*get_args(FileFormat)),
                "files": one_of(*get_args(FilesOf)),
            }
            required = {"path": "a folder, found from where the stream file is"}
        elif kind == "kafka":
            readers, required = _KAFKA_READERS, _KAFKA
        else:
            readers = {"url": text, "key": self._key, "timeout": duration_of}
            required = {"url": "an https address, or env:NAME for a variable that holds it"}
        found = table.read({"kind": text, **readers}, required)
        if not found.keys() >= required.keys():
            return None
        if kind == "kafka":
            found = {"kind": found.pop("kind"), "kafka": KafkaTopic(**found)}
        return SinkSpec(name=name, **found)

    def _key(self, value: object) -> str | Path:
        # Somebody may have written the key itself: it is not shown.
        words = text(value)
        return words if words.startswith("env:") else path_from(self._folder, words)

    def _ledger(self) -> LedgerSpec:
        table = self._file.inner("ledger", is_hidden=True)
        if table is None:
            return LedgerSpec()
        readers = {"place": self._ledger_place, "key": self._ledger_place}
        return LedgerSpec(**table.read({**readers, "budget": lambda _: budget_of(table.inner("budget"))}))

    def _publish_after(self, source: dict[str, Any]) -> timedelta | None:
        table = self._file.inner("publish")
        about = "how long after its end a tick is shown, such as '5s'"
        found = {} if table is None else table.read({"after": duration_of}, {"after": about})
        after: timedelta | None = found.get("after")
        if after is not None and times_cut(source):
            self.faults.append(
                "publish.after must be left out where no clock cuts the ticks, got one; it is for source.follow, "
                "source.stdin, source.kafka and source.http"
            )
        return after

    def _ledger_place(self, value: object) -> str:
        # A URL may hold a password: it is not shown.
        words = text(value)
        return words if "://" in words else str(path_from(self._folder, words))

    def _run(self) -> RunSpec:
        table = self._file.inner("run")
        if table is None:
            return RunSpec()
        spark = table.inner("spark", is_hidden=True)
        found = table.read(
            {
                "workers": _workers,
                "retention": history_of,
                "spark": lambda _: {} if spark is None else spark.read(_SPARK),
            }
        )
        return RunSpec(**found)

    def _queries(self, tick: timedelta | str | None, released: int) -> list[Query]:
        about = "at least one table such as [queries.purchases]"
        content = self._file.content.get("queries")
        if content is not None and (not isinstance(content, dict) or not content):
            self._file.fault(f"must hold {about}, got {shown(content)}", "queries")
            return []
        tables = self._file.inner("queries", about)
        if tables is None:
            return []
        found = [self._query(tables, name, tick, released) for name in tables.content]
        return [query for query in found if query is not None]

    def _query(self, tables: TomlTable, name: str, tick: timedelta | str | None, released: int) -> Query | None:
        table = tables.inner(name) if is_name(tables, name) else None
        kinds: dict[str, Any] = {kind.kind: kind for kind in KINDS}
        chosen = None if table is None else table.choice("kind", kinds)
        if table is None or chosen is None:
            return None
        kind, before = kinds[chosen], len(self.faults)
        readers, required = field_readers(kind)
        readers["every"] = lambda value: every_of(value, tick, released)
        readers["per"] = lambda value: 1 if value == "tick" else every_of(value, tick, OPEN_HORIZON, "per")
        readers["history"] = lambda value: history_of(value, tick)
        if "domain" in readers:
            readers["domain"] = lambda value: domain_from(self._folder, value)
        found = table.read({"kind": text, **readers}, required, kind.elsewhere)
        if len(self.faults) > before:
            return None
        del found["kind"]
        try:
            query: Query = kind(name, **found)
        except ParameterError as refusal:
            table.refuse(refusal)
            return None
        return query


def _workers(value: object) -> str | int:
    """Who works; a number is one of processes."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, str) and "://" in value:
        return value
    if value in ("inline", "processes", "spark"):
        return str(value)
    raise ParameterError(
        "must be 'inline', 'processes', a number of processes, 'spark' or a Spark master such as 'spark://HOST:7077' "
        f"(others are given as run.spark.master), got {shown(value)}"
    )


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ParameterError(f"must be a whole number of at least 1, got {shown(value)}")
    return value


_SPARK = {"master": text, "names": text, "shards": text, "tasks": _count, "settings": settings_of, "insecure": flag}


_KAFKA_READERS = {"brokers": text, "topic": text, "settings": settings_of}
_KAFKA = {"brokers": "where the brokers are, such as 'host:9092'", "topic": "the topic's name"}
