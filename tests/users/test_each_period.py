"""Statistics that begin anew with each period: what they count, exact laws of tiny streams, restarts and mutants."""

import math
import os
from collections import Counter as Bag
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Self

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.shared_checks import resumed, stored

from pianissimo.budget import Budget
from pianissimo.errors import HorizonError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked, Mixed, Pure, Unit
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, HaarSkipPlan, Noise, SplinePlan, TreePlan
from pianissimo.noise.keyed import Integers, Keys, OuterNoise, PathPart
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.unit import EvenPeriods
from pianissimo.users import (
    CountHead,
    EachPeriod,
    FixedCap,
    HistogramHead,
    OctaveCap,
    PeriodCap,
    UserDistinct,
    UserStatistics,
    UserSum,
)
from pianissimo.users.each_period import EachPeriodState, OnePeriod, PeriodStates
from pianissimo.users.user_labels import UserLabels

Rows = list[tuple[str, str, int]]
"""Of each event the user, a label and a value."""

ONE: dict[str, Any] = {"plan": TreePlan, "horizon": 3, "rho": Fraction(2), "history": 3}
PERIODS = EvenPeriods(3, starts=2)
"""The first has one tick."""

TICKS: list[Rows] = [
    [("ann", "x", 1), ("bob", "x", 2)],
    [("ann", "x", 1), ("ann", "y", 1), ("ann", "z", 5), ("bob", "y", 1)],
    [],
    [("ann", "x", 1), ("bob", "y", 3), ("eve", "x", 1)],
    [],
    [("ann", "x", 1), ("bob", "x", 1)],
    [("ann", "x", 1), ("ann", "x", 2), ("ann", "y", 1)],
    [("ann", "x", 1)],
]
PERIOD_OF = [0, 1, 1, 1, 2, 2, 2, 3]
CAP = 2
DOMAIN = Domain(["x", "y", "z"])


def frame(rows: Rows) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"user": pl.String, "label": pl.String, "value": pl.Int64}, orient="row")


def as_values(rows: Rows) -> pl.DataFrame:
    return frame(rows).select("user", value="label")


def kept(rows: Rows) -> list[tuple[str, str, int]]:
    """The first so many events of each user."""
    seen: Bag[str] = Bag()
    found = []
    for row in rows:
        seen[row[0]] += 1
        found += [row] if seen[row[0]] <= CAP else []
    return found


def by_label(rows: Rows) -> dict[str, int]:
    return dict(Bag(label for _, label, _ in kept(rows)))


def values(rows: Rows) -> int:
    """How many different values the first different ones of each user are."""
    pairs = list(dict.fromkeys((user, label, 0) for user, label, _ in rows))
    return len({label for _, label, _ in kept(pairs)})


def total(rows: Rows) -> int:
    return sum(min(CAP, sum(value for user, _, value in rows if user == who)) for who in {row[0] for row in rows})


def users_of(rows: Rows) -> dict[str, int]:
    pairs = list(dict.fromkeys((user, label, 0) for user, label, _ in rows))
    return by_label(pairs)


Asked = tuple[Any, Callable[[Rows], pl.DataFrame], Callable[[Any], Any], Callable[[Rows], Any]]

KINDS: dict[str, Asked] = {
    "count": (
        UserStatistics(cap=FixedCap(units=CAP), heads=(CountHead(),), **ONE),
        frame,
        lambda value: value["count"].estimate,
        lambda rows: len(kept(rows)),
    ),
    "distinct": (UserDistinct(cap=FixedCap(units=CAP), **ONE), as_values, lambda value: value.estimate, values),
    "sum": (UserSum(cap=FixedCap(units=CAP), **ONE), frame, lambda value: value.estimate, total),
    "labels": (
        UserLabels(cap=FixedCap(units=CAP), domain=DOMAIN, per_label=1, **ONE),
        frame,
        lambda value: value.to_dict(),
        lambda rows: dict.fromkeys("xyz", 0) | users_of(rows),
    ),
}
UNKNOWN: Asked = (
    UserLabels(cap=FixedCap(units=CAP), delta=Fraction(1, 2), per_label=1, **(ONE | {"rho": Fraction(900)})),
    *KINDS["labels"][1:],
)


def anew(inner: Any, kind: type[EachPeriod] = EachPeriod, **fields: Any) -> EachPeriod:
    return kind(**({"inner": inner, "periods": PERIODS, "horizon": 2**32} | fields))


def released(mechanism: Any, ask: Asked, noise: Noise, *, restart: bool, ticks: list[Rows] | None = None) -> list[Any]:
    """What is released tick by tick; with a restart after each."""
    run: Run[Any, Any, Any] = Run(mechanism, noise)
    found: list[Any] = []
    logs: list[Any] = []
    for rows in TICKS if ticks is None else ticks:
        run.update(ask[1](rows))
        found.append(ask[2](run.release().value))
        if run.log_length:
            logs = [*logs, run.log()][-run.log_length :]
        if restart:
            run = resumed(mechanism, noise, stored(run), logs)
    return found


def plainly(truth: Callable[[Rows], Any], ticks: list[Rows], periods: list[int]) -> list[Any]:
    """The statistic of the events of each tick's period up to it."""
    return [
        truth(
            [row for rows, own in zip(ticks[:tick], periods, strict=False) if own == periods[tick - 1] for row in rows]
        )
        for tick in range(1, len(ticks) + 1)
    ]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_without_noise_it_is_the_statistic_of_each_period(name: str, restart: bool) -> None:
    ask = KINDS[name]
    assert released(anew(ask[0]), ask, NoNoise(), restart=restart) == plainly(ask[3], TICKS, PERIOD_OF)


@pytest.mark.parametrize("name", [*KINDS, "unknown labels"])
def test_a_restart_after_every_tick_changes_nothing(name: str) -> None:
    ask, noise = KINDS.get(name, UNKNOWN), SeededNoise(7)
    assert released(anew(ask[0]), ask, noise, restart=True) == released(anew(ask[0]), ask, noise, restart=False)


def test_a_window_lies_within_its_period_also_right_after_its_end() -> None:
    ask = KINDS["count"]
    mechanism = anew(ask[0])
    run: Run[Any, Any, Any] = Run(mechanism, NoNoise())
    logs: list[Any] = []
    for rows in TICKS[:4]:
        run.update(frame(rows))
        run.release()
        logs = [*logs, run.log()][-run.log_length :]
    for each in (run, resumed(mechanism, NoNoise(), stored(run), logs)):
        # Tick 4 ends a period: ann's third event of tick 2, and hers of tick 4, are beyond the cap.
        assert each.between(1, 4).value["count"].estimate == 5
        assert each.between(2, 4).value["count"].estimate == 2
        with pytest.raises(ParameterError, match="must lie within the present period"):
            each.between(0, 4)


def test_the_promise_is_that_of_one_period() -> None:
    inner = KINDS["count"][0]
    made = anew(inner)
    assert made.guarantee.unit is Unit.USER_PERIOD
    assert (made.guarantee.loss, made.guarantee.horizon) == (inner.guarantee.loss, 2**32)
    with pytest.raises(ParameterError, match="within the horizon of what runs in it"):
        anew(inner, periods=EvenPeriods(4))


# The cap that follows.

RULE = OctaveCap(epsilon=Fraction(1, 5), first=4, levels=6)


def following(units: list[int], noise: Noise | None = None, rule: OctaveCap = RULE) -> list[int]:
    """The caps of periods of one tick, in which so many events come of each of so many users that the target counts."""
    inner = UserStatistics(cap=FixedCap(units=32), plan=TreePlan, horizon=1, rho=Fraction(1, 2))
    run: Run[Any, Any, Any] = Run(
        EachPeriod(inner=inner, periods=EvenPeriods(1), horizon=99, follow=rule), NoNoise() if noise is None else noise
    )
    caps = []
    for each in units:
        users = np.repeat(np.arange(rule.target + 1), each)
        run.update(pl.DataFrame({"user": users}, schema={"user": pl.Int64}))
        caps.append(run.release().value.cap)
    return caps


def test_the_cap_rises_and_falls_from_period_to_period() -> None:
    assert following([1, 9, 5, 900, 2, 1]) == [4, 1, 16, 8, 32, 2]


def test_the_cap_follows_by_units_beyond_the_one_that_holds_for_labels_too() -> None:
    inner = UserLabels(cap=FixedCap(units=32), delta=Fraction(1, 100), plan=TreePlan, horizon=1, rho=Fraction(1))
    mechanism = EachPeriod(inner=inner, periods=EvenPeriods(1), horizon=9, follow=RULE)
    run: Run[Any, Any, Any] = Run(mechanism, NoNoise())
    caps = []
    for units in (20, 3):
        users = [str(user) for user in range(RULE.target + 1) for _ in range(units)]
        run.update(pl.DataFrame({"user": users, "label": "x"}))
        caps.append(run.release().value.cut.cap)
    assert (caps, run._state.periods.open.cap) == ([4, 32], 4)


def test_the_noise_of_the_number_above_is_that_of_the_card() -> None:
    """Standard deviation 7 for one octave, 32 for twenty, at an epsilon of .2."""
    deviation = math.sqrt(RULE.node.variance)
    assert (round(deviation), round(math.sqrt(20) * deviation)) == (7, 32)
    assert RULE.loss <= RULE.epsilon


def test_a_first_period_that_is_shorter_does_not_set_the_cap() -> None:
    inner = UserStatistics(cap=FixedCap(units=32), plan=TreePlan, horizon=3, rho=Fraction(1, 2))
    run: Run[Any, Any, Any] = Run(EachPeriod(inner=inner, periods=PERIODS, horizon=9, follow=RULE), NoNoise())
    caps = [run.release().value.cap for _ in range(6)]
    assert caps == [4, 4, 4, 4, 1, 1]


def test_the_price_of_the_cap_stands_beside_that_of_the_counters() -> None:
    inner = UserStatistics(cap=FixedCap(units=32), plan=TreePlan, horizon=1, rho=Fraction(1, 2))
    loss = EachPeriod(inner=inner, periods=EvenPeriods(1), horizon=9, follow=RULE).guarantee.loss
    assert isinstance(loss, Mixed)
    assert (loss.pure, loss.rho) == (RULE.loss, Fraction(1, 2))


# A tiny stream, all of whose outcomes are enumerated: two periods of one tick, two caps, Laplace noise.

TINY_CAP = OctaveCap(epsilon=Fraction(1), first=1, levels=2)
TINY = EachPeriod(
    inner=UserStatistics(cap=FixedCap(units=2), plan=TreePlan, horizon=1, epsilon=Fraction(1)),
    periods=EvenPeriods(1),
    horizon=2,
    follow=TINY_CAP,
)
HERS, NOBODY = [("her", "x", 1)] * 2, list[tuple[str, str, int]]()
OTHERS = [(str(user), "x", 1) for user in range(TINY_CAP.target) for _ in range(2)]


class Scripted(OuterNoise):
    """Noise that is given for the histogram of octaves, and absent elsewhere."""

    def __init__(self, given: tuple[int, ...], *, here: bool = False) -> None:
        super().__init__(NoNoise())
        self._given, self._here = given, here

    def at(self, *path: PathPart) -> Self:
        return type(self)(self._given, here=self._here or "octaves" in path)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        out[:] = self._given if self._here else 0


def law_of(ticks: list[Rows]) -> dict[int, tuple[float, tuple[int, ...]]]:
    """For each second cap its chance, and the exact counts with it: the mechanism under all noise of the histogram.

    With two caps the first bucket has no say. Noise of 20 stands for all that is larger, which chooses the same.
    """
    found: dict[int, tuple[float, tuple[int, ...]]] = {}
    ratio = math.exp(-1 / TINY_CAP.node.scale)
    for noise in range(-20, 21):
        run: Run[Any, Any, Any] = Run(TINY, Scripted((0, noise)))
        values = []
        for rows in ticks:
            run.update(frame(rows))
            values.append(run.release().value)
        cap, counts = values[-1].cap, tuple(value["count"].estimate for value in values)
        chance = ratio ** abs(noise) / (1 + ratio) * (1 if abs(noise) == 20 else 1 - ratio)
        assert found.get(cap, (0.0, counts))[1] == counts
        found[cap] = (found.get(cap, (0.0, counts))[0] + chance, counts)
    return found


def worst_ratio(one: list[Rows], other: list[Rows]) -> float:
    """The largest log-ratio of the chances of an outcome: two releases and the cap between them.

    Given the cap, both releases have Laplace noise on exact counts, whose log-ratio is largest beyond both counts.
    """
    laws, ratios = [law_of(each) for each in (one, other)], []
    for cap in laws[0].keys() | laws[1].keys():
        (chance, counts), (chance_without, counts_without) = (law[cap] for law in laws)
        moved = [abs(mine - theirs) for mine, theirs in zip(counts, counts_without, strict=True)]
        ratios.append(abs(math.log(chance / chance_without)) + moved[0] / _scale(1) + moved[1] / _scale(cap))
    return max(ratios)


def _scale(cap: int) -> float:
    mechanism = TINY.under(cap)
    (counters,) = mechanism.counters
    plan = counters.plan(1, cap, 0)
    assert plan is not None
    return float(plan.noises[0].scale)


PAIRS = [
    ([[*OTHERS, *HERS], OTHERS], [OTHERS, OTHERS]),
    ([OTHERS, [*OTHERS, *HERS]], [OTHERS, OTHERS]),
    ([[*OTHERS, *HERS], [*OTHERS, *HERS]], [[*OTHERS, *HERS], OTHERS]),
    ([[*OTHERS, *HERS], [*OTHERS, *HERS]], [OTHERS, [*OTHERS, *HERS]]),
    ([HERS, HERS], [NOBODY, HERS]),
]


def test_the_exact_law_of_two_periods_keeps_the_promise_of_one(tell_worst: Any) -> None:
    loss = TINY.guarantee.loss
    assert isinstance(loss, Pure)
    found = [worst_ratio(*pair) for pair in PAIRS]
    tell_worst("a period after another, and the cap between them", max(found) / float(loss.epsilon))
    assert 0.9 * float(loss.epsilon) < max(found) <= float(loss.epsilon) + 1e-12


rows_of_a_tick = st.lists(st.tuples(st.sampled_from(["ann", "bob", "eve"]), st.sampled_from("xyz"), st.integers(0, 3)))


@settings(max_examples=15, deadline=None)
@given(ticks=st.lists(rows_of_a_tick, min_size=8, max_size=8), period=st.integers(0, 3), name=st.sampled_from([*KINDS]))
def test_her_events_of_one_period_move_that_period_alone_and_by_no_more_than_the_cap(
    ticks: list[Rows], period: int, name: str
) -> None:
    ask = KINDS[name]
    fewer = [
        [row for row in rows if own != period or row[0] != "ann"] for rows, own in zip(ticks, PERIOD_OF, strict=True)
    ]
    shown, without = (released(anew(ask[0]), ask, NoNoise(), restart=False, ticks=each) for each in (ticks, fewer))
    for own, one, other in zip(PERIOD_OF, shown, without, strict=True):
        numbers = [each.values() if isinstance(each, dict) else [each] for each in (one, other)]
        moved = sum(abs(mine - theirs) for mine, theirs in zip(*numbers, strict=True))
        assert moved <= (CAP if own == period else 0)


# Mutants.


class WithoutNumber(EachPeriod):
    """Mutant: the path of a period's noise does not hold its number."""

    def start(self, noise: Noise) -> EachPeriodState:
        class Pathless(PeriodStates):
            def turn(self, cap: int) -> None:
                super().turn(cap)
                self.open.noise = noise.at("period", 1)

        return EachPeriodState(Pathless(self, noise))


def test_noise_that_comes_again_in_the_next_period_is_caught() -> None:
    inner = UserStatistics(cap=FixedCap(units=2), plan=TreePlan, horizon=3, rho=Fraction(1, 200))
    ask: Asked = (inner, frame, lambda value: value["count"].estimate, len)
    ticks = [TICKS[0]] * 9

    def repeats(kind: type[EachPeriod]) -> bool:
        shown = released(anew(inner, kind, periods=EvenPeriods(3)), ask, SeededNoise(3), restart=False, ticks=ticks)
        return bool(shown[:3] == shown[3:6] == shown[6:])

    assert repeats(WithoutNumber)
    assert not repeats(EachPeriod)


class AtFirstEvent(EachPeriod):
    """Mutant: a period is cleared at the first event of the next one, and not at the public boundary."""

    def release(self, state: EachPeriodState, tick: int, noise: Noise) -> Any:
        periods = state.periods
        if periods.before is not None and not len(periods.open.state.users):
            value = periods.before.mechanism.release(periods.before.state, self.inner.horizon, periods.before.noise)
            EachPeriod.release(self, state, tick, noise)
            return value
        return EachPeriod.release(self, state, tick, noise)


class NonEmpty(EachPeriod):
    """Mutant: a period is so many ticks that have events."""

    def release(self, state: EachPeriodState, tick: int, noise: Noise) -> Any:
        if not len(state.periods.open.state.users):
            state.periods.open.last += 1
        return EachPeriod.release(self, state, tick, noise)


@pytest.mark.parametrize("kind", [AtFirstEvent, NonEmpty])
def test_a_period_that_ends_by_its_events_is_caught(kind: type[EachPeriod]) -> None:
    ask = KINDS["count"]
    wanted = plainly(ask[3], TICKS, PERIOD_OF)
    assert released(anew(ask[0], kind), ask, NoNoise(), restart=False) != wanted


@identified("test-loses-pairs")
class LosesPairs(EachPeriod):
    """Mutant: a restart within a period loses which user gave which value."""

    def start(self, noise: Noise) -> EachPeriodState:
        class Losing(PeriodStates):
            def take_logged(self, content: Any, logs: Any) -> None:
                super().take_logged(content, logs)
                self.open.state.pairs.clear()

        return EachPeriodState(Losing(self, noise))


@pytest.mark.parametrize("name", ["distinct", "labels"])
def test_pairs_that_a_restart_within_a_period_loses_are_caught(name: str) -> None:
    """Her value counts towards the cap again, so that a later one of hers is left out, or one counts twice."""
    ask = KINDS[name]
    ticks = [[], [("ann", "x", 1), ("eve", "x", 1)], [("ann", "x", 1), ("eve", "x", 1)], [("ann", "y", 1)]]
    kinds = (EachPeriod, LosesPairs)
    sound, broken = (released(anew(ask[0], kind), ask, NoNoise(), restart=True, ticks=ticks) for kind in kinds)
    straight = released(anew(ask[0]), ask, NoNoise(), restart=False, ticks=ticks)
    assert sound == straight
    assert broken != straight


def test_values_that_are_seen_for_the_whole_run_are_not_those_of_a_period() -> None:
    """Mutant: a set of values that outlasts its period, where each period is said to cost one rho."""
    ask = KINDS["distinct"]
    running = UserDistinct(cap=PeriodCap(units=CAP, ticks=3), **(ONE | {"horizon": 9}))
    ticks: list[Rows] = [[("ann", "x", 1)], [], [], [("ann", "y", 1)]]
    mechanism = anew(ask[0], periods=EvenPeriods(3))
    assert released(mechanism, ask, NoNoise(), restart=False, ticks=ticks) == [1, 1, 1, 1]
    assert released(running, ask, NoNoise(), restart=False, ticks=ticks) == [1, 1, 1, 2]


def test_totals_that_run_on_cannot_have_the_thresholds_of_one_period() -> None:
    """Mutant: R of one period while totals run on; the run ends with the ticks that R counts."""
    labels = UserLabels(cap=PeriodCap(units=1, ticks=2), delta=Fraction(1, 100), per_label=1, **(ONE | {"horizon": 2}))
    run: Run[Any, Any, Any] = Run(labels, NoNoise())
    run.release()
    run.release()
    with pytest.raises(HorizonError):
        run.release()


# Thresholds and bars.


@pytest.mark.parametrize(("units", "mean", "largest"), [(1, 86, 104), (4, 174, 211), (16, 354, 432), (64, 724, 883)])
def test_thresholds_of_a_day_meet_the_vectors(units: int, mean: int, largest: int) -> None:
    """Users per label at (1, 1e-9), 24 ticks; those of 8,760 running ticks are more than twice as high."""
    half = Fraction(5, 10**10)
    rho = Budget(1, half).rho()
    found = []
    for plan in (HaarPlan, HaarSkipPlan, SplinePlan):
        made = UserLabels(cap=FixedCap(units=units), per_label=1, plan=plan, horizon=24, rho=rho, delta=half)
        thresholds = [made.threshold(tick) or 0 for tick in range(1, 25)]
        found.append((sum(thresholds) / 24, max(thresholds)))
    assert any(round(each) <= mean and most <= largest for each, most in found)


def test_bars_hold_as_often_as_they_say() -> None:
    """At every tick of three periods, whose caps follow: 95 % of the bars hold what was kept."""
    runs = 2000 if os.environ.get("PIANISSIMO_SOAK") else 40
    rule = OctaveCap(epsilon=Fraction(1), first=2, levels=3)
    inner = UserStatistics(
        cap=FixedCap(units=4),
        heads=(HistogramHead(name="label", domain=DOMAIN),),
        plan=HaarPlan,
        horizon=3,
        rho=Fraction(1),
    )
    mechanism = EachPeriod(inner=inner, periods=PERIODS, horizon=99, follow=rule)
    held = asked = 0
    for seed in range(runs):
        run: Run[Any, Any, Any] = Run(mechanism, SeededNoise(seed))
        so_far: Rows = []
        for rows, own in zip(TICKS, PERIOD_OF, strict=True):
            run.update(frame(rows))
            release = run.release().value
            so_far = [row for row in so_far if row[2] == own] + [(user, label, own) for user, label, _ in rows]
            seen: Bag[str] = Bag()
            truth: Bag[str] = Bag()
            for user, label, _ in so_far:
                seen[user] += 1
                truth[label] += seen[user] <= release.cap
            value = release["label"]
            for label, bars in zip(value.labels.to_list(), value.bars(0.95), strict=True):
                held += bars.low <= truth[label] <= bars.high
                asked += 1
    print(f"bars of periods: {held / asked:.4f} of {asked} held, {runs} runs")
    assert held / asked >= 0.95 - 4 * math.sqrt(0.05 * 0.95 / (runs * 8))


def test_losses_of_periods_are_those_of_the_wrapped_mechanism_at_any_cap() -> None:
    made = EachPeriod(inner=TINY.inner, periods=EvenPeriods(1), horizon=2, follow=TINY_CAP)
    assert all(made.under(cap).guarantee.loss.epsilon == made.inner.guarantee.loss.epsilon for cap in (1, 2))
    assert isinstance(anew(KINDS["count"][0]).guarantee.loss, Booked)
    assert "hidden" in repr(made.start(NoNoise()).periods)
    assert isinstance(made.start(NoNoise()).periods.open, OnePeriod)
