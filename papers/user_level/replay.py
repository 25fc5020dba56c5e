"""Many runs over one recorded stream: the mechanism's own cap tests and counters, with its own noise.

Each replayed run is, number by number, the run of the real mechanism over the stream under the same noise; a test and
the command itself compare them.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from papers.user_level.data import Users, Values
from papers.user_level.record import Record, ticks_of
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, Noise
from pianissimo.users import HistogramHead, QuantilesHead, UserCounts, UserDistinct, UserStatistics, UserTotal
from pianissimo.users.caps import Course
from pianissimo.users.counters import RunningCounters
from pianissimo.users.quantile_tree import UserQuantiles
from pianissimo.users.user_table import UserUnits as UserTable

UserMechanism = UserStatistics | UserDistinct
Estimates = NDArray[np.int64]


@dataclass(slots=True)
class RecordedUsers:
    """What the tests of the cap see of the users at one tick."""

    record: Record
    tick: int
    cap: int

    @property
    def over(self) -> int:
        """How many are above the cap."""
        return int(self.record.over[self.tick - 1, self.record.place(self.cap)])

    def set_cap(self, cap: int) -> None:
        """Take another cap."""
        self.cap = cap


def domain(values: int) -> Domain:
    """So many values of the maximum frequency, the most frequent first also in the order of bytes.

    >>> domain(1000).labels[0]
    '0000'
    """
    return Domain([f"{value:04d}" for value in range(values)])


def seeded_noise(seed: int) -> KeyedNoise:
    """The real noise under a secret that everybody knows, so that a table can be made again.

    >>> seeded_noise(1).laplace(50.0) == seeded_noise(1).laplace(50.0)
    True
    """
    return KeyedNoise(hashlib.sha256(f"pianissimo papers, users, seed {seed}".encode()).digest())


def replay(mechanism: UserMechanism, record: Record, noise: Noise) -> Estimates:
    """What one run releases at every tick; of a maximum frequency only the recorded values are looked at."""
    course = Course(mechanism.cap, mechanism.horizon)
    head = None if isinstance(mechanism, UserDistinct) else mechanism.heads[0]
    here = noise.at(*(("distinct",) if head is None else ("head", head.name)))
    counters = mechanism.counters[0]
    if not isinstance(head, QuantilesHead):
        counters = replace(counters, series=record.kept.shape[2])
    running = RunningCounters(counters)
    released = []
    for tick in range(1, len(record.true) + 1):
        users = RecordedUsers(record, tick, course.cap)
        course.close(cast(UserTable, users), tick, noise)
        kept = record.kept[tick - 1, record.place(course.cap)]
        if isinstance(head, QuantilesHead):
            cells = head.expand(np.pad(kept, (0, head.cells - len(kept))))
            bins = running.release(cells, course.place(), tick, here)
            law = running.counters.law(*course.place(), tick)
            released.append(int(head.value(bins, law, course.cut_off(), is_signed=False).kth_largest(1)))
        else:
            released.append(int(running.release(kept, course.place(), tick, here).max()))
    return np.array(released)


def real_run(mechanism: UserMechanism, users: Users, values: Values | None, noise: Noise) -> Estimates:
    """What the mechanism itself releases over the whole stream."""
    run: Run[Any, Any, Any] = Run(mechanism, noise)
    head = None if isinstance(mechanism, UserDistinct) else mechanism.heads[0]
    released = []
    for tick, batch in enumerate(ticks_of(users, mechanism.horizon), 1):
        columns: dict[str, Any] = {"user": batch}
        if values is not None:
            own = pl.Series(values[(tick - 1) * len(batch) : tick * len(batch)])
            if isinstance(head, HistogramHead):
                own = head.domain.labels.gather(own.cast(pl.UInt32))
            columns["value" if head is None else head.name] = own
        run.update(pl.DataFrame(columns))
        value = run.release().value
        released.append(_number(value if head is None else value[head.name]))
    return np.array(released)


def _number(value: UserTotal | UserCounts | UserQuantiles) -> int:
    if isinstance(value, UserQuantiles):
        return int(value.kth_largest(1))
    return value.largest.estimate if isinstance(value, UserCounts) else value.estimate
