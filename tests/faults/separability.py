"""S1: what one user adds or takes away moves nobody else's counts, through all that cuts, judges, counts and seals."""

import contextlib
import json
import random
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import polars as pl
from tests.faults.disk import Disk
from tests.faults.simulator import SECRET, SimulatedLedger, SimulatedWitness

from pianissimo import Budget, Count, Histogram, Stream, Sum, TopK, user
from pianissimo.durable.charging import LedgerPlace
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import Wiring
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.io.sources.event_files import FileTicks
from pianissimo.queries import Query
from pianissimo.storage.sqlite import SqliteConnection
from pianissimo.stream.batches import as_frame, query_inputs
from pianissimo.stream.live_core import LiveCore, LivePart
from pianissimo.stream.release import release_of
from pianissimo.stream.source_spec import FileSource
from pianissimo.stream.spec import StreamSpec
from pianissimo.testing import NoNoise

KEYS = ["a", "b", "c", "d", "e"]
BOUNDS: list[tuple[Query, tuple[int, int]]] = [
    (Count("n"), (1, 1)),
    (Sum("revenue", value="price", range=(-7, 500), grid=1), (1, 500)),
    (Histogram("drugs", key="drug"), (1, 1)),
    (Histogram("many", key="many", max_keys_per_event=2), (2, 1)),
    (Histogram("known", key="many", domain=KEYS[:3], max_keys_per_event=3), (3, 1)),
    (TopK("top", key="many", k=2, domain=KEYS, max_keys_per_event=None), (5, 1)),
]
"""Each query with how many counts one event may move, and by how much."""

QUERIES = [query for query, _ in BOUNDS]
ORIGIN = datetime(2026, 1, 5, tzinfo=UTC)
TICKS, CAP = 6, 3

Event = dict[str, Any]
Counts = list[dict[Any, int]]
"""For each query what was gathered."""


@lru_cache
def runs() -> list[LivePart]:
    """A run of each query; gathering changes nothing in it."""
    plan = Stream("s", budget=Budget(4, 1e-6), horizon=8, queries=QUERIES).plan()
    return LiveCore(plan, lambda every: NoNoise()).parts


def gathered(frame: pl.DataFrame) -> Counts:
    """What a batch adds to each query."""
    inputs = query_inputs(QUERIES, frame, drop_bad_rows=True)
    return [_counts(run.gather(content)) for run, content in zip(runs(), inputs, strict=True)]


def batch(rows: list[Event]) -> Counts:
    """What rows add."""
    return gathered(as_frame(rows, QUERIES))


def _counts(told: Any) -> dict[Any, int]:
    return {"": told} if isinstance(told, int) else dict(zip(plain(told[0]), plain(told[1]), strict=True))


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.to_list() if isinstance(value, pl.Series) else value.tolist() if hasattr(value, "tolist") else value


def check_within_bounds(left: Counts, right: Counts) -> None:
    """That they differ by one event at most."""
    for (query, (most, height)), one, other in zip(BOUNDS, left, right, strict=True):
        moved = [abs(one.get(key, 0) - other.get(key, 0)) for key in one.keys() | other.keys()]
        moved = [change for change in moved if change]
        assert len(moved) <= most, f"{query.name}: one event moves {len(moved)} counts"
        assert all(change <= height for change in moved), f"{query.name}: one event moves a count by {max(moved)}"


def random_event(chance: random.Random) -> Event:
    """With a time within the ticks; some cannot be counted."""
    return {
        "time": (ORIGIN + timedelta(seconds=chance.randrange(TICKS * 3600))).isoformat(),
        "drug": chance.choice([*KEYS, None, 7]),
        "many": chance.choices(KEYS, k=chance.randrange(6)),
        "price": chance.choice([0, 3, -9, 10**9, 2.5, None, "x"]),
    }


def sealed_ticks(rows: list[Event], folder: Path) -> list[Counts]:
    """What each tick of a file of rows adds."""
    path = folder / "events.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) or "\n")
    stream = Stream("s", budget=Budget(4, 1e-6), horizon=8, queries=QUERIES, tick="1h", origin=ORIGIN)
    source = FileSource(path=path, time="time", until=TICKS)
    spec = StreamSpec(stream=stream, source=source)
    ticks = FileTicks(spec)
    ticks.seek(None, 0)
    return [gathered(frame) for tick in range(1, TICKS + 1) for frame in ticks.batches(tick)]


def check_file_pair(seed: int, folder: Path) -> None:
    """With and without one event of a file: one tick differs at most, and by that event."""
    chance = random.Random(seed)
    rows = [random_event(chance) for _ in range(chance.randrange(1, 14))]
    with_it, place = random_event(chance), chance.randrange(len(rows) + 1)
    left = sealed_ticks([*rows[:place], with_it, *rows[place:]], folder)
    right = sealed_ticks(rows, folder)
    assert sum(one != other for one, other in zip(left, right, strict=True)) <= 1, "one event moves several ticks"
    for one, other in zip(left, right, strict=True):
        check_within_bounds(one, other)


@lru_cache
def users() -> Request:
    """Users with a fixed cap: absent noise shows what counted."""
    queries: list[Query] = [Count("n"), Histogram("drugs", key="drug", domain=KEYS[:3])]
    unit = user("who", max_events_per_user=CAP)
    return Request(Stream("users", budget=Budget(4, 1e-6), horizon=8, queries=queries, unit=unit))


def user_totals(ticks: list[list[Event]], crashes: set[int], name: str) -> list[dict[str, int]]:
    """The running counts of a durable stream of users whose process ends after some of the ticks."""
    disk, witness = Disk(name), SimulatedWitness()
    wiring = Wiring(
        connect=lambda create: SqliteConnection(Path(disk.path), create=create, vfs=disk.vfs),
        lock=lambda connection, take_over: contextlib.ExitStack(),
        witness=witness,
        secret=lambda create: SECRET,
        ledger=cast(LedgerPlace, SimulatedLedger()),
    )

    def opened() -> DurableStream:
        return DurableStream(users(), wiring, Options(snapshot_every=2, make_noise=lambda secret: NoNoise()))

    live = opened()
    totals = []
    for tick, rows in enumerate(ticks, 1):
        live.tick(rows)
        release = release_of(live.payload(tick))
        drugs = dict(release["drugs"].select("key", "estimate").rows())
        totals.append({"": release["n"]["estimate"].item(), **drugs})
        if tick in crashes:
            disk.end_process()
            live._store.close()
            live = opened()
    live.close()
    disk.drop()
    return totals


def check_user_pair(seed: int) -> int:
    """With and without all of one user's events: no count ever differs by more than her cap; the largest difference."""
    chance = random.Random(seed)
    ticks = [
        [{"who": chance.randrange(4), "drug": chance.choice(KEYS[:3])} for _ in range(chance.randrange(6))]
        for _ in range(TICKS)
    ]
    without = [[row for row in rows if row["who"] != 0] for rows in ticks]
    crashes = {tick for tick in range(1, TICKS) if chance.random() < 0.4}
    left = user_totals(ticks, crashes, f"users{seed}")
    right = user_totals(without, crashes, f"users{seed}")
    moved = 0
    for one, other in zip(left, right, strict=True):
        moved = max(moved, one[""] - other[""], sum(abs(one[key] - other[key]) for key in KEYS[:3]))
        assert moved <= CAP, f"a user with a cap of {CAP} moves the counts by {moved}"
    return moved
