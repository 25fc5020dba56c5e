"""The API against its schema, and against clients that mean harm: too large, too slow, too many, too clever."""

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, cast, get_args

import httpx
import hypothesis
import polars as pl
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import ignored_auth, missing_required_header, positive_data_acceptance
from tests.faults.report import record, size
from tests.service.served import asking, begun, visits
from tests.service.served import pushed as pushed_of

from pianissimo.io.metrics import Metrics
from pianissimo.service import TokenFile, protocol, serving, viewer_app
from pianissimo.service.analyst import asked_tables
from pianissimo.service.app import operator_app
from pianissimo.service.gate import ROLES, Gate
from pianissimo.service.inbox import READERS, Inbox
from pianissimo.service.tokens import Access

HOST = "127.0.0.1"


@schemathesis.serializer(*READERS)
def as_bytes(_: Any, value: Any) -> bytes:
    """Bodies of events, as whatever comes."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("misuse")
    begun(found, 4).close()
    (found / "inbox").mkdir()
    return found


def read_all(connection: socket.socket) -> bytes:
    found = b""
    while True:
        try:
            piece = connection.recv(65536)
        except ConnectionResetError:
            return found
        if not piece:
            return found
        found += piece


def described(app: Gate) -> Any:
    """What a service says of itself."""
    app._hosts |= {"testserver"}
    return schemathesis.openapi.from_asgi("/openapi.json", app)


@pytest.fixture
def every_service(folder: Path, tmp_path: Path) -> Iterator[tuple[list[Any], dict[str, str]]]:
    """The routes of everybody: of viewers, writers and analysts, and on their own listener of operators."""
    pl.DataFrame({"member": ["a", "b", "c"] * 9, "article": ["tea"] * 27}).write_parquet(tmp_path / "shop.parquet")
    table = '[shop]\nsource = "shop.parquet"\nuser = "member"\nepsilon = 2\ndelta = 1e-8\n'
    (tmp_path / "tables.toml").write_text(table)
    tokens = TokenFile(tmp_path / "tokens")
    shelves: dict[str, Any] = {"inboxes": {"shop": Inbox(folder / "inbox")}, "tokens": tokens}
    sent = {role: f"Bearer {tokens.add(role)[0]}" for role in get_args(Access)}
    with begun(tmp_path, 2) as live:
        metrics, stop = Metrics(), threading.Event()
        for_operators = operator_app(live, stop, str(tmp_path / "shop"), tokens=tokens, metrics=metrics)
        app = viewer_app([folder / "shop"], tables=asked_tables(tmp_path / "tables.toml"), **shelves)
        yield [described(app), described(for_operators)], sent


def test_every_route_answers_as_its_schema_says(
    every_service: tuple[list[Any], dict[str, str]], tmp_path: Path
) -> None:
    apis, tokens = every_service
    asked, good, routes = 0, set[str](), 0
    # Other tests look at tokens; and a schema does not say which fields go together.
    unfit = [ignored_auth, missing_required_header, positive_data_acceptance]

    def tried(case: Any) -> None:
        nonlocal asked
        # A stream of events never ends by itself; other tests read one.
        if isinstance(case.query, dict):
            case.query.pop("after", None)
        if isinstance(case.query, dict) and isinstance(case.query.get("new"), str):
            case.query["new"] = f"{tmp_path}/{case.query['new'].replace('/', '_')}{asked}"
        if case.path_parameters and asked % 3:
            case.path_parameters["name"] = "shop"
        asked += 1
        part = case.path.removeprefix("/").split("/")
        role = "operator" if part[0] == "operator" else ROLES.get(part[3], "viewer") if len(part) > 3 else "viewer"
        answer = case.call_and_validate(excluded_checks=unfit, headers={"Authorization": tokens[role]})
        if answer.status_code < 300:
            good.add(case.operation.label)

    settings = hypothesis.settings(
        max_examples=size(10, 200),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    for operation in [each for api in apis for each in api.get_all_operations()]:
        routes, found = routes + 1, cast("Any", operation).ok()
        settings(hypothesis.given(case=found.as_strategy())(tried))()
    figure = f"0 failures of {asked} requests over {routes} routes of all roles, {len(good)} of which answered"
    record("S4", "schema", figure=figure, bar="0 failures", passed=asked > routes >= 19 and len(good) >= 12)


TRICKS = (
    b"/../pyproject.toml",
    b"/%2e%2e/etc/passwd",
    b"//etc/passwd",
    b"/v1/streams/..%2fshop",
    b"/v1//streams",
    b"/page/app.js",
    b"/v1/streams/shop/releases/1%00",
    b"/v1/streams/shop%5Creleases",
    b"/./app.js",
    b"/app.js/..",
    b"/index.html%20",
)


def test_tricks_with_paths_find_nothing(folder: Path) -> None:
    with serving(viewer_app([folder / "shop"], public=True)) as address:
        for path in TRICKS:
            assert raw(address, b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path).split(b" ")[1] == b"404", path


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:80", "Origin": "http://localhost:80"}, 200),
    ],
)
def test_only_its_own_hosts_and_pages_are_answered(folder: Path, headers: dict[str, str], status: int) -> None:
    with asking([folder / "shop"], public=True) as client:
        for path in ("/v1/streams", "/v1/streams/shop/releases/1"):
            assert client.get(path, headers=headers).status_code == status


def raw(address: str, content: bytes) -> bytes:
    with socket.create_connection((HOST, int(address.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def whole(connection: socket.socket) -> bytes:
    """One answer with its body, if it has one."""
    found = b""
    while b"\r\n\r\n" not in found:
        piece = connection.recv(65536)
        if not piece:
            return found
        found += piece
    head, _, body = found.partition(b"\r\n\r\n")
    length = [int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    if not length and b" 304 " not in head:
        return found + read_all(connection)
    while length and len(body) < length[0]:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def test_the_short_way_answers_as_the_long_one(folder: Path) -> None:
    """Whether a request comes in one piece or in two, its answer is the same to the byte; and so are refusals."""
    lines = [
        b"Host: localhost",
        b"X-Odd: 1",
        b"If-None-Match: *",
        b"host: localhost",
        b"Authorization: Bearer x",
        b"Bad",
    ]
    heads = [[b"Host: localhost", *more] for more in ([], [lines[1]], [lines[2]], [lines[3]], [lines[4]], [lines[5]])]
    paths = [b"/v1/streams/shop/releases/%b" % each for each in (b"1", b"4", b"5", b"04", b"x", b"1?a=b", b"1/")]
    differ = 0
    with serving(viewer_app([folder / "shop"], public=True)) as address:
        port = int(address.rpartition(":")[2])
        for path in paths:
            for head in [*heads, []]:
                content = b"\r\n".join([b"GET " + path + b" HTTP/1.1", *head]) + b"\r\n\r\n"
                answers = []
                for cut in (0, 9):
                    with socket.create_connection((HOST, port), timeout=10) as connection:
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        if cut:
                            connection.sendall(content[:cut])
                            time.sleep(0.005)
                        connection.sendall(content[cut:])
                        found = whole(connection)
                        told = [line for line in found.split(b"\r\n") if not line.lower().startswith(b"date:")]
                        answers.append(sorted(told))
                differ += answers[0] != answers[1]
    assert differ == 0


def test_who_does_not_finish_a_head_is_let_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.6)
    with ExitStack() as stack, asking([folder / "shop"], public=True) as client:
        port = client.base_url.port or 0
        slow = [stack.enter_context(socket.create_connection((HOST, port), timeout=10)) for _ in range(20)]
        begin, closed = time.monotonic(), 0
        for letter in b"GET /v1/streams HTTP/1.1\r\nHost: x":
            for each in slow:
                try:
                    each.sendall(bytes([letter]))
                except OSError:
                    closed += 1
            time.sleep(0.05)
            if closed >= len(slow):
                break
        took = time.monotonic() - begin
        assert client.get("/v1/streams").status_code == 200
    figure = f"20 that send a letter at a time are gone after {took:.1f} s"
    record("S6", "slow heads", figure=figure, bar="all gone", passed=closed >= 20)


def test_bodies_that_are_too_large_are_refused_at_once(folder: Path) -> None:
    tokens = TokenFile(folder / "tokens")
    token, _ = tokens.add("writer")
    slowest = 0.0
    app = viewer_app([folder / "shop"], tokens=tokens, inboxes={"shop": Inbox(folder / "inbox")})
    with serving(app) as address, httpx.Client(base_url=address, timeout=20) as client:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for length in ("99999999999", "1048577", "-1", "1e9"):
            begin = time.monotonic()
            head = b"POST /v1/streams/shop/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/jsonl\r\n"
            head += b"Authorization: Bearer %b\r\nContent-Length: %b\r\n\r\n" % (token.encode(), length.encode())
            assert raw(address, head + b"{}\n").split(b" ")[1] in (b"413", b"400")
            slowest = max(slowest, time.monotonic() - begin)
        huge = raw(address, b"GET /v1/streams HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")
        assert huge == b"" or huge.split(b" ")[1] in (b"400", b"401", b"431")
        assert client.get("/health").status_code == 200
        grew = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    figure = f"slowest refusal {slowest:.2f} s, {grew} MiB more"
    record("S6", "huge bodies", figure=figure, bar="16 MiB; 1 s on a busy machine", passed=grew <= 16 and slowest < 1)


def test_a_reader_who_does_not_read_is_given_up_and_keeps_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.5)
    live = begun(tmp_path, 1)
    with live, asking([tmp_path / "shop"], public=True) as client:
        port = client.base_url.port or 0
        request = b"GET /v1/streams/shop/releases?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with socket.socket() as lazy:
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            lazy.connect((HOST, port))
            lazy.sendall(request)
            for tick in range(2, 6):
                live.tick(visits(tick))
                begin = time.monotonic()
                with client.stream("GET", f"/v1/streams/shop/releases?after={tick - 1}") as answer:
                    (found,) = pushed_of(answer.iter_lines(), 1)
                assert (found["id"], time.monotonic() - begin < 15) == (tick, True)


def test_a_restart_under_load_leaves_no_gap(tmp_path: Path) -> None:
    """Readers come again from where they were; each gets every tick once, over three lives of the service."""
    live, many = begun(tmp_path, 1), size(20, 200)
    got: list[list[int]] = [[] for _ in range(many)]
    stop, port, faults = threading.Event(), [0], []

    def read(mine: list[int]) -> None:
        while not stop.is_set():
            headers = {"Last-Event-ID": str(mine[-1] if mine else 0)}
            try:
                url = f"http://{HOST}:{port[0]}/v1/streams/shop/releases?after=0"
                # Without the environment: other threads change it.
                with httpx.stream("GET", url, headers=headers, timeout=5, trust_env=False) as answer:
                    for line in answer.iter_lines():
                        mine += [int(line[4:])] if line.startswith("id: ") else []
                        if stop.is_set():
                            return
            except (httpx.HTTPError, OSError):
                time.sleep(0.05)

    readers = [threading.Thread(target=read, args=(mine,), daemon=True) for mine in got]
    with live, ExitStack() as stack:
        for life in range(3):
            with serving(viewer_app([tmp_path / "shop"], public=True), HOST, port[0]) as address:
                port[0] = int(address.rpartition(":")[2])
                if life == 0:
                    for each in readers:
                        each.start()
                    stack.callback(stop.set)
                for _ in range(3):
                    live.tick(visits(live.tick_number + 1))
                deadline = time.monotonic() + 60
                while any((mine or [0])[-1] < live.tick_number for mine in got):
                    if time.monotonic() > deadline:
                        faults.append(life)
                        break
                    time.sleep(0.05)
        stop.set()
        for each in readers:
            each.join(20)
    wanted = list(range(1, 11))
    whole = sum(mine == wanted for mine in got)
    figure = f"{whole} of {many} readers have every tick once over two restarts"
    record("S6", "restart under load", figure=figure, bar="all", passed=whole == many and not faults)


def memory() -> int:
    """Bytes that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_many_readers_at_once_take_bounded_memory(tmp_path: Path) -> None:
    many = size(250, 2000)
    live = begun(tmp_path, 1)
    with live, asking([tmp_path / "shop"], public=True) as client, ExitStack() as stack:
        port, before = client.base_url.port or 0, memory()
        request = b"GET /v1/streams/shop/releases?after=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        sockets = []
        for _ in range(many):
            each = stack.enter_context(closing(socket.create_connection((HOST, port), timeout=60)))
            each.sendall(request)
            sockets.append(each)
        for each in sockets:
            found = b""
            while b"retry" not in found:
                found += each.recv(4096)
        live.tick(visits(2))
        late = 0
        for each in sockets:
            found = b""
            while b'"releases"' not in found:
                piece = each.recv(65536)
                found += piece
                if not piece:
                    late += 1
                    break
        each_takes = (memory() - before) // many
    figure = f"{many - late} of {many} readers got the tick, {each_takes / 1024:.0f} KiB each on both sides"
    record("S6", "readers at once", figure=figure, bar="all; 256 KiB each", passed=not late and each_takes < 256 << 10)
