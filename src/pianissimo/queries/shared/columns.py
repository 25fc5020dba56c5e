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

from pianissimo.batch_memo import once_a_batch
from pianissimo.errors import InputError, ParameterError
from pianissimo.filters import Filter
from pianissimo.labels import LONGEST_LABEL, Domain, any_too_long, labels_of, listed_labels

LargeDomain = Domain | Sequence[str | int | date | Sequence[str | int | date]] | pl.Series
NULL_LABEL = "(null)"
"""What rows without a label count under, where a query says so; a label that is this text is one of them."""

LABEL_TYPES = (pl.String, pl.Categorical, pl.Enum)

RELEASED_COLUMNS = ("key", "estimate", "low", "high", "cap", "tidy", "start", "end", "since", "tick", "query", "rank")
"""Columns that a table of a release may have beside those of its labels."""

_AS_TEXTS: dict[Any, str] = {pl.Boolean: "= 'true'", pl.Date: "> '2026-03-02'"}
"""What conditions compare as texts although it is none, and how."""

_SEPARATOR, _ESCAPE = "\x1f", "\x1e"
_JOINED = ((_ESCAPE, _ESCAPE + "0"), (_SEPARATOR, _ESCAPE + "1"))
"""How what has a meaning in a joined label is written in its parts. Undone from the last to the first."""


MOST_EVENTS = 2**30
"""A row stands for at most so many events: of 2^32 rows the sum stays within 63 bits."""


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


@once_a_batch
def number_column(name: str, frame: pl.DataFrame) -> pl.Series:
    """A column of finite numbers; null where there is none."""
    column = frame[name]
    if not (column.dtype.is_numeric() or column.dtype == pl.Null):
        raise InputError(f"column {name!r} must hold numbers, got {column.dtype}; cast it first")
    values = column.cast(pl.Float64)
    return values.set(values.is_nan() | values.is_infinite(), None)


@once_a_batch
def event_numbers(name: str, frame: pl.DataFrame) -> pl.Series:
    """How many events each row stands for, at most 2^30; null where that is no whole number of at least 0.

    More are cut, and not refused: one event less than 2^30 + 1 would otherwise bring back all of them.

    >>> event_numbers("n", pl.DataFrame({"n": [3.0, 0.0, -1.0, 0.5, None, 2.0**31]})).to_list()
    [3, 0, None, None, None, 1073741824]
    """
    numbers = number_column(name, frame)
    wrong = (numbers != numbers.floor()) | (numbers < 0)
    return numbers.set(wrong, None).clip(upper_bound=MOST_EVENTS).cast(pl.Int64)


@once_a_batch
def compared_column(name: str, frame: pl.DataFrame) -> pl.Series:
    """A column of numbers as a condition compares it: whole ones as they are, of which floating ones have 53 bits."""
    kind = frame[name].dtype
    if kind in _AS_TEXTS:
        told = f"{name} {_AS_TEXTS[kind]}"
        raise InputError(f"column {name!r} must hold numbers where it is compared with one, got {kind}; write {told}")
    return frame[name].cast(pl.Int128) if kind.is_integer() else number_column(name, frame)


@once_a_batch
def label_column(name: str, frame: pl.DataFrame) -> pl.Series:
    """A column of texts, or of lists of texts; whole numbers, booleans and dates become texts."""
    column = frame[name]
    inner = column.dtype.inner if isinstance(column.dtype, pl.List) else column.dtype
    if labels_of(inner):  # type: ignore[arg-type]
        wanted = pl.List(pl.String) if isinstance(column.dtype, pl.List) else pl.String
        return column if column.dtype == wanted else column.cast(wanted)
    # 1.0 and 1 would be one label here and two in a file of texts.
    way_out = "cast it first"
    if inner.is_float():
        way_out = "cast it to texts, or round it to whole numbers (Int64 in pandas, also where some are missing)"
    elif inner == pl.Datetime:
        way_out = "cast it to dates or texts first"
    raise InputError(
        f"column {name!r} must hold texts, whole numbers, booleans, dates or lists of these, got {column.dtype}; "
        f"{way_out}"
    )


def key_column(name: str, frame: pl.DataFrame, *, label_nulls: bool) -> pl.Series:
    """A column of labels; with `label_nulls`, whatever is none counts under the label of nulls."""
    column = label_column(name, frame)
    bad = fault_of(column) if label_nulls else None
    if bad is None or not bad.any():
        return column
    label = [[NULL_LABEL]] if isinstance(column.dtype, pl.List) else [NULL_LABEL]
    return column.zip_with(~bad, pl.Series(label, dtype=column.dtype).new_from_index(0, len(column)))


def checked_key(key: object) -> Any:
    """The column of labels, or several as a tuple; refuse what is neither."""
    if isinstance(key, str) or not isinstance(key, Sequence):
        check_column(key=key)  # type: ignore[arg-type]
        return key
    if not key:
        raise ParameterError("key must be the name of a column, or of several, got an empty list")
    for each in key:
        check_column(key=each)
    if len(key) == 1:
        return key[0]
    if len(set(key)) != len(key):
        raise ParameterError(f"key must be different columns, got {list(key)}")
    taken = [name for name in key if name in RELEASED_COLUMNS]
    if taken:
        raise ParameterError(
            f"several columns of a key must have names of their own in a release, got {taken[0]!r}; rename that column"
        )
    return tuple(key)


def key_names(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns that labels are made of."""
    return () if key is None else (key,) if isinstance(key, str) else tuple(key)


@once_a_batch
def labels_in(names: tuple[str, ...], frame: pl.DataFrame, *, label_nulls: bool, several: bool = False) -> pl.Series:
    """The labels of a column, or of several as one label each; null where one of them is missing.

    Of lists the first label, unless several of an event count: another query may read the same column as lists.
    """
    parts = [key_column(name, frame, label_nulls=label_nulls) for name in names]
    if not several:
        parts = [first_labels(each) if isinstance(each.dtype, pl.List) else each for each in parts]
    if len(parts) == 1:
        return parts[0]
    joined = join_labels(parts)
    bad = fault_of(joined) if label_nulls else None
    if bad is None or not bad.any():
        return joined
    return joined.zip_with(~bad, join_labels([pl.Series([NULL_LABEL])] * len(parts)).new_from_index(0, len(joined)))


def join_labels(parts: Sequence[pl.Series]) -> pl.Series:
    r"""One label of several parts, null where one of them is: no two rows that differ give the same.

    In the order of its bytes, labels are in the order of their first parts, then of their second ones.

    >>> joined = join_labels([pl.Series(["a", "a\x1fb"]), pl.Series(["b\x1fc", "c"])])
    >>> [part.to_list() for part in split_labels(joined, ("first", "second"))]
    [['a', 'a\x1fb'], ['b\x1fc', 'c']]
    """
    written = []
    for place, part in enumerate(parts):
        column = pl.col(str(place))
        for plain, told in _JOINED:
            column = column.str.replace_all(plain, told, literal=True)
        written.append((part.alias(str(place)), column))
    joined = pl.concat_str([column for _, column in written], separator=_SEPARATOR).alias("key")
    return pl.DataFrame([part for part, _ in written]).select(joined).to_series()


def split_labels(labels: pl.Series, names: Sequence[str]) -> list[pl.Series]:
    """The parts of joined labels, a column each; null where there is no label."""
    fields = labels.str.split_exact(_SEPARATOR, len(names) - 1).struct.unnest()
    parts = []
    for name, field in zip(names, fields.get_columns(), strict=True):
        part = field
        for plain, told in reversed(_JOINED):
            part = part.str.replace_all(told, plain, literal=True)
        parts.append(pl.Series(name, part.to_list(), dtype=pl.String))
    return parts


@once_a_batch
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


@once_a_batch
def matching_rows(where: str, frame: pl.DataFrame) -> pl.Series:
    """Whether each row matches a condition: what is missing matches nothing."""
    condition = Filter.of(where)
    read = {True: label_column, False: compared_column}
    columns = [read[is_text](name, frame) for name, is_text in condition.columns.items()]
    for column in columns:
        if isinstance(column.dtype, pl.List):
            raise InputError(f"column {column.name!r} must hold one label an event for a condition, got lists")
    return condition.matches(pl.DataFrame(columns))


@once_a_batch
def counted_rows(column: pl.Series | None, matches: pl.Series | None) -> pl.Series | None:
    """For each row whether it matches and has a value; None where all do."""
    if column is None or (column.dtype == pl.String and column.null_count() == 0 and not any_too_long(column)):
        return matches
    bad = fault_of(column)
    if not bad.any():
        return matches
    return ~bad if matches is None else ~bad & matches


@once_a_batch
def rows_of(content: Any, counted: pl.Series) -> Any:
    """The rows of a column or a frame that count."""
    return content.filter(counted)


@once_a_batch
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


def domain_of(domain: LargeDomain | None, names: Sequence[str] = ("key",)) -> Domain | None:
    """The domain that a list of labels is; of several columns, a list of lists with a part for each."""
    if isinstance(domain, str):
        raise ParameterError("domain must be a list of texts, got one text")
    if domain is None or (len(names) < 2 and isinstance(domain, Domain)):
        return domain
    if len(names) < 2:
        return Domain(domain)  # type: ignore[arg-type]
    wrong = ParameterError(
        f"domain must be lists of {len(names)} labels, one for each of {', '.join(map(repr, names))}, got others"
    )
    if isinstance(domain, Domain):
        # One that was stored.
        if (domain.labels.str.count_matches(_SEPARATOR, literal=True) + 1 != len(names)).any():
            raise wrong
        return domain
    rows = [list(each) if isinstance(each, list | tuple) else [] for each in domain]
    if not rows or any(len(row) != len(names) for row in rows):
        raise wrong
    parts = [listed_labels([row[place] for row in rows]) for place in range(len(names))]
    return Domain(join_labels(parts))


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
