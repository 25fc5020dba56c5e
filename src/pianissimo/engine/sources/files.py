"""Files that are complete, as a source of ticks: the same files give the same ticks, however often they are read.

The position is the list of the files with their sizes and a digest of their ends. A start compares: other files could
hold events that were counted before, or lack some that were not.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pianissimo.engine.sources.rows import CheckedRows, find_files, read_rows
from pianissimo.errors import SourceError
from pianissimo.stream.spec import FileSource, StreamSpec

_TAIL = 4096


class FileTicks:
    """The rows of a spec's files, by tick."""

    def __init__(self, spec: StreamSpec) -> None:
        self._spec = spec
        files = find_files(spec.source) if isinstance(spec.source, FileSource) else []
        self._identity = [_identity(path) for path, _ in files]
        self.rows: CheckedRows = read_rows(spec)

    def seek(self, position: Any, tick: int) -> None:  # noqa: ARG002
        """Check that the files are those that were read before."""
        if position is None:
            return
        before = {name: (size, digest) for name, size, digest in position["files"]}
        now = {name: (size, digest) for name, size, digest in self._identity}
        if before != now:
            changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            raise SourceError(
                f"the files must be those that were read before, got others: {', '.join(changed[:5])}; bring them "
                "back, or begin a new stream"
            )

    def batches(self, tick: int) -> Iterator[object]:
        """The rows of a tick."""
        start, end = np.searchsorted(self.rows.ticks, [tick, tick + 1])
        yield self.rows.table[int(start) : int(end)]

    @property
    def position(self) -> Any:
        """The files as they are."""
        return {"files": self._identity}


def _identity(path: Path) -> list[Any]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL))
        return [path.name, size, hashlib.blake2b(file.read(_TAIL), digest_size=16).hexdigest()]
