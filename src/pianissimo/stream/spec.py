"""A stream written down as a TOML file: read, checked field by field, and turned into a `Stream`.

Everything that decides which ticks are released, and which tick an event belongs to, is in the file and not
in the data: the length of a tick, the origin where tick 1 begins, the horizon and the last tick.
"""

import dataclasses
import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import ErrorDetails

from pianissimo.budget import Budget
from pianissimo.checks import check_at_least, check_name, check_positive, check_probability, duration_of
from pianissimo.errors import ParameterError, SpecError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Unit
from pianissimo.queries import (
    Alarm,
    Count,
    Distinct,
    HeavyHitters,
    Histogram,
    MaxFrequency,
    Quantiles,
    Query,
    Role,
    Sum,
    Tidy,
    TopK,
    Trending,
)
from pianissimo.queries.common import check_outside
from pianissimo.stream.expected import OPEN_HORIZON
from pianissimo.stream.stream import Stream
from pianissimo.unit import User

FileFormat = Literal["csv", "jsonl", "parquet"]
"""How rows are stored in a file."""

_LONGEST_SHOWN = 60
_NO_END = (
    "source.until must be given where stream.horizon is 'none', got nothing; it is the last tick that is released, "
    "it is public and must never be derived from the data, for example until = 2026-02-01T00:00:00Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """Where the events of a stream are read from, and the column that says when each happened.

    >>> FileSource(path=Path("purchases.csv"), time="time").until is None
    True
    """

    path: Path
    """A file, or a folder of files that are read in the order of their names."""

    time: str
    """The column of times; it decides the tick of a row."""

    format: FileFormat | None = None
    """How the rows are stored; without it, the ending of a file's name says so."""

    until: int | None = None
    """The last tick that is released, if it is not the horizon; a stream without a horizon needs it."""


Late = Literal["count", "drop"]
"""What becomes of an event whose own time lies before the tick in which it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopic:
    """A topic, and how its brokers are reached. A setting `env:NAME` is read from the environment when it is used.

    >>> KafkaTopic(brokers="localhost:9092", topic="purchases")
    KafkaTopic(brokers='localhost:9092', topic='purchases')
    """

    brokers: str
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSource:
    """Where the events of a stream come from as they happen; the clock cuts the ticks.

    One of `follow`, `stdin` and `kafka` is given.

    >>> LiveSource(follow=Path("events.jsonl")).late
    'count'
    """

    follow: Path | None = None
    """A file, a folder, or a pattern of files that grow."""

    stdin: bool = False
    """Lines of standard input."""

    kafka: KafkaTopic | None = None
    format: FileFormat | None = None
    """Of files that are followed: csv or jsonl; without it, their names say so."""

    time: str | None = None
    """The column that says when an event happened; read only where late events are dropped."""

    late: Late = "count"
    until: int | None = None
    """The last tick that is released, if it is not the horizon."""

    until_end: bool = False
    """Of standard input: whether the run ends with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSpec:
    """Where releases go as they are published.

    >>> SinkSpec(name="office", kind="folder", path=Path("out")).format
    'parquet'
    """

    name: str
    kind: Literal["folder", "kafka", "webhook"]
    path: Path | None = None
    """Of a folder."""

    format: FileFormat = "parquet"
    kafka: KafkaTopic | None = None
    url: str | None = field(default=None, repr=False)
    """Of a webhook; `env:NAME` reads it from the environment."""

    key: str | Path | None = field(default=None, repr=False)
    """What signs the body of a webhook: a file, or `env:NAME`."""

    timeout: timedelta = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSpec:
    """Which ledger pays for the stream, where others ask about the same data set too.

    >>> LedgerSpec(cap=Budget(4, 1e-6)).place is None
    True
    """

    place: str | None = field(default=None, repr=False)
    """A file, the folder of another stream, or a `postgresql://` URL; None for the ledger in the stream's own store."""

    key: str | None = field(default=None, repr=False)
    """The file with the ledger's key."""

    cap: Budget | None = None
    """What all may lose together; it is given when the ledger is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSpec:
    """What a stream file says: the stream, its public clock, and where its events come from.

    `load_spec` makes one.

    >>> stream = Stream("shop", budget=Budget(1, 1e-9), horizon=None, queries=[Count("purchases")])
    >>> source = FileSource(path=Path("purchases.csv"), time="time", until=96)
    >>> StreamSpec(stream=stream, tick=timedelta(minutes=15), origin=datetime(2026, 1, 5), source=source).last_tick
    96
    """

    stream: Stream
    """What is released, under which promise."""

    tick: timedelta
    """How long a tick lasts."""

    origin: datetime | None
    """When tick 1 begins, in UTC; public. A file with a source always has one."""

    source: FileSource | LiveSource | None
    """Where events come from; None if the file names no source."""

    sinks: tuple[SinkSpec, ...] = ()
    """Where the releases of a durable run go, beside its store."""

    ledger: LedgerSpec = LedgerSpec()
    """Which ledger pays for a durable run."""

    def __post_init__(self) -> None:
        if self.source is None:
            return
        if self.stream.horizon is None and self.source.until is None:
            raise ParameterError(_NO_END)
        reads = [(query, column) for query in self.stream.queries for column in query.reads]
        others = {column.name for _, column in reads if column.role is not Role.NUMBERS}
        for query, column in reads:
            # A column of a file is read in one way.
            if column.role is Role.NUMBERS and column.name in {*others, self.source.time}:
                raise ParameterError(
                    f"queries.{query.name}.value must be a column that is read as numbers alone, got {column.name!r}, "
                    "which is read as labels or times too; give the file a second column"
                )

    @property
    def last_tick(self) -> int:
        """The last tick that is released: the source's `until`, or else the horizon, 2^32 where it is open."""
        until = self.source.until if self.source else None
        if until is not None:
            return until
        return OPEN_HORIZON if self.stream.horizon is None else self.stream.horizon


def load_spec(path: Path | str) -> StreamSpec:
    """Read a stream file, or say everything that is wrong with it, one fault a line.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = Path(folder.name, "pharmacy.toml")
    >>> text = '''
    ... [stream]
    ... name = "pharmacy"
    ... epsilon = 1.0
    ... delta = 1e-9
    ... tick = "1m"
    ... horizon = "24h"
    ... [queries.drugs]
    ... kind = "histogram"
    ... key = "drug"
    ... '''
    >>> _ = file.write_text(text)
    >>> load_spec(file).stream.horizon
    1440
    >>> _ = file.write_text(text.replace("1.0", "-1"))
    >>> load_spec(file)
    Traceback (most recent call last):
    pianissimo.errors.SpecError: ...pharmacy.toml: stream.epsilon must be finite and positive, got -1
    >>> folder.cleanup()
    """
    path = Path(path)
    content = _read_toml(path)
    try:
        tables = _File.model_validate(content, context=path.parent)
    except ValidationError as refusal:
        faults = [_message(fault) for fault in refusal.errors(include_url=False)]
        raise _spec_error(path, sorted([*faults, *_misfits_of_source(content, path.parent)], key=_order)) from None
    try:
        return _spec(tables)
    except _Faults as refusal:
        raise _spec_error(path, refusal.args) from None


def as_utc(value: object) -> datetime:
    """A date, a date-time or an ISO 8601 text as a date-time in UTC; without an offset it is taken for UTC.

    >>> as_utc("2026-01-31T12:00:00+01:00")
    datetime.datetime(2026, 1, 31, 11, 0, tzinfo=datetime.timezone.utc)
    """
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if not isinstance(moment, datetime):
        raise TypeError("neither a date nor a text")
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ParameterError(f"must be a text, got {_shown(value)}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ParameterError(f"must be true or false, got {_shown(value)}")
    return value


def _checked(check: Callable[[Any], object]) -> PlainValidator:
    """Keep what passes a check of parameters."""

    def keep(value: Any) -> Any:
        check(value)
        return value

    return PlainValidator(keep)


def _unit(value: object) -> Unit | User:
    if value == Unit.EVENT.value:
        return Unit.EVENT
    if not isinstance(value, dict):
        raise ParameterError(f"must be 'event' or {{ user = 'column' }}, got {_shown(value)}")
    fields = dict(value)
    column = fields.pop("user", None)
    known = {each.name for each in dataclasses.fields(User)} - {"column"}
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ParameterError(f"must have the fields {_listed(['user', *sorted(known)])}, got {unknown[0]!r}")
    return User(column, **fields)


def _horizon(value: object, info: ValidationInfo) -> int | None:
    if value == "none":
        return None
    if isinstance(value, int):
        check_at_least(1, horizon=value)
        return value
    if not isinstance(value, str):
        raise ParameterError(
            f"must be a duration such as '365d', a whole number of ticks or 'none', got {_shown(value)}"
        )
    length = duration_of(value)
    tick: timedelta | None = info.data.get("tick")
    # Without a tick, the tick itself is at fault and named.
    return 1 if tick is None else _whole_ticks(value, length, tick)


def _whole_ticks(value: object, length: timedelta, tick: timedelta) -> int:
    if length % tick:
        raise ParameterError(f"must be a whole number of ticks, got {_shown(value)} with ticks of {tick}")
    return length // tick


def _every(value: object) -> int | str:
    """A number of ticks, or a duration as it was written: what it is in ticks depends on another table."""
    if isinstance(value, int):
        check_at_least(1, every=value)
        return value
    if not isinstance(value, str):
        raise ParameterError(f"must be a whole number of ticks or a duration such as '1h', got {_shown(value)}")
    duration_of(value)
    return value


def _tidy(value: object) -> tuple[Tidy, ...]:
    names = [each.value for each in Tidy]
    if not isinstance(value, list) or any(each not in names for each in value):
        raise ParameterError(f"must be a list of {_listed(names)}, got {_shown(value)}")
    return tuple(Tidy(each) for each in value)


def _range(value: object) -> tuple[float, float]:
    if not (isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))):
        raise ParameterError(f"must be two finite numbers such as [0, 500], got {_shown(value)}")
    return value[0], value[1]


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
    )


def _threshold(value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if isinstance(value, bool) or not isinstance(value, int) or not value >= 1:
        raise ParameterError(f"must be a whole number of at least 1 or 'auto', got {_shown(value)}")
    return value


def _numbers(value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or not all(_is_number(each) for each in value):
        raise ParameterError(f"must be a list of numbers, got {_shown(value)}")
    return tuple(value)


def _keys_or_any(value: object) -> int | None:
    if value == "any":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not value >= 1:
        raise ParameterError(f"must be a whole number of at least 1 or 'any', got {_shown(value)}")
    return value


def _at_least_one(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not value >= 1:
        raise ParameterError(f"must be a whole number of at least 1, got {_shown(value)}")
    return value


def _moment(value: object) -> datetime:
    try:
        return as_utc(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"must be a date-time such as 2026-01-31T12:00:00Z, got {_shown(value)}") from None


def _until(value: object) -> int | datetime:
    if isinstance(value, int):
        check_at_least(1, until=value)
        return value
    try:
        return as_utc(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(
            f"must be a number of ticks or a date-time such as 2026-01-31T12:00:00Z, got {_shown(value)}"
        ) from None


def _source_path(value: object, info: ValidationInfo) -> Path:
    if value == "-":
        raise ParameterError("must be a file or a folder, got '-'; for standard input write stdin = true")
    return cast(Path, info.context) / _path(_text(value))


def _path(text: str) -> str:
    # It is not shown: it may hold what belongs elsewhere.
    if "\0" in text:
        raise ParameterError("must be a path, got a text with a NUL in it")
    return text


def _late(value: object) -> Late:
    if value not in get_args(Late):
        raise ParameterError(f"must be 'count' or 'drop', got {_shown(value)}")
    return cast(Late, value)


def _settings(value: object) -> dict[str, str]:
    # Never shown: it may hold a password.
    if not isinstance(value, dict) or not all(isinstance(each, str | int | bool) for each in value.values()):
        raise ParameterError('must be a table of texts such as { "sasl.username" = "me" }, got something else')
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in value.items()}


def _hidden_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ParameterError("must be a text, got something else")
    return value


def _key(value: object, info: ValidationInfo) -> str | Path:
    # Somebody may have written the key itself: it is not shown.
    text = _hidden_text(value)
    return text if text.startswith("env:") else cast(Path, info.context) / _path(text)


def _ledger_place(value: object, info: ValidationInfo) -> str:
    # A URL may hold a password: it is not shown.
    text = _hidden_text(value)
    return text if "://" in text else str(cast(Path, info.context) / _path(text))


def _format(value: object) -> FileFormat:
    if value not in get_args(FileFormat):
        raise ParameterError(f"must be 'csv', 'jsonl' or 'parquet', got {_shown(value)}")
    return cast(FileFormat, value)


def _domain(value: object, info: ValidationInfo) -> Domain:
    if isinstance(value, list):
        wrong = [label for label in value if not isinstance(label, str)]
        if wrong:
            raise ParameterError(f"must be a list of texts, got {_shown(wrong[0])} in it")
        return Domain(value)
    if not isinstance(value, str) or not value:
        raise ParameterError(f"must be a list of labels or a file with one label a line, got {_shown(value)}")
    try:
        text = (cast(Path, info.context) / value).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
        raise ParameterError(
            f"must be a list of labels or a file with one label a line, got {value!r}: {reason}"
        ) from None
    return Domain([line for line in text.split("\n") if line])


class _Table(BaseModel):
    """A TOML table that forbids unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class _StreamTable(_Table):
    """`[stream]`."""

    name: Annotated[str, _checked(lambda value: check_name(name=value)), Field(description="what the stream is called")]
    unit: Annotated[Unit | User, PlainValidator(_unit)] = Unit.EVENT
    epsilon: Annotated[
        float,
        _checked(lambda value: check_positive(epsilon=value)),
        Field(description="the privacy budget of the whole run, such as 1.0"),
    ]
    delta: Annotated[
        float,
        _checked(lambda value: Budget(epsilon=1, delta=value)),
        Field(description="the small probability that may escape epsilon, such as 1e-9; 0 for none"),
    ]
    tick: Annotated[timedelta, PlainValidator(duration_of), Field(description="how long a tick lasts, such as '1m'")]
    horizon: Annotated[
        int | None,
        PlainValidator(_horizon),
        Field(description="how long the promise holds, such as '365d' or a number of ticks; 'none' for no end"),
    ]
    origin: Annotated[datetime | None, PlainValidator(_moment)] = None
    coverage: Annotated[float, _checked(lambda value: check_probability(coverage=value))] = 0.95


class _KafkaTable(_Table):
    """`source.kafka`."""

    brokers: Annotated[
        str, PlainValidator(_hidden_text), Field(description="where the brokers are, such as 'host:9092'")
    ]
    topic: Annotated[str, PlainValidator(_hidden_text), Field(description="the topic's name")]
    settings: Annotated[dict[str, str], PlainValidator(_settings)] = {}

    def found(self) -> KafkaTopic:
        """What it says."""
        return KafkaTopic(brokers=self.brokers, topic=self.topic, settings=self.settings)


class _SourceTable(_Table):
    """`[source]`."""

    path: Annotated[Path | None, PlainValidator(_source_path)] = None
    follow: Annotated[Path | None, PlainValidator(_source_path)] = None
    stdin: Annotated[bool, PlainValidator(_flag)] = False
    kafka: _KafkaTable | None = None
    time: Annotated[str | None, PlainValidator(_text)] = None
    late: Annotated[Late, PlainValidator(_late)] = "count"
    format: Annotated[FileFormat | None, PlainValidator(_format)] = None
    until: Annotated[int | datetime | None, PlainValidator(_until)] = None
    until_end: Annotated[bool, PlainValidator(_flag)] = False

    @property
    def kinds(self) -> list[str]:
        """Which sources it names."""
        return [name for name in ("path", "follow", "stdin", "kafka") if getattr(self, name)]


class _AnySinkTable(_Table):
    """What every `[sinks.NAME]` holds."""

    kind: str

    def sink(self, name: str) -> SinkSpec:
        """The sink that the table describes."""
        fields = {field: getattr(self, field) for field in type(self).model_fields}
        return SinkSpec(name=name, **fields)


class _FolderSinkTable(_AnySinkTable):
    """`[sinks.NAME]` of kind folder."""

    kind: Literal["folder"]
    path: Annotated[
        Path, PlainValidator(_source_path), Field(description="a folder, found from where the stream file is")
    ]
    format: Annotated[FileFormat, PlainValidator(_format)] = "parquet"


class _KafkaSinkTable(_KafkaTable, _AnySinkTable):
    """`[sinks.NAME]` of kind kafka."""

    kind: Literal["kafka"]

    def sink(self, name: str) -> SinkSpec:
        """The sink that the table describes."""
        return SinkSpec(name=name, kind="kafka", kafka=self.found())


class _WebhookTable(_AnySinkTable):
    """`[sinks.NAME]` of kind webhook."""

    kind: Literal["webhook"]
    url: Annotated[
        str,
        PlainValidator(_hidden_text),
        Field(description="an https address, or env:NAME for a variable that holds it"),
    ]
    key: Annotated[str | Path | None, PlainValidator(_key)] = None
    timeout: Annotated[timedelta, PlainValidator(duration_of)] = timedelta(seconds=10)


_SINKS: dict[str, type[_AnySinkTable]] = {
    "folder": _FolderSinkTable,
    "kafka": _KafkaSinkTable,
    "webhook": _WebhookTable,
}
_SinkTable = Annotated[_FolderSinkTable | _KafkaSinkTable | _WebhookTable, Field(discriminator="kind")]


class _AnyQueryTable(_Table):
    """What every `[queries.NAME]` may hold. Fields are spelled as those of the query that they become."""

    asks: ClassVar[type[Any]]

    kind: str
    weight: Annotated[float, _checked(lambda value: check_positive(weight=value))] = 1.0
    every: Annotated[int | str, PlainValidator(_every)] = 1
    tidy: Annotated[tuple[Tidy, ...], PlainValidator(_tidy)] = ()

    def query(self, name: str, every: int) -> Query:
        """The query that the table describes, published at every so many-th tick."""
        fields = {field: getattr(self, field) for field in type(self).model_fields if field not in ("kind", "every")}
        query: Query = self.asks(name, every=every, **fields)
        return query


_Key = Annotated[str, PlainValidator(_text), Field(description="the column of labels")]
_Domain = Annotated[Domain | None, PlainValidator(_domain)]
_Flag = Annotated[bool, PlainValidator(_flag)]
_Outside = Annotated[str, _checked(check_outside)]


class _CountTable(_AnyQueryTable):
    """`[queries.NAME]` of kind count."""

    asks = Count

    kind: Literal["count"]


class _SumTable(_AnyQueryTable):
    """`[queries.NAME]` of kind sum."""

    asks = Sum

    kind: Literal["sum"]
    value: Annotated[str, PlainValidator(_text), Field(description="the column of values")]
    range: Annotated[
        tuple[float, float],
        PlainValidator(_range),
        Field(description="the least and the largest value that counts, such as [0, 500]; public"),
    ]
    grid: Annotated[float, _checked(lambda value: check_positive(grid=value))] = 1
    outside: _Outside = "clamp"


class _HistogramTable(_AnyQueryTable):
    """`[queries.NAME]` of kind histogram."""

    asks = Histogram

    kind: Literal["histogram"]
    key: _Key
    domain: _Domain = None
    max_keys_per_event: Annotated[int, _checked(lambda value: check_at_least(1, max_keys_per_event=value))] = 1
    remember: _Flag = True
    other: _Flag = False
    constant_threshold: _Flag = False


class _TopKTable(_AnyQueryTable):
    """`[queries.NAME]` of kind top_k."""

    asks = TopK

    kind: Literal["top_k"]
    key: _Key
    k: Annotated[
        int, _checked(lambda value: check_at_least(1, k=value)), Field(description="how many labels are listed")
    ]
    domain: _Domain = None
    max_keys_per_event: Annotated[int | None, PlainValidator(_keys_or_any)] = 1


class _MaxFrequencyTable(_AnyQueryTable):
    """`[queries.NAME]` of kind max_frequency."""

    asks = MaxFrequency

    kind: Literal["max_frequency"]
    key: _Key
    domain: Annotated[Domain, PlainValidator(_domain), Field(description="the labels, or a file with one a line")]


class _QuantilesTable(_AnyQueryTable):
    """`[queries.NAME]` of kind quantiles."""

    asks = Quantiles

    kind: Literal["quantiles"]
    value: Annotated[str, PlainValidator(_text), Field(description="the column of values")]
    range: Annotated[
        tuple[float, float],
        PlainValidator(_range),
        Field(description="where values lie, such as [0, 500]; public"),
    ]
    outside: _Outside = "clamp"
    at: Annotated[tuple[float, ...], PlainValidator(_numbers)] = (0.5,)
    largest: Annotated[tuple[int, ...], PlainValidator(_numbers)] = ()
    smallest: Annotated[tuple[int, ...], PlainValidator(_numbers)] = ()
    cells: Annotated[int, _checked(lambda value: check_at_least(2, cells=value))] = 1024


class _DistinctTable(_AnyQueryTable):
    """`[queries.NAME]` of kind distinct."""

    asks = Distinct

    kind: Literal["distinct"]
    key: _Key


_Threshold = Annotated[int | Literal["auto"], PlainValidator(_threshold)]
_Reports = Annotated[int, _checked(lambda value: check_at_least(1, alarms_per_user=value))]


class _AlarmTable(_AnyQueryTable):
    """`[queries.NAME]` of kind alarm."""

    asks = Alarm

    kind: Literal["alarm"]
    where: Annotated[str, PlainValidator(_text), Field(description="a condition such as \"symptom = 'fever'\"")]
    threshold: _Threshold = "auto"
    alarms_per_user: _Reports = 4


class _TrendingTable(_AnyQueryTable):
    """`[queries.NAME]` of kind trending."""

    asks = Trending

    kind: Literal["trending"]
    key: _Key
    threshold: _Threshold = "auto"
    alarms_per_user: _Reports = 4
    max_keys_per_user: Annotated[int, _checked(lambda value: check_at_least(1, max_keys_per_user=value))] = 1
    domain: _Domain = None


class _HeavyHittersTable(_AnyQueryTable):
    """`[queries.NAME]` of kind heavy_hitters."""

    asks = HeavyHitters

    kind: Literal["heavy_hitters"]
    key: _Key
    k: Annotated[int, PlainValidator(_at_least_one)] = 1024
    max_keys_per_event: Annotated[int, PlainValidator(_at_least_one)] = 1
    expected_events: Annotated[int | None, PlainValidator(_at_least_one)] = None
    expected_keys: Annotated[int | None, PlainValidator(_at_least_one)] = None
    memory: Annotated[int, PlainValidator(_at_least_one)] = 2**26


_KINDS: dict[str, type[_AnyQueryTable]] = {
    "count": _CountTable,
    "sum": _SumTable,
    "histogram": _HistogramTable,
    "top_k": _TopKTable,
    "max_frequency": _MaxFrequencyTable,
    "quantiles": _QuantilesTable,
    "distinct": _DistinctTable,
    "alarm": _AlarmTable,
    "trending": _TrendingTable,
    "heavy_hitters": _HeavyHittersTable,
}


_QueryTable = Annotated[
    _CountTable
    | _SumTable
    | _HistogramTable
    | _TopKTable
    | _MaxFrequencyTable
    | _QuantilesTable
    | _DistinctTable
    | _AlarmTable
    | _TrendingTable
    | _HeavyHittersTable,
    Field(discriminator="kind"),
]


def _some(queries: object) -> object:
    if not isinstance(queries, dict) or not queries:
        raise ParameterError(f"must hold at least one table such as [queries.purchases], got {_shown(queries)}")
    return queries


def _query_name(name: str) -> str:
    try:
        check_name(name=name)
    except ParameterError as refusal:
        raise ParameterError(f"must have names, each {str(refusal).removeprefix('name must be ')}") from None
    return name


class _CapTable(_Table):
    """`ledger.cap`."""

    epsilon: Annotated[
        float,
        _checked(lambda value: check_positive(epsilon=value)),
        Field(description="the budget of the data set, such as 4.0"),
    ]
    delta: Annotated[
        float, _checked(lambda value: Budget(epsilon=1, delta=value)), Field(description="its delta, such as 1e-6")
    ]


class _LedgerTable(_Table):
    """`[ledger]`."""

    place: Annotated[str | None, PlainValidator(_ledger_place)] = None
    key: Annotated[str | None, PlainValidator(_ledger_place)] = None
    cap: _CapTable | None = None

    def found(self) -> LedgerSpec:
        """What it says."""
        cap = None if self.cap is None else Budget(epsilon=self.cap.epsilon, delta=self.cap.delta)
        return LedgerSpec(place=self.place, key=self.key, cap=cap)


class _File(_Table):
    """The whole file."""

    stream: Annotated[_StreamTable, Field(description="the table [stream]")]
    source: _SourceTable | None = None
    sinks: dict[Annotated[str, AfterValidator(_query_name)], _SinkTable] = {}
    ledger: _LedgerTable = _LedgerTable()
    queries: Annotated[
        dict[Annotated[str, AfterValidator(_query_name)], _QueryTable],
        BeforeValidator(_some),
        Field(description="at least one table such as [queries.purchases]"),
    ]


_TABLES: dict[str, type[_Table]] = {"stream": _StreamTable, "source": _SourceTable, "ledger": _LedgerTable}


class _Faults(Exception):  # noqa: N818
    """Messages about fields that do not fit together."""


def _spec(tables: _File) -> StreamSpec:
    """The spec of tables that are sound one by one, if they fit together."""
    faults = list(_misfits(tables))
    # A last tick that is at fault is named already, and judges no query.
    released = OPEN_HORIZON if faults else _last_tick(tables) or tables.stream.horizon or OPEN_HORIZON
    queries = []
    for name, query in tables.queries.items():
        try:
            queries.append(query.query(name, _every_ticks(query.every, tables.stream.tick, released)))
        except ParameterError as refusal:
            # Messages begin with the parameter's name, or name several.
            dot = "." if re.match(r"\w+ must ", str(refusal)) else ": "
            faults.append(f"queries.{name}{dot}{refusal}")
    if faults:
        raise _Faults(*faults)
    table = tables.stream
    try:
        stream = Stream(
            table.name,
            unit=table.unit,
            budget=Budget(epsilon=table.epsilon, delta=table.delta),
            horizon=table.horizon,
            queries=queries,
            coverage=table.coverage,
            tick=table.tick,
        )
    except ParameterError as refusal:
        raise _Faults(f"stream: {refusal}") from None
    try:
        return StreamSpec(
            stream=stream,
            tick=table.tick,
            origin=table.origin,
            source=_source(tables),
            sinks=tuple(sink.sink(name) for name, sink in tables.sinks.items()),
            ledger=tables.ledger.found(),
        )
    except ParameterError as refusal:
        raise _Faults(str(refusal)) from None


def _every_ticks(every: int | str, tick: timedelta, released: int) -> int:
    try:
        ticks = every if isinstance(every, int) else _whole_ticks(every, duration_of(every), tick)
    except ParameterError as refusal:
        raise ParameterError(f"every {refusal}") from None
    if not ticks <= released:
        raise ParameterError(f"every must be at most the {released} ticks that are released, got {ticks} ticks")
    return ticks


def _misfits(tables: _File) -> Iterator[str]:
    stream, source = tables.stream, tables.source
    if source is None:
        return
    yield from _source_misfits(source)
    if stream.horizon is None and source.until is None:
        yield _NO_END
    if stream.origin is None:
        yield (
            f"stream.origin must be given when {_cutter(source)} cuts the ticks, got nothing; it is when tick 1 "
            "begins, it is public and must never be derived from the data, for example "
            "origin = 2026-01-01T00:00:00Z"
        )
    elif isinstance(source.until, datetime) and not _is_whole(source.until - stream.origin, stream.tick):
        yield (
            "source.until must be a whole number of ticks after stream.origin, "
            f"got {_shown(source.until)} with ticks of {stream.tick} from {_shown(stream.origin)}"
        )
    else:
        last, horizon = _last_tick(tables), stream.horizon or OPEN_HORIZON
        if last is not None and last > horizon:
            yield f"source.until must be at most the horizon of {horizon} ticks, got {last} ticks"


def _misfits_of_source(content: dict[str, Any], folder: Path) -> list[str]:
    """What does not fit together in a `[source]` whose fields are sound one by one, though others are not."""
    try:
        return [*_source_misfits(_SourceTable.model_validate(content["source"], context=folder))]
    except (KeyError, ValidationError):
        return []


def _order(message: str) -> int:
    """The place of a message's table in the file."""
    tables = list(_File.model_fields)
    table = re.split(r"\W", message, maxsplit=1)[0]
    return tables.index(table) if table in tables else len(tables)


def _source_misfits(source: _SourceTable) -> Iterator[str]:
    kinds = source.kinds
    if not kinds:
        yield (
            "source.path must be given, got nothing; it is a file or a folder that is complete; or, for events as they "
            "come, one of source.follow, source.stdin and source.kafka"
        )
    elif len(kinds) > 1:
        yield f"source must have one of path, follow, stdin and kafka, got {_listed(kinds)}"
    if kinds == ["path"]:
        if source.time is None:
            yield "source.time must be given, got nothing; it is the column that says when an event happened"
        if source.late != "count":
            yield "source.late must be 'count' where source.time cuts the ticks, got 'drop'; leave it out"
    elif kinds and source.late == "drop" and source.time is None:
        yield "source.time must be given where late events are dropped, got nothing; it is the column of their times"
    if kinds == ["follow"] and source.format == "parquet":
        yield "source.format must be 'csv' or 'jsonl' for files that grow, got 'parquet'; use source.path instead"
    if kinds in (["stdin"], ["kafka"]) and source.format not in (None, "jsonl"):
        yield f"source.format must be 'jsonl' for source.{kinds[0]}, got {_shown(source.format)}"
    if source.until_end and kinds != ["stdin"]:
        yield "source.until_end must be false unless source.stdin is true, got true"


def _is_whole(length: timedelta, tick: timedelta) -> bool:
    return length > timedelta(0) and not length % tick


def _last_tick(tables: _File) -> int | None:
    until = tables.source.until if tables.source else None
    if isinstance(until, datetime) and tables.stream.origin is not None:
        return (until - tables.stream.origin) // tables.stream.tick
    return cast(int | None, until)


def _cutter(source: _SourceTable) -> str:
    return "source.time" if source.kinds in ([], ["path"]) else "the clock"


def _source(tables: _File) -> FileSource | LiveSource | None:
    table, until = tables.source, _last_tick(tables)
    if table is None:
        return None
    if table.path is not None and table.time is not None:
        return FileSource(path=table.path, time=table.time, format=table.format, until=until)
    return LiveSource(
        follow=table.follow,
        stdin=table.stdin,
        kafka=None if table.kafka is None else table.kafka.found(),
        format=table.format,
        time=table.time,
        late=table.late,
        until=until,
        until_end=table.until_end,
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as fault:
        raise _spec_error(path, [f"must be a file that can be read, got: {fault.strerror}"]) from None
    except UnicodeDecodeError:
        raise _spec_error(path, ["must be UTF-8 text, got other bytes"]) from None
    except (tomllib.TOMLDecodeError, RecursionError) as fault:
        # The parser's message ends in "(at line 3, column 9)".
        what, _, where = str(fault).partition(" (at ")
        place = where.removesuffix(")") or "an unknown place"
        raise _spec_error(path, [f"must be TOML, got a fault at {place}: {what}"]) from None


def _spec_error(path: Path, messages: Any) -> SpecError:
    return SpecError("\n".join(f"{path}: {message}" for message in messages))


def _message(fault: ErrorDetails) -> str:
    """Pydantic's finding in our words."""
    path, table = _place(fault["loc"])
    name = path[-1] if path else ""
    field = ".".join(part if re.fullmatch(r"[\w-]+", part) else repr(part) for part in path)
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, table.model_fields, n=1)
        way_out = f"; did you mean {near[0]!r}?" if near else ""
        return f"{field} must be one of the fields {_listed(table.model_fields)}, got {name!r}{way_out}"
    if fault["type"] == "missing":
        return f"{field} must be given, got nothing; it is {table.model_fields[name].description}"
    if fault["type"].startswith("union_tag"):
        came = _came(path, fault["input"]["kind"]) if "kind" in fault["input"] else "nothing"
        return f"{field}.kind must be one of {_listed(_SINKS if path[0] == 'sinks' else _KINDS)}, got {came}"
    if fault["type"] == "value_error":
        # Messages begin with "must" or with a parameter's name; this field's own is in the path already.
        reason = str(fault["ctx"]["error"]).removeprefix(f"{name} ")
        if _is_hidden(path):
            reason = f"{reason.partition(', got ')[0]}, got something else"
        return f"{field} {reason}" if reason.startswith("must") else f"{field}: {reason}"
    return f"{field} must be a table, got {_came(path, fault['input'])}"


def _came(path: list[str], value: object) -> str:
    """What stood in a field, if that may be shown."""
    return "something else" if _is_hidden(path) else _shown(value)


def _is_hidden(path: list[str]) -> bool:
    """Whether a field is among addresses, passwords and keys: it may hold one that belongs elsewhere."""
    return path[0] in ("sinks", "ledger") or path[:2] == ["source", "kafka"]


def _place(loc: tuple[int | str, ...]) -> tuple[list[str], type[_Table]]:
    """The path of a field as the user wrote it, and the table that it is in."""
    path = [str(part) for part in loc]
    if path[-1] == "[key]":
        return path[:1], _File
    if path[0] in ("queries", "sinks") and len(path) > 2:
        kinds: Mapping[str, type[_Table]] = _KINDS if path[0] == "queries" else _SINKS
        return path[:2] + path[3:], kinds.get(path[2], _Table)
    if len(path) == 1:
        return path, _File
    if path[:2] == ["source", "kafka"] and len(path) > 2:
        return path, _KafkaTable
    if path[:2] == ["ledger", "cap"] and len(path) > 2:
        return path, _CapTable
    return path, _TABLES.get(path[0], _File)


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names)


def _shown(value: object) -> str:
    """A value as it stands in TOML, cut to a readable length."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        text = "{ " + ", ".join(f"{name} = {_shown(each)}" for name, each in value.items()) + " }" if value else "{}"
    else:
        text = value.isoformat() if isinstance(value, date | time) else repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."
