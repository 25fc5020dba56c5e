"""Ten thousand durable ticks of old data, 100 events each: all four steps of a tick, on the disk.

`python -m benchmarks.backfill 1000` runs a thousand of them: once in groups, as a complete file is run, and once tick
by tick.
"""

import sys
import tempfile
import time
import unittest.mock
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measure import Row, show
from pianissimo.io.runs import run_durably
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.stream.spec import load_spec

TICKS = 10_000
EVENTS = 100
LONGEST_TICK = 5.0
_MINUTE = 60_000_000
_ORIGIN = datetime(2026, 1, 1, tzinfo=UTC)
_SPEC = f"""
[stream]
name = "shop"
epsilon = 1.0
delta = 1e-9
tick = "1m"
horizon = {{ticks}}
origin = {_ORIGIN.isoformat()}

[source]
path = "events.parquet"
time = "time"

[queries.purchases]
kind = "count"

[queries.drugs]
kind = "histogram"
key = "drug"
"""


def rows(ticks: int = TICKS) -> Iterator[Row]:
    """Both of the first eighth of the ticks; the bar is for all of them."""
    some = max(1, ticks // 8)
    grouped, alone = milliseconds_a_tick(some), milliseconds_a_tick(some, together=False)
    yield Row(
        what=f"{some:,} durable ticks of old data, {EVENTS} events each, sealed in groups",
        peer="tick by tick",
        ours=grouped,
        theirs=alone,
        unit="ms/tick",
        at_most=1.0,
    )
    yield Row(
        what=f"{ticks:,} durable ticks of old data, {EVENTS} events each",
        peer=f"{LONGEST_TICK:g} ms a tick",
        ours=milliseconds_a_tick(ticks),
        theirs=LONGEST_TICK,
        unit="ms/tick",
        at_most=1.0,
    )


def milliseconds_a_tick(ticks: int, *, together: bool = True) -> float:
    """Of time, and not of CPU alone: syncs are waited for."""
    apart = unittest.mock.patch.object(FileTicks, "old_until", 0)
    with tempfile.TemporaryDirectory() as folder, nullcontext() if together else apart:
        write_events(Path(folder), ticks)
        spec = load_spec(Path(folder) / "shop.toml")
        start = time.perf_counter()
        run_durably(spec, str(Path(folder) / "state"))
        return (time.perf_counter() - start) / ticks * 1e3


def write_events(folder: Path, ticks: int) -> None:
    rng = np.random.default_rng(9)
    times = np.sort(rng.integers(0, ticks * _MINUTE, ticks * EVENTS)) + int(_ORIGIN.timestamp()) * 1_000_000
    names = pl.Series("drug", [f"drug-{number:03}" for number in range(50)])
    table = pl.DataFrame({"drug": names.gather(rng.integers(0, 50, len(times))), "time": times})
    table.with_columns(pl.col("time").cast(pl.Datetime("us", "UTC"))).write_parquet(folder / "events.parquet")
    (folder / "shop.toml").write_text(_SPEC.format(ticks=ticks))


if __name__ == "__main__":
    sys.exit(0 if show([*rows(int(sys.argv[1]) if sys.argv[1:] else TICKS)]) else 1)
