"""Ticks cut by the wall clock, which may jump.

The tick is a function of the clock and of what is stored, never of the data. Where the clock goes back, nothing is
closed until it has caught up. Where it leaps ahead, by more ticks than allowed, the stream stops: to go on would
release, and burn, all the ticks in between for a clock that is likely wrong.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pianissimo.errors import RefusalError

_MICROSECOND = timedelta(microseconds=1)


def utc_now() -> datetime:
    """The time of the operating system.

    >>> utc_now().tzinfo is UTC
    True
    """
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class WallClock:
    """When ticks end.

    >>> clock = WallClock(origin=datetime(2026, 1, 1, tzinfo=UTC), tick=timedelta(minutes=1))
    >>> clock.ended(datetime(2026, 1, 1, 0, 2, 30, tzinfo=UTC))
    2
    """

    origin: datetime
    tick: timedelta
    longest_leap: int = 1440
    """How many ticks may be due at once."""

    now: Callable[[], datetime] = utc_now
    sleep: Callable[[float], None] = time.sleep

    def ended(self, moment: datetime) -> int:
        """How many ticks are over at a moment; integers only."""
        return max(0, (moment - self.origin) // _MICROSECOND // (self.tick // _MICROSECOND))

    def is_over(self, tick: int) -> bool:
        """Whether a tick may be sealed; `RefusalError` where the clock has leapt too far ahead of it."""
        due = self.ended(self.now())
        if due - tick >= self.longest_leap:
            raise RefusalError(
                f"the clock must be at most {self.longest_leap} ticks ahead of the stream, got {due - tick + 1} for "
                f"tick {tick}; set the clock right, or, if it is, let the stream catch up with a longer leap"
            )
        return due >= tick

    def begin(self, tick: int) -> datetime:
        """When a tick begins."""
        return self.origin + (tick - 1) * self.tick

    def left(self, tick: int) -> float:
        """Seconds until a tick is over."""
        return (self.begin(tick + 1) - self.now()).total_seconds()

    def wait_for(self, tick: int, *, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait until a tick is over; False if told to stop meanwhile."""
        while not stopped():
            if self.is_over(tick):
                return True
            self.sleep(min(max(self.left(tick), 0.001), 0.5))
        return False
