"""Pictures of plans, releases and live streams: what was released, with its error bars, and nothing else.

They need matplotlib, which `pip install pianissimo[plot]` brings.
"""

import io
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from pianissimo.errors import ParameterError

if TYPE_CHECKING:
    from pianissimo.stream.release import StreamRelease
    from pianissimo.stream.stream_plan import StreamPlan

# Okabe and Ito's colors, which color-blind people tell apart.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_SOFT, _FAINT = "#5f5f5f", "#dddddd"
_MOST_LABELS = 20
_MOST_TICKS = 60
_INCHES_WIDE = 7.0
_INCHES_A_ROW = 0.28
_LEAST_INCHES = 1.3
_LONGEST_LABEL = 32


def plot_release(release: "StreamRelease") -> Any:
    """A panel a query: its largest labels, or its one number, with error bars."""
    tables = {name: table for name, table in release.items() if table.height}
    if not tables:
        raise ParameterError("a release must have rows to be drawn, got none: no label has reached its threshold yet")
    rows = [min(table.height, _MOST_LABELS) for table in tables.values()]
    figure, panels = _figure([max(_LEAST_INCHES, 0.8 + _INCHES_A_ROW * each) for each in rows])
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        _draw_table(axes, name, table)
    told = f"Estimates with their intervals. {_told_bars(release, tables.values())}"
    figure.supxlabel(told + _told_empty(release, tables), fontsize=8, color=_SOFT)
    figure.suptitle(f"Tick {release.tick}{_when(release)}", x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def plot_plan(plan: "StreamPlan") -> Any:
    """The error to expect of each query, typical and at worst, and from when on its labels are shown."""
    told = plan.to_dict()["queries"]
    figure, (axes,) = _figure([max(_LEAST_INCHES + 0.5, 1.2 + 0.5 * len(told))])
    for place, query in enumerate(told):
        error, threshold = query["expected_error"], query["threshold"]
        axes.barh(place, error["typical"], height=0.5, color=_COLORS[0], label="" if place else "typical error")
        axes.plot([error["typical"], error["largest"]], [place, place], color=_COLORS[1], linewidth=2)
        axes.plot(error["largest"], place, "|", color=_COLORS[1], markersize=12, label="" if place else "at worst")
        if threshold is not None:
            axes.plot(threshold["least"], place, "D", color=_COLORS[2], markersize=6, label="labels are shown from")
    axes.set_yticks(range(len(told)), [_query_label(query) for query in told])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel(f"half the width of a {plan.coverage:.0%} error bar, in the units of the query", color=_SOFT)
    unique = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    axes.legend(unique.values(), unique.keys(), frameon=False, fontsize=8)
    title = f"{plan.name}: epsilon {plan.price.epsilon:.3g}, delta {plan.price.delta:.2g}, hides one {plan.protected}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def plot_live(last: "StreamRelease", between: Callable[[int, int], "StreamRelease"]) -> Any:
    """Totals over the last ticks, with error bands, of queries that tell their past; the others as they are now."""
    ticks = range(max(1, last.tick - _MOST_TICKS + 1), last.tick + 1)
    series = _series(ticks, between)
    others = {name: table for name, table in last.items() if name not in series and table.height}
    if not (series or others):
        raise ParameterError("a live stream must have released rows to be drawn, got none yet")
    heights = [2.4] * len(series) + [
        max(_LEAST_INCHES, 0.8 + _INCHES_A_ROW * min(table.height, _MOST_LABELS)) for table in others.values()
    ]
    figure, panels = _figure(heights)
    for axes, (name, table) in zip(panels, series.items(), strict=False):
        _draw_series(axes, name, table)
    for axes, (name, table) in zip(panels[len(series) :], others.items(), strict=True):
        _draw_table(axes, name, table)
    shown = {**others, **series}
    told = f"Bands and bars are intervals. {_told_bars(last, shown.values())}"
    figure.supxlabel(told + _told_empty(last, shown), fontsize=8, color=_SOFT)
    figure.suptitle(f"Up to tick {last.tick}{_when(last)}", x=0.01, ha="left", fontsize=11, fontweight="bold")
    return figure


def _told_bars(release: "StreamRelease", tables: Iterable[pl.DataFrame]) -> str:
    """What intervals mean, in a line; and that some have an end that nothing bounds."""
    from pianissimo.stream.shown.legends import share_text

    is_open = any(table["high"].null_count() or table["low"].null_count() for table in tables)
    ends = "; open ends: what the cap cuts off is missing" if is_open else ""
    return f"{share_text(release.coverage)} hold the truth{ends}."


def _told_empty(release: "StreamRelease", drawn: Iterable[str]) -> str:
    """Which queries have no panel, on a line of its own: no label reached its threshold, or nothing was reported."""
    empty = [_short(name) for name, table in release.items() if not table.height and name not in set(drawn)]
    return f"\nNot shown, as nothing is above its threshold: {', '.join(empty)}." if empty else ""


def _query_label(query: dict[str, Any]) -> str:
    unit = query.get("error_unit")
    return _short(query["name"]) + (f"\n({unit})" if unit else "")


def _series(ticks: Sequence[int], between: Callable[[int, int], "StreamRelease"]) -> dict[str, pl.DataFrame]:
    """For each query that answers intervals, what it said of all ticks up to each of these."""
    found: dict[str, list[pl.DataFrame]] = {}
    for tick in ticks:
        try:
            tables = between(0, tick).tables
        except ParameterError:  # a schedule, or a past that is not kept
            continue
        for name, table in tables.items():
            found.setdefault(name, []).append(table.with_columns(tick=pl.lit(tick)))
    told = {name: pl.concat(parts, how="diagonal_relaxed") for name, parts in found.items()}
    return {name: table for name, table in told.items() if table.height}


def _figure(heights: Sequence[float]) -> tuple[Any, list[Any]]:
    """A figure with a panel under the other; drawn by itself, whatever backend there is."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise ParameterError(
            "matplotlib must be installed to draw, got none; pip install pianissimo[plot]"
        ) from missing
    figure: Any = Figure(figsize=(_INCHES_WIDE, sum(heights) + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure._repr_png_ = lambda: _png(figure)  # so that a notebook shows it without any setting
    grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    panels = [figure.add_subplot(grid[place]) for place in range(len(heights))]
    for axes in panels:
        axes.grid(color=_FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8, colors=_SOFT)
    return figure, panels


def _png(figure: Any) -> bytes:
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return written.getvalue()


def _draw_table(axes: Any, name: str, table: pl.DataFrame) -> None:
    shown = table.sort("estimate", descending=True, nulls_last=True).head(_MOST_LABELS)
    labels = _labels(shown)
    for place, row in enumerate(shown.iter_rows(named=True)):
        _draw_bar(axes, place, row)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.xaxis.set_major_formatter(_with_commas)
    begin, end = axes.get_xlim()
    if end - begin < 1:
        axes.set_xlim(begin - 1, end + 1)  # one number, with no bar: not between hundredths
    left = f", the first {shown.height} of {table.height:,}" if shown.height < table.height else ""
    axes.set_title(f"{_short(name)}{left}", loc="left", fontsize=9)


def _draw_bar(axes: Any, place: int, row: dict[str, Any]) -> None:
    """An estimate with its interval; an open end is drawn as an arrow."""
    low, high, middle = row["low"], row["high"], row["estimate"]
    known = [each for each in (middle, low, high) if each is not None]
    ends = (known[0] if low is None else low, known[0] if high is None else high)
    axes.plot(ends, [place, place], color=_COLORS[0], linewidth=1.6)
    if middle is not None:
        axes.plot(middle, place, "o", color=_COLORS[0], markersize=5)
    for end, mark in ((low, "<"), (high, ">")):
        if end is None:
            axes.plot(ends[mark == ">"], place, mark, color=_COLORS[1], markersize=6)


def _draw_series(axes: Any, name: str, table: pl.DataFrame) -> None:
    if "key" not in table.columns:
        _draw_band(axes, table, _COLORS[0], "")
        keys = 1
    else:
        last = table.filter(pl.col("tick") == table["tick"].max()).sort("estimate", descending=True)
        keys = last.height
        for key, color in zip(last["key"].head(len(_COLORS)), _COLORS, strict=False):
            _draw_band(
                axes, table.filter(pl.col("key").eq_missing(key)), color, _short("(not shown)" if key is None else key)
            )
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    axes.yaxis.set_major_formatter(_with_commas)
    left = f", the first {len(_COLORS)} of {keys:,}" if keys > len(_COLORS) else ""
    is_open = ", or more: the cap may cut something off" if table["high"].null_count() else ""
    axes.set_title(f"{_short(name)} so far{left}{is_open}", loc="left", fontsize=9)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("tick", color=_SOFT, fontsize=8)


def _draw_band(axes: Any, table: pl.DataFrame, color: str, label: str) -> None:
    whole = table.with_columns(pl.col("low", "high").fill_null(pl.col("estimate")))
    axes.fill_between(whole["tick"], whole["low"], whole["high"], color=color, alpha=0.25, linewidth=0)
    axes.plot(whole["tick"], whole["estimate"], color=color, linewidth=1.5, label=label)


def _labels(table: pl.DataFrame) -> list[str]:
    from pianissimo.stream.release import label_columns

    names = label_columns(table)
    if not names:
        return [""] * table.height
    rows = table.select(names).iter_rows()
    return [_short(", ".join("(not shown)" if part is None else str(part) for part in row)) for row in rows]


def _short(text: str) -> str:
    # A dollar sign begins a formula in matplotlib.
    plain = text.replace("$", r"\$")
    return plain if len(plain) <= _LONGEST_LABEL else f"{plain[: _LONGEST_LABEL - 3]}..."


def _when(release: "StreamRelease") -> str:
    return "" if release.end is None else f", up to {release.end:%Y-%m-%d %H:%M} UTC"


def _with_commas(value: float, _: int) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"
