"""Top lists by sorting a histogram: post-processing, so that the list costs what the histogram costs."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from pianissimo import codec
from pianissimo.checks import check_at_least
from pianissimo.counting.histogram import KnownHistogram, KnownHistogramState, LabelCounts, Tally
from pianissimo.counting.meta import MetaHistogram, MetaHistogramState
from pianissimo.counting.unknown import UnknownHistogram, UnknownHistogramState
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import detached
from pianissimo.loss.losses import Guarantee
from pianissimo.noise import Noise
from pianissimo.noise.plan import NoisePlan

TopListState = KnownHistogramState | UnknownHistogramState


@identified("top-list")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopList:
    """The k labels with the largest estimates of a histogram, in order, released at every tick.

    Guarantee: that of the histogram; sorting its release is post-processing.
    Error: that of the histogram's estimates; the label on top is also the one with lucky noise, so its estimate leans
    upward where counts are close.
    Cost: that of the histogram.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.labels import Domain
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> histogram = KnownHistogram(plan=HaarPlan.calibrated(horizon=8, rho=0.5), domain=Domain(["a", "b", "c"]))
    >>> run = Run(TopList(histogram=histogram, k=2), NoNoise())
    >>> run.update(pl.Series(["c", "c", "b"]))
    >>> run.release().value.to_dict()
    {'c': 2, 'b': 1}
    """

    histogram: KnownHistogram | UnknownHistogram
    """Whose release is sorted."""

    k: int
    """How many labels are listed at most."""

    state_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)
        if isinstance(self.histogram, KnownHistogram) and not self.k <= len(self.histogram.domain):
            raise ParameterError(
                f"k must be at most the {len(self.histogram.domain)} labels of the domain, got {self.k}"
            )

    @property
    def plan(self) -> NoisePlan:
        """Which noises enter which release."""
        return self.histogram.plan

    @property
    def guarantee(self) -> Guarantee:
        return self.histogram.guarantee

    def error(self, tick: int, coverage: float) -> float:
        return self.histogram.error(tick, coverage)

    def start(self, noise: Noise) -> TopListState:
        return self.histogram.start(noise)

    def update(self, state: TopListState, batch: pl.Series) -> None:
        self.histogram.update(state, batch)  # type: ignore[arg-type]

    def gather(self, state: TopListState, batch: pl.Series) -> codec.Plain:
        return self.histogram.gather(state, batch)  # type: ignore[arg-type]

    def add(self, state: TopListState, gathered: codec.Plain) -> None:
        self.histogram.add(state, gathered)  # type: ignore[arg-type]

    def release(self, state: TopListState, tick: int, noise: Noise) -> LabelCounts:
        return self._first(self.histogram.release(state, tick, noise))  # type: ignore[arg-type]

    def between(self, state: TopListState, start: int, end: int, noise: Noise) -> LabelCounts:
        return self._first(self.histogram.between(state, start, end, noise))  # type: ignore[arg-type]

    def between_error(self, start: int, end: int, coverage: float) -> float:
        return self.histogram.between_error(start, end, coverage)

    def merge(self, left: TopListState, right: TopListState) -> TopListState:
        return self.histogram.merge(left, right)  # type: ignore[arg-type]

    def _first(self, value: LabelCounts) -> LabelCounts:
        return first_of(value, self.k)


@identified("meta-top-list")
@dataclass(frozen=True, slots=True, kw_only=True)
class MetaTopList:
    """The k labels with the largest estimates of a tree of one-shot answers, in order, released at every tick.

    Guarantee: that of the tree of answers; sorting its release is post-processing.
    Error: that of its noise; where it is biased, a label that a cell's answer lacks loses that cell.
    Cost: that of the tree of answers.

    >>> from fractions import Fraction
    >>> from pianissimo.labels import Domain
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.selection import KnownGumb
    >>> from pianissimo.testing import NoNoise
    >>> top = KnownGumb(domain=Domain(["a", "b", "c"]), k=2, scale=Fraction(2), variance=Fraction(16))
    >>> run = Run(MetaTopList(histogram=MetaHistogram(base=2, horizon=8, answer=top), k=1), NoNoise())
    >>> run.update(pl.Series([["a", "b"], ["a"]]))
    >>> run.release().value.to_dict()
    {'a': 2}
    """

    histogram: MetaHistogram
    """Whose release is sorted."""

    k: int
    """How many labels are listed at most."""

    state_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)

    @property
    def guarantee(self) -> Guarantee:
        return self.histogram.guarantee

    def error(self, tick: int, coverage: float) -> float:
        return self.histogram.error(tick, coverage)

    def start(self, noise: Noise) -> MetaHistogramState:
        return self.histogram.start(noise)

    def update(self, state: MetaHistogramState, batch: pl.Series) -> None:
        self.histogram.update(state, batch)

    def gather(self, state: MetaHistogramState, batch: pl.Series) -> Tally:
        return self.histogram.gather(state, batch)

    def add(self, state: MetaHistogramState, gathered: Tally) -> None:
        self.histogram.add(state, gathered)

    def release(self, state: MetaHistogramState, tick: int, noise: Noise) -> LabelCounts:
        return first_of(self.histogram.release(state, tick, noise), self.k)


def first_of(value: LabelCounts, k: int) -> LabelCounts:
    """The k largest estimates, in order; labels come in the order of their bytes, which is kept among equals.

    >>> first_of(LabelCounts(pl.Series(["a", "b", "c"]), np.array([1, 3, 3])), 2).to_dict()
    {'b': 3, 'c': 3}
    """
    order = np.argsort(-value.estimates, kind="stable")[:k]
    return LabelCounts(detached(value.labels.gather(order)), value.estimates[order])
