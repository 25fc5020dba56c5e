"""The demo: a durable stream of generated events, shown on a screen and kept in a folder.

The folder has its plan, releases, windows and picture. Stopped or killed, the same command goes on where it was. In a
terminal the screen changes with every tick, else there is a line a tick and the last screen.
"""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import polars as pl
from rich.bar import Bar
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pianissimo.demo.pharmacy import SHOPS, Record, pharmacy_batches, pharmacy_stream
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.errors import InputError
from pianissimo.stream import StreamPlan, StreamRelease

__all__ = [
    "DemoFolder",
    "Record",
    "Screen",
    "check_demo",
    "is_demo",
    "open_demo",
    "pharmacy_batches",
    "pharmacy_stream",
    "read_demo",
    "summary",
]

_PLAN, _RELEASES, _WINDOWS, _PICTURE = "plan.json", "releases.jsonl", "windows.jsonl", "estimates.png"
_SCHEMA = {"tick": pl.Int64, "key": pl.String, "estimate": pl.Int64, "low": pl.Int64, "high": pl.Int64}


@contextmanager
def open_demo(out: Path, ticks: int, seed: int) -> Iterator[DurableStream]:
    """The stream of a demo that shows so many ticks of so seeded data; its state is gone once it has shown them all."""
    home = out / f".state-{ticks}-{seed}"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise InputError(f"{out} must be a folder that can be written, got: {fault.strerror}") from None
    with pharmacy_stream(ticks).open(home / "stream") as live:
        yield live
        done = live.tick_number >= ticks
    if done:
        shutil.rmtree(home)  # with the secret, the witness and the ledger, which lie beside the stream


class DemoFolder:
    """A folder that takes one demo, in the place of an earlier one. Releases of a real stream are left alone.

    >>> import tempfile
    >>> live = pharmacy_stream(1).start()
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with DemoFolder(Path(path), live.plan) as folder:
    ...         release = live.tick([{"drug": "ibuprofen", "shop": "Orchard"}] * 900)
    ...         folder.write(release, live.window("1h"))
    ...     read_demo(Path(path))["drugs"].columns
    ['tick', 'key', 'estimate', 'low', 'high']
    """

    def __init__(self, path: Path, plan: StreamPlan) -> None:
        check_demo(path)
        self.path = path
        self.plan = plan
        self.written = [path / _PLAN, path / _RELEASES, path / _WINDOWS]
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._releases, self._windows = (
                (path / name).open("w", encoding="utf-8") for name in (_RELEASES, _WINDOWS)
            )
            (path / _PLAN).write_text(plan.to_json() + "\n", encoding="utf-8")
        except OSError as fault:
            raise InputError(f"{path} must be a folder that can be written, got: {fault.strerror}") from None

    def write(self, release: StreamRelease, window: StreamRelease) -> None:
        """Add the release of one tick, and what the ticks of its window added."""
        self._releases.write(release.to_json() + "\n")
        self._windows.write(window.to_json() + "\n")

    def draw(self, record: Record) -> bool:
        """Draw the record, or return False where matplotlib, which is an extra, is not installed."""
        try:
            from pianissimo.demo.picture import plot_record
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] != "matplotlib":
                raise
            (self.path / _PICTURE).unlink(missing_ok=True)  # of an earlier demo
            return False
        plot_record(record, self.plan, self.path / _PICTURE)
        self.written.append(self.path / _PICTURE)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._releases.close()
        self._windows.close()


def check_demo(path: Path) -> None:
    """Refuse a folder that holds releases of a real stream."""
    if (path / _PLAN).exists() and not is_demo(path):
        raise InputError(f"{path} must be empty or hold an earlier demo, got other releases; choose another folder")


def is_demo(path: Path) -> bool:
    """Whether the folder holds a demo."""
    return (path / _RELEASES).is_file()


def read_demo(path: Path) -> dict[str, pl.DataFrame]:
    """The releases of a demo by query: tick, key (where labels are counted), estimate, low and high."""
    tables: dict[str, list[dict[str, Any]]] = {}
    try:
        for line in (path / _RELEASES).read_text(encoding="utf-8").splitlines():
            release = json.loads(line)
            for name, rows in release["releases"].items():
                tables.setdefault(name, []).extend({"tick": release["tick"]} | row for row in rows)
        # Only a histogram can have no rows: a count has one at every tick.
        return {name: pl.DataFrame(rows, None if rows else _SCHEMA) for name, rows in tables.items()}
    except (OSError, KeyError, TypeError, ValueError, pl.exceptions.PolarsError):
        raise InputError(f"{path / _RELEASES} must hold one release a line, got damaged text") from None


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
    """Shows a record as it grows."""

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
