"""The loss of race monitors: how well k exponential clocks of rate one are told from k clocks of a rate lam above one.

A race monitor of scale b, whatever tests it answers, is a function of `charges` clocks that run at rate one without a
user and at rate lam = e^(1 / b) with her (docs/monitors.md). The likelihood ratio depends on the sum of the clocks
alone, so the pair is Gamma(charges, rate 1) against Gamma(charges, rate lam). If a user's data may be replaced, there
are clocks for tests that favor the old data and others for the new: Gamma(k, 1) x Gamma(k, lam) against the swap.

Monitors of one scale are one monitor with all their clocks (`losses.Race`), also when their tests are interleaved:
all clocks can be drawn beforehand, and each transcript is a function of its own. A monitor of a larger scale is a
function of clocks of a smaller one, raced against clocks that nobody moves; so monitors of several scales count at the
smallest.

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

**A race as booked**, (rho, bad): its clocks, cut off where they almost never come. The sum of k clocks of rate one has
an exponential tail, so that the divergence of the slow clocks from the fast ones is infinite at high orders, and a race
has no zCDP. Up to a place T it has one. With A_b the law of the clocks on {sum <= T} and nothing elsewhere, the lemma
of the bad mass (docs/privacy.md) holds with bad = P(sum > T): its proof nowhere needs that A_b has mass one. With
c = 1 - (a - 1) (lam - 1), at a whole order a

```text
slow against fast:  lam^(-k (a - 1)) * integral over s in (0, T) of s^(k - 1) e^(-c s) / (k - 1)!
fast against slow:  lam^(k a) (1 + a (lam - 1))^(-k), over all s
```

and rho is the largest of ln(.) / (a (a - 1)). For the integral the least of three bounds is taken, each of which holds:
c^-k for c > 0; T^k e^(max(0, -c) T) / k!; and T^(k - 1) e^(-c T) / ((k - 1)! ((k - 1) / T - c)), from
(1 - u / T)^(k - 1) <= e^(-(k - 1) u / T), where the divisor is positive. No ratio of the two laws is above
e^((lam - 1) T - k / scale) up to T, which bounds all orders past the last one looked at.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.loss.conversion import epsilon_from_curve
from pianissimo.loss.losses import MOST_RACE_CHARGES, Booked, Race, check_charges, float_up

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

_LARGEST_EPSILON = 1e6

# The best order is about the root of ln(1 / delta) over the loss; past this one nothing of use is lost.
_HIGHEST_ORDER = 1024

_MOST_ORDERS = 1 << 20
_AT_ONCE = 1 << 12

Floats = NDArray[np.float64]


def hockey_stick(epsilon: Real, charges: int, scale: Real, *, replacement: bool = False) -> float:
    """Find the least delta for which the pair is (epsilon, delta)-indistinguishable, in both directions."""
    return max(hockey_sticks(epsilon, charges, scale, replacement=replacement))


def hockey_sticks(epsilon: Real, charges: int, scale: Real, *, replacement: bool = False) -> tuple[float, float]:
    """Find both directions: the slow clocks against the fast ones, and the other way. Replacement has one value."""
    if epsilon != 0 or isinstance(epsilon, bool):
        check_positive(epsilon=epsilon)
    check_charges(charges)
    check_positive(scale=scale)
    log_ratio = 1 / float(scale)
    return _sticks(float(epsilon), charges, log_ratio, math.expm1(log_ratio), replacement=replacement)


def least_scale(epsilon: Real, delta: Real, charges: int, *, replacement: bool = False) -> Fraction:
    """Find the smallest scale, a multiple of 1 / 4096, at which so many clocks are within (epsilon, delta)."""
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    check_at_least(1, charges=charges)
    check_charges(charges)

    def fits(steps: int) -> bool:
        log_ratio = _GRID / steps + math.log1p(_RATIO_SLACK)
        sticks = _sticks(float(epsilon), charges, log_ratio, math.expm1(log_ratio), replacement=replacement)
        return max(sticks) * (1 + _MARGIN) <= delta

    low, high = _SMALLEST, _SMALLEST
    while not fits(high):
        low, high = high, 2 * high
        if high > _LARGEST:
            raise ParameterError(f"epsilon must be large enough for some noise to fit, got {epsilon}; allow more")
    return Fraction(bisect_left(range(high), x=True, lo=low, key=fits), _GRID)


def renyi(order: Real, charges: int, scale: Real, *, replacement: bool = False) -> tuple[float, float]:
    """Find the Renyi divergences of an order above one: slow clocks against fast ones, and the other way; rounded up.

    The first is infinite from the order lam / (lam - 1) on, so there is no zCDP.
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


def epsilon_of_races(races: Sequence[Race], delta: Fraction | float) -> float:
    """Find the epsilon of race monitors at `delta`, rounded up; exact if they are of one scale."""
    check_probability(delta=delta)
    races = [race for race in races if race.charges]
    if not races:
        return 0.0
    charges = sum(race.charges for race in races)
    if charges > MOST_RACE_CHARGES:
        return math.inf
    scale = min(race.scale for race in races)
    # Clocks that run one way only are also clocks that run both ways, some of which nobody reads.
    replacement = any(race.replacement for race in races)

    def fits(epsilon: float) -> bool:
        return hockey_stick(epsilon, charges, scale, replacement=replacement) * (1 + _MARGIN) <= delta

    return 0.0 if fits(0.0) else _least(fits, 0.0, 1.0, precision=1e-9)


def _least(fits: Callable[[float], bool], low: float, high: float, *, precision: float) -> float:
    """The least number that fits, rounded up; infinity beyond a size at which nothing is promised."""
    while not fits(high):
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return math.inf
    while high - low > precision * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def epsilon_beside(rho: Fraction, races: Sequence[Race], delta: Fraction | float) -> float:
    """Find the epsilon at `delta` of race monitors beside losses of `rho`-zCDP at integer orders, rounded up.

    The orders add up, as clocks drawn beforehand are releases like any others; but only the orders at which the
    divergence is finite, those below lam / (lam - 1).
    """
    races = [race for race in races if race.charges]
    line = float_up(rho)

    def curve(direction: int, order: int) -> float:
        clocks = (renyi(order, race.charges, race.scale, replacement=race.replacement) for race in races)
        return line * order + sum(each[direction] for each in clocks)

    # One user is there on one side and missing on the other for all losses alike: each direction by itself.
    slow, fast = (
        epsilon_from_curve(lambda order, way=way: curve(way, order), delta, _HIGHEST_ORDER)  # type: ignore[misc]
        for way in (0, 1)
    )
    return max(slow, fast)


def booked_race(race: Race, bad: Fraction) -> Booked:
    """An upper bound on the loss of a race, as it is booked, with a further bad mass of `bad`."""
    if race.charges == 0:
        return race.as_booked()
    check_probability(bad=bad)
    log_ratio = 1 / float(race.scale)
    end = _end(race.charges, float(bad) * (1 - _MARGIN))
    slow = _slow(race.charges, log_ratio, end)
    fast = _fast(race.charges, log_ratio)
    # Replaced data have as many clocks again that run the other way: whichever way it is told, both kinds are there.
    rho = slow + fast if race.replacement else max(slow, fast)
    return Booked(
        rho=Fraction(float_up(Fraction(rho * (1 + _MARGIN) + _MARGIN**2))),
        bad=race.bad + bad,
        distance=race.distance,
    )


def _end(charges: int, bad: float) -> float:
    """A place that the sum of so many clocks of rate one passes with a chance of at most `bad`."""
    points = np.arange(charges)

    def passes(place: float) -> bool:
        # The sum is above a place iff fewer than k points of a Poisson process come up to it.
        logs = _log_poisson(place, points)
        most = float(logs.max())
        return most + math.log(float(np.exp(logs - most).sum())) <= math.log(bad) - 1e-6

    return _least(passes, charges + 1.0, charges + 1.0, precision=1e-6)


def _slow(charges: int, log_ratio: float, end: float) -> float:
    excess = math.expm1(log_ratio)
    largest = excess * end - charges * log_ratio
    found, order = 0.0, 2
    while order <= _MOST_ORDERS and largest / order > found:
        orders = np.arange(order, order + _AT_ONCE, dtype=np.float64)
        c = 1 - (orders - 1) * excess
        log_factorial = math.lgamma(charges)
        plain = np.maximum(0, -c) * end + charges * math.log(end) - log_factorial - math.log(charges)
        with np.errstate(divide="ignore", invalid="ignore"):
            whole = np.where(c > 0, -charges * np.log(c), math.inf)
            room = (charges - 1) / end - c
            late = np.where(room > 0, -c * end + (charges - 1) * math.log(end) - log_factorial - np.log(room), math.inf)
        logs = np.minimum(np.minimum(plain, whole), late) - charges * (orders - 1) * log_ratio
        # No order is above the largest ratio, and rounding in the logs is far below the margin of what they cancel to.
        divergences = np.minimum(logs / (orders - 1) + 1e-12 * (1 + np.abs(plain)), largest)
        found = max(found, float((divergences / orders).max()))
        order += _AT_ONCE
    return max(found, largest / order)


def _fast(charges: int, log_ratio: float) -> float:
    excess = math.expm1(log_ratio)
    found, order = 0.0, 2
    while order <= _MOST_ORDERS and charges * log_ratio / order > found:
        orders = np.arange(order, order + _AT_ONCE, dtype=np.float64)
        divergences = charges * (orders * log_ratio - np.log1p(orders * excess)) / (orders - 1) + 1e-12 * charges
        found = max(found, float((divergences / orders).max()))
        order += _AT_ONCE
    return max(found, charges * log_ratio / order)
