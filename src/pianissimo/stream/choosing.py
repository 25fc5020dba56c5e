"""From a stream's queries, budget and horizon to mechanisms, with the promise and the error, before any data.

The budget is split in one of two ways, whichever has the smaller errors:

* *Gaussian noise.* Half of delta is set aside for labels that only one event holds, if any query has an unknown domain;
  what is left is turned into rho by integer orders; rho, and the half of delta, are shared by the queries' weights.
* *Laplace noise.* Epsilon is shared by the queries' weights; for streams without unknown labels, and the only way where
  no delta is allowed.

The losses are then composed from the mechanisms as they are, rounded, and must price within the budget: a plan that
breaks its budget is never returned.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from pianissimo import identity
from pianissimo.budget import Budget
from pianissimo.checks import length_text
from pianissimo.errors import ParameterError, StateError
from pianissimo.loss.composition import Price, price
from pianissimo.loss.losses import Guarantee, Loss, Mixed, Neighbors, Pure, Race, Unit, float_up
from pianissimo.mechanism import in_shards
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.queries import Query
from pianissimo.queries.expected import OPEN_HORIZON, Candidate, ExpectedError, Share, number_text
from pianissimo.queries.of_users import UserSetting, cap_told, weighed_ways
from pianissimo.stream.calendar import CalendarPeriods, TickCalendar, iso
from pianissimo.stream.many_periods import of_many_periods
from pianissimo.stream.notebook import plan_html
from pianissimo.stream.plan_table import LEGEND_FACTS, in_window, promise_text, render_plan, words_of
from pianissimo.unit import EvenPeriods, Periods, User
from pianissimo.users import EachPeriod

if TYPE_CHECKING:
    from pianissimo.stream.stream import Stream

_PATH_VERSION = 1
_PLAN_FORMAT = 1
_TOLD = ("name", "pure", "note", "noise", "memory")
"""What a stored plan tells of a mechanism besides its parameters and its error."""

_OF_USE = 10
"""A number that is so many times its error is of use."""

_NEARLY_ALL = Fraction(999, 1000)
"""Of delta, where only the distance of the drawn noise needs the rest."""

_PURE_SLACK = 1e-12
"""A pure plan's delta, from the distance of its noise, is far below this."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class QueryPlan:
    """How one query will be answered."""

    query: Query
    share: Fraction
    """Of the stream's budget."""

    chosen: Candidate
    alternatives: tuple[Candidate, ...] = field(default=(), compare=False)
    """What else would have fitted, best first; a stored plan does not tell."""

    def __repr__(self) -> str:
        return f"QueryPlan({self.query!r}, within {number_text(self.expected_error.typical)})"

    @property
    def mechanism(self) -> Any:
        """The frozen parameters of the chosen mechanism."""
        return self.chosen.mechanism

    @property
    def guarantee(self) -> Guarantee:
        """What answering this query loses."""
        guarantee: Guarantee = self.mechanism.guarantee
        return guarantee

    @property
    def expected_error(self) -> ExpectedError:
        """Half-widths around the truth."""
        return self.chosen.expected_error

    @property
    def noise(self) -> str:
        """The noise in words."""
        if self.chosen.noise:
            return self.chosen.noise
        plan = getattr(self.mechanism, "plan", None)
        if plan is None:
            return self.chosen.note or "see the mechanism"
        law = "Laplace" if self.chosen.pure else "Gaussian"
        deviations = [math.sqrt(noise.variance) for noise in plan.noises]
        low, high = min(deviations), max(deviations)
        spread = f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
        levels = "1 level" if len(deviations) == 1 else f"{len(deviations)} levels"
        return f"discrete {law}, deviation {spread} on {levels}"

    @property
    def thresholds(self) -> tuple[int, int] | None:
        """The least and the largest estimate that a label must reach to be shown; None where all labels are."""
        return self.query.thresholds(self.chosen.in_period)

    @property
    def reason(self) -> str:
        """Why this mechanism."""
        return self.query.reason(self.chosen, [each for each in self.alternatives if not each.instead])

    def to_dict(self, user: User | None = None) -> dict[str, Any]:
        """The same as plain data, for the user who is hidden, if it is not an event."""
        loss = self.guarantee.loss
        thresholds = self.thresholds
        cap = {} if user is None else cap_told(self.query, self.chosen, user)
        past = self.query.past_told(self.chosen)
        return {
            "name": self.query.name,
            "kind": self.query.kind,
            "called": self.query.called,
            "every": self.query.every,
            **({} if self.query.per is None else {"per": self.query.per}),
            **({} if self.query.where is None else {"where": self.query.where}),
            **self.query.facts(self.chosen),
            **({} if past is None else {"history": past}),
            "mechanism": self.chosen.name,
            "pure": self.chosen.pure,
            "guarantee": {
                **_loss_dict(loss),
                "bad": float_up(loss.bad if isinstance(loss, Race) else loss.as_booked().bad),
                "unit": self.guarantee.unit.value,
                "neighbors": self.guarantee.neighbors.value,
                "horizon": self.guarantee.horizon,
                "theorem": self.guarantee.source,
            },
            "share_of_budget": float(self.share),
            "noise": self.noise,
            "note": self.chosen.note,
            "threshold": None if thresholds is None else {"least": thresholds[0], "largest": thresholds[1]},
            "expected_error": asdict(self.expected_error),
            **({"error_unit": self.query.error_unit.strip()} if self.query.error_unit else {}),
            "error_about": f"{self.query.about_in(self.mechanism)}{cap.get('counted', '')}",
            **({"caps": cap["errors"]} if cap else {}),
            "words": words_of(self.query, self.chosen, cap, [each.instead for each in self.alternatives]),
            "reason": self.reason,
            "alternatives": [
                {
                    "mechanism": other.name,
                    "pure": other.pure,
                    "expected_error": asdict(other.expected_error),
                    "note": other.note,
                    **({} if other.memory is None else {"memory": other.memory}),
                    **({"excluded": other.excluded} if other.excluded else {}),
                }
                for other in self.alternatives
            ],
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class StreamPlan:
    """What a stream will do, and what it promises, before any data.

    Two plans are equal if they would release the same way. `print(plan)` says it in words, `plan.explain()` why.
    """

    name: str
    unit: Unit | User
    """Whose presence is hidden."""

    budget: Budget
    horizon: int
    """How many ticks the promise covers; 2^32 for an open horizon."""

    coverage: float
    tick: timedelta | str | None
    queries: tuple[QueryPlan, ...]
    price: Price
    """The (epsilon, delta) that the mechanisms really cost: at most the budget."""

    calendar: TickCalendar | None = None
    """When ticks begin and end, where the stream has an origin."""

    shards: int = 1
    """How many shards have state and noise; 1 where the stream has them whole."""

    @property
    def protected(self) -> str:
        """Whose presence is hidden, in a word."""
        return (self.unit.unit if isinstance(self.unit, User) else self.unit).value

    @property
    def neighbors(self) -> Neighbors:
        """Which two streams may not be told apart."""
        return Neighbors.ADD_OR_REMOVE

    @cached_property
    def digest(self) -> bytes:
        """A short name for all that changes a release; it is part of the path of all noise."""
        # Of what is stored: a later version may have another form of the same. Which column names the users, and which
        # one takes events back, decides what is counted.
        name, unit, _, horizon, *_ = self._plain["stream"]["tuple"]
        mechanisms = self._plain["mechanisms"]["tuple"]
        answered = [{"tuple": [each["query"], mechanisms[_place(each)]]} for each in self._plain["queries"]]
        sharded = [] if self.shards == 1 else [{"shards": self.shards}]
        return identity.digest_of_plain({"tuple": [_PATH_VERSION, name, horizon, unit, {"tuple": answered}, *sharded]})

    def mechanism_digest(self, answered: QueryPlan) -> bytes:
        """A short name for what answers a query, which is stored with its state."""
        own = next(each for each, plan in zip(self._plain["queries"], self.queries, strict=True) if plan is answered)
        return self._mechanism_digests[_place(own)]

    @cached_property
    def _mechanism_digests(self) -> list[bytes]:
        # Each shard asks for them.
        return [identity.digest_of_plain(each) for each in self._plain["mechanisms"]["tuple"]]

    def to_plain(self) -> dict[str, Any]:
        """All that is needed to run it, as plain data that JSON can hold; what was not chosen is left out.

        A plan that was stored gives what is stored, by whichever version.
        """
        return self._plain

    @cached_property
    def _plain(self) -> dict[str, Any]:
        mechanisms = _mechanisms(self.queries)
        places = {id(mechanism): place for place, mechanism in enumerate(mechanisms)}
        parts = (self.name, self.unit, self.budget, self.horizon, self.coverage, self.tick, self.price)
        return {
            "format": _PLAN_FORMAT,
            "stream": identity.to_plain(parts),
            # A mechanism that answers several queries is one.
            "mechanisms": identity.to_plain(mechanisms),
            "queries": [
                {
                    "query": identity.to_plain(plan.query),
                    "share": identity.to_plain(plan.share),
                    "chosen": {
                        **{name: getattr(plan.chosen, name) for name in _TOLD},
                        "expected_error": asdict(plan.expected_error),
                        "mechanism": places[id(plan.mechanism)],
                    },
                }
                for plan in self.queries
            ],
            **({} if self.calendar is None else {"calendar": identity.to_plain(self.calendar)}),
            **({} if self.shards == 1 else {"shards": self.shards}),
        }

    @classmethod
    def from_plain(cls, content: dict[str, Any]) -> "StreamPlan":
        """The plan that `to_plain` wrote down, also by an earlier version: it is never chosen anew."""
        try:
            _ = {_PLAN_FORMAT: None}[content["format"]]
            name, unit, budget, horizon, coverage, tick, cost = identity.from_plain(content["stream"])
            mechanisms = identity.from_plain(content["mechanisms"])
            plans = [_query_plan(each, mechanisms) for each in content["queries"]]
            calendar = identity.from_plain(content.get("calendar"))
            shards = int(content.get("shards", 1))
        except (KeyError, TypeError, ValueError, IndexError):
            raise StateError(
                "a stored plan must be of a version that this one knows, got another; "
                "open it with the version that wrote it, or a later one"
            ) from None
        found = cls(
            name=name,
            unit=unit,
            budget=budget,
            horizon=horizon,
            coverage=coverage,
            tick=tick,
            queries=tuple(plans),
            price=cost,
            calendar=calendar,
            shards=shards,
        )
        found.__dict__["_plain"] = content
        return found

    def __repr__(self) -> str:
        asked = ", ".join(plan.query.name for plan in self.queries)
        return f"StreamPlan({self.name!r}, epsilon={self.price.epsilon:.4g}, delta={self.price.delta:.2g}, [{asked}])"

    def _repr_html_(self) -> str:
        told = self.to_dict()
        return plan_html(told, promise_text(told))

    def plot(self) -> Any:
        """A picture of the errors to expect, as a matplotlib figure."""
        from pianissimo.stream.pictures import plot_plan

        return plot_plan(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return {
            "stream": self.name,
            **self._unit(),
            "neighbors": self.neighbors.value,
            "horizon": self.horizon,
            **({} if self.shards == 1 else {"shards": self.shards}),
            **self._clock(),
            "coverage": self.coverage,
            "budget": {"epsilon": float(self.budget.epsilon), "delta": float(self.budget.delta)},
            "promise": {"epsilon": self.price.epsilon, "delta": self.price.delta, "method": self.price.method},
            "warnings": [
                *self.budget.doubts(*_expected([plan.query for plan in self.queries])),
                *filter(None, (_useless(plan) for plan in self.queries)),
            ],
            "digest": self.digest.hex(),
            "queries": [plan.to_dict(self.unit if isinstance(self.unit, User) else None) for plan in self.queries],
        }

    def about(self, interval: tuple[int, int] | None = None) -> dict[str, dict[str, Any]]:
        """What is told of each query below the table of a release, or of what came after a tick up to another."""
        if interval is None:
            return self._about
        first, last = interval[0] + 1, interval[1]
        when = f"in tick {first}" if first == last else f"in ticks {first} to {last}"
        return {name: in_window(each, when) for name, each in self._about.items()}

    @cached_property
    def _about(self) -> dict[str, dict[str, Any]]:
        told = self.to_dict()["queries"]
        return {each["name"]: {name: each[name] for name in LEGEND_FACTS if name in each} for each in told}

    def span(self, first: int, last: int) -> dict[str, Any]:
        """When some ticks begin and end; nothing where the stream has no origin."""
        return (
            {} if self.calendar is None else dict(zip(("start", "end"), self.calendar.span(first, last), strict=True))
        )

    def since(self, names: Iterable[str], tick: int, *, first: int = 0, counted: int = 0) -> dict[str, Any]:
        """When what each query counts at a tick begins; without an origin the tick after which, if it is not all.

        Of a life that begins after tick `first`, totals count all that came after tick `counted`.
        """
        asked = {plan.query.name: plan.query for plan in self.queries}
        found = {}
        earliest = first if self.periods is None else max(first, self.periods.span(tick)[0] - 1)
        for name in names:
            query = asked.get(name)
            if query is None or not query.watched:
                begin = earliest if query is None or query.per is None else max(earliest, tick - query.per)
                found[name] = counted if begin == first else begin
        if self.calendar is None:
            return {name: begin for name, begin in found.items() if begin}
        return {name: self.calendar.start(begin + 1) for name, begin in found.items()}

    @cached_property
    def periods(self) -> Periods | None:
        """Which ticks are one period, where statistics begin anew with each."""
        begun_anew = (plan.mechanism for plan in self.queries if isinstance(plan.mechanism, EachPeriod))
        return next((each.periods for each in begun_anew), None)

    def _unit(self) -> dict[str, Any]:
        if isinstance(self.unit, Unit):
            return {"unit": self.unit.value}
        told = {"unit": self.unit.unit.value, "user": self.unit.column}
        if self.unit.within is None:
            return told
        longest = self.periods.longest if self.periods is not None else self.unit.period(self.tick) or 1
        starts = {} if self.unit.starts is None else {"starts": self.unit.starts}
        own = {"period": longest, "reset": self.periods is not None, **starts}
        return told | own | {"many_periods": self.many_periods}

    @cached_property
    def many_periods(self) -> list[dict[str, Any]]:
        """What who comes in several periods gets: epsilon and delta, for some numbers of periods; none: no promise."""
        unit = self.unit
        if not isinstance(unit, User) or unit.within is None:
            return []
        longest = self.periods.longest if self.periods is not None else unit.period(self.tick) or 1
        delta = Fraction(0) if self.budget.pure else Fraction(self.budget.delta)
        return of_many_periods(_mechanisms(self.queries), delta, -(-self.horizon // longest))

    def _clock(self) -> dict[str, str]:
        told = {} if self.tick is None else {"tick": length_text(self.tick)}
        if self.calendar is None:
            return told
        return told | {"origin": iso(self.calendar.start(1)), "time_zone": self.calendar.time_zone}

    def to_json(self) -> str:
        """The same as JSON."""
        return json.dumps(self.to_dict(), indent=2)

    def explain(self) -> str:
        """What `print(plan)` says, then the mechanisms, the theorems they rest on, and what else would have fitted."""
        return render_plan(self.to_dict(), explain=True)

    def __str__(self) -> str:
        return render_plan(self.to_dict())


def make_plan(stream: "Stream") -> StreamPlan:
    """The best plan for a stream's queries within its budget."""
    stream.budget.warn(*_expected(stream.queries))
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
        queries, ways, weighed = weighed_ways(queries, weights, budget, setting)
    else:
        ways = _ways(queries, budget, stream.horizon, stream.coverage)
    if stream.shards > 1:
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
    cost = price([mechanism.guarantee.loss for mechanism in _mechanisms(plans)], Fraction(budget.delta))
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


def _expected(queries: Sequence[Query]) -> list[int | None]:
    """The largest number of events that is expected, and of labels that nobody listed."""
    found: list[int | None] = []
    for name, some in (
        ("expected_events", queries),
        ("expected_keys", [query for query in queries if getattr(query, "domain", None) is None]),
    ):
        found.append(max((getattr(query, name, None) or 0 for query in some), default=0) or None)
    return found


def _useless(plan: QueryPlan) -> str:
    """That answers are of little use, where it was said how many events there will be: no label has more than all."""
    events, error = getattr(plan.query, "expected_events", None), plan.expected_error.typical
    if events is None or _OF_USE * error <= events:
        return ""
    what = f"an error of {number_text(error)} is more than a tenth of all {events:,} events that are expected"
    return f"{plan.query.name}: {what}; ask fewer queries, list the labels, or take a larger epsilon"


def _mechanisms(plans: Sequence[QueryPlan]) -> list[Any]:
    """Each mechanism once, also where it answers several queries."""
    return list({id(plan.mechanism): plan.mechanism for plan in plans}.values())


def _place(stored: dict[str, Any]) -> int:
    """Which of the stored mechanisms answers a query."""
    place: int = stored["chosen"]["mechanism"]
    return place


def _query_plan(content: dict[str, Any], mechanisms: Sequence[Any]) -> QueryPlan:
    told = dict(content["chosen"])
    chosen = Candidate(
        mechanism=mechanisms[told.pop("mechanism")], expected_error=ExpectedError(**told.pop("expected_error")), **told
    )
    return QueryPlan(
        query=identity.from_plain(content["query"]), share=identity.from_plain(content["share"]), chosen=chosen
    )


Way = list[list[Candidate]]
"""For each query its candidates, best first, under one split of the budget."""


def _over_shards(queries: Sequence[Query], ways: list[Way], *, of_users: bool) -> list[Way]:
    """The ways in which each query has a mechanism whose state shards can have.

    Where a question about events has none, it is one number or a few, and the driver has its state; of users it is not
    there yet.
    """

    def kept_in(options: list[Candidate]) -> list[Candidate]:
        if not of_users and not any(each.selectable and in_shards(each.mechanism) for each in options):
            return options
        return [each if in_shards(each.mechanism) else replace(each, selectable=False) for each in options]

    kept = [[kept_in(options) for options in way] for way in ways]
    found = [way for way in kept if all(any(each.selectable for each in options) for options in way)]
    if not found:
        able = [[any(each.selectable for each in options) for options in way] for way in kept]
        query = next(query for place, query in enumerate(queries) if not any(way[place] for way in able))
        raise ParameterError(
            f"query {query.name!r} must be a count, sum or histogram of listed labels of users whose totals run on, "
            f"where a stream of users has shards, got {query.called}: over shards it is not there yet; use shards = 1"
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
    return sum(math.log(_first_selectable(options).expected_error.typical) for options in way)


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
    # No plan has more than four nodes a tick and series; see `noise_plan.plan_loss`.
    ticks = OPEN_HORIZON if horizon is None else horizon
    distance = 4 * (ticks + 1) * sum(query.series for query in queries) * DRAW_DISTANCE
    rho = budget.rho(bad=set_aside, distance=distance, beside=epsilon * watched)
    return [
        Share(epsilon=epsilon * weight, bad=own) if query.watched else Share(rho=rho * weight / (1 - watched), bad=own)
        for query, weight, own in zip(queries, weights, bad, strict=True)
    ]


def _loss_dict(loss: Loss) -> dict[str, float]:
    if isinstance(loss, Pure):
        return {"epsilon": float_up(loss.epsilon)}
    if isinstance(loss, Race):
        return {"charges": loss.charges, "scale": float(loss.scale)}
    if isinstance(loss, Mixed) and not loss.rho:
        return {"epsilon": float_up(loss.pure)}
    if isinstance(loss, Mixed):
        return {"pure": float_up(loss.pure), "rho": float_up(loss.rho)}
    return {"rho": float_up(loss.as_booked().rho)}
