"""How far above the next count a threshold must stand, worked out exactly and rounded up, and a fixed threshold.

A threshold hides what only one user holds: a label that is among the candidates on one of two neighbors alone has a
count of at most h + 1, h the first count that is not looked at. The offset beyond h + 1 is what keeps such a label
behind the threshold except with the chance that is booked as bad. Rounding it up only makes that chance smaller.

Durfee and Rogers 2019 print offsets for continuous noise. Here they are those of the noise that is drawn:

* Gumbel, through the exact race: m labels of count x = h + 1 and a threshold at x + y have the weights m and
  e^(epsilon y), so one of the labels is first with the chance m / (m + e^(epsilon y)). It is delta for y = ln(m (1 -
  delta) / delta) / epsilon; the paper's ln(m / delta) / epsilon gives delta / (1 + delta). y is rounded up to a
  multiple of 2^-16, and the race is run on counts times 2^16, so it stays one of whole numbers.
* Discrete Laplace: the exact tails of one draw and of the difference of two, in `noise.exact_laws`, which are enlarged
  so that what is compared with delta is never too small.

**A fixed threshold** finds the labels that are well above the count of rank k + 1, each judged by itself: Durfee and
Rogers 2019, Algorithm 8. With h the count of rank k + 1, every label of count > h is shown if its gap over
h plus noise is above 1 + y. The threshold itself carries no noise.

Corrected here: the paper looks only at labels of count above the *threshold*; that guard breaks privacy (an exact delta
of 0.54 where 0.01 is claimed), since whether a label is looked at is then seen. The guard is "count > h", so at most k
labels are looked at, those on one side only have a gap of exactly 1 there, and each is shown with a chance of at
most delta. max_keys_per_user does not help: one label can move everybody's gap.

*Whole numbers.* The noise is discrete; y is the least whole number with P[Z > y] <= delta by the exact tail. The
paper's ln(1 / (2 delta)) / epsilon is the same for continuous Laplace noise.

*Why.* The candidates of two neighbors are nested, as in `StrictDomain`. Give the side that lacks some of them
dummies of gap 0: then k gaps move by at most one each, and noise on each makes k plain steps of epsilon. What is shown
is a function of the noisy gaps, so these may be shown as well, and give the order. No dummy is shown except with a
chance of 1 - (1 - delta)^k.
"""

import decimal
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_fraction, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import Booked
from pianissimo.noise import Noise
from pianissimo.noise.exact_laws import CONTEXT, at_most, enlarged, least_integer, sum_tail, tail, to_decimal
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.noise.laws import LaplaceNode
from pianissimo.selection.known_and_unknown import strictly_larger
from pianissimo.selection.race import Answer, Counted

GRID = 2**16
"""Thresholds of a race are multiples of 1 / GRID."""

_SLACK = Decimal("1e-40")


@lru_cache(maxsize=4096)
def race_offset(labels: int, delta: Fraction, epsilon: Fraction) -> Fraction:
    """The least multiple of 1 / GRID that lets one of so many bad labels win with a chance of at most delta."""
    odds = labels * (1 - delta) / delta
    with decimal.localcontext(CONTEXT):
        exact = to_decimal(odds).ln() / to_decimal(epsilon)
        return Fraction(math.ceil(exact * GRID + _SLACK * (1 + abs(exact))), GRID)


@lru_cache(maxsize=4096)
def laplace_offset(scale: Fraction, delta: Fraction) -> int:
    """The least y >= 0 with P[Z > y] <= delta, Z discrete Laplace."""
    return least_integer(0, lambda y: at_most(enlarged(lambda a: tail(a, y + 1), 1 / scale), delta))


@lru_cache(maxsize=4096)
def laplace_difference_offset(scale: Fraction, delta: Fraction) -> int:
    """The least y >= 0 with P[Z - Z' > y] <= delta, Z and Z' discrete Laplace."""
    # The law is symmetric: a difference of two draws is a sum of two.
    return least_integer(0, lambda y: at_most(enlarged(lambda a: sum_tail(a, y + 1), 1 / scale), delta))


def at_least_one_of(times: int, delta: Fraction) -> Fraction:
    """1 - (1 - delta)^times, exactly: the chance that one of so many independent events of chance delta happens."""
    return 1 - (1 - delta) ** times


def check_exact(*, epsilon: Fraction, delta: Fraction) -> None:
    """Refuse what is not an exact epsilon above 0 and an exact delta between 0 and 1."""
    check_fraction(epsilon=epsilon, delta=delta)
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedThresholdLaplace:
    """The labels whose noisy gap over the count of rank k + 1 is above a fixed number, with that gap, largest first.

    Guarantee: k plain steps of epsilon, that is k epsilon, and a bad mass of 1 - (1 - delta)^k.
    Error: of a gap, the Laplace quantile ln(1 / (1 - coverage)) / epsilon.
    Cost: at most k draws.

    >>> from pianissimo.testing import NoNoise
    >>> mechanism = FixedThresholdLaplace(k=2, epsilon=Fraction(1), delta=Fraction(1, 100))
    >>> mechanism.answer({"a": 12, "b": 7, "c": 2, "d": 1}, NoNoise())
    Answer(labels=('a',), met_threshold=True, counts=(10,), candidates=None)
    """

    k: int
    """How many labels are looked at and published at most."""

    epsilon: Fraction
    """What one moved gap costs."""

    delta: Fraction
    """The chance that one label is published which only one user's presence has made a candidate; at most 1/2."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)
        check_exact(epsilon=self.epsilon, delta=self.delta)
        if not self.delta <= Fraction(1, 2):
            raise ParameterError(f"delta must be at most 1/2, got {float(self.delta)}: no threshold would be needed")
        _ = LaplaceNode(1 / self.epsilon).bound

    @property
    def offset(self) -> int:
        """A label is shown if its noisy gap is above this."""
        return 1 + laplace_offset(1 / self.epsilon, self.delta)

    @property
    def pure_epsilon(self) -> Fraction:
        """What it costs by plain addition, with the bad mass for a delta."""
        return self.k * self.epsilon

    @property
    def loss(self) -> Booked:
        bad = at_least_one_of(self.k, self.delta)
        return Booked(rho=self.k * self.epsilon**2 / 2, bad=bad, distance=self.k * DRAW_DISTANCE)

    def answer(self, counts: Mapping[str, int], noise: Noise) -> Answer:
        """The labels that pass and their noisy gaps. The noise is given by tests, or fresh."""
        histogram = Counted.of(counts)
        noise = histogram.noise(noise)
        places, following = strictly_larger(histogram.counts, self.k)
        keys, law = histogram.keys(places, noise), LaplaceNode(1 / self.epsilon)
        gaps = law.added(histogram.counts[places] - following, keys, noise)
        return labels_above(self.offset, histogram, places, gaps, self.k)

    def cost(self, answer: Answer) -> int:  # noqa: ARG002
        """In steps: all of them, whatever came back."""
        return self.k


def labels_above(
    level: int, histogram: Counted, places: NDArray[np.int64], values: NDArray[np.int64], k: int
) -> Answer:
    """The labels whose noisy value is above a level, k at most, largest first, equal ones by their bytes."""
    passing = np.flatnonzero(values > level)
    order = passing[np.lexsort((places[passing], -values[passing]))][:k]
    return Answer(histogram.names(places[order]), met_threshold=len(passing) < k, counts=tuple(values[order].tolist()))
