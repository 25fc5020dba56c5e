"""The sum of a column of numbers, and what all queries about numbers within a range have."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import polars as pl

from pianissimo.checks import check_positive
from pianissimo.counting import Summer, grid_steps
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.columns import Reads, Role, check_column, exactly, is_finite, number_column
from pianissimo.queries.expected import HISTORY, Share
from pianissimo.queries.query import PlanFor, Query, Tidy, scaled
from pianissimo.users import Head, SumHead

_MOST_STEPS = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueQuery(Query):
    """A query about the numbers of one column."""

    value: str
    """The column of values: numbers."""

    range: tuple[float, float]
    """Where values lie, such as [0, 500]: public; see `outside`."""

    outside: Literal["clamp", "refuse"] = "clamp"
    """What happens to values outside the range: they are moved to the nearer end, or the row is refused."""

    def __post_init__(self) -> None:
        check_column(value=self.value)
        if self.outside not in ("clamp", "refuse"):
            raise ParameterError(f"outside must be 'clamp' or 'refuse', got {self.outside!r}")
        if not (isinstance(self.range, Sequence) and len(self.range) == 2 and all(map(is_finite, self.range))):
            raise ParameterError(f"range must be two finite numbers such as [0, 500], got {self.range!r}")
        low, high = self.range
        if not low < high:
            raise ParameterError(f"range must begin below its end, got {low} to {high}")
        object.__setattr__(self, "range", (low, high))
        Query.__post_init__(self)

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        return (Reads(self.value, Role.NUMBERS),)

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        return self._values(frame)

    def _values(self, frame: pl.DataFrame) -> pl.Series:
        """The values, those outside the range missing where they are refused."""
        values, (low, high) = number_column(self.value, frame), self.range
        return values if self.outside == "clamp" else values.set((values < low) | (values > high), None)

    @property
    def rule(self) -> str:
        within = f" within {self.range[0]} and {self.range[1]}" if self.outside == "refuse" else ""
        return f"column {self.value!r} must hold finite numbers{within}"


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
        return exactly(self.grid)

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
    steps = exactly(end) / query.exact_grid
    if steps.denominator != 1:
        raise ParameterError(f"range must begin and end on multiples of the grid {query.grid}, got {end}")
    return int(steps)
