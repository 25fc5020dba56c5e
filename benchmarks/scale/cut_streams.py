"""Streams over shards to be simulated: the events of some keys, a driver without a store, and workers to be lost."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pianissimo import Budget, Histogram, Stream
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.noise import KeyedNoise, Secret
from pianissimo.shards import Holding, ShardedCore, ShardPlan
from pianissimo.shards.shard_owner import ShardOwner
from pianissimo.shards.shard_task import ShardTask, shards_check
from pianissimo.storage.purpose_keys import Keys
from pianissimo.workers import GatheredRange, GatherPlan, Range

YEAR = 525_600
"""A year of minutes: the horizon of all streams here."""

LIFE = bytes(range(16))
SECRET = Secret(bytes(range(32)))


def stream_of(shards: int, *, show_from: int = 1) -> Stream:
    """One histogram of labels that nobody listed, with the delta that so many labels ask for."""
    queries = [Histogram("found", key="key", show_from=show_from)]
    return Stream("s", budget=Budget(1, 1e-12), horizon=YEAR, queries=queries, shards=shards, history=0)


def driver_of(stream: Stream, folder: Path, workers: Any = None) -> ShardedCore:
    """The driver's part that has to do with shards, without seals in a store: their digests are made up."""
    plan, keys = stream.plan(), Keys(SECRET)
    told = ShardPlan(
        chosen=plan.to_plain(),
        after=0,
        incarnation=LIFE,
        config_digest=plan.digest,
        check=shards_check(Keys(keys.opener), LIFE),
        folder=str(folder),
    )
    holding = Holding(told, SECRET, lambda tick: hashlib.blake2b(b"%d" % tick, digest_size=32).digest(), workers)
    return ShardedCore(plan, lambda _: KeyedNoise(bytes(SECRET)), holding)


@dataclass(frozen=True, slots=True)
class SkewedKeys:
    """Keys of which the i-th has on average `rate / i` events a tick: what one shard sees of a Zipf law over all.

    Each has an event in the first tick, so that all are there from then on.
    """

    count: int
    rate: float
    seed: int = 7

    def tallies(self, ticks: int) -> Iterator[list[Any]]:
        """Of each tick the keys that have events, in the order of their bytes, and how many they have."""
        random = np.random.default_rng(self.seed)
        # Which keys are frequent has nothing to do with their names.
        means = self.rate / (1 + random.permutation(self.count))
        names = names_of(self.count)
        for tick in range(ticks):
            counts = random.poisson(means) + (tick == 0)
            there = np.flatnonzero(counts)
            yield [names.gather(there), counts[there].astype(np.int64)]

    def frames(self, ticks: int) -> Iterator[pl.DataFrame]:
        """The same events as a table each, a row for each event."""
        for labels, counts in self.tallies(ticks):
            yield pl.DataFrame({"key": labels.gather(np.repeat(np.arange(len(counts)), counts))})


def names_of(count: int) -> pl.Series:
    """Labels of 15 bytes."""
    return pl.select(pl.format("key-{}", pl.int_range(10**10, 10**10 + count)).alias("key")).to_series()


class ManyExecutors:
    """Executors in this process: each has the shards of its own task, in a cache that can be lost."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.owners: list[ShardOwner] = []

    def start(self, rules: Any = None) -> None:
        """Nothing: they are in this process."""

    def begin(self, plan: GatherPlan, key: Secret | None) -> None:
        """Nothing: batches are gathered by the stream itself."""

    def gather(self, ranges: Iterable[Range], rules: Any = None) -> Iterator[GatheredRange]:  # noqa: ARG002
        """Nothing of what nobody gives them."""
        return iter(())

    def ranges_of(self, batch: object, tick: int, options: dict[str, Any]) -> list[Range] | None:  # noqa: ARG002
        """None: batches are gathered by the stream itself."""
        return None

    def spread(self) -> int:
        return self.count

    def own(self, plan: ShardPlan, key: Secret) -> None:
        self._told = plan, key
        self.owners = [plan.worker(key) for _ in range(self.count)]

    def ask(self, tasks: Sequence[ShardTask]) -> list[Any]:
        return [owner.of(task) for owner, task in zip(self.owners, tasks, strict=False)]

    def lose(self, number: int) -> None:
        """One of them, with all that it remembers; another takes its place."""
        plan, key = self._told
        self.owners[number] = plan.worker(key)

    def close(self) -> None:
        """Let go of them."""
        self.owners = []


@contextmanager
def copy_of(folder: Path, name: str) -> Iterator[Path]:
    """A copy of a stream that has begun: it has the same noise."""
    copy = Path(shutil.copytree(folder, folder.parent / name))
    try:
        yield copy
    finally:
        shutil.rmtree(copy)


def begun(stream: Stream, folder: Path) -> Path:
    """A stream that has begun, to be copied."""
    folder.mkdir(parents=True)
    opened(stream, folder).close()
    return folder


def opened(stream: Stream, folder: Path, **options: Any) -> DurableStream:
    """A durable stream in a folder of its own."""
    return stream.open(folder / "state", **options)
