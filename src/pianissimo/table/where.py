"""Row predicates: what a `where` may say, and nothing else.

A question about users keeps its promise only if a row is kept or dropped by looking at that row alone, and if looking
never fails: an error that one row causes is an answer about that row. So a `where` is a small typed language. Its
words are read by sqlglot and written anew from what was understood; no text of the caller reaches the database.

```text
predicate   comparison, BETWEEN, IN (literals), LIKE, IS [NOT] NULL / TRUE / FALSE, a boolean column, AND, OR, NOT
operand     a column of this table, a literal, LOWER UPPER TRIM LENGTH of a text, COALESCE(column, literal),
            YEAR MONTH DAY of a date
```

Both sides of a comparison are of one kind. Where the kinds differ, engines cast rows, and a cast can fail: DuckDB stops
at `country = 5` because of the first country that is not a number, and says which. Arithmetic can overflow and casts of
columns can fail, so neither is there. Casts of literals are worked out here. Timestamps of another precision are of
another kind: DuckDB casts the coarser side, a time beyond the year 2262 does not fit nanoseconds, and then it stops
only if there is a row to look at.

Texts are compared by their bytes where an engine has collations that are not: PostgreSQL stops at two columns of
different collations, or at LIKE under some, only once a row is there. A cast to text also takes the blanks off
`char(n)` and the case from `citext`. LOWER, UPPER and ILIKE go by the database's own rules for letters.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import Enum
from typing import cast

from sqlglot import exp, tokenize
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from pianissimo.errors import ParameterError

ALIAS = "asked"
"""What the table is called inside a statement; columns are written with it."""

LONGEST_WHERE = 8_000
"""A `where` has at most this many characters."""


class Kind(Enum):
    """What a column holds, as far as it decides which comparisons cannot fail.

    >>> Kind("text")
    <Kind.TEXT: 'text'>
    """

    TEXT = "text"
    INTEGER = "whole number"
    REAL = "floating-point number"
    DECIMAL = "decimal number"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_S = "timestamp in seconds"
    TIMESTAMP_MS = "timestamp in milliseconds"
    TIMESTAMP_NS = "timestamp in nanoseconds"
    TIMESTAMP_WITH_ZONE = "timestamp with time zone"
    OTHER = "other"
    PRESENCE = "value that is there or not"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table.

    >>> Column("country", Kind.TEXT).is_enum
    False
    """

    name: str
    kind: Kind
    is_enum: bool = False
    """Whether its texts are numbered inside the engine and must be cast before they are compared."""


_NUMBERS = {Kind.INTEGER, Kind.REAL, Kind.DECIMAL}
_OF_A_PRECISION = {Kind.TIMESTAMP_S: 1_000_000, Kind.TIMESTAMP_MS: 1_000, Kind.TIMESTAMP_NS: 1}
"""The least step of a literal for them, in microseconds."""

_NANOSECONDS = (datetime(1677, 9, 22), datetime(2262, 4, 11))
"""What 64 bits of nanoseconds hold, to whole days."""

_TIMESTAMPS = {Kind.TIMESTAMP, *_OF_A_PRECISION}
_TIMES = {Kind.DATE, Kind.TIMESTAMP_WITH_ZONE, *_TIMESTAMPS}
_COMPARED_WITH_EACH_OTHER = {Kind.TEXT, Kind.INTEGER, Kind.REAL, Kind.BOOLEAN, Kind.DATE, *_TIMESTAMPS}
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_TEXT_FUNCTIONS = (exp.Lower, exp.Upper, exp.Trim)
_PARTS = {"YEAR": exp.Year, "MONTH": exp.Month, "DAY": exp.Day}
_WITH_EXTRACT = {"duckdb", "postgres", "mysql"}
_WITHOUT_ESCAPES = {"duckdb", "postgres", "sqlite"}
_LONGEST_NUMBER = 30
_PARTS_READ: dict[type[exp.Expr], frozenset[str]] = {
    **dict.fromkeys((exp.Paren, exp.Not, exp.Neg, exp.Boolean, exp.Column), frozenset({"this"})),
    **dict.fromkeys((*_TEXT_FUNCTIONS, *_PARTS.values(), exp.Length), frozenset({"this"})),
    **dict.fromkeys((exp.And, exp.Or, exp.Extract, *_COMPARISONS), frozenset({"this", "expression"})),
    **dict.fromkeys((exp.Is, exp.Like, exp.ILike), frozenset({"this", "expression", "negate"})),
    exp.Between: frozenset({"this", "low", "high", "negate"}),
    exp.In: frozenset({"this", "expressions", "negate"}),
    exp.Coalesce: frozenset({"this", "expressions"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.Literal: frozenset({"this", "is_string"}),
}
"""The nodes that are read, and the parts of each that our rules look at."""


@dataclass(frozen=True, slots=True)
class _Operand:
    sql: exp.Expression
    kind: Kind
    literal: str | int | float | bool | None = None


def row_predicate(where: str, columns: Mapping[str, Column], dialect: str) -> exp.Expression:
    r"""Understand a `where` and write it anew, its columns quoted and under `ALIAS`.

    >>> columns = {"country": Column("country", Kind.TEXT)}
    >>> row_predicate("country IN ('DE', 'AT') and not country is null", columns, "duckdb").sql("duckdb")
    '("asked"."country" IN (\'DE\', \'AT\') AND (NOT "asked"."country" IS NULL))'
    >>> row_predicate("country = (SELECT 'DE')", columns, "duckdb")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: where must be a predicate over one row, got a subquery
    """
    if not isinstance(where, str) or not where.strip():
        raise ParameterError("where must be a predicate such as country = 'DE', got nothing of that kind")
    if len(where) > LONGEST_WHERE:
        raise ParameterError(f"where must have at most {LONGEST_WHERE} characters, got {len(where)}")
    if not is_utf8(where):
        raise ParameterError("where must be text that can be written as UTF-8, got a lone surrogate in it")
    try:
        return _Reader(columns, dialect).predicate(_parsed(where, dialect))
    except RecursionError:
        raise ParameterError("where must not nest that deeply; use IN for a list") from None


def is_utf8(text: str) -> bool:
    r"""Whether a text can be sent: Python lets texts hold halves of a character.

    >>> is_utf8("DE"), is_utf8("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_plain(text: str, dialect: str) -> bool:
    r"""Whether a text has nothing that the engine reads as something else inside quotes.

    >>> is_plain("it's", "mysql"), is_plain("C:\\", "mysql")
    (True, False)
    """
    return "\0" not in text and ("\\" not in text or dialect in _WITHOUT_ESCAPES)


def by_bytes(text: exp.Expression, dialect: str) -> exp.Expression:
    """A text of the table as PostgreSQL compares it by bytes, whatever collation or kind of text the column has.

    >>> by_bytes(exp.column("country", quoted=True), "postgres").sql("postgres")
    'CAST("country" AS TEXT) COLLATE "C"'
    """
    return _collated(exp.cast(text, "text"), "C") if dialect == "postgres" else text


def _collated(text: exp.Expression, collation: str) -> exp.Expression:
    return exp.Collate(this=text, expression=exp.to_identifier(collation, quoted=True))


def find_column(columns: Mapping[str, Column], name: str, *, what: str = "where") -> Column:
    """The column of that name, or the only one that differs in upper and lower case alone.

    >>> find_column({"Country": Column("Country", Kind.TEXT)}, "country").name
    'Country'
    """
    if name in columns:
        return columns[name]
    alike = [column for column in columns.values() if column.name.casefold() == name.casefold()]
    if len(alike) == 1:
        return alike[0]
    raise ParameterError(f"{what} must name a column of the table, one of {_listed(columns)}, got {name!r}")


def _listed(columns: Mapping[str, Column]) -> str:
    names = [repr(name) for name in columns]
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def _parsed(where: str, dialect: str) -> exp.Expression:
    try:
        tokens = tokenize(where, read=dialect)
        trees = Dialect.get_or_raise(dialect).parse(where)
    except SqlglotError:
        raise ParameterError("where must be a predicate such as country = 'DE', got what is not SQL") from None
    if any(token.comments for token in tokens):
        raise ParameterError("where must be a predicate over one row, got a comment in it")
    if any(token.token_type.name == "SEMICOLON" for token in tokens):
        raise ParameterError("where must be one predicate, got a semicolon")
    if len(trees) != 1 or trees[0] is None:
        raise ParameterError("where must be one predicate, got another number of them")
    tree = cast(exp.Expression, trees[0])
    # A comment without a token to hang on is no token either.
    if any(node.comments for node in tree.walk()) or (dialect == "mysql" and "#" in where):
        raise ParameterError("where must be a predicate over one row, got a comment in it")
    return tree


class _Reader:
    """From what sqlglot parsed to what we write; what has no rule is refused."""

    def __init__(self, columns: Mapping[str, Column], dialect: str) -> None:
        self._columns = columns
        self._dialect = dialect

    def predicate(self, node: exp.Expr) -> exp.Expression:
        _check_parts(node)
        written = self._positive(node)
        return exp.Paren(this=exp.Not(this=written)) if node.args.get("negate") else written

    def _positive(self, node: exp.Expr) -> exp.Expression:
        match node:
            case exp.Paren():
                return self.predicate(node.this)
            case exp.And() | exp.Or():
                return exp.Paren(this=type(node)(this=self.predicate(node.left), expression=self.predicate(node.right)))
            case exp.Not():
                return exp.Paren(this=exp.Not(this=self.predicate(node.this)))
            case exp.Between():
                return self._between(node)
            case exp.In():
                return self._in(node)
            case exp.Like() | exp.ILike():
                return self._like(node)
            case exp.Is():
                return self._is(node)
            case exp.Boolean():
                return exp.Boolean(this=bool(node.this))
        if isinstance(node, _COMPARISONS):
            left, right = self._alike(self._operand(node.this), self._operand(node.expression))
            return exp.Paren(this=type(node)(this=left, expression=right))
        if isinstance(node, exp.Column):
            operand = self._operand(node)
            if operand.kind is Kind.BOOLEAN:
                return operand.sql
            raise ParameterError(f"where must be a predicate, got a column that holds a {operand.kind.value}")
        raise _refused(node)

    def _between(self, node: exp.Between) -> exp.Expression:
        value, low, high = (self._operand(node.args[part]) for part in ("this", "low", "high"))
        first, low_sql = self._alike(value, low)
        _, high_sql = self._alike(value, high)
        return exp.Paren(this=exp.Between(this=first, low=low_sql, high=high_sql))

    def _in(self, node: exp.In) -> exp.Expression:
        value = self._operand(node.this)
        listed = [self._operand(each) for each in node.expressions]
        if not listed or any(each.literal is None for each in listed):
            raise ParameterError("where must have literals alone in a list after IN")
        return exp.In(this=value.sql, expressions=[self._alike(value, each)[1] for each in listed])

    def _like(self, node: exp.Like | exp.ILike) -> exp.Expression:
        value, pattern = self._operand(node.this), self._operand(node.expression)
        # A pattern that ends in an escape is an error in some engines, and only once a row is looked at.
        if value.kind is not Kind.TEXT or not isinstance(pattern.literal, str) or "\\" in pattern.literal:
            raise ParameterError("where must have a text and a literal pattern without backslashes around LIKE")
        text = self._with_letters(value.sql) if isinstance(node, exp.ILike) else value.sql
        return exp.Paren(this=type(node)(this=text, expression=pattern.sql))

    def _is(self, node: exp.Is) -> exp.Expression:
        value = self._operand(node.this)
        if isinstance(node.expression, exp.Null):
            return exp.Is(this=value.sql, expression=exp.Null())
        if isinstance(node.expression, exp.Boolean) and value.kind is Kind.BOOLEAN:
            return exp.Is(this=value.sql, expression=exp.Boolean(this=bool(node.expression.this)))
        raise ParameterError("where must have NULL, or TRUE or FALSE for a boolean, after IS")

    def _operand(self, node: exp.Expression) -> _Operand:
        _check_parts(node)
        match node:
            case exp.Paren():
                return self._operand(node.this)
            case exp.Column():
                return self._column(node)
            case exp.Boolean():
                return _Operand(exp.Boolean(this=bool(node.this)), Kind.BOOLEAN, bool(node.this))
            case exp.Literal() if node.is_string:
                return self._text(node.this)
            case exp.Literal():
                return self._number(node.this)
            case exp.Neg() if isinstance(node.this, exp.Literal) and not node.this.is_string:
                return self._number(f"-{node.this.this}")
            case exp.Cast() if isinstance(node.this, exp.Literal) and node.this.is_string:
                return self._time_literal(node)
            case exp.Length():
                return _Operand(exp.Length(this=self._text_operand(node.this)), Kind.INTEGER)
            case exp.Coalesce():
                return self._coalesce(node)
            case exp.Extract() if str(node.this).upper() in _PARTS:
                return self._part(str(node.this).upper(), node.expression)
        if isinstance(node, exp.Trim):
            return _Operand(exp.Trim(this=self._text_operand(node.this)), Kind.TEXT)
        if isinstance(node, exp.Lower | exp.Upper):
            changed = type(node)(this=self._with_letters(self._text_operand(node.this)))
            return _Operand(by_bytes(changed, self._dialect), Kind.TEXT)
        for name, kind in _PARTS.items():
            if isinstance(node, kind):
                return self._part(name, node.this)
        raise _refused(node)

    def _column(self, node: exp.Column) -> _Operand:
        if not isinstance(node.this, exp.Identifier):
            raise _refused(node)
        column = find_column(self._columns, node.this.this)
        sql: exp.Expression = exp.column(column.name, table=ALIAS, quoted=True)
        if column.kind is Kind.TEXT:
            sql = exp.cast(sql, "text") if column.is_enum else by_bytes(sql, self._dialect)
        return _Operand(sql, column.kind)

    def _with_letters(self, text: exp.Expression) -> exp.Expression:
        """The text where upper and lower case matter: "C" knows those of ASCII alone."""
        return _collated(text, "default") if self._dialect == "postgres" else text

    def _text(self, text: str) -> _Operand:
        if not is_plain(text, self._dialect):
            raise ParameterError("where must have texts without NUL, and without backslashes for this engine")
        return _Operand(exp.Literal.string(text), Kind.TEXT, text)

    def _number(self, text: str) -> _Operand:
        digits = text.removeprefix("-")
        real = _real(digits)
        if digits.isascii() and digits.isdigit():
            whole = int(text)
            if not -(2**63) < whole < 2**63:
                raise ParameterError("where must have whole numbers of at most 64 bits")
            return _Operand(_signed(str(whole)), Kind.INTEGER, whole)
        # As a decimal, DuckDB would cast whole-number columns to its scale, which can overflow at some row.
        sql = _signed(text)
        return _Operand(exp.cast(sql, "double") if self._dialect == "duckdb" else sql, Kind.REAL, real)

    def _time_literal(self, node: exp.Cast) -> _Operand:
        target = node.to
        kinds = {"DATE": Kind.DATE, "TIMESTAMP": Kind.TIMESTAMP, "DATETIME": Kind.TIMESTAMP}
        kinds |= {"TIMESTAMPNTZ": Kind.TIMESTAMP, "TIMESTAMPTZ": Kind.TIMESTAMP_WITH_ZONE}
        if target.this.name not in kinds or target.expressions:
            raise ParameterError("where must have no casts, save a literal date or timestamp")
        return self._time(node.this.this, kinds[target.this.name])

    def _time(self, text: str, kind: Kind) -> _Operand:
        try:
            if kind is Kind.DATE:
                written = date.fromisoformat(text).isoformat()
            else:
                moment = datetime.fromisoformat(text)
                if kind is Kind.TIMESTAMP_WITH_ZONE:
                    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
                elif moment.tzinfo is not None:
                    return self._time("", kind)  # an engine would drop the zone, or apply it, by rules of its own
                _check_fits(moment, kind)
                written = moment.isoformat(sep=" ")
        except ParameterError:  # which is a ValueError
            raise
        except ValueError:
            raise ParameterError(f"where must have a {kind.value} written like 2026-03-31, got {text!r}") from None
        literal = exp.Literal.string(written)
        if self._dialect == "sqlite":  # which keeps times as texts and would cast this one to a number
            return _Operand(literal, kind, written)
        names = {Kind.TIMESTAMP_WITH_ZONE: "timestamptz"}  # the others are called as in DuckDB, which alone has them
        target = exp.DataType.build(names.get(kind, kind.name.lower()), dialect="duckdb")
        return _Operand(exp.cast(literal, target), kind, written)

    def _text_operand(self, node: exp.Expression) -> exp.Expression:
        operand = self._operand(node)
        if operand.kind is not Kind.TEXT:
            raise ParameterError(f"where must have a text in a function of texts, got a {operand.kind.value}")
        return operand.sql

    def _coalesce(self, node: exp.Coalesce) -> _Operand:
        if len(node.expressions) != 1 or not isinstance(node.this, exp.Column):
            raise ParameterError("where must have a column and one literal in COALESCE")
        value, other = self._operand(node.this), self._operand(node.expressions[0])
        same = value.kind is other.kind and value.kind in {Kind.TEXT, Kind.BOOLEAN}
        if other.literal is None or not same:
            raise ParameterError("where must have a text or boolean column and a literal of its kind in COALESCE")
        return _Operand(exp.Coalesce(this=value.sql, expressions=[other.sql]), value.kind)

    def _part(self, name: str, node: exp.Expression) -> _Operand:
        operand = self._operand(node)
        if operand.kind not in {Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_NS} or self._dialect not in _WITH_EXTRACT:
            raise ParameterError(f"where must have a date or timestamp in {name}, of an engine that has EXTRACT")
        # To microseconds, which is never too far; from seconds it could be.
        value = exp.cast(operand.sql, "timestamp") if operand.kind is Kind.TIMESTAMP_NS else operand.sql
        return _Operand(exp.Extract(this=exp.var(name), expression=value), Kind.INTEGER)

    def _alike(self, left: _Operand, right: _Operand) -> tuple[exp.Expression, exp.Expression]:
        """Both sides of a comparison that cannot fail, whatever the rows hold."""
        left, right = self._of_its_kind(left, right.kind), self._of_its_kind(right, left.kind)
        literal = left.literal is not None or right.literal is not None
        numbers = left.kind in _NUMBERS and right.kind in _NUMBERS and literal
        same = left.kind is right.kind and (literal or left.kind in _COMPARED_WITH_EACH_OTHER)
        if left.kind is Kind.OTHER or not (numbers or same):
            kinds = f"a {left.kind.value} and a {right.kind.value}"
            raise ParameterError(f"where must compare values of one kind, got {kinds}")
        if Kind.DECIMAL in {left.kind, right.kind} and self._dialect == "duckdb":
            left, right = _as_double(left), _as_double(right)
        return left.sql, right.sql

    def _of_its_kind(self, literal: _Operand, kind: Kind) -> _Operand:
        """A literal that is compared with a time, as a time of the same kind."""
        written = isinstance(literal.literal, str) and kind in _TIMES
        is_time = literal.kind is Kind.TEXT or (literal.kind is Kind.TIMESTAMP and kind in _OF_A_PRECISION)
        return self._time(str(literal.literal), kind) if written and is_time else literal


def _check_fits(moment: datetime, kind: Kind) -> None:
    if moment.microsecond % _OF_A_PRECISION.get(kind, 1):
        raise ParameterError(f"where must have a literal no finer than its column, which is a {kind.value}")
    if kind is Kind.TIMESTAMP_NS and not _NANOSECONDS[0] <= moment < _NANOSECONDS[1]:
        raise ParameterError("where must have times from 1677-09-22 to 2262-04-10 for a timestamp in nanoseconds")


def _as_double(operand: _Operand) -> _Operand:
    # A literal of another scale than the column's would cast the column, which can overflow; a double cannot.
    if operand.literal is None or isinstance(operand.sql, exp.Cast):
        return operand
    return _Operand(exp.cast(operand.sql, "double"), Kind.REAL, operand.literal)


def _signed(number: str) -> exp.Expression:
    # sqlglot writes a literal as it is given, so that the sign is a node of its own.
    literal = exp.Literal(this=number.removeprefix("-"), is_string=False)
    return exp.Paren(this=exp.Neg(this=literal)) if number.startswith("-") else literal


def _real(digits: str) -> float:
    """The number, if it is one that is written with digits, a point and an exponent."""
    well_formed = len(digits) <= _LONGEST_NUMBER and re.fullmatch(r"[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?", digits)
    try:
        real = float(digits) if well_formed else math.inf
    except ValueError:
        real = math.inf
    # PostgreSQL refuses what is too small to be told from zero.
    is_lost = 0 <= real < sys.float_info.min and any(digit in "123456789" for digit in digits.lower().partition("e")[0])
    if not math.isfinite(real) or is_lost:
        raise ParameterError("where must have numbers of at most 64 bits")
    return real


def _check_parts(node: exp.Expr) -> None:
    """Refuse a node that our rules do not read, or do not read in full.

    sqlglot keeps what changes a node's meaning in parts of it: `IS NOT NULL` is `IS NULL` with a part that says no.
    """
    if isinstance(node, exp.Column) and any(node.args.get(part) for part in ("table", "db", "catalog")):
        raise ParameterError("where must name columns of this table without a table before them")
    if node.args.get("query") is not None:
        raise ParameterError("where must be a predicate over one row, got a subquery")
    parts = _PARTS_READ.get(type(node))
    if parts is None or any(value for name, value in node.args.items() if name not in parts):
        raise _refused(node)


_REFUSED: tuple[tuple[Callable[[exp.Expr], bool], str], ...] = (
    (lambda node: isinstance(node, exp.Query | exp.Subquery | exp.Exists), "a subquery"),
    (lambda node: isinstance(node, exp.Window), "a window function"),
    (lambda node: isinstance(node, exp.AggFunc), "an aggregate"),
    (lambda node: isinstance(node, exp.Cast), "a cast"),
    (lambda node: isinstance(node, exp.Func), "a function that is not on the list"),
    (lambda node: isinstance(node, exp.Binary | exp.Unary), "an operator that is not on the list"),
)


def _refused(node: exp.Expr) -> ParameterError:
    what = next((name for test, name in _REFUSED if test(node)), f"{type(node).__name__.lower()}")
    return ParameterError(f"where must be a predicate over one row, got {what}")
