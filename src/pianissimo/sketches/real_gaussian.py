"""The sparse histogram with real-valued Gaussian noise: its exact divergence and calibration, in logarithms.

Nothing is released with it; it is what whole-number noise is compared with, and where the search for that begins.
Wilkins, Kifer, Zhang and Karrer, "Exact privacy analysis of the Gaussian sparse histogram mechanism", 2023.
"""

import math
from statistics import NormalDist

_LOG_ROOT_TAU = math.log(2 * math.pi) / 2
_FAR = 8.0


def mills_ratio(y: float) -> float:
    """P[Z >= y] over the density at y, of a standard normal Z; without cancellation for any y above -37.

    >>> round(mills_ratio(0.0), 6), round(mills_ratio(1e6) * 1e6, 6)
    (1.253314, 1.0)
    """
    if y < _FAR:
        return math.sqrt(math.pi / 2) * math.exp(y * y / 2) * math.erfc(y / math.sqrt(2))
    # The continued fraction 1 / (y + 1 / (y + 2 / (y + ...))), from its far end.
    value = y
    for term in range(60, 0, -1):
        value = y + term / value
    return 1 / value


def log_tail(y: float) -> float:
    """ln P[Z >= y] of a standard normal Z, also where the chance is too small for a floating-point number.

    >>> round(log_tail(0.0), 6), round(log_tail(100.0), 3)
    (-0.693147, -5005.524)
    """
    return (
        math.log(math.erfc(y / math.sqrt(2)) / 2) if y < _FAR else -y * y / 2 - _LOG_ROOT_TAU + math.log(mills_ratio(y))
    )


def log_shift_divergence(sigma: float, coordinates: int, epsilon: float) -> float:
    """ln of the hockey-stick divergence at e^epsilon of a shift by one in so many coordinates.

    >>> round(math.exp(log_shift_divergence(4.2247, 1, 1.0)) * 1e6, 3)
    1.0
    """
    mu = math.sqrt(coordinates) / sigma
    x = mu / 2 - epsilon / mu
    if x > 5:
        # Phi(x) - e^epsilon Phi(x - mu), whose second term is the smaller one by far or leaves much.
        return log_tail(-x) + math.log(-math.expm1(epsilon + log_tail(mu - x) - log_tail(-x)))
    return -x * x / 2 - _LOG_ROOT_TAU + math.log(mills_ratio(-x) - mills_ratio(mu - x))


def least_sigma(epsilon: float, delta: float, coordinates: int = 1) -> float:
    """The least sigma whose divergence for a shift in all coordinates is at most delta.

    >>> round(least_sigma(1.0, 1e-6), 4), round(least_sigma(1.0, 1e-6, 100), 3)
    (4.2247, 42.247)
    """
    log_delta = math.log(delta)
    low, high = -30.0, 30.0
    for _ in range(100):
        middle = (low + high) / 2
        enough = log_shift_divergence(math.exp(middle), 1, epsilon) <= log_delta
        low, high = (low, middle) if enough else (middle, high)
    # A shift by one in j coordinates is one of length sqrt(j).
    return math.exp(high) * math.sqrt(coordinates)


def least_tau(sigma: float, delta: float, coordinates: int) -> float:
    """The least tau that lets one of so many noises reach it with a chance of at most delta.

    >>> round(least_tau(4.2247, 1e-6, 1), 2)
    20.08
    """
    share = -math.expm1(math.log1p(-delta) / coordinates)
    return -sigma * NormalDist().inv_cdf(share)


def log_worst_delta(sigma: float, tau: float, epsilon: float, coordinates: int) -> float:
    """ln of the delta of the sparse histogram: the largest over how many of the differing keys are shared.

    >>> log_worst_delta(4.2248, 20.09, 1.0, 1) <= math.log(1e-6)
    True
    """
    log_hidden = math.log1p(-math.exp(log_tail(tau / sigma)))
    worst = -math.inf
    for shared in range(coordinates + 1):
        log_a = (coordinates - shared) * log_hidden
        if shared == 0:
            # No shared key moves: all is in the chance that a key of one side shows.
            worst = max(worst, math.log(-math.expm1(log_a)))
            continue
        moved = math.exp(log_a + log_shift_divergence(sigma, shared, epsilon - log_a))
        worst = max(worst, math.log(moved - math.expm1(log_a)), log_shift_divergence(sigma, shared, epsilon + log_a))
    return worst
