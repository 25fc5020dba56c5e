"""The demo as a picture: estimates with their intervals against the truth, known as the data are generated.

It needs matplotlib, which `pip install pianissimo[plot]` brings.
"""

from pathlib import Path
from typing import Any

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
    "lines.markersize": 4.5,
    "text.color": _INK,
    "xtick.color": _FAINT,
    "xtick.labelcolor": _SOFT,
    "ytick.color": _FAINT,
    "ytick.labelcolor": _SOFT,
}
_INCHES = (10.0, 5.4)
_DOTS_PER_INCH = 140
_MOST_BARS = 60
_TICK_LABEL = "tick (one hour each)"


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
    _draw_intervals(axes, table, table["estimate"])
    axes.plot(table["tick"], table["truth"], **_DASHES)
    axes.set_ylim(bottom=0)
    _finish(axes, record, "Purchases so far")
    axes.tick_params(labelbottom=False)


def _draw_count_errors(axes: Any, record: Record) -> None:
    table = record.purchases
    _draw_intervals(axes, table, table["estimate"] - table["truth"])
    axes.axhline(0, **_DASHES)
    held = table.filter(pl.col("truth").is_between(pl.col("low"), pl.col("high"))).height
    _finish(axes, record, f"Its error: {held} of {table.height} intervals hold the truth")
    axes.set_ylabel("estimate - truth")
    axes.set_xlabel(_TICK_LABEL)


def _draw_intervals(axes: Any, table: pl.DataFrame, middle: pl.Series) -> None:
    """Dots with bars while these can be told apart, else a line with a band."""
    width = table["high"] - table["estimate"]
    if table.height <= _MOST_BARS:
        axes.errorbar(table["tick"], middle, width, fmt="o", markersize=3.5, elinewidth=1.2, color=_COLORS[0])
        return
    axes.fill_between(table["tick"], middle - width, middle + width, color=_COLORS[0], alpha=0.3, linewidth=0)
    axes.plot(table["tick"], middle, color=_COLORS[0], linewidth=1.2)


def _draw_drugs(axes: Any, record: Record, plan: StreamPlan) -> None:
    names = record.last_drugs["key"].head(len(_COLORS)).to_list()
    for name, color in zip(names, _COLORS, strict=False):
        table = record.drugs.filter(pl.col("key") == name)
        axes.fill_between(table["tick"], table["low"], table["high"], color=color, alpha=0.3, linewidth=0)
        axes.plot(table["tick"], table["estimate"], color=color, linewidth=1.5)
        axes.plot(table["tick"], table["truth"], **_DASHES)
        first = table.row(0, named=True)
        axes.errorbar(first["tick"], first["estimate"], first["high"] - first["estimate"], fmt="o", color=color)
    axes.set_ylim(bottom=0)
    _draw_threshold(axes, record, plan)
    shown = record.last_drugs.height
    _finish(axes, record, f"Purchases of each drug so far: the first {len(names)} of {shown} shown")
    axes.set_xlabel(_TICK_LABEL)
    ends = record.last_drugs["estimate"].head(len(_COLORS)).to_list()
    for name, color, height in zip(names, _COLORS, _spread(ends, 0.045 * axes.get_ylim()[1]), strict=False):
        axes.text(1.015, height, name, color=color, fontweight="bold", va="center", transform=_beside(axes))


def _draw_threshold(axes: Any, record: Record, plan: StreamPlan) -> None:
    mechanism = next(each.mechanism for each in plan.queries if each.query.name == "drugs")
    if not isinstance(mechanism, UnknownHistogram):
        return
    heights = [mechanism.threshold(tick) for tick in range(1, record.tick + 1)]
    edges = [tick + 0.5 for tick in range(record.tick + 1)]
    axes.stairs(heights, edges, fill=True, color="#dddddd", zorder=0)
    is_thin = min(heights) < 0.025 * axes.get_ylim()[1]
    axes.text(
        0.98,
        max(heights) if is_thin else min(heights) / 2,
        f"{record.hidden_labels:,} labels stay hidden",
        color=_SOFT,
        fontsize=8,
        ha="right",
        va="bottom" if is_thin else "center",
        transform=_beside(axes),
    )


def _beside(axes: Any) -> Any:
    """Across in shares of the width, upward in the units of the data."""
    return axes.get_yaxis_transform()


def _finish(axes: Any, record: Record, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlim(0.5, record.tick + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


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
