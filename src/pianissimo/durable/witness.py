"""An append-only file outside the store that knows how far the stream has come.

A store that was rolled back (a restored backup, a lost tail) looks whole to itself. The witness tells: it has seen a
later tick. It is written when a life of the stream begins, and then after each release is stored and before anybody
sees it. A store that is ahead of its witness is safe; one that is behind stops.

Several processes may come to the file: one that was overtaken, a clone of the store, somebody who looks. Whoever writes
holds a lock of the operating system on it and adds at its end, and only where the file is still as this process has
seen or left it: the same file (device and inode), in which the line that it knows as the last one is the last one. So
of two processes that go on from one line, one adds the next, and the other is refused before anything of its tick is
shown. A file that is gone, that another one has replaced, be it to shorten it, or that lacks the line is refused too:
what was written there meanwhile nobody knows. Its size tells nothing, since a shortened file grows again.
"""

import base64
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgpack

from pianissimo.durable.failpoints import reach
from pianissimo.durable.keys import KeyRing
from pianissimo.errors import DamageError, RollbackError, SecretError, StoreError, SyncError
from pianissimo.storage import files as file_lock
from pianissimo.storage.files import fault_of, wait_for_lock

_MAGIC = "pianissimo-witness-1"
_LONGEST = 1 << 20
"""A longer file is cut to its second half when a stream is started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """What the witness says: this tick of this incarnation was released, with these positions and digests."""

    incarnation: bytes
    tick: int
    positions: bytes
    mac: bytes
    """Of the seal."""

    ledger_head: str
    ledger_spent: str = ""
    """The units that were spent there by then: what must be booked again if the ledger is rolled back."""

    ledger_cap: str = ""
    """The units that may be spent there in all: what a ledger in the place of a lost one gets."""

    config_digest: bytes = b""
    """Of the stream: whether what was charged covers a life that begins where the store is lost."""


@dataclass(frozen=True, slots=True, repr=False)
class _Seen:
    """The file as this process knows it: which one it is, its last whole line and where that ends."""

    device: int
    inode: int
    line: bytes
    end: int


class Witness:
    """The file.

    >>> import tempfile
    >>> from pianissimo.durable.keys import ring_of
    >>> from pianissimo.noise import Secret
    >>> ring = ring_of(Secret(bytes(32)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     witness = Witness(Path(folder, "state.witness"))
    ...     witness.append(Testimony(incarnation=bytes(16), tick=7, positions=b"", mac=b"", ledger_head=""), ring)
    ...     witness.last(ring).tick
    7
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_known = False
        self._seen: _Seen | None = None
        """None where there was no line when this process looked first."""

        self._tried = b""
        """The line that was written last, whether or not all of it came to the disk."""

    def exists(self) -> bool:
        """Whether there is one."""
        return self.path.exists()

    def head(self) -> tuple[bytes, int] | None:
        """The incarnation and the tick of the furthest line, which need no key to be read; None if there is no line."""
        line = self._furthest_line()
        if line is None:
            return None
        incarnation, tick, _, _ = _parse(line)
        return incarnation, tick

    def last(self, ring: KeyRing) -> Testimony | None:
        """What the furthest line says; None if there is none. A line that is not as it was written is refused."""
        line = self._furthest_line()
        if line is None:
            return None
        return _opened(line, ring)

    def lines(self, ring: KeyRing) -> list[Testimony]:
        """All that it says, the newest first, as far as the file was not cut and these secrets open it."""
        found = []
        for line in reversed(_whole_lines(self._content())):
            try:
                found.append(_opened(line, ring))
            except (SecretError, DamageError):
                continue  # of a life whose secrets are not at hand
        return found

    def append(self, testimony: Testimony, ring: KeyRing, *, new_life: bool = False) -> None:
        """Write one line and sync it; with `new_life`, that of an incarnation which follows all that was seen."""
        content = {name: getattr(testimony, name) for name in _CLOSED}
        # Under the newest secret, so that whoever has lost the store can read it with that alone.
        closed = ring.newest.closed(msgpack.packb(content), "witness", testimony.incarnation, testimony.tick)
        words = (_MAGIC, testimony.incarnation.hex(), str(testimony.tick), ring.newest.id.hex())
        line = f"{' '.join(words)} {base64.b64encode(closed).decode()}\n".encode()
        try:
            reach("witness.before_append")
            new = not self.path.exists()
            with self._locked(create=self._seen is None) as descriptor:
                if self._is_known:
                    self._check_as_seen(descriptor)
                elif not new_life:
                    self._check_new(testimony, ring)
                self._append(descriptor, line)
            if new:
                _sync_folder(self.path.parent)
        except FileNotFoundError:
            raise (_vanished() if self._seen is not None else self._unwritable()) from None
        except OSError as error:
            raise fault_of(error, str(self.path)) from None
        reach("witness.after_sync")

    def check(self) -> None:
        """Refuse to go on where the file is not as this process has left it; before anybody sees a tick."""
        if self._seen is None:
            return
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _vanished() from None
        except OSError as error:
            raise fault_of(error, str(self.path)) from None
        try:
            self._check_as_seen(descriptor)
        except OSError as error:
            raise fault_of(error, str(self.path)) from None
        finally:
            os.close(descriptor)

    def _unwritable(self) -> StoreError:
        return StoreError(f"{self.path} must be in a folder that is there, got none")

    @contextmanager
    def _locked(self, *, create: bool = False) -> Iterator[int]:
        """The file, to be written at its end by nobody else meanwhile."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        deadline = time.monotonic() + file_lock.PATIENCE
        while True:
            descriptor = os.open(self.path, flags, 0o600)
            try:
                wait_for_lock(descriptor, self.path, deadline)
                # Whoever shortened it while this one waited has put another file in its place.
                if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

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

    def _check_new(self, testimony: Testimony, ring: KeyRing) -> None:
        """For who has not looked before: stop where the file has seen this tick, or a later one, otherwise."""
        head = self.head()
        if head is None or head[1] < testimony.tick:
            return
        try:
            seen = self.last(ring)
        except (DamageError, SecretError):
            seen = None
        names = ("incarnation", "tick", "mac")
        if seen is None or any(getattr(seen, name) != getattr(testimony, name) for name in names):
            raise _overtaken(f"one that has seen tick {head[1]} of another")

    def _append(self, descriptor: int, line: bytes) -> None:
        if self._is_known:
            end = 0 if self._seen is None else self._seen.end
        else:
            end = os.pread(descriptor, os.fstat(descriptor).st_size, 0).rfind(b"\n") + 1
        # What a write that failed left behind goes; nobody else writes now.
        os.ftruncate(descriptor, end)
        self._tried = line
        reach("witness.append")
        written = 0
        while written < len(line):
            written += os.write(descriptor, line[written:])
        _sync(descriptor, self.path)
        self._know(os.fstat(descriptor), line, end + len(line))

    def _know(self, status: os.stat_result, line: bytes, end: int) -> None:
        self._is_known, self._tried = True, b""
        self._seen = _Seen(status.st_dev, status.st_ino, line, end) if line else None

    def shorten(self) -> None:
        """Keep the second half of a long file, and the furthest line; for the process that seals."""
        try:
            if not self.exists() or self.path.stat().st_size <= _LONGEST:
                return
            with self._locked() as descriptor:
                if self._is_known:
                    self._check_as_seen(descriptor)
                self._shorten()
        except FileNotFoundError:
            raise _vanished() from None
        except OSError as error:
            raise fault_of(error, str(self.path)) from None

    def _shorten(self) -> None:
        lines = _whole_lines(self._content())
        furthest = _furthest(lines)
        if furthest is None:
            return
        kept = lines[len(lines) // 2 :]
        if furthest not in kept:
            kept.insert(0, furthest)
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            content = b"".join(line + b"\n" for line in kept)
            written = 0
            while written < len(content):
                written += os.write(descriptor, content[written:])
            _sync(descriptor, temporary)
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(self.path)
        self._know(status, kept[-1] + b"\n", len(content))
        _sync_folder(self.path.parent)

    def _furthest_line(self) -> bytes | None:
        """The whole line of the highest tick: a process that was overtaken may have added an older one after it.

        What comes after the last end of a line was never finished, so nothing was shown after it. A new incarnation
        begins after the ticks of the one before, so that the highest tick is always that of the newest.
        """
        return _furthest(_whole_lines(self._content()))

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


_CLOSED = ("positions", "mac", "ledger_head", "ledger_spent", "ledger_cap", "config_digest")


def _whole_lines(content: bytes) -> list[bytes]:
    return content[: content.rfind(b"\n") + 1].splitlines()


def _furthest(lines: list[bytes]) -> bytes | None:
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
        "the witness must hold lines as they were written, got another; "
        "if the store is known to be the newest, move the witness away and start again"
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


def _sync(descriptor: int, path: Path) -> None:
    try:
        reach("witness.sync")
        os.fsync(descriptor)
    except OSError as error:
        raise SyncError(f"{path} must sync, got {error.strerror}; end this process") from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncError(f"{folder} must sync, got {error.strerror}; end this process") from None
    finally:
        os.close(descriptor)
