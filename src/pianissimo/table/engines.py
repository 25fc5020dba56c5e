"""The engines that are asked: SQLAlchemy for everything that has a URL, DuckDB (`duckdb_engine`) for files and memory.

An engine tells the kinds of a table's columns and answers one statement with labels and counts. What it says when
something goes wrong may hold values of rows (DuckDB quotes the text it could not convert), so of its errors only the
kind is passed on.

**Errors.** What goes wrong before a statement is sent says nothing about rows: no connection, no table, no rights, a
statement that the engine does not understand. So a statement is planned first (`check`), and sent afterwards. Whatever
goes wrong once it is sent may be due to a row, a timeout or a lack of memory too, and is paid for.
"""

import hashlib
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import polars as pl

from pianissimo.checks import decoded
from pianissimo.errors import InputError, ParameterError
from pianissimo.table.statements import BYTE_ORDER, DIGEST, IS_TEXT, Kind, TableColumn

if TYPE_CHECKING:
    import sqlalchemy

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


class DataDependentError(InputError):
    """The engine failed at the rows: that it failed may say something about them."""


class TableEngine(ABC):
    """A database with the table that is asked."""

    def __init__(
        self, dialect: str, name: tuple[str, ...], canonical: tuple[str, ...], columns: Mapping[str, TableColumn]
    ) -> None:
        self.dialect = dialect
        """What sqlglot calls its SQL."""
        self.name = name
        """The table's name, after those of its schema and catalogue."""
        self.canonical = canonical
        """The table's name as the engine has it, however it was spelled; without one for files and in memory."""
        self.columns = columns

    @abstractmethod
    def check(self, statement: str) -> None:
        """Refuse what the engine would refuse whatever the rows are; no row is looked at."""

    @abstractmethod
    def rows(self, statement: str) -> pl.DataFrame:
        """The answer to one statement, its columns called label and users, or users alone."""

    @abstractmethod
    def close(self) -> None:
        """Ask no more."""


def place_of(source: object) -> Path | None:
    """The file or folder that holds the table, or None where it is in memory or on a server."""
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


class SqlEngine(TableEngine):
    """Any database that SQLAlchemy has a driver for."""

    def __init__(self, url: str, name: str) -> None:
        alchemy = optional("sqlalchemy")
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
        dialect, parts = dialects.get(found, found), name_parts(name)
        super().__init__(dialect, parts, parts, {})
        if self.dialect not in BYTE_ORDER:
            known = ", ".join(BYTE_ORDER)
            raise ParameterError(f"source must be an engine that can compare texts by bytes, of {known}, got {found}")
        if self.dialect == "sqlite":
            alchemy.event.listen(self._engine, "connect", _add_functions)
        try:
            self.columns = self._reflected(alchemy)
            with self._connected() as connection:
                self.canonical = self._looked_up(connection)
        except BaseException:
            self._engine.dispose()
            raise

    def _reflected(self, alchemy: Any) -> dict[str, TableColumn]:
        schema = ".".join(self.name[:-1]) or None
        try:
            found = alchemy.inspect(self._engine).get_columns(self.name[-1], schema=schema)
        except alchemy.exc.NoSuchTableError:
            raise InputError("a table must be in the database to be asked, got a name that is not there") from None
        except (alchemy.exc.SQLAlchemyError, OSError) as error:
            raise InputError(f"the database must answer, got {type(error).__name__} when it was opened") from None
        if not found:
            raise InputError("a table must be in the database to be asked, got a name that is not there")
        return {each["name"]: TableColumn(each["name"], _alchemy_kind(alchemy, each["type"])) for each in found}

    def _looked_up(self, connection: "sqlalchemy.Connection") -> tuple[str, ...]:
        """The table's name as the engine has it."""
        alchemy = optional("sqlalchemy")
        if self.dialect == "sqlite":
            where = "type IN ('table', 'view') AND name = :name COLLATE NOCASE"
            query, name = f"SELECT name FROM sqlite_master WHERE {where}", self.name[-1]  # noqa: S608
        elif self.dialect == "postgres":
            query = (
                "SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
                "WHERE c.oid = to_regclass(:name)"
            )
            name = ".".join(map(quoted, self.name))
        else:
            return self.name
        found = connection.execute(alchemy.text(query), {"name": name}).fetchone()
        return self.name if found is None else tuple(map(str, found))

    def check(self, statement: str) -> None:
        with self._connected() as connection:
            if self.dialect not in _EXPLAINED:
                return
            try:
                _sent(connection, f"EXPLAIN {statement}")
            except Exception as error:  # noqa: BLE001
                # SQLite does nothing but compile. Others may be about what the table holds, and show again later.
                if self.dialect == "sqlite" or _REFUSED.match(str(_state(error))):
                    raise no_answer(error) from None

    def rows(self, statement: str) -> pl.DataFrame:
        with self._connected() as connection:
            try:
                found = _sent(connection, statement)
                return answer_frame([tuple(row) for row in found.fetchall()], list(found.keys()))
            except Exception as error:  # noqa: BLE001
                raise failed_at_rows(error) from None

    @contextmanager
    def _connected(self) -> "Iterator[sqlalchemy.Connection]":
        """A connection on which nothing was asked yet, and which understands our texts as we write them."""
        alchemy = optional("sqlalchemy")
        try:
            connection = self._engine.connect()
        except (alchemy.exc.SQLAlchemyError, OSError) as error:
            raise no_answer(error) from None
        try:
            try:
                _set_up(connection, self.dialect)
            except (alchemy.exc.SQLAlchemyError, OSError) as error:
                raise no_answer(error) from None
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


def _add_functions(connection: Any, record: object) -> None:  # noqa: ARG001
    def is_text(content: object) -> bool:
        return not isinstance(content, bytes) or decoded(content) is not None

    def digest(content: bytes) -> str:
        return hashlib.md5(content, usedforsecurity=False).hexdigest()

    connection.create_function(IS_TEXT, 1, is_text, deterministic=True)
    connection.create_function(DIGEST, 1, digest, deterministic=True)


def quoted(name: str) -> str:
    """A name as SQL has it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _closed(statement: str) -> pl.DataFrame:  # noqa: ARG001
    raise InputError("the database must be open to answer, got a closed one")


def name_parts(name: str) -> tuple[str, ...]:
    """A table's name after those of its schema and catalogue."""
    parts = tuple(name.split("."))
    if not 1 <= len(parts) <= 3 or not all(parts) or "\0" in name:
        raise ParameterError("name must be a table, or schema.table, got something else")
    return parts


def optional(name: str) -> Any:
    """A module that only tables need."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        raise ParameterError(f"{name} must be installed to ask this source: pip install pianissimo[tables]") from None


def no_answer(error: Exception) -> InputError:
    """The error for what says nothing about rows."""
    return InputError(f"the database must answer, got {type(error).__name__}; nothing was charged")


def failed_at_rows(error: Exception) -> DataDependentError:
    """The error for what may."""
    kind = type(error).__name__
    return DataDependentError(f"the database must answer, got {kind} while it looked at rows; the charge stands")


def answer_frame(rows: list[tuple[Any, ...]], names: list[str]) -> pl.DataFrame:
    """Labels as texts, whatever they were."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    made: list[pl.Series] = []
    for name, column in zip(names, columns, strict=True):
        read, kind = (_text, pl.String) if name == "label" else (int, pl.Int64)
        made.append(pl.Series(name, list(map(read, column)), dtype=kind))
    return pl.DataFrame(made)


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


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
