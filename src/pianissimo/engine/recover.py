"""After a loss that somebody accepts: a new life of the stream, behind everything that was ever released.

The store is behind its witness (a restored backup, a failover that lost its tail) or gone. What was released and is
lost here is known outside, so that no event of it may be released a second time: the new incarnation begins after the
last tick that the witness or the store knows, and reads its sources from there. All of its noise is new; earlier
releases stay as they are. Where the unit is the event, no event is in both lives, and the charge that was made covers
both. Otherwise the new life is charged anew.

Totals go on from the last value that is known to be published, in the store or in a sink that has later ones: see
`carried`. What the ledger in the store lost is booked again, as far as the witness has seen it.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from pianissimo.engine.carried import Carried
from pianissimo.engine.charging import ledger_key_of, open_ledger
from pianissimo.engine.creation import Life, create_stream, insert_charged_elsewhere, insert_incarnation, intend
from pianissimo.engine.failpoints import reach
from pianissimo.engine.keys import KeyRing, ring_of
from pianissimo.engine.ratchet import Ratchet
from pianissimo.engine.records import StreamRecord
from pianissimo.engine.shared_ledger import head_file
from pianissimo.engine.sinks import read_releases
from pianissimo.engine.startup import (
    check_config,
    check_ledger,
    check_releases,
    check_seals,
    open_record,
    spent_of,
)
from pianissimo.engine.store import StateStore
from pianissimo.engine.wiring import Wiring
from pianissimo.engine.witness import Testimony
from pianissimo.errors import BudgetError, DamageError, InputError, LedgerError, RefusalError, StoreError
from pianissimo.ledger import Charge, Head, LocalWitness
from pianissimo.ledger.units import of_units
from pianissimo.planner import StreamPlan
from pianissimo.privacy import Unit
from pianissimo.stream.payload import release_of

Published = Mapping[str, tuple[int, pl.DataFrame]]
"""Of each query the last tick that was published, and its table."""


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
    totals: Mapping[str, int] = field(default_factory=dict)
    """The queries whose totals go on, and the tick whose released values they go on from."""

    anew: tuple[str, ...] = ()
    """The queries that begin anew."""


def accept_rollback(
    plan: StreamPlan,
    config: dict[str, Any],
    wiring: Wiring,
    *,
    folder: Path | None = None,
    payloads: Iterable[bytes] = (),
    place: Path | str | None = None,
) -> Accepted:
    """Begin a new incarnation after all that is known to be released; refused where nothing was lost.

    `folder` is where a sink wrote releases, and `payloads` are the bytes that another one got: later totals than those
    of the store are taken from there, on the word of whoever gives them. `place` is the store's, whose file of the
    ledger's last head goes once all that it names is booked again.
    """
    published = _published(folder, payloads)
    witness = wiring.witness
    if witness is None or witness.head() is None:
        raise StoreError("a rollback must be known by its witness to be accepted, got no witness")
    store = StateStore(wiring.opened(create=True))
    lock = wiring.held(store.connection, take_over=False)
    try:
        store.connection.settle()
        if not store.is_made():
            return _from_nothing(store, wiring, plan, config, published)
        return _from_behind(store, wiring, plan, config, published, place)
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
            ledger_head=check_ledger(store, ring, record, wiring),
            ledger_spent=spent_of(store, record),
        )
        witness.append(testimony, ring)
        return released
    finally:
        store.close()
        lock.release()


def _from_nothing(
    store: StateStore, wiring: Wiring, plan: StreamPlan, config: dict[str, Any], published: Published
) -> Accepted:
    assert wiring.witness is not None  # noqa: S101
    ring = ring_of(wiring.secret(create=False))
    testimony = wiring.witness.last(ring)
    assert testimony is not None  # noqa: S101
    # Which incarnation published them, and where it began, nobody knows any more; it began at tick 1 or later.
    carried = Carried.of(plan, testimony.tick, _up_to(published, testimony.tick), first=0)
    record = create_stream(
        store,
        wiring,
        plan,
        config,
        None,
        last_tick=testimony.tick,
        positions=heard_positions(wiring, plan, testimony, ring),
        base=carried.packed(),
    )
    _testify(wiring, store, record, plan)
    return _accepted(record, carried, lost=testimony.tick, charged=True)


def _from_behind(
    store: StateStore,
    wiring: Wiring,
    plan: StreamPlan,
    config: dict[str, Any],
    published: Published,
    place: Path | str | None,
) -> Accepted:
    assert wiring.witness is not None  # noqa: S101
    record, ring = open_record(store, wiring)
    check_config(record, plan, config)
    with store.reading():
        last = check_seals(store, record, ring)
        check_releases(store, record, last)
    check_ledger(store, ring, record, wiring)
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
    carried = _carried(store, record, ring, plan, last_tick, published)
    life = Life(
        plan,
        config,
        number=record.number + 1,
        last_tick=last_tick,
        positions=heard if testimony.tick >= sealed or last is None else last.positions,
        base=carried.packed(),
    )
    covered = record if plan.unit is Unit.EVENT else None
    newest = ring_of(ring.secrets[-1])
    if covered is None and record.receipt:
        fresh = _charged_elsewhere(store, wiring, record, newest, life)
    else:
        key = ledger_key_of(store, ring)
        with store.writing("recover"):
            store.take_lease(record.incarnation, "recover")
            if not record.receipt:
                _book_again(store, ring, testimony)
            fresh = insert_incarnation(store, newest, life, wiring, ledger_key=key, covered_by=covered)
            reach("recover.commit")
        if not record.receipt:
            _forget_head(place, testimony)
    _testify(wiring, store, fresh, plan)
    return _accepted(fresh, carried, lost=max(0, testimony.tick - sealed), charged=covered is None)


def _charged_elsewhere(
    store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, life: Life
) -> StreamRecord:
    """Intend, charge, insert; a recovery that was cut off goes on with what it had intended."""
    with store.writing("recover"):
        store.take_lease(record.incarnation, "recover")
        if store.intention(life.number) is None:
            intend(store, ring, life)
        reach("recover.commit")
    return insert_charged_elsewhere(store, ring, life, wiring)


def _book_again(store: StateStore, ring: KeyRing, testimony: Testimony) -> None:
    """Charge what the witness has seen spent and the ledger, rolled back with its store, has forgotten."""
    ledger = open_ledger(store, ledger_key_of(store, ring))
    head = Head.parse(testimony.ledger_head)
    with contextlib.suppress(LedgerError):
        ledger.verify(head)
        return
    if not testimony.ledger_spent:
        return
    # Taken at the witness's word, unit by unit: what was given back meanwhile stays charged.
    seen, now = map(int, testimony.ledger_spent.split()), ledger.spent.units
    lost = of_units(max(0, then - spent) for then, spent in zip(seen, now, strict=True))
    if lost == Charge():
        return
    question = f"charges that a rollback lost, up to entry {head.count} as the witness has seen it"
    try:
        made = ledger.reserve(lost, question=question, who="recover", idempotency_key=f"lost {head}")
    except BudgetError:
        raise DamageError("what a rollback lost must fit the cap that it was charged to, got more") from None
    if made.fresh:
        ledger.settle(made, lost)


def _forget_head(place: Path | str | None, testimony: Testimony) -> None:
    """The file that names entries which are booked again under other numbers goes; one that names more stays."""
    file = None if place is None else head_file(place)
    if file is None or not file.exists():
        return
    named = LocalWitness(file).read()
    if named is not None and named.count <= Head.parse(testimony.ledger_head).count:
        file.unlink()


def _carried(
    store: StateStore, record: StreamRecord, ring: KeyRing, plan: StreamPlan, last_tick: int, published: Published
) -> Carried:
    """The last values that are known, of the store or of a sink."""
    last: dict[str, tuple[int, pl.DataFrame]] = {}
    _, released = store.released_ticks(record.incarnation)
    schedules = [query.query.every for query in plan.queries]
    for tick in range(max(record.last_tick, released - max(schedules)) + 1, released + 1):
        stored, seal = store.release(record.incarnation, tick), store.seal(record.incarnation, tick, ring)
        if stored is None or seal is None:
            raise DamageError(f"tick {tick} must be sealed and released, got neither; restore a backup")
        stored.check(ring.epoch(seal.epoch), seal)
        last |= {name: (tick, table) for name, table in release_of(stored.payload).tables.items()}
    for name, (tick, table) in _up_to(published, last_tick).items():
        if tick > last.get(name, (record.last_tick,))[0]:
            last[name] = (tick, table)
    found = Carried.of(plan, last_tick, last, first=record.last_tick)
    return found.before(Carried.parse(record.base))


def _published(folder: Path | None, payloads: Iterable[bytes]) -> Published:
    """The last tables of each query that sinks have."""
    last: dict[str, tuple[int, pl.DataFrame]] = {}
    for payload in payloads:
        release = release_of(payload)
        for name, table in release.tables.items():
            if release.tick > last.get(name, (0,))[0]:
                last[name] = (release.tick, table)
    if folder is not None:
        try:
            tables = read_releases(folder)
        except OSError as fault:
            raise InputError(f"{folder} must be a folder of releases, got: {fault.strerror}") from None
        for name, table in tables.items():
            tick = table["tick"].max() if table.height else 0
            if isinstance(tick, int) and tick > last.get(name, (0,))[0]:
                last[name] = (tick, table.filter(pl.col("tick") == tick).drop("tick"))
    return last


def _up_to(published: Published, tick: int) -> Published:
    return {name: (at, table) for name, (at, table) in published.items() if at <= tick}


def _accepted(record: StreamRecord, carried: Carried, *, lost: int, charged: bool) -> Accepted:
    return Accepted(
        incarnation=record.incarnation.hex(),
        last_tick=record.last_tick,
        lost=lost,
        charged=charged,
        totals={name: base.tick for name, base in sorted(carried.bases.items())},
        anew=carried.anew,
    )


def heard_positions(wiring: Wiring, plan: StreamPlan, testimony: Testimony, ring: KeyRing) -> bytes:
    """Where the source was read to, as the witness says; with forward secrecy, under the key chain of its life."""
    if not plan.forward_secrecy:
        return testimony.positions
    file = wiring.key_chain()
    ratchet = Ratchet(file, file.links(), testimony.incarnation, lambda: ring)
    return ratchet.heard_positions(testimony.tick, testimony.positions)


def _testify(wiring: Wiring, store: StateStore, record: StreamRecord, plan: StreamPlan) -> None:
    assert wiring.witness is not None  # noqa: S101
    _, ring = open_record(store, wiring)
    testimony = Testimony(
        incarnation=record.incarnation,
        tick=record.last_tick,
        positions=record.begin(ring.keys[0], ratcheted=plan.forward_secrecy),
        mac=record.mac,
        ledger_head=check_ledger(store, ring, record, wiring),
        ledger_spent=spent_of(store, record),
    )
    wiring.witness.append(testimony, ring, new_life=True)
