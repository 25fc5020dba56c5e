"""What a sketch holds, as columns: for trusted eyes and for the code that releases it."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Contents:
    """The stored keys in their order and the numbers beside them: secret, all of it.

    >>> Contents(pl.Series([7]), np.array([3]), 1, 9)
    Contents(secret)
    """

    keys: pl.Series
    """Whole numbers in their natural order, texts and bytes in the order of their bytes."""

    over: NDArray[np.int64]
    """u(x) = c(x) + D for each key; of a merged sketch the counts."""

    decrements: int
    """D; of a merged sketch 0, as the counts stand by themselves."""

    total: int
    """How many keys were counted."""

    def __repr__(self) -> str:
        return "Contents(secret)"
