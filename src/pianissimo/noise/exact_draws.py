"""Exact draws whose law is known only as an interval, for universes that cannot be gone through.

A uniform number is known by its first bits, and a chance by an interval that holds it, from decimals of so many digits
widened by their roundings. While both leave the answer open, more bits are drawn and twice the digits are worked out.
What comes out has the ideal law, apart from nothing: the bits themselves are taken for uniform.
"""

import decimal
import math
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction

import numpy as np

from pianissimo.errors import ParameterError
from pianissimo.noise.keyed import Noise

_FIRST_BITS = 128
_MOST_MEAN = 2**12

Interval = tuple[Decimal, Decimal]
"""Bounds of a number that is not known exactly."""


class Bits:
    """Uniform bits of a path, as many as are asked for."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._value = 0
        self._known = 0

    def first(self, count: int) -> int:
        """The first so many bits as a whole number; asked again for more, it begins with the same ones."""
        while self._known < count:
            block = np.array([self._known // 128], dtype=np.uint64)
            low, high = (int(word) for word in self._noise.bits(block)[0])
            self._value = (self._value << 128) | (high << 64) | low
            self._known += 128
        return self._value >> (self._known - count)


def uniform_below(limit: int, noise: Noise) -> int:
    """A uniform whole number from 0 up to but not including `limit`."""
    width = max(1, (limit - 1).bit_length())
    for attempt in range(1024):
        word = Bits(noise.at(attempt)).first(width)
        if word < limit:
            return word
    raise ParameterError("uniform bits must not be all alike, got the same ones again and again")


def binomial(trials: int, chance: Callable[[int], Interval], noise: Noise) -> int:
    """How many of so many trials succeed, for any number of them: `chance(digits)` holds the chance of one.

    By inversion: P_0 = (1 - p)^M, P_(i+1) = P_i (M - i) / (i + 1) p / (1 - p). It takes as long as the number that
    comes out, so whoever asks has checked that few are expected: `check_few`, of what is public.
    """
    known, digits = _FIRST_BITS, 60 + len(str(trials))
    least, most = chance(digits)
    if trials == 0 or most == 0:
        return 0
    if least == 1:
        return trials
    bits = Bits(noise)
    while True:
        word = bits.first(known)
        # The uniform number is in [word, word + 1) / 2^known.
        for count, (low, high) in enumerate(_cumulative(trials, chance(digits), digits)):
            if (word + 1) <= low * 2**known:
                return count
            if word < high * 2**known:
                break
        known, digits = 2 * known, 2 * digits


def check_few(trials: int, chance: Callable[[int], Interval]) -> None:
    """Refuse so many trials of this chance if too many would succeed: before there are data, never because of them."""
    _, most = chance(60 + len(str(trials)))
    if not trials * most <= _MOST_MEAN:
        raise ParameterError(
            f"keys shown by chance must be at most {_MOST_MEAN} on average, got more; raise the threshold"
        )


def _cumulative(trials: int, chance: Interval, digits: int) -> Iterator[tuple[Fraction, Fraction]]:
    """Bounds of P[N <= i] for i = 0, 1, .."""
    (p_low, p_high) = chance
    down, up = _contexts(digits)
    log_low, log_high = _ln_below(down.subtract(1, p_high), down), _ln_above(up.subtract(1, p_low), up)
    term_low = down.exp(down.multiply(trials, log_low)).next_minus(down)
    term_high = up.exp(up.multiply(trials, log_high)).next_plus(up)
    odds_low = down.divide(p_low, up.subtract(1, p_low))
    odds_high = up.divide(p_high, down.subtract(1, p_high))
    sum_low, sum_high = term_low, term_high
    for count in range(trials + 1):
        if count == trials:
            yield Fraction(1), Fraction(1)
        yield Fraction(sum_low), Fraction(sum_high)
        share = (trials - count, count + 1)
        term_low = down.divide(down.multiply(down.multiply(term_low, odds_low), share[0]), share[1])
        term_high = up.divide(up.multiply(up.multiply(term_high, odds_high), share[0]), share[1])
        sum_low, sum_high = down.add(sum_low, term_low), up.add(sum_high, term_high)


def rational(chance: Fraction) -> Callable[[int], Interval]:
    """A chance that is known, for `binomial`."""
    top, bottom = Decimal(chance.numerator), Decimal(chance.denominator)

    def bounds(digits: int) -> Interval:
        down, up = _contexts(digits)
        return down.divide(top, bottom), up.divide(top, bottom)

    return bounds


def laplace_passes(rate: Fraction, least: int) -> Callable[[int], Interval]:
    """The chance a^least / (1 + a), a = e^-rate, that a discrete Laplace draw is at least `least` >= 0."""

    def bounds(digits: int) -> Interval:
        down, up = _contexts(digits)
        a_low, a_high = _exp_bounds(-rate, digits)
        power_low, power_high = _exp_bounds(-rate * least, digits)
        return down.divide(power_low, up.add(1, a_high)), up.divide(power_high, down.add(1, a_low))

    return bounds


def geometric(rate: Fraction, noise: Noise) -> int:
    """A draw with P[j] = (1 - a) a^j, a = e^-rate: the whole part of -ln(U) / rate for a uniform U."""
    bits = Bits(noise)
    known = _FIRST_BITS
    while True:
        word = bits.first(known)
        if word > 0:
            down, up = _contexts(known)
            # -ln U is in (-ln((word + 1) / 2^known), -ln(word / 2^known)].
            scale = Decimal(2**known)
            near = down.subtract(_ln_below(scale, down), _ln_above(Decimal(word + 1), up))
            far = up.subtract(_ln_above(scale, up), _ln_below(Decimal(word), down))
            first, last = (math.floor(Fraction(each) / rate) for each in (max(near, Decimal(0)), far))
            if first == last:
                return first
        known *= 2


# Exponentials and logarithms of the decimal module are right to half a unit in the last place, in any rounding mode.


def _exp_bounds(exponent: Fraction, digits: int) -> Interval:
    down, up = _contexts(digits)
    top, bottom = Decimal(exponent.numerator), Decimal(exponent.denominator)
    return down.exp(down.divide(top, bottom)).next_minus(down), up.exp(up.divide(top, bottom)).next_plus(up)


def _ln_below(value: Decimal, context: decimal.Context) -> Decimal:
    return context.ln(value).next_minus(context)


def _ln_above(value: Decimal, context: decimal.Context) -> Decimal:
    return context.ln(value).next_plus(context)


def _contexts(digits: int) -> tuple[decimal.Context, decimal.Context]:
    bounds, traps = (-(10**15), 10**15), [decimal.InvalidOperation]
    down, up = (decimal.Context(digits, each, *bounds, traps=traps) for each in (ROUND_FLOOR, ROUND_CEILING))
    return down, up
