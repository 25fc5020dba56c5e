"""What all queries share: the columns they read, what may be done to their estimates, and checks."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import polars as pl

from pianissimo.checks import check_at_least, check_name, check_positive
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain

LargeDomain = Domain | Sequence[str] | pl.Series


class Role(Enum):
    """How the values of a column are read.

    >>> Role("labels")
    <Role.LABELS: 'labels'>
    """

    LABELS = "labels"
    """Texts, or lists of texts; whole numbers become texts."""

    NUMBERS = "numbers"
    """Finite numbers."""

    USERS = "users"
    """Whole numbers or texts that say whose event it is."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the events and how it is read.

    >>> Column("drug", Role.LABELS).holds_lists
    False
    """

    name: str
    role: Role
    holds_lists: bool = False
    """Whether an event may hold several labels."""


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


def check_common(query: Any) -> None:
    """Check the fields that every query has, and make its `tidy` a tuple."""
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


def check_column(**column: str) -> None:
    """Refuse what is no name of a column.

    >>> check_column(key="")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: key must be the name of a column, got ''
    """
    for name, value in column.items():
        if not isinstance(value, str) or not value:
            raise ParameterError(f"{name} must be the name of a column, got {value!r}")


def check_outside(outside: str) -> None:
    """Refuse what is no rule for values outside a range.

    >>> check_outside("drop")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: outside must be 'clamp' or 'refuse', got 'drop'
    """
    if outside not in ("clamp", "refuse"):
        raise ParameterError(f"outside must be 'clamp' or 'refuse', got {outside!r}")


def domain_of(domain: LargeDomain | None) -> Domain | None:
    """The domain that a list of labels is.

    >>> len(domain_of(["a", "b"]) or ())
    2
    """
    if isinstance(domain, str):
        raise ParameterError("domain must be a list of texts, got one text")
    return domain if domain is None or isinstance(domain, Domain) else Domain(domain)
