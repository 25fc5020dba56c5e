"""An append-only file outside the store that knows how far the stream has come.

A store that was rolled back (a restored backup, a lost tail) looks whole to itself. The witness tells: it has seen a
later tick. It is written after a release is stored and before anybody sees it. A store that is ahead of its witness is
safe; one that is behind stops.
"""

import base64
import os
from dataclasses import dataclass
from pathlib import Path

import msgpack

from pianissimo.engine.failpoints import reach
from pianissimo.engine.keys import KeyRing
from pianissimo.engine.store import fault_of
from pianissimo.errors import DamageError, RollbackError, StoreError, SyncError

_MAGIC = "pianissimo-witness-1"
_LONGEST = 1 << 20
"""A longer file is cut to its furthest line when it is opened."""


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
        incarnation, tick, key_id, closed = _parse(line)
        content = msgpack.unpackb(ring.named(key_id).opened(closed, "witness", incarnation, tick))
        return Testimony(incarnation=incarnation, tick=tick, **content)

    def append(self, testimony: Testimony, ring: KeyRing, *, new_life: bool = False) -> None:
        """Write one line and sync it; with `new_life`, that of an incarnation which follows all that was seen."""
        content = {
            "positions": testimony.positions,
            "mac": testimony.mac,
            "ledger_head": testimony.ledger_head,
            "ledger_spent": testimony.ledger_spent,
        }
        # Under the newest secret, so that whoever has lost the store can read it with that alone.
        closed = ring.newest.closed(msgpack.packb(content), "witness", testimony.incarnation, testimony.tick)
        words = (_MAGIC, testimony.incarnation.hex(), str(testimony.tick), ring.newest.id.hex())
        line = f"{' '.join(words)} {base64.b64encode(closed).decode()}\n".encode()
        if not new_life:
            self._check_alone(testimony, ring)
        try:
            reach("witness.before_append")
            new = not self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._append(descriptor, line)
            finally:
                os.close(descriptor)
            if new:
                _sync_folder(self.path.parent)
        except OSError as error:
            raise fault_of(error, str(self.path)) from None
        reach("witness.after_sync")

    def _check_alone(self, testimony: Testimony, ring: KeyRing) -> None:
        """Stop where somebody else has written: a clone of the store and its secret, or whoever took over."""
        if self._whole is not None and self.path.exists() and self.path.stat().st_size == self._whole:
            return
        head = self.head()
        if head is None or head[1] < testimony.tick:
            return
        try:
            seen = self.last(ring)
        except DamageError:
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
        end = self._end_of_lines(descriptor)
        # What a write that failed half-way left behind goes.
        os.ftruncate(descriptor, end)
        os.lseek(descriptor, end, os.SEEK_SET)
        reach("witness.append")
        written = 0
        while written < len(line):
            written += os.write(descriptor, line[written:])
        _sync(descriptor, self.path)
        self._whole = end + len(line)

    def _end_of_lines(self, descriptor: int) -> int:
        size = os.fstat(descriptor).st_size
        if self._whole == size:
            return size
        content = os.pread(descriptor, size, 0)
        return content.rfind(b"\n") + 1

    def shorten(self) -> None:
        """Keep the furthest line alone of a long file."""
        try:
            if not self.exists() or self.path.stat().st_size <= _LONGEST:
                return
            line = self._furthest_line()
            if line is None:
                return
            temporary = self.path.with_name(f".{self.path.name}.tmp")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, line + b"\n")
                _sync(descriptor, temporary)
            finally:
                os.close(descriptor)
            temporary.replace(self.path)
            _sync_folder(self.path.parent)
            self._whole = None
        except OSError as error:
            raise fault_of(error, str(self.path)) from None

    def _furthest_line(self) -> bytes | None:
        """The whole line of the highest tick: a process that was overtaken may have added an older one after it.

        What comes after the last end of a line was never finished, so nothing was shown after it. A new incarnation
        begins after the ticks of the one before, so that the highest tick is always that of the newest.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.path} must be readable, got {error.strerror}") from None
        lines = content[: content.rfind(b"\n") + 1].splitlines()
        return max(reversed(lines), key=lambda line: _parse(line)[1]) if lines else None


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
