"""What is released of the accepted events: how many, a sum, how many of each label.

A head says how far one accepted event moves its series, turns a column into codes row by row, adds up accepted rows and
makes a value of noisy totals. All heads of a mechanism share the accepted events; each has its own part of the budget.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_name, check_positive
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.users.counters import Law, Sensitivity
from pianissimo.users.value import CutOff, UserCounts, UserTotal

Codes = NDArray[np.int64]
Signs = NDArray[np.int8]

_LARGEST_STEPS = 2**40
_ONE = Fraction(1)


class Head(Protocol):
    """One statistic of the accepted events."""

    @property
    def name(self) -> str:
        """Of its value, and of its column."""

    @property
    def share(self) -> Fraction:
        """Its part of the counters' budget, beside those of the other heads."""

    @property
    def has_column(self) -> bool:
        """Whether it looks at a column."""

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one accepted event moves its series."""

    @property
    def cells(self) -> int:
        """How many exact totals it keeps."""

    @property
    def series(self) -> int:
        """How many noisy totals it makes of them."""

    def encode(self, column: pl.Series) -> Codes:
        """A column as whole numbers, each row judged by itself."""

    def add(self, totals: NDArray[np.int64], codes: Codes, signs: Signs | None) -> None:
        """Add accepted rows to the totals."""

    def expand(self, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        """The totals of all series."""

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> Any:
        """What is released."""


@identified("count-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class CountHead:
    """How many events there are, insertions less deletions.

    >>> CountHead().sensitivity
    Sensitivity(total=1, squared=1, moves=False)
    """

    name: str = "count"
    share: Fraction = _ONE

    def __post_init__(self) -> None:
        check_head(self.name, self.share)

    @property
    def has_column(self) -> bool:
        return False

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(total=1, squared=1)

    @property
    def cells(self) -> int:
        return 1

    @property
    def series(self) -> int:
        return 1

    def encode(self, column: pl.Series) -> Codes:
        return np.ones(len(column), dtype=np.int64)

    def add(self, totals: NDArray[np.int64], codes: Codes, signs: Signs | None) -> None:
        totals[0] += len(codes) if signs is None else int(signs.sum(dtype=np.int64))

    def expand(self, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        return totals

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> UserTotal:
        return UserTotal(int(estimates[0]), law, cut, is_signed=is_signed)


@identified("sum-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class SumHead:
    """The sum of a column of whole steps of a grid, each moved into the declared range, over the accepted events.

    The cap is one of events, and an event weighs as much as the larger end of the range; `UserSum` has a cap in value
    units instead.

    >>> SumHead(name="amount", low=-5, high=100).sensitivity.total
    100
    """

    name: str
    low: int
    """The least value of an event, in steps of the grid; lower ones are raised to it."""

    high: int
    """The largest value of an event, in steps of the grid; higher ones are lowered to it."""

    share: Fraction = _ONE

    def __post_init__(self) -> None:
        check_head(self.name, self.share)
        if not self.low < self.high:
            raise ParameterError(f"low must be below high, got {self.low} and {self.high}")
        if not self.magnitude <= _LARGEST_STEPS:
            raise ParameterError("low and high must be at most 2^40 steps in size, got more; take a coarser grid")

    @property
    def magnitude(self) -> int:
        """The most that one event can add or take away.

        >>> SumHead(name="amount", low=-5, high=3).magnitude
        5
        """
        return max(abs(self.low), abs(self.high))

    @property
    def has_column(self) -> bool:
        return True

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(total=self.magnitude, squared=self.magnitude**2)

    @property
    def cells(self) -> int:
        return 1

    @property
    def series(self) -> int:
        return 1

    def encode(self, column: pl.Series) -> Codes:
        return whole_steps(column).clip(self.low, self.high).to_numpy()

    def add(self, totals: NDArray[np.int64], codes: Codes, signs: Signs | None) -> None:
        totals[0] += int((codes if signs is None else codes * signs).sum())

    def expand(self, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        return totals

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> UserTotal:
        either = is_signed or self.low < 0
        return UserTotal(int(estimates[0]), law, cut, unit=self.magnitude, is_signed=either)


@identified("histogram-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramHead:
    """How many events hold each label of a domain: all of its labels are released, also those nobody holds.

    The largest of the counts, `UserCounts.largest`, costs nothing more.

    >>> HistogramHead(name="section", domain=Domain(["news", "sport"])).series
    2
    """

    name: str
    domain: Domain
    share: Fraction = _ONE

    def __post_init__(self) -> None:
        check_head(self.name, self.share)

    @property
    def has_column(self) -> bool:
        return True

    @property
    def sensitivity(self) -> Sensitivity:
        # An event lies in one bin. Over all bins and ticks a user has `cap` of them, however they are spread.
        return Sensitivity(total=1, squared=1)

    @property
    def cells(self) -> int:
        return len(self.domain)

    @property
    def series(self) -> int:
        return len(self.domain)

    def encode(self, column: pl.Series) -> Codes:
        return codes_in(self.domain, column)

    def add(self, totals: NDArray[np.int64], codes: Codes, signs: Signs | None) -> None:
        add_in_cells(totals, codes, signs)

    def expand(self, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        return totals

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> UserCounts:
        return UserCounts(self.domain.labels.clone(), estimates, law, cut, is_signed=is_signed)


def whole_steps(column: pl.Series) -> pl.Series:
    """A column of whole steps of a grid.

    >>> whole_steps(pl.Series([1.5]))
    Traceback (most recent call last):
    pianissimo.errors.InputError: values must be whole steps of the grid without nulls, got Float64
    """
    if not column.dtype.is_integer() or column.null_count():
        raise InputError(f"values must be whole steps of the grid without nulls, got {column.dtype}")
    try:
        return column.cast(pl.Int64)
    except pl.exceptions.InvalidOperationError:
        raise InputError("values must be whole steps of 64 bits, got a larger one") from None


def codes_in(domain: Domain, labels: pl.Series) -> Codes:
    """The place of each label in a domain, -1 for others.

    >>> codes_in(Domain(["b", "a"]), pl.Series(["b", "c"]))
    array([ 1, -1])
    """
    if labels.dtype in (pl.Categorical, pl.Enum):
        labels = labels.cast(pl.String)
    if labels.dtype != pl.String or labels.null_count():
        raise InputError(f"labels must be texts without nulls, got {labels.dtype}")
    return labels.cast(_enum(domain), strict=False).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()


def add_in_cells(totals: NDArray[np.int64], codes: Codes, signs: Signs | None) -> None:
    """Count codes from 0 up, with a sign where there are signs; negative codes are nowhere.

    >>> totals = np.array([1, 2])
    >>> add_in_cells(totals, np.array([1, -1, 1]), np.array([1, 1, 1], np.int8))
    >>> totals
    array([1, 4])
    """
    known = codes >= 0
    if signs is None:
        totals += np.bincount(codes[known], minlength=len(totals))
    else:
        for sign in (1, -1):
            totals += sign * np.bincount(codes[known & (signs == sign)], minlength=len(totals))


@lru_cache(maxsize=64)
def _enum(domain: Domain) -> pl.Enum:
    return pl.Enum(domain.labels)


def check_head(name: str, share: Fraction) -> None:
    """Refuse names that no column of a batch may have, and shares of nothing.

    >>> check_head("user", Fraction(1))
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: name of a head must not be 'user' or 'weight', got 'user'
    """
    check_name(name=name)
    if name in ("user", "weight"):
        raise ParameterError(f"name of a head must not be 'user' or 'weight', got {name!r}")
    check_positive(share=share)
