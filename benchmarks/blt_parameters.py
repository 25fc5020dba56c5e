"""Optimise the buffers of BLT counters: prints the table `LOG_GAPS` of `tests/counting/published_counters.py`.

Run with `python -m benchmarks.blt_parameters`; it takes a minute. The loss is the logarithm of the largest standard
deviation, from closed geometric sums.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

BUFFERS = (4, 6)
EXPONENTS = (8, 12, 16, 20, 24)
STARTS = 6


def log_std(log_gaps: NDArray[np.float64], horizon: int) -> float:
    """ln sqrt(sum of c_k^2 times sum of b_k^2), k below the horizon."""
    numbers = np.cumsum(np.exp(log_gaps))
    above, below = np.exp(-numbers[0::2]), np.exp(-numbers[1::2])
    size = len(above)
    column, row = np.empty(size), np.empty(size + 1)
    for place in range(size):
        others = np.arange(size) != place
        root = 1 - below[place]
        column[place] = np.prod((above - below[place]) / root) / np.prod((below[others] - below[place]) / root)
        root = 1 - above[place]
        row[place] = np.prod((below - above[place]) / root) / np.prod((above[others] - above[place]) / root)
        row[place] /= 1 - 1 / root
    row[-1] = np.prod(below / above)
    squares = 1 + square_sum(column, np.log1p(-below), 1, horizon)
    squares *= square_sum(row, np.append(np.log1p(-above), -1e-300), 0, horizon)
    return 0.5 * math.log(squares) if squares > 0 and math.isfinite(squares) else 1e3


def square_sum(factors: NDArray[np.float64], logs: NDArray[np.float64], start: int, end: int) -> float:
    """The sum over k from start to end - 1 of the square of sum_i factors_i e^(k logs_i)."""
    rates = logs[:, None] + logs
    sums = (np.exp(start * rates) - np.exp(end * rates)) / -np.expm1(rates)
    sums[rates > -1e-200] = end - start
    return float(factors @ sums @ factors)


def optimised(buffers: int, horizon: int) -> NDArray[np.float64]:
    random = np.random.default_rng(1)
    best, least = np.zeros(2 * buffers), math.inf
    for _ in range(STARTS):
        gaps = math.log(math.log(horizon) / (2 * buffers)) + random.normal(0, 0.25, 2 * buffers)
        for method in ("BFGS", "Nelder-Mead", "BFGS"):
            options = {"adaptive": True, "maxiter": 20000, "maxfev": 40000, "xatol": 1e-7, "fatol": 1e-13}
            found = minimize(
                log_std, gaps, args=(horizon,), method=method, options=options if method == "Nelder-Mead" else {}
            )
            gaps = found.x
        if found.fun < least:
            best, least = gaps, found.fun
    return best


def main() -> None:
    for buffers in BUFFERS:
        for exponent in EXPONENTS:
            gaps = optimised(buffers, 2**exponent)
            print(buffers, exponent, f"{math.exp(log_std(gaps, 2**exponent)):.4f}", np.round(gaps, 4).tolist())


if __name__ == "__main__":
    main()
