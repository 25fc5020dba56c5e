"""Neighboring streams that a plan can hardly tell apart less, the tight pairs of an audit; and many runs of both.

The streams differ by one event at one tick, which moves as many labels as an event may; everything else is equal. What
an event of tick j can give away is its column of C; the releases show it through the rows of B. With Gaussian nodes of
variances S the best attack on rows B reaches mu^2 = d' (B S B')^-1 d, d the ones from tick j on, plus 1/12 on the
diagonal where releases are rounded. It equals the column's cost if the rows determine the column's nodes.

A loss far below one shows only in very many runs. Then a group of events of the same tick is added instead of one: its
loss is that of one event times their number, by group privacy, and the bound found is divided by it.

*Runs.* Series of different labels have independent noise under one secret, which is what runs with fresh secrets have.
So a real histogram whose labels all have the same history is as many independent runs of one series, released by the
mechanism's own code in one vector. A run of an audit is a group of labels: those that the event holds and one bystander
that it does not, whose releases must be of no help. Half of the groups get the event.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.attack import Features, Seen
from pianissimo.counting import LabelCounts, MetaHistogram, UnknownHistogram
from pianissimo.errors import StateError
from pianissimo.noise import Noise
from pianissimo.noise.plan import NoisePlan, OwnVariance, is_pure, terms_of
from pianissimo.noise.running import OwnNoise

_ALL_TICKS = 32
"""Up to this horizon every release is looked at; beyond it, those that together show the event best."""

_MOST_TICKS = 40
_LARGEST_GROUP = 99
_ROUNDING = 1 / 12
_SHARE_SHOWN = 0.998


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A stream, the same without an event, and the releases that are looked at."""

    tick: int
    """Of the event."""

    ticks: tuple[int, ...]
    """The releases that are looked at, in order."""

    events: int = 1
    """How many equal events one stream has and the other has not: above one it is a group."""

    series: int = 1
    """How many labels each of these events holds."""

    units: int = 1
    """How much each of these events adds to each of its labels."""

    history: int = 0
    """How many events every label has in both streams before the first release."""

    is_tight: bool = False
    """Whether no other pair should show more."""

    @property
    def name(self) -> str:
        labels = "" if self.series == 1 else f" with {self.series} labels"
        return f"{events_text(self.events)}{labels} at tick {self.tick}"

    @property
    def added(self) -> int:
        """By how much the true count of a moved label differs in the end."""
        return self.events * self.units

    @property
    def magnitude(self) -> NDArray[np.float64]:
        """By how much the true count of a moved label differs at each release that is looked at."""
        return np.where(np.array(self.ticks) >= self.tick, float(self.added), 0.0)


def pairs_of(plan: NoisePlan, *, claim: float, series: int = 1, units: int = 1, history: int = 0) -> list[Pair]:
    """The tight pair of a plan first, then a single event at the first, an odd middle and the last tick.

    `claim` is the mu or epsilon of one event; if it is small, the tight pair is a group of events.
    """
    singles = dict.fromkeys([1, min((plan.horizon // 2) | 1, plan.horizon), plan.horizon])
    ticks = range(1, plan.horizon + 1) if plan.horizon <= _ALL_TICKS else [*singles, plan.horizon // 3 + 1]
    tightest = max(ticks, key=lambda tick: reachable_mu(plan, Pair(tick=tick, ticks=_candidate_ticks(plan, tick))))
    events = group_size(claim, pure=is_pure(plan))

    def pair(tick: int) -> Pair:
        return Pair(tick=tick, ticks=observed_ticks(plan, tick), series=series, units=units, history=history)

    others = [tick for tick in dict.fromkeys([tightest, *singles]) if (tick, events) != (tightest, 1)]
    return [replace(pair(tightest), events=events, is_tight=True), *map(pair, others)]


def events_text(number: int) -> str:
    """So many events, in words."""
    return "one event" if number == 1 else f"{number} events"


def group_size(claim: float, *, pure: bool) -> int:
    """How many events make a pair that so many runs tell apart well: odd, so that parities show too."""
    wanted, enough = (3.0, 2.0) if pure else (2.0, 1.5)
    if not claim < enough:
        return 1
    return round(wanted / claim) | 1 if claim * _LARGEST_GROUP > wanted else _LARGEST_GROUP


def observed_ticks(plan: NoisePlan, tick: int) -> tuple[int, ...]:
    """The releases that show an event of `tick`: all of a short plan; of a long one the few that show nearly as much.

    Nodes of a plan begin, bend and end at multiples of powers, so that the candidates are those around the event; they
    are taken one by one as long as the reachable mu grows.
    """
    if plan.horizon <= _ALL_TICKS:
        return tuple(range(1, plan.horizon + 1))
    candidates = _candidate_ticks(plan, tick)
    information = _information(plan, tick, candidates)
    enough = _SHARE_SHOWN * information(range(len(candidates)))
    chosen: list[int] = []
    while len(chosen) < _MOST_TICKS and (not chosen or information(chosen) < enough):
        rest = [place for place in range(len(candidates)) if place not in chosen]
        chosen.append(max(rest, key=lambda place: information([*chosen, place])))
    return tuple(sorted(candidates[place] for place in chosen))


def release_matrix(plan: NoisePlan, ticks: Sequence[int]) -> tuple[NDArray[np.float64], list[tuple[int, int]]]:
    """The rows of B at these ticks, and the nodes (level, node) of its columns."""
    rows = [{(term.level, term.node): term.weight for term in terms_of(plan, tick)} for tick in ticks]
    nodes = list(dict.fromkeys(node for row in rows for node in row))
    places = {node: place for place, node in enumerate(nodes)}
    matrix = np.zeros((len(rows), len(nodes)))
    for number, row in enumerate(rows):
        for node, weight in row.items():
            matrix[number, places[node]] = weight / 2.0**plan.shift
    return matrix, nodes


def reachable_mu(plan: NoisePlan, pair: Pair) -> float:
    """The mu that the best linear attack on this pair can show of one event, given any number of runs."""
    information = _information(plan, pair.tick, pair.ticks)
    return pair.units * math.sqrt(pair.series * information(range(len(pair.ticks))))


@dataclass(frozen=True, slots=True)
class ShownNodes:
    """The nodes of an event's column as the releases show them."""

    inverse: NDArray[np.float64]
    """From releases to node sums: exact where the releases determine them, else their best linear estimate."""

    shifts: NDArray[np.float64]
    """By how much one unit moves each, as seen."""

    prices: NDArray[np.float64]
    """What a move by one costs at each: 1 / scale."""


def shown_nodes(plan: NoisePlan, pair: Pair) -> ShownNodes:
    """What of an event's column in a Laplace plan can be computed back from the releases."""
    matrix, nodes = release_matrix(plan, pair.ticks)
    inverse: NDArray[np.float64] = np.linalg.pinv(matrix).astype(np.float64)
    unknown = np.abs(inverse @ matrix - np.eye(len(nodes))).max(axis=1) > 1e-6
    variances = np.array([float(plan.noises[level].variance) for level, _ in nodes])
    covariance = matrix * variances @ matrix.T + _ROUNDING * np.eye(len(matrix))
    estimate = np.linalg.solve(covariance, matrix * variances).T
    inverse[unknown] = estimate[unknown]
    column = {(term.level, term.node) for term in plan.influence(pair.tick)}
    found = [place for place, node in enumerate(nodes) if node in column]
    return ShownNodes(
        inverse=inverse[found],
        shifts=inverse[found] @ pair.magnitude / pair.added,
        prices=np.array([float(plan.noises[nodes[place][0]].price(1)) for place in found]),
    )


def _information(plan: NoisePlan, tick: int, ticks: Sequence[int]) -> Callable[[Sequence[int]], float]:
    """For some of these releases, given by their places, the mu^2 that they show of an event."""
    covariance = _covariance(plan, ticks)
    covariance += (_ROUNDING if plan.shift else 1e-12 * float(np.trace(covariance))) * np.eye(len(ticks))
    moved = np.array(ticks) >= tick

    def information(places: Sequence[int]) -> float:
        shift = moved[places].astype(np.float64)
        return max(0.0, float(shift @ np.linalg.solve(covariance[np.ix_(places, places)], shift)))

    return information


def _covariance(plan: NoisePlan, ticks: Sequence[int]) -> NDArray[np.float64]:
    if isinstance(plan, OwnVariance):
        own = [float(plan.difference_variance(0, tick)) for tick in ticks]
        covariance = np.diag(own)
        for place, other in combinations(range(len(ticks)), 2):
            apart = float(plan.difference_variance(*sorted((ticks[place], ticks[other]))))
            covariance[place, other] = covariance[other, place] = (own[place] + own[other] - apart) / 2
        return covariance
    matrix, nodes = release_matrix(plan, ticks)
    variances = np.array([float(plan.noises[level].variance) for level, _ in nodes])
    product: NDArray[np.float64] = matrix * variances @ matrix.T
    return product


def _candidate_ticks(plan: NoisePlan, tick: int) -> tuple[int, ...]:
    """All ticks of a short plan; of a long one the multiples of powers around the event."""
    if plan.horizon <= 2 * _ALL_TICKS:
        return tuple(range(1, plan.horizon + 1))
    first, last, place = plan.position(1), plan.position(plan.horizon), plan.position(tick)
    positions = {first, last, place - 1, place, plan.position(plan.horizon - 1)}
    for base in {2, int(getattr(plan, "base", 2))}:
        size = 1
        while size <= last:
            begin = (place - 1) // size * size
            positions.update(range(begin - 2 * size, begin + 4 * size, size))
            size *= base
    ticks = range(1, plan.horizon + 1)
    # The first tick whose release takes this row or a later one.
    found = {1 + bisect_left(ticks, row, key=plan.position) for row in positions if first <= row <= last}
    return tuple(sorted(found))


Histogram = Any
"""What counts labels and is released like a histogram."""

HistogramOf = Callable[[pl.Series], Histogram]
"""The mechanism under audit, with these labels for its domain."""

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
    """So many runs of both streams of a pair, in batches that fit in memory."""
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
    """So many labels, in the order of their bytes."""
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
    """The same of a mechanism that is sound by construction: numpy's Laplace noise, put together by the plan's rows."""
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


def _repeated(histogram: Any, state: Any, events: pl.Series, times: int) -> Any:
    """The state after so many equal batches: by doubling, so that long histories are no work."""
    for place, bit in enumerate(f"{times:b}"):
        if place:
            state = histogram.merge(state, state)
        if bit == "1":
            histogram.update(state, events)
    return state


def features_of(values: NDArray[np.int64], history: int, shown: NDArray[np.bool_] | None = None) -> Features:
    """Of each run the sum of the labels over their history, the bystander, the parities, and how many are shown."""
    counted = values - history
    parts = [counted[:, :-1].sum(axis=1), counted[:, -1], (1 - 2 * (values[:, :-1] & 1)).sum(axis=1)]
    if shown is not None:
        parts.append(shown[:, :-1].sum(axis=1))
    return np.concatenate(parts, axis=1, dtype=np.float32, casting="unsafe")


def _seen(values: NDArray[np.int64], shown: NDArray[np.bool_] | None, pair: Pair, nodes: ShownNodes | None) -> Seen:
    features = features_of(values, pair.history, shown)
    if nodes is None:
        return Seen(features)
    sums = (values[:, :-1] - pair.history) @ nodes.inverse.T
    ratios = (np.abs(sums) - np.abs(sums - pair.added * nodes.shifts)) @ nodes.prices
    return Seen(features, ratios.sum(axis=1))


def _joined(parts: list[Seen]) -> Seen:
    scores = [part.scores for part in parts if part.scores is not None]
    return Seen(np.concatenate([part.features for part in parts]), np.concatenate(scores) if scores else None)
