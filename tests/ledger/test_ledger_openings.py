"""How a ledger is made, found and opened, and what a charge finds altered: each by itself, in a file."""

import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.ledger.processes import KEY

from pianissimo.errors import InputError, LedgerError, ParameterError
from pianissimo.ledger import Charge, LastEntry, LastSeen, Ledger, guarded, key_file, open_guarded, open_shared
from pianissimo.ledger.chain import head_beside
from pianissimo.ledger.entries import AbsentError
from pianissimo.ledger.hidden import HiddenUnits
from pianissimo.ledger.ledger import HeadGuard

BUDGET = Charge(steps=20)


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "PATIENCE_SECONDS", 0.0)


def ask(ledger: Ledger, key: str, steps: int = 1) -> Any:
    return ledger.reserve(Charge(steps=steps), hides="user", question="q", who="w", idempotency_key=key)


def opened(place: Any, key: Any, **named: Any) -> Ledger:
    return open_guarded(place, key=key, budget=BUDGET, dataset="clicks", **named)


def alter(place: Path, *statements: str) -> None:
    """Somebody who may write the file and has no key."""
    with sqlite3.connect(place) as forger:
        for name in ("entries_stays_update", "entries_stays_delete"):
            forger.execute(f"DROP TRIGGER IF EXISTS {name}")
        forger.execute("PRAGMA ignore_check_constraints=ON")
        for statement in statements:
            forger.execute(statement)
    forger.close()


# --- made and found -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["", "a\0b", 7, "mysql://host/shop"])
def test_what_is_no_place_leaves_nothing_behind(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match="place must be"):
        opened(place, tmp_path / "the.key")
    with pytest.raises(ParameterError, match="place must be"):
        open_shared(place, budget=BUDGET)
    assert not list(tmp_path.iterdir())


def test_a_key_in_the_place_of_its_file_becomes_no_name(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="key must be the path of a file, got 64 hexadecimal digits"):
        opened(tmp_path / "b.db", tmp_path / ("ab" * 32))
    assert not list(tmp_path.iterdir())


def test_the_key_is_in_another_file_than_the_ledger(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="key must be in a file of its own"):
        opened(tmp_path / "b.db", tmp_path / "." / "b.db")
    assert not list(tmp_path.iterdir())


def test_without_its_folder_neither_a_ledger_nor_its_key_is_made(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="in a folder that is there"):
        opened(tmp_path / "no" / "b.db", tmp_path / "the.key")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("cut_off_after", ["the head", "the key", "the ledger"])
def test_a_making_that_was_cut_off_is_taken_up(cut_off_after: str, tmp_path: Path) -> None:
    place, key = tmp_path / "b.db", tmp_path / "the.key"
    trace = LastSeen(Path(f"{key}.head"))
    assert trace.begin()
    if cut_off_after != "the head":
        secret = key_file(key)
        if cut_off_after == "the ledger":
            Ledger.open(place, key=secret, budget=BUDGET, dataset="clicks").close()
    with opened(place, key) as ledger:
        ask(ledger, "a")
    with opened(place, key) as ledger:
        assert ledger.spent == Charge(steps=1)
    assert trace.read() == LastEntry(1, ledger._seen.digest)


def test_a_ledger_or_a_head_without_the_key_is_refused(tmp_path: Path) -> None:
    place, key = tmp_path / "b.db", tmp_path / "the.key"
    head = Path(f"{key}.head")
    opened(place, key).close()
    key.unlink()
    kept = tmp_path / "kept"
    for gone in (place, head):
        gone.rename(kept)
        with pytest.raises(LedgerError, match="the key of this ledger must be at"):
            opened(place, key)
        assert not key.exists()
        kept.rename(gone)
    head.write_bytes(b"%019d:%064d\n" % (0, 0))  # being made, it says, and there is a ledger
    with pytest.raises(LedgerError, match="the key of this ledger must be at"):
        opened(place, key)


def test_how_long_another_is_waited_for_is_told_by_the_key_or_else_by_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks: list[Path | None] = []

    def noted(mark: Path | None) -> float:
        marks.append(mark)
        return 0.0

    monkeypatch.setattr(guarded, "_deadline", noted)
    place, key = tmp_path / "b.db", tmp_path / "the.key"
    opened(place, key).close()
    place.unlink()
    Path(f"{place}.head").write_bytes(Path(f"{key}.head").read_bytes())
    for given in (key, KEY):
        with pytest.raises(LedgerError, match="got none; put it back"):
            opened(place, given)
    assert marks == [key, key, Path(f"{place}.head")]


def test_a_secret_in_no_file_makes_a_ledger_once(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    opened(place, KEY).close()
    opened(place, KEY).close()
    place.unlink()
    with pytest.raises(LedgerError, match="got none; put it back"):
        opened(place, KEY)
    assert not place.exists()


def test_a_witness_stands_for_a_head_that_is_gone(tmp_path: Path) -> None:
    place, key = tmp_path / "b.db", tmp_path / "b.db.key"
    with opened(place, key) as ledger:
        ask(ledger, "a")
        head = ledger.verify()
    trace = head_beside(place, key)
    assert trace is not None
    ways: list[Callable[..., Ledger]] = [partial(opened, place, key), partial(open_shared, place)]
    for reopen in ways:
        trace.unlink()
        with pytest.raises(LedgerError, match="give the witness that it shows"):
            reopen()
        reopen(witness=head).close()
        assert LastSeen(trace).read() == head
        reopen().close()


@pytest.mark.parametrize("name", ["b.db.key", "other.key"])
def test_a_shared_ledger_is_made_under_the_key_that_is_named(name: str, tmp_path: Path) -> None:
    place, key = tmp_path / "b.db", tmp_path / name
    if name == "other.key":
        key_file(key)
    with pytest.raises(InputError, match="got none; give a budget to make one"):
        open_shared(place, key=key if key.exists() else None)
    assert not place.exists()
    open_shared(place, key=key if key.exists() else None, budget=BUDGET).close()
    assert sorted(path.name for path in tmp_path.glob("*.key")) == [name]
    with Ledger.open(place, key=key_file(key, create=False)) as ledger:
        assert ledger.budget == BUDGET
    place.unlink()
    with pytest.raises(LedgerError, match="got none; put it back"):
        open_shared(place, key=key, budget=BUDGET)


def test_an_empty_file_is_not_made_a_ledger_by_who_may_make_none(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    sqlite3.connect(place).close()
    place.touch()
    with pytest.raises(AbsentError):
        Ledger.open(place, key=KEY, budget=BUDGET, guard=HeadGuard(make=False))
    assert not place.read_bytes()


def test_a_ledger_that_is_trusted_has_its_head_written_at_once(tmp_path: Path) -> None:
    place, file = tmp_path / "b.db", tmp_path / "the.head"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        ask(ledger, "a")
        head = ledger.verify()
    with pytest.raises(LedgerError, match="the last head of this ledger must be at"):
        Ledger.open(place, key=KEY, guard=HeadGuard(file=file))
    Ledger.open(place, key=KEY, guard=HeadGuard(file=file, trusted=True)).close()
    assert LastSeen(file).read() == head


# --- altered while it is open -------------------------------------------------------------------------------------

LAST = "WHERE number = (SELECT max(number) FROM entries)"
ALTERED = {
    "the balance is lowered": ("UPDATE budget SET spent_steps = 0", "the balance must be that of the last entry"),
    "the balance counts less": ("UPDATE budget SET entries = 2", "the balance must be that of the last entry"),
    "the balance counts more": ("UPDATE budget SET entries = 4", "the balance must be that of the last entry"),
    "the last is gone": (f"DELETE FROM entries {LAST}", "the balance must be that of the last entry"),
    "one before the last is gone": ("DELETE FROM entries WHERE number = 2", "entry 3 must follow entry 2, got a gap"),
    "the last says another": (f"UPDATE entries SET who = 'x' {LAST}", "entry 3 must carry its digest"),
    "the budget is raised": ("UPDATE budget SET cap_steps = 21", "must be those it was opened with"),
    "too much is spent": ("UPDATE budget SET spent_steps = 21", "be within the budget"),
}


@pytest.mark.parametrize("altered", ALTERED)
def test_a_charge_finds_what_was_altered_and_charges_nothing(altered: str, tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    statement, said = ALTERED[altered]
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        for key in "abc":
            ask(ledger, key, steps=2)
        alter(place, statement)
        with pytest.raises(LedgerError, match=said):
            ask(ledger, "d")
        assert len(ledger.entries()) == 3 - statement.startswith("DELETE")


def test_a_balance_without_the_entries_of_free_charges_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    with Ledger.open(place, key=KEY, budget=BUDGET) as idle, Ledger.open(place, key=KEY) as busy:
        ask(busy, "a", steps=0)
        alter(place, "DELETE FROM entries")
        with pytest.raises(LedgerError, match="the balance must be that of the last entry"):
            ask(idle, "b")


def test_what_is_given_back_must_have_been_spent(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        asked = ask(ledger, "a", steps=5)
        alter(place, "UPDATE budget SET spent_steps = 1")
        with pytest.raises(LedgerError, match="the balance must cover what is given back"):
            ledger.settle(asked, Charge(steps=2))


@pytest.mark.parametrize("change", ["cap_steps = 19", "root = zeroblob(32)"])
def test_a_ledger_stays_the_one_that_was_opened(change: str, tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        with sqlite3.connect(place) as forger:
            forger.execute(f"UPDATE budget SET {change}")
        forger.close()
        with pytest.raises(LedgerError, match="must be those it was opened with"):
            ledger.verify()


def test_another_ledger_under_the_same_key_is_no_substitute(tmp_path: Path) -> None:
    place, other = tmp_path / "b.db", tmp_path / "other.db"
    Ledger.open(other, key=KEY, budget=BUDGET).close()
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        ask(ledger, "a")
        shutil.copy(other, place)
        with pytest.raises(LedgerError, match="must be those it was opened with"):
            ledger.verify()


def test_a_head_that_contradicts_the_ledger_stops_the_next_charge(tmp_path: Path) -> None:
    place, file = tmp_path / "b.db", tmp_path / "the.head"
    with Ledger.open(place, key=KEY, budget=BUDGET, guard=HeadGuard(file=file)) as ledger:
        ask(ledger, "a")
        head = ledger.verify()
        line = file.read_bytes()
        file.write_bytes(line.replace(head.digest.hex().encode(), b"0" * 64))
        with pytest.raises(LedgerError, match="entries seen before must stay"):
            ask(ledger, "b")
        file.write_bytes(line)
        ask(ledger, "b")


def test_charges_that_were_mixed_without_leave_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HiddenUnits, "check", lambda *_: None)
    with Ledger.open(tmp_path / "b.db", key=KEY, budget=BUDGET) as ledger:
        ask(ledger, "a")
        ledger.reserve(Charge(steps=1), hides="event", question="q", who="w", idempotency_key="b")
        with pytest.raises(LedgerError, match="entry 2 must hide what those before it hide"):
            ledger.verify()


TRICKS = {
    "resets the balance": "UPDATE budget SET spent_steps = 0",
    "moves the count": "UPDATE budget SET entries = entries + 1",
    "drops the charge": "DELETE FROM entries WHERE number = new.number",
    "changes the charge": "UPDATE entries SET who = 'x' WHERE number = new.number",
    "drops what was before": "DELETE FROM entries WHERE number = new.number - 1",
    "changes the digest before": "UPDATE entries SET digest = zeroblob(32) WHERE number = new.number - 1",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_what_a_trigger_does_to_a_charge_is_seen_before_it_stands(trick: str, tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        ask(ledger, "a")
        alter(place, f"CREATE TRIGGER t AFTER INSERT ON entries BEGIN {TRICKS[trick]}; END")
        with pytest.raises(LedgerError, match="a charge must be in the ledger as it was written"):
            ask(ledger, "b")
        assert ledger.spent == Charge(steps=1)


def test_a_balance_that_does_not_move_is_not_taken_for_one_that_is_spent(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        alter(place, "CREATE TRIGGER t BEFORE UPDATE ON budget BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(LedgerError, match="the balance must move when something is charged"):
            ask(ledger, "a")


def test_a_keyed_ledger_is_verified_with_its_key(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    Ledger.open(place, key=KEY, budget=BUDGET).close()
    with (
        Ledger.open(place, key=None, read_only=True) as shown,
        pytest.raises(LedgerError, match="the key must be given to verify this ledger"),
    ):
        shown.verify()
