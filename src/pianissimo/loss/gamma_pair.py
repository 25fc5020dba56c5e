"""How well k exponential clocks of rate one are told from k clocks of a rate lam above one: the loss of a race monitor.

A race monitor of scale b, whatever tests it answers, is a function of `charges` clocks that run at rate one without a
user and at rate lam = e^(1 / b) with her (docs/monitors.md). The likelihood ratio depends on the sum of the clocks
alone, so the pair is Gamma(charges, rate 1) against Gamma(charges, rate lam). If a user's data may be replaced, there
are clocks for tests that favor the old data and others for the new: Gamma(k, 1) x Gamma(k, lam) against the swap.

**Sums without cancellation.** The sum of k clocks of rate one is above x iff a Poisson process of rate one has fewer
than k points up to x. At the place x0 where the likelihood ratio is e^epsilon, the two sides of the hockey stick differ
point by point by a power of lam, so that with N a Poisson number

```text
slow against fast:    E[(1 - lam^-(k - N))+],  N of mean x0 = (epsilon + k / b) / (lam - 1)
fast against slow:    E[(1 - lam^-(N - k))+],  N of mean lam x1,  x1 = (k / b - epsilon) / (lam - 1),  0 if x1 <= 0
replaced:             E[(1 - lam^-(k - N - M))+],  N of mean epsilon / (lam - 1), M the points of the slow process
                      before the k-th of the fast one
```

The first and the last are finite sums. All terms are positive, and each is right to about 1e-12 of its size.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError

_MARGIN = 1e-9

# Of 2^-53 each; a divergence is a handful of operations.
_ROUNDINGS = 2.0**-49

_NEAREST_TO_POLE = 1e-6

# What the ratio of two clocks is raised by when a scale is chosen: room for any rounding of what is sampled.
_RATIO_SLACK = 1e-6

_GRID = 4096
"""Scales are chosen among the multiples of 1 / 4096."""

_SMALLEST, _LARGEST = 16, _GRID * 2**24

# Terms too small for a floating-point number are left out of the sums; this is more than all of them.
_UNDERFLOW = 1e-290

Floats = NDArray[np.float64]


def hockey_stick(epsilon: Real, charges: int, scale: Real, *, replacement: bool = False) -> float:
    """Find the least delta for which the pair is (epsilon, delta)-indistinguishable, in both directions.

    >>> f"{hockey_stick(1.0, 1, 10.92):.3g}"
    '9.97e-07'
    >>> hockey_stick(1.0, 1, 10.92, replacement=True) > 1e-6
    True
    """
    return max(hockey_sticks(epsilon, charges, scale, replacement=replacement))


def hockey_sticks(epsilon: Real, charges: int, scale: Real, *, replacement: bool = False) -> tuple[float, float]:
    """Find both directions: the slow clocks against the fast ones, and the other way. Replacement has one value.

    >>> slow, fast = hockey_sticks(1.0, 16, 2.0)
    >>> slow > fast > 0
    True
    """
    if epsilon != 0 or isinstance(epsilon, bool):
        check_positive(epsilon=epsilon)
    check_at_least(0, charges=charges)
    check_positive(scale=scale)
    log_ratio = 1 / float(scale)
    return _sticks(float(epsilon), charges, log_ratio, math.expm1(log_ratio), replacement=replacement)


def least_scale(epsilon: Real, delta: Real, charges: int, *, replacement: bool = False) -> Fraction:
    """Find the smallest scale, a multiple of 1 / 4096, at which so many clocks are within (epsilon, delta).

    >>> float(least_scale(1, 1e-6, 4))
    14.95...
    """
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    check_at_least(1, charges=charges)

    def fits(steps: int) -> bool:
        log_ratio = _GRID / steps + math.log1p(_RATIO_SLACK)
        sticks = _sticks(float(epsilon), charges, log_ratio, math.expm1(log_ratio), replacement=replacement)
        return max(sticks) * (1 + _MARGIN) <= delta

    low, high = _SMALLEST, _SMALLEST
    while not fits(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            raise ParameterError(f"epsilon must be large enough for some noise to fit, got {epsilon}; allow more")
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return Fraction(high, _GRID)


def renyi(order: Real, charges: int, scale: Real, *, replacement: bool = False) -> tuple[float, float]:
    """Find the Renyi divergences of an order above one: slow clocks against fast ones, and the other way; rounded up.

    The first is infinite from the order lam / (lam - 1) on, so there is no zCDP.

    >>> slow, fast = renyi(2, 1, 10.0)
    >>> round(slow, 6), round(fast, 6)
    (0.011123, 0.009097)
    >>> renyi(11, 1, 10.0)[0]
    inf
    """
    check_at_least(0, charges=charges)
    check_positive(scale=scale)
    alpha = float(order)
    if not 1 < alpha < math.inf:
        raise ParameterError(f"order must be finite and above 1, got {order}")
    log_ratio = 1 / float(scale)
    excess = math.expm1(log_ratio)
    # Terms that cancel are each off by some roundings; near the pole the logarithm multiplies those of its argument.
    room = 1 - (alpha - 1) * excess
    slow = math.inf
    if room > _NEAREST_TO_POLE:
        gained = -math.log(room) / (alpha - 1) if room < 0.5 else -math.log1p(-(alpha - 1) * excess) / (alpha - 1)
        slow = gained - log_ratio + _ROUNDINGS * (log_ratio + gained + 1 / (room * (alpha - 1)))
    fast = (alpha * log_ratio - math.log1p(alpha * excess)) / (alpha - 1)
    fast += _ROUNDINGS * (2 * alpha * log_ratio) / (alpha - 1)
    if charges == 0:
        return 0.0, 0.0
    return (charges * (slow + fast),) * 2 if replacement else (charges * slow, charges * fast)


def _sticks(epsilon: float, charges: int, log_ratio: float, excess: float, *, replacement: bool) -> tuple[float, float]:
    """Both directions; excess = lam - 1."""
    if charges == 0:
        return 0.0, 0.0
    if replacement:
        both = _replaced(epsilon, charges, log_ratio, excess)
        return both, both
    total = charges * log_ratio
    slow = _slow_against_fast((epsilon + total) / excess, charges, log_ratio)
    fast = _fast_against_slow((total - epsilon) / excess * (1 + excess), charges, log_ratio) if total > epsilon else 0.0
    return slow, fast


def _slow_against_fast(mean: float, charges: int, log_ratio: float) -> float:
    points = np.arange(charges)
    gained = -np.expm1(-(charges - points) * log_ratio)
    return float(np.exp(_log_poisson(mean, points)) @ gained) + _UNDERFLOW


def _fast_against_slow(mean: float, charges: int, log_ratio: float) -> float:
    end = math.ceil(max(charges, mean) + 40 * math.sqrt(max(charges, mean)) + 100)
    points = np.arange(charges, end)
    chances = np.exp(_log_poisson(mean, points))
    # Past the end each chance is less than half of the one before.
    return float(chances @ -np.expm1(-(points - charges) * log_ratio) + chances[-1]) + _UNDERFLOW


def _replaced(epsilon: float, charges: int, log_ratio: float, excess: float) -> float:
    points = np.arange(charges)
    early = np.exp(_log_poisson(epsilon / excess, points))
    # Before the k-th point of the fast process, each point is one of the slow process with chance 1 / (1 + lam).
    log_slow, log_fast = -math.log(2 + excess), log_ratio - math.log(2 + excess)
    factorials = _log_factorials(2 * charges)
    log_choices = factorials[charges - 1 + points] - factorials[points] - factorials[charges - 1]
    later = np.exp(log_choices + charges * log_fast + points * log_slow)
    together = np.convolve(early, later)[:charges]
    return float(together @ -np.expm1(-(charges - points) * log_ratio)) + _UNDERFLOW


def _log_poisson(mean: float, points: NDArray[np.int64]) -> Floats:
    """ln P(N = points) for consecutive points."""
    # Rounded up to a power of two, so that few arrays are kept.
    factorials = _log_factorials(1 << int(points[-1]).bit_length())[points]
    if mean == 0:
        return np.where(points == 0, 0.0, -np.inf)
    return points * math.log(mean) - mean - factorials


@lru_cache(maxsize=64)
def _log_factorials(count: int) -> Floats:
    """ln n! for n below count."""
    return np.array([math.lgamma(n + 1) for n in range(count)])
