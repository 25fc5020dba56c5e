"""Rows of a Parquet file.

Labels are texts or whole numbers, or lists of these; values are numbers; times are date-times, dates or ISO 8601 texts.
What a file says of itself is checked before any row is decoded: its two ends, how long its own description is, its
columns and how many rows it has. A file that was damaged so that this holds and its pages do not may still end the
process, which can be started again once the file is mended or taken away.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import polars as pl

from pianissimo.errors import InputError
from pianissimo.io.sources.text_rows import REFUSED, Piece, Wanted

PIECE = 2**20
"""The most rows that are read at once."""

MOST_ROWS_A_FILE = 2**28

_MAGIC, _FOOTER_BYTES = b"PAR1", 8
_UNREADABLE = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def read_parquet_file(path: Path, wanted: Wanted) -> Iterator[Piece]:
    """The rows of a Parquet file."""
    yield read_parquet_piece(path, wanted, 0, None)


def read_parquet_piece(path: Path, wanted: Wanted, start: int, length: int | None = PIECE) -> Piece:
    """The rows of a Parquet file from `start` on."""
    try:
        schema = _schema(path, wanted)
        table = _scan(path).select(wanted.names).slice(start, length).collect()
    except _UNREADABLE as fault:
        _refuse(path, fault)
    return Piece(
        lines=pl.int_range(start + 1, start + table.height + 1, dtype=pl.Int64, eager=True),
        columns=table.select(
            *(_labels(name, schema[name], lists=lists) for name, lists in wanted.labels.items()),
            *(pl.col(name).cast(pl.Float64) for name in wanted.values),
        ),
        times=wanted.times(table),
        refused=pl.DataFrame(schema=REFUSED),
    )


def read_parquet_times(path: Path, wanted: Wanted) -> pl.Series:
    """The column of times alone, of the whole file."""
    try:
        _schema(path, wanted)
        return wanted.times(_scan(path).select(wanted.time).collect())
    except _UNREADABLE as fault:
        _refuse(path, fault)


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def _schema(path: Path, wanted: Wanted) -> pl.Schema:
    _check_ends(path)
    schema = pl.Schema(pl.read_parquet_schema(path))
    _check(path, schema, wanted)
    # From the description: nothing is decoded for it.
    if not _scan(path).select(pl.len()).collect().item() <= MOST_ROWS_A_FILE:
        raise InputError(f"{path} must have at most {MOST_ROWS_A_FILE} rows, got more; split it")
    return schema


def _check_ends(path: Path) -> None:
    """A file begins with a sign and ends with its description, the length of that, and the sign."""
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{path} must hold rows, got an empty file; leave it out if there were no events")
    with path.open("rb") as file:
        first = file.read(len(_MAGIC))
        file.seek(max(0, size - _FOOTER_BYTES))
        last = file.read()
    length = int.from_bytes(last[:4], "little")
    if first != _MAGIC or last[4:] != _MAGIC or not 0 < length <= size - len(_MAGIC) - _FOOTER_BYTES:
        raise _damaged(path)


def _refuse(path: Path, fault: BaseException) -> NoReturn:
    if isinstance(fault, OSError):
        raise InputError(f"{path} must be a file that can be read, got: {fault.strerror}") from None
    raise _damaged(path) from None


def _damaged(path: Path) -> InputError:
    return InputError(f"{path} must be a Parquet file, got other or damaged content")


def _check(path: Path, schema: pl.Schema, wanted: Wanted) -> None:
    wanted.check_present(str(path), schema.names(), certain=True)
    kind = pl.Null() if wanted.time is None else schema[wanted.time]
    if not (kind in (pl.String, pl.Date, pl.Null) or isinstance(kind, pl.Datetime)):
        raise InputError(f"{path}: column {wanted.time!r} must hold date-times or ISO 8601 texts, got {kind}")
    for name, lists in wanted.labels.items():
        kind = schema[name]
        if _is_list(kind) and not lists:
            raise InputError(
                f"{path}: column {name!r} must hold one label a row, got {kind}; "
                "set max_keys_per_event above 1 if an event may hold several"
            )
        inner = _inner(kind)
        if not (inner in (pl.String, pl.Categorical, pl.Enum, pl.Null) or inner.is_integer()):
            more = ", or lists of these" if lists else ""
            raise InputError(f"{path}: column {name!r} must hold texts or whole numbers{more}, got {kind}")
    for name in wanted.values:
        kind = schema[name]
        if not (kind.is_numeric() or kind == pl.Null):
            raise InputError(f"{path}: column {name!r} must hold numbers, got {kind}")


def _is_list(kind: pl.DataType) -> bool:
    return isinstance(kind, pl.List | pl.Array)


def _inner(kind: pl.DataType) -> pl.DataType:
    return kind.inner if isinstance(kind, pl.List | pl.Array) else kind  # type: ignore[return-value]


def _labels(name: str, kind: pl.DataType, *, lists: bool) -> pl.Expr:
    column = pl.col(name)
    if not lists:
        return column.cast(pl.String)
    if _is_list(kind):
        return column.cast(pl.List(_inner(kind))).cast(pl.List(pl.String))
    text = column.cast(pl.String)
    return pl.when(text.is_not_null()).then(pl.concat_list(text)).alias(name)
