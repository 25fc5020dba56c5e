"""The exponential mechanism, once or again and again on what is left.

Durfee and Rogers, "Practical differentially private top-k selection with pay-what-you-get composition", NeurIPS 2019,
Lemma 4.2: drawing a label with a chance proportional to exp(epsilon count), removing it and drawing again has the law
of the k largest of count + Gumbel(1 / epsilon), in order. So k picks are the first k of one exact race.

Neighbors move all counts in one direction, each by at most one, so the epsilon of a pick is the whole range of its
log-likelihood ratio (Lemma 4.3): it costs epsilon^2 / 8 in zCDP, where the paper's Lemma 4.4 books epsilon^2 / 2.
The labels are known beforehand and all of them are given, those of count 0 too: for labels that come from the data,
see `limited_domain`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pianissimo.checks import check_at_least
from pianissimo.errors import InputError, ParameterError
from pianissimo.loss.losses import BoundedRange
from pianissimo.noise import Noise
from pianissimo.noise.keyed import exact_scale
from pianissimo.selection.answer import Answer, Counted
from pianissimo.selection.race import check_race_scale, first_in_race, race_distance


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeling:
    """The first k labels of a known domain in a race of count + Gumbel(1 / epsilon).

    Guarantee: k steps of bounded range epsilon, (k epsilon^2 / 8) zCDP; nothing bad.
    Error: with a chance of 1 - b every picked count is at least h_(k) - ln(k (items - k) / b) / epsilon.
    Cost: 128 bits a label.

    >>> from pianissimo.testing import NoNoise
    >>> Peeling(items=3, k=2, epsilon=Fraction(1)).answer({"a": 3, "b": 0, "c": 9}, NoNoise()).labels
    ('c', 'a')
    """

    items: int
    """How many labels the domain has; public."""

    k: int
    """How many are picked."""

    epsilon: Fraction
    """Of one pick."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)
        check_at_least(1, items=self.items)
        if not self.k <= self.items:
            raise ParameterError(f"k must be at most the {self.items} labels of the domain, got {self.k}")
        if not isinstance(self.epsilon, Fraction) or not self.epsilon > 0:
            raise ParameterError(f"epsilon must be an exact Fraction above 0, got {self.epsilon!r}")
        check_race_scale(1 / self.epsilon)

    @property
    def loss(self) -> BoundedRange:
        return BoundedRange(steps=self.k, width=self.epsilon, distance=race_distance(self.items, self.k))

    def answer(self, counts: Mapping[str, int], noise: Noise) -> Answer:
        """The picks in order. Two histograms never share a noise: descend to a path of its own for each."""
        histogram = Counted.of(counts)
        if len(histogram.counts) != self.items:
            raise InputError(f"counts must hold the {self.items} labels of the domain, got another number of them")
        keys = histogram.keys(np.arange(self.items), noise)
        first = first_in_race(histogram.counts, noise.at("race").bits(keys), 1 / self.epsilon, self.k)
        return Answer(histogram.names(first), met_threshold=False)

    def cost(self, answer: Answer) -> int:
        """In steps: as many as there are labels in the answer."""
        return answer.length


def peel(counts: Mapping[str, int], *, k: int, epsilon: float | Fraction, noise: Noise) -> list[str]:
    """Picks k labels of a known domain, one after the other, in k steps of bounded range `epsilon`.

    >>> from pianissimo.testing import NoNoise
    >>> peel({"a": 3, "b": 0, "c": 9}, k=2, epsilon=1.0, noise=NoNoise())
    ['c', 'a']
    """
    mechanism = Peeling(items=len(counts), k=k, epsilon=exact_scale(epsilon=epsilon))
    return list(mechanism.answer(counts, noise).labels)


def exponential_mechanism(counts: Mapping[str, int], *, epsilon: float | Fraction, noise: Noise) -> str:
    """One label of a known domain, drawn with a chance proportional to exp(epsilon count).

    >>> from pianissimo.testing import NoNoise
    >>> exponential_mechanism({"a": 3, "b": 0, "c": 9}, epsilon=1.0, noise=NoNoise())
    'c'
    """
    return peel(counts, k=1, epsilon=epsilon, noise=noise)[0]
