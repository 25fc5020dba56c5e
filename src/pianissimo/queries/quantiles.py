"""Quantiles of a column of numbers."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.cells import DEEPEST, Bars, DoubleCells, EvenCells, deviations_below, in_order
from pianissimo.checks import check_at_least
from pianissimo.counting import EventQuantiles
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.shared.columns import exactly
from pianissimo.queries.shared.expected import Candidate, Share, number_text
from pianissimo.queries.shared.query import PlanFor
from pianissimo.queries.shared.released_tables import released_table, with_cap
from pianissimo.queries.shared.value_query import ValueQuery
from pianissimo.users import Head, QuantilesHead

_MOST_CELLS = 1 << DEEPEST
_DEFAULT_CELLS = 1024
_RELATIVE_WIDTH = 2**-9
_POWERS = tuple(1 << place for place in range(1, 17))


@identified("query-quantiles")
@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles(ValueQuery):
    """The values below which given parts of all events so far lie: the median, the 95 % point; and the extremes.

    Any number of them costs the same. The key of a row is the part, or which extreme it is. Of single events `per`
    gives those of the last ticks. Without a range values of any size count, to 1 in 512, for more noise.

    >>> Quantiles("reading_time", value="seconds", at=[0.5, 0.95], range=(0, 600)).depth
    10
    """

    range: tuple[float, float] | None = None  # type: ignore[assignment]  # the only kind that has cells without
    """Where values lie, such as [0, 500]: public; see `outside`. None where nobody knows: cells are then 1/512 of a
    value wide, from 2^-32 up to 2^32 in size, and ranks have about 1.45 times the noise of 1,024 cells."""

    at: Sequence[float] = (0.5,)
    """Which parts, each above 0 and below 1."""

    largest: Sequence[int] = ()
    """Also the k-th largest value for each of these k, rather below than above the true one; 1 is the maximum."""

    smallest: Sequence[int] = ()
    """Also the k-th smallest value for each of these k, rather above than below the true one; 1 is the minimum."""

    cells: int = _DEFAULT_CELLS
    """Into how many cells of equal width the range is cut, a power of two; an answer is a cell. Without a range there
    are 65,536."""

    kind = "quantiles"
    called = "quantiles"
    tidies = ()
    nothing = None
    told = ("range", "at")
    answer = "quantiles of {0.value}{0.clamped}"
    error_unit = " ranks"
    beyond_cap = "quantiles are those of capped events"

    def _check_range(self) -> None:
        if self.range is not None:
            ValueQuery._check_range(self)
            return
        if self.outside != "clamp":
            raise ParameterError("outside must be left out without a range, got 'refuse': nothing is outside")
        if self.cells not in (_DEFAULT_CELLS, _MOST_CELLS):
            raise ParameterError(f"cells must be left out without a range, got {self.cells!r}: there are {_MOST_CELLS}")

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
        return float(self.ends[0]), float(self.ends[1])

    @property
    def ends(self) -> tuple[float, float]:
        """The range, or without one where the outermost cells end."""
        return (-DoubleCells.largest, DoubleCells.largest) if self.range is None else self.range

    @property
    def depth(self) -> int:
        """How often the range is halved."""
        return DoubleCells.depth if self.range is None else self.cells.bit_length() - 1

    @property
    def parts(self) -> tuple[Fraction, ...]:
        """The parts as the decimal numbers they were written as."""
        return tuple(map(exactly, self.at))

    def head(self, share: Fraction = Fraction(1)) -> Head:
        low, high = (None, None) if self.range is None else self.limits
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

    @property
    def series(self) -> int:
        return (2 << self.depth) - 1

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        low, high = self.limits
        cells = DoubleCells() if self.range is None else EvenCells(low=low, high=high, depth=self.depth)
        # An event lies in one bin of each size.
        plan = plan_for(share, series=self.depth + 1)
        return EventQuantiles(plan=plan, cells=cells, history=self.history_kept), plan

    def unit_value(self, mechanism: Any) -> float:
        return self.user_scale(mechanism)

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        return self._table(release.value, lambda part: release.value.interval(part, coverage))

    def user_scale(self, mechanism: Any) -> float:
        # The noise of the rank, at its worst cell.
        parts = self.parts or (Fraction(1, 2),)
        return max(float(deviations_below(self.depth, float(part)).max()) for part in parts)

    def facts(self, chosen: Candidate) -> dict[str, Any]:
        # A rank is worth the more of the range the fewer events there are, which is not public: so many make it this.
        told = ValueQuery.facts(self, chosen)
        if self.range is None:
            return told | {"relative_width": _RELATIVE_WIDTH}
        low, high = self.limits
        within = (high - low) / min(100, self.cells)
        events = math.ceil(chosen.expected_error.typical * (high - low) / within)
        return told | {"error_in_value": {"within": within, "events": events}}

    def left_out(self, chosen: Candidate) -> list[str]:
        if self.range is None:
            own = (
                "no range is given: an answer is a cell 1/512 of its value wide; values below 2^-32 in size count as 0"
            )
            return [own, *ValueQuery.left_out(self, chosen)]
        within, events = map(number_text, self.facts(chosen)["error_in_value"].values())
        own = f"in value, within {within} once {events} events lie evenly over {self.span}"
        return [own, *ValueQuery.left_out(self, chosen)]

    def open_ends(self, value: Any) -> tuple[str, ...]:
        # Of the events that the cap let through: how others would move a quantile has no bound to be open at.
        return ()

    def capped_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        table, cut = ValueQuery.capped_table(self, release, coverage, most_events), self.user_value(release).cut
        # A plan that says that bars reach over the cut says so of windows without a raise alone.
        is_open = cut.is_raised and most_events is not None and most_events > cut.cap
        return with_cap(table, cut.cap, ("low", "high")) if is_open else table

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        value = release.value[self.name]
        return self._table(value, lambda part: value.bars(part, coverage, most_units=most_events))

    def _table(self, value: Any, bars_of: Callable[[Fraction], Bars]) -> pl.DataFrame:
        # Without a range nothing is known beyond an extreme.
        least, most = (None, None) if self.range is None else self.limits
        rows: list[tuple[str, float, float | None, float | None]] = []
        ordered = in_order(self.parts, list(map(value.quantile, self.parts)), list(map(bars_of, self.parts)))
        for written, (estimate, bars) in zip(self.at, ordered, strict=True):
            rows.append((f"{float(written):g}", estimate, bars.low, bars.high))
        # The k-th largest is a bound from below, and the k-th smallest one from above.
        rows += [(f"largest {place}", (found := value.kth_largest(place)), found, most) for place in self.largest]
        rows += [(f"smallest {place}", (found := value.kth_smallest(place)), least, found) for place in self.smallest]
        key, estimates, low, high = (list(column) for column in zip(*rows, strict=True))
        return released_table(estimates, low, high, key=key, whole=False)
