"""Draw docs/images/error_by_horizon.png: the largest noise of each counter against the horizon, at equal privacy.

    python docs/figures/draw_error_by_horizon.py [FILE]

It needs matplotlib, which `pip install pianissimo[plot]` brings.
"""

import math
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, TreePlan
from pianissimo.noise.plan import NoisePlan

RHO = 0.5
POWERS = range(4, 21)
PLANS: dict[str, tuple[Callable[..., NoisePlan], str, str]] = {
    "doubling": (DoublingPlan.calibrated, "#999999", ":"),
    "binary tree": (partial(TreePlan.calibrated, base=2), "#CC79A7", "-."),
    "base-r tree, best base": (TreePlan.calibrated, "#D55E00", "-"),
    "haar": (HaarPlan.calibrated, "#56B4E9", "-"),
    "haar + skipping": (HaarSkipPlan.calibrated, "#0072B2", "-"),
    "spline": (SplinePlan.calibrated, "#009E73", "-"),
}
_INK, _SOFT = "#222222", "#5f5f5f"
_LABEL_GAP = 1.0


def limit(horizon: int) -> float:
    """The least that the largest deviation can be with Gaussian noise: a fit to the values at 2^8, 2^10 and 2^12."""
    return (math.log(horizon) / math.pi + 0.7055 + 0.345 / math.log(horizon)) / math.sqrt(2 * RHO)


def largest_deviation(plan: NoisePlan) -> float:
    """At the worst tick, before the rounding of the release."""
    return math.sqrt(plan.variance_profile().max())


def draw(path: Path) -> None:
    """All plans and the limit, into a PNG file."""
    horizons = [2**power for power in POWERS]
    with rc_context({"font.size": 9, "text.color": _INK, "axes.edgecolor": "#b8b8b8", "axes.labelcolor": _SOFT}):
        figure = Figure(figsize=(10.0, 4.6), dpi=140)
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        figure.subplots_adjust(left=0.055, right=0.775, top=0.86, bottom=0.115)
        lines = {"limit of Gaussian noise": ([limit(horizon) for horizon in horizons], _INK, "--")}
        for name, (make, color, dashes) in PLANS.items():
            lines[name] = ([largest_deviation(make(horizon=horizon, rho=RHO)) for horizon in horizons], color, dashes)
        best = lines["limit of Gaussian noise"][0][-1]
        free, beside = 0.0, axes.get_yaxis_transform()
        for name, (heights, color, dashes) in sorted(lines.items(), key=lambda line: line[1][0][-1]):
            axes.plot(horizons, heights, dashes, color=color, linewidth=1.8, marker="o", markersize=2.5)
            free = max(heights[-1], free + _LABEL_GAP)
            text = name if heights[-1] == best else f"{name}: {heights[-1] / best:.2f}"
            axes.text(1.015, free, text, color=color, va="center", fontweight="bold", transform=beside)
        axes.text(1.015, 25.4, "times the limit, at 2^20", color=_SOFT, transform=beside)
        axes.set_xscale("log", base=2)
        axes.set_xlim(horizons[0], horizons[-1])
        axes.set_ylim(0, 25)
        axes.set_xlabel("horizon: how many ticks the promise covers")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#ececec", linewidth=0.8)
        axes.set_axisbelow(True)
        title = "Standard deviation of a running count at its worst tick, at equal privacy (rho = 1/2)"
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=14)
        figure.savefig(path)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "images" / "error_by_horizon.png")
