"""The Haar plan: log2(T) + 1 node noises with tent-shaped weights, all arithmetic exact in 64 bits.

Horizon T = 2^L; node (0, 0) is the total, node (h, i) the interval [i 2^h, (i + 1) 2^h) of leaves. Event of tick j is
leaf j - 1: it moves the total by +1 and one node of each level by +1 in its left half, -1 in its right half, so the
cost is the sum of the levels' prices, exactly. Release t takes t / T of the total's noise and dist(t / 2^h, nearest
integer) of node (h, t >> h). The strategy matrix is that of Xiao, Wang and Gehrke (Privelet, 2011); random access in
exact integers is ours.

With skipping: the noise of a Haar tree varies with the position. In a tree of twice the size there are two positions or
more for each tick; the ticks take, in order, the positions of least variance. The choice depends on the levels' weights
alone, so it is public and the same for all series; positions grow, so an event has exactly one leaf, and the rows and
columns that are kept are again those of running sums. The price is that of one level more; the worst error falls to the
typical one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.noise.laws import LossTarget, NodeNoise
from pianissimo.noise.plan import LevelPlan, Term, Ticks, TunedPlan, as_ticks, check_levels, check_plan, sum_of_levels

_LONGEST_HORIZON = 2**22
_WEIGHT_BITS = 12
_HALVINGS = 40

OPEN_LEVELS = 32
"""An open horizon has 2^32 ticks: 8,000 years of minutes, 136 years of seconds."""


@identified("haar-plan")
@dataclass(frozen=True, kw_only=True)
class HaarPlan(LevelPlan):
    """Haar wavelet noise: close to the best possible error, one draw per level to reach any tick from nothing.

    Guarantee: the cost is the sum of the levels' prices.
    Error: variance (t/T)^2 v_0 + sum over h of dist(t / 2^h, Z)^2 v_h.
    Cost: L + 1 nodes at a tick; one fresh draw per tick.
    """

    levels: int
    """L: the tree has 2^L leaves."""

    def __post_init__(self) -> None:
        check_at_least(1, levels=self.levels)
        check_levels(self, levels=self.levels, leaves=2**self.levels)

    @classmethod
    def tuned(cls, horizon: int, target: LossTarget, *, moves: bool = False) -> Self:
        """The plan of this loss; with `moves`, also if an event may leave one tick for a later one."""
        levels = max(1, (horizon - 1).bit_length())
        return cls(levels=levels, noises=_tuned_noises(levels, target, moves=moves), horizon=horizon)

    @classmethod
    def open(cls, *, rho: Fraction | float) -> Self:
        """The plan without an end in sight: 2^32 ticks, with weights that favor the lower levels.

        Its error at tick t is within a factor of 1.8 of the optimum for a horizon of t, at every t; there are no period
        boundaries.
        """
        target = LossTarget.of(rho=rho, epsilon=None)
        shares = [0.5, 1.2] + [min(1.0, (8 / level) ** 1.2) for level in range(2, OPEN_LEVELS + 1)]
        noises = tuple(target.spread([Fraction(share) for share in shares]))
        return cls(levels=OPEN_LEVELS, noises=noises, horizon=2**OPEN_LEVELS)

    @property
    def name(self) -> str:
        return "haar" if self.levels < OPEN_LEVELS else "open haar"

    @property
    def shift(self) -> int:
        return self.levels

    @property
    def peak_weights(self) -> tuple[int, ...]:
        return (2**self.levels,) + (2 ** (self.levels - 1),) * self.levels

    @property
    def node_count(self) -> int:
        return 1 << self.levels

    def terms_at(self, position: int) -> list[Term]:
        terms = [Term(0, 0, position)]
        for level in range(1, self.levels + 1):
            inside = position & (2**level - 1)
            if inside:
                weight = min(inside, 2**level - inside) << (self.levels - level)
                terms.append(Term(level, position >> level, weight))
        return terms

    def influence(self, tick: int) -> list[Term]:
        leaf = tick - 1
        column = [Term(0, 0, 1)]
        column += [Term(level, leaf >> level, 1 - 2 * (leaf >> (level - 1) & 1)) for level in range(1, self.levels + 1)]
        return column

    def bound_tick(self, level: int, node: int) -> int:
        # Used from its first tick on, and drawn one tick earlier.
        return node << level

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        return haar_profile(as_ticks(ticks, self.horizon), self.noises)


@identified("haar-skip-plan")
@dataclass(frozen=True, kw_only=True)
class HaarSkipPlan(TunedPlan):
    """Haar wavelet noise at the quietest positions of a tree of twice the size.

    Guarantee: the cost is the sum of the levels' prices, one level more than without skipping.
    Error: at most the variance of the T-th quietest position.
    Cost: L + 2 nodes at a tick, two fresh draws per tick on average; one bit a position, shared by all series.
    """

    tree: HaarPlan
    """The tree whose positions are used: of 2^(L + 1) leaves or more."""

    name: ClassVar[str] = "haar + skipping"

    # As its tree has them.
    noises = property(attrgetter("tree.noises"))
    shift = property(attrgetter("tree.shift"))
    peak_weights = property(attrgetter("tree.peak_weights"))
    node_count = property(attrgetter("tree.node_count"))
    cost = property(attrgetter("tree.cost"))

    def __post_init__(self) -> None:
        if not self.horizon <= min(self.tree.horizon, _LONGEST_HORIZON):
            raise ParameterError(
                f"horizon must be at most the tree's {self.tree.horizon} positions and {_LONGEST_HORIZON}, "
                f"got {self.horizon}; take the plan without skipping"
            )
        check_plan(self)

    @classmethod
    def tuned(cls, horizon: int, target: LossTarget, *, moves: bool = False) -> Self:
        """The plan of this loss; with `moves`, also if an event may leave one tick for a later one."""
        levels = max(1, (horizon - 1).bit_length()) + 1
        noises = _tuned_noises(levels, target, moves=moves)
        return cls(tree=HaarPlan(levels=levels, noises=noises, horizon=2**levels), horizon=horizon)

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """The position of each tick: those of least variance, the first ones where variances are equal.

        Variances are compared as whole numbers, with level weights of 12 bits, so that every machine chooses alike.
        """
        largest = max(noise.variance for noise in self.noises)
        weights = tuple(int(noise.variance / largest * 2**_WEIGHT_BITS) for noise in self.noises)
        return _quiet_positions(weights, self.horizon)

    def position(self, tick: int) -> int:
        return int(self.positions[tick - 1])

    def terms_at(self, position: int) -> list[Term]:
        return self.tree.terms_at(position)

    def influence(self, tick: int) -> list[Term]:
        return self.tree.influence(self.position(tick))

    def bound_tick(self, level: int, node: int) -> int:
        # The last tick before the node's first position.
        return int(np.searchsorted(self.positions, self.tree.bound_tick(level, node), side="right"))

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        positions = self.positions[as_ticks(ticks, self.horizon) - 1]
        if len(positions) < self.horizon:
            return haar_profile(positions, self.noises)
        return haar_profile(np.arange(1, 2**self.tree.levels + 1), self.noises)[positions - 1]


def mean_squared_weights(levels: int) -> list[float]:
    """The mean over t of each level's squared weight: the total's first, then those of levels 1 to L."""
    leaves = 2**levels
    total = (leaves + 1) * (2 * leaves + 1) / (6 * leaves**2)
    return [total] + [1 / 12 + 1 / (6 * 4**level) for level in range(1, levels + 1)]


def _tuned_noises(levels: int, target: LossTarget, *, moves: bool) -> tuple[NodeNoise, ...]:
    shares = target.best_shares(mean_squared_weights(levels))
    return tuple(target.spread(_shares_for_moves(shares) if moves and not target.pure else shares))


def _shares_for_moves(shares: Sequence[Fraction]) -> list[Fraction]:
    """Prices with the least mean squared error where neither an event nor a move may cost more than their sum.

    To minimise sum a_h / w_h with both sum w_h and 4 w_L + 2 (w_1 + .. + w_(L - 1)) bounded: w_h is proportional to
    sqrt(a_h), over sqrt(1 + 2 k) below the top and over sqrt(1 + 4 k) at it, with k such that both sums are equal, or
    0. `shares` are the sqrt(a_h). Card: units and windows, U4.
    """

    def split(k: float) -> list[Fraction]:
        below, top = Fraction(1 / math.sqrt(1 + 2 * k)), Fraction(1 / math.sqrt(1 + 4 * k))
        return [shares[0], *(share * below for share in shares[1:-1]), shares[-1] * top]

    def fits(found: Sequence[Fraction]) -> bool:
        return 4 * found[-1] + 2 * sum(found[1:-1]) <= sum(found)

    low, high = 0.0, 1.0
    if fits(split(low)):
        return split(low)
    while not fits(split(high)):
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(split(middle)) else (middle, high)
    return split(high)


@lru_cache(maxsize=2)
def _quiet_positions(weights: tuple[int, ...], horizon: int) -> NDArray[np.int64]:
    """The positions of least variance, in order; plans whose weights are the same share them."""
    levels = len(weights) - 1

    def loudness(below: int, inside: NDArray[np.int64]) -> NDArray[np.int64]:
        tent = _tent(below, inside) << (levels - below - 1)
        return tent * tent * weights[below + 1]

    places = np.arange(1, 2**levels + 1, dtype=np.int64)
    loud = sum_of_levels(_periods(levels), loudness, places) + places * places * weights[0]
    limit = np.partition(loud, horizon - 1)[horizon - 1]
    taken = loud < limit
    taken[np.flatnonzero(loud == limit)[: horizon - np.count_nonzero(taken)]] = True
    found: NDArray[np.int64] = places[taken]
    found.flags.writeable = False
    return found


def haar_profile(positions: NDArray[np.int64], noises: tuple[NodeNoise, ...]) -> NDArray[np.float64]:
    """The variance at each position of a Haar tree with these noises."""
    levels = len(noises) - 1

    def part(below: int, inside: NDArray[np.int64]) -> NDArray[np.float64]:
        distances: NDArray[np.float64] = (_tent(below, inside) / 2 ** (below + 1)) ** 2
        return distances * float(noises[below + 1].variance)

    total = (positions / 2**levels) ** 2 * float(noises[0].variance)
    profile: NDArray[np.float64] = sum_of_levels(_periods(levels), part, positions) + total
    return profile


def _periods(levels: int) -> list[int]:
    return [2**level for level in range(1, levels + 1)]


def _tent(below: int, inside: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far a place within a node of the level above `below` others is from its nearer end."""
    tent: NDArray[np.int64] = np.minimum(inside, 2 ** (below + 1) - inside)
    return tent
