"""DuckDB inside this process: its own files, Parquet files, and tables in memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from pianissimo.errors import InputError, ParameterError
from pianissimo.table.engines import TableEngine, answer_frame, failed_at_rows, name_parts, no_answer, optional
from pianissimo.table.memory_frames import ParquetFiles, arrow_table
from pianissimo.table.statements import Kind, TableColumn

if TYPE_CHECKING:
    import duckdb

_FRAME = "table"
_SETTINGS = {"python_enable_replacements": "false"}
"""A name that is not in the database is not one of the caller's variables either."""


class DuckDbEngine(TableEngine):
    """DuckDB inside this process.

    >>> engine = DuckDbEngine.of_frame(pl.DataFrame({"member": ["ann", "bob"]}))
    >>> engine.rows('SELECT COUNT(DISTINCT "member") AS "users" FROM "table"').item()
    2
    >>> engine.close()
    """

    def __init__(
        self,
        connection: "duckdb.DuckDBPyConnection",
        name: tuple[str, ...],
        *,
        in_catalogue: bool = False,
        without_values: frozenset[str] = frozenset(),
        files: ParquetFiles | None = None,
    ) -> None:
        self._connection = connection
        self._turn = threading.Lock()
        self._files = files
        self._slow: duckdb.DuckDBPyConnection | None = None
        described = ".".join('"' + part.replace('"', '""') + '"' for part in name)
        with _told_as_ours("find the table"):
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
        arrow, without_values = arrow_table(frame)
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

    def _slowly(self, files: ParquetFiles) -> "duckdb.DuckDBPyConnection":
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
    **dict.fromkeys(("VARCHAR",), Kind.TEXT),
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
    """A column of DuckDB.

    >>> _column("country", "ENUM('DE', 'FR')")
    TableColumn(name='country', kind=<Kind.TEXT: 'text'>, is_enum=True)
    """
    if kind.startswith("ENUM(") and kind.endswith(")"):  # and not a list of them
        return TableColumn(name, Kind.TEXT, is_enum=True)
    if kind.startswith("DECIMAL(") and kind.endswith(")"):
        return TableColumn(name, Kind.DECIMAL)
    return TableColumn(name, _DUCKDB_KINDS.get(kind, Kind.OTHER))
