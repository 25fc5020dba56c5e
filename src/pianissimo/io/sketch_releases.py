"""Releases of sketch files: once, or again if that is charged; and what servers have released, added up.

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
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from pianissimo.budget import Budget
from pianissimo.checks import check_positive, check_probability
from pianissimo.durable.charging import cap_of
from pianissimo.errors import InputError, ParameterError
from pianissimo.io.sketch_files import read_sketch
from pianissimo.io.sketch_marks import add_mark, is_released_elsewhere, make_mark, mark_once
from pianissimo.labels import Domain
from pianissimo.ledger import Charge, Ledger, is_state_place, open_guarded, open_shared, release_charge, user_name
from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.sketches import (
    AnySketch,
    Contents,
    CorrelatedHistogram,
    GaussianMisraGries,
    IntegerRange,
    MisraGries,
    PrivateMisraGries,
    PublishedKeys,
    PureHistogram,
    SketchRelease,
    SparseRelease,
    StandardMisraGries,
    add_published,
)
from pianissimo.sketches.contents import MOST_COUNTERS
from pianissimo.sketches.key_columns import KeyKind, Universe
from pianissimo.sketches.private_release import noted, one_shot
from pianissimo.sketches.pure_histogram import pure_mechanism, pure_values
from pianissimo.storage.connection import is_server
from pianissimo.stream.toml_table import domain_from

MOST_RELEASES = 2**16
"""A ledger allows so many releases, which keeps their draws within `_DISTANCE`."""

_DISTANCE = MOST_RELEASES * (MOST_COUNTERS + 1) * DRAW_DISTANCE
"""What the noise of all releases is at most from the ideal one: about 2^-72."""

SketchMechanism = PrivateMisraGries | GaussianMisraGries | CorrelatedHistogram | PureHistogram


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

    most_hidden: float | None
    """What a key that is not shown has at most, with the same chance; None where nothing released bounds it."""

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
            "most_hidden": self.most_hidden,
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
    delta: float | None,
    coverage: float,
    ledger: str | None,
    budget: tuple[float, float] | None,
    universe: str | None = None,
) -> FileRelease:
    """Publish the heavy keys of a sketch file at (epsilon, delta), or at epsilon alone where there is no delta.

    `budget` is the (epsilon, delta) of all releases together, to make the ledger with if there is none yet. Without a
    delta, `universe` says which keys may be shown: see `universe_from`.
    """
    check_positive(epsilon=epsilon)
    if delta is not None:
        check_probability(delta=delta)
    check_probability(coverage=coverage)
    path = path.resolve()  # marks stand beside the file itself, whatever link leads to it
    sketch, stored = read_sketch(path)
    contents = sketch.contents()
    mechanism = _mechanism(sketch, contents, epsilon, delta, universe, charged=ledger is not None)
    paid = 0.0 if delta is None else float(delta)
    charge = left = None
    earlier = False
    if ledger is None:
        mark_once(path, sketch, epsilon, paid)
    else:
        with _opened(ledger, budget) as opened:
            charge = release_charge(mechanism.loss.as_booked(), epsilon, opened)
            entry = opened.reserve(
                charge,
                hides=contents.hides.value,
                question=f"sketch {sketch.lineage.id}: {noted(contents)}, epsilon {epsilon:g}, delta {paid:g}",
                who=user_name(),
                idempotency_key=uuid.uuid4().hex,
            )
            # What it costs does not depend on what comes out.
            opened.settle(entry, charge)
            left = opened.left
            place = opened.place
        earlier = is_released_elsewhere(path, sketch, place)
        add_mark(path, make_mark(sketch, epsilon, paid, ledger=place, entry=entry.number))
    digest = hashlib.blake2b(stored, digest_size=32).digest()
    noise = KeyedNoise(fresh_secret()).at("sketch release", digest)
    shown: SketchRelease | SparseRelease
    match mechanism:
        case PureHistogram():
            shown = mechanism.release(pure_values(contents, k=sketch.k), noise, coverage=coverage)
        case CorrelatedHistogram():
            shown = mechanism.release(contents, noise, coverage=coverage, epsilon=epsilon)
        case _:
            shown = mechanism.release(contents, noise, coverage=coverage)
    return FileRelease(
        table=shown.to_frame().sort(-pl.col("estimate"), "key"),
        mechanism=_words(mechanism),
        epsilon=float(epsilon),
        delta=paid,
        unit=hidden_unit(sketch),
        coverage=coverage,
        shown_from=float(shown.threshold),
        most_hidden=shown.most_hidden if isinstance(shown, SketchRelease) else None,
        k=sketch.k,
        streams=len(sketch.lineage.sources),
        charge=charge,
        left=left,
        earlier=earlier,
    )


def hidden_unit(sketch: AnySketch) -> str:
    """What a release of a sketch hides, in words."""
    if sketch.sets:
        return "one set of keys"
    most = sketch.record().max_keys_per_user
    return "one key of one stream" if most == 1 else f"one user with at most {most:,} keys"


def universe_from(text: str | None, key_kind: KeyKind | None) -> Universe | Domain:
    """The keys that may be shown: whole numbers as FIRST..LAST, or a file with one text a line.

    Of whole numbers all are, where nothing is said; texts must be listed.
    """
    if key_kind == "int64":
        bounds = re.fullmatch(r"(-?[0-9]{1,19})\.\.(-?[0-9]{1,19})", text or f"{-(2**63)}..{2**63 - 1}")
        if bounds is None:
            raise ParameterError(f"universe of whole numbers must be FIRST..LAST, such as 0..999, got {text!r}")
        return IntegerRange(int(bounds[1]), int(bounds[2]))
    if text is None or key_kind != "text":
        raise ParameterError(
            "universe must be given for keys that are texts, got none; a release without a delta needs a public list "
            "of all keys that may be shown"
        )
    try:
        found = domain_from(Path(), text)
    except ParameterError as fault:
        raise ParameterError(f"universe {fault}") from None
    return found if isinstance(found, Domain) else Domain(found)


def _mechanism(
    sketch: AnySketch, contents: Contents, epsilon: float, delta: float | None, universe: str | None, *, charged: bool
) -> SketchMechanism:
    if delta is None:
        keys = universe_from(universe, sketch.key_kind)
        return pure_mechanism(contents, k=sketch.k, epsilon=epsilon, universe=keys)
    if universe is not None:
        raise ParameterError("universe must be left out where there is a delta, got both; leave the delta out")
    if not isinstance(sketch, MisraGries | StandardMisraGries):
        return CorrelatedHistogram.calibrated(k=sketch.k, epsilon=epsilon, delta=delta)
    return one_shot(
        k=sketch.k,
        epsilon=epsilon,
        delta=delta,
        charged=charged,
        standard=isinstance(sketch, StandardMisraGries),
        max_keys_per_user=sketch.max_keys_per_user,
    )


def _words(mechanism: SketchMechanism) -> str:
    match mechanism:
        case PrivateMisraGries():
            return f"discrete Laplace noise of scale {float(1 / mechanism.epsilon):.4g} on every number of the sketch"
        case GaussianMisraGries():
            deviation = math.sqrt(mechanism.variance)
            return f"discrete Gaussian noise of deviation {deviation:.4g} on every number of the sketch"
        case PureHistogram():
            scale, size = float(1 / mechanism.rate) / mechanism.unit, mechanism.universe.size
            return f"discrete Laplace noise of scale {scale:.4g} on each of {size:,} keys that may be shown"
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


def read_release(path: Path) -> PublishedKeys:
    """What `sketch release --json`, or `sketch add --json`, printed into a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows, coverage, hidden = content["keys"], float(content["coverage"]), content["most_hidden"]
        table = pl.DataFrame(
            {name: [row[name] for row in rows] for name in ("key", "estimate", "low", "high")},
            schema_overrides={"estimate": pl.Float64, "low": pl.Float64, "high": pl.Float64},
        )
        return PublishedKeys(table=table, most_hidden=None if hidden is None else float(hidden), coverage=coverage)
    except (OSError, ValueError, TypeError, KeyError, pl.exceptions.PolarsError):
        raise InputError(f"{path} must hold what `sketch release --json` printed, got something else") from None


def add_files(paths: Sequence[Path]) -> PublishedKeys:
    """The releases in some files, added up: none of them holds anything that is not public."""
    parts = [read_release(path) for path in paths]
    # A server that shows nothing has keys of any type.
    types = {part.table.schema["key"] for part in parts if part.table.height}
    if len(types) == 1:
        (dtype,) = types
        parts = [replace(part, table=part.table.cast({"key": dtype})) for part in parts]
    try:
        return add_published(parts)
    except ParameterError as fault:
        raise InputError(str(fault)) from None
