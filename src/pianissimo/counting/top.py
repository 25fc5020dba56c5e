"""Top lists by sorting a histogram: post-processing, so that the list costs what the histogram costs."""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import polars as pl

from pianissimo import codec
from pianissimo.checks import check_at_least
from pianissimo.counting.known import KnownHistogram, LabelCounts
from pianissimo.counting.meta import MetaHistogram
from pianissimo.counting.unknown import UnknownHistogram
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import detached
from pianissimo.loss.losses import Guarantee
from pianissimo.noise import Noise
from pianissimo.noise.plan import NoisePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class _SortedRelease:
    """A mechanism that is another's but for the order: a base class, as the lists differ by what they sort alone."""

    histogram: Any

    k: int
    """How many labels are listed at most."""

    state_version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)

    @property
    def guarantee(self) -> Guarantee:
        return cast(Guarantee, self.histogram.guarantee)

    def error(self, tick: int, coverage: float) -> float:
        return cast(float, self.histogram.error(tick, coverage))

    def start(self, noise: Noise) -> Any:
        return self.histogram.start(noise)

    def update(self, state: Any, batch: pl.Series) -> None:
        self.histogram.update(state, batch)

    def gather(self, state: Any, batch: pl.Series) -> codec.Plain:
        return self.histogram.gather(state, batch)

    def add(self, state: Any, gathered: codec.Plain) -> None:
        self.histogram.add(state, gathered)

    def release(self, state: Any, tick: int, noise: Noise) -> LabelCounts:
        return first_of(self.histogram.release(state, tick, noise), self.k)


@identified("top-list")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopList(_SortedRelease):
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

    def __post_init__(self) -> None:
        _SortedRelease.__post_init__(self)
        if isinstance(self.histogram, KnownHistogram) and not self.k <= len(self.histogram.domain):
            raise ParameterError(
                f"k must be at most the {len(self.histogram.domain)} labels of the domain, got {self.k}"
            )

    @property
    def plan(self) -> NoisePlan:
        """Which noises enter which release."""
        return self.histogram.plan

    def between(self, state: Any, start: int, end: int, noise: Noise) -> LabelCounts:
        return first_of(self.histogram.between(state, start, end, noise), self.k)

    def between_error(self, start: int, end: int, coverage: float) -> float:
        return self.histogram.between_error(start, end, coverage)

    def merge(self, left: Any, right: Any) -> Any:
        return self.histogram.merge(left, right)


@identified("meta-top-list")
@dataclass(frozen=True, slots=True, kw_only=True)
class MetaTopList(_SortedRelease):
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


def first_of(value: LabelCounts, k: int) -> LabelCounts:
    """The k largest estimates, in order; labels come in the order of their bytes, which is kept among equals.

    >>> first_of(LabelCounts(pl.Series(["a", "b", "c"]), np.array([1, 3, 3])), 2).to_dict()
    {'b': 3, 'c': 3}
    """
    order = np.argsort(-value.estimates, kind="stable")[:k]
    return LabelCounts(detached(value.labels.gather(order)), value.estimates[order])
