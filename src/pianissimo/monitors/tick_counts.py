"""The noisy counts of one tick, and which of them are unusually large: alarms and trends of single events.

An event lies in one tick, and the noise of each tick is fresh. So it moves the counts of one tick alone, and all ticks
together lose what one does: nothing is charged, nothing is remembered, and there may be any number of reports.

*Loss* (card U4). An event that holds D of the keys moves D counts by one. With discrete Laplace noise of scale b, which
has P[Z = z] = (1 - a) / (1 + a) a^|z| with a = e^(-1 / b), each count loses 1 / b: D / b together. Which counts are
reported, and with which values, follows from the noisy counts. The events of other ticks may depend on all releases
before them: the composition is one of ticks, of which one holds the event.

*Keys that nobody knew.* Counted are those that some event of the tick holds, n >= 1, and reported those with
n + Z >= 1 + t. A key that one event alone holds is reported with it with probability P[Z >= t] = a^t / (1 + a), and
never without it. With t so high that this is at most delta for each of the D keys of an event, D delta is bad mass: on
all other outcomes the two streams are as above, since a key with another holder is counted in both.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import Real, check_at_least, check_fraction, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import (
    Domain,
    LabelIndex,
    add_counts,
    add_up_slots,
    count_known,
    count_labels,
    detached,
    numbered_labels,
)
from pianissimo.loss.losses import Guarantee, Mixed, Pure, event_guarantee, log_inverse
from pianissimo.mechanism import Gathering
from pianissimo.monitors.alarms import Found
from pianissimo.noise import Noise
from pianissimo.noise.keyed import DRAW_DISTANCE, sealed
from pianissimo.noise.laws import LaplaceNode, laplace_node
from pianissimo.stored_parts import TRANSIENT

LEAST_SCALE = Fraction(1, 8)
"""No sampler has noise of a scale below a tenth."""

FALSE_ALARMS = Fraction(1, 20)
"""With what chance a count of nothing reaches the margin, or one above it falls below the threshold, in a whole run."""


@dataclass(slots=True, repr=False)
class TickCountsState:
    """How many events of the open tick hold each key: secret."""

    counts: NDArray[np.int64]
    index: LabelIndex
    """Keys of the open tick; in a known domain there are none."""

    known: LabelIndex | None = field(metadata=TRANSIENT)
    """Keys of the domain."""


@identified("tick-counts")
@dataclass(frozen=True, slots=True, kw_only=True)
class TickCounts(Gathering):
    """The keys that unusually many events of a tick hold, each with its noisy count, released at every tick.

    A batch is a column of labels, or of lists of labels. An alarm is the one key of a domain of one.

    Guarantee: (D / scale)-DP per event over the whole run, D = max_keys_per_event; without a domain D delta besides.
    Error: the quantile of the discrete Laplace law, before the cut at the threshold.
    Cost: one integer a key of the open tick, and one draw; nothing is kept from tick to tick.

    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> counts = TickCounts(horizon=8760, scale=Fraction(1), threshold=22, delta=Fraction(1, 10**9))
    >>> counts.margin
    12
    >>> run = Run(counts, NoNoise())
    >>> run.update(pl.Series(["fever"] * 30 + ["cough"] * 4))
    >>> run.release().value.to_dict()
    {'fever': 30}
    >>> run.release().value.to_dict()
    {}
    """

    horizon: int
    """How many releases one run may make."""

    scale: Fraction
    """Of the noise: b."""

    threshold: int
    """A key is reported from this noisy count on."""

    domain: Domain | None = None
    """The keys that can be reported, if they are known."""

    max_keys_per_event: int = 1
    """How many distinct keys of one event count: D."""

    delta: Fraction = Fraction(0)
    """The chance that a key which one event alone holds is reported; above 0 in an unknown domain only."""

    def __post_init__(self) -> None:
        check_at_least(1, horizon=self.horizon, max_keys_per_event=self.max_keys_per_event, threshold=self.threshold)
        check_fraction(scale=self.scale, delta=self.delta)
        _ = self.node.bound
        if self.domain is not None:
            if self.delta != 0:
                raise ParameterError(f"delta must be 0 where the domain is known, got {float(self.delta)}")
            return
        check_probability(delta=self.delta)
        least = lone_event_threshold(self.scale, self.delta)
        if not self.threshold >= least:
            raise ParameterError(
                f"threshold must be at least {least} where the domain is unknown, got {self.threshold}: a lower one "
                "shows that an event is there by keys that it alone holds; give a domain, or allow a larger delta"
            )

    @property
    def node(self) -> LaplaceNode:
        """The noise of one count."""
        return LaplaceNode(self.scale)

    @property
    def moved(self) -> int:
        """How many counts one event moves at most."""
        return self.max_keys_per_event if self.domain is None else min(self.max_keys_per_event, len(self.domain))

    @property
    def guarantee(self) -> Guarantee:
        # Only draws in which the event takes part count: those of its keys at its tick.
        epsilon, distance = self.moved * self.node.price(1), self.moved * DRAW_DISTANCE
        loss = Pure(epsilon=epsilon, distance=distance)
        return event_guarantee(
            loss if self.domain is not None else Mixed(pure=epsilon, bad=self.moved * self.delta, distance=distance),
            horizon=self.horizon,
            source="one tick alone; docs/privacy.md, 'Alarms of events'",
        )

    def error(self, tick: int, coverage: float) -> float:  # noqa: ARG002
        # P[|Z| > h] = 2 P[Z >= h + 1].
        return float(least_passed(self.scale, (1 - Fraction(coverage)) / 2) - 1)

    @property
    def margin(self) -> int:
        """What the noise of a key reaches at none of the ticks, with a chance of 95 %."""
        return noise_margin(self.scale, self.horizon)

    def detectable(self, keys: int = 1) -> int:
        """The smallest count that is found whenever it comes, with a chance of 95 % over all ticks and so many keys."""
        return self.threshold + noise_margin(self.scale, self.horizon * keys) - 1

    def start(self, noise: Noise) -> TickCountsState:
        known = None
        if self.domain is not None:
            known = LabelIndex(noise)
            known.slots_or_new(self.domain.labels)
        counts = np.zeros(0 if known is None else len(known), dtype=np.int64)
        return TickCountsState(counts=counts, index=LabelIndex(noise), known=known)

    def gather(self, state: TickCountsState, batch: pl.Series) -> codec.Plain:
        if state.known is not None:
            return [None, *count_known(batch, state.known, self.max_keys_per_event)]
        labels, counts = count_labels(batch, self.max_keys_per_event)
        order = labels.arg_sort().to_numpy()
        return [detached(labels.gather(order)), np.zeros(0, dtype=np.int64), counts[order]]

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        if pieces[0][0] is None:
            return [None, *add_up_slots([piece[1:] for piece in pieces])]
        labels, places = numbered_labels([piece[0] for piece in pieces])
        _, counts = add_up_slots([[place, piece[2]] for place, piece in zip(places, pieces, strict=True)])
        return [labels, pieces[0][1], counts]

    def add(self, state: TickCountsState, gathered: codec.Plain) -> None:
        labels, slots, counts = gathered
        if labels is not None:
            slots = state.index.slots_or_new(labels)
            more = np.zeros(len(state.index) - len(state.counts), dtype=np.int64)
            state.counts = np.concatenate([state.counts, more])
        add_counts(state.counts, slots, counts)

    def release(self, state: TickCountsState, tick: int, noise: Noise) -> Found:
        index = state.index if state.known is None else state.known
        fresh = sealed(noise, tick).at("tick", tick)
        values = self.node.added(state.counts, index.keys(0, len(index)), fresh)
        places = np.flatnonzero(values >= self.threshold)
        labels, values = index.labels.gather(places), values[places]
        state.counts = np.zeros(0 if state.known is None else len(index), dtype=np.int64)
        if state.known is None:
            state.index = LabelIndex(noise)
        # The order of the reports must tell nothing about what came when.
        order = labels.arg_sort().to_numpy()
        return Found(detached(labels.gather(order)), values[order])


def tick_noise(epsilon: Fraction, keys: int) -> LaplaceNode:
    """The noise of counts of which one event moves so many: together they lose at most epsilon."""
    return laplace_node(max(keys / epsilon, LEAST_SCALE))


def least_passed(scale: Fraction, chance: Real) -> int:
    """The least t with P[Z >= t] = a^t / (1 + a) <= chance, a = e^(-1 / scale); rounded up by a hair."""
    check_probability(chance=chance)
    rate = 1 / float(scale)
    return max(0, math.ceil((log_inverse(chance) - math.log1p(math.exp(-rate))) / rate * (1 + 1e-9)))


def lone_event_threshold(scale: Fraction, delta: Fraction) -> int:
    """The least threshold of unknown keys: 1 + t.

    >>> [lone_event_threshold(Fraction(1), Fraction(1, 10**power)) for power in (9, 6)]
    [22, 15]
    """
    return 1 + least_passed(scale, delta)


def noise_margin(scale: Fraction, tests: int, failure: Fraction = FALSE_ALARMS) -> int:
    """What no noise of so many reaches, but for this chance: ln(M / (beta (1 + a))) b.

    >>> noise_margin(Fraction(1), 8760)
    12
    """
    return least_passed(scale, failure / tests)
