"""A first look at a Parquet file, by a process that may die of it.

A damaged file can say that it holds more than any memory, and the library that reads it then ends the process without
an error that could be caught. So each file is read once by a process of its own, as it is read later; where that one
dies, the file is refused. What the library prints of it is shown to nobody.

Rows of a Parquet file.

Labels are texts or whole numbers, or lists of these; values are numbers; times are date-times, dates or ISO 8601
texts.
"""

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import polars as pl

from pianissimo.errors import InputError
from pianissimo.io.sources.piece import REFUSED, Piece, Wanted

PIECE = 2**20
"""The most rows that are read at once."""

_KNOWN = 100_000
_Sight = tuple[int, int, int, int, tuple[str, ...]]


class ParquetLook:
    """Looks at files, each once while it stays as it is.

    >>> import tempfile, polars
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     good, bad = Path(folder, "good.parquet"), Path(folder, "bad.parquet")
    ...     polars.DataFrame({"drug": ["aspirin"]}).write_parquet(good)
    ...     _ = bad.write_bytes(b"PAR1")
    ...     look = ParquetLook()
    ...     look.can_be_read(good, ["drug"]), look.can_be_read(bad, ["drug"])
    (True, False)
    >>> look.close()
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._owner = os.getpid()
        self._seen: dict[_Sight, None] = {}
        self._lock = threading.Lock()

    def can_be_read(self, path: Path, columns: Sequence[str]) -> bool:
        """Whether all rows of these columns can be read; `OSError` if the file is not there."""
        status = path.stat()
        sight = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, tuple(columns))
        with self._lock:
            if self._owner != os.getpid():
                # A fork shares the pipes of its parent, and the answers in them.
                self._process, self._owner = None, os.getpid()
            if sight in self._seen:
                return True
            # It may have died of something else: a file is refused if it died of it twice.
            if (self._asked(path, columns) or self._asked(path, columns) or "no") == "no":
                return False
            self._seen[sight] = None
            while len(self._seen) > _KNOWN:
                del self._seen[next(iter(self._seen))]
            return True

    def close(self) -> None:
        """Let the process end."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None and self._owner == os.getpid():
                with contextlib.suppress(OSError):
                    process.communicate()

    def _asked(self, path: Path, columns: Sequence[str]) -> str:
        """What the process says: yes or no, or nothing if it died."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from pianissimo.io.sources.parquet import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C is for those who can finish a tick
            )
        process = self._process
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(json.dumps([os.fspath(path.absolute()), list(columns)]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        except OSError:
            answer = ""
        if answer not in ("yes", "no"):
            self._process, answer = None, ""
            process.kill()
            process.communicate()
        return answer


looked_at = ParquetLook()
"""Of this process."""

atexit.register(looked_at.close)


def main() -> None:
    """Answer, line by line, whether files can be read."""
    import polars as pl

    for line in sys.stdin:
        path, columns = json.loads(line)
        answer = "yes"
        try:
            rows = pl.scan_parquet(path, glob=False, hive_partitioning=False)
            # A column that is missing is told by whoever wanted it.
            there = [name for name in pl.read_parquet_schema(path) if name in columns]
            count = rows.select(pl.len()).collect().item()
            for start in range(0, count, PIECE):
                rows.select(there).slice(start, PIECE).collect()
        except (Exception, pl.exceptions.PanicException):  # noqa: BLE001
            answer = "no"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


def read_parquet_file(path: Path, wanted: Wanted) -> Iterator[Piece]:
    """The rows of a Parquet file."""
    yield read_parquet_piece(path, wanted, 0, None)


def read_parquet_piece(path: Path, wanted: Wanted, start: int, length: int | None = PIECE) -> Piece:
    """The rows of a Parquet file from `start` on."""
    try:
        schema = _schema(path, wanted)
        table = _scan(path).select(wanted.names).slice(start, length).collect()
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as fault:
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
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as fault:
        _refuse(path, fault)


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def _schema(path: Path, wanted: Wanted) -> pl.Schema:
    if path.stat().st_size == 0:
        raise InputError(f"{path} must hold rows, got an empty file; leave it out if there were no events")
    if not looked_at.can_be_read(path, wanted.names):
        raise _damaged(path)
    schema = pl.Schema(pl.read_parquet_schema(path))
    _check(path, schema, wanted)
    return schema


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
