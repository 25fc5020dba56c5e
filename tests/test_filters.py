"""A `where` is a condition on one row, or it is refused; streams and tables answer alike."""

import sqlite3
import subprocess
import sys
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pianissimo.errors import ParameterError
from pianissimo.filters import LONGEST_WHERE, Filter
from pianissimo.filters.conditions import Atom, ColumnName, Junction
from pianissimo.table.statements import ALIAS, Kind, TableColumn, written

REFUSED = [
    "",
    " ",
    "age = 60; DROP TABLE visits",
    "age = 60;",
    "age = 60 -- and more",
    "age = 60 /* and more */",
    "/* first */ age = 60",
    "-- nothing",
    "symptom = (SELECT 'fever')",
    "symptom IN (SELECT symptom FROM other)",
    "age IN (1, (SELECT 2))",
    "EXISTS (SELECT 1)",
    "NOT EXISTS (FROM other)",
    "age > (SELECT AVG(age) FROM visits)",
    "age = ANY (SELECT 1)",
    "SELECT 1",
    "age = 60 UNION SELECT 1",
    "age = 60 GROUP BY age",
    "age = 60 LIMIT 1",
    "age = 60 ORDER BY 1",
    "COUNT(*) > 3",
    "age > AVG(age)",
    "MAX(age) OVER () > 3",
    "ROW_NUMBER() OVER (ORDER BY age) = 1",
    "RANDOM() < 0.5",
    "NOW() > at",
    "CURRENT_DATE > day",
    "read_text('/etc/passwd') = 'x'",
    "MD5(symptom) = 'x'",
    "LOWER(symptom) = 'x'",
    "LENGTH(symptom) = 1",
    "COALESCE(symptom, 'x') = 'x'",
    "YEAR(day) = 2026",
    "visits.age = 60",
    "main.visits.age = 60",
    "age / 0 = 1",
    "age + 9223372036854775807 > 0",
    "-age > 3",
    "CAST(symptom AS INTEGER) = 5",
    "symptom::INTEGER = 5",
    "TRY_CAST(symptom AS INTEGER) = 5",
    "day > DATE '2026-03-31'",
    "age = 99999999999999999999",
    "age < 1e999",
    "age = 1e-400",
    "age = 1e-310",
    "age = 1_000",
    "age = 0x10",
    "age = NULL",
    "age IN (1, NULL)",
    "age IN ()",
    "age IN 5",
    "age IN (1, 'x')",
    "age IS DISTINCT FROM 3",
    "paid IS TRUE",
    "paid > TRUE",
    "paid IN (TRUE)",
    "symptom LIKE other",
    "symptom LIKE 'a\\'",
    "symptom LIKE 'a' ESCAPE '!'",
    "symptom LIKE ANY ('a', 'b')",
    "symptom ILIKE 'a'",
    f"symptom LIKE '{'_' * 1001}'",
    "age BETWEEN SYMMETRIC 2 AND 1",
    "symptom SIMILAR TO 'a'",
    "symptom ~ '(a+)+$'",
    "symptom IN (other)",
    "'a' IN (symptom)",
    "(symptom, age) = ('fever', 1)",
    "symptom = ?",
    "symptom = $1",
    "symptom = :name",
    "CASE WHEN paid THEN 1 / age ELSE 1 END = 1",
    "symptom COLLATE NOCASE = 'de'",
    "*",
    "age = ",
    "symptom = 'fever",
    "paid AND",
    "x -> x > 1",
    "symptom = 'a' || 'b'",
    "symptom = 'a' 'b'",
    "tags[1] = 'x'",
    "{'a': 1}.a = 1",
    "symptom = 'a\0b'",
    '"a\0b" = 5',
    '"" = 5',
    "TRUE",
    "1 = 1",
    "'x' IS NULL",
    "symptom = 'a' AND symptom > 5",
    "paid AND paid = 5",
    "a = b AND a = 'x' AND b = 5",
    "a = b AND b = c AND c LIKE 'x' AND a > 1",
    "x" * (LONGEST_WHERE + 1),
    "(" * 3000 + "paid" + ")" * 3000,
    "NOT (a OR " * 40 + "b" + ")" * 40,
]


@pytest.mark.parametrize("where", REFUSED)
def test_what_is_no_condition_on_one_row_is_refused(where: str) -> None:
    with pytest.raises(ParameterError, match="where must"):
        Filter.of(where)


@pytest.mark.parametrize("where", [None, 5, b"paid", ["paid"], pl.Series([True])])
def test_what_is_neither_sql_nor_an_expression_is_refused(where: Any) -> None:
    with pytest.raises(ParameterError, match="where must be SQL or a polars expression"):
        Filter.of(where)


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("symptom = 'it''s; -- fine'", "\"symptom\" = 'it''s; -- fine'"),
        ('"odd ""name""" <> \'x\'', '"odd ""name""" <> \'x\''),
        ("60 <= age", '"age" >= 60'),
        ("age = -1.5e3 OR age = 1e300", '"age" = -1500 OR "age" = 1e+300'),
        ("age BETWEEN 1 AND limit_", '"age" >= 1 AND "age" <= "limit_"'),
        ("age NOT IN (1, 2.5)", 'NOT ("age" IN (1, 2.5))'),
        ("symptom NOT LIKE 'f%'", "NOT (\"symptom\" LIKE 'f%')"),
        ("symptom IS NOT NULL", '"symptom" IS NOT NULL'),
        ("paid = TRUE AND sent <> TRUE AND NOT NOT late", '"paid" AND NOT "sent" AND "late"'),
        ("a OR (b OR c) AND d", '"a" OR (("b" OR "c") AND "d")'),
        ("NOT (a AND b)", 'NOT ("a" AND "b")'),
    ],
)
def test_the_text_is_the_one_form_of_a_condition(where: str, text: str) -> None:
    assert Filter.of(where).text == text
    assert Filter.of(text) == Filter.of(where)
    assert hash(Filter.of(text)) == hash(Filter.of(where))
    assert repr(Filter.of(where)) == f"Filter({text})"


age, symptom, paid = pl.col("age"), pl.col("symptom"), pl.col("paid")


@pytest.mark.parametrize(
    ("where", "text"),
    [
        (age > 39, "age > 39"),
        (pl.lit(39) < age, "age > 39"),
        (age >= pl.lit(39.0), "age >= 39"),
        (pl.lit(7, dtype=pl.UInt8) == age, "age = 7"),
        ((age > 1) & ~symptom.is_null() & paid, "age > 1 AND symptom IS NOT NULL AND paid"),
        (symptom.is_not_null() | (paid == False), "symptom IS NOT NULL OR NOT paid"),  # noqa: E712
        (age.is_between(1, 2.5), "age BETWEEN 1 AND 2.5"),
        (age.is_between(1, 2, closed="none"), "age > 1 AND age < 2"),
        (symptom.is_in(["a", "b"]).alias("x"), "symptom IN ('a', 'b')"),
        (age.is_in([1, 2]), "age IN (1, 2)"),
        (symptom.is_in(pl.Series(["a"])), "symptom IN ('a')"),
        (symptom.str.starts_with("a"), "symptom LIKE 'a%'"),
        (symptom.str.ends_with("a"), "symptom LIKE '%a'"),
        (symptom.str.contains("a.b", literal=True), "symptom LIKE '%a.b%'"),
        (age == pl.col("limit"), 'age = "limit"'),
    ],
)
def test_an_expression_of_polars_is_the_condition_that_it_says(where: pl.Expr, text: str) -> None:
    assert Filter.of(where) == Filter.of(text)


@pytest.mark.parametrize(
    "where",
    [
        age.mean() < age,
        age.max().over("ward") < age,
        age.shift(1) > 2,
        age.rank() > 3,
        age.cum_sum() > 3,
        age.is_duplicated(),
        age.is_first_distinct(),
        pl.len() > 3,
        age.sort() > 1,
        pl.lit(pl.Series([1, 2])) < age,
        age.map_batches(lambda column: column > column.mean()),
        age.fill_null(strategy="forward") > 1,
        age.first() == age,
        pl.int_range(pl.len()) > 4,
        age + 1 > 2,
        age.cast(pl.Int8) > 2,
        symptom.str.to_lowercase() == "x",
        pl.col("at").dt.hour() < 6,
        pl.when(age > 1).then(True).otherwise(False),
        pl.all() > 3,
        pl.col("a", "b") > 3,
        pl.col("^a.*$") > 3,
        age.eq_missing(3),
        paid ^ pl.col("late"),
        # One row of hers once made the alarm ring for 300 others.
        pl.col("drug").is_in(pl.col("recalled")),
        pl.lit(3).is_in(pl.col("y")),
        pl.col("x").is_in(pl.col("y") + 0),
        symptom.str.contains(pl.col("pattern")),
    ],
)
def test_an_expression_that_looks_further_than_its_row_is_refused(where: pl.Expr) -> None:
    with pytest.raises(ParameterError, match="must look at one row alone"):
        Filter.of(where)


@pytest.mark.parametrize(
    "where",
    [
        pl.lit(True),
        paid & True,
        age == pl.lit(None),
        age > float("nan"),
        age > float("inf"),
        age > 2**70,
        age > pl.lit(1.1, dtype=pl.Float32),
        symptom.is_in([]),
        symptom.is_in(["a", None]),
        symptom.is_in(["a"], nulls_equal=True),
        symptom.str.contains("a+"),
        symptom.str.starts_with("10%"),
        symptom == "\0",
        (symptom == "x") & (symptom > 5),
        pl.lit(1) == pl.lit(1),
    ],
)
def test_an_expression_without_a_rule_is_refused(where: pl.Expr) -> None:
    with pytest.raises(ParameterError, match="where must"):
        Filter.of(where)


def test_a_long_chain_is_not_a_deep_one() -> None:
    assert len(Filter.of(" OR ".join(f"age = {n}" for n in range(500))).condition.parts) == 500  # type: ignore[union-attr]
    deep = age > 0
    for n in range(5000):
        deep = deep & (age > n)
    with pytest.raises(ParameterError, match="where must"):
        Filter.of(deep)


def test_the_columns_that_are_compared_hold_the_same() -> None:
    assert Filter.of("a = b AND b = c AND c LIKE 'x%' AND d IS NULL AND e").columns == {
        **dict.fromkeys("abc", True),
        **dict.fromkeys("de", False),
    }


def test_columns_of_other_types_are_told_without_a_value() -> None:
    with pytest.raises(ParameterError, match="texts with texts") as told:
        Filter.of("age > 60").matches(pl.DataFrame({"age": ["geheim"]}))
    assert "geheim" not in str(told.value)


def test_sqlglot_is_read_when_it_is_needed() -> None:
    code = "import sys, pianissimo.filters; assert 'sqlglot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- one answer, whoever gives it -----------------------------------------------------------------------------------

COLUMNS = {
    "s": TableColumn("s", Kind.TEXT),
    "t": TableColumn("t", Kind.TEXT),
    "n": TableColumn("n", Kind.INTEGER),
    "m": TableColumn("m", Kind.INTEGER),
    "x": TableColumn("x", Kind.REAL),
    "p": TableColumn("p", Kind.BOOLEAN),
}
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
ALPHABET = "aAbÉé%_*?[]^'\"- .\n\t𝄞z"
texts = st.text(ALPHABET, max_size=4) | st.text(st.characters(codec="utf-8", exclude_characters="\0\\"), max_size=4)
small = st.integers(-3, 3)
wholes = small | st.integers(-(2**53), 2**53)
large = small | st.integers(-(2**63) + 1, 2**63 - 1)
reals = st.integers(-6, 6).map(lambda n: n / 2) | st.floats(
    allow_nan=False, allow_infinity=False, allow_subnormal=False
)


def atom(
    columns: str, values: st.SearchStrategy[Any], signs: st.SearchStrategy[str] = SIGNS
) -> st.SearchStrategy[Atom]:
    return st.builds(Atom, st.sampled_from(columns).map(ColumnName), signs, values)


def kept(number: float) -> float:
    """As a filter keeps it."""
    return int(number) if float(number).is_integer() and abs(number) < 2**63 else number


def lists(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, min_size=1, max_size=3).map(tuple)


atoms = (
    atom("st", texts)
    | atom("nm", large)
    | atom("x", reals.map(kept) | wholes)
    | atom("nm", st.integers(-6, 6).map(lambda n: kept(n / 2)))
    | atom("s", st.just(ColumnName("t")))
    | atom("n", st.just(ColumnName("m")))
    | atom("st", lists(texts), st.just("IN"))
    | atom("nm", lists(large), st.just("IN"))
    | atom("x", lists(reals.map(kept)), st.just("IN"))
    | atom("st", st.text(ALPHABET, max_size=5), st.just("LIKE"))
    | atom("stnmxp", st.none(), st.just("IS NULL"))
    | atom("p", st.none(), st.just("IS TRUE"))
)
conditions = st.recursive(
    atoms,
    lambda inner: (
        st.builds(Junction, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(Junction, st.just("NOT"), st.tuples(inner))
    ),
    max_leaves=8,
)
filters = conditions.map(lambda condition: Filter.of(Filter(condition).text))
frames = st.lists(
    st.fixed_dictionaries(
        {
            "s": st.none() | texts,
            "t": st.none() | texts,
            "n": st.none() | large,
            "m": st.none() | large,
            "x": st.none() | st.just(float("nan")) | reals,
            "p": st.none() | st.booleans(),
        }
    ),
    max_size=12,
).map(
    lambda rows: pl.DataFrame(
        rows, schema={"s": pl.String, "t": pl.String, "n": pl.Int64, "m": pl.Int64, "x": pl.Float64, "p": pl.Boolean}
    )
)


@given(condition=conditions)
@settings(deadline=None)
def test_a_text_is_read_as_the_condition_that_it_was_written_from(condition: Any) -> None:
    once = Filter.of(Filter(condition).text)
    assert Filter.of(once.text) == once
    assert Filter.of(once) is once


@given(where=filters, frame=frames)
@settings(deadline=None)
def test_duckdb_keeps_the_rows_that_polars_keeps(where: Filter, frame: pl.DataFrame) -> None:
    matches = where.matches(frame)
    assert matches.null_count() == 0
    visits = frame.with_row_index("row").to_arrow()
    sql = written(where, COLUMNS, "duckdb").sql("duckdb")
    found = duckdb.from_arrow(visits).set_alias(ALIAS).filter(sql).project("row").order("row").fetchall()
    assert [row for (row,) in found] == matches.arg_true().to_list()


@given(where=filters, frame=frames)
@settings(deadline=None)
def test_sqlite_keeps_the_rows_that_polars_keeps(where: Filter, frame: pl.DataFrame) -> None:
    frame = frame.with_columns(pl.col("x").fill_nan(None))  # which SQLite cannot hold
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE visits (s TEXT COLLATE NOCASE, t TEXT, n INTEGER, m INTEGER, x REAL, p BOOLEAN)")
    database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?)", frame.rows())
    sql = written(where, COLUMNS, "sqlite").sql("sqlite")
    found = database.execute(f'SELECT rowid - 1 FROM visits AS "{ALIAS}" WHERE {sql} ORDER BY rowid').fetchall()
    database.close()
    assert [row for (row,) in found] == where.matches(frame).arg_true().to_list()


@given(where=st.text(max_size=40) | st.lists(st.sampled_from(" ".join(REFUSED[:-2]).split()), max_size=8).map(" ".join))
@settings(deadline=None)
def test_anything_is_a_condition_or_refused(where: str) -> None:
    try:
        found = Filter.of(where)
    except ParameterError:
        return
    assert Filter.of(found.text) == found
    found.expression()
