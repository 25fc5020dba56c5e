"""A ledger in an SQLite file: rollback journal, every commit synced, any number of processes on one machine.

The journal is kept and its header zeroed and synced at each commit (`PERSIST`), which is as durable as deleting it and
saves two syncs of the folder. No write-ahead log: engines below 3.51.3 can corrupt it with several writers. No memory
mapping, no network file system: neither keeps the order of writes that the journal relies on.

**Nothing but SQLite opens the file.** POSIX locks belong to a process and a file: whoever closes any descriptor of the
file drops every lock that the process holds on it, also those of other threads in the middle of a charge.
"""

import contextlib
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from pianissimo.errors import LedgerError
from pianissimo.ledger.chain import broken
from pianissimo.ledger.store import AbsentError, Row, UnknownOutcomeError, tables
from pianissimo.storage.files import NO_FOLLOW, reason

try:
    import fcntl
except ImportError:  # not on Windows: there SQLite's own waiting does, more slowly
    fcntl = None  # type: ignore[assignment]

WAIT_SECONDS = 30.0
"""How long to wait for other processes before giving up, with nothing charged."""

_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs", "lustre"})
_EXTRA = 3
_left_to_parents: list[sqlite3.Connection] = []
_left_open: list[int] = []


class SqliteStore:
    """One connection to an SQLite file.

    >>> SqliteStore(Path("nowhere.db"), create=False)
    Traceback (most recent call last):
    pianissimo.ledger.store.AbsentError: there must be a ledger at nowhere.db, got no such file; give a cap to make one
    """

    def __init__(self, path: Path, *, create: bool, read_only: bool = False) -> None:
        self.place = str(path)
        self._path = path.resolve()  # one name for the queue, whichever link leads here
        self._read_only = read_only
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._queue: int | None = None
        if not create and not self._path.exists():
            raise AbsentError(self.place, "no such file")
        _refuse_network(self._path, self.place)
        if create and not self._path.exists():
            with self._speaking():
                _make_file(self._path)
        self._connected()

    def begin_write(self) -> None:
        if self._read_only:
            raise LedgerError("a ledger must be open for writing to be charged, got one opened to be read")
        try:
            self._clear()
            self._enqueue()
            with self._speaking():
                self._connected().execute("BEGIN IMMEDIATE")
        except BaseException:
            self.rollback()
            raise

    def begin_read(self) -> None:
        self._clear()
        with self._speaking():
            self._connected().execute("BEGIN")

    def execute(self, statement: str, values: Row = ()) -> list[Row]:
        with self._speaking():
            named = statement.format(budget="budget", entries="entries")
            return self._connected().execute(named, tuple(values)).fetchall()

    def commit(self) -> None:
        connection = self._connected()
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
            if code == sqlite3.SQLITE_BUSY and connection.in_transaction:
                self.rollback()
                raise LedgerError("the ledger must be free to write to, got readers that stay; try again") from None
            # After a failed sync the pages may look written and not be on the disk.
            durable = code not in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT)
            self.close()
            raise UnknownOutcomeError(f"the ledger must be writable, got {_name(error)}", durable=durable) from None
        except BaseException:
            self.close()
            raise
        finally:
            self._dequeue()

    def rollback(self) -> None:
        if self._process != os.getpid():
            return
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._dequeue()
        except sqlite3.Error:
            self.close()
        except BaseException:
            self.close()
            raise

    def has_tables(self) -> bool:
        found = self.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('budget', 'entries')"
        )
        return bool(found[0][0] == 2)

    def make_tables(self) -> None:
        for statement in (*_tables().values(), *_triggers().values()):
            self.execute(statement)

    def check_tables(self) -> None:
        """Refuse a file that holds anything but our two tables, as we made them, and our two triggers."""
        rows = self.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        found = {str(name): sql for name, sql in rows}
        ours, extra = _named(_tables()), _named(_triggers())
        if any(found.pop(name, None) != sql for name, sql in ours.items()) or not found.items() <= extra.items():
            raise broken("a ledger must hold its own tables and nothing else, got other tables, views or triggers")

    def close(self) -> None:
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    connection.close()
        finally:
            self._dequeue()

    def _clear(self) -> None:
        """Undo what an interrupt left begun."""
        self._connected()  # first, as what was begun before a fork is the parent's
        self.rollback()

    def _connected(self) -> sqlite3.Connection:
        if self._process != os.getpid():
            # A connection carried over a fork would share its parent's locks. Even closing it may do harm.
            if self._connection is not None:
                _left_to_parents.append(self._connection)
            queue, self._queue = self._queue, None
            if queue is not None:
                os.close(queue)  # the parent's turn stays the parent's, and ends with it
            self._connection, self._process = None, os.getpid()
        if self._connection is None:
            with self._speaking():
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        address = f"file:{quote(str(self._path))}?mode={'ro' if self._read_only else 'rw'}"
        connection = sqlite3.connect(
            address, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            _set_up(connection, read_only=self._read_only)
        except BaseException:
            connection.close()
            raise
        return connection

    def _enqueue(self) -> None:
        """Wait for the turn to write: SQLite's own waiting sleeps up to 100 ms at a time. Nothing rests on it."""
        if fcntl is None:
            return
        deadline = time.monotonic() + WAIT_SECONDS
        with self._speaking():
            # Kept before it is locked, so that an interrupt leaves nothing locked that nobody knows of.
            self._queue = os.open(f"{self._path}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_FOLLOW, 0o600)
            if os.path.samestat(os.fstat(self._queue), os.stat(self._path)):
                _left_open.append(self._queue)  # closing it would drop the locks on the ledger
                self._queue = None
                raise LedgerError(f"{self.place}-queue must be a file of its own, got the ledger under another name")
        while True:
            try:
                fcntl.flock(self._queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() > deadline:
                    self._dequeue()
                    raise LedgerError("the ledger must be free to write to, got a process that holds it") from None
                time.sleep(random.uniform(0.001, 0.006))  # noqa: S311
            else:
                return

    def _dequeue(self) -> None:
        queue = self._queue
        if queue is None:
            return
        if self._process == os.getpid():
            with contextlib.suppress(OSError):
                fcntl.flock(queue, fcntl.LOCK_UN)  # a child forked meanwhile has this descriptor too
        self._queue = None
        os.close(queue)

    @contextlib.contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise LedgerError(
                f"{self.place} must be a ledger that can be read and written, got {_name(error)}"
            ) from None
        except OSError as error:
            raise LedgerError(f"{self.place} must be a file of one's own, got {reason(error)}") from None


def _make_file(path: Path) -> None:
    """An empty file for its owner's eyes (who asked what); SQLite gives its journal the same rights.

    Made under another name and closed before it is there under its own: see above.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        os.close(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def _tables() -> dict[str, str]:
    return dict(zip(("budget", "entries"), tables(integer="INTEGER", binary="BLOB", strict=" STRICT"), strict=True))


def _triggers() -> dict[str, str]:
    stay = "BEGIN SELECT RAISE(ABORT, 'entries of a ledger stay as they are'); END"
    changes = {f"entries_stay_{change.lower()}": change for change in ("UPDATE", "DELETE")}
    return {name: f"CREATE TRIGGER {name} BEFORE {change} ON {{entries}} {stay}" for name, change in changes.items()}


def _named(statements: dict[str, str]) -> dict[str, str]:
    return {name: statement.format(budget="budget", entries="entries") for name, statement in statements.items()}


def _set_up(connection: sqlite3.Connection, *, read_only: bool) -> None:
    for setting in ("mmap_size=0", "trusted_schema=OFF", "cell_size_check=ON", "fullfsync=ON"):
        connection.execute(f"PRAGMA {setting}")
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        raise LedgerError("a ledger must keep a rollback journal, got a write-ahead log; set journal_mode=DELETE")
    if not read_only:
        (mode,) = connection.execute("PRAGMA journal_mode=PERSIST").fetchone()
        connection.execute("PRAGMA synchronous=EXTRA")
        (synchronous,) = connection.execute("PRAGMA synchronous").fetchone()
        if (mode, synchronous) != ("persist", _EXTRA):
            raise LedgerError("a ledger must sync every commit, got an SQLite that does not")


def _name(error: sqlite3.Error) -> str:
    # The name alone: SQLite's text may quote what was in a row.
    return str(getattr(error, "sqlite_errorname", type(error).__name__))


def _refuse_network(path: Path, place: str) -> None:
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    folder = str(path.parent.resolve()).rstrip("/") + "/"
    mounts = [line.split(" ")[1:3] for line in lines]
    within = [(len(where), kind) for where, kind in mounts if folder.startswith(where.rstrip("/") + "/")]
    if within and max(within)[1] in _NETWORK:
        raise LedgerError(f"a ledger must be on a local disk, got a network file system for {place}; use PostgreSQL")
