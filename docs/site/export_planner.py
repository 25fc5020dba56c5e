"""Write docs/site/planner.json: errors of plans for the calculator of docs/epsilon.md, from the planner itself.

python docs/site/export_planner.py [FILE]

For each whom (a single event; a user of whom at most so many events count; a user within a day), horizon and number of
questions: the typical half-width of a 95 % bar of a count, by epsilon; and from how many events on a label that nobody
listed appears. delta is 1e-9 throughout. It takes about a minute.
"""

import json
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pianissimo as pp

EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8)
HORIZONS = {"1": 1, "24": 24, "168": 168, "720": 720, "8760": 8760, "105120": 105_120, "none": None}
QUESTIONS = (1, 3, 10)
DELTA = 1e-9
CAPS = (1, 10, 100)


def units() -> dict[str, Any]:
    """By name, whom a promise hides."""
    found: dict[str, Any] = {"event": "event"}
    found |= {f"user-{cap}": pp.user("user", max_events_per_user=cap) for cap in CAPS}
    return found | {"user-day": pp.user("user", max_events_per_user=10, within="1d")}


def cell(unit: object, ticks: int | None, questions: int, epsilon: float) -> dict[str, Any]:
    """The error of each of so many counts; of one question also from when on an unlisted label is shown."""
    budget = pp.Budget(epsilon, DELTA)
    setting: dict[str, Any] = {"unit": unit, "budget": budget, "horizon": ticks, "tick": "1h"}
    counts = [pp.Count(f"count_{number}") for number in range(questions)]
    plan = pp.Stream("calculator", queries=counts, **setting).plan()
    found: dict[str, Any] = {"error": plan.queries[0].expected_error.typical}
    if questions == 1:
        labels = pp.Stream("calculator", queries=[pp.Histogram("labels", key="label")], **setting).plan().queries[0]
        found |= {"label_error": labels.expected_error.typical}
        if labels.thresholds is not None:
            found |= {"shown_from": labels.thresholds[0]}
    return found


def planner() -> dict[str, Any]:
    """All cells, as plain data."""
    found: dict[str, Any] = {}
    for name, unit in units().items():
        # Statistics of a day begin anew with each: there is no horizon to choose.
        horizons = {"none": None} if name == "user-day" else HORIZONS
        for horizon, ticks in horizons.items():
            for questions in QUESTIONS:
                found[f"{name}/{horizon}/{questions}"] = [cell(unit, ticks, questions, each) for each in EPSILONS]
    return found


def main() -> None:
    """Write the file."""
    warnings.simplefilter("ignore", pp.BudgetWarning)
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "planner.json"
    content = {
        "made": datetime.now(UTC).date().isoformat(),
        "version": pp.__version__,
        "delta": DELTA,
        "epsilons": EPSILONS,
        "cells": planner(),
    }
    place.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
