"""The labels that noise could lift into a release, found without looking at all of them.

Noise never exceeds what its samplers give at most, so that an exact count already tells of most labels that they cannot
be shown, whatever their noise is: leaving them out changes no bit of any release (docs/privacy.md, 'Labels that cannot
be shown').
"""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.noise.keyed import KeyedNoise
from pianissimo.noise.plan import NoisePlan, largest_noise
from pianissimo.noise.running import RunningNoise, running_noise


def most_added(plan: NoisePlan) -> int:
    """What a release of no label can exceed its count by, or fall short of it by."""
    # Noise is rounded as `rounded` does, which keeps its order.
    return ((2 * largest_noise(plan) >> plan.shift) + 1) // 2


class Reachable:
    """The slots of labels that noise could lift to the least estimate that is ever shown, as they get there: secret.

    Noise never exceeds what its samplers give at most. A label whose count is further below is not shown, whatever its
    noise is: leaving it out changes no bit of any release (docs/privacy.md, 'Labels that cannot be shown').
    """

    def __init__(self, least: int) -> None:
        self.least = least
        """It may rise from one look to the next."""
        self._slots: NDArray[np.int64] | None = None
        self._are_in = np.zeros(0, dtype=np.bool_)
        self._moved: list[NDArray[np.int64]] = []

    def note(self, slots: NDArray[np.int64]) -> None:
        """The counts of these have grown."""
        if self._slots is not None:
            self._moved.append(slots)

    def slots(self, counts: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Them in the order in which they got there; None where all labels are there from their first event on."""
        if self.least <= 1:
            return None
        if self._slots is None:
            self._slots, moved = np.zeros(0, dtype=np.int64), np.arange(len(counts))
        else:
            moved = np.concatenate(self._moved) if self._moved else self._slots[:0]
        self._moved = []
        grown = len(counts) - len(self._are_in)
        if grown:
            self._are_in = np.concatenate([self._are_in, np.zeros(grown, dtype=np.bool_)])
        near = moved[counts[moved] >= self.least]
        new = np.unique(near[~self._are_in[near]])
        self._are_in[new] = True
        self._slots = np.concatenate([self._slots, new])
        return self._slots


class Leaders:
    """The slots of labels that may be among the k first of a histogram, and their noise: secret.

    Branch and bound. Let C be the k-th largest count and B what noise adds or takes at most. The k labels from C on are
    released with at least C - B, a label below C - 2 B with less than that: it is not among the k first, not even by a
    tie. Counts only grow, so that an earlier C is a bound too, and only labels that had events can come near it.
    """

    def __init__(self, plan: NoisePlan, k: int) -> None:
        self._plan, self._k, self._most = plan, k, most_added(plan)
        self._is_off = False
        self._begin(0)

    def _begin(self, least: int) -> None:
        self._near = Reachable(least)
        self.noise: RunningNoise = running_noise(self._plan)
        """Of the labels in the order of `slots`."""

    def note(self, slots: NDArray[np.int64], added: NDArray[np.int64]) -> None:
        """These counts have moved by so much."""
        self._near.note(slots)
        if not self._is_off and (added < 0).any():
            # What is taken away again may lower C: all labels are looked at from here on.
            self._is_off = True
            self._begin(0)

    def slots(self, counts: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Them in the order in which they came near; None where all labels are to be looked at."""
        if self._is_off or counts.max() <= 2 * self._most:
            return None
        near = self._near.slots(counts)
        least = self.least_of(counts if near is None else counts[near])
        if near is None or 2 * np.count_nonzero(counts[near] >= least) < len(near):
            # At first, and whenever few are left of those that once were near: begin with these alone.
            self._begin(least)
            return self._near.slots(counts)
        self._near.least = least
        return near

    def least_of(self, counts: NDArray[np.int64], releases: int = 1) -> int:
        """The least count of a label that may be among the k first, with the noise of so many releases."""
        return int(np.partition(counts, -self._k)[-self._k]) - 2 * releases * self._most


class Turns:
    """In which of s releases a label that is not shown is looked at, by a public hash; and who is shown: secret."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._turns = np.zeros(0, dtype=np.int64)
        self._shown = np.zeros(0, dtype=np.int64)

    def due(self, labels: pl.Series, tick: int) -> NDArray[np.int64]:
        """The slots of the labels whose turn it is at a tick."""
        new = labels[len(self._turns) :]
        if len(new):
            self._turns = np.concatenate([self._turns, turns_of(new, self._every)])
        return np.flatnonzero(self._turns == tick % self._every)

    def shown(self, shown: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The slots of the labels that are shown, in the order in which they came to be."""
        new = shown.copy()
        new[self._shown] = False
        self._shown = np.concatenate([self._shown, np.flatnonzero(new)])
        return self._shown


def turns_of(labels: pl.Series, every: int) -> NDArray[np.int64]:
    """The turn of each label, a number from 0 on: a hash of its bytes that everybody can compute.

    >>> turns_of(pl.Series(["aspirin", "ibuprofen", "paracetamol"]), 4).tolist()
    [0, 2, 3]
    """
    keys = KeyedNoise(bytes(32)).at("turns").label_keys(*codec.join_texts(labels))
    return (keys[:, 1] % np.uint64(every)).astype(np.int64)


def places_among(slots: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where some of these slots, which are in no order, stand.

    >>> places_among(np.array([7, 2, 5]), np.array([5, 7])).tolist()
    [2, 0]
    """
    order = np.argsort(slots)
    return order[np.searchsorted(slots, some, sorter=order)]
