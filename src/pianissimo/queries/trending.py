"""Which keys unusually many users hold right now."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.monitors import TrendingMonitor, lone_threshold, quiet_threshold
from pianissimo.queries.columns import LargeDomain, check_column, domain_of, label_column
from pianissimo.queries.query import Reads, Role
from pianissimo.queries.watching import Clocks, WatchingQuery

EXPECTED_KEYS = 10**6
"""How many keys a tick is thought to have where nobody knows them, to say what will be found."""


@identified("query-trending")
@dataclass(frozen=True, slots=True, kw_only=True)
class Trending(WatchingQuery):
    """The keys that unusually many users hold in a tick, each with about how many; they may change at every tick.

    Those who are charged are the users who held a reported key.

    >>> Trending("searches", key="term", alarms_per_user=8).max_keys_per_user
    1
    """

    key: str
    """The column of keys: texts."""

    max_keys_per_user: int = 1
    """How many keys of a user count at a tick: her first ones."""

    domain: LargeDomain | None = None
    """The keys, if they are known and public."""

    kind = "trending"
    called = "a list of what is common now"
    nothing = None
    told = ("domain",)

    def _check(self) -> None:
        check_column(key=self.key)
        check_at_least(1, max_keys_per_user=self.max_keys_per_user)
        object.__setattr__(self, "domain", domain_of(self.domain))

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        return (Reads(self.key, Role.LABELS),)

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        return label_column(self.key, frame)

    @property
    def part(self) -> str:
        return f"keys of {self.name}"

    def user_batch(self, content: pl.DataFrame) -> pl.DataFrame:
        return content.select("user", pl.col(self.name).alias("key")).drop_nulls("key")

    def charges(self, part: Sequence["Trending"]) -> int:
        return self.alarms_per_user + self.max_keys_per_user - 1

    def tests(self, part: Sequence["Trending"]) -> int:
        return self.max_keys_per_user

    @property
    def lone_keys(self) -> bool:
        return self.domain is None

    def monitor(self, part: Sequence["Trending"], clocks: Clocks, ticks: int) -> Any:
        domain = self.domain if isinstance(self.domain, Domain) else None
        keys = self.max_keys_per_user
        if domain is None:
            least = lone_threshold(clocks.scale, ticks, keys, clocks.delta_skip)
        else:
            least = quiet_threshold(clocks.scale, ticks * len(domain))
        return TrendingMonitor(
            horizon=ticks,
            alarms_per_user=self.alarms_per_user,
            max_keys_per_user=keys,
            scale=clocks.scale,
            threshold=self.allowed_threshold(least),
            domain=domain,
            delta_skip=clocks.delta_skip if domain is None else Fraction(0),
            replacement=clocks.replacement,
        )

    def detectable(self, monitor: Any, ticks: int) -> str:
        known = self.domain is not None
        found = monitor.detectable(ticks=ticks, candidates=None if known else EXPECTED_KEYS, coverage=0.95)
        return f"{'a key' if known else f'a key, of {EXPECTED_KEYS:,} a tick,'} with {found:,}"

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        return mechanism.threshold, mechanism.threshold
