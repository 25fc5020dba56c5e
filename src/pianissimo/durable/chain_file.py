"""The file of a ratchet's chain key: the next key at a free place, the old one overwritten once that is on the disk.

A key that moves on must never be lost and never stay. The next key is written to a place that is free and synced; only
then are the places of the last ones overwritten and synced. Whatever instant the process is killed at, one of the
places is whole. Places are overwritten where they are, so that on a file system that writes in place nothing of the old
key is left. One that copies on write, keeps versions or journals data, and a solid-state disk, may keep it; nothing
here can help that.

What is overwritten is what is known to be of no more use, and nothing else. The first link of a new life is put where
nothing is, at the end if need be: the one of the life before is needed until the new life is told to its witness, and
both until it has shown its first tick. All lives of a stream are of one family, which a link names, those that a crash
kept out of the store too; a move destroys the other links of its family. Links of other families are another stream's,
which was given the same file, or what a crash left of a first creation, and open nothing: they stay.
"""

import hashlib
import os
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pianissimo.durable.failpoints import reach
from pianissimo.durable.store import fault_of
from pianissimo.errors import DamageError, LeaseError, SecretError, StoreError, SyncError
from pianissimo.storage import files as file_lock
from pianissimo.storage.files import wait_for_lock

RATCHET_POINTS = ("ratchet.before_write", "ratchet.write", "ratchet.sync", "ratchet.erase", "ratchet.after_erase")
"""Where a test may make something go wrong, in order."""

_MAGIC = b"pianissimo-rat-2"
_PLACE = 4096
_TRIES = 5


@dataclass(frozen=True, slots=True, repr=False)
class Link:
    """A chain key and the period that it is of."""

    incarnation: bytes
    first: int
    """The period that the chain began with."""

    period: int
    key: bytes
    family: bytes = b""
    """What all lives of one stream share; the incarnation of the first of them, unless it is given."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", self.family or self.incarnation)

    def to_bytes(self) -> bytes:
        """With a checksum."""
        numbers = self.first.to_bytes(8) + self.period.to_bytes(8)
        content = _MAGIC + self.incarnation + numbers + self.key + self.family
        return content + _checksum(content)

    @classmethod
    def of(cls, content: bytes) -> "Link | None":
        """What is at a place; None if it is free, or was left half-written."""
        size = len(_MAGIC) + 80
        content, checksum = content[:size], content[size : size + 32]
        if not content.startswith(_MAGIC) or _checksum(content) != checksum:
            return None
        rest = content[len(_MAGIC) :]
        return cls(rest[:16], int.from_bytes(rest[16:24]), int.from_bytes(rest[24:32]), rest[32:64], rest[64:80])


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
        """What the file holds: one link of a stream, or several where a move or a beginning was cut off."""
        before: list[bytes] | None = None
        for _ in range(_TRIES):
            contents = self._contents()
            found = [link for link in map(Link.of, contents) if link is not None]
            if found and contents == before:
                return found
            # It may have been read while its writer moved on; once more.
            time.sleep(0 if before is None else 0.01)
            before = contents
        if found:
            return found
        raise DamageError(f"{self.path} must hold a key chain as it was written, got other bytes; restore it")

    def newest(self, links: list[Link], incarnation: bytes) -> Link:
        """The furthest link of a stream."""
        own = [link for link in links if link.incarnation == incarnation]
        if not own:
            raise SecretError(
                f"{self.path} must hold the key chain of this stream, got that of another; bring its own file back, or "
                "say where it is with --ratchet"
            )
        return max(own, key=lambda link: link.period)

    def begin(self, link: Link, *, lives: Collection[bytes] = ()) -> None:
        """Put down the first link of a chain, durably, beside what is there; `lives` are all that its stream has had.

        Refused where the file holds the moving key of another stream.
        """
        with self._failing(), self._opened(create=True) as descriptor:
            contents = self._contents()
            if any(map(_is_strange, contents)):
                raise SecretError(
                    f"{self.path} must be a file for key chains alone, got something else in it; name another file"
                )
            places = [*map(Link.of, contents)]
            own = [each for each in places if each is not None and each.incarnation in {*lives, link.incarnation}]
            link = replace(link, family=own[0].family if own else link.family)
            families = {link.family, *(each.family for each in own)}
            # One that has not moved may be what a crash left of a creation; it is in nobody's way.
            if any(each is not None and each.family not in families and each.period > each.first for each in places):
                raise SecretError(
                    f"{self.path} must be free for the key chain of a new stream, got that of another, which it would "
                    "not outlive; name another file with --ratchet, or, if that stream is gone for good, move it away"
                )
            target = next(iter(_superseded(places)), _free(places))
            self._write(descriptor, target, link.to_bytes())
            self._sync_folder()

    def move(self, link: Link) -> None:
        """Put down the next link, and destroy all others of its stream."""
        with self._failing(), self._opened() as descriptor:
            contents = self._contents()
            places = [*map(Link.of, contents)]
            # What was left half-written may be a key too; nobody can use it.
            useless = {number for number, content in enumerate(contents) if places[number] is None and any(content)}
            own = {number for number, each in enumerate(places) if each is not None and each.family == link.family}
            chain = [number for number in own if _of(places, number).incarnation == link.incarnation]
            # What must stay until the next link is on the disk: the furthest one of its chain.
            kept = max(chain, key=lambda number: _of(places, number).period, default=None)
            if kept is not None and _of(places, kept).period > link.period:
                raise LeaseError("one process may seal a stream, got another that moved its key chain on since")
            target = min(own - {kept}, default=_free(places))
            reach("ratchet.before_write")
            reach("ratchet.write")
            self._write(descriptor, target, link.to_bytes())
            reach("ratchet.erase")
            for number in sorted((own | useless) - {target}):
                self._write(descriptor, number, b"")
        reach("ratchet.after_erase")

    def _contents(self) -> list[bytes]:
        """What is at each place."""
        self._check_file()
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise StoreError(f"{self.path} must be readable, got {error.strerror}") from None
        return [content[start : start + _PLACE] for start in range(0, len(content), _PLACE)]

    def _check_file(self) -> None:
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            raise SecretError(
                f"there must be a key chain at {self.path}, got no such file; without it the stream cannot go on: say "
                "where it is with --ratchet"
            ) from None
        except OSError as error:
            raise StoreError(f"{self.path} must be readable, got {error.strerror}") from None
        if not stat.S_ISREG(status.st_mode):
            raise SecretError(f"a key chain must be a plain file, got a link or something else: {self.path}")
        if os.name == "posix" and status.st_mode & 0o077:
            raise SecretError(f"a key chain must be open to its owner alone, got wider rights: {self.path}")

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            _sync(folder, self.path.parent)
        finally:
            os.close(folder)

    def _write(self, descriptor: int, number: int, content: bytes) -> None:
        os.pwrite(descriptor, content.ljust(_PLACE, b"\0"), number * _PLACE)
        _sync(descriptor, self.path)

    @contextmanager
    def _opened(self, *, create: bool = False) -> Iterator[int]:
        """The file, to be written by nobody else meanwhile: two streams may have been given one."""
        if not create or os.path.lexists(self.path):
            self._check_file()
        flags = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | (os.O_CREAT if create else 0)
        descriptor = os.open(self.path, flags, 0o600)
        try:
            wait_for_lock(descriptor, self.path, time.monotonic() + file_lock.PATIENCE)
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


def _of(places: list[Link | None], number: int) -> Link:
    link = places[number]
    assert link is not None  # noqa: S101
    return link


def _free(places: list[Link | None]) -> int:
    """A place where nothing is, or the next after the last."""
    return next((number for number, link in enumerate(places) if link is None), len(places))


def _superseded(places: list[Link | None]) -> Iterator[int]:
    """Where a link is that a later one of the same chain follows: what a move that was cut off did not destroy."""
    for number, link in enumerate(places):
        for other in places:
            if link and other and other.incarnation == link.incarnation and other.period > link.period:
                yield number
                break


def _is_strange(content: bytes) -> bool:
    """Whether something is at a place that never was a link, not even a half-written one."""
    return any(byte not in (0, magic) for byte, magic in zip(content, _MAGIC, strict=False))


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=32, person=b"pianissimo-chain").digest()


def _sync(descriptor: int, path: Path) -> None:
    try:
        reach("ratchet.sync")
        os.fsync(descriptor)
    except OSError as error:
        raise SyncError(f"{path} must sync, got {error.strerror}; end this process") from None
