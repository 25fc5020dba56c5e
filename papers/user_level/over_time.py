"""Figures 3, 4 and 6: errors along the stream at epsilon = 1, 2 and 4, from the recorded streams of Tables III and IV.

Figure 3 has the count and the maximum of uniform contributions, Figure 6 the largest frequency and different values,
Figure 4 the counts of AOL and Netflix, here of streams that stand in for them. The paper prints curves and no numbers.

Run `python -m papers.user_level.over_time --out DIR`.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import click
import numpy as np

from papers.user_level import table_3, table_4
from papers.user_level.drawing import FIXED, Panel, draw_panels
from papers.user_level.record import Record
from papers.user_level.sheet import COMPOSED, EXPECTED, NORMALISED, PLANNED, RANDOM, Column, Profile, Sheet

EPSILONS = (1, 2, 4)
RUNS = 60
ROWS = (COMPOSED, RANDOM, FIXED, NORMALISED, PLANNED)
PARTS = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Of the stream: where the CSV has the error, and before them its mean over all check-points."""

_NAMES = ("mean", *(f"at {part:.0%}" for part in PARTS))


@dataclass(frozen=True, slots=True)
class Picture:
    """One figure: two statistics of a table's streams."""

    name: str
    sheet: Sheet
    columns: tuple[str, str]
    head: str


PICTURES = (
    Picture("figure_3", table_3.SHEET, ("count unif", "maximum unif"), "counts, and ranks of maxima,"),
    Picture("figure_4", table_4.SHEET, ("count AOL", "count Netf."), "counts on stand-ins for AOL and Netflix"),
    Picture("figure_6", table_3.SHEET, ("max-freq unif", "distinct unif"), "largest frequency and different values"),
)


def errors_of(
    sheet: Sheet, row: str, column: Column, records: Mapping[Column, Record], epsilon: int, runs: int = RUNS
) -> Profile:
    """The error of a row at each check-point, in items or values.

    >>> sheet = table_3.SHEET
    >>> records = sheet.read_records()
    >>> found = errors_of(sheet, FIXED, sheet.column("count unif"), records, 2)
    >>> len(found), bool(found[-1] > 10_000)
    (100, True)
    """
    own = sheet.fixed if row == FIXED else row
    return sheet.profile(own, column, records, runs, Fraction(epsilon)) * records[column].whole / 100


def curves_of(picture: Picture, runs: int) -> Iterator[tuple[Column, int, Panel]]:
    """A panel for each statistic and epsilon."""
    records = picture.sheet.read_records()
    for name in picture.columns:
        column = picture.sheet.column(name)
        for epsilon in EPSILONS:
            curves = {row: errors_of(picture.sheet, row, column, records, epsilon, runs) for row in ROWS}
            # The error of a maximum is a rank, and has nothing to do with its size.
            whole = None if records[column].ends is not None else records[column].whole.astype(np.float64)
            yield column, epsilon, Panel(f"{name}, epsilon = {epsilon}", records[column].so_far / 1e6, curves, whole)


def write_rows(rows: list[list[str]], path: Path) -> None:
    """One line a curve."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["figure", "statistic", "epsilon", "row", *_NAMES])
        writer.writerows(rows)


def read_rows(path: Path = EXPECTED / "over_time.csv") -> dict[tuple[str, int, str], tuple[float, ...]]:
    """For each statistic, epsilon and row the mean error, and that at five places of the stream.

    >>> len(read_rows()["count unif", 2, PLANNED])
    6
    """
    with path.open() as file:
        return {
            (row["statistic"], int(row["epsilon"]), row["row"]): tuple(float(row[name]) for name in _NAMES)
            for row in csv.DictReader(file)
        }


@click.command()
@click.option("--runs", type=click.IntRange(min=5), default=RUNS, help=f"Of each curve: {RUNS}.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=EXPECTED, help="Where files go.")
def main(runs: int, out: Path) -> None:
    """Make figure_3.png, figure_4.png, figure_6.png and over_time.csv."""
    rows = []
    for picture in PICTURES:
        panels = []
        for column, epsilon, panel in curves_of(picture, runs):
            panels.append(panel)
            places = [max(0, round(part * len(panel.places)) - 1) for part in PARTS]
            for row, curve in panel.curves.items():
                numbers = (curve.mean(), *curve[places])
                rows.append([picture.name, column.name, str(epsilon), row, *(f"{number:.4g}" for number in numbers)])
        head = f"Users hidden with everything they do: {picture.head} along the stream"
        how = (
            "Mean of the middle 60 % of the runs. One item a step: from error laws. "
            "Ticks: the package's mechanisms over recorded streams."
        )
        draw_panels(panels, head, how, ("million items", "error"), out / f"{picture.name}.png", shared="row")
        click.echo(f"{picture.name}: {', '.join(picture.columns)}")
    write_rows(rows, out / "over_time.csv")


if __name__ == "__main__":
    main()
