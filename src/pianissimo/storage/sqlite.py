"""SQLite through one library of its own: every commit synced, one file on a local disk.

The library is apsw's, not the interpreter's: versions below 3.51.3 can corrupt a write-ahead log that has several
writers, and two SQLite libraries in one process drop each other's locks. So whoever opens such a file in this package
does it here. A sync that fails ends all use of the file in this process: the kernel may have marked the pages clean.
"""

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from pianissimo.errors import DamageError, DiskFullError, StoreError, SyncError, UnknownCommitError
from pianissimo.storage.connection import FOR_STORE, Connection, Purpose, Row, kind_of
from pianissimo.storage.files import FailedSyncError, fault_of, reason, write_once

OLDEST_VERSION = (3, 51, 3)
WAIT_SECONDS = 30.0
"""How long to wait for another writer."""

_BETWEEN = 0.002

_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs", "lustre"})
_SYNC_FAULTS = frozenset(
    {apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC, apsw.SQLITE_IOERR_WRITE, apsw.SQLITE_IOERR_TRUNCATE}
)
_DAMAGE = frozenset({apsw.SQLITE_CORRUPT, apsw.SQLITE_NOTADB})
_LEVELS = {"FULL": 2, "EXTRA": 3}
_poisoned: set[str] = set()
_CHANGES = ("UPDATE", "DELETE")
_SCHEMA = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"


class SqliteConnection(Connection):
    """One connection to an SQLite file."""

    _fault = apsw.Error
    _begin_write = "BEGIN IMMEDIATE"
    _begin_read = "BEGIN"
    words = {"integer": "INTEGER", "binary": "BLOB", "strict": " STRICT", "locked": ""}  # noqa: RUF012

    def __init__(
        self,
        path: Path,
        *,
        create: bool,
        read_only: bool = False,
        vfs: str | None = None,
        purpose: Purpose = FOR_STORE,
    ) -> None:
        super().__init__(str(path), purpose, read_only=read_only)
        self._path = path.absolute()
        self._purpose = purpose
        self._vfs = vfs
        check_version(apsw.sqlite_lib_version())
        if vfs is None:
            self._check_place(create=create)
        self._connected()

    def _check_place(self, *, create: bool) -> None:
        if not create and not self._path.exists():
            raise StoreError(f"there must be a {self._what} at {self.place}, got no such file")
        _refuse_network(self._path, self.place, self._what)
        if create and not self._path.exists():
            with self._speaking():
                # For the owner's eyes; SQLite gives the log the same rights. A file that is there is never opened
                # besides SQLite: POSIX locks belong to a process and a file, and closing it would drop them all.
                write_once(self._path, b"")

    def _begun(self, statement: str) -> Any:
        connection = self._idle()
        connection.execute(statement)
        return connection

    def _sent(self, connection: Any, statement: str, values: Row = ()) -> list[Row]:
        return list(connection.execute(statement, tuple(values)))

    def _committed(self, connection: Any) -> None:
        try:
            connection.execute("COMMIT")
        except apsw.BusyError:
            self.rollback()
            raise StoreError(f"{self.place} must be free to write to, got readers that stay; try again") from None
        except apsw.Error as error:
            self._abandon()
            self._poison_on_sync_fault(error)
            full = isinstance(error, apsw.FullError)
            raise UnknownCommitError(f"{self.place} must confirm a commit, got {kind_of(error)}", full=full) from None

    def _is_open(self, connection: Any) -> bool:
        return bool(connection.in_transaction)

    def _is_idle(self, connection: Any) -> bool:
        return not connection.in_transaction

    def has_table(self, name: str) -> bool:
        return bool(self.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [name]))

    def make_stay(self, table: str) -> None:
        for change in _CHANGES:
            self.execute(_stays(table, change))

    @contextlib.contextmanager
    def letting_go(self, table: str) -> Iterator[None]:
        self.execute(f"DROP TRIGGER IF EXISTS {_stays_name(table, 'DELETE')}")
        yield
        self.execute(_stays(table, "DELETE"))

    def acts_by_itself(self, table: str) -> bool:
        ours = [_stays(table, change) for change in _CHANGES]
        found = self.execute(
            # A trigger bears the name of its table as it was written, in whatever case.
            "SELECT type, sql FROM sqlite_master WHERE type <> 'index' AND lower(tbl_name) = ?",
            [table],
        )
        return any(sql not in ours if kind == "trigger" else kind != "table" for kind, sql in found)

    def is_as_made(self, tables: Mapping[str, str]) -> bool:
        found = {str(name): sql for name, sql in self.execute(_SCHEMA)}
        stays = {_stays_name(table, change): _stays(table, change) for table in tables for change in _CHANGES}
        return all(found.pop(name, None) == sql for name, sql in tables.items()) and found.items() <= stays.items()

    def settle(self) -> None:
        self._turn.check_free()
        with self._speaking():
            connection = self._connected()
            if _pragma(connection, "wal_checkpoint(TRUNCATE)"):
                # Readers hold the log; what is committed in it is copied as far as they allow, and synced.
                _pragma(connection, "wal_checkpoint(FULL)")

    def check_still_there(self) -> None:
        if self._vfs is not None:
            return  # a file system of the tests has no other that could reach its files
        moved = ctypes.c_int()
        with self._speaking():
            # SQLite compares the file that it holds open with the one of that name.
            connection = self._for("SELECT")
            connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(moved))
        if moved.value:
            raise StoreError(
                f"{self.place} must stay where it is while it is in use, got one that was deleted, moved or replaced; "
                "bring it back and start again, or restore a backup"
            )

    def _connected(self) -> apsw.Connection:
        if str(self._path) in _poisoned and self._vfs is None:
            raise SyncError(f"{self.place} must not be used by a process that saw a sync fail; end it and start anew")
        connection: apsw.Connection = super()._connected()
        return connection

    def _connect(self) -> apsw.Connection:
        mode = apsw.SQLITE_OPEN_READONLY if self._read_only else apsw.SQLITE_OPEN_READWRITE
        if self._vfs is not None and not self._read_only:
            mode |= apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(f"file:{quote(str(self._path))}", flags=mode | apsw.SQLITE_OPEN_URI, vfs=self._vfs)
        try:
            self._set_up(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _set_up(self, connection: apsw.Connection) -> None:
        connection.set_busy_handler(_patience())
        if self._vfs is not None:
            # A file system of the tests has no shared memory; one connection needs none.
            _pragma(connection, "locking_mode=EXCLUSIVE")
        for setting in ("mmap_size=0", "trusted_schema=OFF", "cell_size_check=ON", "fullfsync=ON", "foreign_keys=ON"):
            _pragma(connection, setting)
        if self._read_only:
            return
        wanted, level = self._purpose.journal, self._purpose.synchronous
        if wanted == "wal":
            # Larger pages suit what is stored, which is mostly large; a file that is there keeps its own.
            _pragma(connection, "page_size=16384")
        elif _pragma(connection, "journal_mode") == "wal":
            raise StoreError(f"{self.place} must keep a rollback journal, got a write-ahead log: another program's")
        mode = _pragma(connection, f"journal_mode={wanted}")
        _pragma(connection, f"synchronous={level}")
        synchronous = _pragma(connection, "synchronous")
        if mode != wanted or (self._vfs is None and synchronous != _LEVELS.get(level)):
            raise StoreError(f"a {self._what} must sync every commit, got an SQLite that does not")

    @contextlib.contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except apsw.FullError:
            self.rollback()
            raise DiskFullError(f"{self.place} must have room on its disk, got none; make room") from None
        except apsw.BusyError:
            raise StoreError(f"{self.place} must be free to use, got a process that holds it; try again") from None
        except apsw.Error as error:
            self._poison_on_sync_fault(error)
            if _code(error) & 0xFF in _DAMAGE:
                raise DamageError(f"{self.place} must be a whole database, got {kind_of(error)}; restore it") from None
            what = f"{self._what} that can be read and written"
            raise StoreError(f"{self.place} must be a {what}, got {kind_of(error)}") from None
        except UnicodeDecodeError:
            raise DamageError(f"{self.place} must hold texts where they belong, got other bytes; restore it") from None
        except FailedSyncError as error:
            raise fault_of(error, self.place) from None
        except OSError as error:
            raise StoreError(f"{self.place} must be a file of one's own, got {reason(error)}") from None

    def _poison_on_sync_fault(self, error: apsw.Error) -> None:
        if _code(error) in _SYNC_FAULTS:
            _poisoned.add(str(self._path))
            self.close()
            raise SyncError(f"{self.place} must sync what it writes, got {kind_of(error)}; end this process") from None


def check_version(version: str) -> None:
    """Refuse a library with known faults."""
    if tuple(map(int, version.split(".")[:3])) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise StoreError(f"SQLite must be {oldest} or newer to keep a store, got {version}; pip install -U apsw")


def _refuse_network(path: Path, place: str, what: str) -> None:
    """Refuse a network file system, which keeps neither locks nor the order of writes."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    folder = str(path.parent.resolve()).rstrip("/") + "/"
    mounts = [line.split(" ")[1:3] for line in lines]
    within = [(len(where), kind) for where, kind in mounts if folder.startswith(where.rstrip("/") + "/")]
    if within and max(within)[1] in _NETWORK:
        raise StoreError(f"a {what} must be on a local disk, got a network file system for {place}; use PostgreSQL")


def _patience() -> Callable[[int], bool]:
    """How to wait for whoever writes just now.

    All that wait ask equally often. SQLite's own waits grow to a tenth of a second: among many writers, whoever has
    waited longest then asks least often, and may wait for ever.
    """
    begin = 0.0

    def wait(asked: int) -> bool:
        nonlocal begin
        now = time.monotonic()
        if asked == 0:
            begin = now
        if now - begin > WAIT_SECONDS:
            return False
        time.sleep(_BETWEEN)
        return True

    return wait


def _pragma(connection: apsw.Connection, setting: str) -> Any:
    # To the end: a fault may come after the first row.
    rows = list(connection.execute(f"PRAGMA {setting}"))
    return rows[0][0] if rows else None


def _code(error: apsw.Error) -> int:
    return int(getattr(error, "extendedresult", 0) or getattr(error, "result", 0) or 0)


def _stays_name(table: str, change: str) -> str:
    return f"{table}_stays_{change.lower()}"


def _stays(table: str, change: str) -> str:
    return (
        f"CREATE TRIGGER {_stays_name(table, change)} BEFORE {change} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'these rows stay as they are'); END"
    )
