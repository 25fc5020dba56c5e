"""Draw images/error_by_horizon.png: the largest noise of each counter against the horizon, at equal privacy.

    python docs/make_error_by_horizon.py [FILE]

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

from pianissimo.counting import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, TreePlan
from pianissimo.noise_plan import NoisePlan

RHO = 0.5
POWERS = range(4, 21)
PLANS: dict[str, tuple[Callable[..., NoisePlan], str, str]] = {
    "doubling periods": (DoublingPlan.calibrated, "#999999", ":"),
    "binary tree": (partial(TreePlan.calibrated, base=2), "#CC79A7", "-."),
    "tree of the paper, best base": (TreePlan.calibrated, "#D55E00", "-"),
    "haar": (HaarPlan.calibrated, "#56B4E9", "-"),
    "haar + skipping": (HaarSkipPlan.calibrated, "#0072B2", "-"),
    "spline": (SplinePlan.calibrated, "#009E73", "-"),
}
_INK, _SOFT = "#222222", "#5f5f5f"


def limit(horizon: int) -> float:
    """The least largest deviation of any counter with Gaussian noise: a fit to computed values, good to 0.3 %."""
    return (math.log(horizon) / math.pi + 0.7055 + 0.345 / math.log(horizon)) / math.sqrt(2 * RHO)


def largest_deviation(plan: NoisePlan) -> float:
    """At the worst tick, before the rounding of the release."""
    return float(plan.variance_profile().max()) ** 0.5


def draw(path: Path) -> None:
    horizons = [2**power for power in POWERS]
    with rc_context({"font.size": 9, "text.color": _INK, "axes.edgecolor": "#b8b8b8", "axes.labelcolor": _SOFT}):
        figure = Figure(figsize=(10.0, 4.6), dpi=140)
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        figure.subplots_adjust(left=0.055, right=0.76, top=0.86, bottom=0.115)
        best = limit(horizons[-1])
        for name, (make, color, dashes) in PLANS.items():
            heights = [largest_deviation(make(horizon=horizon, rho=RHO)) for horizon in horizons]
            axes.plot(horizons, heights, dashes, color=color, linewidth=1.8, marker="o", markersize=2.5)
            label(axes, f"{name}: {heights[-1] / best:.2f} times the limit", heights[-1], color)
        limits = [limit(horizon) for horizon in horizons]
        axes.plot(horizons, limits, color=_INK, linewidth=1.2, linestyle=(0, (4, 2)))
        label(axes, "limit for every counter", best - 0.45, _INK)
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


def label(axes: object, text: str, height: float, color: str) -> None:
    transform = axes.get_yaxis_transform()  # type: ignore[attr-defined]
    axes.text(1.012, height, text, color=color, va="center", fontweight="bold", transform=transform)  # type: ignore[attr-defined]


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images" / "error_by_horizon.png")
