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
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from pianissimo import codec
from pianissimo.checks import ticks_in
from pianissimo.durable.charging import cap_of
from pianissimo.durable.failpoints import reach
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import Given, KeyRing, SealedNoise
from pianissimo.durable.moved_places import base_of, packed_place, shortened, unpacked_place, whole_place
from pianissimo.durable.place import Place, Wiring
from pianissimo.durable.publish import Publisher, ShownLife, Sink
from pianissimo.durable.records import Seal, StoredRelease
from pianissimo.durable.start import (
    Request,
    Standing,
    check_start,
    check_witness,
    create_stream,
    is_created,
    place_of,
)
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
    RollbackError,
    StateError,
    StoreError,
    SyncError,
    UnknownCommitError,
)
from pianissimo.mechanism import Guard
from pianissimo.noise import KeyedNoise, Noise, Secret
from pianissimo.stream import Stream, StreamRelease
from pianissimo.stream.live import LiveCore
from pianissimo.stream.release import payload_of, release_of

SNAPSHOT_EVERY = 8
"""The state is stored whole after every so many ticks, and what each tick added in between."""

MOST_PUT_OFF = 8
"""A large state may be stored so many times as seldom, while what the ticks since have added is small beside it."""

SMALL_STATE = 2**20
"""A state of up to so many bytes is never put off."""

_SMALL_SHARE = 4

_NO_STATE = b""
_MOST_MACS = 4096

Gathered = list[list[codec.Plain]]
"""For each batch of a tick what it adds to each part of the stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a durable stream is opened."""

    create: bool = True
    """Whether it is begun where there is none."""

    take_over: bool = False
    """Whether it is taken from another process, which writes nothing any more."""

    snapshot_every: int = SNAPSHOT_EVERY
    sinks: Sequence[Sink] = ()
    sinks_beside: bool = False
    """Whether each sink is sent to in a thread of its own, so that no tick waits for one."""

    publish_at_once: bool = True
    read_only: bool = False
    make_noise: Callable[[Secret], Noise] = KeyedNoise

    def __post_init__(self) -> None:
        if not self.snapshot_every >= 1:
            raise ParameterError(f"snapshot_every must be at least 1, got {self.snapshot_every}")


@dataclass(slots=True, repr=False)
class _OpenTick:
    """A tick between its seal and its publication."""

    seal: Seal
    gathered: Gathered
    release: StreamRelease | None = None
    stored: StoredRelease | None = None
    snapshot: bytes | None = None
    history: bytes | None = None
    checkpoint: bytes | None = None
    is_stored: bool = False
    is_witnessed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a start found and did, without a number of events."""

    created: bool
    """Whether the stream is new."""

    replayed: int
    """How many ticks were counted again from what they had added."""

    finished: int | None
    """The tick that was sealed and is released now, if there was one."""


class OneCaller:
    """Other threads wait; a call amid another of the same thread, as from a signal or a sink, is refused.

    So is one of a forked child, at once: whatever thread of its parent held the lock is not there to let go.
    """

    __slots__ = ("_guard", "_inside", "lock")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        # Its owner may take it again, so that an interrupt that leaves it taken does not hang its own thread.
        self.lock = threading.RLock()
        """Itself, for what must be possible always: to let go. Other threads are waited for, one's own call is not."""

        self._inside = False

    def __enter__(self) -> None:
        self._guard.check_process()
        self.lock.acquire()
        try:
            self._check_outside()
            self._inside = True
        except BaseException:
            self.lock.release()
            raise

    def _check_outside(self) -> None:
        if self._inside:
            raise StateError("a stream must be used by one caller at a time, got a call in the middle of another")

    def __exit__(self, *_: object) -> None:
        self._inside = False
        self.lock.release()


class DurableStream:
    """A running stream whose every tick is stored. `Stream.open` makes one; use it in a `with`, or `close` it.

    `tick` counts the events of one tick, seals it and releases it; events that come in many batches are given to `add`
    first. If `tick` raises before the seal, what it was given is not counted, and it may be called again. If it raises
    a `PendingError`, the tick is sealed, and `finish` releases it.
    """

    def __init__(self, request: Request, wiring: Wiring, options: Options = Options()) -> None:  # noqa: B008
        self._wiring = wiring
        self._options = options
        self._guard = Guard()
        self._lock = OneCaller(self._guard)
        self._added: Gathered = []
        """For each batch of the open tick what it adds to each part."""

        self._is_closed = False
        self._open_tick: _OpenTick | None = None
        self._unsure: tuple[Seal, Gathered, UnknownCommitError] | None = None
        self._ring: KeyRing
        self._tick: int
        self._base: tuple[int, Any] | None = None
        """The tick whose place the next ones differ from, and that place."""

        self._publisher: Publisher
        self._lease = 0
        self._stored_tick = self._stored_bytes = self._added_bytes = self._sealing_bytes = 0
        """The tick and the size of the last stored state, and the sizes of what is sealed since, and about to be."""

        self._stored_lasting: set[int] = set()
        """Of which ticks that state needs checkpoints."""

        self._roots: dict[int, Noise] = {}
        self._macs: dict[int, bytes] = {}
        # Before the store is looked at: so it is never ahead of a store that is being written.
        heard = wiring.witness.head() if options.read_only else None
        self._store = Journal(wiring.connect(create=options.create))
        try:
            if options.read_only:
                # One state of the store, whatever its writer does meanwhile.
                self._store.connection.begin_read()
            else:
                self._process_lock = wiring.lock(self._store.connection, take_over=options.take_over)
                reach("checkpoint.before")
                self._store.connection.settle()
                reach("checkpoint.after")
            created = not is_created(self._store)
            if created:
                create_stream(self._store, wiring, request, create=options.create)
            heard = heard if options.read_only else wiring.witness.head()
            found, self.plan = check_start(self._store, wiring, request, heard)
            if not options.read_only:
                self._lease = self._take_lease(found)
            if options.take_over:
                # Whoever had it seals nothing more, but may have sealed since it was looked at.
                found, self.plan = check_start(self._store, wiring, request, wiring.witness.heard_anew())
            self._take_over(found)
            self.recovered = self._recover(found, created=created)
            # Other threads may read from now on, each time what is stored then.
            self._store.connection.rollback()
        except BaseException:
            self.close()
            raise

    @property
    def tick_number(self) -> int:
        """The last tick that is released and witnessed; of a stream opened to be read, that readers see."""
        return min(self._tick, self._visible) if self._options.read_only else self._tick

    @property
    def incarnation(self) -> str:
        """The name of this life of the stream: part of the path of all its noise."""
        return self._record.incarnation.hex()

    @property
    def position(self) -> Any:
        """What was given as `position` with the last sealed tick, or None."""
        return unpacked_place(self._whole_place(self._positions))

    @property
    def since(self) -> int:
        """The totals count all events after this tick: 0, or where an earlier life was lost and this one begins."""
        return self._record.since

    @property
    def read_tick(self) -> int:
        """The last tick whose events are all read: `position` is where it ended."""
        return self._record.since if self._tick == self._record.last_tick else self._tick

    @property
    def pending(self) -> int | None:
        """The tick that is sealed and not wholly released yet."""
        return None if self._open_tick is None else self._open_tick.seal.tick

    def add(self, batch: object = None, *, time: str | None = None, drop_bad_rows: bool = False) -> None:
        """Keep what some events of the open tick add, in memory: nothing is counted before `tick`."""
        with self._lock:
            self._check_open()
            inputs = self._core.inputs(batch, self._tick + 1, time=time, drop_bad_rows=drop_bad_rows)
            if self._unsure is not None:
                raise StateError("a tick whose seal is in doubt must be sealed first, got more events; call tick()")
            self._gather(inputs)

    def tick(
        self, batch: object = None, *, time: str | None = None, drop_bad_rows: bool = False, position: Any = None
    ) -> StreamRelease:
        """Close the tick: count what was added and this batch, all or none of it, seal, and publish.

        `position` is plain data that says where the source was read to; it is sealed with the tick, and needed once a
        tick had one. For `time` see `Live.tick`.
        """
        whole = packed_place(position)
        with self._lock:
            self._check_open()
            positions = whole if self._base is None else shortened(whole, position, *self._base)
            if not positions and self._positions:
                raise StateError(
                    "position must be given where a source has fed the stream, got None: the source would lose or "
                    "repeat rows; go on with `pianissimo run`, or give position=live.position if they are not wanted"
                )
            options: Any = {"time": time, "drop_bad_rows": drop_bad_rows}
            inputs = None if batch is None else self._core.inputs(batch, self._tick + 1, **options)
            # Whatever the last call was given is sealed now, or it is not and these events come in its place.
            self._settle_doubt()
            before = len(self._added)
            try:
                if inputs is not None:
                    self._gather(inputs)
                with self._guard:
                    self._seal_tick(positions)
            except BaseException:
                del self._added[before:]
                raise
            return self._finish()

    def finish(self) -> StreamRelease:
        """Release the tick that is sealed, from where it was left."""
        with self._lock:
            self._check_not_closed()
            self._look_again()
            if self._open_tick is None:
                raise StateError("a tick must be sealed to be finished, got none")
            return self._finish()

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise StateError("a stream that was closed must be opened again; start anew")

    def _check_open(self) -> None:
        self._check_not_closed()
        if self._options.read_only:
            raise StateError("a stream must be open for writing to count events, got one opened to be read")
        if self._open_tick is not None:
            raise PendingError(f"tick {self._open_tick.seal.tick} must be finished first, got another; call finish()")
        if self._tick - self._record.last_tick >= self.plan.horizon:
            raise HorizonError(f"all {self.plan.horizon} releases are made; start a new stream")

    def _look_again(self) -> None:
        """Look whether the last seal happened, if that is not known."""
        if self._unsure is None:
            return
        with contextlib.suppress(StoreError), self._guard:
            self._look()
        if self._unsure is not None:
            raise DiskFullError("the store must say whether the last tick is sealed, got no answer; try again")

    def _settle_doubt(self) -> None:
        """The same; refused where it did, or nobody can tell."""
        is_unsure = self._unsure is not None
        self._look_again()
        if is_unsure and self._open_tick is not None:
            raise PendingError(
                f"tick {self._open_tick.seal.tick} was sealed after all, with the events given before; "
                "call finish(), and do not give them again"
            ) from DiskFullError("its commit failed for want of room")

    def _gather(self, inputs: list[Any]) -> None:
        try:
            with self._guard:
                # For all parts in one step, and guarded: an interrupt must not leave a batch in some of them.
                self._added.append(self._core.gather(inputs))
        except InputError:
            self._guard.forgive()
            raise

    def publish(self) -> None:
        """Let readers see all that is released, and send the stored bytes to the sinks that lack them."""
        with self._lock:
            self._check_not_closed()
            if self._options.read_only:
                raise StateError("a stream must be open for writing to publish, got one opened to be read")
            self._publish()

    def wait_for_sinks(self, seconds: float) -> None:
        """Until every sink beside the stream has all that is published, fails or hangs, at most so long.

        How far they came is stored then.
        """
        if self._options.sinks_beside:
            self._publisher.wait(seconds)
            self.publish()

    def _publish(self) -> None:
        try:
            self._wiring.witness.check()  # where it is not as this process left it, another may show other ticks
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
                raise ParameterError(f"tick must be one of the released ones, up to {self.tick_number}, got {tick}")
            return self._store.payload(self._record.incarnation, tick, self._ring)

    def window(self, length: object) -> StreamRelease:
        """What the last ticks added: `live.window("1h")`, or a number of ticks; see `Live.window`."""
        ticks = ticks_in(length, self.plan.tick)
        return self.between(max(self._record.last_tick, self.tick_number - ticks), self.tick_number)

    def between(self, start: int, end: int) -> StreamRelease:
        """What ticks start + 1 .. end added, for the queries that answer intervals and were published at both ends."""
        first = self._record.last_tick
        with self._lock:
            self._check_not_closed()
            if not first <= start < end <= self.tick_number:
                raise ParameterError(
                    f"an interval must lie within ticks {first} to {self.tick_number}, got {start} to {end}"
                )
            if self._open_tick is not None or self.tick_number < self._tick:
                # Counted already: which labels are shown would be that of a tick that could be sealed again.
                raise PendingError("a window must be asked for when all ticks are released, got one that is not yet")
            tables = self._core.between(start - first, end - first)
        return StreamRelease(tick=end, coverage=self.plan.coverage, tables=tables, **self.plan.span(start + 1, end))

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
                self._ring = self._publisher.own.ring = ring
                # Whole, and the next one too: the new secret alone must open it.
                self._base = None
                last = self._store.last_seal(self._record.incarnation, ring)
                if last is not None:
                    self._testify(last, whole=True)

    def close(self) -> None:
        """Let go of the store. What is sealed is released at the next start."""
        if not self._guard.is_at_home:
            self._store.close()  # which leaves a forked child's connection to its parent
            return
        # A tick in another thread comes to its end first; one's own, from a signal or a sink, is cut off.
        with self._lock.lock:
            self._is_closed = True
            self._guard.close("a stream that was closed must be opened again")
            for name in ("_publisher", "_store", "_process_lock"):
                if hasattr(self, name):
                    getattr(self, name).close()

    def __enter__(self) -> "DurableStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a live stream is not copied or pickled: two of it would share their noise")

    def __repr__(self) -> str:
        return f"DurableStream({self.plan.name!r}, tick={self._tick} of {self._record.last_tick + self.plan.horizon})"

    def _take_lease(self, found: Standing) -> int:
        """Be the one that seals: whoever did so before writes nothing more to the store."""
        with self._store.writing("lease"):
            owner = f"{platform.node()}:{os.getpid()}"
            self._store.make_later_tables()
            lease = self._store.take_lease(found.record.incarnation, owner, found.ring.keys[0])
            reach("lease.commit")
        return lease

    def _take_over(self, found: Standing) -> None:
        """Take everything that the checks found."""
        options = self._options
        self._record, self._ring, self._mac, self._tick = found.record, found.ring, found.mac, found.tick
        self._positions = found.record.begin(found.ring.keys[0]) if found.last is None else found.last.positions
        self._know_base(self._tick)
        self._visible = self._store.visible(self._record.incarnation)
        self._core = LiveCore(
            self.plan,
            lambda every: SealedNoise(self._root_of, self._mac_of, first=self._record.last_tick, stride=every),
            after=self._record.last_tick,
        )
        lives = [] if options.read_only else self._store.lives(self._ring)[:-1]
        shown = [ShownLife(record, ring, self._store.visible(record.incarnation)) for record, ring in lives]
        earlier = [life for life in shown if life.visible != life.record.last_tick]
        own = ShownLife(self._record, self._ring)
        connect = partial(self._wiring.connect, create=False, read_only=True) if options.sinks_beside else None
        self._publisher = Publisher(self._store, [*earlier, own], self._lease, options.sinks, connect)
        self._publisher.check_not_behind(self._tick)

    def _root_of(self, tick: int) -> Noise:
        """The noise of a tick's epoch, at the path of this incarnation."""
        number = self._ring.number_at(tick)
        if number not in self._roots:
            noise = self._options.make_noise(self._ring.epoch(number).noise)
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

    def _recover(self, found: Standing, *, created: bool) -> Recovered:
        """The state as of the last release: the last stored one and what each tick added since; then finish."""
        incarnation, first = self._record.incarnation, self._record.last_tick
        sealed, start = self._tick, first
        snapshot = self._store.snapshot(incarnation, self._ring)
        content = _NO_STATE
        if snapshot is not None:
            start, content = snapshot
            self._core.load(codec.unpack("stream state", 1, content), self._stored_logs(start))
        self._stored_tick, self._stored_bytes, self._stored_lasting = start, len(content), self._core.lasting
        self._state_digest = self._digest(content)
        finished = None
        for tick in range(start + 1, sealed + 1):
            seal = self._store.seal(incarnation, tick, self._ring)
            assert seal is not None  # noqa: S101  # the chain was checked
            if seal.state != self._state_digest:
                raise DamageError(f"the state before tick {tick} must be the sealed one, got another; restore a backup")
            gathered = self._opened_delta(seal)
            stored = self._store.release(incarnation, tick)
            self._tick = tick - 1
            opened = self._open_tick = _OpenTick(seal, gathered)
            if stored is None:
                if tick != sealed:
                    raise DamageError(f"tick {tick} must be released before the next is sealed, got no release")
                finished = tick
                if self._options.read_only:
                    self._compute(opened)
                    self._open_tick = None
                else:
                    self._finish()
            else:
                # A snapshot would be the last one stored.
                self._check_same(stored, seal, self._compute(opened, snapshot=False))
                self._open_tick = None
        self._tick = sealed
        if found.last is not None and not self._options.read_only:
            self._testify_again(found, found.last)
        if self._options.publish_at_once and not self._options.read_only:
            self._publish()
        return Recovered(created=created, replayed=sealed - start, finished=finished)

    def _check_same(self, stored: StoredRelease, seal: Seal, again: StoredRelease) -> None:
        """What is released again from the sealed data must be what was stored."""
        stored.check(self._ring.epoch(seal.epoch), seal)
        if again.payload != stored.payload and not _same_content(again.payload, stored.payload):
            raise DamageError(
                f"the release of tick {stored.tick} must follow from what is sealed, got another; "
                "use the version that wrote it, or restore a backup"
            )

    def _seal_tick(self, positions: bytes) -> None:
        """T1: the events that were added and no others are the tick's, for ever."""
        tick, incarnation = self._tick + 1, self._record.incarnation
        gathered = self._combined()
        content = codec.pack("delta", 1, gathered)
        self._sealing_bytes = len(content)
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
        try:
            with self._store.writing("seal"):
                reach("seal.begin")
                self._check_turn(tick)
                self._store.insert_seal(seal, keys)
                self._store.insert_content("deltas", seal, content, keys)
                reach("seal.commit")
        except UnknownCommitError as error:
            self._unsure = (seal, [*gathered], error)
            self._look()
            return
        except (SyncError, LeaseError, RefusalError):
            raise
        except StoreError:
            # Rolled back: nothing of this tick is written or counted.
            self._guard.forgive()
            raise
        self._is_sealed(seal, gathered)

    def _combined(self) -> Gathered:
        """What all batches add together: where they were cut enters neither the seal nor, by it, the noise."""
        return [self._core.combine(self._added)]

    def _is_sealed(self, seal: Seal, gathered: Gathered) -> None:
        self._mac, self._positions = seal.mac, seal.positions
        self._know_base(seal.tick)
        # What is sealed, and not what was tried: when a state is stored must not depend on that.
        self._added_bytes += self._sealing_bytes
        self._remember(seal)
        self._open_tick, self._added = _OpenTick(seal, gathered), []

    def _know_base(self, tick: int) -> None:
        """What the places of the next ticks differ from: that of this one, where it is stored whole."""
        if self._positions and base_of(self._positions) is None:
            self._base = (tick, unpacked_place(self._positions))

    def _whole_place(self, stored: bytes) -> bytes:
        return whole_place(stored, partial(place_of, self._store, self._record, self._ring))

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
            if not self._store.has("releases", incarnation, last.tick):
                raise DamageError(f"tick {last.tick} must be released before the next is sealed, got no release")

    def _look(self) -> None:
        """After a commit that may or may not have happened: look, now or, where that fails, before the next tick."""
        assert self._unsure is not None  # noqa: S101
        seal, gathered, error = self._unsure
        try:
            # One that is still under way is waited for.
            with self._store.connection.writing():
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
                self._compute(opened)
        try:
            if not opened.is_stored:
                self._store_release(opened)
            if opened.is_witnessed:
                self._wiring.witness.check()
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
        if self._options.publish_at_once:
            self._publish_released()
        assert opened.release is not None  # noqa: S101
        return opened.release

    def _publish_released(self) -> None:
        """T4 of a tick that is stored and witnessed: whatever happens here, that tick has not failed."""
        try:
            self._publish()
        except BaseException as error:
            if isinstance(error, StoreError) and not isinstance(error, SyncError):
                # Readers see the tick with the next one that can be written.
                self._publisher.store_fault = str(error)
            elif isinstance(error, Exception) and not isinstance(error, PianissimoError):
                # Of a sink, as a rule; the kind alone, since the text may hold anything.
                self._publisher.store_fault = f"what is released must be published, got {type(error).__name__}"
            else:
                error.add_note(f"tick {self._tick} is released; do not give its events again")
                raise

    def _compute(self, opened: _OpenTick, *, snapshot: bool = True) -> StoredRelease:
        """Count what is sealed, and make the bytes of the release."""
        tick, seal = opened.seal.tick, opened.seal
        place = tick - self._record.last_tick
        self._core.add(opened.gathered)
        tables = self._core.release(place)
        since = self.plan.since(tables, tick, first=self._record.last_tick, counted=self._record.since)
        told = self.plan.span(tick, tick) | {"since": since}
        release = StreamRelease(tick, self.plan.coverage, tables, self.between, **told)
        payload = payload_of(release, stream=self.plan.name, incarnation=self._record.incarnation)
        keys = self._ring.epoch(seal.epoch)
        stored = StoredRelease(incarnation=self._record.incarnation, tick=tick, payload=payload).signed(keys, seal)
        if self._core.log_length:
            opened.history = codec.pack("history", 1, self._core.logs(place))
            checkpoints = self._core.checkpoints(place)
            opened.checkpoint = None if checkpoints is None else codec.pack("checkpoint", 1, checkpoints)
        if snapshot and self._is_due(tick):
            opened.snapshot = codec.pack("stream state", 1, self._core.dump())
            self._state_digest = self._digest(opened.snapshot)
            self._stored_tick, self._stored_bytes, self._added_bytes = tick, len(opened.snapshot), 0
            self._stored_lasting = self._core.lasting
        opened.release = release
        reach("release.computed")
        opened.stored, opened.gathered = stored, []
        return stored

    def _is_due(self, tick: int) -> bool:
        """Whether the state is stored whole at a tick.

        To store a large state that has hardly changed takes longer than to count those changes again, and a start has
        a bound either way: so many ticks, which have added less than a part of the state. It depends on what is stored
        alone, so that a killed run and an undisturbed one give the same bytes.
        """
        every = self._options.snapshot_every
        if tick % every:
            return False
        is_large = self._stored_bytes > max(SMALL_STATE, _SMALL_SHARE * self._added_bytes)
        return not is_large or tick - self._stored_tick >= MOST_PUT_OFF * every

    def _store_release(self, opened: _OpenTick) -> None:
        """T2: the bytes that everybody gets."""
        assert opened.stored is not None  # noqa: S101
        incarnation, tick = self._record.incarnation, opened.seal.tick
        try:
            with self._store.writing("release"):
                self._store.check_lease(incarnation, self._lease)
                self._store.insert_release(opened.stored)
                self._publisher.expect()
                keys = self._ring.epoch(opened.seal.epoch)
                if opened.history is not None:
                    gap = max(self._options.snapshot_every, tick - self._stored_tick)
                    keep = self._core.log_length + gap
                    self._store.insert_history(opened.seal, opened.history, keys, keep=keep)
                if opened.checkpoint is not None:
                    # A start goes through all ticks since the stored state.
                    lasting = self._core.lasting | self._stored_lasting
                    needed = {self._record.last_tick + place for place in lasting}
                    self._store.insert_checkpoint(opened.seal, opened.checkpoint, keys, needed=needed)
                if opened.snapshot is not None:
                    self._store.insert_snapshot(opened.seal, opened.snapshot, keys)
                reach("release.commit")
        except UnknownCommitError as error:
            # The same row again, or for the first time: inserting is harmless either way.
            with self._store.connection.writing():
                is_there = self._store.has("releases", incarnation, tick)
            if not is_there:
                raise (DiskFullError(str(error)) if error.full else error) from None
        opened.is_stored = True
        opened.snapshot = opened.history = opened.checkpoint = None

    def _stored_logs(self, up_to: int) -> list[codec.Plain]:
        """What the state of a tick needs beside it: checkpoints and the last logs, the oldest first."""
        if not self._core.log_length:
            return []
        place = (self._record.incarnation, up_to, self._ring)
        checkpoints = [codec.unpack("checkpoint", 1, each) for each in self._store.checkpoints(*place)]
        return checkpoints + [codec.unpack("history", 1, each) for each in self._store.history(*place)]

    def _testify(self, seal: Seal, *, whole: bool = False) -> None:
        """T3: write down outside how far the stream has come."""
        positions = self._whole_place(seal.positions) if whole else seal.positions
        testimony = Testimony(incarnation=self._record.incarnation, tick=seal.tick, positions=positions, mac=seal.mac)
        self._wiring.witness.append(testimony, self._ring, kept=base_of(positions))

    def _testify_again(self, found: Standing, last: Seal) -> None:
        """At a start: the line of the last tick, which may be lacking."""
        try:
            self._testify(last, whole=True)
        except RollbackError:
            if not self._options.take_over:
                raise
            # Whoever was overtaken may have written its own line since, of a tick that is in this store.
            check_witness(self._store, self._wiring, found, self._wiring.witness.heard_anew())
            self._testify(last, whole=True)

    def _digest(self, content: bytes) -> bytes:
        return self._ring.epoch(0).digest("state", content)

    def _opened_delta(self, seal: Seal) -> Gathered:
        content = self._store.delta(seal, self._ring)
        if self._ring.epoch(seal.epoch).digest("delta", content) != seal.counts:
            raise DamageError(f"what tick {seal.tick} adds must be what was sealed, got another; restore a backup")
        self._added_bytes += len(content)
        gathered: Gathered = codec.unpack("delta", 1, content)
        if any(len(batch) != len(self._core.parts) for batch in gathered):
            raise StateError("a stored tick must be of these queries, got others")
        return gathered


def _same_content(left: bytes, right: bytes) -> bool:
    """Whether two payloads say the same, however they are written."""
    one, other = release_of(left), release_of(right)
    return (one.tick, one.coverage, list(one)) == (other.tick, other.coverage, list(other)) and all(
        one[name].equals(other[name]) for name in one
    )


def open_stream(stream: Stream, state: Path | str, *, secret: Given = None, **where: Any) -> DurableStream:
    """A stream in a folder or a database; `where` has the places of `Place.of` and the `Options`. See `Stream.open`."""
    where = {name: value for name, value in where.items() if value is not None}
    options = {name: where.pop(name) for name in Options.__slots__ if name in where}
    if "ledger_budget" in where:
        where["cap"] = cap_of(where.pop("ledger_budget"))
    return DurableStream(Request(stream), Place.of(state, **where).wired(secret), Options(**options))
