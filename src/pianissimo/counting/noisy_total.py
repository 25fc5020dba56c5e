"""Running counts and sums of which nothing but noisy node sums is kept: the counter of streams with forward secrecy."""

from collections.abc import Sized
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pianissimo.counting.counter import Counter, Summer
from pianissimo.loss.losses import Guarantee
from pianissimo.mechanism import TRANSIENT
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.noise.noisy_nodes import LARGEST_SUM, NodeSums, check_kept, too_large
from pianissimo.noise.plan import NoisePlan

_ONE_SERIES: Keys = np.zeros((1, 2), dtype=np.uint64)
_FIRST_SLOT = np.zeros(1, dtype=np.int64)


@dataclass(slots=True, repr=False)
class NoisyTotalState:
    """The noisy sums of the open nodes: whoever sees them sees no more than the promise allows."""

    sums: NodeSums
    noise: Noise = field(metadata=TRANSIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyTotal:
    """A count or a sum, released at every tick, whose state never holds the exact total between two batches.

    Guarantee: that of the counter, for the releases and one look at the state together (docs/privacy.md, 'Forward
    secrecy').
    Error: that of the counter; with the same draws the releases are the same.
    Cost: one integer for each open node of the plan.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> run = Run(NoisyTotal(counter=Counter(plan=HaarPlan.calibrated(horizon=8, rho=0.5))), NoNoise())
    >>> run.update(["a", "b"])
    >>> run.release().value
    2
    """

    counter: Counter | Summer
    """What is counted, over a plan whose nodes end; it keeps no history."""

    state_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_kept(self.plan, self.counter.history)

    @property
    def plan(self) -> NoisePlan:
        """Which noises enter which release."""
        return self.counter.plan

    @property
    def series(self) -> int:
        """How many series of sums there are."""
        return 1

    @property
    def guarantee(self) -> Guarantee:
        found = self.counter.guarantee
        return replace(found, source=f"{found.source}, 'Forward secrecy'")

    def error(self, tick: int, coverage: float) -> float:
        return self.counter.error(tick, coverage)

    def start(self, noise: Noise) -> NoisyTotalState:
        return NoisyTotalState(sums=NodeSums(self.plan, 1), noise=noise)  # type: ignore[arg-type]

    def update(self, state: NoisyTotalState, batch: Sized) -> None:
        self.add(state, self.gather(state, batch))

    def gather(self, state: NoisyTotalState, batch: Any) -> NDArray[np.int64]:
        amount = self.counter.gather(state, batch)  # type: ignore[arg-type]  # it reads nothing of a state
        if not abs(amount) < LARGEST_SUM:
            raise too_large()
        return np.array([amount], dtype=np.int64)

    def add(self, state: NoisyTotalState, gathered: NDArray[np.int64]) -> None:
        # What begins with this tick is drawn here and not at the release: exact amounts never stand in the state.
        state.sums.add(state.noise, _one_key, _FIRST_SLOT, gathered)

    def release(self, state: NoisyTotalState, tick: int, noise: Noise) -> int:  # noqa: ARG002
        return int(state.sums.release(noise, _one_key)[0])


def _one_key(*_: int) -> Keys:
    return _ONE_SERIES
