"""The newsroom example: its error bars hold what they say, over many secrets and one stream.

What is counted over runs is whether a bar at one tick holds the truth among the visits that the cap let through, with
the cap that this run had then. Visits, articles and sections have noise of their own, so that at one tick the bars of
all runs are independent, and their number is binomial: the exact tail is used. Bars of the median are made of whole
cells, and hold more often than they say.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
from examples.newsroom import HOURS, SECTIONS, hours, main, newsroom
from numpy.typing import NDArray
from scipy import stats

from pianissimo.stream import Live, StreamPlan
from pianissimo.testing import SeededNoise
from pianissimo.unit import User

FALSE_ALARM_RATE = 1e-9
"""Of each of the six ticks, and of each test below."""

RUNS, COVERAGE, TICKS = 100, 0.95, 6
COUNTS = ["visits", "articles", *sorted(SECTIONS)]


@cache
def plan() -> StreamPlan:
    return newsroom(COVERAGE).plan()


@cache
def batches() -> list[pl.DataFrame]:
    """The day of the example with fewer readers, in ticks of four hours."""
    day = list(hours(readers=6000))
    step = HOURS // TICKS
    return [pl.concat(day[start : start + step]) for start in range(0, HOURS, step)]


@cache
def so_far(tick: int) -> pl.DataFrame:
    """All visits up to a tick, with the place of each among those of its reader, and of its article among hers."""
    events = pl.concat(batches()[:tick]).with_columns(place=pl.int_range(pl.len()).over("reader"))
    new = events.unique(["reader", "article"], keep="first", maintain_order=True)
    new = new.select("reader", "article", article_place=pl.int_range(pl.len()).over("reader"))
    return events.join(new, on=["reader", "article"], how="left", maintain_order="left")


@cache
def truth(tick: int, cap: int, article_cap: int) -> dict[str, float]:
    """Of what caps let through."""
    events = so_far(tick)
    kept = events.filter(pl.col("place") < cap)
    sections = dict(kept["section"].value_counts().rows())
    return {
        "visits": len(kept),
        "articles": events.filter(pl.col("article_place") < article_cap)["article"].n_unique(),
        "median": float(kept["seconds"].clip(0, 600).quantile(0.5, "lower") or 0.0),
        **{name: sections[name] for name in SECTIONS},
    }


@dataclass(frozen=True)
class Shown:
    """One bar of one run."""

    name: str
    estimate: float
    low: float
    high: float
    true: float
    everything: float


def high_of(row: dict[str, Any]) -> float:
    """Where the noise on what was kept ends: as far above as below, if what was cut off leaves the high end open."""
    high: float = row["high"] if row["key"] == "median" else 2 * row["estimate"] - row["low"]
    assert row["high"] is None or row["key"] == "median"
    return high


def one_run(seed: int) -> Iterator[list[Shown]]:
    """All bars of each tick of a run."""
    live = Live(plan(), SeededNoise(seed))
    for tick, batch in enumerate(batches(), 1):
        release = live.tick(batch)
        caps = [part.run._state.course.cap for part in live._core.parts]
        true, everything = truth(tick, *caps), truth(tick, 2**40, 2**40)
        rows: list[dict[str, Any]] = [
            {"key": "visits", **release["visits"].row(0, named=True)},
            {"key": "articles", **release["articles"].row(0, named=True)},
            {**release["reading"].row(0, named=True), "key": "median"},
            *release["sections"].to_dicts(),
        ]
        yield [
            Shown(row["key"], row["estimate"], row["low"], high_of(row), true[row["key"]], everything[row["key"]])
            for row in rows
        ]


@pytest.fixture(scope="module")
def runs() -> Iterator[list[list[list[Shown]]]]:
    with pytest.MonkeyPatch.context() as patch:
        # The name of a run is random: without this the noise would be another each time the test runs.
        patch.setattr("pianissimo.stream.live.secrets.token_bytes", bytes)
        yield [list(one_run(seed)) for seed in range(RUNS)]


def chance_of(hits: int, trials: int, coverage: float) -> float:
    """That bars which hold as often as they say hold so seldom."""
    return float(stats.binom.cdf(hits, trials, coverage))


def counts_at(runs: list[list[list[Shown]]], tick: int) -> list[Shown]:
    return [each for run in runs for each in run[tick] if each.name in COUNTS]


def within(bars: list[Shown], scale: float = 1.0) -> NDArray[np.bool_]:
    return np.array(
        [
            each.estimate + scale * (each.low - each.estimate)
            <= each.true
            <= each.estimate + scale * (each.high - each.estimate)
            for each in bars
        ]
    )


@pytest.mark.parametrize("tick", range(TICKS))
def test_bars_hold_the_truth_as_often_as_they_say(runs: list[list[list[Shown]]], tick: int) -> None:
    bars = counts_at(runs, tick)
    assert len(bars) == RUNS * len(COUNTS)
    assert chance_of(int(within(bars).sum()), len(bars), COVERAGE) > FALSE_ALARM_RATE


@pytest.mark.parametrize("tick", range(TICKS))
def test_bars_of_four_fifths_the_width_would_be_caught(runs: list[list[list[Shown]]], tick: int) -> None:
    bars = counts_at(runs, tick)
    assert chance_of(int(within(bars, 0.8).sum()), len(bars), COVERAGE) < FALSE_ALARM_RATE


@pytest.mark.parametrize("tick", range(TICKS))
def test_bars_are_not_much_wider_than_they_need_be(runs: list[list[list[Shown]]], tick: int) -> None:
    bars = counts_at(runs, tick)
    # Bars of at most 1.1 times the width hold in at most 97 % of all cases.
    assert stats.binom.sf(within(bars).sum() - 1, len(bars), 0.97) > FALSE_ALARM_RATE


@pytest.mark.parametrize("tick", range(TICKS))
def test_the_median_lies_within_its_bars(runs: list[list[list[Shown]]], tick: int) -> None:
    bars = [each for run in runs for each in run[tick] if each.name == "median"]
    assert chance_of(int(within(bars).sum()), len(bars), COVERAGE) > FALSE_ALARM_RATE


@pytest.mark.parametrize("tick", range(TICKS))
def test_with_what_the_cap_cut_off_the_lower_ends_still_hold(runs: list[list[list[Shown]]], tick: int) -> None:
    bars = counts_at(runs, tick)
    hits = sum(each.low <= each.everything for each in bars)
    assert chance_of(hits, len(bars), (1 + COVERAGE) / 2) > FALSE_ALARM_RATE


@pytest.mark.usefixtures("repeated")
def test_bars_reach_over_the_cut_where_the_most_visits_are_known() -> None:
    """Against all visits, those of bots included; false_alarm_rate: 1e-9."""
    stream = newsroom(COVERAGE)
    assert isinstance(stream.unit, User)
    known = replace(stream, unit=replace(stream.unit, most_events_per_user=5000)).plan()
    held = []
    for seed in range(RUNS):
        live = Live(known, SeededNoise(seed))
        for tick, batch in enumerate(batches()[:2], 1):
            release, everything = live.tick(batch), truth(tick, 2**40, 2**40)
            for row in [{"key": "visits", **release["visits"].row(0, named=True)}, *release["sections"].to_dicts()]:
                held.append(row["low"] <= everything[row["key"]] <= row["high"])
    assert chance_of(sum(held), len(held), COVERAGE) > FALSE_ALARM_RATE


def test_the_cap_is_raised_and_cuts_off_bots(runs: list[list[list[Shown]]]) -> None:
    last = [next(each for each in run[-1] if each.name == "visits") for run in runs]
    at_first = truth(TICKS, 16, 16)["visits"]
    assert all(at_first <= each.true < each.everything for each in last)
    assert sum(at_first < each.true for each in last) > RUNS / 2


def test_the_dashboard_has_a_line_for_each_hour(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.strip().startswith(tuple(f"{hour:02}:00" for hour in range(HOURS))) for line in lines) == HOURS
    assert any("politics" in line and "±" in line for line in lines)
