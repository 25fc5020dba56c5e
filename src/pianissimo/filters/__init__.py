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

from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from pianissimo.checks import is_utf8
from pianissimo.errors import ParameterError
from pianissimo.filters.conditions import DEEPEST, Condition, depth_of, expression_of, kinds_of, text_of, too_deep
from pianissimo.filters.polars_conditions import condition_of_polars
from pianissimo.filters.sql_conditions import condition_of_sql

LONGEST_WHERE = 8_000
"""A condition has at most this many characters."""


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
            return _from_sql(where) if isinstance(where, str) else _checked(condition_of_polars(where))
        except RecursionError:
            raise too_deep() from None

    @property
    def text(self) -> str:
        """As SQL from which an equal filter is read: what is stored and shown."""
        return text_of(self.condition)

    @property
    def columns(self) -> dict[str, bool]:
        """The columns by name, and whether each holds texts; the others hold numbers or truth values."""
        return {name: kind == "texts" for name, kind in sorted(kinds_of(self.condition).items())}

    @property
    def unclear(self) -> list[str]:
        """The columns of which a condition does not tell whether they hold texts or numbers."""
        return sorted(name for name, kind in kinds_of(self.condition).items() if kind not in ("texts", "numbers"))

    def expression(self) -> pl.Expr:
        """True for the rows that match and false for the others, never missing."""
        return expression_of(self.condition).fill_null(value=False)

    def matches(self, frame: pl.DataFrame) -> pl.Series:
        """Whether each row matches."""
        try:
            return frame.select(self.expression().alias("match"))["match"]
        except pl.exceptions.PolarsError:
            # It depends on the types of the columns alone; polars' own words may hold values.
            raise ParameterError("where must compare texts with texts and numbers with numbers") from None

    def __repr__(self) -> str:
        return f"Filter({self.text})"


def _checked(condition: Condition) -> Filter:
    """The filter, if it is not too large and looks at each column in one way."""
    found = Filter(condition)
    if depth_of(condition) > DEEPEST:
        raise too_deep()
    if len(found.text) > LONGEST_WHERE:
        raise ParameterError(f"where must have at most {LONGEST_WHERE} characters, got more")
    kinds_of(condition)
    return found


@lru_cache(maxsize=256)
def _from_sql(where: str) -> Filter:
    if not where.strip():
        raise ParameterError("where must be a condition such as country = 'DE', got nothing")
    if len(where) > LONGEST_WHERE:
        raise ParameterError(f"where must have at most {LONGEST_WHERE} characters, got {len(where)}")
    if not is_utf8(where):
        raise ParameterError("where must be text that can be written as UTF-8, got a lone surrogate in it")
    return _checked(condition_of_sql(where))
