"""Table III, simulated data: relative errors of counts, largest frequencies, maxima and numbers of different values.

5e7 items of 1e6 users, epsilon = 2 (pure), beta = 0.1, tau_1 = 64, check-points every 5e5 items; what stands in the
table is said in `sheet`.

Run `python -m papers.user_level --out DIR`; `--quick` has a tenth of the items and users.
"""

from pathlib import Path

import click

from papers.user_level import data, record
from papers.user_level.data import Size, Users, Values
from papers.user_level.making import Stream, make_all_records, make_table
from papers.user_level.record import Record, caps_up_to
from papers.user_level.sheet import QUICK_RUNS, RUNS, SEED, Column, Sheet

LAWS = ("unif", "gauss", "zipf")
VALUES = {"count": 0, "max-freq": data.FREQUENT, "maximum": data.LARGEST_VALUE, "distinct": 0}
THEIRS = "printed: their mechanism"

SHEET = Sheet(
    "table_3",
    "Table III",
    tuple(Column(kind, law, values=values) for kind, values in VALUES.items() for law in LAWS),
    {
        THEIRS: (
            (0.197, 0.376), (0.203, 0.365), (0.523, 0.775), (0.281, 0.689), (0.316, 0.636), (0.676, 1.07),
            (0, 1.05), (0, 1.51), (1.10, 4.77), (1.10, 1.54), (1.17, 1.79), (2.89, 4.69),
        ),
        "printed: truncation at 1024": (
            (0.235, 1.09), (0.24, 0.935), (0.254, 0.997), (0.379, 1.65), (0.357, 1.69), (0.385, 1.75),
            (6.98, 44.4), (7.00, 44.4), (6.99, 44.5), (1.3, 2.39), (1.31, 2.82), (1.38, 2.49),
        ),
        "printed: advanced composition": (
            (96.2, 97.9), (96.2, 97.8), (96.5, 97.9), (96.0, 97.8), (96.1, 97.8), (96.5, 97.9),
            (2.17, 16.6), (2.17, 16.6), (2.18, 16.7), (89.9, 90.6), (89.8, 90.6), (90.6, 91.1),
        ),
        "printed: truncation at a random tau": (
            (14.2, 42.4), (13.3, 40.6), (16.8, 59), (15.0, 68.1), (13.4, 67.9), (22.6, 75.5),
            (20, 100), (20.1, 100), (21, 100), (21.6, 42.3), (21.2, 36.1), (32.1, 43),
        ),
    },
    fixed="law: truncation at 1024",
)  # fmt: skip
COLUMNS = SHEET.columns
read_cells = SHEET.read_cells


def make_data(column: Column, size: Size, seed: int = SEED) -> Stream:
    """Users and values of a column's stream."""
    users = data.make_users(column.law, size, seed)
    if column.kind == "max-freq":
        return users, data.make_frequent(size, seed)
    if column.kind == "maximum":
        return users, data.make_ordered(size)
    return users, data.make_uniform(size, seed) if column.kind == "distinct" else None


def make_record(column: Column, users: Users, values: Values | None) -> Record:
    """The exact statistics of a column."""
    caps = caps_up_to(data.LARGEST)
    if values is None:
        return record.count_record(users, caps_up_to(data.LARGEST, finely=True))
    if column.kind == "maximum":
        return record.maximum_record(users, (column.ticks // column.values,) * column.values, caps)
    return (record.frequency_record if column.kind == "max-freq" else record.distinct_record)(users, values, caps)


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the items and users, fewer runs; printed rows do not compare.")
@click.option("--recorded", is_flag=True, help="From the committed records, without the streams.")
@click.option("--runs", type=click.IntRange(min=5), help=f"Runs of each row: {RUNS}, or {QUICK_RUNS} if quick.")
@click.option("--real/--no-real", default=True, help="Also run the mechanisms over the streams, and compare.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=None, help="Where files go.")
def main(quick: bool, recorded: bool, runs: int | None, real: bool, out: Path | None) -> None:  # noqa: FBT001
    """Show the table; with --out, also make table_3.csv, table_3.png and table_3_records.npz."""
    size = data.QUICK if quick else data.FULL
    made = make_all_records(SHEET, lambda column: make_data(column, size), make_record, real=real)
    records = SHEET.read_records() if recorded else dict(made)
    title = f"relative error in %, {size.items:,} items: median / 90 % point over the check-points, epsilon = 2"
    make_table(SHEET, records, runs or (QUICK_RUNS if quick else RUNS), title, out)
