"""A table of the paper made anew: its columns, its rows, and the numbers in them.

At each check-point the 20 % largest and 20 % smallest errors over the runs are dropped, and the mean of the rest is
divided by the true value; the table has the median and the 90 % point over the check-points. Rows of ours are runs of
the package's mechanisms, with as many ticks as check-points. Rows named "law" are in the paper's own setting, one item
a step, computed from error laws (`steps`, `baselines`).
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.table import Table

import pianissimo as pp
from papers.user_level.baselines import Composition, random_cap_errors
from papers.user_level.data import TICKS, Users, Values
from papers.user_level.record import Record
from papers.user_level.replay import UserMechanism, domain, real_run, replay, seeded_noise
from papers.user_level.steps import Errors, Steps, series_from
from pianissimo.noise import DoublingPlan
from pianissimo.users import AdaptiveCap, CountHead, HistogramHead, QuantilesHead, UserDistinct, UserStatistics

EXPECTED = Path(__file__).parent / "expected"
SEED = 2023
EPSILON = Fraction(2)
RUNS = 300
"""Of a row from an error law; a row of ours has a fifth of them."""

QUICK_RUNS = 60
RUNS_PER_CAP = 30
"""Of a random cap: the paper's 20 x 30."""

Profile = NDArray[np.float64]
"""A relative error in percent for each check-point."""

Cells = dict[str, dict[str, tuple[float, float]]]
"""For each row and column the median and the 90 % point over the check-points."""

SERIES_1, SERIES_0, NORMALISED = (
    "law: series from i = 1",
    "law: series from i = 0, illegal",
    "law: 15 normalised weights",
)
SEARCHES = {
    SERIES_1: Steps(weights=tuple(series_from(1))),
    SERIES_0: Steps(weights=tuple(series_from(0))),
    NORMALISED: Steps(),
}
"""Algorithm 5 with one item a step, by the weights of its levels."""

COMPOSED, RANDOM = "law: advanced composition", "law: truncation at a random tau"
HALVES, FIFTH, PLANNED = (
    "ours: doubling trees, half/half",
    "ours: doubling trees, 20/80",
    "ours: as planned",
)
OURS = (HALVES, FIFTH, PLANNED)

_PARTS = ("items", "true", "over", "kept", "caps", "ends", "holders")


@dataclass(frozen=True, slots=True)
class Column:
    """A statistic over a data set."""

    kind: str
    """count, max-freq, maximum or distinct."""

    law: str
    ticks: int = TICKS
    values: int = 0
    """How many an item may have, of a maximum or a largest frequency."""

    @property
    def name(self) -> str:
        """As the table has it.

        >>> Column("count", "unif").name
        'count unif'
        """
        return f"{self.kind} {self.law}"


def mechanism_of(row: str, column: Column, epsilon: Fraction = EPSILON) -> UserMechanism:
    """The package's mechanism behind a row of ours.

    >>> mechanism_of(FIFTH, Column("count", "unif")).guarantee.loss.epsilon <= EPSILON
    True
    """
    if row == PLANNED:
        return _planned(column, epsilon)
    search = epsilon * (Fraction(1, 2) if row == HALVES else Fraction(1, 5))
    # Six series for each item of a maximum: under a cap of 2^20 no sampler has such noise.
    levels = 10 if column.kind == "maximum" else 15
    cap, left = AdaptiveCap(epsilon=search, first=64, fourfold=0, levels=levels), epsilon - search
    if column.kind == "distinct":
        return UserDistinct(cap=cap, plan=DoublingPlan, horizon=column.ticks, epsilon=left)
    head: CountHead | HistogramHead | QuantilesHead = CountHead()
    if column.kind == "max-freq":
        head = HistogramHead(name="largest", domain=domain(column.values))
    elif column.kind == "maximum":
        cells = _cells(column)
        depth = cells.bit_length() - 1
        head = QuantilesHead(name="largest", low=1.0, high=1.0 + cells, depth=depth, quantiles=(), largest=(1,))
    return UserStatistics(heads=(head,), cap=cap, plan=DoublingPlan, horizon=column.ticks, epsilon=left)


def _planned(column: Column, epsilon: Fraction) -> UserMechanism:
    """What a stream of this one query would run, without a delta."""
    query: pp.Count | pp.MaxFrequency | pp.Quantiles | pp.Distinct
    if column.kind == "count":
        query = pp.Count("count")
    elif column.kind == "max-freq":
        query = pp.MaxFrequency("largest", key="value", domain=domain(column.values))
    elif column.kind == "maximum":
        cells = _cells(column)
        query = pp.Quantiles("largest", value="value", range=(1, 1 + cells), cells=cells, at=[], largest=[1])
    else:
        query = pp.Distinct("values", key="value")
    budget, unit = pp.Budget(float(epsilon), 0), pp.user("user", first_cap=64)
    stream = pp.Stream("table", unit=unit, budget=budget, horizon=column.ticks, queries=[query])
    mechanism = stream.plan().queries[0].mechanism
    if not isinstance(mechanism, UserStatistics | UserDistinct):
        raise TypeError("a stream of users must be answered by a mechanism about users")
    return mechanism


def _cells(column: Column) -> int:
    """A power of two, one cell a value."""
    return 1 << (column.values - 1).bit_length()


def trimmed(errors: NDArray[np.float64], whole: NDArray[np.int64]) -> Profile:
    """By check-point: the mean of the middle 60 % of the runs' errors, relative, in percent.

    >>> trimmed(np.array([[0.0], [1.0], [2.0], [3.0], [90.0]]), np.array([200]))
    array([1.])
    """
    dropped = len(errors) // 5
    middle = np.sort(errors, axis=0)[dropped : len(errors) - dropped]
    return np.asarray(100 * middle.mean(axis=0) / whole)


def cell(profile: Profile) -> tuple[float, float]:
    """The median and the 90 % point over the check-points.

    >>> cell(np.arange(101.0))
    (50.0, 90.0)
    """
    return float(np.median(profile)), float(np.quantile(profile, 0.9))


def our_errors(row: str, column: Column, recorded: Record, runs: int, epsilon: Fraction = EPSILON) -> Errors:
    """Of so many runs of a mechanism of ours over a recorded stream."""
    mechanism = mechanism_of(row, column, epsilon)
    noise = seeded_noise(SEED).at(row, column.name)
    return np.array([recorded.errors(replay(mechanism, recorded, noise.at(run))) for run in range(runs)])


def compare_with_real(row: str, column: Column, recorded: Record, users: Users, values: Values | None) -> None:
    """Run the mechanism over the stream, and fail if the replay under the same noise says another number."""
    mechanism = mechanism_of(row, column)
    noise = seeded_noise(SEED).at(row, column.name, 0)
    if not np.array_equal(real_run(mechanism, users, values, noise), replay(mechanism, recorded, noise)):
        raise RuntimeError(f"a run and its replay must release the same, got another number: {row}, {column.name}")


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table: what the paper prints, and which rows are computed."""

    name: str
    """Of its files."""

    title: str
    columns: tuple[Column, ...]
    printed: Mapping[str, tuple[tuple[float, float], ...]]
    """By row, for each column: median and 90 % point in percent."""

    fixed: str
    """The row of the cap that is as large as the largest contribution."""

    @property
    def laws(self) -> tuple[str, ...]:
        """Rows that are computed from error laws."""
        return (*SEARCHES, self.fixed, COMPOSED, RANDOM)

    def column(self, name: str) -> Column:
        """By its name."""
        return next(each for each in self.columns if each.name == name)

    def law_errors(
        self, row: str, column: Column, records: Mapping[Column, Record], runs: int, epsilon: Fraction = EPSILON
    ) -> Errors:
        """Of so many draws from an error law of the paper's setting; the count of the same data is recorded too."""
        random = np.random.default_rng([SEED, *f"{row} {column.name}".encode()])
        recorded = records[column]
        if row == COMPOSED:
            counted = records[self.column(f"count {column.law}")]
            return Composition(epsilon=float(epsilon)).errors(recorded, counted, runs, random)
        # A distinct value may leave one place for another, so its counters have twice the noise.
        steps = replace(SEARCHES.get(row, Steps()), epsilon=float(epsilon), doubled=column.kind == "distinct")
        if row == RANDOM:
            return random_cap_errors(steps, recorded, min(runs, RUNS_PER_CAP), random)
        if row == self.fixed:
            steps = replace(steps, fixed_cap=recorded.caps[-1])
        return steps.errors(recorded, runs, random)

    def profile(
        self, row: str, column: Column, records: Mapping[Column, Record], runs: int, epsilon: Fraction = EPSILON
    ) -> Profile:
        """The relative error of a row at each check-point."""
        if row in OURS:
            errors = our_errors(row, column, records[column], max(5, runs // 5), epsilon)
        else:
            errors = self.law_errors(row, column, records, runs, epsilon)
        return trimmed(errors, records[column].whole)

    def printed_cells(self) -> Cells:
        """What the paper has."""
        names = [column.name for column in self.columns]
        return {row: dict(zip(names, pairs, strict=True)) for row, pairs in self.printed.items()}

    def write_records(self, records: Mapping[Column, Record], folder: Path) -> None:
        """All records, by name of column."""
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {f"{each.name}, {part}": getattr(own, part) for each, own in records.items() for part in _PARTS}
        np.savez_compressed(
            folder / f"{self.name}_records.npz", **{name: part for name, part in arrays.items() if part is not None}
        )

    def read_records(self, folder: Path = EXPECTED) -> dict[Column, Record]:
        """The records that were written."""
        with np.load(folder / f"{self.name}_records.npz") as arrays:
            return {each: _record_in(arrays, each.name) for each in self.columns}

    def write_cells(self, cells: Cells, folder: Path) -> None:
        """One line for each row, the printed ones first: medians and 90 % points in percent."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self.name}.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            names = (f"{column.name}, {what}" for column in self.columns for what in ("median", "90 %"))
            writer.writerow(["row", *names])
            for row, found in cells.items():
                numbers = [number for column in self.columns for number in found[column.name]]
                writer.writerow([row, *(f"{number:.4f}" for number in numbers)])

    def read_cells(self, folder: Path = EXPECTED) -> Cells:
        """What was written: for each row and column the median and the 90 % point."""
        with (folder / f"{self.name}.csv").open() as file:
            rows = {row.pop("row"): row for row in csv.DictReader(file)}
        names = [column.name for column in self.columns]
        return {
            name: {each: (float(row[f"{each}, median"]), float(row[f"{each}, 90 %"])) for each in names}
            for name, row in rows.items()
        }

    def show(self, cells: Cells, title: str) -> Iterator[Table]:
        """The table as it is printed, one part a kind: median / 90 % point."""
        for kind in dict.fromkeys(column.kind for column in self.columns):
            table = Table(title=f"{kind}, {title}", box=SIMPLE_HEAD)
            table.add_column("", no_wrap=True)
            own = [column for column in self.columns if column.kind == kind]
            for column in own:
                table.add_column(column.law, justify="right", no_wrap=True)
            for row, found in cells.items():
                shown = (found[column.name] for column in own)
                style = "bold" if row in OURS else None
                table.add_row(row, *(as_shown(pair) for pair in shown), style=style)
            yield table


def as_shown(pair: tuple[float, float]) -> str:
    """A median and a 90 % point.

    >>> as_shown((0.197, 12900.0))
    '0.197 / 12900'
    """
    return " / ".join(f"{number:.0f}" if number >= 1000 else f"{number:.3g}" for number in pair)


def _record_in(arrays: Mapping[str, NDArray[np.int64]], name: str) -> Record:
    own = {part: arrays[f"{name}, {part}"] for part in _PARTS if f"{name}, {part}" in arrays}
    return Record(**{**own, "items": int(own["items"]), "caps": tuple(own["caps"].tolist())})  # type: ignore[arg-type]
