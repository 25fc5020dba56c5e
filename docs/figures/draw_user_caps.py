"""Draw docs/images/user_caps.png: the error of a count of users' events over time, by three caps on what one user adds.

    python docs/figures/draw_user_caps.py [FILE]

It needs matplotlib, which `pip install pianissimo[plot]` brings. The data are made up and the noise is fixed, so that
the picture is the same each time.
"""

import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pianissimo.mechanism import Run
from pianissimo.noise import KeyedNoise, TopDownPlan
from pianissimo.users import AdaptiveCap, FixedCap, UserStatistics

TICKS, USERS = 100, 100_000
RUNS = int(os.environ.get("RUNS", "12"))
FIRST, SMALL, LARGE = 8, 8, 4096
EPSILON, SEARCH = Fraction(1), Fraction(1, 5)
_INK, _SOFT = "#222222", "#5f5f5f"
_SMALL, _LARGE, _FOLLOWS = "#D55E00", "#999999", "#0072B2"


def batches() -> list[pl.DataFrame]:
    """Users of different activity: in the end half of them have at most 17 events, one in seventy more than 64."""
    random = np.random.default_rng(1)
    rates = random.gamma(2.0, 10.0, size=USERS) / TICKS
    made = []
    for _ in range(TICKS):
        who = np.repeat(np.arange(USERS), random.poisson(rates))
        made.append(pl.DataFrame({"user": random.permutation(who)}))
    return made


def mechanisms() -> dict[str, UserStatistics]:
    """The same promise three times: epsilon = 1 for a user with all her events."""
    return {
        "follows": UserStatistics(
            cap=AdaptiveCap(epsilon=SEARCH, first=FIRST, fourfold=0, levels=15),
            plan=TopDownPlan,
            horizon=TICKS,
            epsilon=EPSILON - SEARCH,
        ),
        "small": UserStatistics(cap=FixedCap(units=SMALL), plan=TopDownPlan, horizon=TICKS, epsilon=EPSILON),
        "large": UserStatistics(cap=FixedCap(units=LARGE), plan=TopDownPlan, horizon=TICKS, epsilon=EPSILON),
    }


def errors(mechanism: UserStatistics, ticks: list[pl.DataFrame], run: int) -> tuple[list[int], list[int]]:
    """|released - true| and the cap at every tick."""
    true, found, caps = 0, [], []
    going = Run(mechanism, KeyedNoise(bytes(32)).at("picture", run))
    for batch in ticks:
        true += len(batch)
        going.update(batch)
        release = going.release().value
        found.append(abs(release["count"].estimate - true))
        caps.append(release.cap)
    return found, caps


def draw(path: Path) -> None:
    """The mean error of each cap, into a PNG file."""
    ticks = batches()
    means: dict[str, NDArray[np.float64]] = {}
    caps: list[int] = []
    for name, mechanism in mechanisms().items():
        runs = [errors(mechanism, ticks, run) for run in range(RUNS)]
        means[name] = np.maximum(np.mean([found for found, _ in runs], axis=0), 1)
        caps = runs[0][1] if name == "follows" else caps
    total = sum(map(len, ticks))
    with rc_context({"font.size": 9, "text.color": _INK, "axes.edgecolor": "#b8b8b8", "axes.labelcolor": _SOFT}):
        figure = Figure(figsize=(10.0, 4.8), dpi=140)
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        figure.subplots_adjust(left=0.1, right=0.8, top=0.88, bottom=0.115)
        names = {
            "small": (f"a fixed cap of {SMALL}:\nmost events cut off", _SMALL, 1.0),
            "large": (f"a fixed cap of {LARGE:,}:\ntoo much noise", _LARGE, 1.5),
            "follows": (f"a cap that follows,\nfrom {FIRST} to {caps[-1]}", _FOLLOWS, 0.6),
        }
        for name, (text, color, shift) in names.items():
            axes.plot(range(1, TICKS + 1), means[name], color=color, linewidth=2.0)
            axes.text(TICKS + 1.5, means[name][-1] * shift, text, color=color, fontweight="bold", va="center")
        for tick in range(1, TICKS):
            if caps[tick] != caps[tick - 1]:
                label: dict[str, Any] = {"color": _FOLLOWS, "fontsize": 8, "ha": "center", "va": "top"}
                axes.text(tick + 1, means["follows"][tick] * 0.4, f"cap {caps[tick]}", **label)
        axes.set_yscale("log")
        axes.set_xlim(1, TICKS)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("tick")
        axes.set_ylabel("error of the count so far, events")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#ececec", linewidth=0.8)
        axes.set_axisbelow(True)
        title = (
            f"{total:,} events of {USERS:,} users, each hidden with all of hers: mean error of {RUNS} runs, epsilon = 1"
        )
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=14)
        figure.savefig(path)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "images" / "user_caps.png")
