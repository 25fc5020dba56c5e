"""From frames to columns that can be counted. What a row counts as depends on that row alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl

from pianissimo.errors import InputError, ParameterError
from pianissimo.labels import LONGEST_LABEL, Domain, any_too_long, labels_of

LargeDomain = Domain | Sequence[str | int | date] | pl.Series
NULL_LABEL = "(null)"
"""What rows without a label count under, where a query says so; a label that is this text is one of them."""

LABEL_TYPES = (pl.String, pl.Categorical, pl.Enum)


class Role(Enum):
    """How the values of a column are read."""

    LABELS = "labels"
    """Texts, or lists of texts; whole numbers, booleans and dates become texts."""

    NUMBERS = "numbers"
    """Finite numbers."""

    USERS = "users"
    """Whole numbers or texts that say whose event it is."""


@dataclass(frozen=True, slots=True)
class Reads:
    """A column of the events and how it is read."""

    name: str
    role: Role
    holds_lists: bool = False
    """Whether an event may hold several labels."""


def number_column(name: str, frame: pl.DataFrame) -> pl.Series:
    """A column of finite numbers; null where there is none."""
    column = frame[name]
    if not (column.dtype.is_numeric() or column.dtype == pl.Null):
        raise InputError(f"column {name!r} must hold numbers, got {column.dtype}; cast it first")
    values = column.cast(pl.Float64)
    return values.set(values.is_nan() | values.is_infinite(), None)


def compared_column(name: str, frame: pl.DataFrame) -> pl.Series:
    """A column of numbers as a condition compares it: whole ones as they are, of which floating ones have 53 bits."""
    return frame[name].cast(pl.Int128) if frame[name].dtype.is_integer() else number_column(name, frame)


def label_column(name: str, frame: pl.DataFrame) -> pl.Series:
    """A column of texts, or of lists of texts; whole numbers, booleans and dates become texts."""
    column = frame[name]
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if labels_of(inner):  # type: ignore[arg-type]
        wanted = pl.List(pl.String) if isinstance(column.dtype, pl.List) else pl.String
        return column if column.dtype == wanted else column.cast(wanted)
    raise InputError(
        f"column {name!r} must hold texts, whole numbers, booleans, dates or lists of these, got {column.dtype}; "
        "cast it first"
    )


def key_column(name: str, frame: pl.DataFrame, *, label_nulls: bool) -> pl.Series:
    """A column of labels; with `label_nulls`, whatever is none counts under the label of nulls."""
    column = label_column(name, frame)
    bad = fault_of(column) if label_nulls else None
    if bad is None or not bad.any():
        return column
    label = [[NULL_LABEL]] if isinstance(column.dtype, pl.List) else [NULL_LABEL]
    return column.zip_with(~bad, pl.Series(label, dtype=column.dtype).new_from_index(0, len(column)))


def fault_of(column: pl.Series) -> pl.Series:
    """For each row whether it cannot be counted: no value, a label too long, or a list with one of these."""
    if isinstance(column.dtype, pl.List):
        element = pl.element()
        bad = element.is_null() | (element.str.len_bytes() > LONGEST_LABEL)
        return column.is_null() | column.list.eval(bad).list.any().fill_null(value=False)
    if column.dtype != pl.String:
        return column.is_null()
    if column.null_count() == 0 and not any_too_long(column):
        return pl.repeat(value=False, n=len(column), eager=True, dtype=pl.Boolean)
    return column.is_null() | (column.str.len_bytes() > LONGEST_LABEL).fill_null(value=False)


def first_labels(column: pl.Series) -> pl.Series:
    """Of lists of labels the first, where one counts; null where a list holds what is no label, as where all count."""
    # A list of one is that label, also where it is too long: as one, it stands beside lists of others.
    bad = pl.Series("bad", fault_of(column) & (column.list.len() != 1))
    return pl.select(pl.when(~bad).then(column.list.first()).alias(column.name)).to_series()


def exactly(number: Any) -> Fraction:
    """A number as it was written: 0.01 is one hundredth."""
    if isinstance(number, Fraction):
        return number
    return Fraction(repr(float(number))) if isinstance(number, float | np.floating) else Fraction(int(number))


def check_column(**column: str) -> None:
    """Refuse what is no name of a column."""
    for name, value in column.items():
        if not isinstance(value, str) or not value:
            raise ParameterError(f"{name} must be the name of a column, got {value!r}")


def check_flags(**flag: bool) -> None:
    """Refuse what is neither true nor false."""
    for name, value in flag.items():
        if not isinstance(value, bool):
            raise ParameterError(f"{name} must be true or false, got {value!r}")


def domain_of(domain: LargeDomain | None) -> Domain | None:
    """The domain that a list of labels is."""
    if isinstance(domain, str):
        raise ParameterError("domain must be a list of texts, got one text")
    return domain if domain is None or isinstance(domain, Domain) else Domain(domain)


def is_finite(number: object) -> bool:
    """Whether it is a number that is finite."""
    if isinstance(number, bool) or not isinstance(number, int | float | Fraction | np.integer | np.floating):
        return False
    return not isinstance(number, float | np.floating) or math.isfinite(number)


def told_value(name: str, value: Any) -> Any:
    """A field as a plan tells it: of a domain the number of its labels, fractions as numbers."""
    if name == "domain":
        return "unknown" if value is None else f"{len(value)} labels"
    if isinstance(value, tuple):
        return [told_value(name, each) for each in value]
    return float(value) if isinstance(value, Fraction | np.generic) else value
