"""What a ledger refuses, each rule by itself and at its limit: what is booked, what is read back, whom charges hide."""

import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.processes import KEY

from pianissimo.errors import LeaseError, LedgerError, ParameterError
from pianissimo.ledger import Charge, LastEntry, LastSeen, Ledger, Reservation, chain, check_place, entries, one_shot
from pianissimo.ledger.chain import Chain, Entry, Header, check_types
from pianissimo.ledger.entries import Book, is_there
from pianissimo.ledger.hidden import HiddenUnits, check_hides
from pianissimo.ledger.ledger import HeadGuard, _check_text
from pianissimo.loss.losses import Booked, Unit

BUDGET = Charge(steps=20, calls=2)
HEADER = Header(identity=bytes(16), dataset="clicks", created="2026-01-01T00:00:00Z", keyed=True, budget=BUDGET)
CHAIN = Chain(KEY)
SOME_TICKS = "user within 24 ticks"


def line(kind: str, steps: int = 0, **named: Any) -> Entry:
    """An entry before it has its number, its sum and its digest."""
    fields: dict[str, Any] = {"idempotency_key": None, "settles": None, "change": (steps, 0, 0, 0)}
    fields |= {"number": 0, "spent": (0, 0, 0, 0), "time": "now", "who": "ada", "question": "q", "ticket": bytes(16)}
    return Entry(kind=kind, **fields | named)  # type: ignore[arg-type]


def charge(key: str | None, steps: int = 5, **named: Any) -> Entry:
    return line("reserve", steps, idempotency_key=key, **named)


def settle(number: int | None, steps: int = -2, **named: Any) -> Entry:
    return line("settle", steps, settles=number, **named)


def check(lines: list[Entry]) -> LastEntry:
    """What holds the key writes these entries, all of them with their sums and digests; they are verified."""
    previous, spent, written = CHAIN.root(HEADER), (0, 0, 0, 0), []
    for number, each in enumerate(lines, 1):
        spent = tuple(a + b for a, b in zip(spent, each.change, strict=True))  # type: ignore[assignment]
        whole = replace(each, number=number, spent=spent)
        written.append(replace(whole, digest=CHAIN.digest(previous, whole)))
        previous = written[-1].digest
    return CHAIN.check_all(HEADER, CHAIN.root(HEADER), (len(written), spent), written, [])


def test_what_only_follows_the_rules_of_the_writer_is_verified() -> None:
    sound = [charge("a"), settle(1, -5), charge("b", hides="user"), line("mix"), settle(3, 0), charge("c", steps=0)]
    assert check(sound).count == len(sound)
    assert check([charge("a", steps=20)]).count == 1


WRONG = {
    "a charge under no key": [charge(None)],
    "a charge under a key that was used": [charge("a"), charge("a")],
    "a charge that settles one": [charge("a"), charge("b", settles=1)],
    "a charge that gives back": [charge("a"), charge("b", steps=-1)],
    "a settlement of nothing": [charge("a"), settle(None)],
    "a settlement of what is not there": [charge("a"), settle(2)],
    "a second settlement": [charge("a"), settle(1), settle(1)],
    "a settlement of a settlement": [charge("a"), settle(1), settle(2)],
    "a settlement under a key": [charge("a"), settle(1, idempotency_key="b")],
    "a settlement that hides somebody": [charge("a"), settle(1, hides="user")],
    "a settlement that charges": [charge("a"), settle(1, 1)],
    "a settlement of more than was charged": [charge("a"), charge("b"), settle(1, -6)],
    "a leave to mix that gives back": [charge("a"), line("mix", -1)],
    "a leave to mix under a key": [line("mix", idempotency_key="a")],
    "a leave to mix that settles": [charge("a"), line("mix", settles=1)],
    "a leave to mix that hides somebody": [line("mix", hides="user")],
}


@pytest.mark.parametrize("lines", WRONG.values(), ids=WRONG.keys())
def test_what_breaks_a_rule_of_the_writer_is_refused_whatever_its_digest(lines: list[Entry]) -> None:
    with pytest.raises(LedgerError, match=f"entry {len(lines)} must be a charge, settle one charge once, or allow"):
        check(lines)


def test_no_chain_is_above_its_budget() -> None:
    with pytest.raises(LedgerError, match="within the budget"):
        check([charge("a", steps=21)])


@pytest.mark.parametrize(
    "wrong",
    [
        *({"kind": 3}, {"kind": "pay"}, {"hides": 3}, {"time": b"now"}, {"who": None}, {"question": 1}),
        *({"idempotency_key": 7}, {"number": 1.0}, {"number": 2**62}, {"settles": "1"}, {"ticket": "t"}, {"digest": 1}),
        *({"change": (0, 0, 0.0, 0)}, {"change": (0, -(2**62), 0, 0)}, {"spent": (True, 0, 0, 0)}),
    ],
)
def test_an_entry_of_other_types_is_refused(wrong: dict[str, Any]) -> None:
    sound = charge("a", number=2**62 - 1)
    assert check_types(sound) is sound
    with pytest.raises(LedgerError, match="numbers, texts and bytes where they belong"):
        check_types(replace(sound, **wrong))


def test_the_last_head_is_one_line_and_nothing_after_it(tmp_path: Path) -> None:
    seen = LastSeen(tmp_path / "the.head")
    seen.make(LastEntry(3, b"\1" * 32))
    seen.path.write_bytes(seen.path.read_bytes() * 2)
    for use in (seen.read, seen.is_being_made, lambda: seen.advance(LastEntry(4, bytes(32)))):
        with pytest.raises(LedgerError, match="must name the last head of the ledger, got something else"):
            use()


def test_the_last_head_is_written_under_its_lock_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, head = LastSeen(tmp_path / "the.head"), LastEntry(3, b"\1" * 32)
    seen.make(head)

    def held(descriptor: int, path: Path, _: float) -> None:
        assert os.path.samestat(os.fstat(descriptor), path.stat())
        raise LeaseError("held by another")

    monkeypatch.setattr(chain, "wait_for_lock", held)
    with pytest.raises(LeaseError):
        seen.advance(LastEntry(4, bytes(32)))
    assert seen.read() == head


NO_PLACES = ("", "a\0b", 7, None, b"budget.db")


@pytest.mark.parametrize("place", [*NO_PLACES, "mysql://host/shop"])
def test_what_is_no_place_is_refused_wherever_one_is_asked_for(place: Any) -> None:
    asked: list[Callable[[], object]] = [
        lambda: check_place(place),
        lambda: is_there(place),
        lambda: Book.at(place, create=False, read_only=True),
    ]
    for ask in asked:
        with pytest.raises(ParameterError, match="place must be"):
            ask()
    check_place("budget.db")
    check_place(Path("budget.db"))


def test_looking_for_a_ledger_on_a_server_makes_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    class Server:
        def __init__(self, place: str, **named: Any) -> None:
            calls.append((place, named["create"], named["read_only"]))

        def has_table(self, name: str) -> bool:
            calls.append(name)
            return name == "budget"

        def rollback(self) -> None:
            calls.append("rolled back")

        def close(self) -> None:
            calls.append("closed")

    monkeypatch.setattr(entries, "PostgresConnection", Server)
    assert not is_there("postgresql://host/shop")
    assert calls == [("postgresql://host/shop", False, True), "budget", "entries", "rolled back", "closed"]


def test_whom_a_charge_may_hide() -> None:
    for hides in ("event", "user", SOME_TICKS):
        check_hides(hides)
    for wrong in ("", "users", "user within", "user within ", "user within \t", "24 ticks"):
        with pytest.raises(ParameterError, match="hides must be"):
            check_hides(wrong)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("event", "event", True),
        ("event", "user", False),
        ("user", "user and period", False),
        ("event", "user and period", False),
        ("user and period", SOME_TICKS, True),
        (SOME_TICKS, "user and period", True),
        ("user", SOME_TICKS, False),
        ("user within 7 ticks", SOME_TICKS, False),
        ("not said", SOME_TICKS, True),
        ("event", "not said", True),
    ],
)
def test_units_are_one_where_they_may_be(one: str, other: str, is_same: bool) -> None:
    units = HiddenUnits()
    units.read([charge("a", number=1, hides=one)])
    assert (units.refuses(other) is None) == is_same
    if is_same:
        units.read([charge("b", number=2, hides=other)])
        assert not units.is_mixed
        return
    with pytest.raises(LedgerError, match="entry 2 must hide what those before it hide"):
        units.read([charge("b", number=2, hides=other)])
    units.read([line("mix", number=2), charge("b", number=3, hides=other)])
    assert units.is_mixed
    assert units.count == 3


def test_a_ledger_is_asked_in_charges_and_plain_words() -> None:
    # All of it is refused before the store is looked at, which is not there.
    ledger = object.__new__(Ledger)
    usual: dict[str, Any] = {"hides": "user", "question": "q", "who": "w", "idempotency_key": "k"}
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (3, {}, "charge must be a Charge"),
        (Charge(), {"question": 7}, "question must be a text"),
        (Charge(), {"who": "\0"}, "who must be printable"),
        (Charge(), {"idempotency_key": "k" * 257}, "at most 256 letters"),
        (Charge(), {"idempotency_key": ""}, "idempotency_key must not be empty"),
        (Charge(), {"hides": "users"}, "hides must be"),
        (Charge(), {"hides": None}, "hides must be a text"),
    ]
    for given, named, said in wrong:
        with pytest.raises(ParameterError, match=said):
            ledger.reserve(given, **usual | named)
    asked = Reservation(number=1, charge=Charge(steps=2), fresh=True, settled=None, ticket=bytes(16))
    settlements: list[tuple[Any, Any, str]] = [
        (None, Charge(), "reservation must be"),
        (asked, 2, "actual must be a Charge"),
        (asked, Charge(steps=3), "at most what was reserved"),
    ]
    for reservation, actual, said in settlements:
        with pytest.raises(ParameterError, match=said):
            ledger.settle(reservation, actual)
    with pytest.raises(LedgerError, match="by the call that made it"):
        ledger.settle(replace(asked, fresh=False), Charge())
    with pytest.raises(ParameterError, match="question must be printable"):
        ledger.use("k", by="\x1b")
    with pytest.raises(ParameterError, match="who must be printable"):
        ledger.allow_mixed_units(who="\x1b")


def test_a_text_may_be_as_long_as_its_limit_and_have_lines() -> None:
    _check_text(who="w" * 256, question="one\n\ttwo" + "q" * 9_992)
    for name, most in {"who": 256, "question": 10_000}.items():
        with pytest.raises(ParameterError, match=f"{name} must be a text of at most {most} letters"):
            _check_text(**{name: "x" * (most + 1)})


def test_a_ledger_is_opened_with_a_secret_a_budget_and_a_witness(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    opening: list[tuple[dict[str, Any], str]] = [
        ({"key": bytes(32)}, "key must be a Secret or None, got bytes"),
        ({"key": None, "budget": 20}, "budget must be a Charge"),
        ({"key": None, "budget": BUDGET, "read_only": True}, "given only to open a ledger for writing"),
        ({"key": None, "budget": BUDGET, "dataset": "\0"}, "dataset must be printable"),
    ]
    for named, said in opening:
        with pytest.raises(ParameterError, match=said):
            Ledger.open(place, **named)
    with pytest.raises(ParameterError, match="witness must be a LastEntry or None, got str"):
        HeadGuard(witness="3:00")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_what_is_shown_as_spent_is_rounded_up_and_what_is_left_down() -> None:
    charge_of = Charge(rho_units=2**60 + 1, bad_units=2**61 + 1)
    spent, left = charge_of.to_dict(), charge_of.rounded()
    for name, exact in (("rho", charge_of.rho), ("bad", charge_of.bad)):
        assert Fraction(left[name]) < exact < Fraction(spent[name])


def test_a_release_that_is_accounted_for_nowhere_is_charged_nowhere() -> None:
    loss = Booked(rho=Fraction(1))
    named: dict[str, Any] = {"epsilon": 1, "hides": Unit.USER, "question": "q"}
    one_shot.charge_release("not accounted for", loss, **named)
    with pytest.raises(ParameterError, match="must be an open Ledger"):
        one_shot.charge_release(None, loss, **named)  # type: ignore[arg-type]
