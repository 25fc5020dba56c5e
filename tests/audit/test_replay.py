"""Audit A2: generated pairs of neighboring streams per mechanism, with one tape of noise, and broken twins.

The twins are caught by 100 pairs; `make soak` has 2,000.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.audit.replay import replay
from tests.faults.report import size
from tests.mechanisms import CASES, DOMAIN, HAAR, REPLAYED, Case, as_events, as_labels

from pianissimo.counting import (
    Counter,
    CounterState,
    KnownHistogram,
    KnownHistogramState,
    LabelCounts,
    UnknownHistogram,
    UnknownHistogramState,
)
from pianissimo.mechanism import Mechanism
from pianissimo.noise import Noise, TreePlan
from pianissimo.noise.running import evaluate
from pianissimo.testing import SeededNoise

PAIRS = size(80, 2000)
LABELS = ["a", "b", "c", "d", "e", "new"]
Events = list[list[str]]


def neighbors(random: np.random.Generator, bound: int) -> tuple[list[Events], list[Events], int, list[str]]:
    """A stream of 1 to 6 ticks, the same without one of its events, that event's tick and its counted labels."""
    ticks = [
        [list(random.choice(LABELS, size=random.integers(0, 4))) for _ in range(random.integers(0, 6))]
        for _ in range(random.integers(1, 7))
    ]
    place = int(random.integers(0, len(ticks)))
    event = [str(label) for label in random.choice(LABELS, size=random.integers(0, 5))]
    position = int(random.integers(0, len(ticks[place]) + 1))
    larger = [list(batch) for batch in ticks]
    larger[place].insert(position, event)
    return larger, ticks, place + 1, list(dict.fromkeys(event))[:bound]


def problems_of(mechanism: Mechanism[Any, Any, Any], case: Case, pairs: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    problems = []
    for number in range(pairs):
        larger, smaller, tick, labels = neighbors(random, getattr(mechanism, "max_keys_per_event", 1))
        counted = frozenset([""]) if isinstance(mechanism, Counter) else frozenset(labels)
        problems += replay(
            mechanism,
            SeededNoise(number),
            [case.as_batch(batch) for batch in larger],
            [case.as_batch(batch) for batch in smaller],
            event_tick=tick,
            event_labels=counted,
            always_shown=case.always_shown,
        )
    return problems


@pytest.mark.parametrize("case", REPLAYED.values(), ids=REPLAYED.keys())
def test_neighbors_differ_by_the_event_alone(case: Case) -> None:
    assert problems_of(case.mechanism, case, PAIRS, seed=31) == []


@dataclass(frozen=True, kw_only=True)
class HalfToEven(Counter):
    """The mutant: numpy's rounding, half to even, of true count and noise together."""

    def release(self, state: CounterState, tick: int, noise: Noise) -> int:
        exact = state.total * 2**self.plan.shift + int(evaluate(self.plan, noise, tick, np.zeros(1, np.uint64))[0])
        return round(Fraction(exact, 2**self.plan.shift))


@dataclass(frozen=True, kw_only=True)
class UnboundedHistogram(KnownHistogram):
    """The mutant: events are not cut to the declared number of labels."""

    def update(self, state: KnownHistogramState, batch: pl.Series) -> None:
        KnownHistogram.update(KnownHistogram(plan=self.plan, domain=self.domain, max_keys_per_event=99), state, batch)


@dataclass(frozen=True, kw_only=True)
class OnlyPresentLabels(KnownHistogram):
    """The mutant: labels of count zero are left out of a known domain."""

    def release(self, state: KnownHistogramState, tick: int, noise: Noise) -> LabelCounts:
        value = KnownHistogram.release(self, state, tick, noise)
        present = state.counts > 0
        return LabelCounts(value.labels.filter(pl.Series(present)), value.estimates[present])


@dataclass(frozen=True, kw_only=True)
class NoiseByArrival(UnknownHistogram):
    """The mutant: noise keyed by the order of arrival instead of the label."""

    def release(self, state: UnknownHistogramState, tick: int, noise: Noise) -> LabelCounts:
        class ByArrival:
            labels = state.index.labels

            @staticmethod
            def keys(start: int, end: int) -> Any:
                numbers = np.arange(start, end, dtype=np.uint64)
                return np.stack([numbers, numbers], axis=1)

        real, state.index = state.index, ByArrival()  # type: ignore[assignment]
        try:
            return UnknownHistogram.release(self, state, tick, noise)
        finally:
            state.index = real


@dataclass(frozen=True, kw_only=True)
class NoiseWhenBusy(Counter):
    """The mutant: a tick without events skips its noise."""

    def release(self, state: CounterState, tick: int, noise: Noise) -> int:
        return Counter.release(self, state, tick, noise) if state.total % 2 else state.total


MUTANTS: list[tuple[str, Mechanism[Any, Any, Any], Case]] = [
    ("half to even", HalfToEven(plan=HAAR), CASES["counter over haar"]),
    ("no cut of labels", UnboundedHistogram(plan=HAAR, domain=DOMAIN), CASES["known histogram over haar"]),
    ("only present labels", OnlyPresentLabels(plan=HAAR, domain=DOMAIN), CASES["known histogram over haar"]),
    (
        "noise by arrival",
        NoiseByArrival(plan=HAAR, delta=Fraction(1, 10)),
        CASES["unknown histogram over haar"],
    ),
    ("noise skipped", NoiseWhenBusy(plan=HAAR), CASES["counter over haar"]),
]


@pytest.mark.parametrize(
    ("mechanism", "case"), [mutant[1:] for mutant in MUTANTS], ids=[mutant[0] for mutant in MUTANTS]
)
def test_broken_mechanisms_are_caught(mechanism: Mechanism[Any, Any, Any], case: Case) -> None:
    assert problems_of(mechanism, case, 100, seed=32) != []


def test_a_sensitivity_of_two_is_caught() -> None:
    """An event that counts twice, as if labels of an event were not de-duplicated."""
    case = Case(Counter(plan=TreePlan.calibrated(horizon=6, rho=1.0)), as_events, always_shown=True)
    found = replay(
        case.mechanism,
        SeededNoise(1),
        [as_events([["a"], ["a"]])],
        [as_events([])],
        event_tick=1,
        event_labels=frozenset([""]),
        always_shown=True,
    )
    assert found != []


def test_a_label_shown_on_one_side_only_is_named() -> None:
    case = CASES["unknown histogram over haar"]
    found = replay(
        case.mechanism,
        SeededNoise(1),
        [as_labels([["a"]] * 60)],
        [as_labels([["b"]] * 60)],
        event_tick=1,
        event_labels=frozenset(),
        always_shown=False,
    )
    assert any("shown on one side only" in problem for problem in found)
