"""How many different values events held so far: exact memory of the values, one running count over a noise plan.

A value counts at the tick of the first event that holds it, so what a window adds is the number of values that were
first seen in it. Without an event its values disappear, or count later where another event holds them: each moves from
one tick to another. Card: units and windows, L2 and U4. Argument: docs/privacy.md, 'Moves'.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.counting.counter import CounterState, RunningTotal
from pianissimo.identity import identified
from pianissimo.labels import count_labels
from pianissimo.loss.losses import Guarantee, event_guarantee
from pianissimo.names import Names
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.noise.moves import move_loss
from pianissimo.noise.recent import Recent
from pianissimo.noise.running import running_noise


@dataclass(slots=True, repr=False)
class DistinctValuesState(CounterState):
    """Which values there were, by keyed names, and how many: secret."""

    values: Names


@identified("distinct-values")
@dataclass(frozen=True, slots=True, kw_only=True)
class DistinctValues(RunningTotal):
    """How many different values events held so far, released at every tick.

    A batch is a column of texts, or of lists of texts. Deletions are not offered: a value that is deleted may still be
    held by others.

    Guarantee: per event over the whole run, D^2 max(cost, move) / 2 zCDP at integer orders, or (2 D cost)-DP over a
    Laplace plan, D = max_keys_per_event.
    Error: the quantile of the plan's noise at the tick. A window is the number of values first seen in it.
    Cost: about 30 bytes a value.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> run = Run(DistinctValues(plan=HaarPlan.calibrated(horizon=8, rho=0.5, moves=True)), NoNoise())
    >>> run.update(pl.Series(["a", "b", "a"]))
    >>> run.release().value
    2
    """

    max_keys_per_event: int = 1
    """How many distinct values of one event count; the others are cut, first come first kept within the event."""

    def __post_init__(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)

    @property
    def guarantee(self) -> Guarantee:
        return event_guarantee(
            move_loss(self.plan, magnitude=self.max_keys_per_event),
            horizon=self.plan.horizon,
            source="Canonne, Kamath and Steinke 2020, Theorem 14; docs/privacy.md, 'Moves'",
        )

    def start(self, noise: Noise) -> DistinctValuesState:
        return DistinctValuesState(
            total=0, recent=Recent(self.history), noise=running_noise(self.plan), values=Names(noise, "values")
        )

    def gather(self, state: DistinctValuesState, batch: pl.Series) -> Keys:
        """The names of the values, each once, in an order that tells nothing."""
        values, _ = count_labels(batch, self.max_keys_per_event)
        return np.unique(state.values.of(values), axis=0)

    def combine(self, pieces: Sequence[Keys]) -> Keys:  # type: ignore[override]
        return np.unique(np.concatenate(pieces), axis=0)

    def add(self, state: DistinctValuesState, gathered: Keys) -> None:  # type: ignore[override]
        RunningTotal.add(self, state, int(np.count_nonzero(state.values.add_first(gathered))))

    def merge(self, left: DistinctValuesState, right: DistinctValuesState) -> DistinctValuesState:  # type: ignore[override]
        self.add(left, right.values.to_plain())
        return left
