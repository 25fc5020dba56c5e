"""Theorem R under attack: exact finite computations, the exact law of the code itself, and samples; mutants are caught.

The code is driven through every cell of its noise: decisions and values depend on the bits only through Z, so one row
of bits for each value of Z, with the mass of that value, gives the exact law of all that a small run publishes. Values
of less than a billionth are left out, which moves a delta by less than 1e-6; mutants are beyond their promise by 0.01.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Self

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from tests.audit.race_enumeration import delta_of_best_adversary, delta_of_equal_tests
from tests.monitors.forgetting import forgetting_monitor
from tests.monitors.noises import AlteredBits, rows
from tests.shared_checks import resumed, stored

from pianissimo.audit.attack import lower_rate, upper_rate
from pianissimo.labels import Domain
from pianissimo.loss.losses import Race
from pianissimo.loss.race_clock import hockey_sticks
from pianissimo.mechanism import Run
from pianissimo.monitors import FixedLength, TrendingMonitor, UserCharges
from pianissimo.monitors.race_monitor import race_noise
from pianissimo.monitors.trending_monitor import TrendingState
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys, PathPart
from pianissimo.testing import NoNoise, SeededNoise

HALF = Fraction(1, 2)
USER, OTHER = 1, 2
NEGLIGIBLE, CAUGHT = 1e-6, 0.01
Law = dict[Any, Fraction]
Ticks = Sequence[list[tuple[int, str]]]


@pytest.mark.parametrize(("epsilon", "charges", "scale"), [(1, 1, 10.92), (1, 4, 14.96), (0.5, 4, 3.0), (2, 6, 8.0)])
def test_many_tiny_tests_reach_the_bound_and_no_equal_tests_go_beyond(
    epsilon: float, charges: int, scale: float
) -> None:
    bounds = hockey_sticks(epsilon, charges, scale)
    for tests, reached in ((20, 0.0), (2000, 0.9995)):
        totals = np.geomspace(0.3, 6 * charges + 30, 40)
        found = [delta_of_equal_tests(epsilon, charges, scale, tests=tests, rate=total / tests) for total in totals]
        best = np.max(found, axis=0)
        assert np.all(best <= np.array(bounds) * (1 + 1e-9))
        assert best[0] >= reached * bounds[0]
        assert best[1] >= reached * bounds[1] or bounds[1] == 0


@pytest.mark.parametrize(("epsilon", "charges", "scale"), [(1, 4, 14.96), (0.5, 4, 3.0), (0.2, 3, 2.0)])
def test_an_adaptive_adversary_stays_below_the_bound(epsilon: float, charges: int, scale: float) -> None:
    rates = np.geomspace(0.02, 3, 8).tolist()
    best = delta_of_best_adversary(epsilon, charges, scale, tests=40, rates=rates)
    for found, bound in zip(best, hockey_sticks(epsilon, charges, scale), strict=True):
        assert found <= bound
        assert found >= 0.95 * bound


def test_one_charge_too_many_goes_beyond_the_bound() -> None:
    bounds = hockey_sticks(1, 4, 14.96)
    mutant = delta_of_equal_tests(1, 4, 14.96, tests=2000, rate=0.01, allowed=5)
    assert mutant[0] > 1.5 * bounds[0]


@dataclass
class Scripted(NoNoise):
    """The bits of the tests of each tick, one for each key in slot order."""

    script: dict[int, list[int]]
    path: tuple[PathPart, ...] = ()

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.script, self.path + path)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        assert self.path[0] == "test"
        return rows(self.script[int(self.path[1])][: len(keys)])


def cells(scale: Fraction) -> list[tuple[int, Fraction]]:
    """One number of bits for each value of the noise, with its mass."""
    law = race_noise(scale)
    values = range(law.first - 1, law.first + len(law.chances))
    return [
        (int(law.chance(value + 1) * 2**128), mass)
        for value in values
        if (mass := law.chance(value) - law.chance(value + 1)) > Fraction(1, 10**9)
    ]


def published(mechanism: TrendingMonitor, ticks: Ticks, noise: Noise, *, restart: bool = False) -> tuple[Any, ...]:
    run = Run(mechanism, noise)
    seen = []
    for batch in ticks:
        run.update(pl.DataFrame(batch, schema={"user": pl.Int64, "key": pl.String}, orient="row"))
        seen.append(tuple(run.release().value.to_dict().items()))
        if restart:
            run = resumed(mechanism, noise, stored(run))
    return tuple(seen)


def exact_law(
    mechanism: TrendingMonitor, ticks: Ticks, keys: int = 1, *, reuse: bool = False, restart: bool = False
) -> Law:
    """The law of all that is published, with values, over all bits of all tests."""
    law: Law = defaultdict(Fraction)
    drawn = 1 if reuse else keys
    for choice in product(cells(mechanism.scale), repeat=drawn * len(ticks)):
        bits = [each for each, _ in choice]
        script = {tick: bits[drawn * (tick - 1) : drawn * tick] * (keys // drawn) for tick in range(1, len(ticks) + 1)}
        law[published(mechanism, ticks, Scripted(script), restart=restart)] += math.prod(mass for _, mass in choice)
    assert 1 - 1e-8 < sum(law.values()) <= 1
    return law


def sticks(without: Law, with_her: Law, epsilon: float) -> tuple[float, float]:
    factor = Fraction(math.exp(epsilon))
    outcomes = without.keys() | with_her.keys()
    pairs = [(without.get(each, Fraction(0)), with_her.get(each, Fraction(0))) for each in outcomes]
    slow = sum(max(Fraction(0), one - factor * other) for one, other in pairs)
    fast = sum(max(Fraction(0), other - factor * one) for one, other in pairs)
    return float(slow), float(fast)


def excess(mechanism: TrendingMonitor, without: Law, with_her: Law) -> float:
    """By how much the best of some epsilons goes beyond the promise, in either direction."""
    loss = mechanism.guarantee.loss
    assert isinstance(loss, Race)
    worst = -math.inf
    for epsilon in (0.1, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0):
        bounds = hockey_sticks(epsilon, loss.charges, loss.scale)
        slack = float(loss.bad + (1 + Fraction(math.exp(epsilon))) * loss.distance)
        found = sticks(without, with_her, epsilon)
        worst = max(worst, *(here - bound - slack for here, bound in zip(found, bounds, strict=True)))
    return worst


def monitor(kind: type[TrendingMonitor] = TrendingMonitor, **fields: Any) -> TrendingMonitor:
    ready: dict[str, Any] = {
        "horizon": 2,
        "alarms_per_user": 1,
        "scale": HALF,
        "threshold": 1,
        "domain": Domain(["x"]),
    }
    return kind(**(ready | fields))


def test_the_exact_law_of_the_code_keeps_the_promise_values_included() -> None:
    mechanism = monitor()
    for others_there in ([], [(OTHER, "x")]):
        ticks = [others_there] * 2
        hers = [[*others, (USER, "x")] for others in ticks]
        assert excess(mechanism, exact_law(mechanism, ticks), exact_law(mechanism, hers)) <= NEGLIGIBLE


def test_the_exact_law_of_two_keys_in_one_tick_keeps_the_promise() -> None:
    mechanism = monitor(horizon=1, max_keys_per_user=2, domain=Domain(["x", "z"]))
    for hers in ([(USER, "x")], [(USER, "x"), (USER, "z")]):
        laws = exact_law(mechanism, [[]], 2), exact_law(mechanism, [hers], 2)
        assert excess(mechanism, *laws) <= NEGLIGIBLE
    # Both keys for the price of one would be too much.
    one_key = monitor(horizon=1, domain=Domain(["x", "z"]))
    assert excess(one_key, *laws) > CAUGHT


class ChargedOnBottom(UserCharges):
    """Mutant: charges the holders of what is not reported."""

    def close(self, reported: NDArray[np.bool_]) -> None:
        super().close(~reported)


class OneMore(TrendingMonitor):
    """Mutant: a user is inactive one charge too late."""

    __slots__ = ()

    def start(self, noise: Noise) -> TrendingState:
        state = super().start(noise)
        state.charges = UserCharges(noise, limit=self.alarms_per_user + 1, per_tick=self.max_keys_per_user)
        return state


class OnBottom(TrendingMonitor):
    """Mutant: see ChargedOnBottom."""

    __slots__ = ()

    def start(self, noise: Noise) -> TrendingState:
        state = super().start(noise)
        state.charges = ChargedOnBottom(noise, limit=self.alarms_per_user, per_tick=self.max_keys_per_user)
        return state


WITHOUT: Ticks = [[], []]
WITH_HER: Ticks = [[(USER, "x")], [(USER, "x")]]


@pytest.mark.parametrize("kind", [OneMore, OnBottom])
def test_mutant_charges_are_caught(kind: type[TrendingMonitor]) -> None:
    mutant = monitor(kind)
    assert excess(mutant, exact_law(mutant, WITHOUT), exact_law(mutant, WITH_HER)) > CAUGHT


def test_charges_that_a_restart_loses_are_caught_and_those_it_keeps_are_not() -> None:
    sound, mutant = monitor(), monitor(forgetting_monitor())
    assert excess(sound, exact_law(sound, WITHOUT), exact_law(sound, WITH_HER, restart=True)) <= NEGLIGIBLE
    assert excess(mutant, exact_law(mutant, WITHOUT), exact_law(mutant, WITH_HER, restart=True)) > CAUGHT


def test_noise_reused_between_the_tests_of_a_tick_is_caught() -> None:
    mechanism = monitor(horizon=1, domain=Domain(["x", "z"]))
    hers = [[(USER, "x")]]
    assert excess(mechanism, exact_law(mechanism, [[]], 2), exact_law(mechanism, hers, 2)) <= NEGLIGIBLE
    reused = exact_law(mechanism, [[]], 2, reuse=True), exact_law(mechanism, hers, 2, reuse=True)
    assert excess(mechanism, *reused) > CAUGHT


def unknown(threshold: int, skip: Fraction) -> TrendingMonitor:
    return monitor(domain=None, threshold=threshold, delta_skip=skip)


def test_skipped_empty_keys_keep_the_promise_with_their_share_of_delta_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = unknown(3, Fraction(1, 20))
    laws = exact_law(sound, WITHOUT), exact_law(sound, WITH_HER)
    assert excess(sound, *laws) <= NEGLIGIBLE
    # Without the share the same law is beyond the promise; and a threshold that the share does not pay for is too low.
    monkeypatch.setattr(TrendingMonitor, "_check_lone_keys", lambda _: None)
    assert excess(unknown(3, Fraction(1, 10**9)), *laws) > CAUGHT
    low = unknown(2, Fraction(1, 20))
    assert excess(low, exact_law(low, WITHOUT), exact_law(low, WITH_HER)) > CAUGHT


def copies(
    mechanism: TrendingMonitor, noise: Noise, names: Sequence[str], *, present: bool, ticks: int
) -> NDArray[np.int64]:
    """How often each of many keys is reported, each held by a user of its own or by nobody: independent copies."""
    run, counts = Run(mechanism, noise), dict.fromkeys(names, 0)
    users = pl.DataFrame({"user": range(len(names)), "key": names})
    for _ in range(ticks):
        if present:
            run.update(users)
        for key in run.release().value.labels.to_list():
            counts[key] += 1
    return np.array(list(counts.values()))


# The clocks of two charges are told apart best by fewer than two reports up to the time x0 = (1 + 2) / (e - 1); with
# threshold 3 and scale 1 a tick lasts e^-3.
EPSILON, TICKS, COPIES, FALSE_ALARM_RATE = 1.0, 35, 20_000, 1e-9
NAMES = [f"{place:05}" for place in range(COPIES)]


def shown_delta(counts: Iterable[NDArray[np.int64]]) -> float:
    """A lower bound on delta, wrong with probability at most FALSE_ALARM_RATE."""
    without, with_her = (int((each < 2).sum()) for each in counts)
    alpha = FALSE_ALARM_RATE / 2
    return lower_rate(without, COPIES, alpha) - math.exp(EPSILON) * upper_rate(with_her, COPIES, alpha)


@pytest.mark.parametrize(("kind", "sound"), [(TrendingMonitor, True), (OneMore, False)])
def test_samples_of_the_worst_pair_show_no_more_than_the_promise(kind: type[TrendingMonitor], sound: bool) -> None:
    mechanism = monitor(kind, horizon=TICKS, scale=Fraction(1), threshold=3, domain=Domain(NAMES))
    counts = [
        copies(mechanism, SeededNoise(seed), NAMES, present=present, ticks=TICKS)
        for seed, present in ((1, False), (2, True))
    ]
    bound = hockey_sticks(EPSILON, 1, 1)[0]
    assert (shown_delta(counts) <= bound) == sound


def test_samples_show_noise_that_is_reused_between_tests() -> None:
    # Keys in pairs; the user holds the first of each. Equal noise makes the first alone impossible without her.
    def reuse(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return np.repeat(bits[::2], 2, axis=0)

    mechanism = monitor(horizon=1, scale=Fraction(1), threshold=1, domain=Domain(NAMES))
    firsts = pl.DataFrame({"user": range(COPIES // 2), "key": NAMES[::2]})
    trials, alpha = COPIES // 2, FALSE_ALARM_RATE / 2
    for noises, sound in (
        ((SeededNoise(1), SeededNoise(2)), True),
        ((AlteredBits(1, reuse), AlteredBits(2, reuse)), False),
    ):
        alone = []
        for noise, present in zip(noises, (False, True), strict=True):
            run = Run(mechanism, noise)
            if present:
                run.update(firsts)
            reported = set(run.release().value.labels.to_list())
            alone.append(
                sum(
                    one in reported and other not in reported
                    for one, other in zip(NAMES[::2], NAMES[1::2], strict=True)
                )
            )
        # At epsilon 1 = 1 / scale the clocks allow nothing in this direction.
        shown = lower_rate(alone[1], trials, alpha) - math.e * upper_rate(alone[0], trials, alpha)
        assert (shown <= 0) == sound


def test_a_huge_domain_hides_a_lone_holder_as_a_known_one_does() -> None:
    # The user's key is reported, with her and without, as often as the race says: exact chances, many seeds.
    domain = FixedLength("abcdefghij", 2)
    mechanism = monitor(horizon=1, scale=Fraction(1), threshold=3, domain=domain)
    runs = 1000
    times = []
    for present in (False, True):
        found = 0
        for seed in range(runs):
            run = Run(mechanism, SeededNoise(seed + runs * present))
            if present:
                run.update(pl.DataFrame({"user": [USER], "key": ["cc"]}))
            found += "cc" in run.release().value.to_dict()
        times.append(found)
    law = race_noise(Fraction(1))
    for found, weight in zip(times, (0, 1), strict=True):
        chance = float(law.chance(3 - weight))
        assert lower_rate(found, runs, FALSE_ALARM_RATE) <= chance <= upper_rate(found, runs, FALSE_ALARM_RATE)
