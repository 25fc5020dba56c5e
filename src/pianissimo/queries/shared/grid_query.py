"""What queries share that count values in steps of a grid: sums and means, of all events or of those of each label.

With a key they are made of numbers and sums for each label, over two plans that share the query's part of the budget
by a public rule. For a sum S' + c0 N of Gaussian noise the least variance is at shares as W to |c0|: then it is that of
one series without centring, and N comes for nothing. For a mean somewhere in the range S' has five eighths.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import polars as pl

from pianissimo.checks import check_at_least, check_positive
from pianissimo.counting import LabelSums, grid_steps
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.mechanism import Release
from pianissimo.noise.plan import NoisePlan
from pianissimo.queries.histogram import unknown_thresholds
from pianissimo.queries.shared.asked import Nulls
from pianissimo.queries.shared.columns import (
    LargeDomain,
    Reads,
    Role,
    checked_key,
    domain_of,
    exactly,
    fault_of,
    labels_in,
)
from pianissimo.queries.shared.expected import Candidate, ExpectedError, Share, predict_error
from pianissimo.queries.shared.key_query import KeyQuery, check_single, labels_left_out
from pianissimo.queries.shared.label_query import series_of, user_cap_thresholds, user_thresholds
from pianissimo.queries.shared.query import PlanFor, Query, UserMechanism
from pianissimo.queries.shared.value_query import ValueQuery
from pianissimo.users import AdaptiveCap, Cap, Counters, Head, LabelSumsHead
from pianissimo.users.user_label_sums import UserLabelSums

MOST_STEPS = 2**40

FINE_STEPS = 2**20

_EVENT_STEPS = (FINE_STEPS, 2**17, 2**14, 2**10)
"""How many steps a sum of events counts in at least: the most that samplers have noise for."""

USER_STEPS = 2**6

_LEAST_NUMBER_SHARE = Fraction(1, 4)
"""Of what unknown labels may spend at least for their numbers, by which they appear."""


@lru_cache(1)
def _all_events() -> Domain:
    """The one label of a mean without a key; made when it is asked for, as polars then starts its threads."""
    return Domain(["all events"])


@dataclass(frozen=True, slots=True, kw_only=True)
class GridQuery(ValueQuery):
    """A query about sums of numbers, of all events or of those of each label."""

    grid: float | Fraction | None = None
    """Values are rounded to multiples of it, each by itself; both ends of the range are multiples. Without it, a grid
    of at least 2^20 steps over the range, or where no sampler has so much noise, of at least 2^10. Noise is a multiple
    of the range, so a finer grid does not add any."""

    key: str | Sequence[str] | None = None
    """The column of labels, or several, if it is asked for each label; see `Histogram`."""

    domain: LargeDomain | None = None
    """With a key: the labels, if they are known and public; without it, labels are shown once the number of their
    events passes a threshold, whatever they sum to."""

    max_keys_per_event: int = 1
    """With a key: how many distinct labels of one event count; the others are cut, first come first kept."""

    min_count: int = 1
    """With a key and without a domain: a label of fewer events is never shown."""

    null_rules: ClassVar[tuple[Nulls, ...]] = KeyQuery.null_rules
    move_bytes: ClassVar[int] = 3
    cuts_values: ClassVar[bool] = True

    def _check(self) -> None:
        check_at_least(1, max_keys_per_event=self.max_keys_per_event, min_count=self.min_count)
        if self.key is None:
            given = {"domain": self.domain is not None, "max_keys_per_event": self.max_keys_per_event != 1}
            given |= {"min_count": self.min_count != 1}
            if self.nulls == "label":
                raise ParameterError(f"nulls must be 'skip' or 'refuse' for {self.called} without a key, got 'label'")
            for name, is_given in given.items():
                if is_given:
                    raise ParameterError(f"key must be given with {name}, got none; name the column of labels")
        else:
            object.__setattr__(self, "key", checked_key(self.key))
            object.__setattr__(self, "domain", domain_of(self.domain, self.key_names))
            check_single(self)
            if self.domain is not None and self.min_count != 1:
                raise ParameterError("min_count must be left out where the domain is known, got one: all are shown")
        if self.grid is not None:
            check_positive(grid=self.grid)
            if not 1e-12 <= self.grid <= 1e12:
                raise ParameterError(f"grid must be between 1e-12 and 1e12, got {float(min(self.grid, 10**300)):g}")
        low, high = self.steps
        if not max(abs(low), abs(high)) <= MOST_STEPS:
            way_out = "give a grid, or ends with fewer digits" if self.grid is None else "take a coarser grid"
            raise ParameterError(f"range must have at most 2^40 steps of the grid, got more; {way_out}")

    # The grid

    @property
    def exact_grid(self) -> Fraction:
        """The grid as the decimal number it was written as: 0.01 is one hundredth."""
        return self._grid_of(FINE_STEPS)

    def _grid_of(self, steps: int) -> Fraction:
        return _fine_grid(*map(exactly, self.range), steps) if self.grid is None else exactly(self.grid)

    @property
    def steps(self) -> tuple[int, int]:
        """Both ends of the range in steps of the grid."""
        low, high = (_whole(end, self) for end in self.range)
        return low, high

    def unit_value(self, mechanism: Any) -> float:
        # Of users what lies between coarse steps is rounded by coins, right on average.
        inner = getattr(mechanism, "inner", mechanism)
        of_users = isinstance(inner, UserLabelSums) or getattr(inner, "coins", False)
        return float(self.exact_grid if of_users else self.grid_in(mechanism))

    def grid_in(self, mechanism: Any) -> Fraction:
        """What values are rounded to by a mechanism; for users what lies between is rounded right on average."""
        return self.exact_grid * getattr(mechanism, "coarse", 1)

    def coarse_steps(self) -> Iterator[int]:
        """How many steps of the grid a mechanism may count as one, the finest first."""
        sizes = dict.fromkeys(self._grid_of(steps) / self.exact_grid for steps in _EVENT_STEPS)
        return (int(size) for size in sizes if size.denominator == 1)

    # What it reads

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        several = self.max_keys_per_event > 1
        keys = (Reads(name, Role.LABELS, several) for name in self.key_names)
        return (*ValueQuery._own_reads.fget(self), *keys)  # type: ignore[attr-defined]

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        steps = grid_steps(self._values(frame), self.exact_grid).clip(*self.steps)
        if not self._by_label:
            return steps
        if self.key_names:
            several = self.max_keys_per_event > 1
            labels = labels_in(self.key_names, frame, label_nulls=self.nulls == "label", several=several)
        else:
            labels = _all_events().labels.new_from_index(0, len(steps))
        both = pl.DataFrame({"key": labels, "value": steps})
        sound = ~fault_of(labels) & steps.is_not_null()
        return both.select(pl.when(sound).then(pl.struct("key", "value")).alias(self.name)).to_series()

    def amounts(self, frame: pl.DataFrame) -> tuple[float, float] | None:
        values, matches = self._values(frame), self.matches(frame)
        values = (values if matches is None else values.filter(matches)).drop_nulls()
        return float(values.sum()), float(values.clip(*map(float, self.ends)).sum())

    @property
    def rule(self) -> str:
        own = ValueQuery.rule.fget(self)  # type: ignore[attr-defined]
        return f"{own}, and {Query.rule.fget(self)}" if self.key_names else str(own)  # type: ignore[attr-defined]

    # Single events

    @property
    def _by_label(self) -> bool:
        """Whether it is made of numbers and sums of labels."""
        return self.key is not None

    @property
    def listed(self) -> Domain | None:
        """The labels, where they are known; one for all events where there is no key."""
        return _all_events() if self.key is None else self.domain if isinstance(self.domain, Domain) else None

    @property
    def series(self) -> int:
        return 2 * series_of(self.listed) if self._by_label else 1

    @property
    def needs_delta(self) -> bool:
        return self.listed is None

    def label_sums(self, share: Share, plan_for: PlanFor, *, sum_alone: bool) -> tuple[LabelSums, NoisePlan]:
        """Numbers and sums of each label, or of listed labels the sums alone, on the finest grid there is noise for."""
        if self.listed is None and (share.pure or share.bad == 0):
            raise ParameterError("unknown labels must have a delta, got a pure budget")
        keys = self.max_keys_per_event if self.listed is None else min(self.max_keys_per_event, len(self.listed))
        problems = []
        for coarse in self.coarse_steps():
            try:
                plans = self._plans(share, plan_for, keys, coarse, sum_alone=sum_alone)
            except ParameterError as error:
                problems.append(error)
                continue
            low, high = self.steps
            mechanism = LabelSums(
                **plans,
                low=low,
                high=high,
                coarse=coarse,
                domain=self.listed,
                delta=share.bad / keys if self.listed is None else Fraction(0),
                max_keys_per_event=self.max_keys_per_event,
                min_count=self.min_count,
                history=self.history_kept,
            )
            return mechanism, mechanism.plan
        raise problems[-1]

    def _plans(
        self, share: Share, plan_for: PlanFor, keys: int, coarse: int, *, sum_alone: bool
    ) -> dict[str, NoisePlan]:
        low, high = (end // coarse for end in self.steps)
        if sum_alone and self.listed is not None:
            return {"plan": plan_for(share, series=keys, magnitude=max(abs(low), abs(high)))}
        if share.pure:
            both = plan_for(share, series=keys, magnitude=high - low)
            return {"plan": both, "sum_plan": both}
        centre = (low + high) // 2
        width = max(high - centre, centre - low)
        if sum_alone:
            number = max(_LEAST_NUMBER_SHARE, Fraction(abs(centre), abs(centre) + width).limit_denominator(1000))
        else:
            number = Fraction(1, 2) if self.listed is None else Fraction(3, 8)
        own, other = (Share(rho=share.rho * part) for part in (number, 1 - number))
        return {
            "plan": plan_for(own, series=keys),
            "sum_plan": plan_for(other, series=keys, magnitude=width),
        }

    def predicted(self, mechanism: Any, plan: NoisePlan, coverage: float) -> ExpectedError:
        if not isinstance(mechanism, LabelSums):
            return Query.predicted(self, mechanism, plan, coverage)
        scale, weights = self.unit_value(mechanism), self.series_weights(mechanism)
        errors = [
            predict_error(each, coverage, scale * weight, window=self.window)
            for each, weight in zip(mechanism.plans, weights, strict=True)
        ]
        typical, largest = (math.hypot(*(getattr(each, name) for each in errors)) for name in ("typical", "largest"))
        return ExpectedError(coverage=coverage, typical=typical, largest=largest)

    def series_weights(self, mechanism: LabelSums) -> tuple[float, ...]:
        """How much of the noise of each series its answer has, in steps."""
        raise NotImplementedError

    # Users

    @property
    def user_coarse(self) -> int:
        """In so many steps of the grid a cap that follows can rise; where it is fixed they are finer."""
        return int(self._grid_of(USER_STEPS) / self.exact_grid)

    def label_head(self, share: Fraction, *, means: bool) -> Head:
        """What is counted of accepted events by listed labels, one an event."""
        if self.listed is None or self.max_keys_per_event != 1:
            return Query.head(self, share)
        low, high = self.steps
        return LabelSumsHead(
            name=self.name, domain=self.listed, low=low, high=high, coarse=self.user_coarse, means=means, share=share
        )

    @property
    def is_shared(self) -> bool:
        """Whether it counts the events that the cap of all queries lets through."""
        return self.listed is not None and self.max_keys_per_event == 1

    @property
    def part(self) -> str:
        return "" if self.is_shared else self.name

    @property
    def user_series(self) -> int:
        return self.head().series if self.is_shared else self.series

    @property
    def capped_unit(self) -> str:
        return "events" if self.max_keys_per_event == 1 else "labels"

    def _only(self, column: pl.Series | None, counted: pl.Series) -> pl.Series:
        if not self._by_label or column is None:
            return Query._only(self, column, counted)
        return pl.select(pl.when(counted).then(column).alias(column.name)).to_series()

    def user_batch(self, content: pl.DataFrame) -> pl.DataFrame:
        if self.is_shared:
            return content
        own = content.select("user", pl.col(self.name)).drop_nulls(self.name)
        return own.select("user", pl.col(self.name).struct.unnest()).rename({"key": "label"})

    def user_mechanism(
        self, part: Sequence[Query], cap: Cap, shares: Mapping[str, Fraction], parameters: dict[str, Any]
    ) -> UserMechanism:
        if self.is_shared:
            return Query.user_mechanism(self, part, cap, shares, parameters)
        if parameters["signed"]:
            raise ParameterError(
                f"query {self.name!r} must have listed labels, one an event, where events are deleted, got another: of "
                "a label that was shown the promise is proven for events that only come (docs/privacy.md, 'Unknown "
                "labels of users'); list the labels, or leave weight out"
            )
        low, high = self.steps
        given: dict[str, Any] = {name: value for name, value in parameters.items() if name != "signed"}
        given |= {"low": low, "high": high, "domain": self.listed, "min_count": self.min_count}
        given |= {"max_keys_per_event": self.max_keys_per_event}
        if isinstance(cap, AdaptiveCap):
            return UserLabelSums.fitting(cap=cap, coarse=self.user_coarse, **given)
        for coarse in self.coarse_steps():
            with suppress(ParameterError):
                return UserLabelSums(cap=cap, coarse=coarse, **given)
        return UserLabelSums(cap=cap, coarse=self.user_coarse, **given)

    def user_counters(self, mechanism: Any) -> Counters:
        if self.is_shared:
            return Query.user_counters(self, mechanism)
        counters: Counters = mechanism.counters[0]
        return counters

    def user_value(self, release: Release[Any]) -> Any:
        return Query.user_value(self, release) if self.is_shared else release.value

    def units_of(self, events: int | None, of: Any = None) -> int | None:
        # Of an event each label is a unit.
        return None if events is None else events * self.max_keys_per_event

    def user_scale(self, mechanism: Any) -> float:
        if not self.is_shared:
            return float(self.grid_in(getattr(mechanism, "inner", mechanism)))
        return float(self.exact_grid * next(head.coarse for head in mechanism.heads if head.name == self.name))

    def cap_thresholds(self, mechanism: Any, caps: Sequence[int]) -> list[tuple[int, int] | None]:
        return user_cap_thresholds(mechanism, caps)

    def thresholds(self, mechanism: Any) -> tuple[int, int] | None:
        return unknown_thresholds(mechanism) or user_thresholds(mechanism)

    # Plans

    @property
    def of_each(self) -> str:
        """Of what it is asked, in words."""
        return f" of each {self.keys_told}" if self.key_names else ""

    def left_out(self, chosen: Candidate) -> list[str]:
        return [*ValueQuery.left_out(self, chosen), *(labels_left_out(self, chosen) if self.key_names else [])]

    def facts(self, chosen: Candidate) -> dict[str, Any]:
        grid, (low, high) = self.unit_value(chosen.in_period), map(float, self.range)
        told = Query.facts(self, chosen) | {"grid": grid}
        if self.key_names:
            told |= {"domain": "unknown" if self.listed is None else f"{len(self.listed)} labels"}
        # Ends of the range are whole steps, so that no rounding error makes this one too few.
        if round((high - low) / grid) >= FINE_STEPS:
            return told
        # How many events there are is nothing that a bar could be made of, so it is said instead.
        way_out = "" if self.grid is None else "; without a grid it is rounded as finely as the noise allows"
        return told | {
            "rounding": f"each value by itself, to multiples of {grid:g}: by up to {grid / 2:g} an event, which no bar "
            f"covers{way_out}"
        }


def _whole(end: Any, query: GridQuery) -> int:
    steps = exactly(end) / query.exact_grid
    if steps.denominator != 1:
        raise ParameterError(f"range must begin and end on multiples of the grid {query.grid}, got {end}")
    return int(steps)


@lru_cache(maxsize=1024)
def _fine_grid(low: Fraction, high: Fraction, steps: int) -> Fraction:
    """The largest grid of 1, 2 or 5 times a power of ten that both ends lie on and that has so many steps between them.

    Ends that no such grid has, such as a third, are on a binary fraction of what they are multiples of.
    """
    bottom = low.denominator * high.denominator
    common = Fraction(math.gcd(low.numerator * high.denominator, high.numerator * low.denominator), bottom)
    for power in range(12, -31, -1):
        for grid in (first * Fraction(10) ** power for first in (5, 2, 1)):
            if grid * steps <= high - low and (common / grid).denominator == 1:
                return grid
    while common * steps > high - low:
        common /= 2
    return common
