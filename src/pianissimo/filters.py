"""Conditions on single rows: one language for every `where`, of a stream's query and of a table's question alike.

A promise about users holds only if a row is kept or dropped by looking at that row alone, and if looking never fails:
an error that one row causes is an answer about that row. So a condition is a small language.

```text
condition   a column beside a literal or another column (= <> < <= > >=), BETWEEN, IN (literals), LIKE,
            IS [NOT] NULL, a column of truth values, AND, OR, NOT
literal     'text', 5, -1.5e3, and TRUE or FALSE after = and <>
```

It comes as SQL, which sqlglot reads, or as a polars expression, and becomes a small tree of our own. What has no rule
is refused: functions (engines differ in them, and some fail at a value), arithmetic (it can overflow), casts (they can
fail), subqueries, aggregates and windows (they look at other rows). The tree is stored and shown as `text`; it is run
as a polars expression on streams, and written for a table's engine by `pianissimo.table.statements`. The answers are
the same:

* three-valued logic: a comparison with a missing value is neither true nor false, and such a row does not match;
* texts are compared by their bytes, and `_` in LIKE is one character;
* NaN equals itself and is above all numbers, unless it counts as missing, as it does in streams and in SQLite;
* whole numbers are compared exactly; one beside a floating one is rounded to 53 bits, save in SQLite. Numbers of text
  files and of Python lists are floating ones: were they whole where all are, one row would decide about the others.
"""

import json
import math
import operator
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from pianissimo.checks import is_utf8
from pianissimo.errors import ParameterError

if TYPE_CHECKING:
    from sqlglot import exp

LONGEST_WHERE = 8_000
"""A condition has at most this many characters."""

_DEEPEST = 32
_LONGEST_PATTERN = 1_000
_LONGEST_NUMBER = 30
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
_Operand = ColumnName | Value


@dataclass(frozen=True, slots=True, repr=False)
class Filter:
    """A condition on single rows.

    >>> where = Filter.of("symptom IN ('fever', 'cough') AND 60 < age")
    >>> where
    Filter("symptom" IN ('fever', 'cough') AND "age" > 60)
    >>> where == Filter.of(pl.col("symptom").is_in(["fever", "cough"]) & (pl.col("age") > 60))
    True
    >>> Filter.of("age > (SELECT 60)")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: where must look at one row alone, got a subquery; compare with a fixed value
    """

    condition: Condition
    """The tree."""

    @classmethod
    def of(cls, where: "str | pl.Expr | Filter") -> "Filter":
        """Understand SQL or a polars expression, or refuse it."""
        if isinstance(where, Filter):
            return where
        if not isinstance(where, str | pl.Expr):
            raise ParameterError(f"where must be SQL or a polars expression, got {type(where).__name__}")
        try:
            return _from_sql(where) if isinstance(where, str) else _checked(_from_polars(_serialized(where)))
        except RecursionError:
            raise _too_deep() from None

    @property
    def text(self) -> str:
        """As SQL from which an equal filter is read: what is stored and shown."""
        return _text(self.condition)

    @property
    def columns(self) -> dict[str, bool]:
        """The columns by name, and whether each holds texts; the others hold numbers or truth values."""
        return {name: kind == "texts" for name, kind in sorted(_kinds(self.condition).items())}

    @property
    def unclear(self) -> list[str]:
        """The columns of which a condition does not tell whether they hold texts or numbers."""
        return sorted(name for name, kind in _kinds(self.condition).items() if kind not in ("texts", "numbers"))

    def expression(self) -> pl.Expr:
        """True for the rows that match and false for the others, never missing."""
        return _expression(self.condition).fill_null(value=False)

    def matches(self, frame: pl.DataFrame) -> pl.Series:
        """Whether each row matches."""
        try:
            return frame.select(self.expression().alias("match"))["match"]
        except pl.exceptions.PolarsError:
            # It depends on the types of the columns alone; polars' own words may hold values.
            raise ParameterError("where must compare texts with texts and numbers with numbers") from None

    def __repr__(self) -> str:
        return f"Filter({self.text})"


def _joined(word: str, parts: Iterable[Condition]) -> Condition:
    return Junction(word, tuple(chain.from_iterable(_under(word, part) or (part,) for part in parts)))


def _under(word: str, part: Condition) -> tuple[Condition, ...]:
    return part.parts if isinstance(part, Junction) and part.word == word else ()


def _negated(part: Condition) -> Condition:
    return _under("NOT", part)[0] if _under("NOT", part) else Junction("NOT", (part,))


def _atom(left: _Operand, sign: str, right: Any = None) -> Condition:
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
    return flag if right == (sign == "=") else _negated(flag)


def _between(operands: Iterable[_Operand], low_sign: str = ">=", high_sign: str = "<=") -> Condition:
    value, low, high = operands
    return _joined("AND", [_atom(value, low_sign, low), _atom(value, high_sign, high)])


def _name(name: str) -> ColumnName:
    if not name or "\0" in name or not is_utf8(name):
        raise ParameterError("where must name columns by texts of UTF-8, without NUL")
    return ColumnName(name)


def _literal(value: object) -> Value:
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


def _checked(condition: Condition) -> Filter:
    """The filter, if it is not too large and looks at each column in one way."""
    found = Filter(condition)
    if _depth(condition) > _DEEPEST:
        raise _too_deep()
    if len(found.text) > LONGEST_WHERE:
        raise ParameterError(f"where must have at most {LONGEST_WHERE} characters, got more")
    _kinds(condition)
    return found


def _depth(condition: Condition) -> int:
    return 1 + max(map(_depth, condition.parts)) if isinstance(condition, Junction) else 0


def _atoms(condition: Condition) -> Iterator[Atom]:
    return iter((condition,)) if isinstance(condition, Atom) else chain.from_iterable(map(_atoms, condition.parts))


def _kinds(condition: Condition) -> dict[str, str | None]:
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


def _text(condition: Condition) -> str:
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
            return f"NOT {_text(flag)}"
        case Junction("NOT", (part,)):
            return f"NOT ({_text(part)})"
        case Junction(word, parts):
            return f" {word} ".join(
                f"({_text(each)})" if isinstance(each, Junction) and each.word != "NOT" else _text(each)
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


def _expression(condition: Condition) -> pl.Expr:
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
            return ~_expression(part)
        case Junction(word, parts):
            return (pl.all_horizontal if word == "AND" else pl.any_horizontal)(map(_expression, parts))


def _polars_value(operand: Any) -> pl.Expr:
    if isinstance(operand, ColumnName):
        return pl.col(operand.name)
    # Typed, so that polars rounds no literal to the column's type; beside 128 bits any whole number stays one.
    kinds: dict[type, Any] = {str: pl.String, int: pl.Int128, float: pl.Float64}
    return pl.lit(operand, dtype=kinds[type(operand)])


def _regular(pattern: str) -> str:
    wild = {"%": ".*", "_": "."}
    return r"(?s)\A" + "".join(wild.get(each) or pl.escape_regex(each) for each in pattern) + r"\z"


@lru_cache(maxsize=256)
def _from_sql(where: str) -> Filter:
    if not where.strip():
        raise ParameterError("where must be a condition such as country = 'DE', got nothing")
    if len(where) > LONGEST_WHERE:
        raise ParameterError(f"where must have at most {LONGEST_WHERE} characters, got {len(where)}")
    if not is_utf8(where):
        raise ParameterError("where must be text that can be written as UTF-8, got a lone surrogate in it")
    return _checked(_read(_parsed(where)))


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
            return _joined(kind.upper(), map(_read, (node, *reversed(parts))))
        case "Not":
            return _negated(_read(node.this))
        case "Column":
            return _atom(_operand(node), "IS TRUE")
        case "Between":
            found = _between(_operand(node.args[part]) for part in ("this", "low", "high"))
        case "In":
            found = _atom(_operand(node.this), "IN", tuple(map(_operand, node.expressions)))
        case "Like":
            found = _atom(_operand(node.this), "LIKE", _operand(node.expression))
        case "Is" if type(node.expression).__name__ == "Null":
            found = _atom(_operand(node.this), "IS NULL")
        case "Is":
            raise ParameterError(
                "where must have NULL after IS; write paid = TRUE for a truth value, paid = 'true' in a stream"
            )
        case _ if kind in _SQL_SIGNS:
            return _atom(_operand(node.this), _SQL_SIGNS[kind], _operand(node.expression))
        case _:
            raise _refused(node)
    return _negated(found) if node.args.get("negate") else found


def _operand(node: Any) -> _Operand:
    match _known(node):
        case "Paren":
            return _operand(node.this)
        case "Column" if node.this.args.get("quoted") or re.fullmatch(r"[^\W\d]\w*", node.name):
            return _name(node.name)
        case "Boolean":
            return bool(node.this)
        case "Literal":
            return _literal(node.this if node.is_string else _number(node.this))
        case "Neg" if type(node.this).__name__ == "Literal" and not node.this.is_string:
            return _literal(-_number(node.this.this))
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
    return _beyond_a_row(next(found, type(node).__name__.lower()))


def _beyond_a_row(got: str) -> ParameterError:
    return ParameterError(f"where must look at one row alone, got {got}; compare with a fixed value")


def _too_deep() -> ParameterError:
    return ParameterError(f"where must not nest more than {_DEEPEST} deep; use IN for a list")


def _serialized(where: pl.Expr) -> Any:
    with warnings.catch_warnings():
        # The readable form is not kept stable between versions; what another version writes is refused or the same.
        warnings.simplefilter("ignore")
        try:
            return json.loads(where.meta.serialize(format="json"))
        except (pl.exceptions.PolarsError, ValueError):
            raise _beyond_a_row("a function of the caller's own") from None


_POLARS_SIGNS = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_CLOSED = {"Both": (">=", "<="), "Left": (">=", "<"), "Right": (">", "<="), "None": (">", "<")}
_SCALARS = {"Int", "Float", "Float64", "String", "Boolean"}
_SCALARS |= {f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)}


def _from_polars(tree: Any) -> Condition:
    match tree:
        case {"Alias": [inner, _]}:
            return _from_polars(inner)
        case {"Column": _}:
            return _atom(_polars_operand(tree), "IS TRUE")
        case {"BinaryExpr": {"left": left, "op": "And" | "Or" as word, "right": right}}:
            return _joined(word.upper(), map(_from_polars, (left, right)))
        case {"BinaryExpr": {"left": left, "op": str() as word, "right": right}} if word in _POLARS_SIGNS:
            return _atom(_polars_operand(left), _POLARS_SIGNS[word], _polars_operand(right))
        case {"Function": {"input": [*inner], "function": dict() as function}}:
            return _from_function(function, inner)
    raise _beyond_a_row(f"'{next(iter(tree), '')}'")


def _from_function(function: dict[str, Any], inner: list[Any]) -> Condition:
    match function, inner:
        case {"Boolean": "Not"}, [part]:
            return _negated(_from_polars(part))
        case {"Boolean": "IsNull"}, [part]:
            return _atom(_polars_operand(part), "IS NULL")
        case {"Boolean": "IsNotNull"}, [part]:
            return _negated(_atom(_polars_operand(part), "IS NULL"))
        case {"Boolean": {"IsBetween": {"closed": str() as closed}}}, [_, _, _]:
            return _between(map(_polars_operand, inner), *_CLOSED[closed])
        case {"Boolean": {"IsIn": {"nulls_equal": False}}}, [value, {"Literal": listed}]:
            return _atom(_polars_operand(value), "IN", _listed(listed))
        case {"StringExpr": "StartsWith"}, [value, {"Literal": _} as text]:
            return _atom(_polars_operand(value), "LIKE", f"{_plain(text)}%")
        case {"StringExpr": "EndsWith"}, [value, {"Literal": _} as text]:
            return _atom(_polars_operand(value), "LIKE", f"%{_plain(text)}")
        case {"StringExpr": {"Contains": {"literal": True}}}, [value, {"Literal": _} as text]:
            return _atom(_polars_operand(value), "LIKE", f"%{_plain(text)}%")
        case {"StringExpr": {"Contains": _}}, [_, {"Literal": _}]:
            raise ParameterError("where must look for a text as it is, got a pattern; say literal=True")
    raise _beyond_a_row(f"'{' '.join(re.findall('[A-Z][A-Za-z]+', json.dumps(function))[:3])}'")


def _plain(tree: Any) -> str:
    text = _polars_operand(tree)
    if not isinstance(text, str) or re.search(r"[%_\\]", text):
        raise ParameterError("where must look for a text without %, _ and backslashes in it")
    return text


def _polars_operand(tree: Any) -> _Operand:
    match tree:
        case {"Column": str() as name}:
            return _name(name)
        case {"Literal": {"Dyn": dict() as content} | {"Scalar": dict() as content}}:
            ((kind, value),) = content.items()
            if kind not in {*_SCALARS, "Null"}:
                raise ParameterError(f"where must compare with texts or numbers of 64 bits, got a literal {kind}")
            return _literal(None if kind == "Null" else value)
    raise _beyond_a_row(f"'{next(iter(tree), '')}'")


def _listed(literal: Any) -> tuple[Value, ...]:
    """The values of a list in `is_in`, which polars writes as bytes of Arrow."""
    content: Any = literal.get("Series", literal.get("Scalar"))
    content = content.get("List") if isinstance(content, dict) else content
    try:
        values = pl.read_ipc_stream(bytes(content)).to_series()
    except (pl.exceptions.PolarsError, ValueError, TypeError):
        raise ParameterError("where must have a list of texts or numbers in is_in, got something else") from None
    return tuple(map(_literal, (values.explode() if isinstance(values.dtype, pl.List) else values).to_list()))
