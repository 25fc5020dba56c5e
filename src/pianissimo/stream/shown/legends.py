"""What is said below a table of a release: which share of bars holds the truth, of what, and what no bar tells.

The page of `pianissimo serve` says the same (`words.js`).
"""

from collections.abc import Mapping
from typing import Any

import polars as pl

from pianissimo.queries.shared.of_users import REACHES
from pianissimo.queries.shared.watching import EXHAUSTED
from pianissimo.stream.shown.plan_table import WATCHED, about_numbers
from pianissimo.users import ABOVE_CAP

JUST_REPORTED = (
    "Near the threshold more of them miss: noise may have made the report, and the true number is then lower."
)
JUST_SHOWN = (
    "Of labels that have just appeared more of them miss: noise helped them up, and the true numbers are lower."
)
"""What is said where a threshold chose what is shown, and so its noise did."""

BOTH_OPEN = (
    "Both ends are open: nothing bounds what the cap cuts off, or what it let in of earlier ticks when it was raised."
)


_SHOWN_BY_NUMBER = ("histogram", "top_k", "heavy_hitters")
"""Kinds whose labels appear by the very number that is told of them."""


def legend(name: str, table: pl.DataFrame, coverage: float | None, query: Mapping[str, Any] | None = None) -> str:
    """One line below the table of a query, given as it is in a plan; empty where there is nothing to say.

    >>> bars = pl.DataFrame({"estimate": [3], "low": [1], "high": [5]})
    >>> legend("n", bars, 0.95, {"kind": "count", "error_about": "number of events", "words": []})
    '95 % of such intervals, low to high, hold the true number of events.'
    """
    if coverage is None or name == EXHAUSTED or not table.height or not {"low", "high"} <= set(table.columns):
        return ""
    cap = table["cap"][0] if "cap" in table.columns else None
    told = dict(query or {"error_about": "number of users above the cap" if name == ABOVE_CAP else "number"})
    reaches = any(REACHES in line.lower() for line in told.get("words", ()))
    about, is_cut = about_numbers(told, cap)
    chosen = _chosen_by_noise(told)
    chance = f"With a chance of {_percent((1 + coverage) / 2)} each"
    is_low, is_high = table["low"].is_not_null(), table["high"].is_not_null()
    if not (is_low | is_high).any():
        return BOTH_OPEN
    if told.get("kind") != "quantiles":
        if (is_low & ~is_high).any():
            missing = "what the cap cuts off is missing, and nothing bounds it"
            return f"{chance} low end is below the true {about}. The high end is open: {missing}.{chosen}"
        if (is_high & ~is_low).any():
            told_low = "The low end is open: nothing bounds what is too much."
            return f"{chance} high end is above the true {about}. {told_low}{chosen}"
    line = f"{share_text(coverage)}, low to high, hold the true {about}"
    if reaches:
        return f"{line}; they reach over what the cap cuts off too.{chosen}"
    return f"{line}. What is cut off is in no bar.{chosen}" if is_cut else f"{line}.{chosen}"


def _chosen_by_noise(query: Mapping[str, Any]) -> str:
    """What is said, after a blank, of numbers that are shown because they were high enough."""
    if query.get("kind") in WATCHED:
        return f" {JUST_REPORTED}"
    return f" {JUST_SHOWN}" if query.get("threshold") and query.get("kind") in _SHOWN_BY_NUMBER else ""


def share_text(coverage: float) -> str:
    """Which share of intervals holds the truth, in words.

    >>> share_text(0.999)
    '99.9 % of such intervals'
    """
    return f"{_percent(coverage)} of such intervals"


def _percent(share: float) -> str:
    return f"{100 * share:.10g} %"
