"""Monitors as a stream has them: with the least noise within a budget."""

from typing import Any

import pianissimo as pp


def planned(*queries: Any, horizon: int, epsilon: float = 1, delta: float = 1e-6, within: int | None = None) -> Any:
    """What watches for these queries alone; with `within`, of a user's events in so many ticks."""
    unit = pp.user("user", within=within)
    stream = pp.Stream("s", budget=pp.Budget(epsilon, delta), horizon=horizon, unit=unit, queries=list(queries))
    return stream.plan().queries[0].chosen.in_period


def trends(*, horizon: int, within: int | None = None, **fields: Any) -> Any:
    """The monitor of one list of keys."""
    return planned(pp.Trending("keys", key="key", **fields), horizon=horizon, within=within)


def alarms(thresholds: dict[str, int], *, horizon: int, within: int | None = None, **fields: Any) -> Any:
    """The monitor of some alarms."""
    asked = [pp.Alarm(name, where="x = 1", threshold=least, **fields) for name, least in thresholds.items()]
    return planned(*asked, horizon=horizon, within=within)
