"""The demo as a picture: estimates with their intervals against the truth, known as the data are generated.

It needs matplotlib, which `pip install pianissimo[plot]` brings.
"""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pianissimo.demo.record import Record
from pianissimo.histograms import UnknownHistogram
from pianissimo.planner import StreamPlan

# Okabe and Ito's colors, which color-blind people tell apart; violet replaces yellow, too light for lines.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5D3A9B")
_INK, _SOFT, _FAINT = "#222222", "#5f5f5f", "#b8b8b8"
_DASHES = {"color": _INK, "linewidth": 0.9, "linestyle": (0, (4, 2))}
_STYLE = {
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _SOFT,
    "font.size": 9,
    "text.color": _INK,
    "xtick.color": _FAINT,
    "xtick.labelcolor": _SOFT,
    "ytick.color": _FAINT,
    "ytick.labelcolor": _SOFT,
}
_INCHES = (10.0, 5.4)
_DOTS_PER_INCH = 140


def plot_record(record: Record, plan: StreamPlan, path: Path) -> None:
    """Draw the running count, its error, and the most bought drugs over the ticks, into a PNG file."""
    with rc_context(_STYLE):
        figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH)
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(2, 2, height_ratios=(2, 1), width_ratios=(1, 1.3), hspace=0.32, wspace=0.17)
        figure.subplots_adjust(left=0.065, right=0.885, top=0.8, bottom=0.09)
        running = figure.add_subplot(grid[0, 0])
        _draw_running_count(running, record)
        _draw_count_errors(figure.add_subplot(grid[1, 0], sharex=running), record)
        _draw_drugs(figure.add_subplot(grid[:, 1]), record, plan)
        promise = f"ε = {float(plan.budget.epsilon):g}, δ = {float(plan.budget.delta):g}".replace("e-0", "e-")
        head = f"One promise for the whole run: {promise} per {plan.unit.value}, over {plan.horizon} ticks"
        how = (
            f"Colored: released estimates with {plan.coverage:.0%} intervals.  "
            "Dashed: the truth, drawn here only because the data are generated."
        )
        figure.text(0.02, 0.938, head, fontsize=13, fontweight="bold")
        figure.text(0.02, 0.893, how, color=_SOFT)
        figure.savefig(path)


def _draw_running_count(axes: Any, record: Record) -> None:
    table = record.purchases
    axes.plot(table["tick"], table["truth"], **_DASHES)
    axes.errorbar(
        table["tick"],
        table["estimate"],
        _reach(table),
        fmt="o",
        markersize=4,
        elinewidth=1.2,
        color=_COLORS[0],
    )
    axes.set_ylim(bottom=0)
    _finish(axes, "Purchases so far")
    axes.tick_params(labelbottom=False)


def _draw_count_errors(axes: Any, record: Record) -> None:
    table = record.purchases
    away = table["estimate"] - table["truth"]
    axes.axhline(0, **_DASHES)
    axes.errorbar(table["tick"], away, _reach(table), fmt="o", markersize=3, elinewidth=1.2, color=_COLORS[0])
    held = table.filter(pl.col("truth").is_between(pl.col("low"), pl.col("high"))).height
    _finish(axes, f"Its error: {held} of {table.height} intervals hold the truth")
    axes.set_ylabel("estimate - truth")
    axes.set_xlabel("tick (one hour each)")


def _draw_drugs(axes: Any, record: Record, plan: StreamPlan) -> None:
    names = record.last_drugs["key"].head(len(_COLORS)).to_list()
    ends = []
    for name, color in zip(names, _COLORS, strict=False):
        table = record.drugs.filter(pl.col("key") == name)
        axes.fill_between(table["tick"], table["low"], table["high"], color=color, alpha=0.3, linewidth=0)
        axes.plot(table["tick"], table["estimate"], color=color, linewidth=1.5)
        axes.plot(table["tick"], table["truth"], **_DASHES)
        axes.plot(table["tick"][0], table["estimate"][0], color=color, marker="o", markersize=5)
        ends.append(float(table["estimate"][-1]))
    _draw_threshold(axes, record, plan)
    axes.set_ylim(bottom=0)
    _finish(axes, f"Purchases of each drug so far: the first {len(names)} of {record.last_drugs.height} shown")
    axes.set_xlabel("tick (one hour each)")
    for name, color, height in zip(names, _COLORS, _spread(ends, 0.045 * axes.get_ylim()[1]), strict=False):
        axes.annotate(
            name,
            (1.02, height),
            xycoords=axes.get_yaxis_transform(),
            color=color,
            fontweight="bold",
            verticalalignment="center",
            annotation_clip=False,
        )


def _draw_threshold(axes: Any, record: Record, plan: StreamPlan) -> None:
    mechanism = next(each.mechanism for each in plan.queries if each.query.name == "drugs")
    if not isinstance(mechanism, UnknownHistogram):
        return
    ticks = np.arange(1, record.tick + 1)
    heights = [mechanism.threshold(int(tick)) for tick in ticks]
    axes.fill_between(ticks, 0, heights, step="mid", color="#dddddd", linewidth=0, zorder=0)
    axes.annotate(
        f"too few to be shown: {record.hidden_labels:,} labels stay in here",
        (0.94, min(heights) / 2),
        xycoords=axes.get_yaxis_transform(),
        color=_SOFT,
        fontsize=8,
        horizontalalignment="right",
        verticalalignment="center",
    )


def _finish(axes: Any, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _reach(table: pl.DataFrame) -> np.ndarray[Any, Any]:
    return np.array([table["estimate"] - table["low"], table["high"] - table["estimate"]])


def _spread(heights: list[float], gap: float) -> list[float]:
    """The heights, in descending order, moved apart so that no two are nearer than `gap`.

    >>> _spread([10.0, 9.0, 3.0], 2.0)
    [10.5, 8.5, 3.0]
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        # Neighbors that touch become one group around their common middle.
        while len(groups) > 1 and _bounds(groups[-2], gap)[0] < _bounds(groups[-1], gap)[1]:
            touching = groups.pop()
            groups[-1] += touching
    return [_bounds(group, gap)[1] - gap / 2 - place * gap for group in groups for place in range(len(group))]


def _bounds(group: list[float], gap: float) -> tuple[float, float]:
    middle = sum(group) / len(group)
    return middle - gap * len(group) / 2, middle + gap * len(group) / 2
