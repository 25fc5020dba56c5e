"""T4: readers and sinks get the stored bytes, and nothing else, in the order of ticks."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pianissimo.durable.failpoints import reach
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import KeyRing
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
        """What says that a sink has all ticks up to one."""
        return self.ring.keys[0].mac("delivered", sink, self.record.incarnation, tick)


class Publisher:
    """Raises what is visible and sends what is not confirmed.

    A sink gets every tick of this incarnation, and before them what the earlier ones had shown to readers and not sent
    when they ended. Up to which tick it has them is believed only with a keyed mark: whatever befalls the rows of the
    outbox, a tick is sent once more rather than not at all. A sink that is new gets what came before.
    """

    def __init__(self, store: Journal, lives: Sequence[ShownLife], lease: int, sinks: Sequence[Sink] = ()) -> None:
        self._store = store
        *self._earlier, self.own = lives
        self._lease = lease
        self._sinks = sinks
        for life in lives:
            life.confirmed = {sink.name: self._confirmed_by(sink, life) for sink in sinks}
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

    def publish(self, up_to: int) -> None:
        """Send and show everything up to a tick that is stored and witnessed."""
        lacking = dict.fromkeys(self.undelivered, 0)
        for life in (*self._earlier, self.own):
            self._publish_life(life, up_to if life.visible is None else life.visible, lacking)
        self._earlier = [life for life in self._earlier if any(had != life.visible for had in life.confirmed.values())]
        self.undelivered = lacking

    def _publish_life(self, life: ShownLife, up_to: int, lacking: dict[str, int]) -> None:
        """Send what sinks lack of a life, unless they lack ticks before; of each sink it is noted how many."""
        own, delivered = self.own.record.incarnation, []
        for sink in self._sinks:
            waiting = range(life.confirmed[sink.name] + 1, up_to + 1)
            sent = [] if lacking[sink.name] else self._sent(sink, life, waiting)
            lacking[sink.name] += len(waiting) - len(sent)
            delivered += [(sink.name, tick) for tick in sent]
        if not delivered and (life is not self.own or self._store.visible(own) >= up_to):
            return
        with self._store.writing("publish"):
            self._store.check_lease(own, self._lease)
            if life is self.own:
                visible = max(up_to, self._store.visible(own))
                self._store.set_visible(own, visible, self._lease, life.ring.keys[0])
            for name, tick in dict(delivered).items():
                self._store.mark_delivered(name, life.record.incarnation, tick, life.mark(name, tick))
            reach("publish.commit")
        # Not before: what was sent and could not be marked is sent once more.
        life.confirmed |= dict(delivered)

    def _sent(self, sink: Sink, life: ShownLife, waiting: range) -> list[int]:
        """The ticks that a sink took."""
        done: list[int] = []
        for tick in waiting:
            payload = self._store.payload(life.record.incarnation, tick, life.ring)
            try:
                reach("publish.before_send")
                sink.send(life.record.incarnation, tick, payload)
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
        return done


def _said(error: Exception, sink: Sink) -> str:
    if isinstance(error, PianissimoError):
        return str(error)
    if isinstance(error, OSError):
        return str(fault_of(error, sink.name))
    # The kind alone, since the text may hold anything.
    return f"{sink.name} must take the release, got {type(error).__name__}; it is sent again at the next tick"
