"""From a stream's queries, budget and horizon to mechanisms, with the promise and the error, before any data.

The budget is split in one of two ways, whichever has the smaller errors:

* *Gaussian noise.* Half of delta is set aside for labels that only one event holds, if any query has an unknown domain;
  what is left is turned into rho by integer orders; rho, and the half of delta, are shared by the queries' weights.
* *Laplace noise.* Epsilon is shared by the queries' weights; for streams without unknown labels, and the only way where
  no delta is allowed.

The losses are then composed from the mechanisms as they are, rounded, and must price within the budget: a plan that
breaks its budget is never returned. One that leaves much of it over is looked for again with a larger epsilon to split:
of users, alarms, trends and sketches have a part of epsilon and of delta that counters do not share, and all losses
together cost less than these parts add up to. What a plan costs is what its mechanisms lose, whatever was split.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from pianissimo.budget import Budget
from pianissimo.errors import ParameterError
from pianissimo.loss.composition import Price, price
from pianissimo.loss.losses import Unit, float_up
from pianissimo.mechanism import BySlot, in_shards
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.queries import Query
from pianissimo.queries.shared.expected import OPEN_HORIZON, Candidate, Share
from pianissimo.queries.shared.of_users import UserSetting, weighed_ways
from pianissimo.stream.calendar import CalendarPeriods
from pianissimo.stream.stream_plan import QueryPlan, StreamPlan, distinct_mechanisms, expected_sizes
from pianissimo.unit import EvenPeriods, Periods, User

if TYPE_CHECKING:
    from pianissimo.stream.stream import Stream

_NEARLY_ALL = Fraction(999, 1000)
"""Of delta, where only the distance of the drawn noise needs the rest."""

_PURE_SLACK = 1e-12
"""A pure plan's delta, from the distance of its noise, is far below this."""

_NEARLY_SPENT = 0.98
"""Of epsilon: a plan that costs so much of it is not looked for again."""

_MOST_TRIES = 5

_MOST_GROWN = 4
"""So many times as much is split at the next try at most: at a large delta a plan may cost no epsilon at all."""


def make_plan(stream: "Stream") -> StreamPlan:
    """The best plan for a stream's queries within its budget."""
    stream.budget.warn(*expected_sizes(stream.queries))
    plan = _plan_splitting(stream, stream.budget)
    if stream.budget.pure or not isinstance(stream.unit, User):
        return plan
    return _spending_what_is_left(stream, plan)


def _spending_what_is_left(stream: "Stream", plan: StreamPlan) -> StreamPlan:
    """The plan, or one with smaller errors that costs more of the budget, and no more than the budget.

    What a plan costs is nearly in proportion to the epsilon that was split: a few steps find it, from both sides.
    """
    allowed = float(stream.budget.epsilon)
    split, too_large = allowed, math.inf
    for _ in range(_MOST_TRIES):
        if plan.price.epsilon >= _NEARLY_SPENT * allowed:
            break
        wanted = split * (1 + _NEARLY_SPENT) / 2 * allowed / max(plan.price.epsilon, allowed / _MOST_GROWN)
        asked = wanted if wanted < too_large else (split + too_large) / 2
        try:
            found = _plan_splitting(stream, Budget(asked, stream.budget.delta))
        except ParameterError:
            too_large = asked
            continue
        if _score_of(found.queries) > _score_of(plan.queries):
            break
        plan, split = found, asked
    return plan


def _score_of(chosen: Sequence[QueryPlan | Candidate]) -> float:
    return sum(math.log(each.expected_error.typical) for each in chosen)


def _plan_splitting(stream: "Stream", split: Budget) -> StreamPlan:
    """The best plan among those that a budget can be split into, which must price within the stream's."""
    budget, queries, weights = stream.budget, stream.queries, _relative_weights(stream.queries)
    weighed: dict[int, Candidate] = {}
    unit, tick = cast(Unit | User, stream.unit), stream.tick
    ticks = OPEN_HORIZON if stream.horizon is None else stream.horizon
    if isinstance(unit, User):
        periods = periods_of(stream, unit)
        if periods is not None and unit.reset:
            _check_per(stream.queries, periods.longest)
        period = unit.period(tick) if periods is None else periods.longest
        begun_anew = periods if unit.begins_anew else None
        setting = UserSetting(user=unit, ticks=ticks, period=period, coverage=stream.coverage, periods=begun_anew)
        queries, ways, weighed = weighed_ways(queries, weights, split, setting)
    else:
        ways = _ways(queries, split, stream.horizon, stream.coverage)
    if stream.shards > 1:
        if isinstance(unit, User) and unit.begins_anew:
            raise ParameterError(
                "totals must run on where a stream of users has shards, got ones that begin anew with each period: "
                "over shards these are not there yet; use reset=False, or shards = 1"
            )
        ways = _over_shards(queries, ways, of_users=isinstance(unit, User))
    best = min(ways, key=_score)
    plans = []
    for place, (query, share) in enumerate(zip(queries, weights, strict=True)):
        options = [option for way in ways for option in way[place]]
        chosen = _first_selectable(best[place])
        others = [each for each in options if each is not chosen and not _is_same(query, each, chosen)]
        others += [weighed[place]] if place in weighed else []
        others.sort(key=lambda each: each.expected_error.typical)
        plans.append(QueryPlan(query=query, share=share, chosen=chosen, alternatives=tuple(others)))
    cost = price([mechanism.guarantee.loss for mechanism in distinct_mechanisms(plans)], Fraction(budget.delta))
    _check_within(cost, budget)
    return StreamPlan(
        name=stream.name,
        unit=unit,
        budget=budget,
        horizon=ticks,
        coverage=stream.coverage,
        tick=tick,
        queries=tuple(plans),
        price=cost,
        calendar=stream.calendar,
        shards=stream.shards,
    )


def _check_within(cost: Price, budget: Budget) -> None:
    """Never a plan above its budget. The shares are cut so that only the distance of drawn noise can break it."""
    allowed = _PURE_SLACK if budget.pure else float_up(Fraction(budget.delta))
    if not (cost.epsilon <= float_up(Fraction(budget.epsilon)) and cost.delta <= allowed):
        raise ParameterError(
            "epsilon must be so small, and delta so large, that the noise that can be drawn is near enough to its law, "
            f"got epsilon {float(budget.epsilon):.6g} and delta {float(budget.delta):.3g}; take a smaller epsilon"
        )


def _is_same(query: Query, one: Candidate, other: Candidate) -> bool:
    """Whether both are one and the same: what is watched tick by tick does not depend on how the rest is split."""
    return query.watched and one.mechanism == other.mechanism


def periods_of(stream: "Stream", user: User) -> Periods | None:
    """Which ticks are one period, where a user is hidden within one."""
    if user.within is None:
        return None
    if not isinstance(user.starts, str):
        return EvenPeriods(user.period(stream.tick) or 1, user.starts or 1)
    if stream.calendar is None:
        raise ParameterError(
            "origin and tick must be given where periods start at a time of day, got none, for example "
            'tick="1h" and origin="2026-01-01"'
        )
    return CalendarPeriods.of(stream.calendar, user.within, user.starts, stream.horizon)


def _check_per(queries: Sequence[Query], longest: int) -> None:
    for query in queries:
        if query.per is not None and query.per > longest:
            raise ParameterError(
                f"per of query {query.name!r} must be at most a period, {longest} ticks, got {query.per} ticks: what "
                "is counted begins anew with each period; take a shorter per, or let totals run on (reset=False)"
            )


def _by_name(mechanism: Any) -> Any:
    """What gathers without looking at a state, which is elsewhere."""
    return mechanism.by_name() if isinstance(mechanism, BySlot) else mechanism


Way = list[list[Candidate]]
"""For each query its candidates, best first, under one split of the budget."""


def _over_shards(queries: Sequence[Query], ways: list[Way], *, of_users: bool) -> list[Way]:
    """The ways in which each query has a mechanism whose state shards can have.

    Where a question about events has none, it is one number or a few, and the driver has its state; of users it is not
    there yet.
    """

    def kept_in(options: list[Candidate]) -> list[Candidate]:
        options = [replace(each, mechanism=_by_name(each.mechanism)) for each in options]
        if not of_users and not any(each.selectable and in_shards(each.mechanism) for each in options):
            return options
        return [each if in_shards(each.mechanism) else replace(each, selectable=False) for each in options]

    kept = [[kept_in(options) for options in way] for way in ways]
    found = [way for way in kept if all(any(each.selectable for each in options) for options in way)]
    if not found:
        able = [[any(each.selectable for each in options) for options in way] for way in kept]
        query = next(query for place, query in enumerate(queries) if not any(way[place] for way in able))
        raise ParameterError(
            f"query {query.name!r} must be a count, sum, mean, histogram or top list, or the number of users, where a "
            f"stream of users has shards, got {query.called}: over shards it is not there yet; use shards = 1"
        )
    return found


def _ways(queries: Sequence[Query], budget: Budget, horizon: int | None, coverage: float) -> list[Way]:
    counted = [query for query in queries if not query.watched]
    shares = [] if budget.pure or not counted else [_gaussian_shares(queries, budget, horizon)]
    if not any(query.needs_delta for query in (queries if budget.pure else counted)):
        shares.append(_pure_shares(queries, budget))
    ways, problems = [], []
    for split in shares:
        try:
            pairs = zip(queries, split, strict=True)
            ways.append([candidates(query, share, horizon, coverage) for query, share in pairs])
        except ParameterError as error:
            problems.append(error)
    if not ways:
        raise (
            problems[0]
            if problems
            else ParameterError(
                "unknown labels must have a delta to be shown with, got a budget without; allow a delta such as 1e-9"
            )
        )
    return ways


def candidates(query: Query, share: Share, horizon: int | None, coverage: float) -> list[Candidate]:
    """Every mechanism that answers `query` within `share`, best first: by the typical error over the ticks."""
    releases = OPEN_HORIZON if horizon is None else horizon // query.every
    found, problems = [], []
    for make in query.makers(share, releases, coverage, is_open=horizon is None):
        try:
            found.append(make())
        except ParameterError as error:
            problems.append(str(error))
    if not any(candidate.selectable for candidate in found):
        # What would have fitted with more memory says more than what does not fit at all: the least of it.
        kept_out = [candidate for candidate in found if candidate.excluded and candidate.memory is not None]
        problems = [each.excluded for each in sorted(kept_out, key=lambda each: each.memory or 0)] + problems
        reason = problems[0] if problems else "unknown labels need a delta, and any number of keys a known domain"
        raise ParameterError(f"query {query.name!r} must have a mechanism that fits its budget, got none: {reason}")
    return sorted(found, key=lambda candidate: candidate.expected_error.typical)


def _score(way: Way) -> float:
    return _score_of([_first_selectable(options) for options in way])


def _first_selectable(options: Sequence[Candidate]) -> Candidate:
    return next(option for option in options if option.selectable)


def _relative_weights(queries: Sequence[Query]) -> list[Fraction]:
    weights = [Fraction(query.weight) for query in queries]
    return [weight / sum(weights) for weight in weights]


def _pure_shares(queries: Sequence[Query], budget: Budget) -> list[Share]:
    """Shares of epsilon; nearly all of delta is for keys of one event alone, where any are shown."""
    weights = _relative_weights(queries)
    bad = _bad_masses(queries, weights, Fraction(budget.delta) * _NEARLY_ALL)
    epsilon = Fraction(budget.epsilon)
    return [Share(epsilon=epsilon * weight, bad=own) for weight, own in zip(weights, bad, strict=True)]


def _bad_masses(queries: Sequence[Query], weights: Sequence[Fraction], set_aside: Fraction) -> list[Fraction]:
    """What is set aside of delta, shared by the weights of those that may show labels that nobody listed."""
    unknown = [weight if query.needs_delta else Fraction(0) for query, weight in zip(queries, weights, strict=True)]
    return [set_aside * each / (sum(unknown) or 1) for each in unknown]


def _gaussian_shares(queries: Sequence[Query], budget: Budget, horizon: int | None) -> list[Share]:
    """Shares of rho; what is watched tick by tick has a share of epsilon, whose pure loss adds to that of all others.

    As rho it would be worth less: a share of 1/2 of epsilon = 1 is half of epsilon, and 1/2 of rho is .17 of it.
    """
    weights = _relative_weights(queries)
    set_aside = Fraction(budget.delta) / 2 if any(query.needs_delta for query in queries) else Fraction(0)
    bad = _bad_masses(queries, weights, set_aside)
    watched = sum((weight for query, weight in zip(queries, weights, strict=True) if query.watched), Fraction(0))
    epsilon = Fraction(budget.epsilon)
    # No plan has more than four nodes a tick and series; see `noise.plan.plan_loss`.
    ticks = OPEN_HORIZON if horizon is None else horizon
    distance = 4 * (ticks + 1) * sum(query.series for query in queries) * DRAW_DISTANCE
    rho = budget.rho(bad=set_aside, distance=distance, beside=epsilon * watched)
    return [
        Share(epsilon=epsilon * weight, bad=own) if query.watched else Share(rho=rho * weight / (1 - watched), bad=own)
        for query, weight, own in zip(queries, weights, bad, strict=True)
    ]
