"""When a file was made: what tells it from a later one that was given its inode and holds the same lines."""

import ctypes
import os
import struct
from functools import cache
from typing import Any

_EMPTY_PATH, _BIRTH = 0x1000, 0x800
_BYTES, _PLACE = 256, 80
"""Of what statx answers, and where in it the birth is: whole seconds in 8 bytes, nanoseconds in 4."""


def birth_of(descriptor: int) -> int | None:
    """The time at which an open file was made, in nanoseconds; None where the file system does not tell."""
    statx, answer = _statx(), ctypes.create_string_buffer(_BYTES)
    if statx is None or statx(descriptor, b"", _EMPTY_PATH, _BIRTH, answer) != 0:
        told = getattr(os.fstat(descriptor), "st_birthtime", None)
        return None if told is None else int(told * 10**9)
    if not struct.unpack_from("=I", answer)[0] & _BIRTH:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _PLACE)
    return int(seconds) * 10**9 + int(nanoseconds)


@cache
def _statx() -> Any:
    """The system's own function: `os.stat` does not ask Linux for the birth."""
    try:
        found = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p]
    found.restype = ctypes.c_int
    return found
