"""Quantiles of a column of numbers."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.queries.common import Column, Role, Tidy, check_column, check_common, check_outside

_MOST_CELLS = 2**16
_POWERS = tuple(1 << place for place in range(1, 17))


@identified("query-quantiles")
@dataclass(frozen=True, slots=True)
class Quantiles:
    """The values below which given parts of all events so far lie: the median, the 95 % point; and the extremes.

    Any number of them costs the same.

    >>> Quantiles("reading_time", value="seconds", at=[0.5, 0.95], range=(0, 600)).depth
    10
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    value: str
    """The column of values: numbers."""

    range: tuple[float, float]
    """Where values lie: public; see `outside`."""

    outside: Literal["clamp", "refuse"] = "clamp"
    """What happens to values outside the range: they are moved to the nearer end, or the row is refused."""

    at: Sequence[float] = (0.5,)
    """Which parts, each above 0 and below 1."""

    largest: Sequence[int] = ()
    """Also the k-th largest value for each of these k, rather below than above the true one; 1 is the maximum."""

    smallest: Sequence[int] = ()
    """Also the k-th smallest value for each of these k, rather above than below the true one; 1 is the minimum."""

    cells: int = 1024
    """Into how many cells of equal width the range is cut, a power of two; an answer is a cell."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """Quantiles have nothing to tidy."""

    kind: ClassVar[str] = "quantiles"

    def __post_init__(self) -> None:
        check_common(self)
        check_column(value=self.value)
        check_outside(self.outside)
        low, high = self.limits
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ParameterError(f"range must begin below its end, both finite, got {low} to {high}")
        if self.cells not in _POWERS:
            raise ParameterError(f"cells must be a power of two from 2 to {_MOST_CELLS}, got {self.cells}")
        for name in ("at", "largest", "smallest"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not all(0 < part < 1 for part in self.at):
            raise ParameterError("at must be parts above 0 and below 1, got others; largest and smallest give extremes")
        for place in (*self.largest, *self.smallest):
            check_at_least(1, place=place)
        if not (self.at or self.largest or self.smallest):
            raise ParameterError("at, largest or smallest must ask for something, got nothing")
        if self.tidy:
            raise ParameterError("tidy must be left out for quantiles, got something")

    @property
    def limits(self) -> tuple[float, float]:
        """Both ends of the range.

        >>> Quantiles("reading_time", value="seconds", range=(0, 600)).limits
        (0.0, 600.0)
        """
        if not (isinstance(self.range, Sequence) and len(self.range) == 2):
            raise ParameterError(f"range must be two numbers, got {self.range!r}")
        try:
            return float(self.range[0]), float(self.range[1])
        except (TypeError, ValueError):
            raise ParameterError(f"range must be two numbers, got {self.range!r}") from None

    @property
    def depth(self) -> int:
        """How often the range is halved.

        >>> Quantiles("reading_time", value="seconds", range=(0, 600), cells=64).depth
        6
        """
        return self.cells.bit_length() - 1

    @property
    def parts(self) -> tuple[Fraction, ...]:
        """The parts as the decimal numbers they were written as.

        >>> Quantiles("reading_time", value="seconds", range=(0, 600), at=[0.1]).parts
        (Fraction(1, 10),)
        """
        return tuple(Fraction(repr(part)) if isinstance(part, float) else Fraction(part) for part in self.at)

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        return (Column(self.value, Role.NUMBERS),)
