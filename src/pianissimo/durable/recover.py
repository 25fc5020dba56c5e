"""After a loss that somebody accepts: a new life of the stream, behind everything that was ever released.

The store is behind its witness (a restored backup, a failover that lost its tail) or gone. What was released and is
lost here is known outside, so that no event of it may be released a second time: the new incarnation begins after the
last tick that the witness, the store or a sink knows, and reads its sources from there. All of its noise is new;
earlier releases stay as they are. Where the unit is the event and it is known where the last tick that was shown had
been read to, no event is in both lives, and the charge that was made covers both.

Otherwise events may be shown a second time, and the new life is charged anew: where the unit is not the event; where
store and witness have seen other events for one tick, so that both may have been shown; where a sink has later ticks
than either; and where the witness is lost, which nobody can ask what was shown after the last tick of this store.

Totals go on from the last value that is known to be published, in the store or in a sink, up to the tick of which it is
known where it was read to: see `carried`. What comes after it is read again, and would count twice. What the ledger
in the store lost is booked again, as far as the witness has seen it. Where the store is gone and its ledger with it, a
new one has the cap that the witness has seen, and all that was spent there is booked first.

A recovery has ended when the lease of its incarnation is taken. One that was cut off between its commit and its line in
the witness is finished by the next start or the next recovery, and not made again.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from pianissimo.durable.carried import Carried
from pianissimo.durable.charging import is_used, ledger_key_of, open_ledger, use_within
from pianissimo.durable.creation import (
    Life,
    begin_stream,
    config_digest,
    insert_charged_elsewhere,
    insert_incarnation,
    intend,
    is_created,
    make_store,
    renew,
    tell_beginning,
)
from pianissimo.durable.failpoints import reach
from pianissimo.durable.keys import KeyRing, ring_of
from pianissimo.durable.ledger_head import account_for_head, is_head_lost, keep_head
from pianissimo.durable.place import Wiring
from pianissimo.durable.records import Seal, StreamRecord
from pianissimo.durable.soundness import check_lives, is_begun, take_lease
from pianissimo.durable.start import check_config, check_ledger, check_releases, check_seals, open_record
from pianissimo.durable.store import StateStore
from pianissimo.durable.witness import Testimony
from pianissimo.errors import (
    BudgetError,
    ConfigError,
    DamageError,
    InputError,
    LedgerError,
    RefusalError,
    SecretError,
    StoreError,
)
from pianissimo.io import read_releases
from pianissimo.ledger import Charge, Entry, Head, Ledger
from pianissimo.ledger.units import of_units
from pianissimo.loss.losses import Unit
from pianissimo.noise import Secret
from pianissimo.stream import StreamPlan
from pianissimo.stream.release import release_of

Published = Mapping[str, Mapping[int, pl.DataFrame]]
"""Of each query the tables that were published, by tick."""


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

    same_life: bool = False
    """Whether the stream goes on as it was: only its ledger had lost what others were charged."""


def accept_rollback(
    plan: StreamPlan,
    config: dict[str, Any],
    wiring: Wiring,
    *,
    folder: Path | None = None,
    payloads: Iterable[bytes] = (),
    old_secret: Secret | None = None,
) -> Accepted:
    """Begin a new incarnation after all that is known to be released; refused where nothing was lost.

    `folder` is where a sink wrote releases, and `payloads` are the bytes that another one got: later ticks and totals
    than those of the store are taken from there, on the word of whoever gives them. `old_secret` is the store's, where
    it was rolled back to before a rotation: the stream's own, which the witness was written with, is that of the new
    life.
    """
    published = _published(folder, payloads)
    witness = wiring.witness
    if witness is None or witness.head() is None:
        raise StoreError("a rollback must be known by its witness to be accepted, got no witness")
    with _held(wiring, create=True) as store:
        if not is_created(store):
            return _from_nothing(store, wiring, plan, config, published)
        return _from_behind(store, wiring, plan, config, published, old_secret)


def accept_lost_witness(
    plan: StreamPlan,
    config: dict[str, Any],
    wiring: Wiring,
    *,
    folder: Path | None = None,
    payloads: Iterable[bytes] = (),
) -> Accepted:
    """Begin a new incarnation and a new witness after the last tick of this store, charged anew.

    Whether this store is the newest there was, nobody can tell. If it is not, the events after its last tick are shown
    a second time: under noise that is all new, and paid as such, also where the unit is the event.
    """
    published = _published(folder, payloads)
    witness = wiring.witness
    if witness is None or witness.head() is not None:
        raise RefusalError("a witness must be lost to be made anew, got one that is there; just start the stream")
    with _held(wiring, create=False) as store:
        if not is_created(store):
            raise RefusalError(
                "a stream must have begun to lose its witness, got a store in which none has: nothing was shown; just "
                "start the stream"
            )
        record, ring, last = _checked(store, wiring, plan, config)
        sealed = record.last_tick if last is None else last.tick
        last_tick = max(sealed, _last_shown(published))
        is_unused = not is_begun(store, record) and not is_used(store, ring, record, wiring.ledger)
        if is_unused and last_tick == record.last_tick:
            # A beginning that was cut off: what was charged for it was used for nothing.
            if any(is_begun(store, each) for each in store.streams()):
                with store.writing("recover"):
                    _account(store, wiring, record, ring)
            fresh, carried = renew(store, record, ring), Carried.parse(record.base)
            charged = all(each.charge != record.charge for each in store.streams()[:-2])
        else:
            known = _released(store, record)
            carried = _carried(store, record, ring, plan, last_tick, published, known)
            life = Life(
                plan,
                config,
                number=record.number + 1,
                last_tick=last_tick,
                positions=_stored_positions(store, record, ring),
                base=carried.packed(),
                follows=record.mac if last is None else last.mac,
            )
            fresh, charged = _charged_anew(store, wiring, record, ring, ring_of(ring.secrets[-1]), life), True
        _finish(store, wiring, fresh)
        return _accepted(fresh, carried, lost=last_tick - sealed, charged=charged)


@contextmanager
def _held(wiring: Wiring, *, create: bool) -> Iterator[StateStore]:
    """The store, for this process alone."""
    store = StateStore(wiring.opened(create=create))
    try:
        lock = wiring.held(store.connection, take_over=False)
        try:
            store.connection.settle()
            yield store
        finally:
            store.close()
            lock.release()
    finally:
        store.close()


def _checked(
    store: StateStore, wiring: Wiring, plan: StreamPlan, config: dict[str, Any], old_secret: Secret | None = None
) -> tuple[StreamRecord, KeyRing, Seal | None]:
    """The newest incarnation, its keys and its last seal, in a store where everything is as it was written."""
    if old_secret is not None:
        wiring = replace(wiring, read_secret=lambda _: old_secret)
    try:
        record, ring = open_record(store, wiring)
    except SecretError as error:
        if old_secret is not None:
            raise
        raise SecretError(
            f"{error}. If the store was rolled back to before a rotation, give the secret that it had then as well: "
            "--old-secret"
        ) from None
    check_config(record, plan, config)
    with store.reading():
        check_lives(store, ring)
        last = check_seals(store, record, ring)
        check_releases(store, record, last)
    check_ledger(store, ring, record, wiring)
    return record, ring, last


def _from_nothing(
    store: StateStore,
    wiring: Wiring,
    plan: StreamPlan,
    config: dict[str, Any],
    published: Published,
) -> Accepted:
    assert wiring.witness is not None  # noqa: S101
    ring = ring_of(wiring.secret(create=False))
    testimony = wiring.witness.last(ring)
    assert testimony is not None  # noqa: S101
    if bool(testimony.ledger_spent) == (wiring.ledger is not None):
        raise ConfigError(
            "a stream must be charged to the ledger that it was charged to before, got another: where that was in the "
            "lost store, leave --ledger out; otherwise name it with --ledger"
        )
    shown = _last_shown(published)
    last_tick = max(testimony.tick, shown)
    # Which incarnation published them, and where it began, nobody knows any more; it began at tick 1 or later.
    carried = Carried.of(plan, last_tick, _newest(published, testimony.tick), first=0)
    positions = testimony.positions
    if wiring.ledger is not None:
        charged, base = True, carried.packed()
        with _with_a_way_out():
            record = begin_stream(
                store, wiring, plan, config, None, last_tick=last_tick, positions=positions, base=base
            )
    else:
        # What was charged for these very parameters, and is booked again, covers events that were never shown.
        charged = (
            plan.unit is not Unit.EVENT
            or shown > testimony.tick
            or testimony.config_digest != config_digest(plan, config)
        )
        life = Life(plan, config, number=1, last_tick=last_tick, positions=positions, base=carried.packed())
        with _with_a_way_out(), store.writing("create"):
            make_store(store)
            ledger = open_ledger(store, ring.keys[0].ledger, cap=_cap_seen(testimony))
            key = _book_lost(ledger, testimony)
            account_for_head(ledger, wiring, Head.parse(testimony.ledger_head))
            record = insert_incarnation(store, ring, life, covered_by="" if charged else key)
            reach("create.commit")
    _finish(store, wiring, record)
    return _accepted(record, carried, lost=last_tick, charged=charged)


def _cap_seen(testimony: Testimony) -> Charge:
    return of_units(map(int, (testimony.ledger_cap or testimony.ledger_spent).split()))


def _book_lost(ledger: Ledger, testimony: Testimony) -> str:
    """Charge all that was spent in a ledger that is gone; gives the key."""
    key, spent = f"lost {testimony.ledger_head}", of_units(map(int, testimony.ledger_spent.split()))
    count = Head.parse(testimony.ledger_head).count
    question = f"all charges of a ledger that was lost, up to entry {count} as the witness has seen it"
    ledger.settle(ledger.reserve(spent, question=question, who="recover", idempotency_key=key), spent)
    return key


def _from_behind(
    store: StateStore,
    wiring: Wiring,
    plan: StreamPlan,
    config: dict[str, Any],
    published: Published,
    old_secret: Secret | None,
) -> Accepted:
    assert wiring.witness is not None  # noqa: S101
    record, ring, last = _checked(store, wiring, plan, config, old_secret)
    newest = ring_of(ring.secrets[-1])
    if old_secret is not None:
        ring = ring.rotated(wiring.secret(create=False), _later(store, record, wiring))
        newest = newest.rotated(ring.secrets[-1], ring.first_ticks[-1])
    testimony = _heard(wiring, ring)
    sealed, shown = record.last_tick if last is None else last.tick, _last_shown(published)
    if shown <= max(testimony.tick, sealed):
        if _is_as_seen(store, record, ring, testimony, testimony.tick):
            if is_head_lost(store, wiring, record, ring):
                return _with_rest_booked(store, wiring, record, ring, testimony)
            raise RefusalError(
                f"a rollback must have happened to be accepted, got a store that holds tick {testimony.tick} as its "
                "witness has seen it; just start the stream"
            )
        if last is None and _follows(store, record, testimony):
            return _finished(store, wiring, record)
    last_tick = max(testimony.tick, sealed, shown)
    positions, known = _last_positions(store, record, ring, testimony)
    carried = _carried(store, record, ring, plan, last_tick, published, known)
    life = Life(
        plan,
        config,
        number=record.number + 1,
        last_tick=last_tick,
        positions=positions,
        base=carried.packed(),
        follows=record.mac if last is None else last.mac,
    )
    forked = _is_forked(store, record, ring, last, testimony, wiring.witness.lines(ring))
    charged = plan.unit is not Unit.EVENT or forked or last_tick > max(testimony.tick, sealed)
    if charged:
        fresh = _charged_anew(store, wiring, record, ring, newest, life, testimony)
    else:
        with _with_a_way_out(), store.writing("recover"):
            was_begun = is_begun(store, record) or record.covered
            _overtake(store, ring, record)
            _book_again(store, wiring, record, ring, testimony)
            _account(store, wiring, record, ring, testimony)
            fresh = insert_incarnation(
                store,
                newest,
                life,
                covered_by=record.charge,
                receipt=record.receipt,
                is_used=was_begun,
            )
            reach("recover.commit")
    _finish(store, wiring, fresh)
    return _accepted(fresh, carried, lost=last_tick - sealed, charged=charged)


def _heard(wiring: Wiring, ring: KeyRing) -> Testimony:
    assert wiring.witness is not None  # noqa: S101
    try:
        testimony = wiring.witness.last(ring)
    except SecretError as error:
        raise SecretError(
            f"{error}. If the store was rolled back to before a rotation, give the newest secret, and the one that the "
            "store had then as well: --old-secret"
        ) from None
    assert testimony is not None  # noqa: S101
    return testimony


def _later(store: StateStore, record: StreamRecord, wiring: Wiring) -> int:
    """The first tick of a secret that this store has never seen: one after all that it or the witness knows."""
    head = None if wiring.witness is None else wiring.witness.head()
    sealed = store.last_sealed_tick(record.incarnation) or record.last_tick
    return max(sealed, 0 if head is None else head[1]) + 1


def _is_as_seen(store: StateStore, record: StreamRecord, ring: KeyRing, testimony: Testimony, up_to: int) -> bool:
    """Whether the newest incarnation holds a tick as the witness has seen it."""
    if testimony.incarnation != record.incarnation or testimony.tick > up_to:
        return False
    if testimony.tick == record.last_tick:
        return testimony.mac == record.mac
    seen = store.seal(record.incarnation, testimony.tick, ring)
    return seen is not None and seen.mac == testimony.mac


def _follows(store: StateStore, record: StreamRecord, testimony: Testimony) -> bool:
    """Whether an incarnation without a seal is that of a recovery which was cut off before it told the witness."""
    earlier = [each.incarnation for each in store.streams()[:-1]]
    return (
        not is_begun(store, record)
        and testimony.tick <= record.last_tick
        # In a store that was made anew nothing came before.
        and (testimony.incarnation in earlier or not earlier)
    )


def _finished(store: StateStore, wiring: Wiring, record: StreamRecord) -> Accepted:
    """The end of a recovery that was cut off: it is charged already."""
    earlier = store.streams()[:-1]
    sealed = (store.last_sealed_tick(earlier[-1].incarnation) or earlier[-1].last_tick) if earlier else 0
    charged = all(each.charge != record.charge for each in earlier)
    _finish(store, wiring, record)
    return _accepted(record, Carried.parse(record.base), lost=max(0, record.last_tick - sealed), charged=charged)


def _is_forked(
    store: StateStore,
    record: StreamRecord,
    ring: KeyRing,
    last: Seal | None,
    testimony: Testimony,
    lines: list[Testimony],
) -> bool:
    """Whether the store is evidently no beginning of what the witness has seen: both may have been shown.

    Some tick of this incarnation is sealed otherwise than the witness has seen it; or this incarnation has sealed ticks
    of which the witness, that names another one, has never heard.
    """
    sealed = record.last_tick if last is None else last.tick
    own = [line for line in (testimony, *lines) if line.incarnation == record.incarnation]
    if any(line.tick <= sealed and not _is_as_seen(store, record, ring, line, sealed) for line in own):
        return True
    heard = max((line.tick for line in own), default=record.last_tick)
    return testimony.incarnation != record.incarnation and heard < sealed


def _charged_anew(
    store: StateStore,
    wiring: Wiring,
    record: StreamRecord,
    ring: KeyRing,
    newest: KeyRing,
    life: Life,
    testimony: Testimony | None = None,
) -> StreamRecord:
    """A new life with a charge of its own, where the one before was charged."""
    if record.receipt:
        return _charged_elsewhere(store, wiring, record, ring, newest, life)
    key = ledger_key_of(store, ring)
    with _with_a_way_out(), store.writing("recover"):
        _overtake(store, ring, record)
        if testimony is not None:
            _book_again(store, wiring, record, ring, testimony)
        _account(store, wiring, record, ring, testimony)
        fresh = insert_incarnation(store, newest, life, ledger_key=key)
        reach("recover.commit")
    return fresh


def _charged_elsewhere(
    store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, newest: KeyRing, life: Life
) -> StreamRecord:
    """Intend, charge, insert; a recovery that was cut off goes on with what it had intended."""
    with store.writing("recover"):
        _overtake(store, ring, record)
        if store.intention(life.number) is None:
            intend(store, newest, life)
        reach("recover.commit")
    with _with_a_way_out():
        return insert_charged_elsewhere(store, newest, life, wiring)


def _overtake(store: StateStore, ring: KeyRing, record: StreamRecord) -> None:
    """Whoever still seals the life before writes nothing more. One that was never begun stays so: nobody does."""
    if is_begun(store, record):
        take_lease(store, ring.keys[0], record.incarnation, "recover")


@contextmanager
def _with_a_way_out() -> Iterator[None]:
    try:
        yield
    except BudgetError as error:
        raise BudgetError(
            f"{error}: what was lost is booked again, and a life whose events may have been shown before is charged "
            "anew. Bring the newer store, ledger or witness back; or begin a new stream with a cap of its own, on top "
            "of all that was released before"
        ) from None


def _finish(store: StateStore, wiring: Wiring, record: StreamRecord) -> None:
    """Tell the witness, use the charge, and take the lease: from now on the incarnation is begun."""
    _, ring = open_record(store, wiring)
    tell_beginning(store, wiring, record, ring, new_life=True)
    with store.writing("lease"):
        use_within(store, ring, record)
        take_lease(store, ring.keys[0], record.incarnation, "recover")
        reach("lease.commit")


def _book_again(store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, testimony: Testimony) -> None:
    """Charge what the witness has seen spent and the ledger, rolled back with its store, has forgotten.

    That is what was spent after the last entry that both know. What the ledger was charged since it was rolled back is
    no part of it.
    """
    if record.receipt or not testimony.ledger_spent:
        return
    assert wiring.witness is not None  # noqa: S101
    ledger = open_ledger(store, ledger_key_of(store, ring))
    head = Head.parse(testimony.ledger_head)
    with suppress(LedgerError):
        ledger.verify(head)
        return
    entries = {entry.number: entry for entry in ledger.entries()}
    common = (line.ledger_head for line in wiring.witness.lines(ring) if line.ledger_spent)
    known = [each for each in map(Head.parse, common) if _holds(entries, each)]
    # Without a line that both know, all that the witness has seen.
    before = entries[max(each.count for each in known)].spent if known else Charge().units
    # Taken at the witness's word, unit by unit: what was given back meanwhile stays charged.
    seen = map(int, testimony.ledger_spent.split())
    lost = of_units(max(0, then - spent) for then, spent in zip(seen, before, strict=True))
    if lost == Charge():
        return
    question = f"charges that a rollback lost, up to entry {head.count} as the witness has seen it"
    made = ledger.reserve(lost, question=question, who="recover", idempotency_key=f"lost {head}")
    if made.fresh:
        ledger.settle(made, lost)


def _holds(entries: Mapping[int, Entry], head: Head) -> bool:
    return head.count in entries and entries[head.count].digest == head.digest


def _account(
    store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, testimony: Testimony | None = None
) -> None:
    """Book what others may have been charged since, as far as neither ledger nor witness tells."""
    if not record.receipt:
        witnessed = None if testimony is None else Head.parse(testimony.ledger_head)
        account_for_head(open_ledger(store, ledger_key_of(store, ring)), wiring, witnessed)


def _with_rest_booked(
    store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, testimony: Testimony
) -> Accepted:
    """The stream is as it was, and its ledger is not: it goes on, and nobody is charged there any more."""
    with store.writing("recover"):
        store.take_lease(record.incarnation, "recover")
        _account(store, wiring, record, ring)
        reach("recover.commit")
    keep_head(store, wiring, record, ring)
    return Accepted(
        incarnation=record.incarnation.hex(), last_tick=testimony.tick, lost=0, charged=False, same_life=True
    )


def _carried(
    store: StateStore,
    record: StreamRecord,
    ring: KeyRing,
    plan: StreamPlan,
    last_tick: int,
    published: Published,
    known: int,
) -> Carried:
    """The last values up to the tick that the new life reads on from, of the store or of a sink."""
    last: dict[str, tuple[int, pl.DataFrame]] = {}
    _, released = store.released_ticks(record.incarnation)
    schedules = [query.query.every for query in plan.queries]
    for tick in range(max(record.last_tick, released - max(schedules)) + 1, released + 1):
        stored, seal = store.release(record.incarnation, tick), store.seal(record.incarnation, tick, ring)
        if stored is None or seal is None:
            raise DamageError(f"tick {tick} must be sealed and released, got neither; restore a backup")
        stored.check(ring.epoch(seal.epoch), seal)
        last |= {name: (tick, table) for name, table in release_of(stored.payload).tables.items()}
    for name, (tick, table) in _newest(published, known).items():
        if tick > last.get(name, (record.last_tick,))[0]:
            last[name] = (tick, table)
    found = Carried.of(plan, last_tick, last, first=record.last_tick)
    return found.before(Carried.parse(record.base))


def _published(folder: Path | None, payloads: Iterable[bytes]) -> Published:
    """The tables of each query that sinks have."""
    found: dict[str, dict[int, pl.DataFrame]] = {}
    for payload in payloads:
        release = release_of(payload)
        for name, table in release.tables.items():
            found.setdefault(name, {})[release.tick] = table
    if folder is not None:
        try:
            tables = read_releases(folder)
        except OSError as fault:
            raise InputError(f"{folder} must be a folder of releases, got: {fault.strerror}") from None
        for name, table in tables.items():
            for (tick,), part in table.group_by("tick", maintain_order=True):
                if isinstance(tick, int):
                    found.setdefault(name, {})[tick] = part.drop("tick")
    return found


def _newest(published: Published, known: int) -> dict[str, tuple[int, pl.DataFrame]]:
    """Of each query the last table up to a tick."""
    last = {name: max((tick for tick in tables if tick <= known), default=None) for name, tables in published.items()}
    return {name: (tick, published[name][tick]) for name, tick in last.items() if tick is not None}


def _last_shown(published: Published) -> int:
    """The last tick that a sink has."""
    return max((tick for tables in published.values() for tick in tables), default=0)


def _released(store: StateStore, record: StreamRecord) -> int:
    """The last tick that this store has released."""
    count, released = store.released_ticks(record.incarnation)
    return released if count else record.last_tick


def _accepted(record: StreamRecord, carried: Carried, *, lost: int, charged: bool) -> Accepted:
    return Accepted(
        incarnation=record.incarnation.hex(),
        last_tick=record.last_tick,
        lost=lost,
        charged=charged,
        totals={name: base.tick for name, base in sorted(carried.bases.items())},
        anew=carried.anew,
    )


def _last_positions(store: StateStore, record: StreamRecord, ring: KeyRing, testimony: Testimony) -> tuple[bytes, int]:
    """Where the source was read to at the last tick that was shown, as the witness or the store knows it; which it is.

    Of a tick that is sealed and not released nothing was shown: its events are read again. Where both know a tick, and
    differ, the totals go on from the store's.
    """
    released = _released(store, record)
    if testimony.tick > released:
        return testimony.positions, testimony.tick
    return _stored_positions(store, record, ring), released


def _stored_positions(store: StateStore, record: StreamRecord, ring: KeyRing) -> bytes:
    """Where the source was read to at the last tick that this store has released."""
    count, released = store.released_ticks(record.incarnation)
    seal = store.seal(record.incarnation, released, ring) if count else None
    return record.begin(ring.keys[0]) if seal is None else seal.positions
