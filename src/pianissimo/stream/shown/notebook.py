"""What a notebook shows: plans as tables, progress, and a word of warning where a cell spends a budget again.

Nothing here imports IPython where none is running. What is put into HTML is escaped: names and labels come from
outside.
"""

import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any

from pianissimo.errors import BudgetWarning
from pianissimo.queries.shared.expected import number_text

_STARTED: set[str] = set()
"""The names of streams that were started in this notebook."""

_STEPS_SHOWN = 50
"""How often at most a bar of progress is drawn."""


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this, which shows HTML."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return found is not None and getattr(found, "kernel", None) is not None


def warn_of_another_start(name: str) -> None:
    """Say that a cell was run again: its stream has fresh noise, and the same events cost the budget once more."""
    if not in_notebook():
        return
    if name in _STARTED:
        told = (
            f"stream {name!r} was started in this notebook before: over the same events this spends its epsilon again"
        )
        way_out = "keep the live stream in a cell of its own, or go on with a stored one: stream.open(...)"
        warnings.warn(f"{told}; {way_out}", BudgetWarning, stacklevel=3)
    _STARTED.add(name)


def progress_of(steps: Sequence[int], about: str, *, shown: bool) -> Iterable[int]:
    """The steps, with a bar that shows how many are done: in a terminal, or in a notebook's cell."""
    if shown and in_notebook():
        return _bar_in_a_cell(steps, about)
    from rich.progress import track

    return track(steps, about, disable=not shown)


def _bar_in_a_cell(steps: Sequence[int], about: str) -> Iterator[int]:
    shown: Any = import_module("IPython.display")

    def bar(done: int) -> Any:
        inner = f'<progress value="{done}" max="{len(steps)}"></progress> {done:,} of {len(steps):,} {escape(about)}'
        return shown.HTML(inner)

    handle = shown.display(bar(0), display_id=True)
    stride = max(1, len(steps) // _STEPS_SHOWN)
    for done, step in enumerate(steps, 1):
        yield step
        if done % stride == 0 or done == len(steps):
            handle.update(bar(done))


def plan_html(plan: Mapping[str, Any], promise: str) -> str:
    """The promise in words, a table with a row a query, and what else is said of each."""
    head = "".join(f"<p>{escape(line)}</p>" for line in promise.splitlines())
    names = ("query", "within", "at worst", "of the true", "shown from")
    rows = [f"<tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>", *map(_query_row, plan["queries"])]
    chance = f"{plan['coverage']:.0%}"
    how = f"<p>Within: half the width of the error bar, which holds the truth with a chance of {chance}.</p>"
    notes = [f"<p><b>{escape(each['name'])}</b>: {escape(' '.join(each['words'][1:]))}</p>" for each in plan["queries"]]
    told = (note for note, each in zip(notes, plan["queries"], strict=True) if each["words"][1:])
    return f"{head}<table>{''.join(rows)}</table>{how}{''.join(told)}"


def _query_row(query: Mapping[str, Any]) -> str:
    error, threshold = query["expected_error"], query["threshold"]
    unit = f" {query['error_unit']}" if "error_unit" in query else ""
    numbers = [f"{number_text(error[which])}{unit}" for which in ("typical", "largest")]
    shown = "" if threshold is None else f"{threshold['least']:,}"
    cells = (query["name"], *numbers, query["error_about"], shown)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
