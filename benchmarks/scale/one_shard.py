"""S1: one shard of 244,000 keys, one of 4096 that have a thousand million together, over many ticks.

A tick has the events that such a shard gets of 7e8 a minute. What is timed is the code of the product: what is cut and
stored for the shard, what the shard adds, what it answers, the state it stores, and how it is made again by one who has
lost it. CPU seconds of this process.
"""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import cpu_seconds
from benchmarks.scale.cut_streams import SECRET, SkewedKeys, driver_of, stream_of
from benchmarks.scale.figures import Figure, check, resident_bytes, spread
from pianissimo import codec
from pianissimo.durable.stored_state import SNAPSHOT_EVERY
from pianissimo.noise import KeyedNoise
from pianissimo.shards import ShardedCore
from pianissimo.shards.shard_owner import ShardOwner
from pianissimo.shards.shard_task import ShardTask, StoreTask
from pianissimo.storage.purpose_keys import Keys

LOST_EVERY = 7
"""At every so many ticks the shard is lost: as many ticks after a stored state as there can be, in turn."""

SMALL, LARGE = (20_000, 30), (244_000, 10_000)
EVENTS_A_RANK = 0.033
"""Of the i-th key of n, so many times n / i events a tick: 7e8 a minute over 1e9 keys by a Zipf law."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Laws:
    """How long each step of a shard took, at each tick; what it stored, and what it takes in memory."""

    keys: int
    moved: float
    """Keys that had events in a tick, on average."""

    stored: list[float]
    """What a tick adds, one piece, is cut and stored for the shard, by whoever has it."""

    added: list[float]
    released: list[float]
    snapshots: list[float]
    misses: list[float]
    delta_bytes: float
    state_bytes: float
    memory: float
    shown: int
    """Labels in the last release: as public as that."""


class TimedOwner(ShardOwner):
    """One that has shards, and a clock."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.added, self.released, self.missed = list[float](), list[float](), list[float]()
        self.told = b""
        """What was answered last."""

        self._own = 0.0
        """Of that, the seconds in which ticks were added."""

    def of(self, task: ShardTask | StoreTask, rules: Any = None) -> list[Any]:
        if isinstance(task, StoreTask) or task.stores:
            return super().of(task, rules)
        loads, self._own, begin = self.loads, 0.0, time.process_time()
        told = super().of(task, rules)
        seconds = time.process_time() - begin
        self.told = codec.pack("answers", 1, [answers for _, answers in told])
        if self.loads > loads:
            self.missed.append(seconds)
        else:
            self.added.append(self._own)
            self.released.append(seconds - self._own)
        return told

    def _begin_tick(self, *given: Any) -> None:
        self._own += cpu_seconds(lambda: super(TimedOwner, self)._begin_tick(*given))


@cache
def measured(keys: int, ticks: int) -> Laws:
    """One shard through its ticks; whoever asks again in this process is told the same."""
    with tempfile.TemporaryDirectory() as name:
        return _ran(SkewedKeys(keys, EVENTS_A_RANK * keys), ticks, Path(name))


def _ran(keys: SkewedKeys, ticks: int, folder: Path) -> Laws:
    core = driver_of(stream_of(1), folder)
    core._owner = owner = TimedOwner(core._holding.told, Keys(Keys(SECRET).opener), KeyedNoise)
    stored, snapshots = list[float](), list[float]()
    sizes = np.zeros((ticks, 2))
    shown = state_bytes = begin = 0
    for tick, tally in enumerate(keys.tallies(ticks), 1):
        # Whoever makes the events up has its memory by now.
        begin = begin or resident_bytes()
        cut: list[Any] = []
        stored.append(cpu_seconds(lambda tally=tally, cut=cut: cut.append(core.combine([[tally]]))))  # type: ignore[misc]
        core.add(cut)
        sizes[tick - 1] = len(tally[0]), cut[0][-1][0][2]
        shown = core.release(tick)["found"].height
        if not tick % LOST_EVERY:
            _lose(core, owner)
        if not tick % SNAPSHOT_EVERY:
            snapshots.append(cpu_seconds(core.dump))
            state_bytes = core._sizes[0][2]
    moved, delta_bytes = sizes[1:].mean(axis=0).tolist()
    return Laws(
        keys=keys.count,
        moved=moved,
        stored=stored[1:],
        added=owner.added,
        released=owner.released,
        snapshots=snapshots,
        # The first is the beginning: there was nothing to be lost.
        misses=owner.missed[1:],
        delta_bytes=delta_bytes,
        state_bytes=state_bytes,
        memory=resident_bytes() - begin,
        shown=shown,
    )


def _lose(core: ShardedCore, owner: TimedOwner) -> None:
    """Ask once more of one who has lost the shard: the same answer."""
    before = owner.told
    owner._states.clear()
    core._told(stores=False)
    check(owner.told == before, "a shard that was lost must answer as it did before")


def figures(*, small: bool) -> Iterator[Figure]:
    keys, ticks = SMALL if small else LARGE
    laws = measured(keys, ticks)
    check(len(laws.misses) == ticks // LOST_EVERY, "each loss must be a miss, and nothing else one")
    yield Figure(what="keys", value=keys, unit="in one shard")
    yield Figure(what="ticks", value=ticks, unit="run")
    yield Figure(what="keys with events in a tick", value=laws.moved, unit="")
    yield Figure(what="labels that are shown at the end", value=laws.shown, unit="")
    yield from spread("cut and store what a tick adds", laws.stored)
    yield from spread("add", laws.added)
    yield from spread("release", laws.released)
    yield from spread("store the state", laws.snapshots)
    yield from spread("miss", laws.misses)
    yield Figure(
        what="cut and store, a key that had events", value=np.median(laws.stored) / laws.moved * 1e9, unit="ns"
    )
    yield Figure(what="add, a key that had events", value=np.median(laws.added) / laws.moved * 1e9, unit="ns")
    yield Figure(what="release, a key", value=np.median(laws.released) / keys * 1e9, unit="ns")
    yield Figure(what="store the state, a key", value=np.median(laws.snapshots) / keys * 1e9, unit="ns")
    yield Figure(what="miss, a key", value=np.median(laws.misses) / keys * 1e9, unit="ns")
    yield Figure(what="delta, a key that had events", value=laws.delta_bytes / laws.moved, unit="bytes")
    yield Figure(what="stored state, a key", value=laws.state_bytes / keys, unit="bytes")
    yield Figure(what="memory, a key, with what the allocator keeps", value=laws.memory / keys, unit="bytes")
