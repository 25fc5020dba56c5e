"""Running counts and sums over any noise plan.

Cardoso and Rogers 2022, Theorem 1, for trees; docs/privacy.md, 'Plans', for every plan.
"""

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import polars as pl

from pianissimo.checks import check_positive
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.loss.losses import Guarantee, event_guarantee
from pianissimo.mechanism import Gathering
from pianissimo.noise import Noise
from pianissimo.noise.plan import NoisePlan, half_width, plan_loss
from pianissimo.noise.recent import Recent
from pianissimo.noise.running import ONE_SERIES, RunningNoise, check_answers, rounded, running_noise, wrapped
from pianissimo.stored_parts import TRANSIENT

_FIRST_SLOT = np.zeros(1, dtype=np.int64)


@dataclass(slots=True, repr=False)
class CounterState:
    """The exact total so far: secret."""

    total: int
    recent: Recent
    noise: RunningNoise = field(metadata=TRANSIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverPlan(Gathering):
    """What counts over any plan, as a base class."""

    plan: NoisePlan
    """Which noises enter which release."""

    history: int = 0
    """How many past ticks are kept, so that intervals can be answered."""

    def error(self, tick: int, coverage: float) -> float:
        return half_width(self.plan, tick, coverage)

    def between_error(self, start: int, end: int, coverage: float) -> float:
        return half_width(self.plan, end, coverage, since=start)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningTotal(OverPlan):
    """A total over any plan; a subclass says what a batch adds to it."""

    @property
    def magnitude(self) -> int:
        """The most that one event can add or take away."""
        return 1

    @property
    def guarantee(self) -> Guarantee:
        return event_guarantee(
            plan_loss(self.plan, magnitude=self.magnitude),
            horizon=self.plan.horizon,
            source="Canonne, Kamath and Steinke 2020, Theorem 14; docs/privacy.md, 'Plans'",
        )

    def start(self, noise: Noise) -> CounterState:  # noqa: ARG002
        return self._begun()

    def combine(self, pieces: Sequence[int]) -> int:
        return sum(pieces)

    def add(self, state: CounterState, gathered: int) -> None:
        """Count an amount."""
        state.total = wrapped(state.total + gathered)
        state.recent.add(_FIRST_SLOT, np.array([wrapped(gathered)], dtype=np.int64))

    def release(self, state: CounterState, tick: int, noise: Noise) -> int:
        state.recent.close()
        numerators = state.noise.at(noise, tick, 1, lambda *_: ONE_SERIES)
        total = np.array([state.total], dtype=np.int64)
        return int(check_answers(rounded(total, numerators, self.plan.shift))[0])

    def between(self, state: CounterState, start: int, end: int, noise: Noise) -> int:
        """What ticks start + 1 .. end added, with the difference of the noises of both ends, rounded once."""
        amounts = state.recent.between(start, end, size=1)
        numerators = state.noise.since(noise, start, end, ONE_SERIES)
        return int(check_answers(rounded(amounts, numerators, self.plan.shift))[0])

    def merge(self, left: CounterState, right: CounterState) -> CounterState:
        merged = self._begun()
        self.add(merged, left.total + right.total)
        return merged

    def _begun(self) -> CounterState:
        return CounterState(total=0, recent=Recent(self.history), noise=running_noise(self.plan))


@identified("counter")
@dataclass(frozen=True, slots=True, kw_only=True)
class Counter(RunningTotal):
    """The number of events so far, released at every tick.

    Guarantee: per event over the whole run, cost / 2 zCDP at integer orders, or cost-DP over a Laplace plan.
    Error: the quantile of the plan's noise at the tick.
    Cost: one integer of state, one more for each tick of history; the plan's nodes are drawn as they begin.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> run = Run(Counter(plan=HaarPlan.calibrated(horizon=8, rho=0.5)), NoNoise())
    >>> run.update(["a", "b"])
    >>> run.release().value
    2
    """

    def gather(self, state: CounterState, batch: Sized) -> int:  # noqa: ARG002
        return len(batch)


@identified("sum")
@dataclass(frozen=True, slots=True, kw_only=True)
class Summer(RunningTotal):
    """The sum of the events' values so far, on a declared grid and within declared limits, released at every tick.

    Guarantee: per event over the whole run, m^2 cost / 2 zCDP at integer orders, or (m cost)-DP over a Laplace plan, m
    the larger of |low| and |high| in coarse steps.
    Error: the quantile of the plan's noise at the tick, in coarse steps, as the sum itself.
    Cost: as `Counter`.
    """

    low: int
    """The least value of an event, in steps of the grid; lower ones are raised to it."""

    high: int
    """The largest value of an event, in steps of the grid; higher ones are lowered to it."""

    coarse: int = 1
    """How many steps of the grid the sum counts as one: each value is rounded to the nearest multiple by itself."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ParameterError(f"low must be below high, got {self.low} and {self.high}")
        if self.coarse < 1 or self.low % self.coarse or self.high % self.coarse:
            raise ParameterError(f"low and high must be multiples of coarse, got {self.coarse}")

    @property
    def magnitude(self) -> int:
        return max(abs(self.low), abs(self.high)) // self.coarse

    def gather(self, state: CounterState, batch: pl.Series) -> int:  # noqa: ARG002
        if not batch.dtype.is_integer() or batch.null_count():
            raise InputError(f"values must be whole steps of the grid without nulls, got {batch.dtype}")
        # Clipped values are below 2^53 in size, so that a batch of fewer than 2^31 rows sums within 128 bits.
        within = batch.cast(pl.Int64).clip(self.low, self.high)
        steps = within if self.coarse == 1 else (within + self.coarse // 2) // self.coarse
        return int(steps.cast(pl.Int128).sum())


def grid_steps(values: pl.Series, grid: Fraction) -> pl.Series:
    """Real values as whole steps of a grid, each rounded to the nearest by itself."""
    check_positive(grid=grid)
    steps = (values.cast(pl.Float64) / float(grid) + 0.5).floor()
    return steps.clip(-(2.0**52), 2.0**52).cast(pl.Int64)
