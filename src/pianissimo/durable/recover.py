"""After a loss that somebody accepts: a new life of the stream, charged anew. One proven case is free.

The store is behind its witness (a restored backup, a failover that lost its tail) or gone, or the witness is lost, or a
sink has later ticks than both. What was released stays as it is, and no noise is used again: the new life has an
incarnation of its own. Three rules say all of it:

1. *Ticks* go on after the last one that anybody may have seen: the store, the witness or a sink.
2. *Events* are read again from the last tick of which it is known where it was read to, in the store or the witness.
   The totals begin anew there, and every release says so (`since`): nothing is lost that the source still has, and
   nothing is added to numbers that were made with other noise.
3. *The charge* is a new one, since events may be shown a second time. It is free where none can be: the unit is the
   event, and the store is evidently a beginning of what its witness has seen, which is as far as anybody has seen.
   Then the new life reads on where the witness ends.

A recovery that was cut off is finished by giving the command again: see `charging`. It is charged once.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from pianissimo.durable.charging import check_receipt
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import KeyRing, ring_of
from pianissimo.durable.moved_places import whole_place
from pianissimo.durable.place import Wiring
from pianissimo.durable.start import (
    Life,
    Request,
    Standing,
    agrees,
    as_stored,
    begin_life,
    check_store,
    cut_off,
    is_created,
    place_of,
)
from pianissimo.durable.witness import Testimony
from pianissimo.errors import BudgetError, RefusalError, SecretError, StoreError
from pianissimo.loss.losses import Unit
from pianissimo.noise import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What was done."""

    incarnation: str
    last_tick: int
    """The new life begins after this tick."""

    since: int
    """Its totals count all events after this tick."""

    lost: int
    """How many released ticks the store does not hold."""

    charged: bool


def accept_rollback(request: Request, wiring: Wiring, *, shown: int = 0, old_secret: Secret | None = None) -> Accepted:
    """Begin a new life after all that is known to be released; refused where nothing was lost.

    `shown` is the last tick that a sink is known to have, on the word of whoever gives it. `old_secret` is the store's,
    where it was rolled back to before a rotation: the stream's own, which the witness was written with, is that of the
    new life.
    """
    if wiring.witness.head() is None:
        raise StoreError("a rollback must be known by its witness to be accepted, got no witness")
    with _held(wiring, create=True) as store:
        if not is_created(store):
            ring = ring_of(wiring.secret(create=False))
            heard = _heard(wiring, ring)
            since, positions = _read_to(wiring, ring, heard)
            life = Life(last_tick=max(heard.tick, shown), since=since, positions=positions)
            return _begun(store, wiring, request, ring, life)
        found, request = _checked(store, wiring, request, old_secret)
        newest = ring_of(found.ring.secrets[-1])
        if old_secret is not None:
            secret, later = wiring.secret(create=False), max(found.tick, (wiring.witness.head() or (b"", 0))[1]) + 1
            # The new life is of the new secret from its begin on: so are its names and its shards.
            found, newest = replace(found, ring=found.ring.rotated(secret, later)), newest.rotated(secret, later - 1)
        heard = _heard(wiring, found.ring)
        if shown <= max(heard.tick, found.tick) and agrees(store, found, heard):
            undone = "" if old_secret is None else " with the old secret, and rotate it again"
            raise RefusalError(
                f"a rollback must have happened to be accepted, got a store that holds tick {heard.tick} as its "
                f"witness has seen it; just start the stream{undone}"
            )
        since, positions = _released_to(store, found)
        if heard.tick > since:
            since, positions = _read_to(wiring, found.ring, heard)
        own = (line for line in wiring.witness.lines(found.ring) if line.tick == found.tick)
        last_tick = max(heard.tick, found.tick, shown)
        # Free is what reads nothing again that was shown.
        is_beginning = since == last_tick and any(agrees(store, found, line) for line in own)
        life = Life(
            last_tick=last_tick,
            since=since,
            positions=positions,
            before=found,
            is_covered=request.stream.unit is Unit.EVENT and is_beginning,
        )
        return _begun(store, wiring, request, newest, life)


def accept_lost_witness(request: Request, wiring: Wiring, *, shown: int = 0) -> Accepted:
    """Begin a new life and a new witness after the last tick of this store, charged anew.

    Whether this store is the newest there was, nobody can tell. If it is not, the events after its last tick are shown
    a second time: under noise that is all new, and paid as such, also where the unit is the event.
    """
    is_there = wiring.witness.head() is not None
    with _held(wiring, create=False) as store:
        if not is_created(store):
            raise RefusalError(
                "a stream must have begun to lose its witness, got a store in which none has; just start the stream"
            )
        found, request = _checked(store, wiring, request)
        # One that this command began, and was cut off, is there too.
        if is_there and cut_off(store, wiring, found.ring, found.record.number) is None:
            raise RefusalError("a witness must be lost to be made anew, got one that is there; just start the stream")
        since, positions = _released_to(store, found)
        life = Life(
            last_tick=max(found.tick, shown),
            since=since,
            positions=positions,
            before=found,
        )
        return _begun(store, wiring, request, ring_of(found.ring.secrets[-1]), life)


def _begun(store: Journal, wiring: Wiring, request: Request, ring: KeyRing, life: Life) -> Accepted:
    try:
        record = begin_life(store, wiring, request, ring, life)
    except BudgetError as error:
        raise BudgetError(
            f"{error}: a life whose events may have been shown before is charged anew. Bring the newer store or the "
            "witness back; or begin a new stream with a ledger of its own, on top of all that was released before"
        ) from None
    return Accepted(
        incarnation=record.incarnation.hex(),
        last_tick=record.last_tick,
        since=record.since,
        lost=record.last_tick - (0 if life.before is None else life.before.tick),
        charged=not record.covered,
    )


@contextmanager
def _held(wiring: Wiring, *, create: bool) -> Iterator[Journal]:
    """The store, for this process alone."""
    store = Journal(wiring.connect(create=create))
    with closing(store), wiring.lock(store.connection, take_over=False), closing(store):
        store.connection.settle()
        yield store


def _checked(
    store: Journal, wiring: Wiring, request: Request, old_secret: Secret | None = None
) -> tuple[Standing, Request]:
    """Where the newest life stands, in a store where everything is as it was written, and the plan that it has."""
    if old_secret is not None:
        wiring = replace(wiring, secret=lambda **_: old_secret)
    try:
        found = check_store(store, wiring)
    except SecretError as error:
        raise (error if old_secret is not None else _asking_for_old(error)) from None
    check_receipt(found.record, wiring.ledger)
    return found, as_stored(request, found.record)


def _heard(wiring: Wiring, ring: KeyRing) -> Testimony:
    """What the witness saw last."""
    try:
        testimony = wiring.witness.last(ring)
    except SecretError as error:
        raise _asking_for_old(error) from None
    assert testimony is not None  # noqa: S101
    return testimony


def _asking_for_old(error: SecretError) -> SecretError:
    return SecretError(
        f"{error}. If the store was rolled back to before a rotation, give the newest secret, and the one that the "
        "store had then as well: --old-secret"
    )


def _read_to(wiring: Wiring, ring: KeyRing, heard: Testimony) -> tuple[int, bytes]:
    """The tick up to which events were read, as the witness knows it, and where that was."""
    own = {line.tick: line.positions for line in wiring.witness.lines(ring) if line.incarnation == heard.incarnation}
    return heard.since if heard.begins else heard.tick, whole_place(heard.positions, own.get)


def _released_to(store: Journal, found: Standing) -> tuple[int, bytes]:
    """The same of the last tick that this store has released: a sealed one that was not is read again."""
    record = found.record
    released = store.last_tick("releases", record.incarnation)
    seal = None if released is None else store.seal(record.incarnation, released, found.ring)
    if seal is None:
        return record.since, record.begin(found.ring.keys[0])
    return seal.tick, whole_place(seal.positions, partial(place_of, store, record, found.ring))
