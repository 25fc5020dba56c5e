"""What noise is added to: exact statistics of a stream for every tick and cap, by numpy and polars alone.

A run of a user-level mechanism looks at the data through two things: how many users are above the cap, and what the cap
keeps. Both are written down here once, so that many runs need the stream only once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from papers.user_level.data import TICKS, Users, Values

CAPS = (64, 128, 256, 512, 1024)
FIRST_CAP = 64
"""Where the search for a cap begins; lower ones are recorded for caps that are chosen at random."""

SHOWN = 8
"""Of the frequent values only so many are recorded: the ninth holds 0.8 % of the items, the first 61 %."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Exact numbers at the end of every tick, secret in real life.

    >>> record = count_record(np.zeros(200, dtype=np.int32))
    >>> record.kept[-1, :2, 0], record.over[-1, :2]
    (array([ 64, 128]), array([1, 1]))
    """

    items: int
    """How many there are in all."""

    true: NDArray[np.int64]
    """By tick: the statistic of all items."""

    over: NDArray[np.int64]
    """By tick and cap: how many users are above it."""

    kept: NDArray[np.int64]
    """By tick, cap and series: the statistic of what the cap keeps."""

    caps: tuple[int, ...] = CAPS
    """Those that are recorded."""

    def place(self, cap: int) -> int:
        """The column of a cap; beyond the last one nobody is above, and all caps keep the same."""
        return self.caps.index(cap) if cap in self.caps else len(self.caps) - 1

    @property
    def levels(self) -> tuple[int, ...]:
        """The caps that a search goes through."""
        return tuple(cap for cap in self.caps if cap >= FIRST_CAP)


def count_record(users: Users, caps: tuple[int, ...] = CAPS, ticks: int = TICKS) -> Record:
    """How many items."""
    given = np.zeros(int(users.max()) + 1, dtype=np.int64)
    over, kept = [], []
    for batch in ticks_of(users, ticks):
        given += np.bincount(batch, minlength=len(given))
        over.append(_above(given, caps))
        kept.append([[int(np.minimum(given, cap).sum())] for cap in caps])
    true = np.cumsum([len(batch) for batch in ticks_of(users, ticks)])
    return _checked(Record(len(users), true, np.array(over), np.array(kept), caps))


def frequency_record(users: Users, values: Values, caps: tuple[int, ...] = CAPS, shown: int = SHOWN) -> Record:
    """How many items hold each of the most frequent values; true is the count of the most frequent one.

    >>> record = frequency_record(np.zeros(300, dtype=np.int32), np.arange(300, dtype=np.int32) % 3)
    >>> record.kept[-1, 0].tolist(), int(record.true[-1])
    ([22, 21, 21, 0, 0, 0, 0, 0], 100)
    """
    given = np.zeros(int(users.max()) + 1, dtype=np.int64)
    all_held = np.zeros(int(values.max()) + 1, dtype=np.int64)
    held = np.zeros((len(caps), shown), dtype=np.int64)
    true, over, kept = [], [], []
    for batch, own in zip(ticks_of(users), ticks_of(values), strict=True):
        before = _before(given, batch)
        all_held += np.bincount(own, minlength=len(all_held))
        for place, cap in enumerate(caps):
            held[place] += np.bincount(own[(before < cap) & (own < shown)], minlength=shown)
        true.append(int(all_held.max()))
        over.append(_above(given, caps))
        kept.append(held.copy())
    return _checked(Record(len(users), np.array(true), np.array(over), np.array(kept), caps))


def distinct_record(users: Users, values: Values, caps: tuple[int, ...] = CAPS) -> Record:
    """How many different values; a user is above a cap by her number of different ones.

    >>> record = distinct_record(np.zeros(300, dtype=np.int32), np.arange(300, dtype=np.int32) // 3)
    >>> record.kept[-1, :2, 0].tolist(), int(record.true[-1])
    ([64, 100], 100)
    """
    size = int(values.max()) + 1
    given = np.zeros(int(users.max()) + 1, dtype=np.int64)
    new = pl.Series(users.astype(np.int64) * size + values).is_first_distinct().to_numpy()
    seen = np.zeros((len(caps), size), dtype=np.bool_)
    everywhere = np.zeros(size, dtype=np.bool_)
    true, over, kept = [], [], []
    for batch, own, first in zip(ticks_of(users), ticks_of(values), ticks_of(new), strict=True):
        everywhere[own] = True
        fresh = own[first]
        before = _before(given, batch[first])
        for place, cap in enumerate(caps):
            seen[place, fresh[before < cap]] = True
        true.append(int(np.count_nonzero(everywhere)))
        over.append(_above(given, caps))
        kept.append(np.count_nonzero(seen, axis=1)[:, None])
    return _checked(Record(len(users), np.array(true), np.array(over), np.array(kept), caps))


def ticks_of(column: NDArray[Any], ticks: int = TICKS) -> Iterator[NDArray[Any]]:
    """A column cut into ticks of equal length.

    >>> len(next(ticks_of(np.arange(300))))
    3
    """
    step = len(column) // ticks
    return (column[tick * step : (tick + 1) * step] for tick in range(ticks))


def _above(given: NDArray[np.int64], caps: tuple[int, ...]) -> list[int]:
    return [int(np.count_nonzero(given > cap)) for cap in caps]


def _before(given: NDArray[np.int64], batch: Users) -> NDArray[np.int64]:
    """How many items each item's user gave before it; `given` is brought up to date."""
    order = np.argsort(batch, kind="stable")
    ordered = batch[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    lengths = np.diff(starts, append=len(ordered))
    before = np.empty(len(batch), dtype=np.int64)
    before[order] = np.arange(len(batch)) - np.repeat(starts, lengths) + given[ordered]
    given += np.bincount(batch, minlength=len(given))
    return before


def _checked(record: Record) -> Record:
    if record.over[-1, -1]:
        raise ValueError("nobody may be above the last recorded cap")
    return record
