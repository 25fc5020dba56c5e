"""Table III for the simulated data: relative errors of counts, a maximum frequency and a distinct count at user level.

5e7 items of 1e6 users, epsilon = 2 (pure), beta = 0.1, tau_1 = 64, check-points every 5e5 items. At each of them the
20 % largest and 20 % smallest errors over the runs are dropped, and the mean of the rest is divided by the true value;
the table has the median and the 90 % point over the check-points. Ours are runs of the package's mechanisms with 100
ticks. The rows of the paper's own setting, one item a step, are computed from its error law (see `steps`).

Run `python -m papers.user_level --out DIR`; `--quick` has a tenth of the items and users.
"""

import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import pianissimo as pp
from papers.user_level import data, record
from papers.user_level.data import Size, Users, Values
from papers.user_level.drawing import draw
from papers.user_level.record import Record
from papers.user_level.replay import UserMechanism, domain, real_run, replay, seeded_noise
from papers.user_level.steps import Steps, series_from
from pianissimo.noise import DoublingPlan
from pianissimo.users import AdaptiveCap, CountHead, HistogramHead, UserDistinct, UserStatistics

EXPECTED = Path(__file__).parent / "expected"
SEED = 2023
EPSILON = Fraction(2)
RUNS = 300
QUICK_RUNS = 60
Profile = NDArray[np.float64]
"""A relative error in percent for each check-point."""

Cells = dict[str, dict[str, tuple[float, float]]]
"""For each row and column the median and the 90 % point over the check-points."""

_PARTS = ("items", "true", "over", "kept")
_WIDTH = 132


@dataclass(frozen=True, slots=True)
class Column:
    """A statistic over a data set."""

    kind: str
    law: str

    @property
    def name(self) -> str:
        """As the table has it.

        >>> COLUMNS[0].name
        'count unif'
        """
        return f"{self.kind} {self.law}"


COLUMNS = (
    Column("count", "unif"),
    Column("count", "gauss"),
    Column("count", "zipf"),
    Column("max-freq", "unif"),
    Column("distinct", "unif"),
)

THEIRS = "printed: their mechanism"
PRINTED = {
    THEIRS: ((0.197, 0.376), (0.203, 0.365), (0.523, 0.775), (0.281, 0.689), (1.10, 1.54)),
    "printed: truncation at 1024": ((0.235, 1.09), (0.240, 0.935), (0.254, 0.997), (0.379, 1.65), (1.30, 2.39)),
}
"""Median and 90 % point in percent, for each column."""

LAWS = {
    "law: series from i = 1": Steps(weights=tuple(series_from(1))),
    "law: series from i = 0, illegal": Steps(weights=tuple(series_from(0))),
    "law: 15 normalised weights": Steps(),
    "law: truncation at 1024": Steps(fixed_cap=1024),
}
"""Algorithm 5, and Algorithm 3 alone, with one item a step: computed from the error law."""

HALVES, FIFTH, PLANNED = (
    "ours: doubling trees, half/half",
    "ours: doubling trees, 20/80",
    "ours: as planned",
)
OURS = (HALVES, FIFTH, PLANNED)


def mechanism_of(row: str, kind: str) -> UserMechanism:
    """The package's mechanism behind a row of ours.

    >>> mechanism_of(FIFTH, "count").guarantee.loss.epsilon <= EPSILON
    True
    """
    if row == PLANNED:
        return _planned(kind)
    search = EPSILON * (Fraction(1, 2) if row == HALVES else Fraction(1, 5))
    cap, left = AdaptiveCap(epsilon=search, first=64, fourfold=0, levels=15), EPSILON - search
    if kind == "distinct":
        return UserDistinct(cap=cap, plan=DoublingPlan, horizon=data.TICKS, epsilon=left)
    head = CountHead() if kind == "count" else HistogramHead(name="largest", domain=domain())
    return UserStatistics(heads=(head,), cap=cap, plan=DoublingPlan, horizon=data.TICKS, epsilon=left)


def _planned(kind: str) -> UserMechanism:
    """What a stream of this one query would run, without a delta."""
    query: pp.Count | pp.MaxFrequency | pp.Distinct
    if kind == "count":
        query = pp.Count("count")
    elif kind == "max-freq":
        query = pp.MaxFrequency("largest", key="value", domain=domain())
    else:
        query = pp.Distinct("values", key="value")
    budget = pp.Budget(float(EPSILON), 0)
    stream = pp.Stream("table", unit=pp.user("user", first_cap=64), budget=budget, horizon=data.TICKS, queries=[query])
    mechanism = stream.plan().queries[0].mechanism
    if not isinstance(mechanism, UserStatistics | UserDistinct):
        raise TypeError("a stream of users must be answered by a mechanism about users")
    return mechanism


def trimmed(errors: NDArray[np.float64], true: NDArray[np.int64]) -> Profile:
    """By check-point: the mean of the middle 60 % of the runs' errors, relative, in percent.

    >>> trimmed(np.array([[0.0], [1.0], [2.0], [3.0], [90.0]]), np.array([200]))
    array([1.])
    """
    dropped = len(errors) // 5
    middle = np.sort(errors, axis=0)[dropped : len(errors) - dropped]
    return np.asarray(100 * middle.mean(axis=0) / true)


def cell(profile: Profile) -> tuple[float, float]:
    """The median and the 90 % point over the check-points.

    >>> cell(np.arange(101.0))
    (50.0, 90.0)
    """
    return float(np.median(profile)), float(np.quantile(profile, 0.9))


def our_profile(row: str, column: Column, recorded: Record, runs: int) -> Profile:
    """Of so many runs of a mechanism of ours over a recorded stream."""
    mechanism = mechanism_of(row, column.kind)
    noise = seeded_noise(SEED).at(row, column.name)
    errors = [np.abs(replay(mechanism, recorded, noise.at(run)) - recorded.true) for run in range(runs)]
    return trimmed(np.array(errors, dtype=np.float64), recorded.true)


def law_profile(row: str, column: Column, recorded: Record, runs: int) -> Profile:
    """Of so many draws from the error law of the paper's setting."""
    random = np.random.default_rng([SEED, *f"{row} {column.name}".encode()])
    law = LAWS[row]
    # A distinct value may leave one place for another, so its counters have twice the noise.
    steps = Steps(weights=law.weights, fixed_cap=law.fixed_cap, doubled=column.kind == "distinct")
    return trimmed(steps.errors(recorded, runs, random), recorded.true)


def make_data(column: Column, size: Size, seed: int = SEED) -> tuple[Users, Values | None]:
    """Users and values of a column's stream."""
    users = data.make_users(column.law, size, seed)
    if column.kind == "count":
        return users, None
    return users, data.make_frequent(size, seed) if column.kind == "max-freq" else data.make_uniform(size, seed)


def make_record(column: Column, users: Users, values: Values | None) -> Record:
    """The exact statistics of a column."""
    if values is None:
        return record.count_record(users)
    return (record.frequency_record if column.kind == "max-freq" else record.distinct_record)(users, values)


def write_records(records: dict[Column, Record], path: Path) -> None:
    """All records, by name of column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"{each.name}, {part}": getattr(own, part) for each, own in records.items() for part in _PARTS}
    np.savez_compressed(path, **arrays)


def read_record(column: Column, path: Path = EXPECTED / "records.npz") -> Record:
    """A record that was written.

    >>> int(read_record(COLUMNS[0]).true[-1])
    50000000
    """
    with np.load(path) as arrays:
        items, true, over, kept = (arrays[f"{column.name}, {part}"] for part in _PARTS)
    return Record(int(items), true, over, kept)


def profiles_of(column: Column, recorded: Record, runs: int) -> Iterator[tuple[str, Profile]]:
    """All computed rows of a column."""
    for row in LAWS:
        yield row, law_profile(row, column, recorded, runs)
    for row in OURS:
        yield row, our_profile(row, column, recorded, runs)


def printed_cells() -> Cells:
    """What the paper has.

    >>> printed_cells()[THEIRS]["count zipf"]
    (0.523, 0.775)
    """
    names = [column.name for column in COLUMNS]
    return {row: dict(zip(names, pairs, strict=True)) for row, pairs in PRINTED.items()}


def write_cells(cells: Cells, path: Path) -> None:
    """One line for each row, the printed ones first: medians and 90 % points in percent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", *(f"{column.name}, {what}" for column in COLUMNS for what in ("median", "90 %"))])
        for row, found in cells.items():
            numbers = [number for column in COLUMNS for number in found[column.name]]
            writer.writerow([row, *(f"{number:.4f}" for number in numbers)])


def read_cells(path: Path = EXPECTED / "table_3.csv") -> Cells:
    """What was written: for each row and column the median and the 90 % point.

    >>> read_cells()[THEIRS]["count unif"]
    (0.197, 0.376)
    """
    with path.open() as file:
        rows = {row.pop("row"): row for row in csv.DictReader(file)}
    return {
        name: {each.name: (float(row[f"{each.name}, median"]), float(row[f"{each.name}, 90 %"])) for each in COLUMNS}
        for name, row in rows.items()
    }


def show(cells: Cells, size: Size) -> Table:
    """The table as it is printed: median / 90 % point."""
    table = Table(
        title=f"Relative error in %, {size.items:,} items: median / 90 % point over the check-points, epsilon = 2",
        caption="printed: of 50,000,000 items; law: one item a step, from the error law; ours: 100 ticks, simulated",
        box=SIMPLE_HEAD,
    )
    table.add_column("", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column.name, justify="right", no_wrap=True)
    for row, found in cells.items():
        shown = (found[column.name] for column in COLUMNS)
        style = "bold" if row in OURS else None
        table.add_row(row, *(f"{median:.3g} / {high:.3g}" for median, high in shown), style=style)
    return table


def compare_with_real(row: str, column: Column, recorded: Record, users: Users, values: Values | None) -> None:
    """Run the mechanism over the stream, and fail if the replay under the same noise says another number."""
    mechanism = mechanism_of(row, column.kind)
    noise = seeded_noise(SEED).at(row, column.name, 0)
    if not np.array_equal(real_run(mechanism, users, values, noise), replay(mechanism, recorded, noise)):
        raise RuntimeError(f"a run and its replay must release the same, got another number: {row}, {column.name}")


def make_all_records(size: Size, *, real: bool) -> Iterator[tuple[Column, Record]]:
    """Stream by stream; with `real`, runs of the mechanisms over it are compared with their replays."""
    for column in COLUMNS:
        begin = time.perf_counter()
        users, values = make_data(column, size)
        recorded = make_record(column, users, values)
        told = (
            f"{column.name}: {size.items:,} items of {size.users:,} users, the largest has {np.bincount(users).max()}"
        )
        if real:
            rows = OURS if column.kind == "count" else (PLANNED,)
            for row in rows:
                compare_with_real(row, column, recorded, users, values)
            told += f"; runs of {len(rows)} mechanisms, each number as replayed"
        click.echo(f"{told}; {time.perf_counter() - begin:.0f} s")
        yield column, recorded


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the items and users, fewer runs; printed rows do not compare.")
@click.option("--recorded", is_flag=True, help="From the committed records, without the streams.")
@click.option("--runs", type=click.IntRange(min=5), help=f"Runs of each row: {RUNS}, or {QUICK_RUNS} if quick.")
@click.option("--real/--no-real", default=True, help="Also run the mechanisms over the streams, and compare.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=None, help="Where files go.")
def main(quick: bool, recorded: bool, runs: int | None, real: bool, out: Path | None) -> None:  # noqa: FBT001
    """Show the table; with --out, also make table_3.csv, table_3.png and records.npz."""
    runs = runs or (QUICK_RUNS if quick else RUNS)
    size = data.QUICK if quick else data.FULL
    made = make_all_records(size, real=real)
    records = {column: read_record(column) for column in COLUMNS} if recorded else dict(made)
    profiles: dict[str, dict[str, Profile]] = {row: {} for row in (*LAWS, *OURS)}
    for column, each in records.items():
        for row, profile in profiles_of(column, each, runs):
            profiles[row][column.name] = profile
    cells = printed_cells() | {
        row: {name: cell(profile) for name, profile in found.items()} for row, found in profiles.items()
    }
    Console(width=_WIDTH).print(show(cells, size))
    if out is not None:
        write_records(records, out / "records.npz")
        write_cells(cells, out / "table_3.csv")
        draw(profiles, {name: pair[0] for name, pair in cells[THEIRS].items()}, out / "table_3.png")
