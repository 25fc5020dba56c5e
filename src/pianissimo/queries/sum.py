"""The sum of a column of numbers, of all events or by label."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.counting import LabelCounts, LabelSeries, LabelSums, Summer
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.shared.asked import Tidy
from pianissimo.queries.shared.columns import exactly
from pianissimo.queries.shared.expected import Candidate, ExpectedError, Share, number_text
from pianissimo.queries.shared.grid_query import USER_STEPS, GridQuery
from pianissimo.queries.shared.query import PlanFor, Query, UserMechanism
from pianissimo.queries.shared.released_tables import bars_table, scaled
from pianissimo.unit import User
from pianissimo.users import AdaptiveCap, Cap, Counters, Head, SumHead, UserEnds, UserSum
from pianissimo.users.caps import LARGEST_CAP

_CAPS = 10
"""How many octaves above the largest value a cap of value may rise from period to period."""

_FEWEST_CAPS = 6
"""A cap of value that follows the stream takes so many values at least, up to 128 times the first."""


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

    max_per_user: int | Literal["auto", "events"] | None = None
    """Of users: how much of the value one user adds at most, over the whole run or in one period, in place of so many
    events. Noise is in proportion to it. With "auto" it follows the stream, from the largest value of the range on;
    with "events" her first events count. None leaves it to the plan. For values that are not negative."""

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
        if self.max_per_user is None or self.max_per_user == "events":
            return
        if self.may_fall or self.key is not None:
            raise ParameterError(
                "max_per_user must be left out for values below 0 and for sums of labels, got one: it is about one sum "
                "that only grows; cap her events instead"
            )
        if isinstance(self.max_per_user, str):
            if self.max_per_user != "auto":
                raise ParameterError(f"max_per_user must be a number, 'auto' or 'events', got {self.max_per_user!r}")
            return
        check_at_least(1, max_per_user=self.max_per_user)
        if (self.max_per_user / self.exact_grid).denominator != 1:
            raise ParameterError(f"max_per_user must be a multiple of the grid {self.grid}, got {self.max_per_user}")

    @property
    def _is_value_capped(self) -> bool:
        """Whether it has a cap of what a user adds, and not of her events."""
        return self.max_per_user not in (None, "events")

    def most_moved(self, mechanism: Any) -> float | None:
        if self._is_value_capped:
            # Its cap is what a user adds, and a value that was rounded up may reach it.
            return 1.0
        # The larger end, and what a value may be rounded by.
        return self.max_keys_per_event * max(map(abs, self.range)) * (1 + 2 / USER_STEPS)

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        if self._is_value_capped:
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
                return Summer(plan=plan, low=low, high=high, history=self.history_kept, coarse=coarse), plan
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

    # A cap of what a user adds: one mechanism of its own, whose units are steps of the grid, or coarse ones.

    @property
    def part(self) -> str:
        return self.name if self._is_value_capped else str(GridQuery.part.__get__(self))

    @property
    def own_units(self) -> int | None:
        return None if isinstance(self.max_per_user, str | None) else int(self.max_per_user / self.exact_grid)

    @property
    def capped_unit(self) -> str:
        return self.value if self._is_value_capped else str(GridQuery.capped_unit.__get__(self))

    def shown_cap(self, units: int, of: Any = None) -> float:
        if not self._is_value_capped:
            return units
        return float(units * self.grid_in(of)) if isinstance(self.max_per_user, str | None) else self.max_per_user

    def cap_words(self, units: int, of: Any = None) -> str:
        if self.max_per_user == "auto" or not self._is_value_capped:
            return Query.cap_words(self, units, of)
        return f", of at most {self.max_per_user:,} of {self.value} a user"

    def most_added(self, cap: float) -> float | None:
        return cap if self._is_value_capped else cap * max(map(abs, self.range))

    def units_of(self, events: int | None, of: Any = None) -> int | None:
        if not self._is_value_capped or events is None:
            return GridQuery.units_of(self, events)
        return int(events * exactly(self.range[1]) / self.grid_in(of))

    def units_in(self, batch: pl.DataFrame) -> pl.DataFrame:
        if not self._is_value_capped:
            return GridQuery.units_in(self, batch)
        return batch.group_by("user").agg((pl.col("value").sum() * float(self.exact_grid)).alias("units"))

    def under_value_cap(self) -> Query | None:
        if self.max_per_user is not None or self.may_fall or self.key is not None:
            return None
        return replace(self, max_per_user="auto")

    def instead(self, cap: float, error: ExpectedError) -> str:
        own = "what a user adds beyond it would be missing"
        if not self._is_value_capped:
            missing = 'her later events would be missing (max_per_user = "events")'
            return f"{GridQuery.instead(self, cap, error)}; {missing}"
        within = f"it would be within {number_text(error.typical)}; {own}"
        return f'With a cap of {self.value} (max_per_user = "auto"), from {cap:,.15g} a user on, {within}'

    def cap_rule(self, cap: Any, user: User) -> Any:
        if not self._is_value_capped:
            return cap
        if user.max_events_per_user is not None:
            raise ParameterError(
                "max_per_user must be a number where the cap of events is fixed (max_events_per_user), got 'auto'"
            )
        first = user.first_cap or 1
        if isinstance(cap, AdaptiveCap):
            # In largest values; in units when it is known how fine these are.
            return replace(cap, first=first)
        first *= self.steps[1] // self._coarsest
        levels = (first - 1).bit_length() + (user.caps or _CAPS)
        return replace(cap, first=first, levels=min(levels, LARGEST_CAP.bit_length()))

    @property
    def _coarsest(self) -> int:
        *_, last = self.coarse_steps()
        return last

    def user_batch(self, content: pl.DataFrame) -> pl.DataFrame:
        if not self._is_value_capped:
            return GridQuery.user_batch(self, content)
        return content.select("user", pl.col(self.name).alias("value"))

    def user_mechanism(
        self, part: Sequence[Query], cap: Cap, shares: Mapping[str, Fraction], parameters: dict[str, Any]
    ) -> UserMechanism:
        if not self._is_value_capped:
            return GridQuery.user_mechanism(self, part, cap, shares, parameters)
        if parameters["signed"]:
            raise ParameterError("max_per_user must be left out where events are taken back, got one; cap her events")
        given = {name: value for name, value in parameters.items() if name != "signed"}
        if isinstance(cap, AdaptiveCap):
            return self._following(cap, given)
        if self.max_per_user == "auto":
            # The largest cap of a period, in coarse units already.
            return self._by_coins(cap, given)
        problems = []
        for coarse in self.coarse_steps():
            if cap.units % coarse == 0:
                try:
                    return UserSum(cap=replace(cap, units=cap.units // coarse), coarse=coarse, **given)
                except ParameterError as error:
                    problems.append(error)
        raise problems[-1]

    def _following(self, cap: AdaptiveCap, given: dict[str, Any]) -> UserSum:
        """With as many caps as samplers have noise for, or a few less of a plan that errs less."""
        first, problems = cap.first * self.steps[1] // self._coarsest, []
        for levels in range(cap.levels, min(cap.levels, _FEWEST_CAPS) - 1, -1):
            try:
                return self._by_coins(replace(cap, first=first, levels=levels), given)
            except ParameterError as error:
                problems.append(error)
        raise problems[-1]

    def _by_coins(self, cap: Cap, given: dict[str, Any]) -> UserSum:
        return UserSum(cap=cap, coarse=self._coarsest, coins=self._coarsest > 1, **given)

    def user_counters(self, mechanism: Any) -> Counters:
        if not self._is_value_capped:
            return GridQuery.user_counters(self, mechanism)
        counters: Counters = mechanism.counters[0]
        return counters

    def user_scale(self, mechanism: Any) -> float:
        if not (self._is_value_capped or self.is_shared):
            # (hi A + lo B) / (hi - lo).
            low, high = self.steps
            return GridQuery.user_scale(self, mechanism) * math.hypot(low, high) / (high - low)
        if self._is_value_capped:
            return float(self.grid_in(getattr(mechanism, "inner", mechanism)))
        return GridQuery.user_scale(self, mechanism)

    def user_value(self, release: Release[Any]) -> Any:
        return release.value if self._is_value_capped else GridQuery.user_value(self, release)

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        value = self.user_value(release)
        if self._is_value_capped:
            return scaled(Query.user_table(self, release, coverage, most_events), self.grid_in(value))
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
        return told | {"max_per_user": self.max_per_user} if self._is_value_capped else told
