"""What a process that holds exact counts and a secret asks of the operating system: no core dumps."""

import ctypes
import sys

_SET_DUMPABLE = 4


def forbid_dumps() -> bool:
    """Let neither a crash nor another process of the same user write out this process's memory; False if it could not.

    >>> isinstance(forbid_dumps, object)
    True
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return False
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
