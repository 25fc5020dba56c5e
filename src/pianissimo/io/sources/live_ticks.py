"""A feed cut into ticks by the public clock.

A tick's events are all records that are in the source when the tick is over. While it lasts, what has come already is
read ahead; once the clock says that it is over, the source is asked where it ends, and is read to there. No number of
events ends a tick.

The source is asked at the public end of a tick, whatever is being read, judged or sealed just then: `EndWatch` does so
from a thread of its own. The ends are kept until the ticks are read, so that a tick that is over while an earlier one
is sealed ends where the source ended then. Without the thread it is asked between two pieces that are read, and what
comes meanwhile counts in the tick that is over: how long that is would depend on how much others sent.

When several ticks are over at once, as after an outage, the first has all that came until then and the others have
nothing: they were over when the first was closed.

The tick is a function of the clock and of what is stored, never of the data. Where the clock goes back, nothing is
closed until it has caught up. Where it leaps ahead, by more ticks than allowed, the stream stops: to go on would
release, and burn, all the ticks in between for a clock that is likely wrong. How many are allowed is a share of all
that the stream has, or a minute's ticks where those are more.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, Self

import polars as pl

from pianissimo.errors import DiskFullError, ParameterError, PianissimoError, SourceError
from pianissimo.io.clock import WallClock
from pianissimo.io.sources.refused_file import RefusedFile
from pianissimo.io.sources.source_records import EndOfTicks, Feed, OnceFeed, RowJudge, TickSource
from pianissimo.io.sources.topic_ranges import WorkedTopic
from pianissimo.stream.source_spec import Late
from pianissimo.workers import GatheredPiece

_log = logging.getLogger(__name__)

_LONGEST_WAIT = 0.5
_SHORTEST_WAIT = 0.001


class EndWatch:
    """A thread that asks whenever it is time; what goes wrong is found again by whoever reads the source.

    `ask` gives the seconds until the next time. The clock may be set meanwhile, so that it is looked at often.
    """

    def __init__(self, ask: Callable[[], float]) -> None:
        self._ask = ask
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ends of ticks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        wait = _SHORTEST_WAIT
        while not self._stop.wait(wait):
            try:
                wait = min(max(self._ask(), _SHORTEST_WAIT), _LONGEST_WAIT)
            except PianissimoError:
                wait = _LONGEST_WAIT


PAUSE = 0.2
"""Seconds between two looks at the source."""

MOST_ROWS = 1_000_000
"""Rows are handed over once there are so many, so that memory holds what they add and not themselves.

Where their order matters they are handed over in parts of about this size, at the end of the tick.
"""

_PAUSES_A_SIGN = 25

_MOST_ENDS = 1000
"""So many ticks may be over and not read; those after them end together, when there is time for them."""


class _End(NamedTuple):
    """Where the source ended when ticks up to one were over."""

    tick: int
    place: Any
    is_last: bool = False
    """Whether there is no tick after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRules:
    """What belongs to a tick, and in which order."""

    late: Late = "count"
    """With "drop" an event whose own time lies before the beginning of the open tick is left out; with "count" it
    counts, like every other, in the tick in which it came."""

    until_end: bool = False
    """Whether the stream ends with a feed that ends."""

    ordered: bool = False
    """For streams of users, where the order of a user's events decides which of them count. As they are read, that
    order depends on where pieces are cut, and so on everybody's events. The rows of a tick are therefore kept until its
    end, all of them in memory, and handed over by file or partition, and there by line or offset: of two events of a
    user, others have no say in which one is first."""

    max_refused: float = 1.0
    """Above this share of a tick's records that cannot be counted, the tick is not sealed and the stream stops. That
    is a fact about the data: the promise does not cover it."""

    def __post_init__(self) -> None:
        if self.late not in ("count", "drop"):
            raise ParameterError(f"late must be 'count' or 'drop', got {self.late!r}")


@dataclass(slots=True, repr=False)
class _TickLook:
    """What was seen of a tick's records: secret."""

    records: int = 0
    refused: int = 0
    given: set[str] = field(default_factory=set)
    """Columns that a record had."""

    def add(self, counted: int, refused: int, given: frozenset[str]) -> None:
        self.records += counted + refused
        self.refused += refused
        self.given |= given


class LiveTicks:
    """The rows of a feed, by tick."""

    def __init__(
        self,
        feed: Feed,
        judge: RowJudge,
        clock: WallClock,
        *,
        refused: RefusedFile,
        stop: threading.Event | None = None,
        rules: TickRules | None = None,
        worked: WorkedTopic | None = None,
    ) -> None:
        self._worked = worked
        self._untold: deque[tuple[str, pl.DataFrame]] = deque()
        """Refused records of ranges that others have read, still to be written down."""

        self._feed = feed
        self._once = feed if isinstance(feed, OnceFeed) else None
        self._judge = judge
        self._clock = clock
        self._rules = rules or TickRules()
        self._stop = threading.Event() if stop is None else stop
        self.refused = refused
        self._asking = threading.RLock()
        """Whoever asks the source where it ends: what is told later lies behind what was told before."""

        self._ends: deque[_End] = deque()
        self._covered: int | None = None
        """The last tick whose end is known; None before it is known where to begin."""

        self._has_ended = False
        self._frames: list[tuple[tuple[int, ...], pl.DataFrame | GatheredPiece]] = []
        self._rows = 0
        self._look = _TickLook()

    def seek(self, position: Any, tick: int) -> None:
        """Go to where a tick ended."""
        with self._asking:
            self._feed.seek(position)
            self._ends.clear()
            self._covered = tick
            self._look = _TickLook()

    def lag(self, tick: int) -> int:
        """How many ticks after `tick` are over by the clock; below zero where it was put back behind that tick."""
        return self._clock.ended(self._clock.now()) - tick

    def batches(self, tick: int) -> Iterator[object]:
        """The rows of a tick, and None from time to time, as a sign that it still waits.

        If the source is away, the same tick may be asked for again: it goes on where it was.
        """
        if self._has_ended:
            raise EndOfTicks(ended=True)
        pauses = 0
        while (end := self._next_end(tick)).tick < tick:
            yield from self._read(end.place, tick)
            if self._closed(tick) is None:
                pauses += 1
                if pauses % _PAUSES_A_SIGN == 0:
                    yield None
                self._clock.sleep(max(0.001, min(PAUSE, self._clock.left(tick))))
        yield from self._read(end.place, tick)
        yield from self._handed_over()
        self._sync()
        look, self._look = self._look, _TickLook()
        self._judge_tick(tick, look)
        self._has_ended = end.is_last

    def note_end(self) -> float:
        """Ask the source where it ends if a tick is over; gives the seconds until the next one is. From any thread."""
        with self._asking:
            if self._covered is None or len(self._ends) >= _MOST_ENDS:
                return PAUSE
            if self._clock.is_over(self._covered + 1):
                # The time before the source is asked: what comes from now on belongs to a tick that is not over yet.
                covered = self._clock.ended(self._clock.now())
                # Nothing is noted before the source has answered: if it is away, the tick is as open as it was.
                self._ends.append(_End(covered, self._feed.end()))
                self._covered = covered
            return self._clock.left(self._covered + 1)

    @property
    def holds_unsealed(self) -> bool:
        """Whether another tick must be sealed before the process ends, as what it reads is gone otherwise.

        It does not depend on whether anything came: then the number of ticks would tell.
        """
        return self._once is not None and not self._has_ended

    @property
    def position(self) -> Any:
        """Where the feed stands."""
        return self._feed.position

    def close(self) -> None:
        """Let go of the source."""
        self._feed.close()

    @property
    def _must_end(self) -> bool:
        """Whether what came is sealed now: it cannot be read again, and there will be no time for more."""
        return self._once is not None and self._stop.is_set()

    def _next_end(self, tick: int) -> _End:
        """Where the tick ends; while it is open, where the source ends now, for the tick before."""
        with self._asking:
            return self._closed(tick) or _End(tick - 1, self._feed.end())

    def _closed(self, tick: int) -> _End | None:
        """Where the tick ends, once that is known; it is asked for once."""
        with self._asking:
            if self._must_end:
                return self._last_end(tick)
            while self._ends and self._ends[0].tick < tick:
                self._ends.popleft()
            if not self._ends:
                self.note_end()
            if self._ends and (self._ends[0].is_last or self._clock.ended(self._clock.now()) >= tick):
                return self._ends[0]
            # The clock was put back: ticks that seemed to be over are open again.
            self._ends.clear()
            self._covered = tick - 1
            if self._once is not None and self._rules.until_end and self._once.ended:
                return self._last_end(tick)
            if self._stop.is_set():
                raise EndOfTicks(ended=False)
            return None

    def _last_end(self, tick: int) -> _End:
        """All that has come belongs to the tick, and there is none after it."""
        if not (self._ends and self._ends[0].is_last):
            end = _End(tick, self._feed.end(), is_last=True)
            self._ends.clear()
            self._ends.append(end)
            self._covered = tick
        return self._ends[0]

    def _read(self, end: Any, tick: int) -> Iterator[pl.DataFrame | GatheredPiece]:
        begin = self._clock.calendar.microsecond(tick) if self._rules.late == "drop" else None
        self._tell_refused()
        found = None if self._worked is None else self._worked.gathered(end, tick, begin)
        if found is not None:
            for partition, pieces, report in found:
                self._look.add(report.counted, report.refused.height, report.given)
                self._frames += [((partition,), piece) for piece in pieces]
                if report.refused.height:
                    self._untold.append((f"{end['topic']}/{partition}", report.refused))
            self._tell_refused()
            if not self._rules.ordered:
                yield from self._handed_over()
            self._closed(tick)
            return
        for records in self._feed.read(end):
            judged = self._judge.read(records)
            # What is late is neither counted nor refused.
            rows = judged.table if begin is None else judged.table.filter(judged.times >= begin)
            self._look.add(judged.table.height, judged.refused.height, judged.given)
            self._frames.append((records.rank, rows))
            self._rows += rows.height
            with self._room():
                self.refused.add(records.place, judged.refused)
            if self._rows >= MOST_ROWS and not self._rules.ordered:
                yield from self._handed_over()
            # Also in the midst of much: the tick ends when it is over, not when all of this is read.
            self._closed(tick)

    def _tell_refused(self) -> None:
        while self._untold:
            with self._room():
                self.refused.add(*self._untold[0])
            self._untold.popleft()

    def _judge_tick(self, tick: int, look: "_TickLook") -> None:
        """Before a tick is sealed: say which columns no record had, and stop where too many were refused."""
        missing = [name for name in self._judge.wanted.names if name not in look.given] if look.records else []
        if missing:
            _log.warning(
                "columns %s must be in records, got none that has them in tick %d", ", ".join(map(repr, missing)), tick
            )
        if look.refused > self._rules.max_refused * look.records:
            raise SourceError(
                f"the records of tick {tick} must be such that they can be counted, got more that cannot be than "
                f"source.max_refused lets pass; see {self.refused.path}, and mend them or [source], or set max_refused"
            )

    def _handed_over(self) -> Iterator[pl.DataFrame | GatheredPiece]:
        if self._rules.ordered:
            # A place gives its records in the order of their numbers, and this sort leaves them in it.
            self._frames.sort(key=itemgetter(0))
        while self._frames:
            first = self._frames[0][1]
            if isinstance(first, GatheredPiece):
                del self._frames[0]
                yield first
                continue
            part: list[pl.DataFrame] = []
            rows = 0
            for _, frame in self._frames:
                if rows >= MOST_ROWS or isinstance(frame, GatheredPiece):
                    break
                part.append(frame)
                rows += frame.height
            del self._frames[: len(part)]
            self._rows -= rows
            yield pl.concat(part)

    def _sync(self) -> None:
        with self._room():
            self.refused.sync()

    def _room(self) -> AbstractContextManager[None]:
        """Where nothing can be read again and no time is left, events are worth more than reasons for refusals."""
        return suppress(DiskFullError) if self._must_end else nullcontext()


class FilesThenLive:
    """Complete files up to a tick, then a live source: every tick is of one of them.

    Once the files are read, a start does not look at them any more.
    """

    def __init__(
        self, files: TickSource | None, make_files: Callable[[], TickSource], live: LiveTicks, last_tick: int
    ) -> None:
        self._files, self._make_files = files, make_files
        self._live = live
        self._last_tick = last_tick
        """Of the files."""

        self._is_read = False

    def seek(self, position: Any, tick: int) -> None:
        """Go to where a tick ended. Of a stream that has read these files alone, it goes on behind them."""
        found = {"before": position} if position is None or "files" in position else position
        if "before" not in found and not ("then" in found and tick >= self._last_tick):
            raise SourceError("the source must be the one that was read before, got files and more; mend [source]")
        self._is_read = tick >= self._last_tick
        if self._is_read:
            self._go_live(found.get("then"), tick)
        else:
            self._files = self._files or self._make_files()
            self._files.seek(found.get("before"), tick)

    def _go_live(self, position: Any, tick: int) -> None:
        self._live.seek(position, tick)
        self._files = None

    def batches(self, tick: int) -> Iterator[object]:
        """The rows of a tick; after a recovery also those of files that are read again."""
        if self._files is not None and not self._is_read:
            yield from self._files.batches(min(tick, self._last_tick))
            self._is_read = tick >= self._last_tick
        if tick > self._last_tick:
            if self._files is not None:
                self._go_live(None, self._last_tick)
            yield from self._live.batches(tick)

    @property
    def old_until(self) -> int:
        """The last tick of the files."""
        return self._last_tick

    @property
    def position(self) -> Any:
        """Where the source stands that is being read."""
        return {"then": self._live.position} if self._files is None else {"before": self._files.position}
