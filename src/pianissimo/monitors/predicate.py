"""Predicates of alarms look at one event alone: an allow-list of polars expressions.

One that compares an event with others, as with their mean or with the event before, would let one user move what the
others count for. What is not known to look at one row alone is refused.
"""

import json
import warnings
from typing import Any

import polars as pl

from pianissimo.errors import ParameterError

# The parts of an expression that are themselves expressions, by kind.
_INNER = {
    "Alias": (0,),
    "BinaryExpr": ("left", "right"),
    "Ternary": ("predicate", "truthy", "falsy"),
}
_FUNCTIONS = {
    "Boolean": {"Not", "IsNull", "IsNotNull", "IsIn", "IsBetween", "IsNan", "IsNotNan", "IsFinite"},
    "StringExpr": {"Contains", "StartsWith", "EndsWith", "Lowercase", "Uppercase", "LenBytes", "LenChars"},
    "TemporalExpr": {"Year", "Month", "Day", "WeekDay", "Hour", "Minute", "Second"},
}


def check_row_by_row(where: pl.Expr) -> None:
    """Refuse a predicate that looks, or may look, at other events than its own.

    >>> check_row_by_row((pl.col("temperature") > 39) & pl.col("ward").is_in(["a", "b"]))
    >>> check_row_by_row(pl.col("temperature") > pl.col("temperature").mean())
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: a predicate must look at each event alone, got 'Agg'; compare with a fixed value
    """
    if not isinstance(where, pl.Expr):
        raise ParameterError(f"a predicate must be a polars expression, got {type(where).__name__}")
    with warnings.catch_warnings():
        # The readable form is not kept stable between versions; whatever another version writes is refused or the same.
        warnings.simplefilter("ignore")
        try:
            tree = json.loads(where.meta.serialize(format="json"))
        except (pl.exceptions.PolarsError, ValueError):
            raise _refusal("a function of the caller's own") from None
    _check(tree)


def _check(tree: Any) -> None:
    kind, content = _only_item(tree)
    if kind == "Column":
        return
    if kind == "Literal":
        # Anything but one value, as a series is, would be laid beside the rows.
        if not set(content) <= {"Dyn", "Scalar"}:
            raise _refusal("a column of literals")
        return
    if kind == "Function":
        function = content["function"]
        family, name = _only_item(function) if isinstance(function, dict) else (None, function)
        name = name if isinstance(name, str) else _only_item(name)[0]
        if name not in _FUNCTIONS.get(str(family), ()):
            raise _refusal(name)
        inner = content["input"]
    elif kind in _INNER:
        inner = [content[part] for part in _INNER[kind]]
    else:
        raise _refusal(kind)
    for each in inner:
        _check(each)


def _only_item(tree: Any) -> tuple[str, Any]:
    if isinstance(tree, dict) and len(tree) == 1:
        return next(iter(tree.items()))
    raise _refusal(tree if isinstance(tree, str) else "something unknown")


def _refusal(kind: str) -> ParameterError:
    return ParameterError(f"a predicate must look at each event alone, got '{kind}'; compare with a fixed value")
