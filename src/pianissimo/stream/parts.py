"""The runs of a stream: each with the queries that it answers, their schedules, and what is done to their estimates."""

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl

from pianissimo import codec
from pianissimo.errors import StateError
from pianissimo.mechanism import Release, Run, Windowed
from pianissimo.noise import Noise
from pianissimo.planner import QueryPlan, StreamPlan
from pianissimo.queries import Distinct, Query, Sum, Trending
from pianissimo.stream.heavy_tables import SketchMechanism, heavy_table
from pianissimo.stream.release import release_table
from pianissimo.stream.tidy import Tidier
from pianissimo.stream.user_tables import user_table
from pianissimo.user_unit import User


class LiveQuery:
    """One query with a mechanism of its own: its run, when it is published, and what is done to its estimates."""

    def __init__(self, plan: QueryPlan, noise: Noise, coverage: float) -> None:
        self.query = plan.query
        self.run: Run[Any, Any, Any] = Run(plan.mechanism, noise, coverage=coverage)
        self._tidiers = {plan.query.name: Tidier(plan.query.tidy)}
        self._grid = plan.query.exact_grid if isinstance(plan.query, Sum) else None

    @property
    def queries(self) -> list[Query]:
        """The one query."""
        return [self.query]

    @property
    def every(self) -> int:
        """At every how many ticks of the stream the run makes a release."""
        return self.query.every

    def update(self, content: Any) -> None:
        """Count events, while any release is to come."""
        if self._is_open():
            self.run.update(content)

    def gather(self, content: Any) -> codec.Plain:
        """What some events of the open tick add, as plain data; None where they do not count any more."""
        return self.run.gather(content) if self._is_open() else None

    def add(self, gathered: codec.Plain) -> None:
        """Count what was gathered."""
        if gathered is not None:
            self.run.add(gathered)

    def dump(self) -> codec.Plain:
        """All that it knows between two ticks, as plain data: secret. What is in the logs is left out."""
        return _dumped(self.run, self._tidiers)

    def load(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        """Take over what `dump` gave, with the logs of the last releases, the oldest first."""
        _load(self.run, self._tidiers, content, logs)

    def tables(self, tick: int) -> dict[str, pl.DataFrame]:
        """What is published at a tick; nothing where the schedule has none."""
        if tick % self.query.every or not self._is_open():
            return {}
        return {self.query.name: self._tidiers[self.query.name].add(self._table(self.run.release()))}

    def _table(self, release: Release[Any]) -> pl.DataFrame:
        mechanism = self.run.mechanism
        if isinstance(mechanism, SketchMechanism):
            return heavy_table(mechanism, release, self.run.coverage)
        return release_table(release, self.run.coverage, self._grid)

    def tables_between(self, start: int, end: int) -> dict[str, pl.DataFrame]:
        """What the ticks after `start` up to `end` added, if it was published at both and answers intervals."""
        every = self.query.every
        if not isinstance(self.run.mechanism, Windowed) or start % every or end % every:
            return {}
        release = self.run.between(start // every, end // every)
        return {self.query.name: release_table(release, self.run.coverage, self._grid)}

    def _is_open(self) -> bool:
        return self.run.tick < self.run.mechanism.guarantee.horizon


class LiveUsers:
    """Queries that one mechanism answers from the same events of users: released together, shown on their schedules."""

    every = 1

    def __init__(self, plans: Sequence[QueryPlan], noise: Noise, coverage: float, most_events: int | None) -> None:
        self._most_events = most_events
        self.queries = [plan.query for plan in plans]
        self.run: Run[Any, Any, Any] = Run(plans[0].mechanism, noise, coverage=coverage)
        self._tidiers = {query.name: Tidier(query.tidy) for query in self.queries}

    def update(self, content: pl.DataFrame) -> None:
        """Count events."""
        self.run.update(self._own(content))

    def gather(self, content: pl.DataFrame) -> codec.Plain:
        """What some events of the open tick add, as plain data."""
        return self.run.gather(self._own(content))

    def add(self, gathered: codec.Plain) -> None:
        """Count what was gathered."""
        self.run.add(gathered)

    def dump(self) -> codec.Plain:
        """All that it knows between two ticks, as plain data: secret. What is in the logs is left out."""
        return _dumped(self.run, self._tidiers)

    def load(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        """Take over what `dump` gave, with the logs of the last releases, the oldest first."""
        _load(self.run, self._tidiers, content, logs)

    def tables(self, tick: int) -> dict[str, pl.DataFrame]:
        """What is published at a tick."""
        release = self.run.release()
        return {
            query.name: self._tidiers[query.name].add(user_table(query, release, self.run.coverage, self._most_events))
            for query in self.queries
            if tick % query.every == 0
        }

    def tables_between(self, start: int, end: int) -> dict[str, pl.DataFrame]:  # noqa: ARG002
        """Nothing: an interval that a cap was raised in has no noise of its own."""
        return {}

    def _own(self, content: pl.DataFrame) -> pl.DataFrame:
        first = self.queries[0]
        if isinstance(first, Distinct):
            return content.select("user", pl.col(first.name).alias("value"))
        if isinstance(first, Trending):
            return content.select("user", pl.col(first.name).alias("key"))
        return content


Part = LiveQuery | LiveUsers

NoiseFor = Callable[[int], Noise]
"""The noise of a run that makes a release at every so many ticks."""


def live_parts(plan: StreamPlan, noise_for: NoiseFor) -> list[Part]:
    """The runs of a plan, each with the queries that it answers."""
    if not isinstance(plan.unit, User):
        return [
            LiveQuery(each, noise_for(each.query.every).at("query", each.query.name), plan.coverage)
            for each in plan.queries
        ]
    parts: dict[int, list[QueryPlan]] = {}
    for each in plan.queries:
        parts.setdefault(id(each.mechanism), []).append(each)
    return [
        LiveUsers(
            plans,
            noise_for(LiveUsers.every).at("users", *(each.query.name for each in plans)),
            plan.coverage,
            plan.unit.most_events_per_user,
        )
        for plans in parts.values()
    ]


def _dumped(run: Run[Any, Any, Any], tidiers: dict[str, Tidier]) -> codec.Plain:
    return {"run": run.dump(short=True), "tidy": {name: tidier.to_plain() for name, tidier in tidiers.items()}}


def _load(
    run: Run[Any, Any, Any], tidiers: dict[str, Tidier], content: codec.Plain, logs: Sequence[codec.Plain]
) -> None:
    try:
        stored, tidied = content["run"], dict(content["tidy"])
    except (TypeError, KeyError):
        raise StateError("a stored state must have the content of this version, got other content") from None
    if list(tidied) != list(tidiers):
        raise StateError(f"a stored state must be that of {', '.join(map(repr, tidiers))}, got other queries'")
    run.load(stored, logs)
    for name, tidier in tidiers.items():
        tidier.take_plain(tidied[name])
