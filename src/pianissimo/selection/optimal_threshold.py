"""Top k where the number of labels that are looked at is chosen privately, for the lowest threshold.

Durfee and Rogers 2019, Algorithm 6 and Lemma 6.6. The threshold of `limited_domain` falls with the next count h_(i+1)
and rises with ln i; the best i depends on the data. One more step of the exponential mechanism picks it.

Corrected here:

* The paper takes the least of score + Gumbel. That is not the exponential mechanism: among n candidates it costs up to
  (n - 1) epsilon. The sign is minus: k_bar is the i with the least score - Gumbel(1 / epsilon), that is, the first in a
  race of -score.
* The score is the threshold that is used, h_(i+1) + 1 + ln(i (1 - delta) / delta) / epsilon; the paper scores h_(i).
* Candidates are i = k .. d_bar - 1, whatever the data: counts that are missing are zeros.

Each h_(i+1) moves by 0 or 1, all in one direction, so the choice is one step of bounded range epsilon, and k - 1 labels
are k - 1 more. The chosen k_bar may be published. Scores are rounded up to multiples of 2^-16, by public amounts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import BoundedRange
from pianissimo.noise import Noise
from pianissimo.selection.answer import Answer, Counted
from pianissimo.selection.limited_dom import check_race_parameters, race_to_threshold
from pianissimo.selection.offsets import GRID, race_offset
from pianissimo.selection.race import first_in_race, race_distance
from pianissimo.selection.unknown_domain import largest


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimalThreshold:
    """At most k - 1 labels, in order, out of the first k_bar, which is chosen privately below d_bar.

    Guarantee: k steps of bounded range epsilon, (k epsilon^2 / 8) zCDP, and a bad mass of delta, whatever the number
    of labels a user holds.
    Error: with a chance of 1 - b the threshold is at most ln((d_bar - k) / b) / epsilon above the lowest one.
    Cost: 128 bits for each of d_bar labels, twice.

    >>> from pianissimo.testing import NoNoise
    >>> mechanism = OptimalThreshold(k=2, d_bar=5, epsilon=Fraction(1), delta=Fraction(1, 10))
    >>> answer = mechanism.answer({"a": 9, "b": 8, "c": 3, "d": 2, "e": 1}, NoNoise())
    >>> answer.labels, answer.candidates, mechanism.cost(answer)
    (('a',), 4, 2)
    """

    k: int
    """How many steps there are: one for k_bar, and one for each of at most k - 1 labels."""

    d_bar: int
    """How many of the largest counts it may look at; above k."""

    epsilon: Fraction
    """Of one step."""

    delta: Fraction
    """The chance that a label is published which only one user's presence has made a candidate."""

    def __post_init__(self) -> None:
        check_at_least(2, k=self.k)
        check_at_least(1, d_bar=self.d_bar)
        if not self.k < self.d_bar:
            raise ParameterError(f"k must be below d_bar, the number of counts looked at, got {self.k} of {self.d_bar}")
        check_race_parameters(k=self.k, candidates=self.d_bar, epsilon=self.epsilon, delta=self.delta)

    @property
    def offsets(self) -> tuple[Fraction, ...]:
        """How far the threshold is above h_(i+1), for i = k .. d_bar - 1; multiples of 2^-16."""
        return tuple(1 + race_offset(i, self.delta, self.epsilon) for i in range(self.k, self.d_bar))

    @property
    def loss(self) -> BoundedRange:
        distance = race_distance(self.d_bar - self.k, 1) + race_distance(self.d_bar, self.k - 1)
        return BoundedRange(steps=self.k, width=self.epsilon, bad=self.delta, distance=distance)

    def answer(self, counts: Mapping[str, int], noise: Noise) -> Answer:
        """The labels before the threshold, and k_bar. Two histograms never share a noise: descend to a path."""
        histogram = Counted.of(counts)
        chosen = self.choose(histogram.counts, noise)
        places, following = largest(histogram.counts, self.k + chosen)
        threshold = following + self.offsets[chosen]
        answer = race_to_threshold(histogram, places, threshold, epsilon=self.epsilon, k=self.k - 1, noise=noise)
        return Answer(answer.labels, met_threshold=answer.met_threshold, candidates=self.k + chosen)

    def choose(self, counts: NDArray[np.int64], noise: Noise) -> int:
        """k_bar - k: the place of the candidate with the least score - Gumbel."""
        next_counts = np.zeros(self.d_bar - self.k, dtype=np.int64)
        ranked = np.sort(counts)[::-1][self.k : self.d_bar]
        next_counts[: len(ranked)] = ranked
        scores = next_counts * GRID + np.array([int(offset * GRID) for offset in self.offsets])
        bits = noise.at("k_bar").bits(np.arange(self.k, self.d_bar, dtype=np.uint64))
        return int(first_in_race(-scores, bits, GRID / self.epsilon, 1)[0])

    def cost(self, answer: Answer) -> int:
        """In steps: one for k_bar, the labels of the answer, and one more if the threshold was met."""
        return 1 + answer.length
