"""How the rows of a release are shown to a person: the one rule of terminal and notebook.

What cannot be told from noise has no order and no number below zero, extremes and means at an end of their range are
bounds, and nearly all of a range is not known. The page of `pianissimo serve` does the same (`numbers.js`). Nothing
that is released is changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from pianissimo.stream.release import label_columns
from pianissimo.stream.shown.plan_table import never_below_zero

NEARLY_ALL = 0.9
"""A quantile whose bar holds so much of the range is not known; the page has the same number."""

OPEN_ENDS = {"estimate": "not known", "low": "or less", "high": "or more"}
"""What is shown for an end of a bar that nothing bounds, and for what is known to lie below the other end alone."""

NOT_SHOWN = "all that are not shown"
"""The label of the number of all labels without a row of their own."""

_BARS = ("estimate", "low", "high")


def number_shown(value: float) -> str:
    """A number with as many digits as are read.

    >>> number_shown(1234567), number_shown(17.25), number_shown(1234.5)
    ('1,234,567', '17.25', '1,234.50')
    """
    if isinstance(value, int):
        return f"{value:,}"
    if abs(value) < 1000:
        return f"{value:,.6g}"
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:,.2f}".removesuffix(".00")


def cannot_be_told(row: Mapping[str, Any]) -> bool:
    """Whether a number that cannot be below zero may as well be zero: its interval holds zero, or lies below it.

    Where nothing bounds it at either end, nothing is known of that.
    """
    low, high = row["low"], row["high"]
    return not (low is None and high is None) and (low is None or low <= 0)


def cut_at_zero(row: Mapping[str, Any]) -> dict[str, Any]:
    """How such a number is shown: what is below zero is shown as zero would be.

    A bar that is cut and not moved would be short, or of no length at all, where the noise was lowest.

    >>> cut_at_zero({"estimate": 26, "low": -54, "high": 106})
    {'estimate': 'at most 106', 'low': 0, 'high': 106}
    >>> cut_at_zero({"estimate": -900, "low": -1300, "high": -500})
    {'estimate': 'at most 400', 'low': 0, 'high': 400}
    >>> cut_at_zero({"estimate": 30, "low": -5, "high": None})
    {'estimate': '0 or more', 'low': 0, 'high': None}
    """
    high = None if row["high"] is None else max(0, row["high"] - min(0, row["estimate"] or 0))
    words = "0 or more" if high is None else f"at most {number_shown(high)}" if high else "about 0"
    return {"estimate": words, "low": 0, "high": high}


def told_quantile(row: Mapping[str, Any], span: Sequence[float] | None = None) -> dict[str, Any]:
    """How a quantile is shown: bounds for extremes, and no number where nearly all of the range may be it.

    >>> told_quantile({"key": "largest 1", "estimate": 249.0, "low": 249.0, "high": 2000.0}, (0, 2000))
    {'estimate': 'at least 249'}
    >>> told_quantile({"key": "0.5", "estimate": 6.3, "low": 0.0, "high": 1000.0}, (0, 1000))
    {'estimate': 'not known'}
    >>> told_quantile({"key": "0.5", "estimate": 22.4, "low": 21.3, "high": 25.6}, (0, 1000))
    {}
    """
    low, high = row["low"], row["high"]
    if span and low is not None and high is not None and high - low >= NEARLY_ALL * (span[1] - span[0]):
        return {"estimate": "not known"}
    if str(row["key"]).startswith("largest ") and low is not None:
        return {"estimate": f"at least {number_shown(low)}"}
    if str(row["key"]).startswith("smallest ") and high is not None:
        return {"estimate": f"at most {number_shown(high)}"}
    return {}


def told_mean(row: Mapping[str, Any], span: Sequence[float]) -> dict[str, Any]:
    """How a mean is shown: a bound where noise took it to an end of its range, and no number of nearly all of it.

    >>> told_mean({"estimate": 0.0, "low": 0.0, "high": 69.6}, (0, 200))
    {'estimate': 'at most 69.6'}
    >>> told_mean({"estimate": 17.3, "low": 0.0, "high": 37.5}, (0, 200))
    {}
    """
    low, high = row["low"], row["high"]
    if row["estimate"] is None or high - low >= NEARLY_ALL * (span[1] - span[0]):
        return {"estimate": "not known"}
    if row["estimate"] <= span[0] < high:
        return {"estimate": f"at most {number_shown(high)}"}
    return {"estimate": f"at least {number_shown(low)}"} if row["estimate"] >= span[1] > low else {}


def told_rows(
    rows: pl.DataFrame, *, is_cut: bool, query: Mapping[str, Any] | None = None, note: str = ""
) -> tuple[list[dict[str, Any]], str]:
    """The rows of a release as they are shown, the largest estimates first, and what is said of those that are cut.

    What cannot be told from noise has no order, and says so, where numbers cannot be below zero (`is_cut`). It is given
    what a plan tells of its query, if one is known, and where to find the numbers as they are (`note`).
    """
    asked, span = (query or {}).get("kind"), (query or {}).get("range")
    labels = label_columns(rows)
    noise = [is_cut and cannot_be_told(row) for row in rows.select(_BARS).to_dicts()]
    if labels:
        # The row without key, of all labels that are not shown, stays the last.
        is_noise = pl.Series(noise, dtype=pl.Boolean)
        order = [pl.col(labels[0]).is_null(), is_noise, pl.when(~is_noise).then(-pl.col("estimate"))]
        order = [pl.col("tick"), *order] if "tick" in rows.columns else order
        rows = rows.sort([*order, *labels], nulls_last=True, maintain_order=True)
    shown = []
    for row in rows.iter_rows(named=True):
        told = cut_at_zero(row) if is_cut and cannot_be_told(row) else {}
        told = told_quantile(row, span) if asked == "quantiles" else told
        told = told_mean(row, span) if asked == "mean" and span else told
        shown.append({**row, **told})
    return shown, _noise_note(rows, labels, f"Cut at 0; {note}") if any(noise) else ""


def told_frame(rows: pl.DataFrame, facts: Mapping[str, Mapping[str, Any]], name: str) -> tuple[pl.DataFrame, str]:
    """The table of a query as a notebook shows it, and what is said below it, by what a plan tells of each query.

    >>> bars = pl.DataFrame({"estimate": [26], "low": [-54], "high": [106]})
    >>> told_frame(bars, {"n": {"kind": "count"}}, "n")[0].row(0)
    ('at most 106', 0, 106)
    >>> told_frame(pl.DataFrame({"estimate": [3], "low": [1], "high": [None]}), {}, "n")[0].row(0)
    (3, 1, 'or more')
    """
    if not set(_BARS) <= set(rows.columns):
        return rows, ""
    query = facts.get(name)
    note = "the release itself has the numbers."
    shown, note = told_rows(rows, is_cut=is_cut_at_zero(query, facts), query=query, note=note)
    columns = []
    for column, kind in rows.schema.items():
        values = [row[column] for row in shown]
        if column in label_columns(rows):
            values = [NOT_SHOWN if value is None else value for value in values]
        elif column in _BARS and any(value is None or isinstance(value, str) for value in values):
            values, kind = [_worded(value, column) for value in values], pl.String()
        columns.append(pl.Series(column, values, dtype=kind))
    return pl.DataFrame(columns), note


def is_cut_at_zero(query: Mapping[str, Any] | None, facts: Mapping[str, Any]) -> bool:
    """Whether numbers below zero are noise: what is of no query of a plan, such as above_cap, counts users.

    Where no plan is known, nothing is cut.
    """
    return bool(facts) if query is None else never_below_zero(query)


def _worded(value: str | float | None, column: str) -> str:
    return OPEN_ENDS[column] if value is None else value if isinstance(value, str) else number_shown(value)


def _noise_note(rows: pl.DataFrame, labels: list[str], cut: str) -> str:
    """What is said of numbers that are cut at zero."""
    if not labels:
        return f"It cannot be told from noise. {cut}"
    named = [cannot_be_told(row) for row in rows.filter(pl.col(labels[0]).is_not_null()).to_dicts()]
    if not sum(named):
        return cut
    if len(named) == 1:
        return f"The label cannot be told from noise. {cut}"
    if all(named):
        return f"{len(named):,} labels, none can be told from noise: they have no order. {cut}"
    these = "it has" if sum(named) == 1 else "they have"
    return f"{sum(named):,} of {len(named):,} labels cannot be told from noise: {these} no order. {cut}"
