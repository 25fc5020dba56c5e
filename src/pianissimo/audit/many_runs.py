"""A hundred thousand runs of a histogram or a counter at once: every label is a run.

Series of different labels have independent noise under one secret, which is what runs with fresh secrets have. So a
real histogram whose labels all have the same history is as many independent runs of one series, released by the
mechanism's own code in one vector. A run of an audit is a group of labels: those that the event holds and one bystander
that it does not, whose releases must be of no help. Half of the groups get the event.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.attack import Seen
from pianissimo.audit.pairs import Pair, ShownNodes, release_matrix, shown_nodes
from pianissimo.counting import LabelCounts, MetaHistogram, UnknownHistogram
from pianissimo.errors import StateError
from pianissimo.labels import LabelIndex
from pianissimo.mechanism import Mechanism
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Integers, Keys, OuterNoise, PathPart
from pianissimo.noise.plan import NoisePlan, is_pure
from pianissimo.noise.running import OwnNoise

Histogram = Any
"""What counts labels and is released like a histogram."""

HistogramOf = Callable[[pl.Series], Histogram]
"""The mechanism under audit, with these labels for its domain."""

FEATURES_PER_TICK = 3
"""The labels' sum, the bystander, the labels' parities."""

_MOST_LABELS = 500_000
_MOST_VALUES = 16_000_000


@dataclass(frozen=True, slots=True)
class AuditBatch:
    """Releases of some runs: worlds (without, with the event), runs, labels (the bystander last), ticks."""

    values: NDArray[np.int64]
    """What is shown; one less than the least that would be, where nothing is."""

    shown: NDArray[np.bool_]
    noise: Noise
    """Of this batch."""


def observe(histogram_of: HistogramOf, plan: NoisePlan, pair: Pair, runs: int, noise: Noise) -> Iterator[AuditBatch]:
    """So many runs of both streams of a pair, in batches that fit in memory.

    >>> from pianissimo.noise import TreePlan
    >>> from pianissimo.counting import KnownHistogram
    >>> from pianissimo.labels import Domain
    >>> from pianissimo.testing import NoNoise
    >>> plan = TreePlan.calibrated(horizon=2, rho=0.5)
    >>> make = lambda labels: KnownHistogram(plan=plan, domain=Domain(labels))
    >>> (batch,) = observe(make, plan, Pair(tick=2, ticks=(1, 2), history=5), 1, NoNoise())
    >>> batch.values[:, 0].tolist()
    [[[5, 5], [5, 5]], [[5, 6], [5, 5]]]
    """
    members = pair.series + 1
    kept = pair.ticks[-1] if isinstance(plan, OwnNoise) else len(pair.ticks)
    largest = max(1, min(_MOST_LABELS, _MOST_VALUES // kept) // (2 * members))
    for number, start in enumerate(range(0, runs, largest)):
        size = min(largest, runs - start)
        below = noise.at("runs", number)
        labels = texts(2 * size * members)
        moved = np.arange(len(labels)).reshape(2, size, members)[1, :, :-1]
        values, shown = release_all(histogram_of(labels), pair, labels, moved, below)
        shape = (2, size, members, len(pair.ticks))
        yield AuditBatch(values.reshape(shape), shown.reshape(shape), below)


def release_all(
    histogram: Histogram, pair: Pair, labels: pl.Series, moved: NDArray[np.int64], noise: Noise
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """What a histogram shows of each label at each tick, where rows of `moved` are the labels of an event."""
    mechanism: Any = histogram
    state = mechanism.start(noise)
    if pair.history:
        state = _repeated(mechanism, state, labels, pair.history)
        if not isinstance(histogram, MetaHistogram) and not bool((state.counts == pair.history).all()):
            raise StateError("labels of an audit must have equal histories, got others")
    events = labels.gather(moved.ravel()).reshape(moved.shape).cast(pl.List(pl.String))
    values = np.empty((len(labels), len(pair.ticks)), dtype=np.int64)
    shown = np.zeros(values.shape, dtype=np.bool_)
    waiting = True
    for place, tick in enumerate(pair.ticks):
        if waiting and tick >= pair.tick:
            waiting = False
            if pair.added == 1:
                mechanism.update(state, events)
            else:
                state = mechanism.merge(state, _repeated(mechanism, mechanism.start(noise), events, pair.added))
        release: LabelCounts = mechanism.release(state, tick, noise)
        rows = places_of(release)
        values[:, place] = histogram.threshold(tick) - 1 if isinstance(histogram, UnknownHistogram) else 0
        values[rows, place] = release.estimates
        shown[rows, place] = True
    return values, shown


def texts(count: int) -> pl.Series:
    """So many labels, in the order of their bytes.

    >>> texts(2).to_list()
    ['000000000', '000000001']
    """
    return pl.Series(np.arange(count)).cast(pl.String).str.zfill(9)


def places_of(release: LabelCounts) -> NDArray[np.int64]:
    """Which of the labels of `texts` a release shows."""
    return release.labels.cast(pl.Int64).to_numpy()


def seen(histogram_of: HistogramOf, plan: NoisePlan, pair: Pair, runs: int, noise: Noise) -> tuple[Seen, Seen]:
    """What an attacker sees of both streams: releases of the labels and of the bystander, and their parities.

    Over a Laplace plan it comes with the log-likelihood ratio of the node sums, computed back from the releases.
    """
    nodes = shown_nodes(plan, pair) if is_pure(plan) else None
    may_hide = isinstance(histogram_of(texts(2)), UnknownHistogram)
    worlds: tuple[list[Seen], list[Seen]] = ([], [])
    for batch in observe(histogram_of, plan, pair, runs, noise):
        for world, found in enumerate(worlds):
            shown = batch.shown[world] if may_hide else None
            found.append(_seen(batch.values[world], shown, pair, nodes))
    return _joined(worlds[0]), _joined(worlds[1])


def reference(plan: NoisePlan, pair: Pair, runs: int) -> tuple[Seen, Seen]:
    """The same of a mechanism that is sound by construction: Laplace noise from numpy, put together by the plan's rows.

    >>> from pianissimo.noise import TreePlan
    >>> plan = TreePlan.calibrated(horizon=2, epsilon=1.0)
    >>> len(reference(plan, Pair(tick=1, ticks=(1, 2)), 10)[0])
    10
    """
    matrix, places = release_matrix(plan, pair.ticks)
    nodes = shown_nodes(plan, pair)
    chances = np.array([-math.expm1(-float(plan.noises[level].price(1))) for level, _ in places])
    random = np.random.default_rng(0)
    found = []
    for world in range(2):
        shape = (runs, pair.series, len(places))
        noise = (random.geometric(chances, shape) - random.geometric(chances, shape)) @ matrix.T
        # The bystander, which is of no help, goes without noise.
        values = np.full((runs, pair.series + 1, len(pair.ticks)), pair.history, dtype=np.int64)
        values[:, :-1] += np.floor(noise + world * pair.magnitude + 0.5).astype(np.int64)
        found.append(_seen(values, None, pair, nodes))
    return found[0], found[1]


def check_against(
    mechanism: Mechanism[Any, Any, int], batch_of: Callable[[int], Any], pair: Pair, batch: AuditBatch, runs: int = 8
) -> None:
    """Refuse a batch if the mechanism itself, run by run with the same noise, does not release the same values.

    `batch_of(n)` is a batch that adds n. For mechanisms of one series, whose runs are made through a histogram.
    """
    size, members = batch.values.shape[1:3]
    labels = texts(2 * size * members)
    for world in range(2):
        for run in range(min(runs, size)):
            index = LabelIndex(batch.noise)
            index.slots_or_new(labels[(world * size + run) * members :][:1])
            noise = _OneSeries(batch.noise, index.keys_from(0))
            state = mechanism.start(noise)
            mechanism.update(state, batch_of(pair.history))
            waiting = world == 1
            for tick, expected in zip(pair.ticks, batch.values[world, run, 0], strict=True):
                if waiting and tick >= pair.tick:
                    waiting = False
                    mechanism.update(state, batch_of(pair.added))
                if mechanism.release(state, tick, noise) != expected:
                    raise StateError(
                        f"a {type(mechanism).__name__} must release what its plan's noise gives, got other values; "
                        "it cannot be audited through a histogram"
                    )


class _OneSeries(OuterNoise):
    """The noise of one label, whatever key is asked for."""

    def __init__(self, inner: Noise, key: Keys) -> None:
        super().__init__(inner)
        self._key = key

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.inner.at(*path), self._key)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self.inner.draw(law, parameter, self._same(keys), out)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        return self.inner.bits(self._same(keys))

    def _same(self, keys: Keys) -> Keys:
        return np.repeat(self._key, len(keys), axis=0)


def _repeated(histogram: Any, state: Any, events: pl.Series, times: int) -> Any:
    """The state after so many equal batches: by doubling, so that long histories are no work."""
    for place, bit in enumerate(f"{times:b}"):
        if place:
            state = histogram.merge(state, state)
        if bit == "1":
            histogram.update(state, events)
    return state


def _seen(values: NDArray[np.int64], shown: NDArray[np.bool_] | None, pair: Pair, nodes: ShownNodes | None) -> Seen:
    counted = values - pair.history
    moved, bystander = counted[:, :-1], counted[:, -1]
    parts = [moved.sum(axis=1), bystander, (1 - 2 * (values[:, :-1] & 1)).sum(axis=1)]
    if shown is not None:
        parts.append(shown[:, :-1].sum(axis=1))
    features = np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe")
    if nodes is None:
        return Seen(features)
    sums = moved @ nodes.inverse.T
    ratios = (np.abs(sums) - np.abs(sums - pair.added * nodes.shifts)) @ nodes.prices
    return Seen(features, ratios.sum(axis=1))


def _joined(parts: list[Seen]) -> Seen:
    scores = [part.scores for part in parts if part.scores is not None]
    return Seen(np.concatenate([part.features for part in parts]), np.concatenate(scores) if scores else None)
