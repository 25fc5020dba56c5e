"""A ledger in PostgreSQL, for processes on many machines; needs `pip install pianissimo[postgres]`.

Every writer first locks the budget line. So whoever looks, under that lock, for what a lost connection may have written
waits until the server has made up its mind about it.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from pianissimo.errors import LedgerError
from pianissimo.ledger.chain import broken
from pianissimo.ledger.store import Row, UnknownOutcomeError, tables
from pianissimo.storage.postgres import driver, kind_of, name_in, settle_in, shown_url

_MAKING = 0x706961  # an advisory lock, for the moment when there is no line to lock yet
_PATIENCE = {"lock_timeout": 30_000, "statement_timeout": 60_000, "idle_in_transaction_session_timeout": 60_000}
_STAY = " BEGIN RAISE EXCEPTION 'entries of a ledger stay as they are'; END "
_left_to_parents: list[Any] = []


class PostgresStore:
    """One connection to a PostgreSQL database; `?ledger=NAME` in the URL tells several ledgers there apart.

    >>> PostgresStore("postgresql://localhost/shop?ledger=a b")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: ledger must be 1 to 64 letters, digits, '_' or '-', got 'a b'
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._url, name = name_in(url, "ledger", "budget")
        self.place = shown_url(url)
        self._schema = f'"pianissimo_{name}"'
        self._names = {"budget": f"{self._schema}.budget", "entries": f"{self._schema}.entries"}
        self._read_only = read_only
        self._psycopg = driver("ledger", LedgerError)
        self._connection: Any = None
        self._process = os.getpid()
        self._connected()

    def begin_write(self) -> None:
        if self._read_only:
            raise LedgerError("a ledger must be open for writing to be charged, got one opened to be read")
        try:
            # A trigger that waits for the commit would act after all was checked.
            self._begin("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET CONSTRAINTS ALL IMMEDIATE")
            if self.has_tables():
                self.execute("SELECT id FROM {budget} WHERE id = 1 FOR UPDATE")
            else:
                self.execute("SELECT pg_advisory_xact_lock(?)", [_MAKING])
        except BaseException:
            self.rollback()
            raise

    def begin_read(self) -> None:
        self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def execute(self, statement: str, values: Row = ()) -> list[Row]:
        with self._speaking():
            return self._run(statement, values)

    def commit(self) -> None:
        try:
            self._run("COMMIT")
        except self._psycopg.Error as error:
            self.close()
            raise UnknownOutcomeError(f"PostgreSQL must confirm a commit, got {kind_of(error)}", durable=True) from None
        except BaseException:
            self.close()
            raise

    def rollback(self) -> None:
        if self._connection is None or self._process != os.getpid() or self._is_idle():
            return
        try:
            self._run("ROLLBACK")
        except self._psycopg.Error:
            self.close()
        except BaseException:
            self.close()
            raise

    def has_tables(self) -> bool:
        names = [self._names["budget"], self._names["entries"]]
        found = self.execute("SELECT to_regclass(?) IS NOT NULL AND to_regclass(?) IS NOT NULL", names)
        return bool(found[0][0])

    def make_tables(self) -> None:
        self.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
        for statement in tables(integer="BIGINT", binary="BYTEA", strict=""):
            self.execute(statement)
        self.execute(f"CREATE FUNCTION {self._schema}.entries_stay() RETURNS trigger LANGUAGE plpgsql AS $${_STAY}$$")
        self.execute(
            "CREATE TRIGGER entries_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON {entries} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {self._schema}.entries_stay()"
        )

    def check_tables(self) -> None:
        """Refuse tables that are something else, and triggers or rules that are not ours."""
        (found,) = self.execute(
            "SELECT count(*) FILTER (WHERE relkind = 'r' AND NOT relrowsecurity AND NOT relhasrules), "
            "(SELECT count(*) FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid WHERE NOT t.tgisinternal "
            "AND t.tgrelid = ANY (ARRAY[to_regclass(?), to_regclass(?)]::oid[]) "
            "AND (t.tgname <> 'entries_stay' OR p.prosrc <> ?)) "
            "FROM pg_class WHERE oid = ANY (ARRAY[to_regclass(?), to_regclass(?)]::oid[])",
            [*self._names.values(), _STAY, *self._names.values()],
        )
        if tuple(found) != (2, 0):
            raise broken("a ledger must hold its own tables and nothing else, got other tables, rules or triggers")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(self._psycopg.Error):
                connection.close()

    def _is_idle(self) -> bool:
        return bool(self._connection.info.transaction_status == self._psycopg.pq.TransactionStatus.IDLE)

    def _begin(self, statement: str) -> None:
        try:
            self._connected()
            if not self._is_idle():
                self.close()  # an interrupt left something begun
            self._run(statement)
        except self._psycopg.Error:
            # An old connection may be dead. Nothing was sent on it, so a new one may start afresh.
            self.close()
            with self._speaking():
                self._connected()
                self._run(statement)

    def _run(self, statement: str, values: Row = ()) -> list[Row]:
        cursor = self._connected().execute(statement.format(**self._names).replace("?", "%s"), tuple(values) or None)
        return list(cursor.fetchall()) if cursor.description else []

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
            settle_in(connection, "ledger", LedgerError, _PATIENCE)
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            raise LedgerError(
                f"{self.place} must be a ledger that can be read and written, got {kind_of(error)}"
            ) from None
