"""An append-only file outside the store that knows how far the stream has come.

A store that was rolled back (a restored backup, a lost tail) looks whole to itself. The witness tells: it has seen a
later tick. It is written when a life of the stream begins, and then after each release is stored and before anybody
sees it. A store that is ahead of its witness is safe; one that is behind stops.

Several processes may come to the file: one that was overtaken, a clone of the store, somebody who looks. Whoever writes
holds a lock of the operating system on it, looks again at what it says once the lock is held, and adds at its end.
"""

import base64
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgpack

from pianissimo.engine.failpoints import reach
from pianissimo.engine.keys import KeyRing
from pianissimo.engine.store import fault_of
from pianissimo.errors import DamageError, LeaseError, RollbackError, SecretError, StoreError, SyncError

try:
    import fcntl
except ImportError:  # not on Windows: there the lease's epoch alone keeps two writers apart
    fcntl = None  # type: ignore[assignment]

_MAGIC = "pianissimo-witness-1"
_LONGEST = 1 << 20
"""A longer file is cut to its second half when a stream is started."""

_PATIENCE = 5.0
"""How many seconds another process may hold the file: a line takes milliseconds."""


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


class Witness:
    """The file.

    >>> import tempfile
    >>> from pianissimo.engine.keys import ring_of
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
        self._whole: int | None = None

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
            with self._locked(create=True) as descriptor:
                if not new_life:
                    self._check_alone(testimony, ring, os.fstat(descriptor).st_size)
                self._append(descriptor, line)
            if new:
                _sync_folder(self.path.parent)
        except OSError as error:
            raise fault_of(error, str(self.path)) from None
        reach("witness.after_sync")

    @contextmanager
    def _locked(self, *, create: bool = False) -> Iterator[int]:
        """The file, to be written at its end by nobody else meanwhile."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        deadline = time.monotonic() + _PATIENCE
        while True:
            descriptor = os.open(self.path, flags, 0o600)
            try:
                self._wait(descriptor, deadline)
                # Whoever shortened it while this one waited has put another file in its place.
                if os.path.samestat(os.fstat(descriptor), self.path.stat()):
                    yield descriptor
                    return
            finally:
                os.close(descriptor)

    def _wait(self, descriptor: int, deadline: float) -> None:
        while fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LeaseError(
                        f"{self.path} must be written by one process at a time, got another that holds it and hangs; "
                        "end that one"
                    ) from None
                time.sleep(0.01)
            else:
                return

    def _check_alone(self, testimony: Testimony, ring: KeyRing, size: int) -> None:
        """Stop where somebody else has written: a clone of the store and its secret, or whoever took over."""
        if self._whole == size:
            return
        head = self.head()
        if head is None:
            return
        # Where this process wrote before, the furthest line was of its own life.
        is_other = self._whole is not None and head[0] != testimony.incarnation
        if head[1] < testimony.tick and not is_other:
            return
        try:
            seen = self.last(ring)
        except (DamageError, SecretError):
            seen = None
        if seen is None or (seen.incarnation, seen.tick, seen.mac) != (
            testimony.incarnation,
            testimony.tick,
            testimony.mac,
        ):
            raise RollbackError(
                f"tick {testimony.tick} must be new to its witness, got one that has seen tick {head[1]} of another: "
                "this stream runs twice, or its store was copied; nothing of this tick was shown. Stop one of them"
            )

    def _append(self, descriptor: int, line: bytes) -> None:
        size = os.fstat(descriptor).st_size
        end = size if self._whole == size else os.pread(descriptor, size, 0).rfind(b"\n") + 1
        # What a write that failed half-way left behind goes; nobody else writes now.
        os.ftruncate(descriptor, end)
        reach("witness.append")
        written = 0
        while written < len(line):
            written += os.write(descriptor, line[written:])
        _sync(descriptor, self.path)
        self._whole = end + len(line)

    def shorten(self) -> None:
        """Keep the second half of a long file, and the furthest line; for the process that seals."""
        try:
            if not self.exists() or self.path.stat().st_size <= _LONGEST:
                return
            with self._locked():
                self._shorten()
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
        finally:
            os.close(descriptor)
        temporary.replace(self.path)
        _sync_folder(self.path.parent)
        self._whole = None

    def _furthest_line(self) -> bytes | None:
        """The whole line of the highest tick: a process that was overtaken may have added an older one after it.

        What comes after the last end of a line was never finished, so nothing was shown after it. A new incarnation
        begins after the ticks of the one before, so that the highest tick is always that of the newest.
        """
        return _furthest(_whole_lines(self._content()))

    def _content(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise StoreError(f"{self.path} must be readable, got {error.strerror}") from None


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
