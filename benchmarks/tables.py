"""Asking a table of 1e7 rows in a DuckDB file, ledger and noise included, against the bare SQL query."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb

from benchmarks.measure import Row
from pianissimo.budget import Budget
from pianissimo.table import Table

ROWS = 10_000_000
K = 10
REPEATS = 7

BARE = """
SELECT article, COUNT(DISTINCT member) AS members FROM clicks GROUP BY article ORDER BY members DESC, article LIMIT 10
"""


def make(file: Path) -> None:
    """Clicks whose articles are of very different popularity; `hash` makes them the same each time."""
    with duckdb.connect(str(file)) as database:
        database.execute(f"""
            CREATE TABLE clicks AS SELECT
                'article ' || CAST(floor(pow((hash(i) % 1000003) / 1000003.0, 3) * 5000) AS INTEGER) AS article,
                CAST(hash(i + 77777777) % 200000 AS INTEGER) AS member
            FROM range({ROWS}) AS rows(i)
        """)


def side_by_side(*actions: Callable[[], object]) -> list[float]:
    """The best of several runs each, in turns, so that all meet the same machine."""
    best = [float("inf")] * len(actions)
    for action in actions:
        action()
    for _ in range(REPEATS):
        for place, action in enumerate(actions):
            start = time.perf_counter()
            action()
            best[place] = min(best[place], time.perf_counter() - start)
    return best


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "clicks.duckdb"
        make(file)
        table = Table(f"duckdb:///{file}", "clicks", user="member", budget=Budget(2.0, 1e-8))
        # Read-only and with the same settings: DuckDB has one instance a file in a process.
        bare = duckdb.connect(str(file), read_only=True, config={"python_enable_replacements": "false"})
        sent = table.plan.top_k("article", k=K).sql
        ours, plain, same = side_by_side(
            lambda: table.top_k("article", k=K),
            lambda: bare.execute(BARE).fetchall(),
            lambda: bare.execute(sent).fetchall(),
        )
        bare.close()
        table.close()
    for peer, theirs in (("the bare SQL query", plain), ("the very statement that it sends", same)):
        yield Row(
            what="Table.top_k on 1e7 rows in DuckDB, with ledger and noise",
            peer=peer,
            ours=ours * 1e3,
            theirs=theirs * 1e3,
            unit="ms",
            at_most=1.1,
        )


if __name__ == "__main__":
    for row in rows():
        print(f"{row.what}: {row.ours:.0f} {row.unit}, {row.ratio:.3f} times {row.peer}")
