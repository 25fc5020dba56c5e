"""When a tick is shown: at a public moment, whatever it counts.

A tick has its slot so long after its end. If it is not ready then, it waits for the slot of a later tick. So the moment
at which it appears is one of a list that is known beforehand, and how long the counting took, and with it how many
events there were, changes nothing but, for a tick that is late, which of them it is.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from pianissimo.stream.calendar import TickCalendar, utc_now


class PublicSlots:
    """The slots of one start of a stream.

    >>> from datetime import UTC
    >>> clock = [datetime(2026, 1, 1, 0, 1, 4, tzinfo=UTC)]
    >>> slots = PublicSlots(TickCalendar("2026-01-01", "1m"), timedelta(seconds=5), lambda: clock[0])
    >>> slots.is_ready(1); slots.due(0, 1)
    0
    >>> clock[0] += timedelta(seconds=1); slots.due(0, 1), slots.seconds_left()
    (1, 60.0)
    """

    def __init__(self, calendar: TickCalendar, delay: timedelta, now: Callable[[], datetime] = utc_now) -> None:
        self._calendar, self.delay, self._now = calendar, delay, now
        self._begun = now()
        self._ready: dict[int, datetime] = {}

    def is_ready(self, tick: int) -> None:
        """A tick is released and witnessed, now."""
        self._ready[tick] = self._now()

    def due(self, shown: int, last: int) -> int:
        """The last tick that may be shown now, of those after `shown` that are ready, up to `last`."""
        slot, found = self._slot(), shown
        moment = self._calendar.slot(slot, self.delay) if slot >= 1 else None
        # What was ready before this start is as good as ready since it.
        while moment is not None and found < min(last, slot) and self._ready.get(found + 1, self._begun) <= moment:
            found += 1
        for tick in [each for each in list(self._ready) if each <= found]:
            del self._ready[tick]
        return found

    def seconds_left(self) -> float:
        """Until the next slot."""
        return (self._calendar.slot(max(0, self._slot()) + 1, self.delay) - self._now()).total_seconds()

    def _slot(self) -> int:
        """The last tick whose slot has come; below 1 where none has."""
        return self._calendar.tick_at(self._now() - self.delay) - 1
