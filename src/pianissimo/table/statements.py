"""The statements that are sent: one aggregate each, built as a tree and written in the engine's dialect.

Counted are distinct users. Rows without a user or without a key do not count. Labels are ranked by their number of
users and, where that is equal, by their bytes: an order that no row has a say in, as the promise of a limited domain
asks for. Labels that an engine holds to be equal although their bytes differ ("A" and "a" under many collations) would
be shown as one of them, and which one would depend on the rows; so texts are grouped by their bytes. Users are told
apart by their bytes too: where two users are one to the engine, one of them could change which labels of the other are
kept. A text that is not UTF-8, which SQLite keeps as well as any other, is no label: it could not be shown.

**A cut** keeps the labels that a user has in most rows and, of those in equally many, the ones with the least digest of
user and label under the key of the table. It looks at one user's rows and at nothing else, under whichever key, so one
user moves no more counts than are kept. The order of the alphabet would do as well for that, and favour A in all users.

**Conditions** are written from the tree of a `Filter`, so that no text of the caller is sent. Which comparisons cannot
fail depends on what the columns hold. Both sides are of one kind: where the kinds differ, engines cast rows, and a cast
can fail. DuckDB stops at `country = 5` because of the first country that is not a number, and says which. Timestamps of
another precision are of another kind: DuckDB casts the coarser side, a time beyond the year 2262 does not fit
nanoseconds, and then it stops only if there is a row to look at. Times are written as texts, and worked out here. Texts
are compared by their bytes: PostgreSQL stops at two columns of different collations, or at LIKE under some, only once a
row is there; its cast to text also takes the blanks off `char(n)` and the case from `citext`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum

from sqlglot import exp

from pianissimo.errors import ParameterError
from pianissimo.filters import Filter
from pianissimo.filters.conditions import Atom, ColumnName, Condition, Junction, Value

ALIAS = "asked"
"""What the table is called inside a statement; columns are written with it."""

BYTE_ORDER: dict[str, str | None] = {
    "duckdb": "C",
    "mysql": "utf8mb4_0900_bin",
    "postgres": "C",
    "sqlite": "BINARY",
    **dict.fromkeys(("athena", "bigquery", "clickhouse", "databricks", "presto", "snowflake", "spark", "trino")),
}
"""The collation that compares bytes, by dialect; None where that is so without one.

Others are not asked. SQL Server, for example, has no collation to which 'a' and 'a ' are different texts.
"""


class Kind(Enum):
    """What a column holds, as far as it decides which comparisons cannot fail."""

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
class TableColumn:
    """A column of the table that is asked."""

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
_WITHOUT_ESCAPES = {"duckdb", "postgres", "sqlite"}
_SIGNS = {"=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE}


IS_TEXT = "pianissimo_is_text"
"""The function that is added to SQLite: whether bytes are UTF-8."""

DIGEST = "pianissimo_digest"
"""The function that is added to SQLite, which has no MD5."""

_KEY_KINDS = {Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.DATE}
_LABEL, _USERS, _USER, _PLACE, _TIMES_SEEN, _NAME = "label", "users", "person", "place", "times", "person_name"


@dataclass(frozen=True, slots=True)
class AskedRows:
    """The rows that are asked: of which table, in which dialect, by which users, and under which condition."""

    name: tuple[str, ...]
    """The table's name, after those of its schema and catalogue if they are given."""

    dialect: str
    user: TableColumn
    where: exp.Expression | None = None
    cut_key: str = field(default="", repr=False)
    """Random, and drawn once for a table: it decides which of a user's equally frequent labels a cut keeps."""

    def users(self) -> str:
        """How many users have a row."""
        return self._text(self._selected([_named(self._distinct_users(), _USERS)], [self.user]))

    def users_by_label(
        self,
        key: TableColumn,
        *,
        labels: Sequence[str] | None = None,
        max_keys_per_user: int | None = None,
        limit: int,
    ) -> str:
        """How many users each label has: the largest first, equal ones by the label's bytes.

        With `labels` only those count. With `max_keys_per_user` a user counts for so many of the user's own.
        """
        if key.kind not in _KEY_KINDS and not key.is_enum:
            raise ParameterError(
                f"column must hold texts, whole numbers, booleans or dates, got {key.name!r}, which does not"
            )
        label = self._grouped(key)
        listed = () if labels is None else (self._is_one_of(key, labels),)
        if max_keys_per_user is None:
            columns = [_named(label, _LABEL), _named(self._distinct_users(), _USERS)]
            counted = self._selected(columns, [key, self.user], *listed).group_by(label.copy())
        else:
            name = _as_text(_column_of(self.user), self.dialect)
            columns = [_named(self._person(), _USER), _named(label, _LABEL)]
            # Users that are equal may be written in several ways, as 1.0 and 1.00: which one is a matter of all rows.
            columns += [_named(exp.Count(this=exp.Star()), _TIMES_SEEN), _named(exp.Min(this=name), _NAME)]
            pairs = self._selected(columns, [key, self.user], *listed).group_by(self._person(), label.copy())
            counted = self._cut(pairs, key, max_keys_per_user)
        # Whole numbers become texts here; the rest where it is exact.
        shown: exp.Expression = _quoted(_LABEL)
        if key.is_enum or key.kind in {Kind.DATE, Kind.BOOLEAN}:
            shown = _named(exp.cast(shown, "text"), _LABEL)
        found = exp.select(shown, _quoted(_USERS)).from_(counted.subquery(_identifier("counted")))
        if self.dialect == "sqlite":
            found = found.where(exp.Anonymous(this=IS_TEXT, expressions=[exp.cast(_quoted(_LABEL), "blob")]))
        largest = exp.Ordered(this=_quoted(_USERS), desc=True, nulls_first=False)
        return self._text(found.order_by(largest, self._by_label(key)).limit(limit))

    def _selected(
        self, columns: Sequence[exp.Expression], present: Sequence[TableColumn], *conditions: exp.Expression
    ) -> exp.Select:
        """The rows that count: those with a value in each of some columns, under all conditions."""
        parts = [_identifier(part) for part in self.name]
        names = dict(zip(("this", "db", "catalog"), reversed(parts), strict=False))
        table = exp.Table(**names, alias=exp.TableAlias(this=_identifier(ALIAS)))
        there = [exp.Not(this=exp.Is(this=_column_of(each), expression=exp.Null())) for each in present]
        where = () if self.where is None else (self.where.copy(),)
        return exp.select(*columns).from_(table).where(*there, *where, *conditions)

    def _cut(self, pairs: exp.Select, key: TableColumn, max_keys_per_user: int) -> exp.Select:
        """Users by label, after each user was cut to some of the user's own labels."""
        parts = [exp.Literal.string(f"{self.cut_key}:"), _quoted(_NAME), exp.Literal.string(":")]
        text = exp.Concat(expressions=[*parts, _as_text(_quoted(_LABEL), self.dialect)], safe=True)
        digest: exp.Expression = exp.MD5(this=text)
        if self.dialect == "sqlite":
            digest = exp.Anonymous(this=DIGEST, expressions=[exp.cast(text, "blob")])
        order = [
            exp.Ordered(this=_quoted(_TIMES_SEEN), desc=True, nulls_first=False),
            exp.Ordered(this=by_bytes(digest, self.dialect), desc=False, nulls_first=True),
            self._by_label(key),
        ]
        place = exp.Window(
            this=exp.RowNumber(),
            partition_by=[self._told_apart(_quoted(_USER))],
            order=exp.Order(expressions=order),
            over="OVER",
        )
        numbered = exp.select(_quoted(_LABEL), _named(place, _PLACE)).from_(pairs.subquery(_identifier("pairs")))
        return (
            exp.select(_quoted(_LABEL), _named(exp.Count(this=exp.Star()), _USERS))
            .from_(numbered.subquery(_identifier("numbered")))
            .where(exp.LTE(this=_quoted(_PLACE), expression=exp.Literal.number(max_keys_per_user)))
            .group_by(_quoted(_LABEL))
        )

    def _distinct_users(self) -> exp.Expression:
        return exp.Count(this=exp.Distinct(expressions=[self._person()]))

    def _person(self) -> exp.Expression:
        return self._told_apart(_column_of(self.user))

    def _told_apart(self, value: exp.Expression) -> exp.Expression:
        """Users that are texts, by their bytes."""
        return by_bytes(value, self.dialect) if self.user.kind is Kind.TEXT and not self.user.is_enum else value

    def _grouped(self, key: TableColumn) -> exp.Expression:
        """The key as it is grouped by: a text by its bytes, anything else as it is."""
        column = _column_of(key)
        if key.is_enum:
            return column
        # SQLite lets any column hold any type: as texts, 1 and '1' are one label.
        if self.dialect == "sqlite":
            return by_bytes(exp.cast(column, "text"), self.dialect)
        return by_bytes(column, self.dialect) if key.kind is Kind.TEXT else column

    def _is_one_of(self, key: TableColumn, labels: Sequence[str]) -> exp.Expression:
        """Whether the key, as the text that a domain lists, is in it."""
        column = _column_of(key)
        as_it_is = key.kind is Kind.TEXT and not key.is_enum and self.dialect != "sqlite"
        text = by_bytes(column if as_it_is else exp.cast(column, "text"), self.dialect)
        return exp.In(this=text, expressions=[exp.Literal.string(each) for each in labels])

    def _by_label(self, key: TableColumn) -> exp.Expression:
        """What equal counts are ordered by: the label's bytes."""
        label: exp.Expression = _quoted(_LABEL)
        label = label if key.kind is Kind.TEXT and not key.is_enum else exp.cast(label, "text")
        return exp.Ordered(this=by_bytes(label, self.dialect), desc=False, nulls_first=True)

    def _text(self, tree: exp.Expression) -> str:
        """The statement as the engine reads it."""
        return tree.sql(dialect=self.dialect, comments=False)


def _as_text(value: exp.Expression, dialect: str) -> exp.Expression:
    return by_bytes(exp.cast(value, "text"), dialect)


def _column_of(column: TableColumn) -> exp.Column:
    return exp.column(column.name, table=ALIAS, quoted=True)


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _quoted(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


def _named(value: exp.Expression, name: str) -> exp.Alias:
    return exp.Alias(this=value, alias=_identifier(name))


def written(where: Filter, columns: Mapping[str, TableColumn], dialect: str) -> exp.Expression:
    """The condition on the columns of a table, quoted and under `ALIAS`."""
    return _Writer(columns, dialect).condition(where.condition)


def is_plain(text: str, dialect: str) -> bool:
    """Whether a text has nothing that the engine reads as something else inside quotes."""
    return "\0" not in text and ("\\" not in text or dialect in _WITHOUT_ESCAPES)


def by_bytes(text: exp.Expression, dialect: str) -> exp.Expression:
    """A text of the table as it is compared by bytes, whatever collation or kind of text the column has."""
    collation = BYTE_ORDER.get(dialect)
    if collation is None:
        return text
    text = exp.cast(text, "text") if dialect == "postgres" else text
    quoted = dialect in {"duckdb", "postgres"}
    return exp.Collate(this=text, expression=_identifier(collation) if quoted else exp.var(collation))


def find_column(columns: Mapping[str, TableColumn], name: str, *, what: str = "where") -> TableColumn:
    """The column of that name, or the only one that differs in upper and lower case alone."""
    if name in columns:
        return columns[name]
    alike = [column for column in columns.values() if column.name.casefold() == name.casefold()]
    if len(alike) == 1:
        return alike[0]
    names = ", ".join(map(repr, list(columns)[:20])) + (", ..." if len(columns) > 20 else "")
    raise ParameterError(f"{what} must name a column of the table, one of {names}, got {name!r}")


class _Writer:
    """From the tree of a filter to that of a statement, for columns of these kinds."""

    def __init__(self, columns: Mapping[str, TableColumn], dialect: str) -> None:
        self._columns = columns
        self._dialect = dialect

    def condition(self, condition: Condition) -> exp.Expression:
        match condition:
            case Junction("NOT", (part,)):
                return exp.Paren(this=exp.Not(this=self.condition(part)))
            case Junction(word, parts):
                join = exp.and_ if word == "AND" else exp.or_
                return exp.Paren(this=join(*map(self.condition, parts), copy=False))
            case Atom(ColumnName(name), sign, other):
                return self._atom(find_column(self._columns, name), sign, other)

    def _atom(
        self, column: TableColumn, sign: str, other: Value | tuple[Value, ...] | ColumnName | None
    ) -> exp.Expression:
        value = self._column(column)
        match other:
            case None if sign == "IS NULL":
                return exp.Is(this=value, expression=exp.Null())
            case None if column.kind is Kind.BOOLEAN:
                return value
            case None:
                raise ParameterError(f"where must be a condition, got a column that holds a {column.kind.value}")
            case tuple():
                return exp.In(this=value, expressions=[self._beside(column, each) for each in other])
            case ColumnName(name):
                second = find_column(self._columns, name)
                if second.kind is not column.kind or column.kind not in _COMPARED_WITH_EACH_OTHER:
                    raise _kinds_differ(column.kind.value, second.kind.value)
                return exp.Paren(this=_SIGNS[sign](this=value, expression=self._column(second)))
            case str() if sign == "LIKE":
                return self._like(column, value, other)
            case _:
                literal = self._beside(column, other)
                return exp.Paren(this=_SIGNS[sign](this=value, expression=literal))

    def _column(self, column: TableColumn) -> exp.Expression:
        value = _column_of(column)
        if column.kind is not Kind.TEXT:
            return value
        return exp.cast(value, "text") if column.is_enum else by_bytes(value, self._dialect)

    def _like(self, column: TableColumn, value: exp.Expression, pattern: str) -> exp.Expression:
        literal = self._beside(column, pattern)
        if column.kind is not Kind.TEXT:
            raise _kinds_differ(column.kind.value, "pattern")
        if self._dialect == "sqlite":  # whose LIKE takes upper and lower case for the same
            signs = {"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"}
            literal = exp.Literal.string("".join(signs.get(each, each) for each in pattern))
            return exp.Paren(this=exp.Glob(this=value, expression=literal))
        return exp.Paren(this=exp.Like(this=value, expression=literal))

    def _beside(self, column: TableColumn, literal: Value) -> exp.Expression:
        """A literal that the column can be compared with, whatever its rows hold."""
        if not isinstance(literal, str):
            if column.kind not in _NUMBERS:
                raise _kinds_differ(column.kind.value, "number")
            return self._number(literal, column.kind)
        if column.kind in _TIMES:
            return self._time(literal, column.kind)
        if column.kind is not Kind.TEXT:
            raise _kinds_differ(column.kind.value, "text")
        if not is_plain(literal, self._dialect):
            raise ParameterError("where must have texts without backslashes for this engine")
        return exp.Literal.string(literal)

    def _number(self, number: int | float, kind: Kind) -> exp.Expression:
        # sqlglot writes a literal as it is given, so that the sign is a node of its own.
        digits = exp.Literal.number(repr(abs(number)))
        signed = exp.Paren(this=exp.Neg(this=digits)) if number < 0 else digits
        # As a decimal, DuckDB would cast whole-number columns to its scale, and a decimal column to that of a literal:
        # both can overflow at some row. A double cannot.
        is_double = isinstance(number, float) or kind is Kind.DECIMAL
        return exp.cast(signed, "double") if is_double and self._dialect == "duckdb" else signed

    def _time(self, text: str, kind: Kind) -> exp.Expression:
        try:
            if kind is Kind.DATE:
                shown = date.fromisoformat(text).isoformat()
            else:
                moment = datetime.fromisoformat(text)
                if kind is Kind.TIMESTAMP_WITH_ZONE:
                    moment = moment.replace(tzinfo=moment.tzinfo or UTC)
                elif moment.tzinfo is not None:
                    return self._time("", kind)  # an engine would drop the zone, or apply it, by rules of its own
                _check_fits(moment, kind)
                shown = moment.isoformat(sep=" ")
        except ParameterError:  # which is a ValueError
            raise
        except ValueError:
            raise ParameterError(f"where must have a {kind.value} written like 2026-03-31, got another text") from None
        literal = exp.Literal.string(shown)
        if self._dialect == "sqlite":  # which keeps times as texts and would cast this one to a number
            return literal
        # The others are called as in DuckDB, which alone has them.
        target = "timestamptz" if kind is Kind.TIMESTAMP_WITH_ZONE else kind.name.lower()
        return exp.cast(literal, exp.DataType.build(target, dialect="duckdb"))


def _check_fits(moment: datetime, kind: Kind) -> None:
    if moment.microsecond % _OF_A_PRECISION.get(kind, 1):
        raise ParameterError(f"where must have a literal no finer than its column, which is a {kind.value}")
    if kind is Kind.TIMESTAMP_NS and not _NANOSECONDS[0] <= moment < _NANOSECONDS[1]:
        raise ParameterError("where must have times from 1677-09-22 to 2262-04-10 for a timestamp in nanoseconds")


def _kinds_differ(first: str, second: str) -> ParameterError:
    return ParameterError(f"where must compare values of one kind, got a {first} and a {second}")
