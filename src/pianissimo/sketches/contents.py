"""What a sketch holds, as columns: for trusted eyes and for the code that releases it."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import polars as pl
from numpy.typing import NDArray


class Source(Enum):
    """What a sketch counted, which decides how it may be released.

    >>> Source("stream")
    <Source.STREAM: 'stream'>
    """

    STREAM = "stream"
    """One stream, one key an event."""

    SETS = "sets"
    """One stream of sets of keys."""

    MERGED = "merged"
    """Several streams: the pattern that one event changes is another one."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contents:
    """The stored keys in their order and the numbers beside them: secret, all of it.

    >>> Contents(pl.Series([7]), np.array([3]), 1, 9)
    Contents(secret)
    """

    keys: pl.Series
    """Whole numbers in their natural order, texts and bytes in the order of their bytes; of no type while no batch has
    given one."""

    over: NDArray[np.int64]
    """u(x) = c(x) + D for each key; of a merged sketch the counts."""

    decrements: int
    """D; of a merged sketch 0, as the counts stand by themselves."""

    total: int
    """How many keys were counted."""

    source: Source = Source.STREAM
    """What was counted."""

    def __repr__(self) -> str:
        return "Contents(secret)"
