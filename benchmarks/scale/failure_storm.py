"""S7: a storm in which one executor is lost at each tick, with all that it remembers: the same bytes, at what cost."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.scale.cut_streams import ManyExecutors, SkewedKeys, begun, copy_of, opened, stream_of
from benchmarks.scale.figures import Figure, check
from pianissimo import Stream

SMALL, LARGE = (16, 4, 2_000, 12), (256, 64, 100_000, 1440)
"""Shards, executors, keys and ticks."""


def figures(*, small: bool) -> Iterator[Figure]:
    shards, executors, count, ticks = SMALL if small else LARGE
    stream, keys = stream_of(shards), SkewedKeys(count, count / 30)
    with tempfile.TemporaryDirectory() as name:
        folder = begun(stream, Path(name) / "begun")
        with copy_of(folder, "calm") as copy:
            calm, own, none = _ran(stream, copy, keys, ticks, executors, storm=False)
        with copy_of(folder, "storm") as copy:
            storm, again, loads = _ran(stream, copy, keys, ticks, executors, storm=True)
    check(calm == storm, "a storm must change no byte")
    check(none == 0 and loads > 0, "shards must be loaded again where they are lost, and nowhere else")
    yield Figure(
        what=f"{shards} shards on {executors} executors, one lost a tick: equal payloads", value=ticks, unit=""
    )
    yield Figure(what="shards made again", value=loads / ticks, unit="a tick")
    yield Figure(what="a tick in calm", value=own / ticks, unit="s of CPU")
    yield Figure(what="a tick in the storm", value=again / ticks, unit="s of CPU")
    yield Figure(what="a shard made again", value=(again - own) / loads * 1e3, unit="ms of CPU")


def _ran(
    stream: Stream, folder: Path, keys: SkewedKeys, ticks: int, executors: int, *, storm: bool
) -> tuple[list[bytes], float, int]:
    """What was released, CPU seconds, and how many shards were loaded after the first tick."""
    workers, loads, seconds = ManyExecutors(executors), 0, 0.0
    with opened(stream, folder, workers=workers) as live:
        for tick, events in enumerate(keys.frames(ticks), 1):
            if storm and tick > 1:
                workers.lose(tick % executors)
            before = sum(owner.loads for owner in workers.owners)
            begin = time.process_time()
            live.tick(events)
            seconds += time.process_time() - begin
            loads += sum(owner.loads for owner in workers.owners) - before if tick > 1 else 0
        return [live.payload(tick) for tick in range(1, ticks + 1)], seconds, loads
