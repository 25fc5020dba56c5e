"""The buffers of a text or bytes column where they lie: Arrow's C stream interface, without copy and without pyarrow.

The structures are those of the Arrow specification, "The Arrow C data interface" and "The Arrow C stream interface",
whose layout is frozen. A column of views has its validity, its views (sixteen bytes a row), its data buffers, and last
the lengths of these.

Columns of keys: what may be counted, and what is refused row by row.

A key is a whole number of 64 bits, a text or a byte string of at most 256 bytes. Columns come from numpy, polars or
anything that speaks Arrow's C interface.
"""

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core
from pianissimo.errors import InputError, ParameterError

Octets = NDArray[np.uint8]
Chunk = tuple[Octets, list[Octets]]
"""Views, and the buffers that they point into."""

_VIEW = 16


class _Array(ctypes.Structure):
    pass


_Release = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))

_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", _Release),
    ("private_data", ctypes.c_void_p),
]


class _Stream(ctypes.Structure):
    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Array))),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


@contextmanager
def view_chunks(column: pl.Series) -> Iterator[list[Chunk]]:
    """The views and the data buffers of each chunk of a String or Binary column, valid inside the block alone."""
    if column.dtype not in (pl.String, pl.Binary):
        raise TypeError("a column of views must be of texts or bytes")
    # Through Binary both have one layout; the capsule owns the stream and lets go of it at the end.
    capsule: Any = column.cast(pl.Binary).__arrow_c_stream__()
    stream = _Stream.from_address(_pointer(capsule, b"arrow_array_stream"))
    with ExitStack() as at_end:
        chunks = []
        while True:
            chunk = _Array()
            if stream.get_next(ctypes.addressof(stream), ctypes.byref(chunk)):
                raise RuntimeError("a column must be readable through Arrow's stream interface")
            if not chunk.release:
                break
            at_end.callback(chunk.release, ctypes.byref(chunk))
            if chunk.length:
                chunks.append(_buffers(chunk))
        yield chunks


def are_texts(column: pl.Series) -> pl.Series:
    r"""For each row of a Binary column whether it is UTF-8; null where it is null."""
    with view_chunks(column) as chunks:
        parts = [_core.are_texts(views, buffers) for views, buffers in chunks]
    texts = pl.Series(np.concatenate(parts) if parts else np.empty(0, bool), dtype=pl.Boolean)
    return texts.zip_with(column.is_not_null(), pl.Series([None], dtype=pl.Boolean))


def _buffers(chunk: _Array) -> Chunk:
    last = chunk.n_buffers - 1
    rows = _octets(chunk.buffers[1], _VIEW * (chunk.offset + chunk.length))
    lengths = _octets(chunk.buffers[last], 8 * (last - 2)).view(np.int64).tolist()
    data = [_octets(chunk.buffers[2 + place], length) for place, length in enumerate(lengths)]
    return rows[_VIEW * chunk.offset :], data


def _octets(address: int | None, length: int) -> Octets:
    if not length or address is None:
        return np.empty(0, np.uint8)
    return np.frombuffer(memoryview((ctypes.c_uint8 * length).from_address(address)), dtype=np.uint8)


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
    """The keys of all sets in a row, where each set that is not empty ends, and whether polars made the column."""
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
