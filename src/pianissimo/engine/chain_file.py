"""The file of a ratchet's chain key: two places in turn, the old one overwritten once the new one is on the disk.

A key that moves on must never be lost and never stay. The next key is written to the place that is free and synced;
only then is the place of the last one overwritten and synced. Whatever instant the process is killed at, one of the two
places is whole. Places are overwritten where they are, so that on a file system that writes in place nothing of the old
key is left. One that copies on write, keeps versions or journals data, and a solid-state disk, may keep it; nothing
here can help that.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pianissimo.engine.failpoints import reach
from pianissimo.engine.store import fault_of
from pianissimo.errors import DamageError, LeaseError, SecretError, StoreError, SyncError

RATCHET_POINTS = ("ratchet.before_write", "ratchet.write", "ratchet.sync", "ratchet.erase", "ratchet.after_erase")
"""Where a test may make something go wrong, in order."""

_MAGIC = b"pianissimo-rat-1"
_PLACE = 4096
_PLACES = 2
_TRIES = 5


@dataclass(frozen=True, slots=True, repr=False)
class Link:
    """A chain key and the period that it is of."""

    incarnation: bytes
    first: int
    """The period that the chain began with."""

    period: int
    key: bytes

    def to_bytes(self) -> bytes:
        """With a checksum."""
        content = _MAGIC + self.incarnation + self.first.to_bytes(8) + self.period.to_bytes(8) + self.key
        return content + _checksum(content)

    @classmethod
    def of(cls, content: bytes) -> "Link | None":
        """What is at a place; None if it is free, or was left half-written."""
        size = len(_MAGIC) + 64
        content, checksum = content[:size], content[size : size + 32]
        if not content.startswith(_MAGIC) or _checksum(content) != checksum:
            return None
        rest = content[len(_MAGIC) :]
        return cls(rest[:16], int.from_bytes(rest[16:24]), int.from_bytes(rest[24:32]), rest[32:64])


class ChainFile:
    """The file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = ChainFile(Path(folder, "state.ratchet"))
    ...     file.begin(Link(bytes(16), 1, 1, bytes(32)))
    ...     file.move(Link(bytes(16), 1, 2, bytes(32)))
    ...     [link.period for link in file.links()]
    [2]
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._failed = False

    def links(self) -> list[Link]:
        """What the file holds: one link, or two where a move was cut off."""
        for _ in range(_TRIES):
            found = [link for link in self._places() if link is not None]
            if found:
                return found
            # Read while its writer moved on; once more.
            time.sleep(0.01)
        raise DamageError(f"{self.path} must hold a key chain as it was written, got other bytes; restore it")

    def newest(self, links: list[Link], incarnation: bytes) -> Link:
        """The furthest link of a stream."""
        own = [link for link in links if link.incarnation == incarnation]
        if not own:
            raise SecretError(f"{self.path} must hold the key chain of this stream, got that of another")
        return max(own, key=lambda link: link.period)

    def begin(self, link: Link) -> None:
        """Put down the first link of a chain, durably, beside what is there; never over a chain that has moved."""
        with self._failing():
            if not self.path.exists():
                self._make(link)
                return
            places = self._places()
            free = [
                number
                for number, other in enumerate(places)
                if other is None or other.incarnation == link.incarnation or other.period == other.first
            ]
            if not free:
                raise SecretError(f"{self.path} must be free for a new key chain, got those of others; move it away")
            free.sort(key=lambda number: places[number] is not None)
            with self._opened() as descriptor:
                self._write(descriptor, free[0], link.to_bytes())

    def move(self, link: Link) -> None:
        """Put down the next link, and destroy all others."""
        with self._failing():
            places = self._places()
            kept = self._kept(places, link)
            if kept is not None and kept.period > link.period:
                raise LeaseError("one process may seal a stream, got another that moved its key chain on since")
            target = next((number for number, other in enumerate(places) if other is None or other != kept), 0)
            reach("ratchet.before_write")
            with self._opened() as descriptor:
                reach("ratchet.write")
                self._write(descriptor, target, link.to_bytes())
                reach("ratchet.erase")
                for number in range(_PLACES):
                    if number != target:
                        self._write(descriptor, number, b"")
            reach("ratchet.after_erase")

    def _kept(self, places: list[Link | None], link: Link) -> Link | None:
        """What must stay until the next link is on the disk: the furthest one of its chain."""
        own = [other for other in places if other is not None and other.incarnation == link.incarnation]
        return max(own, key=lambda other: other.period, default=None)

    def _places(self) -> list[Link | None]:
        try:
            status = os.lstat(self.path)
            if not stat.S_ISREG(status.st_mode):
                raise SecretError(f"a key chain must be a plain file, got a link or something else: {self.path}")
            if os.name == "posix" and status.st_mode & 0o077:
                raise SecretError(f"a key chain must be open to its owner alone, got wider rights: {self.path}")
            content = self.path.read_bytes()
        except FileNotFoundError:
            raise SecretError(
                f"there must be a key chain at {self.path}, got no such file; without it the stream cannot go on"
            ) from None
        except OSError as error:
            raise StoreError(f"{self.path} must be readable, got {error.strerror}") from None
        return [Link.of(content[number * _PLACE : (number + 1) * _PLACE]) for number in range(_PLACES)]

    def _make(self, link: Link) -> None:
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, link.to_bytes().ljust(_PLACES * _PLACE, b"\0"))
            _sync(descriptor, temporary)
        finally:
            os.close(descriptor)
        temporary.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            _sync(folder, self.path.parent)
        finally:
            os.close(folder)

    def _write(self, descriptor: int, number: int, content: bytes) -> None:
        os.pwrite(descriptor, content.ljust(_PLACE, b"\0"), number * _PLACE)
        _sync(descriptor, self.path)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        if self._failed:
            raise SyncError(f"{self.path} must not be used by a process that saw a sync fail; end it and start anew")
        try:
            yield
        except SyncError:
            self._failed = True
            raise
        except OSError as error:
            raise fault_of(error, str(self.path)) from None

    def __repr__(self) -> str:
        return f"ChainFile({str(self.path)!r})"


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32, person=b"pianissimo-chain").digest()


def _sync(descriptor: int, path: Path) -> None:
    try:
        reach("ratchet.sync")
        os.fsync(descriptor)
    except OSError as error:
        raise SyncError(f"{path} must sync, got {error.strerror}; end this process") from None
