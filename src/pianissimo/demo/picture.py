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

from pianissimo.counting import UnknownHistogram
from pianissimo.demo.pharmacy import FLU_DRUG, NEW_DRUG, SHOPS, WINDOW_TICKS, Record, held
from pianissimo.stream import StreamPlan

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
_INCHES = (10.0, 7.9)
_DOTS_PER_INCH = 140
_MOST_BARS = 60
_MOST_IN_WINDOW = 4
_TICK_LABEL = "tick (one hour each)"
_WITH_COMMAS = FuncFormatter(lambda value, _: f"{value:,.0f}")


def plot_record(record: Record, plan: StreamPlan, path: Path) -> None:
    """Draw the running count, its error, the most bought drugs, the window and the top list into a PNG file."""
    with rc_context(_STYLE):
        figure = Figure(figsize=_INCHES, dpi=_DOTS_PER_INCH)
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(3, 2, height_ratios=(2, 1, 1.9), width_ratios=(1, 1.3), hspace=0.48, wspace=0.17)
        figure.subplots_adjust(left=0.065, right=0.885, top=0.855, bottom=0.065)
        running = figure.add_subplot(grid[0, 0])
        colors = dict(zip(record.last("drugs")["key"].head(len(_COLORS)), _COLORS, strict=False))
        _draw_running_count(running, record)
        _draw_count_errors(figure.add_subplot(grid[1, 0], sharex=running), record)
        _draw_top_shops(figure.add_subplot(grid[2, 0]), record)
        _draw_drugs(figure.add_subplot(grid[:2, 1]), record, plan, colors)
        _draw_window(figure.add_subplot(grid[2, 1]), record, colors)
        promise = f"ε = {float(plan.budget.epsilon):g}, δ = {float(plan.budget.delta):g}".replace("e-0", "e-")
        head = f"One promise for the whole run: {promise} per {plan.protected}, over {plan.horizon} ticks"
        how = (
            f"Colored: released estimates with {plan.coverage:.0%} intervals.  "
            "Dashed: the truth, drawn here only because the data are generated."
        )
        figure.text(0.02, 0.955, head, fontsize=13, fontweight="bold")
        figure.text(0.02, 0.921, how, color=_SOFT)
        figure.savefig(path)


def _draw_running_count(axes: Any, record: Record) -> None:
    table = record.all("purchases")
    _draw_intervals(axes, table, table["estimate"])
    axes.plot(table["tick"], table["truth"], **_DASHES)
    axes.set_ylim(bottom=0)
    _finish(axes, record, "Purchases so far")
    axes.tick_params(labelbottom=False)


def _draw_count_errors(axes: Any, record: Record) -> None:
    table = record.all("purchases")
    _draw_intervals(axes, table, table["estimate"] - table["truth"])
    axes.axhline(0, **_DASHES)
    _finish(axes, record, f"Its error: {held(table).height} of {table.height} intervals hold the truth")
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


def _draw_drugs(axes: Any, record: Record, plan: StreamPlan, colors: dict[str, str]) -> None:
    for name, color in colors.items():
        table = record.all("drugs").filter(pl.col("key") == name)
        _draw_series(axes, table, color)
        first = table.row(0, named=True)
        axes.errorbar(first["tick"], first["estimate"], first["high"] - first["estimate"], fmt="o", color=color)
    axes.set_ylim(bottom=0)
    _draw_threshold(axes, record, plan)
    shown = record.last("drugs").height
    _finish(axes, record, f"Purchases of each drug so far: the first {len(colors)} of {shown} shown")
    _name_series(axes, record.last("drugs").head(len(colors)), colors, gap=0.045)


def _draw_window(axes: Any, record: Record, colors: dict[str, str]) -> None:
    """What the last hours added, for the drugs with a story and the most bought ones."""
    names = [name for name in (FLU_DRUG, NEW_DRUG) if name in colors]
    names += [name for name in colors if name not in names][: _MOST_IN_WINDOW - len(names)]
    tables = record.all("window_drugs").filter(pl.col("key").is_in(names))
    for name in names:
        _draw_series(axes, tables.filter(pl.col("key") == name), colors[name])
    axes.axhline(0, color=_FAINT, linewidth=0.8)
    length = "hour" if record.tick == 1 else f"{min(WINDOW_TICKS, record.tick)} hours"
    _finish(
        axes,
        record,
        f"Of these, in the last {length}: {held(tables).height} of {tables.height} intervals hold the truth",
    )
    axes.set_xlabel(_TICK_LABEL)
    last = record.last("window_drugs").filter(pl.col("key").is_in(names)).sort("estimate", descending=True)
    _name_series(axes, last, colors, gap=0.095)


def _draw_series(axes: Any, table: pl.DataFrame, color: str) -> None:
    axes.fill_between(table["tick"], table["low"], table["high"], color=color, alpha=0.3, linewidth=0)
    axes.plot(table["tick"], table["estimate"], color=color, linewidth=1.5)
    axes.plot(table["tick"], table["truth"], **_DASHES)


def _name_series(axes: Any, last: pl.DataFrame, colors: dict[str, str], gap: float) -> None:
    """Names beside the last estimates, which come in descending order."""
    bottom, top = axes.get_ylim()
    heights = _spread(last["estimate"].to_list(), gap * (top - bottom))
    for name, height in zip(last["key"], heights, strict=True):
        axes.text(1.015, height, name, color=colors[name], fontweight="bold", va="center", transform=_beside(axes))


def _draw_top_shops(axes: Any, record: Record) -> None:
    """The top list of the last tick: estimates with their intervals, and the truth as a dash across."""
    table = record.last("top_shops")
    ranks = list(range(1, table.height + 1))
    width = table["high"] - table["estimate"]
    axes.errorbar(table["estimate"], ranks, xerr=width, fmt="o", elinewidth=1.2, color=_COLORS[0])
    axes.vlines(table["truth"], [rank - 0.28 for rank in ranks], [rank + 0.28 for rank in ranks], **_DASHES)
    right = len(set(table["key"]) & set(record.true_top_shops))
    _style(axes, f"Top {table.height} of {len(SHOPS)} shops: {right} truly belong there", grid="x")
    axes.set_yticks(ranks, [f"{rank}  {name}" for rank, name in zip(ranks, table["key"], strict=True)], ha="left")
    axes.tick_params(axis="y", pad=-4, length=0, labelcolor=_INK)
    axes.set_ylim(table.height + 0.6, 0.4)
    low, high = min(table["low"].to_list()), max(table["high"].to_list())
    axes.set_xlim(low - 0.75 * (high - low), high + 0.05 * (high - low))  # room for the names
    axes.set_xlabel("purchases so far")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.xaxis.set_major_formatter(_WITH_COMMAS)


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
    _style(axes, title, grid="y")
    axes.set_xlim(0.5, record.tick + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.yaxis.set_major_formatter(_WITH_COMMAS)


def _style(axes: Any, title: str, grid: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)


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
