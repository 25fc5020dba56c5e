"""T0: a stream begins. Its whole horizon is charged and it is inserted, in one transaction, or nothing is.

Where the ledger is elsewhere, it is intended, charged and inserted: see `charging`.
"""

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pianissimo.engine.charging import (
    cap_of,
    charge_elsewhere,
    charge_of,
    charge_within,
    open_ledger,
    question_of,
    units_text,
)
from pianissimo.engine.failpoints import reach
from pianissimo.engine.keys import KeyRing, Keys, ring_of
from pianissimo.engine.ratchet import begin_chain
from pianissimo.engine.records import Intention, StreamRecord, begin_closed
from pianissimo.engine.store import StateStore
from pianissimo.engine.wiring import Wiring
from pianissimo.errors import ConfigError, DamageError, LeaseError, StoreError
from pianissimo.ledger import Charge
from pianissimo.noise import Secret
from pianissimo.planner import StreamPlan

__all__ = [
    "Life",
    "cap_of",
    "charge_of",
    "check_creatable",
    "config_digest",
    "config_text",
    "create_stream",
    "insert_charged_elsewhere",
    "insert_incarnation",
    "intend",
    "is_created",
]


def create_stream(
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
                _make(store)
                intend(store, ring, life)
                reach("create.commit")
        return insert_charged_elsewhere(store, ring, life, wiring)
    with store.writing("create"):
        _make(store)
        record = insert_incarnation(store, ring, life, wiring, cap=cap or charge_of(plan))
        reach("create.commit")
    return record


def _make(store: StateStore) -> None:
    if store.is_made():
        raise LeaseError("a stream must be created once, got another process that does so now; start again")
    store.make()


def is_created(store: StateStore) -> bool:
    """Whether there is a stream, and not only the intention of one."""
    return store.is_made() and (bool(store.streams()) or store.intention(1) is None)


@dataclass(frozen=True, slots=True)
class Life:
    """What an incarnation begins with."""

    plan: StreamPlan
    config: dict[str, Any]
    number: int
    last_tick: int
    positions: bytes
    base: bytes = b""

    def record(self, keys: Keys, incarnation: bytes, charge: str, receipt: str = "") -> StreamRecord:
        """The record of it, signed."""
        return StreamRecord(
            incarnation=incarnation,
            number=self.number,
            name=self.plan.name,
            config=config_text(self.plan, self.config),
            config_digest=config_digest(self.plan, self.config),
            created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            last_tick=self.last_tick,
            positions=self.positions if self.plan.forward_secrecy else begin_closed(keys, incarnation, self.positions),
            charge=charge,
            receipt=receipt,
            base=self.base,
        ).signed(keys)


def insert_incarnation(
    store: StateStore,
    ring: KeyRing,
    life: Life,
    wiring: Wiring,
    *,
    cap: Charge | None = None,
    ledger_key: Secret | None = None,
    covered_by: StreamRecord | None = None,
) -> StreamRecord:
    """A new life of the stream, and the charge that covers it unless an earlier one does; in the transaction begun."""
    incarnation = secrets.token_bytes(16)
    life = _with_chain(life, ring, wiring, incarnation)
    if covered_by is None:
        key, receipt = f"stream {incarnation.hex()}", ""
        ledger = open_ledger(store, ledger_key or ring.keys[0].ledger, cap=cap)
        charge_within(ledger, key, question_of(life.plan, life.last_tick), charge_of(life.plan))
    else:
        key, receipt = covered_by.charge, covered_by.receipt
    record = life.record(ring.keys[0], incarnation, key, receipt)
    store.insert_stream(record, ring.row(incarnation))
    return record


def _with_chain(life: Life, ring: KeyRing, wiring: Wiring, incarnation: bytes) -> Life:
    """Of a life with forward secrecy the key chain begins, on the disk before the stream is there."""
    if not life.plan.forward_secrecy:
        return life
    chain = secrets.token_bytes(32)
    positions = begin_chain(wiring.key_chain(), ring, incarnation, life.last_tick, life.positions, chain)
    return replace(life, positions=positions)


def intend(store: StateStore, ring: KeyRing, life: Life) -> None:
    """Draw an incarnation and write down what it will be charged elsewhere; in the transaction begun."""
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
    """Charge what was intended, once however often this is tried, and insert the stream with the receipt."""
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
    life = _with_chain(life, ring, wiring, intention.incarnation)
    charge = f"stream {intention.incarnation.hex()}"
    record = life.record(ring.keys[0], intention.incarnation, charge, receipt.text)
    with store.writing("create"):
        store.insert_stream(record, ring.row(intention.incarnation))
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
