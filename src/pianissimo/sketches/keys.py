"""Columns of keys: what may be counted, and what is refused row by row.

A key is a whole number of 64 bits, a text or a byte string of at most 256 bytes. Columns come from numpy, polars or
anything that speaks Arrow's C interface.
"""

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.errors import InputError, ParameterError
from pianissimo.sketches.arrow_views import are_texts

KeyKind = Literal["int64", "text", "bytes"]
"""What the keys of a sketch are."""

LONGEST_KEY = 256
"""A key has at most this many bytes."""

_TEXTS = (pl.String, pl.Categorical, pl.Enum)


def check_key_kind(kind: object) -> None:
    """Refuse what is not a kind of keys.

    >>> check_key_kind("float")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: keys must be 'int64', 'text' or 'bytes', got 'float'
    """
    if kind not in get_args(KeyKind):
        raise ParameterError(f"keys must be 'int64', 'text' or 'bytes', got {kind!r}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyColumn:
    """A column of keys without nulls."""

    kind: KeyKind | None
    """None for an empty column that could be of any kind."""

    column: pl.Series | NDArray[np.int64]
    """Whole numbers of 64 bits, or a Binary column for texts and bytes alike."""

    check_texts: bool
    """Whether the texts may be other than UTF-8."""


def key_column(values: object, kind: KeyKind | None = None, *, trusted: bool = True) -> KeyColumn:
    """The keys of a batch, if it has none that is null and they are of the kind asked for.

    Texts are only surely UTF-8 if polars made them: what came through Arrow's interface, or as bytes, is marked.

    >>> key_column(np.array([3, 1], dtype=np.int32)).kind
    'int64'
    """
    if isinstance(values, np.ndarray) and values.dtype == np.int64 and values.ndim == 1 and kind in ("int64", None):
        return KeyColumn("int64", np.ascontiguousarray(values), check_texts=False)
    series = _series(values)
    kind = kind or _kind_of(series.dtype)
    _check_fits(series, kind)
    if series.null_count():
        raise InputError("keys must not be null, got a null; split_bad sets such rows aside")
    if kind == "int64":
        return KeyColumn(kind, np.ascontiguousarray(_integers(series).to_numpy()), check_texts=False)
    made_by_polars = trusted and isinstance(values, pl.Series) and series.dtype != pl.Binary
    return KeyColumn(kind, _bytes(series), check_texts=kind == "text" and not made_by_polars)


def split_bad(values: object, keys: KeyKind | None = None) -> tuple[pl.Series, pl.DataFrame]:
    """The rows that can be counted, and which ones cannot and why.

    >>> good, faults = split_bad(pl.Series(["a", None, "x" * 300, "b"]))
    >>> good.to_list(), faults.rows()
    (['a', 'b'], [(1, 'null'), (2, 'more than 256 bytes')])
    """
    column = _series(values)
    kind = keys or _kind_of(column.dtype)
    _check_fits(column, kind)
    fault = pl.Series("fault", [None], dtype=pl.String).new_from_index(0, len(column))
    if kind == "int64":
        counted = column.cast(pl.Int64, strict=False)
        fault = fault.zip_with(~(counted.is_null() & column.is_not_null()), _reason("beyond 64 bits"))
    elif kind is not None:
        octets = _bytes(column)
        size = octets.bin.size().fill_null(0)
        counted = octets
        if kind == "text":
            fault = fault.zip_with(are_texts(octets).fill_null(value=True), _reason("not valid UTF-8"))
        fault = fault.zip_with(size <= LONGEST_KEY, _reason(f"more than {LONGEST_KEY} bytes"))
    else:
        counted = column
    fault = fault.zip_with(column.is_not_null(), _reason("null"))
    rows = pl.DataFrame({"row": pl.int_range(len(column), eager=True), "fault": fault})
    good = counted.filter(fault.is_null())
    return good.cast(pl.String) if kind == "text" else good, rows.filter(pl.col("fault").is_not_null())


def sets_of(values: object) -> tuple[pl.Series, NDArray[np.int64], bool]:
    """The keys of all sets in a row, where each set that is not empty ends, and whether polars made the column.

    >>> keys, ends, _ = sets_of(pl.Series([[1, 2], [], [3]]))
    >>> keys.to_list(), ends.tolist()
    ([1, 2, 3], [2, 3])
    """
    column = _series(values)
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if column.dtype == pl.Null and len(column) == 0:
        return column, np.empty(0, np.int64), True
    if not isinstance(column.dtype, pl.List):
        raise InputError(f"a batch must have one list of keys a row, got {column.dtype}")
    if column.null_count():
        raise InputError("sets must not be null, got a null; give an empty list for an event without keys")
    sizes = column.list.len()
    full = column.filter(sizes > 0)
    ends = sizes.filter(sizes > 0).cast(pl.Int64).cum_sum().to_numpy()
    return full.explode(), np.ascontiguousarray(ends), isinstance(values, pl.Series)


def _series(values: object) -> pl.Series:
    if isinstance(values, pl.Series):
        return values
    try:
        return pl.Series(cast("Any", values), strict=True)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        # The reason that polars gives may quote a value.
        raise InputError(
            "a batch must be a column of whole numbers, texts or bytes (numpy, polars, Arrow), got something else"
        ) from None


def _kind_of(dtype: pl.DataType) -> KeyKind | None:
    if dtype.is_integer():
        return "int64"
    if dtype in _TEXTS:
        return "text"
    if dtype == pl.Binary:
        return "bytes"
    if dtype == pl.Null:
        return None
    raise InputError(f"keys must be whole numbers, texts or bytes, got {dtype}")


def _check_fits(column: pl.Series, kind: KeyKind | None) -> None:
    found = _kind_of(column.dtype)
    if found not in (kind, None) and not (kind == "text" and found == "bytes"):
        raise InputError(f"keys of this sketch must be {kind}, got {found}; one sketch counts keys of one type")


def _integers(column: pl.Series) -> pl.Series:
    try:
        return column.cast(pl.Int64)
    except pl.exceptions.InvalidOperationError:
        raise InputError(
            "whole numbers must be from -2^63 to 2^63 - 1, got one beyond; split_bad sets it aside"
        ) from None


def _bytes(column: pl.Series) -> pl.Series:
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    return column.cast(pl.Binary)


def _reason(text: str) -> pl.Series:
    return pl.Series([text], dtype=pl.String)
