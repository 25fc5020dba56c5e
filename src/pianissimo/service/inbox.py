"""Events that came by HTTP: whole lines in files that grow, on the disk before anybody is told that they were taken.

The stream follows these files as it follows others (`[source] http = true`), so that an event is counted once however
often either process is killed. What is answered depends on the request alone: whether an event is counted, late, cut
off by a cap or came before, the writer is told the same.
"""

import gzip
import io
import secrets
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import polars as pl

from pianissimo.errors import InputError
from pianissimo.storage.files import FailedSyncError, append, fault_of

MOST_EVENTS = 10_000
LONGEST_EVENT = 16_384
LONGEST_UNPACKED = 8 << 20
LONGEST_SEGMENT = 64 << 20
"""Bytes of one file; then another is begun."""

_SCHEMA, _RECORD_BATCH = 1, 3
_MOST_COLUMNS = 256
_PLAIN = frozenset({1, 2, 3, 5, 6, 8, 9, 10, 20, 24})
"""Types as Arrow numbers them: null, whole, float, text, bool, date, time, timestamp, large text, views of text."""

_BAD = (ValueError, TypeError, RecursionError, OverflowError, EOFError, OSError, zlib.error, msgspec.MsgspecError)
_POLARS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


class Inbox:
    """The files of one stream, written by this process in segments of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._path, self._size = self._folder / f"events-{secrets.token_hex(8)}.jsonl", 0

    def put(self, lines: bytes) -> None:
        """Keep whole lines, synced; of a fault, a part may stay."""
        with self._lock:
            try:
                self._size = append(self._path, lines, is_followed=True)
            except OSError as error:
                if isinstance(error, FailedSyncError) or self._is_longer():
                    self._begin()  # what a fault left in the file nobody knows: whole lines of it may be counted
                raise fault_of(error, self._folder) from None
            if self._size >= LONGEST_SEGMENT:
                self._begin()

    def _is_longer(self) -> bool:
        """Whether a fault left something. Else the file is gone on with: a full disk makes no file for each request."""
        try:
            return self._path.stat().st_size != self._size
        except FileNotFoundError:
            return False
        except OSError:
            return True


def lines_of(body: bytes, kind: str, packed: str | None) -> bytes:
    """The events of a request as lines of JSON; `InputError` where it is not what it says, or beyond a limit."""
    try:
        content = body if packed in (None, "identity") else _unpacked(body)
        return READERS[kind](content)
    except _BAD + _POLARS:
        raise InputError("events must be what their type says, within the limits, got something else") from None


def _unpacked(body: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
        content = file.read(LONGEST_UNPACKED + 1)
    if len(content) > LONGEST_UNPACKED:
        raise ValueError("too long")
    return content


def _json_lines(content: bytes) -> bytes:
    lines = [line.strip() for line in content.split(b"\n")]
    kept = [line for line in lines if line]
    if not 1 <= len(kept) <= MOST_EVENTS:
        raise ValueError("too many, or none")
    for line in kept:
        if len(line) > LONGEST_EVENT or b"\r" in line or not isinstance(msgspec.json.decode(line), dict):
            raise ValueError("not an event")
    return b"\n".join(kept) + b"\n"


def _arrow(content: bytes) -> bytes:
    # All that is known of it before polars is given it: a nested schema may end the process, and few bytes be many.
    (kind, schema), *batches = _messages(content)
    if kind != _SCHEMA or schema is None or not _is_flat(schema):
        raise ValueError("not plain columns")
    if not 1 <= sum(_rows(*each) for each in batches) <= MOST_EVENTS:
        raise ValueError("too many, or none")
    frame = pl.read_ipc_stream(io.BytesIO(content))
    lengths = frame.select(pl.all().cast(pl.String).str.len_bytes().fill_null(4).cast(pl.Int64))
    if max(lengths.sum_horizontal()) > LONGEST_EVENT or sum(lengths.sum().row(0)) > LONGEST_UNPACKED:
        raise ValueError("too long")
    return _json_lines(frame.write_ndjson().encode())


READERS: dict[str, Callable[[bytes], bytes]] = {
    "application/x-ndjson": _json_lines,
    "application/jsonl": _json_lines,
    "application/vnd.apache.arrow.stream": _arrow,
}
"""What bodies may be, by their type."""


class _Table:
    """A table of a flatbuffer, read field by field and within its bounds."""

    def __init__(self, buffer: bytes, place: int) -> None:
        self._buffer, self._place = buffer, place
        self._fields = place - _read("<i", buffer, place)

    def place_of(self, field: int) -> int | None:
        """Where a field lies; None where it is left out."""
        entry = 4 + 2 * field
        if entry >= _read("<H", self._buffer, self._fields):
            return None
        offset = _read("<H", self._buffer, self._fields + entry)
        return self._place + offset if offset else None

    def table(self, field: int) -> "_Table | None":
        """The table that a field points to."""
        place = self.place_of(field)
        return None if place is None else _Table(self._buffer, place + _read("<I", self._buffer, place))

    def tables(self, field: int) -> "list[_Table]":
        """The tables in a field that has several."""
        place = self.place_of(field)
        if place is None:
            return []
        first = place + _read("<I", self._buffer, place)
        many = _read("<I", self._buffer, first)
        if many > _MOST_COLUMNS:
            raise ValueError("too many")
        places = range(first + 4, first + 4 + 4 * many, 4)
        return [_Table(self._buffer, each + _read("<I", self._buffer, each)) for each in places]

    def numbers(self, field: int, each: int = 1) -> list[int]:
        """The numbers in a field that has several entries of so many."""
        place = self.place_of(field)
        if place is None:
            return []
        first = place + _read("<I", self._buffer, place)
        many = each * _read("<I", self._buffer, first)
        if many > len(self._buffer) // 8:
            raise ValueError("outside")
        return [_read("<q", self._buffer, first + 4 + 8 * entry) for entry in range(many)]

    def number(self, field: int, form: str) -> int:
        """The number in a field, or 0."""
        place = self.place_of(field)
        return 0 if place is None else _read(form, self._buffer, place)


def _read(form: str, buffer: bytes, place: int) -> int:
    if place < 0:
        raise ValueError("outside")
    try:
        return int(struct.unpack_from(form, buffer, place)[0])
    except struct.error:
        raise ValueError("outside") from None


def _messages(content: bytes) -> Iterator[tuple[int, _Table | None]]:
    """The kind and the header of each message of an Arrow stream."""
    place = 0
    while place < len(content):
        if _read("<I", content, place) != 0xFFFFFFFF:
            raise ValueError("not a message")
        length = _read("<i", content, place + 4)
        if length == 0:
            return
        head = content[place + 8 : place + 8 + length]
        if length < 0 or len(head) < length:
            raise ValueError("cut off")
        message = _Table(head, _read("<I", head, 0))
        body = message.number(3, "<q")
        if not 0 <= body <= len(content):
            raise ValueError("cut off")
        yield message.number(1, "<B"), message.table(2)
        place += 8 + length + body


def _is_flat(schema: _Table) -> bool:
    """Whether a schema has plain columns alone: none from a dictionary (the fifth field), none within another."""
    columns = schema.tables(1)
    return all(each.number(2, "<B") in _PLAIN and each.place_of(4) is None and not each.tables(5) for each in columns)


def _rows(kind: int, batch: _Table | None) -> int:
    """How many a batch says it has; refuses what is compressed (its fourth field says so), or another message."""
    rows = -1 if batch is None or kind != _RECORD_BATCH else batch.number(0, "<q")
    if batch is None or rows < 0 or batch.place_of(3) is not None:
        raise ValueError("not a plain batch: nobody knows how long it is")
    # Lengths of columns, places and lengths of buffers, and how many views have: so much is allocated, unseen.
    if not all(0 <= each <= LONGEST_UNPACKED for each in batch.numbers(1, 2) + batch.numbers(2, 2) + batch.numbers(4)):
        raise ValueError("longer than it is")
    return rows
