"""The sparse histogram with one shared draw beside the draws of the keys: about half the noise.

Lebeda and Retschmeier, "The correlated Gaussian sparse histogram mechanism", 2024, for whole numbers. All counts that
one unit moves move in one direction, so a draw that all keys share takes half of every move, and the draw of each key
takes the other half, with either sign. In half counts: the shared draw H moves by one and each of k draws Z_x by one,
whatever the pattern of the change. The divergence of that is

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
from functools import lru_cache
from typing import Self

import numpy as np

from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.noise import DRAW_DISTANCE, Noise
from pianissimo.privacy import Ledger, Mixed, float_down
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.gaussian_tail import enlarge, gaussian_law, shift_divergences
from pianissimo.sketches.key_noise import gaussian_draws, item_keys, own, without_distance
from pianissimo.sketches.laplace_tail import least_integer, short_bound
from pianissimo.sketches.real_gaussian import least_sigma
from pianissimo.sketches.sparse_histogram import SparseRelease, positive_counts


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedHistogram:
    """Positive counts of at most k keys with a draw each and one draw for all, shown from Theta / 2 on.

    Guarantee: `delta_at(epsilon)` at every epsilon; composed, the ledger (1 / (2 V0) + k / (2 V1), dT).
    Error: half of a draw of variance V1 + V0 on every count.
    Cost: one draw a stored key, and one.

    >>> CorrelatedHistogram.calibrated(k=100, epsilon=1, delta=1e-6)
    CorrelatedHistogram(k=100, variance=2097, shared_variance=210, threshold=278)
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
        check_positive(epsilon=epsilon)
        check_probability(delta=delta)
        check_at_least(1, k=k)
        left = without_distance(Fraction(delta), k + 1, Fraction(epsilon))
        variance, shared, least = correlated_calibration(k, float_down(Fraction(epsilon)), float_down(left))
        return cls(k=k, variance=variance, shared_variance=shared, threshold=least)

    def delta_at(self, epsilon: Real) -> Fraction:
        """dG + dT at this epsilon, rounded up.

        >>> CorrelatedHistogram(k=100, variance=2097, shared_variance=210, threshold=278).delta_at(1) <= 1e-6
        True
        """
        check_positive(epsilon=epsilon)
        noise = noise_delta(self.k, self.variance, self.shared_variance, float_down(Fraction(epsilon)))
        return short_bound(min(1.0, enlarge(noise + self._shown)))

    @property
    def _shown(self) -> float:
        return threshold_delta(self.k, self.variance, self.shared_variance, self.threshold)

    @property
    def loss(self) -> Ledger:
        return Ledger(
            rho=Fraction(1, 2 * self.shared_variance) + Fraction(self.k, 2 * self.variance),
            bad=short_bound(self._shown),
            distance=(self.k + 1) * DRAW_DISTANCE,
        )

    def loss_at(self, epsilon: Real) -> Mixed:
        """The same as an epsilon with a bad mass, which is less for one release.

        >>> CorrelatedHistogram.calibrated(k=100, epsilon=1, delta=1e-6).loss_at(1).bad <= Fraction(1, 10**6)
        True
        """
        return Mixed(pure=Fraction(epsilon), bad=self.delta_at(epsilon), distance=(self.k + 1) * DRAW_DISTANCE)

    def release(self, contents: Contents, noise: Noise, *, epsilon: Real) -> SparseRelease:
        """Publish, at the loss of this epsilon. Two states of a sketch never share a noise: descend to a path."""
        keys, counts = positive_counts(contents)
        if len(keys) > self.k:
            raise ParameterError(f"a sketch must store at most the {self.k} keys of its release, got one of larger k")
        draws = gaussian_draws(noise.at("counts"), Fraction(self.variance), item_keys(keys, noise))
        shared = int(noise.at("shared").gaussian(variance=Fraction(self.shared_variance)))
        noisy = 2 * counts + draws + shared
        passing = np.flatnonzero(noisy >= self.threshold)
        return SparseRelease(own(keys.gather(passing)), noisy[passing] / 2, self.threshold / 2, self.loss_at(epsilon))


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
    """V1, V0 and Theta within (epsilon, delta).

    >>> correlated_calibration(1000, 1.0, 1e-6)
    (19658, 622, 873)
    """
    root = math.sqrt(k)
    unit = least_sigma(epsilon, delta / 2) ** 2
    while unit * k < 2**40:
        variance, shared_variance = math.ceil((k + root) * unit), math.ceil((root + 1) * unit)
        if noise_delta(k, variance, shared_variance, epsilon) <= delta / 2:
            least = least_integer(3, lambda each: threshold_delta(k, variance, shared_variance, each) <= delta / 2)  # noqa: B023
            return variance, shared_variance, least
        unit *= 1.0005
    raise ParameterError("no noise up to a variance of 2^40 is enough; allow a larger epsilon or delta")
