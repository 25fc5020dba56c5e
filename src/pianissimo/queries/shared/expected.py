"""What a query may spend, the noise plans it may be spent on, and the error to expect of each."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise.plan import (
    NoisePlan,
    OwnVariance,
    difference_weights,
    is_pure,
    laplace_sum_quantile,
    normal_quantile,
)
from pianissimo.users import EachPeriod

OPEN_HORIZON = 2**32
"""What a horizon without end is booked as."""

PlanMaker = Callable[..., NoisePlan]

GAUSSIAN_PLANS: dict[str, Any] = {
    "spline": SplinePlan,
    "haar + skipping": HaarSkipPlan,
    "haar": HaarPlan,
    "tree": TreePlan,
    "doubling": DoublingPlan,
}
LAPLACE_PLANS: dict[str, Any] = {
    "top-down": TopDownPlan,
    "haar": HaarPlan,
    "tree": TreePlan,
    "doubling": DoublingPlan,
}

FEW_SERIES = 100
"""Correlated noise takes work that grows with the ticks, for each series: it is offered up to so many."""

PREDICTED_TICKS = 2**20
"""Errors are predicted from at most so many ticks, evenly spaced over the horizon; of an open one, from the first."""

PREDICTED_WINDOWS = 128
"""Those of windows from so many: both ends of each are looked at by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one query may spend: a rho and a bad mass, or, where the whole stream is pure, an epsilon."""

    rho: Fraction = Fraction(0)
    bad: Fraction = Fraction(0)
    epsilon: Fraction = Fraction(0)

    @property
    def pure(self) -> bool:
        """Whether it is a share of a pure epsilon."""
        return self.epsilon > 0

    def target(self, *, series: int = 1, magnitude: int = 1) -> dict[str, Fraction]:
        """The loss per unit of one series, for an event that moves so many series by so much."""
        if self.pure:
            return {"epsilon": self.epsilon / (series * magnitude)}
        return {"rho": self.rho / (series * magnitude**2)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """Half-widths around the truth, predicted before any data, over the ticks of the run."""

    coverage: float
    """The chance that the truth lies within the half-width at a tick."""

    typical: float
    """The root of the mean square over ticks."""

    largest: float
    """At the worst tick."""

    @property
    def often(self) -> str:
        """How often it holds, and the largest half-width where a person would tell it from the typical one."""
        chance = Fraction(self.coverage).limit_denominator(1000)
        worst = f" ({number_text(self.largest)} at the worst tick)" if self.largest > 1.02 * self.typical else ""
        return f"{chance.numerator} times out of {chance.denominator}{worst}"

    @classmethod
    def of(cls, halves: NDArray[np.float64], coverage: float) -> "ExpectedError":
        """The typical and the largest of some half-widths."""
        return cls(coverage=coverage, typical=float(np.sqrt((halves**2).mean())), largest=float(halves.max()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A calibrated mechanism and what it is expected to do."""

    name: str
    """What it is called in plans."""

    mechanism: Any
    expected_error: ExpectedError
    pure: bool
    note: str = ""
    """What to know about it, such as a bias."""

    noise: str = ""
    """The noise in words, where it is not that of one plan."""

    selectable: bool = True
    """Whether a plan may choose it by itself: its promise is that of streams, and its memory fits."""

    memory: int | None = None
    """About how many bytes it takes, where the query bounds them."""

    excluded: str = ""
    """Why a plan may not choose it, where there is more to say."""

    instead: str = ""
    """In words: what else was weighed, how it errs, what it cuts off and how to ask for it."""

    @property
    def in_period(self) -> Any:
        """What runs in the first period, where its mechanism begins anew with each; else the mechanism."""
        made = self.mechanism
        return made.under(made.first_cap) if isinstance(made, EachPeriod) else made


def noise_plans(share: Share, series: int, *, is_open: bool) -> Iterator[PlanMaker]:
    """The noise plans that a share may be spent on."""
    if is_open:
        # Their horizon is the open one.
        yield lambda *, horizon, **loss: (TopDownPlan if share.pure else HaarPlan).open(**loss)  # noqa: ARG005
        yield DoublingPlan.calibrated
        return
    for kind in (LAPLACE_PLANS if share.pure else GAUSSIAN_PLANS).values():
        yield kind.calibrated
    if not share.pure and series <= FEW_SERIES:
        yield ToeplitzPlan.calibrated


def predict_error(plan: NoisePlan, coverage: float, scale: float = 1.0, *, window: int | None = None) -> ExpectedError:
    """What the plan's variances say about the error of its releases, or of what so many releases added."""
    variances = release_variances(plan) if window is None else _window_variances(_bare(plan), window)
    rounding = 1 / 12 if plan.shift else 0
    quantile = _quantile(plan, coverage, window)
    return ExpectedError(
        coverage=coverage,
        typical=scale * quantile * math.sqrt(variances.mean + rounding),
        largest=scale * quantile * math.sqrt(variances.largest + rounding),
    )


def _quantile(plan: NoisePlan, coverage: float, window: int | None = None) -> float:
    """How many standard deviations hold the noise with this chance: of a normal law, or of a middle release's sum."""
    if not is_pure(plan):
        return normal_quantile(coverage)
    middle = max(1, min(plan.horizon, PREDICTED_TICKS) * 2 // 3)
    weights = difference_weights(plan, 0 if window is None else max(0, middle - window), middle)
    scales = [abs(weight) * math.sqrt(plan.noises[level].variance / 2) for (level, _), weight in weights.items()]
    return laplace_sum_quantile(scales, coverage) / math.sqrt(2 * sum(scale**2 for scale in scales))


@dataclass(frozen=True, slots=True)
class Variances:
    """What is asked of the variances of all releases."""

    mean: float
    largest: float
    quietest_tick: int
    loudest_tick: int

    @classmethod
    def of(cls, ticks: NDArray[np.int64], profile: NDArray[np.float64]) -> "Variances":
        """Those at some ticks."""
        quietest, loudest = int(profile.argmin()), int(profile.argmax())
        return cls(float(profile.mean()), float(profile[loudest]), int(ticks[quietest]), int(ticks[loudest]))


def release_variances(plan: Any) -> Variances:
    """Of the releases of a noise plan, of at most `PREDICTED_TICKS` of them; a plan is looked at once in a process."""
    return _release_variances(_bare(plan))


def _bare(plan: Any) -> Any:
    """A copy, so that nothing is remembered of what a plan that runs keeps for itself."""
    return replace(plan)


@lru_cache(maxsize=1024)
def _release_variances(plan: Any) -> Variances:
    last = PREDICTED_TICKS if plan.horizon >= OPEN_HORIZON else plan.horizon
    ticks = np.arange(1, last + 1, -(-last // PREDICTED_TICKS))
    return Variances.of(ticks, _bare(plan).variance_profile(ticks))


@lru_cache(maxsize=1024)
def _window_variances(plan: Any, window: int) -> Variances:
    """Of windows that end at some ticks, spread over all as multiples of the golden ratio are."""
    last = min(plan.horizon, PREDICTED_TICKS)
    spread = np.arange(1, PREDICTED_WINDOWS + 1) * ((math.sqrt(5) - 1) / 2) % 1
    ends = 1 + (np.arange(last) if last <= PREDICTED_WINDOWS else np.unique((last * spread).astype(np.int64)))
    own: NoisePlan = _bare(plan)
    variances = [float(noise.variance) for noise in own.noises]

    def variance(start: int, end: int) -> float:
        if isinstance(own, OwnVariance):
            return float(own.difference_variance(start, end))
        weights = difference_weights(own, start, end)
        # Whole squares over a power of two: floats for a prediction, as exact fractions would take most of the time.
        return sum(float(weight**2) * variances[level] for (level, _), weight in weights.items()) / 4.0**own.shift

    return Variances.of(ends, np.array([variance(max(0, end - window), end) for end in ends.tolist()]))


def number_text(value: float) -> str:
    """Three digits, or whole numbers with commas where these have more."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def mebibytes(size: int) -> str:
    """A size as a person reads it."""
    number = size / 2**20
    return f"{number:.3g} MiB" if number < 1000 else f"{number:,.0f} MiB"
