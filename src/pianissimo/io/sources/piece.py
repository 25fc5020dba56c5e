"""What every reader of files is asked for, and what it hands back.

Lines of a text file, some megabytes at a time.

A row is a line, whatever it holds: no row can reach into the next, so what becomes of a line depends on that
line only.

A source that grows while it is read: what lies between two of its places, and where it ends now.

The place that a tick ends at is asked for as soon as the tick is over by the public clock, and sealed with the tick. No
number of events ends a tick.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import polars as pl

from pianissimo.errors import InputError

REFUSED = {"line": pl.Int64, "reason": pl.String}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The columns that are read: those of labels, and whether each holds lists; those of numbers; the one of times.

    A column holds lists where a query lets an event hold more than one label.

    >>> Wanted(labels={"drug": False}, values=["price"], time="time").names
    ['drug', 'price', 'time']
    """

    labels: Mapping[str, bool]
    values: Sequence[str] = ()
    time: str | None = None
    """None where nothing depends on when an event happened."""

    @property
    def names(self) -> list[str]:
        """All columns, each once."""
        times = [] if self.time is None else [self.time]
        return list(dict.fromkeys([*self.labels, *self.values, *times]))

    def times(self, table: pl.DataFrame) -> pl.Series:
        """The column of times; nulls where none is wanted."""
        if self.time is None:
            return pl.repeat(None, table.height, eager=True, dtype=pl.String)
        return table[self.time]

    def check_present(self, place: str, columns: Sequence[str], *, certain: bool = False) -> None:
        """Refuse a file that lacks a column.

        What was found is shown only where it is certain to be names: the first line of a file without a header is an
        event.
        """
        missing = [name for name in self.names if name not in columns]
        if missing:
            if certain:
                came = ", ".join(map(repr, columns)) or "no column"
            else:
                came = f"a header that lacks them (columns: {len(columns)})"
            raise InputError(f"{place}: columns {', '.join(map(repr, missing))} must be in the file, got {came}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Piece:
    """Some rows of a file: secret.

    Labels are texts, or lists of texts where lists are wanted; values are floating-point numbers, null where a row
    holds none.
    """

    lines: pl.Series
    columns: pl.DataFrame
    """The columns of labels and of values."""

    times: pl.Series
    refused: pl.DataFrame
    """The lines that are no rows, and why."""


BLOCK_BYTES = 32 * 2**20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    r"""Blocks of whole lines without the last line's end, each with the number of its first line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "lines.txt")
    ...     _ = file.write_bytes(b"one\ntwo\n")
    ...     list(read_blocks(file))
    [(1, b'one\ntwo')]
    """
    number, rest = 1, b""
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                if number == 1 and not rest:
                    block = block.removeprefix(BYTE_ORDER_MARK)
                whole, end, rest = (rest + block).rpartition(b"\n")
                if end:
                    yield number, whole
                    number += whole.count(b"\n") + 1
    except OSError as fault:
        raise InputError(f"{path} must be a file that can be read, got: {fault.strerror}") from None
    if rest:
        yield number, rest
    elif number == 1:
        raise InputError(f"{path} must hold rows, got an empty file; leave it out if there were no events")


def split_lines(block: bytes) -> pl.Series:
    r"""The lines of a block as texts, null where a line is not UTF-8.

    >>> split_lines(b"a\r\n\xff\nb").to_list()
    ['a', None, 'b']
    """
    try:
        lines = pl.Series([block.decode()]).str.split("\n").explode()
    except UnicodeDecodeError:
        lines = pl.Series([_decoded(line) for line in block.split(b"\n")], dtype=pl.String)
    return lines.str.strip_suffix("\r")


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


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
