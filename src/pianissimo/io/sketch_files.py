"""Sketches in files: built from rows, merged, and released once, or again if that is charged.

A sketch's bytes hold exact counts, so that its owner alone may read them. What becomes of a row depends on that row
alone; those that cannot be counted are told by their line and a reason.

**Marks.** A sketch has a lineage, the ids of the streams that it counted. A release leaves a *mark* beside the file, a
line of JSON with these ids. Whoever releases looks at all marks in the folder: one that shares a stream stands for an
earlier release of the same events, of the file itself, of a part of it, or of what it became a part of. What a mark
does not know: a copy of the file in another folder, a merge that was written to another folder before one of its parts
was released, and a second sketch of the same rows, which has a lineage of its own. A ledger adds all of them up.

**Order.** Without a ledger a release whose streams were released before is refused; with one it is a further charge.
Charge, then mark, both synced; then noise from a fresh secret under a path that holds the digest of the sketch. If the
machine stops in between, nothing was shown and the mark stands: an error on the safe side.

**The ledger** counts in rho and bad mass. A release of one sketch with Laplace noise is epsilon^2 / 2 there, far more
than with Gaussian noise of the same (epsilon, delta); so with a ledger the noise is Gaussian.
"""

import hashlib
import json
import math
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import polars as pl

from pianissimo.budget import Budget
from pianissimo.checks import check_positive, check_probability
from pianissimo.durable.charging import cap_of
from pianissimo.errors import BudgetError, InputError, MergeError, StateError
from pianissimo.io.sources.event_files import READERS, form_of
from pianissimo.io.sources.text_rows import REFUSED, Wanted
from pianissimo.ledger import Charge, Ledger, is_state_place, open_guarded, open_shared, release_charge, user_name
from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.queries.columns import fault_of
from pianissimo.sketches import (
    AnySketch,
    CorrelatedHistogram,
    GaussianMisraGries,
    MisraGries,
    PrivacyAwareMisraGries,
    PrivateMisraGries,
    merge_in_order,
    sketch_from_bytes,
    split_bad,
)
from pianissimo.sketches.contents import MOST_COUNTERS
from pianissimo.sketches.private_release import HEAVY_KEYS, one_shot
from pianissimo.storage.connection import is_server
from pianissimo.storage.files import append, write_once, write_whole

FileKeys = Literal["text", "int64"]
"""How the keys of a file are counted."""

_RULES = {
    "null": "a key must not be null",
    "more than 256 bytes": "a key must have at most 256 bytes",
    "not valid UTF-8": "a key must be UTF-8 text",
}
_WHOLE = r"^-?[0-9]+$"


def build_sketch(
    path: Path, *, key: str, k: int, sets: bool, keys: FileKeys, name: str
) -> tuple[AnySketch, pl.DataFrame]:
    """The sketch of one column of a file, row after row; and line and reason of what could not be counted."""
    sketch = (PrivacyAwareMisraGries if sets else MisraGries)(k, keys=keys, name=name)
    refused = []
    for piece in READERS[form_of(path)](path, Wanted(labels={key: sets}, never_lists=() if sets else (key,))):
        column = piece.columns[key]
        reasons = _faults(column, keys)
        good = reasons.is_null()
        sketch.update(_typed(column.filter(good), keys))
        bad = pl.DataFrame({"line": piece.lines, "reason": reasons}).filter(~good)
        refused.append(pl.concat([piece.refused, bad.cast(REFUSED)]).sort("line"))  # type: ignore[arg-type]
    return sketch, pl.concat(refused)


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


MOST_RELEASES = 2**16
"""A ledger allows so many releases, which keeps their draws within `_DISTANCE`."""

_DISTANCE = MOST_RELEASES * (MOST_COUNTERS + 1) * DRAW_DISTANCE
"""What the noise of all releases is at most from the ideal one: about 2^-72."""

SketchMechanism = PrivateMisraGries | GaussianMisraGries | CorrelatedHistogram


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FileRelease:
    """What was released of a sketch file: all of it may be published."""

    table: pl.DataFrame
    """The columns key, estimate, low, high, the heaviest first; `high` is null where nothing released bounds it."""

    mechanism: str
    """The noise in words."""

    epsilon: float
    delta: float
    unit: str
    coverage: float
    """The chance that all true counts are within low .. high."""

    shown_from: float
    """Keys are shown from this noisy count on."""

    k: int
    streams: int
    charge: Charge | None
    """What the ledger was charged, if one was."""

    left: Charge | None

    earlier: bool = False
    """Whether these streams were released before, without a charge to this ledger."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON; keys that are bytes stand in hexadecimal."""
        keys = self.table
        if keys.schema["key"] == pl.Binary:
            keys = keys.with_columns(pl.col("key").bin.encode("hex"))
        return {
            "k": self.k,
            "streams": self.streams,
            "promise": {"epsilon": self.epsilon, "delta": self.delta, "hides": self.unit},
            "mechanism": self.mechanism,
            "shown_from": self.shown_from,
            "coverage": self.coverage,
            "charged": None if self.charge is None else self.charge.to_dict(),
            "left": None if self.left is None else self.left.to_dict(),
            "earlier_release_elsewhere": self.earlier,
            "keys": keys.to_dicts(),
        }


def release_file(
    path: Path,
    *,
    epsilon: float,
    delta: float,
    coverage: float,
    ledger: str | None,
    budget: tuple[float, float] | None,
) -> FileRelease:
    """Publish the heavy keys of a sketch file at (epsilon, delta).

    `budget` is the (epsilon, delta) of all releases together, to make the ledger with if there is none yet.
    """
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    check_probability(coverage=coverage)
    path = path.resolve()  # marks stand beside the file itself, whatever link leads to it
    sketch, stored = read_sketch(path)
    mechanism = _mechanism(sketch, epsilon, delta, charged=ledger is not None)
    charge = left = None
    earlier = False
    if ledger is None:
        mark_once(path, sketch, epsilon, delta)
    else:
        with _opened(ledger, budget) as opened:
            charge = release_charge(mechanism.loss.as_booked(), epsilon, opened)
            entry = opened.reserve(
                charge,
                question=f"sketch {sketch.lineage.id}: {HEAVY_KEYS}, epsilon {epsilon:g}, delta {delta:g}",
                who=user_name(),
                idempotency_key=uuid.uuid4().hex,
            )
            # What it costs does not depend on what comes out.
            opened.settle(entry, charge)
            left = opened.left
            place = opened.place
        earlier = is_released_elsewhere(path, sketch, place)
        add_mark(path, make_mark(sketch, epsilon, delta, ledger=place, entry=entry.number))
    digest = hashlib.blake2b(stored, digest_size=32).digest()
    noise = KeyedNoise(fresh_secret()).at("sketch release", digest)
    contents, more = sketch.contents(), {"epsilon": epsilon} if isinstance(mechanism, CorrelatedHistogram) else {}
    shown = mechanism.release(contents, noise, coverage=coverage, **more)
    return FileRelease(
        table=shown.to_frame().sort(-pl.col("estimate"), "key"),
        mechanism=_words(mechanism),
        epsilon=float(epsilon),
        delta=float(delta),
        unit="one set of keys" if sketch.sets else "one key of one stream",
        coverage=coverage,
        shown_from=float(shown.threshold),
        k=sketch.k,
        streams=len(sketch.lineage.sources),
        charge=charge,
        left=left,
        earlier=earlier,
    )


def _mechanism(sketch: AnySketch, epsilon: float, delta: float, *, charged: bool) -> SketchMechanism:
    if not isinstance(sketch, MisraGries):
        return CorrelatedHistogram.calibrated(k=sketch.k, epsilon=epsilon, delta=delta)
    return one_shot(k=sketch.k, epsilon=epsilon, delta=delta, charged=charged)


def _words(mechanism: SketchMechanism) -> str:
    match mechanism:
        case PrivateMisraGries():
            return f"discrete Laplace noise of scale {float(1 / mechanism.epsilon):.4g} on every number of the sketch"
        case GaussianMisraGries():
            deviation = math.sqrt(mechanism.variance)
            return f"discrete Gaussian noise of deviation {deviation:.4g} on every number of the sketch"
        case CorrelatedHistogram():
            own, shared = math.sqrt(mechanism.variance) / 2, math.sqrt(mechanism.shared_variance) / 2
            return f"discrete Gaussian noise of deviation {own:.4g} on every count and {shared:.4g} on all together"


def _opened(place: str, budget: tuple[float, float] | None) -> Ledger:
    if is_state_place(place):
        if budget is not None:
            raise InputError("the budget of a stream's ledger is given where the stream is created, got one here too")
        return open_shared(place)
    cap = None if budget is None else cap_of(Budget(*budget), calls=MOST_RELEASES, distance=_DISTANCE)
    if cap is None and "://" not in place and not Path(place).exists():
        raise InputError(
            f"there must be a ledger at {place}, got no such file; give --budget-epsilon and --budget-delta to make one"
        )
    if is_server(place):
        return Ledger.open(place, key=None, budget=cap)
    return open_shared(place) if cap is None else open_guarded(place, key=f"{place}.key", budget=cap, dataset="")
