"""Top k from the labels whose count is strictly above the next one: for sources that cannot order equal counts.

Durfee and Rogers 2019, Algorithm 5 and Lemma 6.8. As `limited_domain`, with the domain "count > h", h the count of rank
k_bar + 1, so that it does not matter which of several equal counts is called the k_bar-th.

Corrected here: m = k_bar always. One user who raises h by one can expel all k_bar labels, however few labels that user
holds; with max_keys_per_user instead of k_bar (as in Algorithm 1) the exact delta at k_bar = 3 is 2.99 times the
claimed one.

Why it holds: the domains of two neighbors are nested, and the labels that are in one alone have a count of h + 1 there.
Let x be the smaller h. If they belong to the larger histogram, the other side gets dummies of count x; if to the
smaller, dummies of count x + 1. Then every entry of the renamed vectors moves by 0 or 1 in one direction, dummies come
before the threshold with a chance of at most delta in total, and the lemma of the bad mass applies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise import Noise
from pianissimo.privacy import BoundedRange
from pianissimo.selection.answer import Answer
from pianissimo.selection.counted import Counted
from pianissimo.selection.limited_dom import check_race_parameters
from pianissimo.selection.limited_race import race_to_threshold
from pianissimo.selection.offsets import race_offset
from pianissimo.selection.race import race_distance
from pianissimo.selection.unknown_domain import largest


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictDomain:
    """At most k labels out of those whose count is above that of rank k_bar + 1, in order.

    Guarantee: k steps of bounded range epsilon, (k epsilon^2 / 8) zCDP, and a bad mass of delta, whatever the number
    of labels a user holds.
    Error: that of `LimitedDomain`, with a threshold that is ln(k_bar / max_keys_per_user) / epsilon higher: where equal
    counts have an order, take that one.
    Cost: 128 bits for each of at most k_bar labels.

    >>> from pianissimo.testing import NoNoise
    >>> mechanism = StrictDomain(k=2, k_bar=3, epsilon=Fraction(2), delta=Fraction(1, 10))
    >>> mechanism.answer({"a": 9, "b": 8, "c": 1, "d": 1}, NoNoise())
    Answer(labels=('a', 'b'), met_threshold=False, counts=None, k_bar=None)
    """

    k: int
    """How many labels are published at most."""

    k_bar: int
    """How many labels it may look at, largest counts first; at least k."""

    epsilon: Fraction
    """Of one step."""

    delta: Fraction
    """The chance that a label is published which only one user's presence has made a candidate."""

    def __post_init__(self) -> None:
        check_race_parameters(k=self.k, k_bar=self.k_bar, epsilon=self.epsilon, delta=self.delta)

    @property
    def offset(self) -> Fraction:
        """How far the threshold is above the count that comes after the k_bar largest; a multiple of 2^-16."""
        return 1 + race_offset(self.k_bar, self.delta, self.epsilon)

    @property
    def loss(self) -> BoundedRange:
        distance = race_distance(self.k_bar + 1, self.k)
        return BoundedRange(steps=self.k, width=self.epsilon, bad=self.delta, distance=distance)

    def answer(self, counts: Mapping[str, int], noise: Noise) -> Answer:
        """The labels before the threshold. Two histograms never share a noise: descend to a path of its own."""
        histogram = Counted.of(counts)
        places, following = strictly_larger(histogram.counts, self.k_bar)
        threshold = following + self.offset
        return race_to_threshold(histogram, places, threshold, epsilon=self.epsilon, k=self.k, noise=noise)

    def cost(self, answer: Answer) -> int:
        """In steps: as many as there are labels in the answer, and one more if the threshold was met."""
        return answer.length


def strictly_larger(counts: NDArray[np.int64], k_bar: int) -> tuple[NDArray[np.int64], int]:
    """The places of the counts above that of rank k_bar + 1, largest first, and that count, or 0.

    >>> strictly_larger(np.array([5, 3, 1, 1]), 3)
    (array([0, 1]), 1)
    """
    places, following = largest(counts, k_bar)
    return places[counts[places] > following], following
