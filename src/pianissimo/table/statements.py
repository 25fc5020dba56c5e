"""The statements that are sent: one aggregate each, built as a tree and written in the engine's dialect.

Counted are distinct users. Rows without a user or without a key do not count. Labels are ranked by their number of
users and, where that is equal, by their bytes: an order that no row has a say in, as the promise of a limited domain
asks for. Labels that an engine holds to be equal although their bytes differ ("A" and "a" under many collations) would
be shown as one of them, and which one would depend on the rows; so texts are grouped by their bytes. Users are told
apart by their bytes too: where two users are one to the engine, one of them could change which labels of the other are
kept.

A text that is not UTF-8, which SQLite keeps as well as any other, is no label: it could not be shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from pianissimo.errors import ParameterError
from pianissimo.table.conditions import ALIAS, Kind, TableColumn, by_bytes

IS_TEXT = "pianissimo_is_text"
"""The function that is added to SQLite: whether bytes are UTF-8."""

_KEY_KINDS = {Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.DATE}
_LABEL, _USERS, _USER, _PLACE = "label", "users", "person", "place"


@dataclass(frozen=True, slots=True)
class Target:
    """Which table is asked, and in which dialect.

    >>> Target(("main", "clicks"), "duckdb").table().sql("duckdb")
    '"main"."clicks" AS "asked"'
    """

    name: tuple[str, ...]
    """The table's name, after those of its schema and catalogue if they are given."""

    dialect: str

    def table(self) -> exp.Table:
        """The table under the name that statements use."""
        parts = [exp.to_identifier(part, quoted=True) for part in self.name]
        names = dict(zip(("this", "db", "catalog"), reversed(parts), strict=False))
        return exp.Table(**names, alias=exp.TableAlias(this=exp.to_identifier(ALIAS, quoted=True)))

    def text(self, tree: exp.Expression) -> str:
        """The statement as the engine reads it."""
        return tree.sql(dialect=self.dialect, comments=False)


def users_by_label(
    target: Target,
    key: TableColumn,
    user: TableColumn,
    *,
    where: exp.Expression | None = None,
    labels: Sequence[str] | None = None,
    keys_per_user: int | None = None,
    limit: int,
) -> str:
    """How many users each label has: the largest first, equal ones by the label's bytes.

    With `labels` only those count. With `keys_per_user` each user counts for that many labels, the first ones by bytes
    among the user's own: the cut looks at one user and at nobody else.

    >>> target, text = Target(("clicks",), "duckdb"), TableColumn("article", Kind.TEXT)
    >>> print(users_by_label(target, text, TableColumn("member", Kind.TEXT), limit=11))
    SELECT "label", "users" FROM
    (SELECT "asked"."article" COLLATE "C" AS "label", COUNT(DISTINCT "asked"."member" COLLATE "C") AS "users"
     FROM "clicks" AS "asked" WHERE NOT "asked"."article" IS NULL AND NOT "asked"."member" IS NULL
     GROUP BY "asked"."article" COLLATE "C") AS "counted"
    ORDER BY "users" DESC, "label" COLLATE "C" ASC NULLS FIRST LIMIT 11
    """
    if key.kind not in _KEY_KINDS and not key.is_enum:
        raise ParameterError(
            f"column must hold texts, whole numbers, booleans or dates, got {key.name!r}, which does not"
        )
    label = _grouped(target, key)
    conditions = _conditions(key, user, where)
    if labels is not None:
        text = _as_text(target, key)
        conditions.append(exp.In(this=text, expressions=[exp.Literal.string(each) for each in labels]))
    if keys_per_user is None:
        person = _person(target, user)
        counted = (
            exp.select(_named(label, _LABEL), _named(exp.Count(this=exp.Distinct(expressions=[person])), _USERS))
            .from_(target.table())
            .where(*conditions)
            .group_by(label.copy())
        )
    else:
        counted = _cut(target, key, user, conditions, keys_per_user)
    order: list[exp.Expression] = [exp.Ordered(this=_quoted(_USERS), desc=True, nulls_first=False)]
    order.append(exp.Ordered(this=_in_bytes(target, key, _quoted(_LABEL)), desc=False, nulls_first=True))
    # Whole numbers become texts here; the rest where it is exact.
    shown: exp.Expression = _quoted(_LABEL)
    if key.is_enum or key.kind in {Kind.DATE, Kind.BOOLEAN}:
        shown = _named(exp.cast(shown, "text"), _LABEL)
    found = exp.select(shown, _quoted(_USERS)).from_(counted.subquery(_identifier("counted")))
    if target.dialect == "sqlite":
        found = found.where(exp.Anonymous(this=IS_TEXT, expressions=[exp.cast(_quoted(_LABEL), "blob")]))
    return target.text(found.order_by(*order).limit(limit))


def users(target: Target, user: TableColumn, *, where: exp.Expression | None = None) -> str:
    """How many users have a row.

    >>> print(users(Target(("clicks",), "duckdb"), TableColumn("member", Kind.TEXT)))
    SELECT COUNT(DISTINCT "asked"."member" COLLATE "C") AS "users" FROM "clicks" AS "asked"
    WHERE NOT "asked"."member" IS NULL
    """
    person = _person(target, user)
    return target.text(
        exp.select(_named(exp.Count(this=exp.Distinct(expressions=[person])), _USERS))
        .from_(target.table())
        .where(*_conditions(None, user, where))
    )


def _cut(
    target: Target, key: TableColumn, user: TableColumn, conditions: Sequence[exp.Expression], keys_per_user: int
) -> exp.Select:
    """Users by label, after each user was cut to some of the user's own labels."""
    person = _person(target, user)
    pairs = (
        exp.select(_named(person, _USER), _named(_grouped(target, key), _LABEL))
        .distinct()
        .from_(target.table())
        .where(*conditions)
    )
    place = exp.Window(
        this=exp.RowNumber(),
        partition_by=[_told_apart(target, user, _quoted(_USER))],
        order=exp.Order(
            expressions=[exp.Ordered(this=_in_bytes(target, key, _quoted(_LABEL)), desc=False, nulls_first=True)]
        ),
        over="OVER",
    )
    numbered = exp.select(_quoted(_LABEL), _named(place, _PLACE)).from_(pairs.subquery(_identifier("pairs")))
    return (
        exp.select(_quoted(_LABEL), _named(exp.Count(this=exp.Star()), _USERS))
        .from_(numbered.subquery(_identifier("numbered")))
        .where(exp.LTE(this=_quoted(_PLACE), expression=exp.Literal.number(keys_per_user)))
        .group_by(_quoted(_LABEL))
    )


def _conditions(key: TableColumn | None, user: TableColumn, where: exp.Expression | None) -> list[exp.Expression]:
    present = [column for column in (key, user) if column is not None]
    conditions: list[exp.Expression] = [
        exp.Not(this=exp.Is(this=exp.column(column.name, table=ALIAS, quoted=True), expression=exp.Null()))
        for column in present
    ]
    return conditions if where is None else [*conditions, where.copy()]


def _person(target: Target, user: TableColumn) -> exp.Expression:
    return _told_apart(target, user, exp.column(user.name, table=ALIAS, quoted=True))


def _told_apart(target: Target, user: TableColumn, value: exp.Expression) -> exp.Expression:
    """Users that are texts, by their bytes."""
    return _collated(target, value) if user.kind is Kind.TEXT and not user.is_enum else value


def _grouped(target: Target, key: TableColumn) -> exp.Expression:
    """The key as it is grouped by: a text by its bytes, anything else as it is."""
    column = exp.column(key.name, table=ALIAS, quoted=True)
    if key.is_enum:
        return column
    # SQLite lets any column hold any type: as texts, 1 and '1' are one label.
    if target.dialect == "sqlite":
        return _collated(target, exp.cast(column, "text"))
    return _collated(target, column) if key.kind is Kind.TEXT else column


def _as_text(target: Target, key: TableColumn) -> exp.Expression:
    """The key as the text that a domain lists."""
    column = exp.column(key.name, table=ALIAS, quoted=True)
    if key.kind is Kind.TEXT and not key.is_enum and target.dialect != "sqlite":
        return _collated(target, column)
    return _collated(target, exp.cast(column, "text"))


def _in_bytes(target: Target, key: TableColumn, label: exp.Expression) -> exp.Expression:
    """What equal counts are ordered by."""
    if key.kind is Kind.TEXT and not key.is_enum:
        return _collated(target, label)
    return _collated(target, exp.cast(label, "text"))


def _collated(target: Target, text: exp.Expression) -> exp.Expression:
    return by_bytes(text, target.dialect)


def _identifier(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _quoted(name: str) -> exp.Column:
    return exp.column(name, quoted=True)


def _named(value: exp.Expression, name: str) -> exp.Alias:
    return exp.Alias(this=value, alias=_identifier(name))
