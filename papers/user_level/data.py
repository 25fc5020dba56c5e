"""The simulated streams of Table III: who gives each item, in which order, and which value it has.

The paper's text contradicts itself: a million users with these contributions give 5.1e8, 5.3e7 and 2.1e8 items, and not
5e7. The reading that fits its numbers: draw what every user has, keep a uniformly random 5e7 of all items, shuffle.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LARGEST = 1024
"""The most items that a user draws."""

FREQUENT = 1000
"""Values of the maximum frequency: 1 .. 1000, x with weight x^-2."""

LARGEST_VALUE = 20
"""Of the maximum: values 1 .. 20, in this order, each as often."""

TICKS = 100
"""As many as the paper has check-points: one every 5e5 of 5e7 items."""

Users = NDArray[np.int32]
Values = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Size:
    """How large a stream is.

    >>> FULL.items, FULL.per_tick
    (50000000, 500000)
    """

    items: int
    users: int

    @property
    def per_tick(self) -> int:
        """Items arrive evenly, so that ticks cut by a clock hold equally many."""
        return self.items // TICKS

    @property
    def values(self) -> int:
        """Of distinct: uniform on so many, a fifth of the items as in the paper.

        >>> FULL.values
        10000000
        """
        return self.items // 5


FULL = Size(50_000_000, 1_000_000)
QUICK = Size(5_000_000, 100_000)


def weights_of(law: str) -> NDArray[np.float64]:
    """The chance of each contribution 1 .. 1024 before the thinning.

    >>> for law in ("unif", "gauss", "zipf"):
    ...     print(law, round(float(weights_of(law) @ np.arange(1, LARGEST + 1))))
    unif 512
    gauss 53
    zipf 213
    """
    items = np.arange(1, LARGEST + 1, dtype=np.float64)
    weights: NDArray[np.float64] = {
        "unif": np.ones(LARGEST),
        "gauss": np.exp(-((items - 50) ** 2) / (2 * 30**2)),
        "zipf": 1 / (items + 10),
    }[law]
    return np.asarray(weights / weights.sum())


def make_users(law: str, size: Size, seed: int) -> Users:
    """The user of each item, in order of arrival.

    >>> users = make_users("gauss", Size(1000, 50), seed=1)
    >>> len(users), int(users.max()) < 50
    (1000, True)
    """
    random = np.random.default_rng([seed, *law.encode()])
    drawn = random.choice(np.arange(1, LARGEST + 1), size=size.users, p=weights_of(law))
    kept = random.multivariate_hypergeometric(drawn, size.items, method="marginals")
    users = np.repeat(np.arange(size.users, dtype=np.int32), kept)
    random.shuffle(users)
    return users


def make_frequent(size: Size, seed: int) -> Values:
    """A value for each item by Zipf's law with exponent 2, from 0 for the most frequent.

    >>> make_frequent(Size(1000, 50), seed=1).min()
    np.int32(0)
    """
    weights = np.arange(1, FREQUENT + 1) ** -2.0
    steps = np.cumsum(weights / weights.sum())
    random = np.random.default_rng([seed, 1])
    found = np.searchsorted(steps, random.random(size.items), side="right").astype(np.int32)
    return np.minimum(found, FREQUENT - 1, out=found)


def make_uniform(size: Size, seed: int) -> Values:
    """A value for each item, all equally likely.

    >>> len(make_uniform(Size(1000, 50), seed=1))
    1000
    """
    random = np.random.default_rng([seed, 2])
    return random.integers(size.values, size=size.items, dtype=np.int32)


def make_ordered(size: Size) -> Values:
    """A value for each item: 1 .. 20, all equally often, in their order.

    >>> make_ordered(Size(1000, 50))[[0, 49, 50, -1]].tolist()
    [1, 1, 2, 20]
    """
    return np.repeat(np.arange(1, LARGEST_VALUE + 1, dtype=np.int32), size.items // LARGEST_VALUE)
