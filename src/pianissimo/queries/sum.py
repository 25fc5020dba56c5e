"""The sum of a column of numbers, and what all queries about numbers within a range have."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Literal

import polars as pl

from pianissimo.checks import check_positive
from pianissimo.counting import Summer, grid_steps
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.columns import Reads, Role, check_column, exactly, is_finite, number_column
from pianissimo.queries.expected import HISTORY, Candidate, Share
from pianissimo.queries.query import Nulls, PlanFor, Query, Tidy, scaled
from pianissimo.users import Head, SumHead

_MOST_STEPS = 2**40
_FINE_STEPS = 2**20
_EVENT_STEPS = (_FINE_STEPS, 2**17, 2**14, 2**10)
"""How many steps a sum of events counts in at least: the most that samplers have noise for."""

_USER_STEPS = 2**6


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueQuery(Query):
    """A query about the numbers of one column."""

    value: str
    """The column of values: numbers."""

    range: tuple[float, float]
    """Where values lie, such as [0, 500]: public; see `outside`."""

    outside: Literal["clamp", "refuse"] = "clamp"
    """What happens to values outside the range: they are moved to the nearer end, or the row is refused."""

    null_rules: ClassVar[tuple[Nulls, ...]] = ("skip", "refuse")

    def __post_init__(self) -> None:
        check_column(value=self.value)
        if self.outside not in ("clamp", "refuse"):
            raise ParameterError(f"outside must be 'clamp' or 'refuse', got {self.outside!r}")
        self._check_range()
        Query.__post_init__(self)

    def _check_range(self) -> None:
        if not (isinstance(self.range, Sequence) and len(self.range) == 2 and all(map(is_finite, self.range))):
            raise ParameterError(f"range must be two finite numbers such as [0, 500], got {self.range!r}")
        low, high = self.range
        if not low < high:
            raise ParameterError(f"range must begin below its end, got {low} to {high}")
        object.__setattr__(self, "range", (low, high))

    @property
    def ends(self) -> tuple[float, float]:
        """Between which numbers values count as they are."""
        return self.range

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        return (Reads(self.value, Role.NUMBERS),)

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        return self._values(frame)

    def _values(self, frame: pl.DataFrame) -> pl.Series:
        """The values, those outside the range missing where they are refused."""
        values = number_column(self.value, frame)
        return values if self.outside == "clamp" else values.set(self._outside(values), None)

    def _outside(self, values: pl.Series) -> pl.Series:
        low, high = self.ends
        return ((values < low) | (values > high)).fill_null(value=False)

    def faults(self, frame: pl.DataFrame) -> pl.Series | None:
        if self.nulls == "refuse" or self.outside == "clamp":
            return Query.faults(self, frame)
        return self.cut_off(frame)

    def cut_off(self, frame: pl.DataFrame) -> pl.Series | None:
        return self._of_matching(self._outside(number_column(self.value, frame)), frame)

    @property
    def clamped(self) -> str:
        """What happens to values outside the range, in words."""
        return f", of values cut to {self.span}" if self.outside == "clamp" else ""

    @property
    def span(self) -> str:
        """The range in words."""
        return " .. ".join(f"{float(end):,.12g}" for end in self.ends)

    def left_out(self, chosen: Candidate) -> list[str]:
        rounding = self.facts(chosen).get("rounding")
        found = [f"values are rounded, {rounding}"] if rounding else []
        return found if self.clamped else [*found, f"rows with a {self.value} outside {self.span} are refused"]

    @property
    def rule(self) -> str:
        within = f" within {self.ends[0]} and {self.ends[1]}" if self.outside == "refuse" else ""
        return f"column {self.value!r} must hold finite numbers{within}"


def _with_grid_of_one(version: int, content: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """A sum of version 1 that does not say its grid has one of 1."""
    return {"grid": 1} | content


@identified("query-sum", 2, upgrade=_with_grid_of_one)
@dataclass(frozen=True, slots=True, kw_only=True)
class Sum(ValueQuery):
    """The sum of the events' values so far.

    >>> Sum("revenue", value="price", range=(0, 500), grid=0.01).steps
    (0, 50000)
    >>> Sum("revenue", value="price", range=(0, 500)).exact_grid
    Fraction(1, 5000)
    """

    grid: float | Fraction | None = None
    """Values are rounded to multiples of it, each by itself; both ends of the range are multiples. Without it, a grid
    of at least 2^20 steps over the range, or where no sampler has so much noise, of at least 2^10. Noise is a multiple
    of the range, so a finer grid does not add any."""

    kind = "sum"
    called = "a sum"
    answer = "sum of {0.value}{0.clamped}"
    told = ("range",)
    adds_up = True
    deletable = True
    nothing = 0

    def _check(self) -> None:
        if self.grid is not None:
            check_positive(grid=self.grid)
            if not 1e-12 <= self.grid <= 1e12:
                raise ParameterError(f"grid must be between 1e-12 and 1e12, got {float(min(self.grid, 10**300)):g}")
        low, high = self.steps
        if Tidy.MONOTONE in self.tidy and low < 0:
            raise ParameterError("tidy must be monotone only for a sum of values without a sign, got a range below 0")
        if not max(abs(low), abs(high)) <= _MOST_STEPS:
            way_out = "give a grid, or ends with fewer digits" if self.grid is None else "take a coarser grid"
            raise ParameterError(f"range must have at most 2^40 steps of the grid, got more; {way_out}")

    @property
    def exact_grid(self) -> Fraction:
        """The grid as the decimal number it was written as: 0.01 is one hundredth."""
        return self._grid_of(_FINE_STEPS)

    def _grid_of(self, steps: int) -> Fraction:
        return _fine_grid(*map(exactly, self.range), steps) if self.grid is None else exactly(self.grid)

    @property
    def steps(self) -> tuple[int, int]:
        """Both ends of the range in steps of the grid."""
        low, high = (_whole(end, self) for end in self.range)
        return low, high

    def unit_value(self, mechanism: Any) -> float:
        return float(self._grid_in(mechanism))

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        return grid_steps(self._values(frame), self.exact_grid).clip(*self.steps)

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        low, high = self.steps
        sizes = dict.fromkeys(self._grid_of(steps) / self.exact_grid for steps in _EVENT_STEPS)
        problems = []
        for coarse in (int(size) for size in sizes if size.denominator == 1):
            try:
                plan = plan_for(share, magnitude=max(abs(low), abs(high)) // coarse)
            except ParameterError as error:
                problems.append(error)
            else:
                return Summer(plan=plan, low=low, high=high, history=HISTORY, coarse=coarse), plan
        raise problems[-1]

    def _grid_in(self, mechanism: Any) -> Fraction:
        """What values are rounded to by a mechanism; for users what lies between is rounded right on average."""
        return self.exact_grid * getattr(mechanism, "coarse", 1)

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        return scaled(Query.table(self, mechanism, release, coverage), self._grid_in(mechanism))

    def head(self, share: Fraction = Fraction(1)) -> Head:
        # An event that adds nothing adds 0: it is in the range of all events, and none moves the sum further.
        low, high = min(self.steps[0], 0), max(self.steps[1], 0)
        # In so many steps a cap that follows can rise; where it is fixed they are finer.
        coarse = int(self._grid_of(_USER_STEPS) / self.exact_grid)
        return SumHead(name=self.name, low=low, high=high, coarse=coarse, share=share)

    def user_scale(self, mechanism: Any) -> float:
        return float(self.exact_grid * next(head.coarse for head in mechanism.heads if head.name == self.name))

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        grid = max(abs(exactly(end)) for end in self.range) / release.value[self.name].unit
        return scaled(Query.user_table(self, release, coverage, most_events), grid)

    def facts(self, chosen: Candidate) -> dict[str, Any]:
        grid, (low, high) = self.unit_value(chosen.mechanism), map(float, self.range)
        told = Query.facts(self, chosen) | {"grid": grid}
        # Ends of the range are whole steps, so that no rounding error makes this one too few.
        if round((high - low) / grid) >= _FINE_STEPS:
            return told
        # How many events there are is nothing that a bar could be made of, so it is said instead.
        way_out = "" if self.grid is None else "; without a grid it is rounded as finely as the noise allows"
        return told | {
            "rounding": f"each value by itself, to multiples of {grid:g}: by up to {grid / 2:g} an event, which no bar "
            f"covers{way_out}"
        }


def _whole(end: Any, query: Sum) -> int:
    steps = exactly(end) / query.exact_grid
    if steps.denominator != 1:
        raise ParameterError(f"range must begin and end on multiples of the grid {query.grid}, got {end}")
    return int(steps)


@lru_cache(maxsize=1024)
def _fine_grid(low: Fraction, high: Fraction, steps: int) -> Fraction:
    """The largest grid of 1, 2 or 5 times a power of ten that both ends lie on and that has so many steps between them.

    Ends that no such grid has, such as a third, are on a binary fraction of what they are multiples of.
    """
    bottom = low.denominator * high.denominator
    common = Fraction(math.gcd(low.numerator * high.denominator, high.numerator * low.denominator), bottom)
    for power in range(12, -31, -1):
        for grid in (first * Fraction(10) ** power for first in (5, 2, 1)):
            if grid * steps <= high - low and (common / grid).denominator == 1:
                return grid
    while common * steps > high - low:
        common /= 2
    return common
