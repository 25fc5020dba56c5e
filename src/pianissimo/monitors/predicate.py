"""Predicates of alarms look at one event alone: an allow-list of polars expressions.

One that compares an event with others, as with their mean or with the event before, would let one user move what the
others count for. What is not known to look at one row alone is refused.
"""

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import polars as pl

from pianissimo.errors import ParameterError

# The parts of an expression that are themselves expressions, by kind.
_INNER = {
    "Alias": (0,),
    "BinaryExpr": ("left", "right"),
    "Ternary": ("predicate", "truthy", "falsy"),
    "Cast": ("expr",),
}
_WITH_A_LITERAL = {"IsIn", "Contains", "StartsWith", "EndsWith"}
_COMPARISONS = {"Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq", "EqValidity", "NotEqValidity", "And", "Or", "Xor"}
_FUNCTIONS = {
    "Sql": {"IsIn"},
    "Boolean": {"Not", "IsNull", "IsNotNull", "IsIn", "IsBetween", "IsNan", "IsNotNan", "IsFinite"},
    "StringExpr": {"Contains", "StartsWith", "EndsWith", "Lowercase", "Uppercase", "LenBytes", "LenChars"},
    "TemporalExpr": {"Year", "Month", "Day", "WeekDay", "Hour", "Minute", "Second"},
}


@dataclass(frozen=True, slots=True, eq=False)
class Predicate:
    """A condition on single events, and the columns it looks at.

    >>> Predicate.of("symptom IN ('fever', 'cough') AND age > 60").columns
    {'age': False, 'symptom': True}
    """

    expression: pl.Expr
    columns: dict[str, bool]
    """The columns by name, and whether each holds texts; the others hold numbers."""

    @classmethod
    def of(cls, where: str | pl.Expr) -> "Predicate":
        """Understand SQL or a polars expression, or refuse it."""
        return _understood(where) if isinstance(where, str) else cls._from(where)

    @classmethod
    def _from(cls, where: pl.Expr) -> "Predicate":
        check_row_by_row(where)
        texts = frozenset(_text_columns(_tree(where)))
        names = sorted(set(where.meta.root_names()))
        if not names:
            raise ParameterError("a predicate must look at a column, got none")
        return cls(where, {name: name in texts for name in names})

    def matches(self, frame: pl.DataFrame) -> pl.Series:
        """Whether each row matches; a row without the value that it takes does not.

        >>> frame = pl.DataFrame({"age": [70.0, 30.0, None]})
        >>> Predicate.of("age > 60").matches(frame).to_list()
        [True, False, False]
        """
        try:
            found = frame.select(self.expression.alias("match"))["match"]
        except pl.exceptions.PolarsError:
            # It depends on the types of the columns alone; polars' own words may hold values.
            raise ParameterError("a predicate must compare texts with texts and numbers with numbers") from None
        if found.dtype != pl.Boolean:
            raise ParameterError(f"a predicate must be true or false, got {found.dtype}")
        return found.fill_null(value=False)


@lru_cache(maxsize=256)
def _understood(where: str) -> Predicate:
    try:
        expression = pl.sql_expr(where)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        raise ParameterError("where must be a condition such as \"symptom = 'fever'\", got what is not SQL") from None
    return Predicate._from(expression)


def check_row_by_row(where: pl.Expr) -> None:
    """Refuse a predicate that looks, or may look, at other events than its own.

    >>> check_row_by_row((pl.col("temperature") > 39) & pl.col("ward").is_in(["a", "b"]))
    >>> check_row_by_row(pl.col("temperature") > pl.col("temperature").mean())
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: a predicate must look at each event alone, got 'Agg'; compare with a fixed value
    """
    if not isinstance(where, pl.Expr):
        raise ParameterError(f"a predicate must be a polars expression, got {type(where).__name__}")
    _check(_tree(where))


def _tree(where: pl.Expr) -> Any:
    with warnings.catch_warnings():
        # The readable form is not kept stable between versions; whatever another version writes is refused or the same.
        warnings.simplefilter("ignore")
        try:
            return json.loads(where.meta.serialize(format="json"))
        except (pl.exceptions.PolarsError, ValueError):
            raise _refusal("a function of the caller's own") from None


def _text_columns(tree: Any) -> Iterator[str]:
    """The columns that are compared with texts, or given to functions of texts."""
    kind, content = _only_item(tree)
    if kind == "Function":
        inner = content["input"]
        function = content["function"]
        is_text = isinstance(function, dict) and "StringExpr" in function
    else:
        inner = [content[part] for part in _INNER.get(kind, ())]
        is_text = False
    if is_text or any(_is_text_literal(each) for each in inner):
        yield from (column for each in inner if (column := each.get("Column")) is not None)
    for each in inner:
        yield from _text_columns(each)


def _is_text_literal(tree: Any) -> bool:
    literal = tree.get("Literal") if isinstance(tree, dict) else None
    if literal is None:
        return False
    kinds = json.dumps(literal)
    # A list after IN is kept as bytes; whether these are of texts, its own type tells.
    return '"String"' in kinds or _is_list_of_texts(literal)


def _is_list_of_texts(literal: Any) -> bool:
    values = _listed(literal)
    return values is not None and values.dtype in (pl.String, pl.List(pl.String))


def _listed(literal: Any) -> pl.Series | None:
    """The list that a literal is, or None for one value."""
    content = literal.get("Series", literal.get("Scalar")) if isinstance(literal, dict) else None
    content = content.get("List") if isinstance(content, dict) else content
    if not isinstance(content, list):
        return None
    try:
        return pl.read_ipc_stream(bytes(content)).to_series()
    except (pl.exceptions.PolarsError, ValueError, TypeError):
        return None


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
        if name in _WITH_A_LITERAL:
            # What a column of other rows' values would be looked up in, and a pattern that one row could spoil for all.
            if not (len(inner) == 2 and isinstance(inner[1], dict) and "Literal" in inner[1]):
                raise _refusal(f"{name} of a column")
            inner = inner[:1]
    elif kind in _INNER:
        inner = [content[part] for part in _INNER[kind]]
    else:
        raise _refusal(kind)
    # SQL writes NOT around a truth value that is cast to one; any other cast may fail at a row, and tell of it.
    if kind == "Cast" and not (content["dtype"] == {"Literal": "Boolean"} and _is_truth_value(inner[0])):
        raise _refusal(kind)
    for each in inner:
        _check(each)


def _is_truth_value(tree: Any) -> bool:
    kind, content = _only_item(tree)
    if kind == "BinaryExpr":
        return content["op"] in _COMPARISONS
    function = content["function"] if kind == "Function" else None
    return isinstance(function, dict) and not {"Boolean", "Sql"}.isdisjoint(function)


def _only_item(tree: Any) -> tuple[str, Any]:
    if isinstance(tree, dict) and len(tree) == 1:
        return next(iter(tree.items()))
    raise _refusal(tree if isinstance(tree, str) else "something unknown")


def _refusal(kind: str) -> ParameterError:
    return ParameterError(f"a predicate must look at each event alone, got '{kind}'; compare with a fixed value")
