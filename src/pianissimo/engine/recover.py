"""After a loss that somebody accepts: a new life of the stream, behind everything that was ever released.

The store is behind its witness (a restored backup, a failover that lost its tail) or gone. What was released and is
lost here is known outside, so that no event of it may be released a second time: the new incarnation begins after the
last tick that the witness, the store or a sink knows, and reads its sources from there. All of its noise is new;
earlier releases stay as they are. Where the unit is the event and it is known where the last tick that was shown had
been read to, no event is in both lives, and the charge that was made covers both.

Otherwise events may be shown a second time, and the new life is charged anew: where the unit is not the event; where
store and witness have seen other events for one tick, so that both may have been shown; where a sink has later ticks
than either; and where the witness is lost, which nobody can ask what was shown after the last tick of this store.

Totals go on from the last value that is known to be published, in the store or in a sink that has later ones: see
`carried`. What the ledger in the store lost is booked again, as far as the witness has seen it. Where the store is gone
and its ledger with it, a new one has the cap that the witness has seen, and all that was spent there is booked first.

A recovery has ended when the lease of its incarnation is taken. One that was cut off between its commit and its line in
the witness is finished by the next start or the next recovery, and not made again.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from pianissimo.engine.carried import Carried
from pianissimo.engine.charging import ledger_key_of, open_ledger
from pianissimo.engine.creation import (
    Life,
    begin_stream,
    config_digest,
    insert_charged_elsewhere,
    insert_incarnation,
    intend,
    is_begun,
    is_created,
    make_store,
    renew,
    tell_beginning,
)
from pianissimo.engine.failpoints import reach
from pianissimo.engine.keys import KeyRing, ring_of
from pianissimo.engine.ledger_head import account_for_head, is_head_lost, keep_head
from pianissimo.engine.ratchet import Ratchet
from pianissimo.engine.records import Seal, StreamRecord
from pianissimo.engine.sinks import read_releases
from pianissimo.engine.startup import check_config, check_ledger, check_releases, check_seals, open_record
from pianissimo.engine.store import StateStore
from pianissimo.engine.wiring import Wiring
from pianissimo.engine.witness import Testimony
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
from pianissimo.ledger import Charge, Entry, Head, Ledger
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

    same_life: bool = False
    """Whether the stream goes on as it was: only its ledger had lost what others were charged."""


def accept_rollback(
    plan: StreamPlan,
    config: dict[str, Any],
    wiring: Wiring,
    *,
    folder: Path | None = None,
    payloads: Iterable[bytes] = (),
    place: Path | str | None = None,  # noqa: ARG001
) -> Accepted:
    """Begin a new incarnation after all that is known to be released; refused where nothing was lost.

    `folder` is where a sink wrote releases, and `payloads` are the bytes that another one got: later ticks and totals
    than those of the store are taken from there, on the word of whoever gives them.
    """
    published = _published(folder, payloads)
    witness = wiring.witness
    if witness is None or witness.head() is None:
        raise StoreError("a rollback must be known by its witness to be accepted, got no witness")
    with _held(wiring, create=True) as store:
        if not is_created(store):
            return _from_nothing(store, wiring, plan, config, published)
        return _from_behind(store, wiring, plan, config, published)


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
        record, ring, last = _checked(store, wiring, plan, config)
        sealed = record.last_tick if last is None else last.tick
        last_tick = max(sealed, _last_shown(published))
        if not is_begun(store, record) and last_tick == record.last_tick:
            # A beginning that was cut off: what was charged for it was used for nothing.
            if any(is_begun(store, each) for each in store.streams()):
                with store.writing("recover"):
                    _account(store, wiring, record, ring)
            fresh, carried = renew(store, wiring, plan, record, ring), Carried.parse(record.base)
            charged = all(each.charge != record.charge for each in store.streams()[:-2])
        else:
            carried = _carried(store, record, ring, plan, last_tick, published)
            life = Life(
                plan,
                config,
                number=record.number + 1,
                last_tick=last_tick,
                positions=_stored_positions(store, wiring, plan, record, ring),
                base=carried.packed(),
            )
            fresh, charged = _charged_anew(store, wiring, record, ring, life), True
        _finish(store, wiring, plan, fresh)
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
    store: StateStore, wiring: Wiring, plan: StreamPlan, config: dict[str, Any]
) -> tuple[StreamRecord, KeyRing, Seal | None]:
    """The newest incarnation, its keys and its last seal, in a store where everything is as it was written."""
    record, ring = open_record(store, wiring)
    check_config(record, plan, config)
    with store.reading():
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
    carried = Carried.of(plan, last_tick, published, first=0)
    positions = heard_positions(wiring, plan, testimony, ring)
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
            record = insert_incarnation(store, ring, life, wiring, covered_by="" if charged else key)
            reach("create.commit")
    _finish(store, wiring, plan, record)
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
) -> Accepted:
    assert wiring.witness is not None  # noqa: S101
    record, ring, last = _checked(store, wiring, plan, config)
    try:
        testimony = wiring.witness.last(ring)
    except DamageError:
        testimony = wiring.witness.last(ring_of(ring.secrets[-1]))
    assert testimony is not None  # noqa: S101
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
            return _finished(store, wiring, plan, record)
    last_tick = max(testimony.tick, sealed, shown)
    carried = _carried(store, record, ring, plan, last_tick, published)
    life = Life(
        plan,
        config,
        number=record.number + 1,
        last_tick=last_tick,
        positions=_last_positions(store, wiring, plan, record, ring, last, testimony),
        base=carried.packed(),
    )
    forked = _is_forked(store, record, ring, last, testimony, wiring.witness.lines(ring))
    charged = plan.unit is not Unit.EVENT or forked or last_tick > max(testimony.tick, sealed)
    if charged:
        fresh = _charged_anew(store, wiring, record, ring, life, testimony)
    else:
        with _with_a_way_out(), store.writing("recover"):
            store.take_lease(record.incarnation, "recover")
            _book_again(store, wiring, record, ring, testimony)
            _account(store, wiring, record, ring, testimony)
            fresh = insert_incarnation(
                store, ring_of(ring.secrets[-1]), life, wiring, covered_by=record.charge, receipt=record.receipt
            )
            reach("recover.commit")
    _finish(store, wiring, plan, fresh)
    return _accepted(fresh, carried, lost=last_tick - sealed, charged=charged)


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


def _finished(store: StateStore, wiring: Wiring, plan: StreamPlan, record: StreamRecord) -> Accepted:
    """The end of a recovery that was cut off: it is charged already."""
    earlier = store.streams()[:-1]
    sealed = (store.last_sealed_tick(earlier[-1].incarnation) or earlier[-1].last_tick) if earlier else 0
    charged = all(each.charge != record.charge for each in earlier)
    _finish(store, wiring, plan, record)
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
    life: Life,
    testimony: Testimony | None = None,
) -> StreamRecord:
    """A new life with a charge of its own, where the one before was charged."""
    newest = ring_of(ring.secrets[-1])
    if record.receipt:
        return _charged_elsewhere(store, wiring, record, newest, life)
    key = ledger_key_of(store, ring)
    with _with_a_way_out(), store.writing("recover"):
        store.take_lease(record.incarnation, "recover")
        if testimony is not None:
            _book_again(store, wiring, record, ring, testimony)
        _account(store, wiring, record, ring, testimony)
        fresh = insert_incarnation(store, newest, life, wiring, ledger_key=key)
        reach("recover.commit")
    return fresh


def _charged_elsewhere(
    store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, life: Life
) -> StreamRecord:
    """Intend, charge, insert; a recovery that was cut off goes on with what it had intended."""
    with store.writing("recover"):
        store.take_lease(record.incarnation, "recover")
        if store.intention(life.number) is None:
            intend(store, ring, life)
        reach("recover.commit")
    with _with_a_way_out():
        return insert_charged_elsewhere(store, ring, life, wiring)


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


def _finish(store: StateStore, wiring: Wiring, plan: StreamPlan, record: StreamRecord) -> None:
    """Tell the witness, use the charge, and take the lease: from now on the incarnation is begun."""
    _, ring = open_record(store, wiring)
    tell_beginning(store, wiring, plan, record, ring, new_life=True)
    with store.writing("lease"):
        store.take_lease(record.incarnation, "recover")
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
    for name, (tick, table) in published.items():
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


def _last_shown(published: Published) -> int:
    """The last tick that a sink has."""
    return max((tick for tick, _ in published.values()), default=0)


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


def _last_positions(
    store: StateStore,
    wiring: Wiring,
    plan: StreamPlan,
    record: StreamRecord,
    ring: KeyRing,
    last: Seal | None,
    testimony: Testimony,
) -> bytes:
    """Where the source was read to at the last tick of which that is known, be it the witness's or the store's."""
    sealed = record.last_tick if last is None else last.tick
    if testimony.tick >= sealed:
        try:
            return heard_positions(wiring, plan, testimony, ring)
        except (DamageError, SecretError):
            if not plan.forward_secrecy:
                raise
    if last is not None and not plan.forward_secrecy:
        return last.positions
    return _stored_positions(store, wiring, plan, record, ring)


def _stored_positions(
    store: StateStore, wiring: Wiring, plan: StreamPlan, record: StreamRecord, ring: KeyRing
) -> bytes:
    """Where the source was read to at the last tick that this store has released."""
    begin = record.begin(ring.keys[0], ratcheted=plan.forward_secrecy)
    if not plan.forward_secrecy:
        count, released = store.released_ticks(record.incarnation)
        seal = store.seal(record.incarnation, released, ring) if count else None
        return begin if seal is None else seal.positions
    file = wiring.key_chain()
    ratchet = Ratchet(file, file.links(), record.incarnation, lambda: ring)
    snapshot = store.snapshot(record.incarnation)
    if snapshot is None:
        return ratchet.opened_positions(record.last_tick, begin, first=True)
    tick, closed = snapshot
    seal = store.seal(record.incarnation, tick, ring)
    if seal is None:
        raise DamageError("a stored state must belong to a sealed tick, got one that does not; restore a backup")
    keys = ratchet.after_tick(tick)
    ratchet.unpacked(keys.opened(closed, "snapshot", record.incarnation, tick, seal.mac))
    return ratchet.positions
