"""What is released of the accepted events: how many, a sum, how many of each label, with error bars.

A head has a `name`, that of its value and of its column, and a `share` of the counters' budget. It says how far one
accepted event moves its series (`sensitivity`), how many exact totals it keeps (`cells`) and how many noisy ones it
makes of them (`series`). It turns a column into whole numbers, each row judged by itself (`encode`), adds accepted rows
to its totals (`add`), gives the totals of all series (`expand`) and makes a value of noisy ones (`value`). All heads of
a mechanism share the accepted events.

The noise of a release is known exactly from the plan and from when the cap was raised, so error bars are made of public
things alone. They cover what was kept, and where it is known how many units a user has at most, what was cut off too.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.cells import Bars, Codes, add_in_cells
from pianissimo.checks import check_at_least, check_name, check_positive
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.noise.plan import normal_quantile
from pianissimo.noise.running import check_answers
from pianissimo.users.caps import CutOff
from pianissimo.users.counters import Law, Sensitivity

Signs = NDArray[np.int8]

ABOVE_CAP = "above_cap"
"""What the number of users above the cap is called in a release."""

_LARGEST_STEPS = 2**40


@dataclass(frozen=True, slots=True, eq=False)
class UserTotal:
    """One estimate: of a count, a sum, a number of distinct values, or the largest of several counts."""

    estimate: int
    law: Law
    cut: CutOff
    unit: int = 1
    """How far one unit moves the estimate."""

    is_signed: bool = False
    """Whether what is cut off may also be negative, so that it may be missing on either side."""

    coarse: int = 1
    """How many steps of a grid the estimate, its noise and its cap count as one."""

    largest_of: int = 1
    """Of how many noisy counts it is the largest: it leans upward where they are close, and its bars know."""

    def bars(self, coverage: float, *, most_units: int | None = None) -> Bars:
        """Bars that cover what was kept, and with `most_units` what was cut off too where that is bounded.

        Above the largest of several, the noise of one is enough: that of the label that is truly largest. Below, that
        of all. Both sides fail with half of 1 - coverage: noise is symmetric, so one side at p is two at 2 p - 1.
        """
        above = self.law.half_width(coverage)
        below = self.law.half_width(1 - (1 - coverage) / self.largest_of) if self.largest_of > 1 else above
        missing = self.unit * (self.cut.most_missing(most_units) or 0)
        return Bars(self.estimate - below - (missing if self.is_signed else 0), self.estimate + above + missing)

    def to_dict(self) -> dict[str, int]:
        """The estimate and the cap."""
        return {"estimate": self.estimate, "cap": self.cut.cap}


@dataclass(frozen=True, slots=True)
class HiddenRest:
    """All labels that are not shown, together: an estimate and the standard deviation of its noise."""

    estimate: int
    deviation: float
    lean: float
    """By how much it may be too low, since labels near the threshold are shown when their noise is high."""

    cut: CutOff

    def bars(self, coverage: float, *, most_units: int | None = None) -> Bars:
        """Bars that cover what was kept of them, and with `most_units` what was cut off too where that is bounded."""
        half = normal_quantile(coverage) * self.deviation
        missing = self.cut.most_missing(most_units) or 0
        return Bars(self.estimate - half, self.estimate + half + self.lean + missing)


@dataclass(frozen=True, slots=True, eq=False)
class UserCounts:
    """An estimate for each label of a domain, or that is shown, in the order of its bytes."""

    labels: pl.Series
    estimates: NDArray[np.int64]
    law: Law
    cut: CutOff
    is_signed: bool = False
    rest: HiddenRest | None = None
    """Of the labels that are not shown, where that is asked for."""

    unit: int = 1
    """How far one unit moves an estimate."""

    def around(self, coverage: float, *, most_units: int | None = None) -> Bars:
        """The bars of an estimate of 0: those of all labels are as wide, each with this chance."""
        one = UserTotal(0, self.law, self.cut, unit=self.unit, is_signed=self.is_signed)
        return one.bars(coverage, most_units=most_units)

    def bars(self, coverage: float, *, most_units: int | None = None) -> list[Bars]:
        """Bars for each label, each with this chance."""
        low, high = self.around(coverage, most_units=most_units)
        return [Bars(each + low, each + high) for each in self.estimates.tolist()]

    @property
    def largest(self) -> UserTotal:
        """The largest of the counts: it costs nothing more."""
        found, count = int(self.estimates.max()), len(self.estimates)
        return UserTotal(found, self.law, self.cut, is_signed=self.is_signed, largest_of=count)

    def to_dict(self) -> dict[str, int]:
        """The labels and estimates as a dict."""
        return dict(zip(self.labels.to_list(), self.estimates.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyHead:
    """One total and one series, which is moved by one, unless a head says otherwise."""

    name: str
    share: Fraction = Fraction(1)
    """Of the counters' budget."""

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(total=1, squared=1)

    @property
    def cells(self) -> int:
        return 1

    @property
    def series(self) -> int:
        return self.cells

    def __post_init__(self) -> None:
        check_name(name=self.name)
        if self.name in ("user", "weight"):  # columns of every batch
            raise ParameterError(f"name of a head must not be 'user' or 'weight', got {self.name!r}")
        check_positive(share=self.share)

    def expand(self, totals: NDArray[np.int64]) -> NDArray[np.int64]:
        return totals


@identified("count-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class CountHead(AnyHead):
    """How many events there are, insertions less deletions."""

    name: str = "count"

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> UserTotal:
        return UserTotal(int(estimates[0]), law, cut, is_signed=is_signed)


@identified("sum-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class SumHead(AnyHead):
    """The sum of a column of whole steps of a grid, each moved into the declared range, over the accepted events.

    The cap is one of events, and an event weighs as much as the larger end of the range; `UserSum` has a cap in value
    units instead.
    """

    low: int
    """The least value of an event, in steps of the grid; lower ones are raised to it."""

    high: int
    """The largest value of an event, in steps of the grid; higher ones are lowered to it."""

    coarse: int = 1
    """How many steps of the grid the total counts as one; what lies between is rounded by coins, right on average."""

    def __post_init__(self) -> None:
        AnyHead.__post_init__(self)
        check_at_least(1, coarse=self.coarse)
        if not self.low < self.high:
            raise ParameterError(f"low must be below high, got {self.low} and {self.high}")
        _ = self.magnitude
        if not max(abs(self.low), abs(self.high)) <= _LARGEST_STEPS:
            raise ParameterError("low and high must be at most 2^40 steps in size, got more; take a coarser grid")

    @property
    def magnitude(self) -> int:
        """The most that one event can add or take away, in coarse steps: its ends are whole numbers of them."""
        return max(map(abs, coarse_ends(self.low, self.high, self.coarse)))

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(total=self.magnitude, squared=self.magnitude**2)

    def encode(self, column: pl.Series) -> Codes:
        return whole_steps(column).clip(self.low, self.high).to_numpy()

    def rounded(self, codes: Codes, coins: NDArray[np.uint64]) -> Codes:
        """Coarse steps: each value up or down, with the chances that make it right on average."""
        return (codes + (coins % np.uint64(self.coarse)).astype(np.int64)) // self.coarse

    def add(self, totals: NDArray[np.int64], codes: Codes, signs: Signs | None) -> None:
        totals[0] += int((codes if signs is None else codes * signs).sum())

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> UserTotal:
        either = is_signed or self.low < 0
        return UserTotal(int(check_answers(estimates)[0]), law, cut, unit=self.magnitude, is_signed=either)


@identified("histogram-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramHead(AnyHead):
    """How many events hold each label of a domain: all of its labels are released, also those nobody holds.

    The largest of the counts, `UserCounts.largest`, costs nothing more.
    """

    domain: Domain

    # An event moves one bin by one. Over all bins and ticks a user has `cap` of them, however they are spread.
    add = staticmethod(add_in_cells)

    @property
    def cells(self) -> int:
        return len(self.domain)

    def encode(self, column: pl.Series) -> Codes:
        return codes_in(self.domain, column)

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> UserCounts:
        return UserCounts(self.domain.labels.clone(), estimates, law, cut, is_signed=is_signed)


@identified("above-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class AboveHead(AnyHead):
    """How many users are above the cap that holds: of whom something is cut off.

    At each start of the counters a user passes its cap once, at one tick, and is above it from then on. So she moves it
    by one, whatever the cap. Where a cap holds in each period, it is the number of pairs of a user and a period so far.
    Its totals are those of periods that are over.
    """

    name: str = ABOVE_CAP

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(total=1, squared=1, of_user=True)

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> UserTotal:  # noqa: ARG002
        return UserTotal(int(estimates[0]), law, cut)


def batch_column(batch: pl.DataFrame, name: str) -> pl.Series:
    """A column of a batch."""
    if name not in batch.columns:
        present = ", ".join(repr(column) for column in batch.columns) or "none"
        raise InputError(f"column {name!r} must be in the batch, got columns {present}")
    return batch[name]


def signs_of(column: pl.Series) -> Signs:
    """A column of 1 and -1."""
    if not column.dtype.is_integer() or column.null_count() or not bool(column.is_in([-1, 1]).all()):
        raise InputError(f"weights must be 1 or -1 without nulls, got {column.dtype} or other values")
    return column.cast(pl.Int8).to_numpy()


def whole_steps(column: pl.Series) -> pl.Series:
    """A column of whole steps of a grid."""
    if not column.dtype.is_integer() or column.null_count():
        raise InputError(f"values must be whole steps of the grid without nulls, got {column.dtype}")
    try:
        return column.cast(pl.Int64)
    except pl.exceptions.InvalidOperationError:
        raise InputError("values must be whole steps of 64 bits, got a larger one") from None


def coarse_ends(low: int, high: int, coarse: int) -> tuple[int, int]:
    """A range in coarse steps, of which its ends must be whole numbers."""
    (first, above_first), (last, above_last) = divmod(low, coarse), divmod(high, coarse)
    if above_first or above_last:
        raise ParameterError(f"low and high must be multiples of coarse, got {coarse}")
    return first, last


def codes_in(domain: Domain, labels: pl.Series) -> Codes:
    """The place of each label in a domain, -1 for others."""
    if labels.dtype in (pl.Categorical, pl.Enum):
        labels = labels.cast(pl.String)
    if labels.dtype != pl.String or labels.null_count():
        raise InputError(f"labels must be texts without nulls, got {labels.dtype}")
    return labels.cast(_enum(domain), strict=False).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()


@lru_cache(maxsize=64)
def _enum(domain: Domain) -> pl.Enum:
    return pl.Enum(domain.labels)
