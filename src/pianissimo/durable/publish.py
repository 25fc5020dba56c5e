"""T4: readers and sinks get the stored bytes, and nothing else, in the order of ticks.

A tick waits for no sink. Each has a courier, which brings it what it lacks in a thread of its own, from the store and
over a connection of its own; how far it came is stored with the next tick, or while the next one is waited for. So a
sink that hangs, or that is new and lacks a year, keeps nobody else. Without threads, as where a stream is used from
Python, couriers run when a tick is published.
"""

import hmac
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from polars.exceptions import PanicException

from pianissimo.durable.failpoints import reach
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import KeyRing
from pianissimo.durable.records import StreamRecord
from pianissimo.errors import LeaseError, PianissimoError, RefusalError, RollbackError, SyncError
from pianissimo.storage.connection import Connection
from pianissimo.storage.files import fault_of

FIRST_WAIT, LONGEST_WAIT = 0.2, 30.0
"""Seconds between two attempts of a courier beside the stream whose sink fails; they double."""

_GIVES_UP = 30.0
"""Seconds without a tick that a sink took, after which nobody waits for it any more."""


class Sink(Protocol):
    """Where releases go. A tick may be sent twice after a crash; the bytes are the same."""

    name: str

    def last(self) -> int | None:
        """The last tick that the sink is known to have; None if it cannot tell."""

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        """Take a release under the key (incarnation, tick), durably; `InputError` if it cannot be taken now.

        Whatever else it raises is that sink's fault too, and told by its kind alone.
        """


@dataclass(slots=True, repr=False)
class ShownLife:
    """A life of the stream of which sinks may lack ticks."""

    record: StreamRecord
    ring: KeyRing
    visible: int | None = None
    """Of a life that has ended its last tick that readers could see, and that was so witnessed before.

    What was released after it stays unseen for ever: a clone of the store, or its original, may have shown that tick
    of that incarnation over other data, and nobody has a witness any more that says that it did not.
    """

    confirmed: dict[str, int] = field(default_factory=dict)
    """For each sink the last tick up to which it has everything."""

    def mark(self, sink: str, tick: int) -> bytes:
        """What says that a sink has all ticks up to one, under the secret of that tick: an older one proves nothing."""
        return self.ring.epoch(self.ring.number_at(tick)).mac("delivered", sink, self.record.incarnation, tick)


class Courier:
    """Brings one sink what it lacks of the lives of a stream, in the order of ticks."""

    def __init__(self, sink: Sink, lives: Sequence[ShownLife], store: Journal, lease: int) -> None:
        self.sink = sink
        self._lives, self._store, self._lease = lives, store, lease
        self.sent = {life.record.incarnation: life.confirmed[sink.name] for life in lives}
        """Of each life the last tick up to which the sink has everything; that may not be stored yet."""

        self.fault: str | None = None
        """What went wrong last, until a tick is taken."""

        self.failures = 0
        self.removed = 0
        """How many ticks the sink will not get, since retention removed them before it had them."""

        self._goal: int | None = None
        self._stopping: BaseException | None = None
        """What the stream must not go on after."""

        self._change = threading.Condition()
        self._has_ended = False
        self._thread: threading.Thread | None = None

    @property
    def lacking(self) -> int:
        """How many ticks the sink lacks."""
        return sum(max(0, self._end(life) - self.sent[life.record.incarnation]) for life in self._lives)

    def bring(self, up_to: int) -> None:
        """Bring everything up to a tick that is stored and witnessed, now."""
        self._goal = up_to
        self._bring(self._store)

    def bring_beside(self, up_to: int, connect: Callable[[], Connection]) -> None:
        """The same in a thread of its own; what stops the stream is raised by the next call."""
        if self._stopping is not None:
            raise self._stopping
        with self._change:
            self._goal = up_to
            self._change.notify_all()
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._work, args=(connect,), name=self.sink.name, daemon=True)
            self._thread.start()

    def wait(self, deadline: float) -> None:
        """Until the sink has everything, fails, or takes nothing for long; at most until a moment."""
        taken, since = self.lacking, time.monotonic()
        with self._change:
            while self._thread is not None and self.lacking and self.fault is None and self._thread.is_alive():
                now = time.monotonic()
                if self.lacking < taken:
                    taken, since = self.lacking, now
                left = min(deadline, since + _GIVES_UP) - now
                if left <= 0:
                    return
                self._change.wait(min(left, 0.5))

    def end(self) -> None:
        """Send nothing more; what is being sent may still come."""
        with self._change:
            self._has_ended = True
            self._change.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(FIRST_WAIT)

    def _end(self, life: ShownLife) -> int:
        """The last tick of a life that the sink is to have."""
        first = life.record.last_tick
        return life.visible if life.visible is not None else max(first, self._goal or first)

    def _work(self, connect: Callable[[], Connection]) -> None:
        wait = FIRST_WAIT
        while not self._has_ended:
            try:
                with closing(Journal(connect())) as store:
                    while not self._has_ended:
                        self._bring(store)
                        if self.fault is not None:
                            break
                        wait = FIRST_WAIT
                        with self._change:
                            self._change.notify_all()
                            self._change.wait_for(lambda: self._has_ended or self.lacking)
            except (SyncError, LeaseError, RefusalError) as error:
                self._stopping = error
                return
            except (Exception, PanicException) as error:  # noqa: BLE001
                self._fail(error)
            with self._change:
                self._change.notify_all()
                self._change.wait_for(lambda: self._has_ended, wait)
            wait = min(2 * wait, LONGEST_WAIT)

    def _bring(self, store: Journal) -> None:
        for life in self._lives:
            incarnation = life.record.incarnation
            while self.sent[incarnation] < self._end(life) and not self._has_ended:
                tick = self.sent[incarnation] + 1
                with store.reading():  # which no removal comes between
                    left = _first_left(store, life, tick)
                    payload = store.payload(incarnation, tick, life.ring) if left == tick else b""
                if left > tick:
                    self.removed += left - tick
                    self.sent[incarnation] = left - 1
                    continue
                if store.lease(self._lives[-1].record.incarnation)[0] != self._lease:
                    raise LeaseError("one process may send a stream's ticks, got another that took over since")
                try:
                    reach("publish.before_send")
                    self.sink.send(incarnation, tick, payload)
                    reach("publish.send")
                except (SyncError, LeaseError, RefusalError):
                    raise  # of the stream, which must not go on
                except (Exception, PanicException) as error:  # noqa: BLE001
                    # Neither the other sinks nor the readers wait for one that breaks.
                    self._fail(error)
                    return
                self.fault = None
                self.sent[incarnation] = tick

    def _fail(self, error: BaseException) -> None:
        self.fault = _said(error, self.sink)
        self.failures += 1


class Publisher:
    """Raises what is visible, has sinks brought what they lack, and stores how far they came.

    A sink gets every tick of this incarnation, and before them what the earlier ones had shown to readers and not sent
    when they ended. Up to which tick it has them is believed only with a keyed mark: whatever befalls the rows of the
    outbox, a tick is sent once more rather than not at all. A sink that is new gets what came before.
    """

    def __init__(
        self,
        store: Journal,
        lives: Sequence[ShownLife],
        lease: int,
        sinks: Sequence[Sink] = (),
        connect: Callable[[], Connection] | None = None,
    ) -> None:
        self._store = store
        self._lives = lives
        self.own = lives[-1]
        self._lease = lease
        self._sinks = sinks
        self._connect = connect
        """Given, couriers run in threads of their own."""

        for life in lives:
            life.confirmed = {sink.name: self._confirmed_by(sink, life) for sink in sinks}
        self._couriers = [Courier(sink, lives, store, lease) for sink in sinks]
        self._turn = threading.Lock()
        self.shown = store.visible(self.own.record.incarnation)
        """The last tick that readers were let see."""

        self.store_fault: str | None = None
        """Why readers do not see the last tick yet; it is tried again with the next one."""

    @property
    def faults(self) -> dict[str, str]:
        """What each sink that fails said last, and the store."""
        found = {each.sink.name: each.fault for each in self._couriers} | {"store": self.store_fault}
        return {name: fault for name, fault in found.items() if fault is not None}

    @property
    def failures(self) -> dict[str, int]:
        """How often each sink has failed since the start."""
        return {each.sink.name: each.failures for each in self._couriers}

    @property
    def removed(self) -> dict[str, int]:
        """How many ticks sinks will not get, since they were removed before: of each that lacks any."""
        return {each.sink.name: each.removed for each in self._couriers if each.removed}

    @property
    def undelivered(self) -> dict[str, int]:
        """How many ticks each sink lacks."""
        return {each.sink.name: each.lacking for each in self._couriers}

    def check_not_behind(self, tick: int) -> None:
        """Refuse a store that is behind what a sink has."""
        for sink in self._sinks:
            last = sink.last()
            if last is not None and last > tick:
                raise RollbackError(
                    f"the store must be at tick {last} or later, which the sink {sink.name!r} has, got tick {tick}: it "
                    "was rolled back; bring the newer one back, or accept the loss with: pianissimo recover"
                )

    def expect(self) -> None:
        """Every sink is to get the ticks of this life; in the transaction begun."""
        for sink in self._sinks:
            self._store.expect_sink(sink.name, self.own.record.incarnation, self.own.record.last_tick)

    def _confirmed_by(self, sink: Sink, life: ShownLife) -> int:
        first, last = life.record.last_tick, sink.last()
        if last is not None and life.visible is not None:
            # A sink that can tell may have later ticks, from a store that is lost.
            return max(first, min(last, life.visible))
        said = self._store.delivered(sink.name, life.record.incarnation)
        if said is None or not hmac.compare_digest(said[1], life.mark(sink.name, said[0])):
            return first
        return said[0] if last is None else min(said[0], max(first, last))

    def publish(self, up_to: int, beside: Journal | None = None) -> None:
        """Show everything up to a tick that is stored and witnessed, have it sent, and store what sinks have.

        `beside` is the store as a thread sees it that is not the stream's own.
        """
        with self._turn:
            self._publish(max(up_to, self.shown), self._store if beside is None else beside)

    def _publish(self, up_to: int, store: Journal) -> None:
        for each in self._couriers:
            if self._connect is None:
                each.bring(up_to)
            else:
                each.bring_beside(up_to, self._connect)
        own = self.own.record.incarnation
        delivered = [
            (life, each.sink.name, sent)
            for life in self._lives
            for each in self._couriers
            if (sent := each.sent[life.record.incarnation]) > life.confirmed[each.sink.name]
        ]
        if delivered or store.visible(own) < up_to:
            with store.writing("publish"):
                store.check_lease(own, self._lease)
                visible = max(up_to, store.visible(own))
                store.set_visible(own, visible, self._lease, self.own.ring.keys[0])
                for life, name, tick in delivered:
                    store.mark_delivered(name, life.record.incarnation, tick, life.mark(name, tick))
                reach("publish.commit")
            # Not before: what was sent and could not be marked is sent once more.
            for life, name, tick in delivered:
                life.confirmed[name] = tick
        self.store_fault, self.shown = None, up_to

    def wait(self, seconds: float) -> None:
        """Until each sink beside the stream has everything, or fails, or hangs; at most so long."""
        deadline = time.monotonic() + seconds
        for each in self._couriers:
            each.wait(deadline)

    def close(self) -> None:
        """Send nothing more."""
        for each in self._couriers:
            each.end()


def _first_left(store: Journal, life: ShownLife, tick: int) -> int:
    """The first tick from one on that retention has left."""
    incarnation = life.record.incarnation
    if store.has("releases", incarnation, tick):
        return tick
    removal = store.removal(incarnation, life.ring, of=tick)
    last = store.removal(incarnation, life.ring)
    return tick if removal is None or last is None else last.tick + 1


def _said(error: BaseException, sink: Sink) -> str:
    if isinstance(error, PianissimoError):
        return str(error)
    if isinstance(error, OSError):
        return str(fault_of(error, sink.name))
    # The kind alone, since the text may hold anything.
    return f"{sink.name} must take the release, got {type(error).__name__}; it is sent again"
