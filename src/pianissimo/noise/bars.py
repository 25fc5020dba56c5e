"""Half-widths of error bars: how far an estimate may be from the truth, before any data.

They speak of accuracy; no promise of privacy rests on them. The noise is treated as its continuous counterpart (a
normal variable for Gaussian nodes, a weighted sum of Laplace variables for Laplace nodes) and the result is widened
by the rounding of the release and rounded up. That they cover is checked by enumeration and simulation in the tests.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from pianissimo.checks import check_probability
from pianissimo.noise.plan import NoisePlan, difference_variance, difference_weights, is_pure

_SURE = 1 - 1e-5
_GRID = np.linspace(0.0, 60.0, 6001)[1:]


def half_width(plan: NoisePlan, tick: int, coverage: float, *, since: int = 0) -> int:
    """The whole number h such that estimate - h .. estimate + h covers the truth with this chance.

    With `since`, of the difference of two releases, each rounded by itself.

    >>> from pianissimo.noise import TreePlan
    >>> half_width(TreePlan.calibrated(horizon=7, rho=0.015, base=2), 1, 0.95)
    20
    """
    check_probability(coverage=coverage)
    roundings = (1 if plan.shift else 0) * (2 if since else 1)
    if is_pure(plan):
        weights = difference_weights(plan, since, tick)
        scales = [abs(weight) * math.sqrt(plan.noises[level].variance / 2) for (level, _), weight in weights.items()]
        spread = laplace_sum_quantile(scales, coverage) / 2.0**plan.shift
    else:
        deviation = math.sqrt(difference_variance(plan, since, tick))
        spread = NormalDist().inv_cdf((1 + coverage) / 2) * deviation
    return math.ceil(spread + roundings / 2)


def laplace_sum_quantile(scales: Sequence[float], coverage: float) -> float:
    """The x with P[|sum of Laplace variables| <= x] = coverage, by inverting the characteristic function.

    >>> round(laplace_sum_quantile([1.0], 0.95), 2)
    3.0
    """
    if not scales:
        return 0.0
    unit = math.sqrt(2 * sum(scale**2 for scale in scales))
    if coverage > _SURE:
        return _chernoff_quantile(scales, coverage)
    return unit * _unit_quantile(tuple(sorted(scale / unit for scale in scales)), coverage)


def _chernoff_quantile(scales: Sequence[float], coverage: float) -> float:
    """An upper bound, from P[|X| > x] <= 2 exp(-f x) prod 1 / (1 - (f s)^2), for chances too small to integrate."""
    limit = 1 / max(scales)
    return min(
        (math.log(2 / (1 - coverage)) - sum(math.log1p(-((factor * scale) ** 2)) for scale in scales)) / factor
        for factor in (limit * step / 512 for step in range(1, 512))
    )


@lru_cache(maxsize=4096)
def _unit_quantile(scales: tuple[float, ...], coverage: float) -> float:
    # P[|X| <= x] = (2/pi) * integral over u > 0 of sin(u x) / u * prod 1 / (1 + s^2 u^2), for variance one.
    characteristic = np.ones_like(_GRID)
    for scale in scales:
        characteristic /= 1 + (scale * _GRID) ** 2
    kernel = characteristic / _GRID
    step = _GRID[1] - _GRID[0]

    def inside(x: float) -> float:
        return float(2 / math.pi * step * ((np.sin(_GRID * x) * kernel).sum() + x / 2))

    low, high = 0.0, 60.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle) < coverage else (low, middle)
    return high
