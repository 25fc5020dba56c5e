"""What was released of which streams: marks beside stored sketches, so that nobody releases one twice unseen."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pianissimo.errors import BudgetError, InputError
from pianissimo.io.sketch_files import write_secret
from pianissimo.ledger.entries import now_text
from pianissimo.sketches import AnySketch
from pianissimo.storage.files import append, write_once


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
        time=now_text("microseconds"),
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
