"""A stream that can be killed at any instant: seal, release, witness, publish.

A tick goes through four steps, each durable before the next begins. SEAL fixes the events of the tick in one
transaction. RELEASE stores the bytes that everybody will get; they follow from what is sealed and from the secret, so
that a crash in between changes nothing. WITNESS writes down, outside the store, how far the stream has come. PUBLISH
lets readers and sinks have the stored bytes. Nothing of a tick leaves the process before its release is on the disk,
and no noise is drawn before the data that it covers are sealed. Ticks that are over may go through each step together;
see `held_ticks`.
"""

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any

from pianissimo import codec
from pianissimo.checks import duration_of
from pianissimo.durable.failpoints import reach
from pianissimo.durable.gathered_elsewhere import told_to_shards, told_to_workers
from pianissimo.durable.held_ticks import MOST_HELD, HeldTick, last_together
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import KeyRing
from pianissimo.durable.moved_places import base_of, unpacked_place, whole_place
from pianissimo.durable.place import Wiring
from pianissimo.durable.publish import Publisher, ShownLife, Sink
from pianissimo.durable.records import Seal, StoredRelease
from pianissimo.durable.retention import Retention, remove_ticks
from pianissimo.durable.slots import PublicSlots
from pianissimo.durable.start import (
    Request,
    Standing,
    check_start,
    check_witness,
    create_stream,
    is_created,
    names_of_life,
    place_of,
)
from pianissimo.durable.stored_state import SNAPSHOT_EVERY, Gathered, StateRows, StoredState
from pianissimo.durable.witness import Testimony
from pianissimo.errors import (
    DamageError,
    DiskFullError,
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
from pianissimo.guard import Guard, OneCaller
from pianissimo.noise import KeyedNoise, Noise, Secret
from pianissimo.noise.sealed_noise import SealedNoise
from pianissimo.shards import Holding, ShardedCore
from pianissimo.stream import StreamRelease
from pianissimo.stream.calendar import MICROSECOND, utc_now
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.release import payload_of, release_of
from pianissimo.workers import Workers

_MOST_MACS = 4096
_FAILED = "a stream whose store failed must not go on in this process"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a durable stream is opened."""

    create: bool = True
    """Whether it is begun where there is none."""

    take_over: bool = False
    """Whether it is taken from another process, which writes nothing any more."""

    snapshot_every: int = SNAPSHOT_EVERY
    retention: Retention | None = None
    """How many of the last ticks are kept whole; None for all."""

    sinks: Sequence[Sink] = ()
    sinks_beside: bool = False
    """Whether each sink is sent to in a thread of its own, so that no tick waits for one."""

    publish_at_once: bool = True
    publish_after: timedelta | str | None = None
    """How long after its end a tick is shown; None for as soon as it is ready."""

    now: Callable[[], datetime] = utc_now
    """The clock that tells when slots come."""

    read_only: bool = False
    make_noise: Callable[[Secret], Noise] = KeyedNoise
    workers: Workers | None = None
    """Who gathers what large batches add; None where this process does. They are closed with the stream."""

    def __post_init__(self) -> None:
        if not self.snapshot_every >= 1:
            raise ParameterError(f"snapshot_every must be at least 1, got {self.snapshot_every}")
        if self.retention is not None:
            self.retention.check(self.snapshot_every)
        if self.publish_after is not None:
            try:
                object.__setattr__(self, "publish_after", duration_of(self.publish_after))
            except ParameterError as refusal:
                raise ParameterError(f"publish_after {refusal}") from None


@dataclass(slots=True, repr=False)
class _OpenTick:
    """A tick between its seal and its publication."""

    seal: Seal
    gathered: Gathered
    release: StreamRelease | None = None
    stored: StoredRelease | None = None
    rows: StateRows | None = None
    size: int = 0
    """How many bytes its seal stores of it."""


@dataclass(slots=True, repr=False)
class _OpenTicks:
    """Ticks that are sealed together, one as a rule, and how far they have come."""

    ticks: list[_OpenTick]
    is_stored: bool = False
    is_witnessed: bool = False

    @property
    def last(self) -> Seal:
        return self.ticks[-1].seal


@dataclass(slots=True, repr=False)
class _Doubt:
    """Ticks whose seal may or may not be in the store."""

    ticks: list[_OpenTick]
    error: UnknownCommitError
    closes: bool
    """Whether the last of them is the open tick, whose batches are kept until it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a start found and did, without a number of events."""

    created: bool
    """Whether the stream is new."""

    replayed: int
    """How many ticks were counted again from what they had added."""

    finished: int | None
    """The tick that was sealed and is released now, if there was one."""


class StoredTicks:
    """The ticks of one life of a stream in its store. `DurableStream` has the verbs, for one caller at a time."""

    def __init__(self, request: Request, wiring: Wiring, options: Options = Options()) -> None:
        self._wiring = wiring
        self._options = options
        self._guard = Guard()
        self._lock = OneCaller(self._guard)
        self._added: Gathered = []
        """For each batch of the open tick what it adds to each part."""

        self._held: list[HeldTick] = []
        """Ticks after the last sealed one that are over, in memory."""

        self._is_closed = self._is_unsynced = False
        self._open_ticks: _OpenTicks | None = None
        self._unsure: _Doubt | None = None
        self._ring: KeyRing
        self._tick: int
        self._base: tuple[int, Any] | None = None
        """The tick whose place the next ones differ from, and that place."""

        self._publisher: Publisher
        self._slots: PublicSlots | None = None
        self._beside: Journal | None = None
        """The store as the thread sees it that publishes at slots."""

        self._lease = 0
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
                self._slots = self._public_slots()
                self._lease = self._take_lease(found)
            if options.take_over:
                # Whoever had it seals nothing more, but may have sealed since it was looked at.
                found, self.plan = check_start(self._store, wiring, request, wiring.witness.heard_anew())
            self._take_over(found)
            self.recovered = self._recover(found, created=created)
            if isinstance(self._core, ShardedCore) and not options.read_only:
                self._core.collect()
            if options.workers is not None and not options.read_only:
                options.workers.begin(*told_to_workers(self.plan, self._record, self._ring))
            # Other threads may read from now on, each time what is stored then.
            self._store.connection.rollback()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the store. What is sealed is released at the next start."""
        if not self._guard.is_at_home:
            self._store.close()  # which leaves a forked child's connection to its parent
            return
        # A tick in another thread comes to its end first; one's own, from a signal or a sink, is cut off.
        with self._lock.lock:
            self._is_closed = True
            self._guard.close("a stream that was closed must be opened again")
            if self._options.workers is not None:
                self._options.workers.close()
            for name in ("_publisher", "_store", "_beside", "_process_lock"):
                if getattr(self, name, None) is not None:
                    getattr(self, name).close()

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise StateError("a stream that was closed must be opened again; start anew")

    def _public_slots(self) -> PublicSlots | None:
        delay = self._options.publish_after
        if delay is None:
            return None
        if self.plan.calendar is None:
            raise ParameterError("publish_after must be given with an origin, got none: no clock cuts the ticks")
        assert isinstance(delay, timedelta)  # noqa: S101
        return PublicSlots(self.plan.calendar, delay, self._options.now)

    def _take_lease(self, found: Standing) -> int:
        """Be the one that seals: whoever did so before writes nothing more to the store."""
        with self._store.writing("lease"):
            owner = f"{platform.node()}:{os.getpid()}"
            self._store.make_later_tables()
            lease = self._store.take_lease(found.record.incarnation, owner, found.ring.keys[0])
            delay = None if self._slots is None else self._slots.delay // MICROSECOND
            self._store.set_publish_after(found.record.incarnation, delay)
            reach("lease.commit")
        return lease

    def _take_over(self, found: Standing) -> None:
        """Take everything that the checks found."""
        options = self._options
        self._record, self._ring, self._mac, self._tick = found.record, found.ring, found.mac, found.tick
        self._positions = found.record.begin(found.ring.keys[0]) if found.last is None else found.last.positions
        self._know_base(self._tick)
        self._visible = self._store.visible(self._record.incarnation)
        first, names = self._record.last_tick, cache(partial(names_of_life, self._record, self._ring))

        def noise_for(every: int) -> Noise:
            return SealedNoise(self._root_of, self._mac_of, first=first, stride=every, names=names)

        if self.plan.shards == 1:
            self._core = LiveCore(self.plan, noise_for, after=first)
        else:
            told = told_to_shards(self.plan, self._record, self._ring, self._wiring.shards)
            workers = None if options.read_only else options.workers
            holding = Holding(*told, macs=self._mac_of, workers=workers, make_noise=options.make_noise)
            self._core = ShardedCore(self.plan, noise_for, holding)
        self._state = StoredState(self._core, self._store, self._record, self._ring, options.snapshot_every)
        lives = [] if options.read_only else self._store.lives(self._ring)[:-1]
        shown = [ShownLife(record, ring, self._store.visible(record.incarnation)) for record, ring in lives]
        earlier = [life for life in shown if life.visible != life.record.last_tick]
        own = ShownLife(self._record, self._ring)
        self._lives = [*shown, own]
        removals = {life.record.incarnation: self._store.removal(life.record.incarnation, life.ring) for life in shown}
        removals[self._record.incarnation] = self._store.removal(self._record.incarnation, self._ring)
        self._removed = {name: 0 if removal is None else removal.tick for name, removal in removals.items()}
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
            bound = self._store.bound(self._record.incarnation, tick, self._ring)
            if bound is None:
                raise DamageError(f"tick {tick} must be sealed before its noise is drawn, got no seal")
            self._remember(tick, bound[1])
            return bound[1]
        return self._macs[tick]

    def _remember(self, tick: int, mac: bytes) -> None:
        """Keep the digest of a seal at hand; of a long stream those that were used last."""
        self._macs[tick] = mac
        while len(self._macs) > _MOST_MACS:
            del self._macs[next(iter(self._macs))]

    def _recover(self, found: Standing, *, created: bool) -> Recovered:
        """The state as of the last release: the last stored one and what each tick added since; then finish."""
        incarnation = self._record.incarnation
        sealed = self._tick
        self._state.load(self._ring)
        start = self._state.tick
        left = list[_OpenTick]()
        for tick in range(start + 1, sealed + 1):
            seal = self._store.seal(incarnation, tick, self._ring)
            assert seal is not None  # noqa: S101  # the chain was checked
            if not self._state.is_before(seal):
                raise DamageError(f"the state before tick {tick} must be the sealed one, got another; restore a backup")
            opened = _OpenTick(seal, self._state.delta(seal, self._ring))
            stored = self._store.release(incarnation, tick)
            if stored is None:
                left.append(opened)
                continue
            if left:
                raise DamageError(f"tick {left[0].seal.tick} must be released before later ones, got no release")
            self._tick = tick - 1
            self._open_ticks = _OpenTicks([opened])
            # A snapshot would be the last one stored.
            self._check_same(stored, seal, self._compute(opened, snapshot=False))
            self._open_ticks = None
        if left:
            self._tick, self._open_ticks = left[0].seal.tick - 1, _OpenTicks(left)
            if self._options.read_only:
                for opened in left:
                    # Shards would store their states.
                    self._compute(opened, snapshot=self.plan.shards == 1 and opened is left[-1])
                self._open_ticks = None
            else:
                self._finish()
        self._tick = sealed
        if found.last is not None and not self._options.read_only:
            self._testify_again(found, found.last)
        if self._options.publish_at_once and not self._options.read_only:
            self._publish()
        return Recovered(created=created, replayed=sealed - start, finished=left[-1].seal.tick if left else None)

    def _check_same(self, stored: StoredRelease, seal: Seal, again: StoredRelease) -> None:
        """What is released again from the sealed data must be what was stored."""
        stored.check(self._ring.epoch(seal.epoch), seal)
        if again.payload != stored.payload and not _same_content(again.payload, stored.payload):
            raise DamageError(
                f"the release of tick {stored.tick} must follow from what is sealed, got another; "
                "use the version that wrote it, or restore a backup"
            )

    @property
    def next_tick(self) -> int:
        """The open tick: the one after those that are released, and those that are held."""
        return self._tick + len(self._held) + 1

    @property
    def last_together(self) -> int:
        """The last tick that may be sealed together with the one after the last released."""
        first = self._record.last_tick
        if sum(len(held.content) for held in self._held) > MOST_HELD:
            return self.next_tick
        return last_together(self._core, self._tick, self._tick - first, self._options.snapshot_every)

    def _hold(self, positions: bytes) -> None:
        """Close the open tick in memory."""
        gathered = self._combined()
        content = codec.pack("delta", 1, gathered)
        self._held.append(HeldTick(gathered, content, positions or self._last_place))
        self._added = []

    @property
    def _last_place(self) -> bytes:
        return self._held[-1].positions if self._held else self._positions

    @property
    def _last_base(self) -> tuple[int, Any] | None:
        """The tick whose place that of the open one differs from, and that place."""
        for tick, held in reversed([*enumerate(self._held, self._tick + 1)]):
            if held.positions and base_of(held.positions) is None:
                return tick, unpacked_place(held.positions)
        return self._base

    def _seal_held(self, *, closes: bool) -> None:
        """T1: the events that were added and no others are the ticks', for ever."""
        ticks, mac = list[_OpenTick](), self._mac
        for tick, held in enumerate(self._held, self._tick + 1):
            epoch = self._ring.number_at(tick)
            keys = self._ring.epoch(epoch)
            seal = Seal(
                incarnation=self._record.incarnation,
                tick=tick,
                epoch=epoch,
                previous=mac,
                positions=held.positions,
                counts=keys.digest("delta", held.content),
                state=self._state.digest,
                config_digest=self._record.config_digest,
            ).signed(keys)
            ticks.append(_OpenTick(seal, held.gathered, size=self._state.size(held.content, held.gathered)))
            mac = seal.mac
        try:
            with self._store.writing("seal"):
                reach("seal.begin")
                self._check_turn(self._tick + 1)
                for opened, held in zip(ticks, self._held, strict=True):
                    keys = self._ring.epoch(opened.seal.epoch)
                    self._store.insert_seal(opened.seal, keys)
                    self._store.insert_content("deltas", opened.seal, held.content, keys)
                reach("seal.commit")
        except UnknownCommitError as error:
            self._unsure = _Doubt(ticks, error, closes)
            self._look()
            return
        except (SyncError, LeaseError, RefusalError):
            raise
        except StoreError:
            # Rolled back: nothing of these ticks is written or counted.
            self._guard.forgive()
            raise
        self._are_sealed(ticks, closes=closes)

    def _combined(self) -> Gathered:
        """What all batches add together: where they were cut enters neither the seal nor, by it, the noise."""
        return [self._core.combine(self._added)]

    def _are_sealed(self, ticks: list[_OpenTick], *, closes: bool) -> None:
        for opened in ticks:
            self._mac, self._positions = opened.seal.mac, opened.seal.positions
            self._know_base(opened.seal.tick)
            # What is sealed, and not what was tried: when a state is stored must not depend on that.
            self._state.added_bytes += opened.size
            self._remember(opened.seal.tick, opened.seal.mac)
        self._open_ticks, self._held = _OpenTicks(ticks), []
        if closes:
            self._added = []

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
        doubt, error = self._unsure, self._unsure.error
        last = doubt.ticks[-1].seal
        try:
            # One that is still under way is waited for.
            with self._store.connection.writing():
                found = self._store.seal(last.incarnation, last.tick, self._ring)
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
        if found.mac != last.mac:
            raise LeaseError(f"tick {last.tick} must be sealed once, got another process that sealed it") from None
        self._are_sealed(doubt.ticks, closes=doubt.closes)

    def _finish(self) -> list[StreamRelease]:
        """T2 to T4 of the open ticks, each from where it was left."""
        opened = self._open_ticks
        assert opened is not None  # noqa: S101
        if self._is_unsynced:
            # What is computed already passes no guard below, and to sync again tells nothing.
            raise StateError(f"{_FAILED}; start anew")
        for each in opened.ticks:
            if each.stored is None:
                with self._guard:
                    # The seals of all of them cover one stored state.
                    self._compute(each, snapshot=each is opened.ticks[-1])
        try:
            if not opened.is_stored:
                self._store_releases(opened)
            if opened.is_witnessed:
                self._wiring.witness.check()
            else:
                self._store.connection.check_still_there()  # else nobody finds what would be witnessed and shown
                self._testify([each.seal for each in opened.ticks])
                opened.is_witnessed = True
        except (SyncError, LeaseError) as error:
            self._stop_after(error)
            raise
        except StoreError as error:
            raise PendingError(
                f"tick {opened.last.tick} is sealed and not released yet: {error}; call finish(), "
                "and do not give its events again"
            ) from error
        if self._slots is not None:
            # Before the thread that publishes may look at them: else they would be as good as ready since the start.
            for each in opened.ticks:
                self._slots.is_ready(each.seal.tick)
        self._tick = opened.last.tick
        self._open_ticks = None
        if self._options.publish_at_once:
            self._publish_released()
        return [each.release for each in opened.ticks if each.release is not None]

    def _compute(self, opened: _OpenTick, *, snapshot: bool = True) -> StoredRelease:
        """Count what is sealed, and make the bytes of the release."""
        tick, seal = opened.seal.tick, opened.seal
        place = tick - self._record.last_tick
        self._core.add(opened.gathered)
        tables = self._core.release(place)
        release = self._core.published(tick, tables, self.between, self._record.since)
        payload = payload_of(release, stream=self.plan.name, incarnation=self._record.incarnation)
        keys = self._ring.epoch(seal.epoch)
        stored = StoredRelease(incarnation=self._record.incarnation, tick=tick, payload=payload).signed(keys, seal)
        opened.rows = self._state.rows(tick, keys, whole=snapshot)
        opened.release = release
        reach("release.computed")
        opened.stored, opened.gathered = stored, []
        return stored

    def _store_releases(self, opened: _OpenTicks) -> None:
        """T2: the bytes that everybody gets."""
        incarnation = self._record.incarnation
        try:
            with self._store.writing("release"):
                self._store.check_lease(incarnation, self._lease)
                for each in opened.ticks:
                    assert each.stored is not None  # noqa: S101
                    self._store.insert_release(each.stored)
                self._publisher.expect()
                for each in opened.ticks:
                    assert each.rows is not None  # noqa: S101
                    self._state.insert(each.rows, each.seal, self._ring.epoch(each.seal.epoch))
                reach("release.commit")
        except UnknownCommitError as error:
            # The same rows again, or for the first time: inserting is harmless either way.
            with self._store.connection.writing():
                is_there = self._store.has("releases", incarnation, opened.last.tick)
            if not is_there:
                raise (DiskFullError(str(error)) if error.full else error) from None
        opened.is_stored = True
        for each in opened.ticks:
            each.rows = None

    def _testify(self, seals: Sequence[Seal], *, whole: bool = False) -> None:
        """T3: write down outside how far the stream has come."""
        lines = []
        for seal in seals:
            positions = self._whole_place(seal.positions) if whole else seal.positions
            lines.append(
                Testimony(incarnation=self._record.incarnation, tick=seal.tick, positions=positions, mac=seal.mac)
            )
        self._wiring.witness.append(lines, self._ring, kept=base_of(lines[-1].positions))

    def _testify_again(self, found: Standing, last: Seal) -> None:
        """At a start: the line of the last tick, which may be lacking."""
        try:
            self._testify([last], whole=True)
        except RollbackError:
            if not self._options.take_over:
                raise
            # Whoever was overtaken may have written its own line since, of a tick that is in this store.
            check_witness(self._store, self._wiring, found, self._wiring.witness.heard_anew())
            self._testify([last], whole=True)

    def _publish_released(self, beside: Journal | None = None) -> None:
        """T4 of ticks that are stored and witnessed: whatever happens here, these have not failed."""
        try:
            self._publish(beside)
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

    def _publish(self, beside: Journal | None = None) -> None:
        """Show what is due; `beside` is the store of another thread than the stream's own."""
        try:
            self._wiring.witness.check()  # where it is not as this process left it, another may show other ticks
            due = self._tick if self._slots is None else self._slots.due(self._publisher.shown, self._tick)
            self._publisher.publish(due, beside)
            if beside is None:
                self._remove_old()
        except (SyncError, LeaseError, RefusalError) as error:
            self._stop_after(error)
            raise

    def _stop_after(self, error: PianissimoError) -> None:
        """Seal and count nothing more; after a sync that failed, finish nothing either."""
        self._is_unsynced |= isinstance(error, SyncError)
        self._guard.close(_FAILED)

    def _remove_old(self) -> None:
        """Let go of ticks that are older than retention keeps, some at a time."""
        retention = self._options.retention
        if retention is None:
            return
        for life in self._lives:
            incarnation = life.record.incarnation
            if life is self._lives[-1]:
                # The stored state is bound to its seal, and the last place may differ from that of another.
                base = base_of(self._positions) if self._positions else None
                end = min(self._state.tick, self._tick if base is None else base, self._publisher.shown)
            else:
                end = self._store.last_tick("releases", incarnation) or 0
            removed = max(self._removed[incarnation], life.record.last_tick)
            last = retention.due(life, self._tick, removed, end)
            if last > removed:
                remove_ticks(self._store, life, self._lease, removed + 1, last, self._record.incarnation)
                self._removed[incarnation] = last

    @property
    def tick_number(self) -> int:
        """The last tick that is released and witnessed; of a stream opened to be read, that readers see."""
        return min(self._tick, self._visible) if self._options.read_only else self._tick

    def between(self, start: int, end: int) -> StreamRelease:
        """What ticks start + 1 .. end added, for the queries that answer intervals and were published at both ends."""
        first = self._record.last_tick
        with self._lock:
            self._check_not_closed()
            if not first <= start < end <= self.tick_number:
                raise ParameterError(
                    f"an interval must lie within ticks {first} to {self.tick_number}, got {start} to {end}"
                )
            if self._open_ticks is not None or self.tick_number < self._tick:
                # Counted already: which labels are shown would be that of a tick that could be sealed again.
                raise PendingError("a window must be asked for when all ticks are released, got one that is not yet")
            return self._core.window(start, end)


def _same_content(left: bytes, right: bytes) -> bool:
    """Whether two payloads say the same, however they are written."""
    one, other = release_of(left), release_of(right)
    return (one.tick, one.coverage, list(one)) == (other.tick, other.coverage, list(other)) and all(
        one[name].equals(other[name]) for name in one
    )
