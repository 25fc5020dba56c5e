"""Statistics that begin anew with each period, for ever: another mechanism, run once in each.

Hidden is a user with her events of one period. The periods are public whole ticks. Each has a fresh state and noise
under a path that holds the tick it begins with, so that what one period released tells nothing of the noise of another.
Her events of one period move that period's releases alone: the loss of the whole run is that of one period, and a user
who comes in D periods loses D times as much. No horizon ends it; plans and thresholds are those of the longest period.

*The cap may follow from period to period.* At the end of each, one histogram of its users by the octave of what they
gave gets discrete Laplace noise: a user is in one bucket, so that it loses the epsilon of the noise, and no period
pays for another. The cap of the next period is the least power of two that, by these numbers, few enough users were
above. It is public, and may fall again; the first one is given. Card U3 of the theory of units and windows;
docs/privacy.md, 'Users within a period'.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from pianissimo import codec
from pianissimo.checks import check_at_least, check_positive
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.loss.losses import Guarantee, Loss, Mixed, Pure, Unit
from pianissimo.mechanism import BySlot, Gathering
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, sealed, sealed_since
from pianissimo.noise.laws import LaplaceNode, laplace_node
from pianissimo.stored_parts import Logged, checkpoint_of, lasting_of, missing_of, plain_parts, restore, stored_parts
from pianissimo.unit import MOST_CAPS, Periods
from pianissimo.users.caps import LARGEST_CAP, FixedCap
from pianissimo.users.user_table import Units


@identified("octave-cap")
@dataclass(frozen=True, kw_only=True)
class OctaveCap:
    """A cap for each period: the least power of two that few enough users of the period before were above.

    Guarantee: epsilon-DP for the cap, per user and period.
    Error: what is cut off is missing. With nobody above, the cap is not raised for noise alone in about 99.9 % of
    periods (three standard deviations); nothing is said of how many are above it in the period that it holds in.
    Cost: one draw for each of the caps, once a period.

    >>> cap = OctaveCap(epsilon=Fraction(1, 5), levels=6)
    >>> cap.caps, cap.target
    ((1, 2, 4, 8, 16, 32), 52)
    >>> cap.chosen(np.array([500, 300, 200, 90, 40, 2]))
    8
    """

    epsilon: Fraction
    """Of one period's histogram."""

    first: int = 16
    """The cap of the first period."""

    levels: int = 20
    """How many powers of two there are to choose from."""

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)
        check_at_least(1, first=self.first, levels=self.levels)
        if not (self.first <= LARGEST_CAP and self.levels <= MOST_CAPS):
            raise ParameterError(f"the last cap must be at most 2^40, got 2^{self.levels - 1}; take fewer levels")
        _ = self.node.bound

    @cached_property
    def caps(self) -> tuple[int, ...]:
        """1, 2, 4, and so on."""
        return tuple(1 << level for level in range(self.levels))

    @cached_property
    def node(self) -> LaplaceNode:
        """The noise of each bucket."""
        return laplace_node(1 / self.epsilon)

    @property
    def loss(self) -> Fraction:
        """What the histogram of one period loses: a user is in one bucket of it."""
        return 1 / self.node.scale

    @property
    def target(self) -> int:
        """So many users may be above a cap, by the noisy numbers: three standard deviations of all buckets' noise."""
        return math.ceil(3 * math.sqrt(self.levels * self.node.variance))

    def buckets(self, units: Units) -> np.ndarray[Any, np.dtype[np.int64]]:
        """How many users need each of the caps; the last has all who need it, or a higher one."""
        places = np.searchsorted(np.array(self.caps[:-1], dtype=np.uint64), units[units > 0], side="left")
        return np.bincount(places, minlength=self.levels).astype(np.int64)

    def chosen(self, buckets: np.ndarray[Any, np.dtype[np.int64]]) -> int:
        """The least cap that, by these numbers, at most `target` users are above."""
        above = int(buckets.sum())
        for cap, count in zip(self.caps, buckets.tolist(), strict=True):
            above -= count
            if above <= self.target:
                return cap
        return self.caps[-1]


class OnePeriod:
    """One period: its mechanism under its cap, its noise, and its state, which is secret."""

    def __init__(self, each: "EachPeriod", noise: Noise, first: int, cap: int) -> None:
        self.first, self.cap = first, cap
        self.last = each.last_of(first)
        self.mechanism = each.under(cap)
        # The tick of the stream, and not of this life, although another life has another path already. For the
        # mechanism, ticks and their seals begin with the period.
        self.noise = sealed_since(noise.at("period", each.after + first), first - 1)
        self.state: Any = self.mechanism.start(self.noise)

    def release(self, tick: int) -> Any:
        """What is published at a tick of the run."""
        return self.mechanism.release(self.state, tick - self.first + 1, self.noise)

    def logged(self) -> dict[str, Logged]:
        """The parts of its state that are stored tick by tick."""
        return {name: part for name, part in stored_parts(self.state) if isinstance(part, Logged)}

    def to_plain(self) -> codec.Plain:
        return {"first": self.first, "cap": self.cap, "last": self.last, "state": plain_parts(self.state)}


class PeriodStates:
    """The open period, and the one before it until the open one has made a release: secret."""

    def __init__(self, each: "EachPeriod", noise: Noise) -> None:
        self._each, self._noise = each, noise
        self.open = OnePeriod(each, noise, 1, each.first_cap)
        self.before: OnePeriod | None = None

    def turn(self, cap: int) -> None:
        """Begin the next period, with no release made in it."""
        self.before = self.open
        self.open = OnePeriod(self._each, self._noise, self.open.last + 1, cap)

    def stand_at(self, first: int) -> None:
        """Gather for the period that begins with a tick; nothing is counted in any."""
        if self.open.first != first:
            self.open = OnePeriod(self._each, self._noise, first, self._each.first_cap)

    def of(self, start: int, end: int) -> OnePeriod | None:
        """The period that some ticks after `start` lie in, if it is still known."""
        for period in (self.open, self.before):
            if period is not None and period.first - 1 <= start < end <= period.last:
                return period
        return None

    @property
    def _released(self) -> OnePeriod:
        """The period of the last release."""
        return self.before or self.open

    @property
    def log_length(self) -> int:
        return max((part.log_length for part in self.open.logged().values()), default=0)

    def log(self) -> codec.Plain:
        return {name: part.log() for name, part in self._released.logged().items()}

    def checkpoint(self) -> codec.Plain:
        parts = checkpoint_of(self._released.logged())
        return None if parts is None else {"first": self._released.first, "parts": parts}

    def lasting(self) -> set[int]:
        before = self._released.first - 1
        return {before + tick for tick in lasting_of(self._released.logged())}

    def missing(self) -> set[int]:
        before = self._released.first - 1
        return {before + tick for tick in missing_of(self._released.logged())}

    def to_plain(self) -> codec.Plain:
        return {
            "open": self.open.to_plain(),
            "before": None if self.before is None else self.before.to_plain(),
        }

    def take_logged(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        # Of a period in which nothing is released yet there are no logs.
        before = content["before"]
        self.before = None if before is None else self._taken(before, logs)
        self.open = self._taken(content["open"], logs if before is None else [])

    def _taken(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> OnePeriod:
        period = OnePeriod(self._each, self._noise, content["first"], content["cap"])
        # As it was when it began: a calendar may have changed since.
        period.last = content["last"]
        own = [log["parts"] for log in logs if "parts" in log and log["first"] == period.first]
        restore(period.state, content["state"], [*own, *(log for log in logs if "parts" not in log)])
        return period

    def __repr__(self) -> str:
        return "PeriodStates(hidden)"


@dataclass(slots=True, repr=False)
class EachPeriodState:
    """What is known of the open period: secret."""

    periods: PeriodStates


@identified("each-period")
@dataclass(frozen=True, kw_only=True)
class EachPeriod(Gathering):
    """Another mechanism about users, begun anew with each period.

    Guarantee: that of one run of the other mechanism, for the unit "a user within a period", and beside it the epsilon
    of the cap where that follows. It holds for all periods, whose number has no bound.
    Error: that of the other mechanism at a tick of the period.
    Cost: that of the other mechanism over one period; for one tick that of two.

    >>> import polars as pl
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.noise import TreePlan
    >>> from pianissimo.testing import NoNoise
    >>> from pianissimo.unit import EvenPeriods
    >>> from pianissimo.users import UserStatistics
    >>> inner = UserStatistics(cap=FixedCap(units=3), plan=TreePlan, horizon=2, rho=Fraction(1, 2))
    >>> run = Run(EachPeriod(inner=inner, periods=EvenPeriods(2), horizon=2**32), NoNoise())
    >>> for _ in range(3):
    ...     run.update(pl.DataFrame({"user": ["ann", "bob"]}))
    ...     print(run.release().value["count"].estimate)
    2
    4
    2
    """

    inner: Any
    """What runs in each period, at the largest of all caps."""

    periods: Periods
    """Which ticks are one period."""

    horizon: int
    """How many releases the run may make; it costs nothing."""

    follow: OctaveCap | None = None
    """Where the cap of each period follows from the one before; None where it stays."""

    after: int = 0
    """After which tick of the stream the run begins."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon)
        check_at_least(0, after=self.after)
        if not min(self.periods.longest, self.horizon) <= self.inner.horizon:
            raise ParameterError("a period must be within the horizon of what runs in it, got a longer one")
        if self.follow is not None:
            if not max(self.follow.first, self.follow.caps[-1]) <= self.inner.cap.units:
                raise ParameterError("what runs in a period must allow the largest cap, got a lower one")
            _ = self.under(1)

    def __getattr__(self, name: str) -> Any:
        # What else plans ask for, as counters, heads and thresholds, is that of one period.
        if name.startswith("__") or "inner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.inner, name)

    @property
    def cap(self) -> Any:
        """The rule of the cap."""
        return self.inner.cap if self.follow is None else self.follow

    @property
    def first_cap(self) -> int:
        """The cap of the first period; 0 where there is none."""
        return 0 if self.follow is None else self.follow.first

    def under(self, cap: int) -> Any:
        """What runs in a period of this cap."""
        if self.follow is None:
            return self.inner
        return replace(self.inner, cap=FixedCap(units=cap, told=self.inner.cap.units))

    def last_of(self, tick: int) -> int:
        """The last tick of the run in the period of a tick."""
        return self.periods.span(self.after + tick)[1] - self.after

    def begins(self, tick: int) -> int:
        """The first tick of the run in the period of a tick."""
        return max(1, self.periods.span(self.after + tick)[0] - self.after)

    @property
    def guarantee(self) -> Guarantee:
        own: Guarantee = self.inner.guarantee
        loss: Loss = own.loss
        if self.follow is not None:
            spent, distance = self.follow.loss, loss.distance + self.follow.levels * DRAW_DISTANCE
            if isinstance(loss, Pure):
                loss = Pure(epsilon=loss.epsilon + spent, distance=distance)
            else:
                booked = loss.as_booked()
                loss = Mixed(pure=spent, rho=booked.rho, bad=booked.bad, distance=distance)
        source = f"{own.source}; begun anew with each period: docs/privacy.md, 'Users within a period'"
        return replace(own, loss=loss, unit=Unit.USER_PERIOD, horizon=self.horizon, source=source)

    def error(self, tick: int, coverage: float) -> float:
        error: float = self.under(self.first_cap).error(tick - self.begins(tick) + 1, coverage)
        return error

    def start(self, noise: Noise) -> EachPeriodState:
        return EachPeriodState(PeriodStates(self, noise))

    def update(self, state: EachPeriodState, batch: Any) -> None:
        period = state.periods.open
        if self.follow is None:
            period.mechanism.update(period.state, batch)
        else:
            self.add(state, self.gather(state, batch))

    def gather(self, state: EachPeriodState, batch: Any) -> codec.Plain:
        # At the largest cap: nothing is cut off that the next cap is chosen by.
        return self.inner.gather(state.periods.open.state, batch)

    def by_name(self) -> "EachPeriod":
        return replace(self, inner=self.inner.by_name()) if isinstance(self.inner, BySlot) else self

    def from_names(self, state: EachPeriodState, gathered: codec.Plain) -> codec.Plain:
        inner, open_state = self.inner, state.periods.open.state
        return inner.from_names(open_state, gathered) if isinstance(inner, BySlot) else gathered

    def standing(self, state: EachPeriodState) -> int:
        return state.periods.open.first

    def stand_at(self, state: EachPeriodState, tick: int) -> None:
        state.periods.stand_at(self.begins(tick))

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        return self.inner.combine(pieces)

    def add(self, state: EachPeriodState, gathered: codec.Plain) -> None:
        period = state.periods.open
        period.mechanism.add(period.state, gathered)

    def release(self, state: EachPeriodState, tick: int, noise: Noise) -> Any:  # noqa: ARG002
        periods, period = state.periods, state.periods.open
        value = period.release(tick)
        periods.before = None
        if tick == period.last:
            # A public tick ends a period, whether or not it has events. What it knew is not stored as gone before
            # this release is.
            periods.turn(self._next_cap(period))
        return value

    def between(self, state: EachPeriodState, start: int, end: int, noise: Noise) -> Any:  # noqa: ARG002
        """What ticks start + 1 .. end added, which must lie within the open period, or the one that is just over."""
        period = state.periods.of(start, end)
        if period is None:
            raise ParameterError(
                "an interval must lie within the present period, got another: statistics begin anew with each; "
                "ask for a shorter one, or read the last release of the period before"
            )
        begin = period.first - 1
        return period.mechanism.between(period.state, start - begin, end - begin, period.noise)

    def between_error(self, start: int, end: int, coverage: float) -> float:
        before = self.begins(end) - 1
        error: float = self.under(self.first_cap).between_error(start - before, end - before, coverage)
        return error

    def _next_cap(self, period: OnePeriod) -> int:
        rule = self.follow
        if rule is None or self.periods.span(self.after + period.first)[0] < self.after + period.first:
            # One that was shorter than others at its beginning tells too little.
            return period.cap
        here = sealed(period.noise, period.last - period.first + 1).at("octaves")
        keys = np.arange(rule.levels, dtype=np.uint64)
        return rule.chosen(
            rule.buckets(period.mechanism.units_given(period.state)) + here.laplace(rule.node.scale, keys)
        )
