"""The noise of a window is the difference of the noises of two releases, bit for bit, however little of it is drawn."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from tests.noise.test_bound_ticks import PLANS, Seals, keys

from pianissimo.noise import HaarPlan, HaarSkipPlan, KeyedNoise, Noise, SplinePlan, TopDownPlan, TreePlan
from pianissimo.noise.keyed import OuterNoise, add_draws, sealed
from pianissimo.noise.plan import NoisePlan, terms_of
from pianissimo.noise.running import OwnNoise, evaluate, running_noise
from pianissimo.noise.tree import DoublingPlan
from pianissimo.testing import SeededNoise

LONGER: list[NoisePlan] = [
    *(kind.calibrated(horizon=300, rho=0.01) for kind in (HaarPlan, HaarSkipPlan, SplinePlan, TreePlan, DoublingPlan)),
    TopDownPlan.calibrated(horizon=300, epsilon=0.5),
    HaarPlan.open(rho=0.1),
    TopDownPlan.open(epsilon=1.0),
]


class Passed(OuterNoise):
    """Noise as it is, drawn call by call."""

    __slots__ = ()

    def at(self, *path: Any) -> "Passed":
        return Passed(self.inner.at(*path))


def prefix(plan: NoisePlan, noise: Noise, tick: int, series: Any) -> Any:
    """The noise of one release by the book: node after node, each drawn by itself."""
    total = np.zeros(len(series), dtype=np.int64)
    for term in terms_of(plan, tick) if tick else ():
        node = term.level, term.node
        values = np.empty(len(series), dtype=np.int64)
        plan.noises[term.level].draw(sealed(noise, plan.bound_tick(*node)).at(*node), series, values)
        total += term.weight * values
    return total


def by_the_book(plan: NoisePlan, noise: Noise, start: int, end: int, series: Any) -> Any:
    if isinstance(plan, OwnNoise):
        return plan.evaluate(noise, end, series, since=start)
    return prefix(plan, noise, end, series) - prefix(plan, noise, start, series)


@pytest.mark.parametrize("plan", [*PLANS[::3], *LONGER], ids=lambda plan: f"{plan.name} {plan.horizon}")
def test_a_window_has_the_noise_of_its_ends(plan: NoisePlan) -> None:
    seals = Seals()
    noise, running = seals.noise(), running_noise(plan)
    some = np.array([5, 0, 3])
    first = min(271, max(1, plan.horizon - 18))
    for tick in range(first, min(plan.horizon, first + 18) + 1):
        seals.sealed = tick
        running.at(noise, tick, 6, keys)
        for start in {0, tick // 2, max(0, tick - 17)} if tick % 6 == 0 else {tick - 1}:
            expected = by_the_book(plan, noise, start, tick, keys(0, 6))
            assert (running.since(noise, start, tick, keys(0, 6)) == expected).all()
            assert (running.since(noise, start, tick, keys(0, 6)[some], some) == expected[some]).all()
            assert (evaluate(plan, noise, tick, keys(0, 6), since=start) == expected).all()
    # An older end, more series than are at hand, another noise: from nothing.
    begun = running_noise(plan)
    assert (begun.since(noise, start, tick, keys(0, 8)) == by_the_book(plan, noise, start, tick, keys(0, 8))).all()
    assert (running.since(noise, start, tick, keys(0, 8)) == by_the_book(plan, noise, start, tick, keys(0, 8))).all()
    far = np.array([0, 7])
    expected = by_the_book(plan, noise, start, tick, keys(0, 8)[far])
    assert (running.since(noise, start, tick, keys(0, 8)[far], far) == expected).all()
    if tick > 2:
        assert (running.since(noise, 1, 2, keys(0, 6)) == by_the_book(plan, noise, 1, 2, keys(0, 6))).all()
    other = SeededNoise(8)
    assert (running.since(other, start, tick, keys(0, 2)) == by_the_book(plan, other, start, tick, keys(0, 2))).all()
    # What the next tick needs is still at hand as it was.
    assert (running.at(noise, tick, 6, keys) == evaluate(plan, noise, tick, keys(0, 6))).all()


def test_only_nodes_that_are_not_at_hand_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def counted(draws: Any, *rest: Any) -> None:
        drawn.append(len(draws))
        add_draws(draws, *rest)

    monkeypatch.setattr("pianissimo.noise.running.add_draws", counted)
    plan, noise = TopDownPlan.calibrated(horizon=4096, epsilon=1.0), SeededNoise(1)
    running = running_noise(plan)
    running.at(noise, 250, 3, keys)
    for start in (241, 190, 0):
        running.since(noise, start, 250, keys(0, 3))
    evaluate(plan, noise, 250, keys(0, 3), since=190)
    # Within a group of sixteen all is at hand; else one group is drawn, and none for the first tick.
    assert drawn[:3] == [0, 16, 0]
    assert drawn[3] > 60


@pytest.mark.parametrize("outer", [False, True], ids=["in one pass", "call by call"])
def test_weighted_sums_of_draws(outer: bool) -> None:
    """Of laws with one table and with several, from two secrets, over keys of 64 and of 128 bits."""
    laws = [("gaussian", Fraction(7, 2)), ("gaussian", Fraction(2**40, 3)), ("laplace", Fraction(5000))]
    for series in (keys(0, 1500), np.arange(1500, dtype=np.uint64)):
        draws, expected = [], np.full(1500, 9, dtype=np.int64)
        for place, (law, parameter) in enumerate(laws * 2):
            source: Noise = SeededNoise(place // 3).at(place)
            values = np.empty(1500, dtype=np.int64)
            source.draw(law, parameter, series, values)
            weight = 3 - 2 * place
            expected += weight * values
            draws.append((Passed(source) if outer else source, law, parameter, weight))
        sums = np.full(1500, 9, dtype=np.int64)
        add_draws(draws, series, sums)
        assert (sums == expected).all()
    assert isinstance(SeededNoise(1), KeyedNoise)


def test_sums_must_have_a_place_for_each_key() -> None:
    with pytest.raises(ValueError, match="one place for each key"):
        add_draws([(SeededNoise(1), "laplace", Fraction(2), 1)], keys(0, 3), np.zeros(2, dtype=np.int64))
