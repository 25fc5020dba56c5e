"""Complete files of events: read into the rows that can be counted, with their ticks, and those that are refused.

Whether a row is refused, and which tick it belongs to, depends on that row and the public clock only.

As a source of ticks the same files give the same ticks, however often they are read. The position is the list of the
files with their sizes and digests. A start compares: other files could hold events that were counted before, or lack
some that were not. An event whose time is changed would count once more in a later tick, so that the digest is of all
bytes, not of those where files differ as a rule. Of a Parquet file the times are read first, and its rows, a piece at a
time, when the first tick comes that has any of them: memory holds the pieces that the tick at hand shares with later
ones. Other files are read whole at the start. Around every read it is checked that a file is the one whose digest was
taken.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.errors import InputError, SourceError, SpecError
from pianissimo.io.sources.rows.json_rows import read_jsonl_file
from pianissimo.io.sources.rows.parquet_rows import PIECE, read_parquet_piece, read_parquet_times
from pianissimo.io.sources.rows.text_rows import PACKED, Piece, Wanted, Written, read_csv_file
from pianissimo.io.sources.source_records import Clock, RowJudge
from pianissimo.stream.source_spec import FileFormat, FileSource, SparkSource
from pianissimo.stream.spec import StreamSpec

_log = logging.getLogger(__name__)


READERS: dict[FileFormat, Callable[[Path, Wanted], Iterable[Piece]]] = {
    "csv": read_csv_file,
    "jsonl": read_jsonl_file,
    "parquet": lambda path, wanted: [read_parquet_piece(path, wanted, 0, None)],
}
"""How the rows of one file are read, piece by piece."""

_ENDINGS: dict[str, FileFormat] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CheckedRows:
    """Rows of files that can be counted, by tick: secret. And the lines that cannot.

    Its `repr` shows no data.
    """

    table: pl.DataFrame
    """The columns of labels and of values, sorted by tick; without any, a column of the ticks."""

    ticks: NDArray[np.int64]
    """The tick of each row, in order."""

    refused: pl.DataFrame
    """The columns file, line (of a Parquet file: row) and reason. Nothing of what a line holds."""

    def __repr__(self) -> str:
        return f"CheckedRows(columns={self.table.columns})"


def check_share(
    source: FileSource | SparkSource, refused: int, counted: int, why: str = "with `pianissimo check FILE`"
) -> None:
    """Refuse a source of which too many rows cannot be counted: decided once, of all rows, before any release."""
    if refused > source.max_refused * (refused + counted):
        place = source.path if isinstance(source, FileSource) else source.spark
        raise InputError(
            f"{place} must have rows that can be counted, got more that cannot be than source.max_refused lets pass; "
            f"see why {why}, or set it higher"
        )


def written_as(spec: StreamSpec) -> Written:
    """How the rows of a spec's source are written."""
    source = spec.source
    if source is None:
        return Written()
    return Written(
        time_format=source.time_format,
        time_zone=spec.stream.time_zone,
        delimiter=source.delimiter,
        line_breaks=source.line_breaks,
    )


class RowChecker:
    """Gives each row of a spec's files its tick, or refuses it."""

    def __init__(self, spec: StreamSpec) -> None:
        source, calendar = spec.source, spec.stream.calendar
        if source is None or calendar is None:
            raise SpecError("a stream file must have a [source] and stream.origin to be run, got none; add them")
        if not isinstance(source, FileSource):
            raise SpecError("a source that goes on must be run with a state, got a run in memory; or give source.path")
        self.source = source
        self.clock = Clock(calendar=calendar, last_tick=spec.last_tick)
        self.judge = RowJudge(
            spec.stream.queries, spec.stream.user, time=source.time, clock=self.clock, written=written_as(spec)
        )
        self.wanted = self.judge.wanted

    def sorted(self, pieces: Iterable[tuple[Path, Piece]]) -> CheckedRows:
        """The rows of some pieces of files, by tick."""
        judged = [(path, self.judge.judged(piece)) for path, piece in pieces]
        table = pl.concat([rows.table for _, rows in judged])
        ticks = self.clock.ticks(pl.concat([rows.times for _, rows in judged])).to_numpy().astype(np.int64, copy=False)
        if not (ticks[1:] >= ticks[:-1]).all():
            order = np.argsort(ticks, kind="stable")
            ticks, table = ticks[order], table[order]
        named = [rows.refused.select(pl.lit(path.name).alias("file"), "line", "reason") for path, rows in judged]
        return CheckedRows(table=table, ticks=ticks, refused=pl.concat(named))

    def read_whole(self, path: Path, form: FileFormat) -> Iterator[tuple[Path, Piece]]:
        """The pieces of a file; after the last it is told which columns no row has a value in."""
        missing = set(self.wanted.names)
        for piece in READERS[form](path, self.wanted):
            missing -= piece.given(self.wanted.time)
            yield path, piece
        warn_of_missing(missing, path)


def warn_of_missing(names: Iterable[str], path: Path) -> None:
    """Tell which columns no row of a file has a value in."""
    if names:
        told = ", ".join(map(repr, sorted(names)))
        _log.warning("columns %s must be in records, got none that has them in %s", told, path)


def _form(path: Path) -> FileFormat | None:
    """By the ending of a name, of text also before that of packed files."""
    if path.suffix.lower() not in PACKED:
        return _ENDINGS.get(path.suffix.lower())
    inner = _ENDINGS.get(path.with_suffix("").suffix.lower())
    return None if inner == "parquet" else inner


def form_of(path: Path, way_out: str = "") -> FileFormat:
    """How the rows of a file are stored, by the ending of its name."""
    form = _form(path)
    if form is None:
        raise InputError(f"{path} must end in {', '.join(_ENDINGS)}, got {path.suffix or 'no ending'}{way_out}")
    return form


def find_files(source: FileSource) -> list[tuple[Path, FileFormat]]:
    """The files of a source with their formats, a folder's in the order of their names."""
    path = source.path
    if path.is_dir():
        files = [
            (each, form)
            for each in sorted(path.iterdir())
            if (form := _form(each)) and not each.name.startswith((".", "_")) and each.is_file()
        ]
        files = [(each, form) for each, form in files if source.format in (None, form)]
        if not files:
            endings = [ending for ending, form in _ENDINGS.items() if source.format in (None, form)]
            raise InputError(f"{path} must hold files that end in {', '.join(endings)}, got none")
        return files
    if not path.is_file():
        raise InputError(f"{path} must be a file or a folder, got none; source.path is found from the stream file")
    return [(path, source.format or form_of(path, "; or give source.format"))]


Refused = Callable[[str, pl.DataFrame], None]
"""Takes lines of a file that were refused: its name, and the columns line and reason."""


@dataclass(slots=True, repr=False)
class _Share:
    """Some rows, of the ticks from `first` to `last`; read when they are needed, and forgotten afterwards."""

    first: int
    last: int
    read: Callable[..., CheckedRows]
    rows: CheckedRows | None = None

    def of_tick(self, tick: int) -> pl.DataFrame:
        if self.rows is None:
            self.rows = self.read()
        start, end = np.searchsorted(self.rows.ticks, [tick, tick + 1])
        found = self.rows.table[int(start) : int(end)]
        if tick >= self.last:
            self.rows = None
        return found


class FilesRead:
    """The files of a spec, which must be the same at every start and stay as they are while they are read."""

    def __init__(self, checker: RowChecker, refused: Refused) -> None:
        self.checker = checker
        self.refused = refused
        self.files = find_files(checker.source)
        # Before the digests: whatever changes after this moment is seen.
        self._stamps = {path: _stamp(path) for path, _ in self.files}

    @cached_property
    def identity(self) -> list[list[Any]]:
        """Of each file its name, its size and its digest."""
        return self._digested()

    def _digested(self) -> list[list[Any]]:
        return [identity_of(path) for path, _ in self.files]

    def check_same(self, position: Any) -> None:
        """Refuse a position of other files; None is that before the first."""
        if position is None:
            return
        if not isinstance(position, dict) or "files" not in position:
            raise SourceError("the source must be the one that was read before, got complete files; mend [source]")
        before = {name: (size, digest) for name, size, digest in position["files"]}
        now = {name: (size, digest) for name, size, digest in self.identity}
        if before != now:
            changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            raise SourceError(
                f"the files must be those that were read before, got others: {', '.join(changed[:5])}; bring them "
                "back, or begin a new stream"
            )
        if position.get("time_format", "iso") != self.position.get("time_format", "iso"):
            raise SourceError(
                "source.time_format must be the one that times were read with before, got another; bring it back, or "
                "begin a new stream"
            )

    @property
    def position(self) -> Any:
        """The files as they are, and how their times are read, unless as most are.

        Read otherwise, events would move to ticks that are still to come.
        """
        form = self.checker.wanted.written.time_format
        return {"files": self.identity} | ({} if form == "iso" else {"time_format": form})

    @property
    def old_until(self) -> int:
        """The last tick: all are of files that are complete."""
        return self.checker.clock.last_tick

    def check_unchanged(self, path: Path) -> None:
        """Refuse a file that is not the one that was found first."""
        if _stamp(path) != self._stamps[path]:
            raise SourceError(
                f"{path} must stay as it is while it is read, got another file there; bring the first one back and "
                "start again, or begin a new stream"
            )


class FileTicks(FilesRead):
    """The rows of a spec's files, by tick."""

    def __init__(self, spec: StreamSpec, refused: Refused = lambda *_: None) -> None:
        super().__init__(RowChecker(spec), refused)
        self._unreadable: dict[str, pl.DataFrame] = {}
        _ = self.identity
        self._shares: list[_Share] = []
        self._read_to = self._handed = 0
        self._is_checked = False
        for path, form in self.files:
            self._shares += self._shares_of_parquet(path) if form == "parquet" else self._shares_of_text(path, form)
            self.check_unchanged(path)

    def seek(self, position: Any, tick: int) -> None:
        """Check that the files are those that were read before."""
        self._read_to, self._handed = tick, 0
        if position is None:
            self.check_refused()
            for name, lines in self._unreadable.items():
                self.refused(name, lines)
            for share in self._shares:
                if share.last == 0:
                    share.of_tick(0)
            return
        self.check_same(position)
        self._shares = [share for share in self._shares if share.last > tick]

    def batches(self, tick: int) -> Iterator[pl.DataFrame]:
        """The rows of a tick, if it has any; after a recovery also those of ticks before it that are read again."""
        ticks = range(min(self._read_to + 1, tick), tick + 1)
        due = [(each, share) for each in ticks for share in self._shares if share.first <= each <= share.last]
        # Where there was no room for what is refused, it goes on after what was handed over.
        for each, share in due[self._handed :]:
            yield share.of_tick(each)
            self._handed += 1
        self._read_to, self._handed = tick, 0

    def check_refused(self) -> None:
        """Refuse files with too many rows that cannot be counted; each piece is read for it, and forgotten."""
        if self._is_checked or self.checker.source.max_refused >= 1:
            return
        refused = counted = 0
        for share in self._shares:
            rows = share.rows or share.read(is_told=False)
            refused, counted = refused + rows.refused.height, counted + len(rows.ticks)
        check_share(self.checker.source, refused, counted)
        self._is_checked = True

    def _shares_of_text(self, path: Path, form: Any) -> Iterator[_Share]:
        rows = self.checker.sorted(self.checker.read_whole(path, form))
        self._unreadable[path.name] = rows.refused
        yield _Share(1, self.checker.clock.last_tick, lambda: rows, rows)

    def _shares_of_parquet(self, path: Path) -> Iterator[_Share]:
        clock, wanted = self.checker.clock, self.checker.wanted
        times = wanted.written.instants(read_parquet_times(path, wanted))
        for start in range(0, max(len(times), 1), PIECE):
            own = times.slice(start, PIECE)
            ticks = clock.ticks(own.filter(clock.faults(self.checker.source.time, own).is_null()))
            first, last = ticks.min(), ticks.max()
            # Rows without any sound time belong to no tick; `seek` reads them, to have them refused.
            yield _Share(
                first if isinstance(first, int) else 0,
                last if isinstance(last, int) else 0,
                partial(self._piece, path, start),
            )

    def _piece(self, path: Path, start: int, *, is_told: bool = True) -> CheckedRows:
        # On both sides: what lies at a place in one file belongs to other ticks in another.
        self.check_unchanged(path)
        piece = read_parquet_piece(path, self.checker.wanted, start, PIECE)
        self.check_unchanged(path)
        rows = self.checker.sorted([(path, piece)])
        if is_told:
            self.refused(path.name, rows.refused)
        return rows


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes where a file is written to or another comes to its place; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def identity_of(path: Path) -> list[Any]:
    """A file's name, its size and the digest of all its bytes."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
            return [path.name, file.tell(), digest]
    except OSError as fault:
        raise InputError(f"{path} must be a file that can be read, got: {fault.strerror}") from None
