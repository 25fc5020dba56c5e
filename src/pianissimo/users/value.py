"""What a user-level mechanism releases: estimates, and error bars from public things alone.

The noise of a release is known exactly from the plan and from when the cap was raised. What the cap cut off is not
known: it only ever lowers a count. Of it two things are public. While the cap follows the stream, fewer than
`users_above` users are above it, up to the failure probability of its tests; and whoever knows how many units a user
has at most may say so, and gets bars that reach over the cut as well. Without that the bars cover what was kept.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.checks import check_probability
from pianissimo.users.counters import Law


class Bars(NamedTuple):
    """The ends of an interval that covers the truth."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class CutOff:
    """What is public of the units that a cap leaves out.

    >>> CutOff(cap=64, users_above=10).most_missing(most_units=100)
    360
    """

    cap: int
    """How many units of one user count."""

    users_above: int | None
    """Fewer users than this are above the cap, up to the failure probability; None where nothing is known."""

    passed: tuple[tuple[int, int], ...] = ()
    """Earlier caps and their bounds, where what they left out stays out."""

    def most_missing(self, most_units: int | None) -> int | None:
        """How many units are missing at most if no user has more than `most_units`; None if nothing is known.

        >>> CutOff(cap=64, users_above=None).most_missing(most_units=64)
        0
        """
        if most_units is None:
            return None
        if all(most_units <= cap for cap in (self.cap, *(cap for cap, _ in self.passed))):
            return 0
        if self.users_above is None:
            return None
        own = self.users_above * max(0, most_units - self.cap)
        return own + sum(users * max(0, most_units - cap) for cap, users in self.passed)


@dataclass(frozen=True, slots=True, eq=False)
class UserTotal:
    """One estimate: of a count, a sum or a number of distinct values.

    >>> from fractions import Fraction
    >>> from pianissimo.noise.laws import LaplaceNode
    >>> law = Law(plan=None, age=0, prefix=LaplaceNode(Fraction(10)))
    >>> total = UserTotal(estimate=1000, law=law, cut=CutOff(cap=64, users_above=10))
    >>> total.bars(0.95)
    Bars(low=970.0, high=1030.0)
    >>> total.bars(0.95, most_units=100)
    Bars(low=970.0, high=1390.0)
    """

    estimate: int
    law: Law
    cut: CutOff
    unit: int = 1
    """How far one unit moves the estimate."""

    is_signed: bool = False
    """Whether what is cut off may also be negative, so that it may be missing on either side."""

    def bars(self, coverage: float, *, most_units: int | None = None) -> Bars:
        """Bars that cover what was kept, and with `most_units` what was cut off too where that is bounded."""
        half = self.law.half_width(coverage)
        missing = self.unit * (self.cut.most_missing(most_units) or 0)
        return Bars(self.estimate - half - (missing if self.is_signed else 0), self.estimate + half + missing)

    def to_dict(self) -> dict[str, int]:
        """The estimate and the cap."""
        return {"estimate": self.estimate, "cap": self.cut.cap}


@dataclass(frozen=True, slots=True, eq=False)
class UserCounts:
    """An estimate for each label of a domain, in the order of its bytes.

    >>> UserCounts(pl.Series(["a", "b"]), np.array([3, -1]), Law(None, 0, None), CutOff(64, None)).to_dict()
    {'a': 3, 'b': -1}
    """

    labels: pl.Series
    estimates: NDArray[np.int64]
    law: Law
    cut: CutOff
    is_signed: bool = False

    def bars(self, coverage: float, *, most_units: int | None = None, together: bool = False) -> list[Bars]:
        """Bars for each label: each with this chance, or all of them `together`."""
        check_probability(coverage=coverage)
        chance = 1 - (1 - coverage) / len(self.estimates) if together else coverage
        half = self.law.half_width(chance)
        missing = self.cut.most_missing(most_units) or 0
        below = missing if self.is_signed else 0
        return [Bars(each - half - below, each + half + missing) for each in self.estimates.tolist()]

    @property
    def largest(self) -> "UserLargest":
        """The largest of the counts: it costs nothing more."""
        return UserLargest(int(self.estimates.max()), len(self.estimates), self.law, self.cut, self.is_signed)

    def to_dict(self) -> dict[str, int]:
        """The labels and estimates as a dict."""
        return dict(zip(self.labels.to_list(), self.estimates.tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class UserLargest:
    """The largest of several noisy counts; it leans upward where counts are close, and its bars know.

    >>> UserLargest(7, 3, Law(None, 0, None), CutOff(64, None)).to_dict()
    {'estimate': 7, 'cap': 64}
    """

    estimate: int
    counts: int
    law: Law
    cut: CutOff
    is_signed: bool = False

    def bars(self, coverage: float, *, most_units: int | None = None) -> Bars:
        """Above, the noise of one count is enough: that of the label that is truly largest. Below, that of all."""
        check_probability(coverage=coverage)
        # Both sides fail with half of 1 - coverage; the noise is symmetric, so one side at p is two sides at 2 p - 1.
        above = self.law.half_width(coverage)
        below = self.law.half_width(1 - (1 - coverage) / self.counts)
        missing = self.cut.most_missing(most_units) or 0
        return Bars(self.estimate - below - (missing if self.is_signed else 0), self.estimate + above + missing)

    def to_dict(self) -> dict[str, int]:
        """The estimate and the cap."""
        return {"estimate": self.estimate, "cap": self.cut.cap}
