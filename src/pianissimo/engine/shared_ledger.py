"""The ledger of a data set, wherever it is: a file, a server, or among the tables of a durable stream.

Streams, sketches and questions that name the same place share its cap. The key of a stream's ledger follows from the
stream's first secret; the last head that was seen of it is kept in a file beside the folder, and another is named by
the stream's witness, so that a ledger that was rolled back with its store is refused by whoever charges it.
"""

from dataclasses import dataclass
from pathlib import Path

from pianissimo.engine.charging import ledger_key_of
from pianissimo.engine.place import Place
from pianissimo.engine.secret import Given
from pianissimo.engine.startup import open_record
from pianissimo.engine.store import StateStore
from pianissimo.engine.wiring import wire
from pianissimo.errors import InputError, LedgerError, ParameterError, PianissimoError, StoreError
from pianissimo.ledger import Charge, Head, Ledger, is_state, key_file, open_guarded
from pianissimo.noise import Secret

_NO_WITNESS = "none"


def ledger_key(place: Path | str, *, secret: Given = None) -> Secret:
    """The key of the ledger among a stream's tables: it comes from the stream's first secret."""
    wiring = wire(place, secret=secret, witness=_NO_WITNESS, read_only=True)
    store = StateStore(wiring.opened(create=False))
    try:
        _, ring = open_record(store, wiring)
        return ledger_key_of(store, ring)
    finally:
        store.close()


def head_file(place: Path | str) -> Path | None:
    """Where the last head that was seen of a stream's ledger is kept; None for one on a server.

    >>> head_file("states/clicks/")
    PosixPath('states/clicks.head')
    """
    if "://" in str(place):
        return None
    folder = Path(place)
    return folder.with_name(f"{folder.name}.head")


def open_shared(place: Path | str, *, key: Secret | Path | str | None = None, cap: Charge | None = None) -> Ledger:
    """The ledger of a data set; given a `cap`, a file or a server's ledger that is not there is made."""
    if is_state(place):
        return _of_stream(place, key)
    if not isinstance(key, Secret) and key is not None:
        key = key_file(key, create=False)
    if "://" in str(place):
        if key is None:
            raise ParameterError("key must be given for a ledger on a server, as a file or a Secret, got none")
        return Ledger.open(place, key=key, cap=cap)
    beside = Path(f"{place}.key")
    if not Path(place).exists():
        if cap is None:
            raise InputError(f"there must be a ledger at {place}, got no such file; give a cap to make one")
        return open_guarded(place, key=key or beside, cap=cap, dataset="")
    if key is None and beside.exists():
        key = key_file(beside, create=False)
    witness = Path(f"{beside}.head")
    return Ledger.open(place, key=key, witness_file=witness if witness.exists() else None)


def _of_stream(place: Path | str, key: Secret | Path | str | None) -> Ledger:
    try:
        # Before the ledger: what the witness names is in a ledger that is looked at later.
        seen = _seen_by_witness(place, None if isinstance(key, Secret) else key)
        secret = key if isinstance(key, Secret) else ledger_key(place, secret=key)
    except StoreError as error:
        raise LedgerError(str(error)) from None
    return Ledger.open(place, key=secret, witness=seen, witness_file=head_file(place), trusted=True)


def _seen_by_witness(place: Path | str, given: Given) -> Head | None:
    """The last entry that the stream's witness has seen; None where its witness or its secret is not beside it."""
    if "://" in str(place):
        return None
    beside = Place.of(place)
    if beside.witness is None or not beside.witness.exists() or (given is None and not beside.secret.exists()):
        return None
    wiring = wire(place, secret=given, read_only=True)
    store = StateStore(wiring.opened(create=False))
    try:
        _, ring = open_record(store, wiring)
    finally:
        store.close()
    testimony = None if wiring.witness is None else wiring.witness.last(ring)
    return None if testimony is None or not testimony.ledger_spent else Head.parse(testimony.ledger_head)


@dataclass(frozen=True, slots=True)
class LedgerElsewhere:
    """A ledger that is not in the stream's store."""

    place: str
    key: Secret | Path | str | None = None
    cap: Charge | None = None

    def is_away(self) -> bool:
        """Whether there is nothing at its place, or no server that answers."""
        if "://" not in self.place:
            return not Path(self.place).exists()
        try:
            # Anything but an answer, for whatever reason, is no answer; what a wrong one says is looked at later.
            Ledger.open(self.place, key=None, read_only=True).close()
        except PianissimoError:
            return True
        return False

    def open(self) -> Ledger:
        """The ledger, verified."""
        return open_shared(self.place, key=self.key, cap=self.cap)
