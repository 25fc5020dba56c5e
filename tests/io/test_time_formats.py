"""Times as people write them: numbers since 1970, day before month, and the clock of a zone."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.io.reading import read_rows, write_count

from pianissimo.budget import Budget
from pianissimo.errors import InputError, SourceError, SpecError
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.io.sources.rows.text_rows import Written
from pianissimo.io.sources.source_records import Records, RowJudge
from pianissimo.queries import Count
from pianissimo.stream import Stream, calendar
from pianissimo.stream.calendar import microseconds
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import StreamSpec, load_spec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ORIGIN = datetime(2026, 1, 5, tzinfo=UTC)
MOMENT = datetime(2026, 1, 5, 2, 30, 15, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def exact(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND


def spec_of(path: Path, form: str, **more: object) -> StreamSpec:
    return StreamSpec(
        stream=Stream("s", budget=Budget(1, 1e-9), horizon=24, queries=[Count("n")], tick="1h", origin=ORIGIN),
        source=FileSource(path=path, time="time", time_format=form, **more),  # type: ignore[arg-type]
    )


@given(st.integers(-(10**15), 10**16))
def test_numbers_since_1970_are_exact_in_every_unit(number: int) -> None:
    whole, rest = divmod(number, 10**6)
    assert microseconds(pl.Series([str(number)]), "epoch_us").to_list() == [number]
    assert microseconds(pl.Series([number]), "epoch_us").to_list() == [number]
    assert microseconds(pl.Series([str(whole)]), "epoch_s").to_list() == [whole * 10**6]
    assert microseconds(pl.Series([whole]), "epoch_s").to_list() == [whole * 10**6]
    assert microseconds(pl.Series([f"{number // 1000}"]), "epoch_ms").to_list() == [number // 1000 * 1000]
    if number >= 0:
        assert microseconds(pl.Series([f"{whole}.{rest:06}"]), "epoch_s").to_list() == [number]
    else:
        assert microseconds(pl.Series([f"-{-number // 10**6}.{-number % 10**6:06}"]), "epoch_s").to_list() == [number]


@pytest.mark.parametrize("form", ["epoch_s", "epoch_ms", "epoch_us"])
@pytest.mark.parametrize("text", ["", " ", "12 ", "+12", "1e9", "nan", "12.", ".5", "9" * 20, "2026-01-05", "١٢"])
def test_what_is_no_number_since_1970_is_none(form: str, text: str) -> None:
    assert microseconds(pl.Series(["12", text, None]), form).is_null().to_list() == [False, True, True]


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("%d/%m/%Y %H:%M:%S", "05/01/2026 02:30:15"),
        ("%m/%d/%Y %I:%M:%S %p", "01/05/2026 02:30:15 AM"),
        ("%d.%m.%Y %H:%M:%S.%f", "05.01.2026 02:30:15.000000"),
        ("%Y-%m-%d %H:%M:%S %z", "2026-01-05 03:30:15 +0100"),
        ("epoch_s", "1767580215"),
        ("epoch_ms", "1767580215000"),
        ("iso", "2026-01-05T03:30:15+01:00"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_row_is_in_its_tick_in_every_format_of_files(tmp_path: Path, form: str, text: str, kind: str) -> None:
    path = tmp_path / f"events.{kind}"
    if kind == "csv":
        path.write_text(f"time\n{text}\nno time\n")
    elif kind == "jsonl":
        value = int(text) if form.startswith("epoch") else text
        path.write_text(f"{json.dumps({'time': value})}\n{json.dumps({'time': 'no time'})}\n")
    else:
        pl.DataFrame({"time": [text, "no time"]}).write_parquet(path)
    rows = read_rows(spec_of(path, form))
    assert rows.ticks.tolist() == [3]
    (reason,) = rows.refused["reason"].to_list()
    asked = Written(time_format=form).asked_of_times
    assert reason == f"column 'time' must be {asked}"


def test_numbers_of_parquet_are_times_where_the_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    for values in ([1767580215, None, 2**62], [1767580215.0, None, float("nan")]):
        pl.DataFrame({"time": values}).write_parquet(path)
        assert read_rows(spec_of(path, "epoch_s")).ticks.tolist() == [3]
        with pytest.raises(InputError, match=r"numbers since 1970, give source\.time_format"):
            read_rows(spec_of(path, "iso"))


def test_live_records_have_the_same_forms() -> None:
    judge = RowJudge([Count("n")], time="time", written=Written(time_format="epoch_ms"))
    texts = pl.Series(['{"time": 1767580215000}', '{"time": "1767580215000"}', '{"time": "2026-01-05"}'])
    judged = judge.read(Records(place="p", rank=(), numbers=pl.Series([1, 2, 3]), texts=texts))
    assert judged.times.to_list() == [exact(MOMENT)] * 2
    assert judged.refused["reason"].to_list() == ["column 'time' must be a number of milliseconds since 1970"]


@given(st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)), st.sampled_from(["Europe/Berlin", "America/New_York"]))
def test_times_without_an_offset_are_those_of_the_zone(local: datetime, zone: str) -> None:
    text = local.isoformat()
    aware = local.replace(tzinfo=ZoneInfo(zone))
    exists = aware.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local
    wanted = [exact(aware) if exists else None]
    assert microseconds(pl.Series([text]), "iso", zone).to_list() == wanted
    assert microseconds(pl.Series([local], dtype=pl.Datetime("us")), "iso", zone).to_list() == wanted
    pattern = "%Y-%m-%d %H:%M:%S.%f"
    assert microseconds(pl.Series([local.strftime(pattern)]), pattern, zone).to_list() == wanted
    # With an offset the zone has no say.
    assert microseconds(pl.Series([f"{text}Z"]), "iso", zone).to_list() == [exact(local.replace(tzinfo=UTC))]


def test_a_form_that_the_first_row_tells_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken on purpose: a row would move the ticks of all others."""

    def guessed(texts: pl.Series, pattern: str, zone: str) -> pl.Series:
        months_first = len(texts) and texts[0][:2] != "05"
        form = "%m/%d/%Y %H:%M" if months_first else pattern
        return texts.str.to_datetime(form, strict=False, time_unit="us").to_physical()

    monkeypatch.setattr(calendar, "_by_pattern", guessed)
    with pytest.raises(AssertionError):
        test_what_a_time_is_depends_on_no_other_row()


def test_the_zone_of_the_stream_reaches_the_rows_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("time\n05/01/2026 02:30\n")
    file = write_count(tmp_path, 'time_format = "%d/%m/%Y %H:%M"')
    zoned = 'origin = 2026-01-05T00:00:00Z\ntime_zone = "Europe/Berlin"\n'
    file.write_text(file.read_text().replace("origin = 2026-01-05\n", zoned))
    assert read_rows(load_spec(file)).ticks.tolist() == [2]


def test_what_a_time_is_depends_on_no_other_row() -> None:
    texts = ["05/01/2026 02:30", "5/1/2026 2:30", "2026-01-05T02:30", "99/99/9999 02:30", "", "05/01/2026 02:30 +0100"]
    for form in ("%d/%m/%Y %H:%M", "%d/%m/%Y %H:%M %z", "iso", "epoch_s"):
        alone = [microseconds(pl.Series([text]), form, "Europe/Berlin")[0] for text in texts]
        assert microseconds(pl.Series(texts), form, "Europe/Berlin").to_list() == alone
        assert microseconds(pl.Series(texts[::-1]), form, "Europe/Berlin").to_list() == alone[::-1]


def test_a_form_that_was_changed_between_two_starts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("time\n02/01/2026 00:00\n")
    first = FileTicks(spec_of(path, "%d/%m/%Y %H:%M", max_refused=1.0))
    first.seek(None, 0)
    FileTicks(spec_of(path, "%d/%m/%Y %H:%M")).seek(first.position, 1)
    with pytest.raises(SourceError, match=r"source\.time_format must be the one"):
        FileTicks(spec_of(path, "%m/%d/%Y %H:%M")).seek(first.position, 1)


@pytest.mark.parametrize(
    "pattern",
    ["%d/%m", "%H:%M", "day", "%", "%Q", "%d/%m/%Y %Z", "%d/%m/%Y %H%M%S%f", "%s", "%d/%m/%Y %d", "epoch", 3, ""],
)
def test_patterns_that_tell_no_day_are_refused(tmp_path: Path, pattern: object) -> None:
    file = write_count(tmp_path, f"time_format = {json.dumps(pattern)}")
    with pytest.raises(SpecError, match=r"source\.time_format must be"):
        load_spec(file)


def test_a_file_says_how_times_are_written(tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("time\n05/01/2026 02:30\n")
    file = write_count(tmp_path, 'time_format = "%d/%m/%Y %H:%M"')
    assert read_rows(load_spec(file)).ticks.tolist() == [3]
