"""Figure 1: how much noise a running count needs, against how many releases there are.

The paper's y-axis is sqrt(r - 1) L, its bound on the standard deviation of a count over tau, with L the number of
base-r digits of T; every count is (1 / (2 tau^2))-zCDP. Added here: the exact largest standard deviation, sqrt(L maxS)
with maxS the largest base-r digit sum up to T; our plans at the same rho; and the least error there can be.

Run `python -m papers.continual_histograms.figure_1 --out DIR`; it takes half a minute.
"""

import csv
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import click
import numpy as np

from papers.continual_histograms import drawing
from papers.continual_histograms.drawing import Line
from pianissimo.counting.compare import optimum
from pianissimo.noise import HaarPlan, HaarSkipPlan, SplinePlan, best_base
from pianissimo.noise.plan import NoisePlan
from pianissimo.noise.tree import digits_of, largest_digit_sum

EXPECTED = Path(__file__).parent / "expected"
TABLE = (100, 365, 1000, 10_000, 1_000_000)
"""The horizons of the table in the README."""

PRACTICAL = (20, 20_000)
"""The horizons over which the saving of the best base is averaged."""

_RHO = Fraction(1, 2)
"""tau = 1."""

_FEWEST, _DECADES, _PER_DECADE = 10, 5, 16
_OURS: dict[str, Callable[..., NoisePlan]] = {
    "haar": HaarPlan.calibrated,
    "haar + skipping": HaarSkipPlan.calibrated,
    "spline": SplinePlan.calibrated,
}
TREE_COLUMNS = ("base 2", "best base", "scale", "base 2, exact", "best base, exact", "scale, exact")
COLUMNS = ("T", *TREE_COLUMNS, *_OURS, "optimum")
_BASES = {"best base", "best base, exact"}


def paper_scale(horizon: int, base: int) -> float:
    """sqrt(r - 1) L: the paper's standard deviation of a count over tau.

    >>> paper_scale(1000, 2)
    10.0
    """
    return math.sqrt(_paper_square(horizon, base))


def paper_best_base(horizon: int) -> int:
    """The base r from 2 to T with the least (r - 1) L^2, the smallest if there are several.

    >>> [paper_best_base(horizon) for horizon in TABLE]
    [5, 8, 4, 5, 4]
    """
    best, least = 2, _paper_square(horizon, 2)
    for base in range(3, horizon + 1):
        # There are two digits or more in every base up to T.
        if 4 * (base - 1) >= least:
            break
        square = _paper_square(horizon, base)
        if square < least:
            best, least = base, square
    return best


def exact_scale(horizon: int, base: int) -> float:
    """sqrt(L maxS): the largest standard deviation of a count over tau, exactly.

    >>> print(round(exact_scale(1000, 4), 2))
    8.37
    """
    return math.sqrt(len(digits_of(horizon, base)) * largest_digit_sum(horizon, base))


def limit_ratio(base: int) -> float:
    """What sqrt(r - 1) L is over that of base 2 as T grows: sqrt(r - 1) ln 2 / ln r.

    >>> print(round(limit_ratio(5), 3))
    0.861
    """
    return math.sqrt(base - 1) * math.log(2) / math.log(base)


def savings(first: int, last: int) -> tuple[list[float], list[int]]:
    """By which share the best base lies below base 2 at each horizon, by the paper's rule, and that base.

    >>> savings(1000, 1000)
    ([0.1339...], [4])
    """
    bases = [paper_best_base(horizon) for horizon in range(first, last + 1)]
    shares = [1 - paper_scale(first + place, base) / paper_scale(first + place, 2) for place, base in enumerate(bases)]
    return shares, bases


def tree_row(horizon: int) -> dict[str, float]:
    """The trees at one horizon.

    >>> tree_row(1000)
    {'base 2': 10.0, 'best base': 4, 'scale': 8.66..., 'base 2, exact': 9.48..., 'best base, exact': 4, ...}
    """
    base, exact_base = paper_best_base(horizon), best_base(horizon)
    values = (
        paper_scale(horizon, 2),
        base,
        paper_scale(horizon, base),
        exact_scale(horizon, 2),
        exact_base,
        exact_scale(horizon, exact_base),
    )
    return dict(zip(TREE_COLUMNS, values, strict=True))


def row(horizon: int) -> dict[str, float]:
    """All curves at one horizon, in the order of `COLUMNS`.

    >>> print(round(row(1000)["spline"], 2), round(row(1000)["optimum"], 2))
    3.57 2.95
    """
    ours = {name: math.sqrt(make(horizon=horizon, rho=_RHO).variance_profile().max()) for name, make in _OURS.items()}
    return {"T": horizon, **tree_row(horizon), **ours, "optimum": optimum(horizon).max_std}


def horizons() -> list[int]:
    """The horizons that are drawn, equally apart on a logarithmic axis, and those of the table.

    >>> len(horizons())
    81
    """
    drawn = {round(_FEWEST * 10 ** (place / _PER_DECADE)) for place in range(_DECADES * _PER_DECADE + 1)}
    return sorted(drawn | set(TABLE))


def write_rows(rows: Sequence[dict[str, float]], path: Path) -> None:
    """One line for each horizon, to four digits after the point."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for each in rows:
            writer.writerow([each[name] if name == "T" or name in _BASES else f"{each[name]:.4f}" for name in COLUMNS])


def draw(rows: Sequence[dict[str, float]], path: Path) -> None:
    """Left the paper's figure, right what can be had at the same rho."""
    places = np.array([each["T"] for each in rows], dtype=np.int64)
    ours = {name: np.array([each[name] for each in rows]) for name in (*_OURS, "optimum")}
    # Trees are cheap, so that their steps are drawn where they are.
    fine = np.unique(np.geomspace(places[0], places[-1], 1000).round().astype(np.int64))
    trees = [tree_row(horizon) for horizon in fine.tolist()]
    tree = {name: np.array([each[name] for each in trees]) for name in TREE_COLUMNS}
    bases = {base: np.array([paper_scale(horizon, base) for horizon in fine.tolist()]) for base in (3, 5, 10)}
    with drawing.in_style():
        figure = drawing.new_figure((11.0, 4.6))
        figure.subplots_adjust(left=0.055, right=0.875, top=0.8, bottom=0.12, wspace=0.42)
        left, right = figure.subplots(1, 2)
        left_lines = [
            Line("r = 2", fine, tree["base 2"], drawing.INK, width=1.8),
            Line("r = 10", fine, bases[10], drawing.PINK, (0, (5, 1, 1, 1)), 1.0),
            Line("r = 3", fine, bases[3], drawing.ORANGE, (0, (4, 2)), 1.0),
            Line("r = 5", fine, bases[5], drawing.SKY, (0, (1, 1))),
            Line("best r", fine, tree["scale"], drawing.BLUE, width=2.0),
        ]
        right_lines = [
            Line("r = 2, exact", fine, tree["base 2, exact"], drawing.INK, width=1.8),
            Line("best r, exact", fine, tree["scale, exact"], drawing.BLUE, width=1.8),
            Line("haar", places, ours["haar"], drawing.ORANGE, (0, (4, 2))),
            Line("haar + skipping", places, ours["haar + skipping"], drawing.RED, (0, (5, 1, 1, 1))),
            Line("spline", places, ours["spline"], drawing.GREEN, width=2.0),
            Line("optimum", places, ours["optimum"], drawing.SOFT, (0, (1, 1)), 1.8),
        ]
        for axes, lines in ((left, left_lines), (right, right_lines)):
            axes.set_xscale("log")
            drawing.draw_lines(axes, lines, top=22.0)
            axes.set_yticks(range(0, 21, 5))
        across = "number of releases T (log scale)"
        drawing.finish(left, title=r"The paper's bound, $\sqrt{r - 1}\,L$", across=across, upward="noise scale over τ")
        title = "Largest standard deviation, exactly"
        drawing.finish(right, title=title, across=across, upward="standard deviation over τ")
        figure.text(0.02, 0.93, r"Noise of one running count at $\rho = 1/(2\tau^2)$", fontsize=13, fontweight="bold")
        figure.text(
            0.02,
            0.885,
            "Left: Cardoso and Rogers 2022, Figure 1.  Right: the same trees without slack, our plans, "
            "and the least that any such noise can have.",
            color=drawing.SOFT,
        )
        drawing.save(figure, path)


def _paper_square(horizon: int, base: int) -> int:
    return (base - 1) * len(digits_of(horizon, base)) ** 2


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=EXPECTED, help="Where files go.")
def main(out: Path) -> None:
    """Make figure_1.csv and figure_1.png."""
    rows = [row(horizon) for horizon in horizons()]
    write_rows(rows, out / "figure_1.csv")
    draw(rows, out / "figure_1.png")
    for each in rows:
        if each["T"] in TABLE:
            click.echo("  ".join(f"{name} {each[name]:.6g}" for name in COLUMNS))
    shares, bases = savings(*PRACTICAL)
    click.echo(
        f"T = {PRACTICAL[0]} .. {PRACTICAL[1]}: the best base, {min(bases)} to {max(bases)} and mostly "
        f"{max(set(bases), key=bases.count)}, saves {min(shares):.1%} to {max(shares):.1%}, on average "
        f"{sum(shares) / len(shares):.1%}"
    )


if __name__ == "__main__":
    main()
