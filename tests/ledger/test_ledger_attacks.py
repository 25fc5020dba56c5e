"""What broke ledgers once: dropped locks, ledgers lost or put back, triggers, tickets, passwords, interrupts."""

import dataclasses
import linecache
import shutil
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import apsw
import pytest
from tests.ledger.processes import KEY, start

from pianissimo.errors import LedgerError, ParameterError
from pianissimo.ledger import Charge, LastEntry, LastSeen, Ledger, guarded, key_file, open_guarded
from pianissimo.noise import Secret
from pianissimo.storage import connection as turns
from pianissimo.storage import sqlite as sqlite_engine
from pianissimo.storage.connection import shown_url

BUDGET = Charge(steps=20)


def ask(ledger: Ledger, key: str, steps: int = 1) -> Any:
    return ledger.reserve(Charge(steps=steps), hides="user", question="q", who="w", idempotency_key=key)


# --- locks --------------------------------------------------------------------------------------------------------


def posix_locks(path: Path) -> list[str]:
    """The locks of the whole machine on a file; they are dropped if their process closes any descriptor of it."""
    inode = path.stat().st_ino
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return [" ".join(line.split()[1:]) for line in lines if f":{inode} " in line]


needs_proc = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="locks are listed on Linux alone")


@needs_proc
def test_opening_a_ledger_again_drops_no_lock_of_a_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_engine, "WAIT_SECONDS", 0.1)
    place = tmp_path / "b.db"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        ledger._store.connection.begin_write()
        held = posix_locks(place)
        assert held
        with pytest.raises(LedgerError, match="must be free"):
            Ledger.open(place, key=KEY, budget=BUDGET)
        Ledger.open(place, key=KEY, read_only=True).close()
        with pytest.raises(LedgerError):
            key_file(place)
        assert posix_locks(place) == held
        ledger._store.connection.rollback()


def open_and_charge(pipe: Any, place: str, number: int) -> None:
    """Eight times: open the ledger in two threads, charge once in each, close it."""
    failed: list[str] = []

    def once(key: str) -> None:
        try:
            with Ledger.open(place, key=KEY, budget=Charge(steps=1000)) as ledger:
                ask(ledger, key)
        except LedgerError as error:
            failed.append(str(error))

    for each in range(8):
        threads = [threading.Thread(target=once, args=(f"{number}-{each}-{thread}",)) for thread in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    pipe.send(failed)


def test_no_charge_is_lost_where_threads_open_and_close_ledgers(tmp_path: Path) -> None:
    place = str(tmp_path / "b.db")
    children = [start(open_and_charge, place, number) for number in range(3)]
    for process, pipe in children:
        assert pipe.poll(60)
        assert pipe.recv() == []
        process.join(60)
    with Ledger.open(place, key=KEY) as ledger:
        assert ledger.spent == Charge(steps=3 * 8 * 2)


# --- lost ledgers and old ones ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "PATIENCE_SECONDS", 0.2)


def opened(place: Path | str, key: Any = None, **named: Any) -> Ledger:
    return open_guarded(place, key=f"{place}.key" if key is None else key, budget=BUDGET, dataset="clicks", **named)


@pytest.mark.parametrize("what", ["deleted", "emptied", "tables dropped"])
def test_a_lost_ledger_is_not_taken_for_a_new_one(tmp_path: Path, what: str) -> None:
    place = tmp_path / "b.db"
    with opened(place) as ledger:
        ask(ledger, "a")
    if what == "deleted":
        place.unlink()
    elif what == "emptied":
        place.write_bytes(b"")
    else:
        with sqlite3.connect(place) as forger:
            forger.execute("DROP TABLE entries")
            forger.execute("DROP TABLE budget")
        forger.close()
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"got none; put it back from a backup\. Or begin a new budget"):
            opened(place)
    # The way out.
    for name in ("b.db", "b.db.key", "b.db.key.head"):
        (tmp_path / name).unlink(missing_ok=True)
    with opened(place) as ledger:
        assert ledger.spent == Charge()


def test_a_secret_leaves_a_trace_beside_the_ledger(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    with opened(place, KEY) as ledger:
        ask(ledger, "a")
    with opened(place, KEY) as ledger:
        assert ledger.spent == Charge(steps=1)
    place.unlink()
    with pytest.raises(LedgerError, match="got none; put it back"):
        opened(place, KEY)


def test_an_old_copy_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    with opened(place) as ledger:
        ask(ledger, "a")
    shutil.copy(place, tmp_path / "old")
    with opened(place) as ledger:
        ask(ledger, "b")
        shutil.copy(tmp_path / "old", place)
        with pytest.raises(LedgerError, match="altered"):
            ask(ledger, "c")
    with pytest.raises(LedgerError, match="the 2 entries that were seen before"):
        opened(place)


def test_what_another_process_has_seen_counts_too(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    with opened(place) as idle, opened(place) as busy:
        ask(busy, "a")
        shutil.copy(place, tmp_path / "old")
        ask(busy, "b")
        shutil.copy(tmp_path / "old", place)
        with pytest.raises(LedgerError, match="entries seen before must stay"):
            ask(idle, "c")


def test_a_ledger_without_its_trace_needs_a_witness_once(tmp_path: Path) -> None:
    place = tmp_path / "b.db"
    with opened(place) as ledger:
        ask(ledger, "a")
        head = ledger.verify()
    trace = tmp_path / "b.db.key.head"
    trace.unlink()
    with pytest.raises(LedgerError, match="give the witness that it shows"):
        opened(place)
    with pytest.raises(LedgerError, match="seen before"):
        opened(place, witness=LastEntry(9, bytes(32)))
    opened(place, witness=head).close()
    opened(place).close()
    for content in (b"", b"three", b"x" * 85, trace.read_bytes() * 2):
        trace.write_bytes(content)
        with pytest.raises(LedgerError, match="must name the last head"):
            opened(place)


def test_a_key_that_is_gone_is_not_replaced(tmp_path: Path) -> None:
    place, key = tmp_path / "b.db", tmp_path / "b.db.key"
    opened(place).close()
    content = key.read_bytes()
    key.unlink()
    with pytest.raises(LedgerError, match="the key of this ledger must be at"):
        opened(place)
    assert not key.exists()
    place.unlink()
    with pytest.raises(LedgerError, match="the key of this ledger must be at"):  # the trace tells that there was one
        opened(place)
    key.write_bytes(content)
    key.chmod(0o600)
    with pytest.raises(LedgerError, match="got none; put it back"):
        opened(place)


def test_a_key_is_a_plain_small_file(tmp_path: Path) -> None:
    key_file(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "long").write_text("ab" * 32 + "\n" * 100)
    (tmp_path / "long").chmod(0o600)
    with pytest.raises(LedgerError, match="a plain file"):
        key_file(tmp_path / "link")
    with pytest.raises(LedgerError, match="64 hexadecimal"):
        key_file(tmp_path / "long")


def test_a_key_without_a_ledger_is_taken_back_if_the_ledger_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(LedgerError):
        opened(tmp_path / "no" / "b.db", tmp_path / "the.key")
    assert not (tmp_path / "the.key").exists()
    with pytest.raises(ParameterError, match="a file of its own"):
        opened(tmp_path / "b.db", tmp_path / "b.db")


def open_guarded_once(pipe: Any, place: str, number: int) -> None:
    try:
        with opened(place) as ledger:
            ask(ledger, f"{number}")
        pipe.send(None)
    except LedgerError as error:
        pipe.send(str(error))


def test_processes_that_come_first_together_share_one_ledger(tmp_path: Path) -> None:
    place = str(tmp_path / "b.db")
    children = [start(open_guarded_once, place, number) for number in range(6)]
    for process, pipe in children:
        assert pipe.poll(60)
        assert pipe.recv() is None
        process.join(60)
    with opened(place) as ledger:
        assert ledger.spent == Charge(steps=6)
    witness = LastSeen(Path(f"{place}.key.head")).read()
    assert witness is not None
    assert witness.count == 6


def test_a_ledger_on_a_server_that_is_lost_is_refused_too(server: str, tmp_path: Path) -> None:
    import psycopg

    place, key = f"{server}&ledger=lost", tmp_path / "the.key"
    with opened(place, key) as ledger:
        ask(ledger, "a")
    (tmp_path / "the.key.head").unlink()  # machines come and go: seen for the first time, it is trusted
    with opened(place, key) as ledger:
        ask(ledger, "b")
    with psycopg.connect(server, autocommit=True) as forger:
        forger.execute("ALTER TABLE pianissimo_lost.entries DISABLE TRIGGER ALL")
        forger.execute("DELETE FROM pianissimo_lost.entries WHERE number = 2")
        forger.execute("UPDATE pianissimo_lost.budget SET entries = 1, spent_steps = 1")
        with pytest.raises(LedgerError, match="the 2 entries that were seen before"):
            opened(place, key)
        forger.execute("DROP SCHEMA pianissimo_lost CASCADE")
    with pytest.raises(LedgerError, match="got none; put it back"):
        opened(place, key)


# --- triggers -----------------------------------------------------------------------------------------------------

TRICKS = {
    "resets the balance": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN UPDATE budget SET spent_steps = 0; END",
    "forgets the charge": "CREATE TRIGGER t AFTER INSERT ON entries BEGIN "
    "DELETE FROM entries WHERE number = new.number; "
    "UPDATE budget SET entries = new.number - 1, spent_steps = spent_steps - new.steps; END",
    "drops what was before": "CREATE TRIGGER t AFTER INSERT ON entries WHEN new.number > 1 BEGIN "
    "DELETE FROM entries WHERE number = new.number - 1; END",
    "moves nothing": "CREATE TRIGGER t BEFORE UPDATE ON budget BEGIN SELECT RAISE(IGNORE); END",
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trigger_in_the_file_is_found_at_the_next_charge_and_at_opening(tmp_path: Path, trick: str) -> None:
    place = tmp_path / "b.db"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        ask(ledger, "a")
        forger = apsw.Connection(str(place))
        forger.execute("DROP TRIGGER entries_stays_delete")
        forger.execute(TRICKS[trick])
        before = forger.execute("SELECT * FROM budget").fetchall(), forger.execute("SELECT * FROM entries").fetchall()
        with pytest.raises(LedgerError, match="altered"):
            ask(ledger, "b")
        after = forger.execute("SELECT * FROM budget").fetchall(), forger.execute("SELECT * FROM entries").fetchall()
        assert after == before
    with pytest.raises(LedgerError, match="its own tables and nothing else"):
        Ledger.open(place, key=KEY)
    forger.execute("DROP TRIGGER t")
    Ledger.open(place, key=KEY).close()
    for extra in ("CREATE VIEW v AS SELECT 1", "CREATE INDEX i ON entries (who)", "CREATE TABLE t (a)"):
        forger.execute(extra)
        with pytest.raises(LedgerError, match="its own tables and nothing else"):
            Ledger.open(place, key=KEY)
        forger.execute(f"DROP {extra.split()[1]} {extra.split()[2]}")
    forger.close()


def test_a_trigger_on_the_server_is_found(server: str) -> None:
    import psycopg

    place = f"{server}&ledger=trigger"
    body = "BEGIN UPDATE pianissimo_trigger.budget SET spent_steps = 0; RETURN NULL; END"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger, psycopg.connect(server, autocommit=True) as forger:
        ask(ledger, "a")
        forger.execute(f"CREATE FUNCTION pianissimo_trigger.f() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        for deferred in ("TRIGGER t AFTER INSERT", "CONSTRAINT TRIGGER t AFTER INSERT"):
            when = "DEFERRABLE INITIALLY DEFERRED" if "CONSTRAINT" in deferred else ""
            forger.execute(
                f"CREATE {deferred} ON pianissimo_trigger.entries {when} FOR EACH ROW "
                "EXECUTE FUNCTION pianissimo_trigger.f()"
            )
            with pytest.raises(LedgerError, match="altered"):
                ask(ledger, "b")
            with pytest.raises(LedgerError, match="its own tables and nothing else"):
                Ledger.open(place, key=KEY)
            forger.execute("DROP TRIGGER t ON pianissimo_trigger.entries")
        forger.execute("CREATE RULE r AS ON INSERT TO pianissimo_trigger.entries DO ALSO SELECT 1")
        with pytest.raises(LedgerError, match="its own tables and nothing else"):
            Ledger.open(place, key=KEY)
        forger.execute("DROP RULE r ON pianissimo_trigger.entries")
        assert ledger.spent == Charge(steps=1)


# --- tickets, passwords, messages ---------------------------------------------------------------------------------


def test_who_reads_the_ledger_cannot_settle_for_another(place: str) -> None:
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        asked = ask(ledger, "a", steps=4)
        (entry,) = ledger.entries()
        assert asked.ticket not in entry.ticket
        again = ask(ledger, "a", steps=4)
        stolen = dataclasses.replace(again, fresh=True, ticket=entry.ticket)
        with pytest.raises(LedgerError, match="as it was reserved"):
            ledger.settle(stolen, Charge())
        ledger.settle(asked, Charge())


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:geheim@host/db",
        "postgresql://ada:ge/heim@host/db",
        "postgresql://ada:ge?heim@host/db",
        "postgresql://ada:ge@heim@host/db",
        "postgresql://ada:ge#heim@host/db",
        "postgresql://ada:geheim/db",
        "postgresql://host/db?password=geheim",
        "postgresql://host/db?password=ge@heim",
        "postgresql://ada:geheim@one,two:5433/db",
        "postgresql:/ada:geheim@host/db",
        "postgres:geheim@host/db://",
        "geheim@host://db",
        "mysql://ada:geheim@host/db",
    ],
)
def test_no_part_of_a_url_that_may_be_a_password_is_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "1")
    pytest.importorskip("psycopg")
    assert not any(part in shown_url(url) for part in ("geheim", "heim", "ge/"))
    with pytest.raises((LedgerError, ParameterError)) as caught:
        Ledger.open(url, key=None, budget=BUDGET)
    assert not any(part in str(caught.value) for part in ("geheim", "heim", "ge/"))
    assert not list(Path().glob("*geheim*"))


def test_a_url_is_shown_where_it_is_plain() -> None:
    assert shown_url("postgresql://ada:geheim@one:1,two:2/shop?ledger=a") == "postgresql://one:1,two:2/shop"
    assert shown_url("postgres://[::1]:5432/shop") == "postgresql://[::1]:5432/shop"
    assert shown_url("postgresql:///shop?host=/tmp") == "postgresql:///shop"


# --- interrupts ---------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sqlite_engine, "WAIT_SECONDS", 0.3)
    yield
    sys.settrace(None)


def traced(act: Callable[[], object], at: int | None) -> list[tuple[str, int]]:
    """The lines of the stores that an act runs through, interrupted at one of them."""
    lines: list[tuple[str, int]] = []

    def local(frame: FrameType, event: str, _: object) -> Any:
        if event == "line":
            lines.append((frame.f_code.co_filename, frame.f_lineno))
            if len(lines) == at:
                raise KeyboardInterrupt
        return local

    def everywhere(frame: FrameType, event: str, _: object) -> Any:
        return local if frame.f_code.co_filename in (sqlite_engine.__file__, turns.__file__) else None

    sys.settrace(everywhere)
    try:
        act()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return lines


@pytest.mark.usefixtures("impatient")
def test_an_interrupt_at_any_line_leaves_nothing_locked(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "b.db", key=KEY, budget=Charge(steps=10_000)) as other:
        with Ledger.open(tmp_path / "b.db", key=KEY) as ledger:
            lines = traced(lambda: ask(ledger, "first"), None)
        # An exception at the line of a `try` or `with` itself comes from tracing alone: signals arrive at calls.
        places = [
            number
            for number, (file, line) in enumerate(lines, 1)
            if not linecache.getline(file, line).strip().startswith(("try:", "with ", "finally:"))
        ]
        assert len(places) > 50
        for number in places:
            with Ledger.open(tmp_path / "b.db", key=KEY) as ledger:
                traced(lambda: ask(ledger, f"at {number}"), number)  # noqa: B023
                ask(other, f"other {number}")
                ask(ledger, f"again {number}")
        other.verify()
    with Ledger.open(tmp_path / "b.db", key=KEY) as ledger:
        keys = {entry.idempotency_key for entry in ledger.entries()}
    assert {f"again {number}" for number in places} <= keys


def test_closing_a_ledger_gives_up_its_turn(tmp_path: Path) -> None:
    one, two = (Ledger.open(tmp_path / "b.db", key=Secret(bytes(KEY)), budget=BUDGET) for _ in range(2))
    one._store.connection.begin_write()
    one.close()
    ask(two, "a")
    two.close()
