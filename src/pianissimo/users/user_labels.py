"""Labels that nobody listed, where a user is hidden with all her events: how many events, or how many users, hold each.

A label has one series, counted over a plan as those of `UserStatistics` are. A user has at most tau accepted units, and
at most k of them on one label, so her units cost S2(tau, k): for users per label, k = 1, that is tau, and not tau
squared. A label is shown at a tick iff its count h is at least `min_count`, h0, and its estimate at least m_t:

    x_t = max(0, sqrt(2 V_t ln(R tau / delta)) - (k - 1), sqrt(2 V_t ln(R tau / (k delta))))
    m_t = ceil(h0 - 1 + k + 1/2 + x_t), without the 1/2 where the noise is whole

R is all ticks of the run, not those of one start; tau, k and V_t, that of prefix and plan, are those of the start in
force. Once shown, a label is always shown.

*Proof.* For a label x of hers let t0 (t1) be the first tick with h_x >= h0 with (without) her; t0 <= t1. Let A_b be the
mechanism on stream b in which x may be shown from t0 on in both. A_0 and A_1 differ by a shift of the price above, A_1
is ours, and A_0 is ours unless a label of hers is shown in [t0, t1). There its count is at most h0 - 1 + n, n her units
on it, so it is shown at t with a chance of at most exp(-a^2 / (2 V_t)), a = m_t - 1/2 - (h0 - 1) - n. At a tick such
labels have n that sum to at most tau, so one of them is shown with at most tau max_n exp(..) / n; the largest is at
n = 1 or n = k, and m_t makes it delta / R. The sum over ticks is delta: a bad mass. Card: units and windows, U1;
docs/privacy.md, 'Users'.

With a `domain` all its labels are shown, and there is neither threshold nor bad mass; the price is the same.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least, check_fraction, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import MOST_LABELS, Domain, LabelIndex, VisibleLabels, visible_labels
from pianissimo.noise import Noise
from pianissimo.stored_parts import TRANSIENT
from pianissimo.text_views import number_texts
from pianissimo.users.accepted_units import (
    NO_LABELS,
    AcceptedUnits,
    LabelSlots,
    LetIn,
    OfAcceptedUnits,
    checked_labels,
    in_window,
    joined_by_slot,
    joined_labels,
    pairs_of,
    restored_rows,
    stored_by_name,
    stored_by_slot,
)
from pianissimo.users.caps import CutOff
from pianissimo.users.counters import Counters, Law, RunningCounters, Sensitivity, UserBudget
from pianissimo.users.heads import HiddenRest, UserCounts, batch_column, codes_in
from pianissimo.users.segments import Segments, segments_of, there
from pianissimo.users.user_table import LARGEST_LIMIT, Column, OpenRows, PairUnits, UnitRows, unit_rows

_ROUNDING_ERROR = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Appearance:
    """When a label that nobody listed is shown."""

    releases: int
    """R: all publishing ticks of the whole run."""

    delta: Fraction
    """The chance that a label is ever shown which is not frequent enough without one user."""

    min_count: int = 1
    """h0: how many accepted units a label needs."""

    show_from: int = 1
    """A public floor of estimates."""

    def threshold(self, law: Law, cap: int, per_label: int | None) -> int:
        """m_t: the least estimate that is shown under the noise of a release, with the cap of the start in force.

        >>> from pianissimo.noise.laws import gaussian_node
        >>> law = Law(None, 0, gaussian_node(Fraction(400)))
        >>> rule = Appearance(releases=100, delta=Fraction(5, 10**10))
        >>> [rule.threshold(law, 16, most) for most in (1, 4, None)]
        [153, 153, 161]
        """
        most = cap if per_label is None else min(per_label, cap)
        spread = self.spread(law.variance, cap, most)
        return max(self.show_from, math.ceil(self.min_count - 1 + most + (0.5 if law.is_rounded else 0.0) + spread))

    def spread(self, variance: Fraction, cap: int, per_label: int) -> float:
        """x_t: by logarithms of whole numbers, which are right to the last bits at any size."""
        one = math.log(self.releases * cap) + math.log(self.delta.denominator) - math.log(self.delta.numerator)
        first, last = (
            math.sqrt(2 * float(variance) * max(0.0, odds)) * (1 + _ROUNDING_ERROR)
            for odds in (one, one - math.log(per_label))
        )
        return max(0.0, first - (per_label - 1), last)


@dataclass(slots=True, repr=False)
class UserLabelsState:
    """Which user gave which labels, all by keyed names, and the exact counts of what was accepted: secret."""

    units: AcceptedUnits
    pairs: PairUnits
    index: LabelIndex
    counts: NDArray[np.int64]
    shown: NDArray[np.bool_]
    segments: Segments | None
    counters: list[RunningCounters] = field(metadata=TRANSIENT)
    visible: VisibleLabels | None = field(metadata=TRANSIENT, default=None)
    """The slots of the labels that are shown, and these labels, in the order of their bytes."""


@identified("user-labels")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserLabels(OfAcceptedUnits[UserCounts], UserBudget):
    """How many accepted events, or users, hold each label, for the labels that have passed a threshold.

    A batch is a table with the columns `user` and `label`: texts, or lists of texts. Deletions are not offered: of a
    label that was shown for what is taken back, the proof has no bound.

    Guarantee: per user over the whole run, the cap's epsilon, and beside it rho at integer orders with `delta` for a
    bad mass; with `PeriodCap`, per user and period. Laplace noise for a known domain alone.
    Error: that of the plan while the cap stands at its first value; every release carries its own bars, which cover the
    accepted units. A label about the threshold is shown when its noise is high, so its estimate leans upward then.
    Cost: about 36 bytes a user, with `per_label` 12 to 18 bytes for each pair of a user and a label, and 8 bytes for
    each unit that a cap left out which may be raised; labels as `UnknownHistogram`.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> from pianissimo.users import FixedCap
    >>> budget = {"plan": HaarPlan, "horizon": 8, "rho": Fraction(4), "delta": Fraction(1, 10**6)}
    >>> run = Run(UserLabels(cap=FixedCap(units=2), per_label=1, **budget), NoNoise())
    >>> rows = [(number, label) for number in range(90) for label in ("home", "home", f"page {number}")]
    >>> run.update(pl.DataFrame(rows, schema=["user", "label"], orient="row"))
    >>> run.release().value.to_dict()
    {'home': 90}
    """

    per_label: int | None = None
    """k: how many units of one user on one label count; None for all of them: events are counted, with 1 users."""

    domain: Domain | None = None
    """The labels, if they are known and public: all are released, and others use up no units."""

    delta: Fraction | None = None
    """Without a domain: the chance that a label is ever shown which is not frequent enough without one user."""

    min_count: int = 1
    """Without a domain: how many accepted units a label needs to be shown, however high its noise; with `per_label` of
    1 these are users."""

    show_from: int = 1
    """Without a domain: a public floor. No estimate below it is shown for the first time."""

    max_keys_per_event: int | None = 1
    """How many distinct labels of one event count; each of them is a unit. None for any number."""

    remember: bool = True
    """Once shown, a label is always shown; the promise is the same."""

    other: Fraction = Fraction(0)
    """Without a domain: the share of the budget for a separate total, behind an estimate of all that is not shown."""

    by_slot: bool = False
    """Whether what a tick adds is stored by the slots of users and labels, and without users who have no units left: it
    takes less. Noise is bound to what is stored, so that streams of before go on by name."""

    def __post_init__(self) -> None:
        check_at_least(1, min_count=self.min_count, show_from=self.show_from)
        for name in ("per_label", "max_keys_per_event"):
            if getattr(self, name) is not None:
                check_at_least(1, **{name: getattr(self, name)})
        if self.per_label is not None and not self.per_label <= LARGEST_LIMIT:
            raise ParameterError(f"per_label must be below 2^32, got {self.per_label}; None counts all")
        check_fraction(other=self.other)
        if not 0 <= self.other < 1:
            raise ParameterError(f"other must be at least 0 and below 1, got {float(self.other)}")
        if self.domain is None:
            self._check_unknown()
        elif self.delta is not None or self.min_count > 1 or self.show_from > 1 or self.other:
            raise ParameterError(
                "delta, min_count, show_from and other must be left out where the domain is known, got one"
            )
        UserBudget.__post_init__(self)

    def _check_unknown(self) -> None:
        if self.delta is None:
            raise ParameterError("unknown labels must have a delta, got none; allow one such as 1e-9, or list them")
        check_fraction(delta=self.delta)
        check_probability(delta=self.delta)
        if self.epsilon is not None:
            raise ParameterError(
                "unknown labels of users must have Gaussian noise, got a pure epsilon: how far its noise may lift a "
                "label is bounded by its variance; allow a delta, or list the labels"
            )

    @property
    def in_shards(self) -> bool:
        """Whether shards can have the users: by names, which whoever gathers knows."""
        return not self.by_slot

    @property
    def bad(self) -> Fraction:
        return Fraction(0) if self.delta is None else self.delta

    @property
    def appearance(self) -> Appearance | None:
        """When labels are shown; None where all are."""
        if self.delta is None:
            return None
        return Appearance(releases=self.horizon, delta=self.delta, min_count=self.min_count, show_from=self.show_from)

    @property
    def counters(self) -> tuple[Counters, ...]:
        # What a user adds to the total behind the rest is all in one series: tau squared, whatever the labels.
        series = MOST_LABELS if self.domain is None else len(self.domain)
        own = Sensitivity(total=1, squared=1, most_per_series=self.per_label)
        labels = self.counters_of(own, share=1 - self.other, series=series)
        if not self.other:
            return (labels,)
        return (labels, self.counters_of(Sensitivity(total=1, squared=1), share=self.other))

    def threshold(self, tick: int, *, start: int = 1, since: int = 0) -> int | None:
        """The least estimate that is shown at a tick, if the counters have started so often, last after `since`."""
        cap = self.cap.caps[start - 1]
        return self._threshold(self.counters[0].law(start, cap, since, tick), cap)

    def _threshold(self, law: Law, cap: int) -> int | None:
        return None if self.appearance is None else self.appearance.threshold(law, cap, self.per_label)

    def start(self, noise: Noise) -> UserLabelsState:
        index = LabelIndex(noise)
        if self.domain is not None:
            index.slots_or_new(self.domain.labels)
        units = AcceptedUnits(noise, self.cap, self.horizon, self.per_label)
        return UserLabelsState(
            units=units,
            pairs=units.pairs,
            index=index,
            counts=np.zeros(len(index), dtype=np.int64),
            shown=np.ones(len(index), dtype=np.bool_),
            segments=segments_of(self.history, units.course),
            counters=[RunningCounters(each) for each in self.counters],
        )

    def update(self, state: UserLabelsState, batch: pl.DataFrame) -> None:
        # The same as `add` of what is gathered, without bringing rows together.
        rows, labels, numbers = self._rows(batch, state.units.open_rows)
        slots = numbers if labels is None else state.index.slots_or_new(labels).astype(np.uint32)[numbers]
        state.units.add(rows.one_by_one(slots))

    def gather(self, state: UserLabelsState, batch: pl.DataFrame) -> codec.Plain:
        """Users, the rows of each that can be units, in her own order, and the labels they hold."""
        units = state.units
        rows, labels, numbers = self._rows(batch, units.open_rows if self.by_slot else units.users.rows_by_name)
        if not self.by_slot:
            return stored_by_name(self._units(rows, numbers), labels)
        if labels is None:
            known = LabelSlots(np.arange(len(state.index)), NO_LABELS)
        else:
            known = LabelSlots(state.index.slots(labels), labels)
        return stored_by_slot(self._units(rows, numbers), known)

    def by_name(self) -> "UserLabels":
        return replace(self, by_slot=False)

    def from_names(self, state: UserLabelsState, gathered: codec.Plain) -> codec.Plain:
        if not self.by_slot:
            return gathered
        names, counts, labels, numbers = gathered
        rows = state.units.open_names(np.repeat(names, counts, axis=0))
        kept = numbers if rows.places is None else numbers[rows.places]
        if isinstance(labels, pl.Series):
            known = LabelSlots(state.index.slots(labels), labels)
            return stored_by_slot(self._units(rows, kept.astype(np.uint32)), known)
        known = LabelSlots(np.arange(len(state.index)), NO_LABELS)
        return stored_by_slot(self._units(rows, labels[kept].astype(np.uint32)), known)

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        if self.by_slot:
            known, rows, numbers = joined_by_slot(pieces)
            return stored_by_slot(self._units(rows, numbers), known)
        labels, rows, (numbers,) = joined_labels(pieces)
        return stored_by_name(self._units(rows, numbers), labels)

    def _units(self, rows: OpenRows, numbers: NDArray[np.uint32]) -> UnitRows:
        return unit_rows(rows, numbers, self.per_label, self.cap.caps[-1])

    def add(self, state: UserLabelsState, gathered: codec.Plain) -> None:
        state.units.add(restored_rows(gathered, state.index))

    def _rows(
        self, batch: pl.DataFrame, rows_of: Callable[[pl.Series], OpenRows]
    ) -> tuple[OpenRows, pl.Series | None, NDArray[np.uint32]]:
        """The pairs of an event and a label, the different labels, and the number of each pair's among these."""
        events = pl.DataFrame({"user": batch_column(batch, "user"), "label": batch_column(batch, "label")})
        pairs = pairs_of(events, self.max_keys_per_event)
        if self.domain is None:
            labels = checked_labels(pairs["label"])
            rows = rows_of(pairs["user"])
            return rows, *number_texts(rows.of(labels))
        # Labels that are not listed use up no units: whether one is listed is public.
        codes = codes_in(self.domain, pairs["label"])
        rows = rows_of(pairs["user"].filter(pl.Series(codes >= 0)))
        return rows, None, rows.of(pl.Series(codes[codes >= 0])).to_numpy().astype(np.uint32)

    def moves(self, columns: Sequence[Column]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Labels by their slots, and how many units each has."""
        counts = np.bincount(columns[0])
        slots = np.flatnonzero(counts)
        return slots.astype(np.uint32), counts[slots]

    def closed(self, state: UserLabelsState, rounds: Sequence[LetIn], tick: int, noise: Noise) -> UserCounts:
        """What is published of the units that came in, round after round."""
        units = state.units
        more = len(state.index) - len(state.counts)
        state.counts = np.concatenate([state.counts, np.zeros(more, dtype=np.int64)])
        state.shown = np.concatenate([state.shown, np.zeros(more, dtype=np.bool_)])
        for earlier, (_, slots, moves) in enumerate(rounds):
            moved = np.zeros(len(state.counts), dtype=np.int64)
            np.add.at(moved, slots, moves)
            state.counts += moved
            if state.segments is not None and in_window(earlier, tick):
                state.segments.add_all(moved)
        if state.segments is not None:
            state.segments.close()
        place, counters = units.course.place(), state.counters[0]
        estimates = counters.release(state.counts, place, tick, noise.at("labels"), state.index.keys)
        law = counters.counters.law(*place, tick)
        threshold = self._threshold(law, units.course.cap)
        if threshold is not None:
            # Eligible by what was accepted: a label of left-out rows alone is not there yet.
            passing = (state.counts >= self.min_count) & (estimates >= threshold)
            state.shown = state.shown | passing if self.remember else passing
        value = self._value(state, estimates, law, units.course.cut_off())
        return replace(value, rest=self._rest(state, value, threshold, tick, noise)) if self.other else value

    def between(self, state: UserLabelsState, start: int, end: int, noise: Noise) -> UserCounts:
        """What was accepted in ticks start + 1 .. end, each under the cap that held when it began; of labels shown now.

        It is free: all rows of a shown label are in the comparison mechanism, and nothing is compared with a threshold.
        """
        window, counters = there(state.segments).window(start, end, size=len(state.counts)), self.counters[0]
        # Most labels are never shown, and need no noise.
        shown, estimates = np.flatnonzero(state.shown), np.zeros(len(state.counts), dtype=np.int64)
        keys = state.index.keys(0, len(state.counts))[shown]
        estimates[shown] = window.estimates(counters, window.moves[shown], noise.at("labels"), keys)
        return self._value(state, estimates, window.law(counters), window.cut)

    def _value(self, state: UserLabelsState, estimates: NDArray[np.int64], law: Law, cut: CutOff) -> UserCounts:
        """Of the labels that are shown."""
        state.visible = visible_labels(state.index, np.flatnonzero(state.shown), state.visible)
        slots, labels, _ = state.visible
        # Of a user above the cap no more is missing on one label than she may have on it.
        return UserCounts(labels.clone(), estimates[slots], law, replace(cut, per_series=self.per_label))

    def _rest(
        self, state: UserLabelsState, value: UserCounts, threshold: int | None, tick: int, noise: Noise
    ) -> HiddenRest:
        """A separately noised total less what is shown; a sum over labels that are present but not shown would leak."""
        course, counters = state.units.course, state.counters[1]
        total = counters.release(state.counts.sum(keepdims=True), course.place(), tick, noise.at("other"))
        own, twelfth = value.law.variance + Fraction(1, 12), Fraction(1, 12)
        variance = counters.counters.law(*course.place(), tick).variance + twelfth + len(value.labels) * own
        # Of labels that noise may have lifted over the threshold, it is thought to be two deviations too high.
        near = (threshold or 0) + 2 * math.sqrt(own)
        lean = 2 * int((value.estimates < near).sum()) * math.sqrt(own)
        estimate = int(total[0] - value.estimates.sum())
        return HiddenRest(estimate, math.sqrt(variance), lean, course.cut_off())
