"""The release of merged sketches and of sketches of sets: sparse histograms with Gaussian noise.

One unit moves counts by one, all in one direction, in at most l = k keys.

**Independent draws.** Wilkins, Kifer, Zhang and Karrer, "Exact privacy analysis of the Gaussian sparse histogram
mechanism", 2023, give the exact condition for real noise; it holds for whole-number noise with its own divergence. With
A_j = (1 - P[Z >= tau])^(l - j), of l differing keys j shared ones, and HS_j the divergence of a shift by one in j
coordinates, for every j from 0 to l:

```text
delta >= 1 - A_j + A_j HS_j(epsilon - ln A_j)        and        delta >= HS_j(epsilon + ln A_j)
```

The largest is at j = 0 or j = l in all cases of use, so that the variance and tau are both least at once: the variance
from HS_l(epsilon) <= delta, tau from 1 - A_0 <= delta. All j are checked nevertheless, a range of them at a time: 1 -
A_j falls and HS_j rises with j, so that for j from i to i'

```text
1 - A_j + A_j HS_j(epsilon - ln A_j) <= 1 - A_i + HS_i'(epsilon)
HS_j(epsilon + ln A_j) <= HS_i'(epsilon + ln A_i)
```

and a range is halved until these are enough, or one j is left.

**One shared draw** beside the draws of the keys: about half the noise. Lebeda and Retschmeier, "The correlated Gaussian
sparse histogram mechanism", 2024, for whole numbers. All counts that one unit moves move in one direction, so a draw
that all keys share takes half of every move, and the draw of each key takes the other half, with either sign. In half
counts: the shared draw H moves by one and each of k draws Z_x by one, whatever the pattern of the change. The
divergence of that is

```text
dG = E[(1 - exp(epsilon - L))+]        L = (2 Y + k) / (2 V1) + (2 H + 1) / (2 V0)        Y the sum of k draws
```

Keys that are on one side only have count 1 there; leaving them out costs, in total variation and so without a factor,

```text
dT = sum over h of P[H = h] (1 - (1 - P[Z >= Theta - 2 - h])^k)
```

The release is (epsilon, dG + dT)-private.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from typing import Self

import numpy as np
import polars as pl

from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.loss.losses import Booked, Mixed, float_down
from pianissimo.noise import Noise
from pianissimo.noise.exact_laws import (
    LARGEST_VARIANCE,
    enlarge,
    gaussian_law,
    gaussian_reach,
    gaussian_tail,
    least_around,
    least_integer,
    least_sigma,
    real_quantile,
    shift_divergence,
    shift_divergences,
    short_bound,
)
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.released_keys import (
    Counts,
    SparseRelease,
    bounded_counts,
    check_hidden,
    check_typed,
    in_key_order,
    item_keys,
    noise_of,
    own,
    without_distance,
)

_LARGEST_VARIANCE = 2**40


@identified("sparse-histogram")
@dataclass(frozen=True, slots=True, kw_only=True)
class SparseHistogram:
    """Positive counts with discrete Gaussian noise, shown from 1 + tau on.

    Guarantee: `delta_at(epsilon)` at every epsilon; composed, booked as (l / (2 variance), 1 - (1 - P[Z >= tau])^l).
    Error: with probability 1 - 2 delta, f in [estimate - tau, estimate + N/(k+1) + 2 tau + 1] for all keys at once,
    over a sketch of error N/(k+1) and with an estimate of 0 for keys that are not shown.
    Cost: one draw a stored key.
    """

    moved: int
    """How many keys are stored at most, and in how many neighbors differ, by one each and in one direction: l."""

    variance: int
    """Of the noise on each count."""

    tau: int
    """Noisy counts of at least 1 + tau are shown."""

    def __post_init__(self) -> None:
        check_at_least(1, moved=self.moved, variance=self.variance, tau=self.tau)

    @classmethod
    def calibrated(cls, *, moved: int, epsilon: Real, delta: Real) -> Self:
        """The one with the least noise and threshold within (epsilon, delta)."""
        check_at_least(1, moved=moved)
        left = without_distance(delta, moved, epsilon)
        variance, tau = sparse_calibration(moved, float_down(Fraction(epsilon)), float_down(left))
        return cls(moved=moved, variance=variance, tau=tau)

    def delta_at(self, epsilon: Real) -> Fraction:
        """A delta that holds at this epsilon, rounded up: the largest condition of all."""
        check_positive(epsilon=epsilon)
        return short_bound(worst_delta(self.moved, self.variance, self.tau, float_down(Fraction(epsilon))))

    @property
    def loss(self) -> Booked:
        return Booked(
            rho=Fraction(self.moved, 2 * self.variance),
            bad=short_bound(_shown_chance(self.moved, self.variance, self.tau)),
            distance=self.moved * DRAW_DISTANCE,
        )

    def release(self, contents: Contents, noise: Noise, *, epsilon: Real, coverage: float = 0.95) -> SparseRelease:
        """Publish, at the loss of this epsilon. The noise is given by tests, or fresh."""
        keys, counts = positive_counts(contents, self.moved)
        noise = noise_of(noise, keys, counts)
        reach = gaussian_reach(Fraction(self.variance), self.moved, coverage)
        noisy = counts + noise.at("counts").gaussian(variance=Fraction(self.variance), keys=item_keys(keys, noise))
        passing = np.flatnonzero(noisy >= 1 + self.tau)
        shown, loss = own(keys.gather(passing)), _once(self, epsilon)
        return SparseRelease(shown, noisy[passing], 1, threshold=1 + self.tau, loss=loss, reach=reach)


def positive_counts(contents: Contents, most: int, hidden: int = 1) -> tuple[pl.Series, Counts]:
    """The keys of positive count c(x) = u(x) - D in their own order, at most so many, and these counts.

    `hidden` is how many keys of a user the release hides.
    """
    check_typed(contents)
    check_hidden(contents, hidden)
    if contents.k is not None and contents.k > most:
        raise ParameterError(f"a sketch must store at most the {most} keys of its release, got one of k = {contents.k}")
    counts = contents.over - contents.decrements
    places = in_key_order(contents.keys)
    places = places[counts[places] > 0]
    if len(places) > most:
        raise ParameterError(f"a sketch must store at most the {most} keys of its release, got one of larger k")
    return contents.keys.gather(places), bounded_counts(counts[places])


def worst_delta(moved: int, variance: int, tau: int, epsilon: float) -> float:
    """The largest of all conditions, or up to a thousandth more if it is at neither end."""
    bound = max(_exact(moved, variance, tau, epsilon, shared) for shared in (0, moved))
    while bound < 1 and not holds_for_all(moved, variance, tau, epsilon, bound):
        bound *= 1 + 1e-3
    return min(bound, 1.0)


def holds_for_all(moved: int, variance: int, tau: int, epsilon: float, delta: float) -> bool:
    """Whether every condition stays within delta."""
    log_hidden = _log_hidden(variance, tau)
    ranges = [(0, moved)]
    while ranges:
        first, last = ranges.pop()
        log_a = (moved - first) * log_hidden
        both = -math.expm1(log_a) + shift_divergence(variance, last, epsilon)
        if both <= delta and shift_divergence(variance, last, epsilon + log_a) <= delta:
            continue
        if first == last:
            if _exact(moved, variance, tau, epsilon, first) > delta:
                return False
            continue
        middle = (first + last) // 2
        ranges += [(first, middle), (middle + 1, last)]
    return True


def _exact(moved: int, variance: int, tau: int, epsilon: float, shared: int) -> float:
    """The larger of the two conditions at one j."""
    log_a = (moved - shared) * _log_hidden(variance, tau)
    hidden = math.exp(log_a) * shift_divergence(variance, shared, epsilon - log_a)
    return enlarge(max(hidden - math.expm1(log_a), shift_divergence(variance, shared, epsilon + log_a)))


def _log_hidden(variance: int, tau: int) -> float:
    """ln(1 - P[Z >= tau]), rounded down."""
    return math.log1p(-gaussian_tail(Fraction(variance), tau))


def _shown_chance(moved: int, variance: int, tau: int) -> float:
    """1 - A_0, rounded up."""
    return enlarge(-math.expm1(moved * _log_hidden(variance, tau)))


@lru_cache(maxsize=1024)
def sparse_calibration(moved: int, epsilon: float, delta: float) -> tuple[int, int]:
    """The least whole variance and tau within (epsilon, delta)."""
    # A shift by one in so many coordinates is one of the length of their root.
    variance = min(round(moved * least_sigma(epsilon, delta) ** 2), _LARGEST_VARIANCE)
    if variance < _LARGEST_VARIANCE:
        variance = least_around(1, variance, lambda each: shift_divergence(each, moved, epsilon) <= delta)
    while variance < _LARGEST_VARIANCE:
        tau = least_integer(1, lambda each: _shown_chance(moved, variance, each) <= delta)  # noqa: B023
        if holds_for_all(moved, variance, tau, epsilon, delta):
            return variance, tau
        variance += max(1, variance // 2000)
    raise ParameterError("no whole variance up to 2^40 is enough; allow a larger epsilon or delta")


@identified("correlated-histogram")
@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedHistogram:
    """Positive counts of at most k keys with a draw each and one draw for all, shown from Theta / 2 on.

    Guarantee: `delta_at(epsilon)` at every epsilon; composed, booked as (1 / (2 V0) + k / (2 V1), dT).
    Error: half of a draw of variance V1 + V0 on every count.
    Cost: one draw a stored key, and one.
    """

    k: int
    """How many keys are stored at most, and in how many neighbors differ, by one each and in one direction."""

    variance: int
    """Of the draw of each key, in half counts: V1."""

    shared_variance: int
    """Of the one draw of all keys, in half counts: V0."""

    threshold: int
    """In half counts: Theta."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k, variance=self.variance, shared_variance=self.shared_variance)
        check_at_least(3, threshold=self.threshold)

    @classmethod
    def calibrated(cls, *, k: int, epsilon: Real, delta: Real) -> Self:
        """The one within (epsilon, delta), half of delta for the noise and half for the threshold."""
        check_at_least(1, k=k)
        left = without_distance(delta, k + 1, epsilon)
        variance, shared, least = correlated_calibration(k, float_down(Fraction(epsilon)), float_down(left))
        return cls(k=k, variance=variance, shared_variance=shared, threshold=least)

    def delta_at(self, epsilon: Real) -> Fraction:
        """dG + dT at this epsilon, rounded up."""
        check_positive(epsilon=epsilon)
        noise = noise_delta(self.k, self.variance, self.shared_variance, float_down(Fraction(epsilon)))
        return short_bound(min(1.0, enlarge(noise + self._shown)))

    @property
    def _shown(self) -> float:
        return threshold_delta(self.k, self.variance, self.shared_variance, self.threshold)

    @property
    def loss(self) -> Booked:
        return Booked(
            rho=Fraction(1, 2 * self.shared_variance) + Fraction(self.k, 2 * self.variance),
            bad=short_bound(self._shown),
            distance=(self.k + 1) * DRAW_DISTANCE,
        )

    def reach(self, coverage: float) -> float:
        """What the noise of none of k keys exceeds in size, with this chance, in counts.

        A sum of two draws is sub-Gaussian with the sum of their variances.
        """
        check_probability(coverage=coverage)
        odds = math.log(2 * self.k) - math.log1p(-coverage)
        return math.sqrt(2 * (self.variance + self.shared_variance) * odds) * (1 + 1e-9) / 2

    def release(self, contents: Contents, noise: Noise, *, epsilon: Real, coverage: float = 0.95) -> SparseRelease:
        """Publish, at the loss of this epsilon. The noise is given by tests, or fresh."""
        keys, counts = positive_counts(contents, self.k)
        noise = noise_of(noise, keys, counts)
        draws = noise.at("counts").gaussian(variance=Fraction(self.variance), keys=item_keys(keys, noise))
        shared = int(noise.at("shared").gaussian(variance=Fraction(self.shared_variance)))
        noisy = 2 * counts + draws + shared
        passing = np.flatnonzero(noisy >= self.threshold)
        shown, least, reach = own(keys.gather(passing)), self.threshold / 2, 2 * self.reach(coverage)
        return SparseRelease(shown, noisy[passing], 2, threshold=least, loss=_once(self, epsilon), reach=reach)


def _once(mechanism: SparseHistogram | CorrelatedHistogram, epsilon: Real) -> Mixed:
    """The loss of one release as an epsilon with a bad mass, which is less."""
    return Mixed(pure=Fraction(epsilon), bad=mechanism.delta_at(epsilon), distance=mechanism.loss.distance)


def noise_delta(k: int, variance: int, shared_variance: int, epsilon: float) -> float:
    """dG: for each shared draw, the divergence of k draws at what it leaves of epsilon."""
    law = gaussian_law(Fraction(shared_variance))
    shared = law.places
    left = epsilon - (2 * shared + 1) / (2 * shared_variance)
    return enlarge(float(np.sort(law.mass(shared) * shift_divergences(variance, k, left)).sum()))


def threshold_delta(k: int, variance: int, shared_variance: int, threshold: int) -> float:
    """dT: the chance that one of k keys of count 1 is shown."""
    shared = gaussian_law(Fraction(shared_variance))
    hidden = np.log1p(-np.minimum(gaussian_law(Fraction(variance)).tail(threshold - 2 - shared.places), 1 - 1e-16))
    return enlarge(float(np.sort(shared.mass(shared.places) * -np.expm1(k * hidden)).sum()))


@lru_cache(maxsize=1024)
def correlated_calibration(k: int, epsilon: float, delta: float) -> tuple[int, int, int]:
    """V1, V0 and Theta within (epsilon, delta)."""
    root = math.sqrt(k)
    unit = least_sigma(epsilon, delta / 2) ** 2
    while True:
        variance, shared_variance = math.ceil((k + root) * unit), math.ceil((root + 1) * unit)
        if k * variance > LARGEST_VARIANCE:
            raise ParameterError(
                f"epsilon and delta must need a variance of at most 2^38 for the noise of {k} keys together, got "
                f"{k * variance:.2g}; allow a larger epsilon or delta, or take a smaller k"
            )
        if noise_delta(k, variance, shared_variance, epsilon) <= delta / 2:
            break
        unit *= 1.0005
    guess = 2 + round(real_quantile(variance + shared_variance, delta / (2 * k)))
    holds = partial(_is_hidden, k, variance, shared_variance, delta / 2)
    return variance, shared_variance, least_around(3, guess, holds)


def _is_hidden(k: int, variance: int, shared_variance: int, delta: float, threshold: int) -> bool:
    return threshold_delta(k, variance, shared_variance, threshold) <= delta
