"""How damaged ledgers and stores are refused: `python -m tests.pin_damage` writes damage.json anew.

Somebody who can write, and has no key, changes each column of rows of each table, and deletes rows. What a start and
`verify` then say is pinned: what was refused must not be let in.
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import apsw
from tests.pin_steps import MEMORY, Told, by_event, place, rows, secret

from pianissimo import Budget, Stream
from pianissimo.durable.durable_stream import open_stream
from pianissimo.durable.place import wire
from pianissimo.durable.recover import accept_rollback
from pianissimo.durable.start import Request, write_names_key
from pianissimo.io.inspect import verify
from pianissimo.ledger import Charge, LastEntry, open_shared
from pianissimo.ledger.guarded import open_guarded

PINNED = Path(__file__).parent / "damage.json"


@contextmanager
def forging(path: Path) -> Iterator[apsw.Connection]:
    """The tables of a file, for somebody without its key; what keeps rows from changing is put back afterwards."""
    connection = apsw.Connection(str(path))
    for pragma in ("foreign_keys=OFF", "ignore_check_constraints=ON", "synchronous=OFF"):
        connection.execute(f"PRAGMA {pragma}")
    triggers = list(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    for name, _ in triggers:
        connection.execute(f"DROP TRIGGER {name}")
    yield connection
    for _, text in triggers:
        connection.execute(text)
    connection.close()


def others_than(value: Any) -> list[Any]:
    """What may stand in a value's place."""
    if isinstance(value, int):
        return [value + 1, value - 1, 2**62]
    if isinstance(value, bytes):
        return [bytes([value[0] ^ 1]) + value[1:] if value else b"x", b""]
    return ["x"] if value is None else [f"{value}x", None]


def damages(path: Path, most: int) -> list[tuple[str, str, list[Any]]]:
    """Changes of one row, of each column so many: what they are called, the statement, and its values."""
    found: list[tuple[str, str, list[Any]]] = []
    with forging(path) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in sorted(tables):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            held = list(connection.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid"))
            for number, *row in {each[0]: each for each in held[:1] + held[-1:]}.values():
                found.append((f"{table} without {number}", f"DELETE FROM {table} WHERE rowid = ?", [number]))
                if most == 1 and number != held[-1][0]:
                    continue
                for column, value in zip(columns, row, strict=True):
                    for other in others_than(value)[:most]:
                        told = f"{table}.{column} of {number} is {type(other).__name__}"
                        found.append((told, f"UPDATE {table} SET {column} = ? WHERE rowid = ?", [other, number]))
    return found


def outcomes(told: Told, path: Path, ask: Callable[[], Any], most: int) -> Iterator[str]:
    """Of each damage what is said, everything beside it as it was."""
    kept = told.folder.with_name("kept")
    for named, statement, values in damages(path, most):
        shutil.copytree(told.folder, kept)
        with forging(path) as connection:
            try:
                connection.execute(statement, values)
            except apsw.Error:
                shutil.rmtree(kept)
                continue
        told.lines.clear()
        ask()
        said = [line for line in told.lines if line.startswith(("refused", "answered"))]
        yield f"{named}: {' / '.join(said)}"
        shutil.rmtree(told.folder)
        kept.rename(told.folder)


def of_a_ledger(told: Told) -> Iterator[str]:
    """Three charges, one of them settled."""
    at, key = told.folder / "ledger", told.folder / "ledger.key"
    budget = Charge(steps=30, calls=4, rho_units=10**9, bad_units=10**6)
    heads: list[LastEntry] = []
    with open_guarded(at, key=key, budget=budget, dataset="shop") as ledger:
        for number in range(3):
            asked = {"question": f"q{number}", "who": "ann", "hides": "event", "idempotency_key": str(number)}
            found = ledger.reserve(Charge(steps=5, calls=1, rho_units=10**6, bad_units=3), **asked)
            if number == 1:
                ledger.settle(found, Charge(steps=2, calls=1))
            heads.append(ledger.verify())

    def ask() -> None:
        def use() -> Any:
            with open_shared(at, key=key) as ledger:
                asked = {"who": "ann", "hides": "event", "question": "q"}
                told.ask(lambda: ledger.verify(heads[1]))
                told.ask(lambda: ledger.charge_of("1"))
                told.ask(lambda: ledger.spent)
                return ledger.reserve(Charge(steps=1), idempotency_key="new", **asked).number

        told.ask(use)

    yield from outcomes(told, at, ask, 3)


def past() -> Stream:
    """Windows of it begin at any of the last ticks, and before them at checkpoints."""
    return replace(by_event(), history=3)


def of_a_store(told: Told) -> Iterator[str]:
    """Two lives, the second with retention, a rotation and a past that is kept for long."""
    state, where = told.folder / "state", {"ledger_budget": Budget(60.0, 1e-4), "snapshot_every": 1, "retention": 9}
    with open_stream(past(), state, secret=secret(1), **where) as live:
        live.tick(rows(1), position={"read": 1})
    shutil.copytree(state, told.folder / "older")
    with open_stream(past(), state, secret=secret(1), **where) as live:
        live.tick(rows(2), position={"read": 2})
    shutil.rmtree(state)
    (told.folder / "older").rename(state)
    accept_rollback(Request(past()), wire(state, secret=secret(1)))
    with open_stream(past(), state, secret=secret(1), **where) as live:
        for tick in range(3, 15):
            live.tick(rows(tick), position=place(tick))
            if tick == 12:
                live.rotate_secret(secret(2))

    def ask() -> None:
        if told.ask(lambda: verify(Request(past()), state, secret=secret(2))) is not None:
            told.ask(lambda: _gone_on(state, where))
        told.ask(lambda: _read(told, state))
        told.ask(lambda: write_names_key(str(state), secret(2), told.folder / "names"))

    yield from outcomes(told, state / "state.db", ask, 1)


def _gone_on(state: Path, where: dict[str, Any]) -> Any:
    with open_stream(past(), state, secret=secret(2), **where) as live:
        return live.tick(rows(15), position=place(15)).tick, live.visible_tick


def _read(told: Told, state: Path) -> Any:
    """What a reader gets who asks for no check of all."""
    with open_stream(past(), state, secret=secret(2), read_only=True) as live:
        for tick in range(live._record.last_tick, live.tick_number + 2):
            told.ask(partial(live.payload, tick))
        return live.tick_number, live.position


OF: dict[str, Callable[[Told], Iterator[str]]] = {"a ledger": of_a_ledger, "a store": of_a_store}


def said_of(name: str) -> list[str]:
    """The lines of one of them."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        told = Told(Path(folder) / "place")
        told.folder.mkdir()
        with told.listening():
            return list(OF[name](told))


def digests(lines: list[str]) -> list[str]:
    """Of ten lines each."""
    parts = [lines[start : start + 10] for start in range(0, len(lines), 10)]
    return [hashlib.sha256("\n".join(part).encode()).hexdigest()[:8] for part in parts]


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digests(said_of(name)) for name in OF}, indent=1) + "\n")
