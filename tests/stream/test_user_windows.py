"""Windows of users: what was accepted in the last ticks, asked for, published, and from stored totals."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal
from tests.faults.points import armed

import pianissimo as pp
from pianissimo.cli.main import cli
from pianissimo.durable.durable_stream import open_stream
from pianissimo.durable.start import Request
from pianissimo.stream import Live
from pianissimo.stream.release import bare
from pianissimo.testing import NoNoise

LABELS = ["a", "b", "c"]
QUERIES: list[Any] = [
    pp.Count("n"),
    pp.Count("dear", where="price > 4"),
    pp.Sum("x", value="price", range=(0, 12)),
    pp.Histogram("h", key="label", domain=LABELS),
    pp.TopK("t", key="label", k=2, domain=LABELS),
    pp.MaxFrequency("f", key="label", domain=LABELS),
    pp.Quantiles("q", value="price", range=(0, 12), cells=16),
    pp.Distinct("d", key="label"),
    pp.Users("u"),
]
NO_NOISE: Any = {"make_noise": lambda _: NoNoise()}


def stream(*queries: Any, **changes: Any) -> pp.Stream:
    """Without noise its cap is raised from 2 to 8 when many users are above it: at tick 3."""
    fields: dict[str, Any] = {"budget": pp.Budget(2.0, 1e-6), "horizon": 24, "tick": "1h", **changes}
    fields.setdefault("unit", pp.user("who", first_cap=2))
    return pp.Stream("s", queries=queries or QUERIES, **fields)


def events(tick: int) -> pl.DataFrame:
    """3,000 users with an event a tick, so that all are above 2 at tick 3, and a thousand new ones at each tick."""
    who = [*range(3000), *range(10_000 * tick, 10_000 * tick + 1000)]
    labels = [LABELS[min((place + tick) % 7, 2)] if tick > 1 else "a" for place in range(len(who))]
    return pl.DataFrame({"who": who, "label": labels, "price": [(place + tick) % 11 + 0.5 for place in who]})


def windowed(queries: list[Any], per: int) -> list[Any]:
    return [replace(query, per=per) for query in queries]


@pytest.mark.parametrize(
    "unit",
    [
        pp.user("who", first_cap=2),
        pp.user("who", max_events_per_user=2, caps=1),
        pp.user("who", within=2, reset=False, max_events_per_user=2),
    ],
    ids=["follows", "fixed", "period"],
)
def test_what_is_published_per_window_is_what_is_asked_for(unit: Any, tmp_path: Path) -> None:
    """In memory and durable, also after it was opened again in the middle of the window."""
    totals, windows = stream(unit=unit), stream(*windowed(QUERIES, 2), unit=unit)
    live, per = Live(totals.plan(), NoNoise()), Live(windows.plan(), NoNoise())
    for tick in range(1, 6):
        with open_stream(totals, tmp_path / "state", **NO_NOISE) as kept:
            kept.tick(events(tick))
            stored = kept.window("2h")
        live.tick(events(tick))
        published, asked = per.tick(events(tick)), live.window(2)
        for query in QUERIES:
            assert_frame_equal(asked[query.name], stored[query.name])
            columns = ["estimate", "cap", *([] if "key" not in asked[query.name].columns else ["key"])]
            assert_frame_equal(published[query.name].select(columns), asked[query.name].select(columns))


def test_without_noise_it_is_what_was_accepted_in_the_last_ticks() -> None:
    live = Live(stream().plan(), NoNoise())
    caps = [live.tick(events(tick))["n"]["cap"].item() for tick in range(1, 6)]
    assert caps == [2, 2, 8, 8, 8]
    window = live.between(2, 3)
    # At the tick of the raise the 3,000 are beyond the cap of 2 that held when it began; none of it is backfilled.
    assert window["n"].rows() == [(1000, window["n"]["low"].item(), None, 2)]
    assert live.between(3, 4)["n"]["estimate"].item() == 4000
    assert live.between(1, 4)["n"]["estimate"].item() == 4000 + 1000 + 4000
    assert live.between(1, 4)["u"]["estimate"].item() == 3000
    assert live.between(0, 1)["d"]["estimate"].item() == 1
    assert live.between(1, 2)["d"]["estimate"].item() == 2
    assert live.between(2, 5)["d"].select("low", "high").row(0) == (None, None)
    assert live.between(0, 5)["d"]["low"].item() is not None


def test_where_a_user_has_few_events_bars_reach_over_the_cut_but_not_over_a_raise() -> None:
    live = Live(stream(unit=pp.user("who", first_cap=2, most_events_per_user=10)).plan(), NoNoise())
    for tick in range(1, 6):
        live.tick(events(tick))
    within, over = live.between(3, 5), live.between(2, 5)
    for name in ("n", "x", "h", "t", "f"):
        assert within[name]["high"].null_count() == 0
        assert over[name]["high"].null_count() == over[name].height
        assert over[name]["low"].null_count() == 0
    for name in ("q", "d"):
        assert within[name].select("low", "high").null_count().row(0) == (0, 0)
        assert over[name].select("low", "high").null_count().row(0) == (over[name].height, over[name].height)
    assert over["u"].null_count().sum_horizontal().item() == 0


def test_stored_totals_tell_windows_of_what_adds_up(tmp_path: Path) -> None:
    state = tmp_path / "state"
    unit = pp.user("who", first_cap=2, most_events_per_user=10)
    with open_stream(stream(unit=unit), state, **NO_NOISE) as kept:
        for tick in range(1, 7):
            kept.tick(events(tick))
        asked = kept.between(4, 6)
        over = kept.between(2, 4)
    seen = pp.read_releases(state, window="2h")
    assert set(seen) == {"n", "dear", "x", "h", "d", "u"}
    for name, table in seen.items():
        last, before = bare(table.filter(tick=6)), bare(table.filter(tick=4))
        columns = asked[name].columns
        assert_frame_equal(last.select(columns).select("estimate"), asked[name].select("estimate"))
        assert last["cap"].to_list() == [1 if name == "u" else 8] * last.height if name != "d" else True
        # Both ends are rounded by themselves, where a window of the stream itself is rounded once.
        assert (last["low"] <= asked[name]["low"]).all()
        assert (last["high"] >= asked[name]["high"]).all()
        if name in ("n", "x", "h"):
            # It counts what the raise let in of earlier ticks, and says so by its low end.
            assert before["estimate"].sum() > over[name]["estimate"].sum()
            assert before["low"].sum() < over[name]["estimate"].sum()
    shown = CliRunner().invoke(cli, ["releases", str(state), "--window", "2h", "--last", "1"])
    assert shown.exit_code == 0
    assert "q has no windows of 2h: quantiles do not add up" in shown.output


def test_what_is_cut_off_of_signed_sums_by_label_is_open_on_both_sides(tmp_path: Path) -> None:
    """Labels that nobody listed: what a cap cuts off may be of either sign, in stored windows too."""
    values: dict[str, Any] = {"value": "v", "key": "k", "grid": 1}
    asked = stream(
        pp.Sum("up", range=(0, 8), **values),
        pp.Sum("both", range=(-8, 8), **values),
        unit=pp.user("who", max_events_per_user=2),
    )
    with open_stream(asked, tmp_path / "state", **NO_NOISE) as kept:
        for _ in range(2):
            kept.tick([{"who": who, "k": "a", "v": 2} for who in range(3000)])
    seen = pp.read_releases(tmp_path / "state", window=1)
    ends = {name: seen[name].filter(tick=2).select("low", "high").row(0) for name in ("up", "both")}
    assert ends["up"][0] is not None
    assert (ends["up"][1], *ends["both"]) == (None, None, None)


@pytest.mark.parametrize("point", ["release.commit", "seal.commit"])
def test_after_a_stop_in_the_middle_of_a_window_it_is_that_of_one_that_never_stopped(
    point: str, tmp_path: Path
) -> None:
    """The tick that stops is the one where the cap is raised: what the old cap let in must not be lost."""

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    asked, state = stream(), tmp_path / "state"
    live = Live(asked.plan(), NoNoise())
    with open_stream(asked, state, **NO_NOISE) as kept:
        for tick in (1, 2):
            live.tick(events(tick))
            kept.tick(events(tick))
        with armed({point: no_room}), pytest.raises(pp.PianissimoError):
            kept.tick(events(3))
    live.tick(events(3))
    with open_stream(asked, state, **NO_NOISE) as kept:
        if kept.tick_number < 3:
            kept.tick(events(3))
        live.tick(events(4))
        kept.tick(events(4))
        for start, end in ((0, 3), (1, 3), (2, 3), (1, 4), (3, 4)):
            here, there = live.between(start, end), kept.between(start, end)
            for query in QUERIES:
                assert_frame_equal(here[query.name], there[query.name])


def test_a_window_asked_for_again_is_the_same_with_real_noise(tmp_path: Path) -> None:
    """Also when the stream was opened again, from a snapshot and logs."""
    asked, state = stream(), tmp_path / "state"
    with asked.open(state) as kept:
        for tick in range(1, 6):
            kept.tick(events(tick))
        before = [kept.between(start, 5) for start in range(5)]
    with asked.open(state) as kept:
        for start, earlier in enumerate(before):
            again = kept.between(start, 5)
            for query in QUERIES:
                assert_frame_equal(earlier[query.name], again[query.name])


def test_a_file_asks_for_windows_of_users_too(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        '[stream]\nname = "s"\nepsilon = 2.0\ndelta = 1e-6\ntick = "1h"\nhorizon = 24\n'
        'unit = { user = "who", first_cap = 2 }\n'
        '[queries.n]\nkind = "count"\nper = "2h"\n'
    )
    assert Request(pp.load(file)).digest == Request(stream(pp.Count("n", per=2))).digest


def test_longer_windows_than_1440_ticks_keep_as_much() -> None:
    plan = stream(pp.Count("n", every=100, per=2000), horizon=4000, tick=None).plan()
    assert plan.queries[0].mechanism.history == 2000
    assert stream(pp.Count("n")).plan().queries[0].mechanism.history == 1440


def test_a_cap_of_values_is_not_taken_for_one_of_events(tmp_path: Path) -> None:
    """A user adds at most 24, and ten events are up to 120: what is cut off has no bound, in stored windows neither."""
    unit = pp.user("who", max_events_per_user=2, most_events_per_user=10)
    capped = pp.Sum("x", value="price", range=(0, 12), max_per_user=24)
    with open_stream(stream(capped, unit=unit), tmp_path / "state", **NO_NOISE) as kept:
        for tick in range(1, 5):
            kept.tick(events(tick))
        asked = kept.between(2, 4)["x"]
    seen = pp.read_releases(tmp_path / "state", window=2)["x"].filter(tick=4)
    assert seen["estimate"].item() == pytest.approx(asked["estimate"].item())
    assert seen["low"].item() == pytest.approx(asked["low"].item(), rel=1e-3)
    assert seen["high"].item() is asked["high"].item() is None


def test_what_a_plan_says_of_bars_over_the_cut_is_true_of_windows() -> None:
    unit = pp.user("who", first_cap=2, most_events_per_user=10)
    mean = pp.Mean("m", value="price", range=(0, 12))
    told = str(stream(pp.Count("n", per=2), mean, pp.Distinct("d", key="label", per=2), unit=unit).plan())
    words = " ".join(told.split())
    assert "n: within" in words
    assert "as no user has more than 10, but in a window that it is raised in, where they are open" in words
    assert "the mean and its bars are those of the events that the cap lets through" in words
    assert "different values of label first seen in the last 2 ticks" in words
