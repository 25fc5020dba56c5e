"""Releases in a folder: the plan, the columns of each query's table, and for each query a folder of part files.

A part is written under a temporary name, synced and renamed, so what is in the folder is whole. There is one a tick,
one a day once the day is over by the stream's clock, and where that is asked for one a month: until those that it is
made of are gone both are there, and the wider one counts.

The row of all labels that are not shown has no key: null in Parquet and JSONL; in CSV nothing between two commas, where
the empty label is `""`. A label that a spreadsheet would take for a formula has an apostrophe before it in CSV.
"""

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, get_args

import polars as pl
import polars.selectors as cs

from pianissimo.durable.failpoints import reach
from pianissimo.errors import InputError, ParameterError
from pianissimo.storage.files import remove_temporaries, write_whole
from pianissimo.stream import StreamRelease
from pianissimo.stream.calendar import calendar_of, zone_of
from pianissimo.stream.release import MOMENT, TIMES, label_columns, release_of
from pianissimo.stream.source_spec import FileFormat
from pianissimo.stream.spec import FilesOf

MOST_TICKS = 4096
"""At so many parts of one tick they become one, also amid a day."""

MOST_ROWS = 4_000_000
"""A part that is put together holds about so many rows at most; a day that has more becomes several."""

_PLAN = "plan.json"
_COLUMNS = "columns.json"
_FORMULA = r"^[=+\-@\t\r']"
_ISO_8601 = "%Y-%m-%dT%H:%M:%S%.fZ"
_PART = re.compile(r"ticks-([0-9]+)-([0-9]+)\.(?:parquet|jsonl|csv)")
_TYPES: dict[str, pl.DataType] = {
    "Int64": pl.Int64(),
    "Float64": pl.Float64(),
    "String": pl.String(),
    "Datetime": MOMENT,
}


class ReleasePart(NamedTuple):
    """Releases of one query that become one file."""

    name: str
    first: int
    last: int
    table: pl.DataFrame


def check_free(path: Path) -> None:
    """Refuse a folder that holds releases already."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} must be a folder for releases, got a file")
    if (path / _PLAN).exists() or _parts(path):
        raise _used(path)


def read_plan(path: Path | str) -> dict[str, Any]:
    """The plan of the releases in a folder."""
    return _read_json(Path(path), _PLAN)


def read_folder(path: Path | str) -> dict[str, pl.DataFrame]:
    """The releases in a folder by query, in the order of their ticks.

    Each is a table with the columns tick, start, end and since (if the stream has an origin), key (where labels are
    counted; null for all that are not shown), estimate, low and high, cap where users are hidden (null bars are open
    then), and tidy where that was asked for. A query that is published at every n-th tick has rows at those.
    """
    path = Path(path)
    read_plan(path)
    while True:
        # Twice the same: nothing was put together while it was listed.
        found = _parts(path)
        if found != _parts(path):
            continue
        schemas = _read_schemas(path) if found else {}
        try:
            return {
                query: pl.concat([_read(file, schemas.get(query)) for _, _, file in parts])
                for query, parts in found.items()
            }
        except InputError:
            if found == _parts(path):
                raise


def last_tick(path: Path | str) -> int:
    """The last tick of which a folder holds releases, or 0; an alarm that did not ring has no row to tell it."""
    return max((last for parts in _parts(Path(path)).values() for _, last, _ in parts), default=0)


def with_tick(tick: int, table: pl.DataFrame) -> pl.DataFrame:
    """A table of a release with the column tick first, then the columns of times, if they are known."""
    times = [name for name in TIMES if name in table.columns]
    return table.select(pl.lit(tick, dtype=pl.Int64).alias("tick"), *times, pl.exclude(times))


def _types_of(table: pl.DataFrame) -> dict[str, str]:
    return {column: str(kind.base_type()) for column, kind in table.schema.items()}


def _write_part(folder: Path, part: ReleasePart, form: FileFormat) -> None:
    (folder / part.name).mkdir(exist_ok=True)
    write_whole(_path_of(folder, part, form), _content_of(part.table, form))


def _path_of(folder: Path, part: ReleasePart, form: FileFormat) -> Path:
    return folder / part.name / f"ticks-{part.first:08}-{part.last:08}.{form}"


def _content_of(table: pl.DataFrame, form: FileFormat) -> bytes:
    """The bytes of a table's file."""
    # Made in memory: writing to a path itself, polars reports a full disk as a fault of its own.
    file = io.BytesIO()
    if form == "parquet":
        table.write_parquet(file)
        return file.getvalue()
    table = table.with_columns(cs.datetime().dt.to_string(_ISO_8601))
    if form == "jsonl":
        table.write_ndjson(file)
    else:
        table.with_columns(plain_text(table)).write_csv(file, quote_style="non_numeric")
    return file.getvalue()


def plain_text(table: pl.DataFrame) -> list[pl.Expr]:
    """Labels that a spreadsheet would take for a formula, and those that begin as these then do, after an apostrophe.

    Whoever writes events chooses labels: `=HYPERLINK(...)` must not become a link in what somebody opens.
    """
    return [
        pl.when(pl.col(name).str.contains(_FORMULA)).then(pl.lit("'") + pl.col(name)).otherwise(name).alias(name)
        for name in label_columns(table)
    ]


def _read_json(path: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((path / name).read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{path} must be a folder of releases with a {name}, got none") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path / name} must be JSON, got damaged text") from None
    if not isinstance(content, dict):
        raise InputError(f"{path / name} must be a JSON object, got something else")
    return content


def _read_schemas(path: Path) -> dict[str, pl.Schema]:
    try:
        return {
            name: pl.Schema({column: _TYPES[kind] for column, kind in columns.items()})
            for name, columns in _read_json(path, _COLUMNS).items()
        }
    except (AttributeError, KeyError, TypeError):
        raise InputError(f"{path / _COLUMNS} must hold columns and their types, got something else") from None


_Part = tuple[int, int, Path]


def _parts(path: Path) -> dict[str, list[_Part]]:
    """The parts of each query that has any, with their first and last ticks, in the order of these."""
    return {query: _widest(parts) for query, parts in _all_parts(path).items()}


def _widest(parts: Iterable[_Part]) -> list[_Part]:
    """Without those whose ticks a wider one holds."""
    kept: list[_Part] = []
    for part in parts:
        if not kept or part[1] > kept[-1][1]:
            kept.append(part)
    return kept


def _all_parts(path: Path) -> dict[str, list[_Part]]:
    """`_parts`, and those whose ticks a wider one holds: whoever put them together was killed, or is at it."""
    found: dict[str, list[_Part]] = {}
    for file in sorted(path.glob("*/ticks-*")):
        if name := _PART.fullmatch(file.name):
            found.setdefault(file.parent.name, []).append((int(name[1]), int(name[2]), file))
    return {query: sorted(parts, key=lambda part: (part[0], -part[1])) for query, parts in found.items()}


def _read(path: Path, schema: pl.Schema | None) -> pl.DataFrame:
    if schema is None:
        raise _damaged(path)
    moments = [name for name, kind in schema.items() if kind == MOMENT]
    written = schema | dict.fromkeys(moments, pl.String())
    try:
        if path.suffix == ".parquet":
            table = pl.read_parquet(path, glob=False, hive_partitioning=False)
        elif path.suffix == ".csv":
            table = pl.read_csv(path, schema_overrides=written, glob=False)
            table = table.with_columns(pl.col(each).str.strip_prefix("'") for each in label_columns(table))
        else:
            content = path.read_bytes()
            table = pl.read_ndjson(content, schema=written) if content else pl.DataFrame(schema=written)
        if path.suffix != ".parquet":
            table = table.with_columns(pl.col(moments).str.to_datetime(_ISO_8601, time_unit="us", time_zone="UTC"))
    except (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise _damaged(path) from None
    # Only labels, bars where a cap cuts off, and an estimate between bars may be null: a line that lost one loses more.
    may_be_null = [*label_columns(table), *(["low", "high"] if "cap" in schema else [])]
    if table.schema != schema:
        raise _damaged(path)
    if {"estimate", "low", "high"} <= set(schema):
        estimate = pl.when(pl.col("low").is_not_null() & pl.col("high").is_not_null()).then(0).otherwise("estimate")
    else:
        estimate = pl.lit(0)
    numbers = table.with_columns(estimate.alias("estimate")).select(pl.exclude(may_be_null).null_count())
    if numbers.sum_horizontal().sum():
        raise _damaged(path)
    return table


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} must be a part of releases, got damaged content")


def _used(path: Path) -> InputError:
    last = last_tick(path)
    if not last:
        return InputError(
            f"{path} must not hold releases yet, got the plan of a run that has stored none; if that run was stopped, "
            f"it has published nothing: remove {_PLAN} there and run again"
        )
    return InputError(
        f"{path} must not hold releases yet, got some up to tick {last}; if a run with a state wrote them, run again "
        "with the same one: it goes on. A run in memory cannot be taken up again, and releasing the same events once "
        "more, into another folder, spends the budget again"
    )


def unwritable(path: Path, fault: OSError) -> InputError:
    """The error for a folder of releases that takes none."""
    return InputError(f"{path} must be a folder that can be written, got: {fault.strerror}")


class FolderSink:
    """A folder that takes releases, under names that tell the tick: sent twice, one is written once more, the same.

    `plan.json` is written at once. All formats hold the same values; `columns.json` says what their columns are. With
    `is_new` a folder that holds releases or a plan is refused.

    When a tick of a later day is sent, by the clock of the stream's time zone, the parts of each day before it become
    one, of bounded size, named by the first and the last tick that the query was published at. That one has its name
    before they are removed; whoever is killed in between leaves both, `read_folder` takes the wider, and the first tick
    that is sent by the next process removes the others. With `files="month"` those of the days of a month become one in
    the same way when the month is over.

    >>> import tempfile
    >>> release = StreamRelease(tick=1, coverage=0.95, tables={
    ...     "purchases": pl.DataFrame({"estimate": [10], "low": [7], "high": [13]}),
    ... })
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     FolderSink(Path(parent, "out"), plan={"digest": "3f"}, format="csv").write(release)
    ...     read_folder(Path(parent, "out"))["purchases"].to_dicts()
    [{'tick': 1, 'estimate': 10, 'low': 7, 'high': 13}]
    """

    def __init__(
        self,
        path: Path,
        *,
        plan: Mapping[str, Any],
        format: FileFormat = "parquet",  # noqa: A002
        files: FilesOf = "day",
        is_new: bool = False,
    ) -> None:
        for what, value, known in (("format", format, get_args(FileFormat)), ("files", files, get_args(FilesOf))):
            if value not in known:
                raise ParameterError(f"{what} must be one of {', '.join(known)}, got {value!r}")
        self.path = path
        self._files: FilesOf = files
        self.format: FileFormat = format
        self._columns: dict[str, dict[str, str]] = {}
        self._calendar = calendar_of(plan)
        self._today: date | None = None
        if is_new:
            check_free(path)
        try:
            self.name = f"folder {path.resolve()}"
            path.mkdir(parents=True, exist_ok=True)
            if is_new:
                # Whoever makes this file owns the folder: of two runs at once, one is refused.
                (path / _PLAN).touch(exist_ok=False)
            if is_new or not (path / _PLAN).exists():
                write_whole(path / _PLAN, json.dumps(plan, indent=2, ensure_ascii=False).encode())
            elif read_plan(path).get("digest") != plan["digest"]:
                raise InputError(f"{path} must hold releases of this stream alone, got another plan")
            if (path / _COLUMNS).exists():
                self._columns = _read_json(path, _COLUMNS)
        except FileExistsError:
            raise _used(path) from None
        except OSError as fault:
            raise unwritable(path, fault) from None
        except RuntimeError:
            raise InputError(f"{path} must be a folder that can be written, got links in a circle") from None

    def last(self) -> int | None:
        """The last tick that is there, or 0."""
        return last_tick(self.path)

    def check_unused(self) -> None:
        """Before a stream is created, and charged: refuse a folder that holds releases of another."""
        if self.last():
            raise _used(self.path)

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:  # noqa: ARG002
        """Write the tables of a release."""
        self.write(release_of(payload))

    def write(self, release: StreamRelease) -> None:
        """Take the release of one tick: it is on the disk afterwards, and days that are over are put together."""
        today, is_full = self._day(release.tick), release.tick % MOST_TICKS == 0
        if today != self._today or is_full:
            self._put_together(date.max if is_full else today)
            if self._files == "month" and (self._today is None or _month(today) != _month(self._today)):
                self._put_together_months(_month(today))
            self._today = today
        for name, table in release.items():
            part = ReleasePart(name, release.tick, release.tick, with_tick(release.tick, table))
            if name not in self._columns:
                columns = self._columns | {name: _types_of(part.table)}
                write_whole(self.path / _COLUMNS, json.dumps(columns, indent=2).encode())
                # Not before: if it could not be written, it is tried again.
                self._columns = columns
            for form in get_args(FileFormat):
                # Sent before in another format: first gone, so that no reader counts it twice.
                if form != self.format:
                    _path_of(self.path, part, form).unlink(missing_ok=True)
            _write_part(self.path, part, self.format)

    def _day(self, tick: int) -> date:
        """The day that a tick begins on; without an origin all have one, which is put together when it is full."""
        if self._calendar is None:
            return date.min
        return self._calendar.start(tick).astimezone(zone_of(self._calendar.time_zone)).date()

    def _put_together(self, today: date) -> None:
        """Of days before this one, one part a query; what a process that was killed left is cleared away."""
        for folder in (self.path, *(each for each in self.path.iterdir() if each.is_dir())):
            remove_temporaries(folder)
        for name, parts in _all_parts(self.path).items():
            for day, group in groupby(parts, lambda part: self._day(part[0])):
                if day < today:
                    with suppress(InputError):  # one that is damaged stays, for whoever reads it
                        self._put_together_some(name, list(group), lambda part: part[0] == part[1])

    def _put_together_months(self, this: date) -> None:
        """Of months before this one, one part a query, of those that are a day's or shorter."""
        for name, parts in _all_parts(self.path).items():
            for month, group in groupby(parts, lambda part: _month(self._day(part[0]))):
                if month < this:
                    with suppress(InputError):
                        self._put_together_some(
                            name, list(group), lambda part: self._day(part[0]) == self._day(part[1])
                        )

    def _put_together_some(self, name: str, parts: Sequence[_Part], is_short: Callable[[_Part], bool]) -> None:
        kept = _widest(parts)
        _remove(part for part in parts if part not in kept)
        # Short ones that no wider one lies between: it would seem to be held by theirs.
        for is_run, run in groupby(kept, is_short):
            left = list(run) if is_run else []
            while len(left) > 1:
                left = left[self._put_together_first(name, left) :]

    def _put_together_first(self, name: str, parts: Sequence[_Part]) -> int:
        """Make one part of the first ones; gives how many they were."""
        schema, tables, rows = _read_schemas(self.path).get(name), list[pl.DataFrame](), 0
        while len(tables) < len(parts) and rows < MOST_ROWS:
            tables.append(_read(parts[len(tables)][2], schema))
            rows += tables[-1].height
        if len(tables) > 1:
            last = parts[len(tables) - 1][1]
            _write_part(self.path, ReleasePart(name, parts[0][0], last, pl.concat(tables)), self.format)
            reach("compact.written")
            _remove(parts[: len(tables)])
        return len(tables)


def _month(day: date) -> date:
    return day.replace(day=1)


def _remove(parts: Iterable[_Part]) -> None:
    for part in parts:
        part[2].unlink()
        reach("compact.removed")
