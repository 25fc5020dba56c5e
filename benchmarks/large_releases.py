"""A release of a million rows: bytes and CPU of its payload, with Arrow parts against row by row."""

import sys
from collections.abc import Iterator

import numpy as np
import polars as pl

from benchmarks.measure import Row, cpu_seconds, show
from pianissimo.stream.release import StreamRelease, payload_of, release_of, row_by_row

ROWS = 1_000_000


def rows(count: int = ROWS) -> Iterator[Row]:
    random = np.random.default_rng(4)
    estimates = random.integers(100, 1_000_000, count)
    keys = [f"label-{number:08}" for number in range(count)]
    table = pl.DataFrame({"key": keys, "estimate": estimates, "low": estimates - 80, "high": estimates + 80})
    parted = payload_of(StreamRelease(1, 0.95, {"found": table}), stream="shop", incarnation=bytes(16))
    plain = row_by_row(parted)
    yield Row(
        what=f"payload of {count:.0e} rows, as Arrow parts",
        peer="row by row",
        ours=len(parted) / 1e6,
        theirs=len(plain) / 1e6,
        unit="MB",
        at_most=0.5,
    )
    yield Row(
        what=f"payload of {count:.0e} rows read back, as Arrow parts",
        peer="row by row",
        ours=cpu_seconds(lambda: release_of(parted)),
        theirs=cpu_seconds(lambda: release_of(plain)),
        unit="s",
        at_most=0.5,
    )


if __name__ == "__main__":
    sys.exit(0 if show([*rows(int(sys.argv[1]) if sys.argv[1:] else ROWS)]) else 1)
