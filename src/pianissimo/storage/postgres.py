"""PostgreSQL, for stores that outlive their machine and ledgers of many; needs `pip install pianissimo[postgres]`.

Each store and each ledger has a schema of its own, named by `?state=NAME` or `?ledger=NAME` in the URL. A server that
could forget a commit is refused. All that write to a schema take turns by one lock of the transaction: who looks, under
that lock, for what a lost connection may have written waits until the server has made up its mind about it.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, TypeGuard
from urllib.parse import unquote

from pianissimo.checks import check_name
from pianissimo.errors import DiskFullError, ParameterError, StoreError, UnknownCommitError
from pianissimo.storage.connection import FOR_STORE, Purpose, Row, Turn, lost, only_reads, still_open

_LONGEST_NAME = 50  # PostgreSQL cuts names off at 63 bytes, and two of them would become one
_HOST = r"(?:[A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?"
# An @ after the first slash or question mark may be the end of a password with such a sign in it.
_SHOWN = re.compile(
    rf"postgres(?:ql)?://(?:[^@/?#]*@)?(?P<host>{_HOST}(?:,{_HOST})*)(?P<database>(?:/[A-Za-z0-9_.%-]*)?)(?:\?[^@#]*)?"
)

# Mistyped, relative to a folder, or the driver's other notation: whatever may hold a password and is no plain path.
_LIKE_A_URL = re.compile(
    r"[a-z][a-z0-9+.-]+:/|.*://|(?:.*/)?postgres(?:ql)?(?::|//)|.*:[^/]*@|.*\bpassword\s*=", re.IGNORECASE | re.DOTALL
)


def name_in(url: str, option: str, default: str) -> tuple[str, str]:
    """The URL without an option of ours, and the name that it holds, or the default.

    >>> name_in("postgresql://localhost/shop?state=visits&sslmode=require", "state", "state")
    ('postgresql://localhost/shop?sslmode=require', 'visits')
    """
    address, _, query = url.partition("?")
    options = [each for each in query.split("&") if each]  # as they are: the driver has rules of its own for them
    names = [unquote(each.partition("=")[2]) for each in options if each.startswith(f"{option}=")] or [default]
    if len(names) != 1:
        raise ParameterError(f"{option} must be named once in a URL, got {len(names)} names")
    check_name(**{option: names[0]})
    if len(names[0]) > _LONGEST_NAME:
        raise ParameterError(f"{option} must have a name of at most {_LONGEST_NAME} letters, got {len(names[0])}")
    rest = "&".join(each for each in options if not each.startswith(f"{option}="))
    return f"{address}?{rest}" if rest else address, names[0]


def is_server(place: object) -> TypeGuard[str]:
    """Whether a place is a database on a server.

    >>> is_server("postgresql://localhost/shop"), is_server("shop")
    (True, False)
    """
    return isinstance(place, str) and place.startswith(("postgresql://", "postgres://"))


def is_like_a_url(place: object) -> bool:
    """Whether a text was meant as a URL, though it may be none: it is never shown, and never becomes a file.

    >>> [is_like_a_url(place) for place in ("postgresql:/ada:geheim@host/shop", "host=h password=geheim", "C:/shop")]
    [True, True, False]
    """
    return isinstance(place, str) and _LIKE_A_URL.match(place) is not None


def shown_place(place: object) -> str:
    """A path, or a URL without what may be a password.

    >>> shown_place("postgresql://ada:geheim@db.example/shop"), shown_place("visits")
    ('postgresql://db.example/shop', 'visits')
    """
    return shown_url(str(place)) if is_like_a_url(place) else str(place)


def shown_url(url: str) -> str:
    """A URL for people: scheme, host and database if they are plainly those, and never what may be a password.

    >>> shown_url("postgresql://ada:geheim@db.example:5432/shop?sslmode=require")
    'postgresql://db.example:5432/shop'
    >>> shown_url("postgresql://ada:ge/heim@db.example/shop")
    'postgresql://...'
    """
    found = _SHOWN.fullmatch(url)
    return "postgresql://..." if found is None else f"postgresql://{found['host']}{found['database']}"


_MAKING = 0x706962  # an advisory lock, for the moment when there is no row to lock yet
_PATIENCE = {"lock_timeout": 30_000, "statement_timeout": 120_000, "idle_in_transaction_session_timeout": 300_000}
_left_to_parents: list[Any] = []
_STAY = " BEGIN RAISE EXCEPTION 'these rows stay as they are'; END "


class PostgresConnection:
    """One connection to a PostgreSQL database.

    >>> PostgresConnection("postgresql://localhost/shop?state=a b")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: state must be 1 to 64 letters, digits, '_' or '-', got 'a b'
    """

    words = {"integer": "BIGINT", "binary": "BYTEA", "strict": "", "locked": " FOR UPDATE"}  # noqa: RUF012

    def __init__(
        self, url: str, *, create: bool = False, read_only: bool = False, purpose: Purpose = FOR_STORE
    ) -> None:
        self._url, name = name_in(url, purpose.option, purpose.schema)
        self._what = purpose.what
        self.place = shown_url(url)
        self.schema = f"pianissimo_{name}"
        self._read_only = read_only
        self._psycopg = _driver(purpose.what)
        self._connection: Any = None
        self._turn = Turn()
        self._process = os.getpid()
        if create and not read_only:
            self._make_schema()
        self._connected()

    def _make_schema(self) -> None:
        if self.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", [self.schema]):
            return
        try:
            self.begin_write()  # under the lock: of two that make it at once, one would fail
            self.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
            self.commit()
        except BaseException:
            self.rollback()
            raise

    @property
    def in_transaction(self) -> bool:
        return self._turn.is_mine

    def begin_write(self) -> None:
        if self._read_only:
            raise StoreError(f"a {self._what} must be open for writing to be changed, got one opened to be read")
        # A trigger that waits for the commit would act after all was checked.
        self._begin("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET CONSTRAINTS ALL IMMEDIATE")
        try:
            # All writers one after the other; what keeps them safe are unique keys, epochs and conditional updates.
            self.execute("SELECT pg_advisory_xact_lock(?, hashtext(?))", [_MAKING, self.schema])
        except BaseException:
            self.rollback()
            raise

    def begin_read(self) -> None:
        self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def execute(self, statement: str, values: Row = ()) -> list[Row]:
        with self._speaking():
            return _rows(_sent(self._for(statement), statement, values))

    def commit(self) -> None:
        try:
            connection = self._within()
            try:
                done = _sent(connection, "COMMIT")
            except self._psycopg.Error as error:
                self._abandon()
                full, got = isinstance(error, self._psycopg.errors.DiskFull), _kind_of(error)
                raise UnknownCommitError(f"PostgreSQL must confirm a commit, got {got}", full=full) from None
            _check_committed(done)
            self._turn.end()
        except StoreError:
            self.rollback()  # of nothing, unless the transaction was lost
            raise
        except BaseException:
            self._abandon()
            raise

    def rollback(self) -> None:
        """Undo, or drop the connection; of a transaction that another thread has begun, nothing."""
        if not self._turn.is_mine:
            return
        try:
            connection = self._turn.end()
            if connection is None or connection is not self._connection:
                self._abandon()
                self._drop(connection)
            elif connection.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE:
                _sent(connection, "ROLLBACK")
        except self._psycopg.Error:
            self._abandon()
        except BaseException:
            self._abandon()
            raise

    def has_table(self, name: str) -> bool:
        return bool(self.execute("SELECT to_regclass(?) IS NOT NULL", [f'"{self.schema}".{name}'])[0][0])

    def make_stay(self, table: str) -> None:
        self.execute(f"CREATE OR REPLACE FUNCTION rows_stay() RETURNS trigger LANGUAGE plpgsql AS $${_STAY}$$")
        self.execute(
            f"CREATE TRIGGER {table}_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION rows_stay()"
        )

    def acts_by_itself(self, table: str) -> bool:
        (found,) = self.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid "
            "WHERE NOT t.tgisinternal AND t.tgrelid = to_regclass(?) AND p.prosrc <> ?) OR "
            "EXISTS (SELECT 1 FROM pg_class WHERE oid = to_regclass(?) "
            "AND (relkind <> 'r' OR relrowsecurity OR relhasrules))",
            [table, _STAY, table],
        )
        return bool(found[0])

    def is_as_made(self, tables: Mapping[str, str]) -> bool:
        return all(self.has_table(table) and not self.acts_by_itself(table) for table in tables)

    def settle(self) -> None:
        """The server's own recovery did it before it answered."""

    def check_still_there(self) -> None:
        """The server holds its own files."""

    def try_lock(self, name: str) -> bool:
        """Hold a lock as long as this session lives; False if another session does."""
        return bool(self.execute("SELECT pg_try_advisory_lock(?, hashtext(?))", [_MAKING + 1, name])[0][0])

    def close(self) -> None:
        # A transaction that is open stays begun, and lost: its statements must not find another connection.
        connection, self._connection = self._connection, None
        if self._process == os.getpid():
            self._drop(connection)
        elif connection is not None:
            _left_to_parents.append(connection)

    def _drop(self, connection: Any) -> None:
        if connection is not None:
            with contextlib.suppress(self._psycopg.Error):
                connection.close()

    def _begin(self, statement: str) -> None:
        if self._turn.is_mine:
            self._abandon()  # what was begun before is undone
            raise still_open()
        self._turn.take()
        try:
            with self._speaking():
                try:
                    connection = self._idle()
                    _sent(connection, statement)
                except self._psycopg.Error:
                    # An old connection may be dead. Nothing was sent on it, so a new one may start afresh.
                    old, self._connection = self._connection, None
                    self._drop(old)
                    connection = self._idle()
                    _sent(connection, statement)
                self._turn.begun_on(connection)
        except BaseException:
            self._abandon()
            raise

    def _idle(self) -> Any:
        """A connection on which no transaction is open: to begin another there is only a warning of the server's."""
        connection = self._connected()
        if connection.info.transaction_status == self._psycopg.pq.TransactionStatus.IDLE:
            return connection
        self._connection = None
        self._drop(connection)
        return self._connected()

    def _abandon(self) -> None:
        """Let go, and end the transaction with it."""
        self._turn.end()
        self.close()

    def _within(self) -> Any:
        """The connection, for the open transaction alone."""
        connection = self._turn.connection(self._connection)
        status = self._psycopg.pq.TransactionStatus
        if connection.closed or connection.info.transaction_status not in (status.INTRANS, status.INERROR):
            raise lost()
        return connection

    def _for(self, statement: str) -> Any:
        if self._turn.is_mine or not only_reads(statement):
            return self._within()
        self._turn.check_free()
        return self._connected()

    def _connected(self) -> Any:
        if self._process != os.getpid():
            # To close a connection carried over a fork would end its parent's session.
            _left_to_parents.append(self._connection)
            self._connection, self._process = None, os.getpid()
        if self._connection is None:
            with self._speaking():
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> Any:
        connection = self._psycopg.connect(self._url, autocommit=True, connect_timeout=10)
        try:
            self._settle_in(connection)
            connection.execute(f'SET search_path TO "{self.schema}"')
        except BaseException:
            connection.close()
            raise
        return connection

    def _settle_in(self, connection: Any) -> None:
        """Set how long to wait, in milliseconds, and refuse a server that could forget a commit."""
        for name, milliseconds in _PATIENCE.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, str(milliseconds)))
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            (value,) = connection.execute("SELECT current_setting(%s)", (name,)).fetchone()
            if value == "off":
                raise StoreError(f"{name} must be on for a {self._what}, got off: a crash could undo a commit")

    @contextlib.contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.errors.DiskFull:
            self.rollback()
            raise DiskFullError(f"{self.place} must have room on its disk, got none; make room") from None
        except self._psycopg.Error as error:
            what = f"{self._what} that can be read and written"
            raise StoreError(f"{self.place} must be a {what}, got {_kind_of(error)}") from None


def _driver(what: str) -> ModuleType:
    """The module that speaks to the server, which is an extra."""
    try:
        import psycopg
    except ImportError:
        raise StoreError(f"a {what} in PostgreSQL must have its driver; pip install pianissimo[postgres]") from None
    return psycopg


def _kind_of(error: Exception) -> str:
    """The kind of an error alone: the server's text may quote what was in a row, or the connection's address."""
    return type(error).__name__


def _sent(connection: Any, statement: str, values: Row = ()) -> Any:
    return connection.execute(statement.replace("?", "%s"), tuple(values) or None)


def _rows(cursor: Any) -> list[Row]:
    return list(cursor.fetchall()) if cursor.description else []


def _check_committed(done: Any) -> None:
    # After a statement that failed, the server undoes and says so without an error.
    if done.statusmessage != "COMMIT":
        raise lost()
