"""Labels with their counts: what a histogram releases, and how one is added to another."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError

_LARGEST_COUNT = 2**61

Tally = list[codec.Plain]
"""Labels in the order of their bytes and a whole number for each, as a list of two: plain data."""


@dataclass(frozen=True, slots=True)
class Rest:
    """All labels that are not shown, together: an estimate and the standard deviation of its noise."""

    estimate: int
    deviation: float


@dataclass(frozen=True, slots=True, eq=False)
class LabelCounts:
    """Labels and an estimate for each: in the order of their bytes, or by rank in a top list.

    >>> LabelCounts(pl.Series(["a", "b"]), np.array([3, -1])).to_dict()
    {'a': 3, 'b': -1}
    """

    labels: pl.Series
    estimates: NDArray[np.int64]
    rest: Rest | None = None

    def to_dict(self) -> dict[str, int]:
        """The labels and estimates as a dict."""
        return dict(zip(self.labels.to_list(), self.estimates.tolist(), strict=True))


def add_counts(counts: NDArray[np.int64], slots: NDArray[np.int64], more: NDArray[np.int64]) -> None:
    """Add `more` at distinct `slots`, or change nothing if a count would leave its bounds.

    >>> counts = np.array([1, 2])
    >>> add_counts(counts, np.array([1]), np.array([5]))
    >>> counts
    array([1, 7])
    """
    sums = counts[slots] + more
    if len(sums) and not int(sums.max()) < _LARGEST_COUNT:
        raise InputError("a count must stay below 2^61, got more; start a new run")
    counts[slots] = sums


def in_order(labels: pl.Series, numbers: NDArray[np.int64]) -> Tally:
    """Labels in the order of their bytes with their numbers, so that the same events always give the same data.

    >>> labels, numbers = in_order(pl.Series(["b", "a"]), np.array([1, 2]))
    >>> labels.to_list(), numbers
    (['a', 'b'], array([2, 1]))
    """
    ordered = pl.DataFrame({"key": labels, "number": numbers}).sort("key")
    return [ordered["key"], ordered["number"].to_numpy()]
