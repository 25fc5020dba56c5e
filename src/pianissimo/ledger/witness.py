"""The last head of a ledger, in a file beside its key: a ledger that is older than it was put back from somewhere.

The chain shows what was altered, and not that the end of it is missing. Whoever loses a ledger and takes one from a
backup, or cuts off its end, would spend the same budget again. So after each charge its head is written to a second
file and synced. It is never ahead of the ledger, and a ledger that does not hold it is refused.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pianissimo.errors import LedgerError, ParameterError
from pianissimo.ledger.chain import Head
from pianissimo.ledger.keys import NO_FOLLOW, read_private, reason, write_once

try:
    import fcntl
except ImportError:  # on Windows two processes may write in any order, and the witness be a little old
    fcntl = None  # type: ignore[assignment]

_LENGTH = 19 + 1 + 64 + 1
_sync = getattr(os, "fdatasync", os.fsync)


class LocalWitness:
    """A file of one line that names the last head seen.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     witness = LocalWitness(Path(folder) / "budget.db.key.head")
    ...     before = witness.read()
    ...     witness.make(Head(0, bytes(32)))
    ...     witness.advance(Head(7, bytes(32)))
    ...     witness.advance(Head(5, bytes(32)))  # another process, a little late
    ...     before, witness.read().count
    (None, 7)
    """

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Head | None:
        """The head it names; None if there is no file."""
        with self._speaking():
            try:
                return self._parsed(read_private(self.path, 2 * _LENGTH))
            except FileNotFoundError:
                return None

    def make(self, head: Head) -> None:
        """Begin with a head, in the file's first moment."""
        with self._speaking():
            if not write_once(self.path, _line(head)):
                raise LedgerError(
                    f"{self.path} must belong to the ledger beside it, got that of an earlier one; put that ledger "
                    "back, or, to begin a new budget, move this file away"
                )

    def advance(self, head: Head) -> None:
        """Name this head from now on, on disk, unless a later one is named."""
        with self._speaking():
            file = os.open(self.path, os.O_RDWR | NO_FOLLOW | getattr(os, "O_CLOEXEC", 0))
            try:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX)
                if self._parsed(os.read(file, 2 * _LENGTH)).count < head.count:
                    # One line of one length, so that a crash leaves the old one or the new one.
                    os.lseek(file, 0, os.SEEK_SET)
                    os.write(file, _line(head))
                    _sync(file)
            finally:
                os.close(file)

    def _parsed(self, content: bytes) -> Head:
        try:
            if len(content) == _LENGTH:
                return Head.parse(content.decode("ascii").strip())
        except (ParameterError, UnicodeDecodeError):
            pass
        raise LedgerError(
            f"{self.path} must name the last head of the ledger, got something else; look at the ledger, move this "
            "file away, and give the witness that `pianissimo budget` shows"
        )

    @contextlib.contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LedgerError(f"{self.path} must be a file of one's own, got {reason(error)}") from None


def _line(head: Head) -> bytes:
    return f"{head.count:019}:{head.digest.hex()}\n".encode("ascii")
