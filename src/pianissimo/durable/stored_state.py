"""What is stored of the state of a durable stream: all of it now and then, and what each tick adds in between.

Windows need the past as well, which would make a state long: that is stored once, when it comes, tick by tick and at
checkpoints. When a state is stored depends on what is stored alone, so that a killed run and an undisturbed one give
the same bytes.
"""

from dataclasses import dataclass, field

from pianissimo import codec
from pianissimo.durable.journal import Journal
from pianissimo.durable.key_ring import KeyRing
from pianissimo.durable.records import Seal, StreamRecord
from pianissimo.errors import DamageError
from pianissimo.storage.purpose_keys import Keys
from pianissimo.stream.live_core import LiveCore

SNAPSHOT_EVERY = 8
"""The state is stored whole after every so many ticks, and what each tick added in between."""

MOST_PUT_OFF = 8
"""A large state may be stored so many times as seldom, while what the ticks since have added is small beside it."""

SMALL_STATE = 2**20
"""A state of up to so many bytes is never put off."""

_SMALL_SHARE = 4
_NO_STATE = b""

Gathered = list[list[codec.Plain]]
"""For each batch of a tick what it adds to each part of the stream."""


@dataclass(slots=True, repr=False)
class StateRows:
    """What a tick stores of the state beside its release."""

    snapshot: bytes | None = None
    history: bytes | None = None
    checkpoint: bytes | None = None
    kept_history: int = 0
    """How many ticks of the history are needed from then on."""

    needed: set[int] = field(default_factory=set)
    """Of which ticks checkpoints are."""


class StoredState:
    """The stored state of one life, and what came since."""

    def __init__(self, core: LiveCore, store: Journal, record: StreamRecord, ring: KeyRing, every: int) -> None:
        self._core, self._store, self._record, self._every = core, store, record, every
        self.tick = record.last_tick
        """Of the last stored state."""

        self.digest = self._by_first = _digest(ring.epoch(0), _NO_STATE)
        """Under the secret of its tick: guesses of what it holds are held against it by whoever has that secret."""

        self.added_bytes = self._bytes = 0
        """The sizes of what is sealed since, and of that state."""

        self._lasting: set[int] = set()
        """Of which ticks that state needs checkpoints."""

    def load(self, ring: KeyRing) -> None:
        """Take the state up where it was stored last."""
        snapshot = self._store.snapshot(self._record.incarnation, ring)
        if snapshot is not None:
            self.tick, content = snapshot
            state = codec.unpack("stream state", 1, content)
            self._core.load(state, self._logs(ring))
            self._bytes, keys = self.size(content, state), ring.epoch(ring.number_at(self.tick))
            self.digest, self._by_first = _digest(keys, content), _digest(ring.epoch(0), content)
        self._lasting = self._core.lasting

    def is_before(self, seal: Seal) -> bool:
        """Whether a seal covers the state that was loaded; earlier versions had its digest under the first secret."""
        return seal.state in (self.digest, self._by_first)

    def delta(self, seal: Seal, ring: KeyRing) -> Gathered:
        """What a tick since then has added, as it was sealed."""
        content = self._store.delta(seal, ring)
        if ring.epoch(seal.epoch).digest("delta", content) != seal.counts:
            raise DamageError(f"what tick {seal.tick} adds must be what was sealed, got another; restore a backup")
        gathered: Gathered = codec.unpack("delta", 1, content)
        self._core.check_gathered(gathered)
        self.added_bytes += self.size(content, gathered)
        return gathered

    def rows(self, tick: int, keys: Keys, *, whole: bool) -> StateRows:
        """What the tick that was just counted is to store, with its keys; `whole` if all of the state may be of it."""
        found, place = StateRows(), tick - self._record.last_tick
        if self._core.log_length:
            found.history = codec.pack("history", 1, self._core.logs(place))
            checkpoints = self._core.checkpoints(place)
            found.checkpoint = None if checkpoints is None else codec.pack("checkpoint", 1, checkpoints)
        if whole and self._is_due(tick):
            state = self._core.dump()
            found.snapshot = codec.pack("stream state", 1, state)
            self.digest = _digest(keys, found.snapshot)
            self.tick, self._bytes, self.added_bytes = tick, self.size(found.snapshot, state), 0
            self._lasting = self._core.lasting
        # A start goes through all ticks since the stored state.
        found.kept_history = self._core.log_length + max(self._every, tick - self.tick)
        if found.checkpoint is not None:
            found.needed = {self._record.last_tick + place for place in self._core.lasting | self._lasting}
        return found

    def size(self, content: bytes, plain: codec.Plain) -> int:
        """How many bytes are stored of something: here, and by shards."""
        return len(content) + self._core.stored_beside(plain)

    def _is_due(self, tick: int) -> bool:
        """Whether the state is stored whole at a tick.

        To store a large state that has hardly changed takes longer than to count those changes again, and a start has
        a bound either way: so many ticks, which have added less than a part of the state.
        """
        if tick % self._every:
            return False
        is_large = self._bytes > max(SMALL_STATE, _SMALL_SHARE * self.added_bytes)
        return not is_large or tick - self.tick >= MOST_PUT_OFF * self._every

    def insert(self, rows: StateRows, seal: Seal, keys: Keys) -> None:
        """Store these rows; in the transaction begun."""
        if rows.history is not None:
            self._store.insert_history(seal, rows.history, keys, keep=rows.kept_history)
        if rows.checkpoint is not None:
            self._store.insert_checkpoint(seal, rows.checkpoint, keys, needed=rows.needed)
        if rows.snapshot is not None:
            self._store.insert_snapshot(seal, rows.snapshot, keys)

    def check_checkpoints(self) -> int | None:
        """Refuse a store that has lost a checkpoint; gives the first one, where those before it were never stored.

        A stream that an earlier version began has none of its first ticks, and nothing tells them from rows that are
        gone. One that is missing after another was stored for sure, and so was what the ticks since the stored state
        have made again.
        """
        begin, there = self._record.last_tick, self._store.ticks("checkpoints", self._record.incarnation)
        made = {begin + place for place in self._core.lasting}
        absent = (made | {begin + place for place in self._core.missing}) - {*there}
        lost = sorted(tick for tick in absent if tick in made or (there and tick > there[0]))
        if lost:
            raise DamageError(
                f"the checkpoint of tick {lost[0]} must be stored, got none, and {len(lost)} missing in all: windows "
                "that begin or end there are refused, and releases go on; restore a backup"
            )
        return (there[0] if there else self.tick) if absent else None

    def _logs(self, ring: KeyRing) -> list[codec.Plain]:
        """What the stored state needs beside it: checkpoints and the last logs, the oldest first."""
        if not self._core.log_length:
            return []
        place = (self._record.incarnation, self.tick, ring)
        checkpoints = [codec.unpack("checkpoint", 1, each) for each in self._store.checkpoints(*place)]
        return checkpoints + [codec.unpack("history", 1, each) for each in self._store.history(*place)]


def _digest(keys: Keys, content: bytes) -> bytes:
    return keys.digest("state", content)
