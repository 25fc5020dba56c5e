"""The key of a ledger's chain, in a file of its own: whoever can write the ledger but not read this cannot forge it."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from pianissimo.errors import LedgerError
from pianissimo.noise import Secret, fresh_secret


def key_file(path: str | Path, *, create: bool = True) -> Secret:
    """Read the key in a file that its owner alone may read; make one if there is none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = key_file(Path(folder) / "budget.db.key")
    ...     made == key_file(Path(folder) / "budget.db.key"), made
    (True, Secret(hidden))
    """
    path = Path(path)
    if create and not path.exists():
        _make(path)
    try:
        with open(path, "rb", opener=_without_following) as file:
            status = os.fstat(file.fileno())
            content = file.read(4096)
    except OSError as error:
        raise LedgerError(f"a key file must be readable, got {error.strerror}: {path}") from None
    if not stat.S_ISREG(status.st_mode) or (os.name == "posix" and status.st_mode & 0o077):
        raise LedgerError(f"a key file must be open to its owner alone, got wider rights; chmod 600 {path}")
    try:
        return Secret(bytes.fromhex(content.decode("ascii").strip()))
    except ValueError:  # a ParameterError is one too
        raise LedgerError(f"a key file must hold 64 hexadecimal digits, got something else: {path}") from None


def _make(path: Path) -> None:
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # open to its owner alone
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(bytes(fresh_secret()).hex() + "\n")
                file.flush()
                os.fsync(file.fileno())
            # A link appears whole or not at all, and the first of two processes wins.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise LedgerError(f"a key file must be writable, got {error.strerror}: {path}") from None


def _without_following(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0))
