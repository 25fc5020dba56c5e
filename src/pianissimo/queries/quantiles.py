"""Quantiles of a column of numbers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.queries.columns import exactly
from pianissimo.queries.expected import Candidate, number_text
from pianissimo.queries.query import released_table
from pianissimo.queries.sum import ValueQuery
from pianissimo.users import Head, QuantilesHead, deviations_below

_MOST_CELLS = 2**16
_POWERS = tuple(1 << place for place in range(1, 17))


@identified("query-quantiles")
@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles(ValueQuery):
    """The values below which given parts of all events so far lie: the median, the 95 % point; and the extremes.

    Any number of them costs the same. The key of a row is the part, or which extreme it is.

    >>> Quantiles("reading_time", value="seconds", at=[0.5, 0.95], range=(0, 600)).depth
    10
    """

    at: Sequence[float] = (0.5,)
    """Which parts, each above 0 and below 1."""

    largest: Sequence[int] = ()
    """Also the k-th largest value for each of these k, rather below than above the true one; 1 is the maximum."""

    smallest: Sequence[int] = ()
    """Also the k-th smallest value for each of these k, rather above than below the true one; 1 is the minimum."""

    cells: int = 1024
    """Into how many cells of equal width the range is cut, a power of two; an answer is a cell."""

    kind = "quantiles"
    called = "quantiles"
    tidies = ()
    nothing = None
    told = ("range", "at")
    answer = "quantiles of {0.value}{0.clamped}"
    error_unit = " ranks"
    beyond_cap = "quantiles are those of capped events"

    def _check(self) -> None:
        try:
            _ = self.limits
        except OverflowError:
            raise ParameterError("range must be two finite numbers, got a larger one") from None
        if self.cells not in _POWERS:
            raise ParameterError(f"cells must be a power of two from 2 to {_MOST_CELLS}, got {self.cells!r}")
        for name in ("at", "largest", "smallest"):
            if isinstance(getattr(self, name), str) or not isinstance(getattr(self, name), Sequence):
                raise ParameterError(f"{name} must be a list of numbers, got {getattr(self, name)!r}")
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not all(isinstance(part, float | int | Fraction) and 0 < part < 1 for part in self.at):
            raise ParameterError("at must be parts above 0 and below 1, got others; largest and smallest give extremes")
        for place in (*self.largest, *self.smallest):
            check_at_least(1, place=place)
        if not (self.at or self.largest or self.smallest):
            raise ParameterError("at, largest or smallest must ask for something, got nothing")

    @property
    def limits(self) -> tuple[float, float]:
        """Both ends of the range."""
        return float(self.range[0]), float(self.range[1])

    @property
    def depth(self) -> int:
        """How often the range is halved."""
        return self.cells.bit_length() - 1

    @property
    def parts(self) -> tuple[Fraction, ...]:
        """The parts as the decimal numbers they were written as."""
        return tuple(map(exactly, self.at))

    def head(self, share: Fraction = Fraction(1)) -> Head:
        low, high = self.limits
        return QuantilesHead(
            name=self.name,
            low=low,
            high=high,
            depth=self.depth,
            quantiles=self.parts,
            largest=tuple(self.largest),
            smallest=tuple(self.smallest),
            share=share,
        )

    def user_scale(self, mechanism: Any) -> float:
        # The noise of the rank, at its worst cell.
        parts = self.parts or (Fraction(1, 2),)
        return max(float(deviations_below(self.depth, float(part)).max()) for part in parts)

    def facts(self, chosen: Candidate) -> dict[str, Any]:
        # A rank is worth the more of the range the fewer events there are, which is not public: so many make it this.
        low, high = self.limits
        within = (high - low) / min(100, self.cells)
        events = math.ceil(chosen.expected_error.typical * (high - low) / within)
        return ValueQuery.facts(self, chosen) | {"error_in_value": {"within": within, "events": events}}

    def left_out(self, chosen: Candidate) -> list[str]:
        within, events = map(number_text, self.facts(chosen)["error_in_value"].values())
        own = f"in value, within {within} once {events} events lie evenly over {self.span}"
        return [own, *ValueQuery.left_out(self, chosen)]

    def open_ends(self, value: Any) -> tuple[str, ...]:
        # Of the events that the cap let through: how others would move a quantile has no bound to be open at.
        return ()

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        value, (least, most) = release.value[self.name], self.limits
        rows: list[tuple[str, float, float | None, float | None]] = []
        for part, written in zip(self.parts, self.at, strict=True):
            bars = value.bars(part, coverage, most_units=most_events)
            rows.append((f"{float(written):g}", value.quantile(part), bars.low, bars.high))
        # The k-th largest is a bound from below, and the k-th smallest one from above.
        rows += [(f"largest {place}", (found := value.kth_largest(place)), found, most) for place in self.largest]
        rows += [(f"smallest {place}", (found := value.kth_smallest(place)), least, found) for place in self.smallest]
        key, estimate, low, high = (list(column) for column in zip(*rows, strict=True))
        return released_table(estimate, low, high, key=key, whole=False)
