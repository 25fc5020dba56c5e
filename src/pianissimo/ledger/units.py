"""What a ledger counts in: whole numbers, so that sums are exact on every engine; charges round up, budgets down."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from pianissimo.checks import Real
from pianissimo.errors import ParameterError
from pianissimo.loss.conversion import epsilon_from_rho
from pianissimo.loss.losses import float_down, float_up

RHO_UNIT = Fraction(1, 2**40)
"""One unit of zCDP."""

BAD_UNIT = Fraction(1, 2**60)
"""One unit of bad mass."""

LARGEST = 2**62 - 1
"""Two of these still add up within the 64 bits of a database; SQLite would go on in floating point beyond."""

COLUMNS = ("steps", "calls", "rho_units", "bad_units")
_SHOWN = ("steps", "calls", "rho", "bad")
TOLD_UNITS = {"epsilon": "epsilon", "delta": "delta", "steps": "steps", "calls": "questions"}
"""What people read of a budget, and what it is called."""

_USUAL_DELTA = Fraction(1, 10**9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a question costs, or may cost at most, in every unit that a budget is kept in.

    >>> Charge(steps=11, calls=1) + Charge(steps=3)
    Charge(steps=14, calls=1, rho_units=0, bad_units=0)
    >>> Charge(steps=-1)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: steps must be a whole number from 0 to 2^62 - 1, got -1
    """

    steps: int = 0
    """Selection steps: answers that came back, the threshold among them."""

    calls: int = 0
    """Calls that may each fail with the delta of the budget."""

    rho_units: int = 0
    """zCDP, in units of `RHO_UNIT`."""

    bad_units: int = 0
    """Bad mass, in units of `BAD_UNIT`."""

    def __post_init__(self) -> None:
        for name, value in zip(COLUMNS, self.units, strict=True):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
                raise ParameterError(f"{name} must be a whole number from 0 to 2^62 - 1, got {value!r}")

    @classmethod
    def rounded_up(cls, *, calls: int = 0, rho: Real = 0, bad: Real = 0) -> Self:
        """A charge, rounded against whoever asks."""
        return cls(calls=calls, **{name: math.ceil(each) for name, each in _in_units(rho=rho, bad=bad).items()})

    @classmethod
    def rounded_down(cls, *, calls: int = 0, rho: Real = 0, bad: Real = 0) -> Self:
        """A budget, rounded against whoever asks."""
        return cls(calls=calls, **{name: math.floor(each) for name, each in _in_units(rho=rho, bad=bad).items()})

    @property
    def units(self) -> tuple[int, int, int, int]:
        """The numbers in the order of a ledger's columns."""
        return self.steps, self.calls, self.rho_units, self.bad_units

    @property
    def rho(self) -> Fraction:
        """The zCDP, exactly."""
        return self.rho_units * RHO_UNIT

    @property
    def bad(self) -> Fraction:
        """The bad mass, exactly."""
        return self.bad_units * BAD_UNIT

    @property
    def delta(self) -> Fraction | None:
        """Of a budget in rho, the delta at which people are told its epsilon: half of it is for the bad mass."""
        return max(2 * self.bad, _USUAL_DELTA) if self.rho_units else None

    def epsilon(self, delta: Fraction | None) -> dict[str, float]:
        """As (epsilon, delta), at most and by itself; nothing where there is no such statement.

        >>> told = Charge.rounded_down(rho=0.022934, bad=5e-7).epsilon(Fraction(1, 10**6))
        >>> round(told["epsilon"], 3), told["delta"]
        (1.0, 1e-06)
        """
        if delta is None or self.bad >= delta:
            return {}
        told = delta if self.rho_units else self.bad
        return {"epsilon": epsilon_from_rho(self.rho, delta - self.bad), "delta": float(told)}

    def fits(self, left: "Charge") -> bool:
        """Whether it is at most `left` in every unit."""
        return all(mine <= theirs for mine, theirs in zip(self.units, left.units, strict=True))

    def to_dict(self) -> dict[str, int | float]:
        """As JSON shows it: exact units, and rho and bad as numbers, rounded up."""
        units = dict(zip(COLUMNS, self.units, strict=True))
        return {"steps": self.steps, "calls": self.calls, "rho": float_up(self.rho), "bad": float_up(self.bad)} | units

    def rounded(self) -> dict[str, int | float]:
        """As `to_dict`, with rho and bad rounded down: for what may still be spent."""
        return self.to_dict() | {"rho": float_down(self.rho), "bad": float_down(self.bad)}

    def lacking(self, left: "Charge") -> str:
        """For a charge that does not fit: what is left in the units that lack, and what was asked."""
        short = [name for name, asked, has in zip(_SHOWN, self.units, left.units, strict=True) if asked > has]
        has, asked = left.rounded(), self.to_dict()
        lacks = " and ".join(f"{has[name]:.6g} {name}" for name in short)
        return f"{lacks}, got {' and '.join(f'{asked[name]:.6g}' for name in short)}"

    def __add__(self, other: "Charge") -> "Charge":
        return of_units(mine + theirs for mine, theirs in zip(self.units, other.units, strict=True))

    def __sub__(self, other: "Charge") -> "Charge":
        return of_units(mine - theirs for mine, theirs in zip(self.units, other.units, strict=True))


def of_units(units: Iterable[int]) -> Charge:
    """The charge with these numbers, in the order of a ledger's columns."""
    return Charge(**dict(zip(COLUMNS, units, strict=True)))


def _in_units(*, rho: Real, bad: Real) -> dict[str, Fraction]:
    for name, value in (("rho", rho), ("bad", bad)):
        if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
            raise ParameterError(f"{name} must be a number, got {type(value).__name__}")
        if not (value >= 0 and value < math.inf):
            raise ParameterError(f"{name} must be finite and not negative, got {value}")
    return {"rho_units": Fraction(rho) / RHO_UNIT, "bad_units": Fraction(bad) / BAD_UNIT}
