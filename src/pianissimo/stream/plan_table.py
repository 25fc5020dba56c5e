"""A plan as a person reads it: a table with a line a query, then a paragraph for each, wrapped between words."""

import io
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pianissimo.queries import Query
from pianissimo.queries.expected import OPEN_HORIZON, mebibytes

_CAPPED = Query.error_of


def plan_tables(plan: dict[str, Any]) -> RenderableType:
    """The promise, a table of the queries and what is to be said of each, of a plan given as plain data."""
    parts: list[RenderableType] = [_promise(plan), Text(), _queries(plan)]
    if any(_CAPPED in query["note"] for query in plan["queries"]):
        parts.append(
            Text(f"The error is about {_CAPPED}; what it cuts off is missing, and the high end is open.", "dim")
        )
    for query in plan["queries"]:
        parts += [Text(), *_details(query)]
    return Group(*parts)


def render_plan(plan: dict[str, Any], width: int = 120) -> str:
    """The same as text."""
    output = io.StringIO()
    Console(file=output, width=width, color_system=None).print(plan_tables(plan))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).rstrip()


def _promise(plan: dict[str, Any]) -> Text:
    promise, budget = plan["promise"], plan["budget"]
    is_pure = promise["method"] == "pure"
    epsilon, delta = f"{promise['epsilon']:.4g}", f"{promise['delta']:.2g}"
    ticks = "no end" if plan["horizon"] >= OPEN_HORIZON else f"{plan['horizon']} ticks"
    what = f"{epsilon}-" if is_pure else f"({epsilon}, {delta})-"
    head = Text(f"Stream {plan['stream']}: {ticks}, {what}differential privacy per {_unit(plan)}, whole run", "bold")
    budgeted = f"{budget['epsilon']:g}" if budget["delta"] == 0 else f"({budget['epsilon']:g}, {budget['delta']:g})"
    rest = f"\nof a budget of {budgeted}; neighbors: {_neighbors(plan)} added or removed; {promise['method']}"
    if is_pure:
        rest += f", up to a delta of {delta} for the distance of drawn noise from its law"
    if plan["horizon"] >= OPEN_HORIZON:
        rest += "; booked as 2^32 ticks"
    if "origin" in plan:
        rest += f"\nticks of {plan['tick']} from {plan['origin']}, time zone {plan['time_zone']}"
    return head.append(rest, "not bold")


def _unit(plan: dict[str, Any]) -> str:
    return f"{plan['unit']} of {plan['period']} ticks" if "period" in plan else str(plan["unit"])


def _neighbors(plan: dict[str, Any]) -> str:
    if "period" in plan:
        return f"one user's events of one period of {plan['period']} ticks"
    return "one user with all her events" if "user" in plan else "one event"


def _queries(plan: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("query", "noise plan", "share", "every", "shown from", f"error ({plan['coverage']:.0%})", "worst"):
        is_text = column in ("query", "noise plan")
        table.add_column(column, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold")
    for query in plan["queries"]:
        expected = query["expected_error"]
        table.add_row(
            query["name"],
            _split(query["mechanism"])[1],
            f"{query['share_of_budget']:.0%}",
            "tick" if query["every"] == 1 else f"{query['every']} ticks",
            _thresholds(query["threshold"]),
            f"± {_number(expected['typical'])}",
            _number(expected["largest"]),
        )
    return table


def _details(query: dict[str, Any]) -> Iterator[RenderableType]:
    title = Text(query["name"], "bold")
    title.append(f", {query['called']}", "not bold")
    if "domain" in query:
        labels = "labels that nobody listed" if query["domain"] == "unknown" else f"a domain of {query['domain']}"
        title.append(f" over {labels}", "not bold")
    if "where" in query:
        title.append(f" where {query['where']}", "not bold")
    title.append(f": {query['mechanism']}", "not bold")
    yield title
    lines = {
        "noise": query["noise"] if query["noise"] != query["note"] else "",
        "note": query["note"],
        "rounding": query.get("rounding", ""),
        "memory": _memory(query),
        "promise": _loss(query["guarantee"]),
        "by": query["guarantee"]["theorem"],
        "reason": query["reason"],
        "others": "; ".join(_other(other, query["mechanism"], query["note"]) for other in query["alternatives"]),
    }
    for name, text in lines.items():
        if text:
            # Lines of a paragraph hang under its first, so that the next paragraph is found at a glance.
            yield Padding(_hanging(name, text), (0, 0, 0, 2))


def _hanging(name: str, text: str) -> Table:
    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_column(width=8, style="dim")
    line.add_column(overflow="fold")
    line.add_row(name, Text(text))
    return line


def _other(other: dict[str, Any], chosen: str, own_note: str) -> str:
    """A mechanism that was not chosen; where it differs in its noise plan alone, by this."""
    kind, noise_plan = _split(other["mechanism"])
    name = noise_plan if kind == _split(chosen)[0] else other["mechanism"]
    error = other["expected_error"]
    words = [
        other["note"] if other["note"] != own_note else "",
        _size(other["memory"]) if "memory" in other else "",
    ]
    note = f" ({'; '.join(filter(None, words))})" if any(words) else ""
    return f"{name} ±{_number(error['typical'])}, worst {_number(error['largest'])}{note}"


def _loss(guarantee: dict[str, Any]) -> str:
    """What answering one query loses, in words: a pure epsilon, or a rho with the chance of showing a rare label."""
    if "charges" in guarantee:
        rare = f", and a chance of {guarantee['bad']:.2g} to show a key of one user" if guarantee["bad"] else ""
        return f"a race of scale {guarantee['scale']:.4g} with {guarantee['charges']} clocks a user{rare}"
    if "pure" in guarantee:
        parts = f"{guarantee['pure']:.4g} pure for the cap, and rho = {guarantee['rho']:.4g} at whole orders"
        return f"{parts}, once for all queries that share the cap"
    if "epsilon" in guarantee:
        return f"{guarantee['epsilon']:.4g}-differential privacy, pure up to the distance of the drawn noise"
    rare = f", and a chance of {guarantee['bad']:.2g} to show a label of one event" if guarantee["bad"] else ""
    return f"approximate, rho = {guarantee['rho']:.4g} at whole orders{rare}"


def _size(size: int) -> str:
    """A size that may be a few bytes."""
    return f"{size:,} bytes" if size < 10_000 else mebibytes(size)


def _memory(query: dict[str, Any]) -> str:
    if query.get("memory") is None:
        return ""
    return f"about {mebibytes(query['memory'])} of the {mebibytes(query['allowed_memory'])} allowed"


def _split(mechanism: str) -> tuple[str, str]:
    """What a mechanism is and the noise plan it stands over, or twice its name."""
    kind, _, noise_plan = mechanism.rpartition(" over ")
    return kind or noise_plan, noise_plan


def _thresholds(threshold: dict[str, int] | None) -> str:
    if threshold is None:
        return "-"
    least, largest = f"{threshold['least']:,}", f"{threshold['largest']:,}"
    return least if least == largest else f"{least} to {largest}"


def _number(value: float) -> str:
    """Three digits, or whole numbers with commas where these have more."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
