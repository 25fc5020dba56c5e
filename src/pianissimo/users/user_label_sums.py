"""Sums and means by labels that nobody listed, or several labels an event, where a user is hidden with all her events.

Labels and units are those of `UserLabels`, the two series of a label those of `LabelSumsHead`: A = sum of v - lo, and B
= sum of hi - v. A unit moves them by R = hi - lo together, so all of a user's cost R^2 S2(m, k) times the plan's. A
label is shown by the number of its units alone, N = (A + B) / R, whose noise has the variance 2 V / R^2:

    at least h0 units, and A + B >= R (h0 - 1 + k + x_t) + 1, x_t of `Appearance` for that variance

without the 1, which is two roundings, where the noise is whole. The proof is that of `UserLabels` with both series in
what is compared: N is a sum of them, and what is made of B besides is looked at for shown labels only. Card: units and
windows, U1 and U5; docs/privacy.md, 'Sums and means by label'.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least, check_fraction, check_probability
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import MOST_LABELS, Domain, LabelIndex, VisibleLabels, visible_labels
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.noise.running import check_answers
from pianissimo.stored_parts import TRANSIENT
from pianissimo.text_views import number_texts
from pianissimo.users.accepted_units import (
    AcceptedUnits,
    LetIn,
    OfAcceptedUnits,
    checked_labels,
    in_window,
    joined_labels,
    pairs_of,
    restored_rows,
    stored_by_name,
)
from pianissimo.users.counters import Counters, Law, RunningCounters, Sensitivity, UserBudget
from pianissimo.users.heads import batch_column, coarse_ends, codes_in, whole_steps
from pianissimo.users.label_sums_head import UserEnds
from pianissimo.users.segments import Segments, segments_of, there
from pianissimo.users.user_labels import Appearance
from pianissimo.users.user_table import Column, OpenRows, PairUnits, Units, row_coins, unit_rows

_SERIES = ("above the low end", "below the high end")
"""Where the noise of both is."""


@dataclass(slots=True, repr=False)
class UserLabelSumsState:
    """Which user gave which labels, all by keyed names, and the exact sums of what was accepted: secret."""

    units: AcceptedUnits
    pairs: PairUnits
    index: LabelIndex
    totals: NDArray[np.int64]
    """Two rows: A and B."""

    shown: NDArray[np.bool_]
    segments: Segments | None
    """Of slot n, A in place 2 n and B in place 2 n + 1."""

    counters: list[RunningCounters] = field(metadata=TRANSIENT)
    visible: VisibleLabels | None = field(metadata=TRANSIENT, default=None)
    """The slots of the labels that are shown, and these labels, in the order of their bytes."""


@identified("user-label-sums")
@dataclass(frozen=True, slots=True, kw_only=True)
class UserLabelSums(OfAcceptedUnits[UserEnds], UserBudget):
    """What sums and means of the accepted events of each label are made of, for labels that have passed a threshold.

    A batch is a table with the columns `user`, `label`, texts or lists of texts, and `value`, whole steps of the grid.

    Guarantee: per user over the whole run, the cap's epsilon, and beside it rho at integer orders with `delta` for a
    bad mass; with `PeriodCap`, per user and period. Laplace noise for a known domain alone.
    Error: that of one series while the cap stands at its first value; every release carries its own bars, which cover
    the accepted events.
    Cost: about 36 bytes a user, 16 bytes for each unit that a cap left out which may be raised; labels as
    `UnknownHistogram`, with two integers each.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> from pianissimo.users import FixedCap
    >>> budget = {"plan": HaarPlan, "horizon": 8, "rho": Fraction(4), "delta": Fraction(1, 10**6)}
    >>> run = Run(UserLabelSums(cap=FixedCap(units=2), low=0, high=10, **budget), NoNoise())
    >>> rows = [(number, label, 3) for number in range(90) for label in ("home", f"page {number}")]
    >>> run.update(pl.DataFrame(rows, schema=["user", "label", "value"], orient="row"))
    >>> run.release().value.to_dict()
    {'home': [270, 630]}
    """

    in_shards: ClassVar[bool] = True

    low: int
    """The least value of an event, in steps of the grid; lower ones are raised to it."""

    high: int
    """The largest value of an event, in steps of the grid; higher ones are lowered to it."""

    coarse: int = 1
    """How many steps of the grid count as one; what lies between is rounded by coins, right on average."""

    domain: Domain | None = None
    """The labels, if they are known and public: all are released, and others use up no units."""

    delta: Fraction | None = None
    """Without a domain: the chance that a label is ever shown which is not frequent enough without one user."""

    min_count: int = 1
    """Without a domain: how many accepted units a label needs to be shown, however high its noise."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count; each of them is a unit."""

    def __post_init__(self) -> None:
        check_at_least(1, min_count=self.min_count, max_keys_per_event=self.max_keys_per_event, coarse=self.coarse)
        if not self.low < self.high:
            raise ParameterError(f"low must be below high, got {self.low} and {self.high}")
        _ = self.ends
        if self.domain is not None and (self.delta is not None or self.min_count > 1):
            raise ParameterError("delta and min_count must be left out where the domain is known, got one")
        if self.domain is None:
            if self.delta is None or self.epsilon is not None:
                raise ParameterError(
                    "unknown labels must have a delta and Gaussian noise, got another; list the labels"
                )
            check_fraction(delta=self.delta)
            check_probability(delta=self.delta)
        UserBudget.__post_init__(self)

    @property
    def ends(self) -> tuple[int, int]:
        """The range in coarse steps."""
        return coarse_ends(self.low, self.high, self.coarse)

    @property
    def span(self) -> int:
        """R: what one unit moves both series by together."""
        low, high = self.ends
        return high - low

    @property
    def magnitude(self) -> int:
        """What one unit adds to a sum or takes away at most, in steps of which a sum's noise has as many as a series'.

        Of the sum (hi A + lo B) / R.
        """
        low, high = self.ends
        return math.ceil(max(abs(low), abs(high)) * self.span / math.hypot(low, high))

    @property
    def number_scale(self) -> Fraction:
        """The variance of the noise of N over that of one series."""
        return Fraction(2, self.span**2)

    @property
    def bad(self) -> Fraction:
        return Fraction(0) if self.delta is None else self.delta

    def units_given(self, state: Any) -> Units:
        units: Units = state.units.users.units
        return units

    @property
    def appearance(self) -> Appearance | None:
        """When labels are shown; None where all are."""
        if self.delta is None:
            return None
        return Appearance(releases=self.horizon, delta=self.delta, min_count=self.min_count)

    @property
    def counters(self) -> tuple[Counters, ...]:
        series = 2 * (MOST_LABELS if self.domain is None else len(self.domain))
        return (self.counters_of(Sensitivity(total=self.span, squared=self.span**2), series=series),)

    def threshold(self, tick: int, *, start: int = 1, since: int = 0) -> int | None:
        """The least number that is shown at a tick, if the counters have started so often, last after `since`."""
        cap = self.cap.caps[start - 1]
        least = self._least(self.counters[0].law(start, cap, since, tick), cap)
        return None if least is None else -(-least // self.span)

    def _least(self, law: Law, cap: int) -> int | None:
        """The least A + B that is shown."""
        rule = self.appearance
        if rule is None:
            return None
        # All units of a user may be on one label: k is the cap.
        spread = rule.spread(self.number_scale * law.variance, cap, cap)
        return math.ceil(self.span * (self.min_count - 1 + cap + spread) + (law.roundings if law.is_rounded else 0))

    # The state

    def start(self, noise: Noise) -> UserLabelSumsState:
        index = LabelIndex(noise)
        if self.domain is not None:
            index.slots_or_new(self.domain.labels)
        units = AcceptedUnits(noise, self.cap, self.horizon, None)
        return UserLabelSumsState(
            units=units,
            pairs=units.pairs,
            index=index,
            totals=np.zeros((2, len(index)), dtype=np.int64),
            shown=np.ones(len(index), dtype=np.bool_),
            segments=segments_of(self.history, units.course),
            counters=[RunningCounters(self.counters[0]) for _ in _SERIES],
        )

    def gather(self, state: UserLabelSumsState, batch: pl.DataFrame) -> codec.Plain:
        """Users, the rows of each that can be units, in her own order, their labels and their values."""
        values = whole_steps(batch_column(batch, "value")).clip(self.low, self.high) - self.low
        events = pl.DataFrame({"user": batch_column(batch, "user"), "label": batch_column(batch, "label")})
        pairs = pairs_of(events.with_columns(value=values), self.max_keys_per_event)
        if self.domain is not None:
            # Labels that are not listed use up no units: whether one is listed is public.
            pairs = pairs.filter(pl.Series(codes_in(self.domain, pairs["label"]) >= 0))
        labels, numbers = number_texts(checked_labels(pairs["label"]))
        rows = state.units.users.rows_by_name(pairs["user"])
        return self._units(rows, labels, numbers, pairs["value"].to_numpy())

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        labels, rows, (numbers, above) = joined_labels(pieces)
        assert labels is not None  # noqa: S101
        return self._units(rows, labels, numbers, above.astype(np.int64))

    def _units(self, rows: OpenRows, labels: pl.Series, numbers: NDArray[np.uint32], above: Column) -> codec.Plain:
        units = unit_rows(rows, numbers, None, self.cap.caps[-1])
        return [*stored_by_name(units, labels), codec.narrow(above[units.order])]

    def add(self, state: UserLabelSumsState, gathered: codec.Plain) -> None:
        *stored, above = gathered
        rows = restored_rows(stored, state.index)

        def coarse_steps(before: Units) -> list[NDArray[np.int64]]:
            if self.coarse == 1:
                return [above.astype(np.int64)]
            coins = row_coins(np.repeat(rows.names, rows.counts, axis=0), before) % np.uint64(self.coarse)
            return [(above.astype(np.int64) + coins.astype(np.int64)) // self.coarse]

        state.units.add(rows, coarse_steps)

    def moves(self, columns: Sequence[Column]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Labels by their slots, and what A and B of each grow by."""
        held, above = columns
        moves: NDArray[np.int64] = np.zeros((2, int(held.max(initial=0)) + 1), dtype=np.int64)
        np.add.at(moves[0], held, above)
        np.add.at(moves[1], held, self.span - above)
        # Each unit adds R to both together.
        slots = np.flatnonzero(moves.any(axis=0))
        return slots.astype(np.uint32), moves[:, slots]

    def closed(self, state: UserLabelSumsState, rounds: Sequence[LetIn], tick: int, noise: Noise) -> UserEnds:
        """What is published of the units that came in, round after round."""
        units = state.units
        more = len(state.index) - len(state.shown)
        state.totals = np.concatenate([state.totals, np.zeros((2, more), dtype=np.int64)], axis=1)
        state.shown = np.concatenate([state.shown, np.zeros(more, dtype=np.bool_)])
        for earlier, (_, held, moves) in enumerate(rounds):
            moved = np.zeros((len(state.shown), 2), dtype=np.int64)
            np.add.at(moved, held, moves.T)
            state.totals += moved.T
            if state.segments is not None and in_window(earlier, tick):
                state.segments.add_all(moved.ravel())
        if state.segments is not None:
            state.segments.close()
        place = units.course.place()
        series = [
            running.release(np.ascontiguousarray(own), place, tick, noise.at("sums", name), state.index.keys)
            for name, running, own in zip(_SERIES, state.counters, state.totals, strict=True)
        ]
        law = self.counters[0].law(*place, tick)
        least = self._least(law, units.course.cap)
        if least is not None:
            # Eligible by how many were accepted, never by what they sum to.
            passing = (state.totals.sum(axis=0) >= self.min_count * self.span) & (series[0] + series[1] >= least)
            state.shown = state.shown | passing
        slots, labels = self._visible(state)
        above_low, below_high = (check_answers(each[slots]) for each in series)
        return UserEnds(labels, above_low, below_high, self.ends, law, units.course.cut_off())

    def between(self, state: UserLabelSumsState, start: int, end: int, noise: Noise) -> UserEnds:
        """What was accepted in ticks start + 1 .. end, each under the cap that held when it began; of labels shown."""
        window, counters = there(state.segments).window(start, end, size=2 * len(state.shown)), self.counters[0]
        slots, labels = self._visible(state)
        keys: Keys = state.index.keys(0, len(state.shown))[slots]
        moves = window.moves.reshape(-1, 2)
        series = [
            window.estimates(counters, np.ascontiguousarray(moves[slots, place]), noise.at("sums", name), keys)
            for place, name in enumerate(_SERIES)
        ]
        above_low, below_high = map(check_answers, series)
        return UserEnds(labels, above_low, below_high, self.ends, window.law(counters), window.cut)

    def _visible(self, state: UserLabelSumsState) -> tuple[NDArray[np.int64], pl.Series]:
        state.visible = visible_labels(state.index, np.flatnonzero(state.shown), state.visible)
        slots, labels, _ = state.visible
        return slots, labels.clone()
