"""Files that are followed as they grow: one, those in a folder, or those that a pattern such as `app.jsonl*` finds.

A file is known by its device and its inode, so that a file that was renamed (rotated) is read on under its new name,
and the one under its old name is another. How far it was read is an offset after a whole line: a line without its end
is not there yet. With it goes a digest of the last bytes before the offset, under a key that is drawn when the stream
begins; both are sealed, and encrypted, with the tick. A file that is shorter than it was, or that holds other bytes
before the offset, was rewritten, and the stream stops: nobody could tell which of its lines were counted.

Files that are being read are kept open. One that is deleted, or moved out of the folder, can so be read on until its
writer is quiet, and while it is open its inode is given to no other file. Of a file that was not kept open, the time at
which it was made says whether it is still the same; where the file system does not tell it, what can be seen decides.

A file that came new must not be a copy: in the place of one that was read, or beside it under a rotated name. Files of
other names may well hold the same events.
"""

import hashlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import polars as pl

from pianissimo.engine.sources.birth import birth_of
from pianissimo.engine.sources.feed import Records
from pianissimo.engine.sources.lines import split_lines
from pianissimo.errors import ParameterError, SourceAwayError, SourceError

BLOCK_BYTES = 8 * 2**20
"""So much is read at once; a longer line is refused."""

MOST_FILES = 10_000
"""In the folder at one time."""

MOST_AWAY = 4096
"""Of files that were taken away, so many are remembered in case that they come back."""

TextFormat = Literal["csv", "jsonl"]

_TAIL = 4096
_SCAN = 65_536
_MOST_OPEN = 256
_QUIET_LOOKS = 2
_QUIET_SECONDS = 2.0
_ENDINGS: dict[str, TextFormat] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


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
    header: str | None = field(default=None)
    birth: int | None = None
    """When it was made, if that is known."""

    quiet: int = 0
    """So often it was looked at, out of the folder, and had not grown."""

    heard: float | None = None
    """When it had last grown, or was first found to be out of the folder."""

    @property
    def key(self) -> tuple[int, int]:
        return self.device, self.inode

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
        self._salt = secrets.token_bytes(16)
        self._files: dict[tuple[int, int], _File] = {}
        self._away: dict[tuple[int, int], _File] = {}
        self._deleted: dict[str, _File] = {}
        self._absent: list[_File] = []
        self._by_name: dict[str, _File] = {}
        self._lock = threading.RLock()

    def seek(self, position: Any) -> None:
        """Go to where files were read to; every file that is there must be as it was."""
        self.close()
        self._files, self._away, self._deleted, self._absent, self._by_name = {}, {}, {}, [], {}
        if position is None:
            return
        if not isinstance(position, dict) or "follow" not in position:
            raise SourceError("the source must be the one that was read before, got followed files; mend [source]")
        self._salt = bytes.fromhex(position["salt"])
        known = [_file_of(row) for row in position["follow"]]
        self._files = {each.key: each for each in known}
        here = self._here()
        for each in known:
            if each.key not in here:
                self._seek_missing(each, here)
        for row in position["away"]:
            away = _file_of(row)
            self._away[away.key] = away
        self._deleted = {row[0]: _file_of(row) for row in position.get("deleted", [])}
        for each in list(self._files.values()):
            if each.key in here:
                self._look(each, *here[each.key])

    def _seek_missing(self, each: _File, here: dict[tuple[int, int], tuple[str, os.stat_result]]) -> None:
        """A file that is not where it was: on a device with another number, or gone."""
        del self._files[each.key]
        for (device, inode), (name, _) in here.items():
            if inode == each.inode and name == each.name and (device, inode) not in self._files:
                each.device = device
                self._files[each.key] = each
                return
        self._is_gone(each)

    def end(self) -> Any:
        """Where the whole lines of every file end now."""
        with self._lock:
            return self._end()

    def _end(self) -> list[list[int]]:
        here = self._here()
        self._absent = [each for key, each in self._files.items() if key not in here]
        self._by_name = {each.name: each for key, each in self._files.items() if each.offset and key in here}
        for key, (name, found) in here.items():
            each = self._files.get(key) or self._back(key, name, found) or self._new(key, name, found)
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
        return f"FolderFeed({str(self.folder / self._pattern)!r})"

    def _here(self) -> dict[tuple[int, int], tuple[str, os.stat_result]]:
        """The files in the folder, by device and inode: those that are meant, and those that are known."""
        found: dict[tuple[int, int], tuple[str, os.stat_result]] = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    try:
                        status = os.stat(entry.path)
                    except FileNotFoundError:
                        continue  # it went meanwhile
                    key = (status.st_dev, status.st_ino)
                    is_known = key in self._files or key in self._away
                    if stat.S_ISREG(status.st_mode) and key not in found and (is_known or self._is_meant(entry.name)):
                        found[key] = entry.name, status
        except OSError as error:
            raise SourceAwayError(f"{self.folder} must be a folder that can be read, got: {error.strerror}") from None
        if len(found) > MOST_FILES:
            raise SourceError(f"{self.folder} must hold at most {MOST_FILES} files, got more; move old ones away")
        return found

    def _is_meant(self, name: str) -> bool:
        if name.startswith((".", "_")) or (self._by_ending and Path(name).suffix.lower() not in _ENDINGS):
            return False
        return name == self._pattern or fnmatchcase(name, self._pattern)

    def _form(self, name: str) -> TextFormat:
        return self._format or ("csv" if ".csv" in name.lower() else "jsonl")

    def _new(self, key: tuple[int, int], name: str, found: os.stat_result) -> _File | None:
        if not self._is_meant(name):
            return None
        for old in [*self._away.values(), *self._deleted.values(), *self._absent]:
            if old.name == name and self._is_copy(key, name, found, old):
                raise SourceError(
                    f"{name} must be the file that was read before, or another one, got a copy of what was read: "
                    "its lines would count twice; bring the file itself back, or give the new one another name"
                )
        each = self._files[key] = _File(name, *key)
        return each

    def _is_copy(self, key: tuple[int, int], name: str, found: os.stat_result, old: _File) -> bool:
        """Whether a file holds what was read of another, or what is still to be read of one that is open."""
        lengths = {old.offset: old.tail}
        if old.descriptor is not None:
            lengths[old.end] = self._digest(old, old.end)
        fresh = _File(name, *key)
        try:
            return any(
                0 < length <= found.st_size and self._digest(fresh, length) == digest
                for length, digest in lengths.items()
            )
        finally:
            self._shut(fresh)

    def _check_copy(self, each: _File, found: os.stat_result) -> None:
        """Refuse a file that was copied from one that was read, to cut that one off next (copytruncate)."""
        for original, appended in _originals(each.name):
            old = self._by_name.get(original)
            # Whoever copies and cuts off leaves the file under its name; one that was renamed was not copied.
            if old is None or old.key == each.key or old.name != original:
                continue
            # A copy that is still being written is shorter. Beginnings are alike elsewhere too: headers.
            is_part = appended and found.st_size < old.offset and self._begin_alike(each, old, found.st_size)
            if is_part or self._is_copy(each.key, each.name, found, old):
                self._shut(each)
                del self._files[each.key]
                raise SourceError(
                    f"{each.name} must be another file than {old.name}, got a copy of what was read: its lines would "
                    "count twice; take it away, and rotate files by renaming them, not by copying and cutting them off"
                )

    def _begin_alike(self, each: _File, old: _File, length: int) -> bool:
        one, other = (self._pread(file, self._opened(file), 0, min(_TAIL, length)) for file in (each, old))
        return one == other

    def _back(self, key: tuple[int, int], name: str, found: os.stat_result) -> _File | None:
        """A file that was taken away and is back."""
        each = self._away.pop(key, None)
        if each is None:
            return None
        if self._is_another(each, name, found):
            self._forget(each)
            return None
        self._files[key] = each
        return each

    def _look(self, each: _File, name: str, found: os.stat_result) -> None:
        """See how far a file has grown."""
        looked = (found.st_size, found.st_mtime_ns)
        each.heard, each.quiet = None, 0
        if looked == each.looked and name == each.name:
            return
        if each.descriptor is None and self._is_another(each, name, found):
            # Deleted while it was not open, and its inode given to another file.
            del self._files[each.key]
            self._forget(each)
            fresh = self._new(each.key, name, found)
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
        each.looked = looked

    def _is_another(self, each: _File, name: str, found: os.stat_result) -> bool:
        """Whether the inode of a file that was not kept open is now that of another file, which is shut again."""
        known, before, each.name = each.birth, each.name, name
        now = birth_of(self._opened(each))
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
        if each.descriptor is not None:
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
        self._files.pop(each.key)
        self._is_gone(each)

    def _forget(self, each: _File) -> None:
        """Of a file that was deleted, its name and what was read of it are kept: a copy may come in its place."""
        self._shut(each)
        self._deleted.pop(each.name, None)
        self._deleted[each.name] = each
        while len(self._deleted) > MOST_AWAY:
            del self._deleted[next(iter(self._deleted))]

    def _is_gone(self, each: _File) -> None:
        self._shut(each)
        if each.rest or each.end > each.offset:
            raise self._missing(each)
        self._away[each.key] = each
        while len(self._away) > MOST_AWAY:
            del self._away[next(iter(self._away))]

    def _find_end(self, each: _File, size: int) -> None:
        """Look for the last end of a line, from the end of the file backwards."""
        descriptor, lowest, high = self._opened(each), max(each.end, each.scanned), size
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
        """Whole lines from where a file stands, a block at most; the first line of a CSV file is none of them."""
        descriptor = self._opened(each)
        block = self._pread(each, descriptor, each.offset, min(BLOCK_BYTES, stop - each.offset))
        cut = block.rfind(b"\n") + 1
        if cut:
            texts = split_lines(block[: cut - 1].removeprefix(b"" if each.offset else _BYTE_ORDER_MARK))
        else:
            cut = self._long_line(each, descriptor, len(block), stop)
            texts = pl.Series([None], dtype=pl.String)
        first, each.lines, each.offset = each.lines + 1, each.lines + len(texts), each.offset + cut
        each.tail = self._tail_of(each)  # before anything is handed over: whoever reads may not come back
        header = None
        if self._form(each.name) == "csv":
            if first == 1:
                first, texts = 2, texts[1:]
            header = self._header(each, descriptor)
        numbers = pl.int_range(first, first + len(texts), dtype=pl.Int64, eager=True)
        return Records(place=each.name, rank=each.rank, numbers=numbers, texts=texts, header=header)

    def _long_line(self, each: _File, descriptor: int, length: int, stop: int) -> int:
        """How long the line is that begins where the file stands."""
        while each.offset + length < stop:
            block = self._pread(each, descriptor, each.offset + length, min(BLOCK_BYTES, stop - each.offset - length))
            place = block.find(b"\n")
            if place >= 0:
                return length + place + 1
            length += len(block)
        return length

    def _header(self, each: _File, descriptor: int) -> str:
        if each.header is None:
            block = os.pread(descriptor, _SCAN, 0).removeprefix(_BYTE_ORDER_MARK)
            each.header = split_lines(block.partition(b"\n")[0])[0] or ""
        return each.header

    def _check_tail(self, each: _File) -> None:
        if each.offset and self._tail_of(each) != each.tail:
            raise self._rewritten(each)

    def _tail_of(self, each: _File) -> str:
        return self._digest(each, each.offset)

    def _digest(self, each: _File, end: int) -> str:
        """Of the last bytes before a place."""
        length = min(_TAIL, end)
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
                raise SourceAwayError(f"{each.name} must stay while it is looked at, got none; it is looked for again")
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
            raise SourceAwayError(f"{path} must be a file that can be read, got: {error.strerror}") from None
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) == each.key:
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
            f"{each.name} must be there until it is read to its end, got none; bring it back, under any name"
        )

    def _rewritten(self, each: _File) -> SourceError:
        return SourceError(
            f"{each.name} must only grow, got one that was cut off or rewritten since it was read; bring it back, "
            "or begin a new stream. Rotate files by renaming them, not by copying and cutting them off"
        )


def _originals(name: str) -> Iterator[tuple[str, bool]]:
    """What a file may be a rotated copy of, and whether the sign of that is at the end of its name.

    >>> list(_originals("app-1.jsonl"))
    [('app.jsonl', False), ('app', True), ('app-1', True)]
    """
    ending = Path(name).suffix
    for place, sign in enumerate(name):
        if place and not sign.isalnum():
            if name[:place] + ending != name:
                yield name[:place] + ending, False
            yield name[:place], True


def _row_of(each: _File) -> list[Any]:
    return [each.name, each.device, each.inode, each.offset, each.lines, each.tail, each.rest, each.birth]


def _file_of(row: Any) -> _File:
    try:
        name, device, inode, offset, lines, tail, rest, *birth = row
    except (TypeError, ValueError):
        raise ParameterError("a place in followed files must be one that was told before, got another") from None
    known = birth[0] if birth else None  # a place may have been told before births were
    return _File(name, device, inode, offset, lines, tail, rest, end=offset, scanned=offset, birth=known)
