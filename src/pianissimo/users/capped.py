"""What the mechanisms with one number a tick and a cap on what a user adds share: their counters and their promise."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from pianissimo.checks import check_at_least
from pianissimo.privacy import Guarantee
from pianissimo.users.budget import budget_of, fitting_levels, user_guarantee
from pianissimo.users.caps import AdaptiveCap, Cap, weights_of
from pianissimo.users.counters import Counters, Law, PlanKind, Sensitivity


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedTotal:
    """A number to which each user adds at most the cap, released at every tick."""

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

    sensitivity: ClassVar[Sensitivity]
    """Of the number, to one unit of a user."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon)
        _ = budget_of(self.rho, self.epsilon)
        self.counters.check(self.cap.caps)

    @classmethod
    def fitting(cls, *, cap: AdaptiveCap, **fields: Any) -> Self:
        """With as many of the cap's levels as samplers have noise for."""
        return cls(cap=fitting_levels(cap, lambda rule: cls(cap=rule, **fields)), **fields)

    @property
    def counters(self) -> Counters:
        """The counters of the number."""
        return Counters(
            kind=self.plan,
            horizon=self.horizon,
            loss=budget_of(self.rho, self.epsilon),
            is_pure=self.epsilon is not None,
            sensitivity=self.sensitivity,
            weights=tuple(weights_of(self.cap)),
        )

    @property
    def guarantee(self) -> Guarantee:
        draws = self.counters.draws(self.cap.caps)
        return user_guarantee(self.cap, self.horizon, rho=self.rho, epsilon=self.epsilon, draws=draws)

    def law(self, *, tick: int, cap: int | None = None, start: int = 1, since: int = 0) -> Law:
        """The noise at a tick if the counters started for the `start`-th time at tick `since`; public, without data."""
        return self.counters.law(start, self.cap.caps[0] if cap is None else cap, since, tick)

    def error(self, tick: int, coverage: float) -> float:
        return self.law(tick=tick).half_width(coverage)
