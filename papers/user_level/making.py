"""How a table is made: streams, records, runs, files."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
from rich.console import Console

from papers.user_level.data import Users, Values
from papers.user_level.drawing import draw
from papers.user_level.record import Record
from papers.user_level.sheet import OURS, PLANNED, Column, Profile, Sheet, cell, compare_with_real

Stream = tuple[Users, Values | None]
_WIDTH = 132


def make_all_records(
    sheet: Sheet,
    make_data: Callable[[Column], Stream],
    make_record: Callable[[Column, Users, Values | None], Record],
    *,
    real: bool,
) -> Iterator[tuple[Column, Record]]:
    """Stream by stream; with `real`, runs of the mechanisms over it are compared with their replays."""
    for column in sheet.columns:
        begin = time.perf_counter()
        users, values = make_data(column)
        recorded = make_record(column, users, values)
        counts = np.bincount(users)
        told = f"{column.name}: {len(users):,} items of {len(counts):,} users, the largest has {counts.max()}"
        if real:
            rows = OURS if column.kind == "count" else (PLANNED,)
            for row in rows:
                compare_with_real(row, column, recorded, users, values)
            told += f"; runs of {len(rows)} mechanisms, each number as replayed"
        click.echo(f"{told}; {time.perf_counter() - begin:.0f} s")
        yield column, recorded


def make_table(sheet: Sheet, records: dict[Column, Record], runs: int, title: str, out: Path | None) -> None:
    """Show the table; with a folder, also write CSV, picture and records."""
    rows = (*sheet.laws, *OURS)
    profiles: dict[str, dict[str, Profile]] = {row: {} for row in rows}
    for column in sheet.columns:
        for row in rows:
            profiles[row][column.name] = sheet.profile(row, column, records, runs)
    cells = sheet.printed_cells() | {
        row: {name: cell(profile) for name, profile in found.items()} for row, found in profiles.items()
    }
    console = Console(width=_WIDTH)
    for part in sheet.show(cells, title):
        console.print(part)
    if out is not None:
        sheet.write_records(records, out)
        sheet.write_cells(cells, out)
        draw(sheet, profiles, out / f"{sheet.name}.png")
