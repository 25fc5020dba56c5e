"""T0: a stream begins. Its whole horizon is charged and it is inserted, in one transaction, or nothing is.

Where the ledger is elsewhere, it is intended, charged and inserted: see `charging`. Then the witness gets a first line,
before the lease is taken for the first time. So a store whose lease was taken has a witness, or has lost it. One whose
lease was never taken, whose charge is not used and that has sealed nothing, has shown nothing: if it finds no witness,
it was cut off here, or is a copy of one that was, and goes on under a fresh incarnation, which nobody else has. The
charge that was made covers it.
"""

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pianissimo.durable.charging import (
    cap_of,
    charge_elsewhere,
    charge_of,
    charge_within,
    intended_key,
    is_used,
    open_ledger,
    question_of,
    seen_of_ledger,
    units_text,
    use_charge,
)
from pianissimo.durable.failpoints import reach
from pianissimo.durable.keys import KeyRing, Keys, ring_of
from pianissimo.durable.ledger_head import keep_head
from pianissimo.durable.place import Wiring
from pianissimo.durable.records import Intention, StreamRecord, begin_closed
from pianissimo.durable.soundness import is_begun, progress_mark
from pianissimo.durable.store import StateStore
from pianissimo.durable.witness import Testimony
from pianissimo.errors import ConfigError, DamageError, LeaseError, RollbackError, StoreError
from pianissimo.ledger import Charge
from pianissimo.noise import Secret
from pianissimo.stream import StreamPlan

__all__ = [
    "Life",
    "begin_stream",
    "cap_of",
    "charge_of",
    "check_creatable",
    "config_digest",
    "config_text",
    "create_stream",
    "finish_beginning",
    "insert_charged_elsewhere",
    "insert_incarnation",
    "intend",
    "is_created",
    "make_store",
    "renew",
    "tell_beginning",
]


def create_stream(
    store: StateStore,
    wiring: Wiring,
    plan: StreamPlan,
    config: dict[str, Any],
    cap: Charge | None,
) -> StreamRecord:
    """Begin a stream and tell its witness."""
    record = begin_stream(store, wiring, plan, config, cap)
    tell_beginning(store, wiring, record, ring_of(wiring.secret(create=False)), new_life=False)
    return record


def begin_stream(
    store: StateStore,
    wiring: Wiring,
    plan: StreamPlan,
    config: dict[str, Any],
    cap: Charge | None,
    *,
    last_tick: int = 0,
    positions: bytes = b"",
    base: bytes = b"",
) -> StreamRecord:
    """Make the tables, charge the horizon and insert the stream."""
    ring = ring_of(wiring.secret(create=True))
    life = Life(plan, config, number=1, last_tick=last_tick, positions=positions, base=base)
    if wiring.ledger is not None:
        if not store.is_made():
            with store.writing("create"):
                make_store(store)
                intend(store, ring, life)
                reach("create.commit")
        return insert_charged_elsewhere(store, ring, life, wiring)
    with store.writing("create"):
        make_store(store)
        record = insert_incarnation(store, ring, life, cap=cap or charge_of(plan))
        reach("create.commit")
    return record


def make_store(store: StateStore) -> None:
    """The tables, in the transaction begun."""
    if store.is_made():
        raise LeaseError("a stream must be created once, got another process that does so now; start again")
    store.make()


def is_created(store: StateStore) -> bool:
    """Whether there is a stream, and not only the intention of one."""
    return store.is_made() and (bool(store.streams()) or store.intention(1) is None)


def tell_beginning(store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, *, new_life: bool) -> None:
    """Tell the witness of an incarnation before anything of it is counted, then use its charge if that is elsewhere."""
    keep_head(store, wiring, record, ring)
    if wiring.witness is not None:
        testimony = Testimony(
            incarnation=record.incarnation,
            tick=record.last_tick,
            positions=record.begin(ring.keys[0]),
            mac=record.mac,
            config_digest=record.config_digest,
            **seen_of_ledger(store, ring, record),
        )
        wiring.witness.append(testimony, ring, new_life=new_life)
    use_charge(record, wiring.ledger)


def finish_beginning(store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing) -> None:
    """What was left undone where the beginning of an incarnation, new or after a recovery, was cut off."""
    if is_begun(store, record):
        return
    head = None if wiring.witness is None else wiring.witness.head()
    earlier = store.streams()[:-1]
    if wiring.witness is not None and head is None:
        if any(is_begun(store, each) for each in earlier) or is_used(store, ring, record, wiring.ledger):
            use_charge(record, wiring.ledger)  # by itself, or refused
            return  # its witness is lost: `check_witness` refuses it
        record = renew(store, record, ring)
    elif head is not None and head[0] == record.incarnation:
        use_charge(record, wiring.ledger)
        return
    elif head is not None and (head[1] > record.last_tick or all(each.incarnation != head[0] for each in earlier)):
        return  # rolled back: `check_witness` refuses it
    tell_beginning(store, wiring, record, ring, new_life=True)


def renew(store: StateStore, record: StreamRecord, ring: KeyRing) -> StreamRecord:
    """A fresh incarnation in the place of one that was never begun, for the same charge, which nobody uses."""
    if record.covered or is_begun(store, record):
        raise LeaseError("a life must have shown nothing for another to take its place, got one that was begun")
    incarnation, keys = secrets.token_bytes(16), ring.keys[0]
    positions = begin_closed(keys, incarnation, record.begin(keys))
    number, follows = record.number + 1, record.mac  # it has sealed nothing
    fresh = replace(record, incarnation=incarnation, number=number, positions=positions, follows=follows).signed(keys)
    with store.writing("create"):
        insert_record(store, ring, fresh)
        reach("create.commit")
    return fresh


def insert_record(store: StateStore, ring: KeyRing, record: StreamRecord) -> None:
    """A life of which nothing is visible and no lease was taken; in the transaction begun."""
    mark = progress_mark(ring.keys[0], record.incarnation, record.last_tick, 0)
    store.insert_stream(record, ring.rows(record.incarnation), mark)


@dataclass(frozen=True, slots=True)
class Life:
    """What an incarnation begins with."""

    plan: StreamPlan
    config: dict[str, Any]
    number: int
    last_tick: int
    positions: bytes
    base: bytes = b""
    follows: bytes = b""
    """The digest of the last seal before, in this store."""

    def record(
        self, keys: Keys, incarnation: bytes, charge: str, receipt: str = "", *, covered: bool = False
    ) -> StreamRecord:
        """The record of it, signed."""
        return StreamRecord(
            incarnation=incarnation,
            number=self.number,
            name=self.plan.name,
            config=config_text(self.plan, self.config),
            config_digest=config_digest(self.plan, self.config),
            created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            last_tick=self.last_tick,
            positions=begin_closed(keys, incarnation, self.positions),
            charge=charge,
            receipt=receipt,
            base=self.base,
            covered=covered,
            follows=self.follows,
        ).signed(keys)


def insert_incarnation(
    store: StateStore,
    ring: KeyRing,
    life: Life,
    *,
    cap: Charge | None = None,
    ledger_key: Secret | None = None,
    covered_by: str = "",
    receipt: str = "",
    is_used: bool = True,
) -> StreamRecord:
    """A new life of the stream, and the charge for it unless an earlier one covers it; in the transaction begun.

    `is_used` says whether an earlier life uses the charge that covers this one.
    """
    incarnation = secrets.token_bytes(16)
    key = covered_by or f"stream {incarnation.hex()}"
    if not covered_by:
        ledger = open_ledger(store, ledger_key or ring.keys[0].ledger, cap=cap)
        charge_within(ledger, key, question_of(life.plan, life.last_tick), charge_of(life.plan))
    record = life.record(ring.keys[0], incarnation, key, receipt, covered=bool(covered_by) and is_used)
    insert_record(store, ring, record)
    return record


def intend(store: StateStore, ring: KeyRing, life: Life) -> None:
    """Write down what will be charged elsewhere, under a name of its own; in the transaction begun.

    The name is no incarnation: copies of the store have it too, and must not share their noise.
    """
    store.insert_intention(
        Intention(
            incarnation=secrets.token_bytes(16),
            number=life.number,
            config_digest=config_digest(life.plan, life.config),
            question=question_of(life.plan, life.last_tick),
            units=units_text(charge_of(life.plan)),
        ).signed(ring.keys[0])
    )


def insert_charged_elsewhere(store: StateStore, ring: KeyRing, life: Life, wiring: Wiring) -> StreamRecord:
    """Charge what was intended, once however often it is tried; draw an incarnation and insert it with the receipt."""
    if wiring.ledger is None:
        raise ConfigError("the ledger that the stream is charged to must be given, got none; name it with --ledger")
    intention = store.intention(life.number)
    if intention is None:
        raise DamageError("a stream that is charged elsewhere must be intended first, got no intention")
    intention.check(ring.keys[0])
    if not hmac.compare_digest(intention.config_digest, config_digest(life.plan, life.config)):
        raise ConfigError(
            "a stream whose charge was begun must be created with the parameters it was begun with, got others; go "
            "back to them, or begin in another folder, which is charged anew: what was charged stays booked"
        )
    receipt = charge_elsewhere(wiring.ledger, intention)
    incarnation = secrets.token_bytes(16)
    record = life.record(ring.keys[0], incarnation, intended_key(intention), receipt.text)
    with store.writing("create"):
        insert_record(store, ring, record)
        reach("create.commit")
    return record


def config_digest(plan: StreamPlan, config: dict[str, Any]) -> bytes:
    """A short name for all that a release depends on besides the data."""
    return hashlib.blake2b(plan.digest + json.dumps(config["clock"], sort_keys=True).encode(), digest_size=16).digest()


def config_text(plan: StreamPlan, config: dict[str, Any]) -> str:
    """What the stream was created with, for people."""
    return json.dumps({"plan": plan.to_dict(), **config}, ensure_ascii=False)


def check_creatable(store: StateStore, wiring: Wiring, *, create: bool) -> None:
    """Refuse to begin where nothing may begin."""
    if not create:
        raise StoreError(f"there must be a stream at {store.place}, got none")
    wiring.check_unwitnessed()
    if wiring.ledger is None and wiring.head is not None and wiring.head.exists():
        raise RollbackError(
            f"the store must hold the ledger whose last head is kept in {wiring.head}, got no store; bring it back, "
            "or, to begin a new budget on top of all that was released before, move that file away"
        )
