"""What a monitor reports: keys, each with an estimate of its weight."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The reported keys in the order of their bytes, and the noisy weight of each.

    An estimate is as often too high as too low before the cut at the threshold; a key that is about the threshold is
    reported when its noise is high, so its estimate leans upward then.

    >>> Found(pl.Series(["flu", "measles"]), np.array([301, 512])).to_dict()
    {'flu': 301, 'measles': 512}
    """

    labels: pl.Series
    estimates: NDArray[np.int64]

    def to_dict(self) -> dict[str, int]:
        """The keys and estimates as a dict."""
        return dict(zip(self.labels.to_list(), self.estimates.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self.labels)
