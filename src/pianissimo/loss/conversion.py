"""From zCDP at integer orders to (epsilon, delta) and back.

Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12
(arXiv 2004.00010v4): if the Renyi divergence of order a is at most a * rho, both ways, then (epsilon, delta)
holds with

```text
epsilon = a * rho + ln(1 - 1/a) + (ln(1/delta) - ln a) / (a - 1)
delta   = exp((a - 1)(a * rho - epsilon)) * (1 - 1/a)^a / (a - 1)
```

Only whole orders a >= 2 are used, because only there do the plans of `counting` keep a * rho against inputs
that adapt to the releases. The formula of the continuous Gaussian is not used: it understates the loss of
integer noise.

*Any* order gives a valid statement, so the search below decides how tight the answer is and never whether
it is true. In a, ln delta is convex (its second derivative is 2 rho + 1/(a - 1) - 1/a), so the orders where
epsilon(a) is at most some e, which are those where delta(a) at e is at most delta, form an interval:
epsilon(a) falls, then rises. The best whole order stands next to the sign change of the derivative, which
is found by bisection.
"""

import math
import sys
from collections.abc import Callable
from fractions import Fraction

from pianissimo.checks import Real, check_fraction, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import float_down, float_up, log_inverse

# Each term below is a handful of floating-point operations, so off by less than 1e-14 of its size. What is
# added against us is relative to the sizes of the terms, not to their sum, because they may cancel.
_MARGIN = 1e-9

# Past this no number of ours means privacy; below it nothing overflows.
_CEILING = Fraction(10**100)


def epsilon_from_rho(rho: Fraction, delta: Fraction | float) -> float:
    """Find the epsilon that rho-zCDP at integer orders gives at `delta`, rounded up.

    The privacy argument is Proposition 12 of Canonne, Kamath and Steinke 2020 at the best whole order. A
    loss of 0 costs nothing at any delta; one past 1e100 gives infinity.
    """
    check_fraction(rho=rho)
    check_probability(delta=delta)
    if rho == 0:
        return 0.0
    if rho > _CEILING:
        return math.inf
    loss, budget = float_up(rho), _log_inverse(delta)
    # A negative epsilon at this delta implies epsilon 0 at this delta.
    return max(0.0, min(_epsilon(a, loss, budget) for a in _orders_for_epsilon(loss, budget)))


def epsilon_from_curve(curve: Callable[[int], float], delta: Fraction | float, highest: int) -> float:
    """Find the epsilon at `delta` from a bound on the Renyi divergence of each whole order from 2 to `highest`.

    The same Proposition 12 as for zCDP, whose curve is the line rho * a; an order without a bound is infinite.
    """
    check_probability(delta=delta)
    budget = _log_inverse(delta)
    found = (curve(order) * (1 + _MARGIN) + _intercept(order, budget) for order in range(2, highest + 1))
    return max(0.0, min(found, default=math.inf))


def rho_from_budget(epsilon: Real, delta: Fraction | float) -> Fraction:
    """Find the largest rho, rounded down, whose zCDP at integer orders is within (epsilon, delta).

    The answer is checked before it is given: `epsilon_from_rho(rho, delta) <= epsilon` holds for it.
    """
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    target, budget = _float_below(epsilon), _log_inverse(delta)
    # Newton's method on epsilon(rho) - target. At a fixed order epsilon is linear in rho, so the minimum
    # over orders is concave and increasing, and each step lands at or below the root. The start solves
    # epsilon = rho + 2 sqrt(rho ln(1/delta)): Bun and Steinke 2016, Proposition 1.3.
    start = (target / (math.sqrt(budget + target) + math.sqrt(budget))) ** 2
    rho = max(start, sys.float_info.min)
    for _ in range(64):
        last = rho
        _, order = min((_epsilon(a, rho, budget), a) for a in _orders_for_epsilon(rho, budget))
        rho = max((target - _intercept(order, budget)) / _slope(order), sys.float_info.min)
        if rho == last:
            break
    # The promise rests on this check, not on the search above. It ends, because rho = 0 passes.
    step = sys.float_info.epsilon
    while epsilon_from_rho(Fraction(rho), delta) > epsilon:
        rho *= 1 - step
        step = min(2 * step, 0.5)
    return Fraction(rho)


def remaining_delta(delta: Fraction, *, bad: Fraction, distance: Fraction, epsilon: Real) -> Fraction | None:
    """Subtract from delta, rounding down, what the conversion cannot use; None if nothing remains.

    Bad mass (docs/privacy.md, 'Composition and conversion') adds `bad` to delta, with no factor. Noise at total
    variation `distance` from the noise of the proof adds (1 + e^epsilon) * distance: for output laws M0, M1 and ideal
    ones I0, I1, M0(S) <= I0(S) + distance <= e^epsilon I1(S) + d + distance <= e^epsilon (M1(S) + distance) + d +
    distance.
    """
    added = added_delta(distance, epsilon)
    if added is None:
        return None
    left = delta - bad - added
    return left if left > 0 else None


def added_delta(distance: Fraction, epsilon: Real) -> Fraction | None:
    """Work out (1 + e^epsilon) * distance, rounding up; None beyond what any delta could hold."""
    if distance == 0:
        return Fraction(0)
    if epsilon > 700:
        return None
    return distance * (1 + Fraction(math.exp(float_up(Fraction(epsilon))) * (1 + _MARGIN)))


def nothing_left(delta: Fraction, *, bad: Fraction, distance: Fraction) -> ParameterError:
    """Word the error for a delta that is used up before the noise is accounted for."""
    taken = f"the bad mass {float(bad):.3g} of the losses"
    if bad < delta:
        taken += f" plus (1 + e^epsilon) times their noise distance {float(distance):.3g}"
    return ParameterError(
        f"delta must be above {taken}, got {float(delta):.3g}; allow a larger delta, or make the losses take less"
    )


def _epsilon(order: int, rho: float, budget: float) -> float:
    """Evaluate epsilon at one order, rounded up; budget = ln(1/delta)."""
    return _slope(order) * rho + _intercept(order, budget)


def _slope(order: int) -> float:
    return order * (1 + _MARGIN)


def _intercept(order: int, budget: float) -> float:
    bonus, spent, earned = -math.log1p(-1 / order), budget / (order - 1), math.log(order) / (order - 1)
    return spent - earned - bonus + _MARGIN * (spent + earned + bonus)


def _orders_for_epsilon(rho: float, budget: float) -> range:
    # (a - 1)^2 times the derivative of epsilon(a) is rho (a - 1)^2 + ln a - ln(1/delta), which rises in a.
    def rises(order: int) -> bool:
        step = float(order - 1)
        return rho * step * step + math.log(order) >= budget

    return _around_first(rises, most=3 + int(math.sqrt(budget) / math.sqrt(rho)))


def _around_first(holds: Callable[[int], bool], *, most: int) -> range:
    """Bisect 2..most for the first order that holds, and give it with its neighbors."""
    low, high = 2, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    # The two at the sign change would do; one more on either side absorbs rounding in `holds`.
    return range(max(2, low - 2), low + 2)


def _log_inverse(delta: Fraction | float) -> float:
    """Evaluate ln(1/delta) at the floating-point number at or below delta."""
    below = float_down(Fraction(delta))
    return -math.log(below) if below > 0 else log_inverse(delta)


def _float_below(epsilon: Real) -> float:
    """Round epsilon down, and down to the ceiling: both promise more than was asked for."""
    return float_down(min(Fraction(epsilon), _CEILING))
