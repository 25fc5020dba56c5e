"""The errors of counters that are compared with but not run here, and of the best counter there can be.

Standard deviations of the noise on running counts, the largest and the root mean square over ticks 1 .. T, at unit
loss: rho = 1/2 for Gaussian noise, epsilon = 1 for Laplace noise (variance 2 / epsilon^2). For another loss divide by
sqrt(2 rho) or by epsilon.

Optimum: gamma_2(M), and gamma_F(M) / sqrt(T) for the root mean square, M the matrix of running sums (Li et al. 2015;
Henzinger, Kalinin and Upadhyay 2025: ln T / pi + 0.701 <= gamma_2 <= ln T / pi + 0.846). Refined binary tree: Honaker
2015. Smooth binary: Andersson and Pagh 2023. k-ary subtraction: Andersson, Pagh, Steiner and Torkamani 2024. Square
root: Fichtenberger, Henzinger and Upadhyay 2022. Normalised square root: Henzinger and Upadhyay 2024. BLT: Dvijotham et
al. 2024.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least

LONGEST_NORMALISED = 4096
"""The normalised square root takes T^2 steps to evaluate."""

_LONGEST_COMPUTED = 40
_LEVEL_VARIANCE = 2.0
"""Of a Laplace variable of scale one."""

_CERTIFIED = {
    64: (2.111366, 2.099856),
    128: (2.320794, 2.311001),
    256: (2.532716, 2.524414),
    1024: (2.9614, 2.955452),
    4096: (3.3942, 3.389764),
}
"""Lower bounds on gamma_2 and gamma_F / sqrt(T) from dual weights; up to 1024 upper bounds are within 0.002 of them."""

_FIRST_STORED, _STORED_STEP = 8, 4
_LOG_GAPS = {
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One counter at unit loss.

    >>> smooth_binary(4096, pure=False)
    Reference(name='smooth binary', max_std=8.0, rms_std=8.0, samples=8, detail='height 16')
    """

    name: str
    """What it is called in tables."""

    max_std: float
    """The largest standard deviation over the ticks."""

    rms_std: float
    """The root mean square of the standard deviations."""

    samples: int | None = None
    """How many draws the noise of one tick takes from nothing, at most."""

    detail: str = ""
    """Parameters that were chosen, or where the numbers come from."""


def references(horizon: int, *, pure: bool) -> list[Reference]:
    """All counters of this file at this horizon, the optimum first.

    >>> [each.name for each in references(4096, pure=False)][:3]
    ['optimum', 'binary tree, refined', 'smooth binary']
    """
    return list(_references(horizon, pure=pure))


def _references(horizon: int, *, pure: bool) -> Iterator[Reference]:
    yield lower_bound(horizon) if pure else optimum(horizon)
    yield refined_binary(horizon, pure=pure)
    yield smooth_binary(horizon, pure=pure)
    yield unbalanced_smooth_binary(horizon, pure=pure)
    yield subtraction(horizon, pure=pure)
    yield least_squares_binary(horizon, pure=pure)
    yield square_root(horizon, pure=pure)
    if not pure:
        yield from (blt(horizon, buffers) for buffers in _LOG_GAPS)
        if horizon <= LONGEST_NORMALISED:
            yield normalised_square_root(horizon)


@lru_cache(maxsize=64)
def optimum(horizon: int) -> Reference:
    """The least error of any Gaussian mechanism: computed up to 40 ticks, certified at 64, .., 4096, else a fit.

    The fits ln T / pi + 0.7055 + 0.345 / ln T and ln T / pi + 0.7055 + 0.318 / ln T - 0.109 / ln^2 T are within 0.001
    of every value that was computed from T = 64 on, and within 0.003 from 40 on; beyond 4096 nothing was computed.

    >>> print(round(optimum(2**20).max_std, 3), optimum(2**20).detail)
    5.143 fit
    """
    check_at_least(1, horizon=horizon)
    if horizon <= _LONGEST_COMPUTED:
        largest, typical = _largest_bound(horizon), _typical_bound(horizon)
        detail = "computed"
    elif horizon in _CERTIFIED:
        largest, typical = _CERTIFIED[horizon]
        detail = "certified lower bound"
    else:
        length = math.log(horizon)
        common = length / math.pi + 0.7055
        largest, typical = common + 0.345 / length, common + 0.318 / length - 0.109 / length**2
        detail = "fit"
    return Reference(name="optimum", max_std=largest, rms_std=typical, detail=detail)


def lower_bound(horizon: int) -> Reference:
    """For pure epsilon no optimum is known; sqrt(2) times the Gaussian one is a weak floor.

    >>> print(round(lower_bound(256).max_std, 2))
    3.58
    """
    gaussian = optimum(horizon)
    factor = math.sqrt(_LEVEL_VARIANCE)
    return Reference(
        name="lower bound",
        max_std=factor * gaussian.max_std,
        rms_std=factor * gaussian.rms_std,
        detail="weak: sqrt(2) Gaussian",
    )


def trace_bound(horizon: int) -> float:
    """The sum of the singular values of M over T: below both optima at every horizon, with a proof and no computing.

    >>> print(round(trace_bound(4096), 2))
    3.35
    """
    check_at_least(1, horizon=horizon)
    angles = (2 * np.arange(1, horizon + 1) - 1) * (math.pi / (4 * horizon + 2))
    return float((0.5 / np.sin(angles)).mean())


def _largest_bound(horizon: int, rounds: int = 60) -> float:
    """A lower bound on gamma_2 that meets the upper one: the dual weights u and v are iterated to their fixed point."""
    sums = np.tril(np.ones((horizon, horizon)))
    rows = columns = np.full(horizon, 1 / horizon)
    bound = 0.0
    for _ in range(rounds):
        left, values, right = np.linalg.svd(np.sqrt(rows)[:, None] * sums * np.sqrt(columns))
        bound = max(bound, float(values.sum()))
        rows, columns = left**2 @ values / values.sum(), values @ right**2 / values.sum()
    return bound


def _typical_bound(horizon: int, rounds: int = 60) -> float:
    """A lower bound on gamma_F / sqrt(T) that meets the upper one."""
    sums = np.tril(np.ones((horizon, horizon)))
    columns = np.full(horizon, 1 / horizon)
    bound = 0.0
    for _ in range(rounds):
        values, right = np.linalg.svd(sums * np.sqrt(columns))[1:]
        bound = max(bound, float(values.sum()) / math.sqrt(horizon))
        columns = values @ right**2 / values.sum()
    return bound


def refined_binary(horizon: int, *, pure: bool) -> Reference:
    """The binary tree whose finished nodes are averaged with what their children say (Honaker's estimate from below).

    >>> print(round(refined_binary(256, pure=False).max_std, 2))
    6.57
    """
    ticks = np.arange(1, horizon + 1)
    levels = horizon.bit_length()
    profile, variance = np.zeros(horizon), 1.0
    for level in range(levels):
        profile += variance * (ticks >> level & 1)
        variance = 2 * variance / (2 * variance + 1)
    return _reference("binary tree, refined", profile * _node_variance(levels, pure=pure), 2 * horizon)


def smooth_binary(horizon: int, *, pure: bool) -> Reference:
    """The binary tree of height h of which only the leaves with h / 2 ones are used: the same error at every tick.

    >>> print(round(smooth_binary(256, pure=True).max_std, 1))
    20.8
    """
    check_at_least(1, horizon=horizon)
    height = 2
    while math.comb(height, height // 2) <= horizon:
        height += 2
    std = math.sqrt(height // 2 * _node_variance(height // 2, pure=pure))
    return Reference(name="smooth binary", max_std=std, rms_std=std, samples=height // 2, detail=f"height {height}")


def unbalanced_smooth_binary(horizon: int, *, pure: bool) -> Reference:
    """The same with a ones and b zeros in the leaves that are used, at the best a and b.

    >>> print(round(unbalanced_smooth_binary(256, pure=False).max_std, 2))
    5.29
    """
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
        samples=ones,
        detail=f"{ones} ones and {zeros} zeros",
    )


def subtraction(horizon: int, *, pure: bool) -> Reference:
    """The k-ary tree whose nodes are added or subtracted, k odd, tuned apart for the largest and the typical error.

    >>> subtraction(256, pure=False).detail
    'k = 5, typical 9'
    """
    check_at_least(1, horizon=horizon)
    least_largest = least_typical = math.inf
    arity = typical_arity = samples = 0
    # A single level, k = 2 T + 1, comes first: the rule for stopping knows of two levels or more.
    for k in chain([2 * horizon + 1], range(3, 2 * horizon + 1, 2)):
        levels = _subtraction_levels(horizon, k)
        price = _node_variance(levels, pure=pure)
        digits = largest_balanced_digits(horizon, k)
        largest, typical = price * digits, price * _mean_balanced_digits(horizon, k)
        if largest < least_largest:
            least_largest, arity, samples = largest, k, digits
        if typical < least_typical:
            least_typical, typical_arity = typical, k
        # The lowest digit alone is on average above k / 8, and at its largest (k - 1) / 2.
        if levels > 1 and (k - 1) / 8 * _node_variance(2, pure=pure) > max(least_largest, least_typical):
            break
    return Reference(
        name="k-ary subtraction",
        max_std=math.sqrt(least_largest),
        rms_std=math.sqrt(least_typical),
        samples=samples,
        detail=f"k = {arity}, typical {typical_arity}",
    )


def _subtraction_levels(horizon: int, k: int) -> int:
    levels = 1
    while (k**levels - 1) // 2 < horizon:
        levels += 1
    return levels


def largest_balanced_digits(horizon: int, k: int) -> int:
    """The largest total size of the digits -(k - 1)/2 .. (k - 1)/2 of a number among 0 .. horizon.

    >>> largest_balanced_digits(12, 5)
    4
    """
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
    Var(t) = (t / T)^2 T / (2 T - 1) + sum over h of dist(t / 2^h, Z)^2 2^h / (2^h - 1), per variance of a node.

    >>> print(round(least_squares_binary(256, pure=False).max_std, 2))
    3.76
    """
    levels = (horizon - 1).bit_length()
    size = 2**levels
    ticks = np.arange(1, horizon + 1)
    profile = (ticks / size) ** 2 * (size / (2 * size - 1))
    for level in range(1, levels + 1):
        inside = ticks & (2**level - 1)
        profile += (np.minimum(inside, 2**level - inside) / 2**level) ** 2 * (2**level / (2**level - 1))
    return _reference("binary tree, least squares", profile * _node_variance(levels + 1, pure=pure), 2 * size - 1)


def square_root(horizon: int, *, pure: bool) -> Reference:
    """B = C = the square root of M: the Toeplitz matrix of c_k = binom(2k, k) / 4^k.

    >>> print(round(square_root(4096, pure=False).max_std, 3))
    3.714
    """
    column = _root_coefficients(horizon)
    rows = np.cumsum(column**2)
    # Laplace noise pays by the sum of a column, which grows as the root of T.
    price = _LEVEL_VARIANCE * column.sum() ** 2 if pure else rows[-1]
    return _reference("square root", rows * price, horizon)


def _root_coefficients(horizon: int) -> NDArray[np.float64]:
    """Of (1 - x)^(-1/2)."""
    check_at_least(1, horizon=horizon)
    places = np.arange(1, horizon)
    return np.concatenate([[1.0], np.cumprod((2 * places - 1) / (2 * places))])


def normalised_square_root(horizon: int) -> Reference:
    """C with all its columns scaled to length one, B = M C^-1; up to 4096 ticks.

    >>> print(round(normalised_square_root(256).max_std, 3))
    2.645
    """
    column = _root_coefficients(horizon)
    lengths = np.sqrt(np.cumsum(column**2))[::-1]
    places = np.arange(1, horizon)
    inverse = np.concatenate([[1.0], np.cumprod((2 * places - 3) / (2 * places))])
    profile = np.zeros(horizon)
    for place in range(horizon):
        profile[place:] += np.cumsum(lengths[place:] * inverse[: horizon - place]) ** 2
    return _reference("normalised square root", profile, horizon)


def blt(horizon: int, buffers: int) -> Reference:
    """Buffered linear Toeplitz: C(x) = prod (1 - theta'_i x) / prod (1 - theta_i x), optimised for the largest error.

    Parameters are stored for some horizons and interpolated between.

    >>> print(round(blt(2**12, 4).max_std, 3))
    3.716
    """
    check_at_least(1, horizon=horizon)
    stored = _LOG_GAPS[buffers]
    exponents = [_FIRST_STORED + _STORED_STEP * place for place in range(len(stored))]
    gaps = [float(np.interp(math.log2(horizon), exponents, values)) for values in zip(*stored, strict=True)]
    column, row = blt_coefficients(np.array(gaps), horizon)
    profile = np.cumsum(row**2) * float((column**2).sum())
    return _reference(f"BLT, {buffers} buffers", profile, horizon)


def blt_coefficients(log_gaps: NDArray[np.float64], horizon: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The first column of C and the last row of B, backwards, of a BLT: sums of powers, by residues.

    >>> column, row = blt_coefficients(np.zeros(2), 4)
    >>> bool(abs(np.convolve(column, row)[:4] - 1).max() < 1e-12)
    True
    """
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


def _reference(name: str, profile: NDArray[np.float64], samples: int) -> Reference:
    return Reference(name=name, max_std=math.sqrt(profile.max()), rms_std=math.sqrt(profile.mean()), samples=samples)
