"""Sketches in files: built from rows, read, written. Their bytes hold exact counts, so their owner alone may read them.

What becomes of a row depends on that row alone; those that cannot be counted are told by their line and a reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import polars as pl

from pianissimo.engine.sinks import write_whole
from pianissimo.engine.sources.piece import REFUSED, Wanted
from pianissimo.engine.sources.rows import form_of, read_pieces
from pianissimo.errors import InputError, MergeError, StateError
from pianissimo.sketches import (
    AnySketch,
    MisraGries,
    PrivacyAwareMisraGries,
    merge_in_order,
    sketch_from_bytes,
    split_bad,
)
from pianissimo.stream.batches import fault_of

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
    r"""The sketch of one column of a CSV, JSONL or Parquet file, row after row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "visits.csv")
    ...     _ = file.write_text("page\n/home\n\n/home\n\"\"\n,\n")
    ...     built = build_sketch(file, key="page", k=8)
    >>> built.sketch.estimates()
    {'': 1, '/home': 2}
    >>> built.refused["line"].to_list()
    [6]
    """
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
    """Refuse a file that is there already.

    >>> check_new(Path("all.pps"))
    """
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
