"""What was counted in each of the last ticks, so that any interval of the recent past can be answered.

Secret, like all counts. Per tick it holds the slots that moved and by how much; ticks older than the limit are
forgotten.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import ParameterError

Moves = tuple[NDArray[np.uint32], NDArray[np.int64]]


class Recent:
    """The moves of the open tick and of the last `limit` closed ones.

    >>> recent = Recent(limit=2)
    >>> recent.add(np.array([0, 3]), np.array([5, 1]))
    >>> recent.close()
    >>> recent.add(np.array([3]), np.array([1]))
    >>> recent.close()
    >>> recent.between(0, 2, size=4)
    array([5, 0, 0, 2])
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tick = 0
        self._open: list[Moves] = []
        self._closed: deque[list[Moves]] = deque(maxlen=limit)

    def add(self, slots: NDArray[np.int64], moves: NDArray[np.int64]) -> None:
        """Remember what a batch of the open tick moved."""
        if self._limit:
            self._open.append((slots.astype(np.uint32), moves.copy()))

    def close(self) -> None:
        """End the open tick."""
        self._tick += 1
        self._closed.append(self._open)
        self._open = []

    def between(self, start: int, end: int, *, size: int) -> NDArray[np.int64]:
        """How far each of `size` slots moved in ticks start + 1 .. end."""
        if not 0 <= start < end <= self._tick:
            raise ParameterError(f"an interval must lie within the {self._tick} released ticks, got {start} to {end}")
        oldest = self._tick - len(self._closed)
        if start < oldest:
            raise ParameterError(
                f"an interval must begin at tick {oldest} or later, got {start}: older ticks are not kept; "
                "give the stream a longer history"
            )
        total = np.zeros(size, dtype=np.int64)
        for moves in list(self._closed)[start - oldest : end - oldest]:
            for slots, amounts in moves:
                total[slots] += amounts
        return total

    def to_plain(self) -> codec.Plain:
        """Its content as plain data."""
        ticks = [[list(moves) for moves in tick] for tick in self._closed]
        return {"tick": self._tick, "closed": ticks, "open": [list(moves) for moves in self._open]}

    @property
    def log_length(self) -> int:
        """How many of its last log entries make it whole."""
        return self._limit

    def to_short(self) -> codec.Plain:
        """Its content without the closed ticks, of which there are logs."""
        return {"tick": self._tick, "closed": len(self._closed), "open": [list(moves) for moves in self._open]}

    def log(self) -> codec.Plain:
        """What the last closed tick added to it."""
        return [list(moves) for moves in self._closed[-1]] if self._closed else []

    def take_short(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        """Take over a stored content and the logs of its closed ticks, the oldest first."""
        needed = content["closed"]
        if len(logs) < needed:
            raise ParameterError(f"a history must have the logs of its last {needed} ticks, got {len(logs)}")
        self.take_plain(content | {"closed": list(logs[len(logs) - needed :])})

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content."""
        self._tick = content["tick"]
        self._open = [(moves[0], moves[1]) for moves in content["open"]]
        self._closed.extend([(moves[0], moves[1]) for moves in tick] for tick in content["closed"])
