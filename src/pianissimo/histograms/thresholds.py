"""From which estimate on a label of an unknown domain is shown.

A label is shown at a publishing tick iff its count is positive and its estimate v >= m_t, where m_t = ceil(1 + 1/2 +
x_t) for releases that are rounded and ceil(1 + x_t) for those that are whole by themselves (trees). A label that only
one event holds is then shown with a chance of at most P[N_t >= x_t], bounded through the noise's moments (Chernoff):
for Gaussian nodes exp(-x^2 / (2 V_t)). Any public x_t will do whose bounds sum to at most delta over the R publishing
ticks (docs/privacy.md, 'Unknown labels'):

* per tick, x_t with a bound of delta / R each: the least thresholds where the noise is small;
* constant, one x for all ticks with a sum of delta: one public number, below the largest of the others.
"""

import math
from collections.abc import Hashable
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from typing import cast

import numpy as np

from pianissimo.errors import ParameterError
from pianissimo.noise_plan import NoisePlan, is_pure, terms_of, variance_at

_ROUNDING_ERROR = 1e-9
_LONGEST_SUM = 2**22


class Cut(Enum):
    """How the chance of showing a label of one event is shared by the ticks.

    >>> Cut("constant")
    <Cut.CONSTANT: 'constant'>
    """

    PER_TICK = "per tick"
    CONSTANT = "constant"


def threshold_at(plan: NoisePlan, tick: int, delta: Fraction, cut: Cut = Cut.PER_TICK) -> int:
    """m_t: the least estimate that is shown at `tick`, rounded up, for a plan whose every tick is published.

    >>> from pianissimo.counting import HaarPlan
    >>> threshold_at(HaarPlan.calibrated(horizon=4096, rho=0.5), 3413, Fraction(1, 10**6))
    34
    >>> threshold_at(HaarPlan.calibrated(horizon=4096, rho=0.5), 3413, Fraction(1, 10**6), Cut.CONSTANT)
    32
    """
    spread = _spread_at(plan, tick, delta) if cut is Cut.PER_TICK else _constant_spread(cast(Hashable, plan), delta)
    rounding = 0.5 if plan.shift else 0.0
    return math.ceil(1 + rounding + spread * (1 + _ROUNDING_ERROR))


def _log_share(plan: NoisePlan, delta: Fraction) -> float:
    """ln(R / delta), by logarithms of whole numbers, which are right to the last bits at any size."""
    return math.log(plan.horizon) + math.log(delta.denominator) - math.log(delta.numerator)


def _spread_at(plan: NoisePlan, tick: int, delta: Fraction) -> float:
    """x_t with P[N_t >= x_t] <= delta / R."""
    share = _log_share(plan, delta)
    if not is_pure(plan):
        return math.sqrt(2 * float(variance_at(plan, tick)) * share)
    weights = [(term.level, term.weight / 2.0**plan.shift) for term in terms_of(plan, tick)]

    def bound(factor: float) -> float:
        moments = sum(plan.noises[level].log_moment(factor * weight) for level, weight in weights)
        return (moments + share) / factor

    # Every factor gives a valid bound; the search only looks for the least.
    limit = min(1 / (abs(weight) * float(plan.noises[level].variance / 2) ** 0.5) for level, weight in weights)
    return min(bound(limit * step / 256) for step in range(1, 256))


@lru_cache(maxsize=256)
def _constant_spread(key: Hashable, delta: Fraction) -> float:
    """x with the sum over ticks of exp(-x^2 / (2 V_t)) at most delta."""
    plan = cast(NoisePlan, key)
    if is_pure(plan):
        raise ParameterError("a constant threshold must stand over Gaussian noise, got a Laplace plan; cut per tick")
    if not plan.horizon <= _LONGEST_SUM:
        raise ParameterError(f"a constant threshold must stand over at most {_LONGEST_SUM} releases; cut per tick")
    variances, counts = np.unique(plan.variance_profile(), return_counts=True)
    low, high = 0.0, math.sqrt(2 * float(variances[-1]) * _log_share(plan, delta))
    for _ in range(100):
        middle = (low + high) / 2
        enough = float((counts * np.exp(-(middle**2) / (2 * variances))).sum()) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high
