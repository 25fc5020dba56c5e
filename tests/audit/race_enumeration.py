"""Race monitors by exact finite computation: what tests tell about a user, against what her clocks can tell at most.

A test in which the user is active says TOP with chance 1 - e^-rate without her and 1 - e^-(lam rate) with her, lam =
e^(1 / scale); after so many TOPs she is inactive and further tests tell nothing. Many tests of tiny rates read her
clocks to the end and reach the bound of `race_clock`; no choice of rates in view of the answers goes beyond it.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_positive

Floats = NDArray[np.float64]


def delta_of_equal_tests(
    epsilon: float, charges: int, scale: float, *, tests: int, rate: float, allowed: int | None = None
) -> tuple[float, float]:
    """Find both directions of the hockey stick, without her against with her first, for equal tests.

    `charges` is how many TOPs she may be charged for; `allowed`, for mutants, after how many she really is inactive.

    >>> from pianissimo.loss.race_clock import hockey_sticks
    >>> slow, _ = delta_of_equal_tests(1.0, 4, 15.0, tests=2000, rate=0.02)
    >>> round(slow / hockey_sticks(1.0, 4, 15.0)[0], 3)
    1.0
    """
    check_at_least(1, charges=charges, tests=tests)
    check_positive(epsilon=epsilon, scale=scale, rate=rate)
    most = charges if allowed is None else allowed
    fast_rate = rate * math.exp(1 / scale)
    # Few TOPs after all tests, or the last allowed TOP at some test.
    few = np.arange(min(most, tests + 1))
    ends = np.arange(most, tests + 1)
    tops = np.concatenate([few, np.full(len(ends), most)])
    bottoms = np.concatenate([tests - few, ends - most])
    choices = np.concatenate([_log_choices(tests, few), _log_choices(ends - 1, np.full(len(ends), most - 1))])
    slow, fast = (choices + tops * math.log(-math.expm1(-each)) - bottoms * each for each in (rate, fast_rate))
    return _stick(slow, fast, epsilon), _stick(fast, slow, epsilon)


def delta_of_best_adversary(
    epsilon: float, charges: int, scale: float, *, tests: int, rates: Sequence[float], points: int = 20_000
) -> tuple[float, float]:
    """Find, for each direction, what an adversary reaches at most who chooses each rate in view of all answers.

    Backward over the tests: the value is a convex function of the likelihood ratio r between the other world and the
    one that answers, (1 - e^epsilon r)+ at the end. It is kept at some points and joined by straight lines, which lie
    above it; so what comes out is an upper bound for these rates.

    >>> from pianissimo.loss.race_clock import hockey_sticks
    >>> best = delta_of_best_adversary(0.5, 2, 2.0, tests=20, rates=[0.1, 0.8])
    >>> all(0 < found < bound for found, bound in zip(best, hockey_sticks(0.5, 2, 2.0)))
    True
    """
    check_at_least(1, charges=charges, tests=tests, points=points)
    check_positive(epsilon=epsilon, scale=scale)
    ratio = math.exp(1 / scale)
    reach = epsilon + 3 * charges / scale + 3
    grid = np.concatenate([[0.0], np.exp(np.linspace(-3 * reach, reach, points))])
    found = []
    for direction in (0, 1):
        steps = []
        for rate in rates:
            worlds = (rate, rate * ratio) if direction == 0 else (rate * ratio, rate)
            here, there = (-math.expm1(-each) for each in worlds)
            steps.append((here, there / here, math.exp(worlds[0] - worlds[1])))
        end = np.maximum(0.0, 1 - math.exp(epsilon) * grid)
        values = [end] * (charges + 1)
        for _ in range(tests):
            values = [end] + [_best(steps, grid, values[left], values[left - 1]) for left in range(1, charges + 1)]
        found.append(float(np.interp(1.0, grid, values[charges])))
    return found[0], found[1]


def _best(steps: Sequence[tuple[float, float, float]], grid: Floats, same: Floats, fewer: Floats) -> Floats:
    best = same  # to ask nothing is allowed too
    for top, on_top, on_bottom in steps:
        asked = top * np.interp(grid * on_top, grid, fewer) + (1 - top) * np.interp(grid * on_bottom, grid, same)
        best = np.maximum(best, asked)
    return best


def _stick(one: Floats, other: Floats, epsilon: float) -> float:
    return float(np.maximum(0.0, np.exp(one) - np.exp(epsilon + other)).sum())


def _log_choices(total: int | NDArray[np.int64], chosen: NDArray[np.int64]) -> Floats:
    totals = np.broadcast_to(total, chosen.shape)
    return np.array(
        [
            math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
            for n, k in zip(totals.tolist(), chosen.tolist(), strict=True)
        ]
    )
