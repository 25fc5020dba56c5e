"""Alarms: do unusually many match a condition right now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pianissimo.filters import Filter
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.mechanism import Release
from pianissimo.monitors import Alarms, TickCounts, quiet_threshold
from pianissimo.queries.shared.watching import Clocks, WatchingQuery


@identified("query-alarm")
@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm(WatchingQuery):
    """Rings at the ticks at which unusually many users, or events, match a condition.

    A user counts once a tick. Those who are charged are the users of a tick at which it rang. Alarms of a stream share
    what a user may be charged for. Of single events each counts, and nothing is charged.

    >>> [column.name for column in Alarm("fever", where="symptom = 'fever' AND age > 60", threshold=200).reads]
    ['age', 'symptom']
    """

    where: str | pl.Expr | Filter
    """What an event must be like, looked at alone: a condition such as "symptom = 'fever'"."""

    kind = "alarm"
    called = "an alarm"
    answer = "number of users with charges left when it rings"
    of_events = "number of events of a tick at which it rings"
    shown = "it rings"
    shared = " (of any alarm of the stream)"

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        return self.matches(frame)

    def faults(self, frame: pl.DataFrame) -> pl.Series | None:
        return None

    def user_column(self, frame: pl.DataFrame) -> pl.Series | None:
        return self.matches(frame)

    @property
    def keys_counted(self) -> Domain | None:
        # Its name, of which each event that matches holds one.
        return Domain([self.name])

    def batch(self, frame: pl.DataFrame) -> pl.Series:
        matches = self.matches(frame)
        assert matches is not None  # noqa: S101
        return pl.repeat(self.name, int(matches.sum()), dtype=pl.String, eager=True)

    def found_of_events(self, counts: TickCounts) -> str:
        return f"an alarm with {counts.detectable():,}"

    @property
    def part(self) -> str:
        return "alarms"

    def charges(self, part: Sequence["Alarm"]) -> int:
        return _alarms_per_user(part) + len(part) - 1

    def tests(self, part: Sequence["Alarm"]) -> int:
        return len(part)

    def monitor(self, part: Sequence["Alarm"], clocks: Clocks, ticks: int) -> Any:
        least = quiet_threshold(clocks.scale, ticks * len(part))
        return Alarms(
            horizon=ticks,
            thresholds=tuple((query.name, query.allowed_threshold(least)) for query in part),
            alarms_per_user=_alarms_per_user(part),
            scale=clocks.scale,
            period=clocks.period,
            tells_exhausted=True,
        )

    def detectable(self, monitor: Any, ticks: int) -> str:
        return f"an alarm with {monitor.detectable(self.name, ticks=ticks, coverage=0.95):,}"

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        """A row if it rang, and none if it did not."""
        table = WatchingQuery.user_table(self, release, coverage, most_events)
        return table.filter(pl.col("key") == self.name).drop("key")

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        """A row if it rang, and none if it did not."""
        return WatchingQuery.table(self, mechanism, release, coverage).drop("key")

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        if isinstance(mechanism, TickCounts):
            return mechanism.threshold, mechanism.threshold
        threshold = dict(mechanism.thresholds)[self.name]
        return threshold, threshold


def _alarms_per_user(alarms: Sequence[Alarm]) -> int:
    return max(query.alarms_per_user for query in alarms)
