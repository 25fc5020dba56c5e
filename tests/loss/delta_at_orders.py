"""The delta of zCDP at whole orders: Proposition 12 of Canonne, Kamath and Steinke 2020, as in `loss.conversion`."""

import math
from fractions import Fraction

from pianissimo.checks import Real, check_fraction, check_positive
from pianissimo.loss.conversion import _CEILING, _MARGIN, _around_first, _float_below
from pianissimo.loss.losses import float_up

_HIGHEST_ORDER_FOR_DELTA = 2**60


def delta_from_rho(rho: Fraction, epsilon: Real) -> float:
    """Find the delta that rho-zCDP at integer orders gives at `epsilon`, rounded up and at most 1.

    Only a loss of 0 gives 0; what is too small for a floating-point number becomes the smallest one.
    """
    check_fraction(rho=rho)
    if epsilon != 0 or isinstance(epsilon, bool):
        check_positive(epsilon=epsilon)
    if rho == 0:
        return 0.0
    if rho > _CEILING:
        return 1.0
    loss, target = float_up(rho), _float_below(epsilon)
    log_delta = min(_log_delta(a, loss, target) for a in _orders_for_delta(loss, target))
    return 1.0 if log_delta >= 0 else min(1.0, max(math.exp(log_delta) * (1 + _MARGIN), math.ulp(0.0)))


def _log_delta(order: int, rho: float, epsilon: float) -> float:
    """Evaluate ln delta at one order, rounded up: (1 - 1/a)^a / (a - 1) is (1 - 1/a)^(a - 1) / a."""
    gained = (order - 1) * (order * rho)
    lost = (order - 1) * (epsilon - math.log1p(-1 / order)) + math.log(order)
    return gained - lost + _MARGIN * (gained + lost)


def _orders_for_delta(rho: float, epsilon: float) -> range:
    # The derivative of ln delta(a) is (2a - 1) rho - epsilon + ln(1 - 1/a), which rises in a.
    def rises(order: int) -> bool:
        return (2 * order - 1) * rho + math.log1p(-1 / order) >= epsilon

    return _around_first(rises, most=int(min(3 + (epsilon + 1) / rho, _HIGHEST_ORDER_FOR_DELTA)))
