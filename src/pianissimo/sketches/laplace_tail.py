"""Chances of discrete Laplace noise, P(z) ~ a^|z| with a = e^-epsilon, worked out so that they are never too small.

The formulas take `a` as a `Fraction` (then they are exact) or as a `Decimal` of 60 digits, for which `enlarged` adds
more than all roundings together could have taken away.
"""

import decimal
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from pianissimo.privacy import float_up

Number = TypeVar("Number", Fraction, Decimal)

CONTEXT = decimal.Context(prec=60, rounding=decimal.ROUND_HALF_EVEN, Emin=-(10**15), Emax=10**15)
_SLACK = Decimal("1e-30")


def tail(a: Number, least: int) -> Number:
    """P[Z >= least].

    >>> tail(Fraction(1, 2), 1), tail(Fraction(1, 2), 0)
    (Fraction(1, 3), Fraction(2, 3))
    """
    return a**least / (1 + a) if least >= 0 else 1 - a ** (1 - least) / (1 + a)


def sum_tail(a: Number, least: int) -> Number:
    """P[Z + Z' >= least] for two draws and least >= 0, a sum of geometric series.

    >>> sum_tail(Fraction(1, 2), 0)
    Fraction(16, 27)
    """
    return a**least / (1 + a) ** 2 * ((1 + a + 2 * a * a) / (1 + a) + least * (1 - a))


def decay(epsilon: Fraction) -> Decimal:
    """e^-epsilon to 60 digits.

    >>> round(decay(Fraction(1)), 6)
    Decimal('0.367879')
    """
    with decimal.localcontext(CONTEXT):
        return (-to_decimal(epsilon)).exp()


def enlarged(formula: Callable[[Decimal], Decimal], epsilon: Fraction) -> Decimal:
    """What a formula of a = e^-epsilon gives, enlarged by more than its roundings.

    A formula must keep 30 of the 60 digits, which sums and products of positive numbers and single differences do.

    >>> round(enlarged(lambda a: tail(a, 3), Fraction(1)), 8)
    Decimal('0.03639726')
    """
    with decimal.localcontext(CONTEXT):
        return formula(decay(epsilon)) * (1 + _SLACK)


def to_decimal(value: Fraction | float) -> Decimal:
    """A rational to 60 digits.

    >>> to_decimal(Fraction(1, 4))
    Decimal('0.25')
    """
    exact = Fraction(value)
    with decimal.localcontext(CONTEXT):
        return Decimal(exact.numerator) / Decimal(exact.denominator)


def at_most(chance: Decimal, delta: Fraction) -> bool:
    """Whether a chance is at most delta, compared exactly.

    >>> at_most(Decimal("0.25"), Fraction(1, 4))
    True
    """
    # A Fraction of a Decimal has as many digits as its exponent; far below delta no comparison is needed.
    return chance.adjusted() < -(10**4) or Fraction(chance) <= delta


def short_bound(chance: Decimal | float) -> Fraction:
    """A short rational that is not below a chance, and at most 1.

    >>> short_bound(Decimal("0.1")) >= Fraction(1, 10)
    True
    """
    if isinstance(chance, Decimal) and chance.adjusted() < -300:
        return Fraction(1, 10**300)
    return min(Fraction(1), Fraction(float_up(Fraction(chance))))


def least_integer(start: int, holds: Callable[[int], bool]) -> int:
    """The least whole number from `start` on at which something that stays true becomes true.

    >>> least_integer(1, lambda n: n * n >= 50)
    8
    """
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
