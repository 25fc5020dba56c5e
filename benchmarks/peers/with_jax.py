"""jax-privacy: correlated noise of running sums for training; floating point, and no counts of events."""

import math
from importlib.metadata import version

from jax_privacy.matrix_factorization import toeplitz

from benchmarks.peers.work import DELTA, EPSILON

VERSION = version("jax-privacy")
PRIVACY = "one step of a series; noise in floating point"


def running(releases: int) -> float:
    """The root mean square error of its best Toeplitz noise, with the exact scale of one continuous Gaussian."""
    coefficients = toeplitz.optimal_max_error_strategy_coefs(releases)
    return math.sqrt(float(toeplitz.loss(coefficients))) * _gaussian_scale()


def _gaussian_scale() -> float:
    """The least sigma of a continuous Gaussian of sensitivity one at (epsilon, delta)."""

    def delta(sigma: float) -> float:
        shift = 1 / sigma
        above, below = shift / 2 - EPSILON / shift, -shift / 2 - EPSILON / shift
        return _normal(above) - math.exp(EPSILON) * _normal(below)

    low, high = 0.1, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if delta(middle) <= DELTA else (middle, high)
    return high


def _normal(value: float) -> float:
    return math.erfc(-value / math.sqrt(2)) / 2
