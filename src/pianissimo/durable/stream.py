"""A stream that can be killed at any instant: seal, release, witness, publish.

A tick goes through four steps, each durable before the next begins. SEAL fixes the events of the tick in one
transaction. RELEASE stores the bytes that everybody will get; they follow from what is sealed and from the secret, so
that a crash in between changes nothing. WITNESS writes down, outside the store, how far the stream has come. PUBLISH
lets readers and sinks have the stored bytes. Nothing of a tick leaves the process before its release is on the disk,
and no noise is drawn before the data that it covers are sealed.
"""

import contextlib
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pianissimo import codec
from pianissimo.durable.carried import Carried
from pianissimo.durable.charging import use_within
from pianissimo.durable.creation import check_creatable, create_stream, is_created
from pianissimo.durable.failpoints import reach
from pianissimo.durable.keys import KeyRing
from pianissimo.durable.noise import SealedNoise
from pianissimo.durable.place import OneCaller, Wiring
from pianissimo.durable.publish import EarlierLife, Publisher, Sink
from pianissimo.durable.records import Seal, StoredRelease, StreamRecord
from pianissimo.durable.soundness import take_lease
from pianissimo.durable.start import Found, check_start
from pianissimo.durable.store import StateStore
from pianissimo.durable.witness import Testimony
from pianissimo.errors import (
    DamageError,
    DiskFullError,
    HorizonError,
    InputError,
    LeaseError,
    ParameterError,
    PendingError,
    PianissimoError,
    RefusalError,
    StateError,
    StoreError,
    SyncError,
    UnknownCommitError,
)
from pianissimo.ledger import Charge
from pianissimo.mechanism import Guard
from pianissimo.noise import KeyedNoise, Noise, Secret
from pianissimo.stream import Live, StreamPlan, StreamRelease
from pianissimo.stream.live import live_parts
from pianissimo.stream.release import payload_of, release_of

SNAPSHOT_EVERY = 8
"""The state is stored whole after every so many ticks, and what each tick added in between."""

_NO_STATE = b""
_MOST_MACS = 4096

Gathered = list[list[codec.Plain]]
"""For each part of the stream what each batch of a tick adds."""


@dataclass(slots=True, repr=False)
class _OpenTick:
    """A tick between its seal and its publication."""

    seal: Seal
    gathered: Gathered
    release: StreamRelease | None = None
    stored: StoredRelease | None = None
    snapshot: bytes | None = None
    history: bytes | None = None
    is_stored: bool = False
    is_witnessed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a start found and did, without a number of events.

    >>> Recovered(created=True, tick=0, snapshot_tick=0, replayed=0, finished=None).replayed
    0
    """

    created: bool
    """Whether the stream is new."""

    tick: int
    """The last tick that is released."""

    snapshot_tick: int
    replayed: int
    """How many ticks were counted again from what they had added."""

    finished: int | None
    """The tick that was sealed and is released now, if there was one."""


class DurableStream(Live):
    """A running stream whose every tick is stored. `Stream.open` makes one; use it in a `with`, or `close` it.

    `tick` counts the events of one tick, seals it and releases it. If it raises before the seal, nothing was counted
    and it may be called again; if it raises a `PendingError`, the tick is sealed, and `finish` releases it. Events that
    come in many batches are given to `absorb`, which keeps what they add, and `seal` closes the tick.
    """

    def __init__(
        self,
        plan: StreamPlan,
        config: dict[str, Any],
        wiring: Wiring,
        *,
        create: bool = True,
        cap: Charge | None = None,
        take_over: bool = False,
        snapshot_every: int = SNAPSHOT_EVERY,
        sinks: Sequence[Sink] = (),
        publish_at_once: bool = True,
        read_only: bool = False,
        make_noise: Callable[[Secret], Noise] = KeyedNoise,
    ) -> None:
        if not snapshot_every >= 1:
            raise ParameterError(f"snapshot_every must be at least 1, got {snapshot_every}")
        self.plan = plan
        self._wiring = wiring
        self._snapshot_every = snapshot_every
        self._publish_at_once = publish_at_once and not read_only
        self._read_only = read_only
        self._make_noise = make_noise
        self._lock: OneCaller = OneCaller()
        self._guard = Guard()
        self._absorbed: list[list[codec.Plain]] = []
        """For each batch what it adds to each part."""

        self._is_closed = False
        self._open_tick: _OpenTick | None = None
        self._unsure: tuple[Seal, Gathered, UnknownCommitError] | None = None
        self._lease = 0
        self._ring: KeyRing
        self._record: StreamRecord
        self._roots: dict[int, Noise] = {}
        self._store = StateStore(wiring.opened(create=create))
        try:
            if read_only:
                # One state of the store, whatever its writer does meanwhile.
                self._store.connection.begin_read()
            else:
                self._process_lock = wiring.held(self._store.connection, take_over=take_over)
                reach("checkpoint.before")
                self._store.connection.settle()
                reach("checkpoint.after")
            created = not is_created(self._store)
            if created:
                check_creatable(self._store, wiring, create=create)
                create_stream(self._store, wiring, plan, config, cap)
            found = check_start(self._store, wiring, plan, config, writable=not read_only)
            self._take_over(found)
            self._publisher = Publisher(
                self._store,
                self._record,
                self._lease,
                self._checked_payload,
                sinks,
                keys=self._ring.keys[0],
                earlier=() if read_only else self._earlier_lives(),
            )
            self._publisher.check_not_behind(self._tick)
            self.recovered = self._recover(found, created=created)
            # Other threads may read from now on, each time what is stored then.
            self._store.connection.rollback()
        except BaseException:
            self.close()
            raise

    @property
    def tick_number(self) -> int:
        """The last tick that is released and witnessed; of a stream opened to be read, that readers see."""
        return min(self._tick, self._visible) if self._read_only else self._tick

    @property
    def incarnation(self) -> str:
        """The name of this life of the stream: part of the path of all its noise."""
        return self._record.incarnation.hex()

    @property
    def position(self) -> Any:
        """What was given as `position` with the last sealed tick, or None."""
        return codec.unpack("positions", 1, self._positions) if self._positions else None

    @property
    def pending(self) -> int | None:
        """The tick that is sealed and not wholly released yet."""
        return None if self._open_tick is None else self._open_tick.seal.tick

    def tick(self, batch: object = None, *, drop_bad_rows: bool = False, position: Any = None) -> StreamRelease:
        """Count the events of one tick, all or none of them, seal, and publish.

        `position` is plain data that says where the source was read to; it is sealed with the tick.
        """
        return self.tick_of([batch], drop_bad_rows=drop_bad_rows, position=position)

    def tick_of(self, batches: Sequence[object], *, drop_bad_rows: bool = False, position: Any = None) -> StreamRelease:
        """As `tick`, for a tick whose events come in several batches."""
        inputs = [self._inputs(batch, drop_bad_rows=drop_bad_rows) for batch in batches]
        with self._lock:
            self._check_open()
            # Whatever the last call was given is sealed now, or it is not and these events come in its place.
            self._settle_doubt()
            if self._absorbed:
                raise StateError("events that were absorbed must be sealed or discarded first, got a whole tick")
            try:
                for content in inputs:
                    self._gather(content)
                with self._guard:
                    self._seal_tick(position)
            finally:
                self._absorbed = []
            return self._finish()

    def absorb(self, batch: object, *, drop_bad_rows: bool = False) -> None:
        """Keep what some events of the open tick add, in memory: nothing is counted before `seal`."""
        inputs = self._inputs(batch, drop_bad_rows=drop_bad_rows)
        with self._lock:
            self._check_open()
            if self._unsure is not None:
                raise StateError("a tick whose seal is in doubt must be sealed first, got more events; call seal()")
            self._gather(inputs)

    def discard(self) -> None:
        """Forget what was absorbed; its source gives it again."""
        with self._lock:
            self._check_not_closed()
            # In doubt, they may be sealed: then its source must not give them again.
            self._settle_doubt()
            self._absorbed = []

    def seal(self, position: Any = None) -> StreamRelease:
        """Seal and release the tick of all that was absorbed. Where there was no room, it may be called again."""
        with self._lock:
            self._check_open()
            if self._unsure is not None:
                self._look_again()
            if self._open_tick is None:
                with self._guard:
                    self._seal_tick(position)
            self._absorbed = []
            return self._finish()

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise StateError("a stream that was closed must be opened again; start anew")

    def _check_open(self) -> None:
        self._check_not_closed()
        if self._read_only:
            raise StateError("a stream must be open for writing to count events, got one opened to be read")
        if self._open_tick is not None:
            raise PendingError(f"tick {self._open_tick.seal.tick} must be finished first, got another; call finish()")
        if self._tick - self._record.last_tick >= self.plan.horizon:
            raise HorizonError(f"all {self.plan.horizon} releases are made; start a new stream")

    def _look_again(self) -> None:
        with contextlib.suppress(StoreError), self._guard:
            self._look()
        if self._unsure is not None:
            raise DiskFullError("the store must say whether the last tick is sealed, got no answer; try again")

    def _settle_doubt(self) -> None:
        """Look whether the last seal happened, if that is not known; refused where it did, or nobody can tell."""
        if self._unsure is None:
            return
        self._look_again()
        if self._open_tick is not None:
            raise PendingError(
                f"tick {self._open_tick.seal.tick} was sealed after all, with the events given before; "
                "call finish(), and do not give them again"
            ) from DiskFullError("its commit failed for want of room")

    def _gather(self, inputs: list[Any]) -> None:
        try:
            with self._guard:
                gathered = [part.gather(content) for part, content in zip(self._parts, inputs, strict=True)]
                # For all parts in one step, and guarded: an interrupt must not leave a batch in some of them.
                self._absorbed.append(gathered)
        except InputError:
            self._guard.forgive()
            raise

    def finish(self) -> StreamRelease:
        """Release the tick that is sealed, from where it was left."""
        with self._lock:
            self._check_not_closed()
            if self._unsure is not None:
                self._look_again()
            if self._open_tick is None:
                raise StateError("a tick must be sealed to be finished, got none")
            self._absorbed = []
            return self._finish()

    def publish(self) -> None:
        """Let readers see all that is released, and send the stored bytes to the sinks that lack them."""
        with self._lock:
            self._check_not_closed()
            if self._read_only:
                raise StateError("a stream must be open for writing to publish, got one opened to be read")
            self._publish()

    def _publish(self) -> None:
        try:
            self._check_witnessed()
            self._publisher.publish(self._tick)
        except (SyncError, LeaseError, RefusalError):
            self._guard.close("a stream whose store failed must not go on in this process")
            raise

    @property
    def visible_tick(self) -> int:
        """The last tick that readers see."""
        with self._lock:
            self._check_not_closed()
            return self._store.visible(self._record.incarnation)

    def released(self, tick: int) -> StreamRelease:
        """What was released for an earlier tick."""
        return release_of(self.payload(tick))

    def payload(self, tick: int) -> bytes:
        """The bytes of an earlier release, as they were stored."""
        with self._lock:
            self._check_not_closed()
            # One that is stored and not witnessed yet could be sealed again with other events, from a backup.
            if not self._record.last_tick < tick <= self.tick_number:
                raise self._not_released(tick)
            return self._checked_payload(tick)

    def _not_released(self, tick: int) -> ParameterError:
        return ParameterError(f"tick must be one of the released ones, up to {self.tick_number}, got {tick}")

    def _checked_payload(self, tick: int) -> bytes:
        return self._stored_payload(self._record, self._ring, tick)

    def _stored_payload(self, record: StreamRecord, ring: KeyRing, tick: int) -> bytes:
        stored = self._store.release(record.incarnation, tick)
        seal = self._store.seal(record.incarnation, tick, ring)
        if stored is None or seal is None:
            raise self._not_released(tick)
        stored.check(ring.epoch(seal.epoch), seal)
        return stored.payload

    def _earlier_lives(self) -> list[EarlierLife]:
        """The incarnations before this one that have shown something."""
        found = []
        for record, ring in self._store.lives(self._ring)[:-1]:
            visible = self._store.visible(record.incarnation)
            if visible > record.last_tick:
                payload = partial(self._stored_payload, record, ring)
                found.append(EarlierLife(record, visible, ring.keys[0], payload))
        return found

    def between(self, start: int, end: int) -> StreamRelease:
        """What ticks start + 1 .. end added, for the queries that answer intervals and were published at both ends."""
        first = self._record.last_tick
        with self._lock:
            self._check_not_closed()
            if not first <= start < end <= self.tick_number:
                raise ParameterError(
                    f"an interval must lie within ticks {first} to {self.tick_number}, got {start} to {end}"
                )
            tables = {
                name: table
                for part in self._parts
                for name, table in part.tables_between(start - first, end - first).items()
            }
        if not tables:
            raise ParameterError(
                "an interval must begin and end at ticks where a query is published that tells them, got others"
            )
        return StreamRelease(tick=end, coverage=self.plan.coverage, tables=tables)

    def rotate_secret(self, secret: Secret) -> None:
        """Begin an epoch with a new secret: what is sealed and drawn from the next tick on depends on it alone.

        The secrets before stay in the store, closed under the new one, for as long as nodes of theirs are in use.
        """
        with self._lock:
            self._check_not_closed()
            # A seal that is there after all is of the keys before.
            self._settle_doubt()
            if self._open_tick is not None:
                raise PendingError("a tick must be finished before a rotation, got one that is not; call finish()")
            if secret in self._ring.secrets:
                raise ParameterError("a new secret must not have been used before, got an old one")
            with self._guard:
                ring = self._ring.rotated(secret, self._tick + 1)
                with self._store.writing("rotate"):
                    # A seal that nobody here knows of would be of the keys before.
                    self._check_turn(self._tick + 1)
                    self._store.insert_epoch(self._record.incarnation, ring.row(self._record.incarnation))
                    reach("rotate.commit")
                self._ring = ring
                last = self._store.last_seal(self._record.incarnation, ring)
                if last is not None:
                    self._testify(last)

    def close(self) -> None:
        """Let go of the store. What is sealed is released at the next start."""
        # A tick in another thread comes to its end first; one's own, from a signal or a sink, is cut off.
        with self._lock.even_within():
            self._is_closed = True
            self._guard.close("a stream that was closed must be opened again")
            store = getattr(self, "_store", None)
            if store is not None:
                store.close()
            lock = getattr(self, "_process_lock", None)
            if lock is not None:
                lock.release()

    def __enter__(self) -> "DurableStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DurableStream({self.plan.name!r}, tick={self._tick} of {self._record.last_tick + self.plan.horizon})"

    def _take_over(self, found: Found) -> None:
        """Take the lease, and everything that the checks found."""
        self._record = found.record
        self._ring = found.ring
        self._ledger_head, self._ledger_spent = found.ledger_head, found.ledger_spent
        self._ledger_cap = found.ledger_cap
        self._carried = Carried.parse(found.record.base)
        self._mac = found.last.mac if found.last is not None else found.record.mac
        begin = found.record.begin(found.ring.keys[0])
        self._positions = begin if found.last is None else found.last.positions
        self._tick = found.record.last_tick if found.last is None else found.last.tick
        self._visible = self._store.visible(self._record.incarnation)
        if not self._read_only:
            self._take_lease()
        self._macs: dict[int, bytes] = {}
        self._parts = live_parts(
            self.plan,
            lambda every: SealedNoise(self._root_of, self._mac_of, first=self._record.last_tick, stride=every),
        )
        self._log_length = max(part.run.log_length * part.every for part in self._parts)

    def _take_lease(self) -> None:
        """Be the one that writes; the first time, use the charge."""
        owner = f"{platform.node()}:{os.getpid()}"
        with self._store.writing("lease"):
            use_within(self._store, self._ring, self._record)
            self._lease = take_lease(self._store, self._ring.keys[0], self._record.incarnation, owner)
            reach("lease.commit")

    def _root_of(self, tick: int) -> Noise:
        """The noise of a tick's epoch, at the path of this incarnation."""
        number = self._ring.number_at(tick)
        if number not in self._roots:
            noise = self._make_noise(self._ring.epoch(number).noise)
            self._roots[number] = noise.at("pianissimo/noise/v1", self._record.incarnation, self._record.config_digest)
        return self._roots[number]

    def _mac_of(self, tick: int) -> bytes:
        """The digest of the seal of a tick; read from the store and checked again where it is not at hand."""
        if tick == self._record.last_tick:
            return self._record.mac
        if tick not in self._macs:
            seal = self._store.seal(self._record.incarnation, tick, self._ring)
            if seal is None:
                raise DamageError(f"tick {tick} must be sealed before its noise is drawn, got no seal")
            self._remember(seal)
            return seal.mac
        return self._macs[tick]

    def _remember(self, seal: Seal) -> None:
        """Keep the digest of a seal at hand; of a long stream those that were used last."""
        self._macs[seal.tick] = seal.mac
        while len(self._macs) > _MOST_MACS:
            del self._macs[next(iter(self._macs))]

    def _recover(self, found: Found, *, created: bool) -> Recovered:
        """The state as of the last release: the last stored one and what each tick added since; then finish."""
        incarnation, first = self._record.incarnation, self._record.last_tick
        sealed, start = self._tick, first
        snapshot = self._store.snapshot(incarnation)
        content = _NO_STATE
        if snapshot is not None:
            start, content = self._opened_snapshot(*snapshot)
            self._load(content, start)
        self._state_digest = self._digest(content)
        if start > sealed:
            raise DamageError("a stored state must not be ahead of the seals, got one that is; restore a backup")
        finished = None
        for tick in range(start + 1, sealed + 1):
            seal = self._store.seal(incarnation, tick, self._ring)
            assert seal is not None  # noqa: S101  # the chain was checked
            if seal.state != self._state_digest:
                raise DamageError(f"the state before tick {tick} must be the sealed one, got another; restore a backup")
            gathered = self._opened_delta(seal)
            stored = self._store.release(incarnation, tick)
            self._tick = tick - 1
            self._open_tick = _OpenTick(seal, gathered)
            if stored is None:
                if tick != sealed:
                    raise DamageError(f"tick {tick} must be released before the next is sealed, got no release")
                finished = tick
                if self._read_only:
                    self._compute()
                    self._open_tick = None
                else:
                    self._finish()
            else:
                self._compute(snapshot=False)  # it would be the last one stored
                self._check_same(stored, seal)
                self._open_tick = None
                self._tick = tick
        self._tick = sealed
        if found.last is not None and not self._read_only:
            self._testify(found.last)
        if self._publish_at_once:
            self._publish()
        return Recovered(
            created=created, tick=self._tick, snapshot_tick=start, replayed=sealed - start, finished=finished
        )

    def _check_same(self, stored: StoredRelease, seal: Seal) -> None:
        """What is released again from the sealed data must be what was stored."""
        stored.check(self._ring.epoch(seal.epoch), seal)
        assert self._open_tick is not None  # noqa: S101
        again = self._open_tick.stored
        assert again is not None  # noqa: S101
        if again.payload != stored.payload and not _same_content(again.payload, stored.payload):
            raise DamageError(
                f"the release of tick {stored.tick} must follow from what is sealed, got another; "
                "use the version that wrote it, or restore a backup"
            )

    def _seal_tick(self, position: Any) -> None:
        """T1: the absorbed events and no others are the tick's, for ever."""
        tick, incarnation = self._tick + 1, self._record.incarnation
        gathered: Gathered = [[batch[place] for batch in self._absorbed] for place in range(len(self._parts))]
        positions = b"" if position is None else codec.pack("positions", 1, position)
        content = codec.pack("delta", 1, gathered)
        epoch = self._ring.number_at(tick)
        keys = self._ring.epoch(epoch)
        seal = Seal(
            incarnation=incarnation,
            tick=tick,
            epoch=epoch,
            previous=self._mac,
            positions=positions or self._positions,
            counts=keys.digest("delta", content),
            state=self._state_digest,
            config_digest=self._record.config_digest,
        ).signed(keys)
        closed = keys.closed(content, "delta", incarnation, tick, seal.mac)
        try:
            with self._store.writing("seal"):
                reach("seal.begin")
                self._check_turn(tick)
                tail = None if self._record.receipt else self._store.ledger_tail(after=self._ledger_head)
                self._store.insert_seal(seal, keys)
                self._store.insert_delta(incarnation, tick, closed)
                reach("seal.commit")
        except UnknownCommitError as error:
            self._unsure = (seal, gathered, error)
            self._look()
            return
        except (SyncError, LeaseError, RefusalError):
            raise
        except StoreError:
            # Rolled back: nothing of this tick is written or counted.
            self._guard.forgive()
            raise
        # Others charge this ledger too; the witness names the entry that was the last when the tick was sealed.
        self._ledger_head, self._ledger_spent = tail or (self._ledger_head, self._ledger_spent)
        self._is_sealed(seal, gathered)

    def _is_sealed(self, seal: Seal, gathered: Gathered) -> None:
        self._mac, self._positions = seal.mac, seal.positions
        self._remember(seal)
        self._open_tick = _OpenTick(seal, gathered)

    def _check_turn(self, tick: int) -> None:
        """What must hold in the store for a tick to be sealed; in the transaction that seals it."""
        incarnation = self._record.incarnation
        self._store.connection.check_still_there()
        self._store.check_lease(incarnation, self._lease)
        last = self._store.last_seal(incarnation, self._ring)
        before = self._record.last_tick if last is None else last.tick
        mac = self._record.mac if last is None else last.mac
        if before != tick - 1 or mac != self._mac:
            raise LeaseError(f"tick {tick} must follow the last seal, got another process that sealed since")
        if last is not None:
            if last.positions != self._positions:
                raise DamageError(f"tick {tick} must begin where the last one ended, got another place")
            if not self._store.has_release(incarnation, last.tick):
                raise DamageError(f"tick {last.tick} must be released before the next is sealed, got no release")
        if self._record.receipt:
            return  # checked with the record: see `check_receipt`
        if not self._store.has_charge(self._record.charge):
            raise DamageError("a charge must cover the tick, got none in the ledger; restore a backup")

    def _look(self) -> None:
        """After a commit that may or may not have happened: look, now or, where that fails, before the next tick."""
        assert self._unsure is not None  # noqa: S101
        seal, gathered, error = self._unsure
        try:
            with self._store.settled():
                found = self._store.seal(seal.incarnation, seal.tick, self._ring)
        except (SyncError, RefusalError):
            raise
        except StoreError:
            self._guard.forgive()
            raise
        self._unsure = None
        if found is None:
            self._guard.forgive()
            kind = DiskFullError if error.full else StoreError
            raise kind(f"{error}; nothing was written, try again") from None
        if found.mac != seal.mac:
            raise LeaseError(f"tick {seal.tick} must be sealed once, got another process that sealed it") from None
        self._is_sealed(seal, gathered)

    def _finish(self) -> StreamRelease:
        """T2 to T4 of the open tick, each from where it was left."""
        opened = self._open_tick
        assert opened is not None  # noqa: S101
        if opened.stored is None:
            with self._guard:
                self._compute()
        try:
            if not opened.is_stored:
                self._store_release(opened)
            if opened.is_witnessed:
                self._check_witnessed()
            else:
                self._store.connection.check_still_there()  # else nobody finds what would be witnessed and shown
                self._testify(opened.seal)
                opened.is_witnessed = True
        except (SyncError, LeaseError):
            self._guard.close("a stream whose store failed must not go on in this process")
            raise
        except StoreError as error:
            raise PendingError(
                f"tick {opened.seal.tick} is sealed and not released yet: {error}; call finish(), "
                "and do not give its events again"
            ) from error
        self._tick = opened.seal.tick
        self._open_tick = None
        if self._publish_at_once:
            self._publish_released()
        assert opened.release is not None  # noqa: S101
        return opened.release

    def _publish_released(self) -> None:
        """T4 of a tick that is stored and witnessed: whatever happens here, that tick has not failed."""
        try:
            self._publish()
        except StoreError as error:
            if isinstance(error, SyncError):
                error.add_note(self._told_released())
                raise
            # Readers see the tick with the next one that can be written.
            self._publisher.faults["store"] = str(error)
        except PianissimoError as error:
            error.add_note(self._told_released())
            raise
        except Exception as error:  # noqa: BLE001
            # Of a sink, as a rule; the kind alone, since the text may hold anything.
            self._publisher.faults["store"] = f"what is released must be published, got {type(error).__name__}"
        except BaseException as error:
            error.add_note(self._told_released())
            raise

    def _told_released(self) -> str:
        return f"tick {self._tick} is released; do not give its events again"

    def _compute(self, *, snapshot: bool = True) -> None:
        """Count what is sealed, and make the bytes of the release."""
        opened = self._open_tick
        assert opened is not None  # noqa: S101
        tick, seal = opened.seal.tick, opened.seal
        place = tick - self._record.last_tick
        for part, gathered in zip(self._parts, opened.gathered, strict=True):
            for content in gathered:
                part.add(content)
        before = [part.run.tick for part in self._parts]
        tables = {name: table for part in self._parts for name, table in part.tables(place).items()}
        tables = self._carried.added_to(tables, self.plan, place)
        release = StreamRelease(tick=tick, coverage=self.plan.coverage, tables=tables, interval=self.between)
        payload = payload_of(
            release, stream=self.plan.name, incarnation=self._record.incarnation, since=self._carried.told
        )
        keys = self._ring.epoch(seal.epoch)
        stored = StoredRelease(incarnation=self._record.incarnation, tick=tick, payload=payload).signed(keys, seal)
        if self._log_length:
            logs = [
                part.run.log() if part.run.tick > ticks else None
                for part, ticks in zip(self._parts, before, strict=True)
            ]
            opened.history = codec.pack("history", 1, logs)
        if snapshot and tick % self._snapshot_every == 0:
            opened.snapshot = codec.pack("stream state", 1, [part.dump() for part in self._parts])
            self._state_digest = self._digest(opened.snapshot)
        opened.release = release
        reach("release.computed")
        opened.stored = stored
        opened.gathered = []

    def _store_release(self, opened: _OpenTick) -> None:
        """T2: the bytes that everybody gets."""
        assert opened.stored is not None  # noqa: S101
        incarnation, tick = self._record.incarnation, opened.seal.tick
        try:
            with self._store.writing("release"):
                self._store.check_lease(incarnation, self._lease)
                self._store.insert_release(opened.stored)
                self._publisher.enqueue(tick)
                keys = self._ring.epoch(opened.seal.epoch)
                if opened.history is not None:
                    closed = keys.closed(opened.history, "history", incarnation, tick, opened.seal.mac)
                    keep = self._log_length + self._snapshot_every
                    self._store.insert_history(incarnation, tick, closed, keep=keep)
                if opened.snapshot is not None:
                    closed = keys.closed(opened.snapshot, "snapshot", incarnation, tick, opened.seal.mac)
                    self._store.insert_snapshot(incarnation, tick, closed)
                reach("release.commit")
        except UnknownCommitError as error:
            # The same row again, or for the first time: inserting is harmless either way.
            with self._store.settled():
                is_there = self._store.has_release(incarnation, tick)
            if not is_there:
                raise (DiskFullError(str(error)) if error.full else error) from None
        opened.is_stored = True
        opened.snapshot = opened.history = None

    def _testify(self, seal: Seal) -> None:
        """T3: write down outside how far the stream has come."""
        if self._wiring.witness is not None:
            testimony = Testimony(
                incarnation=self._record.incarnation,
                tick=seal.tick,
                positions=seal.positions,
                mac=seal.mac,
                ledger_head=self._ledger_head,
                ledger_spent=self._ledger_spent,
                ledger_cap=self._ledger_cap,
                config_digest=self._record.config_digest,
            )
            self._wiring.witness.append(testimony, self._ring)

    def _check_witnessed(self) -> None:
        """Show nothing where the witness is not as this process has left it: another may show other ticks."""
        if self._wiring.witness is not None:
            self._wiring.witness.check()

    def _digest(self, content: bytes) -> bytes:
        return self._ring.epoch(0).digest("state", content)

    def _opened_snapshot(self, tick: int, closed: bytes) -> tuple[int, bytes]:
        seal = self._store.seal(self._record.incarnation, tick, self._ring)
        if seal is None:
            raise DamageError("a stored state must belong to a sealed tick, got one that does not; restore a backup")
        return tick, self._ring.epoch(seal.epoch).opened(closed, "snapshot", self._record.incarnation, tick, seal.mac)

    def _opened_delta(self, seal: Seal) -> Gathered:
        keys = self._ring.epoch(seal.epoch)
        closed = self._store.delta(self._record.incarnation, seal.tick)
        content = keys.opened(closed, "delta", self._record.incarnation, seal.tick, seal.mac)
        if keys.digest("delta", content) != seal.counts:
            raise DamageError(f"what tick {seal.tick} adds must be what was sealed, got another; restore a backup")
        gathered: Gathered = codec.unpack("delta", 1, content)
        if len(gathered) != len(self._parts):
            raise StateError("a stored tick must be of these queries, got others")
        return gathered

    def _load(self, content: bytes, tick: int) -> None:
        states = codec.unpack("stream state", 1, content)
        if len(states) != len(self._parts):
            raise StateError("a stored state must be of these queries, got others")
        logs = [self._opened_history(number, closed) for number, closed in self._history(tick)]
        for place, (part, state) in enumerate(zip(self._parts, states, strict=True)):
            part.load(state, [log[place] for log in logs if log[place] is not None])
        self._tick = tick

    def _history(self, tick: int) -> list[tuple[int, bytes]]:
        return self._store.history(self._record.incarnation, tick) if self._log_length else []

    def _opened_history(self, tick: int, closed: bytes) -> list[codec.Plain]:
        seal = self._store.seal(self._record.incarnation, tick, self._ring)
        if seal is None:
            raise DamageError(f"the history of tick {tick} must belong to a seal, got none; restore a backup")
        keys = self._ring.epoch(seal.epoch)
        content = keys.opened(closed, "history", self._record.incarnation, tick, seal.mac)
        logs: list[codec.Plain] = codec.unpack("history", 1, content)
        return logs


def _same_content(left: bytes, right: bytes) -> bool:
    """Whether two payloads say the same, however they are written."""
    one, other = release_of(left), release_of(right)
    return (one.tick, one.coverage, one.names) == (other.tick, other.coverage, other.names) and all(
        one[name].equals(other[name]) for name in one.names
    )
