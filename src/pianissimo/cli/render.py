"""What is printed: one place that makes tables, says how numbers and labels look, and draws a bar of progress."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click
import polars as pl
from rich.console import Console, Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from pianissimo.ledger.units import TOLD_UNITS
from pianissimo.stream.calendar import moment_text
from pianissimo.stream.shown.told_rows import NOT_SHOWN, OPEN_ENDS, number_shown, told_rows

_WIDTH_WITHOUT_TERMINAL = 120


def console(*, stderr: bool = False) -> Console:
    """A console on a standard stream, wide enough where no terminal says how wide it is."""
    made = Console(stderr=stderr)
    if not made.is_terminal:
        made.width = _WIDTH_WITHOUT_TERMINAL
    return made


def plain_table(title: str | None = None, *, left: Iterable[str] = (), right: Iterable[str] = ()) -> Table:
    """A table without lines: columns of texts, then columns of numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    table.padding = (0, 2, 0, 0)
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table


def facts(lines: Mapping[str, object]) -> Table:
    """Names and values, a line each."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in lines.items():
        table.add_row(name, Text("none" if value is None else str(value)))
    return table


def quoted(label: str) -> str:
    """A label as JSON writes it: on one line, and without codes that a terminal would follow."""
    return json.dumps(label, ensure_ascii=not label.isprintable())


def cell(value: object, column: str = "") -> Text:
    """A number or a label of a release, never read as markup."""
    if value is None:
        return Text(OPEN_ENDS.get(column, NOT_SHOWN), style="italic")
    if isinstance(value, float | int):
        return Text(number_shown(value))
    if isinstance(value, datetime):
        return Text(moment_text(value))
    text = value.hex() if isinstance(value, bytes) else str(value)
    return Text(text if text.isprintable() else quoted(text))


def frame_table(title: str | None, rows: pl.DataFrame) -> Table:
    """A table of a release as it is."""
    table = plain_table(title)
    for column, kind in rows.schema.items():
        table.add_column(column, justify="right" if kind.is_numeric() else "left")
    for row in rows.iter_rows():
        table.add_row(*map(cell, row, rows.columns))
    return table


def release_table(
    title: str | None,
    rows: pl.DataFrame,
    *,
    never_below_zero: bool = False,
    legend: str = "",
    query: Mapping[str, Any] | None = None,
) -> Group:
    """A table of a release, the largest estimates first; what cannot be told from noise has no order, and says so.

    Below it stands what its bars mean. It is given what a plan tells of its query, if one is known.
    """
    where = "--json has the numbers as they were released."
    shown, note = told_rows(rows, is_cut=never_below_zero, query=query, note=where)
    table = plain_table(title)
    for column, kind in rows.schema.items():
        table.add_column(column, justify="right" if kind.is_numeric() else "left")
    for row in shown:
        table.add_row(*(cell(value, name) for name, value in row.items()))
    return Group(table, *(Text(line, style="dim") for line in (note, legend) if line))


def rings_table(
    name: str,
    table: pl.DataFrame,
    ticks: range,
    exhausted: pl.DataFrame | None,
    *,
    legend: str = "",
    zone: str | None = None,
) -> Group:
    """When an alarm or a trend rang, most often never; and whether it may have been exhausted at the last tick."""
    first, last = ticks.start, ticks.stop - 1
    rows = table.filter(pl.col("tick").is_between(first, last))
    title = f"{name}, " + (f"tick {first}" if first == last else f"ticks {first} to {last}")
    if not rows.height:
        title += ": silent"
    most = 0 if exhausted is None else int(exhausted.filter(key=name, tick=last)["high"].sum())
    if most:
        title += f"; at tick {last} {silence(most)}"
    bare = rows.drop("end", "since", strict=False)
    if zone is not None and "start" in bare.columns:
        bare = bare.with_columns(pl.col("start").dt.convert_time_zone(zone))
    tables = [release_table(None, bare, never_below_zero=True, legend=legend)] if rows.height else []
    return Group(Text(title, style="bold"), *tables)


def silence(exhausted: int) -> str:
    """What it means that an alarm or a trend does not ring.

    >>> silence(0), silence(240)
    ('quiet', 'quiet or exhausted: up to 240 users may have no charge left')
    """
    return f"quiet or exhausted: up to {exhausted:,} users may have no charge left" if exhausted else "quiet"


def echo_ring(tick: int, query: str, row: Mapping[str, Any]) -> None:
    """Say that an alarm or a trend rang."""
    labels = [quoted(value) for name, value in row.items() if isinstance(value, str)]
    what = " ".join([query, *labels])
    whom = "users" if "cap" in row else "events"
    text = f"tick {tick}  {what}: about {row['estimate']} {whom} ({row['low']} to {row['high']})"
    # To sys.stdout as it is now: left to itself, click writes past the bar that may stand there.
    click.echo(text, file=sys.stdout)


@contextmanager
def progress_bar(unit: str = "ticks", *, hidden: bool = False) -> Iterator[Callable[..., None]]:
    """A bar on standard error, if a person watches. What is printed meanwhile comes above it."""
    terminal = console(stderr=True)
    behind = TextColumn("{task.fields[behind]}")
    columns = (TextColumn(unit), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), behind)
    # Redirected, standard output would reach the bar's console, and not the file or the program that it is for.
    redirect = sys.stdout.isatty()
    disable = hidden or not terminal.is_terminal
    with Progress(*columns, console=terminal, disable=disable, redirect_stdout=redirect) as bar:
        task = bar.add_task(unit, total=None, behind="")

        def advance(done: int, total: int, lag: int = 0) -> None:
            bar.update(task, completed=done, total=total, behind=f"{lag} behind" if lag else "")

        yield advance


def history_tables(content: Mapping[str, Any], *, explain: bool = False) -> Group:
    """The history of a ledger: the balance, the charges, and whether it is verified; explained, also in rho."""
    names = TOLD_UNITS | ({"rho": "rho", "bad": "bad mass"} if explain else {})
    units = [name for name in names if content["budget"].get(name) or content["spent"].get(name)]
    titles = [names[unit] for unit in units]
    balance = plain_table("Budget", left=[""], right=titles)
    for name in ("budget", "spent", "left"):
        balance.add_row(name, *(_amount(content[name].get(unit)) for unit in units))
    by_unit = content["spent_by_unit"]
    for hides, spent in by_unit.items() if len(by_unit) > 1 else ():
        balance.add_row(Text(f"of it, to hide one {_clean(hides)}"), *(_amount(spent.get(unit)) for unit in units))
    asked = plain_table("Charges", left=["when (UTC)", "who", "for"], right=titles)
    asked.add_column()
    for each in content["charges"]:
        texts = (_clean(each["time"])[:19].replace("T", " "), _clean(each["who"]), _clean(each["question"]))
        state = "" if each["settled"] else "never settled: charged in full"
        costs = (_amount(each["cost"].get(unit)) for unit in units)
        asked.add_row(*map(Text, texts), *costs, Text(state, style="dim"))
    notes = [f"{_clean(content['dataset']) or 'data set'}, in {content['place']}, since {_clean(content['created'])}"]
    if content["problem"]:
        notes.append(f"NOT VERIFIED: {content['problem']}")
    elif content["head"]:
        notes.append(f"verified; witness {content['head']}")
    if "epsilon" in units:
        notes.append(
            "note: a charge is told as if it were alone; several cost together at most their sum, so what is left is "
            "at least budget minus spent"
        )
        notes.append(
            "note: a ledger adds up losses in units of its own, and tells all of it at one delta; of one stream alone "
            "the epsilon and delta of its plan hold too"
        )
    notes.extend(f"note: {warning}" for warning in content["warnings"])
    return Group(balance, asked, Text("\n" + "\n".join(notes)))


def _amount(value: float | None) -> Text:
    return Text("-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4g}")


def _clean(text: str) -> str:
    # A store that was written by others may hold what a terminal would obey.
    return "".join(letter if letter.isprintable() else " " for letter in text)
