"""Write guarantees.json anew: `python -m tests.pin_guarantees`. Read the difference before you commit it."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.mechanisms import CASES, EVENT_CASES, USER_CASES

from pianissimo.loss.losses import Race, float_up
from pianissimo.mechanism import Mechanism
from pianissimo.monitors import Alarms, TrendingMonitor
from pianissimo.sketches import (
    CorrelatedHistogram,
    GaussianMisraGries,
    PrivateMisraGries,
    PublishedTree,
    PureHistogram,
    RunningSketch,
    SetTree,
    SketchTree,
    SparseHistogram,
)
from pianissimo.sketches.reduction import ReducedMisraGries

PINNED = Path(__file__).parent / "guarantees.json"
SCALE = Fraction(5)
FEW = Fraction(1, 100)

TREES_AND_MONITORS: dict[str, Any] = {
    "sketch tree": SketchTree.calibrated(horizon=6, k=4, rho=1, bad=FEW),
    "sketch tree, three keys an event": SketchTree.calibrated(
        horizon=6, k=4, rho=1, bad=FEW, max_keys_per_event=3, with_total=False
    ),
    "set tree": SetTree.calibrated(horizon=6, k=4, rho=1, bad=FEW, max_keys_per_event=3),
    "published tree": PublishedTree(horizon=6, node=GaussianMisraGries(k=4, variance=Fraction(90), threshold=60)),
    "running sketch": RunningSketch(
        release_of=GaussianMisraGries(k=4, variance=Fraction(90), threshold=60, releases=6)
    ),
    "alarms": Alarms(horizon=6, thresholds=(("a", 20), ("b", 30)), alarms_per_user=2, scale=SCALE),
    "alarms by period": Alarms(horizon=6, thresholds=(("a", 20),), alarms_per_user=2, scale=SCALE, period=3),
    "trends": TrendingMonitor(
        horizon=6, threshold=90, alarms_per_user=2, scale=SCALE, max_keys_per_user=3, delta_skip=FEW
    ),
    "trends, replaced": TrendingMonitor(
        horizon=6, threshold=90, alarms_per_user=2, scale=SCALE, delta_skip=FEW, replacement=True
    ),
}
"""Those whose states the shared checks of `CASES` do not fit; their promises are pinned all the same."""

RELEASES: dict[str, Any] = {
    "private sketch": PrivateMisraGries(k=4, epsilon=Fraction(1), threshold=9),
    "private sketch of users": PrivateMisraGries(k=4, epsilon=Fraction(1), threshold=20, max_keys_per_user=3),
    "standard sketch": PrivateMisraGries(k=4, epsilon=Fraction(1), threshold=9, standard=True),
    "Gaussian sketch": GaussianMisraGries(k=4, variance=Fraction(9), threshold=16, releases=3),
    "sparse histogram": SparseHistogram(moved=4, variance=9, tau=9),
    "correlated histogram": CorrelatedHistogram(k=4, variance=9, shared_variance=4, threshold=20),
    "reduced sketch": ReducedMisraGries(k=4, epsilon=Fraction(1), threshold=60, streams=2),
    "pure histogram": PureHistogram.of_sketch(k=4, epsilon=1, universe=range(100), max_keys_per_user=2),
}
"""Single releases, which have a loss and no horizon."""


def promise_of(mechanism: Mechanism[Any, Any, Any]) -> dict[str, object]:
    """What is pinned of a mechanism's promise."""
    guarantee = mechanism.guarantee
    return promise_of_loss(guarantee.loss) | {
        "unit": guarantee.unit.value,
        "neighbors": guarantee.neighbors.value,
        "horizon": guarantee.horizon,
    }


def promise_of_loss(loss: Any) -> dict[str, object]:
    """What is pinned of a loss."""
    if isinstance(loss, Race):
        clocks = {"charges": loss.charges, "scale": str(loss.scale), "replacement": loss.replacement}
        return clocks | {"bad": str(loss.bad), "distance": float_up(loss.distance)}
    ledger = loss.as_booked()
    return {"rho": str(ledger.rho), "bad": str(ledger.bad), "distance": float_up(ledger.distance)}


def promises() -> dict[str, dict[str, object]]:
    """All that is pinned, by name."""
    cases = {name: case.mechanism for name, case in (CASES | USER_CASES | EVENT_CASES).items()}
    found = {name: promise_of(mechanism) for name, mechanism in (cases | TREES_AND_MONITORS).items()}
    return found | {name: promise_of_loss(each.loss) for name, each in RELEASES.items()}


if __name__ == "__main__":
    PINNED.write_text(json.dumps(promises(), indent=2) + "\n")
