"""Files that are followed as they grow: one, those in a folder, or those that a pattern such as `app.jsonl*` finds.

A file is known by its device and its inode, so that a file that was renamed (rotated) is read on under its new name,
and the one under its old name is another. How far it was read is an offset after a whole line: a line without its end
is not there yet. With it goes a digest of the last bytes before the offset, under a key that is drawn when the stream
begins; both are sealed, and encrypted, with the tick. A file that is shorter than it was, or that holds other bytes
before the offset, was rewritten, and the stream stops: nobody could tell which of its lines were counted.

Files that are being read are kept open. One that is deleted, or moved out of the folder, can so be read on until its
writer is quiet, and while it is open its inode is given to no other file. A file that was not kept open, and was made
at another time, or is found under another name with other bytes before the offset, is another one that was given its
inode.

A line that is copied to another file counts twice: `docs/limits.md` says so, and what to use instead.

Whether a file is CSV is told by its name when it is first seen, and sealed: a rotated name tells nothing.
"""

import errno
import hashlib
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import polars as pl

from pianissimo.errors import ParameterError, SourceAwayError, SourceError
from pianissimo.io.sources.births import birth_of
from pianissimo.io.sources.rows.text_rows import BYTE_ORDER_MARK, split_lines
from pianissimo.io.sources.source_records import Records

BLOCK_BYTES = 8 * 2**20
"""So much is read at once; a longer line is refused."""

MOST_FILES = 10_000
"""In the folder at one time."""

MOST_AWAY = 1024
"""Of files that were taken away, so many are remembered in case that they come back."""

TextFormat = Literal["csv", "jsonl"]

_TAIL = 4096
"""So many bytes before the offset are in the digest."""

_SCAN = 65_536
_MOST_OPEN = 256
_QUIET_SECONDS = 2.0
_ENDINGS: dict[str, TextFormat] = {".csv": "csv", ".tsv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_PACKED = {".7z", ".br", ".bz2", ".gz", ".lz4", ".lzma", ".tgz", ".xz", ".z", ".zip", ".zst"}
_HEADER = re.compile(rb"((?:\r?\n)*)(?!\r?\n)([^\n]+)\n")

_Key = tuple[int, int]
_Here = dict[_Key, tuple[str, os.stat_result]]


@dataclass(slots=True, repr=False)
class FollowedFile:
    """A file and how far it was read."""

    name: str
    device: int
    inode: int
    form: TextFormat
    """As its name told when it was first seen."""

    offset: int = 0
    lines: int = 0
    tail: str = ""
    """The digest of what precedes the offset."""

    rest: bool = False
    """Whether a line without an end came after it."""

    birth: int | None = None
    """When it was made; None where the file system does not tell, or a version before did not ask."""

    end: int = 0
    """Where its whole lines end."""

    scanned: int = 0
    """Up to where the end of a line was looked for."""

    looked: tuple[int, int] | None = None
    """Size and time of the last change, as they were when it was last looked at."""

    descriptor: int | None = None
    header: str | None = None
    header_line: int = 0
    """The number of the line that is the header, once that is there."""

    heard: float | None = None
    """When it had last grown, or was first found to be out of the folder."""

    @property
    def key(self) -> _Key:
        return self.device, self.inode

    @property
    def place(self) -> str:
        """What it is called in a position, under whatever name: so a tick stores the files that moved."""
        return f"{self.device}:{self.inode}"

    @property
    def shown(self) -> str:
        """The name in messages: a name may be no UTF-8."""
        return _shown(self.name)

    @property
    def is_done(self) -> bool:
        """Whether nothing is lost with it. What is packed has no lines; it may have been read as text before."""
        return (not self.rest and self.end == self.offset) or _is_packed(self.name)

    @classmethod
    def of(cls, row: Any) -> "FollowedFile":
        """From a row of a position."""
        try:
            name, device, inode, form, offset, lines, tail, rest, *births = row
            name = os.fsdecode(name)
        except (TypeError, ValueError):
            raise ParameterError("a place in followed files must be one that was told before, got another") from None
        birth = births[0] if births else None
        return cls(name, device, inode, form, offset, lines, tail, rest, birth, end=offset, scanned=offset)

    def row(self) -> list[Any]:
        """What is sealed of it."""
        # A name that is no UTF-8 is stored as its bytes.
        name = self.name if self.shown == self.name else os.fsencode(self.name)
        return [name, self.device, self.inode, self.form, self.offset, self.lines, self.tail, self.rest, self.birth]

    def read_at(self, offset: int, length: int) -> bytes:
        """So many bytes of a file that is open, or the stream stops."""
        assert self.descriptor is not None  # noqa: S101
        content = os.pread(self.descriptor, length, offset)
        while len(content) < length:
            more = os.pread(self.descriptor, length - len(content), offset + len(content))
            if not more:
                raise self.rewritten()
            content += more
        return content

    def shut(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def missing(self) -> SourceError:
        return SourceError(
            f"{self.shown} must be there until it is read to its end, got none; bring it back, under any name"
        )

    def rewritten(self) -> SourceError:
        return SourceError(
            f"{self.shown} must only grow, got one that was cut off or rewritten since it was read; bring it back, "
            "or begin a new stream. Rotate files by renaming them, not by copying and cutting them off"
        )


class FolderFeed:
    """The lines of files, in the order of their names; where a user's order matters, in that of their inodes."""

    def __init__(self, path: Path | str, *, format: TextFormat | None = None) -> None:  # noqa: A002
        path = Path(path)
        self._format = format
        self._by_ending = False
        if path.is_dir():
            self.folder, self._pattern, self._by_ending = path, "*", format is None
        else:
            self.folder, self._pattern = path.parent, path.name
            _check_followable(path)
        self._salt = secrets.token_bytes(16)
        self._files: dict[_Key, FollowedFile] = {}
        self._away: dict[_Key, FollowedFile] = {}
        self._device = 0
        self._lock = threading.RLock()

    def seek(self, position: Any) -> None:
        """Go to where files were read to; every file that is there must be as it was."""
        self.close()
        self._files, self._away = {}, {}
        try:
            self._device = self.folder.stat().st_dev
        except OSError as error:
            raise _unreadable(str(self.folder), error) from None
        if position is None:
            return
        if not isinstance(position, dict) or "follow" not in position:
            raise SourceError("the source must be the one that was read before, got followed files; mend [source]")
        self._salt = bytes.fromhex(position["salt"])
        for known, rows in ((self._files, position["follow"]), (self._away, position["away"])):
            # A list in streams that began before there was a key for each.
            for each in map(FollowedFile.of, rows.values() if isinstance(rows, dict) else rows):
                if each.device == position["device"]:
                    each.device = self._device  # which may have another number since it was mounted anew
                known[each.key] = each
        here = self._here()
        for each in list(self._files.values()):
            if each.key in here:
                self._look(each, *here[each.key])
            else:
                self._put_away(each)

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
            here = self._here()
            for each in [each for key, each in self._files.items() if key not in here]:
                self._look_after(each)
            for key, (name, found) in here.items():
                each_here = self._files.get(key) or self._back(key, name, found) or self._new(key, name)
                if each_here is not None:
                    self._look(each_here, name, found)
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
                "device": self._device,
                "follow": {each.place: each.row() for each in self._files.values()},
                "away": {each.place: each.row() for each in self._away.values()},
            }

    def close(self) -> None:
        """Let go of the files."""
        for each in self._files.values():
            each.shut()

    def __repr__(self) -> str:
        return f"FolderFeed({str(self.path)!r})"

    def _here(self) -> _Here:
        """The files in the folder, by device and inode: those that are meant, and those that are known."""
        found: _Here = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    is_meant = self._is_meant(entry.name)
                    status = _status(entry.path, is_meant=is_meant)
                    if status is None or not stat.S_ISREG(status.st_mode):
                        continue
                    key = (status.st_dev, status.st_ino)
                    if key not in found and (is_meant or key in self._files or key in self._away):
                        found[key] = entry.name, status
        except OSError as error:
            raise SourceAwayError(f"{self.folder} must be a folder that can be read, got: {error.strerror}") from None
        if len(found) > MOST_FILES:
            raise SourceError(f"{self.folder} must hold at most {MOST_FILES} files, got more; move old ones away")
        return found

    def _is_meant(self, name: str) -> bool:
        # A packed file holds what was read as text before it was packed.
        if name.startswith((".", "_")) or _is_packed(name):
            return False
        if self._by_ending and Path(name).suffix.lower() not in _ENDINGS:
            return False
        return name == self._pattern or fnmatchcase(name, self._pattern)

    def _new(self, key: _Key, name: str) -> FollowedFile | None:
        if not self._is_meant(name):
            return None
        form = self._format or ("csv" if {".csv", ".tsv"} & {*map(str.lower, Path(name).suffixes)} else "jsonl")
        each = self._files[key] = FollowedFile(name, *key, form)
        return each

    def _back(self, key: _Key, name: str, found: os.stat_result) -> FollowedFile | None:
        """A file that was taken away and is back; not another that was given its inode."""
        each = self._away.pop(key, None)
        if each is None:
            return None
        each.name = name
        if found.st_size < each.offset or self._is_born_anew(each) or self._tail_of(each) != each.tail:
            each.shut()
            return None
        self._files[key] = each
        return each

    def _look(self, each: FollowedFile, name: str, found: os.stat_result) -> None:
        """See how far a file has grown."""
        looked = (found.st_size, found.st_mtime_ns)
        each.heard = None
        if looked == each.looked and name == each.name:
            return
        if each.descriptor is None and self._is_another(each, name, found):
            # Deleted while it was not open, and its inode given to another file.
            if not each.is_done:
                raise each.missing()
            del self._files[each.key]
            fresh = self._new(each.key, name)
            if fresh is None:
                return
            each = fresh
        each.name = name
        if found.st_size < max(each.offset, each.end):
            raise each.rewritten()
        self._check_tail(each)
        self._find_end(each, found.st_size)
        each.looked = looked

    def _is_another(self, each: FollowedFile, name: str, found: os.stat_result) -> bool:
        """Whether the inode of a file that was not kept open is now that of another file."""
        before, each.name = each.name, name
        touched = each.looked is not None and found.st_size == each.looked[0] and found.st_mtime_ns != each.looked[1]
        is_another = self._is_born_anew(each) or (
            name != before and (touched or found.st_size < each.offset or self._tail_of(each) != each.tail)
        )
        if is_another:
            each.shut()
            each.name = before
        return is_another

    def _is_born_anew(self, each: FollowedFile) -> bool:
        """Whether a file was made at another time than the one that was read, as far as can be told."""
        self._opened(each)
        assert each.descriptor is not None  # noqa: S101
        return None not in (each.birth, found := birth_of(each.descriptor)) and found != each.birth

    def _look_after(self, each: FollowedFile) -> None:
        """A file that is not in the folder any more: read on while it is open, until its writer is quiet."""
        if each.descriptor is not None:
            status, heard, size, now = os.fstat(each.descriptor), each.heard, each.scanned, time.monotonic()
            self._look(each, each.name, status)
            each.heard = now if heard is None or status.st_size != size else heard
            if each.end > each.offset or now < each.heard + _QUIET_SECONDS:
                return
            if status.st_nlink == 0 and not each.rest:
                # Deleted, and all of it read: its inode is free for another.
                each.shut()
                del self._files[each.key]
                return
        self._put_away(each)

    def _put_away(self, each: FollowedFile) -> None:
        each.shut()
        if not each.is_done:
            raise each.missing()
        del self._files[each.key]
        self._away[each.key] = each
        while len(self._away) > MOST_AWAY:
            del self._away[next(iter(self._away))]

    def _find_end(self, each: FollowedFile, size: int) -> None:
        """Look for the last end of a line, from the end of the file backwards."""
        # A line without its end may have been taken back and written anew: nothing of it was counted.
        lowest = each.end if size < each.scanned else max(each.end, each.scanned)
        self._opened(each)
        high = size
        while high > lowest:
            low = max(lowest, high - _SCAN)
            place = each.read_at(low, high - low).rfind(b"\n")
            if place >= 0:
                each.end = low + place + 1
                break
            high = low
        each.scanned = size
        each.rest = size > each.end

    def _block(self, each: FollowedFile, stop: int) -> Records:
        """Whole lines from where a file stands, a block at most; the header of a CSV file is none of them."""
        self._opened(each)
        block = each.read_at(each.offset, min(BLOCK_BYTES, stop - each.offset))
        cut = block.rfind(b"\n") + 1
        if cut:
            texts = split_lines(block[: cut - 1].removeprefix(b"" if each.offset else BYTE_ORDER_MARK))
        else:
            cut = _long_line(each, len(block), stop)
            texts = pl.Series([None], dtype=pl.String)
        first, each.lines, each.offset = each.lines + 1, each.lines + len(texts), each.offset + cut
        each.tail = self._tail_of(each)  # before anything is handed over: whoever reads may not come back
        header = None
        if each.form == "csv":
            header = _header(each)
            before = len(texts) if header is None else min(len(texts), max(0, each.header_line - first + 1))
            first, texts = first + before, texts[before:]
        numbers = pl.int_range(first, first + len(texts), dtype=pl.Int64, eager=True)
        return Records(place=each.shown, rank=each.key, numbers=numbers, texts=texts, header=header)

    def _check_tail(self, each: FollowedFile) -> None:
        if each.offset and self._tail_of(each) != each.tail:
            raise each.rewritten()

    def _tail_of(self, each: FollowedFile) -> str:
        """The digest of the last bytes before the offset; of none, the empty text."""
        length = min(_TAIL, each.offset)
        if not length:
            return ""
        self._opened(each)
        content = each.read_at(each.offset - length, length)
        return hashlib.blake2b(content, digest_size=16, key=self._salt).hexdigest()

    def _opened(self, each: FollowedFile) -> None:
        if each.descriptor is not None:
            return
        descriptor = self._open_named(each)
        if descriptor is None:
            # Renamed since the folder was looked through.
            here = self._here()
            if each.key in here:
                each.name = here[each.key][0]
                descriptor = self._open_named(each)
        if descriptor is None:
            if each.end > each.offset:
                raise each.missing()
            raise SourceAwayError(f"{each.shown} must stay while it is looked at, got none; it is looked for again")
        each.descriptor = descriptor
        if each.birth is None:
            each.birth = birth_of(descriptor)
        # Few files stay open: first go those that are read to their end and changed longest ago.
        opened = [other for other in self._files.values() if other.descriptor is not None and other is not each]
        if len(opened) >= _MOST_OPEN:
            done = [other for other in opened if other.offset == other.end] or opened
            min(done, key=lambda other: other.looked[1] if other.looked else 0).shut()

    def _open_named(self, each: FollowedFile) -> int | None:
        path = self.folder / each.name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unreadable(str(path), error) from None
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) == each.key:
            return descriptor
        os.close(descriptor)
        return None


def _long_line(each: FollowedFile, length: int, stop: int) -> int:
    """How long the line is that begins where the file stands."""
    while each.offset + length < stop:
        block = each.read_at(each.offset + length, min(BLOCK_BYTES, stop - each.offset - length))
        place = block.find(b"\n")
        if place >= 0:
            return length + place + 1
        length += len(block)
    return length


def _header(each: FollowedFile) -> str | None:
    """The first line of a CSV file that is not blank; None while there is none."""
    size = _SCAN
    while each.header is None:
        assert each.descriptor is not None  # noqa: S101
        block = os.pread(each.descriptor, size, 0)
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


def _check_followable(path: Path) -> None:
    if not path.parent.is_dir():
        raise SourceError(f"{path} must lie in a folder that is there, got none; make it, or mend source.follow")
    if not any(sign in path.name for sign in "*?[") and not path.exists() and path.suffix not in _ENDINGS:
        raise SourceError(f"{path} must be a file or a folder, got none; make it, or mend source.follow")
    if path.exists() and not path.is_file():
        raise SourceError(
            f"{path} must be a file or a folder, got something else, such as a pipe; read it with source.stdin"
        )
    if _is_packed(path.name):
        raise SourceError(f"{path} must be text as it is written, got a name of packed files; unpack them")


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
    """A name as text, though it may be no UTF-8."""
    return name.encode(errors="backslashreplace").decode()
