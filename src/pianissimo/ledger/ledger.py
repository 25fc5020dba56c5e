"""Charges that are durable before anything is asked, within a budget that no number of processes can break."""

import hmac
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

from pianissimo.errors import (
    BudgetError,
    DamageError,
    LedgerError,
    ParameterError,
    StoreError,
    SyncError,
    UnknownCommitError,
)
from pianissimo.ledger.chain import Chain, Entry, Header, Kind, LastEntry, LastSeen, Units, broken, ticket_digest
from pianissimo.ledger.entries import ADD_IF_IT_FITS, INSERT_ENTRY, Book, entry_row, now_text, speaking
from pianissimo.ledger.hidden import HiddenUnits, check_hides
from pianissimo.ledger.units import TOLD_UNITS, Charge, of_units
from pianissimo.noise import Secret

Found = TypeVar("Found")

_LAST = "WHERE number >= ? OR number = ?"
_LONGEST = {"dataset": 256, "who": 256, "idempotency_key": 256, "hides": 256, "question": 10_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A charge that is on disk."""

    number: int
    charge: Charge
    fresh: bool
    """Whether this call made it. If not, the question ran before: show what it gave, do not run it again."""

    settled: Charge | None
    """What the answer cost in the end, if that is known."""

    ticket: bytes = field(repr=False)
    """Random, and nowhere else: the ledger has its digest. Only whoever holds it settles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadGuard:
    """What must be in a ledger that is opened, and where its head is kept from then on."""

    witness: LastEntry | None = None
    """An earlier head, kept elsewhere."""

    file: Path | None = None
    """Its head is kept here, synced after each charge; a ledger made before must have one, unless it is `trusted`."""

    trusted: bool = False
    make: bool = True
    """Whether a ledger that is not there may be made."""

    def __post_init__(self) -> None:
        if self.witness is not None and not isinstance(self.witness, LastEntry):
            raise ParameterError(f"witness must be a LastEntry or None, got {type(self.witness).__name__}")


class Ledger:
    """An append-only ledger of charges against a budget, in an SQLite file or a PostgreSQL database.

    A charge is one conditional update and one chained entry in one synced transaction: it is there as a whole or not at
    all, and the sum is never above the budget. All charges hide the same unit, unless that is allowed: see
    `allow_mixed_units`. What is left is public.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.open(f"{folder.name}/budget.db", budget=Charge(steps=20, calls=2), key=Secret(bytes(32)))
    >>> whose = {"hides": "user", "who": "ada"}
    >>> asked = ledger.reserve(Charge(steps=11, calls=1), question="top 10", idempotency_key="q1", **whose)
    >>> ledger.settle(asked, Charge(steps=4, calls=1)).settled
    Charge(steps=4, calls=1, rho_units=0, bad_units=0)
    >>> ledger.left
    Charge(steps=16, calls=1, rho_units=0, bad_units=0)
    >>> ledger.reserve(Charge(steps=17, calls=1), question="top 16", idempotency_key="q2", **whose)
    Traceback (most recent call last):
    pianissimo.errors.BudgetError: a charge must fit what is left, 16 steps, got 17
    >>> ledger.verify().count
    2
    >>> ledger.close(); folder.cleanup()
    """

    def __init__(self, store: Book, chain: Chain, header: Header, root: bytes, witness: LastSeen | None = None) -> None:
        self._store = store
        self._chain = chain
        self.header = header
        self._root = root
        self._witness = witness
        self._seen = LastEntry(0, root)
        self._written = self._seen
        self._units = HiddenUnits()
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        place: str | Path,
        *,
        key: Secret | None,
        budget: Charge | None = None,
        dataset: str = "",
        guard: HeadGuard | None = None,
        read_only: bool = False,
    ) -> Self:
        """Open the ledger at a path or a `postgresql://` URL and verify all of it; given a `budget`, make it first.

        One that is there already must have the same budget. `read_only` shows a ledger that may be broken: nothing is
        verified until `verify` is called, and nothing can be charged. A `guard` says what must be in it.
        """
        if key is not None and not isinstance(key, Secret):
            raise ParameterError(f"key must be a Secret or None, got {type(key).__name__}")
        guard = guard or HeadGuard()
        if budget is not None and (read_only or not isinstance(budget, Charge)):
            raise ParameterError("budget must be a Charge, and given only to open a ledger for writing")
        _check_text(dataset=dataset)
        make = guard.make and budget is not None
        local = None if guard.file is None else LastSeen(guard.file)
        with speaking():
            store = Book.at(place, create=make, read_only=read_only)
            try:
                chain = Chain(key)
                if make and budget is not None:
                    store.make_if_absent(chain, budget, dataset, claim=local.claim if local else None)
                header, root = store.header()
                ledger = cls(store, chain, header, root, local)
                if not read_only:
                    _check_opening(header, budget=budget, dataset=dataset, keyed=chain.keyed)
                    ledger._settle_in(guard)
            except BaseException:
                store.close()
                raise
        return ledger

    @property
    def place(self) -> str:
        """Where it is, without a password."""
        return self._store.connection.place

    @property
    def budget(self) -> Charge:
        """What may be spent in all."""
        return self.header.budget

    @property
    def spent(self) -> Charge:
        """What is spent by now, what was reserved and not settled included."""
        with self._reading():
            return of_units(self._store.balance()[3])

    @property
    def left(self) -> Charge:
        """What may still be spent."""
        return self.budget - self.spent

    def reserve(self, charge: Charge, *, hides: str, question: str, who: str, idempotency_key: str) -> Reservation:
        """Charge before asking: when this returns, the charge is on disk.

        `hides` is what is promised to stay hidden: "event", "user", or "user within" a period. It must be what all
        other charges hide, unless `allow_mixed_units` was called. With an idempotency key that was used before, the
        charge made then is returned, `fresh` no more, and nothing is charged; asking something else under it is an
        error. `BudgetError` if the charge does not fit.
        """
        if not isinstance(charge, Charge):
            raise ParameterError(f"charge must be a Charge, got {type(charge).__name__}")
        _check_text(question=question, who=who, idempotency_key=idempotency_key, hides=hides)
        check_hides(hides)
        if not idempotency_key:
            raise ParameterError("idempotency_key must not be empty")
        ticket = secrets.token_bytes(16)

        def look() -> Reservation | None:
            entry = self._store.entry("idempotency_key", idempotency_key)
            return None if entry is None else self._found(entry, charge, (question, who, hides), ticket)

        def write() -> Reservation:
            self._read_units().check(hides)
            texts = {"who": who, "question": question, "hides": hides, "idempotency_key": idempotency_key}
            entry = self._append("reserve", charge.units, ticket=ticket, **texts)
            return Reservation(number=entry.number, charge=charge, fresh=True, settled=None, ticket=ticket)

        return self._once(look, write)

    def settle(self, reservation: Reservation, actual: Charge) -> Reservation:
        """Give back what the answer did not cost; once, and only to whoever reserved.

        `actual` is a function of the answer that is shown, and of nothing else about the data.
        """
        if not isinstance(reservation, Reservation):
            raise ParameterError(f"reservation must be a Reservation, got {type(reservation).__name__}")
        if not isinstance(actual, Charge):
            raise ParameterError(f"actual must be a Charge, got {type(actual).__name__}")
        if not actual.fits(reservation.charge):
            raise ParameterError("actual must be at most what was reserved in every unit, got more")
        if not reservation.fresh:
            raise LedgerError("a charge must be settled by the call that made it; found again, it stands as it is")
        change: Units = tuple(  # type: ignore[assignment]
            spent - reserved for spent, reserved in zip(actual.units, reservation.charge.units, strict=True)
        )
        settled = replace(reservation, settled=actual)

        def look() -> Reservation | None:
            entry = self._store.entry("settles", reservation.number)
            if entry is not None and entry.change != change:
                raise LedgerError("a charge must be settled once, got a second cost for it")
            return None if entry is None else settled

        def write() -> Reservation:
            reserve = self._store.entry("number", reservation.number)
            if (
                reserve is None
                or reserve.kind != "reserve"
                or reserve.change != reservation.charge.units
                or not hmac.compare_digest(reserve.ticket, ticket_digest(reservation.ticket))
            ):
                raise LedgerError("a charge must be in the ledger as it was reserved, got another or none")
            self._append("settle", change, who=reserve.who, settles=reserve.number)
            return settled

        return self._once(look, write)

    def use(self, idempotency_key: str, *, by: str) -> str:
        """Note for ever who uses up a charge in full; gives who does: another one, if that came first."""
        _check_text(question=by)

        def look() -> str | None:
            entry = self._store.entry("settles", self._reserved(idempotency_key).number)
            return None if entry is None else entry.question

        def write() -> str:
            reserve = self._reserved(idempotency_key)
            # Nothing is given back, so that no ticket is asked for.
            self._append("settle", (0, 0, 0, 0), who=reserve.who, question=by, settles=reserve.number)
            return by

        return self._once(look, write)

    def allow_mixed_units(self, *, who: str) -> None:
        """Let charges hide different units from now on; an entry says so for ever.

        What is spent is then a limit to what is asked, and no promise: to whom what is promised is the sum of the
        charges that hide the same.
        """
        _check_text(who=who)

        def look() -> Entry | None:
            return self._read_units().mixed_by

        self._once(look, lambda: self._append("mix", (0, 0, 0, 0), who=who))

    def _read_units(self) -> HiddenUnits:
        """Whom all charges hide that are in the ledger by now, in the transaction begun."""
        self._units.read(self._store.entries("WHERE number > ?", [self._units.count]))
        return self._units

    def _reserved(self, idempotency_key: str) -> Entry:
        entry = self._store.entry("idempotency_key", idempotency_key)
        if entry is None:
            raise LedgerError("a charge must be in the ledger to be used, got none; stop and look at it")
        return entry

    def charge_of(self, idempotency_key: str) -> Entry | None:
        """The charge that was made under a key; not verified."""
        with self._reading():
            return self._store.entry("idempotency_key", idempotency_key)

    def entries(self) -> list[Entry]:
        """All entries, the oldest first; not verified."""
        with self._reading():
            return self._store.entries()

    def verify(self, *witnesses: LastEntry) -> LastEntry:
        """Check every entry, their order and their sum; `LedgerError` says what was altered. Gives the head.

        A cut at the end, together with the balance, shows only against a witness: the head that an earlier call gave,
        kept in a second place.
        """
        # Before the ledger: what is named there is in a ledger that is looked at later.
        local = None if self._witness is None else self._witness.read()
        with self._reading():
            self._store.check_tables()
            header, root, count, spent = self._store.balance()
            entries = self._store.entries()
        self._check_same(header, root)
        if header.keyed and not self._chain.keyed:
            raise LedgerError("the key must be given to verify this ledger, got none")
        seen = [self._seen, *witnesses] if local is None else [self._seen, *witnesses, local]
        head = self._chain.check_all(header, root, (count, spent), entries, seen)
        units = HiddenUnits()
        units.read(entries)
        return head

    def close(self) -> None:
        """Let go of the file or the connection."""
        with self._lock:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ledger({self.place!r}, dataset={self.header.dataset!r})"

    def _repr_html_(self) -> str:
        # Asked for by a notebook alone: a `repr` is called in odd moments, and must not open a transaction.
        budget, spent = self.budget, self.spent
        lines = {
            name: each.rounded() | each.epsilon(budget.delta)
            for name, each in (("budget", budget), ("spent", spent), ("left", budget - spent))
        }
        units = {unit: name for unit, name in TOLD_UNITS.items() if lines["budget"].get(unit)}
        head = "".join(f"<th>{name}</th>" for name in units.values())
        body = "".join(
            f"<tr><th>{name}</th>{''.join(f'<td>{line[unit]:.4g}</td>' for unit in units)}</tr>"
            for name, line in lines.items()
        )
        title = escape(f"{self.header.dataset or 'ledger'}, {self.place}")
        note = "<p>Several charges cost together at most their sum, so what is left is at least budget minus spent.</p>"
        return f"<table><caption>{title}</caption><tr><th></th>{head}</tr>{body}</table>{note}"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger is not pickled: it carries its key; open it anew where it is needed")

    def _settle_in(self, guard: HeadGuard) -> None:
        """Verify all of it, and see to it that its head is kept from now on."""
        self._seen = self.verify(*([] if guard.witness is None else [guard.witness]))
        if self._witness is None:
            return
        if self._witness.read() is not None or self._witness.is_being_made():
            self._witness.advance(self._seen)
        elif guard.trusted:
            self._witness.make(self._seen)
        else:
            raise LedgerError(
                f"the last head of this ledger must be at {self._witness.path}, got no such file; put it back, or look "
                "at the ledger with `pianissimo budget` and give the witness that it shows"
            )

    def _once(self, look: Callable[[], Found | None], write: Callable[[], Found]) -> Found:
        """What `look` finds, or else what `write` writes; a commit that fails is looked for and never repeated."""
        with self._lock, speaking():
            with self._store.connection.writing():
                found = look()
                if found is not None:
                    return found
                made = write()
                try:
                    self._store.connection.commit()
                except (UnknownCommitError, SyncError) as error:
                    return self._after_unknown(look, error)
            self._seen = self._written
            if self._witness is not None:
                self._witness.advance(self._seen)
            return made

    def _after_unknown(self, look: Callable[[], Found | None], error: StoreError) -> Found:
        try:
            with self._store.connection.writing():  # waits until the lost transaction is over, one way or the other
                found = look()
        except (LedgerError, StoreError, DamageError):
            raise LedgerError(f"{error}; it is unknown whether the charge stands: ask again under its key") from None
        if found is None:
            raise LedgerError(f"{error}; nothing was written, try again") from None
        return found

    def _append(self, kind: Kind, change: Units, *, who: str, ticket: bytes | None = None, **fields: Any) -> Entry:
        """Move the balance and add an entry, in the transaction begun."""
        conditions = [
            value for each, most in zip(change, self.budget.units, strict=True) for value in (each, each, most)
        ]
        rows = self._store.connection.execute(ADD_IF_IT_FITS, [*change, *conditions])
        if not rows:
            self._refuse(change)
        number, *spent = rows[0]
        previous = self._checked_tail(number, tuple(spent), change)
        entry = Entry(
            number=number,
            kind=kind,
            time=now_text("microseconds"),
            who=who,
            ticket=secrets.token_bytes(16) if ticket is None else ticket_digest(ticket),
            change=change,
            spent=tuple(spent),
            **{"question": "", "idempotency_key": None, "settles": None} | fields,
        )
        entry = replace(entry, digest=self._chain.digest(previous, entry))
        self._store.connection.execute(INSERT_ENTRY, entry_row(entry))
        self._check_written(entry)
        self._written = LastEntry(entry.number, entry.digest)
        return entry

    def _check_written(self, entry: Entry) -> None:
        """Refuse to commit what is not there as it was written: a trigger may have moved it."""
        _, _, count, spent = self._store.balance()
        last = self._store.entries(_LAST, [entry.number - 1, entry.number])
        follows = [self._seen.count] if self._seen.count else []
        written = [each.number for each in last] == [*follows, entry.number]
        digests = [each.digest for each in last][-2:]
        if (
            (count, spent) != (entry.number, entry.spent)
            or not written
            or last[-1] != entry
            or (follows and digests[0] != self._seen.digest)
        ):
            raise broken("a charge must be in the ledger as it was written, got another")

    def _checked_tail(self, number: int, spent: tuple[int, ...], change: Units) -> bytes:
        """The digest that entry `number` follows, if the balance and the last entry agree and nothing seen is gone."""
        local = None if self._witness is None else self._witness.read()
        if local is not None and local.count >= self._seen.count:
            self._seen = local
        found = self._store.entries(_LAST, [number - 2, self._seen.count])
        entries = {entry.number: entry for entry in found}
        before = tuple(each - moved for each, moved in zip(spent, change, strict=True))
        digests = {0: self._root} | {each: entry.digest for each, entry in entries.items()}
        tail = entries.get(number - 1)
        if max(entries, default=0) != number - 1 or before != (tail.spent if tail is not None else (0, 0, 0, 0)):
            raise broken("the balance must be that of the last entry, got another")
        if tail is not None:
            if number - 2 not in digests:
                raise broken(f"entry {number - 1} must follow entry {number - 2}, got a gap")
            self._chain.check(digests[number - 2], tail)
        if digests.get(self._seen.count) != self._seen.digest:
            raise broken("entries seen before must stay, got others or fewer")
        self._seen = LastEntry(number - 1, digests[number - 1])
        return self._seen.digest

    def _check_same(self, header: Header, root: bytes) -> None:
        if header != self.header or root != self._root:
            raise broken("the ledger's budget and names must be those it was opened with, got others")

    def _refuse(self, change: Units) -> NoReturn:
        header, root, _, spent = self._store.balance()
        self._check_same(header, root)
        if min(change) < 0 or not Charge.fits(of_units(spent), self.budget):
            raise broken("the balance must cover what is given back and be within the budget")
        charge, left = of_units(change), self.budget - of_units(spent)
        if charge.fits(left):
            raise broken("the balance must move when something is charged, got the same")
        raise BudgetError(f"a charge must fit what is left, {charge.lacking(left)}")

    def _found(self, entry: Entry, charge: Charge, asked: tuple[str, str, str], ticket: bytes) -> Reservation:
        # An earlier version did not say whom a charge hides.
        hides = asked[2] if entry.hides is None else entry.hides
        if (entry.change, entry.question, entry.who, hides) != (charge.units, *asked):
            raise LedgerError(
                "an idempotency key must stand for one question, got another charge, question, person or unit"
            )
        settle = self._store.entry("settles", entry.number)
        return Reservation(
            number=entry.number,
            charge=charge,
            # So it is after a commit whose outcome was unknown.
            fresh=hmac.compare_digest(entry.ticket, ticket_digest(ticket)),
            settled=None
            if settle is None
            else of_units(a + b for a, b in zip(charge.units, settle.change, strict=True)),
            ticket=ticket,
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, speaking(), self._store.connection.reading():
            yield


def _check_opening(header: Header, *, budget: Charge | None, dataset: str, keyed: bool) -> None:
    for name, made, given in (("budget", header.budget, budget), ("dataset", header.dataset, dataset)):
        if budget is not None and made != given:
            raise LedgerError(f"a ledger must be opened with the {name} it was made with, {made}, got {given}")
    if header.keyed != keyed:
        raise LedgerError(
            f"this ledger must be opened {'with its key, got none' if header.keyed else 'without a key, got one'}"
        )


def _check_text(**texts: str) -> None:
    for name, text in texts.items():
        if not isinstance(text, str) or len(text) > _LONGEST[name]:
            raise ParameterError(f"{name} must be a text of at most {_LONGEST[name]} letters, got another")
        # A terminal would obey control characters; PostgreSQL refuses some, and lone surrogates.
        if not text.replace("\n", "").replace("\t", "").isprintable():
            raise ParameterError(f"{name} must be printable text, got control characters")
