"""The engines that are asked: DuckDB for files and tables in memory, SQLAlchemy for everything that has a URL.

An engine tells the kinds of a table's columns and answers one statement with labels and counts. What it says when
something goes wrong may hold values of rows (DuckDB quotes the text it could not convert), so of its errors only the
kind is passed on. Errors that come about without rows (no connection, no table, no rights) are told from all others,
which may be about a row.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote

import polars as pl

from pianissimo.errors import InputError, ParameterError
from pianissimo.table.statements import BYTE_ORDER
from pianissimo.table.where import Column, Kind

if TYPE_CHECKING:
    import duckdb
    import sqlalchemy


_SETTINGS = {"python_enable_replacements": "false"}
"""A name that is not in the database is not one of the caller's variables either."""


class DataDependentError(InputError):
    """The engine failed at the rows: that it failed may say something about them.

    >>> issubclass(DataDependentError, InputError)
    True
    """


class Engine(Protocol):
    """What is asked of a database."""

    @property
    def dialect(self) -> str:
        """What sqlglot calls its SQL."""

    @property
    def name(self) -> tuple[str, ...]:
        """The table's name, after those of its schema and catalogue."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """The table's columns."""

    def rows(self, statement: str) -> pl.DataFrame:
        """The answer to one statement, its columns called label and users, or users alone."""

    def close(self) -> None:
        """Ask no more."""


def open_engine(source: object, name: str | None) -> Engine:
    """The engine that has the table: from a URL, a path, or the table itself.

    >>> engine = open_engine(pl.DataFrame({"member": ["ann"], "article": ["a"]}), None)
    >>> engine.dialect, list(engine.columns)
    ('duckdb', ['member', 'article'])
    """
    if isinstance(source, Path) or (isinstance(source, str) and "://" not in source):
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
        place = unquote(rest.partition("?")[0].removeprefix("/"))
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

    def __init__(self, connection: "duckdb.DuckDBPyConnection", name: tuple[str, ...]) -> None:
        self._connection = connection
        self._turn = threading.Lock()
        self._name = name
        described = ".".join('"' + part.replace('"', '""') + '"' for part in name)
        with _duckdb_errors("find the table"):
            found = connection.execute(f"DESCRIBE {described}").fetchall()
        self._columns = {row[0]: _column(row[0], row[1]) for row in found}

    @classmethod
    def of_file(cls, path: Path, name: str) -> "DuckDbEngine":
        """A table of a DuckDB file, which is opened for reading alone."""
        duckdb = _module("duckdb")
        if not path.is_file():
            raise InputError(f"a DuckDB file must be there to be asked, got none at {path}")
        with _duckdb_errors("open the file"):
            connection = duckdb.connect(str(path), read_only=True, config=_SETTINGS)
        return cls(connection, _parts(name))

    @classmethod
    def of_parquet(cls, path: Path) -> "DuckDbEngine":
        """All Parquet files of a folder and the folders in it, or one file."""
        duckdb = _module("duckdb")
        if not path.exists():
            raise InputError(f"a Parquet file or folder must be there to be asked, got none at {path}")
        if path.is_dir() and next(path.rglob("*.parquet"), None) is None:
            raise InputError(f"a folder must hold Parquet files to be asked, got none in {path}")
        pattern = path / "**" / "*.parquet" if path.is_dir() else path
        connection = duckdb.connect(config=_SETTINGS)
        with _duckdb_errors("open the Parquet files"):
            connection.read_parquet(str(pattern)).create_view("table")
        return cls(connection, ("table",))

    @classmethod
    def of_frame(cls, frame: object) -> "DuckDbEngine":
        """A table in memory: polars, pandas or Arrow."""
        duckdb = _module("duckdb")
        if isinstance(frame, pl.LazyFrame):
            frame = frame.collect()
        arrow = frame.to_arrow() if isinstance(frame, pl.DataFrame) else frame
        if not any(hasattr(arrow, mark) for mark in ("__arrow_c_stream__", "iloc")):
            raise ParameterError(
                f"source must be a URL, a path, or a polars, pandas or Arrow table, got {type(frame).__name__}"
            )
        connection = duckdb.connect(config=_SETTINGS)
        with _duckdb_errors("read the table"):
            connection.register("table", arrow)
        return cls(connection, ("table",))

    @property
    def name(self) -> tuple[str, ...]:
        return self._name

    @property
    def columns(self) -> Mapping[str, Column]:
        return self._columns

    def rows(self, statement: str) -> pl.DataFrame:
        with _duckdb_errors("answer"):
            # A cursor of its own would not see a table in memory, so that questions take turns.
            with self._turn:
                found = self._connection.execute(statement)
                names = [each[0] for each in found.description or []]
                rows = found.fetchall()
            return _frame(rows, names)

    def close(self) -> None:
        self._connection.close()


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
            self._engine: sqlalchemy.Engine = alchemy.create_engine(url)
        except (alchemy.exc.ArgumentError, alchemy.exc.NoSuchModuleError, ModuleNotFoundError, ValueError):
            raise ParameterError(
                f"source must be a URL that SQLAlchemy has a driver for, got a {scheme}:// one"
            ) from None
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
        self._columns = self._reflected(alchemy)

    def _reflected(self, alchemy: Any) -> dict[str, Column]:
        schema = ".".join(self._name[:-1]) or None
        try:
            found = alchemy.inspect(self._engine).get_columns(self._name[-1], schema=schema)
        except alchemy.exc.NoSuchTableError:
            raise InputError("a table must be in the database to be asked, got a name that is not there") from None
        except (alchemy.exc.SQLAlchemyError, OSError) as error:
            raise InputError(f"the database must answer, got {type(error).__name__} when it was opened") from None
        if not found:
            raise InputError("a table must be in the database to be asked, got a name that is not there")
        return {each["name"]: Column(each["name"], _alchemy_kind(alchemy, each["type"])) for each in found}

    @property
    def name(self) -> tuple[str, ...]:
        return self._name

    @property
    def columns(self) -> Mapping[str, Column]:
        return self._columns

    def rows(self, statement: str) -> pl.DataFrame:
        alchemy = _module("sqlalchemy")
        try:
            with self._engine.connect() as connection:
                # Without parameters a driver does not look for placeholders, so that "%" is a percent sign.
                found = connection.execution_options(no_parameters=True).exec_driver_sql(statement)
                return _frame([tuple(row) for row in found.fetchall()], list(found.keys()))
        except (
            alchemy.exc.OperationalError,
            alchemy.exc.ProgrammingError,
            alchemy.exc.InterfaceError,
            alchemy.exc.TimeoutError,
            OSError,
        ) as error:
            raise InputError(f"the database must answer, got {type(error).__name__}") from None
        except (alchemy.exc.SQLAlchemyError, ValueError) as error:
            raise _failed_at_rows(error) from None

    def close(self) -> None:
        self._engine.dispose()
        self.rows = _closed  # type: ignore[method-assign]


def _closed(statement: str) -> pl.DataFrame:  # noqa: ARG001
    raise InputError("the database must be open to answer, got a closed one")


def _open_path(path: Path, name: str | None) -> Engine:
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

    without_rows = (
        duckdb.OperationalError,
        duckdb.CatalogException,
        duckdb.BinderException,
        duckdb.ParserException,
        duckdb.PermissionException,
        OSError,
    )
    try:
        yield
    except without_rows as error:
        raise InputError(f"the database must {what}, got {type(error).__name__}") from None
    except (duckdb.Error, RuntimeError, ValueError) as error:
        raise _failed_at_rows(error) from None


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
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), Kind.TIMESTAMP),
    "TIMESTAMP WITH TIME ZONE": Kind.TIMESTAMP_WITH_ZONE,
}


def _column(name: str, kind: str) -> Column:
    """A column of DuckDB.

    >>> _column("country", "ENUM('DE', 'FR')")
    Column(name='country', kind=<Kind.TEXT: 'text'>, is_enum=True)
    """
    if kind.startswith("ENUM"):
        return Column(name, Kind.TEXT, is_enum=True)
    if kind.startswith("DECIMAL") and not kind.endswith("]"):
        return Column(name, Kind.DECIMAL)
    return Column(name, _DUCKDB_KINDS.get(kind, Kind.OTHER))


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
