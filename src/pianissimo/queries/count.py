"""How many events there are, in all and in a tick on average."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pianissimo.counting import Counter
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.expected import (
    HISTORY,
    OPEN_HORIZON,
    PREDICTED_TICKS,
    Candidate,
    ExpectedError,
    Share,
    predict_error,
    sampled_profile,
)
from pianissimo.queries.query import Maker, PlanFor, Query, Tidy, scaled
from pianissimo.users import CountHead, Head, SumHead


@identified("query-count")
@dataclass(frozen=True, slots=True, kw_only=True)
class Count(Query):
    """The number of events so far.

    >>> Count("purchases").reads
    ()
    """

    kind = "count"
    called = "a count"
    adds_up = True
    deletable = True

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        plan = plan_for(share)
        return Counter(plan=plan, history=HISTORY), plan

    def head(self, share: Fraction = Fraction(1)) -> Head:
        if self.where is not None:
            # The sum of ones for the events that match.
            return SumHead(name=self.name, low=0, high=1, share=share)
        return CountHead(name=self.name, share=share)

    def _only(self, column: pl.Series | None, counted: pl.Series) -> pl.Series:
        return counted.cast(pl.Int64)


@identified("query-rate")
@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Count):
    """The average number of events a tick, over all ticks so far: a count, divided by the number of ticks.

    Dividing what is released by a public number is post-processing, so it has the promise and the bars of a count. The
    bars shrink as ticks pass.

    >>> Rate("purchases_a_tick", where="price > 100").reads[0].name
    'price'
    """

    kind = "rate"
    called = "a rate"
    tidies = (Tidy.NON_NEGATIVE,)
    adds_up = False
    windowed = False

    def makers(self, share: Share, releases: int, coverage: float, *, is_open: bool) -> Iterator[Maker]:
        for make in Count.makers(self, share, releases, coverage, is_open=is_open):
            yield partial(self._a_tick, make, coverage)

    def _a_tick(self, make: Maker, coverage: float) -> Candidate:
        """What a count's error is once it is divided: largest at the first tick."""
        counted = make()
        plan = counted.mechanism.plan
        variances = sampled_profile(plan)
        # As many standard deviations as for the count itself.
        deviations = predict_error(plan, coverage).largest / np.sqrt(variances.max())
        step = 1 if plan.horizon >= OPEN_HORIZON else -(-plan.horizon // PREDICTED_TICKS)
        ticks = self.every * (1 + step * np.arange(len(variances)))
        return replace(counted, expected_error=ExpectedError.of(deviations * np.sqrt(variances) / ticks, coverage))

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        return scaled(Count.table(self, mechanism, release, coverage), Fraction(1, self.every * release.tick))

    def head(self, share: Fraction = Fraction(1)) -> Head:
        raise ParameterError(f"query {self.name!r} must be asked of single events, got users; take a count")
