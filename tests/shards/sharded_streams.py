"""Small streams over shards, their events, and all that they publish."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import pianissimo as pp
from pianissimo.durable import failpoints
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.noise import Secret

SECRET = Secret(bytes(range(32)))
TICKS = 4


def stream_of(shards: int, unit: Any = "event", **changed: Any) -> pp.Stream:
    """Every kind of question that shards can answer."""
    queries: list[Any] = [
        pp.Count("n"),
        pp.Sum("spent", value="amount", range=(0, 10)),
        pp.Histogram("listed", key="label", domain=["a", "b"]),
    ]
    if unit == "event":
        queries += [
            pp.Histogram("found", key="label", other=True),
            pp.Histogram("now_and_then", key="label", every=2),
            pp.TopK("top", key="label", k=3),
            pp.Mean("mean", value="amount", range=(0, 10), key="label"),
            # What follows is with the driver.
            pp.TopK("of_listed", key="label", k=1, domain=["a", "b"]),
            pp.MaxFrequency("largest", key="label", domain=["a", "b"]),
            pp.Quantiles("middle", value="amount", range=(0, 16), cells=16),
            pp.Distinct("different", key="label"),
            pp.HeavyHitters("heavy", key="label", k=8),
            pp.Trending("new", key="label", threshold=50),
            pp.Alarm("many", where="amount > 8", threshold=50),
        ]
    else:
        queries += [
            pp.Histogram("found", key="label"),
            pp.Histogram("now_and_then", key="label", every=2),
            pp.Histogram("holders", key="label", count="users"),
            pp.Histogram("of_listed", key="label", domain=["a", "b"], count="users"),
            pp.Mean("mean", value="amount", range=(0, 10), key="label"),
            pp.Sum("total", value="amount", range=(-3, 10), key="label"),
        ]
    settings = {"budget": pp.Budget(8, 1e-6), "horizon": 16, "queries": queries, "unit": unit} | changed
    return pp.Stream("s", shards=shards, **settings)


USERS = pp.user("user", first_cap=2, caps=5, cap_share=0.9)
"""With a cap that follows: it is raised at the first ticks, for sure."""


def events(tick: int) -> pl.DataFrame:
    random = np.random.default_rng(tick)
    count = 900
    return pl.DataFrame(
        {
            "user": random.integers(0, 300, count),
            "label": random.choice(["a", "b", "c", "d", f"new {tick}", "z", *(f"rare {n}" for n in range(6))], count),
            "amount": random.integers(0, 11, count),
        }
    )


def opened(stream: pp.Stream, folder: Path, workers: Any = None, **options: Any) -> DurableStream:
    chosen = Options(**{"snapshot_every": 2, "workers": workers, **options})
    return DurableStream(Request(stream), wire(folder / "state", secret=SECRET), chosen)


def begun(stream: pp.Stream, folder: Path) -> Path:
    """A stream that has begun, to be copied: each copy has the same noise over the same events."""
    folder.mkdir(parents=True)
    opened(stream, folder).close()
    return folder


def payloads(
    stream: pp.Stream,
    folder: Path,
    *workers: Any,
    last: int = TICKS,
    reopened: bool = False,
    table: Callable[[pl.DataFrame], Any] | None = None,
    **options: Any,
) -> list[bytes]:
    """All of a copy of a stream; with several workers another at each tick; batches as `table` has them."""
    given = table or (lambda rows: rows)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        copy = Path(shutil.copytree(folder, name, dirs_exist_ok=True))
        live = opened(stream, copy, workers[0] if workers else None, **options)
        try:
            for tick in range(1, last + 1):
                if tick > 1 and (reopened or len(workers) > 1):
                    live.close()
                    live = opened(stream, copy, workers[(tick - 1) % len(workers)] if workers else None, **options)
                live.add(given(events(tick)[:300]))
                live.tick(given(events(tick)[300:]))
            return [live.payload(tick) for tick in range(1, last + 1)]
        finally:
            live.close()


class Killed(BaseException):
    """What ends the driver, in the place of a signal."""


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    """The driver ends at a named place."""

    def act(_: str) -> None:
        raise Killed

    before, failpoints._armed = failpoints._armed, {point: act}
    try:
        with pytest.raises(Killed):
            yield
    finally:
        failpoints._armed = before
