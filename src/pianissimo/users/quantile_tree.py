"""Quantiles, the median, the k-th largest and smallest of the accepted events: all from one tree of noisy counts.

Dong, Luo and Yi, Algorithm 6, with one shared truncation instead of one for each bin size, ties allowed, and the slips
of the paper corrected. The tree, and what is read off it, are those of `cells`: an event moves one bin of each size.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.cells import (
    DEEPEST,
    SELECTION_FAILURE,
    Bars,
    BinCounts,
    Codes,
    DoubleCells,
    EvenCells,
    add_in_cells,
    all_bins,
)
from pianissimo.checks import check_at_least, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.users.caps import CutOff
from pianissimo.users.counters import Law, Sensitivity
from pianissimo.users.heads import AnyHead

_MEDIAN = (Fraction(1, 2),)


@identified("quantiles-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilesHead(AnyHead):
    """Quantiles of a column of numbers over the accepted events, within a declared range or over all numbers.

    Values outside the range are moved into it, NaN is refused, and a null lies in no cell.
    """

    low: float | None = None
    """The least value; without it and `high` cells are those of `DoubleCells`."""

    high: float | None = None
    """The largest value."""

    depth: int = 10
    """H: the range has 2^H cells of equal width."""

    quantiles: tuple[Fraction, ...] = _MEDIAN
    """Which ones, each above 0 and below 1."""

    largest: tuple[int, ...] = ()
    """The k-th largest value for each of these k, from below: with k = 1, the maximum."""

    smallest: tuple[int, ...] = ()
    """The k-th smallest value for each of these k, from above: with k = 1, the minimum."""

    failure_probability: Fraction = SELECTION_FAILURE
    """How often, at one tick, `largest` or `smallest` may stand on the wrong side of the true value."""

    add = staticmethod(add_in_cells)

    def __post_init__(self) -> None:
        AnyHead.__post_init__(self)
        _ = self.places
        for quantile in self.quantiles:
            check_probability(quantile=quantile)
        for place in (*self.largest, *self.smallest):
            check_at_least(1, place=place)
        check_probability(failure_probability=self.failure_probability)

    @property
    def places(self) -> EvenCells | DoubleCells:
        """The cells that values are sorted into."""
        if self.low is not None and self.high is not None:
            return EvenCells(low=self.low, high=self.high, depth=self.depth)
        if not (self.low is None and self.high is None and self.depth == DEEPEST):
            raise ParameterError(f"depth must be {DEEPEST} without low and high, and both are given or neither")
        return DoubleCells()

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
        # An event without a value counts towards the cap and lies in no cell.
        return self.places.encode(column)

    def expand(self, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        return all_bins(totals, self.depth)

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> "UserQuantiles":  # noqa: ARG002
        return UserQuantiles(self.places, estimates, law, self.failure_probability, cut, self)


@dataclass(frozen=True, slots=True, eq=False)
class UserQuantiles(BinCounts):
    """The noisy counts of all bins of the accepted events, and what is known of those that a cap cut off."""

    cut: CutOff
    head: QuantilesHead

    def bars(self, quantile: Fraction, coverage: float, *, most_units: int | None = None) -> Bars:
        """Values that the quantile may have: all cells that the noise, at this coverage, cannot rule out.

        With `most_units`, also over what the cap cut off, where that is bounded.
        """
        return self.interval(quantile, coverage, self.cut.most_missing(most_units) or 0)

    def to_dict(self) -> dict[str, float]:
        """What the head asks for, by name, as `0.5`, `largest 1`, `smallest 1`."""
        # Sorted as `in_order` sorts them: noise alone may put the median above p90.
        parts = self.head.quantiles
        found = dict(zip(sorted(parts), sorted(map(self.quantile, parts)), strict=True))
        values = {f"{float(part):g}": found[part] for part in parts}
        values |= {f"largest {place}": self.kth_largest(place) for place in self.head.largest}
        return values | {f"smallest {place}": self.kth_smallest(place) for place in self.head.smallest}
