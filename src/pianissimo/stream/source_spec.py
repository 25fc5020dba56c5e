"""What a stream file says of its source: where events are read from, and what does not fit together there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pianissimo.checks import length_text
from pianissimo.queries.shared.expected import OPEN_HORIZON
from pianissimo.stream.calendar import TickCalendar, as_utc, zone_of
from pianissimo.stream.toml_table import listed, shown
from pianissimo.unit import User

FileFormat = Literal["csv", "jsonl", "parquet"]
"""How rows are stored in a file."""

NO_END = (
    "source.until must be given where stream.horizon is 'none', got nothing; it is the last tick that is released, "
    "it is public and must never be derived from the data, for example until = 2026-02-01T00:00:00Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSource:
    """What every source says of its rows."""

    format: FileFormat | None = None
    """How the rows are stored; without it, the ending of a file's name says so. Files that grow are csv or jsonl."""

    until: int | None = None
    """The last tick that is released, if it is not the horizon; a stream without a horizon needs it."""

    time_format: str = "iso"
    """How times are written: "iso", "epoch_s", "epoch_ms", "epoch_us" or a pattern such as "%d/%m/%Y %H:%M"."""

    delimiter: str | None = None
    """Between the fields of CSV; without it a comma, or a tab in files whose names end in .tsv."""

    line_breaks: bool = False
    """Whether fields of CSV in quotes may hold line breaks. A forgotten quote then swallows the rows of others."""

    max_refused: float = 1.0
    """The largest share of rows that may be refused, of all that complete files or a table have or of those of a live
    tick. If there are more, the run stops before the release, which is not private; 1 says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource(RowSource):
    """Where the events of a stream are read from, and the column that says when each happened."""

    path: Path
    """A file, or a folder of files that are read in the order of their names."""

    time: str
    """The column of times; it decides the tick of a row."""

    max_refused: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSource(RowSource):
    """A table that Spark reads, and the column that says when each event happened."""

    spark: str
    """The name of a table, or, with a slash in it, the path of one (Delta, Iceberg, Hudi) or of Parquet files."""

    time: str
    """The column of times; it decides the tick of a row."""

    max_refused: float = 0.5


Late = Literal["count", "drop"]
"""What becomes of an event whose own time lies before the tick in which it comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaTopic:
    """A topic, and how its brokers are reached. A setting `env:NAME` is read from the environment when it is used."""

    brokers: str
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSource(RowSource):
    """Where the events of a stream come from as they happen; the clock cuts the ticks.

    One of `follow`, `stdin`, `http` and `kafka` is given.
    """

    follow: Path | None = None
    """A file, a folder, or a pattern of files that grow."""

    before: FileSource | None = None
    """Complete files that are read first, up to the tick that is their `until`."""

    stdin: bool = False
    """Lines of standard input."""

    http: bool = False
    """Events that are sent to `pianissimo serve`, which keeps them in files beside the state until they are read."""

    kafka: KafkaTopic | None = None
    time: str | None = None
    """The column that says when an event happened; read only where late events are dropped."""

    late: Late = "count"
    until_end: bool = False
    """Of standard input: whether the run ends with it."""


def clock_misfits(stream: dict[str, Any], source: dict[str, Any]) -> Iterator[str]:
    """What does not fit together; the last tick, if it was a moment, becomes a number."""
    if not source:
        return
    origin, zone = stream.get("origin"), stream.get("time_zone", "UTC")
    if stream["horizon"] is None and "until" not in source and not _goes_on(stream.get("unit"), source):
        yield NO_END
    if origin is None:
        cutter = "source.time" if times_cut(source) else "the clock"
        yield (
            f"stream.origin must be given when {cutter} cuts the ticks, got nothing; it is when tick 1 "
            "begins, it is public and must never be derived from the data, for example "
            "origin = 2026-01-01T00:00:00Z"
        )
        return
    horizon = stream["horizon"] or OPEN_HORIZON
    for name in ("until", "live_from"):
        last = source.get(name)
        if last is not None and not isinstance(last, int):
            calendar, moment = TickCalendar(origin, stream["tick"], zone), as_utc(last, zone_of(zone))
            last = source[name] = calendar.ticks_until(moment)
            if last is None:
                yield (
                    f"source.{name} must be a whole number of ticks after stream.origin, "
                    f"got {shown(moment)} with ticks of {length_text(calendar.tick)} from {shown(calendar.origin)}"
                )
                return
        if last is not None and last > horizon:
            yield f"source.{name} must be at most the horizon of {horizon} ticks, got {last} ticks"


def _goes_on(unit: object, source: dict[str, Any]) -> bool:
    """Whether ticks may be released for ever: events come as they happen, and statistics begin anew."""
    return isinstance(unit, User) and unit.begins_anew and not times_cut(source)


def times_cut(source: dict[str, Any]) -> bool:
    """Whether the times of events cut the ticks, and no clock does."""
    return _kinds(source) in ([], ["path"], ["spark"])


def _kinds(source: dict[str, Any]) -> list[str]:
    return [name for name in ("path", "follow", "stdin", "http", "kafka", "spark") if source.get(name)]


def source_misfits(source: dict[str, Any]) -> Iterator[str]:
    """What does not fit together in the table of a source."""
    kinds = _kinds(source)
    if not kinds:
        yield (
            "source.path must be given, got nothing; it is a file or a folder that is complete; or, for events as they "
            "come, one of source.follow, source.stdin, source.http and source.kafka"
        )
    elif len(kinds) > 1 and kinds != ["path", "follow"]:
        names = "path, follow, stdin, http, kafka and spark"
        yield f"source must have one of {names}, or path and follow, got {listed(kinds)}"
    if (kinds == ["path", "follow"]) != ("live_from" in source):
        yield (
            "source.live_from must be given with source.path and source.follow, and with both alone, got another; it "
            "is when the files end and what is followed takes over, and public"
        )
    if ("path" in kinds or "spark" in kinds) and "time" not in source:
        yield "source.time must be given, got nothing; it is the column that says when an event happened"
    if kinds == ["spark"]:
        others = sorted(source.keys() - {"spark", "time", "until", "max_refused"})
        if others:
            yield f"source.{others[0]} must be left out where Spark reads the table, got it"
    elif kinds == ["path"]:
        if source.get("late") == "drop":
            yield "source.late must be 'count' where source.time cuts the ticks, got 'drop'; leave it out"
    elif kinds and source.get("late") == "drop" and "time" not in source:
        yield "source.time must be given where late events are dropped, got nothing; it is the column of their times"
    if "follow" in kinds and source.get("format") == "parquet":
        yield "source.format must be 'csv' or 'jsonl' for files that grow, got 'parquet'; use source.path instead"
    if kinds in (["stdin"], ["http"], ["kafka"]) and source.get("format", "jsonl") != "jsonl":
        yield f"source.format must be 'jsonl' for source.{kinds[0]}, got {shown(source['format'])}"
    if "delimiter" in source and (kinds in (["stdin"], ["http"], ["kafka"]) or source.get("format", "csv") != "csv"):
        yield "source.delimiter must be left out where the source is not CSV, got one"
    if source.get("line_breaks") and (kinds != ["path"] or source.get("format", "csv") != "csv"):
        yield "source.line_breaks must be false unless source.path is of CSV, got true"
    if source.get("until_end") and kinds != ["stdin"]:
        yield "source.until_end must be false unless source.stdin is true, got true"
