"""What a query asks: its fields, and the columns that it reads of a batch of events.

The fields, their defaults and their docstrings are what a TOML file may say, what a store keeps and what the documents
show. How a query is answered is in `query.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from datetime import timedelta
from enum import Enum
from typing import Any, ClassVar, Literal, Self

import polars as pl

from pianissimo.checks import Length, check_at_least, check_name, check_positive, length_of
from pianissimo.errors import InputError, ParameterError
from pianissimo.filters import Filter
from pianissimo.identity import identified
from pianissimo.labels import LONGEST_LABEL, Domain
from pianissimo.queries.shared.columns import (
    NULL_LABEL,
    Reads,
    Role,
    check_column,
    counted_rows,
    fault_of,
    key_names,
    matching_rows,
    rows_of,
    split_labels,
)

Nulls = Literal["skip", "refuse", "label"]


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


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a stream: the fields of every kind, and the columns that it reads."""

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

    watched: ClassVar[bool] = False
    """Whether it reports what is unusual, and charges those who are in a report."""

    nothing: ClassVar[str | int | None] = "\0" * (LONGEST_LABEL + 1)
    """What stands in its column for a row that adds nothing: longer than any label of a domain may be."""

    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Fields that somebody may look for here, and what to ask for instead."""

    def __new__(cls, *_: object, **given: object) -> Self:
        for name in given:
            if name in cls.elsewhere:
                raise ParameterError(f"{name} must be left out of {cls.called}, got one; {cls.elsewhere[name]}")
        return object.__new__(cls)

    def __init_subclass__(cls) -> None:
        cls.__repr__ = Asked.__repr__  # type: ignore[method-assign]  # a kind's own would tell all defaults

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
