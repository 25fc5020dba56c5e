"""Conditions that come as polars expressions, by the form in which polars stores these."""

import json
import re
import warnings
from typing import Any

import polars as pl

from pianissimo.errors import ParameterError
from pianissimo.filters.conditions import (
    Condition,
    Operand,
    Value,
    atom_of,
    between,
    beyond_a_row,
    column_named,
    joined,
    literal_of,
    negated,
)


def condition_of_polars(where: pl.Expr) -> Condition:
    """The condition that a polars expression says."""
    return _from_polars(_serialized(where))


def _serialized(where: pl.Expr) -> Any:
    with warnings.catch_warnings():
        # The readable form is not kept stable between versions; what another version writes is refused or the same.
        warnings.simplefilter("ignore")
        try:
            return json.loads(where.meta.serialize(format="json"))
        except (pl.exceptions.PolarsError, ValueError):
            raise beyond_a_row("a function of the caller's own") from None


_POLARS_SIGNS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}

_CLOSED = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}

_SCALARS = {"Int", "Float", "Float64", "String", "Boolean"}
_SCALARS |= {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}


def _from_polars(tree: Any) -> Condition:
    match tree:
        case {"Alias": [inner, _]}:
            return _from_polars(inner)
        case {"Column": _}:
            return atom_of(_polars_operand(tree), "IS TRUE")
        case {"BinaryExpr": {"left": left, "op": "And" | "Or" as word, "right": right}}:
            return joined(word.upper(), map(_from_polars, (left, right)))
        case {"BinaryExpr": {"left": left, "op": str() as word, "right": right}} if word in _POLARS_SIGNS:
            return atom_of(_polars_operand(left), _POLARS_SIGNS[word], _polars_operand(right))
        case {"Function": {"input": [*inner], "function": dict() as function}}:
            return _from_function(function, inner)
    raise beyond_a_row(f"'{next(iter(tree), '')}'")


def _from_function(function: dict[str, Any], inner: list[Any]) -> Condition:
    match function, inner:
        case {"Boolean": "Not"}, [part]:
            return negated(_from_polars(part))
        case {"Boolean": "IsNull"}, [part]:
            return atom_of(_polars_operand(part), "IS NULL")
        case {"Boolean": "IsNotNull"}, [part]:
            return negated(atom_of(_polars_operand(part), "IS NULL"))
        case {"Boolean": {"IsBetween": {"closed": str() as closed}}}, [_, _, _]:
            return between(map(_polars_operand, inner), *_CLOSED[closed])
        case {"Boolean": {"IsIn": {"nulls_equal": False}}}, [value, {"Literal": listed}]:
            return atom_of(_polars_operand(value), "IN", _listed(listed))
        case {"StringExpr": "StartsWith"}, [value, {"Literal": _} as text]:
            return atom_of(_polars_operand(value), "LIKE", f"{_plain(text)}%")
        case {"StringExpr": "EndsWith"}, [value, {"Literal": _} as text]:
            return atom_of(_polars_operand(value), "LIKE", f"%{_plain(text)}")
        case {"StringExpr": {"Contains": {"literal": True}}}, [value, {"Literal": _} as text]:
            return atom_of(_polars_operand(value), "LIKE", f"%{_plain(text)}%")
        case {"StringExpr": {"Contains": _}}, [_, {"Literal": _}]:
            raise ParameterError("where must look for a text as it is, got a pattern; say literal=True")
    raise beyond_a_row(f"'{' '.join(re.findall('[A-Z][A-Za-z]+', json.dumps(function))[:3])}'")


def _plain(tree: Any) -> str:
    text = _polars_operand(tree)
    if not isinstance(text, str) or re.search(r"[%_\\]", text):
        raise ParameterError("where must look for a text without %, _ and backslashes in it")
    return text


def _polars_operand(tree: Any) -> Operand:
    match tree:
        case {"Column": str() as name}:
            return column_named(name)
        case {"Literal": {"Dyn": dict() as content} | {"Scalar": dict() as content}}:
            ((kind, value),) = content.items()
            if kind not in {*_SCALARS, "Null"}:
                raise ParameterError(f"where must compare with texts or numbers of 64 bits, got a literal {kind}")
            return literal_of(None if kind == "Null" else value)
    raise beyond_a_row(f"'{next(iter(tree), '')}'")


def _listed(literal: Any) -> tuple[Value, ...]:
    """The values of a list in `is_in`, which polars writes as bytes of Arrow."""
    content: Any = literal.get("Series", literal.get("Scalar"))
    content = content.get("List") if isinstance(content, dict) else content
    try:
        values = pl.read_ipc_stream(bytes(content)).to_series()
    except (pl.exceptions.PolarsError, ValueError, TypeError):
        raise ParameterError("where must have a list of texts or numbers in is_in, got something else") from None
    return tuple(map(literal_of, (values.explode() if isinstance(values.dtype, pl.List) else values).to_list()))
