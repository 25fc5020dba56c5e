"""The square-root Toeplitz counter on a lattice: the least noise for few series that are known from the start.

Fichtenberger, Henzinger and Upadhyay, "Constant matters: fine-grained error bound on differentially private continual
observation", 2022: B = C = the square root of M, the Toeplitz matrix of c_k = binom(2k, k) / 4^k. Noise on whole
numbers needs whole sums, so C is rounded to C_k = round(2^b c_k) and B = M C^-1 follows from it: the coefficients
beta_k of 1 / ((1 - x) C(x)), whose denominators 2^(b (k + 1)) leave every machine word. The noise of a release is

    r_t = beta_0 z_t + beta_1 z_(t - 1) + .. + beta_(t - 1) z_1,     published as floor(r_t + 1/2),

and only this rounding of the exact value is private (docs/privacy.md, 'Rounding'). It is found in three steps:

1. in 64-bit floating point, with a bound on the error. It decides unless r_t is that close to k + 1/2;
2. with beta_k in fixed point of 256 bits, again with a bound;
3. exactly, as a whole number over 2^(b t). Ties are common at the first ticks (one in 2^b at t = 1), where this is
   cheap; later it would take seconds, but then only a value within 2^-200 of k + 1/2 gets here.

A key that comes late replays all draws from the first tick on: other plans suit many keys, or keys nobody knows yet.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, chain, pairwise, repeat
from operator import mul
from typing import ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.noise.keyed import Keys, Noise, sealed
from pianissimo.noise.laws import GaussianNode, LossTarget, NodeNoise, gaussian_node
from pianissimo.noise.plan import Term, Ticks, TunedPlan, as_ticks
from pianissimo.noise.running import KeyRange

LONGEST_HORIZON = 4096
"""One release takes as many draws as there were ticks, and the certificate the square of that in steps."""

_MOST_BITS = 20
_FIXED_BITS = 256
_EXACT_TICKS = 48
"""Up to this tick the exact value is cheaper than the fixed-point table."""

_UNIT = 2.0**-53
_SERIES_AT_ONCE = 2048


@identified("toeplitz-plan")
@dataclass(frozen=True, kw_only=True)
class ToeplitzPlan(TunedPlan):
    """Square-root Toeplitz noise, on a lattice of 2^-bits, for at most 4096 ticks.

    It is a plan in all but one thing: its weights are not over a power of two, so it has no `terms_at` and brings its
    own exact noise (`running_noise`, `evaluate`) and variances (`difference_variance`).

    Guarantee: the cost is the sum of C_k^2 over the variance, exactly.
    Error: variance times the sum of beta_k^2, k < t.
    Cost: t draws at tick t for a new series, one for a series at hand, whose draws are all kept.
    """

    bits: int
    """b: the lattice of C is 2^-b."""

    noise: GaussianNode
    """Of each tick."""

    name: ClassVar[str] = "toeplitz"
    # The noise that it gives is rounded already: twice a whole number over 2^1, so that users know of a rounding.
    shift: ClassVar[int] = 1
    smoothness: ClassVar[int] = 1
    # Every column of C is the first one, moved down.
    columns_are_shifts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_at_least(1, bits=self.bits, horizon=self.horizon)
        if not self.horizon <= LONGEST_HORIZON:
            raise ParameterError(
                f"horizon of a toeplitz plan must be at most {LONGEST_HORIZON}, got {self.horizon}; "
                "take a haar or spline plan"
            )
        if not self.bits <= _MOST_BITS:
            raise ParameterError(f"bits must be at most {_MOST_BITS}, got {self.bits}")
        # Also refuses a variance that no sampler has.
        if not self._window(float(self._weights.size), self.horizon) < 2.0**-8:
            raise ParameterError("the noise of a toeplitz plan must be smaller: take a larger share of the budget")

    @classmethod
    def tuned(cls, horizon: int, target: LossTarget, bits: int | None = None) -> Self:
        if target.pure:
            raise ParameterError("a toeplitz plan has Gaussian noise and must be given a rho, got an epsilon")
        # log2(horizon) / 2 + 2 bits lose 0.2 % to the square root.
        bits = ((horizon - 1).bit_length() + 1) // 2 + 2 if bits is None else bits
        check_at_least(1, bits=bits)
        squares = sum(entry**2 for entry in lattice_column(min(horizon, LONGEST_HORIZON), min(bits, _MOST_BITS)))
        return cls(bits=bits, noise=gaussian_node(squares / (2 * target.loss)), horizon=horizon)

    @property
    def noises(self) -> tuple[NodeNoise, ...]:
        return (self.noise,)

    @property
    def peak_weights(self) -> tuple[int, ...]:
        return (math.ceil(2 * self._weights.size),)

    @property
    def node_count(self) -> int:
        return self.horizon

    @cached_property
    def cost(self) -> Fraction:
        # The column of the first tick is the longest, and the others are its beginnings.
        return Fraction(sum(entry**2 for entry in self._weights.column)) / self.noise.variance

    def terms_at(self, position: int) -> NoReturn:
        raise ParameterError(
            f"the weights of a toeplitz plan are not over a power of two, got a question for those at {position}; "
            "it evaluates its own noise"
        )

    def influence(self, tick: int) -> list[Term]:
        column = self._weights.column[: self.horizon - tick + 1]
        return [Term(0, tick + place, entry) for place, entry in enumerate(column)]

    def bound_tick(self, level: int, node: int) -> int:  # noqa: ARG002
        return node

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        profile: NDArray[np.float64] = np.cumsum(self._weights.floats**2) * float(self.noise.variance)
        return profile[as_ticks(ticks, self.horizon) - 1]

    def difference_variance(self, start: int, end: int) -> Fraction:
        """The variance of the noise of release `end` less that of release `start` (0: nothing), rounded up by 1e-70."""
        if not end:
            return Fraction(0)
        return Fraction(self._between(start, end).squares[end - 1], 4**_FIXED_BITS) * self.noise.variance

    def evaluate(self, noise: Noise, tick: int, keys: Keys, *, since: int = 0) -> NDArray[np.int64]:
        """The noise of one release for each key, from nothing, less that of `since`: floor(r + 1/2), over 2^1."""
        result = np.empty(len(keys), dtype=np.int64)
        for first in range(0, len(keys), _SERIES_AT_ONCE):
            some = keys[first : first + _SERIES_AT_ONCE]
            draws = np.empty((tick, len(some)))
            for node in range(1, tick + 1):
                draws[node - 1] = self._draw(noise, node, some)
            result[first : first + len(some)] = self._rounded(draws, since)
        return 2 * result

    def running_noise(self) -> "ToeplitzNoise":
        return ToeplitzNoise(self)

    @property
    def _weights(self) -> "_Weights":
        return _weights(self.horizon, self.bits)

    def _between(self, start: int, end: int) -> "_Between":
        return _between(self.horizon, self.bits, end - start if start else self.horizon)

    def _draw(self, noise: Noise, node: int, keys: Keys) -> NDArray[np.int64]:
        values = np.empty(len(keys), dtype=np.int64)
        self.noise.draw(sealed(noise, self.bound_tick(0, node)).at(0, node), keys, values)
        return values

    def _window(self, size: float, ticks: int) -> float:
        """How far a floating-point sum of this many terms, whose factors have total size `size`, can be off.

        Each factor is rounded once, each of the n products once, and there are n - 1 additions in any order: at most
        (n + 1) units of 2^-53, to first order, of the sum of the sizes. Twice that covers the higher orders, the error
        of the fixed-point numbers behind the factors, and the rounding of the bound itself.
        """
        return 2 * (ticks + 2) * _UNIT * size * self.noise.bound

    def _rounded(self, draws: NDArray[np.float64], since: int = 0) -> NDArray[np.int64]:
        """floor(r + 1/2) for each series, exactly, from its draws of ticks 1 to the last."""
        ticks = len(draws)
        if not ticks:
            return np.zeros(draws.shape[1], dtype=np.int64)
        weights = self._between(since, ticks)
        values = weights.latest_last[-ticks:] @ draws
        below = np.floor(values)
        past = values - below
        result: NDArray[np.int64] = below.astype(np.int64) + (past >= 0.5)
        window = self._window(float(weights.sizes[ticks - 1]), ticks)
        for place in np.flatnonzero(np.abs(past - 0.5) <= window):
            result[place] = self._exactly_rounded([int(value) for value in draws[:, place]], since)
        return result

    def _exactly_rounded(self, draws: Sequence[int], since: int) -> int:
        weights = self._weights
        if len(draws) > _EXACT_TICKS:
            value = sum(map(mul, self._between(since, len(draws)).fixed, reversed(draws)))
            slack = 2 * weights.error * sum(map(abs, draws))
            lowest, highest = (_nearest(value + side, _FIXED_BITS) for side in (-slack, slack))
            if lowest == highest:
                return lowest
        return _nearest(*exact_noise(weights.column, self.bits, draws, since))


class ToeplitzNoise:
    """The noise of a growing list of series, release after release. All draws are kept, as a cache."""

    def __init__(self, plan: ToeplitzPlan) -> None:
        self._plan = plan
        self._noise: Noise | None = None
        self._ticks = 0
        self._count = 0
        self._draws = np.empty((0, 0))

    def at(self, noise: Noise, tick: int, count: int, keys: KeyRange) -> NDArray[np.int64]:
        if noise is not self._noise:
            self._ticks = self._count = 0
        # Until all is done the cache belongs to no noise: an interrupted draw is never taken for a finished one.
        self._noise = None
        self._make_room(max(tick, self._ticks), max(count, self._count))
        if count > self._count:
            start, self._count = self._count, count
            for node in range(1, self._ticks + 1):
                self._draws[node - 1, start:count] = self._plan._draw(noise, node, keys(start, count))
        for node in range(self._ticks + 1, tick + 1):
            self._draws[node - 1, : self._count] = self._plan._draw(noise, node, keys(0, self._count))
        self._ticks = max(tick, self._ticks)
        self._noise = noise
        return 2 * self._plan._rounded(self._draws[:tick, :count])

    def since(
        self, noise: Noise, start: int, end: int, keys: Keys, slots: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        count = len(keys) if slots is None else int(slots.max(initial=-1)) + 1
        if noise is not self._noise or end > self._ticks or count > self._count:
            return self._plan.evaluate(noise, end, keys, since=start)
        return 2 * self._plan._rounded(self._draws[:end, slice(0, count) if slots is None else slots], start)

    def _make_room(self, ticks: int, count: int) -> None:
        rows, columns = self._draws.shape
        if ticks > rows or count > columns:
            rows = min(self._plan.horizon, max(ticks, 2 * rows)) if ticks > rows else rows
            columns = max(count, columns + columns // 2) if count > columns else columns
            larger = np.zeros((rows, columns))
            larger[: self._ticks, : self._count] = self._draws[: self._ticks, : self._count]
            self._draws = larger


@dataclass(frozen=True)
class _Weights:
    """C and B of one horizon and lattice."""

    column: tuple[int, ...]
    """C_k."""

    fixed: tuple[int, ...]
    """beta_k 2^256, off by at most `error`."""

    error: int

    floats: NDArray[np.float64] = field(repr=False)
    """beta_k, rounded once from `fixed`."""

    @cached_property
    def size(self) -> Fraction:
        """At least the sum of |beta_k|."""
        return Fraction(sum(abs(entry) + self.error for entry in self.fixed), 2**_FIXED_BITS)


@lru_cache(maxsize=8)
def _weights(horizon: int, bits: int) -> _Weights:
    column = lattice_column(horizon, bits)
    fixed = _fixed_weights(column, bits)
    # C (fixed - 2^256 beta) = e with |e_k| <= 2^(b - 1), and C^-1 = (1 - x) beta, so that no entry of the difference is
    # larger than 2^(b - 1) V, V the sum of |beta_k - beta_(k - 1)|. V is that of `fixed` up to 2 T errors: solve for
    # the largest error.
    variation = abs(fixed[0]) + sum(abs(after - before) for before, after in pairwise(fixed))
    slack = 1 - Fraction(horizon << bits, 1 << _FIXED_BITS)
    error = math.ceil(Fraction(variation << (bits - 1), 1 << _FIXED_BITS) / slack)
    floats = np.array([math.ldexp(entry, -_FIXED_BITS) for entry in fixed])
    floats.flags.writeable = False
    return _Weights(column=column, fixed=fixed, error=error, floats=floats)


@dataclass(frozen=True, eq=False)
class _Between:
    """The weights of r_t - r_(t - lag), of z_(t - k) at place k: the same at every tick, as rows of B are shifts.

    They are beta_k - beta_(k - lag), where beta is 0 before its first. With a lag of the whole horizon: of r_t.
    """

    fixed: tuple[int, ...]
    """Times 2^256, each off by at most twice the error of beta."""

    squares: tuple[int, ...]
    """At least the sums of their squares up to each place, times 4^256."""

    latest_last: NDArray[np.float64] = field(repr=False)
    """Rounded once from `fixed`, in the order of the draws: place 0, of the last draw, at the end."""

    sizes: NDArray[np.float64] = field(repr=False)
    """The sums of their sizes up to each place."""


@lru_cache(maxsize=16)
def _between(horizon: int, bits: int, lag: int) -> _Between:
    weights = _weights(horizon, bits)
    before = chain(repeat(0, lag), weights.fixed)
    fixed = tuple(after - entry for after, entry in zip(weights.fixed, before, strict=False))
    slack = 2 * weights.error
    squares = tuple(accumulate((abs(entry) + slack) ** 2 for entry in fixed))
    floats = np.array([math.ldexp(entry, -_FIXED_BITS) for entry in fixed])
    # A product with a reversed view would copy it at every tick.
    latest_last = np.ascontiguousarray(floats[::-1])
    return _Between(fixed=fixed, squares=squares, latest_last=latest_last, sizes=np.cumsum(np.abs(floats)))


@lru_cache(maxsize=8)
def lattice_column(horizon: int, bits: int) -> tuple[int, ...]:
    """C_k = floor(2^b binom(2k, k) / 4^k + 1/2) for k below the horizon, exactly."""
    column, binomial = [], 1
    for place in range(horizon):
        column.append(_nearest(binomial << bits, 2 * place))
        binomial = binomial * (4 * place + 2) // (place + 1)
    return tuple(column)


def _fixed_weights(column: Sequence[int], bits: int) -> tuple[int, ...]:
    """beta_k 2^256 from C beta = 1 / (1 - x), each division rounded to the nearest."""
    weights: list[int] = []
    for place in range(len(column)):
        rest = (1 << _FIXED_BITS) - sum(map(mul, column[1 : place + 1], reversed(weights)))
        weights.append(_nearest(rest, bits))
    return tuple(weights)


def exact_noise(column: Sequence[int], bits: int, draws: Sequence[int], since: int = 0) -> tuple[int, int]:
    """r_t, t the number of draws, less r_since: a whole number and the power of two that it is over.

    C r = M z, so 2^b r_k = (z_1 + .. + z_k) - C_1 r_(k - 1) - C_2 r_(k - 2) - ..; r_k is kept over 2^(b k).
    """
    values: list[int] = []
    total = 0
    for place, draw in enumerate(draws):
        total += draw
        value = total << (bits * place)
        for back in range(1, place + 1):
            value -= (column[back] * values[place - back]) << (bits * (back - 1))
        values.append(value)
    end, power = (values[-1], bits * len(draws)) if values else (0, 0)
    return (end - (values[since - 1] << (bits * (len(draws) - since))) if since else end), power


def _nearest(numerator: int, power: int) -> int:
    """floor(numerator / 2^power + 1/2)."""
    return (numerator + (1 << power >> 1)) >> power
