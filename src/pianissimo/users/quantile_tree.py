"""Quantiles, the median, the k-th largest and smallest: all from one tree of noisy counts, for one budget.

Dong, Luo and Yi, Algorithm 6, with one shared truncation instead of one for each bin size, ties allowed, and the slips
of the paper corrected. The declared range is cut into 2^H cells. Bins of 1, 2, 4, .. 2^H cells are counted; an event
lies in one bin of each size, so it moves H + 1 series by one. All answers are made of these noisy counts, so any number
of them costs the same.

The counts of bins are made to agree: least squares over all of them, as by Hay, Rastogi, Miklau and Suciu, "Boosting
the accuracy of differentially private histograms through consistency", 2010, in two passes over the tree. How many
events lie in the first n cells is then known much better than from the bins that make them up, and its variance has a
closed form. Let v be the variance of a bin's noise, v_1 = v and 1 / v_l = 1 / v + 1 / (2 v_(l - 1)) that of the best
estimate of a bin of height l from the counts below it. A bin's estimate splits into halves by a difference that is
independent of it and of all differences further up, so that

    variance of the first n cells = (n / 2^H)^2 v_(H + 1) + sum over h = 1 .. H of t_h(n)^2 v_h / 2,

t_h(n) = 2 dist(n / 2^h, nearest integer): the tents of a Haar plan.

Quantiles are read off without a margin, and have an interval of values. It holds every cell that the noise cannot rule
out: a cell v is the q-quantile if the first v + 1 cells have at least the part q of all events and the first v have
less, and both are tested at v alone. The true cell passes both tests with the chance asked for, so no union over cells
is needed. The k-th largest is read off with a margin, so that with a chance of 1 - failure_probability it is not above
the true one: without a margin the noise of empty cells would look like events.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_probability
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.users.caps import CutOff
from pianissimo.users.counters import Law, Sensitivity
from pianissimo.users.heads import AnyHead, Bars, Codes, add_in_cells

DEEPEST = 16
"""A range has at most 2^16 cells."""

_MEDIAN = (Fraction(1, 2),)


@identified("quantiles-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilesHead(AnyHead):
    """Quantiles of a column of numbers within a declared range, over the accepted events.

    Values outside the range are moved into it, NaN is refused, and a null lies in no cell.
    """

    low: float
    """The least value."""

    high: float
    """The largest value."""

    depth: int = 10
    """H: the range has 2^H cells of equal width."""

    quantiles: tuple[Fraction, ...] = _MEDIAN
    """Which ones, each above 0 and below 1."""

    largest: tuple[int, ...] = ()
    """The k-th largest value for each of these k, from below: with k = 1, the maximum."""

    smallest: tuple[int, ...] = ()
    """The k-th smallest value for each of these k, from above: with k = 1, the minimum."""

    failure_probability: Fraction = Fraction(1, 20)
    """How often, at one tick, `largest` or `smallest` may stand on the wrong side of the true value."""

    add = staticmethod(add_in_cells)

    def __post_init__(self) -> None:
        AnyHead.__post_init__(self)
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ParameterError(f"low must be finite and below a finite high, got {self.low} and {self.high}")
        if not 1 <= self.depth <= DEEPEST:
            raise ParameterError(f"depth must be between 1 and {DEEPEST}, got {self.depth}")
        for quantile in self.quantiles:
            check_probability(quantile=quantile)
        for place in (*self.largest, *self.smallest):
            check_at_least(1, place=place)
        check_probability(failure_probability=self.failure_probability)

    @property
    def sensitivity(self) -> Sensitivity:
        # One bin of each size, each by one: H + 1 in total, and H + 1 in squares as well.
        return Sensitivity(total=self.depth + 1, squared=self.depth + 1)

    @property
    def cells(self) -> int:
        return 1 << self.depth

    @property
    def series(self) -> int:
        return (2 << self.depth) - 1

    def encode(self, column: pl.Series) -> Codes:
        if not column.dtype.is_numeric():
            raise InputError(f"values must be numbers, got {column.dtype}")
        missing, values = column.is_null().to_numpy(), column.cast(pl.Float64).fill_null(self.low).to_numpy()
        if np.isnan(values).any():
            raise InputError("values must be numbers, got NaN; drop these rows")
        places = (np.clip(values, self.low, self.high) - self.low) * (self.cells / (self.high - self.low))
        # An event without a value counts towards the cap and lies in no cell.
        codes: Codes = np.where(missing, -1, np.minimum(places.astype(np.int64), self.cells - 1))
        return codes

    def expand(self, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        bins = [totals]
        for _ in range(self.depth):
            bins.append(bins[-1].reshape(-1, 2).sum(axis=1))
        return np.concatenate(bins)

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> "UserQuantiles":  # noqa: ARG002
        return UserQuantiles(head=self, estimates=estimates, law=law, cut=cut)

    def edge(self, cell: int) -> float:
        """Where a cell begins; the one after the last begins where the range ends."""
        return self.low + (self.high - self.low) * cell / self.cells


@dataclass(frozen=True, slots=True, eq=False)
class UserQuantiles:
    """The noisy counts of all bins, the smallest first, and what follows from them."""

    head: QuantilesHead
    estimates: NDArray[np.int64]
    law: Law
    cut: CutOff

    @property
    def total(self) -> float:
        """The estimate of the number of all accepted events."""
        return float(self.below[-1])

    @property
    def below(self) -> NDArray[np.float64]:
        """The estimated number of events in the first n cells, for n = 0, 1, .., all."""
        return sums_below(self.estimates, self.head.depth)

    def quantile(self, quantile: Fraction) -> float:
        """The middle of the cell where the estimates cross this part of all, found by halving."""
        return self._crossing(self.below, float(quantile))

    def bars(self, quantile: Fraction, coverage: float, *, most_units: int | None = None) -> Bars:
        """Values that the quantile may have: all cells that the noise, at this coverage, cannot rule out.

        With `most_units`, also over what the cap cut off, where that is bounded.
        """
        check_probability(quantile=quantile, coverage=coverage)
        below, part = self.below, float(quantile)
        missing = (self.cut.most_missing(most_units) or 0) * max(part, 1 - part)
        margins = self._margins(part, coverage) + missing
        distance = below - part * below[-1]
        # Cell v: the first v + 1 cells may reach the part, and the first v may fall short of it.
        possible = np.flatnonzero((distance[1:] >= -margins[1:]) & (distance[:-1] <= margins[:-1]))
        middle = self._crossing(below, part)
        if not len(possible):
            return Bars(middle, middle)
        low, high = self.head.edge(int(possible[0])), self.head.edge(int(possible[-1]) + 1)
        return Bars(min(low, middle), max(high, middle))

    def kth_largest(self, place: int) -> float:
        """The k-th largest value, rounded down to its cell, or less; the low end if there are too few events."""
        below = self.below
        cell = cell_of_kth_largest(below[-1] - below[:-1], place, self._selection_margins()[:-1])
        return self.head.edge(max(cell, 0))

    def kth_smallest(self, place: int) -> float:
        """The k-th smallest value, rounded up to its cell, or more; the high end if there are too few events."""
        # As the k-th largest with the range turned round: the first n cells are its last ones.
        turned = self.below[:0:-1]
        cell = cell_of_kth_largest(turned, place, self._selection_margins()[:-1])
        return self.head.edge(self.head.cells - max(cell, 0))

    def to_dict(self) -> dict[str, float]:
        """What the head asks for, by name, as `0.5`, `largest 1`, `smallest 1`."""
        values = {f"{float(quantile):g}": self.quantile(quantile) for quantile in self.head.quantiles}
        values |= {f"largest {place}": self.kth_largest(place) for place in self.head.largest}
        return values | {f"smallest {place}": self.kth_smallest(place) for place in self.head.smallest}

    def _crossing(self, below: NDArray[np.float64], part: float) -> float:
        target = part * below[-1]
        first, after = 0, self.head.cells
        while after - first > 1:
            middle = (first + after) // 2
            first, after = (first, middle) if below[middle] >= target else (middle, after)
        return (self.head.edge(first) + self.head.edge(after)) / 2

    def _margins(self, part: float, coverage: float) -> NDArray[np.float64]:
        """How far noise moves (events in the first n cells) - part * (all events), at each n with this chance.

        The estimates are sums over many bins, with lighter tails than the noise of one bin has.
        """
        deviation = self.law.deviation
        factor = NormalDist().inv_cdf((1 + coverage) / 2)
        if deviation:
            factor = max(factor, self.law.half_width(coverage) / deviation)
        return factor * deviation * deviations_below(self.head.depth, part)

    def _selection_margins(self) -> NDArray[np.float64]:
        """For each n, how far the count of the cells from n on is off at most, at all n at once."""
        return self._margins(1.0, 1 - float(self.head.failure_probability) / self.head.cells)


def sums_below(estimates: NDArray[np.int64], depth: int) -> NDArray[np.float64]:
    """The counts of the first n cells, for n = 0 .. 2^depth, that fit all bins best."""
    ends = np.cumsum([1 << height for height in range(depth, -1, -1)])
    own = [bins.astype(np.float64) for bins in np.split(estimates, ends[:-1])]
    variances = subtree_variances(depth)
    # Upwards: a bin's own count and the sum of its halves, each weighted by how well it is known.
    best = own[:1]
    for height in range(1, depth + 1):
        trust = variances[height]
        best.append(trust * own[height] + (1 - trust) * best[-1].reshape(-1, 2).sum(axis=1))
    # Downwards: what the halves lack or have too much is shared equally.
    fitted = best[-1]
    for height in range(depth - 1, -1, -1):
        halves = best[height].reshape(-1, 2)
        fitted = (halves + ((fitted - halves.sum(axis=1)) / 2)[:, None]).reshape(-1)
    return np.concatenate([[0.0], np.cumsum(fitted)])


def cell_of_kth_largest(
    suffix: NDArray[np.float64] | NDArray[np.int64], place: int, margin: float | NDArray[np.float64]
) -> int:
    """The largest cell from which on there seem to be k events and a margin; -1 if there is none.

    `suffix` holds, for each cell, how many events lie in it or in later ones.
    """
    # Where nothing is uncertain, sums of floating-point halves are off by far less than this.
    enough = np.flatnonzero(suffix >= place + margin - 1e-6)
    return int(enough[-1]) if len(enough) else -1


@lru_cache(maxsize=DEEPEST)
def subtree_variances(depth: int) -> tuple[float, ...]:
    """Of the best estimate of a bin from all counts in it, for bins of 1, 2, 4, .. cells, over that of one count."""
    variances = [1.0]
    for _ in range(depth):
        variances.append(1 / (1 + 1 / (2 * variances[-1])))
    return tuple(variances)


@lru_cache(maxsize=256)
def deviations_below(depth: int, part: float) -> NDArray[np.float64]:
    """Of (events in the first n cells) - part * (all events), for each n, over that of one count."""
    numbers = np.arange((1 << depth) + 1)
    variances = subtree_variances(depth)
    squares = (numbers / (1 << depth) - part) ** 2 * variances[depth]
    for height in range(1, depth + 1):
        inside = numbers & ((1 << height) - 1)
        tents = np.minimum(inside, (1 << height) - inside) / (1 << (height - 1))
        squares += tents**2 * variances[height - 1] / 2
    return np.asarray(np.sqrt(squares))
