"""A ledger among the tables of another store: a charge and what it pays for are in one transaction."""

from collections.abc import Callable

from pianissimo.errors import DamageError, LedgerError, StoreError, SyncError, UnknownCommitError
from pianissimo.ledger.chain import broken
from pianissimo.ledger.store import Row, UnknownOutcomeError, tables
from pianissimo.storage.connection import Connection

_NAMES = {"budget": "budget", "entries": "entries"}


class StoreWithin:
    """A ledger's tables over a connection that others use too; where a transaction is open, it is joined."""

    def __init__(self, connection: Connection) -> None:
        self.place = connection.place
        self._connection = connection
        self._joined = False

    def begin_write(self) -> None:
        self._joined = self._connection.in_transaction
        if not self._joined:
            self._own(self._connection.begin_write)

    def begin_read(self) -> None:
        self._joined = self._connection.in_transaction
        if not self._joined:
            self._own(self._connection.begin_read)

    def execute(self, statement: str, values: Row = ()) -> list[Row]:
        if self._joined:
            return self._connection.execute(statement.format(**_NAMES), values)
        try:
            return self._connection.execute(statement.format(**_NAMES), values)
        except (StoreError, DamageError) as error:
            raise LedgerError(str(error)) from None

    def commit(self) -> None:
        if self._joined:
            return
        try:
            self._connection.commit()
        except (UnknownCommitError, SyncError) as error:
            raise UnknownOutcomeError(str(error), durable=not isinstance(error, SyncError)) from None
        except StoreError as error:
            raise LedgerError(str(error)) from None

    def rollback(self) -> None:
        if not self._joined:
            self._connection.rollback()

    def has_tables(self) -> bool:
        return self._connection.has_table("budget") and self._connection.has_table("entries")

    def make_tables(self) -> None:
        words = self._connection.words
        for statement in tables(integer=words["integer"], binary=words["binary"], strict=words["strict"]):
            self.execute(statement)
        self._connection.make_stay("entries")

    def check_tables(self) -> None:
        if any(self._connection.acts_by_itself(table) for table in _NAMES.values()):
            raise broken("a ledger must be changed by its owner alone, got triggers or rules that act on it")

    def close(self) -> None:
        self._connection.close()

    def _own(self, begin: Callable[[], None]) -> None:
        try:
            begin()
        except (StoreError, DamageError) as error:
            raise LedgerError(str(error)) from None
