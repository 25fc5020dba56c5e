"""Who has shards for a while: loads what they are made of, answers for them, and remembers their states as a cache.

A state is remembered under a name that follows from all that led to it, seals as well, since noise is bound to them: a
seal may be lost before anybody saw its tick, and the tick be sealed anew while owners live on. Who is asked for another
state, because it was started anew or another had the shard meanwhile, loads the stored one, adds what ticks since have
added and answers what was asked since once more. Every blob is held against the digest that the seal covers before
anything is drawn.
The keys of a shard come closed with the task that asks about it, and go when its state does.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import DamageError, StateError
from pianissimo.noise import Noise, Secret
from pianissimo.noise.keyed import Integers, Keys, PathPart
from pianissimo.noise.plan import NoisePlan
from pianissimo.noise.running import ONE_SERIES, evaluate, running_noise
from pianissimo.noise.sealed_noise import SealedNoise
from pianissimo.shards.shard_task import AskedTick, ShardPlan, ShardTask, StoreTask, state_name
from pianissimo.storage import purpose_keys
from pianissimo.storage.blobs import BlobFolder, BlobName
from pianissimo.stream import StreamPlan
from pianissimo.stream.live_core import LivePart, answered_together
from pianissimo.workers.bundles import ShardedParts

DELTA, STATE = "shard delta", "shard state"
"""What blobs hold: what a tick adds to a shard, and all that it is after one."""

KEY = "shard key"
"""What comes with a task, closed: that from which the keys of a shard follow."""


_KEPT = 2
"""So many times as many states as a task has shards are remembered at most."""


Parts = dict[int, LivePart]
"""What a shard is: the parts of the stream whose state shards have, by their numbers in it."""


class ShardOwner:
    """Shards of one life of a stream."""

    def __init__(self, told: ShardPlan, keys: purpose_keys.Keys, make_noise: Callable[[Secret], Noise]) -> None:
        self._told, self._keys, self._make_noise = told, keys, make_noise
        self._plan = StreamPlan.from_plain(told.chosen)
        self.parts = ShardedParts(self._plan)
        self.blobs = BlobFolder(told.place, told.incarnation)
        self._shard_keys: dict[int, purpose_keys.Keys] = {}
        self._states: dict[int, tuple[bytes, Parts]] = {}
        """By shard the name of a state, and itself."""

        self._macs: dict[int, bytes] = {}
        self.loads = 0
        """How many states were made from blobs, because they were not at hand."""

    def take(self, keys: Mapping[int, bytes]) -> None:
        """Open the keys of some shards, where they are not at hand."""
        for shard in keys.keys() - self._shard_keys.keys():
            root = self._keys.opened(keys[shard], KEY, self._told.incarnation, shard)
            self._shard_keys[shard] = purpose_keys.Keys(Secret(root))

    def of(self, task: ShardTask | StoreTask, rules: Any = None) -> list[Any]:  # noqa: ARG002
        """Of each shard of a task its answers by part, or what is stored of it: its digest and its size."""
        self.take(task.keys)
        told = self._asked(task) if isinstance(task, ShardTask) else self._brought_together(task)
        # Also of those that something was asked of in vain.
        self._shard_keys = {shard: self._shard_keys[shard] for shard in self._states}
        return told

    def _brought_together(self, task: StoreTask) -> list[list[Any]]:
        cut = [each for pieces in task.bundles for each in self.parts.together(pieces, task.closed).items()]
        return self.put(task.tick, dict(cut))

    def put(self, tick: int, cut: Mapping[int, list[codec.Plain]]) -> list[list[Any]]:
        """Store what a tick adds to each shard: by shard its digest and its size, durable on return."""
        stored, blobs = [], {}
        for shard in sorted(cut):
            content = codec.pack(DELTA, 1, cut[shard])
            name, blob = self.closed(DELTA, tick, shard, content)
            blobs[name] = blob
            stored.append([shard, name.digest, len(content)])
        self.blobs.put(tick, blobs)
        return stored

    def _asked(self, task: ShardTask) -> list[tuple[int, Any]]:
        self._macs = {tick: mac for asked in task.ticks for tick, mac in asked.macs.items()}
        found = self._stored if task.stores else self._answered
        told = [(shard, found(task, shard)) for shard in task.shards]
        while len(self._states) > _KEPT * len(task.shards):
            # Of shards that others have by now: those that were asked for longest ago.
            del self._states[next(iter(self._states))]
        return told

    def closed(self, kind: str, tick: int, shard: int, content: bytes) -> tuple[BlobName, bytes]:
        """A content as a blob of its place: its name, and what is stored."""
        keys = self._keys_of(shard)
        name = BlobName(tick, shard, keys.digest(kind, content))
        return name, keys.closed(content, kind, self._told.incarnation, *name)

    def opened(self, kind: str, name: BlobName) -> bytes:
        """The content of a blob, if it is the one that its name says."""
        keys = self._keys_of(name.shard)
        content = keys.opened(self.blobs.get(name), kind, self._told.incarnation, *name)
        if keys.digest(kind, content) != name.digest:
            raise DamageError(f"a {kind} of tick {name.tick} must be what was sealed, got another; restore a backup")
        return content

    def _answered(self, task: ShardTask, shard: int) -> Any:
        parts, name, answers = self._at(task, shard)
        self._states[shard] = name, parts
        return answers

    def _stored(self, task: ShardTask, shard: int) -> Any:
        parts, _, _ = self._at(task, shard)
        last, seal = task.ticks[-1].tick, task.ticks[-1].seal
        for part in parts.values():
            part.run.stand_after(last // part.every)
        content = codec.pack(STATE, 1, [part.run.dump(whole=True) for part in parts.values()])
        name, blob = self.closed(STATE, last, shard, content)
        self.blobs.put(last, {name: blob})
        self._states[shard] = state_name(last, seal, name.digest), parts
        return name.digest, len(content)

    def _at(self, task: ShardTask, shard: int) -> tuple[Parts, bytes, dict[int, Any]]:
        """A shard as it is asked for, with the name of its state and what it answered last."""
        steps, blobs = list(task.steps(shard)), task.shards[shard]
        names = [task.begins(shard), *(name for name, _, _ in steps)]
        # Taken away until all is done: a step that was interrupted is never taken for a finished one.
        known, parts = self._states.pop(shard, (b"", None))
        # The last answer is wanted, so that its step is taken in any case.
        usable = names if task.stores else names[:-1]
        if parts is None or known not in usable:
            parts, known = self._begun(task, shard), names[0]
            self.loads += 1
        answers: dict[int, Any] = {}
        for _, asked, questions in steps[names.index(known) :]:
            if questions is None:
                self._begin_tick(parts, shard, asked, blobs.deltas.get(asked.tick))
            else:
                asked_of = codec.unpack("questions", 1, questions)
                answers = {number: parts[number].run.answer(question) for number, question in asked_of.items()}
        return parts, names[-1], answers

    def _begun(self, task: ShardTask, shard: int) -> Parts:
        """A shard as it was stored last, or before its first event."""
        first = self._told.after
        root = self._make_noise(self._keys_of(shard).noise)
        root = root.at("pianissimo/noise/v1", self._told.incarnation, self._told.config_digest)

        def noise_for(every: int) -> Noise:
            return SealedNoise(lambda _: root, self._mac_of, first=first, stride=every)

        parts = {
            number: LivePart(self._plan, answered, noise_for, first, by_name=False)
            for number, answered in enumerate(answered_together(self._plan))
            if number in self.parts.mechanisms
        }
        state = task.shards[shard].state
        if state is not None:
            content = codec.unpack(STATE, 1, self.opened(STATE, BlobName(task.base, shard, state)))
            for part, own in zip(parts.values(), content, strict=True):
                part.run.load(own, [])
        return parts

    def _begin_tick(self, parts: Parts, shard: int, asked: AskedTick, delta: bytes | None) -> None:
        for part in parts.values():
            part.run.stand_after((asked.tick - 1) // part.every)
        if delta is None:
            return
        content = codec.unpack(DELTA, 1, self.opened(DELTA, BlobName(asked.tick, shard, delta)))
        for part, own in zip(parts.values(), content, strict=True):
            part.add(own)

    def _keys_of(self, shard: int) -> purpose_keys.Keys:
        if shard not in self._shard_keys:
            raise StateError(f"the keys of shard {shard} must come with what is asked of it, got none")
        return self._shard_keys[shard]

    def _mac_of(self, tick: int) -> bytes:
        if tick not in self._macs:
            raise StateError(f"the seal of tick {tick} must be told to who draws noise bound to it, got others")
        return self._macs[tick]

    def __repr__(self) -> str:
        return "ShardOwner(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an owner of shards is not pickled: it has keys and states; make it anew from its plan")


class _Listening(Noise):
    """Noise that is nothing, and notes which seals it would be bound to."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        self.asked: set[int] = set()

    def at(self, *path: PathPart) -> "_Listening":  # noqa: ARG002
        return self

    def sealed(self, tick: int) -> Noise:
        """The same noise."""
        self.asked.add(tick)
        return self

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:  # noqa: ARG002
        out[:] = 0

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        return np.zeros((len(keys), 2), dtype=np.uint64)

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> Keys:  # noqa: ARG002
        return np.zeros((len(lengths), 2), dtype=np.uint64)


def seals_of(plan: NoisePlan, tick: int) -> set[int]:
    """The ticks whose seals the noise of a release is bound to, drawn from nothing or from the release before."""
    listening = _Listening()
    running = running_noise(plan)
    for place in range(max(1, tick - 1), tick + 1):
        running.at(listening, place, 1, lambda *_: ONE_SERIES)
    running_noise(plan).at(listening, tick, 1, lambda *_: ONE_SERIES)
    evaluate(plan, listening, tick, ONE_SERIES)
    return listening.asked
