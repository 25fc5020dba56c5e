"""What is asked of a database: transactions that say whether they are durable, or that nobody knows."""

from collections.abc import Sequence
from typing import Any, Protocol

Row = Sequence[Any]


class Connection(Protocol):
    """One connection. It knows transactions and statements, not what they mean."""

    place: str
    """For people: without a password."""

    words: dict[str, str]
    """What this engine calls things: `integer`, `binary`, `strict` and, to lock a row that is read, `locked`."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def begin_write(self) -> None:
        """Begin a transaction that no other writer of the same rows runs beside."""

    def begin_read(self) -> None:
        """See one state until `rollback`."""

    def execute(self, statement: str, values: Row = ()) -> list[Row]:
        """Run a statement with `?` for each value, in the transaction begun."""

    def commit(self) -> None:
        """Make it durable. `UnknownCommitError` if nobody knows whether it is; the connection is dropped then."""

    def rollback(self) -> None:
        """Undo, or drop the connection."""

    def has_table(self, name: str) -> bool:
        """Whether a table of this name is there."""

    def make_stay(self, table: str) -> None:
        """Let rows of a table be neither changed nor deleted."""

    def acts_by_itself(self, table: str) -> bool:
        """Whether a trigger or a rule that `make_stay` did not make changes what is written to a table."""

    def settle(self) -> None:
        """After an unclean stop: make what is read durable before it is believed."""

    def check_still_there(self) -> None:
        """`StoreError` if what is written here goes to a place that nobody finds again."""

    def close(self) -> None:
        """Let go; the next statement connects anew."""
