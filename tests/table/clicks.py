"""A small table of clicks, in every kind of place it can be asked in."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from pianissimo.budget import Budget
from pianissimo.noise import Noise
from pianissimo.table import Table
from pianissimo.testing import NoNoise

BUDGET = Budget(epsilon=2.0, delta=1e-8)
COLUMNS = "member, article, country, clicks, price, day, paid"


def clicks() -> pl.DataFrame:
    """2,000 members read tea, 1,500 rain, 1,000 each of sun and moon, 3 what is rare; some rows lack something."""
    read = {"tea": 2000, "rain": 1500, "sun": 1000, "moon": 1000, "rare": 3}
    rows: list[dict[str, Any]] = [
        {
            "member": f"member {number:05}",
            "article": article,
            "country": "DE" if number % 4 else "LI",
            "clicks": number % 7,
            "price": number % 3 + 0.5,
            "day": f"2026-03-{1 + number % 28:02}",
            "paid": number % 2 == 0,
        }
        for article, members in read.items()
        for number in range(members)
    ]
    rows += rows[:500]  # the same members again: no further users
    nobody = {**rows[0], "member": None}
    nothing = {**rows[0], "article": None}
    rows += [nobody] * 4000 + [{**nothing, "member": f"silent {number}"} for number in range(4000)]
    return pl.DataFrame(rows).with_columns(pl.col("day").str.to_date())


def without_noise(table: Table, noise: Callable[[], Noise] = NoNoise) -> Table:
    """The same table, its noise replaced: the hook that tests alone use."""
    table._noise = noise
    return table


def write_duckdb(file: Path) -> str:
    rows = clicks().to_arrow()
    with duckdb.connect(str(file)) as database:
        database.register("rows", rows)
        database.execute("CREATE TABLE clicks AS SELECT * FROM rows")
    return f"duckdb:///{file}"


def write_parquet(folder: Path) -> Path:
    rows = clicks()
    (folder / "deeper").mkdir(parents=True)
    rows[:3000].write_parquet(folder / "first.parquet")
    rows[3000:].write_parquet(folder / "deeper" / "second.parquet")
    return folder


def write_sqlite(file: Path) -> str:
    with sqlite3.connect(file) as database:
        types = (
            "member TEXT, article TEXT COLLATE NOCASE, country TEXT, clicks INTEGER, price REAL, day DATE, paid BOOLEAN"
        )
        database.execute(f"CREATE TABLE clicks ({types})")
        rows = [
            tuple(str(value) if name == "day" else value for name, value in row.items()) for row in clicks().to_dicts()
        ]
        database.executemany(f"INSERT INTO clicks ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    database.close()
    return f"sqlite:///{file}"


def write_postgres(url: str) -> str:
    import psycopg

    types = "member TEXT, article TEXT, country TEXT, clicks BIGINT, price DOUBLE PRECISION, day DATE, paid BOOLEAN"
    with psycopg.connect(url) as database, database.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS clicks")
        cursor.execute(f"CREATE TABLE clicks ({types})")
        with cursor.copy(f"COPY clicks ({COLUMNS}) FROM STDIN") as copy:
            for row in clicks().iter_rows():
                copy.write_row(row)
    return url
