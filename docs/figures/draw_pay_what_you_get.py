"""Draw docs/images/pay_what_you_get.png: what is left of a budget over 50 questions in a row, by three ways of paying.

    python docs/figures/draw_pay_what_you_get.py [FILE]

It needs matplotlib, which `pip install pianissimo[plot]` brings. The data are made up and the noise is fixed, so that
the picture is the same each time.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pianissimo.budget import Budget
from pianissimo.noise import KeyedNoise, Secret
from pianissimo.selection import LimitedDomain
from pianissimo.table import StepAllowance

QUESTIONS, K, K_BAR = 50, 10, 1000
BUDGET = Budget(epsilon=2.0, delta=1e-8)
STEPS, CALLS = 200, 100
_INK, _SOFT = "#222222", "#5f5f5f"
_PLAIN, _EACH_K, _PAID = "#999999", "#D55E00", "#0072B2"


def slices() -> list[dict[str, int]]:
    """Fifty slices of a table: how many members clicked each article, few large slices and many small ones."""
    random = np.random.default_rng(1)
    sizes = 30_000 * np.arange(1, QUESTIONS + 1.0) ** -0.9
    random.shuffle(sizes)
    ranks = np.arange(1, 3001)
    return [
        {f"article {rank}": int(count) for rank, count in zip(ranks, random.poisson(size / ranks**1.1), strict=True)}
        for size in sizes
    ]


def lengths(allowance: StepAllowance) -> list[int]:
    """What each question pays, as long as there are steps."""
    noise, left, paid = KeyedNoise(Secret(bytes(32))), allowance.steps, []
    for number, counts in enumerate(slices()):
        if left == 0:
            break
        mechanism = LimitedDomain(k=min(K, left), candidates=K_BAR, epsilon=allowance.epsilon, delta=allowance.delta)
        paid.append(mechanism.cost(mechanism.answer(counts, noise.at("picture", number))))
        left -= paid[-1]
    return paid


def left_over(costs: list[float]) -> list[float]:
    """The percentage that is left after each question that could still be paid."""
    left = [100.0]
    for cost in costs:
        if left[-1] - cost < -1e-9:
            break
        left.append(left[-1] - cost)
    return left


def draw(path: Path) -> None:
    """Three ways of paying, into a PNG file."""
    allowance = StepAllowance.of(BUDGET, steps=STEPS, questions=CALLS)
    whole = [100.0 * K * float(allowance.epsilon) / float(BUDGET.epsilon)] * QUESTIONS
    lines = {
        "plain composition": (left_over(whole), _PLAIN),
        "better composition,\nevery question pays for 10": (left_over([100.0 * K / STEPS] * QUESTIONS), _EACH_K),
        "pay what you get": (left_over([100.0 * cost / STEPS for cost in lengths(allowance)]), _PAID),
    }
    with rc_context({"font.size": 9, "text.color": _INK, "axes.edgecolor": "#b8b8b8", "axes.labelcolor": _SOFT}):
        figure = Figure(figsize=(10.0, 4.6), dpi=140)
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        figure.subplots_adjust(left=0.06, right=0.97, top=0.86, bottom=0.115)
        for name, (heights, color) in lines.items():
            asked = len(heights) - 1
            axes.plot(range(asked + 1), heights, color=color, linewidth=2.0, marker="o", markersize=3)
            ended = asked < QUESTIONS
            text = f"{name}\n{asked} questions" if ended else f"{name}\n{asked} questions, {heights[-1]:.0f} % left"
            across, up = (asked + 0.7, 4) if ended else (asked, 24)
            axes.text(across, heights[-1] + up, text, color=color, fontweight="bold", ha="left" if ended else "right")
        axes.set_xlim(0, QUESTIONS + 0.5)
        axes.set_ylim(0, 103)
        axes.set_xlabel("questions asked: the ten most clicked articles, each of another slice of the table")
        axes.set_ylabel("budget left, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#ececec", linewidth=0.8)
        axes.set_axisbelow(True)
        title = "What is left of one budget (epsilon 2, delta 1e-8), the same noise in every answer"
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=14)
        figure.savefig(path)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "images" / "pay_what_you_get.png")
