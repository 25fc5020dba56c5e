"""The clock that cuts the ticks of a live source."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pianissimo.errors import RefusalError, SpecError
from pianissimo.stream.calendar import MICROSECOND, TickCalendar, iso, microseconds_of, utc_now

MOST_TICKS_AHEAD = 1440
SHARE_AHEAD = 8
"""At most one tick in so many may be due at once."""

SLOW_START = timedelta(minutes=1)
"""Ticks of so much time may be due in any case: a machine that is slow to start is no clock that is wrong."""

_LONGEST_LEFT = timedelta(days=1) // MICROSECOND


def longest_leap_of(tick: timedelta | str, last_tick: int) -> int:
    """How many ticks may be due at once, of a stream that has so many, unless somebody says otherwise."""
    slow = 0 if isinstance(tick, str) else SLOW_START // tick
    return min(MOST_TICKS_AHEAD, max(1, last_tick // SHARE_AHEAD, slow))


@dataclass(frozen=True, slots=True, kw_only=True)
class WallClock:
    """When ticks end."""

    calendar: TickCalendar
    longest_leap: int = MOST_TICKS_AHEAD
    """How many ticks may be due at once."""

    now: Callable[[], datetime] = utc_now
    sleep: Callable[[float], None] = time.sleep

    def ended(self, moment: datetime) -> int:
        """How many ticks are over at a moment; integers only."""
        return max(0, self.calendar.tick_at(moment) - 1)

    def is_over(self, tick: int) -> bool:
        """Whether a tick may be sealed; `RefusalError` where the clock has leapt too far ahead of it."""
        due = self.ended(self.now())
        if due - tick >= self.longest_leap:
            raise RefusalError(
                f"the clock must be at most {self.longest_leap} ticks ahead of the stream, got {due - tick + 1} for "
                f"tick {tick}; set the clock right, or, if it is, let the stream catch up with --longest-leap"
            )
        return due >= tick

    def check_origin(self, before: int = 0) -> None:
        """Before a stream is created, and charged: refuse one whose first live ticks are over; files come before."""
        due = self.ended(self.now()) - before
        if due > self.longest_leap:
            name = "source.live_from" if before else "stream.origin"
            raise SpecError(
                f"{name} must be at most {self.longest_leap} ticks ago when a stream begins, got "
                f"{iso(self.calendar.start(before + 1))}, {due} ticks ago; set it to when tick {before + 1} is to "
                f"begin, or let the stream release what is over at once with --longest-leap {due}"
            )

    def left(self, tick: int) -> float:
        """Seconds until a tick is over; of many no more than a day's."""
        # Integers: the end may lie beyond all dates.
        over = self.calendar.microsecond(tick + 1) - microseconds_of(self.now())
        return min(over, _LONGEST_LEFT) / 1e6
