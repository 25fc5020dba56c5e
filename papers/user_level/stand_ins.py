"""Streams in the place of the real data of Table II, which are not ours to keep: the same sizes, all else generated.

A data set is known here by three printed numbers: how many items and users it has, and the largest contribution. The
second largest is ours; from it on the user of rank r + 1 gives second / r^b items, at least one, with the b that makes
their sum the number of items; the order is shuffled. Of values nothing is printed but how many there may be. How the
second was chosen, and what else the laws here leave open, is in the README.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from papers.user_level.data import Users, Values


@dataclass(frozen=True, slots=True)
class StandIn:
    """A data set of Table II by its printed numbers.

    >>> stand_in("TLDR").ticks
    38
    """

    name: str
    items: int
    users: int
    largest: int
    second: int
    """The second largest contribution, ours."""

    every: int = 500_000
    """A check-point comes after so many items."""

    shares: tuple[float, ...] = ()
    """Of the values 1, 2, .. of the largest frequency and the maximum, ours."""

    @property
    def ticks(self) -> int:
        """As many as check-points; what is left after the last one is not looked at."""
        return self.items // self.every

    @property
    def spans(self) -> tuple[int, ...]:
        """For how many ticks each value lasts, where the stream is in their order.

        >>> sum(stand_in("MLens").spans)
        50
        """
        return tuple(round(share * self.ticks) for share in self.shares)

    def smaller(self, part: int) -> "StandIn":
        """So many times fewer items and users, with as many check-points."""
        return replace(
            self,
            items=self.items // part,
            users=self.users // part,
            largest=self.largest // part,
            second=self.second // part,
            every=self.every // part,
        )


QUICKER = 10
"""Times fewer items and users where it has to be quick."""

CLICKS = tuple(float(weight) for weight in np.arange(1, 501) ** -2.0 / (np.arange(1, 501) ** -2.0).sum())
RATINGS = (0.02, 0.04, 0.02, 0.06, 0.04, 0.2, 0.12, 0.26, 0.08, 0.16)

STAND_INS = (
    StandIn("AOL", 17_600_000, 470_000, 151_000, 15_000, shares=CLICKS),
    StandIn("MLens", 25_000_000, 163_000, 32_200, 22_700, shares=RATINGS),
    StandIn("Netf.", 26_300_000, 377_000, 15_900, 11_500),
    StandIn("TLDR", 3_850_000, 1_460_000, 376_000, 4_000, every=100_000),
)


def stand_in(name: str) -> StandIn:
    """By name."""
    return next(each for each in STAND_INS if each.name == name)


@lru_cache(maxsize=8)
def contributions(data: StandIn) -> NDArray[np.int64]:
    """What each user gives, the largest first.

    >>> given = contributions(stand_in("TLDR"))
    >>> int(given.sum()), len(given), int(given[0])
    (3850000, 1460000, 376000)
    """
    low, high = 0.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _by_rank(data, middle).sum() > data.items else (low, middle)
    given = _by_rank(data, high)
    # Rounding leaves some items over: they go to users after the first, who has the printed number.
    given[1 : 1 + data.items - int(given.sum())] += 1
    return given


def make_users(data: StandIn, seed: int) -> Users:
    """The user of each item, in order of arrival, up to the last check-point."""
    random = np.random.default_rng([seed, *data.name.encode()])
    users = np.repeat(np.arange(data.users, dtype=np.int32), contributions(data))
    random.shuffle(users)
    return users[: data.ticks * data.every]


def make_values(data: StandIn, seed: int) -> Values:
    """A value for each item by its share, from 0 for the most frequent."""
    random = np.random.default_rng([seed, *data.name.encode(), 1])
    steps = np.cumsum(sorted(data.shares, reverse=True))
    found = np.searchsorted(steps, random.random(data.ticks * data.every), side="right").astype(np.int32)
    return np.minimum(found, len(steps) - 1, out=found)


def _by_rank(data: StandIn, power: float) -> NDArray[np.int64]:
    ranks = np.arange(1, data.users, dtype=np.float64)
    others = np.maximum(1, np.floor(data.second * ranks**-power)).astype(np.int64)
    return np.concatenate([[data.largest], others])
