"""Where a durable stream lives: a folder with an SQLite file, or a PostgreSQL database; and what lies beside it."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pianissimo.databases import Connection, SqliteConnection
from pianissimo.databases.postgres_server import is_like_a_url, is_server, name_in, shown_place, shown_url
from pianissimo.errors import LeaseError, ParameterError, StoreError
from pianissimo.ledger import STATE_FILE, is_state

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
    chain: Path
    """Of streams with forward secrecy."""

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
                # A secret may serve many streams; a moving key is that of one.
                chain=Path(f"pianissimo.{name_in(place, 'state', 'state')[1]}.ratchet"),
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
            chain=beside.with_name(f"{beside.name}.ratchet"),
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
            from pianissimo.databases.postgres import PostgresConnection

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
