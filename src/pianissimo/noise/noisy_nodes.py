"""Node sums that never stand without their noise: what is kept of a stream whose thief shall learn nothing more.

A plan releases floor((B y)_t + 1/2) with y = C x + z (`noise_plan`). Counters keep the exact totals h = M x and draw
z when it is asked for. Here y itself is kept: the noise of a node is drawn before its first event is counted, events
are added to the noisy sums, and nothing else stays. A release is a weighted sum of what is kept, equal in every bit to
the total plus its noise.

Whoever sees the sums between two ticks sees coordinates of y, which is what the plan's promise is about: releases are
functions of it (docs/privacy.md, 'Forward secrecy'). The noise is not in the state by itself; where the key that it was
drawn from is gone, nobody can take it off again. The price: one number for each open node and series, where a node is
open from the first event or release that touches it to the last release that uses it.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError, ParameterError, StateError
from pianissimo.noise.keyed import Noise, sealed
from pianissimo.noise.plan import NoisePlan, Term, terms_of
from pianissimo.noise.running import KeyRange, rounded

LARGEST_SUM = 2**61
_LARGEST_NUMERATOR = 2**62
_CHUNK = 65_536

Node = tuple[int, int]
"""Its level and its number."""


@runtime_checkable
class ShortLived(Protocol):
    """A plan that knows when its nodes are done with."""

    def last_use(self, level: int, node: int) -> int:
        """The last release that a node enters, or a later one; 0 if it enters none."""

    @property
    def open_nodes(self) -> int:
        """No more nodes are open at a time."""


class OpenPlan(NoisePlan, ShortLived, Protocol):
    """A plan whose nodes begin and end."""


class NodeSums:
    """The noisy sums of a plan's open nodes, for a fixed list of series.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.testing import NoNoise
    >>> sums, keys = NodeSums(HaarPlan.calibrated(horizon=8, rho=0.5), 1), lambda *_: np.zeros((1, 2), np.uint64)
    >>> sums.add(NoNoise(), keys, np.array([0]), np.array([5]))
    >>> sums.release(NoNoise(), keys)
    array([5])
    """

    def __init__(self, plan: OpenPlan, size: int) -> None:
        self._plan = plan
        self._size = size
        self._tick = 0
        self._begun = 0
        self._nodes: dict[Node, NDArray[np.int64]] = {}
        self._column: tuple[int, Sequence[Term]] = (0, ())

    @property
    def nodes(self) -> list[Node]:
        """Which nodes are open: public, a function of the tick."""
        return sorted(self._nodes)

    def add(self, noise: Noise, keys: KeyRange, slots: NDArray[np.int64], amounts: NDArray[np.int64]) -> None:
        """Count amounts of the open tick at distinct slots, or nothing if a sum would leave its bounds."""
        self._begin(noise, keys)
        if not len(slots):
            return
        largest = max(int(amounts.max()), -int(amounts.min()))
        moved: list[tuple[Node, NDArray[np.int64]]] = []
        for level, node, weight in self._influence():
            values = self._nodes.get((level, node))
            if values is None or not weight:
                continue
            if not largest * abs(weight) < LARGEST_SUM:
                raise too_large()
            after = values[slots] + weight * amounts
            if not (int(after.max()) < LARGEST_SUM and -int(after.min()) < LARGEST_SUM):
                raise too_large()
            moved.append(((level, node), after))
        for place, after in moved:
            self._nodes[place][slots] = after

    def release(self, noise: Noise, keys: KeyRange) -> NDArray[np.int64]:
        """What is published at the open tick, which ends."""
        self._begin(noise, keys)
        tick, plan = self._tick + 1, self._plan
        terms = [(self._nodes[level, node], weight) for level, node, weight in terms_of(plan, tick) if weight]
        result = _weighted(terms, plan.shift, self._size)
        self._tick = tick
        for node in self.nodes:
            if plan.last_use(*node) <= tick:
                del self._nodes[node]
        return result

    def _begin(self, noise: Noise, keys: KeyRange) -> None:
        """Draw the nodes that the open tick is the first to touch and that a release is still to use."""
        tick, plan = self._tick + 1, self._plan
        if self._begun == tick:
            return
        touched = {(term.level, term.node) for term in (*self._influence(), *terms_of(plan, tick)) if term.weight}
        for level, node in sorted(touched - self._nodes.keys()):
            if plan.last_use(level, node) >= tick:
                # Never bound to a later tick than the one before the node's first: this is when it is drawn.
                place, law = sealed(noise, self._tick).at(level, node), plan.noises[level]
                values = np.empty(self._size, dtype=np.int64)
                for first in range(0, self._size, _CHUNK):
                    last = min(first + _CHUNK, self._size)
                    law.draw(place, keys(first, last), values[first:last])
                self._nodes[level, node] = values
        self._begun = tick

    def _influence(self) -> Sequence[Term]:
        """How an event of the open tick moves the nodes."""
        if self._column[0] != self._tick + 1:
            self._column = (self._tick + 1, self._plan.influence(self._tick + 1))
        return self._column[1]

    def to_plain(self) -> codec.Plain:
        """Its content as plain data."""
        nodes = [[level, node, values] for (level, node), values in sorted(self._nodes.items())]
        return {"tick": self._tick, "begun": self._begun, "nodes": nodes}

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content."""
        nodes = {(level, node): np.array(values, dtype=np.int64) for level, node, values in content["nodes"]}
        if any(len(values) != self._size for values in nodes.values()):
            raise StateError("stored sums must be of this many series, got another number")
        self._tick, self._begun, self._nodes = content["tick"], content["begun"], nodes

    def __repr__(self) -> str:
        return f"NodeSums(nodes={len(self._nodes)}, series={self._size})"


def _weighted(terms: list[tuple[NDArray[np.int64], int]], shift: int, size: int) -> NDArray[np.int64]:
    """floor(sum of weight * value / 2^shift + 1/2), in 64 bits where that is enough."""
    zero = np.zeros(size, dtype=np.int64)
    reach = sum(abs(weight) * max(int(values.max()), -int(values.min()), 1) for values, weight in terms)
    if reach < _LARGEST_NUMERATOR:
        numerators = zero.copy()
        for values, weight in terms:
            numerators += weight * values
        return rounded(zero, numerators, shift)
    wide = np.zeros(size, dtype=object)
    for values, weight in terms:
        wide += values.astype(object) * weight
    half = (1 << shift) >> 1
    return np.array([(int(each) + half) >> shift for each in wide], dtype=np.int64)


def too_large() -> InputError:
    """The error for what is far more than any stream counts."""
    return InputError("a sum must stay below 2^61 in size, got more; start a new run")


def check_kept(plan: NoisePlan, history: int) -> None:
    """Refuse a plan whose nodes never end, and a history, which is made of exact counts.

    >>> from pianissimo.noise import ToeplitzPlan
    >>> check_kept(ToeplitzPlan.calibrated(horizon=8, rho=0.5), history=0)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: forward secrecy must have a plan whose nodes end, got toeplitz: take a tree, ...
    """
    if not isinstance(plan, ShortLived):
        raise ParameterError(
            f"forward secrecy must have a plan whose nodes end, got {plan.name}: take a tree, haar or spline"
        )
    if history:
        raise ParameterError(f"forward secrecy must keep no history of exact counts, got {history} ticks")


def state_bytes(plan: OpenPlan, series: int) -> int:
    """What the sums take at most.

    >>> from pianissimo.noise import HaarPlan
    >>> state_bytes(HaarPlan.calibrated(horizon=4096, rho=0.5), 1000)
    104000
    """
    return plan.open_nodes * series * 8
