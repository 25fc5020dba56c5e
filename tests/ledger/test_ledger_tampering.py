"""R11: thousands of edits, deletions, swaps, replays and cuts, each of which must be found."""

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.faults.report import record
from tests.ledger.processes import KEY

from pianissimo.errors import LedgerError
from pianissimo.ledger import Charge, LastEntry, Ledger
from pianissimo.ledger.chain import Chain
from pianissimo.ledger.entries import INSERT_ENTRY, entry_of, entry_row
from pianissimo.ledger.ledger import HeadGuard
from pianissimo.ledger.units import COLUMNS

TRIALS = 3000
BUDGET = Charge(steps=200, calls=50, rho_units=10**6, bad_units=10**6)


def fill(ledger: Ledger) -> None:
    for each in range(12):
        charge = Charge(steps=5 + each % 3, calls=1, rho_units=each * 7)
        asked = ledger.reserve(
            charge, hides="user", question=f"q{each}", who=f"w{each % 2}", idempotency_key=f"k{each}"
        )
        if each % 3:
            ledger.settle(asked, Charge(steps=each % 4, calls=1))


class Forger:
    """Someone who may write the file and has no key."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.sql = sqlite3.connect(path, isolation_level=None)
        self.sql.execute("PRAGMA synchronous=OFF")
        for change in ("update", "delete"):
            self.sql.execute(f"DROP TRIGGER entries_stays_{change}")
        self.chance = chance
        self.entries = self.rows("entries")
        self.budget = self.rows("budget")
        self.columns = [each[1] for each in self.sql.execute("PRAGMA table_info(entries)")]
        self.budget_columns = [each[1] for each in self.sql.execute("PRAGMA table_info(budget)")]

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return self.sql.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()

    def write(self, entries: list[tuple[Any, ...]], budget: list[tuple[Any, ...]]) -> None:
        self.sql.execute("PRAGMA ignore_check_constraints=ON")
        self.sql.execute("BEGIN")
        for table, rows in (("entries", entries), ("budget", budget)):
            self.sql.execute(f"DELETE FROM {table}")
            for row in rows:
                self.sql.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        self.sql.execute("COMMIT")

    def other(self, value: Any) -> Any:
        if isinstance(value, int):
            return value + self.chance.choice([-3, -1, 1, 2, 64])
        if isinstance(value, str):
            return self.chance.choice([value + "x", value[:-1] + "\u00e9", "k0" if value != "k0" else "z"])
        if isinstance(value, bytes):
            place = self.chance.randrange(len(value))
            return value[:place] + bytes([value[place] ^ (1 << self.chance.randrange(8))]) + value[place + 1 :]
        return self.chance.choice([1, 3]) if value is None else value

    def edit(self) -> None:
        place, column = self.chance.randrange(len(self.entries)), self.chance.randrange(len(self.columns))
        row = list(self.entries[place])
        name = self.columns[column]
        row[column] = f"n{row[0]}" if row[column] is None and name == "idempotency_key" else self.other(row[column])
        self.write([*self.entries[:place], tuple(row), *self.entries[place + 1 :]], self.budget)

    def edit_budget(self) -> None:
        column = self.chance.randrange(1, len(self.budget_columns))
        row = list(self.budget[0])
        row[column] = self.other(row[column])
        self.write(self.entries, [tuple(row)])

    def delete(self) -> None:
        gone = set(self.chance.sample(range(len(self.entries)), self.chance.randint(1, 3)))
        kept = [row for place, row in enumerate(self.entries) if place not in gone]
        self.write(self.renumbered(kept) if self.chance.random() < 0.5 else kept, self.consistent(kept))

    def reorder(self) -> None:
        one, two = sorted(self.chance.sample(range(len(self.entries)), 2))
        rows = list(self.entries)
        rows[one], rows[two] = rows[two], rows[one]
        self.write(self.renumbered(rows), self.consistent(rows))

    def truncate(self) -> None:
        """With the balance put right: only a witness can tell."""
        kept = self.entries[: self.chance.randrange(len(self.entries))]
        self.write(kept, self.consistent(kept))

    def replay(self) -> None:
        row = list(self.chance.choice(self.entries))
        row[0] = len(self.entries) + 1
        row[self.columns.index("idempotency_key")] = None
        row[self.columns.index("settles")] = None
        rows = [*self.entries, tuple(row)]
        self.write(rows, self.consistent(rows))

    def forge(self) -> None:
        """A whole new chain of digests, without the key, from a chosen entry on."""
        start = self.chance.randrange(len(self.entries))
        rows = [list(row) for row in self.entries]
        rows[start][self.columns.index("question")] = "forged"
        chain = Chain(None)
        root = self.budget[0][self.budget_columns.index("root")]
        previous = rows[start - 1][-1] if start else root
        for row in rows[start:]:
            row[-1] = previous = chain.digest(previous, entry_of(row))
        self.write([tuple(row) for row in rows], self.budget)

    def renumbered(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return [(number, *row[1:]) for number, row in enumerate(rows, start=1)]

    def consistent(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        budget = list(self.budget[0])
        budget[self.budget_columns.index("entries")] = len(rows)
        for unit in COLUMNS:
            name = f"spent_{unit}"
            budget[self.budget_columns.index(name)] = rows[-1][self.columns.index(name)] if rows else 0
        return [tuple(budget)]


def test_every_tampering_is_found(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with Ledger.open(path, key=KEY, budget=BUDGET) as ledger:
        fill(ledger)
        witness = ledger.verify()
    chance = random.Random(11)
    forger = Forger(path, chance)
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
    for trial in range(TRIALS):
        act = acts[trial % len(acts)]
        try:
            act()
        except sqlite3.IntegrityError:  # the engine itself refused it; nothing is altered
            forger.sql.execute("ROLLBACK")
            continue
        altered = forger.rows("entries") != forger.entries or forger.rows("budget") != forger.budget
        assert altered
        with (
            pytest.raises(LedgerError),
            Ledger.open(path, key=KEY, guard=HeadGuard(witness=witness)),
        ):
            pass
        found[act.__name__] += 1
    forger.write(forger.entries, forger.budget)
    forger.sql.close()
    with Ledger.open(path, key=KEY, guard=HeadGuard(witness=witness)) as ledger:
        ledger.verify(witness)
    assert found.total() > 2000
    assert set(found) == {act.__name__ for act in acts}
    record(
        "R11",
        "tampering",
        figure=f"{found.total()} tamperings, all found",
        bar="detected 100 %",
        passed=True,
        kinds=dict(found),
    )


def test_a_cut_with_the_balance_put_right_needs_a_witness(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with Ledger.open(path, key=KEY, budget=BUDGET) as ledger:
        fill(ledger)
        witness = ledger.verify()
        forger = Forger(path, random.Random(1))
        kept = forger.entries[:-2]
        forger.write(kept, forger.consistent(kept))
        forger.sql.close()
        # Whoever was there before is a witness itself, at the next charge too.
        for use in (
            ledger.verify,
            lambda: ledger.reserve(Charge(steps=1), hides="user", question="q", who="w", idempotency_key="n"),
        ):
            with pytest.raises(LedgerError):
                use()
    with Ledger.open(path, key=KEY) as ledger:
        with pytest.raises(LedgerError, match="seen before"):
            ledger.verify(witness)
        ledger.verify(LastEntry.parse(str(ledger.verify())))


def test_a_charge_on_an_altered_ledger_is_refused(tmp_path: Path) -> None:
    for number, change in enumerate(
        (
            "UPDATE budget SET spent_steps = 0",
            "UPDATE budget SET cap_steps = cap_steps + 1",
            "UPDATE budget SET entries = entries - 1",
            "UPDATE entries SET spent_steps = 0 WHERE number = (SELECT max(number) FROM entries)",
            "DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)",
        )
    ):
        path = tmp_path / f"{number}.db"
        with Ledger.open(path, key=KEY, budget=BUDGET) as ledger:
            fill(ledger)
            forger = Forger(path, random.Random(1))
            forger.sql.execute(change)
            before = forger.rows("budget")
            with pytest.raises(LedgerError, match="altered"):
                ledger.reserve(Charge(steps=1), hides="user", question="q", who="w", idempotency_key="n")
            assert forger.rows("budget") == before
            forger.sql.close()


def test_entries_of_another_ledger_under_the_same_key_do_not_fit(tmp_path: Path) -> None:
    paths = [tmp_path / "one.db", tmp_path / "two.db"]
    for path in paths:
        with Ledger.open(path, key=KEY, budget=BUDGET) as ledger:
            fill(ledger)
    one, two = (Forger(path, random.Random(1)) for path in paths)
    two.write(one.entries, two.budget)
    one.sql.close()
    two.sql.close()
    with pytest.raises(LedgerError, match="entry 1 must carry its digest"):
        Ledger.open(paths[1], key=KEY)


def test_postgresql_rows_are_chained_too(server: str) -> None:
    import psycopg

    place = f"{server}&ledger=tampered"
    with Ledger.open(place, key=KEY, budget=BUDGET) as ledger:
        fill(ledger)
        witness = ledger.verify()
    changes = (
        "UPDATE {0}.entries SET who = 'x' WHERE number = 3",
        "UPDATE {0}.entries SET time = time || 'x' WHERE number = 3",
        "DELETE FROM {0}.entries WHERE number = 20",
        "UPDATE {0}.budget SET spent_steps = spent_steps - 1",
        "UPDATE {0}.budget SET cap_steps = cap_steps + 1",
        "UPDATE {0}.entries SET number = 100 - number WHERE settles IS NULL AND number NOT IN "
        "(SELECT settles FROM {0}.entries WHERE settles IS NOT NULL)",
    )
    with psycopg.connect(server, autocommit=True) as forger:
        forger.execute("ALTER TABLE pianissimo_tampered.entries DISABLE TRIGGER ALL")
        for change in changes:
            with Ledger.open(place, key=KEY) as ledger:
                rows = ledger.entries()
            budget = forger.execute("SELECT * FROM pianissimo_tampered.budget").fetchone()
            assert forger.execute(change.format("pianissimo_tampered")).rowcount > 0
            with pytest.raises(LedgerError, match="altered"):
                Ledger.open(place, key=KEY, guard=HeadGuard(witness=witness))
            forger.execute("DELETE FROM pianissimo_tampered.entries")
            insert = INSERT_ENTRY.replace("INTO entries", "INTO pianissimo_tampered.entries").replace("?", "%s")
            for row in rows:
                forger.execute(insert, tuple(entry_row(row)))
            forger.execute("DELETE FROM pianissimo_tampered.budget")
            assert budget is not None
            forger.execute(f"INSERT INTO pianissimo_tampered.budget VALUES ({', '.join(['%s'] * len(budget))})", budget)
    with Ledger.open(place, key=KEY, guard=HeadGuard(witness=witness)) as ledger:
        ledger.verify(witness)
