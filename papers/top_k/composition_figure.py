"""Figure 1 (appendix A): what k steps of a selection cost as plain DP, over what they cost as bounded range.

For each k and epsilon of one step, i is the largest number with delta_i <= 1e-6 in Lemma A.1, the best composition of
plain DP; the bounds for steps of bounded range are taken at the delta_i that was reached, as the paper does. Above 1
means that bounded range is better. Ours are the bound by concentration (Dong, Durfee and Rogers 2020) and the recursion
over the steps, which some adaptive mechanism attains.

Run `python -m papers.top_k.composition_figure --out DIR`.
"""

import csv
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import click

from papers.continual_histograms import drawing
from papers.continual_histograms.drawing import BLUE, GREEN, INK, RED, SOFT
from pianissimo.loss.bounded_range import epsilon_by_concentration, epsilon_by_recursion
from pianissimo.loss.exact_composition import delta_at, loss_law

EXPECTED = Path(__file__).parent / "expected"
DELTA = 1e-6
STEPS = (5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 125, 150, 175, 200, 250, 300)
EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0)
NAMES = ("Lemma 4.4, as printed", "by concentration", "by recursion")
_STYLES = dict(zip(NAMES, (RED, BLUE, GREEN), strict=True))


def plain_point(steps: int, epsilon: float) -> tuple[float, float]:
    """Lemma A.1: the least (k - 2i) epsilon with delta_i <= 1e-6, and that delta_i.

    >>> total, delta = plain_point(100, 0.1)
    >>> round(total, 3), delta < 1e-6
    (4.8, True)
    """
    law = loss_law((Fraction(epsilon),) * steps)
    best = (steps * epsilon, 0.0)
    for fewer in range(1, steps // 2 + 1):
        total = (steps - 2 * fewer) * epsilon
        reached = delta_at(*law, total)
        if reached > DELTA:
            break
        best = (total, reached)
    return best


def as_printed(steps: int, epsilon: float, delta: float) -> float:
    """Lemma 4.4.

    >>> round(as_printed(100, 0.1, 1e-6), 3)
    3.128
    """
    log = -math.log(delta) if delta else math.inf
    plain = steps * epsilon * math.tanh(epsilon / 2) + epsilon * math.sqrt(2 * steps * log)
    ranged = steps * epsilon**2 / 2 + epsilon * math.sqrt(steps * log / 2)
    return min(steps * epsilon, plain, ranged)


def ratios(steps: int, epsilon: float) -> dict[str, float]:
    """For each bound the epsilon of plain DP over it, at the delta that plain DP reached; 1 where nothing was gained.

    >>> [round(each, 2) for each in ratios(100, 0.1).values()]
    [1.52, 1.73, 2.11]
    """
    total, delta = plain_point(steps, epsilon)
    if not delta:
        return dict.fromkeys(NAMES, 1.0)
    width = Fraction(epsilon)
    bounds = (
        as_printed(steps, epsilon, delta),
        epsilon_by_concentration([(steps, width)], delta),
        epsilon_by_recursion(steps, width, delta),
    )
    return {name: total / bound for name, bound in zip(NAMES, bounds, strict=True)}


def rows_of(steps: Sequence[int], epsilons: Sequence[float]) -> list[dict[str, float]]:
    """All points of the figure."""
    return [{"epsilon": epsilon, "k": k, **ratios(k, epsilon)} for epsilon in epsilons for k in steps]


def write_rows(rows: Sequence[dict[str, float]], path: Path) -> None:
    """One line a point."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([f"{value:.4g}" for value in row.values()] for row in rows)


def draw(rows: Sequence[dict[str, float]], path: Path) -> None:
    """A panel for each epsilon of one step."""
    epsilons = sorted({row["epsilon"] for row in rows})
    with drawing.in_style():
        figure = drawing.new_figure((13.0, 4.2))
        panels = figure.subplots(1, len(epsilons), sharey=True, squeeze=False)[0]
        figure.subplots_adjust(left=0.055, right=0.985, top=0.73, bottom=0.13, wspace=0.08)
        for panel, epsilon in zip(panels, epsilons, strict=True):
            own = [row for row in rows if row["epsilon"] == epsilon]
            for name, color in _STYLES.items():
                panel.plot([row["k"] for row in own], [row[name] for row in own], color=color, linewidth=1.5)
            panel.axhline(1.0, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
            upward = "plain DP over bounded range" if panel is panels[0] else ""
            drawing.finish(panel, title=f"epsilon = {epsilon:g} a step", across="steps k", upward=upward)
        for place, (name, color) in enumerate(_STYLES.items()):
            panels[-1].text(
                0.3, 0.34 - 0.08 * place, name, color=color, transform=panels[-1].transAxes, fontweight="bold"
            )
        head = "What k steps of a selection cost, by two notions of privacy"
        figure.text(0.012, 0.92, head, fontsize=13, fontweight="bold")
        how = (
            "Durfee and Rogers, Figure 1: the best composition of plain DP (Lemma A.1, delta at most 1e-6) over bounds "
            "for steps of bounded range\nat the same delta. Above the dashed line bounded range is better."
        )
        figure.text(0.012, 0.825, how, color=SOFT, linespacing=1.4)
        drawing.save(figure, path)


@click.command()
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=EXPECTED, help="Where files go.")
@click.option("--most", type=click.IntRange(min=5), default=STEPS[-1], help="The most steps.")
def main(out: Path, most: int) -> None:
    """Make composition_figure.csv and composition_figure.png."""
    rows = rows_of([k for k in STEPS if k <= most], EPSILONS)
    write_rows(rows, out / "composition_figure.csv")
    draw(rows, out / "composition_figure.png")
    best = max(row[NAMES[0]] for row in rows)
    click.echo(f"largest ratio as printed {best:.2f}, by recursion {max(row[NAMES[2]] for row in rows):.2f}")


if __name__ == "__main__":
    main()
