"""The side file of records that could not be counted: where each stood and why, and nothing of what it held.

It is appended to before the tick is sealed. A tick that is read again after a crash leaves its lines twice.
"""

import os
from pathlib import Path

import polars as pl

from pianissimo.storage.files import fault_of

LONGEST = 64 * 2**20
"""Bytes after which the file is put aside under the ending `.1`, in the place of the one that was there."""


class RefusedFile:
    """Lines of JSON with the fields file, line and reason, for the owner's eyes only.

    How many records were refused is a fact about the data, which is why nobody else may read it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.used = False
        """Whether anything was refused since the start."""

        self._left = b""
        self._unsynced = False

    def add(self, place: str, refused: pl.DataFrame) -> None:
        """Write down some lines and reasons. What there is no room for is kept, and written by the next call."""
        if refused.height:
            self.used = True
            lines = refused.select(pl.lit(place).alias("file"), "line", "reason")
            self._left += lines.write_ndjson().encode()
        self._write()

    def sync(self) -> None:
        """All that was added is on the disk."""
        self._write()
        if self._unsynced:
            try:
                descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise fault_of(error, str(self.path)) from None
            self._unsynced = False

    def _write(self) -> None:
        if not self._left:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                end = os.lseek(descriptor, 0, os.SEEK_END)
                try:
                    written = 0
                    while written < len(self._left):
                        written += os.write(descriptor, self._left[written:])
                except OSError:
                    os.ftruncate(descriptor, end)  # no half line stays
                    raise
            finally:
                os.close(descriptor)
            self._unsynced = True
            if end + len(self._left) > LONGEST:
                self.path.replace(self.path.with_name(f"{self.path.name}.1"))
                self._unsynced = False
        except OSError as error:
            raise fault_of(error, str(self.path)) from None
        self._left = b""
