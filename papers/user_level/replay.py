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

from papers.user_level.data import FREQUENT, Users, Values
from papers.user_level.record import Record, ticks_of
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, Noise
from pianissimo.users import UserCounts, UserDistinct, UserStatistics, UserTotal
from pianissimo.users.caps import Course
from pianissimo.users.counters import RunningCounters
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


def domain() -> Domain:
    """The values of the maximum frequency, the most frequent first also in the order of bytes.

    >>> domain().labels[0]
    '0000'
    """
    return Domain([f"{value:04d}" for value in range(FREQUENT)])


def seeded_noise(seed: int) -> KeyedNoise:
    """The real noise under a secret that everybody knows, so that a table can be made again.

    >>> seeded_noise(1).laplace(50.0) == seeded_noise(1).laplace(50.0)
    True
    """
    return KeyedNoise(hashlib.sha256(f"pianissimo papers, users, seed {seed}".encode()).digest())


def replay(mechanism: UserMechanism, record: Record, noise: Noise) -> Estimates:
    """What one run releases at every tick; of a maximum frequency only the recorded values are looked at."""
    course = Course(mechanism.cap, mechanism.horizon)
    here = noise.at(*(("distinct",) if isinstance(mechanism, UserDistinct) else ("head", mechanism.heads[0].name)))
    running = RunningCounters(replace(mechanism.counters[0], series=record.kept.shape[2]))
    released = []
    for tick in range(1, len(record.true) + 1):
        users = RecordedUsers(record, tick, course.cap)
        course.close(cast(UserTable, users), tick, noise)
        kept = record.kept[tick - 1, record.place(course.cap)]
        released.append(int(running.release(kept, course.place(), tick, here).max()))
    return np.array(released)


def real_run(mechanism: UserMechanism, users: Users, values: Values | None, noise: Noise) -> Estimates:
    """What the mechanism itself releases over the whole stream."""
    run: Run[Any, Any, Any] = Run(mechanism, noise)
    labels = domain().labels
    released = []
    for tick, batch in enumerate(ticks_of(users), 1):
        columns: dict[str, Any] = {"user": batch}
        if values is not None:
            own = pl.Series(values[(tick - 1) * len(batch) : tick * len(batch)])
            if isinstance(mechanism, UserDistinct):
                columns["value"] = own
            else:
                columns[mechanism.heads[0].name] = labels.gather(own.cast(pl.UInt32))
        run.update(pl.DataFrame(columns))
        value = run.release().value
        own_value: UserTotal | UserCounts = (
            value if isinstance(mechanism, UserDistinct) else value[mechanism.heads[0].name]
        )
        released.append(own_value.largest.estimate if isinstance(own_value, UserCounts) else own_value.estimate)
    return np.array(released)
