"""Releasing a sketch file: once, or again if that is charged.

Without a ledger a release whose streams were released before (`sketch_files` says how that is known) is refused. With
one it is a further charge, on disk before any noise is drawn.

**Order.** Charge, then mark, both synced; then noise from a fresh secret under a path that holds the digest of the
sketch. If the machine stops in between, nothing was shown and the mark stands: an error on the safe side.

**The ledger** counts in rho and bad mass. A release of one sketch with Laplace noise is epsilon^2 / 2 there, far more
than with Gaussian noise of the same (epsilon, delta); so with a ledger the noise is Gaussian.
"""

import hashlib
import math
import uuid
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl

from pianissimo.budget import Budget
from pianissimo.checks import check_positive, check_probability
from pianissimo.errors import InputError
from pianissimo.io.sketch_files import add_mark, is_released_elsewhere, make_mark, mark_once, read_sketch
from pianissimo.ledger import Charge, Ledger, is_state_place, open_guarded, open_shared, user_name
from pianissimo.noise import KeyedNoise, fresh_secret
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.sketches import (
    AnySketch,
    CorrelatedHistogram,
    GaussianMisraGries,
    MisraGries,
    PrivateMisraGries,
    SketchRelease,
    SparseRelease,
)
from pianissimo.sketches.contents import MOST_COUNTERS
from pianissimo.storage.postgres import is_server

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
    """What is hidden."""

    coverage: float
    """The chance that all true counts are within low .. high."""

    shown_from: float
    """Keys are shown from this noisy count on."""

    k: int
    streams: int
    charge: Charge | None
    """What the ledger was charged."""

    left: Charge | None
    """What is left there."""

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
    coverage: float = 0.95,
    ledger: str | None = None,
    budget: tuple[float, float] | None = None,
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
            charge = _charge(mechanism, epsilon, opened)
            entry = opened.reserve(
                charge,
                question=f"sketch {sketch.lineage.id}: heavy keys at epsilon {epsilon:g} and delta {delta:g}",
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
    table, shown_from = _released(mechanism, sketch, noise, epsilon, coverage)
    return FileRelease(
        table=table.sort(-pl.col("estimate"), "key"),
        mechanism=_words(mechanism),
        epsilon=float(epsilon),
        delta=float(delta),
        unit="one set of keys" if sketch.sets else "one key of one stream",
        coverage=coverage,
        shown_from=shown_from,
        k=sketch.k,
        streams=len(sketch.lineage.sources),
        charge=charge,
        left=left,
        earlier=earlier,
    )


def _charge(mechanism: SketchMechanism, epsilon: float, ledger: Ledger) -> Charge:
    """What a release costs, in the units of a ledger."""
    loss = mechanism.loss.as_booked()
    if ledger.cap.calls:
        # The cap leaves room for the noise of all calls.
        return Charge.rounded_up(calls=1, rho=loss.rho, bad=loss.bad)
    if not ledger.cap.rho_units:
        raise InputError(f"a ledger for sketches must have a cap in rho, got one in steps at {ledger.place}")
    # A stream's ledger does not: the distance of the noise is bad mass, at 1 + e^epsilon of the largest epsilon in use.
    factor = max(2**10, math.ceil(1 + math.exp(min(epsilon, 700.0))))
    distance = (MOST_COUNTERS + 1) * DRAW_DISTANCE
    return Charge.rounded_up(rho=loss.rho, bad=loss.bad + factor * distance)


def _mechanism(sketch: AnySketch, epsilon: float, delta: float, *, charged: bool) -> SketchMechanism:
    if not isinstance(sketch, MisraGries):
        return CorrelatedHistogram.calibrated(k=sketch.k, epsilon=epsilon, delta=delta)
    if charged:
        return GaussianMisraGries.for_one_release(k=sketch.k, epsilon=epsilon, delta=delta)
    return PrivateMisraGries.calibrated(k=sketch.k, epsilon=epsilon, delta=delta)


def _released(
    mechanism: SketchMechanism, sketch: AnySketch, noise: KeyedNoise, epsilon: float, coverage: float
) -> tuple[pl.DataFrame, float]:
    contents = sketch.contents()
    shown: SketchRelease | SparseRelease
    if isinstance(mechanism, CorrelatedHistogram):
        shown = mechanism.release(contents, noise, epsilon=epsilon, coverage=coverage)
    else:
        shown = mechanism.release(contents, noise, coverage=coverage)
    return shown.to_frame(), float(shown.threshold)


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
            raise InputError("the budget of a stream's ledger is given where the stream is created, got --budget")
        return open_shared(place)
    cap = None if budget is None else cap_of(Budget(*budget))
    if cap is None and "://" not in place and not Path(place).exists():
        raise InputError(
            f"there must be a ledger at {place}, got no such file; give --budget EPSILON DELTA to make one"
        )
    if is_server(place):
        return Ledger.open(place, key=None, cap=cap)
    return open_shared(place) if cap is None else open_guarded(place, key=f"{place}.key", cap=cap, dataset="")


def cap_of(budget: Budget) -> Charge:
    """What all releases together may charge for a budget: half of its delta is for keys of one element.

    >>> round(float(cap_of(Budget(1.0, 1e-8)).rho), 5)
    0.01647
    """
    bad = Fraction(budget.delta) / 2
    return Charge.rounded_down(calls=MOST_RELEASES, rho=budget.rho(bad=bad, distance=_DISTANCE), bad=bad)
