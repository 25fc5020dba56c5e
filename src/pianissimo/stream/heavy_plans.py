"""Heavy hitters: sketches of bounded memory against exact counts of every label.

What is compared is the noise of a shown count, and what it lacks besides:

* *Sketches* lose up to n / (k + 1), n the labels so far: where the number of events is expected, it grows evenly to it.
* *Published nodes* hide a label in each node where it is below the threshold: of a label that is shown, in all but one.
* *Exact counts* lose nothing, but their memory grows with the labels: they are taken only where somebody said how many
  there may be, and so many fit.

Memory is that of labels of `LABEL_BYTES`:

```text
tree of sketches             2 L k counters, L = floor(log2 releases) + 1: an open and an ended node a level
tree of published nodes      the same
one running sketch           k counters
tree of sets                 (L + 1) k counters: an ended node a level, and the open tick
exact counts                 EXACT_BYTES a label
```
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pianissimo.counting import UnknownHistogram
from pianissimo.errors import ParameterError
from pianissimo.queries import HeavyHitters
from pianissimo.sketches import PublishedTree, RunningSketch, SetTree, SketchTree
from pianissimo.sketches.contents import MOST_COUNTERS
from pianissimo.stream.expected import PREDICTED_TICKS, Candidate, ExpectedError, Share
from pianissimo.stream.plan_table import mebibytes

LABEL_BYTES = 32
"""What a label is taken to have."""

COUNTER_BYTES = 64 + 2 * LABEL_BYTES
"""A counter of a sketch, its label included and room for one that is gone: 125 were measured."""

EXACT_BYTES = 256
"""An exactly counted label, its noise and its place in the index included: 180 to 245 were measured."""

FEW_RELEASES = 64
"""One running sketch costs by the number of releases: it is offered up to so many."""

SketchMechanism = SketchTree | PublishedTree | RunningSketch | SetTree
Maker = Callable[[HeavyHitters, Share, int, float], Candidate]


def level_count(releases: int) -> int:
    """In how many nodes of a tree a tick is.

    >>> level_count(1440)
    11
    """
    return releases.bit_length()


def sketch_tree(query: HeavyHitters, share: Share, releases: int, coverage: float) -> Candidate:
    """Reduced sketches in a tree over time, with a threshold at the query alone."""
    _check(query, share)
    mechanism = SketchTree.calibrated(
        horizon=releases, rho=share.rho, bad=share.bad, k=query.k, max_keys_per_event=query.max_keys_per_event
    )
    nodes = _nodes(releases)
    deviation = math.sqrt(float(mechanism.variance)) / (query.k + 1)
    return _candidate(
        query,
        mechanism,
        name="SketchTree",
        halves=_quantile(coverage) * deviation * np.sqrt(nodes),
        counters=2 * mechanism.levels * query.k,
        coverage=coverage,
        noise=f"discrete Gaussian, deviation {deviation:.3g} on {_levels(mechanism.levels)}",
    )


def published_tree(query: HeavyHitters, share: Share, releases: int, coverage: float) -> Candidate:
    """A tree over time whose nodes are published one by one."""
    _check(query, share)
    _check_single(query)
    mechanism = PublishedTree.gaussian(horizon=releases, rho=share.rho, bad=share.bad, k=query.k)
    nodes = _nodes(releases)
    # Each node's count is the difference of two draws.
    deviation = math.sqrt(mechanism.levels / mechanism.guarantee.loss.as_booked().rho)
    hidden = (nodes - 1) * (mechanism.node.threshold - 1)
    return _candidate(
        query,
        mechanism,
        name="PublishedTree",
        halves=_quantile(coverage) * deviation * np.sqrt(nodes) + hidden,
        counters=2 * mechanism.levels * query.k,
        coverage=coverage,
        noise=f"discrete Gaussian, deviation {deviation:.3g} on {_levels(mechanism.levels)}",
    )


def running_sketch(query: HeavyHitters, share: Share, releases: int, coverage: float) -> Candidate:
    """One sketch, released again and again."""
    _check(query, share)
    _check_single(query)
    if releases > FEW_RELEASES:
        raise ParameterError(f"a running sketch must be released at most {FEW_RELEASES} times, got {releases}")
    mechanism = RunningSketch.calibrated(horizon=releases, rho=share.rho, bad=share.bad, k=query.k)
    deviation = math.sqrt(2 * float(mechanism.release_of.variance))
    return _candidate(
        query,
        mechanism,
        name="RunningSketch",
        halves=np.full(releases, _quantile(coverage) * deviation),
        counters=query.k,
        coverage=coverage,
        noise=f"discrete Gaussian, deviation {deviation:.3g}, anew at each release",
    )


def set_tree(query: HeavyHitters, share: Share, releases: int, coverage: float) -> Candidate:
    """A tree over time of sketches of sets: its noise is the same however many labels an event holds."""
    _check(query, share)
    if query.max_keys_per_event == 1:
        raise ParameterError("a tree of sets must be of events with several labels, got one label an event")
    mechanism = SetTree.calibrated(
        horizon=releases,
        rho=share.rho,
        bad=share.bad,
        k=query.k,
        max_keys_per_event=query.max_keys_per_event,
        with_total=True,
    )
    deviation = math.sqrt(float(mechanism.variance))
    return _candidate(
        query,
        mechanism,
        name="SetTree",
        halves=_quantile(coverage) * deviation * np.sqrt(_nodes(releases)),
        counters=(mechanism.levels + 1) * query.k,
        coverage=coverage,
        noise=f"discrete Gaussian, deviation {deviation:.3g} on {_levels(mechanism.levels)}",
    )


SKETCH_MAKERS: tuple[Maker, ...] = (sketch_tree, published_tree, running_sketch, set_tree)


def exact_counts(makers: Iterable[Maker]) -> Maker:
    """The best of some histograms, as far as its memory allows it."""
    makers = tuple(makers)

    def make(query: HeavyHitters, share: Share, releases: int, coverage: float) -> Candidate:
        found = [maker(query, share, releases, coverage) for maker in makers]
        best = min(found, key=lambda candidate: candidate.expected_error.typical)
        if query.expected_keys is None:
            return replace(best, selectable=False, excluded="expected_keys, which its memory grows with, is not given")
        memory = query.expected_keys * EXACT_BYTES
        return replace(
            best,
            memory=memory,
            selectable=memory <= query.memory,
            excluded="" if memory <= query.memory else _too_large(memory, query.memory),
            note=f"memory grows with the labels, by about {EXACT_BYTES} bytes each",
        )

    return make


def thresholds_of(mechanism: SketchMechanism) -> tuple[int, int]:
    """The least and the largest estimate that a label must reach to be shown, in counts, rounded up.

    >>> tree = SketchTree.calibrated(horizon=24, rho=0.016468, bad=5e-9, k=1024, with_total=False)
    >>> thresholds_of(tree)
    (101, 200)
    """
    match mechanism:
        case PublishedTree(node=node):
            return node.threshold, node.threshold
        case RunningSketch(release_of=once):
            return once.threshold, once.threshold
    # No tick has more nodes than the longest row of ones within the horizon.
    busiest = (1 << ((mechanism.horizon + 1).bit_length() - 1)) - 1
    unit = mechanism.k + 1 if isinstance(mechanism, SketchTree) else 1
    return -(-mechanism.threshold(1) // unit), -(-mechanism.threshold(busiest) // unit)


def reason(query: HeavyHitters, chosen: Candidate, alternatives: Sequence[Candidate]) -> str:
    """Why this mechanism, and why not the exact counts."""
    parts = [f"least typical error within the {mebibytes(query.memory)} allowed"]
    if isinstance(chosen.mechanism, UnknownHistogram):
        parts = [f"exact counts of {query.expected_keys:,} labels fit the {mebibytes(query.memory)} allowed"]
    others = [other for other in alternatives if other.selectable]
    if others:
        second = min(others, key=lambda other: other.expected_error.typical)
        ratio = second.expected_error.typical / chosen.expected_error.typical
        parts.append(f"{second.name} has {ratio:.2f} times the typical error")
    parts += [f"{other.name} was left out: {other.excluded}" for other in alternatives if other.excluded]
    return "; ".join(parts)


def _candidate(
    query: HeavyHitters,
    mechanism: SketchMechanism,
    *,
    name: str,
    halves: NDArray[np.float64],
    counters: int,
    coverage: float,
    noise: str,
) -> Candidate:
    lost = "labels so far"
    if query.expected_events is not None:
        labels = query.expected_events * query.max_keys_per_event
        lost = f"{labels:,} labels at the end"
        halves = halves + labels / (query.k + 1) * np.linspace(1 / len(halves), 1, len(halves))
    memory = counters * COUNTER_BYTES
    fits = memory <= query.memory
    beside = "expected" if query.expected_events is not None else "beside the error shown"
    return Candidate(
        name=f"{name}, k = {query.k}",
        mechanism=mechanism,
        expected_error=ExpectedError(
            coverage=coverage, typical=float(np.sqrt((halves**2).mean())), largest=float(halves.max())
        ),
        pure=False,
        noise=noise,
        note=f"counts are too low by up to 1 / {query.k + 1:,} of the {lost}, {beside}",
        memory=memory,
        selectable=fits,
        excluded="" if fits else _too_large(memory, query.memory),
    )


def _too_large(memory: int, allowed: int) -> str:
    return f"it needs about {mebibytes(memory)} of memory, more than the {mebibytes(allowed)} allowed"


def _nodes(releases: int) -> NDArray[np.float64]:
    """How many nodes the releases are made of, of at most `PREDICTED_TICKS` of them."""
    step = -(-releases // PREDICTED_TICKS)
    return np.bitwise_count(np.arange(1, releases + 1, step, dtype=np.uint64)).astype(np.float64)


def _quantile(coverage: float) -> float:
    return NormalDist().inv_cdf((1 + coverage) / 2)


def _levels(levels: int) -> str:
    return "1 level" if levels == 1 else f"{levels} levels"


def _check(query: HeavyHitters, share: Share) -> None:
    if query.k > MOST_COUNTERS:
        raise ParameterError(f"k must be at most {MOST_COUNTERS}, got {query.k}")
    if share.pure or share.bad == 0:
        raise ParameterError("unknown labels must have a delta, got a pure budget")


def _check_single(query: HeavyHitters) -> None:
    if query.max_keys_per_event != 1:
        raise ParameterError(
            f"this sketch must count one label an event, got max_keys_per_event = {query.max_keys_per_event}"
        )
