"""S5: the driver alone, with its store, over shards that are made up: how long it takes for a tick.

Digests of what ticks add, the shards' answers and the digests of their states are random bytes and names. All else is
the product: seal, tasks as they travel, answers put together, release, witness. What was gathered elsewhere for shards,
which the driver passes on as it came, is measured by itself: it takes some time for each label.
"""

import pickle
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.measure import cpu_seconds
from benchmarks.scale.cut_streams import ManyExecutors, driver_of, names_of, opened, stream_of
from benchmarks.scale.figures import Figure, check, spread
from pianissimo.shards.shard_task import ShardTask, StoreTask
from pianissimo.workers.gather_plan import GatherPlan, unpacked

SMALL, LARGE = (256, 10, (4,)), (4096, 16, (0, 24, 244))
"""Shards, ticks, and how many labels each shard shows."""

FEW_LABELS, MANY_LABELS = 20_000, 1_000_000
"""In each of the pieces that are passed on."""

PIECES = 8

EXECUTORS = 64


class MadeUpShards(ManyExecutors):
    """Executors that have nothing: each shard shows the same number of labels of its own at each tick."""

    def __init__(self, shown: int, shards: int) -> None:
        super().__init__(EXECUTORS)
        names = names_of(shown * shards)
        estimates = np.full(shown, 1000, dtype=np.int64)
        self._answers = {
            shard: {0: [names.slice(shard * shown, shown), [estimates], 0, shown]} for shard in range(shards)
        }
        self.sent = 0
        """Bytes of the last tasks."""

    def ask(self, tasks: Sequence[Any]) -> list[Any]:
        """What they say, through the bytes that a pipe or a network would have."""
        packed = [pickle.dumps(task) for task in tasks]
        self.sent = sum(map(len, packed))
        return [pickle.loads(pickle.dumps(self._said(task))) for task in tasks]

    def _said(self, task: ShardTask | StoreTask) -> list[Any]:
        if isinstance(task, StoreTask):
            return [[shard, bytes(32), 600_000] for shard in sorted(task.keys)]
        if task.stores:
            return [(shard, (bytes(32), 6_600_000)) for shard in task.shards]
        return [(shard, self._answers[shard]) for shard in task.shards]


@cache
def measured(shards: int, ticks: int, shown: int) -> tuple[list[float], int]:
    """The seconds of each tick on the wall, and the bytes of the last tasks."""
    random = np.random.default_rng(1)
    workers = MadeUpShards(shown, shards)
    seconds = []
    with (
        tempfile.TemporaryDirectory() as name,
        opened(stream_of(shards), Path(name), workers=workers, snapshot_every=8) as live,
    ):
        core: Any = live._core
        core.combine = lambda _: [None, [[shard, random.bytes(32), 600_000] for shard in range(shards)]]
        for tick in range(1, ticks + 1):
            begin = time.perf_counter()
            release = live.tick()
            seconds.append(time.perf_counter() - begin)
            check(release["found"].height == shown * shards, "a release must have the labels of all shards")
            check(live.tick_number == tick, "each tick must be released")
    return seconds, workers.sent


def passed_on(shards: int, labels: int) -> tuple[float, int]:
    """CPU seconds of the driver for each label of the pieces of a tick, and the bytes of the tasks."""
    with tempfile.TemporaryDirectory() as name:
        workers = MadeUpShards(0, shards)
        stream = stream_of(shards)
        core = driver_of(stream, Path(name), workers)
        told = core._holding.told
        plan = GatherPlan(
            chosen=told.chosen,
            after=0,
            incarnation=told.incarnation,
            config_digest=told.config_digest,
            names_check=None,
        )
        piece = plan.gatherer(None).gathered(1, [pl.DataFrame({"key": names_of(labels)})])
        found: list[Any] = []

        def pass_on() -> None:
            found.append(core.combine([core.from_elsewhere(unpacked(piece, shards=shards)) for _ in range(PIECES)]))

        seconds = cpu_seconds(pass_on)
        check(len(found[0][-1]) == shards, "each shard must have something")
        check(workers.sent > PIECES * labels * len("key-10000000000"), "all labels must be passed on")
    return seconds / (PIECES * labels), workers.sent


def figures(*, small: bool) -> Iterator[Figure]:
    shards, ticks, sizes = SMALL if small else LARGE
    labels = FEW_LABELS if small else MANY_LABELS
    own, size = passed_on(shards, labels)
    yield Figure(what="a label that a piece brings, passed on by the driver", value=own * 1e9, unit="ns of CPU")
    yield Figure(what="the same, in tasks", value=size / (PIECES * labels), unit="bytes")
    for shown in sizes:
        seconds, sent = measured(shards, ticks, shown)
        what = f"{shards} shards, {shown * shards:,} labels shown: a tick of the driver"
        yield from spread(what, seconds)
        yield Figure(what=f"{what}, longer than 1 s", value=float(np.mean(np.array(seconds) > 1)), unit="of all")
        yield Figure(what=f"{what}, tasks", value=sent / 1e6, unit="MB")
