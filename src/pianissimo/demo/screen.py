"""The demo as text: in a terminal a screen that changes with every tick, else a line a tick and the last screen."""

import time
from types import TracebackType
from typing import Any, Self

import polars as pl
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pianissimo.demo.pharmacy import SHOPS, Record

TRUTH_NOTE = "The data are generated, so their truth may be shown too; a real stream never shows it."

_SECONDS_TO_WATCH = 6.0
_LONGEST_PAUSE = 0.2
_TICKS_NEW = 3
_LINES_AROUND_DRUGS = 12
_WIDTH_BESIDE = 112
"""From this width on the top list stands beside the drugs, else above them."""

_WIDTH_OF_NUMBERS = 68
_BAR = range(8, 25)


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
            self._console.print(tick_line(record, self._ticks), highlight=False, markup=False, soft_wrap=True)
            if record.tick == self._ticks:
                self._console.print(tick_screen(record, self._ticks, most_drugs=99, width=self._console.width))
            return
        self._live.start()  # does nothing the second time
        most = max(3, self._console.height - _LINES_AROUND_DRUGS)
        self._live.update(tick_screen(record, self._ticks, most, self._console.width), refresh=True)
        time.sleep(min(_LONGEST_PAUSE, _SECONDS_TO_WATCH / self._ticks))


def tick_line(record: Record, ticks: int) -> str:
    """The last tick in one line."""
    first = record.last("drugs").head(2).iter_rows(named=True)
    drugs = ", ".join(f"{row['key']} {row['estimate']:,}" for row in first) or "none yet"
    number = f"tick {record.tick:>{len(str(ticks))}} of {ticks}"
    return (
        f"{number}: purchases {_with_error(record.last('purchases'))}, {_window_name(record)} "
        f"{_with_error(record.last('window_purchases'))}; drugs shown {record.last('drugs').height}: {drugs}; "
        f"top shop {record.last('top_shops')['key'].item(0)}"
    )


def tick_screen(record: Record, ticks: int, most_drugs: int, width: int) -> RenderableType:
    """The last tick: the count, the top list, and at most `most_drugs` drugs, so far and in the window."""
    number = f"Tick {record.tick} of {ticks}"
    head = Text(f"\n{number}", style="bold")
    for name, table in (
        ("purchases so far", record.last("purchases")),
        (f"in the {_window_name(record)}", record.last("window_purchases")),
    ):
        head.append(f"   {name:19} {_with_error(table):>14}", style="not bold cyan")
        head.append(f"   truth {table['truth'].item():,}", style="not bold dim")
        if table is record.last("purchases"):
            head.append("\n" + " " * len(number))
    left = record.last("drugs").height - most_drugs
    foot = f"and {left} more; " if left > 0 else ""
    foot += f"* first shown within the last {_TICKS_NEW} ticks"
    end = (Text(), Text(foot, style="dim"))
    if width < _WIDTH_BESIDE:
        return Group(head, _top_line(record), Text(), _drug_table(record, most_drugs, width), *end)
    both = Table.grid(padding=(0, 4, 0, 0))
    beside = width - _WIDTH_BESIDE + _WIDTH_OF_NUMBERS
    both.add_row(_drug_table(record, most_drugs, beside), _top_table(record))
    return Group(head, Text(), both, *end)


def _drug_table(record: Record, most_drugs: int, width: int) -> Table:
    table = _plain_table()
    bar = min(max(_BAR), width - _WIDTH_OF_NUMBERS)
    table.add_column("\ndrug", min_width=16)
    for heading in ("so far", _window_name(record)):
        table.add_column(f"{heading}\nestimate", justify="right", min_width=8)
        table.add_column("\n±", justify="right", min_width=4)
        table.add_column("\ntruth", justify="right", min_width=6, style="dim")
    if bar in _BAR:
        table.add_column("")
    seen_before = set(record.all("drugs").filter(pl.col("tick") <= record.tick - _TICKS_NEW)["key"])
    in_window = {row["key"]: row for row in record.last("window_drugs").iter_rows(named=True)}
    drugs = record.last("drugs")
    largest = max([1, *drugs["estimate"].head(1)])
    for row in drugs.head(most_drugs).iter_rows(named=True):
        is_new = record.tick > _TICKS_NEW and row["key"] not in seen_before
        cells: list[RenderableType] = [
            Text(row["key"] + (" *" if is_new else ""), style="green" if is_new else ""),
            *_numbers(row),
            *_numbers(in_window[row["key"]]),
        ]
        if bar in _BAR:
            cells.append(Bar(largest, 0, max(0, row["estimate"]), width=bar, color="green" if is_new else "cyan"))
        table.add_row(*cells)
    return table


def _top_table(record: Record) -> Table:
    table = _plain_table()
    table.add_column(f"top {record.last('top_shops').height} of {len(SHOPS)}\nshop")
    table.add_column("so far\nestimate", justify="right")
    table.add_column("\n±", justify="right")
    table.add_column("\ntruth", justify="right", style="dim")
    for row in record.last("top_shops").iter_rows(named=True):
        table.add_row(row["key"], *_numbers(row))
    return table


def _top_line(record: Record) -> Text:
    shops = record.last("top_shops")
    names = ", ".join(f"{row['key']} {row['estimate']:,}" for row in shops.iter_rows(named=True))
    return Text(f"Top {shops.height} of {len(SHOPS)} shops: {names}, each ± {_error(shops.row(0, named=True)):,}")


def summary(record: Record) -> str:
    """What the demo has shown, in words."""
    intervals, held = record.intervals, record.intervals_that_held
    top = record.last("top_shops")["key"]
    right = len(set(top) & set(record.true_top_shops))
    return (
        f"{held} of the {intervals} released intervals held the truth ({held / intervals:.0%}). "
        f"Drugs shown: {record.last('drugs').height}; labels hidden: {record.hidden_labels:,}. "
        f"{right} of the {len(top)} shops listed are truly among the first {len(top)}."
    )


def _plain_table() -> Table:
    return Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))


def _numbers(row: dict[str, Any]) -> tuple[str, str, str]:
    return f"{row['estimate']:,}", f"{_error(row):,}", f"{row['truth']:,}"


def _with_error(table: pl.DataFrame) -> str:
    row = table.row(0, named=True)
    return f"{row['estimate']:,} ± {_error(row):,}"


def _error(row: dict[str, Any]) -> int:
    error: int = row["high"] - row["estimate"]
    return error


def _window_name(record: Record) -> str:
    return "last hour" if record.window_ticks == 1 else f"last {record.window_ticks} hours"
