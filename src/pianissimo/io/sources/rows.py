"""Files of events, read into the rows that can be counted, with their ticks, and those that are refused.

Whether a row is refused, and which tick it belongs to, depends on that row and the public clock only.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.errors import InputError, SpecError
from pianissimo.io.clock import Clock, microseconds
from pianissimo.io.sources.csv import read_csv_file
from pianissimo.io.sources.jsonl import read_jsonl_file
from pianissimo.io.sources.parquet import read_parquet_file
from pianissimo.io.sources.piece import REFUSED, Piece, Wanted
from pianissimo.io.sources.records import wanted_columns
from pianissimo.stream.batches import row_faults
from pianissimo.stream.spec import FileFormat, FileSource, StreamSpec

_READERS: dict[FileFormat, Callable[[Path, Wanted], Iterator[Piece]]] = {
    "csv": read_csv_file,
    "jsonl": read_jsonl_file,
    "parquet": read_parquet_file,
}
_ENDINGS: dict[str, FileFormat] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CheckedRows:
    """Rows of files that can be counted, by tick: secret. And the lines that cannot.

    `read_rows` makes one. Its `repr` shows no data.
    """

    table: pl.DataFrame
    """The columns of labels and of values, sorted by tick; without any, a column of the ticks."""

    ticks: NDArray[np.int64]
    """The tick of each row, in order."""

    refused: pl.DataFrame
    """The columns file, line (of a Parquet file: row) and reason. Nothing of what a line holds."""

    def batches(self, last_tick: int) -> Iterator[pl.DataFrame]:
        """The rows of tick 1, of tick 2, and so on; ticks without rows too."""
        start = 0
        for tick in range(1, last_tick + 1):
            end = int(np.searchsorted(self.ticks, tick, side="right"))
            yield self.table[start:end]
            start = end

    def __repr__(self) -> str:
        return f"CheckedRows(columns={self.table.columns})"


def read_rows(spec: StreamSpec) -> CheckedRows:
    r"""Read the files of a spec's source.

    A missing file, an empty one, and one without the columns that are needed or with columns of a wrong
    type is an `InputError`, before anything is counted. A row that cannot be read is put into `refused`.

    >>> import tempfile
    >>> from datetime import UTC, datetime, timedelta
    >>> from pianissimo.budget import Budget
    >>> from pianissimo.queries import Histogram
    >>> from pianissimo.stream import Stream
    >>> stream = Stream("s", budget=Budget(1, 1e-9), horizon=24, queries=[Histogram("drugs", key="drug")])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "purchases.csv")
    ...     _ = file.write_text("time,drug\n2026-01-01T01:30:00Z,aspirin\nyesterday,aspirin\n")
    ...     rows = read_rows(StreamSpec(
    ...         stream=stream,
    ...         tick=timedelta(hours=1),
    ...         origin=datetime(2026, 1, 1, tzinfo=UTC),
    ...         source=FileSource(path=file, time="time"),
    ...     ))
    >>> rows.ticks
    array([2])
    >>> rows.refused["line"].to_list()
    [3]
    """
    checker = RowChecker.of(spec)
    checked = [
        checker.checked(path, piece)
        for path, form in find_files(checker.source)
        for piece in read_pieces(path, form, checker.wanted)
    ]
    return checker.sorted(checked)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CheckedPiece:
    """The rows of a piece that can be counted, and those that cannot: secret."""

    table: pl.DataFrame
    ticks: NDArray[np.int64]
    refused: pl.DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChecker:
    """Judges each row of a spec's files by itself."""

    spec: StreamSpec
    source: FileSource
    clock: Clock
    wanted: Wanted

    @classmethod
    def of(cls, spec: StreamSpec) -> "RowChecker":
        """The one of a spec that has a source and an origin."""
        source = spec.source
        if source is None or spec.origin is None:
            raise SpecError("a stream file must have a [source] and stream.origin to be run, got none; add them")
        if not isinstance(source, FileSource):
            raise SpecError("a source that goes on must be run with --state, got a run without; or give source.path")
        wanted = wanted_columns(spec.stream.queries, spec.stream.user, source.time)
        clock = Clock(origin=spec.origin, tick=spec.tick, last_tick=spec.last_tick)
        return cls(spec=spec, source=source, clock=clock, wanted=wanted)

    def checked(self, path: Path, piece: Piece) -> CheckedPiece:
        """The rows of a piece of a file, in their order."""
        queries, user = self.spec.stream.queries, self.spec.stream.user
        times = microseconds(piece.times)
        faults = self.clock.faults(self.source.time, times)
        if piece.columns.width:
            faults = pl.select(pl.coalesce(faults, row_faults(queries, piece.columns, user))).to_series()
        good = faults.is_null()
        bad = pl.DataFrame({"line": piece.lines, "reason": faults}).filter(~good)
        lines = pl.concat([piece.refused, bad.cast(REFUSED)]).sort("line")  # type: ignore[arg-type]
        return CheckedPiece(
            table=piece.columns.filter(good) if piece.columns.width else piece.columns,
            ticks=self.clock.ticks(times.filter(good)).to_numpy(),
            refused=lines.select(pl.lit(path.name).alias("file"), "line", "reason"),
        )

    def sorted(self, pieces: Sequence[CheckedPiece]) -> CheckedRows:
        """The rows of some pieces, by tick."""
        return _sorted(
            pl.concat([each.table for each in pieces]),
            np.concatenate([each.ticks for each in pieces]),
            pl.concat([each.refused for each in pieces]),
            self.source.time,
        )


def read_pieces(path: Path, form: FileFormat, wanted: Wanted) -> Iterator[Piece]:
    """The rows of one file, piece by piece."""
    return _READERS[form](path, wanted)


def form_of(path: Path) -> FileFormat:
    """How the rows of a file are stored, by the ending of its name.

    >>> form_of(Path("visits.ndjson"))
    'jsonl'
    """
    form = _ENDINGS.get(path.suffix.lower())
    if form is None:
        raise InputError(f"{path} must end in {', '.join(_ENDINGS)}, got {path.suffix or 'no ending'}")
    return form


def find_files(source: FileSource) -> list[tuple[Path, FileFormat]]:
    """The files of a source with their formats, a folder's in the order of their names."""
    path = source.path
    if path.is_dir():
        files = [
            (each, _ENDINGS[each.suffix.lower()])
            for each in sorted(path.iterdir())
            if each.suffix.lower() in _ENDINGS and not each.name.startswith((".", "_")) and each.is_file()
        ]
        files = [(each, form) for each, form in files if source.format in (None, form)]
        if not files:
            endings = [ending for ending, form in _ENDINGS.items() if source.format in (None, form)]
            raise InputError(f"{path} must hold files that end in {', '.join(endings)}, got none")
        return files
    if not path.is_file():
        raise InputError(f"{path} must be a file or a folder, got none; source.path is found from the stream file")
    form = source.format or _ENDINGS.get(path.suffix.lower())
    if form is None:
        raise InputError(
            f"{path} must end in {', '.join(_ENDINGS)}, got {path.suffix or 'no ending'}; or give source.format"
        )
    return [(path, form)]


def _sorted(table: pl.DataFrame, ticks: NDArray[np.int64], refused: pl.DataFrame, time: str) -> CheckedRows:
    ticks = ticks.astype(np.int64, copy=False)
    if not (ticks[1:] >= ticks[:-1]).all():
        order = np.argsort(ticks, kind="stable")
        ticks = ticks[order]
        table = table[order] if table.width else table
    if not table.width:
        table = pl.DataFrame({time: ticks})
    return CheckedRows(table=table, ticks=ticks, refused=refused)
