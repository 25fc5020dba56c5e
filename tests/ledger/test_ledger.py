"""What a ledger keeps, gives back and refuses, on both engines."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ledger.processes import KEY, postgres_server

from pianissimo.cli.main import cli
from pianissimo.errors import BudgetError, LedgerError, ParameterError, StoreError
from pianissimo.ledger import BAD_UNIT, RHO_UNIT, Charge, LastEntry, Ledger, Reservation, history, key_file
from pianissimo.noise import Secret, fresh_secret

BUDGET = Charge(steps=20, calls=3, rho_units=1000, bad_units=50)


def ask(ledger: Ledger, charge: Charge, key: str, question: str = "top 10 of article") -> Reservation:
    return ledger.reserve(charge, hides="user", question=question, who="ada", idempotency_key=key)


def test_a_charge_stands_until_it_is_settled_and_then_costs_what_the_answer_cost(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        asked = ask(ledger, Charge(steps=11, calls=1, rho_units=7), "a")
        assert asked.fresh
        assert ledger.spent == asked.charge
        done = ledger.settle(asked, Charge(steps=4, calls=1, rho_units=7))
        assert done.settled == ledger.spent == Charge(steps=4, calls=1, rho_units=7)
        assert ledger.left == BUDGET - ledger.spent
    with Ledger.open(place, key=KEY) as again:
        assert again.spent == Charge(steps=4, calls=1, rho_units=7)
        assert again.budget == BUDGET


def test_a_notebook_shows_what_is_spent_and_left_and_nobody_who_asked(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "b.db", key=KEY, budget=BUDGET, dataset="<clicks>") as ledger:
        ask(ledger, Charge(steps=5), "a")
        shown = ledger._repr_html_()
        assert "&lt;clicks&gt;" in shown
        told = history(ledger)
        assert "<th>epsilon</th><th>delta</th><th>steps</th><th>questions</th>" in shown
        assert "rho" not in shown
        for name in ("budget", "spent", "left"):
            line = "".join(f"<td>{told[name][unit]:.4g}</td>" for unit in ("epsilon", "delta", "steps", "calls"))
            assert f"<tr><th>{name}</th>{line}" in shown
        assert all(entry.who not in shown and entry.question not in shown for entry in ledger.entries())
        assert repr(ledger) == f"Ledger({str(tmp_path / 'b.db')!r}, dataset='<clicks>')"


@pytest.mark.parametrize("unit", ["steps", "calls", "rho_units", "bad_units"])
def test_every_unit_has_its_own_cap(place: str, unit: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        whole = getattr(BUDGET, unit)
        with pytest.raises(BudgetError, match="must fit what is left"):
            ask(ledger, Charge(**{unit: whole + 1}), "a")
        ask(ledger, Charge(**{unit: whole}), "a")
        with pytest.raises(BudgetError, match="must fit what is left"):
            ask(ledger, Charge(**{unit: 1}), "b")
        assert ledger.spent == Charge(**{unit: whole})
        assert ledger.verify().count == 1


def test_the_same_key_again_is_the_same_charge(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        first = ask(ledger, Charge(steps=11), "a")
        again = ask(ledger, Charge(steps=11), "a")
        assert (again.number, again.charge, again.fresh, again.settled) == (first.number, first.charge, False, None)
        with pytest.raises(LedgerError, match="by the call that made it"):
            ledger.settle(again, Charge())
        ledger.settle(first, Charge(steps=3))
        assert ask(ledger, Charge(steps=11), "a").settled == Charge(steps=3)
        assert ledger.spent == Charge(steps=3)
        ask(ledger, Charge(steps=17), "b")
        assert not ask(ledger, Charge(steps=11), "a").fresh  # found, although it would no longer fit
        for other in (Charge(steps=12), Charge(steps=11, calls=1)):
            with pytest.raises(LedgerError, match="one question"):
                ask(ledger, other, "a")
        with pytest.raises(LedgerError, match="one question"):
            ask(ledger, Charge(steps=11), "a", question="another")


def test_a_charge_is_settled_once(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        asked = ask(ledger, Charge(steps=11), "a")
        ledger.settle(asked, Charge(steps=3))
        ledger.settle(asked, Charge(steps=3))  # the same again, as after a lost connection
        with pytest.raises(LedgerError, match="settled once"):
            ledger.settle(asked, Charge(steps=2))
        assert ledger.spent == Charge(steps=3)
        assert ledger.verify().count == 2


def test_no_more_is_given_back_than_was_reserved(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        asked = ask(ledger, Charge(steps=5), "a")
        for actual in (Charge(steps=6), Charge(steps=5, calls=1)):
            with pytest.raises(ParameterError, match="at most what was reserved"):
                ledger.settle(asked, actual)
        forged = Reservation(number=1, charge=Charge(steps=9), fresh=True, settled=None, ticket=asked.ticket)
        stranger = Reservation(number=1, charge=asked.charge, fresh=True, settled=None, ticket=bytes(16))
        nowhere = Reservation(number=9, charge=asked.charge, fresh=True, settled=None, ticket=asked.ticket)
        for wrong in (forged, stranger, nowhere):
            with pytest.raises(LedgerError, match="as it was reserved"):
                ledger.settle(wrong, Charge())
        assert ledger.spent == Charge(steps=5)


def test_threads_share_a_ledger(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=Charge(steps=40)) as ledger:
        fresh: list[bool] = []

        def work() -> None:
            for each in range(8):  # all threads use the same keys
                fresh.append(ask(ledger, Charge(steps=5), f"{each}").fresh)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(fresh) == 8
        assert len(fresh) == 32
        assert ledger.spent == Charge(steps=40)


def test_a_ledger_is_opened_with_what_it_was_made_with(place: str) -> None:
    Ledger.open(place, key=KEY, budget=BUDGET, dataset="clicks").close()
    Ledger.open(place, key=KEY, budget=BUDGET, dataset="clicks").close()
    with pytest.raises(LedgerError, match="with the budget it was made with, Charge"):
        Ledger.open(place, key=KEY, budget=Charge(steps=21), dataset="clicks")
    with pytest.raises(LedgerError, match="with the dataset it was made with, clicks, got "):
        Ledger.open(place, key=KEY, budget=BUDGET)
    with pytest.raises(LedgerError, match="with its key"):
        Ledger.open(place, key=None)
    with pytest.raises(LedgerError, match="the key is another"):
        Ledger.open(place, key=fresh_secret())
    with Ledger.open(place, key=None, read_only=True) as shown:
        assert shown.left == BUDGET
        with pytest.raises(LedgerError, match="the key must be given"):
            shown.verify()
        with pytest.raises(LedgerError, match="open for writing"):
            ask(shown, Charge(steps=1), "a")


def test_without_a_key_the_history_warns(place: str) -> None:
    with Ledger.open(place, key=None, budget=BUDGET) as ledger:
        ask(ledger, Charge(steps=1), "a")
        assert history(ledger)["warnings"]
    with pytest.raises(LedgerError, match="without a key"):
        Ledger.open(place, key=KEY)
    with Ledger.open(f"{place}2", key=KEY, budget=BUDGET) as ledger:
        assert not history(ledger)["warnings"]


def test_entries_cannot_be_changed_through_sql(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        ask(ledger, Charge(steps=1), "a")
        for statement in ("UPDATE {entries} SET steps = 0", "DELETE FROM {entries}"):
            ledger._store.connection.begin_write()
            with pytest.raises(StoreError):
                ledger._store.connection.execute(statement)
            ledger._store.connection.rollback()
        ledger.verify()


@pytest.mark.parametrize(
    ("named", "match"),
    [
        ({"who": "a\0"}, "printable"),
        ({"who": "\x1b[2J"}, "printable"),
        ({"question": "\ud800"}, "printable"),
        ({"question": 7}, "must be a text"),
        ({"question": "q" * 10_001}, "at most 10000"),
        ({"idempotency_key": ""}, "not be empty"),
        ({"idempotency_key": None}, "must be a text"),
        ({"charge": 3}, "must be a Charge"),
        ({"hides": None}, "must be a text"),
        ({"hides": "user within \n"}, "hides must be"),
        ({"hides": "users"}, "hides must be 'event', 'user' or 'user within ..'"),
    ],
)
def test_what_cannot_be_booked_is_refused(tmp_path: Path, named: dict[str, Any], match: str) -> None:
    with Ledger.open(tmp_path / "b.db", key=KEY, budget=BUDGET) as ledger:
        usual = {"charge": Charge(steps=1), "hides": "user", "question": "q", "who": "w", "idempotency_key": "k"}
        given: dict[str, Any] = usual | named
        with pytest.raises(ParameterError, match=match):
            ledger.reserve(given.pop("charge"), **given)
        with pytest.raises(ParameterError, match="must be a"):
            ledger.settle(named, Charge())  # type: ignore[arg-type]
        assert ledger.spent == Charge()


@pytest.mark.parametrize("value", [-1, 2**62, 1.0, True, None, float("nan")])
def test_units_are_whole_numbers(value: Any) -> None:
    with pytest.raises(ParameterError, match="whole number"):
        Charge(steps=value)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", True])
def test_losses_are_numbers(value: Any) -> None:
    for name in ("rho", "bad"):
        with pytest.raises(ParameterError, match=f"{name} must be"):
            Charge.rounded_up(**{name: value})


@given(st.fractions(0, 1000), st.fractions(0, 1))
def test_charges_round_up_and_caps_down(rho: Fraction, bad: Fraction) -> None:
    up, down = Charge.rounded_up(rho=rho, bad=bad), Charge.rounded_down(rho=rho, bad=bad)
    assert down.rho <= rho <= up.rho < rho + RHO_UNIT
    assert down.bad <= bad <= up.bad < bad + BAD_UNIT
    assert up.fits(down) == (rho == up.rho and bad == up.bad)


@pytest.mark.parametrize("place", ["mysql://host/db", "", "a\0b", 7])
def test_a_place_is_a_path_or_a_url(place: Any) -> None:
    with pytest.raises(ParameterError, match="place must be"):
        Ledger.open(place, key=None)


def test_other_files_are_no_ledgers(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(LedgerError, match="NotADBError"):
        Ledger.open(tmp_path / "text", key=None)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE t (a)")
    other.close()
    with pytest.raises(LedgerError, match="give a budget"):
        Ledger.open(tmp_path / "other", key=None)
    with sqlite3.connect(tmp_path / "wal") as other:
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("CREATE TABLE t (a)")
    other.close()
    with pytest.raises(LedgerError, match="rollback journal"):
        Ledger.open(tmp_path / "wal", key=None, budget=BUDGET)
    with pytest.raises(LedgerError, match="No such file"):
        Ledger.open(tmp_path / "no" / "folder.db", key=None, budget=BUDGET)


def test_a_ledger_and_its_key_are_for_their_owner(tmp_path: Path) -> None:
    key = key_file(tmp_path / "b.db.key")
    with Ledger.open(tmp_path / "b.db", key=key, budget=BUDGET) as ledger:
        ask(ledger, Charge(steps=1), "a")
        assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("b*")} == {0o600}
        assert bytes(key).hex() not in repr(ledger)
    (tmp_path / "b.db.key").chmod(0o640)
    with pytest.raises(LedgerError, match="owner alone"):
        key_file(tmp_path / "b.db.key")
    (tmp_path / "short").write_text("ab")
    (tmp_path / "short").chmod(0o600)
    with pytest.raises(LedgerError, match="64 hexadecimal"):
        key_file(tmp_path / "short")
    with pytest.raises(LedgerError, match="must be readable"):
        key_file(tmp_path / "none", create=False)


def test_a_password_is_never_shown() -> None:
    url = "postgresql://ada:geheim@127.0.0.1:1/shop?password=geheim&connect_timeout=1"
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerError) as caught:
        Ledger.open(url, key=None)
    assert "geheim" not in str(caught.value)
    assert "127.0.0.1:1/shop" in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_session_that_could_forget_is_refused(server: str) -> None:
    with pytest.raises(LedgerError, match="synchronous_commit must be on"):
        Ledger.open(f"{server}&ledger=unsafe&options=-c%20synchronous_commit%3Doff", key=KEY, budget=BUDGET)


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_could_forget_is_refused(setting: str) -> None:
    with (
        postgres_server(f"{setting}=off") as unsafe,
        pytest.raises(LedgerError, match=f"{setting} must be on"),
    ):
        Ledger.open(unsafe, key=KEY, budget=BUDGET)


class Lossy:
    """A connection that fails at COMMIT, before or after the engine did it."""

    def __init__(self, inner: Any, error: Exception, *, done: bool) -> None:
        self._inner, self._error, self._done = inner, error, done

    def execute(self, statement: str, *values: Any) -> Any:
        if statement == "COMMIT":
            if self._done:
                self._inner.execute(statement)
            raise self._error
        return self._inner.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("done", [True, False])
def test_a_lost_commit_is_looked_for_and_not_repeated(place: str, done: bool) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        store: Any = ledger._store.connection
        error: Exception = apsw.FullError("lost")
        if place.startswith("postgresql"):
            import psycopg

            error = psycopg.OperationalError("lost")
        store._connection = Lossy(store._connection, error, done=done)
        if done:
            asked = ask(ledger, Charge(steps=5), "a")
            assert asked.fresh
            store._connection = Lossy(store._connection, error, done=done)
            ledger.settle(asked, Charge(steps=1))
        else:
            with pytest.raises(LedgerError, match="nothing was written"):
                ask(ledger, Charge(steps=5), "a")
            assert ask(ledger, Charge(steps=5), "a").fresh
        assert ledger.spent.steps == (1 if done else 5)
        ledger.verify()


@pytest.mark.parametrize("done", [True, False])
def test_after_a_failed_sync_nothing_is_asked(tmp_path: Path, done: bool) -> None:
    with Ledger.open(tmp_path / "b.db", key=KEY, budget=BUDGET) as ledger:
        store: Any = ledger._store.connection
        error = apsw.IOError("disk I/O error")
        error.extendedresult = apsw.SQLITE_IOERR_FSYNC  # type: ignore[attr-defined]
        store._connection = Lossy(store._connection, error, done=done)
        with pytest.raises(LedgerError, match="unknown whether the charge stands"):
            ask(ledger, Charge(steps=5), "a")
        with pytest.raises(LedgerError, match="a process that saw a sync fail"):
            ask(ledger, Charge(steps=5), "b")
    script = "import sys; from pianissimo.ledger import Ledger; from pianissimo.noise import Secret\n"
    script += "print(Ledger.open(sys.argv[1], key=Secret(bytes(range(32)))).spent.steps)"
    words = [sys.executable, "-c", script, str(tmp_path / "b.db")]
    after = subprocess.run(
        words, capture_output=True, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert int(after.stdout) == (5 if done else 0)


def test_a_dead_connection_is_replaced_and_one_cut_in_the_middle_charges_nothing(server: str) -> None:
    import psycopg

    def cut(ledger: Ledger) -> None:
        store: Any = ledger._store.connection
        with psycopg.connect(server, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (store._connection.info.backend_pid,))

    with Ledger.open(f"{server}&ledger=cut", key=KEY, budget=BUDGET) as ledger:
        cut(ledger)
        asked = ask(ledger, Charge(steps=5), "a")  # a new connection
        store: Any = ledger._store.connection
        commit = store.commit

        def commit_cut() -> None:
            cut(ledger)
            commit()

        store.commit = commit_cut
        with pytest.raises(LedgerError, match="nothing was written"):
            ledger.settle(asked, Charge())
        store.commit = commit
        assert ledger.spent == Charge(steps=5)
        ledger.settle(asked, Charge())
        ledger.verify()


def test_a_fork_gets_a_connection_of_its_own(tmp_path: Path) -> None:
    program = """
import os, sys
from pianissimo.ledger import Charge, Ledger
ledger = Ledger.open(sys.argv[1], key=None, budget=Charge(steps=200))
parent = os.getpid()
children = []
for number in range(3):
    child = os.fork()
    if not child:
        break
    children.append(child)
me = os.getpid() - parent
for each in range(20):
    ledger.reserve(Charge(steps=1), hides="user", question="q", who="w", idempotency_key=f"{me}-{each}")
if me:
    os._exit(0)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
ledger.verify()
print(ledger.spent.steps)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "b.db")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("80\n", "")


def test_a_process_that_holds_the_ledger_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pianissimo.storage.sqlite.WAIT_SECONDS", 0.1)
    with Ledger.open(tmp_path / "b.db", key=KEY, budget=BUDGET) as one, Ledger.open(tmp_path / "b.db", key=KEY) as two:
        one._store.connection.begin_write()
        with pytest.raises(LedgerError, match="must be free"):
            ask(two, Charge(steps=1), "a")
        one._store.connection.rollback()
        holder = apsw.Connection(str(tmp_path / "b.db"))
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="must be free to use"):
            ask(two, Charge(steps=1), "a")
        holder.execute("ROLLBACK")
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM entries").fetchall()  # a reader that stays blocks the commit
        with pytest.raises(LedgerError, match="readers that stay"):
            ask(two, Charge(steps=1), "a")
        holder.close()
        assert ask(two, Charge(steps=1), "a").fresh
        assert one.spent == Charge(steps=1)


def test_the_engine_is_set_up_to_keep_what_it_says(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "b.db", key=KEY, budget=BUDGET) as ledger:
        store = ledger._store.connection
        for setting, value in (("synchronous", 3), ("journal_mode", "persist"), ("mmap_size", 0)):
            assert store.execute(f"PRAGMA {setting}") == [(value,)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_is_asked_the_sum_is_that_of_a_plain_model(tmp_path_factory: Any, data: st.DataObject) -> None:
    charges = st.builds(Charge, steps=st.integers(0, 9), calls=st.integers(0, 2), rho_units=st.integers(0, 400))
    spent = Charge()
    settled: dict[str, Charge] = {}
    held: dict[str, Reservation] = {}
    with Ledger.open(tmp_path_factory.mktemp("model") / "b.db", key=KEY, budget=BUDGET) as ledger:
        for _ in range(data.draw(st.integers(1, 12))):
            key = data.draw(st.sampled_from("abcdef"))
            if key in held and data.draw(st.booleans()):
                asked = held[key]
                actual = Charge(steps=data.draw(st.integers(0, asked.charge.steps)), calls=asked.charge.calls)
                if settled.get(key, actual) == actual:
                    if key not in settled:
                        spent = spent - asked.charge + actual
                    ledger.settle(asked, actual)
                    settled[key] = actual
                else:
                    with pytest.raises(LedgerError):
                        ledger.settle(asked, actual)
            elif key in held:
                again = ask(ledger, held[key].charge, key)
                assert (again.fresh, again.settled) == (False, settled.get(key))
            else:
                charge = data.draw(charges)
                if (spent + charge).fits(BUDGET):
                    held[key] = ask(ledger, charge, key)
                    spent = spent + charge
                else:
                    with pytest.raises(BudgetError):
                        ask(ledger, charge, key)
            assert ledger.spent == spent
        assert ledger.verify().count == len(held) + len(settled)


def call(*arguments: object) -> Any:
    return CliRunner().invoke(cli, ["budget", *map(str, arguments)])


def test_the_command_line_shows_who_asked_what(place: str, tmp_path: Path) -> None:
    key = key_file(tmp_path / "the.key")
    with Ledger.open(place, key=key, budget=BUDGET, dataset="clicks") as ledger:
        ledger.settle(ask(ledger, Charge(steps=11, calls=1), "a"), Charge(steps=4, calls=1))
        ask(ledger, Charge(steps=2), "b", question="[red]top 1[/]\nwhere")
        expected = history(ledger)
    shown = call(place, "--key", tmp_path / "the.key")
    assert shown.exit_code == 0
    for text in ("clicks", "ada", "top 10 of article", "[red]top 1[/] where", "never settled", "14", "verified"):
        assert text in shown.stdout
    head = shown.stdout.splitlines()[1].split()
    assert head == ["epsilon", "delta", "steps", "questions"]
    explained = call(place, "--key", tmp_path / "the.key", "--explain").stdout
    assert "bad mass" in explained
    assert "rho" not in shown.stdout
    told = json.loads(call(place, "--key", tmp_path / "the.key", "--json").stdout)
    assert told == expected
    assert told["left"]["steps"] == 14
    assert [each["cost"]["steps"] for each in told["charges"]] == [4, 2]
    assert told["charges"][0]["time"].endswith("Z")
    assert call(place, "--key", tmp_path / "the.key", "--witness", told["head"]).exit_code == 0
    ahead = LastEntry(9, bytes(32))
    assert call(place, "--key", tmp_path / "the.key", "--witness", ahead).exit_code == 1
    without = call(place, "--json")
    assert without.exit_code == 1
    assert "key must be given" in json.loads(without.stdout)["problem"]


def test_the_command_line_finds_the_key_beside(tmp_path: Path) -> None:
    key = key_file(tmp_path / "b.db.key")
    Ledger.open(tmp_path / "b.db", key=key, budget=BUDGET).close()
    assert call(tmp_path / "b.db").exit_code == 0
    missing = call(tmp_path / "none.db")
    assert missing.exit_code == 1
    assert "there must be a ledger" in missing.stderr


def test_a_key_is_a_secret(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="key must be a Secret"):
        Ledger.open(tmp_path / "b.db", key=bytes(32), budget=BUDGET)  # type: ignore[arg-type]
    assert Secret(bytes(32)) != KEY
