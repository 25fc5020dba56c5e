"""Plans for streams of users: one cap for all statistics of events, a cap of their own for distinct values.

All queries about events (counts, sums, histograms, top lists, largest counts, quantiles) share the events that a cap
lets through, so they share one cap and one search for it. Distinct values are capped by their own number, so each such
query has a search of its own. Where a cap is fixed nothing is searched for.

* *Epsilon.* A share goes to the searches, evenly. The rest is for the counters: turned into rho where there is a delta
  (beside several searches, what is left of all of rho where that is more), as it is where there is none; split by the
  queries' weights. Both ways are tried where both are allowed.
* *Which cap.* If `max_events_per_user` is given, the fixed cap is compared with the one that follows the stream, where
  that would stand if some user had so many events: the smaller error is taken. What a fixed cap cuts off stays untold.
* *Periods.* Where statistics begin anew with each period, one mechanism runs in each, planned for the longest of them.
  Its cap is the given one, or follows from period to period.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import polars as pl

from pianissimo.budget import Budget
from pianissimo.errors import ParameterError
from pianissimo.mechanism import Release
from pianissimo.noise import DoublingPlan, ToeplitzPlan
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.queries.shared.columns import exactly
from pianissimo.queries.shared.expected import (
    FEW_SERIES,
    GAUSSIAN_PLANS,
    LAPLACE_PLANS,
    OPEN_HORIZON,
    Candidate,
    predict_error,
)
from pianissimo.queries.shared.query import Part, Query, UserMechanism, parts_of
from pianissimo.queries.shared.released_tables import bars_table, with_cap
from pianissimo.queries.shared.watching import monitor_candidates
from pianissimo.unit import Periods, User
from pianissimo.users import (
    ABOVE_CAP,
    ESTIMATOR_SHARE,
    AdaptiveCap,
    Cap,
    EachPeriod,
    FixedCap,
    OctaveCap,
    PeriodCap,
    UserRelease,
)

REACHES = "bars reach over what the cap cuts off"
"""What a plan says where nothing is missing in an error bar."""

FEW_TICKS = 4096
"""Correlated noise takes work that grows with series and ticks, and again at every restart: up to so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """What searches for caps and counters may spend."""

    search: Fraction
    """The epsilon of each search; 0 where the cap is fixed."""

    rho: Fraction | None = None
    epsilon: Fraction | None = None
    bad: Fraction = Fraction(0)
    """For labels that nobody listed, over what such queries have of the budget: times a share, what it may use."""

    def counters(self, share: Fraction) -> dict[str, Fraction]:
        """A share of what the counters may spend, by its name."""
        return {"rho": self.rho * share} if self.rho is not None else {"epsilon": (self.epsilon or Fraction(0)) * share}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSetting:
    """What holds for all queries of a stream of users."""

    user: User
    ticks: int
    """Of the whole run."""

    period: int | None
    """How many ticks a period has at most; None where a user is hidden for the whole run."""

    coverage: float
    periods: Periods | None = None
    """Where all begins anew with each period: which ticks are one."""

    @property
    def planned(self) -> int:
        """For how many ticks counters are planned: of the run, or of the longest period where all begins anew."""
        return self.ticks if self.periods is None else min(self.ticks, self.periods.longest)

    def each_period(self, inner: Any, follow: OctaveCap | None = None) -> Any:
        """What runs in one period, begun anew with each; as it is where totals run on."""
        if self.periods is None:
            return inner
        return EachPeriod(inner=inner, periods=self.periods, horizon=self.ticks, follow=follow)


def user_ways(
    queries: Sequence[Query], weights: Sequence[Fraction], budget: Budget, setting: UserSetting
) -> list[list[list[Candidate]]]:
    """For each way to spend the budget, for each query its candidates, best first."""
    shares = {query.name: weight for query, weight in zip(queries, weights, strict=True)}
    counted = [query for query in queries if not (query.watched or query.sketched)]
    watched = [query for query in queries if query.watched]
    watching, counting = _split(budget, sum((shares[query.name] for query in watched), Fraction(0)))
    monitors: dict[str, list[Candidate]] = {}
    if watched:
        made = monitor_candidates(watched, watching, setting.ticks, setting.coverage, period=setting.period)
        monitors = {name: [_aligned(candidate, setting)] for name, candidate in made.items()}
    left = 1 - sum((shares[query.name] for query in watched), Fraction(0))
    for query in (each for each in queries if each.sketched):
        sketching, counting = _split(counting, shares[query.name] / left)
        monitors[query.name] = query.user_candidates(sketching, setting)
        left -= shares[query.name]
    if not counted:
        return [[monitors[query.name] for query in queries]]
    own = sum((shares[query.name] for query in counted), Fraction(0))
    shares = {query.name: shares[query.name] / own for query in counted}
    parts = parts_of(counted)
    unknown = sum((shares[query.name] for query in counted if query.needs_delta), Fraction(0))
    ways, following, problems = [], {}, []
    # Who comes in many periods loses much less under Gaussian noise: 26 in 365 periods of epsilon 1, and not 365.
    both = (False,) if setting.periods is not None else (False, True)
    for is_pure in (True,) if budget.pure else both:
        for cap_of in _caps(setting, parts):
            try:
                spent = _user_budget(counting, setting, parts, is_pure=is_pure, searches=cap_of(Fraction(1)))
                spent = replace(spent, bad=spent.bad / (unknown or 1))
                cap = cap_of(spent.search)
                caps = [_own_cap(part, setting) or part[0].cap_rule(cap, setting.user) for part in parts]
                made_parts = [
                    _candidates(part, spent, rule, setting, shares) for part, rule in zip(parts, caps, strict=True)
                ]
            except ParameterError as error:
                problems.append(error)
                continue
            by_name = {name: options for one in made_parts for name, options in one.items()} | monitors
            way = [by_name[query.name] for query in queries]
            if isinstance(cap, AdaptiveCap):
                following[_error_after_raises(counted, by_name, setting.coverage)] = way
            else:
                ways.append(way)
    if following:
        ways.append(following[min(following)])
    if not ways:
        raise problems[0]
    return ways


def weighed_ways(
    queries: Sequence[Query], weights: Sequence[Fraction], budget: Budget, setting: UserSetting
) -> tuple[Sequence[Query], list[list[list[Candidate]]], dict[int, Candidate]]:
    """The queries under the caps that were chosen, their ways, and for some, by their places, the other kind of cap.

    A sum may have a cap of what a user adds in place of one of her events. It is chosen where nobody else shares the
    cap of events: of no user does it cut off more than one of events with the same noise, which counts so many of her
    events and no others, and it begins at the noise of one event. Beside others it would take part of their search.
    """
    by_value = [query.under_value_cap() or query for query in queries] if _follows(setting) else queries
    places = [place for place, query in enumerate(queries) if by_value[place] is not query]
    if not places:
        return queries, user_ways(queries, weights, budget, setting), {}
    beside = [query for place, query in enumerate(queries) if place not in places]
    is_shared = any(not (each.part or each.watched or each.sketched) and each.own_units is None for each in beside)
    made = {}
    for number, asked in enumerate((queries, by_value) if is_shared else (by_value, queries)):
        try:
            made[number] = asked, user_ways(asked, weights, budget, setting)
        except ParameterError:
            if number == 1 and not made:
                raise
    (taken, ways), *others = made.values()
    weighed = {place: _weighed(other[place], found, place, setting) for other, found in others for place in places}
    return taken, ways, weighed


def _weighed(query: Query, ways: list[list[list[Candidate]]], place: int, setting: UserSetting) -> Candidate:
    """What a query would have had under the other kind of cap."""
    best = min((way[place][0] for way in ways), key=lambda each: each.expected_error.typical)
    cap = query.shown_cap(_standing(best.mechanism.cap, setting.user)[0], best.mechanism)
    return replace(best, selectable=False, instead=query.instead(cap, best.expected_error))


def _follows(setting: UserSetting) -> bool:
    """Whether a cap of value can be searched for."""
    user = setting.user
    is_running = setting.period is not None and setting.periods is None
    return user.max_events_per_user is None and user.weight is None and not is_running


def _aligned(monitor: Candidate, setting: UserSetting) -> Candidate:
    """A monitor in the periods of all other queries, also in a life that begins within one of them."""
    return replace(monitor, mechanism=setting.each_period(monitor.mechanism))


def _error_after_raises(queries: Sequence[Query], made: dict[str, list[Candidate]], coverage: float) -> float:
    """Of all queries together, in logarithms, when the cap has been raised twice.

    With each start Laplace noise grows by one over its share, and Gaussian noise by the root of that: what errs less
    at the first cap may err more at the third.
    """
    found = 0.0
    for query in queries:
        mechanism: Any = made[query.name][0].mechanism
        start = min(3, len(mechanism.cap.caps))
        plan = query.user_counters(mechanism).plan(start, mechanism.cap.caps[start - 1], 0)
        found += 0.0 if plan is None else math.log(predict_error(plan, coverage).typical)
    return found


def _split(budget: Budget, share: Fraction) -> tuple[Budget, Budget]:
    """What is for watching and what for counting: epsilon by weights, delta by halves, where there are both.

    A little less than half, so that a split of what bad mass leaves of delta, in 24 parts, covers both.
    """
    if share in (0, 1):
        return budget, budget
    epsilon, delta = Fraction(budget.epsilon), Fraction(budget.delta) * Fraction(49, 100)
    return Budget(epsilon * share, delta), Budget(epsilon * (1 - share), delta)


def _own_cap(part: Part, setting: UserSetting) -> FixedCap | None:
    """The cap that the kind of a part has by itself, if it has one."""
    units = part[0].own_units
    if units is None or setting.period is None or setting.periods is not None:
        return None if units is None else FixedCap(units=units)
    return PeriodCap(units=units, ticks=setting.period)


def _caps(setting: UserSetting, parts: Sequence[Part]) -> Iterator[Any]:
    """The rules that may hold, each as a function of the epsilon of its search."""
    user, period, units = setting.user, setting.period, setting.user.max_events_per_user
    own = [_own_cap(part, setting) for part in parts]
    if all(own):
        yield lambda _: own[0]
        return
    given = {"first": user.first_cap, "levels": user.caps}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if setting.periods is not None:
        yield lambda epsilon: OctaveCap(epsilon=epsilon, **chosen) if units is None else FixedCap(units=units)
        return
    if period is not None:
        assert units is not None  # noqa: S101
        yield lambda _: PeriodCap(units=units, ticks=period)
        return
    if units is not None:
        yield lambda _: FixedCap(units=units)
    yield lambda epsilon: AdaptiveCap(epsilon=epsilon, **chosen)


def _user_budget(
    budget: Budget, setting: UserSetting, parts: Sequence[Part], *, is_pure: bool, searches: Cap | OctaveCap
) -> SearchBudget:
    user, ticks = setting.user, setting.planned
    epsilon = Fraction(budget.epsilon)
    share = ESTIMATOR_SHARE if user.cap_share is None else exactly(user.cap_share)
    search = epsilon * share if isinstance(searches, AdaptiveCap | OctaveCap) else Fraction(0)
    each = search / sum(part[0].own_units is None for part in parts) if search else search
    shows = any(query.needs_delta for part in parts for query in part)
    if is_pure and shows:
        raise ParameterError(
            "unknown labels must have a delta to be shown with, got noise without: any noise may lift a label of one "
            "user over any threshold; allow a delta such as 1e-9, or list the labels"
        )
    if is_pure:
        return SearchBudget(search=each, epsilon=epsilon - search)
    # No plan has more than four nodes a tick and series, and each may start once at every cap. One more is of the users
    # above it.
    series = 1 + sum(query.user_series for part in parts for query in part)
    draws = len(searches.caps) * (4 * (ticks + 1) * series + 2 * ticks + 2)
    bad = Fraction(budget.delta) / 2 if shows else Fraction(0)
    # What drawn noise is off its law by weighs e^epsilon, of the whole epsilon.
    distance = 2 * draws * DRAW_DISTANCE
    beside = budget.rho(bad=bad, distance=distance, beside=search)
    # Several searches lose less together than their epsilons add up to: each is (epsilon^2 / 2)-zCDP (Bun and Steinke
    # 2016, Proposition 1.4). What is priced is the better of both too.
    together = budget.rho(bad=bad, distance=distance) - (search * each / 2 if search else Fraction(0))
    return SearchBudget(search=each, rho=max(beside, together), bad=bad)


def _candidates(
    part: Part, spent: SearchBudget, cap: Cap | OctaveCap, setting: UserSetting, shares: dict[str, Fraction]
) -> dict[str, list[Candidate]]:
    """For each query of a part, the same mechanisms in the same order: least error of all queries together first."""
    found: list[tuple[float, dict[str, Candidate]]] = []
    problems = []
    for kind in _kinds(part, setting.planned, is_pure=spent.rho is None):
        try:
            mechanism = _mechanism(part, spent, cap, setting, kind, shares)
            made = {query.name: _candidate(query, mechanism, setting) for query in part}
        except ParameterError as error:
            problems.append(error)
            continue
        found.append((sum(math.log(each.expected_error.typical) for each in made.values()), made))
    if not found:
        raise problems[0]
    found.sort(key=lambda row: row[0])
    return {query.name: [made[query.name] for _, made in found] for query in part}


def _kinds(part: Part, ticks: int, *, is_pure: bool) -> tuple[Any, ...]:
    if ticks >= OPEN_HORIZON:
        return (DoublingPlan,)
    if is_pure:
        return tuple(LAPLACE_PLANS.values())
    few = sum(query.user_series for query in part) <= FEW_SERIES and ticks <= FEW_TICKS
    return (*GAUSSIAN_PLANS.values(), *([ToeplitzPlan] if few else []))


def _mechanism(
    part: Part, spent: SearchBudget, cap: Cap | OctaveCap, setting: UserSetting, kind: Any, shares: dict[str, Fraction]
) -> UserMechanism:
    share = sum((shares[query.name] for query in part), Fraction(0))
    signed = setting.user.weight is not None
    # Its releases are those of all ticks, however seldom a query is published.
    history = max(query.user_history for query in part)
    ticks = setting.planned
    parameters = {"plan": kind, "horizon": ticks, "signed": signed, "history": history, **spent.counters(share)}
    if part[0].needs_delta:
        parameters["delta"] = spent.bad * share
    if not isinstance(cap, OctaveCap):
        return cast(UserMechanism, setting.each_period(part[0].user_mechanism(part, cap, shares, parameters)))
    for levels in range(cap.levels, 0, -1):
        # With as many caps as samplers have noise for.
        rule = replace(cap, levels=levels)
        largest = FixedCap(units=max(rule.first, rule.caps[-1]))
        try:
            made = setting.each_period(part[0].user_mechanism(part, largest, shares, parameters), rule)
        except ParameterError:
            if levels == 1:
                raise
            continue
        break
    return cast(UserMechanism, made)


def _candidate(query: Query, mechanism: UserMechanism, setting: UserSetting) -> Candidate:
    counters = query.user_counters(mechanism)
    cap, start = _standing(mechanism.cap, setting.user)
    plan = counters.plan(start, cap, 0)
    if plan is None:
        raise ParameterError("a plan must have a tick, got none")
    error = predict_error(plan, setting.coverage, query.user_scale(mechanism), window=query.per)
    is_adaptive = isinstance(mechanism.cap, AdaptiveCap)
    told = f"{query.shown_cap(mechanism.cap.caps[0] if is_adaptive else cap, mechanism):.15g}"
    rule = f"a cap that follows the stream, from {told}" if is_adaptive else f"a fixed cap of {told}"
    if isinstance(mechanism.cap, OctaveCap):
        rule = f"a cap that follows from period to period, from {told}"
    note = "" if query.own_cap is None else f"each user counts once{_each_period(mechanism)}"
    called = type(mechanism.inner if isinstance(mechanism, EachPeriod) else mechanism).__name__
    law = "Laplace" if mechanism.epsilon is not None else "Gaussian"
    return Candidate(
        name=f"{called}{_begun_anew(mechanism)}, {rule}, over {plan.name}",
        mechanism=mechanism,
        expected_error=error,
        pure=mechanism.epsilon is not None,
        note=note,
        noise=f"discrete {law}, a restart with a fresh plan each time the cap is raised"
        if is_adaptive
        else f"discrete {law}",
    )


def cap_told(query: Query, chosen: Candidate, user: User) -> dict[str, Any]:
    """What a plan tells of a query's cap: of what its error is, at which cap, at each cap, and what lies beyond it."""
    mechanism = chosen.mechanism
    if query.own_cap is not None or not isinstance(chosen.in_period, UserMechanism):
        return {}
    rule, counters = mechanism.cap, query.user_counters(mechanism)
    cap, _ = _standing(rule, user)
    is_adaptive = isinstance(rule, AdaptiveCap)
    caps = sorted({*rule.caps, cap})
    plans = [counters.plan(place if is_adaptive else 1, each, 0) for place, each in enumerate(caps, 1)]
    # They differ in the size of their noise alone.
    sizes = [math.sqrt(plan.noises[0].variance) for plan in plans if plan is not None]
    errors = [chosen.expected_error.typical * size / sizes[caps.index(cap)] for size in sizes]
    most, beyond = user.most_events_per_user, query.beyond_cap
    units = query.units_of(most, mechanism)
    # Without a user a value of hers may be first seen later, in the window.
    is_either = user.weight is not None or bool(query.per and query.of_window)
    if is_either or min(getattr(query, "range", None) or (0,)) < 0:
        beyond = beyond.replace("on that side", "at both ends")
    is_whole = units is not None and units <= rule.caps[0]
    if is_adaptive and query.few_missing:
        beyond = f"{REACHES}, at most one of each user above it"
        beyond += "" if query.per is None else ", but in a window that it is raised in, where they are open"
    if units is not None and (is_whole or (is_adaptive and query.reaches_cut)):
        what = "nothing is cut off" if is_whole else REACHES
        beyond = f"{what}, as no user has more than {most:,}"
        if query.per is not None and not is_whole:
            beyond += ", but in a window that it is raised in, where they are open"
    return {
        "at": query.shown_cap(cap, mechanism),
        "counted": "" if is_whole else f"{query.cap_words(cap, mechanism)}{_each_period(mechanism)}",
        "beyond": beyond,
        "errors": [
            _told_of_cap(query.shown_cap(each, mechanism), error, threshold)
            for each, error, threshold in zip(caps, errors, query.cap_thresholds(mechanism, caps), strict=True)
        ],
        "asked_for": (None if isinstance(rule, FixedCap) else user.caps) or 1,
    }


def _told_of_cap(cap: float, error: float, threshold: tuple[int, int] | None) -> dict[str, Any]:
    told = {} if threshold is None else {"threshold": dict(zip(("least", "largest"), threshold, strict=True))}
    return {"cap": cap, "typical": error, **told}


def _each_period(mechanism: UserMechanism) -> str:
    if isinstance(mechanism, EachPeriod):
        return " in each period"
    return f" in each period of {mechanism.cap.ticks} ticks" if isinstance(mechanism.cap, PeriodCap) else ""


def _begun_anew(mechanism: UserMechanism) -> str:
    return " anew in each period" if isinstance(mechanism, EachPeriod) else ""


def _standing(cap: Cap | OctaveCap, user: User) -> tuple[int, int]:
    """The cap that errors are predicted for, and how often counters have started by then."""
    if isinstance(cap, OctaveCap):
        return cap.first, 1
    wanted = user.max_events_per_user or 1
    for start, value in enumerate(cap.caps, 1):
        if value >= wanted:
            return value, start
    return cap.caps[-1], len(cap.caps)


def above_cap_table(release: Release[Any], coverage: float) -> dict[str, pl.DataFrame]:
    """How many users are above the cap, by its name, where a mechanism tells it."""
    value = release.value
    if not (isinstance(value, UserRelease) and ABOVE_CAP in value.values):
        return {}
    own = value[ABOVE_CAP]
    return {ABOVE_CAP: with_cap(bars_table([own.estimate], [own.bars(coverage)]), value.cap)}
