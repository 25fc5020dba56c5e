"""How many different values, and how many users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.counting.distinct_values import DistinctValues
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.moves import plan_for_moves
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.shared.expected import PlanMaker, Share
from pianissimo.queries.shared.key_query import KeyQuery
from pianissimo.queries.shared.query import Maker, PlanFor, Query, UserMechanism
from pianissimo.users import AdaptiveCap, Cap, Counters, CountHead, Head, UserDistinct


@identified("query-distinct")
@dataclass(frozen=True, slots=True, kw_only=True)
class Distinct(KeyQuery):
    """The number of different values that events so far held, or with `per` of those first seen in the last ticks.

    A value counts when it is first seen, also for a window. Where users are hidden, their values are capped by their
    own number, so each such query has a cap of its own.

    >>> Distinct("articles", key="article").part
    'articles'
    """

    max_keys_per_event: int = 1
    """How many distinct values of one event count; the others are cut, first come first kept within the event."""

    kind = "distinct"
    called = "a number of distinct values"
    answer = "number of different values of {0.keys_told}"
    of_window = " first seen"
    told = ("max_keys_per_event",)
    adds_up = True
    capped = "values"
    nothing = None

    def _check(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)

    @property
    def _holds_lists(self) -> bool:
        return self.max_keys_per_event > 1

    def _over(self, make_plan: PlanMaker, share: Share, releases: int, coverage: float) -> Maker:
        def moving(*, horizon: int, rho: Fraction | None = None, epsilon: Fraction | None = None) -> NoisePlan:
            return plan_for_moves(make_plan, horizon, pure=rho is None, loss=rho or epsilon or Fraction(0))

        return Query._over(self, moving, share, releases, coverage)

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        plan = plan_for(share, magnitude=self.max_keys_per_event)
        return DistinctValues(plan=plan, max_keys_per_event=self.max_keys_per_event, history=self.history_kept), plan

    @property
    def part(self) -> str:
        return self.name

    def head(self, share: Fraction = Fraction(1)) -> Head:
        return CountHead(name=self.name, share=share)

    def user_batch(self, content: pl.DataFrame) -> pl.DataFrame:
        rows = content.select("user", pl.col(self.name).alias("value")).drop_nulls("value")
        if not isinstance(rows.schema["value"], pl.List):
            return rows
        first = pl.col("value").list.unique(maintain_order=True).list.head(self.max_keys_per_event)
        return rows.with_columns(first).explode("value").drop_nulls("value")

    def user_mechanism(
        self,
        part: Sequence[Query],
        cap: Cap,
        shares: Mapping[str, Fraction],
        parameters: dict[str, Any],
    ) -> UserMechanism:
        parameters = {name: value for name, value in parameters.items() if name != "signed"} | {"moves_priced": True}
        if isinstance(cap, AdaptiveCap):
            return UserDistinct.fitting(cap=cap, **parameters)
        return UserDistinct(cap=cap, **parameters)

    def user_counters(self, mechanism: Any) -> Counters:
        counters: Counters = mechanism.counters[0]
        return counters

    def user_value(self, release: Release[Any]) -> Any:
        return release.value


@identified("query-users")
@dataclass(frozen=True, slots=True, kw_only=True)
class Users(Query):
    """The number of different users so far, or of those with an event that matches a condition.

    With `per`, of those first seen in the last ticks.

    Each user counts once, so it has a cap of one, and noise for one event: nothing is cut off, and bars are closed on
    both sides. Where a user is hidden within a period, each counts once in each period.

    >>> Users("active", where="price > 100").own_cap
    1
    """

    kind = "users"
    called = "a number of users"
    answer = "number of users"
    of_window = " first seen"
    own_cap = 1
    adds_up = True

    @property
    def part(self) -> str:
        return f"users of {self.name}"

    def head(self, share: Fraction = Fraction(1)) -> Head:
        return CountHead(name=self.name, share=share)

    def user_column(self, frame: pl.DataFrame) -> pl.Series | None:
        return self.matches(frame)

    def user_batch(self, content: pl.DataFrame) -> pl.DataFrame:
        # The cap is one of rows that match: the others do not use it up.
        return (content if self.where is None else content.filter(self.name)).select("user")

    def open_ends(self, value: Any) -> tuple[str, ...]:
        return ()
