"""The engines that are asked: DuckDB for files and tables in memory, SQLAlchemy for everything that has a URL.

An engine tells the kinds of a table's columns and answers one statement with labels and counts. What it says when
something goes wrong may hold values of rows (DuckDB quotes the text it could not convert), so of its errors only the
kind is passed on.

**Errors.** What goes wrong before a statement is sent says nothing about rows: no connection, no table, no rights, a
statement that the engine does not understand. So a statement is planned first (`check`), and sent afterwards. Whatever
goes wrong once it is sent may be due to a row, a timeout or a lack of memory too, and is paid for.
"""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import polars as pl

from pianissimo.errors import InputError, ParameterError
from pianissimo.storage.postgres import is_like_a_url
from pianissimo.table.frames import ParquetFiles, arrow_table
from pianissimo.table.statements import BYTE_ORDER, IS_TEXT, Kind, TableColumn

if TYPE_CHECKING:
    import duckdb
    import sqlalchemy

_FRAME = "table"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_SETTINGS = {"python_enable_replacements": "false"}
"""A name that is not in the database is not one of the caller's variables either."""


class DataDependentError(InputError):
    """The engine failed at the rows: that it failed may say something about them.

    >>> issubclass(DataDependentError, InputError)
    True
    """


class TableEngine(Protocol):
    """What is asked of a database."""

    @property
    def dialect(self) -> str:
        """What sqlglot calls its SQL."""

    @property
    def name(self) -> tuple[str, ...]:
        """The table's name, after those of its schema and catalogue."""

    @property
    def canonical(self) -> tuple[str, ...]:
        """The table's name as the engine has it, however it was spelled; without one for files and in memory."""

    @property
    def columns(self) -> Mapping[str, TableColumn]:
        """The table's columns."""

    def check(self, statement: str) -> None:
        """Refuse what the engine would refuse whatever the rows are; no row is looked at."""

    def rows(self, statement: str) -> pl.DataFrame:
        """The answer to one statement, its columns called label and users, or users alone."""

    def close(self) -> None:
        """Ask no more."""


def open_engine(source: object, name: str | None) -> TableEngine:
    """The engine that has the table: from a URL, a path, or the table itself.

    >>> engine = open_engine(pl.DataFrame({"member": ["ann"], "article": ["a"]}), None)
    >>> engine.dialect, list(engine.columns)
    ('duckdb', ['member', 'article'])
    """
    if isinstance(source, Path) or (isinstance(source, str) and "://" not in source):
        if is_like_a_url(source):
            raise ParameterError(
                "source must be a path or a URL with ://, got something between"
            )  # and with a password
        return _open_path(Path(source), name)
    if isinstance(source, str):
        if source.startswith("duckdb://"):
            return DuckDbEngine.of_file(Path(unquote(source.partition("://")[2].removeprefix("/"))), _needed(name))
        return SqlEngine(source, _needed(name))
    return DuckDbEngine.of_frame(source)


def place_of(source: object) -> Path | None:
    """The file or folder that holds the table, or None where it is in memory or on a server.

    >>> place_of("duckdb:///clicks.duckdb")
    PosixPath('clicks.duckdb')
    >>> place_of("postgresql://db/clicks")
    """
    if isinstance(source, Path):
        return source
    if not isinstance(source, str):
        return None
    scheme, found, rest = source.partition("://")
    if not found:
        return Path(source)
    if scheme.partition("+")[0] in {"duckdb", "sqlite"}:
        # What is before the @ is not a part of the path, and may be a password.
        place = unquote(rest.partition("?")[0].rpartition("@")[2].removeprefix("/"))
        return Path(place) if place and place != ":memory:" else None
    return None


class DuckDbEngine:
    """DuckDB inside this process.

    >>> engine = DuckDbEngine.of_frame(pl.DataFrame({"member": ["ann", "bob"]}))
    >>> engine.rows('SELECT COUNT(DISTINCT "member") AS "users" FROM "table"').item()
    2
    >>> engine.close()
    """

    dialect = "duckdb"

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
        self._name = name
        self._files = files
        self._slow: duckdb.DuckDBPyConnection | None = None
        described = ".".join('"' + part.replace('"', '""') + '"' for part in name)
        with _duckdb_errors("find the table"):
            found = connection.execute(f"DESCRIBE {described}").fetchall()
            self._canonical = _duckdb_name(connection, name) if in_catalogue else ()
        self._types = {row[0]: row[1] for row in found}
        self._columns = {
            name: TableColumn(name, Kind.PRESENCE) if name in without_values else _column(name, kind)
            for name, kind in self._types.items()
        }

    @classmethod
    def of_file(cls, path: Path, name: str) -> "DuckDbEngine":
        """A table of a DuckDB file, which is opened for reading alone."""
        duckdb = _module("duckdb")
        if not path.is_file():
            raise InputError(f"a DuckDB file must be there to be asked, got none at {path}")
        with _duckdb_errors("open the file"):
            connection = duckdb.connect(str(path), read_only=True, config=_SETTINGS)
        return cls(connection, _parts(name), in_catalogue=True)

    @classmethod
    def of_parquet(cls, path: Path) -> "DuckDbEngine":
        """All Parquet files of a folder and the folders in it, or one file."""
        duckdb = _module("duckdb")
        files = ParquetFiles.of(path)
        connection = duckdb.connect(config=_SETTINGS)
        with _duckdb_errors("open the Parquet files"):
            files.view(connection, _FRAME)
        return cls(connection, (_FRAME,), files=files)

    @classmethod
    def of_frame(cls, frame: object) -> "DuckDbEngine":
        """A table in memory: polars, pandas or Arrow."""
        duckdb = _module("duckdb")
        _module("pyarrow")
        arrow, without_values = arrow_table(frame)
        connection = duckdb.connect(config=_SETTINGS)
        with _duckdb_errors("read the table"):
            connection.register(_FRAME, arrow)
        return cls(connection, (_FRAME,), without_values=without_values)

    @property
    def name(self) -> tuple[str, ...]:
        return self._name

    @property
    def canonical(self) -> tuple[str, ...]:
        return self._canonical

    @property
    def columns(self) -> Mapping[str, TableColumn]:
        return self._columns

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
            raise _no_answer(error) from None
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
            raise _failed_at_rows(error) from None

    def _slowly(self, files: ParquetFiles) -> "duckdb.DuckDBPyConnection":
        if self._slow is None:
            connection = _module("duckdb").connect(config=_SETTINGS)
            files.slow_view(connection, _FRAME, self._types)
            self._slow = connection
        return self._slow

    def close(self) -> None:
        self._connection.close()
        if self._slow is not None:
            self._slow.close()


class SqlEngine:
    """Any database that SQLAlchemy has a driver for.

    >>> SqlEngine("nonsense://", "clicks")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: source must be a URL that SQLAlchemy has a driver for, got a nonsense:// one
    """

    def __init__(self, url: str, name: str) -> None:
        alchemy = _module("sqlalchemy")
        scheme, _, rest = url.partition("://")
        if scheme in {"postgresql", "postgres"}:
            url = f"postgresql+psycopg://{rest}"
        try:
            # A connection that has died meanwhile is found out before a statement is sent on it.
            self._engine: sqlalchemy.Engine = alchemy.create_engine(url, pool_pre_ping=True, **_options(url))
        except (alchemy.exc.ArgumentError, alchemy.exc.NoSuchModuleError, ModuleNotFoundError, ValueError, TypeError):
            known = f"a {scheme}:// one" if _SCHEME.fullmatch(scheme) else "another"
            raise ParameterError(f"source must be a URL that SQLAlchemy has a driver for, got {known}") from None
        place = place_of(url)
        if place is not None and not place.is_file():
            raise InputError(f"a database must be there to be asked, got none at {place}")
        dialects = {"postgresql": "postgres", "mssql": "tsql", "mariadb": "mysql"}
        found = self._engine.dialect.name
        self.dialect = dialects.get(found, found)
        self._name = _parts(name)
        if self.dialect not in BYTE_ORDER:
            known = ", ".join(BYTE_ORDER)
            raise ParameterError(f"source must be an engine that can compare texts by bytes, of {known}, got {found}")
        if self.dialect == "sqlite":
            alchemy.event.listen(self._engine, "connect", _add_is_text)
        try:
            self._columns = self._reflected(alchemy)
            with self._connected() as connection:
                self._canonical = self._looked_up(connection)
        except BaseException:
            self._engine.dispose()
            raise

    def _reflected(self, alchemy: Any) -> dict[str, TableColumn]:
        schema = ".".join(self._name[:-1]) or None
        try:
            found = alchemy.inspect(self._engine).get_columns(self._name[-1], schema=schema)
        except alchemy.exc.NoSuchTableError:
            raise InputError("a table must be in the database to be asked, got a name that is not there") from None
        except (alchemy.exc.SQLAlchemyError, OSError) as error:
            raise InputError(f"the database must answer, got {type(error).__name__} when it was opened") from None
        if not found:
            raise InputError("a table must be in the database to be asked, got a name that is not there")
        return {each["name"]: TableColumn(each["name"], _alchemy_kind(alchemy, each["type"])) for each in found}

    def _looked_up(self, connection: "sqlalchemy.Connection") -> tuple[str, ...]:
        """The table's name as the engine has it."""
        alchemy = _module("sqlalchemy")
        if self.dialect == "sqlite":
            where = "type IN ('table', 'view') AND name = :name COLLATE NOCASE"
            query, name = f"SELECT name FROM sqlite_master WHERE {where}", self._name[-1]  # noqa: S608
        elif self.dialect == "postgres":
            query = (
                "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
                "WHERE c.oid = to_regclass(:name)"
            )
            name = ".".join('"' + part.replace('"', '""') + '"' for part in self._name)
        else:
            return self._name
        found = connection.execute(alchemy.text(query), {"name": name}).fetchone()
        return self._name if found is None else tuple(map(str, found))

    @property
    def name(self) -> tuple[str, ...]:
        return self._name

    @property
    def canonical(self) -> tuple[str, ...]:
        return self._canonical

    @property
    def columns(self) -> Mapping[str, TableColumn]:
        return self._columns

    def check(self, statement: str) -> None:
        with self._connected() as connection:
            if self.dialect not in _EXPLAINED:
                return
            try:
                _sent(connection, f"EXPLAIN {statement}")
            except Exception as error:  # noqa: BLE001
                # SQLite does nothing but compile. Others may be about what the table holds, and show again later.
                if self.dialect == "sqlite" or _REFUSED.match(str(_state(error))):
                    raise _no_answer(error) from None

    def rows(self, statement: str) -> pl.DataFrame:
        with self._connected() as connection:
            try:
                found = _sent(connection, statement)
                return _frame([tuple(row) for row in found.fetchall()], list(found.keys()))
            except Exception as error:  # noqa: BLE001
                raise _failed_at_rows(error) from None

    @contextmanager
    def _connected(self) -> "Iterator[sqlalchemy.Connection]":
        """A connection on which nothing was asked yet, and which understands our texts as we write them."""
        alchemy = _module("sqlalchemy")
        try:
            connection = self._engine.connect()
        except (alchemy.exc.SQLAlchemyError, OSError) as error:
            raise _no_answer(error) from None
        try:
            try:
                _set_up(connection, self.dialect)
            except (alchemy.exc.SQLAlchemyError, OSError) as error:
                raise _no_answer(error) from None
            yield connection
        finally:
            with suppress(alchemy.exc.SQLAlchemyError, OSError):
                connection.close()

    def close(self) -> None:
        self._engine.dispose()
        self.rows = self.check = _closed  # type: ignore[method-assign,assignment]


_EXPLAINED = {"postgres", "sqlite"}
"""Where EXPLAIN is known to look at no row."""

_REFUSED = re.compile(r"42|0A|08|57P|28|3D|3F")
"""States in which PostgreSQL does not understand a statement, does not allow it, or is not there."""

_UTF8 = "UTF8"


def _options(url: str) -> dict[str, Any]:
    """What a driver must be told."""
    return {"client_encoding": "utf8"} if url.startswith(("postgresql+psycopg://", "postgresql+psycopg2://")) else {}


def _set_up(connection: "sqlalchemy.Connection", dialect: str) -> None:
    """Set, for this transaction, what decides how a statement is read, and refuse what cannot be set.

    A role or a server may say otherwise: that a backslash ends a text early, or that labels are sent in an encoding
    that not all of them have, so that one of them stops the answer.
    """
    if dialect == "sqlite":
        (encoding,) = connection.exec_driver_sql("PRAGMA encoding").fetchone() or (None,)
        if encoding != "UTF-8":
            raise InputError("an SQLite file must keep texts as UTF-8 to be asked, got UTF-16")
        connection.exec_driver_sql("SELECT count(*) FROM sqlite_master").fetchall()  # EXPLAIN trusts an old schema
    elif dialect == "postgres":
        wanted = {"standard_conforming_strings": "on", "transaction_read_only": "on", "datestyle": "ISO, YMD"}
        calls = ", ".join(f"set_config('{name}', '{value}', true)" for name, value in wanted.items())
        connection.exec_driver_sql(f"SELECT {calls}")
        settings = ("standard_conforming_strings", "server_encoding", "client_encoding")
        shown = ", ".join(f"current_setting('{name}')" for name in settings)
        found = tuple(connection.exec_driver_sql(f"SELECT {shown}").fetchone() or ())
        if found != ("on", _UTF8, _UTF8):
            raise InputError(
                "PostgreSQL must have standard_conforming_strings on, and UTF8 as encoding of database and client, "
                "got another setting"
            )


def _sent(connection: "sqlalchemy.Connection", statement: str) -> Any:
    # Without parameters a driver does not look for placeholders, so that "%" is a percent sign.
    return connection.execution_options(no_parameters=True).exec_driver_sql(statement)


def _state(error: Exception) -> str | None:
    """PostgreSQL's five letters for what went wrong."""
    return getattr(getattr(error, "orig", None), "sqlstate", None)


def _add_is_text(connection: Any, record: object) -> None:  # noqa: ARG001
    connection.create_function(IS_TEXT, 1, _is_text, deterministic=True)


def _is_text(content: object) -> bool:
    if not isinstance(content, bytes):
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _closed(statement: str) -> pl.DataFrame:  # noqa: ARG001
    raise InputError("the database must be open to answer, got a closed one")


def _open_path(path: Path, name: str | None) -> TableEngine:
    if path.suffix in {".duckdb", ".ddb"}:
        return DuckDbEngine.of_file(path, _needed(name))
    if path.suffix in {".sqlite", ".sqlite3"}:
        return SqlEngine(f"sqlite:///{path}", _needed(name))
    return DuckDbEngine.of_parquet(path)


def _needed(name: str | None) -> str:
    if not isinstance(name, str) or not name:
        raise ParameterError("name must be the name of a table of the database, got none")
    return name


def _parts(name: str) -> tuple[str, ...]:
    parts = tuple(name.split("."))
    if not 1 <= len(parts) <= 3 or not all(parts) or "\0" in name:
        raise ParameterError("name must be a table, or schema.table, got something else")
    return parts


def _module(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ParameterError(f"{name} must be installed to ask this source: pip install pianissimo[tables]") from None


@contextmanager
def _duckdb_errors(what: str) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ParameterError):
            raise
        raise InputError(f"the database must {what}, got {type(error).__name__}") from None


def _duckdb_name(connection: "duckdb.DuckDBPyConnection", name: tuple[str, ...]) -> tuple[str, ...]:
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
    return _frame(found.fetchall(), names)


def _no_answer(error: Exception) -> InputError:
    return InputError(f"the database must answer, got {type(error).__name__}; nothing was charged")


def _failed_at_rows(error: Exception) -> DataDependentError:
    kind = type(error).__name__
    return DataDependentError(f"the database must answer, got {kind} while it looked at rows; the charge stands")


def _frame(rows: list[tuple[Any, ...]], names: list[str]) -> pl.DataFrame:
    """Labels as texts, whatever they were."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    kinds = [pl.String if name == "label" else pl.Int64 for name in names]
    texts = [
        [_text(value) for value in column] if kind == pl.String else [int(value) for value in column]
        for kind, column in zip(kinds, columns, strict=True)
    ]
    return pl.DataFrame(
        {name: pl.Series(name, column, dtype=kind) for name, column, kind in zip(names, texts, kinds, strict=True)}
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


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


def _alchemy_kind(alchemy: Any, kind: Any) -> Kind:
    types = alchemy.types
    if isinstance(kind, types.Enum):
        return Kind.OTHER
    if isinstance(kind, types.DateTime):
        return Kind.TIMESTAMP_WITH_ZONE if kind.timezone else Kind.TIMESTAMP
    order = (
        (types.String, Kind.TEXT),
        (types.Boolean, Kind.BOOLEAN),
        (types.Integer, Kind.INTEGER),
        (types.Float, Kind.REAL),
        (types.Numeric, Kind.DECIMAL),
        (types.Date, Kind.DATE),
    )
    return next((found for each, found in order if isinstance(kind, each)), Kind.OTHER)
