"""When a file was made: what tells it from a later one that was given its inode."""

import ctypes
import os
import struct
from functools import cache
from typing import Any

_EMPTY_PATH = 0x1000
_BIRTH = 0x800
_BYTES = 256
_PLACE = 80
"""Of the time of birth in the answer of statx: whole seconds in 8 bytes, then nanoseconds in 4."""


def birth_of(descriptor: int) -> int | None:
    """The time at which an open file was made, in nanoseconds; None where the file system does not tell.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     birth_of(file.fileno()) == birth_of(file.fileno())
    True
    """
    told = getattr(os.fstat(descriptor), "st_birthtime", None)
    if told is not None:
        return int(told * 10**9)
    statx, answer = _statx(), ctypes.create_string_buffer(_BYTES)
    if statx is None or statx(descriptor, b"", _EMPTY_PATH, _BIRTH, answer) != 0:
        return None
    if not struct.unpack_from("=I", answer)[0] & _BIRTH:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _PLACE)
    return int(seconds) * 10**9 + int(nanoseconds)


@cache
def _statx() -> Any:
    """The system's own function: Python's `os.stat` does not ask Linux for the birth."""
    try:
        found = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p]
    found.restype = ctypes.c_int
    return found
