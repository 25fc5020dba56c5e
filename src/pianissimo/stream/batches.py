"""From what a caller has (polars, pandas, pyarrow, duckdb, lists of dicts) to columns that can be counted.

Anything that speaks the Arrow C data interface goes in. All of a batch is checked before any of it is counted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pianissimo.errors import InputError
from pianissimo.labels import LONGEST_LABEL
from pianissimo.queries import Count, Histogram, Query

_LABEL_TYPES = (pl.String, pl.Categorical, pl.Enum)


def needed_columns(queries: Sequence[Query]) -> list[str]:
    """The columns that the queries read, each once, in the order of the queries.

    >>> needed_columns([Count("n"), Histogram("drugs", key="drug"), Histogram("again", key="drug")])
    ['drug']
    """
    return list(dict.fromkeys(query.key for query in queries if isinstance(query, Histogram)))


def as_frame(batch: object, columns: Sequence[str]) -> pl.DataFrame:
    """The batch as a polars frame. An empty list, and None, are a batch without events.

    >>> as_frame([{"drug": "aspirin"}, {"drug": "ibuprofen"}], ["drug"]).height
    2
    """
    if isinstance(batch, pl.DataFrame):
        frame = batch
    elif isinstance(batch, pl.LazyFrame):
        frame = batch.collect()
    elif batch is None or (isinstance(batch, Sequence | Mapping) and len(batch) == 0):
        frame = pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    elif isinstance(batch, str | bytes):
        raise InputError(f"a batch must be a table or a list of dicts, got {type(batch).__name__}")
    else:
        frame = _converted(batch)
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        present = ", ".join(map(repr, frame.columns)) or "no column"
        raise InputError(f"columns {', '.join(map(repr, missing))} must be in the batch, got {present}")
    return frame


def _converted(batch: Any) -> pl.DataFrame:
    try:
        if isinstance(batch, Sequence) and not all(isinstance(row, Mapping) for row in batch):
            raise InputError("rows of a list must be dicts, got something else")
        return pl.DataFrame(batch, infer_schema_length=None)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise InputError(
            "a batch must be a table with equally long, typed columns (polars, pandas, pyarrow, duckdb) "
            f"or a list of dicts, got a {type(batch).__name__} that is none"
        ) from None


def labels_of(query: Histogram, frame: pl.DataFrame) -> pl.Series:
    """The query's column as texts or lists of texts, whole or not at all.

    >>> labels_of(Histogram("shelves", key="shelf"), pl.DataFrame({"shelf": [7, 8]})).to_list()
    ['7', '8']
    """
    labels = label_column(query, frame)
    if fault_of(labels).any():
        raise InputError(
            f"labels in column {query.key!r} must not be null and must have at most {LONGEST_LABEL} bytes, got others; "
            "drop or mend those rows"
        )
    return labels


def label_column(query: Histogram, frame: pl.DataFrame) -> pl.Series:
    """The query's column as texts or lists of texts, or an error if its type is neither."""
    column = frame[query.key]
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if inner in _LABEL_TYPES or inner.is_integer() or inner == pl.Null:
        wanted = pl.List(pl.String) if isinstance(column.dtype, pl.List) else pl.String
        return column if column.dtype == wanted else column.cast(wanted)
    raise InputError(
        f"column {query.key!r} must hold texts, whole numbers or lists of these, got {column.dtype}; cast it first"
    )


def fault_of(labels: pl.Series) -> pl.Series:
    """For each row whether it cannot be counted: a null, a label too long, or a list with one of these.

    >>> fault_of(pl.Series([["a"], ["a", None], None])).to_list()
    [False, True, True]
    """
    if isinstance(labels.dtype, pl.List):
        element = pl.element()
        bad = element.is_null() | (element.str.len_bytes() > LONGEST_LABEL)
        return labels.is_null() | labels.list.eval(bad).list.any().fill_null(value=False)
    if labels.null_count() == 0 and not _longest(labels) > LONGEST_LABEL:
        return pl.repeat(value=False, n=len(labels), eager=True, dtype=pl.Boolean)
    return labels.is_null() | (labels.str.len_bytes() > LONGEST_LABEL).fill_null(value=False)


def row_faults(queries: Sequence[Query], frame: pl.DataFrame) -> pl.Series:
    """For each row what must hold and does not, or null where the row can be counted. It looks at that row alone.

    >>> row_faults([Histogram("drugs", key="drug")], pl.DataFrame({"drug": ["aspirin", None]})).to_list()
    [None, "column 'drug' must not be null and its labels must have at most 256 bytes"]
    """
    faults = pl.repeat(None, n=frame.height, eager=True, dtype=pl.String)
    for query in queries:
        if isinstance(query, Histogram):
            bad = fault_of(label_column(query, frame))
            reason = f"column {query.key!r} must not be null and its labels must have at most {LONGEST_LABEL} bytes"
            faults = faults.zip_with(faults.is_not_null() | ~bad, pl.repeat(reason, n=frame.height, eager=True))
    return faults


def query_input(query: Query, frame: pl.DataFrame) -> Any:
    """What the query's mechanism counts of a frame."""
    return frame if isinstance(query, Count) else labels_of(query, frame)


def _longest(labels: pl.Series) -> int:
    longest = labels.str.len_bytes().max()
    return longest if isinstance(longest, int) else 0
