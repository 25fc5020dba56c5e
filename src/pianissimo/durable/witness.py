"""An append-only file outside the store that knows how far the stream has come.

A store that was rolled back (a restored backup, a lost tail) looks whole to itself. The witness tells: it has seen a
later tick. It is written before a life of the stream is in its store, and then after each release is stored and before
anybody sees it. A store that is ahead of its witness is safe; one that is behind stops.

Several processes may come to the file: one that was overtaken, a clone of the store, somebody who looks. Whoever writes
holds a lock of the operating system on it and adds at its end, and only where the file is still as this process has
seen or left it: the same file (device and inode), in which the line that it knows as the last one is the last one. So
of two processes that go on from one line, one adds the next, and the other is refused before anything of its tick is
shown. A file that is gone, that another one has replaced, be it to shorten it, or that lacks the line is refused too:
what was written there meanwhile nobody knows. Its size tells nothing, since a shortened file grows again.
"""

import base64
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgpack

from pianissimo.durable.failpoints import reach
from pianissimo.durable.key_ring import KeyRing
from pianissimo.errors import DamageError, RollbackError, SecretError, StoreError
from pianissimo.storage.files import (
    OWNER_ALONE,
    FailedSyncError,
    fault_of,
    locked,
    opened,
    sync,
    sync_folder,
    write_all,
    write_whole,
)

_MAGIC = "pianissimo-witness-2"
_LONGEST = 1 << 20
"""A longer file is cut to its second half by the process that writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """What the witness says: this tick of this incarnation was released, with these positions and digests."""

    incarnation: bytes
    tick: int
    positions: bytes = field(repr=False)
    mac: bytes = b""
    """Of the seal; empty where a life begins."""

    begins: bytes = b""
    """Where a life begins, the name of its intention."""

    since: int = 0
    """Where a life begins, the tick after which its totals count: its positions are those of that tick."""


@dataclass(frozen=True, slots=True, repr=False)
class _Seen:
    """The file as this process knows it: which one it is, its last whole line and where that ends."""

    device: int
    inode: int
    line: bytes
    end: int


class Witness:
    """The file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = threading.RLock()
        """A tick may be written down while another thread publishes those before."""

        self._is_known = False
        self._seen: _Seen | None = None
        """None where there was no line when this process looked first."""

        self._tried = b""
        """The line that was written last, whether or not all of it came to the disk."""

    def head(self) -> tuple[bytes, int] | None:
        """The incarnation and the tick of the furthest line, which need no key to be read; None if there is no line."""
        line = _furthest(_whole_lines(self._content()))
        return None if line is None else _parse(line)[:2]

    def heard_anew(self) -> tuple[bytes, int] | None:
        """`head`, and go on from what is there now: for who takes over from a process that may have written since."""
        self._is_known, self._seen, self._tried = False, None, b""
        return self.head()

    def last(self, ring: KeyRing) -> Testimony | None:
        """What the furthest line says; None if there is none. A line that is not as it was written is refused."""
        line = _furthest(_whole_lines(self._content()))
        return None if line is None else _opened(line, ring)

    def lines(self, ring: KeyRing) -> list[Testimony]:
        """All that it says, the newest first, as far as the file was not cut and these secrets open it."""
        found = []
        for line in reversed(_whole_lines(self._content())):
            try:
                found.append(_opened(line, ring))
            except (SecretError, DamageError):
                continue  # of a life whose secrets are not at hand
        return found

    def append(self, testimonies: Sequence[Testimony], ring: KeyRing, *, kept: int | None = None) -> None:
        """Write a line each and sync them at once, where the file is as this process knows it.

        `kept` is a tick of the same life whose line is needed to read the last: it stays when the file is shortened.
        """
        with self._turn:
            self._add([_line(each, ring) for each in testimonies], (testimonies[-1].incarnation, kept))

    def _add(self, lines: list[bytes], kept: tuple[bytes, int | None]) -> None:
        if not self._is_known:
            self._content()
        try:
            reach("witness.before_append")
            is_new = self._seen is None
            with locked(self.path, create=is_new) as descriptor:
                self._check_as_seen(descriptor)
                self._append(descriptor, lines, kept)
            if is_new:
                sync_folder(self.path.parent)
        except FileNotFoundError:
            raise (
                StoreError(f"{self.path} must be in a folder that is there, got none") if is_new else _vanished()
            ) from None
        except OSError as error:
            raise fault_of(error, self.path) from None
        reach("witness.after_sync")

    def check(self) -> None:
        """Refuse to go on where the file is not as this process has left it; before anybody sees a tick."""
        if self._seen is None:
            return
        try:
            with self._turn, opened(self.path, os.O_RDONLY) as descriptor:
                self._check_as_seen(descriptor)
        except FileNotFoundError:
            raise _vanished() from None
        except OSError as error:
            raise fault_of(error, self.path) from None

    def _check_as_seen(self, descriptor: int) -> None:
        """Stop where another file is in this one's place, or somebody else has written."""
        seen, status = self._seen, os.fstat(descriptor)
        start = 0 if seen is None else seen.end - len(seen.line)
        found = os.pread(descriptor, max(0, status.st_size - start), start)
        if seen is not None:
            if (status.st_dev, status.st_ino) != (seen.device, seen.inode):
                raise _overtaken("another file in its place")
            if not found.startswith(seen.line):
                raise _overtaken("one that lacks it")
            found = found[len(seen.line) :]
        # What a write of one's own left behind that failed, half-way or before it was known to be on the disk.
        if not self._tried.startswith(found):
            raise _overtaken("lines of another after it")

    def _append(self, descriptor: int, lines: list[bytes], kept: tuple[bytes, int | None]) -> None:
        content = b"".join(lines)
        end = 0 if self._seen is None else self._seen.end
        # What a write that failed left behind goes; nobody else writes now.
        os.ftruncate(descriptor, end)
        self._tried = content
        reach("witness.append")
        write_all(descriptor, content)
        try:
            reach("witness.sync")
        except OSError as error:
            raise FailedSyncError(error.errno, error.strerror) from None
        sync(descriptor)
        self._know(os.fstat(descriptor), lines[-1], end + len(content))
        if end + len(content) > _LONGEST:
            self._shorten(kept)

    def _know(self, status: os.stat_result, line: bytes, end: int) -> None:
        self._is_known, self._tried = True, b""
        self._seen = _Seen(status.st_dev, status.st_ino, line, end) if line else None

    def _shorten(self, needed: tuple[bytes, int | None]) -> None:
        """Keep the last lines, about half of the bytes, the furthest, and those of the tick that is needed."""
        lines, size = _whole_lines(self._content()), 0
        furthest, kept = _furthest(lines), list[bytes]()
        for line in reversed(lines):
            size += len(line)
            if size <= _LONGEST // 2 or line == furthest or not kept or _parse(line)[:2] == needed:
                kept.insert(0, line)
        content = b"".join(line + b"\n" for line in kept)
        self._know(write_whole(self.path, content, OWNER_ALONE), kept[-1] + b"\n", len(content))

    def _content(self) -> bytes:
        """All of it; what it says when this process looks for the first time is what it must go on from."""
        try:
            with self.path.open("rb") as file:
                content, status = file.read(), os.fstat(file.fileno())
        except FileNotFoundError:
            self._is_known = True
            return b""
        except OSError as error:
            raise StoreError(f"{self.path} must be readable, got {error.strerror}") from None
        if not self._is_known:
            end = content.rfind(b"\n") + 1
            self._know(status, content[content.rfind(b"\n", 0, max(0, end - 1)) + 1 : end], end)
            self._tried = content[end:]
        return content


_CLOSED = ("positions", "mac", "begins", "since")


def _line(testimony: Testimony, ring: KeyRing) -> bytes:
    content = {name: getattr(testimony, name) for name in _CLOSED}
    # Under the newest secret, so that whoever has lost the store can read it with that alone.
    closed = ring.newest.closed(msgpack.packb(content), "witness", testimony.incarnation, testimony.tick)
    words = (_MAGIC, testimony.incarnation.hex(), str(testimony.tick), ring.newest.id.hex())
    return f"{' '.join(words)} {base64.b64encode(closed).decode()}\n".encode()


def _whole_lines(content: bytes) -> list[bytes]:
    """What comes after the last end of a line was never finished, so nothing was shown after it."""
    return content[: content.rfind(b"\n") + 1].splitlines()


def _furthest(lines: list[bytes]) -> bytes | None:
    """The line of the highest tick: a process that was overtaken may have added an older one after it.

    A new life begins after the ticks of the one before, so that the last line of the highest tick is the newest's.
    """
    return max(reversed(lines), key=lambda line: _parse(line)[1]) if lines else None


def _opened(line: bytes, ring: KeyRing) -> Testimony:
    incarnation, tick, key_id, closed = _parse(line)
    content = msgpack.unpackb(ring.named(key_id).opened(closed, "witness", incarnation, tick))
    return Testimony(incarnation=incarnation, tick=tick, **content)


def _parse(line: bytes) -> tuple[bytes, int, bytes, bytes]:
    try:
        magic, incarnation, tick, key_id, closed = line.decode("ascii").split(" ")
        found = bytes.fromhex(incarnation), int(tick), bytes.fromhex(key_id), base64.b64decode(closed, validate=True)
    except ValueError:
        raise _damaged_line() from None
    if magic != _MAGIC:
        raise _damaged_line()
    return found


def _damaged_line() -> DamageError:
    return DamageError(
        "the witness must hold lines as they were written, got another: the file is damaged, and what was shown cannot "
        "be told from it. Bring back what was written; if that is gone for good, move the file away and begin a new "
        "life, which is charged anew, with: pianissimo recover DIR --accept-lost-witness"
    )


def _overtaken(got: str) -> RollbackError:
    return RollbackError(
        f"the witness must end with the line that this process knows as its last, got {got}: this stream runs twice, "
        "was taken over, or its store was copied; nothing of this tick was shown. Stop one of them, and start again"
    )


def _vanished() -> RollbackError:
    return RollbackError(
        "the witness must stay where it is while its stream runs, got no file there: what others have shown meanwhile "
        "nobody knows; nothing of this tick was shown. Bring the file back, and start again"
    )
