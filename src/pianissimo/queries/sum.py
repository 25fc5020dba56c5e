"""The sum of a column of numbers."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.checks import check_positive
from pianissimo.counting import Summer, grid_steps
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.columns import exactly, scaled
from pianissimo.queries.expected import HISTORY, Share
from pianissimo.queries.query import PlanFor, Query, Tidy, ValueQuery
from pianissimo.users import Head, SumHead

_MOST_STEPS = 2**40


@identified("query-sum")
@dataclass(frozen=True, slots=True, kw_only=True)
class Sum(ValueQuery):
    """The sum of the events' values so far.

    >>> Sum("revenue", value="price", range=(0, 500), grid=0.01).steps
    (0, 50000)
    """

    grid: float | Fraction = 1
    """Values are rounded to multiples of it, each by itself; both ends of the range are multiples."""

    kind = "sum"
    called = "a sum"
    told = ("range", "grid")
    adds_up = True
    deletable = True

    def _check(self) -> None:
        check_positive(grid=self.grid)
        if not 1e-12 <= self.grid <= 1e12:
            raise ParameterError(f"grid must be between 1e-12 and 1e12, got {float(min(self.grid, 10**300)):g}")
        low, high = self.steps
        if Tidy.MONOTONE in self.tidy and low < 0:
            raise ParameterError("tidy must be monotone only for a sum of values without a sign, got a range below 0")
        if not max(abs(low), abs(high)) <= _MOST_STEPS:
            raise ParameterError("range must have at most 2^40 steps of the grid, got more; take a coarser grid")

    @property
    def exact_grid(self) -> Fraction:
        """The grid as the decimal number it was written as: 0.01 is one hundredth."""
        return self.grid if isinstance(self.grid, Fraction) else exactly(self.grid)

    @property
    def steps(self) -> tuple[int, int]:
        """Both ends of the range in steps of the grid."""
        low, high = (_whole(end, self) for end in self.range)
        return low, high

    @property
    def unit_value(self) -> float:
        return float(self.exact_grid)

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        return grid_steps(self._values(frame), self.exact_grid)

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        low, high = self.steps
        plan = plan_for(share, magnitude=max(abs(low), abs(high)))
        return Summer(plan=plan, low=low, high=high, history=HISTORY), plan

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        return scaled(Query.table(self, mechanism, release, coverage), self.unit_value)

    def head(self, share: Fraction = Fraction(1)) -> Head:
        low, high = self.steps
        if self.where is not None:
            # An event that does not match adds nothing: 0 is in the range, and no event moves the sum further.
            low, high = min(low, 0), max(high, 0)
        return SumHead(name=self.name, low=low, high=high, share=share)

    def _only(self, column: pl.Series | None, matches: pl.Series) -> pl.Series:
        assert column is not None  # noqa: S101
        return column.clip(*self.steps).set(~matches, 0)

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        return scaled(Query.user_table(self, release, coverage, most_events), self.unit_value)


def _whole(end: Any, query: Sum) -> int:
    steps = (end if isinstance(end, Fraction) else exactly(end)) / query.exact_grid
    if steps.denominator != 1:
        raise ParameterError(f"range must begin and end on multiples of the grid {query.grid}, got {end}")
    return int(steps)
