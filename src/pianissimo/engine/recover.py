"""After a loss that somebody accepts: a new life of the stream, behind everything that was ever released.

The store is behind its witness (a restored backup, a failover that lost its tail) or gone. What was released and is
lost here is known outside, so that no event of it may be released a second time: the new incarnation begins after the
last tick that the witness or the store knows, and reads its sources from there. All of its noise is new, and it counts
from zero; earlier releases stay as they are. Where the unit is the event, no event is in both lives, and the charge
that was made covers both. Otherwise the new life is charged anew.
"""

from dataclasses import dataclass
from typing import Any

from pianissimo.engine.creation import create_stream, insert_incarnation
from pianissimo.engine.failpoints import reach
from pianissimo.engine.keys import KeyRing, ring_of
from pianissimo.engine.ratchet import Ratchet
from pianissimo.engine.records import StreamRecord
from pianissimo.engine.startup import check_config, check_ledger, check_releases, check_seals, open_record
from pianissimo.engine.store import StateStore
from pianissimo.engine.wiring import Wiring
from pianissimo.engine.witness import Testimony
from pianissimo.errors import DamageError, RefusalError, StoreError
from pianissimo.planner import StreamPlan
from pianissimo.privacy import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What was done.

    >>> Accepted(incarnation="00", last_tick=7, lost=2, charged=False).lost
    2
    """

    incarnation: str
    last_tick: int
    """The new life begins after this tick."""

    lost: int
    """How many released ticks the store does not hold."""

    charged: bool


def accept_rollback(plan: StreamPlan, config: dict[str, Any], wiring: Wiring) -> Accepted:
    """Begin a new incarnation after all that is known to be released; refused where nothing was lost."""
    witness = wiring.witness
    if witness is None or witness.head() is None:
        raise StoreError("a rollback must be known by its witness to be accepted, got no witness")
    store = StateStore(wiring.opened(create=True))
    lock = wiring.held(store.connection, take_over=False)
    try:
        store.connection.settle()
        if not store.is_made():
            return _from_nothing(store, wiring, plan, config)
        return _from_behind(store, wiring, plan, config)
    finally:
        store.close()
        lock.release()


def accept_lost_witness(wiring: Wiring) -> int:
    """Begin a new witness at the last released tick, on the word of somebody who knows that this store is the newest.

    If it is not, ticks that were shown may be sealed again with other events. Where a plan uses nodes before they are
    complete, noise would then stand over two data sets, and their difference would be the truth.
    """
    witness = wiring.witness
    if witness is None or witness.head() is not None:
        raise RefusalError("a witness must be lost to be made anew, got one that is there; just start the stream")
    store = StateStore(wiring.opened(create=False))
    lock = wiring.held(store.connection, take_over=False)
    try:
        store.connection.settle()
        record, ring = open_record(store, wiring)
        with store.reading():
            last = check_seals(store, record, ring)
            check_releases(store, record, last)
            released = max(record.last_tick, store.released_ticks(record.incarnation)[1])
            seal = store.seal(record.incarnation, released, ring) if released > record.last_tick else None
        testimony = Testimony(
            incarnation=record.incarnation,
            tick=released,
            positions=record.positions if seal is None else seal.positions,
            mac=record.mac if seal is None else seal.mac,
            ledger_head=check_ledger(store, ring, record),
        )
        witness.append(testimony, ring)
        return released
    finally:
        store.close()
        lock.release()


def _from_nothing(store: StateStore, wiring: Wiring, plan: StreamPlan, config: dict[str, Any]) -> Accepted:
    assert wiring.witness is not None  # noqa: S101
    ring = ring_of(wiring.secret(create=False))
    testimony = wiring.witness.last(ring)
    assert testimony is not None  # noqa: S101
    positions = heard_positions(wiring, plan, testimony, ring)
    record = create_stream(store, wiring, plan, config, None, last_tick=testimony.tick, positions=positions)
    _testify(wiring, store, record)
    return Accepted(incarnation=record.incarnation.hex(), last_tick=testimony.tick, lost=testimony.tick, charged=True)


def _from_behind(store: StateStore, wiring: Wiring, plan: StreamPlan, config: dict[str, Any]) -> Accepted:
    assert wiring.witness is not None  # noqa: S101
    record, ring = open_record(store, wiring)
    check_config(record, plan, config)
    with store.reading():
        last = check_seals(store, record, ring)
        check_releases(store, record, last)
    check_ledger(store, ring, record)
    try:
        testimony = wiring.witness.last(ring)
    except DamageError:
        testimony = wiring.witness.last(ring_of(ring.secrets[-1]))
    assert testimony is not None  # noqa: S101
    sealed = record.last_tick if last is None else last.tick
    seen = store.seal(record.incarnation, testimony.tick, ring)
    known = testimony.incarnation == record.incarnation and (
        (seen is not None and seen.mac == testimony.mac)
        or (testimony.tick == record.last_tick and testimony.mac == record.mac)
    )
    if known:
        raise RefusalError(
            f"a rollback must have happened to be accepted, got a store that holds tick {testimony.tick} as its "
            "witness has seen it; just start the stream"
        )
    last_tick = max(testimony.tick, sealed)
    if plan.forward_secrecy and testimony.tick < sealed:
        raise RefusalError(
            f"a stream with forward secrecy must be behind its witness to be recovered, got tick {sealed} where it saw "
            f"{testimony.tick}: where the source was read to is not known any more; begin a new stream"
        )
    heard = heard_positions(wiring, plan, testimony, ring)
    positions = heard if testimony.tick >= sealed or last is None else last.positions
    covered = record.charge if plan.unit is Unit.EVENT else None
    with store.writing("recover"):
        store.take_lease(record.incarnation, "recover")
        fresh = insert_incarnation(
            store,
            ring_of(ring.secrets[-1]),
            plan,
            config,
            number=record.number + 1,
            last_tick=last_tick,
            positions=positions,
            wiring=wiring,
            covered_by=covered,
        )
        reach("recover.commit")
    _testify(wiring, store, fresh)
    return Accepted(
        incarnation=fresh.incarnation.hex(),
        last_tick=last_tick,
        lost=max(0, testimony.tick - sealed),
        charged=covered is None,
    )


def heard_positions(wiring: Wiring, plan: StreamPlan, testimony: Testimony, ring: KeyRing) -> bytes:
    """Where the source was read to, as the witness says; with forward secrecy, under the key chain of its life."""
    if not plan.forward_secrecy:
        return testimony.positions
    file = wiring.key_chain()
    ratchet = Ratchet(file, file.links(), testimony.incarnation, lambda: ring)
    return ratchet.heard_positions(testimony.tick, testimony.positions)


def _testify(wiring: Wiring, store: StateStore, record: StreamRecord) -> None:
    assert wiring.witness is not None  # noqa: S101
    _, ring = open_record(store, wiring)
    head = check_ledger(store, ring, record)
    testimony = Testimony(
        incarnation=record.incarnation,
        tick=record.last_tick,
        positions=record.positions,
        mac=record.mac,
        ledger_head=head,
    )
    wiring.witness.append(testimony, ring, new_life=True)
