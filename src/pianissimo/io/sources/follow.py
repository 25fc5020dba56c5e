"""When a file was made: what tells it from a later one that was given its inode.

What tells a copy of lines that were read from other lines that happen to be the same.

Lines that are copied would count twice, so the stream stops. But users may well send the same events twice, and a stop
must not hang on that: of two files that begin alike, the later one is a copy only if that can hardly be chance.

Files that are followed as they grow: one, those in a folder, or those that a pattern such as `app.jsonl*` finds.

A file is known by its device and its inode, so that a file that was renamed (rotated) is read on under its new name,
and the one under its old name is another. How far it was read is an offset after a whole line: a line without its end
is not there yet. With it goes a digest of the last bytes before the offset, under a key that is drawn when the stream
begins; both are sealed, and encrypted, with the tick. A file that is shorter than it was, or that holds other bytes
before the offset, was rewritten, and the stream stops: nobody could tell which of its lines were counted.

Files that are being read are kept open. One that is deleted, or moved out of the folder, can so be read on until its
writer is quiet, and while it is open its inode is given to no other file. Of a file that was not kept open, the time at
which it was made says whether it is still the same; where the file system does not tell it, what can be seen decides.
It also finds a file again whose device has another number after a restart, under whatever name.

A file that came new must not be a copy of one that was read: in its place, or under a rotated name, beside it or after
it is gone (`copies` tells what is one). Files of other names may well hold the same events.

Whether a file is CSV is told by its name when it is first seen, and sealed: a rotated name tells nothing.
"""

import ctypes
import errno
import hashlib
import os
import re
import secrets
import stat
import struct
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

import polars as pl

from pianissimo.errors import ParameterError, SourceAwayError, SourceError
from pianissimo.io.sources.piece import BYTE_ORDER_MARK, Records, split_lines

_EMPTY_PATH = 0x1000
_BIRTH = 0x800
_BYTES = 256
_PLACE = 80
"""Of the time of birth in the answer of statx: whole seconds in 8 bytes, then nanoseconds in 4."""


def birth_of(descriptor: int) -> int | None:
    """The time at which an open file was made, in nanoseconds; None where the file system does not tell.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     birth_of(file.fileno()) == birth_of(file.fileno())
    True
    """
    told = getattr(os.fstat(descriptor), "st_birthtime", None)
    if told is not None:
        return int(told * 10**9)
    statx, answer = _statx(), ctypes.create_string_buffer(_BYTES)
    if statx is None or statx(descriptor, b"", _EMPTY_PATH, _BIRTH, answer) != 0:
        return None
    if not struct.unpack_from("=I", answer)[0] & _BIRTH:
        return None
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _PLACE)
    return int(seconds) * 10**9 + int(nanoseconds)


@cache
def _statx() -> Any:
    """The system's own function: Python's `os.stat` does not ask Linux for the birth."""
    try:
        found = ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_uint, ctypes.c_char_p]
    found.restype = ctypes.c_int
    return found


FULL = 4096
"""So many bytes in common are many."""

MANY_LINES = 8
"""So many lines in common are many, however short they are."""

_MOST_GENERATIONS = 99


def is_telling(common: bytes, length: int, *, has_header: bool, is_whole: bool) -> bool:
    r"""Whether two files that have their first `length` bytes in common are likely one and its copy.

    `common` is the beginning of these bytes, as much as is looked at. `is_whole` says that there is nothing else in the
    later file, or that both were last changed at the same instant. One event is never enough, and a header is none; and
    where a file goes on with other lines, lines that are all alike are not: some streams have no others.

    >>> is_telling(b"drug\na\n", 7, has_header=True, is_whole=True)
    False
    >>> is_telling(b"a\nb\n", 4, has_header=False, is_whole=True)
    True
    >>> is_telling(b"a\nb\n", 4, has_header=False, is_whole=False)
    False
    >>> is_telling(b"a\nb\n" * 4, 16, has_header=False, is_whole=False)
    True
    """
    whole_lines = common[: common.rfind(b"\n") + 1].split(b"\n")
    lines = [line for line in whole_lines if line.strip()][has_header:]
    if len(lines) < 2:
        return False
    return is_whole or (len(set(lines)) > 1 and (length >= FULL or len(lines) >= MANY_LINES))


def originals(name: str) -> Iterator[tuple[str, bool]]:
    """What a file may be a rotated copy of, and whether the sign of that is at the end of its name.

    >>> list(originals("app-1.jsonl"))
    [('app.jsonl', False), ('app', True), ('app-1', True)]
    """
    ending = Path(name).suffix
    for place, sign in enumerate(name):
        if place and not sign.isalnum():
            if name[:place] + ending != name:
                yield name[:place] + ending, False
            yield name[:place], True


def earlier(name: str) -> Iterator[str]:
    """What a file that is rotated by number was called before it was rotated again.

    >>> list(earlier("app.jsonl.3"))
    ['app.jsonl.1', 'app.jsonl.2']
    """
    stem, dot, number = name.rpartition(".")
    if dot and number.isascii() and number.isdecimal() and int(number) <= _MOST_GENERATIONS:
        for generation in range(1, int(number)):
            yield f"{stem}.{generation}"


BLOCK_BYTES = 8 * 2**20
"""So much is read at once; a longer line is refused."""

MOST_FILES = 10_000
"""In the folder at one time."""

MOST_AWAY = 4096
"""Of files that were taken away, so many are remembered in case that they come back."""

TextFormat = Literal["csv", "jsonl"]

_SCAN = 65_536
_MOST_OPEN = 256
_QUIET_LOOKS = 2
_QUIET_SECONDS = 2.0
_ENDINGS: dict[str, TextFormat] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_PACKED = {".7z", ".br", ".bz2", ".gz", ".lz4", ".lzma", ".tgz", ".xz", ".z", ".zip", ".zst"}
_HEADER = re.compile(rb"((?:\r?\n)*)(?!\r?\n)([^\n]+)\n")


@dataclass(slots=True, repr=False)
class _File:
    """A file and how far it was read."""

    name: str
    device: int
    inode: int
    offset: int = 0
    lines: int = 0
    tail: str = ""
    """The digest of what precedes the offset."""

    rest: bool = False
    """Whether a line without an end came after it."""

    end: int = 0
    """Where its whole lines end."""

    scanned: int = 0
    """Up to where the end of a line was looked for."""

    looked: tuple[int, int] | None = None
    """Size and time of the last change, as they were when it was last looked at."""

    descriptor: int | None = None
    birth: int | None = None
    """When it was made, if that is known."""

    form: TextFormat | None = None
    """As its name told when it was first seen."""

    changed: int | None = None
    """When it was last changed, as far as is known."""

    header: str | None = None
    header_line: int = 0
    """The number of the line that is the header, once that is there."""

    copy_of: "_File | None" = None
    """What it was found to be a copy of; found once, as the other may grow and be read further."""

    quiet: int = 0
    """So often it was looked at, out of the folder, and had not grown."""

    heard: float | None = None
    """When it had last grown, or was first found to be out of the folder."""

    @property
    def key(self) -> tuple[int, int]:
        return self.device, self.inode

    @property
    def shown(self) -> str:
        """The name in messages: a name may be no UTF-8."""
        return _shown(self.name)

    @property
    def is_done(self) -> bool:
        """Whether nothing is lost with it. What is packed has no lines; it may have been read as text before."""
        is_read = not self.rest and self.end == self.offset
        return is_read or self.copy_of is not None or _is_packed(self.name)

    @property
    def rank(self) -> tuple[int, ...]:
        """Files by age: of a file and the one that it was renamed for, that is the order in which they were written."""
        return self.birth or 0, *self.key


class FolderFeed:
    r"""The lines of files, in the order of their names; where a user's order matters, in that of their age.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "events.jsonl").write_text('{"drug": "aspirin"}\n{"drug":')
    ...     feed = FolderFeed(folder)
    ...     feed.seek(None)
    ...     [records.texts.to_list() for records in feed.read(feed.end())]
    [['{"drug": "aspirin"}']]
    """

    def __init__(self, path: Path | str, *, format: TextFormat | None = None) -> None:  # noqa: A002
        path = Path(path)
        self._format = format
        self._by_ending = False
        if path.is_dir():
            self.folder, self._pattern, self._by_ending = path, "*", format is None
        else:
            self.folder, self._pattern = path.parent, path.name
            if not self.folder.is_dir():
                raise SourceError(
                    f"{path} must lie in a folder that is there, got none; make it, or mend source.follow"
                )
            if not any(sign in path.name for sign in "*?[") and not path.exists() and path.suffix not in _ENDINGS:
                raise SourceError(f"{path} must be a file or a folder, got none; make it, or mend source.follow")
            if path.exists() and not path.is_file():
                raise SourceError(
                    f"{path} must be a file or a folder, got something else, such as a pipe; read it with source.stdin"
                )
            if _is_packed(path.name):
                raise SourceError(f"{path} must be text as it is written, got a name of packed files; unpack them")
        self._salt = secrets.token_bytes(16)
        self._files: dict[tuple[int, int], _File] = {}
        self._away: dict[tuple[int, int], _File] = {}
        self._deleted: dict[str, _File] = {}
        self._absent: list[_File] = []
        self._by_name: dict[str, _File] = {}
        self._gone: dict[str, list[_File]] | None = None
        self._lock = threading.RLock()

    def seek(self, position: Any) -> None:
        """Go to where files were read to; every file that is there must be as it was."""
        self.close()
        self._files, self._away, self._deleted, self._absent, self._by_name = {}, {}, {}, [], {}
        self._gone = None
        if position is None:
            return
        if not isinstance(position, dict) or "follow" not in position:
            raise SourceError("the source must be the one that was read before, got followed files; mend [source]")
        self._salt = bytes.fromhex(position["salt"])
        known = [self._known(row) for row in position["follow"]]
        self._files = {each.key: each for each in known}
        for away in map(self._known, position["away"]):
            self._away[away.key] = away
        self._deleted = {each.name: each for each in map(self._known, position.get("deleted", []))}
        here = self._here({each.inode for each in known})
        by_inode: dict[int, list[tuple[int, int]]] = {}
        for key in here:
            by_inode.setdefault(key[1], []).append(key)
        for each in known:
            if each.key not in here:
                self._seek_missing(each, {key: here[key] for key in by_inode.get(each.inode, ())})
        self._by_name = self._read_here(here)
        for each in list(self._files.values()):
            if each.key in here:
                self._look(each, *here[each.key])

    def _known(self, row: Any) -> _File:
        each = _file_of(row)
        each.form = each.form or self._form(each.name)
        return each

    def _seek_missing(self, each: _File, alike: dict[tuple[int, int], tuple[str, os.stat_result]]) -> None:
        """A file that is not where it was: on a device with another number, one with its inode, or gone."""
        del self._files[each.key]
        for key, (name, found) in alike.items():
            if key not in self._files and self._is_moved(each, key, name, found):
                each.device = key[0]
                self._files[key] = each
                return
        self._is_gone(each)

    def _is_moved(self, each: _File, key: tuple[int, int], name: str, found: os.stat_result) -> bool:
        """Whether a file with the inode of one that is known is that file, on a device with another number."""
        fresh = _File(name, *key)
        try:
            birth = birth_of(self._opened(fresh))
            if birth is not None and each.birth is not None:
                return birth == each.birth
            is_long = 0 < each.offset <= found.st_size
            return name == each.name or (is_long and self._digest(fresh, each.offset) == each.tail)
        finally:
            self._shut(fresh)

    @property
    def path(self) -> Path:
        """What is followed, with the pattern of names."""
        return self.folder / self._pattern

    def means(self, path: Path) -> bool:
        """Whether a file of this path would be read."""
        return path.parent.resolve() == self.folder.resolve() and self._is_meant(path.name)

    @property
    def is_waiting(self) -> bool:
        """Whether no file is there that is meant; more may come, and none is no fault."""
        with self._lock:
            return not any(self._is_meant(name) for name, _ in self._here().values())

    def end(self) -> Any:
        """Where the whole lines of every file end now."""
        with self._lock:
            return self._end()

    def _end(self) -> list[list[int]]:
        here = self._here()
        self._absent = [each for key, each in self._files.items() if key not in here]
        self._by_name, self._gone = self._read_here(here), None
        for key, (name, found) in here.items():
            each = self._files.get(key) or self._back(key, name, found) or self._new(key, name)
            if each is not None:
                self._look(each, name, found)
        for each in self._absent:
            self._look_after(each)
        files = sorted(self._files.values(), key=lambda each: (each.name, each.key))
        return [[each.device, each.inode, each.end] for each in files if each.end > each.offset]

    def read(self, end: Any) -> Iterator[Records]:
        """The lines up to an end."""
        for device, inode, stop in end:
            with self._lock:
                each = self._files[device, inode]
                if each.offset < stop:
                    self._check_tail(each)
            while each.offset < stop:
                with self._lock:
                    records = self._block(each, stop)
                if len(records.texts):
                    yield records

    @property
    def position(self) -> Any:
        """How far every file was read."""
        with self._lock:
            return {
                "salt": self._salt.hex(),
                "follow": [_row_of(each) for each in sorted(self._files.values(), key=lambda each: each.key)],
                "away": [_row_of(each) for each in self._away.values()],
                "deleted": [_row_of(each) for each in self._deleted.values()],
            }

    def close(self) -> None:
        """Let go of the files."""
        for each in self._files.values():
            self._shut(each)

    def __repr__(self) -> str:
        return f"FolderFeed({str(self.path)!r})"

    def _here(self, inodes: Collection[int] = ()) -> dict[tuple[int, int], tuple[str, os.stat_result]]:
        """The files in the folder, by device and inode: those that are meant, and those that are known."""
        found: dict[tuple[int, int], tuple[str, os.stat_result]] = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    is_meant = self._is_meant(entry.name)
                    status = _status(entry.path, is_meant=is_meant)
                    if status is None or not stat.S_ISREG(status.st_mode):
                        continue
                    key = (status.st_dev, status.st_ino)
                    is_known = key in self._files or key in self._away or status.st_ino in inodes
                    if key not in found and (is_known or is_meant):
                        found[key] = entry.name, status
        except OSError as error:
            raise SourceAwayError(f"{self.folder} must be a folder that can be read, got: {error.strerror}") from None
        if len(found) > MOST_FILES:
            raise SourceError(f"{self.folder} must hold at most {MOST_FILES} files, got more; move old ones away")
        return found

    def _read_here(self, here: dict[tuple[int, int], tuple[str, os.stat_result]]) -> dict[str, _File]:
        """Files that something was read of, by the names that they have now: one that was renamed was not copied."""
        known = {name: self._files.get(key) for key, (name, _) in here.items()}
        return {name: each for name, each in known.items() if each is not None and each.offset}

    def _is_meant(self, name: str) -> bool:
        # A packed file holds what was read as text before it was packed.
        if (
            name.startswith((".", "_"))
            or _is_packed(name)
            or (self._by_ending and Path(name).suffix.lower() not in _ENDINGS)
        ):
            return False
        return name == self._pattern or fnmatchcase(name, self._pattern)

    def _form(self, name: str) -> TextFormat:
        return self._format or ("csv" if ".csv" in name.lower() else "jsonl")

    def _new(self, key: tuple[int, int], name: str) -> _File | None:
        if not self._is_meant(name):
            return None
        each = self._files[key] = _File(name, *key, form=self._form(name))
        return each

    def _check_copy(self, each: _File, found: os.stat_result) -> None:
        """Refuse a file that was copied from one that was read: to be put in its place, or to cut that one off next."""
        for old, may_be_part in self._relatives(each):
            if old is each:
                continue
            if self._is_copy(each, found, old) or (may_be_part and self._is_part(each, found, old)):
                self._shut(each)
                each.copy_of = old
                raise self._copied(each, old)

    def _relatives(self, each: _File) -> Iterator[tuple[_File, bool]]:
        """What a file may be a copy of, and whether a copy in the making would be found beside it."""
        gone = self._gone_by_name()
        for name in (each.name, *earlier(each.name)):
            yield from ((old, False) for old in gone.get(name, ()))
        for name, is_appended in originals(each.name):
            yield from ((old, False) for old in gone.get(name, ()))
            if name in self._by_name:
                # Beginnings are alike under other names too.
                yield self._by_name[name], is_appended

    def _gone_by_name(self) -> dict[str, list[_File]]:
        if self._gone is None:
            self._gone = {}
            for old in (*self._away.values(), *self._deleted.values(), *self._absent):
                self._gone.setdefault(old.name, []).append(old)
        return self._gone

    def _is_copy(self, each: _File, found: os.stat_result, old: _File) -> bool:
        """Whether a file holds what was read of another, or what is still to be read of one that is open."""
        lengths = {old.offset: old.tail}
        if old.descriptor is not None:
            size = os.fstat(old.descriptor).st_size  # it may have grown since it was looked at
            lengths |= {length: self._digest(old, length) for length in (old.end, size)}
        return any(
            0 < length <= found.st_size
            and self._digest(each, length) == digest
            and self._is_telling(each, length, is_whole=length == found.st_size or old.changed == found.st_mtime_ns)
            for length, digest in lengths.items()
        )

    def _is_part(self, each: _File, found: os.stat_result, old: _File) -> bool:
        """Whether it is a copy that is still being written."""
        length = found.st_size
        if length >= old.offset or not self._is_telling(each, length, is_whole=False):
            return False
        one, other = (self._pread(file, self._opened(file), 0, min(FULL, length)) for file in (each, old))
        return one == other

    def _is_telling(self, each: _File, length: int, *, is_whole: bool) -> bool:
        common = self._pread(each, self._opened(each), 0, min(length, BLOCK_BYTES))
        return is_telling(common, length, has_header=self._is_csv(each), is_whole=is_whole)

    def _back(self, key: tuple[int, int], name: str, found: os.stat_result) -> _File | None:
        """A file that was taken away and is back."""
        each = self._away.pop(key, None)
        if each is not None:
            if self._is_another(each, name, found):
                self._forget(each)
                return None
        else:
            alike = [away for away in self._away.values() if away.inode == key[1]]
            each = next((away for away in alike if self._is_moved(away, key, name, found)), None)
            if each is None:
                return None
            del self._away[each.key]
            each.device = key[0]
        self._files[key] = each
        return each

    def _look(self, each: _File, name: str, found: os.stat_result) -> None:
        """See how far a file has grown."""
        looked = (found.st_size, found.st_mtime_ns)
        each.heard, each.quiet = None, 0
        if each.copy_of is not None:
            raise self._copied(each, each.copy_of)
        if looked == each.looked and name == each.name:
            return
        if each.descriptor is None and self._is_another(each, name, found):
            # Deleted while it was not open, and its inode given to another file.
            if not each.is_done:
                raise self._missing(each)
            del self._files[each.key]
            self._forget(each)
            fresh = self._new(each.key, name)
            if fresh is None:
                return
            each = fresh
        each.name = name
        if found.st_size < max(each.offset, each.end):
            raise self._rewritten(each)
        if not each.offset and found.st_size:
            self._check_copy(each, found)
        self._check_tail(each)
        self._find_end(each, found.st_size)
        each.looked, each.changed = looked, found.st_mtime_ns

    def _is_another(self, each: _File, name: str, found: os.stat_result) -> bool:
        """Whether the inode of a file that was not kept open is now that of another file, which is shut again."""
        known, before = each.birth, each.name
        each.name, each.birth = name, None  # so that it is opened whenever it was made
        try:
            now = birth_of(self._opened(each))
        except SourceError:
            each.name, each.birth = before, known
            raise
        each.birth = now if known is None else known
        if known is not None and now is not None:
            is_another = known != now
        elif name == before:
            is_another = False
        else:
            touched = (
                each.looked is not None and found.st_size == each.looked[0] and found.st_mtime_ns != each.looked[1]
            )
            is_another = touched or found.st_size < each.offset or self._tail_of(each) != each.tail
        if is_another:
            self._shut(each)
            each.name, each.birth = before, known
        return is_another

    def _look_after(self, each: _File) -> None:
        """A file that is not in the folder any more: read on while it is open, until its writer is quiet."""
        if each.descriptor is not None and each.copy_of is None:
            status, heard, quiet = os.fstat(each.descriptor), each.heard, each.quiet
            size = each.scanned
            self._look(each, each.name, status)
            now = time.monotonic()
            if heard is None or status.st_size != size:
                heard, quiet = now, -1
            each.heard, each.quiet = heard, quiet + 1
            if each.end > each.offset or each.quiet < _QUIET_LOOKS or now < heard + _QUIET_SECONDS:
                return
            if status.st_nlink == 0 and not each.rest:
                # Deleted, and all of it read: its inode is free for another.
                del self._files[each.key]
                self._forget(each)
                return
        self._is_gone(each)
        del self._files[each.key]

    def _forget(self, each: _File) -> None:
        """Of a file that was deleted, its name and what was read of it are kept: a copy may come in its place."""
        self._shut(each)
        self._gone = None
        self._deleted.pop(each.name, None)
        self._deleted[each.name] = each
        while len(self._deleted) > MOST_AWAY:
            del self._deleted[next(iter(self._deleted))]

    def _is_gone(self, each: _File) -> None:
        self._shut(each)
        if not each.is_done:
            raise self._missing(each)
        self._gone = None
        self._away[each.key] = each
        while len(self._away) > MOST_AWAY:
            del self._away[next(iter(self._away))]

    def _find_end(self, each: _File, size: int) -> None:
        """Look for the last end of a line, from the end of the file backwards."""
        # A line without its end may have been taken back and written anew: nothing of it was counted.
        lowest = each.end if size < each.scanned else max(each.end, each.scanned)
        descriptor, high = self._opened(each), size
        while high > lowest:
            low = max(lowest, high - _SCAN)
            place = self._pread(each, descriptor, low, high - low).rfind(b"\n")
            if place >= 0:
                each.end = low + place + 1
                break
            high = low
        each.scanned = size
        each.rest = size > each.end

    def _block(self, each: _File, stop: int) -> Records:
        """Whole lines from where a file stands, a block at most; the header of a CSV file is none of them."""
        descriptor = self._opened(each)
        block = self._pread(each, descriptor, each.offset, min(BLOCK_BYTES, stop - each.offset))
        cut = block.rfind(b"\n") + 1
        if cut:
            texts = split_lines(block[: cut - 1].removeprefix(b"" if each.offset else BYTE_ORDER_MARK))
        else:
            cut = self._long_line(each, descriptor, len(block), stop)
            texts = pl.Series([None], dtype=pl.String)
        first, each.lines, each.offset = each.lines + 1, each.lines + len(texts), each.offset + cut
        each.tail = self._tail_of(each)  # before anything is handed over: whoever reads may not come back
        header = None
        if self._is_csv(each):
            header = self._header(each, descriptor)
            before = len(texts) if header is None else min(len(texts), max(0, each.header_line - first + 1))
            first, texts = first + before, texts[before:]
        numbers = pl.int_range(first, first + len(texts), dtype=pl.Int64, eager=True)
        return Records(place=each.shown, rank=each.rank, numbers=numbers, texts=texts, header=header)

    def _long_line(self, each: _File, descriptor: int, length: int, stop: int) -> int:
        """How long the line is that begins where the file stands."""
        while each.offset + length < stop:
            block = self._pread(each, descriptor, each.offset + length, min(BLOCK_BYTES, stop - each.offset - length))
            place = block.find(b"\n")
            if place >= 0:
                return length + place + 1
            length += len(block)
        return length

    def _is_csv(self, each: _File) -> bool:
        return (self._format or each.form) == "csv"

    def _header(self, each: _File, descriptor: int) -> str | None:
        """The first line that is not blank; None while there is none."""
        size = _SCAN
        while each.header is None:
            block = os.pread(descriptor, size, 0)
            found = _HEADER.match(block.removeprefix(BYTE_ORDER_MARK))
            if found:
                each.header = split_lines(found[2])[0] or ""
                each.header_line = found[1].count(b"\n") + 1
            elif len(block) < size:
                return None
            elif size >= BLOCK_BYTES:
                each.header, each.header_line = "", 1  # no line of this file can be read
            size = min(size * 16, BLOCK_BYTES)
        return each.header

    def _check_tail(self, each: _File) -> None:
        if each.offset and self._tail_of(each) != each.tail:
            raise self._rewritten(each)

    def _tail_of(self, each: _File) -> str:
        return self._digest(each, each.offset)

    def _digest(self, each: _File, end: int) -> str:
        """Of the last bytes before a place."""
        length = min(FULL, end)
        content = self._pread(each, self._opened(each), end - length, length)
        return hashlib.blake2b(content, digest_size=16, key=self._salt).hexdigest()

    def _pread(self, each: _File, descriptor: int, offset: int, length: int) -> bytes:
        content = os.pread(descriptor, length, offset)
        while len(content) < length:
            more = os.pread(descriptor, length - len(content), offset + len(content))
            if not more:
                raise self._rewritten(each)
            content += more
        return content

    def _opened(self, each: _File) -> int:
        if each.descriptor is None:
            descriptor = self._open_named(each)
            if descriptor is None:
                # Renamed since the folder was looked through.
                here = self._here()
                if each.key in here:
                    each.name = here[each.key][0]
                    descriptor = self._open_named(each)
            if descriptor is None:
                if each.end > each.offset:
                    raise self._missing(each)
                raise SourceAwayError(f"{each.shown} must stay while it is looked at, got none; it is looked for again")
            each.descriptor = descriptor
            each.birth = birth_of(descriptor) if each.birth is None else each.birth
            self._shut_oldest(each)
        return each.descriptor

    def _open_named(self, each: _File) -> int | None:
        path = self.folder / each.name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(str(path), error) from None
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) == each.key:
            birth = None if each.birth is None else birth_of(descriptor)
            if birth is None or birth == each.birth:
                return descriptor
        os.close(descriptor)
        return None

    def _shut_oldest(self, kept: _File) -> None:
        """Keep few files open: first go those that are read to their end and changed longest ago."""
        opened = [each for each in self._files.values() if each.descriptor is not None and each is not kept]
        if len(opened) >= _MOST_OPEN:
            done = [each for each in opened if each.offset == each.end] or opened
            self._shut(min(done, key=lambda each: each.looked[1] if each.looked else 0))

    def _shut(self, each: _File) -> None:
        if each.descriptor is not None:
            os.close(each.descriptor)
            each.descriptor = None

    def _missing(self, each: _File) -> SourceError:
        return SourceError(
            f"{each.shown} must be there until it is read to its end, got none; bring it back, under any name"
        )

    def _rewritten(self, each: _File) -> SourceError:
        return SourceError(
            f"{each.shown} must only grow, got one that was cut off or rewritten since it was read; bring it back, "
            "or begin a new stream. Rotate files by renaming them, not by copying and cutting them off"
        )

    def _copied(self, each: _File, old: _File) -> SourceError:
        if each.name == old.name:
            return SourceError(
                f"{each.shown} must be the file that was read before, or another one, got a copy of what was read: "
                "its lines would count twice; bring the file itself back, or give the new one another name"
            )
        return SourceError(
            f"{each.shown} must be another file than {old.shown}, got a copy of what was read: its lines would "
            "count twice; take it away, and rotate files by renaming them, not by copying and cutting them off"
        )


def _status(path: str, *, is_meant: bool) -> os.stat_result | None:
    """What an entry of the folder leads to; None if that is nothing, or cannot be seen and was not meant."""
    try:
        return os.stat(path)
    except OSError as error:
        # It went meanwhile, or is a link that leads nowhere.
        leads_nowhere = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        if is_meant and not leads_nowhere:
            raise _unreadable(path, error) from None
        return None


def _unreadable(path: str, error: OSError) -> SourceAwayError:
    return SourceAwayError(f"{_shown(path)} must be a file that can be read, got: {error.strerror}")


def _is_packed(name: str) -> bool:
    return Path(name).suffix.lower() in _PACKED


def _shown(name: str) -> str:
    r"""A name as text.

    >>> _shown(os.fsdecode(b"app\xff.jsonl"))
    'app\\udcff.jsonl'
    """
    return name.encode(errors="backslashreplace").decode()


def _row_of(each: _File) -> list[Any]:
    # A name that is no UTF-8 is stored as its bytes.
    name = each.name if each.shown == each.name else os.fsencode(each.name)
    read = [each.offset, each.lines, each.tail, each.rest]
    return [name, each.device, each.inode, *read, each.birth, each.form, each.changed]


def _file_of(row: Any) -> _File:
    try:
        name, device, inode, offset, lines, tail, rest, *more = row
        # A place may have been told before these were.
        birth, form, changed = (*more, None, None, None)[:3]
        name = os.fsdecode(name)
    except (TypeError, ValueError):
        raise ParameterError("a place in followed files must be one that was told before, got another") from None
    return _File(
        name,
        device,
        inode,
        offset,
        lines,
        tail,
        rest,
        end=offset,
        scanned=offset,
        birth=birth,
        form=form,
        changed=changed,
    )
