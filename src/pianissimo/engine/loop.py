"""The loop of a durable stream: read a tick, seal it, release it, publish it, and go on until the last or a signal.

A full disk stops nothing but the loop: it waits and tries again, and reads nothing further meanwhile. A sync that fails
ends the process. Everything that it tells while it runs is in ticks.
"""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from pianissimo.engine.durable import DurableStream
from pianissimo.engine.failpoints import reach
from pianissimo.engine.sinks import write_whole
from pianissimo.errors import DiskFullError, PendingError, StoreError
from pianissimo.queries import Alarm, Trending
from pianissimo.stream.release import StreamRelease

FIRST_WAIT, LONGEST_WAIT = 0.2, 30.0
"""Seconds between attempts while there is no room; they double."""

Progress = Callable[[int, int], None]
Rang = Callable[[int, str, dict[str, Any]], None]
"""Is told the tick, the query and the row of an alarm or a trend."""


class TickSource(Protocol):
    """Events, tick by tick, from any place that was sealed before."""

    def seek(self, position: Any, tick: int) -> None:
        """Go to where tick `tick` ended, at `position`; None if nothing was read. `SourceError` if that cannot be."""

    def batches(self, tick: int) -> Iterator[object]:
        """The events of a tick, as they come; it ends once the tick is over by the public clock."""

    @property
    def position(self) -> Any:
        """Where the events of the tick end whose batches were read to the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSummary:
    """How a loop ended.

    >>> LoopSummary(first_tick=8, tick=96, last_tick=96, stopped=False).tick
    96
    """

    first_tick: int
    """Where it took up."""

    tick: int
    """The last tick that is released."""

    last_tick: int
    stopped: bool
    """Whether it was told to stop before the last tick."""


class Engine:
    """Runs a durable stream on a source."""

    def __init__(
        self,
        live: DurableStream,
        source: TickSource,
        last_tick: int,
        *,
        health: Path | None = None,
        progress: Progress | None = None,
        rang: Rang | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._live = live
        self._source = source
        self._last_tick = last_tick
        self._health = health
        self._progress = progress
        self._rang = rang
        self._watched = [each.query.name for each in live.plan.queries if isinstance(each.query, Alarm | Trending)]
        self.stop = threading.Event() if stop is None else stop

    def run(self) -> LoopSummary:
        """Release tick after tick."""
        live, first = self._live, self._live.tick_number + 1
        self._source.seek(live.position, live.tick_number)
        self._tell("running")
        while live.tick_number < self._last_tick and not self.stop.is_set():
            reach("absorb.read")
            for batch in self._source.batches(live.tick_number + 1):
                live.absorb(batch)
            if self.stop.is_set():
                live.discard()
                break
            self._tell_rings(self._release())
            self._tell("running")
            if self._progress:
                self._progress(live.tick_number, self._last_tick)
        stopped = live.tick_number < self._last_tick
        self._tell("stopped" if stopped else "done")
        return LoopSummary(first_tick=first, tick=live.tick_number, last_tick=self._last_tick, stopped=stopped)

    def _release(self) -> StreamRelease:
        wait = FIRST_WAIT
        while True:
            try:
                if self._live.pending is None:
                    return self._live.seal(self._source.position)
                return self._live.finish()
            except (DiskFullError, PendingError) as error:
                self._tell("waiting for room")
                if isinstance(error, PendingError) and not isinstance(error.__cause__, DiskFullError):
                    raise
                if self.stop.wait(wait):
                    raise StoreError(
                        "the disk must have room to go on, got none until the stream was told to stop"
                    ) from None
                wait = min(2 * wait, LONGEST_WAIT)

    def _tell_rings(self, release: StreamRelease) -> None:
        """Tell alarms and trends, once they are stored."""
        if self._rang is not None:
            for name in self._watched:
                for row in release[name].to_dicts() if name in release.names else ():
                    self._rang(release.tick, name, row)

    def _tell(self, state: str) -> None:
        """Leave a line for whoever looks after the process: ticks, and the time."""
        if self._health is None:
            return
        content = {
            "state": state,
            "tick": self._live.tick_number,
            "last_tick": self._last_tick,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            write_whole(self._health, (json.dumps(content) + "\n").encode())
        except OSError:
            # It is no part of the stream; a full disk has its own message.
            return
