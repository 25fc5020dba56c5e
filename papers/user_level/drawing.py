"""The figures: how errors change along the stream, in the paper's setting and with ticks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from papers.continual_histograms import drawing
from papers.continual_histograms.drawing import BLUE, GRAY, GREEN, INK, ORANGE, PINK, RED, SKY, SOFT
from papers.user_level.sheet import COMPOSED, FIFTH, HALVES, NORMALISED, PLANNED, RANDOM, Profile, Sheet

Profiles = Mapping[str, Mapping[str, Profile]]

FIXED = "fixed"
STYLES = {
    COMPOSED: ("advanced composition,\none item a step", PINK),
    RANDOM: ("a random cap,\none item a step", SKY),
    FIXED: ("a cap above everybody,\none item a step", GRAY),
    NORMALISED: ("Algorithm 5,\none item a step", RED),
    HALVES: ("ticks, doubling trees,\nhalf/half", ORANGE),
    FIFTH: ("ticks, doubling trees,\n20/80", GREEN),
    PLANNED: ("ticks, as planned", BLUE),
}
"""For each row its name and color; that of a fixed cap is named otherwise in each table."""

_ACROSS = 3


@dataclass(frozen=True, slots=True)
class Panel:
    """Curves along the stream, by row, over millions of items."""

    title: str
    places: NDArray[np.float64]
    curves: Mapping[str, NDArray[np.float64]]
    truth: NDArray[np.float64] | None = None
    level: float | None = None
    """Something that is printed, as a dashed line."""


def draw(sheet: Sheet, profiles: Profiles, path: Path) -> None:
    """Relative errors against the check-point, one panel a column of the table; dashed: the printed medians."""
    panels = []
    for column, pairs in zip(sheet.columns, zip(*sheet.printed.values(), strict=True), strict=True):
        curves = {_style_of(row, sheet.fixed): own[column.name] for row, own in profiles.items()}
        places = np.arange(1, column.ticks + 1, dtype=np.float64)
        panels.append(Panel(column.name, places, curves, level=pairs[0][0]))
    head = f"Users hidden with everything they do: error along the stream at epsilon = 2, {sheet.title}"
    how = (
        "Mean of the middle 60 % of the runs, in percent. One item a step: from error laws. "
        "Ticks: the package's mechanisms.\nDashed: the median that is printed for the paper's mechanism."
    )
    draw_panels(panels, head, how, ("check-point", "relative error, %"), path, shared=False)


def draw_panels(
    panels: Sequence[Panel], head: str, how: str, labels: tuple[str, str], path: Path, *, shared: Literal["row", False]
) -> None:
    """Three panels across, the names of the curves beside them."""
    down = -(-len(panels) // _ACROSS)
    shown = {row for panel in panels for row in panel.curves if row in STYLES}
    with drawing.in_style():
        figure = drawing.new_figure((13.0, 1.45 + 2.7 * down))
        tall = 1.45 + 2.7 * down
        axes = figure.subplots(down, _ACROSS, squeeze=False, sharey=shared)
        figure.subplots_adjust(
            left=0.06, right=0.83, top=1 - 1.2 / tall, bottom=0.5 / tall, wspace=0.08 if shared else 0.22, hspace=0.42
        )
        for place, (axis, panel) in enumerate(zip(axes.flat, panels, strict=False)):
            _draw_panel(axis, panel)
            drawing.finish(
                axis,
                title=panel.title,
                across=labels[0] if place >= len(panels) - _ACROSS else "",
                upward=labels[1] if place % _ACROSS == 0 else "",
            )
            axis.yaxis.set_major_formatter(lambda height, _: _short(height))
        _name(figure, [row for row in STYLES if row in shown], tall, truth=any(p.truth is not None for p in panels))
        figure.text(0.012, 1 - 0.3 / tall, head, fontsize=13, fontweight="bold")
        figure.text(0.012, 1 - 0.72 / tall, how, color=SOFT, linespacing=1.4)
        drawing.save(figure, path)


def _draw_panel(axis: Any, panel: Panel) -> None:
    for row, curve in panel.curves.items():
        if row in STYLES:
            axis.plot(panel.places, curve, color=STYLES[row][1], linewidth=1.3)
    if panel.truth is not None:
        axis.plot(panel.places, panel.truth, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
    if panel.level is not None:
        axis.axhline(panel.level, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
    # The errors of a maximum are zero at most check-points, which a logarithmic scale does not have.
    if all(curve.all() for curve in panel.curves.values()):
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xlim(panel.places[0], panel.places[-1])


def _name(figure: Any, rows: Sequence[str], tall: float, *, truth: bool) -> None:
    for place, row in enumerate(rows):
        name, color = STYLES[row]
        top = 1 - (1.3 + 0.45 * place) / tall
        figure.text(0.845, top, name, color=color, fontsize=8.5, fontweight="bold", va="top", linespacing=1.1)
    told = "- - the true number" if truth else "- - printed median"
    figure.text(0.845, 1 - (1.3 + 0.45 * len(rows)) / tall, told, color=INK, fontsize=8.5, va="top")


def _short(number: float) -> str:
    """Thousands and millions in a letter."""
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def _style_of(row: str, fixed: str) -> str:
    return FIXED if row == fixed else row
