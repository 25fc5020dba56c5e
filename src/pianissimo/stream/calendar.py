"""When ticks begin and end, and which tick a time belongs to: public, and fixed before any data.

A tick has a fixed length, such as "15m" or "24h", or one of the calendar: months and years, and days ("1d") in a time
zone whose clocks change, which have 23 and 25 hours. Tick n of the calendar begins n - 1 such lengths after the origin
by the clocks and the calendar of that zone: at the same time of day, and on the same day of the month or its last one.
"""

from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl

from pianissimo.checks import length_of, length_text, months_in, tick_length_of
from pianissimo.errors import ParameterError
from pianissimo.identity import identified

ASKED_OF_TIMES = "a date-time such as 2026-01-31T12:00:00Z"
MICROSECOND = timedelta(microseconds=1)
LARGEST_TIME = 2**63 - 1
"""In microseconds: what lies beyond is told as this."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DATE, _LAST_DATE = _EPOCH.replace(year=2), datetime.max.replace(tzinfo=UTC)
_LAST_ORIGIN = _EPOCH.replace(year=9900)
_DAY = timedelta(days=1)
_ISO_8601 = (
    r"^(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<minute>[0-9]{2}:[0-9]{2})(?::(?P<second>[0-5][0-9])(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    r"(?:(?P<utc>[Zz])|(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3]):?(?P<minutes>[0-5][0-9])?)?)?$"
)


@identified("tick-calendar")
@dataclass(frozen=True, slots=True)
class TickCalendar:
    """The ticks from an origin on.

    >>> spring = TickCalendar("2026-03-28", "1d", "Europe/Berlin")
    >>> [str(end - start) for start, end in (spring.span(1, 1), spring.span(2, 2))]
    ['1 day, 0:00:00', '23:00:00']
    >>> [TickCalendar("2026-01-31", "1mo").start(tick).day for tick in (1, 2, 3)]
    [31, 28, 31]
    """

    origin: datetime | str
    """When tick 1 begins; without an offset by the clocks of the time zone. Kept in UTC."""

    tick: timedelta | str
    """How long a tick lasts: "15m", "1d", "1mo", "1y"."""

    time_zone: str = "UTC"
    """Whose clocks and calendar count, such as "Europe/Berlin"."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tick", tick_length_of(self.tick, self.time_zone))
        zone = zone_of(self.time_zone)
        try:
            object.__setattr__(self, "origin", as_utc(self.origin, zone))
        except (TypeError, ValueError, OverflowError):
            raise ParameterError(
                f"origin must be a date-time such as 2026-01-31T12:00:00Z, got {self.origin!r}"
            ) from None
        assert isinstance(self.origin, datetime)  # noqa: S101
        if not _FIRST_DATE <= self.origin <= _LAST_ORIGIN:
            raise ParameterError(f"origin must be from the year 2 to 9900, got {self.origin.isoformat()}")

    def microsecond(self, tick: int) -> int:
        """When a tick begins, in microseconds since 1970; it may lie beyond all dates."""
        assert isinstance(self.origin, datetime)  # noqa: S101
        if self._fixed:
            return microseconds_of(self.origin) + (tick - 1) * self._fixed
        return _begin(self.origin, self.tick, self.time_zone, tick - 1)

    def start(self, tick: int) -> datetime:
        """When a tick begins, which is when the one before ends; at most the last of all dates."""
        return _EPOCH + min(self.microsecond(tick), microseconds_of(_LAST_DATE)) * MICROSECOND

    def span(self, first: int, last: int) -> tuple[datetime, datetime]:
        """When some ticks begin, and when they end."""
        return self.start(first), self.start(last + 1)

    def slot(self, tick: int, delay: timedelta) -> datetime:
        """When a tick may be shown at the earliest: so long after its end, whatever it counts."""
        return min(self.start(tick + 1), _LAST_DATE - delay) + delay

    def tick_at(self, moment: datetime | int) -> int:
        """The tick that a moment lies in; below 1 before the origin."""
        assert isinstance(self.origin, datetime)  # noqa: S101
        time = microseconds_of(moment) if isinstance(moment, datetime) else moment
        if self._fixed:
            return (time - microseconds_of(self.origin)) // self._fixed + 1
        # What lies beyond all dates belongs to the last tick that has one.
        time = max(microseconds_of(_FIRST_DATE), min(time, microseconds_of(_LAST_DATE)))
        length = months_in(self.tick) * timedelta(days=30.4369) if isinstance(self.tick, str) else self.tick
        found = (time - microseconds_of(self.origin)) // (length // MICROSECOND) + 1
        while self.microsecond(found) > time:
            found -= 1
        while self.microsecond(found + 1) <= time:
            found += 1
        return found

    def ticks_until(self, moment: object) -> int | None:
        """How many ticks are over at a moment that is the end of one; None where it is not.

        >>> TickCalendar("2026-01-01", "1mo").ticks_until("2026-03-01")
        2
        """
        end = as_utc(moment, zone_of(self.time_zone))
        count = self.tick_at(end) - 1
        return count if count >= 1 and self.start(count + 1) == end else None

    def ticks(self, times: pl.Series) -> pl.Series:
        """The tick of each time, given in microseconds; none may be null."""
        assert isinstance(self.origin, datetime)  # noqa: S101
        if self._fixed:
            return (times - microseconds_of(self.origin)) // self._fixed + 1
        if not len(times):
            return times
        values = times.to_numpy()
        first, last = self.tick_at(int(values.min())), self.tick_at(int(values.max()))
        edges = [self.microsecond(tick) for tick in range(first, last + 1)]
        return pl.Series(times.name, np.searchsorted(edges, values, side="right") + (first - 1), dtype=pl.Int64)

    def faults(self, name: str, times: pl.Series, last_tick: int, asked: str = ASKED_OF_TIMES) -> pl.Series:
        """For each time in the column `name` why it lies in none of the ticks up to the last; null where it does."""
        assert isinstance(self.origin, datetime)  # noqa: S101
        end = min(self.microsecond(last_tick + 1), LARGEST_TIME)
        time = pl.col("time")
        fault = (
            pl.when(time.is_null())
            .then(pl.lit(f"column {name!r} must be {asked}"))
            .when(time < microseconds_of(self.origin))
            .then(pl.lit(f"column {name!r} must not be before the origin {self.origin.isoformat()}"))
            .when(time >= end)
            .then(pl.lit(f"column {name!r} must be before the end of tick {last_tick}, the last one"))
        )
        return pl.DataFrame({"time": times}).select(fault.alias("fault")).to_series()

    @property
    def has_even_ticks(self) -> bool:
        """Whether every tick lasts as long as any other, whatever the calendar says."""
        return bool(self._fixed)

    @property
    def _fixed(self) -> int:
        """How many microseconds every tick has; 0 where that depends on the calendar."""
        length = length_of(self.tick)
        if isinstance(length, str) or (length == self.tick and self.time_zone != "UTC" and not length % _DAY):
            return 0
        return length // MICROSECOND


_MONDAY = date(1970, 1, 5).toordinal()
_FAR = 12 * 366
"""The longest of so many periods is looked for where there is no end: what the calendar does comes again by then."""

_LEAP_YEARS = timedelta(days=5 * 366)
"""Summer time and a leap day lie in so long a time."""


@identified("calendar-periods")
@dataclass(frozen=True, slots=True)
class CalendarPeriods:
    """Periods of days, weeks or months that begin at a time of day: of 23 and 25 hours where the clocks change.

    A tick belongs to the period that it begins in. Should a later calendar have a longer period than was known when a
    stream was planned, it is cut into two.

    >>> calendar = TickCalendar("2026-03-28T14:00", "1h", "Europe/Berlin")
    >>> periods = CalendarPeriods.of(calendar, "1d", "06:00", horizon=1000)
    >>> periods.span(1), periods.span(17), periods.longest
    ((-7, 15), (16, 39), 24)
    """

    calendar: TickCalendar
    within: timedelta | str
    """Whole days, or a number of months."""

    starts: str
    """The time of day, by the clocks of the calendar's zone."""

    longest: int
    """How many ticks the longest one has."""

    @classmethod
    def of(
        cls, calendar: TickCalendar, within: timedelta | str | int, starts: str, horizon: int | None
    ) -> "CalendarPeriods":
        """With the longest period of the horizon."""
        length = length_of(within)
        whole = cls(calendar, length, starts, LARGEST_TIME)
        longest, last = 0, 0
        for _ in range(_FAR):
            first, last = whole.span(last + 1)
            if calendar.microsecond(first) < microseconds_of(_FIRST_DATE) or calendar.start(last + 1) == _LAST_DATE:
                # No calendar reaches further.
                break
            longest = max(longest, last - first + 1)
            if horizon is not None and last >= horizon:
                break
        if not longest:
            raise ParameterError(
                f"within must be a period that begins and ends between the years 2 and 9999, got {length_text(length)}"
            )
        return cls(calendar, length, starts, longest)

    def span(self, tick: int) -> tuple[int, int]:
        """The first and the last tick of the period that a tick lies in; the first may lie before tick 1."""
        time, place = min(self.calendar.microsecond(tick), LARGEST_TIME - 1), self._place(tick)
        # Where clocks are changed at the very time of day, the next one may not be there yet, or this one be over.
        while self._boundary(place) > time:
            place -= 1
        while self._boundary(place + 1) <= time:
            place += 1
        first, after = (self.calendar.tick_at(self._boundary(each) - 1) + 1 for each in (place, place + 1))
        first += (tick - first) // self.longest * self.longest
        # Beyond all dates nothing ends.
        return first, max(tick, min(after - 1, first + self.longest - 1))

    @property
    def begin_with_ticks(self) -> bool:
        """Whether each begins when a tick does. If not, it begins with the next tick, and so depends on the ticks."""
        place, last = self._place(1), self.calendar.microsecond(1) + _LEAP_YEARS // MICROSECOND
        while True:
            place += 1
            begin = self._boundary(place)
            if self.calendar.microsecond(self.calendar.tick_at(begin)) != begin:
                return False
            if begin > last:
                return True

    @property
    def _of_day(self) -> timedelta:
        hours, minutes = self.starts.split(":")
        return timedelta(hours=int(hours), minutes=int(minutes))

    def _place(self, tick: int) -> int:
        """About which period it is, counted from a Monday, or from the year 0."""
        # A day before the last of all dates, which not every zone has.
        start = min(self.calendar.start(tick), _LAST_DATE - _DAY)
        local = start.astimezone(_known_zone(self.calendar.time_zone)).replace(tzinfo=None)
        local -= self._of_day
        if isinstance(self.within, str):
            return (12 * local.year + local.month - 1) // months_in(self.within)
        return (local.toordinal() - _MONDAY) // self.within.days

    def _boundary(self, place: int) -> int:
        """When a period begins, in microseconds since 1970; it may lie beyond all dates."""
        try:
            if isinstance(self.within, str):
                year, month = divmod(place * months_in(self.within), 12)
                day = datetime(year, month + 1, 1)
            else:
                day = datetime.fromordinal(_MONDAY + place * self.within.days)
        except (ValueError, OverflowError):
            return LARGEST_TIME if place > 0 else -LARGEST_TIME
        return microseconds_of((day + self._of_day).replace(tzinfo=_known_zone(self.calendar.time_zone)))


def calendar_of(plan: Mapping[str, Any]) -> TickCalendar | None:
    """When the ticks of a plan, told as plain data, begin and end; None where it has no origin."""
    return TickCalendar(plan["origin"], plan["tick"], plan["time_zone"]) if "origin" in plan else None


@lru_cache(64)
def _known_zone(name: str) -> tzinfo:
    return zone_of(name)


@lru_cache(4096)
def _begin(origin: datetime, tick: timedelta | str, time_zone: str, count: int) -> int:
    """When the tick begins that is so many lengths of the calendar after the origin."""
    if not count:
        return microseconds_of(origin)
    zone = zone_of(time_zone)
    local = origin.astimezone(zone).replace(tzinfo=None)
    try:
        if isinstance(tick, timedelta):
            moved = local + count * tick
        else:
            year, month = divmod(12 * local.year + local.month - 1 + count * months_in(tick), 12)
            day = min(local.day, monthrange(year, month + 1)[1])
            moved = local.replace(year=year, month=month + 1, day=day)
        # What the clocks show twice is the first of both; what they leap over, as if they had not yet.
        return microseconds_of(moved.replace(tzinfo=zone))
    except (ValueError, OverflowError):
        return LARGEST_TIME if count > 0 else -LARGEST_TIME


def zone_of(name: object) -> tzinfo:
    """The time zone of a name.

    >>> zone_of("UTC")
    datetime.timezone.utc
    """
    if name == "UTC":
        return UTC
    try:
        # Both must know it: dates are Python's, columns of times those of polars.
        pl.Series([0]).cast(pl.Datetime("us", str(name)))
        return ZoneInfo(str(name))
    except (LookupError, ValueError, OSError, pl.exceptions.PolarsError):
        raise ParameterError(f"time_zone must be a name such as 'Europe/Berlin' or 'UTC', got {name!r}") from None


def moment_text(moment: datetime, zone: str | None = None) -> str:
    """A moment by the clocks of a time zone, UTC unless another one is given.

    >>> midnight = datetime.fromisoformat("2026-03-05T00:00:00Z")
    >>> moment_text(midnight), moment_text(midnight, "Europe/Rome")
    ('2026-03-05 00:00:00 UTC', '2026-03-05 01:00:00+01:00')
    """
    there = moment if zone is None else moment.astimezone(zone_of(zone))
    if there.utcoffset() or zone not in (None, "UTC"):
        return there.isoformat(sep=" ", timespec="seconds")
    return f"{there:%Y-%m-%d %H:%M:%S} UTC"


def as_utc(value: object, zone: tzinfo = UTC) -> datetime:
    """A date, a date-time or an ISO 8601 text as a date-time in UTC; without an offset it is one of the zone."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if not isinstance(moment, datetime):
        raise TypeError("neither a date nor a text")
    return (moment.replace(tzinfo=zone) if moment.tzinfo is None else moment).astimezone(UTC)


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def iso(moment: datetime) -> str:
    """A moment in UTC as text.

    >>> iso(datetime(2026, 1, 31, tzinfo=UTC))
    '2026-01-31T00:00:00Z'
    """
    return moment.isoformat().replace("+00:00", "Z")


def json_moment(value: object) -> str:
    """A moment as JSON holds it: what `json.dumps` asks for what it does not know itself."""
    if isinstance(value, datetime):
        return iso(value)
    raise TypeError(f"plain data must be what JSON holds, got a {type(value).__name__}")


def microseconds_of(moment: datetime) -> int:
    """A date-time as microseconds since 1970."""
    return (moment - _EPOCH) // MICROSECOND


EPOCHS = {"epoch_s": (10**6, "seconds"), "epoch_ms": (1000, "milliseconds"), "epoch_us": (1, "microseconds")}
_NUMBER = r"^(?P<sign>-?)(?P<whole>[0-9]{1,19})(?:\.(?P<fraction>[0-9]+))?$"


def asked_of_times(form: str) -> str:
    """What times in a form must be."""
    if form == "iso":
        return ASKED_OF_TIMES
    return f"a number of {EPOCHS[form][1]} since 1970" if form in EPOCHS else f"a date-time in the form {form!r}"


def microseconds(times: pl.Series, form: str = "iso", zone: str = "UTC") -> pl.Series:
    """Times as microseconds since 1970 in UTC, null where they are none; finer parts are cut off.

    Takes texts in a form, numbers since 1970, date-times and dates; without an offset they are times of a zone. Of
    local times that the end of summer time brings twice, the first is meant. Each is read by itself.
    """
    kind = times.dtype
    if kind == pl.String:
        if form in EPOCHS:
            return _since_1970(times, form)
        return _parsed(times, zone) if form == "iso" else _by_pattern(times, form, zone)
    if form in EPOCHS and kind.is_float():
        return microseconds((times * EPOCHS[form][0]).cast(pl.Int64, strict=False), "epoch_us")
    numbers = times.to_physical().cast(pl.Int64, strict=False)
    if form in EPOCHS and kind.is_integer():
        return _times(numbers, EPOCHS[form][0])
    if kind == pl.Date:
        return _local(numbers * (_DAY // MICROSECOND), zone)
    if isinstance(kind, pl.Datetime):
        numbers = numbers // 1000 if kind.time_unit == "ns" else _times(numbers, 1000 if kind.time_unit == "ms" else 1)
        return _local(numbers, zone) if kind.time_zone is None else numbers
    return numbers


def _times(numbers: pl.Series, scale: int) -> pl.Series:
    """Numbers so many times as large; those too large for that become null, not others."""
    fits = numbers.is_between(-(LARGEST_TIME // scale), LARGEST_TIME // scale)
    return numbers.zip_with(fits, pl.Series([None], dtype=pl.Int64)) * scale


def _local(numbers: pl.Series, zone: str) -> pl.Series:
    """From the clock of a zone to UTC; null for times that its clock leaves out."""
    if zone == "UTC":
        return numbers
    # No calendar reaches further.
    fits = numbers.abs() < 10**6 * _DAY // MICROSECOND
    times = numbers.zip_with(fits, pl.Series([None], dtype=pl.Int64)).cast(pl.Datetime("us"))
    return times.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null").to_physical()


def _since_1970(texts: pl.Series, form: str) -> pl.Series:
    scale = EPOCHS[form][0]
    parts = texts.str.extract_groups(_NUMBER).struct.unnest()
    whole = _times(parts["whole"].cast(pl.Int64, strict=False), scale)
    digits = len(str(scale)) - 1
    finer = parts["fraction"].fill_null("").str.slice(0, digits).str.pad_end(digits, "0").replace("", "0")
    return (whole + finer.cast(pl.Int64)) * parts["sign"].replace_strict({"": 1, "-": -1}, return_dtype=pl.Int64)


def _by_pattern(texts: pl.Series, pattern: str, zone: str) -> pl.Series:
    # Fractions of a second are called otherwise here than in Python.
    found = texts.str.to_datetime(pattern.replace(".%f", "%.f"), time_unit="us", strict=False)
    return found.to_physical() if "%z" in pattern else _local(found.to_physical(), zone)


def _parsed(texts: pl.Series, zone: str) -> pl.Series:
    parts = texts.str.extract_groups(_ISO_8601).struct.unnest()
    second = pl.concat_str(
        "day", pl.lit("T"), pl.col("minute").fill_null("00:00"), pl.lit(":"), pl.col("second").fill_null("00")
    )
    fraction = pl.col("fraction").fill_null("").str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64)
    offset = pl.col("hours").fill_null("0").cast(pl.Int64) * 60 + pl.col("minutes").fill_null("0").cast(pl.Int64)
    east = pl.when(pl.col("sign") == "-").then(-offset).otherwise(offset)
    whole = second.str.to_datetime("%Y-%m-%dT%H:%M:%S", time_unit="us", strict=False).to_physical()
    times = parts.select((whole + fraction - east * 60_000_000).alias("time")).to_series()
    return times.zip_with(parts["utc"].is_not_null() | parts["sign"].is_not_null(), _local(times, zone))
