"""What noise is added to: exact statistics of a stream for every tick and cap, by numpy and polars alone.

A run of a user-level mechanism looks at the data through two things: how many users are above the cap, and what the cap
keeps. Both are written down here once, so that many runs need the stream only once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from papers.user_level.data import TICKS, Users, Values

FIRST_CAP = 64
"""Where the search for a cap begins; lower ones are recorded for caps that are chosen at random."""

FINEST = 32
"""Up to here a count has every cap: from them follows how many items are left without the largest users."""

SHOWN = 8
"""Of the frequent values only so many are recorded: the ninth holds 0.8 % of the items, the first 61 %."""


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """Exact numbers at the end of every tick, secret in real life.

    >>> record = count_record(np.zeros(200, dtype=np.int32), caps_up_to(1024))
    >>> record.kept[-1, 5:7, 0], record.over[-1, 5:7]
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

    caps: tuple[int, ...]
    """Those that are recorded."""

    ends: NDArray[np.int64] | None = None
    """Of a maximum: how many items have come when the last of each value has, from value 0, which there is not."""

    holders: NDArray[np.int64] | None = None
    """Of a maximum, by tick and value from 0: how many users hold a larger one."""

    @property
    def so_far(self) -> NDArray[np.int64]:
        """How many items have come by the end of each tick."""
        return np.arange(1, len(self.true) + 1) * (self.items // len(self.true))

    @property
    def whole(self) -> NDArray[np.int64]:
        """What errors are relative to: the statistic, or of a maximum all items."""
        return self.true if self.ends is None else self.so_far

    def errors(self, estimates: NDArray[Any]) -> NDArray[np.float64]:
        """By tick, in the last axis: how far released numbers are off; of a maximum, how many items are above it.

        A maximum that is above the true one is as wrong as can be: all items, the paper's infinite one-way rank error.
        """
        if self.ends is None:
            return np.asarray(np.abs(estimates - self.true), dtype=np.float64)
        ranks = np.maximum(self.so_far - self.ends[np.minimum(estimates, len(self.ends) - 1)], 0)
        return np.where(estimates > self.true, self.so_far, ranks).astype(np.float64)

    def place(self, cap: int) -> int:
        """The column of a cap; beyond the last one nobody is above, and all caps keep the same."""
        return self.caps.index(cap) if cap in self.caps else len(self.caps) - 1

    @property
    def levels(self) -> tuple[int, ...]:
        """The caps that a search goes through."""
        return tuple(cap for cap in self.caps if cap >= FIRST_CAP)


def caps_up_to(last: int, *, finely: bool = False) -> tuple[int, ...]:
    """2, 4, 8, .., last; finely, also all others up to 32.

    >>> caps_up_to(64)
    (2, 4, 8, 16, 32, 64)
    """
    doubled = tuple(1 << power for power in range(1, last.bit_length()))
    return (*range(1, FINEST + 1), *(cap for cap in doubled if cap > FINEST)) if finely else doubled


def count_record(users: Users, caps: tuple[int, ...], ticks: int = TICKS) -> Record:
    """How many items."""
    given = np.zeros(int(users.max()) + 1, dtype=np.int64)
    over, kept = [], []
    for batch in ticks_of(users, ticks):
        given += np.bincount(batch, minlength=len(given))
        over.append(_above(given, caps))
        kept.append([[int(np.minimum(given, cap).sum())] for cap in caps])
    true = np.cumsum([len(batch) for batch in ticks_of(users, ticks)])
    return _checked(Record(_items_in(users, ticks), true, np.array(over), np.array(kept), caps))


def maximum_record(users: Users, spans: Sequence[int], caps: tuple[int, ...]) -> Record:
    """The largest value of a stream that is in the order of values 1, 2, .., each for so many ticks.

    So what a cap keeps of a value is what it keeps of the count while the value lasts.

    >>> record = maximum_record(np.arange(200, dtype=np.int32) // 100, (5, 5, 5, 5), caps_up_to(128))
    >>> record.true[[4, 5, -1]].tolist(), record.kept[-1, 5].tolist(), record.holders[-1].tolist()
    ([1, 2, 4], [50, 14, 50, 14], [2, 2, 1, 1, 0])
    """
    ticks, values = sum(spans), len(spans)
    counted, true = count_record(users, caps, ticks), np.repeat(np.arange(1, values + 1), spans)
    last = np.zeros(int(users.max()) + 1, dtype=np.int64)
    holders = np.zeros((ticks, values + 1), dtype=np.int64)
    kept = np.zeros((ticks, len(caps), values), dtype=np.int64)
    parts = np.diff(counted.kept[:, :, 0], axis=0, prepend=0)
    for tick, (batch, value) in enumerate(zip(ticks_of(users, ticks), true.tolist(), strict=True)):
        last[batch] = value
        holders[tick] = len(last) - np.cumsum(np.bincount(last, minlength=values + 1))
        kept[tick:, :, value - 1] += parts[tick]
    ends = np.cumsum([0, *spans]) * (counted.items // ticks)
    return replace(counted, true=true, kept=kept, ends=ends, holders=holders)


def frequency_record(
    users: Users, values: Values, caps: tuple[int, ...], ticks: int = TICKS, shown: int = SHOWN
) -> Record:
    """How many items hold each of the most frequent values; true is the count of the most frequent one.

    >>> users, values = np.zeros(300, dtype=np.int32), np.arange(300, dtype=np.int32) % 3
    >>> record = frequency_record(users, values, caps_up_to(512))
    >>> record.kept[-1, 5].tolist(), int(record.true[-1])
    ([22, 21, 21, 0, 0, 0, 0, 0], 100)
    """
    given = np.zeros(int(users.max()) + 1, dtype=np.int64)
    all_held = np.zeros(int(values.max()) + 1, dtype=np.int64)
    held = np.zeros((len(caps), shown), dtype=np.int64)
    true, over, kept = [], [], []
    for batch, own in zip(ticks_of(users, ticks), ticks_of(values, ticks), strict=True):
        before = _before(given, batch)
        all_held += np.bincount(own, minlength=len(all_held))
        for place, cap in enumerate(caps):
            held[place] += np.bincount(own[(before < cap) & (own < shown)], minlength=shown)
        true.append(int(all_held.max()))
        over.append(_above(given, caps))
        kept.append(held.copy())
    return _checked(Record(_items_in(users, ticks), np.array(true), np.array(over), np.array(kept), caps))


def distinct_record(users: Users, values: Values, caps: tuple[int, ...]) -> Record:
    """How many different values; a user is above a cap by her number of different ones.

    >>> users, values = np.zeros(300, dtype=np.int32), np.arange(300, dtype=np.int32) // 3
    >>> record = distinct_record(users, values, caps_up_to(128))
    >>> record.kept[-1, 5:, 0].tolist(), int(record.true[-1])
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
    return _checked(Record(_items_in(users, TICKS), np.array(true), np.array(over), np.array(kept), caps))


def ticks_of(column: NDArray[Any], ticks: int = TICKS) -> Iterator[NDArray[Any]]:
    """A column cut into ticks of equal length.

    >>> len(next(ticks_of(np.arange(300))))
    3
    """
    step = len(column) // ticks
    return (column[tick * step : (tick + 1) * step] for tick in range(ticks))


def _items_in(users: Users, ticks: int) -> int:
    return len(users) // ticks * ticks


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
