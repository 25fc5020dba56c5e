"""Histograms and top lists of which nothing but noisy node sums is kept: those of streams with forward secrecy."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.counting.histogram import KnownHistogram, LabelCounts
from pianissimo.counting.top import first_of
from pianissimo.labels import LabelIndex
from pianissimo.loss.losses import Guarantee
from pianissimo.mechanism import TRANSIENT
from pianissimo.noise import Noise
from pianissimo.noise.noisy_nodes import NodeSums, check_kept
from pianissimo.noise.plan import NoisePlan


@dataclass(slots=True, repr=False)
class NoisyHistogramState:
    """The noisy sums of the open nodes, for each label of the domain."""

    sums: NodeSums
    index: LabelIndex = field(metadata=TRANSIENT)
    noise: Noise = field(metadata=TRANSIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyHistogram:
    """How many events hold each label of a domain; its state never holds an exact count between two batches.

    Guarantee: that of the histogram, for the releases and one look at the state together (docs/privacy.md, 'Forward
    secrecy').
    Error: that of the histogram; with the same draws the releases are the same.
    Cost: one integer for each open node of the plan and each label.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.labels import Domain
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> known = KnownHistogram(plan=HaarPlan.calibrated(horizon=8, rho=0.5), domain=Domain(["n", "s"]))
    >>> run = Run(NoisyHistogram(histogram=known), NoNoise())
    >>> run.update(pl.Series(["s", "s", "elsewhere"]))
    >>> run.release().value.to_dict()
    {'n': 0, 's': 2}
    """

    histogram: KnownHistogram
    """What is counted, over a plan whose nodes end; it keeps no history."""

    state_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_kept(self.plan, self.histogram.history)

    @property
    def plan(self) -> NoisePlan:
        """Which noises enter which release."""
        return self.histogram.plan

    @property
    def series(self) -> int:
        """How many series of sums there are."""
        return len(self.histogram.domain)

    @property
    def guarantee(self) -> Guarantee:
        found = self.histogram.guarantee
        return replace(found, source=f"{found.source}, 'Forward secrecy'")

    def error(self, tick: int, coverage: float) -> float:
        return self.histogram.error(tick, coverage)

    def start(self, noise: Noise) -> NoisyHistogramState:
        index = LabelIndex(noise)
        index.slots_or_new(self.histogram.domain.labels)
        return NoisyHistogramState(sums=NodeSums(self.plan, self.series), index=index, noise=noise)  # type: ignore[arg-type]

    def update(self, state: NoisyHistogramState, batch: pl.Series) -> None:
        self.add(state, self.gather(state, batch))

    def gather(self, state: NoisyHistogramState, batch: pl.Series) -> NDArray[np.int64]:
        slots, counts = self.histogram.gather(state, batch)  # type: ignore[arg-type]  # it reads the index alone
        # All labels, seen or not: the length of what is stored would tell how many labels a tick had.
        amounts = np.zeros(self.series, dtype=np.int64)
        amounts[slots] = counts
        return amounts

    def add(self, state: NoisyHistogramState, gathered: NDArray[np.int64]) -> None:
        # What begins with this tick is drawn here and not at the release: exact counts never stand in the state.
        slots = np.flatnonzero(gathered)
        state.sums.add(state.noise, state.index.keys, slots, gathered[slots])

    def release(self, state: NoisyHistogramState, tick: int, noise: Noise) -> LabelCounts:  # noqa: ARG002
        return LabelCounts(self.histogram.domain.labels.clone(), state.sums.release(noise, state.index.keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyTopList:
    """The k labels with the largest estimates of a noisy histogram, in order, released at every tick.

    Guarantee: that of the histogram; sorting its release is post-processing.
    Error: that of the histogram's estimates.
    Cost: that of the histogram.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.labels import Domain
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> known = KnownHistogram(plan=HaarPlan.calibrated(horizon=8, rho=0.5), domain=Domain(["a", "b", "c"]))
    >>> run = Run(NoisyTopList(histogram=NoisyHistogram(histogram=known), k=1), NoNoise())
    >>> run.update(pl.Series(["c", "c", "b"]))
    >>> run.release().value.to_dict()
    {'c': 2}
    """

    histogram: NoisyHistogram
    """Whose release is sorted."""

    k: int
    """How many labels are listed at most."""

    state_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)

    @property
    def plan(self) -> NoisePlan:
        """Which noises enter which release."""
        return self.histogram.plan

    @property
    def series(self) -> int:
        """How many series of sums there are."""
        return self.histogram.series

    @property
    def guarantee(self) -> Guarantee:
        return self.histogram.guarantee

    def error(self, tick: int, coverage: float) -> float:
        return self.histogram.error(tick, coverage)

    def start(self, noise: Noise) -> NoisyHistogramState:
        return self.histogram.start(noise)

    def update(self, state: NoisyHistogramState, batch: pl.Series) -> None:
        self.histogram.update(state, batch)

    def gather(self, state: NoisyHistogramState, batch: pl.Series) -> NDArray[np.int64]:
        return self.histogram.gather(state, batch)

    def add(self, state: NoisyHistogramState, gathered: NDArray[np.int64]) -> None:
        self.histogram.add(state, gathered)

    def release(self, state: NoisyHistogramState, tick: int, noise: Noise) -> LabelCounts:
        return first_of(self.histogram.release(state, tick, noise), self.k)
