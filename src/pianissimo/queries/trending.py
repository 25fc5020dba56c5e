"""Trends: which keys do unusually many hold right now."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.monitors import TickCounts, TrendingMonitor, lone_threshold, quiet_threshold
from pianissimo.queries.shared.columns import LargeDomain, Reads, Role, checked_key, domain_of, labels_in
from pianissimo.queries.shared.expected import Candidate
from pianissimo.queries.shared.key_query import KeyQuery, check_single
from pianissimo.queries.shared.watching import Clocks, WatchingQuery

EXPECTED_KEYS = 10**6
"""How many keys a tick is thought to have where nobody knows them, to say what will be found."""


@identified("query-trending")
@dataclass(frozen=True, slots=True, kw_only=True)
class Trending(WatchingQuery):
    """The keys that unusually many users, or events, hold in a tick, each with about how many.

    They may change at every tick. Those who are charged are the users who held a reported key. Of single events each
    counts, and nothing is charged.

    >>> Trending("searches", key="term", alarms_per_user=8).max_keys_per_user
    1
    """

    key: str | Sequence[str]
    """The column of keys: texts, whole numbers, booleans or dates; or several columns."""

    max_keys_per_user: int = 1
    """How many keys of a user count at a tick: her first ones."""

    max_keys_per_event: int = 1
    """Where single events are hidden: how many distinct labels of one event count, its first ones."""

    domain: LargeDomain | None = None
    """The keys, if they are known and public."""

    kind = "trending"
    called = "a list of what is common now"
    answer = "number of users with charges left of each {0.keys_told} that is reported"
    of_events = "number of events in a tick of each {0.keys_told} that is reported"
    shown = "labels of {0.keys_told} are reported"
    nothing = None
    null_rules = KeyQuery.null_rules
    told = ("domain",)

    def _check(self) -> None:
        object.__setattr__(self, "key", checked_key(self.key))
        check_at_least(1, max_keys_per_user=self.max_keys_per_user, max_keys_per_event=self.max_keys_per_event)
        check_single(self)
        object.__setattr__(self, "domain", domain_of(self.domain, self.key_names))

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        several = self.max_keys_per_event > 1
        return tuple(Reads(name, Role.LABELS, several) for name in self.key_names)

    @property
    def keys_of_an_event(self) -> int:  # type: ignore[override]
        return self.max_keys_per_event

    @property
    def series(self) -> int:
        return self.max_keys_per_event

    @property
    def needs_delta(self) -> bool:
        return self.domain is None

    @property
    def keys_counted(self) -> Domain | None:
        return self.domain if isinstance(self.domain, Domain) else None

    def found_of_events(self, counts: TickCounts) -> str:
        return self._found(counts.detectable(EXPECTED_KEYS if counts.domain is None else len(counts.domain)))

    def _found(self, number: int) -> str:
        return f"a key{'' if self.domain is not None else f', of {EXPECTED_KEYS:,} a tick,'} with {number:,}"

    def left_out(self, chosen: Candidate) -> list[str]:
        found = WatchingQuery.left_out(self, chosen)
        if self.domain is None or not isinstance(chosen.mechanism, TickCounts):
            return found
        return [*found, f"labels that are not among the {len(self.domain)} listed are passed over"]

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        several = self.max_keys_per_event > 1
        return labels_in(self.key_names, frame, label_nulls=self.nulls == "label", several=several)

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
        if self.max_keys_per_event != 1:
            raise ParameterError(
                f"max_keys_per_event of query {self.name!r} must be left out where users are hidden, got "
                f"{self.max_keys_per_event}; give max_keys_per_user, one label an event"
            )
        domain, keys = self.keys_counted, self.max_keys_per_user
        if domain is None:
            least = lone_threshold(clocks.scale, clocks.life, keys, clocks.delta_skip)
        else:
            least = quiet_threshold(clocks.scale, ticks * len(domain))
        return TrendingMonitor(
            horizon=ticks,
            alarms_per_user=self.alarms_per_user,
            max_keys_per_user=keys,
            threshold=self.allowed_threshold(least),
            domain=domain,
            delta_skip=clocks.delta_skip if domain is None else Fraction(0),
            scale=clocks.scale,
            period=clocks.period,
            tells_exhausted=True,
        )

    def detectable(self, monitor: Any, ticks: int) -> str:
        candidates = EXPECTED_KEYS if self.domain is None else None
        return self._found(monitor.detectable(ticks=ticks, candidates=candidates, coverage=0.95))

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        return mechanism.threshold, mechanism.threshold
