"""From what a caller has (polars, pandas, pyarrow, duckdb, lists of dicts) to columns that can be counted.

Anything that speaks the Arrow C data interface goes in. All of a batch is checked before any of it is counted. What a
row counts as depends on that row alone: Python values are judged one by one and never typed by their neighbors.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from pianissimo.counting import grid_steps
from pianissimo.errors import InputError
from pianissimo.labels import LONGEST_LABEL
from pianissimo.queries import Count, Histogram, Query, Sum, TopK

_LABEL_TYPES = (pl.String, pl.Categorical, pl.Enum)


def needed_columns(queries: Sequence[Query]) -> list[str]:
    """The columns that the queries read, each once, in the order of the queries.

    >>> needed_columns([Count("n"), Histogram("drugs", key="drug"), Sum("revenue", value="price", range=(0, 9))])
    ['drug', 'price']
    """
    return list(dict.fromkeys(column for query in queries if (column := _column_of(query)) is not None))


def as_frame(batch: object, queries: Sequence[Query]) -> pl.DataFrame:
    """The batch as a polars frame with the columns the queries need. An empty list, and None, hold no event.

    >>> as_frame([{"drug": "aspirin"}, {"drug": 7}], [Histogram("drugs", key="drug")])["drug"].to_list()
    ['aspirin', '7']
    """
    columns = needed_columns(queries)
    if batch is None or (isinstance(batch, Sequence | Mapping) and len(batch) == 0):
        numbers = _number_columns(queries)
        return pl.DataFrame(schema={column: pl.Float64 if column in numbers else pl.String for column in columns})
    if isinstance(batch, str | bytes):
        raise InputError(f"a batch must be a table or a list of dicts, got {type(batch).__name__}")
    if isinstance(batch, Mapping):
        return _from_columns(batch, queries)
    if isinstance(batch, Sequence):
        return _from_rows(batch, queries)
    frame = _from_table(batch)
    _check_present(columns, frame.columns)
    return frame


def _from_table(batch: Any) -> pl.DataFrame:
    if isinstance(batch, pl.DataFrame):
        return batch
    try:
        # What polars says of a table it cannot read may hold values of it.
        return batch.collect() if isinstance(batch, pl.LazyFrame) else pl.DataFrame(batch)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise _not_a_table(batch) from None


def _not_a_table(batch: object) -> InputError:
    return InputError(
        "a batch must be a table with equally long, typed columns (polars, pandas, pyarrow, duckdb) "
        f"or a list of dicts, got a {type(batch).__name__} that is none"
    )


def _from_rows(rows: Sequence[Any], queries: Sequence[Query]) -> pl.DataFrame:
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError("rows of a list must be dicts, got something else")
    columns = needed_columns(queries)
    _check_present(columns, list(dict.fromkeys(name for row in rows for name in row)))
    return _from_columns({column: [row.get(column) for row in rows] for column in columns}, queries, len(rows))


def _from_columns(values: Mapping[Any, Any], queries: Sequence[Query], height: int | None = None) -> pl.DataFrame:
    columns = needed_columns(queries)
    _check_present(columns, list(values))
    lengths = {len(values[column]) for column in columns} if columns else {len(column) for column in values.values()}
    if height is None and len(lengths) != 1:
        raise _not_a_table(values)
    rows = next(iter(lengths)) if height is None else height
    numbers = _number_columns(queries)
    series = [_typed_column(column, values[column], as_numbers=column in numbers) for column in columns]
    # Without a column to read only the number of rows counts.
    return pl.DataFrame(series) if series else pl.DataFrame({"": pl.repeat(None, rows, eager=True)})


def _number_columns(queries: Sequence[Query]) -> set[str]:
    """The columns that are read as numbers and not as labels too."""
    numbers = {query.value for query in queries if isinstance(query, Sum)}
    return {column for column in numbers if not _is_label_column(column, queries)}


def _is_label_column(column: str, queries: Sequence[Query]) -> bool:
    return any(isinstance(query, Histogram | TopK) and query.key == column for query in queries)


def _typed_column(name: str, values: Any, *, as_numbers: bool) -> pl.Series:
    if isinstance(values, pl.Series):
        return values.alias(name)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.ndim == 1:
        return pl.Series(name, values)
    try:
        values = list(values)
    except TypeError:
        raise InputError(f"column {name!r} must be a list of values, got a {type(values).__name__}") from None
    if as_numbers:
        return pl.Series(name, [_number(value) for value in values], dtype=pl.Float64)
    labels = [_labels(value) for value in values]
    if any(isinstance(label, list) for label in labels):
        return pl.Series(
            name,
            [label if label is None or isinstance(label, list) else [label] for label in labels],
            dtype=pl.List(pl.String),
        )
    return pl.Series(name, labels, dtype=pl.String)


def _labels(value: object) -> str | list[str | None] | None:
    """A Python value as a label or labels; None, which no query counts, for whatever is neither."""
    if isinstance(value, str):
        return value if _is_text(value) else None
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list | tuple):
        parts = [_labels(part) for part in value]
        return [part if isinstance(part, str) else None for part in parts]
    return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: lone surrogates cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_present(columns: Iterable[str], present: Sequence[Any]) -> None:
    missing = [column for column in columns if column not in present]
    if missing:
        names = ", ".join(map(repr, present)) or "no column"
        raise InputError(f"columns {', '.join(map(repr, missing))} must be in the batch, got {names}")


def query_column(query: Query, frame: pl.DataFrame) -> pl.Series | None:
    """What the query counts of each row: texts, lists of texts, or steps of its grid; None if it counts rows.

    >>> query_column(Histogram("shelves", key="shelf"), pl.DataFrame({"shelf": [7, 8]})).to_list()
    ['7', '8']
    """
    match query:
        case Count():
            return None
        case Sum(value=column):
            return _value_column(query, frame[column])
        case Histogram(key=column) | TopK(key=column):
            return _label_column(column, frame[column])


def _value_column(query: Sum, column: pl.Series) -> pl.Series:
    if not (column.dtype.is_numeric() or column.dtype == pl.Null):
        raise InputError(f"column {query.value!r} must hold numbers, got {column.dtype}; cast it first")
    values = column.cast(pl.Float64)
    return grid_steps(values.set(values.is_nan() | values.is_infinite(), None), query.exact_grid)


def _label_column(name: str, column: pl.Series) -> pl.Series:
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if inner in _LABEL_TYPES or inner.is_integer() or inner == pl.Null:
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


def row_faults(queries: Sequence[Query], frame: pl.DataFrame) -> pl.Series:
    """For each row what must hold and does not, or null where the row can be counted. It looks at that row alone.

    >>> row_faults([Histogram("drugs", key="drug")], pl.DataFrame({"drug": ["aspirin", None]})).to_list()
    [None, "column 'drug' must not be null and its labels must have at most 256 bytes"]
    """
    faults = pl.repeat(None, n=frame.height, eager=True, dtype=pl.String)
    for query in queries:
        column = query_column(query, frame)
        if column is not None:
            reason = pl.repeat(must_hold(query), n=frame.height, eager=True)
            faults = faults.zip_with(faults.is_not_null() | ~fault_of(column), reason)
    return faults


def must_hold(query: Query) -> str:
    """What the query asks of each row.

    >>> must_hold(Sum("revenue", value="price", range=(0, 9)))
    "column 'price' must hold finite numbers"
    """
    if isinstance(query, Sum):
        return f"column {query.value!r} must hold finite numbers"
    return f"column {_column_of(query)!r} must not be null and its labels must have at most {LONGEST_LABEL} bytes"


def query_inputs(queries: Sequence[Query], frame: pl.DataFrame, *, drop_bad_rows: bool) -> list[Any]:
    """What each query's mechanism counts of a frame: of all its rows, or of those that every query can count."""
    if drop_bad_rows:
        frame = frame.filter(row_faults(queries, frame).is_null())
    inputs: list[Any] = []
    for query in queries:
        column = query_column(query, frame)
        if column is not None and fault_of(column).any():
            raise InputError(f"{must_hold(query)}, got others; mend those rows, or let them be dropped")
        inputs.append(frame if column is None else column)
    return inputs


def _column_of(query: Query) -> str | None:
    match query:
        case Sum(value=column) | Histogram(key=column) | TopK(key=column):
            return column
        case Count():
            return None


def _longest(labels: pl.Series) -> int:
    longest = labels.str.len_bytes().max()
    return longest if isinstance(longest, int) else 0
