"""What a stream costs, and where that is booked: in the ledger among its own tables, or in one elsewhere.

A data set has one cap, whoever asks: streams, sketches and single questions. The first stream may hold the ledger in
its store, where the charge and the stream are one transaction. A further stream is charged to that ledger from outside,
which cannot be one transaction with its own store. So it goes in five steps, each durable before the next:

1. *Intend*: what it will cost is stored, under a random name that is the charge's idempotency key.
2. *Charge*: in the ledger, under that key, so that nothing is charged twice.
3. *Insert*: the incarnation is drawn, and the stream inserted with a receipt.
4. *Testify*: the witness gets its first line, which names the incarnation.
5. *Use*: the ledger notes, once and for ever, which incarnation uses the charge. Only then is the lease taken, and
   before that nothing is counted or shown.

After a crash the next start goes on where the steps ended. Why no crash stops an honest stream: between 3 and 4 nothing
was used yet, so that a fresh incarnation takes the place of the first one; after 4 the witness names the one that
uses the charge, and using it again is the same entry. Why a copy of the store gets no second stream for the charge: one
made before 4 has no witness, draws an incarnation of its own at step 3 or after it, and of two incarnations the second
to come to 5 is refused. One made after 4 without its witness draws a fresh one as well, and is refused at 5; made after
the lease was taken, it is refused for want of its witness. One that shares the witness has the incarnation that it
names, and is stopped by the lines of the other. A copied witness is the known limit. A stream never starts unpaid; a
charge whose stream never came to be stays booked.

Where the ledger is in the store, the charge is used in the transaction that takes the first lease. Either way it is the
ledger that says whether a charge is used, and no row that lacks a digest: a charge that is used begins no second life.
An incarnation which the charge of an earlier one covers says so in its record, under its digest, and uses nothing.
"""

import hmac
import json
import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Protocol

from pianissimo.budget import Budget
from pianissimo.durable.keys import KeyRing
from pianissimo.durable.records import Intention, StreamRecord
from pianissimo.durable.store import StateStore
from pianissimo.errors import ConfigError, DamageError, LedgerError, ParameterError, RollbackError
from pianissimo.ledger import Charge, Head, Ledger, StoreWithin
from pianissimo.loss.losses import Booked, Race, Unit, float_up
from pianissimo.loss.race_clock import booked_race
from pianissimo.noise import Secret
from pianissimo.stream import StreamPlan

_LEAST_FACTOR = 2**10
_RACE_SHARE = 8
"""A race is booked with one in so many parts of its stream's delta as bad mass."""


def charge_of(plan: StreamPlan) -> Charge:
    """What the whole horizon costs, rounded up, in the units of a ledger.

    Whatever the plan was priced by, this is an upper bound: pure losses count as epsilon^2 / 2, races as
    `booked_race` has them, and the distance of the noise as bad mass.
    """
    # By which the distance of drawn noise from the ideal one enters delta: 1 + e^epsilon.
    factor = max(_LEAST_FACTOR, math.ceil(1 + math.exp(min(float_up(Fraction(plan.budget.epsilon)), 700.0))))
    # A mechanism that answers several queries is run once.
    losses = list({id(query.mechanism): query.guarantee.loss for query in plan.queries}.values())
    races = [loss for loss in losses if isinstance(loss, Race) and loss.charges]
    booked = [loss.as_booked() for loss in losses if loss not in races]
    if races:
        booked.append(_booked_races(races, plan.budget))
    rho = sum((each.rho for each in booked), Fraction(0))
    bad = sum((each.bad + factor * each.distance for each in booked), Fraction(0))
    try:
        return Charge.rounded_up(rho=rho, bad=bad)
    except ParameterError:
        raise ParameterError(
            f"a stream must cost less than 2^22 in rho to be booked, got {float(rho):g}; "
            "give it a smaller epsilon, or run it in memory"
        ) from None


def _booked_races(races: list[Race], budget: Budget) -> Booked:
    """All races as one: of several scales all count at the smallest, as `accounting.race` has it."""
    if budget.pure:
        raise ParameterError(
            "a stream with alarms or trends must have a delta to be booked, got a budget without; allow a delta"
        )
    whole = Race(
        sum(race.charges for race in races),
        min(race.scale for race in races),
        sum((race.bad for race in races), Fraction(0)),
        sum((race.distance for race in races), Fraction(0)),
        replacement=any(race.replacement for race in races),
    )
    return booked_race(whole, Fraction(budget.delta) / _RACE_SHARE)


def cap_of(budget: Budget) -> Charge:
    """What a budget for one data set allows in all, rounded down: half of its delta is for bad mass.

    >>> cap_of(Budget(1.0, 1e-6)).bad <= Fraction(1, 2 * 10**6)
    True
    >>> cap_of(Budget(1.0, 0))
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: the budget of a data set must have a delta, got 0: a ledger adds up rho; ...
    """
    if budget.pure:
        raise ParameterError(
            "the budget of a data set must have a delta, got 0: a ledger adds up rho; allow a delta such as 1e-9"
        )
    bad = Fraction(budget.delta) / 2
    return Charge.rounded_down(rho=budget.rho(bad=bad), bad=bad)


def question_of(plan: StreamPlan, last_tick: int) -> str:
    """As the ledger notes it."""
    unit = plan.unit if isinstance(plan.unit, Unit) else plan.unit.unit
    name = "".join(letter if letter.isprintable() else "?" for letter in plan.name)
    return f"stream {name}: {plan.horizon} ticks from tick {last_tick + 1} on, hides one {unit.value}"


class AnyLedgerElsewhere(Protocol):
    """A ledger that is not in the stream's store."""

    def is_away(self) -> bool:
        """Whether it cannot be reached now."""

    def open(self) -> Ledger:
        """The ledger, verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Where a stream's charge is booked; part of the stream's record and covered by its digest.

    >>> receipt = Receipt(ledger="00", place="budget.db", entry=3, digest="ab" * 32)
    >>> Receipt.parse(receipt.text) == receipt, receipt.head.count
    (True, 3)
    """

    ledger: str
    """Which one: its identity."""

    place: str
    """For people."""

    entry: int
    digest: str

    @property
    def text(self) -> str:
        """As it is stored."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @property
    def head(self) -> Head:
        """The ledger as of this entry."""
        return Head(self.entry, bytes.fromhex(self.digest))

    @classmethod
    def parse(cls, text: str) -> "Receipt":
        """Read what was stored."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise DamageError("a receipt must be as it was written, got other content; restore a backup") from None


def ledger_key_of(store: StateStore, ring: KeyRing) -> Secret:
    """The key of the ledger in the store, from the ring of its newest incarnation: that of the very first secret."""
    return store.lives(ring)[0][1].keys[0].ledger


def open_ledger(store: StateStore, key: Secret, *, cap: Charge | None = None) -> Ledger:
    """The ledger among the tables of the store."""
    return Ledger.within(StoreWithin(store.connection), key=key, cap=cap)


def charge_within(ledger: Ledger, key: str, question: str, charge: Charge) -> None:
    """Charge a stream, in the transaction that is open. Who uses it is noted with its first lease: see `use_within`."""
    ledger.reserve(charge, question=question, who="stream", idempotency_key=key)


def charge_elsewhere(elsewhere: AnyLedgerElsewhere, intention: Intention) -> Receipt:
    """Charge what was intended, or find it charged. Who uses it is noted when that is settled: see `use_charge`."""
    charge = Charge(**json.loads(intention.units))
    key = intended_key(intention)
    with elsewhere.open() as ledger:
        _check_counts_in_rho(ledger)
        ledger.reserve(charge, question=intention.question, who="stream", idempotency_key=key)
        entry = ledger.charge_of(key)
        if entry is None:
            raise LedgerError("a charge must be in the ledger once it is made, got none; stop and look at it")
        return Receipt(ledger=ledger.identity.hex(), place=ledger.place, entry=entry.number, digest=entry.digest.hex())


def intended_key(intention: Intention) -> str:
    """The idempotency key of the charge."""
    return f"stream {intention.incarnation.hex()}"


def use_charge(record: StreamRecord, elsewhere: AnyLedgerElsewhere | None) -> None:
    """Be the one incarnation that uses its charge in a ledger elsewhere, or be refused."""
    if not record.receipt or record.covered:
        return
    if elsewhere is None:
        raise ConfigError("the ledger that the stream is charged to must be given, got none; name it with --ledger")
    with elsewhere.open() as ledger:
        _use(ledger, record)


def use_within(store: StateStore, ring: KeyRing, record: StreamRecord) -> None:
    """The same in the ledger of the store itself; in the transaction that takes the lease."""
    if not record.receipt and not record.covered:
        _use(open_ledger(store, ledger_key_of(store, ring)), record)


def _use(ledger: Ledger, record: StreamRecord) -> None:
    name = _user(record)
    if ledger.use(record.charge, by=name) != name:
        raise RollbackError(
            f"the charge of this stream must be its own, got one that another copy of it uses, in the ledger at "
            f"{ledger.place}: the store was copied, or rolled back without its witness. Stop the copy or go on "
            "with it; this one can begin in another folder, which is charged anew"
        )


def _user(record: StreamRecord) -> str:
    return f"life {record.incarnation.hex()}"


def is_used(store: StateStore, ring: KeyRing, record: StreamRecord, elsewhere: AnyLedgerElsewhere | None) -> bool:
    """Whether some incarnation uses the charge, as the ledger says.

    Of a ledger that is away nobody knows: `use_charge` asks it before anything is counted.
    """
    if record.covered:
        return True
    if not record.receipt:
        own = open_ledger(store, ledger_key_of(store, ring))
        try:
            own.verify()
        except LedgerError as error:
            raise DamageError(str(error)) from None
        return _used_by(own, record.charge) is not None
    if elsewhere is None or elsewhere.is_away():
        return False
    with elsewhere.open() as ledger:
        return _used_by(ledger, record.charge) is not None


def _used_by(ledger: Ledger, key: str) -> str | None:
    entries = ledger.entries()
    charges = {entry.number for entry in entries if entry.kind == "reserve" and entry.idempotency_key == key}
    return next((entry.question for entry in entries if entry.kind == "settle" and entry.settles in charges), None)


def seen_of_ledger(store: StateStore, ring: KeyRing, record: StreamRecord) -> dict[str, str]:
    """What a witness notes of the ledger: its last entry, what is spent and the cap; elsewhere, the entry alone."""
    if record.receipt:
        return {"ledger_head": str(Receipt.parse(record.receipt).head)}
    tail = store.ledger_tail()
    if tail is None:
        raise DamageError("the ledger must hold the charge of this stream, got none; restore a backup")
    cap = open_ledger(store, ledger_key_of(store, ring)).cap
    return {"ledger_head": tail[0], "ledger_spent": tail[1], "ledger_cap": " ".join(map(str, cap.units))}


def _check_counts_in_rho(ledger: Ledger) -> None:
    if not ledger.cap.rho_units:
        raise LedgerError(
            f"a ledger that a stream is charged to must have a cap in rho, got one in steps at {ledger.place}; "
            "make one for the data set: give another place, and --cap EPSILON DELTA"
        )


def units_text(charge: Charge) -> str:
    """The units of a charge, as an intention keeps them.

    >>> units_text(Charge(rho_units=3))
    '{"bad_units": 0, "calls": 0, "rho_units": 3, "steps": 0}'
    """
    return json.dumps(asdict(charge), sort_keys=True)


def check_receipt(record: StreamRecord, elsewhere: AnyLedgerElsewhere | None) -> str:
    """The charge is in the ledger that the receipt names; gives its head, as far as the receipt knows.

    A ledger that is away does not stop a stream: a charge is never given back, so the receipt, which only the holder
    of the stream's secret can have written, proves it for ever. A ledger that is there and does not hold the charge is
    another one, or was rolled back, and stops it: others would spend the same budget again.
    """
    receipt = Receipt.parse(record.receipt)
    if elsewhere is None or elsewhere.is_away():
        return str(receipt.head)
    try:
        with elsewhere.open() as ledger:
            entry = ledger.charge_of(record.charge)
            identity, place = ledger.identity.hex(), ledger.place
    except LedgerError as error:
        raise DamageError(str(error)) from None
    if (
        entry is None
        or identity != receipt.ledger
        or entry.number != receipt.entry
        or not hmac.compare_digest(entry.digest.hex(), receipt.digest)
    ):
        raise DamageError(
            f"the ledger at {place} must hold the charge of this stream as entry {receipt.entry}, got another ledger, "
            "or one that was rolled back; bring the right one back"
        )
    return str(receipt.head)
