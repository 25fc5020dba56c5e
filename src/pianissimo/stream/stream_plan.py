"""What a stream will do and what it promises, before any data: its queries with the mechanisms that were chosen.

A plan is stored with its stream, and a start reads it: it is never chosen anew.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any

from pianissimo import identity
from pianissimo.budget import Budget
from pianissimo.checks import length_text
from pianissimo.errors import StateError
from pianissimo.loss.composition import Price
from pianissimo.loss.losses import Guarantee, Loss, Mixed, Neighbors, Pure, Race, Unit, float_up
from pianissimo.queries import Query
from pianissimo.queries.shared.expected import Candidate, ExpectedError, number_text
from pianissimo.queries.shared.of_users import cap_told
from pianissimo.stream.calendar import TickCalendar, iso
from pianissimo.stream.many_periods import of_many_periods
from pianissimo.stream.shown.notebook import plan_html
from pianissimo.stream.shown.plan_table import LEGEND_FACTS, OF_USE, in_window, promise_text, render_plan, words_of
from pianissimo.unit import Periods, User
from pianissimo.users import EachPeriod

_PATH_VERSION = 1
_PLAN_FORMAT = 1
_TOLD = ("name", "pure", "note", "noise", "memory")
"""What a stored plan tells of a mechanism besides its parameters and its error."""


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
        mechanisms = distinct_mechanisms(self.queries)
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
        from pianissimo.stream.shown.pictures import plot_plan

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
                *self.budget.doubts(*expected_sizes([plan.query for plan in self.queries])),
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
        starts = {} if self.unit.starts is None else {"starts": self.unit.starts}
        own = {"period": self._longest(self.unit), "reset": self.periods is not None, **starts}
        return told | own | {"many_periods": self.many_periods}

    @cached_property
    def many_periods(self) -> list[dict[str, Any]]:
        """What who comes in several periods gets: epsilon and delta, for some numbers of periods; none: no promise."""
        unit = self.unit
        if not isinstance(unit, User) or unit.within is None:
            return []
        delta = Fraction(0) if self.budget.pure else Fraction(self.budget.delta)
        return of_many_periods(distinct_mechanisms(self.queries), delta, -(-self.horizon // self._longest(unit)))

    def _longest(self, user: User) -> int:
        """How many ticks a period has at most."""
        return self.periods.longest if self.periods is not None else user.period(self.tick) or 1

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


def expected_sizes(queries: Sequence[Query]) -> list[int | None]:
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
    if events is None or OF_USE * error <= events:
        return ""
    what = f"an error of {number_text(error)} is more than a tenth of all {events:,} events that are expected"
    return f"{plan.query.name}: {what}; ask fewer queries, list the labels, or take a larger epsilon"


def distinct_mechanisms(plans: Sequence[QueryPlan]) -> list[Any]:
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
