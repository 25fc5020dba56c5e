"""Lines that were refused, for whoever may see the data: where they are and why, and nothing of what they hold.

How many there are is a fact about the data, so that the file is its owner's alone. It grows as the source is read; what
is read again after a crash is told again.
"""

import os
from pathlib import Path

import polars as pl

from pianissimo.errors import InputError


class SideFile:
    """A file that is made with the first line that is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, refused: pl.DataFrame) -> None:
        """Append lines, one JSON object each."""
        if not refused.height:
            return
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(refused.write_ndjson().encode())
        except OSError as fault:
            raise InputError(f"{self.path} must be a file that can be written, got: {fault.strerror}") from None

    @property
    def found(self) -> Path | None:
        """Its path, if any line was refused."""
        return self.path if self.path.exists() else None
