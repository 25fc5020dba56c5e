"""All shelves of one service: looked after on a public grid of moments, and asked by many readers at once."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import ParamSpec, TypeVar

from pianissimo.errors import ParameterError
from pianissimo.service.room import BusyError, Room
from pianissimo.service.shelf import Shelf
from pianissimo.service.tokens import Grant, KnownTokens, TokenFile

EVERY = 0.25
"""Seconds between two looks at the stores and at the tokens: at the same moments, whatever is there."""

MOST_WAITING = 64
"""Pieces of work that may wait for a thread; beyond it, who asks is told to come again."""

_THREADS = 2
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class Bell:
    """Wakes all who wait for it; used within one event loop."""

    def __init__(self) -> None:
        self._next: asyncio.Future[None] | None = None

    def next_ring(self) -> "asyncio.Future[None]":
        """Done when it rings the next time."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    def ring(self) -> None:
        """Wake them."""
        rung, self._next = self._next, None
        if rung is not None and not rung.done():
            rung.set_result(None)


class Library:
    """The shelves of the streams at some places, and the tokens for them."""

    def __init__(self, places: Sequence[Path | str], *, tokens: TokenFile | None = None, public: bool = False) -> None:
        self.shelves: dict[str, Shelf] = {}
        for place in places:
            shelf = Shelf(place)
            if shelf.name in self.shelves:
                raise ParameterError(f"streams served together must have different names, got {shelf.name!r} twice")
            self.shelves[shelf.name] = shelf
        self.shelves = dict(sorted(self.shelves.items()))
        self.public = public
        self._tokens = tokens
        self.known = KnownTokens({}) if tokens is None else tokens.look()
        self.bell = Bell()
        self.room = Room()
        self.is_closing = False
        self._pool = ThreadPoolExecutor(_THREADS, "pianissimo-work")
        self._looks = [self._look_at_tokens, *(shelf.look for shelf in self.shelves.values())]
        self._watching = ThreadPoolExecutor(len(self._looks), "pianissimo-watch")
        self._waiting = 0

    async def at_work(self, do: Callable[_Given, _Found], *args: _Given.args, **more: _Given.kwargs) -> _Found:
        """Run what takes long in one of a few threads."""
        if self._waiting >= MOST_WAITING:
            raise BusyError
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: do(*args, **more))
        finally:
            self._waiting -= 1

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """While it is open, it is looked after."""
        # Each by itself: a store that hangs keeps nobody in whose token is revoked, nor another stream waiting.
        tasks = [asyncio.create_task(self._watch(look)) for look in self._looks]
        try:
            yield
        finally:
            self.close_streams()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._pool.shutdown(cancel_futures=True)
            self._watching.shutdown(cancel_futures=True)
            for shelf in self.shelves.values():
                shelf.close()

    def close_streams(self) -> None:
        """Let readers that wait for the next tick go."""
        self.is_closing = True
        self.bell.ring()

    async def _watch(self, look: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(EVERY - time.time() % EVERY)
            if await loop.run_in_executor(self._watching, look):
                self.bell.ring()

    def _look_at_tokens(self) -> bool:
        before = self.known
        if self._tokens is not None:
            self.known = self._tokens.look()
        # Who is sent releases as they come is looked at again where the tokens are others.
        return self.known is not before

    def lets_in(self, grant: Grant | None) -> bool:
        """Whether what let somebody in holds still; None is for what everybody may see."""
        if grant is None:
            return True
        return self.known.grants.get(grant.digest) == grant and grant.is_valid(datetime.now(UTC))
