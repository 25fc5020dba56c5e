"""Complete files as ranges, for whoever works: rows of a Parquet file, or bytes of a text file between two line ends.

A worker reads its range with the same readers, and judges rows by the same rules, as one process does: what becomes of
a row does not depend on where files are cut. Packed files, and CSV whose fields may hold line breaks, are one range
each.

All ranges are read before the first release, since any of them may hold events of the first tick, and what too many
refused rows mean is decided of all rows. What ranges add is kept, up to `HELD_BYTES`; beyond it they are read once more
when their ticks come.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pianissimo.errors import InputError, SourceError
from pianissimo.io.sources.event_files import FilesRead, Refused, RowChecker, check_share, identity_of, warn_of_missing
from pianissimo.io.sources.rows.json_rows import read_jsonl_file
from pianissimo.io.sources.rows.parquet_rows import PIECE, parquet_rows, read_parquet_piece
from pianissimo.io.sources.rows.text_rows import (
    BYTE_ORDER_MARK,
    LONGEST_LINE,
    PACKED,
    Part,
    Piece,
    Wanted,
    read_csv_file,
)
from pianissimo.stream.source_spec import FileFormat
from pianissimo.stream.spec import LedgerSpec, StreamSpec
from pianissimo.workers import GatheredPiece, GatheredRange, ReadRange, Workers

TEXT_BYTES = 2**26
"""About so many bytes of a text file are a range."""

HELD_BYTES = 2**30
"""So much of what ranges add is kept before its ticks come."""

AHEAD = 8
"""So many ranges are read before they are needed, where they had to be forgotten."""

_READ = 2**20


class FileRules:
    """How the rows of a spec's files are judged; it can be pickled, without sinks and ledger, which may hold keys."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = replace(spec, sinks=(), ledger=LedgerSpec())

    @cached_property
    def checker(self) -> RowChecker:
        """What judges them; made where it is used."""
        return RowChecker(self.spec)

    def __reduce__(self) -> tuple[type["FileRules"], tuple[StreamSpec]]:
        return FileRules, (self.spec,)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class RangeReport:
    """What a range tells besides what it adds: secret."""

    refused: pl.DataFrame
    """The columns line and reason; of text files, lines are counted from the beginning of the range."""

    lines: int
    """How many lines, or rows, it has."""

    counted: int
    given: frozenset[str]
    """The columns that a row has a value in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRange:
    """Some rows of a file."""

    path: Path
    form: FileFormat
    part: Part | None = None
    """Bytes of a text file, or rows of a Parquet file; None for all."""

    header: str | None = field(default=None, repr=False)
    """Of a CSV file, for a range that does not begin with it."""

    size: int = 0
    changed: int = 0
    """The file as it was when the range was named: its bytes, and when it was last written."""

    after: int = 0
    """Rows of ticks up to this one were counted before."""

    onto: int = 0
    """Rows of ticks up to this one count in this one."""

    def read(self, rules: FileRules) -> ReadRange:
        """Its rows by tick, each judged by itself."""
        checker = rules.checker
        # On both sides: what lies at a place in one file belongs to other ticks in another.
        self._check_unchanged()
        pieces = list(self._pieces(checker.wanted))
        self._check_unchanged()
        rows = checker.sorted([(self.path, piece) for piece in pieces])
        given = frozenset[str]().union(*(piece.given(checker.wanted.time) for piece in pieces))
        lines = newlines(self.path, self.part) if self.form != "parquet" else len(rows.ticks) + rows.refused.height
        report = RangeReport(rows.refused.select("line", "reason"), lines, len(rows.ticks), given)
        ticks = np.maximum(rows.ticks, self.onto)
        start = int(np.searchsorted(rows.ticks, self.after, side="right"))
        edges = [start, *(np.flatnonzero(ticks[start + 1 :] != ticks[start:-1]) + start + 1).tolist(), len(ticks)]
        found = [(int(ticks[begin]), rows.table[begin:end]) for begin, end in pairwise(edges) if begin < end]
        return ReadRange(found, report)

    def _pieces(self, wanted: Wanted) -> Iterator[Piece]:
        if self.form == "parquet":
            start, end = self.part or (0, 0)
            yield read_parquet_piece(self.path, wanted, start, end - start)
        elif self.form == "csv":
            yield from read_csv_file(self.path, wanted, self.part, self.header)
        else:
            yield from read_jsonl_file(self.path, wanted, self.part)

    def _check_unchanged(self) -> None:
        try:
            found = self.path.stat()
        except OSError as fault:
            raise InputError(f"{self.path} must be a file that can be read, got: {fault.strerror}") from None
        if (found.st_size, found.st_mtime_ns) != (self.size, self.changed):
            raise SourceError(
                f"{self.path} must stay as it is while it is read, got another file there; bring the first one back "
                "and start again, or begin a new stream"
            )


def newlines(path: Path, part: Part | None) -> int:
    """How many line ends some bytes of a file have; of a whole file nobody asks."""
    if part is None:
        return 0
    count, left = 0, part[1] - part[0]
    with path.open("rb") as file:
        file.seek(part[0])
        while left > 0 and (block := file.read(min(_READ, left))):
            count += block.count(b"\n")
            left -= len(block)
    return count


def ranges_of_file(path: Path, form: FileFormat, checker: RowChecker) -> list[FileRange]:
    """A file as ranges."""
    try:
        found = path.stat()
    except OSError as fault:
        raise InputError(f"{path} must be a file that can be read, got: {fault.strerror}") from None
    whole = FileRange(path=path, form=form, size=found.st_size, changed=found.st_mtime_ns)
    if form == "parquet":
        rows = parquet_rows(path, checker.wanted)
        return [replace(whole, part=(start, min(start + PIECE, rows))) for start in range(0, max(rows, 1), PIECE)]
    is_one = path.suffix.lower() in PACKED or (form == "csv" and checker.wanted.written.line_breaks)
    if is_one or found.st_size <= TEXT_BYTES:
        return [whole]
    header, begin = _header(path) if form == "csv" else (None, 0)
    if form == "csv" and header is None:
        # Who reads it from its beginning says what is wrong with it.
        return [whole]
    edges = _edges(path, begin, found.st_size)
    return [replace(whole, part=part, header=header if part[0] else None) for part in pairwise(edges)]


def _header(path: Path) -> tuple[str | None, int]:
    """The header of a CSV file, and where it ends; None where it is none, or too long."""
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE + 1):
            text = line.removeprefix(BYTE_ORDER_MARK) if file.tell() == len(line) else line
            text = text.removesuffix(b"\n").removesuffix(b"\r")
            if not text:
                continue
            try:
                return (text.decode(), file.tell()) if line.endswith(b"\n") else (None, 0)
            except UnicodeDecodeError:
                return None, 0
    return None, 0


def _edges(path: Path, begin: int, size: int) -> list[int]:
    """Where a text file is cut: always after a line end."""
    edges = [0]
    with path.open("rb") as file:
        while (place := max(edges[-1], begin) + TEXT_BYTES) < size:
            file.seek(place)
            while block := file.read(_READ):
                end = block.find(b"\n")
                if end >= 0:
                    edges.append(file.tell() - len(block) + end + 1)
                    break
            else:
                break
    return edges if edges[-1] == size else [*edges, size]


@dataclass(slots=True, repr=False, eq=False)
class _WorkedShare:
    """What a range adds, of the ticks from `first` to `last`."""

    range: FileRange
    refused: pl.DataFrame
    first: int
    last: int
    pieces: dict[int, GatheredPiece] | None
    is_told: bool = False


class WorkedFiles(FilesRead):
    """The files of a spec, by tick, as workers gather them."""

    def __init__(self, spec: StreamSpec, refused: Refused, workers: Workers) -> None:
        self._rules = FileRules(spec)
        super().__init__(self._rules.checker, refused)
        self._workers = workers
        workers.start(self._rules)
        self._ranges = {path: ranges_of_file(path, form, self.checker) for path, form in self.files}
        self._shares: list[_WorkedShare] | None = None
        self._is_resumed = False
        self._after = self._read_to = self._handed = 0
        # Meanwhile others read: who digests the files is not in their way. Then it unpacks what they found.
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="files")
        files = self.files
        self._digests: Future[list[list[Any]]] = self._beside.submit(lambda: [identity_of(path) for path, _ in files])

    def _digested(self) -> list[list[Any]]:
        return self._digests.result()

    def seek(self, position: Any, tick: int) -> None:
        """Check that the files are those that were read before."""
        self._after = self._read_to = tick
        self._handed, self._shares = 0, None
        self._is_resumed = position is not None
        self.check_same(position)

    def check_refused(self) -> None:
        """Nothing before there is a stream: what is refused is told by those who gather for it."""

    def batches(self, tick: int) -> Iterator[GatheredPiece]:
        """What the rows of a tick add; after a recovery also those of ticks before it that are read again."""
        if self._shares is None:
            self._shares = self._gathered(tick)
        due = [share for share in self._shares if share.first <= tick <= share.last]
        self._read_again([share for share in due if share.pieces is None])
        for share in self._shares:
            if share.first <= tick + 1 and tick <= share.last:
                for piece in [(share.pieces or {}).get(each) for each in (tick, tick + 1)]:
                    if piece is not None:
                        piece.unpack_by(self._beside)
        for share in due[self._handed :]:
            self._tell(share)
            piece = (share.pieces or {}).pop(tick, None)
            if piece is not None:
                yield piece
            self._handed += 1
        for share in due:
            if tick >= share.last:
                share.pieces = {}
        self._read_to, self._handed = tick, 0

    def _gathered(self, tick: int) -> list[_WorkedShare]:
        """All ranges, before the first release; only of rows that were not counted before."""
        shares: list[_WorkedShare] = []
        unreadable: dict[str, pl.DataFrame] = {}
        held = counted = refused = 0
        asked = [
            (path, [replace(each, after=self._after, onto=tick) for each in ranges])
            for path, ranges in self._ranges.items()
        ]
        # One call for all files: whoever works goes on with the next file while others are still in the one before.
        answers = self._workers.gather([each for _, ranges in asked for each in ranges], self._rules)
        for path, ranges in asked:
            lines, missing, of_file = 0, set(self.checker.wanted.names), []
            for each, found in zip(ranges, islice(answers, len(ranges)), strict=True):
                report: RangeReport = found.report
                of_file.append(report.refused.with_columns(pl.col("line") + lines))
                lines += 0 if each.form == "parquet" else report.lines
                missing -= report.given
                counted, refused = counted + report.counted, refused + report.refused.height
                pieces = {piece.tick: piece for piece in found.pieces}
                held += sum(len(piece.content) for piece in found.pieces)
                kept = pieces if held <= HELD_BYTES else None
                shares.append(_WorkedShare(each, of_file[-1], min(pieces, default=0), max(pieces, default=0), kept))
            self.check_unchanged(path)
            if ranges[0].form != "parquet":
                warn_of_missing(missing, path)
                unreadable[path.name] = pl.concat(of_file)
        if not self._is_resumed:
            check_share(self.checker.source, refused, counted)
            for name, told in unreadable.items():
                self.refused(name, told)
        for share in shares:
            # Of text files all is told at once, and never again; rows without any sound time belong to no tick.
            share.is_told = share.range.form != "parquet" or (self._is_resumed and not share.last)
            if not share.last:
                self._tell(share)
        return [share for share in shares if share.last]

    def _tell(self, share: _WorkedShare) -> None:
        if not share.is_told:
            self.refused(share.range.path.name, share.refused)
            share.is_told = True

    def _read_again(self, needed: Sequence[_WorkedShare]) -> None:
        """Of ranges that had to be forgotten: those that are needed, and some that will be."""
        if not needed or self._shares is None:
            return
        soon = sorted((share for share in self._shares if share.pieces is None), key=lambda share: share.first)
        shares = [*needed, *(share for share in soon[: len(needed) + AHEAD] if share not in needed)]
        found: Iterator[GatheredRange] = self._workers.gather([share.range for share in shares], self._rules)
        for share, each in zip(shares, found, strict=True):
            share.pieces = {piece.tick: piece for piece in each.pieces if piece.tick > self._read_to}
