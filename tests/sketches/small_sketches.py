"""All small pairs of neighboring sketches, the exact divergence of releases on them, and noise that is written down."""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import cache
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.noise import Noise
from pianissimo.noise.keyed import ONE_KEY, Integers, Keys, PathPart
from pianissimo.sketches import Contents, CorrelatedHistogram, PrivateMisraGries, SketchRelease, SparseRelease
from pianissimo.testing import NoNoise

Floats = NDArray[np.float64]
Evict = Callable[[list[int]], int]


class Naive:
    """Misra-Gries as the paper writes it: counts, and all of them decremented. Keys stand in the order of insertion."""

    def __init__(self, k: int, evict: Evict = min) -> None:
        self.k, self.evict = k, evict
        self.counts: dict[int, int] = {}
        self.decrements = self.total = 0

    def update(self, keys: "list[int] | tuple[int, ...]") -> Self:
        for key in keys:
            self.total += 1
            zeros = [stored for stored, count in self.counts.items() if count == 0]
            if key in self.counts:
                self.counts[key] += 1
            elif len(self.counts) < self.k:
                self.counts[key] = 1
            elif zeros:
                del self.counts[self.evict(zeros)]
                self.counts[key] = 1
            else:
                self.counts = {stored: count - 1 for stored, count in self.counts.items()}
                self.decrements += 1
        return self

    def contents(self) -> Contents:
        keys = sorted(self.counts)
        over = np.array([self.counts[key] + self.decrements for key in keys], dtype=np.int64)
        return Contents(pl.Series("key", keys, dtype=pl.Int64), over, self.decrements, self.total)


State = tuple[tuple[tuple[int, int], ...], int, int]
"""Keys with their counts, D, and n."""


@cache
def step(state: State, key: int, k: int) -> State:
    counts, decrements, total = state
    sketch = Naive(k)
    sketch.counts, sketch.decrements, sketch.total = dict(counts), decrements, total
    sketch.update([key])
    return tuple(sorted(sketch.counts.items())), sketch.decrements, sketch.total


def neighbors(k: int, universe: int, length: int) -> set[tuple[State, State]]:
    """The sketches of all streams up to a length, each with those of the streams that lack one of its elements."""
    keys = range(1, universe + 1)
    states: set[State] = {((), 0, 0)}
    pairs: set[tuple[State, State]] = set()
    found: set[tuple[State, State]] = set()
    for _ in range(length):
        removed = {(step(state, key, k), state) for state in states for key in keys}
        pairs = removed | {(step(one, key, k), step(other, key, k)) for one, other in pairs for key in keys}
        states = {step(state, key, k) for state in states for key in keys}
        found |= pairs
    return found


def sketch_of(stream: "list[int] | tuple[int, ...]", k: int, evict: Evict = min) -> State:
    sketch = Naive(k, evict).update(stream)
    return tuple(sorted(sketch.counts.items())), sketch.decrements, sketch.total


Change = tuple[int, tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]
"""D - D', counts of keys on one side, on the other side, and for shared keys that move (u - D, u' - D)."""


def change(one: State, other: State) -> Change:
    """All that the divergence of a release depends on."""
    counts, counts_other = dict(one[0]), dict(other[0])
    shared = counts.keys() & counts_other.keys()
    moved = sorted(
        (counts[key], counts_other[key] + other[1] - one[1])
        for key in shared
        if counts[key] + one[1] != counts_other[key] + other[1]
    )
    return (
        one[1] - other[1],
        tuple(sorted(counts[key] for key in counts.keys() - shared)),
        tuple(sorted(counts_other[key] for key in counts_other.keys() - shared)),
        tuple(moved),
    )


class Law:
    """A law on whole numbers, as a table that holds all of it."""

    def __init__(self, weight: Callable[[Floats], Floats], reach: int) -> None:
        self.reach = reach
        self.masses = weight(np.arange(-reach, reach + 1, dtype=np.float64))
        self.masses /= self.masses.sum()
        self.upper = np.append(np.cumsum(self.masses[::-1])[::-1], 0.0)

    def mass(self, at: NDArray[np.int64]) -> Floats:
        inside = np.abs(at) <= self.reach
        return np.where(inside, self.masses[np.clip(at + self.reach, 0, 2 * self.reach)], 0.0)

    def tail(self, least: NDArray[np.int64]) -> Floats:
        return self.upper[np.clip(least + self.reach, 0, 2 * self.reach + 1)]


def laplace(a: float, reach: int = 300) -> Law:
    return Law(lambda z: a ** np.abs(z), reach)


def gaussian(variance: float, reach: int = 300) -> Law:
    return Law(lambda z: np.exp(-z * z / (2 * variance)), reach)


def release_divergence(pair: Change, law: Law, theta: int, factor: float) -> float:
    """The hockey-stick divergence at `factor` of PMG-U on one sketch against the other, worked out in full.

    Given the noisy D, keys are independent; shared keys that do not move have one law on both sides and drop out.
    """
    down, ours, theirs, moved = pair
    noise = np.arange(-law.reach, law.reach + 1)
    p, q = law.mass(noise), law.mass(noise + down)  # The noisy D, from D: noise on one side, noise + down on the other.
    hidden = np.prod([1 - law.tail(theta - count + noise) for count in ours] or [np.ones(len(noise))], axis=0)
    # Counts of the other side are over its own D.
    hidden_other = np.prod(
        [1 - law.tail(theta - count + noise + down) for count in theirs] or [np.ones(len(noise))], axis=0
    )
    shown = float((p * (1 - hidden)).sum())
    p, q = p * hidden, q * hidden_other
    if not moved:
        return shown + float(np.maximum(p - factor * q, 0).sum())
    ((mine, other),) = moved
    # The key is hidden if high - noisy D < theta, high = u + z: over D, z >= theta + noise - (u - D).
    below = np.maximum(p * (1 - law.tail(theta + noise - mine)) - factor * q * (1 - law.tail(theta + noise - other)), 0)
    total = shown + float(below.sum())
    for place, level in enumerate(noise):
        high = np.arange(theta + level, law.reach + max(mine, other) + 1)
        total += float(
            np.maximum(p[place] * law.mass(high - mine) - factor * q[place] * law.mass(high - other), 0).sum()
        )
    return total


def both_ways(pairs: set[tuple[State, State]]) -> Iterator[Change]:
    """Each way to differ once, in both directions."""
    yield from sorted({change(one, other) for one, other in pairs} | {change(other, one) for one, other in pairs})


class WrittenNoise(NoNoise):
    """Draws by (path.., key), where a single draw has no key; what is not written is zero."""

    def __init__(self, draws: Mapping[tuple[PathPart, ...], int], path: tuple[PathPart, ...] = ()) -> None:
        self.draws, self.path = draws, path

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.draws, self.path + path)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        if keys is ONE_KEY:
            out[:] = self.draws.get(self.path, 0)
            return
        names = keys if keys.ndim == 1 else keys[:, 0]
        out[:] = [self.draws.get((*self.path, int(name)), 0) for name in names]


def release_sketch(contents: Contents, *, k: int, epsilon: float, delta: float, noise: Noise) -> SketchRelease:
    """What a sketch of k counters that holds these releases."""
    return PrivateMisraGries.calibrated(k=k, epsilon=epsilon, delta=delta).release(contents, noise)


def release_merged(contents: Contents, *, k: int, epsilon: float, delta: float, noise: Noise) -> SparseRelease:
    """What a merged sketch of k counters that holds these releases."""
    return CorrelatedHistogram.calibrated(k=k, epsilon=epsilon, delta=delta).release(contents, noise, epsilon=epsilon)
