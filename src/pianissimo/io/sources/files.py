"""Files that are complete, as a source of ticks: the same files give the same ticks, however often they are read.

The position is the list of the files with their sizes and digests. A start compares: other files could hold events that
were counted before, or lack some that were not. An event whose time is changed would count once more in a later tick,
so that the digest is of all bytes, not of those where files differ as a rule.

Of a Parquet file the times are read first, and its rows, a piece at a time, when the first tick comes that has any of
them: memory holds the pieces that the tick at hand shares with later ones. Other files are read whole at the start.
Around every read it is checked that a file is the one whose digest was taken.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pianissimo.errors import InputError, SourceError
from pianissimo.io.clock import microseconds
from pianissimo.io.sources.parquet import PIECE, read_parquet_piece, read_parquet_times
from pianissimo.io.sources.rows import CheckedRows, RowChecker, find_files, read_pieces
from pianissimo.stream.spec import StreamSpec

Refused = Callable[[str, pl.DataFrame], None]
"""Takes lines of a file that were refused: its name, and the columns line and reason."""


@dataclass(slots=True, repr=False)
class _Share:
    """Some rows, of the ticks from `first` to `last`; read when they are needed, and forgotten afterwards."""

    first: int
    last: int
    read: Callable[[], CheckedRows]
    rows: CheckedRows | None = None

    def of_tick(self, tick: int) -> pl.DataFrame:
        if self.rows is None:
            self.rows = self.read()
        start, end = np.searchsorted(self.rows.ticks, [tick, tick + 1])
        found = self.rows.table[int(start) : int(end)]
        if tick >= self.last:
            self.rows = None
        return found


class FileTicks:
    """The rows of a spec's files, by tick."""

    def __init__(self, spec: StreamSpec, refused: Refused = lambda *_: None) -> None:
        self._checker = RowChecker.of(spec)
        self._refused = refused
        self._unreadable: dict[str, pl.DataFrame] = {}
        files = find_files(self._checker.source)
        # Before the digests: whatever changes after this moment is seen.
        self._stamps = {path: _stamp(path) for path, _ in files}
        self._identity = [_identity(path) for path, _ in files]
        self._shares: list[_Share] = []
        for path, form in files:
            self._shares += self._shares_of_parquet(path) if form == "parquet" else self._shares_of_text(path, form)
            self._check_unchanged(path)

    def seek(self, position: Any, tick: int) -> None:
        """Check that the files are those that were read before."""
        if position is None:
            for name, lines in self._unreadable.items():
                self._refused(name, lines)
            for share in self._shares:
                if share.last == 0:
                    share.of_tick(0)
            return
        if not isinstance(position, dict) or "files" not in position:
            raise SourceError("the source must be the one that was read before, got complete files; mend [source]")
        before = {name: (size, digest) for name, size, digest in position["files"]}
        now = {name: (size, digest) for name, size, digest in self._identity}
        if before != now:
            changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            raise SourceError(
                f"the files must be those that were read before, got others: {', '.join(changed[:5])}; bring them "
                "back, or begin a new stream"
            )
        self._shares = [share for share in self._shares if share.last > tick]

    def batches(self, tick: int) -> Iterator[pl.DataFrame]:
        """The rows of a tick, if it has any."""
        for share in self._shares:
            if share.first <= tick <= share.last:
                yield share.of_tick(tick)

    @property
    def position(self) -> Any:
        """The files as they are."""
        return {"files": self._identity}

    def _shares_of_text(self, path: Path, form: Any) -> Iterator[_Share]:
        checked = [self._checker.checked(path, piece) for piece in read_pieces(path, form, self._checker.wanted)]
        rows = self._checker.sorted(checked)
        self._unreadable[path.name] = rows.refused
        yield _Share(1, self._checker.clock.last_tick, lambda: rows, rows)

    def _shares_of_parquet(self, path: Path) -> Iterator[_Share]:
        clock, wanted = self._checker.clock, self._checker.wanted
        times = microseconds(read_parquet_times(path, wanted))
        for start in range(0, max(len(times), 1), PIECE):
            own = times.slice(start, PIECE)
            ticks = clock.ticks(own.filter(clock.faults(self._checker.source.time, own).is_null()))
            first, last = ticks.min(), ticks.max()
            # Rows without any sound time belong to no tick; `seek` reads them, to have them refused.
            yield _Share(
                first if isinstance(first, int) else 0,
                last if isinstance(last, int) else 0,
                lambda start=start: self._piece(path, start),  # type: ignore[misc]
            )

    def _piece(self, path: Path, start: int) -> CheckedRows:
        # On both sides: what lies at a place in one file belongs to other ticks in another.
        self._check_unchanged(path)
        piece = read_parquet_piece(path, self._checker.wanted, start)
        self._check_unchanged(path)
        rows = self._checker.sorted([self._checker.checked(path, piece)])
        self._refused(path.name, rows.refused)
        return rows

    def _check_unchanged(self, path: Path) -> None:
        if _stamp(path) != self._stamps[path]:
            raise SourceError(
                f"{path} must stay as it is while it is read, got another file there; bring the first one back and "
                "start again, or begin a new stream"
            )


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes where a file is written to or another comes to its place; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _identity(path: Path) -> list[Any]:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
            return [path.name, file.tell(), digest]
    except OSError as fault:
        raise InputError(f"{path} must be a file that can be read, got: {fault.strerror}") from None
