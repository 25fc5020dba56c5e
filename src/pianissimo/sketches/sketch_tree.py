"""The heavy keys of a stream so far, at every tick, in bounded memory and for keys that nobody knew beforehand.

A binary tree over time whose nodes are reduced sketches (`reduction`), each fed directly with its ticks and frozen at
its end. A key's noise at a node is a function of both, defined for every key, stored or not. The threshold stands at
the query alone: at tick t a key is shown if its sum over the nodes of the prefix, noise included, reaches

```text
Theta_t = m k + ceil(sqrt(2 p_t V ln(T (T + m L) k / bad)))        p_t nodes in the prefix, V the variance of a node
```

**Guarantee.** If which keys are candidates were public, a run would be a function of Gaussian noise on the nodes'
vectors, which m elements move by at most m^2 L (k^2 + k - 1) in squares: rho = m^2 L (k^2 + k - 1) / (2 V), also if
inputs react to outputs. Put the candidates of one stream in the place of its neighbor's, with the noisy values kept:
outputs differ only if a key that is a candidate on one of them alone, so with a true sum of at most m k, reaches the
threshold. The noise of a key is untouched until it first is a candidate, at most (T + m L) k keys ever are, and sums of
discrete Gaussians are sub-Gaussian: a union bound over T ticks and these keys gives `bad`. If the stream is fixed in
advance, at most m k keys differ at a tick, and ln(T m k / bad) is enough.

**Error.** Sketch errors of the nodes add up to n / (k + 1), not to L times that. With the number of elements carried
along, which costs k^2 + k in the place of k^2 + k - 1, a reader has both ends of an interval for every count.

**Streams of sets** (`SetTree`): a binary tree of merged sketches. What is hidden is one whole set of keys, of any size.
A leaf is a privacy-aware sketch of one tick, and a parent is the merge of its two children: the tree of merges is fixed
by the clock alone. One set moves each node's counts by one in at most k keys, all in one direction, and is in at most L
nodes: rho = k L / (2 variance). As above the threshold stands at the query: a key that is a candidate on one neighbor
alone has a true sum of at most 1, so at tick t

```text
Theta_t = 1 + ceil(sqrt(2 p_t variance ln(T (T + L) k / bad)))
```

Where a set counts with at most m of its keys, the number N of keys may be carried along for error bars: one set moves
it by at most m, so with noise of m^2 times the variance it is one more count: k + 1 in the place of k.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

from pianissimo import codec
from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.loss.losses import Booked, Guarantee, event_guarantee, log_inverse
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, sealed
from pianissimo.noise.laws import GaussianNode
from pianissimo.noise.plan import normal_quantile
from pianissimo.sketches.contents import KeyListing, key_series, listing_of
from pianissimo.sketches.key_columns import KeyKind
from pianissimo.sketches.misra_gries import PrivacyAwareMisraGries
from pianissimo.sketches.reduction import reduce
from pianissimo.sketches.released_keys import HeavyKeys, bounded_counts, item_keys, own
from pianissimo.sketches.tree_nodes import (
    EndedNodes,
    FedByTick,
    Node,
    NodeSketches,
    OpenKeys,
    OpenSets,
    add_up_sets,
    event_sets,
    gather_sets,
    level_count,
    prefix_nodes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixTree(FedByTick):
    """What both trees share, as a base class: parameters, the Gaussian noise of their sums, and what passes."""

    horizon: int
    """How many releases one run may make."""

    k: int
    """How many counters the sketch of a node has."""

    variance: Fraction
    """Of the noise on each value of a node."""

    bad: Fraction
    """The chance that a key shows which only one event brought."""

    with_total: bool = False
    """Whether the number of keys so far is released too, for error bars."""

    source: ClassVar[str]
    """The theorem behind it."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon, k=self.k)
        check_probability(bad=self.bad)
        FedByTick.__post_init__(self)
        # Refuses a variance beyond what is drawn.
        _ = GaussianNode(self.total_variance).bound

    @classmethod
    def calibrated(cls, *, horizon: int, rho: Real, bad: Real, k: int, **others: Any) -> Self:
        """The one with the least noise within this ledger; the variance is rounded up to a whole number."""
        check_positive(rho=rho)
        # How far an event moves all nodes does not depend on the variance.
        loud = cls(horizon=horizon, k=k, variance=Fraction(1), bad=Fraction(bad), **others)
        return replace(loud, variance=Fraction(math.ceil(loud.moved / (2 * Fraction(rho)))))

    @property
    def moved(self) -> int:
        """How far an event moves all nodes together, in squares."""
        raise NotImplementedError

    @property
    def total_variance(self) -> Fraction:
        """Of the noise on the number of keys of a node."""
        return self.variance

    @property
    def levels(self) -> int:
        """L: in how many nodes an element is counted at most."""
        return level_count(self.horizon)

    @property
    def unit(self) -> int:
        """How many units of a node's values make one count."""
        return 1

    @property
    def guarantee(self) -> Guarantee:
        # At a tick at most L k candidates, each with a draw at at most L nodes, and the draws of the total.
        draws = self.horizon * self.levels * (self.levels * self.k + self.with_total)
        loss = Booked(rho=self.moved / (2 * self.variance), bad=self.bad, distance=draws * DRAW_DISTANCE)
        return event_guarantee(loss, horizon=self.horizon, source=self.source)

    def threshold(self, tick: int) -> int:
        """The least value that is shown at `tick`, in units."""
        raise NotImplementedError

    def _margin(self, tick: int, watched: int) -> int:
        """What the noise of none of `watched` times k keys reaches at any tick, but for `bad`, seen from this one."""
        odds = math.log(self.horizon) + math.log(watched) + math.log(self.k)
        return _bound(tick, self.variance, odds + log_inverse(self.bad))

    def error(self, tick: int, coverage: float) -> float:
        check_probability(coverage=coverage)
        deviation = math.sqrt(tick.bit_count() * float(self.variance))
        return normal_quantile(coverage) * deviation / self.unit

    def reach(self, tick: int, coverage: float) -> int:
        """What the noise of no key, and of no total, exceeds in size at any tick as seen from this one; in units."""
        check_probability(coverage=coverage)
        odds = math.log(2 * (self.k * self.levels + 1) * self.horizon) - math.log1p(-coverage)
        return _bound(tick, max(self.variance, self.total_variance / (self.k + 1) ** 2), odds)

    def _released(self, nodes: EndedNodes, tick: int, noise: Noise, counts: tuple[str, ...]) -> HeavyKeys:
        """The keys of the nodes of a prefix whose noisy sums pass, and the nodes' noisy total."""
        keys, total = nodes.keys(), nodes.total
        sums = np.zeros(len(keys), dtype=np.int64)
        items = item_keys(keys, noise)
        for level, number in prefix_nodes(tick):
            # What a node counts is known at its last tick, when its noise is first drawn.
            here = sealed(noise, number << level).at("node", level, number)
            sums += bounded_counts(nodes.values(level, keys))
            sums += here.at(*counts).gaussian(variance=self.variance, keys=items)
            if self.with_total:
                total += int(here.at("total").gaussian(variance=self.total_variance))
        passing = np.flatnonzero(sums >= self.threshold(tick))
        shown = own(keys.gather(passing)), sums[passing], self.unit
        return HeavyKeys(*shown, total if self.with_total else None)


def _bound(tick: int, variance: Fraction, odds: float) -> int:
    # Rounded up.
    return math.ceil(math.sqrt(2 * tick.bit_count() * float(variance) * odds) * (1 + 1e-9))


@dataclass(slots=True, repr=False)
class SketchTreeState:
    """The keys of the open tick, the sketches of open nodes and the reduced counts of ended ones: secret."""

    tick: OpenKeys
    sketches: NodeSketches
    ended: EndedNodes


@identified("sketch-tree")
@dataclass(frozen=True, slots=True, kw_only=True)
class SketchTree(PrefixTree):
    """The heavy keys of all events so far, released at every tick.

    Guarantee: booked as (m^2 L (k^2 + k) / (2 variance), bad) for the at most m = max_keys_per_event keys of an event;
    the variance is in units of 1 / (k + 1) of a count.
    Error: the noise's quantile at the tick; beside it a count is too low by at most n / (k + 1), n the keys so far.
    Cost: 2 L k counters, and the distinct keys of the open tick; L / 2 sketch updates a key on average; at most L draws
    a candidate and release.
    """

    max_keys_per_event: int = 1
    """How many distinct keys of one event count: m."""

    with_total: bool = True
    adaptive: bool = True
    """Whether events may depend on what was released; if not, the threshold is lower."""

    source: ClassVar[str] = "Lebeda and Tetek, Lemma 16, corrected; in a binary tree over time"

    def __post_init__(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        PrefixTree.__post_init__(self)

    @property
    def _most_keys(self) -> int:
        return self.max_keys_per_event

    @property
    def moved(self) -> int:
        each = self.k * self.k + self.k - (not self.with_total)
        return self.max_keys_per_event**2 * self.levels * each

    @property
    def unit(self) -> int:
        return self.k + 1

    def threshold(self, tick: int) -> int:
        keys = self.max_keys_per_event
        watched = self.horizon + keys * self.levels if self.adaptive else keys
        return keys * self.k + self._margin(tick, watched)

    def start(self, noise: Noise) -> SketchTreeState:  # noqa: ARG002
        sketches = NodeSketches(k=self.k, keys=self.keys, horizon=self.horizon)
        return SketchTreeState(OpenKeys(), sketches, EndedNodes())

    def release(self, state: SketchTreeState, tick: int, noise: Noise) -> HeavyKeys:
        state.sketches.feed(state.tick.take())
        reduced = reduce(state.sketches.close(tick).contents(), k=self.k)
        state.ended.put(tick, Node(reduced.keys, reduced.values, reduced.total))
        return self._released(state.ended, tick, noise, ("counts",))


class MergingNodes:
    """The nodes that cover all ticks so far, one a level: secret."""

    def __init__(self, *, k: int, keys: KeyKind) -> None:
        self._k, self._keys = k, keys
        # Listings, not sketches: a lineage of merges would grow with every tick.
        self._ended: dict[int, tuple[KeyListing, int]] = {}

    def close(self, tick: int, sets: pl.Series | None) -> None:
        """End a tick of these sets: its leaf is merged with the stretch before it as long as both have one length."""
        leaf = PrivacyAwareMisraGries(self._k, keys=self._keys)
        if sets is not None:
            leaf.update(sets)
        node, total, level = leaf.record().counts(), leaf.total, 0
        while tick % (2 << level) == 0:
            before, more = self._ended.pop(level)
            node, total, level = before.merge(node, self._k), total + more, level + 1
        self._ended[level] = node, total

    def covering(self) -> EndedNodes:
        """The counts of the nodes that cover all ticks so far."""
        nodes = EndedNodes()
        for level in sorted(self._ended, reverse=True):
            listing, total = self._ended[level]
            # As a tick of its own length the node stands behind the longer ones.
            nodes.put(1 << level, Node(key_series(self._keys, listing), listing.values(), total))
        return nodes

    def to_plain(self) -> codec.Plain:
        return self.covering().to_plain()

    def take_plain(self, content: codec.Plain) -> None:
        nodes = EndedNodes()
        nodes.take_plain(content)
        self._ended = {level: (listing_of(node.keys, node.values), node.total) for level, node in nodes.items()}


@dataclass(slots=True, repr=False)
class SetTreeState:
    """The sets of the open tick, and the sketches of all nodes that are needed: secret."""

    tick: OpenSets
    nodes: MergingNodes


@identified("set-tree")
@dataclass(frozen=True, slots=True, kw_only=True)
class SetTree(PrefixTree):
    """The heavy keys of all sets so far, released at every tick; an event is a set of keys of any size.

    Guarantee: booked as (k L / (2 variance), bad) for one event with all its keys; (k + 1) L with a total.
    Error: the noise's quantile at the tick; beside it a count is too low by at most N / (k + 1), N the keys so far.
    Cost: k counters a level, and the distinct sets of the open tick; one sketch update a key, one merge a tick on
    average; at most L draws a candidate.
    """

    max_keys_per_event: int | None = None
    """How many distinct keys of one event count; None for all. The promise needs no bound, error bars do."""

    source: ClassVar[str] = "Lebeda and Tetek, Corollary 28; in a binary tree over time"

    def __post_init__(self) -> None:
        if self.max_keys_per_event is not None:
            check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        elif self.with_total:
            raise ParameterError(
                "max_keys_per_event must be given for a total, got None: one event could move it by any"
            )
        PrefixTree.__post_init__(self)

    @property
    def total_variance(self) -> Fraction:
        return (self.max_keys_per_event or 1) ** 2 * self.variance

    @property
    def moved(self) -> int:
        return (self.k + self.with_total) * self.levels

    def threshold(self, tick: int) -> int:
        return 1 + self._margin(tick, self.horizon + self.levels)

    def start(self, noise: Noise) -> SetTreeState:  # noqa: ARG002
        return SetTreeState(OpenSets(self.keys), MergingNodes(k=self.k, keys=self.keys))

    def gather(self, state: SetTreeState, batch: pl.Series) -> codec.Plain:  # noqa: ARG002
        return gather_sets(event_sets(batch, self.max_keys_per_event), self.keys)

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        return add_up_sets(pieces, self.keys)

    def release(self, state: SetTreeState, tick: int, noise: Noise) -> HeavyKeys:
        state.nodes.close(tick, state.tick.take())
        shown = self._released(state.nodes.covering(), tick, noise, ())
        if shown.total is None:
            return shown
        # Counts of all nodes together are too low by at most N / (k + 1).
        slack = np.full(len(shown.keys), -(-shown.total // (self.k + 1)), dtype=np.int64)
        return replace(shown, slack=slack)
