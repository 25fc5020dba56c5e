"""S6: what shards ask of the place of their blobs: how many are written at a tick, how large, and what is garbage."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale.cut_streams import SkewedKeys, opened, stream_of
from benchmarks.scale.figures import Figure, check
from pianissimo.storage.blobs import BlobFolder, BlobName

SMALL, LARGE = (32, 4_000), (4096, 400_000)
TICKS, EVERY = 18, 8


class CountedBlobs:
    """Blobs, with a count of all that is asked of them."""

    def __init__(self, blobs: BlobFolder) -> None:
        self._blobs = blobs
        self.puts = self.gets = self.bytes = 0
        self.seconds = 0.0
        self.there: dict[int, set[BlobName]] = {}

    def put(self, tick: int, contents: Mapping[BlobName, bytes]) -> None:
        begin = time.perf_counter()
        self._blobs.put(tick, contents)
        self.seconds += time.perf_counter() - begin
        self.puts += len(contents)
        self.bytes += sum(map(len, contents.values()))
        self.there.setdefault(tick, set()).update(contents)

    def get(self, name: BlobName) -> bytes:
        self.gets += 1
        return self._blobs.get(name)

    def ticks(self) -> list[int]:
        return self._blobs.ticks()

    def remove(self, tick: int, kept: frozenset[BlobName] = frozenset()) -> None:
        self._blobs.remove(tick, kept)
        self.there[tick] = set(kept)


def figures(*, small: bool) -> Iterator[Figure]:
    shards, count = SMALL if small else LARGE
    written, stored = list[tuple[int, int]](), list[tuple[int, int]]()
    most, garbage = 0, 0.0
    with tempfile.TemporaryDirectory() as name, opened(stream_of(shards), Path(name), snapshot_every=EVERY) as live:
        core: Any = live._core
        blobs = core._owner.blobs = CountedBlobs(core._owner.blobs)
        for tick, events in enumerate(SkewedKeys(count, count / 30).frames(TICKS), 1):
            before = blobs.puts, blobs.bytes
            live.tick(events)
            (written if tick % EVERY else stored).append((blobs.puts - before[0], blobs.bytes - before[1]))
            check(
                blobs.puts - before[0] <= shards * (1 if tick % EVERY else 2), "a shard must store one of a kind a tick"
            )
            there = sum(map(len, blobs.there.values()))
            needed = sum((each.state is not None) + len(each.deltas) for each in core._shards.values())
            check(needed <= there <= 2 * shards * (EVERY + 1), "blobs must be those of two stored states at most")
            most, garbage = max(most, there), max(garbage, 1 - needed / there)
        on_disk = sum(1 for path in Path(name).glob("state.shards/*/*/*"))
        check(on_disk == sum(map(len, blobs.there.values())), "what is on the disk must be what was counted")
    for what, some in (("a tick", written), ("a tick with states", stored)):
        puts, size = np.mean(some, axis=0).tolist()
        yield Figure(what=f"{shards} shards, PUTs of {what}", value=puts, unit="")
        yield Figure(what=f"bytes of a blob of {what}", value=size / puts, unit="on average")
    yield Figure(what="a PUT on this disk, synced", value=blobs.seconds / blobs.puts * 1e3, unit="ms on the wall")
    yield Figure(what="GETs a tick", value=blobs.gets / TICKS, unit="")
    yield Figure(what="blobs there at most, a shard", value=most / shards, unit="")
    yield Figure(what="of them garbage, at most", value=garbage * 100, unit="%")
