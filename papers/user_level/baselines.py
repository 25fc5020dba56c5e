"""The private baselines of the paper, from their error laws: advanced composition, and truncation at a random cap.

*Advanced composition.* Each of T steps gets an epsilon' of its own, sqrt(2 T ln(1 / delta)) epsilon' + T epsilon'
(e^epsilon' - 1) = epsilon, and a static mechanism for monotone statistics. That is the shifted inverse of Fang, Dong
and Yi (SIGMOD 2022): among 0 .. most, the answer r is drawn with weight exp(-epsilon' / 2 |len(r) - shift|), len(r)
the least number of users without whom the statistic is at most r, shift = (2 / epsilon') ln((most + 1) / beta). One
user moves each len(r) by one at most, so this is an exponential mechanism; its answer is that without about `shift`
users, the largest first. The paper prints no delta; 1e-6 fits its counts best among powers of ten.

For the largest frequency and different values the paper says only that it "extends" the count. The rows here have what
is left of them without the users that the count left out, and no noise of their own.

*A random cap.* Algorithm 3 with a cap drawn from 2, 4, 8, .., 2^20, as many runs of each.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from papers.user_level.record import Record
from papers.user_level.steps import Errors, Steps

DELTA = 1e-6
MOST_CAP = 2**20
_POINTS = 4001

Floats = NDArray[np.float64]


def epsilon_of_a_step(epsilon: float, steps: int, delta: float = DELTA) -> float:
    """epsilon' for each of so many steps, by halving.

    >>> each = epsilon_of_a_step(2.0, 50_000_000)
    >>> round(each * 1e5, 2)
    5.04
    >>> round(math.sqrt(2 * 5e7 * math.log(1e6)) * each + 5e7 * each * math.expm1(each), 6)
    2.0
    """
    low, high = 0.0, epsilon
    for _ in range(200):
        middle = (low + high) / 2
        spent = math.sqrt(2 * steps * math.log(1 / delta)) * middle + steps * middle * math.expm1(middle)
        low, high = (middle, high) if spent <= epsilon else (low, middle)
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The shifted inverse at every step, under advanced composition."""

    epsilon: float = 2.0
    beta: float = 0.1
    delta: float = DELTA

    def shift(self, items: int, most: int) -> float:
        """How many users the answers leave out, about, of so many items and a statistic of 0 .. most.

        >>> round(Composition().shift(50_000_000, 50_000_000)), round(Composition().shift(50_000_000, 20))
        (794973, 212221)
        """
        return 2 / epsilon_of_a_step(self.epsilon, items, self.delta) * math.log((most + 1) / self.beta)

    def counts(self, record: Record, runs: int, random: np.random.Generator) -> Floats:
        """What is released of a count, by run and check-point."""
        rate, shift = (
            epsilon_of_a_step(self.epsilon, record.items, self.delta) / 2,
            self.shift(record.items, record.items),
        )
        return np.array(
            [
                _drawn_count(*_left(record, tick), rate, shift, record.items, random.random((2, runs)))
                for tick in range(len(record.true))
            ]
        ).T

    def errors(self, record: Record, counted: Record, runs: int, random: np.random.Generator) -> Errors:
        """Of a statistic of a stream whose count is recorded too."""
        if record.ends is not None:
            return self._maximum_errors(record, runs, random)
        # Values do not depend on users, so that of m items the statistic is what it was when m had come.
        found = self.counts(counted, runs, random)
        return record.errors(np.interp(found, [0, *counted.so_far], [0, *record.true]))

    def _maximum_errors(self, record: Record, runs: int, random: np.random.Generator) -> Errors:
        if record.holders is None:
            raise ValueError("a maximum must have its holders recorded")
        rate = epsilon_of_a_step(self.epsilon, record.items, self.delta) / 2
        shift = self.shift(record.items, record.holders.shape[1] - 1)
        # Without `gone` users the maximum is r if that many suffice, and not so many as for r - 1.
        fewest, most = record.holders, np.pad(record.holders[:, :-1], ((0, 0), (1, 0)), constant_values=record.items)
        weights = np.exp(-rate * np.maximum(np.maximum(fewest - shift, shift - most), 0))
        steps = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
        drawn = random.random((runs, len(record.true)))
        return record.errors((steps[None] < drawn[..., None]).sum(axis=-1).clip(max=steps.shape[1] - 1))


def random_cap_errors(steps: Steps, record: Record, runs: int, random: np.random.Generator) -> Errors:
    """Of so many runs for each cap 2, 4, 8, .., 2^20, one after the other."""
    caps = [1 << power for power in range(1, MOST_CAP.bit_length())]
    return np.concatenate([replace(steps, fixed_cap=cap).errors(record, runs, random) for cap in caps])


def _left(record: Record, tick: int) -> tuple[Floats, Floats]:
    """How many users are left out, and how many items are then left, between all users and none.

    Users above a cap are left out first. Between two recorded caps the users give what they do on average.
    """
    over, kept = record.over[tick], record.kept[tick, :, 0]
    gone = np.array([kept[0], *over])  # with a cap of one, whoever gave an item keeps one
    left = np.array([0, *(kept - np.array(record.caps) * over)])
    return gone[::-1].astype(float), left[::-1].astype(float)


def _drawn_count(gone: Floats, left: Floats, rate: float, shift: float, most: int, coins: Floats) -> Floats:
    """The answer of the shifted inverse: by how many users it leaves out, and uniform between two such numbers."""
    users = np.linspace(0, gone[-1], _POINTS)
    items = np.interp(users, gone, left)
    middles = (users[1:] + users[:-1]) / 2
    # Numbers above the truth are as far as no user left out, and there are many of them.
    weights = np.array(
        [*(-np.diff(items) * np.exp(-rate * np.abs(middles - shift))), (most - left[0]) * math.exp(-rate * shift)]
    )
    steps = np.cumsum(weights / weights.sum())
    place = np.minimum(np.searchsorted(steps, coins[0]), len(weights) - 1)
    low, high = np.array([*items[1:], left[0]]), np.array([*items[:-1], most])
    return np.asarray(low[place] + coins[1] * (high - low)[place])
