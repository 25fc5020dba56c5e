"""What a life of a stream costs, and the ledger that it is charged to.

A data set has one budget, whoever asks: streams, sketches and single questions. Its ledger is in a place of its own, by
default beside the stream's store, and cannot be one transaction with it. So a life begins in five steps, each durable
before the next (`start.begin_life`):

1. *Intend*: a random name is stored, which is the charge's idempotency key.
2. *Reserve*: in the ledger, under that key, so that nothing is charged twice.
3. *Testify*: the incarnation is drawn, and the witness gets its first line, which names it and the intention.
4. *Use*: the ledger notes, once and for ever, which incarnation uses the charge.
5. *Insert*: the life is in the store. Before that nothing is counted or shown.

A crash in between finds its own intention in the store, its reservation in the ledger and its line in the witness, and
goes on from there. So a life that is in the store has a witness and has used its charge, or has lost them. Why a copy
of the store gets no second stream for the charge: one made before step 5 has the intention and perhaps no witness. Then
it draws an incarnation of its own, and of two incarnations the second to come to step 4 is refused. One made after
step 5 without its witness is refused for want of it. One that shares the witness is stopped by the lines of the other.
A copied witness is the known limit. A recovery sets an intention aside, and is charged under a new one, where nobody
can tell whose it is, or where another incarnation uses its charge: a life that this store has lost. A stream never
starts unpaid; a charge whose stream never came to be stays booked, and the next start uses it. A life that the charge
of an earlier one covers says so in its record, and uses nothing.
"""

import hmac
import json
import math
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

from pianissimo.budget import Budget
from pianissimo.durable.records import Intention, StreamRecord
from pianissimo.errors import DamageError, LedgerError, ParameterError, PianissimoError, RollbackError
from pianissimo.ledger import WITHIN, Charge, Ledger, check_place, open_guarded, open_shared
from pianissimo.loss.losses import Booked, Race, Unit, float_up
from pianissimo.loss.race_clock import booked_race
from pianissimo.noise import Secret
from pianissimo.storage.connection import is_server, shown_place
from pianissimo.storage.files import check_key_path
from pianissimo.stream import StreamPlan
from pianissimo.stream.calendar import CalendarPeriods, iso
from pianissimo.unit import User

_LIFE = "life "
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
    """All races as one: of several scales all count at the smallest, as `loss.race_clock` has it."""
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


def cap_of(budget: Budget, *, calls: int = 0, distance: Fraction = Fraction(0)) -> Charge:
    """What a budget for one data set allows in all, rounded down: half of its delta is for bad mass.

    With `calls` it allows so many of them, and leaves room for `distance`, that of all their noise from the ideal one.
    """
    if budget.pure:
        raise ParameterError(
            "the budget of a data set must have a delta, got 0: a ledger adds up rho; allow a delta such as 1e-9"
        )
    bad = Fraction(budget.delta) / 2
    return Charge.rounded_down(calls=calls, rho=budget.rho(bad=bad, distance=distance), bad=bad)


def question_of(plan: StreamPlan, number: int) -> str:
    """As the ledger notes it: the same whenever the charge of one life is asked for again."""
    unit = plan.unit if isinstance(plan.unit, Unit) else plan.unit.unit
    name = "".join(letter if letter.isprintable() else "?" for letter in plan.name)
    promise = f"epsilon {float(plan.budget.epsilon):g}, delta {float(plan.budget.delta):g}"
    return f"stream {name}, life {number}: {plan.horizon} ticks, hides one {unit.value}, {promise}"


def hides_of(plan: StreamPlan) -> str:
    """Whom a stream hides, so that two charges say the same exactly if they hide the same.

    Of periods that is how long they are, and where they lie: a day from midnight on meets two from noon on. Where the
    stream has no origin nobody knows the latter, and they are told apart by their length alone.
    """
    unit = plan.unit
    if not isinstance(unit, User) or unit.within is None:
        return (unit.unit if isinstance(unit, User) else unit).value
    calendar = plan.calendar
    if calendar is not None and isinstance(unit.starts, str):
        told = f"{WITHIN}{unit.within} from {unit.starts} on, {calendar.time_zone}"
        if CalendarPeriods.of(calendar, unit.within, unit.starts, 1).begin_with_ticks:
            return told
        return f"{told}, in ticks of {plan.tick}, one from {iso(calendar.start(1))} on"
    ticks, first = unit.period(plan.tick) or 1, unit.starts if isinstance(unit.starts, int) else 1
    if calendar is None:
        return f"{WITHIN}{ticks} ticks" if plan.tick is None else f"{WITHIN}{ticks} ticks of {plan.tick}"
    if not calendar.has_even_ticks:
        return f"{WITHIN}{ticks} ticks of {plan.tick}, {calendar.time_zone}, one from {iso(calendar.start(first))} on"
    length = calendar.microsecond(1 + ticks) - calendar.microsecond(1)
    some = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=calendar.microsecond(first) % length)
    return f"{WITHIN}{timedelta(microseconds=length)}, one from {iso(some)} on"


@dataclass(frozen=True, slots=True, repr=False)
class LedgerPlace:
    """Where the ledger is that a stream is charged to, its key, and the cap with which it is made."""

    place: str
    key: Secret | Path | str | None = None
    cap: Charge | None = None
    is_own: bool = False
    """Whether it is the stream's by default: made with room for that stream alone, unless there is a cap."""

    def __post_init__(self) -> None:
        check_place(self.place)
        check_key_path("ledger_key", self.key)

    def __repr__(self) -> str:
        return f"LedgerPlace({shown_place(self.place)!r})"

    def is_away(self) -> bool:
        """Whether there is nothing at its place, or no server that answers."""
        if not is_server(self.place):
            return not Path(self.place).exists()
        try:
            # Anything but an answer, for whatever reason, is no answer; what a wrong one says is looked at later.
            Ledger.open(self.place, key=None, read_only=True).close()
        except PianissimoError:
            return True
        return False

    def open(self, *, least: Charge | None = None) -> Ledger:
        """The ledger, verified; made where it is not there and a stream is charged for the first time."""
        if least is None:
            return open_shared(self.place, key=self.key)
        cap = self.cap or (least if self.is_own else None)
        if self.is_own and isinstance(self.key, Path) and cap is not None and not self.key.exists():
            return open_guarded(self.place, key=self.key, budget=cap, dataset="")
        return open_shared(self.place, key=self.key, budget=cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """Where a life's charge is booked; part of its record and covered by its digest."""

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

    @classmethod
    def parse(cls, text: str) -> "Receipt":
        """Read what was stored."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            raise DamageError("a receipt must be as it was written, got other content; restore a backup") from None


def reserve(
    place: LedgerPlace, intention: Intention, plan: StreamPlan, *, before: str | None = None
) -> tuple[Receipt, bytes | None]:
    """Charge a life that is intended, or find it charged, and by which incarnation it is used.

    After another life, whose receipt `before` is, a ledger is never made: the charge goes where the others went.
    """
    charge = charge_of(plan)
    with place.open(least=charge if before is None else None) as ledger:
        if before is not None and ledger.header.identity.hex() != Receipt.parse(before).ledger:
            raise LedgerError(
                "a new life must be charged to the ledger that the stream was charged to, got another; "
                "name that one with --ledger"
            )
        if not ledger.budget.rho_units:
            raise LedgerError(
                f"a ledger that a stream is charged to must have a budget in rho, got one in steps at {ledger.place}; "
                "make one for the data set: give another place, and --budget-epsilon and --budget-delta"
            )
        question = question_of(plan, intention.number)
        named = {"question": question, "who": "stream", "idempotency_key": intention.charge}
        ledger.reserve(charge, hides=hides_of(plan), **named)
        entry = ledger.charge_of(intention.charge)
        if entry is None:
            raise LedgerError("a charge must be in the ledger once it is made, got none; stop and look at it")
        used = [each.question for each in ledger.entries() if each.settles == entry.number]
        receipt = Receipt(
            ledger=ledger.header.identity.hex(), place=ledger.place, entry=entry.number, digest=entry.digest.hex()
        )
    return receipt, bytes.fromhex(used[0].removeprefix(_LIFE)) if used else None


def use(place: LedgerPlace, intention: Intention, incarnation: bytes) -> None:
    """Be the one incarnation that uses the charge, or be refused."""
    name = f"{_LIFE}{incarnation.hex()}"
    with place.open() as ledger:
        if ledger.use(intention.charge, by=name) != name:
            raise RollbackError(
                "the charge of this stream must be its own, got one that another copy of it uses: the store was "
                "copied, or rolled back without its witness. Stop the copy or go on with it; this one can begin in "
                "another folder, which is charged anew"
            )


def check_receipt(record: StreamRecord, place: LedgerPlace) -> None:
    """The charge is in the ledger that the receipt names.

    A ledger that is away does not stop a stream: a charge is never given back, so the receipt, which only the holder
    of the stream's secret can have written, proves it for ever. A ledger that is there and does not hold the charge is
    another one, or was rolled back, and stops it: others would spend the same budget again.
    """
    receipt = Receipt.parse(record.receipt)
    if place.is_away():
        return
    try:
        with place.open() as ledger:
            entry = ledger.charge_of(record.charge)
            identity, shown = ledger.header.identity.hex(), ledger.place
    except LedgerError as error:
        raise DamageError(str(error)) from None
    if (
        entry is None
        or identity != receipt.ledger
        or entry.number != receipt.entry
        or not hmac.compare_digest(entry.digest.hex(), receipt.digest)
    ):
        raise DamageError(
            f"the ledger at {shown} must hold the charge of this stream as entry {receipt.entry}, got another ledger, "
            "or one that was rolled back; bring the right one back"
        )
