"""From records as they came to rows that can be counted, each judged alone, and the rest to the side file.

A *tick source* gives the loop its events tick by tick. A *feed* is a source that grows while it is read: it tells where
it ends now, and what lies between two of its places. The place that a tick ends at is asked for as soon as the tick is
over by the public clock, and sealed with the tick. No number of events ends a tick.

The side file says of the records that could not be counted where each stood and why, and nothing of what it held. It is
appended to before the tick is sealed: a tick that is read again after a crash leaves its lines twice.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import polars as pl

from pianissimo.errors import InputError, PianissimoError
from pianissimo.io.sources.rows.json_rows import JsonReader
from pianissimo.io.sources.rows.text_rows import REFUSED, Piece, Wanted, Written, csv_piece, header_of, no_rows
from pianissimo.queries import Query, Role
from pianissimo.stream.batches import columns_read, row_faults
from pianissimo.stream.calendar import ASKED_OF_TIMES, TickCalendar
from pianissimo.unit import User

_log = logging.getLogger(__name__)


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


class WholeSource(TickSource, Protocol):
    """A source whose rows are all there before the first is counted."""

    def check_refused(self) -> None:
        """Refuse it where too many of its rows cannot be counted, as far as that is known before there is a stream."""


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
