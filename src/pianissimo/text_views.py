"""Columns of texts and bytes read where they lie: without copy and without pyarrow.

The structures are those of the Arrow specification, "The Arrow C data interface" and "The Arrow C stream interface",
whose layout is frozen. A column of views has its validity, its views (sixteen bytes a row), its data buffers, and last
the lengths of these.
"""

import ctypes
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core

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
_memory = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.restype = ctypes.py_object
_memory.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_FOR_READING = 0x100


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


def _buffers(chunk: _Array) -> Chunk:
    last = chunk.n_buffers - 1
    rows = _octets(chunk.buffers[1], _VIEW * (chunk.offset + chunk.length))
    lengths = _octets(chunk.buffers[last], 8 * (last - 2)).view(np.int64).tolist()
    data = [_octets(chunk.buffers[2 + place], length) for place, length in enumerate(lengths)]
    return rows[_VIEW * chunk.offset :], data


def _octets(address: int | None, length: int) -> Octets:
    if not length or address is None:
        return np.empty(0, np.uint8)
    # An array type of ctypes for each length would be a class for each.
    return np.frombuffer(_memory(address, length, _FOR_READING), dtype=np.uint8)


def number_texts(texts: pl.Series) -> tuple[pl.Series, NDArray[np.uint32]]:
    """The different texts of a column without nulls, as they appear, and the number of each row's text among them."""
    with view_chunks(texts) as chunks:
        # No output depends on the hash: nobody can choose texts that crowd one place of a table.
        numbers, first = _core.number_texts(chunks, secrets.token_bytes(32))
    return texts[first], numbers


def count_texts(texts: pl.Series) -> tuple[pl.Series, NDArray[np.int64]]:
    """The different texts of a column without nulls, as they appear, and how often each does."""
    with view_chunks(texts) as chunks:
        counts, first = _core.count_texts(chunks, secrets.token_bytes(32))
    return texts[first], counts


def add_up_texts(texts: pl.Series, numbers: NDArray[np.int64]) -> tuple[pl.Series, NDArray[np.int64]]:
    """The different texts of a column without nulls, in the order of their bytes, and the sum of each one's numbers."""
    with view_chunks(texts) as chunks:
        first, sums = _core.add_up_texts(chunks, np.ascontiguousarray(numbers, dtype=np.int64))
    return texts[first], sums


def longest_text(texts: pl.Series) -> int:
    """How many bytes the longest text of a column has; 0 where there is none."""
    if texts.null_count():
        return int(texts.str.len_bytes().max() or 0)  # type: ignore[arg-type]
    with view_chunks(texts) as chunks:
        return max((int(views.view("<u4")[::4].max()) for views, _ in chunks), default=0)
