"""Releases in a folder: the plan, and for each query a folder of part files.

A part is written under a temporary name, synced and renamed, so what is in the folder is whole. Parts are
cut by the number of ticks and of released rows, which are public.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, get_args

import polars as pl

from pianissimo.errors import InputError, ParameterError
from pianissimo.stream import StreamRelease
from pianissimo.stream.spec import FileFormat

MOST_TICKS = 4096
"""A part holds at most so many ticks."""

MOST_ROWS = 1_000_000
"""A part is closed once it holds so many rows of all queries together."""

_PLAN = "plan.json"
_PART = "ticks-*."
_SCHEMA = {"tick": pl.Int64, "key": pl.String, "estimate": pl.Int64, "low": pl.Int64, "high": pl.Int64}


class ReleaseFolder:
    """A folder that takes the releases of one run. Use it in a `with`, or `close` it.

    `plan.json` is written at once, the releases in parts: `drugs/ticks-00000001-00004096.parquet`. All
    formats hold the same values. A folder that holds releases is refused.

    >>> import tempfile
    >>> release = StreamRelease(tick=1, coverage=0.95, tables={
    ...     "purchases": pl.DataFrame({"estimate": [10], "low": [7], "high": [13]}),
    ... })
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     with ReleaseFolder(Path(parent, "out"), plan={"name": "pharmacy"}, format="csv") as folder:
    ...         folder.write(release)
    ...     read_releases(Path(parent, "out"))["purchases"].to_dicts()
    [{'tick': 1, 'estimate': 10, 'low': 7, 'high': 13}]
    """

    def __init__(
        self,
        path: Path | str,
        *,
        plan: Mapping[str, Any],
        format: FileFormat = "parquet",  # noqa: A002
    ) -> None:
        if format not in get_args(FileFormat):
            raise ParameterError(f"format must be one of {', '.join(get_args(FileFormat))}, got {format!r}")
        self.path = Path(path)
        self.format = format
        self._tables: dict[str, list[pl.DataFrame]] = {}
        self._made: set[str] = set()
        self._first = self._last = 0
        self._rows = 0
        check_free(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Whoever makes this file owns the folder: of two runs at once, one is refused.
            with (self.path / _PLAN).open("x", encoding="utf-8") as file:
                json.dump(plan, file, indent=2, ensure_ascii=False)
            _sync(self.path / _PLAN)
            _sync(self.path)
        except FileExistsError:
            raise _used(self.path) from None
        except OSError as fault:
            raise _unwritable(self.path, fault) from None

    def write(self, release: StreamRelease) -> None:
        """Take the release of one tick; it is on disk after the part is full, or after `close`."""
        if not self._tables:
            self._first = release.tick
            self._tables = {name: [] for name in release.names}
        for name, parts in self._tables.items():
            table = release[name]
            parts.append(table.select(pl.lit(release.tick, dtype=pl.Int64).alias("tick"), pl.all()))
            self._rows += table.height
        self._last = release.tick
        if self._rows >= MOST_ROWS or self._last - self._first + 1 >= MOST_TICKS:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Also after an error: what was released is paid for.
        self.close()

    def _flush(self) -> None:
        tables, self._tables, self._rows = self._tables, {}, 0
        for name, parts in tables.items():
            part = self.path / name / f"ticks-{self._first:08}-{self._last:08}.{self.format}"
            try:
                if name not in self._made:
                    part.parent.mkdir()
                    self._made.add(name)
                write_whole(part, _writer(pl.concat(parts), self.format))
            except OSError as fault:
                raise _unwritable(self.path, fault) from None


def check_free(path: Path) -> None:
    """Refuse a folder that holds releases already."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} must be a folder for releases, got a file")
    if (path / _PLAN).exists() or any(path.glob(f"*/{_PART}*")):
        raise _used(path)


def read_plan(path: Path | str) -> dict[str, Any]:
    """The plan of the releases in a folder.

    >>> read_plan("nowhere")
    Traceback (most recent call last):
    pianissimo.errors.InputError: nowhere must be a folder of releases with a plan.json, got none
    """
    path = Path(path)
    try:
        plan = json.loads((path / _PLAN).read_text(encoding="utf-8"))
    except OSError:
        raise InputError(f"{path} must be a folder of releases with a {_PLAN}, got none") from None
    except ValueError:
        raise InputError(f"{path / _PLAN} must be JSON, got damaged text") from None
    if not isinstance(plan, dict):
        raise InputError(f"{path / _PLAN} must be a JSON object, got something else")
    return plan


def read_releases(path: Path | str, name: str | None = None) -> dict[str, pl.DataFrame]:
    """The releases in a folder by query, or those of the query `name` alone, in the order of their ticks.

    Each is a table with the columns tick, key (where labels are counted), estimate, low and high.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ReleaseFolder(folder, plan={}).close()
    ...     read_releases(folder)
    {}
    """
    path = Path(path)
    read_plan(path)
    parts = {each.name: sorted(each.glob(f"{_PART}*")) for each in sorted(path.iterdir()) if each.is_dir()}
    found = {query: files for query, files in parts.items() if files}
    if name is not None and name not in found:
        came = ", ".join(map(repr, found)) or "no releases"
        raise InputError(f"{path} must hold releases of {name!r}, got {came}")
    return {
        query: pl.concat([_read(file) for file in files]) for query, files in found.items() if name in (None, query)
    }


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file under a temporary name, sync it and give it its name."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        _sync(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _writer(table: pl.DataFrame, form: FileFormat) -> Callable[[Path], object]:
    if form == "parquet":
        return table.write_parquet
    if form == "jsonl":
        return table.write_ndjson
    return lambda path: table.write_csv(path, quote_style="non_numeric")


def _read(path: Path) -> pl.DataFrame:
    try:
        if path.suffix == ".parquet":
            table = pl.read_parquet(path, glob=False, hive_partitioning=False)
        elif path.suffix == ".csv":
            table = pl.read_csv(path, schema_overrides=_SCHEMA, glob=False)
        else:
            table = _read_jsonl(path.read_bytes())
    except (OSError, ValueError, KeyError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise _damaged(path) from None
    if table.columns not in (list(_SCHEMA), [name for name in _SCHEMA if name != "key"]):
        raise _damaged(path)
    return table


def _read_jsonl(content: bytes) -> pl.DataFrame:
    # Without a row it is a part of a histogram: a count has a row at every tick.
    columns = json.loads(content.partition(b"\n")[0]) if content else _SCHEMA
    schema = {name: _SCHEMA[name] for name in columns}
    return pl.read_ndjson(content, schema=schema) if content else pl.DataFrame(schema=schema)


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} must be a part of releases, got damaged content")


def _used(path: Path) -> InputError:
    return InputError(
        f"{path} must not hold releases yet, got some; releasing the same events again spends the "
        "budget again: choose an empty folder"
    )


def _unwritable(path: Path, fault: OSError) -> InputError:
    return InputError(f"{path} must be a folder that can be written, got: {fault.strerror}")
