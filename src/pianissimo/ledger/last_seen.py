"""The last head of a ledger, in a file beside its key: a ledger that is older than it was put back from somewhere.

The chain shows what was altered, and not that the end of it is missing. Whoever loses a ledger and takes one from a
backup, or cuts off its end, would spend the same budget again. So after each charge its head is written to a second
file and synced. It is never ahead of the ledger, and a ledger that does not hold it is refused.

Where it is follows from the ledger's place and from where its key is, and from nothing else (`head_beside`): whoever
makes a ledger and whoever opens it look in one place. It comes before key and ledger, and says then that a ledger is
being made. So a key or a ledger without it has lost it; and a making that was cut off is told from a ledger that is
lost: of the first nothing was ever charged.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pianissimo.errors import LedgerError, ParameterError
from pianissimo.ledger.chain import LastEntry
from pianissimo.storage.files import NO_FOLLOW, opened, read_private, reason, sync, wait_for_lock, write_once

_LENGTH = 19 + 1 + 64 + 1
_BEING_MADE = LastEntry(0, bytes(32))


def head_beside(place: str | Path, key: Path | None) -> Path | None:
    """Where the last head of a ledger is kept: beside the file of its key, or beside the ledger if the key is in none.

    A ledger on a server whose key is in no file has none.

    >>> head_beside("budget.db", Path("keys/the.key")), head_beside("budget.db", None)
    (PosixPath('keys/the.key.head'), PosixPath('budget.db.head'))
    """
    if key is not None:
        return Path(f"{key}.head")
    return None if "://" in str(place) else Path(f"{place}.head")


class LastSeen:
    """A file of one line that names the last head seen.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     witness = LastSeen(Path(folder) / "budget.db.key.head")
    ...     before = witness.read()
    ...     witness.make(LastEntry(0, bytes(32)))
    ...     witness.advance(LastEntry(7, bytes(32)))
    ...     witness.advance(LastEntry(5, bytes(32)))  # another process, a little late
    ...     before, witness.read().count
    (None, 7)
    """

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> LastEntry | None:
        """The head it names; None if there is no file, or if the ledger is being made."""
        found = self._read()
        return None if found == _BEING_MADE else found

    def is_being_made(self) -> bool:
        """Whether it says that a ledger is being made: by another process now, or by one that was killed."""
        return self._read() == _BEING_MADE

    def begin(self) -> bool:
        """Say that a ledger is being made; False if there was one before."""
        with self._speaking():
            return write_once(self.path, _line(_BEING_MADE)) or self.is_being_made()

    def make(self, head: LastEntry) -> None:
        """Begin with a head, in the file's first moment."""
        with self._speaking():
            if not write_once(self.path, _line(head)):
                raise self._of_another()

    def claim(self) -> None:
        """Say that a ledger is being made, or refuse."""
        if not self.begin():
            raise self._of_another()

    def _of_another(self) -> LedgerError:
        return LedgerError(
            f"{self.path} must belong to the ledger beside it, got that of an earlier one; put that ledger back, or, "
            "to begin a new budget, move this file away"
        )

    def replace(self, head: LastEntry) -> None:
        """Name this head from now on, whatever is named: what that told of is booked again."""
        self._write(head, always=True)

    def advance(self, head: LastEntry) -> None:
        """Name this head from now on, on disk, unless a later one is named."""
        self._write(head, always=False)

    def _write(self, head: LastEntry, *, always: bool) -> None:
        with self._speaking(), opened(self.path, os.O_RDWR | NO_FOLLOW) as file:
            wait_for_lock(file, self.path, time.monotonic() + 30.0)
            named = self._parsed(os.read(file, 2 * _LENGTH))
            if always or named.count < head.count or named == _BEING_MADE:
                # One line of one length, so that a crash leaves the old one or the new one.
                os.lseek(file, 0, os.SEEK_SET)
                os.write(file, _line(head))
                sync(file)

    def _read(self) -> LastEntry | None:
        with self._speaking():
            try:
                return self._parsed(read_private(self.path, 2 * _LENGTH))
            except FileNotFoundError:
                return None

    def _parsed(self, content: bytes) -> LastEntry:
        try:
            if len(content) == _LENGTH:
                return LastEntry.parse(content.decode("ascii").strip())
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


def _line(head: LastEntry) -> bytes:
    return f"{head.count:019}:{head.digest.hex()}\n".encode("ascii")
