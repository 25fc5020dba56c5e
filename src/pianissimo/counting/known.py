"""A histogram of labels known beforehand: one independent running count for each, and what its release is.

Cardoso and Rogers 2022, Algorithm 2 (KnownBase), over any noise plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least
from pianissimo.counting.counter import OverPlan
from pianissimo.counting.reachable import Leaders
from pianissimo.identity import identified
from pianissimo.labels import Domain, LabelIndex, add_counts, add_up_slots, count_known, labels_by_shard
from pianissimo.loss.losses import Guarantee, event_guarantee
from pianissimo.noise import Noise
from pianissimo.noise.plan import plan_loss
from pianissimo.noise.recent import Recent
from pianissimo.noise.running import RunningNoise, evaluate, rounded, running_noise
from pianissimo.stored_parts import TRANSIENT
from pianissimo.text_views import add_up_texts

Tally = list[codec.Plain]
"""Labels in the order of their bytes and a whole number for each, as a list of two: plain data."""


@dataclass(frozen=True, slots=True)
class Rest:
    """All labels that are not shown, together: an estimate and the standard deviation of its noise."""

    estimate: int
    deviation: float
    lean: float = 0.0
    """By how much it may be too low, since labels near the threshold are shown when their noise is high."""


@dataclass(frozen=True, slots=True, eq=False)
class LabelCounts:
    """Labels and an estimate for each: in the order of their bytes, or by rank in a top list."""

    labels: pl.Series
    estimates: NDArray[np.int64]
    rest: Rest | None = None
    among: int = 0
    """Of a top list: how many labels it was chosen from."""

    def to_dict(self) -> dict[str, int]:
        return dict(zip(self.labels.to_list(), self.estimates.tolist(), strict=True))


def in_order(labels: pl.Series, numbers: NDArray[np.int64]) -> Tally:
    """Labels in the order of their bytes with their numbers, so that the same events always give the same data."""
    return list(add_up_texts(labels.alias("key"), numbers))


def split_tally(tally: Tally, shards: int) -> dict[int, Tally]:
    """What each shard counts of a tally: its labels, in the same order."""
    labels, numbers = tally
    return {shard: [labels.gather(some), numbers[some]] for shard, some in labels_by_shard(labels, shards)}


def joined_shards(answers: Sequence[Sequence[Any]], width: int = 1) -> tuple[pl.Series, list[NDArray[np.int64]]]:
    """The labels of all shards in the order of their bytes, and so many columns beside them.

    An answer begins with its labels, in that order, and its columns.
    """
    if len(answers) == 1:
        labels, beside, *_ = answers[0]
        return labels, list(beside)
    labels = pl.concat([pl.Series("key", [], dtype=pl.String), *(each[0] for each in answers)])
    order = labels.arg_sort().to_numpy()
    none = np.zeros(0, dtype=np.int64)
    return labels.gather(order), [
        np.concatenate([none, *(each[1][place] for each in answers)])[order] for place in range(width)
    ]


def add_up(tallies: Sequence[Tally]) -> Tally:
    """The numbers of several tallies added up label by label."""
    filled = [(labels, numbers) for labels, numbers in tallies if len(labels)]
    if len(filled) < 2:
        return list(filled[0] if filled else tallies[0])
    # Each is in order, so that they are merged.
    texts = pl.concat([labels.alias("key") for labels, _ in filled], rechunk=False)
    return list(add_up_texts(texts, np.concatenate([numbers for _, numbers in filled])))


@dataclass(slots=True, repr=False)
class KnownHistogramState:
    """The exact count of each label of the domain: secret."""

    counts: NDArray[np.int64]
    recent: Recent
    index: LabelIndex = field(metadata=TRANSIENT)
    noise: RunningNoise = field(metadata=TRANSIENT)
    leaders: Leaders | None = field(metadata=TRANSIENT, default=None)
    """Where only the first labels are asked for."""


@identified("known-histogram")
@dataclass(frozen=True, slots=True, kw_only=True)
class KnownHistogram(OverPlan):
    """How many events hold each label of a domain, released at every tick; labels outside it are passed over.

    Guarantee: per event over the whole run, D cost / 2 zCDP at integer orders, or (D cost)-DP over a Laplace plan,
    D = max_keys_per_event.
    Error: the quantile of the plan's noise at the tick, the same for every label.
    Cost: one integer a label, and as a cache the plan's nodes in use; one draw a label and tick.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> run = Run(KnownHistogram(plan=HaarPlan.calibrated(horizon=8, rho=0.5), domain=Domain(["n", "s"])), NoNoise())
    >>> run.update(pl.Series(["s", "s", "elsewhere"]))
    >>> run.release().value.to_dict()
    {'n': 0, 's': 2}
    """

    domain: Domain
    """The labels that are counted, all of which are released."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count: Delta_0."""

    def __post_init__(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)

    @property
    def guarantee(self) -> Guarantee:
        # Lemma 3.1: at most Delta_0 counts move, each by one; their losses add. Labels of count 0 get noise too.
        moved = min(self.max_keys_per_event, len(self.domain))
        return event_guarantee(
            plan_loss(self.plan, series=moved, watched=len(self.domain)),
            horizon=self.plan.horizon,
            source="Cardoso and Rogers 2022, Lemma 3.1; docs/privacy.md, 'Plans'",
        )

    def start(self, noise: Noise) -> KnownHistogramState:
        index = LabelIndex(noise)
        index.slots_or_new(self.domain.labels)
        return KnownHistogramState(
            counts=np.zeros(len(self.domain), dtype=np.int64),
            recent=Recent(self.history),
            index=index,
            noise=running_noise(self.plan),
        )

    def gather(self, state: KnownHistogramState, batch: pl.Series) -> list[NDArray[np.int64]]:
        # The slots of a domain never change.
        return list(count_known(batch, state.index, self.max_keys_per_event))

    def combine(self, pieces: Sequence[list[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
        return add_up_slots(pieces)

    def add(self, state: KnownHistogramState, gathered: list[NDArray[np.int64]]) -> None:
        slots, counts = gathered
        add_counts(state.counts, slots, counts)
        state.recent.add(slots, counts)
        if state.leaders is not None:
            state.leaders.note(slots, counts)

    def release(self, state: KnownHistogramState, tick: int, noise: Noise) -> LabelCounts:
        state.recent.close()
        numerators = state.noise.at(noise, tick, len(state.counts), state.index.keys)
        return LabelCounts(self.domain.labels.clone(), rounded(state.counts, numerators, self.plan.shift))

    def between(self, state: KnownHistogramState, start: int, end: int, noise: Noise) -> LabelCounts:
        moves = state.recent.between(start, end, size=len(state.counts))
        numerators = state.noise.since(noise, start, end, state.index.keys(0, len(moves)))
        return LabelCounts(self.domain.labels.clone(), rounded(moves, numerators, self.plan.shift))

    def first_release(self, state: KnownHistogramState, tick: int, noise: Noise, leaders: Leaders) -> LabelCounts:
        """The release of all labels that can be among the first, and perhaps of others, in the order of the domain."""
        state.recent.close()
        slots = leaders.slots(state.counts)
        if slots is None:
            numerators = leaders.noise.at(noise, tick, len(state.counts), state.index.keys)
            return LabelCounts(self.domain.labels, rounded(state.counts, numerators, self.plan.shift))
        keys = state.index.keys_at
        numerators = leaders.noise.at(noise, tick, len(slots), lambda start, end: keys(slots[start:end]))
        order = np.argsort(slots)
        estimates = rounded(state.counts[slots], numerators, self.plan.shift)
        return LabelCounts(self.domain.labels.gather(slots[order]), estimates[order])

    def first_between(
        self, state: KnownHistogramState, start: int, end: int, noise: Noise, leaders: Leaders
    ) -> LabelCounts:
        """The same of an interval, which has the noise of two releases."""
        moves = state.recent.between(start, end, size=len(state.counts))
        slots = np.flatnonzero(moves >= leaders.least_of(moves, releases=2))
        numerators = evaluate(self.plan, noise, end, state.index.keys_at(slots), since=start)
        return LabelCounts(self.domain.labels.gather(slots), rounded(moves[slots], numerators, self.plan.shift))

    def merge(self, left: KnownHistogramState, right: KnownHistogramState) -> KnownHistogramState:
        every_slot = np.arange(len(left.counts))
        add_counts(left.counts, every_slot, right.counts)
        left.recent.add(every_slot, right.counts)
        if left.leaders is not None:
            left.leaders.note(every_slot, right.counts)
        return left
