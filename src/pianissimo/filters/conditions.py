"""The tree of a condition on single rows: how it is made, checked, shown and run."""

import math
import operator
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import polars as pl

from pianissimo.checks import is_utf8
from pianissimo.errors import ParameterError

DEEPEST = 32
_LONGEST_PATTERN = 1_000
_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

Value = str | int | float
"""A literal. A floating number with a whole value of 64 bits is kept as a whole one."""


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column that a condition looks at."""

    name: str


@dataclass(frozen=True, slots=True)
class Atom:
    """One look at a column: beside a literal, a list of them, a pattern, another column, or nothing."""

    column: ColumnName
    sign: str
    """`=` and its like, `IN`, `LIKE`, `IS NULL` or `IS TRUE`."""

    other: Value | tuple[Value, ...] | ColumnName | None = None


@dataclass(frozen=True, slots=True)
class Junction:
    """Conditions under `AND` or `OR`, or one under `NOT`. One under AND is none with AND itself; OR and NOT alike."""

    word: str
    parts: tuple["Condition", ...]


Condition = Atom | Junction
Operand = ColumnName | Value


def joined(word: str, parts: Iterable[Condition]) -> Condition:
    """Conditions under one word: those of a condition that has it already are its own."""
    return Junction(word, tuple(chain.from_iterable(_under(word, part) or (part,) for part in parts)))


def _under(word: str, part: Condition) -> tuple[Condition, ...]:
    return part.parts if isinstance(part, Junction) and part.word == word else ()


def negated(part: Condition) -> Condition:
    """A condition under NOT."""
    return _under("NOT", part)[0] if _under("NOT", part) else Junction("NOT", (part,))


def atom_of(left: Operand, sign: str, right: Any = None) -> Condition:
    """One look at a column, which stands first; refuse what has no rule."""
    if not isinstance(left, ColumnName) and isinstance(right, ColumnName) and sign in _MIRRORED:
        left, sign, right = right, _MIRRORED[sign], left
    if not isinstance(left, ColumnName):
        raise ParameterError("where must look at a column in every comparison, got literals alone")
    if sign == "IN" and (not right or any(isinstance(each, ColumnName | bool) for each in right)):
        raise ParameterError("where must have a list of texts or numbers after IN")
    if sign == "IN" and len({isinstance(each, str) for each in right}) > 1:
        raise ParameterError("where must have texts alone or numbers alone in a list after IN")
    if sign == "LIKE" and (not isinstance(right, str) or "\\" in right or len(right) > _LONGEST_PATTERN):
        # A pattern that ends in an escape is an error in some engines, and only once a row is looked at.
        raise ParameterError(
            f"where must have a literal of at most {_LONGEST_PATTERN} characters, without backslashes, after LIKE"
        )
    if not isinstance(right, bool):
        return Atom(left, sign, right)
    if sign not in ("=", "<>"):
        raise ParameterError("where must compare truth values by = or <>, got another sign")
    flag = Atom(left, "IS TRUE")
    return flag if right == (sign == "=") else negated(flag)


def between(operands: Iterable[Operand], low_sign: str = ">=", high_sign: str = "<=") -> Condition:
    """A value between two others."""
    value, low, high = operands
    return joined("AND", [atom_of(value, low_sign, low), atom_of(value, high_sign, high)])


def column_named(name: str) -> ColumnName:
    """A column, if every engine takes its name."""
    if not name or "\0" in name or not is_utf8(name):
        raise ParameterError("where must name columns by texts of UTF-8, without NUL")
    return ColumnName(name)


def literal_of(value: object) -> Value:
    """A value that every engine takes as it is."""
    match value:
        case bool():
            return value
        case str():
            if "\0" in value or not is_utf8(value):
                raise ParameterError("where must have texts of UTF-8 without NUL, got a NUL or a lone surrogate")
            return value
        case int() if -(2**63) < value < 2**63:
            return value
        # PostgreSQL refuses what is too small to be told from zero.
        case float() if math.isfinite(value) and (value == 0 or abs(value) >= sys.float_info.min):
            return int(value) if value.is_integer() and abs(value) < 2**63 else value
        case int() | float():
            raise ParameterError("where must have numbers of at most 64 bits")
    raise ParameterError("where must compare with texts, numbers, TRUE or FALSE; write IS NULL for a missing value")


def depth_of(condition: Condition) -> int:
    """How deep a condition nests."""
    return 1 + max(map(depth_of, condition.parts)) if isinstance(condition, Junction) else 0


def _atoms(condition: Condition) -> Iterator[Atom]:
    return iter((condition,)) if isinstance(condition, Atom) else chain.from_iterable(map(_atoms, condition.parts))


def kinds_of(condition: Condition) -> dict[str, str | None]:
    """What each column holds, as far as it is compared with something."""
    atoms = list(_atoms(condition))
    together: dict[str, set[str]] = {}  # with which columns it is compared, so that they hold the same
    for atom in atoms:
        names = [each.name for each in (atom.column, atom.other) if isinstance(each, ColumnName)]
        group = set().union(*(together.get(name, {name}) for name in names))
        together |= dict.fromkeys(group, group)
    kinds: dict[str, str | None] = dict.fromkeys(together)
    for atom in atoms:
        kind = _kind(atom)
        for name in together[atom.column.name] if kind else ():
            if kinds[name] not in (None, kind):
                raise ParameterError(f"where must use a column in one way, got {name!r} for {kinds[name]} and {kind}")
            kinds[name] = kind
    return kinds


def _kind(atom: Atom) -> str | None:
    match atom.other:
        case str() | (str(), *_):
            return "texts"
        case None:
            return "truth values" if atom.sign == "IS TRUE" else None
        case ColumnName():
            return None
    return "numbers"


def text_of(condition: Condition) -> str:
    """As SQL from which an equal condition is read."""
    match condition:
        case Atom(column, "IS TRUE"):
            return _quoted(column)
        case Atom(column, "IS NULL"):
            return f"{_quoted(column)} IS NULL"
        case Atom(column, sign, other):
            return f"{_quoted(column)} {sign} {_quoted(other)}"
        case Junction("NOT", (Atom(column, "IS NULL"),)):
            return f"{_quoted(column)} IS NOT NULL"
        case Junction("NOT", (Atom(_, "IS TRUE") as flag,)):
            return f"NOT {text_of(flag)}"
        case Junction("NOT", (part,)):
            return f"NOT ({text_of(part)})"
        case Junction(word, parts):
            return f" {word} ".join(
                f"({text_of(each)})" if isinstance(each, Junction) and each.word != "NOT" else text_of(each)
                for each in parts
            )


def _quoted(operand: object) -> str:
    match operand:
        case ColumnName(name):
            return '"' + name.replace('"', '""') + '"'
        case str():
            return "'" + operand.replace("'", "''") + "'"
        case tuple():
            return f"({', '.join(map(_quoted, operand))})"
    return repr(operand)


def expression_of(condition: Condition) -> pl.Expr:
    """As polars runs it; missing where it is neither true nor false."""
    match condition:
        case Atom(column, sign, other) if sign in _SIGNS:
            return cast(pl.Expr, _SIGNS[sign](pl.col(column.name), _polars_value(other)))
        case Atom(column, "IN", (str(), *_) as texts):
            return pl.col(column.name).is_in(texts)
        case Atom(column, "IN", tuple() as numbers):
            return pl.any_horizontal(pl.col(column.name) == _polars_value(each) for each in numbers)
        case Atom(column, "LIKE", str() as pattern):
            return pl.col(column.name).str.contains(_regular(pattern))
        case Atom(column, "IS NULL"):
            return pl.col(column.name).is_null()
        case Atom(column):
            return pl.col(column.name).cast(pl.Boolean)  # of numbers, as streams have them
        case Junction("NOT", (part,)):
            return ~expression_of(part)
        case Junction(word, parts):
            return (pl.all_horizontal if word == "AND" else pl.any_horizontal)(map(expression_of, parts))


def _polars_value(operand: Any) -> pl.Expr:
    if isinstance(operand, ColumnName):
        return pl.col(operand.name)
    # Typed, so that polars rounds no literal to the column's type; beside 128 bits any whole number stays one.
    kinds: dict[type, Any] = {str: pl.String, int: pl.Int128, float: pl.Float64}
    return pl.lit(operand, dtype=kinds[type(operand)])


def _regular(pattern: str) -> str:
    wild = {"%": ".*", "_": "."}
    return r"(?s)\A" + "".join(wild.get(each) or pl.escape_regex(each) for each in pattern) + r"\z"


def beyond_a_row(got: str) -> ParameterError:
    """The error for what does not look at one row alone."""
    return ParameterError(f"where must look at one row alone, got {got}; compare with a fixed value")


def too_deep() -> ParameterError:
    """The error for what nests too deep."""
    return ParameterError(f"where must not nest more than {DEEPEST} deep; use IN for a list")
