"""Attacks on monitors: many keys at one tick, each with some users of its own or with none.

What a user does to a test is to multiply the rate of its clock by e^(1 / scale): P(BOTTOM) = exp(-rate). The rates with
and without a group of users, each bounded from the number of silent keys, bound the scale. How charges, skipped keys
and adaptive tests come together is enumerated exactly in the tests of `monitors`.
"""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl

from pianissimo.audit.bounds import lower_rate, upper_rate
from pianissimo.audit.many_runs import texts
from pianissimo.audit.report import Attempt, Finding
from pianissimo.labels import Domain
from pianissimo.monitors import Alarms, TrendingMonitor
from pianissimo.noise import Noise

_MOST_ROWS = 4_000_000


def trending_attempts(mechanism: TrendingMonitor | Alarms) -> list[Attempt]:
    """How much likelier a group of users makes a report.

    >>> trending = TrendingMonitor.calibrated(horizon=10, epsilon=1, delta=1e-6, alarms_per_user=1)
    >>> [attempt.name for attempt in trending_attempts(trending)]
    ['rate of reports: 23 users']
    """
    scale = mechanism.scale
    users = max(1, round(2 * float(scale)))
    claim = float(1 / scale)

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        runs = max(1000, min(runs, _MOST_ROWS // users))
        labels = texts(2 * runs)
        watcher = _watcher(mechanism, labels, threshold=users // 2)
        state = watcher.start(noise)
        held = labels.head(runs).gather(np.repeat(np.arange(runs), users))
        watcher.update(state, pl.DataFrame({"user": np.arange(runs * users), "key": held}))
        reported = set(watcher.release(state, 1, noise).labels.cast(pl.Int64).to_list())
        loud = sum(place < runs for place in reported)
        silent_with, silent_without = runs - loud, runs - (len(reported) - loud)
        # Rates are -ln P(silent): that with users from below, that without from above.
        fast = -math.log(upper_rate(silent_with, runs, alpha / 2))
        slow = -math.log(max(lower_rate(silent_without, runs, alpha / 2), 1e-12))
        found = math.log(fast / slow) / users if fast > 0 < slow else 0.0
        return Finding(
            pair=f"rate of reports: {users} users",
            measure="rate",
            claim=claim,
            lower_bound=max(0.0, found),
            runs=runs,
            releases=1,
            reachable=claim,
            expected=_expected(runs, users, float(scale), alpha),
            is_tight=True,
            statistic="share of silent keys",
        )

    return [Attempt(name=f"rate of reports: {users} users", share=1.0, carry_out=carry_out)]


def _watcher(mechanism: TrendingMonitor | Alarms, labels: pl.Series, threshold: int) -> TrendingMonitor:
    """The same noise over many known keys, with a threshold about which they ring or do not."""
    if isinstance(mechanism, Alarms):
        return TrendingMonitor(
            horizon=1, alarms_per_user=1, scale=mechanism.scale, threshold=threshold, domain=Domain(labels)
        )
    return replace(
        mechanism, horizon=1, threshold=threshold, domain=Domain(labels), delta_skip=Fraction(0), max_keys_per_user=1
    )


def _expected(runs: int, users: int, scale: float, alpha: float) -> float:
    threshold = users // 2
    silent_with, silent_without = (
        round(runs * math.exp(-math.exp((weight - threshold) / scale))) for weight in (users, 0)
    )
    fast = -math.log(upper_rate(silent_with, runs, alpha / 2))
    slow = -math.log(lower_rate(silent_without, runs, alpha / 2))
    return max(0.0, math.log(fast / slow) / users)
