from datetime import UTC, date, datetime, timedelta, timezone

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pianissimo.stream.calendar import TickCalendar, microseconds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31))


def exact(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


@given(st.lists(st.tuples(MOMENTS, OFFSETS), max_size=20))
def test_iso_texts_are_read_as_python_reads_them(moments: list[tuple[datetime, timezone]]) -> None:
    aware = [moment.replace(tzinfo=offset) for moment, offset in moments]
    texts = pl.Series([moment.isoformat() for moment in aware], dtype=pl.String)
    assert microseconds(texts).to_list() == [exact(moment) for moment in aware]
    plain = pl.Series([moment.isoformat(sep=" ") for moment, _ in moments], dtype=pl.String)
    assert microseconds(plain).to_list() == [exact(moment.replace(tzinfo=UTC)) for moment, _ in moments]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2026-01-31", "2026-01-31T00:00:00+00:00"),
        ("2026-01-31T12:30", "2026-01-31T12:30:00+00:00"),
        ("2026-01-31T12:30Z", "2026-01-31T12:30:00+00:00"),
        ("2026-01-31t12:30:15z", "2026-01-31T12:30:15+00:00"),
        ("2026-01-31 12:30:15.5-01", "2026-01-31T13:30:15.500000+00:00"),
        ("2026-01-31T12:30:15,123456789+0530", "2026-01-31T07:00:15.123456+00:00"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00+00:00"),
    ],
)
def test_all_common_forms_are_read(text: str, same: str) -> None:
    assert microseconds(pl.Series([text])).to_list() == [exact(datetime.fromisoformat(same))]


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "today", "1767225600", "2026-1-31", "2026-02-30T00:00:00Z", "2025-02-29", "2026-13-01"),
        *("2026-01-31T24:00:00Z", "2026-01-31T23:59:60Z", "2026-01-31T12:60Z", "2026-01-31T", "12:00:00"),
        *("2026-01-31T12:30+24:00", "2026-01-31T12:30+01:60", "2026-01-31T12:30 UTC", "2026-01-31Z"),
        *("2026-01-31T12:30:15Z\n", " 2026-01-31T12:30:15Z", "٢٠٢٦-01-31", "31.01.2026", "01/31/2026"),
    ],
)
def test_what_is_no_time_is_none(text: str) -> None:
    texts = pl.Series(["2026-01-31T12:30:15Z", text, None])
    assert microseconds(texts).is_null().to_list() == [False, True, True]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_native_times_are_read_in_every_unit_and_zone(unit: str, zone: str | None) -> None:
    moments = [datetime(2026, 1, 31, 12, 0, 0, 1000, tzinfo=UTC), datetime(1960, 1, 1, tzinfo=UTC), None]
    column = pl.Series(moments, dtype=pl.Datetime("us", "UTC")).cast(pl.Datetime(unit, zone))  # type: ignore[arg-type]
    assert microseconds(column).to_list() == [exact(moment) if moment else None for moment in moments]


def test_nanoseconds_are_cut_down_also_before_1970() -> None:
    assert microseconds(pl.Series([1999, -1], dtype=pl.Int64).cast(pl.Datetime("ns"))).to_list() == [1, -1]


def test_times_beyond_all_microseconds_are_none_and_do_not_wrap() -> None:
    column = pl.Series([2**62, -(2**62), 5], dtype=pl.Int64).cast(pl.Datetime("ms"))
    assert microseconds(column).to_list() == [None, None, 5000]


def test_dates_are_midnight() -> None:
    assert microseconds(pl.Series([date(1970, 1, 2)])).to_list() == [86_400_000_000]


@given(
    MOMENTS,
    st.integers(1, 10**7),
    st.integers(1, 10**6),
    st.lists(st.integers(-(10**13), 10**13), max_size=20),
)
def test_a_tick_is_the_floor_and_depends_on_its_own_time_only(
    origin: datetime, tick: int, last_tick: int, offsets: list[int]
) -> None:
    clock = TickCalendar(origin.replace(tzinfo=UTC), timedelta(microseconds=tick))
    start = exact(clock.start(1))
    times = pl.Series([start + offset for offset in offsets], dtype=pl.Int64)
    faults = clock.faults("time", times, last_tick)
    inside = [0 <= offset < tick * last_tick for offset in offsets]
    assert faults.is_null().to_list() == inside
    expected = [offset // tick + 1 for offset, fits in zip(offsets, inside, strict=True) if fits]
    assert clock.ticks(times.filter(faults.is_null())).to_list() == expected
    assert all(1 <= number <= last_tick for number in expected)


def test_the_end_may_lie_beyond_all_times() -> None:
    clock = TickCalendar(datetime(9900, 1, 1, tzinfo=UTC), timedelta(days=999_999))
    assert clock.faults("time", pl.Series([2**63 - 2, -(2**63)]), 10**9).is_null().to_list() == [True, False]


def test_reasons_name_the_column_and_the_public_clock() -> None:
    clock = TickCalendar(datetime(2026, 1, 1, tzinfo=UTC), "1h")
    times = microseconds(pl.Series(["x", "2025-12-31", "2026-01-02", "2026-01-01T23:59:59.999999Z"]))
    assert clock.faults("at", times, 24).to_list() == [
        "column 'at' must be a date-time such as 2026-01-31T12:00:00Z",
        "column 'at' must not be before the origin 2026-01-01T00:00:00+00:00",
        "column 'at' must be before the end of tick 24, the last one",
        None,
    ]
