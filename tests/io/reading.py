"""The rows of a spec's files, all at once; and a stream file that many tests share."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from pianissimo.io.sources.event_files import CheckedRows, RowChecker, find_files
from pianissimo.stream.spec import StreamSpec

_SPEC = """
[stream]
name = "s"
epsilon = 1
delta = 1e-9
tick = "1h"
horizon = 24
origin = 2026-01-05
[source]
{source}
[queries.n]
kind = "count"
"""


def write_count(folder: Path, source: str = "", *, path: str | None = "events.csv") -> Path:
    """A stream file of one count, with these lines in [source]; of a file, unless they say which source it is."""
    of_file = "" if path is None else f'path = "{path}"\ntime = "time"\n'
    (folder / "s.toml").write_text(_SPEC.format(source=of_file + source))
    return folder / "s.toml"


def read_rows(spec: StreamSpec) -> CheckedRows:
    """All rows that can be counted, by tick, and the lines that cannot."""
    checker = RowChecker(spec)
    return checker.sorted(
        piece for path, form in find_files(checker.source) for piece in checker.read_whole(path, form)
    )


def by_tick(rows: CheckedRows, last_tick: int) -> Iterator[pl.DataFrame]:
    """The rows of tick 1, of tick 2, and so on."""
    edges = np.searchsorted(rows.ticks, np.arange(1, last_tick + 2)).tolist()
    return (rows.table[edges[tick - 1] : edges[tick]] for tick in range(1, last_tick + 1))
