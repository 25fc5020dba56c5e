"""A `where` is a predicate over one row, or it is refused."""

from collections.abc import Mapping
from datetime import date

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from pianissimo.errors import ParameterError
from pianissimo.table.where import ALIAS, Column, Kind, row_predicate

COLUMNS: Mapping[str, Column] = {
    name: Column(name, kind)
    for name, kind in {
        "country": Kind.TEXT,
        'odd "name"': Kind.TEXT,
        "clicks": Kind.INTEGER,
        "price": Kind.REAL,
        "fee": Kind.DECIMAL,
        "day": Kind.DATE,
        "moment": Kind.TIMESTAMP,
        "paid": Kind.BOOLEAN,
        "tags": Kind.OTHER,
    }.items()
}
DIALECTS = ["duckdb", "postgres", "sqlite", "mysql"]

ATTACKS = [
    "",
    " ",
    "country",
    "country = 'DE'; DROP TABLE clicks",
    "country = 'DE';",
    "country = 'DE' -- and more",
    "country = 'DE' /* and more */",
    "/* first */ country = 'DE'",
    "-- nothing",
    "country = (SELECT 'DE')",
    "country IN (SELECT country FROM other)",
    "EXISTS (SELECT 1)",
    "clicks > (SELECT AVG(clicks) FROM clicks)",
    "clicks = ANY (SELECT 1)",
    "SELECT 1",
    "country = 'DE' UNION SELECT 1",
    "country = 'DE' GROUP BY country",
    "country = 'DE' LIMIT 1",
    "country = 'DE' ORDER BY 1",
    "COUNT(*) > 3",
    "SUM(clicks) > 3",
    "MAX(clicks) OVER () > 3",
    "ROW_NUMBER() OVER (ORDER BY clicks) = 1",
    "RANK() OVER (PARTITION BY country ORDER BY clicks) = 1",
    "RANDOM() < 0.5",
    "NOW() > moment",
    "CURRENT_DATE > day",
    "moment < CURRENT_TIMESTAMP",
    "NEXTVAL('s') > 0",
    "PG_SLEEP(10) IS NULL",
    "read_text('/etc/passwd') = 'x'",
    "getenv('HOME') = 'x'",
    "MD5(country) = 'x'",
    "other.country = 'DE'",
    "clicks.country = 'DE'",
    "main.clicks.country = 'DE'",
    "nobody = 1",
    "rowid = 1",
    "clicks / 0 = 1",
    "1 / clicks > 0",
    "clicks + 9223372036854775807 > 0",
    "clicks * clicks > 0",
    "CAST(country AS INTEGER) = 5",
    "country::INTEGER = 5",
    "TRY_CAST(country AS INTEGER) = 5",
    "country = 5",
    "clicks = 'x'",
    "day = 'not a day'",
    "day > DATE 'x'",
    "moment > '2026-01-01T00:00:00+05:00'",
    "tags = 'x'",
    "fee = fee",
    "price = clicks",
    "clicks = 99999999999999999999",
    "price < 1e999",
    "country LIKE country",
    "country LIKE 'a\\'",
    "country LIKE 'a' ESCAPE '!'",
    "country LIKE ANY ('a', 'b')",
    "clicks BETWEEN SYMMETRIC 2 AND 1",
    "country SIMILAR TO 'a'",
    "country ~ '(a+)+$'",
    "REGEXP_MATCHES(country, 'a')",
    "country IN (country)",
    "(country, clicks) = ('DE', 1)",
    "country = ?",
    "country = $1",
    "country = :name",
    "CASE WHEN paid THEN 1 / clicks ELSE 1 END = 1",
    "COALESCE(clicks, 1 / 0) = 1",
    "country COLLATE NOCASE = 'de'",
    "*",
    "paid = ",
    "country = 'DE",
    "paid AND",
    "x -> x > 1",
    "country = 'a' || 'b'",
    "[x FOR x IN tags] = tags",
    "tags[1] = 'x'",
    "{'a': 1}.a = 1",
    "clicks IN (1, (SELECT 2))",
    "NOT EXISTS (FROM other)",
    "country = e'\\x00'",
    "country = 'a\0b'",
    "paid = (VALUES (TRUE))",
    "LENGTH(clicks) = 1",
    "TRIM(country, 'x') = 'a'",
    "x" * 9000,
]

ALLOWED = [
    "country = 'DE'",
    "Country <> 'DE'",
    "country = 'it''s; -- fine'",
    '"odd ""name""" = \'x\'',
    "clicks BETWEEN -3 AND 5 AND NOT paid",
    "clicks IN (1, 2, 3) OR country IN ('DE')",
    "price >= 1.5 AND fee < 3",
    "day >= '2026-03-01' AND moment < '2026-03-02 12:00:00'",
    "country IS NOT NULL AND paid IS TRUE",
    "country LIKE 'D%' AND LOWER(country) = 'de'",
    "LENGTH(TRIM(country)) > 1",
    "COALESCE(country, 'none') = 'none'",
    "tags IS NULL",
    "TRUE",
    "clicks IS DISTINCT FROM 3",
]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("where", ATTACKS)
def test_what_is_no_row_predicate_is_refused(where: str, dialect: str) -> None:
    with pytest.raises(ParameterError, match="where must"):
        row_predicate(where, COLUMNS, dialect)


@pytest.mark.parametrize("where", [None, 5, b"paid", ["paid"]])
def test_what_is_no_text_is_refused(where: object) -> None:
    with pytest.raises(ParameterError, match="where must"):
        row_predicate(where, COLUMNS, "duckdb")  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "sqlite"])
@pytest.mark.parametrize("where", ALLOWED)
def test_row_predicates_pass(where: str, dialect: str) -> None:
    check_is_row_predicate(row_predicate(where, COLUMNS, dialect).sql(dialect), dialect)


@pytest.mark.parametrize("dialect", ["duckdb", "postgres", "sqlite", "mysql", "snowflake", "bigquery", "tsql"])
@pytest.mark.parametrize(
    ("where", "operator"),
    [
        ("country IS NOT NULL", exp.Is),
        ("country NOT LIKE 'D%'", exp.Like),
        ("clicks NOT IN (1, 2)", exp.In),
        ("clicks NOT BETWEEN 1 AND 2", exp.Between),
    ],
)
def test_a_no_stays_a_no_in_every_dialect(where: str, operator: type[exp.Expression], dialect: str) -> None:
    """Dialects differ in where sqlglot keeps it."""
    written = row_predicate(where, COLUMNS, dialect)
    assert isinstance(written, exp.Paren)
    assert isinstance(written.this, exp.Not)
    assert isinstance(written.this.this.unnest(), operator)
    assert not written.find(operator).args.get("negate")  # type: ignore[union-attr]


def test_nesting_without_end_is_refused() -> None:
    with pytest.raises(ParameterError, match="nest"):
        row_predicate("(" * 3000 + "paid" + ")" * 3000, COLUMNS, "duckdb")


def test_enums_are_compared_as_texts() -> None:
    columns = {"country": Column("country", Kind.TEXT, is_enum=True)}
    assert row_predicate("country = 'DE'", columns, "duckdb").sql("duckdb") == (
        '(CAST("asked"."country" AS TEXT) = \'DE\')'
    )


def check_is_row_predicate(sql: str, dialect: str) -> None:
    """What is sent has no node that looks beyond its row, and no column that is not ours."""
    tree = sqlglot.parse_one(sql, dialect=dialect)
    for node in tree.walk():
        assert not isinstance(
            node, exp.Query | exp.Subquery | exp.AggFunc | exp.Window | exp.Anonymous | exp.Placeholder
        )
        assert not node.comments
        if isinstance(node, exp.Column):
            assert node.table == ALIAS
            assert node.name in COLUMNS
            assert node.this.quoted


texts = st.text(st.characters(exclude_characters="\0\\", exclude_categories=["Cs"]), max_size=12)
text_sql = texts.map(lambda text: "'" + text.replace("'", "''") + "'")
numbers = st.integers(-(2**63) + 1, 2**63 - 1).map(str) | st.floats(-1e6, 1e6).map(lambda x: f"{x:.3f}")
days = st.dates(min_value=date(1900, 1, 1)).map(lambda day: f"'{day.isoformat()}'")
signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"])
atoms = (
    st.builds("country {} {}".format, signs, text_sql)
    | st.builds("clicks {} {}".format, signs, numbers)
    | st.builds("price {} {}".format, signs, numbers)
    | st.builds("fee {} {}".format, signs, numbers)
    | st.builds("day {} {}".format, signs, days)
    | st.builds("clicks BETWEEN {} AND {}".format, numbers, numbers)
    | st.builds("country {} ({}, {})".format, st.sampled_from(["IN", "NOT IN"]), text_sql, text_sql)
    | st.sampled_from(["paid", "paid IS NOT TRUE", "country IS NULL", "tags IS NOT NULL", "LOWER(country) = 'de'"])
    | st.sampled_from(["country NOT LIKE 'D%'", "clicks NOT BETWEEN 1 AND 5", "country ILIKE '%e'"])
)
predicates = st.recursive(
    atoms,
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
        | st.builds("NOT ({})".format, inner)
    ),
    max_leaves=6,
)

ROWS = """
CREATE TABLE clicks AS SELECT * FROM (VALUES
    ('DE', 1, 1.5, 2.50, DATE '2026-03-01', TRUE), ('FR', -5, 0.0, -1.25, DATE '1999-12-31', FALSE),
    ('it''s', 9223372036854775807, 1e300, 99999999.99, DATE '5000-01-01', TRUE), (NULL, NULL, NULL, NULL, NULL, NULL),
    ('', 0, 'nan', 0, DATE '2026-03-02', FALSE)
) AS rows(country, clicks, price, fee, day, paid)
"""


@given(where=predicates)
@settings(deadline=None)
def test_a_predicate_written_anew_says_the_same_and_never_fails(where: str) -> None:
    with duckdb.connect() as database:
        database.execute(ROWS)
        database.execute("ALTER TABLE clicks ALTER price TYPE DOUBLE")
        database.execute("ALTER TABLE clicks ALTER clicks TYPE BIGINT")
        database.execute("ALTER TABLE clicks ADD COLUMN tags VARCHAR[]")
        written = row_predicate(where, COLUMNS, "duckdb").sql("duckdb")
        check_is_row_predicate(written, "duckdb")
        found = database.execute(f'SELECT rowid FROM clicks AS "{ALIAS}" WHERE {written}').fetchall()
        try:
            expected = database.execute(f"SELECT rowid FROM clicks WHERE {where}").fetchall()
        except duckdb.DataError:
            return  # as it was written it fails at a row; as we write it, it does not
        if "fee" not in where and "price" not in where and "." not in where:
            assert found == expected


@given(where=st.text(max_size=40) | st.lists(st.sampled_from(" ".join(ATTACKS).split()), max_size=8).map(" ".join))
@settings(deadline=None)
def test_anything_is_a_row_predicate_or_refused(where: str) -> None:
    try:
        written = row_predicate(where, COLUMNS, "duckdb").sql("duckdb")
    except ParameterError:
        return
    check_is_row_predicate(written, "duckdb")
