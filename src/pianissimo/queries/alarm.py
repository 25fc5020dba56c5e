"""Whether unusually many users match a condition right now."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.filters import Filter
from pianissimo.identity import identified
from pianissimo.queries.common import Column, Role, Tidy, check_common


@identified("query-alarm")
@dataclass(frozen=True, slots=True)
class Alarm:
    """Rings at the ticks at which unusually many users have an event that matches a condition.

    A user counts once a tick. Those who are charged are the users of a tick at which it rang.

    >>> Alarm("fever", where="symptom = 'fever' AND age > 60", threshold=200).reads
    (Column(name='age', role=<Role.NUMBERS: 'numbers'>, ...), Column(name='symptom', role=<Role.LABELS: 'labels'>, ...))
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    where: str | pl.Expr | Filter
    """What an event must be like, looked at alone: SQL, or a polars expression. It is kept as SQL."""

    threshold: int | Literal["auto"] = "auto"
    """From how many users on, noise included; "auto" is the least at which it hardly ever rings for nobody."""

    alarms_per_user: int = 4
    """For how many alarms of the stream a user may be charged; after so many she counts no more. Alarms share it."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """An alarm is tested at every tick."""

    tidy: Sequence[Tidy | str] = ()
    """Alarms have nothing to tidy."""

    kind: ClassVar[str] = "alarm"

    def __post_init__(self) -> None:
        check_common(self)
        object.__setattr__(self, "where", Filter.of(self.where).text)
        check_monitor(self)

    @property
    def filter(self) -> Filter:
        """The condition, understood."""
        return Filter.of(self.where)

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        columns = self.filter.columns
        return tuple(Column(name, Role.LABELS if is_text else Role.NUMBERS) for name, is_text in columns.items())


def check_monitor(query: Any) -> None:
    """Check what alarms and trends have in common."""
    check_at_least(1, alarms_per_user=query.alarms_per_user)
    if query.threshold != "auto":
        check_at_least(1, threshold=query.threshold)
    if query.every != 1:
        raise ParameterError(f"every must be 1 for what is watched at every tick, got {query.every}")
    if query.tidy:
        raise ParameterError("tidy must be left out for what is watched, got something")
