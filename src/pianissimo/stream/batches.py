"""From what a caller has (polars, pandas, pyarrow, duckdb, lists of dicts) to columns that can be counted.

Anything that speaks the Arrow C data interface goes in. All of a batch is checked before any of it is counted. What a
row counts as depends on that row alone: Python values are judged one by one and never typed by their neighbors.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl

from pianissimo.errors import InputError
from pianissimo.labels import LONGEST_LABEL, label_text
from pianissimo.queries import Query, Reads, Role
from pianissimo.queries.shared.columns import LABEL_TYPES, fault_of, first_labels, label_column, number_column
from pianissimo.stream.calendar import EPOCHS, asked_of_times
from pianissimo.unit import User

_log = logging.getLogger(__name__)

RESERVED_NAMES = ("above_cap", "exhausted", "key", "user", "value", "weight")
"""Columns and tables that mechanisms about users have themselves: a query of that name would take their place."""

_LARGEST_EXACT = 2.0**53


def columns_read(queries: Sequence[Query], user: User | None = None) -> dict[str, Reads]:
    """The columns that the queries read, each once, in the order of the queries, and before them the one of users.

    A column is read in one way, as the stream checks; lists are allowed where a query allows them.
    """
    found = {} if user is None else {user.column: Reads(user.column, Role.USERS)}
    if user is not None and user.weight is not None:
        found[user.weight] = Reads(user.weight, Role.NUMBERS)
    for column in (column for query in queries for column in query.reads):
        known = found.get(column.name, column)
        found[column.name] = Reads(column.name, known.role, known.holds_lists or column.holds_lists)
    return found


def as_frame(batch: object, queries: Sequence[Query], user: User | None = None) -> pl.DataFrame:
    """The batch as a polars frame with the columns that are needed. None holds no event, nor does what is empty."""
    columns, batch = columns_read(queries, user), table_of(batch)
    if isinstance(batch, pl.DataFrame):
        return _with_one_label(batch, columns) if batch.width else as_frame(None, queries, user)
    if batch is None or (isinstance(batch, Sequence | Mapping) and len(batch) == 0):
        kinds = {True: pl.Float64, False: pl.String}
        return pl.DataFrame(schema={name: kinds[column.role is Role.NUMBERS] for name, column in columns.items()})
    if isinstance(batch, str | bytes):
        raise InputError(f"a batch must be a table or a list of dicts, got {type(batch).__name__}")
    if isinstance(batch, Mapping):
        return _from_columns(batch, columns)
    if isinstance(batch, Sequence):
        return _from_rows(batch, columns)
    raise _not_a_table(batch)


def _with_one_label(frame: pl.DataFrame, columns: Mapping[str, Reads]) -> pl.DataFrame:
    """A frame with the columns that are needed; where one label of an event counts, the first of a list."""
    check_present(columns, frame.columns)
    firsts = [(frame[column.name], column) for column in columns.values() if column.role is Role.LABELS]
    changed = [one for each, column in firsts if (one := _one_label(column, each)) is not each]
    return frame.with_columns(changed) if changed else frame


def table_of(batch: Any) -> object:
    """A batch of Python values as it is, and any other table as a polars frame.

    A column of objects of pandas holds Python values, which Arrow would give the type that suits all of them.
    """
    if batch is None or isinstance(batch, pl.DataFrame | str | bytes | Mapping | Sequence):
        return batch
    is_pandas = hasattr(batch, "iterrows") and batch.columns.is_unique
    objects = [name for name, kind in batch.dtypes.items() if str(kind) == "object"] if is_pandas else []
    if not objects:
        return _from_table(batch)
    return _from_table(batch.drop(columns=objects)).to_dict() | {name: batch[name].to_list() for name in objects}


def check_has(name: str, batch: Any) -> None:
    """Refuse a table, or rows, without a column."""
    if isinstance(batch, pl.DataFrame | Mapping):
        check_present([name], batch.columns if isinstance(batch, pl.DataFrame) else list(batch))
    else:
        check_present([name], list(dict.fromkeys(key for row in batch for key in row)))


def times_in(batch: object, name: str, form: str = "iso", *, texts: bool = True) -> pl.Series | None:
    """The column of times of what `table_of` gave, or None where it has none; of Python values, each judged alone.

    Without `texts` it takes dates and date-times alone; numbers where the form is one of them.
    """
    values: Any = None
    if isinstance(batch, pl.DataFrame | Mapping):
        values = batch[name] if name in (batch if isinstance(batch, Mapping) else batch.columns) else None
    elif isinstance(batch, Sequence) and any(isinstance(row, Mapping) and name in row for row in batch):
        values = [row.get(name) if isinstance(row, Mapping) else None for row in batch]
    if isinstance(values, np.ndarray):
        values = pl.Series(name, values)
    if isinstance(values, pl.Series):
        is_number = values.dtype.is_integer() or values.dtype.is_float()
        fits = values.dtype in (pl.Date, pl.Datetime) or (form in EPOCHS and is_number)
        if texts and not fits and values.dtype != pl.String:
            asked = asked_of_times(form)
            raise InputError(f"column {name!r} must be {asked}, got a column of {values.dtype}; cast it first")
        return values if fits or texts else None
    if values is None:
        return None
    # What is no time as a text, such as True, is none by its form.
    kinds = (date, str, int, float) if form in EPOCHS else (date, str) if texts else (date,)
    return pl.Series(name, [str(each) if isinstance(each, kinds) else None for each in values], dtype=pl.String)


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


def _from_rows(rows: Sequence[Any], columns: Mapping[str, Reads]) -> pl.DataFrame:
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError("rows of a list must be dicts, got something else")
    absent = [column for column in columns if not any(column in row for row in rows)]
    if absent:
        # Not refused: whether any other row has it must not decide about a row.
        _log.warning("no row of a batch has %s: these columns count as nulls", ", ".join(map(repr, absent)))
    # A row without a column has no value there, whatever other rows have.
    return _from_columns({column: [row.get(column) for row in rows] for column in columns}, columns, len(rows))


def _from_columns(values: Mapping[Any, Any], columns: Mapping[str, Reads], height: int | None = None) -> pl.DataFrame:
    if any(isinstance(column, str | bytes) for column in values.values()):
        raise InputError("columns of a batch must be lists of values, got a text; put a single row in a list: [{...}]")
    check_present(columns, list(values))
    lengths = {len(values[column]) for column in columns} if columns else {len(column) for column in values.values()}
    if height is None and len(lengths) != 1:
        raise _not_a_table(values)
    rows = next(iter(lengths)) if height is None else height
    series = [_typed_column(column, values[column.name]) for column in columns.values()]
    # Without a column to read only the number of rows counts.
    return pl.DataFrame(series) if series else pl.DataFrame({"": pl.repeat(None, rows, eager=True)})


def _typed_column(column: Reads, values: Any) -> pl.Series:
    name = column.name
    if isinstance(values, pl.Series):
        return _one_label(column, values.alias(name))
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuf" and values.ndim == 1:
        return pl.Series(name, values)
    try:
        values = list(values)
    except TypeError:
        raise InputError(f"column {name!r} must be a list of values, got a {type(values).__name__}") from None
    if column.role is Role.NUMBERS:
        return pl.Series(name, [_number(value) for value in values], dtype=pl.Float64)
    labels = [_labels(value) for value in values]
    if column.role is Role.USERS:
        labels = [label if isinstance(label, str) else None for label in labels]
    if not column.holds_lists and not any(isinstance(label, list) for label in labels):
        return pl.Series(name, labels, dtype=pl.String)
    lists = [label if label is None or isinstance(label, list) else [label] for label in labels]
    return _one_label(column, pl.Series(name, lists, dtype=pl.List(pl.String)))


def _labels(value: object) -> str | list[str | None] | None:
    """A Python value as a label or labels; None, which no query counts, for whatever is neither."""
    is_list = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)
    return [label_text(part) for part in value] if is_list else label_text(value)  # type: ignore[attr-defined]


def _one_label(column: Reads, values: pl.Series) -> pl.Series:
    """Where one label of an event counts, the first of a list; each row by itself."""
    if column.role is not Role.LABELS or column.holds_lists or not isinstance(values.dtype, pl.List):
        return values
    return first_labels(label_column(values.name, pl.DataFrame(values)))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | np.integer | np.floating):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except (OverflowError, ValueError):
        return None


def check_present(columns: Iterable[str], present: Sequence[Any]) -> None:
    """Refuse a table that has not all of the columns."""
    missing = [column for column in columns if column not in present]
    if missing:
        names = ", ".join(map(repr, present)) or "no column"
        raise InputError(f"columns {', '.join(map(repr, missing))} must be in the batch, got {names}")


def user_column(name: str, frame: pl.DataFrame) -> pl.Series:
    """Whose event each row is: texts, or whole numbers of 64 bits; null where a row does not say."""
    column = frame[name]
    if column.dtype in LABEL_TYPES or column.dtype == pl.Null:
        return column.cast(pl.String)
    if column.dtype.is_float():
        # What tables make of whole numbers beside missing ones; anything else is no id.
        column = column.set(column.is_nan() | (column != column.floor()) | (column.abs() > _LARGEST_EXACT), None)
    if column.dtype.is_integer() or column.dtype.is_float():
        return column.cast(pl.Int64, strict=False)
    raise InputError(f"column {name!r} must hold texts or whole numbers, got {column.dtype}; cast it first")


def row_faults(queries: Sequence[Query], frame: pl.DataFrame, user: User | None = None) -> pl.Series:
    """For each row what must hold and does not, or null where the row can be counted. It looks at that row alone."""
    faults = pl.repeat(None, n=frame.height, eager=True, dtype=pl.String)
    of_users = [] if user is None else _columns_of_users(user, frame)
    checked = [(fault_of(column), rule) for column, rule in of_users]
    for query in queries:
        own = query.faults(frame)
        if own is not None:
            checked.append((own, query.rule))
    for own, rule in checked:
        faults = faults.zip_with(faults.is_not_null() | ~own, pl.repeat(rule, n=frame.height, eager=True))
    return faults


def query_inputs(queries: Sequence[Query], frame: pl.DataFrame, *, drop_bad_rows: bool) -> list[Any]:
    """What each query's mechanism counts of a frame: of all its rows, or of those that every query can count."""
    if drop_bad_rows:
        frame = frame.filter(row_faults(queries, frame).is_null())
    return [query.batch(frame) for query in queries]


def user_input(queries: Sequence[Query], frame: pl.DataFrame, user: User, *, drop_bad_rows: bool) -> pl.DataFrame:
    """What the mechanisms of a stream of users count: a column `user`, and under its name the column of each query.

    Where events may be deleted, a column `weight` of 1 and -1 as well.
    """
    if drop_bad_rows:
        frame = frame.filter(row_faults(queries, frame, user).is_null())
    own = _columns_of_users(user, frame)
    for column, rule in own:
        if fault_of(column).any():
            raise InputError(f"{rule}, got others; mend those rows, or give drop_bad_rows=True")
    columns = {query.name: found for query in queries if (found := query.user_column(frame)) is not None}
    named = dict(zip(("user", "weight"), (column for column, _ in own), strict=False))
    return pl.DataFrame(named | columns)


def _columns_of_users(user: User, frame: pl.DataFrame) -> list[tuple[pl.Series, str]]:
    """Whose event each row is and, where events may be deleted, whether it is one; with what must hold of each."""
    rule = f"column {user.column!r} must name a user, in at most {LONGEST_LABEL} bytes or 63 bits"
    columns = [(user_column(user.column, frame), rule)]
    if user.weight is not None:
        weights = number_column(user.weight, frame)
        signs = weights.set(weights.abs() != 1, None).cast(pl.Int8)
        columns.append((signs, f"column {user.weight!r} must hold 1 or -1"))
    return columns
