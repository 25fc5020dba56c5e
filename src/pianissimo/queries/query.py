"""What every query has and answers: its fields, the columns it reads, its mechanisms, its tables.

A kind of query is one file beside this one with a class that answers what it can answer otherwise than others; what it
leaves out is answered here, for one count without labels. Its fields, their defaults and their docstrings are what a
TOML file may say, what a store keeps and what the documents show. Nothing outside this folder names a kind.

Every table that leaves has `key` (where there is one), `estimate`, `low` and `high`, in this order: `released_table`
makes all of them. Those about users have `cap` as well: `capped_table` adds it, and opens the ends of bars that what
the cap cuts off may lie beyond.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from datetime import timedelta
from enum import Enum
from fractions import Fraction
from statistics import NormalDist
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.budget import Budget
from pianissimo.checks import Length, check_at_least, check_name, check_positive, length_of
from pianissimo.counting import LabelCounts
from pianissimo.errors import InputError, ParameterError
from pianissimo.filters import Filter
from pianissimo.identity import identified
from pianissimo.labels import LONGEST_LABEL, MOST_LABELS, Domain
from pianissimo.loss.losses import Unit
from pianissimo.mechanism import Release, Windowed
from pianissimo.noise.plan import NoisePlan, is_pure
from pianissimo.queries.columns import (
    NULL_LABEL,
    Reads,
    Role,
    check_column,
    checked_key,
    counted_rows,
    event_numbers,
    fault_of,
    join_labels,
    key_names,
    labels_in,
    matching_rows,
    rows_of,
    split_labels,
    told_value,
)
from pianissimo.queries.expected import (
    Candidate,
    ExpectedError,
    PlanMaker,
    Share,
    noise_plans,
    number_text,
    predict_error,
)
from pianissimo.queries.past import default_history, past_told
from pianissimo.unit import User
from pianissimo.users import (
    AboveHead,
    AdaptiveCap,
    Bars,
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

Nulls = Literal["skip", "refuse", "label"]
Maker = Callable[[], Candidate]
"""Makes a candidate, or raises `ParameterError` where the mechanism does not fit."""


@identified("query-tidy")
class Tidy(Enum):
    """What may be done to estimates on request; the raw ones stay beside them.

    >>> Tidy("monotone")
    <Tidy.MONOTONE: 'monotone'>
    """

    NON_NEGATIVE = "non_negative"
    """No estimate below zero."""

    MONOTONE = "monotone"
    """No estimate of a running count below an earlier one."""

    RANKED = "ranked"
    """In a top list, no estimate above that of a better rank: averages of neighbors that are out of order."""


class PlanFor(Protocol):
    """Makes a noise plan for a share."""

    def __call__(self, share: Share, *, series: int = 1, magnitude: int = 1) -> NoisePlan:
        """The plan for an event that moves so many series by so much."""


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of a stream: the fields of every kind, and what each must be able to say."""

    name: str
    """What the release is called."""

    _: KW_ONLY

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int | Length = 1
    """Published at every so many-th tick, or every so often, such as "1d", where the stream says how long a tick is. Of
    ticks of an hour a day is always 24, also where clocks change; ticks of a day follow the clocks."""

    per: int | Length | None = None
    """What is published is what the last ticks added, and not the total so far: "tick", "24h" or a number of ticks, a
    multiple of `every`. While the stream is younger, it is all there is."""

    history: int | Length | None = None
    """How far back windows may begin at any tick, such as "7d" or a number of ticks; before, at checkpoints, the older
    the fewer. 0 for no windows. Left out, that of the stream, or of 1440 releases, of more than 186,000 listed labels
    fewer. The plan tells what it takes."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    where: str | pl.Expr | Filter | None = None
    """Which events count: a condition such as "age > 60", in SQL or polars, that looks at each event alone."""

    nulls: Nulls = "skip"
    """What becomes of a row without a value that it can count: it adds nothing to this query ("skip"), is refused for
    all queries ("refuse"), or counts under the label (null) ("label")."""

    count_column: str | None = None
    """The column that says how many equal events a row stands for, where rows come already counted: whole numbers of
    at least 0, of which more than 2^30 count as 2^30. What is hidden is one of these events. Without it a row is one
    event."""

    kind: ClassVar[str]
    """What it is called in files."""

    called: ClassVar[str]
    """What it is called in a sentence."""

    tidies: ClassVar[tuple[Tidy, ...]] = (Tidy.NON_NEGATIVE, Tidy.MONOTONE)
    """What may be done to its estimates."""

    null_rules: ClassVar[tuple[Nulls, ...]] = ("skip",)
    """What may become of a row without a value."""

    takes_counts: ClassVar[bool] = False
    """Whether a row may stand for many events."""

    move_bytes: ClassVar[int] = 1
    """At most how many bytes keep by how much one series moved in a tick, as a rule."""

    adds_up: ClassVar[bool] = False
    """Whether the answers for two parts of the stream add up to that for both, if of a window it has what is new."""

    watched: ClassVar[bool] = False
    """Whether it reports what is unusual, and charges those who are in a report."""

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

    nothing: ClassVar[str | int | None] = "\0" * (LONGEST_LABEL + 1)
    """What stands in its column for a row that adds nothing: longer than any label of a domain may be."""

    told: ClassVar[tuple[str, ...]] = ()
    """Which of its own fields a plan tells."""

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Fields that somebody may look for here, and what to ask for instead."""

    def __new__(cls, *_: object, **given: object) -> Self:
        for name in given:
            if name in cls.elsewhere:
                raise ParameterError(f"{name} must be left out of {cls.called}, got one; {cls.elsewhere[name]}")
        return object.__new__(cls)

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Query.__repr__  # type: ignore[method-assign]  # a kind's own would tell all defaults

    def __repr__(self) -> str:
        given = [(each.name, getattr(self, each.name), each.default) for each in fields(self)[1:]]
        told = [f"{name}={value!r}" for name, value, default in given if default is MISSING or value != default]
        return f"{type(self).__name__}({', '.join([repr(self.name), *told])})"

    def __post_init__(self) -> None:
        check_name(name=self.name)
        check_positive(weight=self.weight)
        if not 1e-6 <= self.weight <= 1e6:
            raise ParameterError(f"weight must be between 1e-6 and 1e6, got {self.weight}")
        if self.per == "tick":
            object.__setattr__(self, "per", 1)
        for name, length in {"every": self.every, "per": 1 if self.per is None else self.per}.items():
            if isinstance(length, str | timedelta):
                length_of(length)
            else:
                check_at_least(1, **{name: length})
        self._check_per()
        self._check_history()
        self._check_tidy()
        if self.where is not None:
            condition = Filter.of(self.where)
            if condition.unclear:
                # A stream reads a column as texts or as numbers; read as the wrong one it would match nothing, unseen.
                name = condition.unclear[0]
                raise ParameterError(
                    f"where must compare each column of a stream with a text or a number, got {name!r} without; write "
                    f"{name} = 'true' for booleans, {name} = 1 for 0 and 1. IS NULL alone is refused: nulls= decides"
                )
            object.__setattr__(self, "where", condition.text)
        if self.nulls not in self.null_rules:
            allowed = " or ".join(map(repr, self.null_rules))
            raise ParameterError(f"nulls must be {allowed} for {self.called}, got {self.nulls!r}")
        self._check_counted()
        if self.nulls != "skip" and not (self._own_reads or self.count_column):
            raise ParameterError(f"nulls must be 'skip' for {self.called} that reads no column, got {self.nulls!r}")
        self._check()
        domain = getattr(self, "domain", None)
        listed = [] if domain is None else self.label_parts(domain)
        if self.nulls == "label" and listed and not any(NULL_LABEL in part for part in listed):
            raise ParameterError(f"domain must hold {NULL_LABEL!r} where nulls are counted under it, got one without")

    @property
    def may_fall(self) -> bool:
        """Whether an event may take something from a total, as its value is below 0."""
        return False

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns that its labels are made of; none where it has no labels."""
        return key_names(getattr(self, "key", None))

    @property
    def keys_told(self) -> str:
        """These columns in words."""
        return " and ".join(self.key_names)

    def label_parts(self, domain: Domain) -> list[pl.Series]:
        """The labels of its domain, a column for each column of its key."""
        return [domain.labels] if len(self.key_names) < 2 else split_labels(domain.labels, self.key_names)

    def _check_per(self) -> None:
        if not (isinstance(self.per, int) and isinstance(self.every, int)):
            return
        if self.per % self.every:
            raise ParameterError(f"per must be a multiple of every, {self.every} ticks, got {self.per} ticks")

    def _check_history(self) -> None:
        if self.history is None:
            return
        if isinstance(self.history, str | timedelta):
            length_of(self.history)
        else:
            check_at_least(0, history=self.history)
        if not self.has_windows:
            raise ParameterError(f"history must be left out for {self.called}, got {self.history!r}: it has no windows")
        if isinstance(self.per, int) and isinstance(self.history, int) and not self.per <= self.history:
            raise ParameterError(
                f"history must be at least per, {self.per} ticks that must be kept, got {self.history} ticks"
            )

    @property
    def has_windows(self) -> bool:
        """Whether what the last ticks added may be asked of it."""
        return not self.watched

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

    def _check_tidy(self) -> None:
        try:
            tidy = tuple(Tidy(each) for each in ([self.tidy] if isinstance(self.tidy, str | Tidy) else self.tidy))
        except (ValueError, TypeError):
            allowed = ", ".join(each.value for each in Tidy)
            raise ParameterError(f"tidy must be of {allowed}, got {self.tidy!r}") from None
        object.__setattr__(self, "tidy", tidy)
        if tidy and not self.tidies:
            raise ParameterError(f"tidy must be left out for {self.called}, got something")
        wrong = [each.value for each in tidy if each not in self.tidies]
        if wrong:
            allowed = " or ".join(each.value for each in self.tidies)
            raise ParameterError(f"tidy must be {allowed} for {self.called}, got {wrong[0]}")
        if self.per is not None and Tidy.MONOTONE in tidy:
            raise ParameterError("tidy must not be monotone with per, got it: what the last ticks added may fall")

    def _check_counted(self) -> None:
        if self.count_column is None:
            return
        check_column(count_column=self.count_column)
        if not self.takes_counts:
            raise ParameterError(
                f"count_column must be left out for {self.called}, got one: it is proven for what each event adds one "
                "to; ask for a count, a histogram, a largest count or a top list, or give a row for each event"
            )
        if self.count_column in (*self.key_names, *(each.name for each in self.where_reads)):
            raise ParameterError(
                f"count_column must be a column of its own, got {self.count_column!r} as key or in where too: one "
                "event less would move all events of its row"
            )

    def _check(self) -> None:
        """Refuse what cannot be in the kind's own fields."""

    # What it reads

    @property
    def reads(self) -> tuple[Reads, ...]:
        """The columns that it needs, those of its condition last."""
        counted = () if self.count_column is None else (Reads(self.count_column, Role.NUMBERS),)
        own = (*self._own_reads, *counted)
        return (*own, *(each for each in self.where_reads if each not in own))

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        return ()

    @property
    def where_reads(self) -> tuple[Reads, ...]:
        """The columns that its condition looks at."""
        columns = {} if self.where is None else Filter.of(self.where).columns
        return tuple(Reads(name, Role.LABELS if is_text else Role.NUMBERS) for name, is_text in columns.items())

    def matches(self, frame: pl.DataFrame) -> pl.Series | None:
        """Whether each row matches its condition: what is missing matches nothing. None without a condition."""
        return matching_rows(self.where, frame) if isinstance(self.where, str) else None

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        """What it counts of each row, null where it cannot be counted; None if it counts rows."""
        return None

    @property
    def rule(self) -> str:
        """What it asks of each row."""
        if self.count_column is None:
            return self._own_rule
        of_labels = f", and {self._own_rule}" if self.key_names else ""
        return f"column {self.count_column!r} must hold whole numbers of at least 0{of_labels}"

    @property
    def _own_rule(self) -> str:
        column = self._own_reads[0]
        if column.role is Role.NUMBERS:
            return f"column {column.name!r} must hold finite numbers"
        if len(self.key_names) > 1:
            names = " and ".join(map(repr, self.key_names))
            return f"columns {names} must not be null and must have at most {LONGEST_LABEL} bytes together"
        return f"column {column.name!r} must not be null and its labels must have at most {LONGEST_LABEL} bytes"

    def faults(self, frame: pl.DataFrame) -> pl.Series | None:
        """For each row whether it is refused for all queries, since it should be counted and cannot be; None if not."""
        column = self.column(frame) if self.nulls == "refuse" else None
        return None if column is None else self._of_matching(fault_of(column), frame)

    def cut_off(self, frame: pl.DataFrame) -> pl.Series | None:
        """For each row that matches whether its value lies outside the range; None without a range."""
        return None

    cuts_values: ClassVar[bool] = False
    """Whether it adds up values that a range may cut."""

    def amounts(self, frame: pl.DataFrame) -> tuple[float, float] | None:
        """What it adds up of a frame of events: as the values are, and as they count; None if it adds nothing up."""
        return None

    def _of_matching(self, rows: pl.Series, frame: pl.DataFrame) -> pl.Series:
        matches = self.matches(frame)
        return rows if matches is None else rows & matches

    def sound_column(self, frame: pl.DataFrame) -> pl.Series | None:
        """What it counts of each row of a frame, none of whose rows is refused."""
        faults = self.faults(frame)
        if faults is not None and faults.any():
            raise InputError(f"{self.rule}, got others; mend those rows, or give drop_bad_rows=True")
        return self.column(frame)

    def counted(self, column: pl.Series | None, frame: pl.DataFrame) -> pl.Series | None:
        """For each row whether it adds something: it matches, and has a value. It looks at that row alone."""
        return counted_rows(column, self.matches(frame))

    def batch(self, frame: pl.DataFrame) -> Any:
        """What its mechanism counts of a frame of events: of those that add something."""
        column = self.sound_column(frame)
        counted = self.counted(column, frame)
        content = frame if column is None else column
        return content if counted is None else rows_of(content, counted)

    def user_column(self, frame: pl.DataFrame) -> pl.Series | None:
        """What is counted of each row for a user; all rows are there, since a cap counts them all."""
        column = self.sound_column(frame)
        counted = self.counted(column, frame)
        return column if counted is None else self._only(column, counted)

    def _only(self, column: pl.Series | None, counted: pl.Series) -> pl.Series:
        """The column, with what adds nothing where a row does not count."""
        assert column is not None  # noqa: S101
        return column.set(~counted, self.nothing)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery(Query):
    """A query about the labels of a column, or of several together."""

    key: str | Sequence[str]
    """The column of labels: texts, whole numbers, booleans or dates, or lists of these where an event may hold several.
    Or several columns, such as ["carrier", "dest"], which a release then has in place of `key`."""

    null_rules: ClassVar[tuple[Nulls, ...]] = ("skip", "refuse", "label")
    answer: ClassVar[str] = "number of events of each {0.keys_told}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", checked_key(self.key))
        Query.__post_init__(self)
        check_single(self)

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        return tuple(Reads(name, Role.LABELS, self._holds_lists) for name in self.key_names)

    @property
    def _holds_lists(self) -> bool:
        return False

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        labels = labels_in(self.key_names, frame, label_nulls=self.nulls == "label", several=self._holds_lists)
        if self.count_column is None:
            return labels
        both = pl.DataFrame({"key": labels, "events": event_numbers(self.count_column, frame)})
        sound = ~fault_of(labels) & both["events"].is_not_null()
        return both.select(pl.when(sound).then(pl.struct("key", "events")).alias(self.name)).to_series()

    def most_moved(self, mechanism: Any) -> float | None:
        most = getattr(self, "max_keys_per_event", 1)
        return None if most is None else float(most)

    def left_out(self, chosen: Candidate) -> list[str]:
        return labels_left_out(self, chosen)


def labels_left_out(query: Query, chosen: Candidate) -> list[str]:
    """Which labels are not in the answers of a query, in words."""
    most, domain = getattr(query, "max_keys_per_event", 1), getattr(query, "domain", None)
    found = [] if most in (None, 1) else [f"of an event at most {most} labels count"]
    if domain is not None:
        return [*found, f"labels that are not among the {len(domain)} listed are passed over"]
    return found if query.thresholds(chosen.in_period) is None else [*found, "rarer ones stay hidden"]


def not_listed(query: Query, column: pl.Series | None) -> tuple[int, int] | None:
    """How many labels of a column a query does not list, and how many there are; None where none are listed."""
    domain = getattr(query, "domain", None)
    if not isinstance(domain, Domain) or column is None:
        return None
    labels = column.struct.field("key") if column.dtype == pl.Struct else column
    labels = (labels.explode() if isinstance(labels.dtype, pl.List) else labels).drop_nulls()
    return int((~labels.is_in(domain.labels.implode())).sum()), len(labels)


def check_single(query: Query) -> None:
    """Refuse several labels an event where a label is made of several columns."""
    if len(query.key_names) > 1 and getattr(query, "max_keys_per_event", 1) != 1:
        raise ParameterError("max_keys_per_event must be 1 where key is several columns, got another number")


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


def released_table(estimate: Any, low: Any, high: Any, *, key: Any = None, whole: bool = True) -> pl.DataFrame:
    """The table of a release: of whole numbers, or of numbers; with keys, if there are any."""
    kind = pl.Int64 if whole else pl.Float64
    columns = [] if key is None else [pl.Series("key", key, dtype=pl.String)]
    numbers = (("estimate", estimate), ("low", low), ("high", high))
    return pl.DataFrame([*columns, *(pl.Series(name, each, dtype=kind) for name, each in numbers)])


def with_cap(table: pl.DataFrame, cap: float, open_ends: Sequence[str] = ()) -> pl.DataFrame:
    """A table about users with the column `cap`, the open ends of its bars null."""
    ends = [pl.lit(None, dtype=table.schema[end]).alias(end) for end in open_ends]
    kind = pl.Int64 if isinstance(cap, int) else pl.Float64
    return table.with_columns(*ends, pl.lit(cap, dtype=kind).alias("cap"))


def scaled(table: pl.DataFrame, scale: Fraction) -> pl.DataFrame:
    """Numbers of steps as values, rounded once: post-processing of public whole numbers."""
    return table.with_columns(pl.exclude("key").cast(pl.Float64) * float(scale.numerator) / float(scale.denominator))


def count_table(value: int | LabelCounts | list[tuple[str, int]], error: float, coverage: float) -> pl.DataFrame:
    """The table of a number, of labels with counts, or of a list of both."""
    half = int(error)
    if isinstance(value, int):
        return released_table([value], [value - half], [value + half])
    if isinstance(value, list):
        counts = np.array([count for _, count in value], dtype=np.int64)
        return released_table(counts, counts - half, counts + half, key=[label for label, _ in value])
    counts = value.estimates
    table = released_table(counts, counts - half, counts + half, key=value.labels)
    if value.rest is None:
        return table
    rest = value.rest.estimate
    spread = math.ceil(NormalDist().inv_cdf((1 + coverage) / 2) * value.rest.deviation)
    high = rest + spread + math.ceil(value.rest.lean)
    return pl.concat([table, released_table([rest], [rest - spread], [high], key=[None])])


def even_table(estimates: NDArray[np.int64], around: Bars, *, key: Any) -> pl.DataFrame:
    """The table of whole numbers whose error bars are as those around 0, drawn out to whole numbers."""
    low, high = math.floor(around.low), math.ceil(around.high)
    return released_table(estimates, estimates + low, estimates + high, key=key)


def bars_table(estimates: Sequence[int], bars: Sequence[Bars], *, key: Any = None) -> pl.DataFrame:
    """The table of whole numbers with error bars, drawn out to whole numbers."""
    low, high = [math.floor(each.low) for each in bars], [math.ceil(each.high) for each in bars]
    return released_table(estimates, low, high, key=key)
