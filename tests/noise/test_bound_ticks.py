"""The noise of a node is bound to a tick that is sealed when it is first drawn, and to the same one for ever."""

from typing import Any

import numpy as np
import pytest
from tests.noise.test_plans import SMALL_PLANS

from pianissimo.errors import DamageError
from pianissimo.noise import HaarPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise.plan import NoisePlan
from pianissimo.noise.running import evaluate, running_noise
from pianissimo.noise.sealed_noise import SealedNoise
from pianissimo.testing import SeededNoise

PLANS = [*SMALL_PLANS, *(ToeplitzPlan.calibrated(horizon=horizon, rho=0.5) for horizon in (1, 2, 7, 20))]


class Seals:
    """The digests of the ticks that are sealed so far."""

    def __init__(self) -> None:
        self.sealed = 0
        self.asked: set[int] = set()

    def mac(self, tick: int) -> bytes:
        self.asked.add(tick)
        if not 0 <= tick <= self.sealed:
            raise DamageError(f"tick {tick} must be sealed, got {self.sealed}")
        return tick.to_bytes(4, "big")

    def noise(self) -> SealedNoise:
        return SealedNoise(lambda tick: SeededNoise(3), self.mac)


def keys(start: int, end: int) -> Any:
    return np.arange(2 * start, 2 * end, dtype=np.uint64).reshape(-1, 2)


def walk(plan: NoisePlan) -> None:
    """Release after release, with series that come later; each is compared with the noise made from nothing."""
    seals = Seals()
    noise, running = seals.noise(), running_noise(plan)
    for tick in range(1, plan.horizon + 1):
        seals.sealed = tick
        count = 1 + tick // 3
        found = running.at(noise, tick, count, keys).copy()
        assert (found == evaluate(plan, noise, tick, keys(0, count))).all()
        if tick > 1:
            between = evaluate(plan, noise, tick, keys(0, count), since=tick // 2)
            assert len(between) == count


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.name} {plan.horizon}")
def test_nodes_are_bound_to_ticks_that_are_sealed(plan: NoisePlan) -> None:
    walk(plan)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: f"{plan.name} {plan.horizon}")
def test_a_label_that_comes_late_finds_the_same_noise(plan: NoisePlan) -> None:
    seals = Seals()
    seals.sealed = plan.horizon
    early, late = running_noise(plan), running_noise(plan)
    noise = seals.noise()
    for tick in range(1, plan.horizon + 1):
        expected = early.at(noise, tick, 3, keys).copy()
    assert (late.at(noise, plan.horizon, 3, keys) == expected).all()


class BoundTooLate:
    """A plan whose nodes are bound one tick later."""

    def __init__(self, plan: NoisePlan) -> None:
        self._plan = plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)

    def bound_tick(self, level: int, node: int) -> int:
        return self._plan.bound_tick(level, node) + 1


@pytest.mark.parametrize(
    "plan",
    [
        HaarPlan.calibrated(horizon=9, rho=0.5),
        SplinePlan.calibrated(horizon=9, rho=0.5),
        TopDownPlan.calibrated(horizon=40, epsilon=1.0),
        TreePlan.calibrated(horizon=9, rho=0.5),
    ],
    ids=lambda plan: plan.name,
)
def test_a_plan_that_is_bound_too_late_is_caught(plan: NoisePlan) -> None:
    with pytest.raises(DamageError, match="must be sealed"):
        walk(BoundTooLate(plan))


def test_other_data_give_a_complete_node_other_noise() -> None:
    """Of a tree every node: two streams that differ from some tick on share no noise from there on."""
    plan = TreePlan.calibrated(horizon=20, rho=0.5, base=3)
    one = SealedNoise(lambda tick: SeededNoise(3), lambda tick: b"same" if tick < 7 else b"one %d" % tick)
    other = SealedNoise(lambda tick: SeededNoise(3), lambda tick: b"same" if tick < 7 else b"other %d" % tick)
    series = keys(0, 200)
    for tick in range(1, 21):
        same = (evaluate(plan, one, tick, series) == evaluate(plan, other, tick, series)).all()
        assert same == (tick < 7)
