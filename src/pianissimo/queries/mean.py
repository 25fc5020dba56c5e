"""The mean of a column of numbers, of all events or by label."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.counting import LabelSums
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.mean_interval import resolution
from pianissimo.noise.plan import NoisePlan, is_pure
from pianissimo.queries.shared.columns import exactly
from pianissimo.queries.shared.expected import Candidate, Share
from pianissimo.queries.shared.grid_query import GridQuery
from pianissimo.queries.shared.query import PlanFor
from pianissimo.queries.shared.released_tables import released_table
from pianissimo.users import Head

MEAN_OF = 10_000
"""Of how many events a mean is of which a plan tells the error: it shrinks with their number."""


@identified("query-mean")
@dataclass(frozen=True, slots=True, kw_only=True)
class Mean(GridQuery):
    """The mean of the events' values so far, or of those of each label.

    Bars reach over all means that the noise could have made. Where there are so few events that any mean could have,
    they are the whole range, and there is no estimate.

    >>> Mean("basket", value="price", range=(0, 500), key="region", domain=["north", "south"]).needs_delta
    False
    """

    kind = "mean"
    called = "a mean"
    answer = "mean of {0.value}{0.of_each}{0.clamped}"
    told = ("range",)
    tidies = ()
    beyond_cap = "the mean and its bars are those of the events that the cap lets through, and say nothing of others"
    reaches_cut = False

    @property
    def _by_label(self) -> bool:
        return True

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        return self.label_sums(share, plan_for, sum_alone=False)

    def series_weights(self, mechanism: LabelSums) -> tuple[float, ...]:
        # S' - mu N over the number, at the mean square of mu over the range: a third of W^2.
        if is_pure(mechanism.plan):
            return (math.sqrt(1 / 3) / MEAN_OF,) * 2
        return mechanism.magnitude / math.sqrt(3) / MEAN_OF, 1 / MEAN_OF

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        grid = self.unit_value(mechanism)
        means = [each * grid for each in mechanism.means(release.value, coverage)]
        return self._table(release.value.labels, *means)

    def _table(
        self, labels: pl.Series, estimate: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]
    ) -> pl.DataFrame:
        ends = (float(end) for end in self.range)
        least, most = ends
        rounded = [
            np.clip(_multiples(step(each / float(self.resolution)), self.resolution), least, most)
            for step, each in ((np.rint, estimate), (np.floor, low), (np.ceil, high))
        ]
        columns = [pl.Series(each).fill_nan(None) for each in rounded]
        return released_table(*columns, key=labels if self.key_names else None, whole=False)

    def head(self, share: Fraction = Fraction(1)) -> Head:
        return self.label_head(share, means=True)

    def user_scale(self, mechanism: Any) -> float:
        # (A - B) / 2 - mu (A + B) / R over the number, at the mean square of mu over the range: two thirds.
        return GridQuery.user_scale(self, mechanism) * math.sqrt(2 / 3) / MEAN_OF

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        value = self.user_value(release)
        low, high = map(exactly, self.range)
        grid = float((high - low) / (value.ends[1] - value.ends[0]))
        return self._table(value.labels, *(each * grid for each in value.means(coverage)))

    def open_ends(self, value: Any) -> tuple[str, ...]:
        return ()

    @property
    def resolution(self) -> Fraction:
        """What means are rounded to: bars outwards."""
        low, high = map(exactly, self.range)
        return resolution(low, high)

    @property
    def about(self) -> str:
        return f"{GridQuery.about.fget(self)}, if it is one of {MEAN_OF:,} events"  # type: ignore[attr-defined]

    def left_out(self, chosen: Candidate) -> list[str]:
        few = f"of n events the error is {MEAN_OF:,} / n times that; of few, bars are the whole range without estimate"
        told = f"means are rounded to multiples of {float(self.resolution):g}, bars outwards"
        return [few, told, *GridQuery.left_out(self, chosen)]


def _multiples(steps: NDArray[np.float64], size: Fraction) -> NDArray[np.float64]:
    """So many steps of a power of ten: the numbers nearest to these decimals."""
    found: NDArray[np.float64] = steps * size.numerator / size.denominator
    return found
