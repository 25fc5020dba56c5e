"""What a user gets who comes in several periods, where the promise is about one of them.

*Statistics that begin anew* lose D times as much in D periods: rho and bad mass add up, and so does pure epsilon, or
the rho that it is worth, whichever is less.

*Running totals* share their noise between periods, and lose more: D times a pure epsilon, whatever the delta, and of
Gaussian noise at most D^2 times rho, under every plan. A Haar plan has a sharper bound. A quadratic form is largest
where each period's units lie in one tick, and a block of 2^h ticks meets at most ceil((2^h - g) / w) + 1 periods of w
ticks, so that

    F_0(n) = 0,   F_h(n) = max over a + b = n of F_{h-1}(a) + F_{h-1}(b) + w_h (a - b)^2,   price = F_L(n) + w_0 n^2

with w_h = 1 / variance of level h. Blocks and periods that both begin with the run meet at whole multiples of g, the
greatest common divisor of 2^h and w; elsewhere g is 1. Labels that nobody listed appear too soon with a chance that
grows faster than D: `bad_of_periods`. Card U3 of the theory of units and windows.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pianissimo.errors import ParameterError
from pianissimo.loss.composition import one_entry, price
from pianissimo.loss.conversion import added_delta
from pianissimo.loss.losses import Loss, Mixed, Pure, Race, float_up
from pianissimo.noise import HaarPlan, HaarSkipPlan
from pianissimo.queries.shared.user_sketch import UserSketch
from pianissimo.users import EachPeriod, PeriodCap

TOLD_PERIODS = (2, 7, 30, 100, 365)
"""For how many periods a plan tells it."""

_SLACK = Fraction(10**9 + 1, 10**9)
"""Over what floating-point numbers may round."""


def of_many_periods(mechanisms: Iterable[Any], delta: Fraction, most: int) -> list[dict[str, Any]]:
    """For some numbers of periods, up to the most there are, the epsilon and delta of who comes in so many.

    The last row is without them where nothing is promised from so many periods on.
    """
    made = list(mechanisms)
    one = one_entry([_parts_together(mechanism.guarantee.loss) for mechanism in made])
    found: list[dict[str, Any]] = []
    for periods in (each for each in TOLD_PERIODS if each <= most):
        found.append({"periods": periods, "epsilon": None, "delta": None})
        try:
            losses = [loss for mechanism in made for loss in _of_periods(mechanism, periods)]
            more = sum((loss.bad for loss in losses if not isinstance(loss, Pure)), Fraction(0)) - one.bad
            distance = sum((loss.distance for loss in losses), Fraction(0))
            told = price([replace(loss, distance=Fraction(0)) for loss in losses], delta + more if delta else 0)
        except ParameterError:
            # Nothing is known, or it is beyond all use: no such delta, or so many charges have no price.
            break
        # What the noise is off its law comes on top, and not out of a delta that it would use up.
        slack = added_delta(distance, Fraction(told.epsilon)) if told.epsilon < math.inf else None
        if slack is None or not told.delta + slack < 1:
            break
        found[-1] |= {"epsilon": told.epsilon, "delta": float_up(Fraction(told.delta) + slack)}
    return found


def _parts_together(loss: Loss) -> Loss:
    return loss.as_booked() if isinstance(loss, Mixed) else loss


def _of_periods(mechanism: Any, periods: int) -> list[Loss]:
    loss: Loss = mechanism.guarantee.loss
    cap = getattr(mechanism, "cap", None)
    if isinstance(mechanism, EachPeriod) or not isinstance(cap, PeriodCap):
        return times(loss, periods)
    # Running totals under a cap for each period. The periods share their noise: pure losses are one that is as large
    # as their sum, and do not compose as those of independent noise do.
    if isinstance(loss, Pure):
        return [Pure(epsilon=loss.epsilon * periods, distance=loss.distance * periods)]
    if isinstance(mechanism, UserSketch):
        return [mechanism.lost_in(periods)]
    booked = loss.as_booked()
    if booked.bad and getattr(mechanism, "appearance", None) is None:
        raise ParameterError(
            "what labels of many periods of running totals cost must be known, got a mechanism without"
        )
    rho = sum((each.loss * _ratio(each, cap, periods) for each in mechanism.counters), Fraction(0))
    return [replace(booked, rho=rho, bad=_bad(mechanism, periods), distance=booked.distance * periods)]


def _ratio(counters: Any, cap: PeriodCap, periods: int) -> Fraction:
    plan = counters.plan(1, cap.units, 0)
    # Where ticks are skipped, a block of the tree has as many ticks at most, which begin anywhere.
    is_aligned = not isinstance(plan, HaarSkipPlan)
    plan = plan.tree if isinstance(plan, HaarSkipPlan) else plan
    # A value that moves makes a user's units negative too, which the recursion does not allow for.
    if not isinstance(plan, HaarPlan) or counters.sensitivity.moves:
        return Fraction(periods**2)
    return min(Fraction(periods**2), running_ratio(plan, cap.ticks, periods, is_aligned=is_aligned))


def times(loss: Loss, count: int) -> list[Loss]:
    """So many of one loss, of independent noise; pure ones one by one, as they compose better than their sum."""
    if isinstance(loss, Mixed):
        pure, rest = loss.parts
        return [*times(pure, count), *times(rest, count)]
    if isinstance(loss, Pure):
        return [loss] * count
    more: dict[str, Any] = {"bad": loss.bad * count, "distance": loss.distance * count}
    if isinstance(loss, Race):
        return [replace(loss, charges=loss.charges * count, **more)]
    booked = loss.as_booked()
    return [replace(booked, rho=booked.rho * count, **more)]


@lru_cache(256)
def running_ratio(plan: HaarPlan, ticks: int, periods: int, *, is_aligned: bool = True) -> Fraction:
    """How many times the rho of one period a user loses in running totals, at most, who comes in so many."""
    weights = [float(1 / noise.variance) for noise in plan.noises]
    prices = np.zeros(2)
    for level, weight in enumerate(weights[1:], 1):
        step = math.gcd(2**level, ticks) if is_aligned else 1
        most = min(periods, -(-(2**level - step) // ticks) + 1)
        prices = _joined(prices, weight, most)
    whole = prices + weights[0] * np.arange(len(prices)) ** 2.0
    return Fraction(float(whole.max() / sum(weights))) * _SLACK


def _joined(prices: NDArray[np.float64], weight: float, most: int) -> NDArray[np.float64]:
    """The largest prices of two blocks and the node above them, for up to `most` periods in both."""
    joined = np.full(most + 1, -np.inf)
    for left, own in enumerate(prices[: most + 1].tolist()):
        right = np.arange(min(len(prices), most + 1 - left))
        places = left + right
        joined[places] = np.maximum(joined[places], own + prices[right] + weight * (left - right) ** 2.0)
    return joined


def bad_of_periods(
    thresholds: NDArray[np.float64], variances: NDArray[np.float64], *, units: int, most_per_label: int, periods: int
) -> float:
    """The chance, at most, that running totals show a label too soon for who comes in so many periods.

    The sum over ticks of the largest (D m / n) exp(-a^2 / (2 V)), a = m_t - 1/2 - n where that is positive, over the n
    that she has on a label, up to D k. `thresholds` and `variances` are those of each tick, without what `min_count`
    adds; `units` is the cap of a period, m, and `most_per_label` how many units a label gets of a user in it, k. In n
    it falls, and where a^2 is large it rises again up to the larger root of n (m_t - 1/2 - n) = V: so it is largest at
    1, or there, or at the end.
    """
    reach = thresholds - 0.5
    root = (reach + np.sqrt(np.maximum(0, reach**2 - 4 * variances))) / 2
    found = np.zeros(len(reach))
    for numbers in (np.ones(len(reach)), np.floor(root), np.ceil(root)):
        each = np.clip(numbers, 1, periods * most_per_label)
        apart = np.maximum(0, reach - each)
        found = np.maximum(found, periods * units / each * np.exp(-(apart**2) / (2 * variances)))
    return float(found.sum())


def _bad(mechanism: Any, periods: int) -> Fraction:
    """The bad mass of labels that nobody listed, in running totals."""
    rule = getattr(mechanism, "appearance", None)
    if rule is None:
        return Fraction(0)
    cap = mechanism.cap.units
    most = min(cap, getattr(mechanism, "per_label", None) or cap)
    plan = mechanism.counters[0].plan(1, cap, 0)
    # A little too low, so that no threshold is above the one that is taken.
    scale = float(getattr(mechanism, "number_scale", 1))
    variances = plan.variance_profile() * scale * (1 - 1e-9)
    spread = np.array([rule.spread(Fraction(variance), cap, most) for variance in variances.tolist()])
    # Numbers that are made of sums are no whole ones, and have room for their rounding apart.
    thresholds = most + 0.5 + spread if scale != 1 else np.ceil(most + (0.5 if plan.shift else 0) + spread)
    return Fraction(bad_of_periods(thresholds, variances, units=cap, most_per_label=most, periods=periods)) * _SLACK
