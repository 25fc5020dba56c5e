"""Chances of discrete Gaussian noise, P(z) ~ exp(-z^2 / (2 variance)), as floating-point sums that are never too small.

Every sum has positive terms only and is enlarged by one part in a billion, a million times what its roundings can
take away. The whole of the lattice is at least sqrt(2 pi variance) (Poisson summation), which stands below the
fraction.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pianissimo.errors import ParameterError

Floats = NDArray[np.float64]

ROUNDING_ERROR = 1e-9
TINY = 1e-300
"""What is too small for a floating-point number is not nothing."""

_REACH = 39
_LARGEST_VARIANCE = 2.0**38
_PIECE = 2**20
_LOST_DIGITS = 1e-11


class GaussianLaw:
    """The chances of one discrete Gaussian, in tables from 0 up to where floating-point numbers end.

    >>> law = GaussianLaw(Fraction(18))
    >>> round(float(law.tail(np.array([21]))[0]) * 1e7, 5)
    6.39419
    """

    def __init__(self, variance: Fraction) -> None:
        if not 0 < variance <= _LARGEST_VARIANCE:
            raise ParameterError(f"variance must be above 0 and at most 2^38, got {float(variance):g}")
        self.variance = variance
        spread = float(variance)
        self.reach = math.ceil(_REACH * math.sqrt(spread)) + 2
        steps = np.arange(self.reach + 1, dtype=np.float64)
        weights = np.exp(-steps * steps / (2 * spread))
        part = float(weights[0] + 2 * weights[1:][::-1].sum())
        whole = max(math.sqrt(2 * math.pi * spread), part)
        self._masses = weights / whole
        # Summed from the small end.
        self._tails = np.cumsum(self._masses[::-1])[::-1]

    def mass(self, at: NDArray[np.int64]) -> Floats:
        """P[Z = at]."""
        place = np.abs(at)
        return np.where(place <= self.reach, self._masses[np.minimum(place, self.reach)], 0.0) + TINY

    def tail(self, least: NDArray[np.int64]) -> Floats:
        """P[Z >= least]."""
        upper = self._upper(np.maximum(least, 0))
        # P[Z >= -n] = 1 - P[Z >= n + 1]: no digits are lost where that is at most one half.
        return np.where(least >= 0, upper, 1.0 - self._upper(np.maximum(1 - least, 0)))

    def _upper(self, least: NDArray[np.int64]) -> Floats:
        return np.where(least <= self.reach, self._tails[np.minimum(least, self.reach)], 0.0) + TINY

    @property
    def places(self) -> NDArray[np.int64]:
        """All whole numbers that have a chance worth a floating-point number."""
        return np.arange(-self.reach, self.reach + 1)


@lru_cache(maxsize=16)
def gaussian_law(variance: Fraction) -> GaussianLaw:
    """The tables of a variance, kept for the next call.

    >>> gaussian_law(Fraction(4)) is gaussian_law(Fraction(4))
    True
    """
    return GaussianLaw(variance)


def enlarge(chance: float) -> float:
    """A chance made larger than all roundings of its sum.

    >>> enlarge(0.5) > 0.5
    True
    """
    return chance * (1 + ROUNDING_ERROR) + TINY


def shift_divergence(variance: int, coordinates: int, epsilon: float) -> float:
    """How far discrete Gaussian noise on so many counts is from itself moved by one in each, beyond e^epsilon.

    This is the hockey-stick divergence, a sum over the whole numbers y > epsilon s2 - j/2 of P[Y = y] (1 - exp(epsilon
    - (2 y + j) / (2 s2))), where Y is the sum of j draws. Y is taken as one draw of variance j s2; for that exchange
    (Kairouz, Liu and Steinke 2021, s2 >= 1/2) the sum is multiplied by e^kappa, kappa = 10 sum over i < j of exp(-2
    pi^2 s2 i / (i + 1)).

    >>> f"{shift_divergence(18, 1, 1.0):.6e}", f"{shift_divergence(650, 10, 0.5):.5e}"
    ('9.565223e-07', '9.88900e-07')
    """
    if coordinates == 0:
        return max(0.0, -math.expm1(epsilon))
    spread = float(coordinates * variance)
    start = epsilon * variance - coordinates / 2
    first = math.floor(start) + 1
    deviation = math.sqrt(spread)
    # Past the first place, or past the middle, the weights fall by e^-u^2/2 over u deviations.
    last = math.ceil(max(float(first), 0.0) + _span(max(first / deviation, 0.0)) * deviation) + 2
    low = max(first, -math.ceil(_REACH * deviation))
    total = 0.0
    for begin in range(last, low - 1, -_PIECE):
        places = np.arange(max(low, begin - _PIECE + 1), begin + 1, dtype=np.float64)
        gains = -np.expm1(epsilon - (2 * places + coordinates) / (2 * variance))
        weights = np.exp(-places * places / (2 * spread))
        total += float((weights * np.maximum(gains, 0.0))[::-1].sum())
    whole = math.sqrt(2 * math.pi * spread)
    if spread < 1:
        lattice = np.arange(1, 64, dtype=np.float64)
        whole = max(whole, 1 + 2 * float(np.exp(-lattice * lattice / (2 * spread)).sum()))
    return enlarge(total / whole) * math.exp(exchange_exponent(variance, coordinates))


def _span(start: float) -> float:
    """How many deviations past `start` the weights are below e^-45 of the first one: u^2 / 2 + start u >= 45."""
    return 90.0 / (start + math.sqrt(start * start + 90.0))


@lru_cache(maxsize=4096)
def exchange_exponent(variance: int, coordinates: int) -> float:
    """kappa: a sum of so many draws has the chances of one draw of the summed variance, up to a factor e^kappa.

    >>> exchange_exponent(18, 1), exchange_exponent(5, 1000) < 1e-18
    (0.0, True)
    """
    if coordinates <= 1:
        return 0.0
    # All terms are at most those at i = 1 and fall towards exp(-2 pi^2 s2); their sum is at most this.
    near = sum(math.exp(-2 * math.pi**2 * variance * i / (i + 1)) for i in range(1, min(coordinates, 65)))
    far = max(0, coordinates - 65) * math.exp(-2 * math.pi**2 * variance * 65 / 66)
    return 10 * (near + far)


def shift_divergences(variance: int, coordinates: int, epsilons: Floats) -> Floats:
    """The same for many values of epsilon at once, from one table of tails.

    The sum is P[Y >= y] - e^epsilon P[Y >= y + j], y the first place of the sum. What the difference may lose is added.

    >>> many = shift_divergences(18, 1, np.array([1.0, 0.5]))
    >>> bool(np.allclose(many, [shift_divergence(18, 1, 1.0), shift_divergence(18, 1, 0.5)], rtol=1e-7))
    True
    """
    law = gaussian_law(Fraction(coordinates * variance))
    first = np.floor(epsilons * variance - coordinates / 2).astype(np.int64) + 1
    tails = law.tail(first)
    gains = tails - np.exp(epsilons) * law.tail(first + coordinates)
    bounds = np.maximum(gains, 0.0) * (1 + ROUNDING_ERROR) + _LOST_DIGITS * tails
    return np.asarray(bounds * math.exp(exchange_exponent(variance, coordinates)))
