"""What all queries about numbers within a range have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import polars as pl

from pianissimo.errors import ParameterError
from pianissimo.queries.shared.asked import Nulls
from pianissimo.queries.shared.columns import Reads, Role, check_column, is_finite, number_column
from pianissimo.queries.shared.expected import Candidate
from pianissimo.queries.shared.query import Query


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

    def most_moved(self, mechanism: Any) -> float | None:
        return None

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
        if not self.clamped:
            return [*found, f"rows with a {self.value} outside {self.span} are refused"]
        return [*found, *([] if self.range is None else [cut_words(self.value, self.span)])]

    @property
    def rule(self) -> str:
        within = f" within {self.ends[0]} and {self.ends[1]}" if self.outside == "refuse" else ""
        return f"column {self.value!r} must hold finite numbers{within}"


def cut_words(value: str, span: str) -> str:
    """What becomes of values outside a range that is given in words.

    >>> cut_words("price", "0 .. 600")
    'values of price above 600 count as 600, below 0 as 0'
    """
    low, high = span.split(" .. ")
    return f"values of {value} above {high} count as {high}, below {low} as {low}"
