"""Attacks on what is counted by users: a hundred thousand users, each alone in a label of her own; and on monitors.

*Statistics.* The counters of a head are those of a histogram head with the same share of the budget. One histogram over
many labels, with one user who gives all that the cap lets her at one tick, in half of the labels, is as many runs of
the real mechanism: table of users, cap, acceptance and counters. What is attacked is the first start of the counters,
whose share of the loss is the largest; the noise of later starts follows by the same rule. The tests of the cap are
enumerated exactly in the tests of `users`. A distinct count has one series, so its runs are made one by one, and are
fewer.

*Monitors.* Many keys at one tick, each with some users of its own or with none. What a user does to a test is to
multiply the rate of its waiting time by e^(1 / scale): P(BOTTOM) = exp(-rate). The rates with and without a group of
users, each bounded from the number of silent keys, bound the scale. How charges, skipped keys and adaptive tests come
together is enumerated exactly in the tests of `monitors`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.attack import Measure, Seen, attack, lower_rate, upper_rate
from pianissimo.audit.pairs import texts
from pianissimo.audit.plan_attacks import PlanAttack
from pianissimo.audit.report import Attempt, Finding
from pianissimo.counting import LabelCounts
from pianissimo.counting.distinct_values import DistinctValues
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked, Loss, Pure
from pianissimo.monitors import Alarms, TrendingMonitor
from pianissimo.noise import Noise
from pianissimo.noise.plan import is_pure
from pianissimo.users import Counters, HistogramHead, UserDistinct, UserStatistics, UserSum

ONE_BY_ONE = 0.02
"""Of the runs, where each is a run of its own."""

_HEAD = "audited"


@dataclass(slots=True)
class _LonelyState:
    inner: Any
    counts: NDArray[np.int64]
    ticks: int = 0


@dataclass(frozen=True)
class LonelyUsers:
    """Statistics of users as a histogram of labels: who adds to a label is a user that nobody knows yet."""

    statistics: UserStatistics
    labels: pl.Series

    @classmethod
    def of(cls, mechanism: UserStatistics, share: Fraction, labels: pl.Series) -> "LonelyUsers":
        """The mechanism with one histogram over these labels, for a share of its counters' budget."""
        rho = None if mechanism.rho is None else mechanism.rho * share
        epsilon = None if mechanism.epsilon is None else mechanism.epsilon * share
        head = HistogramHead(name=_HEAD, domain=Domain(labels))
        return cls(replace(mechanism, heads=(head,), signed=False, rho=rho, epsilon=epsilon), labels)

    def start(self, noise: Noise) -> _LonelyState:
        return _LonelyState(self.statistics.start(noise), np.zeros(len(self.labels), dtype=np.int64))

    def update(self, state: _LonelyState, events: pl.Series) -> None:
        """One more unit for each of these labels."""
        np.add.at(state.counts, events.list.explode().cast(pl.Int64).to_numpy(), 1)

    def merge(self, left: _LonelyState, right: _LonelyState) -> _LonelyState:
        left.counts += right.counts
        return left

    def release(self, state: _LonelyState, tick: int, noise: Noise) -> LabelCounts:
        """All units of a label come from as few users as the cap allows, at the first tick that is asked for."""
        cap = self.statistics.cap.caps[0]
        places = np.repeat(np.arange(len(state.counts)), state.counts)
        within = np.arange(len(places)) - np.repeat(np.cumsum(state.counts) - state.counts, state.counts)
        state.counts[:] = 0
        while state.ticks < tick - 1:
            state.ticks += 1
            self.statistics.release(state.inner, state.ticks, noise)
        users = [f"{place} {number}" for place, number in zip(places.tolist(), (within // cap).tolist(), strict=True)]
        frame = pl.DataFrame({"user": pl.Series(users, dtype=pl.String), _HEAD: self.labels.gather(places)})
        self.statistics.update(state.inner, frame)
        state.ticks = tick
        value = self.statistics.release(state.inner, tick, noise)[_HEAD]
        return LabelCounts(value.labels, value.estimates)


def statistics_attempts(mechanism: UserStatistics) -> list[Attempt]:
    """The counters of each head, on one user with all that the cap lets her."""
    shares = sum((head.share for head in mechanism.heads), Fraction(0))
    attempts: list[Attempt] = []
    for head, counters in zip(mechanism.heads, mechanism.counters, strict=True):
        attempts += _head_attempts(mechanism, head.name, head.share / shares, counters)
    return attempts


def sum_attempts(mechanism: UserSum) -> list[Attempt]:
    """The counters of a sum, as those of a count under the same cap."""
    twin = UserStatistics(
        cap=mechanism.cap,
        plan=mechanism.plan,
        horizon=mechanism.horizon,
        rho=mechanism.rho,
        epsilon=mechanism.epsilon,
    )
    return statistics_attempts(twin)


def _head_attempts(mechanism: UserStatistics, name: str, share: Fraction, counters: Counters) -> Iterator[Attempt]:
    cap = mechanism.cap.caps[0]
    # A histogram moves one series by one for each unit: the plan that it has for this share of the budget.
    plain = replace(counters, sensitivity=HistogramHead(name=_HEAD, domain=Domain(["a"])).sensitivity)
    plan = plain.plan(1, cap, 0)
    if plan is None:
        return
    own = plain.weights[0] * plain.loss
    loss: Loss = Pure(own) if is_pure(plan) else Booked(rho=own)
    target = PlanAttack(
        histogram_of=lambda labels: LonelyUsers.of(mechanism, share, labels),
        plan=plan,
        loss=loss,
        units=cap,
        history=0,
        prefix=f"{name}: ",
        unit="user",
    )
    yield from target.attempts()[:1]


def distinct_attempts(mechanism: UserDistinct) -> list[Attempt]:
    """A user whose values somebody else gives later: without her they come at that later tick."""
    horizon = mechanism.horizon
    # Then nodes of both ticks lie apart, and where signs differ their shifts add up.
    later = horizon // 2 + 1
    cap = mechanism.cap.caps[0]
    hers = pl.DataFrame({"user": ["she"] * cap, "value": [f"value {number}" for number in range(cap)]})
    others = hers.with_columns(user=pl.Series([f"other {number}" for number in range(cap)]))
    (counters,) = mechanism.counters
    plan = counters.plan(1, cap, 0)
    assert plan is not None  # noqa: S101
    pure = is_pure(plan)
    own = counters.weights[0] * counters.loss
    claim = float(own) if pure else float(2 * own) ** 0.5
    name = f"values of one user, given again by others at tick {later}"
    return [_moved_attempt(mechanism, (hers, others), later, horizon, (claim, pure), name)]


def value_attempts(mechanism: DistinctValues) -> list[Attempt]:
    """An event whose values another one holds later: without it they come at that later tick."""
    horizon = mechanism.plan.horizon
    later = horizon // 2 + 1
    held = [f"value {number}" for number in range(mechanism.max_keys_per_event)]
    event = pl.Series([held], dtype=pl.List(pl.String))
    loss = mechanism.guarantee.loss
    pure = isinstance(loss, Pure)
    claim = float(loss.epsilon) if isinstance(loss, Pure) else float(2 * loss.as_booked().rho) ** 0.5
    name = f"values of one event, held again by another at tick {later}"
    return [_moved_attempt(mechanism, (event, event), later, horizon, (claim, pure), name)]


def _moved_attempt(
    mechanism: Any, batches: tuple[Any, Any], later: int, horizon: int, promise: tuple[float, bool], name: str
) -> Attempt:
    """The first batch at tick 1 or not at all, and the second, with the same values, at a later one."""
    (own, others), (claim, pure) = batches, promise

    def releases(present: bool, runs: int, noise: Noise) -> NDArray[np.float32]:  # noqa: FBT001
        values = np.empty((runs, horizon), dtype=np.float32)
        for run in range(runs):
            own_noise = noise.at("run", run)
            state = mechanism.start(own_noise)
            if present:
                mechanism.update(state, own)
            for tick in range(1, horizon + 1):
                if tick == later and later > 1:
                    mechanism.update(state, others)
                released = mechanism.release(state, tick, own_noise)
                values[run, tick - 1] = released if isinstance(released, int) else released.estimate
        return values

    def carry_out(runs: int, alpha: float, noise: Noise) -> Finding:
        worlds = [Seen(releases(present, runs, noise.at(int(present)))) for present in (False, True)]
        found = attack(*worlds, measure=Measure.EPSILON if pure else Measure.MU, alpha=alpha)
        return Finding(
            measure="epsilon" if pure else "mu",
            claim=claim,
            lower_bound=found.lower_bound,
            runs=runs,
            releases=horizon,
            statistic=found.statistic,
        )

    return Attempt(name=name, share=ONE_BY_ONE, carry_out=carry_out)


_MOST_ROWS = 4_000_000


def trending_attempts(mechanism: TrendingMonitor | Alarms) -> list[Attempt]:
    """How much likelier a group of users makes a report."""
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
        leads = (users - users // 2, -(users // 2))
        few, many = (round(runs * math.exp(-math.exp(lead / float(scale)))) for lead in leads)
        return Finding(
            measure="rate",
            claim=claim,
            lower_bound=_rate_bound(silent_with, silent_without, runs, alpha) / users,
            runs=runs,
            releases=1,
            reachable=claim,
            expected=_rate_bound(few, many, runs, alpha) / users,
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


def _rate_bound(silent_with: int, silent_without: int, runs: int, alpha: float) -> float:
    """The logarithm of the ratio of two rates, -ln P(silent), that with users from below, the other from above."""
    fast = -math.log(upper_rate(silent_with, runs, alpha / 2))
    slow = -math.log(max(lower_rate(silent_without, runs, alpha / 2), 1e-12))
    return max(0.0, math.log(fast / slow)) if fast > 0 < slow else 0.0
