"""The route of writers: events in, and the same answer for each."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel

from pianissimo.errors import InputError, StoreError
from pianissimo.service.answers import documented
from pianissimo.service.gate import GateError
from pianissimo.service.inbox import READERS, Inbox, lines_of
from pianissimo.service.library import Library
from pianissimo.service.room import BusyError
from pianissimo.service.viewer import StreamName

_STORED = b'{"state":"stored"}'
_PACKED = (None, "identity", "gzip")


class EventsTaken(BaseModel):
    """That events are on the disk; what becomes of them is not told."""

    state: str


_BODY = {"requestBody": {"required": True, "content": {kind: {"schema": {"type": "string"}} for kind in READERS}}}


class WriterRoutes:
    """Where writers send events of some streams to."""

    def __init__(self, library: Library, inboxes: Mapping[str, Inbox]) -> None:
        self._library, self._inboxes = library, inboxes
        self._waiting: dict[str, list[tuple[bytes, asyncio.Future[None]]]] = {name: [] for name in inboxes}
        self._writing: dict[str, asyncio.Task[None]] = {}
        """By stream what writes now; it takes itself out when nothing waits any more."""

        self.router = APIRouter(prefix="/v1/streams", tags=["writer"])
        answers: Any = {
            202: {"model": EventsTaken},
            **documented(400, 401, 403, 404, 405, 408, 413, 415, 421, 429, 503),
        }
        post: Callable[..., Any] = self.router.post
        post("/{name}/events", status_code=202, responses=answers, response_class=Response, openapi_extra=_BODY)(
            self.events
        )

    async def events(
        self,
        request: Request,
        name: StreamName,
        content_type: Annotated[str | None, Header()] = None,
        content_encoding: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Take events: lines of JSON, packed by gzip or not, or an Arrow stream without compression.

        The answer comes when they are on the disk. It is the same for what is counted, late, cut off or sent before.
        """
        kind = (content_type or "").partition(";")[0].strip().lower()
        if kind not in READERS or content_encoding not in _PACKED:
            raise GateError(415)
        body = await request.body()
        try:
            lines = await self._library.at_work(lines_of, body, kind, content_encoding)
            await self._stored(name, lines)
        except InputError as error:
            raise GateError(400, str(error)) from None
        except (BusyError, StoreError):
            raise GateError(503) from None
        return Response(_STORED, 202, {"cache-control": "no-store"}, "application/json")

    async def _stored(self, name: str, lines: bytes) -> None:
        """On the disk: what comes while another piece is being written is written and synced together."""
        waiting, done = self._waiting[name], asyncio.get_running_loop().create_future()
        waiting.append((lines, done))
        if name not in self._writing:
            self._writing[name] = asyncio.create_task(self._write(name))
        await done

    async def _write(self, name: str) -> None:
        waiting = self._waiting[name]
        while waiting:
            pieces = waiting[:]
            waiting.clear()
            content = b"".join(lines for lines, _ in pieces)
            try:
                await asyncio.to_thread(self._inboxes[name].put, content)
                fault: Exception | None = None
            except Exception as error:  # noqa: BLE001  each who waits is told
                fault = error
            for _, done in pieces:
                if done.done():
                    continue
                if fault is None:
                    done.set_result(None)
                else:
                    done.set_exception(StoreError("what came must be on the disk, got a fault"))
        del self._writing[name]
