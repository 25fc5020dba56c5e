"""`live.tick` on a million rows of text keys, against the plain group-by of the same batch."""

from collections.abc import Iterator

import numpy as np
import polars as pl

import pianissimo as pp
from benchmarks.measure import Row, best_seconds

ROWS = 1_000_000


def rows() -> Iterator[Row]:
    random = np.random.default_rng(1)
    for distinct, bar in ((10_000, 2.0), (100_000, 2.0)):
        names = np.array([f"drug-{number:06d}" for number in range(distinct)])
        frame = pl.DataFrame({"drug": names[random.integers(0, distinct, ROWS)]})
        stream = pp.Stream(
            "bench",
            budget=pp.Budget(epsilon=1.0, delta=1e-9),
            horizon=2**20,
            queries=[pp.Histogram("drugs", key="drug")],
        )
        live = stream.start()
        ours = best_seconds(lambda live=live, frame=frame: live.tick(frame))  # type: ignore[misc]
        theirs = best_seconds(lambda frame=frame: frame.group_by("drug").len())  # type: ignore[misc]
        yield Row(
            what=f"live.tick of 1e6 rows, {distinct:,} distinct texts",
            peer="polars group_by().len()",
            ours=ours * 1e3,
            theirs=theirs * 1e3,
            unit="ms",
            at_most=bar,
        )
