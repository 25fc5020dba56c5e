"""What every query answers: its mechanisms, its tables, its words in a plan.

A kind of query is one file beside this one with a class that answers what it can answer otherwise than others; what it
leaves out is answered here, for one count without labels. Nothing outside this folder names a kind.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Protocol

import polars as pl

from pianissimo.budget import Budget
from pianissimo.counting import LabelCounts
from pianissimo.errors import ParameterError
from pianissimo.labels import MOST_LABELS
from pianissimo.loss.losses import Unit
from pianissimo.mechanism import Release, Windowed
from pianissimo.noise.plan import NoisePlan, is_pure
from pianissimo.queries.shared.asked import Asked
from pianissimo.queries.shared.columns import join_labels, split_labels, told_value
from pianissimo.queries.shared.expected import (
    Candidate,
    ExpectedError,
    PlanMaker,
    Share,
    noise_plans,
    number_text,
    predict_error,
)
from pianissimo.queries.shared.past import default_history, past_told
from pianissimo.queries.shared.released_tables import bars_table, count_table, released_table, with_cap
from pianissimo.unit import User
from pianissimo.users import (
    AboveHead,
    AdaptiveCap,
    Cap,
    Counters,
    EachPeriod,
    Head,
    LabelSumsHead,
    SumHead,
    UserBudget,
    UserStatistics,
)

UserMechanism = UserBudget | EachPeriod
ABOVE_SHARE = Fraction(1, 20)
"""Of what a part's counters may spend, for the number of users above the cap. It costs the others 2.6 % more noise (5 %
if Laplace), and a user moves it by one: its noise is 4.5 times (20 times) that of a count, over the cap."""

Maker = Callable[[], Candidate]
"""Makes a candidate, or raises `ParameterError` where the mechanism does not fit."""


class PlanFor(Protocol):
    """Makes a noise plan for a share."""

    def __call__(self, share: Share, *, series: int = 1, magnitude: int = 1) -> NoisePlan:
        """The plan for an event that moves so many series by so much."""


@dataclass(frozen=True, slots=True)
class Query(Asked):
    """What is asked of a stream, and how it is answered: what each kind must be able to say."""

    move_bytes: ClassVar[int] = 1
    """At most how many bytes keep by how much one series moved in a tick, as a rule."""

    adds_up: ClassVar[bool] = False
    """Whether the answers for two parts of the stream add up to that for both, if of a window it has what is new."""

    deletable: ClassVar[bool] = False
    """Whether events of users may be taken back."""

    capped: ClassVar[str] = "events"
    """What of a user is counted towards a cap."""

    own_cap: ClassVar[int | None] = None
    """How many units of a user count, where the kind itself says so and nothing that matters is cut off."""

    answer: ClassVar[str] = "number of events"
    """What it answers, and what its error is about: words in which {0} is the query."""

    of_window: ClassVar[str] = ""
    """What of it a window has, where that is not what a total of the same ticks would have: first seen in them."""

    error_unit: ClassVar[str] = ""
    """What its error is counted in, if not in what it answers."""

    shown: ClassVar[str] = "labels of {0.keys_told} appear"
    """What happens from its threshold on, where it has one."""

    beyond_cap: ClassVar[str] = "what the cap cuts off is missing, and bars are open on that side"
    """What becomes of events beyond a cap."""

    reaches_cut: ClassVar[bool] = True
    """Whether its bars reach over what a cap cuts off, where that is bounded."""

    told: ClassVar[tuple[str, ...]] = ()
    """Which of its own fields a plan tells."""

    @property
    def may_fall(self) -> bool:
        """Whether an event may take something from a total, as its value is below 0."""
        return False

    @property
    def history_kept(self) -> int:
        """How many past releases are kept, so that intervals can be answered."""
        history: int | None = self.history
        default = default_history(None if self.series > MOST_LABELS else self.series)
        return max(default if history is None else -(-history // self.every), self.window or 0)

    @property
    def user_history(self) -> int:
        """The same where users are hidden: how many past ticks."""
        history: int | None = self.history
        default = default_history(None if self.user_series > MOST_LABELS else self.user_series)
        return max(default if history is None else history, self.per or 0)

    def past_told(self, chosen: Candidate) -> dict[str, Any] | None:
        """How much of the past is kept, and what it takes at most; None where it has no windows."""
        made: Any = getattr(chosen.in_period, "histogram", chosen.in_period)
        history, guarantee = getattr(made, "history", 0), made.guarantee
        if not isinstance(made, Windowed):
            return None
        of_events = guarantee.unit is Unit.EVENT
        series = self.series if of_events else self.user_series
        return past_told(
            history,
            guarantee.horizon,
            every=self.every if of_events else 1,
            series=None if series > MOST_LABELS else series,
            move_bytes=self.move_bytes,
        )

    @property
    def window(self) -> int | None:
        """How many releases back what is published begins; None where it is the total."""
        return None if self.per is None else self.per // self.every

    def user_batch(self, content: pl.DataFrame) -> pl.DataFrame:
        """What the mechanism that it shares with others counts of `user` and the queries' columns."""
        return content

    # Single events

    @property
    def series(self) -> int:
        """How many series of noise it has at most."""
        return 1

    @property
    def needs_delta(self) -> bool:
        """Whether it may show labels that nobody listed."""
        return False

    def unit_value(self, mechanism: Any) -> float:
        """What one step of a mechanism's counts is worth."""
        return 1.0

    def makers(self, share: Share, releases: int, coverage: float, *, is_open: bool) -> Iterator[Maker]:
        """Each mechanism that may answer it where single events are hidden."""
        if type(self).mechanism is Query.mechanism:
            raise ParameterError(f"{self.kind} must be asked of users, got single events; give unit=user('column')")
        for make_plan in noise_plans(share, self.series, is_open=is_open):
            yield self._over(make_plan, share, releases, coverage)

    def _over(self, make_plan: PlanMaker, share: Share, releases: int, coverage: float) -> Maker:
        def plan_for(share: Share, *, series: int = 1, magnitude: int = 1) -> NoisePlan:
            return make_plan(horizon=releases, **share.target(series=series, magnitude=magnitude))

        def make() -> Candidate:
            mechanism, plan = self.mechanism(share, plan_for)
            return Candidate(
                name=f"{type(mechanism).__name__} over {plan.name}",
                mechanism=mechanism,
                expected_error=self.predicted(mechanism, plan, coverage),
                pure=is_pure(plan),
            )

        return make

    def predicted(self, mechanism: Any, plan: NoisePlan, coverage: float) -> ExpectedError:
        """The error to expect of a mechanism over a plan."""
        return predict_error(plan, coverage, self.unit_value(mechanism), window=self.window)

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        """Its counter over a noise plan; queries without one are asked of users alone."""
        raise NotImplementedError

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        """What is published where single events are hidden."""
        return count_table(release.value, release.error, coverage)

    def no_window(self, mechanism: Any, ticks: int) -> str:
        """Why the difference of two published totals, so many ticks apart, is no answer of its own; "" where it is."""
        if self.per is not None:
            return f"what is published is no total but what {self.per} ticks added"
        if not (self.adds_up and isinstance(mechanism, Windowed)):
            does = "does" if self.called.startswith("a") else "do"
            return f"{self.called} {does} not add up over ticks; counts, sums and histograms do"
        return f"it is published at every {self.every} ticks" if ticks % self.every else ""

    def window_table(
        self, mechanism: Any, before: pl.DataFrame, now: pl.DataFrame, releases: tuple[int, int], coverage: float
    ) -> pl.DataFrame:
        """What two published totals tell of the time between, with the bars of their difference.

        Of a label that was not shown before, all that is known is that no more were added than there are; one that is
        not shown any more is left out.
        """
        steps = (pl.col("estimate") / self.unit_value(mechanism)).round().cast(pl.Int64)
        before, now = before.with_columns(steps), now.with_columns(steps)
        error = mechanism.between_error(*releases, coverage)
        if "key" not in now.columns:
            added = now["estimate"].item() - before["estimate"].item()
            return self.table(mechanism, Release(releases[1], added, error), coverage)
        both = now.join(before, on="key", how="inner", maintain_order="left")
        counts = LabelCounts(both["key"], (both["estimate"] - both["estimate_right"]).to_numpy())
        new = self.new_labels(before, now.filter(pl.col("key").is_not_null()))
        return pl.concat([self.table(mechanism, Release(releases[1], counts, error), coverage), new])

    def new_labels(self, before: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
        """What is known of the labels that were not shown before: no more was added than there is, if none is taken."""
        new = now.join(before, on="key", how="anti", maintain_order="left")
        unknown = [None] * new.height
        most = unknown if self.may_fall else new["high"]
        return released_table(unknown, unknown, most, key=new["key"], whole=new.schema["high"].is_integer())

    def named(self, table: pl.DataFrame) -> pl.DataFrame:
        """A table as it is published: labels of several columns in columns of these names."""
        if "key" not in table.columns or len(self.key_names) < 2:
            return table
        return table.select(*split_labels(table["key"], self.key_names), pl.exclude("key"))

    def unnamed(self, table: pl.DataFrame) -> pl.DataFrame:
        """The table that `named` was given."""
        names = self.key_names
        if len(names) < 2:
            return table
        return table.select(join_labels([table[name] for name in names]).alias("key"), pl.exclude(*names))

    # Users

    @property
    def own_units(self) -> int | None:
        """How many units of a user count, where the query itself says so: no cap is searched for it."""
        return self.own_cap

    def shown_cap(self, units: int, of: Any = None) -> float:
        """A cap of so many units as it is told: units of a mechanism, or of what it released."""
        return units

    def cap_words(self, units: int, of: Any = None) -> str:
        """What of a user counts under a cap of so many units, in words."""
        return f", of {self.capped_unit} up to the cap of {self.shown_cap(units, of):,.15g} a user"

    def most_added(self, cap: float) -> float | None:
        """What a user at a cap adds to one number at most; None where that says nothing."""
        return cap if self.adds_up and not self.few_missing else None

    def units_of(self, events: int | None, of: Any = None) -> int | None:
        """How many units so many events of a user are at most; None where that is not known."""
        return events

    def units_in(self, batch: pl.DataFrame) -> pl.DataFrame:
        """How many units each user has in what its mechanism counts, beside what tells them apart: `units`."""
        keys = ["user", *(name for name in ("value", "label") if self.few_missing or self.capped == "values")]
        return batch.group_by([name for name in keys if name in batch.columns]).len("units")

    def under_value_cap(self) -> "Query | None":
        """The same under a cap of what a user adds in place of one of her events, where it can be told to have one."""
        return None

    def instead(self, cap: float, error: ExpectedError) -> str:
        """Where it was weighed against the same query under another kind of cap: its error, in words."""
        return f"With a cap of events, from {cap:,.15g} a user on, it would be within {number_text(error.typical)}"

    def cap_rule(self, cap: Any, user: User) -> Any:
        """The cap that follows, in units of this query."""
        return cap

    @property
    def part(self) -> str:
        """Queries of the same part are answered by one mechanism."""
        return ""

    def head(self, share: Fraction = Fraction(1)) -> Head:
        """What is counted of the events that a cap lets through."""
        raise ParameterError(
            f"query {self.name!r} must have a domain, and one label an event, where users are hidden, got another; "
            "list the labels that count"
        )

    @property
    def user_series(self) -> int:
        """How many series of noise it has at most where users are hidden."""
        return self.head().series

    @property
    def counted_unit(self) -> str:
        """What is counted, in a word."""
        return "users" if self.watched else "events"

    @property
    def capped_unit(self) -> str:
        """What of a user is counted towards a cap."""
        return self.capped

    @property
    def few_missing(self) -> bool:
        """Whether of a user above the cap no more than one is missing in each of its numbers."""
        return False

    def user_mechanism(
        self, part: Sequence["Query"], cap: Cap, shares: Mapping[str, Fraction], parameters: dict[str, Any]
    ) -> UserMechanism:
        """What answers all queries of its part."""
        heads = tuple(query.head(shares[query.name]) for query in part)
        if self.own_cap is None:
            others = sum((head.share for head in heads), Fraction(0))
            heads += (AboveHead(share=others * ABOVE_SHARE / (1 - ABOVE_SHARE)),)
        if isinstance(cap, AdaptiveCap):
            return UserStatistics.fitting(cap=cap, heads=heads, **parameters)
        # Sums count as finely as samplers have noise for: what coins add to a sum of very many events is in no bar.
        for size in (1, 10, 100, 1000):
            with suppress(ParameterError):
                return UserStatistics(cap=cap, heads=tuple(_finer(head, size) for head in heads), **parameters)
        return UserStatistics(cap=cap, heads=heads, **parameters)

    @property
    def sketched(self) -> bool:
        """Whether, of users, it has a mechanism and a part of the budget by itself, as it counts over no noise plan."""
        return False

    def user_candidates(self, budget: Budget, setting: Any) -> list[Candidate]:
        """What answers it by itself, where it is `sketched`."""
        raise NotImplementedError

    def user_counters(self, mechanism: Any) -> Counters:
        """Those of the part's mechanism that count for this query."""
        counters: Counters = mechanism.counters[[head.name for head in mechanism.heads].index(self.name)]
        return counters

    def user_scale(self, mechanism: Any) -> float:
        """How much of a series' noise the answer has."""
        return 1.0

    def user_value(self, release: Release[Any]) -> Any:
        """What the part's mechanism released for this query, with its noise and what is known of the cut."""
        return release.value[self.name]

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        """What is published where users are hidden; bars cover what the cap let through.

        If no user has more than `most_events`, they reach over what it cut off as well.
        """
        value = self.user_value(release)
        return bars_table([value.estimate], [value.bars(coverage, most_units=self.units_of(most_events, value))])

    def most_moved(self, mechanism: Any) -> float | None:
        """By how much one event moves all numbers of a release together; None where that has no bound.

        Of a user it is that times the cap. Audits hold neighbors against it.
        """
        return 1.0

    def open_ends(self, value: Any) -> tuple[str, ...]:
        """Which ends of its bars what a cap cuts off may lie beyond."""
        return ("low", "high") if value.is_signed else ("high",)

    def capped_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        """`user_table` with the cap; where nothing bounds what it cuts off, an end that may be passed is null."""
        table, value = self.user_table(release, coverage, most_events), self.user_value(release)
        is_bounded = value.cut.most_missing(self.units_of(most_events, value)) is not None
        return with_cap(table, self.shown_cap(value.cut.cap, value), () if is_bounded else self.open_ends(value))

    # Plans

    @property
    def about(self) -> str:
        """What its error is about, in words."""
        return self._about(self.answer)

    def about_in(self, mechanism: Any) -> str:
        """The same, of what a mechanism answers."""
        is_cut = isinstance(mechanism, EachPeriod) and self.per not in (None, 1)
        own = f"{self.about}, or since the period began" if is_cut else self.about
        # What is new and below the threshold is in no window, however much of it the window has.
        by_totals = self.per is not None and self.thresholds(getattr(mechanism, "inner", mechanism)) is not None
        return f"{own}{SHOWN_FOR_TOTALS}" if by_totals else own

    def _about(self, answer: str) -> str:
        when = "" if self.per is None else " in each tick" if self.per == 1 else f" in the last {self.per} ticks"
        each = "" if self.count_column is None else f", a row being {self.count_column} of them"
        own = f"{answer.format(self)}{when and self.of_window}{when}{each}"
        return own if self.where is None else f"{own} where {self.where}"

    def left_out(self, chosen: Candidate) -> list[str]:
        """What of the events is not in its answers, or hidden, in words."""
        return []

    def facts(self, chosen: Candidate) -> dict[str, Any]:
        """What a plan tells of it besides."""
        told = self.told if self.count_column is None else (*self.told, "count_column")
        return {name: told_value(name, getattr(self, name)) for name in told}

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        """The least and the largest estimate that a label must reach to be shown; None where all labels are."""
        return None

    def cap_thresholds(self, mechanism: Any, caps: Sequence[int]) -> list[tuple[int, int] | None]:
        """The same at each cap of a mechanism about users."""
        return [None] * len(caps)

    def reason(self, chosen: Candidate, alternatives: Sequence[Candidate]) -> str:
        """Why this mechanism was chosen."""
        if not alternatives:
            return "the only one that fits"
        second = min(alternatives, key=lambda other: other.expected_error.typical)
        ratio = second.expected_error.typical / chosen.expected_error.typical
        if ratio < 1:
            return f"{second.name} has {ratio:.2f} times the error alone, but not together with the other queries"
        return f"least typical error; {second.name} has {ratio:.2f} times as much"


SHOWN_FOR_TOTALS = ", of labels that are shown for their totals"
"""Of which labels windows are, where nobody listed them."""


def _finer(head: Head, size: int) -> Head:
    """A sum that counts in steps of at most so many of its grid's, as far as they divide its own."""
    if isinstance(head, SumHead | LabelSumsHead):
        return replace(head, coarse=math.gcd(head.coarse, size))
    return head


Part = tuple[Query, ...]
"""Queries that one mechanism answers."""


def parts_of(queries: Sequence[Query]) -> list[Part]:
    """Which queries share a mechanism: those of events first, then the others in their order."""
    parts: dict[str, list[Query]] = {}
    for query in queries:
        parts.setdefault(query.part, []).append(query)
    return [tuple(parts[name]) for name in sorted(parts, key=bool)]
