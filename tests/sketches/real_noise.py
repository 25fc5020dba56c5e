"""The Gaussian of real numbers, in logarithms, which the noise on whole numbers is compared with."""

import math

_LOG_ROOT_TAU = math.log(2 * math.pi) / 2
_FAR = 8.0


def mills_ratio(y: float) -> float:
    """P[Z >= y] over the density at y, of a standard normal Z; without cancellation for any y above -37."""
    if y < _FAR:
        return math.sqrt(math.pi / 2) * math.exp(y * y / 2) * math.erfc(y / math.sqrt(2))
    # The continued fraction 1 / (y + 1 / (y + 2 / (y + ...))), from its far end.
    value = y
    for term in range(60, 0, -1):
        value = y + term / value
    return 1 / value


def log_tail(y: float) -> float:
    """ln P[Z >= y] of a standard normal Z, also where the chance is too small for a floating-point number."""
    return (
        math.log(math.erfc(y / math.sqrt(2)) / 2) if y < _FAR else -y * y / 2 - _LOG_ROOT_TAU + math.log(mills_ratio(y))
    )


def log_shift_divergence(sigma: float, coordinates: int, epsilon: float) -> float:
    """ln of the hockey-stick divergence at e^epsilon of a shift by one in so many coordinates."""
    mu = math.sqrt(coordinates) / sigma
    x = mu / 2 - epsilon / mu
    if x > 5:
        # Phi(x) - e^epsilon Phi(x - mu), whose second term is the smaller one by far or leaves much.
        return log_tail(-x) + math.log(-math.expm1(epsilon + log_tail(mu - x) - log_tail(-x)))
    return -x * x / 2 - _LOG_ROOT_TAU + math.log(mills_ratio(-x) - mills_ratio(mu - x))
