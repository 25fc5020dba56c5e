"""The plan idea: for tick t, which node noises enter the release, with which integer weights.

A linear mechanism is a pair of matrices with B C = M, where M holds ones on and below its diagonal. Column j of C
(`influence`) says how an event of tick j shifts the sums of the nodes; row t of B (`terms`, over the common denominator
2^shift) says which node noises enter release t. The release is the true count plus the noise of row t, rounded by
floor(x + 1/2), the one rounding that commutes with adding whole numbers: it is a function of B (C x + z), so what an
event can change is the shift of z by its column. All published counters and ours are plans and differ by a table.

Privacy (the card "Continual counting", section 8): with one variance per level and discrete Gaussian node noise, the
Renyi divergence at every integer order a >= 2 is at most a * rho, rho = cost / 2, cost = max over j of the sum of
C[v, j]^2 / variance(v); also if the events are chosen after seeing earlier releases. For node noise that is whole,
the nodes' sums must be whole too: C has integer entries in every plan here.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pianissimo import _core
from pianissimo.checks import check_at_least, check_probability
from pianissimo.errors import ParameterError
from pianissimo.noise import DRAW_DISTANCE, Integers, Keys, Noise

Array = TypeVar("Array", bound=np.ndarray[Any, Any])

_LARGEST_NUMERATOR = 2**62

VARIANCE_GRID = 64
"""Variances are multiples of 1/64, rounded up: exact, short, and less than a tenth of a percent more noise."""


class Term(NamedTuple):
    """One node and how much of it: a row of B or a column of C."""

    level: int
    node: int
    weight: int


class NoisePlan(Protocol):
    """Which node noises enter release t, with which integer weights. One variance per level."""

    @property
    def name(self) -> str:
        """What it is called in tables."""

    @property
    def horizon(self) -> int:
        """How many releases it has."""

    @property
    def variances(self) -> tuple[Fraction, ...]:
        """The variance of the node noise of each level."""

    @property
    def shift(self) -> int:
        """Weights of `terms` are over 2^shift."""

    @property
    def smoothness(self) -> int:
        """The k for which the k-th differences of weights over time are sparse: 1 for steps, 2 for straight pieces."""

    @property
    def peak_weights(self) -> tuple[int, ...]:
        """For each level, the largest total size of its weights at one tick."""

    @property
    def node_count(self) -> int:
        """No series ever uses more nodes."""

    @property
    def cost(self) -> Fraction:
        """The largest column sum of C[v, j]^2 / variance(v), exactly: rho = cost / 2 for one unit of one series."""

    def terms(self, tick: int) -> Sequence[Term]:
        """Row `tick` of B: the nodes that enter this release."""

    def influence(self, tick: int) -> Sequence[Term]:
        """Column `tick` of C: how an event of this tick shifts the nodes' sums."""

    def variance_profile(self) -> NDArray[np.float64]:
        """The variance of each release, for tick 1 to the horizon, in floating point: for predictions only."""


def variance_at(plan: NoisePlan, tick: int) -> Fraction:
    """The variance of the noise of one release, exactly, before its rounding.

    >>> from pianissimo.counting import HaarPlan
    >>> variance_at(HaarPlan(levels=1, variances=(Fraction(1), Fraction(4)), horizon=2), 1)
    Fraction(5, 4)
    """
    total = sum((term.weight**2 * plan.variances[term.level] for term in plan.terms(tick)), start=Fraction(0))
    return total * Fraction(1, 1 << (2 * plan.shift))


def covariance_at(plan: NoisePlan, tick: int, other: int) -> Fraction:
    """The covariance of the noises of two releases of one series, exactly.

    >>> from pianissimo.counting import TreePlan
    >>> covariance_at(TreePlan(base=2, variance=Fraction(1), horizon=7), 6, 7)
    Fraction(2, 1)
    """
    weights = {(term.level, term.node): term.weight for term in plan.terms(other)}
    total = sum(
        (
            term.weight * weights.get((term.level, term.node), 0) * plan.variances[term.level]
            for term in plan.terms(tick)
        ),
        start=Fraction(0),
    )
    return total * Fraction(1, 1 << (2 * plan.shift))


def half_width(plan: NoisePlan, tick: int, coverage: float) -> int:
    """The whole number h such that estimate - h .. estimate + h covers the truth with this chance.

    The normal quantile of the noise's exact variance, widened by the rounding and rounded up. It is a statement about
    accuracy, checked by enumeration and simulation in the tests; no promise of privacy rests on it.

    >>> from pianissimo.counting import TreePlan
    >>> half_width(TreePlan(base=2, variance=Fraction(100), horizon=7), 1, 0.95)
    20
    """
    check_probability(coverage=coverage)
    quantile = NormalDist().inv_cdf((1 + coverage) / 2)
    rounding = 0.5 if plan.shift else 0.0
    return int(np.ceil(quantile * float(variance_at(plan, tick)) ** 0.5 + rounding))


def round_variance_up(variance: Fraction) -> Fraction:
    """The next multiple of 1/64.

    >>> round_variance_up(Fraction(1, 3))
    Fraction(11, 32)
    """
    return Fraction(-(-variance * VARIANCE_GRID // 1), VARIANCE_GRID)


def noise_distance(plan: NoisePlan, series: int) -> Fraction:
    """How far the noise of so many series, over the whole run, is from the ideal noise in total variation.

    Only the series that neighbors differ in enter: the others have one law in both worlds.

    >>> from pianissimo.counting import TreePlan
    >>> noise_distance(TreePlan(base=2, variance=Fraction(1), horizon=7), 1) <= 16 * DRAW_DISTANCE
    True
    """
    return plan.node_count * series * DRAW_DISTANCE


def check_plan(plan: NoisePlan) -> None:
    """Refuse a plan whose noise could leave 64 bits or whose variances no sampler has."""
    check_at_least(1, horizon=plan.horizon)
    peak = 0
    for level, (variance, weight) in enumerate(zip(plan.variances, plan.peak_weights, strict=True)):
        try:
            peak += weight * _core.sampler_bound("gaussian", variance.numerator, variance.denominator)
        except ValueError as error:
            raise ParameterError(f"{error}, got variance {float(variance):g} on level {level}") from None
    if not 2 * peak < _LARGEST_NUMERATOR:
        raise ParameterError(
            f"the noise of a {plan.name} plan must fit in 62 bits, got {peak.bit_length()}: "
            "take a shorter horizon or a larger share of the budget"
        )


def evaluate(plan: NoisePlan, noise: Noise, tick: int, keys: Keys) -> NDArray[np.int64]:
    """The noise of one release for each key, from nothing: numerators over 2^shift.

    >>> from pianissimo.counting import HaarPlan
    >>> from pianissimo.testing import NoNoise
    >>> evaluate(HaarPlan.calibrated(horizon=8, rho=0.5), NoNoise(), 3, np.zeros((2, 2), np.uint64))
    array([0, 0])
    """
    total = np.zeros(len(keys), dtype=np.int64)
    values = np.empty(len(keys), dtype=np.int64)
    for term in plan.terms(tick):
        _draw(plan, noise, (term.level, term.node), keys, values)
        _core.add_scaled(total, term.weight, values)
    return total


def rounded(counts: NDArray[np.int64], numerators: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    """counts + floor(numerators / 2^shift + 1/2).

    >>> rounded(np.array([10, 10]), np.array([1, -1]), 1)
    array([11, 10])
    """
    return _core.release(counts, numerators, shift)


class PlanNoise:
    """The noise of a growing list of series, release after release, with what the next tick needs kept at hand.

    Over time the weights of a node are pieces of low degree, so the k-th difference of the noise over ticks is a sum
    over the few nodes that begin, bend or end. Kept per series: the noise, its first k - 1 differences and the values
    of the nodes in use. It is a cache: dropped at any time, it is made anew by `evaluate`'s arithmetic, with equal
    results.
    """

    def __init__(self, plan: NoisePlan) -> None:
        self._plan = plan
        self._noise: Noise | None = None
        self._tick = 0
        self._count = 0
        self._keys: Keys = np.empty((0, 2), dtype=np.uint64)
        self._rows: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64) for _ in range(plan.smoothness)]
        self._nodes: dict[tuple[int, int], Integers] = {}
        self._types = [_narrowest_type(variance) for variance in plan.variances]

    def at(self, noise: Noise, tick: int, count: int, keys_from: Callable[[int], Keys]) -> NDArray[np.int64]:
        """Numerators of the noise at `tick` for the first `count` series; `keys_from(n)` gives keys from the n-th."""
        if noise is not self._noise or tick not in (self._tick, self._tick + 1):
            self._count = 0
            self._nodes.clear()
        elif tick == self._tick + 1:
            self._step(noise)
        self._noise, self._tick = noise, tick
        if count > self._count:
            self._extend(noise, count, keys_from)
        return self._rows[0][:count]

    def _step(self, noise: Noise) -> None:
        """From the tick before to the next one, for the series there are."""
        count, rows = self._count, self._rows
        for lower, upper in pairwise(rows):
            np.add(lower[:count], upper[:count], out=lower[:count])
        before = self._difference_weights(self._tick, len(rows) - 1)
        now = self._difference_weights(self._tick + 1, len(rows) - 1)
        for node in sorted(now.keys() | before.keys()):
            change = now.get(node, 0) - before.get(node, 0)
            if change:
                if node not in self._nodes:
                    values: Integers = np.empty(len(rows[0]), dtype=self._types[node[0]])
                    _draw(self._plan, noise, node, self._keys[:count], values[:count])
                    self._nodes[node] = values
                _core.add_scaled(rows[-1][:count], change, self._nodes[node][:count])
        self._drop_ended_nodes(self._tick + 1)

    def _extend(self, noise: Noise, count: int, keys_from: Callable[[int], Keys]) -> None:
        """More series, as of the present tick."""
        start = self._count
        keys = keys_from(start)[: count - start]
        self._keys = _grown(self._keys if start else keys[:0], start, count)
        self._keys[start:count] = keys
        self._rows = [_grown(row, start, count) for row in self._rows]
        for row in self._rows:
            row[start:count] = 0
        weights = [self._difference_weights(self._tick, order) for order in range(len(self._rows))]
        for node in sorted(set().union(*weights)):
            kept = self._nodes.get(node, np.empty(0, dtype=self._types[node[0]]))
            values = self._nodes[node] = _grown(kept, start, count)
            _draw(self._plan, noise, node, keys, values[start:count])
            for row, weight in zip(self._rows, weights, strict=True):
                _core.add_scaled(row[start:count], weight.get(node, 0), values[start:count])
        self._count = count

    def _difference_weights(self, tick: int, order: int) -> dict[tuple[int, int], int]:
        """What each node weighs in the `order`-th difference of the noise: N(t), N(t+1) - N(t), and so on."""
        weights: dict[tuple[int, int], int] = {}
        factor = (-1) ** order
        for step in range(order + 1):
            for term in self._terms(tick + step):
                place = (term.level, term.node)
                weights[place] = weights.get(place, 0) + factor * term.weight
            factor = -factor * (order - step) // (step + 1)
        return weights

    def _terms(self, tick: int) -> Sequence[Term]:
        return self._plan.terms(tick) if 1 <= tick <= self._plan.horizon else ()

    def _drop_ended_nodes(self, tick: int) -> None:
        used = {(term.level, term.node) for step in range(len(self._rows)) for term in self._terms(tick + step)}
        for node in self._nodes.keys() - used:
            del self._nodes[node]


def _draw(plan: NoisePlan, noise: Noise, node: tuple[int, int], keys: Keys, out: Integers) -> None:
    # Noise is a function of where it stands: asked again for the same node, it answers the same.
    noise.at(*node).gaussian(variance=plan.variances[node[0]], keys=keys, out=out)


def _narrowest_type(variance: Fraction) -> type[np.int16] | type[np.int32] | type[np.int64]:
    bound = _core.sampler_bound("gaussian", variance.numerator, variance.denominator)
    if bound <= np.iinfo(np.int16).max:
        return np.int16
    return np.int32 if bound <= np.iinfo(np.int32).max else np.int64


def _grown(array: Array, filled: int, count: int) -> Array:
    """The array with room for `count`, its first `filled` values kept; it grows by half so that growing stays cheap."""
    if len(array) >= count:
        return array
    room = count if filled == 0 else max(count, filled + filled // 2)
    larger = cast(Array, np.empty((room, *array.shape[1:]), dtype=array.dtype))
    larger[:filled] = array[:filled]
    return larger
