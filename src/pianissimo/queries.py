"""What is wanted of a stream: the queries a user writes down."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from fractions import Fraction

import polars as pl

from pianissimo.checks import check_at_least, check_name, check_positive
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain

LargeDomain = Domain | Sequence[str] | pl.Series

_MOST_STEPS = 2**40


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
class Count:
    """The number of events so far.

    >>> Count("purchases").every
    1
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    def __post_init__(self) -> None:
        _check_common(self)
        if Tidy.RANKED in self.tidy:
            raise ParameterError("tidy must be non_negative or monotone for a count, got ranked")


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of the events' values so far.

    >>> Sum("revenue", value="price", range=(0, 500), grid=0.01).steps
    (0, 50000)
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    value: str
    """The column of values: numbers."""

    range: tuple[float, float]
    """The least and the largest value that counts; values outside are moved to the nearer end."""

    grid: float | Fraction = 1
    """Values are rounded to multiples of it, each by itself; both ends of the range are multiples."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    def __post_init__(self) -> None:
        _check_common(self)
        _check_column(value=self.value)
        check_positive(grid=self.grid)
        if not 1e-12 <= self.grid <= 1e12:
            raise ParameterError(f"grid must be between 1e-12 and 1e12, got {float(min(self.grid, 10**300)):g}")
        if not (isinstance(self.range, Sequence) and len(self.range) == 2):
            raise ParameterError(f"range must be two numbers, got {self.range!r}")
        low, high = self.steps
        if Tidy.RANKED in self.tidy or (Tidy.MONOTONE in self.tidy and low < 0):
            raise ParameterError("tidy must be non_negative, or monotone for values without a sign, for a sum")
        if not low < high:
            raise ParameterError(f"range must begin below its end, got {self.range[0]} to {self.range[1]}")
        if not max(abs(low), abs(high)) <= _MOST_STEPS:
            raise ParameterError("range must have at most 2^40 steps of the grid, got more; take a coarser grid")

    @property
    def exact_grid(self) -> Fraction:
        """The grid as the decimal number it was written as: 0.01 is one hundredth."""
        return self.grid if isinstance(self.grid, Fraction) else Fraction(repr(self.grid))

    @property
    def steps(self) -> tuple[int, int]:
        """Both ends of the range in steps of the grid."""
        ends = []
        for end in self.range:
            try:
                steps = Fraction(repr(end) if isinstance(end, float) else end) / self.exact_grid
            except (TypeError, ValueError):
                raise ParameterError(f"range must be two finite numbers, got {end!r}") from None
            if steps.denominator != 1:
                raise ParameterError(f"range must begin and end on multiples of the grid {self.grid}, got {end}")
            ends.append(int(steps))
        return ends[0], ends[1]


@dataclass(frozen=True, slots=True)
class Histogram:
    """The number of events so far that hold each label.

    >>> Histogram("regions", key="region", domain=["north", "south"]).domain
    Domain(2 labels, digest c148ba...)
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    key: str
    """The column of labels: texts, or lists of texts where an event holds several."""

    domain: LargeDomain | None = None
    """The labels, if they are known and public; without it, labels are shown once they pass a threshold."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count; the others are cut, first come first kept within the event."""

    remember: bool = True
    """Without a domain: once shown, a label is always shown."""

    other: bool = False
    """Without a domain: also an estimate of all labels that are not shown, in a row without key."""

    constant_threshold: bool = False
    """Without a domain: one threshold for all ticks, below the largest of those that change with the tick."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    def __post_init__(self) -> None:
        _check_common(self)
        _check_column(key=self.key)
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        object.__setattr__(self, "domain", _domain_of(self.domain))
        if Tidy.RANKED in self.tidy:
            raise ParameterError("tidy must be non_negative or monotone for a histogram, got ranked")
        if self.domain is not None and (self.other or self.constant_threshold):
            raise ParameterError(
                "other and constant_threshold must stay off where the domain is known, got one of them on"
            )


@dataclass(frozen=True, slots=True)
class TopK:
    """The labels that most events hold so far, with their numbers.

    >>> TopK("top_drugs", key="drug", k=10).k
    10
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    key: str
    """The column of labels: texts, or lists of texts where an event holds several."""

    k: int
    """How many labels are listed."""

    domain: LargeDomain | None = None
    """The labels, if they are known and public."""

    max_keys_per_event: int | None = 1
    """How many distinct labels of one event count; None for any number."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    def __post_init__(self) -> None:
        _check_common(self)
        _check_column(key=self.key)
        check_at_least(1, k=self.k)
        if self.max_keys_per_event is not None:
            check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        domain = _domain_of(self.domain)
        object.__setattr__(self, "domain", domain)
        if Tidy.RANKED in self.tidy and Tidy.MONOTONE in self.tidy:
            raise ParameterError("tidy must be ranked or monotone for a top list, got both")
        if domain is not None and not self.k <= len(domain):
            raise ParameterError(f"k must be at most the {len(domain)} labels of the domain, got {self.k}")


Query = Count | Sum | Histogram | TopK


def _check_common(query: Query) -> None:
    check_name(name=query.name)
    check_positive(weight=query.weight)
    if not 1e-6 <= query.weight <= 1e6:
        raise ParameterError(f"weight must be between 1e-6 and 1e6, got {query.weight}")
    check_at_least(1, every=query.every)
    try:
        tidy = tuple(Tidy(each) for each in ([query.tidy] if isinstance(query.tidy, str | Tidy) else query.tidy))
    except (ValueError, TypeError):
        allowed = ", ".join(each.value for each in Tidy)
        raise ParameterError(f"tidy must be of {allowed}, got {query.tidy!r}") from None
    object.__setattr__(query, "tidy", tidy)


def _check_column(**column: str) -> None:
    for name, value in column.items():
        if not isinstance(value, str) or not value:
            raise ParameterError(f"{name} must be the name of a column, got {value!r}")


def _domain_of(domain: LargeDomain | None) -> Domain | None:
    if isinstance(domain, str):
        raise ParameterError("domain must be a list of texts, got one text")
    return domain if domain is None or isinstance(domain, Domain) else Domain(domain)
