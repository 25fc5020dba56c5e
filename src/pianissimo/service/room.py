"""Answers on their way to readers: in pieces, and all that nobody has taken yet within one bound.

A long answer is held until its reader has taken it. Where there is no room for another one, the slowest readers are
given up; where nobody is slow, who asks is told to come again. So how much is held does not grow with who reads.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

MOST_HELD = 64 << 20
"""Bytes of long answers that are held at once; what several readers share counts once."""

PIECE = 1 << 16
"""Bytes that are sent at a time: so much of an answer counts as nothing."""

SLOW = 1 << 20
"""Bytes a second: who takes less may be given up to make room, a second after the answer began."""


class BusyError(Exception):
    """More than there is room for: of work that waits, or of answers, where no reader is slow."""


@dataclass(slots=True)
class _HeldAnswer:
    body: bytes
    begun: float
    moved: float
    taken: int = 0

    def pace(self, now: float) -> float:
        """Bytes a second, since it began and since the last piece; in the first second, of one who is not slow.

        The system takes some megabytes at once for whoever does not read: so what was taken tells little.
        """
        if now - self.begun < 1:
            return SLOW
        return min(self.taken / (now - self.begun), PIECE / max(now - self.moved, 1e-3))


class Room:
    """What is held for readers, used within one event loop: of each task one body at a time."""

    def __init__(self) -> None:
        self._held: dict[asyncio.Task[Any], _HeldAnswer] = {}
        self._holders: Counter[int] = Counter()
        self.size = 0

    async def hand_over(self, body: bytes, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send a body piece by piece; `BusyError` before the first one."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None  # noqa: S101
        held = self._take(task, body, loop.time())
        try:
            while held.taken < len(body):
                await send(body[held.taken : held.taken + PIECE])
                held.taken, held.moved = held.taken + PIECE, loop.time()
        finally:
            self._let_go(task)

    def _take(self, task: asyncio.Task[Any], body: bytes, now: float) -> _HeldAnswer:
        while self.size + len(body) > MOST_HELD and not self._holders[id(body)] and self._held:
            slowest = min(self._held, key=lambda each: self._held[each].pace(now))
            if self._held[slowest].pace(now) >= SLOW:
                raise BusyError
            self._let_go(slowest)
            slowest.cancel()
        self._held[task] = held = _HeldAnswer(body, now, now)
        self._holders[id(body)] += 1
        self.size += len(body) * (self._holders[id(body)] == 1)
        return held

    def _let_go(self, task: asyncio.Task[Any]) -> None:
        held = self._held.pop(task, None)
        if held is None:
            return  # to make room, before
        self._holders[id(held.body)] -= 1
        if not self._holders[id(held.body)]:
            del self._holders[id(held.body)]
            self.size -= len(held.body)
