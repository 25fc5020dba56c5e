"""What is checked before a durable stream goes on: secret, digests, order, ledger, configuration, witness.

In doubt it stops: nothing here repairs anything.
"""

import hmac
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pianissimo.durable.charging import check_receipt, is_used, ledger_key_of, open_ledger, seen_of_ledger
from pianissimo.durable.creation import config_digest, config_text, finish_beginning
from pianissimo.durable.keys import KeyRing, open_ring
from pianissimo.durable.ledger_head import check_head
from pianissimo.durable.place import Wiring
from pianissimo.durable.records import Seal, StreamRecord
from pianissimo.durable.soundness import check_lives, check_sound, is_begun
from pianissimo.durable.store import StateStore
from pianissimo.errors import ConfigError, DamageError, LedgerError, RollbackError
from pianissimo.ledger import Head
from pianissimo.stream import StreamPlan

_MOST_SHOWN = 4
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Found:
    """A store in which everything is as it was written."""

    record: StreamRecord
    ring: KeyRing
    last: Seal | None
    ledger_head: str
    ledger_spent: str
    ledger_cap: str

    def __repr__(self) -> str:
        # A seal tells where the source was read to.
        return f"Found({self.record.name!r}, tick={self.record.last_tick if self.last is None else self.last.tick})"


def check_start(
    store: StateStore, wiring: Wiring, plan: StreamPlan, config: dict[str, Any], *, writable: bool = False
) -> Found:
    """All checks of a start; `writable`, for the process that holds the lock, what was cut off is finished first."""
    if writable:
        record, ring = open_record(store, wiring)
        check_config(record, plan, config)
        # What says whether a life was begun is believed only with its mark.
        check_lives(store, ring)
        finish_beginning(store, wiring, record, ring)
    found = check_store(store, wiring)
    check_config(found.record, plan, config)
    if writable and wiring.witness is not None:
        wiring.witness.shorten()
    return found


def check_store(store: StateStore, wiring: Wiring) -> Found:
    """The checks that need no plan."""
    record, ring = open_record(store, wiring)
    with store.reading():
        last = check_seals(store, record, ring)
        check_releases(store, record, last)
        check_sound(store, ring)
    head = check_ledger(store, ring, record, wiring)
    check_witness(store, wiring, record, ring, last)
    check_head(store, wiring, record, ring, begun=any(is_begun(store, each) for each in store.streams()))
    seen = seen_of_ledger(store, ring, record)
    return Found(
        record=record,
        ring=ring,
        last=last,
        ledger_head=head,
        ledger_spent=seen.get("ledger_spent", ""),
        ledger_cap=seen.get("ledger_cap", ""),
    )


def open_record(store: StateStore, wiring: Wiring) -> tuple[StreamRecord, KeyRing]:
    """The stream's record and its keys, if the secret is the right one."""
    records = store.streams()
    if not records or [record.number for record in records] != list(range(1, len(records) + 1)):
        raise DamageError("a store must hold the record of its stream, got none; restore a backup")
    record = records[-1]
    ring = open_ring(wiring.secret(create=False), record.incarnation, store.epochs(record.incarnation))
    record.check(ring.keys[0])
    return record, ring


def check_config(record: StreamRecord, plan: StreamPlan, config: dict[str, Any]) -> None:
    """Refuse other parameters than those that the stream was created with, and show which."""
    if hmac.compare_digest(record.config_digest, config_digest(plan, config)):
        return
    before, after = json.loads(record.config), json.loads(config_text(plan, config))
    # What the user wrote tells more than what the plan made of it.
    found = [*_differences(before, after)]
    changes = [
        f"{path}: {_short(old)} is now {_short(new)}"
        for path, old, new in sorted(found, key=lambda each: each[0].startswith("plan"))
    ]
    shown = "; ".join(changes[:_MOST_SHOWN]) or "a field that only the digest shows"
    raise ConfigError(
        f"stream {record.name!r} must go on with the parameters that it was created with, got others: {shown}. "
        "Go back to them, or begin a new stream in another folder, which is charged anew"
    )


def check_seals(store: StateStore, record: StreamRecord, ring: KeyRing) -> Seal | None:
    """Every seal carries its digest, follows the one before, and is of this configuration; gives the last."""
    last: Seal | None = None
    previous, tick = record.mac, record.last_tick
    for seal in store.seals(record.incarnation, ring):
        tick += 1
        if seal.tick != tick:
            raise DamageError(f"tick {tick} must be sealed, got a gap before tick {seal.tick}; restore a backup")
        if not hmac.compare_digest(seal.previous, previous):
            raise DamageError(f"the seal of tick {tick} must follow the one before, got another; restore a backup")
        if seal.config_digest != record.config_digest or seal.epoch != ring.number_at(tick):
            raise DamageError(f"the seal of tick {tick} must be of this stream and its keys, got others")
        previous, last = seal.mac, seal
    return last


def check_releases(store: StateStore, record: StreamRecord, last: Seal | None) -> None:
    """Every tick but perhaps the last is released, and nothing else."""
    sealed = 0 if last is None else last.tick - record.last_tick
    count, final = store.released_ticks(record.incarnation)
    expected = {sealed, max(0, sealed - 1)}
    if count not in expected or (count and final != record.last_tick + count):
        raise DamageError("every sealed tick but the last must have one release, got others; restore a backup")
    if store.visible(record.incarnation) > record.last_tick + count:
        raise DamageError("what is visible must be released, got a later tick; restore a backup")


def check_ledger(store: StateStore, ring: KeyRing, record: StreamRecord, wiring: Wiring) -> str:
    """The ledger is whole and holds the charge of this stream; gives its head."""
    if record.receipt:
        return check_receipt(record, wiring.ledger)
    if wiring.ledger is not None:
        raise ConfigError(
            "a stream must go on with the ledger that it was charged to, which is in its own store, got another; "
            "leave --ledger out"
        )
    try:
        head = open_ledger(store, ledger_key_of(store, ring)).verify().head
    except LedgerError as error:
        raise DamageError(str(error)) from None
    if not store.has_charge(record.charge):
        raise DamageError("the ledger must hold the charge of this stream, got none; restore a backup")
    return str(head)


def check_witness(store: StateStore, wiring: Wiring, record: StreamRecord, ring: KeyRing, last: Seal | None) -> None:
    """Refuse a store that its witness has seen further ahead, or that has other seals than the witness saw."""
    if wiring.witness is None:
        return
    head = wiring.witness.head()
    if head is None:
        if any(is_begun(store, each) for each in store.streams()) or is_used(store, ring, record, wiring.ledger):
            raise RollbackError(
                "the witness of the stream must be there, since it has been running, got none; bring it back, or begin "
                "a new life, which is charged anew, with: pianissimo recover DIR --accept-lost-witness"
            )
        return
    incarnation, tick = head
    sealed = record.last_tick if last is None else last.tick
    if incarnation != record.incarnation:
        earlier = [each for each in store.streams() if each.incarnation == incarnation]
        if not earlier or tick > record.last_tick:
            raise _rolled_back(tick, sealed)
        return
    testimony = wiring.witness.last(ring)
    if testimony is None or tick > sealed:
        raise _rolled_back(tick, sealed)
    seen = store.seal(record.incarnation, tick, ring) if tick > record.last_tick else None
    mac = record.mac if tick == record.last_tick else b"" if seen is None else seen.mac
    if not hmac.compare_digest(mac, testimony.mac):
        raise RollbackError(
            f"tick {tick} must be sealed as its witness has seen it, got other events: the store was rolled back and "
            "has gone on; bring the right one back, or accept it with: pianissimo recover DIR --accept-rollback"
        )
    if not record.receipt:
        try:
            open_ledger(store, ledger_key_of(store, ring)).verify(Head.parse(testimony.ledger_head))
        except LedgerError as error:
            raise RollbackError(f"{error}: the witness has seen more of the ledger") from None


def _rolled_back(witnessed: int, sealed: int) -> RollbackError:
    return RollbackError(
        f"the store must be at tick {witnessed} or later, which its witness has seen, got tick {sealed}: it was rolled "
        "back; bring the newer one back, or accept the loss with: pianissimo recover DIR --accept-rollback"
    )


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


def _differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(each for each in after if each not in before)]:
            yield from _differences(before.get(name), after.get(name), f"{path}.{name}" if path else name)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, f"{path}[{place}]")
    elif before != after:
        yield path, before, after
