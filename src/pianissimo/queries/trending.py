"""Which keys unusually many users hold right now."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Literal

from pianissimo.checks import check_at_least
from pianissimo.identity import identified
from pianissimo.queries.alarm import check_monitor
from pianissimo.queries.common import Column, LargeDomain, Role, Tidy, check_column, check_common, domain_of


@identified("query-trending")
@dataclass(frozen=True, slots=True)
class Trending:
    """The keys that unusually many users hold in a tick, each with about how many; they may change at every tick.

    Those who are charged are the users who held a reported key.

    >>> Trending("searches", key="term", alarms_per_user=8).max_keys_per_user
    1
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    key: str
    """The column of keys: texts."""

    threshold: int | Literal["auto"] = "auto"
    """From how many users on, noise included; "auto" is the least that the promise, or quiet ticks, allow."""

    alarms_per_user: int = 4
    """For how many reported keys a user may be charged; after so many she counts no more."""

    max_keys_per_user: int = 1
    """How many keys of a user count at a tick: her first ones."""

    domain: LargeDomain | None = None
    """The keys, if they are known and public."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Keys are tested at every tick."""

    tidy: Sequence[Tidy | str] = ()
    """Reports have nothing to tidy."""

    kind: ClassVar[str] = "trending"

    def __post_init__(self) -> None:
        check_common(self)
        check_column(key=self.key)
        check_at_least(1, max_keys_per_user=self.max_keys_per_user)
        object.__setattr__(self, "domain", domain_of(self.domain))
        check_monitor(self)

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        return (Column(self.key, Role.LABELS),)
