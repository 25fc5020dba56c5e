"""Where a durable stream lives: a folder with an SQLite file, or a PostgreSQL database; and what lies beside it.

What a durable stream is connected to: its database, its lock, its witness and its secret.

What a process that holds exact counts and a secret asks of the operating system: no core dumps.

A lock for objects that are used by one caller at a time, where waiting for oneself is an error and not for ever.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pianissimo.durable.charging import AnyLedgerElsewhere
from pianissimo.durable.keys import Given, KeyRing, read_secret
from pianissimo.durable.witness import Testimony, Witness
from pianissimo.errors import LeaseError, ParameterError, RollbackError, StateError, StoreError
from pianissimo.ledger import STATE_FILE, check_key_path, is_state
from pianissimo.noise import Secret
from pianissimo.storage.connection import Connection
from pianissimo.storage.postgres import is_like_a_url, is_server, name_in, shown_place, shown_url
from pianissimo.storage.sqlite import SqliteConnection

try:
    import fcntl
except ImportError:  # not on Windows: there the lease's epoch alone keeps two apart
    fcntl = None  # type: ignore[assignment]


_PATIENCE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Place:
    """A store's address, and where its secret and its witness are unless said otherwise: beside it, not in it.

    >>> Place.of("state").secret
    PosixPath('state.secret')
    >>> Place.of("postgresql://ada:geheim@db.example/shop?state=visits", witness="visits.witness")
    Place('postgresql://db.example/shop')
    """

    folder: Path | None
    url: str | None
    secret: Path
    witness: Path | None
    head: Path | None
    """Of the last head that was seen of the ledger in the store; a server's has none."""

    @classmethod
    def of(cls, place: str | Path, *, witness: str | Path | None = None) -> "Place":
        """The place that a folder's path or a `postgresql://` URL names."""
        if is_server(place):
            if witness is None:
                raise ParameterError(
                    "a stream in PostgreSQL must have a witness outside the database, got none; give the path of a file"
                )
            return cls(
                folder=None,
                url=place,
                secret=Path("pianissimo.secret"),
                witness=Path(witness),
                head=None,
            )
        if not isinstance(place, str | os.PathLike) or not str(place) or is_like_a_url(str(place)):
            raise ParameterError("state must be a folder or a postgresql:// URL, got something else")
        folder = Path(place)
        beside = folder.parent / (folder.name or "state")
        return cls(
            folder=folder,
            url=None,
            secret=beside.with_name(f"{beside.name}.secret"),
            witness=beside.with_name(f"{beside.name}.witness") if witness is None else Path(witness),
            head=beside.with_name(f"{beside.name}.head"),
        )

    def __repr__(self) -> str:
        return f"Place({shown_place(self.url or self.folder)!r})"

    def is_that_of(self, other: str | Path) -> bool:
        """Whether the ledger at another place is the one in this store, however either is written.

        >>> Place.of("state").is_that_of("./other/../state/")
        True
        """
        if self.folder is not None:
            return not is_server(other) and Path(other).resolve() == self.folder.resolve()
        if self.url is None or not is_server(other) or not is_state(other):
            return False
        mine, theirs = (name_in(url, "state", "state") for url in (self.url, other))
        return mine[1] == theirs[1] and (mine[0] == theirs[0] or shown_url(mine[0]) == shown_url(theirs[0]))

    def exists(self) -> bool:
        """Whether a store may be there."""
        return self.folder is None or (self.folder / STATE_FILE).exists()

    def connect(self, *, create: bool, read_only: bool = False) -> Connection:
        """A connection to it."""
        if self.url is not None:
            from pianissimo.storage.postgres import PostgresConnection

            return PostgresConnection(self.url, create=create, read_only=read_only)
        assert self.folder is not None  # noqa: S101
        if create:
            try:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise StoreError(f"{self.folder} must be a folder of one's own, got {error.strerror}") from None
        return SqliteConnection(self.folder / STATE_FILE, create=create, read_only=read_only)

    def lock(self, connection: Connection, *, take_over: bool) -> "Lock":
        """Be the one process that seals; it ends with the process, however that ends."""
        if self.folder is None:
            return SessionLock(connection, take_over=take_over)
        return FolderLock(self.folder / "lock", take_over=take_over)


class FolderLock:
    """A lock of the operating system on a file: whoever is killed lets go of it."""

    def __init__(self, path: Path, *, take_over: bool) -> None:
        self._descriptor: int | None = None
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path} must be a file of one's own, got {error.strerror}") from None
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                if not take_over:
                    raise held() from None
                return
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class SessionLock:
    """A lock of a PostgreSQL session: a lost connection lets go of it."""

    def __init__(self, connection: Any, *, take_over: bool) -> None:
        # The server may take a moment to see that a process was killed.
        deadline = time.monotonic() + _PATIENCE
        while not connection.try_lock(connection.schema) and not take_over:
            if time.monotonic() > deadline:
                raise held()
            time.sleep(0.02)

    def release(self) -> None:
        """It goes with the connection."""


Lock = FolderLock | SessionLock


def held() -> LeaseError:
    """The error for a stream that another process seals."""
    return LeaseError("one process may seal a stream, got another that does; stop it, or take over from one that hangs")


class AnyLock(Protocol):
    """What keeps a second process away."""

    def release(self) -> None:
        """Let go."""


class AnyWitness(Protocol):
    """What knows, outside the store, how far the stream has come."""

    def head(self) -> tuple[bytes, int] | None:
        """The incarnation and the tick that it saw last."""

    def last(self, ring: KeyRing) -> Testimony | None:
        """What it saw last."""

    def lines(self, ring: KeyRing) -> list[Testimony]:
        """All that it saw, the newest first, as far as it is kept and can be read."""

    def append(self, testimony: Testimony, ring: KeyRing, *, new_life: bool = False) -> None:
        """Write down one more tick, durably."""

    def check(self) -> None:
        """Refuse to go on where it is not as this process has left it."""

    def shorten(self) -> None:
        """Forget what is long past; for the process that seals."""


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """The outside of a durable stream; tests put a simulated one in its place."""

    connect: Callable[[bool], Connection]
    """A connection; with True, the store is made if it is not there."""

    lock: Callable[[Connection, bool], AnyLock]
    """Be the one process that seals; with True, take over."""

    witness: AnyWitness | None
    read_secret: Callable[[bool], Secret]
    """The secret; with True, it is made if it is not there."""

    ledger: AnyLedgerElsewhere | None = None
    """Where the stream is charged, if not in its own store."""

    head: Path | None = None
    """Where the last head is kept that was seen of the ledger in the store."""

    def opened(self, *, create: bool) -> Connection:
        """A connection."""
        return self.connect(create)

    def held(self, connection: Connection, *, take_over: bool) -> AnyLock:
        """The lock."""
        return self.lock(connection, take_over)

    def secret(self, *, create: bool) -> Secret:
        """The secret of the stream."""
        return self.read_secret(create)

    def check_unwitnessed(self) -> None:
        """Refuse to begin anew where the witness knows a stream."""
        head = None if self.witness is None else self.witness.head()
        if head is not None:
            raise RollbackError(
                f"the store must hold the stream that its witness has seen up to tick {head[1]}, got no store; "
                "bring it back, or accept the loss with: pianissimo recover DIR --accept-rollback"
            )


def wire(
    place: str | Path,
    *,
    secret: Given = None,
    witness: str | Path | None = None,
    ledger: AnyLedgerElsewhere | None = None,
    read_only: bool = False,
) -> Wiring:
    """The wiring of a folder or a URL."""
    found = Place.of(place, witness=witness)
    for name, path in (("secret", secret), ("witness", witness)):
        check_key_path(name, path)
    return Wiring(
        connect=lambda create: found.connect(create=create and not read_only, read_only=read_only),
        lock=lambda connection, take_over: found.lock(connection, take_over=take_over),
        witness=None if found.witness is None else Witness(found.witness),
        read_secret=lambda create: read_secret(secret, beside=found.secret, create=create),
        ledger=ledger,
        head=found.head,
    )


_SET_DUMPABLE = 4


def forbid_dumps() -> bool:
    """Let neither a crash nor another process of the same user write out this process's memory; False if it could not.

    >>> isinstance(forbid_dumps, object)
    True
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return False
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


class OneCaller:
    """Other threads wait; a call in the middle of another of the same thread, as from a signal or a sink, is refused.

    >>> lock = OneCaller()
    >>> with lock, lock:
    ...     pass
    Traceback (most recent call last):
    pianissimo.errors.StateError: a stream must be used by one caller at a time, got a call in the middle of another
    """

    __slots__ = ("_inside", "_lock")

    def __init__(self) -> None:
        # Its owner may take it again, so that an interrupt that leaves it taken does not hang its own thread.
        self._lock = threading.RLock()
        self._inside = False

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._check_outside()
            self._inside = True
        except BaseException:
            self._lock.release()
            raise

    def _check_outside(self) -> None:
        if self._inside:
            raise StateError("a stream must be used by one caller at a time, got a call in the middle of another")

    def __exit__(self, *_: object) -> None:
        self._inside = False
        self._lock.release()

    @contextmanager
    def even_within(self) -> Iterator[None]:
        """For what must be possible always: to let go. Other threads are waited for, one's own call is not."""
        with self._lock:
            yield
