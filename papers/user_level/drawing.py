"""The figure: how the relative error falls along the stream, in the paper's setting and with ticks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from papers.continual_histograms import drawing
from papers.continual_histograms.drawing import BLUE, GRAY, GREEN, INK, ORANGE, RED, SOFT

Profiles = Mapping[str, Mapping[str, NDArray[np.float64]]]

STYLES = {
    "law: 15 normalised weights": ("one item a step,\nAlgorithm 5", RED),
    "law: truncation at 1024": ("one item a step,\ncap fixed at 1024", GRAY),
    "ours: doubling trees, half/half": ("100 ticks, doubling\ntrees, half/half", ORANGE),
    "ours: doubling trees, 20/80": ("100 ticks, doubling\ntrees, 20/80", GREEN),
    "ours: as planned": ("100 ticks,\nas planned", BLUE),
}


def draw(profiles: Profiles, printed: Mapping[str, float], path: Path) -> None:
    """Relative errors against the check-point, one panel a column of the table; dashed: the printed medians."""
    columns = list(printed)
    with drawing.in_style():
        figure = drawing.new_figure((14.0, 5.0))
        axes = figure.subplots(1, len(columns), sharey=True)
        figure.subplots_adjust(left=0.055, right=0.875, top=0.76, bottom=0.115, wspace=0.08)
        for panel, column in zip(axes, columns, strict=True):
            for row, (_, color) in STYLES.items():
                profile = profiles[row][column]
                panel.plot(np.arange(1, len(profile) + 1), profile, color=color, linewidth=1.3)
            panel.axhline(printed[column], color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
            panel.set_yscale("log")
            panel.set_xlim(1, 100)
            drawing.finish(
                panel, title=column, across="check-point", upward="relative error, %" if panel is axes[0] else ""
            )
        axes[-1].text(52, printed[columns[-1]] * 0.82, "- - printed median", color=INK, fontsize=8, va="top")
        _name_ends(axes[-1], profiles, columns[-1])
        head = "Users hidden with everything they do: error along the stream at epsilon = 2"
        figure.text(0.012, 0.93, head, fontsize=13, fontweight="bold")
        how = (
            "Dong, Luo and Yi, Table III, simulated data: 5e7 items of 1e6 users. Mean of the middle 60 % of the runs. "
            "One item a step: computed from the error law;\nticks: the package's mechanisms, replayed over the streams."
        )
        figure.text(0.012, 0.85, how, color=SOFT, linespacing=1.4)
        drawing.save(figure, path)


def _name_ends(panel: Any, profiles: Profiles, column: str) -> None:
    """Each curve's name beside its end, moved apart on the logarithmic scale."""
    low, high = np.log(panel.get_ylim())
    ordered = sorted(STYLES, key=lambda row: -profiles[row][column][-1])
    ends = [float((np.log(profiles[row][column][-1]) - low) / (high - low)) for row in ordered]
    for row, height in zip(ordered, drawing.spread(ends, 0.1), strict=True):
        name, color = STYLES[row]
        panel.text(
            1.03, height, name, color=color, transform=panel.transAxes, fontsize=8, fontweight="bold", va="center"
        )
