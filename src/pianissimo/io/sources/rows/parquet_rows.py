"""The rows of Parquet files, and what is checked of a file before any row is decoded.

Labels are texts, whole numbers, booleans or dates, or lists of these; values are numbers; times are date-times, dates
or ISO 8601 texts. What is checked: a file's two ends, how long its own description is, its columns, how many rows it
has and how much its pages unfold to (`parquet_sizes`). A file that was damaged so that this holds and its pages do not
may still end the process, which can be started again once the file is mended or taken away.
"""

from functools import lru_cache
from pathlib import Path
from typing import NoReturn

import polars as pl

from pianissimo.errors import InputError
from pianissimo.io.sources.rows.parquet_sizes import MalformedError, unfolded_size
from pianissimo.io.sources.rows.text_rows import REFUSED, Piece, Wanted
from pianissimo.labels import labels_of
from pianissimo.queries.shared.columns import first_labels

PIECE = 2**20
"""The most rows that are read at once."""

MOST_ROWS_A_FILE = 2**28
MOST_VALUES, VALUES_A_BYTE = 2**22, 16
"""A Parquet file holds at most so many values in a column, and so many more for each of its bytes."""

MOST_UNFOLDED, UNFOLDED_A_BYTE = 2**26, 256
"""Its columns unpack to at most so many bytes, and so many more for each of its bytes."""

MOST_TEXT = 2**30
"""Bytes of the texts in as many rows as are read at once, each as often as it stands there."""

_MAGIC, _FOOTER_BYTES = b"PAR1", 8
_UNREADABLE = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)


def read_parquet_piece(path: Path, wanted: Wanted, start: int, length: int | None = PIECE) -> Piece:
    """The rows of a Parquet file from `start` on."""
    try:
        schema = _schema(path, wanted)
        table = _scan(path).select(wanted.names).slice(start, length).collect()
    except _UNREADABLE as fault:
        _refuse(path, fault)
    _check_texts(path, table)
    columns = table.select(
        *(_labels(name, schema[name], lists=lists) for name, lists in wanted.labels.items()),
        *(pl.col(name).cast(pl.Float64) for name in wanted.values),
    )
    firsts = [name for name, lists in wanted.labels.items() if not lists and _is_list(schema[name])]
    return Piece(
        lines=pl.int_range(start + 1, start + table.height + 1, dtype=pl.Int64, eager=True),
        columns=columns.with_columns(first_labels(columns[name]) for name in firsts),
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


def parquet_rows(path: Path, wanted: Wanted) -> int:
    """How many rows a Parquet file of the right columns says it has; its readers check how much it unfolds to."""
    try:
        return _described(path, wanted)[1]
    except _UNREADABLE as fault:
        _refuse(path, fault)


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def _schema(path: Path, wanted: Wanted) -> pl.Schema:
    schema, _ = _described(path, wanted)
    status = path.stat()
    _check_size(path, tuple(wanted.names), status.st_size, status.st_mtime_ns)
    return schema


def _described(path: Path, wanted: Wanted) -> tuple[pl.Schema, int]:
    """The columns and the rows of a file, from its description: nothing is decoded for it."""
    _check_ends(path)
    schema = pl.Schema(pl.read_parquet_schema(path))
    _check(path, schema, wanted)
    rows = int(_scan(path).select(pl.len()).collect().item())
    if not rows <= MOST_ROWS_A_FILE:
        raise InputError(f"{path} must have at most {MOST_ROWS_A_FILE} rows, got more; split it")
    return schema, rows


@lru_cache(maxsize=256)
def _check_size(path: Path, names: tuple[str, ...], size: int, changed: int) -> None:  # noqa: ARG001
    """Refuse a file that unfolds to much more than it is long, before anything of it is decoded."""
    try:
        found = unfolded_size(path, names)
    except MalformedError:
        raise _damaged(path) from None
    if found.values > MOST_VALUES + VALUES_A_BYTE * size:
        what = f"{MOST_VALUES} values in a column and {VALUES_A_BYTE} more for each byte of it"
    elif found.unfolded > MOST_UNFOLDED + UNFOLDED_A_BYTE * size:
        what = f"{MOST_UNFOLDED} unpacked bytes and {UNFOLDED_A_BYTE} more for each byte of it"
    elif found.looked_up > MOST_TEXT * max(1, found.values / PIECE):
        what = f"{MOST_TEXT} bytes in {PIECE} rows"
    else:
        return
    raise InputError(f"{path} must unfold to at most {what}, got more; write it in smaller parts, or packed less")


def _check_texts(path: Path, table: pl.DataFrame) -> None:
    """Refuse texts that take little room because they are all one, and would take a day to be counted."""
    columns = [each.explode() if _is_list(each.dtype) else each for each in table.iter_columns()]
    size = sum(int(each.str.len_bytes().sum()) for each in columns if each.dtype == pl.String)
    if size > MOST_TEXT * max(1, table.height / PIECE):
        raise InputError(f"{path} must hold at most {MOST_TEXT} bytes of texts in {PIECE} rows, got more; shorten them")


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
    if not (kind in (pl.String, pl.Date, pl.Null) or isinstance(kind, pl.Datetime)) and not (
        kind.is_numeric() and wanted.written.time_format.startswith("epoch_")
    ):
        raise InputError(
            f"{path}: column {wanted.time!r} must hold date-times or ISO 8601 texts, got {kind}; if they are numbers "
            "since 1970, give source.time_format"
        )
    for name in wanted.labels:
        kind = schema[name]
        more = "" if name in wanted.never_lists else ", or lists of these"
        if not labels_of(_inner(kind)) or (_is_list(kind) and not more):
            raise InputError(
                f"{path}: column {name!r} must hold texts, whole numbers, booleans or dates{more}, got {kind}"
            )
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
    if _is_list(kind):
        return column.cast(pl.List(_inner(kind))).cast(pl.List(pl.String))
    if not lists:
        return column.cast(pl.String)
    text = column.cast(pl.String)
    return pl.when(text.is_not_null()).then(pl.concat_list(text)).alias(name)
