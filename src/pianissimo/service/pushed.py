"""Releases pushed to whoever waits for them: server-sent events, which go on after a break where they were.

Nobody has a queue of their own: a reader is a tick and a connection, and who reads slowly is sent less, then nothing.
Whose token is revoked or has ended is sent nothing more.
"""

import asyncio
from typing import Any

from starlette.responses import Response

from pianissimo.durable.records import StoredRelease
from pianissimo.errors import PianissimoError
from pianissimo.service.library import Library
from pianissimo.service.room import PIECE, BusyError
from pianissimo.service.shelf import Shelf
from pianissimo.service.tokens import Grant

PULSE = 15.0
"""Seconds after which somebody who waits is sent a sign of life."""


class PushedReleases(Response):
    """All visible releases after a tick, then each as it becomes visible."""

    media_type = "text/event-stream"

    def __init__(self, library: Library, shelf: Shelf, after: int) -> None:
        super().__init__()
        self._library, self._shelf, self._after = library, shelf, after
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"
        del self.headers["content-length"]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        grant = scope.get("state", {}).get("grant")
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await self._push(b"retry: 1000\n\n", send)
            while not (gone.done() or self._library.is_closing):
                ring = self._library.bell.next_ring()
                if not self._library.lets_in(grant):
                    break
                await self._push_new(send, grant)
                if self._library.is_closing:
                    break
                await asyncio.wait({gone, ring}, timeout=PULSE, return_when=asyncio.FIRST_COMPLETED)
                if not (gone.done() or ring.done()):
                    await self._push(b": still here\n\n", send)
            if not gone.done():
                await send({"type": "http.response.body", "body": b""})
        except (BusyError, OSError, PianissimoError):
            return  # no room, or a store that cannot be read: it comes again from where it was
        finally:
            gone.cancel()

    async def _push_new(self, send: Any, grant: Grant | None) -> None:
        seen = self._shelf.seen
        for life in seen.lives:
            for tick in range(max(self._after, life.first) + 1, life.visible + 1):
                if not self._library.lets_in(grant):
                    return
                found = self._shelf.at_hand(tick) or await self._library.at_work(self._shelf.release, tick)
                if found is not None:
                    await self._push_release(found, send)
                self._after = tick

    async def _push_release(self, found: StoredRelease, send: Any) -> None:
        head, end = b"id: %d\nevent: release\ndata: " % found.tick, b"\n\n"
        if len(found.payload) <= PIECE:
            await self._push(head + found.payload + end, send)
            return
        for content in (head, found.payload, end):
            await self._push(content, send)  # the stored bytes themselves: all who are sent them hold them once

    @staticmethod
    async def _push(content: bytes, send: Any) -> None:
        await send({"type": "http.response.body", "body": content, "more_body": True})


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
