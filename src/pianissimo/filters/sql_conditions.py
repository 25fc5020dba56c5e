"""Conditions that come as SQL: sqlglot reads them, and what has no rule is refused."""

import re
from itertools import chain
from typing import TYPE_CHECKING, Any

from pianissimo.errors import ParameterError
from pianissimo.filters.conditions import (
    Condition,
    Operand,
    atom_of,
    between,
    beyond_a_row,
    column_named,
    joined,
    literal_of,
    negated,
)

if TYPE_CHECKING:
    from sqlglot import exp

_LONGEST_NUMBER = 30


def condition_of_sql(where: str) -> Condition:
    """The condition that some SQL says."""
    return _read(_parsed(where))


def _parsed(where: str) -> "exp.Expr":
    from sqlglot import tokenize
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import SqlglotError

    try:
        tokens = tokenize(where)
        trees = Dialect.get_or_raise(None).parse(where)
    except SqlglotError:
        raise ParameterError("where must be a condition such as country = 'DE', got what is not SQL") from None
    if any(token.token_type.name == "SEMICOLON" for token in tokens) or len(trees) != 1 or trees[0] is None:
        raise ParameterError("where must be one condition, got another number of them")
    # A comment without a token to hang on is no token either.
    if any(each.comments for each in chain[Any](tokens, trees[0].walk())):
        raise ParameterError("where must be a condition, got a comment in it")
    return trees[0]


_SQL_SIGNS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}

_PARTS_READ: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Paren", "Not", "Neg", "Boolean", "Column"), ("this",)),
    **dict.fromkeys(("And", "Or", *_SQL_SIGNS), ("this", "expression")),
    **dict.fromkeys(("Is", "Like"), ("this", "expression", "negate")),
    "Between": ("this", "low", "high", "negate"),
    "In": ("this", "expressions", "negate"),
    "Literal": ("this", "is_string"),
}
"""The nodes of sqlglot that are read, and the parts of each that our rules look at.

sqlglot keeps what changes a node's meaning in parts of it: `NOT LIKE` is `LIKE` with a part that says no.
"""


def _known(node: Any) -> str:
    """What kind of node it is, if nothing of it would be overlooked."""
    if any(node.args.get(part) for part in ("table", "db", "catalog")):
        raise ParameterError("where must name columns without a table before them")
    kind = type(node).__name__
    if any(value for name, value in node.args.items() if name not in _PARTS_READ.get(kind, ())):
        raise _refused(node)
    return kind


def _read(node: Any) -> Condition:
    kind = _known(node)
    match kind:
        case "Paren":
            return _read(node.this)
        case "And" | "Or":
            parts = []
            while _known(node) == kind:  # long chains lean to the left
                node, last = node.this, node.expression
                parts.append(last)
            return joined(kind.upper(), map(_read, (node, *reversed(parts))))
        case "Not":
            return negated(_read(node.this))
        case "Column":
            return atom_of(_operand(node), "IS TRUE")
        case "Between":
            found = between(_operand(node.args[part]) for part in ("this", "low", "high"))
        case "In":
            found = atom_of(_operand(node.this), "IN", tuple(map(_operand, node.expressions)))
        case "Like":
            found = atom_of(_operand(node.this), "LIKE", _operand(node.expression))
        case "Is" if type(node.expression).__name__ == "Null":
            found = atom_of(_operand(node.this), "IS NULL")
        case "Is":
            raise ParameterError(
                "where must have NULL after IS; write paid = TRUE for a truth value, paid = 'true' in a stream"
            )
        case _ if kind in _SQL_SIGNS:
            return atom_of(_operand(node.this), _SQL_SIGNS[kind], _operand(node.expression))
        case _:
            raise _refused(node)
    return negated(found) if node.args.get("negate") else found


def _operand(node: Any) -> Operand:
    match _known(node):
        case "Paren":
            return _operand(node.this)
        case "Column" if node.this.args.get("quoted") or re.fullmatch(r"[^\W\d]\w*", node.name):
            return column_named(node.name)
        case "Boolean":
            return bool(node.this)
        case "Literal":
            return literal_of(node.this if node.is_string else _number(node.this))
        case "Neg" if type(node.this).__name__ == "Literal" and not node.this.is_string:
            return literal_of(-_number(node.this.this))
    raise _refused(node)


def _number(digits: str) -> int | float:
    """The number, if it is one that is written with digits, a point and an exponent."""
    if len(digits) > _LONGEST_NUMBER or not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", digits):
        raise ParameterError("where must have numbers of at most 64 bits")
    number = int(digits) if digits.isdigit() else float(digits)
    if number == 0 and re.match("[0.]*[1-9]", digits):
        raise ParameterError("where must have numbers of at most 64 bits, got one too small to be told from zero")
    return number


def _refused(node: Any) -> ParameterError:
    from sqlglot import exp

    names: dict[str, tuple[type, ...]] = {
        "a subquery": (exp.Query, exp.Subquery, exp.Exists, exp.In),
        "a window function": (exp.Window,),
        "an aggregate": (exp.AggFunc,),
        "a cast": (exp.Cast,),
        "a function": (exp.Func,),
        "another operator": (exp.Binary, exp.Unary),
    }
    found = (name for name, kinds in names.items() if isinstance(node, kinds))
    return beyond_a_row(next(found, type(node).__name__.lower()))
