"""Sketches in files: built from rows, read, merged, written, and the marks of their releases beside them.

A sketch's bytes hold exact counts, so that its owner alone may read them. What becomes of a row depends on that row
alone; those that cannot be counted are told by their line and a reason.

**Marks.** A sketch has a lineage, the ids of the streams that it counted. A release leaves a *mark* beside the file, a
line of JSON with these ids. Whoever releases looks at all marks in the folder: one that shares a stream stands for an
earlier release of the same events, of the file itself, of a part of it, or of what it became a part of. What a mark
does not know: a copy of the file in another folder, a merge that was written to another folder before one of its parts
was released, and a second sketch of the same rows, which has a lineage of its own. A ledger adds all of them up.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl

from pianissimo.errors import BudgetError, InputError, MergeError, StateError
from pianissimo.io.sources.event_files import form_of, read_pieces
from pianissimo.io.sources.text_rows import REFUSED, Wanted
from pianissimo.queries.query import fault_of
from pianissimo.sketches import (
    AnySketch,
    MisraGries,
    PrivacyAwareMisraGries,
    merge_in_order,
    sketch_from_bytes,
    split_bad,
)
from pianissimo.storage.files import append, write_once, write_whole

FileKeys = Literal["text", "int64"]
"""How the keys of a file are counted."""

_RULES = {
    "null": "a key must not be null",
    "more than 256 bytes": "a key must have at most 256 bytes",
    "not valid UTF-8": "a key must be UTF-8 text",
}
_WHOLE = r"^-?[0-9]+$"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class BuiltSketch:
    """A sketch of a file's rows, and the lines that could not be counted."""

    sketch: MisraGries | PrivacyAwareMisraGries
    refused: pl.DataFrame
    """The columns line (of a Parquet file: row) and reason. Nothing of what a line holds."""


def build_sketch(
    path: Path, *, key: str, k: int, sets: bool = False, keys: FileKeys = "text", name: str = ""
) -> BuiltSketch:
    """The sketch of one column of a CSV, JSONL or Parquet file, row after row."""
    sketch = (PrivacyAwareMisraGries if sets else MisraGries)(k, keys=keys, name=name)
    refused = []
    for piece in read_pieces(path, form_of(path), Wanted(labels={key: sets})):
        column = piece.columns[key]
        reasons = _set_faults(column, keys) if sets else _faults(column, keys)
        good = reasons.is_null()
        sketch.update(_typed(column.filter(good), keys))
        bad = pl.DataFrame({"line": piece.lines, "reason": reasons}).filter(~good)
        refused.append(pl.concat([piece.refused, bad.cast(REFUSED)]).sort("line"))  # type: ignore[arg-type]
    return BuiltSketch(sketch=sketch, refused=pl.concat(refused))


def read_sketch(path: Path) -> tuple[AnySketch, bytes]:
    """The sketch in a file, and its bytes."""
    try:
        stored = path.read_bytes()
    except OSError as fault:
        raise InputError(f"{path} must be a sketch file that can be read, got: {fault.strerror}") from None
    try:
        return sketch_from_bytes(stored), stored
    except StateError as fault:
        raise InputError(f"{path} must be a sketch file: {fault}") from None


def merge_sketches(paths: Sequence[Path]) -> AnySketch:
    """The merge of the sketches in some files, one after the other in this order."""
    sketches = [read_sketch(path)[0] for path in paths]
    try:
        return merge_in_order(sketches)
    except MergeError as fault:
        # The first file that does not fit those before it.
        for count in range(2, len(paths)):
            try:
                merge_in_order(sketches[:count])
            except MergeError:
                raise InputError(f"{paths[count - 1]}: {fault}") from None
        raise InputError(f"{paths[-1]}: {fault}") from None


def write_sketch(path: Path, sketch: AnySketch) -> None:
    """Write a sketch to a file that is not there yet."""
    check_new(path)
    write_secret(path, sketch.to_bytes())


def write_refused(path: Path, refused: pl.DataFrame) -> Path | None:
    """Write which lines were refused beside a sketch file; None if there are none."""
    if not refused.height:
        return None
    beside = path.with_name(f"{path.name}.refused.jsonl")
    # How many lines were refused is a fact about the data.
    write_secret(beside, refused.write_ndjson().encode())
    return beside


def write_secret(path: Path, content: bytes) -> None:
    """Write a file, as a whole, that its owner alone may read."""
    try:
        write_whole(path, content, mode=0o600)
    except OSError as fault:
        raise InputError(f"{path} must be a file that can be written, got: {fault.strerror}") from None


def check_new(path: Path) -> None:
    """Refuse a file that is there already."""
    if path.exists():
        raise InputError(f"{path} must be a new file, got one that is there; remove it or give another name")


def _faults(column: pl.Series, keys: FileKeys) -> pl.Series:
    """Why each key cannot be counted, or null."""
    if keys == "int64":
        fits = column.str.contains(_WHOLE) & column.cast(pl.Int64, strict=False).is_not_null()
        return _told(~fits.fill_null(value=False), "a key must be a whole number of 64 bits")
    faults = split_bad(column, "text")[1]
    reasons = pl.Series([None], dtype=pl.String).new_from_index(0, len(column))
    return reasons.scatter(faults["row"], faults["fault"].replace(_RULES)) if faults.height else reasons


def _set_faults(column: pl.Series, keys: FileKeys) -> pl.Series:
    if keys == "int64":
        fits = pl.element().str.contains(_WHOLE) & pl.element().cast(pl.Int64, strict=False).is_not_null()
        bad = column.list.eval(~fits.fill_null(value=False)).list.any().fill_null(value=True)
        return _told(bad, "all keys of a set must be whole numbers of 64 bits")
    return _told(fault_of(column), "all keys of a set must be given, with at most 256 bytes each")


def _told(bad: pl.Series, reason: str) -> pl.Series:
    return pl.DataFrame({"bad": bad}).select(pl.when("bad").then(pl.lit(reason))).to_series()


def _typed(column: pl.Series, keys: FileKeys) -> pl.Series:
    if keys == "text":
        return column
    return column.cast(pl.List(pl.Int64) if isinstance(column.dtype, pl.List) else pl.Int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """That some streams were released: no data."""

    time: str
    epsilon: float
    delta: float
    ledger: str | None
    """Where it was charged."""

    entry: int | None
    """The number of the charge there."""

    sources: tuple[str, ...]
    """The ids of the streams."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, without the ids."""
        plain = asdict(self)
        del plain["sources"]
        return plain


def mark_path(path: Path) -> Path:
    """Where the mark of a sketch file is."""
    return path.with_name(f"{path.name}.released")


def marks_of(folder: Path, sketch: AnySketch) -> list[Mark]:
    """The marks in a folder that share a stream with a sketch, the oldest first."""
    found = {
        mark
        for beside in sorted(folder.glob("*.released"))
        for mark in _read_marks(beside)
        if not sketch.lineage.sources.isdisjoint(mark.sources)
    }
    return sorted(found, key=lambda mark: mark.time)


def inherit_marks(parts: Sequence[Path], merged: AnySketch, out: Path) -> None:
    """Put what is known of earlier releases of the parts beside what they become."""
    folders = {part.resolve().parent for part in parts}
    marks = dict.fromkeys(mark for folder in folders for mark in marks_of(folder, merged))
    if marks:
        write_secret(mark_path(out), "".join(_line(mark) for mark in marks).encode())


def make_mark(
    sketch: AnySketch, epsilon: float, delta: float, *, ledger: str | None = None, entry: int | None = None
) -> Mark:
    """The mark of a release at this moment."""
    return Mark(
        time=datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        epsilon=float(epsilon),
        delta=float(delta),
        ledger=ledger,
        entry=entry,
        sources=tuple(sorted(sketch.lineage.sources)),
    )


def mark_once(path: Path, sketch: AnySketch, epsilon: float, delta: float) -> None:
    """Mark a release that no other mark shares a stream with, or refuse it."""
    if marks_of(path.parent, sketch):
        raise _released_before(path)
    beside = mark_path(path)
    mark = make_mark(sketch, epsilon, delta)
    try:
        # Of two releases at once, one makes the file.
        made = write_once(beside, _line(mark).encode())
    except OSError as fault:
        raise _unwritable(beside, fault) from None
    if not made:
        raise _released_before(path)
    # Two files that share a stream may both come here: then each sees the other's mark, and neither goes on.
    if marks_of(path.parent, sketch) != [mark]:
        raise _released_before(path)


def add_mark(path: Path, mark: Mark) -> None:
    """Mark a release that was charged, among others of the same file."""
    try:
        append(mark_path(path), _line(mark).encode())
    except OSError as fault:
        raise _unwritable(mark_path(path), fault) from None


def is_released_elsewhere(path: Path, sketch: AnySketch, place: str) -> bool:
    """Whether the streams of a sketch were released without a charge to this ledger."""
    try:
        return any(mark.ledger != place for mark in marks_of(path.parent, sketch))
    except InputError:
        # A mark that cannot be read stands for some release.
        return True


def _line(mark: Mark) -> str:
    return json.dumps({**mark.to_dict(), "sources": list(mark.sources)}) + "\n"


def _read_marks(beside: Path) -> list[Mark]:
    try:
        rows = [json.loads(line) for line in beside.read_text(encoding="utf-8").splitlines()]
        marks = [Mark(**{**row, "sources": tuple(row["sources"])}) for row in rows]
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(f"{beside} must tell what was released, got damaged text; restore it") from None
    if not marks:
        # Made, and not written: whoever made it may have been stopped before anything was shown, or not.
        raise InputError(f"{beside} must tell what was released, got nothing; charge a release with --ledger")
    return marks


def _released_before(path: Path) -> BudgetError:
    return BudgetError(
        f"{path} must be released for the first time, got an earlier release of its streams; "
        "a second one costs as much again: charge it with --ledger"
    )


def _unwritable(path: Path, fault: OSError) -> InputError:
    return InputError(f"{path} must be written before anything is released, got: {fault.strerror}")
