"""What a promise is made of: whose presence is hidden, which streams are neighbors, and how much is lost.

Losses are exact rationals. They are worked out exactly and become floating-point numbers only where they are shown,
rounded against us.
"""

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from pianissimo.checks import check_at_least, check_fraction
from pianissimo.errors import ParameterError
from pianissimo.identity import identified


@identified("unit")
class Unit(Enum):
    """Whose presence is hidden."""

    EVENT = "event"
    """One record of the stream. A person with many records is hidden only by group privacy: see docs/limits.md."""

    USER = "user"
    """One user with all records of the whole run."""

    USER_PERIOD = "user and period"
    """One user with all records of one period, of a fixed number of ticks; other periods of hers count as others'."""


@identified("neighbors")
class Neighbors(Enum):
    """Which two streams may not be told apart."""

    ADD_OR_REMOVE = "add_or_remove"
    """One unit is there in the one and missing in the other; nothing else moves, and events keep their ticks."""

    REPLACE = "replace"
    """The data of one unit are other data, or any part of them is missing; nothing else moves."""


@dataclass(frozen=True, slots=True)
class Pure:
    """Pure differential privacy: no output is more than e^epsilon times likelier on one neighbor than on the other."""

    epsilon: Fraction
    distance: Fraction = Fraction(0)
    """Of the drawn noise from the ideal one, in total variation: see `Booked`."""

    def __post_init__(self) -> None:
        check_fraction(epsilon=self.epsilon, distance=self.distance)

    def as_booked(self) -> "Booked":
        """epsilon-DP is (epsilon^2 / 2)-zCDP: Bun and Steinke 2016, Proposition 1.4."""
        return Booked(rho=self.epsilon**2 / 2, distance=self.distance)


@dataclass(frozen=True, slots=True)
class Booked:
    """The entry (rho, bad) that every loss can be booked as, with the distance of the drawn noise from the ideal one.

    `rho` is the zCDP of a comparison mechanism, at integer orders: the Renyi divergence of order a is at most a * rho.
    Integer orders are what the plans of `noise` keep against inputs that adapt to the releases: see
    docs/decisions/0003-integer-orders.md. `bad` is the probability mass where it does not describe us:
    docs/privacy.md, 'Composition and conversion', turns it into (epsilon, delta + bad). `distance` bounds the total
    variation between the noise that is drawn and the noise of the proof; whoever converts adds (1 + e^epsilon) *
    distance to delta.
    """

    rho: Fraction
    bad: Fraction = Fraction(0)
    distance: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        check_fraction(rho=self.rho, bad=self.bad, distance=self.distance)
        _check_bad(self.bad)

    def as_booked(self) -> "Booked":
        return self


@dataclass(frozen=True, slots=True)
class BoundedRange:
    """Adaptive selection steps whose log-likelihood ratio stays in an interval of length `width`, wherever it lies.

    One exponential-mechanism step on scores that all move in one direction is such a step: Durfee and Rogers,
    "Practical differentially private top-k selection with pay-what-you-get composition", NeurIPS 2019, section 4. The
    interval contains 0, so that the whole is (steps * width)-DP where nothing is bad.
    """

    steps: int
    """How many, each chosen in view of the answers before."""

    width: Fraction
    """Length of the interval at each step: the epsilon of a step."""

    bad: Fraction = Fraction(0)
    distance: Fraction = Fraction(0)
    """Both of all steps together: see `Booked`."""

    def __post_init__(self) -> None:
        check_at_least(0, steps=self.steps)
        check_fraction(width=self.width, bad=self.bad, distance=self.distance)
        _check_bad(self.bad)

    @property
    def epsilon(self) -> Fraction:
        """What the steps lose as pure differential privacy, apart from `bad` and `distance`."""
        return self.steps * self.width

    def as_booked(self) -> "Booked":
        """A step is (width^2 / 8)-zCDP at every order.

        With K(s) = ln E_Q[(P/Q)^s], K(0) = K(1) = 0 and K'' is a variance on an interval, at most width^2 / 4; so K(s)
        is at most (width^2 / 8) s (s - 1) for s >= 1. Cesar and Rogers, "Bounding, concentrating, and truncating", ALT
        2021.
        """
        return Booked(rho=self.steps * self.width**2 / 8, bad=self.bad, distance=self.distance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """A pure part beside a concentrated one, kept apart: whoever prices them may add the pure part as it is.

    The comparison mechanism is the composition of both, in any order and also interleaved.
    """

    pure: Fraction
    """The epsilon of the pure part."""

    rho: Fraction = Fraction(0)
    """The zCDP of the other part."""

    bad: Fraction = Fraction(0)
    distance: Fraction = Fraction(0)
    """Both of both parts together: see `Booked`."""

    def __post_init__(self) -> None:
        check_fraction(pure=self.pure, rho=self.rho, bad=self.bad, distance=self.distance)
        _check_bad(self.bad)

    @property
    def parts(self) -> tuple[Pure, Booked]:
        """The same as two losses."""
        return Pure(self.pure), Booked(rho=self.rho, bad=self.bad, distance=self.distance)

    def as_booked(self) -> "Booked":
        """The pure part is (pure^2 / 2)-zCDP: Bun and Steinke 2016, Proposition 1.4."""
        return Booked(rho=self.pure**2 / 2 + self.rho, bad=self.bad, distance=self.distance)


_LEAST_RACE_SCALE = Fraction(1, 256)

MOST_RACE_CHARGES = 2**18
"""Up to so many clocks the sums of `race_clock` are exact to far below their margin."""


@dataclass(frozen=True, slots=True)
class Race:
    """Monitors that charge a user for what they report of her, and are a function of `charges` exponential clocks.

    The clocks run at rate one without the user and at rate e^(1 / scale) with her: `race_clock` has the pair and
    docs/monitors.md the theorem. Clocks of several monitors of one scale are clocks of one.

    >>> Race(charges=4, scale=Fraction(15)).as_booked()
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: a booked loss needs a zCDP, and a race has none at high orders; ...
    """

    charges: int
    """How many reports one user may be charged for in her life, those of a whole tick counted."""

    scale: Fraction
    """Of the race's noise: b."""

    bad: Fraction = Fraction(0)
    distance: Fraction = Fraction(0)
    """Of all reports, and of all draws in which the user takes part, together: see `Booked`."""

    replacement: bool = False
    """Whether neighbors replace a user's data; there are then as many clocks again, that run the other way."""

    def __post_init__(self) -> None:
        check_charges(self.charges)
        check_fraction(scale=self.scale, bad=self.bad, distance=self.distance)
        _check_bad(self.bad)
        if not self.scale >= _LEAST_RACE_SCALE:
            raise ParameterError(f"scale must be at least 1/256, got {float(self.scale):g}")

    def as_booked(self) -> "Booked":
        """Refuse: the Renyi divergence is infinite from the order e^(1 / scale) / (e^(1 / scale) - 1) on."""
        if self.charges == 0:
            return Booked(rho=Fraction(0), bad=self.bad, distance=self.distance)
        raise ParameterError("a booked loss needs a zCDP, and a race has none at high orders; use `price`")


Loss = Pure | Booked | BoundedRange | Mixed | Race


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The promise of one whole run: what is lost, by whom, against which neighbors, over how many releases."""

    loss: Loss
    unit: Unit
    neighbors: Neighbors
    horizon: int
    source: str
    """The theorem behind it."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon)


def event_guarantee(loss: Loss, *, horizon: int, source: str) -> Guarantee:
    """The promise that one event, there or not, is hidden: what all mechanisms make that know no users."""
    return Guarantee(loss=loss, unit=Unit.EVENT, neighbors=Neighbors.ADD_OR_REMOVE, horizon=horizon, source=source)


def check_charges(charges: int) -> None:
    """Refuse more clocks than `race_clock` has sums for, before anything of that size is made."""
    check_at_least(0, charges=charges)
    if not charges <= MOST_RACE_CHARGES:
        raise ParameterError(f"charges must be at most {MOST_RACE_CHARGES}, got {charges}")


def float_up(value: Fraction) -> float:
    """The smallest floating-point number that is not below `value`."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def float_down(value: Fraction) -> float:
    """The largest floating-point number that is not above `value`."""
    return 0.0 - float_up(-value)


def log_inverse(delta: Fraction | float) -> float:
    """ln(1 / delta), by logarithms of whole numbers, which are right to the last bits at any size."""
    exact = Fraction(delta)
    return math.log(exact.denominator) - math.log(exact.numerator)


def _check_bad(bad: Fraction) -> None:
    if not bad < 1:
        raise ParameterError(f"bad must be below 1, got {float(bad)}")
