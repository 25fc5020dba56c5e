"""Ask a table of a million clicks five questions, and see what each costs.

python examples/ask_a_table.py
"""

import tempfile
from pathlib import Path

import duckdb
import numpy as np
import polars as pl

import pianissimo as pp
from pianissimo.table import Table

ROWS, MEMBERS = 1_000_000, 100_000


def clicks() -> pl.DataFrame:
    """Made up: popular articles and rare ones, four countries of very different size, four weeks."""
    random = np.random.default_rng(1)
    country = np.array(["US", "DE", "NZ", "LI"])[random.choice(4, MEMBERS, p=[0.7, 0.25, 0.045, 0.005])]
    member = random.integers(MEMBERS, size=ROWS)
    article = random.zipf(1.3, ROWS) % 20_000
    day = np.datetime64("2026-03-01") + random.integers(28, size=ROWS)
    frame = pl.DataFrame({"member": member, "country": country[member], "article": article, "day": day})
    return frame.with_columns(article=pl.format("article {}", "article"))


with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "clicks.duckdb"
    with duckdb.connect(str(file)) as database:
        rows = clicks().to_arrow()
        database.execute("CREATE TABLE clicks AS SELECT * FROM rows")

    # The promise is for a member with all clicks, and for all answers together. The ledger is a file beside the data.
    table = Table(f"duckdb:///{file}", "clicks", user="member", budget=pp.Budget(epsilon=2, delta=1e-8))
    print(table.plan.top_k("article", k=10))  # costs nothing, looks at no row
    print()

    questions = {
        "the 10 articles most members clicked": None,
        "the same for Germany": "country = 'DE'",
        "the same for the last week": "day >= '2026-03-22'",
        "the same for New Zealand": "country = 'NZ'",
        "the same for Liechtenstein": "country = 'LI'",
    }
    print(f"{'question':38}{'labels':>7}{'steps':>7}{'epsilon so far':>16}{'plain composition':>19}")
    plain = 0.0
    for question, where in questions.items():
        answer = table.top_k("article", k=10, where=where)
        plain += answer.plain_epsilon  # k epsilons added up, whatever came back
        spent = table.budget.spent
        print(f"{question:38}{len(answer):>7}{answer.cost.steps:>7}{spent.epsilon:>16.2f}{plain:>19.2f}")
    print(f"\n{table.budget}")
    print(f"Plain composition would have {max(0.0, 1 - plain / table.budget.epsilon):.0%} left.")
    table.close()
