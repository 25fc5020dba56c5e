"""The demo as text: a table that changes with every tick in a terminal, and one line a tick elsewhere."""

import time
from types import TracebackType
from typing import Self

import polars as pl
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pianissimo.demo.record import Record

TRUTH_NOTE = "The data are generated, so their truth may be shown too; a real stream never shows it."

_SECONDS_TO_WATCH = 6.0
_LONGEST_PAUSE = 0.2
_LINES_AROUND_DRUGS = 8
_TICKS_NEW = 3


class Screen:
    """Shows a record as it grows.

    >>> import io
    >>> with Screen(Console(file=io.StringIO()), ticks=30) as screen:
    ...     screen.is_live
    False
    """

    def __init__(self, console: Console, *, ticks: int) -> None:
        self._console = console
        self._ticks = ticks
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    @property
    def is_live(self) -> bool:
        """Whether a person watches."""
        return self._live is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()  # does nothing if nothing was shown

    def show(self, record: Record) -> None:
        """Show the record's last tick, and leave a person the time to see it."""
        if self._live is None:
            self._console.print(tick_line(record, self._ticks), highlight=False, markup=False)
            return
        self._live.start()  # does nothing the second time
        most = max(3, self._console.height - _LINES_AROUND_DRUGS)
        self._live.update(tick_table(record, self._ticks, most), refresh=True)
        time.sleep(min(_LONGEST_PAUSE, _SECONDS_TO_WATCH / self._ticks))


def tick_line(record: Record, ticks: int) -> str:
    """The last tick in one line."""
    first = record.last_drugs.head(3).iter_rows(named=True)
    top = ", ".join(f"{row['key']} {row['estimate']:,}" for row in first) or "none yet"
    number = f"tick {record.tick:>{len(str(ticks))}} of {ticks}"
    return f"{number}: purchases {_count_of(record)}; drugs shown {record.last_drugs.height}: {top}"


def tick_table(record: Record, ticks: int, most_drugs: int) -> RenderableType:
    """The last tick as a table of at most `most_drugs` drugs, the most bought ones first."""
    head = Text(f"\nTick {record.tick} of {ticks}", style="bold")
    head.append(f"   purchases so far {_count_of(record)}", style="cyan")
    head.append(f"   truth {record.last_purchases['truth'].item():,}", style="dim")
    drugs = record.last_drugs
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("drug", min_width=16)
    table.add_column("estimate", justify="right", min_width=8)
    table.add_column("low", justify="right", min_width=6)
    table.add_column("high", justify="right", min_width=6)
    table.add_column("truth", justify="right", min_width=6, style="dim")
    table.add_column("")
    seen_before = set(record.drugs.filter(pl.col("tick") <= record.tick - _TICKS_NEW)["key"])
    largest = max([1, *drugs["estimate"].head(1)])
    for row in drugs.head(most_drugs).iter_rows(named=True):
        is_new = record.tick > _TICKS_NEW and row["key"] not in seen_before
        table.add_row(
            Text(row["key"] + (" *" if is_new else ""), style="green" if is_new else ""),
            *(f"{row[column]:,}" for column in ("estimate", "low", "high", "truth")),
            Bar(largest, 0, max(0, row["estimate"]), width=30, color="green" if is_new else "cyan"),
        )
    left = drugs.height - most_drugs
    foot = f"and {left} more; " if left > 0 else ""
    foot += f"* first shown within the last {_TICKS_NEW} ticks"
    return Group(head, Text(), table, Text(), Text(foot, style="dim"))


def summary(record: Record) -> str:
    """What the demo has shown, in words."""
    intervals, held = record.intervals, record.intervals_that_held
    return (
        f"{held} of the {intervals} released intervals held the truth ({held / intervals:.0%}). "
        f"Labels shown: {record.last_drugs.height}; hidden: {record.hidden_labels:,}."
    )


def _count_of(record: Record) -> str:
    row = record.last_purchases.row(0, named=True)
    return f"{row['estimate']:,} ± {row['high'] - row['estimate']:,}"
