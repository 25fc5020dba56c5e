"""A lock for objects that are used by one caller at a time, where waiting for oneself is an error and not for ever."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pianissimo.errors import StateError


class OneCaller:
    """Other threads wait; a call in the middle of another of the same thread, as from a signal or a sink, is refused.

    >>> lock = OneCaller()
    >>> with lock, lock:
    ...     pass
    Traceback (most recent call last):
    pianissimo.errors.StateError: a stream must be used by one caller at a time, got a call in the middle of another
    """

    __slots__ = ("_inside", "_lock")

    def __init__(self) -> None:
        # Its owner may take it again, so that an interrupt that leaves it taken does not hang its own thread.
        self._lock = threading.RLock()
        self._inside = False

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            self._check_outside()
            self._inside = True
        except BaseException:
            self._lock.release()
            raise

    def _check_outside(self) -> None:
        if self._inside:
            raise StateError("a stream must be used by one caller at a time, got a call in the middle of another")

    def __exit__(self, *_: object) -> None:
        self._inside = False
        self._lock.release()

    @contextmanager
    def even_within(self) -> Iterator[None]:
        """For what must be possible always: to let go. Other threads are waited for, one's own call is not."""
        with self._lock:
            yield
