"""Draw docs/images/house.png: the rooms of the package, as the import contract of pyproject.toml stacks them.

    python docs/figures/draw_house.py [FILE]

It needs matplotlib, which `pip install pianissimo[plot]` brings. A room that has no words here is drawn with its name.
"""

import sys
import tomllib
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).parent.parent.parent
WORDS = {
    "cli": "what prints in a terminal",
    "demo": "a generated stream and its picture",
    "service": "HTTP and the live page",
    "spark": "the same plan on a cluster",
    "io": "clock, loop, sources, sinks",
    "durable": "survives kills",
    "audit": "attacks promises",
    "table": "asks SQL",
    "workers": "several processes, one result",
    "shards": "state and noise in parts",
    "stream": "Stream, Live, plan, release, TOML file",
    "queries": "one file a kind of question",
    "counting": "counts",
    "monitors": "alarms",
    "selection": "which ones",
    "sketches": "small memory",
    "users": "whole people",
    "ledger": "what was charged",
    "storage": "files, SQLite, PostgreSQL",
    "mechanism": "the one shape",
    "names": "keyed names",
    "noise": "draws as a function of secret, path and key; noise plans",
    "loss": "what was lost, and what that costs",
}
FLOORS = {"cli": 0, "durable": 1, "stream": 2, "counting": 3, "ledger": 4, "noise": 5, "batch_memo": 6}
COLORS = ("#56B4E9", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#D55E00", "#8a8a8a")
"""A color from the layer with each of these rooms on."""

WIDTH, HEIGHT, GAP = 10.0, 0.84, 0.09


def layers() -> list[list[str]]:
    """The rooms from top to bottom, side by side where they do not know each other."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = [
        each for each in content["tool"]["importlinter"]["contracts"] if each["name"] == "imports point down"
    ]
    return [[room.strip().removeprefix("pianissimo.") for room in layer.split("|")] for layer in contract["layers"]]


def draw(path: Path) -> None:
    """Draw all layers into a PNG file."""
    stack = [*layers(), ["_core (Rust)"]]
    figure = Figure(figsize=(9.2, 0.4 * len(stack) + 0.5), dpi=130)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
    axes.set_xlim(0, WIDTH)
    axes.set_ylim(-len(stack) - 0.1, 0.8)
    axes.axis("off")
    axes.text(0, 0.35, "The rooms of Pianissimo: imports point down", fontsize=13, fontweight="bold")
    color = COLORS[0]
    for place, rooms in enumerate(stack):
        color = next((COLORS[FLOORS[room]] for room in rooms if room in FLOORS), color)
        _draw_layer(axes, -place - 0.5, rooms, color)
    figure.savefig(path)


def _draw_layer(axes: Any, middle: float, rooms: list[str], color: str) -> None:
    width = (WIDTH - GAP * (len(rooms) - 1)) / len(rooms)
    for number, room in enumerate(rooms):
        left = number * (width + GAP)
        box = FancyBboxPatch((left, middle - HEIGHT / 2), width, HEIGHT, boxstyle="round,pad=0,rounding_size=0.1")
        box.set(facecolor=color, alpha=0.22, edgecolor=color)
        axes.add_patch(box)
        words = WORDS.get(room, "exact samplers, inner loops, keyed bits" if room.startswith("_core") else "")
        if not words:
            axes.text(left + width / 2, middle, room, ha="center", va="center", fontsize=9, fontweight="bold")
            continue
        side_by_side = len(rooms) < 3
        if side_by_side:
            axes.text(left + 0.15, middle, room, va="center", fontsize=9.5, fontweight="bold")
            axes.text(left + width - 0.15, middle, words, ha="right", va="center", fontsize=8.5, color="#444444")
        else:
            axes.text(left + width / 2, middle + 0.17, room, ha="center", va="center", fontsize=9, fontweight="bold")
            axes.text(left + width / 2, middle - 0.2, words, ha="center", va="center", fontsize=7.5, color="#444444")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "house.png")
