"""What was counted in the past, so that its intervals can be answered. It is secret, like all counts.

An interval is a sum of moves: which slots moved, and by how much. Which moves are kept is a function of two public
numbers, the limit H and the tick t, and of nothing that was counted:

* of each of the last H ticks, so that an interval may begin and end at any of them;
* between *checkpoints* since the beginning: the multiples of C, a sixteenth of H or, where H is no multiple of 16, an
  eighth, a quarter, a half or all of it. The one at m C is forgotten at n C if n - m > 16 2^v, where 2^v is the largest
  power of two in m. So there are ever fewer, at most an eighth of their age apart, and their number grows with the
  logarithm of the ticks. Multiples of H are kept for 16 H at least: of a day of minutes, each midnight of two weeks.

In memory a checkpoint has what moved since the one before it, and takes over from one that is forgotten. What is stored
of it is never changed: what moved since (m - 2^j) C, for each j up to v. One of these is the checkpoint before it, at
any time. For m - 2^v has a larger power and is kept if m is. And if m - k is kept for a smaller k, so is m - 2^i, with
2^i the largest power of two in k: it is younger and as lasting.
"""

import math
from bisect import bisect
from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.errors import ParameterError

_PARTS = 16
"""Into at most how many parts checkpoints cut the ticks that are all kept."""

_LASTING = 16
"""For how many times its distance from its neighbours a checkpoint is kept."""

NO_HISTORY = "an interval must be of a query that keeps a history, got one of history=0; begin a new stream with more"

_SPAN_BYTES = 4
"""What packed moves begin with: how many slots they span."""


def checkpoint_distance(limit: int) -> int:
    """C: how far apart checkpoints are, where they are closest.

    >>> checkpoint_distance(1440), checkpoint_distance(24), checkpoint_distance(7)
    (90, 3, 7)
    """
    return limit // math.gcd(limit, _PARTS)


def lasting_ticks(limit: int, tick: int) -> set[int]:
    """The checkpoints that are kept after so many ticks; the beginning is one.

    >>> sorted(lasting_ticks(1, 100))[:8]
    [0, 8, 16, 24, 32, 36, 40, 44]
    """
    distance = checkpoint_distance(limit)
    found, step, last = {0}, 1, tick // distance
    while step <= last:
        oldest = max(0, last - _LASTING * step)
        found.update(distance * place for place in range(oldest + -oldest % step, last + 1, step))
        step *= 2
    return found


def pack(slots: NDArray[np.integer], amounts: NDArray[np.integer]) -> bytes:
    """How far some slots moved, in few bytes whether they are few or nearly all."""
    return _core.pack_moves(np.ascontiguousarray(slots, np.int64), np.ascontiguousarray(amounts, np.int64))


_NOTHING = pack(np.empty(0, np.int64), np.empty(0, np.int64))


def _together(parts: Sequence[bytes]) -> bytes:
    """Several moves as one."""
    if len(parts) < 2:
        return parts[0] if parts else _NOTHING
    total = _added_up(parts, max(int.from_bytes(each[:_SPAN_BYTES], "little") for each in parts))
    slots = np.flatnonzero(total)
    return pack(slots, total[slots])


def _added_up(parts: Sequence[bytes], size: int) -> NDArray[np.int64]:
    total = np.zeros(size, dtype=np.int64)
    for each in parts:
        _core.add_moves(total, each)
    return total


class Recent:
    """The moves of the open tick, of each of the last `limit` closed ones, and those between checkpoints."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tick = 0
        self._open: list[bytes] = []
        self._closed: deque[bytes] = deque(maxlen=limit)
        self._checkpoints: dict[int, tuple[int, bytes]] = {}
        """In their order; of each the tick of the one before it, and what moved since."""

    def add(self, slots: NDArray[np.int64], moves: NDArray[np.int64]) -> None:
        """Remember what a batch of the open tick moved."""
        if self._limit:
            self._open.append(pack(slots, moves))

    def close(self) -> None:
        """End the open tick."""
        self._tick += 1
        if not self._limit:
            return
        self._closed.append(_together(self._open))
        self._open = []
        if self._tick % checkpoint_distance(self._limit) == 0:
            self._make_checkpoint()

    def between(self, start: int, end: int, *, size: int) -> NDArray[np.int64]:
        """How far each of `size` slots moved in ticks start + 1 .. end."""
        if not 0 <= start < end <= self._tick:
            raise ParameterError(f"an interval must lie within the {self._tick} released ticks, got {start} to {end}")
        # An interval may end where every tick is kept and begin before: the way goes by the checkpoint after its end.
        parts = self._way(start, end)
        top = end if parts is not None else min(self._tick, end + -end % checkpoint_distance(max(1, self._limit)))
        parts, beyond = self._way(start, top), self._way(end, top)
        if parts is None or beyond is None:
            raise ParameterError(self._refusal(start, end))
        return _added_up(parts, size) - _added_up(beyond, size) if beyond else _added_up(parts, size)

    def _make_checkpoint(self) -> None:
        """What moved since the one before; and forget those that are not kept any more."""
        # A stream of an earlier version has checkpoints since it is run by this one.
        before = max(self._checkpoints, default=max(0, self._tick - checkpoint_distance(self._limit)))
        way = self._way(before, self._tick)
        assert way is not None  # noqa: S101
        self._checkpoints[self._tick] = (before, _together(way))
        kept, left = lasting_ticks(self._limit, self._tick), dict[int, tuple[int, bytes]]()
        taken: list[tuple[int, bytes]] = []
        for tick, own in self._checkpoints.items():
            taken.append(own)
            if tick in kept:
                left[tick] = (taken[0][0], _together([moves for _, moves in taken]))
                taken = []
        self._checkpoints = left

    def _way(self, start: int, end: int) -> list[bytes] | None:
        """Moves that make up those of an interval, from its end back; None where there is no way."""
        oldest, place, found = self._oldest, end, list[bytes]()
        while place > start:
            before, moves = self._checkpoints.get(place, (-1, b""))
            if before >= start:
                found.append(moves)
                place = before
            elif place > oldest:
                place -= 1
                found.append(self._closed[place - oldest])
            else:
                return None
        return found

    @property
    def _oldest(self) -> int:
        return self._tick - len(self._closed)

    def _refusal(self, start: int, end: int) -> str:
        if not self._limit:
            return NO_HISTORY
        kept = sorted({self._oldest, *self._checkpoints, *(before for before, _ in self._checkpoints.values())})
        wrong = start if end >= self._oldest or end in kept else end
        place = bisect(kept, wrong)
        near = " and ".join(map(str, kept[max(0, place - 1) : place + 1]))
        return (
            f"an interval must begin and end at ticks that are kept, got {start} to {end}: each from {self._oldest} "
            f"on is, and of those before ever fewer, near {wrong} {near}; ask for such, or begin a new stream with a "
            "longer history"
        )

    @property
    def log_length(self) -> int:
        return self._limit

    def to_plain(self) -> codec.Plain:
        return {"tick": self._tick, "closed": len(self._closed), "open": self._open}

    def log(self) -> codec.Plain:
        return self._closed[-1] if self._closed else _NOTHING

    def checkpoint(self) -> codec.Plain:
        """What is stored for long of the last tick; None where it is no checkpoint."""
        if self._tick not in self._checkpoints:
            return None
        distance = checkpoint_distance(self._limit)
        place = self._tick // distance
        starts = [self._tick - (distance << power) for power in range((place & -place).bit_length())]
        ways = [(start, self._way(start, self._tick)) for start in starts]
        return {"tick": self._tick, "since": [[start, _together(way)] for start, way in ways if way is not None]}

    def lasting(self) -> set[int]:
        """Of which ticks that is needed."""
        return {*self._checkpoints}

    def missing(self) -> set[int]:
        """Of which ticks there is none, though there should be: what a store has lost, or an earlier version began."""
        kept = lasting_ticks(self._limit, self._tick) if self._limit else set()
        return kept - {0} - {*self._checkpoints}

    def take_logged(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        moves = [_taken(each) for each in logs if not isinstance(each, dict)]
        needed = content["closed"]
        if len(moves) < needed:
            raise ParameterError(f"a history must have the logs of its last {needed} ticks, got {len(moves)}")
        self._tick = content["tick"]
        self._open = [_taken([each]) for each in content["open"]]
        self._closed.extend(moves[len(moves) - needed :])
        kept = lasting_ticks(self._limit, self._tick) if self._limit else set()
        for each in logs:
            if isinstance(each, dict) and each["tick"] in kept:
                since = dict(each["since"])
                before = max(self._checkpoints, default=0 if 0 in since else max(since))
                if before not in since:
                    # The one between is lost: there is no way over it, and all others are as they were.
                    before = min(start for start in since if start > before)
                self._checkpoints[each["tick"]] = (before, since[before])


def _taken(stored: codec.Plain) -> bytes:
    """Moves as they are stored, or as earlier versions stored them: slots and amounts of each batch."""
    if isinstance(stored, bytes):
        return stored
    return _together([each if isinstance(each, bytes) else pack(*each) for each in stored])
