"""The noise of a plan for many series at once: from nothing, or release after release."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pianissimo import _core
from pianissimo.errors import InputError
from pianissimo.noise.keyed import Integers, Keys, Noise, add_draws, sealed
from pianissimo.noise.plan import NoisePlan, difference_weights

Array = TypeVar("Array", bound=np.ndarray[Any, Any])

_LONGEST_WALK = 24
"""From how many positions on it is cheaper to start anew than to walk."""

_CHUNK = 65_536
"""Series drawn at once: their keys are made as they are needed and never held for all series."""

_MOST_NEAR = 12
"""Of so many positions the weights are kept at hand."""

ONE_SERIES: Keys = np.zeros((1, 2), dtype=np.uint64)
"""The item key of a series that stands alone."""

Node = tuple[int, int]
"""A level and the number of a node in it."""

KeyRange = Callable[[int, int], Keys]
"""The item keys of the series from one number up to another."""


def series_keys(start: int, end: int) -> Keys:
    """The item keys of series that have no name but their number."""
    keys = np.zeros((end - start, 2), dtype=np.uint64)
    keys[:, 0] = np.arange(start, end)
    return keys


class RunningNoise(Protocol):
    """The noise of a growing list of series, release after release."""

    def at(self, noise: Noise, tick: int, count: int, keys: KeyRange) -> NDArray[np.int64]:
        """Numerators of the noise at `tick` for the first `count` series; `keys(a, b)` gives those from a up to b."""

    def since(
        self, noise: Noise, start: int, end: int, keys: Keys, slots: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        """The noise of release `end` less that of `start`, as `evaluate` has it, without drawing again what is at hand.

        For the first series, or for those of some slots.
        """


@runtime_checkable
class OwnNoise(Protocol):
    """A plan whose weights are not over a power of two: it brings its own exact noise, in the forms of this module."""

    def evaluate(self, noise: Noise, tick: int, keys: Keys, *, since: int = 0) -> NDArray[np.int64]:
        """As the function of this name."""

    def running_noise(self) -> RunningNoise:
        """As the function of this name."""


def evaluate(plan: NoisePlan, noise: Noise, tick: int, keys: Keys, *, since: int = 0) -> NDArray[np.int64]:
    """The noise of one release for each key, from nothing, less that of release `since`: numerators over 2^shift."""
    if isinstance(plan, OwnNoise):
        return plan.evaluate(noise, tick, keys, since=since)
    total = np.zeros(len(keys), dtype=np.int64)
    _add_nodes(plan, noise, difference_weights(plan, since, tick), keys, total)
    return total


def _add_nodes(
    plan: NoisePlan, noise: Noise, weights: Mapping[Node, int], keys: Keys, total: NDArray[np.int64]
) -> None:
    """Add the weighted noises of some nodes, drawn in one pass over the keys."""
    draws = [
        (
            sealed(noise, plan.bound_tick(*node)).at(*node),
            plan.noises[node[0]].kind,
            plan.noises[node[0]].parameter,
            weight,
        )
        for node, weight in sorted(weights.items())
    ]
    add_draws(draws, keys, total)


def rounded(counts: NDArray[np.int64], numerators: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
    """counts + floor(numerators / 2^shift + 1/2): no other rounding is private (docs/privacy.md, 'Rounding')."""
    return _core.release(counts, numerators, shift)


_LARGEST_ANSWER = 2**62


def check_answers(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums as they are released, if they are below 2^62 steps in size.

    Exact totals wrap at 64 bits and are never refused: what comes out is then the answer of unbounded whole numbers
    modulo 2^64, a function of that answer. This refusal is one too, as it looks at what is released.
    """
    if values.size and not max(int(values.max()), -int(values.min())) < _LARGEST_ANSWER:
        raise InputError("a sum must stay below 2^62 steps of its grid, got more; start anew with a coarser grid")
    return values


def wrapped(total: int) -> int:
    """A whole number as 64 bits hold it.

    >>> wrapped(2**63) == -(2**63)
    True
    """
    return (total + 2**63) % 2**64 - 2**63


def running_noise(plan: NoisePlan) -> RunningNoise:
    """The noise of a plan for a growing list of series, release after release."""
    return plan.running_noise() if isinstance(plan, OwnNoise) else PlanNoise(plan)


class PlanNoise:
    """The noise of a growing list of series, release after release, with what the next tick needs kept at hand.

    Over time the weights of a node are pieces of low degree, so the k-th difference of the noise over positions is a
    sum over the few nodes that begin, bend or end. Kept per series: the noise, its first k - 1 differences and the
    values of the nodes in use. It is a cache: dropped at any time, it is made anew by `evaluate`'s arithmetic, with
    equal results.
    """

    def __init__(self, plan: NoisePlan) -> None:
        self._plan = plan
        self._last = plan.position(plan.horizon)
        self._noise: Noise | None = None
        self._position = 0
        self._count = 0
        self._rows: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64) for _ in range(plan.smoothness)]
        self._nodes: dict[Node, Integers] = {}
        self._near: dict[int, dict[Node, int]] = {}
        self._types = [np.promote_types(np.int16, np.min_scalar_type(-1 - noise.bound)) for noise in plan.noises]

    def at(self, noise: Noise, tick: int, count: int, keys: KeyRange) -> NDArray[np.int64]:
        position = self._plan.position(tick)
        if noise is not self._noise or not 0 <= position - self._position <= _LONGEST_WALK:
            self._count = 0
            self._nodes.clear()
        # Until all is done the cache belongs to no noise: an interrupted step is never taken for a finished one.
        self._noise = None
        while self._count and self._position < position:
            self._step(noise, keys)
        self._position = position
        if count > self._count:
            self._extend(noise, count, keys)
        self._noise = noise
        return self._rows[0][:count]

    def since(
        self, noise: Noise, start: int, end: int, keys: Keys, slots: NDArray[np.int64] | None = None
    ) -> NDArray[np.int64]:
        count = len(keys) if slots is None else int(slots.max(initial=-1)) + 1
        if noise is not self._noise or self._plan.position(end) != self._position or count > self._count:
            return evaluate(self._plan, noise, end, keys, since=start)
        # The noise of the end is at hand, and so are the nodes that the start has in common with it.
        weights = {node: -weight for node, weight in difference_weights(self._plan, 0, start).items()}
        kept = {node: weights.pop(node) for node in sorted(weights.keys() & self._nodes.keys())}
        places = slice(0, count) if slots is None else slots
        total: NDArray[np.int64] = self._rows[0][places].copy()
        for first in range(0, len(total), _CHUNK):
            some = slice(first, min(first + _CHUNK, len(total)))
            for node, weight in kept.items():
                _core.add_scaled(total[some], weight, self._nodes[node][some if slots is None else slots[some]])
        _add_nodes(self._plan, noise, weights, keys, total)
        return total

    def _step(self, noise: Noise, keys: KeyRange) -> None:
        """From one position to the next, for the series there are."""
        count, rows = self._count, self._rows
        for lower, upper in pairwise(rows):
            np.add(lower[:count], upper[:count], out=lower[:count])
        # The last of the rows changes by the next difference.
        changes = self._difference_weights(self._position, len(rows))
        for node in sorted(node for node, change in changes.items() if change):
            if node not in self._nodes:
                values: Integers = np.empty(len(rows[0]), dtype=self._types[node[0]])
                self._draw(noise, node, keys, 0, values[:count])
                self._nodes[node] = values
            _core.add_scaled(rows[-1][:count], changes[node], self._nodes[node][:count])
        # All that are kept are of this position or of those that the rows look ahead to.
        ended = set(self._weights(self._position))
        self._position += 1
        for step in range(len(rows)):
            ended -= self._weights(self._position + step).keys()
        for node in ended:
            self._nodes.pop(node, None)

    def _extend(self, noise: Noise, count: int, keys: KeyRange) -> None:
        """More series, as of the present position."""
        start = self._count
        self._rows = [_grown(row, start, count) for row in self._rows]
        for row in self._rows:
            row[start:count] = 0
        weights = [self._difference_weights(self._position, order) for order in range(len(self._rows))]
        for node in sorted(set().union(*weights)):
            kept = self._nodes.get(node, np.empty(0, dtype=self._types[node[0]]))
            values = self._nodes[node] = _grown(kept, start, count)
            self._draw(noise, node, keys, start, values[start:count])
            for row, weight in zip(self._rows, weights, strict=True):
                _core.add_scaled(row[start:count], weight.get(node, 0), values[start:count])
        self._count = count

    def _draw(self, noise: Noise, node: Node, keys: KeyRange, start: int, out: Integers) -> None:
        """The noise of a node for the series from `start` on."""
        place, law = sealed(noise, self._plan.bound_tick(*node)).at(*node), self._plan.noises[node[0]]
        for first in range(0, len(out), _CHUNK):
            last = min(first + _CHUNK, len(out))
            law.draw(place, keys(start + first, start + last), out[first:last])

    def _difference_weights(self, position: int, order: int) -> dict[Node, int]:
        """What each node weighs in the `order`-th difference of the noise: N(p), N(p+1) - N(p), and so on."""
        weights: dict[Node, int] = {}
        factor = (-1) ** order
        for step in range(order + 1):
            for node, weight in self._weights(position + step).items():
                weights[node] = weights.get(node, 0) + factor * weight
            factor = -factor * (order - step) // (step + 1)
        return weights

    def _weights(self, position: int) -> dict[Node, int]:
        """What each node weighs at a position, kept while the present one is near: a step asks several times."""
        if position not in self._near:
            if len(self._near) > _MOST_NEAR:
                self._near.clear()
            found = self._near[position] = dict[Node, int]()
            for level, node, weight in self._plan.terms_at(position) if 1 <= position <= self._last else ():
                found[level, node] = found.get((level, node), 0) + weight
        return self._near[position]


def _grown(array: Array, filled: int, count: int) -> Array:
    """The array with room for `count`, its first `filled` values kept; it grows by half so that growing stays cheap."""
    if len(array) >= count:
        return array
    room = max(count, filled + filled // 2)
    larger = cast(Array, np.empty((room, *array.shape[1:]), dtype=array.dtype))
    larger[:filled] = array[:filled]
    return larger
