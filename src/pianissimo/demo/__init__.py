"""The demo: a durable stream of generated events, shown on a screen and, at its end, as a picture.

In a terminal the screen changes with every tick, else there is a line a tick and the last screen. The picture has the
estimates with their intervals against the truth, known as the data are generated; it needs matplotlib, which
`pip install pianissimo[plot]` brings. Stopped or killed, the same command goes on where it was.
"""

import time
from pathlib import Path
from typing import Any, Self

import polars as pl
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pianissimo.counting import UnknownHistogram
from pianissimo.demo.pharmacy import FLU_DRUG, NEW_DRUG, SHOPS, WINDOW_TICKS, DemoFolder, Record, held
from pianissimo.stream import StreamPlan

TRUTH_NOTE = "The data are generated, so their truth may be shown too; a real stream never shows it."

_SECONDS_TO_WATCH = 6.0
_LONGEST_PAUSE = 0.2
_TICKS_NEW = 3
_LINES_AROUND_DRUGS = 12
_WIDTH_OF_NUMBERS = 68
_BAR = range(8, 25)


class Screen:
    """Shows a record as it grows."""

    def __init__(self, console: Console, *, ticks: int) -> None:
        self._console = console
        self._ticks = ticks
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()  # does nothing if nothing was shown

    def show(self, record: Record) -> None:
        """Show the record's last tick, and leave a person the time to see it."""
        if self._live is None:
            self._console.print(tick_line(record, self._ticks), highlight=False, markup=False, soft_wrap=True)
            if record.tick == self._ticks:
                self._console.print(tick_screen(record, self._ticks, most_drugs=99, width=self._console.width))
            return
        self._live.start()  # does nothing the second time
        most = max(3, self._console.height - _LINES_AROUND_DRUGS)
        self._live.update(tick_screen(record, self._ticks, most, self._console.width), refresh=True)
        time.sleep(min(_LONGEST_PAUSE, _SECONDS_TO_WATCH / self._ticks))


def tick_line(record: Record, ticks: int) -> str:
    """The last tick in one line."""
    first = record.last("drugs").head(2).iter_rows(named=True)
    drugs = ", ".join(f"{row['key']} {row['estimate']:,}" for row in first) or "none yet"
    number = f"tick {record.tick:>{len(str(ticks))}} of {ticks}"
    return (
        f"{number}: purchases {_with_error(record.last('purchases'))}, {_window_name(record)} "
        f"{_with_error(record.last('window_purchases'))}; drugs shown {record.last('drugs').height}: {drugs}; "
        f"top shop {record.last('top_shops')['key'].item(0)}"
    )


def tick_screen(record: Record, ticks: int, most_drugs: int, width: int) -> RenderableType:
    """The last tick: the count, the top list, and at most `most_drugs` drugs, so far and in the window."""
    number = f"Tick {record.tick} of {ticks}"
    head = Text(f"\n{number}", style="bold")
    for name, table in (
        ("purchases so far", record.last("purchases")),
        (f"in the {_window_name(record)}", record.last("window_purchases")),
    ):
        head.append(f"   {name:19} {_with_error(table):>14}", style="not bold cyan")
        head.append(f"   truth {table['truth'].item():,}", style="not bold dim")
        if table is record.last("purchases"):
            head.append("\n" + " " * len(number))
    left = record.last("drugs").height - most_drugs
    foot = f"and {left} more; " if left > 0 else ""
    foot += f"* first shown within the last {_TICKS_NEW} ticks"
    drugs = _drug_table(record, most_drugs, width)
    return Group(head, _top_line(record), Text(), drugs, Text(), Text(foot, style="dim"))


def _drug_table(record: Record, most_drugs: int, width: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    bar = min(max(_BAR), width - _WIDTH_OF_NUMBERS)
    table.add_column("\ndrug", min_width=16)
    for heading in ("so far", _window_name(record)):
        table.add_column(f"{heading}\nestimate", justify="right", min_width=8)
        table.add_column("\n±", justify="right", min_width=4)
        table.add_column("\ntruth", justify="right", min_width=6, style="dim")
    if bar in _BAR:
        table.add_column("")
    seen_before = set(record.all("drugs").filter(pl.col("tick") <= record.tick - _TICKS_NEW)["key"])
    in_window = {row["key"]: row for row in record.last("window_drugs").iter_rows(named=True)}
    drugs = record.last("drugs")
    largest = max([1, *drugs["estimate"].head(1)])
    for row in drugs.head(most_drugs).iter_rows(named=True):
        is_new = record.tick > _TICKS_NEW and row["key"] not in seen_before
        cells: list[RenderableType] = [
            Text(row["key"] + (" *" if is_new else ""), style="green" if is_new else ""),
            *_numbers(row),
            *_numbers(in_window[row["key"]]),
        ]
        if bar in _BAR:
            cells.append(Bar(largest, 0, max(0, row["estimate"]), width=bar, color="green" if is_new else "cyan"))
        table.add_row(*cells)
    return table


def _top_line(record: Record) -> Text:
    shops = record.last("top_shops")
    names = ", ".join(f"{row['key']} {row['estimate']:,}" for row in shops.iter_rows(named=True))
    first = shops.row(0, named=True)
    below = first["estimate"] - first["low"]
    return Text(f"Top {shops.height} of {len(SHOPS)} shops: {names}, each - {below:,} + {_error(first):,}")


def summary(record: Record) -> str:
    """What the demo has shown, in words."""
    intervals, held = record.intervals, record.intervals_that_held
    top = record.last("top_shops")["key"]
    right = len(set(top) & set(record.true_top_shops))
    return (
        f"{held} of the {intervals} released intervals held the truth ({held / intervals:.0%}). "
        f"Drugs shown: {record.last('drugs').height}; labels hidden: {record.hidden_labels:,}. "
        f"{right} of the {len(top)} shops listed are truly among the first {len(top)}."
    )


def _numbers(row: dict[str, Any]) -> tuple[str, str, str]:
    return f"{row['estimate']:,}", f"{_error(row):,}", f"{row['truth']:,}"


def _with_error(table: pl.DataFrame) -> str:
    row = table.row(0, named=True)
    return f"{row['estimate']:,} ± {_error(row):,}"


def _error(row: dict[str, Any]) -> int:
    error: int = row["high"] - row["estimate"]
    return error


def _window_name(record: Record) -> str:
    return "last hour" if record.window_ticks == 1 else f"last {record.window_ticks} hours"


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


def draw_demo(record: Record, folder: DemoFolder) -> bool:
    """Draw the record into the folder, or return False where matplotlib, which is an extra, is not installed."""
    try:
        plot_record(record, folder.plan, folder.picture)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        return False
    folder.written.append(folder.picture)
    return True


def plot_record(record: Record, plan: StreamPlan, path: Path) -> None:
    """Draw the running count, its error, the most bought drugs, the window and the top list into a PNG file."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

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
        # Across in shares of the width, upward in the units of the data.
        beside = axes.get_yaxis_transform()
        axes.text(1.015, height, name, color=colors[name], fontweight="bold", va="center", transform=beside)


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
    axes.xaxis.get_major_locator().set_params(nbins=5, integer=True)
    axes.xaxis.set_major_formatter(_with_commas)


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
        transform=axes.get_yaxis_transform(),
    )


def _with_commas(value: float, _: int) -> str:
    return f"{value:,.0f}"


def _finish(axes: Any, record: Record, title: str) -> None:
    _style(axes, title, grid="y")
    axes.set_xlim(0.5, record.tick + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    axes.yaxis.set_major_formatter(_with_commas)


def _style(axes: Any, title: str, grid: str) -> None:
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)


def _spread(heights: list[float], gap: float) -> list[float]:
    """The heights, in descending order, moved apart so that no two are nearer than `gap`."""
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
