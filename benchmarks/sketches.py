"""Misra-Gries sketches: keys a second against datasketches' frequent items, plain Python, and a full group-by."""

import importlib.util
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.measure import Row, best_cpu_seconds
from pianissimo.sketches import MisraGries, merge_in_order

KEYS = 10_000_000
NAIVE_KEYS = 50_000
UNIVERSE = 10_000_000
PIECE = 65_536
SKETCHES = 1000
LARGEST_K = 4096

Column = NDArray[np.int64] | pl.Series


@cache
def numbers(stream: str) -> NDArray[np.int64]:
    random = np.random.default_rng(7)
    return random.zipf(1.1, KEYS) if stream == "Zipf" else random.integers(0, UNIVERSE, KEYS)


@cache
def texts(stream: str) -> pl.Series:
    return pl.Series("key", numbers(stream)).cast(pl.String)


def column_of(stream: str, kind: str) -> Column:
    return numbers(stream) if kind == "int64" else texts(stream)


def sketch_of(column: Column, k: int) -> MisraGries:
    sketch = MisraGries(k)
    sketch.update(column)
    return sketch


def sketch_seconds(column: Column, k: int) -> float:
    return best_cpu_seconds(lambda: sketch_of(column, k), repeats=5)


def objects(column: Column) -> Iterator[list[int] | list[str]]:
    """Python's numbers or texts, some at a time, so that they stay in the cache: faster than all at once."""
    for start in range(0, len(column), PIECE):
        piece = column[start : start + PIECE]
        yield piece.to_list() if isinstance(piece, pl.Series) else piece.tolist()


def datasketches_seconds(column: Column, k: int) -> float:
    """One call for each key is all it offers; of its two sketches the one for objects is faster, for texts too."""
    import datasketches

    def feed() -> float:
        # The smallest table with k counters: three quarters of a power of two are used.
        sketch = datasketches.frequent_items_sketch((k * 4 // 3).bit_length())
        start = time.process_time()
        for piece in objects(column):
            deque(map(sketch.update, piece), maxlen=0)
        return time.process_time() - start

    return min(feed(), feed())


class PlainMisraGries:
    """Algorithm 1 as it is written down, in a dictionary."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.counts: dict[object, int] = {}
        self.zeros: set[object] = set()

    def update(self, keys: Iterable[object]) -> None:
        for key in keys:
            if key in self.counts:
                self.counts[key] += 1
                self.zeros.discard(key)
            elif len(self.counts) < self.k:
                self.counts[key] = 1
            elif self.zeros:
                smallest = min(self.zeros)  # type: ignore[type-var]
                self.zeros.remove(smallest)
                del self.counts[smallest]
                self.counts[key] = 1
            else:
                for stored in self.counts:
                    self.counts[stored] -= 1
                self.zeros = {stored for stored, count in self.counts.items() if count == 0}


def plain_seconds(column: Column, k: int) -> float:
    keys = [key for piece in objects(column[:NAIVE_KEYS]) for key in piece]
    start = time.process_time()
    PlainMisraGries(k).update(keys)
    return time.process_time() - start


def group_by_seconds(stream: str, kind: str) -> float:
    """In a process of its own, as polars takes its number of threads at the start."""
    words = f"from benchmarks.sketches import group_by; print(group_by({stream!r}, {kind!r}))"
    environment = os.environ | {"POLARS_MAX_THREADS": "1"}
    command = [sys.executable, "-c", words]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


def group_by(stream: str, kind: str) -> float:
    frame = pl.DataFrame({"key": column_of(stream, kind)})
    return best_cpu_seconds(lambda: frame.group_by("key").len(), repeats=2)


def merge_seconds(kind: str) -> float:
    pieces = np.split(numbers("Zipf")[: SKETCHES * 10_000], SKETCHES)
    sketches = [sketch_of(pl.Series(piece).cast(pl.String) if kind == "text" else piece, LARGEST_K) for piece in pieces]
    return best_cpu_seconds(lambda: merge_in_order(sketches), repeats=2)


def overhead(column: Column, k: int) -> float:
    """Bytes a counter beside the stored keys."""
    sketch = sketch_of(column, k)
    keys = sketch.contents().keys
    held = 8 * len(keys) if keys.dtype == pl.Int64 else sum(len(key.encode()) for key in keys.to_list())
    return (sketch.memory - held) / k


def rows() -> Iterator[Row]:
    has_peer = importlib.util.find_spec("datasketches") is not None
    for kind, factor in (("int64", 6), ("text", 3)):
        for k in (256, LARGEST_K):
            seconds = {stream: sketch_seconds(column_of(stream, kind), k) for stream in ("Zipf", "flat")}
            for stream, ours in seconds.items():
                column = column_of(stream, kind)
                name = f"sketch of {stream} {kind} keys, k={k}"
                if has_peer:
                    yield Row(
                        what=name,
                        peer="datasketches frequent items, fed key by key",
                        ours=KEYS / ours,
                        theirs=KEYS / datasketches_seconds(column, k),
                        unit="keys/s",
                        at_least=factor,
                    )
                yield Row(
                    what=name,
                    peer=f"Algorithm 1 in plain Python, {NAIVE_KEYS} keys",
                    ours=KEYS / ours,
                    theirs=NAIVE_KEYS / plain_seconds(column, k),
                    unit="keys/s",
                    at_least=20,
                )
                if k == LARGEST_K:
                    yield Row(
                        what=name,
                        peer="polars group_by count, one thread",
                        ours=ours,
                        theirs=group_by_seconds(stream, kind),
                        unit="s",
                        at_most=1.5,
                    )
            yield Row(
                what=f"sketch of flat {kind} keys, k={k}",
                peer="the same on Zipf keys",
                ours=seconds["flat"],
                theirs=seconds["Zipf"],
                unit="s",
                at_most=2,
            )
        yield Row(
            what=f"merge of {SKETCHES} sketches of {kind} keys, k={LARGEST_K}",
            peer="one second",
            ours=merge_seconds(kind),
            theirs=1,
            unit="s",
            at_most=1,
        )
        for stream in ("Zipf", "flat"):
            yield Row(
                what=f"sketch of {stream} {kind} keys, k={LARGEST_K}, beside the keys",
                peer="the bar",
                ours=overhead(column_of(stream, kind), LARGEST_K),
                theirs=64,
                unit="bytes a counter",
                at_most=1,
            )
    numbers.cache_clear()
    texts.cache_clear()
