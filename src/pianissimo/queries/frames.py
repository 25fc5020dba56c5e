"""From columns of events to what can be counted, and from what was counted to the tables that leave.

What a row counts as depends on that row alone. Every table that leaves has `key` (where there is one), `estimate`,
`low` and `high`, in this order: `released_table` makes all of them.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl

from pianissimo.counting import LabelCounts
from pianissimo.errors import InputError
from pianissimo.labels import LONGEST_LABEL
from pianissimo.users import Bars

LABEL_TYPES = (pl.String, pl.Categorical, pl.Enum)


def number_column(name: str, frame: pl.DataFrame) -> pl.Series:
    """A column of finite numbers; null where there is none.

    >>> number_column("price", pl.DataFrame({"price": [1, None]})).to_list()
    [1.0, None]
    """
    column = frame[name]
    if not (column.dtype.is_numeric() or column.dtype == pl.Null):
        raise InputError(f"column {name!r} must hold numbers, got {column.dtype}; cast it first")
    values = column.cast(pl.Float64)
    return values.set(values.is_nan() | values.is_infinite(), None)


def label_column(name: str, frame: pl.DataFrame) -> pl.Series:
    """A column of texts, or of lists of texts; whole numbers become texts.

    >>> label_column("shelf", pl.DataFrame({"shelf": [7, 8]})).to_list()
    ['7', '8']
    """
    column = frame[name]
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if inner in LABEL_TYPES or inner.is_integer() or inner == pl.Null:
        wanted = pl.List(pl.String) if isinstance(column.dtype, pl.List) else pl.String
        return column if column.dtype == wanted else column.cast(wanted)
    raise InputError(
        f"column {name!r} must hold texts, whole numbers or lists of these, got {column.dtype}; cast it first"
    )


def fault_of(column: pl.Series) -> pl.Series:
    """For each row whether it cannot be counted: no value, a label too long, or a list with one of these.

    >>> fault_of(pl.Series([["a"], ["a", None], None])).to_list()
    [False, True, True]
    """
    if isinstance(column.dtype, pl.List):
        element = pl.element()
        bad = element.is_null() | (element.str.len_bytes() > LONGEST_LABEL)
        return column.is_null() | column.list.eval(bad).list.any().fill_null(value=False)
    if column.dtype != pl.String:
        return column.is_null()
    if column.null_count() == 0 and not _longest(column) > LONGEST_LABEL:
        return pl.repeat(value=False, n=len(column), eager=True, dtype=pl.Boolean)
    return column.is_null() | (column.str.len_bytes() > LONGEST_LABEL).fill_null(value=False)


def _longest(labels: pl.Series) -> int:
    longest = labels.str.len_bytes().max()
    return longest if isinstance(longest, int) else 0


def released_table(estimate: Any, low: Any, high: Any, *, key: Any = None, whole: bool = True) -> pl.DataFrame:
    """The table of a release: of whole numbers, or of numbers; with keys, if there are any.

    >>> released_table([3], [1], [5], key=["a"]).columns
    ['key', 'estimate', 'low', 'high']
    """
    kind = pl.Int64 if whole else pl.Float64
    columns = {} if key is None else {"key": pl.Series(key, dtype=pl.String)}
    numbers = {"estimate": estimate, "low": low, "high": high}
    return pl.DataFrame(columns | {name: pl.Series(each, dtype=kind) for name, each in numbers.items()})


def scaled(table: pl.DataFrame, scale: float) -> pl.DataFrame:
    """Numbers of steps as values: post-processing of public whole numbers.

    >>> scaled(released_table([10], [7], [13]), 0.01).row(0)
    (0.1, 0.07, 0.13)
    """
    return table.with_columns(pl.exclude("key").cast(pl.Float64) * scale)


def count_table(value: int | LabelCounts | list[tuple[str, int]], error: float, coverage: float) -> pl.DataFrame:
    """The table of a number, of labels with counts, or of a list of both.

    >>> count_table(10, 3, 0.95).to_dicts()
    [{'estimate': 10, 'low': 7, 'high': 13}]
    """
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
    spread = math.ceil(NormalDist().inv_cdf((1 + coverage) / 2) * value.rest.deviation)
    return pl.concat([table, released_table([rest], [rest - spread], [rest + spread], key=[None])])


def bars_table(estimates: Sequence[int], bars: Sequence[Bars], *, key: Any = None) -> pl.DataFrame:
    """The table of whole numbers with error bars, drawn out to whole numbers.

    >>> bars_table([10], [Bars(7.5, 12.5)]).to_dicts()
    [{'estimate': 10, 'low': 7, 'high': 13}]
    """
    low, high = [math.floor(each.low) for each in bars], [math.ceil(each.high) for each in bars]
    return released_table(estimates, low, high, key=key)
