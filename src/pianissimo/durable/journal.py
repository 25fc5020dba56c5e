"""The journal of a durable stream: the tables of its lives, its seals and its releases; see `records`.

There is one schema for every engine. Safety rests on unique keys and on digests: one seal and one release for an
incarnation and a tick, never changed. The lease says who may write; whoever comes with an old epoch writes nothing. How
far readers may see carries a keyed mark, from the moment a life is inserted. The mark covers the lease under which it
was written, and whoever takes a lease writes it anew: a lease that is lower was set back. One that is higher does no
harm, since it only keeps its holder out.
"""

import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from pianissimo.durable.failpoints import reach
from pianissimo.durable.key_ring import Epoch, KeyRing, ring_among
from pianissimo.durable.records import (
    Intention,
    Removal,
    Seal,
    StoredRelease,
    StreamRecord,
    columns_of,
    damaged,
    row_of,
)
from pianissimo.errors import ConfigError, DamageError, LeaseError
from pianissimo.storage.connection import Connection, Row
from pianissimo.storage.files import fault_of
from pianissimo.storage.purpose_keys import Keys

FORMAT = 4
"""Of what is stored. Streams of format 3 and before were written by versions that were never published."""

_TICK = ("incarnation", "tick")
_WORDS: dict[Any, str] = {int: "{integer}", bool: "{integer}", bytes: "{binary}", str: "TEXT"}
_CONTENT = {"incarnation": bytes, "tick": int, "content": bytes}
_OF_STREAM = "FOREIGN KEY (incarnation) REFERENCES streams"


def _table(columns: dict[str, Any], key: tuple[str, ...], *rules: str) -> str:
    listed = [f"{name} {_WORDS[kind]} NOT NULL" for name, kind in columns.items()]
    parts = ", ".join([*listed, f"PRIMARY KEY ({', '.join(key)})", *rules])
    return f"({parts}){{strict}}"


_TABLES = {
    "schema_version": _table({"version": int}, ("version",)),
    "streams": _table(columns_of(StreamRecord), ("incarnation",), "UNIQUE (number)"),
    "intentions": _table(columns_of(Intention), ("number",)),
    "key_epochs": _table({"incarnation": bytes, **columns_of(Epoch)}, ("incarnation", "number"), _OF_STREAM),
    "seals": _table(columns_of(Seal), _TICK, _OF_STREAM),
    "releases": _table(
        columns_of(StoredRelease), _TICK, "FOREIGN KEY (incarnation, tick) REFERENCES seals (incarnation, tick)"
    ),
    "removals": _table(columns_of(Removal), _TICK, _OF_STREAM),
    "deltas": _table(_CONTENT, _TICK),
    "snapshots": _table(_CONTENT, _TICK),
    "history": _table(_CONTENT, _TICK),
    "checkpoints": _table(_CONTENT, _TICK),
    "outbox": _table(
        {"sink": str, "incarnation": bytes, "tick": int, "delivered": int, "mark": bytes}, ("sink", *_TICK)
    ),
    "progress": _table(
        {"incarnation": bytes, "visible": int, "lease": int, "mark": bytes}, ("incarnation",), _OF_STREAM
    ),
    "leases": _table({"incarnation": bytes, "epoch": int, "owner": str}, ("incarnation",), _OF_STREAM),
    "publication": _table({"incarnation": bytes, "delay": int}, ("incarnation",), _OF_STREAM),
}
_PURPOSES = {"deltas": "delta", "snapshots": "snapshot", "history": "history", "checkpoints": "checkpoint"}
_LATER = ("checkpoints", "removals", "publication")
"""Tables that stores of earlier versions may not have."""

_LARGEST_LEASE = 2**62
_STAYING = ("streams", "intentions", "seals", "releases", "removals")
_OWNED = ("key_epochs", "seals", "releases", "removals", *_PURPOSES, "outbox", "progress", "leases", "publication")
_STREAM, _INTENTION, _EPOCH, _SEAL, _REMOVAL = (
    ", ".join(columns_of(kind)) for kind in (StreamRecord, Intention, Epoch, Seal, Removal)
)
_AT_ONCE = 4096
_LAST_TICK = 2**62
_Kind = TypeVar("_Kind")


class Journal:
    """What a durable stream reads and writes. All of it happens in a transaction: `writing` or `reading`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @property
    def place(self) -> str:
        """For people."""
        return self.connection.place

    @contextmanager
    def writing(self, step: str) -> Iterator[None]:
        """One durable transaction; `step` names its failpoints."""
        with self.connection.writing():
            try:
                yield
                reach(f"{step}.before_commit")
            except OSError as error:  # of a failpoint
                raise fault_of(error, self.place) from None
            self.connection.commit()
        reach(f"{step}.after_commit")

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One state of the store; within a transaction, that one."""
        with nullcontext() if self.connection.in_transaction else self.connection.reading():
            yield

    def is_made(self) -> bool:
        """Whether the tables are there, in a version that is known."""
        with self.reading():
            if not self.connection.has_table("schema_version"):
                return False
            rows = self._select("version", "schema_version")
            if [list(row) for row in rows] != [[FORMAT]]:
                found = ", ".join(str(row[0]) for row in rows) or "none"
                raise ConfigError(
                    f"{self.place} must hold a stream in format {FORMAT}, got format {found}: another version of "
                    "pianissimo wrote it. Go on with that version, or begin a new stream in another folder"
                )
            return True

    def make(self) -> None:
        """Make the tables, in the transaction begun."""
        for name in _TABLES:
            self._make_table(name)
        for table in _STAYING:
            self.connection.make_stay(table)
        self._run("INSERT INTO schema_version (version) VALUES (?)", [FORMAT])

    def make_later_tables(self) -> None:
        """Make those that the version which made the others did not have; in the transaction begun."""
        for name in _LATER:
            if not self.connection.has_table(name):
                self._make_table(name)
                if name in _STAYING:
                    self.connection.make_stay(name)

    def _make_table(self, name: str) -> None:
        self._run(f"CREATE TABLE {name} {_TABLES[name].format(**self.connection.words)}")

    def _is_there(self, table: str) -> bool:
        return table not in _LATER or self.connection.has_table(table)

    def streams(self) -> list[StreamRecord]:
        """All incarnations, the oldest first."""
        return [_read(StreamRecord, row) for row in self._select(_STREAM, "streams", "ORDER BY number")]

    def insert_stream(self, record: StreamRecord, ring: KeyRing) -> None:
        """A new life, with its secrets, a lease that nobody took and nothing visible."""
        incarnation, visible = record.incarnation, record.last_tick
        self._insert("streams", row_of(record))
        for epoch in ring.rows(incarnation):
            self.insert_epoch(incarnation, epoch)
        mark = _progress_mark(ring.keys[0], incarnation, visible, 0)
        self._insert("progress", {"incarnation": incarnation, "visible": visible, "lease": 0, "mark": mark})
        self._insert("leases", {"incarnation": incarnation, "epoch": 0, "owner": ""})

    def insert_intention(self, intention: Intention) -> None:
        """What is about to be charged."""
        self._insert("intentions", row_of(intention))

    def intention(self, after: int) -> Intention | None:
        """The newest intention, if it came after the life of this number: no life has come of it."""
        rows = self._select(_INTENTION, "intentions", "WHERE number > ? ORDER BY number DESC LIMIT 1", [after])
        return _read(Intention, rows[0]) if rows else None

    def insert_epoch(self, incarnation: bytes, epoch: Epoch) -> None:
        """One more secret of the ring."""
        self._insert("key_epochs", {"incarnation": incarnation, **row_of(epoch)})

    def epochs(self, incarnation: bytes) -> list[Epoch]:
        """The rows of the ring."""
        rows = self._select(_EPOCH, "key_epochs", "WHERE incarnation = ? ORDER BY number", [incarnation])
        return [_read(Epoch, row) for row in rows]

    def lives(self, newest: KeyRing) -> list[tuple[StreamRecord, KeyRing]]:
        """All incarnations with their keys, the oldest first; given are the keys of the newest."""
        records = self.streams()
        found = [(records[-1], newest)] if records else []
        for record in reversed(records[:-1]):
            # The one after it may have rotated its secret since.
            later = found[-1][1].secrets
            found.append((record, ring_among(later, record.incarnation, self.epochs(record.incarnation))))
        return found[::-1]

    def take_lease(self, incarnation: bytes, owner: str, keys: Keys) -> int:
        """Be the one that writes, and leave that beside what is visible; in the transaction begun."""
        epoch = self.lease(incarnation, locked=True)[0] + 1
        self._run("UPDATE leases SET epoch = ?, owner = ? WHERE incarnation = ?", [epoch, owner, incarnation])
        self.set_visible(incarnation, self.visible(incarnation), epoch, keys)
        return epoch

    def check_lease(self, incarnation: bytes, epoch: int) -> None:
        """Stop whoever is not the last to have taken the lease; in the transaction begun."""
        if self.lease(incarnation, locked=True)[0] != epoch:
            raise LeaseError(
                "one process may seal a stream, got another that took over since; this one has written nothing more"
            )

    def lease(self, incarnation: bytes, *, locked: bool = False) -> tuple[int, str]:
        """The epoch and the owner; `locked` in a transaction that writes."""
        rest = f"WHERE incarnation = ?{self.connection.words['locked'] if locked else ''}"
        rows = self._select("epoch, owner", "leases", rest, [incarnation])
        if len(rows) != 1 or not 0 <= _whole(rows[0][0]) < _LARGEST_LEASE:
            raise damaged("the lease")
        return _whole(rows[0][0]), str(rows[0][1])

    def insert_seal(self, seal: Seal, keys: Keys) -> None:
        """A seal; a second one for its tick is an error of the database."""
        positions = keys.closed(seal.positions, "positions", seal.incarnation, seal.tick)
        self._insert("seals", {**row_of(seal), "positions": positions}, key=_TICK)

    def seal(self, incarnation: bytes, tick: int, ring: KeyRing) -> Seal | None:
        """The seal of a tick, checked."""
        rows = self._select(_SEAL, "seals", "WHERE incarnation = ? AND tick = ?", [incarnation, tick])
        return _seal_of(rows[0], ring) if rows else None

    def last_seal(self, incarnation: bytes, ring: KeyRing) -> Seal | None:
        """The last seal, checked."""
        rows = self._select(_SEAL, "seals", "WHERE incarnation = ? ORDER BY tick DESC LIMIT 1", [incarnation])
        return _seal_of(rows[0], ring) if rows else None

    def seals(self, incarnation: bytes, ring: KeyRing, *, after: int = -1, up_to: int = _LAST_TICK) -> Iterator[Seal]:
        """All seals after a tick in the order of their ticks, each checked by itself; in the transaction begun."""
        while True:
            rest = "WHERE incarnation = ? AND tick > ? AND tick <= ? ORDER BY tick LIMIT ?"
            rows = self._select(_SEAL, "seals", rest, [incarnation, after, up_to, _AT_ONCE])
            for row in rows:
                seal = _seal_of(row, ring)
                yield seal
                after = seal.tick
            if len(rows) < _AT_ONCE:
                return

    def insert_release(self, release: StoredRelease) -> None:
        """Store a release if its tick has none; if there is one, it must be the same."""
        place = [release.incarnation, release.tick]
        rows = self._select("mac", "releases", "WHERE incarnation = ? AND tick = ?", place)
        if not rows:
            self._insert("releases", row_of(release), key=_TICK)
        elif not hmac.compare_digest(_raw(rows[0][0]), release.mac):
            raise damaged(f"the release of tick {release.tick}")

    def release(self, incarnation: bytes, tick: int) -> StoredRelease | None:
        """The release of a tick, checked for damage; whether it is forged takes the key to tell."""
        rest = "WHERE incarnation = ? AND tick = ?"
        rows = self._select("payload, digest, mac", "releases", rest, [incarnation, tick])
        if not rows:
            return None
        payload, digest, mac = map(_raw, rows[0])
        found = StoredRelease(incarnation=incarnation, tick=tick, payload=payload, mac=mac)
        if found.digest != digest:
            raise damaged(f"the release of tick {tick}")
        return found

    def payload(self, incarnation: bytes, tick: int, ring: KeyRing) -> bytes:
        """The bytes of a release, checked against the seal of its tick."""
        stored, seal = self.release(incarnation, tick), self.seal(incarnation, tick, ring)
        if stored is None or seal is None:
            raise damaged(f"the release of tick {tick}")
        stored.check(ring.epoch(seal.epoch), seal)
        return stored.payload

    def remove(self, removal: Removal) -> None:
        """Put the digests of some seals in the place of these and their releases; in the transaction begun."""
        self._insert("removals", row_of(removal), key=_TICK)
        place = [removal.incarnation, removal.first, removal.tick]
        for table in ("releases", "seals"):
            with self.connection.letting_go(table):
                self._run(f"DELETE FROM {table} WHERE incarnation = ? AND tick >= ? AND tick <= ?", place)  # noqa: S608

    def removal(self, incarnation: bytes, ring: KeyRing, *, of: int | None = None) -> Removal | None:
        """The removal that a tick went with, or the last one, checked; None if there is none."""
        if not self._is_there("removals"):
            return None
        rest, values = ("tick >= ? ORDER BY tick", [of]) if of is not None else ("tick >= 0 ORDER BY tick DESC", [])
        rows = self._select(_REMOVAL, "removals", f"WHERE incarnation = ? AND {rest} LIMIT 1", [incarnation, *values])
        found = _read(Removal, rows[0]) if rows else None
        if found is not None:
            found.check(ring.epoch(ring.number_at(found.tick)))
        return None if found is None or (of is not None and of < found.first) else found

    def removed_tick(self, incarnation: bytes) -> int | None:
        """The last tick that retention removed, for those who have no key to check it."""
        return self.last_tick("removals", incarnation) if self._is_there("removals") else None

    def bound(self, incarnation: bytes, tick: int, ring: KeyRing) -> tuple[Keys, bytes] | None:
        """The keys of a tick and the digest of its seal, whether that is there or was removed."""
        seal = self.seal(incarnation, tick, ring)
        if seal is not None:
            return ring.epoch(seal.epoch), seal.mac
        removal = self.removal(incarnation, ring, of=tick)
        return None if removal is None else (ring.epoch(ring.number_at(tick)), removal.mac_of(tick))

    def has(self, table: str, incarnation: bytes, tick: int) -> bool:
        """Whether a table has a row of a tick."""
        return bool(self._select("1", table, "WHERE incarnation = ? AND tick = ?", [incarnation, tick]))

    def delta(self, seal: Seal, ring: KeyRing) -> bytes:
        """What a tick adds."""
        rows = self._contents("deltas", seal.incarnation, ring, "AND tick = ?", [seal.tick])
        if not rows:
            raise damaged(f"what tick {seal.tick} adds")
        return rows[0][1]

    def insert_snapshot(self, seal: Seal, content: bytes, keys: Keys) -> None:
        """A state, in the place of all that came before it."""
        place = [seal.incarnation, seal.tick]
        if not self.has("snapshots", seal.incarnation, seal.tick):
            self.insert_content("snapshots", seal, content, keys)
            self._run("DELETE FROM snapshots WHERE incarnation = ? AND tick < ?", place)
            self._run("DELETE FROM deltas WHERE incarnation = ? AND tick <= ?", place)

    def snapshot(self, incarnation: bytes, ring: KeyRing) -> tuple[int, bytes] | None:
        """The last state that is stored, and its tick."""
        rows = self._contents("snapshots", incarnation, ring, "ORDER BY tick DESC LIMIT 1")
        return rows[0] if rows else None

    def insert_history(self, seal: Seal, content: bytes, keys: Keys, *, keep: int) -> None:
        """What a tick adds to the past that intervals are answered from; only the last ones are kept."""
        if not self.has("history", seal.incarnation, seal.tick):
            self.insert_content("history", seal, content, keys)
        # One stored state more than is needed: the last state may be as old as its schedule.
        values = [seal.incarnation, seal.tick - keep]
        self._run("DELETE FROM history WHERE incarnation = ? AND tick <= ?", values)

    def history(self, incarnation: bytes, up_to: int, ring: KeyRing) -> list[bytes]:
        """What ticks have added to the past, in their order."""
        return [
            each for _, each in self._contents("history", incarnation, ring, "AND tick <= ? ORDER BY tick", [up_to])
        ]

    def insert_checkpoint(self, seal: Seal, content: bytes, keys: Keys, *, needed: set[int]) -> None:
        """What a tick adds to the past that is kept for long, in the place of what is not needed any more."""
        if not self.has("checkpoints", seal.incarnation, seal.tick):
            self.insert_content("checkpoints", seal, content, keys)
        for tick in self.ticks("checkpoints", seal.incarnation):
            if tick not in needed:
                self._run("DELETE FROM checkpoints WHERE incarnation = ? AND tick = ?", [seal.incarnation, tick])

    def checkpoints(self, incarnation: bytes, up_to: int, ring: KeyRing) -> list[bytes]:
        """What is kept for long, in the order of ticks."""
        rest = "AND tick <= ? ORDER BY tick"
        is_there = self._is_there("checkpoints")
        rows = self._contents("checkpoints", incarnation, ring, rest, [up_to]) if is_there else []
        return [each for _, each in rows]

    def insert_content(self, table: str, seal: Seal, content: bytes, keys: Keys) -> None:
        """What belongs to a tick in one of the tables of such: encrypted, and bound to its seal."""
        closed = keys.closed(content, _PURPOSES[table], seal.incarnation, seal.tick, seal.mac)
        self._insert(table, {"incarnation": seal.incarnation, "tick": seal.tick, "content": closed}, key=_TICK)

    def _contents(
        self, table: str, incarnation: bytes, ring: KeyRing, rest: str, values: Row = ()
    ) -> list[tuple[int, bytes]]:
        """What was encrypted for ticks, each under the keys of its seal and for that seal alone."""
        found = []
        for tick, closed in self._select(
            "tick, content", table, f"WHERE incarnation = ? {rest}", [incarnation, *values]
        ):
            bound = self.bound(incarnation, _whole(tick), ring)
            if bound is None:
                raise DamageError(f"the {table} of tick {tick} must belong to a seal, got none; restore a backup")
            keys, mac = bound
            found.append((_whole(tick), keys.opened(_raw(closed), _PURPOSES[table], incarnation, _whole(tick), mac)))
        return found

    def expect_sink(self, sink: str, incarnation: bytes, first: int) -> None:
        """Let `deliveries` tell of a sink that has nothing of a life yet, which begins after tick `first`."""
        if not self._select("1", "outbox", "WHERE sink = ? AND incarnation = ? LIMIT 1", [sink, incarnation]):
            self._insert("outbox", _outbox_row(sink, incarnation, first, delivered=0))

    def delivered(self, sink: str, incarnation: bytes) -> tuple[int, bytes] | None:
        """The last tick of a life that a sink is said to have, with all before it, and the mark that proves it."""
        rest = "WHERE sink = ? AND incarnation = ? AND delivered = 1 ORDER BY tick DESC LIMIT 1"
        rows = self._select("tick, mark", "outbox", rest, [sink, incarnation])
        return (_whole(rows[0][0]), _raw(rows[0][1])) if rows else None

    def deliveries(self, incarnation: bytes) -> dict[str, int]:
        """Of each sink of a life the last tick that it is said to have, or 0."""
        last = "coalesce(max(CASE WHEN delivered = 1 THEN tick END), 0)"
        rest = "WHERE incarnation = ? GROUP BY sink ORDER BY sink"
        return {str(row[0]): _whole(row[1]) for row in self._select(f"sink, {last}", "outbox", rest, [incarnation])}

    def mark_delivered(self, sink: str, incarnation: bytes, tick: int, mark: bytes) -> None:
        """That a sink has all releases of a life up to a tick: one row a sink, in the place of those before."""
        self._run("DELETE FROM outbox WHERE sink = ? AND incarnation = ?", [sink, incarnation])
        self._insert("outbox", _outbox_row(sink, incarnation, tick, delivered=1, mark=mark))

    def visible(self, incarnation: bytes) -> int:
        """The last tick that readers may see."""
        return self._progress(incarnation)[0]

    def _progress(self, incarnation: bytes) -> tuple[int, int, bytes]:
        """The last tick that readers may see, the lease under which that was written, and the mark of both."""
        rows = self._select("visible, lease, mark", "progress", "WHERE incarnation = ?", [incarnation])
        if len(rows) != 1:
            raise damaged("what is visible")
        return _whole(rows[0][0]), _whole(rows[0][1]), _raw(rows[0][2])

    def set_visible(self, incarnation: bytes, visible: int, lease: int, keys: Keys) -> None:
        """Let readers see ticks up to this one; in the transaction begun."""
        mark = _progress_mark(keys, incarnation, visible, lease)
        row = {"visible": visible, "lease": lease, "mark": mark, "incarnation": incarnation}
        self._run("UPDATE progress SET visible = ?, lease = ?, mark = ? WHERE incarnation = ?", [*row.values()])
        self._check_stored("progress", row, ("incarnation",))

    def visible_ticks(self) -> dict[bytes, int]:
        """Of each life the last tick that readers may see."""
        return {_raw(row[0]): _whole(row[1]) for row in self._select("incarnation, visible", "progress")}

    def publish_after(self, incarnation: bytes) -> int | None:
        """How many microseconds after its end a tick is shown; None where that is when it is ready."""
        if not self._is_there("publication"):
            return None
        rows = self._select("delay", "publication", "WHERE incarnation = ?", [incarnation])
        return _whole(rows[0][0]) if rows else None

    def set_publish_after(self, incarnation: bytes, delay: int | None) -> None:
        """Let readers know when ticks are shown; in the transaction begun."""
        self._run("DELETE FROM publication WHERE incarnation = ?", [incarnation])
        if delay is not None:
            self._insert("publication", {"incarnation": incarnation, "delay": delay})

    def check_progress(self, record: StreamRecord, keys: Keys) -> None:
        """Refuse a visible tick that was not written here, and a lease that was set back."""
        visible, lease, mark = self._progress(record.incarnation)
        epoch, _ = self.lease(record.incarnation)
        if not hmac.compare_digest(mark, _progress_mark(keys, record.incarnation, visible, lease)):
            raise damaged("what is visible")
        if epoch < lease:
            raise DamageError(f"the lease must be at epoch {lease} or later, got {epoch}; restore a backup")

    def check_tables(self) -> None:
        """Refuse tables that change by themselves what is written to them."""
        if any(map(self.connection.acts_by_itself, _TABLES)):
            raise DamageError(
                "a store must be changed by its owner alone, got triggers or rules that act on it; remove them"
            )

    def check_owners(self) -> None:
        """Refuse rows that are of none of the streams."""
        others = "WHERE incarnation NOT IN (SELECT incarnation FROM streams) LIMIT 1"
        if any(self._is_there(table) and self._select("1", table, others) for table in _OWNED):
            raise DamageError("a store must hold rows of its streams alone, got others; restore a backup")

    def ticks(self, table: str, incarnation: bytes, *, after: int = -1) -> list[int]:
        """The ticks of the rows that a table holds of a stream, those after a tick, in their order."""
        if not self._is_there(table):
            return []
        rest = "WHERE incarnation = ? AND tick > ? ORDER BY tick"
        return [_whole(row[0]) for row in self._select("tick", table, rest, [incarnation, after])]

    def first_tick(self, table: str, incarnation: bytes) -> int | None:
        """The first of these ticks, if there is one."""
        rows = self._select("min(tick)", table, "WHERE incarnation = ?", [incarnation])
        return None if rows[0][0] is None else _whole(rows[0][0])

    def last_tick(self, table: str, incarnation: bytes) -> int | None:
        """The last of these ticks, if there is one."""
        rows = self._select("max(tick)", table, "WHERE incarnation = ?", [incarnation])
        return None if rows[0][0] is None else _whole(rows[0][0])

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.close()

    def _select(self, columns: str, table: str, rest: str = "", values: Row = ()) -> list[Row]:
        with self.reading():
            return self._run(f"SELECT {columns} FROM {table} {rest}", values)  # noqa: S608

    def _insert(self, table: str, row: dict[str, Any], *, key: tuple[str, ...] = ()) -> None:
        """A new row; given its key, it must then be there as it was written."""
        marks = ", ".join("?" * len(row))
        self._run(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", [*row.values()])  # noqa: S608
        if key:
            self._check_stored(table, row, key)

    def _check_stored(self, table: str, row: dict[str, Any], key: tuple[str, ...]) -> None:
        """Refuse to go on where what was just written is not there: a trigger or a rule has changed it."""
        rest = f"WHERE {' AND '.join(f'{name} = ?' for name in key)}"
        found = self._select(", ".join(row), table, rest, [row[name] for name in key])
        if [list(each) for each in found] != [[*row.values()]]:
            raise DamageError("a store must keep what is written to it, got something else; run verify")

    def _run(self, statement: str, values: Row = ()) -> list[Row]:
        return self.connection.execute(statement, values)


def _outbox_row(sink: str, incarnation: bytes, tick: int, *, delivered: int, mark: bytes = b"") -> dict[str, Any]:
    return {"sink": sink, "incarnation": incarnation, "tick": tick, "delivered": delivered, "mark": mark}


def _progress_mark(keys: Keys, incarnation: bytes, visible: int, lease: int) -> bytes:
    """What says that readers may see ticks up to one, written under a lease."""
    return keys.mac("visible", incarnation, visible, lease)


def _seal_of(row: Row, ring: KeyRing) -> Seal:
    closed = _read(Seal, row)
    keys = ring.epoch(closed.epoch)
    positions = keys.opened(closed.positions, "positions", closed.incarnation, closed.tick)
    seal = replace(closed, positions=positions)
    seal.check(keys)
    return seal


def _read(kind: type[_Kind], row: Row) -> _Kind:
    """The record that a row holds, its columns in the order of the record's fields."""
    pairs = zip(columns_of(kind).items(), row, strict=True)  # type: ignore[arg-type]
    return kind(**{name: _READERS[held](value) for (name, held), value in pairs})


def _reader(kind: type[_Kind], what: str) -> Callable[[object], _Kind]:
    def read(value: object) -> _Kind:
        if type(value) is not kind:
            raise DamageError(f"a store must hold {what} where they belong, got something else; restore a backup")
        return value

    return read


_whole, _raw, _text = _reader(int, "numbers"), _reader(bytes, "bytes"), _reader(str, "texts")
_READERS: dict[Any, Callable[[object], Any]] = {
    int: _whole,
    bytes: _raw,
    str: _text,
    bool: lambda value: bool(_whole(value)),
}
