"""Figure 3: the top item of a stream of Zipf's law, by the mechanisms of the paper and by ours.

d = 100 items, one item an event, one event a tick, T = 1000; shown is the mean over runs of |published count of the
top item - largest true count| at every tick. Every curve has rho = 1 / (2 tau^2) for events of any number of items:
KnownBase with tau sqrt(d), MetaAlgo with tau sqrt(2), sparseGumb with tau sqrt(6), which is what Theorem 4 asks, or
with 1.5 tau, which is what our correction of its ledger asks. The paper does not say which tau, base, exponent,
numbers of switches and eta it took; here tau = 1, base 4, exponent 1.

Run `python -m papers.continual_histograms.figure_3 --runs 300 --out DIR`; a thousand runs, as in the paper, take a
minute.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from papers.continual_histograms import drawing
from papers.continual_histograms.drawing import Line
from papers.continual_histograms.simulation import (
    Errors,
    Streams,
    TopMechanism,
    seeded_noise,
    top_errors,
    zipf_streams,
    zipf_weights,
)
from pianissimo.counting import KnownHistogram, MetaHistogram
from pianissimo.labels import Domain
from pianissimo.noise import HaarSkipPlan, SplinePlan, TreePlan
from pianissimo.noise.plan import NoisePlan
from pianissimo.selection import KnownGumb, SparseGumbel

EXPECTED = Path(__file__).parent / "expected"
ITEMS, HORIZON, EXPONENT, BASE = 100, 1000, 1.0, 4
RHO = Fraction(1, 2)
"""1 / (2 tau^2) at tau = 1."""

TABLE = (100, 500, 1000)
"""The ticks of the table in the README."""

SEED = 2022
"""Of the committed files."""

_LEVELS = 5
"""Base-4 digits of 1000."""

_WINDOW = np.full(16, 1 / 16)
"""Two base-4 digits: what a mean over this many ticks smooths away."""

_PAPER_UNITS, _OUR_UNITS = Fraction(3), Fraction(9, 8)
"""sparseGumb costs (k + 2) / tau^2 by Theorem 4, and k / tau^2 + 1 / (8 tau^2) by our correction; k = 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A mechanism of the figure."""

    name: str
    """In tables and files."""

    label: str
    """In the figure."""

    mechanism: TopMechanism
    """With noise for what the ledger of this curve says."""

    guess: tuple[int, int, int]
    """Mean errors at the ticks of `TABLE` in an earlier simulation of 300 runs: one with code of its own for the curves
    of the paper and for our ledger over trees, else a pilot of this one under another seed."""

    paper: bool
    """Whether the paper has it (its settings are ours), with its own ledger."""

    color: str
    dashes: Any = "-"


def curves() -> list[Curve]:
    """All curves, those of the paper first.

    >>> [curve.name for curve in curves()][:2]
    ['KnownBase', 'MetaAlgo']
    """
    return [*_paper_curves(), *_our_curves()]


def paper_rho(mechanism: TopMechanism) -> Fraction:
    """What the paper books for a mechanism of its own: for sparseGumb (k + 2) / (k + 1/8) times what it costs.

    >>> [round(float(paper_rho(curve.mechanism)), 3) for curve in curves()[:3]]
    [0.5, 0.5, 0.5]
    """
    rho = mechanism.guarantee.loss.as_booked().rho
    return rho * _PAPER_UNITS / _OUR_UNITS if isinstance(mechanism, SparseGumbel) else rho


def simulate(curve: Curve, streams: Streams, seed: int, ticks: Sequence[int]) -> Errors:
    """The errors of a curve; different curves have independent noise over the same streams."""
    return top_errors(curve.mechanism, streams, seeded_noise(seed).at(curve.name), ticks)


def make_streams(runs: int, seed: int) -> Streams:
    """The streams of the figure."""
    return zipf_streams(runs=runs, ticks=HORIZON, labels=ITEMS, exponent=EXPONENT, seed=seed)


def _tree(rho: Fraction) -> NoisePlan:
    return TreePlan.calibrated(horizon=HORIZON, rho=rho, base=BASE)


def _spline(rho: Fraction) -> NoisePlan:
    return SplinePlan.calibrated(horizon=HORIZON, rho=rho)


def _domain() -> Domain:
    return Domain([f"{item:02d}" for item in range(ITEMS)])


def _known(plan: NoisePlan, most_items: int) -> KnownHistogram:
    return KnownHistogram(plan=plan, domain=_domain(), max_keys_per_event=most_items)


def _sparse(switches: int, eta: int, rho: Fraction, make_plan: Callable[[Fraction], NoisePlan] = _tree) -> SparseGumbel:
    return SparseGumbel.calibrated(domain=_domain(), k=1, switches=switches, eta=eta, rho=rho, make_plan=make_plan)


def _paper_curves() -> Iterator[Curve]:
    one_shot = KnownGumb.calibrated(domain=_domain(), k=1, rho=RHO / _LEVELS)
    yield Curve(
        name="KnownBase",
        label="KnownBase",
        mechanism=_known(_tree(RHO / ITEMS), ITEMS),
        guess=(92, 73, 43),
        paper=True,
        color=drawing.GRAY,
    )
    yield Curve(
        name="MetaAlgo",
        label="MetaAlgo",
        mechanism=MetaHistogram(base=BASE, horizon=HORIZON, answer=one_shot),
        guess=(7, 15, 15),
        paper=True,
        color=drawing.INK,
    )
    settings: list[tuple[int, int, tuple[int, int, int], str, Any]] = [
        (1, 0, (21, 91, 182), drawing.RED, "-"),
        (1, 100, (17, 35, 57), drawing.ORANGE, "-"),
        (2, 100, (20, 69, 129), drawing.PINK, "-"),
        (2, 150, (21, 30, 24), drawing.BLUE, (0, (4, 1))),
        (5, 200, (22, 35, 35), drawing.SKY, (0, (4, 1))),
        (10, 300, (30, 44, 50), drawing.GREEN, (0, (4, 1))),
    ]
    for switches, eta, guess, color, dashes in settings:
        yield Curve(
            name=f"sparseGumb s={switches} eta={eta}",
            label=f"sparse s={switches} η={eta}",
            mechanism=_sparse(switches, eta, RHO * _OUR_UNITS / _PAPER_UNITS),
            guess=guess,
            paper=True,
            color=color,
            dashes=dashes,
        )


def _our_curves() -> Iterator[Curve]:
    settings: list[tuple[int, tuple[int, int, int], str]] = [
        (1, (19, 19, 12), drawing.ORANGE),
        (2, (17, 16, 15), drawing.PINK),
    ]
    for switches, guess, color in settings:
        yield Curve(
            name=f"sparseGumb s={switches} eta=100, our ledger",
            label=f"sparse s={switches} η=100",
            mechanism=_sparse(switches, 100, RHO),
            guess=guess,
            paper=False,
            color=color,
        )
    yield Curve(
        name="sparseGumb s=1 eta=80, our ledger, spline",
        label="sparse s=1 η=80, spline",
        mechanism=_sparse(1, 80, RHO, _spline),
        guess=(19, 6, 6),
        paper=False,
        color=drawing.GREEN,
    )
    yield Curve(
        name="known histogram, spline",
        label="known, spline",
        mechanism=_known(_spline(RHO / ITEMS), ITEMS),
        guess=(69, 20, 29),
        paper=False,
        color=drawing.BLUE,
        dashes=(0, (4, 1)),
    )
    yield Curve(
        name="known histogram, haar + skipping",
        label="known, haar + skipping",
        mechanism=_known(HaarSkipPlan.calibrated(horizon=HORIZON, rho=RHO / ITEMS), ITEMS),
        guess=(62, 25, 22),
        paper=False,
        color=drawing.RED,
        dashes=(0, (4, 1)),
    )
    yield Curve(
        name="known histogram, spline, one item an event",
        label="known, one item an event",
        mechanism=_known(_spline(RHO), 1),
        guess=(3, 3, 3),
        paper=False,
        color=drawing.VIOLET,
        dashes=(0, (1, 1)),
    )


def write_means(means: dict[str, NDArray[np.float64]], path: Path) -> None:
    """One line for each tick, to one digit after the point."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["tick", *means])
        for tick, values in enumerate(zip(*means.values(), strict=True), start=1):
            writer.writerow([tick, *(f"{value:.1f}" for value in values)])


def draw(means: dict[str, NDArray[np.float64]], runs: int, path: Path) -> None:
    """The law of the stream, the paper's curves, and ours."""
    every = curves()

    def show(axes: Any, shown: Sequence[Curve], top: float) -> None:
        # Digits of the tick make the trees' noise jump; the bold line is a mean over neighboring ticks.
        ticks = np.arange(1, HORIZON + 1)
        for curve in shown:
            axes.plot(ticks, means[curve.name], color=curve.color, linewidth=0.5, alpha=0.35)
        middles = np.convolve(ticks, _WINDOW, "valid").round().astype(np.int64)
        smooth = {curve.name: np.convolve(means[curve.name], _WINDOW, "valid") for curve in shown}
        drawing.draw_lines(
            axes,
            [Line(each.label, middles, smooth[each.name], each.color, each.dashes, 1.8) for each in shown],
            top=top,
        )
        axes.set_xlim(0, HORIZON)

    with drawing.in_style():
        figure = drawing.new_figure((14.0, 5.4))
        grid = figure.add_gridspec(1, 5, width_ratios=(0.5, 0.19, 1, 0.47, 1), wspace=0)
        figure.subplots_adjust(left=0.05, right=0.845, top=0.79, bottom=0.1)
        law, paper, ours = (figure.add_subplot(grid[0, place]) for place in (0, 2, 4))
        law.loglog(range(1, ITEMS + 1), zipf_weights(ITEMS, EXPONENT), ".", color=drawing.INK, markersize=4)
        show(paper, [curve for curve in every if curve.paper], 200.0)
        show(ours, [curve for curve in every if not curve.paper or curve.label in ("KnownBase", "MetaAlgo")], 140.0)
        drawing.finish(law, title="The stream: Zipf's law", across="item, by rank", upward="chance of an event")
        upward = "|published count of the top item - true maximum|"
        drawing.finish(paper, title="With the paper's ledger", across="tick", upward=upward)
        drawing.finish(ours, title=r"With our ledger and plans, same $\rho$", across="tick", upward="")
        head = f"Which item leads, and with how many: mean error of {runs:,} runs at $\\rho = 1/2$"
        figure.text(0.012, 0.94, head, fontsize=13, fontweight="bold")
        how = (
            "Left and middle: Cardoso and Rogers 2022, Figure 3, at settings of ours. Thin: every tick; bold: mean of "
            "16 ticks; sparse: sparseGumb.\nAll curves protect events of any number of items, but for the dotted one. "
            "The scale on the right is another one."
        )
        figure.text(0.012, 0.875, how, color=drawing.SOFT, linespacing=1.4)
        drawing.save(figure, path)


@click.command()
@click.option("--runs", type=click.IntRange(min=2), default=1000, help="How many streams; the paper has 1000.")
@click.option("--seed", type=int, default=SEED, help="Of streams and noise.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), default=EXPECTED, help="Where files go.")
def main(runs: int, seed: int, out: Path) -> None:
    """Make figure_3.csv and figure_3.png, and show the table with standard errors."""
    streams = make_streams(runs, seed)
    means = {}
    for curve in curves():
        errors = simulate(curve, streams, seed, range(1, HORIZON + 1))
        means[curve.name] = errors.mean(axis=0)
        cells = [errors[:, tick - 1] for tick in TABLE]
        shown = "  ".join(f"{cell.mean():6.1f} ± {cell.std() / runs**0.5:4.1f}" for cell in cells)
        click.echo(f"{curve.name:45}{shown}")
    write_means(means, out / "figure_3.csv")
    draw(means, runs, out / "figure_3.png")


if __name__ == "__main__":
    main()
