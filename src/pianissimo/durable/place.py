"""Where a durable stream lives: a folder with an SQLite file, or a PostgreSQL database; and what lies beside it.

`Place` says where everything is; `Wiring` is what a stream is connected to, so that tests can put a simulated disk in
the place of a real one.
"""

import ctypes
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pianissimo.durable.charging import LedgerPlace
from pianissimo.durable.key_ring import Given, read_secret
from pianissimo.durable.witness import Witness
from pianissimo.errors import LeaseError, ParameterError, RollbackError, StoreError
from pianissimo.ledger import STATE_FILE, Charge, is_state_place, ledger_beside
from pianissimo.noise import Secret
from pianissimo.storage.connection import Connection, is_like_a_url, is_server, name_in, shown_place
from pianissimo.storage.files import check_key_path, fault_of, keep_from_git, opened, remove_temporaries, try_lock
from pianissimo.storage.sqlite import SqliteConnection

_PATIENCE = 5.0
_held_here: set[tuple[int, Path]] = set()
"""Which locks this process holds, by its number: a child has those of its parent no more."""

_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Place:
    """A store's address, and where its secret, its witness and its ledger are: beside it, not in it."""

    folder: Path | None
    url: str | None
    secret: Path
    """Unless it is given."""

    witness: Path
    ledger: LedgerPlace

    @classmethod
    def of(
        cls,
        state: str | Path,
        *,
        witness: str | Path | None = None,
        ledger: str | Path | None = None,
        ledger_key: Secret | Path | str | None = None,
        cap: Charge | None = None,
    ) -> "Place":
        """The place that a folder's path or a `postgresql://` URL names."""
        check_key_path("witness", witness)
        named = None
        if ledger is not None and (is_server(ledger) or Path(ledger).resolve() != Path(state).resolve()):
            # The folder of a stream stands for the ledger beside it.
            where = ledger_beside(ledger) if is_state_place(ledger) else str(ledger)
            named = LedgerPlace(where, ledger_key, cap)
        if is_server(state):
            if witness is None:
                raise ParameterError(
                    "a stream in PostgreSQL must have a witness outside the database, got none; give the path of a file"
                )
            folder, secret = None, Path("pianissimo.secret")
            ledger_key = ledger_key or Path(witness).with_name(f"{name_in(state, 'state', 'state')[1]}.ledger.key")
        elif not isinstance(state, str | os.PathLike) or not str(state) or is_like_a_url(str(state)):
            raise ParameterError("state must be a folder or a postgresql:// URL, got something else")
        else:
            folder = Path(state)
            secret = folder.parent / f"{folder.name or 'state'}.secret"
            witness = secret.with_suffix(".witness") if witness is None else witness
        return cls(
            folder=folder,
            url=state if is_server(state) else None,
            secret=secret,
            witness=Path(witness),
            ledger=named or LedgerPlace(ledger_beside(state), ledger_key, cap, is_own=True),
        )

    def __repr__(self) -> str:
        return f"Place({shown_place(self.url or self.folder)!r})"

    @property
    def inbox(self) -> Path:
        """The folder of events that came by HTTP and are to be read: beside the store, or beside the witness."""
        beside = self.witness.with_suffix("") if self.folder is None else self.folder
        return beside.parent / f"{beside.name or 'state'}.events"

    @property
    def shards(self) -> Path:
        """The folder of what shards store, beside the store or the witness: all who have shards must reach it."""
        return self.inbox.with_suffix(".shards")

    def exists(self) -> bool:
        """Whether a store may be there."""
        return self.folder is None or (self.folder / STATE_FILE).exists()

    def is_free(self) -> bool:
        """Whether no process seals here now, as far as a file tells it."""
        path = None if self.folder is None else self.folder / "lock"
        if path is None or not path.exists():
            return True
        try:
            with opened(path, os.O_RDWR) as descriptor:
                return try_lock(descriptor)
        except OSError:
            return False

    def connect(self, *, create: bool, read_only: bool = False) -> Connection:
        """A connection to it."""
        create = create and not read_only
        if self.url is not None:
            from pianissimo.storage.postgres import PostgresConnection

            return PostgresConnection(self.url, create=create, read_only=read_only)
        assert self.folder is not None  # noqa: S101
        if create:
            try:
                self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise StoreError(
                    f"{self.folder} must be a folder of one's own, got {error.strerror}; name another one for the state"
                ) from None
            keep_from_git(self.folder)
        return SqliteConnection(self.folder / STATE_FILE, create=create, read_only=read_only)

    def lock(self, connection: Connection, *, take_over: bool) -> ExitStack:
        """Be the one process that seals; it ends with the process, however that ends."""
        if self.folder is None:
            return _session_lock(connection, take_over=take_over)
        return _folder_lock(self.folder / "lock", take_over=take_over)

    def wired(self, secret: Given = None, *, read_only: bool = False) -> "Wiring":
        """What a stream here is connected to."""
        check_key_path("secret", secret)
        return Wiring(
            connect=partial(self.connect, read_only=read_only),
            lock=self.lock,
            witness=Witness(self.witness),
            secret=partial(read_secret, secret, beside=self.secret),
            ledger=self.ledger,
            shards=self.shards,
        )


def _folder_lock(path: Path, *, take_over: bool) -> ExitStack:
    """A lock of the operating system on a file: whoever is killed lets go of it."""
    lock, here = ExitStack(), (os.getpid(), path.resolve())
    try:
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if try_lock(descriptor):
                lock.callback(_held_here.discard, here)
                lock.callback(os.close, descriptor)
                _held_here.add(here)
                remove_temporaries(path.parent)
                return lock
            os.close(descriptor)
            if not take_over:
                raise held(here=here in _held_here)
            # Whoever holds it keeps a file that nobody finds any more, and writes nothing, as the lease says.
            path.unlink(missing_ok=True)
    except OSError as error:
        raise fault_of(error, path) from None


def _session_lock(connection: Any, *, take_over: bool) -> ExitStack:
    """A lock of a PostgreSQL session, which goes with the connection: a lost one lets go of it."""
    # The server may take a moment to see that a process was killed.
    deadline = time.monotonic() + _PATIENCE
    while not connection.try_lock(connection.schema) and not take_over:
        if time.monotonic() > deadline:
            raise held()
        time.sleep(0.02)
    return ExitStack()


def held(*, here: bool = False) -> LeaseError:
    """The error for a stream that another process seals, or this one."""
    if here:
        return LeaseError(
            "a stream must be open once, got one that this process has opened already; close() the first, or use it in "
            "a `with`; if nothing has it any more, open it with take_over=True"
        )
    return LeaseError("one process may seal a stream, got another that does; stop it, or take over from one that hangs")


@dataclass(frozen=True, kw_only=True, repr=False)
class Wiring:
    """The outside of a durable stream; tests put a simulated one in its place."""

    connect: Callable[..., Connection]
    """A connection; with `create`, the store is made if it is not there."""

    lock: Callable[..., ExitStack]
    """Be the one process that seals on a connection, until it is closed; with `take_over`, whoever does now."""

    witness: Witness
    secret: Callable[..., Secret]
    """The secret; with `create`, it is made if it is not there."""

    ledger: LedgerPlace
    shards: Path | None = None
    """The folder of what shards store."""

    def check_unwitnessed(self) -> None:
        """Refuse to begin anew where the witness knows a stream."""
        head = self.witness.head()
        if head is not None:
            raise RollbackError(
                f"the store must hold the stream that its witness has seen up to tick {head[1]}, got no store; "
                "bring it back, or accept the loss with: pianissimo recover DIR --accept-rollback"
            )


def wire(state: str | Path, *, secret: Given = None, read_only: bool = False, **places: Any) -> Wiring:
    """The wiring of a folder or a URL; `places` as in `Place.of`."""
    return Place.of(state, **places).wired(secret, read_only=read_only)


def forbid_dumps() -> bool:
    """Let neither a crash nor another process of the same user write out this one's memory; False if it could not."""
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
