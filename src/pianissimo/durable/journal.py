"""The journal of a durable stream: its lives, its seals and its releases, each with a keyed digest, and their tables.

A seal's digest covers the one before it, so that the last covers all; the first follows the record of its life. Digests
are over an injective encoding of all fields. Nothing in them depends on the time of day, on who sealed or how often it
was tried: the same stream and the same events give the same digests, and with them the same noise.

There is one schema for every engine. Safety rests on unique keys and on digests: one seal and one release for an
incarnation and a tick, never changed. The lease says who may write; whoever comes with an old epoch writes nothing. How
far readers may see carries a keyed mark, from the moment a life is inserted. The mark covers the lease under which it
was written, and whoever takes a lease writes it anew: a lease that is lower was set back. One that is higher does no
harm, since it only keeps its holder out.
"""

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pianissimo.durable.failpoints import reach
from pianissimo.durable.key_ring import Epoch, KeyRing, Keys, ring_among
from pianissimo.errors import ConfigError, DamageError, LeaseError
from pianissimo.noise.keyed import encode_path
from pianissimo.storage.connection import Connection, Row
from pianissimo.storage.files import fault_of

FORMAT = 3
"""Of what is stored. Streams of format 2 and before were written by versions that were never published."""

_TABLES = (
    "CREATE TABLE schema_version (version {integer} PRIMARY KEY){strict}",
    "CREATE TABLE streams (incarnation {binary} PRIMARY KEY, number {integer} NOT NULL UNIQUE, name TEXT NOT NULL, "
    "config TEXT NOT NULL, config_digest {binary} NOT NULL, created TEXT NOT NULL, last_tick {integer} NOT NULL, "
    "since {integer} NOT NULL, positions {binary} NOT NULL, charge TEXT NOT NULL, receipt TEXT NOT NULL, "
    "covered {integer} NOT NULL, follows {binary} NOT NULL, mac {binary} NOT NULL){strict}",
    "CREATE TABLE intentions (number {integer} PRIMARY KEY, name {binary} NOT NULL, "
    "config_digest {binary} NOT NULL, is_covered {integer} NOT NULL, mac {binary} NOT NULL){strict}",
    "CREATE TABLE key_epochs (incarnation {binary} NOT NULL REFERENCES streams, number {integer} NOT NULL, "
    "first_tick {integer} NOT NULL, key_id {binary} NOT NULL, check_value {binary} NOT NULL, "
    "earlier {binary} NOT NULL, PRIMARY KEY (incarnation, number)){strict}",
    "CREATE TABLE seals (incarnation {binary} NOT NULL REFERENCES streams, tick {integer} NOT NULL, "
    "epoch {integer} NOT NULL, previous {binary} NOT NULL, positions {binary} NOT NULL, counts {binary} NOT NULL, "
    "state {binary} NOT NULL, config_digest {binary} NOT NULL, mac {binary} NOT NULL, "
    "PRIMARY KEY (incarnation, tick)){strict}",
    "CREATE TABLE releases (incarnation {binary} NOT NULL, tick {integer} NOT NULL, payload {binary} NOT NULL, "
    "digest {binary} NOT NULL, mac {binary} NOT NULL, PRIMARY KEY (incarnation, tick), "
    "FOREIGN KEY (incarnation, tick) REFERENCES seals (incarnation, tick)){strict}",
    "CREATE TABLE deltas (incarnation {binary} NOT NULL, tick {integer} NOT NULL, content {binary} NOT NULL, "
    "PRIMARY KEY (incarnation, tick)){strict}",
    "CREATE TABLE snapshots (incarnation {binary} NOT NULL, tick {integer} NOT NULL, content {binary} NOT NULL, "
    "PRIMARY KEY (incarnation, tick)){strict}",
    "CREATE TABLE history (incarnation {binary} NOT NULL, tick {integer} NOT NULL, content {binary} NOT NULL, "
    "PRIMARY KEY (incarnation, tick)){strict}",
    "CREATE TABLE outbox (sink TEXT NOT NULL, incarnation {binary} NOT NULL, tick {integer} NOT NULL, "
    "delivered {integer} NOT NULL, mark {binary} NOT NULL, PRIMARY KEY (sink, incarnation, tick)){strict}",
    "CREATE TABLE progress (incarnation {binary} PRIMARY KEY REFERENCES streams, visible {integer} NOT NULL, "
    "lease {integer} NOT NULL, mark {binary} NOT NULL){strict}",
    "CREATE TABLE leases (incarnation {binary} PRIMARY KEY REFERENCES streams, epoch {integer} NOT NULL, "
    "owner TEXT NOT NULL){strict}",
)
_STAYING = ("streams", "intentions", "seals", "releases")
_OWNED = ("key_epochs", "seals", "releases", "deltas", "snapshots", "history", "outbox", "progress", "leases")
_STREAM = (
    "incarnation, number, name, config, config_digest, created, last_tick, since, positions, charge, receipt, covered, "
    "follows, mac"
)
_INTENTION = "number, name, config_digest, is_covered, mac"
_SEAL = "incarnation, tick, epoch, previous, positions, counts, state, config_digest, mac"
_AT_ONCE = 4096


_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRecord:
    """One life of a stream; never changed."""

    incarnation: bytes
    """128 bits from the operating system: part of the path of all noise."""

    number: int
    """Of the intention that it came of: the lives of a store are in the order of their numbers."""

    name: str
    config: str
    """What was asked, the plan that was chosen and the clock, as JSON."""

    config_digest: bytes
    created: str
    """UTC."""

    last_tick: int
    """The last tick before this life: 0, or the last that anybody may have seen of the lives before."""

    since: int
    """Its totals count all events after this tick: 0, or the last tick of which it is known where it was read to."""

    positions: bytes
    """Where the sources are read from, encrypted: how far they were read tells how many events there were."""

    charge: str
    """The idempotency key of the charge that covers it."""

    receipt: str
    """Where that charge is booked: see `Receipt`."""

    covered: bool = False
    """Whether an earlier life used the charge, which covers this one too."""

    follows: bytes = b""
    """The digest of the last seal in this store before this life, so that none of them goes unseen."""

    mac: bytes = b""

    def signed(self, keys: Keys) -> "StreamRecord":
        """The record with its digest."""
        return replace(self, mac=self._mac(keys))

    def check(self, keys: Keys) -> None:
        """Refuse a record that does not carry its digest."""
        if not hmac.compare_digest(self.mac, self._mac(keys)):
            raise damaged(f"the record of stream {self.name!r}")

    def begin(self, keys: Keys) -> bytes:
        """Where the sources are read from."""
        return keys.opened(self.positions, "begin", self.incarnation) if self.positions else b""

    def _mac(self, keys: Keys) -> bytes:
        fields = (self.incarnation, self.number, self.name, self.config, self.config_digest, self.created)
        paid = (self.charge, self.receipt, int(self.covered))
        return keys.mac("stream", _VERSION, *fields, self.last_tick, self.since, self.positions, *paid, self.follows)


def begin_closed(keys: Keys, incarnation: bytes, positions: bytes) -> bytes:
    """As the record of a life holds where its sources are read from."""
    return keys.closed(positions, "begin", incarnation) if positions else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intention:
    """That a life is about to begin; written before its charge, never changed."""

    number: int
    """Of the intentions in this store, from 1."""

    name: bytes
    """Random; the charge has it as its key. The incarnation itself is drawn when the witness is told."""

    config_digest: bytes
    is_covered: bool = False
    """Whether the charge of the life before covers it."""

    mac: bytes = b""

    @property
    def charge(self) -> str:
        """The idempotency key of the charge."""
        return f"stream {self.name.hex()}"

    def signed(self, keys: Keys) -> "Intention":
        """The intention with its digest."""
        return replace(self, mac=self._mac(keys))

    def is_signed(self, keys: Keys) -> bool:
        """Whether it carries its digest."""
        return hmac.compare_digest(self.mac, self._mac(keys))

    def _mac(self, keys: Keys) -> bytes:
        return keys.mac("intention", _VERSION, self.number, self.name, self.config_digest, int(self.is_covered))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """That a tick has these events and no others, for ever."""

    incarnation: bytes
    tick: int
    epoch: int
    """Of the keys."""

    previous: bytes
    """The digest of the seal before, or of the life."""

    positions: bytes = field(repr=False)
    """Where the sources were read to."""

    counts: bytes
    """The digest of what the tick adds."""

    state: bytes
    """The digest of the last stored state before this tick."""

    config_digest: bytes
    mac: bytes = b""

    def signed(self, keys: Keys) -> "Seal":
        """The seal with its digest."""
        return replace(self, mac=self._mac(keys))

    def check(self, keys: Keys) -> None:
        """Refuse a seal that does not carry its digest."""
        if not hmac.compare_digest(self.mac, self._mac(keys)):
            raise damaged(f"the seal of tick {self.tick}")

    def _mac(self, keys: Keys) -> bytes:
        fields = (self.incarnation, self.tick, self.epoch, self.previous, self.positions, self.counts, self.state)
        return keys.mac("seal", _VERSION, *fields, self.config_digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRelease:
    """What was released for a tick: the bytes that everybody gets, for ever."""

    incarnation: bytes
    tick: int
    payload: bytes
    mac: bytes = b""
    digest: bytes = b""
    """Of the bytes alone, without a key: readers can check it too."""

    def __post_init__(self) -> None:
        if not self.digest:
            place = encode_path(self.incarnation, self.tick)
            digest = hashlib.blake2b(place, digest_size=32)
            digest.update(self.payload)
            object.__setattr__(self, "digest", digest.digest())

    def signed(self, keys: Keys, seal: Seal) -> "StoredRelease":
        """The release with its digest."""
        return replace(self, mac=self._mac(keys, seal))

    def check(self, keys: Keys, seal: Seal) -> None:
        """Refuse a release that does not carry its digest, or that of another seal."""
        if not hmac.compare_digest(self.mac, self._mac(keys, seal)):
            raise damaged(f"the release of tick {self.tick}")

    def _mac(self, keys: Keys, seal: Seal) -> bytes:
        return keys.mac("release", _VERSION, self.incarnation, self.tick, seal.mac, self.digest)


def damaged(what: str) -> DamageError:
    """The error for a record that is not as it was written."""
    return DamageError(f"{what} must be as it was written, got other content; stop and restore a backup")


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
        # Wherever an interrupt falls, no transaction is left open: to undo one that is over does nothing.
        try:
            try:
                self.connection.begin_write()
                yield
                reach(f"{step}.before_commit")
            except OSError as error:  # of a failpoint
                raise fault_of(error, self.place) from None
            self.connection.commit()
        finally:
            self.connection.rollback()
        reach(f"{step}.after_commit")

    @contextmanager
    def settled(self) -> Iterator[None]:
        """To look after a commit whose outcome is unknown: one that is still under way is waited for."""
        try:
            self.connection.begin_write()
            yield
        finally:
            self.connection.rollback()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """One state of the store; within a transaction, that one."""
        if self.connection.in_transaction:
            yield
            return
        try:
            self.connection.begin_read()
            yield
        finally:
            self.connection.rollback()

    def is_made(self) -> bool:
        """Whether the tables are there, in a version that is known."""
        with self.reading():
            if not self.connection.has_table("schema_version"):
                return False
            rows = self._run("SELECT version FROM schema_version")
            if [list(row) for row in rows] != [[FORMAT]]:
                found = ", ".join(str(row[0]) for row in rows) or "none"
                raise ConfigError(
                    f"{self.place} must hold a stream in format {FORMAT}, got format {found}: another version of "
                    "pianissimo wrote it. Go on with that version, or begin a new stream in another folder"
                )
            return True

    def make(self) -> None:
        """Make the tables, in the transaction begun."""
        for statement in _TABLES:
            self._run(statement.format(**self.connection.words))
        for table in _STAYING:
            self.connection.make_stay(table)
        self._run("INSERT INTO schema_version (version) VALUES (?)", [FORMAT])

    def streams(self) -> list[StreamRecord]:
        """All incarnations, the oldest first."""
        with self.reading():
            rows = self._run(f"SELECT {_STREAM} FROM streams ORDER BY number")  # noqa: S608
        return [_stream_of(row) for row in rows]

    def insert_stream(self, record: StreamRecord, ring: KeyRing) -> None:
        """A new life, with its secrets, a lease that nobody took and nothing visible."""
        values = _values(record, _STREAM)
        self._run(f"INSERT INTO streams ({_STREAM}) VALUES ({_marks(values)})", values)  # noqa: S608
        for epoch in ring.rows(record.incarnation):
            self.insert_epoch(record.incarnation, epoch)
        start = [
            record.incarnation,
            record.last_tick,
            _progress_mark(ring.keys[0], record.incarnation, record.last_tick, 0),
        ]
        self._run("INSERT INTO progress (incarnation, visible, lease, mark) VALUES (?, ?, 0, ?)", start)
        self._run("INSERT INTO leases (incarnation, epoch, owner) VALUES (?, 0, '')", [record.incarnation])

    def insert_intention(self, intention: Intention) -> None:
        """What is about to be charged."""
        values = _values(intention, _INTENTION)
        self._run(f"INSERT INTO intentions ({_INTENTION}) VALUES ({_marks(values)})", values)  # noqa: S608

    def intention(self, after: int) -> Intention | None:
        """The newest intention, if it came after the life of this number: no life has come of it."""
        with self.reading():
            newest = f"SELECT {_INTENTION} FROM intentions WHERE number > ? ORDER BY number DESC LIMIT 1"  # noqa: S608
            rows = self._run(newest, [after])
        return _intention_of(rows[0]) if rows else None

    def insert_epoch(self, incarnation: bytes, epoch: Epoch) -> None:
        """One more secret of the ring."""
        values = [incarnation, epoch.number, epoch.first_tick, epoch.key_id, epoch.check, epoch.earlier]
        self._run(
            "INSERT INTO key_epochs (incarnation, number, first_tick, key_id, check_value, earlier) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            values,
        )

    def epochs(self, incarnation: bytes) -> list[Epoch]:
        """The rows of the ring."""
        with self.reading():
            rows = self._run(
                "SELECT number, first_tick, key_id, check_value, earlier FROM key_epochs WHERE incarnation = ? "
                "ORDER BY number",
                [incarnation],
            )
        return [
            Epoch(
                number=_whole(row[0]),
                first_tick=_whole(row[1]),
                key_id=_raw(row[2]),
                check=_raw(row[3]),
                earlier=_raw(row[4]),
            )
            for row in rows
        ]

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
        epoch = self._lease(incarnation) + 1
        self._run("UPDATE leases SET epoch = ?, owner = ? WHERE incarnation = ?", [epoch, owner, incarnation])
        self.set_visible(incarnation, self.visible(incarnation), epoch, keys)
        return epoch

    def check_lease(self, incarnation: bytes, epoch: int) -> None:
        """Stop whoever is not the last to have taken the lease; in the transaction begun."""
        if self._lease(incarnation) != epoch:
            raise LeaseError(
                "one process may seal a stream, got another that took over since; this one has written nothing more"
            )

    def _lease(self, incarnation: bytes) -> int:
        locked = self.connection.words["locked"]
        rows = self._run(f"SELECT epoch FROM leases WHERE incarnation = ?{locked}", [incarnation])  # noqa: S608
        if len(rows) != 1:
            raise damaged("the lease")
        return _whole(rows[0][0])

    def lease(self, incarnation: bytes) -> tuple[int, str]:
        """The epoch and the owner, to be shown."""
        with self.reading():
            rows = self._run("SELECT epoch, owner FROM leases WHERE incarnation = ?", [incarnation])
        return (_whole(rows[0][0]), str(rows[0][1])) if rows else (0, "")

    def insert_seal(self, seal: Seal, keys: Keys) -> None:
        """A seal; a second one for its tick is an error of the database."""
        positions = keys.closed(seal.positions, "positions", seal.incarnation, seal.tick)
        values = [positions if name == "positions" else getattr(seal, name) for name in _SEAL.split(", ")]
        self._run(f"INSERT INTO seals ({_SEAL}) VALUES ({_marks(values)})", values)  # noqa: S608
        self._check_stored(
            f"SELECT {_SEAL} FROM seals WHERE incarnation = ? AND tick = ?",  # noqa: S608
            [seal.incarnation, seal.tick],
            values,
        )

    def _check_stored(self, query: str, key: Row, expected: Row) -> None:
        """Refuse to go on where what was just written is not there: a trigger or a rule has changed it."""
        if [list(row) for row in self._run(query, key)] != [list(expected)]:
            raise DamageError("a store must keep what is written to it, got something else; run verify")

    def seal(self, incarnation: bytes, tick: int, ring: KeyRing) -> Seal | None:
        """The seal of a tick, checked."""
        with self.reading():
            rows = self._run(f"SELECT {_SEAL} FROM seals WHERE incarnation = ? AND tick = ?", [incarnation, tick])  # noqa: S608
        return _seal_of(rows[0], ring) if rows else None

    def last_seal(self, incarnation: bytes, ring: KeyRing) -> Seal | None:
        """The last seal, checked."""
        with self.reading():
            newest = f"SELECT {_SEAL} FROM seals WHERE incarnation = ? ORDER BY tick DESC LIMIT 1"  # noqa: S608
            rows = self._run(newest, [incarnation])
        return _seal_of(rows[0], ring) if rows else None

    def last_sealed_tick(self, incarnation: bytes) -> int | None:
        """Its number alone; not checked."""
        with self.reading():
            rows = self._run("SELECT max(tick) FROM seals WHERE incarnation = ?", [incarnation])
        return None if rows[0][0] is None else _whole(rows[0][0])

    def seals(self, incarnation: bytes, ring: KeyRing) -> Iterator[Seal]:
        """All seals in the order of their ticks, each checked by itself; in the transaction begun."""
        after = -1
        while True:
            rows = self._run(
                f"SELECT {_SEAL} FROM seals WHERE incarnation = ? AND tick > ? ORDER BY tick LIMIT ?",  # noqa: S608
                [incarnation, after, _AT_ONCE],
            )
            for row in rows:
                seal = _seal_of(row, ring)
                yield seal
                after = seal.tick
            if len(rows) < _AT_ONCE:
                return

    def insert_release(self, release: StoredRelease) -> bool:
        """Store a release if its tick has none; False if there is one, which must then be the same."""
        rows = self._run(
            "SELECT mac FROM releases WHERE incarnation = ? AND tick = ?", [release.incarnation, release.tick]
        )
        if rows:
            if not hmac.compare_digest(_raw(rows[0][0]), release.mac):
                raise damaged(f"the release of tick {release.tick}")
            return False
        self._run(
            "INSERT INTO releases (incarnation, tick, payload, digest, mac) VALUES (?, ?, ?, ?, ?)",
            [release.incarnation, release.tick, release.payload, release.digest, release.mac],
        )
        self._check_stored(
            "SELECT payload, digest, mac FROM releases WHERE incarnation = ? AND tick = ?",
            [release.incarnation, release.tick],
            [release.payload, release.digest, release.mac],
        )
        return True

    def release(self, incarnation: bytes, tick: int) -> StoredRelease | None:
        """The release of a tick, checked for damage; whether it is forged takes the key to tell."""
        with self.reading():
            rows = self._run(
                "SELECT payload, digest, mac FROM releases WHERE incarnation = ? AND tick = ?", [incarnation, tick]
            )
        if not rows:
            return None
        payload, digest, mac = map(_raw, rows[0])
        found = StoredRelease(incarnation=incarnation, tick=tick, payload=payload, mac=mac)
        if found.digest != digest:
            raise damaged(f"the release of tick {tick}")
        return found

    def has_release(self, incarnation: bytes, tick: int) -> bool:
        """Whether a tick is released."""
        with self.reading():
            return bool(self._run("SELECT 1 FROM releases WHERE incarnation = ? AND tick = ?", [incarnation, tick]))

    def released_ticks(self, incarnation: bytes) -> tuple[int, int]:
        """How many releases there are, and the last tick of them."""
        with self.reading():
            rows = self._run(
                "SELECT count(*), coalesce(max(tick), 0) FROM releases WHERE incarnation = ?", [incarnation]
            )
        return _whole(rows[0][0]), _whole(rows[0][1])

    def insert_delta(self, incarnation: bytes, tick: int, content: bytes) -> None:
        """What a tick adds, encrypted."""
        self._run("INSERT INTO deltas (incarnation, tick, content) VALUES (?, ?, ?)", [incarnation, tick, content])
        self._check_stored(
            "SELECT content FROM deltas WHERE incarnation = ? AND tick = ?", [incarnation, tick], [content]
        )

    def delta(self, incarnation: bytes, tick: int) -> bytes:
        """What a tick adds, encrypted."""
        with self.reading():
            rows = self._run("SELECT content FROM deltas WHERE incarnation = ? AND tick = ?", [incarnation, tick])
        if not rows:
            raise damaged(f"what tick {tick} adds")
        return _raw(rows[0][0])

    def insert_snapshot(self, incarnation: bytes, tick: int, content: bytes) -> None:
        """A state, encrypted, in the place of all that came before it."""
        values = [incarnation, tick]
        if self._run("SELECT 1 FROM snapshots WHERE incarnation = ? AND tick = ?", values):
            return
        self._run("INSERT INTO snapshots (incarnation, tick, content) VALUES (?, ?, ?)", [*values, content])
        self._run("DELETE FROM snapshots WHERE incarnation = ? AND tick < ?", values)
        self._run("DELETE FROM deltas WHERE incarnation = ? AND tick <= ?", values)

    def snapshot(self, incarnation: bytes) -> tuple[int, bytes] | None:
        """The last state that is stored, and its tick."""
        with self.reading():
            rows = self._run(
                "SELECT tick, content FROM snapshots WHERE incarnation = ? ORDER BY tick DESC LIMIT 1", [incarnation]
            )
        return (_whole(rows[0][0]), _raw(rows[0][1])) if rows else None

    def insert_history(self, incarnation: bytes, tick: int, content: bytes, *, keep: int) -> None:
        """What a tick adds to the past that intervals are answered from, encrypted; only the last ones are kept."""
        if not self._run("SELECT 1 FROM history WHERE incarnation = ? AND tick = ?", [incarnation, tick]):
            values = [incarnation, tick, content]
            self._run("INSERT INTO history (incarnation, tick, content) VALUES (?, ?, ?)", values)
        # One stored state more than is needed: the last state may be as old as its schedule.
        self._run("DELETE FROM history WHERE incarnation = ? AND tick <= ?", [incarnation, tick - keep])

    def history(self, incarnation: bytes, up_to: int) -> list[tuple[int, bytes]]:
        """What ticks have added to the past, in their order."""
        with self.reading():
            rows = self._run(
                "SELECT tick, content FROM history WHERE incarnation = ? AND tick <= ? ORDER BY tick",
                [incarnation, up_to],
            )
        return [(_whole(row[0]), _raw(row[1])) for row in rows]

    def snapshot_tick(self, incarnation: bytes) -> int | None:
        """The tick of the last state that is stored."""
        with self.reading():
            rows = self._run("SELECT max(tick) FROM snapshots WHERE incarnation = ?", [incarnation])
        return None if rows[0][0] is None else _whole(rows[0][0])

    def add_to_outbox(self, sink: str, incarnation: bytes, tick: int) -> None:
        """A release that a sink must get."""
        values = [sink, incarnation, tick]
        if not self._run("SELECT 1 FROM outbox WHERE sink = ? AND incarnation = ? AND tick = ?", values):
            self._run(
                "INSERT INTO outbox (sink, incarnation, tick, delivered, mark) VALUES (?, ?, ?, 0, ?)", [*values, b""]
            )

    def outbox(self, sink: str, incarnation: bytes) -> list[tuple[int, bytes]]:
        """For each tick that a sink must get, in their order, the mark that it has it; empty where it may not."""
        with self.reading():
            rows = self._run(
                "SELECT tick, mark FROM outbox WHERE sink = ? AND incarnation = ? ORDER BY tick",
                [sink, incarnation],
            )
        return [(_whole(row[0]), _raw(row[1])) for row in rows]

    def deliveries(self, incarnation: bytes) -> list[tuple[str, int, int]]:
        """Of each sink its name, how many ticks it has not confirmed, and the last that it has, or 0."""
        with self.reading():
            rows = self._run(
                "SELECT sink, count(CASE WHEN delivered = 0 THEN 1 END), "
                "coalesce(max(CASE WHEN delivered = 1 THEN tick END), 0) "
                "FROM outbox WHERE incarnation = ? GROUP BY sink ORDER BY sink",
                [incarnation],
            )
        return [(str(row[0]), _whole(row[1]), _whole(row[2])) for row in rows]

    def mark_delivered(self, sink: str, incarnation: bytes, tick: int, mark: bytes) -> None:
        """That a sink has a release."""
        self.add_to_outbox(sink, incarnation, tick)
        self._run(
            "UPDATE outbox SET delivered = 1, mark = ? WHERE sink = ? AND incarnation = ? AND tick = ?",
            [mark, sink, incarnation, tick],
        )

    def visible(self, incarnation: bytes) -> int:
        """The last tick that readers may see."""
        return self.progress(incarnation)[0]

    def progress(self, incarnation: bytes) -> tuple[int, int, bytes]:
        """The last tick that readers may see, the lease under which that was written, and the mark of both."""
        with self.reading():
            rows = self._run("SELECT visible, lease, mark FROM progress WHERE incarnation = ?", [incarnation])
        if len(rows) != 1:
            raise damaged("what is visible")
        return _whole(rows[0][0]), _whole(rows[0][1]), _raw(rows[0][2])

    def set_visible(self, incarnation: bytes, visible: int, lease: int, keys: Keys) -> None:
        """Let readers see ticks up to this one; in the transaction begun."""
        values = [visible, lease, _progress_mark(keys, incarnation, visible, lease)]
        self._run("UPDATE progress SET visible = ?, lease = ?, mark = ? WHERE incarnation = ?", [*values, incarnation])
        query = "SELECT visible, lease, mark FROM progress WHERE incarnation = ?"
        self._check_stored(query, [incarnation], values)

    def check_progress(self, record: StreamRecord, keys: Keys) -> None:
        """Refuse a visible tick that was not written here, and a lease that was set back."""
        visible, lease, mark = self.progress(record.incarnation)
        epoch, _ = self.lease(record.incarnation)
        if not hmac.compare_digest(mark, _progress_mark(keys, record.incarnation, visible, lease)):
            raise damaged("what is visible")
        if epoch < lease:
            raise DamageError(f"the lease must be at epoch {lease} or later, got {epoch}; restore a backup")

    def check_tables(self) -> None:
        """Refuse tables that change by themselves what is written to them."""
        for statement in _TABLES:
            table = statement.split()[2]
            if self.connection.acts_by_itself(table):
                raise DamageError(
                    "a store must be changed by its owner alone, got triggers or rules that act on it; remove them"
                )

    def check_owners(self) -> None:
        """Refuse rows that are of none of the streams."""
        for table in _OWNED:
            query = f"SELECT 1 FROM {table} WHERE incarnation NOT IN (SELECT incarnation FROM streams) LIMIT 1"  # noqa: S608
            if self._run(query):
                raise DamageError("a store must hold rows of its streams alone, got others; restore a backup")

    def ticks(self, table: str, incarnation: bytes) -> list[int]:
        """The ticks of the rows that a table holds of a stream, in their order."""
        with self.reading():
            rows = self._run(f"SELECT tick FROM {table} WHERE incarnation = ? ORDER BY tick", [incarnation])  # noqa: S608
        return [_whole(row[0]) for row in rows]

    def close(self) -> None:
        """Let go of the connection."""
        self.connection.close()

    def _run(self, statement: str, values: Row = ()) -> list[Row]:
        return self.connection.execute(statement, values)


def _progress_mark(keys: Keys, incarnation: bytes, visible: int, lease: int) -> bytes:
    """What says that readers may see ticks up to one, written under a lease."""
    return keys.mac("visible", incarnation, visible, lease)


def _values(record: object, columns: str) -> list[Any]:
    values = (getattr(record, name) for name in columns.split(", "))
    return [int(each) if isinstance(each, bool) else each for each in values]


def _marks(values: list[Any]) -> str:
    return ", ".join("?" * len(values))


def _stream_of(row: Row) -> StreamRecord:
    texts = dict(zip(_STREAM.split(", "), row, strict=True))
    if not all(isinstance(texts[name], str) for name in ("name", "config", "created", "charge", "receipt")):
        raise damaged("the record of a stream")
    for name in ("incarnation", "config_digest", "positions", "follows", "mac"):
        texts[name] = _raw(texts[name])
    for name in ("number", "last_tick", "since"):
        texts[name] = _whole(texts[name])
    texts["covered"] = bool(_whole(texts["covered"]))
    return StreamRecord(**texts)


def _intention_of(row: Row) -> Intention:
    values = dict(zip(_INTENTION.split(", "), row, strict=True))
    for name in ("name", "config_digest", "mac"):
        values[name] = _raw(values[name])
    values["number"], values["is_covered"] = _whole(values["number"]), bool(_whole(values["is_covered"]))
    return Intention(**values)


def _seal_of(row: Row, ring: KeyRing) -> Seal:
    values = dict(zip(_SEAL.split(", "), row, strict=True))
    for name, value in values.items():
        values[name] = _whole(value) if name in ("tick", "epoch") else _raw(value)
    keys = ring.epoch(values["epoch"])
    values["positions"] = keys.opened(values["positions"], "positions", values["incarnation"], values["tick"])
    seal = Seal(**values)
    seal.check(keys)
    return seal


def _whole(value: object) -> int:
    if type(value) is not int:
        raise DamageError("a store must hold numbers where they belong, got something else; restore a backup")
    return value


def _raw(value: object) -> bytes:
    if type(value) is not bytes:
        raise DamageError("a store must hold bytes where they belong, got something else; restore a backup")
    return value
