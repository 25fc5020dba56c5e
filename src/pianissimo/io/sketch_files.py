"""Sketches in files: built from rows, taken over from another program, and merged.

A sketch's bytes hold exact counts, so that its owner alone may read them. What becomes of a row depends on that row
alone; those that cannot be counted are told by their line and a reason.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from pianissimo.checks import check_at_least
from pianissimo.errors import InputError, MergeError, ParameterError, StateError
from pianissimo.io.sources.event_files import READERS, form_of
from pianissimo.io.sources.rows.text_rows import REFUSED, Wanted
from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.queries.shared.columns import fault_of
from pianissimo.sketches import (
    AnySketch,
    MisraGries,
    PrivacyAwareMisraGries,
    StandardMisraGries,
    merge_in_order,
    sketch_from_bytes,
    split_bad,
)
from pianissimo.storage.files import write_whole
from pianissimo.users.user_table import UserUnits

FileKeys = Literal["text", "int64"]
"""How the keys of a file are counted."""

_RULES = {
    "null": "a key must not be null",
    "more than 256 bytes": "a key must have at most 256 bytes",
    "not valid UTF-8": "a key must be UTF-8 text",
}
_WHOLE = r"^-?[0-9]+$"
_LARGEST_WHOLE = 2**53 - 1


def build_sketch(
    path: Path,
    *,
    key: str,
    k: int,
    sets: bool = False,
    keys: FileKeys = "text",
    name: str = "",
    user: str | None = None,
    max_keys_per_user: int = 1,
) -> tuple[AnySketch, pl.DataFrame]:
    """The sketch of one column of a file, row after row; and line and reason of what could not be counted.

    With `user`, of each value of that column the first `max_keys_per_user` rows count, so that a release hides all of
    them: which ones depends on her own rows alone.
    """
    if user is not None and sets:
        raise ParameterError("sets and user must not be given together, got both: a set is all that is hidden together")
    sketch: MisraGries | PrivacyAwareMisraGries
    if sets:
        sketch = PrivacyAwareMisraGries(k, keys=keys, name=name)
    else:
        sketch = MisraGries(k, keys=keys, name=name, max_keys_per_user=max_keys_per_user)
    given = None if user is None else UserUnits(KeyedNoise(fresh_secret()), max_keys_per_user)
    columns = {key: sets} if user is None else {key: sets, user: False}
    refused = []
    for piece in READERS[form_of(path)](path, Wanted(labels=columns, never_lists=() if sets else tuple(columns))):
        column = piece.columns[key]
        reasons = _faults(column, keys)
        if user is not None:
            reasons = pl.select(pl.coalesce(pl.lit(reasons), pl.lit(_user_faults(piece.columns[user])))).to_series()
        good = reasons.is_null()
        counted = column.filter(good)
        if given is not None and user is not None:
            before = given.add_and_tell_before(given.names(piece.columns[user].filter(good)))
            counted = counted.filter(pl.Series(before < max_keys_per_user, dtype=pl.Boolean))
        sketch.update(_typed(counted, keys))
        bad = pl.DataFrame({"line": piece.lines, "reason": reasons}).filter(~good)
        refused.append(pl.concat([piece.refused, bad.cast(REFUSED)]).sort("line"))  # type: ignore[arg-type]
    return sketch, pl.concat(refused)


def import_sketch(
    path: Path,
    *,
    key: str,
    count_column: str,
    k: int,
    total: int,
    keys: FileKeys = "text",
    name: str = "",
    max_keys_per_user: int = 1,
) -> StandardMisraGries:
    """The Misra-Gries sketch of another program, one row of a file for each key that it holds."""
    check_at_least(1, k=k)
    wanted = Wanted(labels={key: False}, values=(count_column,), never_lists=(key,))
    items: dict[int | str, int] = {}
    rows = 0
    for piece in READERS[form_of(path)](path, wanted):
        column, counts = piece.columns[key], piece.columns[count_column].cast(pl.Float64)
        whole = (counts == counts.floor()) & counts.is_between(0, _LARGEST_WHOLE)
        bad = piece.lines.filter(_faults(column, keys).is_not_null() | ~whole.fill_null(value=False))
        lines = sorted([*bad.to_list(), *piece.refused["line"].to_list()])
        if lines:
            raise InputError(
                f"{path}: every row must have a key and a whole count, got another in line {lines[0]}; a sketch lacks "
                "none of its keys"
            )
        rows += len(column)
        items |= dict(zip(_typed(column, keys).to_list(), counts.cast(pl.Int64).to_list(), strict=True))
        if len(items) < rows:
            raise InputError(f"{path}: every key must stand in one row, got one in two")
    try:
        return StandardMisraGries.from_items(
            items,  # type: ignore[arg-type]
            k=k,
            total=total,
            keys=keys,
            name=name,
            max_keys_per_user=max_keys_per_user,
        )
    except InputError as fault:
        raise InputError(f"{path}: {fault}") from None


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
    """Why each key, or set of keys, cannot be counted, or null."""
    sets = isinstance(column.dtype, pl.List)
    if keys == "int64":
        key = pl.element() if sets else pl.col("key")
        unfit = ~(key.str.contains(_WHOLE) & key.cast(pl.Int64, strict=False).is_not_null()).fill_null(value=False)
        bad = pl.col("key").list.eval(unfit).list.any().fill_null(value=True) if sets else unfit
        reason = "all keys of a set must be whole numbers" if sets else "a key must be a whole number"
        return _told(pl.DataFrame({"key": column}).select(bad).to_series(), f"{reason} of 64 bits")
    if sets:
        return _told(fault_of(column), "all keys of a set must be given, with at most 256 bytes each")
    faults = split_bad(column, "text")[1]
    reasons = pl.Series([None], dtype=pl.String).new_from_index(0, len(column))
    return reasons.scatter(faults["row"], faults["fault"].replace(_RULES)) if faults.height else reasons


def _user_faults(users: pl.Series) -> pl.Series:
    """Why each user cannot be told apart, or null: each is judged alone, as keys are."""
    of_users = {
        "null": "a user must not be null",
        "more than 256 bytes": "a user must have at most 256 bytes",
    }
    found = split_bad(users, "text")[1]
    reasons = pl.Series([None], dtype=pl.String).new_from_index(0, len(users))
    return reasons.scatter(found["row"], found["fault"].replace(of_users)) if found.height else reasons


def _told(bad: pl.Series, reason: str) -> pl.Series:
    return pl.DataFrame({"bad": bad}).select(pl.when("bad").then(pl.lit(reason))).to_series()


def _typed(column: pl.Series, keys: FileKeys) -> pl.Series:
    if keys == "text":
        return column
    return column.cast(pl.List(pl.Int64) if isinstance(column.dtype, pl.List) else pl.Int64)
