"""The key of a ledger's chain, in a file of its own: whoever can write the ledger but not read this cannot forge it."""

import contextlib
import os
import re
import stat
import tempfile
from pathlib import Path

from pianissimo.errors import LedgerError, ParameterError
from pianissimo.noise import Secret, fresh_secret

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_LONGEST = 128
_DIGITS = re.compile(r"[0-9A-Fa-f]{64}")


def check_key_path(what: str, path: object) -> None:
    """Refuse a secret that is given where its file is asked for: it must not become a file's name, nor be shown.

    >>> check_key_path("key", "ab" * 32)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: key must be the path of a file, got 64 hexadecimal digits; put them in a file ...
    """
    text = str(path) if isinstance(path, str | os.PathLike) else ""
    # A command may name a file by such digits; the name of a variable is shown.
    if not text.startswith("command:") and _DIGITS.fullmatch(Path(text.removeprefix("env:")).name.strip()):
        raise ParameterError(
            f"{what} must be the path of a file, got 64 hexadecimal digits; put them in a file that is open to its "
            "owner alone, and give its path"
        )


def key_file(path: str | Path, *, create: bool = True) -> Secret:
    """Read the key in a file that its owner alone may read; make one if there is none.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = key_file(Path(folder) / "budget.db.key")
    ...     made == key_file(Path(folder) / "budget.db.key"), made
    (True, Secret(hidden))
    """
    check_key_path("key", path)
    path = Path(path)
    if create and not path.exists():
        make_key(path)
    try:
        # Looked at before it is opened: to open and close a ledger that was taken for a key would drop its locks.
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            raise LedgerError(f"a key file must be a plain file, got a link or something else: {path}")
        if os.name == "posix" and status.st_mode & 0o077:
            raise LedgerError(f"a key file must be open to its owner alone, got wider rights; chmod 600 {path}")
        if not status.st_size <= _LONGEST:
            raise LedgerError(f"a key file must hold 64 hexadecimal digits, got something else: {path}")
        content = read_private(path, _LONGEST)
    except OSError as error:
        raise LedgerError(f"a key file must be readable, got {reason(error)}: {path}") from None
    try:
        return Secret(bytes.fromhex(content.decode("ascii").strip()))
    except ValueError:  # a ParameterError is one too
        raise LedgerError(f"a key file must hold 64 hexadecimal digits, got something else: {path}") from None


def make_key(path: Path) -> bool:
    """Make a key where there is none; whether it was this call that made it."""
    check_key_path("key", path)
    try:
        return write_once(path, bytes(fresh_secret()).hex().encode() + b"\n")
    except OSError as error:
        raise LedgerError(f"a key file must be writable, got {reason(error)}: {path}") from None


def write_once(path: Path, content: bytes) -> bool:
    """Make a file for its owner alone, synced, unless there is one; the first of two processes wins, and is told."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # open to its owner alone
    made = False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # A link appears whole or not at all.
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
            made = True
    finally:
        os.unlink(temporary)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return made


def read_private(path: Path, most: int) -> bytes:
    """The first bytes of a file that is no link."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NO_FOLLOW)) as file:
        return file.read(most)


def reason(error: OSError) -> str:
    """What the system says, which never quotes content."""
    return error.strerror or type(error).__name__
