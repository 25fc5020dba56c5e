"""Neighboring streams that a plan can hardly tell apart less: the tight pairs of an audit.

The streams differ by one event at one tick, which moves as many labels as an event may; everything else is equal. What
an event of tick j can give away is its column of C; the releases show it through the rows of B. With Gaussian nodes of
variances S the best attack on rows B reaches mu^2 = d' (B S B')^-1 d, d the ones from tick j on, plus 1/12 on the
diagonal where releases are rounded. It equals the column's cost if the rows determine the column's nodes.

A loss far below one shows only in very many runs. Then a group of events of the same tick is added instead of one: its
loss is that of one event times their number, by group privacy, and the bound found is divided by it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pianissimo.noise.plan import NoisePlan, OwnVariance, is_pure, terms_of

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
        """What it is called in reports."""
        number = "one event" if self.events == 1 else f"{self.events} events"
        labels = "" if self.series == 1 else f" with {self.series} labels"
        return f"{number}{labels} at tick {self.tick}"

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

    >>> from pianissimo.noise import HaarPlan
    >>> [pair.name for pair in pairs_of(HaarPlan.calibrated(horizon=16, rho=2.0), claim=2.0)]
    ['one event at tick 1', 'one event at tick 9', 'one event at tick 16']
    """
    singles = dict.fromkeys([1, min((plan.horizon // 2) | 1, plan.horizon), plan.horizon])
    ticks = range(1, plan.horizon + 1) if plan.horizon <= _ALL_TICKS else [*singles, plan.horizon // 3 + 1]
    tightest = max(ticks, key=lambda tick: _reach(plan, tick))
    events = group_size(claim, pure=is_pure(plan))

    def pair(tick: int) -> Pair:
        return Pair(tick=tick, ticks=observed_ticks(plan, tick), series=series, units=units, history=history)

    others = [tick for tick in dict.fromkeys([tightest, *singles]) if (tick, events) != (tightest, 1)]
    return [replace(pair(tightest), events=events, is_tight=True), *map(pair, others)]


def group_size(claim: float, *, pure: bool) -> int:
    """How many events make a pair that so many runs tell apart well: odd, so that parities show too.

    >>> [group_size(claim, pure=False) for claim in (2.0, 1.0, 0.2, 0.001)]
    [1, 3, 11, 99]
    """
    wanted, enough = (3.0, 2.0) if pure else (2.0, 1.5)
    if not claim < enough:
        return 1
    return round(wanted / claim) | 1 if claim * _LARGEST_GROUP > wanted else _LARGEST_GROUP


def observed_ticks(plan: NoisePlan, tick: int) -> tuple[int, ...]:
    """The releases that show an event of `tick`: all of a short plan; of a long one the few that show nearly as much.

    Nodes of a plan begin, bend and end at multiples of powers, so that the candidates are those around the event; they
    are taken one by one as long as the reachable mu grows.

    >>> from pianissimo.noise import HaarPlan
    >>> observed_ticks(HaarPlan.calibrated(horizon=1024, rho=0.5), 1)
    (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
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
    """The rows of B at these ticks, and the nodes (level, node) of its columns.

    >>> from pianissimo.noise import TreePlan
    >>> release_matrix(TreePlan.calibrated(horizon=3, rho=0.5, base=2), [1, 2, 3])[1]
    [(0, 1), (1, 1), (0, 3)]
    """
    rows = [{(term.level, term.node): term.weight for term in terms_of(plan, tick)} for tick in ticks]
    nodes = list(dict.fromkeys(node for row in rows for node in row))
    places = {node: place for place, node in enumerate(nodes)}
    matrix = np.zeros((len(rows), len(nodes)))
    for number, row in enumerate(rows):
        for node, weight in row.items():
            matrix[number, places[node]] = weight / 2.0**plan.shift
    return matrix, nodes


def reachable_mu(plan: NoisePlan, pair: Pair) -> float:
    """The mu that the best linear attack on this pair can show of one event, given any number of runs.

    >>> from pianissimo.noise import TreePlan
    >>> plan = TreePlan.calibrated(horizon=6, rho=2.0)
    >>> [round(reachable_mu(plan, pair), 3) for pair in pairs_of(plan, claim=2.0)]
    [2.0, 1.633, 1.155]
    """
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
    """What of an event's column in a Laplace plan can be computed back from the releases.

    >>> from pianissimo.noise import TreePlan
    >>> plan = TreePlan.calibrated(horizon=6, epsilon=1.0, base=2)
    >>> shown_nodes(plan, pairs_of(plan, claim=1.0)[0]).shifts.round(6)
    array([1., 1., 1.])
    """
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


def _reach(plan: NoisePlan, tick: int) -> float:
    ticks = _candidate_ticks(plan, tick)
    return reachable_mu(plan, Pair(tick=tick, ticks=tuple(ticks)))


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


def _candidate_ticks(plan: NoisePlan, tick: int) -> list[int]:
    """All ticks of a short plan; of a long one the multiples of powers around the event."""
    if plan.horizon <= 2 * _ALL_TICKS:
        return list(range(1, plan.horizon + 1))
    first, last, place = plan.position(1), plan.position(plan.horizon), plan.position(tick)
    positions = {first, last, place - 1, place, plan.position(plan.horizon - 1)}
    for base in {2, int(getattr(plan, "base", 2))}:
        size = 1
        while size <= last:
            begin = (place - 1) // size * size
            positions.update(range(begin - 2 * size, begin + 4 * size, size))
            size *= base
    return sorted({_tick_at(plan, position) for position in positions if first <= position <= last})


def _tick_at(plan: NoisePlan, position: int) -> int:
    """The first tick whose release takes this row or a later one."""
    low, high = 1, plan.horizon
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if plan.position(middle) >= position else (middle + 1, high)
    return low
