"""The labels that most events hold, in small memory: sketches against exact counts of every label.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.budget import Budget
from pianissimo.checks import check_at_least
from pianissimo.counting import UnknownHistogram
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import MOST_LABELS
from pianissimo.mechanism import Release
from pianissimo.noise.keyed import DRAW_DISTANCE
from pianissimo.noise.plan import NoisePlan, normal_quantile
from pianissimo.queries.histogram import Histogram, unknown_histogram, unknown_thresholds
from pianissimo.queries.shared.expected import (
    OPEN_HORIZON,
    PREDICTED_TICKS,
    Candidate,
    ExpectedError,
    Share,
    mebibytes,
    noise_plans,
)
from pianissimo.queries.shared.key_query import KeyQuery
from pianissimo.queries.shared.query import Maker, PlanFor, Query, UserMechanism
from pianissimo.queries.shared.user_sketch import UserSketch
from pianissimo.sketches import PublishedTree, RunningSketch, SetTree, SketchTree
from pianissimo.sketches.contents import MOST_COUNTERS
from pianissimo.users import Cap, Counters, FixedCap, PeriodCap
from pianissimo.users.counters import UserBudget

LABEL_BYTES = 32
"""What a label is taken to have."""

COUNTER_BYTES = 64 + 2 * LABEL_BYTES
"""A counter of a sketch, its label included and room for one that is gone: 125 were measured."""

EXACT_BYTES = 256
"""An exactly counted label, its noise and its place in the index included: 180 to 245 were measured."""

FEW_RELEASES = 64
"""One running sketch costs by the number of releases: it is offered up to so many."""

SketchMechanism = SketchTree | PublishedTree | RunningSketch | SetTree


@identified("query-heavy-hitters")
@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyHitters(KeyQuery):
    """The labels that many events so far hold, with their numbers, in bounded memory; nobody needs to know the labels.

    Counts of a sketch are too low by at most n / (k + 1) after n labels; `low` and `high` allow for it.

    >>> HeavyHitters("pages", key="page", k=4096).needs_delta
    True
    """

    k: int = 1024
    """How many counters a sketch has."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count; the others are cut, first come first kept within the event."""

    expected_events: int | None = None
    """How many events all ticks together may have, as far as is known without the data; for the error to expect."""

    expected_keys: int | None = None
    """How many different labels there may be, as far as is known without the data; exact counts need it."""

    memory: int = 2**26
    """How many bytes the query may take."""

    kind = "heavy_hitters"
    called = "a list of heavy hitters"
    nothing = None
    capped = "labels"
    told = ("max_keys_per_event", "k")

    def _check(self) -> None:
        check_at_least(1, k=self.k, max_keys_per_event=self.max_keys_per_event, memory=self.memory)
        for name in ("expected_events", "expected_keys"):
            if getattr(self, name) is not None:
                check_at_least(1, **{name: getattr(self, name)})
        if self.per is not None and self.expected_keys is None:
            raise ParameterError(
                "expected_keys must be given with per, got none: a sketch has no windows, and exact counts, which have "
                "them, are taken only where so many labels fit the memory"
            )

    @property
    def has_windows(self) -> bool:
        return self.expected_keys is not None

    @property
    def _holds_lists(self) -> bool:
        return self.max_keys_per_event > 1

    @property
    def series(self) -> int:
        # Exact counts have so many labels; a tree of sketches draws far less, at every level for every label it holds.
        levels = OPEN_HORIZON.bit_length()
        return MOST_LABELS + 1 + levels * (levels * self.k + 1)

    @property
    def needs_delta(self) -> bool:
        return True

    def makers(self, share: Share, releases: int, coverage: float, *, is_open: bool) -> Iterator[Maker]:
        for sketch in (_sketch_tree, _published_tree, _running_sketch, _set_tree) if self.per is None else ():
            yield partial(_sketched, self, sketch, share, releases, coverage)
        plans = noise_plans(share, self.series, is_open=is_open)
        yield partial(_exact_counts, self, [self._over(make, share, releases, coverage) for make in plans])

    def mechanism(self, share: Share, plan_for: PlanFor) -> tuple[Any, NoisePlan]:
        return unknown_histogram(self.max_keys_per_event, share, plan_for, history=self.history_kept)

    def table(self, mechanism: Any, release: Release[Any], coverage: float) -> pl.DataFrame:
        if not isinstance(mechanism, SketchMechanism):
            return KeyQuery.table(self, mechanism, release, coverage)
        table: pl.DataFrame = release.value.to_frame(mechanism.reach(release.tick, coverage))
        return table

    @property
    def sketched(self) -> bool:
        return self.expected_keys is None or self.expected_keys * EXACT_BYTES > self.memory

    @property
    def _exact(self) -> Histogram:
        """What counts every label of users, where so many fit the memory."""
        return Histogram(self.name, key=self.key, max_keys_per_event=self.max_keys_per_event, remember=False)

    @property
    def part(self) -> str:
        return self.name

    @property
    def user_series(self) -> int:
        return self.series

    @property
    def capped_unit(self) -> str:
        return self._exact.capped_unit

    def units_of(self, events: int | None, of: Any = None) -> int | None:
        return self._exact.units_of(events, of)

    def user_mechanism(
        self, part: Sequence[Query], cap: Cap, shares: Mapping[str, Fraction], parameters: dict[str, Any]
    ) -> UserMechanism:
        return self._exact.user_mechanism(part, cap, shares, parameters)

    def user_counters(self, mechanism: Any) -> Counters:
        return self._exact.user_counters(mechanism)

    def cap_thresholds(self, mechanism: Any, caps: Sequence[int]) -> list[tuple[int, int] | None]:
        return self._exact.cap_thresholds(mechanism, caps)

    def user_candidates(self, budget: Budget, setting: Any) -> list[Candidate]:
        units, period = setting.user.max_events_per_user, setting.period
        if units is None:
            raise ParameterError(
                f"query {self.name!r} must have a fixed cap where users are hidden, got one that follows the stream: "
                "a sketch whose cap is raised would need keys that it has forgotten; give max_events_per_user"
            )
        if self.per is not None:
            raise ParameterError(
                f"per of query {self.name!r} must be left out, or so many labels fit the memory, got neither: a sketch "
                "has no windows; allow more memory, or ask for a histogram, which has them"
            )
        is_running = period is not None and setting.periods is None
        cap = PeriodCap(units=units, ticks=period) if is_running else FixedCap(units=units)
        # As many draws as exact counts have, which are more than a tree's.
        bad, draws = Fraction(budget.delta) / 2, 4 * (setting.planned + 1) * self.series
        if not bad:
            raise ParameterError("unknown labels must have a delta to be shown with, got none; allow one such as 1e-9")
        share = Share(rho=budget.rho(bad=bad, distance=draws * DRAW_DISTANCE), bad=bad)
        found = _sketched(self, partial(_user_tree, cap), share, setting.planned, setting.coverage)
        if not found.selectable:
            raise ParameterError(
                f"query {self.name!r} must fit the memory it may take, got more: {found.excluded}; take a smaller k"
            )
        return [replace(found, mechanism=setting.each_period(found.mechanism))]

    def user_batch(self, content: pl.DataFrame) -> pl.DataFrame:
        column = "key" if self.sketched else "label"
        return content.select("user", pl.col(self.name).alias(column)).drop_nulls(column)

    def _only(self, column: pl.Series | None, counted: pl.Series) -> pl.Series:
        return self._exact._only(column, counted)

    def user_value(self, release: Release[Any]) -> Any:
        return release.value

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        if not self.sketched:
            return self._exact.user_table(release, coverage, most_events)
        table: pl.DataFrame = release.value.to_frame(coverage)
        return table

    def open_ends(self, value: Any) -> tuple[str, ...]:
        return ("high",)

    def most_moved(self, mechanism: Any) -> float | None:
        # An element moves the counts of a sketch by less than two together, and estimates lie above them by half of
        # 1 / (k + 1) of all keys.
        return 3.0 * self.max_keys_per_event

    def left_out(self, chosen: Candidate) -> list[str]:
        found = KeyQuery.left_out(self, chosen)
        if not isinstance(chosen.in_period, UserSketch):
            return found
        cap = chosen.in_period.cap
        when = f" in each period of {cap.ticks} ticks" if isinstance(cap, PeriodCap) else ""
        when = when if chosen.in_period is chosen.mechanism else " in each period"
        return [*found, f"of a user the first {cap.units:,} labels count{when}, and bars are open on that side"]

    def facts(self, chosen: Candidate) -> dict[str, Any]:
        own = KeyQuery.facts(self, chosen)
        return own | {"domain": "unknown", "memory": chosen.memory, "allowed_memory": self.memory}

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        """The least and the largest estimate that a label must reach to be shown, in counts, rounded up.

        >>> tree = SketchTree.calibrated(horizon=24, rho=0.016468, bad=5e-9, k=1024, with_total=False)
        >>> HeavyHitters("pages", key="page").thresholds(tree)
        (101, 200)
        """
        match mechanism:
            case PublishedTree(node=once) | RunningSketch(release_of=once):
                return once.threshold, once.threshold
            case UnknownHistogram():
                return unknown_thresholds(mechanism)
            case UserSketch():
                return self.thresholds(mechanism.tree)
            case UserBudget():
                return self._exact.thresholds(mechanism)
        # No tick has more nodes than the longest row of ones within the horizon.
        busiest = (1 << ((mechanism.horizon + 1).bit_length() - 1)) - 1
        unit = mechanism.k + 1 if isinstance(mechanism, SketchTree) else 1
        return -(-mechanism.threshold(1) // unit), -(-mechanism.threshold(busiest) // unit)

    def reason(self, chosen: Candidate, alternatives: Sequence[Candidate]) -> str:
        """Why this mechanism, and why not the exact counts."""
        parts = [f"least typical error within the {mebibytes(self.memory)} allowed"]
        if not isinstance(chosen.in_period, SketchMechanism | UserSketch):
            parts = [f"exact counts of {self.expected_keys:,} labels fit the {mebibytes(self.memory)} allowed"]
        others = [other for other in alternatives if other.selectable]
        if others:
            second = min(others, key=lambda other: other.expected_error.typical)
            ratio = second.expected_error.typical / chosen.expected_error.typical
            parts.append(f"{second.name} has {ratio:.2f} times the typical error")
        parts += [f"{other.name} was left out: {other.excluded}" for other in alternatives if other.excluded]
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class _Sketched:
    """A sketch, its error at each release, its counters and its noise in words."""

    mechanism: SketchMechanism | UserSketch
    deviations: NDArray[np.float64]
    counters: int
    noise: str
    hidden: NDArray[np.float64] | int = 0
    """What a count that is shown lacks at most besides."""


def _sketch_tree(query: HeavyHitters, share: Share, releases: int) -> _Sketched:
    """Reduced sketches in a tree over time, with a threshold at the query alone."""
    mechanism = SketchTree.calibrated(
        horizon=releases, rho=share.rho, bad=share.bad, k=query.k, max_keys_per_event=query.max_keys_per_event
    )
    deviation = math.sqrt(float(mechanism.variance)) / (query.k + 1)
    deviations = deviation * np.sqrt(_nodes(releases))
    return _Sketched(mechanism, deviations, 2 * mechanism.levels * query.k, _on_levels(deviation, mechanism.levels))


def _user_tree(cap: FixedCap, query: HeavyHitters, share: Share, releases: int) -> _Sketched:
    """The same tree, which hides all that a user may give."""
    mechanism = UserSketch.calibrated(
        cap,
        max_keys_per_event=query.max_keys_per_event,
        horizon=releases,
        rho=share.rho,
        bad=share.bad,
        k=query.k,
    )
    tree = mechanism.tree
    deviation = math.sqrt(float(tree.variance)) / (query.k + 1)
    deviations = deviation * np.sqrt(_nodes(releases))
    return _Sketched(mechanism, deviations, 2 * tree.levels * query.k, _on_levels(deviation, tree.levels))


def _published_tree(query: HeavyHitters, share: Share, releases: int) -> _Sketched:
    """A tree over time whose nodes are published one by one."""
    _check_single(query)
    mechanism = PublishedTree.gaussian(horizon=releases, rho=share.rho, bad=share.bad, k=query.k)
    nodes = _nodes(releases)
    # Each node's count is the difference of two draws.
    deviation = math.sqrt(mechanism.levels / mechanism.guarantee.loss.as_booked().rho)
    hidden = (nodes - 1) * (mechanism.node.threshold - 1)
    noise = _on_levels(deviation, mechanism.levels)
    return _Sketched(mechanism, deviation * np.sqrt(nodes), 2 * mechanism.levels * query.k, noise, hidden)


def _running_sketch(query: HeavyHitters, share: Share, releases: int) -> _Sketched:
    """One sketch, released again and again."""
    _check_single(query)
    if releases > FEW_RELEASES:
        raise ParameterError(f"a running sketch must be released at most {FEW_RELEASES} times, got {releases}")
    mechanism = RunningSketch.calibrated(horizon=releases, rho=share.rho, bad=share.bad, k=query.k)
    deviation = math.sqrt(2 * float(mechanism.release_of.variance))
    noise = f"discrete Gaussian, deviation {deviation:.3g}, anew at each release"
    return _Sketched(mechanism, np.full(releases, deviation), query.k, noise)


def _set_tree(query: HeavyHitters, share: Share, releases: int) -> _Sketched:
    """A tree over time of sketches of sets: its noise is the same however many labels an event holds."""
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
    deviations = deviation * np.sqrt(_nodes(releases))
    return _Sketched(mechanism, deviations, (mechanism.levels + 1) * query.k, _on_levels(deviation, mechanism.levels))


def _sketched(
    query: HeavyHitters,
    make: Callable[[HeavyHitters, Share, int], _Sketched],
    share: Share,
    releases: int,
    coverage: float,
) -> Candidate:
    if query.k > MOST_COUNTERS:
        raise ParameterError(f"k must be at most {MOST_COUNTERS}, got {query.k}")
    if share.pure or share.bad == 0:
        raise ParameterError("unknown labels must have a delta, got a pure budget")
    made = make(query, share, releases)
    halves = normal_quantile(coverage) * made.deviations + made.hidden
    lost, beside = "labels so far", "beside the error shown"
    if query.expected_events is not None:
        labels = query.expected_events * query.max_keys_per_event
        lost, beside = f"{labels:,} labels at the end", "expected"
        halves = halves + labels / (query.k + 1) * np.linspace(1 / len(halves), 1, len(halves))
    memory = made.counters * COUNTER_BYTES
    return Candidate(
        name=f"{type(made.mechanism).__name__}, k = {query.k}",
        mechanism=made.mechanism,
        expected_error=ExpectedError.of(halves, coverage),
        pure=False,
        noise=made.noise,
        note=f"counts are too low by up to 1 / {query.k + 1:,} of the {lost}, {beside}",
        memory=memory,
        selectable=memory <= query.memory,
        excluded=_too_large(memory, query.memory),
    )


def _exact_counts(query: HeavyHitters, makers: Sequence[Maker]) -> Candidate:
    """The best of some histograms, as far as its memory allows it."""
    best = min((make() for make in makers), key=lambda candidate: candidate.expected_error.typical)
    if query.expected_keys is None:
        return replace(best, selectable=False, excluded="expected_keys, which its memory grows with, is not given")
    memory = query.expected_keys * EXACT_BYTES
    return replace(
        best,
        memory=memory,
        selectable=memory <= query.memory,
        excluded=_too_large(memory, query.memory),
        note=f"memory grows with the labels, by about {EXACT_BYTES} bytes each",
    )


def _too_large(memory: int, allowed: int) -> str:
    if memory <= allowed:
        return ""
    return f"it needs about {mebibytes(memory)} of memory, more than the {mebibytes(allowed)} allowed"


def _nodes(releases: int) -> NDArray[np.float64]:
    """How many nodes the releases are made of, of at most `PREDICTED_TICKS` of them."""
    step = -(-releases // PREDICTED_TICKS)
    return np.bitwise_count(np.arange(1, releases + 1, step, dtype=np.uint64)).astype(np.float64)


def _on_levels(deviation: float, levels: int) -> str:
    return f"discrete Gaussian, deviation {deviation:.3g} on {levels} level{'' if levels == 1 else 's'}"


def _check_single(query: HeavyHitters) -> None:
    if query.max_keys_per_event != 1:
        raise ParameterError(
            f"this sketch must count one label an event, got max_keys_per_event = {query.max_keys_per_event}"
        )
