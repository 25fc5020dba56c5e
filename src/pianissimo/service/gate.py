"""What every request passes first: host, origin, path, token; and the shortest way to a stored release.

Whoever is let in gets an answer that is a function of the request, the visible releases, the plan and the tokens. Who
is not let in gets one that is a function of the request and the tokens.
"""

import asyncio
import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any

from pianissimo.service.answers import Headers, header_of, is_known, refusal_body, refusal_headers, safe_headers
from pianissimo.service.library import Library
from pianissimo.service.room import PIECE, BusyError
from pianissimo.service.tokens import Access, Grant

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LONGEST_BODY = 1 << 20
"""Bytes of a body before it is unpacked."""

BODY_SECONDS = 30.0
"""In which a body must have come."""

ROLES: dict[str, Access] = {"questions": "analyst", "allowance": "analyst", "events": "writer"}
"""Of whom the routes below a stream are that are not the viewers'."""

_PATH = re.compile(rb"/[A-Za-z0-9._~-]*(?:/[A-Za-z0-9._~-]+)*")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_GUESSES, _GUESSES_SECONDS, _MOST_GUESSERS = 20, 60.0, 4096


class GateError(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, message: str | None = None) -> None:
        super().__init__(status)
        self.status, self.message = status, message


class Gate:
    """An application behind its checks."""

    def __init__(
        self,
        app: App,
        library: Library,
        *,
        hosts: Collection[str] = (),
        embedded_in: Collection[str] = (),
        names: Mapping[Access, Collection[str]] | None = None,
    ) -> None:
        """`names` are what analysts, writers and operators may ask for: other than viewers, who have the streams."""
        self._app, self.library = app, library
        self._hosts = _LOOPBACK | set(map(_as_asked, hosts))
        self._headers = safe_headers(embedded_in)
        self._names = dict(names or {})
        self._kept = b"public" if library.public else b"private"
        self._guesses: OrderedDict[str, list[float]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            self._check_sender(scope)
            stream = self._admitted(scope)
            found = None if stream is None else self._stored(scope, stream)
            sent = self._sent(send)
            if found is not None:
                await sent({"type": "http.response.start", "status": found[0], "headers": found[1]})
                await sent({"type": "http.response.body", "body": found[2]})
                return
            await self._app(scope, self._bounded(scope, receive), sent)
        except GateError as error:
            await self._refuse(error, send)

    def _check_sender(self, scope: Scope) -> None:
        headers = scope["headers"]
        host = header_of(headers, b"host")
        named = None if host is None else _HOST.fullmatch(host.lower())
        if named is None or (named[1] not in self._hosts and "*" not in self._hosts):
            raise GateError(421)
        origin = next((value for name, value in headers if name == b"origin"), None)
        if origin is not None and origin.decode("latin-1").partition("://")[2].lower() != str(host).lower():
            raise GateError(403, "a request of a page must come from a page of this service, got another")
        path = scope.get("raw_path") or scope["path"].encode()
        if not _PATH.fullmatch(path) or any(part in (b".", b"..") for part in path.split(b"/")):
            raise GateError(404)

    def _admitted(self, scope: Scope) -> str | None:
        """The stream that a viewer asks for, if it is one and may be seen; refuses whom its token does not admit."""
        parts = scope["path"].split("/")
        if parts[1] not in ("v1", "operator"):
            return None
        role = ROLES.get(parts[4], "viewer") if len(parts) > 4 else "viewer"
        role = "operator" if parts[1] == "operator" else role
        grant = self._grant(scope)
        if grant is not None and grant.role != role:
            raise GateError(403)
        if grant is None and not (self.library.public and role == "viewer"):
            raise GateError(401)
        scope.setdefault("state", {})["grant"] = grant
        if grant is not None and role == "operator" and not any(map(grant.covers, self._names.get(role, ()))):
            raise GateError(404)
        if len(parts) < 4 or parts[1:3] != ["v1", "streams"]:
            return None
        name: str = parts[3]
        there: Collection[str] = self.library.shelves if role == "viewer" else self._names.get(role, ())
        if name not in there or (grant is not None and not grant.covers(name)):
            raise GateError(404)
        return name if role == "viewer" else None

    def _grant(self, scope: Scope) -> Grant | None:
        """What the token of a request allows; None where there is no token."""
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if not given:
            return None
        kind, _, token = given[0].decode("latin-1").partition(" ")
        found = self.library.known.granted(token) if len(given) == 1 and kind.lower() == "bearer" else None
        if found is None or not found.is_valid(datetime.now(UTC)):
            # Who comes the short way comes the long one after a refusal, and is counted there.
            raise GateError(429 if not scope.get("short") and self._guesses_much(scope) else 401)
        return found

    def _guesses_much(self, scope: Scope) -> bool:
        """Whether an address has sent many tokens that do not hold; those that hold are never kept waiting."""
        address, now = str((scope.get("client") or ("",))[0]), time.monotonic()
        recent = [each for each in self._guesses.pop(address, []) if now - each < _GUESSES_SECONDS]
        is_much = len(recent) >= _GUESSES
        self._guesses[address] = recent if is_much else [*recent, now]
        while len(self._guesses) > _MOST_GUESSERS:
            self._guesses.popitem(last=False)
        return is_much

    def stored(self, scope: Scope) -> tuple[int, Headers, bytes] | None:
        """Status, headers and stored bytes, if a short release at hand is asked for; refuses as a request is."""
        self._check_sender(scope)
        stream = self._admitted(scope)
        found = None if stream is None else self._stored(scope, stream)
        return None if found is None or len(found[2]) > PIECE else (found[0], [*self._headers, *found[1]], found[2])

    def _stored(self, scope: Scope, stream: str) -> tuple[int, Headers, bytes] | None:
        parts = scope["path"].split("/")
        if len(parts) != 6 or parts[4] != "releases" or scope["method"] != "GET":
            return None
        shelf, number = self.library.shelves[stream], parts[5]
        tick = int(number) if number.isascii() and number.isdigit() and len(number) < 16 else 0
        found = shelf.at_hand(tick)
        if found is None:
            if shelf.seen.life_of(tick) is None:
                raise GateError(404)
            return None
        tag = f'"{found.digest.hex()}"'
        headers = stored_headers(tag, self._kept)
        if is_known(tag, header_of(scope["headers"], b"if-none-match")):
            return 304, headers, b""
        headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(found.payload))]
        return 200, headers, found.payload

    @staticmethod
    def _bounded(scope: Scope, receive: Receive) -> Receive:
        """Bodies within their length and their time."""
        said = header_of(scope["headers"], b"content-length")
        if said is not None and (not said.isdigit() or len(said) > 12 or int(said) > LONGEST_BODY):
            raise GateError(413)
        came, deadline, is_whole = 0, time.monotonic() + BODY_SECONDS, False

        async def bounded() -> Message:
            nonlocal came, is_whole
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise GateError(408) from None
            came += len(message.get("body", b""))
            if came > LONGEST_BODY:
                raise GateError(413)
            is_whole = message["type"] != "http.request" or not message.get("more_body", False)
            return message

        return bounded

    def _sent(self, send: Send) -> Send:
        """Answers with their headers, and in pieces. The head waits for the body, for which there may be no room."""
        head: Message | None = None
        is_refused = False

        async def sent(message: Message) -> None:
            nonlocal head, is_refused
            if message["type"] == "http.response.start":
                head = {**message, "headers": [*self._headers, *message.get("headers", [])]}
                return
            body = message.get("body", b"")
            if len(body) <= PIECE:
                await out(message)
                return
            try:
                await self.library.room.hand_over(
                    body, lambda piece: out({**message, "body": piece, "more_body": True})
                )
            except BusyError:
                if head is None:
                    raise
                head, is_refused = None, True
                await self._refuse(GateError(503), send)
                return
            await out({**message, "body": b""})

        async def out(message: Message) -> None:
            nonlocal head
            if head is not None:
                await send(head)
                head = None
            if not is_refused:
                await send(message)

        return sent

    async def _refuse(self, error: GateError, send: Send) -> None:
        body = refusal_body(error.status, error.message)
        length = (b"content-length", b"%d" % len(body))
        headers: Headers = [*self._headers, *refusal_headers(error.status), length]
        if error.status in (408, 413):
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": error.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _as_asked(host: str) -> str:
    """A name or an address as requests have it: IPv6 within brackets, and as short as it goes."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host.lower()
    return f"[{address}]" if address.version == 6 else str(address)


def stored_headers(tag: str, kept: bytes) -> Headers:
    """Of bytes that never change."""
    return [(b"etag", tag.encode("ascii")), (b"cache-control", kept + b", max-age=31536000, immutable")]
