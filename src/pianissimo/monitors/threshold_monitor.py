"""Charges per user as published, for comparison alone: `race_monitor` has 3,000 times less noise than these constants.

Kaplan, Mansour and Stemmer, "The sparse vector technique, revisited", COLT 2021, Algorithm 3 and
Theorem 3.2, with explicit constants: with L = ln(1 / d), v = L / e (at least 2) and Cap = v ln v,

```text
TOP iff weight + Lap(10 Cap) + min(Lap(v), Cap) >= threshold
```

is (e (25 + 75 (k + 1) / L), 3 d)-DP for adding or removing a user, over any number of adaptive tests. Logarithms are
natural. Section 4 of the paper replaces a user's data, which is two such steps: (2 x, 3 d (1 + e^x)) if one is
(x, 3 d).

**Many charges** (Theorem 3.8). A user who is charged k times is charged at most L times in each of ceil(k / L) epochs,
which end when she has been. In one of them Theorem 3.2 gives (e (100 + 75 / L), 3 d), and advanced composition adds up
over epochs: O(sqrt(k) e + k e^2), where Theorem 3.2 grows with k e. At (1, 1e-6) it is the better one from k of about
1,200 on.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.monitors.above_threshold import MOST_CHARGES, UserCharges, check_charges
from pianissimo.noise import Noise
from pianissimo.noise.keyed import ONE_KEY, Keys

# Cap is compared with whole numbers; its fraction is kept to this.
_STEP = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdMonitor:
    """Tests whether a weight is above a threshold, again and again, each user charged at most k times.

    Guarantee: (`epsilon`, `delta`) per user, over any number of adaptive tests.
    Error: the noise is of scale 10 Cap, tens of thousands at epsilon 1.
    Cost: 24 to 30 bytes for each user that was ever charged; two draws a test.
    """

    k: int
    """How many reports a user may be charged for before she is inactive."""

    threshold: int
    """TOP is said from this noisy weight on."""

    e: float
    """The parameter of the theorem that sets the noise."""

    d: float
    """The parameter of the theorem that sets delta."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)
        check_positive(e=self.e)
        check_probability(d=self.d)
        if not self.k < MOST_CHARGES:
            raise ParameterError(f"k must be below {MOST_CHARGES}, got {self.k}")
        if not self.inner_scale >= 2:
            raise ParameterError(f"ln(1/d) / e must be at least 2, got {self.inner_scale:g}; choose a smaller e")

    @classmethod
    def calibrated(cls, *, epsilon: float, delta: float, k: int, threshold: int, replacement: bool = False) -> Self:
        """The monitor that Theorem 3.2 allows within (epsilon, delta)."""
        check_positive(epsilon=epsilon)
        check_probability(delta=delta)
        check_at_least(1, k=k)
        step = epsilon / 2 if replacement else epsilon
        d = delta / (3 * (1 + math.exp(step))) if replacement else delta / 3
        return cls(k=k, threshold=threshold, e=step / (25 + 75 * (k + 1) / math.log(1 / d)), d=d)

    @classmethod
    def calibrated_in_epochs(cls, *, epsilon: float, delta: float, k: int, threshold: int) -> Self:
        """The monitor that Theorem 3.8 allows within (epsilon, delta), half of delta for the composition.

        >>> plain, epochs = (
        ...     make(epsilon=1, delta=1e-6, k=4000, threshold=0).outer_scale
        ...     for make in (ThresholdMonitor.calibrated, ThresholdMonitor.calibrated_in_epochs)
        ... )
        >>> round(plain / epochs, 2)
        1.89
        """
        check_positive(epsilon=epsilon)
        check_probability(delta=delta)
        check_at_least(1, k=k)
        # The least number of epochs that are enough where d = delta / (6 epochs): half of delta is 3 d for each; k are.
        epochs = 1 + bisect_left(range(1, k), x=True, key=lambda each: k <= each * math.log(6 * each / delta))
        d = delta / (6 * epochs)
        low, high = 0.0, epsilon
        for _ in range(100):
            middle = (low + high) / 2
            fits = cls._composed(middle, d, k, delta / 2) <= epsilon
            low, high = (middle, high) if fits else (low, middle)
        return cls(k=k, threshold=threshold, e=low, d=d)

    @property
    def epochs(self) -> int:
        """In how many epochs of at most L charges k charges lie: ceil(k / L)."""
        return math.ceil(self.k / math.log(1 / self.d))

    def in_epochs(self, slack: float) -> tuple[float, float]:
        """The (epsilon, delta) that Theorem 3.8 gives, with so much of delta for the composition of epochs."""
        check_probability(slack=slack)
        return self._composed(self.e, self.d, self.k, slack), self.epochs * 3 * self.d + slack

    @staticmethod
    def _composed(e: float, d: float, k: int, slack: float) -> float:
        """Dwork, Rothblum and Vadhan, "Boosting and differential privacy", FOCS 2010, as the theorem uses it."""
        length = math.log(1 / d)
        epochs, each = math.ceil(k / length), e * (100 + 75 / length)
        return math.sqrt(2 * epochs * math.log(1 / slack)) * each + epochs * each * math.expm1(each)

    @property
    def epsilon(self) -> float:
        """What Theorem 3.2 gives for adding or removing a user."""
        return self.e * (25 + 75 * (self.k + 1) / math.log(1 / self.d))

    @property
    def delta(self) -> float:
        """What Theorem 3.2 gives for adding or removing a user."""
        return 3 * self.d

    @property
    def inner_scale(self) -> float:
        """Of the noise that is capped: v."""
        return math.log(1 / self.d) / self.e

    @property
    def cap(self) -> float:
        """What the inner noise is cut to."""
        return self.inner_scale * math.log(self.inner_scale)

    @property
    def outer_scale(self) -> float:
        """Of the noise that is not capped."""
        return 10 * self.cap

    def detectable(self, tests: int, coverage: float = 0.95) -> float:
        """The weight that is found at the threshold where a weight of 0 is not reported, in all of so many tests.

        >>> round(ThresholdMonitor.calibrated(epsilon=1, delta=1e-6, k=1, threshold=0).detectable(10**9), -4)
        1570000.0
        """
        check_at_least(1, tests=tests)
        check_probability(coverage=coverage)
        # A Laplace tail is half an exponential one, and each side may fail with half of the rest.
        logarithm = math.log(tests / (1 - coverage))
        return 2 * self.outer_scale * logarithm + self.cap + self.inner_scale * logarithm

    def start(self, noise: Noise) -> UserCharges:
        """Nobody is charged yet."""
        return UserCharges(noise, limit=self.k, per_tick=1)

    def test(self, charges: UserCharges, users: pl.Series, noise: Noise) -> bool:
        """Test how many of these users are active; True is TOP, for which they are charged.

        The charges are those that `start` made, and `noise` the same for all tests: each descends to its own path.
        """
        check_charges(charges, limit=self.k, per_tick=1)
        charges.add(users, np.zeros(len(users), dtype=np.int64))
        charges.tests += 1
        top = self.test_weights(charges.weights(1), ONE_KEY, noise.at("test", charges.tests))
        charges.close(top)
        return bool(top[0])

    def test_weights(self, weights: NDArray[np.int64], keys: Keys, noise: Noise) -> NDArray[np.bool_]:
        """Test weights under distinct item keys, all together; charging is up to the caller."""
        outer = np.asarray(noise.at("outer").laplace(Fraction(math.ceil(self.outer_scale * _STEP), _STEP), keys))
        inner = np.asarray(noise.at("inner").laplace(Fraction(math.ceil(self.inner_scale * _STEP), _STEP), keys))
        return self.decide(weights, outer, inner)

    def decide(
        self, weights: NDArray[np.int64], outer: NDArray[np.int64], inner: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """The outcome of tests as a function of their noises."""
        # weight + outer is whole, so the fraction of the cap never decides.
        capped = np.minimum(inner, math.floor(self.cap))
        return weights + outer + capped >= self.threshold
