"""Top k from the first k_bar labels with Laplace noise: noisy counts come with the labels and cost nothing more.

Durfee and Rogers 2019, Algorithm 4 (LimitDom_Lap) and Lemma 6.1, for users who hold at most max_keys_per_user labels.

Corrected here:

* Equation (7) prints the offset ln(Delta / epsilon), a misprint that breaks privacy: an exact delta of 0.5 at epsilon
  = 1. Meant is ln(Delta / delta) / epsilon.
* Lemma 6.1's bad mass has a factor e^(Delta epsilon) + 1 that is not needed, by the lemma of the bad mass
  (docs/privacy.md, 'Unknown labels').
* min(Delta, k_bar) labels at most are on one side only, so that many shares of delta are enough.

**Whole numbers.** The noise is discrete Laplace of scale 1 / epsilon, and a label is shown if its noisy count is above
the threshold's, ties excluded. A label of count h + 1 is then shown with the chance P[Z - Z' > y], y the offset beyond
h + 1: the least whole y at which the exact tail is at most delta / min(Delta, k_bar).

**Why.** On the renamed vectors of `unknown_domain` the counts, threshold included, differ by one in at most Delta
places: independent noise makes that Delta plain steps of epsilon. Labels, order and noisy counts are all functions of
the noisy vector. Among equal noisy counts labels go by their bytes; a renamed label that ties with a shown one is above
the threshold itself, so it was already counted as bad.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.loss.losses import Booked
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, Keys
from pianissimo.noise.laws import LaplaceNode
from pianissimo.selection.answer import Answer, Counted
from pianissimo.selection.limited_dom import ONE_KEY, check_within
from pianissimo.selection.offsets import check_exact, laplace_difference_offset
from pianissimo.selection.unknown_domain import largest


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedLaplace:
    """The labels whose noisy count is above a noisy threshold, with that count, largest first, k at most.

    Guarantee: D = max_keys_per_user plain steps of epsilon, that is D epsilon, and a bad mass of delta, whatever k is.
    For D > 1 Gaussian noise (`UnkGauss`) costs sqrt(D) where this costs D.
    Error: of a published count, the Laplace quantile ln(1 / (1 - coverage)) / epsilon; a label whose count is about the
    threshold is published when its noise is high, so its count leans upward then.
    Cost: at most k_bar + 1 draws.

    >>> from pianissimo.testing import NoNoise
    >>> mechanism = LimitedLaplace(k=2, k_bar=2, epsilon=Fraction(1), delta=Fraction(1, 100))
    >>> mechanism.offset
    6
    >>> mechanism.answer({"a": 20, "b": 8, "c": 3}, NoNoise())
    Answer(labels=('a',), met_threshold=True, counts=(20,), k_bar=None)
    """

    k: int
    """How many labels are published at most; it does not change the loss."""

    k_bar: int
    """How many labels it may look at, largest counts first; at least k."""

    epsilon: Fraction
    """What one moved count costs."""

    delta: Fraction
    """The chance that a label is published which only one user's presence has made a candidate."""

    max_keys_per_user: int = 1
    """How many distinct labels of one user count."""

    def __post_init__(self) -> None:
        check_within(k=self.k, k_bar=self.k_bar)
        check_at_least(1, max_keys_per_user=self.max_keys_per_user)
        check_exact(epsilon=self.epsilon, delta=self.delta)
        _ = LaplaceNode(1 / self.epsilon).bound

    @property
    def offset(self) -> int:
        """How far the threshold is above the count that comes after the k_bar largest."""
        share = self.delta / min(self.max_keys_per_user, self.k_bar)
        return 1 + laplace_difference_offset(1 / self.epsilon, share)

    @property
    def moved(self) -> int:
        """How many of the noisy numbers, the threshold included, one user can move."""
        return min(self.max_keys_per_user, self.k_bar + 1)

    @property
    def pure_epsilon(self) -> Fraction:
        """What it costs by plain addition, with the bad mass for a delta."""
        return self.moved * self.epsilon

    @property
    def loss(self) -> Booked:
        # Independent noise on each: every moved one is epsilon-DP, so epsilon^2 / 2 zCDP.
        return Booked(
            rho=self.moved * self.epsilon**2 / 2,
            bad=self.delta,
            distance=(self.k_bar + 1) * DRAW_DISTANCE,
        )

    def answer(self, counts: Mapping[str, int], noise: Noise) -> Answer:
        """The labels that pass and their noisy counts. Two histograms never share a noise: descend to a path."""
        histogram = Counted.of(counts)
        places, following = largest(histogram.counts, self.k_bar)
        values = with_laplace(histogram.counts[places], histogram.keys(places, noise), 1 / self.epsilon, noise)
        level = np.array([following + self.offset], dtype=np.int64)
        threshold = with_laplace(level, ONE_KEY, 1 / self.epsilon, noise.at("threshold"))
        passing = np.flatnonzero(values > threshold)
        order = passing[np.lexsort((places[passing], -values[passing]))][: self.k]
        return Answer(
            histogram.names(places[order]),
            met_threshold=len(passing) < self.k,
            counts=tuple(values[order].tolist()),
        )

    def cost(self, answer: Answer) -> int:  # noqa: ARG002
        """In steps: all of them, whatever came back."""
        return self.moved


def with_laplace(counts: NDArray[np.int64], keys: Keys, scale: Fraction, noise: Noise) -> NDArray[np.int64]:
    """The counts plus a discrete Laplace draw each.

    >>> from pianissimo.testing import NoNoise
    >>> with_laplace(np.array([3]), ONE_KEY, Fraction(2), NoNoise())
    array([3])
    """
    values = np.empty(len(counts), dtype=np.int64)
    LaplaceNode(scale).draw(noise, keys, values)
    return values + counts
