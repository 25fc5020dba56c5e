"""S3: many keys in 4096 shards on one machine, and what is released.

Without noise the values are those of a stream that has its state whole. With noise the bytes are the same for one owner
of all shards and for seven, of whom one is lost.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.scale.cut_streams import ManyExecutors, SkewedKeys, begun, copy_of, opened, stream_of
from benchmarks.scale.figures import Figure, check
from pianissimo import Stream
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import Place
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.stream.release import release_of
from pianissimo.testing import NoNoise

SMALL, LARGE = (64, 20_000, 2), (4096, 10_000_000, 2)


def figures(*, small: bool) -> Iterator[Figure]:
    shards, count, ticks = SMALL if small else LARGE
    keys = SkewedKeys(count, max(count / 200, 5000))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, _ = _ran(_without_noise(stream_of(1), folder / "whole"), keys, ticks)
        cut, seconds = _ran(_without_noise(stream_of(shards), folder / "cut"), keys, ticks)
        rows = [_values(each) for each in whole]
        check(rows == [_values(each) for each in cut], "shards must count what one process counts")
        check(len(rows[-1]["key"]) > 0, "some labels must be shown")
        yield Figure(
            what=f"{count:,} keys in {shards} shards: labels shown, as unsharded", value=len(rows[-1]["key"]), unit=""
        )
        yield Figure(
            what="a key of the first tick, driver and shards together", value=seconds[0] / count * 1e9, unit="ns"
        )
        yield Figure(what="the last tick", value=seconds[-1], unit="s of CPU")
        stream = stream_of(shards)
        first = begun(stream, folder / "begun")
        with copy_of(first, "one") as copy:
            one, _ = _ran(opened(stream, copy), keys, ticks)
        workers = ManyExecutors(7)
        with copy_of(first, "seven") as copy:
            seven, _ = _ran(opened(stream, copy, workers=workers), keys, ticks, lost=workers)
        check(one == seven, "the bytes must be the same whoever has the shards")
        yield Figure(
            what="payload, a label shown", value=len(one[-1]) / max(1, len(_values(one[-1])["key"])), unit="bytes"
        )


def _without_noise(stream: Stream, folder: Path) -> DurableStream:
    folder.mkdir()
    chosen = Options(make_noise=lambda _: NoNoise())
    return DurableStream(Request(stream), Place.of(folder / "state").wired(None), chosen)


def _ran(
    live: DurableStream, keys: SkewedKeys, ticks: int, lost: ManyExecutors | None = None
) -> tuple[list[bytes], list[float]]:
    """What was released, and the CPU seconds of each tick."""
    seconds = []
    with live:
        for events in keys.frames(ticks):
            if lost is not None:
                lost.lose(3)
            begin = time.process_time()
            live.tick(events)
            seconds.append(time.process_time() - begin)
        return [live.payload(tick) for tick in range(1, ticks + 1)], seconds


def _values(payload: bytes) -> dict[str, Any]:
    table = release_of(payload)["found"]
    return {"key": table["key"].to_list(), "estimate": table["estimate"].to_list()}
