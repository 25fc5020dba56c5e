"""What leaves the house at one tick."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pianissimo.histograms import LabelCounts
from pianissimo.mechanism import Release


@dataclass(frozen=True, slots=True, eq=False)
class StreamRelease:
    """The estimates of all queries of a stream at one tick, as tables.

    `release["drugs"]` is a polars frame with the columns key (where labels are counted), estimate, low and high;
    `.to_pandas()` and `.to_dicts()` are polars' own.
    """

    tick: int
    coverage: float
    """The chance that low .. high holds the truth."""

    tables: Mapping[str, pl.DataFrame]

    @property
    def names(self) -> tuple[str, ...]:
        """The queries' names."""
        return tuple(self.tables)

    def __getitem__(self, name: str) -> pl.DataFrame:
        if name not in self.tables:
            raise KeyError(f"{name!r} must be a query of the stream, one of {', '.join(self.tables)}")
        return self.tables[name]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        tables = {name: table.to_dicts() for name, table in self.tables.items()}
        return {"tick": self.tick, "coverage": self.coverage, "releases": tables}

    def to_json(self) -> str:
        """The same as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)


def release_table(release: Release[int] | Release[LabelCounts]) -> pl.DataFrame:
    """The table of one query's release.

    >>> release_table(Release(tick=1, value=10, error=3)).to_dicts()
    [{'estimate': 10, 'low': 7, 'high': 13}]
    """
    if isinstance(release.value, LabelCounts):
        columns: dict[str, Any] = {"key": release.value.labels}
        estimates = release.value.estimates
    else:
        columns, estimates = {}, np.array([release.value], dtype=np.int64)
    width = int(release.error)
    return pl.DataFrame(columns | {"estimate": estimates, "low": estimates - width, "high": estimates + width})
