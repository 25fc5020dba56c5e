"""Which tick a time belongs to: by the public calendar, and by nothing else."""

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pianissimo import Budget, Count, Stream
from pianissimo.errors import ParameterError
from pianissimo.io.clock import WallClock
from pianissimo.stream.calendar import CalendarPeriods, TickCalendar, microseconds, microseconds_of

HOUR = timedelta(hours=1)
CALENDARS = [
    TickCalendar("2026-01-31T06:30", "1d", "Europe/Berlin"),
    TickCalendar("2026-03-29T02:30", "1d", "Europe/Berlin"),  # a time that the clocks leap over
    TickCalendar("2011-12-20", "1d", "Pacific/Apia"),  # which had no 30th of December
    TickCalendar("2026-01-01", "1w", "America/New_York"),
    TickCalendar("2026-01-31", "1mo", "America/New_York"),
    TickCalendar("2024-02-29", "1y", "Asia/Tokyo"),
    TickCalendar("2026-01-01", "1mo"),
    TickCalendar("2026-01-01", "90m", "Europe/Berlin"),
    TickCalendar("2026-01-01", "24h", "Europe/Berlin"),
    TickCalendar("2026-01-01T00:00:00.000001Z", timedelta(microseconds=7)),
]


def lengths(calendar: TickCalendar, *ticks: int) -> list[timedelta]:
    return [end - start for start, end in (calendar.span(tick, tick) for tick in ticks)]


def test_days_have_23_and_25_hours_where_clocks_change() -> None:
    berlin = TickCalendar("2026-01-01", "1d", "Europe/Berlin")
    # The 29th of March is day 88 of 2026, the 25th of October day 298.
    assert lengths(berlin, 87, 88, 89, 298, 299) == [24 * HOUR, 23 * HOUR, 24 * HOUR, 25 * HOUR, 24 * HOUR]
    assert berlin.start(1) == datetime(2025, 12, 31, 23, tzinfo=UTC)
    assert berlin.start(366) == datetime(2026, 12, 31, 23, tzinfo=UTC)
    assert lengths(TickCalendar("2026-01-01", "1d"), 87, 88, 298) == [24 * HOUR] * 3
    assert lengths(TickCalendar("2026-01-01", "1h", "Europe/Berlin"), 2090, 2091) == [HOUR, HOUR]


def test_24_hours_are_no_day_of_a_time_zone() -> None:
    for text in ("24h", "1440m", "86400s"):
        assert lengths(TickCalendar("2026-01-01", text, "Europe/Berlin"), 87, 88, 298) == [24 * HOUR] * 3
    parameters: dict[str, Any] = {"budget": Budget(1, 1e-9), "horizon": "48h", "queries": [Count("n", every="2d")]}
    for zone, tick in (("Europe/Berlin", "24h"), ("UTC", timedelta(days=1))):
        stream = Stream("s", **parameters, tick="24h", time_zone=zone, origin="2026-03-28")
        assert (stream.tick, stream.horizon, stream.queries[0].every) == (tick, 2, 2)
        assert Stream.from_plain(stream.to_plain()) == stream
        assert stream.calendar is not None
        assert lengths(stream.calendar, 1, 2) == [24 * HOUR] * 2
        told = stream.plan().to_dict()
        assert TickCalendar(told["origin"], told["tick"], told["time_zone"]) == stream.calendar
    days = Stream("s", **parameters, tick="1d", time_zone="Europe/Berlin")
    assert days.tick == timedelta(days=1)
    assert days.differences(Stream("s", **parameters, tick="24h", time_zone="Europe/Berlin")) == ["tick"]


def test_months_and_years_are_those_of_the_calendar() -> None:
    months = TickCalendar("2026-01-31", "1mo")
    assert [months.start(tick).date().isoformat() for tick in (1, 2, 3, 4, 26)] == [
        *("2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2028-02-29"),
    ]
    years = TickCalendar("2024-02-29", "1y")
    assert [years.start(tick).date().isoformat() for tick in (2, 5)] == ["2025-02-28", "2028-02-29"]
    assert TickCalendar("2026-01-01", "1y") == TickCalendar("2026-01-01", "12mo")


def test_a_day_that_did_not_exist_is_a_tick_without_length() -> None:
    apia = TickCalendar("2011-12-29", "1d", "Pacific/Apia")
    assert lengths(apia, 1, 2, 3) == [24 * HOUR, timedelta(0), 24 * HOUR]
    assert apia.tick_at(apia.start(2)) == 3


@settings(deadline=None)
@given(st.sampled_from(CALENDARS), st.lists(st.integers(-(10**7), 10**8), max_size=20))
def test_a_tick_depends_on_its_own_time_and_lies_between_its_ends(calendar: TickCalendar, seconds: list[int]) -> None:
    start = microseconds_of(calendar.start(1))
    unit = 1 if calendar.tick == timedelta(microseconds=7) else 1_000_000
    times = [start + each * unit for each in seconds]
    found = calendar.ticks(pl.Series(times, dtype=pl.Int64)).to_list()
    assert found == [calendar.ticks(pl.Series([time], dtype=pl.Int64))[0] for time in times]
    clock = WallClock(calendar=calendar)
    for time, tick in zip(times, found, strict=True):
        assert calendar.microsecond(tick) <= time < calendar.microsecond(tick + 1)
        assert calendar.tick_at(time) == tick
        assert clock.ended(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time)) == max(0, tick - 1)


def test_a_calendar_of_fixed_days_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests are for: days that clocks do not change would put events of a morning into the day before."""
    calendar = CALENDARS[0]
    morning = pl.Series(["2026-07-01T06:45:00+02:00"])
    right = calendar.ticks(microseconds(morning))[0]
    monkeypatch.setattr(TickCalendar, "_fixed", 24 * HOUR // timedelta(microseconds=1))
    assert calendar.ticks(microseconds(morning))[0] == right - 1


def test_times_without_an_offset_are_of_the_zone() -> None:
    def read(*times: Any, zone: str = "Europe/Berlin") -> list[int | None]:
        return microseconds(pl.Series(times), zone=zone).to_list()

    assert (
        read("2026-07-01T12:00:00", "2026-07-01T10:00:00Z", "2026-07-01T12:00:00+02:00")
        == [microseconds_of(datetime(2026, 7, 1, 10, tzinfo=UTC))] * 3
    )
    naive, aware = datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 11, tzinfo=UTC)
    assert read(naive) == read(aware) == read("2026-01-01 12:00")
    assert read(naive.date()) == read("2026-01-01") == read("2025-12-31T23:00Z")
    # Twice on the clocks: the first of both. Never on the clocks: no time.
    assert read("2026-10-25T02:30:00", "2026-03-29T02:30:00") == [*read("2026-10-25T00:30:00Z"), None]
    assert read(naive, zone="UTC") == read("2026-01-01T12:00Z")


def test_an_origin_is_of_the_zone_too() -> None:
    budget, queries = Budget(1, 1e-9), [Count("n")]
    berlin = Stream(
        "s", budget=budget, horizon=3, queries=queries, tick="1d", origin="2026-07-01", time_zone="Europe/Berlin"
    )
    assert berlin.origin == datetime(2026, 6, 30, 22, tzinfo=UTC)
    assert Stream.from_plain(berlin.to_plain()) == berlin
    told = berlin.plan().to_dict()
    assert (told["tick"], told["origin"], told["time_zone"]) == ("1d", "2026-06-30T22:00:00Z", "Europe/Berlin")
    assert "each of 1d, from 2026-07-01 00:00:00+02:00 on, by the clocks of Europe/Berlin" in str(berlin.plan())
    assert berlin.plan().from_plain(berlin.plan().to_plain()).calendar == berlin.calendar


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tick": "1h", "origin": "monday"}, "origin must be a date-time such as 2026-01-31T12:00:00Z, got 'monday'"),
        ({"tick": "1h", "origin": 5}, "origin must be a date-time such as 2026-01-31T12:00:00Z, got 5"),
        ({"origin": "2026-01-01"}, 'tick must be given with origin, such as "1h", got None'),
        ({"tick": "1mo", "time_zone": "Mars"}, "time_zone must be a name such as 'Europe/Berlin' or 'UTC', got 'Mars'"),
        (
            {"tick": "1h", "time_zone": "+0100"},
            "time_zone must be a name such as 'Europe/Berlin' or 'UTC', got '+0100'",
        ),
        ({"tick": "1h", "time_zone": 1000}, "time_zone must be a name such as 'Europe/Berlin' or 'UTC', got 1000"),
        ({"tick": "1h", "time_zone": None}, "time_zone must be a name such as 'Europe/Berlin' or 'UTC', got None"),
        ({"tick": "0mo"}, "tick must be a duration such as '30s', '1m', '1h' or '1d', got '0mo'"),
    ],
)
def test_what_is_no_calendar_is_refused(fields: Any, message: str) -> None:
    with pytest.raises(ParameterError) as refused:
        Stream("s", budget=Budget(1, 1e-9), horizon=3, queries=[Count("n")], **fields)
    assert str(refused.value) == message


def test_beyond_all_dates_a_tick_begins_at_the_last_one() -> None:
    for tick in ("1mo", "1d"):
        calendar = TickCalendar("9899-12-01", tick, "Europe/Berlin")
        assert calendar.start(10**6).year == 9999
        assert calendar.microsecond(10**6) > microseconds_of(datetime.max.replace(tzinfo=UTC))


@pytest.mark.parametrize("origin", ["0001-12-31T23:59:59Z", "9900-01-01T00:00:01Z", "9999-12-31T23:59:59Z"])
def test_an_origin_near_the_end_of_all_dates_is_refused(origin: str) -> None:
    with pytest.raises(ParameterError, match=r"^origin must be from the year 2 to 9900, got"):
        TickCalendar(origin, "1h")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati"])
def test_periods_end_where_the_calendar_does(zone: str) -> None:
    hours = TickCalendar("2026-01-01", "1h", zone)
    for within in ("999999999d", "9999y"):
        with pytest.raises(ParameterError, match=r"^within must be a period that begins and ends between the years"):
            CalendarPeriods.of(hours, within, "06:00", horizon=24)
    # So many periods as are looked at do not fit, nor does the horizon.
    assert CalendarPeriods.of(hours, "5y", "00:00", horizon=None).longest == (5 * 365 + 2) * 24
    weeks = TickCalendar("2026-01-01", "7d", zone)
    periods = CalendarPeriods.of(weeks, "5y", "06:00", horizon=2**21)
    assert periods.longest == 261
    for tick in (1, 10**6, 2**62):
        first, last = periods.span(tick)
        assert first <= tick <= last < first + 261
