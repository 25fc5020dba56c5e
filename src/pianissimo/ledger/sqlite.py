"""A ledger in an SQLite file: rollback journal, every commit synced, any number of processes on one machine.

The journal is kept and its header zeroed and synced at each commit (`PERSIST`), which is as durable as deleting it and
saves two syncs of the folder. No write-ahead log: engines below 3.51.3 can corrupt it with several writers. No memory
mapping, no network file system: neither keeps the order of writes that the journal relies on.
"""

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from pianissimo.errors import LedgerError
from pianissimo.ledger.store import Row, UnknownOutcomeError, tables

try:
    import fcntl
except ImportError:  # not on Windows: there SQLite's own waiting does, more slowly
    fcntl = None  # type: ignore[assignment]

WAIT_SECONDS = 30.0
"""How long to wait for other processes before giving up, with nothing charged."""

_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs", "lustre"})
_EXTRA = 3
_left_to_parents: list[sqlite3.Connection] = []


class SqliteStore:
    """One connection to an SQLite file.

    >>> SqliteStore(Path("nowhere.db"), create=False)
    Traceback (most recent call last):
    pianissimo.errors.LedgerError: there must be a ledger at nowhere.db, got no such file; give a cap to make one
    """

    def __init__(self, path: Path, *, create: bool, read_only: bool = False) -> None:
        self.place = str(path)
        self._path = path.absolute()
        self._read_only = read_only
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._queue: int | None = None
        if not create and not self._path.exists():
            raise LedgerError(f"there must be a ledger at {path}, got no such file; give a cap to make one")
        _refuse_network(self._path, self.place)
        if create:
            with self._speaking():
                # Who asked what is for the owner's eyes; SQLite gives its journal the same rights.
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        self._connected()

    def begin_write(self) -> None:
        if self._read_only:
            raise LedgerError("a ledger must be open for writing to be charged, got one opened to be read")
        connection = self._connected()
        self._enqueue()
        try:
            with self._speaking():
                connection.execute("BEGIN IMMEDIATE")
        except BaseException:
            self._dequeue()
            raise

    def begin_read(self) -> None:
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
        try:
            if self._connection is not None and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self.close()
        finally:
            self._dequeue()

    def has_tables(self) -> bool:
        found = self.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN ('budget', 'entries')"
        )
        return bool(found[0][0] == 2)

    def make_tables(self) -> None:
        for statement in tables(integer="INTEGER", binary="BLOB", strict=" STRICT"):
            self.execute(statement)
        for change in ("UPDATE", "DELETE"):
            self.execute(
                f"CREATE TRIGGER entries_stay_{change.lower()} BEFORE {change} ON {{entries}} "
                "BEGIN SELECT RAISE(ABORT, 'entries of a ledger stay as they are'); END"
            )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _connected(self) -> sqlite3.Connection:
        if self._process != os.getpid():
            # A connection carried over a fork would share its parent's locks. Even closing it may do harm.
            if self._connection is not None:
                _left_to_parents.append(self._connection)
            self._connection, self._queue, self._process = None, None, os.getpid()
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
            queue = os.open(f"{self._path}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while True:
            try:
                fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() > deadline:
                    os.close(queue)
                    raise LedgerError("the ledger must be free to write to, got a process that holds it") from None
                time.sleep(random.uniform(0.001, 0.006))  # noqa: S311
            else:
                self._queue = queue
                return

    def _dequeue(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None and self._process == os.getpid():
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
            raise LedgerError(f"{self.place} must be a file of one's own, got {error.strerror}") from None


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
