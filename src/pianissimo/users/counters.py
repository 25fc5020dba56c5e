"""Counters that start anew when the cap is raised: one noisy prefix, then a fresh plan for the ticks that are left.

Dong, Luo and Yi, Algorithm 5, with a simpler restart than theirs: what was kept before the restart is one node, the
prefix, and what comes after is counted by a plan of its own. A user's units lie before or after, so both together cost
no more than one of them with all her units. Argument: docs/privacy.md, 'Users'.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import NDArray

from pianissimo.checks import check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import Booked, Guarantee, Loss, Mixed, Neighbors, Pure, Unit
from pianissimo.mechanism import Gathering
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, sealed, sealed_since
from pianissimo.noise.laws import LaplaceNode, NodeNoise, gaussian_node, laplace_node
from pianissimo.noise.mean_interval import laplace_factor
from pianissimo.noise.moves import has_no_negative_entries, move_price, plan_for_moves
from pianissimo.noise.plan import (
    NoisePlan,
    difference_variance,
    difference_weights,
    laplace_sum_quantile,
    normal_quantile,
)
from pianissimo.noise.running import KeyRange, RunningNoise, rounded, running_noise, series_keys
from pianissimo.users.caps import AdaptiveCap, Cap, Course, PeriodCap
from pianissimo.users.user_table import Units, UserUnits

PlanKind = type[NoisePlan]
"""A class of plans, as those of `counting`: its `calibrated` makes a plan for a horizon and a loss per unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How far one accepted unit of a user moves the series of a head."""

    total: int
    """The sum of the sizes over all series: what Laplace noise pays for."""

    squared: int
    """The sum of their squares: what Gaussian noise pays for."""

    moves: bool = False
    """Whether without the user a unit may also appear elsewhere, as a distinct value that somebody else gave later."""

    moves_priced: bool = False
    """Whether such a unit is booked at what the plan's columns say; else at twice the price of one that does not move,
    or four times where C has negative entries."""

    of_user: bool = False
    """Whether it is that of a whole user, whatever the cap, and not of one unit."""

    most_per_series: int | None = None
    """How many units of one user may move the same series; None where all of them may."""


def s2(units: int, per_series: int | None = None) -> int:
    """The most that the squares of what a user adds to each series sum to: so many units, so many of them a series.

    What Gaussian noise pays for, times the cost of a plan; it is attained. Laplace noise pays for `units`, however they
    are spread. A series that takes the units of all others (a total, what is beside the listed labels) pays for
    `units` squared. Card: units and windows, L1.

    >>> s2(64, 4), s2(10, 4), s2(7, 1), s2(5)
    (256, 36, 7, 25)
    """
    check_at_least(1, units=units)
    if per_series is None:
        return units**2
    check_at_least(1, per_series=per_series)
    full, rest = divmod(units, per_series)
    return full * per_series**2 + rest**2


@dataclass(frozen=True, slots=True)
class Law:
    """The noise of one release of one series, or of a window: known from the plan and the transcript, without data."""

    plan: NoisePlan | None
    """Of the ticks after the restart; None where there are none."""

    age: int
    """How many ticks of the plan there were."""

    prefix: NodeNoise | None
    """On what was kept before the restart; None before the first one, and where it cancels."""

    begin: int = 0
    """Of a window: how many ticks of the plan there were when it began. It has the difference of both noises."""

    others: tuple["Law", ...] = ()
    """Independent noises that are in it besides, as those of the other segments of a window."""

    roundings: int = 1
    """How many roundings are in it, where there are any."""

    @property
    def variance(self) -> Fraction:
        """Of the noise, before its rounding."""
        own = Fraction(0) if self.prefix is None else self.prefix.variance
        if self.plan is not None and self.age:
            own += difference_variance(self.plan, self.begin, self.age)
        return own + sum((each.variance for each in self.others), start=Fraction(0))

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise, with its rounding."""
        return math.sqrt(self.variance + Fraction(self.roundings if self.is_rounded else 0, 12))

    def half_width(self, coverage: float) -> float:
        """How far, with this chance, a series is from that of what was kept."""
        check_probability(coverage=coverage)
        if self._is_pure:
            spread = laplace_sum_quantile(self._scales(), coverage)
        else:
            spread = normal_quantile(coverage) * math.sqrt(float(self.variance))
        return float(math.ceil(spread + (self.roundings / 2 if self.is_rounded else 0.0)))

    def mixed_factor(self, coverage: float) -> float:
        """How many deviations hold every mixture of two independent such noises with this chance."""
        return laplace_factor(self._scales(), coverage) if self._is_pure else normal_quantile(coverage)

    @property
    def is_rounded(self) -> bool:
        """Whether it is no whole number before it is rounded."""
        own = self.plan is not None and self.plan.shift > 0 and self.age > 0
        return own or any(each.is_rounded for each in self.others)

    @property
    def _is_pure(self) -> bool:
        if self.others:
            return any(each._is_pure for each in self.others)
        node = self.prefix if self.prefix is not None or self.plan is None else self.plan.noises[0]
        return isinstance(node, LaplaceNode)

    def _scales(self) -> list[float]:
        found = [] if self.prefix is None else [_scale(self.prefix)]
        if self.plan is not None:
            plan, nodes = self.plan, difference_weights(self.plan, self.begin, self.age).items()
            found += [abs(weight) / 2.0**plan.shift * _scale(plan.noises[level]) for (level, _), weight in nodes]
        return found + [scale for each in self.others for scale in each._scales()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """The counters of one head over all its starts.

    Guarantee: the sum over starts of weight * loss, rho at integer orders or a pure epsilon, for a user with at most
    `cap` units in each.
    """

    kind: PlanKind
    """Which plans."""

    horizon: int
    """Of the whole run."""

    loss: Fraction
    """Of all starts together."""

    is_pure: bool
    """Whether `loss` is an epsilon (Laplace noise) or a rho (Gaussian noise)."""

    sensitivity: Sensitivity
    """Of one unit."""

    weights: tuple[Fraction, ...]
    """The share of each start."""

    series: int = 1
    """How many series there are."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon, series=self.series)
        if not hasattr(self.kind, "calibrated"):
            raise ParameterError(f"plan must be a class of plans, as HaarPlan, got {self.kind!r}")
        if not sum(self.weights) <= 1:
            raise ParameterError("the shares of all starts must sum to at most 1, got more")

    def plan(self, start: int, cap: int, since: int) -> NoisePlan | None:
        """Which noises enter the releases after tick `since`; None after the last tick."""
        if since == self.horizon:
            return None
        rule = _Rule(self.is_pure, self._moves, self.sensitivity.moves_priced, after_prefix=since > 0)
        return _plan_within(self.kind, self.horizon - since, rule, self._unit_loss(start, cap))

    def prefix(self, start: int, cap: int, since: int) -> NodeNoise | None:
        """The noise on what was kept up to tick `since`; None if the counters run from the beginning."""
        if not since:
            return None
        unit = self._unit_loss(start, cap)
        if self.is_pure:
            return laplace_node((2 if self._moves else 1) / unit)
        if self._moves and self.sensitivity.moves_priced:
            # A unit may leave the prefix for the plan: both together cost what one may.
            plan = self.plan(start, cap, since)
            return gaussian_node(1 / (2 * unit - (0 if plan is None else plan.cost)))
        # The prefix is one node with a positive entry: whether units only leave or also come, sqrt(2) covers it.
        return gaussian_node((2 if self._moves else 1) / (2 * unit))

    def law(self, start: int, cap: int, since: int, tick: int) -> Law:
        """The noise of the release of a tick."""
        plan = self.plan(start, cap, since)
        return Law(plan=plan, age=tick - since, prefix=self.prefix(start, cap, since))

    def draws(self, caps: tuple[int, ...]) -> int:
        """How many draws a whole run makes at most."""
        plan = self.plan(1, caps[0], 0)
        # A shorter plan after a restart may have some more nodes than the longest; none has twice as many.
        nodes = 0 if plan is None else 2 * plan.node_count
        return self.series * len(self.weights) * (nodes + 1)

    def check(self, caps: tuple[int, ...]) -> None:
        """Refuse budgets whose noise no sampler has, at any of the caps: the least and the largest noise decide."""
        last, end = len(caps), self.horizon
        places = [(1, caps[0], 0), (1, caps[-1], 0)]
        if last > 1 and end > 1:
            places += [(2, caps[1], end - 1), (last, caps[-1], 1)]
        for place in places:
            _ = self.plan(*place)
            node = self.prefix(*place)
            if node is not None:
                _ = node.bound

    @property
    def _moves(self) -> bool:
        return self.sensitivity.moves

    def _unit_loss(self, start: int, cap: int) -> Fraction:
        """What one unit in one series may cost, so that all that a user adds to the head costs this start's share."""
        share = self.weights[start - 1] * self.loss
        units = 1 if self.sensitivity.of_user else cap
        if self.is_pure:
            return share / (units * self.sensitivity.total)
        return share / (s2(units, self.sensitivity.most_per_series) * self.sensitivity.squared)


class RunningCounters:
    """The noise of the counters of one head, release after release: a cache."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self._place: tuple[int, int, int] | None = None
        self._noise: Noise | None = None
        self._running: RunningNoise | None = None
        self._prefix = np.empty(0, dtype=np.int64)

    def release(
        self,
        totals: NDArray[np.int64],
        place: tuple[int, int, int],
        tick: int,
        noise: Noise,
        keys: KeyRange | None = None,
    ) -> NDArray[np.int64]:
        """What was kept, with the noise of this tick; of series that may grow in number, under their `keys`."""
        plan, node, keys = self.counters.plan(*place), self.counters.prefix(*place), keys or series_keys
        if self._place != place:
            self._place = None
            here = noise.at(*place)
            self._prefix = np.empty(0, dtype=np.int64)
            self._running = None if plan is None else running_noise(plan)
            # The same object again, since a cache of noise belongs to the noise it was made with. Tick 1 of the plan is
            # the one after the restart.
            self._noise = sealed_since(here.at("plan"), place[2])
            self._place = place
        if node is not None and len(self._prefix) < len(totals):
            # A series that begins later has the same noise as if it had been there: its prefix is 0.
            more = np.empty(len(totals) - len(self._prefix), dtype=np.int64)
            own = sealed(noise.at(*place), place[2]).at("prefix")
            node.draw(own, keys(len(self._prefix), len(totals)), more)
            self._prefix = np.concatenate([self._prefix, more])
        sums = totals if node is None else totals + self._prefix
        age = tick - place[2]
        if plan is None or self._running is None or self._noise is None or age == 0:
            return sums.copy()
        return rounded(sums, self._running.at(self._noise, age, len(totals), keys), plan.shift)


class _Rule(NamedTuple):
    """What a plan must keep its loss for."""

    is_pure: bool
    moves: bool
    moves_priced: bool
    after_prefix: bool


@lru_cache(maxsize=256)
def _plan_within(kind: PlanKind, horizon: int, rule: _Rule, loss: Fraction) -> NoisePlan:
    """The plan of a kind whose loss per unit is at most `loss`, also if a unit may leave one place for another."""
    is_pure = rule.is_pure
    if rule.moves and rule.moves_priced:
        make = cast(Any, kind).calibrated
        plan = plan_for_moves(make, horizon, pure=is_pure, loss=loss, after_prefix=rule.after_prefix)
        worst = max(plan.cost, move_price(plan))
    else:
        plan, factor = _plan_by_factor(kind, horizon, rule, loss)
        worst = plan.cost * factor
    if not worst <= (1 if is_pure else 2) * loss:
        raise ParameterError(f"a {plan.name} plan must keep the loss it was asked for, got a larger one")
    if isinstance(plan.noises[0], LaplaceNode) != is_pure:
        raise ParameterError(f"the noise of a {plan.name} plan must suit its loss, got the other kind")
    return plan


def _plan_by_factor(kind: PlanKind, horizon: int, rule: _Rule, loss: Fraction) -> tuple[NoisePlan, int]:
    """Without the plan's own price of moves: they shift the noise by the difference of two columns of C.

    Each is at most of the norm of one: twice that in general, and sqrt(2) times if no entry of C is negative.
    """
    name = "epsilon" if rule.is_pure else "rho"
    factors = (1,) if not rule.moves else (2,) if rule.is_pure else (2, 4)
    for factor in factors:
        plan: NoisePlan = cast(Any, kind).calibrated(horizon=horizon, **{name: loss / factor})
        if factor == factors[-1] or has_no_negative_entries(plan):
            break
    return plan, factor


def _scale(node: NodeNoise) -> float:
    return math.sqrt(node.variance / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserBudget(Gathering):
    """What the counters and the promise of a user-level mechanism follow from: a base class of all of them."""

    cap: Cap
    """How many units of one user count."""

    plan: PlanKind
    """The class of the counters' plans, as `HaarPlan`."""

    horizon: int
    """How many releases one run may make."""

    rho: Fraction | None = None
    """Of all counters together, met by Gaussian noise."""

    epsilon: Fraction | None = None
    """Of all counters together, met by Laplace noise; either this or `rho` is given."""

    history: int = 0
    """How many past ticks are kept, so that intervals can be answered."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon)
        check_at_least(0, history=self.history)
        if (self.rho is None) == (self.epsilon is None):
            raise ParameterError("either rho or epsilon must be given, got both or neither")
        if not isinstance(self.amount, Fraction):
            raise ParameterError(f"rho or epsilon must be an exact Fraction, got {type(self.amount).__name__}")
        check_positive(budget=self.amount)
        for counters in self.counters:
            counters.check(self.cap.caps)

    @property
    def counters(self) -> tuple[Counters, ...]:
        """Those of each statistic that is released."""
        raise NotImplementedError

    @classmethod
    def fitting(cls, *, cap: AdaptiveCap, **fields: Any) -> Self:
        """With as many of the cap's levels as samplers have noise for."""
        for levels in range(cap.levels, 1, -1):
            try:
                return cls(cap=replace(cap, levels=levels), **fields)
            except ParameterError:
                continue
        return cls(cap=replace(cap, levels=1), **fields)

    @property
    def bad(self) -> Fraction:
        """The chance that something is shown which only one user holds."""
        return Fraction(0)

    @property
    def amount(self) -> Fraction:
        """Of the one of both that is given."""
        return self.rho or self.epsilon or Fraction(0)

    def begin(self, noise: Noise) -> dict[str, Any]:
        """What every state has before the first event."""
        return {"users": UserUnits(noise, self.cap.caps[0]), "course": Course(self.cap, self.horizon)}

    def units_given(self, state: Any) -> Units:
        """How many units each user has given, in no order."""
        # Statistics by label have their users beside the units that wait for a higher cap.
        users: UserUnits = state.users if hasattr(state, "users") else state.units.users
        return users.units

    def between_error(self, start: int, end: int, coverage: float) -> float:
        plan = self.counters[0].plan(1, self.cap.caps[0], 0)
        return Law(plan, end, None, begin=start).half_width(coverage)

    def counters_of(self, sensitivity: Sensitivity, *, share: Fraction = Fraction(1), series: int = 1) -> Counters:
        """The counters that get this share of the budget."""
        return Counters(
            kind=self.plan,
            horizon=self.horizon,
            loss=self.amount * share,
            is_pure=self.epsilon is not None,
            sensitivity=sensitivity,
            weights=self.cap.weights if isinstance(self.cap, AdaptiveCap) else (Fraction(1),),
            series=series,
        )

    def error(self, tick: int, coverage: float) -> float:
        return self.counters[0].law(1, self.cap.caps[0], 0, tick).half_width(coverage)

    @property
    def guarantee(self) -> Guarantee:
        # The cap's tests, a pure epsilon, beside a rho or an epsilon.
        cap = self.cap
        tests, pure = (cap.draws(self.horizon), cap.loss) if isinstance(cap, AdaptiveCap) else (0, Fraction(0))
        distance = (sum(each.draws(cap.caps) for each in self.counters) + tests) * DRAW_DISTANCE
        loss: Loss
        if self.epsilon is not None:
            loss = Pure(epsilon=pure + self.epsilon, distance=distance)
        elif pure:
            loss = Mixed(pure=pure, rho=self.amount, bad=self.bad, distance=distance)
        else:
            loss = Booked(rho=self.amount, bad=self.bad, distance=distance)
        source = "Dong, Luo and Yi, Algorithms 4 and 5, corrected; docs/privacy.md, 'Users'"
        if isinstance(cap, PeriodCap):
            source = f"one user's events within one period of {cap.ticks} ticks; docs/privacy.md, 'Users'"
        unit = Unit.USER_PERIOD if isinstance(cap, PeriodCap) else Unit.USER
        neighbors = Neighbors.ADD_OR_REMOVE
        return Guarantee(loss=loss, unit=unit, neighbors=neighbors, horizon=self.horizon, source=source)
