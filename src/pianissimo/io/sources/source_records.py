"""From records as they came to rows that can be counted, each judged alone, and the rest to the side file.

A *tick source* gives the loop its events tick by tick. A *feed* is a source that grows while it is read: it tells where
it ends now, and what lies between two of its places. The place that a tick ends at is asked for as soon as the tick is
over by the public clock, and sealed with the tick. No number of events ends a tick.

The side file says of the records that could not be counted where each stood and why, and nothing of what it held. It is
appended to before the tick is sealed: a tick that is read again after a crash leaves its lines twice.
"""

import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import polars as pl

from pianissimo.errors import InputError, PianissimoError, SourceError
from pianissimo.io.sources.json_rows import JsonReader
from pianissimo.io.sources.text_rows import (
    BYTE_ORDER_MARK,
    LONGEST_LINE,
    NO_TEXT,
    REFUSED,
    Piece,
    Wanted,
    Written,
    csv_piece,
    header_of,
    no_rows,
    split_lines,
)
from pianissimo.queries import Query, Role
from pianissimo.storage.files import append, fault_of
from pianissimo.stream.batches import columns_read, row_faults
from pianissimo.stream.calendar import ASKED_OF_TIMES, TickCalendar
from pianissimo.unit import User

_log = logging.getLogger(__name__)

LONGEST_REFUSED = 64 * 2**20
"""Bytes after which the side file is put aside under the ending `.1`, in the place of the one that was there."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Records:
    """Some records as they came: secret."""

    place: str
    """Which file or partition they are of: public."""

    rank: tuple[int, ...]
    """Which place comes first where the order of a user's events matters: a function of the place, and not of its name,
    which may change while a tick lasts."""

    numbers: pl.Series
    """Their line numbers or offsets there, as whole numbers."""

    texts: pl.Series
    """One record each: the text of a line or of a message's value; null where it is no UTF-8 or is missing."""

    header: str | None = None
    """The first line of a CSV file, which names the fields of all others; None where records are JSON objects."""


class Feed(Protocol):
    """Where live records come from."""

    def seek(self, position: Any) -> None:
        """Go to a sealed place, or, with None, to the beginning; `SourceError` if it is not what was read before."""

    def end(self) -> Any:
        """Where the source ends now, as plain data; at or after every place that was told before.

        It may be asked for by another thread while records are read.
        """

    def read(self, end: Any) -> Iterator[Records]:
        """The records from where the feed stands up to a place that `end` gave, in pieces of bounded size."""

    @property
    def position(self) -> Any:
        """Where the feed stands: half-open, an entry a file or partition, with what tells that it is the same."""

    def close(self) -> None:
        """Let go of the source."""


@runtime_checkable
class OnceFeed(Protocol):
    """A feed whose records are gone once they were read: nothing brings them back after a restart."""

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more, and `end` has told of all that came."""


class EndOfTicks(Exception):  # noqa: N818
    """There is no further tick: the source has ended, or was told to stop before the tick was over."""

    def __init__(self, *, ended: bool) -> None:
        super().__init__()
        self.ended = ended


class TickSource(Protocol):
    """Events, tick by tick, from any place that was sealed before."""

    def seek(self, position: Any, tick: int) -> None:
        """Go to where tick `tick` ended, at `position`; None if nothing was read. `SourceError` if that cannot be."""

    def batches(self, tick: int) -> Iterator[object]:
        """The events of a tick, as they come; it ends once the tick is over by the public clock.

        None among them is a sign of life. After a `SourceAwayError` or a `DiskFullError` another call goes on where it
        was; `EndOfTicks` says that the tick will not be over.
        """

    @property
    def position(self) -> Any:
        """Where the events of the tick end whose batches were read to the last."""


@runtime_checkable
class OnceSource(Protocol):
    """A source whose events are gone once they were taken in."""

    @property
    def holds_unsealed(self) -> bool:
        """Whether, told to stop, it has to be asked for one more tick, which is over at once."""


@runtime_checkable
class OldSource(Protocol):
    """A source with ticks that are over before they are read, and lie in files that are complete."""

    @property
    def old_until(self) -> int:
        """The last of them: a public number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The ticks of a calendar up to the last one that takes events."""

    calendar: TickCalendar
    last_tick: int

    def ticks(self, times: pl.Series) -> pl.Series:
        """The tick of each time between the origin and the end."""
        return self.calendar.ticks(times)

    def faults(self, name: str, times: pl.Series, asked: str = ASKED_OF_TIMES) -> pl.Series:
        """For each time in the column `name` why it belongs to no tick, or null where it does."""
        return self.calendar.faults(name, times, self.last_tick, asked)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class JudgedRows:
    """The rows that can be counted, and those that cannot: secret."""

    table: pl.DataFrame
    """The columns of labels and of values; without any, one of nulls: only the number of rows counts."""

    times: pl.Series
    """In microseconds since 1970; nulls where no time is wanted."""

    refused: pl.DataFrame
    """The lines that are refused, and why."""

    given: frozenset[str]
    """The columns that a row has, whatever becomes of it."""


class RowJudge:
    """Judges each row for the queries of a stream by itself; with `time`, that of each is read and must be one.

    With a clock it must also lie within that clock's ticks.
    """

    def __init__(
        self,
        queries: Sequence[Query],
        user: User | None = None,
        *,
        time: str | None = None,
        clock: Clock | None = None,
        written: Written | None = None,
        tells: bool = True,
    ) -> None:
        self._queries = queries
        self._tells = tells
        """Whether it is told which columns of values hold texts that are no numbers."""

        self._told: set[str] = set()
        self._user = user
        self.clock = clock
        columns = columns_read(queries, user).values()
        self.wanted = Wanted(
            labels={column.name: column.holds_lists for column in columns if column.role is not Role.NUMBERS},
            values=[column.name for column in columns if column.role is Role.NUMBERS],
            time=time,
            never_lists=() if user is None else (user.column,),
            written=written or Written(),
        )
        self._json = JsonReader(self.wanted)

    def read(self, records: Records) -> JudgedRows:
        """The rows of records.

        What no library was expected to raise is the fault of a record: each is then judged by itself, and those that
        raise are refused. So no record can stop a stream, or have the others of its piece refused.
        """
        try:
            return self.judged(self.piece(records))
        except (PianissimoError, MemoryError):
            raise
        except (Exception, pl.exceptions.PanicException):  # noqa: BLE001
            if len(records.texts) > 1:
                return _joined([self.read(half) for half in _halves(records)])
            refused = pl.DataFrame({"line": records.numbers}).select("line", reason=pl.lit(_UNFORESEEN))
            return self.judged(no_rows(self.wanted, refused))

    def judged(self, piece: Piece) -> JudgedRows:
        """The rows of a piece, in their order."""
        self._tell_unread(piece)
        none = pl.repeat(None, len(piece.lines), eager=True, dtype=pl.Int64)
        times = none if self.wanted.time is None else self.wanted.written.instants(piece.times)
        faults = self._faults(piece, times)
        good = faults.is_null()
        table = piece.columns
        if not table.width:
            table = pl.DataFrame({"": pl.repeat(None, len(piece.lines), eager=True)})
        given = piece.given(self.wanted.time)
        if good.all():
            return JudgedRows(table=table, times=times, refused=piece.refused, given=given)
        bad = pl.DataFrame({"line": piece.lines, "reason": faults}).filter(~good)
        refused = pl.concat([piece.refused, bad.cast(REFUSED)]).sort("line")  # type: ignore[arg-type]
        return JudgedRows(table=table.filter(good), times=times.filter(good), refused=refused, given=given)

    def _tell_unread(self, piece: Piece) -> None:
        """Once for each column: rows whose text is no number count as empty, which nothing else would say."""
        for name in sorted(piece.unread - self._told) if self._tells else ():
            self._told.add(name)
            _log.warning(
                "column %r must hold numbers such as 1234.50, got texts that are none (as 1,234.50 and n/a are); such "
                "rows add nothing to it: write them with digits and a point; `pianissimo check` tells how much is lost",
                name,
            )

    def _faults(self, piece: Piece, times: pl.Series) -> pl.Series:
        """Why rows cannot be counted, null where they can."""
        faults = [pl.repeat(None, len(times), eager=True, dtype=pl.String)]
        if self.wanted.time is not None:
            name, asked = self.wanted.time, self.wanted.written.asked_of_times
            if self.clock is None:
                reason = f"column {name!r} must be {asked}"
                faults.append(pl.select(pl.when(times.is_null()).then(pl.lit(reason))).to_series())
            else:
                faults.append(self.clock.faults(name, times, asked))
        if piece.columns.width:
            faults.append(row_faults(self._queries, piece.columns, self._user))
        return pl.select(pl.coalesce(*faults)).to_series()

    def piece(self, records: Records) -> Piece:
        """Records as they came, not judged yet."""
        if records.header is None:
            return self._json.read(records.numbers, records.texts)
        lines = pl.DataFrame({"line": records.numbers.cast(pl.Int64), "text": records.texts})
        lines = lines.filter(pl.col("text").is_null() | (pl.col("text") != ""))
        try:
            header = header_of(records.place, records.header, self.wanted)
            return csv_piece(lines, header, self.wanted, self.wanted.written.sign(records.place))
        except InputError:
            # The file's lines cannot be read. They are not those of the other files.
            reason = "the file must begin with a header that names every column that is read, once"
            return no_rows(self.wanted, lines.select("line", reason=pl.lit(reason)))


_UNFORESEEN = "a record must be one that can be read, and this one cannot; please report what it is like"


def _halves(records: Records) -> Iterator[Records]:
    middle = len(records.texts) // 2
    for part in (slice(None, middle), slice(middle, None)):
        yield replace(records, numbers=records.numbers[part], texts=records.texts[part])


def _joined(parts: Sequence[JudgedRows]) -> JudgedRows:
    return JudgedRows(
        table=pl.concat([each.table for each in parts]),
        times=pl.concat([each.times for each in parts]),
        refused=pl.concat([each.refused for each in parts]),
        given=frozenset[str]().union(*(each.given for each in parts)),
    )


REFUSED_FILE = "refused.jsonl"


class RefusedFile:
    """Lines of JSON with the fields file, line and reason, for the owner's eyes only.

    How many records were refused is a fact about the data, which is why nobody else may read it.
    """

    def __init__(self, path: Path, *, keep: timedelta | None = None) -> None:
        self.path = path
        self._before = path.with_name(f"{path.name}.1")
        self._keep = keep
        """How long lines are kept at least; at most twice as long."""

        self.reasons: Counter[str] = Counter()
        """How many lines were refused since the start, by reason: secret."""

        self._left = b""

    @staticmethod
    def beside(folder: Path | None, witness: Path) -> Path:
        """Where it is: in the stream's folder, or beside its witness."""
        return folder / REFUSED_FILE if folder is not None else Path(f"{witness}.{REFUSED_FILE}")

    @staticmethod
    def told(path: Path) -> dict[str, int]:
        """How many lines a file tells of, and the one before it, by reason."""
        found: Counter[str] = Counter()
        for each in (path.with_name(f"{path.name}.1"), path):
            try:
                found.update(pl.read_ndjson(each)["reason"].to_list() if each.stat().st_size else ())
            except FileNotFoundError:
                continue
            except (OSError, pl.exceptions.PolarsError):
                raise InputError(f"{each} must be a file of refused lines that can be read, got another") from None
        return dict(found.most_common())

    def add(self, place: str, refused: pl.DataFrame) -> None:
        """Write down some lines and reasons. What there is no room for is kept, and written by the next call."""
        if refused.height:
            self.reasons.update(refused["reason"].to_list())
            lines = refused.select(pl.lit(place).alias("file"), "line", "reason")
            self._left += lines.write_ndjson().encode()
        self.sync()

    def sync(self) -> None:
        """All that was added is on the disk, and what is older than twice what is kept is gone."""
        try:
            if self._keep is not None and self.path.parent.exists():
                self._put_aside_old(self._keep)
            if not self._left:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            size = append(self.path, self._left)
            self._left = b""
            if size > LONGEST_REFUSED:
                self._put_aside()
        except OSError as error:
            raise fault_of(error, str(self.path)) from None

    def _put_aside(self) -> None:
        """Begin a new file: this one is the one before, whose time says when that was."""
        if self.path.exists():
            self.path.replace(self._before)
        else:
            append(self._before, b"")
            os.truncate(self._before, 0)
        os.utime(self._before)

    def _put_aside_old(self, keep: timedelta) -> None:
        try:
            begun = self._before.stat().st_mtime
        except FileNotFoundError:
            append(self._before, b"")  # which says when this one began
            return
        if time.time() - begun >= keep.total_seconds():
            self._put_aside()


MOST_BYTES = 64 * 2**20
"""So much is held; then whoever writes has to wait."""

_PIECE = 2**20


class StandardInput:
    """The lines of standard input: a thread takes them in as they come, so that what came before a tick's end is in it.

    Told to stop, or at its end, the lines that came until then are sealed in one more tick, which is over at once. What
    was read is gone: after a crash, or where there is no room for that tick, lines that were not sealed are lost, and
    nothing can find out which. Where that matters, let the producer write to a file, and follow that.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        if descriptor is None and sys.stdin is None:
            raise _closed()
        self._descriptor = descriptor
        self._blocks: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._arrived = self._taken = 0
        self._has_ended = False
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None

    def seek(self, position: Any) -> None:
        """Go on with whatever comes; the numbers of lines go on from where they were."""
        if position is not None and (not isinstance(position, dict) or "standard_input" not in position):
            raise SourceError("the source must be the one that was read before, got standard input; mend [source]")
        if self._thread is None:
            descriptor = _standard_input() if self._descriptor is None else self._descriptor
            self._arrived = self._taken = 0 if position is None else position["standard_input"]
            self._thread = threading.Thread(
                target=self._take_in, args=(descriptor,), name="standard input", daemon=True
            )
            self._thread.start()

    def end(self) -> Any:
        """How many whole lines have come."""
        with self._change:
            return self._arrived

    def read(self, end: Any) -> Iterator[Records]:
        """The lines up to an end."""
        while self._taken < end:
            with self._change:
                count, block = self._blocks.popleft()
                if count > end - self._taken:
                    # Cut where the end was told; the rest stays the first.
                    lines = block.split(b"\n")
                    kept = end - self._taken
                    left = b"\n".join(lines[kept:])
                    self._blocks.appendleft((count - kept, left))
                    self._bytes += len(left)
                    count, shorter = kept, b"\n".join(lines[:kept])
                    self._bytes -= len(block)
                    block = shorter
                else:
                    self._bytes -= len(block)
                self._change.notify_all()
            first, self._taken = self._taken + 1, self._taken + count
            numbers = pl.int_range(first, first + count, dtype=pl.Int64, eager=True)
            yield Records(place="standard input", rank=(), numbers=numbers, texts=split_lines(block))

    @property
    def position(self) -> Any:
        """How many lines were read."""
        return {"standard_input": self._taken}

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more; `end` tells of all that came."""
        with self._change:
            return self._has_ended

    def close(self) -> None:
        """The thread ends with the process, or with the input."""

    def __repr__(self) -> str:
        return "StandardInput()"

    def _take_in(self, descriptor: int) -> None:
        # The line that has no end yet; once it is too long, no more of it than tells that.
        rest, is_first = bytearray(), True
        while piece := _read(descriptor):
            head, end, others = piece.partition(b"\n")
            rest += head[: LONGEST_LINE + 1 - len(rest)]
            if not end:
                continue
            # The others are shorter than a piece. This one is judged by its length, wherever pieces were cut.
            line = self._judged(rest, is_first=is_first)
            is_first = False
            whole, end, after = others.rpartition(b"\n")
            self._add(line + b"\n" + whole if end else line)
            rest = bytearray(after)
        if rest:
            self._add(self._judged(rest, is_first=is_first))
        with self._change:
            self._has_ended = True

    @staticmethod
    def _judged(line: bytearray, *, is_first: bool) -> bytes:
        if len(line) > LONGEST_LINE:
            return NO_TEXT
        return bytes(line).removeprefix(BYTE_ORDER_MARK) if is_first else bytes(line)

    def _add(self, block: bytes) -> None:
        with self._change:
            while self._bytes > MOST_BYTES:
                self._change.wait()
            count = block.count(b"\n") + 1
            self._blocks.append((count, block))
            self._bytes += len(block)
            self._arrived += count


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, _PIECE)
    except OSError:
        return b""


def _standard_input() -> int:
    try:
        return sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        raise _closed() from None


def _closed() -> SourceError:
    return SourceError("standard input must be open, got one that is closed; give a pipe or a file, or < /dev/null")
