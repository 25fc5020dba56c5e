"""What broke tables once: rows that made a question fail, budgets that a second name gave, charges that came back.

Most are about Ann, who is in one of two neighboring tables: whatever can be told apart without paying for it is an
answer about her.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.ledger.processes import KEY, postgres_server
from tests.table.clicks import BUDGET, without_noise

from pianissimo.errors import BudgetError, InputError, LedgerError, ParameterError
from pianissimo.ledger import guarded
from pianissimo.table import StepAllowance, Table, TableLedger
from pianissimo.table.engines import DataDependentError, SqlEngine
from pianissimo.table.statements import Kind

Execute = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture
def execute(server: str) -> Iterator[Execute]:
    import psycopg

    with psycopg.connect(server, autocommit=True) as database:
        yield database.execute
        database.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; ALTER ROLE tester RESET ALL")


def on_server(url: str, name: str, folder: Path, **named: Any) -> Table:
    ledger = folder / f"{len(list(folder.iterdir()))}.db"
    return without_noise(Table(url, name, user="member", budget=BUDGET, ledger=ledger, **named))


def in_memory(frame: object, **named: Any) -> Table:
    return without_noise(Table(frame, user="member", budget=BUDGET, **named))


def members(number: int = 50, *more: str) -> list[str]:
    return [*(f"m{each}" for each in range(number)), *more]


# --- texts in PostgreSQL --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ann", [False, True])
def test_letters_of_citext_are_those_of_each_row(server: str, execute: Execute, tmp_path: Path, ann: bool) -> None:
    execute("CREATE EXTENSION IF NOT EXISTS citext")
    execute("CREATE TABLE clicks (member citext, article citext)")
    if ann:
        execute("INSERT INTO clicks VALUES ('ann', 'tEa')")
    execute("INSERT INTO clicks SELECT 'm' || i, 'tea' FROM generate_series(1, 3000) AS i")
    with on_server(server, "clicks", tmp_path) as table:
        assert table.top_k("article", 1).labels == ("tea",)
        assert table.histogram("article", max_keys_per_user=1).table["estimate"].to_list() == [3000]
        known = table.histogram("article", domain=["tea", "tEa"])
        assert known.table["estimate"].to_list() == [int(ann), 3000]
        assert table.count(where="article = 'tEa'").estimate == int(ann)
        assert table.count(where="member = 'ANN'").estimate == 0


def test_users_are_told_apart_by_bytes(server: str, execute: Execute, tmp_path: Path) -> None:
    execute("CREATE EXTENSION IF NOT EXISTS citext")
    execute("CREATE TABLE clicks (member citext, article text)")
    execute("INSERT INTO clicks VALUES ('ann', 'b'), ('Ann', 'a')")
    with on_server(server, "clicks", tmp_path) as table:
        assert table.count().estimate == 2
        cut = table.histogram("article", domain=["a", "b"], max_keys_per_user=1)
        assert cut.table["estimate"].to_list() == [1, 1]
    file = tmp_path / "clicks.duckdb"
    with duckdb.connect(str(file)) as database:
        database.execute("CREATE TABLE clicks (member VARCHAR COLLATE NOCASE, article VARCHAR)")
        database.execute("INSERT INTO clicks VALUES ('ann', 'b'), ('Ann', 'a')")
    lite = sqlite3.connect(tmp_path / "clicks.sqlite")
    lite.execute("CREATE TABLE clicks (member TEXT COLLATE NOCASE, article TEXT)")
    lite.execute("INSERT INTO clicks VALUES ('ann', 'b'), ('Ann', 'a')")
    lite.commit()
    lite.close()
    for place in (file, tmp_path / "clicks.sqlite"):
        with without_noise(Table(place, "clicks", user="member", budget=BUDGET)) as table:
            assert table.count().estimate == 2
            cut = table.histogram("article", domain=["a", "b"], max_keys_per_user=1)
            assert cut.table["estimate"].to_list() == [1, 1]


def test_blanks_of_char_are_no_part_of_a_label(server: str, execute: Execute, tmp_path: Path) -> None:
    execute("CREATE TABLE clicks (member char(8), country char(10))")
    execute("INSERT INTO clicks SELECT 'm' || i, 'DE' FROM generate_series(1, 3000) AS i")
    with on_server(server, "clicks", tmp_path) as table:
        assert table.top_k("country", 1).labels == ("DE",)
        assert table.histogram("country", domain=["DE"]).estimate == 3000
        assert table.count(where="country = 'DE' AND country LIKE '__' AND member = 'm7'").estimate == 1


@pytest.mark.parametrize("ann", [False, True])
@pytest.mark.parametrize(
    "where",
    [
        "article LIKE 't%'",
        "article = posix OR article < posix",
        "article BETWEEN 'a' AND 'z'",
        "article IN ('tea', 'rain')",
        "plain < posix",
    ],
)
def test_no_collation_fails_at_a_row(server: str, execute: Execute, tmp_path: Path, where: str, ann: bool) -> None:
    execute("CREATE COLLATION nd (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    execute('CREATE TABLE clicks (member text, article text COLLATE nd, posix text COLLATE "POSIX", plain text)')
    execute("INSERT INTO clicks SELECT 'm' || i, 'tea', 'tea', 'a' FROM generate_series(1, 50) AS i")
    if ann:
        execute("INSERT INTO clicks VALUES ('ann', 'tea', 'tea', 'a')")
    with on_server(server, "clicks", tmp_path) as table:
        assert table.count(where=f"member = 'ann' AND ({where})").estimate == int(ann)


def test_a_backslash_ends_no_text_whatever_the_role_says(server: str, execute: Execute, tmp_path: Path) -> None:
    execute("CREATE TABLE clicks (member text, article text)")
    execute("INSERT INTO clicks SELECT 'm' || i, 'tea' FROM generate_series(1, 50) AS i")
    execute("CREATE TABLE other (secret int)")
    execute("INSERT INTO other VALUES (42)")
    execute("ALTER ROLE tester SET standard_conforming_strings = off")
    with on_server(server, "clicks", tmp_path) as table:
        where = r"article = '\'' OR 42 = (SELECT secret FROM other)) -- '"
        assert table.count(where=where).estimate == 0
        label = r"\' ) OR true) -- "
        assert table.histogram("article", domain=[label]).estimate == 0


def test_a_client_encoding_of_the_role_stops_no_label(server: str, execute: Execute, tmp_path: Path) -> None:
    execute("CREATE TABLE clicks (member text, article text)")
    execute("INSERT INTO clicks SELECT 'm' || i, '茶' FROM generate_series(1, 3000) AS i")
    execute("ALTER ROLE tester SET client_encoding = 'LATIN1'")
    with on_server(server, "clicks", tmp_path) as table:
        assert table.top_k("article", 1).labels == ("茶",)


def test_a_database_of_any_bytes_is_refused(server: str, execute: Execute, tmp_path: Path) -> None:
    import psycopg

    execute("CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    url = server.replace("/postgres?", "/bytes?")
    with psycopg.connect(url, autocommit=True) as database:
        database.execute("CREATE TABLE clicks (member text, article text)")
    with pytest.raises(InputError, match="UTF8"):
        on_server(url, "clicks", tmp_path)
    execute("DROP DATABASE bytes")


# --- times ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("ann", [False, True])
def test_no_time_fails_at_a_row(unit: str, ann: bool) -> None:
    extremes = [-(2**63), -(2**63) + 1, 2**63 - 1, 0]
    at = pa.array([*[0] * 50, *(extremes if ann else [])], pa.int64()).cast(pa.timestamp(unit))
    other = pa.array([*[0] * 50, *(extremes if ann else [])], pa.int64()).cast(pa.timestamp("us"))
    zoned = pa.array([*[0] * 50, *(extremes if ann else [])], pa.int64()).cast(pa.timestamp(unit, "UTC"))
    days = pa.array([*[0] * 50, *([-(2**31), 2**31 - 1, 1, 2] if ann else [])], pa.int32()).cast(pa.date32())
    who = members(50, *["ann"] * (4 if ann else 0))
    frame = pa.table({"member": who, "at": at, "other": other, "zoned": zoned, "day": days})
    wheres = [
        "at < '9999-12-31'",
        "at < '2261-01-01'",
        "at >= '2020-01-01 00:00:00'",
        "at < '2020-01-01 00:00:00.000001'",
        "at = other",
        "at = at",
        "zoned < '9999-12-31'",
        "day < '9999-12-31'",
        "at BETWEEN '1700-01-01' AND '2200-01-01'",
        "at IN ('1970-01-01')",
    ]
    answered = 0
    with in_memory(frame) as table:
        for where in wheres:
            try:
                table.count(where=f"member = 'ann' AND {where}")
            except ParameterError:
                continue  # and so it is whoever is in the table
            answered += 1
        days_shown = table.top_k("day", 3)
    assert answered == {"s": 8, "ms": 8, "us": 10, "ns": 8}[unit]
    assert days_shown.met_threshold


def test_nanoseconds_have_their_range(tmp_path: Path) -> None:
    file = tmp_path / "clicks.duckdb"
    with duckdb.connect(str(file)) as database:
        database.execute("CREATE TABLE clicks (member VARCHAR, moment TIMESTAMP_NS, s TIMESTAMP_S)")
        database.execute("INSERT INTO clicks VALUES ('ann', '2026-03-31', '2026-03-31')")
    with without_noise(Table(file, "clicks", user="member", budget=BUDGET)) as table:
        for where in ("moment < '2262-04-11'", "moment > '1677-09-21'", "moment = s", "s < '2026-03-31 00:00:00.5'"):
            with pytest.raises(ParameterError, match="where must"):
                table.count(where=where)
        assert table.count(where="moment > '1677-09-22' AND moment < '2262-04-10' AND s <= '2026-03-31'").estimate == 1
        assert table.count(where="moment <= '2026-03-31 00:00:00'").estimate == 1


# --- tables in memory -----------------------------------------------------------------------------------------------


class Odd:
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("odd", ["text", 1.5, 2**70, [1], b"\xff", "\ud800", None, float("nan"), Odd(), pd.NA, True])
@pytest.mark.parametrize("rest", [1, "tea"])
def test_objects_are_texts_whatever_one_of_them_is(rest: object, odd: object) -> None:
    values = pd.Series([*[rest] * 1999, odd], dtype=object)
    frame = pd.DataFrame({"member": members(2000), "x": values})
    with in_memory(frame) as table:
        assert table._engine.columns["x"].kind is Kind.TEXT
        with pytest.raises(ParameterError, match="a text and a number"):
            table.plan.count(where="x = 1")
        assert table.top_k("x", 1).labels == (str(rest),)
        assert table.count(where=f"x = '{rest}'").estimate == 1999
        assert table.count(where="x IS NULL").estimate in (0, 1)


def test_what_has_no_kind_is_there_or_not() -> None:
    nothing = [None, None]
    frame = pl.DataFrame(
        {
            "member": ["ann", "bob"],
            "tags": [["a"], None],
            "pair": [{"a": 1}, None],
            "length": pl.Series([5, None]).cast(pl.Duration),
            "object": pl.Series([object(), None], dtype=pl.Object),
            "wide": pl.Series([2**100, None], dtype=pl.Int128),
            "none": nothing,
        }
    )
    with in_memory(frame) as table:
        for column in ("tags", "pair", "length", "object", "wide"):
            assert table.count(where=f"{column} IS NOT NULL").estimate == 1
            with pytest.raises(ParameterError, match="column must hold"):
                table.top_k(column, 1)
        assert table.count(where="none IS NULL").estimate == 2
    with pytest.raises(ParameterError, match="whose values can be compared"):
        Table(frame, user="tags", budget=BUDGET)


def test_pandas_columns_keep_their_kinds() -> None:
    frame = pd.DataFrame(
        {
            "member": pd.Series(["ann", "bob", "cy"], dtype="string"),
            "n": pd.array([1, None, 3], dtype="Int64"),
            "x": np.array([1.5, np.nan, 2.5], dtype="float16"),
            "label": pd.Categorical(["a", "b", None]),
            "number": pd.Categorical([1, 2, None]),
            "at": pd.to_datetime(["2026-03-31", None, "2026-04-01"]).astype("datetime64[ns]"),
            "zoned": pd.to_datetime(["2026-03-31", None, "2026-04-01"]).tz_localize("Europe/Berlin"),
            "sparse": pd.arrays.SparseArray([1, 0, 2]),
            "period": pd.period_range("2026", periods=3, freq="D"),
        }
    )
    with in_memory(frame) as table:
        where = "n >= 1 AND x > 1.0 AND at < '2026-04-01' AND label = 'a' AND number = '1' AND zoned > '2026-03-30'"
        assert table.count(where=where).estimate == 1
        assert table.count(where="n IS NULL AND x IS NULL AND at IS NULL AND period IS NOT NULL").estimate == 1


@pytest.mark.parametrize("names", [("member", "Member"), ("member", "member"), ("straße", "STRASSE"), ("", "a")])
def test_names_that_an_engine_takes_for_one_another_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    rows = [["session", "ann"]]
    with pytest.raises(ParameterError, match="columns must"):
        Table(pd.DataFrame(rows, columns=list(names)), user=names[0], budget=BUDGET)
    arrow = pa.table([["session"], ["ann"]], names=list(names))
    with pytest.raises(ParameterError, match="columns must"):
        Table(arrow, user=names[0], budget=BUDGET)
    pq.write_table(arrow, tmp_path / "clicks.parquet")
    with pytest.raises(ParameterError, match="columns must"):
        Table(tmp_path / "clicks.parquet", user=names[0], budget=BUDGET)


def test_a_reader_answers_twice() -> None:
    batches = pa.table({"member": members(100), "article": ["tea"] * 100}).to_batches()
    with in_memory(pa.RecordBatchReader.from_batches(batches[0].schema, batches)) as table:
        assert [table.count().estimate for _ in range(3)] == [100, 100, 100]


def not_utf8(contents: list[bytes | None]) -> pa.Array:
    array = pa.array(contents, pa.binary())
    return pa.StringArray.from_buffers(len(array), array.buffers()[1], array.buffers()[2], array.buffers()[0])


@pytest.mark.parametrize("ann", [False, True])
@pytest.mark.parametrize("kind", ["arrow", "dictionary", "parquet", "sqlite"])
def test_a_text_that_is_not_utf8_stops_no_question(tmp_path: Path, kind: str, ann: bool) -> None:
    contents: list[bytes | None] = [*[b"tea"] * 2000, b"a\xffb" if ann else b"rain"]
    who = members(2000, "ann")
    source: object = pa.table({"member": who, "article": not_utf8(contents)})
    name = None
    if kind == "dictionary":
        values = not_utf8([b"tea", contents[-1]])
        codes = pa.array([*[0] * 2000, 1])
        source = pa.table({"member": who, "article": pa.DictionaryArray.from_arrays(codes, values)})
    elif kind == "parquet":
        pq.write_table(source, tmp_path / "clicks.parquet")
        source = tmp_path / "clicks.parquet"
    elif kind == "sqlite":
        database = sqlite3.connect(tmp_path / "clicks.sqlite")
        database.execute("CREATE TABLE clicks (member TEXT, article TEXT)")
        rows = zip(who, contents, strict=True)
        database.executemany("INSERT INTO clicks VALUES (?, CAST(? AS TEXT))", rows)
        database.commit()
        database.close()
        source, name = tmp_path / "clicks.sqlite", "clicks"
    with without_noise(Table(source, name, user="member", budget=BUDGET)) as table:
        assert table.top_k("article", 3).labels == ("tea",)
        assert table.top_k("article", 3, where="member = 'ann'").labels == ()
        assert table.top_k("article", 3, where="member = 'ann'", max_keys_per_user=2).labels == ()
        assert table.histogram("article", domain=["tea", "rain"]).table["estimate"].to_list() == [int(not ann), 2000]
        assert table.histogram("article", max_keys_per_user=1).labels == ("tea",)
        assert table.count(where="article <> 'x'").estimate >= 2000
        assert table.count(where="article LIKE 't%'").estimate == 2000
        assert table.budget.spent.calls == 4


def test_a_table_of_utf16_is_refused(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "clicks.sqlite")
    database.execute("PRAGMA encoding = 'UTF-16'")
    database.execute("CREATE TABLE clicks (member TEXT)")
    database.commit()
    database.close()
    with pytest.raises(InputError, match="UTF-16"):
        Table(tmp_path / "clicks.sqlite", "clicks", user="member", budget=BUDGET)


# --- Parquet --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ann", [False, True])
def test_folders_make_texts_whatever_they_are_called(tmp_path: Path, ann: bool) -> None:
    for name, who in (("zip=10115", members(30)), *([("zip=unknown", ["ann"])] if ann else [])):
        (tmp_path / "clicks" / name).mkdir(parents=True)
        pl.DataFrame({"member": who}).write_parquet(tmp_path / "clicks" / name / "0.parquet")
    with without_noise(Table(tmp_path / "clicks", user="member", budget=BUDGET)) as table:
        with pytest.raises(ParameterError, match="a text and a number"):
            table.plan.count(where="zip = 10115")
        assert table.count(where="zip = '10115'").estimate == 30
        assert table.count().estimate == 30 + ann


def test_files_of_other_types_are_refused_when_they_are_opened(tmp_path: Path) -> None:
    pl.DataFrame({"member": ["ann"], "n": [1]}).write_parquet(tmp_path / "1.parquet")
    pl.DataFrame({"member": ["bob"], "n": ["x"]}).write_parquet(tmp_path / "2.parquet")
    with pytest.raises(InputError, match="the same columns of the same types"):
        Table(tmp_path, user="member", budget=BUDGET, ledger=":memory:")


def test_a_time_that_does_not_fit_stops_no_question(tmp_path: Path) -> None:
    at = pa.array([0, 2**62], pa.int64()).cast(pa.timestamp("ms"))
    pq.write_table(pa.table({"member": ["ann", "bob"], "at": at, "n": [1, 2]}), tmp_path / "clicks.parquet")
    with without_noise(Table(tmp_path / "clicks.parquet", user="member", budget=BUDGET)) as table:
        assert table.count(where="at < '2026-01-01'").estimate == 1
        assert table.count(where="n < 3").estimate == 2


def test_a_folder_with_signs_of_a_pattern_is_that_folder(tmp_path: Path) -> None:
    for name in ("a[b]*", "ab"):
        (tmp_path / name).mkdir()
        pl.DataFrame({"member": [f"{name} {each}" for each in range(len(name))]}).write_parquet(
            tmp_path / name / "0.parquet"
        )
    with without_noise(Table(tmp_path / "a[b]*", user="member", budget=BUDGET)) as table:
        assert table.count().estimate == 5


# --- what is charged and what is not --------------------------------------------------------------------------------


def test_a_timeout_is_paid_for(server: str, execute: Execute, tmp_path: Path) -> None:
    execute("CREATE TABLE clicks (member text, article text, bio text)")
    execute("INSERT INTO clicks VALUES ('ann', 'rain', repeat('a', 3000000))")
    execute("ALTER ROLE tester SET statement_timeout = 100")
    with on_server(server, "clicks", tmp_path) as table:
        where = "member = 'ann' AND " + f"bio LIKE '%{'a' * 900}b%'"
        with pytest.raises(DataDependentError, match="the charge stands"):
            table.top_k("article", 2, where=where)
        assert (table.budget.spent.steps, table.budget.spent.calls) == (2, 1)


@pytest.mark.parametrize("column", ["cardinality", "raised", "undefined"])
def test_a_view_that_fails_at_a_row_is_paid_for(server: str, execute: Execute, tmp_path: Path, column: str) -> None:
    execute("CREATE TABLE kept (member text, v int)")
    execute("INSERT INTO kept VALUES ('ann', 1), ('ann', 2)")
    for name, state in (("raised", "P0001"), ("undefined", "42P01")):
        body = f"BEGIN RAISE EXCEPTION 'row' USING ERRCODE = '{state}'; END"
        execute(f"CREATE FUNCTION {name}(t text) RETURNS text LANGUAGE plpgsql AS $$ {body} $$")
    execute(
        "CREATE VIEW clicks AS SELECT member, (SELECT y.v::text FROM kept AS y WHERE y.member = kept.member) AS "
        "cardinality, raised(member) AS raised, undefined(member) AS undefined FROM kept"
    )
    with on_server(server, "clicks", tmp_path) as table:
        with pytest.raises(DataDependentError, match="the charge stands"):
            table.count(where=f"{column} = 'x'")
        assert table.budget.spent.steps == 1


def test_a_lack_of_memory_is_paid_for(tmp_path: Path) -> None:
    file = tmp_path / "clicks.duckdb"
    with duckdb.connect(str(file)) as database:
        database.execute(
            "CREATE TABLE clicks AS SELECT 'ann' AS member, 'article number ' || i || repeat('x', 100) AS article "
            "FROM range(600000) AS rows(i)"
        )
    with Table(file, "clicks", user="member", budget=BUDGET) as table:
        engine: Any = table._engine
        engine._connection.execute("SET memory_limit = '30MB'; SET max_temp_directory_size = '0MB'")
        with pytest.raises(DataDependentError, match="OutOfMemoryException"):
            table.top_k("article", 2)
        assert (table.budget.spent.steps, table.budget.spent.calls) == (2, 1)


@pytest.mark.parametrize("change", ["DROP TABLE clicks", "ALTER TABLE clicks DROP COLUMN article", "REVOKE"])
def test_what_the_server_refuses_without_a_row_is_not_charged(
    server: str, execute: Execute, tmp_path: Path, change: str
) -> None:
    execute("CREATE TABLE clicks (member text, article text)")
    execute("DROP ROLE IF EXISTS reader")
    execute("CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA public TO reader; GRANT SELECT ON clicks TO reader")
    url = server.replace("user=tester", "user=reader")
    with on_server(url, "clicks", tmp_path) as table:
        execute("REVOKE SELECT ON clicks FROM reader" if change == "REVOKE" else change)
        with pytest.raises(InputError, match="got ProgrammingError; nothing was charged"):
            table.top_k("article", 3)
        assert table.budget.ledger.entries() == []
    execute("DROP OWNED BY reader; DROP ROLE reader")


def test_a_server_that_ended_the_connection_meanwhile_answers(server: str, execute: Execute, tmp_path: Path) -> None:
    execute("CREATE TABLE clicks (member text, article text)")
    with on_server(server, "clicks", tmp_path) as table:
        assert table.count().estimate == 0
        others = "pid <> pg_backend_pid() AND usename = 'tester'"
        execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")
        assert table.count().estimate == 0


def test_a_database_that_goes_away_after_the_check_is_given_back(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "clicks.sqlite")
    database.execute("CREATE TABLE clicks (member TEXT)")
    database.close()
    with Table(tmp_path / "clicks.sqlite", "clicks", user="member", budget=BUDGET) as table:
        engine = table._engine
        assert isinstance(engine, SqlEngine)
        sound = engine.check

        def check(statement: str) -> None:
            sound(statement)
            engine.close()

        engine.check = check  # type: ignore[method-assign]
        with pytest.raises(InputError):
            table.count()
        assert [entry.kind for entry in table.budget.ledger.entries()] == ["reserve", "settle"]
        assert table.budget.spent.steps == 0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda table: table.count(where="article = '\ud800'"), "lone surrogate"),
        (lambda table: table.count(where="price = 1e-400"), "at most 64 bits"),
        (lambda table: table.count(where="price > -1e-310"), "at most 64 bits"),
        (lambda table: table.histogram("article", domain=["\ud800"]), "without nulls"),
        (lambda table: table.histogram("article", domain=["a\0b"]), "without NUL"),
        (lambda table: table.histogram("paid", domain=[True, False]), "got a boolean; write it as in the answers"),
        (lambda table: table.histogram("paid", domain=[np.True_]), "got a boolean"),
        (lambda table: table.histogram("article", domain=[None]), "without nulls"),
        (lambda table: table.histogram("article", domain=[1.0]), "without nulls"),
    ],
)
def test_what_is_known_beforehand_is_not_charged(ask: Callable[[Table], object], message: str) -> None:
    frame = pl.DataFrame({"member": ["ann"], "article": ["tea"], "price": [1.5], "paid": [True]})
    with in_memory(frame) as table:
        with pytest.raises(ParameterError, match=message):
            ask(table)
        assert table.budget.ledger.entries() == []
        assert table.count(where="price > 0.0 AND price > 0e-5 AND price < 1e300").estimate == 1
        assert table.histogram("paid", domain=["true", "false"]).table["estimate"].to_list() == [0, 1]


# --- one table, one budget ------------------------------------------------------------------------------------------


def write_clicks(file: Path) -> None:
    with duckdb.connect(str(file)) as database:
        database.execute("CREATE TABLE Clicks AS SELECT 'm' || i AS member FROM range(10) AS rows(i)")
        database.execute("CREATE SCHEMA b; CREATE TABLE b.c AS FROM Clicks; CREATE TABLE b_c AS FROM Clicks")


def test_a_table_has_one_budget_whatever_it_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "clicks.duckdb"
    write_clicks(file)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.duckdb").symlink_to(file)
    monkeypatch.chdir(tmp_path)
    names: list[tuple[object, str]] = [
        (file, "CLICKS"),
        (file, "main.clicks"),
        (file, "clicks.main.clicks"),
        (f"duckdb:///{file}", "Clicks"),
        ("duckdb:///clicks.duckdb", "clicks"),
        (tmp_path / "elsewhere" / ".." / "clicks.duckdb", "clicks"),
        (tmp_path / "elsewhere" / "link.duckdb", "clicks"),
    ]
    with Table(file, "clicks", user="member", budget=StepAllowance.of(BUDGET, steps=1)) as table:
        table.count()
        place = table.budget.ledger.place
    for source, name in names:
        with Table(source, name, user="member", budget=StepAllowance.of(BUDGET, steps=1)) as table:
            assert table.budget.ledger.place == place
            with pytest.raises(BudgetError):
                table.count()
    others = {
        Table(file, name, user="member", budget=BUDGET).budget.ledger.place for name in ("b.c", "b_c", "clicks.b.c")
    }
    assert len(others) == 2


def test_a_table_of_sqlite_has_one_budget(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "clicks.sqlite")
    database.execute("CREATE TABLE Clicks (member TEXT)")
    database.close()
    places = set()
    for source in (tmp_path / "clicks.sqlite", f"sqlite:///{tmp_path}/clicks.sqlite"):
        for name in ("Clicks", "clicks", "main.CLICKS"):
            with Table(source, name, user="member", budget=BUDGET) as table:
                places.add(table.budget.ledger.place)
    assert len(places) == 1


def test_a_table_of_a_server_is_one_data_set(server: str, execute: Execute, tmp_path: Path) -> None:
    execute("CREATE TABLE clicks (member text)")
    for name in ("clicks", "public.clicks"):
        with Table(server, name, user="member", budget=BUDGET, ledger=tmp_path / "one.db") as table:
            assert "table public.clicks by member" in table.budget.ledger.header.dataset


def test_a_file_of_a_folder_has_no_budget_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "clicks"
    (folder / "deep").mkdir(parents=True)
    for file in (folder / "0.parquet", folder / "deep" / "1.parquet"):
        pl.DataFrame({"member": ["ann"]}).write_parquet(file)
    write_clicks(folder / "other.duckdb")
    with Table(folder / "other.duckdb", "clicks", user="member", budget=BUDGET):
        pass  # whose rows are not those of the Parquet files
    with Table(folder, user="member", budget=BUDGET):
        pass
    for part in (folder / "0.parquet", folder / "deep", folder / "deep" / "1.parquet"):
        with pytest.raises(ParameterError, match="the same rows must not have two"):
            Table(part, user="member", budget=BUDGET)
    with Table(folder / "deep" / ".." / ".." / "clicks", user="member", budget=BUDGET) as table:
        assert table.count().cost.steps == 1
    for file in tmp_path.glob("clicks.budget.db*"):
        file.unlink()
    with Table(folder / "deep", user="member", budget=BUDGET):
        pass
    with pytest.raises(ParameterError, match="the same rows must not have two"):
        Table(folder, user="member", budget=BUDGET)
    with Table(folder, user="member", budget=BUDGET, ledger=tmp_path / "own.db") as table:  # said in so many words
        assert table.budget.left.steps == 200


def test_a_ledger_that_is_lost_or_old_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "PATIENCE_SECONDS", 0.1)
    frame, ledger = pl.DataFrame({"member": ["ann"]}), tmp_path / "b.db"

    def opened(**named: Any) -> Table:
        return Table(frame, user="member", budget=BUDGET, ledger=TableLedger(ledger, **named))

    with opened() as table:
        table.count()
        head = table.budget.ledger.verify()
    old = ledger.read_bytes()
    with opened() as table:
        table.count()
        latest = table.budget.ledger.verify()
    ledger.write_bytes(old)
    with pytest.raises(LedgerError, match="the 4 entries that were seen before"):
        opened()
    os.unlink(f"{ledger}.key.head")
    with pytest.raises(LedgerError, match="give the witness that it shows"):
        opened()
    for witness in (latest, str(latest)):
        with pytest.raises(LedgerError, match="the 4 entries that were seen before"):
            opened(witness=witness)
    with opened(witness=str(head)) as table:
        assert table.budget.spent.steps == 1
    ledger.unlink()
    with pytest.raises(LedgerError, match="got none; put it back"):
        opened()


def test_a_key_may_be_a_secret(tmp_path: Path) -> None:
    frame = pl.DataFrame({"member": ["ann"]})
    for spent in range(2):
        with Table(frame, user="member", budget=BUDGET, ledger=TableLedger(tmp_path / "b.db", key=KEY)) as table:
            assert table.budget.spent.steps == spent
            table.count()
    assert not (tmp_path / "b.db.key").exists()


# --- passwords ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:geheim@127.0.0.1:1/shop",
        "postgresql://ada:ge/heim@127.0.0.1:1/shop",
        "postgresql:/ada:geheim@127.0.0.1/shop",
        "sqlite+pysqlite://:geheim@/nowhere.sqlite",
        "ada:geheim@host://shop",
        "nonsense://ada:geheim@host/shop",
    ],
)
def test_no_password_of_a_source_is_shown(url: str) -> None:
    with pytest.raises((InputError, ParameterError)) as caught:
        Table(url, "clicks", user="member", budget=BUDGET, ledger=":memory:")
    assert "heim" not in str(caught.value)
