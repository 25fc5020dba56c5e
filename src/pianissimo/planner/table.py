"""A plan as tables that a person reads."""

import io
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text


def plan_tables(plan: dict[str, Any]) -> RenderableType:
    """The tables of a plan given as plain data, for a terminal."""
    promise, budget = plan["promise"], plan["budget"]
    head = Text()
    head.append(f"Stream {plan['stream']}: {plan['horizon']} ticks, ", style="bold")
    head.append(
        f"({promise['epsilon']:.4g}, {promise['delta']:.2g})-differential privacy per {plan['unit']}, whole run",
        style="bold",
    )
    head.append(
        f"\nof a budget of ({budget['epsilon']:g}, {budget['delta']:g}); neighbors: one event added or removed; "
        f"{promise['method']}"
    )
    queries = Table(title=None, show_edge=False, pad_edge=False)
    for column in (
        "query",
        "mechanism",
        "share",
        "noise",
        "shown from",
        f"error ({plan['coverage']:.0%}), worst",
    ):
        queries.add_column(column, overflow="fold")
    for query in plan["queries"]:
        threshold = query["threshold"]
        queries.add_row(
            query["name"],
            query["mechanism"],
            f"{query['share_of_budget']:.0%}",
            query["noise"],
            "-" if threshold is None else f"{threshold['least']} to {threshold['largest']}",
            _error(query["expected_error"]),
        )
    others = Table(title=None, show_edge=False, pad_edge=False)
    for column in ("query", "other mechanisms", "error, worst", "reason for the choice"):
        others.add_column(column, overflow="fold")
    for query in plan["queries"]:
        for place, other in enumerate(query["alternatives"]):
            reason = query["reason"] if place == 0 else ""
            others.add_row(query["name"], other["mechanism"], _error(other["expected_error"]), reason)
    theorems = Text("\n".join(f"{query['name']}: {query['guarantee']['theorem']}" for query in plan["queries"]))
    theorems.stylize("dim")
    return Group(head, Text(), queries, Text(), others, Text(), theorems)


def render_plan(plan: dict[str, Any], width: int = 120) -> str:
    """The tables of a plan as text."""
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(plan_tables(plan))
    output = console.file
    return output.getvalue().rstrip() if isinstance(output, io.StringIO) else ""


def _error(error: dict[str, float]) -> str:
    return f"± {error['typical']:.3g}, {error['largest']:.3g}"
