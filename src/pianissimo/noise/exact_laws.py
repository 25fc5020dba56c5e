"""Chances of whole-number noise, worked out so that they are never too small.

*Laplace*, P(z) ~ a^|z| with a = e^-epsilon. The formulas take `a` as a `Fraction` (then they are exact) or as a
`Decimal` of 60 digits, for which `enlarged` adds more than all roundings together could have taken away.

*Gaussian*, P(z) ~ exp(-z^2 / (2 variance)), as floating-point sums. Every sum has positive terms only and is enlarged
by one part in a billion, a million times what its roundings can take away. The whole of the lattice is at least
sqrt(2 pi variance) (Poisson summation), which stands below the fraction. Searches begin at the sigma of real-valued
noise, which nothing is released with.

Sums grow with the deviation, and a small epsilon asks for a large one. So large variances have bounds instead, which
are above their sums by less than a thousandth: `gaussian_tail`, and every so many-th term in `shift_divergence`.
"""

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_probability
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import float_up

Number = TypeVar("Number", Fraction, Decimal)

CONTEXT = decimal.Context(prec=60, rounding=decimal.ROUND_HALF_EVEN, Emin=-(10**15), Emax=10**15)
_SLACK = Decimal("1e-30")


def tail(a: Number, least: int) -> Number:
    """P[Z >= least]."""
    return a**least / (1 + a) if least >= 0 else 1 - a ** (1 - least) / (1 + a)


def sum_tail(a: Number, least: int) -> Number:
    """P[Z + Z' >= least] for two draws and least >= 0, a sum of geometric series."""
    return a**least / (1 + a) ** 2 * ((1 + a + 2 * a * a) / (1 + a) + least * (1 - a))


def decay(epsilon: Fraction) -> Decimal:
    """e^-epsilon to 60 digits."""
    with decimal.localcontext(CONTEXT):
        return (-to_decimal(epsilon)).exp()


def enlarged(formula: Callable[[Decimal], Decimal], epsilon: Fraction) -> Decimal:
    """What a formula of a = e^-epsilon gives, enlarged by more than its roundings.

    A formula must keep 30 of the 60 digits, which sums and products of positive numbers and single differences do.
    """
    with decimal.localcontext(CONTEXT):
        return formula(decay(epsilon)) * (1 + _SLACK)


def to_decimal(value: Fraction | float) -> Decimal:
    """A rational to 60 digits."""
    exact = Fraction(value)
    with decimal.localcontext(CONTEXT):
        return Decimal(exact.numerator) / Decimal(exact.denominator)


def at_most(chance: Decimal, delta: Fraction) -> bool:
    """Whether a chance is at most delta, compared exactly."""
    # A Fraction of a Decimal has as many digits as its exponent; far below delta no comparison is needed.
    return chance.adjusted() < -(10**4) or Fraction(chance) <= delta


def short_bound(chance: Decimal | float) -> Fraction:
    """A short rational that is not below a chance, and at most 1."""
    if isinstance(chance, Decimal) and chance.adjusted() < -300:
        return Fraction(1, 10**300)
    return min(Fraction(1), Fraction(float_up(Fraction(chance))))


def least_integer(start: int, holds: Callable[[int], bool]) -> int:
    """The least whole number from `start` on at which something that stays true becomes true."""
    if holds(start):
        return start
    step = 1
    while not holds(start + step):
        step *= 2
    low, high = start + step // 2, start + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def least_around(start: int, guess: int, holds: Callable[[int], bool]) -> int:
    """The same, in few steps where the guess is near."""
    low, step = max(start, guess), 1
    while low > start and holds(low):
        low, step = max(start, low - step), 2 * step
    return least_integer(low, holds)


def laplace_reach(rate: Fraction, draws: int, coverage: float) -> int:
    """What none of so many draws of scale 1 / rate exceeds in size, with this chance."""
    check_probability(coverage=coverage)
    slope = float(rate)
    odds = math.log(2 * draws) - math.log1p(math.exp(-slope)) - math.log1p(-coverage)
    return max(1, math.ceil(odds / slope)) - 1


Floats = NDArray[np.float64]

ROUNDING_ERROR = 1e-9
TINY = 1e-300
"""What is too small for a floating-point number is not nothing."""

_REACH = 39
LARGEST_VARIANCE = 2.0**38
"""Of the tables of a law."""

LARGEST_SUMMED = 2**20
"""The tails of larger variances are not summed: see `gaussian_tail`."""

_MOST_PLACES = 2**20
_LOST_DIGITS = 1e-11


class GaussianLaw:
    """The chances of one discrete Gaussian, in tables from 0 up to where floating-point numbers end."""

    def __init__(self, variance: Fraction) -> None:
        if not 0 < variance <= LARGEST_VARIANCE:
            raise ParameterError(f"variance must be above 0 and at most 2^38, got {float(variance):g}")
        self.variance = variance
        spread = float(variance)
        self.reach = math.ceil(_REACH * math.sqrt(spread)) + 2
        steps = np.arange(self.reach + 1, dtype=np.float64)
        weights = np.exp(-steps * steps / (2 * spread))
        part = float(weights[0] + 2 * weights[1:][::-1].sum())
        whole = max(math.sqrt(2 * math.pi * spread), part)
        self._masses = weights / whole
        # Summed from the small end, where both are 0: e^(-39^2 / 2) is below every floating-point number.
        self._tails = np.cumsum(self._masses[::-1])[::-1]

    def mass(self, at: NDArray[np.int64]) -> Floats:
        """P[Z = at]."""
        place = np.abs(at)
        return np.asarray(self._masses[np.minimum(place, self.reach)] + TINY)

    def tail(self, least: NDArray[np.int64]) -> Floats:
        """P[Z >= least]."""
        upper = self._upper(np.maximum(least, 0))
        # P[Z >= -n] = 1 - P[Z >= n + 1]: no digits are lost where that is at most one half.
        return np.where(least >= 0, upper, 1.0 - self._upper(np.maximum(1 - least, 0)))

    def _upper(self, least: NDArray[np.int64]) -> Floats:
        return np.asarray(self._tails[np.minimum(least, self.reach)] + TINY)

    @property
    def places(self) -> NDArray[np.int64]:
        """All whole numbers that have a chance worth a floating-point number."""
        return np.arange(-self.reach, self.reach + 1)


@lru_cache(maxsize=4)
def gaussian_law(variance: Fraction) -> GaussianLaw:
    """The tables of a variance, kept for the next call."""
    return GaussianLaw(variance)


def gaussian_reach(variance: Fraction, draws: int, coverage: float) -> int:
    """What none of so many draws exceeds in size, with this chance."""
    check_probability(coverage=coverage)
    if variance > LARGEST_SUMMED:
        beyond = (1 - coverage) / (2 * draws)
        guess = round(real_quantile(variance, beyond))
        return least_around(0, guess, lambda reach: gaussian_tail(variance, reach + 1) <= beyond)
    law = gaussian_law(variance)
    return int(np.argmax(2 * draws * law.tail(np.arange(1, law.reach + 1)) <= 1 - coverage))


def enlarge(chance: float) -> float:
    """A chance made larger than all roundings of its sum."""
    return chance * (1 + ROUNDING_ERROR) + TINY


def gaussian_tail(variance: Fraction, least: int) -> float:
    """P[Z >= least], and for a large variance v a bound: what real noise has above least - 1/2, times 1 + 1 / v.

    From sqrt(v) on exp(-z^2 / (2 v)) is convex, so that each term is at most its integral from z - 1/2 to z + 1/2. Of
    the others there are at most 2 sqrt(v) + 2, and each is above its integral by at most 1 / (24 v) of the term at 0.
    Together this is less than 1 / (29 v), where the integral is above 0.158.
    """
    if variance <= LARGEST_SUMMED:
        return enlarge(float(gaussian_law(variance).tail(np.array([least]))[0]))
    spread = float(variance)
    return enlarge(math.erfc((least - 0.5) / math.sqrt(2 * spread)) / 2 * (1 + 1 / spread))


def real_quantile(variance: Fraction | int, chance: float) -> float:
    """Above which number real-valued noise is with this chance: where a search begins."""
    return -math.sqrt(variance) * NormalDist().inv_cdf(min(max(chance, TINY), 0.5))


@lru_cache(maxsize=4096)
def shift_divergence(variance: int, coordinates: int, epsilon: float) -> float:
    """How far discrete Gaussian noise on so many counts is from itself moved by one in each, beyond e^epsilon.

    This is the hockey-stick divergence, a sum over the whole numbers y > epsilon s2 - j/2 of P[Y = y] (1 - exp(epsilon
    - (2 y + j) / (2 s2))), where Y is the sum of j draws. Y is taken as one draw of variance j s2; for that exchange
    (Kairouz, Liu and Steinke 2021, s2 >= 1/2) the sum is multiplied by e^kappa, kappa = 10 sum over i < j of exp(-2
    pi^2 s2 i / (i + 1)). Of more than a million places every so many-th stands for those up to the next.
    """
    if coordinates == 0:
        return max(0.0, -math.expm1(epsilon))
    spread = float(coordinates * variance)
    start = epsilon * variance - coordinates / 2
    first = math.floor(start) + 1
    deviation = math.sqrt(spread)
    # Past the first place, or the middle, the weights fall by e^-(u^2 / 2 + past u) over u deviations: below e^-45.
    past = max(first / deviation, 0.0)
    span = 90.0 / (past + math.sqrt(past * past + 90.0))
    last = math.ceil(max(float(first), 0.0) + span * deviation) + 2
    low = max(first, -math.ceil(_REACH * deviation))
    stride = -(-(last - low + 1) // _MOST_PLACES)
    places = np.arange(low, last + stride, stride, dtype=np.float64)
    gains = -np.expm1(epsilon - (2 * places + coordinates) / (2 * variance))
    weights = np.exp(-places * places / (2 * spread))
    total = float((weights * np.maximum(gains, 0.0))[::-1].sum())
    if stride > 1:
        total = stride * (total + _largest_term(start, spread, variance))
    whole = math.sqrt(2 * math.pi * spread)
    return enlarge(total / whole) * math.exp(exchange_exponent(variance, coordinates))


def _largest_term(start: float, spread: float, variance: int) -> float:
    """A bound on exp(-y^2 / (2 spread)) (1 - exp((start - y) / variance)), the terms of a divergence, for all y.

    They rise and then fall, as a product of log-concave factors does. So where only every s-th of them is summed, those
    between add up to at most as much each time, and once more the largest: each is at most its neighbor towards the
    top, but for one. The second factor is at most (y - start) / variance, and then y = start + further is the top.
    """
    further = 2 * spread / (start + math.sqrt(start * start + 4 * spread))
    return min(1.0, further / variance * math.exp(-((start + further) ** 2) / (2 * spread)))


@lru_cache(maxsize=4096)
def exchange_exponent(variance: int, coordinates: int) -> float:
    """kappa: a sum of so many draws has the chances of one draw of the summed variance, up to a factor e^kappa."""
    # All terms are at most those at i = 1 and fall towards exp(-2 pi^2 s2); their sum is at most this.
    near = sum(math.exp(-2 * math.pi**2 * variance * i / (i + 1)) for i in range(1, min(coordinates, 65)))
    far = max(0, coordinates - 65) * math.exp(-2 * math.pi**2 * variance * 65 / 66)
    return 10 * (near + far)


def shift_divergences(variance: int, coordinates: int, epsilons: Floats) -> Floats:
    """The same for many values of epsilon at once, from one table of tails.

    The sum is P[Y >= y] - e^epsilon P[Y >= y + j], y the first place of the sum. What the difference may lose is added.
    """
    law = gaussian_law(Fraction(coordinates * variance))
    first = np.floor(epsilons * variance - coordinates / 2).astype(np.int64) + 1
    tails = law.tail(first)
    gains = tails - np.exp(epsilons) * law.tail(first + coordinates)
    bounds = np.maximum(gains, 0.0) * (1 + ROUNDING_ERROR) + _LOST_DIGITS * tails
    return np.asarray(bounds * math.exp(exchange_exponent(variance, coordinates)))


def least_sigma(epsilon: float, delta: float) -> float:
    """The least sigma of real-valued noise whose divergence for a shift by one is at most delta."""
    low, high = -30.0, 30.0
    for _ in range(100):
        middle = (low + high) / 2
        mu = math.exp(-middle)
        x = mu / 2 - epsilon / mu
        divergence = math.erfc(-x / math.sqrt(2)) - math.exp(epsilon) * math.erfc((mu - x) / math.sqrt(2))
        low, high = (low, middle) if divergence <= 2 * delta else (middle, high)
    return math.exp(high)
