"""Audit level A0: what the sampler's tables really draw, against the exact distribution.

The probabilities of the tables are exact rationals; the distribution is computed to 100 digits by other means than
the core's (decimal exponentials of the closed form, not a recurrence in fixed point).
"""

import decimal
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from pianissimo import _core

_DIGITS = 100


def sampler_tables(name: str, parameter: Fraction) -> tuple[list[tuple[int, list[tuple[int, int]]]], int | None]:
    """What a draw is made of: parts as (multiplier, [(value, mass in units of 2^-128)]).

    The draw is the sum of each part's value times its multiplier. Where a second number comes, it is the chance of zero
    in units of 2^-127, and any other draw is one more than that sum, with a random sign.

    >>> parts, zero = sampler_tables("gaussian", Fraction(4))
    >>> sum(mass for _, mass in parts[0][1]) == 2**128, zero
    (True, None)
    """
    return _core.sampler_tables(name, parameter.numerator, parameter.denominator)


def drawn_probability(name: str, parameter: Fraction, value: int) -> Fraction:
    """The chance of `value` under the tables, exactly.

    >>> drawn_probability("gaussian", Fraction(4), 1) == drawn_probability("gaussian", Fraction(4), -1)
    True
    """
    parts, zero = _tables(name, parameter)
    if zero is None:
        return _sum_probability(parts, value)
    if value == 0:
        return Fraction(zero, 2**127)
    return (1 - Fraction(zero, 2**127)) / 2 * _sum_probability(parts, abs(value) - 1)


def ideal_probability(name: str, parameter: Fraction, value: int) -> Fraction:
    """The chance of `value` under the distribution, to 100 digits.

    >>> round(float(ideal_probability("laplace", Fraction(2), 0)), 6)
    0.244919
    """
    with decimal.localcontext(prec=_DIGITS + 20):
        return Fraction(_weight(name, parameter, value) / _total_weight(name, parameter))


def largest_gap(name: str, parameter: Fraction, values: Iterable[int]) -> float:
    """The largest relative gap between drawn and ideal chance among values whose chance is above 2^-40.

    >>> largest_gap("gaussian", Fraction(400), [0, 1, 50]) < 2.0**-90
    True
    """
    gaps = [Fraction(0)]
    for value in values:
        ideal = ideal_probability(name, parameter, value)
        if ideal > Fraction(1, 2**40):
            gaps.append(abs(drawn_probability(name, parameter, value) / ideal - 1))
    return float(max(gaps))


def total_variation(name: str, parameter: Fraction) -> float:
    """The total variation between what is drawn and the distribution, over the whole support of the tables.

    >>> total_variation("gaussian", Fraction(9)) < 2.0**-100
    True
    """
    parts, zero = _tables(name, parameter)
    bound = sum(part.multiplier * max(map(abs, part.masses)) for part in parts) + (zero is not None)
    drawn = ideal = difference = Fraction(0)
    for value in range(-bound, bound + 1):
        real, wanted = drawn_probability(name, parameter, value), ideal_probability(name, parameter, value)
        drawn, ideal, difference = drawn + real, ideal + wanted, difference + abs(real - wanted)
    if drawn != 1:
        raise AssertionError("the tables of a sampler must have mass one")
    return float((difference + abs(1 - ideal)) / 2)


@dataclass(frozen=True, slots=True)
class _Part:
    """One table: its masses by value, and its values by their residue modulo the next part's multiplier."""

    multiplier: int
    masses: dict[int, int]
    values_by_residue: dict[int, list[int]]


@lru_cache(maxsize=64)
def _tables(name: str, parameter: Fraction) -> tuple[tuple[_Part, ...], int | None]:
    tables, zero = sampler_tables(name, parameter)
    parts = []
    for place, (multiplier, masses) in enumerate(tables):
        step = tables[place + 1][0] if place + 1 < len(tables) else 1
        residues: dict[int, list[int]] = {}
        for value, _ in masses:
            residues.setdefault(multiplier * value % step, []).append(value)
        parts.append(_Part(multiplier, dict(masses), residues))
    return tuple(parts), zero


def _sum_probability(parts: tuple[_Part, ...], value: int) -> Fraction:
    """The chance that the values of the parts, times their multipliers, sum to `value`."""
    # Many ways lead to one remainder: each is worked out once.
    ways = {value: 1}
    for part, after in pairwise(parts):
        further: dict[int, int] = {}
        for left, mass in ways.items():
            for low in part.values_by_residue.get(left % after.multiplier, ()):
                remainder = left - part.multiplier * low
                further[remainder] = further.get(remainder, 0) + mass * part.masses[low]
        ways = further
    last = parts[-1]
    total = sum(mass * last.masses.get(left // last.multiplier, 0) for left, mass in ways.items())
    return Fraction(total, 2 ** (128 * len(parts)))


def _weight(name: str, parameter: Fraction, value: int) -> Decimal:
    exponent = Fraction(value**2) / (2 * parameter) if name == "gaussian" else abs(value) / parameter
    return (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()


@lru_cache(maxsize=64)
def _total_weight(name: str, parameter: Fraction) -> Decimal:
    if name == "laplace":
        ratio = _weight(name, parameter, 1)
        return (1 + ratio) / (1 - ratio)
    total, value = Decimal(1), 1
    if parameter > 1000:
        # Poisson summation: sqrt(2 pi v) (1 + 2 exp(-2 pi^2 v) + ..), whose second term is far below the last digit.
        return (2 * _pi() * Decimal(parameter.numerator) / Decimal(parameter.denominator)).sqrt()
    while (weight := _weight(name, parameter, value)) > Decimal(10) ** -(_DIGITS + 10):
        total += 2 * weight
        value += 1
    return total


def _pi() -> Decimal:
    """Machin's formula: pi = 16 arctan(1/5) - 4 arctan(1/239)."""
    return 16 * _arctan_of_inverse(5) - 4 * _arctan_of_inverse(239)


def _arctan_of_inverse(number: int) -> Decimal:
    power = total = Decimal(1) / number
    index = 1
    while abs(power) > Decimal(10) ** -(_DIGITS + 18):
        power /= -number * number
        index += 2
        total += power / index
    return total
