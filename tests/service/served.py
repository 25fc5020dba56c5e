"""Small durable streams, and a service that shows them, for tests."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from pianissimo import Alarm, Budget, Count, Histogram, Stream, TopK
from pianissimo.durable.durable_stream import DurableStream
from pianissimo.service import serving, viewer_app

CITIES = ("Rome", "Paris", "Oslo")


def shop(name: str = "shop", **more: Any) -> Stream:
    """A stream of every shape of table: a number, labels nobody listed with their rest, a list, an alarm."""
    return Stream(
        name,
        budget=Budget(8, 1e-6),
        horizon=1000,
        tick="1m",
        origin="2026-01-01T00:00:00Z",
        queries=[
            Count("visits"),
            Histogram("cities", key="city", other=True),
            TopK("top", key="city", k=2, domain=CITIES),
            Alarm("dear", where="price > 90", threshold=20),
        ],
        **more,
    )


def visits(tick: int, many: int = 300) -> list[dict[str, Any]]:
    """The events of a tick."""
    return [{"city": CITIES[place % 3], "price": (place * 7 + tick) % 100} for place in range(many)]


def begun(folder: Path, ticks: int, name: str = "shop", **more: Any) -> DurableStream:
    """A stream that has released so many ticks; it is open, and must be closed."""
    live = shop(name).open(folder / name, **more)
    for tick in range(1, ticks + 1):
        live.tick(visits(tick))
    return live


@contextmanager
def asking(places: Sequence[Path | str], **more: Any) -> Iterator[httpx.Client]:
    """A client of a service over some stores."""
    with serving(viewer_app(places, **more)) as address, httpx.Client(base_url=address, timeout=20) as client:
        yield client


def until(client: httpx.Client, path: str, headers: dict[str, str], *statuses: int) -> float:
    """Ask until one of these statuses comes; after how many seconds it came."""
    begin = time.monotonic()
    while client.get(path, headers=headers).status_code not in statuses:
        assert time.monotonic() < begin + 30
        time.sleep(0.01)
    return time.monotonic() - begin


def pushed(lines: Iterator[str], many: int) -> list[dict[str, Any]]:
    """The first so many releases of an open stream of events, each with the id under which it came."""
    found, number = [], 0
    for line in lines:
        if line.startswith("id: "):
            number = int(line[4:])
        if line.startswith("data: "):
            found.append({"id": number, **json.loads(line[6:])})
        if len(found) == many:
            break
    return found
