"""Who is hidden, where it is not a single event: a user with all her events, or with those of one period."""

import re
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, Protocol

from pianissimo.checks import check_at_least, check_probability, length_of, ticks_in
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.loss.losses import Unit

MOST_CAPS = 41
"""How many values a cap may take: from 1 to 2^40, each at least twice the last."""


class Periods(Protocol):
    """Which ticks of a stream are one period: public, and fixed before any data."""

    @property
    def longest(self) -> int:
        """How many ticks the longest period has."""

    def span(self, tick: int) -> tuple[int, int]:
        """The first and the last tick of the period that a tick lies in; the first may lie before tick 1."""


@identified("even-periods")
@dataclass(frozen=True, slots=True)
class EvenPeriods:
    """Periods of so many ticks each; only the first may be shorter.

    >>> EvenPeriods(24).span(25), EvenPeriods(24, starts=7).span(6)
    ((25, 48), (-17, 6))
    """

    ticks: int
    """How many ticks each has."""

    starts: int = 1
    """A tick with which one begins."""

    def __post_init__(self) -> None:
        check_at_least(1, ticks=self.ticks, starts=self.starts)

    @property
    def longest(self) -> int:
        return self.ticks

    def span(self, tick: int) -> tuple[int, int]:
        first = tick - (tick - self.starts) % self.ticks
        return first, first + self.ticks - 1


def _with_reset(version: int, fields: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Version 1 knew running totals alone."""
    return fields | ({"reset": False} if "within" in fields else {})


@identified("user-unit", 2, upgrade=_with_reset)
@dataclass(frozen=True, slots=True)
class User:
    """The users that a column names, each hidden with everything she ever does; `user` makes one.

    >>> User("customer").unit
    <Unit.USER: 'user'>
    >>> User("customer", max_events_per_user=20, within="1d").unit
    <Unit.USER_PERIOD: 'user and period'>
    """

    column: str
    """Whose event it is: whole numbers or texts."""

    _: KW_ONLY

    max_events_per_user: int | None = None
    """Only the first so many events of each user count, in the whole run or in each period; None where the cap follows
    the stream. The plan compares both."""

    within: timedelta | str | int | None = None
    """A period, such as "1d", or a number of ticks: hidden are a user's events of one period, and not of all. The cap
    and the charges of alarms begin anew with each."""

    reset: bool = True
    """Whether with each period the statistics begin anew too, for ever. If not, they are running totals under one
    horizon, for a cap that must be fixed. Of no effect without `within`."""

    starts: str | int | None = None
    """When periods begin: a time of day such as "06:00", by the clocks of the stream's time zone, for periods of days,
    weeks (from Monday on) or months; or the number of a tick. The first period is shorter then. None: with tick 1."""

    weight: str | None = None
    """A column of 1 for what happens and -1 for what is taken back, if events may be deleted; both count towards the
    cap. What was never there may be deleted too."""

    most_events_per_user: int | None = None
    """No user has more events than this, as far as is known: public. Error bars then reach over what the cap cuts off
    too; without it they cover what the cap lets through."""

    first_cap: int | None = None
    """Where the cap that follows the stream begins; it is raised from there. None leaves it to the plan."""

    caps: int | None = None
    """How many values that cap may take; None leaves it to the plan."""

    cap_share: float | None = None
    """The part of epsilon that goes into finding that cap; None leaves it to the plan."""

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise ParameterError(f"user must be the name of a column, got {self.column!r}")
        if self.weight is not None and (not isinstance(self.weight, str) or self.weight in ("", self.column)):
            raise ParameterError(f"weight must be the name of another column, got {self.weight!r}")
        whole = ("max_events_per_user", "most_events_per_user", "first_cap", "caps")
        given = {name: getattr(self, name) for name in whole}
        check_at_least(1, **{name: value for name, value in given.items() if value is not None})
        if isinstance(self.within, str | timedelta):
            object.__setattr__(self, "within", length_of(self.within))
        elif self.within is not None:
            check_at_least(1, within=self.within)
        self._check_periods()
        if self.caps is not None and not self.caps <= MOST_CAPS:
            raise ParameterError(f"caps must be at most {MOST_CAPS}, got {self.caps}: each is at least twice the last")
        if self.cap_share is not None:
            check_probability(cap_share=self.cap_share)

    def _check_periods(self) -> None:
        if not isinstance(self.reset, bool):
            raise ParameterError(f"reset must be True or False, got {self.reset!r}")
        if self.starts is None:
            return
        if self.within is None:
            raise ParameterError(f"starts must be left out without within, got {self.starts!r}")
        if not self.reset:
            raise ParameterError(
                f"starts must be left out where totals run on, got {self.starts!r}: their periods begin with tick 1; "
                "let them begin anew (reset=True), or choose the stream's origin"
            )
        if not isinstance(self.starts, str):
            check_at_least(1, starts=self.starts)
            return
        if not re.fullmatch("([01][0-9]|2[0-3]):[0-5][0-9]", self.starts):
            raise ParameterError(f"starts must be a time of day such as '06:00', or a tick, got {self.starts!r}")
        if isinstance(self.within, int) or (isinstance(self.within, timedelta) and self.within % timedelta(days=1)):
            raise ParameterError(
                f"within must be whole days, weeks or months where starts is a time of day, got {self.within}"
            )

    @property
    def unit(self) -> Unit:
        """What is hidden."""
        return Unit.USER if self.within is None else Unit.USER_PERIOD

    @property
    def begins_anew(self) -> bool:
        """Whether statistics begin anew with each period."""
        return self.within is not None and self.reset

    def period(self, tick: timedelta | str | None) -> int | None:
        """How many ticks each period has; None where a user is hidden for the whole run, or the calendar decides."""
        return None if self.within is None or isinstance(self.starts, str) else ticks_in(self.within, tick)


user = User
"""Hide a user with all her events, whom this column names: `unit=user("customer")`."""
