"""How many events there are."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.counting import Counter
from pianissimo.identity import identified
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.shared.columns import event_numbers
from pianissimo.queries.shared.expected import Share
from pianissimo.queries.shared.query import PlanFor, Query
from pianissimo.users import CountHead, Head, SumHead


@identified("query-count")
@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Query):
    """The number of events so far, or with `per` in the last ticks.

    >>> Count("purchases").reads
    ()
    """

    kind = "count"
    called = "a count"
    adds_up = True
    deletable = True
    null_rules = ("skip", "refuse")
    takes_counts = True

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        return None if self.count_column is None else event_numbers(self.count_column, frame)

    def batch(self, frame: pl.DataFrame) -> Any:
        content = Query.batch(self, frame)
        # As many events as the rows stand for, of which nothing but their number is looked at.
        return content if self.count_column is None else range(int(content.sum()))

    def amounts(self, frame: pl.DataFrame) -> tuple[float, float] | None:
        events = float(len(self.batch(frame)))
        return events, events

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        plan = plan_for(share)
        return Counter(plan=plan, history=self.history_kept), plan

    def head(self, share: Fraction = Fraction(1)) -> Head:
        if self.where is not None:
            # The sum of ones for the events that match.
            return SumHead(name=self.name, low=0, high=1, share=share)
        return CountHead(name=self.name, share=share)

    def _only(self, column: pl.Series | None, counted: pl.Series) -> pl.Series:
        return counted.cast(pl.Int64)
