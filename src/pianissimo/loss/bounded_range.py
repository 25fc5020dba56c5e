"""What adaptive selection steps of bounded range lose at a given delta, from the simplest bound to the exact one.

A step has range w if its log-likelihood ratio stays in an interval of length w. For k adaptive steps:

- Durfee and Rogers, "Practical differentially private top-k selection with pay-what-you-get composition", NeurIPS
  2019, Lemma 4.4;
- Dong, Durfee and Rogers, "Optimal differential privacy composition for exponential mechanisms", ICML 2020, whose
  mean loss per step is kappa(w) = q - 1 - ln q with q = w / (1 - e^-w);
- zCDP with rho = w^2 / 8 a step (`BoundedRange.as_booked`), or kappa(w), converted at integer orders: the one to use
  by default. The bound holds at all orders, so that whole ones are a choice of tightness only;
- the recursion over the steps, which is attained by some adaptive mechanism. Dong, Durfee and Rogers also give an
  optimum for steps fixed beforehand. It is smaller and does *not* hold here: a peeling step depends on the labels
  peeled before.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_fraction, check_probability
from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.loss.losses import float_down, float_up, log_inverse

# Far above what the floating-point operations of one evaluation can be off by, relative to the size of their terms.
_MARGIN = 1e-9

# What underflow can take away from a sum of probabilities.
_UNDERFLOW = 1e-300

# Narrower steps are taken to be as wide: the cells of the recursion's grid would be below what a float can tell apart.
_NARROWEST = 1e-290

# Wider ones are bounded by their sum alone: e to the width of a cell would be beyond the range of a float.
_WIDEST = 10_000.0


def kappa(width: Fraction) -> Fraction:
    """Bound, rounding up, the zCDP of one step: q - 1 - ln q with q = width / (1 - e^-width).

    It is the largest mean of the log-likelihood ratio (Dong, Durfee and Rogers 2020), and the divergence of order a is
    at most a times it. Below width^2 / 8, by 1.4 percent at width 1 and by a third at width 6.
    """
    _check_steps(1, width)
    simple = width**2 / 8
    w = float_up(width)
    # Below a tenth the difference is under 0.02 percent and the formula would cancel.
    if w < 0.1 or not math.isfinite(w):
        return simple
    q = w / -math.expm1(-w)
    return min(simple, Fraction(q - 1 - math.log(q) + _MARGIN * (q - 1 - math.log(q))))


def epsilon_by_concentration(widths: Iterable[tuple[int, Fraction]], delta: Fraction | float) -> float:
    """Find the epsilon of adaptive steps, given as (steps, width), from their mean and Hoeffding's tail, rounded up.

    The sum of kappa(w) plus sqrt(sum of w^2 * ln(1/delta) / 2), or the sum of w if that is less: Dong, Durfee and
    Rogers 2020; the tail is that of a martingale, so that steps may adapt.
    """
    check_probability(delta=delta)
    mean, square, plain = Fraction(0), Fraction(0), Fraction(0)
    for steps, width in widths:
        _check_steps(steps, width)
        mean += steps * kappa(width)
        square += steps * width**2
        plain += steps * width
    tail = math.sqrt(float_up(square)) * math.sqrt(log_inverse(delta) * (1 + _MARGIN) / 2)
    return min(float_up(plain), (float_up(mean) + tail) * (1 + _MARGIN))


def epsilon_by_recursion(steps: int, width: Fraction, delta: Fraction | float) -> float:
    """Find the least epsilon at which the recursion, rounded against us, gives at most `delta`: see `delta_curve`.

    It takes about a tenth of a second for 100 steps and a few tenths for 1000.
    """
    _check_steps(steps, width)
    check_probability(delta=delta)
    plain = float_up(steps * width)
    below = float_down(Fraction(delta))
    if plain == 0 or below <= _UNDERFLOW or float_up(width) > _WIDEST:
        return plain
    w = max(float_up(width), _NARROWEST)
    # The answer is at most what the orders give. Two deviations beyond it, what is cut off is far below delta; the
    # power of two lets nearby deltas share one curve.
    power = Fraction(2) ** math.frexp(below)[1] / 2
    by_orders = epsilon_from_rho(steps * width**2 / 8, min(power, Fraction(1, 2)))
    if by_orders == 0:
        return 0.0
    points, deltas = delta_curve(steps, w, min(steps * w, by_orders + math.sqrt(steps) * w))
    points, deltas = points[len(points) // 2 :], deltas[len(deltas) // 2 :]
    enough = np.flatnonzero(deltas <= below)
    if len(enough) == 0:
        return plain
    place = int(enough[0])
    if place == 0:
        return 0.0
    # Where the chord in e^g over the cell meets delta; the true curve lies below it.
    left, right = float(deltas[place - 1]), float(deltas[place])
    share = (left - below) / (left - right)
    spacing = float(points[place] - points[place - 1])
    found = float(points[place - 1]) + math.log1p(share * math.expm1(spacing))
    return min(plain, found * (1 + _MARGIN), math.nextafter(float(points[place]), math.inf))


@lru_cache(maxsize=64)
def delta_curve(steps: int, width: float, reach: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Over-estimate d_steps at the multiples of width / cells in about [-reach, reach]; zero stands in the middle.

    Let d_j(g) be the largest delta of j steps at epsilon g, over all adaptive mechanisms. A next step puts the ratio
    P/Q at e^L with L in some [t - w, t]; what it adds is E_Q[x d(g - ln x)] at x = P/Q, convex in x, hence largest when
    the ratio takes the two end values alone:

    ```text
    d_0(g) = max(0, 1 - e^g)
    d_j(g) = max over 0 <= t <= w of  u d_(j-1)(g - t) + (1 - u) d_(j-1)(g - t + w),   u = (1 - e^(t-w)) / (1 - e^-w)
    ```

    On the grid each d_j is over-estimated: between its points by the chord in e^g, of which the true d_j is a convex
    function, and between values of t by the most that the resulting c0 + c1 e^t + c2 e^-t can rise above the chord.
    The error is of second order in the spacing: for many steps delta is some tenths of a percent too large.
    """
    cells = 128 if steps <= 128 else 64 if steps <= 512 else 32
    h = width / cells
    half = cells * math.ceil(reach / width)
    points = h * np.arange(-half, half + 1, dtype=np.float64)
    ratio_less_1 = math.expm1(h)
    alpha = -1 / math.expm1(-width)
    # P-probability of the upper end value, at t = 0, h, ..., width.
    upper = [-math.expm1(-(width - c * h)) * alpha for c in range(cells)] + [0.0]
    # The cells below the window: convex in e^g with limit 1 at 0, so below the chord from (0, 1) to the first point.
    fall = np.exp(h * np.arange(-cells, 0))
    deltas = np.maximum(0.0, -np.expm1(np.minimum(points, 0.0)))
    term = np.empty_like(deltas)
    size = len(deltas)
    for _ in range(steps):
        # Index i of `wide` is the point with index i - cells; above the window the last value, as d falls.
        wide = np.concatenate([1 - (1 - deltas[0]) * fall, deltas, np.full(cells, deltas[-1])])
        slope = np.diff(wide) / ratio_less_1
        # Within a cell, in z = e^(t - its start), what is maximized is c0 + c1 z + c2 / z. Where c2 < 0 it is concave
        # with second derivative at most 2 |c2|, so at most |c2| (e^h - 1)^2 / 4 above its chord.
        c2 = (1 + ratio_less_1) * (alpha * slope[:-cells] + (1 - alpha) * slope[cells:])
        rise = np.maximum(0.0, -c2) * (ratio_less_1 * ratio_less_1 / 4)
        rise = np.maximum(np.append(rise, 0.0), np.insert(rise, 0, 0.0))
        difference = wide[:-cells] - wide[cells:]
        base = wide[cells:] + rise
        best = np.zeros(size)
        for c, chance in enumerate(upper):
            start = cells - c
            np.multiply(difference[start : start + size], chance, out=term)
            term += base[start : start + size]
            np.maximum(best, term, out=best)
        deltas = np.minimum(best, 1.0)
    deltas = np.asarray(deltas * (1 + _MARGIN) + _UNDERFLOW, dtype=np.float64)
    if reach >= steps * width:
        deltas[points >= steps * width] = 0.0
    deltas.setflags(write=False)
    points.setflags(write=False)
    return points, deltas


def _check_steps(steps: int, width: Fraction) -> None:
    check_at_least(0, steps=steps)
    check_fraction(width=width)
