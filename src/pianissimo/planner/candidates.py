"""For one query, every mechanism that fits, calibrated to its share of the budget."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from pianissimo.counting import Counter, HaarPlan, TreePlan
from pianissimo.errors import ParameterError
from pianissimo.histograms import KnownHistogram, UnknownHistogram
from pianissimo.labels import Domain
from pianissimo.noise_plan import NoisePlan
from pianissimo.queries import Count, Histogram, Query

QueryMechanism = Counter | KnownHistogram | UnknownHistogram

_PLANS: tuple[Callable[..., NoisePlan], ...] = (HaarPlan.calibrated, TreePlan.calibrated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one query may spend."""

    rho: Fraction
    """Of the stream's zCDP."""

    bad: Fraction
    """Of the stream's delta, for labels that only one event holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """Half-widths around the truth, predicted before any data, over the ticks of the run."""

    coverage: float
    """The chance that the truth lies within the half-width at a tick."""

    typical: float
    """The root of the mean square over ticks."""

    largest: float
    """At the worst tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A calibrated mechanism and what it is expected to do."""

    mechanism: QueryMechanism
    expected_error: ExpectedError

    @property
    def name(self) -> str:
        """What it is called in plans."""
        return f"{type(self.mechanism).__name__} over {self.mechanism.plan.name}"


def candidates(query: Query, share: Share, horizon: int, coverage: float) -> list[Candidate]:
    """Every mechanism that answers `query` within `share`, best first: by the typical error over the ticks.

    >>> share = Share(rho=Fraction(1, 2), bad=Fraction(0))
    >>> [candidate.name for candidate in candidates(Count("purchases"), share, horizon=1440, coverage=0.95)]
    ['Counter over haar', 'Counter over base-3 tree']
    """
    found, problems = [], []
    for make_plan in _PLANS:
        try:
            mechanism = _mechanism(query, share, horizon, make_plan)
        except ParameterError as error:
            problems.append(str(error))
            continue
        found.append(Candidate(mechanism=mechanism, expected_error=predict_error(mechanism.plan, coverage)))
    if not found:
        raise ParameterError(
            f"query {query.name!r} must have a mechanism that fits its budget, got none: {problems[0]}"
        )
    return sorted(found, key=lambda candidate: candidate.expected_error.typical)


def predict_error(plan: NoisePlan, coverage: float) -> ExpectedError:
    """What the plan's variances say about the error of its releases.

    >>> round(predict_error(HaarPlan.calibrated(horizon=4096, rho=0.5), coverage=0.95).typical, 1)
    8.1
    """
    profile = plan.variance_profile() + (1 / 12 if plan.shift else 0)
    quantile = NormalDist().inv_cdf((1 + coverage) / 2)
    return ExpectedError(
        coverage=coverage,
        typical=quantile * float(np.sqrt(profile.mean())),
        largest=quantile * float(np.sqrt(profile.max())),
    )


def _mechanism(query: Query, share: Share, horizon: int, make_plan: Callable[..., NoisePlan]) -> QueryMechanism:
    match query:
        case Count():
            return Counter(plan=make_plan(horizon=horizon, rho=share.rho))
        case Histogram(domain=Domain() as domain, max_keys_per_event=keys):
            # No more labels of an event can count than the domain has.
            moved = min(keys, len(domain))
            return KnownHistogram(
                plan=make_plan(horizon=horizon, rho=share.rho / moved), domain=domain, max_keys_per_event=keys
            )
        case Histogram(max_keys_per_event=keys, remember=remember):
            return UnknownHistogram(
                plan=make_plan(horizon=horizon, rho=share.rho / keys),
                delta=share.bad / keys,
                max_keys_per_event=keys,
                remember=remember,
            )
