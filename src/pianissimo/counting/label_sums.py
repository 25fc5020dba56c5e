"""Sums and means of values by label: how many events hold a label, and what their values sum to, each over its plan.

Card: units and windows, U5. A value v lies in a public range lo .. hi of whole steps. What is kept of a label is exact:
the number of its events and the sum of their values. What is released are one or two series made of both:

* *plain*, the sum alone: for sums of labels known beforehand. An event moves it by at most the larger end.
* *centred*, the number N and the sum S' of v - c0, c0 the middle of the range on the grid, public: an event moves them
  by 1 and by at most W = max(hi - c0, c0 - lo). The sum is S' + c0 N, the mean c0 + S' / N.
* *ends*, for means of known labels over Laplace noise: A = sum of v - lo and B = sum of hi - v, which an event moves by
  hi - lo together. N = (A + B) / (hi - lo), and with the exact middle S' = (A - B) / 2: half the variance of a split.

Unknown labels appear by N alone, as in `UnknownHistogram`: never by their sum. S' is looked at for shown labels only,
so it adds no chance to show one. Values are moved into the range, and rounded, each by itself before they are summed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.checks import check_at_least, check_probability
from pianissimo.counting.counter import OverPlan
from pianissimo.counting.known import joined_shards
from pianissimo.counting.unknown import threshold_at
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.labels import (
    LONGEST_LABEL,
    MOST_LABELS,
    Domain,
    LabelIndex,
    any_too_long,
    check_label_count,
    detached,
    labels_by_shard,
)
from pianissimo.loss.losses import Booked, Guarantee, Loss, event_guarantee
from pianissimo.mechanism import Conversation, Conversing
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Keys
from pianissimo.noise.mean_interval import NoisyMeans, laplace_factor
from pianissimo.noise.plan import (
    NoisePlan,
    difference_variance,
    difference_weights,
    is_pure,
    laplace_sum_quantile,
    normal_quantile,
    plan_loss,
)
from pianissimo.noise.recent import Recent
from pianissimo.noise.running import RunningNoise, check_answers, rounded, running_noise
from pianissimo.stored_parts import TRANSIENT

_NO_KEYS: Keys = np.zeros((0, 2), dtype=np.uint64)


class ListedIndex(LabelIndex):
    """The slots of a domain, which are the same at every start and need not be stored."""

    def __init__(self, noise: Noise, domain: Domain) -> None:
        super().__init__(noise)
        self.slots_or_new(domain.labels)

    def to_plain(self) -> pl.Series:
        return self.labels.clear()

    def take_plain(self, content: pl.Series) -> None:
        pass


@dataclass(frozen=True, slots=True, eq=False)
class LabelSeries:
    """The noisy series of the labels that are shown, of a running total or of the ticks after `since`."""

    labels: pl.Series
    series: tuple[NDArray[np.int64], ...]
    since: int
    tick: int

    def to_dict(self) -> dict[str, list[int]]:
        """The numbers of each label."""
        rows = zip(*(each.tolist() for each in self.series), strict=True)
        return {label: list(row) for label, row in zip(self.labels.to_list(), rows, strict=True)}


@dataclass(slots=True, repr=False)
class LabelSumsState:
    """Every label, the exact number of its events and the sum of their values, and which are shown: secret."""

    index: LabelIndex
    totals: NDArray[np.int64]
    """Two rows: numbers and sums."""

    shown: NDArray[np.int64]
    """The slots of the labels that are shown, in the order in which they appeared."""

    recent: Recent
    """Of slot n, the number in place 2 n and the sum in place 2 n + 1."""

    noises: list[RunningNoise] = field(metadata=TRANSIENT)
    sums_noise: Noise = field(metadata=TRANSIENT)
    """Always the same object: a cache of noise belongs to the noise that it was made with."""

    shown_keys: Keys = field(metadata=TRANSIENT, default_factory=lambda: _NO_KEYS)


@identified("label-sums")
@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSums(Conversing[LabelSeries], OverPlan):
    """The sum, or number and sum, of the values of each label's events, released at every tick.

    A batch is a series of structs: `key`, a text or a list of texts, and `value`, whole steps of the grid.

    Guarantee: per event over the whole run, D = max_keys_per_event: booked rho = D (cost_N + W^2 cost_S) / 2 centred,
    D m^2 cost / 2 plain, m the larger end in size; D m cost-DP plain and D (hi - lo) cost-DP by ends over Laplace
    plans. Where labels are unknown, also a chance of 1 - (1 - delta)^D.
    Error: of the sum, the quantile of its series' noises; `means` has its own bars.
    Cost: two integers a label; one draw a label and tick, and one more for labels that are shown.

    >>> from pianissimo.noise import HaarPlan
    >>> from pianissimo.mechanism import Run
    >>> from pianissimo.testing import NoNoise
    >>> plan, sums = (HaarPlan.calibrated(horizon=8, rho=rho) for rho in (0.5, 0.01))
    >>> run = Run(LabelSums(plan=plan, sum_plan=sums, low=0, high=10, domain=Domain(["n", "s"])), NoNoise())
    >>> run.update(pl.DataFrame({"key": ["n", "n"], "value": [3, 9]}).to_struct())
    >>> value = run.release().value
    >>> value.to_dict(), run.mechanism.sums(value).tolist()
    ({'n': [2, 2], 's': [0, 0]}, [12, 0])
    """

    sum_plan: NoisePlan | None = None
    """The noise of the centred sum; None where the sum alone is released, over `plan`."""

    low: int
    """The least value of an event, in steps of the grid; lower ones are raised to it."""

    high: int
    """The largest value of an event, in steps of the grid; higher ones are lowered to it."""

    coarse: int = 1
    """How many steps of the grid the sum counts as one: each value is rounded to the nearest multiple by itself."""

    domain: Domain | None = None
    """The labels, if they are known and public."""

    delta: Fraction = Fraction(0)
    """Without a domain, the chance that a label held by one event alone is ever shown."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count: D."""

    min_count: int = 1
    """Without a domain, a label of fewer events is never shown: h0."""

    def __post_init__(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event, min_count=self.min_count, coarse=self.coarse)
        if not self.low < self.high:
            raise ParameterError(f"low must be below high, got {self.low} and {self.high}")
        if self.low % self.coarse or self.high % self.coarse:
            raise ParameterError(f"low and high must be multiples of coarse, got {self.coarse}")
        if self.domain is None:
            check_probability(delta=self.delta)
            if self.sum_plan is None or is_pure(self.plan):
                raise ParameterError("unknown labels must have Gaussian noise and appear by number, got another form")
        if self.sum_plan is not None and is_pure(self.sum_plan) != is_pure(self.plan):
            raise ParameterError("plan and sum_plan must have noise of one kind, got both kinds")
        if self._by_ends and self.sum_plan != self.plan:
            raise ParameterError("both ends of a range must have the same noise, got two plans")

    # Public numbers

    @property
    def in_shards(self) -> bool:
        """Labels that nobody listed are many."""
        return self.domain is None

    @property
    def ends(self) -> tuple[int, int]:
        """The range in coarse steps."""
        low, high = (end // self.coarse for end in (self.low, self.high))
        return low, high

    @property
    def centre(self) -> int:
        """c0: the middle of the range on the grid."""
        return sum(self.ends) // 2

    @property
    def magnitude(self) -> int:
        """The most that one event can move its sum by: W, or without centring the larger end."""
        low, high = self.ends
        centre = 0 if self.sum_plan is None else self.centre
        return max(high - centre, centre - low)

    @property
    def _by_ends(self) -> bool:
        return self.sum_plan is not None and is_pure(self.sum_plan)

    @property
    def plans(self) -> tuple[NoisePlan, ...]:
        """Of each series."""
        return (self.plan,) if self.sum_plan is None else (self.plan, self.sum_plan)

    @property
    def _moves(self) -> tuple[tuple[int, int], ...]:
        """Each series as a whole combination of number and sum."""
        low, high = self.ends
        if self.sum_plan is None:
            return ((0, 1),)
        return ((-low, 1), (high, -1)) if self._by_ends else ((1, 0), (-self.centre, 1))

    @property
    def _weights(self) -> tuple[Fraction, ...]:
        """The sum as a combination of the series."""
        low, high = self.ends
        if self.sum_plan is None:
            return (Fraction(1),)
        return (
            (Fraction(high, high - low), Fraction(low, high - low))
            if self._by_ends
            else (Fraction(self.centre), Fraction(1))
        )

    @property
    def guarantee(self) -> Guarantee:
        keys = self.max_keys_per_event
        if self.domain is not None:
            keys = min(keys, len(self.domain))
        watched = MOST_LABELS if self.domain is None else len(self.domain)
        loss: Loss
        if self.sum_plan is None:
            loss = plan_loss(self.plan, series=keys, magnitude=self.magnitude, watched=watched)
        elif self._by_ends:
            # |v - lo| + |hi - v| is hi - lo, whatever v is: both series of a label together.
            low, high = self.ends
            loss = plan_loss(self.plan, series=keys, magnitude=high - low, watched=2 * watched)
        else:
            number = plan_loss(self.plan, series=keys, watched=watched).as_booked()
            centred = plan_loss(self.sum_plan, series=keys, magnitude=self.magnitude, watched=watched).as_booked()
            # As `UnknownHistogram`: a label is shown by its number alone.
            bad = 1 - (1 - self.delta) ** keys if keys <= 256 else keys * self.delta
            loss = Booked(rho=number.rho + centred.rho, bad=bad, distance=number.distance + centred.distance)
        return event_guarantee(loss, horizon=self.plan.horizon, source="docs/privacy.md, 'Sums and means by label'")

    def threshold(self, tick: int) -> int:
        """The least noisy number that is shown at `tick`, where labels are unknown."""
        return threshold_at(self.plan, tick, self.delta) + self.min_count - 1

    def error(self, tick: int, coverage: float) -> float:
        return self.between_error(0, tick, coverage)

    def between_error(self, start: int, end: int, coverage: float) -> float:
        spread = 0.0
        parts = list(zip(self._weights, self.plans, strict=True))
        if is_pure(self.plan):
            scales = [float(abs(weight)) * scale for weight, plan in parts for scale in _scales(plan, start, end)]
            spread = laplace_sum_quantile([scale for scale in scales if scale], coverage)
        else:
            variance = sum(weight**2 * difference_variance(plan, start, end) for weight, plan in parts)
            spread = normal_quantile(coverage) * math.sqrt(variance)
        # Of the difference of two published totals both are rounded; an interval is rounded once.
        roundings = sum(abs(weight) * (1 if plan.shift else 0) for weight, plan in parts) * (2 if start else 1)
        return math.ceil(spread + float(roundings) / 2)

    # The state

    def start(self, noise: Noise) -> LabelSumsState:
        index = LabelIndex(noise) if self.domain is None else ListedIndex(noise, self.domain)
        return LabelSumsState(
            index=index,
            totals=np.zeros((2, len(index)), dtype=np.int64),
            shown=np.arange(len(index)),
            recent=Recent(self.history),
            noises=[running_noise(plan) for plan in self.plans],
            sums_noise=noise.at("sums"),
        )

    def gather(self, state: LabelSumsState, batch: pl.Series) -> codec.Plain:  # noqa: ARG002
        """Labels in the order of their bytes, the number of events of each and the sum of their values."""
        rows = batch.struct.unnest()
        keys, values = rows["key"], rows["value"]
        if not values.dtype.is_integer() or values.null_count() or keys.null_count():
            raise InputError(
                f"keys and whole steps of the grid must be there without nulls, got {values.dtype} or nulls"
            )
        within = values.cast(pl.Int64).clip(self.low, self.high)
        steps = within if self.coarse == 1 else (within + self.coarse // 2) // self.coarse
        # Each value by itself, before any sum. 2^31 of at most 2^40 need more than 64 bits.
        rows = pl.DataFrame({"key": keys, "value": steps.cast(pl.Int128)})
        if isinstance(keys.dtype, pl.List):
            distinct = pl.col("key").list.drop_nulls().list.unique(maintain_order=True)
            rows = rows.select(distinct.list.head(self.max_keys_per_event), "value")
            rows = rows.explode("key").drop_nulls("key")
        found = rows.group_by("key").agg(pl.len().alias("number"), pl.col("value").sum()).sort("key")
        if any_too_long(found["key"]):
            raise InputError(f"labels must have at most {LONGEST_LABEL} bytes, got a longer one")
        if self.domain is not None:
            found = found.filter(found["key"].is_in(self.domain.labels.implode()))
        return _plain_sums(found)

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        frames = [pl.DataFrame(dict(zip(("key", "number", "value"), piece, strict=True))) for piece in pieces]
        rows = pl.concat(frames).with_columns(pl.col("value").cast(pl.Int128))
        return _plain_sums(rows.group_by("key").sum().sort("key"))

    def add(self, state: LabelSumsState, gathered: codec.Plain) -> None:
        labels, numbers, sums = gathered
        slots = state.index.slots_or_new(labels)
        new = len(state.index) - state.totals.shape[1]
        totals = np.concatenate([state.totals, np.zeros((2, new), dtype=np.int64)], axis=1) if new else state.totals
        totals[:, slots] += np.stack([numbers, sums])
        state.totals = totals
        places = np.concatenate([2 * slots, 2 * slots + 1])
        state.recent.add(places, np.concatenate([numbers, sums]))

    @property
    def shard_plans(self) -> tuple[NoisePlan, ...]:
        """Whose noise is drawn where labels are counted."""
        return self.plans

    def split(self, gathered: codec.Plain, shards: int) -> dict[int, codec.Plain]:
        labels, *numbers = gathered
        places = labels_by_shard(labels, shards)
        return {shard: [labels.gather(some), *(each[some] for each in numbers)] for shard, some in places}

    def converse(self, state: LabelSumsState, tick: int, noise: Noise) -> Conversation[LabelSeries]:  # noqa: ARG002
        answers = yield None
        labels, series = joined_shards(answers, len(self.plans))
        check_label_count(sum(count for *_, count in answers))
        return LabelSeries(labels, tuple(series), 0, tick)

    def answer(self, state: LabelSumsState, question: None, tick: int, noise: Noise) -> list[Any]:  # noqa: ARG002
        """The labels that are shown with their series, and how many labels there are."""
        state.recent.close()
        if self.domain is None:
            count = state.totals.shape[1]
            numbers = rounded(
                state.totals[0], state.noises[0].at(noise, tick, count, state.index.keys), self.plan.shift
            )
            passing = (state.totals[0] >= self.min_count) & (numbers >= self.threshold(tick))
            passing[state.shown] = False
            state.shown = np.concatenate([state.shown, np.flatnonzero(passing)])
        keys = self._shown_keys(state)
        series = []
        for place, (plan, running) in enumerate(zip(self.plans, state.noises, strict=True)):
            if place == 0 and self.domain is None:
                series.append(numbers[state.shown])
                continue
            source = noise if place == 0 else state.sums_noise
            numerators = running.at(source, tick, len(keys), lambda first, last: keys[first:last])
            series.append(rounded(self._exact(state.totals[:, state.shown])[place], numerators, plan.shift))
        value = self._in_order(state, series, (0, tick))
        return [value.labels, list(value.series), state.totals.shape[1]]

    def between(self, state: LabelSumsState, start: int, end: int, noise: Noise) -> LabelSeries:
        # For labels that are shown, every row of both series is in the comparison mechanism (docs/privacy.md).
        moves = state.recent.between(start, end, size=2 * state.totals.shape[1]).reshape(-1, 2).T
        exact, keys = self._exact(moves[:, state.shown]), self._shown_keys(state)
        # Of unknown labels the numbers have noise at hand for all slots, the sums for those shown, in that order.
        places = (state.shown if self.domain is None else None, None)
        sources = zip(state.noises, (noise, state.sums_noise), places, strict=False)
        numerators = [running.since(source, start, end, keys, slots) for running, source, slots in sources]
        parts = zip(exact, numerators, self.plans, strict=True)
        series = [rounded(own, drawn, plan.shift) for own, drawn, plan in parts]
        return self._in_order(state, series, (start, end))

    def _exact(self, totals: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return [number * totals[0] + value * totals[1] for number, value in self._moves]

    def _shown_keys(self, state: LabelSumsState) -> Keys:
        if len(state.shown_keys) != len(state.shown):
            state.shown_keys = state.index.keys(0, len(state.index))[state.shown]
        return state.shown_keys

    def _in_order(self, state: LabelSumsState, series: list[NDArray[np.int64]], span: tuple[int, int]) -> LabelSeries:
        labels = state.index.labels.gather(state.shown)
        order = labels.arg_sort().to_numpy()
        released = tuple(check_answers(each[order]) for each in series)
        return LabelSeries(detached(labels.gather(order)), released, *span)

    # What is made of what was released

    def sums(self, value: LabelSeries) -> NDArray[np.int64]:
        """The sum of each label in coarse steps: a whole combination of whole numbers."""
        parts = zip(self._weights, value.series, strict=True)
        found: NDArray[np.int64] = np.sum([int(weight) * each for weight, each in parts], axis=0, dtype=np.int64)
        return found

    def means(self, value: LabelSeries, coverage: float) -> tuple[NDArray[np.float64], ...]:
        """Estimate, low and high of each label's mean in coarse steps; no estimate (NaN) where any mean is possible."""
        (low, high), (first, second) = self.ends, (each.astype(np.float64) for each in value.series)
        one, other = (float(difference_variance(plan, value.since, value.tick)) for plan in self.plans)
        halves = [0.5 if plan.shift else 0.0 for plan in self.plans]
        if self._by_ends:
            # Rounding moves (A - B) / 2 - mu (A + B) / (hi - lo) by at most a half, for every mu of the range.
            means = NoisyMeans(
                numbers=(first + second) / (high - low),
                sums=(first - second) / 2,
                variances=(2 * one / (high - low) ** 2, one / 2),
                roundings=(0.0, halves[0]),
                factor=laplace_factor(_scales(self.plan, value.since, value.tick), coverage),
            )
            middle = (low + high) / 2
        else:
            middle = float(self.centre)
            means = NoisyMeans(
                numbers=first,
                sums=second,
                variances=(one, other),
                roundings=(halves[0], halves[1]),
                factor=normal_quantile(coverage),
            )
        return tuple(each + middle for each in means.bars(low - middle, high - middle))


def _scales(plan: NoisePlan, start: int, end: int) -> list[float]:
    """The scales of the Laplace noises of a release, or of the difference of two."""
    nodes = difference_weights(plan, start, end).items()
    return [abs(weight) / 2.0**plan.shift * math.sqrt(plan.noises[level].variance / 2) for (level, _), weight in nodes]


def _plain_sums(found: pl.DataFrame) -> codec.Plain:
    """Labels, their numbers and their sums, which wrap at 64 bits as totals do."""
    numbers, sums = (found[name].cast(pl.Int64, wrap_numerical=True).to_numpy() for name in ("number", "value"))
    return [found["key"], numbers, sums]
