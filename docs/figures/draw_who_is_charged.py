"""Draw docs/images/who_is_charged.png: six ticks of a monitor, who holds what, what is reported, what charges are left.

    python docs/figures/draw_who_is_charged.py [FILE]

It needs matplotlib, which `pip install pianissimo[plot]` brings. The users are made up and the noise is fixed, so that
the picture is the same each time. The reports are those of the mechanism; the charges follow from them by the rule.
"""

import sys
from pathlib import Path
from typing import Any

import polars as pl
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import pianissimo as pp
from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, Secret

CHARGES, EACH, THRESHOLD = 2, 1000, 2500
HELD = {
    "Ann": ["flu", "flu", "", "measles", "flu", ""],
    "Bob": ["flu", "flu", "", "measles", "flu", "flu"],
    "Cleo": ["", "flu", "", "", "flu", "flu"],
    "Dan": ["cough", "", "cough", "measles", "", ""],
    "Eve": ["", "", "", "cough", "", "flu"],
    "Fay": ["", "cough", "", "", "cough", "flu"],
    "Gus": ["cough", "cough", "cough", "cough", "cough", "cough"],
}
TICKS = 6
_INK, _SOFT, _FAINT = "#222222", "#5f5f5f", "#d8d8d8"
_COLORS = {"flu": "#0072B2", "measles": "#D55E00", "cough": "#8a8a8a"}
_WIDTH, _HEIGHT = 0.9, 0.5


def reports() -> list[dict[str, int]]:
    """What the monitor reports at each tick, where each name stands for a thousand users."""
    asked = pp.Trending("keys", key="key", alarms_per_user=CHARGES, threshold=THRESHOLD)
    stream = pp.Stream("s", budget=pp.Budget(1, 1e-6), horizon=TICKS, unit=pp.user("user"), queries=[asked])
    monitor: Any = stream.plan().queries[0].mechanism
    run = Run(monitor, KeyedNoise(Secret(bytes(32))))
    found = []
    for tick in range(TICKS):
        holders = [(name, keys[tick]) for name, keys in HELD.items() if keys[tick]]
        rows = [(f"{name} {number}", key) for name, key in holders for number in range(EACH)]
        run.update(pl.DataFrame(rows, schema={"user": pl.String, "key": pl.String}, orient="row"))
        found.append(run.release().value.to_dict())
    return found


def draw(path: Path) -> None:
    """A row for each user, a column for each tick, into a PNG file."""
    told = reports()
    left = dict.fromkeys(HELD, CHARGES)
    with rc_context({"font.size": 9, "text.color": _INK}):
        figure = Figure(figsize=(10.0, 5.9), dpi=140)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.02, 0.02, 0.96, 0.83))
        axes.set_xlim(-0.75, TICKS)
        axes.set_ylim(len(HELD) + 0.55, -1.0)
        axes.axis("off")
        for row, name in enumerate(HELD):
            axes.text(-0.72, row + _HEIGHT / 2, name, fontsize=11, fontweight="bold", va="center")
        for tick, found in enumerate(told):
            _draw_head(axes, tick, found)
            for row, (name, keys) in enumerate(HELD.items()):
                key, counts = keys[tick], left[name] > 0
                charged = counts and key in found
                left[name] -= charged
                _draw_cell(axes, (tick, row), key, counts=counts, charged=charged)
                _draw_charges(axes, (tick, row), left[name])
        _draw_legend(axes, len(HELD) + 0.3)
        title = "Who is charged: those who are in what is reported, and nobody else"
        how = f"Each name stands for {EACH:,} users who do the same. Each has {CHARGES} charges for life."
        figure.text(0.022, 0.945, title, fontsize=13, fontweight="bold")
        figure.text(0.022, 0.9, f"{how} A key is reported from {THRESHOLD:,} users on, noise included.", color=_SOFT)
        figure.savefig(path)


def _draw_head(axes: Any, tick: int, found: dict[str, int]) -> None:
    middle = tick + _WIDTH / 2
    axes.text(middle, -0.75, f"tick {tick + 1}", ha="center", color=_SOFT)
    for key, estimate in found.items():
        axes.text(middle, -0.48, f"{key} is reported", ha="center", fontweight="bold", color=_COLORS[key])
        axes.text(middle, -0.23, f"about {estimate:,}", ha="center", color=_COLORS[key])
    if not found:
        axes.text(middle, -0.48, "silence", ha="center", color=_SOFT, style="italic")


def _draw_cell(axes: Any, place: tuple[int, int], key: str, *, counts: bool, charged: bool) -> None:
    color = _COLORS.get(key, _FAINT)
    box = FancyBboxPatch(
        (place[0] + 0.03, place[1] + 0.03),
        _WIDTH - 0.06,
        _HEIGHT - 0.06,
        boxstyle="round,pad=0,rounding_size=0.05",
        facecolor=color if charged else "white",
        edgecolor=color if key else "#efefef",
        linewidth=1.1,
        linestyle="solid" if counts or not key else (0, (2, 2)),
    )
    axes.add_patch(box)
    if key:
        text = key if counts else f"{key}: not counted"
        ink = "white" if charged else color if counts else "#a5a5a5"
        axes.text(
            place[0] + _WIDTH / 2,
            place[1] + _HEIGHT / 2,
            text,
            ha="center",
            va="center",
            color=ink,
            fontsize=9 if counts else 8,
        )


def _draw_charges(axes: Any, place: tuple[int, int], left: int) -> None:
    for number in range(CHARGES):
        middle = (place[0] + _WIDTH / 2 + 0.07 * (2 * number - CHARGES + 1), place[1] + 0.66)
        _draw_dot(axes, middle, full=number < left)


def _draw_dot(axes: Any, middle: tuple[float, float], *, full: bool) -> None:
    axes.plot(*middle, "o", markersize=5.5, markerfacecolor=_INK if full else "white", markeredgecolor=_INK)


def _draw_legend(axes: Any, height: float) -> None:
    _draw_dot(axes, (0.1, height), full=True)
    axes.text(0.18, height, "a charge that is left after the tick", va="center", color=_SOFT)
    _draw_dot(axes, (2.1, height), full=False)
    axes.text(2.18, height, "one that is gone", va="center", color=_SOFT)
    axes.text(3.2, height, "filled: charged at this tick", va="center", color=_SOFT)
    axes.text(4.75, height, "nobody sees the charges", va="center", color=_SOFT)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "images" / "who_is_charged.png")
