"""How a life of a durable stream begins, and what is checked before it goes on.

`begin_life` has the five steps of `charging`. A start checks secret, digests, order, charge, parameters and witness. In
doubt it stops: nothing here repairs anything. A life covers with its digest the last seal of the one before it, so that
no earlier life can be cut or put back to older rows unseen.
"""

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from pianissimo.durable.charging import check_receipt, reserve, use
from pianissimo.durable.failpoints import reach
from pianissimo.durable.held_ticks import MOST_TOGETHER
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import Given, KeyRing, open_ring, ring_of
from pianissimo.durable.place import Place, Wiring
from pianissimo.durable.records import Intention, Seal, StreamRecord, begin_closed
from pianissimo.durable.retention import check_removed
from pianissimo.durable.witness import Testimony
from pianissimo.errors import (
    ConfigError,
    DamageError,
    LeaseError,
    ParameterError,
    RollbackError,
    StateError,
    StoreError,
)
from pianissimo.ledger.entries import now_text
from pianissimo.noise import Noise, Secret
from pianissimo.noise.name_keys import names_root
from pianissimo.storage.files import check_key_path, reason, write_once
from pianissimo.storage.purpose_keys import Keys
from pianissimo.stream import Stream, StreamPlan

NAMES = 1
"""How users and values are named: from the names key; of a life whose record says nothing, from the noise."""


@dataclass(frozen=True)
class Request:
    """What is asked of a durable stream. A plan is made when the stream begins; later it is read from the store."""

    stream: Stream
    stored: StreamPlan | None = None
    """The plan that was chosen when the stream began."""

    @cached_property
    def plan(self) -> StreamPlan:
        """The plan that is stored; the best one, as of this version, for a stream that begins."""
        return self.stream.plan() if self.stored is None else self.stored

    @property
    def clock(self) -> dict[str, Any]:
        """The public clock."""
        tick, calendar = self.stream.tick, self.stream.calendar
        found = {
            "tick_seconds": tick.total_seconds() if isinstance(tick, timedelta) else tick,
            "origin": None if calendar is None else calendar.start(1).isoformat(),
        }
        return found if self.stream.time_zone == "UTC" else found | {"time_zone": self.stream.time_zone}

    @property
    def text(self) -> str:
        """What is stored: what was asked, what was chosen, and in which way users are named."""
        plan, stream = self.plan, self.stream
        content = {"plan": plan.to_dict(), "chosen": plan.to_plain(), "stream": stream.to_plain(), "names": NAMES}
        return json.dumps(content, ensure_ascii=False)

    @property
    def digest(self) -> bytes:
        """A short name for all that a release depends on besides the data; part of the path of all noise."""
        clock = json.dumps(self.clock, sort_keys=True).encode()
        return hashlib.blake2b(self.plan.digest + clock, digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What a life begins with, after another one or as the first."""

    last_tick: int = 0
    since: int = 0
    positions: bytes = field(default=b"", repr=False)
    before: "Standing | None" = None
    """The life before, if it is in this store."""

    is_covered: bool = False
    """Whether the charge of the one before covers it too."""

    @property
    def after(self) -> int:
        """The number of the life before."""
        return 0 if self.before is None else self.before.record.number

    @property
    def step(self) -> str:
        """Of its failpoints."""
        return "create" if self.before is None else "recover"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Standing:
    """A store in which everything is as it was written, and where its newest life stands."""

    record: StreamRecord
    ring: KeyRing
    last: Seal | None

    @property
    def tick(self) -> int:
        """The last tick that is sealed."""
        return self.record.last_tick if self.last is None else self.last.tick

    @property
    def mac(self) -> bytes:
        """The digest that covers all that is sealed."""
        return self.record.mac if self.last is None else self.last.mac

    def __repr__(self) -> str:
        # A seal tells where the source was read to.
        return f"Standing({self.record.name!r}, tick={self.tick})"


def is_created(store: Journal) -> bool:
    """Whether there is a stream, and not only the intention of one."""
    return store.is_made() and bool(store.streams())


def chosen_plan(stream: Stream, place: Place, secret: Given = None) -> StreamPlan:
    """The plan of the stream at a place, as it is stored; the best one for a stream that has not begun there."""
    if place.exists():
        wiring = place.wired(secret, read_only=True)
        with closing(Journal(wiring.connect(create=False))) as store:
            if is_created(store):
                record, _ = open_record(store, wiring)
                return StreamPlan.from_plain(json.loads(record.config)["chosen"])
    return stream.plan()


def create_stream(store: Journal, wiring: Wiring, request: Request, *, create: bool) -> None:
    """The first life, or the rest of one that was cut off."""
    if not create:
        raise StoreError(f"there must be a stream at {store.place}, got none")
    if not store.is_made():
        wiring.check_unwitnessed()
    ring = ring_of(wiring.secret(create=True))
    told = cut_off(store, wiring, ring) if store.is_made() else None
    if told is None or told.tick:
        wiring.check_unwitnessed()
    begin_life(store, wiring, request, ring, Life())


def begin_life(store: Journal, wiring: Wiring, request: Request, ring: KeyRing, life: Life) -> StreamRecord:
    """Intend, reserve, testify, use, insert; each step is found done where this was cut off. See `charging`."""
    keys, before = ring.keys[0], life.before
    intention = _intended(store, ring, request, life)
    told = cut_off(store, wiring, ring, life.after)
    if told is not None and told.tick < life.last_tick:
        told = None  # more was shown than was known then: ticks go on after that, and it is no free case
    if intention.is_covered and told is None and not life.is_covered:
        # An intention is free or paid, never one after the other.
        intention = _intend(store, ring, request, life, intention)
    covered = before if intention.is_covered else None
    if covered is None:
        paid = None if before is None else before.record.receipt
        charge = intention.charge
        booked, user = reserve(wiring.ledger, intention, request.plan, before=paid)
        receipt = booked.text
        reach("charge.reserved")
        if (before is not None or life.last_tick) and user is not None and (told is None or user != told.incarnation):
            # Somebody accepts the loss of a life that was begun with this intention: it is paid, and so is the next.
            _intend(store, ring, request, life, intention)
            return begin_life(store, wiring, request, ring, life)
    else:
        charge, receipt = covered.record.charge, covered.record.receipt
    if told is None:
        told = Testimony(
            incarnation=secrets.token_bytes(16),
            tick=life.last_tick,
            positions=life.positions,
            since=life.since,
            begins=intention.name,
        )
        wiring.witness.append([told], ring)
    if covered is None:
        use(wiring.ledger, intention, told.incarnation)
        reach("charge.used")
    record = StreamRecord(
        incarnation=told.incarnation,
        number=intention.number,
        name=request.stream.name,
        config=request.text,
        config_digest=intention.config_digest,
        created=now_text("seconds"),
        last_tick=told.tick,
        since=told.since,
        positions=begin_closed(keys, told.incarnation, told.positions),
        charge=charge,
        receipt=receipt,
        covered=covered is not None,
        follows=b"" if before is None else before.mac,
    ).signed(keys)
    with store.writing(life.step):
        if [0, *(each.number for each in store.streams())][-1] != life.after:
            raise LeaseError("a life must be begun once, got another process that did so now; start again")
        if before is not None:
            last = store.last_seal(before.record.incarnation, before.ring)
            if (before.record if last is None else last).mac != before.mac:
                raise LeaseError("a life must follow the last seal, got another process that sealed since; start again")
            # Whoever still seals the life before writes nothing more.
            store.take_lease(before.record.incarnation, "recover", before.ring.keys[0])
        store.insert_stream(record, ring)
        reach(f"{life.step}.commit")
    return record


def _intended(store: Journal, ring: KeyRing, request: Request, life: Life) -> Intention:
    """What was intended, or is from now on."""
    found = store.intention(life.after) if store.is_made() else None
    known = ring.keys if life.before is None else (*ring.keys, *life.before.ring.keys)
    if found is None or not any(found.is_signed(keys) for keys in known):
        return _intend(store, ring, request, life, found)
    if not hmac.compare_digest(found.config_digest, request.digest):
        raise ConfigError(
            "a stream whose charge was begun must be created with the parameters it was begun with, got others; go "
            "back to them, or begin in another folder, which is charged anew: what was charged stays booked"
        )
    return found


def _intend(store: Journal, ring: KeyRing, request: Request, life: Life, aside: Intention | None = None) -> Intention:
    """A new intention, in the place of one of which no life came. Its name is no incarnation: copies have it too."""
    with store.writing("intend"):
        if not store.is_made():
            store.make()
        if store.intention(life.after) != aside:
            raise LeaseError("a life must be begun once, got another process that does so now; start again")
        made = Intention(
            number=1 + (life.after if aside is None else aside.number),
            name=secrets.token_bytes(16),
            config_digest=request.digest,
            is_covered=life.is_covered,
        ).signed(ring.keys[0])
        store.insert_intention(made)
        reach("intend.commit")
    return made


def cut_off(store: Journal, wiring: Wiring, ring: KeyRing, after: int = 0) -> Testimony | None:
    """What the witness was told of a life that is intended, if it has heard nothing since: then nothing was shown."""
    intention, head = store.intention(after), wiring.witness.head()
    own = (line for line in wiring.witness.lines(ring) if intention is not None and line.begins == intention.name)
    return next((line for line in own if (line.incarnation, line.tick) == head), None)


def check_start(
    store: Journal, wiring: Wiring, request: Request, heard: tuple[bytes, int] | None
) -> tuple[Standing, StreamPlan]:
    """All checks of a start, and the plan; `heard` is what the witness had to say before the store was looked at."""
    found = check_store(store, wiring)
    request = as_stored(request, found.record)
    check_receipt(found.record, wiring.ledger)
    check_witness(store, wiring, found, heard)
    return found, request.plan


def check_store(store: Journal, wiring: Wiring) -> Standing:
    """The store alone: its tables, its lives, and of the newest what came since its last stored state.

    So a start costs the same at any length. What came before carries digests of its own, which are checked where it is
    used: a seal where noise is bound to it, a release where it is read. That it is all there `verify` checks.
    """
    record, ring = open_record(store, wiring)
    with store.reading():
        store.check_tables()
        check_lives(store, ring)
        state = store.last_tick("snapshots", record.incarnation)
        last = check_seals(store, record, ring, since=state)
        check_rows(store, record, last, since=state)
    return Standing(record=record, ring=ring, last=last)


def open_record(store: Journal, wiring: Wiring) -> tuple[StreamRecord, KeyRing]:
    """The record of the newest life and its keys, if the secret is the right one."""
    record = store.streams()[-1]
    ring = open_ring(wiring.secret(create=False), record.incarnation, store.epochs(record.incarnation))
    record.check(ring.keys[0])
    return record, ring


def names_of_life(record: StreamRecord, ring: KeyRing) -> Noise | None:
    """Where the names of a life are; None where it was begun before names had a key, and has them from the noise."""
    version = json.loads(record.config).get("names", 0)
    if version not in (0, NAMES):
        raise StateError(f"users must be named as this version knows, got way {version}; use the version that began it")
    return names_root(names_key(record, ring), record.incarnation, record.config_digest) if version else None


def names_key(record: StreamRecord, ring: KeyRing) -> Secret:
    """What users and values are named with: that of the secret with which a life began, whatever came after it."""
    return ring.epoch(ring.number_at(record.last_tick)).user


def shards_root(record: StreamRecord, ring: KeyRing) -> Secret:
    """What the keys of all shards of a life follow from."""
    return ring.epoch(ring.number_at(record.last_tick)).shards


def write_shards_key(state: str, secret: Given, out: Path) -> None:
    """Write the shards key of the stream at a place to a new file, open to its owner alone."""
    record, ring = _opened(state, secret)
    if not Stream.from_plain(json.loads(record.config)["stream"]).shards > 1:
        raise StateError("a stream must have shards to have a shards key, got one that has its state whole")
    _write_key(out, Keys(shards_root(record, ring)).opener)


def write_names_key(state: str, secret: Given, out: Path) -> None:
    """Write the names key of the stream at a place to a new file, open to its owner alone."""
    record, ring = _opened(state, secret)
    if names_of_life(record, ring) is None:
        raise StateError("a stream must have a names key, got one that was begun before there was one")
    _write_key(out, names_key(record, ring))


def _opened(state: str, secret: Given) -> tuple[StreamRecord, KeyRing]:
    wiring = Place.of(state).wired(secret, read_only=True)
    with closing(Journal(wiring.connect(create=False))) as store:
        if not is_created(store):
            raise StoreError(f"there must be a stream at {store.place}, got none")
        return open_record(store, wiring)


def _write_key(out: Path, key: Secret) -> None:
    check_key_path("--out", out)
    try:
        if not write_once(out, bytes(key).hex().encode() + b"\n"):
            raise ParameterError(f"--out must be a file that is not there yet, got {out}")
    except OSError as error:
        raise StoreError(f"--out must be a file that can be written, got {reason(error)}: {out}") from None


def as_stored(request: Request, record: StreamRecord) -> Request:
    """What is asked, with the plan that was chosen when the stream began; refused where something else is asked now."""
    stored = json.loads(record.config)
    found = [f"stream.{name}" for name in request.stream.differences(Stream.from_plain(stored["stream"]))]
    if found:
        raise ConfigError(
            f"stream {record.name!r} must go on with the parameters that it was created with, got others for "
            f"{', '.join(found)}. Go back to them, or begin a new stream in another folder, which is charged anew"
        )
    # The record's keyed digest covers the plan and the name that it gave its noise, which a later version keeps.
    return replace(request, stored=StreamPlan.from_plain(stored["chosen"]))


def check_lives(store: Journal, ring: KeyRing) -> None:
    """Every life is as it was written, and follows the one before; given are the keys of the newest."""
    before = b""
    for record, own in store.lives(ring):
        record.check(own.keys[0])
        store.check_progress(record, own.keys[0])
        if not hmac.compare_digest(record.follows, before):
            raise DamageError(
                "a life must follow the last seal of the one before, got another: what was released is gone, or was "
                "put back to an older state; restore a backup"
            )
        last = store.last_seal(record.incarnation, own)
        before = record.mac if last is None else last.mac


def check_seals(
    store: Journal,
    record: StreamRecord,
    ring: KeyRing,
    *,
    since: int | None = None,
    look: Callable[[Seal], None] = lambda _: None,
) -> Seal | None:
    """Every seal carries its digest, follows the one before, and is of this configuration; gives the last.

    Given `since`, those after that tick, which must be sealed. `look` is called with each.
    """
    last: Seal | None = None
    tick, previous = check_removed(store, record, ring, whole=since is None)
    if since is not None:
        last = store.seal(record.incarnation, since, ring)
        if last is None:
            raise DamageError(f"the stored state of tick {since} must belong to a seal, got none; restore a backup")
        previous, tick = last.mac, last.tick
    for seal in store.seals(record.incarnation, ring, after=tick):
        tick += 1
        if seal.tick != tick:
            raise DamageError(f"tick {tick} must be sealed, got a gap before tick {seal.tick}; restore a backup")
        if not hmac.compare_digest(seal.previous, previous):
            raise DamageError(f"the seal of tick {tick} must follow the one before, got another; restore a backup")
        if seal.config_digest != record.config_digest or seal.epoch != ring.number_at(tick):
            raise DamageError(f"the seal of tick {tick} must be of this stream and its keys, got others")
        look(seal)
        previous, last = seal.mac, seal
    return last


def check_rows(
    store: Journal,
    record: StreamRecord,
    last: Seal | None,
    after: StreamRecord | None = None,
    *,
    since: int | None = None,
) -> None:
    """Refuse rows of a life that belong to no seal, or are lacking; given is the life after it, if there is one.

    Given `since`, a tick that has a release, of seals and releases those after it are looked at.

    What ends a life early is a loss that somebody accepted: the next one begins behind all that was ever released, so
    that between the two ticks may be lacking. All that was visible of the earlier one must be there.
    """
    first = record.last_tick
    left = first + 1 if (removed := store.removed_tick(record.incarnation)) is None else removed + 1
    sealed = first if last is None else last.tick
    if after is not None and sealed > after.last_tick:
        raise DamageError("a stream that was recovered must go on after all that was sealed, got an earlier tick")
    begin = left if since is None else since
    released = store.ticks("releases", record.incarnation, after=begin - 1)
    end = begin + len(released) - 1
    is_short = end < max(begin - (since is None), sealed - MOST_TOGETHER)
    if released != [*range(begin, end + 1)] or end > sealed or is_short:
        raise DamageError("every sealed tick but the last ones must have one release, got others; restore a backup")
    visible = store.visible(record.incarnation)
    if not first <= visible <= end:
        raise DamageError("what is visible must be released, got another tick; restore a backup")
    snapshots = store.ticks("snapshots", record.incarnation)
    if len(snapshots) > 1 or not all(first < tick <= end for tick in snapshots):
        raise DamageError("a stored state must be of the last ticks, got others; restore a backup")
    state = snapshots[0] if snapshots else first
    if store.ticks("deltas", record.incarnation) != [*range(state + 1, sealed + 1)]:
        raise DamageError("each tick since the stored state must have what it adds, got others; restore a backup")
    history = store.ticks("history", record.incarnation)
    if history and history != [*range(history[0], end + 1)]:
        # With a row less, windows would lay the same noise over the moves of other ticks.
        raise DamageError("the history must have every tick up to the last release, got others; restore a backup")
    for table, lowest in (("history", first + 1), ("checkpoints", first + 1), ("outbox", first)):
        if not all(lowest <= tick <= end for tick in store.ticks(table, record.incarnation)):
            raise DamageError(f"the {table} must be of released ticks, got others; restore a backup")


def check_witness(store: Journal, wiring: Wiring, found: Standing, heard: tuple[bytes, int] | None) -> None:
    """Refuse a store that its witness has seen further ahead, or that has other seals than the witness saw."""
    if heard is None:
        raise RollbackError(
            "the witness of the stream must be there, since it has been running, got none; bring it back, or begin "
            "a new life, which is charged anew, with: pianissimo recover DIR --accept-lost-witness"
        )
    incarnation, tick = heard
    if cut_off(store, wiring, found.ring, found.record.number) is not None:
        raise RollbackError(
            "a recovery that was begun must be finished, got one that was cut off; type its command once more, "
            "or: pianissimo recover DIR --accept-rollback"
        )
    if incarnation != found.record.incarnation or tick > found.tick:
        raise RollbackError(
            f"the store must be at tick {tick} or later, which its witness has seen, got tick {found.tick}: it was "
            "rolled back; bring the newer one back, or accept the loss with: pianissimo recover DIR --accept-rollback"
        )
    seen = next((line for line in wiring.witness.lines(found.ring) if (line.incarnation, line.tick) == heard), None)
    if seen is None or not agrees(store, found, seen):
        raise RollbackError(
            f"tick {tick} must be sealed as its witness has seen it, got other events: the store was rolled back and "
            "has gone on; bring the right one back, or accept it with: pianissimo recover DIR --accept-rollback"
        )


def place_of(store: Journal, record: StreamRecord, ring: KeyRing, tick: int) -> bytes | None:
    """Where a tick of a life was read to, as it is stored; of the tick before its first, where it begins."""
    if tick == record.last_tick:
        return record.begin(ring.keys[0])
    seal = store.seal(record.incarnation, tick, ring)
    return None if seal is None else seal.positions


def agrees(store: Journal, found: Standing, line: Testimony) -> bool:
    """Whether the newest life of a store holds a tick as the witness has seen it."""
    if line.incarnation != found.record.incarnation or line.tick > found.tick:
        return False
    if line.tick == found.record.last_tick:
        return True
    bound = store.bound(found.record.incarnation, line.tick, found.ring)
    return bound is not None and hmac.compare_digest(bound[1], line.mac)
