"""The tables of releases: `key` (where there is one), `estimate`, `low` and `high`, in this order.

`released_table` makes all of them. Those about users have `cap` as well: `with_cap` adds it, and opens the ends of bars
that what the cap cuts off may lie beyond.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.counting import LabelCounts
from pianissimo.noise.plan import normal_quantile
from pianissimo.users import Bars


def released_table(estimate: Any, low: Any, high: Any, *, key: Any = None, whole: bool = True) -> pl.DataFrame:
    """The table of a release: of whole numbers, or of numbers; with keys, if there are any."""
    kind = pl.Int64 if whole else pl.Float64
    columns = [] if key is None else [pl.Series("key", key, dtype=pl.String)]
    numbers = (("estimate", estimate), ("low", low), ("high", high))
    return pl.DataFrame([*columns, *(pl.Series(name, each, dtype=kind) for name, each in numbers)])


def with_cap(table: pl.DataFrame, cap: float, open_ends: Sequence[str] = ()) -> pl.DataFrame:
    """A table about users with the column `cap`, the open ends of its bars null."""
    ends = [pl.lit(None, dtype=table.schema[end]).alias(end) for end in open_ends]
    kind = pl.Int64 if isinstance(cap, int) else pl.Float64
    return table.with_columns(*ends, pl.lit(cap, dtype=kind).alias("cap"))


def scaled(table: pl.DataFrame, scale: Fraction) -> pl.DataFrame:
    """Numbers of steps as values, rounded once: post-processing of public whole numbers."""
    return table.with_columns(pl.exclude("key").cast(pl.Float64) * float(scale.numerator) / float(scale.denominator))


def count_table(value: int | LabelCounts | list[tuple[str, int]], error: float, coverage: float) -> pl.DataFrame:
    """The table of a number, of labels with counts, or of a list of both."""
    half = int(error)
    if isinstance(value, int):
        return released_table([value], [value - half], [value + half])
    if isinstance(value, list):
        counts = np.array([count for _, count in value], dtype=np.int64)
        return released_table(counts, counts - half, counts + half, key=[label for label, _ in value])
    counts = value.estimates
    table = released_table(counts, counts - half, counts + half, key=value.labels)
    if value.rest is None:
        return table
    rest = value.rest.estimate
    spread = math.ceil(normal_quantile(coverage) * value.rest.deviation)
    high = rest + spread + math.ceil(value.rest.lean)
    return pl.concat([table, released_table([rest], [rest - spread], [high], key=[None])])


def even_table(estimates: NDArray[np.int64], around: Bars, *, key: Any) -> pl.DataFrame:
    """The table of whole numbers whose error bars are as those around 0, drawn out to whole numbers."""
    low, high = math.floor(around.low), math.ceil(around.high)
    return released_table(estimates, estimates + low, estimates + high, key=key)


def bars_table(estimates: Sequence[int], bars: Sequence[Bars], *, key: Any = None) -> pl.DataFrame:
    """The table of whole numbers with error bars, drawn out to whole numbers."""
    low, high = [math.floor(each.low) for each in bars], [math.ceil(each.high) for each in bars]
    return released_table(estimates, low, high, key=key)
