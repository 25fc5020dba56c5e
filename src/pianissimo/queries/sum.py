"""The sum of a column of numbers, of all events or by label."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.counting import LabelCounts, LabelSeries, LabelSums, Summer
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.columns import exactly
from pianissimo.queries.expected import HISTORY, Candidate, Share
from pianissimo.queries.query import PlanFor, Query, Tidy, UserMechanism, bars_table, scaled
from pianissimo.queries.value_query import USER_STEPS, GridQuery
from pianissimo.users import Cap, Counters, FixedCap, Head, SumHead, UserEnds, UserSum


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

    max_per_user: int | None = None
    """Of users: how much of the value one user adds at most, over the whole run or in one period, in place of so many
    events. Noise is in proportion to it. For values that are not negative."""

    kind = "sum"
    called = "a sum"
    answer = "sum of {0.value}{0.of_each}{0.clamped}"
    told = ("range",)
    adds_up = True
    deletable = True
    nothing = 0

    @property
    def may_fall(self) -> bool:
        return self.steps[0] < 0

    def _check(self) -> None:
        GridQuery._check(self)
        if Tidy.MONOTONE in self.tidy and self.may_fall:
            raise ParameterError("tidy must be monotone only for a sum of values without a sign, got a range below 0")
        if self.max_per_user is None:
            return
        check_at_least(1, max_per_user=self.max_per_user)
        if self.may_fall or self.key is not None:
            raise ParameterError(
                "max_per_user must be left out for values below 0 and for sums of labels, got one: it is about one sum "
                "that only grows; cap her events instead"
            )
        if (self.max_per_user / self.exact_grid).denominator != 1:
            raise ParameterError(f"max_per_user must be a multiple of the grid {self.grid}, got {self.max_per_user}")

    def most_moved(self, mechanism: Any) -> float | None:
        # The larger end, and what a value may be rounded by.
        return self.max_keys_per_event * max(map(abs, self.range)) * (1 + 2 / USER_STEPS)

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        if self.max_per_user is not None:
            raise ParameterError("max_per_user must be left out where single events are hidden, got one")
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

    # A cap of what a user adds: one mechanism of its own, whose units are steps of the grid.

    @property
    def part(self) -> str:
        return str(GridQuery.part.__get__(self)) if self.max_per_user is None else self.name

    @property
    def own_units(self) -> int | None:
        return None if self.max_per_user is None else int(self.max_per_user / self.exact_grid)

    def shown_cap(self, units: int) -> int:
        return units if self.max_per_user is None else self.max_per_user

    def cap_words(self, units: int) -> str:
        if self.max_per_user is None:
            return Query.cap_words(self, units)
        return f", of at most {self.max_per_user:,} of {self.value} a user"

    def units_of(self, events: int | None) -> int | None:
        if self.max_per_user is None or events is None:
            return GridQuery.units_of(self, events)
        # Whether all that they may add is within the cap is all that is asked: one unit is.
        return 1 if events * exactly(self.range[1]) <= self.max_per_user else None

    def user_batch(self, content: pl.DataFrame) -> pl.DataFrame:
        if self.max_per_user is None:
            return GridQuery.user_batch(self, content)
        return content.select("user", pl.col(self.name).alias("value"))

    def user_mechanism(
        self, part: Sequence[Query], cap: Cap, shares: Mapping[str, Fraction], parameters: dict[str, Any]
    ) -> UserMechanism:
        if self.max_per_user is None:
            return GridQuery.user_mechanism(self, part, cap, shares, parameters)
        if parameters["signed"]:
            raise ParameterError("max_per_user must be left out where events are taken back, got one; cap her events")
        assert isinstance(cap, FixedCap)  # noqa: S101
        given = {name: value for name, value in parameters.items() if name != "signed"}
        problems = []
        for coarse in self.coarse_steps():
            if cap.units % coarse == 0:
                try:
                    return UserSum(cap=replace(cap, units=cap.units // coarse), coarse=coarse, **given)
                except ParameterError as error:
                    problems.append(error)
        raise problems[-1]

    def user_counters(self, mechanism: Any) -> Counters:
        if self.max_per_user is None:
            return GridQuery.user_counters(self, mechanism)
        counters: Counters = mechanism.counters[0]
        return counters

    def user_scale(self, mechanism: Any) -> float:
        if self.max_per_user is None and not self.is_shared:
            # (hi A + lo B) / (hi - lo).
            low, high = self.steps
            return GridQuery.user_scale(self, mechanism) * math.hypot(low, high) / (high - low)
        if self.max_per_user is not None:
            return float(self.grid_in(getattr(mechanism, "inner", mechanism)))
        return GridQuery.user_scale(self, mechanism)

    def user_value(self, release: Release[Any]) -> Any:
        return GridQuery.user_value(self, release) if self.max_per_user is None else release.value

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        value = self.user_value(release)
        if self.max_per_user is not None:
            return scaled(
                Query.user_table(self, release, coverage, most_events), Fraction(self.max_per_user, value.cut.cap)
            )
        if isinstance(value, UserEnds):
            low, high = map(exactly, self.range)
            estimates, bars = value.sums(coverage, most_units=self.units_of(most_events))
            return scaled(
                bars_table(estimates.tolist(), bars, key=value.labels), (high - low) / (value.ends[1] - value.ends[0])
            )
        grid = max(abs(exactly(end)) for end in self.range) / value.unit
        if self.key is None:
            return scaled(Query.user_table(self, release, coverage, most_events), grid)
        bars = value.bars(coverage, most_units=most_events)
        return scaled(bars_table(value.estimates, bars, key=value.labels), grid)

    def facts(self, chosen: Candidate) -> dict[str, Any]:
        told = GridQuery.facts(self, chosen)
        return told if self.max_per_user is None else told | {"max_per_user": self.max_per_user}
