"""What several losses add up to, exactly, and the best (epsilon, delta) statement about them.

The sums are those of the ledger (rho, bad) in docs/privacy.md, 'Composition and conversion'. zCDP composes by
Bun and Steinke, "Concentrated differential privacy: simplifications, extensions, and lower bounds", TCC
2016, Lemmas 1.7 and 2.3, whose proof goes order by order and so holds at the integer orders alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pianissimo.accounting.conversion import added_delta, epsilon_from_rho, nothing_left, remaining_delta
from pianissimo.checks import check_probability
from pianissimo.errors import ParameterError
from pianissimo.privacy import Ledger, Loss, Pure, Zcdp, float_up


@dataclass(frozen=True, slots=True)
class Price:
    """A valid (epsilon, delta) statement and how it was reached.

    >>> Price(epsilon=1.0, delta=0.0, method="pure")
    Price(epsilon=1.0, delta=0.0, method='pure')
    """

    epsilon: float
    """Rounded up."""

    delta: float
    """The whole of it: conversion, bad mass and noise distance together."""

    method: str
    """`pure`, `integer orders` or `pure plus integer orders`."""


def compose(losses: Sequence[Loss]) -> Loss:
    """Add up losses in exact rationals; the sum also holds when later choices depend on earlier releases.

    Losses of one kind keep their kind; a mixture becomes a `Ledger`. Pass all losses at once: pure losses
    that were summed before they meet another kind are booked as (epsilon_1 + epsilon_2)^2 / 2, which is
    sound and larger.

    >>> compose([Pure(Fraction(1, 2)), Pure(Fraction(1, 3))])
    Pure(epsilon=Fraction(5, 6), distance=Fraction(0, 1))
    >>> compose([Zcdp(Fraction(1, 2)), Zcdp(Fraction(1, 3))])
    Zcdp(rho=Fraction(5, 6))
    >>> compose([Zcdp(Fraction(1, 2)), Pure(Fraction(1))])
    Ledger(rho=Fraction(1, 1), bad=Fraction(0, 1), distance=Fraction(0, 1))
    """
    if all(isinstance(loss, Pure) for loss in losses):
        return _pure_part(losses)
    zcdp = [loss.rho for loss in losses if isinstance(loss, Zcdp)]
    if len(zcdp) == len(losses):
        return Zcdp(sum(zcdp, Fraction(0)))
    return _as_one_ledger(losses)


def price(losses: Sequence[Loss], delta: Fraction | float) -> Price:
    """Find the best valid (epsilon, delta) statement about all losses together, at a total of `delta`.

    Three statements are tried and the smallest epsilon is given: the sum of the losses if all are pure, at
    delta 0; everything in one ledger, converted at integer orders; the pure part added plainly to the
    converted rest.

    >>> price([Pure(Fraction(1, 2)), Pure(Fraction(1, 2))], 0)
    Price(epsilon=1.0, delta=0.0, method='pure')
    >>> price([Zcdp(Fraction(1, 2)), Ledger(Fraction(0), bad=Fraction(1, 10**7))], 1e-6)
    Price(epsilon=5.24..., delta=1e-06, method='integer orders')
    >>> price([Ledger(Fraction(1), bad=Fraction(1, 1000))], 1e-6)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: delta must be above the bad mass 0.001 of the losses, got 1e-06; ...
    """
    if delta != 0 or isinstance(delta, bool):
        check_probability(delta=delta)
    allowed = Fraction(delta)
    pure = _pure_part(losses)
    rest = [loss for loss in losses if not isinstance(loss, Pure)]
    whole = _as_one_ledger(losses)
    found = []
    slack = added_delta(pure.distance, pure.epsilon)
    # A pure loss is asked for with delta 0; the distance of its noise is then told, not hidden.
    if not rest and slack is not None and (allowed == 0 or slack <= allowed):
        found.append(Price(float_up(pure.epsilon), float_up(slack), "pure"))
    # Pure plus the rest is basic composition, also when the two are interleaved: exchange the stream of the
    # rest first, M0(S) <= e^epsilon M'(S) + delta, then that of the pure part, M'(S) <= e^pure M1(S).
    aside = _as_one_ledger([*rest, Ledger(rho=Fraction(0), distance=pure.distance)])
    ways = ((Fraction(0), whole, "integer orders"), (pure.epsilon, aside, "pure plus integer orders"))
    for plain, ledger, method in ways:
        epsilon = _least_epsilon(plain, ledger, allowed)
        if epsilon is not None:
            found.append(Price(epsilon, float_up(allowed), method))
    if not found:
        if allowed == 0:
            raise ParameterError(f"delta must be above 0 unless every loss is pure, got {delta}")
        raise nothing_left(allowed, bad=whole.bad, distance=whole.distance)
    return min(found, key=lambda statement: (statement.epsilon, statement.delta))


def _pure_part(losses: Sequence[Loss]) -> Pure:
    pure = [loss for loss in losses if isinstance(loss, Pure)]
    return Pure(
        epsilon=sum((loss.epsilon for loss in pure), Fraction(0)),
        distance=sum((loss.distance for loss in pure), Fraction(0)),
    )


def _as_one_ledger(losses: Sequence[Loss]) -> Ledger:
    # docs/privacy.md, 'Composition and conversion': rho adds up, and all answers are good with probability at least
    # prod(1 - bad_i).
    # Total variation adds up when the drawn noises are replaced by the ideal ones, one loss at a time.
    ledgers = [loss.as_ledger() for loss in losses]
    good = Fraction(
        math.prod(entry.bad.denominator - entry.bad.numerator for entry in ledgers),
        math.prod(entry.bad.denominator for entry in ledgers),
    )
    return Ledger(
        rho=sum((entry.rho for entry in ledgers), Fraction(0)),
        bad=1 - good,
        distance=sum((entry.distance for entry in ledgers), Fraction(0)),
    )


def _least_epsilon(plain: Fraction, ledger: Ledger, allowed: Fraction) -> float | None:
    """Solve plain + conversion(ledger, what epsilon leaves of delta) <= epsilon; None without a solution."""
    offset = float_up(plain)

    def needed(epsilon: float) -> float | None:
        left = remaining_delta(allowed, bad=ledger.bad, distance=ledger.distance, epsilon=epsilon)
        if left is None:
            return None
        converted = epsilon_from_rho(ledger.rho, left)
        return math.nextafter(offset + converted, math.inf) if offset and converted else offset + converted

    if ledger == Ledger(Fraction(0)):
        return offset
    # `needed` rises with epsilon, since a larger epsilon leaves less delta. So the iteration climbs from
    # below to the least solution and never past it: what `Budget.rho` allows is not priced above the budget.
    # It takes two or three steps unless the distance is a large part of delta; a distance within about a
    # thousandth of the largest possible is refused. What is returned has passed needed(epsilon) <= epsilon,
    # and that makes the statement valid.
    epsilon = offset
    for _ in range(1000):
        more = needed(epsilon)
        if more is None:
            return None
        if more <= epsilon:
            return epsilon
        epsilon = more
    return None
