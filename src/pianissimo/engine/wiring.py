"""What a durable stream is connected to: its database, its lock, its witness and its secret."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pianissimo.databases import Connection
from pianissimo.engine.chain_file import ChainFile
from pianissimo.engine.charging import AnyLedgerElsewhere
from pianissimo.engine.keys import KeyRing
from pianissimo.engine.place import Place
from pianissimo.engine.secret import Given, read_secret
from pianissimo.engine.witness import Testimony, Witness
from pianissimo.errors import ParameterError, RollbackError
from pianissimo.ledger import check_key_path
from pianissimo.noise import Secret


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

    chain: ChainFile | None = None
    """Where the moving key is, of streams with forward secrecy."""

    head: Path | None = None
    """Where the last head is kept that was seen of the ledger in the store."""

    def key_chain(self) -> ChainFile:
        """The file of the moving key."""
        if self.chain is None:
            raise ParameterError("forward_secrecy must have a file for its key chain, got none")
        return self.chain

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
    ratchet: str | Path | None = None,
    read_only: bool = False,
) -> Wiring:
    """The wiring of a folder or a URL."""
    found = Place.of(place, witness=witness)
    for name, path in (("secret", secret), ("witness", witness), ("ratchet", ratchet)):
        check_key_path(name, path)
    return Wiring(
        connect=lambda create: found.connect(create=create and not read_only, read_only=read_only),
        lock=lambda connection, take_over: found.lock(connection, take_over=take_over),
        witness=None if found.witness is None else Witness(found.witness),
        read_secret=lambda create: read_secret(secret, beside=found.secret, create=create),
        ledger=ledger,
        chain=ChainFile(found.chain if ratchet is None else Path(ratchet)),
        head=found.head,
    )
