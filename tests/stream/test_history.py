"""`history=`: how far back windows begin at any tick, what the plan says of it, and checkpoints that are stored."""

import json
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner

import pianissimo as pp
from pianissimo import queries
from pianissimo.cli.main import cli
from pianissimo.counting import Counter, KnownHistogram, UnknownHistogram
from pianissimo.counting.label_sums import LabelSums
from pianissimo.durable.start import Request
from pianissimo.errors import DamageError, ParameterError, SpecError
from pianissimo.io.inspect import verify
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan
from pianissimo.noise.recent import lasting_ticks
from pianissimo.stream.spec import load
from pianissimo.testing import SeededNoise

BUDGET = pp.Budget(1.0, 1e-9)


def made(*asked: Any, horizon: Any = 1440, **fields: Any) -> pp.Stream:
    return pp.Stream("s", budget=BUDGET, horizon=horizon, queries=asked, **fields)


def kept(stream: pp.Stream) -> list[int]:
    """How many releases each mechanism keeps."""
    found = [each.chosen.in_period for each in stream.plan().queries]
    return [getattr(each, "histogram", each).history for each in found]


def test_without_a_word_a_day_of_minutes_is_kept_and_of_very_many_labels_less() -> None:
    labels = [f"{number:06d}" for number in range(400_000)]
    stream = made(pp.Count("n"), pp.Histogram("h", key="k"), pp.Histogram("d", key="k", domain=labels))
    assert kept(stream) == [1440, 1440, 671]


def test_a_query_says_it_or_the_stream_does() -> None:
    asked = [pp.Count("n", history="2h"), pp.Histogram("h", key="k"), pp.Count("p", per=90), pp.Count("z", history=0)]
    assert kept(made(*asked, tick="1m", history="1h")) == [120, 60, 90, 0]
    assert kept(made(pp.Count("n", every=8, history=20), history=3)) == [3]
    assert kept(made(pp.Count("n", per="7d"), tick="1m", horizon="30d")) == [10_080]
    stream = made(pp.Count("n", history=30), pp.Count("m", per=40), unit=pp.user("u", max_events_per_user=2), history=5)
    # One mechanism answers both.
    assert kept(stream) == [40, 40]
    assert kept(made(pp.Count("n"), unit=pp.user("u", within=24), horizon=None, history=6)) == [6]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pp.Count("n", history=-1), "history must be a whole number of at least 0, got -1"),
        (lambda: pp.Count("n", history="soon"), "must be a duration such as"),
        (lambda: made(pp.Count("n", history="90m"), tick="1h"), "history of query 'n' must be a whole number of ticks"),
        (lambda: made(pp.Count("n"), history="1h"), "history must be a number of ticks where the stream has no tick"),
        (lambda: pp.Alarm("a", where="x > 1", history=3), "history must be left out for .*it has no windows"),
        (lambda: pp.HeavyHitters("a", key="x", history=3), "history must be left out for .*it has no windows"),
    ],
)
def test_what_cannot_be_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


def test_what_has_no_windows_passes_over_the_history_of_its_stream() -> None:
    asked = [pp.Alarm("a", where="x > 1"), pp.HeavyHitters("h", key="k"), pp.Count("n")]
    stream = made(*asked, history=7)
    assert [each.history for each in stream.queries] == [None, None, 7]


def test_the_plan_tells_what_it_takes() -> None:
    labels = [f"{number:05d}" for number in range(50_000)]
    plan = made(
        pp.Histogram("d", key="k", domain=labels, history=1440),
        pp.Histogram("h", key="k", history=60),
        pp.Count("z", history=0),
        pp.Count("n"),
        horizon=525_600,
    ).plan()
    told = {each["name"]: each["history"] for each in json.loads(plan.to_json())["queries"]}
    assert told["d"] == {"ticks": 1440, "checkpoints": 68, "bytes_per_series": 1610, "bytes": 80_500_000}
    assert told["h"] == {"ticks": 60, "checkpoints": 101, "bytes_per_series": 272, "bytes": None}
    assert told["z"] == {"ticks": 0, "checkpoints": 0, "bytes_per_series": 0, "bytes": 0}
    words = " ".join(str(plan).split())
    assert "any of the last 1,440 ticks, and at 68 checkpoints before, which takes up to about 76.8 MiB" in words
    assert "any of the last 60 ticks, and at 101 checkpoints before, which takes up to about 272 bytes a label" in words
    assert "There are no windows of the past." in words
    # What nobody asked for and is little is told where all is explained.
    assert words.count("indows begin") == 2
    assert " ".join(plan.explain().split()).count("indows begin") == 2 + 3


def test_a_file_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        """stream = { name = "s", epsilon = 1, delta = 1e-9, tick = "1h", horizon = "30d", history = "2d" }
[queries]
n = { kind = "count" }
h = { kind = "histogram", key = "k", history = "7d" }
z = { kind = "count", history = 0 }
"""
    )
    assert kept(load(file)) == [48, 168, 0]
    for wrong, message in (
        ("history = -1", "at least 0"),
        ('history = "90m"', "whole number of ticks"),
        ("history = 1.5", "duration"),
    ):
        file.write_text(file.read_text().replace('history = "7d"', wrong))
        with pytest.raises(SpecError, match=f"queries.h.history.*{message}"):
            load(file)
        file.write_text(file.read_text().replace(wrong, 'history = "7d"'))


PLANS = [HaarPlan.calibrated(horizon=200, rho=Fraction(1, 2)) for _ in range(2)]
MECHANISMS: dict[str, Any] = {
    "count": lambda history: Counter(plan=PLANS[0], history=history),
    "known": lambda history: KnownHistogram(plan=PLANS[0], domain=Domain(list("abcd")), history=history),
    "unknown": lambda history: UnknownHistogram(plan=PLANS[0], delta=Fraction(1, 3), history=history),
    "sums": lambda history: LabelSums(
        plan=PLANS[0], sum_plan=PLANS[1], low=0, high=9, domain=Domain(list("abcd")), history=history
    ),
}


def batch_of(kind: str, tick: int) -> Any:
    labels = list("abcd" * (1 + tick % 3) if tick % 5 else "b" * 40)
    if kind == "sums":
        return pl.DataFrame({"key": labels, "value": [tick % 10] * len(labels)}).to_struct()
    return labels if kind == "count" else pl.Series(labels)


def answer(run: Any, start: int, end: int) -> Any:
    value = run.between(start, end).value
    return value if isinstance(value, int) else value.to_dict()


@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_short_history_answers_the_same_where_it_answers(kind: str) -> None:
    short, long = (Run(MECHANISMS[kind](history), SeededNoise(3)) for history in (6, 200))
    for tick in range(1, 151):
        for run in (short, long):
            run.update(batch_of(kind, tick))
            run.release()
    ends = sorted(lasting_ticks(6, 150) | {*range(144, 151)})
    assert len(ends) > 30
    for start in ends[:-1:3]:
        for end in ends[ends.index(start) + 1 :: 4]:
            assert answer(short, start, end) == answer(long, start, end)
    with pytest.raises(ParameterError, match="at ticks that are kept"):
        short.between(1, 150)


DURABLE: dict[str, Any] = {
    "events": {"queries": [pp.Histogram("h", key="k", domain=list("abc")), pp.Count("n", every=2, per=4, history=4)]},
    "users": {
        "unit": pp.user("u", max_events_per_user=3),
        "queries": [pp.Count("n"), pp.Histogram("h", key="k", domain=list("abc"))],
    },
    "periods": {"unit": pp.user("u", max_events_per_user=3, within=17), "queries": [pp.Count("n")]},
}


@pytest.mark.parametrize("kind", DURABLE)
def test_a_restart_at_every_tick_changes_no_window(kind: str, tmp_path: Path) -> None:
    """A window of any kept ticks, checkpoints included, is the same after a restart, and what is refused is."""
    stream = pp.Stream("s", budget=BUDGET, horizon=60, history=2, **DURABLE[kind])
    live, before = stream.open(tmp_path / "state", snapshot_every=4), {}
    for tick in range(1, 43):
        live.tick([{"k": "abc"[number % 3], "u": f"{number}"} for number in range(tick % 4)])
        if tick % 3 == 0 or tick > 38:
            before = windows(live, tick)
            live.close()
            live = stream.open(tmp_path / "state", snapshot_every=4)
            assert windows(live, tick) == before
    live.close()
    assert sum(each.startswith("{") for each in before.values()) > 2
    with sqlite3.connect(tmp_path / "state" / "state.db") as connection:
        rows = connection.execute("SELECT tick FROM checkpoints ORDER BY tick").fetchall()
    if kind != "periods":
        assert {tick for (tick,) in rows} >= lasting_ticks(2, 42) - {0}
    assert len(rows) < 40


@pytest.mark.parametrize("kind", DURABLE)
def test_verify_tells_a_checkpoint_that_is_lost(kind: str, tmp_path: Path) -> None:
    """Of each that is needed; the stream goes on, and what does not begin or end there is answered as before."""
    stream = pp.Stream("s", budget=BUDGET, horizon=60, history=2, **DURABLE[kind])
    state = tmp_path / "state"
    with stream.open(state, snapshot_every=4) as live:
        for tick in range(1, 31):
            live.tick([{"k": "abc"[number % 3], "u": f"{number}"} for number in range(tick % 4)])
        before, needed = windows(live, 30), sorted(live._core.lasting)
    assert verify(Request(stream), state).windows_from is None
    place = state / "state.db"
    whole = place.read_bytes()
    for lost in (needed[0], needed[1], needed[len(needed) // 2], needed[-1]):
        with closing(sqlite3.connect(place)) as connection, connection:
            assert connection.execute("DELETE FROM checkpoints WHERE tick = ?", [lost]).rowcount == 1
        if lost == needed[0]:
            # As in a stream that an earlier version began.
            told = CliRunner().invoke(cli, ["verify", str(state)])
            assert told.exit_code == 0
            assert f"there are no checkpoints before tick {needed[1]}, so no window begins there" in told.output
        else:
            with pytest.raises(DamageError, match=f"the checkpoint of tick {lost} must be stored, got none"):
                verify(Request(stream), state)
        with stream.open(state, snapshot_every=4) as live:
            after = windows(live, 30)
        answered = [interval for interval, each in after.items() if each.startswith("{")]
        assert {each: after[each] for each in answered} == {each: before[each] for each in answered}
        assert len(answered) > 1
        for other in state.glob("state.db-*"):
            other.unlink()
        place.write_bytes(whole)
    assert verify(Request(stream), state).windows_from is None


def windows(live: Any, last: int) -> dict[tuple[int, int], str]:
    """What is answered, or said, for many intervals."""
    found = {}
    for start in range(0, last, 3):
        for end in (start + 4, last):
            if start < end <= last:
                try:
                    found[start, end] = live.between(start, end).to_json()
                except ParameterError as refusal:
                    found[start, end] = str(refusal)
    return found


def test_every_kind_has_the_field() -> None:
    for kind in queries.KINDS:
        assert "history" in kind.__dataclass_fields__
