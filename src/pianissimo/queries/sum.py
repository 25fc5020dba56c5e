"""The sum of a column of numbers, of all events or by label."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.counting import LabelCounts, LabelSeries, LabelSums, Summer
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.columns import exactly
from pianissimo.queries.expected import HISTORY, Share
from pianissimo.queries.query import PlanFor, Query, Tidy, bars_table, scaled
from pianissimo.queries.value_query import USER_STEPS, GridQuery
from pianissimo.users import Head, SumHead


def _with_grid_of_one(version: int, content: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """A sum of version 1 that does not say its grid has one of 1."""
    return {"grid": 1} | content


@identified("query-sum", 2, upgrade=_with_grid_of_one)
@dataclass(frozen=True, slots=True, kw_only=True)
class Sum(GridQuery):
    """The sum of the events' values so far, or of those of each label.

    >>> Sum("revenue", value="price", range=(0, 500), grid=0.01).steps
    (0, 50000)
    >>> Sum("revenue", value="price", range=(0, 500)).exact_grid
    Fraction(1, 5000)
    >>> Sum("revenue", value="price", range=(0, 500), key="region").needs_delta
    True
    """

    kind = "sum"
    called = "a sum"
    answer = "sum of {0.value}{0.of_each}{0.clamped}"
    told = ("range",)
    adds_up = True
    deletable = True
    nothing = 0

    def _check(self) -> None:
        GridQuery._check(self)
        if Tidy.MONOTONE in self.tidy and self.steps[0] < 0:
            raise ParameterError("tidy must be monotone only for a sum of values without a sign, got a range below 0")

    def most_moved(self, mechanism: Any) -> float | None:
        # The larger end, and what a value may be rounded by.
        return max(map(abs, self.range)) * (1 + 2 / USER_STEPS)

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        if self.key is not None:
            return self.label_sums(share, plan_for, sum_alone=True)
        low, high = self.steps
        problems = []
        for coarse in self.coarse_steps():
            try:
                plan = plan_for(share, magnitude=max(abs(low), abs(high)) // coarse)
            except ParameterError as error:
                problems.append(error)
            else:
                return Summer(plan=plan, low=low, high=high, history=HISTORY, coarse=coarse), plan
        raise problems[-1]

    def series_weights(self, mechanism: LabelSums) -> tuple[float, ...]:
        return (1.0,) if mechanism.sum_plan is None else (float(abs(mechanism.centre)), 1.0)

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        if isinstance(release.value, LabelSeries):
            release = replace(release, value=LabelCounts(release.value.labels, mechanism.sums(release.value)))
        return scaled(Query.table(self, mechanism, release, coverage), self.grid_in(mechanism))

    def head(self, share: Fraction = Fraction(1)) -> Head:
        if self.key is not None:
            return self.label_head(share, means=False)
        # An event that adds nothing adds 0: it is in the range of all events, and none moves the sum further.
        low, high = min(self.steps[0], 0), max(self.steps[1], 0)
        return SumHead(name=self.name, low=low, high=high, coarse=self.user_coarse, share=share)

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        value = self.user_value(release)
        grid = max(abs(exactly(end)) for end in self.range) / value.unit
        if self.key is None:
            return scaled(Query.user_table(self, release, coverage, most_events), grid)
        bars = value.bars(coverage, most_units=most_events)
        return scaled(bars_table(value.estimates, bars, key=value.labels), grid)
