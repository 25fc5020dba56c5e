"""A lock of the operating system on an open file, waited for a while: whoever is killed lets go of it."""

import time
from pathlib import Path

from pianissimo.errors import LeaseError

try:
    import fcntl
except ImportError:  # not on Windows: there a file must not be given to two processes
    fcntl = None  # type: ignore[assignment]

PATIENCE = 5.0
"""How many seconds another process may hold a file: what is written under the lock takes milliseconds."""


def wait_for_lock(descriptor: int, path: Path, deadline: float) -> None:
    """Hold a file alone until its descriptor is closed; `LeaseError` if another holds it beyond the deadline.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     wait_for_lock(file.fileno(), Path(file.name), time.monotonic() + PATIENCE)
    """
    while fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LeaseError(
                    f"{path} must be written by one process at a time, got another that holds it and hangs; "
                    "end that one"
                ) from None
            time.sleep(0.01)
        else:
            return
