"""Who may go on: not after an interruption half-way, not in a forked process, not amid another call."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pianissimo.errors import StateError

_INTERRUPTED = "what was interrupted half-way must not go on"


class Guard:
    """Stops what must not go on: after an interruption half-way, in a forked process, or when it was closed."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._busy = threading.Lock()
        self._reason = ""

    @property
    def is_at_home(self) -> bool:
        """Whether this is the process that it was made in."""
        return os.getpid() == self._process

    def check_process(self) -> None:
        """Refuse a forked child, before it waits for what a thread of its parent held, or for the threads of polars."""
        if not self.is_at_home:
            raise StateError("a run must stay in the process that began it: a fork would share its noise; start anew")

    def __enter__(self) -> None:
        self.check_process()
        # Also for the same thread: a signal handler in the middle of a release must not release.
        if not self._busy.acquire(blocking=False):
            raise StateError("a run must be used by one caller at a time, got another in the middle of a call")
        if self._reason:
            self._busy.release()
            raise StateError(f"{self._reason}; start anew")
        self._reason = _INTERRUPTED

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._reason == _INTERRUPTED:
            self._reason = ""
        self._busy.release()

    @contextmanager
    def forgiving(self, *harmless: type[Exception]) -> Iterator[None]:
        """The same, where some errors are raised before anything is changed: what they interrupt may go on."""
        try:
            with self:
                yield
        except harmless:
            self.forgive()
            raise

    def forgive(self) -> None:
        """Take back an interruption that is known to have changed nothing."""
        if self._reason == _INTERRUPTED:
            self._reason = ""

    def close(self, reason: str) -> None:
        """Let nothing happen any more."""
        self._reason = reason


class OneCaller:
    """Other threads wait; a call amid another of the same thread, as from a signal or a sink, is refused.

    So is one of a forked child, at once: whatever thread of its parent held the lock is not there to let go.
    """

    __slots__ = ("_guard", "_inside", "lock")

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        # Its owner may take it again, so that an interrupt that leaves it taken does not hang its own thread.
        self.lock = threading.RLock()
        """Itself, for what must be possible always: to let go. Other threads are waited for, one's own call is not."""

        self._inside = False

    def __enter__(self) -> None:
        self._guard.check_process()
        self.lock.acquire()
        try:
            self._check_outside()
            self._inside = True
        except BaseException:
            self.lock.release()
            raise

    def _check_outside(self) -> None:
        if self._inside:
            raise StateError("a stream must be used by one caller at a time, got a call in the middle of another")

    def __exit__(self, *_: object) -> None:
        self._inside = False
        self.lock.release()
