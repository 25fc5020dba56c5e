"""From which noisy count on a key of one Misra-Gries sketch is shown: the exact least threshold.

Lebeda and Tetek, "Better differentially private approximate histograms and heavy hitters using the Misra-Gries
sketch" (PMG, Algorithm 2), with thresholds of our own. One element moves one of the numbers u(x) = c(x) + D, or D, by
one. Keys that only one of two neighbors stores have counts 1 and 0 at most, and there are at most two of them on a
side. On outputs without such keys the densities differ by at most e^epsilon, so the divergence at e^epsilon is the
chance that one of them is shown:

```text
delta(theta) = sum over h of p(h) [1 - (1 - G(theta - 1 - h)) (1 - G(theta - h))]          k >= 2
delta(theta) = sum over h of p(h) G(theta - 1 - h)                                          k = 1
delta(theta) = sum over h of p(h) [1 - (1 - G(theta - 1 - h))^k]                            standard sketch
```

p the chances and G the tails of one noise. For every k >= 2 the first is attained by the streams 1 .. k + 2 with and
without its second element: no smaller delta may be claimed, and no larger one is needed. A standard sketch is one that
drops keys of count zero, or evicts them in any order and hides them: up to k keys of count 1 are then on one side only.

**Several elements of one user.** If adding one element is (e1, d1)-private, then along a chain of m elements
d_m = d_(m-1) e^e1 + d1, so that m elements are (m e1, d1 (e^(m e1) - 1) / (e^e1 - 1))-private. The elements may repeat
and be far apart. A Misra-Gries sketch really moves by m in one count, so no smaller noise would do for it.
"""

import decimal
import math
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.sketches.tails import (
    CONTEXT,
    Number,
    at_most,
    enlarge,
    enlarged,
    gaussian_law,
    least_integer,
    shift_divergence,
    short_bound,
    sum_tail,
    to_decimal,
)

_LONGEST_SUM = 2**24


def threshold(*, epsilon: Real, delta: Real, k: int, standard: bool = False) -> int:
    """The least whole number theta >= 1 such that showing noisy counts of at least theta is (epsilon, delta)-private.

    `standard` is for sketches that do not keep keys of count zero, or evict them in another order than by key.

    >>> threshold(epsilon=1, delta=1e-8, k=1024)
    22
    >>> threshold(epsilon=1, delta=1e-8, k=1024, standard=True)
    29
    """
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    check_at_least(1, k=k)
    return _threshold(Fraction(epsilon), Fraction(delta), k if standard else min(k, 2), standard)


@lru_cache(maxsize=4096)
def _threshold(epsilon: Fraction, delta: Fraction, k: int, standard: bool) -> int:  # noqa: FBT001
    if standard:
        return least_integer(1, lambda theta: _standard_exposure(theta, epsilon, k) <= delta)
    return least_integer(1, lambda theta: at_most(enlarged(lambda a: private_key_chance(a, theta, k), epsilon), delta))


def exposure(theta: int, *, epsilon: Real, k: int, standard: bool = False) -> Fraction:
    """delta(theta): the chance that a key shows which only one of two neighbors stores, rounded up."""
    check_at_least(1, theta=theta, k=k)
    check_positive(epsilon=epsilon)
    if standard:
        return short_bound(_standard_exposure(theta, Fraction(epsilon), k))
    return short_bound(enlarged(lambda a: private_key_chance(a, theta, k), Fraction(epsilon)))


def private_key_chance(a: Number, theta: int, k: int) -> Number:
    """delta(theta) in closed form, exact if `a` is; for k >= 2 it does not depend on k."""
    if k == 1:
        return sum_tail(a, theta - 1)
    q = (1 - a) / (1 + a)
    # Of both keys at once: the sum over h of p(h) G(theta - 1 - h) G(theta - h).
    between = a ** (2 * theta + 2) / (1 - a**3) + (a**theta - a ** (2 * theta)) / (1 - a)
    outside = 1 / (1 - a * a) + a**3 / ((1 + a) ** 2 * (1 - a**3))
    both = q / (1 + a) ** 2 * between + q * a**theta * outside
    return sum_tail(a, theta - 1) + sum_tail(a, theta) - both


def _standard_exposure(theta: int, epsilon: Fraction, k: int) -> float:
    rate = float(epsilon)
    if k == 1 or rate * _LONGEST_SUM < 2000:
        # One key is the closed form; of k keys at most k times that, where the sum would be too long.
        return k * float(short_bound(enlarged(lambda a: sum_tail(a, theta - 1), epsilon)))
    reach = theta + math.ceil(760 / rate)
    places = np.arange(-reach, reach + 1)
    log_mass = math.log(-math.expm1(-rate)) - math.log1p(math.exp(-rate)) - rate * np.abs(places)
    least = theta - 1 - places
    # 1 - G(t), and for t < 0 that is a^(1 - t) / (1 + a): its logarithm without cancellation.
    log_one_more = math.log1p(math.exp(-rate))
    above = np.exp(-rate * np.maximum(least, 0) - log_one_more)
    log_below = np.where(least >= 0, np.log1p(-above), -rate * (1 - least) - log_one_more)
    terms = np.exp(log_mass) * -np.expm1(k * log_below)
    # What is beyond reach has a chance below e^-760.
    return enlarge(float(np.sort(terms).sum()))


def gaussian_exposure(theta: int, *, variance: Fraction, k: int) -> Fraction:
    """The same chance for discrete Gaussian noise, rounded up: the bad mass beside rho = 1 / (2 variance)."""
    check_at_least(1, theta=theta, k=k)
    return short_bound(_gaussian_exposure(theta, variance, min(k, 2)))


@lru_cache(maxsize=4096)
def _gaussian_exposure(theta: int, variance: Fraction, keys: int) -> float:
    """The chance that one of the first `keys` of two keys of counts 1 and 0 is shown."""
    law = gaussian_law(variance)
    shared = law.places
    first = law.tail(theta - 1 - shared)
    second = law.tail(theta - shared) if keys == 2 else np.zeros_like(first)
    return enlarge(float(np.sort(law.mass(shared) * (first + second * (1 - first))).sum()))


def gaussian_threshold(*, variance: Fraction, bad: Real, k: int) -> int:
    """The least theta >= 1 whose bad mass is at most `bad`, for releases that are paid for in rho.

    >>> gaussian_threshold(variance=Fraction(28), bad=1e-8, k=1024)
    44
    """
    check_probability(bad=bad)
    check_at_least(1, k=k)
    return least_integer(1, lambda theta: _gaussian_exposure(theta, variance, min(k, 2)) <= bad)


@lru_cache(maxsize=1024)
def gaussian_calibration(epsilon: Fraction, delta: Fraction, k: int) -> tuple[int, int]:
    """The whole variance and the threshold of one Gaussian release at (epsilon, delta), with the least threshold.

    Either a shared number moves, and the divergence of a shift by one and the chance of one private key of count 1 add
    up; or nothing shared does, and all is in the private keys.
    """
    target = float(epsilon)
    variance = least_integer(1, lambda each: shift_divergence(each, 1, target) <= delta)
    best: tuple[int, int] | None = None
    # More noise lets the divergence leave more of delta to the threshold; beyond a fifth more it only costs.
    for each in sorted({variance + variance * step // 64 + (step > 0) for step in range(14)}):
        left = delta - Fraction(shift_divergence(each, 1, target))
        if left <= 0:
            continue
        theta = max(
            gaussian_threshold(variance=Fraction(each), bad=delta, k=k),
            gaussian_threshold(variance=Fraction(each), bad=left, k=1),
        )
        if best is None or theta < best[1]:
            best = (each, theta)
    if best is None:
        raise ParameterError("no whole variance has a divergence below delta; allow a larger delta")
    return best


_SLACK = Decimal("1e-30")


def group_budget(*, epsilon: Real, delta: Real, elements: int) -> tuple[Fraction, Fraction]:
    """The (epsilon, delta) of one element that make this one for so many, the delta rounded down.

    >>> each = group_budget(epsilon=1, delta=1e-8, elements=16)
    >>> each[0], f"{float(each[1]):.3e}"
    (Fraction(1, 16), '3.753e-10')
    """
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    check_at_least(1, elements=elements)
    share = Fraction(epsilon) / elements
    if elements == 1:
        return share, Fraction(delta)
    with decimal.localcontext(CONTEXT):
        least = to_decimal(delta) / _growth(share, elements) * (1 - _SLACK)
    return share, Fraction(least)


def group_delta(delta: Fraction, *, epsilon: Fraction, elements: int) -> Fraction:
    """What so many elements have for a delta, if one has (epsilon, delta); rounded up."""
    if elements == 1:
        return delta
    with decimal.localcontext(CONTEXT):
        return short_bound(to_decimal(delta) * _growth(epsilon, elements) * (1 + _SLACK))


def _growth(epsilon: Fraction, elements: int) -> Decimal:
    """(e^(m epsilon) - 1) / (e^epsilon - 1)."""
    each = to_decimal(epsilon)
    return ((elements * each).exp() - 1) / (each.exp() - 1)
