"""From epsilon to delta, by bounds that the library asks for the other way round."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from pianissimo.checks import Real, check_fraction
from pianissimo.errors import ParameterError
from pianissimo.loss.bounded_range import _MARGIN, _NARROWEST, _WIDEST, _check_steps, delta_curve
from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.loss.exact_composition import delta_at, loss_law
from pianissimo.loss.losses import float_down, float_up


def epsilon_by_orders(steps: int, width: Fraction, delta: Fraction | float) -> float:
    """Find the epsilon of `steps` adaptive steps from rho = width^2 / 8 a step, at integer orders, rounded up."""
    _check_steps(steps, width)
    return epsilon_from_rho(steps * width**2 / 8, delta)


def delta_by_recursion(steps: int, width: Fraction, epsilon: Real) -> float:
    """Find the delta of `steps` adaptive steps at `epsilon` by the recursion, rounded up: `delta_curve`."""
    _check_steps(steps, width)
    if not epsilon >= 0:
        raise ParameterError(f"epsilon must not be negative, got {epsilon}")
    if steps == 0 or width == 0 or Fraction(epsilon) >= steps * width:
        return 0.0
    at = float_down(Fraction(epsilon))
    w = max(float_up(width), _NARROWEST)
    if w > _WIDEST:
        return 1.0
    points, deltas = delta_curve(steps, w, steps * w if steps <= 100 else min(steps * w, at + 7 * math.sqrt(steps) * w))
    place = int(np.searchsorted(points, at, side="right")) - 1
    if place >= len(points) - 1:
        return float(deltas[-1])
    left, right = float(deltas[place]), float(deltas[place + 1])
    share = math.expm1(at - float(points[place])) / math.expm1(float(points[place + 1] - points[place]))
    return min(1.0, max(left + (right - left) * share, right) * (1 + _MARGIN))


def optimal_delta(epsilons: Sequence[Fraction], epsilon: Real) -> float:
    """Find the delta of adaptive pure losses at `epsilon`, rounded up."""
    check_fraction(**{"every epsilon": min(epsilons, default=Fraction(0))})
    if not epsilon >= 0:
        raise ParameterError(f"epsilon must not be negative, got {epsilon}")
    if Fraction(epsilon) >= sum(epsilons, Fraction(0)):
        return 0.0
    return delta_at(*loss_law(tuple(epsilons)), float_down(Fraction(epsilon)))
