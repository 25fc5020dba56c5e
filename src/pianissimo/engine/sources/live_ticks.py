"""A feed cut into ticks by the public clock.

A tick's events are all records that are in the source when the tick is over. While it lasts, what has come already is
read ahead; once the clock says that it is over, the source is asked where it ends, and is read to there. An event
counts in the tick in which it came: how many others came, and how fast they were read, cuts nothing.

When several ticks are over at once, as after an outage, the first has all that came until then and the others have
nothing: they were over when the first was closed.
"""

import threading
from collections.abc import Iterator
from typing import Any, Literal

import polars as pl

from pianissimo.engine.loop import Cut
from pianissimo.engine.sources.feed import Feed, OnceFeed
from pianissimo.engine.sources.records import RecordReader
from pianissimo.engine.sources.refused import RefusedFile
from pianissimo.engine.wall_clock import WallClock
from pianissimo.errors import ParameterError

Late = Literal["count", "drop"]

PAUSE = 0.2
"""Seconds between two looks at the source."""

MOST_ROWS = 1_000_000
"""Rows are handed over once there are so many, so that memory holds what they add and not themselves."""

_PAUSES_A_SIGN = 25


class LiveTicks:
    """The rows of a feed, by tick.

    With `late = "drop"` an event whose own time lies before the beginning of the open tick is left out; with "count" it
    counts, like every other, in the tick in which it came. `until_end` ends the stream with a feed that ends.
    """

    def __init__(
        self,
        feed: Feed,
        reader: RecordReader,
        clock: WallClock,
        *,
        refused: RefusedFile,
        stop: threading.Event | None = None,
        late: Late = "count",
        until_end: bool = False,
    ) -> None:
        if late not in ("count", "drop"):
            raise ParameterError(f"late must be 'count' or 'drop', got {late!r}")
        self._feed = feed
        self._reader = reader
        self._clock = clock
        self._late = late
        self._until_end = until_end
        self._stop = threading.Event() if stop is None else stop
        self.refused = refused
        self._covered = 0
        self._final: tuple[int, Any] | None = None
        self._has_ended = False
        self._frames: list[pl.DataFrame] = []
        self._rows = 0

    def seek(self, position: Any, tick: int) -> None:
        """Go to where a tick ended."""
        self._feed.seek(position)
        self._covered = tick

    def lag(self, tick: int) -> int:
        """How many ticks after `tick` are over by the clock."""
        return max(0, self._clock.ended(self._clock.now()) - tick)

    def batches(self, tick: int) -> Iterator[object]:
        """The rows of a tick, and None from time to time, as a sign that it still waits.

        If the source is away, the same tick may be asked for again: it goes on where it was.
        """
        if self._final is None and tick <= self._covered and self._clock.is_over(tick):
            return
        if self._has_ended:
            raise Cut(ended=True)
        pauses = 0
        while not self._is_closed(tick):
            yield from self._read(self._feed.end(), tick)
            if self._final is None:
                pauses += 1
                if pauses % _PAUSES_A_SIGN == 0:
                    yield None
                self._clock.sleep(max(0.001, min(PAUSE, self._clock.left(tick))))
        assert self._final is not None  # noqa: S101
        yield from self._read(self._final[1], tick)
        yield from self._handed_over()
        self.refused.sync()
        self._final = None

    @property
    def position(self) -> Any:
        """Where the feed stands."""
        return self._feed.position

    def close(self) -> None:
        """Let go of the source."""
        self._feed.close()

    def _is_closed(self, tick: int) -> bool:
        """Whether the end of the tick is known; it is asked for once, as soon as the tick is over."""
        if self._final is not None and self._final[0] == tick:
            return True
        if self._clock.is_over(tick):
            # Before the source is asked: what comes from now on belongs to a tick that is not over yet.
            self._covered = self._clock.ended(self._clock.now())
        elif isinstance(self._feed, OnceFeed) and (self._stop.is_set() or (self._until_end and self._feed.ended)):
            # It cannot be read again: what came is sealed now, and the tick is over early.
            self._has_ended = True
        elif self._stop.is_set():
            raise Cut(ended=False)
        else:
            return False
        self._final = tick, self._feed.end()
        return True

    def _read(self, end: Any, tick: int) -> Iterator[pl.DataFrame]:
        earliest = self._clock.begin(tick) if self._late == "drop" else None
        for records in self._feed.read(end):
            rows, refused = self._reader.read(records, earliest)
            self._frames.append(rows)
            self._rows += rows.height
            self.refused.add(records.place, refused)
            if self._rows >= MOST_ROWS:
                yield from self._handed_over()
            # Also in the midst of much: the tick ends when it is over, not when all of this is read.
            self._is_closed(tick)

    def _handed_over(self) -> Iterator[pl.DataFrame]:
        frames, self._frames, self._rows = self._frames, [], 0
        if frames:
            yield pl.concat(frames)
