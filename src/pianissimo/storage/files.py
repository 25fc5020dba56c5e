"""Files that must not be lost: synced, whole or absent, locked, and open to their owner alone.

`fsync` and `flock` appear here and nowhere else. A function that writes returns when the content is on the disk, the
folder's entry included. Faults come as `OSError`, so that each caller says what it means for him; `fault_of` makes one
an error of a store. A sync that failed is a `FailedSyncError`: what looks written may not be on the disk, and to sync
again tells nothing.
"""

import contextlib
import errno
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pianissimo.errors import (
    DiskFullError,
    LeaseError,
    LedgerError,
    ParameterError,
    PianissimoError,
    StoreError,
    SyncError,
)
from pianissimo.noise import Secret, fresh_secret

try:
    import fcntl
except ImportError:  # not on Windows: there a file must not be given to two processes
    fcntl = None  # type: ignore[assignment]

PATIENCE = 5.0
"""How many seconds another process may hold a file: what is written under a lock takes milliseconds."""

OWNER_ALONE = 0o600
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
_LONGEST_KEY = 128
_DIGITS = re.compile(r"[0-9A-Fa-f]{64}")


class FailedSyncError(OSError):
    """A sync that failed."""


def fault_of(error: OSError, place: object) -> StoreError:
    """A fault of the operating system as one of a store."""
    if isinstance(error, FailedSyncError):
        return SyncError(f"{place} must sync, got {reason(error)}; end this process")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(f"{place} must have room on its disk, got none; make room")
    return StoreError(f"{place} must be a store that can be written, got {reason(error)}")


def reason(error: OSError) -> str:
    """What the system says, which never quotes content."""
    return error.strerror or type(error).__name__


def sync(descriptor: int) -> None:
    """What was written to an open file is on the disk."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise FailedSyncError(error.errno, error.strerror) from None


def sync_folder(folder: Path) -> None:
    """The names in a folder are on the disk."""
    with opened(folder, os.O_RDONLY) as descriptor:
        sync(descriptor)


@contextlib.contextmanager
def opened(path: Path, flags: int, mode: int = OWNER_ALONE) -> Iterator[int]:
    """A descriptor that a child process does not get, closed at the end."""
    descriptor = os.open(path, flags | _CLOSE_ON_EXEC, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it: the system may take less at a time."""
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:])


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> os.stat_result:
    """Write under a temporary name, sync, and give it its name; tells which file it is. The umask narrows the mode."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_FOLLOW, mode) as descriptor:
            write_all(descriptor, content)
            sync(descriptor)
            status = os.fstat(descriptor)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)
    return status


def write_once(path: Path, content: bytes) -> bool:
    """Make a file for its owner alone, unless there is one; of two processes the first wins, and each is told.

    It appears whole or not at all, and is closed by then: to close another descriptor of an SQLite file would drop
    the locks of this process on it.
    """
    made = _linked(path, content)
    sync_folder(path.parent)
    return made


def write_many(folder: Path, contents: Mapping[str, bytes]) -> None:
    """The same for files of these names in a folder, which is synced once."""
    for name, content in contents.items():
        if not (folder / name).exists():
            _linked(folder / name, content)
    sync_folder(folder)


def make_folder(folder: Path) -> None:
    """Make a folder for its owner alone; its name is on the disk, also if another made it and was killed then."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    sync_folder(folder.parent)


def _linked(path: Path, content: bytes) -> bool:
    """Whether a file was made, whole and synced; its name is not synced yet."""
    # Open to its owner alone.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        try:
            write_all(descriptor, content)
            sync(descriptor)
        finally:
            os.close(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
            return True
        return False
    finally:
        os.unlink(temporary)


def keep_from_git(folder: Path, pattern: str = "*") -> None:
    """Let `git add .` leave files of a folder alone. Where that cannot be written, nothing else depends on it."""
    path = folder / ".gitignore"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        known = path.read_text(encoding="utf-8") if path.exists() else ""
        if pattern not in known.splitlines():
            # For its owner alone, as all that is beside it.
            with os.fdopen(os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600), "a", encoding="utf-8") as file:
                file.write(("" if known.endswith("\n") or not known else "\n") + pattern + "\n")


def remove_temporaries(folder: Path) -> None:
    """Take away what processes that were killed had begun to write in a folder that nobody else writes to."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def append(path: Path, content: bytes, *, is_followed: bool = False) -> int:
    """Add to the end of a file for its owner alone, made if it is not there; gives its size. No half of it stays.

    Where a file is followed, what a fault left stays: who has read it must not find the file shorter.
    """
    is_new = not path.exists()
    with opened(path, os.O_WRONLY | os.O_CREAT | NO_FOLLOW) as descriptor:
        end = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            write_all(descriptor, content)
            sync(descriptor)
        except OSError:
            if not is_followed:
                os.ftruncate(descriptor, end)
            raise
    if is_new:
        sync_folder(path.parent)
    return end + len(content)


def try_lock(descriptor: int) -> bool:
    """Hold a file alone until its descriptor is closed; False if another process does. Who is killed lets go."""
    if fcntl is not None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def wait_for_lock(descriptor: int, path: Path, deadline: float) -> None:
    """`try_lock` until it is held; `LeaseError` if another holds it beyond the deadline."""
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            raise LeaseError(
                f"{path} must be written by one process at a time, got another that holds it and hangs; end that one"
            )
        time.sleep(0.01)


@contextlib.contextmanager
def locked(path: Path, *, create: bool = False) -> Iterator[int]:
    """A file to read and to add to, while nobody else holds it: the one that has this name once the lock is held."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with opened(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)) as descriptor:
            wait_for_lock(descriptor, path, deadline)
            # Who held it before may have put another file in its place.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                yield descriptor
                return


def read_private(path: Path, most: int) -> bytes:
    """The first bytes of a file that is no link."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | NO_FOLLOW)) as file:
        return file.read(most)


def check_key_path(what: str, path: object) -> None:
    """Refuse a secret that is given where its file is asked for: it must not become a file's name, nor be shown."""
    text = str(path) if isinstance(path, str | os.PathLike) else ""
    # A command may name a file by such digits; the name of a variable is shown.
    if not text.startswith("command:") and _DIGITS.fullmatch(Path(text.removeprefix("env:")).name.strip()):
        raise ParameterError(
            f"{what} must be the path of a file, got 64 hexadecimal digits; put them in a file that is open to its "
            "owner alone, and give its path"
        )


def key_file(
    path: str | Path, *, create: bool = True, what: str = "key", refusal: type[PianissimoError] = LedgerError
) -> Secret:
    """Read the key in a file that its owner alone may read; make one if there is none."""
    check_key_path(what, path)
    path = Path(path)
    if create and not path.exists():
        make_key(path, what=what, refusal=refusal)
    try:
        # Looked at before it is opened: to open and close a ledger that was taken for a key would drop its locks.
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode):
            raise refusal(f"a {what} file must be a plain file, got a link or something else: {path}")
        if os.name == "posix" and status.st_mode & 0o077:
            raise refusal(f"a {what} file must be open to its owner alone, got wider rights; chmod 600 {path}")
        content = read_private(path, _LONGEST_KEY) if status.st_size <= _LONGEST_KEY else b""
        return Secret(bytes.fromhex(content.decode("ascii").strip()))
    except OSError as error:
        raise refusal(f"a {what} file must be readable, got {reason(error)}: {path}") from None
    except ValueError:  # a ParameterError is one too
        raise refusal(f"a {what} file must hold 64 hexadecimal digits, got something else: {path}") from None


def make_key(path: Path, *, what: str = "key", refusal: type[PianissimoError] = LedgerError) -> bool:
    """Make a key where there is none; whether it was this call that made it. Git is told first to leave it alone."""
    check_key_path(what, path)
    keep_from_git(path.parent, "/*" + re.sub(r"([*?[\]\\])", r"\\\1", path.name) + "*")
    try:
        return write_once(path, bytes(fresh_secret()).hex().encode() + b"\n")
    except OSError as error:
        raise refusal(f"a {what} file must be writable, got {reason(error)}: {path}") from None
