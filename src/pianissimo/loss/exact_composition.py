"""What pure losses and single releases lose together by the exact law of the loss, and an upper bound without it.

*Pure losses, optimally.* Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015,
Theorem 3.3: among adaptive compositions of mechanisms that are epsilon_i-DP, none loses more than independent
randomized responses do, each of which tells the truth with probability e^epsilon_i / (1 + e^epsilon_i). So the delta at
g is the hockey-stick divergence of their product, and it is reached. Vadhan and Wang, "Concurrent composition of
differential privacy", TCC 2021, give the same for mechanisms that run side by side.

Unequal losses: Murtagh and Vadhan, "The complexity of computing the optimal composition of differential privacy", TCC
2016. The exact answer is hard to compute; here every epsilon_i is rounded up to a common unit, which can only add to
the loss. Where all are multiples of a unit that is not too fine, nothing is rounded. Where even that takes too long,
there is the advanced composition. These results know nothing of bounded range: selection steps lose less
(`bounded_range`).

*Single releases, from the law of their noise,* by Google's `dp-accounting`, where it is installed. Koskela, Jälkö and
Honkela, "Computing tight differential privacy guarantees using FFT", AISTATS 2020, with the dominating pairs of Zhu,
Dong and Wang, "Optimal accounting of differential privacy via characteristic function", AISTATS 2022, which also cover
releases that adapt to one another. The library rounds every loss up to a grid and adds the tails it cuts off to delta.
Only for single releases: pure losses, and counts with noise of their own (`GaussianRelease`). The nodes of a counting
plan are in use while inputs adapt to them, and no dominating pair is known for that: they are priced at integer orders.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_probability
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import GaussianRelease, Pure, float_down, float_up, log_inverse

_MARGIN = 1e-9
_UNDERFLOW = 1e-300

# More than two roundings, so that products of a loss and a whole number are not too small.
_UP = 1 + 1e-15

# The most points on either side of zero, and the most additions, for unequal losses.
_POINTS = 2**15
_ADDITIONS = 2**25


def optimal_epsilon(epsilons: Sequence[Fraction], delta: Fraction | float) -> float:
    """Find the least epsilon of adaptive pure losses at `delta`, rounded up.

    >>> round(optimal_epsilon([Fraction(1, 10)] * 100, 1e-6), 3)
    4.775
    """
    _check_epsilons(epsilons)
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

    >>> round(advanced_epsilon({Fraction(1, 10): 100}, 1e-6), 3)
    5.756
    """
    _check_epsilons(list(epsilons))
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


def _check_epsilons(epsilons: Sequence[Fraction]) -> None:
    for one in epsilons:
        if not isinstance(one, Fraction):
            raise ParameterError(f"every epsilon must be an exact Fraction, got {type(one).__name__}")
        if not one >= 0:
            raise ParameterError(f"every epsilon must not be negative, got {float(one)}")


# The Fourier transform is exact to about 1e-16 of the total mass, whatever the size of the answer. So this much is
# taken off delta first, and a delta that is not far above it is not answered.
_TRANSFORM_ERROR = Fraction(1, 10**12)
SMALLEST_DELTA = 1e-9

# Points of the grid over the sum of the largest losses, and the coarsest and finest spacing.
_GRID_POINTS = 2**20
_COARSEST, _FINEST = 1e-2, 1e-5


def is_available() -> bool:
    """Whether `dp-accounting` is installed."""
    return find_spec("dp_accounting") is not None


def epsilon_by_loss_distribution(losses: Sequence[Pure | GaussianRelease], delta: Fraction | float) -> float | None:
    """Find the epsilon of adaptive single releases at `delta`; None where the method does not apply.

    It does not without the library, for a delta below 1e-9, and for losses too large for its grid. The distance of
    the drawn noise from the ideal one is for the caller to subtract from delta.

    >>> gaussians = [GaussianRelease(variance=Fraction(100), counts=10)]
    >>> epsilon = epsilon_by_loss_distribution(gaussians, 1e-6)
    >>> epsilon is None or 1.36 < epsilon < 1.37  # integer orders: 1.47
    True
    """
    for loss in losses:
        if not isinstance(loss, Pure | GaussianRelease):
            raise ParameterError(f"a loss distribution is known for single releases, got {type(loss).__name__}")
    check_probability(delta=delta)
    if not (delta >= SMALLEST_DELTA and is_available()):
        return None
    amounts: dict[tuple[bool, Fraction], int] = {}
    for loss in losses:
        key = (True, loss.epsilon) if isinstance(loss, Pure) else (False, loss.variance)
        amounts[key] = amounts.get(key, 0) + (1 if isinstance(loss, Pure) else loss.counts)
    amounts = {key: times for key, times in amounts.items() if times and not (key[0] and key[1] == 0)}
    if not amounts:
        return 0.0
    # A Gaussian's noise is cut at 11.6 deviations, where its loss is about 12 / sigma.
    largest = sum(
        times * (float_up(size) if pure else 12 / math.sqrt(float_down(size)) + 0.5 / float_down(size))
        for (pure, size), times in amounts.items()
    )
    spacing = max(_FINEST, largest / _GRID_POINTS)
    if not spacing <= _COARSEST:
        return None
    left = float_down(Fraction(delta) - _TRANSFORM_ERROR)
    found = _composed(amounts, spacing, left)
    return found if math.isfinite(found) else None


def _composed(amounts: dict[tuple[bool, Fraction], int], spacing: float, delta: float) -> float:
    from dp_accounting.pld import common, privacy_loss_distribution

    whole = privacy_loss_distribution.identity(value_discretization_interval=spacing)
    for (pure, size), times in amounts.items():
        if pure:
            parameters = common.DifferentialPrivacyParameters(float_up(size), 0)
            one = privacy_loss_distribution.from_privacy_parameters(parameters, value_discretization_interval=spacing)
        else:
            # A smaller deviation loses more. One unit moves a count by one either way: mirror images, equal losses.
            sigma = math.nextafter(math.sqrt(float_down(size)), 0)
            one = privacy_loss_distribution.from_discrete_gaussian_mechanism(
                sigma, sensitivity=1, pessimistic_estimate=True, value_discretization_interval=spacing
            )
        whole = whole.compose(one.self_compose(times) if times > 1 else one)
    return float(whole.get_epsilon_for_delta(delta)) * (1 + 1e-9)
