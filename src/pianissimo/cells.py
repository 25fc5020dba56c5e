"""Public cells of the real numbers, and what follows from noisy counts of them: quantiles and extremes.

Values are sorted into 2^H cells. Bins of 1, 2, 4, .. 2^H cells are counted; a value lies in one bin of each size, so it
moves H + 1 series by one. All answers are made of these noisy counts, so any number of them costs the same.

*Cells.* A declared range is cut into cells of equal width. Without a range cells follow the order of floating-point
numbers (`DoubleCells`): they are narrow near zero and wide far from it, each 1/512 of its values wide.

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

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_probability
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.noise.plan import normal_quantile

DEEPEST = 16
"""There are at most 2^16 cells."""

SELECTION_FAILURE = Fraction(1, 20)
"""How often, at one tick, an extreme may stand on the wrong side of the true value."""

Codes = NDArray[np.int64]
"""The cell of each row; negative where it lies in none."""


class Bars(NamedTuple):
    """The ends of an interval that covers the truth."""

    low: float
    high: float


def in_order(parts: Sequence[Fraction], estimates: Sequence[float], bars: Sequence[Bars]) -> list[tuple[float, Bars]]:
    """Estimates and bars of quantiles, none above those of a larger part: noise alone may put the median above p90.

    The estimates are sorted, and each bar is widened: its low end to the least of its own and all larger parts, its
    high end to the greatest of its own and all smaller ones. All of this is a function of what is released anyway, so
    it costs no privacy. No coverage falls, as each bar holds the one that it was. Each still holds its estimate: of n
    estimates at most n - i are above the i-th smallest, so one of the n - i + 1 from the i-th part on is not, and its
    low end is not either; the high end likewise. One quantile alone stays what it was.

    >>> in_order([Fraction(1, 2), Fraction(9, 10)], [5.0, 4.0], [Bars(4.5, 6.0), Bars(3.0, 5.5)])
    [(4.0, Bars(low=3.0, high=6.0)), (5.0, Bars(low=3.0, high=6.0))]
    """
    places = sorted(range(len(parts)), key=lambda place: parts[place])
    low = list(accumulate((bars[place].low for place in reversed(places)), min))[::-1]
    high = list(accumulate((bars[place].high for place in places), max))
    found = dict(zip(places, zip(sorted(estimates), map(Bars, low, high), strict=True), strict=True))
    return [found[place] for place in range(len(parts))]


class Cells(Protocol):
    """Into which cells values are sorted, each row judged by itself."""

    @property
    def depth(self) -> int:
        """H: there are 2^H cells."""

    def encode(self, column: pl.Series) -> Codes:
        """The cell of each value, -1 where it is missing."""

    def edge(self, cell: int) -> float:
        """Where a cell begins; the one after the last begins where the last ends."""


@identified("even-cells")
@dataclass(frozen=True, slots=True, kw_only=True)
class EvenCells:
    """A declared range in cells of equal width; values outside it are moved into it, and NaN is refused."""

    low: float
    """The least value."""

    high: float
    """The largest value."""

    depth: int = 10
    """H: the range has 2^H cells."""

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ParameterError(f"low must be finite and below a finite high, got {self.low} and {self.high}")
        if not 1 <= self.depth <= DEEPEST:
            raise ParameterError(f"depth must be between 1 and {DEEPEST}, got {self.depth}")
        if not 0 < (1 << self.depth) / (self.high - self.low) < np.inf:
            # No cell would have a width that a floating-point number can tell.
            raise ParameterError(f"high must be above low by a normal number, got {self.low} and {self.high}")

    def encode(self, column: pl.Series) -> Codes:
        missing, values = _numbers(column, self.low)
        count = 1 << self.depth
        places = (np.clip(values, self.low, self.high) - self.low) * (count / (self.high - self.low))
        codes: Codes = np.where(missing, -1, np.minimum(places.astype(np.int64), count - 1))
        return codes

    def edge(self, cell: int) -> float:
        return self.low + (self.high - self.low) * cell / (1 << self.depth)


_MANTISSA = 9
_LEAST_EXPONENT, _MOST_EXPONENT = -32, 31
_HALF = 1 << 15
_BELOW = (1023 + _LEAST_EXPONENT) << _MANTISSA


@identified("double-cells")
@dataclass(frozen=True, slots=True)
class DoubleCells:
    """All real numbers, where nobody knows their range: 2^16 cells in the order of floating-point numbers.

    A cell is a sign, an exponent from -32 to 31 and 9 bits: from 2^-32 to 2^32 in size each is 1/512 of its lower end
    wide. Smaller ones lie in the cell next to zero of their sign, -0.0 as 0.0 does; larger ones in the outermost cell.
    NaN and infinities are refused.

    >>> cells = DoubleCells()
    >>> [cells.edge(int(code)) for code in cells.encode(pl.Series([1.001, -3.0, 0.0, 1e300]))]
    [1.0, -3.00390625, 0.0, 4290772992.0]
    """

    depth: ClassVar[int] = DEEPEST
    largest: ClassVar[float] = 2.0 ** (_MOST_EXPONENT + 1)
    """Where the outermost cells end; what is larger counts as just below it."""

    def encode(self, column: pl.Series) -> Codes:
        missing, values = _numbers(column, 0.0)
        if np.isinf(values).any():
            raise InputError("values must be finite, got infinite ones; drop these rows")
        values = np.ascontiguousarray(values, dtype=np.float64)
        # Sizes of doubles are in the order of their bits: the exponent, then the mantissa.
        sizes = (np.abs(values).view(np.int64) >> (52 - _MANTISSA)) - _BELOW
        sizes = np.clip(sizes, 0, _HALF - 1)
        codes: Codes = np.where(values < 0, _HALF - 1 - sizes, _HALF + sizes)
        return np.where(missing, -1, codes)

    def edge(self, cell: int) -> float:
        if cell < _HALF:
            return -_size(_HALF - cell)
        return _size(cell - _HALF)


def _size(place: int) -> float:
    """Where the size of values begins that are so many cells from zero."""
    if place == 0:
        return 0.0
    exponent, mantissa = divmod(place, 1 << _MANTISSA)
    return float(2.0 ** (exponent + _LEAST_EXPONENT)) * (1 + mantissa / (1 << _MANTISSA))


def _numbers(column: pl.Series, filler: float) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Which rows have no value, and all values, the filler for those."""
    if not column.dtype.is_numeric():
        raise InputError(f"values must be numbers, got {column.dtype}")
    missing, values = column.is_null().to_numpy(), column.cast(pl.Float64).fill_null(filler).to_numpy()
    if np.isnan(values).any():
        raise InputError("values must be numbers, got NaN; drop these rows")
    return missing, values


def add_in_cells(totals: NDArray[np.int64], codes: Codes, signs: NDArray[np.int8] | None) -> None:
    """Count codes from 0 up, with a sign where there are signs; negative codes are nowhere."""
    known = codes >= 0
    if signs is None:
        totals += np.bincount(codes[known], minlength=len(totals))
    else:
        for sign in (1, -1):
            totals += sign * np.bincount(codes[known & (signs == sign)], minlength=len(totals))


def all_bins(totals: NDArray[np.int64], depth: int) -> NDArray[np.int64]:
    """The counts of all bins, the smallest first, from those of the cells."""
    bins = [totals]
    for _ in range(depth):
        bins.append(bins[-1].reshape(-1, 2).sum(axis=1))
    return np.concatenate(bins)


class BinLaw(Protocol):
    """The noise of the count of one bin, the same for all."""

    @property
    def deviation(self) -> float:
        """Its standard deviation."""

    def half_width(self, coverage: float) -> float:
        """How far, with this chance, it takes a count from the truth."""


@dataclass(frozen=True, slots=True, eq=False)
class BinCounts:
    """The noisy counts of all bins, the smallest first, and what follows from them."""

    cells: Cells
    estimates: NDArray[np.int64]
    law: BinLaw
    failure_probability: Fraction
    """How often an extreme may stand on the wrong side of the true value."""

    below: NDArray[np.float64] = field(init=False, repr=False)
    """The estimated number of values in the first n cells, for n = 0, 1, .., all."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "below", sums_below(self.estimates, self.cells.depth))

    @property
    def total(self) -> float:
        """The estimate of the number of all values."""
        return float(self.below[-1])

    def quantile(self, quantile: Fraction) -> float:
        """The middle of the cell where the estimates cross this part of all, found by halving."""
        return self._crossing(self.below, float(quantile))

    def interval(self, quantile: Fraction, coverage: float, missing: float = 0.0) -> Bars:
        """Values that the quantile may have: all cells that the noise, at this coverage, cannot rule out.

        With `missing`, also where so many values more may lie anywhere.
        """
        check_probability(quantile=quantile, coverage=coverage)
        below, part = self.below, float(quantile)
        margins = self._margins(part, coverage) + missing * max(part, 1 - part)
        distance = below - part * below[-1]
        # Cell v: the first v + 1 cells may reach the part, and the first v may fall short of it.
        possible = np.flatnonzero((distance[1:] >= -margins[1:]) & (distance[:-1] <= margins[:-1]))
        middle = self._crossing(below, part)
        if not len(possible):
            return Bars(middle, middle)
        low, high = self.cells.edge(int(possible[0])), self.cells.edge(int(possible[-1]) + 1)
        return Bars(min(low, middle), max(high, middle))

    def to_dict(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {"estimates": self.estimates.tolist()}

    def kth_largest(self, place: int) -> float:
        """The k-th largest value, rounded down to its cell, or less; the low end if there are too few values."""
        below = self.below
        cell = cell_of_kth_largest(below[-1] - below[:-1], place, self._selection_margins()[:-1])
        return self.cells.edge(max(cell, 0))

    def kth_smallest(self, place: int) -> float:
        """The k-th smallest value, rounded up to its cell, or more; the high end if there are too few values."""
        # As the k-th largest with the cells turned round: the first n cells are its last ones.
        turned = self.below[:0:-1]
        cell = cell_of_kth_largest(turned, place, self._selection_margins()[:-1])
        return self.cells.edge((1 << self.cells.depth) - max(cell, 0))

    def _crossing(self, below: NDArray[np.float64], part: float) -> float:
        target = part * below[-1]
        first, after = 0, 1 << self.cells.depth
        while after - first > 1:
            middle = (first + after) // 2
            first, after = (first, middle) if below[middle] >= target else (middle, after)
        return (self.cells.edge(first) + self.cells.edge(after)) / 2

    def _margins(self, part: float, coverage: float) -> NDArray[np.float64]:
        """How far noise moves (values in the first n cells) - part * (all values), at each n with this chance.

        The estimates are sums over many bins, with lighter tails than the noise of one bin has.
        """
        deviation = self.law.deviation
        factor = normal_quantile(coverage)
        if deviation:
            factor = max(factor, self.law.half_width(coverage) / deviation)
        return factor * deviation * deviations_below(self.cells.depth, part)

    def _selection_margins(self) -> NDArray[np.float64]:
        """For each n, how far the count of the cells from n on is off at most, at all n at once."""
        return self._margins(1.0, 1 - float(self.failure_probability) / (1 << self.cells.depth))


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
    """The largest cell from which on there seem to be k values and a margin; -1 if there is none.

    `suffix` holds, for each cell, how many values lie in it or in later ones.
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
    """Of (values in the first n cells) - part * (all values), for each n, over that of one count."""
    numbers = np.arange((1 << depth) + 1)
    variances = subtree_variances(depth)
    squares = (numbers / (1 << depth) - part) ** 2 * variances[depth]
    for height in range(1, depth + 1):
        inside = numbers & ((1 << height) - 1)
        tents = np.minimum(inside, (1 << height) - inside) / (1 << (height - 1))
        squares += tents**2 * variances[height - 1] / 2
    return np.asarray(np.sqrt(squares))
