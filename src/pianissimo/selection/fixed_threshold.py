"""The labels that are well above the count of rank k + 1, each judged by itself.

Durfee and Rogers 2019, Algorithm 8. With h the count of rank k + 1, every label of count > h is shown if its gap over
h plus noise is above 1 + y. The threshold itself carries no noise.

Corrected here: the paper looks only at labels of count above the *threshold*; that guard breaks privacy (an exact delta
of 0.54 where 0.01 is claimed), since whether a label is looked at is then seen. The guard is "count > h", so at most k
labels are looked at, those on one side only have a gap of exactly 1 there, and each is shown with a chance of at
most delta. max_keys_per_user does not help: one label can move everybody's gap.

**Whole numbers.** The noise is discrete; y is the least whole number with P[Z > y] <= delta by the exact tail. The
paper's ln(1 / (2 delta)) / epsilon is the same for continuous Laplace noise.

**Why.** The candidates of two neighbors are nested, as in `strict_domain`. Give the side that lacks some of them
dummies of gap 0: then k gaps move by at most one each, and noise on each makes k plain steps of epsilon, or k / (2
variance) zCDP. What is shown is a function of the noisy gaps, so these may be shown as well, and give the order. No
dummy is shown except with a chance of 1 - (1 - delta)^k.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import Booked
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.noise.laws import GaussianNode, LaplaceNode, NodeNoise
from pianissimo.selection.answer import Answer, Counted
from pianissimo.selection.known_domain import check_variance
from pianissimo.selection.limited_dom import strictly_larger
from pianissimo.selection.offsets import at_least_one_of, check_exact, gaussian_offset, laplace_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class _GapsAboveThreshold:
    """What both kinds of noise share. A base class: the two differ by a law and its loss alone."""

    k: int
    """How many labels are looked at and published at most."""

    delta: Fraction
    """The chance that one label is published which only one user's presence has made a candidate; at most 1/2."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)
        check_half(self.delta)
        _ = self.law.bound

    @property
    def law(self) -> NodeNoise:
        """Of the noise on each gap."""
        raise NotImplementedError

    @property
    def offset(self) -> int:
        """A label is shown if its noisy gap is above this."""
        raise NotImplementedError

    def answer(self, counts: Mapping[str, int], noise: Noise) -> Answer:
        """The labels that pass and their noisy gaps. Two histograms never share a noise: descend to a path."""
        histogram = Counted.of(counts)
        places, following = strictly_larger(histogram.counts, self.k)
        values = np.empty(len(places), dtype=np.int64)
        self.law.draw(noise, histogram.keys(places, noise), values)
        values += histogram.counts[places] - following
        return gaps_above(self.offset, histogram, places, values, self.k)

    def cost(self, answer: Answer) -> int:  # noqa: ARG002
        """In steps, or noisy gaps: all of them, whatever came back."""
        return self.k


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedThresholdLaplace(_GapsAboveThreshold):
    """The labels whose noisy gap over the count of rank k + 1 is above a fixed number, with that gap, largest first.

    Guarantee: k plain steps of epsilon, that is k epsilon, and a bad mass of 1 - (1 - delta)^k.
    Error: of a gap, the Laplace quantile ln(1 / (1 - coverage)) / epsilon.
    Cost: at most k draws.

    >>> from pianissimo.testing import NoNoise
    >>> mechanism = FixedThresholdLaplace(k=2, epsilon=Fraction(1), delta=Fraction(1, 100))
    >>> mechanism.offset
    5
    >>> mechanism.answer({"a": 12, "b": 7, "c": 2, "d": 1}, NoNoise())
    Answer(labels=('a',), met_threshold=True, counts=(10,), candidates=None)
    """

    epsilon: Fraction
    """What one moved gap costs."""

    def __post_init__(self) -> None:
        check_exact(epsilon=self.epsilon, delta=self.delta)
        _GapsAboveThreshold.__post_init__(self)

    @property
    def law(self) -> LaplaceNode:
        return LaplaceNode(1 / self.epsilon)

    @property
    def offset(self) -> int:
        return 1 + laplace_offset(1 / self.epsilon, self.delta)

    @property
    def pure_epsilon(self) -> Fraction:
        """What it costs by plain addition, with the bad mass for a delta."""
        return self.k * self.epsilon

    @property
    def loss(self) -> Booked:
        bad = at_least_one_of(self.k, self.delta)
        return Booked(rho=self.k * self.epsilon**2 / 2, bad=bad, distance=self.k * DRAW_DISTANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedThresholdGauss(_GapsAboveThreshold):
    """The same with Gaussian noise, whose price grows with the root of k.

    Guarantee: booked as (k / (2 variance), 1 - (1 - delta)^k).
    Error: of a gap, the normal quantile at this variance.
    Cost: at most k draws.

    >>> FixedThresholdGauss(k=2, variance=Fraction(4), delta=Fraction(1, 100)).offset
    6
    """

    variance: Fraction
    """Of the noise on each gap: tau^2."""

    def __post_init__(self) -> None:
        check_variance(self.variance)
        check_exact(epsilon=self.variance, delta=self.delta)
        _GapsAboveThreshold.__post_init__(self)

    @property
    def law(self) -> GaussianNode:
        return GaussianNode(self.variance)

    @property
    def offset(self) -> int:
        return 1 + gaussian_offset(self.variance, self.delta)

    @property
    def loss(self) -> Booked:
        bad = at_least_one_of(self.k, self.delta)
        return Booked(rho=self.k / (2 * self.variance), bad=bad, distance=self.k * DRAW_DISTANCE)


def gaps_above(offset: int, histogram: Counted, places: NDArray[np.int64], values: NDArray[np.int64], k: int) -> Answer:
    """The labels whose noisy gap is above the offset, largest first, equal ones by the bytes of the labels.

    >>> gaps_above(3, Counted.of({"a": 9, "b": 9, "c": 1}), np.array([0, 1]), np.array([3, 8]), 2).labels
    ('b',)
    """
    passing = np.flatnonzero(values > offset)
    order = passing[np.lexsort((places[passing], -values[passing]))]
    return Answer(histogram.names(places[order]), met_threshold=len(passing) < k, counts=tuple(values[order].tolist()))


def check_half(delta: Fraction) -> None:
    """Refuse a chance above one half, for which there is no threshold above the next count.

    >>> check_half(Fraction(2, 3))
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: delta must be at most 1/2, got 0.66...
    """
    if not delta <= Fraction(1, 2):
        raise ParameterError(f"delta must be at most 1/2, got {float(delta)}")
