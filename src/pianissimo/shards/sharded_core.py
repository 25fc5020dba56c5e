"""The runs of a stream whose labels or users are in shards: the driver gathers, seals, asks and speaks for all.

What a tick adds is cut by shard and stored as blobs before it is sealed; the seal covers the list of shards that have
something, each with the keyed digest of its blob. So every shard can be held against the seal by itself. A release is a
conversation: all queries ask their first questions together, then those that have another one.

Why this is as private as one process: docs/privacy.md, 'Shards'.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from pianissimo import codec
from pianissimo.errors import StateError
from pianissimo.mechanism import Conversation
from pianissimo.noise import KeyedNoise, Noise, Secret
from pianissimo.shards.shard_owner import DELTA, KEY, STATE, ShardOwner, seals_of
from pianissimo.shards.shard_task import AskedTick, ShardBlobs, ShardPlan, ShardTask, StoreTask
from pianissimo.storage.blobs import BlobName
from pianissimo.storage.purpose_keys import Keys
from pianissimo.stream import StreamPlan
from pianissimo.stream.live_core import LiveCore, NoiseFor, together
from pianissimo.workers import Workers
from pianissimo.workers.bundles import bundles_of

TASK_BYTES = 2**24
"""About so much of what a tick adds goes out in one task, unless a bundle has more: Spark refuses messages of 2^27."""


@dataclass(frozen=True, slots=True, repr=False)
class Holding:
    """What a driver of shards has: their plan, what the keys of all of them follow from, the seals, and who works."""

    told: ShardPlan
    root: Secret
    macs: Callable[[int], bytes]
    """The digest of the seal of a tick of the stream."""

    workers: Workers | None = None
    """Who has the shards; None where the driver has them itself."""

    make_noise: Callable[[Secret], Noise] = KeyedNoise


class ShardedCore(LiveCore):
    """The runs of a plan, with the states of some of them in shards."""

    def __init__(self, plan: StreamPlan, noise_for: NoiseFor, holding: Holding) -> None:
        super().__init__(plan, noise_for, after=holding.told.after)
        self._holding = holding
        self._keys = Keys(holding.root)
        self._closed_keys: dict[int, bytes] = {}
        self._owner: ShardOwner = holding.told.worker(self._keys.opener, holding.make_noise)
        self._sharded: dict[int, Any] = {
            number: part for number, part in enumerate(self.parts) if number in self._owner.parts.mechanisms
        }
        self._shards: dict[int, ShardBlobs] = {}
        """Of what each shard is made that has ever counted anything."""

        self._base = 0
        """After which tick of this life the shards' states were stored."""
        self._ticks: list[AskedTick] = []
        self._place = 0
        if holding.workers is not None:
            holding.workers.own(holding.told, self._keys.opener)

    def from_elsewhere(self, piece: codec.Plain) -> list[codec.Plain]:
        """For each part what some events of the open tick add; None for those in shards, whose bundles come last."""
        *own, bundles = piece
        return [*super().from_elsewhere(own), bundles]

    def combine(self, gathered: Sequence[Sequence[codec.Plain]]) -> list[codec.Plain]:
        """For each part what all batches of the open tick add, but for those in shards; and the shards' blobs.

        These are durable before the seal: what is sealed is there. What is never sealed is found by nobody, and removed
        later.
        """
        parts, tick, count = self._owner.parts, self._place + 1, len(self.parts)
        if all(len(batch) == count for batch in gathered):
            whole, theirs = parts.taken_out(super().combine(gathered))
            cut = parts.by_shard(theirs)
            self._owner.take(self._keys_for(cut))
            return [*whole, self._owner.put(tick, cut)]
        # Some of it was gathered elsewhere: who has the shards brings it together.
        batches = [batch if len(batch) > count else self._bundled(batch) for batch in gathered]
        bundles: dict[int, list[bytes]] = {}
        for *_, pieces in batches:
            for number, piece in pieces:
                bundles.setdefault(number, []).append(piece)
        stored = [each for told in self._done(self._store_tasks(tick, bundles)) for each in told]
        return [*super().combine([own for *own, _ in batches]), sorted(stored)]

    def _bundled(self, batch: Sequence[codec.Plain]) -> list[codec.Plain]:
        """What was gathered here, as if it had been gathered elsewhere."""
        own, theirs = self._owner.parts.taken_out(batch)
        return [*own, self._owner.parts.bundled(theirs)]

    def _store_tasks(self, tick: int, bundles: dict[int, list[bytes]]) -> list[StoreTask]:
        """Each with the bundles of some numbers, and the keys of all shards that may be in these."""
        shards = range(self.plan.shards)
        closed = frozenset(number for number, part in self._sharded.items() if not part.is_open)
        size = sum(len(piece) for pieces in bundles.values() for piece in pieces)
        count = min(len(bundles), -(-size // TASK_BYTES))
        cut: list[list[int]] = [[] for _ in range(max(count, self._spread(len(bundles))))]
        for number in sorted(bundles):
            cut[number % len(cut)].append(number)
        within = [[shard for number in some for shard in shards[number :: bundles_of(len(shards))]] for some in cut]
        return [
            StoreTask(tick, [bundles[number] for number in some], closed, self._keys_for(own))
            for some, own in zip(cut, within, strict=True)
            if some
        ]

    @property
    def gathers_ahead(self) -> bool:
        """Blobs are of the tick that is next to be counted: ticks are not held."""
        return False

    def check_gathered(self, gathered: Sequence[Sequence[codec.Plain]]) -> None:
        if any(len(batch) != len(self.parts) + 1 for batch in gathered):
            raise StateError("a stored tick must be of these queries and shards, got others")

    def stored_beside(self, content: codec.Plain) -> int:
        shards = content["shards"] if isinstance(content, dict) else content[-1][-1]
        return sum(size for _, _, size in shards)

    def add(self, gathered: Sequence[Sequence[codec.Plain]]) -> None:
        """Count what was gathered: here, and in shards, whose blobs are looked at when something is asked of them."""
        ((*own, shards),) = gathered
        super().add([own])
        tick = self._place + 1
        for shard, digest, _ in shards:
            blobs = self._shards.get(shard, ShardBlobs())
            self._shards[shard] = replace(blobs, deltas={**blobs.deltas, tick: digest})
        macs = {seal: self._holding.macs(seal) for seal in self._seals(tick)}
        self._ticks.append(AskedTick(tick, self._holding.macs(self.after + tick), macs))

    def _seals(self, tick: int) -> set[int]:
        """Of which ticks of the stream the seals are that noise in shards may be bound to at a tick of this life."""
        return {
            self.after + part.every * seal
            for part in self._sharded.values()
            if part.is_due(tick)
            for plan in part.run.mechanism.shard_plans
            for seal in seals_of(plan, tick // part.every)
        }

    def release(self, place: int) -> dict[str, pl.DataFrame]:
        """Close a tick: what is published at it."""
        found: dict[int, dict[str, pl.DataFrame]] = {}
        talks: dict[int, Conversation[dict[str, pl.DataFrame]]] = {}
        answers: dict[int, list[Any]] = {}
        for number, part in enumerate(self.parts):
            if number in self._sharded and part.is_due(place):
                talks[number] = part.converse(place)
            elif number not in self._sharded:
                found[number] = part.tables(place)
        while talks:
            questions = {}
            for number, talk in list(talks.items()):
                try:
                    questions[number] = talk.send(answers[number]) if number in answers else next(talk)
                except StopIteration as end:
                    found[number] = end.value
                    del talks[number]
            if questions:
                answers = self._asked(questions)
        self._place = place
        return together(found[number] for number in sorted(found))

    def _asked(self, questions: dict[int, Any]) -> dict[int, list[Any]]:
        """The answers of all shards to one question for each part."""
        self._ticks[-1] = self._ticks[-1].asking(questions)
        told = self._told(stores=False)
        return {number: [answers[number] for _, answers in told] for number in questions}

    def _told(self, *, stores: bool) -> list[tuple[int, Any]]:
        """What all shards that have ever counted anything say, in the order of their numbers."""
        seal = self._holding.macs(self.after + self._base)
        task = ShardTask(self._base, seal, tuple(self._ticks), {}, stores)
        cut: list[dict[int, ShardBlobs]] = [{} for _ in range(self._spread(len(self._shards)))]
        for shard, blobs in self._shards.items():
            cut[shard % len(cut)][shard] = blobs
        tasks = [replace(task, shards=some, keys=self._keys_for(some)) for some in cut if some]
        return sorted((each for told in self._done(tasks) for each in told), key=lambda each: each[0])

    def _spread(self, most: int) -> int:
        """Into how many tasks so many things are cut."""
        workers = self._holding.workers
        return 1 if workers is None else max(1, min(workers.spread(), most))

    def _done(self, tasks: Sequence[ShardTask | StoreTask]) -> list[list[Any]]:
        """What comes of tasks, by whoever has the shards."""
        workers = self._holding.workers
        return [self._owner.of(task) for task in tasks] if workers is None else workers.ask(tasks)

    def _keys_for(self, shards: Collection[int]) -> dict[int, bytes]:
        """What the keys of some shards follow from, closed for whoever has the shards key."""
        keys, life = Keys(self._keys.opener), self._holding.told.incarnation
        for shard in shards:
            if shard not in self._closed_keys:
                self._closed_keys[shard] = keys.closed(bytes(self._keys.shard(shard)), KEY, life, shard)
        return {shard: self._closed_keys[shard] for shard in shards}

    def dump(self) -> codec.Plain:
        """All that is known here between two ticks, and of each shard the digest of its state, which it stores."""
        stored = self._told(stores=True)
        # What lies before the states that were stored last is needed by nobody: those are in the store by now.
        for tick in self._owner.blobs.ticks():
            if tick < self._base:
                self._owner.blobs.remove(tick)
        self._take_base(self._place, [[shard, digest, size] for shard, (digest, size) in stored])
        return {"own": super().dump(), "tick": self._base, "shards": self._sizes}

    def load(self, states: codec.Plain, logs: Sequence[Sequence[codec.Plain]]) -> None:
        """Take over what `dump` gave; shards load their states when something is asked of them."""
        try:
            own, tick, shards = states["own"], states["tick"], states["shards"]
        except (TypeError, KeyError):
            raise StateError("a stored state must have the content of this version, got other content") from None
        super().load(own, logs)
        self._place = tick
        self._take_base(tick, shards)

    def _take_base(self, tick: int, shards: list[list[Any]]) -> None:
        self._base = tick
        self._sizes = shards
        self._shards = {shard: ShardBlobs(state=digest) for shard, digest, _ in shards}
        self._ticks = []

    def collect(self) -> None:
        """At a start: remove blobs of sealed ticks that no seal covers, and those of ticks before the stored state.

        Those of the next tick stay until it is sealed: whoever took the stream over meanwhile may have stored them.
        """
        named = {tick: set[BlobName]() for tick in self._owner.blobs.ticks() if tick <= self._place}
        for shard, blobs in self._shards.items():
            for tick, digest in [(self._base, blobs.state), *blobs.deltas.items()]:
                if digest is not None:
                    named.setdefault(tick, set()).add(BlobName(tick, shard, digest))
        for tick, names in named.items():
            self._owner.blobs.remove(tick, frozenset(names))

    def check_blobs(self) -> None:
        """Hold the blobs of the stored states and of all ticks since against their digests."""
        self._owner.take(self._keys_for(self._shards))
        for shard, blobs in self._shards.items():
            for kind, tick, digest in [
                (STATE, self._base, blobs.state),
                *((DELTA, tick, digest) for tick, digest in blobs.deltas.items()),
            ]:
                if digest is not None:
                    self._owner.opened(kind, BlobName(tick, shard, digest))
