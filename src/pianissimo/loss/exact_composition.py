"""What pure losses lose together by the exact law of the loss, and an upper bound without it.

Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015, Theorem 3.3: among adaptive
compositions of mechanisms that are epsilon_i-DP, none loses more than independent randomized responses do, each of
which tells the truth with probability e^epsilon_i / (1 + e^epsilon_i). So the delta at g is the hockey-stick divergence
of their product, and it is reached. Vadhan and Wang, "Concurrent composition of
differential privacy", TCC 2021, give the same for mechanisms that run side by side.

Unequal losses: Murtagh and Vadhan, "The complexity of computing the optimal composition of differential privacy", TCC
2016. The exact answer is hard to compute; here every epsilon_i is rounded up to a common unit, which can only add to
the loss. Where all are multiples of a unit that is not too fine, nothing is rounded. Where even that takes too long,
there is the advanced composition. These results know nothing of bounded range: selection steps lose less
(`bounded_range`).
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_fraction, check_probability
from pianissimo.loss.losses import float_down, float_up, log_inverse

_MARGIN = 1e-9
_UNDERFLOW = 1e-300

# More than two roundings, so that products of a loss and a whole number are not too small.
_UP = 1 + 1e-15

# The most points on either side of zero, and the most additions, for unequal losses.
_POINTS = 2**15
_ADDITIONS = 2**25


def optimal_epsilon(epsilons: Sequence[Fraction], delta: Fraction | float) -> float:
    """Find the least epsilon of adaptive pure losses at `delta`, rounded up."""
    for one in epsilons:
        check_fraction(**{"every epsilon": one})
    check_probability(delta=delta)
    plain = float_up(sum(epsilons, Fraction(0)))
    allowed = float_down(Fraction(delta))
    losses, chances = loss_law(tuple(epsilons))
    if delta_at(losses, chances, 0.0) <= allowed:
        return 0.0
    # `high` always holds: at the plain sum by basic composition, later by evaluation.
    low, high = 0.0, plain
    for _ in range(48):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if delta_at(losses, chances, middle) <= allowed:
            high = middle
        else:
            low = middle
    return high


def advanced_epsilon(epsilons: Mapping[Fraction, int], delta: Fraction | float) -> float:
    """Find the epsilon of adaptive pure losses, given with how many there are of each, by advanced composition.

    The sum of e tanh(e/2), the largest mean loss, plus sqrt(2 ln(1/delta) * sum of e^2), by Azuma's inequality; or the
    sum of e if that is less; rounded up. Dwork, Rothblum and Vadhan, "Boosting and differential privacy", FOCS 2010,
    with the mean of Kairouz, Oh and Viswanath 2015.
    """
    for one in epsilons:
        check_fraction(**{"every epsilon": one})
    check_probability(delta=delta)
    log = log_inverse(delta)
    mean = math.fsum(times * float_up(one) * math.tanh(float_up(one) / 2) for one, times in epsilons.items())
    square = sum((times * one**2 for one, times in epsilons.items()), Fraction(0))
    plain = sum((times * one for one, times in epsilons.items()), Fraction(0))
    return min(float_up(plain), (mean + math.sqrt(2 * log) * math.sqrt(float_up(square))) * (1 + _MARGIN))


def delta_at(losses: NDArray[np.float64], chances: NDArray[np.float64], epsilon: float) -> float:
    """Sum P(loss) * (1 - e^(epsilon - loss)) over larger losses: positive terms, so nothing cancels."""
    start = int(np.searchsorted(losses, epsilon, side="right"))
    total = float(np.dot(chances[start:], -np.expm1(epsilon - losses[start:])))
    return min(1.0, total * (1 + _MARGIN) + _UNDERFLOW) if start < len(losses) else 0.0


@lru_cache(maxsize=8)
def loss_law(epsilons: tuple[Fraction, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The losses of independent randomized responses, in rising order and rounded up, and their chances."""
    some = [one for one in epsilons if one > 0]
    if not some:
        return np.zeros(1), np.ones(1)
    unit, counts = _on_a_common_unit(some)
    if min(counts) == max(counts):
        # The number of lies is binomial. Logarithms, because the coefficients overflow.
        k, epsilon = len(some), float_up(unit * counts[0])
        lies = np.arange(1, k + 1)
        choices = np.concatenate([[0.0], np.cumsum(np.log((k - lies + 1) / lies))])
        logs = choices - np.arange(k + 1) * epsilon - k * math.log1p(math.exp(-epsilon))
        losses = np.arange(-k, k + 1, 2, dtype=np.float64) * (epsilon * _UP)
        return losses, np.exp(logs)[::-1] * (1 + 1e-13 * k)
    total = sum(counts)
    # Place j stands for the loss (j - total) * unit.
    chances = np.zeros(2 * total + 1)
    chances[total] = 1.0
    for count in sorted(counts):
        epsilon = float_up(unit * count)
        truth = 1 / (1 + math.exp(-epsilon))
        lie = math.exp(-epsilon) * truth
        before = chances
        chances = np.zeros_like(before)
        chances[count:] = truth * before[:-count]
        chances[:-count] += lie * before[count:]
    return np.arange(-total, total + 1, dtype=np.float64) * (float_up(unit) * _UP), chances


def _on_a_common_unit(epsilons: Sequence[Fraction]) -> tuple[Fraction, list[int]]:
    """A unit, and for each epsilon how many units are at least as much."""
    if min(epsilons) == max(epsilons):
        return epsilons[0], [1] * len(epsilons)
    common = math.lcm(*{one.denominator for one in epsilons})
    unit = Fraction(math.gcd(*{int(one * common) for one in epsilons}), common)
    total = sum(epsilons, Fraction(0))
    most = max(1, min(_POINTS, _ADDITIONS // len(epsilons)))
    unit = max(unit, total / most)
    return unit, [math.ceil(one / unit) for one in epsilons]
