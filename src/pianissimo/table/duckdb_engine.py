"""DuckDB inside this process: its own files, Parquet files, and tables in memory, such that no value stops a question.

**Tables in memory.** What a column is taken for depends on its type alone, never on its values: a guess from values (as
of the objects in a pandas column) would let one row decide which questions are understood. And what an engine could
stop at is changed here, value by value: texts that are not UTF-8 become null, times are brought to microseconds, and of
what can only be asked whether it is there no more than that is kept.

**Parquet files.** DuckDB reads them fast, and stops at a text that is not UTF-8 or a time that does not fit its type.
That it stops would be an answer about the row, so whatever stops it, the same question is put once more to a slower
reading of the same files, in which such values are null. Where nothing stops the fast one, both give the same. All
files must have the same columns, of the same types: DuckDB would cast one to the type of another, value by value.
Columns from the names of folders (`country=DE/`) are texts, whatever the names look like.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import polars as pl

from pianissimo.checks import decoded, is_utf8
from pianissimo.errors import InputError, ParameterError
from pianissimo.table.engines import TableEngine, answer_frame, failed_at_rows, name_parts, no_answer, optional, quoted
from pianissimo.table.statements import Kind, TableColumn

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_FRAME = "table"
_SETTINGS = {"python_enable_replacements": "false"}
"""A name that is not in the database is not one of the caller's variables either."""


class DuckDbEngine(TableEngine):
    """DuckDB inside this process."""

    def __init__(
        self,
        connection: "duckdb.DuckDBPyConnection",
        name: tuple[str, ...],
        *,
        in_catalogue: bool = False,
        without_values: frozenset[str] = frozenset(),
        files: "ParquetFiles | None" = None,
    ) -> None:
        self._connection = connection
        self._turn = threading.Lock()
        self._files = files
        self._slow: duckdb.DuckDBPyConnection | None = None
        described = ".".join(map(quoted, name))
        with _told_as_ours(f"have the table {'.'.join(name)!r}"):
            found = connection.execute(f"DESCRIBE {described}").fetchall()
            canonical = _catalogued(connection, name) if in_catalogue else ()
        self._types = {row[0]: row[1] for row in found}
        columns = {
            each: TableColumn(each, Kind.PRESENCE) if each in without_values else _column(each, kind)
            for each, kind in self._types.items()
        }
        super().__init__("duckdb", name, canonical, columns)

    @classmethod
    def of_file(cls, path: Path, name: str) -> "DuckDbEngine":
        """A table of a DuckDB file, which is opened for reading alone."""
        duckdb = optional("duckdb")
        if not path.is_file():
            raise InputError(f"a DuckDB file must be there to be asked, got none at {path}")
        with _told_as_ours("open the file"):
            connection = duckdb.connect(str(path), read_only=True, config=_SETTINGS)
        return cls(connection, name_parts(name), in_catalogue=True)

    @classmethod
    def of_parquet(cls, path: Path) -> "DuckDbEngine":
        """All Parquet files of a folder and the folders in it, or one file."""
        duckdb = optional("duckdb")
        files = ParquetFiles.of(path)
        connection = duckdb.connect(config=_SETTINGS)
        with _told_as_ours("open the Parquet files"):
            files.view(connection, _FRAME)
        return cls(connection, (_FRAME,), files=files)

    @classmethod
    def of_frame(cls, frame: object) -> "DuckDbEngine":
        """A table in memory: polars, pandas or Arrow."""
        duckdb = optional("duckdb")
        optional("pyarrow")
        arrow, without_values = _arrow_table(frame)
        connection = duckdb.connect(config=_SETTINGS)
        with _told_as_ours("read the table"):
            connection.register(_FRAME, arrow)
        return cls(connection, (_FRAME,), without_values=without_values)

    def check(self, statement: str) -> None:
        import duckdb

        refusals = (
            duckdb.ConnectionException,
            duckdb.CatalogException,
            duckdb.BinderException,
            duckdb.ParserException,
            duckdb.PermissionException,
            duckdb.NotImplementedException,
            duckdb.IOException,
        )
        try:
            with self._turn:
                self._connection.execute(f"EXPLAIN {statement}").fetchall()
        except refusals as error:
            raise no_answer(error) from None
        except Exception:  # noqa: BLE001, S110
            # It may be about what the table holds, and shows again when it is paid for.
            pass

    def rows(self, statement: str) -> pl.DataFrame:
        try:
            # A cursor of its own would not see a table in memory, so that questions take turns.
            with self._turn:
                try:
                    return _answer(self._connection, statement)
                except Exception:
                    if self._files is None:
                        raise
                    return _answer(self._slowly(self._files), statement)
        except Exception as error:  # noqa: BLE001
            raise failed_at_rows(error) from None

    def _slowly(self, files: "ParquetFiles") -> "duckdb.DuckDBPyConnection":
        if self._slow is None:
            connection = optional("duckdb").connect(config=_SETTINGS)
            files.slow_view(connection, _FRAME, self._types)
            self._slow = connection
        return self._slow

    def close(self) -> None:
        self._connection.close()
        if self._slow is not None:
            self._slow.close()


@contextmanager
def _told_as_ours(what: str) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ParameterError):
            raise
        raise InputError(f"the database must {what}, got {type(error).__name__}") from None


def _catalogued(connection: "duckdb.DuckDBPyConnection", name: tuple[str, ...]) -> tuple[str, ...]:
    """Schema and name as the catalogue has them; the schema is left out if it is the one that all files have."""
    found = connection.execute(
        "SELECT database_name, schema_name, table_name FROM duckdb_tables() WHERE NOT internal UNION ALL "
        "SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal"
    ).fetchall()
    database, schema = connection.execute("SELECT current_database(), current_schema()").fetchall()[0]
    *before, last = name
    first = before[0] if before else ""
    readings: list[tuple[str, ...]] = [(database, schema)] if not before else [(database, first), (first, "main")]
    wanted = {tuple(part.casefold() for part in (*each, last)) for each in readings if len(name) < 3}
    wanted |= {tuple(part.casefold() for part in name)}
    matches = [each for each in found if tuple(part.casefold() for part in each) in wanted]
    if len(matches) != 1:
        raise InputError(
            "a table must be in the database under one name, got none or several; write database.schema.name"
        )
    _, schema, table = matches[0]
    return (table,) if schema == "main" else (schema, table)


def _answer(connection: "duckdb.DuckDBPyConnection", statement: str) -> pl.DataFrame:
    found = connection.execute(statement)
    names = [each[0] for each in found.description or []]
    return answer_frame(found.fetchall(), names)


_DUCKDB_KINDS = {
    "VARCHAR": Kind.TEXT,
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), Kind.INTEGER),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"), Kind.INTEGER),
    **dict.fromkeys(("FLOAT", "DOUBLE"), Kind.REAL),
    **dict.fromkeys(("HUGEINT", "UHUGEINT"), Kind.DECIMAL),
    "BOOLEAN": Kind.BOOLEAN,
    "DATE": Kind.DATE,
    "TIMESTAMP": Kind.TIMESTAMP,
    "TIMESTAMP_S": Kind.TIMESTAMP_S,
    "TIMESTAMP_MS": Kind.TIMESTAMP_MS,
    "TIMESTAMP_NS": Kind.TIMESTAMP_NS,
    "TIMESTAMP WITH TIME ZONE": Kind.TIMESTAMP_WITH_ZONE,
}


def _column(name: str, kind: str) -> TableColumn:
    if kind.startswith("ENUM(") and kind.endswith(")"):  # and not a list of them
        return TableColumn(name, Kind.TEXT, is_enum=True)
    if kind.startswith("DECIMAL(") and kind.endswith(")"):
        return TableColumn(name, Kind.DECIMAL)
    return TableColumn(name, _DUCKDB_KINDS.get(kind, Kind.OTHER))


def _arrow_table(frame: object) -> "tuple[pa.Table, frozenset[str]]":
    """A polars, pandas or Arrow table as one that an engine can read to its end, and columns without their values."""
    import pyarrow as pa

    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, pl.DataFrame):
        columns = [_of_polars(frame[name]) for name in frame.columns]
        names = frame.columns
    elif hasattr(frame, "iloc") and hasattr(frame, "columns"):
        columns = [_of_pandas(frame.iloc[:, place]) for place in range(len(frame.columns))]
        names = [str(name) for name in frame.columns]
    elif hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "iloc"):
        try:
            # All of it, now: a reader can be read once, and a second question would find it empty.
            table = pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise _no_table(frame) from error
        columns, names = table.columns, table.column_names
    else:
        raise _no_table(frame)
    _check_names(names)
    columns = [pa.chunked_array([each]) if isinstance(each, pa.Array) else each for each in columns]
    made = [_readable(column) for column in columns]
    without_values = frozenset(name for name, column in zip(names, made, strict=True) if column is None)
    kept = [_presence(column) if readable is None else readable for column, readable in zip(columns, made, strict=True)]
    return pa.table(kept, names=names), without_values


def _check_names(names: Iterable[str]) -> None:
    """Refuse names that an engine would take for one another, or cannot hold."""
    seen: dict[str, str] = {}
    for name in names:
        if not name or "\0" in name or not is_utf8(name):
            raise ParameterError("columns must have names, of characters that can be written as UTF-8, got another")
        if name.casefold() in seen:
            two = f"{seen[name.casefold()]!r} and {name!r}"
            raise ParameterError(f"columns must differ in more than upper and lower case, got {two}; rename one")
        seen[name.casefold()] = name


def _no_table(frame: object) -> ParameterError:
    return ParameterError(
        f"source must be a URL, a path, or a polars, pandas or Arrow table, got {type(frame).__name__}"
    )


def _of_polars(column: pl.Series) -> Any:

    if column.dtype == pl.Object or column.dtype in {pl.Int128, getattr(pl, "UInt128", pl.Int128)}:
        return _unreadable(column.is_null().to_numpy())  # Arrow has no type for it
    return column.to_arrow()


def _of_pandas(column: Any) -> Any:
    import pandas as pd
    import pyarrow as pa

    kind = column.dtype
    if isinstance(kind, pd.CategoricalDtype):
        names = pa.array([_text(each) for each in kind.categories], type=pa.large_string())
        return names.take(pa.array(column.cat.codes, mask=column.isna().to_numpy()))
    if isinstance(kind, pd.StringDtype) or (isinstance(kind, np.dtype) and kind.kind == "O"):
        return _texts(column)
    if isinstance(kind, pd.DatetimeTZDtype):
        return pa.Array.from_pandas(column.dt.tz_convert("UTC"))
    is_sparse = isinstance(kind, pd.SparseDtype)
    if isinstance(kind, pd.ArrowDtype) or (not is_sparse and kind.kind in "biufM" and kind.itemsize <= 8):
        return pa.Array.from_pandas(column)
    return _unreadable(column.isna().to_numpy())


def _unreadable(missing: Any) -> Any:
    """A column of a type that `_readable` has no rule for."""
    import pyarrow as pa

    return pa.array([0] * len(missing), type=pa.duration("s"), mask=missing)


def _texts(column: Any) -> Any:
    """Objects as texts, each by itself: what is no text becomes its `str`, or null if it has none."""
    import pyarrow as pa

    missing = column.isna().to_numpy(dtype=bool)
    values = column.to_numpy(dtype=object)
    if set(map(type, values[~missing])) <= {str}:
        try:
            return pa.array(values, type=pa.large_string(), mask=missing)
        except (pa.ArrowException, UnicodeEncodeError):
            pass  # a lone surrogate somewhere: value by value gives the same for all others
    texts = [None if gone else _text(value) for value, gone in zip(values, missing, strict=True)]
    return pa.array(texts, type=pa.large_string())


def _text(value: object) -> str | None:
    try:
        text = value if type(value) is str else str(value)
    except Exception:  # noqa: BLE001  somebody else's __str__
        return None
    return text if is_utf8(text) else None


def _readable(column: Any) -> Any:
    """The column with every value such that DuckDB reads it; None for a type of which that is not sure."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    kind = column.type
    if types.is_dictionary(kind):
        return _readable(pa.chunked_array([each.dictionary_decode() for each in column.chunks], type=kind.value_type))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.chunked_array([_valid_texts(each) for each in column.chunks], type=kind)
    if types.is_timestamp(kind):
        # Those with a zone are microseconds in DuckDB, which stops at what does not fit.
        return column if kind.tz is None else pc.cast(column, pa.timestamp("us", kind.tz), safe=False)
    if types.is_date64(kind):
        return pc.cast(column, pa.date32(), safe=False)
    if types.is_float16(kind):
        return pc.cast(column, pa.float32())
    simple = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal128, types.is_date32)
    binary = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary, types.is_binary_view)
    return column if any(is_one(kind) for is_one in (*simple, *binary, types.is_null)) else None


def _valid_texts(chunk: Any) -> Any:
    import pyarrow as pa

    try:
        chunk.validate(full=True)
    except pa.ArrowInvalid:
        texts = [None if each is None else decoded(each) for each in chunk.cast(pa.large_binary()).to_pylist()]
        return pa.array(texts, type=chunk.type)
    return chunk


def _presence(column: Any) -> Any:
    """A column of which nothing can be asked but whether a value is there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    there, gone = pa.scalar(b"", pa.binary()), pa.scalar(None, pa.binary())
    return pa.chunked_array([pc.if_else(each.is_valid(), there, gone) for each in column.chunks], type=pa.binary())


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """The files of a table, as they are when it is opened."""

    files: tuple[Path, ...]
    folder: Path

    @classmethod
    def of(cls, path: Path) -> "ParquetFiles":
        """All Parquet files of a folder and the folders in it, or one file."""
        if not path.exists():
            raise InputError(f"a Parquet file or folder must be there to be asked, got none at {path}")
        if not path.is_dir():
            return cls((path.absolute(),), path.absolute().parent)
        files = tuple(sorted(each for each in path.absolute().rglob("*.parquet") if each.is_file()))
        if not files:
            raise InputError(f"a folder must hold Parquet files to be asked, got none in {path}")
        return cls(files, path.absolute())

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that folders stand for, if they do so for every file."""
        inside = [file.relative_to(self.folder).parts[:-1] for file in self.files]
        found = {tuple(unquote(part.partition("=")[0]) for part in parts if "=" in part) for parts in inside}
        return found.pop() if len(found) == 1 else ()

    def view(self, connection: "duckdb.DuckDBPyConnection", name: str) -> None:
        """Make the fast reading a table of the connection."""
        self._check_alike(connection)
        files = ", ".join(_literal(_escaped(file)) for file in self.files)
        folders = "true, hive_types_autocast = false" if self.keys else "false"
        reading = f"read_parquet([{files}], hive_partitioning = {folders})"
        connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT * FROM {reading}")  # noqa: S608

    def slow_view(self, connection: "duckdb.DuckDBPyConnection", name: str, types: Mapping[str, str]) -> None:
        """Make the slow reading a table of the connection, whose columns have these types."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        partitioning = ds.HivePartitioning(pa.schema([(key, pa.string()) for key in self.keys]))
        files: Any = [str(file) for file in self.files]
        found = ds.dataset(
            files,
            format="parquet",
            partitioning=partitioning if self.keys else None,
            partition_base_dir=str(self.folder),
        )
        connection.register("files", found)
        columns = [
            f"TRY(decode(encode(CAST({quoted(column)} AS VARCHAR)))) AS {quoted(column)}"
            if kind == "VARCHAR"
            else f"TRY_CAST({quoted(column)} AS {kind}) AS {quoted(column)}"
            for column, kind in types.items()
        ]
        connection.execute(f"CREATE VIEW {quoted(name)} AS SELECT {', '.join(columns)} FROM files")  # noqa: S608

    def _check_alike(self, connection: "duckdb.DuckDBPyConnection") -> None:
        columns = "file_name, column_id, name, type, type_length, num_children, converted_type, scale, precision"
        rows = connection.execute(
            f"SELECT {columns}, logical_type FROM parquet_schema(?) ORDER BY file_name, column_id",  # noqa: S608
            [[_escaped(file) for file in self.files]],
        ).fetchall()
        schemas: dict[str, list[tuple[Any, ...]]] = {}
        for file, place, *rest in rows:
            # The root may be called anything.
            schemas.setdefault(file, []).append(tuple(rest if place else rest[1:]))
        first, *others = schemas.values()
        if any(each != first for each in others):
            raise InputError("Parquet files of one table must have the same columns of the same types, got others")
        _check_names([*_top_level(first), *self.keys])


def _top_level(schema: Sequence[tuple[Any, ...]]) -> list[str]:
    """The names of the columns, without those inside of others: a tree, in the order of a walk through it."""
    names: list[str] = []
    left = 0
    for name, _, _, children, *_ in schema[1:]:
        if left == 0:
            names.append(name)
            left = 1
        left += (children or 0) - 1
    return names


def _escaped(file: Path) -> str:
    """The path such that DuckDB finds no pattern in it."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in str(file))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
