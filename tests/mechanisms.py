"""The one list of all mechanisms. A new mechanism adds one line and passes every shared check."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.counting import Counter, HaarPlan, TreePlan
from pianissimo.histograms import KnownHistogram, UnknownHistogram
from pianissimo.labels import Domain
from pianissimo.mechanism import Mechanism

HAAR = HaarPlan.calibrated(horizon=6, rho=2.0)
TREE = TreePlan.calibrated(horizon=6, rho=2.0)
DOMAIN = Domain(["a", "b", "c", "d"])
FEW = Fraction(1, 10)


@dataclass(frozen=True)
class Case:
    """A mechanism, how a list of events becomes its batch, and whether all its labels are shown whatever the data."""

    mechanism: Mechanism[Any, Any, Any]
    as_batch: Callable[[list[list[str]]], Any]
    always_shown: bool


def as_events(events: list[list[str]]) -> list[list[str]]:
    """For counters: how many there are."""
    return events


def as_labels(events: list[list[str]]) -> pl.Series:
    """For histograms: lists of labels."""
    return pl.Series(events, dtype=pl.List(pl.String))


CASES = {
    "counter over haar": Case(Counter(plan=HAAR), as_events, always_shown=True),
    "counter over tree": Case(Counter(plan=TREE), as_events, always_shown=True),
    "known histogram over haar": Case(
        KnownHistogram(plan=HAAR, domain=DOMAIN, max_keys_per_event=2), as_labels, always_shown=True
    ),
    "known histogram over tree": Case(KnownHistogram(plan=TREE, domain=DOMAIN), as_labels, always_shown=True),
    "unknown histogram over haar": Case(
        UnknownHistogram(plan=HAAR, delta=FEW, max_keys_per_event=2), as_labels, always_shown=False
    ),
    "unknown histogram over tree": Case(
        UnknownHistogram(plan=TREE, delta=FEW, remember=False), as_labels, always_shown=False
    ),
}
