"""What several losses add up to, exactly, and the best (epsilon, delta) statement about them.

The sums are those of booked losses (rho, bad) in docs/privacy.md, 'Composition and conversion'. zCDP composes by
Bun and Steinke, "Concentrated differential privacy: simplifications, extensions, and lower bounds", TCC
2016, Lemmas 1.7 and 2.3, whose proof goes order by order and so holds at the integer orders alone. The other bounds
are those of `bounded_range`, `exact_composition` and `race_clock`, each where it applies.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pianissimo.checks import Real, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.loss.bounded_range import epsilon_by_concentration, epsilon_by_recursion, kappa
from pianissimo.loss.conversion import added_delta, epsilon_from_rho, nothing_left, remaining_delta
from pianissimo.loss.exact_composition import advanced_epsilon, optimal_epsilon
from pianissimo.loss.losses import Booked, BoundedRange, Loss, Mixed, Pure, Race, float_up
from pianissimo.loss.race_clock import epsilon_beside, epsilon_of_races

# Past this many steps the recursion takes seconds and gains little over the orders.
_MOST_STEPS = 1000

# Past this many pure losses the optimal composition is left for the advanced one, which needs no array.
_MOST_LOSSES = 100_000

# In so many parts delta is split between races and other losses.
_SPLITS = 24

# A statement with less delta is preferred if its epsilon is larger by no more than this part.
_AS_GOOD = 1e-3


@identified("price")
@dataclass(frozen=True, slots=True)
class Price:
    """A valid (epsilon, delta) statement and how it was reached."""

    epsilon: float
    """Rounded up."""

    delta: float
    """The whole of it: conversion, bad mass and noise distance together."""

    method: str
    """Which bound gave it, in the words of `price`."""


def price(losses: Sequence[Loss], delta: Real) -> Price:
    """Find the best valid (epsilon, delta) statement about losses, adaptive ones too, at a total of `delta`.

    All bounds that apply are tried:

    - pure: the plain sum, if all are pure or selection steps;
    - integer orders: everything in one entry;
    - pure plus integer orders: the pure part added plainly to the converted rest;
    - bounded range recursion, bounded range concentration: selection steps, beside pure losses added plainly. Steps of
      unequal width count at the largest;
    - optimal composition, advanced composition: all are pure or selection steps;
    - race, pure plus race: race monitors by the exact law of their clocks, beside pure losses and selection steps added
      plainly. Beside others their orders are added to the integer orders, or delta is split: race
      plus integer orders.

    The smallest epsilon wins, but for one thing: a pure statement is preferred to one that is less than a thousandth
    below it.

    >>> price([BoundedRange(steps=100, width=Fraction(1, 10))], delta=1e-6)
    Price(epsilon=2.25..., delta=1e-06, method='bounded range recursion')
    >>> price([Mixed(pure=Fraction(1), bad=Fraction(1, 10**7))], delta=1e-6)
    Price(epsilon=1.0, delta=1.00...e-07, method='pure')
    >>> price([Booked(Fraction(1), bad=Fraction(1, 1000))], delta=1e-6)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: delta must be above the bad mass 0.001 of the losses, got 1e-06; ...
    """
    losses = [part for loss in losses for part in (loss.parts if isinstance(loss, Mixed) else (loss,))]
    if delta != 0 or isinstance(delta, bool):
        check_probability(delta=delta)
    allowed = Fraction(delta)
    whole = one_entry(losses)
    found = []
    pure = _pure_statement(losses, whole, allowed)
    if pure is not None:
        found.append(pure)
    for method, convert in _ways(losses):
        epsilon = _least_epsilon(convert, whole, allowed)
        if epsilon is not None:
            found.append(Price(epsilon, float_up(allowed), method))
    if not found:
        if allowed == 0:
            raise ParameterError(f"delta must be above 0 unless every loss is pure, got {delta}")
        raise nothing_left(allowed, bad=whole.bad, distance=whole.distance)
    best = min(found, key=lambda statement: (statement.epsilon, statement.delta))
    # Of delta the pure statement takes at most what is allowed, and the others take all of it.
    if pure is not None and pure.epsilon <= best.epsilon * (1 + _AS_GOOD):
        return pure
    return best


def _pure_statement(losses: Sequence[Loss], whole: Booked, allowed: Fraction) -> Price | None:
    if not all(isinstance(loss, Pure | BoundedRange) or _is_empty(loss) for loss in losses):
        return None
    epsilon = _plain_sum(losses)
    slack = added_delta(whole.distance, epsilon)
    # A pure loss is asked for with delta 0; the distance of its noise is then told, not hidden.
    if slack is None or (allowed > 0 and whole.bad + slack > allowed) or (allowed == 0 and whole.bad > 0):
        return None
    return Price(float_up(epsilon), float_up(whole.bad + slack), "pure")


Convert = Callable[[Fraction], float | None]
"""From the delta that is left to an epsilon, rounded up; None where there is none."""


def _ways(losses: Sequence[Loss]) -> list[tuple[str, Convert]]:
    """The bounds that need a delta. Bad mass and distance are the caller's, for all of them alike (Lemma 1)."""
    pure = [loss for loss in losses if isinstance(loss, Pure) and loss.epsilon > 0]
    ranges = [loss for loss in losses if isinstance(loss, BoundedRange) and loss.epsilon > 0]
    races = [loss for loss in losses if isinstance(loss, Race) and loss.charges > 0]
    rest = [loss for loss in losses if not isinstance(loss, Pure | BoundedRange | Race) and not _is_empty(loss)]
    if races:
        return _race_ways(races, pure, ranges, rest)
    everything = [*pure, *ranges, *rest]
    # Plain plus the rest is basic composition, also when the two are interleaved: exchange the stream of the
    # rest first, M0(S) <= e^epsilon M'(S) + delta, then that of the plain part, M'(S) <= e^plain M1(S).
    ways = [("integer orders", _by_orders(Fraction(0), everything))]
    if pure and (ranges or rest):
        ways.append(("pure plus integer orders", _by_orders(_plain_sum(pure), [*ranges, *rest])))
    if ranges and rest:
        ways.append(("pure plus integer orders", _by_orders(_plain_sum([*pure, *ranges]), rest)))
    if ranges and not rest:
        ways += _range_ways(_plain_sum(pure), ranges)
    if not rest:
        ways += _optimal_ways(pure, ranges)
    return ways


def _race_ways(
    races: Sequence[Race], pure: Sequence[Pure], ranges: Sequence[BoundedRange], rest: Sequence[Loss]
) -> list[tuple[str, Convert]]:
    ways: list[tuple[str, Convert]] = []
    plain = _plain_sum([*pure, *ranges])
    if not rest:
        ways.append(("pure plus race" if plain else "race", lambda left: _add_up(plain, epsilon_of_races(races, left))))
    else:
        ways.append(("race plus integer orders", _race_apart(races, plain, rest)))
    ways.append(("integer orders", _by_orders(Fraction(0), [*pure, *ranges, *rest], races)))
    if pure:
        ways.append(("pure plus integer orders", _by_orders(_plain_sum(pure), [*ranges, *rest], races)))
    if ranges:
        ways.append(("pure plus integer orders", _by_orders(plain, rest, races)))
    return ways


def _race_apart(races: Sequence[Race], plain: Fraction, rest: Sequence[Loss]) -> Convert:
    """The races at a part of delta, and all others at the rest of it: the best of some splits.

    A race is a function of clocks drawn beforehand. If the clocks' laws satisfy (epsilon, d), all but a mass d of the
    one is below e^epsilon times the other; for each value of the clocks the others' promise holds with them as a part
    of their environment; so epsilons and deltas add up.
    """
    others = _by_orders(plain, rest)

    def convert(left: Fraction) -> float | None:
        found = []
        for share in range(1, _SPLITS):
            of_others = others(left * (_SPLITS - share) / _SPLITS)
            if of_others is not None:
                found.append(_add_up(epsilon_of_races(races, left * share / _SPLITS), of_others))
        return min(found, default=None)

    return convert


def _by_orders(plain: Fraction, losses: Sequence[Loss], races: Sequence[Race] = ()) -> Convert:
    rho = sum((_least_rho(loss) for loss in losses), Fraction(0))

    def convert(left: Fraction) -> float:
        return _add_up(plain, epsilon_beside(rho, races, left) if races else epsilon_from_rho(rho, left))

    return convert


def _range_ways(plain: Fraction, ranges: Sequence[BoundedRange]) -> list[tuple[str, Convert]]:
    each = [(loss.steps, loss.width) for loss in ranges]
    # A step is also one of any larger width, and then no order of the widths, adaptive or not, can matter.
    steps, width = sum(steps for steps, _ in each), max(width for _, width in each)

    def concentrated(left: Fraction) -> float:
        return _add_up(plain, epsilon_by_concentration(each, left))

    def recursive(left: Fraction) -> float:
        return _add_up(plain, epsilon_by_recursion(steps, width, left))

    ways: list[tuple[str, Convert]] = [("bounded range concentration", concentrated)]
    if steps <= _MOST_STEPS:
        name = "bounded range recursion"
        ways.append((f"pure plus {name}" if plain else name, recursive))
    return ways


def _optimal_ways(pure: Sequence[Pure], ranges: Sequence[BoundedRange]) -> list[tuple[str, Convert]]:
    amounts = Counter(loss.epsilon for loss in pure)
    for steps in ranges:
        amounts[steps.width] += steps.steps
    if not pure or amounts.total() > _MOST_LOSSES:
        return [("advanced composition", lambda left: advanced_epsilon(amounts, left))] if pure else []
    epsilons = list(amounts.elements())
    return [("optimal composition", lambda left: optimal_epsilon(epsilons, left))]


def _least_rho(loss: Loss) -> Fraction:
    return loss.steps * kappa(loss.width) if isinstance(loss, BoundedRange) else loss.as_booked().rho


def _plain_sum(losses: Sequence[Loss]) -> Fraction:
    return sum((loss.epsilon for loss in losses if isinstance(loss, Pure | BoundedRange)), Fraction(0))


def _is_empty(loss: Loss) -> bool:
    """Whether nothing but bad mass and distance is lost."""
    return loss.charges == 0 if isinstance(loss, Race) else loss.as_booked().rho == 0


def _add_up(plain: Fraction | float, converted: float) -> float:
    """The sum, exactly and rounded up once: where both are what a budget was split into, it is that budget."""
    if math.inf in (plain, converted):
        return math.inf
    return float_up(Fraction(plain) + Fraction(converted))


def one_entry(losses: Sequence[Loss]) -> Booked:
    """All in one entry, exactly; of races, which have no rho, the bad mass and the distance.

    docs/privacy.md, 'Composition and conversion': rho adds up, and all answers are good with probability at least
    prod(1 - bad_i). Total variation adds up when the drawn noises are replaced by the ideal ones, one loss at a time.
    """
    entries = [
        Booked(Fraction(0), loss.bad, loss.distance) if isinstance(loss, Race) else loss.as_booked() for loss in losses
    ]
    good = Fraction(
        math.prod(entry.bad.denominator - entry.bad.numerator for entry in entries),
        math.prod(entry.bad.denominator for entry in entries),
    )
    return Booked(
        rho=sum((entry.rho for entry in entries), Fraction(0)),
        bad=1 - good,
        distance=sum((entry.distance for entry in entries), Fraction(0)),
    )


def _least_epsilon(convert: Convert, whole: Booked, allowed: Fraction) -> float | None:
    """Solve convert(what epsilon leaves of delta) <= epsilon; None without a solution."""

    def needed(epsilon: float) -> float | None:
        left = remaining_delta(allowed, bad=whole.bad, distance=whole.distance, epsilon=epsilon)
        return None if left is None else convert(left)

    # `needed` rises with epsilon, since a larger epsilon leaves less delta. So the iteration climbs from
    # below to the least solution and never past it: what `Budget.rho` allows is not priced above the budget.
    # It takes two or three steps unless the distance is a large part of delta; a distance within about a
    # thousandth of the largest possible is refused. What is returned has passed needed(epsilon) <= epsilon,
    # and that makes the statement valid.
    epsilon = 0.0
    for _ in range(1000):
        more = needed(epsilon)
        if more is None:
            return None
        if more <= epsilon:
            return epsilon
        epsilon = more
    return None
