"""Events by HTTP: on the disk before the answer, which is the same whatever becomes of them."""

import gzip
import io
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from tests.service.served import asking, begun

from pianissimo.errors import InputError
from pianissimo.io.inspect import stored_releases
from pianissimo.io.runs import run_durably
from pianissimo.service import TokenFile
from pianissimo.service.inbox import Inbox, lines_of
from pianissimo.stream.spec import load_spec

LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("writers")
    begun(found, 1).close()
    (found / "inbox").mkdir()
    return found


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[httpx.Client]:
    tokens = TokenFile(folder / "tokens")
    token, _ = tokens.add("writer", streams=["shop"])
    with asking([folder / "shop"], tokens=tokens, inboxes={"shop": Inbox(folder / "inbox")}) as found:
        found.headers["Authorization"] = f"Bearer {token}"
        yield found


def sent(client: httpx.Client, body: bytes, kind: str = LINES, **headers: str) -> httpx.Response:
    return client.post("/v1/streams/shop/events", content=body, headers={"Content-Type": kind, **headers})


def stored(folder: Path) -> list[Any]:
    return [json.loads(line) for file in (folder / "inbox").iterdir() for line in file.read_bytes().splitlines()]


def arrow(frame: pl.DataFrame, **more: Any) -> bytes:
    output = io.BytesIO()
    frame.write_ipc_stream(output, **more)
    return output.getvalue()


def test_what_was_answered_is_in_a_file(client: httpx.Client, folder: Path) -> None:
    before = len(stored(folder))
    rows = [{"city": "Oslo", "price": number} for number in range(3)]
    text = b"\n".join(json.dumps(row).encode() for row in rows)
    answers = [
        sent(client, text),
        sent(client, gzip.compress(text), **{"Content-Encoding": "gzip"}),
        sent(client, arrow(pl.DataFrame(rows)), ARROW),
    ]
    assert [(each.status_code, each.content) for each in answers] == [(202, b'{"state":"stored"}')] * 3
    assert stored(folder)[before:] == rows * 3


def test_counted_late_and_repeated_events_get_the_same_answer(client: httpx.Client) -> None:
    events = [{"city": "Oslo"}, {"city": "Oslo"}, {"city": "x" * 9000}, {"time": "1970-01-01"}, {"other": None}, {}]
    answers = [sent(client, json.dumps(event).encode()) for event in events]
    for each in answers:
        del each.headers["date"]
    assert len({(each.status_code, each.content, *each.headers.items()) for each in answers}) == 1


@pytest.mark.parametrize(
    ("body", "kind", "packed"),
    [
        (b"", LINES, None),
        (b"[1]", LINES, None),
        (b'{"a": 1}\n{"a"', LINES, None),
        (b"{" * 5000, LINES, None),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, LINES, None),
        (b'{"a": "' + b"x" * 20_000 + b'"}', LINES, None),
        (b"{}\n" * 10_001, LINES, None),
        (b"not packed", LINES, "gzip"),
        (gzip.compress(b"{}\n" * 4_000_000), LINES, "gzip"),
        (gzip.compress(b'{"a": 1}\n')[:-4], LINES, "gzip"),
        (b"\xff\xff\xff\xff\x10\0\0\0" + b"\xff" * 16, ARROW, None),
        (b"ARROW1", ARROW, None),
        (arrow(pl.DataFrame({"a": ["x" * 10_000] * 500}), compression="zstd"), ARROW, None),
        (arrow(pl.DataFrame({"a": ["x" * 9000] * 10_000}, {"a": pl.Categorical})), ARROW, None),
        (arrow(pl.DataFrame({"a": [1] * 10_001})), ARROW, None),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_body_that_is_not_what_it_says_is_refused_whole(body: bytes, kind: str, packed: str | None) -> None:
    begin = time.process_time()
    with pytest.raises(InputError, match="must be what their type says"):
        lines_of(body, kind, packed)
    assert time.process_time() - begin < 2


def test_bodies_beyond_the_limit_and_of_other_types_are_refused(client: httpx.Client, folder: Path) -> None:
    before = len(stored(folder))
    assert sent(client, b"{}\n" * 400_000).status_code == 413
    pieces, headers = iter([b"{}\n" * 100_000] * 6), {"Content-Type": LINES}
    assert client.post("/v1/streams/shop/events", content=pieces, headers=headers).status_code == 413
    assert sent(client, b"a,b\n1,2", "text/csv").status_code == 415
    assert sent(client, b"{}", **{"Content-Encoding": "br"}).status_code == 415
    assert sent(client, b"{").status_code == 400
    assert client.post("/v1/streams/none/events", content=b"{}").status_code == 404
    assert len(stored(folder)) == before


def test_many_writers_at_once_lose_nothing(client: httpx.Client, folder: Path) -> None:
    before = len(stored(folder))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: sent(client, b'{"n": %d}\n' % number * 5).status_code, range(60)))
    assert answers == [202] * 60
    found = stored(folder)[before:]
    assert sorted(row["n"] for row in found) == sorted([*range(60)] * 5)


STREAM = """
[stream]
name = "shop"
epsilon = 8
delta = 1e-6
tick = "1s"
horizon = 3600
origin = {origin}
[source]
http = true
until = {until}
[publish]
after = "1s"
[queries.visits]
kind = "count"
"""


def test_a_stream_counts_what_writers_sent_each_event_once(tmp_path: Path) -> None:
    begin = int(time.time()) + 1
    origin = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begin))
    file = tmp_path / "shop.toml"
    file.write_text(STREAM.format(origin=origin, until=4))
    inbox = Inbox(tmp_path / "shop.state.events")
    (tmp_path / "shop.state.events").mkdir()
    stop = threading.Event()

    def write() -> None:
        for number in range(20):
            inbox.put(b'{"n": %d}\n' % number * 50)
            time.sleep(0.05)

    writing = threading.Thread(target=write)
    writing.start()
    done = run_durably(load_spec(file), str(tmp_path / "shop.state"), stop=stop)
    writing.join()
    visits = stored_releases(tmp_path / "shop.state")["visits"]
    assert (done.loop.tick, visits["tick"].max()) == (4, 4)
    last = visits.row(-1, named=True)
    # Six half-widths of 95 %: missed with a chance below 1e-12.
    assert last["low"] - 20 <= 1000 <= last["high"] + 20
