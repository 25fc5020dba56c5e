"""The tables of a ledger, the few statements that it sends, and what a database's faults mean for it.

The budget line is one conditional update over all units: one row changes, or nothing does. The lock that a transaction
takes first gives entries their order; it is not what keeps the budget.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pianissimo.errors import DamageError, LedgerError, ParameterError, StoreError
from pianissimo.ledger.chain import Chain, Entry, Header, Units, broken, check_types
from pianissimo.ledger.units import COLUMNS, LARGEST, Charge, of_units
from pianissimo.storage.connection import FOR_LEDGER, Connection, Row, is_like_a_url, is_server
from pianissimo.storage.postgres import PostgresConnection
from pianissimo.storage.sqlite import SqliteConnection


def now_text(timespec: str) -> str:
    """The time as it is stored, to the second or finer."""
    return datetime.now(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


class AbsentError(LedgerError):
    """No ledger where one was looked for."""

    def __init__(self, place: str, got: str) -> None:
        super().__init__(f"there must be a ledger at {place}, got {got}; give a budget to make one")
        self.place = place


class Book:
    """A ledger's tables over a connection; who uses it does so under `speaking`, in a transaction of the connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @classmethod
    def at(cls, place: str | Path, *, create: bool, read_only: bool) -> "Book":
        """The tables in a file, or on a server: `?ledger=NAME` in the URL tells several ledgers there apart."""
        check_place(place)
        if is_server(place):
            return cls(PostgresConnection(place, create=create, read_only=read_only, purpose=FOR_LEDGER))
        if not create and not Path(place).exists():
            raise AbsentError(str(place), "no such file")
        return cls(SqliteConnection(Path(place), create=create, read_only=read_only, purpose=FOR_LEDGER))

    def has_tables(self) -> bool:
        """Whether a ledger was made here."""
        return all(self.connection.has_table(name) for name in ("budget", "entries"))

    def make_tables(self) -> None:
        """Make the tables, in the transaction begun."""
        for statement in self._tables().values():
            self.connection.execute(statement)
        self.connection.make_stay("entries")

    def make_if_absent(
        self, chain: Chain, budget: Charge, dataset: str, claim: Callable[[], None] | None = None
    ) -> None:
        """Make a ledger without entries, unless there is one; `claim` may refuse it."""
        with self.connection.writing():
            if self.has_tables():
                return
            created = now_text("seconds")
            identity = secrets.token_bytes(16)
            header = Header(identity=identity, dataset=dataset, created=created, keyed=chain.keyed, budget=budget)
            self.make_tables()
            names = (identity, dataset, created, int(chain.keyed), chain.root(header), 0)
            self.connection.execute(INSERT_BUDGET, [*names, *budget.units, *(0,) * _N])
            if claim is not None:
                claim()  # first, so that whoever finds the ledger finds what it claims
            self.connection.commit()

    def header(self) -> tuple[Header, bytes]:
        """What the ledger was created with, and its root; `AbsentError` if there is none."""
        with self.connection.reading():
            if not self.has_tables():
                raise AbsentError(self.connection.place, "none")
            return self.balance()[:2]

    def entries(self, rest: str = "", values: Row = ()) -> list[Entry]:
        """The entries under a condition, in their order; not verified."""
        rows = self.connection.execute(f"SELECT {_ENTRY} FROM entries {rest} ORDER BY number", values)  # noqa: S608
        return [entry_of(row) for row in rows]

    def entry(self, column: str, value: object) -> Entry | None:
        """The one entry of this number or key, or that settles this one."""
        found = self.entries(f"WHERE {column} = ?", [value])
        return found[0] if found else None

    def balance(self) -> tuple[Header, bytes, int, Units]:
        """The header, its root, the number of entries and what is spent."""
        return header_of(self.connection.execute(SELECT_BUDGET))

    def check_tables(self) -> None:
        """Refuse tables other than `make_tables` makes, and what acts on them by itself, in the transaction begun."""
        if not self.connection.is_as_made(self._tables()):
            raise broken("a ledger must hold its own tables and nothing else, got other tables, views or triggers")

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.rollback()
        self.connection.close()

    def _tables(self) -> dict[str, str]:
        return tables(**{name: self.connection.words[name] for name in ("integer", "binary", "strict")})


@contextmanager
def speaking() -> Iterator[None]:
    """What fails in the database is an error of the ledger."""
    try:
        yield
    except (StoreError, DamageError) as error:
        raise LedgerError(str(error)) from None


def check_place(place: object) -> None:
    """Refuse what is no place of a ledger; it is not shown, since it may hold a password."""
    if is_server(place):
        return
    if not isinstance(place, str | os.PathLike) or not str(place) or "\0" in str(place):
        raise ParameterError("place must be the path of a file or a postgresql:// URL, got something else")
    if is_like_a_url(str(place)):
        raise ParameterError("a ledger's place must be a path or a postgresql:// URL, got something like a URL")


def is_there(place: str | Path) -> bool:
    """Whether there is a file, or tables on the server, of that name."""
    check_place(place)
    if not is_server(place):
        return os.path.lexists(place)
    with speaking(), closing(Book.at(place, create=False, read_only=True)) as book:
        return book.has_tables()


def tables(*, integer: str, binary: str, strict: str) -> dict[str, str]:
    """What makes the two tables, in an engine's words."""
    caps = ", ".join(f"cap_{each} {integer} NOT NULL" for each in COLUMNS)
    spent = ", ".join(f"spent_{each} {integer} NOT NULL" for each in COLUMNS)
    changes = ", ".join(f"{each} {integer} NOT NULL" for each in COLUMNS)
    checks = ", ".join(f"CHECK (spent_{each} >= 0 AND spent_{each} <= cap_{each})" for each in COLUMNS)
    budget = (
        f"CREATE TABLE budget (id {integer} PRIMARY KEY CHECK (id = 1), identity {binary} NOT NULL, "
        f"dataset TEXT NOT NULL, created TEXT NOT NULL, keyed {integer} NOT NULL, root {binary} NOT NULL, "
        f"entries {integer} NOT NULL, {caps}, {spent}, {checks}){strict}"
    )
    entries = (
        f"CREATE TABLE entries (number {integer} PRIMARY KEY, kind TEXT NOT NULL, time TEXT NOT NULL, "
        f"who TEXT NOT NULL, question TEXT NOT NULL, idempotency_key TEXT UNIQUE, ticket {binary} NOT NULL, "
        f"settles {integer} UNIQUE REFERENCES entries (number), {changes}, {spent}, "
        f"digest {binary} NOT NULL){strict}"
    )
    return {"budget": budget, "entries": entries}


_CAPS = ", ".join(f"cap_{each}" for each in COLUMNS)
_SPENT = ", ".join(f"spent_{each}" for each in COLUMNS)
_FIELDS = ("time", "who", "question", "idempotency_key", "ticket", "settles")
_HEADER = f"identity, dataset, created, keyed, root, entries, {_CAPS}, {_SPENT}"
_ENTRY = f"number, kind, {', '.join(_FIELDS)}, {', '.join(COLUMNS)}, {_SPENT}, digest"
_N = len(COLUMNS)

# Names of columns are put together here and nowhere else; all values are bound.
INSERT_BUDGET = f"INSERT INTO budget (id, {_HEADER}) VALUES (1, {', '.join('?' * (6 + 2 * _N))})"  # noqa: S608
SELECT_BUDGET = f"SELECT {_HEADER} FROM budget WHERE id = 1"  # noqa: S608
ADD_IF_IT_FITS = (
    f"UPDATE budget SET {', '.join(f'spent_{each} = spent_{each} + ?' for each in COLUMNS)}, "  # noqa: S608
    "entries = entries + 1 WHERE id = 1"
    + "".join(f" AND spent_{each} + ? <= cap_{each} AND spent_{each} + ? >= 0 AND cap_{each} = ?" for each in COLUMNS)
    + f" RETURNING entries, {_SPENT}"
)
INSERT_ENTRY = f"INSERT INTO entries ({_ENTRY}) VALUES ({', '.join('?' * (9 + 2 * _N))})"  # noqa: S608


def entry_row(entry: Entry) -> Row:
    """What `INSERT_ENTRY` takes."""
    fields = (getattr(entry, name) for name in _FIELDS)
    return entry.number, entry.marked_kind, *fields, *entry.change, *entry.spent, entry.digest


def entry_of(row: Row) -> Entry:
    """What a `SELECT` of an entry gave."""
    number, marked, *rest = row
    kind, is_marked, hides = marked.partition(" ") if isinstance(marked, str) else (marked, "", "")
    named: dict[str, Any] = dict(zip(_FIELDS, rest, strict=False))
    named |= {"number": number, "kind": kind, "hides": hides if is_marked else None}
    *units, digest = rest[len(_FIELDS) :]
    return check_types(Entry(**named, change=tuple(units[:_N]), spent=tuple(units[_N:]), digest=digest))


def header_of(rows: list[Row]) -> tuple[Header, bytes, int, Units]:
    """What `SELECT_BUDGET` gave: header, root, number of entries, what is spent."""
    if len(rows) != 1:
        raise broken("a ledger must have one budget line, got none")
    identity, dataset, created, keyed, root, count, *units = rows[0]
    well_formed = (
        type(identity) is bytes
        and type(root) is bytes
        and type(dataset) is str
        and type(created) is str
        and all(type(each) is int and 0 <= each <= LARGEST for each in (keyed, count, *units))
        and keyed <= 1
    )
    if not well_formed:
        raise broken("the budget line must hold numbers, texts and bytes where they belong")
    header = Header(identity=identity, dataset=dataset, created=created, keyed=bool(keyed), budget=of_units(units[:_N]))
    return header, root, count, tuple(units[_N:])
