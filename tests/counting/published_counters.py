"""The errors of published counters that are not run here, as those of `pianissimo.counting.compare`: at unit loss.

Refined binary tree: Honaker 2015. Smooth binary: Andersson and Pagh 2023. k-ary subtraction: Andersson, Pagh, Steiner
and Torkamani 2024. Normalised square root: Henzinger and Upadhyay 2024. BLT: Dvijotham et al. 2024.
"""

import math
from collections.abc import Iterator
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.counting.compare import (
    Reference,
    from_profile,
    lower_bound,
    optimum,
    root_coefficients,
    square_root,
)

LONGEST_NORMALISED = 4096
"""The normalised square root takes T^2 steps to evaluate."""

_LEVEL_VARIANCE = 2.0
"""Of a Laplace variable of scale one."""

_FIRST_STORED, _STORED_STEP = 8, 4
LOG_GAPS = {
    4: (
        (-1.8583, -0.8538, -0.4999, -0.3431, -0.2616, -0.1795, -0.0085, 0.3968),
        (-1.1598, -0.2354, 0.0205, 0.1019, 0.1291, 0.1521, 0.2167, 0.4841),
        (-0.6730, 0.1677, 0.3461, 0.3869, 0.3959, 0.4019, 0.4145, 0.5804),
        (-0.3223, 0.4420, 0.5666, 0.5874, 0.5907, 0.5926, 0.5894, 0.6994),
        (-0.0427, 0.6516, 0.7380, 0.7486, 0.7498, 0.7506, 0.7466, 0.8258),
    ),
    6: (
        (-2.6954, -1.6398, -1.2076, -0.9741, -0.8380, -0.7535, -0.6928, -0.6317, -0.5433, -0.3935, -0.1313, 0.3530),
        (-1.9461, -0.9346, -0.5712, -0.4087, -0.3334, -0.2981, -0.2808, -0.2687, -0.2494, -0.1902, -0.0211, 0.3914),
        (-1.4344, -0.4735, -0.1764, -0.0680, -0.0278, -0.0129, -0.0074, -0.0043, 0.0006, 0.0270, 0.1249, 0.4468),
        (-1.0334, -0.1283, 0.1078, 0.1771, 0.1975, 0.2035, 0.2052, 0.2060, 0.2068, 0.2177, 0.2647, 0.5047),
        (-0.7150, 0.1339, 0.3191, 0.3627, 0.3730, 0.3753, 0.3759, 0.3761, 0.3760, 0.3804, 0.3958, 0.5697),
    ),
}
"""Optimised for T = 2^8, 2^12, .., 2^24 by `benchmarks/blt_parameters.py`: ln of the gaps between the numbers
-ln(1 - theta) of numerator and denominator in turn."""


def references(horizon: int, *, pure: bool) -> Iterator[Reference]:
    """All counters of this file at this horizon, the optimum first."""
    yield lower_bound(horizon) if pure else optimum(horizon)
    yield refined_binary(horizon, pure=pure)
    yield smooth_binary(horizon, pure=pure)
    yield unbalanced_smooth_binary(horizon, pure=pure)
    yield subtraction(horizon, pure=pure)
    yield least_squares_binary(horizon, pure=pure)
    yield square_root(horizon, pure=pure)
    if not pure:
        yield from (blt(horizon, buffers) for buffers in LOG_GAPS)
        if horizon <= LONGEST_NORMALISED:
            yield normalised_square_root(horizon)


def trace_bound(horizon: int) -> float:
    """The sum of the singular values of M over T: below both optima at every horizon, with a proof and no computing."""
    check_at_least(1, horizon=horizon)
    angles = (2 * np.arange(1, horizon + 1) - 1) * (math.pi / (4 * horizon + 2))
    return float((0.5 / np.sin(angles)).mean())


def refined_binary(horizon: int, *, pure: bool) -> Reference:
    """The binary tree whose finished nodes are averaged with what their children say (Honaker's, from below)."""
    ticks = np.arange(1, horizon + 1)
    levels = horizon.bit_length()
    profile, variance = np.zeros(horizon), 1.0
    for level in range(levels):
        profile += variance * (ticks >> level & 1)
        variance = 2 * variance / (2 * variance + 1)
    return from_profile("binary tree, refined", profile * _node_variance(levels, pure=pure))


def smooth_binary(horizon: int, *, pure: bool) -> Reference:
    """The binary tree of height h of which only the leaves with h / 2 ones are used: the same error at every tick."""
    check_at_least(1, horizon=horizon)
    height = 2
    while math.comb(height, height // 2) <= horizon:
        height += 2
    std = math.sqrt(height // 2 * _node_variance(height // 2, pure=pure))
    return Reference(name="smooth binary", max_std=std, rms_std=std, detail=f"height {height}")


def unbalanced_smooth_binary(horizon: int, *, pure: bool) -> Reference:
    """The same with a ones and b zeros in the leaves that are used, at the best a and b."""
    check_at_least(1, horizon=horizon)
    best, ones, zeros = math.inf, 0, 0
    for some in range(1, 2 * horizon.bit_length() + 1):
        others = 1
        while math.comb(some + others, some) <= horizon:
            others += 1
        # The sensitivity is that of b levels, a nodes are added; each of the two numbers may take either part.
        for added, moved in ((some, others), (others, some)):
            variance = added * _node_variance(moved, pure=pure)
            if variance < best:
                best, ones, zeros = variance, added, moved
    std = math.sqrt(best)
    return Reference(
        name="smooth binary, unbalanced",
        max_std=std,
        rms_std=std,
        detail=f"{ones} ones and {zeros} zeros",
    )


def subtraction(horizon: int, *, pure: bool) -> Reference:
    """The k-ary tree whose nodes are added or subtracted, k odd, tuned apart for the largest and the typical error."""
    check_at_least(1, horizon=horizon)
    least_largest = least_typical = math.inf
    arity = typical_arity = 0
    # A single level, k = 2 T + 1, comes first: the rule for stopping knows of two levels or more.
    for k in chain([2 * horizon + 1], range(3, 2 * horizon + 1, 2)):
        levels = _subtraction_levels(horizon, k)
        price = _node_variance(levels, pure=pure)
        digits = largest_balanced_digits(horizon, k)
        largest, typical = price * digits, price * _mean_balanced_digits(horizon, k)
        if largest < least_largest:
            least_largest, arity = largest, k
        if typical < least_typical:
            least_typical, typical_arity = typical, k
        # The lowest digit alone is on average above k / 8, and at its largest (k - 1) / 2.
        if levels > 1 and (k - 1) / 8 * _node_variance(2, pure=pure) > max(least_largest, least_typical):
            break
    return Reference(
        name="k-ary subtraction",
        max_std=math.sqrt(least_largest),
        rms_std=math.sqrt(least_typical),
        detail=f"k = {arity}, typical {typical_arity}",
    )


def _subtraction_levels(horizon: int, k: int) -> int:
    levels = 1
    while (k**levels - 1) // 2 < horizon:
        levels += 1
    return levels


def largest_balanced_digits(horizon: int, k: int) -> int:
    """The largest total size of the digits -(k - 1)/2 .. (k - 1)/2 of a number among 0 .. horizon."""
    half = (k - 1) // 2

    @cache
    def largest(end: int) -> int:
        if end <= half:
            return end
        added = max(digit + largest((end - digit) // k) for digit in range(half + 1))
        # A subtracted digit needs a number above it; if that could be 0 only, the digit was counted as an added one.
        return max([added, *(digit + largest((end + digit) // k) for digit in range(1, half + 1) if end + digit >= k)])

    return largest(horizon)


def _mean_balanced_digits(horizon: int, k: int) -> float:
    """The mean total size of the balanced digits over ticks 1 .. horizon, from their periods."""
    half, total = (k - 1) // 2, 0
    for level in range(_subtraction_levels(horizon, k)):
        cell = k**level
        # Digit `level` of t is that of t + (k^(level + 1) - 1) / 2 in base k, less half.
        start = (k * cell - 1) // 2
        total += _digit_sizes(start + horizon + 1, cell, k, half) - _digit_sizes(start + 1, cell, k, half)
    return total / horizon


def _digit_sizes(end: int, cell: int, k: int, half: int) -> int:
    """The sum over x below `end` of |(x // cell) mod k - half|."""
    periods, rest = divmod(end, cell * k)
    cells, inside = divmod(rest, cell)
    whole = sum(abs(digit - half) for digit in range(cells))
    return cell * (periods * half * (half + 1) + whole) + inside * abs(cells - half)


def least_squares_binary(horizon: int, *, pure: bool) -> Reference:
    """The binary tree with the best linear estimate from all its nodes, over the next power of two.

    C^T C is diagonal in the Haar basis, with 2^h - 1 for a wavelet of length 2^h and 2 T - 1 for the constant, so that
    Var(t) = (t / T)^2 T / (2 T - 1) + sum over h of dist(t / 2^h, Z)^2 2^h / (2^h - 1), per variance of a node."""
    levels = (horizon - 1).bit_length()
    size = 2**levels
    ticks = np.arange(1, horizon + 1)
    profile = (ticks / size) ** 2 * (size / (2 * size - 1))
    for level in range(1, levels + 1):
        inside = ticks & (2**level - 1)
        profile += (np.minimum(inside, 2**level - inside) / 2**level) ** 2 * (2**level / (2**level - 1))
    return from_profile("binary tree, least squares", profile * _node_variance(levels + 1, pure=pure))


def normalised_square_root(horizon: int) -> Reference:
    """C with all its columns scaled to length one, B = M C^-1; up to 4096 ticks."""
    column = root_coefficients(horizon)
    lengths = np.sqrt(np.cumsum(column**2))[::-1]
    places = np.arange(1, horizon)
    inverse = np.concatenate([[1.0], np.cumprod((2 * places - 3) / (2 * places))])
    profile = np.zeros(horizon)
    for place in range(horizon):
        profile[place:] += np.cumsum(lengths[place:] * inverse[: horizon - place]) ** 2
    return from_profile("normalised square root", profile)


def blt(horizon: int, buffers: int) -> Reference:
    """Buffered linear Toeplitz: C(x) = prod (1 - theta'_i x) / prod (1 - theta_i x), optimised for the largest error.

    Parameters are stored for some horizons and interpolated between."""
    check_at_least(1, horizon=horizon)
    stored = LOG_GAPS[buffers]
    exponents = [_FIRST_STORED + _STORED_STEP * place for place in range(len(stored))]
    gaps = [float(np.interp(math.log2(horizon), exponents, values)) for values in zip(*stored, strict=True)]
    column, row = blt_coefficients(np.array(gaps), horizon)
    profile = np.cumsum(row**2) * float((column**2).sum())
    return from_profile(f"BLT, {buffers} buffers", profile)


def blt_coefficients(log_gaps: NDArray[np.float64], horizon: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first column of C and the last row of B, backwards, of a BLT: sums of powers, by residues."""
    # 1 - theta = e^-u: near one it is the distance that carries the digits.
    numbers = np.cumsum(np.exp(log_gaps))
    above, below = np.exp(-numbers[0::2]), np.exp(-numbers[1::2])
    places = np.arange(horizon)
    column, row = np.zeros(horizon), np.full(horizon, float(np.prod(below / above)))
    for place in range(len(above)):
        others = np.arange(len(above)) != place
        root = 1 - below[place]
        residue = np.prod((above - below[place]) / root) / np.prod((below[others] - below[place]) / root)
        column += residue * np.exp(places * math.log1p(-below[place]))
        root = 1 - above[place]
        residue = np.prod((below - above[place]) / root) / np.prod((above[others] - above[place]) / root)
        row += residue / (1 - 1 / root) * np.exp(places * math.log1p(-above[place]))
    column[0] = 1.0
    return column, row


def _node_variance(levels: int, *, pure: bool) -> float:
    """Of a node where an event moves one node of each level by one."""
    return _LEVEL_VARIANCE * levels**2 if pure else float(levels)
