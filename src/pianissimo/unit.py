"""Who is hidden, where it is not a single event: a user with all her events, or with those of one period."""

from dataclasses import KW_ONLY, dataclass
from datetime import timedelta

from pianissimo.checks import check_at_least, length_of, ticks_in
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.loss.losses import Unit


@identified("user-unit")
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
    """A period, such as "1d", or a number of ticks: hidden are a user's events of one period, and not of all. The cap,
    which must be fixed then, and the charges of alarms begin anew with each."""

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
        if self.cap_share is not None and not 0 < self.cap_share < 1:
            raise ParameterError(f"cap_share must be above 0 and below 1, got {self.cap_share}")

    @property
    def unit(self) -> Unit:
        """What is hidden."""
        return Unit.USER if self.within is None else Unit.USER_PERIOD

    def period(self, tick: timedelta | str | None) -> int | None:
        """How many ticks a period has; None where a user is hidden for the whole run."""
        return None if self.within is None else ticks_in(self.within, tick)


user = User
"""Hide a user with all her events, whom this column names: `unit=user("customer")`."""
