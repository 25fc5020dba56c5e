"""PostgreSQL, for stores that outlive their machine and ledgers of many; needs `pip install pianissimo[postgres]`.

Each store and each ledger has a schema of its own, named by `?state=NAME` or `?ledger=NAME` in the URL. A server that
could forget a commit is refused. All that write to a schema take turns by one lock of the transaction: who looks, under
that lock, for what a lost connection may have written waits until the server has made up its mind about it.
"""

import contextlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from pianissimo.errors import DiskFullError, StoreError, UnknownCommitError
from pianissimo.storage.connection import FOR_STORE, Connection, Purpose, Row, kind_of, lost, name_in, shown_url

_MAKING = 0x706962  # an advisory lock, for the moment when there is no row to lock yet
_PATIENCE = {"lock_timeout": 30_000, "statement_timeout": 120_000, "idle_in_transaction_session_timeout": 300_000}
_STAY = " BEGIN RAISE EXCEPTION 'these rows stay as they are'; END "


class PostgresConnection(Connection):
    """One connection to a PostgreSQL database."""

    _begin_write = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
    _begin_read = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    words = {"integer": "BIGINT", "binary": "BYTEA", "strict": "", "locked": " FOR UPDATE"}  # noqa: RUF012

    def __init__(
        self, url: str, *, create: bool = False, read_only: bool = False, purpose: Purpose = FOR_STORE
    ) -> None:
        self._url, name = name_in(url, purpose.option, purpose.schema)
        super().__init__(shown_url(url), purpose, read_only=read_only)
        self.schema = f"pianissimo_{name}"
        self._psycopg = _driver(purpose.what)
        self._fault = self._psycopg.Error
        if purpose.at_once:
            self._begin_write += "; SET CONSTRAINTS ALL IMMEDIATE"
        if create and not read_only:
            self._make_schema()
        self._connected()

    def _make_schema(self) -> None:
        if self.execute("SELECT 1 FROM pg_namespace WHERE nspname = ?", [self.schema]):
            return
        with self.writing():  # under the lock: of two that make it at once, one would fail
            self.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
            self.commit()

    def begin_write(self) -> None:
        super().begin_write()
        try:
            # All writers one after the other; what keeps them safe are unique keys, epochs and conditional updates.
            self.execute("SELECT pg_advisory_xact_lock(?, hashtext(?))", [_MAKING, self.schema])
        except BaseException:
            self.rollback()
            raise

    def _begun(self, statement: str) -> Any:
        try:
            connection = self._idle()
            connection.execute(statement)
        except self._fault:
            # An old connection may be dead. Nothing was sent on it, so a new one may start afresh.
            old, self._connection = self._connection, None
            self._drop(old)
            connection = self._idle()
            connection.execute(statement)
        return connection

    def _sent(self, connection: Any, statement: str, values: Row = ()) -> list[Row]:
        done = connection.execute(statement.replace("?", "%s"), tuple(values) or None)
        return list(done.fetchall()) if done.description else []

    def _committed(self, connection: Any) -> None:
        try:
            done = connection.execute("COMMIT")
        except self._fault as error:
            self._abandon()
            full = isinstance(error, self._psycopg.errors.DiskFull)
            raise UnknownCommitError(f"PostgreSQL must confirm a commit, got {kind_of(error)}", full=full) from None
        if done.statusmessage != "COMMIT":
            raise lost()  # after a statement that failed, the server undoes and says so without an error

    def _is_open(self, connection: Any) -> bool:
        status = self._psycopg.pq.TransactionStatus
        return not connection.closed and connection.info.transaction_status in (status.INTRANS, status.INERROR)

    def _is_idle(self, connection: Any) -> bool:
        return bool(connection.info.transaction_status == self._psycopg.pq.TransactionStatus.IDLE)

    def has_table(self, name: str) -> bool:
        return bool(self.execute("SELECT to_regclass(?) IS NOT NULL", [f'"{self.schema}".{name}'])[0][0])

    def make_stay(self, table: str) -> None:
        self.execute(f"CREATE OR REPLACE FUNCTION rows_stay() RETURNS trigger LANGUAGE plpgsql AS $${_STAY}$$")
        self.execute(
            f"CREATE TRIGGER {table}_stays BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION rows_stay()"
        )

    @contextlib.contextmanager
    def letting_go(self, table: str) -> Iterator[None]:
        # Readers go on meanwhile: this lock keeps out other writers alone.
        self.execute(f"ALTER TABLE {table} DISABLE TRIGGER {table}_stays")
        yield
        self.execute(f"ALTER TABLE {table} ENABLE TRIGGER {table}_stays")

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

    def try_lock(self, name: str) -> bool:
        """Hold a lock as long as this session lives; False if another session does."""
        return bool(self.execute("SELECT pg_try_advisory_lock(?, hashtext(?))", [_MAKING + 1, name])[0][0])

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
            raise StoreError(f"{self.place} must be a {what}, got {kind_of(error)}") from None


def _driver(what: str) -> ModuleType:
    """The module that speaks to the server, which is an extra."""
    try:
        import psycopg
    except ImportError:
        raise StoreError(f"a {what} in PostgreSQL must have its driver; pip install pianissimo[postgres]") from None
    return psycopg
