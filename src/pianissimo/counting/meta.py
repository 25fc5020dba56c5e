"""A running histogram as a tree of one-shot answers; and top lists, by sorting the release of a histogram.

Sorting is post-processing, so that a top list costs what its histogram costs.

The tree is that of Cardoso and Rogers, "Differentially private histograms under continual observation", 2022,
Algorithm 3 (MetaAlgo) and Theorem 3. Cell (i, l) covers ticks (l - 1) r^i + 1 .. l r^i. When a cell is complete, a
one-shot mechanism answers about the histogram of its ticks, once, and the answer is kept; release t adds up, label by
label, the answers of the cells that the base-r digits of t name. A cell with l divisible by r is in no release and is
not answered, so each tick completes exactly one cell that is.

Corrected here: the number of levels L comes from integer division (a floating-point logarithm is one short for
T = 243, r = 3 and others, and the loss then too small); the bad mass with an unknown domain and any number of labels in
an event is kbar delta, not the printed 2 k delta, which is exceeded; with integer noise throughout.

**Why.** An event lies in one cell of each level, so at most L answers are about histograms that differ, by one event
each; the others have one law in both worlds. An answer is given when all its data are there, so this is plain
adaptive composition: rho adds up, and all L answers are good with a chance of at least (1 - bad)^L. It also holds if
later events are chosen after looking at releases.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least, check_probability
from pianissimo.counting.known import KnownHistogram, LabelCounts, Tally, add_up, in_order, joined_shards, split_tally
from pianissimo.counting.reachable import Leaders
from pianissimo.counting.unknown import UnknownHistogram
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain, LabelIndex, check_label_count, count_labels, detached
from pianissimo.loss.losses import Booked, Guarantee, event_guarantee
from pianissimo.mechanism import Conversation, Conversing, Gathering, in_shards
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys, sealed
from pianissimo.noise.plan import NoisePlan, normal_quantile
from pianissimo.noise.tree import digits_of
from pianissimo.stored_parts import TRANSIENT


class OneShot(Protocol):
    """What answers once about the histogram of a cell; `pianissimo.selection` has four."""

    @property
    def domain(self) -> Domain | None:
        """The labels it knows beforehand; None if it finds them."""

    @property
    def max_keys_per_event(self) -> int | None:
        """How many distinct labels of one event count; None for any number."""

    def answer(
        self, labels: pl.Series, keys: Keys, counts: NDArray[np.int64], noise: Noise
    ) -> tuple[pl.Series, NDArray[np.int64]]:
        """Published labels and counts, about labels in the order of their bytes: the domain, or those of count >= 1."""

    @property
    def variance(self) -> Fraction:
        """Of the noise on a published count."""

    @property
    def biased(self) -> bool:
        """Whether a label that has events can be missing from an answer."""

    @property
    def loss(self) -> Booked:
        """What one answer loses on one event."""


@dataclass(slots=True, repr=False)
class MetaHistogramState:
    """Exact counts of the open tick and of the cells of unfinished larger ones, and the kept answers: secret."""

    current: Tally
    """Of the open tick."""

    finished: list[Tally]
    """For each level, of the cells completed since the last complete cell of the next level."""

    answers: list[list[Tally]]
    """For each level, the answers about these cells: those of the last release's digit."""

    domain: LabelIndex = field(metadata=TRANSIENT)
    """The labels of the domain in the order of their bytes, if there is one."""


@identified("meta-histogram")
@dataclass(frozen=True, slots=True, kw_only=True)
class MetaHistogram(Gathering):
    """How many events hold each label, added up from one-shot answers about the cells of a base-r tree.

    With `selection.KnownGauss`, all labels of a domain; with `KnownGumb`, the top ones of each cell; with `UnkGauss`
    and `UnkGumb`, those found in a cell. Where `biased`, a label that is missing from a cell's answer loses that
    cell's count: its estimate is too low by what it had there, and no error bar covers that.

    Guarantee: booked as (L rho, 1 - (1 - bad)^L) per event over the whole run, for an answer's (rho, bad) and the
    number of base-r digits L of the horizon.
    Error: of the noise alone, the normal quantile at variance * (digit sum of t), rounded up, for a label in all
    answers.
    Cost: exact counts of at most L + 1 cells and at most (r - 1) L answers; one answer a tick.

    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.selection import KnownGumb
    >>> from pianissimo.testing import NoNoise
    >>> top = KnownGumb(domain=Domain(["a", "b", "c"]), k=1, scale=Fraction(2), variance=Fraction(16))
    >>> run = Run(MetaHistogram(base=2, horizon=8, answer=top), NoNoise())
    >>> run.update(pl.Series([["a", "b"], ["a"]]))
    >>> run.release().value.to_dict()
    {'a': 2}
    """

    base: int
    """r, at least 2."""

    horizon: int
    """How many releases one run may make."""

    answer: OneShot
    """What answers about a complete cell."""

    def __post_init__(self) -> None:
        check_at_least(2, base=self.base)
        check_at_least(1, horizon=self.horizon)

    @property
    def levels(self) -> int:
        """L, the number of base-r digits of the horizon."""
        return len(digits_of(self.horizon, self.base))

    @property
    def biased(self) -> bool:
        return self.answer.biased

    @property
    def max_keys_per_event(self) -> int | None:
        return self.answer.max_keys_per_event

    @property
    def guarantee(self) -> Guarantee:
        # Every tick has one answer; which of them differ is not known beforehand if events are chosen on the way.
        one, levels = self.answer.loss, self.levels
        return event_guarantee(
            Booked(rho=levels * one.rho, bad=1 - (1 - one.bad) ** levels, distance=self.horizon * one.distance),
            horizon=self.horizon,
            source="Cardoso and Rogers 2022, Theorem 3, corrected",
        )

    def error(self, tick: int, coverage: float) -> float:
        check_probability(coverage=coverage)
        deviation = math.sqrt(sum(digits_of(tick, self.base)) * self.answer.variance)
        return math.ceil(normal_quantile(coverage) * deviation)

    def start(self, noise: Noise) -> MetaHistogramState:
        index = LabelIndex(noise)
        if self.answer.domain is not None:
            index.slots_or_new(self.answer.domain.labels)
        return MetaHistogramState(
            current=_nothing(),
            finished=[_nothing() for _ in range(self.levels)],
            answers=[[] for _ in range(self.levels)],
            domain=index,
        )

    def gather(self, state: MetaHistogramState, batch: pl.Series) -> Tally:
        labels, counts = count_labels(batch, self.max_keys_per_event)
        if self.answer.domain is not None:
            known = state.domain.slots(labels) >= 0
            labels, counts = labels.filter(pl.Series(known)), counts[known]
        return in_order(labels, counts)

    def combine(self, pieces: Sequence[Tally]) -> Tally:
        return add_up(pieces)

    def add(self, state: MetaHistogramState, gathered: Tally) -> None:
        state.current = add_up([state.current, gathered])

    def release(self, state: MetaHistogramState, tick: int, noise: Noise) -> LabelCounts:
        cell, place, level = state.current, tick, 0
        while place % self.base == 0:
            # The last of r cells: together they are one cell of the next level, and none of them is used any more.
            cell = add_up([state.finished[level], cell])
            state.finished[level], state.answers[level] = _nothing(), []
            place, level = place // self.base, level + 1
        state.answers[level] = [*state.answers[level], self._answer(state, cell, noise, level, place)]
        state.finished[level] = add_up([state.finished[level], cell])
        state.current = _nothing()
        labels, estimates = add_up([answer for answers in state.answers for answer in answers])
        # A copy: an answer is kept, whatever is done with a release.
        return LabelCounts(detached(labels), estimates.copy())

    def merge(self, left: MetaHistogramState, right: MetaHistogramState) -> MetaHistogramState:
        # Before the first release all there is stands in the open tick.
        merged = add_up([left.current, right.current])
        return MetaHistogramState(current=merged, finished=left.finished, answers=left.answers, domain=left.domain)

    def _answer(self, state: MetaHistogramState, cell: Tally, noise: Noise, level: int, place: int) -> Tally:
        labels, counts = cell
        if self.answer.domain is None:
            keys = keys_of(labels, noise)
        else:
            sparse = counts
            counts = np.zeros(len(self.answer.domain), dtype=np.int64)
            counts[state.domain.slots(labels)] = sparse
            labels, keys = self.answer.domain.labels, state.domain.keys_from(0)
        # A cell is answered once, when its last tick is released.
        bound = sealed(noise, place * int(self.base**level))
        return in_order(*self.answer.answer(labels, keys, counts, bound.at(level, place)))


def _nothing() -> Tally:
    return [pl.Series("key", [], dtype=pl.String), np.empty(0, dtype=np.int64)]


def keys_of(labels: pl.Series, noise: Noise) -> Keys:
    """The item keys of labels as LabelIndex makes them, so that a label has one key wherever it is counted."""
    return noise.at("labels").label_keys(*codec.join_texts(labels))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SortedRelease:
    """A mechanism that is another's but for the order: a base class, as the lists differ by what they sort alone."""

    histogram: Any
    """Whose release is sorted."""

    k: int
    """How many labels are listed at most."""

    def __post_init__(self) -> None:
        check_at_least(1, k=self.k)

    @property
    def guarantee(self) -> Guarantee:
        return cast(Guarantee, self.histogram.guarantee)

    def error(self, tick: int, coverage: float) -> float:
        return cast(float, self.histogram.error(tick, coverage))

    def start(self, noise: Noise) -> Any:
        return self.histogram.start(noise)

    def update(self, state: Any, batch: pl.Series) -> None:
        self.histogram.update(state, batch)

    def gather(self, state: Any, batch: pl.Series) -> codec.Plain:
        return self.histogram.gather(state, batch)

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        return self.histogram.combine(pieces)

    def add(self, state: Any, gathered: codec.Plain) -> None:
        self.histogram.add(state, gathered)

    def release(self, state: Any, tick: int, noise: Noise) -> LabelCounts:
        return _first_of(self.histogram.release(state, tick, noise), self.k)


@identified("top-list")
@dataclass(frozen=True, slots=True, kw_only=True)
class TopList(_SortedRelease):
    """The k labels with the largest estimates of a histogram, in order, released at every tick.

    Guarantee: that of the histogram; sorting its release is post-processing.
    Error: that of the histogram's estimates; the label on top is also the one with lucky noise, so its estimate leans
    upward where counts are close, and a low end that holds must hold for all labels together.
    Cost: that of the histogram; of listed labels at a tick only those that had events, and those so near the first k
    that noise could bring them there.
    """

    histogram: KnownHistogram | UnknownHistogram
    holds_together: bool = False
    """Whether low ends of bars hold for all labels that were chosen from, at once."""

    def __post_init__(self) -> None:
        _SortedRelease.__post_init__(self)
        if isinstance(self.histogram, KnownHistogram) and not self.k <= len(self.histogram.domain):
            raise ParameterError(
                f"k must be at most the {len(self.histogram.domain)} labels of the domain, got {self.k}"
            )

    @property
    def plan(self) -> NoisePlan:
        return self.histogram.plan

    def start(self, noise: Noise) -> Any:
        state: Any = _SortedRelease.start(self, noise)
        if isinstance(self.histogram, KnownHistogram):
            state.leaders = Leaders(self.plan, self.k)
        return state

    def release(self, state: Any, tick: int, noise: Noise) -> LabelCounts:
        if not isinstance(self.histogram, KnownHistogram):
            found: LabelCounts = Conversing.release(self, state, tick, noise)
            return found
        value = self.histogram.first_release(state, tick, noise, state.leaders)
        return _first_of(value, self.k, among=len(self.histogram.domain))

    @property
    def in_shards(self) -> bool:
        """As its histogram."""
        return in_shards(self.histogram)

    @property
    def shard_plans(self) -> tuple[NoisePlan, ...]:
        """Whose noise is drawn where labels are counted."""
        return (self.plan,)

    def split(self, gathered: Tally, shards: int) -> dict[int, Tally]:
        return split_tally(gathered, shards)

    def converse(self, state: Any, tick: int, noise: Noise) -> Conversation[LabelCounts]:  # noqa: ARG002
        answers = yield None
        labels, (estimates,) = joined_shards(answers)
        check_label_count(sum(count for *_, count in answers))
        return _first_of(LabelCounts(labels, estimates), self.k, among=sum(each[2] for each in answers))

    def answer(self, state: Any, question: None, tick: int, noise: Noise) -> list[Any]:
        """The k best that are shown, how many are shown, and how many labels there are."""
        labels, (estimates,), _, count = cast(UnknownHistogram, self.histogram).answer(state, question, tick, noise)
        # No label that has k others of its own shard before it is among the k best of all.
        best = np.sort(np.argsort(-estimates, kind="stable")[: self.k])
        return [labels.gather(best), [estimates[best]], len(labels), count]

    def between(self, state: Any, start: int, end: int, noise: Noise) -> LabelCounts:
        if not isinstance(self.histogram, KnownHistogram):
            return _first_of(self.histogram.between(state, start, end, noise), self.k)
        value = self.histogram.first_between(state, start, end, noise, state.leaders)
        return _first_of(value, self.k, among=len(self.histogram.domain))

    def between_error(self, start: int, end: int, coverage: float) -> float:
        return self.histogram.between_error(start, end, coverage)

    def merge(self, left: Any, right: Any) -> Any:
        return self.histogram.merge(left, right)


@identified("meta-top-list")
@dataclass(frozen=True, slots=True, kw_only=True)
class MetaTopList(_SortedRelease):
    """The k labels with the largest estimates of a tree of one-shot answers, in order, released at every tick.

    Guarantee: that of the tree of answers; sorting its release is post-processing.
    Error: that of its noise; where it is biased, a label that a cell's answer lacks loses that cell.
    Cost: that of the tree of answers.
    """

    histogram: MetaHistogram


def _first_of(value: LabelCounts, k: int, *, among: int | None = None) -> LabelCounts:
    """The k largest estimates, in order; labels come in the order of their bytes, which is kept among equals."""
    order = np.argsort(-value.estimates, kind="stable")[:k]
    chosen_from = len(value.labels) if among is None else among
    return LabelCounts(detached(value.labels.gather(order)), value.estimates[order], among=chosen_from)
