"""Windows of users, audited: their noise draw by draw, their price node by node, a tiny world exactly, their bars."""

import math
import os
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from tests.audit.replay import RecordingNoise
from tests.shared_checks import GivenNoise
from tests.users.replaying import Place, price, raised_at, taped, without

from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, SplinePlan, ToeplitzPlan, TreePlan
from pianissimo.noise.keyed import Integers, Keys, PathPart
from pianissimo.noise.plan import difference_weights
from pianissimo.noise.running import evaluate, series_keys
from pianissimo.noise.toeplitz import _FIXED_BITS
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import (
    AdaptiveCap,
    Counters,
    CountHead,
    FixedCap,
    HistogramHead,
    Law,
    PeriodCap,
    QuantilesHead,
    SumHead,
    UserDistinct,
    UserStatistics,
    UserSum,
)
from pianissimo.users.segments import Segments, SegmentWindow, Span

RAISES = {2: 1, 5: 1}
TICKS = 7
CAP = AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=3)
RUNS = 2000 if os.environ.get("PIANISSIMO_SOAK") else 25


def mechanism_of(kind: Any = UserStatistics, **fields: Any) -> Any:
    return kind(**{"cap": CAP, "plan": HaarPlan, "horizon": TICKS, "rho": Fraction(2), "history": TICKS} | fields)


def batches(users: int = 5) -> list[pl.DataFrame]:
    """User u has u + 1 events a tick: some are beyond each of the caps."""
    who = [user for user in range(users) for _ in range(user + 1)]
    return [
        pl.DataFrame({"user": who, "value": [1 + (place + tick) % 3 for place in range(len(who))]})
        for tick in range(TICKS)
    ]


def ran(mechanism: Any, noise: Any, ticks: list[pl.DataFrame] | None = None) -> Run[Any, Any, Any]:
    run: Run[Any, Any, Any] = Run(mechanism, noise)
    for batch in batches() if ticks is None else ticks:
        run.update(batch)
        run.release()
    return run


def intervals() -> list[tuple[int, int]]:
    return [(start, end) for start in range(TICKS) for end in range(start + 1, TICKS + 1)]


# Noise: draw by draw


def drawn_variance(mechanism: Any, start: int, end: int) -> Fraction:
    """What the noise of a window has, found by making one draw after the other one and all others zero."""
    with raised_at(RAISES):
        recorded = RecordingNoise(NoNoise())
        silent = ran(mechanism, recorded)
        first = len(recorded.calls)
        value = silent.between(start, end).value["count"].estimate
        variance = Fraction(0)
        for call in recorded.calls[first:]:
            # Large, so that what rounding takes off is seen as little.
            size = 2**14
            run = ran(mechanism, GivenNoise({call.path: size}))
            moved = run.between(start, end).value["count"].estimate - value
            variance += Fraction(moved, size) ** 2 * call.parameter
    return variance


def claims_its_variance(mechanism: Any) -> bool:
    with raised_at(RAISES):
        run = ran(mechanism, NoNoise())
        laws = {(start, end): run.between(start, end).value["count"].law for start, end in intervals()}
    return all(
        drawn_variance(mechanism, *interval) == pytest.approx(laws[interval].variance, rel=1e-3)
        for interval in ((0, 1), (1, 2), (2, 4), (1, 4), (0, 7), (3, 6), (4, 5), (5, 7))
    )


@pytest.mark.parametrize("plan", [HaarPlan, TreePlan, SplinePlan])
def test_the_noise_of_a_window_has_the_variance_that_its_law_says(plan: Any) -> None:
    assert claims_its_variance(mechanism_of(plan=plan))


class EarlyNoise(SegmentWindow):
    """Mutant: the newest start's noise is taken for all of the window, also before that start began."""

    def estimates(self, counters: Counters, moves: NDArray[np.int64], noise: Any, keys: Keys) -> NDArray[np.int64]:
        place, _, end = self.spans[-1]
        length = sum(span.end - span.begin for span in self.spans)
        whole = Span(place, max(0, end - length), end)
        return SegmentWindow(self.moves, (whole,), self.cut).estimates(counters, moves, noise, keys)


class WithPrefix(SegmentWindow):
    """Mutant: the noise of the last start's prefix is left in."""

    def estimates(self, counters: Counters, moves: NDArray[np.int64], noise: Any, keys: Keys) -> NDArray[np.int64]:
        place = self.spans[-1].place
        node = counters.prefix(*place)
        found = SegmentWindow.estimates(self, counters, moves, noise, keys)
        extra = np.zeros(len(found), dtype=np.int64)
        if node is not None:
            node.draw(noise.at(*place).at("prefix"), keys, extra)
        return found + extra


class OneVariance(SegmentWindow):
    """Mutant: the variance of the first start's plan for all of the window."""

    def law(self, counters: Counters) -> Law:
        first = self.spans[0]
        length = sum(span.end - span.begin for span in self.spans)
        return Law(counters.plan(*first.place), first.begin + length, None, begin=first.begin)


@pytest.mark.parametrize("mutant", [EarlyNoise, WithPrefix, OneVariance])
def test_wrong_noise_is_caught(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.users.segments.SegmentWindow", mutant)
    assert not claims_its_variance(mechanism_of(plan=TreePlan))


# Roundings


def unrounded(counters: Counters, spans: tuple[Span, ...], noise: Any) -> Fraction:
    """The noise of a window as an exact fraction: of a plan that rounds by itself, from its own draws."""
    total = Fraction(0)
    for span in spans:
        plan: Any = counters.plan(*span.place)
        own = noise.at(*span.place).at("plan")
        if hasattr(plan, "evaluate"):
            draws = [int(plan._draw(own, node, series_keys(0, 1))[0]) for node in range(1, span.end + 1)]
            beta = plan._weights.fixed
            entries = [beta[span.end - node] for node in range(1, span.end + 1)]
            before = [beta[span.begin - node] if node <= span.begin else 0 for node in range(1, span.end + 1)]
            exact = sum((after - less) * draw for after, less, draw in zip(entries, before, draws, strict=True))
            total += Fraction(exact, 2**_FIXED_BITS)
        else:
            total += Fraction(int(evaluate(plan, own, span.end, series_keys(0, 1), since=span.begin)[0]), 2**plan.shift)
    return total


def worst_rounding(plan: Any, seeds: int) -> tuple[float, int]:
    """How far rounding moved a window over a raise, and how many roundings its law tells."""
    worst, told, mechanism = 0.0, 0, mechanism_of(plan=plan)
    counters = mechanism.counters[0]
    with raised_at(RAISES):
        exact = ran(mechanism, NoNoise()).between(1, 7).value["count"].estimate
        for seed in range(seeds):
            noise = SeededNoise(seed)
            run = ran(mechanism, noise)
            value = run.between(1, 7).value["count"]
            spans = run._state.segments.window(1, 7, size=1).spans
            assert len(spans) == 3
            there = unrounded(counters, spans, noise.at("head", "count"))
            worst, told = max(worst, float(abs(value.estimate - exact - there))), value.law.roundings
    return worst, told


@pytest.mark.parametrize("plan", [HaarPlan, SplinePlan])
def test_a_window_over_raises_is_rounded_once(plan: Any) -> None:
    worst, told = worst_rounding(plan, 30)
    assert worst <= 0.5
    assert told == 1


def test_noise_that_comes_rounded_is_rounded_in_each_segment_and_the_law_says_so() -> None:
    worst, told = worst_rounding(ToeplitzPlan, 30)
    assert 0.5 < worst <= 1.5
    assert told == 3


class RoundedApart(SegmentWindow):
    """Mutant: each segment is rounded by itself, and one rounding is claimed."""

    def estimates(self, counters: Counters, moves: NDArray[np.int64], noise: Any, keys: Keys) -> NDArray[np.int64]:
        for span in self.spans:
            moves = SegmentWindow(moves, (span,), self.cut).estimates(counters, moves, noise, keys)
        return moves


def test_two_roundings_claimed_as_one_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.users.segments.SegmentWindow", RoundedApart)
    worst, told = worst_rounding(HaarPlan, 30)
    assert worst > told / 2


# Price: what a window may show, node by node


def lost_with_windows(mechanism: Any, user: int) -> Fraction:
    """What the releases lose and all rows that a window may show: of each start up to the tick of the next raise."""
    worlds = [batches(), without(batches(), user)]
    tapes = [taped(mechanism, ticks, RAISES) for ticks in worlds]
    with raised_at(RAISES):
        runs = [ran(mechanism, NoNoise(), ticks) for ticks in worlds]
    total = Fraction(0)
    for number, counters in tapes[0].counters.items():
        starts: dict[Place, NDArray[np.int64]] = {}
        for (place, tick, one), (_, _, other) in zip(*(tape.entries[number] for tape in tapes), strict=True):
            if place not in starts:
                starts[place] = one - other if tick == place[2] else np.zeros_like(one)
        ends = [*(since for _, _, since in list(starts)[1:]), TICKS]
        for (place, prefix), end in zip(starts.items(), ends, strict=True):
            steps = [(place[2], prefix)] if place[2] else []
            held = prefix.copy()
            for tick in range(place[2] + 1, end + 1):
                one, other = (run._state.segments.window(tick - 1, tick, size=1).moves for run in runs)
                held = held + one - other
                steps.append((tick, held.copy()))
            total += price(counters, place, steps)
    return total


@pytest.mark.parametrize("kind", [UserStatistics, UserSum])
@pytest.mark.parametrize("plan", [TreePlan, HaarPlan])
def test_all_that_windows_may_show_is_paid_for(kind: Any, plan: Any) -> None:
    mechanism = mechanism_of(kind, plan=plan)
    worst = max(lost_with_windows(mechanism, user) for user in range(5))
    assert Fraction(1) < worst <= mechanism.rho


class Backfilled(Segments):
    """Mutant: at the tick of a raise, what the higher cap lets in of earlier ticks is counted in the segment."""

    def close(self, *, kept: int = 0) -> None:
        more = np.array([kept - self._counted - self.kept], dtype=np.int64)
        Segments.add_all(self, more)
        Segments.close(self, kept=kept)

    def add_all(self, moves: NDArray[np.int64]) -> None:
        self._counted = int(moves[0])
        Segments.add_all(self, moves)


def test_a_backfill_in_the_tick_of_a_raise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.users.segments.Segments", Backfilled)
    mechanism = mechanism_of(UserSum, plan=TreePlan)
    assert max(lost_with_windows(mechanism, user) for user in range(5)) > mechanism.rho


# A tiny world, exactly


class WrittenLaplace(NoNoise):
    """Laplace draws written down by path, one for each node; what is not written is zero."""

    def __init__(self, draws: dict[tuple[PathPart, ...], int], path: tuple[PathPart, ...] = ()) -> None:
        self.draws, self.path = draws, path

    def at(self, *path: PathPart) -> "WrittenLaplace":
        return WrittenLaplace(self.draws, self.path + path)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        out[:] = self.draws.get(self.path, 0)


REACH, LOOKED_AT = 5, 2
TINY = AdaptiveCap(epsilon=Fraction(1), first=1, fourfold=0, levels=2)
HERS = [pl.DataFrame({"user": ["she", "other"]}), pl.DataFrame({"user": ["she", "she"]})]


def tiny() -> Any:
    return UserStatistics(cap=TINY, plan=TreePlan, horizon=2, epsilon=Fraction(2), history=2)


def tiny_nodes(mechanism: Any) -> list[tuple[tuple[PathPart, ...], float]]:
    """The draws of both starts, with their scales."""
    counters = mechanism.counters[0]
    plan, prefix = counters.plan(1, 1, 0), counters.prefix(2, 2, 2)
    used = dict.fromkeys(node for end in (1, 2) for node in difference_weights(plan, 0, end))
    own = [(("head", "count", 1, 1, 0, "plan", *node), float(plan.noises[node[0]].scale)) for node in used]
    return [*own, (("head", "count", 2, 2, 2, "prefix"), float(prefix.scale))]


def transcript(mechanism: Any, ticks: list[pl.DataFrame], draws: tuple[int, ...], *, windows: bool) -> list[int]:
    """What is seen if nodes have these draws and the cap is raised at tick 2."""
    paths = [path for path, _ in tiny_nodes(mechanism)]
    with raised_at({2: 1}):
        run: Run[Any, Any, Any] = Run(mechanism, WrittenLaplace(dict(zip(paths, draws, strict=True))))
        seen = []
        for batch in ticks:
            run.update(batch)
            seen.append(run.release().value["count"].estimate)
        asked = [(0, 1), (0, 2), (1, 2)] if windows else []
        return seen + [run.between(*interval).value["count"].estimate for interval in asked]


def outcomes(mechanism: Any, ticks: list[pl.DataFrame], *, windows: bool) -> dict[tuple[int, ...], float]:
    """The chance of each transcript, over all noise. A tree is rounded nowhere, so that draws just add up."""
    scales = np.array([scale for _, scale in tiny_nodes(mechanism)])
    nothing = np.zeros(len(scales), dtype=np.int64)

    def seen_with(draws: Any) -> NDArray[np.int64]:
        return np.array(transcript(mechanism, ticks, tuple(map(int, draws)), windows=windows))

    base = seen_with(nothing)
    effects = np.array([seen_with(row) - base for row in np.eye(len(scales), dtype=np.int64)])
    for draws in ((3, -2, 1), (-5, 4, -1)):
        assert (seen_with(draws) == base + np.array(draws) @ effects).all()
    found: dict[tuple[int, ...], float] = {}
    for each in product(range(-REACH, REACH + 1), repeat=len(scales)):
        seen = tuple((base + np.array(each) @ effects).tolist())
        found[seen] = found.get(seen, 0.0) + math.exp(-float((np.abs(each) / scales).sum()))
    return found


def worst_ratio(mechanism: Any, *, windows: bool) -> float:
    """The largest loss at a transcript that noise within reach makes in both worlds."""
    one = outcomes(mechanism, HERS, windows=windows)
    other = outcomes(mechanism, without(HERS, "she"), windows=windows)
    inner = [seen for seen in one if seen in other and all(-LOOKED_AT <= value <= LOOKED_AT + 1 for value in seen)]
    return max(abs(math.log(one[seen] / other[seen])) for seen in inner)


def test_in_a_tiny_world_windows_lose_no_more_than_the_budget(tell_worst: Any) -> None:
    """Both starts together: without windows the row of the old start at the tick of the raise stays unseen."""
    mechanism = tiny()
    plain, shown = worst_ratio(mechanism, windows=False), worst_ratio(mechanism, windows=True)
    tell_worst("windows of users over a raise, all of them", shown / float(mechanism.epsilon))
    assert plain <= shown <= float(mechanism.epsilon) + 1e-9
    assert shown > 0.99 * float(mechanism.epsilon)  # it is attained


def test_in_a_tiny_world_a_backfill_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.users.segments.Segments", Backfilled)
    mechanism = tiny()
    assert worst_ratio(mechanism, windows=True) > float(mechanism.epsilon) + 0.1


# Bars


HEADS = (
    CountHead(name="count"),
    SumHead(name="sum", low=0, high=3),
    HistogramHead(name="labels", domain=Domain(["1", "2", "3"])),
    QuantilesHead(name="median", low=0, high=4, depth=3),
)
RULES = {"follows": CAP, "fixed": FixedCap(units=4), "period": PeriodCap(units=4, ticks=3)}


def rows(user_count: int = 15) -> list[pl.DataFrame]:
    found = []
    for frame in batches(user_count):
        values = frame["value"]
        found.append(frame.with_columns(sum=values, labels=values.cast(pl.String), median=values.cast(pl.Float64)))
    return found


def misses(value: Any, truth: Any, coverage: float) -> Iterator[bool]:
    """Whether each bar of a value fails to hold what was kept."""
    if hasattr(value, "quantile"):
        low, high = value.bars(Fraction(1, 2), coverage)
        yield not low <= truth.quantile(Fraction(1, 2)) <= high
    elif hasattr(value, "labels"):
        for (low, high), exact in zip(value.bars(coverage), truth.estimates.tolist(), strict=True):
            yield not low <= exact <= high
        low, high = value.largest.bars(coverage)
        yield not low <= truth.largest.estimate <= high
    else:
        low, high = value.bars(coverage)
        yield not low <= truth.estimate <= high


def values_of(release: Any) -> dict[str, Any]:
    return release.values if hasattr(release, "values") else {"": release}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kind", [UserStatistics, UserSum, UserDistinct])
def test_bars_of_windows_hold_what_was_kept(kind: Any, rule: str) -> None:
    fields = {"heads": HEADS, "rho": Fraction(8)} if kind is UserStatistics else {}
    mechanism = mechanism_of(kind, cap=RULES[rule], plan=TreePlan if rule == "fixed" else HaarPlan, **fields)
    asked, ticks = [(0, 2), (1, 4), (4, 5), (3, 7)], rows()
    missed: dict[str, list[bool]] = {}
    with raised_at(RAISES if rule == "follows" else {}):
        truth = ran(mechanism, NoNoise(), ticks)
        for seed in range(RUNS):
            run = ran(mechanism, SeededNoise(seed), ticks)
            for interval in asked:
                exact = values_of(truth.between(*interval).value)
                for name, value in values_of(run.between(*interval).value).items():
                    missed.setdefault(name, []).extend(misses(value, exact[name], 0.95))
    for name, each in missed.items():
        # Numbers of one run share noise: four standard deviations of so many runs.
        assert np.mean(each) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / RUNS), (name, np.mean(each))


def test_bars_of_half_the_width_are_caught() -> None:
    """The same check, of a count, with bars for half the noise."""
    mechanism = mechanism_of()
    each = []
    with raised_at(RAISES):
        exact = ran(mechanism, NoNoise()).between(1, 7).value["count"].estimate
        for seed in range(80):
            value = ran(mechanism, SeededNoise(seed)).between(1, 7).value["count"]
            each.append(abs(value.estimate - exact) > value.law.half_width(0.95) / 2)
    assert np.mean(each) > 0.05 + 4 * math.sqrt(0.05 * 0.95 / 80)


def test_with_most_units_bars_reach_over_the_cut_where_there_is_no_raise() -> None:
    """All that each user did, also beyond the cap: fewer than `users_above` lost anything."""
    cap = AdaptiveCap(epsilon=Fraction(4), first=2, fourfold=0, levels=3)
    mechanism = mechanism_of(cap=cap)
    ticks = batches()
    most = max(ticks[0]["user"].value_counts()["count"].to_list()) * TICKS
    with raised_at({2: 1}):
        run = ran(mechanism, NoNoise(), ticks)
    value = run.between(3, 6).value["count"]
    assert value.estimate < sum(map(len, ticks[3:6])) <= value.bars(0.95, most_units=most).high
    over = run.between(1, 6).value["count"]
    assert over.cut.is_raised
    assert over.cut.most_missing(most) is None
