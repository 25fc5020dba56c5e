"""The small rules of storage and ledgers: places, locks, heads, units."""

import time
from fractions import Fraction
from pathlib import Path

import pytest

from pianissimo.errors import LeaseError, ParameterError, StoreError
from pianissimo.ledger import (
    Charge,
    LastEntry,
    LastSeen,
    Ledger,
    check_place,
    is_state_place,
    open_guarded,
)
from pianissimo.ledger.chain import head_beside
from pianissimo.ledger.entries import AbsentError
from pianissimo.storage.connection import is_like_a_url, name_in
from pianissimo.storage.files import PATIENCE, wait_for_lock
from pianissimo.storage.postgres import PostgresConnection
from pianissimo.storage.sqlite import SqliteConnection, check_version


def test_a_ledger_is_looked_for_where_it_is_and_where_a_place_can_be() -> None:
    with pytest.raises(AbsentError, match=r"there must be a ledger at nowhere.db, got no such file; give a budget"):
        Ledger.open("nowhere.db", key=None)
    with pytest.raises(ParameterError, match="got something like a URL"):
        check_place("postgresql:/ada:geheim@host/shop")
    assert Charge(steps=1, rho_units=2**38).to_dict() == {
        "steps": 1,
        "calls": 0,
        "rho": 0.25,
        "bad": 0.0,
        "rho_units": 2**38,
        "bad_units": 0,
    }


def test_an_old_sqlite_is_refused() -> None:
    with pytest.raises(StoreError, match=r"SQLite must be 3.51.3 or newer to keep a store, got 3.40.1"):
        check_version("3.40.1")
    check_version("3.51.3")


def test_a_store_must_be_there_and_its_name_plain() -> None:
    with pytest.raises(StoreError, match=r"there must be a store at nowhere/state.db, got no such file"):
        SqliteConnection(Path("nowhere/state.db"), create=False)
    with pytest.raises(ParameterError, match="state must be 1 to 64 letters"):
        PostgresConnection("postgresql://localhost/shop?state=a b")
    url = "postgresql://localhost/shop?state=visits&sslmode=require"
    assert name_in(url, "state", "state") == ("postgresql://localhost/shop?sslmode=require", "visits")
    with pytest.raises(ParameterError, match="named once"):
        name_in(f"{url}&state=b", "state", "state")


@pytest.mark.parametrize("place", ["postgresql:/ada:geheim@host/shop", "host=h password=geheim"])
def test_what_may_hold_a_password_is_like_a_url(place: str) -> None:
    assert is_like_a_url(place)
    assert not is_like_a_url("C:/shop")


def test_a_lock_that_another_holds_is_waited_for_and_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "visits.witness"
    path.touch()
    with path.open() as one, path.open() as two:
        wait_for_lock(one.fileno(), path, time.monotonic() + PATIENCE)
        with pytest.raises(LeaseError, match=r"visits.witness must be written by one process at a time"):
            wait_for_lock(two.fileno(), path, time.monotonic())


def test_the_last_head_goes_forward_alone(tmp_path: Path) -> None:
    seen = LastSeen(tmp_path / "budget.db.key.head")
    assert seen.read() is None
    seen.make(LastEntry(0, b"\1" * 32))
    for count in (7, 5):  # another process, a little late
        seen.advance(LastEntry(count, bytes(32)))
    assert seen.read() == LastEntry(7, bytes(32))
    assert LastEntry.parse(str(seen.read())) == seen.read()
    with pytest.raises(ParameterError, match="a witness must read COUNT:DIGEST"):
        LastEntry.parse("three")


def test_where_the_files_of_a_ledger_are(tmp_path: Path) -> None:
    assert head_beside("budget.db", Path("keys/the.key")) == Path("keys/the.key.head")
    assert head_beside("budget.db", None) == Path("budget.db.head")
    assert head_beside("postgresql://db.example/shop", None) is None
    assert is_state_place("postgresql://db.example/shop?state=clicks")
    assert not is_state_place("budget.db")
    place = tmp_path / "budget.db"
    open_guarded(place, key=f"{place}.key", budget=Charge(steps=5), dataset="clicks").close()
    names = ["budget.db", "budget.db-journal", "budget.db.key", "budget.db.key.head"]
    assert sorted(path.name for path in tmp_path.glob("budget*")) == names


def test_a_charge_is_used_by_whoever_came_first(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "budget.db", key=None, budget=Charge(steps=2)) as ledger:
        ledger.reserve(Charge(steps=2), hides="user", question="a stream", who="ada", idempotency_key="s")
        assert [ledger.use("s", by=life) for life in ("first", "first", "second")] == ["first"] * 3


def test_units_are_rounded_against_whoever_asks() -> None:
    assert Charge.rounded_up(rho=Fraction(1, 2**41), bad=1e-300).units == (0, 0, 1, 1)
    assert Charge.rounded_down(calls=100, rho=Fraction(3, 2**41)).units == (0, 100, 1, 0)
    assert (Charge(rho_units=2**39).rho, Charge(bad_units=2**50).bad) == (Fraction(1, 2), Fraction(1, 1024))
    assert Charge(steps=17, calls=1).lacking(Charge(steps=16, calls=1)) == "16 steps, got 17"
    assert not Charge(calls=1).fits(Charge(steps=1))
