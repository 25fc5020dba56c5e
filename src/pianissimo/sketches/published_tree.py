"""A tree over time whose nodes are published one by one, and one running sketch that is released again and again.

In a tree of published nodes every used node is released once, at its end, by the release of a single sketch
(`private_release`); a reader adds up the nodes of a prefix. It is the choice where the nodes themselves are wanted: a
key can lose up to the threshold in every node. An element is in at most L nodes: with Laplace noise at epsilon / L and
delta / L each the whole is (epsilon, delta), with Gaussian noise it is booked as (L / (2 variance), L xi). Inputs may
react to outputs, as a node sees none of its own.

Releasing one running sketch R times costs R / (2 variance) and R xi: for a handful of releases.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Self

import numpy as np

from pianissimo.checks import Real, check_at_least, check_probability
from pianissimo.identity import identified
from pianissimo.loss.losses import Booked, Guarantee, Mixed, event_guarantee
from pianissimo.noise import Noise
from pianissimo.noise.keyed import sealed
from pianissimo.sketches.key_columns import KeyKind
from pianissimo.sketches.misra_gries import MisraGries
from pianissimo.sketches.private_release import GaussianMisraGries, PrivateMisraGries, SketchRelease
from pianissimo.sketches.released_keys import HeavyKeys, own, threshold, without_distance
from pianissimo.sketches.tree_nodes import (
    EndedNodes,
    FedByTick,
    Node,
    NodeSketches,
    OpenKeys,
    ended_level,
    level_count,
    prefix_nodes,
)


@dataclass(slots=True, repr=False)
class PublishedTreeState:
    """The keys of the open tick and the sketches of open nodes, secret, and what was published of ended ones."""

    tick: OpenKeys
    sketches: NodeSketches
    published: EndedNodes


@identified("published-tree")
@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTree(FedByTick):
    """The heavy keys of all events so far, as sums of nodes that are each published once.

    Guarantee: L times the loss of a node, L = floor(log2 horizon) + 1.
    Error: p_t times (threshold + 2 reach) at most, beside n / (k + 1).
    Cost: 2 L k counters, and the distinct keys of the open tick; k + 1 draws a release.
    """

    horizon: int
    """How many releases one run may make."""

    node: PrivateMisraGries | GaussianMisraGries
    """How a node is released."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon)
        FedByTick.__post_init__(self)

    @classmethod
    def calibrated(cls, *, horizon: int, epsilon: Real, delta: Real, k: int, keys: KeyKind = "text") -> Self:
        """The one with Laplace noise within (epsilon, delta), in equal shares for the levels."""
        check_at_least(1, horizon=horizon, k=k)
        levels = level_count(horizon)
        left = without_distance(delta, levels * (k + 1), epsilon)
        share = Fraction(epsilon) / levels
        least = threshold(epsilon=share, delta=left / levels, k=k)
        return cls(horizon=horizon, node=PrivateMisraGries(k=k, epsilon=share, threshold=least), keys=keys)

    @classmethod
    def gaussian(cls, *, horizon: int, rho: Real, bad: Real, k: int, keys: KeyKind = "text") -> Self:
        """The one with Gaussian noise within this ledger."""
        check_at_least(1, horizon=horizon, k=k)
        # An element is in one release a level.
        node = GaussianMisraGries.calibrated(k=k, rho=rho, bad=bad, releases=level_count(horizon))
        return cls(horizon=horizon, node=replace(node, releases=1), keys=keys)

    @property
    def levels(self) -> int:
        """L: in how many nodes a key is counted at most."""
        return level_count(self.horizon)

    @property
    def guarantee(self) -> Guarantee:
        each, levels = self.node.loss, self.levels
        bad, distance = levels * each.bad, levels * each.distance
        loss: Mixed | Booked
        if isinstance(each, Mixed):
            loss = Mixed(pure=levels * each.pure, bad=bad, distance=distance)
        else:
            loss = Booked(rho=levels * each.rho, bad=bad, distance=distance)
        source = "Chan, Li, Shi and Xu 2012, with the release of Lebeda and Tetek in every node"
        return event_guarantee(loss, horizon=self.horizon, source=source)

    def error(self, tick: int, coverage: float) -> float:
        return float(tick.bit_count() * (self.node.threshold - 1) + self.reach(tick, coverage))

    def reach(self, tick: int, coverage: float) -> int:
        """What the noise of no estimate at a tick exceeds in size, with this chance."""
        check_probability(coverage=coverage)
        nodes = tick.bit_count()
        return 2 * nodes * self.node.reach(1 - (1 - coverage) / nodes)

    def start(self, noise: Noise) -> PublishedTreeState:  # noqa: ARG002
        sketches = NodeSketches(k=self.node.k, keys=self.keys, horizon=self.horizon)
        return PublishedTreeState(OpenKeys(), sketches, EndedNodes())

    def release(self, state: PublishedTreeState, tick: int, noise: Noise) -> HeavyKeys:
        state.sketches.feed(state.tick.take())
        contents = state.sketches.close(tick).contents()
        level = ended_level(tick)
        shown = self.node.release(contents, sealed(noise, tick).at("node", level, tick >> level))
        state.published.put(tick, Node(shown.keys, shown.under, shown.error_level))
        keys = state.published.keys()
        sums = np.zeros(len(keys), dtype=np.int64)
        # A node's count is too low by at most its D, and where it hides the key by less than its threshold besides.
        slack = np.full(len(keys), state.published.total, dtype=np.int64)
        for each, _ in prefix_nodes(tick):
            values = state.published.values(each, keys)
            sums += values
            slack += np.where(values == 0, self.node.threshold - 1, 0)
        return HeavyKeys(own(keys), sums, 1, slack=slack)


@dataclass(slots=True, repr=False)
class RunningSketchState:
    """The keys of the open tick, and one sketch of all ticks before: secret."""

    tick: OpenKeys
    sketch: MisraGries


@identified("running-sketch")
@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSketch(FedByTick):
    """The heavy keys of all events so far from one sketch, released a handful of times with Gaussian noise.

    Guarantee: booked as (horizon / (2 variance), horizon * xi).
    Error: threshold + 2 reach at most, beside n / (k + 1).
    Cost: k counters, and the distinct keys of the open tick; k + 1 draws a release.
    """

    release_of: GaussianMisraGries
    """How the sketch is released each time."""

    @classmethod
    def calibrated(cls, *, horizon: int, rho: Real, bad: Real, k: int, keys: KeyKind = "text") -> Self:
        """The one with the least noise within this ledger."""
        return cls(release_of=GaussianMisraGries.calibrated(k=k, rho=rho, bad=bad, releases=horizon), keys=keys)

    @property
    def guarantee(self) -> Guarantee:
        source = "Lebeda and Tetek, Lemma 8; Canonne, Kamath and Steinke 2020, Theorem 14"
        return event_guarantee(self.release_of.loss, horizon=self.release_of.releases, source=source)

    def error(self, tick: int, coverage: float) -> float:
        return float(self.release_of.threshold - 1 + 2 * self.reach(tick, coverage))

    def reach(self, tick: int, coverage: float) -> int:  # noqa: ARG002
        """What no noise of a release exceeds in size, with this chance."""
        return self.release_of.reach(coverage)

    def start(self, noise: Noise) -> RunningSketchState:  # noqa: ARG002
        return RunningSketchState(OpenKeys(), MisraGries(self.release_of.k, keys=self.keys))

    def release(self, state: RunningSketchState, tick: int, noise: Noise) -> SketchRelease:
        state.sketch.update(state.tick.take())
        return self.release_of.release(state.sketch.contents(), sealed(noise, tick).at("release", tick))
