"""Two stores with equal releases over different data, and thousands of requests that must not tell them apart."""

import asyncio
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.service.served import CITIES, shop

from pianissimo.durable.durable_stream import open_stream
from pianissimo.service import TokenFile, viewer_app
from pianissimo.service.gate import Gate
from pianissimo.testing import NoNoise

TICKS = 6
"""Visible ones; what comes after is stored and shown to nobody."""

CANARY = "nobody else comes from here"
QUERIES = ("visits", "cities", "top", "dear", "none")
Answer = tuple[int, tuple[tuple[bytes, bytes], ...], bytes]


def rows(tick: int, *, hidden: str, many: int) -> list[dict[str, Any]]:
    """300 visits that are counted alike; those from places below the threshold are of other places in each world."""
    common = [{"city": CITIES[place % 3], "price": (place * 7 + tick) % 100} for place in range(270)]
    rare = [{"city": f"{hidden} {tick} {place % many}", "price": 1} for place in range(30)]
    return common + rare


def make_twins(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders with a stream each: equal releases up to the last visible tick, and other data everywhere."""
    patch.setattr("pianissimo.durable.start.secrets.token_bytes", lambda size: bytes(range(size)))
    places = (folder / "left" / "shop", folder / "right" / "shop")
    for place, hidden, many, further in ((places[0], CANARY, 30, 1), (places[1], "village", 2, 4)):
        place.parent.mkdir()
        more: dict[str, Any] = {"make_noise": lambda _: NoNoise(), "snapshot_every": 1 + further}
        with open_stream(shop(), place, **more) as live:
            for tick in range(1, TICKS + 1):
                live.tick(rows(tick, hidden=hidden, many=many))
        with open_stream(shop(), place, publish_at_once=False, **more) as live:
            for tick in range(further):
                live.tick([{"city": CANARY, "price": 95}] * 2000 * (tick + 1))
    shutil.copy(f"{places[0]}.ledger", f"{places[1]}.ledger")  # when each was charged is no secret
    return places


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[bytes, bytes], ...]


def requests(many: int, tokens: Mapping[str, str], seed: int) -> Iterator[Asked]:
    """Requests over all routes: sound, odd and wrong ones, by everybody and by nobody."""
    chance = random.Random(seed)
    numbers = ["1", "2", str(TICKS), str(TICKS + 1), str(TICKS + 3), "0", "999", "-1", "x", "2e3"]

    def number() -> str:
        return chance.choice(numbers)

    for _ in range(many):
        name = chance.choice(["shop"] * 9 + ["other", CANARY.replace(" ", "-")])
        kind = chance.randrange(12)
        path, query = f"/v1/streams/{name}", ""
        if kind <= 4:
            path += f"/releases/{number()}"
        elif kind == 5:
            path += "/releases"
            query = f"from={number()}&to={number()}&query={chance.choice(QUERIES)}"
            query += chance.choice(["", "&format=csv", "&format=parquet", "&format=arrow", "&format=xml"])
        elif kind == 6:
            path, query = path + "/releases", chance.choice(["", f"last={number()}", f"from={number()}", "from=3"])
        elif kind == 7:
            path, query = (
                path + "/windows",
                f"from={number()}&to={number()}" + chance.choice(["", "&step=1", "&query=cities"]),
            )
        elif kind == 8:
            path, query = path + "/alarms", chance.choice(["", f"from={number()}", f"to={number()}"])
        elif kind == 9:
            path += chance.choice(["", "/plan", "/budget", "/nothing", "/events", "/questions", "/allowance"])
        else:
            path = chance.choice(["/v1/streams", "/health", "/openapi.json", "/", "/app.js", "/v1", "/operator/status"])
        headers = [(b"host", b"localhost")]
        token = chance.choice([tokens["viewer"]] * 9 + [*tokens.values(), "pnm_viewer_none", None])
        headers += [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        headers += [(b"if-none-match", b'"*", *')] if chance.random() < 0.1 else []
        method = chance.choice(["GET"] * 12 + ["POST", "HEAD", "DELETE", "OPTIONS"])
        yield Asked(method, path, query, tuple(headers))


async def answered(app: Gate, asked: Asked) -> Answer:
    """What an application answers, without a socket between."""
    told: dict[str, Any] = {"body": b""}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": asked.method,
        "path": asked.path,
        "raw_path": asked.path.encode(),
        "query_string": asked.query.encode(),
        "headers": list(asked.headers),
        "client": ("127.0.0.1", 1),
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "root_path": "",
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            told["status"], told["headers"] = message["status"], tuple(sorted(message["headers"]))
        else:
            told["body"] += message.get("body", b"")

    await app(scope, receive, send)
    return told["status"], told["headers"], told["body"]


def apps_of(places: tuple[Path, Path], folder: Path, **more: Any) -> tuple[list[Gate], dict[str, str]]:
    """A service over each twin, with the same tokens."""
    file = TokenFile(folder / "tokens")
    tokens = {role: file.add(role)[0] for role in ("viewer", "writer", "analyst", "operator")}
    return [viewer_app([place], tokens=file, **more) for place in places], tokens


def differences(apps: list[Gate], asked: Iterator[Asked]) -> tuple[int, list[tuple[Asked, Answer, Answer]]]:
    """How many requests were made, and which were answered otherwise."""

    async def ask() -> tuple[int, list[tuple[Asked, Answer, Answer]]]:
        left, right = apps
        both = [(each, await answered(left, each), await answered(right, each)) for each in asked]
        return len(both), [each for each in both if each[1] != each[2]]

    return asyncio.run(ask())
