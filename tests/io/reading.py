"""The rows of a spec's files, all at once; and the lines of a stream file that many tests share."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from pianissimo.io.sources.event_files import CheckedRows, RowChecker, find_files
from pianissimo.stream.spec import StreamSpec


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
