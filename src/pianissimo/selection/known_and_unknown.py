"""One answer about a histogram, whose labels are known beforehand or not.

Cardoso and Rogers, "Differentially private histograms under continual observation", 2022: Algorithm 10 (KnownGauss,
Theorem 8), Algorithm 11 (KnownGumb, Theorem 9), Algorithm 5 (UnkGauss, Theorem 6) and Algorithm 12 (UnkGumb, Theorem
10), which rests on Durfee and Rogers 2019, Algorithm 1 and Theorem 1. With integer noise: discrete Gaussian draws
(Canonne, Kamath and Steinke 2020, Theorem 14) keep the rho of continuous ones, and the Gumbel order is the exact race
of `race`. Neighbors move all counts in one direction, each by at most one, as removing one event does.

**Unknown labels.** UnkGauss and UnkGumb look at the kbar labels of largest count (equal counts by the bytes of the
labels) and at the count that comes next, h; a pseudo-label, the threshold, has the count h + gap. Corrected here:

* UnkGumb's gap is 1 + scale ln(1 / delta), scale = tau / 2. Printed is tau ln(1 / delta), twice as much as is needed.
* Durfee and Rogers, Lemmas 5.6 and 7.3, are false for k >= 2; the theorems are true by the lemma of the bad mass
  (docs/privacy.md, 'Unknown labels'), with the comparison mechanism below.
* Cardoso and Rogers, Lemma 6.4, holds with the threshold counted as one more bin, which its proof leaves out.

*Why.* Let h0 >= h1 be the counts of two neighbors, C the labels that differ; dummies of count 0 fill up the first
kbar. The labels that are among the first kbar on one side only are as many on both sides, at most min(|C|, kbar), and
have a count of at most h + 1 on their side. Give them common names, side by side: then the two vectors of counts
(common labels, renamed ones, threshold) differ by 0 or 1 in each entry, all in one direction, and in at most |C|
entries, the threshold included. The comparison mechanism A is Gaussian noise, or the race, on that vector; G is: no
renamed label before the threshold. Leaving out a competitor (dummies are never shown) only makes the other outcomes
likelier.

*Whole numbers.* The noise of UnkGauss is discrete. A renamed label and the threshold differ by two draws, whose
difference is sub-Gaussian with twice the variance: it is x or more with a chance of at most exp(-x^2 / (4 variance)),
which is delta for x = sqrt(4 variance ln(1 / delta)). A label is shown if its noisy count is at least the
threshold's, ties included, so with gap = 1 + ceil(x) a renamed label is shown with a chance of at most delta. Normal
quantiles would give a smaller gap and are not proven for discrete noise. In UnkGumb the gap is rounded up, so that
the race is one of whole numbers.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_fraction, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain, detached
from pianissimo.loss.losses import Booked, log_inverse
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, ONE_KEY, Keys, bound_to
from pianissimo.noise.laws import GaussianNode, gaussian_node
from pianissimo.noise.plan import normal_quantile
from pianissimo.selection.race import check_race_scale, first_in_race, race_distance, race_rho, race_scale

_ROUNDING_ERROR = 1e-9

Published = tuple[pl.Series, NDArray[np.int64]]
"""Labels and a noisy count for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """Counts published with Gaussian noise: what all one-shot answers share, as a base class."""

    variance: Fraction
    """Of the noise on each published count: tau^2."""

    @property
    def law(self) -> GaussianNode:
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

    @classmethod
    def calibrated(cls, *, k: int, rho: Fraction | float, max_keys_per_event: int | None = None, **others: Any) -> Self:
        """The one whose rho is at most this, half of it for the order and half for the counts."""
        check_at_least(1, k=k)
        check_positive(rho=rho)
        half = Fraction(rho) / 2
        variance = gaussian_node(moved_counts(k, max_keys_per_event) / (2 * half)).variance
        scale = race_scale(k, half)
        return cls(k=k, scale=scale, variance=variance, max_keys_per_event=max_keys_per_event, **others)

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
    """

    domain: Domain
    """The labels that are counted, all of which are published."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count: Delta_0."""

    biased: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        check_variance(self.variance)

    @classmethod
    def calibrated(cls, *, domain: Domain, rho: Fraction | float, max_keys_per_event: int = 1) -> Self:
        """The one with the least noise whose rho is at most this."""
        check_positive(rho=rho)
        moved = min(max_keys_per_event, len(domain))
        variance = gaussian_node(moved / (2 * Fraction(rho))).variance
        return cls(domain=domain, variance=variance, max_keys_per_event=max_keys_per_event)

    @property
    def loss(self) -> Booked:
        moved = min(self.max_keys_per_event, len(self.domain))
        return Booked(rho=moved / (2 * self.variance), distance=len(self.domain) * DRAW_DISTANCE)

    def answer(self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise) -> Published:
        noise = bound_to(noise, keys.tobytes(), counts.tobytes())
        return labels, self.law.added(counts, keys, noise)


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
    """

    domain: Domain
    """The labels that run."""

    def __post_init__(self) -> None:
        RacedCounts.__post_init__(self)
        if not self.k <= len(self.domain):
            raise ParameterError(f"k must be at most the {len(self.domain)} labels of the domain, got {self.k}")

    @property
    def loss(self) -> Booked:
        distance = race_distance(len(self.domain), self.k) + self.k * DRAW_DISTANCE
        return Booked(rho=self.rho, distance=distance)

    @property
    def biased(self) -> bool:
        return self.k < len(self.domain)

    def answer(self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise) -> Published:
        noise = bound_to(noise, keys.tobytes(), counts.tobytes())
        first = first_in_race(counts, noise.at("race").bits(keys), self.scale, self.k)
        return labels.gather(first), self.law.added(counts[first], keys[first], noise)


@identified("unk-gauss")
@dataclass(frozen=True, slots=True, kw_only=True)
class UnkGauss(NoisyCounts):
    """The labels whose noisy count reaches a noisy threshold, with that count, largest first.

    Guarantee: booked as (D / (2 variance), min(D, kbar) delta) per answer, D = max_keys_per_event.
    Error: the normal quantile at this variance, rounded up; a label whose count is about the threshold is published
    when its noise is high, so its count leans upward then.
    Cost: at most kbar + 1 draws.
    """

    candidates: int
    """How many labels it may look at (kbar), largest counts first. The threshold has the noise of a count."""

    delta: Fraction
    """The chance that a label which is only there because of one event is published."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count: Delta_0."""

    domain: ClassVar[None] = None
    biased: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least(1, candidates=self.candidates, max_keys_per_event=self.max_keys_per_event)
        check_variance(self.variance)
        check_bad_mass(self.delta, min(self.candidates, self.max_keys_per_event))

    @classmethod
    def calibrated(
        cls, *, candidates: int, rho: Fraction | float, delta: Fraction, max_keys_per_event: int = 1
    ) -> Self:
        """The one with the least noise whose rho is at most this."""
        check_positive(rho=rho)
        variance = gaussian_node(max_keys_per_event / (2 * Fraction(rho))).variance
        return cls(candidates=candidates, variance=variance, delta=delta, max_keys_per_event=max_keys_per_event)

    @property
    def gap(self) -> int:
        """How far the threshold is above the count that comes after the kbar largest."""
        spread = math.sqrt(4 * float(self.variance) * log_inverse(self.delta))
        return 1 + math.ceil(spread * (1 + _ROUNDING_ERROR))

    @property
    def loss(self) -> Booked:
        return Booked(
            rho=self.max_keys_per_event / (2 * self.variance),
            bad=min(self.candidates, self.max_keys_per_event) * self.delta,
            distance=(self.candidates + 1) * DRAW_DISTANCE,
        )

    def answer(self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise) -> Published:
        noise = bound_to(noise, keys.tobytes(), counts.tobytes())
        places, following = largest(counts, self.candidates)
        values = self.law.added(counts[places], keys[places], noise)
        threshold = self.law.added(np.array([following + self.gap]), ONE_KEY, noise.at("threshold"))
        passing = np.flatnonzero(values >= threshold)
        order = passing[np.lexsort((places[passing], -values[passing]))]
        return detached(labels.gather(places[order])), values[order]


@identified("unk-gumb")
@dataclass(frozen=True, slots=True, kw_only=True)
class UnkGumb(RacedCounts):
    """At most k labels with the largest counts, more or less, and a noisy count for each.

    Labels and threshold run a race of count + Gumbel(scale); published are the labels before the threshold, k at
    most. An event may hold any number of labels. The counts carry fresh noise, never that of the race.

    Guarantee: booked as (k / (8 scale^2) + min(k, D) / (2 variance), min(D, kbar) delta) per answer, D =
    max_keys_per_event, infinite if that is None. With scale = tau / 2 and variance = tau^2 this is (k / tau^2, kbar
    delta).
    Error: of the published counts, the normal quantile at this variance, rounded up.
    Cost: 128 bits for each of kbar labels and k draws.
    """

    candidates: int
    delta: Fraction
    """As in `UnkGauss`; it looks at k candidates or more."""

    domain: ClassVar[None] = None
    biased: ClassVar[bool] = True

    def __post_init__(self) -> None:
        RacedCounts.__post_init__(self)
        check_at_least(self.k, candidates=self.candidates)
        check_bad_mass(self.delta, moved_counts(self.candidates, self.max_keys_per_event))

    @property
    def gap(self) -> int:
        # A label that is scale * ln(1 / delta) behind is before the threshold with chance delta / (1 + delta).
        return 1 + math.ceil(float(self.scale) * log_inverse(self.delta) * (1 + _ROUNDING_ERROR))

    @property
    def loss(self) -> Booked:
        return Booked(
            rho=self.rho,
            bad=moved_counts(self.candidates, self.max_keys_per_event) * self.delta,
            distance=race_distance(self.candidates + 1, self.k) + self.k * DRAW_DISTANCE,
        )

    def answer(self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise) -> Published:
        noise = bound_to(noise, keys.tobytes(), counts.tobytes())
        chosen = self.choose(keys, counts, noise)
        return detached(labels.gather(chosen)), self.law.added(counts[chosen], keys[chosen], noise)

    def choose(self, keys: Keys, counts: NDArray[np.int64], noise: Noise) -> NDArray[np.int64]:
        """The places of the labels before the threshold, first one first."""
        ranked, following = largest(counts, self.candidates)
        places = np.sort(ranked)
        first, _ = before_threshold(following + self.gap, counts[places], keys[places], self.scale, self.k, noise)
        return places[first]


def gaussian_half_width(variance: Fraction, coverage: float) -> int:
    """How far noise of this variance reaches with this chance, rounded up."""
    check_probability(coverage=coverage)
    return math.ceil(normal_quantile(coverage) * math.sqrt(variance))


def moved_counts(k: int, max_keys_per_event: int | None) -> int:
    """How many of k published counts one event can move."""
    return k if max_keys_per_event is None else min(k, max_keys_per_event)


def check_variance(variance: Fraction) -> None:
    """Refuse what is not an exact variance that the sampler has."""
    check_fraction(variance=variance)
    _ = GaussianNode(variance).bound


def before_threshold(
    level: int, counts: NDArray[np.int64], keys: Keys, scale: Fraction, k: int, noise: Noise
) -> tuple[NDArray[np.int64], bool]:
    """The places of those before a threshold in a race, k at most, first one first, and whether the threshold was met.

    The counts are in the order of their labels, as ties go by position; the threshold comes first.
    """
    bits = np.concatenate([noise.at("threshold").bits(ONE_KEY), noise.at("race").bits(keys)])
    first = first_in_race(np.concatenate([[level], counts]), bits, scale, k)
    before = np.logical_and.accumulate(first != 0)
    return first[before] - 1, not bool(before.all())


def largest(counts: NDArray[np.int64], candidates: int) -> tuple[NDArray[np.int64], int]:
    """The places of the kbar largest positive counts, equal ones by position, and the count that comes next, or 0."""
    order = np.argsort(-counts, kind="stable")
    following = int(counts[order[candidates]]) if len(counts) > candidates else 0
    seen = order[:candidates]
    return seen[counts[seen] > 0], max(following, 0)


def strictly_larger(counts: NDArray[np.int64], candidates: int) -> tuple[NDArray[np.int64], int]:
    """The places of the counts above that of rank k_bar + 1, largest first, and that count, or 0."""
    places, following = largest(counts, candidates)
    return places[counts[places] > following], following


def check_bad_mass(delta: Fraction, labels: int) -> None:
    """Refuse a chance that is none, or one that so many labels make certain."""
    check_fraction(delta=delta)
    check_probability(delta=delta)
    if not labels * delta < 1:
        raise ParameterError(f"delta must be below 1/{labels}, one over the labels it is for, got {delta}")
