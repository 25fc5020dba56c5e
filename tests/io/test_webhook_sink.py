"""A real server on loopback that fails, hangs, answers twice or rubbish: every tick arrives, always the same bytes."""

import hashlib
import hmac
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pianissimo import Budget, Count, Stream
from pianissimo.durable.durable_stream import open_stream
from pianissimo.errors import InputError, ParameterError
from pianissimo.io.inspect import read_status
from pianissimo.io.sinks import WebhookSink

SHORT = timedelta(milliseconds=300)
PATIENT = timedelta(seconds=30)
"""For an office that answers: a busy machine may take more than a short time over it."""

INCARNATION = bytes(range(16))


class Office(ThreadingHTTPServer):
    """Keeps what comes, and answers as told."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[Any] = []
        self.is_over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/hook?token=canary"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no fault of these tests."""


class _Desk(BaseHTTPRequestHandler):
    server: Office
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.path, dict(self.headers), body))
        answer = self.server.answers.pop(0) if self.server.answers else 200
        if callable(answer):
            answer(self)
            return
        self.send_response(answer)
        if 300 <= answer < 400:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"canary")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def office() -> Iterator[Office]:
    server = Office()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.is_over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def sink_of(office: Office, **options: Any) -> WebhookSink:
    return WebhookSink(office.url, **{"name": "office", "timeout": PATIENT, **options})


def hang(desk: _Desk) -> None:
    desk.server.is_over.wait(60)


def drip(desk: _Desk) -> None:
    desk.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not desk.server.is_over.wait(0.1):
        desk.wfile.write(b"X: y\r\n")
        desk.wfile.flush()


def rubbish(desk: _Desk) -> None:
    desk.wfile.write(b"canary canary\r\n\r\n")


def hang_up(desk: _Desk) -> None:
    desk.close_connection = True


def twice(desk: _Desk) -> None:
    desk.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")


def test_the_stored_bytes_come_under_an_idempotency_key(office: Office) -> None:
    sink_of(office).send(INCARNATION, 7, b'{"tick": 7}')
    ((path, headers, body),) = office.got
    assert (path, body) == ("/hook?token=canary", b'{"tick": 7}')
    assert headers["Idempotency-Key"] == f"{INCARNATION.hex()}/7"
    assert headers["Content-Type"] == "application/json"
    assert "Pianissimo-Signature" not in headers


def test_a_key_signs_the_body(office: Office) -> None:
    sink_of(office, key=b"k" * 20).send(INCARNATION, 7, b"body")
    expected = hmac.new(b"k" * 20, b"body", hashlib.sha256).hexdigest()
    assert office.got[0][1]["Pianissimo-Signature"] == f"sha256={expected}"


def test_a_user_in_the_address_is_sent_and_never_shown(office: Office) -> None:
    url = office.url.replace("://", "://me:p%40ss@")
    sink = WebhookSink(url, timeout=PATIENT)
    office.answers = [500]
    with pytest.raises(InputError) as refusal:
        sink.send(INCARNATION, 1, b"")
    assert office.got[0][1]["Authorization"] == "Basic bWU6cEBzcw=="
    for text in (repr(sink), sink.name, str(refusal.value)):
        assert "me" not in text.replace("must take the release", "").replace("time", "")
        assert "canary" not in text


@pytest.mark.parametrize("answer", [200, 201, 204, 299, 409, twice])
def test_it_is_confirmed(office: Office, answer: Any) -> None:
    office.answers = [answer]
    sink_of(office).send(INCARNATION, 1, b"x")
    assert len(office.got) == 1


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (301, "status 301"),
        (307, "status 307"),
        (400, "status 400"),
        (404, "status 404"),
        (429, "status 429"),
        (500, "status 500"),
        (503, "status 503"),
        (hang, "no answer within 0.3 s"),
        (drip, "no answer within 0.3 s"),
        (rubbish, "an answer that is no HTTP"),
        (hang_up, ""),
    ],
)
def test_it_is_not_confirmed(office: Office, answer: Any, what: str) -> None:
    office.answers = [answer]
    with pytest.raises(InputError) as refusal:
        sink_of(office, timeout=SHORT if answer in (hang, drip) else PATIENT).send(INCARNATION, 1, b"x")
    assert what in str(refusal.value)
    assert "canary" not in str(refusal.value)
    assert len(office.got) == 1


def test_nobody_at_the_address_is_no_confirmation(office: Office) -> None:
    sink = WebhookSink("http://127.0.0.1:1/hook", timeout=SHORT)
    with pytest.raises(InputError, match=r"http://127\.0\.0\.1:1 must take the release, got"):
        sink.send(INCARNATION, 1, b"x")


def test_an_address_that_cannot_be_used_is_no_confirmation(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> None:
        raise UnicodeError("canary")

    monkeypatch.setattr("http.client.HTTPConnection.request", connect)
    with pytest.raises(InputError, match="got an address that cannot be used") as refusal:
        WebhookSink(office.url, timeout=SHORT).send(INCARNATION, 1, b"x")
    assert "canary" not in str(refusal.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hook",
        "ftp://example.org",
        "http://example.org/hook",
        "https://",
        "https://a b/",
        "https://x:y/",
        "http://[::1",
        "https://e\u00e4.org",
        "https://a..b/",
        f"https://{'a' * 64}.example/",
    ],
)
def test_an_address_must_be_encrypted_unless_it_is_here(url: str) -> None:
    with pytest.raises(ParameterError, match="url must"):
        WebhookSink(url)


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.0.0.2/x", "http://[::1]:8080/", "https://example.org"]
)
def test_an_address_may_be_here_or_encrypted(url: str) -> None:
    assert repr(WebhookSink(url)).startswith("WebhookSink(")


def test_every_tick_arrives_in_order_whatever_fails_in_between(office: Office, tmp_path: Path) -> None:
    stream = Stream("s", budget=Budget(1, 1e-9), horizon=20, queries=[Count("n")], tick="1m")
    office.answers = [200, 500, hang_up, 503, 200, 409, rubbish]
    stored = {}
    for start in range(3):
        with open_stream(stream, tmp_path / "state", sinks=[sink_of(office)]) as live:
            for _ in range(4):
                live.tick([{}])
            stored = {tick: live.payload(tick) for tick in range(1, live.tick_number + 1)}
            incarnation = live.incarnation
        if start == 0:
            assert read_status(tmp_path / "state").sinks == {"office": {"undelivered": 3, "last_tick": 1}}
    keys = [headers["Idempotency-Key"] for _, headers, _ in office.got]
    assert list(dict.fromkeys(keys)) == [f"{incarnation}/{tick}" for tick in range(1, 13)]
    for _, headers, body in office.got:
        assert body == stored[int(headers["Idempotency-Key"].split("/")[1])]
    assert read_status(tmp_path / "state").sinks == {"office": {"undelivered": 0, "last_tick": 12}}
