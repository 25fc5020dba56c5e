"""Time things side by side, by CPU, and say how they compare."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison: ours against a peer's, and what must hold of the ratio."""

    what: str
    peer: str
    ours: float
    theirs: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def holds(self) -> bool:
        return (self.at_most is None or self.ratio <= self.at_most) and (
            self.at_least is None or self.ratio >= self.at_least
        )

    @property
    def bar(self) -> str:
        return f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"


def as_installed(folder: Path | str) -> dict[str, str]:
    """The environment of a process whose modules are compiled once, into a folder, as where a package is installed."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return own | {"PYTHONPYCACHEPREFIX": str(folder)}


def cpu_seconds(action: Callable[[], object]) -> float:
    """Of this process: other processes do not count."""
    start = time.process_time()
    action()
    return time.process_time() - start


def best_cpu_seconds(action: Callable[[], object], repeats: int = 5) -> float:
    """The best of several runs, after one that does not count."""
    action()
    return min(cpu_seconds(action) for _ in range(repeats))


def show(rows: list[Row]) -> bool:
    """A table of the rows; whether all hold."""
    table = Table(title="Pianissimo against its peers, in one run on this machine")
    for column in ("what", "ours", "peer", "theirs", "ratio", "must be", ""):
        table.add_column(column, justify="left" if column in ("what", "peer") else "right")
    for row in rows:
        verdict = "[green]holds[/]" if row.holds else "[red]fails[/]"
        numbers = (
            f"{row.ours:.3g} {row.unit}",
            row.peer,
            f"{row.theirs:.3g} {row.unit}",
            f"{row.ratio:.3g}",
            row.bar,
        )
        table.add_row(row.what, *numbers, verdict)
    Console(width=150).print(table)
    return all(row.holds for row in rows)
