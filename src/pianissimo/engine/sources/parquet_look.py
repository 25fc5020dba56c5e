"""A first look at a Parquet file, by a process that may die of it.

A damaged file can say that it holds more than any memory, and the library that reads it then ends the process without
an error that could be caught. So each file is read once by a process of its own, as it is read later; where that one
dies, the file is refused. What the library prints of it is shown to nobody.
"""

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

PIECE = 2**20
"""The most rows that are read at once."""

_KNOWN = 100_000
_Sight = tuple[int, int, int, int, tuple[str, ...]]


class ParquetLook:
    """Looks at files, each once while it stays as it is.

    >>> import tempfile, polars
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     good, bad = Path(folder, "good.parquet"), Path(folder, "bad.parquet")
    ...     polars.DataFrame({"drug": ["aspirin"]}).write_parquet(good)
    ...     _ = bad.write_bytes(b"PAR1")
    ...     look = ParquetLook()
    ...     look.can_be_read(good, ["drug"]), look.can_be_read(bad, ["drug"])
    (True, False)
    >>> look.close()
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._owner = os.getpid()
        self._seen: dict[_Sight, None] = {}
        self._lock = threading.Lock()

    def can_be_read(self, path: Path, columns: Sequence[str]) -> bool:
        """Whether all rows of these columns can be read; `OSError` if the file is not there."""
        status = path.stat()
        sight = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, tuple(columns))
        with self._lock:
            if self._owner != os.getpid():
                # A fork shares the pipes of its parent, and the answers in them.
                self._process, self._owner = None, os.getpid()
            if sight in self._seen:
                return True
            # It may have died of something else: a file is refused if it died of it twice.
            if (self._asked(path, columns) or self._asked(path, columns) or "no") == "no":
                return False
            self._seen[sight] = None
            while len(self._seen) > _KNOWN:
                del self._seen[next(iter(self._seen))]
            return True

    def close(self) -> None:
        """Let the process end."""
        with self._lock:
            process, self._process = self._process, None
            if process is not None and self._owner == os.getpid():
                with contextlib.suppress(OSError):
                    process.communicate()

    def _asked(self, path: Path, columns: Sequence[str]) -> str:
        """What the process says: yes or no, or nothing if it died."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from pianissimo.engine.sources.parquet_look import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C is for those who can finish a tick
            )
        process = self._process
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        try:
            process.stdin.write(json.dumps([os.fspath(path.absolute()), list(columns)]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        except OSError:
            answer = ""
        if answer not in ("yes", "no"):
            self._process, answer = None, ""
            process.kill()
            process.communicate()
        return answer


looked_at = ParquetLook()
"""Of this process."""

atexit.register(looked_at.close)


def main() -> None:
    """Answer, line by line, whether files can be read."""
    import polars as pl

    for line in sys.stdin:
        path, columns = json.loads(line)
        answer = "yes"
        try:
            rows = pl.scan_parquet(path, glob=False, hive_partitioning=False)
            # A column that is missing is told by whoever wanted it.
            there = [name for name in pl.read_parquet_schema(path) if name in columns]
            count = rows.select(pl.len()).collect().item()
            for start in range(0, count, PIECE):
                rows.select(there).slice(start, PIECE).collect()
        except (Exception, pl.exceptions.PanicException):  # noqa: BLE001
            answer = "no"
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
