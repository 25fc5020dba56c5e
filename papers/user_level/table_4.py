"""Table IV on streams that stand in for the real data: the printed sizes, generated users and values (`stand_ins`).

As Table III, with check-points every 5e5 items (TLDR: 1e5). The printed numbers are of the real data, whose users are
not spread as those here: only the order of the rows and the sizes of errors can be compared.

Run `python -m papers.user_level.table_4 --out DIR`; `--quick` has a tenth of the items and users.
"""

from pathlib import Path

import click
import numpy as np

from papers.user_level import record, stand_ins
from papers.user_level.data import Users, Values
from papers.user_level.making import Stream, make_all_records, make_table
from papers.user_level.record import Record, caps_up_to
from papers.user_level.sheet import QUICK_RUNS, RUNS, SEED, Column, Sheet
from papers.user_level.stand_ins import StandIn, stand_in

THEIRS = "printed: their mechanism"


def _column(kind: str, name: str) -> Column:
    own = stand_in(name)
    return Column(kind, name, own.ticks, len(own.shares) if kind in ("max-freq", "maximum") else 0)


SHEET = Sheet(
    "table_4",
    "Table IV on stand-ins",
    (
        *(_column("count", name) for name in ("AOL", "MLens", "Netf.", "TLDR")),
        *(_column("max-freq", name) for name in ("AOL", "MLens")),
        _column("maximum", "MLens"),
        *(_column("distinct", name) for name in ("MLens", "TLDR")),
    ),
    {
        THEIRS: (
            (4.55, 6.36), (8.58, 11.7), (5.37, 7.91), (3.21, 10.5), (7.75, 11), (15.6, 21.5), (35.8, 62.7),
            (15.1, 20.7), (4.84, 10.8),
        ),
        "printed: truncation at kappa": (
            (162, 800), (14.0, 52.4), (6.53, 31.5), (1140, 6300), (1470, 7740), (49.6, 278), (100, 100),
            (30.1, 183), (2280, 12900),
        ),
        "printed: advanced composition": (
            (95.9, 97.3), (99.3, 99.4), (97.8, 98.5), (61.5, 63.2), (94.3, 96.1), (99.3, 99.8), (0, 37.2),
            (99.2, 99.4), (61.7, 63.3),
        ),
        "printed: truncation at a random tau": (
            (39.2, 73.8), (50.9, 79.7), (40.6, 66.6), (20.0, 48.2), (59.5, 88.2), (77.9, 94.7), (10.8, 100),
            (70.8, 94.6), (29.5, 48.2),
        ),
    },
    fixed="law: truncation at kappa",
)  # fmt: skip
read_cells = SHEET.read_cells


def make_data(column: Column, own: StandIn, seed: int = SEED) -> Stream:
    """Users and values of a column's stream."""
    users = stand_ins.make_users(own, seed)
    if column.kind == "max-freq":
        return users, stand_ins.make_values(own, seed)
    if column.kind == "maximum":
        return users, np.repeat(np.arange(1, column.values + 1, dtype=np.int32), np.array(own.spans) * own.every)
    # Dates and item numbers: as good as no two items have the same value.
    return users, np.arange(len(users), dtype=np.int32) if column.kind == "distinct" else None


def make_record(column: Column, users: Users, values: Values | None, own: StandIn) -> Record:
    """The exact statistics of a column."""
    last = 1 << (own.largest - 1).bit_length()
    if values is None or column.kind == "distinct":
        return record.count_record(users, caps_up_to(last, finely=values is None), own.ticks)
    if column.kind == "maximum":
        return record.maximum_record(users, own.spans, caps_up_to(last))
    return record.frequency_record(users, values, caps_up_to(last), own.ticks)


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the items and users, fewer runs; printed rows do not compare.")
@click.option("--recorded", is_flag=True, help="From the committed records, without the streams.")
@click.option("--runs", type=click.IntRange(min=5), help=f"Runs of each row: {RUNS}, or {QUICK_RUNS} if quick.")
@click.option("--real/--no-real", default=True, help="Also run the mechanisms over the streams, and compare.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=None, help="Where files go.")
def main(quick: bool, recorded: bool, runs: int | None, real: bool, out: Path | None) -> None:  # noqa: FBT001
    """Show the table; with --out, also make table_4.csv, table_4.png and table_4_records.npz."""
    own = {each.name: each.smaller(stand_ins.QUICKER) if quick else each for each in stand_ins.STAND_INS}
    made = make_all_records(
        SHEET,
        lambda column: make_data(column, own[column.law]),
        lambda column, users, values: make_record(column, users, values, own[column.law]),
        real=real,
    )
    records = SHEET.read_records() if recorded else dict(made)
    title = "relative error in % on stand-ins: median / 90 % point over the check-points, epsilon = 2"
    make_table(SHEET, records, runs or (QUICK_RUNS if quick else RUNS), title, out)


if __name__ == "__main__":
    main()
