"""Asking tables: what comes back, what it costs, and what never gets out."""

import contextlib
import hashlib
import math
import multiprocessing
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ledger.processes import postgres_server
from tests.table.clicks import (
    BUDGET,
    clicks,
    without_noise,
    write_duckdb,
    write_parquet,
    write_postgres,
    write_sqlite,
)

from pianissimo.budget import Budget
from pianissimo.errors import BudgetError, InputError, LedgerError, ParameterError
from pianissimo.ledger import Ledger, key_file
from pianissimo.loss.composition import price
from pianissimo.loss.losses import Booked, BoundedRange
from pianissimo.table import StepAllowance, Table, TableLedger
from pianissimo.table.engines import DataDependentError, place_of
from pianissimo.table.statements import AskedRows, Kind, TableColumn
from pianissimo.testing import SeededNoise

ROW_FIELDS = (("rows",), "duckdb", TableColumn("u", Kind.INTEGER))
ROWS = AskedRows(*ROW_FIELDS)
KINDS = ["polars", "lazy", "pandas", "arrow", "parquet", "duckdb", "sqlite", "postgresql"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as url:
        yield write_postgres(url)


def opened(kind: str, folder: Path, request: pytest.FixtureRequest) -> Table:
    """The same clicks, wherever they are, without noise."""
    if kind in {"polars", "lazy", "pandas", "arrow"}:
        rows = clicks()
        frames: dict[str, Callable[[], object]] = {
            "polars": lambda: rows,
            "lazy": rows.lazy,
            "pandas": rows.to_pandas,
            "arrow": rows.to_arrow,
        }
        return without_noise(Table(frames[kind](), user="member", budget=BUDGET))
    place: dict[str, Callable[[], tuple[object, str | None]]] = {
        "parquet": lambda: (write_parquet(folder / "clicks"), None),
        "sqlite": lambda: (write_sqlite(folder / "clicks.sqlite"), "clicks"),
        "duckdb": lambda: (write_duckdb(folder / "clicks.duckdb"), "main.clicks"),
        "postgresql": lambda: (request.getfixturevalue("server"), "public.clicks"),
    }
    source, name = place[kind]()
    ledger = folder / "ledger.db" if kind == "postgresql" else None
    return without_noise(Table(source, name, user="member", budget=BUDGET, ledger=ledger))


@pytest.fixture(params=KINDS)
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    with opened(request.param, tmp_path, request) as table:
        yield table


@pytest.fixture(params=KINDS, scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """One table for many small questions."""
    with opened(request.param, tmp_path_factory.mktemp("shared"), request) as table:
        yield table


@pytest.fixture
def table() -> Iterator[Table]:
    with without_noise(Table(clicks(), user="member", budget=BUDGET)) as table:
        yield table


def test_without_noise_it_is_the_top_of_distinct_users(asked: Table) -> None:
    answer = asked.top_k("article", k=10, counts=True)
    # Equal counts go by bytes in the statement; the race without noise keeps that order.
    assert answer.labels == ("tea", "rain", "moon", "sun")
    assert answer.table["estimate"].to_list() == [2000, 1500, 1000, 1000]
    assert answer.met_threshold is True
    assert (answer.cost.steps, answer.cost.calls) == (4 + 1 + 4, 1)
    assert asked.budget.spent == answer.cost
    assert answer.left == asked.budget.left


@pytest.mark.parametrize(
    "where",
    [
        "country = 'DE'",
        "country = 'DE' AND clicks IN (1, 2)",
        "clicks >= 3 AND clicks < 5",
        "clicks NOT BETWEEN 2 AND 5",
        "clicks > 1.5 AND clicks < 5.25",
        "day BETWEEN '2026-03-01' AND '2026-03-07'",
        "price > 0.75",
        "country LIKE 'L%'",
        "country NOT LIKE 'L%'",
        "paid",
        "NOT paid AND country <> 'LI'",
        "country = 'LI' OR country = '100%'",
        "article IS NOT NULL",
        "article IS NULL",
        "article LIKE '___'",
        "article IN ('tea', 'it''s')",
        "article = 'tea' AND NOT (country = 'DE' OR clicks = 3)",
    ],
)
def test_a_where_keeps_the_rows_it_speaks_of(shared: Table, where: str) -> None:
    rows = clicks().to_arrow()
    with duckdb.connect() as database:
        database.register("rows", rows)
        (expected,) = database.execute(f"SELECT COUNT(DISTINCT member) FROM rows WHERE {where}").fetchone() or (None,)
    assert shared.count(where=where).estimate == expected


def test_rows_without_a_user_or_a_key_do_not_count(asked: Table) -> None:
    assert asked.count().estimate == 2000 + 4000
    assert "None" not in asked.top_k("article", k=10).labels


def test_a_histogram_of_known_labels_has_all_of_them(asked: Table) -> None:
    answer = asked.histogram("article", domain=["tea", "sun", "never", "it's"])
    assert dict(answer.table.select("key", "estimate").iter_rows()) == {"it's": 0, "never": 0, "sun": 1000, "tea": 2000}
    assert (answer.cost.steps, answer.cost.calls) == (4, 0)
    assert (answer.table["high"] - answer.table["estimate"]).unique().to_list() == [answer.plan.error]


def kept(rows: pl.DataFrame, most: int, cut_key: str) -> dict[str, int]:
    """Users by label, each cut to the labels that are in most rows and, of equal ones, to those of the least digest."""
    seen = Counter(rows.select("member", "article").drop_nulls().iter_rows())
    by_user: dict[str, list[tuple[int, str, str]]] = {}
    for (user, label), times in seen.items():
        digest = hashlib.md5(f"{cut_key}:{user}:{label}".encode(), usedforsecurity=False).hexdigest()
        by_user.setdefault(user, []).append((-times, digest, label))
    return Counter(label for labels in by_user.values() for _, _, label in sorted(labels)[:most])


@pytest.mark.parametrize("most", [1, 2])
def test_a_cut_keeps_the_labels_a_user_has_most_often(asked: Table, most: int) -> None:
    domain = ["moon", "rain", "rare", "sun", "tea"]
    answer = asked.histogram("article", domain=domain, max_keys_per_user=most)
    expected = kept(clicks(), most, asked._asked.cut_key)
    assert dict(answer.table.select("key", "estimate").iter_rows()) == {each: expected.get(each, 0) for each in domain}
    assert answer.cost.steps == most
    often = asked.histogram("article", domain=domain, max_keys_per_user=1, where="member < 'member 00500'")
    assert dict(often.table.select("key", "estimate").iter_rows())["tea"] == 500  # two rows each, the others one
    unknown = asked.histogram("article", max_keys_per_user=most)
    assert set(unknown.labels) <= set(domain)
    assert (unknown.cost.steps, unknown.cost.calls) == (most, 1)


def test_a_cut_does_not_favour_the_first_letters() -> None:
    """As in a year of flights: by the alphabet a label of many users, late in it, would have almost none of them."""
    draw = np.random.default_rng(15)
    airports = [f"{chr(65 + place // 4)}{place % 4}" for place in range(100)]
    flown = {plane: draw.choice(100, size=20, replace=False) for plane in range(4000)}
    rows = pl.DataFrame([(plane, airports[to]) for plane, stops in flown.items() for to in stops], orient="row")
    by_alphabet = Counter(airports[min(stops)] for stops in flown.values())
    assert sum(by_alphabet[each] for each in airports[:25]) > 0.99 * 4000
    with without_noise(
        Table(rows.rename({"column_0": "plane", "column_1": "to"}), user="plane", budget=BUDGET)
    ) as table:
        answer = table.histogram("to", domain=airports, max_keys_per_user=1)
    assert answer.table["estimate"].sum() == 4000
    assert abs(sum(answer.table["estimate"][:25].to_list()) - 1000) < 6 * math.sqrt(4000 * 0.25 * 0.75)
    assert answer.table["estimate"].is_between(40 - 6 * 6.3, 40 + 6 * 6.3).all()


def test_an_answer_says_that_labels_are_missing(table: Table) -> None:
    for answer in (
        table.top_k("article", 2, max_keys_per_user=2),
        table.top_k("article", 2, counts=True, max_keys_per_user=2),
        table.histogram("article", max_keys_per_user=2),
        table.histogram("article", domain=["moon", "sun", "tea"], max_keys_per_user=2),
    ):
        note = "of each user's 2 most frequent labels alone"
        assert all(note in shown for shown in (repr(answer), str(answer), answer._repr_html_(), str(answer.plan)))
        assert answer.table["max_keys_per_user"].unique().to_list() == [2]
        assert answer.to_dict()["max_keys_per_user"] == answer.plan.to_dict()["max_keys_per_user"] == 2
    for whole in (table.top_k("article", 2), table.histogram("article", domain=["sun", "tea"], max_keys_per_user=2)):
        assert "missing" not in str(whole)
        assert "max_keys_per_user" not in whole.table.columns
        assert whole.to_dict()["max_keys_per_user"] is None


def test_users_that_are_written_in_several_ways_are_cut_as_one(tmp_path: Path) -> None:
    """Which of 1 and 1.0 stands for a user depends on the order of all rows; what is kept must not."""
    answers: list[pl.DataFrame] = []
    for rows in ([(1, "a"), (1.0, "b"), (1, "b"), (1.0, "a")], [(1.0, "a"), (1, "b"), (1.0, "b"), (1, "a")]):
        file = tmp_path / f"{len(answers)}.sqlite"
        with contextlib.closing(sqlite3.connect(file)) as database, database:
            database.execute("CREATE TABLE clicks (member, article TEXT)")
            database.executemany("INSERT INTO clicks VALUES (?, ?)", rows)
        with without_noise(Table(file, "clicks", user="member", budget=BUDGET)) as table:
            table._asked = replace(table._asked, cut_key="k")
            answers.append(table.histogram("article", domain=["a", "b"], max_keys_per_user=1).table)
    assert answers[0].equals(answers[1])
    assert answers[0]["estimate"].sum() == 1


def test_the_key_of_cuts_is_not_shown(table: Table) -> None:
    key = table._asked.cut_key
    plan = table.plan.top_k("article", 3, max_keys_per_user=1)
    assert all(key not in shown for shown in (str(plan), repr(plan), repr(table._asked), repr(table)))
    assert "'the key of this table:'" in plan.sql
    with Table(clicks(), user="member", budget=BUDGET) as other:
        assert other._asked.cut_key != key


def test_keys_may_be_numbers_days_and_booleans(asked: Table) -> None:
    where = "article IS NOT NULL AND article = 'tea'"
    numbers = asked.histogram("clicks", domain=range(8), where=where)
    assert numbers.table["estimate"].to_list() == [286, 286, 286, 286, 286, 285, 285, 0]
    paid = asked.top_k("paid", k=2, where=where)
    assert len(paid) == 2
    if asked._engine.columns["day"].kind is not Kind.DATE:
        return  # pandas has timestamps
    days = asked.histogram("day", domain=["2026-03-01", "2026-03-28"], where=where)
    assert days.table["estimate"].to_list() == [72, 71]


def test_labels_that_differ_in_case_alone_are_different(tmp_path: Path) -> None:
    url = write_sqlite(tmp_path / "clicks.sqlite")
    import sqlite3

    with sqlite3.connect(tmp_path / "clicks.sqlite") as database:
        database.execute("UPDATE clicks SET article = 'TEA' WHERE article = 'tea' AND paid")
    database.close()
    with without_noise(Table(url, "clicks", user="member", budget=BUDGET)) as table:
        found = table.histogram("article", domain=["TEA", "tea"])
    assert found.table["estimate"].to_list() == [1000, 1000]


@given(labels=st.permutations(["a", "B", "b", "é", "z", "", " ", "aa", "Z", "10", "9"]), seed=st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_ties_go_by_bytes_whatever_the_order_of_rows(labels: list[str], seed: int) -> None:
    rows = pl.DataFrame({"u": range(11), "key": labels}).sample(fraction=1, shuffle=True, seed=seed)
    with duckdb.connect() as database:
        database.register("rows", rows.to_arrow())
        sql = ROWS.users_by_label(TableColumn("key", Kind.TEXT), limit=6)
        found = [label for label, _ in database.execute(sql).fetchall()]
    assert found == sorted(labels, key=str.encode)[:6]


clicked = st.lists(st.tuples(st.integers(0, 6), st.sampled_from("abcde") | st.none()), max_size=40)


@given(rows=clicked, gone=st.integers(0, 6), cut=st.none() | st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_user_moves_each_count_by_one_at_most_and_no_more_than_the_cut(
    rows: list[tuple[int, str | None]], gone: int, cut: int | None
) -> None:
    moved = moved_by(gone, rows, replace(ROWS, cut_key="k"), cut)
    assert all(step in (0, 1) for step in moved)
    assert cut is None or sum(moved) <= cut


def moved_by(gone: int, rows: list[tuple[int, str | None]], asked: AskedRows, cut: int | None) -> list[int]:
    """By how much a user, left out, takes each count down."""
    sql = asked.users_by_label(TableColumn("key", Kind.TEXT), max_keys_per_user=cut, limit=100)

    def counts(kept: list[tuple[int, str | None]]) -> dict[str, int]:
        schema = {"u": pl.Int64, "key": pl.String}
        with duckdb.connect() as database:
            database.register("rows", pl.DataFrame(kept, schema=schema, orient="row").to_arrow())
            return dict(database.execute(sql).fetchall())

    before, after = counts(rows), counts([row for row in rows if row[0] != gone])
    return [before.get(key, 0) - after.get(key, 0) for key in {*before, *after}]


class PopularCut(AskedRows):
    """Broken: keeps the labels that most users have, so that one user decides about the labels of others."""

    def users_by_label(self, *named: Any, **others: Any) -> str:
        sql = super().users_by_label(*named, **others)
        label = '"asked"."key" COLLATE "C"'
        broken = sql.replace('COUNT(*) AS "times"', f'COUNT(*) OVER (PARTITION BY {label}) AS "times"')
        assert broken != sql
        return broken


def test_a_cut_that_looks_at_other_users_is_caught() -> None:
    rows: list[tuple[int, str | None]] = [(0, "a"), *((user, label) for user in range(1, 9) for label in "ab")]
    sound, broken = (replace(kind(*ROW_FIELDS), cut_key="k") for kind in (AskedRows, PopularCut))
    assert sorted(moved_by(0, rows, sound, 1)) == [0, 1]
    assert max(map(abs, moved_by(0, rows, broken, 1))) > 1


def test_ties_of_numbers_go_by_the_bytes_of_their_texts() -> None:
    rows = pl.DataFrame({"u": range(4), "key": [9, 10, 100, 1]})
    with duckdb.connect() as database:
        database.register("rows", rows.to_arrow())
        key = TableColumn("key", Kind.INTEGER)
        sql = ROWS.users_by_label(key, limit=9)
        assert [label for label, _ in database.execute(sql).fetchall()] == [1, 10, 100, 9]


def test_columns_that_differ_in_case_alone_are_refused() -> None:
    with pytest.raises(ParameterError, match="differ in more than upper and lower case, got 'member' and 'Member'"):
        Table(pl.DataFrame({"member": [1], "Member": [2]}), user="member", budget=BUDGET)


def test_names_are_quoted() -> None:
    odd = 'select "x"; --'
    rows = pl.DataFrame({odd: [f"member {n}" for n in range(3000)], "a'b\" c": ["tea"] * 3000})
    with without_noise(Table(rows, user=odd, budget=BUDGET)) as table:
        assert table.top_k("a'b\" c", k=1).labels == ("tea",)


def test_columns_named_like_ours_do_no_harm() -> None:
    names = ["label", "users", "person", "place", "asked", "counted", "pairs", "numbered", "table", "times"]
    names += ["person_name"]
    for key in names:
        rows = pl.DataFrame({"member": range(3000), **dict.fromkeys(names, ["x"] * 3000)})
        rows = rows.with_columns(pl.lit("tea").alias(key))
        with without_noise(Table(rows, user="member", budget=BUDGET)) as table:
            assert table.top_k(key, k=1).labels == ("tea",)
            assert table.top_k(key, k=1, max_keys_per_user=1).labels == ("tea",)


def test_the_statement_is_one_aggregate_with_a_limit(table: Table) -> None:
    plan = table.plan.top_k("article", k=3, candidates=7, where="country = 'DE'")
    assert plan.sql.count("GROUP BY") == 1
    assert plan.sql.endswith('ORDER BY "users" DESC, "label" COLLATE "C" ASC NULLS FIRST LIMIT 8')
    assert 'COUNT(DISTINCT "asked"."member" COLLATE "C")' in plan.sql


def test_a_plan_costs_nothing_and_bounds_the_cost(table: Table) -> None:
    plan = table.plan.top_k("article", k=10)
    assert table.budget.spent.steps == 0
    answer = table.top_k("article", k=10)
    assert answer.cost <= plan.at_most
    assert plan.threshold is not None
    assert plan.sure_from is not None
    assert 0 < plan.threshold < plan.sure_from
    assert "LIMIT 1001" in str(plan)
    assert table.plan.count().error == math.ceil(1.959964 * 2 / float(table.budget.allowance.epsilon))
    assert table.plan.count(steps=4).error < table.plan.count().error  # type: ignore[operator]
    cut, whole = table.plan.top_k("article", k=3, max_keys_per_user=1), table.plan.top_k("article", k=3)
    assert cut.threshold < whole.threshold  # type: ignore[operator]


def test_the_allowance_fits_the_budget() -> None:
    for epsilon, delta, steps, calls in [(2.0, 1e-8, 200, 100), (0.1, 1e-6, 10, 1), (10, 1e-10, 5000, 1000)]:
        allowance = StepAllowance.of(Budget(epsilon, delta), steps=steps, questions=calls)
        bad, distance = calls * allowance.delta, Fraction(steps + calls, 2**90)
        selections = BoundedRange(steps, allowance.epsilon, bad=bad, distance=distance)
        # At integer orders, without the recursion, which prices the same steps lower.
        assert price([selections.as_booked()], delta=delta).epsilon <= epsilon
        counts = Booked(steps / (2 * allowance.variance(1, 1)))
        assert price([counts, BoundedRange(0, Fraction(0), bad, distance)], delta=delta).epsilon <= epsilon
        # Little is left over.
        assert allowance.price(steps, calls).epsilon > 0.999 * epsilon


def test_a_budget_without_delta_is_refused() -> None:
    with pytest.raises(ParameterError, match="delta must be above 0"):
        Table(clicks(), user="member", budget=Budget(1.0, 0))


def test_what_comes_back_is_what_is_paid() -> None:
    with Table(clicks(), user="member", budget=BUDGET) as table:
        numbers = iter(range(100))
        table._noise = lambda: SeededNoise(next(numbers))
        total = 0
        for _ in range(10):
            answer = table.top_k("article", k=3)
            assert answer.cost.steps == len(answer) + bool(answer.met_threshold)
            total += answer.cost.steps
        assert table.budget.spent.steps == total
        assert table.budget.left.steps == 200 - total
        assert table.budget.spent.calls == 10
        assert table.budget.left.share == pytest.approx(1 - total / 200)
        assert table.budget.spent.epsilon < 2.0


def test_a_rare_label_does_not_come_back() -> None:
    with Table(clicks(), user="member", budget=BUDGET) as table:
        assert all("rare" not in table.top_k("article", k=10).labels for _ in range(5))


def test_an_exhausted_budget_answers_no_more() -> None:
    with without_noise(Table(clicks(), user="member", budget=StepAllowance.of(BUDGET, steps=7, questions=5))) as table:
        assert len(table.top_k("article", k=4)) == 4
        clamped = table.top_k("article", k=4)
        assert len(clamped) == 3  # what is left
        assert clamped.plan.k == 3
        assert table.budget.left.steps == 0
        questions: list[Callable[[], object]] = [
            lambda: table.top_k("article", k=1),
            table.count,
            lambda: table.histogram("article", domain=["a"]),
        ]
        for ask in questions:
            with pytest.raises(BudgetError):
                ask()
        assert table.budget.spent.steps == 7


def test_questions_run_out_too() -> None:
    with without_noise(Table(clicks(), user="member", budget=StepAllowance.of(BUDGET, steps=50, questions=2))) as table:
        table.top_k("article", k=1)
        table.top_k("article", k=1)
        with pytest.raises(BudgetError, match="the budget is spent"):
            table.top_k("article", k=1)
        assert table.count().estimate == 6000  # has no label that could be new


def test_a_label_with_its_count_needs_two_steps() -> None:
    with without_noise(Table(clicks(), user="member", budget=StepAllowance.of(BUDGET, steps=3))) as table:
        assert table.top_k("article", k=2, counts=True).cost.steps == 2
        with pytest.raises(BudgetError, match="two steps"):
            table.top_k("article", k=2, counts=True)


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.top_k("article", k=20, candidates=10),
        lambda table: table.top_k("article", k=0),
        lambda table: table.top_k("article", k=True),
        lambda table: table.top_k("article", k=1, candidates=0),
        lambda table: table.top_k("article", k=1, candidates=2**30),
        lambda table: table.top_k("article", k=10**6),
        lambda table: table.top_k("article", k=1, candidates="many"),
        lambda table: table.top_k("article", k=1, max_keys_per_user=0),
        lambda table: table.top_k("nobody", k=1),
        lambda table: table.top_k(None, k=1),
        lambda table: table.top_k("price", k=1),
        lambda table: table.top_k("article", k=1, where="country = (SELECT 'DE')"),
        lambda table: table.top_k("article", k=1, where=""),
        lambda table: table.histogram("article"),
        lambda table: table.histogram("article", domain="tea"),
        lambda table: table.histogram("article", domain=[]),
        lambda table: table.histogram("article", domain=["a"], steps=0),
        lambda table: table.count(where="clicks / 0 = 1"),
        lambda table: table.count(steps=0),
    ],
)
def test_a_question_that_cannot_be_is_not_charged(table: Table, ask: Callable[[Table], object]) -> None:
    with pytest.raises(ParameterError):
        ask(table)
    assert table.budget.spent.steps == 0
    assert table.budget.ledger.entries() == []


def test_a_database_that_goes_away_is_not_charged(tmp_path: Path) -> None:
    url = write_duckdb(tmp_path / "clicks.duckdb")
    with Table(url, "clicks", user="member", budget=BUDGET) as table:
        table._engine.close()
        with pytest.raises(InputError, match="the database must answer"):
            table.top_k("article", k=3)
        assert table.budget.spent.steps == 0
        assert table.budget.ledger.entries() == []


def test_a_table_that_goes_away_is_not_charged(tmp_path: Path) -> None:
    import sqlite3

    url = write_sqlite(tmp_path / "clicks.sqlite")
    with Table(url, "clicks", user="member", budget=BUDGET) as table:
        with sqlite3.connect(tmp_path / "clicks.sqlite") as database:
            database.execute("DROP TABLE clicks")
        database.close()
        with pytest.raises(InputError, match="the database must answer, got OperationalError"):
            table.top_k("article", k=3)
        assert table.budget.spent.steps == 0
        table._engine.close()
        with pytest.raises(InputError, match="closed"):
            table.count()


def test_a_server_that_goes_away_is_not_charged(server: str, tmp_path: Path) -> None:
    with Table(server, "clicks", user="member", budget=BUDGET, ledger=tmp_path / "ledger.db") as table:
        import psycopg

        table.top_k("article", k=1)
        before = table.budget.spent
        with psycopg.connect(server, autocommit=True) as other:
            other.execute("ALTER TABLE clicks RENAME TO gone")
        try:
            with pytest.raises(InputError, match="the database must answer"):
                table.top_k("article", k=3)
        finally:
            with psycopg.connect(server, autocommit=True) as other:
                other.execute("ALTER TABLE gone RENAME TO clicks")
        assert table.budget.spent == before


def test_an_error_at_a_row_stays_charged_and_says_nothing_of_it(tmp_path: Path) -> None:
    file = tmp_path / "clicks.duckdb"
    with duckdb.connect(str(file)) as database:
        database.execute("CREATE TABLE kept AS SELECT 'ann' AS member, 'secret' AS article")
        database.execute("CREATE VIEW clicks AS SELECT member, CAST(article AS INTEGER) AS article FROM kept")
    with Table(file, "clicks", user="member", budget=BUDGET) as table:
        with pytest.raises(DataDependentError) as caught:
            table.top_k("article", k=3)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
        assert table.budget.spent.steps == 3


def test_a_failure_after_the_rows_came_stays_charged(table: Table) -> None:
    def fail() -> Any:
        raise KeyboardInterrupt

    table._noise = fail
    with pytest.raises(KeyboardInterrupt):
        table.top_k("article", k=3)
    assert table.budget.spent.steps == 3


def ask_and_die(url: str, ledger: Path) -> None:
    table = Table(url, "clicks", user="member", budget=BUDGET, ledger=ledger)
    table._noise = lambda: os._exit(7)
    table.top_k("article", k=5)


def test_a_crash_between_reserve_and_settle_leaves_the_charge(tmp_path: Path) -> None:
    url, ledger = write_duckdb(tmp_path / "clicks.duckdb"), tmp_path / "ledger.db"
    process = multiprocessing.get_context("spawn").Process(target=ask_and_die, args=(url, ledger))
    process.start()
    process.join(60)
    assert process.exitcode == 7
    with Table(url, "clicks", user="member", budget=BUDGET, ledger=ledger) as table:
        assert table.budget.spent.steps == 5
        assert table.budget.spent.calls == 1


def test_a_budget_lasts_and_is_the_same_for_all(tmp_path: Path) -> None:
    url = write_duckdb(tmp_path / "clicks.duckdb")
    with without_noise(Table(url, "clicks", user="member", budget=BUDGET, ledger=TableLedger(who="ada"))) as table:
        table.top_k("article", k=2, where="country = 'DE'")
    with Table(url, "clicks", user="member", budget=BUDGET) as table:
        assert table.budget.spent.steps == 2
    place = tmp_path / "clicks.duckdb.clicks.budget.db"
    with Ledger.open(place, key=key_file(f"{place}.key", create=False), read_only=True) as ledger:
        (asked, _) = ledger.entries()
    assert (asked.who, asked.question) == (
        "ada",
        "top_k of article, k=2, candidates=1000 where \"country\" = 'DE'",
    )
    with pytest.raises(LedgerError, match="must be opened with the"):
        Table(url, "clicks", user="member", budget=Budget(3.0, 1e-8))
    with pytest.raises(LedgerError, match="must be opened with the"):
        Table(url, "clicks", user="article", budget=BUDGET)


def test_a_ledger_may_be_on_a_server_with_a_key(server: str, tmp_path: Path) -> None:
    place, key = f"{server}&ledger=asked", tmp_path / "the.key"
    with pytest.raises(ParameterError, match="key must be given for a ledger on a server"):
        Table(clicks(), user="member", budget=BUDGET, ledger=place)
    with without_noise(Table(clicks(), user="member", budget=BUDGET, ledger=TableLedger(place, key=key))) as table:
        table.top_k("article", k=2)
        assert table.budget.ledger.header.keyed
    with Table(clicks(), user="member", budget=BUDGET, ledger=TableLedger(place, key=key)) as table:
        assert table.budget.spent.steps == 2


def test_threads_take_turns(table: Table) -> None:
    found: list[tuple[str, ...]] = []
    threads = [threading.Thread(target=lambda: found.append(table.top_k("article", k=2).labels)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [("tea", "rain")] * 6
    assert table.budget.spent.steps == 12


@pytest.mark.parametrize(
    ("source", "name", "error"),
    [
        ("duckdb:///nowhere.duckdb", "clicks", InputError),
        ("sqlite:///nowhere.sqlite", "clicks", InputError),
        ("nowhere", None, InputError),
        ("nonsense://x", "clicks", ParameterError),
        ("postgresql://x", "clicks", InputError),
        ("duckdb:///nowhere.duckdb", None, ParameterError),
        (5, None, ParameterError),
        ([{"member": 1}], None, ParameterError),
    ],
)
def test_a_source_that_is_not_there_is_refused(source: object, name: str | None, error: type[Exception]) -> None:
    with pytest.raises(error):
        Table(source, name, user="member", budget=BUDGET, ledger=":memory:")


def test_a_table_or_a_user_that_is_not_there_is_refused(tmp_path: Path) -> None:
    url = write_duckdb(tmp_path / "clicks.duckdb")
    with pytest.raises(InputError):
        Table(url, "nowhere", user="member", budget=BUDGET)
    with pytest.raises(ParameterError, match="user must name a column of the table"):
        Table(url, "clicks", user="nobody", budget=BUDGET)
    with pytest.raises(InputError):
        Table(write_sqlite(tmp_path / "clicks.sqlite"), "nowhere", user="member", budget=BUDGET)
    rows = clicks()  # a variable of this name is no table of the database
    assert len(rows)
    with pytest.raises(InputError):
        Table(url, "rows", user="member", budget=BUDGET)
    assert not list(tmp_path.glob("*.budget.db"))


def test_a_server_needs_a_ledger(server: str) -> None:
    with pytest.raises(ParameterError, match="ledger must be a path"):
        Table(server, "clicks", user="member", budget=BUDGET)


def test_a_budget_of_a_table_in_memory_is_forgotten_with_it() -> None:
    table = Table(clicks(), user="member", budget=BUDGET)
    place = Path(table.budget.ledger.place)
    assert place.exists()
    del table
    assert not place.parent.exists()


def test_nothing_secret_is_shown(table: Table) -> None:
    answer = table.top_k("article", k=10)
    for shown in (repr(table), repr(table.budget), repr(answer), str(answer), answer.to_json()):
        assert "2000" not in shown
        assert "rare" not in shown


def test_enums_and_categories_are_texts() -> None:
    rows = clicks().with_columns(pl.col("article").cast(pl.Categorical), pl.col("country").cast(pl.Categorical))
    with without_noise(Table(rows, user="member", budget=BUDGET)) as table:
        assert table.top_k("article", k=3, where="country = 'DE'").labels == ("tea", "rain", "moon")
        assert table.top_k("article", k=2, max_keys_per_user=1).labels[0] == "tea"
        assert table.histogram("article", domain=["tea", "no"]).table["estimate"].to_list() == [0, 2000]


def test_an_empty_table_has_no_labels() -> None:
    empty = pa.table({"member": pa.array([], pa.string()), "article": pa.array([], pa.string())})
    with without_noise(Table(empty, user="member", budget=BUDGET)) as table:
        answer = table.top_k("article", k=5)
        assert (answer.labels, answer.met_threshold, answer.cost.steps) == ((), True, 1)
        assert table.count().estimate == 0
        assert table.histogram("article", max_keys_per_user=1).labels == ()


def test_places_of_sources() -> None:
    assert place_of("duckdb:////data/clicks.duckdb") == Path("/data/clicks.duckdb")
    assert place_of("sqlite:///clicks.db?mode=ro") == Path("clicks.db")
    assert place_of("sqlite://") is None
    assert place_of("mysql://db/clicks") is None
    assert place_of("folder") == Path("folder")
    assert place_of(clicks()) is None


def test_tables_and_answers_are_shown_in_short(table: Table) -> None:
    asked = table.count(where="country = 'DE'")
    assert repr(asked).startswith("TableAnswer('count of users where \"country\" = \\'DE\\'', rows=1, cost 1 steps")
    assert len(repr(asked)) < 200
    assert len(repr(table)) < 200
    assert "is left" in asked._repr_html_()
    assert "<table" in asked._repr_html_()
    assert table._repr_html_().startswith("<p><b>table</b> by member: ")


def test_an_answer_has_its_columns_in_one_order(table: Table) -> None:
    columns = ["key", "estimate", "low", "high"]
    assert table.count().table.columns == columns[1:]
    assert table.top_k("article", 2).table.columns == columns[:1]
    assert table.top_k("article", 2, counts=True).table.columns == columns
    assert table.histogram("article", domain=["tea"]).table.columns == columns
    assert table.histogram("article", max_keys_per_user=1).table.columns == [*columns, "max_keys_per_user"]


def test_a_condition_may_be_a_polars_expression(table: Table) -> None:
    expected = table.count(where="country = 'DE' AND clicks > 2").estimate
    assert table.count(where=(pl.col("country") == "DE") & (pl.col("clicks") > 2)).estimate == expected
