"""Ticks cut by the wall clock, which may jump.

The tick is a function of the clock and of what is stored, never of the data. Where the clock goes back, nothing is
closed until it has caught up. Where it leaps ahead, by more ticks than allowed, the stream stops: to go on would
release, and burn, all the ticks in between for a clock that is likely wrong. How many are allowed is a share of all
that the stream has, or a minute's ticks where those are more.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pianissimo.errors import RefusalError, SpecError

MOST_TICKS_AHEAD = 1440
SHARE_AHEAD = 8
"""At most one tick in so many may be due at once."""

SLOW_START = timedelta(minutes=1)
"""Ticks of so much time may be due in any case: a machine that is slow to start is no clock that is wrong."""

_MICROSECOND = timedelta(microseconds=1)
_LONGEST_LEFT = timedelta(days=1) // _MICROSECOND


def utc_now() -> datetime:
    """The time of the operating system.

    >>> utc_now().tzinfo is UTC
    True
    """
    return datetime.now(UTC)


def longest_leap_of(tick: timedelta, last_tick: int) -> int:
    """How many ticks may be due at once, of a stream that has so many, unless somebody says otherwise.

    >>> longest_leap_of(timedelta(days=1), last_tick=365), longest_leap_of(timedelta(minutes=1), last_tick=525_600)
    (45, 1440)
    """
    return min(MOST_TICKS_AHEAD, max(1, last_tick // SHARE_AHEAD, SLOW_START // tick))


@dataclass(frozen=True, slots=True, kw_only=True)
class WallClock:
    """When ticks end.

    >>> clock = WallClock(origin=datetime(2026, 1, 1, tzinfo=UTC), tick=timedelta(minutes=1))
    >>> clock.ended(datetime(2026, 1, 1, 0, 2, 30, tzinfo=UTC))
    2
    """

    origin: datetime
    tick: timedelta
    longest_leap: int = MOST_TICKS_AHEAD
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
                f"tick {tick}; set the clock right, or, if it is, let the stream catch up with --longest-leap"
            )
        return due >= tick

    def check_origin(self) -> None:
        """Before a stream is created, and charged: refuse one whose first ticks are long over."""
        due = self.ended(self.now())
        if due > self.longest_leap:
            raise SpecError(
                f"stream.origin must be at most {self.longest_leap} ticks ago when a stream begins, got "
                f"{self.origin.isoformat()}, {due} ticks ago; set it to when tick 1 is to begin, or let the stream "
                f"release what is over at once with --longest-leap {due}"
            )

    def begin(self, tick: int) -> datetime:
        """When a tick begins."""
        return self.origin + (tick - 1) * self.tick

    def left(self, tick: int) -> float:
        """Seconds until a tick is over; of many no more than a day's."""
        # Integers: the end may lie beyond all dates.
        over = tick * (self.tick // _MICROSECOND) - (self.now() - self.origin) // _MICROSECOND
        return min(over, _LONGEST_LEFT) / 1e6

    def wait_for(self, tick: int, *, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait until a tick is over; False if told to stop meanwhile."""
        while not stopped():
            if self.is_over(tick):
                return True
            self.sleep(min(max(self.left(tick), 0.001), 0.5))
        return False
