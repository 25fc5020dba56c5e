"""A stream over shards: what a tick costs beside one that has its state whole, and what one that lost its shards does.

`python -m benchmarks lost_shards`. The releases with and without the loss are compared byte by byte.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.measure import Row, cpu_seconds
from pianissimo import Budget, Histogram, Stream
from pianissimo.durable.durable_stream import DurableStream

EVENTS, LABELS, SHARDS, TICKS = 400_000, 200_000, 64, 7
LOST_AT = 6
"""Five ticks after the beginning: so many are made again."""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, _ = ran(begun(1, folder / "whole"), folder / "whole")
        stream = begun(SHARDS, folder / "begun")
        shutil.copytree(folder / "begun", folder / "lost")
        sharded, kept = ran(stream, folder / "begun")
        resumed, again = ran(stream, folder / "lost", lost_at=LOST_AT)
    if kept != again:
        raise RuntimeError("a release must be the same where shards were lost, got another")
    yield Row(
        what=f"a tick of {LABELS:.0e} labels in {SHARDS} shards, one process: CPU",
        peer="the same stream without shards",
        ours=sharded[-1],
        theirs=whole[-1],
        unit="s",
        at_most=4,
    )
    yield Row(
        what=f"that tick where all {SHARDS} shards were lost, five ticks after the beginning: the same bytes; CPU",
        peer="with them at hand",
        ours=resumed[LOST_AT - 1],
        theirs=sharded[LOST_AT - 1],
        unit="s",
        at_most=8,
    )


def begun(shards: int, folder: Path) -> Stream:
    """A stream that has begun, to be copied: both copies have the same noise."""
    queries = [Histogram("found", key="label")]
    made = Stream("s", budget=Budget(1, 1e-9), horizon=1024, queries=queries, shards=shards)
    folder.mkdir()
    opened(made, folder).close()
    return made


def opened(stream: Stream, folder: Path) -> DurableStream:
    return stream.open(folder / "state", snapshot_every=64)


def ran(stream: Stream, folder: Path, lost_at: int = 0) -> tuple[list[float], list[bytes]]:
    """The CPU seconds of each tick, and what was released."""
    seconds = []
    random = np.random.default_rng(3)
    names = pl.Series("label", [f"label-{number:07}" for number in range(LABELS)])
    with opened(stream, folder) as live:
        for tick in range(1, TICKS + 1):
            events = pl.DataFrame({"label": names.gather(random.integers(0, LABELS, EVENTS))})
            if tick == lost_at:
                core: Any = live._core
                core._owner._states.clear()
            seconds.append(cpu_seconds(lambda events=events: live.tick(events)))  # type: ignore[misc]
        return seconds, [live.payload(tick) for tick in range(1, TICKS + 1)]
