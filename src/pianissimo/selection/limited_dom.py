"""Top k from the first k_bar labels of a histogram that nobody knew beforehand, paying for what comes back.

**LimitedDomain.** Durfee and Rogers, "Practical differentially private top-k selection with pay-what-you-get
composition", NeurIPS 2019, Algorithm 1 (LimitDom) and Theorem 1. An engine that knows no privacy gives the k_bar
largest counts (equal ones by the bytes of the labels) and the count h that comes next. The labels of positive count and
a threshold at

```text
h + 1 + ln(m (1 - delta) / delta) / epsilon,    m = min(max_keys_per_user, k_bar)
```

run a race of count + Gumbel(1 / epsilon); published are the labels before the threshold, k at most, and the threshold
if it was met. This is peeling on labels and threshold, which stops at the threshold.

Corrected here:

* The paper's threshold has ln(m / delta) and a bad mass of delta / (1 + delta). Ours is lower and makes it delta.
* Lemmas 5.6, 7.3, C.3 and Corollary C.1 are false for k >= 2: conditioned on "no bad label" an early threshold is
  favoured. The theorem is true by the lemma of the bad mass (docs/privacy.md, 'Unknown labels'): the comparison
  mechanism is the same peeling on renamed labels, as in `known_and_unknown`; leaving out a competitor only makes good
  answers likelier.
* The domain is "rank <= k_bar and count > 0". With labels of count 0 left out, the number of labels in the universe
  must not lower m: k_bar = max_keys_per_user = 2 of 3 labels gives 1.98 delta.
* A step costs epsilon^2 / 8 in zCDP, not epsilon^2 / 2, and delta is booked once, not twice.

The threshold is rounded up to a multiple of 2^-16, and the race is exact: see `thresholds` and `race`.

**StrictDomain**, for sources that cannot order equal counts. Durfee and Rogers 2019, Algorithm 5 and Lemma 6.8. As
above, with the domain "count > h", h the count of rank k_bar + 1: it does not matter which of several equal counts is
called the k_bar-th.

Corrected here: m = k_bar always. One user who raises h by one can expel all k_bar labels, however few labels that user
holds; with max_keys_per_user instead of k_bar (as in Algorithm 1) the exact delta at k_bar = 3 is 2.99 times the
claimed one.

Why it holds: the domains of two neighbors are nested, and the labels that are in one alone have a count of h + 1 there.
Let x be the smaller h. If they belong to the larger histogram, the other side gets dummies of count x; if to the
smaller, dummies of count x + 1. Then every entry of the renamed vectors moves by 0 or 1 in one direction, dummies come
before the threshold with a chance of at most delta in total, and the lemma of the bad mass applies.

**LimitedLaplace.** Noisy counts come with the labels and cost nothing more. Durfee and Rogers 2019, Algorithm 4
(LimitDom_Lap) and Lemma 6.1, for users who hold at most max_keys_per_user labels. Corrected here:

* Equation (7) prints the offset ln(Delta / epsilon), a misprint that breaks privacy: an exact delta of 0.5 at epsilon
  = 1. Meant is ln(Delta / delta) / epsilon.
* Lemma 6.1's bad mass has a factor e^(Delta epsilon) + 1 that is not needed, by the lemma of the bad mass
  (docs/privacy.md, 'Unknown labels').
* min(Delta, k_bar) labels at most are on one side only, so that many shares of delta are enough.

*Whole numbers.* The noise is discrete Laplace of scale 1 / epsilon, and a label is shown if its noisy count is above
the threshold's, ties excluded. A label of count h + 1 is then shown with the chance P[Z - Z' > y], y the offset beyond
h + 1: the least whole y at which the exact tail is at most delta / min(Delta, k_bar).

*Why.* On the renamed vectors of `known_and_unknown` the counts, threshold included, differ by one in at most Delta
places: independent noise makes that Delta plain steps of epsilon. Labels, order and noisy counts are all functions of
the noisy vector. Among equal noisy counts labels go by their bytes; a renamed label that ties with a shown one is above
the threshold itself, so it was already counted as bad.

**OptimalThreshold.** The number of labels that are looked at is chosen privately, for the lowest threshold: Durfee and
Rogers 2019, Algorithm 6 and Lemma 6.6. The threshold of `LimitedDomain` falls with the next count h_(i+1)
and rises with ln i; the best i depends on the data. One more step of the exponential mechanism picks it.

Corrected here:

* The paper takes the least of score + Gumbel. That is not the exponential mechanism: among n candidates it costs up to
  (n - 1) epsilon. The sign is minus: k_bar is the i with the least score - Gumbel(1 / epsilon), that is, the first in a
  race of -score.
* The score is the threshold that is used, h_(i+1) + 1 + ln(i (1 - delta) / delta) / epsilon; the paper scores h_(i).
* Candidates are i = k .. d_bar - 1, whatever the data: counts that are missing are zeros.

Each h_(i+1) moves by 0 or 1, all in one direction, so the choice is one step of bounded range epsilon, and k - 1 labels
are k - 1 more. The chosen k_bar may be published. Scores are rounded up to multiples of 2^-16.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.ledger import Account, charge_release
from pianissimo.loss.losses import Booked, BoundedRange, Unit
from pianissimo.noise import KeyedNoise, Noise, fresh_secret
from pianissimo.noise.keyed import DRAW_DISTANCE, ONE_KEY, exact_scale
from pianissimo.noise.laws import LaplaceNode
from pianissimo.selection.known_and_unknown import before_threshold, largest, strictly_larger
from pianissimo.selection.race import MOST, Answer, Counted, check_race_scale, first_in_race, race_distance
from pianissimo.selection.thresholds import GRID, check_exact, labels_above, laplace_difference_offset, race_offset


def race_to_threshold(
    histogram: Counted, places: NDArray[np.int64], threshold: Fraction, *, epsilon: Fraction, k: int, noise: Noise
) -> Answer:
    """The labels at `places` that come before the threshold in a race of count + Gumbel(1 / epsilon), k at most.

    The threshold is a multiple of 1 / GRID; counts and scale are multiplied by GRID, which changes no order.
    """
    places = np.sort(places)
    level = threshold * GRID
    if level.denominator != 1:
        raise AssertionError("a threshold must lie on the grid of the race")
    counts, keys = histogram.counts[places] * GRID, histogram.keys(places, noise)
    first, met_threshold = before_threshold(int(level), counts, keys, GRID / epsilon, k, noise)
    return Answer(histogram.names(places[first]), met_threshold=met_threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limited:
    """The parameters of every answer from a limited domain, as a base class."""

    k: int
    """How many labels are published at most."""

    candidates: int
    """How many labels it may look at, largest counts first; at least k. The paper's k_bar."""

    epsilon: Fraction
    """Of one step: of one label that a race gives, or of one moved count that gets Laplace noise."""

    delta: Fraction
    """The chance that a label is published which only one user's presence has made a candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FirstBeforeThreshold(_Limited):
    """What both domains share. A base class: the two differ by which labels run and how many may be new alone."""

    def __post_init__(self) -> None:
        check_race_parameters(k=self.k, candidates=self.candidates, epsilon=self.epsilon, delta=self.delta)

    @property
    def moved(self) -> int:
        """How many labels may be on one side only: m."""
        return self.candidates

    @property
    def offset(self) -> Fraction:
        """How far the threshold is above the count that comes after the k_bar largest; a multiple of 2^-16."""
        return 1 + race_offset(self.moved, self.delta, self.epsilon)

    @property
    def loss(self) -> BoundedRange:
        distance = race_distance(self.candidates + 1, self.k)
        return BoundedRange(steps=self.k, width=self.epsilon, bad=self.delta, distance=distance)

    def answer(self, counts: Mapping[str, int], noise: Noise) -> Answer:
        """The labels before the threshold. The k_bar + 1 largest counts are enough; those of a LIMIT, for example.

        The noise is given by tests, and by what draws a fresh one, as `limited_domain`.
        """
        histogram = Counted.of(counts)
        noise = histogram.noise(noise)
        places, following = self._runners(histogram.counts)
        threshold = following + self.offset
        return race_to_threshold(histogram, places, threshold, epsilon=self.epsilon, k=self.k, noise=noise)

    def _runners(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        return largest(counts, self.candidates)

    def cost(self, answer: Answer) -> int:
        """In steps: as many as there are labels in the answer, and one more if the threshold was met."""
        return answer.length


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedDomain(_FirstBeforeThreshold):
    """At most k labels, those with the largest counts more or less, in order.

    Guarantee: k steps of bounded range epsilon, (k epsilon^2 / 8) zCDP, and a bad mass of delta. Counts of distinct
    users, so that one user moves each count by at most one and at most max_keys_per_user of them.
    Error: with a chance of 1 - b every label has a count of at least h_(k) - ln(k (k_bar - k) / b) / epsilon; all k
    come back with that chance if h_(k) is ln(k / b) / epsilon above the threshold.
    Cost: 128 bits for each of k_bar labels.

    >>> from pianissimo.testing import NoNoise
    >>> mechanism = LimitedDomain(k=2, candidates=3, epsilon=Fraction(1), delta=Fraction(1, 10))
    >>> answer = mechanism.answer({"a": 9, "b": 3, "c": 3, "d": 1}, NoNoise())
    >>> answer.labels, answer.met_threshold, mechanism.cost(answer)
    (('a',), True, 2)
    """

    max_keys_per_user: int | None = None
    """How many distinct labels of one user count; None for any number."""

    def __post_init__(self) -> None:
        _FirstBeforeThreshold.__post_init__(self)
        if self.max_keys_per_user is not None:
            check_at_least(1, max_keys_per_user=self.max_keys_per_user)

    @property
    def moved(self) -> int:
        return self.candidates if self.max_keys_per_user is None else min(self.max_keys_per_user, self.candidates)


def limited_domain(
    counts: Mapping[str, int],
    *,
    k: int,
    candidates: int,
    epsilon: float | Fraction,
    delta: float | Fraction,
    ledger: Account,
    max_keys_per_user: int | None = None,
) -> list[str]:
    """At most k keys with the largest counts, more or less, in order: k steps of bounded range `epsilon`, and `delta`.

    `counts` says how many distinct users hold each key; the k_bar + 1 largest are enough. Fewer than k keys come back
    if the threshold was met. It is charged to the ledger before noise is drawn, or ledger="not accounted for" says that
    whoever asks again adds up by hand.

    A refusal is not private. Whether all keys are texts and all counts whole numbers is looked at before anything is
    drawn, and one key of one user may decide it; so see to it while counting, row by row, and do not pass on the error.

    >>> counts = {"tea": 900, "coffee": 800, "milk": 3}
    >>> limited_domain(counts, k=3, candidates=10, epsilon=1.0, delta=1e-9, ledger="not accounted for")
    ['tea', 'coffee']
    """
    mechanism = LimitedDomain(
        k=k,
        candidates=candidates,
        epsilon=exact_scale(epsilon=epsilon),
        delta=exact_scale(delta=delta),
        max_keys_per_user=max_keys_per_user,
    )
    Counted.of(counts)  # refuses what is no histogram before it is paid for
    loss = mechanism.loss
    question = f"top {k} of at most {candidates} labels, hides one user"
    charge_release(ledger, loss.as_booked(), epsilon=loss.epsilon, hides=Unit.USER, question=question)
    return list(mechanism.answer(counts, KeyedNoise(fresh_secret())).labels)


def check_race_parameters(*, k: int, candidates: int, epsilon: Fraction, delta: Fraction) -> None:
    """Refuse more answers than candidates, and what the race cannot run with."""
    check_within(k=k, candidates=candidates)
    check_exact(epsilon=epsilon, delta=delta)
    if not Fraction(1, 2**32) <= epsilon <= 2**32:
        raise ParameterError(f"epsilon must be from 2^-32 to 2^32, got {float(epsilon):g}")
    check_race_scale(GRID / epsilon)
    # From one label of a user to all k_bar of them: the race is one of whole numbers of 64 bits.
    if any(not abs(race_offset(labels, delta, epsilon)) < MOST for labels in (1, candidates)):
        raise ParameterError("delta must keep the threshold below 2^44 users, got one too near to 0 or 1")


def check_within(*, k: int, candidates: int) -> None:
    """Refuse more answers than candidates."""
    check_at_least(1, k=k, candidates=candidates)
    if not k <= candidates:
        raise ParameterError(f"k must be at most candidates, the number of labels looked at, got {k} of {candidates}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictDomain(_FirstBeforeThreshold):
    """At most k labels out of those whose count is above that of rank k_bar + 1, in order.

    Guarantee: k steps of bounded range epsilon, (k epsilon^2 / 8) zCDP, and a bad mass of delta, whatever the number
    of labels a user holds.
    Error: that of `LimitedDomain`, with a threshold that is ln(k_bar / max_keys_per_user) / epsilon higher: where equal
    counts have an order, take that one.
    Cost: 128 bits for each of at most k_bar labels.

    >>> from pianissimo.testing import NoNoise
    >>> mechanism = StrictDomain(k=2, candidates=3, epsilon=Fraction(2), delta=Fraction(1, 10))
    >>> mechanism.answer({"a": 9, "b": 8, "c": 1, "d": 1}, NoNoise())
    Answer(labels=('a', 'b'), met_threshold=False, counts=None, candidates=None)
    """

    def _runners(self, counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
        return strictly_larger(counts, self.candidates)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitedLaplace(_Limited):
    """The labels whose noisy count is above a noisy threshold, with that count, largest first, k at most.

    Guarantee: D = max_keys_per_user plain steps of epsilon, that is D epsilon, and a bad mass of delta, whatever k is.
    For D > 1 Gaussian noise (`UnkGauss`) costs sqrt(D) where this costs D.
    Error: of a published count, the Laplace quantile ln(1 / (1 - coverage)) / epsilon; a label whose count is about the
    threshold is published when its noise is high, so its count leans upward then.
    Cost: at most k_bar + 1 draws.

    >>> from pianissimo.testing import NoNoise
    >>> mechanism = LimitedLaplace(k=2, candidates=2, epsilon=Fraction(1), delta=Fraction(1, 100))
    >>> mechanism.answer({"a": 20, "b": 8, "c": 3}, NoNoise())
    Answer(labels=('a',), met_threshold=True, counts=(20,), candidates=None)
    """

    max_keys_per_user: int = 1
    """How many distinct labels of one user count."""

    def __post_init__(self) -> None:
        check_within(k=self.k, candidates=self.candidates)
        check_at_least(1, max_keys_per_user=self.max_keys_per_user)
        check_exact(epsilon=self.epsilon, delta=self.delta)
        _ = LaplaceNode(1 / self.epsilon).bound

    @property
    def offset(self) -> int:
        """How far the threshold is above the count that comes after the k_bar largest."""
        share = self.delta / min(self.max_keys_per_user, self.candidates)
        return 1 + laplace_difference_offset(1 / self.epsilon, share)

    @property
    def moved(self) -> int:
        """How many of the noisy numbers, the threshold included, one user can move."""
        return min(self.max_keys_per_user, self.candidates + 1)

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
            distance=(self.candidates + 1) * DRAW_DISTANCE,
        )

    def answer(self, counts: Mapping[str, int], noise: Noise) -> Answer:
        """The labels that pass and their noisy counts. The noise is given by tests, or fresh."""
        histogram = Counted.of(counts)
        noise = histogram.noise(noise)
        places, following = largest(histogram.counts, self.candidates)
        law = LaplaceNode(1 / self.epsilon)
        values = law.added(histogram.counts[places], histogram.keys(places, noise), noise)
        threshold = law.added(np.array([following + self.offset]), ONE_KEY, noise.at("threshold"))
        return labels_above(int(threshold[0]), histogram, places, values, self.k)

    def cost(self, answer: Answer) -> int:  # noqa: ARG002
        """In steps: all of them, whatever came back."""
        return self.moved


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
    delta: Fraction
    """As in `LimitedDomain`."""

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
        """The labels before the threshold, and k_bar. The noise is given by tests, or fresh."""
        histogram = Counted.of(counts)
        noise = histogram.noise(noise)
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
