"""How far above the next count a threshold must stand, worked out exactly and rounded up.

A threshold hides what only one user holds: a label that is among the candidates on one of two neighbors alone has a
count of at most h + 1, h the first count that is not looked at. The offset beyond h + 1 is what keeps such a label
behind the threshold except with the chance that is booked as bad. Rounding it up only makes that chance smaller.

Durfee and Rogers 2019 print offsets for continuous noise. Here they are those of the noise that is drawn:

* Gumbel, through the exact race: m labels of count x = h + 1 and a threshold at x + y have the weights m and
  e^(epsilon y), so one of the labels is first with the chance m / (m + e^(epsilon y)). It is delta for y = ln(m (1 -
  delta) / delta) / epsilon; the paper's ln(m / delta) / epsilon gives delta / (1 + delta). y is rounded up to a
  multiple of 2^-16, and the race is run on counts times 2^16, so it stays one of whole numbers.
* Discrete Laplace of scale s, q = e^(-1/s): P[Z >= n] = q^n / (1 + q) for n >= 1, and for the difference of two
  P[Z - Z' >= n] = q^n ((n + c)(1 - q) + q) / (1 + q)^2 with c = (1 + q^2) / (1 - q^2), n >= 0. Both are sums of
  geometric series.
* Discrete Gaussian: P[Z >= n] is a sum over the lattice, never above exp(-n^2 / (2 variance)) (Canonne, Kamath and
  Steinke 2020, Corollary 17).

The chances are worked out to 60 digits (Laplace) or as floating-point sums enlarged by one part in a billion
(Gaussian), so that what is compared with delta is never too small.
"""

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from pianissimo.checks import check_probability
from pianissimo.errors import ParameterError

GRID = 2**16
"""Thresholds of a race are multiples of 1 / GRID."""

_CONTEXT = decimal.Context(prec=60, rounding=decimal.ROUND_HALF_EVEN)
_SLACK = Decimal("1e-40")
_ROUNDING_ERROR = 1e-9
_LARGEST_SUM = Fraction(10**8)
_SMALLEST_SUM = 1e-250
_TINY = 1e-300


@lru_cache(maxsize=4096)
def race_offset(labels: int, delta: Fraction, epsilon: Fraction) -> Fraction:
    """The least multiple of 1 / GRID that lets one of so many bad labels win with a chance of at most delta.

    >>> offset = race_offset(1, Fraction(1, 10), Fraction(1))
    >>> 0 <= offset - Fraction(math.log(9)) < Fraction(1, GRID)
    True
    """
    odds = labels * (1 - delta) / delta
    with decimal.localcontext(_CONTEXT):
        exact = _decimal(odds).ln() / _decimal(epsilon)
        return Fraction(math.ceil(exact * GRID + _SLACK * (1 + abs(exact))), GRID)


@lru_cache(maxsize=4096)
def laplace_offset(scale: Fraction, delta: Fraction) -> int:
    """The least y >= 0 with P[Z > y] <= delta, Z discrete Laplace.

    >>> laplace_offset(Fraction(1), Fraction(1, 100))
    4
    """
    return _least(lambda y: laplace_tail(scale, y + 1) <= _decimal(delta))


@lru_cache(maxsize=4096)
def laplace_difference_offset(scale: Fraction, delta: Fraction) -> int:
    """The least y >= 0 with P[Z - Z' > y] <= delta, Z and Z' discrete Laplace.

    >>> laplace_difference_offset(Fraction(1), Fraction(1, 100))
    5
    """
    return _least(lambda y: laplace_difference_tail(scale, y + 1) <= _decimal(delta))


@lru_cache(maxsize=4096)
def gaussian_offset(variance: Fraction, delta: Fraction) -> int:
    """The least y >= 0 with P[Z > y] <= delta, Z discrete Gaussian; a little more at extremes.

    >>> gaussian_offset(Fraction(100), Fraction(1, 1000))
    31
    """
    log_inverse = math.log(delta.denominator) - math.log(delta.numerator)
    enough = math.ceil(math.sqrt(2 * float(variance) * log_inverse) * (1 + _ROUNDING_ERROR))
    if variance > _LARGEST_SUM or delta < _SMALLEST_SUM:
        # By the sub-Gaussian tail alone: P[Z >= enough] <= delta.
        return max(0, enough - 1)
    return min(max(0, enough - 1), _least(lambda y: gaussian_tail(variance, y + 1) <= delta))


def laplace_tail(scale: Fraction, least: int) -> Decimal:
    """P[Z >= least] for a discrete Laplace Z and least >= 1, rounded up.

    >>> round(laplace_tail(Fraction(1), 1), 6)
    Decimal('0.268941')
    """
    with decimal.localcontext(_CONTEXT):
        rate = 1 / _decimal(scale)
        return (-least * rate).exp() / (1 + (-rate).exp()) * (1 + _SLACK)


def laplace_difference_tail(scale: Fraction, least: int) -> Decimal:
    """P[Z - Z' >= least] for two discrete Laplace draws and least >= 0, rounded up.

    >>> round(laplace_difference_tail(Fraction(1), 1), 6)
    Decimal('0.359799')
    """
    with decimal.localcontext(_CONTEXT):
        rate = 1 / _decimal(scale)
        q = (-rate).exp()
        centre = (1 + q * q) / (1 - q * q)
        return (-least * rate).exp() * ((least + centre) * (1 - q) + q) / (1 + q) ** 2 * (1 + _SLACK)


def gaussian_tail(variance: Fraction, least: int) -> float:
    """P[Z >= least] for a discrete Gaussian Z and least >= 1, rounded up.

    >>> round(gaussian_tail(Fraction(1), 1), 6)
    0.300529
    """
    spread = float(variance)
    reach = 12 * math.isqrt(math.ceil(variance)) + 12
    # Each weight over the first one; what is beyond reach, 12 deviations on, is below e^-72 of it.
    steps = np.arange(reach, dtype=np.float64)
    numerator = float(np.exp(-(steps * steps + 2.0 * least * steps) / (2 * spread)).sum())
    # Over the whole lattice, sqrt(2 pi v) is a lower bound (Poisson), and so is any part of the sum.
    lattice = np.arange(1, 64, dtype=np.float64)
    part = 1 + 2 * float(np.exp(-lattice * lattice / (2 * spread)).sum())
    denominator = max(math.sqrt(2 * math.pi * spread), part if variance < 1 else 0.0)
    # What is too small for a floating-point number is not nothing.
    return math.exp(-least * least / (2 * spread)) * numerator / denominator * (1 + _ROUNDING_ERROR) + _TINY


def at_least_one_of(times: int, delta: Fraction) -> Fraction:
    """1 - (1 - delta)^times, exactly: the chance that one of so many independent events of chance delta happens.

    >>> at_least_one_of(2, Fraction(1, 10))
    Fraction(19, 100)
    """
    return 1 - (1 - delta) ** times


def check_exact(*, epsilon: Fraction, delta: Fraction) -> None:
    """Refuse what is not an exact epsilon above 0 and an exact delta between 0 and 1.

    >>> check_exact(epsilon=Fraction(1), delta=0.1)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: delta must be an exact Fraction, got float
    """
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if not isinstance(value, Fraction):
            raise ParameterError(f"{name} must be an exact Fraction, got {type(value).__name__}")
    if not epsilon > 0:
        raise ParameterError(f"epsilon must be above 0, got {float(epsilon)}")
    check_probability(delta=delta)


def _least(holds: Callable[[int], bool]) -> int:
    """The least whole number from 0 on at which something that stays true becomes true."""
    high = 1
    while not holds(high):
        high *= 2
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _decimal(value: Fraction) -> Decimal:
    with decimal.localcontext(_CONTEXT):
        return Decimal(value.numerator) / Decimal(value.denominator)
