"""Plans for alarms and trends: one kind of noise for all that a stream watches.

Monitors of one scale are one monitor with all their clocks (`privacy.Race`), so all of a stream have the same noise,
found for the sum of what they may charge a user for. Where the keys of a trend are unknown, half of delta is for keys
that one user alone holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from pianissimo.budget import Budget
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.monitors import Alarms, RaceMonitor, TrendingMonitor, automatic_threshold, clock_delta
from pianissimo.queries import Alarm, Query, Trending
from pianissimo.stream.expected import Candidate, ExpectedError

EXPECTED_KEYS = 10**6
"""How many keys a tick is thought to have where nobody knows them, to say what will be found."""

Monitor = Alarms | TrendingMonitor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clocks:
    """The noise of all monitors of a stream, and what is left for lone keys of each trend."""

    scale: Fraction
    delta_skip: Fraction
    replacement: bool


def is_watched(query: Query) -> bool:
    """Whether a query is an alarm or a trend.

    >>> is_watched(Trending("searches", key="term"))
    True
    """
    return isinstance(query, Alarm | Trending)


def monitor_candidates(
    queries: Sequence[Query], *, budget: Budget, ticks: int, coverage: float, replacement: bool
) -> dict[str, Candidate]:
    """For each alarm and trend its monitor; alarms share one.

    >>> found = monitor_candidates([Trending("searches", key="term")], budget=Budget(1.0, 1e-6), ticks=100,
    ...                            coverage=0.95, replacement=False)
    >>> found["searches"].mechanism.threshold
    302
    """
    if budget.pure:
        raise ParameterError("alarms and trends must have a delta, got a budget without; allow one such as 1e-9")
    alarms = [query for query in queries if isinstance(query, Alarm)]
    trends = [query for query in queries if isinstance(query, Trending)]
    clocks = _clocks(alarms, trends, budget, ticks, replacement=replacement)
    found: dict[str, Candidate] = {}
    if alarms:
        shared = _alarms(alarms, clocks, ticks)
        found |= {query.name: _candidate(query, shared, ticks, coverage) for query in alarms}
    found |= {query.name: _candidate(query, _trending(query, clocks, ticks), ticks, coverage) for query in trends}
    return found


def _clocks(
    alarms: Sequence[Alarm], trends: Sequence[Trending], budget: Budget, ticks: int, *, replacement: bool
) -> _Clocks:
    versions = 2 if replacement else 1
    unknown = sum(query.domain is None for query in trends)
    delta = Fraction(budget.delta)
    skip = delta / (2 * unknown * versions) if unknown else Fraction(0)
    together = len(alarms) + sum(query.max_keys_per_user for query in trends)
    charges = sum(query.alarms_per_user + query.max_keys_per_user - 1 for query in trends)
    charges += _alarms_per_user(alarms) + len(alarms) - 1 if alarms else 0
    left = clock_delta(budget.epsilon, delta - skip * unknown * versions, versions * ticks * together)
    scale = RaceMonitor.calibrate(epsilon=budget.epsilon, delta=left, k=charges, replacement=replacement)
    return _Clocks(scale=scale, delta_skip=skip, replacement=replacement)


def _alarms_per_user(alarms: Sequence[Alarm]) -> int:
    return max(query.alarms_per_user for query in alarms)


def _alarms(alarms: Sequence[Alarm], clocks: _Clocks, ticks: int) -> Alarms:
    least = automatic_threshold(clocks.scale, ticks * len(alarms))
    return Alarms(
        horizon=ticks,
        thresholds=tuple((query.name, _threshold(query, least)) for query in alarms),
        alarms_per_user=_alarms_per_user(alarms),
        scale=clocks.scale,
        replacement=clocks.replacement,
    )


def _trending(query: Trending, clocks: _Clocks, ticks: int) -> TrendingMonitor:
    domain = query.domain if isinstance(query.domain, Domain) else None
    keys = query.max_keys_per_user
    if domain is None:
        least = automatic_threshold(clocks.scale, ticks, max_keys_per_user=keys, delta_skip=clocks.delta_skip)
    else:
        least = automatic_threshold(clocks.scale, ticks * len(domain))
    return TrendingMonitor(
        horizon=ticks,
        alarms_per_user=query.alarms_per_user,
        max_keys_per_user=keys,
        scale=clocks.scale,
        threshold=_threshold(query, least),
        domain=domain,
        delta_skip=clocks.delta_skip if domain is None else Fraction(0),
        replacement=clocks.replacement,
    )


def _threshold(query: Alarm | Trending, least: int) -> int:
    if query.threshold == "auto":
        return least
    if query.threshold < least:
        raise ParameterError(
            f"query {query.name!r} must have a threshold of at least {least}, got {query.threshold}; "
            "allow a larger epsilon or delta, or take 'auto'"
        )
    return query.threshold


def _candidate(query: Alarm | Trending, mechanism: Monitor, ticks: int, coverage: float) -> Candidate:
    if isinstance(mechanism, Alarms):
        found = mechanism.detectable(query.name, ticks=ticks, coverage=0.95)
        watched = "an alarm"
    else:
        known = isinstance(mechanism.domain, Domain)
        found = mechanism.detectable(ticks=ticks, candidates=None if known else EXPECTED_KEYS, coverage=0.95)
        watched = "a key" if known else f"a key, of {EXPECTED_KEYS:,} a tick,"
    half = mechanism.error(1, coverage)
    return Candidate(
        name=f"{type(mechanism).__name__} over a race",
        mechanism=mechanism,
        expected_error=ExpectedError(coverage=coverage, typical=half, largest=half),
        pure=False,
        note=f"{watched} with {found:,} users or more in a tick is found, in all ticks, with a chance of 95 %; "
        f"a user is charged for at most {mechanism.alarms_per_user} reports",
        noise=f"Gumbel in whole numbers, scale {float(mechanism.scale):.4g}",
    )
