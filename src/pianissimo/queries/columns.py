"""Queries about one column of the events: of labels, or of numbers within a range."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import polars as pl

from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.queries.query import LargeDomain, Query, Reads, Role, label_column, number_column


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery(Query):
    """A query about the labels of one column."""

    key: str
    """The column of labels: texts, or lists of texts where an event may hold several."""

    def __post_init__(self) -> None:
        check_column(key=self.key)
        Query.__post_init__(self)

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        return (Reads(self.key, Role.LABELS, self._holds_lists),)

    @property
    def _holds_lists(self) -> bool:
        return False

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        return label_column(self.key, frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueQuery(Query):
    """A query about the numbers of one column."""

    value: str
    """The column of values: numbers."""

    range: tuple[float, float]
    """Where values lie, such as [0, 500]: public; see `outside`."""

    outside: Literal["clamp", "refuse"] = "clamp"
    """What happens to values outside the range: they are moved to the nearer end, or the row is refused."""

    def __post_init__(self) -> None:
        check_column(value=self.value)
        if self.outside not in ("clamp", "refuse"):
            raise ParameterError(f"outside must be 'clamp' or 'refuse', got {self.outside!r}")
        if not (isinstance(self.range, Sequence) and len(self.range) == 2 and all(map(_is_finite, self.range))):
            raise ParameterError(f"range must be two finite numbers such as [0, 500], got {self.range!r}")
        low, high = self.range
        if not low < high:
            raise ParameterError(f"range must begin below its end, got {low} to {high}")
        object.__setattr__(self, "range", (low, high))
        Query.__post_init__(self)

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        return (Reads(self.value, Role.NUMBERS),)

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        return self._values(frame)

    def _values(self, frame: pl.DataFrame) -> pl.Series:
        """The values, those outside the range missing where they are refused."""
        values, (low, high) = number_column(self.value, frame), self.range
        return values if self.outside == "clamp" else values.set((values < low) | (values > high), None)

    @property
    def rule(self) -> str:
        within = f" within {self.range[0]} and {self.range[1]}" if self.outside == "refuse" else ""
        return f"column {self.value!r} must hold finite numbers{within}"


def exactly(number: Any) -> Fraction:
    """A number as it was written: 0.01 is one hundredth.

    >>> exactly(0.01)
    Fraction(1, 100)
    """
    return Fraction(repr(float(number))) if isinstance(number, float | np.floating) else Fraction(int(number))


def check_column(**column: str) -> None:
    """Refuse what is no name of a column.

    >>> check_column(key="")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: key must be the name of a column, got ''
    """
    for name, value in column.items():
        if not isinstance(value, str) or not value:
            raise ParameterError(f"{name} must be the name of a column, got {value!r}")


def check_flags(**flag: bool) -> None:
    """Refuse what is neither true nor false.

    >>> check_flags(remember="yes")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: remember must be true or false, got 'yes'
    """
    for name, value in flag.items():
        if not isinstance(value, bool):
            raise ParameterError(f"{name} must be true or false, got {value!r}")


def domain_of(domain: LargeDomain | None) -> Domain | None:
    """The domain that a list of labels is.

    >>> len(domain_of(["a", "b"]) or ())
    2
    """
    if isinstance(domain, str):
        raise ParameterError("domain must be a list of texts, got one text")
    return domain if domain is None or isinstance(domain, Domain) else Domain(domain)


def _is_finite(number: object) -> bool:
    if isinstance(number, bool) or not isinstance(number, int | float | Fraction | np.integer | np.floating):
        return False
    return not isinstance(number, float | np.floating) or math.isfinite(number)
