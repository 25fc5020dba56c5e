"""For one query, every mechanism that fits, calibrated to its share of the budget.

Top lists from selections: trees of one-shot answers, and labels that are chosen anew only when somebody leads.

Unlike sorted histograms they cost by k and not by the labels an event holds, so they fit events with any number of
labels. What they lose besides noise depends on the data (labels missing from a cell's answer, leaders not seen in
time); the expected error allows for it by the bounds of the mechanisms' utility theorems, which are wide.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np

from pianissimo.counting import (
    Counter,
    Cut,
    KnownHistogram,
    MetaHistogram,
    MetaTopList,
    Summer,
    TopList,
    UnknownHistogram,
)
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.noise import (
    DoublingPlan,
    HaarPlan,
    HaarSkipPlan,
    SplinePlan,
    ToeplitzPlan,
    TopDownPlan,
    TreePlan,
    best_base,
)
from pianissimo.noise.plan import NoisePlan, is_pure
from pianissimo.noise.tree import digits_of
from pianissimo.queries import (
    Alarm,
    Count,
    Distinct,
    HeavyHitters,
    Histogram,
    MaxFrequency,
    Quantiles,
    Query,
    Sum,
    TopK,
    Trending,
)
from pianissimo.selection import KnownGumb, SparseGumbel, UnkGumb
from pianissimo.stream.expected import OPEN_HORIZON, Candidate, ExpectedError, Share, predict_error
from pianissimo.stream.heavy_plans import SKETCH_MAKERS, exact_counts

PlanMaker = Callable[..., NoisePlan]

GAUSSIAN_PLANS: dict[str, PlanMaker] = {
    "spline": SplinePlan.calibrated,
    "haar + skipping": HaarSkipPlan.calibrated,
    "haar": HaarPlan.calibrated,
    "tree": TreePlan.calibrated,
    "doubling": DoublingPlan.calibrated,
}
LAPLACE_PLANS: dict[str, PlanMaker] = {
    "top-down": TopDownPlan.calibrated,
    "haar": HaarPlan.calibrated,
    "tree": TreePlan.calibrated,
    "doubling": DoublingPlan.calibrated,
}
FEW_SERIES = 100
"""Correlated noise takes work that grows with the ticks, for each series: it is offered up to so many."""

OPEN_GAUSSIAN_PLANS: dict[str, PlanMaker] = {
    "open haar": lambda *, horizon, rho: HaarPlan.open(rho=rho),  # noqa: ARG005
    "doubling": DoublingPlan.calibrated,
}
OPEN_LAPLACE_PLANS: dict[str, PlanMaker] = {
    "open top-down": lambda *, horizon, epsilon: TopDownPlan.open(epsilon=epsilon),  # noqa: ARG005
    "doubling": DoublingPlan.calibrated,
}


def candidates(query: Query, share: Share, horizon: int | None, coverage: float) -> list[Candidate]:
    """Every mechanism that answers `query` within `share`, best first: by the typical error over the ticks.

    >>> share = Share(rho=Fraction(1, 2))
    >>> [each.name for each in candidates(Count("purchases"), share, horizon=4096, coverage=0.95)][:2]
    ['Counter over toeplitz', 'Counter over spline']
    """
    releases = OPEN_HORIZON if horizon is None else horizon // query.every
    if releases < 1:
        raise ParameterError(
            f"query {query.name!r} must be published within the horizon, got every {query.every} ticks"
        )
    found, problems = [], []
    for make in _makers(query, share, open_horizon=horizon is None):
        try:
            found.append(make(query, share, releases, coverage))
        except ParameterError as error:
            problems.append(str(error))
    if not any(candidate.selectable for candidate in found):
        # What would have fitted with more memory says more than what does not fit at all: the least of it.
        kept_out = [candidate for candidate in found if candidate.excluded and candidate.memory is not None]
        problems = [each.excluded for each in sorted(kept_out, key=lambda each: each.memory or 0)] + problems
        reason = problems[0] if problems else "unknown labels need a delta, and any number of keys a known domain"
        raise ParameterError(f"query {query.name!r} must have a mechanism that fits its budget, got none: {reason}")
    return sorted(found, key=lambda candidate: candidate.expected_error.typical)


CandidateMaker = Callable[[Any, Share, int, float], Candidate]


def _makers(query: Query, share: Share, *, open_horizon: bool) -> Iterator[CandidateMaker]:
    if share.pure:
        plans = OPEN_LAPLACE_PLANS if open_horizon else LAPLACE_PLANS
    else:
        plans = OPEN_GAUSSIAN_PLANS if open_horizon else GAUSSIAN_PLANS
    if isinstance(query, HeavyHitters):
        yield from SKETCH_MAKERS
        yield exact_counts(map(_over_plan, plans.values()))
        return
    for make_plan in plans.values():
        yield _over_plan(make_plan)
    if not share.pure and not open_horizon and _series_of(query) <= FEW_SERIES:
        yield _over_plan(ToeplitzPlan.calibrated)
    if isinstance(query, TopK) and not share.pure and not open_horizon:
        yield meta_top_list
        yield sparse_top_list


def _series_of(query: Query) -> float:
    if isinstance(query, Histogram | TopK):
        return len(query.domain) if isinstance(query.domain, Domain) else math.inf
    return 1


def _over_plan(make_plan: PlanMaker) -> CandidateMaker:
    def make(query: Query, share: Share, releases: int, coverage: float) -> Candidate:
        mechanism, plan = _plan_mechanism(query, share, releases, make_plan)
        scale = float(query.exact_grid) if isinstance(query, Sum) else 1.0
        return Candidate(
            name=f"{type(mechanism).__name__} over {plan.name}",
            mechanism=mechanism,
            expected_error=predict_error(plan, coverage, scale),
            pure=is_pure(plan),
        )

    return make


def _plan_mechanism(query: Query, share: Share, releases: int, make_plan: PlanMaker) -> tuple[Any, NoisePlan]:
    def plan_for(**sizes: int) -> NoisePlan:
        return make_plan(horizon=releases, **share.target(**sizes))

    history = HISTORY
    match query:
        case MaxFrequency() | Quantiles() | Distinct() | Alarm() | Trending():
            raise ParameterError(f"{query.kind} must be asked of users, got single events; give unit=user('column')")
        case Count():
            plan = plan_for()
            return Counter(plan=plan, history=history), plan
        case Sum(steps=(low, high)):
            plan = plan_for(magnitude=max(abs(low), abs(high)))
            return Summer(plan=plan, low=low, high=high, history=history), plan
        case Histogram(domain=Domain() as domain, max_keys_per_event=keys):
            # No more labels of an event can count than the domain has.
            plan = plan_for(series=min(keys, len(domain)))
            return KnownHistogram(plan=plan, domain=domain, max_keys_per_event=keys, history=history), plan
        case TopK(domain=Domain() as domain, max_keys_per_event=bound, k=k):
            # Any number of labels is at most all of the domain.
            keys = len(domain) if bound is None else bound
            plan = plan_for(series=min(keys, len(domain)))
            histogram = KnownHistogram(plan=plan, domain=domain, max_keys_per_event=keys, history=history)
            return TopList(histogram=histogram, k=k), plan
        case Histogram(max_keys_per_event=keys) | HeavyHitters(max_keys_per_event=keys):
            return _unknown(query, share, releases, make_plan, keys)
        case TopK(max_keys_per_event=int(keys), k=k, domain=None):
            unknown, plan = _unknown(query, share, releases, make_plan, keys)
            return TopList(histogram=unknown, k=k), plan
    raise ParameterError("a histogram of unknown labels must bound the labels of an event, got any number")


def _unknown(
    query: Histogram | TopK | HeavyHitters, share: Share, releases: int, make_plan: PlanMaker, keys: int
) -> tuple[UnknownHistogram, NoisePlan]:
    if share.pure or share.bad == 0:
        raise ParameterError("unknown labels must have a delta, got a pure budget")
    other = isinstance(query, Histogram) and query.other
    # A total behind the rest is one more series, moved by at most `keys`: it gets a quarter of the share.
    own = Share(rho=share.rho * Fraction(3, 4), bad=share.bad) if other else share
    plan = make_plan(horizon=releases, **own.target(series=keys))
    rest_plan = make_plan(horizon=releases, rho=share.rho / 4 / keys**2) if other else None
    constant = isinstance(query, Histogram) and query.constant_threshold
    mechanism = UnknownHistogram(
        plan=plan,
        delta=share.bad / keys,
        max_keys_per_event=keys,
        remember=query.remember if isinstance(query, Histogram) else False,
        rest_plan=rest_plan,
        cut=Cut.CONSTANT if constant else Cut.PER_TICK,
        history=HISTORY,
    )
    return mechanism, plan


HISTORY = 1440
"""How many past releases a stream keeps, so that intervals can be answered: a day of minutes."""

SWITCHES = 5
"""How often a sparse top list may choose anew."""

CANDIDATES = 10
"""How many times k labels an answer about unknown labels may look at."""

MOST_RELEASES = 2**20


def meta_top_list(query: TopK, share: Share, releases: int, coverage: float) -> Candidate:
    """A tree of one-shot selections."""
    if not releases <= MOST_RELEASES:
        raise ParameterError(f"a tree of answers must have at most {MOST_RELEASES} releases, got {releases}")
    base = best_base(releases)
    levels = len(digits_of(releases, base))
    answer, labels = _answer(query, share, levels)
    mechanism = MetaTopList(histogram=MetaHistogram(base=base, horizon=releases, answer=answer), k=query.k)
    sums = TreePlan.calibrated(horizon=releases, rho=Fraction(levels, 2), base=base).variance_profile()
    quantile = NormalDist().inv_cdf((1 + coverage) / 2)
    # A label is missed in a cell if it is behind there by no more than what the race may get wrong.
    missed = float(answer.scale) * math.log(labels / (1 - coverage))
    halves = quantile * np.sqrt(sums * float(answer.variance)) + missed * np.sqrt(sums)
    return Candidate(
        name=f"MetaTopList of {type(answer).__name__}",
        mechanism=mechanism,
        expected_error=ExpectedError(
            coverage=coverage, typical=float(np.sqrt((halves**2).mean())), largest=float(halves.max())
        ),
        pure=False,
        note="biased low: a label missing from a cell's answer loses that cell",
    )


def _answer(query: TopK, share: Share, levels: int) -> tuple[KnownGumb | UnkGumb, int]:
    rho = share.rho / levels
    if isinstance(query.domain, Domain):
        answer = KnownGumb.calibrated(
            domain=query.domain, k=query.k, rho=rho, max_keys_per_event=query.max_keys_per_event
        )
        return answer, len(query.domain)
    if share.bad == 0:
        raise ParameterError("unknown labels must have a delta, got a budget without")
    kbar = CANDIDATES * query.k
    moved = kbar if query.max_keys_per_event is None else min(kbar, query.max_keys_per_event)
    unknown = UnkGumb.calibrated(
        k=query.k,
        kbar=kbar,
        rho=rho,
        delta=share.bad / (levels * moved),
        max_keys_per_event=query.max_keys_per_event,
    )
    return unknown, kbar


def sparse_top_list(query: TopK, share: Share, releases: int, coverage: float) -> Candidate:
    """Labels chosen by a race, and anew when a test says that somebody leads."""
    if not isinstance(query.domain, Domain):
        raise ParameterError("a sparse top list must know its labels, got an unknown domain")
    domain = query.domain

    def made(eta: int) -> SparseGumbel:
        return SparseGumbel.calibrated(
            domain=domain,
            k=query.k,
            switches=SWITCHES,
            eta=eta,
            rho=share.rho,
            make_plan=lambda rho: TreePlan.calibrated(horizon=releases, rho=rho),
            max_keys_per_event=query.max_keys_per_event,
        )

    draft = made(0)
    noise = predict_error(draft.plan, coverage)
    # Cardoso and Rogers 2022, Theorem 5: the lead of a new leader that is surely seen, and what is off until then.
    selection = float(draft.race_scale) * math.log(3 * len(domain) / (1 - coverage))
    tests = 1.5 * float(draft.test_scale) * math.log(6 * len(domain) * releases / (1 - coverage))
    eta = math.ceil(selection + noise.largest + tests)
    extra = selection + 2 * noise.largest + 2 * tests
    return Candidate(
        name="SparseGumbel",
        mechanism=made(eta),
        expected_error=ExpectedError(coverage=coverage, typical=noise.typical + extra, largest=noise.largest + extra),
        pure=False,
        note=f"at most {SWITCHES} changes of the list; for streams that do not react to the releases",
        selectable=False,
    )
