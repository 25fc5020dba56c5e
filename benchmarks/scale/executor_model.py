"""S2: a model of 4096 shards on 64 executors, fed with what `one_shard` and `driver_alone` measured.

Events in the order of their times: an executor is done with its shards, or is lost with them. What a tick adds is
stored first, then the tick is sealed and answered; it is over when all are done. Nothing of this is a measurement of a
cluster: no network, no scheduler, one core an executor.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from benchmarks.scale import driver_alone, one_shard
from benchmarks.scale.figures import Figure, check
from pianissimo.durable.stored_state import SNAPSHOT_EVERY

LAWS = (244_000, 150)
"""Keys and ticks of the shard whose times are the law of all: fewer ticks than `one_shard` runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What is chosen, and not measured."""

    shards: int = 4096
    executors: int = 64
    ticks: int = 1440
    tick_seconds: float = 60.0
    lost_every: float = float("inf")
    """Seconds after which an executor is lost, on average."""

    restart_seconds: float = 10.0
    slow_share: float = 0.0
    """How many of the tasks take `slow_factor` times as long."""

    slow_factor: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of each tick."""

    behind: list[float]
    """How long after its end a tick was released."""

    late: float
    """Which share of ticks was released only when the next one was over."""

    losses: int


class Step(NamedTuple):
    """What executors do between two words of the driver: the laws of a shard's times."""

    warm: list[list[float]]
    cold: list[list[float]]
    """Of an executor that was lost since."""


class Model:
    """One run of a cluster."""

    def __init__(self, cluster: Cluster, laws: one_shard.Laws, driver: list[float], seed: int = 5) -> None:
        self._cluster, self._driver = cluster, driver
        self._storing = Step([laws.stored], [laws.stored])
        self._answering = Step([laws.added, laws.released], [laws.misses])
        self._keeping = Step([laws.snapshots], [laws.snapshots, laws.misses])
        self._random = np.random.default_rng(seed)
        self._cold = [False] * cluster.executors
        self._losses = [(self._until_lost(), each) for each in range(cluster.executors)]
        heapq.heapify(self._losses)
        self.lost = 0

    def run(self) -> Outcome:
        length, behind, now = self._cluster.tick_seconds, list[float](), 0.0
        for tick in range(1, self._cluster.ticks + 1):
            now = self._round(max(now, tick * length), self._storing)
            now = self._round(now + float(self._random.choice(self._driver)), self._answering)
            behind.append(now - tick * length)
            if not tick % SNAPSHOT_EVERY:
                now = self._round(now, self._keeping)
        late = float(np.mean(np.array(behind) > length))
        return Outcome(behind=behind, late=late, losses=self.lost)

    def _round(self, now: float, step: Step) -> float:
        """When all executors are done with what they are asked now."""
        ends = [now + self._work(each, step) for each in range(self._cluster.executors)]
        while self._losses[0][0] < max(ends):
            moment, lost = heapq.heappop(self._losses)
            self.lost += 1
            self._cold[lost] = True
            back = moment + self._cluster.restart_seconds
            if ends[lost] > moment >= now:
                ends[lost] = back + self._work(lost, step)
            heapq.heappush(self._losses, (back + self._until_lost(), lost))
        return max(ends)

    def _work(self, executor: int, step: Step) -> float:
        """The seconds of one task: all shards of an executor, one after the other."""
        count = self._cluster.shards // self._cluster.executors
        laws = step.cold if self._cold[executor] else step.warm
        # What is stored of a tick needs no state, and makes none.
        self._cold[executor] = self._cold[executor] and step is self._storing
        seconds = sum(float(self._random.choice(law, count).sum()) for law in laws)
        return seconds * (self._cluster.slow_factor if self._random.random() < self._cluster.slow_share else 1.0)

    def _until_lost(self) -> float:
        mean = self._cluster.lost_every
        return float(self._random.exponential(mean)) if np.isfinite(mean) else mean


def figures(*, small: bool) -> Iterator[Figure]:
    laws = one_shard.measured(*(one_shard.SMALL if small else LAWS))
    shards, runs, shown = driver_alone.SMALL if small else driver_alone.LARGE
    passing = driver_alone.passed_on(shards, driver_alone.FEW_LABELS if small else driver_alone.MANY_LABELS)[0]
    driver = [each + passing * laws.moved * shards for each in driver_alone.measured(shards, runs, shown[-1])[0]]
    own = {"ticks": 40} if small else {}
    for length in (60.0, 20.0, 10.0):
        worlds = {
            "nothing is lost": Cluster(tick_seconds=length, **own),
            "1 of 100 tasks takes four times as long": Cluster(tick_seconds=length, slow_share=0.01, **own),
            "one executor lost a tick": Cluster(tick_seconds=length, lost_every=64 * length, **own),
        }
        for what, cluster in worlds.items():
            outcome = Model(cluster, laws, driver).run()
            check(len(outcome.behind) == cluster.ticks, "every tick must be released")
            least = cluster.shards / cluster.executors * sum(map(min, (laws.stored, laws.added, laws.released)))
            check(what != "nothing is lost" or min(outcome.behind) >= least, "no tick may be faster than its work")
            check((outcome.losses > 0) == np.isfinite(cluster.lost_every), "losses must be those that were asked for")
            title = f"ticks of {length:g} s, {what}"
            yield Figure(what=f"{title}: late", value=outcome.late * 100, unit="% of ticks")
            for percent in (50, 99):
                value = float(np.percentile(outcome.behind, percent))
                yield Figure(what=f"{title}: released after its end, p{percent}", value=value, unit="s")
