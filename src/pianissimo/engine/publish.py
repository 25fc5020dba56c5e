"""T4: readers and sinks get the stored bytes, and nothing else, in the order of ticks."""

import hmac
from collections.abc import Callable, Sequence
from typing import Protocol

from pianissimo.engine.failpoints import reach
from pianissimo.engine.keys import Keys
from pianissimo.engine.records import StreamRecord
from pianissimo.engine.soundness import progress_mark
from pianissimo.engine.store import StateStore, fault_of
from pianissimo.errors import LeaseError, PianissimoError, RefusalError, RollbackError, SyncError


class Sink(Protocol):
    """Where releases go. A tick may be sent twice after a crash; the bytes are the same."""

    name: str

    def last(self) -> int | None:
        """The last tick that the sink is known to have; None if it cannot tell."""

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        """Take a release under the key (incarnation, tick), durably; `InputError` if it cannot be taken now.

        Whatever else it raises is that sink's fault too, and told by its kind alone.
        """


class Publisher:
    """Raises what is visible and sends what is not confirmed.

    A sink gets every tick of this incarnation. That it has one is believed only with a keyed mark: whatever befalls
    the rows of the outbox, a tick is sent once more rather than not at all. A sink that is new gets what came before.
    """

    def __init__(
        self,
        store: StateStore,
        record: StreamRecord,
        lease: int,
        payload: Callable[[int], bytes],
        sinks: Sequence[Sink] = (),
        *,
        keys: Keys,
    ) -> None:
        self._store = store
        self._incarnation = record.incarnation
        self._keys = keys
        self._payload = payload
        self._lease = lease
        self._sinks = sinks
        self._confirmed = {sink.name: self._confirmed_by(sink, record.last_tick) for sink in sinks}
        self.faults: dict[str, str] = {}
        """What a sink said when it last failed; it is tried again at the next slot."""

        self.failures: dict[str, int] = {sink.name: 0 for sink in sinks}
        """How often each sink has failed since the start."""

        self.undelivered: dict[str, int] = {sink.name: 0 for sink in sinks}
        """How many ticks each sink lacked after the last slot."""

    def check_not_behind(self, tick: int) -> None:
        """Refuse a store that is behind what a sink has."""
        for sink in self._sinks:
            last = sink.last()
            if last is not None and last > tick:
                raise RollbackError(
                    f"the store must be at tick {last} or later, which the sink {sink.name!r} has, got tick {tick}: it "
                    "was rolled back; bring the newer one back, or accept the loss with: pianissimo recover"
                )

    def enqueue(self, tick: int) -> None:
        """Every sink must get this tick; in the transaction that stores it."""
        for sink in self._sinks:
            self._store.add_to_outbox(sink.name, self._incarnation, tick)

    def _mark(self, sink: str, tick: int) -> bytes:
        return self._keys.mac("delivered", sink, self._incarnation, tick)

    def _confirmed_by(self, sink: Sink, first: int) -> int:
        """The last tick up to which a sink has everything."""
        confirmed = first
        for tick, mark in self._store.outbox(sink.name, self._incarnation):
            if tick != confirmed + 1 or not hmac.compare_digest(mark, self._mark(sink.name, tick)):
                break
            confirmed = tick
        last = sink.last()
        return confirmed if last is None else min(confirmed, max(first, last))

    def publish(self, up_to: int) -> None:
        """Send and show everything up to a tick that is stored and witnessed."""
        delivered = [(sink.name, tick) for sink in self._sinks for tick in self._sent(sink, up_to)]
        if not delivered and self._store.visible(self._incarnation) >= up_to:
            return
        with self._store.writing("publish"):
            self._store.check_lease(self._incarnation, self._lease)
            visible = max(up_to, self._store.visible(self._incarnation))
            mark = progress_mark(self._keys, self._incarnation, visible, self._lease)
            self._store.set_progress(self._incarnation, visible, self._lease, mark)
            for name, tick in delivered:
                self._store.mark_delivered(name, self._incarnation, tick, self._mark(name, tick))
            reach("publish.commit")
        # Not before: what was sent and could not be marked is sent once more.
        self._confirmed |= dict(delivered)

    def _sent(self, sink: Sink, up_to: int) -> list[int]:
        done: list[int] = []
        waiting = range(self._confirmed[sink.name] + 1, up_to + 1)
        self.undelivered[sink.name] = len(waiting)
        for tick in waiting:
            payload = self._payload(tick)
            try:
                reach("publish.before_send")
                sink.send(self._incarnation, tick, payload)
                reach("publish.send")
            except (SyncError, LeaseError, RefusalError):
                raise  # of the stream, which must not go on
            except Exception as error:  # noqa: BLE001
                # Neither the other sinks nor the readers wait for one that breaks.
                self.faults[sink.name] = _said(error, sink)
                self.failures[sink.name] += 1
                break
            self.faults.pop(sink.name, None)
            done.append(tick)
            self.undelivered[sink.name] -= 1
        return done


def _said(error: Exception, sink: Sink) -> str:
    if isinstance(error, PianissimoError):
        return str(error)
    if isinstance(error, OSError):
        return str(fault_of(error, sink.name))
    # The kind alone, since the text may hold anything.
    return f"{sink.name} must take the release, got {type(error).__name__}; it is sent again at the next tick"
