"""A ledger adds up charges that hide the same unit; others it refuses, until somebody allows them for ever."""

import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from tests.ledger.processes import KEY, start

import pianissimo as pp
from pianissimo.cli.main import cli
from pianissimo.durable.charging import cap_of, hides_of
from pianissimo.errors import LedgerError
from pianissimo.ledger import Charge, Ledger, history, key_file, open_shared
from pianissimo.ledger.hidden import HiddenUnits, spent_by_unit
from pianissimo.selection.limited_dom import limited_domain
from pianissimo.sketches import MisraGries

BUDGET = Charge(rho_units=1000)
DAY = "user within 1 day, 0:00:00, one from 1970-01-01T00:00:00Z on"
UNITS = ("event", "user", DAY, "user within 24 ticks")
CAP = pp.Budget(8.0, 1e-6)


def charge(ledger: Ledger, hides: str, key: str, units: int = 10, question: str = "q") -> None:
    ledger.reserve(Charge(rho_units=units), hides=hides, question=question, who="ada", idempotency_key=key)


def charge_as_before(ledger: Ledger, question: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What versions wrote that did not compare units."""
    sound = Ledger._append
    with monkeypatch.context() as patch:
        patch.setattr(
            Ledger,
            "_append",
            lambda self, kind, change, *, hides=None, **named: sound(self, kind, change, **named),
        )
        patch.setattr(HiddenUnits, "check", lambda *_: None)
        charge(ledger, "event", key, question=question)


@pytest.mark.parametrize("first", UNITS)
@pytest.mark.parametrize("second", UNITS)
def test_a_charge_of_another_unit_is_refused_before_anything_is_charged(
    first: str, second: str, tmp_path: Path
) -> None:
    with Ledger.open(tmp_path / "budget.db", key=KEY, budget=BUDGET) as ledger:
        charge(ledger, first, "one")
        head = ledger.verify()
        if first == second:
            charge(ledger, second, "two")
            assert ledger.spent.rho_units == 20
            return
        with pytest.raises(LedgerError) as refused:
            charge(ledger, second, "two")
        assert f"one {first}, got one that hides one {second}" in str(refused.value)
        assert "--allow-mixed-units" in str(refused.value)
        assert (ledger.spent.rho_units, ledger.verify()) == (10, head)


def test_allowed_for_ever_each_unit_has_its_own_sum(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        charge(ledger, "event", "one")
        ledger.allow_mixed_units(who="ada")
        ledger.allow_mixed_units(who="bob")
        charge(ledger, "user", "two", 30)
        asked = ledger.reserve(Charge(rho_units=7), hides="user", question="q", who="ada", idempotency_key="three")
        ledger.settle(asked, Charge(rho_units=2))
    with Ledger.open(place, key=KEY) as ledger:
        charge(ledger, DAY, "four", 5)
        ledger.verify()
        told = history(ledger)
        spent = spent_by_unit(ledger.entries())
    assert {hides: cost.rho_units for hides, cost in spent.items()} == {"event": 10, "user": 32, DAY: 5}
    assert told["spent"]["rho_units"] == 47
    assert [each["hides"] for each in told["charges"]] == ["event", "user", "user", DAY]
    assert (told["mixed_units_allowed"]["number"], told["mixed_units_allowed"]["who"]) == (2, "ada")
    assert any("no promise" in each and "entry 2 allows it" in each for each in told["warnings"])


def test_a_ledger_of_one_unit_says_nothing_about_units(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "budget.db", key=KEY, budget=BUDGET) as ledger:
        charge(ledger, "user", "one")
        charge(ledger, "user", "two")
        told = history(ledger)
    assert told["warnings"] == []
    assert told["mixed_units_allowed"] is None
    assert list(told["spent_by_unit"]) == ["user"]


@pytest.mark.parametrize("change", ["reserve user", "reserve", "settle", "mix"])
def test_whom_a_charge_hides_is_in_its_digest(change: str, tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "budget.db", key=KEY, budget=BUDGET) as ledger:
        charge(ledger, "event", "one")
        ledger._store.connection.begin_write()
        ledger._store.connection.execute("DROP TRIGGER IF EXISTS entries_stay_update")
        for (name,) in ledger._store.connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            ledger._store.connection.execute(f"DROP TRIGGER {name}")
        ledger._store.connection.execute("UPDATE entries SET kind = ? WHERE number = 1", [change])
        ledger._store.connection.commit()
        with pytest.raises(LedgerError, match="altered"):
            ledger.verify()


def test_a_charge_found_again_must_hide_the_same(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "budget.db", key=KEY, budget=BUDGET) as ledger:
        charge(ledger, "event", "one")
        charge(ledger, "event", "one")
        with pytest.raises(LedgerError, match="question, person or unit"):
            charge(ledger, "user", "one")
        assert ledger.spent.rho_units == 10


def test_ledgers_that_were_mixed_before_still_open_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "budget.db"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        charge_as_before(ledger, "stream a, life 1: 8 ticks, hides one event, epsilon 1, delta 1e-09", "a", monkeypatch)
        charge_as_before(ledger, "top 3 of at most 9 labels, hides one user", "b", monkeypatch)
        charge_as_before(ledger, "count of users", "c", monkeypatch)
    with Ledger.open(place, key=KEY) as ledger:
        assert [entry.hides for entry in ledger.entries()] == [None, None, None]
        told = history(ledger)
        for unit in UNITS:
            with pytest.raises(LedgerError, match="a charge must hide what the others"):
                charge(ledger, unit, "d")
        # What was charged before is found again, and nothing is charged for it.
        charge(ledger, "event", "a", question="stream a, life 1: 8 ticks, hides one event, epsilon 1, delta 1e-09")
        ledger.allow_mixed_units(who="ada")
        charge(ledger, "user", "d")
        ledger.verify()
    assert told["verified"]
    assert {hides: cost["rho_units"] for hides, cost in told["spent_by_unit"].items()} == {
        "event": 10,
        "user": 10,
        "not said": 10,
    }
    assert any("nobody allowed it" in each for each in told["warnings"])


@pytest.mark.parametrize(
    ("question", "fits"),
    [
        ("stream hides one user, life 1: 8 ticks, hides one event, epsilon 1", ["event"]),
        ("heavy keys of a sketch, hides a user with at most 3 keys", ["user"]),
        ("stream b, life 1: 8 ticks, hides one user and period, epsilon 1", [DAY, "user within 24 ticks"]),
        ("count of users", list(UNITS)),
    ],
)
def test_charges_of_before_are_known_by_their_words(
    question: str, fits: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, unit in enumerate(UNITS):
        with Ledger.open(tmp_path / f"{number}.db", key=KEY, budget=BUDGET) as ledger:
            charge_as_before(ledger, question, "a", monkeypatch)
            if unit in fits:
                charge(ledger, unit, "b")
                assert ledger.verify().count == 2
            else:
                with pytest.raises(LedgerError, match="a charge must hide what the others"):
                    charge(ledger, unit, "b")


def charge_many(pipe: Any, place: str, unit: str, looks_first: bool) -> None:
    """Charge one unit again and again; send how often it was let in. The fault: to look, and to charge later."""
    with Ledger.open(place, key=KEY) as ledger:
        if looks_first:
            units = ledger._units

            def look_later() -> HiddenUnits:
                seen = HiddenUnits()
                seen.mixed_by, seen.found = units.mixed_by, set(units.found)
                time.sleep(0.3)
                units.read(ledger._store.entries("WHERE number > ?", [units.count]))
                return seen

            ledger._read_units = look_later  # type: ignore[method-assign]
        pipe.send("open")
        pipe.recv()
        granted = 0
        for number in range(1 if looks_first else 20):
            try:
                charge(ledger, unit, f"{unit} {number}", 1)
            except LedgerError:
                continue
            granted += 1
    pipe.send(granted)


def race(place: str, *, looks_first: bool) -> list[int]:
    children = [start(charge_many, place, unit, looks_first) for unit in ("event", "user")]
    for _, pipe in children:
        assert pipe.poll(60)
        assert pipe.recv() == "open"
    for _, pipe in children:
        pipe.send("go")
    found = []
    for process, pipe in children:
        assert pipe.poll(60)
        found.append(pipe.recv())
        process.join(60)
    return found


def test_of_two_processes_that_race_with_two_units_one_gets_in(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        assert sorted(race(place, looks_first=False)) == [0, 20]
        ledger.verify()
        assert len(spent_by_unit(ledger.entries())) == 1


def test_who_looks_and_charges_later_mixes_them_and_is_found(place: str) -> None:
    """Mutant: units as they were when the ledger was opened."""
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        assert race(place, looks_first=True) == [1, 1]
        with pytest.raises(LedgerError, match="entry 2 must hide what those before it hide"):
            ledger.verify()


def test_streams_tables_sketches_and_lists_are_all_asked_whom_they_hide(tmp_path: Path) -> None:
    state = tmp_path / "state"
    rows = pl.DataFrame({"member": [f"m{n % 900}" for n in range(2000)], "article": ["tea", "rain"] * 1000})
    of_events = pp.Stream("a", budget=pp.Budget(0.2, 1e-9), horizon=4, queries=[pp.Count("n")])
    of_users = pp.Stream("b", unit=pp.user("who"), budget=pp.Budget(0.2, 1e-9), horizon=4, queries=[pp.Count("n")])
    with of_events.open(state, ledger_budget=CAP):
        pass
    refused = pytest.raises(LedgerError, match="one event, got one that hides one user")
    with refused:
        of_users.open(tmp_path / "users", ledger=state)
    with pp.Table(rows, user="member", budget=CAP, ledger=state) as table, refused:
        table.top_k("article", k=2)
    sketch, of_several = MisraGries(k=8, keys="text"), MisraGries(k=8, keys="text", max_keys_per_user=2)
    sketch.update(["tea"] * 500)
    of_several.update(["tea"] * 500)
    with open_shared(state) as ledger:
        before = ledger.spent
        with refused:
            of_several.release(epsilon=0.1, delta=1e-9, ledger=ledger)
        with refused:
            limited_domain({"tea": 900}, k=1, candidates=4, epsilon=0.1, delta=1e-9, ledger=ledger)
        assert ledger.spent == before
        sketch.release(epsilon=0.1, delta=1e-9, ledger=ledger)
        ledger.allow_mixed_units(who="ada")
        limited_domain({"tea": 900}, k=1, candidates=4, epsilon=0.1, delta=1e-9, ledger=ledger)
    with of_users.open(tmp_path / "users", ledger=state):
        pass
    with pp.Table(rows, user="member", budget=CAP, ledger=state) as table:
        table.top_k("article", k=2)
    with open_shared(state) as ledger:
        ledger.verify()
        assert set(spent_by_unit(ledger.entries())) == {"event", "user"}


@pytest.mark.parametrize(
    ("unit", "fields", "hides"),
    [
        (pp.user("who"), {}, "user"),
        (pp.user("who", within=24), {}, "user within 24 ticks"),
        (pp.user("who", within=24), {"tick": "1h"}, "user within 24 ticks of 1:00:00"),
        (pp.user("who", within="1d"), {"tick": "1h", "origin": "2026-01-01"}, DAY),
        (pp.user("who", within="1d"), {"tick": "15m", "origin": "2026-03-07"}, DAY),
        (
            pp.user("who", within="1d"),
            {"tick": "1h", "origin": "2026-01-01T06:00"},
            "user within 1 day, 0:00:00, one from 1970-01-01T06:00:00Z on",
        ),
        (
            pp.user("who", within="1d", starts=7),
            {"tick": "1h", "origin": "2026-01-01"},
            "user within 1 day, 0:00:00, one from 1970-01-01T06:00:00Z on",
        ),
        (
            pp.user("who", within="1d", starts="06:00"),
            {"tick": "1h", "origin": "2026-01-01", "time_zone": "Europe/Berlin"},
            "user within 1 day, 0:00:00 from 06:00 on, Europe/Berlin",
        ),
        (
            pp.user("who", within="1d", starts="06:00"),
            {"tick": "15m", "origin": "2026-01-02", "time_zone": "Europe/Berlin"},
            "user within 1 day, 0:00:00 from 06:00 on, Europe/Berlin",
        ),
        # No tick begins at six: periods begin with the next one, half an hour or hours later.
        (
            pp.user("who", within="1d", starts="06:00"),
            {"tick": "1h", "origin": "2026-01-01T00:30", "time_zone": "Europe/Berlin"},
            "user within 1 day, 0:00:00 from 06:00 on, Europe/Berlin, in ticks of 1:00:00, one from "
            "2025-12-31T23:30:00Z on",
        ),
        (
            pp.user("who", within="1d", starts="06:00"),
            {"tick": "5h", "origin": "2026-01-01", "time_zone": "Europe/Berlin"},
            "user within 1 day, 0:00:00 from 06:00 on, Europe/Berlin, in ticks of 5:00:00, one from "
            "2025-12-31T23:00:00Z on",
        ),
        (
            pp.user("who", within=7),
            {"tick": "1d", "origin": "2026-01-01", "time_zone": "Europe/Berlin"},
            "user within 7 ticks of 1 day, 0:00:00, Europe/Berlin, one from 2025-12-31T23:00:00Z on",
        ),
    ],
)
def test_periods_are_told_by_their_length_and_where_they_lie(unit: Any, fields: dict[str, Any], hides: str) -> None:
    length: dict[str, Any] = {} if unit.within else {"horizon": 8}
    stream = pp.Stream("s", unit=unit, budget=pp.Budget(1.0, 1e-9), queries=[pp.Count("n")], **fields, **length)
    assert hides_of(stream.plan()) == hides


def test_the_command_shows_units_and_writes_down_that_they_may_be_mixed(tmp_path: Path) -> None:
    place = str(tmp_path / "budget.db")
    key_file(f"{place}.key")
    with open_shared(place, key=f"{place}.key", budget=cap_of(CAP)) as ledger:
        charge(ledger, "event", "one", 2**36)
    run = CliRunner().invoke
    before = run(cli, ["budget", place])
    assert before.exit_code == 0
    assert "different units" not in before.output
    allowed = run(cli, ["budget", place, "--allow-mixed-units"])
    assert allowed.exit_code == 0, allowed.output
    with open_shared(place) as ledger:
        charge(ledger, "user", "two", 2**36)
    shown = " ".join(run(cli, ["budget", place]).output.split())
    assert "of it, to hide one event" in shown
    assert "of it, to hide one user" in shown
    assert "charges that hide one event say nothing about a user with several; entry 2 allows it" in shown
