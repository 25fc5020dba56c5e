"""A ledger among the tables of another store: a charge and what it pays for are in one transaction."""

from collections.abc import Callable

from pianissimo.errors import DamageError, LedgerError, StoreError
from pianissimo.ledger.chain import broken
from pianissimo.ledger.entries import Book
from pianissimo.storage.connection import Connection, Row


class StoreWithin(Book):
    """A ledger's tables over a connection that others use too; where a transaction is open, it is joined."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._joined = False

    def begin_write(self) -> None:
        self._begin(super().begin_write)

    def begin_read(self) -> None:
        self._begin(super().begin_read)

    def _begin(self, begin: Callable[[], None]) -> None:
        self._joined = self._connection.in_transaction
        if not self._joined:
            begin()

    def execute(self, statement: str, values: Row = ()) -> list[Row]:
        return self._connection.execute(statement, values) if self._joined else super().execute(statement, values)

    def commit(self) -> None:
        if not self._joined:
            super().commit()

    def rollback(self) -> None:
        if not self._joined:
            super().rollback()

    def check_tables(self) -> None:
        try:
            acts = any(self._connection.acts_by_itself(table) for table in ("budget", "entries"))
        except (StoreError, DamageError) as error:
            raise LedgerError(str(error)) from None
        if acts:
            raise broken("a ledger must be changed by its owner alone, got triggers or rules that act on it")

    def close(self) -> None:
        self._connection.close()
