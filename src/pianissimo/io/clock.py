"""From a time to its tick: by the events' own times, in integers, or by the wall clock, which may jump.

Where the wall clock cuts ticks, the tick is a function of the clock and of what is stored, never of the data. Where the
clock goes back, nothing is closed until it has caught up. Where it leaps ahead, by more ticks than allowed, the stream
stops: to go on would release, and burn, all the ticks in between for a clock that is likely wrong. How many are allowed
is a share of all that the stream has, or a minute's ticks where those are more.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

from pianissimo.errors import RefusalError, SpecError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400_000_000
_LARGEST = 2**63 - 1
_ISO_8601 = (
    r"^(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<minute>[0-9]{2}:[0-9]{2})(?::(?P<second>[0-5][0-9])(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3]):?(?P<minutes>[0-5][0-9])?)?)?$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Tick n covers the times from origin + (n - 1) * tick up to, but not including, origin + n * tick."""

    origin: datetime
    """When tick 1 begins."""

    tick: timedelta
    """How long a tick lasts."""

    last_tick: int
    """The last tick that takes events."""

    def ticks(self, times: pl.Series) -> pl.Series:
        """The tick of each time between the origin and the end."""
        return (times - microseconds_of(self.origin)) // (self.tick // _MICROSECOND) + 1

    def faults(self, name: str, times: pl.Series) -> pl.Series:
        """For each time in the column `name` why it belongs to no tick, or null where it does."""
        origin = microseconds_of(self.origin)
        end = min(origin + self.last_tick * (self.tick // _MICROSECOND), _LARGEST)
        time = pl.col("time")
        fault = (
            pl.when(time.is_null())
            .then(pl.lit(_no_time(name)))
            .when(time < origin)
            .then(pl.lit(f"column {name!r} must not be before the origin {self.origin.isoformat()}"))
            .when(time >= end)
            .then(pl.lit(f"column {name!r} must be before the end of tick {self.last_tick}, the last one"))
        )
        return pl.DataFrame({"time": times}).select(fault.alias("fault")).to_series()


def no_times(name: str, times: pl.Series) -> pl.Series:
    """Why each time in the column `name` is none, or null where it is one."""
    return (
        pl.DataFrame({"time": times}).select(pl.when(pl.col("time").is_null()).then(pl.lit(_no_time(name)))).to_series()
    )


def _no_time(name: str) -> str:
    return f"column {name!r} must be a date-time such as 2026-01-31T12:00:00Z"


def microseconds(times: pl.Series) -> pl.Series:
    """Times as microseconds since 1970 in UTC, null where they are none; finer parts are cut off.

    Takes ISO 8601 texts, date-times and dates; without an offset they are taken for UTC. Each is read by
    itself.
    """
    kind = times.dtype
    if kind == pl.String:
        return _parsed(times)
    numbers = times.to_physical().cast(pl.Int64)
    if kind == pl.Date:
        return numbers * _DAY
    if isinstance(kind, pl.Datetime) and kind.time_unit == "ns":
        return numbers // 1000
    if isinstance(kind, pl.Datetime) and kind.time_unit == "ms":
        # Times too far off for microseconds become null, not other times.
        fits = numbers.is_between(-(_LARGEST // 1000), _LARGEST // 1000)
        return numbers.zip_with(fits, pl.Series([None], dtype=pl.Int64)) * 1000
    return numbers


def _parsed(texts: pl.Series) -> pl.Series:
    parts = texts.str.extract_groups(_ISO_8601).struct.unnest()
    second = pl.concat_str(
        "day", pl.lit("T"), pl.col("minute").fill_null("00:00"), pl.lit(":"), pl.col("second").fill_null("00")
    )
    fraction = pl.col("fraction").fill_null("").str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64)
    offset = pl.col("hours").fill_null("0").cast(pl.Int64) * 60 + pl.col("minutes").fill_null("0").cast(pl.Int64)
    east = pl.when(pl.col("sign") == "-").then(-offset).otherwise(offset)
    whole = second.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False).to_physical()
    return parts.select((whole + fraction - east * 60_000_000).alias("time")).to_series()


def microseconds_of(moment: datetime) -> int:
    """The same of one date-time."""
    return (moment - _EPOCH) // _MICROSECOND


MOST_TICKS_AHEAD = 1440
SHARE_AHEAD = 8
"""At most one tick in so many may be due at once."""

SLOW_START = timedelta(minutes=1)
"""Ticks of so much time may be due in any case: a machine that is slow to start is no clock that is wrong."""

_LONGEST_LEFT = timedelta(days=1) // _MICROSECOND


def utc_now() -> datetime:
    """The time of the operating system."""
    return datetime.now(UTC)


def longest_leap_of(tick: timedelta, last_tick: int) -> int:
    """How many ticks may be due at once, of a stream that has so many, unless somebody says otherwise."""
    return min(MOST_TICKS_AHEAD, max(1, last_tick // SHARE_AHEAD, SLOW_START // tick))


@dataclass(frozen=True, slots=True, kw_only=True)
class WallClock:
    """When ticks end."""

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
