"""Attacks on what is counted of single events: the counts of one tick, and the bins of quantiles."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl

from pianissimo.audit.attack import epsilon_bound
from pianissimo.audit.pairs import texts
from pianissimo.audit.plan_attacks import MEASURABLE, TWIN_DELTA, PlanAttack, history_of, lone_attempt
from pianissimo.audit.report import Attempt, Finding
from pianissimo.counting import EventQuantiles, KnownHistogram
from pianissimo.labels import Domain
from pianissimo.monitors import TickCounts, lone_event_threshold
from pianissimo.noise import Noise

_MOST_ROWS = 4_000_000


def quantile_attempts(mechanism: EventQuantiles) -> list[Attempt]:
    """A tree of bins is a histogram in which each event holds one bin of every size."""
    moved = mechanism.cells.depth + 1
    return PlanAttack(
        histogram_of=lambda labels: KnownHistogram(
            plan=mechanism.plan, domain=Domain(labels), max_keys_per_event=moved
        ),
        plan=mechanism.plan,
        loss=mechanism.guarantee.loss,
        series=moved,
        history=history_of(mechanism.plan),
    ).attempts()


def tick_attempts(mechanism: TickCounts) -> list[Attempt]:
    """How much likelier an event makes the report of a key about the threshold; and of a key that it alone holds.

    P[n + 1 + Z >= n + 1] is e^(1 / scale) times P[n + Z >= n + 1], so one key shows all that it loses; the keys of an
    event have independent noise, and lose that much each.
    """
    rate = 1 / float(mechanism.scale)
    attempts = [Attempt(name="one event at the threshold", share=1.0, carry_out=_at_the_threshold(mechanism, rate))]
    if mechanism.domain is None:
        attempts.append(_lone_key_attempt(mechanism))
    return attempts


def _at_the_threshold(mechanism: TickCounts, rate: float) -> Callable[[int, float, Noise], Finding]:
    keys, others = mechanism.moved, 3

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        runs = min(runs, _MOST_ROWS // (2 * others + 1))
        labels = texts(2 * runs)
        counts = replace(
            mechanism, horizon=1, domain=Domain(labels), threshold=others + 1, delta=Fraction(0), max_keys_per_event=1
        )
        state = counts.start(noise)
        for held in (*[labels] * others, labels.head(runs)):
            counts.update(state, held)
        reported = counts.release(state, 1, noise).labels.cast(pl.Int64).to_numpy()
        loud = int(np.count_nonzero(reported < runs))
        often, seldom = (round(runs * math.exp(-step * rate) / (1 + math.exp(-rate))) for step in (0, 1))
        return Finding(
            measure="epsilon",
            claim=keys * rate,
            lower_bound=keys * epsilon_bound(loud, len(reported) - loud, runs, alpha),
            runs=runs,
            releases=1,
            reachable=keys * rate,
            expected=keys * epsilon_bound(often, seldom, runs, alpha),
            is_tight=True,
            statistic="share of reported keys",
        )

    return carry_out


def _lone_key_attempt(mechanism: TickCounts) -> Attempt:
    """How often a key of one event is reported; where delta is tiny, of a twin with a larger one."""
    twin = mechanism
    if mechanism.delta < MEASURABLE:
        # As far above its least threshold as the mechanism is.
        above = mechanism.threshold - lone_event_threshold(mechanism.scale, mechanism.delta)
        least = lone_event_threshold(mechanism.scale, TWIN_DELTA)
        twin = replace(mechanism, delta=TWIN_DELTA, threshold=least + above)

    def count(runs: int, noise: Noise) -> int:
        state = twin.start(noise)
        twin.update(state, texts(runs))
        return len(twin.release(state, 1, noise))

    name, is_twin = "a key that one event alone holds", twin is not mechanism
    return lone_attempt(name, float(twin.delta), count, 1, is_twin=is_twin)
