"""A table of past events, cut into public ticks."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import polars as pl
import pytest

import pianissimo as pp
from pianissimo.errors import InputError, ParameterError
from pianissimo.stream import Stream
from pianissimo.stream.live import Live

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
COLUMNS = ["query", "tick", "start", "end", "since", "key", "estimate", "low", "high"]
Replay = Callable[[Stream, pl.DataFrame], pl.DataFrame]


def stream(**fields: Any) -> Stream:
    base: dict[str, Any] = {"horizon": 6, "tick": "1h", "origin": ORIGIN, "budget": pp.Budget(9, 1e-6)}
    queries = [pp.Count("n"), pp.Histogram("drugs", key="drug", domain=["a", "b"], every=2)]
    return Stream("s", **(base | {"queries": queries} | fields))


def events(*hours: float) -> pl.DataFrame:
    return pl.DataFrame(
        {"time": [ORIGIN + hour * HOUR for hour in hours], "drug": ["a"] * len(hours)},
        schema={"time": pl.Datetime("us", "UTC"), "drug": pl.String},
    )


def test_all_ticks_are_in_one_table_empty_ones_too() -> None:
    table = stream().replay(events(*[4.5] * 700, *[0.5] * 300))
    assert table.columns == COLUMNS
    counts = table.filter(pl.col("query") == "n")
    assert counts["tick"].to_list() == [1, 2, 3, 4, 5, 6]
    assert counts["start"].to_list() == [ORIGIN + tick * HOUR for tick in range(6)]
    assert counts["end"].to_list() == [ORIGIN + tick * HOUR for tick in range(1, 7)]
    assert (counts["estimate"] - pl.Series([300] * 4 + [1000] * 2)).abs().max() < 30  # type: ignore[operator]
    drugs = table.filter(pl.col("query") == "drugs")
    assert drugs["tick"].to_list() == [2, 2, 4, 4, 6, 6]
    assert table["tick"].is_sorted()


def check_ticks_are_public(replay: Replay) -> None:
    """The promise: which ticks are released, and when, does not depend on the events."""
    shown = {
        tuple(replay(stream(), frame).filter(pl.col("query") == "n").select("tick", "start", "end").rows())
        for frame in (events(), events(2.5), events(0, 0.1, 5.9), events(*range(6)))
    }
    assert len(shown) == 1


def test_which_ticks_are_released_does_not_depend_on_the_events() -> None:
    check_ticks_are_public(lambda asked, frame: asked.replay(frame))


def test_what_everybody_writes_by_hand_is_caught() -> None:
    def grouped(asked: Stream, frame: pl.DataFrame) -> pl.DataFrame:
        live = asked.start()
        hours = frame.drop("time").with_columns(hour=frame["time"].dt.truncate("1h")).sort("hour")
        tables = [live.tick(part)["n"] for part in hours.partition_by("hour")]
        numbered = [table.with_columns(tick=pl.lit(tick), query=pl.lit("n")) for tick, table in enumerate(tables, 1)]
        return pl.concat([asked.replay(events()).clear(), *numbered], how="diagonal_relaxed")

    with pytest.raises(AssertionError):
        check_ticks_are_public(grouped)


@pytest.mark.parametrize(
    "frame",
    [
        [{"time": ORIGIN + HOUR, "drug": "a"}, {"time": "2026-01-01T03:30:00Z", "drug": "b"}],
        {"time": ["2026-01-01T01:00:00Z", "2026-01-01T04:30:00+01:00"], "drug": ["a", "b"]},
        pd.DataFrame({"time": pd.to_datetime(["2026-01-01T01:00Z", "2026-01-01T03:30Z"]), "drug": ["a", "b"]}),
        pl.LazyFrame({"time": ["2026-01-01T01:00:00", "2026-01-01 03:30"], "drug": ["a", "b"]}),
    ],
)
def test_tables_of_every_kind_are_replayed(frame: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    tick = Live.tick

    def counting(live: Live, batch: Any, **options: Any) -> Any:
        counted.append(batch.height)
        return tick(live, batch, **options)

    monkeypatch.setattr(Live, "tick", counting)
    assert stream().replay(frame, until=4).height == 4 + 2 * 2
    assert counted == [0, 1, 0, 1]


def test_rows_outside_the_ticks_are_refused_or_dropped() -> None:
    before, after, none = events(-0.5), events(6), pl.DataFrame({"time": [None], "drug": ["a"]}, events().schema)
    for frame, reason in (
        (before, "column 'time' must not be before the origin 2026-01-01T00:00:00"),
        (after, "column 'time' must be before the end of tick 6, the last one"),
        (none, "column 'time' must be a date-time"),
    ):
        with pytest.raises(InputError, match=reason):
            stream().replay(frame)
        assert stream().replay(pl.concat([frame, events(1)]), drop_bad_rows=True).height == 6 + 3 * 2
    with pytest.raises(InputError, match="columns 'when' must be in the batch, got 'time', 'drug'"):
        stream().replay(events(1), time="when")
    with pytest.raises(InputError, match="must be a date-time such as 2026-01-31T12:00:00Z, got a column of Int64"):
        stream().replay(pl.DataFrame({"time": [1], "drug": ["a"]}))


def test_the_origin_and_the_end_are_given_once() -> None:
    assert stream(origin=None).replay(events(1), origin="2026-01-01").height == 12
    assert stream(horizon=None).replay(events(1), until="2026-01-01T03:00")["tick"].max() == 3
    assert stream().replay(events(1), origin=ORIGIN, until=2).height == 4
    for fields, given, message in [
        ({}, {"origin": "2026-02-01"}, "origin must be the one of the stream"),
        ({"origin": None}, {}, "origin and tick must be given to cut the ticks"),
        ({"origin": None, "tick": None}, {"origin": "2026-02-01"}, "tick must be given with origin"),
        ({"horizon": None}, {}, "until must be given where the horizon is None"),
        ({}, {"until": 7}, "until must be a number of ticks within the horizon of 6"),
        ({}, {"until": 0}, "until must be a number of ticks"),
        ({}, {"until": "2026-01-01T03:30"}, "until must be a number of ticks .* or when one of them ends"),
    ]:
        asked: Any = given
        with pytest.raises(ParameterError, match=message):
            stream(**fields).replay(events(1), **asked)


def test_calendar_ticks_and_users_are_replayed() -> None:
    queries = [pp.Count("n"), pp.Quantiles("ages", value="age", range=(0, 100))]
    asked = stream(
        queries=queries,
        tick="1mo",
        horizon=12,
        time_zone="America/New_York",
        origin="2026-01-01",
        unit=pp.user("who", max_events_per_user=5),
    )
    frame = [{"when": datetime(2026, 12, 31, 23, 59), "who": f"u{each}", "age": each % 90} for each in range(100)]
    table = asked.replay(frame, time="when", progress=True)
    assert table["end"].max() == datetime(2027, 1, 1, 5, tzinfo=UTC)
    assert table.filter(pl.col("query") == "n").height == 12


def opened(asked: Stream, folder: Any) -> Any:
    return asked.open(folder / "state")


@pytest.mark.parametrize("begin", [lambda asked, _: asked.start(), opened])
def test_a_batch_that_skips_ticks_is_refused(begin: Any, tmp_path: Any) -> None:
    asked = stream(queries=[pp.Count("n")])
    with begin(asked, tmp_path) as live:
        live.tick(events(0.5))
        with pytest.raises(InputError, match=r"of tick 2, which is due, .* ticks 2 to 4 would be skipped.*replay"):
            live.tick(events(4.5))
        with pytest.raises(InputError, match=r"got later ones: tick 2 would be skipped; call tick\(\) for every tick"):
            live.add([{"time": ORIGIN + 2 * HOUR}])
        live.add(events(0.5))  # late, as from a live source
        with pytest.raises(InputError, match=r"column 'time' must hold times of tick 2, which is due.*got others"):
            live.add(events(0.5), time="time")
        with pytest.raises(InputError, match="columns 'when' must be in the batch, got 'time', 'drug'"):
            live.add(events(1.5), time="when")
        live.add(events(1.5), time="time")
        live.add(events(1.5, 4.5), time="time", drop_bad_rows=True)
        live.add([{"time": "soon"}, {"time": 3}, {"other": None}])  # no times: nobody named the column
        assert (live.tick().tick, live.tick_number) == (2, 2)
        live.tick(None, time="time")
    with begin(stream(queries=[pp.Count("n")], origin=None), tmp_path / "other") as live:
        live.tick(events(4.5))
        with pytest.raises(ParameterError, match="time must be None where the stream has no origin, got 'time'"):
            live.tick(events(4.5), time="time")


@pytest.mark.parametrize("begin", [lambda asked, _: asked.start(), opened])
def test_batches_are_added_within_a_tick(begin: Any, tmp_path: Any) -> None:
    with begin(stream(queries=[pp.Count("n")]), tmp_path) as live:
        for _ in range(3):
            live.add(events(*[0.5] * 100))
        assert abs(live.tick(events(*[0.5] * 100))["n"]["estimate"][0] - 400) < 30


def test_what_replay_refuses_comes_with_the_way_out() -> None:
    asked = stream(queries=[pp.Count("n")])
    for frame in (events(0.5), events(0.5).to_pandas(), events(0.5).to_dicts()):
        with pytest.raises(InputError, match="columns 'zeit' must be in the batch, got 'time', 'drug'"):
            asked.replay(frame, time="zeit")
    for hour in (-1, 7):
        with pytest.raises(
            InputError, match="got others; choose another origin, horizon or until, mend those rows, or"
        ):
            asked.replay(events(0.5, hour))
    with pytest.raises(InputError, match=r"must be a date-time.* got others; give their time_format, mend those rows"):
        asked.replay([{"time": "01/01/2026 02:30"}])


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("%d/%m/%Y %H:%M", ["01/01/2026 02:30", "02/01/2026 00:00"]),
        ("epoch_s", [1767234600, 1767312000]),
        ("epoch_ms", [1767234600000.0, 1767312000000.0]),
        ("epoch_us", ["1767234600000000", "1767312000000000"]),
    ],
)
def test_replay_reads_times_in_the_words_of_a_file(form: str, values: list[Any]) -> None:
    asked = stream(queries=[pp.Count("n")], budget=pp.Budget(9, 1e-6))
    frame = pl.DataFrame({"time": values * 500})
    for batch in (frame, frame.to_pandas(), frame.to_dicts(), {"time": values * 500}):
        table = asked.replay(batch, time_format=form, drop_bad_rows=True)  # the second lies behind the last tick
        assert [round(each, -2) for each in table["estimate"].to_list()] == [0, 0, 500, 500, 500, 500]
    with pytest.raises(InputError, match="must be before the end of tick 6"):
        asked.replay(frame, time_format=form)
    with pytest.raises(InputError, match=r"must be (a number of|a date-time in the form)"):
        asked.replay([{"time": True}], time_format=form)


def test_a_form_of_times_that_is_none_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"^time_format must be one of 'iso', 'epoch_s'"):
        stream().replay(events(0.5), time_format="soon")
    with pytest.raises(InputError, match="must be a number of seconds since 1970, got a column of Boolean"):
        stream(queries=[pp.Count("n")]).replay(pl.DataFrame({"time": [True]}), time_format="epoch_s")


@pytest.mark.parametrize("begin", [lambda asked, _: asked.start(), opened])
def test_times_that_nobody_looks_at_are_told_once(begin: Any, tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    other = events(4.5).rename({"time": "sold_at"})
    with begin(stream(queries=[pp.Count("n")]), tmp_path) as live:
        live.tick(events(0.5))
        live.tick(pl.DataFrame({"drug": ["a"]}))
        live.tick(other.rename({"sold_at": "when"}).with_columns(when=events(2.5)["time"]), time="when")
        assert not caplog.records
        live.tick(other)
        live.tick(other)
    (told,) = caplog.messages
    assert told == "the times of a batch are not looked at; to hold them against its tick give time='sold_at'"


@pytest.mark.parametrize("begin", [lambda asked, _: asked.start(), opened])
def test_a_window_longer_than_the_stream_begins_with_it(begin: Any, tmp_path: Any) -> None:
    with begin(stream(queries=[pp.Count("n")]), tmp_path) as live:
        live.tick(events(0.5, 0.6))
        live.tick(events(1.5))
        day, both = live.window("24h"), live.window(2)
        assert (day.start, day.end) == (both.start, both.end) == (ORIGIN, ORIGIN + 2 * HOUR)
        assert day["n"].equals(both["n"])
