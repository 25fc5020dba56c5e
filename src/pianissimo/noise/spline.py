"""The multiscale quadratic spline plan: within 1.2 of the best possible error, with random access in exact integers.

T = 4^H. Level 0 has one spike for each t; level h = 1..H has a node for each quadratic B-spline on [c, c + 3] 4^h, of
which three cover a tick. Node noise stands on lattices (1/1024, 1/512 below the top, 1/32 at the top), drawn as whole
numbers.

The strategy matrix C is written down, not solved for. The step of an event at tick j is smoothed at level h by spline
coefficients s_h that depend on the base-4 digits of j - 1 (tables G and TOP, in 32nds); c_H = s_H, c_h = s_h minus
the refinement of s_(h+1), c_0 = the step minus the spline s_1. The sum telescopes to the step, so B C = M. Its cost
is a sum of terms in neighboring digits, so that the worst event is found by a recursion over digits in exact
rationals; the recursion does not know that nodes beyond the edges are cut off, and so rounds against us. Every plan
is certified when it is made.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.noise.laws import GaussianNode, LossTarget, NodeNoise, gaussian_node
from pianissimo.noise.plan import LevelPlan, Term, Ticks, as_ticks, check_levels, sum_of_levels

LEAST_HEIGHT = 2
SPIKE_LATTICE, MIDDLE_LATTICE, TOP_LATTICE = 1024, 512, 32
TOP_FACTOR = Fraction(8, 5)
"""How much more variance the top level has than the others."""

G = ((2, 2, 25, 30, 30), (2, -1, 19, 32, 30), (2, 0, 13, 33, 30), (2, 2, 7, 30, 30))
TOP = ((-3, 27, 18), (-5, 19, 20), (-4, 11, 17), (-19, 9, 19))
REFINEMENT = (1, 3, 6, 10, 12, 12, 10, 6, 3, 1)
_REACH = 16


@identified("spline-plan")
@dataclass(frozen=True, kw_only=True)
class SplinePlan(LevelPlan):
    """Quadratic spline noise at scales 4^h: the least error of all plans with random access.

    Guarantee: the cost is certified by a recursion over digits, exactly or rounded up.
    Error: variance at most tau^2 (1 + 0.59375 (H - 1) + 0.95), nearly the same at all ticks, also at the first.
    Cost: 3 log4(T) + 1 nodes at a tick; 1.33 fresh draws per tick.
    """

    height: int
    """H: the plan has 4^H ticks."""

    name: ClassVar[str] = "spline"
    smoothness: ClassVar[int] = 3

    def __post_init__(self) -> None:
        check_at_least(LEAST_HEIGHT, height=self.height)
        check_levels(self, levels=self.height, leaves=4**self.height)

    @classmethod
    def tuned(cls, horizon: int, target: LossTarget) -> Self:
        if target.pure:
            raise ParameterError("a spline plan has Gaussian noise and must be given a rho, got an epsilon")
        height = LEAST_HEIGHT
        while 4**height < horizon:
            height += 1
        # With variances tau^2, .., tau^2, 1.6 tau^2 the cost is S_H / tau^2: the recursion for tau = 1 gives S_H.
        unit = [Fraction(lattice**2) for lattice in _lattices(height)]
        unit[-1] *= TOP_FACTOR
        tau_squared = certified_cost(tuple(GaussianNode(variance) for variance in unit)) / (2 * target.loss)
        noises = tuple(gaussian_node(variance * tau_squared) for variance in unit)
        return cls(height=height, noises=noises, horizon=horizon)

    @property
    def shift(self) -> int:
        return 4 * self.height + 6

    @property
    def peak_weights(self) -> tuple[int, ...]:
        # The three weights of a level sum to 2 s^2; see `terms_at`.
        below = (2 ** (4 * self.height - 3),) * (self.height - 1)
        return (2 ** (4 * self.height - 4), *below, 2 ** (4 * self.height + 1))

    @property
    def node_count(self) -> int:
        return sum(4 ** (self.height - level) + 3 for level in range(self.height + 1))

    @cached_property
    def cost(self) -> Fraction:
        return certified_cost(self.noises)

    def terms_at(self, position: int) -> list[Term]:
        terms = [Term(0, position, 2 ** (4 * self.height - 4))]
        for level in range(1, self.height + 1):
            size = 4**level
            cell, inside = divmod(position, size)
            # Over 2 s^2 and the level's lattice: 2^(4H + 6) / (512 * 2 * 16^h), and 1 at the top.
            scale = 2 ** (4 * (self.height - level) - 4) if level < self.height else 1
            weights = (
                (cell, inside**2),
                (cell - 1, size**2 + 2 * inside * size - 2 * inside**2),
                (cell - 2, (size - inside) ** 2),
            )
            # Splines begin two cells before the first tick: numbers are moved up by two to stay non-negative.
            terms += [Term(level, node + 2, weight * scale) for node, weight in weights if weight]
        return terms

    def influence(self, tick: int) -> list[Term]:
        return list(_column(self.height, tick))

    def bound_tick(self, level: int, node: int) -> int:
        # Drawn two ticks before its first use: tick `node` for a spike, one tick into its cell for a spline.
        first_use = node if level == 0 else (node - 2) * 4**level + 1
        return max(0, int(first_use) - 2)

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        numbers = as_ticks(ticks, self.horizon)
        lattices = _lattices(self.height)

        def squares(below: int, inside: NDArray[np.int64]) -> NDArray[np.float64]:
            level = below + 1
            part = inside / 4**level
            weights: NDArray[np.float64] = (part**2 / 2) ** 2 + (0.5 + part - part**2) ** 2 + ((1 - part) ** 2 / 2) ** 2
            return weights * (float(self.noises[level].variance) / lattices[level] ** 2)

        periods = [4**level for level in range(1, self.height + 1)]
        return sum_of_levels(periods, squares, numbers) + float(self.noises[0].variance) / SPIKE_LATTICE**2


@lru_cache(maxsize=256)
def _column(height: int, tick: int) -> tuple[Term, ...]:
    event = tick - 1
    lattices = _lattices(height)
    column = [_whole_term(0, spike, SPIKE_LATTICE, value) for spike, value in _spike_coefficients(event, 4**height)]
    for level in range(1, height):
        cells = 4 ** (height - level)
        own = event // 4**level
        nodes = range(max(-2, own - _REACH), min(cells - 1, own + _REACH) + 1)
        above = _top_step if level + 1 == height else _smooth_step
        for node in nodes:
            value = _smooth_step(level, event, node) - _refined(above, level + 1, event, node)
            column.append(_whole_term(level, node + 2, lattices[level], value))
    column += [_whole_term(height, node + 2, TOP_LATTICE, _top_step(height, event, node)) for node in (-2, -1, 0)]
    return tuple(term for term in column if term.weight)


def certified_cost(noises: tuple[NodeNoise, ...]) -> Fraction:
    """The most that one event can cost, by a recursion over the base-4 digits of its tick, in exact rationals.

    The squared size of c_0 depends on the lowest digit, that of c_h on digits h and h - 1, that of c_H on the highest.
    """
    lattices = _lattices(len(noises) - 1)
    scales = [Fraction(lattice**2) / noise.variance for lattice, noise in zip(lattices, noises, strict=True)]
    # best[d]: the largest cost of the levels so far over all lower digits, given that the last digit is d.
    best = [_spike_size(digit) * scales[0] for digit in range(4)]
    for level in range(1, len(noises) - 1):
        below_top = level == len(noises) - 2
        sizes = [[_middle_size(high, low, below_top=below_top) for low in range(4)] for high in range(4)]
        best = [max(best[low] + size * scales[level] for low, size in enumerate(row)) for row in sizes]
    return max(best[digit] + _top_size(digit) * scales[-1] for digit in range(4))


def _lattices(height: int) -> list[int]:
    return [SPIKE_LATTICE] + [MIDDLE_LATTICE] * (height - 1) + [TOP_LATTICE]


def _whole_term(level: int, node: int, lattice: int, value: Fraction) -> Term:
    shift = value * lattice
    if shift.denominator != 1:
        raise ParameterError("a column of a spline plan must lie on the lattices of its noise, got another value")
    return Term(level, node, int(shift))


def _smooth_step(level: int, event: int, node: int) -> Fraction:
    """s_h: the spline coefficients of the smoothed step below the top."""
    place = node - event // 4**level
    if place < -3:
        return Fraction(0)
    return Fraction(1) if place > 1 else Fraction(G[event // 4 ** (level - 1) % 4][place + 3], 32)


def _top_step(level: int, event: int, node: int) -> Fraction:
    """s_H: the three coefficients of the top level."""
    return Fraction(TOP[event // 4 ** (level - 1) % 4][node + 2], 32) if -2 <= node <= 0 else Fraction(0)


def _refined(step: Callable[[int, int, int], Fraction], level: int, event: int, node: int) -> Fraction:
    """The coefficients at a level of what the next level's coefficients describe."""
    total = Fraction(0)
    for place, mask in enumerate(REFINEMENT):
        cell, rest = divmod(node - place, 4)
        if rest == 0:
            total += Fraction(mask, 16) * step(level, event, cell)
    return total


def _spike_coefficients(event: int, ticks: int) -> Iterator[tuple[int, Fraction]]:
    """c_0 at the ticks around the event: the step minus its spline of level 1."""
    for tick in range(max(1, event - _REACH), min(ticks, event + 2 * _REACH) + 1):
        cell, inside = divmod(tick, 4)
        weights = ((cell, inside**2), (cell - 1, 16 + 8 * inside - 2 * inside**2), (cell - 2, (4 - inside) ** 2))
        smooth = sum((Fraction(weight, 32) * _smooth_step(1, event, node) for node, weight in weights), Fraction(0))
        yield tick, (tick > event) - smooth


_MIDDLE = 4**5
"""A place far from all edges, a multiple of all cells that the tables look at."""


@cache
def _spike_size(digit: int) -> Fraction:
    event = _MIDDLE + digit
    return sum((value**2 for _, value in _spike_coefficients(event, 2 * _MIDDLE)), Fraction(0))


@cache
def _middle_size(high: int, low: int, *, below_top: bool) -> Fraction:
    # At level 1: digit 1 of the event is `high`, digit 0 is `low`. Just below the top there are only 4 cells.
    event = 4 * high + low + (0 if below_top else _MIDDLE)
    own = event // 4
    nodes = range(-2, 4) if below_top else range(own - _REACH, own + _REACH + 1)
    above = _top_step if below_top else _smooth_step
    values = (_smooth_step(1, event, node) - _refined(above, 2, event, node) for node in nodes)
    return sum((value**2 for value in values), Fraction(0))


@cache
def _top_size(digit: int) -> Fraction:
    return sum((Fraction(value, 32) ** 2 for value in TOP[digit]), Fraction(0))
