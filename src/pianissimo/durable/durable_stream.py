"""A durable stream as its users have it: the verbs of a live one, for one caller at a time.

What a tick goes through in the store is in `stored_ticks`.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pianissimo.checks import ticks_in
from pianissimo.durable.charging import cap_of
from pianissimo.durable.failpoints import reach
from pianissimo.durable.gathered_elsewhere import gathering
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import Given
from pianissimo.durable.moved_places import packed_place, shortened, unpacked_place
from pianissimo.durable.place import Place
from pianissimo.durable.retention import Retention
from pianissimo.durable.start import Request
from pianissimo.durable.stored_state import Gathered
from pianissimo.durable.stored_ticks import Options, StoredTicks
from pianissimo.errors import (
    DiskFullError,
    HorizonError,
    InputError,
    ParameterError,
    PendingError,
    StateError,
    StoreError,
)
from pianissimo.noise import Secret
from pianissimo.stream import Stream, StreamRelease
from pianissimo.stream.release import release_of
from pianissimo.workers import workers_of


class DurableStream(StoredTicks):
    """A running stream whose every tick is stored. `Stream.open` makes one; use it in a `with`, or `close` it.

    `tick` counts the events of one tick, seals it and releases it; events that come in many batches are given to `add`
    first. If `tick` raises before the seal, what it was given is not counted, and it may be called again. If it raises
    a `PendingError`, the tick is sealed, and `finish` releases it.
    """

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
        """The last tick that is sealed and not wholly released yet."""
        return None if self._open_ticks is None else self._open_ticks.last.tick

    def add(self, batch: object = None, *, time: str | None = None, drop_bad_rows: bool = False) -> None:
        """Keep what some events of the open tick add, in memory: nothing is counted before `tick`."""
        with self._lock:
            self._check_open()
            gather = self._gathering(batch, {"time": time, "drop_bad_rows": drop_bad_rows})
            if self._unsure is not None:
                raise StateError("a tick whose seal is in doubt must be sealed first, got more events; call tick()")
            self._gather(gather)

    def tick(
        self, batch: object = None, *, time: str | None = None, drop_bad_rows: bool = False, position: Any = None
    ) -> StreamRelease:
        """Close the tick: count what was added and this batch, all or none of it, seal, and publish.

        `position` is plain data that says where the source was read to; it is sealed with the tick, and needed once a
        tick had one. For `time` see `Live.tick`.
        """
        with self._lock:
            self._check_open()
            positions = self._place(position)
            options = {"time": time, "drop_bad_rows": drop_bad_rows}
            gather = None if batch is None else self._gathering(batch, options)
            # Whatever the last call was given is sealed now, or it is not and these events come in its place.
            self._settle_doubt()
            added, held = [*self._added], len(self._held)
            try:
                if gather is not None:
                    self._gather(gather)
                with self._guard:
                    self._hold(positions)
                    self._seal_held(closes=True)
            except BaseException:
                # Ticks that were held before are held as they were.
                self._added, self._held = added, self._held[:held]
                raise
            return self._finish()[-1]

    def hold(self, *, position: Any = None) -> None:
        """Close the tick in memory: its events are those that were added. It is sealed with the next ones.

        For ticks that are over, up to `last_together`; the next `tick` or `commit` seals and releases all of them.
        """
        with self._lock:
            self._check_open()
            if not self.next_tick < self.last_together:
                raise StateError(f"tick {self.next_tick} must be sealed now, got one to hold; call tick()")
            positions = self._place(position)
            self._settle_doubt()
            with self._guard:
                self._hold(positions)
                reach("absorb.held")

    def commit(self) -> list[StreamRelease]:
        """Seal and release the ticks that are held, without the open one."""
        with self._lock:
            self._check_open()
            self._settle_doubt()
            if not self._held:
                return []
            with self._guard:
                self._seal_held(closes=False)
            return self._finish()

    def _place(self, position: Any) -> bytes:
        """Where the open tick was read to, as it is stored."""
        positions, base, retention = packed_place(position), self._last_base, self._options.retention
        if base is not None and (retention is None or not retention.needs_base(self.next_tick, base[0])):
            positions = shortened(positions, position, *base)
        if not positions and self._last_place:
            raise StateError(
                "position must be given where a source has fed the stream, got None: the source would lose or "
                "repeat rows; go on with `pianissimo run`, or give position=live.position if they are not wanted"
            )
        return positions

    def finish(self) -> StreamRelease:
        """Release the tick that is sealed, from where it was left."""
        with self._lock:
            self._check_not_closed()
            self._look_again()
            if self._open_ticks is None:
                raise StateError("a tick must be sealed to be finished, got none")
            return self._finish()[-1]

    def _check_open(self) -> None:
        self._check_not_closed()
        if self._options.read_only:
            raise StateError("a stream must be open for writing to count events, got one opened to be read")
        if self._open_ticks is not None:
            raise PendingError(f"tick {self.pending} must be finished first, got another; call finish()")
        if self.next_tick - self._record.last_tick > self.plan.horizon:
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
        if is_unsure and self._open_ticks is not None:
            raise PendingError(
                f"tick {self.pending} was sealed after all, with the events given before; "
                "call finish(), and do not give them again"
            ) from DiskFullError("its commit failed for want of room")

    def _gathering(self, batch: object, options: dict[str, Any]) -> Callable[[], Gathered]:
        return gathering(self._core, self._options.workers, batch, self.next_tick, options)

    def _gather(self, gather: Callable[[], Gathered]) -> None:
        try:
            with self._guard:
                # For all parts in one step, and guarded: an interrupt must not leave a batch in some of them.
                self._added += gather()
        except InputError:
            self._guard.forgive()
            raise

    def publish(self) -> None:
        """Let readers see all that is released and due, and send the stored bytes to the sinks that lack them."""
        with self._lock:
            self._check_not_closed()
            if self._options.read_only:
                raise StateError("a stream must be open for writing to publish, got one opened to be read")
            self._publish()

    def publish_due(self) -> float:
        """The same for a thread of its own, which waits for no tick that is being counted; with `publish_after`.

        Gives the seconds until the next slot.
        """
        if self._slots is None:
            raise StateError("a stream must have slots to publish at, got one without; open it with publish_after")
        self._check_not_closed()
        if self._beside is None:
            self._beside = Journal(self._wiring.connect(create=False))
        self._publish_released(self._beside)
        return self._slots.seconds_left()

    @property
    def has_slots(self) -> bool:
        """Whether ticks are shown at public moments."""
        return self._slots is not None

    @property
    def shown_tick(self) -> int:
        """The last tick that this process has let readers see."""
        return self._publisher.shown

    def wait_for_sinks(self, seconds: float) -> None:
        """Until every sink beside the stream has all that is published, fails or hangs, at most so long.

        How far they came is stored then.
        """
        if self._options.sinks_beside:
            self._publisher.wait(seconds)
            self.publish()

    @property
    def visible_tick(self) -> int:
        """The last tick that readers see."""
        with self._lock:
            self._check_not_closed()
            return self._store.visible(self._record.incarnation)

    def released(self, tick: int) -> StreamRelease:
        """What was released for an earlier tick."""
        return release_of(self.payload(tick), self.plan.about)

    def payload(self, tick: int) -> bytes:
        """The bytes of an earlier release, as they were stored."""
        with self._lock:
            self._check_not_closed()
            # One that is stored and not witnessed yet could be sealed again with other events, from a backup.
            if not self._record.last_tick < tick <= self.tick_number:
                raise ParameterError(f"tick must be one of the released ones, up to {self.tick_number}, got {tick}")
            removal = self._store.removal(self._record.incarnation, self._ring)
            if removal is not None and tick <= removal.tick:
                raise ParameterError(
                    f"tick must be one that is kept, from {removal.tick + 1} on, got {tick}, which retention removed"
                )
            return self._store.payload(self._record.incarnation, tick, self._ring)

    def window(self, length: object) -> StreamRelease:
        """What the last ticks added: `live.window("1h")`, or a number of ticks; see `Live.window`."""
        ticks = ticks_in(length, self.plan.tick)
        return self.between(max(self._record.last_tick, self.tick_number - ticks), self.tick_number)

    def plot(self) -> Any:
        """A picture of what was released over the last ticks, as a matplotlib figure: totals with error bands."""
        from pianissimo.stream.shown.pictures import plot_live

        return plot_live(self.released(self.tick_number), self.between)

    def rotate_secret(self, secret: Secret) -> None:
        """Begin an epoch with a new secret: what is sealed and drawn from the next tick on depends on it alone.

        The secrets before stay in the store, closed under the new one, for as long as nodes of theirs are in use.
        """
        with self._lock:
            self._check_not_closed()
            # A seal that is there after all is of the keys before.
            self._settle_doubt()
            if self._open_ticks is not None or self._held:
                raise PendingError("a tick must be finished before a rotation, got one that is not; call finish()")
            if self.plan.shards > 1:
                raise StateError(
                    "the secret of a stream of several shards must stay, got a new one: to rotate it is not there yet; "
                    "begin a new stream with another secret"
                )
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
                    self._testify([last], whole=True)

    def __enter__(self) -> "DurableStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a live stream is not copied or pickled: two of it would share their noise")

    def __repr__(self) -> str:
        return f"DurableStream({self.plan.name!r}, tick={self._tick} of {self._record.last_tick + self.plan.horizon})"


def open_stream(stream: Stream, state: Path | str, *, secret: Given = None, **where: Any) -> DurableStream:
    """A stream in a folder or a database; `where` has the places of `Place.of` and the `Options`. See `Stream.open`."""
    where = {name: value for name, value in where.items() if value is not None}
    options = {name: where.pop(name) for name in Options.__slots__ if name in where}
    if "workers" in options:
        options["workers"] = workers_of(options["workers"])
    if "retention" in options:
        options["retention"] = Retention(ticks_in(options["retention"], stream.tick, "retention"))
    if "ledger_budget" in where:
        where["cap"] = cap_of(where.pop("ledger_budget"))
    return DurableStream(Request(stream), Place.of(state, **where).wired(secret), Options(**options))
