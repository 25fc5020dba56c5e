"""What alarms and trends share: a threshold, and the charges of the users who are in a report.

They share one kind of noise. Monitors of one scale are one monitor with all their clocks (`losses.Race`), so all of a
stream have the same noise, found for the sum of what they may charge a user for. Where the keys of a trend are unknown,
half of delta is for keys that one user alone holds.

Of single events nothing is charged: `TickCounts` adds fresh noise to the counts of each tick, for the query's own share
of epsilon.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar, Literal

import polars as pl

from pianissimo.budget import Budget
from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.mechanism import Release
from pianissimo.monitors import RaceMonitor, TickCounts, clock_delta, lone_event_threshold, noise_margin, tick_noise
from pianissimo.monitors.alarms import Found
from pianissimo.queries.shared.asked import Tidy
from pianissimo.queries.shared.expected import Candidate, ExpectedError, Share
from pianissimo.queries.shared.query import Maker, Query, parts_of
from pianissimo.queries.shared.released_tables import released_table, with_cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The noise of all monitors of a stream, and what is left for lone keys of each trend."""

    scale: Fraction
    delta_skip: Fraction
    period: int | None
    """How many ticks charges last; None where it is the whole run."""

    life: int
    """In how many ticks what is hidden may take part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchingQuery(Query):
    """A query that reports what is unusual at a tick, and charges the users who are in a report."""

    threshold: int | Literal["auto"] = "auto"
    """From how many users on, or events where these are hidden, noise included; "auto" is the least that the promise,
    or quiet ticks, allow."""

    alarms_per_user: int = 4
    """For how many reports a user may be charged, in the whole run or in each period; after so many she counts no
    more. Single events are not charged."""

    watched: ClassVar[bool] = True
    tidies: ClassVar[tuple[Tidy, ...]] = ()
    shared: ClassVar[str] = ""
    """With what it shares its charges, in words."""

    of_events: ClassVar[str] = ""
    """What it answers where single events are hidden."""

    keys_of_an_event: ClassVar[int] = 1
    """How many keys of an event count; a kind with labels says otherwise."""

    def __post_init__(self) -> None:
        check_at_least(1, alarms_per_user=self.alarms_per_user)
        if self.threshold != "auto":
            try:
                check_at_least(1, threshold=self.threshold)
            except ParameterError:
                raise ParameterError(
                    f"threshold must be a whole number of at least 1 or 'auto', got {self.threshold!r}"
                ) from None
        if self.every != 1:
            raise ParameterError(
                f"every must be 1 for what is watched at every tick, got {self.every!r}: what lies between would go "
                "unwatched; make the tick as long as what is watched"
            )
        if self.per is not None:
            raise ParameterError(
                f"per must be left out for what is watched at every tick, got {self.per!r}: each tick is tested by "
                "itself, and pays for itself, by fresh noise or by charges; make the tick as long as what is watched"
            )
        Query.__post_init__(self)

    def charges(self, part: Sequence[Any]) -> int:
        """How many clocks a user may be charged for by all queries of the part."""
        raise NotImplementedError

    def tests(self, part: Sequence[Any]) -> int:
        """How many clocks of the part a user is in at a tick."""
        raise NotImplementedError

    @property
    def lone_keys(self) -> bool:
        """Whether it may show a key that one user alone holds."""
        return False

    def monitor(self, part: Sequence[Any], clocks: Clocks, ticks: int) -> Any:
        """What watches for all queries of the part."""
        raise NotImplementedError

    def detectable(self, monitor: Any, ticks: int) -> str:
        """What is found, in words."""
        raise NotImplementedError

    def makers(self, share: Share, releases: int, coverage: float, *, is_open: bool) -> Iterator[Maker]:
        self._check_of_events()
        yield lambda: self._counts(share, releases, coverage)

    def _check_of_events(self) -> None:
        """Refuse what is of users alone."""
        for name in ("alarms_per_user", "max_keys_per_user"):
            default = next((each.default for each in fields(self) if each.name == name), None)
            if getattr(self, name, default) != default:
                raise ParameterError(
                    f"{name} of query {self.name!r} must be left out where single events are hidden, got "
                    f"{getattr(self, name)}: nothing is charged; give unit=user('column') to hide users"
                )

    def _counts(self, share: Share, ticks: int, coverage: float) -> Candidate:
        domain = self.keys_counted
        keys = self.keys_of_an_event if domain is None else min(self.keys_of_an_event, len(domain))
        noise, delta = tick_noise(share.epsilon, keys), Fraction(0) if domain is not None else share.bad / keys
        if domain is None:
            threshold = self.allowed_threshold(lone_event_threshold(noise.scale, delta))
        else:
            quiet = max(1, noise_margin(noise.scale, ticks * len(domain)))
            threshold = quiet if self.threshold == "auto" else self.threshold
        counts = TickCounts(
            horizon=ticks,
            scale=noise.scale,
            threshold=threshold,
            domain=domain,
            max_keys_per_event=self.keys_of_an_event,
            delta=delta,
        )
        half = counts.error(1, coverage)
        return Candidate(
            name="TickCounts over the noise of one tick",
            mechanism=counts,
            expected_error=ExpectedError(coverage=coverage, typical=max(half, 0.5), largest=max(half, 0.5)),
            pure=domain is not None,
            note=f"{self.found_of_events(counts)} events or more in a tick is found, in all ticks, with a chance of "
            f"95 %; nothing is charged: it is reported whenever it is so{_noise_alone(counts)}",
            noise=f"discrete Laplace of scale {float(noise.scale):.4g}, fresh at each tick",
        )

    @property
    def keys_counted(self) -> Domain | None:
        """The keys of which events are counted, if they are known."""
        raise NotImplementedError

    def found_of_events(self, counts: TickCounts) -> str:
        """What is found of single events, in words."""
        raise NotImplementedError

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        half, found = int(release.error), release.value
        return released_table(found.estimates, found.estimates - half, found.estimates + half, key=found.labels)

    def about_in(self, mechanism: Any) -> str:
        return self._about(self.of_events) if isinstance(mechanism, TickCounts) else self.about

    def facts(self, chosen: Candidate) -> dict[str, Any]:
        told, counts = Query.facts(self, chosen), chosen.mechanism
        if not isinstance(counts, TickCounts):
            return told
        return told | {"margin": counts.margin, "max_keys_per_event": self.keys_of_an_event}

    def left_out(self, chosen: Candidate) -> list[str]:
        if not isinstance(chosen.mechanism, TickCounts) or self.keys_of_an_event == 1:
            return []
        return [f"of an event at most {self.keys_of_an_event} labels count"]

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        half, found = math.ceil(release.error), release.value
        # Those who count no more may be there too.
        high = found.estimates + half + (found.exhausted[1] if found.exhausted else 0)
        return released_table(found.estimates, found.estimates - half, high, key=found.labels)

    def capped_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        # At a tick a user counts once, or with so many keys.
        return with_cap(self.user_table(release, coverage, most_events), getattr(self, "max_keys_per_user", 1))

    def most_moved(self, mechanism: Any) -> float | None:
        return None

    def allowed_threshold(self, least: int) -> int:
        """The threshold, or an error where it is below the least."""
        if self.threshold == "auto":
            return least
        if self.threshold < least:
            raise ParameterError(
                f"query {self.name!r} must have a threshold of at least {least}, got {self.threshold}; "
                "allow a larger epsilon or delta, or take 'auto'"
            )
        return self.threshold


def monitor_candidates(
    queries: Sequence[Query], budget: Budget, ticks: int, coverage: float, *, period: int | None
) -> dict[str, Candidate]:
    """For each watching query its monitor; queries of one part share one."""
    if budget.pure:
        raise ParameterError("alarms and trends must have a delta, got a budget without; allow one such as 1e-9")
    parts: list[Any] = parts_of(queries)
    clocks = _clocks(parts, budget, ticks, period=period)
    found: dict[str, Candidate] = {}
    for part in parts:
        monitor = part[0].monitor(part, clocks, ticks)
        found |= {query.name: _candidate(query, monitor, ticks, coverage) for query in part}
    return found


def _clocks(parts: Sequence[Sequence[WatchingQuery]], budget: Budget, ticks: int, *, period: int | None) -> Clocks:
    unknown = sum(query.lone_keys for part in parts for query in part)
    delta = Fraction(budget.delta)
    skip = delta / (2 * unknown) if unknown else Fraction(0)
    together = sum(part[0].tests(part) for part in parts)
    charges = sum(part[0].charges(part) for part in parts)
    life = ticks if period is None else min(ticks, period)
    left = clock_delta(budget.epsilon, delta - skip * unknown, life * together)
    scale = RaceMonitor.calibrate(epsilon=budget.epsilon, delta=left, k=charges)
    return Clocks(scale=scale, delta_skip=skip, period=period, life=life)


def _candidate(query: WatchingQuery, monitor: Any, ticks: int, coverage: float) -> Candidate:
    half, charges = monitor.error(1, coverage), monitor.alarms_per_user
    own, times = ("1 charge", "once") if charges == 1 else (f"{charges} charges", f"{charges} times")
    per, until = (
        ("", "") if monitor.period is None else (f" in each period of {monitor.period} ticks", " until the next")
    )
    return Candidate(
        name=f"{type(monitor).__name__} over a race",
        mechanism=monitor,
        expected_error=ExpectedError(coverage=coverage, typical=half, largest=half),
        pure=False,
        note=f"{query.detectable(monitor, ticks)} users or more in a tick who have charges left is found, in all "
        f"ticks, with a chance of 95 %; a user has {own}{per}, one for each report that she is in{query.shared}: a "
        f"crowd of the same users is found {times} and then missed{until}; each release tells how many may be missed",
        noise=f"Gumbel in whole numbers, scale {float(monitor.scale):.4g}",
    )


def _noise_alone(counts: TickCounts) -> str:
    """With what chance noise alone is reported at a tick, in words, where it will be at some tick."""
    keys = 1 if counts.domain is None else len(counts.domain)
    if counts.domain is None or counts.threshold >= noise_margin(counts.scale, counts.horizon * keys):
        return ""
    rate = 1 / float(counts.scale)
    chance = math.exp(-rate * counts.threshold) / (1 + math.exp(-rate))
    return f", and what no event holds at {chance:.2g} of the ticks"


EXHAUSTED = "exhausted"
"""The table of a release that tells, for each watching query, how many users had no charge left at the tick."""


def exhausted_table(queries: Sequence[Query], release: Release[Any]) -> dict[str, pl.DataFrame]:
    """How many users count no more, by its name, where a monitor tells it."""
    if not isinstance(release.value, Found) or release.value.exhausted is None:
        return {}
    estimate, high = ([number] * len(queries) for number in release.value.exhausted)
    table = released_table(estimate, [0] * len(queries), high, key=[query.name for query in queries])
    return {EXHAUSTED: with_cap(table, 1)}
