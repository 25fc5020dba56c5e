"""T4: readers and sinks get the stored bytes, and nothing else, in the order of ticks."""

import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pianissimo.durable.failpoints import reach
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import Keys
from pianissimo.durable.records import StreamRecord
from pianissimo.errors import LeaseError, PianissimoError, RefusalError, RollbackError, SyncError
from pianissimo.storage.files import fault_of


class Sink(Protocol):
    """Where releases go. A tick may be sent twice after a crash; the bytes are the same."""

    name: str

    def last(self) -> int | None:
        """The last tick that the sink is known to have; None if it cannot tell."""

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        """Take a release under the key (incarnation, tick), durably; `InputError` if it cannot be taken now.

        Whatever else it raises is that sink's fault too, and told by its kind alone.
        """


@dataclass(frozen=True, slots=True, repr=False)
class EarlierLife:
    """An incarnation that has ended, of which sinks may lack ticks."""

    record: StreamRecord
    visible: int
    """Its last tick that readers could see, and that was so witnessed before.

    What was released after it stays unseen for ever: a clone of the store, or its original, may have shown that tick
    of that incarnation over other data, and nobody has a witness any more that says that it did not.
    """

    keys: Keys
    payload: Callable[[int], bytes]


class Publisher:
    """Raises what is visible and sends what is not confirmed.

    A sink gets every tick of this incarnation, and before them what the earlier ones had shown to readers and not sent
    when they ended. That it has a tick is believed only with a keyed mark: whatever befalls the rows of the
    outbox, a tick is sent once more rather than not at all. A sink that is new gets what came before.
    """

    def __init__(
        self,
        store: Journal,
        record: StreamRecord,
        lease: int,
        payload: Callable[[int], bytes],
        sinks: Sequence[Sink] = (),
        *,
        keys: Keys,
        earlier: Sequence[EarlierLife] = (),
    ) -> None:
        self._store = store
        self._incarnation = record.incarnation
        self._keys = keys
        self._payload = payload
        self._lease = lease
        self._sinks = sinks
        self._confirmed = {sink.name: self._confirmed_by(sink, record.last_tick) for sink in sinks}
        self._earlier = [(life, {sink.name: self._kept_by(sink, life) for sink in sinks}) for life in earlier]
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

    def _confirmed_by(self, sink: Sink, first: int) -> int:
        """The last tick up to which a sink has everything."""
        confirmed = self._marked(sink, self._incarnation, self._keys, first)
        last = sink.last()
        return confirmed if last is None else min(confirmed, max(first, last))

    def _kept_by(self, sink: Sink, life: EarlierLife) -> int:
        """The same for a life that has ended: a sink that can tell may have later ticks, from a store that is lost."""
        first, last = life.record.last_tick, sink.last()
        if last is None:
            return self._marked(sink, life.record.incarnation, life.keys, first)
        return max(first, min(last, life.visible))

    def _marked(self, sink: Sink, incarnation: bytes, keys: Keys, first: int) -> int:
        confirmed = first
        for tick, mark in self._store.outbox(sink.name, incarnation):
            if tick != confirmed + 1 or not hmac.compare_digest(mark, _mark(keys, sink.name, incarnation, tick)):
                break
            confirmed = tick
        return confirmed

    def publish(self, up_to: int) -> None:
        """Send and show everything up to a tick that is stored and witnessed."""
        lacking: dict[str, int] = {}
        for life, confirmed in self._earlier:
            self._publish_earlier(life, confirmed, lacking)
        self._earlier = [
            (life, had) for life, had in self._earlier if min(had.values(), default=life.visible) < life.visible
        ]
        delivered = [
            (sink.name, tick) for sink in self._sinks if sink.name not in lacking for tick in self._sent(sink, up_to)
        ]
        for name, ticks in lacking.items():
            self.undelivered[name] = ticks + up_to - self._confirmed[name]
        if not delivered and self._store.visible(self._incarnation) >= up_to:
            return
        with self._store.writing("publish"):
            self._store.check_lease(self._incarnation, self._lease)
            visible = max(up_to, self._store.visible(self._incarnation))
            self._store.set_visible(self._incarnation, visible, self._lease, self._keys)
            for name, tick in delivered:
                mark = _mark(self._keys, name, self._incarnation, tick)
                self._store.mark_delivered(name, self._incarnation, tick, mark)
            reach("publish.commit")
        # Not before: what was sent and could not be marked is sent once more.
        self._confirmed |= dict(delivered)

    def _publish_earlier(self, life: EarlierLife, confirmed: dict[str, int], lacking: dict[str, int]) -> None:
        """Send what a life left unsent; of each sink that still lacks ticks, how many, is noted."""
        incarnation, delivered = life.record.incarnation, []
        for sink in self._sinks:
            if sink.name not in lacking:
                sent = self._sent_of(sink, incarnation, life.payload, range(confirmed[sink.name] + 1, life.visible + 1))
                delivered += [(sink.name, tick) for tick in sent]
            left = life.visible - max([confirmed[sink.name], *(tick for name, tick in delivered if name == sink.name)])
            if left:
                lacking[sink.name] = lacking.get(sink.name, 0) + left
        if not delivered:
            return
        with self._store.writing("publish"):
            self._store.check_lease(self._incarnation, self._lease)
            for name, tick in delivered:
                self._store.mark_delivered(name, incarnation, tick, _mark(life.keys, name, incarnation, tick))
            reach("publish.commit")
        confirmed |= dict(delivered)

    def _sent(self, sink: Sink, up_to: int) -> list[int]:
        waiting = range(self._confirmed[sink.name] + 1, up_to + 1)
        return self._sent_of(sink, self._incarnation, self._payload, waiting)

    def _sent_of(self, sink: Sink, incarnation: bytes, payload_of: Callable[[int], bytes], waiting: range) -> list[int]:
        done: list[int] = []
        self.undelivered[sink.name] = len(waiting)
        for tick in waiting:
            payload = payload_of(tick)
            try:
                reach("publish.before_send")
                sink.send(incarnation, tick, payload)
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


def _mark(keys: Keys, sink: str, incarnation: bytes, tick: int) -> bytes:
    return keys.mac("delivered", sink, incarnation, tick)
