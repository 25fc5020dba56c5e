"""HTTP as uvicorn speaks it, for clients that are in time; and a short way for what is asked most: a stored release.

A request for a release that comes whole, in one piece and with nothing unusual in it, is answered without the parser
and without a task, by the same checks and with the same bytes. Whatever else comes, and whatever is refused, goes the
long way.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pianissimo.service.gate import Gate, GateError, Scope

HEAD_SECONDS = 10.0
"""In which the head of a request must have come, from the connection on or from the end of the one before."""

_START, _END = b"GET /v1/streams/", b"\r\n\r\n"
_UNUSUAL = (b"connection", b"content-length", b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"range")
_TOKENS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
_LINES = {200: b"HTTP/1.1 200 OK\r\n", 304: b"HTTP/1.1 304 Not Modified\r\n"}
_MOST_HEADERS = 40


class PatientProtocol(H11Protocol):
    """One connection."""

    _timer: asyncio.TimerHandle | None = None
    _since = 0.0
    _unread = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._look_at_clock)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        if not self._answered(data):
            super().data_received(data)

    def resume_writing(self) -> None:
        self._unread = 0  # however much is waiting at the next look, some was taken
        super().resume_writing()

    def _look_at_clock(self) -> None:
        """Give up a client that has not finished the head of a request in time, or takes no byte of an answer."""
        unread = self.transport.get_write_buffer_size()
        if unread and unread == self._unread:
            self._timer = None
            self.transport.abort()  # closed, it would wait for the reader
            return
        self._unread = unread
        is_busy = unread > 0 or (self.cycle is not None and not self.cycle.response_complete)
        left = HEAD_SECONDS if is_busy else self._since + HEAD_SECONDS - self.loop.time()
        if left <= 0:
            self._timer = None
            self.transport.close()
            return
        self._timer = self.loop.call_later(left, self._look_at_clock)

    def _answered(self, data: bytes) -> bool:
        """Answer at once a request that is nothing but one for a stored release; whether it was."""
        if not (data.startswith(_START) and data.endswith(_END)) or self.flow.write_paused:
            return False
        conn = self.conn
        if conn.our_state is not h11.IDLE or conn.their_state is not h11.IDLE or conn.trailing_data[0]:
            return False
        scope = _plain_request(data)
        gate: Gate = self.app  # as the server was given it
        if scope is None or len(self.connections) >= (self.limit_concurrency or 0):
            return False
        scope["short"] = True
        try:
            found = gate.stored(scope)
        except GateError:
            return False
        if found is None:
            return False
        self._unset_keepalive_if_required()
        self._since = self.loop.time()
        status, headers, body = found
        told = [*self.server_state.default_headers, *headers]
        self.transport.write(_LINES[status] + b"".join([b"%b: %b\r\n" % each for each in told]) + b"\r\n" + body)
        return True


def _plain_request(data: bytes) -> Scope | None:
    """What a request says whose head is all there is of it; None where anything in it is unusual."""
    first, *lines = data[:-4].split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or words[2] != b"HTTP/1.1" or b"?" in words[1] or len(lines) > _MOST_HEADERS:
        return None
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if not colon or not name or name in _UNUSUAL or not _TOKENS.issuperset(name) or not value.isascii():
            return None
        if b"\r" in value or b"\n" in value or b"\0" in value:
            return None
        headers.append((name, value))
    path = words[1]
    if not path.isascii():
        return None
    return {"type": "http", "method": "GET", "path": path.decode(), "raw_path": path, "headers": headers}
