"""One answer about a histogram of labels known beforehand.

Cardoso and Rogers, "Differentially private histograms under continual observation", 2022: Algorithm 10 (KnownGauss,
Theorem 8) and Algorithm 11 (KnownGumb, Theorem 9), with integer noise: discrete Gaussian draws (Canonne, Kamath and
Steinke 2020, Theorem 14) keep the rho of continuous ones, and the Gumbel order is the exact race of `race`. Neighbors
move all counts in one direction, each by at most one, as removing one event does.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, Keys
from pianissimo.noise.laws import GaussianNode, NodeNoise, gaussian_node
from pianissimo.selection.race import check_race_scale, first_in_race, race_distance, race_rho, race_scale

Published = tuple[pl.Series, NDArray[np.int64]]
"""Labels and a noisy count for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """Counts published with Gaussian noise: what all one-shot answers share, as a base class."""

    variance: Fraction
    """Of the noise on each published count: tau^2."""

    @property
    def law(self) -> GaussianNode:
        """Of the noise on each published count."""
        return GaussianNode(self.variance)

    def error(self, coverage: float) -> float:
        return gaussian_half_width(self.variance, coverage)


@dataclass(frozen=True, slots=True, kw_only=True)
class RacedCounts(NoisyCounts):
    """Counts of the first labels of a race: what KnownGumb and UnkGumb share, as a base class."""

    k: int
    """How many labels are published at most."""

    scale: Fraction
    """Of the Gumbel noise of the race: tau / 2."""

    max_keys_per_event: int | None = None
    """How many distinct labels of one event count, Delta_0; None for any number."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)
        check_race_scale(self.scale)
        check_variance(self.variance)
        if self.max_keys_per_event is not None:
            check_at_least(1, max_keys_per_event=self.max_keys_per_event)

    @property
    def rho(self) -> Fraction:
        """Of the order and of the counts that one event can move."""
        counts = moved_counts(self.k, self.max_keys_per_event)
        return race_rho(self.k, self.scale) + counts / (2 * self.variance)


@identified("known-gauss")
@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGauss(NoisyCounts):
    """The noisy count of every label of a domain.

    Guarantee: booked as (D / (2 variance), 0) per answer, D = max_keys_per_event.
    Error: the normal quantile at this variance, rounded up.
    Cost: one draw a label; labels of count 0 get noise too.

    >>> from pianissimo.testing import NoNoise
    >>> one_shot = KnownGauss(domain=Domain(["a", "b"]), variance=Fraction(4))
    >>> labels, counts = one_shot.answer(
    ...     pl.Series(["a", "b"]), np.zeros((2, 2), np.uint64), np.array([3, 0]), NoNoise())
    >>> labels.to_list(), counts.tolist()
    (['a', 'b'], [3, 0])
    """

    domain: Domain
    """The labels that are counted, all of which are published."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count: Delta_0."""

    biased: ClassVar[bool] = False
    """Every label is in every answer."""

    def __post_init__(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        check_variance(self.variance)

    @classmethod
    def calibrated(cls, *, domain: Domain, rho: Fraction | float, max_keys_per_event: int = 1) -> Self:
        """The one with the least noise whose rho is at most this.

        >>> KnownGauss.calibrated(domain=Domain(["a", "b"]), rho=0.125, max_keys_per_event=2).loss.rho
        Fraction(1, 8)
        """
        check_positive(rho=rho)
        moved = min(max_keys_per_event, len(domain))
        variance = gaussian_node(moved / (2 * Fraction(rho))).variance
        return cls(domain=domain, variance=variance, max_keys_per_event=max_keys_per_event)

    @property
    def loss(self) -> Booked:
        moved = min(self.max_keys_per_event, len(self.domain))
        return Booked(rho=moved / (2 * self.variance), distance=len(self.domain) * DRAW_DISTANCE)

    def answer(self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise) -> Published:
        """The labels as given and a noisy count for each; `labels` is the whole domain in the order of its bytes."""
        return labels, with_noise(counts, keys, self.law, noise)


@identified("known-gumb")
@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGumb(RacedCounts):
    """The k labels of a domain with the largest counts, more or less, and a noisy count for each.

    Whatever the number of labels in an event: its price is in what is published. The order comes from Gumbel noise of
    its own; published are counts with fresh noise, never those of the race.

    Guarantee: booked as (k / (8 scale^2) + min(k, D) / (2 variance), 0) per answer, D = max_keys_per_event, infinite
    if that is None. With scale = tau / 2 and variance = tau^2 this is Theorem 9's k / tau^2.
    Error: of the published counts, the normal quantile at this variance, rounded up. Which labels are published is a
    matter of the scale: a label leads another by scale * ln(1 / p) or more and is behind it with a chance below p.
    Cost: 128 bits a label of the domain and k draws.

    >>> from pianissimo.testing import NoNoise
    >>> one_shot = KnownGumb(domain=Domain(["a", "b", "c"]), k=2, scale=Fraction(1), variance=Fraction(4))
    >>> labels, counts = one_shot.answer(
    ...     pl.Series(["a", "b", "c"]), np.zeros((3, 2), np.uint64), np.array([3, 0, 9]), NoNoise())
    >>> labels.to_list(), counts.tolist()
    (['c', 'a'], [9, 3])
    """

    domain: Domain
    """The labels that run."""

    def __post_init__(self) -> None:
        RacedCounts.__post_init__(self)
        if not self.k <= len(self.domain):
            raise ParameterError(f"k must be at most the {len(self.domain)} labels of the domain, got {self.k}")

    @classmethod
    def calibrated(
        cls, *, domain: Domain, k: int, rho: Fraction | float, max_keys_per_event: int | None = None
    ) -> Self:
        """The one whose rho is at most this, half of it for the order and half for the counts.

        >>> KnownGumb.calibrated(domain=Domain(["a", "b"]), k=1, rho=0.25).loss.rho
        Fraction(1, 4)
        """
        scale, variance = halves(k, rho, max_keys_per_event)
        return cls(domain=domain, k=k, scale=scale, variance=variance, max_keys_per_event=max_keys_per_event)

    @property
    def loss(self) -> Booked:
        distance = race_distance(len(self.domain), self.k) + self.k * DRAW_DISTANCE
        return Booked(rho=self.rho, distance=distance)

    @property
    def biased(self) -> bool:
        """Whether a label can be missing from an answer."""
        return self.k < len(self.domain)

    def answer(self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise) -> Published:
        """The k first labels and a noisy count for each; `labels` is the whole domain in the order of its bytes."""
        first = first_in_race(counts, noise.at("race").bits(keys), self.scale, self.k)
        return labels.gather(first), with_noise(counts[first], keys[first], self.law, noise)


def with_noise(counts: NDArray[np.int64], keys: Keys, law: NodeNoise, noise: Noise) -> NDArray[np.int64]:
    """The counts plus a draw each."""
    values = np.empty(len(counts), dtype=np.int64)
    law.draw(noise, keys, values)
    return values + counts


def gaussian_half_width(variance: Fraction, coverage: float) -> int:
    """How far noise of this variance reaches with this chance, rounded up.

    >>> gaussian_half_width(Fraction(100), 0.95)
    20
    """
    check_probability(coverage=coverage)
    return math.ceil(NormalDist().inv_cdf((1 + coverage) / 2) * math.sqrt(variance))


def moved_counts(k: int, max_keys_per_event: int | None) -> int:
    """How many of k published counts one event can move."""
    return k if max_keys_per_event is None else min(k, max_keys_per_event)


def halves(k: int, rho: Fraction | float, max_keys_per_event: int | None) -> tuple[Fraction, Fraction]:
    """The scale of the order and the variance of the counts that cost at most half of `rho` each."""
    check_at_least(1, k=k)
    check_positive(rho=rho)
    half = Fraction(rho) / 2
    return race_scale(k, half), gaussian_node(moved_counts(k, max_keys_per_event) / (2 * half)).variance


def check_variance(variance: Fraction) -> None:
    """Refuse what is not an exact variance that the sampler has."""
    if not isinstance(variance, Fraction):
        raise ParameterError(f"variance must be an exact Fraction, got {type(variance).__name__}")
    _ = GaussianNode(variance).bound
