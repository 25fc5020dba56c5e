"""Asks a source where it ends at the instant at which a tick is over, whatever else is being done then."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from pianissimo.errors import PianissimoError

_LONGEST_WAIT = 0.5
_SHORTEST_WAIT = 0.001


class EndWatch:
    """A thread that asks whenever it is time; what goes wrong is found again by whoever reads the source.

    `ask` gives the seconds until the next time. The clock may be set meanwhile, so that it is looked at often.

    >>> asked = threading.Event()
    >>> with EndWatch(lambda: (asked.set(), 1.0)[1]):
    ...     asked.wait(5)
    True
    """

    def __init__(self, ask: Callable[[], float]) -> None:
        self._ask = ask
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ends of ticks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        wait = _SHORTEST_WAIT
        while not self._stop.wait(wait):
            try:
                wait = min(max(self._ask(), _SHORTEST_WAIT), _LONGEST_WAIT)
            except PianissimoError:
                wait = _LONGEST_WAIT
