"""The ledger of a data set, wherever it is: a file, a server, or among the tables of a durable stream.

Streams, sketches and questions that name the same place share its cap. The key of a stream's ledger follows from the
stream's first secret; the last head that was seen of it is kept in a file beside the folder (`ledger_head`), and
another is named by the stream's witness, so that a ledger that was rolled back with its store is refused by whoever
charges it.
"""

from dataclasses import dataclass
from pathlib import Path

from pianissimo.durable.charging import ledger_key_of
from pianissimo.durable.keys import Given
from pianissimo.durable.ledger_head import may_be_shared
from pianissimo.durable.place import Place, wire
from pianissimo.durable.start import open_record
from pianissimo.durable.store import StateStore
from pianissimo.errors import InputError, LedgerError, ParameterError, PianissimoError, StoreError
from pianissimo.ledger import (
    AbsentError,
    Charge,
    Head,
    Ledger,
    LocalWitness,
    check_key_path,
    check_place,
    head_beside,
    is_state,
    key_file,
    lost,
    open_guarded,
)
from pianissimo.noise import Secret
from pianissimo.storage.postgres import is_server, shown_place

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
    return Place.of(place, witness=_NO_WITNESS).head


def open_shared(
    place: Path | str,
    *,
    key: Secret | Path | str | None = None,
    cap: Charge | None = None,
    witness: Head | None = None,
) -> Ledger:
    """The ledger of a data set; given a `cap`, a file or a server's ledger that is not there is made.

    A keyed ledger must hold the last head that was seen of it, which is where `head_beside` says, and which must be
    there, unless an earlier one is given as `witness`. On a server every machine keeps its own.
    """
    check_place(place)
    if is_state(place):
        return _of_stream(place, key)
    on_server, beside = is_server(place), Path(f"{place}.key")
    if on_server and key is None:
        raise ParameterError("key must be given for a ledger on a server, as a file or a Secret, got none")
    file = None if isinstance(key, Secret) else Path(key) if key is not None else beside
    if key is None and beside.exists():
        key = beside
    secret = key if isinstance(key, Secret) or key is None else key_file(key, create=False)
    head = None if secret is None else head_beside(place, file)
    trusted = on_server or witness is not None
    try:
        return Ledger.open(place, key=secret, witness=witness, witness_file=head, trusted=trusted)
    except AbsentError:
        was_made = head is not None and LocalWitness(head).read() is not None
        if was_made or cap is None:
            marks = [each for each in (file, head) if each is not None]
            raise (lost(str(place), marks) if was_made else _none(place)) from None
    named = key is not None and key != beside
    return open_guarded(
        place, key=key if isinstance(key, Secret) else file or beside, cap=cap, dataset="", key_was_there=named
    )


def _none(place: Path | str) -> InputError:
    return InputError(f"there must be a ledger at {shown_place(place)}, got none; give a cap to make one")


def _of_stream(place: Path | str, key: Secret | Path | str | None) -> Ledger:
    try:
        # Before the ledger: what the witness names is in a ledger that is looked at later.
        seen = _seen_by_witness(place, None if isinstance(key, Secret) else key)
        secret = key if isinstance(key, Secret) else ledger_key(place, secret=key)
    except StoreError as error:
        raise LedgerError(str(error)) from None
    with Ledger.open(place, key=secret, read_only=True) as looked_at:
        head = head_file(place) if may_be_shared(looked_at) else None
    return Ledger.open(place, key=secret, witness=seen, witness_file=head)


def _seen_by_witness(place: Path | str, given: Given) -> Head | None:
    """The last entry that the stream's witness has seen; None where its witness or its secret is not beside it."""
    if is_server(place):
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


@dataclass(frozen=True, slots=True, repr=False)
class LedgerElsewhere:
    """A ledger that is not in the stream's store.

    >>> LedgerElsewhere("postgresql://ada:geheim@db.example/shop?ledger=all")
    LedgerElsewhere('postgresql://db.example/shop')
    """

    place: str
    key: Secret | Path | str | None = None
    cap: Charge | None = None

    def __post_init__(self) -> None:
        check_place(self.place)
        check_key_path("ledger_key", self.key)

    def __repr__(self) -> str:
        return f"LedgerElsewhere({shown_place(self.place)!r})"

    def is_away(self) -> bool:
        """Whether there is nothing at its place, or no server that answers."""
        if not is_server(self.place):
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


def ledger_elsewhere(
    state: Path | str, ledger: Path | str | None, key: Secret | Path | str | None = None, cap: Charge | None = None
) -> LedgerElsewhere | None:
    """The ledger that a stream is charged to; None if it is the one in its own store, under whatever name."""
    if ledger is None:
        return None
    check_place(ledger)
    own = Place.of(state, witness=_NO_WITNESS).is_that_of(ledger)
    return None if own else LedgerElsewhere(str(ledger), key, cap)
