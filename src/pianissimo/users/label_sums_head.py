"""Sums and means by label of the accepted events of users.

Card: units and windows, U5, with the ends of the range as its two series. A value v lies in lo .. hi, whole steps.

* *Sums of listed labels:* one series a label. A unit moves one of them by at most the larger end in size.
* *Means:* A = sum of v - lo and B = sum of hi - v of each label. A unit moves the two of one label by v - lo, hi - v,
  which sum to R = hi - lo, and in squares to at most R^2. So n units of a user on one label cost at most n^2 R^2, and
  all of hers R^2 S2(m, k). N = (A + B) / R and the sum about the middle, (A - B) / 2, have the variances 2 V / R^2 and
  V / 2. For Gaussian noise that is the card's N and S' with half of the budget each; for Laplace noise half of that.

N and the sum are of the same accepted events under the same cap: the mean is theirs, and that of no others.
"""

import math
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.cells import Bars, Codes
from pianissimo.checks import check_at_least
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.noise.mean_interval import NoisyMeans
from pianissimo.noise.running import check_answers
from pianissimo.users.caps import CutOff
from pianissimo.users.counters import Law, Sensitivity
from pianissimo.users.heads import AnyHead, Signs, UserCounts, coarse_ends, codes_in, whole_steps


@dataclass(frozen=True, slots=True, eq=False)
class UserEnds:
    """A and B of each label, of the accepted events: what their means, and their numbers, are made of."""

    labels: pl.Series
    above_low: NDArray[np.int64]
    below_high: NDArray[np.int64]
    ends: tuple[int, int]
    """lo and hi, in coarse steps."""

    law: Law
    cut: CutOff

    @property
    def is_signed(self) -> bool:
        """Whether what is cut off may also be negative."""
        return self.ends[0] < 0

    def means(self, coverage: float) -> tuple[NDArray[np.float64], ...]:
        """Estimate, low and high of each label's mean in coarse steps; no estimate (NaN) where any mean is possible."""
        low, high = self.ends
        first, second, size = self.above_low.astype(np.float64), self.below_high.astype(np.float64), high - low
        variance = float(self.law.variance)
        noisy = NoisyMeans(
            numbers=(first + second) / size,
            sums=(first - second) / 2,
            variances=(2 * variance / size**2, variance / 2),
            # Rounding moves (A - B) / 2 - mu (A + B) / R by at most half of each, for every mu of the range.
            roundings=(0.0, self.law.roundings / 2 if self.law.is_rounded else 0.0),
            factor=self.law.mixed_factor(coverage),
        )
        middle = (low + high) / 2
        return tuple(each + middle for each in noisy.bars(low - middle, high - middle))

    def sums(self, coverage: float, *, most_units: int | None = None) -> tuple[NDArray[np.int64], list[Bars]]:
        """The sum of each label in coarse steps, (hi A + lo B) / R, with bars as those of `UserTotal`."""
        low, high = self.ends
        weights = high / (high - low), low / (high - low)
        exact = weights[0] * self.above_low + weights[1] * self.below_high
        estimates = np.floor(exact + 0.5).astype(np.int64)
        half = self.law.mixed_factor(coverage) * math.sqrt(float(self.law.variance)) * math.hypot(*weights)
        # Both series are rounded, and their sum once more.
        half += (sum(map(abs, weights)) * self.law.roundings / 2 if self.law.is_rounded else 0.0) + 0.5
        missing = max(abs(low), abs(high)) * (self.cut.most_missing(most_units) or 0)
        below = missing if low < 0 else 0
        return estimates, [Bars(each - half - below, each + half + missing) for each in estimates.tolist()]

    def to_dict(self) -> dict[str, list[int]]:
        """Both numbers of each label."""
        rows = zip(self.above_low.tolist(), self.below_high.tolist(), strict=True)
        return {label: list(row) for label, row in zip(self.labels.to_list(), rows, strict=True)}


@identified("label-sums-head")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSumsHead(AnyHead):
    """The sum of the values of each label's events, or what their means are made of, over the accepted events.

    A column is one of structs: `key`, a text, and `value`, whole steps of the grid; null for a row that adds nothing.
    Labels that are not listed are nowhere.
    """

    domain: Domain

    low: int
    """The least value of an event, in steps of the grid; lower ones are raised to it."""

    high: int
    """The largest value of an event, in steps of the grid; higher ones are lowered to it."""

    coarse: int = 1
    """How many steps of the grid count as one; what lies between is rounded by coins, right on average."""

    means: bool = False
    """Whether means are made of it, by the ends of the range, and not sums."""

    def __post_init__(self) -> None:
        AnyHead.__post_init__(self)
        check_at_least(1, coarse=self.coarse)
        if not self.low < self.high:
            raise ParameterError(f"low must be below high, got {self.low} and {self.high}")
        _ = self.ends

    @property
    def ends(self) -> tuple[int, int]:
        """The range in coarse steps."""
        return coarse_ends(self.low, self.high, self.coarse)

    @property
    def magnitude(self) -> int:
        """The most that one event can move all series by together, in coarse steps."""
        low, high = self.ends
        return high - low if self.means else max(abs(low), abs(high))

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(total=self.magnitude, squared=self.magnitude**2)

    @property
    def cells(self) -> int:
        return (2 if self.means else 1) * len(self.domain)

    def encode(self, column: pl.Series) -> Codes:
        """The place of the label times the number of values, and the value above the least; -1 for nothing."""
        if not isinstance(column.dtype, pl.Struct):
            raise InputError(f"keys and values must be structs, got {column.dtype}")
        there = column.is_not_null().to_numpy()
        rows = column.filter(column.is_not_null()).struct.unnest()
        places = codes_in(self.domain, rows["key"])
        values = whole_steps(rows["value"]).clip(self.low, self.high).to_numpy() - self.low
        codes = np.full(len(column), -1, dtype=np.int64)
        codes[there] = np.where(places >= 0, places * (self.high - self.low + 1) + values, -1)
        return codes

    def rounded(self, codes: Codes, coins: NDArray[np.uint64]) -> Codes:
        """Coarse steps: each value up or down, with the chances that make it right on average."""
        places, values = np.divmod(codes, self.high - self.low + 1)
        low, high = self.ends
        steps = (values + (coins % np.uint64(self.coarse)).astype(np.int64)) // self.coarse
        return np.where(codes < 0, -1, places * (high - low + 1) + steps)

    def add(self, totals: NDArray[np.int64], codes: Codes, signs: Signs | None) -> None:
        known, (low, high) = codes >= 0, self.ends
        places, above = np.divmod(codes[known], high - low + 1)
        weights = 1 if signs is None else signs[known].astype(np.int64)
        if self.means:
            above_low, below_high = np.split(totals, 2)
            np.add.at(above_low, places, weights * above)
            np.add.at(below_high, places, weights * (high - low - above))
        else:
            np.add.at(totals, places, weights * (above + low))

    def value(self, estimates: NDArray[np.int64], law: Law, cut: CutOff, *, is_signed: bool) -> UserCounts | UserEnds:
        check_answers(estimates)
        labels, count = self.domain.labels.clone(), len(self.domain)
        if self.means:
            return UserEnds(labels, estimates[:count], estimates[count:], self.ends, law, cut)
        either = is_signed or self.low < 0
        return UserCounts(labels, estimates, law, cut, is_signed=either, unit=self.magnitude)
