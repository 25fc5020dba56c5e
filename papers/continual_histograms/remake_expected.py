"""Make expected.json anew: the numbers the tests hold on to, each with what may be between it and a fresh simulation.

Run `python -m papers.continual_histograms.remake_expected`; it takes two minutes.
"""

import json
import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from papers.continual_histograms import figure_1, figure_3

PATH = Path(__file__).parent / "expected.json"
RUNS, SEED = 10_000, 7
FRESH_RUNS = 2000
"""A fresh simulation, as in the tests, has this many runs."""

FALSE_ALARM_RATE = 1e-9
"""Chance, by the normal approximation, that a sound fresh mean is further from the guess than the tolerance."""

SHARE, LEAST = 0.15, 3.0
"""A result counts as reproduced within 15% or 3, if chance allows."""


def tolerance(guess: float, mean: float, std: float) -> float:
    """How far a fresh mean may be from the guess: 15% or 3, or more where a sound one would often be further.

    >>> tolerance(100.0, 100.0, 1.0), tolerance(10.0, 11.0, 1.0)
    (15.0, 3.0)
    """
    reach = NormalDist().inv_cdf(1 - FALSE_ALARM_RATE / 2) * std / math.sqrt(FRESH_RUNS)
    return max(SHARE * guess, LEAST, math.ceil(10 * (abs(mean - guess) + reach)) / 10)


def _cell(errors: NDArray[np.int64], guess: int) -> dict[str, float]:
    mean, std = float(errors.mean()), float(errors.std())
    return {
        "guess": guess,
        "mean": round(mean, 2),
        "std": round(std, 2),
        "tolerance": round(tolerance(guess, mean, std), 2),
        "at_most_guess": int((errors <= guess).sum()),
    }


def _figure_1() -> dict[str, Any]:
    shares, bases = figure_1.savings(*figure_1.PRACTICAL)
    return {
        "tolerance": 0.0001,
        "table": [{name: round(value, 4) for name, value in figure_1.row(each).items()} for each in figure_1.TABLE],
        "savings": {
            "horizons": list(figure_1.PRACTICAL),
            "least": round(min(shares), 4),
            "most": round(max(shares), 4),
            "mean": round(sum(shares) / len(shares), 4),
            "smallest_base": min(bases),
            "largest_base": max(bases),
            "usual_base": max(set(bases), key=bases.count),
        },
    }


def _figure_3() -> dict[str, Any]:
    streams = figure_3.make_streams(RUNS, SEED)
    curves = {}
    for curve in figure_3.curves():
        errors = figure_3.simulate(curve, streams, SEED, figure_3.TABLE)
        cells = zip(figure_3.TABLE, errors.T, curve.guess, strict=True)
        curves[curve.name] = {str(tick): _cell(column, guess) for tick, column, guess in cells}
    return {"runs": RUNS, "fresh_runs": FRESH_RUNS, "false_alarm_rate": FALSE_ALARM_RATE, "curves": curves}


@click.command()
def main() -> None:
    """Write expected.json."""
    content = {"figure_1": _figure_1(), "figure_3": _figure_3()}
    PATH.write_text(json.dumps(content, indent=1) + "\n")
    for name, cells in content["figure_3"]["curves"].items():
        shown = " | ".join(f"{cell['guess']} ± {cell['tolerance']:g} | {cell['mean']:.1f}" for cell in cells.values())
        click.echo(f"| {name} | {shown} |")


if __name__ == "__main__":
    main()
