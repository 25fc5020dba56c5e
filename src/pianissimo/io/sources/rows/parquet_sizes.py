"""How much a Parquet file unfolds to, told before anything is decoded: a few bytes can stand for a terabyte.

A file ends with its own description (Apache Parquet format, `parquet.thrift`, in Thrift's compact protocol), which says
how many values each column has and where its pages lie. Each page begins with a header that says how many values and
bytes come of it; that is what a decoder believes, so these are added up, and not what the description promises.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ENDS = 4
_FOOTER_BYTES = 8
_FIRST_HEADER, _LONGEST_HEADER = 1 << 10, 1 << 22
_DEEPEST = 16
_ROW_GROUPS, _COLUMNS, _COLUMN, _PATH, _VALUES = 4, 1, 3, 3, 5
_PACKED_BYTES, _DATA_PAGE, _DICTIONARY_PAGE = 7, 9, 11
_UNFOLDED, _FOLDED = 2, 3
_DATA_HEADERS, _DICTIONARY_HEADER = (5, 8), 7


class MalformedError(Exception):
    """What is read is no description of this format."""


@dataclass(frozen=True, slots=True)
class UnfoldedSize:
    """What comes of some columns of a file."""

    values: int
    """Of the column that has most: rows, or, of lists, what they hold."""

    unfolded: int
    """Bytes of all pages once they are unpacked."""

    looked_up: int
    """Bytes of what stands in dictionaries, as often as a value names it, if all entries are as long as their mean."""


def unfolded_size(path: Path, columns: Iterable[str]) -> UnfoldedSize:
    """How much some columns of a file unfold to; `MalformedError` if it does not say so itself."""
    try:
        return _size_of(path, {name.encode() for name in columns})
    except (TypeError, ValueError, AttributeError):  # something else stands where a number or a list belongs
        raise MalformedError from None


def _size_of(path: Path, wanted: set[bytes]) -> UnfoldedSize:
    values: dict[bytes, int] = {}
    unfolded = looked_up = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for column in _columns(descriptor):
            name = _at(_at(column, _PATH), 0)
            if name in wanted:
                mean = 0
                for count, size, entries in _pages(descriptor, column):
                    values[name] = values.get(name, 0) + count
                    unfolded += size
                    mean = max(mean, size // entries) if entries else mean
                    looked_up += mean * count
    finally:
        os.close(descriptor)
    return UnfoldedSize(max(values.values(), default=0), unfolded, looked_up)


def _columns(descriptor: int) -> Iterator[Any]:
    """What the description says of each column of each group of rows."""
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, 4, max(0, size - _FOOTER_BYTES)), "little")
    start = size - _FOOTER_BYTES - length
    if not start >= _ENDS:
        raise MalformedError
    description = _Thrift(os.pread(descriptor, length, start)).struct()
    for group in _at(description, _ROW_GROUPS):
        for chunk in _at(group, _COLUMNS):
            yield _at(chunk, _COLUMN)


def _pages(descriptor: int, column: Any) -> Iterator[tuple[int, int, int]]:
    """Of each page of a column how many values, bytes and entries of a dictionary come of it."""
    place = min(_at(column, _DATA_PAGE), column.get(_DICTIONARY_PAGE) or _at(column, _DATA_PAGE))
    end, left = place + _at(column, _PACKED_BYTES), _at(column, _VALUES)
    while left > 0 and place < end:
        header, length = _header(descriptor, place)
        told = next((header[each] for each in _DATA_HEADERS if each in header), None)
        count = 0 if told is None else _at(told, 1)
        entries = _at(header[_DICTIONARY_HEADER], 1) if _DICTIONARY_HEADER in header else 0
        unfolded, folded = _at(header, _UNFOLDED), _at(header, _FOLDED)
        if min(count, entries, unfolded, folded) < 0:
            raise MalformedError
        yield count, unfolded, entries
        place, left = place + length + folded, left - count


def _header(descriptor: int, place: int) -> tuple[Any, int]:
    if not 0 <= place < os.fstat(descriptor).st_size:
        raise MalformedError
    size = _FIRST_HEADER
    while True:
        content = os.pread(descriptor, size, place)
        reader = _Thrift(content)
        try:
            return reader.struct(), reader.place
        except MalformedError:
            if len(content) < size or size >= _LONGEST_HEADER:
                raise
            size *= 16


def _at(content: Any, key: int) -> Any:
    try:
        return content[key]
    except (LookupError, TypeError):
        raise MalformedError from None


class _Thrift:
    """Reads Thrift's compact protocol: a struct becomes a dict by the numbers of its fields."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.place = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """The struct that begins here."""
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            # A truth value is in the kind itself.
            found[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise MalformedError
        if kind in (1, 2, 3):
            return self._byte()
        if kind in (4, 5, 6):
            return self._signed()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            # Each takes a byte at least, so that what is read bounds how many there can be.
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        raise MalformedError  # maps are in no struct of the format

    def _byte(self) -> int:
        place = self.place
        self.place = place + 1
        try:
            return self._content[place]
        except IndexError:
            raise MalformedError from None

    def _bytes(self, count: int) -> bytes:
        begin, self.place = self.place, self.place + count
        if not self.place <= len(self._content):
            raise MalformedError
        return self._content[begin : self.place]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise MalformedError

    def _signed(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
