"""R11 for the ledger among the tables of a stream, in both engines: every edit is found when the stream starts.

A cut at the end, with the balance put right, is found by the stream's witness, which names the last entry at each tick.
"""

import random
import shutil
from collections import Counter
from typing import Any

from tests.faults.homes import Home
from tests.faults.report import record, size
from tests.faults.world import plan, run_to
from tests.ledger.test_ledger_tampering import Forger, fill

from pianissimo.durable.creation import charge_of
from pianissimo.durable.place import Wiring, wire
from pianissimo.durable.start import check_store
from pianissimo.durable.store import StateStore
from pianissimo.errors import DamageError, LedgerError, RollbackError, StoreError
from pianissimo.io.inspect import ledger_key
from pianissimo.ledger import Charge, Ledger
from pianissimo.storage.connection import Connection
from pianissimo.storage.sqlite import SqliteConnection

pytest_plugins = ["tests.faults.fixtures"]
TRIALS = {"sqlite": size(700, 7000), "postgresql": size(350, 3500)}


class ForgerWithin(Forger):
    """Someone who may write the store and has no key."""

    def __init__(self, connection: Connection, chance: random.Random) -> None:
        self.connection = connection
        self.chance = chance
        self.is_sqlite = isinstance(connection, SqliteConnection)
        connection.begin_write()
        if self.is_sqlite:
            for change in ("update", "delete"):
                connection.execute(f"DROP TRIGGER entries_stays_{change}")
        else:
            connection.execute("DROP TRIGGER entries_stays ON entries")
            constraints = connection.execute(
                "SELECT conname FROM pg_constraint WHERE conrelid = 'budget'::regclass AND contype = 'c'"
            )
            for (name,) in constraints:
                connection.execute(f'ALTER TABLE budget DROP CONSTRAINT "{name}"')
        connection.commit()
        self.columns, self.budget_columns = (self._columns(table) for table in ("entries", "budget"))
        self.entries = self.rows("entries")
        self.budget = self.rows("budget")

    def _columns(self, table: str) -> list[str]:
        if self.is_sqlite:
            return [each[1] for each in self.connection.execute(f"PRAGMA table_info({table})")]
        found = self.connection.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 ORDER BY attnum", [table]
        )
        return [each[0] for each in found]

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.connection.execute(f"SELECT * FROM {table} ORDER BY 1")]

    def write(self, entries: list[tuple[Any, ...]], budget: list[tuple[Any, ...]]) -> None:
        if self.is_sqlite:
            self.connection.execute("PRAGMA ignore_check_constraints=ON")
            self.connection.execute("PRAGMA foreign_keys=OFF")
            self.connection.execute("PRAGMA synchronous=OFF")
        self.connection.begin_write()
        try:
            if not self.is_sqlite:
                self.connection.execute("SET LOCAL session_replication_role = replica")
                self.connection.execute("SET LOCAL synchronous_commit = off")
            for table, rows in (("entries", entries), ("budget", budget)):
                self.connection.execute(f"DELETE FROM {table}")
                for row in rows:
                    self.connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        except BaseException:
            self.connection.rollback()
            raise
        self.connection.commit()


def is_found(wiring: Wiring) -> bool:
    """Whether a start would refuse."""
    store = StateStore(wiring.opened(create=False))
    try:
        check_store(store, wiring)
    except (DamageError, RollbackError, LedgerError):
        return True
    finally:
        store.close()
    return False


def prepared(home: Home) -> tuple[Home, Wiring]:
    """A stream with two ticks and a ledger that others have charged."""
    cap = charge_of(plan()) + Charge(steps=200, calls=50, rho_units=10**6)
    fresh = home.copy(cap=cap)
    if fresh.kind == "sqlite":
        shutil.rmtree(fresh.folder / "state")
        fresh.witness.unlink(missing_ok=True)
    with fresh.open(cap=cap, out=None) as live:
        with Ledger.open(fresh.place, key=ledger_key(fresh.place, secret=fresh.options["secret"])) as ledger:
            fill(ledger)
        run_to(live, 2)
    return fresh, wire(fresh.place, secret=fresh.options["secret"], witness=fresh.witness)


def test_every_tampering_is_found_when_the_stream_starts(home: Home) -> None:
    fresh, wiring = prepared(home)
    assert not is_found(wiring)
    chance = random.Random(11)
    forger = ForgerWithin(wiring.opened(create=False), chance)
    assert not is_found(wiring)
    acts = (
        forger.edit,
        forger.edit_budget,
        forger.delete,
        forger.reorder,
        forger.truncate,
        forger.replay,
        forger.forge,
    )
    found: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    refused = 0
    for trial in range(TRIALS[home.kind]):
        act = acts[trial % len(acts)]
        try:
            act()
        except StoreError:  # the engine itself refused it; nothing is altered
            refused += 1
            continue
        assert (forger.rows("entries"), forger.rows("budget")) != (forger.entries, forger.budget)
        (found if is_found(wiring) else missed)[act.__name__] += 1
    forger.write(forger.entries, forger.budget)
    forger.connection.close()
    assert not is_found(wiring)
    assert set(found) == {act.__name__ for act in acts}
    assert found.total() > 0.6 * TRIALS[home.kind]
    record(
        "R11",
        f"within the store of a stream, {home.kind}",
        figure=f"{found.total()} tamperings, {found.total()} found, {missed.total()} missed; "
        f"{refused} refused by the engine itself",
        bar="detected 100 %",
        passed=not missed,
        kinds=dict(found),
    )
    fresh.drop()


def test_a_cut_is_found_by_the_witness_alone(home: Home) -> None:
    """The twin: without the witness the same cut goes unseen, so that it is the witness that finds it."""
    fresh, wiring = prepared(home)
    forger = ForgerWithin(wiring.opened(create=False), random.Random(1))
    kept = forger.entries[:-3]
    forger.write(kept, forger.consistent(kept))
    forger.connection.close()
    assert is_found(wiring)
    from dataclasses import replace

    assert not is_found(replace(wiring, witness=None))
    fresh.drop()


def test_a_trigger_of_somebody_elses_is_found(home: Home) -> None:
    fresh, wiring = prepared(home)
    connection = wiring.opened(create=False)
    connection.begin_write()
    if fresh.kind == "sqlite":
        connection.execute(
            "CREATE TRIGGER mine AFTER INSERT ON entries BEGIN UPDATE budget SET spent_rho_units = 0; END"
        )
    else:
        connection.execute(
            "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN UPDATE budget SET spent_rho_units = 0; RETURN NULL; END $$"
        )
        connection.execute("CREATE TRIGGER mine AFTER INSERT ON entries FOR EACH ROW EXECUTE FUNCTION mine()")
    connection.commit()
    connection.close()
    assert is_found(wiring)
    fresh.drop()


def test_entries_of_another_stream_with_the_same_secret_do_not_fit(home: Home) -> None:
    """A ledger of the same key, moved over row by row, the budget line included: the witness has seen another."""
    (one, first), (two, second) = prepared(home), prepared(home)
    forgers = [ForgerWithin(each.opened(create=False), random.Random(1)) for each in (first, second)]
    forgers[1].write(forgers[0].entries, forgers[1].budget)
    assert is_found(second)
    forgers[1].write(forgers[0].entries, forgers[0].budget)
    assert is_found(second)
    for forger in forgers:
        forger.connection.close()
    for each in (one, two):
        each.drop()
