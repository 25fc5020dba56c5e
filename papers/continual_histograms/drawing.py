"""How the figures look: colors that color-blind people tell apart, names beside the ends of the curves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

# Okabe and Ito's colors; violet replaces yellow, too light for lines.
BLUE, RED, GREEN, PINK, ORANGE, SKY, VIOLET = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5D3A9B"
)  # fmt: skip
INK, SOFT, GRAY, FAINT = "#222222", "#5f5f5f", "#999999", "#b8b8b8"
STYLE: dict[str, Any] = {
    "axes.edgecolor": FAINT,
    "axes.labelcolor": SOFT,
    "font.size": 9,
    "mathtext.default": "regular",
    "text.color": INK,
    "xtick.color": FAINT,
    "xtick.labelcolor": SOFT,
    "ytick.color": FAINT,
    "ytick.labelcolor": SOFT,
}
_DOTS_PER_INCH = 140


@dataclass(frozen=True, slots=True)
class Line:
    """A curve: what stands beside its end, and how it is drawn."""

    name: str
    places: NDArray[np.int64]
    values: NDArray[np.float64]
    color: str
    dashes: Any = "-"
    width: float = 1.4


def new_figure(inches: tuple[float, float]) -> Figure:
    """An empty figure that needs no window."""
    figure = Figure(figsize=inches, dpi=_DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    return figure


def in_style() -> Any:
    """The context in which a figure is drawn and saved."""
    return rc_context(STYLE)


def save(figure: Figure, path: Path) -> None:
    """Write a PNG file without a date, so that the same picture is the same file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Software": None})


def draw_lines(axes: Any, lines: Sequence[Line], *, top: float) -> None:
    """Draw curves from 0 up to `top`, each with its name beside its end."""
    for line in lines:
        axes.plot(line.places, line.values, color=line.color, linestyle=line.dashes, linewidth=line.width)
    axes.set_ylim(0, top)
    axes.set_xlim(lines[0].places[0], lines[0].places[-1])
    ordered = sorted(lines, key=lambda line: -line.values[-1])
    ends = [min(float(line.values[-1]), top) / top for line in ordered]
    for line, end, height in zip(ordered, ends, spread(ends, 0.047), strict=True):
        axes.annotate(
            line.name,
            xy=(1.0, end),
            xytext=(1.045, height),
            xycoords="axes fraction",
            color=line.color,
            fontsize=8,
            fontweight="bold",
            va="center",
            arrowprops={
                "arrowstyle": "-",
                "color": line.color,
                "linewidth": 0.7,
                "shrinkA": 1,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
            annotation_clip=False,
        )


def finish(axes: Any, *, title: str, across: str, upward: str) -> None:
    """Titles, and no more ink than needed."""
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel(across)
    axes.set_ylabel(upward)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.yaxis.set_major_formatter("{x:g}")


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """The heights, in descending order, moved apart so that no two are nearer than `gap` and none is below zero.

    >>> spread([1.0, 0.875, 0.0], 0.25)
    [1.0625, 0.8125, 0.0]
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        # Neighbors that touch become one group around their common middle.
        while len(groups) > 1 and _lowest(groups[-2], gap) - gap < _highest(groups[-1], gap):
            touching = groups.pop()
            groups[-1] += touching
    return [_highest(group, gap) - place * gap for group in groups for place in range(len(group))]


def _highest(group: Sequence[float], gap: float) -> float:
    reach = gap * (len(group) - 1) / 2
    return max(sum(group) / len(group), reach) + reach


def _lowest(group: Sequence[float], gap: float) -> float:
    return _highest(group, gap) - gap * (len(group) - 1)
