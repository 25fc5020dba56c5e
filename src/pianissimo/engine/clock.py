"""From the time of an event to its tick: integers only, by the event's own time and the public clock."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import polars as pl

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
    """Tick n covers the times from origin + (n - 1) * tick up to, but not including, origin + n * tick.

    >>> clock = Clock(origin=datetime(2026, 1, 1, tzinfo=UTC), tick=timedelta(minutes=15), last_tick=96)
    >>> clock.ticks(microseconds(pl.Series(["2026-01-01T00:14:59.999Z", "2026-01-01T00:15:00Z"]))).to_list()
    [1, 2]
    """

    origin: datetime
    """When tick 1 begins."""

    tick: timedelta
    """How long a tick lasts."""

    last_tick: int
    """The last tick that takes events."""

    def ticks(self, times: pl.Series) -> pl.Series:
        """The tick of each time between the origin and the end."""
        return (times - _since_epoch(self.origin)) // (self.tick // _MICROSECOND) + 1

    def faults(self, name: str, times: pl.Series) -> pl.Series:
        """For each time in the column `name` why it belongs to no tick, or null where it does."""
        origin = _since_epoch(self.origin)
        end = min(origin + self.last_tick * (self.tick // _MICROSECOND), _LARGEST)
        time = pl.col("time")
        fault = (
            pl.when(time.is_null())
            .then(pl.lit(f"column {name!r} must be a date-time such as 2026-01-31T12:00:00Z"))
            .when(time < origin)
            .then(pl.lit(f"column {name!r} must not be before the origin {self.origin.isoformat()}"))
            .when(time >= end)
            .then(pl.lit(f"column {name!r} must be before the end of tick {self.last_tick}, the last one"))
        )
        return pl.DataFrame({"time": times}).select(fault.alias("fault")).to_series()


def microseconds(times: pl.Series) -> pl.Series:
    """Times as microseconds since 1970 in UTC, null where they are none; finer parts are cut off.

    Takes ISO 8601 texts, date-times and dates; without an offset they are taken for UTC. Each is read by
    itself.

    >>> microseconds(pl.Series(["1970-01-01T00:00:01Z", "1970-01-01 01:00:01.5+01:00", "tomorrow"])).to_list()
    [1000000, 1500000, None]
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


def _since_epoch(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
