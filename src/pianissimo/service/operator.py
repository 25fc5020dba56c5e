"""The routes of operators, on a listener of their own: where a running stream stands, and to publish, rotate or stop.

Figures are in ticks, never in events. They may still tell how long the counting took: they are for those who run the
stream, not for those who read it.
"""

import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.key_ring import read_secret
from pianissimo.errors import PianissimoError
from pianissimo.io.inspect import read_status
from pianissimo.io.metrics import Metrics
from pianissimo.service.answers import documented, told_now
from pianissimo.service.gate import GateError
from pianissimo.service.library import Library
from pianissimo.service.room import BusyError


class OperatorRoutes:
    """What operators may ask of a stream that runs in this process."""

    def __init__(
        self, library: Library, live: DurableStream, stop: threading.Event, state: str, metrics: Metrics | None = None
    ) -> None:
        self._library, self._live, self._stop, self._state, self._metrics = library, live, stop, state, metrics
        self.router = APIRouter(prefix="/operator", tags=["operator"])
        more: dict[str, Any] = {"responses": documented(400, 401, 403, 404, 405, 408, 413, 421, 429, 503)}
        more["response_class"] = Response
        get: Callable[..., Any] = self.router.get
        post: Callable[..., Any] = self.router.post
        get("/status", **more)(self.status)
        get("/health", **more)(self.health)
        get("/metrics", **more)(self.metrics)
        post("/publish", **more)(self.publish)
        post("/rotate", **more)(self.rotate)
        post("/stop", **more)(self.stop)

    async def status(self) -> Response:
        """Where the stream stands, in ticks."""
        return told_now(asdict(await self._work(read_status, self._state)))

    async def health(self) -> Response:
        """Whether it runs, and the last ticks that are released and shown."""
        live = self._live
        return told_now({"state": "stopping" if self._stop.is_set() else "running", "tick": live.tick_number})

    async def metrics(self) -> Response:
        """Figures for Prometheus."""
        if self._metrics is None:
            raise GateError(404)
        return Response(self._metrics.text(), headers={"cache-control": "no-store"}, media_type="text/plain")

    async def publish(self) -> Response:
        """Show what is due, and have it sent to sinks that lack it."""
        await self._work(self._live.publish)
        return told_now({"shown_tick": self._live.shown_tick})

    async def rotate(self, new: Annotated[str, Query(min_length=1, max_length=4096)]) -> Response:
        """Take a new secret from the next tick on; it is made in this file, which must not be there yet."""
        path = Path(new)

        def do() -> int:
            try:
                if path.exists():
                    raise GateError(400, "new must be a file that is not there yet, got one that is")
                secret = read_secret(path, beside=path, create=True)
            except (OSError, ValueError, PianissimoError):
                raise GateError(400, "new must be a file that can be made, got another") from None
            self._live.rotate_secret(secret)
            return self._live.tick_number + 1

        return told_now({"from_tick": await self._work(do)})

    async def stop(self) -> Response:
        """Stop the stream as a signal does: the open tick is left to the next start."""
        self._stop.set()
        return told_now({"state": "stopping"})

    async def _work(self, do: Callable[..., Any], *args: Any) -> Any:
        try:
            return await self._library.at_work(do, *args)
        except (BusyError, PianissimoError):
            raise GateError(503) from None
