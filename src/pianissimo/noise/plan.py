"""The plan idea: for tick t, which node noises enter the release, with which integer weights.

A linear mechanism is a pair of matrices with B C = M, where M holds ones on and below its diagonal. Column j of C
(`influence`) says how an event of tick j shifts the sums of the nodes; row t of B (`terms`, over the common denominator
2^shift) says which node noises enter release t. The release is the true count plus the noise of row t, rounded by
floor(x + 1/2), the one rounding that commutes with adding whole numbers: it is a function of B (C x + z), so what an
event can change is the shift of z by its column. All published counters and ours are plans and differ by a table.

Privacy (docs/privacy.md, 'Plans'): with discrete Gaussian node noise the Renyi divergence at every integer order a >=
2 is at most a * rho, rho = cost / 2, cost = max over j of the sum of C[v, j]^2 / variance(v); with discrete Laplace
node noise the mechanism is pure with epsilon = cost = max over j of the sum of |C[v, j]| / scale(v). Both hold if the
events are chosen after seeing earlier releases. Node noise is whole, so the nodes' sums must be whole: C has integer
entries in every plan.

Error bars (`half_width`) say how far an estimate may be from the truth, before any data. They speak of accuracy; no
promise of privacy rests on them. The noise is treated as its continuous counterpart (a normal variable for Gaussian
nodes, a weighted sum of Laplace variables for Laplace nodes) and the result is widened by the rounding of the release
and rounded up. That they cover is checked by enumeration and simulation in the tests.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple, Protocol, Self, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pianissimo import _core
from pianissimo.checks import check_at_least, check_probability
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import Booked, Loss, Pure
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.noise.laws import LaplaceNode, LossTarget, NodeNoise

_LARGEST_NUMERATOR = 2**62


class Term(NamedTuple):
    """One node and how much of it: a row of B or a column of C."""

    level: int
    node: int
    weight: int


class NoisePlan(Protocol):
    """Which node noises enter release t, with which integer weights. One law of noise per level."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    @property
    def horizon(self) -> int:
        """How many releases it has."""

    def position(self, tick: int) -> int:
        """The row of the underlying matrix that release `tick` takes: `tick` itself unless the plan skips rows."""

    def terms_at(self, position: int) -> Sequence[Term]:
        """The row of B at a position: the nodes that enter it."""

    @property
    def shift(self) -> int:
        """Weights of `terms` are over 2^shift."""

    @property
    def peak_weights(self) -> tuple[int, ...]:
        """For each level, the largest total size of its weights at one tick."""

    @property
    def smoothness(self) -> int:
        """The k for which k-th differences of weights over positions are sparse: 1 for steps, 2 for straight pieces."""

    def influence(self, tick: int) -> Sequence[Term]:
        """Column `tick` of C: how an event of this tick shifts the nodes' sums."""

    @property
    def noises(self) -> tuple[NodeNoise, ...]:
        """The node noise of each level: all Gaussian or all Laplace."""

    @property
    def cost(self) -> Fraction:
        """The price of the worst column of C, exactly or rounded up: 2 rho (Gaussian) or epsilon (Laplace) per unit."""

    @property
    def node_count(self) -> int:
        """No series ever uses more nodes."""

    def bound_tick(self, level: int, node: int) -> int:
        """The tick to whose sealed data the noise of a node is bound: a late one that is sealed at the first draw.

        `PlanNoise` looks `smoothness` - 1 positions ahead, so that is how long before its first use it is drawn.
        """

    def variance_profile(self, ticks: "Ticks" = None) -> NDArray[np.float64]:
        """The variance of each release in floating point, for predictions only: of all ticks, the first n, or some."""


Ticks = int | NDArray[np.int64] | None
"""Some ticks: all of a plan, the first so many, or those of an array."""


def as_ticks(ticks: Ticks, horizon: int) -> NDArray[np.int64]:
    """The numbers of some ticks."""
    return ticks if isinstance(ticks, np.ndarray) else np.arange(1, (ticks or horizon) + 1)


def sum_of_levels(
    periods: Sequence[int], part: Callable[[int, NDArray[np.int64]], NDArray[Any]], numbers: NDArray[np.int64]
) -> NDArray[Any]:
    """For each number the sum over levels of `part(level, number mod its period)`; periods divide the next one.

    Of 1, 2, 3, .. the sum so far repeats with its period: each level is worked out over one period alone.
    """
    last = len(numbers)
    found: NDArray[Any] = np.zeros(1, dtype=np.int64)
    if not np.array_equal(numbers, np.arange(1, last + 1)):
        return sum((part(level, numbers % period) for level, period in enumerate(periods)), start=found)
    for level, period in enumerate(periods):
        inside = np.arange(min(period, last + 1))
        found = np.resize(found, len(inside)) + part(level, inside)
    return np.resize(found, last + 1)[1:]


@runtime_checkable
class OwnVariance(Protocol):
    """A plan whose weights are not over a power of two: it knows its variances itself."""

    def difference_variance(self, start: int, end: int) -> Fraction:
        """As the function of this name, exactly or rounded up."""


def terms_of(plan: NoisePlan, tick: int) -> Sequence[Term]:
    """Row `tick` of B: the nodes that enter this release."""
    return plan.terms_at(plan.position(tick))


def is_pure(plan: NoisePlan) -> bool:
    """Whether the plan's noise is Laplace, so that its loss is a pure epsilon."""
    return isinstance(plan.noises[0], LaplaceNode)


def plan_loss(plan: NoisePlan, *, series: int = 1, magnitude: int = 1, watched: int = 1) -> Loss:
    """What a whole run loses on an event that moves at most so many series by at most `magnitude` each.

    `watched` is how many series there are: whoever chooses the event after watching all of them may choose by any of
    their noises, so the distance from the ideal noise is that of all.
    """
    distance = plan.node_count * max(series, watched) * DRAW_DISTANCE
    if is_pure(plan):
        return Pure(epsilon=plan.cost * series * magnitude, distance=distance)
    return Booked(rho=plan.cost / 2 * series * magnitude**2, distance=distance)


def variance_at(plan: NoisePlan, tick: int) -> Fraction:
    """The variance of the noise of one release, exactly, before its rounding."""
    return difference_variance(plan, 0, tick)


def difference_variance(plan: NoisePlan, start: int, end: int) -> Fraction:
    """The variance of the noise of release `end` minus that of release `start` (0: nothing), exactly.

    Releases share nodes, so this is not the sum of their variances.
    """
    return _kept_variance(cast(Hashable, plan), start, end)


@lru_cache(maxsize=256)
def _kept_variance(key: Hashable, start: int, end: int) -> Fraction:
    """A tick asks for it more than once: for its threshold and for its bars."""
    plan = cast(NoisePlan, key)
    # As `isinstance` of `OwnVariance` would tell it, in a tenth of the time.
    own: Callable[[int, int], Fraction] | None = getattr(plan, "difference_variance", None)
    if own is not None:
        return own(start, end)
    numerators, denominator = _over_one_denominator(plan.noises)
    weights = difference_weights(plan, start, end)
    total = sum(weight * weight * numerators[level] for (level, _), weight in weights.items())
    return Fraction(total, denominator << (2 * plan.shift))


@lru_cache(maxsize=256)
def _over_one_denominator(noises: tuple[NodeNoise, ...]) -> tuple[tuple[int, ...], int]:
    """The variances of some laws as whole numbers over one: sums of them are sums of whole numbers."""
    variances = [noise.variance for noise in noises]
    denominator = math.lcm(*(each.denominator for each in variances))
    return tuple(int(each * denominator) for each in variances), denominator


def difference_weights(plan: NoisePlan, start: int, end: int) -> dict[tuple[int, int], int]:
    """What each node weighs in the noise of release `end` minus that of release `start` (0: nothing)."""
    weights: dict[tuple[int, int], int] = {}
    for tick, sign in ((start, -1), (end, 1)):
        for term in terms_of(plan, tick) if tick else ():
            place = (term.level, term.node)
            weights[place] = weights.get(place, 0) + sign * term.weight
    return {place: weight for place, weight in weights.items() if weight}


@dataclass(frozen=True, kw_only=True)
class TunedPlan:
    """What plans share that are tuned to a loss. A base class: as functions, this would be half of each plan."""

    horizon: int
    """How many releases it has."""

    smoothness: ClassVar[int] = 2

    @classmethod
    def calibrated(
        cls, *, horizon: int, rho: Fraction | float | None = None, epsilon: Fraction | float | None = None, **more: Any
    ) -> Self:
        """The plan with the least noise whose loss per unit is at most `rho` (Gaussian) or `epsilon` (Laplace).

        `more` is what `tuned` may be given besides: the `base` of a tree, the `bits` of a toeplitz plan.
        """
        check_at_least(1, horizon=horizon)
        return cls.tuned(horizon, LossTarget.of(rho=rho, epsilon=epsilon), **more)

    @classmethod
    def tuned(cls, horizon: int, target: LossTarget) -> Self:
        """The plan of this loss."""
        raise NotImplementedError

    def position(self, tick: int) -> int:
        return tick


@dataclass(frozen=True, kw_only=True)
class LevelPlan(TunedPlan):
    """A plan with a law for each level, the first one beside them."""

    noises: tuple[NodeNoise, ...]
    """Of the total, or of the spikes of single ticks, then of each level."""

    @cached_property
    def cost(self) -> Fraction:
        # An event moves the total and one node of each level, each by one.
        return sum((noise.price(1) for noise in self.noises), start=Fraction(0))


def check_levels(plan: NoisePlan, *, levels: int, leaves: int) -> None:
    """Refuse a plan without a law for each of its levels and one beside them, or with more releases than leaves."""
    if not plan.horizon <= leaves:
        raise ParameterError(f"horizon must be at most the {leaves} leaves of the plan, got {plan.horizon}")
    if len(plan.noises) != levels + 1:
        raise ParameterError(f"noises must be one a level and one beside them, {levels + 1}, got {len(plan.noises)}")
    check_plan(plan)


def largest_noise(plan: NoisePlan) -> int:
    """What the noise of no release can exceed: its numerator over 2^shift, as samplers never exceed their bounds."""
    return sum(weight * noise.bound for noise, weight in zip(plan.noises, plan.peak_weights, strict=True))


def check_plan(plan: NoisePlan) -> None:
    """Refuse a plan whose noise could leave 64 bits or whose scales no sampler has."""
    check_at_least(1, horizon=plan.horizon)
    peak = largest_noise(plan)
    if not 2 * peak < _LARGEST_NUMERATOR:
        raise ParameterError(
            f"the noise of a {plan.name} plan must fit in 62 bits, got {peak.bit_length() + 1}: "
            "take a shorter horizon or a larger share of the budget"
        )


_SURE = 1 - 1e-5
_GRID, _WIDE_GRID = np.linspace(0.0, 60.0, 6001)[1:], np.linspace(0.0, 60.0, 301)[1:]
_NOTHING_CUT = 1e12
_MOST_STEPS, _CLOSE = 60, 1e-13


def half_width(plan: NoisePlan, tick: int, coverage: float, *, since: int = 0) -> int:
    """The whole number h such that estimate - h .. estimate + h covers the truth with this chance.

    With `since`, of the difference of two releases, each rounded by itself.
    """
    check_probability(coverage=coverage)
    roundings = (1 if plan.shift else 0) * (2 if since else 1)
    if is_pure(plan):
        weights, own = difference_weights(plan, since, tick), _laplace_scales(plan.noises)
        scales = [abs(weight) * own[level] for (level, _), weight in weights.items()]
        spread = laplace_sum_quantile(scales, coverage) / 2.0**plan.shift
    else:
        deviation = math.sqrt(difference_variance(plan, since, tick))
        spread = normal_quantile(coverage) * deviation
    return math.ceil(spread + roundings / 2)


@lru_cache(maxsize=256)
def _laplace_scales(noises: tuple[NodeNoise, ...]) -> tuple[float, ...]:
    """The scale of the continuous law of each level's variance."""
    return tuple(math.sqrt(noise.variance / 2) for noise in noises)


def normal_quantile(coverage: float) -> float:
    """How many deviations of a normal law hold it with this chance."""
    return NormalDist().inv_cdf((1 + coverage) / 2)


def laplace_sum_quantile(scales: Sequence[float], coverage: float) -> float:
    """The x with P[|sum of Laplace variables| <= x] = coverage, by inverting the characteristic function."""
    if not scales:
        return 0.0
    unit = math.sqrt(2 * sum(scale**2 for scale in scales))
    if coverage > _SURE:
        return _chernoff_quantile(scales, coverage)
    return unit * _unit_quantile(tuple(sorted(scale / unit for scale in scales)), coverage)


def _chernoff_quantile(scales: Sequence[float], coverage: float) -> float:
    """An upper bound, from P[|X| > x] <= 2 exp(-f x) prod 1 / (1 - (f s)^2), for chances too small to integrate."""
    limit = 1 / max(scales)
    return min(
        (math.log(2 / (1 - coverage)) - sum(math.log1p(-((factor * scale) ** 2)) for scale in scales)) / factor
        for factor in (limit * step / 512 for step in range(1, 512))
    )


@lru_cache(maxsize=4096)
def _unit_quantile(scales: tuple[float, ...], coverage: float) -> float:
    # P[|X| <= x] = (2/pi) * integral over u > 0 of sin(u x) / u * prod 1 / (1 + s^2 u^2), for variance one. Steps of h
    # add the chance of 2 pi / h - x and beyond, below 1e-13 for all x up to 9: wide ones do where nothing is cut off.
    grid = _WIDE_GRID if math.prod(1 + (scale * _WIDE_GRID[-1]) ** 2 for scale in scales) > _NOTHING_CUT else _GRID
    characteristic = _core.characteristic(np.array(scales), grid)
    kernel = characteristic / grid
    factor = 2 / math.pi * float(grid[0])
    low, high = 0.0, float(grid[-1])
    x = normal_quantile(coverage)
    # Newton's steps; half of what is left where one leads out of it.
    for _ in range(_MOST_STEPS):
        angles = grid * x
        missing = coverage - factor * float((np.sin(angles) * kernel).sum() + x / 2)
        low, high = (x, high) if missing > 0 else (low, x)
        density = factor * float((np.cos(angles) * characteristic).sum() + 0.5)
        following = x + missing / density if density > 0 else low
        x, before = (following if low < following < high else (low + high) / 2), x
        if abs(x - before) <= _CLOSE:
            break
    return x
