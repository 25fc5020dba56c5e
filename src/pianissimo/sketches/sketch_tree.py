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
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl

from pianissimo import codec
from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.identity import identified
from pianissimo.loss.losses import Booked, Guarantee, Neighbors, Unit
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, sealed
from pianissimo.noise.laws import GaussianNode
from pianissimo.sketches.key_columns import KeyKind, check_key_kind
from pianissimo.sketches.key_noise import Counts, checked_counts, gaussian_draws, item_keys, own, unit_table
from pianissimo.sketches.reduction import reduce
from pianissimo.sketches.tree_nodes import (
    EndedNodes,
    Node,
    NodeSketches,
    OpenKeys,
    event_keys,
    gather_keys,
    level_count,
    prefix_nodes,
    rounded_up_root,
)


@dataclass(frozen=True, slots=True, eq=False)
class HeavyKeys:
    """Keys in their own order with noisy values, in units of 1 / `unit` of a count: all may be published."""

    keys: pl.Series
    values: Counts
    unit: int
    """How many units make one count."""

    total: int | None = None
    """The noisy number of elements so far, where it is released."""

    slack: Counts | None = None
    """By how many units each true count may be above its value, noise apart, where that is not the total."""

    def to_dict(self) -> dict[int | str | bytes, float]:
        """The keys and their noisy values, in counts."""
        return dict(zip(self.keys.to_list(), (self.values / self.unit).tolist(), strict=True))

    def to_frame(self, reach: int | None = None) -> pl.DataFrame:
        """One row a key: `estimate_table`, where `reach` is what the size of no noise exceeds.

        >>> HeavyKeys(pl.Series(["a"]), np.array([30]), 3, 18).to_frame(reach=3).row(0)
        ('a', 13.5, 9.0, 18.0)
        """
        return unit_table(self.keys, self.values, self.unit, self.total if self.slack is None else self.slack, reach)


@dataclass(frozen=True, slots=True)
class PrefixNoise:
    """The Gaussian noise of the sums that a tree of k counters a node releases at every tick up to a horizon."""

    horizon: int
    k: int
    variance: Fraction
    """On each value of a node."""

    @property
    def levels(self) -> int:
        """L: in how many nodes an element is counted at most."""
        return level_count(self.horizon)

    def error(self, tick: int, coverage: float) -> float:
        """What the noise of one sum does not exceed in size, with this chance."""
        check_probability(coverage=coverage)
        return NormalDist().inv_cdf((1 + coverage) / 2) * math.sqrt(tick.bit_count() * float(self.variance))

    def reach(self, tick: int, coverage: float) -> int:
        """What the noise of no key, at no tick, exceeds in size as seen from this one."""
        check_probability(coverage=coverage)
        odds = math.log(2 * (self.k * self.levels + 1) * self.horizon) - math.log1p(-coverage)
        return self._bound(tick, odds)

    def margin(self, tick: int, watched: int, bad: Fraction) -> int:
        """What the noise of none of `watched` times k keys reaches at any tick, but for `bad`, seen from this one."""
        odds = math.log(self.horizon) + math.log(watched) + math.log(self.k)
        return self._bound(tick, odds + (math.log(bad.denominator) - math.log(bad.numerator)))

    def _bound(self, tick: int, odds: float) -> int:
        return rounded_up_root(2 * tick.bit_count() * float(self.variance) * odds)

    def guarantee(self, moved: int, bad: Fraction, *, totals: int, source: str) -> Guarantee:
        """If one event moves all nodes together by `moved`, in squares, and each has so many totals beside its keys."""
        # At a tick at most L k candidates, each with a draw at at most L nodes, and the draws of the total.
        draws = self.horizon * self.levels * (self.levels * self.k + totals)
        return Guarantee(
            loss=Booked(rho=moved / (2 * self.variance), bad=bad, distance=draws * DRAW_DISTANCE),
            unit=Unit.EVENT,
            neighbors=Neighbors.ADD_OR_REMOVE,
            horizon=self.horizon,
            source=source,
        )

    def sums(
        self, nodes: EndedNodes, tick: int, noise: Noise, counts: tuple[str, ...], total_variance: Fraction | None
    ) -> tuple[pl.Series, Counts, int]:
        """All keys of the nodes of a prefix, their noisy sums, and the nodes' total, noisy if it has a variance."""
        keys, total = nodes.keys(), nodes.total
        found = np.zeros(len(keys), dtype=np.int64)
        items = item_keys(keys, noise)
        for level, number in prefix_nodes(tick):
            # What a node counts is known at its last tick, when its noise is first drawn.
            here = sealed(noise, number << level).at("node", level, number)
            found += checked_counts(nodes.values(level, keys))
            found += gaussian_draws(here.at(*counts), self.variance, items)
            if total_variance is not None:
                total += int(here.at("total").gaussian(variance=total_variance))
        return keys, found, total


@dataclass(slots=True, repr=False)
class SketchTreeState:
    """The keys of the open tick, the sketches of open nodes and the reduced counts of ended ones: secret."""

    tick: OpenKeys
    sketches: NodeSketches
    ended: EndedNodes


@identified("sketch-tree")
@dataclass(frozen=True, slots=True, kw_only=True)
class SketchTree:
    """The heavy keys of all events so far, released at every tick.

    Guarantee: booked as (m^2 L (k^2 + k) / (2 variance), bad) for the at most m = max_keys_per_event keys of an event.
    Error: the noise's quantile at the tick; beside it a count is too low by at most n / (k + 1), n the keys so far.
    Cost: 2 L k counters, and the distinct keys of the open tick; L / 2 sketch updates a key on average; at most L draws
    a candidate and release.

    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> tree = SketchTree.calibrated(horizon=4, rho=2.0, bad=1e-6, k=8)
    >>> run = Run(tree, NoNoise())
    >>> run.update(pl.Series(["aspirin"] * 90 + ["a rare one"]))
    >>> run.release().value.to_dict()
    {'aspirin': 79.88...}
    """

    horizon: int
    """How many releases one run may make."""

    k: int
    """How many counters the sketch of a node has."""

    variance: Fraction
    """Of the noise on each value of a node, in units of 1 / (k + 1) of a count."""

    bad: Fraction
    """The chance that a key shows which only one event brought."""

    max_keys_per_event: int = 1
    """How many distinct keys of one event count: m."""

    keys: KeyKind = "text"
    """The type of the keys."""

    with_total: bool = True
    """Whether the number of keys so far is released too, for error bars."""

    adaptive: bool = True
    """Whether events may depend on what was released; if not, the threshold is lower."""

    state_version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon, k=self.k, max_keys_per_event=self.max_keys_per_event)
        check_probability(bad=self.bad)
        check_key_kind(self.keys)
        # Refuses a variance beyond what is drawn.
        _ = GaussianNode(self.variance).bound

    @classmethod
    def calibrated(
        cls,
        *,
        horizon: int,
        rho: Real,
        bad: Real,
        k: int,
        max_keys_per_event: int = 1,
        with_total: bool = True,
        **others: Any,
    ) -> Self:
        """The one with the least noise within this ledger; the variance is rounded up to a whole number.

        >>> SketchTree.calibrated(horizon=24, rho=0.016468, bad=5e-9, k=1024, with_total=False).threshold(23) // 1025
        199
        """
        check_at_least(1, horizon=horizon, k=k, max_keys_per_event=max_keys_per_event)
        check_positive(rho=rho)
        moved = _moved(horizon, k, max_keys_per_event, with_total=with_total)
        others |= {"max_keys_per_event": max_keys_per_event, "with_total": with_total}
        variance = Fraction(math.ceil(moved / (2 * Fraction(rho))))
        return cls(horizon=horizon, k=k, variance=variance, bad=Fraction(bad), **others)

    @property
    def noise(self) -> PrefixNoise:
        """The noise of its sums."""
        return PrefixNoise(self.horizon, self.k, self.variance)

    @property
    def guarantee(self) -> Guarantee:
        moved = _moved(self.horizon, self.k, self.max_keys_per_event, with_total=self.with_total)
        source = "Lebeda and Tetek, Lemma 16, corrected; in a binary tree over time"
        return self.noise.guarantee(moved, self.bad, totals=1, source=source)

    def threshold(self, tick: int) -> int:
        """The least value that is shown at `tick`, in units of 1 / (k + 1)."""
        keys = self.max_keys_per_event
        watched = self.horizon + keys * self.noise.levels if self.adaptive else keys
        return keys * self.k + self.noise.margin(tick, watched, self.bad)

    def error(self, tick: int, coverage: float) -> float:
        return self.noise.error(tick, coverage) / (self.k + 1)

    def reach(self, tick: int, coverage: float) -> int:
        """What the noise of no key, at no tick, exceeds in size as seen from this one; in units of 1 / (k + 1)."""
        return self.noise.reach(tick, coverage)

    def start(self, noise: Noise) -> SketchTreeState:  # noqa: ARG002
        sketches = NodeSketches(k=self.k, keys=self.keys, horizon=self.horizon)
        return SketchTreeState(OpenKeys(), sketches, EndedNodes())

    def update(self, state: SketchTreeState, batch: pl.Series) -> None:
        self.add(state, self.gather(state, batch))

    def gather(self, state: SketchTreeState, batch: pl.Series) -> codec.Plain:  # noqa: ARG002
        return gather_keys(event_keys(batch, self.max_keys_per_event), self.keys)

    def add(self, state: SketchTreeState, gathered: codec.Plain) -> None:
        state.tick.add(gathered)

    def release(self, state: SketchTreeState, tick: int, noise: Noise) -> HeavyKeys:
        state.sketches.feed(state.tick.take())
        reduced = reduce(state.sketches.close(tick).contents(), k=self.k)
        state.ended.put(tick, Node(reduced.keys, reduced.values, reduced.total))
        total_variance = self.variance if self.with_total else None
        keys, sums, total = self.noise.sums(state.ended, tick, noise, ("counts",), total_variance)
        passing = np.flatnonzero(sums >= self.threshold(tick))
        return HeavyKeys(own(keys.gather(passing)), sums[passing], self.k + 1, total if self.with_total else None)


def _moved(horizon: int, k: int, elements: int, *, with_total: bool) -> int:
    """How far so many elements move all nodes together, in squares."""
    each = k * k + k if with_total else k * k + k - 1
    return elements**2 * level_count(horizon) * each
