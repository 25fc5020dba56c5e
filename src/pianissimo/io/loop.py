"""The loop of a durable stream: read a tick, seal it, release it, publish it, and go on until the last or a signal.

A full disk and a source that is away stop nothing but the loop: it waits and tries again, and seals nothing meanwhile.
A sync that fails ends the process. Told to stop, it leaves the open tick to the next start; a source that cannot be
read again has one more tick sealed first. Everything that it tells while it runs is in ticks.
"""

import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl

from pianissimo.durable.durable_stream import DurableStream
from pianissimo.durable.failpoints import reach
from pianissimo.errors import (
    DiskFullError,
    PendingError,
    PianissimoError,
    RefusalError,
    SourceAwayError,
    SourceError,
    StoreError,
)
from pianissimo.io.metrics import Metrics
from pianissimo.io.sources.live_ticks import EndWatch
from pianissimo.io.sources.source_records import EndOfTicks, OldSource, OnceSource, TickSource
from pianissimo.storage.files import write_whole
from pianissimo.stream import StreamRelease

HEALTH_FILE = "health.json"
"""In the folder of a stream, what the process that runs it says of itself, or the last one said."""

_BETWEEN_LOOKS = 0.05

FIRST_WAIT, LONGEST_WAIT = 0.2, 30.0
"""Seconds between attempts while there is no room, or no source; they double."""

PATIENCE_AT_STOP, PATIENCE_AT_END = 10.0, 86_400.0
"""Seconds that sinks have to take what is left, told to stop and after the last tick; those that hang have fewer."""

Progress = Callable[[int, int, int], None]
"""Is told the tick, the last tick, and how many ticks are over by the clock and not released."""

Rang = Callable[[int, str, dict[str, Any]], None]
"""Is told the tick, the query and the row of an alarm or a trend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSummary:
    """How a loop ended."""

    first_tick: int
    """Where it took up."""

    tick: int
    """The last tick that is released."""

    last_tick: int
    stopped: bool
    """Whether it was told to stop before the last tick."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Whom a loop tells where it stands, besides its sinks."""

    health: Path | None = None
    """A file that is written at every tick."""

    progress: Progress | None = None
    rang: Rang | None = None
    metrics: Metrics | None = None
    lag: Callable[[int], int] | None = None
    """How many ticks after one are over by the clock; below zero where that one is not over itself."""

    refused: Mapping[str, int] | None = None
    """Records that were refused so far, by reason, where the owner wants to see them: exact."""


class StreamLoop:
    """Runs a durable stream on a source."""

    def __init__(
        self,
        live: DurableStream,
        source: TickSource,
        last_tick: int,
        *,
        reports: Reports | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._live = live
        self._source = source
        self._last_tick = last_tick
        self._reports = reports or Reports()
        self._watched = [each.query.name for each in live.plan.queries if each.query.watched]
        self.stop = threading.Event() if stop is None else stop
        self._rings: deque[tuple[int, str, dict[str, Any]]] = deque()
        """Of what is watched, what readers may not see yet."""

        self._is_health_told = False
        """Whether people were told that the file of health cannot be written as it should."""

    def run(self) -> LoopSummary:
        """Release tick after tick."""
        first = self._live.tick_number + 1
        try:
            with EndWatch(self._live.publish_due) if self._live.has_slots else nullcontext():
                ended = self._run()
                self._wait_for_slot()
        except Exception as error:
            self._tell(*_failure(error))
            raise
        stopped = not ended and self._live.tick_number < self._last_tick
        with suppress(StoreError):  # what could not be stored is sent once more
            self._live.wait_for_sinks(PATIENCE_AT_STOP if self.stop.is_set() else PATIENCE_AT_END)
        self._tell("stopped" if stopped else "done")
        tick = self._live.tick_number
        return LoopSummary(first_tick=first, tick=tick, last_tick=self._last_tick, stopped=stopped)

    def _wait_for_slot(self) -> None:
        """After the last tick, until readers may see it too; who is told to stop leaves that to the next start."""
        while self._live.shown_tick < self._live.tick_number and not self.stop.wait(_BETWEEN_LOOKS):
            self._tell("running")
        self._tell_rings()

    def _run(self) -> bool:
        """Until the last tick, a signal, or the end of the source; whether it was that."""
        live = self._live
        self._tell("running")
        try:
            self._patiently(lambda: self._source.seek(live.position, live.read_tick))
            while live.tick_number < self._last_tick and not (self.stop.is_set() and self._may_leave()):
                self._absorb_group()
                begin, released = time.monotonic(), live.tick_number
                release = self._release()
                if self._reports.metrics is not None:
                    self._reports.metrics.release_seconds.set(time.monotonic() - begin)
                self._tell_released(released, release)
        except EndOfTicks as cut:
            # What was added is read again from its source.
            return cut.ended
        return False

    def _absorb_group(self) -> None:
        """Read the next tick, or those after it too that are old: they are sealed together."""
        live = self._live
        old = self._source.old_until if isinstance(self._source, OldSource) else 0
        try:
            while True:
                reach("absorb.read")
                self._patiently(self._absorb)
                if live.next_tick >= min(live.last_together, old, self._last_tick):
                    return
                live.hold(position=self._source.position)
        except Exception:
            # Where one of them cannot be read, those before it are sealed, as they would be one by one.
            self._commit_held()
            raise

    def _commit_held(self) -> None:
        """Seal and release what is held, if there is room for it; else it is read again at the next start."""
        released = self._live.tick_number
        try:
            releases = self._live.commit()
        except (DiskFullError, PendingError) as error:
            if isinstance(error, PendingError) and not isinstance(error.__cause__, DiskFullError):
                raise
            return
        if releases:
            self._tell_released(released, releases[-1])

    def _tell_released(self, before: int, release: StreamRelease) -> None:
        """Tell what is stored since a tick: of ticks that were sealed together each."""
        ticks, progress = range(before + 1, release.tick + 1), self._reports.progress
        for tick in ticks if self._watched else ():
            self._note_rings(release if tick == release.tick else self._live.released(tick))
        self._tell("running")
        for tick in ticks:
            if progress:
                progress(tick, self._last_tick, self._lag())

    def _may_leave(self) -> bool:
        return not (isinstance(self._source, OnceSource) and self._source.holds_unsealed)

    def _absorb(self) -> None:
        for batch in self._batches():
            if batch is None:
                self._live.publish()  # a long tick stores how far sinks came, too
                self._tell_rings()
                self._tell_open()
            else:
                self._live.add(batch)

    def _batches(self) -> Iterator[object]:
        try:
            yield from self._source.batches(self._live.next_tick)
        except (PianissimoError, EndOfTicks):
            raise
        except (Exception, pl.exceptions.PanicException) as error:  # noqa: BLE001
            # No row is refused for it, since it cannot be told which one it was. The kind alone: a text may hold data.
            kind = type(error).__name__
            raise SourceError(
                f"the source must be one that can be read, got {kind} in the middle of it; take away what came last, "
                "and please report it"
            ) from None

    def _patiently(self, do: Callable[[], None]) -> None:
        """Try again while the source is away or the disk is full.

        Told to stop, it tries once more where events would be lost otherwise.
        """
        wait = FIRST_WAIT
        is_last_try = False
        while True:
            try:
                return do()
            except (SourceAwayError, DiskFullError) as error:
                self._tell_waiting("source" if isinstance(error, SourceAwayError) else "room", str(error))
                if is_last_try:
                    raise EndOfTicks(ended=False) from None
                if self.stop.wait(wait):
                    if self._may_leave():
                        raise EndOfTicks(ended=False) from None
                    is_last_try = True
                wait = min(2 * wait, LONGEST_WAIT)

    def _release(self) -> StreamRelease:
        wait = FIRST_WAIT
        while True:
            try:
                if self._live.pending is None:
                    return self._live.tick(position=self._source.position)
                return self._live.finish()
            except (DiskFullError, PendingError) as error:
                if isinstance(error, PendingError) and not isinstance(error.__cause__, DiskFullError):
                    raise
                self._tell_waiting("room", str(error))
                if self.stop.wait(wait):
                    raise StoreError(
                        "the disk must have room to go on, got none until the stream was told to stop"
                    ) from None
                wait = min(2 * wait, LONGEST_WAIT)

    def _lag(self) -> int:
        tick, lag = self._live.tick_number, self._reports.lag
        return 0 if lag is None else max(0, min(lag(tick), self._last_tick - tick))

    def _note_rings(self, release: StreamRelease) -> None:
        """Alarms and trends of a tick that is stored."""
        for name in self._watched if self._reports.rang is not None else ():
            self._rings += [(release.tick, name, row) for row in (release[name].to_dicts() if name in release else ())]
        self._tell_rings()

    def _tell_rings(self) -> None:
        """Tell alarms and trends that readers may see."""
        while self._rings and self._rings[0][0] <= self._live.shown_tick and self._reports.rang is not None:
            self._reports.rang(*self._rings.popleft())

    def _tell_open(self) -> None:
        """While a tick is open: that all is well, or that the clock was put back and nothing happens until it is."""
        ahead = 0 if self._reports.lag is None else -self._reports.lag(self._live.tick_number)
        if ahead <= 0:
            self._tell("running")
            return
        self._tell(
            "waiting for the clock",
            message=f"the clock must be behind tick {self._live.tick_number}, which is released, got one that is "
            f"{ahead} ticks before its end: it was put back; set it right, or wait until it is there",
        )

    def _tell_waiting(self, what: str, message: str) -> None:
        if self._reports.metrics is not None:
            self._reports.metrics.waits.labels(what).inc()
        self._tell(f"waiting for the {what}" if what == "source" else f"waiting for {what}", message=message)

    def _tell(self, state: str, message: str | None = None) -> None:
        """Leave a line for whoever looks after the process: ticks, and the time."""
        publisher = self._live._publisher
        health = self._reports.health
        if self._reports.metrics is not None:
            refused = self._reports.refused
            self._reports.metrics.tell(self._live.tick_number, self._last_tick, self._lag(), publisher, refused)
        if health is None:
            return
        content = {
            "state": state,
            "tick": self._live.tick_number,
            "last_tick": self._last_tick,
            # Who has left tells of no clock: `pianissimo status` does at any time.
            "lag": None if state in ("stopped", "refused", "failed") else self._lag(),
            "undelivered": publisher.undelivered,
            "faults": publisher.faults,
            "time": _now(),
        }
        if publisher.removed:
            content["removed"] = publisher.removed
        if self._reports.refused is not None:
            content["refused"] = dict(self._reports.refused)
        if message is not None:
            content["message"] = message
        text = (json.dumps(content) + "\n").encode()
        try:
            write_whole(health, text, 0o666 if self._reports.refused is None else 0o600)
            self._is_health_told = False
        except OSError as error:
            # It is no part of the stream, which goes on or stops for reasons of its own.
            with suppress(OSError):
                _overwrite(health, text)
            if not self._is_health_told:
                self._is_health_told = True
                what = state if message is None else f"{state}: {message}"
                _say(f"{health} must be a file that can be written, got: {error.strerror}; the stream is {what}")


def _failure(error: Exception) -> tuple[str, str]:
    """What the file of health says after an error: the state, and a message that holds no data."""
    if isinstance(error, PianissimoError):
        return "refused" if isinstance(error, RefusalError) else "failed", str(error)
    # The kind alone: the text may hold anything.
    return "failed", f"the stream must go on, got {type(error).__name__}; please report this"


def tell_failed_start(health: Path, error: Exception) -> None:
    """Say that a start has failed before its loop began: the file may still say that the last process runs."""
    state, message = _failure(error)
    content = {"state": state, "tick": None, "lag": None, "message": message, "time": _now()}
    with suppress(OSError):
        write_whole(health, (json.dumps(content) + "\n").encode())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _overwrite(path: Path, content: bytes) -> None:
    """Write over what is there: where no second file fits, the first one has room."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, os.write(descriptor, content))
    finally:
        os.close(descriptor)


def _say(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # nobody may be listening
        sys.stderr.write(f"{text}\n")
