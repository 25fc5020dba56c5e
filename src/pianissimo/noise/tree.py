"""Trees of noisy partial sums: of base r, over doubling periods, and one of 16 children that is read top down.

*Trees.* Cardoso and Rogers, "Differentially private histograms under continual observation", 2022, Algorithm 1
(BaseMech), with its slips corrected: digits and levels both count from 0, the number of levels comes from integer
division, the l2-sensitivity is sqrt(L). Cell (i, l) covers ticks (l - 1) r^i + 1 .. l r^i; release t sums the cells
that its base-r digits name. An event lies in one cell of each level.

*Doubling periods:* a fresh binary tree for each period twice as long as the one before. Chan, Shi and Song, "Private
and continual release of statistics", TISSEC 2011, Section 6 (hybrid mechanism), in the form of Dong, Luo and Yi,
"Continual observation of joins under differential privacy", 2023, Algorithm 2. Period l holds ticks 2^l .. 2^(l+1) - 1
and a tree of l + 1 levels; finished periods contribute the noise of their roots. An event meets one period only. It
needs no horizon, and pays for that: three to five times the best possible error.

*Top down*, the counter for pure epsilon. Every node of a k-ary tree, and the total, gets discrete Laplace noise. The
estimate of a running sum takes the total's share t / T and, level by level, corrects it by how the children of the
current node deviate from equal parts: child e weighs 1 - a, f - a or -a for e before, at or after the child i that
holds t, where a is the fraction of the current node before t and f the fraction of child i. An event hits one node of
each level and the total, each by one, so epsilon is the sum of the levels', exactly, also for inputs that adapt. This
is hierarchical consistency (Hay et al. 2010) in the form of running sums, with random access.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.noise.laws import LossTarget, NodeNoise
from pianissimo.noise.plan import LevelPlan, Term, Ticks, TunedPlan, as_ticks, check_levels, check_plan, sum_of_levels


def digits_of(number: int, base: int) -> list[int]:
    """The base-r digits, lowest first, by integer division: logarithms are wrong for 243 = 3^5 and others."""
    digits = []
    while number:
        number, digit = divmod(number, base)
        digits.append(digit)
    return digits


def largest_digit_sum(horizon: int, base: int) -> int:
    """The largest base-r digit sum among 1 .. horizon."""
    digits = digits_of(horizon, base)
    best, above = sum(digits), 0
    for place in reversed(range(len(digits))):
        best = max(best, above + digits[place] - 1 + (base - 1) * place)
        above += digits[place]
    return best


def best_base(horizon: int, *, pure: bool = False) -> int:
    """The base with the least largest error, exactly: it minimises levels * largest digit sum (levels^2 if pure).

    Base horizon + 1, a sum without a tree, is allowed.
    """
    check_at_least(1, horizon=horizon)
    power = 2 if pure else 1
    best, least = horizon + 1, horizon
    for base in range(2, horizon + 1):
        # t = base - 1 has digit sum base - 1, and there are at least two levels.
        if 2**power * (base - 1) > least:
            break
        product = len(digits_of(horizon, base)) ** power * largest_digit_sum(horizon, base)
        if product < least or (product == least and base < best):
            best, least = base, product
    return best


@identified("tree-plan")
@dataclass(frozen=True, kw_only=True)
class TreePlan(TunedPlan):
    """A base-r tree: release t sums one node for each unit of each base-r digit of t.

    Guarantee: cost L / variance (Gaussian) or L / scale (Laplace), L the number of base-r digits of the horizon.
    Error: variance * (digit sum of t).
    Cost: at most (r - 1) L nodes at a tick; one fresh draw per tick.
    """

    base: int
    """r, at least 2."""

    noise: NodeNoise
    """On each node."""

    shift: ClassVar[int] = 0
    smoothness: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_at_least(2, base=self.base)
        check_plan(self)

    @classmethod
    def tuned(cls, horizon: int, target: LossTarget, base: int | None = None) -> Self:
        """The tree of this loss, of the best base unless one is given."""
        base = best_base(horizon, pure=target.pure) if base is None else base
        (noise,) = set(target.spread([Fraction(1)] * len(digits_of(horizon, base))))
        return cls(base=base, noise=noise, horizon=horizon)

    @cached_property
    def levels(self) -> int:
        """L, the number of base-r digits of the horizon."""
        return len(digits_of(self.horizon, self.base))

    @property
    def name(self) -> str:
        return "binary tree" if self.base == 2 else f"base-{self.base} tree"

    @property
    def noises(self) -> tuple[NodeNoise, ...]:
        return (self.noise,) * self.levels

    @property
    def peak_weights(self) -> tuple[int, ...]:
        return (self.base - 1,) * self.levels

    @property
    def node_count(self) -> int:
        return sum(self.horizon // self.base**level for level in range(self.levels))

    @property
    def cost(self) -> Fraction:
        # An event moves one cell of each level by one.
        return self.levels * self.noise.price(1)

    def terms_at(self, position: int) -> list[Term]:
        terms = []
        cells = position
        for level in range(self.levels):
            terms += [Term(level, cells - back, 1) for back in range(cells % self.base)]
            cells //= self.base
        return terms

    def influence(self, tick: int) -> list[Term]:
        return [Term(level, (tick - 1) // self.base**level + 1, 1) for level in range(self.levels)]

    def bound_tick(self, level: int, node: int) -> int:
        # A cell is first used when its last tick is released.
        return node * int(self.base**level)

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        numbers = as_ticks(ticks, self.horizon)
        periods = [self.base ** (level + 1) for level in range(self.levels)]
        sums = sum_of_levels(periods, lambda level, inside: inside // self.base**level, numbers)
        return sums * float(self.noise.variance)


_ROOT = 1


@identified("doubling-plan")
@dataclass(frozen=True, kw_only=True)
class DoublingPlan(TunedPlan):
    """Binary trees over periods of doubling length.

    Guarantee: the cost is the largest over periods l of (l + 1) times the price of its noise.
    Error: the variances of the roots of past periods, plus one node for each one in the binary form of the tick's place
    in its period.
    Cost: at most 2 log2(t) nodes at a tick; one fresh draw per tick.
    """

    noises: tuple[NodeNoise, ...]
    """On the nodes of each period's tree, of which there are more than log2(horizon)."""

    name: ClassVar[str] = "doubling"
    shift: ClassVar[int] = 0
    smoothness: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not self.horizon < 2 ** len(self.noises):
            raise ParameterError(f"horizon must be below 2^periods = {2 ** len(self.noises)}, got {self.horizon}")
        check_plan(self)

    @classmethod
    def tuned(cls, horizon: int, target: LossTarget) -> Self:
        noises = tuple(target.spread([Fraction(1)] * (period + 1))[0] for period in range(horizon.bit_length()))
        return cls(noises=noises, horizon=horizon)

    @property
    def peak_weights(self) -> tuple[int, ...]:
        return tuple(max(1, period) for period in range(len(self.noises)))

    @property
    def node_count(self) -> int:
        return 2 << len(self.noises)

    @cached_property
    def cost(self) -> Fraction:
        # An event lies in one period, and moves one node of each of its levels.
        return max((period + 1) * noise.price(1) for period, noise in enumerate(self.noises))

    def terms_at(self, position: int) -> list[Term]:
        period = position.bit_length() - 1
        terms = [Term(past, _ROOT, 1) for past in range(period)]
        leaves = position - 2**period + 1
        start = 0
        for height in reversed(range(period + 1)):
            if leaves >> height & 1:
                # Node numbers as in a heap: the root is 1, the children of n are 2 n and 2 n + 1.
                terms.append(Term(period, (2**period + start) >> height, 1))
                start += 2**height
        return terms

    def influence(self, tick: int) -> list[Term]:
        period = tick.bit_length() - 1
        return [Term(period, tick >> height, 1) for height in range(period + 1)]

    def bound_tick(self, level: int, node: int) -> int:
        # A node is first used when its last tick is released.
        height = level - node.bit_length() + 1
        return ((node + 1) << height) - 1

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        numbers = as_ticks(ticks, self.horizon)
        variances = np.array([float(noise.variance) for noise in self.noises])
        periods = np.frexp(numbers.astype(np.float64))[1] - 1
        past = np.concatenate([[0.0], np.cumsum(variances)])[periods]
        leaves = numbers - (1 << periods) + 1
        ones = np.bitwise_count(leaves).astype(np.float64)
        profile: NDArray[np.float64] = past + ones * variances[periods]
        return profile


ARITY_BITS = 4
ARITY = 1 << ARITY_BITS
OPEN_HEIGHT = 8
"""An open horizon has 16^8 = 2^32 ticks."""


@identified("top-down-plan")
@dataclass(frozen=True, kw_only=True)
class TopDownPlan(LevelPlan):
    """Laplace noise on a 16-ary tree and its total, with the weights of a top-down estimate.

    Guarantee: the cost is the sum of the levels' prices: a pure epsilon for Laplace noise.
    Error: variance (t/T)^2 v_0 + the levels' squared weights.
    Cost: 16 log16(T) + 1 nodes at a tick; about one fresh draw per tick.
    """

    height: int
    """H: the tree has 16^H leaves."""

    def __post_init__(self) -> None:
        check_at_least(1, height=self.height)
        check_levels(self, levels=self.height, leaves=ARITY**self.height)

    @classmethod
    def tuned(cls, horizon: int, target: LossTarget) -> Self:
        height = 1
        while ARITY**height < horizon:
            height += 1
        # Mean squared weights over t: (k - 1/k) / 6 on the leaves, (k - 1) / 6 above them, 1/3 for the total.
        shares = target.best_shares([1 / 3, (ARITY - 1 / ARITY) / 6] + [(ARITY - 1) / 6] * (height - 1))
        return cls(height=height, noises=tuple(target.spread(shares)), horizon=horizon)

    @classmethod
    def open(cls, *, epsilon: Fraction | float) -> Self:
        target = LossTarget.of(rho=None, epsilon=epsilon)
        shares = [0.05] + [min(1.0, (2 / level) ** 1.2) for level in range(1, OPEN_HEIGHT + 1)]
        noises = tuple(target.spread([Fraction(share) for share in shares]))
        return cls(height=OPEN_HEIGHT, noises=noises, horizon=ARITY**OPEN_HEIGHT)

    @property
    def name(self) -> str:
        return "top-down" if self.height < OPEN_HEIGHT else "open top-down"

    @property
    def shift(self) -> int:
        return ARITY_BITS * self.height

    @property
    def peak_weights(self) -> tuple[int, ...]:
        # For a fraction a before t the weights have total size at most 2 a (1 - a) k + 2 <= k / 2 + 2.
        return (2**self.shift,) + ((2 ** (ARITY_BITS - 1) + 2) << self.shift,) * self.height

    @property
    def node_count(self) -> int:
        return 1 + sum(1 << ARITY_BITS * (self.height - level) for level in range(self.height))

    def terms_at(self, position: int) -> list[Term]:
        terms = [Term(0, 0, position)]
        for level in range(1, self.height + 1):
            size, child = ARITY**level, ARITY ** (level - 1)
            before = position % size
            if before:
                scale = 2 ** (self.shift - ARITY_BITS * level)
                held, inside = divmod(before, child)
                first = position // size * ARITY
                for place in range(ARITY):
                    whole = size if place < held else inside * ARITY if place == held else 0
                    if whole != before:
                        terms.append(Term(level, first + place, (whole - before) * scale))
        return terms

    def influence(self, tick: int) -> list[Term]:
        leaf = tick - 1
        column = [Term(0, 0, 1)]
        column += [Term(level, leaf // ARITY ** (level - 1), 1) for level in range(1, self.height + 1)]
        return column

    def bound_tick(self, level: int, node: int) -> int:
        # A node has weight as soon as its parent does, and is drawn one tick earlier.
        return int(node // ARITY * ARITY**level) if level else 0

    def variance_profile(self, ticks: Ticks = None) -> NDArray[np.float64]:
        numbers = as_ticks(ticks, self.horizon)

        def squares(below: int, before: NDArray[np.int64]) -> NDArray[np.float64]:
            # At a share of 0 all weights are 0: nothing is held, and no part of a child.
            share = before / ARITY ** (below + 1)
            held, inside = np.divmod(before, ARITY**below)
            fraction = inside / ARITY**below
            found = held * (1 - share) ** 2 + (fraction - share) ** 2 + (ARITY - 1 - held) * share**2
            weights: NDArray[np.float64] = found * float(self.noises[below + 1].variance)
            return weights

        periods = [ARITY**level for level in range(1, self.height + 1)]
        total = (numbers / ARITY**self.height) ** 2 * float(self.noises[0].variance)
        profile: NDArray[np.float64] = sum_of_levels(periods, squares, numbers) + total
        return profile
