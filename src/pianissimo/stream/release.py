"""What leaves the house at one tick."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from pianissimo.histograms import LabelCounts
from pianissimo.mechanism import Release


@dataclass(frozen=True, slots=True, eq=False)
class StreamRelease:
    """The estimates of all queries of a stream at one tick, as tables.

    `release["drugs"]` is a polars frame with the columns key (where labels are counted), estimate, low and high;
    `.to_pandas()` and `.to_dicts()` are polars' own. Queries that are published at every n-th tick are there then.
    """

    tick: int
    coverage: float
    """The chance that low .. high holds the truth."""

    tables: Mapping[str, pl.DataFrame]
    interval: Callable[[int, int], "StreamRelease"] | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The queries' names."""
        return tuple(self.tables)

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self.tables:
            raise KeyError(f"{name!r} must be a query published at this tick, one of {', '.join(self.tables)}")
        return self.tables[name]

    def between(self, start: int, end: int) -> "StreamRelease":
        """What ticks start + 1 .. end added, from the noise already public: it costs nothing more.

        The error bars are those of the difference: both ends share noise.
        """
        if self.interval is None:
            raise TypeError("an interval has no intervals; ask the release of a tick")
        return self.interval(start, end)

    def __reduce__(self) -> tuple[Any, ...]:
        # What was released may be copied and sent; the live stream behind it may not.
        return (StreamRelease, (self.tick, self.coverage, dict(self.tables)))

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        tables = {name: table.to_dicts() for name, table in self.tables.items()}
        return {"tick": self.tick, "coverage": self.coverage, "releases": tables}

    def to_json(self) -> str:
        """The same as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


Released = int | LabelCounts | list[tuple[str, int]]
"""What the mechanisms of streams release: a number, labels with counts, or a list of both."""


def release_table(release: Release[Released], coverage: float, grid: Fraction | None = None) -> pl.DataFrame:
    """The table of one query's release; with a grid, its steps become values.

    >>> release_table(Release(tick=1, value=10, error=3), 0.95).to_dicts()
    [{'estimate': 10, 'low': 7, 'high': 13}]
    >>> release_table(Release(tick=1, value=10, error=3), 0.95, Fraction(1, 100)).to_dicts()
    [{'estimate': 0.1, 'low': 0.07, 'high': 0.13}]
    """
    width = int(release.error)
    if isinstance(release.value, LabelCounts):
        table = _table(release.value.estimates, width, {"key": release.value.labels})
        rest = release.value.rest
        if rest is None:
            return table
        spread = math.ceil(NormalDist().inv_cdf((1 + coverage) / 2) * rest.deviation)
        row = _table(np.array([rest.estimate]), spread, {"key": pl.Series([None], dtype=pl.String)})
        return pl.concat([table, row])
    if isinstance(release.value, list):
        labels = pl.Series("key", [label for label, _ in release.value], dtype=pl.String)
        return _table(np.array([count for _, count in release.value], dtype=np.int64), width, {"key": labels})
    table = _table(np.array([release.value], dtype=np.int64), width, {})
    # A value on the grid is a public number of steps: turning it into a floating-point number is post-processing.
    return table if grid is None else table.select(pl.all().cast(pl.Float64) * float(grid))


def _table(estimates: np.ndarray[Any, np.dtype[np.int64]], width: int, first: dict[str, pl.Series]) -> pl.DataFrame:
    return pl.DataFrame({**first, "estimate": estimates, "low": estimates - width, "high": estimates + width})
