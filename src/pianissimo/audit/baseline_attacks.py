"""Attacks on the baselines of monitors: the sparse vector technique, and its published form with charges per user.

*AboveThreshold.* The streams with and without a user differ in n tests that stay silent, which she raises by one, and
agree in the test that reports, or where queries may move either way she lowers that one. Without her, the silence is
likelier and the report no less: with many silent tests far from the threshold the ratio comes to e^epsilon. Which tests
show most in so many runs is worked out from the exact law.

*ThresholdMonitor.* One test of a crowd at the threshold, against the same crowd without a group. Of its claim hardly
anything can be shown: its noise is that of a proof.
"""

import math
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pianissimo.audit.attack import epsilon_bound
from pianissimo.audit.report import Attempt, Finding
from pianissimo.monitors import AboveThreshold, ThresholdMonitor
from pianissimo.noise import Noise

_SHARE = 0.1
_SILENT = (1, 2, 4, 8, 16)
_PLACES = np.linspace(-3, 3, 9)
"""Of queries over the threshold, in scales of their noise."""


class SilentThenTop(NamedTuple):
    """So many equal queries that stay silent, and one that reports, over the threshold; without a user and with her."""

    silent: int
    quiet: int
    report: int
    lowered: int
    """By how much she lowers the last one."""

    def queries(self, *, present: bool) -> list[int]:
        last = self.report - (self.lowered if present else 0)
        return [self.quiet + present] * self.silent + [last]


def above_threshold_attempts(mechanism: AboveThreshold) -> list[Attempt]:
    """The silence that is likelier without a user, and the report after it."""

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        pair, chances = _best_pair(mechanism, runs, alpha)
        found = [
            sum(_happens(mechanism, queries, noise.at(world, run)) for run in range(runs))
            for world, queries in enumerate((pair.queries(present=False), pair.queries(present=True)))
        ]
        return Finding(
            measure="epsilon",
            claim=float(mechanism.epsilon),
            lower_bound=epsilon_bound(found[0], found[1], runs, alpha),
            runs=runs,
            releases=pair.silent + 1,
            reachable=math.log(chances[0] / chances[1]),
            expected=_bound(chances, runs, alpha),
            statistic="silence, then a report",
        )

    return [Attempt(name="one user in the tests before a report", share=_SHARE, carry_out=carry_out)]


def _best_pair(mechanism: AboveThreshold, runs: int, alpha: float) -> tuple[SilentThenTop, list[float]]:
    scale = float(mechanism.query_scale)
    offsets = sorted({round(place * scale) for place in _PLACES})
    lowered = 0 if mechanism.monotone else 1
    pairs = [SilentThenTop(*each, lowered) for each in product(_SILENT, offsets, offsets)]
    chances = [
        [outcome_chance(mechanism, pair.queries(present=present)) for present in (False, True)] for pair in pairs
    ]
    bounds = [_bound(each, runs, alpha) for each in chances]
    best = int(np.argmax(bounds))
    return pairs[best], chances[best]


def _bound(chances: list[float], runs: int, alpha: float) -> float:
    """What runs that come out as they should show of two chances."""
    without, with_user = (round(runs * chance) for chance in chances)
    return epsilon_bound(without, with_user, runs, alpha)


def outcome_chance(mechanism: AboveThreshold, queries: list[int]) -> float:
    """The exact chance that the last of these queries, told over the threshold, is the first to report."""
    reach = math.ceil(40 * float(mechanism.threshold_scale))
    raised = np.arange(-reach, reach + 1)
    rate = 1 / float(mechanism.threshold_scale)
    chance = math.tanh(rate / 2) * np.exp(-rate * np.abs(raised))
    above = [_tail(raised + 1 - query, 1 / float(mechanism.query_scale)) for query in queries]
    silent = np.prod([1 - each for each in above[:-1]], axis=0)
    return float((chance * silent * above[-1]).sum())


def _tail(least: NDArray[np.int64], rate: float) -> NDArray[np.float64]:
    """P[Z >= least] of discrete Laplace noise."""
    one = 1 + math.exp(-rate)
    tail: NDArray[np.float64] = np.where(
        least >= 0, np.exp(-rate * np.maximum(least, 0)) / one, 1 - np.exp(-rate * np.maximum(1 - least, 0)) / one
    )
    return tail


def _happens(mechanism: AboveThreshold, queries: list[int], noise: Noise) -> bool:
    state: Any = mechanism.start()
    for query in queries:
        if mechanism.test(state, mechanism.threshold + query, noise):
            break
    return bool(state.stopped and state.tests == len(queries))


def threshold_monitor_attempts(mechanism: ThresholdMonitor) -> list[Attempt]:
    """How much likelier a group of users makes a report."""
    users = 2 * math.ceil(mechanism.outer_scale)

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        keys = np.arange(runs, dtype=np.uint64)
        found = [
            int(mechanism.test_weights(np.full(runs, mechanism.threshold + lead), keys, noise.at(lead)).sum())
            for lead in (users // 2, -users // 2)
        ]
        return Finding(
            measure="epsilon",
            claim=mechanism.epsilon,
            lower_bound=epsilon_bound(found[0], found[1], runs, alpha) / users,
            runs=runs,
            releases=1,
            statistic="share of reports",
        )

    return [Attempt(name=f"one test of {users:,} users at the threshold", share=1.0, carry_out=carry_out)]
