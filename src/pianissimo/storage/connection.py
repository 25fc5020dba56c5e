"""Where a database is, and what is asked of it: transactions that say whether they are durable, or that nobody knows.

A transaction belongs to one thread and to the very connection that it was begun on. A statement that runs on another
one, or after the engine has given the transaction up by itself, would be committed alone: half of what belongs
together. So each statement asks `Turn` first.
"""

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeGuard
from urllib.parse import unquote

from pianissimo.checks import check_name
from pianissimo.errors import ParameterError, StoreError

Row = Sequence[Any]
_left_to_parents: list[Any] = []
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
    """The URL without an option of ours, and the name that it holds, or the default."""
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
    """Whether a place is a database on a server."""
    return isinstance(place, str) and place.startswith(("postgresql://", "postgres://"))


def is_like_a_url(place: object) -> bool:
    """Whether a text was meant as a URL, though it may be none: it is never shown, and never becomes a file."""
    return isinstance(place, str) and _LIKE_A_URL.match(place) is not None


def shown_place(place: object) -> str:
    """A path, or a URL without what may be a password."""
    return shown_url(str(place)) if is_like_a_url(place) else str(place)


def shown_url(url: str) -> str:
    """A URL for people: scheme, host and database if they are plainly those, and never what may be a password."""
    found = _SHOWN.fullmatch(url)
    return "postgresql://..." if found is None else f"postgresql://{found['host']}{found['database']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """What a database is kept for."""

    what: str
    """For people."""

    journal: str
    """Of an SQLite file: `wal`, or `persist` for a rollback journal."""

    synchronous: str
    """Of an SQLite file: when it syncs."""

    option: str
    """Of a URL: the option that names the schema."""

    schema: str
    """The schema's name where the URL has no such option."""

    at_once: bool = False
    """In PostgreSQL: whether no trigger may wait for the commit, where it would act after all was checked."""


FOR_STORE = Purpose(what="store", journal="wal", synchronous="FULL", option="state", schema="state")

# A file that is moved or copied without what lies beside it still holds every charge. With a write-ahead log it would
# lack the last ones, and look whole.
FOR_LEDGER = Purpose(
    what="ledger", journal="persist", synchronous="EXTRA", option="ledger", schema="budget", at_once=True
)


@dataclass(slots=True)
class _Held:
    thread: int
    process: int
    connection: Any = None
    """None until the transaction is begun."""


class Turn:
    """At most one transaction at a time."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        # A dictionary, since `setdefault` is one step: of two threads that begin at once, one gets the turn.
        self._held: dict[str, _Held] = {}

    @property
    def is_mine(self) -> bool:
        """Whether this thread has begun a transaction and not ended it, though its connection may be lost."""
        held = self._of_this_process()
        return held is not None and held.thread == threading.get_ident()

    def take(self) -> None:
        """Begin; refused while another is open."""
        self._of_this_process()
        mine = _Held(threading.get_ident(), os.getpid())
        held = self._held.setdefault("turn", mine)
        if held is mine:
            return
        self._check_thread(held)
        raise still_open()

    def begun_on(self, connection: Any) -> None:
        """All statements up to the end must run on this connection."""
        held = self._of_this_process()
        if held is None:
            raise lost()
        held.connection = connection

    def connection(self, current: Any) -> Any:
        """The connection of the open transaction; refused unless it is this thread's and still the current one."""
        held = self._of_this_process()
        if held is None:
            raise StoreError("a store must be changed in a transaction, got none; nothing was written")
        self._check_thread(held)
        if held.connection is None or held.connection is not current:
            raise lost()
        return held.connection

    def check_free(self) -> None:
        """Refuse what comes from another thread than the open transaction."""
        held = self._of_this_process()
        if held is not None:
            self._check_thread(held)

    def end(self) -> Any:
        """It is over; gives the connection that it was begun on, or None."""
        if not self.is_mine:
            return None
        held = self._held.pop("turn", None)
        return None if held is None else held.connection

    def _of_this_process(self) -> _Held | None:
        held = self._held.get("turn")
        if held is not None and held.process != os.getpid():
            # What was begun before a fork is the parent's.
            self._held.pop("turn", None)
            return None
        return held

    @staticmethod
    def _check_thread(held: _Held) -> None:
        if held.thread != threading.get_ident():
            raise StoreError(
                "a store must be used by one thread at a time, got another in the middle of a transaction; try again"
            )


class Connection(ABC):
    """One connection of this process, and on it one transaction at a time. It knows statements, not what they mean.

    An engine says how it connects, begins and commits, and which of its errors mean what (`_speaking`).
    """

    words: dict[str, str]
    """What this engine calls things: `integer`, `binary`, `strict` and, to lock a row that is read, `locked`."""

    _fault: type[Exception]
    """What the engine raises."""

    _begin_write: str
    _begin_read: str

    def __init__(self, place: str, purpose: Purpose, *, read_only: bool) -> None:
        self.place = place
        """For people: without a password."""

        self._what = purpose.what
        self._read_only = read_only
        self._connection: Any = None
        self._process = os.getpid()
        self._turn = Turn()

    @abstractmethod
    def _connect(self) -> Any: ...

    @abstractmethod
    def _begun(self, statement: str) -> Any: ...

    @abstractmethod
    def _sent(self, connection: Any, statement: str, values: Row = ()) -> Any: ...

    @abstractmethod
    def _committed(self, connection: Any) -> None: ...

    @abstractmethod
    def _is_open(self, connection: Any) -> bool: ...

    @abstractmethod
    def _is_idle(self, connection: Any) -> bool: ...

    @abstractmethod
    def _speaking(self) -> AbstractContextManager[None]: ...

    @abstractmethod
    def has_table(self, name: str) -> bool:
        """Whether a table of this name is there."""

    @abstractmethod
    def make_stay(self, table: str) -> None:
        """Let rows of a table be neither changed nor deleted."""

    @abstractmethod
    def letting_go(self, table: str) -> AbstractContextManager[None]:
        """Inside the block rows of a table that stay may be deleted; in the transaction begun."""

    @abstractmethod
    def acts_by_itself(self, table: str) -> bool:
        """Whether a trigger or a rule that `make_stay` did not make changes what is written to a table."""

    @abstractmethod
    def is_as_made(self, tables: Mapping[str, str]) -> bool:
        """Whether tables are there as these statements make them, and nothing acts on them but what `make_stay` made.

        In a file, nothing else may be there at all.
        """

    def settle(self) -> None:  # noqa: B027  a server has done it before it answered
        """After an unclean stop: make what is read durable before it is believed."""

    def check_still_there(self) -> None:  # noqa: B027  a server holds its own files
        """`StoreError` if what is written here goes to a place that nobody finds again."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._turn.is_mine

    def begin_write(self) -> None:
        """Begin a transaction that no other writer of the same rows runs beside."""
        if self._read_only:
            raise StoreError(f"a {self._what} must be open for writing to be changed, got one opened to be read")
        self._begin(self._begin_write)

    def begin_read(self) -> None:
        """See one state until `rollback`."""
        self._begin(self._begin_read)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that is undone unless it is committed within."""
        # Wherever an interrupt falls, none is left open: to undo one that is over does nothing.
        try:
            self.begin_write()
            yield
        finally:
            self.rollback()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One state of what is stored."""
        try:
            self.begin_read()
            yield
        finally:
            self.rollback()

    def _begin(self, statement: str) -> None:
        if self._turn.is_mine:
            self._abandon()  # what was begun before is undone
            raise still_open()
        self._turn.take()
        try:
            with self._speaking():
                self._turn.begun_on(self._begun(statement))
        except BaseException:
            self._abandon()
            raise

    def execute(self, statement: str, values: Row = ()) -> list[Row]:
        """Run a statement with `?` for each value, in the transaction begun."""
        with self._speaking():
            return list(self._sent(self._for(statement), statement, values))

    def commit(self) -> None:
        """Make it durable. `UnknownCommitError` if nobody knows whether it is; the connection is dropped then."""
        try:
            self._committed(self._within())
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
            elif not self._is_idle(connection):
                self._sent(connection, "ROLLBACK")
        except self._fault:
            self._abandon()
        except BaseException:
            self._abandon()
            raise

    def close(self) -> None:
        """Let go; the next statement connects anew."""
        # A transaction that is open stays begun, and lost: its statements must not find another connection.
        connection, self._connection = self._connection, None
        if self._process == os.getpid():
            self._drop(connection)
        elif connection is not None:
            _left_to_parents.append(connection)

    def _drop(self, connection: Any) -> None:
        if connection is not None:
            with suppress(self._fault):
                connection.close()

    def _abandon(self) -> None:
        """Let go, and end the transaction with it."""
        self._turn.end()
        self.close()

    def _within(self) -> Any:
        """The connection, for the open transaction alone."""
        connection = self._turn.connection(self._connection)
        if not self._is_open(connection):
            # An engine gives a transaction up by itself after some faults; what follows would be committed alone.
            raise lost()
        return connection

    def _for(self, statement: str) -> Any:
        only_reads = statement.lstrip()[:6].upper() in ("SELECT", "PRAGMA")
        if self._turn.is_mine or not only_reads:
            return self._within()
        self._turn.check_free()
        return self._connected()

    def _idle(self) -> Any:
        """A connection on which no transaction is open; an interrupt may have left one."""
        connection = self._connected()
        if self._is_idle(connection):
            return connection
        self._connection = None
        self._drop(connection)
        return self._connected()

    def _connected(self) -> Any:
        if self._process != os.getpid():
            # A connection carried over a fork shares its parent's locks or session. Even closing it may do harm.
            if self._connection is not None:
                _left_to_parents.append(self._connection)
            self._connection, self._process = None, os.getpid()
        if self._connection is None:
            with self._speaking():
                self._connection = self._connect()
        return self._connection


def kind_of(error: Exception) -> str:
    """The kind of an error alone: an engine's text may quote what was in a row, or the connection's address."""
    return type(error).__name__


def still_open() -> StoreError:
    """The error for a transaction that begins within another."""
    return StoreError("a transaction must end before another begins, got one that is open; it is undone")


def lost() -> StoreError:
    """The error for a transaction that is not there any more."""
    return StoreError("a transaction must stay open until it is committed, got one that was lost; it is undone")
