"""A running count over any noise plan.

Cardoso and Rogers 2022, Theorem 1, for trees; docs/privacy.md, 'Plans', for every plan.
"""

from collections.abc import Sized
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from pianissimo.error_bars import half_width
from pianissimo.errors import InputError
from pianissimo.mechanism import TRANSIENT
from pianissimo.noise import Keys, Noise
from pianissimo.noise_plan import NoisePlan, plan_loss
from pianissimo.plan_noise import PlanNoise, rounded
from pianissimo.privacy import Guarantee, Neighbors, Unit

_LARGEST_COUNT = 2**61
_ONE_SERIES: Keys = np.zeros(1, dtype=np.uint64)


@dataclass(slots=True)
class CounterState:
    """The exact count so far: secret."""

    total: int
    noise: PlanNoise = field(metadata=TRANSIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """The number of events so far, released at every tick.

    Guarantee: per event over the whole run, cost / 2 zCDP at integer orders, or cost-DP over a Laplace plan.
    Error: the quantile of the plan's noise at the tick.
    Cost: one integer of state; the plan's nodes are drawn as they begin.

    >>> from pianissimo.counting import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> run = Run(Counter(plan=HaarPlan.calibrated(horizon=8, rho=0.5)), NoNoise())
    >>> run.update(["a", "b"])
    >>> run.release().value
    2
    """

    plan: NoisePlan
    """Which noises enter which release."""

    state_version: ClassVar[int] = 1

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            loss=plan_loss(self.plan),
            unit=Unit.EVENT,
            neighbors=Neighbors.ADD_OR_REMOVE,
            horizon=self.plan.horizon,
            source="Canonne, Kamath and Steinke 2020, Theorem 14; docs/privacy.md, 'Plans'",
        )

    def error(self, tick: int, coverage: float) -> float:
        return half_width(self.plan, tick, coverage)

    def start(self, noise: Noise) -> CounterState:  # noqa: ARG002
        return CounterState(total=0, noise=PlanNoise(self.plan))

    def update(self, state: CounterState, batch: Sized) -> None:
        total = state.total + len(batch)
        if not total < _LARGEST_COUNT:
            raise InputError("a count must stay below 2^61, got more; start a new run")
        state.total = total

    def release(self, state: CounterState, tick: int, noise: Noise) -> int:
        numerators = state.noise.at(noise, tick, 1, lambda _: _ONE_SERIES)
        return int(rounded(np.array([state.total], dtype=np.int64), numerators, self.plan.shift)[0])

    def merge(self, left: CounterState, right: CounterState) -> CounterState:
        return CounterState(total=left.total + right.total, noise=left.noise)
