"""The stream that the fault tests run, its events, and a process that runs it and may be killed.

What happens in a tick is a function of its number, so that any process can read the source again from anywhere.
"""

import contextlib
import hashlib
import multiprocessing
import os
import shutil
import time
import unittest.mock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import apsw
from tests.faults.points import armed

from pianissimo import Budget, Count, Histogram, Stream, Sum, TopK
from pianissimo.durable import failpoints
from pianissimo.durable.charging import charge_of
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.place import wire
from pianissimo.durable.start import Request
from pianissimo.durable.stored_ticks import Options
from pianissimo.io.folder import FolderSink
from pianissimo.ledger import entries
from pianissimo.ledger import ledger as booking
from pianissimo.storage.connection import Connection
from pianissimo.stream import StreamPlan

TICKS = 6
LONG = 60
"""Ticks of a run that is killed again and again."""

SNAPSHOT_EVERY = 3
DOMAIN = ["north", "south"]
DRUGS = ["aspirin", "ibuprofen", "a rare one", "codeine"]


@lru_cache
def stream() -> Stream:
    """A counter, a sum, known and unknown labels, a top list, and a query published at every second tick."""
    return Stream(
        "faults",
        budget=Budget(8.0, 1e-6),
        horizon=64,
        queries=[
            Count("purchases"),
            Sum("revenue", value="price", range=(0, 10), nulls="refuse"),
            Histogram("drugs", key="drug", tidy=["non_negative", "monotone"]),
            Histogram("regions", key="region", domain=DOMAIN, every=2),
            TopK("top", key="drug", k=2, domain=DRUGS),
        ],
        tick="1h",
    )


@lru_cache
def plan() -> StreamPlan:
    """Its plan."""
    return stream().plan()


def request() -> Request:
    """What is asked of its store."""
    return Request(stream())


def events(tick: int) -> list[dict[str, Any]]:
    """The events of a tick."""
    return [
        {"drug": DRUGS[(tick * number) % 3], "region": DOMAIN[number % 2], "price": (tick + number) % 11}
        for number in range(20 + 7 * (tick % 4))
    ]


def open_world(place: str | Path, *, witness: str | Path | None = None, **options: Any) -> DurableStream:
    """The stream at a place."""
    options.setdefault("snapshot_every", SNAPSHOT_EVERY)
    if options.pop("alike", False):
        with alike():
            return open_world(place, witness=witness, **options)
    secret, out = options.pop("secret", None), options.pop("out", None)
    if out is not None:
        options["sinks"] = [FolderSink(Path(out), plan=plan().to_dict(), format="jsonl"), LogSink(Path(f"{out}.log"))]
    ledger, cap = options.pop("ledger", None), options.pop("cap", None)
    if ledger is not None and cap is None:
        cap = charge_of(plan())
    wiring = wire(place, witness=witness, secret=secret, ledger=ledger, cap=cap)
    connections: list[Connection] | None = options.pop("connections", None)
    if connections is not None:
        connect = wiring.connect

        def noted(create: bool) -> Connection:
            connections.append(connect(create=create))
            return connections[-1]

        wiring = replace(wiring, connect=noted)
    return DurableStream(request(), wiring, Options(**options))


class LogSink:
    """Remembers every sending, so that bytes that were shown once are not forgotten when others come."""

    name = "log"

    def __init__(self, path: Path) -> None:
        self.path = path

    def last(self) -> int | None:
        return None

    def send(self, incarnation: bytes, tick: int, payload: bytes) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write(f"{tick} {digest_of(payload)}\n".encode())


def digest_of(payload: bytes) -> str:
    """A short name of some bytes."""
    return hashlib.blake2b(payload, digest_size=12).hexdigest()


def sent(out: str | Path) -> dict[int, set[str]]:
    """All that the log of a sink ever got, by tick."""
    found: dict[int, set[str]] = {}
    path = Path(f"{out}.log")
    for line in path.read_text().splitlines() if path.exists() else ():
        tick, digest = line.split()
        found.setdefault(int(tick), set()).add(digest)
    return found


class Crash(BaseException):
    """The process is gone."""


def sever(connections: Sequence[Connection]) -> None:
    """End connections as the end of their process would: nothing is written, copied over or rolled back."""
    for connection in connections:
        raw = connection._connection
        if isinstance(raw, apsw.Connection):
            with contextlib.suppress(apsw.Error):
                raw.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                raw.close(True)
        elif raw is not None:
            raw.close()


def crash_at(count: int, connections: Sequence[Connection] = ()) -> Callable[[str], None]:
    """An action that ends everything the so-many-th time that a place is reached."""
    left = count

    def act(_: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            sever(connections)
            raise Crash

    return act


def crash_from(number: int) -> Callable[[str], None]:
    """An action that ends the process whenever a place is reached after so many times."""
    left = iter(range(number))

    def act(_: str) -> None:
        if next(left, None) is None:
            raise Crash

    return act


class _NoTime:
    """A clock that stands still."""

    @staticmethod
    def now(_: object) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def alike() -> Iterator[None]:
    """All streams that are created meanwhile are the same one, down to the noise: what no deployment could do."""
    with (
        unittest.mock.patch("pianissimo.durable.start.secrets.token_bytes", lambda size: bytes(range(size))),
        # A receipt tells when, and in which file, and all seals follow from it.
        unittest.mock.patch.object(entries, "datetime", _NoTime),
        unittest.mock.patch.object(booking.Ledger, "place", "the ledger"),
    ):
        yield


def run_to(live: DurableStream, last: int = TICKS) -> None:
    """Read the source from where the stream stands, tick after tick."""
    while live.tick_number < last:
        tick = live.tick_number + 1
        stands_at = live.position
        failpoints.reach("absorb.read")
        live.tick(events(tick), position={"read": tick})
        # Only now: what was interrupted half-way refuses to go on, and need not know where it stands.
        assert stands_at in (None, {"read": tick - 1})


def payloads(live: DurableStream, last: int = TICKS) -> list[bytes]:
    """What was released."""
    return [live.payload(tick) for tick in range(1, last + 1)]


def run_process(pipe: Any, place: str, actions: dict[str, str], options: dict[str, Any]) -> None:
    """Run the stream in a process of its own, which may be killed at a failpoint."""
    last = options.pop("last", TICKS)
    chosen = {point: failpoints.action_of(text) for point, text in actions.items()}
    begin = time.perf_counter()
    with armed(chosen), open_world(place, **options) as live:
        pipe.send(("started in", time.perf_counter() - begin))
        pipe.send(("open", live.tick_number))
        while live.tick_number < last:
            run_to(live, live.tick_number + 1)
            pipe.send(("tick", live.tick_number))
    pipe.send(("done", last))


def context() -> BaseContext:
    """Processes that start in milliseconds, with the package loaded."""
    chosen = multiprocessing.get_context("forkserver")
    chosen.set_forkserver_preload(["tests.faults.world"])
    return chosen


def start(target: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, Any]:
    """One process and the end of a pipe from it."""
    here = context()
    mine, theirs = here.Pipe()
    process = here.Process(target=target, args=(theirs, *arguments))  # type: ignore[attr-defined]
    process.start()
    theirs.close()
    return process, mine


def drop_state(folder: Path) -> None:
    """Remove a state folder and what lies beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    for beside in folder.parent.glob(f"{folder.name}.*"):
        beside.unlink(missing_ok=True)


assert os.environ.get("PIANISSIMO_FAILPOINTS") is None
