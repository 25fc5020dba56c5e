"""The sum of a column of numbers."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from pianissimo.checks import check_positive
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.queries.common import Column, Role, Tidy, check_column, check_common, check_outside

_MOST_STEPS = 2**40


@identified("query-sum")
@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of the events' values so far.

    >>> Sum("revenue", value="price", range=(0, 500), grid=0.01).steps
    (0, 50000)
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    value: str
    """The column of values: numbers."""

    range: tuple[float, float]
    """The least and the largest value that counts; see `outside`."""

    outside: Literal["clamp", "refuse"] = "clamp"
    """What happens to values outside the range: they are moved to the nearer end, or the row is refused."""

    grid: float | Fraction = 1
    """Values are rounded to multiples of it, each by itself; both ends of the range are multiples."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    kind: ClassVar[str] = "sum"

    def __post_init__(self) -> None:
        check_common(self)
        check_column(value=self.value)
        check_outside(self.outside)
        check_positive(grid=self.grid)
        if not 1e-12 <= self.grid <= 1e12:
            raise ParameterError(f"grid must be between 1e-12 and 1e12, got {float(min(self.grid, 10**300)):g}")
        if not (isinstance(self.range, Sequence) and len(self.range) == 2):
            raise ParameterError(f"range must be two numbers, got {self.range!r}")
        low, high = self.steps
        if Tidy.RANKED in self.tidy or (Tidy.MONOTONE in self.tidy and low < 0):
            raise ParameterError("tidy must be non_negative, or monotone for values without a sign, for a sum")
        if not low < high:
            raise ParameterError(f"range must begin below its end, got {self.range[0]} to {self.range[1]}")
        if not max(abs(low), abs(high)) <= _MOST_STEPS:
            raise ParameterError("range must have at most 2^40 steps of the grid, got more; take a coarser grid")

    @property
    def exact_grid(self) -> Fraction:
        """The grid as the decimal number it was written as: 0.01 is one hundredth."""
        return self.grid if isinstance(self.grid, Fraction) else Fraction(repr(self.grid))

    @property
    def steps(self) -> tuple[int, int]:
        """Both ends of the range in steps of the grid."""
        ends = []
        for end in self.range:
            try:
                steps = Fraction(repr(end) if isinstance(end, float) else end) / self.exact_grid
            except (TypeError, ValueError):
                raise ParameterError(f"range must be two finite numbers, got {end!r}") from None
            if steps.denominator != 1:
                raise ParameterError(f"range must begin and end on multiples of the grid {self.grid}, got {end}")
            ends.append(int(steps))
        return ends[0], ends[1]

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        return (Column(self.value, Role.NUMBERS),)
