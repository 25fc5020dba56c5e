"""R15, R18: the clock alone cuts the ticks; jumps of it, outages and the order of events lose and double nothing."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pianissimo import Budget, Count, Histogram, Stream
from pianissimo.durable.durable_stream import open_stream
from pianissimo.errors import DiskFullError, RefusalError, SourceAwayError, SourceError
from pianissimo.io.clock import WallClock
from pianissimo.io.loop import Reports, StreamLoop
from pianissimo.io.sources import live_ticks
from pianissimo.io.sources.live_ticks import LiveTicks, TickRules
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.io.sources.source_records import EndOfTicks, Records, RowJudge
from pianissimo.queries import Query
from pianissimo.stream.calendar import TickCalendar
from pianissimo.testing import NoNoise

ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
QUERIES: list[Query] = [Count("purchases"), Histogram("drugs", key="drug", domain=["a", "b"], nulls="refuse")]


class Hands:
    """A clock to set: sleeping moves it, and what is planned for a moment happens then."""

    def __init__(self) -> None:
        self.moment = ORIGIN
        self.plans: list[tuple[datetime, Callable[[], None]]] = []
        self.slept = 0

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        self.plans.append((ORIGIN + timedelta(seconds=seconds), do))

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        assert self.slept < 200_000, "it waits for ever"
        self.moment += timedelta(seconds=seconds)
        due = [do for moment, do in self.plans if moment <= self.moment]
        self.plans = [(moment, do) for moment, do in self.plans if moment > self.moment]
        for do in due:
            do()

    def clock(self, **options: Any) -> WallClock:
        return WallClock(calendar=TickCalendar(ORIGIN, MINUTE), now=self.now, sleep=self.sleep, **options)


class Shelf:
    """A feed in memory."""

    def __init__(self, piece: int = 3) -> None:
        self.texts: list[str | None] = []
        self.place = 0
        self.piece = piece
        self.away = 0
        self.while_reading: Callable[[], None] | None = None

    def put(self, *labels: str | None, **more: Any) -> None:
        self.texts += [None if label is None else json.dumps({"drug": label, **more}) for label in labels]

    def seek(self, position: Any) -> None:
        self.place = 0 if position is None else position["place"]

    def end(self) -> Any:
        self._check()
        return len(self.texts)

    def read(self, end: Any) -> Iterator[Records]:
        while self.place < end:
            self._check()
            first, self.place = self.place, min(end, self.place + self.piece)
            numbers = pl.int_range(first, self.place, dtype=pl.Int64, eager=True)
            texts = pl.Series(self.texts[first : self.place], dtype=pl.String)
            yield Records(place="shelf", rank=(), numbers=numbers, texts=texts)
            if self.while_reading:
                self.while_reading()

    @property
    def position(self) -> Any:
        return {"place": self.place}

    def close(self) -> None:
        pass

    def _check(self) -> None:
        if self.away:
            self.away -= 1
            raise SourceAwayError("the shelf must be there, got none")


def ticks_of(hands: Hands, shelf: Any, tmp_path: Path, **options: Any) -> LiveTicks:
    time = "time" if options.get("late") == "drop" else None
    leap = {"longest_leap": options.pop("longest_leap")} if "longest_leap" in options else {}
    ticks = LiveTicks(
        shelf,
        RowJudge(QUERIES, time=time),
        hands.clock(**leap),
        refused=RefusedFile(tmp_path / "refused.jsonl"),
        stop=options.pop("stop", None),
        rules=TickRules(**options),
    )
    ticks.seek(None, 0)
    return ticks


def labels(ticks: LiveTicks, tick: int) -> list[str]:
    return [label for batch in ticks.batches(tick) if isinstance(batch, pl.DataFrame) for label in batch["drug"]]


def full_for(times: int, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None] = lambda: None) -> None:
    """The disk of the side file has no room so many times, and each time something happens."""
    left, real = [times], RefusedFile.sync

    def write(self: RefusedFile) -> None:
        if self._left and left[0]:
            left[0] -= 1
            then()
            raise DiskFullError("refused.jsonl must have room on its disk, got none")
        real(self)

    monkeypatch.setattr(RefusedFile, "sync", write)


def test_what_came_when_the_tick_is_over_is_in_it(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    shelf.put("a")
    hands.at(30, lambda: shelf.put("b", "c"))
    hands.at(61, lambda: shelf.put("d"))
    ticks = ticks_of(hands, shelf, tmp_path)
    assert labels(ticks, 1) == ["a", "b", "c"]
    assert timedelta(seconds=60) <= hands.moment - ORIGIN < timedelta(seconds=60.3)
    assert ticks.position == {"place": 3}
    assert labels(ticks, 2) == ["d"]


@pytest.mark.parametrize("count", [0, 1, 50, 2000])
def test_no_number_of_events_ends_a_tick(tmp_path: Path, count: int) -> None:
    hands, shelf = Hands(), Shelf(piece=100)
    shelf.put(*["a"] * count)
    ticks = ticks_of(hands, shelf, tmp_path)
    assert len(labels(ticks, 1)) == count
    assert hands.moment >= ORIGIN + MINUTE


def test_an_event_counts_in_the_same_tick_whatever_others_do(tmp_path: Path) -> None:
    def tick_of_mine(others: int) -> list[int]:
        hands, shelf = Hands(), Shelf(piece=7)
        chance = random.Random(others)
        for _ in range(others):
            hands.at(chance.random() * 290, lambda: shelf.put("b"))
        for second in (10, 119, 121, 250):
            hands.at(second, lambda: shelf.put("mine"))
        ticks = ticks_of(hands, shelf, tmp_path)
        return [tick for tick in range(1, 6) for label in labels(ticks, tick) if label == "mine"]

    assert {tuple(tick_of_mine(others)) for others in (0, 3, 40, 500)} == {(1, 2, 3, 5)}


def test_the_end_is_asked_for_when_the_tick_is_over_also_in_the_midst_of_reading(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf(piece=1)
    shelf.put("a", "b", "c")
    ticks = ticks_of(hands, shelf, tmp_path)

    def slow() -> None:
        hands.moment += timedelta(seconds=40)
        shelf.put("later")

    shelf.while_reading = slow
    # Two pieces take 80 seconds: what came until then is in the tick, and nothing that comes while the rest is read.
    assert labels(ticks, 1) == ["a", "b", "c", "later", "later"]


def test_after_an_outage_the_first_tick_has_the_backlog_and_the_others_nothing(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    hands.moment += 5 * MINUTE + timedelta(seconds=10)
    shelf.put("a", "b")
    ticks = ticks_of(hands, shelf, tmp_path)
    assert labels(ticks, 1) == ["a", "b"]
    shelf.put("now")
    assert [labels(ticks, tick) for tick in (2, 3, 4, 5)] == [[], [], [], []]
    assert hands.slept == 0
    assert labels(ticks, 6) == ["now"]


@pytest.mark.parametrize("back", [1, 3600, 86_400, 365 * 86_400])
def test_a_clock_that_goes_back_is_waited_for(tmp_path: Path, back: int) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    shelf.put("a")
    assert labels(ticks, 1) == ["a"]
    hands.moment -= timedelta(seconds=back)
    shelf.put("b")

    def caught_up() -> None:
        shelf.put("c")
        hands.moment = ORIGIN + timedelta(seconds=90)

    hands.plans.append((hands.moment + timedelta(seconds=5), caught_up))
    assert labels(ticks, 2) == ["b", "c"]
    assert hands.moment >= ORIGIN + 2 * MINUTE


def test_a_clock_that_goes_back_after_a_leap_holds_the_ticks_that_were_due(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    hands.moment += 3 * MINUTE
    assert labels(ticks, 1) == []
    hands.moment = ORIGIN + timedelta(seconds=70)
    shelf.put("a")
    assert labels(ticks, 2) == ["a"]
    assert hands.moment >= ORIGIN + 2 * MINUTE


@pytest.mark.parametrize("ahead", [timedelta(seconds=1), timedelta(hours=1), timedelta(hours=23)])
def test_a_small_leap_of_the_clock_is_caught_up_with(tmp_path: Path, ahead: timedelta) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    shelf.put("a")
    hands.moment += ahead
    assert labels(ticks, 1) == ["a"]


@pytest.mark.parametrize("ahead", [timedelta(days=1, minutes=1), timedelta(days=30), timedelta(days=365)])
def test_a_large_leap_of_the_clock_stops_the_stream_and_burns_no_tick(tmp_path: Path, ahead: timedelta) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    hands.at(5, lambda: setattr(hands, "moment", hands.moment + ahead))
    with pytest.raises(RefusalError, match="must be at most 1440 ticks ahead"):
        labels(ticks, 1)
    patient = ticks_of(hands, shelf, tmp_path, longest_leap=10**6)
    assert labels(patient, 1) == []


def test_stamps_far_off_change_nothing_unless_late_events_are_dropped(tmp_path: Path) -> None:
    stamps = ["2026-01-01T00:00:30Z", "1970-01-01T00:00:00Z", "2500-01-01", "2025-12-31T23:59:59.999999Z"]
    counts = {}
    for late in ("count", "drop"):
        hands, shelf = Hands(), Shelf()
        for number, stamp in enumerate(stamps):
            shelf.put(str(number), time=stamp)
        shelf.put("no time", time="yesterday")
        counts[late] = labels(ticks_of(hands, shelf, tmp_path, late=late), 1)
    assert counts == {"count": ["0", "1", "2", "3", "no time"], "drop": ["0", "2"]}
    # A late event is no fault; one without a time is.
    refused = [json.loads(line) for line in (tmp_path / "refused.jsonl").read_text().splitlines()]
    assert [each["line"] for each in refused] == [4]


def test_an_event_is_late_for_the_tick_that_is_open(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path, late="drop")
    hands.at(61, lambda: shelf.put("late", time="2026-01-01T00:00:59Z"))
    hands.at(62, lambda: shelf.put("timely", time="2026-01-01T00:01:00Z"))
    assert labels(ticks, 1) == []
    assert labels(ticks, 2) == ["timely"]


def test_bad_records_go_to_the_side_file_before_the_tick_is_over(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    shelf.put("a", None, "x" * 257)
    shelf.texts += ["{", '{"drug": 1.5, "secret": "canary"}', "", '{"drug": "b"}']
    ticks = ticks_of(hands, shelf, tmp_path)
    assert labels(ticks, 1) == ["a", "b"]
    path = tmp_path / "refused.jsonl"
    refused = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["file"], each["line"]) for each in refused] == [
        ("shelf", 1),
        ("shelf", 2),
        ("shelf", 3),
        ("shelf", 4),
    ]
    assert "canary" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_side_file_is_put_aside_before_it_grows_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pianissimo.io.sources import refused_file as module

    monkeypatch.setattr(module, "LONGEST_REFUSED", 2000)
    file = RefusedFile(tmp_path / "refused.jsonl")
    for number in range(200):
        file.add("shelf", pl.DataFrame({"line": [number], "reason": ["because"]}))
    file.sync()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5000


def test_rows_are_handed_over_before_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_ticks, "MOST_ROWS", 10)
    hands, shelf = Hands(), Shelf(piece=3)
    shelf.put(*["a"] * 100)
    ticks = ticks_of(hands, shelf, tmp_path)
    heights = [batch.height for batch in ticks.batches(1) if isinstance(batch, pl.DataFrame)]
    assert sum(heights) == 100
    assert max(heights) <= 12


def test_a_source_that_is_away_is_asked_again_and_nothing_is_lost(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf(piece=1)
    shelf.put("a", "b", "c")
    ticks = ticks_of(hands, shelf, tmp_path)
    got: list[str] = []
    shelf.while_reading = lambda: setattr(shelf, "away", 1)
    for _ in range(100):
        try:
            for batch in ticks.batches(1):
                got += batch["drug"].to_list() if isinstance(batch, pl.DataFrame) else []
            break
        except SourceAwayError:
            continue
    assert got == ["a", "b", "c"]


def test_a_source_that_is_away_when_the_tick_is_over_still_gives_it_its_rest(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf(piece=1)
    ticks = ticks_of(hands, shelf, tmp_path)
    hands.at(60, lambda: shelf.put("a", "b"))
    shelf.while_reading = lambda: setattr(shelf, "away", 1)
    with pytest.raises(SourceAwayError):
        labels(ticks, 1)
    shelf.put("of the next tick")
    shelf.while_reading = None
    hands.moment += 3 * MINUTE
    assert labels(ticks, 1) == ["a", "b"]
    assert labels(ticks, 2) == ["of the next tick"]


@pytest.mark.parametrize("most_rows", [2, 1000])
def test_a_source_that_is_away_just_when_the_end_is_asked_for_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_rows: int
) -> None:
    monkeypatch.setattr(live_ticks, "MOST_ROWS", most_rows)
    hands, shelf, got = Hands(), Shelf(), list[str]()
    shelf.put("a", "b", "c")
    ticks = ticks_of(hands, shelf, tmp_path)
    hands.at(60, lambda: setattr(shelf, "away", 2))
    for left in (1, 0, 0):
        try:
            for batch in ticks.batches(1):
                got += batch["drug"].to_list() if isinstance(batch, pl.DataFrame) else []
        except SourceAwayError:
            assert shelf.away == left
    assert got == ["a", "b", "c"]
    assert ticks.position == {"place": 3}
    shelf.put("d")
    assert labels(ticks, 2) == ["d"]


def test_a_tick_that_was_begun_after_the_clock_went_back_keeps_its_rows_when_the_source_is_away(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    hands.moment += 3 * MINUTE
    assert labels(ticks, 1) == []
    hands.moment = ORIGIN + timedelta(seconds=70)
    shelf.put("a")
    hands.at(120, lambda: setattr(shelf, "away", 1))
    with pytest.raises(SourceAwayError):
        labels(ticks, 2)
    assert labels(ticks, 2) == ["a"]


class Partitions(Shelf):
    """Two places that are read in pieces, each sorted by place, as a buffer of messages is."""

    def __init__(self, cuts: list[int]) -> None:
        super().__init__()
        self.cuts = cuts
        # By arrival: which place, and the number there.
        self.arrived = [(1, 0), (0, 0), (0, 1), (1, 1), (0, 2), (1, 2)]

    def end(self) -> Any:
        self._check()
        return len(self.arrived)

    def read(self, end: Any) -> Iterator[Records]:
        for cut in [*self.cuts, end]:
            piece = sorted(self.arrived[self.place : min(cut, end)])
            self.place = max(self.place, min(cut, end))
            for place in (0, 1):
                numbers = [number for which, number in piece if which == place]
                if numbers:
                    texts = pl.Series(json.dumps({"drug": f"{place}.{number}"}) for number in numbers)
                    yield Records(place=f"topic/{place}", rank=(place,), numbers=pl.Series(numbers), texts=texts)


@pytest.mark.parametrize("most_rows", [1, 4, 1000])
@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3, 4, 5], [3], [2, 5]])
def test_where_pieces_are_cut_does_not_change_the_order_of_a_stream_of_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: list[int], most_rows: int
) -> None:
    monkeypatch.setattr(live_ticks, "MOST_ROWS", most_rows)
    ticks = ticks_of(Hands(), Partitions(cuts), tmp_path, ordered=True)
    assert labels(ticks, 1) == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]


def test_of_events_without_users_nothing_is_kept_for_their_order(tmp_path: Path) -> None:
    assert labels(ticks_of(Hands(), Partitions([1]), tmp_path), 1)[0] == "1.0"


def test_told_to_stop_it_leaves_the_tick_to_the_next_start(tmp_path: Path) -> None:
    hands, shelf, stop = Hands(), Shelf(), threading.Event()
    shelf.put("a")
    ticks = ticks_of(hands, shelf, tmp_path, stop=stop)
    hands.at(5, stop.set)
    with pytest.raises(EndOfTicks) as cut:
        labels(ticks, 1)
    assert not cut.value.ended
    assert hands.moment < ORIGIN + timedelta(seconds=6)


class Once(Shelf):
    """A feed that cannot be read again."""

    ended = False


def test_what_cannot_be_read_again_is_sealed_when_told_to_stop(tmp_path: Path) -> None:
    hands, shelf, stop = Hands(), Once(), threading.Event()
    shelf.put("a")
    hands.at(5, stop.set)
    assert labels(ticks_of(hands, shelf, tmp_path, stop=stop), 1) == ["a"]
    assert hands.moment < ORIGIN + MINUTE


@pytest.mark.parametrize("until_end", [True, False])
def test_an_input_that_ends_ends_the_stream_if_it_should(tmp_path: Path, until_end: bool) -> None:
    hands, shelf = Hands(), Once()
    shelf.put("a")
    hands.at(5, lambda: setattr(shelf, "ended", True))
    ticks = ticks_of(hands, shelf, tmp_path, until_end=until_end)
    assert labels(ticks, 1) == ["a"]
    if until_end:
        assert hands.moment < ORIGIN + MINUTE
        with pytest.raises(EndOfTicks) as cut:
            labels(ticks, 2)
        assert cut.value.ended
    else:
        assert labels(ticks, 2) == []
        assert hands.moment >= ORIGIN + 2 * MINUTE


def test_what_came_while_the_last_tick_was_sealed_is_sealed_in_one_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands, shelf, stop = Hands(), Once(), threading.Event()
    shelf.put("a")
    release = StreamLoop._release

    def seal(self: StreamLoop) -> Any:
        if not stop.is_set():
            shelf.put("a", "b")
            stop.set()
            hands.moment += 2 * MINUTE  # the next ticks are over, and were covered by none
        return release(self)

    monkeypatch.setattr(StreamLoop, "_release", seal)
    counts, (summary, _) = run(tmp_path, hands, shelf, 9, stop)
    assert counts == [1, 3]
    assert summary.stopped


def test_ticks_that_were_covered_do_not_keep_the_last_lines_from_being_sealed(tmp_path: Path) -> None:
    hands, shelf, stop = Hands(), Once(), threading.Event()
    hands.moment += 5 * MINUTE
    ticks = ticks_of(hands, shelf, tmp_path, stop=stop)
    assert labels(ticks, 1) == []
    assert ticks.holds_unsealed
    shelf.put("a")
    stop.set()
    assert labels(ticks, 2) == ["a"]
    assert not ticks.holds_unsealed


def test_without_a_line_one_more_tick_is_sealed_all_the_same(tmp_path: Path) -> None:
    hands, stop = Hands(), threading.Event()
    stop.set()
    assert run(tmp_path, hands, Once(), 9, stop)[0] == [0]


@pytest.mark.parametrize("failures", [1, 10**9])
def test_a_full_disk_for_the_side_file_loses_no_line_of_an_input_that_is_told_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    hands, shelf, stop = Hands(), Once(), threading.Event()
    shelf.put("a", None, "b", "a", None, "b", "a")
    full_for(failures, monkeypatch, then=stop.set)
    counts, (summary, _) = run(tmp_path, hands, shelf, 9, stop)
    assert counts == [5]
    assert summary.stopped


@pytest.mark.parametrize("failures", [1, 3])
def test_a_full_disk_at_the_end_of_the_input_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr("pianissimo.io.loop.FIRST_WAIT", 0.01)
    hands, shelf = Hands(), Once()
    shelf.ended = True
    shelf.put("a", "b", "a", "b", None)
    full_for(failures, monkeypatch)
    counts, (summary, _) = run(tmp_path, hands, shelf, 9, until_end=True)
    assert counts == [4]
    assert not summary.stopped
    assert len((tmp_path / "refused.jsonl").read_text().splitlines()) == 1


def stream() -> Stream:
    return Stream("live", budget=Budget(4, 1e-6), horizon=20, queries=QUERIES, tick="1m", origin=ORIGIN)


def run(
    tmp_path: Path, hands: Hands, shelf: Any, last: int, stop: threading.Event | None = None, **options: Any
) -> tuple[list[int], Any]:
    ticks = ticks_of(hands, shelf, tmp_path, stop=stop, **options)
    health = tmp_path / "health.json"
    with open_stream(stream(), tmp_path / "state", make_noise=lambda secret: NoNoise(), snapshot_every=2) as live:
        summary = StreamLoop(live, ticks, last, stop=stop, reports=Reports(health=health, lag=ticks.lag)).run()
        counts = [live.released(tick)["purchases"]["estimate"][0] for tick in range(1, live.tick_number + 1)]
    return counts, (summary, json.loads(health.read_text()))


def test_a_stream_that_is_stopped_again_and_again_counts_every_event_once(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    seconds = [0.5 + 7 * number for number in range(84)]
    for second in seconds:
        hands.at(second, lambda: shelf.put("a", "b"))
    counts: list[int] = []
    for number in range(12):
        stop = threading.Event()
        hands.at((hands.moment - ORIGIN).total_seconds() + 50 + number, stop.set)
        counts, (summary, health) = run(tmp_path, hands, shelf, 10, stop)
        assert health["state"] == ("stopped" if summary.stopped else "done")
        assert health["tick"] == summary.tick
        if not summary.stopped:
            break
    assert counts == [2 * len([each for each in seconds if each < 60 * tick]) for tick in range(1, 11)]


@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_which_events_lie_there_does_not_matter(tmp_path: Path, seed: int) -> None:
    hands, shelf = Hands(), Shelf()
    events = ["a"] * 30 + ["b"] * 12 + [None] * 5
    random.Random(seed).shuffle(events)
    shelf.put(*events)
    assert run(tmp_path, hands, shelf, 2)[0] == [42, 42]


def test_a_source_that_is_away_is_told_in_the_health_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.io.loop.FIRST_WAIT", 0.01)
    hands, shelf, seen = Hands(), Shelf(), []
    shelf.put("a")
    write = StreamLoop._tell

    def tell(self: StreamLoop, state: str, message: str | None = None) -> None:
        write(self, state, message)
        seen.append(json.loads((tmp_path / "health.json").read_text()))

    monkeypatch.setattr(StreamLoop, "_tell", tell)
    hands.at(3, lambda: setattr(shelf, "away", 3))
    assert run(tmp_path, hands, shelf, 1)[0] == [1]
    states = [each["state"] for each in seen]
    assert [state for state, before in zip(states, [None, *states], strict=False) if state != before] == [
        "running",
        "waiting for the source",
        "running",
        "done",
    ]
    assert states.count("waiting for the source") == 3
    assert seen[1]["message"] == "the shelf must be there, got none"


def test_a_full_disk_for_the_side_file_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.io.loop.FIRST_WAIT", 0.01)
    hands, shelf = Hands(), Shelf()
    shelf.put("a", None)
    full_for(2, monkeypatch)
    assert run(tmp_path, hands, shelf, 1)[0] == [1]
    assert len((tmp_path / "refused.jsonl").read_text().splitlines()) == 1


def test_a_refusal_is_told_in_the_health_file(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    shelf.end = lambda: (_ for _ in ()).throw(SourceError("it must be there, got another"))  # type: ignore[method-assign]
    with pytest.raises(SourceError):
        run(tmp_path, hands, shelf, 1)
    health = json.loads((tmp_path / "health.json").read_text())
    assert (health["state"], health["message"]) == ("refused", "it must be there, got another")


def test_a_sign_of_life_comes_while_it_waits(tmp_path: Path) -> None:
    hands = Hands()
    assert list(ticks_of(hands, Shelf(), tmp_path).batches(1)).count(None) >= 5


def test_lag_is_in_ticks(tmp_path: Path) -> None:
    hands = Hands()
    ticks = ticks_of(hands, Shelf(), tmp_path)
    assert ticks.lag(0) == 0
    hands.moment += 3.5 * MINUTE
    assert (ticks.lag(0), ticks.lag(2), ticks.lag(9)) == (3, 1, -6)


def test_a_tick_of_which_too_many_records_are_refused_is_not_sealed(tmp_path: Path) -> None:
    hands, shelf = Hands(), Shelf()
    shelf.put("a", "b", None)
    ticks = ticks_of(hands, shelf, tmp_path, max_refused=0.4)
    assert len(labels_of(ticks, 1)) == 2
    hands.at(61, lambda: shelf.put("a", None))
    with pytest.raises(SourceError, match=r"records of tick 2 must .* source\.max_refused lets pass"):
        labels_of(ticks, 2)
    # Each tick is judged by itself, as often as it is read.
    again = ticks_of(hands, shelf, tmp_path, max_refused=0.4)
    again.seek({"place": 3}, 1)
    with pytest.raises(SourceError, match="tick 2"):
        labels_of(again, 2)
    tolerant = ticks_of(hands, shelf, tmp_path, max_refused=0.5)
    tolerant.seek({"place": 3}, 1)
    assert labels_of(tolerant, 2) == ["a"]


def labels_of(ticks: LiveTicks, tick: int) -> list[str]:
    return [label for batch in ticks.batches(tick) if isinstance(batch, pl.DataFrame) for label in batch["drug"]]


def test_a_column_that_no_record_of_a_tick_has_is_told_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hands, shelf = Hands(), Shelf()
    ticks = ticks_of(hands, shelf, tmp_path)
    shelf.texts = ['{"drug": "a"}', '{"Drug": "a"}']
    labels_of(ticks, 1)
    labels_of(ticks, 2)  # nothing came, which is no fault
    assert not caplog.messages
    hands.at(121, lambda: shelf.texts.extend(['{"Drug": "a"}', '{"Drug": "b"}', '{"Drug": "c"}']))
    labels_of(ticks, 3)
    assert caplog.messages == ["columns 'drug' must be in records, got none that has them in tick 3"]
