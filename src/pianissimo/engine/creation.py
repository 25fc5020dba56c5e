"""T0: a stream begins. Its whole horizon is charged and it is inserted, in one transaction, or nothing is."""

import hashlib
import json
import secrets
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from pianissimo.accounting import Budget
from pianissimo.engine.failpoints import reach
from pianissimo.engine.keys import KeyRing, ring_of
from pianissimo.engine.ratchet import begin_chain
from pianissimo.engine.records import StreamRecord
from pianissimo.engine.store import StateStore
from pianissimo.engine.wiring import Wiring
from pianissimo.errors import LeaseError, StoreError
from pianissimo.ledger import Charge, Ledger, StoreWithin
from pianissimo.planner import StreamPlan

_DISTANCE_FACTOR = 2**10
"""More than 1 + e^epsilon, by which the noise's distance from the ideal one enters delta, for an epsilon below 6.9."""


def create_stream(
    store: StateStore,
    wiring: Wiring,
    plan: StreamPlan,
    config: dict[str, Any],
    cap: Charge | None,
    *,
    last_tick: int = 0,
    positions: bytes = b"",
) -> StreamRecord:
    """Make the tables, charge the horizon and insert the stream."""
    ring = ring_of(wiring.secret(create=True))
    with store.writing("create"):
        if store.is_made():
            raise LeaseError("a stream must be created once, got another process that does so now; start again")
        store.make()
        record = insert_incarnation(
            store,
            ring,
            plan,
            config,
            cap=cap or charge_of(plan),
            number=1,
            last_tick=last_tick,
            positions=positions,
            wiring=wiring,
        )
        reach("create.commit")
    return record


def insert_incarnation(
    store: StateStore,
    ring: KeyRing,
    plan: StreamPlan,
    config: dict[str, Any],
    *,
    number: int,
    last_tick: int,
    positions: bytes,
    wiring: Wiring,
    cap: Charge | None = None,
    covered_by: str | None = None,
) -> StreamRecord:
    """A new life of the stream, and the charge that covers it unless an earlier one does; in the transaction begun."""
    incarnation = secrets.token_bytes(16)
    if plan.forward_secrecy:
        # On the disk before the stream is: a stream without its chain could not go on.
        chain = secrets.token_bytes(32)
        positions = begin_chain(wiring.key_chain(), ring, incarnation, last_tick, positions, chain)
    key = covered_by or f"stream {incarnation.hex()}"
    if covered_by is None:
        ledger = open_ledger(store, ring, cap=cap)
        question = f"stream {plan.name}: {plan.horizon} ticks from tick {last_tick + 1} on"
        charge = charge_of(plan)
        made = ledger.reserve(charge, question=question, who="stream", idempotency_key=key)
        # A stream gives nothing back, whatever comes of it.
        ledger.settle(made, charge)
    record = StreamRecord(
        incarnation=incarnation,
        number=number,
        name=plan.name,
        config=config_text(plan, config),
        config_digest=config_digest(plan, config),
        created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        last_tick=last_tick,
        positions=positions,
        charge=key,
    ).signed(ring.keys[0])
    store.insert_stream(record, ring.row(incarnation))
    return record


def charge_of(plan: StreamPlan) -> Charge:
    """What the whole horizon costs, rounded up, in the units of a ledger."""
    rho, bad = Fraction(0), Fraction(0)
    for query in plan.queries:
        loss = query.guarantee.loss.as_ledger()
        rho += loss.rho
        bad += loss.bad + _DISTANCE_FACTOR * loss.distance
    return Charge.rounded_up(rho=rho, bad=bad)


def cap_of(budget: Budget) -> Charge:
    """What a budget for one data set allows in all, rounded down: half of its delta is for bad mass.

    >>> cap_of(Budget(1.0, 1e-6)).bad <= Fraction(1, 2 * 10**6)
    True
    """
    bad = Fraction(budget.delta) / 2
    return Charge.rounded_down(rho=budget.rho(bad=bad), bad=bad)


def open_ledger(store: StateStore, ring: KeyRing, *, cap: Charge | None = None) -> Ledger:
    """The ledger among the tables of the store."""
    return Ledger.within(StoreWithin(store.connection), key=ring.keys[0].ledger, cap=cap)


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
